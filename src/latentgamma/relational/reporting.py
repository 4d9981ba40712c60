"""From what a search found to a result: evidence, alternatives and reasons."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from latentgamma._learning.wording import quantity
from latentgamma.relational.bodies import MOST_RECURSIVE
from latentgamma.relational.budget import Budget
from latentgamma.relational.clauses import Clause, clause_bits, clause_text
from latentgamma.relational.differences import Alternative, compare
from latentgamma.relational.instances import Hypotheses
from latentgamma.relational.problem import Problem
from latentgamma.relational.programs import ClauseProgram
from latentgamma.relational.result import RelationalResult, RuleEvidence, SearchStep
from latentgamma.relational.search import ALL_VARIABLES, Found, SearchOptions
from latentgamma.relational.selection import Choice

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
) -> RelationalResult:
    """Return the result of a search; `noise` is the share of wrong labels, None for no search for them."""
    notes = [*problem.notes, *found.notes]
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
        others, same = _alternatives(problem, found, options.alternatives, budget)
        if same:
            notes.append(
                f"{quantity(same, 'other form')} of the program gave the same answers on every "
                "instance that was tried"
            )
        evidence, missing, wrong = _evidence(problem, found, found.choices[0], program)
        if noise is None and (missing or wrong):
            raise RuntimeError(
                f"the program found is not one of the examples; report this: {program.text}"
            )
    else:
        by_relation = {target.relation: target for target in problem.targets}
        missing = tuple(problem.atom(by_relation[r], c) for r, c in found.unexplained)
    if budget.timed_out:
        notes.append(
            "the time limit ended the search; another call, or a longer time_limit, may find "
            "another program"
        )
    labels = sum(problem.label_count(target) for target in problem.targets)
    return RelationalResult(
        text="" if program is None else program.text,
        found=program is not None,
        evidence=evidence,
        alternatives=tuple(others),
        unexplained=missing,
        wrong=wrong,
        accuracy=None if program is None else 1 - (len(missing) + len(wrong)) / max(1, labels),
        bits=found.choices[0].bits if found.choices else 0.0,
        notes=tuple(notes),
        reason=_why(problem, found, options, noise)
        if found.choices
        else _why_nothing(problem, found, options, noise, timed_out=budget.timed_out),
        history=history,
        method=method,
        noise=noise or 0.0,
        seconds=budget.seconds,
        timed_out=budget.timed_out,
        problem=problem,
        clauses=program,
    )


def _why(problem: Problem, found: Found, options: SearchOptions, noise: float | None) -> str:
    if noise is not None:
        return "the shortest description of rules and wrong labels that was found"
    if found.shortest:
        return f"no set of {_language(problem, options, found.literals)} has a shorter description"
    return "the shortest description that was found"


def _why_nothing(
    problem: Problem,
    found: Found,
    options: SearchOptions,
    noise: float | None,
    *,
    timed_out: bool,
) -> str:
    if noise is not None:
        return "no rules were found that describe the labels in fewer bits than a list of the positive examples"
    why = "no set of rules was found that derives every positive example and no negative one"
    if found.excluded:
        language = _language(problem, options, found.excluded)
        why = f"no set of {language} derives every positive example and no negative one"
        if found.unexplained:
            count = quantity(len(found.unexplained), "positive example")
            why = f"no rule without a negative example derives {count}: {why}"
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


def _alternatives(
    problem: Problem, found: Found, most: int, budget: Budget
) -> tuple[list[Alternative], int]:
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
            tuple(clause_text(c, program.names) for c in one.variants[:_MOST_VARIANTS]),
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
