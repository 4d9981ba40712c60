"""Logarithms of complements and odds from logarithms of probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Where 1 - p is less than this, log-odds are computed from the probability of the negation.
LEAST_COMPLEMENT = 2.0**-20
#: The complement of a probability that was rounded to 1, where its logarithm is needed.
ROUNDED_COMPLEMENT = 2.0**-55

_TINY = torch.finfo(torch.float64).tiny


def log_complement(logs: Tensor, most: float = -_TINY) -> Tensor:
    """Return log(1 - exp(x)), accurate for x near 0 and for very negative x.

    Args:
        logs: Log-probabilities.
        most: What is larger has the value and the slope of this; with a number below 0 both are
            finite.
    """
    held = torch.where(logs > most, logs + (most - logs).detach(), logs)
    near = held > -math.log(2)
    close = (-torch.expm1(torch.where(near, held, -0.5))).log()
    return torch.where(near, close, torch.log1p(-torch.where(near, -1.0, held).exp()))


def log_odds_of_log(logs: Tensor) -> Tensor:
    """Return log p - log(1 - p) from log p, finite and with a finite slope where p is 0 or 1."""
    logs = logs.nan_to_num(torch.nan, neginf=-1e30)
    return logs - log_complement(logs, -ROUNDED_COMPLEMENT)
