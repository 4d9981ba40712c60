"""Closures of bit planes in torch tensors. Imported only where a tensor is given."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from latentgamma._errors import ArgumentError, FactsError
from latentgamma._logic.closures import close_planes
from latentgamma._logic.cuda_planes import close_on_cuda
from latentgamma._program.program import Program


def close_tensor(program: Program, planes: Tensor, threads: int, out: Tensor | None) -> Tensor:
    """The closures of the fact sets in bit planes, on the device of the planes.

    Args:
        program: any program.
        planes: int64, shape (M, W); the bits are those of `pack`.
        threads: the most threads to use.
        out: where to put the planes.
    """
    if planes.dtype != torch.int64 or planes.dim() != 2:
        raise ArgumentError(
            f"a tensor of bit planes is int64 and has the shape (M, W), not {planes.dtype} of "
            f"shape {tuple(planes.shape)}"
        )
    if out is not None and (
        not isinstance(out, Tensor)
        or (out.shape, out.dtype, out.device) != (planes.shape, planes.dtype, planes.device)
    ):
        raise ArgumentError(
            "out must be a tensor of the same shape, dtype and device as the planes"
        )
    if len(planes) != program.M:
        raise FactsError(
            f"bit planes have one row for each atom, {program.M}, but these have {len(planes)}"
        )
    if planes.is_cuda:
        closed = _close_on_cuda(program, planes.detach())
    else:
        closed = _close_on_cpu(program, planes.detach(), threads)
    return closed if out is None else out.copy_(closed)


def _close_on_cuda(program: Program, planes: Tensor) -> Tensor:
    if program.definite:
        return close_on_cuda(program, planes)
    state = planes.clone()
    for stratum in program.strata:
        atom, negated, derived = (
            torch.from_numpy(np.array(array)).to(planes.device)
            for array in (stratum.atom, stratum.negated, stratum.derived)
        )
        facts = state[atom]
        facts[negated] = ~facts[negated]
        state[atom[derived]] = close_on_cuda(stratum.program, facts)[derived]
    return state


def _close_on_cpu(program: Program, planes: Tensor, threads: int) -> Tensor:
    words = planes.contiguous().numpy().view("uint64")
    return torch.from_numpy(close_planes(program, words, threads, None).view("int64"))
