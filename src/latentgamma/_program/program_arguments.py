"""Checks of what a program is made from: names, rules as pairs, compressed rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ProgramError
from latentgamma._program.rules import Rule

#: A rule as a plain pair: the head (or heads), then the body.
Pair: TypeAlias = "tuple[str | Iterable[str], str | Iterable[str]]"


def check_name(name: object) -> str:
    """The name of an atom; a `ProgramError` if it is not one."""
    if not isinstance(name, str) or not name:
        raise ProgramError(f"an atom's name is a non-empty string, not {name!r}")
    return name


def names_of_rule(rule: Rule | Pair) -> tuple[Iterable[str], Iterable[str], Iterable[str]]:
    """The names of the heads, of the body and of the negated atoms of a rule."""
    if isinstance(rule, Rule):
        return rule.heads, sorted(rule.body), sorted(rule.negated)
    try:
        heads, body = rule
    except (TypeError, ValueError):
        raise ProgramError(f"a rule is a pair (head or heads, body), not {rule!r}") from None
    # Keep the order in which a list names new atoms; a set has none, so sort it.
    return _name_list(heads), _name_list(body), ()


def _name_list(names: str | Iterable[str]) -> list[str]:
    if isinstance(names, str):
        return [names]
    if isinstance(names, (set, frozenset)):
        return sorted(names)
    return list(names)


def atom_names(atoms: Sequence[str] | int) -> tuple[str, ...]:
    """The names of the atoms, or a0, a1, … for a number of them."""
    if isinstance(atoms, (int, np.integer)):
        return tuple(f"a{i}" for i in range(int(atoms)))
    names = tuple(atoms)
    if len(set(names)) != len(names):
        raise ProgramError("atoms names some atom twice")
    for name in names:
        check_name(name)
    return names


def sorted_rows(
    what: str, indices: npt.ArrayLike, indptr: npt.ArrayLike
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The compressed rows as sorted sets, checked."""
    return _sorted_sets(*_checked_rows(what, indices, indptr))


def sorted_literals(
    indices: npt.ArrayLike, indptr: npt.ArrayLike, negated: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The compressed rows of bodies as sorted sets of literals, positive ones first, checked."""
    flat, ptr = _checked_rows("body", indices, indptr)
    if negated is None:
        return _sorted_sets(flat, ptr)
    signs = np.asarray(negated)
    if signs.shape != flat.shape or (signs.size and signs.dtype != np.bool_):
        raise ProgramError(
            f"body_negated must be one boolean for each of the {flat.size} body_indices, not "
            f"{signs.dtype} of shape {signs.shape}"
        )
    # As unsigned numbers with the sign in the highest bit, literals sort as they should.
    high = np.uint32(1 << 31)
    ordered, ptr = _sorted_sets(flat.astype(np.uint32) | signs.astype(np.uint32) * high, ptr)
    atoms = (ordered & ~high).astype(np.int32)
    return np.where(ordered >= high, ~atoms, atoms), ptr


def _checked_rows(
    what: str, indices: npt.ArrayLike, indptr: npt.ArrayLike
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    given, ptr = np.asarray(indices), np.asarray(indptr)
    for name, array in ((f"{what}_indices", given), (f"{what}_indptr", ptr)):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ProgramError(
                f"{name} must be a one-dimensional integer array, not "
                f"{array.dtype} of shape {array.shape}"
            )
    ptr = ptr.astype(np.int64)
    if not len(ptr) or ptr[0] != 0 or ptr[-1] != given.size or np.any(np.diff(ptr) < 0):
        raise ProgramError(
            f"{what}_indptr must rise from 0 to {given.size}, the number of {what}_indices"
        )
    if given.size and (given.min() < 0 or given.max() > np.iinfo(np.int32).max):
        raise ProgramError(f"{what}_indices must lie in 0…{np.iinfo(np.int32).max}")
    return given.astype(np.int32), ptr


def _sorted_sets(
    flat: npt.NDArray[Any], ptr: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    rising = (flat[1:] > flat[:-1]) | (np.diff(row) > 0)
    if np.all(rising):
        return flat, ptr
    order = np.lexsort((flat, row))
    flat, row = flat[order], row[order]
    keep = np.concatenate(([True], (np.diff(flat) != 0) | (np.diff(row) != 0)))
    counts = np.bincount(row[keep], minlength=len(ptr) - 1)
    return flat[keep], np.concatenate(([0], np.cumsum(counts)))


def numbered_as_read(read: npt.NDArray[np.int32], M: int) -> bool:
    """Whether M atoms that are numbered as they are met get the numbers they have."""
    highest = np.maximum.accumulate(np.concatenate(([-1], read)))
    return bool(np.all(np.diff(highest) <= 1) and highest[-1] == M - 1)
