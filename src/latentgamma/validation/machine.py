"""The machine that results were computed on, the versions of the software, and the time taken."""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from latentgamma._version import __version__
from latentgamma.validation.results import Timing

_Found = TypeVar("_Found")


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


class PhaseTimer:
    """Measures the wall time of each phase: call it with the result of the phase."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._last = self._wall
        self._phases: list[tuple[str, float]] = []

    def __call__(self, phase: str, found: _Found) -> _Found:
        """The result, as it is."""
        now = time.perf_counter()
        self._phases.append((phase, now - self._last))
        self._last = now
        return found

    def timing(self, device: str) -> Timing:
        """The time since the start, and of each phase."""
        return Timing(
            device,
            *machine_and_versions(device),
            time.perf_counter() - self._wall,
            time.process_time() - self._cpu,
            1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            tuple(self._phases),
        )
