"""Which rule of the text, with which values, a ground rule comes from."""

from __future__ import annotations

import operator
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from latentgamma.datalog.clingo import assembled, rules_in_process, run_clingo
from latentgamma.datalog.clingo_names import decode_name, decode_text, encode_name
from latentgamma.datalog.clingo_run import Output
from latentgamma.datalog.source import (
    CANDIDATE,
    Signature,
    Source,
    facts_renamed,
    ground_statements,
    read_source,
    scan,
    signature,
    signature_of,
)
from latentgamma.errors import ParseError
from latentgamma.program.program import Instance, Label, Program
from latentgamma.program.rule_text import LABEL, misplaced_label, read_label

# ---- Whether a ground rule is an instance of a rule with variables, and of which values

# In the order of clingo's enumeration of comparison operators.
_COMPARE = {
    0: operator.gt,
    1: operator.lt,
    2: operator.le,
    3: operator.ge,
    4: operator.ne,
    5: operator.eq,
}

#: The values of variables: clingo's symbols by the variables' names.
Values = dict[str, Any]


class Match(NamedTuple):
    """The values of a rule's variables, and its negated atoms that the ground rule lacks."""

    substitution: tuple[tuple[str, str], ...]
    absent: tuple[str, ...]


def matches(
    rule: Any,
    head: str,
    body: frozenset[str],
    negated: frozenset[str],
    constants: Values,
    possible: Container[str],
) -> Match | None:
    """Return the first way in which the ground rule is an instance of the rule, or None.

    Args:
        rule: a node of clingo's tree.
        head: of the ground rule.
        body: the positive atoms of its body.
        negated: the negated atoms of its body.
        constants: the values that '#const' gives to names.
        possible: the atoms that some rule derives or that can be given. The grounder leaves out
            the negation of all others.
    """
    import clingo

    atoms = {name: clingo.parse_term(encode_name(name)) for name in {head, *body}}
    literals = [node for node in rule.body if node.ast_type.name == "Literal"]
    positive = [n for n in literals if n.sign == 0 and n.atom.ast_type.name == "SymbolicAtom"]
    denied = [n for n in literals if n.sign == 1 and n.atom.ast_type.name == "SymbolicAtom"]
    compared = [n for n in literals if n.atom.ast_type.name == "Comparison"]
    goals = [(rule.head.atom.symbol, [atoms[head]])]
    goals += [(n.atom.symbol, [atoms[name] for name in sorted(body)]) for n in positive]
    wanted = {atoms[name] for name in body}
    for values in _solutions(goals, {}, constants):
        values = _assign(compared, values, constants)
        used = {_value(n.atom.symbol, values, constants) for n in positive}
        if not wanted <= used and None not in used:
            continue
        if not all(_holds(n, values, constants) for n in compared):
            continue
        if _value(rule.head.atom.symbol, values, constants) not in {atoms[head], None}:
            continue
        named = [decode_name(str(_value(n.atom.symbol, values, constants))) for n in denied]
        if not negated <= set(named):
            continue
        absent = tuple(name for name in named if name not in negated)
        if any(name in possible for name in absent):
            continue
        shown = tuple((v, decode_text(str(values[v]))) for v in _variables(rule) if v in values)
        return Match(shown, absent)
    return None


def _solutions(
    goals: list[tuple[Any, list[Any]]], values: Values, constants: Values
) -> Iterator[Values]:
    """Yield the ways to give the variables values so that each pattern is one of its atoms."""
    if not goals:
        yield values
        return
    (pattern, candidates), *rest = goals
    members = pattern.arguments if pattern.ast_type.name == "Pool" else [pattern]
    for atom in candidates:
        for member in members:
            if member.name != atom.name or len(member.arguments) != len(atom.arguments):
                continue
            found: Values | None = values
            for term, symbol in zip(member.arguments, atom.arguments, strict=True):
                found = _unify(term, symbol, found, constants)
                if found is None:
                    break
            else:
                yield from _solutions(rest, found or {}, constants)


def _unify(term: Any, symbol: Any, values: Values | None, constants: Values) -> Values | None:
    """Return the values with which the term is the symbol; arithmetic is left for later."""
    if values is None:
        return None
    if term.ast_type.name == "Variable":
        if term.name == "_":
            return values
        if term.name in values:
            return values if values[term.name] == symbol else None
        return {**values, term.name: symbol}
    if term.ast_type.name == "SymbolicTerm":
        return values if constants.get(str(term.symbol), term.symbol) == symbol else None
    known = _value(term, values, constants)
    return values if known is None or known == symbol else None


def _assign(compared: list[Any], values: Values, constants: Values) -> Values:
    """Return the values, and those of variables that an equation computes."""
    values = dict(values)
    for _ in compared:
        for node in compared:
            guards = node.atom.guards
            if node.sign or len(guards) != 1 or guards[0].comparison != 5:
                continue
            for left, right in ((node.atom.term, guards[0].term), (guards[0].term, node.atom.term)):
                if left.ast_type.name == "Variable" and left.name not in values:
                    value = _value(right, values, constants)
                    if value is not None:
                        values[left.name] = value
    return values


def _holds(node: Any, values: Values, constants: Values) -> bool:
    """Return whether a comparison holds; one that cannot be computed here is believed."""
    left = _value(node.atom.term, values, constants)
    true: bool = True
    for guard in node.atom.guards:
        right = _value(guard.term, values, constants)
        if left is None or right is None:
            return True
        true = true and bool(_COMPARE[guard.comparison](left, right))
        left = right
    return bool(true != (node.sign == 1))


def _value(term: Any, values: Values, constants: Values) -> Any:
    """Return the symbol that the term is for these values, or None if that is open."""
    import clingo
    from clingo.ast import SymbolicTerm, Transformer

    class Substituted(Transformer):
        def visit_Variable(self, node: Any) -> Any:
            return SymbolicTerm(node.location, values[node.name])

        def visit_SymbolicTerm(self, node: Any) -> Any:
            value = constants.get(str(node.symbol), node.symbol)
            return SymbolicTerm(node.location, value)

    try:
        return clingo.parse_term(str(Substituted().visit(term)), logger=lambda *_: None)
    except (KeyError, RuntimeError):  # a variable without a value; an interval or a pool
        return None


def _variables(rule: Any) -> list[str]:
    """Return the names of the variables, in alphabetical order."""
    from latentgamma.datalog.source import walk

    names = (node.name for node in walk(rule) if node.ast_type.name == "Variable")
    return sorted({name for name in names if name != "_"})


# ---- The way back: from a ground rule to the line and the substitution it comes from
# Nothing is kept for each ground rule. When a proof is shown, its rules are matched against the
# rules of the text. For that the text is grounded once more, with nothing evaluated away.


@dataclass(frozen=True, eq=False)
class Grounding:
    """The text and the tables that a program was grounded from."""

    text: str
    path: str
    #: The predicates whose facts are given when asking.
    open: frozenset[Signature]
    #: The predicates of the tables, and their facts as text.
    tables: tuple[tuple[Signature, str], ...]
    #: The atoms that can be given.
    inputs: tuple[str, ...] = ()
    #: The predicates that '#show' names; None where there is no '#show'.
    shown: tuple[Signature, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what is made on demand: clingo's trees cannot be pickled.
        parts = (self.text, self.path, self.open, self.tables, self.inputs, self.shown)
        return Grounding, parts

    def clingo_texts(self, source: Source) -> list[str]:
        """Return what clingo grounds: the facts of open predicates are there as candidates."""
        candidates = {given: f"{CANDIDATE}{given[0]}" for given in self.open}
        text = source.scanned.text
        edits = [(start, end, "") for start, end in source.left_out]
        if candidates:
            edits += [
                (start, end, facts_renamed(text[start:end], candidates))
                for start, end in source.scanned.ground
            ]
            for rule in source.rules:
                fact = rule.ast_type.name == "Rule" and not rule.body
                if fact and signature(rule.head.atom) in candidates:
                    at = source.extent(rule.head)[0]
                    edits.append((at, at, CANDIDATE))
        texts = [_edit(text, edits)]
        for given, facts in self.tables:
            texts.append(facts_renamed(facts, candidates) if given in candidates else facts)
        for name, arity in sorted(self.open):
            arguments = f"({','.join(f'X{n}' for n in range(arity))})" if arity else ""
            texts.append(f"#external {name}{arguments} : {CANDIDATE}{name}{arguments}.\n")
        return texts

    def run(
        self,
        source: Source,
        *,
        max_rules: int,
        max_seconds: float,
        complete: bool = False,
        more: str = "",
    ) -> Output:
        """Return what clingo makes of the text, the tables and more rules, within limits."""
        texts = [*self.clingo_texts(source), more]
        return run_clingo(
            texts,
            max_rules=max_rules,
            max_seconds=max_seconds,
            complete=complete,
            small=rules_in_process(source, texts),
        )

    @cached_property
    def source(self) -> Source:
        """The text, read again."""
        return read_source(self.text, self.path, self.open)

    def complete(self) -> Program:
        """Return the same program with every body as it was written."""
        return self._complete

    @cached_property
    def _complete(self) -> Program:
        output = self.run(self.source, max_rules=2**31, max_seconds=86_400.0, complete=True)
        return replace(assembled(output), origin=self)

    def instance(self, head: str, body: frozenset[str], negated: frozenset[str]) -> Instance | None:
        """Return where a rule of the complete program comes from, if that is known."""
        # The grounder leaves out `not a` where nothing derives a: the text has it, the rule has not.
        possible = self._complete.index
        for denied, line in self._ground_lines.get((head, body), ()):
            absent = denied - negated
            if negated <= denied and absent.isdisjoint(possible):
                label = self.labels.get(line)
                return Instance(f"line {line}", (), tuple(sorted(absent)), label)
        import clingo

        atom = clingo.parse_term(encode_name(head))
        for rule in self._rules_of.get((atom.name, len(atom.arguments)), ()):
            found = matches(rule, head, body, negated, self.source.constants, possible)
            if found is not None:
                line = self.source.line(rule)
                label = self.labels.get(line)
                return Instance(f"line {line}", found.substitution, found.absent, label)
        if not body and (atom.name, len(atom.arguments)) in dict(self.tables):
            return Instance(f"table {decode_name(atom.name)}")
        return None

    def places(self, atom: str) -> list[str]:
        """Return where the rules for the predicate of an atom stand."""
        rules = self._rules_of.get(signature_of(encode_name(atom)), ())
        return [f"line {self.source.line(rule)}" for rule in rules]

    def atom_name(self, text: str) -> str | None:
        """Return the name of the atom that the text writes, if the rules have its predicate."""
        import clingo

        try:  # scanned first: clingo's own message about some characters ends the process
            atom = clingo.parse_term(scan(text, "<atom>").text, logger=lambda *_: None)
        except (ParseError, RuntimeError):
            return None
        if atom.type != clingo.SymbolType.Function or not atom.name:
            return None
        known = (atom.name, len(atom.arguments)) in self._rules_of
        return decode_name(str(atom)) if known else None

    @cached_property
    def labels(self) -> dict[int, Label]:
        """The labels that comments give, by the line of the rule; all instances of it have them."""
        if "@rule" not in self.text:
            return {}
        lines = {self.source.line(rule) for rule in self.source.rules}
        lines |= {line for places in self._ground_lines.values() for _, line in places}
        ids: set[str] = set()
        found: dict[int, Label] = {}
        for comment in re.finditer(rf"{LABEL}[^\n]*+", self.text):
            start = comment.start()
            label = read_label(self.text, comment[0], start, self.path, ids)
            own = self.text.count("\n", 0, start) + 1
            line = min((line for line in lines if line > own), default=None)
            if line is None or line in found:
                raise misplaced_label(self.text, start, self.path)
            found[line] = replace(label, line=line)
        return found

    @cached_property
    def _rules_of(self) -> dict[Signature, list[Any]]:
        rules: dict[Signature, list[Any]] = {}
        for rule in self.source.rules:
            if rule.ast_type.name == "Rule":
                rules.setdefault(signature(rule.head.atom), []).append(rule)
        return rules

    @cached_property
    def _ground_lines(
        self,
    ) -> dict[tuple[str, frozenset[str]], list[tuple[frozenset[str], int]]]:
        """The facts and the rules without variables: by head and body, the negated atoms and the line."""
        lines: dict[tuple[str, frozenset[str]], list[tuple[frozenset[str], int]]] = {}
        text = self.source.scanned.text
        for start, end in self.source.scanned.ground:
            for place, head, body, negated in ground_statements(text, start, end):
                line = self.source.line_at(place)
                lines.setdefault((head, frozenset(body)), []).append((frozenset(negated), line))
        return lines


def _edit(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces = []
    copied = 0
    for start, end, new in sorted(edits):
        pieces += [text[copied:start], new]
        copied = end
    return "".join((*pieces, text[copied:]))
