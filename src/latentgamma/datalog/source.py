"""The text of a program with variables: tokens, statements and their positions."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from latentgamma.datalog.clingo_names import (
    ENCODED,
    PREDICATE,
    clingo_string,
    decode_name,
    decode_text,
    encode_argument,
    encode_functor,
    encode_name,
    encode_predicate,
)
from latentgamma.errors import ParseError, ProgramError
from latentgamma.program.names import UnreadableName, is_word, read_name, read_quoted
from latentgamma.program.program import Label
from latentgamma.program.rule_text import error_at, misplaced_label, read_label, starts_label

# ---- Datalog text made ready for clingo: comments blanked, and the statements that need no check

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
_mark = re.compile(rf"{_STRING}|[(),]")
_statement = re.compile(rf'(?:[^."]++|{_STRING}|\.\.)*+\.').match
_external_type = re.compile(rf"{_BLANKS}\[\w*+\]").match
_not_blank = re.compile(r"[^ \t\n]").search
_special = re.compile(
    rf"""(?P<string>{_STRING})
    | (?P<open_string>")
    | (?P<block>%\*|/\*)
    | (?P<line>%[^\n]*+)
    | (?P<quote>')
    | (?P<foreign>[{_FOREIGN}])
    | \#(?:input|external)[ \t]++(?P<name>{PREDICATE})[ \t]*+/[ \t]*+(?P<arity>[0-9]++)[ \t]*+\.
    | (?P<directive>\#(?:input|include)\b)
    """,
    re.VERBOSE,
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
    #: The labels that comments give, by the place of the full stop of the rule in the given text.
    labels: dict[int, Label]

    def place(self, at: int) -> int:
        """Return the place in the text that was given."""
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
        """Return the place in the other text."""
        n = bisect_right(self.starts, at) - 1
        return self.places[n] + at - self.starts[n]


def scan(text: str, path: str) -> Scanned:
    """Return the text as clingo reads it, and what in it needs a check.

    Comments and '#input' declarations are blanked. What rule text has and clingo has not is written
    in its way: names (see `clingo_names`), several heads, `=>`, `->` and `<-`.

    >>> scan("#input edge/2.  p(X) :- edge(X,Y).  % why", "r.lp").text.strip()
    'p(X) :- edge(X,Y).'
    >>> scan("a(X), größe(X) <- b(X).", "r.lp").text.strip()
    "a(X) :-  b(X).  ''x6772c3b6c39f65(X) :-  b(X)."
    """
    inputs: list[Signature] = []
    comments: list[tuple[int, int, str]] = []
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
            functor = text.startswith("(", at)
            new = encode_functor(name) if functor else encode_argument(name)
        elif kind == "foreign":
            while start > copied and (text[start - 1] == "_" or text[start - 1].isalnum()):
                start -= 1
            word = _word(text, start)
            if word is None:
                problem = f"{found[0]!r} stands outside a string; put the name in quotes"
                raise error_at(text, start, problem, path)
            if not is_word(word[0]):
                problem = (
                    f"'{word[0]}' is not a name, and variables have the letters A to Z only; put it in "
                    "quotes if it is a name"
                )
                raise error_at(text, start, problem, path)
            new, at = encode_name(word[0]), word.end()
        elif kind == "directive":
            problem = "expected a predicate and its number of arguments, such as '#input edge/2.'"
            if found[0] == "#include":
                problem = "'#include' is not read; put the rules into one text"
            raise error_at(text, start, problem, path)
        else:
            if kind == "block":
                at = _end_of_block(text, start, path)
            elif kind == "arity":
                inputs.append((encode_predicate(found["name"]), int(found["arity"])))
            new = _blank(text, start, at)
        parts.add(text[copied:start], copied)
        if kind == "line" and starts_label(found[0]):
            comments.append((start, parts.length, found[0]))
        parts.add(new, start)
        copied = at
    parts.add(text[copied:], copied)
    cleaned = "".join(parts.pieces)
    labels = _labels(text, path, comments, cleaned, parts) if comments else {}
    if _long_number(cleaned):
        _check_numbers(cleaned, lambda at, problem: error_at(text, parts.place(at), problem, path))
    rewritten = _rewrite(cleaned)
    cleaned = "".join(rewritten.pieces)
    ground = tuple((start, end) for start, end, plain in _statements(cleaned) if plain)
    unchecked = edited(cleaned, [(*part, _blank(cleaned, *part)) for part in ground])
    return Scanned(cleaned, unchecked, tuple(inputs), ground, (parts, rewritten), labels)


def _labels(
    text: str, path: str, comments: list[tuple[int, int, str]], cleaned: str, parts: _Parts
) -> dict[int, Label]:
    """Return the labels in comments, which stand at these places of the text and of the cleaned one."""
    found: dict[int, Label] = {}
    ids: set[str] = set()
    waiting: tuple[int, Label] | None = None  # where the label stands
    at = 0
    for place, cleaned_place, comment in [*comments, (len(text), len(cleaned), "")]:
        while (first := _not_blank(cleaned, at)) and first.start() < cleaned_place:
            start = first.start()
            statement = _ground_statement(cleaned, at) or _statement(cleaned, at)
            at = statement.end() if statement else len(cleaned)
            if cleaned.startswith("#", start):
                external = cleaned.startswith("#external", start)
                if external and waiting:
                    raise misplaced_label(text, waiting[0], path)
                if external and (end := _external_type(cleaned, at)):
                    at = end.end()
            elif waiting:
                line = text.count("\n", 0, parts.place(start)) + 1
                found[parts.place(at - 1)] = replace(waiting[1], line=line)
                waiting = None
        if waiting or at > cleaned_place:
            raise misplaced_label(text, waiting[0] if waiting else place, path)
        if comment:
            waiting = place, read_label(text, comment, place, path, ids)
    return found


def _content(text: str, start: int, path: str) -> tuple[str, int]:
    """Return the content of the quotes that open here, and where they end."""
    try:
        name, end = read_quoted(text, start)
    except UnreadableName as error:
        raise error_at(text, error.position, error.problem, path) from None
    if not name:
        raise error_at(text, start, "a name must not be empty", path)
    if "\0" in name:
        raise error_at(text, start, "a name or a string cannot have the character NUL", path)
    return name, end


def _statements(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield where statements stand, and whether they are facts and rules without variables.

    Those are taken together; every other statement is alone.
    """
    at = 0
    while _not_blank(text, at):
        ground = _ground_statements(text, at)
        found = ground or _statement(text, at)
        if found is None:
            return
        yield at, found.end(), ground is not None
        at = found.end()


def _rewrite(text: str) -> _Parts:
    """Return the text with what clingo does not know of statements written in its way."""
    parts = _Parts()
    copied = 0
    for start, end, ground in _statements(text):
        tokens = [] if ground else list(_token.finditer(text, start, end))
        if tokens and (pieces := _rewritten_statement(tokens)):
            parts.add(text[copied:start], copied)
            for piece, place in pieces:
                parts.add(piece, place)
            copied = end
    parts.add(text[copied:], copied)
    return parts


_ARROWS = frozenset({":-", "<-", "=>", "->"})
_BEFORE_ATOM = frozenset({"", ",", ";", ":", "not", "external", *_ARROWS})
_AFTER_ATOM = frozenset({",", ";", ":", ".", *_ARROWS})


def _rewritten_statement(tokens: list[re.Match[str]]) -> list[tuple[str, int]]:
    """Return the pieces of a statement as clingo reads it, with their places; none if unchanged."""
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
    arrow = arrows[0] if arrows else len(tokens) - 1
    forward = top[arrow] in {"=>", "->"}
    if not forward and (top[0] == "#" or arrow == 0):  # a declaration, or a rule without a head
        return pieces if changed else []
    left, right = range(arrow), range(arrow + 1, len(tokens) - 1)
    sides = (right, left) if forward else (left, right)
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
    """Return whether a string has escapes that neither clingo nor rule text has."""
    other = False
    for escape in _escape.finditer(text, start, end):
        if escape["unknown"]:
            problem = (
                f"{escape[0]} is not an escape sequence; write a backslash in a string as \\\\"
            )
            raise error_at(text, escape.start(), problem, path)
        other |= escape["other"] is not None
    return other


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return the text with something else between each start and end."""
    pieces = []
    copied = 0
    for start, end, new in sorted(edits):
        pieces += [text[copied:start], new]
        copied = end
    return "".join((*pieces, text[copied:]))


def _blank(text: str, start: int, end: int) -> str:
    """Return blanks, and the line ends of this part."""
    return _not_line_end.sub(" ", text[start:end])


def facts_renamed(text: str, new_names: dict[Signature, str]) -> str:
    """Return the ground statements with the facts of some predicates under another name.

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


#: The start and the end of a statement, its head, and the atoms and the negated atoms of its body.
_Statement: TypeAlias = tuple[tuple[int, int], str, list[str], list[str]]


def ground_statements(text: str, start: int, end: int) -> Iterator[_Statement]:
    """Yield each statement of a part without variables: its places, and the names of its atoms.

    >>> list(ground_statements("a.  p( x ) :- q, not r.", 0, 23))
    [((0, 1), 'a', [], []), ((4, 22), 'p(x)', ['q'], ['r'])]
    """
    at = start
    while at < end and (found := _ground_statement(text, at, end)):
        head = decode_name(_without_blanks(found[1]))
        literals = [
            (bool(x[1]), decode_name(_without_blanks(x[2])))
            for x in _literal.finditer(found[2] or "")
        ]
        yield (
            (found.start(1), found.end() - 1),
            head,
            [name for negative, name in literals if not negative],
            [name for negative, name in literals if negative],
        )
        at = found.end()


def signature_of(atom: str) -> Signature:
    """Return the predicate of a ground atom as clingo prints it.

    >>> signature_of('edge(a,"b, c")')
    ('edge', 2)
    """
    name, arguments = arguments_of(atom)
    return name, len(arguments)


def arguments_of(atom: str) -> tuple[str, list[str]]:
    """Return the predicate and the arguments of a ground atom as clingo prints it.

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


def atom_text(name: str, arguments: Sequence[str]) -> str:
    """Return the ground atom with this predicate and these arguments, as clingo prints it."""
    return f"{name}({','.join(arguments)})" if arguments else name


def _without_blanks(atom: str) -> str:
    """Return the atom without blanks outside of strings, as clingo prints it."""
    return _blank_or_string.sub(lambda found: found[1] or "", atom)


def _end_of_block(text: str, start: int, path: str) -> int:
    opening = text[start : start + 2]
    depth = 1
    for mark in _block_marks[opening].finditer(text, start + 2):
        depth += 1 if mark[0] == opening else -1
        if depth == 0:
            return mark.end()
    raise error_at(text, start, f"this comment is not closed by '{opening[::-1]}'", path)


# ---- A Datalog text, read and checked: its rules with variables, and what it declares

#: Candidates for the facts of an open predicate are kept under its name with this in front.
CANDIDATE = "__candidate_"

# A variable where an atom is due, at the end of a line's part.
_variable_atom = re.compile(r"(?:^|[.,;:{-]|\bnot\b)\s*(_*[A-Z]\w*)\s*$").search
_place = re.compile(r"<\w+>:([0-9]+):([0-9]+)(?:-[0-9:]+)?: (?:error|info|note): (.*)")
_unsafe = re.compile(r"<\w+>:([0-9]+):([0-9]+)(?:-[0-9:]+)?: note: '(.*)' is unsafe")
_NEITHER = "is neither a rule nor a fact"
_HEAD = "give the atoms that may hold as facts when asking (declare them with '#external')"

# What a head can be besides an atom, by the name of its node.
_HEADS = {
    "Aggregate": f"a choice ('{{…}}') has more than one answer; {_HEAD}",
    "HeadAggregate": f"a choice ('{{…}}') has more than one answer; {_HEAD}",
    "Disjunction": (
        "several heads mean 'or' in rules with variables, and have more than one answer; "
        "if every one of them follows, write one rule for each"
    ),
    "TheoryAtom": "theory atoms are not known here; write plain rules",
}
# Statements other than rules that cannot be taken, and what to do instead.
_STATEMENTS = {
    "Minimize": "a preference (':~' or '#minimize') has no place in Datalog; leave it out",
    "ShowTerm": "only '#show name/arity.' is read; give the terms a predicate of their own",
    "Script": "scripts are not run; compute the facts beforehand, and give them as a table",
    "TheoryDefinition": "theory atoms are not known here; write plain rules",
    "Edge": "'#edge' is not known here; leave it out",
    "Heuristic": "'#heuristic' is not known here; leave it out",
    "ProjectAtom": "'#project' is not known here; leave it out",
    "ProjectSignature": "'#project' is not known here; leave it out",
}


@dataclass(frozen=True, eq=False)
class Source:
    """A text that has been read: what clingo gets, and what the answers are traced back to."""

    path: str
    #: As it was given, with plain line ends.
    text: str
    scanned: Scanned
    #: The rules that are not plain facts or rules without variables: nodes of clingo's tree.
    rules: tuple[Any, ...] = ()
    #: The predicates that '#show' names; None where there is no '#show'.
    shown: tuple[Signature, ...] | None = None
    #: The predicates whose facts are given when asking.
    open: frozenset[Signature] = frozenset()
    #: '#show' and the like, which clingo does not get, as (start, end) of the scanned text.
    left_out: tuple[tuple[int, int], ...] = ()
    #: The values that '#const' gives to names.
    constants: dict[str, Any] = field(default_factory=dict)
    #: The nodes of '#const'.
    definitions: tuple[Any, ...] = ()

    def extent(self, node: Any) -> tuple[int, int]:
        """Return where a node of clingo's tree stands in the scanned text."""
        begin, end = node.location.begin, node.location.end
        return self._offset(begin.line, begin.column), self._offset(end.line, end.column)

    def line(self, node: Any) -> int:
        """Return the line of a node of clingo's tree in the text as it was given."""
        return self.line_at(self.extent(node)[0])

    def label(self, stop: int) -> Label | None:
        """Return the label of the rule whose full stop is here in the scanned text."""
        return self.scanned.labels.get(self.scanned.place(stop)) if self.scanned.labels else None

    def line_at(self, at: int) -> int:
        """Return the line of a place of the scanned text in the text as it was given."""
        return bisect_right(self._given_line_starts, self.scanned.place(at))

    def ground_statements(self) -> Iterator[_Statement]:
        """Yield the facts and the rules without variables."""
        for start, end in self.scanned.ground:
            yield from ground_statements(self.scanned.text, start, end)

    def _offset(self, line: int, column: int) -> int:
        """Return the place of a line and column of clingo's, which counts bytes."""
        start = self._line_starts[line - 1]
        before = self.scanned.text[start : start + column].encode()[: column - 1]
        return start + len(before.decode(errors="ignore"))

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.scanned.text))]

    @cached_property
    def _given_line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def error(self, line: int, column: int, problem: str) -> ParseError:
        """Return the error at a line and column of clingo's, which counts bytes."""
        at = len(self.text.rstrip())  # the end of the text
        if line <= len(self._line_starts):
            at = min(self.scanned.place(self._offset(line, column)), at)
        return error_at(self.text, at, decode_text(problem), self.path)

    def error_of(self, node: Any, problem: str) -> ParseError:
        """Return the error at a node of clingo's tree."""
        return self.error(node.location.begin.line, node.location.begin.column, problem)


def read_source(text: str, path: str, open_predicates: Iterable[Signature]) -> Source:
    """Return the source of a prepared text, checked."""
    from clingo.ast import parse_string

    scanned = scan(text, path)
    statements: list[Any] = []
    messages: list[str] = []
    blank = Source(path, text, scanned)
    try:
        parse_string(
            scanned.unchecked, statements.append, logger=lambda _, said: messages.append(said)
        )
    except RuntimeError:
        raise clingo_error(blank, messages) from None
    rules: list[Any] = []
    shown: list[Signature] | None = None
    left_out = []
    definitions: list[Any] = []
    for node in statements:
        kind = node.ast_type.name
        if kind in _STATEMENTS:
            raise blank.error_of(node, _STATEMENTS[kind])
        for part in walk(node):
            if part.ast_type.name == "Function" and part.external:
                raise blank.error_of(part, f"'{part}' calls a script; compute the facts beforehand")
        if kind == "Program":
            if node.name != "base" or len(node.parameters):
                raise blank.error_of(node, "only '#program base.' is read; leave it out")
        elif kind == "ShowSignature":
            shown = [] if shown is None else shown
            shown += [(node.name, node.arity)] if node.name else []
            left_out.append(blank.extent(node))
        elif kind == "External":
            _check_atom(blank, node.atom.symbol)
            if str(node.external_type) != "false":
                raise blank.error_of(
                    node,
                    f"'[{node.external_type}]' is not known here: an open fact is false unless it "
                    f"is given; leave it out",
                )
            rules.append(node)
        elif kind == "Rule":
            _check_rule(blank, node)
            rules.append(node)
        elif kind == "Definition":
            definitions.append(node)
        elif kind not in {"Defined", "Comment"}:
            raise blank.error_of(node, f"this statement {_NEITHER}; leave it out")
    return replace(
        blank,
        rules=tuple(rules),
        shown=None if shown is None else tuple(shown),
        open=frozenset((*open_predicates, *scanned.inputs)),
        left_out=tuple(left_out),
        constants=_values(blank, definitions),
        definitions=tuple(definitions),
    )


def _values(source: Source, definitions: Sequence[Any]) -> dict[str, Any]:
    """Return the values that '#const' gives to names, which may be computed from one another."""
    import clingo

    if not definitions:
        return {}
    control = clingo.Control(logger=lambda *_: None)
    try:
        control.add("base", [], "\n".join(map(str, definitions)))
        found = {node.name: control.get_const(node.name) for node in definitions}
    except RuntimeError:  # clingo says why when it grounds the whole text
        return {}
    for node in definitions:
        if found[node.name] is None:
            raise source.error_of(
                node, f"'{node.value}' has no value; define all names in it by '#const'"
            )
    return found


def signatures(names: Iterable[str] | str) -> list[Signature]:
    """Return the predicates that are written as 'edge/2', with names as clingo gets them.

    >>> signatures(["edge/2"])
    [('edge', 2)]
    """
    found = []
    for name in [names] if isinstance(names, str) else names:
        match = (
            re.fullmatch(rf"\s*({PREDICATE})\s*/\s*([0-9]+)\s*", name)
            if isinstance(name, str)
            else None
        )
        if match is None:
            raise ProgramError(
                f"a predicate is written with its number of arguments, such as 'edge/2', not {name!r}"
            )
        found.append((encode_predicate(match[1]), int(match[2])))
    return found


def signature(atom: Any) -> Signature:
    """Return the predicate of a symbolic atom."""
    symbol = atom.symbol
    if symbol.ast_type.name == "Pool":  # p(a;b): all of its members have one name
        symbol = symbol.arguments[0]
    return symbol.name, len(symbol.arguments)


def head_of(rule: Any) -> Any:
    """Return the atom that a rule derives, or that '#external' declares."""
    return rule.atom if rule.ast_type.name == "External" else rule.head.atom


def predicates(*nodes: Any) -> set[Signature]:
    """Return the predicates of the atoms in these nodes."""
    parts = (part for node in nodes for part in walk(node))
    return {signature(part) for part in parts if part.ast_type.name == "SymbolicAtom"}


def walk(node: Any) -> Iterator[Any]:
    """Yield the node and everything below it."""
    yield node
    for key in node.child_keys:
        child = getattr(node, key)
        if child is None:
            continue
        for part in [child] if hasattr(child, "ast_type") else child:
            yield from walk(part)


def clingo_error(source: Source, messages: Iterable[str]) -> ParseError:
    """Return what clingo complained about, at its place in the text."""
    said = "".join(messages)
    if unsafe := _unsafe.search(said):
        name = unsafe[3]
        hint = f"use it in a positive atom of the body as well; a column is written in quotes: '{name}'"
        if name.startswith("#"):  # clingo's own name
            name = "_"
            hint = "give it a name, and use that in a positive atom of the body as well"
        return source.error(
            int(unsafe[1]),
            int(unsafe[2]),
            f"the variable '{name}' is unsafe: nothing says which values it can have; {hint}",
        )
    if place := _place.search(said):
        problem = place[3].replace("<IDENTIFIER>", "a name").replace("EOF", "end of the text")
        hint = ""
        if "unexpected end" in problem:
            hint = "; is the '.' of the last rule missing?"
        elif problem.endswith("unexpected \\"):
            hint = "; negation is written 'not', not '\\+'"
        error = source.error(int(place[1]), int(place[2]), problem + hint)
        variable = _variable_atom(error.source[: (error.column or 1) - 1])
        if variable is None:
            return error
        hint = f"; {variable[1]} is a variable, and an atom starts with a small letter or a quote"
        return source.error(int(place[1]), int(place[2]), problem + hint)
    return ParseError(said.strip() or "clingo could not read this", path=source.path)


# ---- Checks


def _check_rule(source: Source, rule: Any) -> None:
    head = rule.head
    kind = head.ast_type.name
    if kind in _HEADS:
        raise source.error_of(head, _HEADS[kind])
    atom = head.atom
    if head.sign != 0:
        raise source.error_of(head, "a head cannot be negated; give the opposite its own name")
    if atom.ast_type.name == "BooleanConstant":
        raise source.error_of(
            rule,
            "a constraint (a rule without a head) has no place in Datalog; give it a head such as "
            "'bad', and ask whether 'bad' is derived",
        )
    if atom.ast_type.name != "SymbolicAtom":
        raise source.error_of(head, "a head is an atom; a comparison belongs in the body")
    _check_atom(source, atom.symbol)
    for literal in rule.body:
        kind = literal.ast_type.name
        if kind == "Literal" and literal.sign == 2:
            raise source.error_of(literal, "'not not' is not known here; write the plain atom")
        for node in walk(literal):
            if node.ast_type.name == "SymbolicAtom":
                _check_atom(source, node.symbol)
            elif node.ast_type.name == "TheoryAtom":
                raise source.error_of(literal, _HEADS["TheoryAtom"])


def _check_atom(source: Source, symbol: Any) -> None:
    if symbol.ast_type.name == "UnaryOperation":
        raise source.error_of(
            symbol, "'-' before an atom is not known here; give the opposite its own name"
        )
    members = symbol.arguments if symbol.ast_type.name == "Pool" else [symbol]
    if len({len(member.arguments) for member in members}) > 1:
        raise source.error_of(
            symbol, "the atoms of a pool have different numbers of arguments; write them one by one"
        )
    for member in members:
        for argument in member.arguments:
            for node in walk(argument):
                if node.ast_type.name != "Function" or not (node.arguments or not node.name):
                    continue
                if not any(part.ast_type.name == "Variable" for part in walk(node)):
                    continue
                raise source.error_of(
                    node,
                    f"'{node}' is a function term with a variable, which is not known here; "
                    "give its parts arguments of their own, or write it as a string",
                )
