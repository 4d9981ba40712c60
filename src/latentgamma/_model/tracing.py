"""Whether tensors hold values here, or stand in for them while code is traced or transformed."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def can_be_rerun(*tensors: Tensor) -> bool:
    """Whether a backward pass may come that needs a function of these tensors, and can rerun it.

    A compiler decides for itself what to keep. The transforms of `torch.func` are over by the
    time of the backward pass, and with them the stand-ins they put in the place of tensors.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    if not any(tensor.requires_grad for tensor in tensors):
        return False
    return are_plain(*tensors)


def are_plain(*tensors: Tensor) -> bool:
    """Whether all of these hold values, and no forward-mode derivative travels with them."""
    if not all(map(has_memory, tensors)):
        return False
    # Outside of `dual_level` there are none, and asking every tensor takes longer than a step.
    if getattr(forward_ad, "_current_level", 0) < 0:
        return True
    return all(forward_ad.unpack_dual(t).tangent is None for t in tensors)  # type: ignore[no-untyped-call]


def values_can_be_read(tensor: Tensor) -> bool:
    """Whether looking at the values is possible here: not while tracing, mapping or capturing."""
    if torch.compiler.is_compiling() or tensor.device.type == "meta" or not has_memory(tensor):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def has_memory(tensor: Tensor) -> bool:
    """Whether this is a plain tensor, and not the stand-in of a tracer or of `torch.func`.

    >>> has_memory(torch.zeros(2))
    True
    >>> torch.func.vmap(lambda x: x + has_memory(x))(torch.zeros(2))
    tensor([0., 0.])
    """
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True
