"""Rules that agree with every example of a head, fewest literals first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma.learning.bodies import (
    Body,
    Counts,
    HeadRules,
    HeadTask,
    coverage,
    covered,
    covered_by_any,
    description_length,
    distinct,
    packed_words,
    surprisal,
)
from latentgamma.program.facts import Mask

# ---- Smallest bodies: the smallest sets of atoms that every counterexample lacks one of
# Given a positive state, a body is any subset of it that lies inside no negative state: a set of
# columns that hits every row of `lacks`, where a row says which of the atoms a negative state lacks.

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
    return tuple(sorted(needed_columns(lacks, chosen)))


def needed_columns(lacks: Mask, columns: Iterable[int]) -> list[int]:
    """Return columns that hit every row, without those that the others leave nothing to, in this order."""
    kept = list(columns)
    for column in list(kept):
        others = [c for c in kept if c != column]
        if others and lacks[:, others].any(1).all():
            kept = others
    return kept


# ---- Search without noise: the bodies of one head, where every label is right
# The rules of a head are a monotone formula: it holds where some body lies inside the state. Without
# noise a body lies inside no negative state. Bodies come from three sources. Pairs of atoms are all
# tried. Longer bodies are the smallest ones inside one positive state, as far as they can be
# enumerated. Where that body is not worth its description, or was not proved to be smallest, positive
# states are intersected as long as no negative state contains what they share; a long body that many
# examples have in common is found in this way, however many atoms the states have.

#: Multiplications that the scores of all pairs of atoms may take.
_PAIR_COST = 1e9
#: Positive states that one seed state is first intersected with, each the start of one descent.
_STARTS = 8
#: Intersections that one descent may test.
_MOST_TESTS = 400
#: Seeds in a row without a better shared body, after which only smallest bodies are searched.
_MOST_FAILURES = 8
#: Nats by which a body must be worth more than its description to be taken for certain.
_MARGIN = 3.0


def find_rules(task: HeadTask, least: float = 0.0) -> HeadRules:
    """Return bodies that explain every positive state and lie inside no negative one.

    Those that are not known explain at least `least` nats.
    """
    found = HeadRules([*task.known])
    cover = _Cover(task, least)
    if task.states.size * task.states.shape[1] <= _PAIR_COST:
        for body in _best_pairs(cover):
            found.bodies.append(body)
            cover.add(body)
    sizes = (cover.positives & task.allowed).sum(1)
    while cover.open.any():
        seed = int(np.flatnonzero(cover.open)[sizes[cover.open].argmin()])
        best, too_long = cover.best_body(seed)
        if best is None or cover.explains(best) < least:
            found.too_long += int(cover.weights[seed]) * too_long
            cover.open[seed] = False
            continue
        found.bodies.append(best)
        cover.add(best)
    found.bodies = drop_redundant(cover.positives, found.bodies, keep=len(task.known))
    return found


class _Cover:
    """The positive states of a task that no body explains yet."""

    def __init__(self, task: HeadTask, least: float) -> None:
        self.task, self.least = task, least
        #: Seeds in a row that shared no better body with others.
        self.failures = 0
        self.positives, self.negatives = task.positives, task.negatives
        self.weights: Counts = task.counts[task.positive]
        self.nats = surprisal(self.positives, self.weights, task)
        self.atoms = int((task.allowed & self.positives.any(0)).sum())
        self.open = ~covered_by_any(self.positives, task.known)

    def add(self, body: Body) -> None:
        self.open &= ~covered(self.positives, body)

    def explains(self, body: Body) -> float:
        """Return the nats that a body explains, of open states and of others."""
        return round(float(self.nats[covered(self.positives, body)].sum()), 6)

    def worth(self, body: Body) -> float:
        return self.explains(body) - description_length(len(body), self.atoms)

    def best_body(self, seed: int) -> tuple[Body | None, bool]:
        """Return the body inside one positive state that is worth most; else if all are too long."""
        atoms = np.flatnonzero(self.positives[seed] & self.task.allowed)
        found = smallest_bodies(~self.negatives[:, atoms], self.task.max_body)
        if found.shortest is None:  # a negative state contains the whole state
            return None, False
        bodies = [tuple(atoms[list(places)].tolist()) for places in found.bodies]
        best = max(bodies, key=self.explains, default=None)
        if self._may_share(seed, best, found):
            options = [*bodies, *self.shared_bodies(seed)]
            better = max(options, key=self.worth, default=None)
            self.failures = self.failures + 1 if better == best else 0
            best = better
        return best, best is None

    def _may_share(self, seed: int, best: Body | None, found: SmallestBodies) -> bool:
        """Return whether a body that the seed state shares with others could be worth more."""
        if self.least > 0 or self.failures >= _MOST_FAILURES:
            return False
        if found.proved and not found.bodies:
            return False  # every body inside the state is too long
        if best is not None and found.proved and self.worth(best) > 0:
            return False
        shortest = len(found.bodies[0]) if found.proved else 2
        overlap = (self.positives & self.positives[seed] & self.task.allowed).sum(1)
        reachable = self.nats[overlap >= shortest].sum()
        limit = reachable - description_length(shortest, self.atoms)
        return bool(limit > (0.0 if best is None else self.worth(best)))

    def shared_bodies(self, seed: int) -> Iterator[Body]:
        """Yield bodies that the seed state shares with many other open positive states."""
        columns = np.flatnonzero(self.positives[seed] & self.task.allowed)
        states = self.positives[:, columns]
        others = np.flatnonzero(self.open)
        others = others[others != seed]
        negatives = packed_words(self.negatives[:, columns])
        overlap = states[others].sum(1)
        starts = others[np.argsort(-overlap, kind="stable")[:_STARTS]].tolist()
        seen: set[bytes] = set()
        for start in starts or [seed]:
            shared = states[seed] & states[start]
            if _contained(shared, negatives):
                continue
            shared = _intersect(shared, states[others], negatives)
            if shared.tobytes() in seen:
                continue
            seen.add(shared.tobytes())
            inside = np.flatnonzero(shared)
            for places in smallest_bodies(
                ~self.negatives[:, columns[inside]], self.task.max_body
            ).bodies:
                yield tuple(columns[inside[list(places)]].tolist())


def _contained(atoms: Mask, words: npt.NDArray[np.uint64]) -> bool:
    """Return whether some state, in machine words, contains these atoms."""
    wanted = packed_words(atoms[None])[0]
    return bool(((words & wanted) == wanted).all(1).any())


def _intersect(shared: Mask, states: Mask, negatives: npt.NDArray[np.uint64]) -> Mask:
    """Return the shared atoms of as many states as possible, nearest first.

    A state whose intersection a negative state contains is refuted for good: intersections only
    get smaller.
    """
    rest = states
    for _ in range(_MOST_TESTS):
        overlap = rest @ shared.astype(np.float32)
        rest, overlap = rest[overlap < shared.sum()], overlap[overlap < shared.sum()]
        if not len(rest):
            break
        nearest = int(overlap.argmax())
        merged = shared & rest[nearest]
        if _contained(merged, negatives):
            rest = np.delete(rest, nearest, axis=0)
        else:
            shared = merged
    return shared


def _best_pairs(cover: _Cover) -> Iterable[Body]:
    """Yield bodies of one atom or two, the one worth most first, until none is worth it."""
    task, positives, negatives = cover.task, cover.positives, cover.negatives
    columns = np.flatnonzero(task.allowed & positives.any(0))
    if task.max_body < 1 or not len(columns):
        return
    inside = negatives[:, columns].astype(np.float32)
    possible = inside.T @ inside == 0  # no negative state has both
    alone = np.diagonal(possible).copy()
    possible &= ~alone[:, None] & ~alone[None, :] & (task.max_body >= 2)
    np.fill_diagonal(possible, alone)
    X = positives[:, columns].astype(np.float32)
    length = np.full(possible.shape, description_length(2, len(columns)))
    np.fill_diagonal(length, description_length(1, len(columns)))
    rest = cover.open.copy()
    while rest.any() and possible.any():
        nats = surprisal(positives[rest], cover.weights[rest], task).astype(np.float32)
        worth = X[rest].T @ (nats[:, None] * X[rest])
        worth = np.where(possible, worth - length, -np.inf)
        best = int(worth.argmax())
        if worth.flat[best] < max(cover.least, 0.0):
            return
        body = tuple(columns[sorted(set(divmod(best, len(columns))))].tolist())
        yield body
        rest &= ~covered(positives, body)


def drop_redundant(positives: Mask, bodies: Sequence[Body], keep: int = 0) -> list[Body]:
    """Return the bodies without those whose positive states others cover; the first `keep` stay."""
    inside = coverage(positives, bodies)
    times = inside.sum(0)
    order = sorted(range(keep, len(bodies)), key=lambda j: (int(inside[j].sum()), -j))
    dropped = set()
    for j in order:
        if (times[inside[j]] > 1).all():
            times = times - inside[j]
            dropped.add(j)
    return [body for j, body in enumerate(bodies) if j not in dropped]


def select_bodies(task: HeadTask, pool: Iterable[Body]) -> tuple[list[Body], Mask]:
    """Return the known bodies and some from a pool that cover all it can, and the uncertain states.

    No body of the pool may lie inside a negative state. Those worth most come first. A positive
    state is uncertain when the only body that covers it is longer to describe than what it explains
    alone. (positives,).
    """
    positives, weights, keep = task.positives, task.counts[task.positive], task.known
    atoms = int(task.allowed.sum())
    options = [body for body in pool if body not in keep]
    inside = coverage(positives, options)
    lengths = np.array([description_length(len(body), atoms) for body in options])
    left = ~covered_by_any(positives, keep)
    taken: list[int] = []
    while options and left.any():
        nats = inside[:, left] @ surprisal(positives[left], weights[left], task)
        best = int(np.where(nats > 0, nats - lengths, -np.inf).argmax())
        if nats[best] <= 0:
            break
        taken.append(best)
        left &= ~inside[best]
    bodies = drop_redundant(positives, [*keep, *(options[j] for j in taken)], keep=len(keep))
    uncertain = np.zeros(len(positives), np.bool_)
    nats = surprisal(positives, weights, task)
    inside = coverage(positives, bodies)
    alone = inside & (inside.sum(0) == 1)
    for j in range(len(keep), len(bodies)):
        if nats[alone[j]].sum() <= description_length(len(bodies[j]), atoms) + _MARGIN:
            uncertain |= alone[j]
    return bodies, uncertain


# ---- What the data leave open


def alternatives_to(task: HeadTask, body: Body, needing: Mask) -> tuple[list[Body], bool]:
    """Return the bodies that could replace one, and whether no shorter one exists.

    They explain the same states, and none is refuted; there are none exactly where the examples
    decide. Otherwise there are the other bodies as short as the shortest, and at the end the longest
    one: it adds every atom that the examples which need the body have in common, up to the limit on
    the size. Bodies in between fit as well.

    Args:
        task: the examples of the head.
        body: the body to be replaced.
        needing: the positive states that no other body explains. (n, M)
    """
    if not len(needing):
        return [], True
    atoms = np.flatnonzero(needing.all(0) & task.allowed)
    found = smallest_bodies(~task.negatives[:, atoms], len(body))
    others = [tuple(atoms[list(places)].tolist()) for places in found.bodies]
    spare = [i for i in atoms.tolist() if i not in body]
    longest = tuple(sorted((*body, *spare[: max(0, task.max_body - len(body))])))
    options = dict.fromkeys([*others, longest])
    return [other for other in options if other != body], found.proved


def add_alternatives(task: HeadTask, found: HeadRules) -> None:
    """Add to each body that was learned what could stand in its place."""
    positives = task.positives
    inside = coverage(positives, found.bodies)
    times = inside.sum(0)
    for body, mine in list(zip(found.bodies, inside, strict=True))[len(task.known) :]:
        others, proved = alternatives_to(task, body, positives[mine & (times == 1)])
        found.unproved += not proved
        if others:
            found.alternatives[body] = others
