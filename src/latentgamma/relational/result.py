"""The learned clauses: as a program, with alternatives and where these differ."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma._display import Display, Displayed
from latentgamma._text import listing, quantity
from latentgamma.datalog.grounding import GroundingWarning, ground
from latentgamma.errors import DataError
from latentgamma.program.program import Program
from latentgamma.relational.budget import Budget, OutOfBudget
from latentgamma.relational.clauses import (
    MOST_RECURSIVE,
    Clause,
    Hypotheses,
    Literal,
    TooManyRows,
    clause_text,
    least_model,
)
from latentgamma.relational.problem import (
    Ints,
    Language,
    Problem,
    Relation,
    atom_form,
    derived_facts,
    read_facts,
)
from latentgamma.relational.search import ALL_VARIABLES, Choice, Found, SearchOptions

if TYPE_CHECKING:
    from latentgamma.certificate.certify import Certificate
    from latentgamma.operator.model import LatentGamma


# ---- Sets of clauses as programs: their text, and small instances on which they derive something

#: Instances of one program, and the literals of one instance.
_MOST_INSTANCES = 12
_MOST_LITERALS = 9
#: Bodies that are unfolded for them.
_MOST_UNFOLDED = 300


@dataclass(frozen=True)
class ClauseProgram:
    """Clauses of targets and of invented predicates."""

    clauses: tuple[Clause, ...]  # first those of the targets
    forms: tuple[str, ...]  # how the predicates are written, by number
    learned: frozenset[int]  # the predicates that have clauses
    inputs: tuple[tuple[bool, ...], ...]  # of each predicate

    def uses(self, predicates: Iterable[int]) -> bool:
        """Return whether a clause uses one of these predicates."""
        wanted = frozenset(predicates)
        return any(clause.uses(wanted) for clause in self.clauses)

    @property
    def rules(self) -> list[str]:
        """The text of each clause."""
        return [clause_text(clause, self.forms, self.inputs) for clause in self.clauses]

    @property
    def text(self) -> str:
        """The program as Datalog."""
        return "\n".join(self.rules)

    def instances(self, targets: Iterable[int]) -> list[tuple[tuple[Literal, ...], Literal]]:
        """Return small sets of facts, as literals whose variables are constants, and an atom that
        follows from each.
        """
        found: list[tuple[tuple[Literal, ...], Literal]] = []
        queue: list[tuple[tuple[Literal, ...], Literal, int]] = []
        for target in targets:
            for clause in self.clauses:
                if clause.head == target:
                    head = (target, tuple(range(clause.arity)))
                    queue.append((clause.body, head, clause.variables))
        for _ in range(_MOST_UNFOLDED):
            if not queue or len(found) >= _MOST_INSTANCES:
                break
            queue.sort(key=lambda entry: len(entry[0]))
            body, head, variables = queue.pop(0)
            place = next((i for i, (p, _) in enumerate(body) if p in self.learned), None)
            if place is None:
                found.append((tuple(dict.fromkeys(body)), head))
                continue
            predicate, arguments = body[place]
            for clause in self.clauses:
                if clause.head != predicate:
                    continue
                new = dict(enumerate(arguments))
                for variable in range(clause.arity, clause.variables):
                    new[variable] = variables + variable - clause.arity
                inside = tuple((p, tuple(new[v] for v in literal)) for p, literal in clause.body)
                longer = (*body[:place], *inside, *body[place + 1 :])
                if len(longer) <= _MOST_LITERALS:
                    more = clause.variables - clause.arity
                    queue.append((longer, head, variables + more))
        return found


def derived_atoms(
    text: str, background: Mapping[str, Sequence[Sequence[str]]], targets: Iterable[str]
) -> set[tuple[str, ...]]:
    """Return the atoms of some predicates that a program derives, as their cells."""
    with warnings.catch_warnings():  # a rule may use a predicate without facts
        warnings.simplefilter("ignore", GroundingWarning)
        facts = derived_facts(text, background)
    names = ((name, int(arity)) for name, _, arity in (one.partition("/") for one in targets))
    return {(name, *row) for name, arity in names for row in facts.get((name, arity), ())}


# ---- Where programs that explain the same examples differ: small instances with different answers


@dataclass(frozen=True)
class Alternative:
    """Another program that explains the examples.

    Attributes:
        text: the program as Datalog.
        bits: its description length.
        facts: facts for which the answers differ; empty if no difference was found.
        atom: the atom in which they differ for these facts.
        derives: whether this program derives the atom; the learned one then does not.
    """

    text: str
    bits: float
    facts: str
    atom: str
    derives: bool

    @property
    def difference(self) -> str:
        """Where the program differs from the learned one, as a sentence."""
        if not self.facts:
            return "no difference found"
        who = "only this program derives" if self.derives else "only the learned program derives"
        return f"given {self.facts}, {who} {self.atom}"


def compare(
    programs: Sequence[tuple[ClauseProgram, float]],
    targets: Sequence[tuple[int, int]],
    most: int,
    budget: Budget,
) -> tuple[list[Alternative], int]:
    """Return the programs that differ from the first one and from each other.

    Every program is run on small instances: the bodies of every program's rules, unfolded until they
    have background predicates only. Return at most so many alternatives, the shortest first, and the
    number of programs without a difference.
    """
    learned = programs[0][0]
    collected: dict[tuple[tuple[Literal, ...], Literal], None] = {}
    for program, _ in programs:
        collected.update(dict.fromkeys(program.instances([number for number, _ in targets])))
    tests = _Tests(sorted(collected, key=lambda test: len(test[0])))
    alternatives: list[Alternative] = []
    same = 0
    try:
        answer = tests.answers(learned, budget)
        seen = {answer.tobytes()}
        for program, bits in programs[1:]:
            if len(alternatives) >= most:
                break
            try:
                other = tests.answers(program, budget)
            except TooManyRows:
                continue
            different = np.flatnonzero(answer != other)
            same += not len(different)
            if other.tobytes() in seen:
                continue
            seen.add(other.tobytes())
            facts, (head, arguments) = tests.tests[different[0]]
            text = ", ".join(_ground(learned.forms[p], literal) for p, literal in facts)
            asked = _ground(learned.forms[head], arguments)
            derives = bool(other[different[0]])
            alternatives.append(Alternative(program.text, bits, text, asked, derives))
    except (OutOfBudget, TooManyRows):
        pass
    return alternatives, same


class _Tests:
    """Small sets of facts, each with an atom that is asked about.

    Every literal gets the number of its test as one more argument, so that all tests are evaluated
    at once, and none sees the facts of another.
    """

    def __init__(self, tests: Sequence[tuple[tuple[Literal, ...], Literal]]) -> None:
        variables = [v for facts, atom in tests for _, literal in (*facts, atom) for v in literal]
        self._n = max([len(tests), 1, *(v + 1 for v in variables)])
        # The codes of tuples are integers of 64 bits.
        self.tests = [test for test in tests if all(map(self._fits, (*test[0], test[1])))]
        self._facts: dict[int, list[tuple[int, ...]]] = {}
        for number, (facts, _) in enumerate(self.tests):
            for predicate, literal in facts:
                self._facts.setdefault(predicate, []).append((number, *literal))

    def _fits(self, literal: Literal) -> bool:
        return bool(self._n ** (1 + len(literal[1])) < 2**62)

    def answers(self, program: ClauseProgram, budget: Budget) -> np.ndarray:
        """Return whether a program derives the atom of each test from its facts."""
        arities = {p: len(v) for clause in program.clauses for p, v in clause.body}
        arities |= {clause.head: clause.arity for clause in program.clauses}
        if not all(self._fits((p, (0,) * arity)) for p, arity in arities.items()):
            raise TooManyRows
        relations = [self._relation((), 0)] * (1 + max(arities))
        for predicate, arity in arities.items():
            relations[predicate] = self._relation(self._facts.get(predicate, ()), arity)
        clauses = [
            Clause(head, arity + 1, tuple((p, (0, *(v + 1 for v in one))) for p, one in body))
            for head, arity, body in program.clauses
        ]
        least_model(clauses, relations, budget)
        return np.array(
            [
                head in arities
                and bool(relations[head].holds(*(np.array([v]) for v in (number, *arguments)))[0])
                for number, (_, (head, arguments)) in enumerate(self.tests)
            ],
            bool,
        )

    def _relation(self, rows: Sequence[Sequence[int]] | Ints, arity: int) -> Relation:
        table = np.unique(np.array(rows, np.int64).reshape(-1, arity + 1), axis=0)
        return Relation("", table, self._n, (0,) * (arity + 1))


def _ground(form: str, arguments: Sequence[int]) -> str:
    return form.format(*("abcdefghijklmnopqrstuvwxyz"[v % 26] + "1" * (v // 26) for v in arguments))


# ---- What `lg.relational.fit` returns

#: Alternatives and examples that a summary lists.
_MOST_LISTED = 10
#: Descriptions whose lengths differ by less have the same length.
_SAME_BITS = 0.01


class Kind(Enum):
    """What a program was learned for."""

    CLEAN = "every example"
    NOISY = "most labels, since some are wrong"
    PARTIAL = "most examples, since no program was found for all of them"
    POSITIVE = "positive examples alone"


@dataclass(frozen=True)
class RuleEvidence:
    """What the examples say about one rule.

    Attributes:
        rule: its text.
        support: the positive examples that it derives.
        needed: the positive examples that are no longer derived without it.
        wrong: the negative examples that it derives; only with wrong labels.
        variants: other rules that derive the same examples on this background.
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
        explained: the fraction of positive examples that some candidate derives.
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
        complete: whether it explains every example.
        evidence: what the examples say about each rule.
        alternatives: other programs that explain the examples, and where they differ.
        unexplained: positive examples that the program does not derive; if none was found, those
            that no candidate rule derives.
        wrong: negative examples that the program derives; only if it is not complete.
        accuracy: the fraction of the labelled tuples that the program has right; None if no program
            was found.
        bits: the description length of the program.
        notes: what was assumed, and what was left out.
        reason: why this program, or why none was found.
        history: the course of the search.
        method: the method that was used.
        noise: the fraction of wrong labels that was assumed or estimated.
        seconds: the time of the call.
        timed_out: whether the time limit ended the search; another call may then find more or less.
        problem: the examples.
        clauses: the rules as clauses; None if no program was found.
    """

    text: str
    found: bool
    complete: bool
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
            return ground(self.text, open=list(tables), facts=tables)

    @cached_property
    def model(self) -> LatentGamma | None:
        """The network of the ground program."""
        from latentgamma.operator.model import oracle

        return None if self.program is None else oracle(self.program)

    @cached_property
    def certificate(self) -> Certificate | None:
        """Whether the network provably equals the ground program, for all fact sets."""
        from latentgamma.certificate.certify import certify

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
            found, without = (self, other) if self.found else (other, self)
            why = "; ".join([without.reason, *without.notes])
            account = f"only method {found.method!r} found a program; {without.method!r}: {why}"
            neither = "neither method found a program"
            return Agreement(self.found == other.found, account if found.found else neither)
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
            "complete": self.complete,
            "program": self.text,
            "rules": [asdict(one) for one in self.evidence],
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
            "history": [asdict(step) for step in self.history],
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


def _difference(one: RelationalResult, other: RelationalResult, at: Alternative) -> str:
    """Return where two programs differ, and why each method has its own."""
    who = other if at.derives else one
    shorter, longer = (one, other) if one.bits < other.bits else (other, one)
    why = (
        f"the description of method {shorter.method!r} is shorter by {longer.bits - shorter.bits:.1f} "
        f"bits; method {longer.method!r} did not compare it"
    )
    if longer.bits - shorter.bits < _SAME_BITS:
        why = "both descriptions have the same length, so the examples do not decide"
    parts = [f"given {at.facts}, only the program of method {who.method!r} derives {at.atom}", why]
    parts += [
        f"the program of method {has.method!r} is an alternative of method {listed.method!r}"
        for has, listed in ((one, other), (other, one))
        if any(entry.text == has.text for entry in listed.alternatives)
    ]
    return "; ".join(parts)


def _support(one: RuleEvidence) -> str:
    wrong = f", {one.wrong} negative" if one.wrong else ""
    return f"support {one.support}, needed for {one.needed}{wrong}"


# ---- From what a search found to a result: evidence, alternatives and reasons

#: Variants of one rule that are shown, and of which programs are made.
_MOST_VARIANTS = 6
#: Programs that are compared with the learned one.
_MOST_COMPARED = 40


def build_result(
    problem: Problem,
    found: Found,
    options: SearchOptions,
    history: tuple[SearchStep, ...],
    budget: Budget,
    *,
    noise: float | None = None,
    method: str = "search",
    kind: Kind = Kind.CLEAN,
    language: Language | None = None,
    advice: str | None = None,
) -> RelationalResult:
    """Return the result of a search; `noise` is the fraction of wrong labels, or None."""
    notes = [*problem.notes, *found.notes]
    if kind is Kind.POSITIVE:
        notes = [note for note in notes if "(closed world)" not in note]
    if language is not None and language.options:
        notes.append(f"rules could use {', '.join(language.options)}")
    notes += [
        f"every tuple of {target.name} is positive: these examples exclude nothing"
        for target in problem.targets
        if target.negative is None and problem.label_count(target) == len(target.positive)
    ]
    if options.recursive and not problem.lists_every_tuple:
        if noise is not None:
            notes.append("the targets have too many tuples for recursive rules from wrong labels")
        elif not problem.labelled:
            notes.append(
                "the targets have too many tuples to list: rules do not use those without a label"
            )
    program: ClauseProgram | None = None
    evidence: tuple[RuleEvidence, ...] = ()
    others: list[Alternative] = []
    wrong: tuple[str, ...] = ()
    if found.choices:
        program = _program(problem, found, found.choices[0])
        comparing = budget.part(optional=True)
        others, same = _alternatives(problem, found, options.alternatives, comparing)
        if comparing.timed_out or found.alternatives_timed_out:
            notes.append("the time limit ended the search for alternatives")
        if same:
            notes.append(
                f"{quantity(same, 'other form')} of the program gave the same answers on every "
                "instance that was tried"
            )
        if noise and others:
            more = max(one.bits for one in others) - found.choices[0].bits
            notes.append(
                f"alternatives are longer by {more:.1f} bits or less, and a label is worth "
                f"{math.log2((1 - noise) / noise):.1f} bits: few labels decide between them"
            )
        evidence, missing, wrong = _evidence(problem, found, found.choices[0], program)
        if kind is Kind.PARTIAL and not missing and not wrong:
            kind = Kind.CLEAN  # a search for most examples found a program for all
        if kind is Kind.POSITIVE:
            wrong = ()
            evidence = tuple(replace(one, wrong=0) for one in evidence)
        if kind is Kind.CLEAN and (missing or wrong):
            raise RuntimeError(
                f"the program found is not one of the examples; report this: {program.text}"
            )
    else:
        by_relation = {target.relation: target for target in problem.targets}
        missing = tuple(problem.atom(by_relation[r], c) for r, c in found.unexplained)
        if found.nearest is not None:
            nearest = " ".join(_program(problem, found, found.nearest).rules)
            notes.append(
                f"with its exceptions, this program is {found.nearest.bits:.1f} bits longer than a "
                f"list of the positive examples: {nearest}"
            )
    if budget.timed_out:
        notes.append(
            "the time limit ended the search; another call, or a longer time_limit, may find "
            "another program"
        )
    labels = sum(problem.label_count(target) for target in problem.targets)
    return RelationalResult(
        text="" if program is None else program.text,
        found=program is not None,
        complete=program is not None and not missing and not wrong,
        evidence=evidence,
        alternatives=tuple(others),
        unexplained=missing,
        wrong=wrong,
        accuracy=None if program is None else 1 - (len(missing) + len(wrong)) / max(1, labels),
        bits=found.choices[0].bits if found.choices else 0.0,
        notes=tuple(notes),
        reason=_why(problem, found, options, kind, advice)
        if found.choices
        else _why_nothing(problem, found, options, kind, advice, timed_out=budget.timed_out),
        history=history,
        method=method,
        noise=noise or 0.0,
        seconds=budget.seconds,
        timed_out=budget.timed_out,
        problem=problem,
        clauses=program,
    )


def _why(
    problem: Problem, found: Found, options: SearchOptions, kind: Kind, advice: str | None
) -> str:
    if kind is Kind.NOISY:
        return "the shortest description of rules and wrong labels that was found"
    if kind is Kind.PARTIAL:
        also = '; pass noise="auto" if labels may be wrong'
        if advice:
            also = f"; {advice} gives one that does"
        return (
            "no program was found that explains every example: the shortest description of rules "
            f"and exceptions that was found{also}"
        )
    if kind is Kind.POSITIVE:
        return (
            "from positive examples alone: the shortest description that was found of rules, and of "
            "which atoms that they derive are the examples"
        )
    if found.shortest:
        return f"no set of {_language(problem, options, found.literals)} has a shorter description"
    return "the shortest description that was found"


def _why_nothing(
    problem: Problem,
    found: Found,
    options: SearchOptions,
    kind: Kind,
    advice: str | None,
    *,
    timed_out: bool,
) -> str:
    if kind is Kind.NOISY:
        return "no rules were found that describe the labels in fewer bits than a list of the positive examples"
    why = "no set of rules was found that derives every positive example and no negative one"
    if found.excluded:
        language = _language(problem, options, found.excluded)
        why = f"no set of {language} derives every positive example and no negative one"
        if found.unexplained:
            count = quantity(len(found.unexplained), "positive example")
            why = f"no rule without a negative example derives {count}: {why}"
    if advice:
        return f"{why}; {advice} gives one that does"
    remedies = []
    if timed_out:
        remedies.append("a longer time_limit")
    if not options.invent:
        remedies.append("invent=1")
    remedies.append('noise="auto" if labels may be wrong')
    return f"{why}; try {', or '.join(remedies)}"


def _language(problem: Problem, options: SearchOptions, literals: int) -> str:
    """Return which rules were all tried."""
    limits = []
    if any(target.arity > 1 for target in problem.targets):
        limits.append("distinct variables in the head")
    if len(problem.domains) > 1:
        limits.append("variables of one type")
    if problem.world is not None:
        limits.append("one variable for the world")
    if any(any(one.inputs) for one in problem.predicates if one.name):
        limits.append("inputs that have a value")
    if not options.recursive:
        limits.append("no recursion")
    elif literals > MOST_RECURSIVE:
        limits.append(f"at most {MOST_RECURSIVE} literals of targets in a body")
    if options.invent:
        limits.append("no invented predicate")
    bodies = quantity(literals, "literal")
    variables = quantity(min(ALL_VARIABLES, options.max_variables), "variable")
    aside = f" ({', '.join(limits)})" if limits else ""
    return f"rules with bodies of up to {bodies} and {variables}{aside}"


def _program(
    problem: Problem, found: Found, choice: Choice, swap: Mapping[int, Clause] | None = None
) -> ClauseProgram:
    """Return the program of a choice, with some clauses exchanged.

    Invented predicates are called inv1, inv2 and so on.
    """
    swap = swap or {}
    clauses = [swap.get(n, found.candidates[n].clause) for n in choice.chosen]
    clauses.sort(key=lambda one: (one.head, one.uses([one.head]), len(one.body), one.body))
    forms = [one.form or atom_form(one.name, one.arity) for one in found.relations]
    taken = {relation.name for relation in found.relations}
    names = (name for i in itertools.count(1) if (name := f"inv{i}") not in taken)
    used = sorted({d for n in choice.chosen for d in found.candidates[n].definitions})
    for number in used:
        clauses += found.definitions[number].clauses
        forms[number] = atom_form(next(names), found.relations[number].arity)
    learned = frozenset({*used, *(target.relation for target in problem.targets)})
    inputs = tuple(relation.inputs for relation in found.relations)
    return ClauseProgram(tuple(clauses), tuple(forms), learned, inputs)


def _alternatives(
    problem: Problem, found: Found, most: int, budget: Budget
) -> tuple[list[Alternative], int]:
    """Return programs that explain the examples as well, and differ on other facts."""
    best = found.choices[0]
    programs = [(_program(problem, found, best), best.bits)]
    for number in best.chosen:
        one = found.candidates[number]
        for clause, length in one.variants[:_MOST_VARIANTS]:
            bits = best.bits - one.bits + length
            programs.append((_program(problem, found, best, {number: clause}), bits))
    programs += [(_program(problem, found, one), one.bits) for one in found.choices[1:]]
    # The small instances on which programs are compared have facts only.
    programs = [one for one in programs if not one[0].uses(problem.special)]
    if len(programs) < 2 or _program(problem, found, best).uses(problem.special):
        return [], 0
    programs[1:] = sorted(programs[1:], key=lambda pair: pair[1])[:_MOST_COMPARED]
    targets = [(target.relation, target.arity) for target in problem.targets]
    return compare(programs, targets, most, budget)


def _evidence(
    problem: Problem, found: Found, choice: Choice, program: ClauseProgram
) -> tuple[tuple[RuleEvidence, ...], tuple[str, ...], tuple[str, ...]]:
    """Return what the examples say about each rule, and the labels that the program gets wrong."""
    candidates = [found.candidates[n] for n in choice.chosen]
    hypotheses = Hypotheses(problem, candidates)
    every = list(range(len(candidates)))
    models = hypotheses.models([every, *([m for m in every if m != n] for n in every)])
    positive, full = hypotheses.positive, models[0]
    counts = {}
    for n, one in enumerate(candidates):
        heads, bodies = hypotheses.rules_of(n)
        fires = np.ones(len(heads), bool)
        for body in bodies:
            fires &= full[body]
        reached = np.unique(heads[fires])
        counts[one.clause] = (
            int(np.isin(reached, positive).sum()),
            int((full[positive] & ~models[1 + n][positive]).sum()),
            int(np.isin(reached, hypotheses.negative).sum()),
            tuple(
                clause_text(clause, program.forms, program.inputs)
                for clause, _ in one.variants[:_MOST_VARIANTS]
            ),
        )
    total = int(full[positive].sum())
    rows = tuple(
        RuleEvidence(text, *counts.get(clause, (total, total, 0, ())))
        for clause, text in zip(program.clauses, program.rules, strict=True)
    )
    missing = positive[~full[positive]]
    wrong = hypotheses.negative[full[hypotheses.negative]]

    def texts(atoms: np.ndarray) -> tuple[str, ...]:
        found = map(hypotheses.atom, atoms.tolist())
        return tuple(problem.atom(target, code) for target, code in found)

    return rows, texts(missing), texts(wrong)
