"""The machine that results were computed on, and the versions of the software."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from latentgamma._version import __version__


def machine_and_versions(device: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The machine in words, and the name and version of each package that computes.

    Args:
        device: what torch calls the device; a GPU is named.
    """
    parts = [_processor(), f"{os.cpu_count()} cores", platform.system()]
    if device.startswith("cuda"):
        import torch

        parts.insert(0, torch.cuda.get_device_name(device))
    versions = [("latentgamma", __version__), ("Python", platform.python_version())]
    for package in ("torch", "numpy", "numba"):
        try:
            versions.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return ", ".join(parts), tuple(versions)


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
