"""Closures on a GPU are those of the CPU; the order of the rules is tested without a GPU."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.logic.planes_cuda import _DeviceProgram
from random_programs import random_program

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def run_stages(program: lg.Program, facts: np.ndarray) -> np.ndarray:
    """What the kernel does with one fact set: one pass over a stage, more where it has a cycle."""
    rules = _DeviceProgram(program, torch.device("cpu"))
    body_ptr, body, head_ptr, head, stages = (array.numpy() for array in rules.arrays)
    state = facts.copy()
    for stage in range(rules.n_stages):
        first, repeated, last = stages[2 * stage : 2 * stage + 3]
        while True:
            before = state.copy()
            for j in range(first, last):
                if before[body[body_ptr[j] : body_ptr[j + 1]]].all():  # all rules side by side
                    state[head[head_ptr[j] : head_ptr[j + 1]]] = True
            if not repeated or (state == before).all():
                break
    return state


@pytest.mark.parametrize("seed", range(40))
def test_one_pass_over_the_stages_closes_what_has_no_cycle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    if seed % 2:
        program = lg.generators.random(15, 20, body=(1, 3), seed=seed, acyclic=seed % 4 == 1)
    else:
        program = random_program(seed, atoms=10, rules=14, body=3)
    for _ in range(10):
        facts = rng.random(program.M) < 0.3
        np.testing.assert_array_equal(run_stages(program, facts), lg.closure(program, facts).state)


def test_the_stages_of_a_layered_program_are_its_layers() -> None:
    program = lg.generators.layered(7, 12, seed=1)
    rules = _DeviceProgram(program, torch.device("cpu"))
    assert rules.n_stages == 7
    starts = rules.arrays[-1][::2].tolist()
    assert [b - a for a, b in pairwise(starts)] == [24] * 7


def on_gpu(program: object, rows: np.ndarray) -> np.ndarray:
    planes = torch.from_numpy(lg.logic.pack(rows).view(np.int64)).cuda()
    closed = lg.closures(program, planes, packed=True)
    assert closed.is_cuda
    return lg.logic.unpack(closed.cpu().numpy().view(np.uint64), len(rows))


@needs_gpu
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_on_a_gpu(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = random_program(
        seed, atoms=int(rng.integers(1, 60)), rules=int(rng.integers(0, 90)), body=4
    )
    rows = rng.random((int(rng.integers(1, 400)), program.M)) < 0.2
    np.testing.assert_array_equal(on_gpu(program, rows), lg.closures(program, rows))


@needs_gpu
@pytest.mark.parametrize(
    "make",
    [
        lambda: lg.generators.clique(30),
        lambda: lg.generators.chain(5_000),
        lg.generators.g4,
        lambda: lg.generators.random(20_000, 30_000, seed=3),
        lambda: lg.generators.random(200_000, 300_000, seed=3),
        lambda: lg.generators.random(1_000_000, 1_000_000, seed=3),
    ],
)
def test_large_and_cyclic_programs_on_a_gpu(make: Callable[[], lg.Program]) -> None:
    program = make()
    rng = np.random.default_rng(0)
    rows = rng.random((70, program.M)) < 0.02
    rows[:, 0] |= rng.random(70) < 0.5
    np.testing.assert_array_equal(on_gpu(program, rows), lg.closures(program, rows))


@needs_gpu
def test_negation_on_a_gpu() -> None:
    program = lg.parse("b :- a, not c. c :- d. e :- not b.")
    rows = np.array([[bit == "1" for bit in f"{n:0{program.M}b}"] for n in range(1 << program.M)])
    np.testing.assert_array_equal(on_gpu(program, rows), lg.closures(program, rows))
