"""The symbolic learner: the rules of one head from its positive and negative states.

A head's rules are a monotone formula: it holds where some body lies inside the state. Without
noise a body may lie inside no negative state, so within a positive state the bodies are the sets
of atoms that every negative lacks one of. With noise, bodies are chosen by how much likelier
they make the labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._program.program import Mask

Body: TypeAlias = tuple[int, ...]
Array: TypeAlias = npt.NDArray[np.float32]

#: Sets that one search for bodies may look at, and equally good bodies that are kept.
_SEARCH = 20_000
_KEPT = 2_000
#: Products that weighing every body of two atoms may take.
_PAIRS = 1e9
#: Bodies that may come in, or change, while one head is weighed.
_REVISIONS = 500
#: No probability is taken for surer than this.
_LEAST_DOUBT = 1e-3
#: Proposals that are tried with one atom changed.
_COMPLETED = 16
#: Products that weighing every body of three atoms may take.
_TRIPLES = 3e8


@dataclass(frozen=True)
class Task:
    """What the data say about one head: states without it, and whether it followed."""

    head: int
    states: Mask  # (n, M)
    positive: Mask  # (n,)
    counts: npt.NDArray[np.int64]  # (n,)
    allowed: Mask  # (M,) the atoms that a body may use
    max_body: int
    #: How likely the head followed, where labels are probabilities. (n,)
    belief: npt.NDArray[np.float32] | None = None

    def covered(self, body: Iterable[int]) -> Mask:
        """The states that a body lies inside. (n,)."""
        return covered(self.states, body)

    def clashes(self, body: Iterable[int]) -> int:
        """How many negative examples a body lies inside."""
        return int(self.counts[self.covered(body) & ~self.positive].sum())


@dataclass
class Found:
    """The bodies learned for one head, the others that would do as well, and what is left."""

    bodies: list[Body]
    alternatives: dict[Body, list[Body]] = field(default_factory=dict)
    unexplained: int = 0


def covered(states: Mask, body: Iterable[int]) -> Mask:
    """The rows of states that contain a body. (n,)."""
    columns = list(body)
    if not columns:
        return np.ones(len(states), np.bool_)
    inside: Mask = np.logical_and.reduce([states[:, i] for i in columns])
    return inside


def distinct(rows: Mask) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each different row first stands, and how often it comes.

    >>> first, counts = distinct(np.array([[True, False], [False, False], [True, False]]))
    >>> sorted(zip(first.tolist(), counts.tolist()))
    [(0, 2), (1, 1)]
    """
    packed = np.packbits(rows, axis=1)
    words = np.zeros((len(rows), max(1, -(-packed.shape[1] // 8))), np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    # Comparing whole words, or bytes in a row, is many times faster than one column after another.
    keys = words[:, 0] if words.shape[1] == 1 else words.view(f"V{words.strides[0]}")[:, 0]
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return first, counts


# ------------------------------------------------------------------------ without noise


def cover(task: Task, known: Sequence[Body] = (), least: float = 0.0) -> Found:
    """The shortest bodies that explain every positive state and lie inside no negative one.

    Of equally short bodies the one is taken inside whose positive states the head surprises
    most: that a crowded state has it says little. `known` bodies are taken as they are.
    A body that surprises by less than `least` (in nats) is left out.
    """
    found = Found(list(known))
    negatives = task.states[~task.positive]
    positives, weight = task.states[task.positive], task.counts[task.positive]
    open_rows = np.ones(len(positives), np.bool_)
    for body in known:
        open_rows &= ~covered(positives, body)
    if task.states.size * task.states.shape[1] <= _PAIRS:
        for body in _best_pairs(
            task,
            negatives=negatives,
            positives=positives,
            weight=weight,
            open_rows=open_rows,
            least=least,
        ):
            found.bodies.append(body)
            open_rows &= ~covered(positives, body)
    sizes = (positives & task.allowed).sum(1)
    surprise = weight * -np.log(usual(task.states, task.positive, task.counts)[task.positive])
    while open_rows.any():
        seed = int(np.flatnonzero(open_rows)[sizes[open_rows].argmin()])
        atoms = np.flatnonzero(positives[seed] & task.allowed)
        choices = smallest_bodies(~negatives[:, atoms], task.max_body)
        bodies = [tuple(atoms[list(choice)].tolist()) for choice in choices]
        gains = [round(float(surprise[covered(positives, body)].sum()), 6) for body in bodies]
        best = int(np.argmax(gains)) if gains else -1
        if best < 0 or gains[best] < least:
            found.unexplained += int(weight[seed])
            open_rows[seed] = False
            continue
        found.bodies.append(bodies[best])
        open_rows &= ~covered(positives, bodies[best])
    found.bodies = needed(positives, found.bodies, keep=len(known))
    return found


def alternatives(
    task: Task, bodies: Sequence[Body], known: Sequence[Body] = ()
) -> dict[Body, list[Body]]:
    """For each body, others as short that explain the states which need it, and are not refuted.

    A body that has none is the only shortest one: the data identify it.
    """
    positives, negatives = task.states[task.positive], task.states[~task.positive]
    inside = {body: covered(positives, body) for body in (*known, *bodies)}
    times = np.sum(list(inside.values()), axis=0)
    found = {}
    for body in bodies:
        needing = positives[inside[body] & (times == 1)]
        atoms = np.flatnonzero(needing.all(0) & task.allowed)
        if len(atoms) > len(body):
            choices = smallest_bodies(~negatives[:, atoms], len(body))
            others = [tuple(atoms[list(choice)].tolist()) for choice in choices]
            found[body] = [other for other in others if other != body]
    return {body: others for body, others in found.items() if others}


def usual(
    states: Mask, positive: npt.NDArray[Any], counts: npt.NDArray[np.int64], prior: float = 0.5
) -> npt.NDArray[np.float64]:
    """How often the head follows in states of about the same size. (n,)."""
    sizes = states.sum(1)
    edges = np.quantile(sizes, np.linspace(0, 1, 9)[1:-1]) if len(sizes) else np.zeros(0)
    edges = np.unique(edges)
    bins = np.searchsorted(edges, sizes, side="right")
    seen = np.bincount(bins, counts, len(edges) + 1)
    followed = np.bincount(bins, counts * positive, len(edges) + 1)
    return np.asarray(((followed + prior) / (seen + 1.0))[bins])


def _best_pairs(
    task: Task,
    *,
    negatives: Mask,
    positives: Mask,
    weight: npt.NDArray[np.int64],
    open_rows: Mask,
    least: float,
) -> Iterable[Body]:
    """Bodies of one atom or two, the one that surprises most first, until none is worth it."""
    columns = np.flatnonzero(task.allowed & positives.any(0))
    if task.max_body < 1 or not len(columns):
        return
    missed = negatives[:, columns].astype(np.float32)
    possible = missed.T @ missed == 0  # no negative state has both
    alone = np.diagonal(possible).copy()
    possible &= ~alone[:, None] & ~alone[None, :] & (task.max_body >= 2)
    np.fill_diagonal(possible, alone)
    X = positives[:, columns].astype(np.float32)
    price = np.full(possible.shape, 3.0 * math.log(len(columns) + 1))
    np.fill_diagonal(price, 2.0 * math.log(len(columns) + 1))
    still = open_rows.copy()
    while still.any() and possible.any():
        rows = np.concatenate([positives[still], negatives])
        follows = np.arange(len(rows)) < still.sum()
        counts = np.concatenate([weight[still], task.counts[~task.positive]])
        surprise = counts * -np.log(usual(rows, follows, counts))
        w = surprise[follows].astype(np.float32)
        gains = X[still].T @ (w[:, None] * X[still])
        gains = np.where(possible, gains - price, -np.inf)
        best = int(gains.argmax())
        if gains.flat[best] < max(least, 0.0):
            return
        body = tuple(columns[sorted(set(divmod(best, len(columns))))].tolist())
        yield body
        still &= ~covered(positives, body)


def smallest_bodies(lacks: Mask, most: int) -> list[Body]:
    """All smallest sets of columns that hit every row, or [] if none of `most` columns does.

    >>> lacks = np.array([[True, False, True], [False, True, True]])
    >>> smallest_bodies(lacks, 3)
    [(2,)]
    """
    if not len(lacks):
        return [()]
    if not lacks.any(1).all():
        return []
    # Rows that lack few atoms decide; looking at each different one once is enough.
    lacks = lacks[distinct(lacks)[0]]
    lacks = lacks[np.argsort(lacks.sum(1), kind="stable")]
    budget = [_SEARCH]
    for size in range(1, min(most, lacks.shape[1]) + 1):
        bodies = sorted({tuple(sorted(b)) for b in _hitting(lacks, size, budget)})
        if bodies:
            return bodies
        if budget[0] <= 0:
            body = _greedy(lacks)
            return [body] if len(body) <= most else []
    return []


def _hitting(lacks: Mask, size: int, budget: list[int]) -> list[Body]:
    budget[0] -= 1
    if size == 1:
        return [(int(i),) for i in np.flatnonzero(lacks.all(0))]
    if size == 2:
        missed = (~lacks).astype(np.float32)
        both = missed.T @ missed  # how many rows have neither atom
        rows, columns = np.nonzero(np.triu(both == 0, 1))
        pairs: list[Body] = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]
        return pairs[:_KEPT]
    bodies: list[Body] = []
    for i in np.flatnonzero(lacks[lacks.sum(1).argmin()]).tolist():
        rest = lacks[~lacks[:, i]]
        if not len(rest):
            continue  # a smaller set would have been found before
        bodies += [(i, *more) for more in _hitting(rest, size - 1, budget)]
        if budget[0] <= 0 or len(bodies) > _KEPT:
            break
    return bodies


def _greedy(lacks: Mask) -> Body:
    """One irredundant set of columns that hits every row."""
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


def needed(positives: Mask, bodies: Sequence[Body], keep: int = 0) -> list[Body]:
    """The bodies without those whose positive states the others cover; the first `keep` stay."""
    inside = [covered(positives, body) for body in bodies]
    times = np.sum(inside, axis=0) if inside else np.zeros(len(positives), np.int64)
    order = sorted(range(keep, len(bodies)), key=lambda j: (int(inside[j].sum()), -j))
    dropped = set()
    for j in order:
        if (times[inside[j]] > 1).all():
            times = times - inside[j]
            dropped.add(j)
    return [body for j, body in enumerate(bodies) if j not in dropped]


def price(size: int, atoms: int) -> float:
    """What it costs to write a body down, in nats."""
    return (size + 1) * math.log(max(2, atoms))


def chosen(task: Task, pool: Iterable[Body], keep: Sequence[Body] = ()) -> tuple[list[Body], Mask]:
    """Bodies from a pool that cover all it can, those worth most first; and the doubtful states.

    None of the pool may lie inside a negative state. A positive state is doubtful when the one
    body that covers it costs more to write down than it alone explains. (positives,).
    """
    positives, weight = task.states[task.positive], task.counts[task.positive]
    atoms = int(task.allowed.sum())
    options = [body for body in pool if body not in keep]
    inside = np.array([covered(positives, body) for body in options]).reshape(-1, len(positives))
    prices = np.array([price(len(body), atoms) for body in options])
    left = np.ones(len(positives), np.bool_)
    for body in keep:
        left &= ~covered(positives, body)
    taken: list[int] = []
    while options and left.any():
        rows = np.concatenate([positives[left], task.states[~task.positive]])
        follows = np.arange(len(rows)) < left.sum()
        counts = np.concatenate([weight[left], task.counts[~task.positive]])
        surprise = (counts * -np.log(usual(rows, follows, counts)))[follows]
        worth = inside[:, left].astype(np.float64) @ surprise
        best = int(np.where(worth > 0, worth - prices, -np.inf).argmax())
        if worth[best] <= 0:
            break
        taken.append(best)
        left &= ~inside[best]
    bodies = needed(positives, [*keep, *(options[j] for j in taken)], keep=len(keep))
    doubtful = np.zeros(len(positives), np.bool_)
    usually = -np.log(usual(task.states, task.positive, task.counts)[task.positive]) * weight
    inside = np.array([covered(positives, body) for body in bodies]).reshape(-1, len(positives))
    alone = inside & (inside.sum(0) == 1)
    for j in range(len(keep), len(bodies)):
        if usually[alone[j]].sum() <= price(len(bodies[j]), atoms) + 3.0:
            doubtful |= alone[j]
    return bodies, doubtful


# ------------------------------------------------------------------------ with noise


def likeliest(
    task: Task, noise: float, known: Sequence[Body] = (), proposals: Sequence[Body] | None = None
) -> Found:
    """The bodies under which labels that are wrong with this probability are likeliest.

    A body is worth what it adds to the log-likelihood over what the states' sizes already say,
    less the price of writing it down. Bodies come in best first, and leave when the others
    have made them needless. With `proposals` only those are weighed, and the best of them with
    one atom changed.
    """
    search = _Weighing(task, noise, list(known), proposals)
    for _ in range(_REVISIONS):
        if not (search.add() or search.revise()):
            break
        search.drop()
    return Found([*known, ()] if search.always() else search.bodies)


class _Weighing:
    """Bodies under revision, each worth more than it costs."""

    def __init__(
        self, task: Task, noise: float, known: list[Body], proposals: Sequence[Body] | None
    ) -> None:
        self.task, self.known = task, list(known)
        self.noise = min(max(noise, 1e-4), 0.45)
        if task.belief is None:
            self.truth, self.base = np.where(task.positive, 1 - self.noise, self.noise), 0.5
        else:
            self.truth = np.clip(task.belief.astype(np.float64), _LEAST_DOUBT, 1 - _LEAST_DOUBT)
            self.base = float(np.average(self.truth, weights=task.counts))
        self.bodies: list[Body] = list(known)
        self.proposals = proposals
        self.columns = np.flatnonzero(task.allowed & task.states.any(0))
        self.X = task.states[:, self.columns].astype(np.float32)  # (n, m)
        self.spent: set[Body] = set()

    def always(self) -> bool:
        """Whether the head follows whatever the state, as far as wrong labels allow.

        No body can show that: next to how often the head follows, it has nothing to add.
        """
        n, wrong = self.task.counts.sum(), self.task.counts[~self.task.positive].sum()
        if not self.task.positive.any() or () in self.bodies:
            return False
        if wrong > self.noise * n + 3 * math.sqrt(self.noise * n):
            return False
        return self._likelihood([*self.known, ()]) > self._likelihood(self.bodies)

    def _likelihood(self, bodies: Sequence[Body]) -> float:
        """How likely the labels are under these bodies alone, less the price of new ones."""
        inside = np.zeros(len(self.truth), np.bool_)
        for body in bodies:
            inside |= self.task.covered(body)
        fits = np.where(inside, self.truth, 1 - self.truth)
        return float(self.task.counts @ np.log(fits)) - sum(
            self.price(len(b)) for b in bodies if b not in self.known
        )

    def price(self, size: int) -> float:
        return math.log(max(2, len(self.columns))) * size + 1.0

    def inside(self, without: Body | None = None) -> Mask:
        inside = np.zeros(len(self.task.states), np.bool_)
        for body in self.bodies:
            if body != without:
                inside |= self.task.covered(body)
        return inside

    def worth(self, open_rows: Mask, *, flat: bool = False) -> npt.NDArray[np.float64]:
        """What it adds to the log-likelihood to cover each row; 0 where it is covered. (n,).

        It is measured against how often the head follows in states of about that size, or,
        `flat`, in all of them.
        """
        q, counts = self.truth, self.task.counts
        rate = np.full(len(q), 0.5)
        rows = self.task.states[open_rows]
        if flat:
            rows = np.zeros_like(rows)
        if self.task.belief is None:
            seen = usual(rows, self.task.positive[open_rows], counts[open_rows], self.noise)
            rate[open_rows] = np.clip((seen - self.noise) / (1 - 2 * self.noise), 0, 1)
        else:
            rate[open_rows] = usual(rows, q[open_rows], counts[open_rows], self.noise)
        # How much likelier the label is if the head follows than if it does so at that rate.
        true, false = q / self.base, (1 - q) / (1 - self.base)
        gain = np.log(true / (rate * true + (1 - rate) * false))
        return np.where(open_rows, gain * counts, 0.0)

    def add(self) -> bool:
        """Take the body worth most, if any is worth its price; whether one was.

        Where the size of a state says all that a body could say, as on a chain, nothing is
        worth anything next to it; then the plain rate decides.
        """
        return self._add(flat=False) or self._add(flat=True)

    def _add(self, *, flat: bool) -> bool:
        worth = self.worth(~self.inside(), flat=flat)
        if not worth.any():
            return False
        if self.proposals is not None:
            options = [
                (float(worth[self.task.covered(b)].sum()) - self.price(len(b)), b)
                for b in self.proposals
                if b not in self.bodies and b not in self.spent
            ]
            changed = self._completed(worth, sorted(options)[-_COMPLETED:])
            options += [option for option in changed if option[1] not in self.spent]
        else:
            options = self._best(worth)
        gain, body = max(options, default=(0.0, ()))
        if gain <= 0 or body in self.bodies or body in self.spent:
            return False
        self.bodies.append(body)
        self.spent.add(body)
        return True

    def _best(self, worth: npt.NDArray[np.float64]) -> list[tuple[float, Body]]:
        rows = np.flatnonzero(worth)
        X, w = self.X[rows], worth[rows].astype(np.float32)
        options: list[tuple[float, Body]] = [(float(w.sum()) - self.price(0), ())]
        if self.task.max_body < 1 or not len(self.columns):
            return options
        singles = X.T @ w
        i = int(singles.argmax())
        options.append((float(singles[i]) - self.price(1), (int(self.columns[i]),)))
        if self.task.max_body < 2 or len(self.columns) < 2:
            return options
        pairs = X.T @ (w[:, None] * X)  # (m, m)
        np.fill_diagonal(pairs, -np.inf)
        i, j = (int(x) for x in np.unravel_index(int(pairs.argmax()), pairs.shape))
        options.append((float(pairs[i, j]) - self.price(2), self._named((i, j))))
        cheap = len(rows) * len(self.columns) ** 3 <= _TRIPLES
        if self.task.max_body > 2 and (cheap or max(options)[0] <= 0):
            options += self._longer(X, w, pairs, every=cheap)
        return options

    def _longer(self, X: Array, w: Array, pairs: Array, *, every: bool) -> list[tuple[float, Body]]:
        """Bodies of three atoms and more: all of three where that is cheap, else grown from two."""
        m = pairs.shape[0]
        grown: list[tuple[float, Body]] = []
        if every:
            for i in range(m - 2):
                inside = X[X[:, i] > 0][:, i + 1 :]
                both = inside.T @ (w[X[:, i] > 0, None] * inside)
                both[np.tril_indices(len(both))] = -np.inf
                j, k = (int(x) for x in np.unravel_index(int(both.argmax()), both.shape))
                grown.append((float(both[j, k]), (i, i + 1 + j, i + 1 + k)))
        else:
            top = np.argpartition(pairs.ravel(), -min(32, pairs.size))[-32:]
            two = {tuple(sorted(divmod(int(f), m))) for f in top}
            grown = self._extended(X, w, two)
        options = []
        for size in range(3, min(self.task.max_body, m) + 1):
            if not grown:
                break
            grown = sorted(grown, reverse=True)[:16]
            gain, best = grown[0]
            options.append((gain - self.price(size), self._named(best)))
            if size > 3 and options[-1][0] <= options[-2][0]:
                break
            grown = self._extended(X, w, {body for _, body in grown})
        return options

    def _extended(self, X: Array, w: Array, bodies: set[Body]) -> list[tuple[float, Body]]:
        """Each body with the atom that makes it worth most."""
        longer: dict[Body, float] = {}
        for body in bodies:
            inside = np.logical_and.reduce([X[:, c] > 0 for c in body])
            more = X[inside].T @ w[inside]
            more[list(body)] = -np.inf
            c = int(more.argmax())
            if np.isfinite(more[c]):
                longer[tuple(sorted((*body, c)))] = float(more[c])
        return [(gain, body) for body, gain in longer.items()]

    def _completed(
        self, worth: npt.NDArray[np.float64], best: Sequence[tuple[float, Body]]
    ) -> list[tuple[float, Body]]:
        """Proposals with one atom taken out, and the atom put in that makes them worth most."""
        cores = {tuple(x for x in body if x != i) for _, body in best for i in body} - {()}
        places = {tuple(np.searchsorted(self.columns, core).tolist()) for core in cores}
        rows = np.flatnonzero(worth)
        longer = self._extended(self.X[rows], worth[rows].astype(np.float32), places)
        return [(gain - self.price(len(b)), self._named(b)) for gain, b in longer]

    def _lengthened(self, worth: npt.NDArray[np.float64], body: Body) -> list[tuple[float, Body]]:
        if len(body) >= min(self.task.max_body, len(self.columns)):
            return []
        places = tuple(np.searchsorted(self.columns, body).tolist())
        longer = self._extended(self.X, worth.astype(np.float32), {places})
        return [(gain - self.price(len(b)), self._named(b)) for gain, b in longer]

    def _named(self, places: Body) -> Body:
        return tuple(sorted(int(self.columns[c]) for c in places))

    def drop(self) -> None:
        for body in sorted(self.bodies, key=len, reverse=True):
            if body in self.known:
                continue
            rest, mine = ~self.inside(without=body), self.task.covered(body)
            best = max(self.worth(rest, flat=flat)[mine].sum() for flat in (False, True))
            if best <= self.price(len(body)):
                self.bodies.remove(body)

    def revise(self) -> bool:
        """Shorten, lengthen or replace one body where that is worth it; whether any was."""
        for body in list(self.bodies):
            if body in self.known:
                continue
            worth = self.worth(~self.inside(without=body))
            now = worth[self.task.covered(body)].sum() - self.price(len(body))
            shorter = [tuple(x for x in body if x != i) for i in body]
            options = [
                (float(worth[self.task.covered(b)].sum()) - self.price(len(b)), b) for b in shorter
            ]
            if self.proposals is None:
                options += self._best(worth) + self._lengthened(worth, body)
            # A body comes in once, or two that are worth the same could take turns for ever.
            fresh = [option for option in options if option[1] not in self.spent]
            gain, best = max(fresh, default=(-math.inf, ()))
            if gain > now + 1e-6 and best not in self.bodies:
                self.bodies[self.bodies.index(body)] = best
                self.spent.add(best)
                return True
        return False


def flipped(states: Mask, labels: npt.NDArray[Any]) -> float | None:
    """The share of wrong labels, seen where an atom was true before and so must be after."""
    must = states & (labels >= 0)
    seen = int(must.sum())
    return float((must & (labels == 0)).sum() / seen) if seen >= 50 else None
