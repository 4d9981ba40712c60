"""A hash of numbers, to tell whether processes have the same."""

from __future__ import annotations

from torch import Tensor


def mixed_bits(numbers: Tensor) -> Tensor:
    """A hash of each 64-bit number: the finalizer of splitmix64, in wrapping arithmetic."""
    numbers = (numbers ^ (numbers >> 30)) * -4658895280553007687
    numbers = (numbers ^ (numbers >> 27)) * -7723592293110705685
    return numbers ^ (numbers >> 31)
