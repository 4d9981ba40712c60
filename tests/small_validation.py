"""The two smaller graphs, validated once for all tests that look at results."""

from __future__ import annotations

import fcntl
from functools import cache
from pathlib import Path

from latentgamma.paper import report, validation

#: A folder that the workers of a test run share; None where there is one process.
shared_folder: Path | None = None


@cache
def small() -> tuple[validation.Validation, validation.Timing]:
    """The results and the timing; the first worker computes them, the others read its files."""
    if shared_folder is None:
        return validation.run_validation(("g1", "g2"))
    folder = shared_folder / "small_validation"
    with (shared_folder / "small_validation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            report.save(*validation.run_validation(("g1", "g2")), folder)
    return report.load(folder / "results.json")
