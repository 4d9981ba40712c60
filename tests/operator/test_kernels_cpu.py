"""The CPU kernels agree with plain torch in value and in every gradient, to the last example."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

import latentgamma as lg
from latentgamma.engine.simd import (
    compiled,
    exp_minus_abs,
    group,
    log,
    put_group,
)
from latentgamma.operator.kernels import (
    cpu as cpu_arithmetic,
)
from latentgamma.operator.kernels import (
    cpu_launch,
)
from latentgamma.operator.kernels import (
    interface as selection,
)
from latentgamma.operator.kernels.interface import (
    kernel_for,
    literal_rows_of,
    make_coefficients,
)
from latentgamma.operator.model import LatentGamma
from latentgamma.operator.rules import Literals, SparseRules
from latentgamma.operator.run import raw_above
from latentgamma.program.compilation import paused_collector
from latentgamma.program.program import Program
from random_models import random_model, random_states
from random_programs import random_program


@pytest.fixture(autouse=True)
def every_size_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LEAST_SIZE", 0)


def drawn(program: Program, **options: Any) -> LatentGamma:
    """A model with random numbers that runs as a kernel where it can."""
    model = random_model(program, **options)
    model.kernel = "auto"
    return model


def soft(program: Program, *, gate: str = "sigmoid", seed: int = 0) -> LatentGamma:
    """A model near the closed form, soft, so that every number has a gradient, and slow to rise:
    near 1 a float32 state has few digits of 1 − s left."""
    model = lg.oracle(
        program,
        lg.Constants(body=6.0, head=6.0, sharpness=5.0, confidence=0.9, gain=2.0, gate=3.0),
        form="sparse",
        gate=gate,  # type: ignore[arg-type]
        dtype=torch.float64,
    )
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return model


def high_states(model: LatentGamma, batch: int, seed: int = 0) -> Tensor:
    """States near enough to 1 for long bodies to matter, some exactly 0 and 1."""
    return random_states(model, batch, seed=seed) ** 0.2


def compare(
    model: LatentGamma,
    state: Tensor,
    steps: int,
    dtype: torch.dtype,
    *,
    value: float,
    slope: float,
    every: bool = False,
) -> None:
    """Hold the kernel to the float64 reference: the states, and the gradient of every parameter."""
    mine = copy.deepcopy(model).to(dtype)
    theirs = copy.deepcopy(mine).double()
    mine.kernel, theirs.kernel = "auto", "reference"
    start = state.to(dtype).requires_grad_()
    wide = start.detach().double().requires_grad_()
    if every:
        got, want = mine.iterate(start, steps).states, theirs.iterate(wide, steps).states
    else:
        got, want = mine(start, steps), theirs(wide, steps)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), want, rtol=0, atol=value)
    rng = torch.Generator().manual_seed(1)
    given = torch.randn(got.shape, generator=rng, dtype=torch.float64)
    got.backward(given.to(dtype))
    want.backward(given.to(dtype).double())
    expected = {"state": wide, **dict(theirs.named_parameters())}
    for name, a in {"state": start, **dict(mine.named_parameters())}.items():
        b = expected[name]
        if b.grad is None or b.numel() == 0 or float(b.grad.norm()) == 0:
            assert a.grad is None or float(a.grad.norm()) == 0, name
            continue
        assert a.grad is not None, name
        assert a.grad.dtype == dtype
        error = float((a.grad.double() - b.grad).norm() / b.grad.norm())
        assert error <= slope, f"{name}: {error:.2e}"


BOTH = pytest.mark.parametrize(
    ("dtype", "value", "slope"),
    [
        pytest.param(torch.float32, 1e-5, 1e-4, id="float32"),
        pytest.param(torch.float64, 1e-12, 1e-10, id="float64", marks=pytest.mark.slow),
    ],
)


# -------------------------------------------------------------------- exp


@compiled
def _exps(x: np.ndarray, out: np.ndarray) -> None:
    for g in range(x.size // 16):
        put_group(out, g, exp_minus_abs(group(x, g)))


@compiled
def _sigmoids(x: np.ndarray, out: np.ndarray) -> None:
    for g in range(x.size // 16):
        put_group(out, g, cpu_arithmetic.vector_sigmoid(group(x, g)))


def all_scales(dtype: type) -> np.ndarray:
    """Numbers of both signs from the least to beyond where exp underflows, dense in between."""
    top = 120.0 if dtype == np.float32 else 800.0
    steps = np.linspace(0, top, 1 << 17)
    tiny = np.geomspace(1e-38, top, 1 << 15)
    x = np.concatenate([steps, tiny]).astype(dtype)
    return np.concatenate([x, -x])


@compiled
def _logs(x: np.ndarray, out: np.ndarray) -> None:
    for g in range(x.size // 16):
        put_group(out, g, log(group(x, g)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_keeps_its_digits_also_beside_one(dtype: type) -> None:
    beside = 1 + np.finfo(dtype).eps * np.arange(-1000, 1000)
    x = np.concatenate([np.geomspace(1e-37, 1e37, 1 << 16), np.linspace(0.5, 2, 48), beside])
    x = np.resize(x.astype(dtype), (len(x) // 16) * 16)
    found = np.empty_like(x)
    _logs(x, found)
    exact = np.log(x.astype(np.longdouble))
    assert np.all(np.abs(found - exact) <= 4 * np.finfo(dtype).eps / 2 * np.abs(exact))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_and_sigmoid_keep_their_digits_over_the_whole_range(dtype: type) -> None:
    x = all_scales(dtype)
    wide = x.astype(np.longdouble)
    tiny, unit = np.finfo(dtype).tiny, np.finfo(dtype).eps / 2
    for function, exact, allowed in (
        (_exps, np.exp(-np.abs(wide)), 2.0),
        (_sigmoids, np.where(x < 0, np.exp(wide), 1) / (1 + np.exp(-np.abs(wide))), 4.0),
    ):
        got = np.empty_like(x)
        function(x, got)
        normal = exact > 1.01 * tiny
        error = np.abs(got - exact)[normal] / exact[normal] / unit
        assert error.max() < allowed
        # Below the least normal number: 0, or a number of that size, and nothing else.
        assert (got[~normal] <= 1.1 * tiny).all()
        assert (got >= 0).all()
        assert (got <= 1).all()


def test_a_number_that_is_none_shows_in_the_result() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, *([0.0] * 11)], dtype=np.float32)
    got = np.empty_like(x)
    _sigmoids(x, got)
    np.testing.assert_array_equal(got, [np.nan, 1, 0, 1, 0, *([0.5] * 11)])


# -------------------------------------------------------------------- values and gradients


@BOTH
@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
@pytest.mark.parametrize(
    ("atoms", "rules", "longest", "batch"),
    [(23, 31, 6, 1), (7, 5, 3, 3), (301, 277, 100, 21), (1, 3, 1, 16), (40, 60, 12, 5)],
)
def test_ragged_programs_agree_with_the_reference(
    dtype: torch.dtype,
    value: float,
    slope: float,
    gate: str,
    atoms: int,
    rules: int,
    longest: int,
    batch: int,
) -> None:
    model = soft(random_program(atoms, atoms, rules, body=longest), gate=gate)
    compare(model, high_states(model, batch), 3, dtype, value=value, slope=slope)


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_random_numbers_agree_with_the_reference(
    dtype: torch.dtype, value: float, slope: float, seed: int
) -> None:
    model = drawn(random_program(seed, 11, 17), seed=seed)
    compare(model, random_states(model, 19, seed=seed), 3, dtype, value=value, slope=slope)


@BOTH
@pytest.mark.parametrize("beta", [2.0, 5.0, 8.0, 9.0, 2.5])
def test_whole_and_broken_gates_agree_with_the_reference(
    dtype: torch.dtype, value: float, slope: float, beta: float
) -> None:
    model = soft(random_program(3, 20, 30, body=5))
    with torch.no_grad():
        model.gate_raw.copy_(raw_above("gate", torch.tensor(beta, dtype=torch.float64), 1.0))
    assert model.gate.item() == pytest.approx(beta, abs=1e-14)
    compare(model, high_states(model, 9), 5, dtype, value=value, slope=slope)


def test_a_proof_gradient_arrives_undiminished_at_the_facts_of_a_chain() -> None:
    program = lg.generators.chain(300)
    model = lg.oracle(program, form="sparse", gradient="proof", dtype=torch.float32)
    state = torch.zeros(program.M)
    state[0] = 1.0
    state.requires_grad_()
    model(state, 299)[-1].backward()
    assert state.grad is not None
    assert state.grad[0] == 1.0


@BOTH
@pytest.mark.parametrize("batch", [2, 18])
def test_every_state_of_a_run_passes_its_gradient_on(
    dtype: torch.dtype, value: float, slope: float, batch: int
) -> None:
    model = soft(random_program(5, 33, 41, body=7))
    state = high_states(model, batch)
    compare(model, state, 5, dtype, value=value, slope=slope, every=True)


@pytest.mark.parametrize("batch", [0, 1, 17])
@pytest.mark.parametrize(
    "program",
    [
        Program.from_rules([], atoms=["a", "b"]),
        Program.from_rules([], atoms=[]),
        Program.from_rules([(["a"], [])], atoms=["a"]),
        random_program(1, 16, 16, body=3),
    ],
    ids=["no rules", "nothing", "one fact", "whole groups"],
)
def test_the_smallest_programs_and_batches(program: Program, batch: int) -> None:
    model = soft(program)
    compare(model, high_states(model, batch), 2, torch.float32, value=1e-5, slope=1e-4)
    compare(model, high_states(model, batch), 0, torch.float64, value=0, slope=0)


def test_a_support_in_any_order_gives_the_same() -> None:
    model = soft(random_program(8, 25, 30, body=6))
    rules = model.rules
    assert isinstance(rules, SparseRules)
    rng = torch.Generator().manual_seed(0)
    body = torch.randperm(len(rules.body_rule), generator=rng)
    head = torch.randperm(len(rules.head_rule), generator=rng)
    shuffled = SparseRules(
        Literals(
            rules.body_rule[body],
            rules.body_atom[body],
            rules.head_rule[head],
            rules.head_atom[head],
        ),
        M=rules.M,
        body_logits=rules.body_logits.detach()[body],
        body_background=rules.body_background.detach(),
        head_logits=rules.head_logits.detach()[head],
        head_background=rules.head_background.detach(),
    )
    state = high_states(model, 6)
    want = model(state, 3)
    model.rules = shuffled
    torch.testing.assert_close(model(state, 3), want, rtol=0, atol=1e-13)
    compare(model, state, 3, torch.float64, value=1e-12, slope=1e-10)


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_the_coefficients_are_those_of_plain_torch(
    dtype: torch.dtype, value: float, slope: float, seed: int
) -> None:
    model = drawn(random_program(seed, 9, 13), seed=seed).to(dtype)
    rules = model.rules
    assert isinstance(rules, SparseRules)
    rows = literal_rows_of(rules)
    wide = make_coefficients(rows, copy.deepcopy(model).double().step_parameters(), torch.float64)
    got = make_coefficients(rows, model.step_parameters(), dtype)
    for found, expected in (
        (got.margin, wide.margin),
        (got.body_background, wide.body_background),
        (got.body_weight, wide.body_weight),
        (got.head_background, wide.head_background),
        (got.head_weight, wide.head_weight),
        (got.offset, wide.offset),
        (got.gate, wide.gate),
    ):
        # One rounding to the dtype, of values that were computed in float64.
        torch.testing.assert_close(
            found.detach().double(),
            expected.detach(),
            rtol=max(1e-14, 2 * torch.finfo(dtype).eps),
            atol=1e-15,
        )


@pytest.mark.slow
def test_parameters_at_their_limits_have_the_gradient_of_the_reference() -> None:
    model = drawn(random_program(3, 5, 6))
    with torch.no_grad():
        model.sharpness_raw[:3] = torch.tensor([-800.0, 50.0, 0.0])
        model.confidence_raw[:3] = torch.tensor([-800.0, 60.0, 0.0])
        model.rules.head_logits[:2] = torch.tensor([300.0, -300.0])  # type: ignore[index, operator]
        model.rules.body_logits[:2] = torch.tensor([40.0, -40.0])  # type: ignore[index, operator]
    compare(model, high_states(model, 4), 2, torch.float64, value=1e-12, slope=1e-10)


@pytest.mark.parametrize("batch", [3, 20])
def test_each_example_takes_the_steps_it_is_given(batch: int) -> None:
    model = soft(random_program(7, 33, 41, body=5))
    counts = torch.arange(batch) % 6
    results = []
    for kernel in ("auto", "reference"):
        model.kernel = kernel  # type: ignore[assignment]
        model.zero_grad()
        state = high_states(model, batch).requires_grad_()
        after = model._runner().final(state, 5, counts)
        after.square().sum().backward()
        results.append([after, state.grad, *(p.grad for p in model.parameters())])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        for example, count in enumerate(counts.tolist()):
            alone = model(high_states(model, batch)[example], count)
            torch.testing.assert_close(alone, after[example], rtol=0, atol=1e-12)


def test_examples_that_go_on_until_they_are_closed_have_the_gradient_of_the_reference() -> None:
    # Facts near one half take more steps than the certificate says of true ones, and not all alike.
    model = lg.oracle(lg.generators.chain(6), form="sparse", dtype=torch.float64)
    start = torch.zeros(20, model.M, dtype=torch.float64)
    start[torch.arange(20), torch.arange(20) % 5] = torch.linspace(0.51, 1, 20).double()
    results = []
    for kernel in ("auto", "reference"):
        model.kernel = kernel  # type: ignore[assignment]
        model.zero_grad()
        state = start.clone().requires_grad_()
        after = model(state)
        after.square().sum().backward()
        results.append([after, state.grad, *(p.grad for p in model.parameters())])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-11)


def test_a_gradient_can_be_differentiated_again() -> None:
    model = soft(random_program(2, 5, 6, body=3))
    names = [name for name, _ in model.named_parameters()]

    def final(state: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(model, dict(zip(names, parameters, strict=True)), (state, 2))

    # The floor of 0.05 keeps the differences inside [0, 1].
    inside = (0.05 + 0.9 * high_states(model, 2)).requires_grad_()
    leaves = [p.detach().clone().requires_grad_() for p in model.parameters()]
    assert torch.autograd.gradcheck(final, (inside, *leaves))
    assert torch.autograd.gradgradcheck(final, (inside, *leaves), fast_mode=True)


# -------------------------------------------------------------------- laws of the operator


def test_a_gradient_with_a_graph_counts_parameters_once_in_each_of_two_runs() -> None:
    model = drawn(random_program(4))
    inputs = list(model.parameters())
    out = model(model(random_states(model, 2), 3), 2).sum()
    slopes = [
        torch.autograd.grad(out, inputs, create_graph=graph, retain_graph=True)
        for graph in (False, True)
    ]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-13)


def test_states_never_fall_and_stay_within_bounds() -> None:
    for gate in ("sigmoid", "bump"):
        model = drawn(random_program(5, 30, 60), gate=gate, dtype=torch.float32)
        states = model.iterate(random_states(model, 40), 50).states
        assert (states[1:] >= states[:-1]).all()
        assert states.min() >= 0
        assert states.max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_example_has_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    model = soft(random_program(4, 300, 290, body=9)).to(dtype)
    state = high_states(model, 37).to(dtype)
    together = model(state, 6)
    for first, last in ((0, 1), (5, 7), (3, 20), (36, 37)):
        assert torch.equal(model(state[first:last], 6), together[first:last])


def states_and_gradients(model: LatentGamma, state: Tensor, steps: int) -> list[Tensor]:
    start = state.clone().requires_grad_()
    states = model.iterate(start, steps).states
    grads = torch.autograd.grad(states.square().sum(), [start, *model.parameters()])
    return [states, *grads]


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("batch", [1, 40])
def test_threads_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, threads: Callable[[int], None], batch: int
) -> None:
    model = soft(random_program(4, 700, 600, body=9)).to(torch.float32)
    state = high_states(model, batch).float()
    monkeypatch.setattr(cpu_launch, "_WORTH_A_THREAD", 0)
    threads(1)
    alone = states_and_gradients(model, state, 5)
    threads(3)
    for limit in (1 << 62, 0):  # threads take tiles; threads share each tile
        monkeypatch.setattr(cpu_launch, "_WORTH_SHARING", limit)
        monkeypatch.setattr(cpu_launch, "_LARGER_THAN_CACHE", limit)
        assert all(map(torch.equal, alone, states_and_gradients(model, state, 5)))


def test_threads_change_no_bit_of_a_large_program(threads: Callable[[int], None]) -> None:
    # Plain torch divides so many parameters among its threads, and rounds differently at the ends.
    model = soft(lg.generators.chain(70_001)).to(torch.float32)
    state = high_states(model, 1).float()
    threads(1)
    alone = states_and_gradients(model, state, 2)
    for count in (2, 3):
        threads(count)
        assert all(map(torch.equal, alone, states_and_gradients(model, state, 2)))


def test_facts_close_as_the_program_says() -> None:
    for program in (lg.generators.g1(), lg.generators.g4()):
        model = lg.oracle(program, form="sparse", dtype=torch.float32)
        rng = np.random.default_rng(0)
        given = rng.random((50, program.M)) < 0.1
        closed = lg.closures(program, given)
        for steps in (model.certificate().t_min, 200):
            with torch.no_grad():
                got = model(torch.from_numpy(given).float(), int(steps)) > 0.5
            np.testing.assert_array_equal(got.numpy(), closed)


# -------------------------------------------------------------------- which kernel runs


class _RefusedError(RuntimeError):
    pass


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise _RefusedError

    monkeypatch.setattr(cpu_launch, "forward", refuse)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp
@pytest.mark.usefixtures("no_kernel")
def test_plain_torch_runs_where_it_is_asked_for_or_has_to() -> None:
    model = drawn(random_program(0), dtype=torch.float32)
    state = random_states(model, 4)
    with pytest.raises(_RefusedError):
        model(state, 2)
    with pytest.raises(_RefusedError):
        model.iterate(state, 2)
    model(state, 0)
    model(state.bfloat16(), 2)
    torch.func.vmap(lambda s: model(s, 2))(state)
    torch.func.grad(lambda s: model(s, 2).sum())(state)
    torch.func.jvp(lambda s: model(s, 2), (state,), (state,))
    torch.export.export(model, (state,), {"steps": 2})
    model.kernel = "reference"
    model(state, 2)
    model.iterate(state, 2)


def test_a_transform_of_something_else_is_left_to_plain_torch() -> None:
    model = drawn(random_program(0), dtype=torch.float32)
    state = random_states(model, 4).requires_grad_()
    factors = torch.arange(3.0)
    found = torch.func.vmap(lambda factor: factor * model(state, 2).sum())(factors)
    torch.testing.assert_close(found, factors * model(state, 2).sum())
    (slope,) = torch.autograd.grad(found.sum(), state)
    expected = torch.autograd.grad(3 * model(state, 2).sum(), state)[0]
    torch.testing.assert_close(slope, expected, rtol=1e-4, atol=1e-6)


def test_small_programs_do_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    small, large = drawn(random_program(0)), soft(random_program(0, 200, 200, body=9))
    for model, kernel in ((small, None), (large, cpu_launch)):
        state = random_states(model, 2)
        assert kernel_for(model.rules, state, list(model.parameters())) is kernel


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(
        lg.errors.ArgumentError, match="kernel must be one of 'auto', 'reference', not 'gpu'"
    ):
        lg.oracle(random_program(0), kernel="gpu")  # type: ignore[arg-type]


def test_kernel_and_reference_give_the_same_parameter_gradients() -> None:
    model = drawn(random_program(1, 12, 20))
    state = random_states(model, 20)
    grads = []
    for choice in ("auto", "reference"):
        model.kernel = choice  # type: ignore[assignment]
        model.zero_grad()
        model(state, 4).square().sum().backward()
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_a_moved_support_is_seen() -> None:
    model = drawn(random_program(2, 9, 12))
    state = random_states(model, 5)
    model(state, 2)
    rules = model.rules
    with torch.no_grad():
        rules.body_atom.copy_((rules.body_atom + 1) % model.M)  # type: ignore[union-attr, operator]
    got = model(state, 2)
    model.kernel = "reference"
    torch.testing.assert_close(got, model(state, 2), rtol=0, atol=1e-13)


_FORKED = """
import os, threading, numpy, torch
from latentgamma import generators, oracle
torch.set_num_threads(3)
model = oracle(generators.g4(), form="sparse")
# Comparing is left to numpy, too: torch's own threads do not outlive a fork.
facts = numpy.arange(200 * model.M, dtype=numpy.float32).reshape(200, model.M) % 7 < 2
state = torch.from_numpy(facts.astype(numpy.float32))
with torch.no_grad():
    before = model(state, 6)
    # Threads are at work, which a child does not have.
    assert any(thread.name.startswith("latentgamma") for thread in threading.enumerate())
    if (child := os.fork()) == 0:
        os._exit(0 if (model(state, 6).numpy() == before.numpy()).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_a_forked_process_has_threads_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKED], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_gradients_of_decided_logits_keep_their_digits() -> None:
    program = lg.generators.chain(6, body=2)
    grads = []
    for dtype in (torch.float32, torch.float64):
        # The same float32 numbers in both, so that only the arithmetic differs.
        model = lg.oracle(program, lg.Constants.paper(), form="sparse").to(dtype)
        state = torch.tensor([[0.9, 0.8, 0.1, 0.0, 0.3, 0.0]], dtype=dtype)
        model(state, 3).square().sum().backward()
        grads.append({name: p.grad for name, p in model.named_parameters()})
    for name, exact in grads[1].items():
        assert torch.allclose(grads[0][name].double(), exact, rtol=1e-4, atol=1e-12), name


@pytest.mark.parametrize("enabled", [True, False])
def test_loading_compiled_code_leaves_the_collector_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with suppress(KeyError), paused_collector():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_kernel_reads_parameters_wherever_they_lie() -> None:
    model = lg.oracle(lg.generators.g4(), form="sparse")
    state = (torch.rand(5, model.M, generator=torch.Generator().manual_seed(0)) < 0.1).float()
    raw = model.rules.body_logits

    def change_in_place() -> None:
        raw.data.sub_(0.5)  # a version counter does not see this

    def move() -> None:
        raw.data = raw.data.clone() - 0.5

    def spread() -> None:
        raw.data = torch.stack([raw.data, raw.data], 1)[:, 0]

    found = [model(state, 3)]
    for change in (change_in_place, move, change_in_place, spread, change_in_place, move):
        change()
        found.append(model(state, 3))
        reference = copy.deepcopy(model)
        reference.kernel = "reference"
        torch.testing.assert_close(found[-1], reference(state, 3), rtol=1e-5, atol=1e-6)
        assert torch.equal(found[-1], found[-2]) == (change is spread)
