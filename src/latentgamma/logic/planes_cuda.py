"""The closures of many fact sets on a GPU, and of tensors of bit planes anywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentgamma.errors import ArgumentError, FactsError
from latentgamma.logic.closure import path_lengths
from latentgamma.logic.closures import close_planes
from latentgamma.program.graph import Csr, rule_order
from latentgamma.program.program import Program

# ---- The closures of many fact sets on a CUDA device, 64 sets to a word
# The rules are sorted into stages: a rule's body is settled once the stages before its own have
# run, or lies on a cycle with the rule. A block of threads takes a few words of every atom. Its
# threads share the rules of a stage out among themselves; a stage with a cycle is repeated until
# no word changes. Where the words of a block fit into shared memory they are kept there,
# otherwise in the result itself.
#
# The kernel is CUDA C, compiled by the NVRTC library that comes with torch, because Triton
# cannot index shared memory.

_SOURCE = r"""
typedef unsigned long long word;

// Thread (x, y) works on word x of its block and on every blockDim.y-th rule of a stage.
__device__ __forceinline__ void run_stages(
    const int* __restrict__ body_ptr, const int* __restrict__ body,
    const int* __restrict__ head_ptr, const int* __restrict__ head,
    const int* __restrict__ stages, int n_stages, bool inside, word* state, long long stride)
{
    for (int stage = 0; stage < n_stages; ++stage) {
        const int first = stages[2 * stage], cyclic = stages[2 * stage + 1];
        const int last = stages[2 * stage + 2];
        int changed;
        do {
            changed = 0;
            if (inside) for (int j = first + threadIdx.y; j < last; j += blockDim.y) {
                word every = ~0ULL;
                for (int p = body_ptr[j]; p < body_ptr[j + 1]; ++p)
                    every &= *(volatile word*)(state + body[p] * stride);
                if (every) for (int p = head_ptr[j]; p < head_ptr[j + 1]; ++p) {
                    word* cell = state + head[p] * stride;
                    if (every & ~*(volatile word*)cell) {
                        atomicOr(cell, every);
                        changed = 1;
                    }
                }
            }
            changed = __syncthreads_or(changed);
        } while (cyclic && changed);
    }
}

extern "C" __global__ void __launch_bounds__(1024) close_in_shared_memory(
    const word* __restrict__ given, word* __restrict__ closed,
    const int* __restrict__ body_ptr, const int* __restrict__ body,
    const int* __restrict__ head_ptr, const int* __restrict__ head,
    const int* __restrict__ stages, int n_stages, int atoms, int words)
{
    extern __shared__ word shared[];
    const int w = blockIdx.x * blockDim.x + threadIdx.x;
    word* state = shared + threadIdx.x;
    const int stride = blockDim.x;
    if (w < words) {
        #pragma unroll 4
        for (int i = threadIdx.y; i < atoms; i += blockDim.y)
            state[i * stride] = given[(long long)i * words + w];
    }
    __syncthreads();
    run_stages(body_ptr, body, head_ptr, head, stages, n_stages, w < words, state, stride);
    if (w < words) {
        #pragma unroll 4
        for (int i = threadIdx.y; i < atoms; i += blockDim.y)
            closed[(long long)i * words + w] = state[i * stride];
    }
}

extern "C" __global__ void __launch_bounds__(1024) close_in_global_memory(
    word* closed,
    const int* __restrict__ body_ptr, const int* __restrict__ body,
    const int* __restrict__ head_ptr, const int* __restrict__ head,
    const int* __restrict__ stages, int n_stages, int words)
{
    const int w = blockIdx.x * blockDim.x + threadIdx.x;
    run_stages(body_ptr, body, head_ptr, head, stages, n_stages, w < words, closed + w, words);
}
"""

#: The most threads that a CUDA block can have; `__launch_bounds__` above has the same number.
_THREADS = 1024


class _DeviceProgram:
    """The rules of a program on one device, sorted into stages."""

    def __init__(self, program: Program, device: torch.device) -> None:
        # Outside a cycle a rule's stage comes before those that use its heads; the rules of a cycle
        # share one stage, which is repeated until nothing changes.
        order = rule_order(program)
        component = order.component[program.M :]
        sizes = np.bincount(component, minlength=int(order.component.max()) + 1)
        longest, beyond = path_lengths(program, np.minimum(sizes, 1))
        level = longest - beyond[component]
        by_level = np.argsort(level, kind="stable")
        body = Csr(program.body_indptr, program.body_indices).take(by_level)
        head = Csr(program.head_indptr, program.head_indices).take(by_level)
        on_cycle = np.zeros(program.R, np.bool_)
        on_cycle[order.rules] = np.repeat(order.cyclic, np.diff(order.block_ptr))
        starts = np.flatnonzero(np.diff(level[by_level], prepend=-1))
        repeated = np.logical_or.reduceat(on_cycle[by_level], starts)
        stages = np.full(2 * len(starts) + 1, program.R, np.int32)
        stages[:-1:2], stages[1::2] = starts, repeated
        self.n_stages = len(starts)
        self.arrays = [
            torch.from_numpy(np.ascontiguousarray(array, np.int32)).to(device)
            for array in (*body, *head, stages)
        ]


def close_on_cuda(program: Program, planes: Tensor) -> Tensor:
    """Return the closures of the fact sets in bit planes, an int64 tensor of shape (M, W)."""
    words = planes.shape[1]
    if not planes.numel() or not program.R:
        return planes.clone()
    with torch.cuda.device(planes.device):
        rules = program.cached(_copier(planes.device))
        shared, in_shared, in_global = _kernels(planes.device.index)
        arguments = [*rules.arrays, rules.n_stages]
        fits = shared // (8 * program.M)
        rows = min(32, _power_of_two(-(-program.R // rules.n_stages)))  # rules side by side
        width = min(_power_of_two(min(fits or 32, words)), _THREADS // rows)
        grid, block = (-(-words // width), 1, 1), (width, _THREADS // width if rows > 1 else 1, 1)
        if fits:
            closed = torch.empty_like(planes, memory_format=torch.contiguous_format)
            arguments = [planes.contiguous(), closed, *arguments, program.M, words]
            in_shared(grid, block, arguments, shared_mem=8 * width * program.M)
        else:
            closed = planes.clone(memory_format=torch.contiguous_format)
            in_global(grid, block, [closed, *arguments, words])
    return closed


@cache
def _copier(device: torch.device) -> Callable[[Program], _DeviceProgram]:
    """Return the function that puts the rules of a program on a device, cached by device."""
    return lambda program: _DeviceProgram(program, device)


def _power_of_two(n: int) -> int:
    """Return the largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)


@cache
def _kernels(device: int) -> tuple[int, Any, Any]:
    """Return the shared memory that a block may use, and the two kernels."""
    properties = torch.cuda.get_device_properties(device)
    shared = int(getattr(properties, "shared_memory_per_block_optin", 48 << 10))
    in_shared = torch.cuda._compile_kernel(_SOURCE, "close_in_shared_memory")
    in_shared.set_shared_memory_config(shared)
    return shared, in_shared, torch.cuda._compile_kernel(_SOURCE, "close_in_global_memory")


# ---- Closures of bit planes in torch tensors. Imported only where a tensor is given


def close_tensor(program: Program, planes: Tensor, threads: int, out: Tensor | None) -> Tensor:
    """Return the closures of the fact sets in bit planes (int64, (M, W)), on the device of the planes."""
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
        words = planes.detach().contiguous().numpy().view("uint64")
        closed = torch.from_numpy(close_planes(program, words, threads, None).view("int64"))
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
