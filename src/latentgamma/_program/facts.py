"""One fact set or many, in every form a caller may have them, as boolean rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._errors import FactsError
from latentgamma._program.program import Facts, Mask, Program


def fact_masks(program: Program, facts: Facts | Iterable[Facts]) -> Mask:
    """One boolean for each atom, of one fact set (M,) or of many (N, M).

    >>> program = Program.from_rules([("bird", ["penguin"])])
    >>> fact_masks(program, "penguin")
    array([False,  True])
    >>> fact_masks(program, [["penguin"], []])
    array([[False,  True],
           [False, False]])
    """
    if isinstance(facts, np.ndarray):
        return _of_array(program, facts)
    if isinstance(facts, (str, int)) or not isinstance(facts, Iterable):
        return program.mask(facts)
    items: list[Any] = list(facts)
    single = [isinstance(item, str) or not isinstance(item, Iterable) for item in items]
    if all(single):
        return program.mask(items)
    if any(single):
        raise FactsError("facts are names or indices, or fact sets one after another, not both")
    masks = np.zeros((len(items), program.M), np.bool_)
    for row, one in enumerate(items):
        try:
            masks[row] = program.mask(one)
        except FactsError as error:
            raise FactsError(f"fact set {row}: {error}") from None
    return masks


def _of_array(program: Program, facts: npt.NDArray[Any]) -> Mask:
    if facts.ndim == 1 and facts.dtype.kind in "biuU":
        return program.mask(facts)
    if facts.dtype.kind != "b" or facts.ndim != 2 or facts.shape[1] != program.M:
        # Rows of integers could be indices as well as truth values, so they are not guessed at.
        raise FactsError(
            f"an array of fact sets is boolean and has the shape (N, {program.M}), but this one "
            f"is {facts.dtype} and has the shape {facts.shape}"
        )
    return facts.copy()
