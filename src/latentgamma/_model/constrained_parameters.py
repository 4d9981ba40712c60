"""Parameters kept in a domain by construction: any finite raw value stands for one inside it.

Values are computed in float64 and rounded once to the dtype of the raw ones, so that plain torch,
the kernels and a certificate read the same numbers.

`torch.nn.utils.parametrize` would do the same, but a module that uses it cannot be pickled.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from latentgamma._errors import ModelError


def positive(raw: Tensor) -> Tensor:
    """log(1 + eˣ), which is positive; where that underflows, the smallest positive number."""
    # From 40 on the logarithm is x itself to the last digit.
    value = softplus(raw.double(), threshold=40.0)
    return value.clamp(min=torch.finfo(raw.dtype).tiny).to(raw.dtype)


def above_one(raw: Tensor) -> Tensor:
    """1 + log(1 + eˣ), at least the next number above 1."""
    value = 1 + softplus(raw.double(), threshold=40.0)
    return value.clamp(min=1 + torch.finfo(raw.dtype).eps).to(raw.dtype)


def open_unit(raw: Tensor) -> Tensor:
    """σ(x), strictly between 0 and 1."""
    limits = torch.finfo(raw.dtype)
    return torch.sigmoid(raw.double()).clamp(limits.tiny, 1 - limits.eps).to(raw.dtype)


def raw_above(name: str, value: Tensor, floor: float) -> Tensor:
    """The raw values behind values above a floor: the inverse of `positive` or `above_one`.

    Raises:
        ModelError: a value is not a finite number above the floor.
    """
    excess = value.detach().double() - floor
    if not bool((excess > 0).all()) or not bool(excess.isfinite().all()):
        raise ModelError(f"{name} must be a finite number above {floor:g}")
    return (excess + torch.log(-torch.expm1(-excess))).to(value.dtype)


def raw_open_unit(name: str, value: Tensor) -> Tensor:
    """The raw values behind values between 0 and 1: the inverse of `open_unit`.

    Raises:
        ModelError: a value is not strictly between 0 and 1.
    """
    wide = value.detach().double()
    if not bool(((wide > 0) & (wide < 1)).all()):
        raise ModelError(f"{name} must lie strictly between 0 and 1")
    return torch.logit(wide).to(value.dtype)
