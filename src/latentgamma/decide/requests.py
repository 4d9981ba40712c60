"""Requests from CSV, TSV, JSONL and Parquet files, one at a time."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from latentgamma._text import listing, shortened
from latentgamma.decide.columns import from_text
from latentgamma.errors import DataError, optional_package

if TYPE_CHECKING:
    from latentgamma.decide.decider import Decider, Decision


class PlacedRequest(NamedTuple):
    """A request of a file: its place, its values or what is wrong with them, and its id."""

    place: str
    values: Mapping[str, Any] | DataError
    id: Any = None

    def decide(self, decider: Decider) -> Decision:
        """Return the decision on the request; an error names the place."""
        with self.errors_with_place():
            if isinstance(self.values, DataError):
                raise self.values
            return decider(self.values)

    @contextmanager
    def errors_with_place(self) -> Iterator[None]:
        """Put the place in front of an error."""
        try:
            yield
        except DataError as error:
            raise DataError(f"{self.place}: {error}") from None


#: The suffixes of files with requests.
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


def read_requests(
    decider: Decider, source: Any, *, id_column: str | None = None
) -> Iterator[PlacedRequest]:
    """Yield the requests in a file, or those of an iterable, with their places.

    Args:
        decider: whose columns and facts they have.
        source: a path, or any iterable of requests.
        id_column: the column of a file that names each request.

    Raises:
        DataError: if the file cannot be read, or lacks a column.
    """
    if not isinstance(source, (str, os.PathLike)):
        if not isinstance(source, Iterable):
            kind = type(source).__name__
            raise DataError(f"many takes a table, a path or an iterable of requests, not {kind}")
        return (PlacedRequest(f"request {n}", request) for n, request in enumerate(source))
    path = os.fsdecode(source)
    suffix = os.path.splitext(path)[1].lower()
    readers = {
        ".csv": _csv,
        ".tsv": _csv,
        ".jsonl": _jsonl,
        ".ndjson": _jsonl,
        ".parquet": _parquet,
    }
    if suffix not in readers:
        raise DataError(f"requests are read from {', '.join(SUFFIXES)}, not from {path!r}")
    return readers[suffix](decider, path, id_column)


def count_requests(path: str) -> int:
    """Return about how many requests a file has, for a progress bar."""
    try:
        if path.lower().endswith(".parquet"):
            import pyarrow.parquet

            return int(pyarrow.parquet.ParquetFile(path).metadata.num_rows)
        with open(path, "rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except Exception:  # what is wrong is said when it is read
        return 0


def check_columns(
    decider: Decider, names: Iterable[str], where: str, id_column: str | None = None
) -> None:
    """Raise an error if a table lacks a column or a fact that the questions depend on, or its ids."""
    known = set(names)
    if id_column is not None and id_column not in known:
        raise DataError(f"{where} has no column {id_column!r} with ids; it has {_listed(known)}")
    lacking = [name for name in decider.needed_names if name not in known]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        has = f"it has {_listed(known)}" if known else "it is empty"
        raise DataError(f"{where} has no column {lacking[0]!r}{more}, which the rules need; {has}")
    decider.refuse_compared_columns(known)


def _listed(names: Iterable[Any]) -> str:
    return listing(sorted(map(str, names)), 8)  # pandas has columns that are no texts


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            yield file
    except OSError as error:
        raise DataError(f"cannot read {path!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        utf16 = error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
        call = "read_csv" if path.lower().endswith((".csv", ".tsv")) else "read_json"
        options = f"{path!r}{'' if call == 'read_csv' else ', lines=True'}"
        raise DataError(
            f"{path} was read as UTF-8, but has the byte 0x{error.object[error.start]:02x}, which is not; "
            f"{'it looks like UTF-16; ' if utf16 else ''}save it as UTF-8, or read it with another "
            f"encoding and give the table: many(pandas.{call}({options}, "
            f"encoding={'utf-16' if utf16 else 'latin-1'!r}))"
        ) from None


def delimiter_of(header: str) -> str:
    """Return the first of , ; tab | that the first line of a table has outside quotes, else a comma."""
    bare = re.sub('"[^"]*"', "", header)
    return next((mark for mark in ",;\t|" if mark in bare), ",")


def _csv(decider: Decider, path: str, id_column: str | None) -> Iterator[PlacedRequest]:
    with _opened(path) as file:
        first = file.readline()
        rows = csv.reader(itertools.chain([first], file), delimiter=delimiter_of(first))
        try:
            header = [name.strip() for name in next(rows, [])]
            check_columns(decider, header, path, id_column)
            if len(set(header)) < len(header):
                raise DataError(f"{path}: two columns have the same name")
            facts = set(decider.facts)
            known = [
                (n, name, decider.columns.get(name))
                for n, name in enumerate(header)
                if name in decider.columns or name in facts
            ]
            id_place = None if id_column is None else header.index(id_column)
            for row in rows:
                place = f"line {rows.line_num}"
                if len(row) != len(header):
                    if row:  # an empty line is skipped
                        problem = f"{len(row)} cells, but the header has {len(header)}"
                        yield PlacedRequest(place, DataError(problem))
                    continue
                values: Mapping[str, Any] | DataError
                try:
                    values = {name: from_text(col, name, row[n]) for n, name, col in known}
                except DataError as error:
                    values = error
                yield PlacedRequest(place, values, None if id_place is None else row[id_place])
        except csv.Error as error:
            raise DataError(f"{path}: line {rows.line_num}: {error}") from None


def _jsonl(decider: Decider, path: str, id_column: str | None) -> Iterator[PlacedRequest]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                request = parse_request(line.rstrip())
                yield _identified(f"line {number}", request, id_column, decider)


def _identified(
    place: str, values: Mapping[str, Any] | DataError, id_column: str | None, decider: Decider
) -> PlacedRequest:
    """Return a request with its id, which is no value unless the rules read it too."""
    if id_column is None or isinstance(values, DataError):
        return PlacedRequest(place, values)
    if id_column not in values:
        return PlacedRequest(place, DataError(f"the request has no {id_column!r}, its id"))
    read = id_column in decider.columns or id_column in decider.facts
    rest = {name: value for name, value in values.items() if read or name != id_column}
    return PlacedRequest(place, rest, values[id_column])


def parse_request(text: str | bytes) -> Mapping[str, Any] | DataError:
    """Return the request in a JSON text, or what is wrong with it."""
    try:
        found = parse_json(text)
    except DataError as error:
        return error
    if not isinstance(found, dict):
        return DataError(f"a request is a JSON object, not {json_kind(found)}")
    return found


def json_kind(value: Any) -> str:
    """Return what a value is in JSON, for an error."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return "a number"
    return "a text" if isinstance(value, str) else "a list"


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text in which no object has a key twice.

    Raises:
        DataError: if it is not one.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except DataError:
        raise
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in error.doc else ""
        reason = f"{error.msg[:1].lower()}{error.msg[1:]} at {line}column {error.colno}"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except ValueError:
        reason = "a number has too many digits"
    except RecursionError:
        reason = "it is nested too deeply"
    raise DataError(f"not valid JSON: {reason}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for n, key in enumerate(keys) if key in keys[:n])
        raise DataError(f"the request has {shortened(repr(twice))} twice")
    return found


def _parquet(decider: Decider, path: str, id_column: str | None) -> Iterator[PlacedRequest]:
    with optional_package("Parquet files need pyarrow", "parquet"):
        import pyarrow.parquet
    try:
        table = pyarrow.parquet.ParquetFile(path)
        check_columns(decider, table.schema_arrow.names, path, id_column)
        inputs = {*decider.columns, *decider.facts, id_column}
        names = [name for name in table.schema_arrow.names if name in inputs]
        number = 0  # rows of a table are counted from 0
        for batch in table.iter_batches(columns=names):
            for request in batch.to_pylist():
                yield _identified(f"row {number}", request, id_column, decider)
                number += 1
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"cannot read {path!r}: {error}") from None
