"""The min/max closure: what it is, and the same by every way it is computed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import latentgamma as lg
from latentgamma import Program
from latentgamma.engine.minmax import LAST, MinMax, compile_circuit
from random_programs import random_program

WAYS = ("reference", "auto")


# ------------------------------------------------------------------------ independent versions


def slow_closure(program: Program, state: list[float]) -> list[tuple[float, int]]:
    """(value, rank) of each atom, one T_P step after another. Rank −1: true whatever is given."""
    certain = lg.closure(program).atoms
    derivable = {h for rule in program.rules for h in rule.heads if h not in rule.body}
    best = [
        (2.0, -1) if a in certain else (x, LAST if a in derivable else 0)
        for a, x in zip(program.atoms, state, strict=True)
    ]
    while True:
        after = list(best)
        for j in range(program.R):
            value, rank = slow_body(program, j, best)
            for h in program.heads_of(j).tolist():
                if (value, -rank - 1) > (after[h][0], -after[h][1]):
                    after[h] = (value, rank + 1)
        if after == best:
            return best
        best = after


def slow_body(program: Program, j: int, best: list[tuple[float, int]]) -> tuple[float, int]:
    pairs = [best[b] for b in program.body_of(j).tolist()] or [(2.0, -1)]
    value = min(v for v, _ in pairs)
    return value, max(r for v, r in pairs if v == value)


def slow_gradient(program: Program, state: list[float], atom: int) -> list[float]:
    """Where a gradient of one that arrives at an atom goes to, proof by proof."""
    best = slow_closure(program, state)
    slope = [0.0] * program.M

    def send(i: int, part: float) -> None:
        value, rank = best[i]
        if rank <= 0 or rank == LAST:
            slope[i] += part if rank >= 0 else 0.0
            return
        bodies = {
            frozenset(program.body_of(j).tolist()) - {b for b, p in enumerate(best) if p[1] < 0}
            for j in range(program.R)
            if i in program.heads_of(j) and slow_body(program, j, best) == (value, rank - 1)
        }
        for body in bodies:
            weakest = [b for b in body if best[b][0] == value]
            for b in weakest:
                send(b, part / len(bodies) / len(weakest))

    send(atom, 1.0)
    return slope


def unrolled(program: Program, state: Tensor, steps: int) -> Tensor:
    """T_P steps in min/max logic with torch alone. (M,)."""
    values = state
    for _ in range(steps):
        derived = [
            torch.stack([values[b] for b in program.body_of(j)]).amin()
            if len(program.body_of(j))
            else torch.ones((), dtype=state.dtype)
            for j in range(program.R)
        ]
        values = torch.stack(
            [
                torch.stack(
                    [state[i], *(derived[j] for j in range(program.R) if i in program.heads_of(j))]
                ).amax()
                for i in range(program.M)
            ]
        )
    return values


def everything(program: Program, way: str = "reference") -> MinMax:
    """From all atoms to all atoms."""
    atoms = np.arange(program.M)
    return MinMax(compile_circuit(program, atoms, atoms), kernel=way)


def programs(count: int, M: int, R: int) -> list[Program]:
    rng = np.random.default_rng(5)
    return [random_program(rng, M, R) for _ in range(count)]


# ------------------------------------------------------------------------ hard


@pytest.mark.parametrize("way", WAYS)
def test_above_one_half_is_the_closure_of_what_is_above_one_half(way: str) -> None:
    for program in programs(40, 6, 9):
        masks = np.array(list(itertools.product([False, True], repeat=6)))
        rng = np.random.default_rng(0)
        soft = torch.from_numpy(np.where(masks, rng.uniform(0.5001, 1, masks.shape),
                                         rng.uniform(0, 0.5, masks.shape)))  # fmt: skip
        values = everything(program, way)(soft, 0.0, low=0.0, high=1.0)
        assert np.array_equal((values > 0.5).numpy(), lg.closures(program, masks))


@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients_at_states_without_ties(way: str) -> None:
    for n, program in enumerate(programs(30, 7, 12)):
        rng = np.random.default_rng(n)
        state = torch.from_numpy(rng.permutation(np.linspace(0.02, 0.98, program.M)))
        state.requires_grad_()
        expected = unrolled(program, state, program.M)
        found = everything(program, way)(state[None], 0.0, low=0.0, high=1.0)[0]
        assert torch.equal(found, expected)
        for i in range(program.M):
            (mine,) = torch.autograd.grad(found[i], state, retain_graph=True, allow_unused=True)
            (theirs,) = torch.autograd.grad(expected[i], state, retain_graph=True)
            mine = torch.zeros_like(state) if mine is None else mine
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("levels", [[1.0, 0.0], [0.5], [0.3, 0.5, 0.7]])
def test_gradients_at_ties_go_along_the_shortest_proofs(way: str, levels: list[float]) -> None:
    for n, program in enumerate(programs(40, 7, 14)):
        rng = np.random.default_rng(n)
        state = torch.from_numpy(rng.choice(levels, program.M)).requires_grad_()
        found = everything(program, way)(state[None], 0.0, low=0.0, high=2.0)[0]
        assert found.tolist() == [v for v, _ in slow_closure(program, state.tolist())]
        for i in range(program.M):
            (slope,) = torch.autograd.grad(found[i], state, retain_graph=True, allow_unused=True)
            slope = torch.zeros_like(state) if slope is None else slope
            expected = slow_gradient(program, state.tolist(), i)
            assert slope.tolist() == pytest.approx(expected, abs=1e-12)
            certain = found[i].item() == 2.0
            assert slope.sum().item() == pytest.approx(0.0 if certain else 1.0)


# ------------------------------------------------------------------------ smooth


def slow_smooth(program: Program, x: list[float], T: float) -> list[float]:
    """Smooth values, step by step, on a program without cycles and without facts of its own."""
    values = list(x)
    for _ in range(program.M + 1):
        after = []
        for i in range(program.M):
            rules = {
                frozenset(program.body_of(j).tolist())
                for j in range(program.R)
                if i in program.heads_of(j)
            }
            own = [x[i]]
            derived = [-T * math.log(sum(math.exp(-values[b] / T) for b in body)) for body in rules]
            after.append(T * math.log(sum(math.exp(v / T) for v in own + derived)))
        values = after
    return values


def acyclic(rng: np.random.Generator, M: int, R: int) -> Program:
    rules = []
    for _ in range(R):
        head = int(rng.integers(1, M))
        body = rng.choice(head, int(rng.integers(1, min(head, 3) + 1)), replace=False)
        rules.append((f"a{head}", [f"a{b}" for b in body]))
    return Program.from_rules(rules, [f"a{i}" for i in range(M)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("T", [1.0, 0.3, 2.0])
def test_smooth_values_without_cycles(way: str, T: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        program = acyclic(rng, 8, 12)
        x = rng.normal(0, 2, program.M)
        found = everything(program, way)(torch.from_numpy(x)[None], T)[0]
        np.testing.assert_allclose(found.numpy(), slow_smooth(program, x.tolist(), T), rtol=1e-10)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("T", [1.0, 0.2])
def test_the_smooth_gradient_is_its_derivative(way: str, T: float) -> None:
    for n, program in enumerate(programs(12, 6, 10)):
        x = torch.from_numpy(np.random.default_rng(n).normal(0, 2, (3, 6))).requires_grad_()
        closed = everything(program, way)
        torch.autograd.gradcheck(lambda x, closed=closed: closed(x, T, low=0.0, high=0.0), x)


@pytest.mark.parametrize("way", WAYS)
def test_the_smooth_closure_becomes_the_hard_one(way: str) -> None:
    for n, program in enumerate(programs(20, 7, 12)):
        x = torch.from_numpy(np.random.default_rng(n).normal(0, 2, (4, 7)))
        closed = everything(program, way)
        hard = closed(x, 0.0)
        torch.testing.assert_close(closed(x, 1e-4), hard, atol=1e-2, rtol=0)
        torch.testing.assert_close(closed(x, 1e-7), hard, atol=1e-5, rtol=0)


# ------------------------------------------------------------------------ the kernels


@settings(deadline=None)
@given(st.data())
def test_all_ways_agree(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    M = data.draw(st.integers(1, 14))
    program = random_program(rng, M, data.draw(st.integers(0, 40)))
    fed = np.flatnonzero(rng.random(M) < data.draw(st.sampled_from([0.3, 0.7, 1.0])))
    read = rng.integers(0, M, data.draw(st.integers(0, 9)))
    circuit = compile_circuit(program, fed, read, true=np.flatnonzero(rng.random(M) < 0.1))
    T = data.draw(st.sampled_from([0.0, 1.0, 0.1]))
    B = data.draw(st.sampled_from([0, 1, 3, 16, 37]))
    grid = data.draw(st.booleans())
    x = (
        rng.integers(-2, 3, (B, len(fed))).astype(float)
        if grid
        else rng.normal(0, 2, (B, len(fed)))
    )
    given_ = torch.from_numpy(rng.normal(0, 1, (B, len(read))))
    found = []
    for way in WAYS:
        leaf = torch.from_numpy(x).requires_grad_()
        out = MinMax(circuit, kernel=way)(leaf, T)
        slope = None
        if out.requires_grad:
            (slope,) = torch.autograd.grad(out, leaf, given_, allow_unused=True)
        found.append((out.detach(), torch.zeros_like(leaf) if slope is None else slope))
        with torch.no_grad():
            assert torch.equal(MinMax(circuit, kernel=way)(leaf, T), found[-1][0])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
