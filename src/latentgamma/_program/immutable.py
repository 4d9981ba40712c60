"""Values whose arrays cannot be written to, however they were made."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = TypeVar("Array", bound=npt.NDArray[Any])


def read_only(array: Array) -> Array:
    """The same array, which cannot be written to from now on, nor through what it is a view of."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner.flags.writeable = False
        owner = owner.base
    return array


class Immutable:
    """A dataclass whose arrays are read-only, also in its pickled and copied forms.

    What was computed from a value is kept with it, so nothing in it may change. It takes
    ownership of the arrays that it is made from.
    """

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                read_only(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled arrays are writable, so unpickling makes the value anew.
        return type(self), tuple(getattr(self, item.name) for item in fields(self))  # type: ignore[arg-type]

    def __copy__(self) -> Any:
        return self  # nothing in it can change

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self
