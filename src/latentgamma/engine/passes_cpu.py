"""The kernels of a sum-product pass on the CPU: 16 examples at a time, forward and backward.

`values` has the shape (tiles, rows, TILE): one tile for 16 examples, one row for each node of the
circuit, one lane per example. Rows after those of the nodes hold values of a group that no rule
uses. `grads` has the same shape. The arguments `rule_ptr`, `body_ptr`, `body` and `kind`
are those of a `SumProduct`.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from latentgamma.engine.exactness import (
    COMPLEMENT,
    EXCLUSIVE,
    INDEPENDENT,
)
from latentgamma.engine.passes import (
    FILLED,
    LOG,
    LOG_ODDS,
    NEED_COMPLEMENTS,
    NEED_LOGARITHMS,
    SMALLEST,
    VALUE,
)
from latentgamma.engine.simd import (
    TILE,
    compiled,
    exp_minus_abs,
    fma,
    inlined,
    lanes_sum,
    put,
    row,
    row_of,
    where_above,
)
from latentgamma.engine.tensors import LEAST_COMPLEMENT

Array: TypeAlias = Any
Rows: TypeAlias = Any


# ---- The pass


@inlined
def _body_product(v: Array, start: int, stop: int, body: Array) -> Rows:
    product = row_of(v, 1.0) if start == stop else row(v, body[start])
    for p in range(start + 1, stop):
        product = product * row(v, body[p])
    return product


@compiled
def run_tiles(
    first: int,
    last: int,
    inputs: int,
    rule_ptr: Array,
    body_ptr: Array,
    body: Array,
    kind: Array,
    values: Array,
) -> None:
    """Fill the rows of the derived nodes of some tiles, whose input rows are given."""
    for t in range(first, last):
        v = values[t]
        for n in range(len(kind)):
            total = row_of(v, 0.0)
            if kind[n] == COMPLEMENT:
                total = row_of(v, 1.0) - row(v, body[body_ptr[rule_ptr[n]]])
                total = where_above(total, row_of(v, 0.0), total, 0.0)
            elif kind[n] == INDEPENDENT:
                for j in range(rule_ptr[n], rule_ptr[n + 1]):
                    product = _body_product(v, body_ptr[j], body_ptr[j + 1], body)
                    # No difference of numbers near 1 for a small result.
                    total = fma(product, row_of(v, 1.0) - total, total)
            else:
                for j in range(rule_ptr[n], rule_ptr[n + 1]):
                    total = total + _body_product(v, body_ptr[j], body_ptr[j + 1], body)
            put(v, inputs + n, total)


@inlined
def _add_to(g: Array, n: int, a: Rows, b: Rows) -> None:
    put(g, n, fma(a, b, row(g, n)))


@inlined
def _body_gradient(
    v: Array, g: Array, start: int, stop: int, body: Array, above: Rows, before: Array
) -> None:
    """Add the gradient of one body to the rows of its atoms; `above` is that of the product."""
    size = stop - start
    if size == 1:
        put(g, body[start], row(g, body[start]) + above)
    elif size == 2:
        a, b = body[start], body[start + 1]
        _add_to(g, a, above, row(v, b))
        _add_to(g, b, above, row(v, a))
    elif size == 3:
        a, b, c = body[start], body[start + 1], body[start + 2]
        x, y, z = row(v, a), row(v, b), row(v, c)
        rest = above * z
        _add_to(g, a, rest, y)
        _add_to(g, b, rest, x)
        _add_to(g, c, above, x * y)
    elif size > 3:
        product = row(v, body[start])
        for p in range(start + 1, stop):
            put(before, p - start, product)
            product = product * row(v, body[p])
        after = above
        for p in range(stop - 1, start, -1):
            _add_to(g, body[p], after, row(before, p - start))
            after = after * row(v, body[p])
        put(g, body[start], row(g, body[start]) + after)


@compiled
def gradient_tiles(
    first: int,
    last: int,
    inputs: int,
    rule_ptr: Array,
    body_ptr: Array,
    body: Array,
    kind: Array,
    values: Array,
    grads: Array,
) -> None:
    """Add to the rows of `grads`, which come with the gradient of the outputs."""
    widest, most = 1, 1
    for j in range(len(body_ptr) - 1):
        widest = max(widest, body_ptr[j + 1] - body_ptr[j])
    for n in range(len(kind)):
        if kind[n] == INDEPENDENT:
            most = max(most, rule_ptr[n + 1] - rule_ptr[n])
    before = np.empty((widest, TILE))  # products of the atoms before each one of a body
    none = np.empty((most, TILE))  # 1 - body, for each body of a node
    others = np.empty((most, TILE))  # products of 1 - body over the other bodies
    for t in range(first, last):
        v, g = values[t], grads[t]
        for n in range(len(kind) - 1, -1, -1):
            one, end = rule_ptr[n], rule_ptr[n + 1]
            above = row(g, inputs + n)
            if kind[n] == COMPLEMENT:
                child = body[body_ptr[one]]
                put(g, child, row(g, child) - above)
                continue
            if kind[n] == EXCLUSIVE:
                for j in range(one, end):
                    _body_gradient(v, g, body_ptr[j], body_ptr[j + 1], body, above, before)
                continue
            after = row_of(v, 1.0)
            for j in range(one, end):
                left = row_of(v, 1.0) - _body_product(v, body_ptr[j], body_ptr[j + 1], body)
                put(none, j - one, left)
                put(others, j - one, after)
                after = after * left
            after = above
            for j in range(end - 1, one - 1, -1):
                slope = row(others, j - one) * after
                after = after * row(none, j - one)
                _body_gradient(v, g, body_ptr[j], body_ptr[j + 1], body, slope, before)


# ---- Inputs

# Each of these fills the rows `node[c]` from the columns c of `x` (B, columns) and returns whether
# every number is one that it can use; the lanes beyond the last example are filled too. Where
# `none[c]` is not negative, that row is for the complement of a fact.


@inlined
def _take_columns(x: Array, example: int, column: int, room: Array) -> None:
    """Fill the rows of `room` from columns of up to 16 examples, the others with zeros."""
    count = min(TILE, x.shape[0] - example)
    if count < TILE:
        room[:] = 0.0
    for lane in range(count):
        for i in range(room.shape[0]):
            room[i, lane] = x[example + lane, column + i]


@inlined
def _give_columns(room: Array, out: Array, example: int, column: int) -> bool:
    """Return the inverse of `_take_columns`; returns whether a number is not zero."""
    moves = False
    for lane in range(min(TILE, out.shape[0] - example)):
        for i in range(room.shape[0]):
            out[example + lane, column + i] = room[i, lane]
            moves |= room[i, lane] != 0.0
    return moves


@compiled
def load_values(
    x: Array, width: int, node: Array, none: Array, values: Array, tolerance: float, least: float
) -> bool:
    """Return probabilities as they are; with a `width` above 1, this many columns sum to one.

    The complement of a fact is at least `least`.
    """
    room = np.empty((width, TILE))
    worst = 0.0
    for t in range(values.shape[0]):
        v = values[t]
        outside = row_of(v, 0.0)
        for column in range(0, x.shape[1], width):
            _take_columns(x, t * TILE, column, room)
            total = row_of(v, 0.0)
            for i in range(width):
                p = row(room, i)
                outside = outside + where_above(row_of(v, 0.0), p, row_of(v, 1.0), 0.0)
                outside = outside + where_above(p, row_of(v, 1.0), row_of(v, 1.0), p * 0.0)
                total = total + p
                put(v, node[column + i], p)
                if none[column + i] >= 0:
                    rest = row_of(v, 1.0) - p
                    put(v, none[column + i], where_above(rest, row_of(v, least), rest, least))
            if width > 1:
                put(room, 0, total)
                for lane in range(min(TILE, x.shape[0] - t * TILE)):
                    worst = max(worst, abs(room[0, lane] - 1.0))
        if lanes_sum(outside) != 0.0:
            return False
    return worst <= tolerance


@compiled
def load_log_odds(x: Array, node: Array, none: Array, values: Array) -> bool:
    """Return the probabilities of log-odds."""
    room = np.empty((x.shape[1], TILE))
    for t in range(values.shape[0]):
        v = values[t]
        _take_columns(x, t * TILE, 0, room)
        infinite = row_of(v, 0.0)
        for i in range(x.shape[1]):
            odds = row(room, i)
            infinite = fma(odds, row_of(v, 0.0), infinite)
            unlikely = exp_minus_abs(odds)
            likely = row_of(v, 1.0) / (row_of(v, 1.0) + unlikely)
            put(v, node[i], where_above(odds, row_of(v, 0.0), likely, unlikely * likely))
            if none[i] >= 0:
                put(v, none[i], where_above(odds, row_of(v, 0.0), unlikely * likely, likely))
        if lanes_sum(infinite) != 0.0:
            return False
    return True


@compiled
def load_scores(x: Array, width: int, node: Array, values: Array) -> bool:
    """Return the softmax of each `width` columns."""
    room = np.empty((width, TILE))
    for t in range(values.shape[0]):
        v = values[t]
        infinite = row_of(v, 0.0)
        for column in range(0, x.shape[1], width):
            _take_columns(x, t * TILE, column, room)
            top = row(room, 0)
            for i in range(1, width):
                score = row(room, i)
                top = where_above(score, top, score, top)
            total = row_of(v, 0.0)
            for i in range(width):
                score = row(room, i)
                infinite = fma(score, row_of(v, 0.0), infinite)
                weight = exp_minus_abs(top - score)
                put(room, i, weight)
                total = total + weight
            share = row_of(v, 1.0) / total
            for i in range(width):
                put(v, node[column + i], row(room, i) * share)
        if lanes_sum(infinite) != 0.0:
            return False
    return True


# ---- Gradients of inputs

# Each of these fills `out` (B, columns) and returns whether a number in it is not zero.


@inlined
def _fact_gradient(g: Array, node: int, none: int) -> Rows:
    return row(g, node) if none < 0 else row(g, node) - row(g, none)


@compiled
def value_gradient(grads: Array, node: Array, none: Array, out: Array) -> bool:
    """Return the gradient of probabilities, (B, columns)."""
    room = np.empty((out.shape[1], TILE))
    moves = False
    for t in range(grads.shape[0]):
        for i in range(out.shape[1]):
            put(room, i, _fact_gradient(grads[t], node[i], none[i]))
        moves |= _give_columns(room, out, t * TILE, 0)
    return moves


@compiled
def log_odds_gradient(x: Array, grads: Array, node: Array, none: Array, out: Array) -> bool:
    """Return the gradient of log-odds, (B, columns)."""
    room = np.empty((out.shape[1], TILE))
    moves = False
    for t in range(grads.shape[0]):
        g = grads[t]
        _take_columns(x, t * TILE, 0, room)
        for i in range(out.shape[1]):
            unlikely = exp_minus_abs(row(room, i))
            likely = row_of(g, 1.0) / (row_of(g, 1.0) + unlikely)
            slope = _fact_gradient(g, node[i], none[i])
            put(room, i, slope * unlikely * likely * likely)
        moves |= _give_columns(room, out, t * TILE, 0)
    return moves


@compiled
def score_gradient(values: Array, grads: Array, width: int, node: Array, out: Array) -> bool:
    """Return the gradient of the scores of each `width` columns, (B, columns)."""
    room = np.empty((width, TILE))
    moves = False
    for t in range(grads.shape[0]):
        v, g = values[t], grads[t]
        for column in range(0, out.shape[1], width):
            # Relative to the likeliest value: then no digits cancel where that is almost certain.
            top, slope = row(v, node[column]), row(g, node[column])
            for i in range(1, width):
                p = row(v, node[column + i])
                slope = where_above(p, top, row(g, node[column + i]), slope)
                top = where_above(p, top, p, top)
            mean = row_of(v, 0.0)
            for i in range(width):
                n = node[column + i]
                mean = fma(row(v, n), row(g, n) - slope, mean)
            for i in range(width):
                n = node[column + i]
                put(room, i, row(v, n) * (row(g, n) - slope - mean))
            moves |= _give_columns(room, out, t * TILE, column)
    return moves


# ---- Outputs
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
