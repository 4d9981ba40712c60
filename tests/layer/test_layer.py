"""The layer behind a network: groups, meanings, training, and how it behaves as a module."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

import latentgamma as lg
from latentgamma.engine.execute import kernels_on
from latentgamma.engine.tensors import categorical_log_odds, log_odds
from latentgamma.errors import ArgumentError, FactsError, ModelError, StateError
from latentgamma.layer.semantics import Semantics
from random_programs import random_program

ALARM = """
smoke :- haze, heat.
fire  :- smoke, flicker.
alarm :- fire.
alarm :- button.
"""
FACTS = ["haze", "heat", "flicker", "button"]


def alarm_layer(**options: object) -> lg.Layer:
    return lg.Layer(lg.parse(ALARM), FACTS, "alarm", **options)


# ------------------------------------------------------------------------ groups


class TestGroups:
    def test_groups_of_any_shape(self) -> None:
        program = lg.parse(
            "goal(0) :- c(0,0), c(0,1). goal(1) :- c(1,0), c(1,1). any :- goal(0). any :- goal(1)."
        )
        cells = np.array([[f"c({i},{j})" for j in range(2)] for i in range(2)])
        layer = lg.Layer(
            program, {"cells": cells}, {"goals": ["goal(0)", "goal(1)"], "any": "any"}
        ).eval()
        p = torch.tensor([[[0.9, 0.8], [0.3, 0.7]], [[0.1, 0.2], [0.6, 0.55]]])
        out = layer({"cells": p})
        assert out["goals"].tolist() == torch.tensor([[0.8, 0.3], [0.1, 0.55]]).tolist()
        assert out["any"].tolist() == torch.tensor([0.8, 0.55]).tolist()
        assert layer(p)["any"].shape == (2,)

    def test_one_group_is_a_tensor_in_and_out(self) -> None:
        layer = alarm_layer().eval()
        assert layer(torch.tensor([[0.9, 0.8, 0.7, 0.1]])).tolist() == pytest.approx([0.7])
        named = lg.Layer(lg.parse(ALARM), {"sensors": FACTS}, {"alarm": ["alarm"]}).eval()
        assert named(torch.zeros(3, 4)).shape == (3, 1)
        assert named({"sensors": torch.zeros(3, 4)})["alarm"].shape == (3, 1)

    def test_names_may_have_spaces_after_commas(self) -> None:
        layer = lg.Layer(lg.parse("b :- edge(x,y)."), "edge(x, y)", "b").eval()
        assert layer(torch.tensor([0.75])).item() == 0.75

    def test_what_is_not_fed_is_false_or_a_given_constant(self) -> None:
        program = lg.parse("c :- a, b.")
        x = torch.tensor([0.9])
        assert lg.Layer(program, "a", "c").eval()(x).item() == 0.0
        assert lg.Layer(program, "a", "c", facts="b").eval()(x).item() == x.item()
        soft = lg.Layer(program, "a", "c", facts={"b": 0.25})
        assert soft.eval()(x).item() == 0.25
        assert soft.train()(x, logits=True).item() < float(torch.logit(torch.tensor(0.25)))
        logits = lg.Layer(program, "a", "c", facts={"b": 0.25}, from_logits=True).eval()
        assert logits(torch.tensor([3.0])).item() == pytest.approx(0.25)

    def test_categorical_inputs_and_outputs(self) -> None:
        rules = "\n".join(
            f"sum({a + b}) :- left({a}), right({b})." for a in range(3) for b in range(3)
        )
        layer = lg.Layer(
            lg.parse(rules),
            {
                side: lg.Categorical([f"{side}({d})" for d in range(3)])
                for side in ("left", "right")
            },
            {"sum": lg.Categorical([f"sum({s})" for s in range(5)])},
            from_logits=True,
        )
        scores = {"left": torch.tensor([[9.0, 0, 0]]), "right": torch.tensor([[0, 0, 9.0]])}
        out = layer(scores, logits=True)["sum"]
        assert out.exp().sum().item() == pytest.approx(1.0)
        assert out.argmax().item() == 2
        values = lg.Layer(
            layer.program,
            {k: lg.Categorical([f"{k}({d})" for d in range(3)]) for k in scores},
            {"sum": [f"sum({s})" for s in range(5)]},
        ).eval()
        p = {k: torch.softmax(v, -1) for k, v in scores.items()}
        assert values(p)["sum"].argmax().item() == 2


# ------------------------------------------------------------------------ what a soft fact means


@pytest.mark.parametrize("from_logits", [False, True])
def test_godel_thresholds_to_the_closure_of_the_thresholded_facts_on_every_input(
    from_logits: bool,
) -> None:
    for seed in range(25):
        program = random_program(seed, 6, 9, body=3)
        rng = np.random.default_rng(seed)
        fed = sorted(rng.choice(6, 4, replace=False).tolist())
        layer = lg.Layer(program, [program.atoms[i] for i in fed], list(program.atoms),
                         from_logits=from_logits).eval()  # fmt: skip
        masks = np.zeros((16, 6), bool)
        masks[:, fed] = list(itertools.product([False, True], repeat=4))
        x = rng.uniform(0, 0.5, (16, 4)) * np.where(masks[:, fed], -1, 1)
        x = np.where(masks[:, fed], 1 - rng.uniform(0, 0.4999, (16, 4)), np.abs(x))
        given = torch.from_numpy(x)
        out = layer(torch.logit(given) if from_logits else given)
        assert np.array_equal((out > 0.5).numpy(), lg.closures(program, masks))
        odds = layer(torch.logit(given) if from_logits else given, logits=True)
        assert np.array_equal((odds > 0).numpy(), lg.closures(program, masks))


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 2**31))
def test_it_does_so_for_any_values(seed: int) -> None:
    program = random_program(seed, 8, 12, body=3)
    rng = np.random.default_rng(seed)
    beside = [0.0, np.nextafter(0.5, 0), 0.5, np.nextafter(0.5, 1), 1.0]
    values = np.where(rng.random(8) < 0.5, rng.choice(beside, 8), rng.random(8))
    layer = lg.Layer(program, list(program.atoms), list(program.atoms)).eval()
    out = layer(torch.from_numpy(values)[None])[0]
    assert np.array_equal((out > 0.5).numpy(), lg.closure(program, values > 0.5).state)


GATES = ("sigmoid", "bump")


def edges(delta: float) -> list[float]:
    """Values that a layer with this tolerance has to take for false, then for true."""
    return [0.0, 0.5 - delta, 0.5 + delta, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
def test_gamma_thresholds_to_the_closure_outside_the_tolerance(gate: str, delta: float) -> None:
    for seed in range(4):
        program = random_program(seed, 6, 9, body=3)
        fed = sorted(np.random.default_rng(seed).choice(6, 4, replace=False).tolist())
        layer = lg.Layer(program, [program.atoms[i] for i in fed], list(program.atoms),
                         semantics="gamma", tolerance=delta, gate=gate).eval()  # fmt: skip
        assert layer.certificate.holds
        x = np.array(list(itertools.product(edges(delta), repeat=4)))
        masks = np.zeros((len(x), 6), bool)
        masks[:, fed] = x > 0.5
        out = layer(torch.from_numpy(x).float())
        assert np.array_equal((out > 0.5).numpy(), lg.closures(program, masks))
        odds = layer(torch.from_numpy(x).float(), logits=True)
        assert np.array_equal((odds > 0).numpy(), lg.closures(program, masks))


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
def test_its_tolerance_does_not_depend_on_the_length_of_bodies(gate: str) -> None:
    # The inputs that are worst: every body atom but one just true, and that one just false.
    for k in (2, 16, 64):
        names = [f"b{i}" for i in range(k)]
        layer = lg.Layer(lg.parse(f"h :- {', '.join(names)}."), names, "h",
                         semantics="gamma", tolerance=0.02, gate=gate).eval()  # fmt: skip
        x = torch.full((k + 1, k), 0.52)
        x[range(k), range(k)] = 0.48
        others = x.clone()
        others[x > 0.5] = 1.0
        assert (layer(x) > 0.5).tolist() == [False] * k + [True]
        assert (layer(others) > 0.5).tolist() == [False] * k + [True]


@pytest.mark.slow
def test_a_certified_layer_gives_the_same_answers() -> None:
    rng = np.random.default_rng(0)
    for from_logits in (False, True):
        layer = lg.Layer(lg.parse(ALARM + "x :- alarm, y."),
                         {"seen": FACTS[:3], "pressed": [FACTS[3]]},
                         {"alarm": "alarm", "x": ["x", "fire"]}, facts={"y": 0.9},
                         from_logits=from_logits).eval()  # fmt: skip
        certified = layer.certified()
        assert certified.semantics == "gamma"
        assert certified.certificate.holds
        x = torch.from_numpy(rng.random((400, 4))).float()
        x = x[((x - 0.5).abs() > 0.05).all(1)]
        x = torch.logit(x) if from_logits else x
        one, other = (part({"seen": x[:, :3], "pressed": x[:, 3:]}) for part in (layer, certified))
        for name in one:
            assert torch.equal(one[name] > 0.5, other[name] > 0.5)
        assert "proved for all inputs outside (0.45, 0.55)" in str(certified.plan())


def test_a_gamma_layer_is_softer_while_it_is_trained() -> None:
    program = lg.parse(ALARM)
    layer = lg.Layer(program, FACTS, "alarm", semantics="gamma", from_logits=True)
    annealing = lg.Annealing(layer, steps=4, end=0.0)
    x = torch.full((1, 4), 0.5, requires_grad=True)
    values = []
    for _ in range(5):
        (slope,) = torch.autograd.grad(layer(x, logits=True).sum(), x)
        assert slope.isfinite().all()
        values.append(layer(x).item())
        annealing.step()
    assert layer.temperature == 0
    assert 0.5 < values[0] < values[-1]
    assert layer(x).item() == layer.eval()(x).item()
    fresh = lg.Layer(program, FACTS, "alarm", semantics="gamma", from_logits=True)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer.train()(x))


@pytest.mark.parametrize("gate", GATES)
def test_annealing_a_gamma_layer_goes_from_soft_to_certified_parameters(
    gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lg.parse(ALARM)
    layer = lg.Layer(program, FACTS, "alarm", semantics="gamma", gate=gate)
    soft = lg.oracle(program, lg.Constants.closed_form(program, 0.2), form="sparse", gate=gate)
    certified = lg.oracle(program, form="sparse", gate=gate)  # constants for this gate

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("annealing builds no new operator")

    monkeypatch.setattr("latentgamma.layer.semantics.oracle", refuse)
    for temperature, expected in ((1.0, soft), (2.0, soft), (0.0, certified)):
        layer.temperature = temperature
        for mine, other in zip(
            layer.rules.annealed.parameters(), expected.parameters(), strict=True
        ):
            assert torch.equal(mine, other)
    for mine, other in zip(layer.rules.model.parameters(), certified.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_certificate_is_for_the_dtype_that_the_layer_runs_in(dtype: torch.dtype) -> None:
    for seed in range(4):
        program = random_program(seed, 6, 9, body=3)
        layer = lg.Layer(program, list(program.atoms), list(program.atoms)).certified().to(dtype)
        assert layer.certificate.holds
        assert layer.certificate.dtype == str(dtype).removeprefix("torch.")
        x = np.array(list(itertools.product(edges(0.05)[1:3], repeat=6)))
        for wide in (torch.float64, torch.float32):
            out = layer(torch.from_numpy(x).to(wide))
            assert out.dtype == wide
            assert np.array_equal((out > 0.5).numpy(), lg.closures(program, x > 0.5))
        coarse = np.where(x > 0.5, 0.625, 0.375)  # outside the band in every dtype
        for narrow in (torch.bfloat16, torch.float16):
            out = layer(torch.from_numpy(coarse).to(narrow))
            assert np.array_equal((out > 0.5).numpy(), lg.closures(program, coarse > 0.5))


@pytest.mark.slow
def test_a_certificate_is_for_the_parameters_of_now() -> None:
    program = lg.parse("c :- a, b. a :- d.")
    layer = lg.Layer(program, list(program.atoms), list(program.atoms)).certified()
    exact = copy.deepcopy(layer.state_dict())
    x = np.array(list(itertools.product(edges(0.05)[1:3], repeat=4)))
    closed = lg.closures(program, x > 0.5)
    shown = []
    for seed, scale in enumerate([0.1, 0.3, 1.0, 3.0, 10.0]):
        layer.load_state_dict(exact)
        before = layer.certificate
        assert before.holds
        rng = np.random.default_rng(seed)
        for parameter in layer.rules.model.parameters():
            parameter.data += scale * torch.from_numpy(rng.normal(size=parameter.shape)).float()
        try:
            holds = layer.certificate.holds
        except lg.errors.CertificateError:
            holds = False
        assert layer.plan().exact == holds
        if holds:
            assert layer.certificate != before
            out = layer(torch.from_numpy(x).float())
            assert np.array_equal((out > 0.5).numpy(), closed)
        shown.append(holds)
    assert shown[0]
    assert not shown[-1]


@pytest.mark.slow
def test_what_has_no_certified_form() -> None:
    program = lg.parse("alarm :- a, b.")
    layer = lg.Layer(program, ["a", "b"], "alarm", semantics="probability", evidence={"a": True})
    with pytest.raises(ModelError, match=r"'probability' .* has no certified form"):
        layer.certified()
    soft = lg.Layer(program, "a", "alarm", facts={"b": 0.52})
    with pytest.raises(ModelError, match=r"'b' is given as 0.52, which is neither true nor false"):
        soft.certified()
    assert soft.certified(tolerance=0.02).certificate.holds
    plain = lg.Layer(program, ["a", "b"], "alarm", kernel="reference").certified()
    assert plain.rules.model.kernel == "reference"


def test_an_input_that_rules_derive_is_the_better_of_the_two() -> None:
    layer = lg.Layer(lg.parse("b :- a."), ["a", "b"], "b").eval()
    x = torch.tensor([[0.25, 0.75], [0.75, 0.25]])
    assert layer(x).tolist() == [0.75, 0.75]
    assert layer.plan().also_derived == ("b",)
    assert "the better of the two counts: b" in str(layer.plan())


def test_an_input_that_rules_derive_is_more_probable_than_either() -> None:
    layer = lg.Layer(lg.parse("b :- a."), ["a", "b"], "b", semantics="probability").eval()
    assert layer(torch.tensor([[0.5, 0.5]])).tolist() == [0.75]
    assert "its own value is one more way to be true: b" in str(layer.plan())


def test_a_new_semantics_has_no_certified_form_unless_it_says_so() -> None:
    layer = lg.Layer(lg.parse("b :- a."), "a", "b")
    layer.rules = Semantics()
    with pytest.raises(ModelError, match="no certified form"):
        layer.certified()


def test_every_fact_gets_a_gradient_where_training_starts() -> None:
    # The program of the alarm without the button; all facts at one value.
    program = lg.parse(ALARM.replace("alarm :- button.", ""))
    for value in (0.3, 0.5, 0.7, 0.8, 0.9):
        layer = lg.Layer(program, FACTS[:3], "alarm")
        x = torch.full((1, 3), value, requires_grad=True)
        layer(x).backward()
        assert (x.grad > 0.05).all()
        x.grad = None
        layer.eval()(x).backward()
        assert x.grad.tolist() == [[0.25, 0.25, 0.5]]


def test_a_clamped_fact_still_gets_a_gradient() -> None:
    x = torch.tensor([[0.0, 1.0]], requires_grad=True)
    layer = lg.Layer(lg.parse("c :- a. d :- b."), ["a", "b"], ["c", "d"])
    layer(x).sum().backward()
    assert x.grad.tolist() == [pytest.approx([1.0, 1.0], rel=1e-3)]
    scores = torch.tensor([[float("inf"), -float("inf")]], requires_grad=True)
    given_logits = lg.Layer(lg.parse("c :- a. d :- b."), ["a", "b"], ["c", "d"], from_logits=True)
    given_logits(scores, logits=True).sum().backward()
    assert scores.grad.tolist() == [[1.0, 1.0]]
    assert given_logits(scores).tolist() == [[1.0, 0.0]]
    assert given_logits.eval()(torch.tensor([[1e30, -1e30]])).tolist() == [[1.0, 0.0]]


def test_log_odds_of_a_gamma_layer_have_a_slope_at_saturated_facts() -> None:
    program = lg.parse(
        "x4 :- x1. x4 :- x0. x1 :- x5. x2 :- x2, x5. x4 :- x4, x1. x1 :- x4. x0 :- x5, x2, x1."
    )
    for from_logits, end in ((False, 1.0), (True, torch.inf)):
        layer = lg.Layer(
            program, ["x2", "x0", "x1", "x5"], ["x1", "x0"], semantics="gamma",
            from_logits=from_logits,
        )  # fmt: skip
        found = []
        for dtype in (torch.float32, torch.float64):  # of the operator
            x = torch.tensor([[0.5, 0.5508, end, 0.7578]], dtype=torch.float64, requires_grad=True)
            out = layer.to(dtype)(x, logits=True)
            (slope,) = torch.autograd.grad(out.square().sum(), x)
            assert slope[0, 2] > 1
            found += [out, slope]
        torch.testing.assert_close(found[:2], found[2:], rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_log_odds_of_certain_facts_are_finite_in_16_bits(dtype: torch.dtype) -> None:
    layer = lg.Layer(lg.parse("c :- a, b."), ["a", "b"], "c").eval()
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.25, 1.0]], dtype=dtype, requires_grad=True)
    out = layer(x, logits=True)
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert out.isfinite().all()
    assert slope.isfinite().all()
    assert out[2].item() == torch.tensor(1 / 3, dtype=torch.float64).log().to(dtype).item()


def test_the_slope_at_infinite_log_odds_is_the_same_compiled() -> None:
    layer = lg.Layer(lg.parse("c :- a. d :- b."), ["a", "b"], ["c", "d"], from_logits=True)
    x = torch.tensor([[torch.inf, -torch.inf]], requires_grad=True)
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        (slope,) = torch.autograd.grad(run(x, logits=True).sum(), x)
        assert slope.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("semantics", ["godel", "probability"])
def test_infinite_scores_of_a_softmax(semantics: str) -> None:
    atoms = lg.Categorical(["a", "b", "c"])
    layer = lg.Layer(
        lg.parse("d :- a. e :- b. f :- c."),
        atoms,
        list("def"),
        from_logits=True,
        semantics=semantics,
    ).eval()
    inf = float("inf")
    scores = torch.tensor([[-inf, 0.0, 0.0], [inf, 0.0, 1.0], [-inf, -inf, 0.0]]).double()
    scores.requires_grad_()
    expected = torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double()
    torch.testing.assert_close(layer(scores), expected)
    layer(scores, logits=True).sum().backward()
    assert scores.grad.isfinite().all()
    with pytest.raises(lg.errors.StateError, match="all −∞"):
        layer(torch.full((1, 3), -inf))


def test_log_odds_of_a_softmax() -> None:
    z = torch.randn(50, 7, dtype=torch.float64) * 3
    p = torch.softmax(z, -1)
    torch.testing.assert_close(categorical_log_odds(z), torch.log(p / (1 - p)))
    torch.autograd.gradcheck(categorical_log_odds, z[:5].clone().requires_grad_())
    sure = torch.tensor([[60.0, 0.0, -3.0]], requires_grad=True)
    out = categorical_log_odds(sure)
    assert out[0, 0].item() == pytest.approx(60 - np.log(1 + np.exp(-3.0)), rel=1e-6)
    out.sum().backward()
    assert sure.grad.isfinite().all()
    tie = torch.zeros(1, 2, requires_grad=True)
    assert categorical_log_odds(tie).tolist() == [[0.0, 0.0]]
    assert log_odds(torch.tensor([0.0, 1.0])).isfinite().all()


def test_training_with_a_gradient_of_zero_warns_once() -> None:
    layer = lg.Layer(lg.parse("c :- a. d."), ["a"], ["d", "c"])
    x = torch.rand(3, 1, requires_grad=True)
    with pytest.warns(RuntimeWarning, match=r"identically zero.*layer.plan") as seen:
        layer(x)[:, 0].sum().backward()
    assert len(seen) == 1
    layer(x)[:, 0].sum().backward()  # the second time in silence
    fresh = lg.Layer(layer.program, ["a"], ["d", "c"])
    (fresh(x) * 0).sum().backward()  # nothing arrived, so nothing is missing
    fresh(x).sum().backward()


# ------------------------------------------------------------------------ temperature


class TestTemperature:
    def test_it_falls_and_stays(self) -> None:
        layer = alarm_layer()
        annealing = lg.Annealing(
            nn.Sequential(nn.Linear(2, 4), layer), steps=10, start=2.0, end=0.02
        )
        seen = [layer.temperature]
        for _ in range(12):
            annealing.step()
            seen.append(layer.temperature)
        assert seen[0] == 2.0
        assert seen[5] == pytest.approx(0.2)
        assert seen[10:] == pytest.approx([0.02] * 3)

    def test_it_can_end_hard(self) -> None:
        layer = alarm_layer()
        annealing = lg.Annealing(layer, steps=3, end=0.0)
        x = torch.tensor([[0.9, 0.8, 0.7, 0.1]])
        assert layer(x).item() != layer.eval()(x).item()
        layer.train()
        for _ in range(3):
            annealing.step()
        assert layer.temperature == 0.0
        assert layer(x).item() == layer.eval()(x).item()

    def test_it_goes_on_where_it_was(self) -> None:
        one, two = alarm_layer(), alarm_layer()
        first = lg.Annealing(one, steps=10)
        for _ in range(4):
            first.step()
        second = lg.Annealing(two, steps=99, start=3.0, end=0.5)
        second.load_state_dict(first.state_dict())
        assert two.temperature == one.temperature
        fresh = alarm_layer()
        fresh.load_state_dict(one.state_dict())
        assert fresh.temperature == one.temperature
        one.temperature = 0.0
        fresh.load_state_dict(one.state_dict())
        assert fresh(torch.full((1, 4), 0.5)).item() == 0.5

    def test_what_is_refused(self) -> None:
        with pytest.raises(ModelError, match="no Layer in this Linear"):
            lg.Annealing(nn.Linear(2, 2), steps=3)
        for options in (
            {"steps": 0},
            {"steps": 3, "start": 0.1, "end": 0.2},
            {"steps": 2, "end": -1.0},
        ):
            with pytest.raises(ArgumentError):
                lg.Annealing(alarm_layer(), **options)
        for value in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ArgumentError, match="temperature must be a number from 0 on"):
                alarm_layer(temperature=value)


# ------------------------------------------------------------------------ bad input


class TestBadInput:
    def test_examples_that_are_no_dense_tensors(self) -> None:
        layer = lg.Layer(lg.parse("b :- a, c."), ["a", "c"], "b", semantics="probability")
        for call in (layer.explain, lambda example: layer.proofs(example, "b")):
            for example in ([0.1, 0.2], {"": "x"}, None):
                with pytest.raises(lg.errors.StateError, match="are a tensor"):
                    call(example)
        with pytest.raises(lg.errors.StateError, match="a dense tensor"):
            layer(torch.zeros(1, 2).to_sparse())
        with pytest.raises(lg.errors.StateError, match="floating-point numbers"):
            layer(torch.zeros(1, 2).to(torch.float8_e4m3fn))
        for option in ({"most": "x"}, {"most": -1}, {"budget": 1.5}):
            with pytest.raises(lg.errors.ArgumentError, match=next(iter(option))):
                layer.proofs(torch.zeros(2), "b", **option)

    def test_options_of_another_kind(self) -> None:
        program = lg.parse("b :- a.")

        def layer(given: Any = program, **options: Any) -> lg.Layer:
            return lg.Layer(given, "a", "b", **options)

        with pytest.raises(lg.errors.ProgramError, match="takes a Program, not str"):
            layer("b :- a.")
        for temperature in ("warm", None):
            with pytest.raises(lg.errors.ArgumentError, match="temperature must be a number"):
                layer(temperature=temperature)
        for evidence in (["b"], "b"):
            with pytest.raises(lg.errors.ModelError, match="evidence is a dictionary"):
                layer(semantics="probability", evidence=evidence)
        for value in ("no", 0.3, None):
            with pytest.raises(lg.errors.ModelError, match="True or False"):
                layer(semantics="probability", evidence={"b": value})
        with pytest.raises(FactsError, match="evidence names an atom this program does not have"):
            layer(semantics="probability", evidence={"z": True})
        with pytest.raises(lg.errors.ModelError, match="both True and False of 'b'"):
            layer(semantics="probability", evidence={"b": True, 0: False})
        with pytest.raises(lg.errors.ArgumentError, match="inference must be an Inference"):
            layer(semantics="probability", inference="sample")
        for options in ({"error": "x"}, {"seed": 1.5}, {"seed": "x"}, {"budget": True}):
            with pytest.raises(lg.errors.ArgumentError, match=next(iter(options))):
                lg.Inference(**options)

    def test_groups(self) -> None:
        program = lg.parse(ALARM)
        with pytest.raises(
            FactsError, match=r"inputs name 2 atoms .*'hase' \(did you mean 'haze'\?\)"
        ):
            lg.Layer(program, ["hase", "heatt"], "alarm")
        with pytest.raises(FactsError, match="outputs name an atom"):
            lg.Layer(program, FACTS, "alarmm")
        with pytest.raises(ModelError, match="'haze' is in 'b' and in 'a'; an atom is fed once"):
            lg.Layer(program, {"a": ["haze"], "b": ["heat", "haze"]}, "alarm")
        with pytest.raises(ModelError, match="'haze' is in the layer twice"):
            lg.Layer(program, ["haze", "haze"], "alarm")
        with pytest.raises(ModelError, match="'haze' is in the layer and in facts"):
            lg.Layer(program, FACTS, "alarm", facts="haze")
        with pytest.raises(ModelError, match="array of names of atoms, not 3"):
            lg.Layer(program, 3, "alarm")
        with pytest.raises(ModelError, match="all rows have one length"):
            lg.Layer(program, [["haze"], ["heat", "flicker"]], "alarm")
        with pytest.raises(ModelError, match="inputs has no atoms"):
            lg.Layer(program, [], "alarm")
        with pytest.raises(ModelError, match="inputs needs at least one group"):
            lg.Layer(program, {}, "alarm")
        with pytest.raises(ModelError, match="the name of a group is a string"):
            lg.Layer(program, {1: FACTS}, "alarm")
        with pytest.raises(ModelError, match="at least two atoms"):
            lg.Categorical(["haze"])
        with pytest.raises(ArgumentError, match="semantics must be one of"):
            lg.Layer(program, FACTS, "alarm", semantics="fuzzy")
        with pytest.raises(ArgumentError, match="kernel must be one of"):
            lg.Layer(program, FACTS, "alarm", kernel="fast")
        with pytest.raises(FactsError):
            lg.Layer(program, FACTS, "alarm", facts={"fire": 2.0})
        with pytest.raises(ArgumentError, match='tolerance is for semantics="gamma"'):
            lg.Layer(program, FACTS, "alarm", tolerance=0.1)
        with pytest.raises(ArgumentError, match=r"tolerance must be a number between 0 and 0\.5"):
            lg.Layer(program, FACTS, "alarm", semantics="gamma", tolerance=0.5)
        with pytest.raises(ArgumentError, match="gate must be one of"):
            lg.Layer(program, FACTS, "alarm", semantics="gamma", gate="step")
        with pytest.raises(ModelError, match="has no certificate"):
            lg.Layer(program, FACTS, "alarm").certificate  # noqa: B018

    def test_tensors(self) -> None:
        layer = alarm_layer()
        with pytest.raises(StateError, match=r"have the shape \(B, 4\), .* but these have \(4,\)"):
            layer(torch.zeros(4))
        with pytest.raises(StateError, match=r"but these have \(2, 3\)"):
            layer(torch.zeros(2, 3))
        with pytest.raises(StateError, match=r"lie in \[0, 1\], but these reach from -0.5 to 1.5"):
            layer(torch.tensor([[-0.5, 0.2, 0.3, 1.5]]))
        for logits in (False, True):
            with pytest.raises(StateError, match="have a NaN among them"):
                alarm_layer(from_logits=logits)(torch.tensor([[0.5, float("nan"), 0.3, 0.5]]))
        with pytest.raises(
            StateError, match=r"floating-point numbers, not torch.int64; use tensor.float"
        ):
            alarm_layer(from_logits=True)(torch.zeros(2, 4, dtype=torch.int64))
        with pytest.raises(StateError, match="a tensor of shape"):
            layer([[0.1, 0.2, 0.3, 0.4]])
        with pytest.raises(StateError, match="are on meta, but the layer on cpu"):
            layer(torch.zeros(2, 4, device="meta"))
        two = lg.Layer(lg.parse(ALARM), {"seen": FACTS[:3], "pressed": FACTS[3]}, "alarm")
        with pytest.raises(
            StateError, match="this layer has 2 groups of inputs; pass a dictionary"
        ):
            two(torch.zeros(2, 3))
        with pytest.raises(StateError, match=r"no group of inputs 'sen' \(did you mean 'seen'\?\)"):
            two({"sen": torch.zeros(2, 3)})
        with pytest.raises(StateError, match="the inputs of 'pressed' are missing"):
            two({"seen": torch.zeros(2, 3)})
        with pytest.raises(StateError, match="have 3 examples, those of 'seen' 2"):
            two({"seen": torch.zeros(2, 3), "pressed": torch.zeros(3)})
        die = lg.Layer(lg.parse("c :- a. d :- b."), lg.Categorical(["a", "b"]), "c")
        with pytest.raises(
            StateError,
            match=r"sum to one along the last axis to within 0.0001, but some miss it by 0.5",
        ):
            die(torch.tensor([[0.9, 0.6]]))


# ------------------------------------------------------------------------ as a module


class TestAsAModule:
    def test_in_a_sequence_with_an_optimiser(self) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), alarm_layer())
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        x = torch.randn(32, 4)
        losses = []
        for _ in range(30):
            loss = nn.functional.binary_cross_entropy(model(x), (x.sum(1) > 0).float())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]

    def test_copies_and_pickles(self) -> None:
        x = torch.rand(5, 4)
        for layer in (alarm_layer(), alarm_layer(temperature=0.0), alarm_layer().eval()):
            expected = layer(x)
            for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                assert torch.equal(twin(x), expected)
                assert twin.temperature == layer.temperature

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        x = torch.rand(5, 4).to(dtype).requires_grad_()
        for mode in (True, False):
            out = alarm_layer().train(mode)(x)
            assert out.dtype == dtype
            out.sum().backward()
            assert x.grad.dtype == dtype

    @pytest.mark.quick_first
    @pytest.mark.parametrize("semantics", ["godel", "gamma", "probability"])
    def test_fewer_bits_do_not_round_soft_facts_or_the_temperature(self, semantics: str) -> None:
        layer = lg.Layer(lg.parse("c :- a, b."), "a", "c", facts={"b": 0.3}, temperature=0.1,
                         semantics=semantics)  # fmt: skip
        x = torch.rand(5)
        expected, temperature = layer.eval()(x), layer.temperature
        whole = nn.Sequential(layer)
        for convert in (nn.Module.half, nn.Module.bfloat16, nn.Module.float, nn.Module.double):
            convert(whole)
            assert layer.temperature == temperature
            if semantics != "gamma":
                assert torch.equal(layer(x), expected)
        assert layer._constants.tolist() == [0.3]

    @pytest.mark.slow
    @pytest.mark.parametrize("semantics", ["godel", "gamma", "probability"])
    def test_the_values_of_another_program_are_refused(self, semantics: str) -> None:
        def make(text: str) -> lg.Layer:
            return lg.Layer(lg.parse(text), "a", "c", semantics=semantics)

        layer = make("c :- a, b.")
        layer.load_state_dict(make("c :- a, b.").state_dict())
        for other in ("c :- b, a.", "c :- a. c :- b.", "c :- a."):
            before = copy.deepcopy(layer.state_dict())
            state = make(other).state_dict()
            with pytest.raises(ModelError, match="belong to another program"):
                layer.load_state_dict(state)
            assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())
        start = "c :- a, not b. d :- a."
        signed = [
            lg.Layer(lg.parse(f"{start} {rule}"), ["a", "b"], "c", semantics="probability")
            for rule in ("e :- not d.", "e :- d.")
        ]
        signed[0].load_state_dict(signed[0].state_dict())
        with pytest.raises(ModelError, match="belong to another program"):
            signed[1].load_state_dict(signed[0].state_dict())

    def test_an_empty_batch(self) -> None:
        assert alarm_layer()(torch.zeros(0, 4)).shape == (0,)

    def test_examples_do_not_change_each_other(self) -> None:
        program = lg.parse(
            "r(1) :- r(0), f(1). r(0) :- r(1), f(0). r(2) :- r(1), f(2). r(1) :- r(2), f(1). r(0) :- s."
        )
        layer = lg.Layer(program, ["s", "f(0)", "f(1)", "f(2)"], ["r(0)", "r(1)", "r(2)"])
        x = torch.rand(50, 4)
        for mode in (True, False):
            together = layer.train(mode)(x)
            alone = torch.cat([layer(row[None]) for row in x])
            # The logarithms of torch differ in the last digit between long and short tensors.
            torch.testing.assert_close(together, alone, rtol=1e-6 if mode else 0, atol=0)

    @pytest.mark.quick_first
    @pytest.mark.parametrize("mode", [True, False])
    def test_it_compiles_as_one_graph(self, mode: bool) -> None:
        layer = alarm_layer().train(mode)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        x = torch.rand(6, 4, requires_grad=True)
        for temperature in (1.0, 0.5, 0.25):
            layer.temperature = temperature
            for logits in (False, True):
                out = compiled(x, logits=logits)
                expected = layer(x, logits=logits)
                torch.testing.assert_close(out, expected)
                one = torch.autograd.grad(out.sum(), x)[0]
                torch.testing.assert_close(one, torch.autograd.grad(expected.sum(), x)[0])

    @pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
    def test_transforms_of_torch_func(self) -> None:
        layer = alarm_layer()
        x = torch.rand(3, 4, dtype=torch.float64)

        def one(row: torch.Tensor) -> torch.Tensor:
            return layer(row[None], logits=True)[0]

        by_vmap = torch.func.vmap(torch.func.grad(one))(x)
        leaf = x.clone().requires_grad_()
        layer(leaf, logits=True).sum().backward()
        torch.testing.assert_close(by_vmap, leaf.grad)
        torch.testing.assert_close(torch.func.vmap(torch.func.jacfwd(one))(x), leaf.grad)

    @pytest.mark.parametrize("semantics", ["godel", "probability"])
    def test_inside_a_transform_of_something_else(self, semantics: str) -> None:
        layer = alarm_layer(semantics=semantics)
        x = torch.rand(3, 4).requires_grad_()
        factors = torch.arange(3.0)
        found = torch.func.vmap(lambda factor: factor * layer(x).sum())(factors)
        torch.testing.assert_close(found, factors * layer(x).sum())
        (slope,) = torch.autograd.grad(found.sum(), x)
        torch.testing.assert_close(slope, torch.autograd.grad(3 * layer(x).sum(), x)[0])

    def test_second_derivatives(self) -> None:
        layer = alarm_layer()
        x = torch.rand(2, 4, dtype=torch.float64).requires_grad_()
        torch.autograd.gradgradcheck(lambda x: layer(x, logits=True), x)

    def test_it_prints(self) -> None:
        assert "semantics='godel'" in repr(alarm_layer())
        plan = str(
            lg.Layer(
                lg.parse(ALARM + "safe. x :- y."), [*FACTS, "y"], ["alarm", "safe", "y", "smoke"]
            ).plan()
        )
        assert "true on every input: safe" in plan
        assert "no cycles" in plan
        idle = str(
            lg.Layer(lg.parse(ALARM + "x :- y."), [*FACTS, "y"], ["alarm", "x", "smoke"]).plan()
        )
        assert "no output depends" not in idle
        assert "no output depends on y" in str(
            lg.Layer(lg.parse(ALARM + "x :- y."), [*FACTS, "y"], "alarm").plan()
        )
        assert "false on every input: x" in str(
            lg.Layer(lg.parse(ALARM + "x :- y."), FACTS, ["alarm", "x"]).plan()
        )


# ------------------------------------------------------------------------ explanations


class TestExplanations:
    @pytest.mark.parametrize("seed", range(12))
    def test_the_changes_change_the_answer_and_none_is_superfluous(self, seed: int) -> None:
        program = random_program(seed, 7, 10, body=3)
        rng = np.random.default_rng(seed)
        fed = sorted(rng.choice(7, 5, replace=False).tolist())
        names = [program.atoms[i] for i in fed]
        layer = lg.Layer(program, names, list(program.atoms))
        values = rng.random(5)
        told = layer.explain(torch.from_numpy(values))
        assert len(told.answers) == 7
        out = layer.eval()(torch.from_numpy(values)[None])[0]

        def is_true(facts: np.ndarray, atom: str) -> bool:
            return atom in lg.closure(program, [n for n, f in zip(names, facts, strict=True) if f])

        for answer, value in zip(told.answers, out.tolist(), strict=True):
            assert answer.value == value
            assert answer.is_true == is_true(values > 0.5, answer.atom) == (value > 0.5)
            changed = {share.atom for share in answer.changes}
            if not changed:  # nothing that is fed could change it
                extreme = np.full(5, not answer.is_true)
                assert is_true(extreme, answer.atom) == answer.is_true
                continue
            places = [names.index(atom) for atom in changed]
            facts = values > 0.5
            assert all(facts[n] == answer.is_true for n in places)
            facts[places] = not answer.is_true
            assert is_true(facts, answer.atom) != answer.is_true
            for n in places:
                facts[n] = answer.is_true
                assert is_true(facts, answer.atom) == answer.is_true
                facts[n] = not answer.is_true
            assert answer.proof is not None
            assert answer.proof.holds()

    def test_wrong_answers_come_first_with_their_gradient(self) -> None:
        layer = lg.Layer(lg.parse(ALARM), FACTS, ["smoke", "alarm"])
        told = layer.explain(torch.tensor([0.9, 0.8, 0.3, 0.1]), torch.tensor([1.0, 1.0]))
        assert [answer.atom for answer in told.answers] == ["alarm", "smoke"]
        assert told.wrong == told.answers[:1]
        alarm = told["alarm"]
        assert [change.atom for change in alarm.changes] == ["flicker"]
        assert [(share.atom, share.gradient) for share in alarm.gradients] == [("flicker", 1.0)]
        assert "flicker at 0.3 (gradient +1)" in str(told)
        assert "flicker from 0.3 to 0.501" in str(told)
        assert "and should be true" in str(told)
        falls = layer.explain(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([0.0, 0.0]))
        assert {share.atom for share in falls["alarm"].changes} == {"flicker", "button"}
        with pytest.raises(KeyError):
            told["fire"]

    def test_categorical_answers(self) -> None:
        rules = "\n".join(
            f"sum({a + b}) :- left({a}), right({b})." for a in range(3) for b in range(3)
        )
        layer = lg.Layer(
            lg.parse(rules),
            {s: lg.Categorical([f"{s}({d})" for d in range(3)]) for s in ("left", "right")},
            {"sum": lg.Categorical([f"sum({s})" for s in range(5)])},
        )
        example = {"left": torch.tensor([0.6, 0.3, 0.1]), "right": torch.tensor([0.1, 0.5, 0.4])}
        told = layer.explain(example, {"sum": torch.tensor(3)})
        assert [answer.atom for answer in told.wrong] == ["sum(1)", "sum(3)"]
        assert told["sum(1)"].proof.facts == {"left(0)", "right(1)"}
        assert {share.atom for share in told["sum(3)"].changes} == {"left(1)", "right(2)"} or {
            share.atom for share in told["sum(3)"].changes
        } == {"left(2)"}

    def test_a_picture(self) -> None:
        layer = lg.Layer(lg.parse(ALARM + "x :- y."), FACTS, ["alarm", "x"])
        told = layer.explain(torch.tensor([0.9, 0.8, 0.3, 0.1]), torch.tensor([1.0, 0.0]))
        figure = lg.plot.explanation(told["alarm"])
        texts = {text.get_text() for axes in figure.axes for text in axes.texts}
        assert {"flicker", "fire", "alarm"} <= texts
        assert told["x"].proof is None
        assert "no inputs prove it" in str(told)
        with pytest.raises(lg.errors.ProgramError, match="'x' has no proof to draw"):
            lg.plot.explanation(told["x"])

    def test_what_is_refused(self) -> None:
        layer = lg.Layer(lg.parse(ALARM), FACTS, {"a": "alarm", "s": "smoke"})
        with pytest.raises(StateError, match="several groups of outputs"):
            layer.explain(torch.rand(4), torch.tensor(1.0))
        with pytest.raises(StateError, match=r"expected outputs of 'a' have the shape \(\)"):
            layer.explain(torch.rand(4), {"a": torch.rand(3)})
        with pytest.raises(StateError, match="have the shape"):
            layer.explain(torch.rand(2, 4))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("semantics", "text"),
    [
        ("gamma", "y :- a. n :- not y. m :- n."),  # one rule in each stratum
        ("gamma", "y :- a, b. y :- c. m :- y, a."),
        ("godel", "y :- a, not b. y :- c. m :- y, m. m :- c."),
        ("probability", "y :- a, not b. y :- c. m :- y, a."),
    ],
)
def test_inductor_computes_what_plain_torch_does(semantics: Any, text: str) -> None:
    inputs = [name for name in "abc" if name in lg.parse(text).atoms]
    layer = lg.Layer(lg.parse(text), inputs, ["y", "m"], semantics=semantics).eval()
    x = torch.tensor([[0.1, 0.8, 0.3], [0.9, 0.7, 0.2], [0.9, 0.2, 0.9], [0.2, 0.1, 0.95]])
    x = x[:, : len(inputs)].clone().requires_grad_()
    expected = layer(x)
    try:
        found = torch.compile(layer)(x)
    except Exception as error:
        if "C++ compiler" in str(error) or "InvalidCxxCompiler" in str(error):
            pytest.skip("needs a C++ compiler")
        raise
    assert torch.allclose(found, expected, atol=1e-6)
    slopes = [torch.autograd.grad(out.sum(), x)[0] for out in (found, expected)]
    assert torch.allclose(*slopes, atol=1e-5)


def test_scores_of_16_bits_are_normalised_in_32() -> None:
    program = lg.parse(" ".join(f"y({i}) :- k({i})." for i in range(10)))
    digits = lg.Categorical([f"k({i})" for i in range(10)])
    generator = torch.Generator().manual_seed(0)
    scores = (30 + 3 * torch.randn(500, 10, generator=generator)).bfloat16()
    expected = torch.softmax(scores.float(), -1)
    for semantics in ("godel", "probability"):
        layer = lg.Layer(
            program, digits, [f"y({i})" for i in range(10)], semantics=semantics, from_logits=True
        ).eval()
        assert (layer(scores).float() - expected).abs().max() < 0.005
        assert torch.allclose(layer(torch.full((1, 10), 1e8)), torch.full((1, 10), 0.1))


def test_an_empty_batch_with_soft_facts_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = lg.Layer(lg.parse("c :- a, b."), ["a"], ["c"], facts={"b": 0.8}).eval()
    kernels, shapes = kernels_on("cpu"), []
    load = kernels.load_columns
    monkeypatch.setattr(
        kernels,
        "load_columns",
        lambda x, *rest: shapes.append((x.shape, rest[-1].shape)) or load(x, *rest),
    )
    assert layer(torch.zeros(0, 1)).shape == (0, 1)
    assert all(given[0] == filled[0] for given, filled in shapes)


@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("semantics", ["godel", "gamma", "probability"])
def test_a_gradient_with_a_graph_is_the_gradient_where_inputs_depend_on_one_another(
    semantics: str, from_logits: bool
) -> None:
    program = lg.parse("c :- a, b. d :- c. d :- not b, a.")
    layer = lg.Layer(
        program, {"first": "a", "second": "b"}, ["c", "d"], semantics=semantics,
        from_logits=from_logits,
    )  # fmt: skip
    x = torch.tensor([0.3, 0.45], dtype=torch.float64, requires_grad=True)
    out = layer({"first": x, "second": x + 0.1})
    slopes = [
        torch.autograd.grad(out.sum(), x, create_graph=graph, retain_graph=True)[0]
        for graph in (False, True)
    ]
    torch.testing.assert_close(*slopes)


def test_a_gamma_layer_with_a_computed_parameter_can_be_cooled_and_converted() -> None:
    class Shifted(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return values + 0.001

    layer = lg.Layer(lg.parse("c :- a, b."), ["a", "b"], "c", semantics="gamma")
    register_parametrization(layer.rules.model, "threshold", Shifted(), unsafe=True)
    layer.temperature = 0.0
    assert torch.equal(layer.rules.annealed.threshold, layer.rules.model.threshold)
    layer.double()
    assert torch.equal(layer.rules.annealed.threshold, layer.rules.model.threshold)
