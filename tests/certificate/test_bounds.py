"""The bounds on one step hold in every arithmetic, and the interval evaluation is independent."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.certificate import bounds as interval_step
from latentgamma.certificate.bounds import (
    Arithmetic,
    GateNumbers,
    Interval,
    RowNumbers,
    check_bounds,
    sigmoid,
)
from latentgamma.certificate.constants import ClosedForm
from latentgamma.certificate.rounding import ABOVE, BELOW, EACH_TERM, Rounding
from latentgamma.generators import random
from latentgamma.program.program import Program
from random_programs import random_program

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def soft_model(seed: int, *, dtype: str = "float64", form: str = "sparse") -> lg.LatentGamma:
    """A model of a small program with soft constants and noise on every parameter."""
    rng = np.random.default_rng(seed)
    M = int(rng.integers(2, 7))
    program = random_program(rng, M, int(rng.integers(1, 2 * M)), body=4)
    constants = lg.Constants(*rng.uniform([2, 4, 3, 0.5, 3, 1.5], [9, 15, 12, 0.99, 15, 6]))
    gate = "bump" if seed % 4 == 0 else "sigmoid"
    model = lg.oracle(program, constants, form=form, gate=gate, dtype=DTYPES[dtype])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.quick_first
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_the_bounds_hold_what_interval_arithmetic_gives(dtype: str, form: str) -> None:
    compared = 0
    for seed in range(8):
        model = soft_model(seed, dtype=dtype, form=form)
        compared += check_bounds(model.literal_weights(model.program))
    assert compared > 100


@pytest.mark.slow
@pytest.mark.parametrize("digits", [10, 7])
def test_the_bounds_hold_in_an_arithmetic_of_few_digits(digits: int, monkeypatch) -> None:
    """With so few digits a slack that is too small shows."""
    coarse = Rounding("float32", 2.0**-digits, 2.0**-30, digits, -40)
    monkeypatch.setattr(Rounding, "of", lambda dtype: coarse)
    # The order of a sum is that of the code: no block of a long sum, nothing but its terms.
    monkeypatch.setattr(
        Rounding, "roundings_of_sum", lambda self, terms, long: np.asarray(terms) + EACH_TERM
    )
    compared = 0
    for seed in range(12):
        model = soft_model(seed, form="dense")
        if seed % 2:  # what is lacking meets the slack, and nothing but its error is left
            with torch.no_grad():
                model.threshold.zero_()
                model.sharpness_raw.fill_(0.5)
                model.rules.body_logits.abs_()
        weights = model.literal_weights(model.program)
        if np.all(weights.rows.relative < 0.5):
            compared += check_bounds(weights)
    assert compared > (100 if digits == 10 else 10)


def test_errors_are_relative_to_what_is_summed_and_not_to_a_difference() -> None:
    """A body sum of 1,000 that meets a slack of 1,000, and evidence that meets its offset."""
    rounding = Rounding.of("float32")
    thousand, one, zero = np.full(1, 1000.0), np.ones(1), np.zeros(1)
    rows = RowNumbers(thousand, one, one, *rounding.errors_of_sum(50 * one, zero))
    # 50 roundings of each term, and the two of the slack.
    error = 1000 * 52 * rounding.unit
    above = rows.firing(thousand, 0.0, rounding, ABOVE)[0]
    below = rows.firing(thousand, 0.0, rounding, BELOW)[0]
    assert error <= math.log(above / (1 - above)) <= 1.1 * error
    assert -1.1 * error <= math.log(below / (1 - below)) <= -error
    gates = GateNumbers(thousand, 5.0, False, *rounding.errors_of_sum(50 * one, zero))
    assert error <= gates.evidence(thousand, 0.0, rounding, ABOVE)[0] <= 1.1 * error
    assert -1.1 * error <= gates.evidence(thousand, 0.0, rounding, BELOW)[0] <= -error
    # Negative terms of a size of 30 count, though they are not seen in the sum.
    rows = RowNumbers(zero, one, one, *rounding.errors_of_sum(50 * one, 60 * one))
    mixed = rows.firing(zero, 0.0, rounding, ABOVE)[0]
    error = 60 * 50 * rounding.unit
    assert error <= math.log(mixed / (1 - mixed)) <= 1.1 * error
    mixed = rows.firing(zero, 0.0, rounding, BELOW)[0]
    assert -1.1 * error <= math.log(mixed / (1 - mixed)) <= -error
    gates = GateNumbers(zero, 5.0, False, *rounding.errors_of_sum(50 * one, 60 * one))
    assert error <= gates.evidence(zero, 0.0, rounding, ABOVE)[0] <= 1.1 * error
    assert -1.1 * error <= gates.evidence(zero, 0.0, rounding, BELOW)[0] <= -error


def log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def test_each_slack_is_that_of_its_roundings() -> None:
    """The numbers are so large that every other error is small beside the one that is looked at."""
    rounding = Rounding.of("float32")
    unit, large, one, zero = rounding.unit, np.full(1, 1e4), np.ones(1), np.zeros(1)
    rows = RowNumbers(large, one, one, *rounding.errors_of_sum(zero, zero))
    # The slack is a difference of two numbers that are rounded each.
    above = log_odds(rows.firing(large, 0.0, rounding, ABOVE)[0])
    below = log_odds(rows.firing(large, 0.0, rounding, BELOW)[0])
    assert 2 * unit * 1e4 <= above <= 2.2 * unit * 1e4
    assert -2.2 * unit * 1e4 <= below <= -2 * unit * 1e4
    # The error that a sum was computed with here counts as well.
    above = log_odds(rows.firing(large, 10 * unit, rounding, ABOVE)[0])
    below = log_odds(rows.firing(large, 10 * unit, rounding, BELOW)[0])
    assert 12 * unit * 1e4 <= above <= 12.2 * unit * 1e4
    assert -12.2 * unit * 1e4 <= below <= -12 * unit * 1e4
    gates = GateNumbers(large, 5.0, False, *rounding.errors_of_sum(zero, zero))
    # The offset is rounded twice and the difference once, all of them of the size of the offset.
    for loose in (0.0, 10 * unit):
        error = (3 + loose / unit) * unit * 1e4
        assert error <= gates.evidence(large, loose, rounding, ABOVE)[0] <= 1.1 * error
        assert -1.1 * error <= gates.evidence(large, loose, rounding, BELOW)[0] <= -error
    # Two gates and their product.
    for bump in (False, True):
        gates = GateNumbers(zero, 5.0, bump, *rounding.errors_of_sum(zero, zero))
        gate = math.exp(-1 / 1.5**2) if bump else 1 / (1 + math.exp(-1.5))
        share = gate / (1 + math.exp(-0.3))
        assert 40 * unit <= gates.share(0.3 * one, rounding, ABOVE)[0] / share - 1 <= 50 * unit
        assert -50 * unit <= gates.share(0.3 * one, rounding, BELOW)[0] / share - 1 <= -40 * unit


def test_what_underflows_counts_once_for_each_rounding() -> None:
    rounding = Rounding.of("float32")
    zero, one = np.zeros(2), np.ones(2)
    counts, mixed = np.array([0.0, 1.0]), np.array([0.0, 3.0])
    for numbers in (
        RowNumbers(zero, one, one, *rounding.errors_of_sum(counts, mixed)),
        GateNumbers(zero, 5.0, False, *rounding.errors_of_sum(counts, mixed)),
    ):
        assert numbers.relative[0] == 0
        assert numbers.relative[1] == pytest.approx(rounding.unit, rel=1e-6)
        assert rounding.tiny <= numbers.absolute[0] <= 2 * rounding.tiny
        assert numbers.absolute[1] == pytest.approx(3 * rounding.unit, rel=1e-6)
    no_terms = RowNumbers(zero, one, one, *rounding.errors_of_sum(counts, 0 * mixed))
    assert 2 * rounding.tiny <= no_terms.absolute[1] <= 3 * rounding.tiny
    # Infinitely many roundings of nothing are no error.
    endless = RowNumbers(
        zero, one, one, *Rounding.of("float64").errors_of_sum(np.full(2, np.inf), zero)
    )
    assert np.all(np.isinf(endless.relative))
    assert not np.any(np.isnan(endless.absolute))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_in_double_precision_the_bounds_are_what_the_model_does(form: str) -> None:
    for seed in range(8):
        model = soft_model(seed, form=form)
        weights = model.literal_weights(model.program)
        states = np.random.default_rng(seed).random((5, model.M)) * 0.9
        with torch.no_grad():
            after = model.step(torch.from_numpy(states)).numpy()
        share = (after - states) / (1 - states)
        whole, gates, rounding = weights.whole, weights.gates, weights.rounding
        high, low = (
            whole.share(states, gates, rounding, ABOVE),
            whole.share(states, gates, rounding, BELOW),
        )
        assert np.all(low <= share + 1e-12)
        assert np.all(share <= high + 1e-12)
        assert high == pytest.approx(share, rel=1e-9, abs=1e-12)
        assert low == pytest.approx(share, rel=1e-9, abs=1e-12)


def test_bounds_by_literals_are_the_sums_they_stand_for() -> None:
    """Against the formulas with all weights, for one literal after another."""
    program = lg.parse("h :- a. h :- b, c. h :- d. g :- h, a. g. i :- g.")
    constants = lg.Constants(3.0, 3.0, 2.0, 0.8, 6.0, 2.0)
    model = lg.oracle(program, constants, form="dense", dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    weights = model.literal_weights(program)
    u, v = weights.whole.body, weights.whole.head
    rows, offset = weights.rows, weights.gates.offset
    inside = np.zeros_like(u, dtype=bool)
    inside[weights.body_rule, program.body_indices] = True

    def firing(lack: np.ndarray) -> np.ndarray:
        return rows.amplitude / (1 + np.exp(-rows.sharpness * (rows.slack - lack)))

    idle = firing(u.sum(1))  # where every atom is at 0
    for level in (0.0, 0.4, 1.0):
        own = firing((u * ~inside).sum(1) + (u * inside).sum(1) * (1 - level))
        assert weights.lack_below(np.array([[level]]))[0] == pytest.approx(
            (u * ~inside).sum(1) + (u * inside).sum(1) * (1 - level)
        )
        found = weights.evidence_below(np.array([[level]]))[0]
        shares = []
        for n, (j, i) in enumerate(zip(weights.head_rule, program.head_indices, strict=True)):
            others = [r for r in range(program.R) if r != j and i in program.heads_of(r)]
            total = own[j] * v[j, i] + sum(idle[r] * v[r, i] for r in others) - offset[i]
            assert found[n] == pytest.approx(total, rel=1e-9, abs=1e-9)
            shares.append(
                float(sigmoid(np.array(weights.gates.gate * total)) * sigmoid(np.array(total)))
            )
        assert weights.gain_below(np.array([level]))[0] == pytest.approx(min(shares), rel=1e-9)
    lack = np.linspace(0.1, 0.9, program.R)
    above = weights.evidence_above(lack)
    share = weights.share_above(lack)
    for i in range(program.M):
        own = [r for r in range(program.R) if i in program.heads_of(r)]
        total = sum(firing(lack)[r] * v[r, i] for r in own) + weights.stray[i] - offset[i]
        assert above[i] == pytest.approx(total, rel=1e-9, abs=1e-9)
        expected = sigmoid(np.array(weights.gates.gate * total)) * sigmoid(np.array(total))
        assert share[i] == pytest.approx(float(expected), rel=1e-9)


def test_the_errors_of_the_certificates_own_sums_count(monkeypatch) -> None:
    """As if each term of its sums were off by a hundredth."""
    program = lg.parse("h :- a. h :- b, c. h :- d. g :- h, a, b, c. i :- g.")
    constants = lg.Constants(3.0, 3.0, 2.0, 0.8, 6.0, 2.0)
    weights = lg.oracle(program, constants, form="dense", dtype=torch.float64).literal_weights(
        program
    )
    exact = replace(weights)
    assert np.all(exact._idle >= 0)
    monkeypatch.setattr(Rounding, "evaluation", lambda self, terms: 0.01 * np.asarray(terms))
    rounding, rows, size = weights.rounding, weights.rows, program.body_sizes
    lack = weights.lack_below(np.array([[0.7]]))
    firing = weights._firing_below(np.array([[0.7]]))
    # A body sum has as many terms as the body, and a few more operations.
    assert np.all(firing <= rows.firing(lack, 0.01 * size, rounding, BELOW))
    assert np.all(firing >= rows.firing(lack, 0.01 * (size + 5), rounding, BELOW))
    # What other rules give is a difference of sums over all rules of a head: they err twice.
    sent = weights._firing_below(np.zeros((1, 1)))[0][weights.head_rule] * weights.head
    atom = program.head_indices
    whole = np.bincount(atom, sent, program.M)[atom]
    count = program.rules_per_head[atom]
    assert np.all(weights._idle <= np.maximum(0, whole * (1 - 0.02 * count) - sent))
    assert np.all(weights._idle >= whole * (1 - 0.025 * count) - sent)
    # Evidence from below adds up two terms, from above those of the rules of a head.
    received = firing[:, weights.head_rule] * weights.head + weights._idle
    gates, found = weights.gates, weights.evidence_below(np.array([[0.7]]))
    assert np.all(found <= gates.evidence(received, 0.019, rounding, BELOW, atom))
    assert np.all(found >= gates.evidence(received, 0.021, rounding, BELOW, atom))
    above = rows.firing(weights.least_body, 0.02, rounding, ABOVE)
    total = np.bincount(atom, above[weights.head_rule] * weights.head, program.M) + weights.stray
    found, rules = weights.evidence_above(weights.least_body), program.rules_per_head
    assert np.all(found >= gates.evidence(total, 0.0099 * rules, rounding, ABOVE))
    assert np.all(found <= gates.evidence(total, 0.0101 * rules, rounding, ABOVE))


def test_without_rules_no_share_is_needed() -> None:
    nothing = Program.from_rules([], atoms=["a", "b"])
    weights = lg.oracle(nothing).literal_weights(nothing)
    assert weights.gain_below(np.array([0.2, 0.9])).tolist() == [1.0, 1.0]
    assert weights.least_body.shape == (0,)


def test_a_bump_gate_gives_exactly_nothing_without_evidence() -> None:
    rounding, zero = Rounding.of("float32"), np.zeros(4)
    gates = GateNumbers(zero, 2.0, True, *rounding.errors_of_sum(zero, zero))
    evidence = np.array([-1.0, 0.0, 0.02, 1.5])
    exact = [
        0.0,
        0.0,
        math.exp(-1 / 0.04**2) / (1 + math.exp(-0.02)),
        math.exp(-1 / 9) / (1 + math.exp(-1.5)),
    ]
    fine = Rounding.of("float64")
    assert gates.share(evidence, fine, ABOVE) == pytest.approx(exact, rel=1e-12)
    assert gates.share(evidence, rounding, ABOVE)[:2].tolist() == [0.0, 0.0]
    assert gates.share(evidence, rounding, ABOVE)[2] > 0
    assert np.all(gates.share(np.full(4, 1e6), rounding, ABOVE) <= 1)
    assert np.all(gates.share(evidence, rounding, BELOW)[:2] == 0)


@pytest.mark.parametrize(
    ("dtype", "limit"), [("float32", 1e37), ("float16", 1e37), ("float64", 1e300)]
)
@pytest.mark.parametrize("part", [0.9, 1.1])
@pytest.mark.parametrize("gate", [5.0, 1.25])
def test_products_must_stay_in_the_range_of_the_dtype(
    dtype: str, limit: float, gate: float, part: float
) -> None:
    program = lg.parse("b :- a. c :- a, b.")
    constants = replace(lg.Constants.paper(), gate=gate)
    weights = ClosedForm(program, constants, dtype=dtype).literal_weights()
    assert weights.in_range
    rows, gates = weights.rows, weights.gates
    # All that a row may add up: its slack, its weights and one more.
    body = np.array([weights.body[0], weights.body[1:].sum()])
    reach = np.abs(rows.slack) + weights.outside + body + 1
    worst = part * limit
    numbers = {
        "sharpness": replace(weights, rows=replace(rows, sharpness=worst / reach)),
        "outside": replace(weights, outside=worst / rows.sharpness),
        "amplitude": replace(
            weights, rows=replace(rows, amplitude=np.full(2, worst / 2 / gates.gate))
        ),
        "offset": replace(
            weights, gates=replace(gates, offset=np.array([1.0, 1.0, -worst / gates.gate]))
        ),
        "stray": replace(weights, stray=np.full(3, worst / 3 / gates.gate)),
    }
    for name, changed in numbers.items():
        assert changed.in_range == (part < 1), name
    for field in ("body", "outside", "head", "stray"):
        values = getattr(weights, field).copy()
        values[0] = np.inf
        assert not replace(weights, **{field: values}).in_range
    for field in ("slack", "sharpness", "amplitude", "absolute"):
        values = np.full(2, np.nan)
        assert not replace(weights, rows=replace(rows, **{field: values})).in_range
    assert not replace(weights, gates=replace(gates, gate=math.inf)).in_range


def test_a_bound_that_is_too_low_is_found() -> None:
    model = soft_model(3)
    weights = model.literal_weights(model.program)
    check_bounds(weights)
    for wrong in (
        replace(weights, stray=0 * weights.stray, head=weights.head * 0.9),
        replace(weights, outside=weights.outside * 0.5),
        replace(weights, whole=replace(weights.whole, head=weights.whole.head[:, ::-1])),
    ):
        with pytest.raises(lg.errors.CertificateError, match="do not hold"):
            check_bounds(wrong)


def test_a_check_is_part_of_certify_on_small_models() -> None:
    program = lg.parse("b :- a. c :- a, b. c :- d.")
    model = lg.oracle(program)
    assert lg.certify(model, program, check=True) == lg.certify(model, program)
    large = random(200, 200, body=2, seed=0)
    with pytest.raises(lg.errors.ModelError, match="check=True"):
        lg.certify(lg.oracle(large), large, check=True)


@pytest.mark.parametrize("atoms", [[], ["a"]])
def test_a_program_without_rules_can_be_checked(atoms: list[str]) -> None:
    program = lg.Program.from_rules([], atoms=atoms)
    assert lg.certify(lg.oracle(program), program, check=True).holds


def test_a_check_that_fails_is_reported(monkeypatch) -> None:
    program = lg.parse("b :- a.")
    monkeypatch.setattr(interval_step, "_FUNCTION", 10**4)
    with pytest.raises(lg.errors.CertificateError, match="do not hold"):
        lg.certify(lg.oracle(program), program, check=True)


# -------------------------------------------------------------------- intervals


def test_intervals_hold_the_exact_values() -> None:
    for x in (-700.0, -30.0, -1.0, 0.0, 0.3, 20.0, 700.0):
        found = Interval.of(x).sigmoid()
        with localcontext(prec=80):
            exact = 1 / (1 + (-Decimal(x)).exp())
        assert found.low <= exact <= found.high
        assert found.high - found.low < Decimal("1e-25")
        assert math.isclose(float(found.low), float(sigmoid(np.array(x))), rel_tol=1e-12)
    for x in (-1.0, 0.0, 0.1, 0.5, 3.0):
        found = Interval.of(x).bump()
        assert found.low <= Decimal(math.exp(-1 / x**2) if x > 0 else 0.0) * Decimal(1 + 1e-12)
        assert found.high * Decimal(1 + 1e-12) >= Decimal(math.exp(-1 / x**2) if x > 0 else 0.0)
    product = Interval(Decimal(-2), Decimal(3)).times(Interval(Decimal(-5), Decimal(1)))
    assert product == (Decimal(-15), Decimal(10))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_intervals_hold_what_the_model_computes(dtype: str, form: str) -> None:
    for seed in range(6):
        model = soft_model(seed, dtype=dtype, form=form)
        weights = model.literal_weights(model.program)
        rng = np.random.default_rng(seed)
        state = torch.from_numpy(rng.choice([0.0, 1.0, 0.25, 0.7], model.M)).to(model.dtype)
        with torch.no_grad():
            after = model.step(state).double().numpy()
        before = state.double().numpy()
        shares = Arithmetic(weights.rounding).shares(
            weights.whole, weights.gates, [Interval.of(s) for s in before]
        )
        for i, share in enumerate(shares):
            low, high = (before[i] + (1 - before[i]) * float(end) for end in share)
            slack = 4 * 2.0**-weights.rounding.digits
            least = 2.0**weights.rounding.least
            assert low * (1 - slack) - least <= after[i] <= high * (1 + slack) + least


# -------------------------------------------------------------------- what is read


def test_the_reading_of_a_model_is_what_it_computes_with() -> None:
    program = random(30, 60, body=(1, 4), heads=(1, 3), facts=2, seed=3)
    for form in ("dense", "sparse"):
        model = lg.oracle(program, lg.Constants.paper(), form=form, dtype=torch.float32)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        weights = model.literal_weights(program)
        dense = model.rules.to_dense()
        u = torch.sigmoid(dense.body_logits.double()).detach().numpy()
        v = torch.softmax(dense.head_logits.double(), -1).detach().numpy()
        rule = weights.body_rule
        assert weights.body == pytest.approx(u[rule, program.body_indices], rel=1e-5)
        inside = np.zeros_like(u, dtype=bool)
        inside[rule, program.body_indices] = True
        assert weights.outside == pytest.approx((u * ~inside).sum(1), rel=1e-4)
        assert weights.least_weight == pytest.approx(u.min(1), rel=1e-4)
        threshold = model.threshold.detach().double().numpy()
        assert weights.rows.slack == pytest.approx(u.sum(1) - threshold, rel=1e-4, abs=1e-5)
        assert weights.head == pytest.approx(v[weights.head_rule, program.head_indices], rel=1e-4)
        assert weights.whole.body == pytest.approx(u, rel=1e-4)
        assert weights.whole.head == pytest.approx(v, rel=1e-4)
        full = weights.rows.amplitude * sigmoid(weights.rows.sharpness * weights.rows.slack)
        heads = np.zeros_like(v, dtype=bool)
        heads[weights.head_rule, program.head_indices] = True
        assert weights.stray == pytest.approx(full @ (v * ~heads), rel=1e-3)


def test_rows_of_another_program_are_read_by_their_own_literals() -> None:
    """A sparse model that is held against rules which are not its own literals."""
    program = lg.parse("c :- a, b. d :- c. d :- a.")
    model = lg.oracle(program, lg.Constants.paper(), form="sparse", dtype=torch.float64)
    other = Program.from_rules([("c", ["a"]), ("d", ["c", "b"])], atoms=program.atoms)
    rows = np.array([0, 1])
    sparse = model.literal_weights(other, rows)
    model.rules = model.rules.to_dense()
    dense = model.literal_weights(other, rows)
    for name in ("body", "outside", "least_weight", "head", "stray"):
        assert getattr(sparse, name) == pytest.approx(getattr(dense, name), rel=1e-9), name
