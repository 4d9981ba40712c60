"""Between probabilities, log-odds and the scores of a softmax, with gradients that do not die."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: The log-odds of what is certainly true; minus that of what is certainly false.
CERTAIN = 40.0


def log_odds(values: Tensor) -> Tensor:
    """log(p / (1 − p)), finite and with a finite slope also where p is 0 or 1.

    >>> log_odds(torch.tensor([0.5, 1.0], dtype=torch.float64)).tolist()[0]
    0.0
    """
    eps = torch.finfo(values.dtype).eps
    # The value is held inside (0, 1); the slope is that at the held value, and not zero.
    held = values + (values.clamp(1e-17, 1 - eps / 2) - values).detach()
    return torch.log(held) - torch.log1p(-held)


def probability(odds: Tensor) -> Tensor:
    """1 / (1 + e^−x), with a slope that is right to the last digits also where that is near 1.

    >>> x = torch.tensor([20.0], requires_grad=True)
    >>> probability(x).backward()
    >>> x.grad.item() > 1e-9  # torch.sigmoid gives 0 here
    True
    """
    return torch.where(odds > 0, 1 - torch.sigmoid(-odds), torch.sigmoid(odds))


def held_log_odds(values: Tensor) -> Tensor:
    """Log-odds that are infinite as large finite ones, so that differences of them exist."""
    held: Tensor = _Held.apply(values, min(1e6, torch.finfo(values.dtype).max))  # type: ignore[no-untyped-call]
    return held


class _Held(torch.autograd.Function):
    """A clamp with the slope one, also at infinity."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, limit: float) -> Tensor:
        return values.clamp(-limit, limit)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        return grad_out, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent


def categorical_log_odds(scores: Tensor) -> Tensor:
    """The log-odds of each probability of a softmax over the last axis: z_c − log Σ_{d≠c} e^{z_d}.

    >>> categorical_log_odds(torch.tensor([3.0, 0.0])).tolist()
    [3.0, -3.0]
    """
    scores = _without_infinity(scores)
    # All but the largest: its own term is at most half of the sum, so 1 − p has its digits.
    probability = torch.softmax(scores, -1)
    top = scores.argmax(-1, keepdim=True)
    is_top = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top, True)
    rest = torch.logsumexp(scores.masked_fill(is_top, -torch.inf), -1, keepdim=True)
    below = torch.where(is_top, torch.zeros_like(probability), probability)
    others = torch.logsumexp(scores, -1, keepdim=True) + torch.log1p(-below)
    return torch.where(is_top, scores - rest, scores - others)


def _without_infinity(values: Tensor) -> Tensor:
    """The values, with infinite ones replaced by finite ones that may still be added up."""
    large = torch.finfo(values.dtype).max / 4
    return values.nan_to_num(torch.nan, large, -large)
