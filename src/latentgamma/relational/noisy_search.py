"""The search where some labels are wrong: the program with the shortest description of the labels.

The description is that of the rules and of the labels that they get wrong. Sets of candidates are
scored by their least models, all pairs first, since a base case gains little without the recursive
rule, and improved by adding, dropping and exchanging one rule at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from latentgamma._learning.wording import quantity
from latentgamma.relational.budget import Budget, OutOfBudget
from latentgamma.relational.instances import Hypotheses
from latentgamma.relational.noisy_bodies import LabelCost, NoisyCandidates
from latentgamma.relational.problem import Problem
from latentgamma.relational.search import Found, Report, SearchOptions
from latentgamma.relational.selection import Choice

#: Sets of candidates that are improved, and rounds of it.
_KEPT_SETS = 12
_MOST_ROUNDS = 12
#: Bits for each invented predicate above the limit.
_EXTRA_BITS = 1e6
#: Alternatives may be longer by so many bits.
NOISY_SLACK = 8.0


class WrongLabelCost(Protocol):
    """The description length of wrong labels."""

    def bits(self, wrong: np.ndarray) -> np.ndarray:
        """Return the bits for these numbers of wrong labels."""


def noisy_search(
    problem: Problem,
    options: SearchOptions,
    noise: float | None,
    budget: Budget,
    report: Report,
) -> tuple[Found, float]:
    """Return the program with the shortest description, and the share of labels it gets wrong."""
    labels = sum(problem.label_count(target) for target in problem.targets)
    cost = LabelCost(labels, noise)
    source = NoisyCandidates(problem, options, cost, budget)
    found = Found(relations=source.relations, definitions=source.definitions)
    definition_bits = {n: one.relation.bits for n, one in source.definitions.items()}
    wrong = 0
    for candidates in source.rounds():
        found.candidates, found.literals = candidates, source.literals
        hypotheses = Hypotheses(problem, candidates)
        scorer = SetScorer(hypotheses, cost, definition_bits, options.invent, budget)
        ranked = scorer.search()
        best_bits, best = ranked[0]
        wrong = scorer.wrong([best])[0]
        report(
            f"bodies of {quantity(source.literals, 'literal')}",
            len(candidates),
            1 - wrong / labels,
        )
        if best and best_bits < float(scorer.total([()])[0]):
            found.choices = [
                Choice(chosen, bits, False)
                for bits, chosen in ranked[: 4 * options.alternatives + 1]
                if bits <= best_bits + NOISY_SLACK and chosen
            ]
            return found, wrong / labels
    found.notes.append(
        "no program was found that describes the labels in fewer bits than a list of them"
    )
    return found, 0.0


class SetScorer:
    """The description lengths of sets of candidates."""

    def __init__(
        self,
        hypotheses: Hypotheses,
        cost: WrongLabelCost,
        definitions: Mapping[int, float],
        most_invented: int,
        budget: Budget,
    ) -> None:
        self._hypotheses, self._cost, self._budget = hypotheses, cost, budget
        self._definitions, self._most_invented = definitions, most_invented
        self._rules = np.array([one.bits for one in hypotheses.candidates])
        self._negative = np.setdiff1d(hypotheses.negative, hypotheses.given)
        self._known: dict[tuple[int, ...], tuple[float, int]] = {}

    def wrong(self, sets: Sequence[tuple[int, ...]]) -> list[int]:
        """Return how many labels each set gets wrong."""
        self.total(sets)
        return [self._known[chosen][1] for chosen in sets]

    def total(self, sets: Sequence[tuple[int, ...]]) -> np.ndarray:
        """Return the description length of each set: its rules and its wrong labels."""
        new = [chosen for chosen in dict.fromkeys(sets) if chosen not in self._known]
        step = max(64, 20_000_000 // max(1, self._hypotheses.program.M))
        for start in range(0, len(new), step):
            part = new[start : start + step]
            models = self._hypotheses.models(part)
            missed = (~models[:, self._hypotheses.positive]).sum(axis=1)
            wrong = missed + models[:, self._negative].sum(axis=1)
            bits = self._cost.bits(wrong)
            for chosen, label_bits, errors in zip(part, bits, wrong, strict=True):
                rules = float(self._rules[list(chosen)].sum()) + self._invented_bits(chosen)
                self._known[chosen] = (rules + float(label_bits), int(errors))
        return np.array([self._known[chosen][0] for chosen in sets])

    def _invented_bits(self, chosen: tuple[int, ...]) -> float:
        """Return the length of the definitions that a set uses; more than allowed cost much."""
        if not self._definitions:
            return 0.0
        used = {d for n in chosen for d in self._hypotheses.candidates[n].definitions}
        extra = max(0, len(used) - self._most_invented)
        return sum(self._definitions[d] for d in used) + _EXTRA_BITS * extra

    def search(self) -> list[tuple[float, tuple[int, ...]]]:
        """Return the sets of candidates that were scored, the shortest descriptions first."""
        count = len(self._rules)
        self.total([()])
        try:
            self._score([(n,) for n in range(count)])
            self._score(list(itertools.combinations(range(count), 2)))
            beam = self.ranked(_KEPT_SETS)
            for _ in range(_MOST_ROUNDS):
                self._score([move for _, chosen in beam for move in _moves(chosen, count)])
                better = self.ranked(_KEPT_SETS)
                if better == beam:
                    break
                beam = better
        except OutOfBudget:
            pass
        return self.ranked(100)

    def _score(self, sets: Sequence[tuple[int, ...]]) -> None:
        for start in range(0, len(sets), 512):
            self._budget.spend(self._hypotheses.program.R)
            self.total(sets[start : start + 512])

    def ranked(self, most: int) -> list[tuple[float, tuple[int, ...]]]:
        """Return the sets that were scored, the shortest descriptions first."""
        ranked = sorted((bits, chosen) for chosen, (bits, _) in self._known.items())
        return ranked[:most]


def _moves(chosen: tuple[int, ...], count: int) -> Iterable[tuple[int, ...]]:
    """Return the sets with one candidate more, less, or exchanged."""
    inside = set(chosen)
    for drop in chosen:
        yield tuple(sorted(inside - {drop}))
    for add in range(count):
        if add in inside:
            continue
        yield tuple(sorted(inside | {add}))
        for drop in chosen:
            yield tuple(sorted((inside | {add}) - {drop}))
