"""Observations: from arrays, tensors and tables to checked Boolean examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import DataError
from latentgamma._learning.data_files import RUN, Values, archive_in, array_in, table_in
from latentgamma._program.program import Mask

Kind: TypeAlias = Literal["transitions", "closures", "trajectories", "models"]
Labels: TypeAlias = npt.NDArray[np.int8]

#: A probability this near to 0 or 1 is taken for it: some sums of ones come out like that.
_AS_GOOD_AS = 1e-6
#: In one table, a column with this mark at its end holds what became of the atom.
NEXT = "'"
RUNS = "trajectories"


@dataclass(frozen=True)
class Observations:
    """Examples to learn from: states before, labels after, both with one column per atom.

    `states` and `labels` are what the values round to, repeated examples kept once with their
    `counts`; a label is 1, 0, or −1 where it is missing. `doubt` is how often a rounded label is
    wrong if the targets are probabilities, and 0 if every one is 0 or 1. `belief` holds those
    probabilities, or None. `notes` say what a learner cannot know from these.
    """

    atoms: tuple[str, ...]
    states: Mask  # (N, M)
    labels: Labels  # (N, M)
    counts: npt.NDArray[np.int64]  # (N,)
    notes: tuple[str, ...] = ()
    doubt: float = 0.0
    belief: npt.NDArray[np.float32] | None = None  # (N, M)

    @property
    def N(self) -> int:
        """The number of different examples."""
        return len(self.states)

    @property
    def M(self) -> int:
        """The number of atoms."""
        return len(self.atoms)

    def rows(self, chosen: npt.NDArray[np.int64]) -> Observations:
        """Some of these examples."""
        return Observations(
            self.atoms,
            self.states[chosen],
            self.labels[chosen],
            self.counts[chosen],
            self.notes,
            self.doubt,
            None if self.belief is None else self.belief[chosen],
        )


def observe(
    inputs: Any,
    targets: Any = None,
    *,
    kind: Kind = "transitions",
    atoms: Sequence[str] | None = None,
) -> Observations:
    """The examples in arrays, tensors, tables or iterators of rows, checked.

    A path to a .csv or .parquet file, or a data frame, brings its own atoms: one column each.
    Without targets, a table's columns `a` and `a'` hold an atom before and after. A .npy file is
    an array; a .npz file has `inputs`, and can have `targets` and `atoms`, the names.
    """
    if targets is None and isinstance(inputs, (str, Path)) and Path(inputs).suffix == ".npz":
        inputs, targets, inside = archive_in(Path(inputs))
        atoms = inside if atoms is None else atoms
    if kind == "trajectories":
        before, after, names = _trajectories(inputs, targets)
    elif kind == "models":
        if targets is not None:
            raise DataError("models are closed as they are: pass them alone, without targets")
        before, names = _matrix("models", inputs)
        after = before
    elif targets is None:
        before, after, names = _one_table(inputs)
    else:
        before, names = _matrix("inputs", inputs)
        after, others = _matrix("targets", targets)
        if names is not None and others is not None and names != others:
            if set(names) != set(others):
                odd = sorted(set(names) ^ set(others))[:3]
                raise DataError(
                    f"inputs and targets must have the same columns; only one has {odd}"
                )
            after = after[:, [others.index(name) for name in names]]
        names = names or others
    _check_shape(before, after)
    atoms = _named(atoms, names, before.shape[1])
    _check_range("inputs", before, atoms, missing=False)
    _check_range("targets", after, atoms, missing=True)
    known = ~np.isnan(after)
    after = np.where(np.abs(after - np.round(after)) < _AS_GOOD_AS, np.round(after), after)
    doubt = float(np.minimum(after, 1 - after)[known].mean()) if known.any() else 0.0
    states = before > 0.5
    labels = np.where(known, after > 0.5, -1).astype(np.int8)
    notes = _notes(atoms, states, labels)
    between = float(((before > 0) & (before < 1)).mean()) if before.size else 0.0
    if between > 0:
        notes = (*notes, f"{between:.1%} of the inputs lie between 0 and 1, and were rounded")
    if doubt > 0:  # examples that round alike are different ones
        counts = np.ones(len(states), np.int64)
        return Observations(atoms, states, labels, counts, notes, doubt, after.astype(np.float32))
    both = np.hstack([states.astype(np.int8), labels])
    _, first, counts = _unique_rows(both)
    return Observations(atoms, states[first], labels[first], counts, notes)


def contradictions(data: Observations) -> list[tuple[int, int, int]]:
    """Pairs of examples with the same state and different labels, as (row, row, atom)."""
    found = []
    _, inverse = np.unique(_packed(data.states), axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(inverse.ravel()[order])) + 1)
    for group in groups:
        if len(group) < 2:
            continue
        labels = data.labels[group]
        clash = (labels == 1).any(0) & (labels == 0).any(0)
        for i in np.flatnonzero(clash).tolist():
            one, other = group[labels[:, i] == 1][0], group[labels[:, i] == 0][0]
            found.append((int(one), int(other), i))
    return found


# ------------------------------------------------------------------------ ways in


def _matrix(what: str, source: Any) -> tuple[Values, list[str] | None]:
    """The values as float64 rows, and the columns' names where the source has any."""
    names: list[str] | None = None
    if isinstance(source, (str, Path)):
        if Path(source).suffix == ".npy":
            return _matrix(what, array_in(Path(source)))
        return table_in(Path(source))
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        names = [str(name) for name in source.columns]
        source = source.to_numpy()
        if RUN in names:
            source = _with_numbered_runs(source, names.index(RUN))
    elif hasattr(source, "detach"):
        source = source.detach().cpu().double().numpy()
    elif isinstance(source, Iterable) and not isinstance(source, (np.ndarray, list, tuple)):
        source = list(source)
    try:
        values = np.asarray(source, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} must be rows of numbers, one column per atom: {error}") from None
    return values, names


def _with_numbered_runs(rows: Any, column: int) -> Any:
    """Rows of a data frame, with numbers for the names of the trajectories."""
    rows = np.array(rows, object)
    names = rows[:, column].tolist()
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    rows[:, column] = [number[name] for name in names]
    return rows


def _one_table(source: Any) -> tuple[Values, Values, list[str]]:
    values, names = _matrix("inputs", source)
    if names is None:
        raise DataError(
            "targets are missing: pass inputs and targets, or one table with columns a and a'"
        )
    base = [name for name in names if not name.endswith(NEXT)]
    place = {name: i for i, name in enumerate(names)}
    if len(place) != len(names):
        raise DataError("a column's name stands twice in the table")
    lost = [name for name in names if name.endswith(NEXT) and name[:-1] not in base]
    if lost or len(base) == len(names):
        advice = f"; if it holds trajectories say so, with kind={RUNS!r}" if RUN in names else ""
        raise DataError(
            f"without targets a table needs columns a and a' for the atom a before and after, but "
            f"{f'{lost[0]!r} stands alone' if lost else 'no column ends in a prime'}{advice}"
        )
    before = values[:, [place[name] for name in base]]
    # An atom without a column of its own for afterwards has no label: nothing is learned about it.
    after = np.full_like(before, np.nan)
    for i, name in enumerate(base):
        if name + NEXT in place:
            after[:, i] = values[:, place[name + NEXT]]
    return before, after, base


def _trajectories(source: Any, targets: Any) -> tuple[Values, Values, list[str] | None]:
    if targets is not None:
        raise DataError("trajectories bring their own targets: pass the states alone")
    names: list[str] | None = None
    if isinstance(source, (str, Path)) and Path(source).suffix == ".npy":
        source = array_in(Path(source))
    if isinstance(source, (str, Path)) or hasattr(source, "columns"):
        values, columns = _matrix("trajectories", source)
        names = columns or []
        if RUN in names:
            column = names.index(RUN)
            runs = values[:, column]
            values = np.delete(values, column, axis=1)
            names = [name for name in names if name != RUN]
            parts = [values[runs == run] for run in dict.fromkeys(runs.tolist())]
        else:
            parts = [values]
    else:
        if hasattr(source, "detach"):
            source = source.detach().cpu().double().numpy()
        if isinstance(source, np.ndarray) and source.ndim == 2:
            source = [source]
        parts = [_matrix("a trajectory", part)[0] for part in source]
    if not parts or any(part.ndim != 2 for part in parts):
        raise DataError("trajectories are arrays of shape (steps, M), one after another")
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise DataError(f"trajectories must have the same atoms, but have {sorted(widths)} columns")
    before = np.concatenate([part[:-1] for part in parts])
    after = np.concatenate([part[1:] for part in parts])
    return before, after, names


# ------------------------------------------------------------------------ checks


def _check_shape(before: Values, after: Values) -> None:
    for what, values in (("inputs", before), ("targets", after)):
        if values.ndim != 2:
            raise DataError(
                f"{what} must have one row per example and one column per atom, shape (N, M), "
                f"but have shape {values.shape}"
            )
    if before.shape != after.shape:
        raise DataError(
            f"inputs and targets must have one shape, but have {before.shape} and {after.shape}"
        )
    if before.size == 0:
        raise DataError(f"there is nothing to learn from: the table has shape {before.shape}")


def _named(atoms: Sequence[str] | None, columns: Sequence[str] | None, M: int) -> tuple[str, ...]:
    names = atoms if atoms is not None else columns
    if names is None:
        return tuple(f"a{i}" for i in range(M))
    if len(names) != M:
        raise DataError(f"there are {M} columns, but {len(names)} atoms were named")
    if len(set(names)) != M or any(not isinstance(name, str) or not name for name in names):
        raise DataError("atoms must be named by different non-empty strings")
    return tuple(names)


def _check_range(what: str, values: Values, atoms: Sequence[str], *, missing: bool) -> None:
    bad = ~((values >= 0) & (values <= 1))
    if missing:
        bad &= ~np.isnan(values)
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        value = values[row, column]
        advice = (
            "; a state cannot have a missing value: drop the row, or only its labels"
            if np.isnan(value)
            else ""
        )
        raise DataError(
            f"{what} must lie in [0, 1], but row {row} has {value:g} for {atoms[column]!r}{advice}"
        )


def _notes(atoms: Sequence[str], states: Mask, labels: Labels) -> tuple[str, ...]:
    def listed(mask: npt.ArrayLike) -> str:
        names = [repr(atoms[i]) for i in np.flatnonzero(mask).tolist()]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return ", ".join(names[:5]) + more

    always, never = states.all(0), ~states.any(0)
    unlabelled = (labels < 0).all(0)
    notes = []
    if always.any():
        notes.append(
            f"always true before, so no rule can be seen to need or derive it: {listed(always)}"
        )
    if never.any():
        notes.append(f"never true before, so no rule can be seen to use it: {listed(never)}")
    if unlabelled.any():
        notes.append(f"never labelled, so no rule for it was looked for: {listed(unlabelled)}")
    return tuple(notes)


def _packed(mask: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.packbits(mask.astype(np.bool_), axis=1)


def _unique_rows(
    rows: npt.NDArray[np.int8],
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Different rows in the order they come: the rows, where they first stand, how often."""
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).ravel()
    unique, first, counts = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)
    return unique[order], first[order], counts[order]
