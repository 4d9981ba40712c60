"""Which kernel runs a model on a state."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor

from latentgamma._model.kernels.interface import Kernel
from latentgamma._model.rules import AbstractRules
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._model.tracing import are_plain
from latentgamma._program.compilation import paused_collector

#: Programs with fewer atoms, rules and literals than this do without compiled code, and without
#: the second that loading it takes. The size of a batch has no say in it: an example's value
#: must not depend on the others of its batch.
_LEAST_SIZE = 128


def kernel_for(rules: AbstractRules, state: Tensor, parameters: Sequence[Tensor]) -> Kernel | None:
    """The kernel that runs these rules on this state, or None where plain torch has to.

    What is traced, mapped or carries a forward derivative stays with plain torch, and so do
    sixteen-bit states, and everything while the kernel is being compiled.
    """
    if not isinstance(rules, SparseRules) or torch.compiler.is_compiling():
        return None
    if not is_worth_a_kernel(rules):
        return None
    if state.dtype not in (torch.float32, torch.float64) or _is_traced():
        return None
    every = (state, *parameters)
    if not are_plain(*every):
        return None
    if rules.body_rule.is_cpu and all(t.is_cpu for t in every):
        backward = torch.is_grad_enabled() and any(t.requires_grad for t in every)
        return _cpu_kernel(state, parameters[0].dtype, backward)
    if state.dtype != torch.float32 or not all(t.is_cuda for t in (*every, rules.body_rule)):
        return None
    return _cuda_kernel()


def is_worth_a_kernel(rules: SparseRules) -> bool:
    """Whether the program is not too small for a kernel."""
    return rules.M + rules.R + rules.body_rule.numel() >= _LEAST_SIZE


def _is_traced() -> bool:
    return bool(torch._C._get_tracing_state())


def _cpu_kernel(state: Tensor, parameters: torch.dtype, backward: bool) -> Kernel | None:
    if not has_numba():
        return None
    loaded = "latentgamma._model.kernels.cpu_launch" in sys.modules
    with nullcontext() if loaded else paused_collector():
        from latentgamma._model.kernels import compilation, cpu_launch

        alone = state.numel() <= cpu_launch.FEW * state.shape[-1]
        kind = compilation.KernelKind(_name(state.dtype), _name(parameters), alone, backward)
        return cpu_launch if compilation.COMPILATION.is_ready(kind) else None


@cache
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def has_numba() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


@cache
def _cuda_kernel() -> Kernel | None:
    if not has_triton():
        return None
    from latentgamma._model.kernels import cuda_launch

    return cuda_launch
