"""Points scores: conditions with whole-number points, whose sum says how likely the class is.

The score is a logistic regression on a few literals, whose weights are rounded to whole numbers of
points. It is found by forward selection, and cross-validation says how many terms it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma.learning.lists import LEAST_COVER, READABLE
from latentgamma.learning.literals import (
    Body,
    Floats,
    Literals,
    Rows,
    body_bits,
    flat_top,
    grouped,
    threshold_gains,
)

if TYPE_CHECKING:
    from latentgamma.learning.columns import Refiner

_LOG_2 = math.log(2.0)
#: Terms that are fitted before one of them is added.
_TRIED = 3
#: Rounds in which every threshold is moved, and the bits by which it must do better then: there are
#: about five times as many thresholds as in the search.
_MOVES = 3
_PAYS = math.log2(5)
#: The nats that a unit of a weight costs, which makes up for the choice of the best terms. The price is rounded
#: off below the second number, so that its slope has no jump.
_WEIGHT_PRICE, _ROUNDED_OFF = 2.5, 0.25
#: What a bit of a term counts. Few terms can do harm in a sum, so less than 1 predicts better.
_PRICE = 0.25
#: The most points of a term, and what a bit of them counts.
_MOST_POINTS, _POINT_PRICE = 10, 0.5


@dataclass(frozen=True)
class Score:
    """A points score.

    Attributes:
        terms: the literals of each term.
        points: the points of each term, not 0.
        unit: the log-odds of one point.
        base: the log-odds of a row without points.
    """

    terms: tuple[Body, ...]
    points: tuple[int, ...]
    unit: float
    base: float

    def log_odds(self, points: Floats) -> Floats:
        """Return the log-odds of rows with this many points."""
        return self.base + self.unit * points

    def totals(self) -> list[int]:
        """Return the sums that points can have, the lowest first."""
        sums = {0}
        for points in self.points:
            sums |= {total + points for total in sums}
        return sorted(sums)


class PointsSearch:
    """The search for a points score.

    Args:
        literals: the table.
        weights: the weight of each row as a positive and as a negative. (n, 2)
    """

    def __init__(self, literals: Literals, weights: Floats) -> None:
        self.literals, self.weights = literals, weights
        self.all = weights.sum(1)
        self.number_bits = 0.5 * math.log2(max(self.all.sum(), 2.0))

    def bits(self, term: Body) -> float:
        """Return the description length of a term, with its weight."""
        return _PRICE * body_bits(list(map(self.literals.cost, term))) + self.number_bits

    def path(self, most: int) -> list[list[Body]]:
        """Return the terms of scores with one term, two terms and so on, each with one term more."""
        found: list[Body] = []
        cells = np.zeros(self.literals.n, np.int64)
        weights, _ = self._fit(cells, found)
        scores: list[list[Body]] = []
        while len(found) < most:
            tried = []
            for term in self._candidates(cells, weights, found):
                larger = cells | self.literals.covered(term).astype(np.int64) << len(found)
                tried.append((term, larger, *self._fit(larger, [*found, term])))
            if not tried:
                break
            term, cells, weights, _ = min(tried, key=lambda one: one[3])
            found.append(term)
            scores.append(list(found))
        return scores

    def finish(self, terms: list[Body]) -> list[Body]:
        """Return terms with the best thresholds, and positive points where that can be."""
        return self._drop_nested(self._move_thresholds(self._make_positive(terms)))

    def _drop_nested(self, terms: list[Body]) -> list[Body]:
        """Return the terms with one threshold of a column in place of two that say little more.

        The search has few thresholds, so two of them can stand for one in between.
        """
        names = self.literals.names
        columns = [names[term[0]].column for term in terms]
        for i, column in enumerate(columns):
            if columns.count(column) > 1:
                rest = self._move_thresholds(terms[:i] + terms[i + 1 :])
                if self._label_bits(rest) < self._label_bits(terms) + _PAYS:
                    return self._drop_nested(rest)
        return terms

    def probability(self, terms: Sequence[Body]) -> Floats:
        """Return the probability of each row by the weights of these terms, before they are points."""
        cells = self.cells(terms)
        weights, _ = self._fit(cells, terms)
        return sigmoid(_patterns(len(terms)) @ weights[1:] + weights[0])[cells]

    def _make_positive(self, terms: list[Body]) -> list[Body]:
        """Return the terms with the opposite literal where points are negative and there is one."""
        weights, _ = self._fit(self.cells(terms), terms)
        for i, (literal,) in enumerate(terms):
            opposite = self._opposite(literal) if weights[i + 1] < 0 else None
            if opposite is not None and (opposite,) not in terms:
                terms[i] = (opposite,)
        return terms

    def _opposite(self, literal: int) -> int | None:
        """Return the literal that holds in exactly the other rows; None if there is none."""
        lits = self.literals
        if literal in lits.extra:
            return None
        column = lits.column[literal]
        used = np.bincount(lits.codes[:, column], minlength=lits.inside.shape[1]) > 0
        for j in np.flatnonzero(lits.column == column).tolist():
            if (lits.inside[j, used] != lits.inside[literal, used]).all():
                return j
        return None

    def _move_thresholds(self, terms: list[Body]) -> list[Body]:
        """Return the terms with each threshold where the labels are likeliest, given all others."""
        finer = self.literals.finer
        for _ in range(_MOVES if finer is not None else 0):
            before = list(terms)
            for i, term in enumerate(terms):
                if len(term) == 1 and finer is not None:
                    terms[i] = (self._best_threshold(finer, terms, i),)
            if terms == before:
                break
        return terms

    def _best_threshold(self, finer: Refiner, terms: Sequence[Body], i: int) -> int:
        """Return the literal of term i with its best threshold."""
        lits, (literal,) = self.literals, terms[i]
        if (ordered := finer.order(literal)) is None:
            return literal
        values, known, upper = ordered
        weights, _ = self._fit(self.cells(terms), terms)
        without = np.full(lits.n, weights[0])
        for j, term in enumerate(terms):
            without += weights[j + 1] * lits.covered(term) * (j != i)
        rows = np.flatnonzero(known & (self.all > 0))
        z, a = without[rows], float(weights[i + 1])
        gains = self.weights[rows, 0] * a - self.all[rows] * (
            np.logaddexp(0.0, z + a) - np.logaddexp(0.0, z)
        )
        different, inside = threshold_gains(values[rows], gains / _LOG_2, upper)
        cover = threshold_gains(values[rows], self.all[rows], upper)[1]
        inside[(cover < LEAST_COVER) | (cover > self.all.sum() - LEAST_COVER)] = -np.inf
        threshold: Any = lits.names[literal].condition.value  # type: ignore[union-attr]
        now = int(np.searchsorted(different, threshold))
        if inside[now] >= inside.max() - _PAYS:
            return literal
        first, last = flat_top(inside, READABLE)
        first, last = max(first, 1), min(last, len(different) - 1)
        new, held = finer.move(literal, different[first - 1], different[last])
        number = lits.add(new, held, lits.cost(literal))
        return literal if (number,) in terms else number

    def cells(self, terms: Sequence[Body]) -> Rows:
        """Return for each row which terms hold, as the bits of a number. (n,)."""
        cells = np.zeros(self.literals.n, np.int64)
        for i, term in enumerate(terms):
            cells |= self.literals.covered(term).astype(np.int64) << i
        return cells

    def _candidates(self, cells: Rows, weights: Floats, found: Sequence[Body]) -> list[Body]:
        """Return the few literals that promise most, by the score test."""
        p = sigmoid(_patterns(len(found)) @ weights[1:] + weights[0])[cells]
        slopes = np.stack([self.weights[:, 0] - self.all * p, self.all * p * (1 - p)], axis=1)
        G, H = self.literals.sums([np.flatnonzero(self.all > 0)], slopes)[0].T
        gains = _score_test(G, H) - _PRICE * (body_bits([0.0]) + self.literals.bits)
        scored = [*zip(gains.tolist(), range(self.literals.m), strict=True), *self._sets(G, H)]
        best = ((j,) for gain, j in sorted(scored, key=lambda one: -one[0]) if gain > 0)
        most = self.all.sum() - LEAST_COVER
        usable = (
            term for term in best
            if term not in found and LEAST_COVER <= self.all[self.literals.covered(term)].sum() <= most
        )  # fmt: skip
        return list(islice(usable, _TRIED))

    def _sets(self, G: Floats, H: Floats) -> Iterator[tuple[float, int]]:
        """Yield for each column of categories the best set of values, after what it promises.

        Sets of the values with the highest or the lowest slopes are enough.

        Args:
            G: the slope of the log-likelihood by the weight of each literal. (m,)
            H: minus its second derivative. (m,)
        """
        lits = self.literals
        for values in lits.categories:
            order = values[np.argsort(-G[values] / (H[values] + 0.25), kind="stable")]
            sizes = np.arange(2, len(values))
            bits = np.array([math.log2(math.comb(len(values), k)) for k in sizes.tolist()])
            bits += lits.bits[values[0]]
            for chosen in (order, order[::-1]):
                inside = (np.cumsum(one[chosen])[1:-1] for one in (G, H))
                gains = _score_test(*inside) - _PRICE * (body_bits([0.0]) + bits)
                best = int(gains.argmax())
                if gains[best] > 0:
                    literals = chosen[: sizes[best]].tolist()
                    yield float(gains[best]), lits.add_set(literals, float(bits[best]))

    # ---- Logistic regression; rows in which the same terms hold count together

    def _counts(self, cells: Rows, k: int) -> Floats:
        return grouped(cells, self.weights, 1 << k)

    def _fit(self, cells: Rows, terms: Sequence[Body]) -> tuple[Floats, float]:
        """Return the weights, that of the base first, and the description length."""
        k = len(terms)
        weights, nats = logistic(_patterns(k), self._counts(cells, k))
        return weights, nats / _LOG_2 + sum(map(self.bits, terms))

    def _label_bits(self, terms: Sequence[Body]) -> float:
        return self._fit(self.cells(terms), terms)[1] - sum(map(self.bits, terms))

    def score(self, terms: Sequence[Body]) -> Score | None:
        """Return the terms with the smallest whole points that describe the labels best, or None."""
        if not terms:
            return None
        k, counts = len(terms), self._counts(self.cells(terms), len(terms))
        weights = logistic(_patterns(k), counts)[0][1:]
        best: tuple[float, Score] | None = None
        largest = max(np.abs(weights).max(initial=0.0), 1e-9)
        seen = set()
        for most in np.arange(0.6, _MOST_POINTS + 0.5, 0.2):
            points = np.rint(weights * (most / largest)).astype(np.int64)
            points //= math.gcd(*points.tolist()) or 1
            if points.tobytes() in seen:
                continue
            seen.add(points.tobytes())
            total = (_patterns(k) @ points)[:, None]
            (base, unit), nats = logistic(
                total, counts, _WEIGHT_PRICE * float(np.abs(points).sum())
            )
            kept = np.flatnonzero(points)
            largest_points = max(np.abs(points).max(initial=0), 1)
            bits = nats / _LOG_2 + sum(self.bits(terms[i]) for i in kept.tolist())
            bits += _POINT_PRICE * len(kept) * math.log2(2 * largest_points)
            if unit > 0 and (best is None or bits < best[0] - 1e-9):
                chosen = tuple(terms[i] for i in kept.tolist())
                given = tuple(points[kept].tolist())
                best = float(bits), Score(chosen, given, float(unit), float(base))
        return best[1] if best is not None else None


def _patterns(k: int) -> Floats:
    """Return the bits of each number below 2^k, the lowest first. (2^k, k)."""
    return (np.arange(1 << k)[:, None] >> np.arange(k) & 1).astype(np.float64)


def _score_test(G: Floats, H: Floats) -> Floats:
    """Return the bits that a weight saves, by the slope at 0 and the curvature."""
    return G * G / (2 * (H + 0.25) * _LOG_2)


def sigmoid(log_odds: Floats) -> Floats:
    """Return the probabilities of log-odds."""
    return 0.5 * (1 + np.tanh(0.5 * log_odds))


def logistic(
    features: Floats, counts: Floats, price: float = _WEIGHT_PRICE
) -> tuple[Floats, float]:
    """Return the weights of a logistic regression, that of the base first, and its loss in nats.

    Weights have a Laplace prior, rounded off near 0.

    Args:
        features: one row per kind of example. (g, k)
        counts: how many of each kind are positive and negative. (g, 2)
        price: the nats that a unit of a weight costs.
    """
    seen = counts.sum(1) > 0
    X = np.hstack([np.ones((int(seen.sum()), 1)), features[seen]])
    positive, both = counts[seen, 0], counts[seen].sum(1)
    prices = np.full(X.shape[1], price)
    prices[0] = 1e-6

    def loss(w: Floats) -> float:
        z = X @ w
        nats = both @ np.logaddexp(0.0, z) - positive @ z
        return float(nats + prices @ np.hypot(w, _ROUNDED_OFF))

    w = np.zeros(X.shape[1])
    value = loss(w)
    for _ in range(100):
        p, size = sigmoid(X @ w), np.hypot(w, _ROUNDED_OFF)
        gradient = X.T @ (both * p - positive) + prices * w / size
        hessian = (X * (both * p * (1 - p))[:, None]).T @ X
        hessian += np.diag(prices * (_ROUNDED_OFF**2 / size**3) + 1e-9)
        step = np.linalg.solve(hessian, gradient)
        length, new = 1.0, loss(w - step)
        while new > value + 1e-12 * abs(value) and length > 1e-6:
            length /= 2
            new = loss(w - length * step)
        w, change, value = w - length * step, value - new, new
        if change < 1e-9 * (1 + abs(value)):
            break
    z = X @ w
    return w, float(both @ np.logaddexp(0.0, z) - positive @ z)
