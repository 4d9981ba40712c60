"""Fact sets in every form that a caller may give: names, indices, masks, values, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._text import shortened
from latentgamma.errors import FactsError, unknown_atoms
from latentgamma.program.names import UnreadableName, read_atom

if TYPE_CHECKING:
    from latentgamma.program.program import Program

# ---- Facts in arrays: booleans, states, and integers that are values or indices


def is_array(facts: object) -> bool:
    """Return whether numpy can read this as an array."""
    return hasattr(facts, "__array__") and not isinstance(facts, np.generic)


def as_array(facts: Any) -> npt.NDArray[Any]:
    """Return the numpy array of an array or tensor."""
    if hasattr(facts, "detach"):  # a torch tensor, perhaps on a GPU or of a type numpy lacks
        facts = facts.detach().cpu()
        facts = facts.double() if facts.is_floating_point() else facts
    return np.asarray(facts)


def read_state(program: Program, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return booleans, or values between 0 and 1, one for each atom along the last axis."""
    if array.dtype.kind not in "bf":
        raise FactsError(f"an array of facts is boolean, integer or floating, not {array.dtype}")
    if array.shape[-1] != program.M:
        what = "boolean facts have" if array.dtype.kind == "b" else "a state has"
        shape = f"({program.M},)" if array.ndim == 1 else f"(N, {program.M})"
        raise FactsError(
            f"{what} one entry for each atom, shape {shape}, but this array has shape {array.shape}"
        )
    return array if array.dtype.kind == "b" else require_range(program, array)


def read_integers(program: Program, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return the masks of rows of integers, all of them values or all of them indices. (N, M)."""
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
                    f"the integers {shortened(str(rows[:30].tolist()), 60)} can be the values of all {n} atoms or "
                    "the indices of some; use booleans for values, or sets for indices"
                )
            masks[:] = rows
            return masks
        if not distinct:
            raise FactsError(
                f"the integers {shortened(str(rows[:30].tolist()), 60)} are neither a state, which has a 0 or a 1 "
                f"for each of the {program.M} atoms, nor indices, which do not repeat"
            )
    if low < 0 or high >= program.M:
        raise index_error(program, low if low < 0 else high, planes=N == program.M)
    masks[np.arange(N)[:, None], rows] = True
    return masks


def require_range(program: Program, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the values as float64; a `FactsError` if one lies outside [0, 1]."""
    wrong = ~((values >= 0) & (values <= 1))  # NaN is wrong, too
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise FactsError(
            f"{program.atoms[place[-1]]!r} has the value {values[tuple(place)]:g}; "
            "the values of a state lie between 0 and 1"
        )
    return values.astype(np.float64)


def require_boolean(program: Program, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return the values as booleans; a `FactsError` if one is neither 0 nor 1."""
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


def index_error(program: Program, index: object, *, planes: bool = False) -> FactsError:
    """Return the error for an index that no atom has, which may be a word of bit planes."""
    hint = "; for bit planes pass packed=True" if planes else ""
    return FactsError(f"fact index {index} is outside 0…{program.M - 1}{hint}")


# ---- The one reader of facts: every function of the library takes them in the same forms
# One fact set is
#
# - a name, an index, or several of them: `"bird"`, `["bird", "penguin"]`, `{0, 4}`;
# - a dictionary from names or indices to values: `{"bird": 1, "penguin": 0}`;
# - one boolean for each atom;
# - a state: one value between 0 and 1 for each atom. Only a model and `Program.state` take values
#   between; where facts are true or false, a value other than 0 and 1 is an error.
#
# Many fact sets are an array of shape (N, M), or an iterable of fact sets. Arrays may be numpy
# arrays, torch tensors, or whatever else numpy can read.
#
# Integers can mean indices or values. What they mean never depends on a guess:
#
# - in a set or a range they are indices;
# - in an array they are values if all are 0 or 1 and there is one for each atom, else indices; an
#   array that fits both descriptions, or neither, is an error;
# - in a list or tuple they are indices; one that could be a state instead is an error.

#: One boolean for each atom, shape (M,), or one row for each fact set, shape (N, M).
Mask: TypeAlias = npt.NDArray[np.bool_]
#: One fact set.
Facts: TypeAlias = (
    "str | int | Mapping[Any, Any] | Iterable[str] | Iterable[int] | Iterable[float] "
    "| npt.NDArray[Any]"
)
#: Many fact sets: one row for each, or one `Facts` after another.
FactSets: TypeAlias = "npt.NDArray[Any] | Iterable[Facts]"

_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def fact_mask(program: Program, facts: Facts) -> Mask:
    """Return one boolean for each atom, from one fact set. Shape (M,).

    >>> from latentgamma import parse
    >>> program = parse("bird :- penguin.")
    >>> fact_mask(program, "penguin"), fact_mask(program, {"penguin": 1, "bird": 0})
    (array([False,  True]), array([False,  True]))

    Raises:
        FactsError: if these are not facts of the program, or some are neither true nor false.
    """
    return require_boolean(program, _read_one(program, facts))


def fact_masks(program: Program, facts: Facts | FactSets) -> Mask:
    """Return one boolean for each atom, from one fact set (M,) or many (N, M).

    >>> from latentgamma import parse
    >>> fact_masks(parse("bird :- penguin."), [["penguin"], []])
    array([[False,  True],
           [False, False]])

    Raises:
        FactsError: as in `fact_mask`.
    """
    return require_boolean(program, _read_one_or_many(program, facts))


def fact_rows(program: Program, fact_sets: FactSets) -> Mask:
    """Return one boolean for each atom and fact set, from many fact sets. Shape (N, M).

    A boolean array comes back as it is, not as a copy.

    Raises:
        FactsError: as in `fact_mask`, and where a single fact set is given.
    """
    if is_array(fact_sets):
        array = as_array(fact_sets)
        if array.ndim != 2:
            raise FactsError(_describe_fact_sets(program, f"an array of shape {array.shape}"))
        return require_boolean(program, _read_matrix(program, array))
    if isinstance(fact_sets, (str, Mapping)) or not isinstance(fact_sets, Iterable):
        raise FactsError(_describe_fact_sets(program, repr(fact_sets)))
    sets: list[Any] = list(fact_sets)
    if any(issubclass(cls, (str, *_NUMBERS)) for cls in set(map(type, sets))):
        facts = next(facts for facts in sets if isinstance(facts, (str, *_NUMBERS)))
        raise FactsError(_describe_fact_sets(program, f"a collection that contains {facts!r}"))
    return require_boolean(program, _read_sets(program, sets))


def fact_values(program: Program, facts: Facts | FactSets) -> npt.NDArray[np.float64]:
    """Return the value of each atom between 0 and 1, from one fact set (M,) or many (N, M).

    >>> from latentgamma import parse
    >>> fact_values(parse("bird :- penguin."), {"penguin": 0.7})
    array([0. , 0.7])

    Raises:
        FactsError: if these are not facts of the program, or a value lies outside [0, 1].
    """
    return _read_one_or_many(program, facts).astype(np.float64)


def atom_index(program: Program, atom: str | int, *, what: str = "questions") -> int:
    """Return the index of one atom, given by its name or its index.

    A name may be written as in rule text: `edge(a, b)` finds the atom `edge(a,b)`.

    Raises:
        FactsError: if the program has no such atom.
    """
    if isinstance(atom, str):
        index = find_name(program, atom)
        if index is None:
            raise unknown_atoms([atom], program.atoms, what=what)
        return index
    if isinstance(atom, bool) or not isinstance(atom, (int, np.integer)):
        raise FactsError(f"an atom is a name or an index, not {atom!r} ({type(atom).__name__})")
    if not 0 <= atom < program.M:
        raise FactsError(f"atom index {atom} is outside 0…{program.M - 1}")
    return int(atom)


def find_name(program: Program, name: str) -> int | None:
    """Return the index of the atom with this name, as it is or as rule text reads it, or None."""
    index = program.index.get(name)
    if index is not None:
        return index
    text = name.strip()
    try:
        read, end = read_atom(text)
    except UnreadableName:
        return None
    return program.index.get(read) if end == len(text) else None


# ---- One set or many


def _read_one_or_many(program: Program, facts: Any) -> npt.NDArray[Any]:
    if is_array(facts):
        array = as_array(facts)
        return _read_matrix(program, array) if array.ndim == 2 else _read_vector(program, array)
    if isinstance(facts, (str, Mapping, set, frozenset, range)) or not isinstance(facts, Iterable):
        return _read_one(program, facts)
    items = list(facts)
    single = [isinstance(item, str) or not isinstance(item, Iterable) for item in items]
    if all(single):
        return _read_one(program, items)
    if any(single):
        raise FactsError(
            "facts are one fact set, or a collection of fact sets, but not both at once"
        )
    return _read_sets(program, items)


def _read_sets(program: Program, sets: list[Any]) -> npt.NDArray[Any]:
    quick = _read_plain_sets(program, sets)
    if quick is not None:
        return quick
    rows = []
    for number, facts in enumerate(sets):
        try:
            rows.append(_read_one(program, facts))
        except FactsError as error:
            raise FactsError(f"fact set {number}: {error}") from None
    return np.stack(rows) if rows else np.zeros((0, program.M), np.bool_)


def _read_plain_sets(program: Program, sets: list[Any]) -> Mask | None:
    """Return the rows of collections of plain names or indices; None if a set has others."""
    if not set(map(type, sets)) <= {list, tuple, set, frozenset}:
        return None
    flat = list(chain.from_iterable(sets))
    kinds = set(map(type, flat))
    try:
        if kinds == {str}:
            indices = np.array(list(map(program.index.__getitem__, flat)), np.int64)
        elif kinds <= {int, np.int64, np.int32}:
            indices = np.array(flat, np.int64)
        else:
            return None
    except (KeyError, OverflowError):
        return None
    sizes = np.fromiter(map(len, sets), np.int64, len(sets))
    if kinds != {str} and np.any(sizes == program.M):
        return None  # it may be a state
    if indices.size and (indices.min() < 0 or indices.max() >= program.M):
        return None
    rows = np.zeros((len(sets), program.M), np.bool_)
    rows[np.repeat(np.arange(len(sets)), sizes), indices] = True
    return rows


# ---- One set


def _read_one(program: Program, facts: Any) -> npt.NDArray[Any]:
    """Return booleans, or float64 values where the facts came with values. Shape (M,)."""
    if is_array(facts):
        return _read_vector(program, as_array(facts))
    if isinstance(facts, Mapping):
        return _read_mapping(program, facts)
    if isinstance(facts, (str, int, np.integer)) and not isinstance(facts, bool):
        return _read_members(program, [facts])
    if isinstance(facts, (set, frozenset, range)):
        return _read_members(program, list(facts))
    if not isinstance(facts, Iterable):
        raise FactsError(
            f"facts are names, indices, one boolean or value for each atom, or a dictionary, "
            f"not {facts!r} ({type(facts).__name__})"
        )
    items = list(facts)
    kinds = {_kind(cls) for cls in set(map(type, items))}
    if kinds == {"boolean"}:
        return _read_vector(program, np.asarray(items, np.bool_))
    if "value" in kinds and kinds <= {"value", "index"}:
        return _read_vector(program, np.asarray(items, np.float64))
    if kinds == {"index"} and len(items) == program.M and all(item in (0, 1) for item in items):
        raise FactsError(
            f"{shortened(str(items), 60)} can be the values of all {program.M} atoms or the indices of some; "
            "use booleans or an array for values, or a set for indices"
        )
    return _read_members(program, items)


def _kind(cls: type) -> str:
    if issubclass(cls, (bool, np.bool_)):
        return "boolean"
    if issubclass(cls, str):
        return "name"
    if issubclass(cls, (int, np.integer)):
        return "index"
    return "value" if issubclass(cls, (float, np.floating)) else "other"


def _read_members(program: Program, items: list[Any]) -> Mask:
    """Return the mask of names and indices."""
    mask = np.zeros(program.M, np.bool_)
    unknown = []
    for item in items:
        if isinstance(item, str):
            index = find_name(program, item)
            if index is None:
                unknown.append(item)
            else:
                mask[index] = True
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            if not 0 <= item < program.M:
                raise index_error(program, item)
            mask[item] = True
        else:
            raise FactsError(
                f"a fact is a name or an index, but this one is {item!r} ({type(item).__name__})"
            )
    if unknown:
        raise unknown_atoms(unknown, program.atoms)
    return mask


def _read_mapping(program: Program, facts: Mapping[Any, Any]) -> npt.NDArray[np.float64]:
    values = np.zeros(program.M)
    named: set[int] = set()
    for atom, value in facts.items():
        i = atom_index(program, atom, what="facts")
        if not isinstance(value, _NUMBERS):
            raise FactsError(
                f"the value of {atom!r} is a number between 0 and 1, not {value!r} "
                f"({type(value).__name__})"
            )
        if i in named:
            raise FactsError(f"facts give a value to {program.atoms[i]!r} twice")
        named.add(i)
        values[i] = value
    return require_range(program, values)


def _read_vector(program: Program, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.ndim != 1:
        raise FactsError(
            f"an array of facts has shape ({program.M},) or, for many fact sets, "
            f"(N, {program.M}), but this one has shape {array.shape}"
        )
    if array.dtype.kind in "OU":
        return _read_one(program, array.tolist())
    if array.dtype.kind in "iu":
        mask: Mask = read_integers(program, array[None])[0]
        return mask
    if not array.size:  # np.array([]) is floating, and no facts
        return np.zeros(program.M, np.bool_)
    return read_state(program, array)


def _read_matrix(program: Program, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind in "OU":
        return _read_sets(program, array.tolist())
    if array.dtype.kind in "iu":
        return read_integers(program, array)
    return read_state(program, array)


def _describe_fact_sets(program: Program, got: str) -> str:
    return (
        f"fact sets are a collection of fact sets, such as [['a'], ['b', 'c']], or an array of "
        f"shape (N, {program.M}), not {got}; for a single set use closure"
    )


def bit_places(bits: int) -> list[int]:
    """Return the places of the bits of a number that are 1, rising.

    >>> bit_places(0b1101)
    [0, 2, 3]
    """
    places = []
    while bits:
        low = bits & -bits
        places.append(low.bit_length() - 1)
        bits ^= low
    return places
