"""From examples of a relation to a certified Datalog program."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from latentgamma._errors import ArgumentError
from latentgamma._learning.wording import quantity
from latentgamma.datalog.grounding import require_clingo
from latentgamma.relational.clauses import clause_bits, clause_text
from latentgamma.relational.differences import Alternative, compare
from latentgamma.relational.instances import Hypotheses
from latentgamma.relational.problem import Problem, read_problem
from latentgamma.relational.programs import ClauseProgram
from latentgamma.relational.result import RelationalResult, RuleEvidence, SearchStep
from latentgamma.relational.search import Found, SearchOptions, search
from latentgamma.relational.selection import Choice

Method = Literal["auto", "search", "gradient"]
ProgressCallback = Callable[[SearchStep], None]

#: Variants of one rule that are shown, and of which programs are made.
_MOST_VARIANTS = 6
#: Programs that are compared with the learned one.
_MOST_COMPARED = 40


def fit(
    background: Any,
    positive: Any,
    negative: Any = None,
    *,
    target: str | Iterable[str] | None = None,
    invent: int = 0,
    recursive: bool = True,
    max_body: int = 6,
    max_variables: int = 6,
    noise: float | Literal["auto"] = 0.0,
    method: Method = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    alternatives: int = 8,
    progress: ProgressCallback | None = None,
) -> RelationalResult:
    """Return the shortest Datalog program that explains examples of a relation.

    Args:
        background: facts as Datalog text, a path, tables by predicate such as
            `{"parent": [("ann", "bob")]}`, or tuples `("parent", "ann", "bob")`. Rules in the text
            are evaluated.
        positive: examples that follow, in any of these forms.
        negative: examples that do not follow. Without any, everything that is not a positive
            example counts as false (closed world). Tuples in neither have no label.
        target: the predicates to learn; by default those of the positive examples.
        invent: the largest number of invented predicates.
        recursive: whether rules may use the targets.
        max_body: the largest number of literals in a body.
        max_variables: the largest number of variables in a rule.
        noise: the share of wrong labels, or "auto" to estimate it.
        method: "search" enumerates clauses and chooses among them; "gradient" trains the choice;
            "auto" is "search".
        seed: the seed of everything random.
        time_limit: in seconds; the best program so far is then returned.
        alternatives: the largest number of alternatives.
        progress: called with a `SearchStep` after each stage.

    Returns:
        The program, evidence for each rule, alternatives, and the certificate of its network.

    Raises:
        DataError: the facts or examples cannot be used.
        ArgumentError: an option has a value that it cannot have.
        ProgramError: clingo is not installed.

    >>> result = fit(
    ...     {"parent": [("ann", "bob"), ("bob", "cid"), ("bob", "dan"), ("eve", "ann")]},
    ...     [("grandparent", "ann", "cid"), ("grandparent", "ann", "dan"), ("grandparent", "eve", "bob")],
    ... )
    >>> print(result.text)
    grandparent(X,Y) :- parent(X,Z), parent(Z,Y).
    >>> result.certificate.holds
    True
    """
    require_clingo()
    options = _check_options(
        invent=invent,
        recursive=recursive,
        max_body=max_body,
        max_variables=max_variables,
        seed=seed,
        alternatives=alternatives,
    )
    _check_others(noise, method, time_limit)
    if noise or method == "gradient":
        raise ArgumentError("wrong labels and method 'gradient' are not available yet")
    problem = read_problem(background, positive, negative, target, noise=bool(noise))
    start = time.monotonic()
    history: list[SearchStep] = []

    def report(stage: str, candidates: int, explained: float) -> None:
        step = SearchStep(stage, candidates, explained, time.monotonic() - start)
        history.append(step)
        if progress is not None:
            progress(step)

    found = search(problem, options, start + time_limit, report)
    if not found.choices:
        return _nothing(problem, found, options, history, start, time_limit)
    return _build(problem, found, options, history, start)


def _build(
    problem: Problem,
    found: Found,
    options: SearchOptions,
    history: list[SearchStep],
    start: float,
) -> RelationalResult:
    best = found.choices[0]
    program = _program(problem, found, best)
    others, same = _alternatives(problem, found, options.alternatives)
    notes = [*problem.notes, *found.notes]
    if same:
        notes.append(
            f"{quantity(same, 'other form')} of the program gave the same answers on every "
            "instance that was tried"
        )
    if found.shortest:
        reason = (
            f"no program with bodies of up to {quantity(found.literals, 'literal')} has a shorter "
            "description"
        )
    else:
        reason = "the shortest description found in the time"
    evidence = _evidence(problem, found, best, program)
    return RelationalResult(
        text=program.text,
        found=True,
        evidence=evidence,
        alternatives=tuple(others),
        unexplained=(),
        wrong=(),
        accuracy=1.0,
        bits=best.bits,
        notes=tuple(notes),
        reason=reason,
        history=tuple(history),
        method="search",
        noise=0.0,
        seconds=time.monotonic() - start,
        problem=problem,
    )


def _nothing(
    problem: Problem,
    found: Found,
    options: SearchOptions,
    history: list[SearchStep],
    start: float,
    time_limit: float,
) -> RelationalResult:
    by_relation = {target.relation: target for target in problem.targets}
    missing = tuple(problem.atom(by_relation[r], code) for r, code in found.unexplained)
    tried = f"bodies of up to {quantity(found.literals, 'literal')} were all tried"
    if missing:
        count = quantity(len(missing), "positive example")
        why = f"no rule without a negative example derives {count}; {tried}"
    else:
        why = f"no set of rules derives every positive example and no negative one; {tried}"
    remedies = []
    if found.literals < options.max_body:
        remedies.append(f"a time_limit above {time_limit:g} s")
    elif options.max_body < 6:
        remedies.append("a larger max_body")
    if not options.invent:
        remedies.append("invent=1")
    remedies.append('noise="auto" if labels may be wrong')
    return RelationalResult(
        text="",
        found=False,
        evidence=(),
        alternatives=(),
        unexplained=missing,
        wrong=(),
        accuracy=None,
        bits=0.0,
        notes=(*problem.notes, *found.notes),
        reason=f"{why}; try {', or '.join(remedies)}",
        history=tuple(history),
        method="search",
        noise=0.0,
        seconds=time.monotonic() - start,
        problem=problem,
    )


def _program(
    problem: Problem, found: Found, choice: Choice, swap: dict[int, Any] | None = None
) -> ClauseProgram:
    """Return the program of a choice, with some clauses exchanged."""
    swap = swap or {}
    clauses = [swap.get(n, found.candidates[n].clause) for n in choice.chosen]
    used = sorted({d for n in choice.chosen for d in found.candidates[n].definitions})
    return ClauseProgram.of(
        clauses,
        [found.definitions[d].clauses for d in used],
        [relation.name for relation in found.relations],
        [target.relation for target in problem.targets],
    )


def _alternatives(problem: Problem, found: Found, most: int) -> tuple[list[Alternative], int]:
    """Return programs that explain the examples as well, and differ on other facts."""
    best = found.choices[0]
    programs = [(_program(problem, found, best), best.bits)]
    predicates = len(problem.names)
    for number in best.chosen:
        one = found.candidates[number]
        for clause in one.variants[:_MOST_VARIANTS]:
            bits = best.bits - one.bits + clause_bits(clause, predicates)
            programs.append((_program(problem, found, best, {number: clause}), bits))
    programs += [(_program(problem, found, one), one.bits) for one in found.choices[1:]]
    programs[1:] = sorted(programs[1:], key=lambda pair: pair[1])[:_MOST_COMPARED]
    targets = [(target.relation, target.arity) for target in problem.targets]
    return compare(programs, targets, most)


def _evidence(
    problem: Problem, found: Found, choice: Choice, program: ClauseProgram
) -> tuple[RuleEvidence, ...]:
    """Return what the examples say about each rule of the program."""
    candidates = [found.candidates[n] for n in choice.chosen]
    hypotheses = Hypotheses(problem, candidates)
    every = list(range(len(candidates)))
    models = hypotheses.models([every, *([m for m in every if m != n] for n in every)])
    positive = hypotheses.positive
    full = models[0]
    by_clause = {}
    names = program.names
    for n, one in enumerate(candidates):
        heads, bodies = hypotheses.rules_of(n)
        fires = np.ones(len(heads), bool)
        for body in bodies:
            fires &= full[body]
        reached = np.unique(heads[fires])
        needed = int((full[positive] & ~models[1 + n][positive]).sum())
        support = int(np.isin(reached, positive).sum())
        wrong = int(np.isin(reached, hypotheses.negative).sum())
        variants = tuple(clause_text(c, names) for c in one.variants[:_MOST_VARIANTS])
        by_clause[one.clause] = (support, needed, wrong, variants)
    total = int(full[positive].sum())
    rows = []
    for clause, text in zip(program.clauses, program.rules, strict=True):
        support, needed, wrong, variants = by_clause.get(clause, (total, total, 0, ()))
        rows.append(RuleEvidence(text, support, needed, wrong, variants))
    return tuple(rows)


def _check_options(
    *,
    invent: int,
    recursive: bool,
    max_body: int,
    max_variables: int,
    seed: int,
    alternatives: int,
) -> SearchOptions:
    for name, value, least in (
        ("invent", invent, 0),
        ("max_body", max_body, 1),
        ("max_variables", max_variables, 1),
        ("seed", seed, 0),
        ("alternatives", alternatives, 0),
    ):
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            raise ArgumentError(f"{name} is a whole number of at least {least}, not {value!r}")
    if not isinstance(recursive, bool):
        raise ArgumentError(f"recursive is True or False, not {recursive!r}")
    if invent > 2:
        raise ArgumentError(f"invent is at most 2, not {invent}")
    return SearchOptions(invent, recursive, max_body, max_variables, seed, alternatives)


def _check_others(noise: Any, method: Any, time_limit: Any) -> None:
    if method not in {"auto", "search", "gradient"}:
        raise ArgumentError(f'method is "auto", "search" or "gradient", not {method!r}')
    number = isinstance(noise, (int, float)) and not isinstance(noise, bool)
    if noise != "auto" and not (number and 0 <= noise < 0.5):
        raise ArgumentError(f'noise is a share from 0 to below 0.5, or "auto", not {noise!r}')
    if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)):
        raise ArgumentError(f"time_limit is a number of seconds, not {time_limit!r}")
    if not time_limit > 0 or math.isnan(time_limit):
        raise ArgumentError(f"time_limit must be above 0 seconds, but is {time_limit!r}")
