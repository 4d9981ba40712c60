"""What fuzzing found stays mended: each input is read, or refused by the library's own error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
sys.path.insert(0, str(FUZZ))

import targets  # noqa: E402

FINDINGS = sorted(path for path in (FUZZ / "findings").iterdir() if path.suffix != ".md")


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.name)
def test_a_finding_is_read_or_refused(path: Path) -> None:
    targets.check(path.name.partition("-")[0], path.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(targets.TARGETS))
def test_the_fuzzers_start_from_inputs_that_can_be_read(target: str) -> None:
    for data in targets.seeds(target):
        targets.TARGETS[target](data)
