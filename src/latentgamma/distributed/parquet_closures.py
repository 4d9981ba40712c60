"""Closures of fact sets in Parquet files of any size, in parts that any executor can compute.

Every part is a range of row groups, and becomes one file in the output folder, whole or not at
all. So a call that was interrupted goes on where it stopped, and a part that is computed twice is
the same. A file with JSON beside the parts says what they were computed from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from latentgamma._atomic_write import atomic_write, write_text
from latentgamma._errors import ArgumentError, DataError, DistributedError, LatentGammaError
from latentgamma._logic.threads import processors
from latentgamma._program.files import dumps
from latentgamma._program.program import Program, require_program
from latentgamma.distributed.arrow_tables import check_columns_of, close_table

#: The file that says what the parts in a folder were computed from.
_ABOUT = "_closures.json"
#: A part has at least so many fact sets, if there are as many.
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
        rows_per_part: row groups are joined until a part has so many fact sets.
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
    if rows_per_part < 1:
        raise ArgumentError(f"rows_per_part must be at least 1, not {rows_per_part}")
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
    """The number of fact sets of each part, as the executor finishes them."""
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


# ------------------------------------------------------------------------ one part


def _close_part(
    program: Program,
    part: _TablePart,
    *,
    atoms: Sequence[str] | None,
    keep: tuple[str, ...],
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
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{Path(part.source).name}: {error}") from None
    except DataError as error:
        raise DataError(f"{Path(part.source).name}: {error}") from None
    return rows


# ------------------------------------------------------------------------ the parts of a call


def _source_files(source: Any) -> list[Path]:
    """The files of a source, sorted where a folder was given."""
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
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError("reading Parquet needs pyarrow; pip install pyarrow") from None
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
    """Everything that the parts depend on."""
    text = dumps(program) + "".join(f"{name}\n" for name in program.atoms)
    return {
        "program": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        "files": [
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
        if not path.is_file():
            if any(folder.iterdir()):
                raise DataError(f"the folder {str(folder)!r} is not empty; choose another one")
            write_text(path, json.dumps(about, indent=1) + "\n")
            return
        then = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"cannot use the folder {str(folder)!r}: {error}") from None
    changed = [key for key in about if not isinstance(then, dict) or then.get(key) != about[key]]
    if changed:
        raise DataError(
            f"the folder {str(folder)!r} holds the closures of another call: {changed[0]} differs; "
            "choose another folder, or delete it"
        )
