"""Observations: from arrays, tensors, frames and files to checked Boolean examples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import DataError
from latentgamma._learning.data_files import (
    is_path,
    read_archive,
    read_array,
    read_table,
    read_text_table,
    suffix,
)
from latentgamma._learning.options import Kind
from latentgamma._learning.tables import (
    NEXT,
    TRAJECTORY,
    Values,
    ValueTable,
    is_frame,
    number_rows,
    read_frame,
)
from latentgamma._learning.wording import listing, quantity
from latentgamma._program.facts import Mask

Labels: TypeAlias = npt.NDArray[np.int8]

#: A probability this near to 0 or 1 is taken for it: some sums of ones come out like that.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Observations:
    """Examples to learn from: states before and labels after, with one column per atom.

    Attributes:
        atoms: the names of the columns.
        states: the states before, rounded; repeated examples once. (N, M)
        labels: 1, 0, or −1 where a label is missing. (N, M)
        counts: how often each example was given. (N,)
        rows: the number of the row, from 1 on, in which each example was first given. (N,)
        notes: what cannot be learned from these examples.
        doubt: the share of labels that round to the wrong side, if they are probabilities.
        probability: the labels, if they are probabilities. (N, M)
    """

    atoms: tuple[str, ...]
    states: Mask
    labels: Labels
    counts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    notes: tuple[str, ...] = ()
    doubt: float = 0.0
    probability: npt.NDArray[np.float32] | None = None

    @property
    def N(self) -> int:
        """The number of different examples."""
        return len(self.states)

    @property
    def M(self) -> int:
        """The number of atoms."""
        return len(self.atoms)

    def subset(self, chosen: npt.NDArray[np.int64]) -> Observations:
        """Return some of these examples."""
        return Observations(
            self.atoms,
            self.states[chosen],
            self.labels[chosen],
            self.counts[chosen],
            self.rows[chosen],
            self.notes,
            self.doubt,
            None if self.probability is None else self.probability[chosen],
        )


@dataclass(frozen=True)
class _Reading:
    """How tables in text are read."""

    delimiter: str | None = None
    ignore: tuple[str, ...] = ()


def observe(
    inputs: Any,
    targets: Any = None,
    *,
    kind: Kind = "transitions",
    atoms: Sequence[str] | None = None,
    delimiter: str | None = None,
    ignore: Iterable[str] = (),
) -> Observations:
    """Return the examples in arrays, tensors, frames, files or iterators of rows, checked.

    Args:
        inputs: the states before. A .csv, .tsv or .parquet file, an open file of text, or a data
            frame has one column per atom. A .npy file is an array; a .npz file has `inputs`, and
            can have `targets` and `atoms`.
        targets: the states after. Without targets, the columns `a` and `a'` of a table hold an
            atom before and after.
        kind: what the examples are.
        atoms: the names of the columns.
        delimiter: what separates the cells of text.
        ignore: columns of a table that are left out.

    Raises:
        DataError: the examples cannot be read, or have wrong shapes or values.
    """
    reading = _Reading(delimiter, tuple(ignore))
    if targets is None and is_path(inputs) and suffix(_path(inputs)) == ".npz":
        inputs, targets, inside = read_archive(_path(inputs))
        atoms = inside if atoms is None else atoms
    if kind == "trajectories":
        before, after = _trajectories(inputs, targets, reading)
    elif kind == "models":
        if targets is not None:
            raise DataError("models are closed as they are: pass them alone, without targets")
        before = after = _table("models", inputs, reading)
    elif targets is None:
        before, after = _one_table(inputs, reading)
    else:
        before = _table("inputs", inputs, reading)
        after = _table("targets", targets, reading)
        if before.names is not None and after.names is not None:
            after = _same_order(before, after)
    _check_shapes(before, after)
    names = _atom_names(atoms, before.names or after.names, before.values.shape[1])
    check_values(before, names, missing=False)
    check_values(after, names, missing=True)
    return _rounded(names, before.values, after.values)


def _rounded(atoms: tuple[str, ...], before: Values, after: Values) -> Observations:
    known = ~np.isnan(after)
    after = np.where(np.abs(after - np.round(after)) < _ROUNDING, np.round(after), after)
    doubt = float(np.minimum(after, 1 - after)[known].mean()) if known.any() else 0.0
    states = before > 0.5
    labels = np.where(known, after > 0.5, -1).astype(np.int8)
    notes = _notes(atoms, states, labels)
    between = float(((before > 0) & (before < 1)).mean()) if before.size else 0.0
    if between > 0:
        notes = (*notes, f"{between:.1%} of the inputs lie between 0 and 1, and were rounded")
    if doubt > 0:  # examples that round alike are different ones
        rows = np.arange(len(states))
        ones, probability = np.ones(len(states), np.int64), after.astype(np.float32)
        return Observations(atoms, states, labels, ones, rows + 1, notes, doubt, probability)
    first, counts = _first_copies(np.hstack([states.astype(np.int8), labels]))
    return Observations(atoms, states[first], labels[first], counts, first + 1, notes)


# ------------------------------------------------------------------------ sources


def _path(source: Any) -> Path:
    return Path(os.fsdecode(source))


def _table(what: str, source: Any, reading: _Reading) -> ValueTable:
    """Return the values of any source, and the names of the columns where it has any."""
    if is_path(source):
        path = _path(source)
        if suffix(path) != ".npy":
            return read_table(path, delimiter=reading.delimiter, ignore=reading.ignore)
        what, source = path.name, read_array(path)
    elif hasattr(source, "read"):
        name = str(getattr(source, "name", what))
        name = "standard input" if name == "<stdin>" else name
        return read_text_table(source, name, delimiter=reading.delimiter, ignore=reading.ignore)
    elif is_frame(source):
        return read_frame(source, what, reading.ignore)
    if reading.ignore:
        raise DataError(f"{what} has no names of columns, so none can be ignored")
    if hasattr(source, "detach"):
        source = source.detach().cpu().double().numpy()
    elif isinstance(source, Iterable) and not isinstance(source, (np.ndarray, list, tuple)):
        source = list(source)
    return ValueTable(number_rows(what, source), None, what)


def _same_order(before: ValueTable, after: ValueTable) -> ValueTable:
    """Return the second table with its columns in the order of the first."""
    if set(before.columns) != set(after.columns):
        odd = sorted(set(before.columns) ^ set(after.columns))
        raise DataError(
            f"inputs and targets must have the same columns; only one has "
            f"{listing([repr(name) for name in odd])}"
        )
    order = [after.columns.index(name) for name in before.columns]
    return ValueTable(after.values[:, order], before.columns, after.source)


def _one_table(source: Any, reading: _Reading) -> tuple[ValueTable, ValueTable]:
    """Return the columns of one table as states before and after."""
    table = _table("inputs", source, reading)
    if table.names is None:
        raise DataError(
            "targets are missing: pass inputs and targets, or one table with columns a and a'"
        )
    names = table.names
    base = [name for name in names if not name.endswith(NEXT)]
    place = {name: i for i, name in enumerate(names)}
    alone = [name for name in names if name.endswith(NEXT) and name[:-1] not in base]
    if alone or len(base) == len(names):
        advice = (
            '; if it holds trajectories pass kind="trajectories"' if TRAJECTORY in names else ""
        )
        problem = f"{alone[0]!r} stands alone" if alone else "no column ends in a prime"
        raise DataError(
            f"without targets a table needs columns a and a' for the atom a before and after, but "
            f"in {table.source} {problem}{advice}"
        )
    before = table.values[:, [place[name] for name in base]]
    # An atom without a column for afterwards has no label: nothing is learned about it.
    after = np.full_like(before, np.nan)
    for i, name in enumerate(base):
        if name + NEXT in place:
            after[:, i] = table.values[:, place[name + NEXT]]
    return ValueTable(before, base, table.source), ValueTable(after, base, table.source)


def _trajectories(source: Any, targets: Any, reading: _Reading) -> tuple[ValueTable, ValueTable]:
    """Return successive states of trajectories as states before and after."""
    if targets is not None:
        raise DataError("trajectories bring their own targets: pass the states alone")
    names, what = None, "trajectories"
    if is_path(source) and suffix(_path(source)) == ".npy":
        source = read_array(_path(source))
    if is_path(source) or hasattr(source, "read") or is_frame(source):
        table = _table(what, source, reading)
        names, what = table.columns, table.source
        parts = [table.values]
        if TRAJECTORY in names:
            column = names.index(TRAJECTORY)
            which = table.values[:, column]
            values = np.delete(table.values, column, axis=1)
            names = [name for name in names if name != TRAJECTORY]
            parts = [values[which == one] for one in dict.fromkeys(which.tolist())]
    else:
        if hasattr(source, "detach"):
            source = source.detach().cpu().double().numpy()
        if isinstance(source, np.ndarray) and source.ndim == 2:
            source = [source]
        if not isinstance(source, Iterable):
            raise DataError("trajectories must be arrays of shape (steps, M), one after another")
        parts = [_table("a trajectory", part, reading).values for part in source]
    if not parts or any(part.ndim != 2 for part in parts):
        raise DataError("trajectories must be arrays of shape (steps, M), one after another")
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise DataError(f"trajectories must have the same atoms, but have {sorted(widths)} columns")
    before = np.concatenate([part[:-1] for part in parts])
    after = np.concatenate([part[1:] for part in parts])
    return ValueTable(before, names, what), ValueTable(after, names, what)


# ------------------------------------------------------------------------ checks


def _check_shapes(before: ValueTable, after: ValueTable) -> None:
    for table in (before, after):
        if table.values.ndim != 2:
            raise DataError(
                f"{table.source} must have one row per example and one column per atom, shape "
                f"(N, M), but has shape {table.values.shape}"
            )
    if before.values.shape != after.values.shape:
        raise DataError(
            f"inputs and targets must have one shape, but have {before.values.shape} and "
            f"{after.values.shape}"
        )
    if before.values.size == 0:
        raise DataError(f"there is nothing to learn from: the shape is {before.values.shape}")


def _atom_names(atoms: Any, columns: Sequence[str] | None, M: int) -> tuple[str, ...]:
    if atoms is not None and not isinstance(atoms, Iterable):
        raise DataError(f"atoms must be the names of the columns, not {atoms!r}")
    names = tuple(atoms) if atoms is not None else columns
    if names is None:
        return tuple(f"a{i}" for i in range(M))
    if len(names) != M:
        raise DataError(
            f"there are {quantity(M, 'column')}, but {quantity(len(names), 'name')} in atoms"
        )
    if len(set(names)) != M or any(not isinstance(name, str) or not name for name in names):
        raise DataError("atoms must be named by different non-empty strings")
    return tuple(names)


def check_values(table: ValueTable, atoms: Sequence[str], *, missing: bool) -> None:
    """Raise if a value is not from 0 to 1; NaN is allowed where values may be missing."""
    bad = ~((table.values >= 0) & (table.values <= 1))
    if missing:
        bad &= ~np.isnan(table.values)
    if not bad.any():
        return
    row, column = np.argwhere(bad)[0].tolist()
    where = f"{table.source}, row {row + 1}, column {atoms[column]!r}"
    value = table.values[row, column]
    if np.isnan(value):
        raise DataError(
            f"{where}: a state cannot have a missing value; drop the row, or only its labels"
        )
    raise DataError(f"{where}: expected a value from 0 to 1, but found {value:g}")


def _notes(atoms: Sequence[str], states: Mask, labels: Labels) -> tuple[str, ...]:
    def named(mask: npt.ArrayLike) -> str:
        return listing([repr(atoms[i]) for i in np.flatnonzero(mask).tolist()], 5)

    always, never = states.all(0), ~states.any(0)
    unlabelled = (labels < 0).all(0)
    notes = []
    if always.any():
        notes.append(
            f"always true before, so no rule can be seen to need or derive it: {named(always)}"
        )
    if never.any():
        notes.append(f"never true before, so no rule can be seen to use it: {named(never)}")
    if unlabelled.any():
        notes.append(f"never labelled, so no rule for it was searched: {named(unlabelled)}")
    return tuple(notes)


def _first_copies(
    rows: npt.NDArray[np.int8],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each different row first stands, in that order, and how often it comes."""
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).ravel()
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]
