"""The gradient: what is kept for it, how far it reaches, and along what."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import latentgamma as lg
from latentgamma import Constants, LatentGamma, Program, generators, oracle
from latentgamma.errors import FactsError, ModelError
from latentgamma.operator import run as running
from latentgamma.paper.gradients import gradient_report
from random_models import FORMS, GATES, random_model, random_states
from random_programs import random_program


@pytest.fixture(params=["states", "everything"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What runs in plain torch keep for their backward pass, however small or large they are."""
    keep(request.param, monkeypatch)
    return str(request.param)


def keep(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_KEPT_WHOLE", -1 if what == "states" else 1 << 60)


# ------------------------------------------------------------------------ what is kept


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("gradient", ["exact", "proof"])
@pytest.mark.parametrize("steps", [1, 2, 7, 10])
def test_steps_that_are_computed_again_give_the_same_gradients(
    form: str, gate: str, gradient: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(random_program(2), form=form, gate=gate, gradient=gradient, seed=2)
    state = random_states(model, 3, seed=2).requires_grad_()
    inputs = [state, *model.parameters()]
    runs = []
    for what in ("states", "everything"):
        keep(what, monkeypatch)
        after = model(state, steps)
        runs.append([after, *torch.autograd.grad(after.square().sum(), inputs)])
    for run in runs[:-1]:
        assert torch.equal(run[0], runs[-1][0])
        for found, expected in zip(run[1:], runs[-1][1:], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_a_trajectory_passes_on_what_reaches_any_of_its_states(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(random_program(4), form=form, seed=4)
    state = random_states(model, 2, seed=4).requires_grad_()
    weight = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None, None]
    weight[4:] = 0
    inputs = [state, *model.parameters()]
    found = []
    for what in ("states", "everything"):
        keep(what, monkeypatch)
        found.append(torch.autograd.grad((weight * model.iterate(state, 5).states).sum(), inputs))
    for kept, all_ in zip(*found, strict=True):
        torch.testing.assert_close(kept, all_, rtol=1e-12, atol=1e-14)


def test_parameters_that_do_not_want_a_gradient_get_none() -> None:
    model = random_model(random_program(4), seed=4).trainable("threshold")
    state = random_states(model, 2, seed=4)
    model(state, 3).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == ["threshold"]
    frozen = model.requires_grad_(False)
    assert not frozen(state, 3).requires_grad


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of every storage that operations make and that is still alive."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, tuple[weakref.ref[Any], int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._alive[storage._cdata] = (weakref.ref(storage), storage.nbytes())
        return out

    @property
    def total(self) -> int:
        gc.collect()
        return sum(size for alive, size in self._alive.values() if alive() is not None)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("batch", "times"), [(1, 1), (400, 2)])
def test_short_runs_of_small_programs_compute_no_step_twice(
    monkeypatch: pytest.MonkeyPatch, form: Any, batch: int, times: int
) -> None:
    model = lg.oracle(lg.generators.chain(11), form=form, kernel="reference")
    calls, matrix_states = [], running.matrix_states

    def count(*given: Any, **options: Any) -> Iterator[Tensor]:
        for state in matrix_states(*given, **options):
            calls.append(state)
            yield state

    monkeypatch.setattr(running, "matrix_states", count)
    model(torch.rand(batch, model.M), 8).sum().backward()
    assert len(calls) == 8 * times


def kept_bytes(program: Program, steps: int, batch: int) -> int:
    """How much a forward pass leaves behind for its backward pass."""
    model = oracle(program, Constants.paper(), form="sparse")
    model.kernel = "reference"
    state = model.state([[]] * batch).requires_grad_()
    with LiveBytes() as live:
        after = model(state, steps)
    assert after.requires_grad
    return live.total


@pytest.mark.slow
@pytest.mark.parametrize("body", [2, 40])
def test_memory_grows_with_states_and_not_with_literals(body: int, kept: str) -> None:
    batch = 8
    program = generators.random(128, 128, body=body, seed=1)
    state = 4 * program.M * batch  # bytes
    # What is read from the parameters before the first step is kept once.
    more = kept_bytes(program, 36, batch) - kept_bytes(program, 9, batch)
    if kept == "states":
        assert more == 27 * state
    else:  # it grows with the literals, so this count can fail
        literals = 4 * batch * len(program.body_indices)
        assert more > 27 * (state + literals)


def test_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(random_program(5), seed=5)
    state = random_states(model, 2, seed=5).requires_grad_()
    inputs = [state, *model.parameters()]
    runs = []
    for what in ("states", "everything"):
        keep(what, monkeypatch)
        (slope,) = torch.autograd.grad(model(state, 4).sum(), state, create_graph=True)
        runs.append(torch.autograd.grad(slope.square().sum(), inputs))
    for run in runs[:-1]:
        for found, expected in zip(run, runs[-1], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-14)


# ------------------------------------------------------------------------ along proofs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_proof_gradient_leaves_the_values_alone_to_the_last_bit(
    form: str, dtype: torch.dtype, kept: str
) -> None:
    program = random_program(7)
    exact = random_model(program, form=form, seed=7, dtype=dtype)
    proof = random_model(program, form=form, gradient="proof", seed=7, dtype=dtype)
    state = random_states(exact, 5, seed=7).requires_grad_()
    assert torch.equal(exact(state, 6), proof(state, 6))
    with torch.no_grad():
        assert torch.equal(exact(state, 6), proof(state, 6))


@pytest.mark.parametrize("constants", [Constants.paper(), None])
def test_it_reaches_the_facts_of_a_proof_five_hundred_steps_deep(
    constants: Constants | None,
) -> None:
    program = generators.chain(500, body=2)  # a(i+2) ⇐ a(i), a(i+1)
    model = oracle(program, constants, gradient="proof", form="sparse", dtype=torch.float64)
    state = model.state([0, 1]).requires_grad_()
    after = model(state, 520)
    assert after[-1] > 0.5
    (slope,) = torch.autograd.grad(after[-1], state)
    assert slope[:2].sum().item() == pytest.approx(1.0, abs=1e-9)
    assert not slope[2:].any()


def test_the_exact_one_is_what_finite_differences_say() -> None:
    program = generators.chain(500, body=2)
    model = oracle(program, Constants.paper(), form="sparse", dtype=torch.float64)
    state = model.state([0, 1]) * 0.97  # inside [0, 1], so that there are two sides
    leaf = state.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(leaf, 498)[-1], leaf)
    h = 1e-4
    moves = torch.zeros(4, 500, dtype=torch.float64)
    moves[0, 0], moves[1, 0], moves[2, 1], moves[3, 1] = h, -h, h, -h
    with torch.no_grad():
        ends = model(state + moves, 498)[:, -1]
    rises = (ends[0::2] - ends[1::2]) / (2 * h)
    assert slope[:2].tolist() == pytest.approx(rises.tolist(), rel=1e-4)
    assert 1e-7 < slope[0] < 1e-4  # all but nothing: that is why there is another gradient


def slope_of(model: LatentGamma, facts: Any, atom: str, steps: int) -> dict[str, float]:
    """Where the gradient of an atom arrives."""
    assert model.program is not None
    state = model.state(facts).double().requires_grad_()
    after = model(state, steps)[model.program.index[atom]]
    (slope,) = torch.autograd.grad(after, state)
    names = model.program.atoms
    return {names[i]: slope[i].item() for i in slope.nonzero().flatten().tolist()}


def min_max_steps(program: Program, state: Tensor, steps: int) -> Tensor:
    """T_P steps in min/max logic, from every atom's own value. (M,)."""
    values = state
    for _ in range(steps):
        rules = [
            torch.stack([*(values[b] for b in program.body_of(j)), state.new_tensor(1.0)]).amin()
            for j in range(program.R)
        ]
        values = torch.stack(
            [
                torch.stack(
                    [state[i], *(rules[j] for j in range(program.R) if i in program.heads_of(j))]
                ).amax()
                for i in range(program.M)
            ]
        )
    return values


class TestAlongProofs:
    def test_facts_that_no_rule_derives_come_first(self) -> None:
        model = oracle(lg.parse("b :- a."), gradient="proof")
        assert slope_of(model, ["a", "b"], "b", 5) == {"a": 1.0}
        assert slope_of(model, ["b"], "b", 5) == {"b": 1.0}

    def test_ties_share_it(self) -> None:
        model = oracle(lg.parse("d :- a, b, c. x :- a. x :- b."), gradient="proof")
        thirds = slope_of(model, ["a", "b", "c"], "d", 3)
        assert thirds == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
        assert slope_of(model, ["a", "b"], "x", 3) == pytest.approx({"a": 0.5, "b": 0.5})

    def test_the_weakest_atom_of_the_best_rule_gets_it(self) -> None:
        program = lg.parse("d :- a, b. d :- c.")
        model = oracle(program, gradient="proof", dtype=torch.float64)
        for values, winner in (
            ({"a": 1.0, "b": 0.9, "c": 0.1}, "b"),
            ({"a": 0.8, "b": 1.0, "c": 0.1}, "a"),
            ({"a": 1.0, "b": 0.2, "c": 0.7}, "c"),
        ):
            state = torch.tensor([values.get(name, 0.0) for name in program.atoms])
            state = state.double().requires_grad_()
            (slope,) = torch.autograd.grad(model(state, 1)[program.index["d"]], state)
            assert slope[program.index[winner]].item() == 1.0
            assert slope.sum().item() == 1.0

    def test_what_is_missing_gets_it_where_nothing_was_proved(self) -> None:
        model = oracle(lg.parse("d :- a, b."), gradient="proof", gate="bump")
        found = slope_of(model, ["a"], "d", 1)
        assert found["b"] > 0
        assert "a" not in found

    def test_an_empty_body_is_true_and_takes_it(self) -> None:
        model = oracle(lg.parse("b :- a. b."), gradient="proof")
        assert slope_of(model, [], "b", 1) == {}

    @pytest.mark.parametrize("seed", range(6))
    def test_what_arrives_at_the_facts_is_whole(self, seed: int) -> None:
        program = generators.random(20, 40, body=(1, 3), seed=seed)
        model = oracle(program, gradient="proof")
        known = lg.closure(program, program.atoms[:6])
        derived = sorted(known.atoms - set(program.atoms[:6]))
        assert derived
        for atom in derived:
            found = slope_of(model, program.atoms[:6], atom, known.depth)
            assert set(found) <= set(program.atoms[:6])
            assert sum(found.values()) == pytest.approx(1.0)

    @pytest.mark.quick_first
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("kernel", ["auto", "reference"])
    def test_it_is_the_slope_of_the_min_max_closure(self, form: str, kernel: str) -> None:
        for seed in range(10):
            program = random_program(seed)
            model = oracle(program, gradient="proof", form=form, kernel=kernel, dtype=torch.float64)
            rng = np.random.default_rng(seed)
            state = torch.from_numpy(rng.permutation(np.linspace(0.01, 0.99, program.M)))
            state.requires_grad_()
            closed = min_max_steps(program, state, program.M + 1)
            for steps in (1, 3, None):
                given = torch.from_numpy(rng.normal(size=program.M))
                (found,) = torch.autograd.grad(model(state, steps), state, given)
                (wanted,) = torch.autograd.grad(closed, state, given, retain_graph=True)
                torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
    def test_it_is_alive_where_training_starts(self, value: float) -> None:
        program = lg.parse("smoke :- haze, heat. fire :- smoke, flicker. alarm :- fire.")
        model = oracle(program, gradient="proof")
        facts = torch.full((3,), value, requires_grad=True)
        columns = torch.tensor([program.index[name] for name in ("haze", "heat", "flicker")])
        state = torch.zeros(program.M).index_copy(0, columns, facts)
        model(state, 3)[program.index["alarm"]].backward()
        assert facts.grad.tolist() == [0.25, 0.25, 0.5]

    def test_it_is_zero_only_where_no_proof_exists(self) -> None:
        model = oracle(lg.parse("b :- a. c :- d, e. d :- c."), gradient="proof")
        assert slope_of(model, [], "b", 3) == {"a": 1.0}
        assert sum(slope_of(model, [], "c", 3).values()) == 1.0
        assert slope_of(oracle(lg.parse("b."), gradient="proof").eval(), [], "b", 3) == {}

    def test_parameters_get_the_exact_derivative(self) -> None:
        program = random_program(3)
        exact = random_model(program, seed=3)
        proof = random_model(program, gradient="proof", seed=3)
        state = random_states(exact, 4, seed=3)
        for model in (exact, proof):
            model(state.clone().requires_grad_(), 4).sum().backward()
        for one, other in zip(exact.parameters(), proof.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]

    def test_it_can_be_chosen_later(self) -> None:
        model = oracle(generators.chain(30))
        model.gradient = "proof"
        assert slope_of(model, [0], "a29", 30) == {"a0": 1.0}


class TestLogOdds:
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("gate", GATES)
    @pytest.mark.parametrize("steps", [0, 1, 5])
    def test_they_are_the_logit_of_the_state_where_that_has_digits(
        self, form: str, gate: str, steps: int
    ) -> None:
        model = random_model(random_program(2), form=form, gate=gate, seed=2)
        state = random_states(model, 4, seed=2).clamp(0.01, 0.99).requires_grad_()
        after = model(state, steps)
        digits = (after > 1e-12) & (after < 1 - 1e-9)
        assert digits.any()
        odds = model(state, steps, logits=True)
        torch.testing.assert_close(odds[digits], torch.logit(after)[digits], rtol=1e-6, atol=1e-6)
        inputs = [state, *model.parameters()] if steps else [state]
        found = torch.autograd.grad(odds[digits].sum(), inputs, retain_graph=True)
        expected = torch.autograd.grad(torch.logit(after)[digits].sum(), inputs)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-8)

    def test_they_are_stable_where_the_state_is_next_to_nothing_or_one(self) -> None:
        program = lg.parse("smoke :- haze, heat. fire :- smoke, flicker. alarm :- fire.")
        alarm = program.index["alarm"]
        columns = torch.tensor([program.index[name] for name in ("haze", "heat", "flicker")])
        for dtype in (torch.float32, torch.float64):
            model = oracle(program, dtype=dtype)
            sharp = oracle(program, lg.Constants(body=12, head=40, sharpness=40, confidence=0.95,
                                                 gain=60, gate=5), dtype=dtype)  # fmt: skip
            for value in (0.3, 0.5, 0.9, 1.0, 0.0):
                facts = torch.full((3,), value, dtype=dtype, requires_grad=True)
                state = torch.zeros(program.M, dtype=dtype).index_copy(0, columns, facts)
                for one in (model, sharp):
                    odds = one(state, 3, logits=True)
                    assert odds.isfinite().all()
                    (slope,) = torch.autograd.grad(odds[alarm], facts, retain_graph=True)
                    assert slope.isfinite().all()
        tiny = sharp(state, 1)
        assert 0 <= tiny[alarm] < 1e-30
        assert sharp(state, 1, logits=True)[alarm] < -80

    def test_the_exact_gradient_is_of_order_one_where_training_starts(self) -> None:
        program = lg.parse("smoke :- haze, heat. fire :- smoke, flicker. alarm :- fire.")
        columns = torch.tensor([program.index[name] for name in ("haze", "heat", "flicker")])
        facts = torch.full((3,), 0.3, requires_grad=True)
        state = torch.zeros(program.M).index_copy(0, columns, facts)
        model = oracle(program)
        alarm = program.index["alarm"]
        assert model(state, 3)[alarm] < 1e-8
        (slope,) = torch.autograd.grad(model(state, 3, logits=True)[alarm], facts)
        assert slope.abs().max() > 0.1

    def test_along_proofs_they_have_the_slope_of_the_closure_of_log_odds(self) -> None:
        program = random_program(5)
        model = oracle(program, gradient="proof", dtype=torch.float64)
        x = torch.linspace(-2, 2, program.M, dtype=torch.float64).requires_grad_()
        odds = model(torch.sigmoid(x), 3, logits=True)
        exact = oracle(program, dtype=torch.float64)(torch.sigmoid(x), 3, logits=True)
        assert torch.equal(odds, exact)
        certain = lg.closure(program).state
        keep = torch.from_numpy(~certain)
        (found,) = torch.autograd.grad(odds[keep].sum(), x)
        (wanted,) = torch.autograd.grad(min_max_steps(program, x * 1e-3, 9)[keep].sum() * 1e3, x)
        torch.testing.assert_close(found, wanted)

    def test_a_number_of_steps_is_needed(self) -> None:
        model = oracle(generators.chain(3))
        with pytest.raises(ModelError, match="pass steps="):
            model(model.state([0]), logits=True)


def test_training_with_a_gradient_of_zero_warns_once() -> None:
    model = oracle(generators.chain(3, body=1))
    state = model.state([0]).requires_grad_()
    with pytest.warns(RuntimeWarning, match=r"identically zero.*model.gradient = .proof.") as seen:
        model(state, 200)[-1].backward()
    assert len(seen) == 1
    model(state, 200)[-1].backward()  # the second time in silence
    assert not state.grad.any()
    model.gradient = "proof"
    model(state, 200)[-1].backward()
    assert state.grad.any()
    evaluated = oracle(generators.chain(3, body=1)).eval()
    evaluated(state, 200)[-1].backward()


# ------------------------------------------------------------------------ the report


class TestReport:
    def test_a_deep_chain(self) -> None:
        report = gradient_report(oracle(generators.chain(200, body=2), Constants.paper()))
        assert report.facts == ("a0", "a1")
        depths = [row.depth for row in report.rows]
        assert depths == sorted(depths)  # type: ignore[type-var]
        assert depths[0] == 0
        assert depths[-1] == 198
        assert len(depths) <= 14
        for row in report.rows:
            assert row.steps == row.depth
            assert row.proof == pytest.approx(1.0)
        assert report.rows[0].exact == 1.0
        assert report.rows[1].exact > 1e-2
        assert report.rows[-1].exact < 1e-4

    def test_it_is_the_gradient(self) -> None:
        program = lg.parse("c :- a, b. d :- c. e :- d, a.")
        model = oracle(program, Constants.paper())
        report = gradient_report(model, ["a", "b"], steps=3, atoms=["e", "c"])
        for row, atom in zip(report.rows, ("e", "c"), strict=True):
            assert row.steps == 3
            assert row.depth == {"c": 1, "e": 3}[atom]
            for kind in ("exact", "proof"):
                model.gradient = kind  # type: ignore[assignment]
                found = slope_of(model, ["a", "b"], atom, 3)
                expected = sum(abs(found.get(name, 0.0)) for name in "ab")
                assert getattr(row, kind) == pytest.approx(expected, rel=1e-12)

    def test_it_leaves_the_model_alone(self) -> None:
        model = oracle(generators.chain(5), gradient="proof")
        gradient_report(model)
        assert model.gradient == "proof"
        assert all(p.grad is None for p in model.parameters())
        with torch.no_grad():
            assert gradient_report(model).rows[-1].proof == 1.0

    def test_a_table_and_plain_values(self) -> None:
        report = gradient_report(oracle(lg.parse("b :- a. c :- d."), Constants.paper()), ["a"])
        lines = str(report).splitlines()
        assert lines[0] == "gradient that reaches 2 facts (a, d; 1 not above one half)"
        assert lines[1].split() == ["atom", "depth", "steps", "value", "exact", "proof"]
        assert lines[3].split()[:3] == ["b", "1", "1"]
        plain = report.to_dict()
        assert plain["facts"] == ["a", "d"]
        assert plain["undecided"] == ["d"]
        assert plain["rows"][1]["atom"] == "b"
        underivable = gradient_report(oracle(lg.parse("b :- a.")), [], atoms="b").rows[0]
        assert underivable.depth is None
        assert underivable.exact < 1e-6
        assert underivable.proof == 1  # the fact that would have to rise

    @pytest.mark.parametrize("value", [0.3, 0.5, 0.7, 0.8, 0.9])
    def test_soft_states(self, value: float) -> None:
        program = lg.parse("smoke :- haze, heat. fire :- smoke, flicker. alarm :- fire.")
        facts = dict.fromkeys(["haze", "heat", "flicker"], value)
        report = gradient_report(oracle(program), facts, steps=3)
        assert set(report.facts) == set(facts)
        assert set(report.undecided) == (set(facts) if value <= 0.5 else set())
        assert [row.proof for row in report.rows] == [1.0] * len(report.rows)
        assert {row.atom for row in report.rows} >= {"smoke", "fire", "alarm"}
        states = oracle(program)(oracle(program).state(facts).double(), 3).detach()
        for row in report.rows:
            assert row.value == pytest.approx(float(states[program.index[row.atom]]))
            assert (row.depth is None) == (value <= 0.5)

    def test_a_program_that_starts_from_its_own_facts(self) -> None:
        report = gradient_report(oracle(lg.parse("a. b :- a.")))
        assert [row.atom for row in report.rows] == ["a", "b"]
        assert all(row.exact == row.proof == 0 for row in report.rows)  # there is nothing to reach

    def test_what_is_refused(self) -> None:
        with pytest.raises(FactsError, match=r"there are no roots; pass facts"):
            gradient_report(oracle(generators.clique(3)))
        with pytest.raises(FactsError, match=r"atoms name an atom .*'z'"):
            gradient_report(oracle(generators.chain(3)), atoms=["z"])
        with pytest.raises(FactsError, match="'z'"):
            gradient_report(oracle(generators.chain(3)), ["z"])
        model = random_model(random_program(0))
        model.program = None
        with pytest.raises(ModelError, match="no program to take depths from"):
            gradient_report(model)
