"""Progress on disk: a journal of finished pieces of work, to go on from where a run broke off.

The file is one JSON document a line. The first says what the work is about; each later one is a
piece of it with its result. Lines are only ever added, so a run that is killed loses the piece
it was at and no more. Everything else about the work must be deterministic: then a run that
takes the finished pieces from the journal ends as one that was never interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, Any, TypeAlias

import numpy as np

from latentgamma._errors import DataError
from latentgamma._learning.observations import Observations

Where: TypeAlias = "str | os.PathLike[str]"
#: A piece of work by its name: from the journal if it is there, else done now and written down.
Keep: TypeAlias = Callable[[str, Callable[[], Any]], Any]

_FORMAT = "learning"
_VERSION = 1
#: What every journal starts with.
_MARK = b'{"latentgamma": "learning"'
#: Seconds that may pass before what was written is also forced onto the disk.
_SYNC = 1.0


def no_journal(name: str, work: Callable[[], Any]) -> Any:
    """What the work gives, written nowhere."""
    del name
    return work()


class Journal:
    """The finished pieces of one piece of work, kept in a file.

    Args:
        path: the file; it is made if there is none.
        about: what must be the same for the finished pieces to be of use.
    """

    def __init__(self, path: Where, about: Mapping[str, Any]) -> None:
        self.path = os.fsdecode(path)
        head = {"latentgamma": _FORMAT, "version": _VERSION, **about}
        self._finished: dict[str, Any] = {}
        try:
            self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 - closed in `close`
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"cannot write the checkpoint {self.path!r}: {reason}") from None
        try:
            self._lock()
            self._synced = time.monotonic()
            self._open(json.dumps(head, ensure_ascii=True).encode() + b"\n")
        except BaseException:
            self._file.close()
            raise

    @property
    def finished(self) -> int:
        """The number of finished pieces."""
        return len(self._finished)

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work gives, as JSON has it: from the file if it is there, else done now."""
        if name not in self._finished:
            line = json.dumps([name, work()], separators=(",", ":"))
            self._finished[name] = json.loads(line)[1]
            self._write(line.encode() + b"\n")
        return self._finished[name]

    def close(self) -> None:
        """Force everything onto the disk."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    def _open(self, head: bytes) -> None:
        self._file.seek(0)
        data = self._file.read()
        if head.startswith(data):  # new, or broken off at once
            self._file.truncate(0)
            self._write(head)
            return
        if not data.startswith(_MARK):
            raise DataError(f"{self.path!r} is no checkpoint of learning; pass another path")
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        if not lines:
            raise self._other("it was broken off before anything was finished")
        self._compare(self._parsed(lines[0], 1), json.loads(head))
        for number, line in enumerate(lines[1:], start=2):
            name, value = self._parsed(line, number)
            self._finished[name] = value
        self._file.truncate(whole)  # a line that broke off in the middle is done again

    def _parsed(self, line: bytes, number: int) -> Any:
        try:
            value = json.loads(line)
            if number > 1 and not (len(value) == 2 and isinstance(value[0], str)):
                raise ValueError
        except (ValueError, TypeError):
            raise self._other(f"line {number} cannot be read") from None
        return value

    def _compare(self, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        different = [key for key in {**then, **now} if then.get(key) != now.get(key)]
        if "data" in different:
            raise self._other("it is about other data")
        told = [
            f"{key} was {_shown(then.get(key))} and is {_shown(now.get(key))}" for key in different
        ]
        if told:
            raise self._other("; ".join(told[:4]))

    def _other(self, problem: str) -> DataError:
        return DataError(
            f"the checkpoint {self.path!r} does not fit: {problem}; to start again delete it "
            f"(on the command line: --fresh), or pass another path"
        )

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
            self._file.flush()
            now = time.monotonic()
            if now - self._synced >= _SYNC:
                os.fsync(self._file.fileno())
                self._synced = now
        except OSError as error:
            raise DataError(
                f"cannot write the checkpoint {self.path!r}: {error.strerror}"
            ) from None


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"


def discard(path: Where) -> bool:
    """Whether there was a checkpoint, after deleting it; another file is left alone."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(_MARK))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(
            f"cannot read the checkpoint {os.fsdecode(path)!r}: {error.strerror}"
        ) from None
    if not _MARK.startswith(start[: len(_MARK)]):
        raise DataError(f"{os.fsdecode(path)!r} is no checkpoint of learning, and is not deleted")
    os.unlink(path)
    return True


def finished_pieces(path: Where) -> int:
    """How many pieces of work a checkpoint holds; 0 if there is none."""
    try:
        with open(path, "rb") as file:
            return max(0, sum(line.endswith(b"\n") for line in file) - 1)
    except OSError:
        return 0


def fingerprint(data: Observations) -> str:
    """A short text that other data would not have."""
    digest = hashlib.sha256(json.dumps([data.atoms, data.states.shape, data.doubt]).encode())
    belief = () if data.belief is None else (data.belief,)
    for array in (np.packbits(data.states), data.labels, data.counts, *belief):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]
