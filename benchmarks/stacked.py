"""Training steps of many small networks at once, as Triton kernels: `hierarchies.py` defines what they compute.

Of each network, S in all, a batch has four rows. Weights are (S, N, M), from N inputs to M outputs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def linear(x, w, bias, kept, out, N, M, HIDDEN: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr):  # fmt: skip
    s, o = tl.program_id(0), tl.program_id(1) * BO + tl.arange(0, BO)
    inside = o < M
    a0 = tl.zeros((BI, BO), tl.float32)  # summed over inputs at the end only
    a1, a2, a3 = a0, a0, a0
    for first in tl.range(0, N, BI, num_stages=4):  # loads come early
        i = first + tl.arange(0, BI)
        there = i < N
        tile = tl.load(w + (s * N + i)[:, None] * M + o[None, :],
                       mask=there[:, None] & inside[None, :], other=0.0)  # fmt: skip
        row = x + s * 4 * N + i
        a0 += tile * tl.load(row, mask=there, other=0.0)[:, None]
        a1 += tile * tl.load(row + N, mask=there, other=0.0)[:, None]
        a2 += tile * tl.load(row + 2 * N, mask=there, other=0.0)[:, None]
        a3 += tile * tl.load(row + 3 * N, mask=there, other=0.0)[:, None]
    at = s * 4 * M + o
    start = tl.load(bias + s * M + o, mask=inside, other=0.0)
    a0, a1 = tl.sum(a0, 0) + start, tl.sum(a1, 0) + start
    a2, a3 = tl.sum(a2, 0) + start, tl.sum(a3, 0) + start
    if HIDDEN:
        a0 = tl.maximum(a0, 0.0) * tl.load(kept + at, mask=inside, other=0.0)
        a1 = tl.maximum(a1, 0.0) * tl.load(kept + at + M, mask=inside, other=0.0)
        a2 = tl.maximum(a2, 0.0) * tl.load(kept + at + 2 * M, mask=inside, other=0.0)
        a3 = tl.maximum(a3, 0.0) * tl.load(kept + at + 3 * M, mask=inside, other=0.0)
    tl.store(out + at, a0, mask=inside)
    tl.store(out + at + M, a1, mask=inside)
    tl.store(out + at + 2 * M, a2, mask=inside)
    tl.store(out + at + 3 * M, a3, mask=inside)


@triton.jit
def linear_back(g, w, h, out, N, M, scale, BI: tl.constexpr, BO: tl.constexpr):
    """The gradient of a hidden layer, of which h is the output after dropout."""
    s, i = tl.program_id(0), tl.program_id(1) * BI + tl.arange(0, BI)
    inside = i < N
    a0 = tl.zeros((BI, BO), tl.float32)  # summed over outputs at the end only
    a1, a2, a3 = a0, a0, a0
    for first in tl.range(0, M, BO, num_stages=4):
        o = first + tl.arange(0, BO)
        there = o < M
        tile = tl.load(w + (s * N + i)[:, None] * M + o[None, :],
                       mask=inside[:, None] & there[None, :], other=0.0)  # fmt: skip
        row = g + s * 4 * M + o
        a0 += tile * tl.load(row, mask=there, other=0.0)[None, :]
        a1 += tile * tl.load(row + M, mask=there, other=0.0)[None, :]
        a2 += tile * tl.load(row + 2 * M, mask=there, other=0.0)[None, :]
        a3 += tile * tl.load(row + 3 * M, mask=there, other=0.0)[None, :]
    at = s * 4 * N + i
    a0 = tl.where(tl.load(h + at, mask=inside, other=0.0) > 0, tl.sum(a0, 1) * scale, 0.0)
    a1 = tl.where(tl.load(h + at + N, mask=inside, other=0.0) > 0, tl.sum(a1, 1) * scale, 0.0)
    a2 = tl.where(tl.load(h + at + 2 * N, mask=inside, other=0.0) > 0, tl.sum(a2, 1) * scale, 0.0)
    a3 = tl.where(tl.load(h + at + 3 * N, mask=inside, other=0.0) > 0, tl.sum(a3, 1) * scale, 0.0)
    tl.store(out + at, a0, mask=inside)
    tl.store(out + at + N, a1, mask=inside)
    tl.store(out + at + 2 * N, a2, mask=inside)
    tl.store(out + at + 3 * N, a3, mask=inside)


@triton.jit
def adam(w, m, v, average, at, slope, mask, numbers, decay):
    """One step of Adam with weight decay, and of the average of the weights."""
    rate, root, share = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    old = tl.load(w + at, mask=mask, other=0.0)
    slope += decay * old
    first = tl.load(m + at, mask=mask, other=0.0)
    first += 0.1 * (slope - first)
    second = 0.999 * tl.load(v + at, mask=mask, other=0.0) + 0.001 * slope * slope
    new = old - rate * first / (tl.sqrt(second) * root + 1e-8)
    mean = tl.load(average + at, mask=mask, other=0.0)
    tl.store(w + at, new, mask=mask)
    tl.store(m + at, first, mask=mask)
    tl.store(v + at, second, mask=mask)
    tl.store(average + at, mean + share * (new - mean), mask=mask)


@triton.jit
def update(x, g, w, wm, wv, wa, b, bm, bv, ba, numbers, N, M, decay,
           BI: tl.constexpr, BO: tl.constexpr):  # fmt: skip
    s = tl.program_id(0)
    i, o = tl.program_id(1) * BI + tl.arange(0, BI), tl.program_id(2) * BO + tl.arange(0, BO)
    has_i, has_o = i < N, o < M
    row, column = x + s * 4 * N + i, g + s * 4 * M + o
    g0 = tl.load(column, mask=has_o, other=0.0)
    g1 = tl.load(column + M, mask=has_o, other=0.0)
    g2 = tl.load(column + 2 * M, mask=has_o, other=0.0)
    g3 = tl.load(column + 3 * M, mask=has_o, other=0.0)
    slope = tl.load(row, mask=has_i, other=0.0)[:, None] * g0[None, :]
    slope += tl.load(row + N, mask=has_i, other=0.0)[:, None] * g1[None, :]
    slope += tl.load(row + 2 * N, mask=has_i, other=0.0)[:, None] * g2[None, :]
    slope += tl.load(row + 3 * N, mask=has_i, other=0.0)[:, None] * g3[None, :]
    mask = has_i[:, None] & has_o[None, :]
    adam(w, wm, wv, wa, (s * N + i)[:, None] * M + o[None, :], slope, mask, numbers, decay)
    if tl.program_id(1) == 0:
        adam(b, bm, bv, ba, s * M + o, g0 + g1 + g2 + g3, has_o, numbers, decay)


class Steps:
    """Forward and backward passes and updates of stacked weights, in place."""

    def __init__(self, parameters: list[Tensor], averages: list[Tensor], decay: float) -> None:
        self.parameters, self.averages, self.decay = parameters, averages, decay
        self.moments = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
        self.layers = len(parameters) // 2

    def forward(self, x: Tensor, kept: Tensor) -> list[Tensor]:
        """Return the inputs of each layer, and the log-odds."""
        found = [x]
        for n in range(self.layers):
            w, b = self.parameters[2 * n : 2 * n + 2]
            S, N, M = w.shape
            out = x.new_empty(S, 4, M)
            hidden = n < self.layers - 1
            mask = kept[n] if hidden else out
            linear[(S, triton.cdiv(M, 32))](found[-1], w, b, mask, out, N, M, hidden, 64, 32)
            found.append(out)
        return found

    def backward(self, found: list[Tensor], slope: Tensor, scale: float, numbers: Tensor) -> None:
        """Update all weights, from the slope of the log-odds and what `forward` returned."""
        slopes = [slope]
        for n in range(self.layers - 1, 0, -1):
            w, h = self.parameters[2 * n], found[n]
            S, N, M = w.shape
            out = torch.empty_like(h)
            grid: Any = (S, triton.cdiv(N, 16))
            linear_back[grid](slopes[0], w, h, out, N, M, scale, 16, 128)
            slopes.insert(0, out)
        for n in range(self.layers):
            w, b = self.parameters[2 * n : 2 * n + 2]
            S, N, M = w.shape
            ws, bs = ([kind[2 * n + j] for kind in (*self.moments, self.averages)] for j in (0, 1))
            grid = (S, triton.cdiv(N, 16), triton.cdiv(M, 128))
            update[grid](found[n], slopes[n], w, *ws, b, *bs, numbers, N, M, self.decay, 16, 128)
