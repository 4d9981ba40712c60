"""The min/max closure as Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from latentgamma.engine.minmax import MINIMA

# ---- The min/max closure as Triton kernels: each program runs all nodes for a block of examples
# Examples do not depend on each other, so one launch does a whole batch, and the nodes follow one
# another in their order. `v`, `rank` and `g` are (nodes, B); `minmax.py` defines what is computed.
# A minimum is the maximum of what has the opposite sign: `sign` is 1 for a maximum, −1 for a minimum.

LAST = tl.constexpr(8388608.0)  # the rank of the own input of a derivable atom
LOWEST = tl.constexpr(-3e38)


@triton.jit
def close_nodes(v, rank, ptr, child, own, sign, first, last, B, temperature,
                HARD: tl.constexpr, RANKED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = lane < B
    T = tl.load(temperature)  # from memory: a number among the arguments would be a float32
    for n in range(first, last):
        start, stop = tl.load(ptr + n), tl.load(ptr + n + 1)
        mine, s = tl.load(own + n).to(tl.int64), tl.load(sign + n)
        best = tl.full((BLOCK,), LOWEST, v.dtype.element_ty)
        for p in range(start, stop):
            c = tl.load(child + p).to(tl.int64)
            best = tl.maximum(best, s * tl.load(v + c * B + lane, mask=here, other=0.0))
        at_start = tl.full((BLOCK,), LOWEST, v.dtype.element_ty)
        if mine >= 0:
            at_start = tl.load(v + mine * B + lane, mask=here, other=0.0)
        if HARD:
            value = tl.maximum(best, at_start)
            if RANKED:
                # A maximum takes the least rank among its ties, a minimum the greatest.
                near = tl.full((BLOCK,), -2 * LAST, v.dtype.element_ty)
                for p in range(start, stop):
                    c = tl.load(child + p).to(tl.int64)
                    tied = s * tl.load(v + c * B + lane, mask=here, other=0.0) == best
                    r = -s * tl.load(rank + c * B + lane, mask=here, other=0.0)
                    near = tl.where(tied, tl.maximum(near, r), near)
                near = -s * near
                if s > 0:
                    near = near + 1.0
                    itself = (at_start > best) | ((at_start == best) & (near > LAST))
                    near = tl.where(itself, LAST, near)
                tl.store(rank + tl.cast(n, tl.int64) * B + lane, near, mask=here)
        else:
            top = tl.maximum(best, at_start)
            total = tl.zeros((BLOCK,), v.dtype.element_ty)
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                x = s * tl.load(v + c * B + lane, mask=here, other=0.0)
                total += tl.exp((x - top) / T)
            if mine >= 0:
                total += tl.exp((at_start - top) / T)
            value = top + T * tl.log(total)
        tl.store(v + tl.cast(n, tl.int64) * B + lane, s * value, mask=here)
        tl.debug_barrier()


@triton.jit
def close_nodes_backward(v, rank, g, ptr, child, own, sign, first, last, B, temperature,
                         HARD: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = lane < B
    T = tl.load(temperature)  # from memory: a number among the arguments would be a float32
    for step in range(first, last):
        n = tl.cast(first + last - 1 - step, tl.int64)
        start, stop = tl.load(ptr + n), tl.load(ptr + n + 1)
        mine, s = tl.load(own + n).to(tl.int64), tl.load(sign + n)
        value = tl.load(v + n * B + lane, mask=here, other=0.0)
        given = tl.load(g + n * B + lane, mask=here, other=0.0)
        if HARD:
            r = tl.load(rank + n * B + lane, mask=here, other=0.0)
            if mine >= 0:
                part = tl.where(r == LAST, given, 0.0)
                before = tl.load(g + mine * B + lane, mask=here, other=0.0)
                tl.store(g + mine * B + lane, before + part, mask=here)
                given = given - part
            count = tl.zeros((BLOCK,), v.dtype.element_ty)
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                tied = tl.load(v + c * B + lane, mask=here, other=0.0) == value
                if s > 0:
                    tied = tied & (tl.load(rank + c * B + lane, mask=here, other=0.0) == r - 1.0)
                count += tied.to(v.dtype.element_ty)
            part = given / tl.maximum(count, 1.0)
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                tied = tl.load(v + c * B + lane, mask=here, other=0.0) == value
                if s > 0:
                    tied = tied & (tl.load(rank + c * B + lane, mask=here, other=0.0) == r - 1.0)
                before = tl.load(g + c * B + lane, mask=here, other=0.0)
                tl.store(g + c * B + lane, before + tl.where(tied, part, 0.0), mask=here)
        else:
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                x = tl.load(v + c * B + lane, mask=here, other=0.0)
                before = tl.load(g + c * B + lane, mask=here, other=0.0)
                share = given * tl.exp(-tl.abs(value - x) / T)
                tl.store(g + c * B + lane, before + share, mask=here)
            if mine >= 0:
                x = tl.load(v + mine * B + lane, mask=here, other=0.0)
                before = tl.load(g + mine * B + lane, mask=here, other=0.0)
                share = given * tl.exp(-tl.abs(value - x) / T)
                tl.store(g + mine * B + lane, before + share, mask=here)
        tl.debug_barrier()


# ---- The min/max closure of a batch on a CUDA device, for circuits without cycles

#: Examples that one program runs.
_BLOCK = 64


def tiles(batch: int) -> tuple[int, int]:
    """Return how many tiles a batch has, and how many examples a tile."""
    return 1, batch


def close_batch(
    x: Tensor, structure: Sequence[Tensor], temperature: float, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (B, O), and the nodes and their ranks for `close_batch_backward`."""
    ptr, child, own, *_, outputs = structure
    batch, inputs = x.shape
    nodes, hard = len(ptr) - 1, temperature == 0
    v = x.new_empty(nodes, batch)
    v[:inputs] = x.T
    rank = x.new_zeros(nodes if hard and keep else 0, batch)
    if batch and nodes > inputs:
        close_nodes[(-(-batch // _BLOCK),)](
            v, rank, ptr, child, own, _signs(structure, x.dtype, inputs), inputs, nodes, batch,
            x.new_tensor([temperature]), HARD=hard, RANKED=hard and keep, BLOCK=_BLOCK, num_warps=2,
        )  # fmt: skip
    if nodes:
        out = v.index_select(0, outputs.clamp(min=0).long()).T.contiguous()
    else:
        out = x.new_zeros(batch, len(outputs))
    kept = v[None] if keep else v.new_empty(0, nodes, batch)
    extra = rank[None] if keep else v.new_empty(0, nodes if hard else 0, batch)
    return out, kept, extra


def close_batch_backward(
    grad: Tensor,
    structure: Sequence[Tensor],
    temperature: float,
    kept: Tensor,
    extra: Tensor,
    inputs: int,
) -> Tensor:
    """Return the gradient of the inputs (B, I), from that of the outputs (B, O)."""
    ptr, child, own, *_, outputs = structure
    batch, nodes = len(grad), len(ptr) - 1
    g = grad.new_zeros(nodes, batch)
    if nodes:  # index_put sums in a fixed order, index_add does not
        arriving = torch.where(outputs[:, None] >= 0, grad.T, 0)
        g.index_put_((outputs.clamp(min=0).long(),), arriving, accumulate=True)
    if batch and nodes > inputs:
        close_nodes_backward[(-(-batch // _BLOCK),)](
            kept[0], extra[0], g, ptr, child, own, _signs(structure, grad.dtype, inputs), inputs, nodes,
            batch, grad.new_tensor([temperature]), HARD=temperature == 0, BLOCK=_BLOCK, num_warps=2,
        )  # fmt: skip
    return g[:inputs].T.contiguous()


def _signs(structure: Sequence[Tensor], dtype: torch.dtype, inputs: int) -> Tensor:
    """Return −1 for each minimum, 1 for each other node. (N,)."""
    ptr, _, _, stage_ptr, stage_kind, _, _ = structure
    signs = torch.where(stage_kind == MINIMA, -1.0, 1.0).to(dtype)
    count = len(ptr) - 1 - inputs
    later = torch.repeat_interleave(signs, stage_ptr.diff(), output_size=count)
    return torch.cat([signs.new_ones(inputs), later])
