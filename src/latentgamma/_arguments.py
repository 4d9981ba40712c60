"""Checks of options: each returns the value, or raises an ArgumentError that names the option."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from latentgamma.errors import ArgumentError

if TYPE_CHECKING:
    import torch


def wrong(name: str, expected: str, value: object) -> ArgumentError:
    """Return the error for an option with a wrong value."""
    return ArgumentError(f"{name} must be {expected}, not {value!r}")


def one_of(name: str, value: Any, allowed: Iterable[str]) -> Any:
    """Return the value if it is one of the allowed names.

    >>> one_of("form", "dense", ("dense", "sparse"))
    'dense'
    """
    if not isinstance(value, str) or value not in (allowed := tuple(allowed)):
        raise wrong(name, f"one of {', '.join(map(repr, allowed))}", value)
    return value


def whole_number(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """Return a whole number from `least` on, and at most `most`, as a plain int.

    >>> whole_number("seed", 3)
    3
    """
    number = value if type(value) is int else _index(value)
    if number is None or number < least or (most is not None and number > most):
        end = "on" if most is None else f"to {most}"
        raise wrong(name, f"a whole number from {least} {end}", value)
    return number


def _index(value: Any) -> int | None:
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def real_number(name: str, value: Any, expected: str, accept: Callable[[float], bool]) -> float:
    """Return a number that is accepted, as a plain float; `expected` says which ones are.

    >>> real_number("noise", 0.1, "a fraction from 0 to 1", lambda fraction: 0 <= fraction <= 1)
    0.1
    """
    if not isinstance(value, (bool, str)):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if accept(number):
            return number
    raise wrong(name, expected, value)


def usable_device(value: Any) -> torch.device | str:
    """Return the device if tensors can be made on it."""
    if isinstance(value, str) and value == "cpu":
        return value  # without an import of torch
    import torch

    try:
        torch.empty(0, device=value)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(f"device {value!r} cannot be used: {reason}") from None
    return torch.device(value)


def level_of_caller() -> int:
    """Return the stack level of a warning that is about a call from outside of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in ("latentgamma", "torch"):
            break
        frame, level = frame.f_back, level + 1
    return level
