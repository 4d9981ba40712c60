"""Checks of what users pass to a model: options, shapes, numbers of steps, states."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentgamma._errors import ModelError, StateError
from latentgamma._model.tracing import values_can_be_read

#: What a state may be made of.
STATE_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def one_of(what: str, value: str, allowed: tuple[str, ...]) -> Any:
    """The value, if it is one of the allowed ones.

    Raises:
        ModelError: it is not.
    """
    if value not in allowed:
        options = ", ".join(repr(name) for name in allowed)
        raise ModelError(f"{what} must be one of {options}, not {value!r}")
    return value


def check_shape(what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a ModelError unless the tensor has this shape."""
    if tuple(tensor.shape) != shape:
        raise ModelError(f"{what} must have the shape {shape}, not {tuple(tensor.shape)}")


def checked_steps(steps: int) -> int:
    """The number of steps, if it is a whole number from 0 on; otherwise a StateError."""
    whole = isinstance(steps, (int, np.integer)) and not isinstance(steps, bool)
    if not whole or steps < 0:
        raise StateError(f"steps is a whole number from 0 on, or None, not {steps!r}")
    return int(steps)


def checked_state(state: Tensor, M: int, device: torch.device) -> Tensor:
    """The state, if a model of M atoms on this device can run on it.

    Raises:
        StateError: it is not a floating-point tensor (…, M) on the device, with values in [0, 1].
    """
    if not isinstance(state, Tensor):
        raise StateError(f"a state is a tensor, not {type(state).__name__}; try model.state")
    if state.dtype not in STATE_DTYPES:
        raise StateError(
            f"a state is a floating-point tensor of 16, 32 or 64 bits, not {state.dtype}; use "
            f"state.float(), or model.state(facts) for fact sets"
        )
    if state.dim() == 0 or state.shape[-1] != M:
        raise StateError(
            f"the last dimension of a state is the number of atoms, {M}, but the shape "
            f"is {tuple(state.shape)}"
        )
    if state.device != device:
        raise StateError(
            f"the state is on {state.device}, but the model on {device}; use state.to(model.device)"
        )
    # On a GPU an exception would have to wait for the device; there a wrong value becomes NaN.
    if state.numel() and not state.is_cuda and values_can_be_read(state):
        low, high = _range(state.detach())
        if not (low >= 0 and high <= 1):  # NaN fails both
            found = (
                "there is a NaN among these"
                if math.isnan(low)
                else f"these reach from {low:.6g} to {high:.6g}"
            )
            raise StateError(f"the values of a state lie in [0, 1], but {found}")
    return state


def _range(values: Tensor) -> tuple[float, float]:
    """The least and the greatest value; NaN if any is."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        # torch would start its threads for this, and they would compete with the kernel's.
        with suppress(RuntimeError):  # under a transform of torch.func there is no array
            array = values.numpy()
            return float(np.minimum.reduce(array, None)), float(np.maximum.reduce(array, None))
    low, high = torch.aminmax(values)
    return float(low), float(high)
