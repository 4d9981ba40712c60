"""What the data say about one head, and what a search finds for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._program.facts import Mask

#: The atoms of a body, as sorted indices.
Body: TypeAlias = tuple[int, ...]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HeadTask:
    """The examples of one head: states in which it was false before, and whether it followed."""

    head: int
    states: Mask  # (n, M)
    positive: Mask  # (n,)
    counts: Counts  # (n,)
    allowed: Mask  # (M,) the atoms that a body may use
    max_body: int
    #: The probability that the head followed, where labels are probabilities. (n,)
    probability: npt.NDArray[np.float32] | None = None

    @property
    def positives(self) -> Mask:
        """The states in which the head followed. (p, M)."""
        return self.states[self.positive]

    @property
    def negatives(self) -> Mask:
        """The states in which it did not. (n - p, M)."""
        return self.states[~self.positive]

    def covered(self, body: Iterable[int]) -> Mask:
        """Return which states contain the body. (n,)."""
        return covered(self.states, body)

    def counterexamples(self, body: Iterable[int]) -> int:
        """Return the number of negative examples that contain the body."""
        return int(self.counts[self.covered(body) & ~self.positive].sum())


@dataclass
class HeadRules:
    """The bodies found for one head.

    Attributes:
        bodies: the bodies, known ones first.
        alternatives: for each body, others that explain the examples as well.
        unexplained: positive examples that no body explains.
        too_long: those of them that a body of more than `max_body` atoms would explain.
        unproved: bodies for which the search for shorter ones reached its limit.
    """

    bodies: list[Body]
    alternatives: dict[Body, list[Body]] = field(default_factory=dict)
    unexplained: int = 0
    too_long: int = 0
    unproved: int = 0


def covered(states: Mask, body: Iterable[int]) -> Mask:
    """Return which rows contain the body. (n,)."""
    columns = list(body)
    if not columns:
        return np.ones(len(states), np.bool_)
    inside: Mask = np.logical_and.reduce([states[:, i] for i in columns])
    return inside


def coverage(states: Mask, bodies: Sequence[Body]) -> Mask:
    """Return which rows contain each body. (bodies, n)."""
    found = np.zeros((len(bodies), len(states)), np.bool_)
    for row, body in zip(found, bodies, strict=True):
        row[:] = covered(states, body)
    return found


def covered_by_any(states: Mask, bodies: Sequence[Body]) -> Mask:
    """Return which rows contain at least one body. (n,)."""
    inside = np.zeros(len(states), np.bool_)
    for body in bodies:
        inside |= covered(states, body)
    return inside


def distinct(rows: Mask) -> tuple[Counts, Counts]:
    """Return the index of the first copy of each different row, and the number of copies.

    >>> first, counts = distinct(np.array([[True, False], [False, False], [True, False]]))
    >>> sorted(zip(first.tolist(), counts.tolist()))
    [(0, 2), (1, 1)]
    """
    words = packed_words(rows)
    # Comparing whole words, or bytes in a row, is many times faster than one column after another.
    keys = words[:, 0] if words.shape[1] == 1 else words.view(f"V{words.strides[0]}")[:, 0]
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return first, counts


def packed_words(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return Boolean rows as machine words. (n, words)."""
    packed = np.packbits(rows, axis=1)
    words = np.zeros((len(rows), max(1, -(-packed.shape[1] // 8))), np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    return words


# ------------------------------------------------------------------------ the objective
#
# A set of bodies is worth what it adds to the log-likelihood of the labels, in nats, less the
# length of its description. Every search of this package maximises that sum greedily.


def description_length(size: int, atoms: int) -> float:
    """Return the nats that a body takes: log(atoms + 1) for each of its atoms, and one for its end.

    >>> description_length(0, 9), description_length(2, 9) == 1 + 2 * math.log(10)
    (1.0, True)
    """
    return size * math.log(atoms + 1) + 1.0


def base_rate(
    states: Mask, positive: npt.NDArray[Any], counts: Counts, prior: float = 0.5
) -> npt.NDArray[np.float64]:
    """Return how often the head follows in states of about the same size. (n,).

    A large state contains many bodies, so that the head follows there says little about any one.
    """
    sizes = states.sum(1)
    edges = np.quantile(sizes, np.linspace(0, 1, 9)[1:-1]) if len(sizes) else np.zeros(0)
    edges = np.unique(edges)
    bins = np.searchsorted(edges, sizes, side="right")
    seen = np.bincount(bins, counts, len(edges) + 1)
    followed = np.bincount(bins, counts * positive, len(edges) + 1)
    return np.asarray(((followed + prior) / (seen + 1.0))[bins])


def surprisal(positives: Mask, weights: Counts, task: HeadTask) -> npt.NDArray[np.float64]:
    """Return the nats gained by explaining each of these positive states of a task. (p,).

    That is −log of the base rate, with all negative states of the task beside them.
    """
    negatives = task.negatives
    states = np.concatenate([positives, negatives])
    follows = np.arange(len(states)) < len(positives)
    counts = np.concatenate([weights, task.counts[~task.positive]])
    return np.asarray(weights * -np.log(base_rate(states, follows, counts)[follows]), np.float64)
