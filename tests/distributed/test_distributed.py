"""Sharded models over one to four processes on this machine: see `distributed_checks.py`."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distributed_checks
import latentgamma as lg
from latentgamma.distributed.collectives import balanced_ranges, even_ranges
from process_groups import run_in_processes


@pytest.mark.parametrize(
    "processes",
    [1, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 4))],
)
def test_every_law_of_sharded_models(processes: int, tmp_path: Path) -> None:
    even = processes % 2 == 0
    checks = distributed_checks.EVERY if even else distributed_checks.CORE
    failures = run_in_processes(processes, checks, tmp_path)
    assert not failures, "\n".join(f"{name}:\n{text}" for name, text in failures.items())


@pytest.mark.slow
def test_the_example_runs_with_torchrun(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "sharded_training.py"
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout
    assert "400 rules gathered" in done.stdout


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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0, 1, 1, 1, 1), "M"), ((1, -1, 1, 1, 1), "R"), ((1, 1, float("nan"), 1, 1), "k"),
     ((1, 1, 1, 0, 1), "B"), ((1, 1, 1, 1, 0), "devices"), (("x", 1, 1, 1, 1), "M")],
)  # fmt: skip
def test_a_plan_of_nothing(arguments: tuple[Any, ...], name: str) -> None:
    with pytest.raises(lg.errors.ArgumentError, match=f"^{name} must be a number from"):
        lg.distributed.plan(*arguments)
    step = lg.distributed.plan(10, 10, 2)
    assert step.communication == 0
    with pytest.raises(lg.errors.ArgumentError, match="link_bandwidth"):
        step.seconds(memory_bandwidth=1.0, link_bandwidth=0.0)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lg.distributed.nonsense  # noqa: B018
    for name in lg.distributed.__all__:
        assert getattr(lg.distributed, name) is not None
        assert name in dir(lg.distributed)


def test_neither_torch_nor_ray_is_imported_for_tables() -> None:
    code = (
        "import sys, latentgamma as lg; lg.distributed.close_parquet; "
        "print({'torch', 'ray'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
