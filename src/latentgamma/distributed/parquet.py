"""Closures of tables: Arrow, Parquet, and over a Ray cluster."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from concurrent.futures import wait as futures_wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from latentgamma._arguments import whole_number
from latentgamma._atomic_write import atomic_write
from latentgamma._checkpoint import Journal
from latentgamma.errors import (
    ArgumentError,
    DataError,
    DistributedError,
    LatentGammaError,
    optional_package,
    unknown_atoms,
)
from latentgamma.logic.closures import closures
from latentgamma.logic.planes import Planes
from latentgamma.program.compilation import processors
from latentgamma.program.files import dumps
from latentgamma.program.program import Program, require_program

if TYPE_CHECKING:
    import pyarrow as pa


# ---- Closures of the fact sets in an Arrow table, one column for each atom
# A boolean column of Arrow is a row of bits, in the order that bit planes have.


def close_table(
    program: Program,
    table: Any,
    *,
    atoms: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    threads: int | None = None,
) -> pa.Table:
    """Return the closures of the fact sets in an Arrow table, as an Arrow table.

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
    program: Program, columns: Sequence[str], atoms: Iterable[str] | None, keep: Sequence[str]
) -> list[str]:
    """Return the atoms to return, after a check of the names.

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
    """Return the bits of a column, eight in a byte, the first one lowest."""
    if column.null_count:
        raise DataError(f"column {name!r} has {column.null_count} missing values; fill them first")
    values = column.to_numpy()
    if values.dtype.kind != "b" and not (
        values.dtype.kind in "iuf" and np.all((values == 0) | (values == 1))
    ):
        raise DataError(
            f"column {name!r} must hold booleans, or 0 and 1, but holds other values ({column.type})"
        )
    return np.packbits(values.astype(np.bool_, copy=False), bitorder="little")


def _column(planes: Planes, row: int, count: int) -> pa.Array:
    """Return one row of bit planes as an Arrow column."""
    import pyarrow as pa

    data = pa.py_buffer(np.ascontiguousarray(planes[row]))
    return pa.Array.from_buffers(pa.bool_(), count, [None, data])


# ---- Closures of fact sets in Parquet files of any size, in parts that any executor can compute
# Every part is a range of row groups, and becomes one file in the output folder, whole or not at
# all. So a call that was interrupted goes on where it stopped, and a part that is computed twice is
# the same. A file beside the parts says what they were computed from.

#: A checkpoint whose first line says what the parts in a folder were computed from.
_ABOUT = "_closures.checkpoint"
#: A part has at least this many fact sets, if there are as many.
ROWS_PER_PART = 1 << 18
#: How many fact sets are in memory at a time.
_ROWS_IN_MEMORY = 1 << 18


@dataclass(frozen=True)
class TableClosures:
    """What `close_parquet` did.

    Attributes:
        folder: where the parts are.
        parts: their files, in the order of the fact sets.
        rows: the number of fact sets.
        resumed: the number of parts that were there from an earlier call.
        seconds: how long it took.
    """

    folder: Path
    parts: tuple[Path, ...]
    rows: int
    resumed: int
    seconds: float


@dataclass(frozen=True)
class _TablePart:
    """Some row groups of a file, and the file for their closures."""

    source: str
    groups: tuple[int, ...]
    rows: int
    target: str


def close_parquet(
    program: Program,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    atoms: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    executor: Executor | None = None,
    rows_per_part: int = ROWS_PER_PART,
    progress: Callable[[int, int], None] | None = None,
) -> TableClosures:
    """Write the closures of the fact sets in Parquet files to a folder of Parquet files.

    Memory does not grow with the number of fact sets. A call with the same arguments on the same
    folder goes on where an earlier one stopped.

    Args:
        program: any program, with negation or without.
        source: a file, several, or a folder with `.parquet` files; one row for each fact set, and
            columns as `close_table` takes them.
        folder: where `part-00000.parquet` and so on are written; it is created. All workers of an
            executor must see it, and the source, under the same path.
        atoms: the atoms to write; by default all.
        keep: columns that are not atoms, and are copied.
        executor: computes the parts, for example a `RayExecutor`, which spreads them over a
            cluster. By default they are computed here, in a thread for each processor.
        rows_per_part: row groups are joined until a part has this many fact sets.
        progress: called with the numbers of finished and of all fact sets.

    Returns:
        The files, the number of fact sets, and how many parts were there already.

    Raises:
        DataError: a file is no such table, or the folder holds something else.
        ProgramError: the first argument is not a program.
        DistributedError: the executor lost a worker for good. Call again to resume.
    """
    require_program(program, "close_parquet")
    if executor is not None and not isinstance(executor, Executor):
        raise ArgumentError(
            f"executor must be a concurrent.futures.Executor, such as RayExecutor(), not "
            f"{type(executor).__name__}"
        )
    whole_number("rows_per_part", rows_per_part, 1)
    begin = time.perf_counter()
    target = Path(folder)
    files = _source_files(source)
    if any(file.resolve().parent == target.resolve() for file in files):
        raise DataError(f"the folder {str(target)!r} holds the input; choose another one")
    parts = _parts(program, files, target, atoms, keep, rows_per_part)
    _prepare(target, _about(program, files, atoms, keep, rows_per_part))
    missing = [part for part in parts if not Path(part.target).is_file()]
    total = sum(part.rows for part in parts)
    done = total - sum(part.rows for part in missing)
    report = progress or (lambda finished, all_rows: None)
    report(done, total)
    work = partial(_close_part, atoms=atoms, keep=tuple(keep))
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(ThreadPoolExecutor(processors()))
        # Closed when `progress` raises, so that no further part is started.
        sizes = stack.enter_context(contextlib.closing(_spread(executor, work, program, missing)))
        for finished in sizes:
            done += finished
            report(done, total)
    return TableClosures(
        folder=target,
        parts=tuple(Path(part.target) for part in parts),
        rows=total,
        resumed=len(parts) - len(missing),
        seconds=time.perf_counter() - begin,
    )


def _spread(
    executor: Executor, work: Any, program: Any, parts: list[_TablePart]
) -> Generator[int, None, None]:
    """Yield the number of fact sets of each part, as the executor finishes them."""
    futures: list[Future[int]] = []
    try:
        futures += [executor.submit(work, program, part) for part in parts]
        for future in as_completed(futures):
            yield future.result()
    except LatentGammaError:
        raise
    except Exception as error:  # what executors raise for a lost worker is their own
        raise DistributedError(
            f"the executor stopped: {type(error).__name__}: {error}; finished parts are kept, call "
            "again to resume"
        ) from error
    finally:
        for future in futures:
            future.cancel()


# ---- One part


def _close_part(
    program: Program, part: _TablePart, *, atoms: Sequence[str] | None, keep: tuple[str, ...]
) -> int:
    """Write the closures of one part; return its number of fact sets."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    try:
        with pq.ParquetFile(part.source) as file, atomic_write(part.target) as temporary:
            writer = None
            try:
                for batch in file.iter_batches(
                    _ROWS_IN_MEMORY, row_groups=list(part.groups), use_threads=False
                ):
                    closed = close_table(program, batch, atoms=atoms, keep=keep, threads=1)
                    if writer is None:
                        writer = pq.ParquetWriter(temporary, closed.schema)
                    writer.write_table(closed)
                    rows += closed.num_rows
            finally:
                if writer is not None:
                    writer.close()
    except (pa.ArrowException, OSError, DataError) as error:
        raise DataError(f"{Path(part.source).name}: {error}") from None
    return rows


# ---- The parts of a call


def _source_files(source: Any) -> list[Path]:
    """Return the files of a source, sorted where a folder was given."""
    given = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    files: list[Path] = []
    for each in map(Path, given):
        if each.is_dir():
            files += sorted(each.glob("*.parquet"))
        elif each.is_file():
            files.append(each)
        else:
            raise DataError(f"cannot read {str(each)!r}: there is no such file")
    if not files:
        raise DataError(f"there is no .parquet file in {', '.join(map(repr, map(str, given)))}")
    return files


def _parts(
    program: Program,
    files: list[Path],
    folder: Path,
    atoms: Sequence[str] | None,
    keep: Sequence[str],
    rows_per_part: int,
) -> list[_TablePart]:
    with optional_package("Parquet files need pyarrow", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    parts: list[_TablePart] = []

    def add(source: Path, groups: list[int], rows: int) -> None:
        target = folder / f"part-{len(parts):05}.parquet"
        parts.append(_TablePart(str(source.resolve()), tuple(groups), rows, str(target.resolve())))

    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                names = opened.schema_arrow.names
                sizes = [
                    opened.metadata.row_group(i).num_rows
                    for i in range(opened.metadata.num_row_groups)
                ]
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file.name} is not a Parquet table: {error}") from None
        try:
            check_columns_of(program, names, atoms, keep)
        except DataError as error:
            raise DataError(f"{file.name}: {error}") from None
        groups, rows = [], 0
        for group, size in enumerate(sizes):
            groups.append(group)
            rows += size
            if rows >= rows_per_part or (rows and group == len(sizes) - 1):
                add(file, groups, rows)
                groups, rows = [], 0
    return parts


def _about(
    program: Program,
    files: list[Path],
    atoms: Sequence[str] | None,
    keep: Sequence[str],
    rows_per_part: int,
) -> dict[str, Any]:
    """Return everything that the parts depend on."""
    text = dumps(program) + "".join(f"{name}\n" for name in program.atoms)
    return {
        "program": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        "data": [
            [str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files
        ],
        "atoms": None if atoms is None else list(atoms),
        "keep": list(keep),
        "rows_per_part": rows_per_part,
    }


def _prepare(folder: Path, about: dict[str, Any]) -> None:
    """Make the folder, or check that what is in it was computed from the same."""
    path = folder / _ABOUT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file() and any(folder.iterdir()):
            raise DataError(f"the folder {str(folder)!r} is not empty; choose another one")
    except OSError as error:
        raise DataError(f"cannot use the folder {str(folder)!r}: {error}") from None
    Journal(path, about, remedy="choose another folder, or delete this one").close()


# ---- `RayExecutor`: Ray behind the interface of `concurrent.futures`

T = TypeVar("T")

#: A worker that dies is replaced, and its task is computed again, this many times.
_RETRIES = 5
#: Bytes of shared memory of a cluster that is started here: tasks return little.
_SHARED_MEMORY = 256 << 20
#: Arguments of these types are sent with each task.
_SMALL = (str, bytes, int, float, bool, type(None), os.PathLike)


@final
class RayExecutor(Executor):
    """An executor whose tasks run on a Ray cluster.

    It can be given to `close_parquet` and to `fit`. A worker that is killed is replaced, and what
    it was computing is computed again. Leaving the `with` block stops a cluster that was started
    by it, and leaves one that was there.

    Args:
        workers: start a cluster on this machine with this many processes.
        address: connect to a cluster: "auto", or "ray://host:port". Without `workers` and
            `address` the cluster that this process is connected to is used, or one is started with
            a process for each processor.

    Raises:
        ArgumentError: ray is not installed, or both arguments are given.
        DistributedError: there is no cluster at this address.
    """

    def __init__(self, workers: int | None = None, *, address: str | None = None) -> None:
        if workers is not None and address is not None:
            raise ArgumentError(
                "pass workers= to start a cluster, or address= to use one, not both"
            )
        if workers is not None:
            whole_number("workers", workers, 1)
        with optional_package("RayExecutor needs ray", "ray"):
            import ray
        self._ray = ray
        self._open: set[Future[Any]] = set()
        self._before: tuple[Any, ...] = ()
        self._shared: dict[int, tuple[Any, Any]] = {}
        self._started = not ray.is_initialized()
        if not self._started and (workers is not None or address is not None):
            raise ArgumentError(
                "this process is connected to a cluster already; use RayExecutor() without arguments"
            )
        if self._started:
            _connect(ray, workers, address)
        self._run = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Return the future result of `fn(*args, **kwargs)`, computed in the cluster."""
        references = [self._reference(argument) for argument in args]
        self._before = args
        task = self._run.remote(fn, *references, **kwargs)
        found: Future[T] = Future()
        self._open.add(found)

        def finish(done: Future[T]) -> None:
            if not found.set_running_or_notify_cancel():
                return
            error = done.exception()
            if error is None:
                found.set_result(done.result())
            else:
                found.set_exception(self._plain(error))

        def close(done: Future[T]) -> None:
            self._open.discard(done)
            if done.cancelled() and self._ray.is_initialized():
                self._ray.cancel(task)

        found.add_done_callback(close)
        task.future().add_done_callback(finish)
        return found

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the tasks, or cancel them, and stop the cluster if it was started here."""
        for future in [*self._open] if cancel_futures else []:
            future.cancel()
        if wait:
            futures_wait([*self._open])
        self._before = ()
        self._shared.clear()
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()

    def _reference(self, argument: Any) -> Any:
        """Return the argument, or a reference to it if the last task had the same one."""
        if isinstance(argument, _SMALL) or not any(argument is x for x in self._before):
            return argument
        known = self._shared.get(id(argument))
        if known is None or known[0] is not argument:
            known = self._shared[id(argument)] = argument, self._ray.put(argument)
        return known[1]

    def _plain(self, error: BaseException) -> BaseException:
        """Return the exception that the task raised, or that a worker was lost."""
        errors = self._ray.exceptions
        if isinstance(error, errors.RayTaskError):
            cause: BaseException = error.cause
            return cause
        if isinstance(error, errors.RayError):
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return DistributedError(f"a worker of the cluster was lost for good: {reason}")
        return error


def _connect(ray: Any, workers: int | None, address: str | None) -> None:
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
    if address is None:
        options |= {"include_dashboard": False, "object_store_memory": _SHARED_MEMORY}
        options |= {} if workers is None else {"num_cpus": workers}
        # Without "local" Ray would look for a running cluster first.
        address = "local"
    try:
        ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DistributedError(f"cannot connect to a Ray cluster: {reason}") from None


def _call(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return fn(*args, **kwargs)
