"""Both ends of the window, against loops that take one step after another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.certificate import ends as lower_end_module
from latentgamma.certificate import ends as upper_end_module
from latentgamma.certificate.constants import ClosedForm
from latentgamma.certificate.ends import (
    FAR,
    follow,
    lower_end,
    reproduced_level,
    upper_end,
    worst_cases,
)
from latentgamma.certificate.rounding import Rounding
from latentgamma.generators import clique, ladder
from latentgamma.program.program import Program
from random_programs import random_program
from reference import every_fact_set

DTYPES = ["float64", "float32", "float16"]
Gain = Callable[[np.ndarray], np.ndarray]


# -------------------------------------------------------------------- lower end


def sigmoidal(most: float, slope: float, middle: float) -> Gain:
    """A share that rises with the level of the bodies, and is nothing below 0.05."""
    return lambda x: np.where(x < 0.05, 0.0, most / (1 + np.exp(-slope * (x - middle))))


def weights_with(gain: Gain, dtype: str, literals: int = 10) -> SimpleNamespace:
    """What `lower_end` reads of a model."""
    program = SimpleNamespace(R=1, size=literals)
    return SimpleNamespace(program=program, rounding=Rounding.of(dtype), gain_below=gain)


def step_by_step(weights: SimpleNamespace, depth: int, tolerance: float, goal: float) -> float:
    """The first step at which the deepest level is above the goal, all levels at every step."""
    x = np.zeros(depth + 1)
    x[0] = 1.0 - tolerance
    for steps in range(1, 2000):
        x[1:] = np.maximum(x[1:], weights.rounding.stored_below(x[1:], weights.gain_below(x[:-1])))
        if x[depth] > goal:
            return float(steps)
    return math.inf


def draws(count: int) -> list[tuple[Gain, int, float, float]]:
    rng = np.random.default_rng(0)
    return [
        (
            sigmoidal(rng.uniform(0.2, 1.0), rng.uniform(4, 60), rng.uniform(0.3, 0.9)),
            int(rng.integers(1, 9)),
            float(rng.choice([0.0, 0.1, 0.3])),
            float(rng.choice([0.5, 0.5, 0.7])),
        )
        for _ in range(count)
    ]


@pytest.mark.quick_first
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_lower_end_is_that_of_single_steps(dtype: str, monkeypatch) -> None:
    later = 0
    finite = set()
    for gain, depth, tolerance, goal in draws(150):
        weights = weights_with(gain, dtype)
        exact = step_by_step(weights, depth, tolerance, goal)
        level = reproduced_level(weights, tolerance)
        found = lower_end(weights, depth, tolerance, goal=goal)
        if level is None:
            assert found == exact
        else:  # all levels are taken to rise no further than the reproduced one
            assert exact <= found
            assert found == exact or goal > 0.5
            later += found > exact
        with monkeypatch.context() as patch:
            patch.setattr(lower_end_module, "reproduced_level", lambda *args: None)
            assert lower_end(weights, depth, tolerance, goal=goal) == exact
        finite.add((exact < math.inf, exact > depth, level is None))
    assert {(True, True, True), (True, False, False), (False, True, True)} <= finite
    assert later < 30


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.3])
def test_a_reproduced_level_is_the_largest_fixed_point(tolerance: float) -> None:
    seen = set()
    for gain, *_ in draws(100):
        weights = weights_with(gain, "float64")
        grid = np.linspace(0.5, 1 - tolerance, 100_001)[1:]
        good = grid[gain(grid) >= grid + 1e-12]
        level = reproduced_level(weights, tolerance)
        if level is not None:
            assert 0.5 < level <= 1 - tolerance
            assert gain(np.array([level]))[0] >= level
            assert not len(good) or level >= good.max() - 1e-5
        elif len(good):  # it comes closer to the level than can be told apart
            assert np.ptp(good) < 1e-2
        seen.add(level is not None)
    assert seen == {False, True}


def test_a_level_of_one_half_is_not_above_it() -> None:
    assert reproduced_level(weights_with(lambda x: np.full(x.shape, 0.5), "float32")) is None
    above = weights_with(lambda x: np.full(x.shape, 0.5001), "float32")
    assert reproduced_level(above) == pytest.approx(0.5001, abs=1e-6)
    assert lower_end(above, 3) == 3
    # From 0.5001 a second step of this share leads to 0.75, and a third to 0.875.
    assert lower_end(above, 3, goal=0.7) == 4
    assert lower_end(above, 3, goal=0.8) == 5
    stuck = weights_with(lambda x: np.full(x.shape, 0.75), "float16")
    assert lower_end(stuck, 2, goal=1.0) == math.inf
    assert reproduced_level(weights_with(lambda x: x, "float64"), 0.25) is None  # rounded down


def test_nothing_is_needed_for_facts_alone() -> None:
    never = weights_with(lambda x: np.zeros(x.shape), "float32")
    assert lower_end(never, 0) == 0
    assert lower_end(never, 1) == math.inf
    never.program.R = 0
    assert lower_end(never, 5) == 0


@pytest.mark.quick_first
@pytest.mark.parametrize("points", [33, 257])
def test_a_grid_gives_bounds_that_are_later_by_little(points: int, monkeypatch) -> None:
    monkeypatch.setattr(lower_end_module, "_MOST_POINTS", points)
    monkeypatch.setattr(lower_end_module, "_FEWEST_POINTS", points)
    monkeypatch.setattr(lower_end_module, "_NUMBERS_AT_ONCE", 100)
    monkeypatch.setattr(lower_end_module, "_BUDGET", 1.0)
    later = lagged = 0.0
    for gain, depth, tolerance, _ in draws(60):
        weights = weights_with(gain, "float64")
        if reproduced_level(weights, tolerance) is not None:
            continue
        exact = step_by_step(weights, depth, tolerance, 0.5)
        with monkeypatch.context() as patch:
            tabulated = lower_end(weights, depth, tolerance)
            assert lower_end(weights, depth, tolerance, goal=0.6) == math.inf
            patch.setattr(lower_end_module, "_LOOKED_UP", 0.0)
            lag = lower_end(weights, depth, tolerance)
        # The share at the grid point below, looked up.
        grid = np.linspace(0.0, 1.0, points)
        coarse = weights_with(
            lambda x, gain=gain, grid=grid: gain(np.floor(x * (len(grid) - 1)) / (len(grid) - 1)),
            "float64",
        )
        assert tabulated == step_by_step(coarse, depth, tolerance, 0.5) >= exact
        # The lag: the fewest steps after which some level above one half stands again.
        fewest = math.inf
        for x in grid[(grid > 0.5) & (grid <= 1 - tolerance)]:
            reached, share = np.zeros(1), gain(np.array([x]))
            for steps in range(1, 65):
                reached = weights.rounding.stored_below(reached, share)
                if reached[0] >= x:
                    fewest = min(fewest, steps)
                    break
        assert lag == depth * fewest >= exact
        later += tabulated > exact
        lagged += math.inf > lag > exact
    assert lagged > 3


def test_a_level_that_is_just_reached_again_is_enough(monkeypatch) -> None:
    monkeypatch.setattr(lower_end_module, "_BUDGET", 1.0)
    monkeypatch.setattr(lower_end_module, "_LOOKED_UP", 0.0)
    monkeypatch.setattr(lower_end_module, "reproduced_level", lambda *args: None)
    # Stored in sixteen bits, the share is 3/4, which is a point of the grid.
    just = weights_with(lambda x: np.where(x >= 0.75, 0.7501, 0.0), "float16", 10**6)
    assert lower_end(just, 5) == 5
    assert lower_end(just, 5, 0.25) == 5
    assert lower_end(just, 5, 0.2501) == math.inf


def test_the_lower_end_of_a_long_ladder_is_found_by_its_lag(monkeypatch) -> None:
    weights = ClosedForm(ladder(4, 5), lg.Constants.paper(), dtype="float32").literal_weights()
    exact = lower_end(weights, 4)
    monkeypatch.setattr(lower_end_module, "_BUDGET", 1.0)
    monkeypatch.setattr(lower_end_module, "_LOOKED_UP", 0.0)
    for depth in (4, 1000, 10**7):
        lag = lower_end(weights, depth) / depth
        assert lag == lower_end(weights, 1) >= exact / 4


# -------------------------------------------------------------------- upper end


def steps_to(shares: Gain, start: np.ndarray, dtype: str, limit: float) -> np.ndarray | None:
    """The bounds of single steps, up to the last at the limit or below; None if they stop rising."""
    rounding, state = Rounding.of(dtype), Rounding.of(dtype).down(start)
    states = []
    while state.max() <= limit:
        states.append(state)
        state = np.minimum(1.0, rounding.stored_sum(state, rounding.added(state, shares(state))))
        if np.array_equal(state, states[-1]):
            return None
    return np.array(states)


def growing(first: np.ndarray, rate: float) -> Gain:
    """Shares that grow with the largest bound."""
    return lambda bound: first * np.exp(rate * bound.max(axis=-1, keepdims=True))


@pytest.mark.quick_first
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rate", [0.0, 5.0, 15.0])
@pytest.mark.parametrize("first", [0.2, 1e-2, 1e-4])
@pytest.mark.parametrize("limit", [0.5, 0.3])
def test_many_steps_at_once_end_where_single_steps_do(
    dtype: str, rate: float, first: float, limit: float
) -> None:
    shares = growing(np.array([first, first / 7, 0.0]), rate)
    start = np.array([0.0, 0.05, 0.1])
    states = steps_to(shares, start, dtype, limit)
    fine = 0.03
    end = follow(shares, start, Rounding.of(dtype), fine=fine, limit=limit)
    if states is None:  # states of sixteen bits
        assert end.t_max == math.inf
        return
    last = len(states) - 1
    assert end.t_max <= last
    # Sixteen bits lose more: a step may round by as much as it adds.
    assert end.t_max >= (0.85 if dtype == "float16" else 1 - 2 * fine) * last - 1
    assert end.leak == pytest.approx(first * math.exp(rate * 0.1), rel=1e-2)
    assert end.curve[0] == (0.0, pytest.approx(0.1, abs=1e-3))
    assert end.curve[-1] == (end.t_max, end.last.max())
    # Every bound on the way holds.
    for steps, bound in end.curve:
        assert states[int(steps)].max() <= bound <= limit
    assert np.all(end.last >= states[int(end.t_max)])
    assert sorted(steps for steps, _ in end.curve) == [steps for steps, _ in end.curve]


def test_a_run_may_be_followed_in_several_rows() -> None:
    """The row that ends first decides; what it is followed with does not change the others."""
    rates = np.array([[1e-3], [3e-3], [2e-3]])
    shares: Gain = lambda bound: rates * np.exp(4 * bound)  # noqa: E731
    rounding = Rounding.of("float64")
    whole = follow(shares, np.zeros((3, 1)), rounding, fine=0.01).t_max
    alone = [len(steps_to(growing(rate, 4.0), np.zeros(1), "float64", 0.5)) - 1 for rate in rates]
    assert 0.97 * min(alone) <= whole <= min(alone)


def test_a_run_ends_as_soon_as_enough_is_proved() -> None:
    shares = growing(np.array([1e-6]), 3.0)
    rounding = Rounding.of("float64")
    whole = follow(shares, np.zeros(1), rounding, fine=0.03)
    part = follow(shares, np.zeros(1), rounding, fine=0.03, until=1000.0)
    assert 1000 <= part.t_max < 8000 < whole.t_max
    assert follow(shares, np.zeros(1), rounding, fine=0.03, until=1.0).t_max == 1
    few = follow(shares, np.zeros(1), rounding, fine=0.03, most_evaluations=12)
    assert 0 < few.t_max < whole.t_max
    assert len(few.curve) <= 12
    none = follow(shares, np.zeros(1), rounding, fine=0.03, most_evaluations=1)
    assert none.t_max == 0
    assert none.curve == [(0.0, 0.0)]


def test_the_count_of_evaluations_is_kept() -> None:
    calls = 0

    def shares(bound: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return 1e-7 * np.exp(20 * bound)

    for most in (5, 50, 200):
        calls = 0
        follow(shares, np.zeros(1), Rounding.of("float64"), fine=1e-4, most_evaluations=most)
        # A step of many takes a few evaluations, and is begun while one is left.
        assert most <= calls <= 4 * most + 4


def test_an_atom_at_the_limit_is_still_below() -> None:
    rounding = Rounding.of("float32")
    nothing: Gain = lambda bound: 0.0 * bound  # noqa: E731
    assert follow(nothing, np.array([0.75]), rounding, fine=0.03).t_max == -1
    assert follow(nothing, np.array([0.75]), rounding, fine=0.03).curve == [(0.0, 0.75)]
    assert follow(nothing, np.array([0.75]), rounding, fine=0.03).leak == 1
    # In float32 nothing that is added to one half is small enough to be lost but this.
    for start in (0.5, 0.25):
        end = follow(nothing, np.array([start]), rounding, fine=0.03)
        assert (end.t_max, end.leak, end.curve) == (math.inf, 0.0, [(0.0, start)])
    whole: Gain = lambda bound: np.ones(bound.shape)  # noqa: E731
    end = follow(whole, np.array([0.0]), rounding, fine=0.03)
    assert (end.t_max, end.leak) == (0.0, 1.0)
    half: Gain = lambda bound: np.full(bound.shape, 0.4999)  # noqa: E731
    assert follow(half, np.array([0.0]), rounding, fine=0.03).t_max == 1
    # Rounded to sixteen bits, a share of one half leads exactly there.
    exactly: Gain = lambda bound: np.full(bound.shape, 0.5)  # noqa: E731
    end = follow(exactly, np.array([0.0]), Rounding.of("float16"), fine=0.03)
    assert (end.t_max, end.curve[-1]) == (1.0, (1.0, 0.5))
    empty = follow(nothing, np.zeros(0), rounding, fine=0.03)
    assert empty.t_max == math.inf


def test_a_run_longer_than_anybody_makes_ends_there() -> None:
    shares: Gain = lambda bound: np.full(bound.shape, 1e-300)  # noqa: E731
    end = follow(shares, np.zeros(1), Rounding.of("float64"), fine=0.03)
    assert end.t_max >= FAR
    assert len(end.curve) < 200


def closed_sets_of(program: Program) -> np.ndarray:
    facts = every_fact_set(program.M)
    return np.unique(lg.closures(program, facts), axis=0)


def fewest_missing(program: Program, rule: int, atom: int) -> float:
    """The fewest atoms outside of a closed set that lacks this body atom and a head of the rule."""
    heads = program.heads_of(rule)
    missing = [
        (~one).sum() for one in closed_sets_of(program) if not one[atom] and not one[heads].all()
    ]
    return min(missing, default=math.inf)


@pytest.mark.parametrize("seed", range(25))
def test_a_rule_that_lacks_an_atom_lacks_others_with_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = int(rng.integers(2, 8))
    program = random_program(rng, M, int(rng.integers(1, 2 * M + 2)), body=3)
    weights = ClosedForm(program, lg.Constants.paper()).literal_weights()
    counts = worst_cases(weights).missing
    for count, j, b in zip(counts, weights.body_rule, program.body_indices, strict=True):
        assert 1 <= count <= fewest_missing(program, int(j), int(b))


@pytest.mark.parametrize(
    "text",
    [
        "b :- a. c :- b. d :- c. e :- d.",
        "a :- b. b :- c. c :- a. d :- a. e :- d, f. f :- g.",
        "x :- a, b. y :- x, c. z :- y. y :- z.",
    ],
)
def test_what_is_missing_with_an_atom_is_counted_exactly_on_simple_programs(text: str) -> None:
    program = lg.parse(text)
    weights = ClosedForm(program, lg.Constants.paper()).literal_weights()
    counts = worst_cases(weights).missing
    expected = [
        fewest_missing(program, int(j), int(b))
        for j, b in zip(weights.body_rule, program.body_indices, strict=True)
    ]
    assert counts.tolist() == expected


def test_which_bounds_are_used_depends_on_the_size() -> None:
    program = lg.parse("b :- a. c :- b. d.")
    model = lg.oracle(program, form="dense", dtype=torch.float64)
    weights = model.literal_weights(program)
    worst = worst_cases(weights)
    assert {program.atoms[i] for i in np.flatnonzero(worst.always)} == {"d"}
    assert len(worst.sets) == 3
    assert worst.missing is not None
    assert worst.uniform is None
    assert worst_cases(replace(weights, whole=None)).sets is None
    facts = lg.parse("a. b :- a.")
    whole = worst_cases(lg.oracle(facts, form="dense").literal_weights(facts))
    assert (whole.always.tolist(), whole.sets) == ([True, True], None)
    end = upper_end(whole, 0.1)
    assert (end.t_max, end.leak, end.atom, end.curve) == (math.inf, 0.0, None, [(0.0, 0.1)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upper_end_module, "REFINED_UP_TO", program.size)
        assert worst_cases(weights).uniform is None
        patch.setattr(upper_end_module, "REFINED_UP_TO", program.size - 1)
        assert worst_cases(weights).uniform is not None
        assert worst_cases(weights).missing is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upper_end_module, "MOST_ATOMS", program.M)
        assert worst_cases(weights).missing is not None
        patch.setattr(upper_end_module, "MOST_ATOMS", program.M - 1)
        assert worst_cases(weights).missing is None


def last_good_step(model: lg.LatentGamma, tolerance: float, limit: float, most: int) -> int:
    """The last step at which no underivable atom is above the limit, over all closed sets."""
    program = model.program
    closed = closed_sets_of(program)
    closed = closed[~closed.all(1)]
    state = torch.from_numpy(np.where(closed, 1.0, tolerance)).to(model.dtype)
    outside = torch.from_numpy(~closed)
    with torch.no_grad():
        for steps in range(most):
            if bool(((state > limit) & outside).any()):
                return steps - 1
            state = model.step(state)
            # Atoms inside stay at one, where the worst case has them.
            state = torch.where(outside, state, torch.ones_like(state))
    return most


@pytest.mark.quick_first
@pytest.mark.parametrize("closely", [10_000, 0])
@pytest.mark.parametrize("limit", [0.5, 0.2])
@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_the_upper_end_by_closed_sets_is_where_the_model_fails(
    closely: int, limit: float, tolerance: float, monkeypatch
) -> None:
    monkeypatch.setattr(upper_end_module, "_CLOSELY_UP_TO", closely)
    tight = seen = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        M = int(rng.integers(2, 6))
        program = random_program(rng, M, int(rng.integers(1, 2 * M + 2)), body=3)
        constants = lg.Constants(*rng.uniform([3, 5, 4, 0.5, 3, 1.5], [6, 9, 7, 0.99, 9, 4]))
        model = lg.oracle(program, constants, form="dense", dtype=torch.float64)
        worst = worst_cases(model.literal_weights(program))
        if worst.sets is None:
            continue
        end = upper_end(worst, tolerance, limit=limit)
        real = last_good_step(model, tolerance, limit, 150)
        assert end.t_max <= real or real == 150
        tight += end.t_max >= 0.9 * real - 1
        seen += real < 150
        if not closely:  # the bound by literals may be as good, and has its own
            continue
        # The share of the first step, and the atom that has it.
        closed = worst.sets
        state = torch.from_numpy(np.where(closed, 1.0, tolerance))
        with torch.no_grad():
            share = ((model.step(state) - state) / (1 - state)).nan_to_num(0.0).numpy()
        share[closed] = 0.0
        assert end.leak == pytest.approx(share.max(), rel=1e-6)
        assert share[:, end.atom].max() == pytest.approx(share.max(), rel=1e-9)
    assert seen >= 4
    assert tight >= 7


@pytest.mark.parametrize("seed", [2, 11])
@pytest.mark.parametrize("sets", [1, 2])
def test_sets_that_are_followed_less_closely_do_not_end_it_early(
    seed: int, sets: int, monkeypatch
) -> None:
    """Few sets are followed closely, all others coarsely: still nearly as far."""
    program = random_program(np.random.default_rng(seed), 7, 12, body=3)
    model = lg.oracle(program, lg.Constants(6.0, 12.0, 8.0, 0.9, 6.0, 3.0), form="dense")
    weights = model.literal_weights(program)
    worst = worst_cases(weights)
    whole = upper_end(worst).t_max
    literals = upper_end(worst._replace(sets=None)).t_max
    assert len(worst.sets) > 2
    assert literals < 0.85 * whole
    numbers = weights.whole.body.size + sum(weights.whole.body.shape)
    monkeypatch.setattr(upper_end_module, "_CLOSELY_UP_TO", sets * numbers)
    assert 0.95 * whole <= upper_end(worst).t_max <= 1.01 * whole
    # Time for one pass only: never further than the bounds of all sets, nor less than by literals.
    monkeypatch.setattr(upper_end_module, "_EVALUATIONS_OF_TWO_PASSES", 10**9)
    assert literals <= upper_end(worst).t_max <= 1.01 * whole


@pytest.mark.slow
def test_atoms_that_are_missing_together_make_the_bound_by_literals_tight() -> None:
    # Weights off the bodies are large: with one atom missing they would do for it.
    program, constants = clique(8), lg.Constants(3.0, 20.0, 7.0, 0.95, 6.0, 5.0)
    worst = worst_cases(ClosedForm(program, constants, dtype="float64").literal_weights())
    model = lg.oracle(program, constants, form="dense", dtype=torch.float64)
    state, steps = model.state([]), -1
    with torch.no_grad():
        while not (state > 0.5).any():
            state, steps = model.step(state), steps + 1
    assert steps > 100
    assert 0.9 * steps <= upper_end(worst).t_max <= steps
    assert upper_end(worst._replace(missing=None)).t_max < 0.2 * steps


@pytest.mark.parametrize(
    ("first", "rate", "fine", "steps", "most"),
    [
        (1e-7, 20.0, 0.03, 489_000, 110),
        (1e-7, 20.0, 0.01, 510_000, 208),
        (1e-4, 5.0, 0.03, 2_100, 68),
        (1e-9, 10.0, 0.01, 107_500_000, 224),
        (1e-5, 0.0, 0.03, 69_314, 37),
    ],
)
def test_long_runs_take_few_evaluations(
    first: float, rate: float, fine: float, steps: int, most: int
) -> None:
    calls = 0

    def shares(bound: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return growing(np.array([first, first / 100]), rate)(bound)

    assert follow(shares, np.zeros(2), Rounding.of("float64"), fine=fine).t_max >= steps
    assert calls <= most


@pytest.mark.parametrize(
    ("dtype", "first", "rate", "most"),
    [("float16", 1e-4, 10.0, 78), ("bfloat16", 1e-3, 3.0, 66), ("bfloat16", 1e-5, 5.0, 12)],
)
def test_rounding_to_sixteen_bits_takes_few_more_evaluations(
    dtype: str, first: float, rate: float, most: int
) -> None:
    """What is supposed of the end of many steps is too low there at first, and is corrected."""
    calls = 0

    def shares(bound: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return np.array([first, first / 3, first / 100]) * np.exp(rate * bound)

    follow(shares, np.array([0.0, 0.1, 0.2]), Rounding.of(dtype), fine=0.03)
    assert calls <= most


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_the_upper_end_by_literals_names_the_atom_that_rises_most(form: str) -> None:
    program = lg.parse("b :- a. c :- a, b. d :- e. f. g :- f.")  # f and g are always true
    model = lg.oracle(program, lg.Constants.paper(), form=form, dtype=torch.float64)
    with torch.no_grad():
        model.offset[program.index["c"]] -= 1.0
    end = upper_end(worst_cases(replace(model.literal_weights(program), whole=None)), 0.01)
    assert program.atoms[end.atom] == "c"
    assert end.t_max > 1
    # Nothing is above one half, unless more is allowed.
    assert 0.3 < end.curve[-1][1] <= 0.5
    more = upper_end(
        worst_cases(replace(model.literal_weights(program), whole=None)), 0.01, limit=0.9
    )
    assert more.curve[-1][1] > 0.5
