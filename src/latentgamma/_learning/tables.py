"""Tables with one column per atom: their cells, and data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import DataError, unknown_atoms

Values: TypeAlias = npt.NDArray[np.float64]

#: In a table of trajectories, the column that says which one a row belongs to.
TRAJECTORY = "trajectory"
#: In one table, the mark at the end of a column that holds an atom after the step.
NEXT = "'"

_MISSING = frozenset(("", "nan", "na", "n/a", "null", "none", "?"))
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
    if word in _MISSING:
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
    return hasattr(source, "columns") and any(
        hasattr(source, name) for name in ("to_numpy", "column_names")
    )


def read_frame(source: Any, what: str, ignore: Sequence[str] = ()) -> ValueTable:
    """Return the values of a data frame.

    Args:
        source: a frame of pandas, polars or pyarrow.
        what: what messages call it.
        ignore: columns that are left out.

    Raises:
        DataError: a cell is no truth value; the message names column and row.
    """
    if hasattr(source, "column_names"):  # pyarrow
        keys = list(source.column_names)
        columns = [column.to_pylist() for column in source.columns]
    else:
        keys = list(source.columns)
        columns = [source[key] for key in keys] if len(set(keys)) == len(keys) else []
    names = [str(key) for key in keys]
    check_columns(names, what)
    kept = columns_without(names, ignore, what)
    values = [_column(names[i], columns[i], what) for i in kept]
    together = np.stack(values, axis=1) if values else np.zeros((0, 0))
    return ValueTable(together, [names[i] for i in kept], what)


def _column(name: str, column: Any, what: str) -> Values:
    raw = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if name == TRAJECTORY:
        return number_names(raw.tolist())
    if raw.dtype.kind in "biuf":
        return raw.astype(np.float64)
    values = np.empty(len(raw))
    for row, cell in enumerate(raw.tolist()):
        try:
            values[row] = _cell(cell)
        except (TypeError, ValueError) as error:
            raise cell_error(f"{what}, row {row + 1}, column {name!r}", error) from None
    return values


def _cell(cell: Any) -> float:
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return np.nan
    return parse_cell(cell) if isinstance(cell, str) else float(cell)


def cell_error(where: str, error: Exception) -> DataError:
    """Return the error for one cell."""
    problem = str(error) if isinstance(error, ValueError) else f"{_EXPECTED}: {error}"
    return DataError(f"{where}: {problem}")


def number_names(names: Iterable[Any]) -> Values:
    """Return a number for each different name, in the order they come.

    >>> number_names(["x", "y", "x"]).tolist()
    [0.0, 1.0, 0.0]
    """
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.float64)


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
        error = str(unknown_atoms(unknown, names, what="ignored columns"))
        raise DataError(error.replace("this program does", f"{what} does"))
    left_out = {*ignore, *(name + NEXT for name in ignore)}
    return [i for i, name in enumerate(names) if name not in left_out]


def number_rows(what: str, source: Any) -> Values:
    """Return rows of numbers as an array; NaN is a missing value."""
    convert: Callable[[Any], Values] = lambda rows: np.asarray(rows, np.float64)  # noqa: E731
    try:
        return convert(source)
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{what} must be rows of numbers, one column per atom: {reason}") from None
