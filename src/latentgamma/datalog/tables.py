r"""Fact tables: CSV, TSV and Parquet files, frames, or rows, as facts of a predicate.

A cell becomes a number if it is a whole number of at most 32 bits written plainly (`17`, `-3`), a
constant if it is a word of rule text (`ann`, `x_1`, `größe`), and a string otherwise (`"Ann"`,
`"3.5"`, `"007"`): a letter from A to Z starts a variable, so `Ann` in a table is the string `"Ann"`
in rules.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

from latentgamma._text import file_problem, shortened
from latentgamma.datalog.clingo_names import (
    PREDICATE,
    decode_name,
    decode_text,
    encode_name,
    encode_predicate,
)
from latentgamma.datalog.source import Signature, arguments_of
from latentgamma.errors import DataError, optional_package
from latentgamma.program.names import is_word, read_quoted
from latentgamma.program.rule_text import decode_text as decode_bytes

#: The facts of one predicate: a table's path, a frame or an array, or one row after another.
Table: TypeAlias = "str | os.PathLike[str] | Iterable[Sequence[Any]] | Any"

_key = re.compile(rf"\s*({PREDICATE})\s*(?:/\s*([0-9]+)|\(([^()]*)\))?\s*").fullmatch
_whole = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII).fullmatch
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_SUFFIXES = (".csv", ".tsv", ".facts", ".parquet")


def table_facts(tables: Mapping[str, Table] | None) -> Iterator[tuple[Signature, str]]:
    r"""Yield the predicate of each table, and its facts as text, one a line.

    >>> list(table_facts({"edge": [("a", "b"), ("a", "New York")]}))
    [(('edge', 2), 'edge(a,b).\nedge(a,"New York").\n')]
    """
    for (name, arity), rows in table_rows({} if tables is None else tables, _clingo_cell):
        start, end = (f"{name}(", ").\n") if arity else (name, ".\n")
        yield (name, arity), "".join([f"{start}{','.join(cells)}{end}" for cells in rows])


def table_rows(
    tables: Mapping[str, Table], write: Callable[[str], str] = str
) -> Iterator[tuple[Signature, list[tuple[str, ...]]]]:
    """Yield the predicate of each table, and its rows as texts, which `write` may change.

    Raises:
        DataError: a table cannot be read, or its rows have several lengths.
    """
    if not isinstance(tables, Mapping):
        raise DataError(
            f"facts are tables by predicate, such as {{'edge': 'edges.csv'}}, not {type(tables).__name__}"
        )
    for key, table in tables.items():
        found = _key(key) if isinstance(key, str) else None
        if found is None:
            raise DataError(
                f"a table's predicate is written 'edge', 'edge/2' or 'edge(from,to)', not {key!r}"
            )
        name, arity, columns = found.groups()
        wanted = None if columns is None else [column.strip() for column in columns.split(",")]
        where, rows = _rows(key, table, wanted)
        expected = len(wanted) if wanted else None if arity is None else int(arity)
        yield _as_texts(name, expected, rows, where, write)


def constant(value: object) -> str:
    """Return a cell as rules write it.

    >>> [constant(value) for value in ("ann", "Ann", 3, "007")]
    ['ann', '"Ann"', '3', '"007"']
    """
    text = str(value)
    if is_word(text) or (_whole(text) and -(2**31) <= int(text) < 2**31):
        return text
    return f'"{text.translate(_ESCAPES)}"'


def cells_of(atom: str) -> list[str]:
    r"""Return the predicate of an atom and its arguments as the cells of a table.

    >>> cells_of('city(de,"New Ulm",3)'), cells_of("p('a, b',f(c,d))")
    (['city', 'de', 'New Ulm', '3'], ['p', "'a, b'", 'f(c,d)'])
    >>> cells_of(r'p("a\tb","")')
    ['p', 'a\tb', '']
    """
    name, arguments = arguments_of(encode_name(atom))
    cells = map(decode_text, arguments)
    return [decode_name(name), *(read_quoted(c, 0)[0] if c[0] == '"' else c for c in cells)]


def _clingo_cell(text: str) -> str:
    """Return a cell as clingo reads it."""
    cell = constant(text)
    return cell if cell.isascii() or cell.startswith('"') else encode_name(cell)


def _as_texts(
    name: str,
    arity: int | None,
    rows: Iterable[Sequence[Any]],
    where: str,
    write: Callable[[str], str],
) -> tuple[Signature, list[tuple[str, ...]]]:
    written: dict[Any, str] = {}
    found: list[tuple[str, ...]] = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, str) or not isinstance(row, Sequence):
            row = [row]  # a table of one column
        if arity is None:
            arity = len(row)
        if len(row) != arity:
            short = "is missing a column" if len(row) < arity else "has too many columns"
            raise DataError(
                f"{where}: row {number} {short}: {name}/{arity} takes {arity} values, but this row "
                f"has {len(row)}: {shortened(repr(list(row)), 80)}"
            )
        cells = []
        for value in row:
            known = isinstance(value, (str, int, float, Real))  # the last one is slow
            cell = written.get((type(value), value)) if known else None
            if cell is None:
                if not known or isinstance(value, bool) or value != value:  # noqa: PLR0124 - NaN
                    raise DataError(
                        f"{where}: row {number} holds {value!r} ({type(value).__name__}); a value is "
                        "a string or a number"
                    )
                cell = write(str(value))
                if "\0" in cell:
                    raise DataError(f"{where}: row {number} holds a NUL character")
                written[type(value), value] = cell
            cells.append(cell)
        found.append(tuple(cells))
    return (encode_predicate(name), arity or 0), found


def _rows(key: str, table: Table, columns: list[str] | None) -> tuple[str, Iterable[Sequence[Any]]]:
    """Return what an error calls the table, and its rows."""
    if not isinstance(table, (str, os.PathLike)):
        if any(hasattr(table, name) for name in ("column_names", "itertuples", "iter_rows")):
            where = f"the table of {key!r}"
            return where, _frame(table, columns, where)
        if columns is not None:
            raise DataError(f"{key!r} names columns, which rows do not have; write the name alone")
        if hasattr(table, "tolist"):  # an array
            table = table.tolist()
        if not isinstance(table, Iterable) or isinstance(table, (bytes, Mapping)):
            raise DataError(
                f"the facts of {key!r} are a table's path, a frame or rows, not {type(table).__name__}"
            )
        return f"the facts of {key!r}", table
    path = os.fsdecode(table)
    lower = path.lower().removesuffix(".gz")
    if not lower.endswith(_SUFFIXES):
        raise DataError(
            f"{path!r} does not say what it holds; a table's name ends in {', '.join(_SUFFIXES)}"
        )
    try:
        if lower.endswith(".parquet"):
            return path, _parquet(path, columns)
        with open(path, "rb") as file:
            data = file.read()
        if path.lower().endswith(".gz"):
            data = gzip.decompress(data)
    except (OSError, EOFError, ValueError, zlib.error) as error:  # ValueError: a NUL in the path
        raise DataError(f"cannot read {path!r}: {file_problem(error)}") from None
    return path, _csv(
        decode_bytes(data, path), "," if lower.endswith(".csv") else "\t", columns, path
    )


def _csv(text: str, delimiter: str, columns: list[str] | None, path: str) -> list[list[str]]:
    try:
        rows = [
            row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row
        ]
    except csv.Error as error:
        raise DataError(f"{path}: {error}") from None
    if columns is None:
        return rows
    if not rows:
        raise DataError(f"{path} is empty; its first row must name the columns")
    places = _places(columns, [name.strip() for name in rows[0]], path)
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}: row {number} has {len(row)} values, but there are {len(rows[0])} columns"
            )
    return [[row[i] for i in places] for row in rows[1:]]


def _parquet(path: str, columns: list[str] | None) -> Iterable[Sequence[Any]]:
    with optional_package("Parquet files need pyarrow", "parquet"):
        from pyarrow import ArrowInvalid, parquet
    try:
        table = parquet.read_table(path)
    except ArrowInvalid as error:
        raise DataError(f"{path}: {error}") from None
    return _frame(table, columns, path)


def _frame(table: Any, columns: list[str] | None, where: str) -> Iterable[Sequence[Any]]:
    """Return the rows of a table of pyarrow, or of a frame of pandas or polars."""
    arrow = hasattr(table, "column_names")
    names = list(map(str, table.column_names if arrow else table.columns))
    places = range(len(names)) if columns is None else _places(columns, names, where)
    if arrow:
        return zip(*(table.column(i).to_pylist() for i in places), strict=True)
    pandas = hasattr(table, "itertuples")
    rows = table.itertuples(index=False, name=None) if pandas else table.iter_rows()
    return ([row[i] for i in places] for row in rows)


def _places(columns: list[str], header: Sequence[str], where: str) -> Sequence[int]:
    missing = [column for column in columns if column not in header]
    if missing:
        raise DataError(
            f"{where} has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, header))}"
        )
    return [header.index(column) for column in columns]
