"""Files that examples are kept in: tables with one column per atom, and arrays of numpy."""

from __future__ import annotations

import csv
import importlib
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import DataError

Values: TypeAlias = npt.NDArray[np.float64]

#: In a table of trajectories, the column that says which one a row belongs to.
RUN = "trajectory"


def _there(path: Path) -> None:
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise DataError(f"cannot read {str(path)!r}: {what}")


def array_in(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file."""
    _there(path)
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path.name} is not an array that numpy saved: {error}") from None
    return np.asarray(loaded)


def archive_in(path: Path) -> tuple[Any, Any, list[str] | None]:
    """The inputs, the targets if there are any, and the names if there are any."""
    _there(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except TypeError:
        raise DataError(f"{path.name} holds one array: name it .npy") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path.name} is not what numpy.savez writes: {error}") from None
    if "inputs" not in arrays or set(arrays) - {"inputs", "targets", "atoms"}:
        raise DataError(
            f"{path.name} must hold 'inputs', and can hold 'targets' and 'atoms', but holds "
            f"{', '.join(map(repr, arrays)) or 'nothing'}"
        )
    names = None
    if "atoms" in arrays:
        listed = arrays["atoms"]
        if listed.ndim != 1 or listed.dtype.kind not in "US":
            raise DataError(f"{path.name}: 'atoms' must be a list of names")
        names = [str(name) for name in listed.astype("U")]
    return arrays["inputs"], arrays.get("targets"), names


def _parquet(path: Path) -> tuple[Values, list[str]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            f"{path.name}: reading Parquet needs pyarrow; "
            f'pip install "latentgamma[parquet]", or save the table as CSV'
        ) from None
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} is not a Parquet table: {error}") from None
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_pylist()
        if name == RUN:
            number = {run: n for n, run in enumerate(dict.fromkeys(values))}
            values = [number[run] for run in values]
        try:
            columns.append(np.array([np.nan if v is None else v for v in values], np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(f"{path.name}, column {name!r}: {error}") from None
    return np.stack(columns, axis=1) if columns else np.zeros((0, 0)), list(table.column_names)


def table_in(path: Path) -> tuple[Values, list[str]]:
    """The values of a table, and the names of its columns; a missing value is NaN."""
    if path.suffix not in (".csv", ".parquet"):
        if path.suffix == ".npz":
            raise DataError(f"{path.name} must come alone: a .npz file has its own targets")
        raise DataError(
            f"examples come as a .csv, .parquet, .npy or .npz file, and {path.name!r} is none"
        )
    _there(path)
    if path.suffix == ".parquet":
        return _parquet(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name} is not a CSV table in UTF-8: {error}") from None
    if not lines:
        raise DataError(f"{path.name} is empty; the first line names the atoms")
    names = [name.strip() for name in lines[0]]
    run = names.index(RUN) if RUN in names else None
    runs: dict[str, int] = {}
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        if len(line) != len(names):
            raise DataError(
                f"{path.name}:{number}: expected {len(names)} cells, one per column, "
                f"but found {len(line)}"
            )
        if run is not None:  # a trajectory may be called anything
            line[run] = str(runs.setdefault(line[run].strip(), len(runs)))
        try:
            rows.append([_cell(text) for text in line])
        except ValueError as error:
            raise DataError(f"{path.name}:{number}: {error}") from None
    return np.array(rows, np.float64).reshape(len(rows), len(names)), names


@lru_cache(maxsize=1024)  # most cells are 0 or 1
def _cell(text: str) -> float:
    word = text.strip().lower()
    if word in ("", "nan", "na", "?"):
        return np.nan
    if word in ("true", "false"):
        return float(word == "true")
    return float(word)
