"""Smallest bodies: the smallest sets of atoms that every counterexample lacks one of.

Given a positive state, a body is any subset of it that lies inside no negative state: a set of
columns that hits every row of `lacks`, where a row says which of the atoms a negative state lacks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentgamma._learning.head_task import Body, distinct
from latentgamma._program.facts import Mask

#: Partial sets that one search may visit; fewer where each visit takes long.
_MOST_VISITED = 20_000
_FEWEST_VISITED = 200
#: Cells of `lacks` that all visits of a search may read together.
_MOST_CELLS = 4e8
#: Equally small sets that a search returns.
_MOST_RETURNED = 2_000


class SmallestBodies(NamedTuple):
    """The result of a search for the smallest bodies.

    `proved` says that no smaller one exists; if it is false the search reached its limit, and
    `bodies` holds at most one, from which no atom can be removed. `shortest` is the size that was
    found, also where it is above the limit on the size.
    """

    bodies: list[Body]
    proved: bool
    shortest: int | None


def smallest_bodies(lacks: Mask, max_size: int, visits: int | None = None) -> SmallestBodies:
    """Return all smallest sets of at most `max_size` columns that hit every row.

    Args:
        lacks: which columns hit each row. (n, m)
        max_size: the largest set.
        visits: partial sets that the search may visit; by default as many as take seconds.

    >>> lacks = np.array([[True, False, True], [False, True, True]])
    >>> smallest_bodies(lacks, 3).bodies
    [(2,)]
    """
    if not len(lacks):
        return SmallestBodies([()], proved=True, shortest=0)
    if not lacks.any(1).all():
        return SmallestBodies([], proved=True, shortest=None)
    # Rows with few columns decide, and each different row is needed once.
    lacks = lacks[distinct(lacks)[0]]
    lacks = lacks[np.argsort(lacks.sum(1), kind="stable")]
    if visits is None:
        visits = int(min(max(_MOST_CELLS / lacks.size, _FEWEST_VISITED), _MOST_VISITED))
    search = _HittingSetSearch(visits)
    for size in range(1, min(max_size, lacks.shape[1]) + 1):
        bodies = sorted({tuple(sorted(body)) for body in search.sets(lacks, size)})
        if bodies:
            return SmallestBodies(bodies, proved=True, shortest=size)
        if search.visits_left <= 0:
            body = irreducible_body(lacks)
            return SmallestBodies([body] if len(body) <= max_size else [], False, len(body))
    return SmallestBodies([], proved=True, shortest=len(irreducible_body(lacks)))


class _HittingSetSearch:
    """Depth-first search for sets of a given size, with a limit on the visited partial sets."""

    def __init__(self, visits: int) -> None:
        self.visits_left = visits

    def sets(self, lacks: Mask, size: int) -> list[Body]:
        self.visits_left -= 1
        if size == 1:
            return [(int(i),) for i in np.flatnonzero(lacks.all(0))]
        if size == 2:
            missed = (~lacks).astype(np.float32)
            neither = missed.T @ missed  # the number of rows that a pair does not hit
            rows, columns = np.nonzero(np.triu(neither == 0, 1))
            pairs: list[Body] = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]
            return pairs[:_MOST_RETURNED]
        found: list[Body] = []
        for i in np.flatnonzero(lacks[lacks.sum(1).argmin()]).tolist():
            rest = lacks[~lacks[:, i]]
            if not len(rest):
                continue  # a smaller set would have been found before
            found += [(i, *more) for more in self.sets(rest, size - 1)]
            if self.visits_left <= 0 or len(found) > _MOST_RETURNED:
                break
        return found


def irreducible_body(lacks: Mask) -> Body:
    """Return one set that hits every row and from which no column can be removed.

    Columns are added greedily, then removed where the others suffice.
    """
    chosen: list[int] = []
    rest = lacks
    while len(rest):
        best = int(rest.sum(0).argmax())
        chosen.append(best)
        rest = rest[~rest[:, best]]
    for i in list(chosen):
        others = [c for c in chosen if c != i]
        if others and lacks[:, others].any(1).all():
            chosen = others
    return tuple(sorted(chosen))
