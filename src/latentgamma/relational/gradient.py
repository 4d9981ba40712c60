"""The choice of rules by gradient descent on sampled sets of candidates.

Each candidate has a probability of being used. Sets of candidates are sampled, scored by their
least models, and the log-odds move along the score-function gradient of the expected description
length, with the mean of the other samples as the baseline. The candidates are those of the search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentgamma._learning.wording import quantity
from latentgamma.relational.budget import Budget
from latentgamma.relational.instances import Candidate, Hypotheses
from latentgamma.relational.noisy_bodies import LabelCost, NoisyCandidates
from latentgamma.relational.noisy_search import NOISY_SLACK, SetScorer
from latentgamma.relational.problem import Problem
from latentgamma.relational.search import (
    Found,
    Report,
    SearchOptions,
    covering_candidates,
    longest_alternative,
)
from latentgamma.relational.selection import Choice

#: Steps, sets sampled in each, and the step size of the log-odds.
_STEPS = 400
_SAMPLES = 96
_RATE = 0.25
#: Times to start again while no set explains the examples.
_STARTS = 8
#: The log-odds at the start, and their bounds.
_START, _BOUND = -2.0, 6.0
#: Bits for each wrong label where none is allowed.
_WRONG_BITS = 60.0
_MOST_CANDIDATES = 120
#: Sampled sets that may be alternatives.
_MOST_RANKED = 60


def gradient_search(
    problem: Problem,
    options: SearchOptions,
    noise: float | None,
    budget: Budget,
    report: Report,
) -> tuple[Found, float]:
    """Return the best set of candidates that was sampled, and the share of labels it gets wrong.

    Args:
        problem: the examples.
        options: the limits.
        noise: the share of wrong labels; 0 for none, None to estimate it.
        budget: of work and time.
        report: called after each stage.
    """
    found = Found(relations=list(problem.relations))
    labels = sum(problem.label_count(target) for target in problem.targets)
    if noise == 0:
        candidates, found = covering_candidates(problem, options, budget, report)
        candidates = _screened(candidates)
        if found.unexplained:
            return found, 0.0
        cost: LabelCost | _NoneWrong = _NoneWrong()
    else:
        cost = LabelCost(labels, noise)
        source = NoisyCandidates(problem, options, cost, budget)
        candidates = next(source.rounds(), [])
        found.relations, found.definitions = source.relations, source.definitions
    if not candidates:
        return found, 0.0
    hypotheses = Hypotheses(problem, candidates)
    bits = {number: one.relation.bits for number, one in found.definitions.items()}
    scorer = SetScorer(hypotheses, cost, bits, options.invent, budget)
    empty = float(scorer.total([()])[0])
    for start in range(_STARTS):
        best_bits, best = _train(scorer, len(candidates), [options.seed, start], budget)
        wrong = scorer.wrong([best])[0]
        explains = bool(best) and best_bits < empty and (noise != 0 or not wrong)
        if explains or budget.over:
            break
    report(f"sampled sets of {quantity(len(candidates), 'candidate')}", len(candidates), 1.0)
    found.candidates = list(candidates)
    if not explains:
        found.notes.append(
            "no sampled set of rules explains the examples; method 'search' compares all of them"
        )
        return found, 0.0
    found.choices = _choices(scorer, (best_bits, best), options.alternatives, clean=noise == 0)
    if options.alternatives:
        found.notes.append("alternatives are sought among the sets of rules that were sampled")
    return found, wrong / labels


def _choices(
    scorer: SetScorer, best: tuple[float, tuple[int, ...]], most: int, *, clean: bool
) -> list[Choice]:
    """Return the best set, and the next shortest of the sampled ones that do not contain another."""
    chosen = [best]
    limit = longest_alternative(best[0]) if clean else best[0] + NOISY_SLACK
    for bits, sampled in scorer.ranked(_MOST_RANKED):
        smaller = _needed_rules(scorer, (bits, sampled))
        wrong = clean and scorer.wrong([smaller[1]])[0] > 0
        contains = any(set(one) <= set(smaller[1]) for _, one in chosen)
        if not wrong and not contains and smaller[0] <= limit:
            chosen.append(smaller)
    chosen[1:] = sorted(chosen[1:])[:most]
    return [Choice(one, bits, False) for bits, one in chosen]


class _NoneWrong:
    """The cost of wrong labels where none is allowed."""

    def bits(self, wrong: np.ndarray) -> np.ndarray:
        """Return the bits for these numbers of wrong labels."""
        return wrong * _WRONG_BITS


def _screened(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that derive most for their length, and every short one."""
    worth = sorted(candidates, key=lambda one: one.bits / len(one.heads))
    short = sorted(candidates, key=lambda one: one.bits)
    half = _MOST_CANDIDATES // 2
    kept = {id(one): one for one in [*worth[:half], *short[:half]]}
    return list(kept.values())


def _train(
    scorer: SetScorer, count: int, seed: list[int], budget: Budget
) -> tuple[float, tuple[int, ...]]:
    """Return the best set that was sampled, with its description length."""
    rng = np.random.default_rng(seed if seed[1] else seed[0])
    odds = np.full(count, _START)
    speed, scale = np.zeros(count), np.zeros(count)
    best: tuple[float, tuple[int, ...]] = (float(scorer.total([()])[0]), ())
    for step in range(1, _STEPS + 1):
        if budget.over:
            break
        share = 1 / (1 + np.exp(-odds))
        used = rng.random((_SAMPLES, count)) < share
        sets = [tuple(np.flatnonzero(row).tolist()) for row in used]
        lengths = scorer.total(sets)
        at = int(np.argmin(lengths))
        best = min(best, (float(lengths[at]), sets[at]))
        # The baseline of each sample is the mean of the others.
        advantage = (lengths - lengths.mean()) * (_SAMPLES / (_SAMPLES - 1))
        gradient = (advantage[:, None] * (used - share)).mean(axis=0)
        speed = 0.9 * speed + 0.1 * gradient
        scale = 0.99 * scale + 0.01 * gradient**2
        size = np.sqrt(scale / (1 - 0.99**step)) + 1e-9
        odds = np.clip(odds - _RATE * speed / (1 - 0.9**step) / size, -_BOUND, _BOUND)
        sure = np.minimum(share, 1 - share).max() < 0.02
        if sure and step > 50:
            break
    return _needed_rules(scorer, best)


def _needed_rules(
    scorer: SetScorer, best: tuple[float, tuple[int, ...]]
) -> tuple[float, tuple[int, ...]]:
    """Return the set without the rules that it does not need."""
    for drop in best[1]:
        smaller = tuple(n for n in best[1] if n != drop)
        best = min(best, (float(scorer.total([smaller])[0]), smaller))
    return best
