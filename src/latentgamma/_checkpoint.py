"""A journal of finished work on disk, so that a run that was interrupted can be resumed.

The file holds one JSON array a line: a name, a value and a checksum of both. The first line says
what the work is about; each later one is a finished piece with its result. Lines are only appended.
A run that is killed loses the piece it was working on. A line that is damaged, and all after it,
are computed again. Everything else about the work must be deterministic: then a resumed run has the
same result as one that was never interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import IO, Any, TypeAlias

from latentgamma._text import file_problem, shortened
from latentgamma.errors import DataError

Where: TypeAlias = "str | os.PathLike[str]"
#: Returns the result of a named piece of work: a saved one, or one computed now.
Compute: TypeAlias = Callable[[str, Callable[[], Any]], Any]

_ABOUT = "latentgamma checkpoint"
_VERSION = 3
#: The first bytes of every journal.
_MARK = f'["{_ABOUT}",'.encode()
#: Seconds between two calls of fsync, which may take ten milliseconds: more than a piece of work.
_SYNC_SECONDS = 1.0
_REMEDY = "to start again delete it (on the command line: --fresh), or pass another path"


def digest_of(*parts: Any) -> str:
    """Return a short text that differs for other values and arrays of numpy."""
    digest = hashlib.sha256()
    for part in parts:
        is_array = hasattr(part, "tobytes")
        digest.update(f"{(part.dtype, part.shape) if is_array else part!r};".encode())
        digest.update(part.tobytes() if is_array else b"")
    return digest.hexdigest()[:32]


def compute_now(name: str, work: Callable[[], Any]) -> Any:
    """Return the result of the work, without a journal."""
    del name
    return work()


class Journal:
    """The finished pieces of one computation, kept in a file.

    Args:
        path: the file; it is created if there is none.
        about: what must be the same for the finished pieces to be of use.
        remedy: what the error says that one can do.

    Raises:
        DataError: the file cannot be written, is in use, is not a checkpoint, or is about something else.
    """

    def __init__(self, path: Where, about: Mapping[str, Any], *, remedy: str = _REMEDY) -> None:
        self.path = os.fsdecode(path)
        self._remedy = remedy
        self._finished: dict[str, Any] = {}
        self._synced = time.monotonic()
        try:
            self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 - closed in `close`
        except (OSError, ValueError) as error:
            raise self._cannot_write(error) from None
        try:
            self._lock()
            self._open({"version": _VERSION, **about})
        except BaseException:
            self._file.close()
            raise

    def compute(self, name: str, work: Callable[[], Any]) -> Any:
        """Return the result of the work as JSON has it: from the file, or computed now."""
        if name not in self._finished:
            line = _line(name, work())
            self._write(line)
            self._finished[name] = _parse_line(line)[1]
        return self._finished[name]

    def has(self, name: str) -> bool:
        """Return whether the result of this piece of work is in the file."""
        return name in self._finished

    def close(self) -> None:
        """Force everything onto the disk and close the file."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(self._file, fcntl.LOCK_UN)  # a forked process has the file open too
            self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"another process is writing the checkpoint {self.path!r}; wait for it, or pass "
                f"another path"
            ) from None
        except (ImportError, OSError):  # a system, or a file system, without locks
            return

    def _open(self, about: Mapping[str, Any]) -> None:
        self._file.seek(0)
        data = self._file.read()
        first = _line(_ABOUT, about)
        new = first.startswith(data)  # also where the first line was interrupted
        if not new and not data.startswith(_MARK):
            raise DataError(f"{self.path!r} is not a checkpoint; pass another path")
        lines = data.splitlines(keepends=True)
        problem = None if new else _difference(_parse_line(lines[0]), _parse_line(first))
        if problem is not None:
            raise DataError(f"the checkpoint {self.path!r} does not fit: {problem}; {self._remedy}")
        if new:
            self._file.truncate(0)
            self._write(first)
            return
        end = len(lines[0])
        for line in lines[1:]:
            piece = _parse_line(line)
            if piece is None:
                break
            self._finished[piece[0]] = piece[1]
            end += len(line)
        self._file.truncate(end)

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
            self._file.flush()
            now = time.monotonic()
            if now - self._synced >= _SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = now
        except OSError as error:
            raise self._cannot_write(error) from None

    def _cannot_write(self, error: Exception) -> DataError:
        return DataError(f"cannot write the checkpoint {self.path!r}: {file_problem(error)}")


def _line(name: str, value: Any) -> bytes:
    text = json.dumps([name, value], separators=(",", ":"))
    return f'{text[:-1]},"{_checksum(text)}"]\n'.encode()


def _parse_line(line: bytes) -> Any:
    """Return the name and the value of a line, or None if it is not as it was written."""
    try:
        name, value, _ = json.loads(line)
    except (ValueError, TypeError):
        return None
    # Comparing bytes refuses every change, also one that reads as the same JSON.
    return (name, value) if isinstance(name, str) and _line(name, value) == line else None


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _difference(then: Any, now: Any) -> str | None:
    """Return how the parsed first line of a file differs from the one expected; None if not."""
    if then is None:
        return "its first line is damaged"
    old, new = then[1], now[1]
    different = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if "data" in different:
        return "it is about other data"

    def show(value: object) -> str:
        return shortened(json.dumps(value, ensure_ascii=False), 40)

    changes = [f"{key} was {show(old.get(key))} and is {show(new.get(key))}" for key in different]
    return "; ".join(changes[:4]) or None


def delete_checkpoint(path: Where) -> bool:
    """Delete a checkpoint and return whether there was one; another file is left alone.

    Raises:
        DataError: the file is not a checkpoint, or cannot be read.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(len(_MARK))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(
            f"cannot read the checkpoint {os.fsdecode(path)!r}: {file_problem(error)}"
        ) from None
    if not _MARK.startswith(start):
        raise DataError(f"{os.fsdecode(path)!r} is not a checkpoint, and is not deleted")
    os.unlink(path)
    return True


def finished_pieces(path: Where) -> int:
    """Return how many pieces of work a checkpoint holds; 0 if there is none."""
    try:
        with open(path, "rb") as file:
            lines = file.readlines()
    except OSError:
        return 0
    intact = takewhile(lambda line: _parse_line(line) is not None, lines)
    return max(0, len(list(intact)) - 1)
