"""Rules from closed sets alone: the strongest ones that no row of a table breaks.

A table says which things have which atoms, and every row is taken for closed. Then a set of atoms
implies what all rows have in common that contain it, and everything if none does. The fewest
implications that say so are those of Guigues and Duquenne (1986).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from latentgamma.errors import DataError
from latentgamma.learning.bodies import Implication, packed_words, remove_implied
from latentgamma.program.compilation import Cells, compile_loop
from latentgamma.program.facts import Mask

#: Closed sets that are enumerated at most; a table can have exponentially many.
MOST_CLOSED_SETS = 2_000_000
#: Bytes that the sets still to be looked at may take.
_MOST_BYTES = 4 << 30
#: Tests of an implication in a set, above which compiled code makes them.
_MANY_TESTS = 1 << 24
#: Numbers that one matrix product may make.
_CHUNK = 1 << 24
#: OpenBLAS may set the flag of an invalid operation for a product of zeros and ones.
_ANY_FLAGS = np.errstate(invalid="ignore")


@_ANY_FLAGS
def common(rows: Mask, sets: Mask) -> Mask:
    """Return what the rows that contain each set have in common; all atoms if none does.

    >>> rows = np.array([[True, True, False], [False, True, True]])
    >>> common(rows, np.array([[True, False, False], [True, False, True]])).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    lacks = (~rows).astype(np.float32)  # (N, M)
    closed = np.ones_like(sets)
    for part in _chunks(len(sets), len(rows)):
        inside = sets[part].astype(np.float32) @ lacks.T == 0  # (n, N)
        closed[part] = inside.astype(np.float32) @ lacks == 0
    return closed


def canonical_base(rows: Mask, most: int = MOST_CLOSED_SETS) -> tuple[Mask, Mask]:
    """Return the premises and conclusions of the fewest implications that the rows satisfy.

    Sets are visited in the order of their size. One that an implication found so far does not hold
    in is extended by it. Any other set is closed, and its supersets with one more atom come next,
    or it is the premise of a new implication.

    Raises:
        DataError: the rows have more than `most` closed sets.
    """
    M = rows.shape[1]
    rows = np.unique(rows, axis=0)
    waiting = _Waiting(M)
    waiting.add(np.zeros((1, M), np.bool_))
    premises, conclusions = np.zeros((0, M), np.bool_), np.zeros((0, M), np.bool_)
    found = 0
    for size in range(M + 1):
        for sets in waiting.take(size):
            extended = _extend(sets, premises, conclusions)
            done = (extended == sets).all(1)
            waiting.add(extended[~done])
            sets = sets[done]
            closed = common(rows, sets)
            exact = (closed == sets).all(1)
            found += int(exact.sum())
            if found > most:
                raise DataError(
                    f"this table has more than {most:,} closed sets, which is the most that are "
                    f"searched; learn from fewer columns, or from closures of chosen fact sets"
                )
            # Premises of one size do not apply to each other, so parts of a size are independent.
            premises = np.concatenate([premises, sets[~exact]])
            conclusions = np.concatenate([conclusions, closed[~exact]])
            waiting.add(closed[~exact])
            for i in range(M):  # the sets with one more atom
                larger = sets[exact & ~sets[:, i]]
                larger[:, i] = True
                waiting.add(larger)
    return premises, conclusions


class _Waiting:
    """Sets still to be visited, by their size, without repetitions."""

    def __init__(self, M: int) -> None:
        self.M = M
        self.parts: list[list[npt.NDArray[np.uint8]]] = [[] for _ in range(M + 1)]
        #: Sets of each size that were left when repetitions were last removed.
        self.unique = [0] * (M + 1)
        self.bytes = 0

    def add(self, sets: Mask) -> None:
        sizes = sets.sum(1)
        for size in np.unique(sizes).tolist():
            packed = np.packbits(sets[sizes == size], axis=1)
            self.parts[size].append(packed)
            self.bytes += packed.nbytes
            if sum(map(len, self.parts[size])) > 2 * self.unique[size] + 100_000:
                self._remove_repetitions(size)
        if self.bytes > _MOST_BYTES:
            raise DataError(
                f"the closed sets of this table take more than {_MOST_BYTES >> 30} GB; learn from "
                f"fewer columns, or from closures of chosen fact sets"
            )

    def _remove_repetitions(self, size: int) -> None:
        together = np.concatenate(self.parts[size])
        keys = np.ascontiguousarray(together).view(f"V{together.shape[1]}")[:, 0]
        kept = np.sort(np.unique(keys, return_index=True)[1])
        self.bytes -= together.nbytes
        self.parts[size] = [together[kept]]
        self.bytes += self.parts[size][0].nbytes
        self.unique[size] = len(kept)

    def take(self, size: int) -> Iterator[Mask]:
        """Yield the sets of one size, in parts; none of that size is added later."""
        if not self.parts[size]:
            return
        self._remove_repetitions(size)
        (packed,) = self.parts[size]
        self.parts[size] = []
        self.bytes -= packed.nbytes
        for part in _chunks(len(packed), 64 * self.M):
            yield np.unpackbits(packed[part], axis=1, count=self.M).astype(np.bool_)


def rules_of_models(rows: Mask, kept: Sequence[Implication] = ()) -> list[Implication]:
    """Return rules with one head, and no atom too many, whose closures are what the rows imply.

    Rows are models of the `kept` rules too, which stay.
    """
    heads, bodies = _fewest_heads(*canonical_base(rows))
    shortened = _shorten(rows, heads, bodies)
    rules = [
        (head, tuple(np.flatnonzero(body).tolist()))
        for head, body in zip(heads.tolist(), shortened, strict=True)
    ]
    return remove_implied([*kept, *rules], rows, len(kept))


def _fewest_heads(premises: Mask, conclusions: Mask) -> tuple[npt.NDArray[np.int64], Mask]:
    """Return rules with one head that are equivalent; others derive the rest of a conclusion.

    An implication may use those that imply less, and earlier ones that imply as much.
    """
    order = np.argsort(conclusions.sum(1), kind="stable")
    premises, conclusions = premises[order], conclusions[order]
    heads: list[int] = []
    places: list[int] = []
    for j, conclusion in enumerate(conclusions):
        true = premises[j]
        while not true[conclusion].all():
            # Of the missing heads take the one from which most of the others follow.
            options = np.flatnonzero(conclusion & ~true)
            reached = np.repeat(true[None], len(options), 0)
            reached[np.arange(len(options)), options] = True
            reached = _close(reached, premises[:j], conclusions[:j])
            best = int(reached.sum(1).argmax())
            heads.append(int(options[best]))
            places.append(j)
            true = reached[best]
    return np.array(heads, np.int64), premises[places]


def _shorten(rows: Mask, heads: npt.NDArray[np.int64], bodies: Mask) -> Mask:
    """Return bodies without atoms that are not needed to imply the head, frequent ones first."""
    bodies = bodies.copy()
    for i in np.argsort(-rows.sum(0), kind="stable").tolist():
        having = np.flatnonzero(bodies[:, i])
        shorter = bodies[having]
        shorter[:, i] = False
        still = common(rows, shorter)[np.arange(len(having)), heads[having]]
        bodies[having[still], i] = False
    return bodies


@_ANY_FLAGS
def _extend(sets: Mask, premises: Mask, conclusions: Mask) -> Mask:
    """Return the sets, extended by implications whose premises they contain.

    A set in which every implication holds is returned as it is.
    """
    if len(sets) * len(premises) > _MANY_TESTS:
        words = packed_words(sets)
        compile_loop(apply_implications)(words, packed_words(premises), packed_words(conclusions))
        packed = words.view(np.uint8)[:, : -(-sets.shape[1] // 8)]
        return np.unpackbits(packed, axis=1, count=sets.shape[1]).astype(np.bool_)
    extended = sets.copy()
    needs, gives = premises.astype(np.float32), conclusions.astype(np.float32)
    for part in _chunks(len(sets), len(premises)):
        inside = (~sets[part]).astype(np.float32) @ needs.T == 0  # (n, p)
        extended[part] |= inside.astype(np.float32) @ gives > 0
    return extended


def apply_implications(sets: Cells, premises: Cells, conclusions: Cells) -> None:
    """Extend each set, in machine words, by the implications whose premise it contains."""
    for s in range(len(sets)):
        for p in range(len(premises)):
            inside = True
            for w in range(sets.shape[1]):
                if premises[p, w] & ~sets[s, w] != 0:
                    inside = False
                    break
            if inside:
                for w in range(sets.shape[1]):
                    sets[s, w] |= conclusions[p, w]


def _close(sets: Mask, premises: Mask, conclusions: Mask) -> Mask:
    """Return the closures of the sets under implications."""
    while True:
        extended = _extend(sets, premises, conclusions)
        if (extended == sets).all():
            return extended
        sets = extended


def _chunks(count: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, width))
    for start in range(0, count, step):
        yield slice(start, start + step)
