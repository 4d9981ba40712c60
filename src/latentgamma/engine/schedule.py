"""Circuits of minima and maxima in the order in which a GPU takes them: stages, and tiles of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from latentgamma.engine.circuit import CYCLE, SUMS, Circuit
from latentgamma.engine.reference import LAST
from latentgamma.program.graph import Csr

#: Whole numbers; `packed` makes them 32 bits wide.
Array: TypeAlias = Any

#: Children that a tile takes at a time: of many rows, or of few rows with many children.
NARROW, WIDE = 4, 128
#: A row with more children than this is in a tile of few rows.
FEW = 32
#: The least and the most rows of a tile.
_LEAST_ROWS, _MOST_ROWS = 32, 256
#: States of a cycle that the backward pass of smooth values keeps; others are computed again.
_STATES = 32
#: The most entries of lists of inputs, and the most for each edge of a circuit.
_LONGEST, _PER_EDGE = 1 << 23, 64


class Schedule(NamedTuple):
    """The arrays of a circuit whose rows are sorted within each stage, those with most children first.

    A node with an input of its own has that input as its last child.
    """

    ptr: Array  # (N + 1,)
    child: Array  # (E,)
    own: Array  # (N,) the input that is the last child, or −1
    first_rank: Array  # (inputs,) the ranks of the inputs
    tiles: Array  # (tiles, 3) the first row, the one after the last, the most children of a row
    use_ptr: Array  # (N + 1,) in the order of use_row
    uses: Array  # the edges to each row, and E + o for output o
    use_row: Array  # (N,) the rows of each stage, the one with most uses first
    use_tiles: Array  # (tiles, 3) the same for uses
    stages: Array  # (S + 1, 10) kind; ends of tiles and of use_tiles; first, middle, last row
    outputs: Array  # (O,)


def rows_of_tiles(stage_rows: int) -> int:
    """Return the number of rows of a tile, if the largest stage has `stage_rows` rows."""
    return int(np.clip(1 << max(stage_rows - 1, 0).bit_length(), _LEAST_ROWS, _MOST_ROWS))


def schedule(circuit: Circuit) -> tuple[Schedule, list[int]]:
    """Return the arrays for a GPU, and the sizes that a launch needs.

    These are: rows of a tile, stages, edges, nodes, outputs, states that are kept of a cycle, the
    most sums of a cycle, cycles.
    """
    N, inputs = circuit.nodes, circuit.inputs
    spans = [(0, 0, inputs, -1)]  # first, middle and last row, and kind: the inputs are the first
    for s, (start, stop) in enumerate(pairwise(circuit.stage_ptr.tolist())):
        kind = int(circuit.stage_kind[s])
        spans.append((start, int(circuit.middle[s]) if kind == CYCLE else start, stop, kind))
    rows = rows_of_tiles(max((stop - start for start, _, stop, _ in spans), default=1))

    # The children, the own input last; then the rows sorted within their stage.
    own = circuit.own.astype(np.int64)
    children = Csr(circuit.arrays[0], circuit.parts.indices)
    sizes = children.sizes + (own >= 0)
    order = np.arange(N)
    for start, middle, stop, _ in spans[1:]:
        for a, b in ((start, middle), (middle, stop)):
            order[a:b] = a + np.argsort(-sizes[a:b], kind="stable")
    place = np.empty(N, np.int64)
    place[order] = np.arange(N)
    flat = np.empty(int(sizes.sum()), np.int64)
    ptr = np.concatenate(([0], np.cumsum(sizes[order])))
    last = ptr[1:][own[order] >= 0] - 1
    inner = np.ones(len(flat), np.bool_)
    inner[last] = False
    flat[inner] = place[children.take(order).indices]
    flat[last] = own[order][own[order] >= 0]

    outputs = circuit.outputs.astype(np.int64)
    read = np.flatnonzero(outputs >= 0)
    outputs[read] = place[outputs[read]]
    used = np.concatenate((flat, outputs[read]))
    counts = np.bincount(used, minlength=N)
    use_row = np.arange(N)
    tiles: list[tuple[int, int, int]] = []
    use_tiles: list[tuple[int, int, int]] = []
    stages: list[tuple[int, ...]] = []
    for start, middle, stop, kind in spans:
        ends = [len(tiles)]
        use_ends = [len(use_tiles)]
        for a, b in ((start, middle), (middle, stop)):
            use_row[a:b] = a + np.argsort(-counts[a:b], kind="stable")
            if kind >= 0:
                tiles += tiles_of(np.diff(ptr)[a:b], rows, a)
            use_tiles += tiles_of(counts[use_row[a:b]], rows, a)
            ends.append(len(tiles))
            use_ends.append(len(use_tiles))
        stages.append((kind, *ends, *use_ends, start, middle, stop))
    uses = Csr(np.arange(len(used) + 1), used).transpose(N).take(use_row)
    identity = np.concatenate((np.arange(len(flat)), len(flat) + read))
    first_rank = np.zeros(inputs, np.int64)
    first_rank[own[own >= 0]] = LAST - 1  # of a derivable atom: after every other proof
    sums = max((stop - middle for _, middle, stop, kind in spans if kind == CYCLE), default=0)
    made = Schedule(
        ptr, flat, own[order], first_rank, _table(tiles), uses.indptr, identity[uses.indices],
        use_row, _table(use_tiles), np.array(stages), outputs,
    )  # fmt: skip
    states = min(sums, _STATES)
    return made, [rows, len(stages), len(flat), N, len(outputs), states, sums, circuit.cycles]


def packed(arrays: Sequence[Array]) -> Array:
    """Return all arrays in one of 32 bits, which begins with the place of each, for a launch."""
    places = len(arrays) + np.cumsum([0, *(array.size for array in arrays)])[:-1]
    return np.concatenate([places, *(array.ravel() for array in arrays)]).astype(np.int32)


def tiles_of(sizes: np.ndarray, rows: int, first: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first row, the one after the last, most children) of rows sorted by their children."""
    few = int((sizes > FEW).sum())
    at_once = rows * NARROW // WIDE
    for start, stop, step in ((0, few, at_once), (few, len(sizes), rows)):
        for a in range(start, stop, step):
            yield first + a, first + min(a + step, stop), int(sizes[a])


def _table(tiles: Sequence[tuple[int, int, int]]) -> np.ndarray:
    return np.array(tiles, np.int64).reshape(-1, 3)


# ---- Circuits of maxima alone: each output is the maximum of a list of inputs


class InputLists(NamedTuple):
    """The inputs that each output is the maximum of, the longest list first; and the reverse."""

    ptr: Array  # (O + 1,)
    child: Array  # inputs
    row: Array  # (O,) the output of each list
    tiles: Array  # (tiles, 3) as in `Schedule`
    use_ptr: Array  # (inputs + 1,)
    uses: Array  # outputs
    use_row: Array  # (inputs,) the input
    use_tiles: Array


def input_lists(circuit: Circuit) -> tuple[InputLists, list[int]] | None:
    """Return the inputs of each output, and the sizes that a launch needs; None if lists do not pay.

    They pay if all outputs are maxima of inputs, and the lists are not much longer than the circuit:
    all are then read at once, whereas the nodes of a circuit are read level by level.
    The sizes are: rows of a tile, outputs, tiles of outputs, tiles of inputs.
    """
    if (circuit.stage_kind != SUMS).any() or (circuit.outputs < 0).any():
        return None
    inputs, children = circuit.inputs, Csr(circuit.arrays[0], circuit.parts.indices)
    most = min(_LONGEST, _PER_EDGE * (len(children.indices) + inputs))
    reached = Csr(np.arange(inputs + 1), np.arange(inputs))  # the inputs of each node so far
    for start, stop in pairwise(circuit.stage_ptr.tolist()):
        here = children.take(np.arange(start, stop))
        below = reached.take(here.indices)
        node = np.repeat(here.owner, below.sizes)
        own = np.flatnonzero(circuit.own[start:stop] >= 0)
        pairs = np.concatenate((node * inputs + below.indices,
                                own * inputs + circuit.own[start:stop][own]))  # fmt: skip
        pairs.sort()  # a third of the time of np.unique
        node, reads = np.divmod(pairs[np.diff(pairs, prepend=-1) != 0], max(inputs, 1))
        ends = len(reached.indices) + np.cumsum(np.bincount(node, minlength=stop - start))
        reached = Csr(np.append(reached.indptr, ends), np.append(reached.indices, reads))
        if len(reached.indices) > most:
            return None
    lists = reached.take(circuit.outputs)
    rows = rows_of_tiles(len(circuit.outputs))
    ordered, row, tiles = _sorted(lists, rows)
    users, use_row, use_tiles = _sorted(lists.transpose(inputs), rows)
    made = InputLists(*ordered, row, tiles, *users, use_row, use_tiles)
    return made, [rows, len(row), len(tiles), len(use_tiles)]


def _sorted(lists: Csr, rows: int) -> tuple[Csr, np.ndarray, np.ndarray]:
    """Return the lists, the longest first, the number of each before that, and tiles of them."""
    order = np.argsort(-lists.sizes, kind="stable")
    return lists.take(order), order, _table(list(tiles_of(lists.sizes[order], rows, 0)))
