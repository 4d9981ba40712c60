"""Passes over a decision diagram as compiled CPU loops; `diagram_torch.py` defines what they compute.

A row holds one node, branch or label for all examples of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from latentgamma.engine.cpu import load, share_tiles, store, tiles
from latentgamma.engine.diagram import LEAST, NEVER
from latentgamma.engine.simd import (
    TILE,
    compiled,
    exp_minus_abs,
    inlined,
    log,
    put,
    row,
    row_of,
    where_above,
)
from latentgamma.engine.tensors import array_of

Array: TypeAlias = Any
#: Those of a diagram, in the order of `_STRUCTURE` in `diagram_torch.py`.
Arrays: TypeAlias = Any
Rows: TypeAlias = Any

# A branch takes exponentials and logarithms, an edge of a circuit one product.
_OPERATIONS_PER_EDGE = 8


@inlined
def _total(w: Array, v: Array, label: Array, ptr: Array, child: Array, n: int, k: int) -> Rows:
    total = row(w, 2 * label[n] + k)
    for p in range(ptr[2 * n + k], ptr[2 * n + k + 1]):
        total = total + row(v, child[p])
    return total


# ---- Sums over the models


@compiled
def _weights(h: Array, w: Array, p: Array) -> None:
    """Fill the logarithms (2L rows) and values (2L rows) of the probabilities of both signs."""
    for i in range(h.shape[0]):
        x = row(h, i)
        e = exp_minus_abs(x)
        small, large = e / (e + 1.0), row_of(h, 1.0) / (e + 1.0)
        soft = log(e + 1.0)
        zero = row_of(h, 0.0)
        put(p, 2 * i + 1, where_above(x, zero, large, small))
        put(p, 2 * i, where_above(x, zero, small, large))
        put(w, 2 * i + 1, where_above(x, zero, zero, x) - soft)
        put(w, 2 * i, where_above(x, zero, zero - x, zero) - soft)


@compiled
def _up(w: Array, v: Array, s: Array, d: Arrays) -> None:
    """Fill the log-probability of each node, and the share of each branch in it."""
    label, is_open, ptr, child = d[:4]
    for n in range(len(label)):
        if is_open[2 * n] and is_open[2 * n + 1]:
            no = _total(w, v, label, ptr, child, n, 0)
            yes = _total(w, v, label, ptr, child, n, 1)
            e = exp_minus_abs(yes - no)
            small, large = e / (e + 1.0), row_of(v, 1.0) / (e + 1.0)
            put(v, n, where_above(yes, no, yes, no) + log(e + 1.0))
            put(s, 2 * n + 1, where_above(yes, no, large, small))
            put(s, 2 * n, where_above(yes, no, small, large))
        else:
            k = 1 if is_open[2 * n + 1] else 0
            put(v, n, _total(w, v, label, ptr, child, n, k))
            put(s, 2 * n + k, row_of(v, 1.0))
            put(s, 2 * n + 1 - k, row_of(v, 0.0))


@compiled
def _down(s: Array, f: Array, q: Array, r: Array, d: Arrays) -> None:
    """Fill the probability of each node, of each decided sign (q) and of being free (r)."""
    label, is_open, ptr, child, free_ptr, free, root = d
    for n in range(f.shape[0]):
        put(f, n, row_of(f, 0.0))
    for i in range(r.shape[0]):
        put(r, i, row_of(f, 0.0))
        put(q, 2 * i, row_of(f, 0.0))
        put(q, 2 * i + 1, row_of(f, 0.0))
    for i in range(len(root)):
        put(f, root[i], row_of(f, 1.0))
    for n in range(len(label) - 1, -1, -1):
        for k in range(2):
            b = 2 * n + k
            if not is_open[b]:
                continue
            g = row(f, n) * row(s, b)
            put(q, 2 * label[n] + k, row(q, 2 * label[n] + k) + g)
            for t in range(ptr[b], ptr[b + 1]):
                put(f, child[t], row(f, child[t]) + g)
            for t in range(free_ptr[b], free_ptr[b + 1]):
                put(r, free[t], row(r, free[t]) + g)


@compiled
def _posterior(p: Array, q: Array, r: Array) -> None:
    """Add what free labels contribute to the probabilities of both signs."""
    for i in range(r.shape[0]):
        for k in range(2):
            x = row(q, 2 * i + k) + row(r, i) * row(p, 2 * i + k)
            put(q, 2 * i + k, where_above(x, row_of(p, LEAST), x, row_of(p, LEAST)))


@compiled
def _log_odds(q: Array, h: Array) -> None:
    for i in range(h.shape[0]):
        put(h, i, log(row(q, 2 * i + 1)) - log(row(q, 2 * i)))


@compiled
def _adjoint(
    h: Array, p: Array, q: Array, r: Array, s: Array, f: Array, grad: Array, aq: Array, ar: Array,
    af: Array, at: Array, av: Array, aw: Array, d: Arrays,
) -> None:  # fmt: skip
    """Replace the gradient of the log-odds that come out by that of those that go in.

    `aq`, `ar`, `af`, `at`, `av` and `aw` are adjoints: of q, r, f, the totals of the branches, the
    nodes and w. Each is multiplied by the value it belongs to before it is added up, so that a large
    one, of a small probability, does no harm.
    """
    label, is_open, ptr, child, free_ptr, free = d[:6]
    for i in range(grad.shape[0]):
        g = row(grad, i)
        yes, no = g / row(q, 2 * i + 1), row_of(h, 0.0) - g / row(q, 2 * i)
        put(aq, 2 * i + 1, yes)
        put(aq, 2 * i, no)
        put(ar, i, yes * row(p, 2 * i + 1) + no * row(p, 2 * i))
        put(aw, 2 * i, row_of(h, 0.0))
        put(aw, 2 * i + 1, row_of(h, 0.0))
    for n in range(len(label)):
        put(av, n, row_of(h, 0.0))
        total = row_of(h, 0.0)
        for k in range(2):
            b = 2 * n + k
            ag = row_of(h, 0.0)
            if is_open[b]:
                ag = row(aq, 2 * label[n] + k)
                for t in range(ptr[b], ptr[b + 1]):
                    ag = ag + row(af, child[t])
                for t in range(free_ptr[b], free_ptr[b + 1]):
                    ag = ag + row(ar, free[t])
            put(at, b, ag)
            total = total + row(s, b) * ag
        put(af, n, total)
        if is_open[2 * n] and is_open[2 * n + 1]:
            both = row(f, n) * row(s, 2 * n) * row(s, 2 * n + 1)
            change = both * row(at, 2 * n + 1) - both * row(at, 2 * n)
            put(at, 2 * n + 1, change)
            put(at, 2 * n, row_of(h, 0.0) - change)
        else:
            put(at, 2 * n, row_of(h, 0.0))
            put(at, 2 * n + 1, row_of(h, 0.0))
    for n in range(len(label) - 1, -1, -1):
        for k in range(2):
            b = 2 * n + k
            if is_open[b]:
                g = row(at, b) + row(s, b) * row(av, n)
                put(aw, 2 * label[n] + k, row(aw, 2 * label[n] + k) + g)
                for t in range(ptr[b], ptr[b + 1]):
                    put(av, child[t], row(av, child[t]) + g)
    for i in range(grad.shape[0]):
        yes, no = row(p, 2 * i + 1), row(p, 2 * i)
        ratio = row(r, i) / row(q, 2 * i + 1) + row(r, i) / row(q, 2 * i)
        through = row(aw, 2 * i + 1) * no - row(aw, 2 * i) * yes
        put(grad, i, through + row(grad, i) * ratio * yes * no)


# ---- The best model


@compiled
def _costs(h: Array, w: Array) -> None:
    zero = row_of(h, 0.0)
    for i in range(h.shape[0]):
        x = row(h, i)
        put(w, 2 * i + 1, where_above(x, zero, zero, x))
        put(w, 2 * i, where_above(x, zero, zero - x, zero))


@compiled
def _up_best(w: Array, v: Array, s: Array, d: Arrays) -> None:
    """Fill the value of the best choice below each node, and what each branch is worse by."""
    label, is_open, ptr, child = d[:4]
    for n in range(len(label)):
        no = row_of(v, NEVER)
        yes = row_of(v, NEVER)
        if is_open[2 * n]:
            no = _total(w, v, label, ptr, child, n, 0)
        if is_open[2 * n + 1]:
            yes = _total(w, v, label, ptr, child, n, 1)
        best = where_above(yes, no, yes, no)
        put(v, n, best)
        put(s, 2 * n, best - no)
        put(s, 2 * n + 1, best - yes)


@compiled
def _down_best(w: Array, s: Array, f: Array, q: Array, d: Arrays) -> None:
    """Fill how much worse the best choice is that has each sign of each label (q)."""
    label, is_open, ptr, child, free_ptr, free, root = d
    never = row_of(f, -NEVER)
    for n in range(f.shape[0]):
        put(f, n, never)
    for i in range(q.shape[0]):
        put(q, i, never)
    for i in range(len(root)):
        put(f, root[i], row_of(f, 0.0))
    for n in range(len(label) - 1, -1, -1):
        for k in range(2):
            b = 2 * n + k
            if not is_open[b]:
                continue
            g = row(f, n) + row(s, b)
            old = row(q, 2 * label[n] + k)
            put(q, 2 * label[n] + k, where_above(old, g, g, old))
            for t in range(ptr[b], ptr[b + 1]):
                old = row(f, child[t])
                put(f, child[t], where_above(old, g, g, old))
            for t in range(free_ptr[b], free_ptr[b + 1]):
                for j in range(2):
                    x = g - row(w, 2 * free[t] + j)
                    old = row(q, 2 * free[t] + j)
                    put(q, 2 * free[t] + j, where_above(old, x, x, old))


@compiled
def _difference(q: Array, h: Array) -> None:
    for i in range(h.shape[0]):
        put(h, i, row(q, 2 * i) - row(q, 2 * i + 1))


@compiled
def _walk(h: Array, s: Array, out: Array, first: int, stack: Array, d: Arrays) -> None:
    """Follow the best branches from the roots down; where both are as good, the false one."""
    label, is_open, ptr, child, free_ptr, free, root = d
    for lane in range(min(TILE, out.shape[0] - first)):
        size = 0
        for i in range(len(root)):
            stack[size] = root[i]
            size += 1
        while size:
            size -= 1
            n = stack[size]
            k = 0 if is_open[2 * n] and s[2 * n, lane] <= 0 else 1
            if not is_open[2 * n + k]:
                k = 1 - k
            out[first + lane, label[n]] = k
            b = 2 * n + k
            for t in range(ptr[b], ptr[b + 1]):
                stack[size] = child[t]
                size += 1
            for t in range(free_ptr[b], free_ptr[b + 1]):
                out[first + lane, free[t]] = h[free[t], lane] > 0


# ---- Batches: one call for the tiles of a thread


@compiled
def marginals_of_tiles(
    x: Array, first: int, last: int, total: Array, share: Array, odds: Array, d: Arrays
) -> None:
    """Fill log P(C) (B,), P(a | C) (B, L) and their log-odds (B, L) of log-odds x (B, L)."""
    L, N, root = x.shape[1], len(d[0]), d[6]
    h, r = np.empty((L, TILE)), np.empty((L, TILE))
    w, p, q = np.empty((2 * L, TILE)), np.empty((2 * L, TILE)), np.empty((2 * L, TILE))
    v, f, s = np.empty((N, TILE)), np.empty((N, TILE)), np.empty((2 * N, TILE))
    for tile in range(first * TILE, last * TILE, TILE):
        load(x, tile, 0, h)
        _weights(h, w, p)
        _up(w, v, s, d)
        _down(s, f, q, r, d)
        _posterior(p, q, r)
        _log_odds(q, h)
        store(h, odds, tile, 0)
        store(q[1::2], share, tile, 0)
        for lane in range(min(TILE, x.shape[0] - tile)):
            for i in range(len(root)):
                total[tile + lane] += v[root[i], lane]


@compiled
def gradients_of_tiles(x: Array, grad: Array, first: int, last: int, out: Array, d: Arrays) -> None:
    """Fill the gradient of x from that of the log-odds of P(a | C)."""
    L, N = x.shape[1], len(d[0])
    h, r, g = np.empty((L, TILE)), np.empty((L, TILE)), np.empty((L, TILE))
    w, p, q = np.empty((2 * L, TILE)), np.empty((2 * L, TILE)), np.empty((2 * L, TILE))
    v, f, s = np.empty((N, TILE)), np.empty((N, TILE)), np.empty((2 * N, TILE))
    aq, ar, aw = np.empty((2 * L, TILE)), np.empty((L, TILE)), np.empty((2 * L, TILE))
    af, at, av = np.empty((N, TILE)), np.empty((2 * N, TILE)), np.empty((N, TILE))
    for tile in range(first * TILE, last * TILE, TILE):
        load(x, tile, 0, h)
        load(grad, tile, 0, g)
        _weights(h, w, p)
        _up(w, v, s, d)
        _down(s, f, q, r, d)
        _posterior(p, q, r)
        _adjoint(h, p, q, r, s, f, g, aq, ar, af, at, av, aw, d)
        store(g, out, tile, 0)


@compiled
def best_of_tiles(x: Array, first: int, last: int, odds: Array, model: Array, d: Arrays) -> None:
    """Fill the best model (B, L), and the max-marginals (B, L) unless there is no room for them."""
    L, N = x.shape[1], len(d[0])
    h, w, q = np.empty((L, TILE)), np.empty((2 * L, TILE)), np.empty((2 * L, TILE))
    v, f, s = np.empty((N, TILE)), np.empty((N, TILE)), np.empty((2 * N, TILE))
    stack = np.empty(N + 1, np.int64)
    for tile in range(first * TILE, last * TILE, TILE):
        load(x, tile, 0, h)
        _costs(h, w)
        _up_best(w, v, s, d)
        _walk(h, s, model, tile, stack, d)
        if len(odds):
            _down_best(w, s, f, q, d)
            _difference(q, h)
            store(h, odds, tile, 0)


def run(
    kernel: Callable[..., None],
    given: Sequence[Tensor],
    out: Sequence[Tensor],
    structure: Sequence[Tensor],
) -> None:
    """Run one of the kernels above over all tiles, on the threads of torch."""
    before, after, arrays = (
        tuple(array_of(part) for part in parts) for parts in (given, out, structure)
    )
    share_tiles(
        lambda first, last: kernel(*before, first, last, *after, arrays),
        tiles(len(before[0]))[0],
        _OPERATIONS_PER_EDGE * sum(map(len, arrays)),
    )
