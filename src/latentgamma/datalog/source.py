"""A Datalog text, read and checked: its rules with variables, and what it declares."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from latentgamma._errors import ParseError, ProgramError
from latentgamma._program.source_text import error_at
from latentgamma.datalog.clingo_names import decode_text, encode_name
from latentgamma.datalog.scanner import Scanned, Signature, scan

#: Candidates for the facts of an open predicate are kept under its name with this in front.
CANDIDATE = "__candidate_"

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
    rules: tuple[Any, ...]
    #: The predicates that '#show' names; None where there is no '#show'.
    shown: tuple[Signature, ...] | None
    #: The predicates whose facts are given when asking.
    open: frozenset[Signature]
    #: '#show' and the like, which clingo does not get, as (start, end) of the scanned text.
    left_out: tuple[tuple[int, int], ...]
    #: The values that '#const' gives to names.
    constants: dict[str, Any]
    #: The nodes of '#const'.
    definitions: tuple[Any, ...] = ()

    def extent(self, node: Any) -> tuple[int, int]:
        """Where a node of clingo's tree stands in the scanned text."""
        begin, end = node.location.begin, node.location.end
        return self._offset(begin.line, begin.column), self._offset(end.line, end.column)

    def line(self, node: Any) -> int:
        """The line of a node of clingo's tree in the text as it was given."""
        return self.line_at(self.extent(node)[0])

    def line_at(self, at: int) -> int:
        """The line of a place of the scanned text in the text as it was given."""
        return bisect_right(self._given_line_starts, self.scanned.place(at))

    def _offset(self, line: int, column: int) -> int:
        """The place of a line and column of clingo's, which counts bytes."""
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
        """The error at a line and column of clingo's, which counts bytes."""
        at = len(self.text.rstrip())  # the end of the text
        if line <= len(self._line_starts):
            at = min(self.scanned.place(self._offset(line, column)), at)
        return error_at(self.text, at, decode_text(problem), self.path)

    def error_of(self, node: Any, problem: str) -> ParseError:
        """The error at a node of clingo's tree."""
        return self.error(node.location.begin.line, node.location.begin.column, problem)


def read_source(text: str, path: str, open_predicates: Iterable[Signature]) -> Source:
    """The source of a prepared text, checked.

    Args:
        text: without a byte order mark, with plain line ends.
        path: what an error calls it.
        open_predicates: predicates that are open besides those the text declares.
    """
    import clingo
    from clingo.ast import parse_string

    scanned = scan(text, path)
    statements: list[Any] = []
    messages: list[str] = []
    blank = Source(path, text, scanned, (), None, frozenset(), (), {})
    try:
        parse_string(
            scanned.unchecked, statements.append, logger=lambda _, said: messages.append(said)
        )
    except RuntimeError:
        raise clingo_error(blank, messages) from None
    rules: list[Any] = []
    shown: list[Signature] | None = None
    opened = {*open_predicates, *scanned.inputs}
    left_out = []
    constants = {}
    definitions: list[Any] = []
    for node in statements:
        kind = node.ast_type.name
        if node.location.begin.filename != "<string>":
            raise blank.error(1, 1, "'#include' is not read; put the rules into one text")
        if kind in _STATEMENTS:
            raise blank.error_of(node, _STATEMENTS[kind])
        if kind == "Program":
            if node.name != "base" or len(node.parameters):
                raise blank.error_of(node, "only '#program base.' is read; leave it out")
        elif kind == "ShowSignature":
            shown = [] if shown is None else shown
            shown += [(node.name, node.arity)] if node.name else []
            left_out.append(blank.extent(node))
        elif kind == "External":
            _check_atom(blank, node.atom.symbol)
            rules.append(node)
        elif kind == "Rule":
            _check_rule(blank, node)
            rules.append(node)
        elif kind == "Definition":
            definitions.append(node)
            constants[node.name] = clingo.parse_term(str(node.value))
        elif kind not in {"Defined", "Comment"}:
            raise blank.error_of(node, f"this statement {_NEITHER}; leave it out")
    return Source(
        path,
        text,
        scanned,
        tuple(rules),
        None if shown is None else tuple(shown),
        frozenset(opened),
        tuple(left_out),
        constants,
        tuple(definitions),
    )


def signatures(names: Iterable[str] | str) -> list[Signature]:
    """The predicates that are written as 'edge/2', with names as clingo gets them.

    >>> signatures(["edge/2"])
    [('edge', 2)]
    """
    found = []
    for name in [names] if isinstance(names, str) else names:
        match = (
            re.fullmatch(r"\s*([^\WA-Z0-9]\w*)\s*/\s*([0-9]+)\s*", name)
            if isinstance(name, str)
            else None
        )
        if match is None:
            raise ProgramError(
                f"a predicate is written with its number of arguments, such as 'edge/2', not {name!r}"
            )
        found.append((encode_name(match[1]), int(match[2])))
    return found


def signature(atom: Any) -> Signature:
    """The predicate of a symbolic atom."""
    symbol = atom.symbol
    if symbol.ast_type.name == "Pool":  # p(a;b): all of its members have one name
        symbol = symbol.arguments[0]
    return symbol.name, len(symbol.arguments)


def walk(node: Any) -> Iterator[Any]:
    """The node and everything below it."""
    yield node
    for key in node.child_keys:
        child = getattr(node, key)
        if child is None:
            continue
        for part in [child] if hasattr(child, "ast_type") else child:
            yield from walk(part)


def clingo_error(source: Source, messages: Iterable[str]) -> ParseError:
    """What clingo complained about, at its place in the text."""
    said = "".join(messages)
    if unsafe := _unsafe.search(said):
        return source.error(
            int(unsafe[1]),
            int(unsafe[2]),
            f"the variable '{unsafe[3]}' is unsafe: nothing says which values it can have; use it "
            "in a positive atom of the body as well",
        )
    if place := _place.search(said):
        problem = place[3].replace("<IDENTIFIER>", "a name").replace("EOF", "end of the text")
        hint = ""
        if "unexpected end" in problem:
            hint = "; is the '.' of the last rule missing?"
        return source.error(int(place[1]), int(place[2]), problem + hint)
    return ParseError(said.strip() or "clingo could not read this", path=source.path)


# ------------------------------------------------------------------------ checks


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
            elif node.ast_type.name == "Function" and node.external:
                raise source.error_of(
                    node, f"'{node}' calls a script; compute the facts beforehand"
                )
            elif node.ast_type.name == "TheoryAtom":
                raise source.error_of(literal, _HEADS["TheoryAtom"])


def _check_atom(source: Source, symbol: Any) -> None:
    if symbol.ast_type.name == "UnaryOperation":
        raise source.error_of(
            symbol, "'-' before an atom is not known here; give the opposite its own name"
        )
    members = symbol.arguments if symbol.ast_type.name == "Pool" else [symbol]
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
