"""Where rounding decides: the arithmetic of stored states and sums, and models at its limits."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.certificate.rounding import (
    ABOVE,
    BELOW,
    FUNCTION,
    WIDE,
    Rounding,
    gamma,
)
from latentgamma.program.program import Program

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as a state of this dtype stores them, rounded to float32 before sixteen bits."""
    wide = torch.from_numpy(np.asarray(values, np.float64))
    if dtype != "float64":
        wide = wide.float()
    return wide.to(DTYPES[dtype]).double().numpy()


def first_wrong_step(model: lg.LatentGamma, state: torch.Tensor, atom: str, most: int) -> float:
    index = model.program.index[atom]
    with torch.no_grad():
        for step in range(1, most + 1):
            state = model.step(state)
            if state[index] > 0.5:
                return step
    return math.inf


# -------------------------------------------------------------------- numbers and their spacing


@pytest.mark.parametrize("dtype", DTYPES)
def test_stored_sums_are_rounded_as_the_dtype_rounds_them(dtype: str) -> None:
    rounding, rng = Rounding.of(dtype), np.random.default_rng(0)
    state = stored(10.0 ** rng.uniform(-12, 0, 4000) * rng.integers(0, 2, 4000), dtype)
    added = 10.0 ** rng.uniform(-14, -0.1, 4000)
    real = stored(state + added, dtype)
    twice = rounding.digits < 24  # rounded to float32 first
    bound = rounding.stored_sum(state, added + twice * 2.0**-23 * (state + added))
    assert np.all(bound >= real)
    assert np.mean(bound == real) > (0.9 if rounding.digits >= 24 else 0.6)
    assert np.array_equal(rounding.down(state), state)  # states can be stored
    above = state + rounding.spacing(state)
    assert np.array_equal(stored(above, dtype), above)
    assert np.array_equal(stored(state + 0.25 * rounding.spacing(state), dtype), state)


def all_stored(dtype: str) -> np.ndarray:
    """Every number from 0 to 2 that a state of sixteen bits can store."""
    bits = torch.arange(2**15, dtype=torch.int32).to(torch.int16)
    numbers = bits.view(DTYPES[dtype]).double().numpy()
    return numbers[np.isfinite(numbers) & (numbers <= 2)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_arithmetic_is_that_of_torch(dtype: str) -> None:
    rounding, states = Rounding.of(dtype), torch.finfo(DTYPES[dtype])
    steps = torch.finfo(torch.float64 if dtype == "float64" else torch.float32)
    assert rounding.dtype == dtype
    assert rounding.unit == steps.eps / 2
    assert rounding.tiny == steps.tiny
    assert 2.0 ** (1 - rounding.digits) == states.eps
    assert 2.0**rounding.least == states.tiny * states.eps
    assert torch.finfo(torch.float64).eps / 2 == WIDE


@pytest.mark.parametrize("dtype", DTYPES)
def test_spacings_are_those_of_the_dtype(dtype: str) -> None:
    rounding, rng = Rounding.of(dtype), np.random.default_rng(4)
    if rounding.digits < 24:
        numbers = all_stored(dtype)
        assert np.array_equal(rounding.spacing(numbers[:-1]), np.diff(numbers))
    else:
        smallest = rounding.least + rounding.digits
        exponents = rng.integers(rounding.least, 1, 3000)
        numbers = np.ldexp(rng.random(3000), exponents)
        numbers = np.concatenate(
            [[0.0], 2.0**exponents, 2.0 ** np.arange(smallest - 3, smallest + 3)]
        )
        numbers = numbers.astype(dtype)
        following = np.nextafter(numbers, numbers.dtype.type(2))
        gap = following.astype(float) - numbers.astype(float)
        assert np.array_equal(rounding.spacing(numbers.astype(float)), gap)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_to_sixteen_bits_equals_a_look_up(dtype: str) -> None:
    rounding, rng, numbers = Rounding.of(dtype), np.random.default_rng(5), all_stored(dtype)
    x = np.concatenate([rng.random(3000), 2.0 ** rng.uniform(-30, 0, 3000), [0.0, 1.0]])
    below = numbers[np.searchsorted(numbers, x, "right") - 1]
    assert np.array_equal(rounding.down(x), below)
    # The nearest number to a sum; halfway the larger one, which is a bound.
    state = numbers[rng.integers(np.searchsorted(numbers, 1.0), size=20_000)]
    added = np.where(rng.random(20_000) < 0.5, rng.random(20_000), state * rng.random(20_000))
    added[::50] = rounding.spacing(state[::50]) / 2
    total = state + added
    place = np.searchsorted(numbers, total, "right") - 1
    low, high = numbers[place], numbers[np.minimum(place + 1, len(numbers) - 1)]
    nearest = np.where(total - low < high - total, low, high)
    kept = (total < 1.99) & (np.abs((total - low) - (high - total)) > 1e-12 * total)
    kept[::50] = True
    assert np.array_equal(rounding.stored_sum(state, added)[kept], nearest[kept])


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_added_is_bounded_by_its_roundings(dtype: str) -> None:
    rounding = Rounding.of(dtype)
    unit, tiny = rounding.unit, rounding.tiny
    state, share = np.array([0.0, 0.25, 0.5]), np.array([0.5, 0.25, 0.125])
    slack = rounding.added(state, share) - (1 - state) * share
    # 1 − s, the product and the sum round the term; with sixteen bits the sum is rounded once
    # more, by one roundoff of what is added and of the state.
    each = 3 if rounding.digits >= 24 else 5
    also = 0 if rounding.digits >= 24 else 1
    least = (each * (1 - state) * share + also * state) * unit
    assert np.all(slack >= least)
    assert np.all(slack <= 1.35 * each * (1 - state) * share * unit + 2 * also * state * unit)
    # A product below the normal numbers may be rounded up to the smallest of them.
    assert rounding.added(np.array([0.0]), np.array([0.0]))[0] == tiny


@pytest.mark.parametrize("unit", [2.0**-24, 2.0**-6])
def test_bounds_after_some_roundings(unit: float) -> None:
    tiny = 2.0**-40
    rounding = Rounding("float32", unit, tiny, 24, -149)
    for x in (-3.0, -1e-9, 0.0, 2.0**-30, 5.0):
        for count in (1, 3, 24):
            above = below = x
            for _ in range(count):
                above = above + unit * abs(above) + tiny
                below = below - unit * abs(below) - tiny
            raised = float(rounding.bound(np.array(x), ABOVE, count))
            lowered = float(rounding.bound(np.array(x), BELOW, count))
            assert raised >= above
            assert lowered <= below
            if unit < 1e-6:
                slack = count * (unit * abs(x) + 2 * tiny)
                assert raised <= x + 1.01 * slack
                assert lowered >= x - 1.01 * slack
            if count == FUNCTION:
                assert raised == rounding.bound(np.array(x), ABOVE)
                assert lowered == rounding.bound(np.array(x), BELOW)


def test_gamma_is_what_the_formula_says() -> None:
    for unit in (2.0**-24, 2.0**-53, 2.0**-5):
        for count in (0, 1, 7, 24.0, 31, 32, 40, 2.0**24):
            share = Fraction(count) * Fraction(unit)
            exact = float(share / (1 - share)) if share < 1 else math.inf
            assert float(gamma(count, unit)) == pytest.approx(exact, rel=1e-15)
            several = gamma(np.array([count, count, 0.0]), unit)
            assert several == pytest.approx([exact, exact, 0.0], rel=1e-15)
    assert gamma(np.array([3, 4]), 0.25)[1] == math.inf  # counts may be whole numbers


def test_the_counts_of_roundings_are_not_larger_than_needed() -> None:
    for dtype in DTYPES:
        rounding = Rounding.of(dtype)

        def count(additions: float, long: float, rounding: Rounding = rounding) -> float:
            return float(rounding.roundings_of_sum(additions, long))

        # Six roundings of a term and seven additions in pairs, with some to spare.
        assert 6 + 7 <= count(0, 0) <= 24
        assert count(9, 0) - count(0, 0) == pytest.approx(9)
        # 4,096 numbers add up as 32 one after another; beyond that float64 sums.
        wide = 2.0**-53 / rounding.unit
        assert count(0, 4096) - count(0, 0) == pytest.approx(32 + 4096 * wide)
        assert count(0, 2**20) - count(0, 4096) == pytest.approx((2**20 - 4096) * wide)
        for terms in (0, 1, 1000):
            assert terms <= float(rounding.evaluation(terms)) * 2**53 <= terms + 8.01
    counts = Rounding.of("float32").evaluation(np.array([1, 1000])) * 2.0**53
    assert np.all((counts >= [1, 1000]) & (counts <= [9.01, 1008.01]))


def one_after_another(state: float, share: float, steps: int, dtype: str) -> float:
    """The state after some steps, each stored in the dtype."""
    kind = DTYPES[dtype]
    value = torch.tensor([state], dtype=torch.float64).to(kind)
    for _ in range(steps):
        wide = value.to(torch.float64 if dtype == "float64" else torch.float32)
        value = (wide + (1 - wide) * share).to(kind)
    return float(value.double())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("parts", [0.3, 0.7, 1.2, 3.4])
def test_steps_between_two_powers_of_two_add_whole_spacings(dtype: str, parts: float) -> None:
    """While the spacing stays the same, the bound after many steps is what the model reaches."""
    rounding = Rounding.of(dtype)
    # Subnormal states of float16 too; in float32, products are not exact that far down.
    for exponent in (-3, -7, *([-15] if dtype == "float16" else [])):
        start = np.array([2.0**exponent])
        unit = float(rounding.spacing(start)[0])
        share = parts * unit / (1 - float(start[0]))
        for steps in (2, 5, 11):
            real = one_after_another(float(start[0]), share, steps, dtype)
            expected = float(start[0]) + steps * round(parts) * unit
            assert real == pytest.approx(expected, abs=0)
            bound = rounding.after(start, np.array([share]), float(steps), 2 * start)
            assert float(bound[0]) == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_steps_lose_little_to_rounding(dtype: str) -> None:
    """Across powers of two: at least what the model reaches, and no more than its roundings above."""
    rounding = Rounding.of(dtype)
    for start, share, steps in ((0.01, 0.02, 30), (0.0, 0.01, 60), (0.2, 1e-3, 300), (0.3, 0.2, 4)):
        first = stored(np.array([start]), dtype)
        real = one_after_another(float(first[0]), share, steps, dtype)
        top = np.array([real * 1.3])
        bound = float(rounding.after(first, np.array([share]), float(steps), top)[0])
        exact = 1 - (1 - Fraction(float(first[0]))) * (1 - Fraction(share)) ** steps
        # Half a spacing of the largest state for each step, or as much as a step adds.
        half = min(2.0 ** -(rounding.digits + 1), 3 * share) if rounding.digits < 53 else 0.0
        half += 2.0**-24 * float(top[0]) if rounding.digits < 24 else 0.0
        each = half + 10 * rounding.unit * (share + (rounding.digits < 24) * real)
        assert real <= bound <= float(exact) * (1 + 2e-12) + steps * each
        assert rounding.down(np.array([bound]))[0] == bound


def test_a_bound_is_never_above_one() -> None:
    for dtype in DTYPES:
        rounding = Rounding.of(dtype)
        state = stored(np.array([0.0, 0.5, 0.99]), dtype)
        for steps in (1.0, 2.0, 1e9):
            after = rounding.after(state, np.array([1.0, 0.99, 0.9]), steps, np.ones(3))
            assert np.all(after <= 1)
            assert np.all(after >= state)
        assert rounding.after(state, np.ones(3), 1.0, np.ones(3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.quick_first
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_steps_are_bounded_by_what_they_come_to(dtype: str) -> None:
    rounding, rng = Rounding.of(dtype), np.random.default_rng(1)
    exact = 0
    for _ in range(300):
        share = float(10 ** rng.uniform(-9, -2))
        state = stored(np.array([float(rng.choice([0.0, 10 ** rng.uniform(-8, -1)]))]), dtype)
        start, steps = state.copy(), int(rng.integers(2, 200))
        for _ in range(steps):
            state = stored(state + (1 - state) * share, dtype)
        top = np.array([0.9])
        bound = rounding.after(start, np.array([share]), float(steps), top)
        if bound[0] <= top[0]:
            assert bound[0] >= state[0]
            exact += bound[0] <= state[0] * 1.01 + 4 * rounding.spacing(state)[0]
    assert exact > (150 if rounding.digits >= 24 else 50)


def test_a_state_stops_rising_where_its_spacing_is_too_wide() -> None:
    rounding = Rounding.of("float32")
    state, share = np.array([0.25]), np.array([1e-8])
    assert rounding.after(state, share, 1e30, np.array([0.5]))[0] == 0.25
    assert rounding.after(state, share * 4, 1e3, np.array([0.5]))[0] > 0.25


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_lower_bound_is_rounded_down(dtype: str) -> None:
    rounding, rng = Rounding.of(dtype), np.random.default_rng(2)
    state, share = stored(rng.random(2000), dtype), rng.random(2000)
    least = rounding.stored_below(state, share)
    real = stored(state + (1 - state) * share, dtype)
    assert np.all(least <= real)
    # Sixteen bits round away most of the slack; otherwise it is a few roundoffs.
    if rounding.digits < 24:
        assert np.mean(least == real) > 0.99
    else:
        # What is added is rounded four times at most; float64 bounds its own arithmetic, too.
        lost = 4 * (1 - state) * share + (2 * real if dtype == "float64" else 0)
        slack = (state + (1 - state) * share - least) / rounding.unit
        assert 0.9 * lost.mean() <= slack.mean() <= 1.1 * lost.mean()
    assert np.all(rounding.stored_below(np.zeros(3), np.zeros(3)) == 0)
    tiny = rounding.stored_below(0.0, np.array([4 * rounding.tiny]))[0]
    assert rounding.digits < 24 or 2.9 * rounding.tiny < tiny < 3.1 * rounding.tiny
    assert np.all(least >= (state + (1 - state) * share) * (1 - 2.0 ** -(rounding.digits - 4)))


def test_gamma_bounds_sums_in_any_order() -> None:
    rng = np.random.default_rng(3)
    for n in (10, 1000, 50_000):
        terms = rng.random(n).astype(np.float32)
        exact = math.fsum(terms.tolist())
        for order in (np.arange(n), np.argsort(terms), rng.permutation(n)):
            total = np.float32(0)
            for chunk in np.array_split(terms[order], max(1, n // 1000)):
                total = np.cumsum(np.concatenate([[total], chunk]), dtype=np.float32)[-1]
            assert abs(float(total) - exact) <= float(gamma(n, 2.0**-24)) * exact
    assert gamma(2.0**24, 2.0**-24) == math.inf


def test_the_roundings_of_a_term_are_counted() -> None:
    """What the kernels do to a term of a body sum before it is added, see `kernels/inputs`."""
    each = ("1 − s", "weight", "sharpness", "their product", "product with 1 − s", "background")
    for dtype in DTYPES:
        rounding = Rounding.of(dtype)
        assert rounding.roundings_of_sum(7, 0) >= 7 + len(each)
        # A kernel adds up 4,096 numbers in 128 places, 32 one after another, and these pairwise.
        assert rounding.roundings_of_sum(0, 4096) >= 4096 / 128 + math.log2(128) + len(each)
    # In float64 a long sum is no more precise than the rest.
    assert Rounding.of("float64").roundings_of_sum(0, 10**6) >= 10**6
    assert Rounding.of("float32").roundings_of_sum(0, 10**6) < 100


# -------------------------------------------------------------------- subnormal states


@pytest.mark.parametrize(("dtype", "threshold"), [("float16", 1.5e-5), ("float32", 1e-42)])
def test_subnormal_states_round_absolutely(dtype: str, threshold: float) -> None:
    program = lg.parse("a :- a.")
    constants = lg.Constants(12.0, 0.0, 3e6, 0.95, 40.0, 5.0)
    model = lg.oracle(program, constants, form="dense", dtype=DTYPES[dtype])
    with torch.no_grad():
        model.threshold.fill_(threshold)
        model.offset.fill_(2.84)
    certificate = lg.certify(model, program)
    wrong = first_wrong_step(model, model.state([]), "a", 400)
    assert certificate.t_max < wrong
    if dtype == "float16":
        assert wrong == 226
        assert certificate.t_max > 150  # and not by giving up


# -------------------------------------------------------------------- long sums


@pytest.mark.parametrize(
    ("k", "dtype", "gap", "sharpness"),
    [
        (20_000, "float64", 5e-9, 1.4e11),
        (20_000, "float64", 2e-10, 1.4e11),
        (20_000, "float32", 5e-4, 1e6),
    ],
)
def test_a_body_whose_sum_is_off_by_its_rounding_is_not_certified(
    k: int, dtype: str, gap: float, sharpness: float
) -> None:
    """The model adds 20,000 weights one after another and comes out below its threshold."""
    program = Program.from_rules([("h", [f"x{i}" for i in range(k)])])
    constants = lg.Constants(4.71356783919598, 20.0, 10.0, 0.95, 20.0, 5.0)
    model = lg.oracle(program, constants, form="sparse", dtype=DTYPES[dtype])
    with torch.no_grad():
        weights = model.step_parameters()
        exact = k * (Fraction(float(weights.body[0])) + Fraction(float(weights.body_off[0])))
        model.threshold.fill_(float(exact) - gap)
        model.sharpness_raw.fill_(sharpness)
        derived = model(model.state([f"x{i}" for i in range(k)]), 50)[program.index["h"]] > 0.5
    certificate = lg.certify(model, program)
    assert derived or not certificate.covers(50)
    if dtype == "float64":
        assert not derived


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_the_slack_holds_whatever_the_order_of_the_sum(form: str) -> None:
    """Another device sums the weights of a body in another order: its slack is another number."""
    k, rng = 900, np.random.default_rng(0)
    program = Program.from_rules([("h", [f"x{i}" for i in range(k)])])
    model = lg.oracle(program, form=form, dtype=torch.float64)
    with torch.no_grad():
        noise = torch.from_numpy(rng.normal(size=tuple(model.rules.body_logits.shape)))
        model.rules.body_logits.add_(noise)
    rows = model.literal_weights(program).rows
    rules = model.rules.to_dense()
    weights = torch.sigmoid(rules.body_logits.detach().double())[0].numpy()
    threshold = float(model.threshold.detach()[0])
    seen = set()
    for _ in range(200):
        total = 0.0
        for weight in rng.permutation(weights).tolist():
            total += weight
        seen.add(total)
        assert abs(total - threshold - rows.slack[0]) <= rows.absolute[0]
    assert len(seen) > 10  # the order matters


@pytest.mark.slow
def test_what_strays_from_other_rows_is_not_lost_in_a_large_sum() -> None:
    """200,000 rows give to h alone; the background of one more decides."""
    rules = [("h", ["a"])] * 200_000 + [("g", ["b"])]
    program = Program.from_rules(rules, atoms=["h", "a", "g", "b"])
    model = lg.oracle(program, lg.Constants(20.0, 20.0, 100.0, 0.95, 20.0, 5.0), form="sparse")
    with torch.no_grad():
        model.gain_raw.fill_(39.34797286987305)
        model.rules.head_background.fill_(-2.460779905319214)
        model.rules.head_background[-1] = 7.5
        parameters = model.step_parameters()
        last = parameters.amplitude.double()[-1] * parameters.head_off.double()[-1]
        gap = 3e-5
        model.offset.copy_(torch.tensor([float(last) - gap, 1e3, 1.0, 1e3]))
        model.gate_raw.fill_(1000 / gap)
    certificate = lg.certify(model, program)
    wrong = first_wrong_step(model, model.state(["b"]), "h", 3)
    assert wrong <= 2
    assert certificate.t_max < wrong
    assert model.literal_weights(program).stray[0] >= float(last)
    assert model.literal_weights(program).stray[0] <= float(last) * 1.001


@pytest.mark.quick_first
@pytest.mark.parametrize("size", [10, 1000, 100_000])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("what", ["body", "heads"])
def test_a_step_with_long_sums_stays_inside_its_bounds(size: int, dtype: str, what: str) -> None:
    """One step of the model against the bounds, with k or ρ up to 100,000 uneven terms."""
    atoms = [f"x{i}" for i in range(size)]
    pairs = [("h", atoms)] if what == "body" else [("h", [x]) for x in atoms]
    program = Program.from_rules(pairs, atoms=["h", *atoms])
    constants = lg.Constants(6.0, 12.0, 8.0, 0.9, 6.0, 3.0)
    model = lg.oracle(program, constants, form="sparse", dtype=DTYPES[dtype])
    generator = torch.Generator().manual_seed(size)
    with torch.no_grad():
        for parameter in (model.rules.body_logits, model.rules.head_logits):
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
        if what == "body":
            weights = model.step_parameters()
            model.threshold.copy_(weights.body_total - 0.4)
        else:
            model.offset[0] = size * 1e-3
        weights = model.literal_weights(program)
        state = model.state(atoms)
        if what == "heads":
            state = model.state([])
        share = {kernel: float(_share(model, state, kernel)) for kernel in ("auto", "reference")}
    if what == "body":
        lowest = weights.gates.share(
            weights.evidence_below(np.ones((1, 1))), weights.rounding, BELOW
        )
        assert 0 < lowest[0, 0] <= min(share.values())
        assert lowest[0, 0] > 0.2 * max(share.values())
    else:
        highest = weights.share_above(weights.least_body)[0]
        assert highest >= max(share.values())


def _share(model: lg.LatentGamma, state: torch.Tensor, kernel: str) -> torch.Tensor:
    model.kernel = kernel  # type: ignore[assignment]
    return model(state, 1)[0]


# -------------------------------------------------------------------- elementary functions


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sigmoids_are_computed_as_closely_as_the_certificate_supposes(dtype: str) -> None:
    x = torch.linspace(-80, 80, 20_001, dtype=DTYPES[dtype])
    unit = Rounding.of(dtype).unit
    exact = 1 / (1 + torch.exp(-x.double()))
    error = (torch.sigmoid(x).double() / exact - 1).abs()
    assert float((error / (8 + 4 * x.double().abs())).max()) <= 2 * unit
