"""Training steps of many small networks at once, as Triton kernels: `hierarchies.py` says what they compute.

A step is one launch a layer forward, and one a layer backward, which also updates the weights: the
gradient of a weight is a sum over four examples, so it is never stored. S networks; layers from N
inputs to M outputs; the rows of weights are padded with zeros, which stay zeros, to a multiple of 16,
so that loads are aligned.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def forward(x, w, bias, kept, out, N, M, M_padded, HIDDEN: tl.constexpr, BI: tl.constexpr,
            BO: tl.constexpr):  # fmt: skip
    """Fill the outputs of a layer for the four examples of each network, after ReLU and dropout."""
    s, o = tl.program_id(0).to(tl.int64), tl.program_id(1) * BO + tl.arange(0, BO)
    padded, inside = o < M_padded, o < M
    a0 = tl.zeros((BI, BO), tl.float32)  # summed over inputs at the end only
    a1, a2, a3 = a0, a0, a0
    row = x + s * 4 * N
    for first in tl.range(0, N, BI, num_stages=3):  # loads come early
        i = first + tl.arange(0, BI)
        there = i < N
        tile = tl.load(w + (s * N + i)[:, None] * M_padded + o[None, :],
                       mask=there[:, None] & padded[None, :], other=0.0)  # fmt: skip
        a0 += tile * tl.load(row + i, mask=there, other=0.0)[:, None]
        a1 += tile * tl.load(row + N + i, mask=there, other=0.0)[:, None]
        a2 += tile * tl.load(row + 2 * N + i, mask=there, other=0.0)[:, None]
        a3 += tile * tl.load(row + 3 * N + i, mask=there, other=0.0)[:, None]
    start = tl.load(bias + s * M_padded + o, mask=inside, other=0.0)
    a0, a1 = tl.sum(a0, 0) + start, tl.sum(a1, 0) + start
    a2, a3 = tl.sum(a2, 0) + start, tl.sum(a3, 0) + start
    at = out + s * 4 * M + o
    if HIDDEN:
        mask = kept + s * 4 * M + o
        a0 = tl.maximum(a0, 0.0) * tl.load(mask, mask=inside, other=0.0)
        a1 = tl.maximum(a1, 0.0) * tl.load(mask + M, mask=inside, other=0.0)
        a2 = tl.maximum(a2, 0.0) * tl.load(mask + 2 * M, mask=inside, other=0.0)
        a3 = tl.maximum(a3, 0.0) * tl.load(mask + 3 * M, mask=inside, other=0.0)
    tl.store(at, a0, mask=inside)
    tl.store(at + M, a1, mask=inside)
    tl.store(at + 2 * M, a2, mask=inside)
    tl.store(at + 3 * M, a3, mask=inside)


@triton.jit
def adam(old, slope, w, m, v, average, at, mask, rate, root, share, decay):
    """Take a step of Adam with weight decay, and one of the average of the weights."""
    slope += decay * old
    first = tl.load(m + at, mask=mask, other=0.0)
    second = tl.load(v + at, mask=mask, other=0.0)
    mean = tl.load(average + at, mask=mask, other=0.0)
    first += 0.1 * (slope - first)
    second = 0.999 * second + 0.001 * slope * slope
    new = old - rate * first / (tl.sqrt(second) * root + 1e-8)
    tl.store(w + at, new, mask=mask)
    tl.store(m + at, first, mask=mask)
    tl.store(v + at, second, mask=mask)
    tl.store(average + at, mean + share * (new - mean), mask=mask)


@triton.jit
def update(x, g, out, w, m, v, average, bias, bias_m, bias_v, bias_average, numbers, N, M, M_padded,
           span, scale, decay, INNER: tl.constexpr, BI: tl.constexpr,
           BO: tl.constexpr):  # fmt: skip
    """Update some rows of weights from the inputs x and the slopes g of a layer.

    An inner layer also fills the slopes of its inputs, from the weights before the update. A program
    takes `span` columns, all of them in an inner layer.
    """
    s, tile, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    rate, root, share = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    i = tile * BI + tl.arange(0, BI)
    inside = i < N
    row = x + s * 4 * N + i
    x0 = tl.load(row, mask=inside, other=0.0)
    x1 = tl.load(row + N, mask=inside, other=0.0)
    x2 = tl.load(row + 2 * N, mask=inside, other=0.0)
    x3 = tl.load(row + 3 * N, mask=inside, other=0.0)
    a0 = tl.zeros((BI, BO), tl.float32)  # summed over outputs at the end only
    a1, a2, a3 = a0, a0, a0
    for column in range(part * span, tl.minimum((part + 1) * span, M_padded), BO):
        o = column + tl.arange(0, BO)
        there = o < M
        slopes = g + s * 4 * M + o
        g0 = tl.load(slopes, mask=there, other=0.0)
        g1 = tl.load(slopes + M, mask=there, other=0.0)
        g2 = tl.load(slopes + 2 * M, mask=there, other=0.0)
        g3 = tl.load(slopes + 3 * M, mask=there, other=0.0)
        at = (s * N + i)[:, None] * M_padded + o[None, :]
        mask = inside[:, None] & (o < M_padded)[None, :]
        old = tl.load(w + at, mask=mask, other=0.0)
        if INNER:
            a0 += old * g0[None, :]
            a1 += old * g1[None, :]
            a2 += old * g2[None, :]
            a3 += old * g3[None, :]
        slope = x0[:, None] * g0[None, :] + x1[:, None] * g1[None, :]
        slope += x2[:, None] * g2[None, :] + x3[:, None] * g3[None, :]
        adam(old, slope, w, m, v, average, at, mask, rate, root, share, decay)
        if tile == 0:
            place = s * M_padded + o
            start = tl.load(bias + place, mask=there, other=0.0)
            adam(start, g0 + g1 + g2 + g3, bias, bias_m, bias_v, bias_average, place, there, rate, root,
                 share, decay)  # fmt: skip
    if INNER:  # an input above 0 was neither dropped nor cut off
        slopes_of = out + s * 4 * N + i
        tl.store(slopes_of, tl.where(x0 > 0, tl.sum(a0, 1) * scale, 0.0), mask=inside)
        tl.store(slopes_of + N, tl.where(x1 > 0, tl.sum(a1, 1) * scale, 0.0), mask=inside)
        tl.store(slopes_of + 2 * N, tl.where(x2 > 0, tl.sum(a2, 1) * scale, 0.0), mask=inside)
        tl.store(slopes_of + 3 * N, tl.where(x3 > 0, tl.sum(a3, 1) * scale, 0.0), mask=inside)


class Steps:
    """Forward and backward passes and updates of stacked weights, in place.

    Args:
        parameters: weights (S, N, M) and biases (S, 1, M) of each layer in turn.
        decay: of the weights.
        scale: what dropout multiplies by.
    """

    def __init__(self, parameters: list[Tensor], decay: float, scale: float) -> None:
        self.decay, self.scale = decay, scale
        self.shapes = [tuple(w.shape) for w in parameters[::2]]
        padded = [
            torch.nn.functional.pad(p, (0, -p.shape[2] % 16)).contiguous() for p in parameters
        ]
        zeros = [torch.zeros_like(p) for p in padded]
        #: Weights, Adam's moments, averages: of each the weights and biases of all layers.
        self.state = [padded, zeros, [z.clone() for z in zeros], [p.clone() for p in padded]]

    def parameters(self, averaged: bool = False) -> list[Tensor]:
        """Return the weights and biases without their padding, as views."""
        found = self.state[3 if averaged else 0]
        return [p[..., : self.shapes[n // 2][2]] for n, p in enumerate(found)]

    def forward(self, x: Tensor, kept: Tensor) -> list[Tensor]:
        """Return the inputs of each layer, and the log-odds."""
        found, weights = [x], self.state[0]
        for n, (S, N, M) in enumerate(self.shapes):
            hidden = n < len(self.shapes) - 1
            wide = weights[2 * n].shape[2]
            out = x.new_empty(S, 4, M)
            rows, columns = (64, 32) if S * wide > 132 * 32 else (128, 16)  # 132 multiprocessors
            forward[(S, triton.cdiv(wide, columns))](
                found[-1], weights[2 * n], weights[2 * n + 1], kept[n] if hidden else out, out, N,
                M, wide, hidden, rows, columns,
            )  # fmt: skip
            found.append(out)
        return found

    def backward(self, found: list[Tensor], slope: Tensor, numbers: Tensor) -> None:
        """Update all weights, from the slope of the log-odds and what `forward` returned."""
        for n in range(len(self.shapes) - 1, -1, -1):
            S, N, M = self.shapes[n]
            x, inner = found[n], n > 0
            wide = self.state[0][2 * n].shape[2]
            out = torch.empty_like(x) if inner else x
            span = wide if inner else 128
            grid: Any = (S, triton.cdiv(N, 8), triton.cdiv(wide, span))
            update[grid](
                x, slope, out, *(kind[2 * n] for kind in self.state),
                *(kind[2 * n + 1] for kind in self.state), numbers, N, M, wide, span,
                self.scale, self.decay, inner, 8, 128,
            )  # fmt: skip
            slope = out
