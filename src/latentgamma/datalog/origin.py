"""Which rule of the text, with which values, a ground rule comes from."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from latentgamma.datalog.clingo import assembled, rules_in_process, run_clingo
from latentgamma.datalog.clingo_names import decode_name, decode_text, encode_name
from latentgamma.datalog.clingo_run import Output
from latentgamma.datalog.source import (
    CANDIDATE,
    Signature,
    Source,
    arguments_of,
    atom_text,
    edited,
    facts_renamed,
    read_source,
    scan,
    signature,
    signature_of,
    walk,
)
from latentgamma.errors import ParseError
from latentgamma.program.program import Instance, Label, Program, Rule

# ---- The way back: from a ground rule to the line and the substitution it comes from
# Nothing is kept for this when a program is grounded. When a proof is asked for, the text is
# grounded once more with nothing evaluated away, and with rules that record each instance:
# `p(X) :- e(X,Y), not f(Y+1).` becomes
#     __rule_0(X,Y,f(Y+1)) :- e(X,Y), not f(Y+1).
#     p(X) :- __rule_0(X,Y,f(Y+1)).
# So clingo itself decides which instances there are, and computes their values.

_RECORD = "__rule_"
# Stands for '_' in a negated atom; no atom of a program has it (see `_refuse_extremes`).
_ANY = "#sup"

_HeadAndBody: TypeAlias = "tuple[str, frozenset[str]]"


class Recorder(NamedTuple):
    """A rule of the text without pools, as two rules that record its instances."""

    line: int
    label: Label | None
    text: str
    #: The variables, whose values are the first arguments of a record.
    variables: tuple[str, ...]
    #: How many negated atoms are its last arguments.
    negated: int


def recorder(rule: Any, line: int, label: Label | None, number: int) -> Recorder:
    """Return the two rules for a node of clingo's tree."""
    from clingo.ast import Transformer, Variable

    intervals: dict[str, str] = {}

    class Intervals(Transformer):
        """A variable for each interval, so that a record has the value that is meant."""

        def visit_Interval(self, node: Any) -> Any:
            variable = Variable(node.location, f"__Interval{len(intervals)}")
            intervals[variable.name] = str(node)
            return variable

    class Anonymous(Transformer):
        def visit_Variable(self, node: Any) -> Any:
            return Variable(node.location, _ANY) if node.name == "_" else node

    head = Intervals().visit(rule.head)
    body, negated = [], []
    for literal in rule.body:
        atom = getattr(literal, "atom", None)  # a condition has none
        if atom is not None and atom.ast_type.name == "SymbolicAtom" and literal.sign:
            literal = Intervals().visit(literal)
            negated.append(str(Anonymous().visit(literal.atom)))
        body.append(str(literal))
    body += [f"{variable} = {interval}" for variable, interval in intervals.items()]
    variables = tuple(sorted(_global_variables(rule)))
    arguments = ",".join((*variables, *intervals, *negated))
    record = f"{_RECORD}{number}({arguments})" if arguments else f"{_RECORD}{number}"
    text = f"{record}{' :- ' * bool(body)}{'; '.join(body)}. {head} :- {record}."
    return Recorder(line, label, text, variables, len(negated))


def _global_variables(rule: Any) -> set[str]:
    """Return the variables outside of aggregates and conditions, which have one value in an instance."""
    nodes = [rule.head]
    for literal in rule.body:
        if literal.ast_type.name == "ConditionalLiteral":
            continue
        if literal.atom.ast_type.name in {"Aggregate", "BodyAggregate"}:
            nodes += [g for g in (literal.atom.left_guard, literal.atom.right_guard) if g]
        else:
            nodes.append(literal)
    found = {n.name for node in nodes for n in walk(node) if n.ast_type.name == "Variable"}
    return found - {"_"}


def _separate_records(output: Output) -> tuple[Output, list[str]]:
    """Return the ground rules with their own heads, and the record of each; "" without one."""
    heads, sizes, bodies = (
        np.frombuffer(part, np.int32) for part in (output.heads, output.sizes, output.bodies)
    )
    records = {atom: name for atom, name in output.names.items() if name.startswith(_RECORD)}
    most = max(int(part.max(initial=0)) for part in (heads, np.abs(bodies)))
    head_of = np.arange(most + 1, dtype=np.int32)
    head_of[list(records)] = 0
    # `head :- record.` tells the head. There is no such rule if the head has no value (1/0), or if
    # it is a fact by another record; such a record is left out.
    single = np.flatnonzero(sizes == 1)
    literal = bodies[(np.cumsum(sizes) - sizes)[single]]
    telling = (literal > 0) & (head_of[np.abs(literal)] == 0)
    head_of[literal[telling]] = heads[single[telling]]
    kept = head_of[heads] > 0
    kept[single[telling]] = False
    found = replace(
        output,
        heads=array("i", head_of[heads[kept]].tobytes()),
        sizes=array("i", sizes[kept].tobytes()),
        bodies=array("i", bodies[np.repeat(kept, sizes)].tobytes()),
        names={atom: name for atom, name in output.names.items() if atom not in records},
    )
    return found, [records.get(head, "") for head in heads[kept].tolist()]


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

    def clingo_texts(self, source: Source, *, complete: bool) -> list[str]:
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
            if self._is_candidate(rule):
                at = source.extent(rule.head)[0]
                edits.append((at, at, CANDIDATE))
            elif complete and rule.ast_type.name == "Rule":
                edits.append((*source.extent(rule), ""))
        texts = [edited(text, edits)]
        if complete:
            texts.append("\n".join(rule.text for rule in self._recorders))
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
        texts = [*self.clingo_texts(source, complete=complete), more]
        return run_clingo(
            texts,
            max_rules=max_rules,
            max_seconds=max_seconds,
            complete=complete,
            small=rules_in_process(source, texts),
        )

    def _is_candidate(self, rule: Any) -> bool:
        fact = rule.ast_type.name == "Rule" and not rule.body
        return fact and signature(rule.head.atom) in self.open

    @cached_property
    def source(self) -> Source:
        """The text, read again."""
        return read_source(self.text, self.path, self.open)

    def complete(self) -> Program:
        """Return the same program with every body as it was written."""
        return self._complete[0]

    @cached_property
    def _complete(self) -> tuple[Program, list[str]]:
        """The complete program, and the record of each of its rules."""
        output = self.run(self.source, max_rules=2**31, max_seconds=86_400.0, complete=True)
        output, records = _separate_records(output)
        program, rules = assembled(output)
        return replace(program, origin=self), [records[rule] for rule in rules.tolist()]

    def instance(self, rule: int) -> Instance | None:
        """Return where a rule of the complete program comes from, if that is known."""
        program, records = self._complete
        written = program.rules[rule]
        if not records[rule]:
            return self._ground_instance(written)
        number, values = arguments_of(records[rule].removeprefix(_RECORD))
        source = self._recorders[int(number)]
        # The grounder leaves out `not a` where nothing derives a: the text has it, the rule has not.
        kept = [arguments_of(encode_name(name)) for name in written.negated]
        absent = [
            decode_name(atom_text(name, ["_" if a == _ANY else a for a in arguments]))
            for name, arguments in map(arguments_of, values[len(values) - source.negated :])
            if not any(
                name == other and all(a in {_ANY, b} for a, b in zip(arguments, given, strict=True))
                for other, given in kept
                if len(given) == len(arguments)
            )
        ]
        shown = map(decode_text, values)
        substitution = tuple(zip(source.variables, shown, strict=False))
        return Instance(f"line {source.line}", substitution, tuple(absent), source.label)

    def _ground_instance(self, rule: Rule) -> Instance | None:
        """Return where a rule that has no variables comes from: a line, or a table."""
        possible = self._complete[0].index
        head = rule.heads[0]
        for denied, (start, stop) in self._ground_places.get((head, rule.body), ()):
            absent = denied - rule.negated
            if rule.negated <= denied and absent.isdisjoint(possible):
                line, label = self.source.line_at(start), self.source.label(stop)
                return Instance(f"line {line}", (), tuple(sorted(absent)), label)
        predicate = signature_of(encode_name(head))
        known = not rule.body and predicate in dict(self.tables)
        return Instance(f"table {decode_name(predicate[0])}") if known else None

    def places(self, atom: str) -> list[str]:
        """Return where the rules for the predicate of an atom stand."""
        rules = self._rules_of.get(signature_of(encode_name(atom)), ())
        return [f"line {line}" for line in dict.fromkeys(map(self.source.line, rules))]

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
    def _recorders(self) -> list[Recorder]:
        """The rules that record instances, for all rules but candidates for open facts."""
        found: list[Recorder] = []
        for rule in self.source.rules:
            if rule.ast_type.name == "Rule" and not self._is_candidate(rule):
                start, end = self.source.extent(rule)
                line, label = self.source.line_at(start), self.source.label(end - 1)
                for member in rule.unpool():
                    found.append(recorder(member, line, label, len(found)))
        return found

    @cached_property
    def _rules_of(self) -> dict[Signature, list[Any]]:
        rules: dict[Signature, list[Any]] = {}
        for rule in self.source.rules:
            if rule.ast_type.name == "Rule":
                rules.setdefault(signature(rule.head.atom), []).append(rule)
        return rules

    @cached_property
    def _ground_places(self) -> dict[_HeadAndBody, list[tuple[frozenset[str], tuple[int, int]]]]:
        """The facts and the rules without variables: by head and body, the negated atoms and the places."""
        constants = {name: str(value) for name, value in self.source.constants.items()}

        def evaluated(atom: str) -> str:
            if not constants:
                return atom
            name, arguments = arguments_of(encode_name(atom))
            return decode_name(atom_text(name, [constants.get(a, a) for a in arguments]))

        places: dict[_HeadAndBody, list[tuple[frozenset[str], tuple[int, int]]]] = {}
        for place, head, body, negated in self.source.ground_statements():
            key = evaluated(head), frozenset(map(evaluated, body))
            places.setdefault(key, []).append((frozenset(map(evaluated, negated)), place))
        return places
