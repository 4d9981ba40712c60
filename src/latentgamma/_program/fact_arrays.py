"""Facts in arrays: booleans, states, and integers that are values or indices."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from latentgamma._errors import FactsError


class Atoms(Protocol):
    """A program, definite or not, as far as facts are concerned."""

    @property
    def M(self) -> int:
        """The number of atoms."""

    @property
    def atoms(self) -> tuple[str, ...]:
        """The names of the atoms."""

    @property
    def index(self) -> dict[str, int]:
        """The index of each atom's name."""


def is_array(facts: object) -> bool:
    """Whether numpy can read this as an array."""
    return hasattr(facts, "__array__") and not isinstance(facts, np.generic)


def as_array(facts: Any) -> npt.NDArray[Any]:
    """The numpy array of an array or tensor."""
    if hasattr(facts, "detach"):  # a torch tensor, perhaps on a GPU or of a type numpy lacks
        facts = facts.detach().cpu()
        facts = facts.double() if facts.is_floating_point() else facts
    return np.asarray(facts)


def read_state(program: Atoms, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Booleans, or values between 0 and 1, one for each atom along the last axis."""
    if array.dtype.kind not in "bf":
        raise FactsError(f"an array of facts is boolean, integer or floating, not {array.dtype}")
    if array.shape[-1] != program.M:
        what = "boolean facts have" if array.dtype.kind == "b" else "a state has"
        shape = f"({program.M},)" if array.ndim == 1 else f"(N, {program.M})"
        raise FactsError(
            f"{what} one entry for each atom, shape {shape}, but this array has shape {array.shape}"
        )
    return array if array.dtype.kind == "b" else require_range(program, array)


def read_integers(program: Atoms, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """The masks of rows of integers: all of them values, or all of them indices. Shape (N, M)."""
    if rows.dtype == np.uint64:  # what `pack` makes; read as indices it would give other facts
        raise FactsError(
            "a uint64 array holds bit planes: pass packed=True to closures, or unpack them; "
            "integers that are indices or values have another dtype, such as int64"
        )
    N, n = rows.shape
    masks = np.zeros((N, program.M), np.bool_)
    if not rows.size:
        return masks
    low, high = int(rows.min()), int(rows.max())
    binary = low >= 0 and high <= 1
    if binary or n == program.M:
        ordered = np.sort(rows, axis=1)
        distinct = bool(np.all(ordered[:, 1:] != ordered[:, :-1]))
        if binary and n == program.M:
            if distinct and high < program.M:
                raise FactsError(
                    f"the integers {shorten(rows[:30].tolist())} can be the values of all {n} atoms or "
                    "the indices of some; use booleans for values, or sets for indices"
                )
            masks[:] = rows
            return masks
        if not distinct:
            raise FactsError(
                f"the integers {shorten(rows[:30].tolist())} are neither a state, which has a 0 or a 1 "
                f"for each of the {program.M} atoms, nor indices, which do not repeat"
            )
    if low < 0 or high >= program.M:
        raise index_error(program, low if low < 0 else high, planes=N == program.M)
    masks[np.arange(N)[:, None], rows] = True
    return masks


def require_range(program: Atoms, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The values as float64; a `FactsError` if one lies outside [0, 1]."""
    wrong = ~((values >= 0) & (values <= 1))  # NaN is wrong, too
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise FactsError(
            f"{program.atoms[place[-1]]!r} has the value {values[tuple(place)]:g}; "
            "the values of a state lie between 0 and 1"
        )
    return values.astype(np.float64)


def require_boolean(program: Atoms, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """The values as booleans; a `FactsError` if one is neither 0 nor 1."""
    if values.dtype == np.bool_:
        return values
    soft = (values != 0) & (values != 1)
    if soft.any():
        place = np.argwhere(soft)[0]
        raise FactsError(
            f"{program.atoms[place[-1]]!r} has the value {values[tuple(place)]:g}, but here a fact "
            "is true (1) or false (0); pass state > 0.5, or give soft values to a model"
        )
    return values.astype(np.bool_)


def index_error(program: Atoms, index: object, *, planes: bool = False) -> FactsError:
    """The error for an index that no atom has, which may be a word of bit planes."""
    hint = "; for bit planes pass packed=True" if planes else ""
    return FactsError(f"fact index {index} is outside 0…{program.M - 1}{hint}")


def shorten(values: list[Any]) -> str:
    """The values as an error shows them."""
    text = str(values)
    return text if len(text) <= 60 else f"{text[:59]}…"
