"""Layers of programs with negation: `not a` is the complement of the value of a."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import latentgamma as lg
from random_programs import random_stratified, stable_model

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def all_atoms(program: lg.Program, **options: Any) -> lg.Layer:
    return lg.Layer(program, list(program.atoms), list(program.atoms), **options)


# ------------------------------------------------------------------------ what is above one half


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_boolean_inputs_give_the_stable_model(kernel: str) -> None:
    for seed in range(20):
        program = random_stratified(seed)
        rng = np.random.default_rng(seed)
        order = [program.atoms[i] for i in rng.permutation(6)]
        fed, sure = order[:4], order[4:][: int(rng.integers(3))]
        layer = lg.Layer(program, fed, order, facts=sure, kernel=kernel).eval()
        worlds = list(itertools.product((0.0, 1.0), repeat=4))
        for world, found in zip(worlds, layer(torch.tensor(worlds)).tolist(), strict=True):
            facts = {atom for atom, value in zip(fed, world, strict=True) if value} | {*sure}
            true = stable_model(list(program.rules), frozenset(facts), program.atoms)
            assert found == [float(atom in true) for atom in order]


def values_with_ties(rng: np.random.Generator, dtype: torch.dtype) -> Tensor:
    """Values of which many are at one half or next to it."""
    half = torch.tensor(0.5, dtype=dtype)
    beside = torch.stack(
        [torch.nextafter(half, 1 - 2 * half), half, torch.nextafter(half, 2 * half)]
    )
    near = beside[torch.from_numpy(rng.integers(3, size=(64, 6)))]
    far = torch.from_numpy(rng.random((64, 6))).to(dtype)
    return torch.where(torch.from_numpy(rng.random((64, 6)) < 0.5), near, far)


def log_odds_with_ties(rng: np.random.Generator, dtype: torch.dtype) -> Tensor:
    """Log-odds of which many are 0, −0, denormal, tiny or infinite."""
    tiny = torch.finfo(dtype).tiny
    special = [0.0, -0.0, tiny, -tiny, tiny / 2, -tiny / 2, 1e-6, -1e-6, np.inf, -np.inf]
    near = torch.tensor(special, dtype=dtype)[torch.from_numpy(rng.integers(10, size=(64, 6)))]
    far = torch.from_numpy(rng.normal(size=(64, 6))).to(dtype)
    return torch.where(torch.from_numpy(rng.random((64, 6)) < 0.5), near, far)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31))
def test_above_one_half_is_the_closure_of_what_is_above_one_half(seed: int) -> None:
    program, rng = random_stratified(seed), np.random.default_rng(seed)
    kernel = "auto" if rng.random() < 0.5 else "reference"
    for dtype, from_logits in itertools.product(DTYPES, (False, True)):
        layer = all_atoms(program, from_logits=from_logits, kernel=kernel).eval()
        draw, middle = (log_odds_with_ties, 0.0) if from_logits else (values_with_ties, 0.5)
        x = draw(rng, dtype)
        closed = lg.closures(program, (x > middle).numpy())
        assert layer(x).dtype == dtype
        assert np.array_equal((layer(x) > 0.5).numpy(), closed)
        assert np.array_equal((layer(x, logits=True) > 0).numpy(), closed)


def test_one_half_is_false_and_its_complement_is_true() -> None:
    program = lg.parse("b :- not a. c :- not b. d :- not c.")
    for from_logits, middle in ((False, 0.5), (True, 0.0), (True, -0.0)):
        layer = lg.Layer(program, "a", ["b", "c", "d"], from_logits=from_logits).eval()
        assert (layer(torch.tensor([middle])) > 0.5).tolist() == [[True, False, True]]
        assert layer(torch.tensor([middle])).tolist()[0] == pytest.approx([0.5] * 3)
    exact = layer(torch.tensor([-0.3, 1e-30, 7.0]), logits=True)[:, 0]
    assert exact.tolist() == (-torch.tensor([-0.3, 1e-30, 7.0])).tolist()


def test_very_long_chains_of_negation() -> None:
    text = "".join(f"a{i + 1} :- not a{i}. " for i in range(60))
    layer = lg.Layer(lg.parse(text), "a0", [f"a{i}" for i in range(61)]).eval()
    for value in (0.0, 0.3, 0.5, 0.8, 1.0):
        found = layer(torch.tensor([value]))[0] > 0.5
        assert found.tolist() == [(value > 0.5) ^ (i % 2 == 1) for i in range(61)]


# ------------------------------------------------------------------------ gradients


@pytest.mark.quick_first
@pytest.mark.filterwarnings("ignore:the gradient of the inputs is identically zero")
@pytest.mark.parametrize("from_logits", [False, True])
def test_gradients_are_differences(from_logits: bool) -> None:
    for seed in range(12):
        layer = all_atoms(random_stratified(seed), from_logits=from_logits, temperature=0.5)
        x = torch.rand(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        x = (0.1 + 0.8 * x).requires_grad_()
        for mode in (True, False):
            layer.train(mode)
            assert torch.autograd.gradcheck(layer, x)
            assert torch.autograd.gradcheck(lambda x: layer(x, logits=True), x)  # noqa: B023


def test_the_smooth_layer_becomes_the_hard_one() -> None:
    for seed in range(12):
        layer = all_atoms(random_stratified(seed), from_logits=True)
        x = torch.randn(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        hard = layer.eval()(x, logits=True)
        layer.train()
        gaps = []
        for temperature in (1.0, 0.1, 1e-2, 1e-4):
            layer.temperature = temperature
            gaps.append((layer(x, logits=True) - hard).abs().max().item())
        assert gaps[-1] < 1e-2
        assert sorted(gaps, reverse=True) == gaps


def test_a_tie_still_has_a_gradient() -> None:
    program = lg.parse("c :- a, not b.")
    for from_logits, middle in ((False, 0.5), (True, 0.0)):
        layer = lg.Layer(program, ["a", "b"], "c", from_logits=from_logits)
        for mode in (True, False):
            x = torch.full((1, 2), middle, requires_grad=True)
            layer.train(mode)(x).sum().backward()
            assert x.grad[0, 0] >= 0
            assert x.grad[0, 1] <= 0
            assert x.grad.abs().sum() > 0


# ------------------------------------------------------------------------ the operator


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
@pytest.mark.parametrize("delta", [0.01, 0.3])
def test_gamma_thresholds_to_the_closure_outside_the_tolerance(gate: Any, delta: float) -> None:
    for seed in (2, 3):
        program = random_stratified(seed)
        layer = all_atoms(program, semantics="gamma", tolerance=delta, gate=gate).eval()
        assert layer.certificate.holds
        ends = [0.0, 0.5 - delta, 0.5 + delta, 1.0]
        x = np.array(list(itertools.product(ends, repeat=6)))
        closed = lg.closures(program, x > 0.5)
        for logits, middle in ((False, 0.5), (True, 0.0)):
            found = layer(torch.from_numpy(x).float(), logits=logits) > middle
            assert np.array_equal(found.numpy(), closed)


@pytest.mark.quick_first
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_certified_layer_gives_the_same_answers(dtype: torch.dtype) -> None:
    program = random_stratified(2)
    layer = all_atoms(program, from_logits=True).eval()
    certified = layer.certified().to(dtype)
    assert certified.certificate.holds
    assert certified.certificate.dtype == str(dtype).removeprefix("torch.")
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    x = x + 0.25 * x.sign()
    assert torch.equal(layer(x) > 0.5, certified(x) > 0.5)
    with torch.no_grad():
        for parameter in certified.rules.model.parameters():
            parameter += 3.0
    assert not certified.plan().exact


def test_a_gamma_layer_runs_the_steps_of_the_certificate_that_it_shows() -> None:
    # Here a certificate for a larger tolerance starts one step earlier.
    program = lg.parse("a4 :- a2. a4 :- a2. a0 :- a5. a1 :- a3, not a0. a1 :- not a3.")
    layer = lg.Layer(program, "a0", ["a1"], semantics="gamma", tolerance=0.2, gate="bump")
    assert layer.certificate.covers(layer.rules.steps)
    assert layer.plan().exact


@pytest.mark.slow
def test_a_gamma_layer_in_another_dtype_runs_the_steps_that_it_needs() -> None:
    program = random_stratified(36)
    layer = all_atoms(program, semantics="gamma").eval()
    steps = layer.rules.steps
    layer.bfloat16()
    assert layer.rules.steps > steps
    assert layer.certificate.holds
    x = np.array(list(itertools.product([0.0, 1.0], repeat=program.M)))
    found = layer(torch.from_numpy(x).float()) > 0.5
    assert np.array_equal(found.numpy(), lg.closures(program, x > 0.5))
    assert layer.double().rules.steps <= steps


@pytest.mark.slow
def test_a_gamma_layer_is_annealed_to_its_certified_parameters() -> None:
    program = lg.parse("b :- a. d :- c, not b.")

    def make() -> lg.Layer:
        return lg.Layer(program, ["a", "c"], "d", semantics="gamma", from_logits=True)

    layer = make()
    annealing = lg.Annealing(layer, steps=3, end=0.0)
    x = torch.tensor([[-0.4, 0.4]], requires_grad=True)
    for _ in range(3):
        (slope,) = torch.autograd.grad(layer(x, logits=True).sum(), x)
        assert slope.isfinite().all()
        assert slope[0, 0] < 0 < slope[0, 1]
        annealing.step()
    assert torch.equal(layer(x), layer.eval()(x))
    fresh = make()
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer(x))


# ------------------------------------------------------------------------ explanations


@pytest.mark.slow
@pytest.mark.parametrize("semantics", ["godel", "gamma"])
def test_a_change_may_raise_and_lower_inputs(semantics: Any) -> None:
    program = lg.parse("fly :- bird, not penguin. bird :- penguin. stay :- not fly.")
    layer = lg.Layer(program, ["bird", "penguin"], ["fly", "stay"], semantics=semantics)
    told = layer.explain(torch.tensor([0.2, 0.9]))
    fly, stay = told["fly"], told["stay"]
    assert (fly.is_true, stay.is_true) == (False, True)
    assert [(c.atom, c.to > 0.5) for c in fly.changes] == [("bird", True), ("penguin", False)]
    assert fly.proof is None
    assert "it does not follow from what is above one half" in str(fly)
    assert {c.atom for c in stay.changes} == {"bird", "penguin"}
    assert stay.proof.holds()
    assert "proof from what is above one half" in str(stay)
    none = lg.Layer(program, "penguin", "fly", semantics=semantics).explain(torch.tensor(0.7))
    assert "no change of the inputs makes it true" in str(none)


def test_without_clingo_no_change_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "clingo", None)
    layer = lg.Layer(lg.parse("b :- not a."), "a", "b")
    told = str(layer.explain(torch.tensor(0.7)))
    assert "b is false, at 0.3" in told
    assert (
        "no change is stated: looking for changes in a program with negation needs clingo" in told
    )


# ------------------------------------------------------------------------ as a module


@pytest.mark.parametrize("mode", [True, False])
def test_examples_do_not_change_each_other_and_a_batch_may_be_empty(mode: bool) -> None:
    for seed in range(12):
        layer = all_atoms(random_stratified(seed)).train(mode)
        x = torch.rand(40, 6, generator=torch.Generator().manual_seed(seed))
        together = layer(x)
        alone = torch.cat([layer(row[None]) for row in x])
        # The logarithms of torch differ in the last digit between long and short tensors.
        torch.testing.assert_close(together, alone, rtol=1e-6 if mode else 0, atol=0)
        assert layer(x[:0]).shape == (0, 6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: torch.dtype) -> None:
    layer = all_atoms(random_stratified(3))
    wide = torch.rand(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = wide.to(dtype).requires_grad_()
    for mode in (True, False):
        out = layer.train(mode)(x)
        out.sum().backward()
        assert out.dtype == x.grad.dtype == dtype
        same = layer(x.detach().double())
        torch.testing.assert_close(out.double(), same, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_the_plan_counts_all_strata() -> None:
    program = lg.parse("b :- a. c :- b, not d. e :- not c, x. f :- f2. f2 :- f, not c. g :- not y.")
    layer = lg.Layer(program, ["a", "d", "x", "b"], ["e", "g", "f"])
    plan = layer.plan()
    assert (plan.exact, plan.idle, plan.also_derived) == (True, (), ("b",))
    assert (plan.always_true, plan.always_false) == (("g",), ("f",))
    # b is the maximum of two inputs, c and e are minima with a maximum of one child each.
    assert (plan.nodes, plan.edges, plan.cycles) == (5, 7, 0)
    only = lg.Layer(program, ["a", "d", "x"], ["g"]).plan()
    assert (only.nodes, only.idle) == (0, ("a", "d", "x"))
