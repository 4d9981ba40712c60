"""Rules from closed sets alone: the strongest ones that no row of a table breaks.

A table says which things have which atoms, and every row is taken for closed. Then a set of atoms
implies what all rows have in common that contain it, and everything if none does. The fewest
implications that say so are those of Guigues and Duquenne (1986).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from latentgamma._errors import DataError
from latentgamma._learning.from_closures import Implication, irredundant
from latentgamma._program.program import Mask

#: Sets that the search may look at; a table can have exponentially many closed ones.
MOST_SETS = 2_000_000
#: Numbers that one matrix product may make.
_ROOM = 1 << 24


def common(rows: Mask, sets: Mask) -> Mask:
    """What the rows that contain a set have in common, for each set; all atoms if none does.

    >>> rows = np.array([[True, True, False], [False, True, True]])
    >>> common(rows, np.array([[True, False, False], [True, False, True]])).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    lacks = (~rows).astype(np.float32)  # (N, M)
    closed = np.ones_like(sets)
    for part in _parts(len(sets), len(rows)):
        inside = sets[part].astype(np.float32) @ lacks.T == 0  # (n, N)
        closed[part] = inside.astype(np.float32) @ lacks == 0
    return closed


def canonical_base(rows: Mask, most: int = MOST_SETS) -> tuple[Mask, Mask]:
    """The premises and conclusions of the fewest implications that say what the rows imply.

    Sets are looked at in the order of their size. One that breaks an implication found so far
    grows by it. One that breaks none is closed, and its supersets come next, or it is the premise
    of a new implication.
    """
    M = rows.shape[1]
    rows = np.unique(rows, axis=0)
    waiting: list[set[bytes]] = [set() for _ in range(M + 1)]
    waiting[0].add(bytes((M + 7) // 8))
    premises, conclusions = np.zeros((0, M), np.bool_), np.zeros((0, M), np.bool_)
    looked_at = 0
    for size in range(M + 1):
        sets = _unpacked(waiting[size], M)
        waiting[size].clear()
        looked_at += len(sets)
        if looked_at > most:
            raise DataError(
                f"this table has more closed sets than can be searched (over {most:,}): learn "
                f"from fewer columns, or from closures of chosen fact sets"
            )
        grown = _grown(sets, premises, conclusions)
        done = (grown == sets).all(1)
        closed = common(rows, sets[done])
        exact = (closed == sets[done]).all(1)
        premises = np.concatenate([premises, sets[done][~exact]])
        conclusions = np.concatenate([conclusions, closed[~exact]])
        for later in (grown[~done], closed[~exact], *_supersets(sets[done][exact])):
            for count in np.unique(later.sum(1)).tolist():
                waiting[count].update(_packed(later[later.sum(1) == count]))
    return premises, conclusions


def rules_of_models(rows: Mask, kept: Sequence[Implication] = ()) -> list[Implication]:
    """Rules with one head and no needless atom whose closures are what the rows imply.

    Rows are models of the `kept` rules too, which stay.
    """
    heads, bodies = _fewest_heads(*canonical_base(rows))
    shortened = _shortened(rows, heads, bodies)
    rules = [
        (head, tuple(np.flatnonzero(body).tolist()))
        for head, body in zip(heads.tolist(), shortened, strict=True)
    ]
    return irredundant([*kept, *rules], rows, len(kept))


def _fewest_heads(premises: Mask, conclusions: Mask) -> tuple[npt.NDArray[np.int64], Mask]:
    """Rules with one head that say the same; each premise needs few, others bring the rest.

    An implication may lean on those that imply less, and on earlier ones that imply as much.
    """
    order = np.argsort(conclusions.sum(1), kind="stable")
    premises, conclusions = premises[order], conclusions[order]
    heads: list[int] = []
    places: list[int] = []
    for j, conclusion in enumerate(conclusions):
        true = premises[j]
        while not true[conclusion].all():
            # Of the heads that are missing take the one that brings most of the others.
            options = np.flatnonzero(conclusion & ~true)
            reached = np.repeat(true[None], len(options), 0)
            reached[np.arange(len(options)), options] = True
            reached = _closed(reached, premises[:j], conclusions[:j])
            best = int(reached.sum(1).argmax())
            heads.append(int(options[best]))
            places.append(j)
            true = reached[best]
    return np.array(heads, np.int64), premises[places]


def _shortened(rows: Mask, heads: npt.NDArray[np.int64], bodies: Mask) -> Mask:
    """Bodies without atoms that are not needed to imply the head, the commonest tried first."""
    bodies = bodies.copy()
    for i in np.argsort(-rows.sum(0), kind="stable").tolist():
        having = np.flatnonzero(bodies[:, i])
        shorter = bodies[having]
        shorter[:, i] = False
        still = common(rows, shorter)[np.arange(len(having)), heads[having]]
        bodies[having[still], i] = False
    return bodies


def _grown(sets: Mask, premises: Mask, conclusions: Mask) -> Mask:
    """The sets with what implications give whose premises they contain."""
    grown = sets.copy()
    needs, gives = premises.astype(np.float32), conclusions.astype(np.float32)
    for part in _parts(len(sets), len(premises)):
        inside = (~sets[part]).astype(np.float32) @ needs.T == 0  # (n, p)
        grown[part] |= inside.astype(np.float32) @ gives > 0
    return grown


def _closed(sets: Mask, premises: Mask, conclusions: Mask) -> Mask:
    """The sets with all that implications give, in turn."""
    while True:
        grown = _grown(sets, premises, conclusions)
        if (grown == sets).all():
            return grown
        sets = grown


def _supersets(sets: Mask) -> Iterator[Mask]:
    """The sets with one more atom, atom by atom."""
    for i in range(sets.shape[1]):
        larger = sets[~sets[:, i]]
        larger[:, i] = True
        yield larger


def _parts(count: int, width: int) -> Iterator[slice]:
    step = max(1, _ROOM // max(1, width))
    for start in range(0, count, step):
        yield slice(start, start + step)


def _packed(sets: Mask) -> list[bytes]:
    return [row.tobytes() for row in np.packbits(sets, axis=1)]


def _unpacked(packed: set[bytes], M: int) -> Mask:
    rows = np.frombuffer(b"".join(sorted(packed)), np.uint8).reshape(len(packed), (M + 7) // 8)
    return np.unpackbits(rows, axis=1, count=M).astype(np.bool_)
