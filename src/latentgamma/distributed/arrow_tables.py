"""Closures of the fact sets in an Arrow table, one column for each atom.

A boolean column of Arrow is a row of bits, in the order that bit planes have: no value is
converted on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma._errors import DataError, unknown_atoms
from latentgamma._logic.bit_planes import Planes
from latentgamma._logic.closures import closures
from latentgamma._program.program import Program, require_program

if TYPE_CHECKING:
    import pyarrow as pa


def close_table(
    program: Program,
    table: Any,
    *,
    atoms: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    threads: int | None = None,
) -> pa.Table:
    """The closures of the fact sets in an Arrow table, as an Arrow table.

    It is what engines for tables call on each batch, for example
    `dataset.map_batches(partial(close_table, program), batch_format="pyarrow")` in Ray Data.

    >>> import pyarrow as pa
    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> table = pa.table({"name": ["tux", "leo"], "penguin": [True, False]})
    >>> close_table(program, table, keep=["name"]).to_pylist()[0]
    {'name': 'tux', 'bird': True, 'penguin': True, 'animal': True}

    Args:
        program: any program, with negation or without.
        table: a `pyarrow.Table` or `RecordBatch`, one row for each fact set. A column is called
            like its atom, and holds booleans, or integers 0 and 1. Atoms without a column are
            false.
        atoms: the atoms to return; by default all.
        keep: columns that are not atoms, and are copied to the result.
        threads: as in `closures`.

    Returns:
        The columns to keep, and one boolean column for each atom.

    Raises:
        DataError: a column is neither an atom nor to be kept, or a value is missing or no truth
            value.
        ProgramError: the first argument is not a program.
    """
    require_program(program, "close_table")
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise DataError(f"close_table takes a pyarrow.Table, not {type(table).__name__}")
    chosen = check_columns_of(program, table.column_names, atoms, keep)
    count = table.num_rows
    planes = np.zeros((program.M, -(-count // 64)), np.uint64)
    for name in table.column_names:
        if name not in keep:
            bits = _bits(table.column(name), name)
            planes[program.index[name]].view(np.uint8)[: len(bits)] = bits
    closed = closures(program, planes, packed=True, threads=threads, out=planes)
    columns = {name: table.column(name) for name in keep}
    return pa.table(
        columns | {name: _column(closed, program.index[name], count) for name in chosen}
    )


def check_columns_of(
    program: Program,
    columns: Sequence[str],
    atoms: Iterable[str] | None,
    keep: Sequence[str],
) -> list[str]:
    """The atoms to return, after a check of the names.

    Raises:
        DataError: a column or an atom is not there, or a name stands for two things.
    """
    for option, names in (("atoms", atoms), ("keep", keep)):
        if isinstance(names, str):
            raise DataError(f"{option} takes a list of names; write {option}=[{names!r}]")
    seen: set[str] = set()
    repeated = [name for name in columns if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if repeated:
        raise DataError(f"the table has two columns called {repeated[0]!r}")
    unknown = [name for name in columns if name not in program.index and name not in keep]
    if unknown:
        problem = unknown_atoms(unknown, program.atoms, what="columns")
        raise DataError(f"{problem}; keep={unknown[:3]} copies columns that are not atoms")
    absent = [name for name in keep if name not in columns]
    if absent:
        raise DataError(f"the table has no column {absent[0]!r} to keep")
    chosen = list(program.atoms if atoms is None else atoms)
    strange = [name for name in chosen if name not in program.index]
    if strange:
        raise DataError(str(unknown_atoms(strange, program.atoms, what="atoms")))
    twice = [name for name in keep if name in chosen]
    if twice:
        raise DataError(f"the column {twice[0]!r} to keep is an atom of the program")
    return chosen


def _bits(column: pa.ChunkedArray, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bits of a column, eight in a byte, the first one lowest."""
    import pyarrow as pa

    if column.null_count:
        raise DataError(f"column {name!r} has {column.null_count} missing values; fill them first")
    if not pa.types.is_boolean(column.type):
        return np.packbits(_truth_values(column, name), bitorder="little")
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], pa.bool_())
    size = -(-len(whole) // 8)
    if whole.offset % 8:
        return np.packbits(whole.to_numpy(zero_copy_only=False), bitorder="little")
    start = whole.offset // 8
    data = whole.buffers()[1]
    return np.frombuffer(b"" if data is None else data, np.uint8)[start : start + size]


def _truth_values(column: pa.ChunkedArray, name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    values = column.to_numpy()
    if values.dtype.kind not in "iuf" or not np.all((values == 0) | (values == 1)):
        raise DataError(
            f"column {name!r} must hold booleans, or 0 and 1, but holds other values ({column.type})"
        )
    truths: np.ndarray[Any, np.dtype[np.bool_]] = values.astype(np.bool_)
    return truths


def _column(planes: Planes, row: int, count: int) -> pa.Array:
    """One row of bit planes as an Arrow column."""
    import pyarrow as pa

    data = pa.py_buffer(np.ascontiguousarray(planes[row]))
    return pa.Array.from_buffers(pa.bool_(), count, [None, data])
