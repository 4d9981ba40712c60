"""Refuses the second derivative of a function whose first one is computed outside torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latentgamma._errors import ModelError


def without_second_derivative(grad: Tensor, *of: Tensor) -> Tensor:
    """The gradient, which cannot be differentiated again with respect to `of`.

    Without this, torch takes the gradient for a constant.
    """
    return _Refusal.apply(grad, *of) if torch.is_grad_enabled() else grad  # type: ignore[no-untyped-call]


class _Refusal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, *of: Tensor) -> Tensor:
        return grad.detach()

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        raise ModelError(
            "a sum-product pass and sampled worlds have no second derivative; "
            'lg.Inference(method="table") has, where the worlds fit into its budget'
        )
