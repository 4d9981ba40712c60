"""A warning where training cannot move: a gradient arrives, and none of it reaches the inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from latentgamma._model.tracing import values_can_be_read

#: How many calls are watched on a GPU.
_CALLS_ON_A_GPU = 10


class ZeroGradientWatch:
    """Warns once if a gradient that is not zero becomes one that is identically zero.

    Args:
        remedy: what to do about it, the end of the warning.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._warned = False
        self._calls = 0

    def __call__(self, function: Callable[[Tensor], Tensor], given: Tensor) -> Tensor:
        """The result of a function of a tensor, watched on the way back."""
        if self._warned or not torch.is_grad_enabled() or not given.requires_grad:
            return function(given)
        if not values_can_be_read(given):
            return function(given)
        if given.is_cuda:  # looking at a gradient means to wait for the device
            if self._calls == _CALLS_ON_A_GPU:
                return function(given)
            self._calls += 1
        given = given.view_as(given)  # so that no hook is left on a tensor of the caller
        result = function(given)
        if not result.requires_grad:
            return result
        arrived = False

        def at_result(grad: Tensor | None) -> None:
            nonlocal arrived
            arrived = grad is not None and bool(grad.any())

        def at_inputs(grad: Tensor | None) -> None:
            nonlocal arrived
            is_answer, arrived = arrived, False  # a second derivative comes here on its own
            if is_answer and not (grad is not None and bool(grad.any())):
                self.warn()

        result.register_hook(at_result)  # type: ignore[no-untyped-call]
        given.register_hook(at_inputs)  # type: ignore[no-untyped-call]
        return result

    def warn(self) -> None:
        """Warn, unless it has been done before."""
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"the gradient of the inputs is identically zero, so a network that makes "
            f"them does not learn; {self._remedy}",
            RuntimeWarning,
            stacklevel=3,
        )
