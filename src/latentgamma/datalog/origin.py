"""The way back: from a ground rule to the line and the substitution it comes from.

Nothing is kept for each ground rule. When a proof is shown, its rules are matched against the
rules of the text. For that the text is grounded once more, with nothing evaluated away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from latentgamma._errors import ParseError
from latentgamma._program.origin import Instance
from latentgamma._program.program import Program
from latentgamma.datalog.assembly import assembled
from latentgamma.datalog.clingo_names import decode_name, encode_name
from latentgamma.datalog.clingo_run import Output
from latentgamma.datalog.grounder import run_clingo
from latentgamma.datalog.matching import matches
from latentgamma.datalog.scanner import (
    Signature,
    facts_renamed,
    ground_statements,
    scan,
    signature_of,
)
from latentgamma.datalog.source import CANDIDATE, Source, read_source, signature
from latentgamma.datalog.work_bound import rules_in_process


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
        """What clingo grounds: the facts of open predicates are there as candidates."""
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
        texts = [_edited(text, edits)]
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
        """What clingo makes of the text, the tables and more rules, within limits."""
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
        """The same program with every body as it was written."""
        return self._complete

    @cached_property
    def _complete(self) -> Program:
        output = self.run(self.source, max_rules=2**31, max_seconds=86_400.0, complete=True)
        return replace(assembled(output), origin=self)

    def instance(self, head: str, body: frozenset[str], negated: frozenset[str]) -> Instance | None:
        """Where a rule of the complete program comes from, if that can be told."""
        # The grounder leaves out `not a` where nothing derives a: the text has it, the rule has not.
        possible = self._complete.index
        for denied, line in self._ground_lines.get((head, body), ()):
            absent = denied - negated
            if negated <= denied and absent.isdisjoint(possible):
                return Instance(f"line {line}", (), tuple(sorted(absent)))
        import clingo

        atom = clingo.parse_term(encode_name(head))
        for rule in self._rules_of.get((atom.name, len(atom.arguments)), ()):
            found = matches(rule, head, body, negated, self.source.constants, possible)
            if found is not None:
                line = self.source.line(rule)
                return Instance(f"line {line}", found.substitution, found.absent)
        if not body and (atom.name, len(atom.arguments)) in dict(self.tables):
            return Instance(f"table {decode_name(atom.name)}")
        return None

    def places(self, atom: str) -> list[str]:
        """Where the rules for the predicate of an atom stand."""
        rules = self._rules_of.get(signature_of(encode_name(atom)), ())
        return [f"line {self.source.line(rule)}" for rule in rules]

    def atom_name(self, text: str) -> str | None:
        """The name of the atom that the text writes, if the rules have its predicate."""
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


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces = []
    copied = 0
    for start, end, new in sorted(edits):
        pieces += [text[copied:start], new]
        copied = end
    return "".join((*pieces, text[copied:]))
