"""Files that hold examples: tables with one column per atom, and arrays of numpy."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import os
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from latentgamma._errors import DataError
from latentgamma._learning.tables import (
    TRAJECTORY,
    ValueTable,
    cell_error,
    check_columns,
    columns_without,
    number_names,
    parse_cell,
    read_frame,
)

#: Characters that separate the cells of a table.
DELIMITERS = (",", ";", "\t", "|")
_TEXT_SUFFIXES = (".csv", ".tsv")


def is_path(source: Any) -> bool:
    """Return whether examples were given as the path of a file."""
    return isinstance(source, (str, os.PathLike))


def suffix(path: Path) -> str:
    """Return how the name of a file ends, in lower case and without .gz."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def read_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of a .npy file.

    Raises:
        DataError: the file is not there, or holds something else.
    """
    _check_file(path)
    try:
        loaded = np.load(path, allow_pickle=False)
    except Exception as error:  # numpy says little of what it raises on a damaged file
        raise DataError(f"{path.name} is not an array that numpy saved: {_reason(error)}") from None
    return np.asarray(loaded)


def read_archive(path: Path) -> tuple[Any, Any, list[str] | None]:
    """Return the inputs of a .npz file, the targets and the names of the atoms, None if absent.

    Raises:
        DataError: the file is not there, or holds something else.
    """
    _check_file(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except TypeError:
        raise DataError(f"{path.name} holds one array: name it .npy") from None
    except Exception as error:  # numpy and zipfile say little of what a damaged file raises
        raise DataError(f"{path.name} is not what numpy.savez writes: {_reason(error)}") from None
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


def _reason(error: Exception) -> str:
    """Return what numpy says, without advice to unpickle what a stranger wrote."""
    text = str(error).splitlines()[0] if str(error) else "it ends too early"
    if "pickle" in text.lower():
        return "it holds Python objects, or is no file of numpy; save plain numbers"
    return text


def read_table(
    path: Path, *, delimiter: str | None = None, ignore: tuple[str, ...] = ()
) -> ValueTable:
    """Return the values of a .csv, .tsv or .parquet file.

    Args:
        path: the file; text may be compressed, with .gz at the end of its name.
        delimiter: what separates the cells; by default it is read off the first line.
        ignore: columns that are left out.

    Raises:
        DataError: the file is not there, or a cell is no truth value; the message names file,
            line and column.
    """
    kind = suffix(path)
    if kind == ".npz":
        raise DataError(f"{path.name} must come alone: a .npz file has its own targets")
    if kind not in (*_TEXT_SUFFIXES, ".parquet"):
        raise DataError(
            f"examples come as a .csv, .tsv, .parquet, .npy or .npz file, and {path.name!r} is none"
        )
    _check_file(path)
    if kind == ".parquet":
        return _read_parquet(path, ignore)
    try:
        with path.open("rb") as file:
            return read_text_table(file, path.name, delimiter=delimiter, ignore=ignore)
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}") from None


def read_text_table(
    file: IO[Any],
    name: str,
    *,
    delimiter: str | None = None,
    ignore: tuple[str, ...] = (),
) -> ValueTable:
    """Return the values of an open file of text, compressed by gzip or not."""
    raw = file.read()
    try:
        if isinstance(raw, bytes):
            raw = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        lines = _lines(raw, delimiter)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is damaged: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{name} is not a table in UTF-8: {error}") from None
    if not lines:
        raise DataError(f"{name} is empty; the first line names the atoms")
    names = [cell.strip() for cell in lines[0][1]]
    check_columns(names, name)
    kept = columns_without(names, ignore, name)
    values = np.empty((len(lines) - 1, len(kept)))
    for row, (number, cells) in zip(values, lines[1:], strict=True):
        if len(cells) != len(names):
            raise DataError(
                f"{name}, line {number}: expected {len(names)} cells, one per column, "
                f"but found {len(cells)}"
            )
        for place, i in enumerate(kept):
            if names[i] == TRAJECTORY:
                continue
            try:
                row[place] = parse_cell(cells[i])
            except ValueError as error:
                raise cell_error(f"{name}, line {number}, column {names[i]!r}", error) from None
    names = [names[i] for i in kept]
    if TRAJECTORY in names:  # a trajectory may be called anything
        place = kept[names.index(TRAJECTORY)]
        values[:, names.index(TRAJECTORY)] = number_names(
            cells[place].strip() for _, cells in lines[1:]
        )
    return ValueTable(values, names, name)


def _lines(text: str, delimiter: str | None) -> list[tuple[int, list[str]]]:
    """Return the lines that are not empty, each with its number, cut into cells."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or _delimiter(text))
    return [(reader.line_num, cells) for cells in reader if cells]


def _delimiter(text: str) -> str:
    """Return the first delimiter that the first line has."""
    first = text.partition("\n")[0]
    return next((mark for mark in DELIMITERS if mark in first), ",")


def _read_parquet(path: Path, ignore: tuple[str, ...]) -> ValueTable:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            f"{path.name}: reading Parquet needs pyarrow; "
            f"pip install pyarrow, or save the table as CSV"
        ) from None
    try:
        table = parquet.read_table(path)
    except Exception as error:  # pyarrow says little of what it raises on a damaged file
        raise DataError(f"{path.name} is not a Parquet table: {error}") from None
    return read_frame(table, path.name, ignore)


def _check_file(path: Path) -> None:
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise DataError(f"cannot read {str(path)!r}: {what}")
