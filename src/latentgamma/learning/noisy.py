"""Search with noise: the bodies of one head, where some labels are wrong.

The algorithm is greedy forward selection with replacement. Bodies are added one at a time, the one
that raises the objective most first; then single bodies are shortened, lengthened or replaced while
that raises it, and bodies that have become redundant are removed. The objective is that of
`bodies`: the gain in the log-likelihood of the labels over the base rate, less the description
lengths of the bodies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.learning.bodies import (
    Body,
    HeadRules,
    HeadTask,
    base_rate,
    covered_by_any,
    description_length,
)
from latentgamma.program.facts import Mask

Array: TypeAlias = npt.NDArray[np.float32]
Nats: TypeAlias = npt.NDArray[np.float64]
#: The worth of a body, and the body.
Option: TypeAlias = tuple[float, Body]

#: Bodies that may be added or changed while one head is searched.
_MOST_CHANGES = 500
#: Probabilities are kept this far from 0 and 1.
_LEAST_DOUBT = 1e-3
#: Proposed bodies of which every version with one other atom is tried.
_MOST_COMPLETED = 16
#: Multiplications that the scores of all triples of atoms may take.
_TRIPLE_COST = 3e8
#: Bodies that are carried from one size to the next.
_BEAM = 16
#: Nats by which an alternative may be worth less than the body that was chosen.
_TIE = 3.0
#: Labels of atoms that were true before, below which the noise is not estimated.
_FEWEST_LABELS = 50


def find_likely_rules(
    task: HeadTask, noise: float, proposals: Sequence[Body] | None = None
) -> HeadRules:
    """Return the bodies under which labels that are wrong with probability `noise` are likeliest.

    Args:
        task: the examples of the head.
        noise: the fraction of wrong labels.
        proposals: the only bodies to choose from, apart from versions of the best of them with
            one other atom; by default every short body.
    """
    search = _GreedySearch(task, noise, proposals)
    for _ in range(_MOST_CHANGES):
        if not (search.add() or search.improve_one()):
            break
        search.remove_redundant()
    if search.follows_always():
        return HeadRules([*task.known, ()])
    return HeadRules(search.bodies, search.alternatives())


class _GreedySearch:
    """The bodies so far, each worth more than its description."""

    def __init__(self, task: HeadTask, noise: float, proposals: Sequence[Body] | None) -> None:
        self.task, self.known = task, task.known
        self.noise = min(max(noise, 1e-4), 0.45)
        if task.probability is None:
            self.true, self.prior = np.where(task.positive, 1 - self.noise, self.noise), 0.5
        else:
            probability = task.probability.astype(np.float64)
            self.true = np.clip(probability, _LEAST_DOUBT, 1 - _LEAST_DOUBT)
            self.prior = float(np.average(self.true, weights=task.counts))
        self.bodies: list[Body] = [*task.known]
        self.proposals = proposals
        self.columns = np.flatnonzero(task.allowed & task.states.any(0))
        self.X = task.states[:, self.columns].astype(np.float32)  # (n, m)
        self.tried: set[Body] = set()

    # ---- The objective

    def length(self, size: int) -> float:
        return description_length(size, len(self.columns))

    def covered_by_others(self, body: Body | None = None) -> Mask:
        others = [other for other in self.bodies if other != body]
        return covered_by_any(self.task.states, others)

    def gains(self, open_rows: Mask, *, by_size: bool = True) -> Nats:
        """Return what covering each row adds to the log-likelihood; 0 where it is covered. (n,).

        It is measured against the base rate of states of about the same size, or of all states.
        """
        true, counts = self.true, self.task.counts
        rate = np.full(len(true), 0.5)
        rows = self.task.states[open_rows]
        if not by_size:
            rows = np.zeros_like(rows)
        if self.task.probability is None:
            seen = base_rate(rows, self.task.positive[open_rows], counts[open_rows], self.noise)
            rate[open_rows] = np.clip((seen - self.noise) / (1 - 2 * self.noise), 0, 1)
        else:
            rate[open_rows] = base_rate(rows, true[open_rows], counts[open_rows], self.noise)
        # How much likelier the label is if the head follows than if it does so at that rate.
        follows, fails = true / self.prior, (1 - true) / (1 - self.prior)
        gain = np.log(follows / (rate * follows + (1 - rate) * fails))
        return np.where(open_rows, gain * counts, 0.0)

    def worth(self, gains: Nats, body: Body) -> float:
        return float(gains[self.task.covered(body)].sum()) - self.length(len(body))

    def log_likelihood(self, bodies: Sequence[Body]) -> float:
        """Return the log-likelihood of the labels under these bodies, less their description."""
        inside = covered_by_any(self.task.states, bodies)
        fits = np.where(inside, self.true, 1 - self.true)
        new = [body for body in bodies if body not in self.known]
        return float(self.task.counts @ np.log(fits)) - sum(self.length(len(b)) for b in new)

    def follows_always(self) -> bool:
        """Return whether the head follows from nothing, as far as wrong labels allow.

        No gain over the base rate can show that, so the likelihoods are compared.
        """
        n, wrong = self.task.counts.sum(), self.task.counts[~self.task.positive].sum()
        if not self.task.positive.any() or () in self.bodies:
            return False
        if wrong > self.noise * n + 3 * math.sqrt(self.noise * n):
            return False
        return self.log_likelihood([*self.known, ()]) > self.log_likelihood(self.bodies)

    # ---- The moves

    def add(self) -> bool:
        """Add the body worth most, if any is worth something; return whether one was added.

        Where the size of a state says all that a body could say, as on a chain, no body gains over
        the base rate of that size; then the base rate of all states decides.
        """
        return self._add(by_size=True) or self._add(by_size=False)

    def _add(self, *, by_size: bool) -> bool:
        gains = self.gains(~self.covered_by_others(), by_size=by_size)
        if not gains.any():
            return False
        if self.proposals is None:
            options = self._best_short(gains)
        else:
            options = [
                (self.worth(gains, body), body)
                for body in self.proposals
                if body not in self.bodies and body not in self.tried
            ]
            changed = self._complete(gains, sorted(options)[-_MOST_COMPLETED:])
            options += [option for option in changed if option[1] not in self.tried]
        worth, body = max(options, default=(0.0, ()))
        if worth <= 0 or body in self.bodies or body in self.tried:
            return False
        self.bodies.append(body)
        self.tried.add(body)
        return True

    def improve_one(self) -> bool:
        """Shorten, lengthen or replace one body where that is worth it; return whether one was."""
        for body in self.learned():
            gains = self.gains(~self.covered_by_others(body))
            # A body comes in once, or two that are worth the same could take turns for ever.
            fresh = [option for option in self._changes(gains, body) if option[1] not in self.tried]
            worth, best = max(fresh, default=(-math.inf, ()))
            if worth > self.worth(gains, body) + 1e-6 and best not in self.bodies:
                self.bodies[self.bodies.index(body)] = best
                self.tried.add(best)
                return True
        return False

    def remove_redundant(self) -> None:
        """Remove bodies that are not worth their description beside the others."""
        for body in sorted(self.learned(), key=len, reverse=True):
            rest, mine = ~self.covered_by_others(body), self.task.covered(body)
            best = max(self.gains(rest, by_size=by_size)[mine].sum() for by_size in (True, False))
            if best <= self.length(len(body)):
                self.bodies.remove(body)

    def alternatives(self) -> dict[Body, list[Body]]:
        """Return for each body the changed ones that are worth almost as much, best first."""
        found = {}
        for body in self.learned():
            gains = self.gains(~self.covered_by_others(body))
            least = self.worth(gains, body) - _TIE
            options = {*self._changes(gains, body), *self._exchange(gains, body)}
            near = sorted((option for option in options if option[0] > least), reverse=True)
            others = [other for _, other in near if other not in self.bodies]
            if others:
                found[body] = list(dict.fromkeys(others))
        return found

    def learned(self) -> list[Body]:
        return [body for body in self.bodies if body not in self.known]

    # ---- Candidates

    def _changes(self, gains: Nats, body: Body) -> list[Option]:
        shorter = [tuple(x for x in body if x != i) for i in body]
        options = [(self.worth(gains, other), other) for other in shorter]
        if self.proposals is None:
            options += self._best_short(gains) + self._lengthen(gains, body)
        return options

    def _best_short(self, gains: Nats) -> list[Option]:
        """Return the best body of each small size, and longer ones grown from them."""
        rows = np.flatnonzero(gains)
        X, w = self.X[rows], gains[rows].astype(np.float32)
        options: list[Option] = [(float(w.sum()) - self.length(0), ())]
        if self.task.max_body < 1 or not len(self.columns):
            return options
        singles = X.T @ w
        i = int(singles.argmax())
        options.append((float(singles[i]) - self.length(1), (int(self.columns[i]),)))
        if self.task.max_body < 2 or len(self.columns) < 2:
            return options
        pairs = X.T @ (w[:, None] * X)  # (m, m)
        np.fill_diagonal(pairs, -np.inf)
        i, j = (int(x) for x in np.unravel_index(int(pairs.argmax()), pairs.shape))
        options.append((float(pairs[i, j]) - self.length(2), self._atoms((i, j))))
        cheap = len(rows) * len(self.columns) ** 3 <= _TRIPLE_COST
        if self.task.max_body > 2 and (cheap or max(options)[0] <= 0):
            options += self._longer(X, w, pairs, every=cheap)
        return options

    def _longer(self, X: Array, w: Array, pairs: Array, *, every: bool) -> list[Option]:
        """Return bodies of three atoms and more: all of three where that is cheap, else grown."""
        m = pairs.shape[0]
        if every:
            grown = _triples(X, w)
        else:
            top = np.argpartition(pairs.ravel(), -min(32, pairs.size))[-32:]
            grown = _extend(X, w, {tuple(sorted(divmod(int(place), m))) for place in top})
        options: list[Option] = []
        for size in range(3, min(self.task.max_body, m) + 1):
            if not grown:
                break
            grown = sorted(grown, reverse=True)[:_BEAM]
            gain, best = grown[0]
            options.append((gain - self.length(size), self._atoms(best)))
            if size > 3 and options[-1][0] <= options[-2][0]:
                break
            grown = _extend(X, w, {body for _, body in grown})
        return options

    def _complete(self, gains: Nats, best: Sequence[Option]) -> list[Option]:
        """Return bodies with one atom removed, and the best other one put in its place."""
        cores = {tuple(x for x in body if x != i) for _, body in best for i in body} - {()}
        places = {tuple(np.searchsorted(self.columns, core).tolist()) for core in cores}
        rows = np.flatnonzero(gains)
        longer = _extend(self.X[rows], gains[rows].astype(np.float32), places)
        return [(gain - self.length(len(b)), self._atoms(b)) for gain, b in longer]

    def _exchange(self, gains: Nats, body: Body) -> list[Option]:
        """Return the body with any one of its atoms exchanged for any other atom."""
        places = np.searchsorted(self.columns, body).tolist()
        options: list[Option] = []
        for place in places:
            core = [c for c in places if c != place]
            inside = (self.X[:, core] > 0).all(1)
            gain = self.X[inside].T @ gains[inside]
            options += [
                (float(gain[c]) - self.length(len(body)), self._atoms((*core, c)))
                for c in range(len(self.columns))
                if c not in places
            ]
        return options

    def _lengthen(self, gains: Nats, body: Body) -> list[Option]:
        if len(body) >= min(self.task.max_body, len(self.columns)):
            return []
        places = tuple(np.searchsorted(self.columns, body).tolist())
        longer = _extend(self.X, gains.astype(np.float32), {places})
        return [(gain - self.length(len(b)), self._atoms(b)) for gain, b in longer]

    def _atoms(self, places: Body) -> Body:
        return tuple(sorted(int(self.columns[c]) for c in places))


def _triples(X: Array, w: Array) -> list[Option]:
    """Return for each column the best three columns of which it is the first."""
    found: list[Option] = []
    for i in range(X.shape[1] - 2):
        having = X[:, i] > 0
        inside = X[having][:, i + 1 :]
        both = inside.T @ (w[having, None] * inside)
        both[np.tril_indices(len(both))] = -np.inf
        j, k = (int(x) for x in np.unravel_index(int(both.argmax()), both.shape))
        found.append((float(both[j, k]), (i, i + 1 + j, i + 1 + k)))
    return found


def _extend(X: Array, w: Array, bodies: set[Body]) -> list[Option]:
    """Return each body with the column added that raises its gain most."""
    longer: dict[Body, float] = {}
    for body in bodies:
        inside = np.ones(len(X), np.bool_)
        for c in body:
            inside &= X[:, c] > 0
        more = X[inside].T @ w[inside]
        more[list(body)] = -np.inf
        c = int(more.argmax())
        if np.isfinite(more[c]):
            longer[tuple(sorted((*body, c)))] = float(more[c])
    return [(gain, body) for body, gain in longer.items()]


def estimate_noise(states: Mask, labels: npt.NDArray[Any]) -> float | None:
    """Return the fraction of false labels of atoms that were true before; None if too few.

    Rules never make an atom false, so each of these labels is wrong.
    """
    must = states & (labels >= 0)
    seen = int(must.sum())
    return float((must & (labels == 0)).sum() / seen) if seen >= _FEWEST_LABELS else None
