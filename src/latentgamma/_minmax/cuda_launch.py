"""The min/max closure of a batch on a CUDA device, for circuits without cycles."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from latentgamma._minmax.circuit import MINIMA
from latentgamma._minmax.cuda_kernels import close_nodes, close_nodes_backward

#: Examples that one program runs.
_BLOCK = 64


def tiles(batch: int) -> tuple[int, int]:
    """How many tiles a batch has, and how many examples a tile."""
    return 1, batch


def close_batch(
    x: Tensor, structure: Sequence[Tensor], temperature: float, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs (B, O), and what `close_batch_backward` needs: the nodes, and their ranks."""
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
    """The gradient of the inputs (B, I), from that of the outputs (B, O)."""
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
    """−1 for each minimum, 1 for each other node. (N,)."""
    ptr, _, _, stage_ptr, stage_kind, _, _ = structure
    signs = torch.where(stage_kind == MINIMA, -1.0, 1.0).to(dtype)
    count = len(ptr) - 1 - inputs
    later = torch.repeat_interleave(signs, stage_ptr.diff(), output_size=count)
    return torch.cat([signs.new_ones(inputs), later])
