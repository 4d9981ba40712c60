"""Load: many threads, many calls, several processes. Answers stay right and memory stays flat."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import latentgamma as lg
from random_programs import random_program

pytestmark = pytest.mark.slow

PROGRAM = random_program(0, 60, 90, body=3)
STATES = np.random.default_rng(0).random((512, PROGRAM.M)) < 0.2


def resident_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


# ---------------------------------------------------------------------- threads


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_model_served_from_many_threads_answers_as_from_one(form: str, fixed: bool) -> None:
    model = lg.oracle(PROGRAM, form=form)  # type: ignore[arg-type]
    states = torch.from_numpy(STATES).float()
    steps = lg.logic.depth_bound(PROGRAM)
    with torch.no_grad():
        expected = model(states, steps)
    assert np.array_equal((expected > 0.5).numpy(), lg.closures(PROGRAM, STATES))

    def serve(i: int) -> bool:
        rows = slice(i % 500, i % 500 + 1 + i % 12)
        with torch.no_grad():
            if not fixed:
                return bool((model(states[rows], steps) > 0.5).equal(expected[rows] > 0.5))
            with model.fixed():  # another thread may end its own at any time
                return bool((model(states[rows], steps) > 0.5).equal(expected[rows] > 0.5))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(serve, range(1_000)))
    finally:
        sys.setswitchinterval(before)


def test_gradients_of_many_threads_are_those_of_one() -> None:
    model = lg.oracle(PROGRAM, form="sparse", gradient="proof")

    def gradient(i: int) -> torch.Tensor:
        state = torch.from_numpy(STATES[i : i + 4]).float().clamp(0.1, 0.9).requires_grad_()
        (found,) = torch.autograd.grad(model(state, 6).sum(), state)
        return found

    expected = [gradient(i) for i in range(32)]
    with ThreadPoolExecutor(8) as pool:
        for i, found in enumerate(pool.map(gradient, [i % 32 for i in range(320)])):
            assert torch.equal(found, expected[i % 32])


def test_one_program_is_asked_by_many_threads() -> None:
    program = random_program(1, 200, 300, body=3)  # fresh: its indices are made by all of them
    facts = [sorted(program.names(row)) for row in np.random.default_rng(1).random((64, 200)) < 0.1]

    def ask(i: int) -> frozenset[str]:
        return lg.closure(program, facts[i % 64]).atoms

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(2_000)))
    rows = lg.closures(program, facts)
    assert found == [program.names(rows[i % 64]) for i in range(2_000)]


# ---------------------------------------------------------------------- memory


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_memory_stays_flat_over_a_million_closures() -> None:
    rng = np.random.default_rng(2)
    model = lg.oracle(PROGRAM, form="sparse")

    def work() -> None:
        states = rng.random((50_000, PROGRAM.M)) < 0.2
        closed = lg.closures(PROGRAM, states)
        for i in range(100):
            assert np.array_equal(lg.closure(PROGRAM, states[i]).state, closed[i])
        with torch.no_grad():
            some = torch.from_numpy(states[:1_000]).float()
            assert np.array_equal((model(some, 12) > 0.5).numpy(), closed[:1_000])

    for _ in range(3):
        work()
    before = resident_kilobytes()
    for _ in range(20):
        work()
    assert resident_kilobytes() - before < 20_000


# ---------------------------------------------------------------------- processes


CLOSE = """
import numpy, latentgamma as lg
program = lg.generators.random(3000, 6000, body=(1, 3), seed=3)
facts = numpy.random.default_rng(0).random((10_000, 3000)) < 0.01
for _ in range(6):  # asked often enough to be compiled
    closed = lg.closures(program, facts)
print(int(closed.sum()))
"""


def test_two_processes_that_fill_one_kernel_cache_at_once_answer_alike(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", CLOSE]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    answers = set()
    for _ in range(2):  # with an empty cache, and with a full one
        both = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
        for process in both:
            out, errors = process.communicate()
            assert (process.returncode, errors) == (0, "")
            answers.add(out)
    assert any((tmp_path / "cache").rglob("*.nbi"))
    assert len(answers) == 1


class Closures(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Examples that are closed, and run through a model, where they are loaded."""

    def __init__(self) -> None:
        self.model = lg.oracle(PROGRAM, form="sparse")

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.from_numpy(STATES[i : i + 20]).float()
        with torch.no_grad():
            after = self.model(state, 12)[0] > 0.5
        return torch.from_numpy(lg.closure(PROGRAM, STATES[i]).state.copy()), after


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_data_loader_computes_in_processes_of_its_own(start: str) -> None:
    examples = Closures()
    examples[0]  # kernels and threads are in use before the processes start
    loader = DataLoader(examples, batch_size=16, num_workers=2, multiprocessing_context=start)
    closed, after = (torch.cat(parts) for parts in zip(*loader, strict=True))
    assert np.array_equal(closed.numpy(), lg.closures(PROGRAM, STATES[:64]))
    assert torch.equal(after, closed)
