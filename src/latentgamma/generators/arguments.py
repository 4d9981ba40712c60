"""The arguments of the program generators, checked."""

from __future__ import annotations

import numpy as np

from latentgamma._errors import ProgramError


def count(name: str, value: int, least: int = 0) -> int:
    """A whole number no smaller than `least`, as a plain int."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ProgramError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ProgramError(f"{name} must be at least {least}, but {name}={value}")
    return int(value)


def size_range(name: str, value: int | tuple[int, int]) -> tuple[int, int]:
    """The smallest and largest size that an int or a pair allows."""
    if not isinstance(value, tuple):
        return (count(name, value, 1),) * 2
    if len(value) != 2:
        raise ProgramError(f"{name} is a size or a pair (smallest, largest), not {value!r}")
    low, high = count(name, value[0], 1), count(name, value[1], 1)
    if low > high:
        raise ProgramError(f"{name}={value!r} has its larger end first")
    return low, high


def generator(seed: int) -> np.random.Generator:
    """The random numbers of a seed."""
    return np.random.default_rng(count("seed", seed))
