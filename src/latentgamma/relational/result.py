"""What `lg.relational.fit` returns."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from latentgamma._display import Display, Displayed
from latentgamma._errors import DataError
from latentgamma._learning.wording import listing, quantity
from latentgamma._program.program import Program, require_definite
from latentgamma.datalog.grounding import GroundingWarning, ground
from latentgamma.relational.budget import Budget
from latentgamma.relational.differences import Alternative, compare
from latentgamma.relational.problem import Problem, read_facts
from latentgamma.relational.programs import ClauseProgram, derived_atoms

if TYPE_CHECKING:
    from latentgamma._certificate.certificate import Certificate
    from latentgamma._model.module import LatentGamma

_MOST_LISTED = 10
#: Descriptions whose lengths differ by less have the same length.
_SAME_BITS = 0.01


@dataclass(frozen=True)
class RuleEvidence:
    """What the examples say about one rule.

    Attributes:
        rule: its text.
        support: the positive examples that it derives.
        needed: the positive examples that are no longer derived without it.
        wrong: the negative examples that it derives; only with wrong labels.
        variants: rules of about the same length with the same instances on this background.
    """

    rule: str
    support: int
    needed: int
    wrong: int
    variants: tuple[str, ...]


@dataclass(frozen=True)
class SearchStep:
    """One point of the history of a search.

    Attributes:
        stage: what was finished.
        candidates: the number of candidate rules.
        explained: the share of positive examples that some candidate derives.
        seconds: since the start of the call.
    """

    stage: str
    candidates: int
    explained: float
    seconds: float


@dataclass(frozen=True)
class Agreement:
    """Whether two results have the same answers.

    Attributes:
        same: whether no difference was found.
        account: what is the same, or where the programs differ and why.
    """

    same: bool
    account: str

    def __str__(self) -> str:
        return self.account


@dataclass(frozen=True, repr=False)
class RelationalResult(Displayed):
    """The learned program, and how far it can be trusted.

    Attributes:
        text: the rules as Datalog; empty if no program was found.
        found: whether a program was found.
        evidence: what the examples say about each rule.
        alternatives: other programs that explain the examples, and where they differ.
        unexplained: positive examples that the program does not derive; if none was found, those
            that no candidate rule derives.
        wrong: negative examples that the program derives; only with wrong labels.
        accuracy: the share of the labelled tuples that the program has right; None if no program
            was found.
        bits: the description length of the program.
        notes: what was assumed, and what was left out.
        reason: why this program, or why none was found.
        history: the course of the search.
        method: the method that was used.
        noise: the share of wrong labels that was assumed or estimated.
        seconds: the time of the call.
        timed_out: whether the time limit ended the search; another call may then find more or less.
        problem: the examples.
        clauses: the rules as clauses; None if no program was found.
    """

    text: str
    found: bool
    evidence: tuple[RuleEvidence, ...]
    alternatives: tuple[Alternative, ...]
    unexplained: tuple[str, ...]
    wrong: tuple[str, ...]
    accuracy: float | None
    bits: float
    notes: tuple[str, ...]
    reason: str
    history: tuple[SearchStep, ...]
    method: str
    noise: float
    seconds: float
    timed_out: bool
    problem: Problem
    clauses: ClauseProgram | None

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules, one text each."""
        return tuple(self.text.splitlines())

    @cached_property
    def program(self) -> Program | None:
        """The ground program: the rules on the background, whose facts are given when asking."""
        if not self.found:
            return None
        tables = self.problem.tables()
        with warnings.catch_warnings():  # predicates of one name and several arities
            warnings.simplefilter("ignore", GroundingWarning)
            program = ground(self.text, open=list(tables), facts=tables)
        return require_definite(program, "relational.fit")

    @cached_property
    def model(self) -> LatentGamma | None:
        """The network of the ground program."""
        from latentgamma._model.oracle import definite_oracle

        return None if self.program is None else definite_oracle(self.program)

    @cached_property
    def certificate(self) -> Certificate | None:
        """Whether the network provably equals the ground program, for all fact sets."""
        from latentgamma._certificate.certify import certify

        if self.program is None or self.model is None:
            return None
        return certify(self.model, self.program)

    def predict(self, background: Any) -> set[tuple[str, ...]]:
        """Return the atoms of the targets that the rules derive from another background.

        >>> import latentgamma as lg
        >>> result = lg.relational.fit("edge(a,b). edge(b,c).", [("back", "b", "a"), ("back", "c", "b")])
        >>> sorted(result.predict("edge(1,2)."))
        [('back', '2', '1')]

        Args:
            background: facts in any form that `fit` takes.

        Returns:
            Each atom as its predicate and arguments.

        Raises:
            DataError: no program was found.
        """
        if not self.found:
            raise DataError("no program was found, so there is nothing to predict with")
        facts = read_facts(background, "background")
        tables = {f"{name}/{arity}": rows for (name, arity), rows in facts.items()}
        targets = [f"{target.name}/{target.arity}" for target in self.problem.targets]
        return derived_atoms(self.text, tables, targets)

    def agreement(self, other: RelationalResult) -> Agreement:
        """Return whether another result of the same examples has the same answers, and if not why.

        Both programs are run on small instances: the bodies of their rules, unfolded until they
        have background predicates only.

        >>> import latentgamma as lg
        >>> facts, examples = "edge(a,b). edge(b,c).", [("back", "b", "a"), ("back", "c", "b")]
        >>> by_search = lg.relational.fit(facts, examples)
        >>> by_gradient = lg.relational.fit(facts, examples, method="gradient")
        >>> print(by_search.agreement(by_gradient))
        the programs of methods 'search' and 'gradient' are the same

        Args:
            other: a result of `fit`, for instance by the other method.

        Raises:
            DataError: the results are of different examples.
        """
        if self.problem.digest != other.problem.digest:
            raise DataError("the results are of different examples; compare two of the same ones")
        if self.clauses is None or other.clauses is None:
            return Agreement(self.found == other.found, _without_program(self, other))
        methods = f"methods {self.method!r} and {other.method!r}"
        if self.text == other.text:
            return Agreement(True, f"the programs of {methods} are the same")
        numbers = [(target.relation, target.arity) for target in self.problem.targets]
        programs = [(self.clauses, self.bits), (other.clauses, other.bits)]
        different, _ = compare(programs, numbers, 1, Budget(math.inf))
        if not different:
            return Agreement(
                True,
                f"the programs of {methods} have the same answers on every instance that was tried",
            )
        return Agreement(False, _difference(self, other, different[0]))

    def summary(self) -> str:
        """Return the program and what the examples say about it, as text.

        Returns:
            Datalog; everything but the rules is a comment.
        """
        rules = [*rule_lines(self), ""] if self.found else []
        return "\n".join([*rules, *(f"% {line}" for line, _ in summary_lines(self))])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values for JSON."""
        return {
            "found": self.found,
            "program": self.text,
            "rules": [
                {
                    "rule": one.rule,
                    "support": one.support,
                    "needed": one.needed,
                    "wrong": one.wrong,
                    "variants": list(one.variants),
                }
                for one in self.evidence
            ],
            "alternatives": [
                {"program": one.text, "bits": one.bits, "difference": one.difference}
                for one in self.alternatives
            ],
            "unexplained": list(self.unexplained),
            "wrong": list(self.wrong),
            "accuracy": self.accuracy,
            "bits": self.bits,
            "method": self.method,
            "noise": self.noise,
            "reason": self.reason,
            "notes": list(self.notes),
            "seconds": self.seconds,
            "timed_out": self.timed_out,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
            "history": [
                {
                    "stage": step.stage,
                    "candidates": step.candidates,
                    "explained": step.explained,
                    "seconds": step.seconds,
                }
                for step in self.history
            ],
        }

    def __repr__(self) -> str:
        return f"RelationalResult({self})"

    def _display(self) -> Display:
        rows = [
            (one.rule, str(one.support), str(one.needed), "  or  ".join(one.variants[:3]))
            for one in self.evidence
        ]
        (title, _), *lines = summary_lines(self)
        columns = ("rule", "support", "needed", "variants")
        notes = [line for line, _ in lines]
        return Display(title, self.found, columns=columns, rows=rows, notes=notes)

    def __str__(self) -> str:
        if not self.found:
            return f"no program was found: {self.reason}"
        others = quantity(len(self.alternatives), "alternative")
        return f"{quantity(len(self.rules), 'rule')} by method {self.method!r}, {others}"


def rule_lines(result: RelationalResult) -> list[str]:
    """Return the rules as lines of text, each with a comment on its support."""
    width = max((len(one.rule) for one in result.evidence), default=0)
    return [f"{one.rule:<{width}}  % {_support(one)}" for one in result.evidence]


def summary_lines(result: RelationalResult) -> list[tuple[str, str]]:
    """Return the lines of a summary, each with a style: "bold", "green", "red", "yellow" or ""."""
    if not result.found:
        lines = [(f"no program was found: {result.reason}", "red")]
        if result.unexplained:
            shown = listing(result.unexplained, _MOST_LISTED)
            lines.append((f"no candidate rule derives: {shown}", "yellow"))
        return [*lines, *((f"note: {text}", "") for text in result.notes)]
    count = quantity(len(result.rules), "rule")
    lines = [(f"{count} by method {result.method} ({result.reason})", "bold")]
    lines.append((f"labels explained: {result.accuracy:.4f}", ""))
    certificate = result.certificate
    if certificate is not None:
        mark, style = ("✓", "green") if certificate.holds else ("✗", "red")
        lines.append((f"{mark} the network of the ground program: {certificate}", style))
    for one in result.alternatives[:_MOST_LISTED]:
        joined = " ".join(one.text.splitlines())
        lines.append((f"alternative: {joined}  ({one.difference})", "yellow"))
    if result.unexplained:
        lines.append((f"not derived: {listing(result.unexplained, _MOST_LISTED)}", "yellow"))
    if result.wrong:
        lines.append((f"derived, but negative: {listing(result.wrong, _MOST_LISTED)}", "yellow"))
    return [*lines, *((f"note: {text}", "") for text in result.notes)]


def _without_program(one: RelationalResult, other: RelationalResult) -> str:
    """Return the account of two results of which at least one has no program."""
    if not one.found and not other.found:
        return "neither method found a program"
    with_one, without = (one, other) if one.found else (other, one)
    return (
        f"only method {with_one.method!r} found a program; method {without.method!r}: "
        f"{'; '.join([without.reason, *without.notes])}"
    )


def _difference(one: RelationalResult, other: RelationalResult, at: Alternative) -> str:
    """Return where two programs differ, and why each method has its own."""
    who = other if at.derives else one
    parts = [f"given {at.facts}, only the program of method {who.method!r} derives {at.atom}"]
    if abs(one.bits - other.bits) < _SAME_BITS:
        parts.append("both descriptions have the same length, so the examples do not decide")
    else:
        shorter, longer = (one, other) if one.bits < other.bits else (other, one)
        parts.append(
            f"the description of method {shorter.method!r} is shorter by "
            f"{longer.bits - shorter.bits:.1f} bits; method {longer.method!r} did not compare it"
        )
    for has, listed in ((one, other), (other, one)):
        if any(entry.text == has.text for entry in listed.alternatives):
            parts.append(
                f"the program of method {has.method!r} is an alternative of method {listed.method!r}"
            )
    return "; ".join(parts)


def _support(one: RuleEvidence) -> str:
    wrong = f", {one.wrong} negative" if one.wrong else ""
    return f"support {one.support}, needed for {one.needed}{wrong}"
