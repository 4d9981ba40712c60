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
def update_some(at, mask, x, g, w, m, v, average, numbers, N, M, decay, BIAS: tl.constexpr):
    row = at // M
    o = at - row * M
    s = row if BIAS else row // N
    column = g + s * 4 * M + o
    g0 = tl.load(column, mask=mask, other=0.0)
    g1 = tl.load(column + M, mask=mask, other=0.0)
    g2 = tl.load(column + 2 * M, mask=mask, other=0.0)
    g3 = tl.load(column + 3 * M, mask=mask, other=0.0)
    if BIAS:
        slope = g0 + g1 + g2 + g3
    else:
        given = x + s * 4 * N + (row - s * N)
        slope = tl.load(given, mask=mask, other=0.0) * g0
        slope += tl.load(given + N, mask=mask, other=0.0) * g1
        slope += tl.load(given + 2 * N, mask=mask, other=0.0) * g2
        slope += tl.load(given + 3 * N, mask=mask, other=0.0) * g3
    adam(w, m, v, average, at, slope, mask, numbers, decay)


@triton.jit
def update(x, g, w, m, v, average, numbers, N, M, count, decay, BIAS: tl.constexpr,
           BLOCK: tl.constexpr):  # fmt: skip
    """Update all weights, or all biases, from the inputs x of their layer and the slopes g."""
    first = tl.program_id(0) * BLOCK
    at = first + tl.arange(0, BLOCK)  # of the flat array, so that loads are aligned
    if first + BLOCK <= count:  # a mask that is true throughout does not divide loads
        mask = tl.full((BLOCK,), 1, tl.int1)
        update_some(at, mask, x, g, w, m, v, average, numbers, N, M, decay, BIAS)
    else:
        update_some(at, at < count, x, g, w, m, v, average, numbers, N, M, decay, BIAS)


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
            _, N, M = self.parameters[2 * n].shape
            for j in (0, 1):  # weights, biases
                own, mean = self.parameters[2 * n + j], self.averages[2 * n + j]
                first, second = (kind[2 * n + j] for kind in self.moments)
                count = own.numel()
                update[(triton.cdiv(count, 1024),)](
                    found[n], slopes[n], own, first, second, mean, numbers, N, M, count, self.decay,
                    j == 1, 1024,
                )  # fmt: skip
