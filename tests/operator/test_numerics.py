"""Numbers at their limits: extreme parameters, long bodies, many atoms, few bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentgamma import (
    Constants,
    LatentGamma,
    Program,
    generators,
    oracle,
)
from latentgamma.operator.rules import DenseRules, SparseRules, StepParameters, bump, update
from random_models import FORMS, GATES, random_model, random_states
from random_programs import random_program

every_form = pytest.mark.parametrize("form", FORMS)
every_gate = pytest.mark.parametrize("gate", GATES)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
EXTREMES = [-1e4, -200.0, -1.0, 0.0, 1.0, 200.0, 1e4]


# ------------------------------------------------------------------------ extreme parameters


@every_form
@every_gate
class TestExtremes:
    @settings(deadline=None, max_examples=25, derandomize=True)
    @given(data=st.data(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 50))
    def test_no_nan_and_no_overflow(
        self, form: str, gate: str, data: st.DataObject, dtype: torch.dtype, seed: int
    ) -> None:
        model = random_model(random_program(seed), form=form, gate=gate, seed=seed, dtype=dtype)
        rng = torch.Generator().manual_seed(seed)
        choices = torch.tensor(EXTREMES)
        for parameter in model.parameters():
            if data.draw(st.booleans()):
                drawn = choices[torch.randint(len(EXTREMES), parameter.shape, generator=rng)]
                parameter.data.copy_(drawn)
        state = random_states(model, 3, seed=seed).requires_grad_()
        states = model.iterate(state, 4).states
        assert states.isfinite().all()
        assert ((states >= 0) & (states <= 1)).all()
        assert (states[1:] >= states[:-1]).all()
        for slope in torch.autograd.grad(states.sum(), [state, *model.parameters()]):
            assert slope.isfinite().all()

    @pytest.mark.parametrize("size", [1e4, 1e30])
    def test_the_signs_decide_when_numbers_are_huge(
        self, form: str, gate: str, size: float
    ) -> None:
        program = Program.from_rules([("c", ["a", "b"])], atoms="abc")
        model = oracle(program, Constants.paper(), form=form, gate=gate)
        for parameter in model.group("body") + model.group("head"):
            parameter.data.copy_(parameter.data.sign() * min(size, 1e4))
        for name in ("sharpness", "gain", "gate"):
            model.group(name)[0].data.fill_(size)
        after = model(model.state([[], ["a"], ["a", "b"]]), 2)
        assert after[:, 2].tolist() == [0.0, 0.0, 1.0]

    def test_numbers_in_the_domain_at_the_ends_of_the_raw_line(self, form: str, gate: str) -> None:
        for dtype in (torch.float32, torch.float64):
            model = random_model(random_program(0), form=form, gate=gate, dtype=dtype)
            for end in (-torch.finfo(dtype).max, -1e4, 1e4, torch.finfo(dtype).max):
                for name in ("sharpness", "gain", "gate", "confidence"):
                    model.group(name)[0].data.fill_(end)
                assert (model.sharpness > 0).all()
                assert model.gain > 0
                assert model.gate > 1
                assert ((model.confidence > 0) & (model.confidence < 1)).all()
                for number in (model.sharpness, model.gain, model.gate):
                    assert number.isfinite().all()


@pytest.mark.parametrize("value", [1e-6, 0.01, 1.0, 10.0, 19.9, 20.1, 25.0, 39.0, 41.0, 700.0])
def test_a_constant_that_goes_in_is_the_one_that_comes_out(value: float) -> None:
    program = generators.chain(3)
    confidence = min(value, 0.999_999)
    constants = Constants(
        body=3.0, head=3.0, sharpness=value, confidence=confidence, gain=value, gate=1 + value
    )
    model = oracle(program, constants, dtype=torch.float64)
    assert model.sharpness.tolist() == pytest.approx([value] * 2, rel=1e-13)
    assert model.confidence.tolist() == pytest.approx([confidence] * 2, rel=1e-13)
    assert model.gain.tolist() == pytest.approx(value, rel=1e-13)
    assert model.gate.tolist() == pytest.approx(1 + value, rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bump_is_smooth_to_its_ends(dtype: torch.dtype) -> None:
    points = [-torch.inf, -1.0, -1e-30, 0.0, 1e-30, 1e-4, 2e-3, 0.05, 1.0, 1e4, 1e25, torch.inf]
    x = torch.tensor(points, dtype=dtype, requires_grad=True)
    y = bump(x)
    assert (y[:7] == 0).all()
    assert (y[-3:] == 1).logical_or(y[-3:] > 1 - 1e-7).all()
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert slope.isfinite().all()
    assert slope[8].item() == pytest.approx(2 / np.e, rel=1e-6)
    inside = torch.linspace(0.04, 3, 40, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(bump, inside)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_update_stays_in_its_interval(dtype: torch.dtype) -> None:
    wide = torch.promote_types(dtype, torch.float32)
    eps = torch.finfo(dtype).eps
    edges = torch.tensor([0, eps / 4, eps / 2, eps, 3 * eps, 0.5, 1 - eps, 1 - eps / 2, 1.0])
    rng = torch.Generator().manual_seed(0)
    states = torch.cat([edges, torch.rand(500, generator=rng)]).to(dtype)[:, None]
    shares = torch.cat([edges, 1e-30 * edges, torch.rand(500, generator=rng)]).to(wide)
    after = update(states.to(wide), shares).to(dtype)
    assert (after >= states).all()
    assert (after <= 1).all()
    assert (after[:, shares == 1] == 1).all()
    assert (after[:, shares == 0] == states).all()


# ------------------------------------------------------------------------ long bodies


@every_form
@every_gate
def test_a_body_of_ten_thousand_atoms(form: str, gate: str) -> None:
    k = 10_000
    names = [f"b{i}" for i in range(k)]
    program = Program.from_rules([("head", names), ("next", ["head"])])
    model = oracle(program, form=form, gate=gate, dtype=torch.float32)
    facts = np.ones((3, program.M), np.bool_)
    facts[:, [program.index["head"], program.index["next"]]] = False
    facts[1, program.index["b77"]] = False
    facts[2, program.index[f"b{k - 1}"]] = False
    head = program.index["head"]
    for steps in (1, 2, 500):
        after = model(model.state(facts), steps)
        assert (after[:, head] > 0.5).tolist() == [True, False, False]
    assert model.step(model.state(facts))[0, head] > 0.95


@pytest.mark.parametrize("form", FORMS)
def test_a_long_body_keeps_the_digits_of_what_is_missing(form: str) -> None:
    # The margin of a rule is a difference of two sums of 20,000: it must not round like them.
    k = 20_000
    names = [f"b{i}" for i in range(k)]
    program = Program.from_rules([("head", names)])
    missing = torch.linspace(0, 40, program.M, dtype=torch.float64).round() / 2**20
    state = 1 - missing  # exact in single precision too
    model = oracle(program, form=form, dtype=torch.float32)
    with torch.no_grad():
        numbers = model.step_parameters()
        found = model.rules.match(state.float(), numbers)
        atoms = torch.arange(program.M)
        each = model.rules.weight_at("body", numbers, torch.zeros_like(atoms), atoms)
        expected = (each * state).sum() - model.threshold.double()
    assert -0.5 < expected.item() < 0.5
    # Neighbouring numbers of that size are 2·10⁻³ apart in single precision.
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


# ------------------------------------------------------------------------ many atoms


@pytest.mark.slow
def test_a_million_atoms_in_single_precision() -> None:
    program = generators.random(1_000_000, 700_000, body=(1, 3), seed=0)
    # Constants whose background is as large as they come: M ε₀ is a fifth of the threshold.
    constants = Constants.scaled(program)
    rng = np.random.default_rng(0)
    facts = rng.random(program.M) < 0.6
    runs = []
    for dtype in (torch.float32, torch.float64):
        model = oracle(program, constants, dtype=dtype)
        with torch.no_grad():
            runs.append(model(model.state(facts), 3).double())
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=1e-5)
    assert 0.6 < (runs[1] > 0.5).double().mean() < 0.95


def test_totals_do_not_lose_what_is_small() -> None:
    # One true atom among two million: in single precision 2²¹ − 1 and 2²¹ are close neighbours.
    M = 1 << 21
    rules = SparseRules(
        SparseRules.literals_of(Program.from_arrays([0, 1], [0], [1], atoms=M)),
        M=M,
        body_logits=torch.tensor([0.0]),
        body_background=torch.tensor([0.0]),  # every atom weighs one half
        head_logits=torch.tensor([0.0]),
        head_background=torch.tensor([0.0]),
    )
    state = torch.full((M,), 0.1)
    one = torch.ones(1)
    threshold = torch.tensor([0.05 * M])
    numbers = StepParameters(*rules.read(), threshold, one, one, torch.zeros(M), one)
    expected = 0.5 * float(state.double().sum()) - 0.5 * M * 0.1
    margin = rules.match(state, numbers)
    assert margin.item() == pytest.approx(expected, abs=0.02)


# ------------------------------------------------------------------------ edges of the sparse form


def test_a_rule_that_routes_to_every_atom_has_no_background() -> None:
    program = Program.from_rules([(("a", "b"), ["a"]), ("b", ["a"])], atoms="ab")
    model = random_model(program)
    assert isinstance(model.rules, SparseRules)
    state = random_states(model, 3)
    before = model(state, 2)
    model.rules.head_background.data[0] = 1e4
    assert torch.equal(model(state, 2), before)
    model(state, 2).sum().backward()
    assert model.rules.head_background.grad is not None
    assert model.rules.head_background.grad[0] == 0
    assert model.rules.head_background.grad[1] != 0


def test_sparse_becomes_dense_without_loss() -> None:
    model = random_model(random_program(2))
    dense = model.rules.to_dense()
    assert isinstance(dense, DenseRules)
    assert dense.to_dense() is dense
    assert isinstance(model.rules, SparseRules)
    held = model.rules.literals()
    assert torch.equal(dense.body_logits[held.body_rule, held.body_atom], model.rules.body_logits)
    assert torch.equal(dense.head_logits[held.head_rule, held.head_atom], model.rules.head_logits)


def test_a_model_is_a_model_in_both_forms() -> None:
    program = generators.g2()
    sparse, dense = (oracle(program, form=form) for form in ("sparse", "dense"))
    for model in (sparse, dense):
        assert isinstance(model, LatentGamma)
    state = sparse.state(program.roots)
    torch.testing.assert_close(sparse(state, 40), dense(state, 40), rtol=0, atol=1e-5)
