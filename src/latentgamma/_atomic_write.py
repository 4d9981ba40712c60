"""Output files that appear complete or not at all: written beside their place, then renamed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `path` if the block raises no exception.

    The temporary file is in the same folder. If the block raises, it is deleted and the old
    file stays as it was. A new file has the permissions of the umask, a replaced file keeps its
    own, and a symbolic link keeps pointing to its target. A device or a pipe (`/dev/stdout`) is
    written directly.

    Raises:
        OSError: the file cannot be written; `filename` is `path`.
    """
    shown = os.fsdecode(path)
    try:
        mode = _mode(path)
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        if mode is not None and not stat.S_ISREG(mode):
            yield Path(path)
            return
        target = Path(os.path.realpath(path))
        if mode is not None and not os.access(target, os.W_OK):
            raise PermissionError(
                errno.EACCES, "Permission denied"
            )  # a rename would replace it all the same
        temporary = target.with_name(f".{target.name[:100]}.{os.urandom(4).hex()}.tmp")
        try:
            with open(temporary, "xb") as file:
                new = os.fstat(file.fileno()).st_mode  # the umask decides it
            permissions = stat.S_IMODE(new if mode is None else mode)
            os.chmod(temporary, permissions)
            yield temporary
            # Some writers (safetensors) replace the file by one that only its owner may read.
            os.chmod(temporary, permissions)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), shown) from None


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole, or leave what was there.

    Raises:
        OSError: the file cannot be written; `filename` is `path`.
    """
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of UTF-8 text whole, or leave what was there.

    Raises:
        OSError: the file cannot be written; `filename` is `path`.
    """
    write_bytes(path, text.encode())


def _mode(path: str | os.PathLike[str]) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None
