"""Files are written whole or not at all, with the permissions a plain write would give."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import latentgamma as lg
from latentgamma._atomic_write import (
    atomic_write,
    write_bytes,
    write_text,
)


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    for mask in (0o022, 0o077, 0o002):
        before = os.umask(mask)
        try:
            write_text(tmp_path / f"{mask}", "content")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{mask}").stat().st_mode) == 0o666 & ~mask


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as temporary:  # noqa: PT012 - all of it is meant
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_written_directly(tmp_path: Path) -> None:
    write_text("/dev/null", "content")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("name", ["missing/file", "folder"])
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=f"{name}'$") as caught:
        write_text(tmp_path / name, "content")
    assert caught.value.filename == str(tmp_path / name)


def test_a_model_file_is_written_the_same_way(tmp_path: Path) -> None:
    model = lg.oracle(lg.parse("b :- a."))
    path = tmp_path / "model.safetensors"
    before = os.umask(0o027)
    try:
        model.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(lg.errors.ModelError, match=r"cannot write .*missing/model'"):
        model.save(tmp_path / "missing" / "model")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    code = (
        "import sys; from latentgamma._atomic_write import write_bytes\n"
        "try:\n    write_bytes(sys.argv[1], bytes(100_000))\n"
        "except OSError as error:\n    print(error.filename, error.strerror)"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=True)
    assert done.stdout == f"{path} File too large\n"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
