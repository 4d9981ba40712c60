"""Datalog text made ready for clingo: comments blanked, and the statements that need no check."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from latentgamma._errors import ParseError
from latentgamma._program.names import UnreadableName, is_word, read_name
from latentgamma._program.source_text import error_at
from latentgamma.datalog.clingo_names import (
    ENCODED,
    clingo_string,
    decode_name,
    encode_argument,
    encode_name,
)

#: A predicate: its name and its number of arguments.
Signature = tuple[str, int]

_FOREIGN = r"\x80-\U0010ffff"
_STRING = r'"(?:[^"\\\n]|\\[^\n])*+"'
_IDENTIFIER = rf"(?:{ENCODED}|(?!not(?!\w))_*+[a-z]\w*+)"
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
_mark = re.compile(rf"{_STRING}|'(?:[^'\\]|\\.)*+'|[(),]")
_statement = re.compile(rf'(?:[^."]++|{_STRING}|\.\.)*+\.').match
_not_blank = re.compile(r"[^ \t\n]").search
_special = re.compile(
    rf"""(?P<string>{_STRING})
    | (?P<open_string>")
    | (?P<block>%\*|/\*)
    | (?P<line>%[^\n]*+)
    | (?P<quote>')
    | (?P<foreign>[{_FOREIGN}])
    | \#(?:input|external)[ \t]++(?P<name>[a-z_{_FOREIGN}][\w{_FOREIGN}]*+)[ \t]*+/[ \t]*+(?P<arity>[0-9]++)[ \t]*+\.
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
_escape = re.compile(
    r"""\\(?:[\\"n]|(?P<other>['rt]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})|(?P<unknown>.))""", re.DOTALL
)
_word = re.compile(r"\w++").match
_not_line_end = re.compile(r"[^\n]")
_token = re.compile(
    rf"{_STRING}|:-|=>|->|<-(?!>)|\.\.|{ENCODED}|\w++|[ \t\n]++|.", re.ASCII | re.DOTALL
)
_block_marks = {
    "%*": re.compile(r"%\*|\*%"),
    "/*": re.compile(r"\*/"),
}
# A search for one of a few characters is fast; what stands there is looked at after.
_first = re.compile(r"""["%'/#\x80-\U0010ffff]""").search


class Scanned(NamedTuple):
    """A text as clingo reads it."""

    text: str
    #: The same with everything blanked that needs no check.
    unchecked: str
    #: The predicates that '#input edge/2.' declares.
    inputs: tuple[Signature, ...]
    #: Where facts and rules without variables stand, as (start, end).
    ground: tuple[tuple[int, int], ...]
    #: Where each part of it stands in the text as it was given; two steps.
    parts: tuple[_Parts, _Parts]

    def place(self, at: int) -> int:
        """The place in the text that was given."""
        return self.parts[0].place(self.parts[1].place(at))


class _Parts:
    """A text put together from parts of another, and where each part was."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0
        self.starts = [0]
        self.places = [0]

    def add(self, piece: str, place: int) -> None:
        """Append what stands at a place of the other text, or in its stead."""
        self.pieces.append(piece)
        self.starts.append(self.length)
        self.places.append(place)
        self.length += len(piece)

    def place(self, at: int) -> int:
        """The place in the other text."""
        n = bisect_right(self.starts, at) - 1
        return self.places[n] + at - self.starts[n]


def scan(text: str, path: str) -> Scanned:
    """The text as clingo reads it, and what in it needs a check.

    Comments and '#input' declarations are blanked. What rule text has and clingo has not is written
    in its way: names (see `clingo_names`), several heads, `=>`, `->` and `<-`.

    >>> scan("#input edge/2.  p(X) :- edge(X,Y).  % why", "r.lp").text.strip()
    'p(X) :- edge(X,Y).'
    >>> scan("a(X), größe(X) <- b(X).", "r.lp").text.strip()
    "a(X) :-  b(X).  'x6772c3b6c39f65(X) :-  b(X)."
    """
    inputs: list[Signature] = []
    parts = _Parts()
    at = copied = 0
    while first := _first(text, at):
        found = _special(text, first.start())
        if found is None:
            at = first.end()
            continue
        kind, start, at = found.lastgroup, found.start(), found.end()
        if kind == "string":
            if not _has_other_escapes(text, start, at, path):
                continue
            new = clingo_string(_content(text, start, path)[0])
        elif kind == "open_string":
            raise error_at(
                text, start, 'this string is not closed on its line; close it with "', path
            )
        elif kind == "quote":
            name, at = _content(text, start, path)
            new = encode_argument(name)
        elif kind == "foreign":
            while start > copied and (text[start - 1] == "_" or text[start - 1].isalnum()):
                start -= 1
            word = _word(text, start)
            if word is None:
                problem = f"{found[0]!r} stands outside a string; put the name in quotes"
                raise error_at(text, start, problem, path)
            if not is_word(word[0]):
                problem = (
                    f"'{word[0]}' is no name, and variables have the letters A to Z only; put it in "
                    "quotes if it is a name"
                )
                raise error_at(text, start, problem, path)
            new, at = encode_name(word[0]), word.end()
        elif kind == "input":
            problem = "expected a predicate and its number of arguments, such as '#input edge/2.'"
            raise error_at(text, start, problem, path)
        else:
            if kind == "block":
                at = _end_of_block(text, start, path)
            elif kind == "arity":
                inputs.append((encode_name(found["name"]), int(found["arity"])))
            new = _blank(text, start, at)
        parts.add(text[copied:start], copied)
        parts.add(new, start)
        copied = at
    parts.add(text[copied:], copied)
    cleaned = "".join(parts.pieces)
    if _long_number(cleaned):
        _check_numbers(cleaned, lambda at, problem: error_at(text, parts.place(at), problem, path))
    rewritten = _rewritten(cleaned)
    cleaned = "".join(rewritten.pieces)
    ground = _ground_parts(cleaned)
    return Scanned(cleaned, blanked(cleaned, ground), tuple(inputs), ground, (parts, rewritten))


def _content(text: str, start: int, path: str) -> tuple[str, int]:
    """The content of the quotes that open here, and where they end."""
    try:
        name, end = read_name(text, start)
    except UnreadableName as error:
        raise error_at(text, error.position, error.problem, path) from None
    if "\0" in name:
        raise error_at(text, start, "a name or a string cannot have the character NUL", path)
    return name, end


def _rewritten(text: str) -> _Parts:
    """The text with what clingo does not know of statements written in its way."""
    parts = _Parts()
    copied = at = 0
    while _not_blank(text, at):
        if ground := _ground_statements(text, at):
            at = ground.end()
        elif other := _statement(text, at):
            tokens = list(_token.finditer(text, at, other.end()))
            if pieces := _rewritten_statement(tokens):
                parts.add(text[copied:at], copied)
                for piece, place in pieces:
                    parts.add(piece, place)
                copied = other.end()
            at = other.end()
        else:
            break
    parts.add(text[copied:], copied)
    return parts


_ARROWS = frozenset({":-", "<-", "=>", "->"})
_BEFORE_ATOM = frozenset({"", ",", ";", ":", "not", "external", *_ARROWS})
_AFTER_ATOM = frozenset({",", ";", ":", ".", *_ARROWS})


def _rewritten_statement(tokens: list[re.Match[str]]) -> list[tuple[str, int]]:
    """The pieces of a statement as clingo reads it, with their places; none if it is as it is."""
    tokens = [token for token in tokens if not token[0].isspace()]
    depths = []
    depth = 0
    for token in tokens:
        depth -= token[0] in ")]}"
        depths.append(depth)
        depth += token[0] in "([{"
    top = [token[0] if not depth else "(" for token, depth in zip(tokens, depths, strict=True)]
    # '<-' is a comparison with a negative number where there is another arrow.
    arrows = [n for n, mark in enumerate(top) if mark in _ARROWS - {"<-"}]
    arrows = arrows or [n for n, mark in enumerate(top) if mark == "<-"]
    top = ["<" if mark == "<-" and n != arrows[0] else mark for n, mark in enumerate(top)]
    changed = False
    pieces: list[tuple[str, int]] = []
    for n, token in enumerate(tokens):
        piece = token[0]
        before, after = top[n - 1] if n else "", top[n + 1] if n + 1 < len(top) else ""
        literal = piece.startswith('"') or piece.isdigit()
        if literal and not depths[n] and before in _BEFORE_ATOM and after in _AFTER_ATOM:
            name = read_name(piece)[0] if len(piece) > 2 or piece.isdigit() else ""
            piece = encode_name(name) if name else piece
            changed = True
        # What was apart stays apart.
        gap = " " if n and tokens[n - 1].end() < token.start() else ""
        pieces.append((gap + piece, token.start() - len(gap)))
    if top[0].startswith("#") or (arrows and arrows[0] == 0 and top[0] in {":-", "<-"}):
        return pieces if changed else []
    arrow = arrows[0] if arrows else len(tokens) - 1
    left, right = range(arrow), range(arrow + 1, len(tokens) - 1)
    sides = (right, left) if top[arrow] in {"=>", "->"} else (left, right)
    heads: list[list[int]] = [[]]
    for n in sides[0]:
        if top[n] in {";", ":", "|", "{", "#"}:
            return pieces if changed else []  # a choice or a disjunction, which is refused later
        if top[n] == ",":
            heads.append([])
        else:
            heads[-1].append(n)
    if not changed and len(heads) == 1 and top[arrow] in {":-", "."}:
        return []
    found: list[tuple[str, int]] = []
    for head in heads:
        found += [pieces[n] for n in head]
        if sides[1]:
            found += [(" :- ", tokens[arrow].start()), *(pieces[n] for n in sides[1])]
        found.append((". ", tokens[-1].start()))
    return found


def _check_numbers(text: str, error: Callable[[int, str], ParseError]) -> None:
    """Refuse numbers of more than 32 bits, which clingo wraps without a word."""
    for found in _number.finditer(text):
        if not found[1] or (value := int(found[1], 0)) <= MOST:
            continue
        if value == MOST + 1 and _negative(text, max(0, found.start() - 100), found.start()):
            continue
        raise error(
            found.start(),
            f"{found[1]} does not fit in 32 bits ({-MOST - 1} to {MOST}); if it is a name, write it "
            f'as a string, "{found[1]}"',
        )


def _has_other_escapes(text: str, start: int, end: int, path: str) -> bool:
    """Whether a string has escapes that clingo does not know; those of rule text are known here."""
    other = False
    for escape in _escape.finditer(text, start, end):
        if escape["unknown"]:
            problem = f"{escape[0]} is no escape; write a backslash in a string as \\\\"
            raise error_at(text, escape.start(), problem, path)
        other |= escape["other"] is not None
    return other


def blanked(text: str, parts: tuple[tuple[int, int], ...]) -> str:
    """The text with these parts left out, and everything else at its line and column."""
    pieces = []
    copied = 0
    for start, end in parts:
        pieces += [text[copied:start], _blank(text, start, end)]
        copied = end
    return "".join((*pieces, text[copied:])) if pieces else text


def _blank(text: str, start: int, end: int) -> str:
    """Blanks, and the line ends of this part."""
    return _not_line_end.sub(" ", text[start:end])


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
    """Each statement of a part without variables: its place, and the names of its atoms.

    >>> list(ground_statements("a.  p( x ) :- q, not r.", 0, 23))
    [(0, 'a', [], []), (4, 'p(x)', ['q'], ['r'])]
    """
    at = start
    while at < end and (found := _ground_statement(text, at, end)):
        head = decode_name(_closed_up(found[1]))
        literals = [
            (bool(x[1]), decode_name(_closed_up(x[2]))) for x in _literal.finditer(found[2] or "")
        ]
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
    if '"' not in rest and "'" not in rest and "(" not in rest:
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
