"""Requests from CSV, JSONL and Parquet files, one at a time."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from latentgamma._text import shortened
from latentgamma.decide.columns import from_text
from latentgamma.errors import DataError, MissingPackageError

if TYPE_CHECKING:
    from latentgamma.decide.decider import Decider

#: Where a request stands, and the request or what is wrong with it.
Placed = tuple[str, "Mapping[str, Any] | DataError"]

#: The suffixes of files with requests.
SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet")


def read_requests(decider: Decider, source: Any) -> Iterator[Placed]:
    """Yield the requests in a file, or those of an iterable, with their places.

    Args:
        decider: whose columns and facts they have.
        source: a path, or any iterable of requests.

    Raises:
        DataError: if the file cannot be read, or lacks a column.
    """
    if not isinstance(source, (str, os.PathLike)):
        if not isinstance(source, Iterable):
            kind = type(source).__name__
            raise DataError(f"many takes a table, a path or an iterable of requests, not {kind}")
        return ((f"request {n}", request) for n, request in enumerate(source))
    path = os.fsdecode(source)
    suffix = os.path.splitext(path)[1].lower()
    readers = {".csv": _csv, ".jsonl": _jsonl, ".ndjson": _jsonl, ".parquet": _parquet}
    if suffix not in readers:
        raise DataError(f"requests are read from {', '.join(SUFFIXES)}, not from {path!r}")
    return readers[suffix](decider, path)


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


def check_columns(decider: Decider, names: Iterable[str], where: str) -> None:
    """Raise an error if a table lacks a column or a fact that the questions depend on."""
    known = set(names)
    lacking = [name for name in decider.needed_names if name not in known]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise DataError(f"{where} has no column {lacking[0]!r}{more}, which the rules need")


def _open(path: str) -> Any:
    try:
        return open(path, encoding="utf-8-sig", newline="")
    except OSError as error:
        raise DataError(f"cannot read {path!r}: {error.strerror or error}") from None


def _csv(decider: Decider, path: str) -> Iterator[Placed]:
    with _open(path) as file:
        rows = csv.reader(file)
        try:
            header = next(rows, [])
            check_columns(decider, header, path)
            if len(set(header)) < len(header):
                raise DataError(f"{path}: two columns have the same name")
            facts = set(decider.facts)
            known = [
                (n, name, decider.columns.get(name))
                for n, name in enumerate(header)
                if name in decider.columns or name in facts
            ]
            for row in rows:
                place = f"line {rows.line_num}"
                if len(row) != len(header):
                    if row:  # an empty line is skipped
                        problem = f"{len(row)} cells, but the header has {len(header)}"
                        yield place, DataError(problem)
                    continue
                try:
                    yield place, {name: from_text(col, name, row[n]) for n, name, col in known}
                except DataError as error:
                    yield place, error
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path}: line {rows.line_num + 1}: {error}") from None


def _jsonl(decider: Decider, path: str) -> Iterator[Placed]:
    with _open(path) as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"line {number}", parse_request(line)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: {error}") from None


def parse_request(text: str | bytes) -> Mapping[str, Any] | DataError:
    """Return the request in a JSON text, or what is wrong with it."""
    try:
        found = parse_json(text)
    except DataError as error:
        return error
    if not isinstance(found, dict):
        return DataError(f"a request is a JSON object, not {type(found).__name__}")
    return found


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text in which no object has a key twice.

    Raises:
        DataError: if it is not one.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except DataError:
        raise
    except (ValueError, RecursionError) as error:  # ValueError: also of bytes that are not UTF-8
        reason = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise DataError(f"not valid JSON: {reason}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for n, key in enumerate(keys) if key in keys[:n])
        raise DataError(f"the request has {shortened(repr(twice))} twice")
    return found


def _parquet(decider: Decider, path: str) -> Iterator[Placed]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingPackageError("Parquet files need pyarrow", "parquet") from None
    import pyarrow

    try:
        table = pyarrow.parquet.ParquetFile(path)
        check_columns(decider, table.schema_arrow.names, path)
        inputs = {*decider.columns, *decider.facts}
        names = [name for name in table.schema_arrow.names if name in inputs]
        number = 0  # rows of a table are counted from 0
        for batch in table.iter_batches(columns=names):
            for request in batch.to_pylist():
                yield f"row {number}", request
                number += 1
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"cannot read {path!r}: {error}") from None
