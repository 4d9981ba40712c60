"""Examples to learn from: tables, files, transitions and closures."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import wrong
from latentgamma._text import file_problem, listing, quantity
from latentgamma.decide.requests import delimiter_of
from latentgamma.errors import DataError, optional_package, unknown_atoms
from latentgamma.learning.bodies import distinct
from latentgamma.learning.options import Kind
from latentgamma.program.conditions import MISSING, column_array, is_missing
from latentgamma.program.facts import Mask

# ---- Tables with one column per atom: their cells, and data frames

Values: TypeAlias = npt.NDArray[np.float64]

#: In a table of trajectories, the column that says which one a row belongs to.
TRAJECTORY = "trajectory"
#: In one table, the mark at the end of a column that holds an atom after the step.
NEXT = "'"

_WORDS = {"true": 1.0, "yes": 1.0, "t": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "f": 0.0, "n": 0.0}
_EXPECTED = "expected 0, 1, yes, no, true, false, a probability, or an empty cell"


class ValueTable(NamedTuple):
    """Values with the names of their columns.

    Attributes:
        values: one row per example; a missing value is NaN. (N, M)
        names: the names of the columns, or None.
        source: what messages call the table: a file name, or "inputs".
    """

    values: Values
    names: list[str] | None
    source: str

    @property
    def columns(self) -> list[str]:
        """The names of the columns, which must be there."""
        assert self.names is not None
        return self.names


@lru_cache(maxsize=1024)  # most cells are 0 or 1
def parse_cell(text: str) -> float:
    """Return the value of a cell, NaN for a missing one; a ValueError says what is wrong.

    >>> parse_cell("yes"), parse_cell(" 0.25"), parse_cell("FALSE")
    (1.0, 0.25, 0.0)
    """
    word = text.strip().lower()
    if word in MISSING:
        return np.nan
    if word in _WORDS:
        return _WORDS[word]
    try:
        value = float(word)
    except ValueError:
        raise ValueError(f"{_EXPECTED}, but found {text.strip()!r}") from None
    if not 0 <= value <= 1:
        raise ValueError(f"{_EXPECTED}, but found {text.strip()!r}, which is not from 0 to 1")
    return value


def is_frame(source: Any) -> bool:
    """Return whether this is a data frame, such as pandas, polars or pyarrow have."""
    arrays = any(hasattr(source, name) for name in ("to_numpy", "column_names"))
    return arrays and hasattr(source, "columns")  # polars warns of the columns of a LazyFrame


def _column(name: str, cells: Any, table: Cells) -> Values:
    """Return the values of a column; a DataError names the row or the line of a wrong cell."""
    raw = np.asarray(cells) if isinstance(cells, list) else column_array(cells)
    if name == TRAJECTORY:  # a trajectory may be called anything, so each gets a number
        called, numbers = map(str.strip, cells) if table.lines else raw.tolist(), dict[Any, int]()
        return np.array([numbers.setdefault(one, len(numbers)) for one in called], np.float64)
    if raw.dtype.kind in "biuf":
        return raw.astype(np.float64)
    values = np.empty(len(raw))
    for row, cell in enumerate(raw.tolist()):
        try:
            if isinstance(cell, str):
                values[row] = parse_cell(cell)
            else:
                values[row] = np.nan if is_missing(cell) else float(cell)
        except (TypeError, ValueError) as error:
            where = f"line {table.lines[row]}" if table.lines else f"row {row + 1}"
            problem = str(error) if isinstance(error, ValueError) else f"{_EXPECTED}: {error}"
            raise DataError(f"{table.source}, {where}, column {name!r}: {problem}") from None
    return values


def check_columns(names: Sequence[str], what: str) -> None:
    """Raise if a column has no name, or two have the same."""
    repeated = [name for i, name in enumerate(names) if name in names[:i]]
    if repeated:
        raise DataError(f"{what}: two columns are called {repeated[0]!r}")
    if "" in names:
        raise DataError(f"{what}: column {list(names).index('') + 1} has no name")


def columns_without(names: Sequence[str], ignore: Sequence[str], what: str) -> list[int]:
    """Return the places of the columns that are not ignored; `a` stands for `a'` as well."""
    unknown = [name for name in ignore if name not in names]
    if unknown:
        lacking = f"{what} does not have"
        error = unknown_atoms(unknown, names, "ignored columns", kind="column", lacking=lacking)
        raise DataError(str(error))
    left_out = {*ignore, *(name + NEXT for name in ignore)}
    return [i for i, name in enumerate(names) if name not in left_out]


# ---- Files that hold examples: tables with one column per atom

_TEXT_SUFFIXES = (".csv", ".tsv")


def is_path(source: Any) -> bool:
    """Return whether examples were given as the path of a file."""
    return isinstance(source, (str, os.PathLike))


def is_open_file(source: Any) -> bool:
    """Return whether this is an open file; a data frame may have a column called `read`."""
    return callable(getattr(source, "read", None))


class Cells(NamedTuple):
    """The columns of a table, as they are there.

    Attributes:
        source: what messages call the table.
        names: the names of the columns.
        columns: the cells of each column.
        lines: for a table in text, the number of the line of each row; else empty.
    """

    source: str
    names: list[str]
    columns: list[Any]
    lines: list[int]


def read_cells(
    source: Any,
    what: str = "the table",
    *,
    delimiter: str | None = None,
    ignore: Sequence[str] = (),
) -> Cells:
    """Return the columns of a .csv, .tsv or .parquet file, an open file of text, or a data frame.

    Args:
        source: the table; text may be compressed by gzip.
        what: what messages call it, if it is no file.
        delimiter: what separates the cells of text; by default it is read off the first line.
        ignore: columns that are left out.

    Raises:
        DataError: it cannot be read, or a column has no name or the same as another.
    """
    lines: list[int] = []
    if is_path(source):
        path = _path(source)
        what = path.name
        if _suffix(path) != ".parquet":
            try:
                with path.open("rb") as file:
                    return read_cells(file, what, delimiter=delimiter, ignore=ignore)
            except OSError as error:
                raise DataError(f"cannot read {str(path)!r}: {file_problem(error)}") from None
        source = read_parquet(path)
    if is_open_file(source):
        names, rows = _read_text(source, what, delimiter)
        lines = [number for number, _ in rows]
        columns: list[Any] = [[cells[i] for _, cells in rows] for i in range(len(names))]
    else:
        keys = list(getattr(source, "column_names", None) or source.columns)
        names = ["" if is_missing(key) else str(key) for key in keys]
        check_columns(names, what)
        columns = [source[key] for key in keys]
    kept = columns_without(names, ignore, what)
    return Cells(what, [names[i] for i in kept], [columns[i] for i in kept], lines)


def read_table(
    source: Any,
    what: str = "the table",
    *,
    delimiter: str | None = None,
    ignore: Sequence[str] = (),
    only: Collection[str] | None = None,
) -> ValueTable:
    """Return the values of a table with one column per atom.

    Args:
        source: as in `read_cells`, and so are the other arguments.
        what: what messages call it.
        delimiter: what separates the cells of text.
        ignore: columns that are left out.
        only: the columns that are read, where they are there.

    Raises:
        DataError: it cannot be read, or a cell is no truth value; the message says where.
    """
    table = read_cells(source, what, delimiter=delimiter, ignore=ignore)
    kept = {name: column for name, column in zip(table.names, table.columns, strict=True)
            if only is None or name in only}  # fmt: skip
    values = [_column(name, column, table) for name, column in kept.items()]
    together = np.stack(values, axis=1) if values else np.zeros((0, 0))
    return ValueTable(together, list(kept), table.source)


def _suffix(path: Path) -> str:
    """Return how the name of a table, which must be there, ends: in lower case, without .gz."""
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if path.is_dir():
        raise DataError(f"cannot read {str(path)!r}: it is a folder")
    if kind not in (*_TEXT_SUFFIXES, ".parquet"):
        raise DataError(
            f"a table is a .csv, .tsv or .parquet file; the name {str(path)!r} ends in none of them"
        )
    if not path.is_file():
        raise DataError(f"cannot read {str(path)!r}: there is no such file")
    return kind


def _read_text(
    file: IO[Any], name: str, delimiter: str | None
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names of the columns, and for each line with examples its number and its cells.

    Raises:
        DataError: it is not a table: not UTF-8, empty, or a line has too many or too few cells.
    """
    raw = file.read()
    try:
        if isinstance(raw, bytes):
            raw = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        mark = delimiter or delimiter_of(raw.partition("\n")[0])
        reader = csv.reader(io.StringIO(raw, newline=""), delimiter=mark)
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is damaged: {error}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not a table in UTF-8: {error}; save it in UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{name} is not a table: {error}") from None
    if not lines:
        raise DataError(f"{name} is empty; the first line names the columns")
    names = [cell.strip() for cell in lines[0][1]]
    check_columns(names, name)
    for number, cells in lines[1:]:
        if len(cells) != len(names):
            raise DataError(
                f"{name}, line {number}: expected {len(names)} cells, one per column, "
                f"but found {len(cells)}, separated by {mark!r}"
            )
    return names, lines[1:]


def read_parquet(path: Path) -> Any:
    """Return the table of a .parquet file, as pyarrow has it."""
    with optional_package("Parquet files need pyarrow", "parquet"):
        import pyarrow.parquet
    try:
        return pyarrow.parquet.read_table(path)
    except Exception as error:  # pyarrow says little of what it raises on a damaged file
        raise DataError(f"{path.name} is not a Parquet table: {error}") from None


# ---- Observations: from arrays, tensors, frames and files to checked Boolean examples

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
        doubt: the fraction of labels that round to the wrong side, if they are probabilities.
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
        arrays: dict[str, Any] = {
            name: one[chosen] for name, one in vars(self).items() if isinstance(one, np.ndarray)
        }
        return replace(self, **arrays)


#: How tables in text are read: the delimiter, and the columns that are left out.
_Reading: TypeAlias = tuple[str | None, tuple[str, ...]]


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
            frame has one column per atom.
        targets: the states after. Without targets, the columns `a` and `a'` of a table hold an
            atom before and after.
        kind: what the examples are.
        atoms: the names of the columns.
        delimiter: what separates the cells of text.
        ignore: columns of a table that are left out.

    Raises:
        DataError: the examples cannot be read, or have wrong shapes or values.
    """
    reading = delimiter, tuple(ignore)
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
    return _round(names, before.values, after.values)


def _round(atoms: tuple[str, ...], before: Values, after: Values) -> Observations:
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
    first, counts, _ = distinct(np.hstack([states.astype(np.int8), labels]))
    order = np.argsort(first)
    first, counts = first[order], counts[order]
    return Observations(atoms, states[first], labels[first], counts, first + 1, notes)


# ---- Sources


def _path(source: Any) -> Path:
    return Path(os.fsdecode(source))


def _table(what: str, source: Any, reading: _Reading) -> ValueTable:
    """Return the values of any source, and the names of the columns where it has any."""
    delimiter, ignore = reading
    if is_path(source) or is_open_file(source) or is_frame(source):
        name = str(getattr(source, "name", what)) if is_open_file(source) else what
        name = "standard input" if name == "<stdin>" else name
        return read_table(source, name, delimiter=delimiter, ignore=ignore)
    if ignore:
        raise DataError(f"{what} has no names of columns, so none can be ignored")
    if hasattr(source, "detach"):
        source = source.detach().cpu().double().numpy()
    elif isinstance(source, Iterable) and not isinstance(source, (np.ndarray, list, tuple)):
        source = list(source)
    try:
        return ValueTable(np.asarray(source, np.float64), None, what)
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{what} must be rows of numbers, one column per atom: {reason}") from None


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
    try:
        table = _table("inputs", source, reading)
    except DataError as error:
        if _EXPECTED not in str(error):
            raise
        advice = "for a table of numbers and categories, label= names the column to predict"
        raise DataError(f"{error}; {advice}") from None
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
    if is_path(source) or is_open_file(source) or is_frame(source):
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
        if getattr(source, "ndim", 0) == 2:
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


# ---- Checks


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
        raise wrong("atoms", "the names of the columns", atoms)
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
