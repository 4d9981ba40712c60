"""Datalog text made ready for clingo: comments blanked, and the statements that need no check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from latentgamma._program.source_text import error_at

#: A predicate: its name and its number of arguments.
Signature = tuple[str, int]

_STRING = r'"(?:[^"\\\n]|\\[^\n])*+"'
_IDENTIFIER = r"(?!not(?!\w))_*+[a-z]\w*+"
_CONSTANT = rf"(?:{_IDENTIFIER}|-?[0-9]++(?!\w)|{_STRING})"
_BLANKS = r"[ \t\n]*+"
_ATOM = rf"{_IDENTIFIER}(?:\({_BLANKS}{_CONSTANT}{_BLANKS}(?:,{_BLANKS}{_CONSTANT}{_BLANKS})*+\))?+"
_LITERAL = rf"(?:not[ \t\n]++)?+{_ATOM}"
_BODY = rf"(?::-{_BLANKS}{_LITERAL}{_BLANKS}(?:,{_BLANKS}{_LITERAL}{_BLANKS})*+)?+"
_END = r"\.(?!\.)"

# Facts and rules without variables: most of a large text, and clingo reads them as they are.
_ground_statements = re.compile(rf"(?:{_BLANKS}{_ATOM}{_BLANKS}{_BODY}{_END})++", re.ASCII).match
_fact = re.compile(rf"({_STRING})|(?:^|(?<=\.))({_BLANKS})({_ATOM})(?={_BLANKS}{_END})", re.ASCII)
_ground_statement = re.compile(rf"{_BLANKS}({_ATOM}){_BLANKS}({_BODY}){_END}", re.ASCII).match
_literal = re.compile(rf"(not[ \t\n]++)?+({_ATOM})", re.ASCII)
_blank_or_string = re.compile(rf"({_STRING})|[ \t\n]++", re.ASCII)
_mark = re.compile(rf"{_STRING}|[(),]")
_statement = re.compile(rf'(?:[^."]++|{_STRING}|\.\.)*+\.').match
_not_blank = re.compile(r"[^ \t\n]").search
_special = re.compile(
    rf"""(?P<string>{_STRING})
    | (?P<open_string>")
    | (?P<block>%\*|/\*)
    | (?P<line>%[^\n]*+)
    | (?P<quote>')
    | (?P<foreign>[^\x00-\x7f])
    | \#(?:input|external)[ \t]++(?P<name>{_IDENTIFIER})[ \t]*+/[ \t]*+(?P<arity>[0-9]++)[ \t]*+\.
    | (?P<input>\#input\b)
    """,
    re.VERBOSE | re.ASCII,
).match
#: The largest number that clingo knows.
MOST = 2**31 - 1
_long_number = re.compile(r"[0-9][0-9a-fA-FobxOBX]{8}").search
_number = re.compile(
    rf"{_STRING}|(?<!\w)(0x[0-9a-fA-F]++|0o[0-7]++|0b[01]++|[1-9][0-9]*+)", re.ASCII
)
# A minus that is not between two operands.
_negative = re.compile(r"(?:^|[^\w)|\s])\s*-\s*$", re.ASCII).search
_escape = re.compile(r"""\\(?:[\\"n]|(?P<unknown>.))""", re.DOTALL)
_block_marks = {
    "%*": re.compile(r"%\*|\*%"),
    "/*": re.compile(r"\*/"),
}
# A search for one of a few characters is fast; what stands there is looked at after.
_first = re.compile(r"""["%'/#\x80-\U0010ffff]""").search


class Scanned(NamedTuple):
    """A text as clingo reads it, with everything at its line and column."""

    text: str
    #: The same with everything blanked that needs no check.
    unchecked: str
    #: The predicates that '#input edge/2.' declares.
    inputs: tuple[Signature, ...]
    #: Where facts and rules without variables stand, as (start, end).
    ground: tuple[tuple[int, int], ...]


def scan(text: str, path: str) -> Scanned:
    """The text without comments and '#input' declarations, and what in it needs a check.

    >>> scan("#input edge/2.  p(X) :- edge(X,Y).  % why", "r.lp").text.strip()
    'p(X) :- edge(X,Y).'
    """
    inputs: list[Signature] = []
    pieces: list[str] = []
    at = copied = 0
    while first := _first(text, at):
        found = _special(text, first.start())
        if found is None:
            at = first.end()
            continue
        kind, start, at = found.lastgroup, found.start(), found.end()
        if kind == "string":
            _check_escapes(text, start, at, path)
            continue
        if kind == "open_string":
            raise error_at(
                text, start, 'this string is not closed on its line; close it with "', path
            )
        if kind == "quote":
            problem = 'single quotes are not known in rules with variables; write "double quotes"'
            raise error_at(text, start, problem, path)
        if kind == "foreign":
            problem = f'{found[0]!r} stands outside a string; put the name in "double quotes"'
            raise error_at(text, start, problem, path)
        if kind == "input":
            problem = "expected a predicate and its number of arguments, such as '#input edge/2.'"
            raise error_at(text, start, problem, path)
        if kind == "block":
            at = _end_of_block(text, start, path)
        elif kind == "arity":
            inputs.append((found["name"], int(found["arity"])))
        pieces += [text[copied:start], _blank(text, start, at)]
        copied = at
    cleaned = "".join((*pieces, text[copied:])) if pieces else text
    if _long_number(cleaned):
        _check_numbers(cleaned, path)
    ground = _ground_parts(cleaned)
    return Scanned(cleaned, blanked(cleaned, ground), tuple(inputs), ground)


def _check_numbers(text: str, path: str) -> None:
    """Refuse numbers of more than 32 bits, which clingo wraps without a word."""
    for found in _number.finditer(text):
        if not found[1] or (value := int(found[1], 0)) <= MOST:
            continue
        if value == MOST + 1 and _negative(text, max(0, found.start() - 100), found.start()):
            continue
        problem = (
            f"{found[1]} does not fit in 32 bits ({-MOST - 1} to {MOST}); if it is a name, write it "
            f'as a string, "{found[1]}"'
        )
        raise error_at(text, found.start(), problem, path)


def _check_escapes(text: str, start: int, end: int, path: str) -> None:
    """Refuse escapes that clingo does not know: its message about some ends the process."""
    for escape in _escape.finditer(text, start, end):
        if escape["unknown"]:
            problem = f"{escape[0]} is no escape; write a backslash in a string as \\\\"
            raise error_at(text, escape.start(), problem, path)


def blanked(text: str, parts: tuple[tuple[int, int], ...]) -> str:
    """The text with these parts left out, and everything else at its line and column."""
    pieces = []
    copied = 0
    for start, end in parts:
        pieces += [text[copied:start], _blank(text, start, end)]
        copied = end
    return "".join((*pieces, text[copied:])) if pieces else text


def _blank(text: str, start: int, end: int) -> str:
    """Blanks after which the rest of the text is still on its line, in its column."""
    last = text.rfind("\n", start, end)
    return (
        " " * (end - start)
        if last < 0
        else text.count("\n", start, end) * "\n" + " " * (end - last - 1)
    )


def facts_renamed(text: str, new_names: dict[Signature, str]) -> str:
    """The ground statements with the facts of some predicates under another name.

    >>> facts_renamed("edge(a,b). edge(a). p :- edge(a,b).", {("edge", 2): "row"})
    'row(a,b). edge(a). p :- edge(a,b).'
    """

    def renamed(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        _, bracket, arguments = found[3].partition("(")
        new = new_names.get(signature_of(found[3]))
        return found[0] if new is None else f"{found[2]}{new}{bracket}{arguments}"

    return _fact.sub(renamed, text)


def ground_statements(
    text: str, start: int, end: int
) -> Iterator[tuple[int, str, list[str], list[str]]]:
    """Each statement of a part without variables: its place, head, body and negated atoms.

    >>> list(ground_statements("a.  p( x ) :- q, not r.", 0, 23))
    [(0, 'a', [], []), (4, 'p(x)', ['q'], ['r'])]
    """
    at = start
    while at < end and (found := _ground_statement(text, at, end)):
        head = _closed_up(found[1])
        literals = [(bool(x[1]), _closed_up(x[2])) for x in _literal.finditer(found[2] or "")]
        yield (
            found.start(1),
            head,
            [name for negative, name in literals if not negative],
            [name for negative, name in literals if negative],
        )
        at = found.end()


def signature_of(atom: str) -> Signature:
    """The predicate of a ground atom.

    >>> signature_of('edge(a,"b, c")')
    ('edge', 2)
    """
    name, arguments = arguments_of(atom)
    return name, len(arguments)


def arguments_of(atom: str) -> tuple[str, list[str]]:
    """The predicate and the arguments of a ground atom as clingo prints it.

    >>> arguments_of('edge(f(a,b),"b, c")')
    ('edge', ['f(a,b)', '"b, c"'])
    """
    name, bracket, rest = atom.partition("(")
    if not bracket:
        return atom, []
    if '"' not in rest and "(" not in rest:
        return name, rest[:-1].split(",")
    found: list[str] = []
    start = depth = 0
    for mark in _mark.finditer(rest):
        if mark[0] == "(":
            depth += 1
        elif mark[0] == ")" and depth:
            depth -= 1
        elif mark[0] in {",", ")"} and not depth:
            found.append(rest[start : mark.start()])
            start = mark.end()
    return name, found


def _closed_up(atom: str) -> str:
    """The atom without blanks outside of strings, as clingo prints it."""
    return _blank_or_string.sub(lambda found: found[1] or "", atom)


def _ground_parts(text: str) -> tuple[tuple[int, int], ...]:
    parts = []
    at = 0
    while _not_blank(text, at):
        if ground := _ground_statements(text, at):
            parts.append((at, ground.end()))
            at = ground.end()
        elif other := _statement(text, at):
            at = other.end()
        else:
            break
    return tuple(parts)


def _end_of_block(text: str, start: int, path: str) -> int:
    opening = text[start : start + 2]
    depth = 1
    for mark in _block_marks[opening].finditer(text, start + 2):
        depth += 1 if mark[0] == opening else -1
        if depth == 0:
            return mark.end()
    raise error_at(text, start, f"this comment is not closed by '{opening[::-1]}'", path)
