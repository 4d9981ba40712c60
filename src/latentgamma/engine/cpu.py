"""Circuits as compiled CPU loops: tiles of 16 examples, forward and backward.

`v` has one row for each node, and one lane for each example of a tile; `g` has the gradients.
`reference.py` defines what is computed, in plain torch. The arrays `c` are those of a `Circuit`, in
the order of `Circuit.arrays`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from latentgamma.engine.circuit import (
    CYCLE,
    FALSE,
    INDEPENDENT,
    NEGATIONS,
    NOT,
    PRODUCTS,
    SUM,
)
from latentgamma.engine.fused import (
    FILLED,
    KEEP_LOG_ODDS,
    LOG,
    LOG_ODDS,
    NEED_COMPLEMENTS,
    NEED_LOGARITHMS,
    SMALLEST,
    TO_LOG_ODDS,
    VALUE,
)
from latentgamma.engine.reference import LAST, NEVER, Semiring
from latentgamma.engine.simd import (
    TILE,
    compiled,
    exp_minus_abs,
    fma,
    group,
    inlined,
    lanes_sum,
    log,
    put,
    put_group,
    row,
    row_of,
    where_above,
    where_equal,
)
from latentgamma.engine.tensors import LEAST_COMPLEMENT, array_of
from latentgamma.program.compilation import share_parts

Array: TypeAlias = Any
Arrays: TypeAlias = Any
Rows: TypeAlias = Any

_FAR = 2.0 * LAST


@inlined
def load(x: Array, first: int, column: int, v: Array) -> None:
    """Fill rows from columns of the examples from `first` on; lanes beyond the last one repeat it."""
    for lane in range(TILE):
        example = min(first + lane, x.shape[0] - 1)
        for i in range(v.shape[0]):
            v[i, lane] = x[example, column + i]


@inlined
def store(v: Array, out: Array, first: int, column: int) -> bool:
    """Do the inverse of `load`; return whether a number is not zero."""
    moves = False
    for lane in range(min(TILE, out.shape[0] - first)):
        for i in range(v.shape[0]):
            out[first + lane, column + i] = v[i, lane]
            moves |= v[i, lane] != 0.0
    return moves


@compiled
def read(v: Array, nodes: Array, false: float, true: float, out: Array, first: int) -> None:
    """Take the values of some nodes, which may be FALSE or TRUE."""
    for lane in range(min(TILE, out.shape[0] - first)):
        for o in range(len(nodes)):
            if nodes[o] >= 0:
                out[first + lane, o] = v[nodes[o], lane]
            else:
                out[first + lane, o] = false if nodes[o] == FALSE else true


@compiled
def add(grad_out: Array, nodes: Array, first: int, g: Array) -> None:
    """Fill the rows with what arrives at the outputs, at their nodes."""
    g[:] = 0
    for lane in range(min(TILE, grad_out.shape[0] - first)):
        for o in range(len(nodes)):
            if nodes[o] >= 0:
                g[nodes[o], lane] += grad_out[first + lane, o]


# ---- Minima and maxima: hard where T is 0, otherwise smooth


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
def _complement(v: Array, n: int, one: float, step: float) -> Rows:
    value = row(v, n)
    other, half = row_of(v, one) - value, row_of(v, 0.5 * one)
    # Neither is above one half.
    raised = where_above(value, half, other, other + step)
    return where_above(other, half, other, raised)


@inlined
def _hard_maximum(v: Array, ptr: Array, child: Array, own: Array, n: int) -> Rows:
    greatest, mine = _greatest(v, ptr, child, n), _at_start(v, own, n)
    return where_above(mine, greatest, mine, greatest)


# A function that asks whether there are ranks takes several times as long in every lane, so those
# below are apart from those above.


@inlined
def _ranked_minimum(v: Array, rank: Array, ptr: Array, child: Array, n: int) -> None:
    """Fill the row of a minimum and that of its rank."""
    least, deepest = _least(v, ptr, child, n), row_of(v, 0.0)
    for p in range(ptr[n], ptr[n + 1]):
        here = where_equal(row(v, child[p]), least, row(rank, child[p]), 0.0)
        deepest = where_above(here, deepest, here, deepest)
    put(v, n, least)
    put(rank, n, deepest)


@inlined
def _ranked_maximum(v: Array, rank: Array, ptr: Array, child: Array, own: Array, n: int) -> Rows:
    """Fill the row of a maximum and of its rank; return 1 in the lanes that changed."""
    greatest, mine = _greatest(v, ptr, child, n), _at_start(v, own, n)
    nearest = row_of(v, _FAR)
    for p in range(ptr[n], ptr[n + 1]):
        here = where_equal(row(v, child[p]), greatest, row(rank, child[p]), _FAR)
        nearest = where_above(nearest, here, here, nearest)
    value = where_above(mine, greatest, mine, greatest)
    last, nearest = row_of(v, float(LAST)), nearest + 1.0
    at_tie = where_above(nearest, last, last, nearest)
    nearest = where_equal(mine, greatest, at_tie, where_above(mine, greatest, last, nearest))
    changed = where_equal(value, row(v, n), row_of(v, 0.0), 1.0)
    changed = where_equal(nearest, row(rank, n), changed, 1.0)
    put(v, n, value)
    put(rank, n, nearest)
    return changed


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
def minmax(v: Array, extra: Array, c: Arrays, T: float, one: float, step: float) -> None:
    """Fill the rows of all nodes.

    `extra` gets the ranks of hard values unless it is empty, those of inputs being given; or a row
    for each cycle of smooth values, the steps it took.
    """
    ptr, child, own, stage, kind, middle = c[:6]
    ranked, cycle = T == 0 and len(extra) > 0, 0
    for s in range(len(kind)):
        start, stop = stage[s], stage[s + 1]
        if kind[s] == CYCLE:
            if T > 0:
                _smooth_cycle(v, extra, cycle, c, start, middle[s], stop, T)
            else:
                _hard_cycle(v, extra, c, start, middle[s], stop)
            cycle += 1
        elif kind[s] == NEGATIONS:
            for n in range(start, stop):
                put(v, n, _complement(v, child[ptr[n]], one, step))
            if ranked:
                extra[start:stop] = 0
        elif T > 0:
            _fill_smooth(v, c, start, stop, kind[s] == PRODUCTS, T)
        elif kind[s] == PRODUCTS:
            for n in range(start, stop):
                if ranked:
                    _ranked_minimum(v, extra, ptr, child, n)
                else:
                    put(v, n, _least(v, ptr, child, n))
        else:
            for n in range(start, stop):
                if ranked:
                    _ranked_maximum(v, extra, ptr, child, own, n)
                else:
                    put(v, n, _hard_maximum(v, ptr, child, own, n))


@compiled
def _fill_smooth(v: Array, c: Arrays, start: int, stop: int, least: bool, T: float) -> None:
    ptr, child, own = c[:3]
    for n in range(start, stop):
        if least:
            put(v, n, _smooth_minimum(v, ptr, child, n, T))
        else:
            put(v, n, _smooth_maximum(v, ptr, child, own, n, T))


@compiled
def _hard_cycle(v: Array, rank: Array, c: Arrays, start: int, middle: int, stop: int) -> None:
    ptr, child, own = c[:3]
    for n in range(middle, stop):
        put(v, n, _at_start(v, own, n))
    rank[middle:stop] = LAST
    moving = True
    while moving and len(rank) > 0:  # each pass uses what it has already raised
        moving = False
        for n in range(start, middle):
            _ranked_minimum(v, rank, ptr, child, n)
        for n in range(middle, stop):
            for p in range(ptr[n], ptr[n + 1]):
                if start <= child[p] < middle:
                    _ranked_minimum(v, rank, ptr, child, child[p])
            moving |= lanes_sum(_ranked_maximum(v, rank, ptr, child, own, n)) > 0
    while moving:
        moving = False
        for n in range(start, middle):
            put(v, n, _least(v, ptr, child, n))
        for n in range(middle, stop):
            for p in range(ptr[n], ptr[n + 1]):
                if start <= child[p] < middle:
                    put(v, child[p], _least(v, ptr, child, child[p]))
            after, before = _hard_maximum(v, ptr, child, own, n), row(v, n)
            put(v, n, after)
            moving |= lanes_sum(where_equal(after, before, row_of(v, 0.0), 1.0)) > 0


@compiled
def _sweep(
    v: Array, fresh: Array, steps: Array, t: int, c: Arrays, start: int, middle: int, T: float
) -> None:
    """Take step t of a cycle in the lanes that take that many."""
    ptr, child, own = c[:3]
    _fill_smooth(v, c, start, middle, True, T)
    for n in range(len(fresh)):
        put(fresh, n, _smooth_maximum(v, ptr, child, own, middle + n, T))
    for n in range(len(fresh)):
        after = where_above(row(steps, 0), t + 0.5, row(fresh, n), row(v, middle + n))
        put(v, middle + n, after)


@compiled
def _smooth_cycle(
    v: Array, steps: Array, cycle: int, c: Arrays, start: int, middle: int, stop: int, T: float
) -> None:
    """Take as many steps in each lane as the hard closure needs until it rests."""
    ptr, child, own = c[:3]
    fresh = np.empty((stop - middle, TILE), v.dtype)
    taken, t = row_of(v, 0.0), 0
    for n in range(middle, stop):
        put(v, n, _at_start(v, own, n))
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
        v[middle:stop] = fresh
    put(steps, cycle, taken)
    for n in range(middle, stop):
        put(v, n, _at_start(v, own, n))
    for t in range(int(np.max(steps[cycle]))):
        _sweep(v, fresh, steps[cycle : cycle + 1], t, c, start, middle, T)


@compiled
def _hard_shares(v: Array, rank: Array, g: Array, c: Arrays, start: int, stop: int) -> None:
    """Divide the gradient of maxima among the children that decide them."""
    ptr, child, own = c[:3]
    for n in range(stop - 1, start - 1, -1):
        value, given, count = row(v, n), row(g, n), row_of(v, 0.0)
        if own[n] >= 0:
            itself = where_equal(row(rank, n), float(LAST), given, 0.0)
            put(g, own[n], row(g, own[n]) + itself)
            given = given - itself
        near = row(rank, n) - 1.0
        for p in range(ptr[n], ptr[n + 1]):
            x = child[p]
            tied = where_equal(row(v, x), value, row_of(v, 1.0), 0.0)
            count = count + where_equal(row(rank, x), near, tied, 0.0)
        part = given / where_above(count, 0.5, count, row_of(v, 1.0))
        for p in range(ptr[n], ptr[n + 1]):
            x = child[p]
            tied = where_equal(row(v, x), value, part, 0.0)
            put(g, x, row(g, x) + where_equal(row(rank, x), near, tied, 0.0))


@inlined
def _smooth_shares(
    v: Array, g: Array, ptr: Array, child: Array, own: Array, n: int, value: Rows, given: Rows,
    T: float,
) -> None:  # fmt: skip
    """Divide the gradient of a node among its children and its own input."""
    for p in range(ptr[n], ptr[n + 1]):
        c = child[p]
        # The distance to the result is the exponent of the child's share, either way.
        put(g, c, row(g, c) + given * exp_minus_abs((value - row(v, c)) / T))
    if own[n] >= 0:
        c = own[n]
        put(g, c, row(g, c) + given * exp_minus_abs((value - row(v, c)) / T))


@compiled
def minmax_backward(v: Array, extra: Array, g: Array, c: Arrays, T: float) -> None:
    """Pass the gradient of every node on to its children, down to the inputs.

    The rows of nodes on a cycle of smooth values are written to on the way.
    """
    ptr, child, own, stage, kind, middle = c[:6]
    cycle = len(extra)
    for s in range(len(kind) - 1, -1, -1):
        start, stop = stage[s], stage[s + 1]
        if kind[s] == CYCLE and T > 0:
            cycle -= 1
            _smooth_cycle_backward(v, extra[cycle : cycle + 1], g, c, start, middle[s], stop, T)
        elif kind[s] == CYCLE:
            for lane in range(TILE):
                _hard_cycle_backward(v, extra, g, c, start, middle[s], stop, lane)
        elif kind[s] == NEGATIONS:
            for n in range(start, stop):
                put(g, child[ptr[n]], row(g, child[ptr[n]]) - row(g, n))
        elif T > 0:
            for n in range(stop - 1, start - 1, -1):
                if own[n] < 0 and ptr[n + 1] == ptr[n] + 1:
                    put(g, child[ptr[n]], row(g, child[ptr[n]]) + row(g, n))
                else:
                    _smooth_shares(v, g, ptr, child, own, n, row(v, n), row(g, n), T)
        elif kind[s] == PRODUCTS:
            for n in range(stop - 1, start - 1, -1):
                value, count = row(v, n), row_of(v, 0.0)
                for p in range(ptr[n], ptr[n + 1]):
                    count = count + where_equal(row(v, child[p]), value, row_of(v, 1.0), 0.0)
                part = row(g, n) / count
                for p in range(ptr[n], ptr[n + 1]):
                    x = child[p]
                    put(g, x, row(g, x) + where_equal(row(v, x), value, part, 0.0))
        else:
            _hard_shares(v, extra, g, c, start, stop)


@compiled
def _hard_cycle_backward(
    v: Array, rank: Array, g: Array, c: Arrays, start: int, middle: int, stop: int, lane: int
) -> None:
    """Do the same inside a cycle, where a gradient goes from each rank to lower ones."""
    ptr, child, own = c[:3]
    order = np.argsort(rank[middle:stop, lane])
    for i in range(len(order) - 1, -1, -1):
        n = middle + order[i]
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
            x = child[p]
            if v[x, lane] != value or rank[x, lane] != near:
                continue
            if x < start or x >= middle:
                g[x, lane] += given / count
                continue
            tied = 0
            for q in range(ptr[x], ptr[x + 1]):
                tied += v[child[q], lane] == value
            for q in range(ptr[x], ptr[x + 1]):
                if v[child[q], lane] == value:
                    g[child[q], lane] += given / count / tied


@compiled
def _smooth_cycle_backward(
    v: Array, steps: Array, g: Array, c: Arrays, start: int, middle: int, stop: int, T: float
) -> None:
    ptr, child, own = c[:3]
    count, most = stop - middle, int(np.max(steps))
    history = np.empty((most + 1, count, TILE), v.dtype)
    fresh = np.empty((count, TILE), v.dtype)
    for n in range(middle, stop):
        put(v, n, _at_start(v, own, n))
    history[0] = v[middle:stop]
    for t in range(most):
        _sweep(v, fresh, steps, t, c, start, middle, T)
        history[t + 1] = v[middle:stop]
    for t in range(most - 1, -1, -1):
        v[middle:stop] = history[t]
        _fill_smooth(v, c, start, middle, True, T)
        g[start:middle] = 0
        # What belongs to the step's result moves to `fresh`; what a lane at rest has stays.
        for n in range(middle, stop):
            here = row(g, n)
            put(fresh, n - middle, where_above(row(steps, 0), t + 0.5, here, 0.0))
            put(g, n, where_above(row(steps, 0), t + 0.5, row_of(v, 0.0), here))
        result = history[t + 1]
        for n in range(middle, stop):
            _smooth_shares(
                v, g, ptr, child, own, n, row(result, n - middle), row(fresh, n - middle), T
            )
        for n in range(start, middle):
            _smooth_shares(v, g, ptr, child, own, n, row(v, n), row(g, n), T)
    for n in range(middle, stop):
        if own[n] >= 0:
            put(g, own[n], row(g, own[n]) + row(g, n))
        put(g, n, row_of(v, 0.0))


# ---- Sums and products of probabilities


@inlined
def _product(v: Array, start: int, stop: int, part: Array) -> Rows:
    product = row_of(v, 1.0) if start == stop else row(v, part[start])
    for p in range(start + 1, stop):
        product = product * row(v, part[p])
    return product


@compiled
def real(v: Array, c: Arrays, inputs: int) -> None:
    """Fill the rows of all nodes of a tile, whose input rows are given."""
    term_ptr, part_ptr, part, kind, own = c[6], c[7], c[1], c[8], c[2]
    for n in range(inputs, len(kind)):
        total = row(v, own[n]) if own[n] >= 0 else row_of(v, 0.0)
        if kind[n] == NOT:
            total = row_of(v, 1.0) - row(v, part[part_ptr[term_ptr[n]]])
            total = where_above(total, row_of(v, 0.0), total, 0.0)
        elif kind[n] == INDEPENDENT:
            for j in range(term_ptr[n], term_ptr[n + 1]):
                product = _product(v, part_ptr[j], part_ptr[j + 1], part)
                # No difference of numbers near 1 for a small result.
                total = fma(product, row_of(v, 1.0) - total, total)
        else:
            for j in range(term_ptr[n], term_ptr[n + 1]):
                total = total + _product(v, part_ptr[j], part_ptr[j + 1], part)
        put(v, n, total)


@compiled
def fill_tiles(first: int, last: int, c: Arrays, inputs: int, values: Array) -> None:
    """Fill the rows of all nodes of some tiles, whose input rows are given."""
    for t in range(first, last):
        real(values[t], c, inputs)


@inlined
def _add_to(g: Array, n: int, a: Rows, b: Rows) -> None:
    put(g, n, fma(a, b, row(g, n)))


@inlined
def _product_gradient(
    v: Array, g: Array, start: int, stop: int, part: Array, above: Rows, before: Array
) -> None:
    """Add the gradient of one term to the rows of its parts; `above` is that of the product."""
    size = stop - start
    if size == 1:
        put(g, part[start], row(g, part[start]) + above)
    elif size == 2:
        a, b = part[start], part[start + 1]
        _add_to(g, a, above, row(v, b))
        _add_to(g, b, above, row(v, a))
    elif size == 3:
        a, b, c = part[start], part[start + 1], part[start + 2]
        x, y, z = row(v, a), row(v, b), row(v, c)
        rest = above * z
        _add_to(g, a, rest, y)
        _add_to(g, b, rest, x)
        _add_to(g, c, above, x * y)
    elif size > 3:
        product = row(v, part[start])
        for p in range(start + 1, stop):
            put(before, p - start, product)
            product = product * row(v, part[p])
        after = above
        for p in range(stop - 1, start, -1):
            _add_to(g, part[p], after, row(before, p - start))
            after = after * row(v, part[p])
        put(g, part[start], row(g, part[start]) + after)


@compiled
def gradient_tiles(
    first: int, last: int, c: Arrays, inputs: int, values: Array, grads: Array
) -> None:
    """Add to the rows of `grads`, which come with the gradient of the outputs."""
    term_ptr, part_ptr, part, kind, own = c[6], c[7], c[1], c[8], c[2]
    widest, most = 1, 1
    for j in range(len(part_ptr) - 1):
        widest = max(widest, part_ptr[j + 1] - part_ptr[j])
    for n in range(inputs, len(kind)):
        if kind[n] == INDEPENDENT:
            most = max(most, term_ptr[n + 1] - term_ptr[n])
    before = np.empty(
        (widest, TILE), values.dtype
    )  # products of the parts before each one of a term
    none = np.empty((most, TILE), values.dtype)  # 1 - term, for each term of a node
    others = np.empty((most, TILE), values.dtype)  # products of 1 - term over the other terms
    for t in range(first, last):
        v, g = values[t], grads[t]
        for n in range(len(kind) - 1, inputs - 1, -1):
            one, end = term_ptr[n], term_ptr[n + 1]
            above = row(g, n)
            if kind[n] == NOT:
                child = part[part_ptr[one]]
                put(g, child, row(g, child) - above)
                continue
            if kind[n] == SUM:
                if own[n] >= 0:
                    put(g, own[n], row(g, own[n]) + above)
                for j in range(one, end):
                    _product_gradient(v, g, part_ptr[j], part_ptr[j + 1], part, above, before)
                continue
            after = row_of(v, 1.0)
            for j in range(one, end):
                left = row_of(v, 1.0) - _product(v, part_ptr[j], part_ptr[j + 1], part)
                put(none, j - one, left)
                put(others, j - one, after)
                after = after * left
            after = above
            for j in range(end - 1, one - 1, -1):
                slope = row(others, j - one) * after
                after = after * row(none, j - one)
                _product_gradient(v, g, part_ptr[j], part_ptr[j + 1], part, slope, before)


# ---- A batch: tiles of examples, divided among threads

#: Edges times examples below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 17


@compiled
def run_tiles(
    first: int, last: int, keep: bool, c: Arrays, x: Array, kept: Array, extra: Array, out: Array,
    T: float, false: float, true: float, step: float, is_real: bool,
) -> None:  # fmt: skip
    """Run the circuit on some tiles; without `keep` they share one of `kept` and `extra`."""
    for tile in range(first, last):
        v, more = kept[tile if keep else 0], extra[tile if keep else 0]
        load(x, tile * TILE, 0, v[: x.shape[1]])
        if is_real:
            real(v, c, x.shape[1])
        else:
            if T == 0:
                more[: x.shape[1]] = 0
            minmax(v, more, c, T, false + true, step)
        read(v, c[9], false, true, out, tile * TILE)


@compiled
def run_tiles_backward(
    first: int, last: int, c: Arrays, grad: Array, kept: Array, extra: Array, out: Array, T: float,
    is_real: bool,
) -> None:  # fmt: skip
    """Pass the gradients of the outputs on to the inputs."""
    g = np.empty((1, *kept.shape[1:]), kept.dtype)
    for tile in range(first, last):
        add(grad, c[9], tile * TILE, g[0])
        if is_real:
            gradient_tiles(0, 1, c, out.shape[1], kept[tile : tile + 1], g)
        else:
            # Steps on a cycle are taken again, which writes to its rows.
            v = kept[tile].copy() if T > 0 and extra.shape[1] else kept[tile]
            minmax_backward(v, extra[tile], g[0], c, T)
        store(g[0, : out.shape[1]], out, tile * TILE, 0)


def tiles(batch: int) -> tuple[int, int]:
    """Return how many tiles a batch has, and how many examples a tile."""
    return -(-batch // TILE), TILE


def run(
    c: Arrays, sizes: Sequence[int], semiring: Semiring, inputs: Tensor, *, keep: bool
) -> tuple[Tensor, ...]:
    """Return the outputs (B, O), and what `back` needs: the nodes, and their ranks or steps.

    The inputs (B, I) are in float32 or float64; `keep` says whether a gradient will be asked for.
    The last of the `sizes` is the number of cycles.
    """
    found = run_on_arrays(c, sizes[-1], semiring, array_of(inputs), keep=keep)
    return tuple(map(torch.from_numpy, found))


def back(
    c: Arrays, sizes: Sequence[int], semiring: Semiring, kept: Tensor, extra: Tensor,
    grad: Tensor, inputs: int,
) -> Tensor:  # fmt: skip
    """Return the gradient of the inputs (B, I), from that of the outputs (B, O)."""
    arrays = kept.numpy(), extra.numpy(), array_of(grad)
    return torch.from_numpy(back_on_arrays(c, semiring, *arrays, inputs))


def run_on_arrays(
    c: Arrays, cycles: int, semiring: Semiring, x: Array, *, keep: bool
) -> tuple[Array, Array, Array]:
    """Return what `run` returns, as arrays."""
    T, (count, _), size = semiring.temperature, tiles(len(x)), len(c[8])
    out = np.empty((len(x), len(c[9])), x.dtype)
    is_real = semiring.name == "real"
    more = 0 if is_real else cycles if T > 0 else size if keep else 0
    kept = np.empty((count if keep else 0, size, TILE), x.dtype)
    extra = np.empty((len(kept), more, TILE), x.dtype)

    def work(first: int, last: int) -> None:
        room, spare = kept, extra
        if not keep:
            room, spare = np.empty((1, size, TILE), x.dtype), np.empty((1, more, TILE), x.dtype)
        run_tiles(first, last, keep, c, x, room, spare, out, T, semiring.false, semiring.true,
                  semiring.step(x.dtype), is_real)  # fmt: skip

    share_tiles(work, count, len(c[1]))
    return out, kept, extra


def back_on_arrays(
    c: Arrays, semiring: Semiring, kept: Array, extra: Array, grad: Array, inputs: int
) -> Array:
    """Return what `back` returns, as an array."""
    out = np.empty((len(grad), inputs), grad.dtype)
    T, is_real = semiring.temperature, semiring.name == "real"

    def work(first: int, last: int) -> None:
        run_tiles_backward(first, last, c, grad, kept, extra, out, T, is_real)

    share_tiles(work, len(kept), 2 * len(c[1]))
    return out


def share_tiles(work: Callable[[int, int], None], count: int, edges: int) -> None:
    """Call `work(first, last)` so that every tile is done, on as many threads as torch may use."""
    worth = edges * count * TILE >= _WORTH_A_THREAD
    share_parts(work, count, torch.get_num_threads() if worth else 1)


# ---- Between values and log-odds, with the slopes of `log_odds` and `probability`


@compiled
def load_columns(x: Array, how: int, eps: float, first: int, out: Array) -> bool:
    """Fill columns from `first` on; return whether all are values in [0, 1], or log-odds."""
    fine, n = True, x.shape[1]
    held = np.empty(-(-n // TILE) * TILE if how == TO_LOG_ODDS else 0, out.dtype)
    for b in range(x.shape[0]):
        for i in range(n):
            value = x[b, i]
            if how == KEEP_LOG_ODDS:
                fine &= not math.isnan(value)
                value = min(max(value, -1e6), 1e6)
            else:
                fine &= 0.0 <= value <= 1.0
            if how == TO_LOG_ODDS:
                held[i] = min(max(value, 1e-17), 1.0 - 0.5 * eps)
            else:
                out[b, first + i] = value
        if how == TO_LOG_ODDS:
            held[n:] = 0.5
            for g in range(len(held) // TILE):
                p = group(held, g)
                put_group(held, g, log(p) - log(1.0 - p))
            out[b, first : first + n] = held[:n]
    return fine


@compiled
def read_probabilities(odds: Array, hard: bool, eps: float, out: Array) -> None:
    """Fill `out` with probabilities; if hard, those of positive log-odds are above one half."""
    for b in range(odds.shape[0]):
        for o in range(odds.shape[1]):
            small = 1.0 / (1.0 + math.exp(abs(odds[b, o])))
            out[b, o] = 1.0 - small if odds[b, o] > 0 else small
            if hard and odds[b, o] > 0 and out[b, o] <= 0.5:
                out[b, o] += 0.5 * eps


@compiled
def probability_slope(odds: Array, grad: Array, out: Array) -> None:
    """Fill `out` with the gradient of log-odds, from that of their probabilities."""
    for b in range(odds.shape[0]):
        for o in range(odds.shape[1]):
            small = 1.0 / (1.0 + math.exp(abs(odds[b, o])))
            out[b, o] = grad[b, o] * small * (1.0 - small)


@compiled
def log_odds_slope(values: Array, eps: float, grad: Array) -> None:
    """Turn the gradient of log-odds into that of their values."""
    for b in range(values.shape[0]):
        for i in range(values.shape[1]):
            held = min(max(values[b, i], 1e-17), 1.0 - 0.5 * eps)
            grad[b, i] = grad[b, i] / held + grad[b, i] / (1.0 - held)


# ---- The inputs of a sum-product pass: probabilities, log-odds or scores of a softmax


@inlined
def _likely(odds: Rows, one: Rows) -> tuple[Rows, Rows]:
    """Return the probabilities that log-odds give to the likelier and to the other sign."""
    unlikely = exp_minus_abs(odds)
    likely = one / (one + unlikely)
    return likely, unlikely * likely


@inlined
def _load_probabilities(
    room: Array, width: int, node: Array, none: Array, v: Array, tolerance: float, least: float
) -> Rows:
    zero, one = row_of(v, 0.0), row_of(v, 1.0)
    refused, total = zero, zero
    for i in range(room.shape[0]):
        p = row(room, i)
        refused = refused + where_above(zero, p, one, 0.0)
        refused = refused + where_above(p, one, one, p * 0.0)
        total = total + p
        put(v, node[i], p)
        if none[i] >= 0:
            rest = one - p
            put(v, none[i], where_above(rest, row_of(v, least), rest, least))
    if width > 1:
        missing = total - one
        missing = where_above(missing, zero, missing, zero - missing)
        refused = refused + where_above(missing, row_of(v, tolerance), one, 0.0)
    return refused


@inlined
def _load_log_odds(room: Array, node: Array, none: Array, v: Array) -> Rows:
    zero, one = row_of(v, 0.0), row_of(v, 1.0)
    infinite = zero
    for i in range(room.shape[0]):
        odds = row(room, i)
        infinite = fma(odds, zero, infinite)
        more, less = _likely(odds, one)
        put(v, node[i], where_above(odds, zero, more, less))
        if none[i] >= 0:
            put(v, none[i], where_above(odds, zero, less, more))
    return infinite


@inlined
def _load_scores(room: Array, node: Array, v: Array) -> Rows:
    infinite, total, top = row_of(v, 0.0), row_of(v, 0.0), row(room, 0)
    for i in range(1, room.shape[0]):
        score = row(room, i)
        top = where_above(score, top, score, top)
    for i in range(room.shape[0]):
        score = row(room, i)
        infinite = fma(score, row_of(v, 0.0), infinite)
        weight = exp_minus_abs(top - score)
        put(room, i, weight)
        total = total + weight
    share = row_of(v, 1.0) / total
    for i in range(room.shape[0]):
        put(v, node[i], row(room, i) * share)
    return infinite


@compiled
def load_inputs(
    x: Array, logits: bool, width: int, node: Array, none: Array, values: Array, tolerance: float,
    least: float,
) -> bool:  # fmt: skip
    """Fill the rows `node[c]` with the probabilities of the columns c of `x` (B, columns).

    These are probabilities, or with `logits` log-odds; with a `width` above 1, this many columns
    are a distribution, or scores. Where `none[c]` is not negative, that row gets the complement of
    a fact, at least `least` for probabilities. Return whether every number is one that can be used.
    """
    size = width if width > 1 else x.shape[1]
    room = np.empty((size, TILE))
    for t in range(values.shape[0]):
        v = values[t]
        refused = row_of(v, 0.0)
        for column in range(0, x.shape[1], size):
            load(x, t * TILE, column, room)
            rows, others = node[column : column + size], none[column : column + size]
            if not logits:
                wrong = _load_probabilities(room, width, rows, others, v, tolerance, least)
            elif width > 1:
                wrong = _load_scores(room, rows, v)
            else:
                wrong = _load_log_odds(room, rows, others, v)
            refused = refused + wrong
        if lanes_sum(refused) != 0.0:
            return False
    return True


@inlined
def _score_gradient(v: Array, g: Array, node: Array, room: Array) -> None:
    # Relative to the likeliest value: then no digits cancel where that is almost certain.
    top, slope = row(v, node[0]), row(g, node[0])
    for i in range(1, len(node)):
        p = row(v, node[i])
        slope = where_above(p, top, row(g, node[i]), slope)
        top = where_above(p, top, p, top)
    mean = row_of(v, 0.0)
    for i in range(len(node)):
        mean = fma(row(v, node[i]), row(g, node[i]) - slope, mean)
    for i in range(len(node)):
        put(room, i, row(v, node[i]) * (row(g, node[i]) - slope - mean))


@compiled
def input_gradient(
    x: Array, logits: bool, width: int, node: Array, none: Array, values: Array, grads: Array,
    out: Array,
) -> bool:  # fmt: skip
    """Fill `out` (B, columns) with the gradient of the inputs; return whether one is not zero.

    The arguments are those of `load_inputs`; `grads` has the gradients of the rows `values`.
    """
    size = width if logits and width > 1 else x.shape[1]
    room = np.empty((size, TILE))
    moves = False
    for t in range(grads.shape[0]):
        v, g = values[t], grads[t]
        for column in range(0, x.shape[1], size):
            if logits and width > 1:
                _score_gradient(v, g, node[column : column + size], room)
            else:
                if logits:
                    load(x, t * TILE, column, room)
                for i in range(size):
                    slope = row(g, node[i])
                    if none[i] >= 0:
                        slope = slope - row(g, none[i])
                    if logits:
                        more, less = _likely(row(room, i), row_of(g, 1.0))
                        slope = slope * less * more
                    put(room, i, slope)
            moves |= store(room, out, t * TILE, column)
    return moves


# ---- The outputs of a sum-product pass: probabilities, logarithms or log-odds


@compiled
def read_outputs(values: Array, node: Array, complement: Array, kind: Array, out: Array) -> int:
    """Fill `out` (B, O); return FILLED, NEED_LOGARITHMS or NEED_COMPLEMENTS.

    A negative `node` is certain or impossible; its column is left as it is. A negative
    `complement` is not computed.
    """
    small, saturated = False, False
    for example in range(out.shape[0]):
        v = values[example // TILE]
        lane = example % TILE
        for o in range(len(node)):
            if node[o] < 0:
                continue
            p = v[node[o], lane]
            if kind[o] == VALUE:
                out[example, o] = min(max(p, 0.0), 1.0)
            elif p < SMALLEST:
                small = True
            elif kind[o] == LOG:
                out[example, o] = math.log(p)
            elif 1.0 - p >= LEAST_COMPLEMENT:
                out[example, o] = math.log(p) - math.log(1.0 - p)
            elif complement[o] < 0:
                saturated = True
            else:
                q = v[complement[o], lane]
                small |= q < SMALLEST
                out[example, o] = math.log1p(-q) - math.log(max(q, SMALLEST))
    if small:
        return NEED_LOGARITHMS
    return NEED_COMPLEMENTS if saturated else FILLED


@compiled
def output_gradient(
    values: Array, node: Array, complement: Array, kind: Array, grad_out: Array, grads: Array
) -> None:
    """Fill `grads` with the gradient of the outputs (B, O) at the rows of their nodes."""
    grads[:] = 0.0
    for example in range(grad_out.shape[0]):
        v, g = values[example // TILE], grads[example // TILE]
        lane = example % TILE
        for o in range(len(node)):
            if node[o] < 0:
                continue
            slope = float(grad_out[example, o])
            n = node[o]
            if kind[o] != VALUE:
                p = v[n, lane]
                if kind[o] == LOG_ODDS and 1.0 - p < LEAST_COMPLEMENT:
                    n = complement[o]
                    p, slope = v[n, lane], -slope
                slope /= p
                if kind[o] == LOG_ODDS:
                    slope /= 1.0 - p
            g[n, lane] += slope
