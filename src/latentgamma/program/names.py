r"""How an atom's name is written in rule text.

A name is any non-empty string. It is written without quotes when it is a word that does not start like a
variable (`bird`, `_x1`, `größe`), a number (`3`), or a ground term without spaces
(`edge(a,b)`, `p(f(x),-3,"x y")`); every other name is written in quotes (`'not'`, `'x y'`).
Between quotes `\\ \' \" \n \r \t \uXXXX \UXXXXXXXX` mean what they mean in Python.

A *condition* compares a column with a constant: `age < 18`, `status = open`,
`country in {ir, kp}`, `income is missing`. A *count* says that at least so many of some literals
hold: `2 { cough; fever; not vaccinated }`. The name of either is that text, written without quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeAlias

# Non-ASCII word characters count as lower-case letters; 'not' is reserved for an error.
_WORD = r"(?!not(?!\w))_*+[^\WA-Z0-9_]\w*+"
_NUMBER = r"[0-9]++(?!\w)"
# A quoted argument that is its own canonical form: printable, and nothing to escape.
_SIMPLE = r'"[ !#-\[\]-~\w]*+"'
_ARGUMENT = rf"(?:{_WORD}|-?{_NUMBER}|{_SIMPLE})"
#: A word with plain arguments or none: the atoms that one regular expression can read.
FLAT = rf"{_WORD}(?:\({_ARGUMENT}(?:,{_ARGUMENT})*+\))?+"

_bare = re.compile(rf"{FLAT}|{_NUMBER}")
_plain_word = re.compile(_WORD).fullmatch
_opening = re.compile(rf"{_WORD}\(").match
_functors = re.compile(rf"(?:{_WORD}\()++").match
_simple_arguments = re.compile(rf"(?:{_ARGUMENT},)++").match
_gap = re.compile(r"[ \t\n]++").match
_part = re.compile(rf"{_ARGUMENT}|[('\"]").match
_ESCAPE = r"\\(?:[\\'\"nrt]|u[0-9A-Fa-f]{4}|U(?:0010[0-9A-Fa-f]{4}|000[0-9A-Fa-f]{5}))"
_content = {mark: re.compile(rf"(?:[^{mark}\\\n]++|{_ESCAPE})*+").match for mark in ("'", '"')}

_ESCAPES = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


class UnreadableName(Exception):  # noqa: N818 - never leaves the readers, who add the place
    """A text has no name at `position`; an empty `problem` means that a part is missing."""

    def __init__(self, position: int, problem: str = "") -> None:
        self.position = position
        self.problem = problem
        super().__init__(position, problem)


def quote(name: str) -> str:
    r"""Return the name as rule text has it: bare if it can be, else in single quotes.

    >>> print(quote("bird"), quote("edge(a,b)"), quote("edge(a, b)"), quote("it's\n"))
    bird edge(a,b) 'edge(a, b)' 'it\'s\n'
    """
    return name if is_plain(name) or _is_canonical(name) else add_quotes(name, "'")


def quote_argument(name: str) -> str:
    """Return the name as an argument of a term: as `quote` does, but a condition is quoted too."""
    return name if is_plain(name) else add_quotes(name, "'")


def quote_functor(name: str) -> str:
    """Return the name of a predicate that has arguments: a word, or else in quotes."""
    return name if is_word(name) else add_quotes(name, "'")


def is_plain(name: str) -> bool:
    """Return whether a name is a word, a number or a ground term, as rule text and clingo have it."""
    return _bare.fullmatch(name) is not None or _is_nested_term(name)


def is_word(name: str) -> bool:
    """Return whether a name is a word: letters, digits and '_', not like a variable or a number."""
    return _plain_word(name) is not None


def rule_text(heads: Iterable[str], body: Iterable[str]) -> str:
    """Return one rule as text, from names that are already written as text.

    >>> rule_text(["h"], ["a", "b"]), rule_text(["a"], []), rule_text([], ["a"])
    ('h :- a, b.', 'a.', ':- a.')
    """
    literals = ", ".join(body)
    return f"{', '.join(heads)} :- {literals}.".lstrip() if literals else f"{', '.join(heads)}."


def read_name(text: str, start: int = 0) -> tuple[str, int]:
    """Return the name written at `start`, quoted or bare, and where it ends.

    >>> read_name("edge( a , f(b) ).")
    ('edge(a,f(b))', 16)
    """
    if text[start : start + 1] in {"'", '"'}:
        name, end = read_quoted(text, start)
        if not name:
            raise UnreadableName(start, "a name must not be empty")
        if text.startswith("'(", end - 1):
            arguments, end = _read_term(text, end, end + 1)
            return f"{quote_functor(name)}{arguments}", end
        return name, end
    if functor := _opening(text, start):
        return _read_term(text, start, functor.end())
    if plain := _bare.match(text, start):
        return plain[0], plain.end()
    raise UnreadableName(start)


def read_atom(text: str, start: int = 0) -> tuple[str, int]:
    """Return the name or the condition written at `start`, and where it ends.

    >>> read_atom("edge( a, b )"), read_atom("age<18"), read_atom("'Net Income' >= 1e3")
    (('edge(a,b)', 12), ('age < 18', 6), ("'Net Income' >= 1000", 19))
    """
    if _opens_count(text, start):
        return read_count(text, start)
    name, end = read_name(text, start)
    found = read_comparison(text, end)
    if found is None:
        return name, end
    if not is_column(text, start, end):
        raise UnreadableName(start, _NOT_A_COLUMN)
    return condition_text(name, *found[:2]), found[2]


def _is_nested_term(name: str) -> bool:
    if not name.endswith(")") or not (name.startswith("'") or _opening(name)):
        return False
    try:
        return read_name(name) == (name, len(name))
    except UnreadableName:
        return False


def add_quotes(content: str, mark: str) -> str:
    """Return the content between two of these quotes, with escapes where they are needed."""
    if content.isprintable() and "\\" not in content:
        return f"{mark}{content.replace(mark, chr(92) + mark)}{mark}"
    return f"{mark}{''.join(_escape(c, mark) for c in content)}{mark}"


def _escape(character: str, mark: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character == mark:
        return f"\\{mark}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def read_quoted(text: str, start: int) -> tuple[str, int]:
    """Return the content between two quotes, unescaped, and where it ends."""
    mark = text[start]
    match = _content[mark](text, start + 1)
    end = match.end() if match else start + 1
    content = text[start + 1 : end]
    if text.startswith("\\", end):
        raise UnreadableName(
            end,
            f"unknown escape '{text[end : end + 2].strip()}' in a quoted name; "
            r"use \\ \' \" \n \r \t \uXXXX or \UXXXXXXXX",
        )
    if not text.startswith(mark, end):
        raise UnreadableName(start, f"this quote is not closed on its line; close it with {mark}")
    if "\\" in content:  # only such escapes are left as Python has, too
        content = content.encode("ascii", "backslashreplace").decode("unicode_escape")
    return content, end + 1


def _read_term(text: str, start: int, at: int) -> tuple[str, int]:
    """Return the term whose first argument is due at `at`, without its spaces, and where it ends.

    Terms may be nested as deep as memory allows, so the levels lie in an array: a level is 0
    in a compound term, 1 in a tuple, and 2 in a tuple that has had a comma.
    """
    levels = bytearray(1)
    pieces = []  # what comes before a gap, or an argument rewritten
    copied = start
    while True:
        if gap := _gap(text, at):
            pieces.append(text[copied:at])
            copied = at = gap.end()
        if simple := _simple_arguments(text, at):
            at = simple.end()
            levels[-1] = 2 if levels[-1] else 0
            continue
        if functors := _functors(text, at):
            levels.extend(bytes(functors[0].count("(")))
            at = functors.end()
            continue
        part = _part(text, at)
        if part is None:
            raise UnreadableName(at)
        if part[0] == "(":
            levels.append(1)
            at = part.end()
            continue
        if part[0] in _content:
            content, end = read_quoted(text, at)
            written = add_quotes(content, '"') if part[0] == '"' else quote_argument(content)
            if not content and part[0] == "'":
                raise UnreadableName(at, "a name must not be empty")
            if written != text[at:end]:
                pieces += [text[copied:at], written]
                copied = end
            at = end
        else:
            at = part.end()
        while True:  # after an argument: another one, or the end of this level
            if gap := _gap(text, at):
                pieces.append(text[copied:at])
                copied = at = gap.end()
            mark = text[at : at + 1]
            at += 1
            if mark == ",":
                levels[-1] = 2 if levels[-1] else 0
                break
            if mark != ")":
                raise UnreadableName(at - 1)
            if levels.pop() == 1:
                raise UnreadableName(at - 1, "a tuple of arguments has at least two members")
            if not levels:
                return "".join((*pieces, text[copied:at])), at


# ---- Conditions: a column compared with a constant, with constants of a set, or missing

#: A number or a text.
Constant: TypeAlias = "int | float | str"
#: What a column is compared with: several constants after `in`, nothing after `is missing`.
Operand: TypeAlias = "Constant | tuple[Constant, ...] | None"
#: The comparisons that a condition can have.
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "is missing")

_NOT_A_COLUMN = (
    "a condition compares a column, which is a word or a name in quotes, with a constant"
)
# '=>' and '<-' are arrows. Where an arrow came before, '<-3' compares with a negative number.
_comparator = re.compile(
    r"""[ \t\n]*+(?:
      (==?(?!>)|!=|<=(?!>)|>=|<(?!-)|<(?=-[.0-9])|>)
    | (in)(?!\w)(?=[ \t\n]*+\{)
    | (is)[ \t\n]++missing(?!\w)
    )[ \t\n]*+""",
    re.VERBOSE,
).match
_thousands = re.compile(r",[0-9]{3}(?!\w)").match
_number = re.compile(r"-?(?:[0-9]++(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+(?!\w)").match
_word = re.compile(_WORD).match
_in_set = re.compile(r"[ \t\n]*+([,}])[ \t\n]*+").match
_may_be_condition = re.compile(r"[=<>]|\bin\b|\bmissing$").search
#: Whole numbers from here on are kept as floating-point numbers.
_LARGEST_INT = 2**53
# A time of a day as ISO 8601 has it, or with a space in place of the T.
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?"
    r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
)


def condition_text(column: str, op: str, value: Operand) -> str:
    """Return a condition as its name has it.

    >>> condition_text("age", "<", 18.0), condition_text("country", "in", ("kp", "ir", "U S"))
    ('age < 18', 'country in {"U S", ir, kp}')
    """
    left = column if is_word(column) else add_quotes(column, "'")
    if isinstance(value, tuple):
        return f"{left} {op} {{{', '.join(map(constant_text, sorted(set(value))))}}}"
    return f"{left} {op}" if value is None else f"{left} {op} {constant_text(value)}"


def constant_text(value: Constant) -> str:
    """Return a constant as rule text has it: a number, a word, or a text in double quotes."""
    if isinstance(value, str):
        value = time_text(value)
        return value if is_word(value) else add_quotes(value, '"')
    return repr(plain_number(value))


def time_text(text: str) -> str:
    """Return a text that is a time of a day as times are compared, and any other text as it is.

    >>> time_text("2026-01-31 08:30"), time_text("2026-01-31T01:30:00.5+02:00"), time_text("open")
    ('2026-01-31T08:30:00', '2026-01-30T23:30:00', 'open')
    """
    if len(text) < 13 or text[4] != "-" or not _TIME.fullmatch(text):
        return text
    try:
        return datetime_text(datetime.fromisoformat(text))
    except (ValueError, OverflowError):  # such as the 30th of February
        return text


def datetime_text(time: datetime) -> str:
    """Return a time as it is compared: in UTC, to the second, and a midnight as its date."""
    if time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    return time.isoformat("T", "seconds").removesuffix("T00:00:00")


def plain_number(value: float) -> int | float:
    """Return a number as an int if it is a whole one that is not too large, else as a float."""
    if abs(value) < _LARGEST_INT and value == int(value):
        return int(value)
    return float(value)


def is_column(text: str, start: int, end: int) -> bool:
    """Return whether the name written here can be that of a column: a word, or in quotes."""
    return text[end - 1] in _content or is_word(text[start:end])


def read_comparison(text: str, at: int, *, arrow: bool = True) -> tuple[str, Operand, int] | None:
    """Return the comparison that stands after a name, its operand and its end; None if none does.

    Args:
        text: the whole text.
        at: where the name ends.
        arrow: whether '<-' cannot be an arrow here.
    """
    found = _comparator(text, at)
    if found is None or (not arrow and text.startswith("<-", found.start(1))):
        return None
    at = found.end()
    if found[3]:
        return "is missing", None, at - len(found[0]) + len(found[0].rstrip(" \t\n"))
    if not found[2]:
        value, at = _read_constant(text, at)
        if not isinstance(value, str) and _thousands(text, at):
            raise UnreadableName(at, "a number is written without ',' between its digits")
        return "=" if found[1] == "==" else found[1], value, at
    values: list[Constant] = []
    at += 1
    while True:
        if gap := _gap(text, at):
            at = gap.end()
        value, at = _read_constant(text, at)
        values.append(value)
        mark = _in_set(text, at)
        if mark is None:
            raise UnreadableName(at, "expected ',' or '}' after a constant of the set")
        at = mark.end() if mark[1] == "," else mark.end(1)
        if mark[1] == "}":
            break
    if len({isinstance(value, str) for value in values}) > 1:
        raise UnreadableName(found.end(), "a set has numbers or texts, not both")
    return "in", tuple(sorted(set(values))), at


def _read_constant(text: str, at: int) -> tuple[Constant, int]:
    if number := _number(text, at):
        value = float(number[0])
        if value in (float("inf"), float("-inf")):
            raise UnreadableName(at, "this number is too large")
        if abs(value) >= _LARGEST_INT and number[0].lstrip("+-").isdigit():
            raise UnreadableName(
                at,
                "this whole number is too large to be compared exactly; write it as a text, in quotes",
            )
        return plain_number(value), number.end()
    if text[at : at + 1] in {"'", '"'}:
        content, end = read_quoted(text, at)
        return time_text(content), end
    if word := _word(text, at):
        return word[0], word.end()
    raise UnreadableName(at, _NOT_A_CONSTANT)


_NOT_A_CONSTANT = (
    'a column is compared with a number, a word such as open, or a text such as "Open"'
)


def split_condition(name: str) -> tuple[str, str, Operand] | None:
    """Return the column, the comparison and the operand of a condition; None if it is not one.

    >>> split_condition("age < 18"), split_condition("bird")
    (('age', '<', 18), None)
    """
    if not _may_be_condition(name):
        return None
    try:
        column, end = read_name(name)
        found = read_comparison(name, end)
    except UnreadableName:
        return None
    if found is None or found[2] != len(name) or not is_column(name, 0, end):
        return None
    return column, found[0], found[1]


def is_computed(name: str) -> bool:
    """Return whether a name is that of a condition or a count, which are computed, not given."""
    return split_condition(name) is not None or split_count(name) is not None


def _is_canonical(name: str) -> bool:
    """Return whether a name is that of a condition or a count, written as it is here."""
    if "{" in name and (count := split_count(name)) is not None:
        return count_text(*count) == name
    parts = split_condition(name)
    return parts is not None and condition_text(*parts) == name


# ---- Counts: at least so many of some literals

#: What a count needs: its bound, the atoms that may hold, and those that may not follow.
Count: TypeAlias = "tuple[int, tuple[str, ...], tuple[str, ...]]"

_opens_count = re.compile(r"[0-9]++[ \t\n]*+\{").match
_negation = re.compile(r"not(?![\w(])[ \t\n]*+").match
_separator = re.compile(r"[ \t\n]*+([;}])").match


def count_text(bound: int, atoms: Iterable[str], negated: Iterable[str] = ()) -> str:
    """Return a count as its name has it.

    >>> count_text(2, ["fever", "cough"], ["vaccinated"])
    '2 { cough; fever; not vaccinated }'
    """
    literals = [quote(name) for name in sorted(set(atoms))]
    literals += [f"not {quote(name)}" for name in sorted(set(negated))]
    return f"{bound} {{ {'; '.join(literals)} }}"


def read_count(text: str, start: int) -> tuple[str, int]:
    """Return the count that is written at `start`, as its name has it, and where it ends."""
    count, end = _read_count(text, start)
    return count_text(*count), end


def _read_count(text: str, start: int) -> tuple[Count, int]:
    found = _opens_count(text, start)
    if found is None:
        raise UnreadableName(start)
    literals: tuple[set[str], set[str]] = (set(), set())
    at = found.end()
    while True:
        if gap := _gap(text, at):
            at = gap.end()
        sign = _negation(text, at)
        at = sign.end() if sign else at
        if _opens_count(text, at):
            raise UnreadableName(at, "a count has atoms, not other counts")
        try:
            name, at = read_atom(text, at)
        except UnreadableName as error:
            expected = "expected an atom, or 'not' and an atom"
            raise UnreadableName(error.position, error.problem or expected) from None
        literals[sign is not None].add(name)
        mark = _separator(text, at)
        if mark is None:
            raise UnreadableName(at, "expected ';' or '}' after a literal of a count")
        at = mark.end()
        if mark[1] == "}":
            break
    number = found[0].rstrip(" \t\n{")
    total = len(literals[0]) + len(literals[1])
    if len(number) > 9 or not 1 <= int(number) <= total:
        problem = (
            f"the bound of this count is from 1 to {total}, the number of its different literals"
        )
        raise UnreadableName(start, problem)
    return (int(number), tuple(sorted(literals[0])), tuple(sorted(literals[1]))), at


def split_count(name: str) -> Count | None:
    """Return the bound, the atoms and the negated atoms of a count; None if it is not one.

    >>> split_count("2 { cough; fever; not vaccinated }")
    (2, ('cough', 'fever'), ('vaccinated',))
    """
    if not _opens_count(name):
        return None
    try:
        count, end = _read_count(name, 0)
    except UnreadableName:
        return None
    return count if end == len(name) else None
