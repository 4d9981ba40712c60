"""Sharded models over one to four processes on this machine: see `distributed_checks.py`."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import distributed_checks
from latentgamma.distributed.partition import balanced_ranges, even_ranges
from process_groups import run_in_processes


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_every_law_of_sharded_models(processes: int, tmp_path: Path) -> None:
    failures = run_in_processes(processes, distributed_checks.EVERY, tmp_path)
    assert not failures, "\n".join(f"{name}:\n{text}" for name, text in failures.items())


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_ranges_cover_every_item_once(parts: int) -> None:
    for count in (0, 1, 5, 40):
        for bounds in (balanced_ranges([3] * count, parts), even_ranges(count, parts)):
            assert bounds[0] == 0
            assert bounds[-1] == count
            assert len(bounds) == parts + 1
            assert bounds == sorted(bounds)
            sizes = [stop - start for start, stop in itertools.pairwise(bounds)]
            assert max(sizes) - min(sizes) <= 1
