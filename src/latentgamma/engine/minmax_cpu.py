"""The min/max closure as compiled CPU loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from latentgamma.engine.minmax import CYCLE, LAST, MAXIMA, MINIMA, NEVER
from latentgamma.engine.simd import (
    TILE,
    compiled,
    exp_minus_abs,
    inlined,
    lanes_sum,
    log,
    put,
    row,
    row_of,
    where_above,
    where_equal,
)
from latentgamma.program.compilation import share_parts

# ---- The kernels: one tile of examples, forward and backward
# A row holds one node for all examples of a tile. `minmax.py` defines what is computed, in plain torch.
# The arguments `ptr`, `child`, `own`, `stage`, `kind` and `middle` are those of a `Circuit`.

Array: TypeAlias = Any
Rows: TypeAlias = Any

_FAR = 2.0 * LAST


@compiled
def load(x: Array, first: int, v: Array) -> None:
    """Put examples from `first` on into the rows of the inputs, and zeros beyond the last one."""
    last = min(first + TILE, x.shape[0])
    for i in range(x.shape[1]):
        for lane in range(last - first):
            v[i, lane] = x[first + lane, i]
        for lane in range(last - first, TILE):
            v[i, lane] = 0


@compiled
def read(v: Array, nodes: Array, out: Array, first: int) -> None:
    """Take the values of some nodes; a constant output is left as it is."""
    for lane in range(min(TILE, out.shape[0] - first)):
        for o in range(len(nodes)):
            if nodes[o] >= 0:
                out[first + lane, o] = v[nodes[o], lane]


@compiled
def add(grad_out: Array, nodes: Array, first: int, g: Array) -> None:
    """Add what arrives at the outputs to their nodes."""
    for lane in range(min(TILE, grad_out.shape[0] - first)):
        for o in range(len(nodes)):
            if nodes[o] >= 0:
                g[nodes[o], lane] += grad_out[first + lane, o]


# ---- Hard


@inlined
def _least(v: Array, ptr: Array, child: Array, n: int) -> Rows:
    least = row(v, child[ptr[n]])
    for p in range(ptr[n] + 1, ptr[n + 1]):
        x = row(v, child[p])
        least = where_above(least, x, x, least)
    return least


@inlined
def _greatest(v: Array, ptr: Array, child: Array, n: int) -> Rows:
    greatest = row(v, child[ptr[n]])
    for p in range(ptr[n] + 1, ptr[n + 1]):
        x = row(v, child[p])
        greatest = where_above(x, greatest, x, greatest)
    return greatest


@inlined
def _at_start(v: Array, own: Array, n: int) -> Rows:
    return row(v, own[n]) if own[n] >= 0 else row_of(v, NEVER)


@inlined
def _hard_maximum(v: Array, ptr: Array, child: Array, own: Array, n: int) -> Rows:
    greatest, mine = _greatest(v, ptr, child, n), _at_start(v, own, n)
    return where_above(mine, greatest, mine, greatest)


@compiled
def hard(
    v: Array, ptr: Array, child: Array, own: Array, stage: Array, kind: Array, middle: Array
) -> None:
    """Fill the rows of all nodes."""
    for s in range(len(kind)):
        if kind[s] == MINIMA:
            for n in range(stage[s], stage[s + 1]):
                put(v, n, _least(v, ptr, child, n))
        elif kind[s] == MAXIMA:
            for n in range(stage[s], stage[s + 1]):
                put(v, n, _hard_maximum(v, ptr, child, own, n))
        else:
            for n in range(middle[s], stage[s + 1]):
                put(v, n, _at_start(v, own, n))
            moving = True
            while moving:  # each pass uses what it has already raised
                moving = False
                for n in range(stage[s], middle[s]):
                    put(v, n, _least(v, ptr, child, n))
                for n in range(middle[s], stage[s + 1]):
                    for p in range(ptr[n], ptr[n + 1]):
                        if stage[s] <= child[p] < middle[s]:
                            put(v, child[p], _least(v, ptr, child, child[p]))
                    after, before = _hard_maximum(v, ptr, child, own, n), row(v, n)
                    put(v, n, after)
                    moving |= lanes_sum(where_equal(after, before, row_of(v, 0.0), 1.0)) > 0


@inlined
def _ranked_minimum(v: Array, rank: Array, ptr: Array, child: Array, n: int) -> None:
    least = _least(v, ptr, child, n)
    deepest = row_of(v, 0.0)
    for p in range(ptr[n], ptr[n + 1]):
        here = where_equal(row(v, child[p]), least, row(rank, child[p]), 0.0)
        deepest = where_above(here, deepest, here, deepest)
    put(v, n, least)
    put(rank, n, deepest)


@inlined
def _ranked_maximum(v: Array, rank: Array, ptr: Array, child: Array, own: Array, n: int) -> Rows:
    """Fill both rows of a maximum, and say in which lanes they changed."""
    greatest, mine = _greatest(v, ptr, child, n), _at_start(v, own, n)
    nearest = row_of(v, _FAR)
    for p in range(ptr[n], ptr[n + 1]):
        here = where_equal(row(v, child[p]), greatest, row(rank, child[p]), _FAR)
        nearest = where_above(nearest, here, here, nearest)
    value = where_above(mine, greatest, mine, greatest)
    last, nearest = row_of(v, float(LAST)), nearest + 1.0
    at_tie = where_above(nearest, last, last, nearest)
    nearest = where_equal(mine, greatest, at_tie, where_above(mine, greatest, last, nearest))
    same = where_equal(value, row(v, n), row_of(v, 0.0), 1.0)
    same = where_equal(nearest, row(rank, n), same, 1.0)
    put(v, n, value)
    put(rank, n, nearest)
    return same


@compiled
def hard_ranked(
    v: Array,
    rank: Array,
    ptr: Array,
    child: Array,
    own: Array,
    stage: Array,
    kind: Array,
    middle: Array,
) -> None:
    """Fill the rows of all nodes, and their ranks; the ranks of the inputs come as 0."""
    for s in range(len(kind)):
        if kind[s] == MINIMA:
            for n in range(stage[s], stage[s + 1]):
                _ranked_minimum(v, rank, ptr, child, n)
        elif kind[s] == MAXIMA:
            for n in range(stage[s], stage[s + 1]):
                _ranked_maximum(v, rank, ptr, child, own, n)
        else:
            for n in range(middle[s], stage[s + 1]):
                put(v, n, _at_start(v, own, n))
                put(rank, n, row_of(v, float(LAST)))
            moving = True
            while moving:
                moving = False
                for n in range(stage[s], middle[s]):
                    _ranked_minimum(v, rank, ptr, child, n)
                for n in range(middle[s], stage[s + 1]):
                    for p in range(ptr[n], ptr[n + 1]):
                        if stage[s] <= child[p] < middle[s]:
                            _ranked_minimum(v, rank, ptr, child, child[p])
                    moving |= lanes_sum(_ranked_maximum(v, rank, ptr, child, own, n)) > 0


@compiled
def hard_backward(
    v: Array,
    rank: Array,
    g: Array,
    ptr: Array,
    child: Array,
    own: Array,
    stage: Array,
    kind: Array,
    middle: Array,
) -> None:
    """Pass the gradient of every node on to its children, down to the inputs."""
    for s in range(len(kind) - 1, -1, -1):
        if kind[s] == CYCLE:
            for lane in range(TILE):
                _cycle_backward(
                    v, rank, g, ptr, child, own, stage[s], middle[s], stage[s + 1], lane
                )
            continue
        for n in range(stage[s + 1] - 1, stage[s] - 1, -1):
            value, given, count = row(v, n), row(g, n), row_of(v, 0.0)
            if kind[s] == MINIMA:
                for p in range(ptr[n], ptr[n + 1]):
                    count = count + where_equal(row(v, child[p]), value, row_of(v, 1.0), 0.0)
                part = given / count
                for p in range(ptr[n], ptr[n + 1]):
                    c = child[p]
                    put(g, c, row(g, c) + where_equal(row(v, c), value, part, 0.0))
                continue
            if own[n] >= 0:
                itself = where_equal(row(rank, n), float(LAST), given, 0.0)
                put(g, own[n], row(g, own[n]) + itself)
                given = given - itself
            near = row(rank, n) - 1.0
            for p in range(ptr[n], ptr[n + 1]):
                c = child[p]
                tied = where_equal(row(v, c), value, row_of(v, 1.0), 0.0)
                count = count + where_equal(row(rank, c), near, tied, 0.0)
            part = given / where_above(count, 0.5, count, row_of(v, 1.0))
            for p in range(ptr[n], ptr[n + 1]):
                c = child[p]
                tied = where_equal(row(v, c), value, part, 0.0)
                put(g, c, row(g, c) + where_equal(row(rank, c), near, tied, 0.0))


@compiled
def _cycle_backward(
    v: Array,
    rank: Array,
    g: Array,
    ptr: Array,
    child: Array,
    own: Array,
    start: int,
    middle: int,
    stop: int,
    lane: int,
) -> None:
    """Do the same inside a cycle, where a gradient goes from each rank to lower ones."""
    order = np.argsort(rank[middle:stop, lane])
    for x in range(len(order) - 1, -1, -1):
        n = middle + order[x]
        given = g[n, lane]
        if given == 0:
            continue
        value, near = v[n, lane], rank[n, lane] - 1
        if rank[n, lane] == LAST:
            g[own[n], lane] += given
            continue
        count = 0
        for p in range(ptr[n], ptr[n + 1]):
            count += v[child[p], lane] == value and rank[child[p], lane] == near
        for p in range(ptr[n], ptr[n + 1]):
            c = child[p]
            if v[c, lane] != value or rank[c, lane] != near:
                continue
            if c < start or c >= middle:
                g[c, lane] += given / count
                continue
            tied = 0
            for q in range(ptr[c], ptr[c + 1]):
                tied += v[child[q], lane] == value
            for q in range(ptr[c], ptr[c + 1]):
                if v[child[q], lane] == value:
                    g[child[q], lane] += given / count / tied


# ---- Smooth


@inlined
def _smooth_minimum(v: Array, ptr: Array, child: Array, n: int, T: float) -> Rows:
    least = _least(v, ptr, child, n)
    total = row_of(v, 0.0)
    for p in range(ptr[n], ptr[n + 1]):
        total = total + exp_minus_abs((row(v, child[p]) - least) / T)
    return least - log(total) * T


@inlined
def _smooth_maximum(v: Array, ptr: Array, child: Array, own: Array, n: int, T: float) -> Rows:
    if own[n] < 0 and ptr[n + 1] == ptr[n] + 1:
        return row(v, child[ptr[n]])
    greatest, mine = _greatest(v, ptr, child, n), _at_start(v, own, n)
    greatest = where_above(mine, greatest, mine, greatest)
    total = row_of(v, 0.0)
    if own[n] >= 0:
        total = exp_minus_abs((greatest - mine) / T)
    for p in range(ptr[n], ptr[n + 1]):
        total = total + exp_minus_abs((greatest - row(v, child[p])) / T)
    return greatest + log(total) * T


@compiled
def smooth(
    v: Array,
    steps: Array,
    ptr: Array,
    child: Array,
    own: Array,
    stage: Array,
    kind: Array,
    middle: Array,
    T: float,
) -> None:
    """Fill the rows of all nodes; `steps` gets a row for each cycle, the steps it took."""
    cycle = 0
    for s in range(len(kind)):
        if kind[s] == MINIMA:
            for n in range(stage[s], stage[s + 1]):
                put(v, n, _smooth_minimum(v, ptr, child, n, T))
        elif kind[s] == MAXIMA:
            for n in range(stage[s], stage[s + 1]):
                put(v, n, _smooth_maximum(v, ptr, child, own, n, T))
        else:
            _count_steps(v, steps, cycle, ptr, child, own, stage[s], middle[s], stage[s + 1])
            for n in range(middle[s], stage[s + 1]):
                put(v, n, _at_start(v, own, n))
            most = int(np.max(steps[cycle]))
            fresh = np.empty((stage[s + 1] - middle[s], TILE), v.dtype)
            for t in range(most):
                _sweep(v, fresh, steps, cycle, t, ptr, child, own, stage[s], middle[s], T)
            cycle += 1


@compiled
def _sweep(
    v: Array,
    fresh: Array,
    steps: Array,
    cycle: int,
    t: int,
    ptr: Array,
    child: Array,
    own: Array,
    start: int,
    middle: int,
    T: float,
) -> None:
    """Take one step of a cycle, in the lanes that take that many."""
    for n in range(start, middle):
        put(v, n, _smooth_minimum(v, ptr, child, n, T))
    for n in range(len(fresh)):
        put(fresh, n, _smooth_maximum(v, ptr, child, own, middle + n, T))
    for n in range(len(fresh)):
        put(
            v,
            middle + n,
            where_above(row(steps, cycle), t + 0.5, row(fresh, n), row(v, middle + n)),
        )


@compiled
def _count_steps(
    v: Array,
    steps: Array,
    cycle: int,
    ptr: Array,
    child: Array,
    own: Array,
    start: int,
    middle: int,
    stop: int,
) -> None:
    """Count the steps after which the hard closure rests in each lane."""
    fresh = np.empty((stop - middle, TILE), v.dtype)
    for n in range(middle, stop):
        put(v, n, _at_start(v, own, n))
    taken, t = row_of(v, 0.0), 0
    while True:
        t += 1
        moved = row_of(v, 0.0)
        for n in range(start, middle):
            put(v, n, _least(v, ptr, child, n))
        for n in range(middle, stop):
            after = _hard_maximum(v, ptr, child, own, n)
            moved = where_equal(after, row(v, n), moved, 1.0)
            put(fresh, n - middle, after)
        if lanes_sum(moved) == 0:
            break
        taken = where_above(moved, 0.5, row_of(v, float(t)), taken)
        for n in range(middle, stop):
            put(v, n, row(fresh, n - middle))
    put(steps, cycle, taken)


@compiled
def smooth_backward(
    v: Array,
    steps: Array,
    g: Array,
    ptr: Array,
    child: Array,
    own: Array,
    stage: Array,
    kind: Array,
    middle: Array,
    T: float,
) -> None:
    """Pass the gradient of every node on to its children, down to the inputs.

    The rows of nodes on a cycle are written to on the way.
    """
    cycle = len(steps)
    for s in range(len(kind) - 1, -1, -1):
        if kind[s] == CYCLE:
            cycle -= 1
            _sweeps_backward(
                v, steps, cycle, g, ptr, child, own, stage[s], middle[s], stage[s + 1], T
            )
            continue
        for n in range(stage[s + 1] - 1, stage[s] - 1, -1):
            value, given = row(v, n), row(g, n)
            if own[n] < 0 and ptr[n + 1] == ptr[n] + 1:
                put(g, child[ptr[n]], row(g, child[ptr[n]]) + given)
                continue
            for p in range(ptr[n], ptr[n + 1]):
                c = child[p]
                # The distance to the result is the exponent of the child's share, either way.
                put(g, c, row(g, c) + given * exp_minus_abs((value - row(v, c)) / T))
            if own[n] >= 0:
                c = own[n]
                put(g, c, row(g, c) + given * exp_minus_abs((value - row(v, c)) / T))


@compiled
def _sweeps_backward(
    v: Array,
    steps: Array,
    cycle: int,
    g: Array,
    ptr: Array,
    child: Array,
    own: Array,
    start: int,
    middle: int,
    stop: int,
    T: float,
) -> None:
    count, most = stop - middle, int(np.max(steps[cycle]))
    history = np.empty((most + 1, count, TILE), v.dtype)
    fresh = np.empty((count, TILE), v.dtype)
    for n in range(middle, stop):
        put(v, n, _at_start(v, own, n))
    history[0] = v[middle:stop]
    for t in range(most):
        _sweep(v, fresh, steps, cycle, t, ptr, child, own, start, middle, T)
        history[t + 1] = v[middle:stop]
    for t in range(most - 1, -1, -1):
        v[middle:stop] = history[t]
        for n in range(start, middle):
            put(v, n, _smooth_minimum(v, ptr, child, n, T))
            put(g, n, row_of(v, 0.0))
        result = history[t + 1]
        # What belongs to the step's result moves to `fresh`; what a lane at rest has stays.
        for n in range(middle, stop):
            here = row(g, n)
            put(fresh, n - middle, where_above(row(steps, cycle), t + 0.5, here, 0.0))
            put(g, n, where_above(row(steps, cycle), t + 0.5, row_of(v, 0.0), here))
        for n in range(middle, stop):
            value, given = row(result, n - middle), row(fresh, n - middle)
            for p in range(ptr[n], ptr[n + 1]):
                c = child[p]
                put(g, c, row(g, c) + given * exp_minus_abs((value - row(v, c)) / T))
            if own[n] >= 0:
                c = own[n]
                put(g, c, row(g, c) + given * exp_minus_abs((value - row(v, c)) / T))
        for n in range(start, middle):
            value, given = row(v, n), row(g, n)
            for p in range(ptr[n], ptr[n + 1]):
                c = child[p]
                put(g, c, row(g, c) + given * exp_minus_abs((row(v, c) - value) / T))
    for n in range(middle, stop):
        if own[n] >= 0:
            put(g, own[n], row(g, own[n]) + row(g, n))
        put(g, n, row_of(v, 0.0))


# ---- A batch: tiles of examples, divided among threads

#: Edges times examples below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 16


def tiles(batch: int) -> tuple[int, int]:
    """Return how many tiles a batch has, and how many examples a tile."""
    return -(-batch // TILE), TILE


def close_batch(
    x: Tensor, structure: Sequence[Tensor], temperature: float, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (B, O), and the nodes and ranks or steps for `close_batch_backward`."""
    *rows, outputs = (_array(tensor) for tensor in structure)
    ptr, child, _, _, kind, _ = rows
    given = _array(x)
    batch, nodes = len(given), len(ptr) - 1
    count, cycles = tiles(batch)[0], int((kind == CYCLE).sum())
    out = np.zeros((batch, len(outputs)), given.dtype)
    kept = np.empty((count if keep else 0, nodes, TILE), given.dtype)
    extra = np.empty((len(kept), nodes if temperature == 0 else cycles, TILE), given.dtype)

    def work(first: int, last: int) -> None:
        room = np.empty((nodes, TILE), given.dtype)
        spare = np.empty((cycles, TILE), given.dtype)
        for tile in range(first, last):
            v = kept[tile] if keep else room
            load(given, tile * TILE, v)
            if temperature > 0:
                smooth(v, extra[tile] if keep else spare, *rows, temperature)
            elif keep:
                extra[tile, : given.shape[1]] = 0
                hard_ranked(v, extra[tile], *rows)
            else:
                hard(v, *rows)
            read(v, outputs, out, tile * TILE)

    _share(work, count, len(child) * batch)
    return torch.from_numpy(out), torch.from_numpy(kept), torch.from_numpy(extra)


def close_batch_backward(
    grad: Tensor,
    structure: Sequence[Tensor],
    temperature: float,
    kept: Tensor,
    extra: Tensor,
    inputs: int,
) -> Tensor:
    """Return the gradient of the inputs (B, I), from that of the outputs (B, O)."""
    *rows, outputs = (_array(tensor) for tensor in structure)
    ptr, child, _, _, kind, _ = rows
    given, values, more = _array(grad), _array(kept), _array(extra)
    batch, nodes = len(given), len(ptr) - 1
    out = np.empty((batch, inputs), given.dtype)
    every_input = np.arange(inputs, dtype=outputs.dtype)

    def work(first: int, last: int) -> None:
        g = np.empty((nodes, TILE), given.dtype)
        for tile in range(first, last):
            g[:] = 0
            add(given, outputs, tile * TILE, g)
            v = values[tile]
            if temperature > 0:
                # Steps on a cycle are taken again, which writes to its rows.
                v = v.copy() if (kind == CYCLE).any() else v
                smooth_backward(v, more[tile], g, *rows, temperature)
            else:
                hard_backward(v, more[tile], g, *rows)
            read(g, every_input, out, tile * TILE)

    _share(work, tiles(batch)[0], 2 * len(child) * batch)
    return torch.from_numpy(out)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().contiguous().numpy()


def _share(work: Callable[[int, int], None], count: int, size: int) -> None:
    """Call `work(first, last)` so that every tile is done, on as many threads as torch may use."""
    share_parts(work, count, torch.get_num_threads() if size >= _WORTH_A_THREAD else 1)
