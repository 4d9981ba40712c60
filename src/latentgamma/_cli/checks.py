"""Checks of the arguments before any work is done: output files and devices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from latentgamma._cli.main import import_torch
from latentgamma._errors import DataError


class UsageError(Exception):
    """Arguments that cannot be used; the message is printed as it is."""


def check_outputs(
    outputs: Mapping[str, str | None], inputs: Mapping[str, str | Iterable[str] | None]
) -> None:
    """Check that every output can be written and that no two of the files are the same.

    Args:
        outputs: the path of each output, by the name of its argument; None if there is none.
        inputs: the path or paths of each input, likewise; "-" is the standard input.

    Raises:
        UsageError: an output is a folder, its folder does not exist, or it is also an input or
            another output.
    """
    used: dict[object, str] = {}
    for name, paths in inputs.items():
        for source in [paths] if isinstance(paths, str) else paths or ():
            if source != "-":
                used[_identity(source)] = f"the input {name}"
    for name, path in outputs.items():
        if path is None:
            continue
        target = Path(path)
        if not path or target.is_dir():
            raise UsageError(f"cannot write {path!r}: {name} takes a file, and this is a folder")
        if not target.absolute().parent.is_dir():
            raise UsageError(f"cannot write {path!r}: there is no such folder")
        if target.exists() and not target.is_file():
            continue  # a device such as /dev/null
        other = used.setdefault(_identity(path), name)
        if other != name:
            raise UsageError(
                f"cannot write {path!r}: {name} and {other} are the same file; give {name} "
                f"another name"
            )


def check_picture(path: str | None) -> None:
    """Check that a picture can be written in the format that its name asks for.

    Args:
        path: the argument of --plot; None if there is none.

    Raises:
        UsageError: the suffix is none that matplotlib writes.
    """
    if path is None:
        return
    from latentgamma import plot

    try:
        plot.check_path(path)
    except ValueError as error:
        raise UsageError(str(error)) from None


def check_device(name: str) -> None:
    """Check that tensors can be made on a device.

    Args:
        name: what torch calls it, for example "cuda:0".

    Raises:
        DataError: torch does not know it, or it is not there.
    """
    import_torch()
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise DataError(f"device {name!r} cannot be used: {reason}") from None


def _identity(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:  # it is not there yet
        return os.path.realpath(path)
    return found.st_dev, found.st_ino
