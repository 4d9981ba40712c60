"""Finished phases of a validation in a file, so that a killed run can be resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from latentgamma._atomic_write import write_text
from latentgamma._errors import DataError
from latentgamma.validation.frozen_json import from_json, to_json
from latentgamma.validation.results import (
    Construction,
    EdgeCases,
    Expressivity,
    MultiHead,
    Robustness,
    StructureChecks,
    Windows,
)

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class FinishedPhases:
    """The phases that are finished, and what they were computed for."""

    key: str
    construction: Construction | None = None
    expressivity: Expressivity | None = None
    robustness: Robustness | None = None
    structure: StructureChecks | None = None
    edge_cases: EdgeCases | None = None
    multi_head: MultiHead | None = None
    windows: Windows | None = None


class PhaseCheckpoint:
    """Runs phases, and saves each result; phases that a file already has are not run again.

    A file for other settings, from another version, or with a wrong checksum is ignored and
    replaced.

    Args:
        path: the file; None to save nothing.
        key: the settings and versions that the results depend on.
    """

    def __init__(self, path: Path | None, key: str) -> None:
        self._path = path
        self._finished = _read(path, key)

    def run(self, name: str, phase: Callable[[], _Result]) -> _Result:
        """The result of a phase, from the file or by running it.

        Args:
            name: the field of `FinishedPhases`.
            phase: computes the result.
        """
        saved: _Result | None = getattr(self._finished, name)
        if saved is not None:
            return saved
        result = phase()
        change: dict[str, Any] = {name: result}
        self._finished = replace(self._finished, **change)
        if self._path is not None:
            text = to_json(self._finished)
            write_text(self._path, f"{_checksum(text)}\n{text}")
        return result


def _read(path: Path | None, key: str) -> FinishedPhases:
    empty = FinishedPhases(key)
    if path is None or not path.is_file():
        return empty
    checksum, _, text = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    if checksum != _checksum(text):
        return empty
    try:
        found = from_json(FinishedPhases, text)
    except DataError:
        return empty
    return found if found.key == key else empty


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
