"""Rules from closures of which a share of the entries, facts too, may be wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from latentgamma._learning.from_closures import ClosureExamples
from latentgamma._learning.head_task import HeadTask, covered, description_length
from latentgamma._learning.implications import (
    Implication,
    LearnHeads,
    ReportRules,
    as_program,
    remove_implied,
)
from latentgamma._logic.closures import closures
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program

_ROUNDS = 4
#: Examples that the likelihood of one rule is computed on.
_SAMPLE = 200


def rules_from_noisy_closures(
    examples: ClosureExamples,
    learn: LearnHeads,
    *,
    noise: float,
    probability: npt.NDArray[np.float32] | None = None,
    kept: Sequence[Implication] = (),
    report: ReportRules | None = None,
) -> list[Implication]:
    """Return the rules that are likeliest behind closures with wrong entries.

    States are never taken from the closures, where an atom and its consequences confirm each
    other, but from the facts and the rules so far: only a fact can be a cause. A fact that its
    closure lacks is dropped, since a true one is missing there as seldom as a label is wrong.

    Args:
        examples: the fact sets and their closures.
        learn: the learner of single heads; it must allow for noise.
        noise: the share of wrong entries.
        probability: the probability of each label. (N, M)
        kept: rules that stay whatever the data say.
        report: called before each round.
    """
    closed, known, allowed = examples.closed, examples.known, examples.allowed
    given = examples.facts & (closed | ~known)
    examples = ClosureExamples(given, closed, known, allowed, examples.max_body)
    rules: list[Implication] = list(kept)
    for _ in range(_ROUNDS):
        state = examples.derived(rules)
        if report is not None:
            report("rules", rules, float((state == closed)[known].mean() if known.any() else 1.0))
        tasks = []
        for h in range(examples.M):
            rows = ~state[:, h] & known[:, h]
            if not (allowed[h].any() and closed[rows, h].any()):
                continue
            tasks.append(
                HeadTask(
                    h,
                    state[rows],
                    closed[rows, h],
                    np.ones(int(rows.sum()), np.int64),
                    allowed[h],
                    examples.max_body,
                    None if probability is None else probability[rows, h],
                )
            )
        new = [
            (task.head, body)
            for task, found in zip(tasks, learn(tasks, 0.0), strict=True)
            for body in found.bodies
        ]
        before = set(rules)
        together = list(dict.fromkeys([*rules, *new]))
        rules = remove_implied(together, examples.derived(together), len(kept))
        rules = _not_refuted(rules, examples, noise=noise, kept=len(kept))
        if set(rules) == before:
            break
    return worth_keeping(rules, examples, noise=noise, kept=len(kept))


def worth_keeping(
    rules: Sequence[Implication], examples: ClosureExamples, *, noise: float, kept: int
) -> list[Implication]:
    """Return the rules that raise the likelihood of the examples by more than their description.

    One lost fact takes many atoms with it, each of which some rule could seem to explain. So all
    labels of an example are compared together, and one of its facts may be taken for wrong.
    """
    M, left = examples.M, list(rules)
    nats = math.log((1 - noise) / noise)  # what one wrong label costs
    for rule in sorted(rules[kept:], key=lambda rule: (-len(rule[1]), rule)):
        rest = [other for other in left if other != rule]
        changed = (examples.derived(left) != examples.derived(rest)).any(1)
        rows = np.flatnonzero(changed)
        some = rows[:: max(1, len(rows) // _SAMPLE)]
        sample = (examples.facts[some], examples.closed[some], examples.known[some])
        fewer = _errors(as_program(rest, M), *sample) - _errors(as_program(left, M), *sample)
        if nats * fewer * len(rows) <= description_length(len(rule[1]), M) * len(some):
            left = rest
    return left


def _errors(program: Program, facts: Mask, closed: Mask, known: Mask) -> int:
    """Return how many facts and labels must be wrong, with at most one wrong fact an example."""
    least = ((closures(program, facts) != closed) & known).sum(1)
    for i in range(facts.shape[1]):
        other = facts.copy()
        other[:, i] ^= True
        least = np.minimum(least, 1 + ((closures(program, other) != closed) & known).sum(1))
    return int(least.sum())


def _not_refuted(
    rules: Sequence[Implication], examples: ClosureExamples, *, noise: float, kept: int
) -> list[Implication]:
    """Return the rules that are wrong no more often than labels are, where they alone decide."""
    left = list(rules)
    for rule in rules[kept:]:
        rest = [other for other in left if other != rule]
        state = examples.derived(rest)
        rows = covered(state, rule[1]) & ~state[:, rule[0]] & examples.known[:, rule[0]]
        n, wrong = int(rows.sum()), int((rows & ~examples.closed[:, rule[0]]).sum())
        # A fact or a label of the body may be wrong as well, so twice the noise is allowed.
        most = 2 * noise * n + 3 * math.sqrt(2 * noise * n) + 1
        if n and (wrong > most or 2 * wrong >= n):
            left = rest
    return left
