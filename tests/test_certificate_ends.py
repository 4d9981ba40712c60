"""Both ends of the window, against loops that take one step after another."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import latentgamma as lg
from latentgamma._certificate import lower_end as lower_end_module
from latentgamma._certificate.closed_form import ClosedForm
from latentgamma._certificate.lower_end import lower_end, reproduced_level, reproduces
from latentgamma._certificate.rounding import Rounding
from latentgamma._certificate.upper_end import FAR, follow
from latentgamma.generators import ladder

DTYPES = ["float64", "float32", "float16"]
Gain = Callable[[np.ndarray], np.ndarray]


# -------------------------------------------------------------------- lower end


def sigmoidal(most: float, slope: float, middle: float) -> Gain:
    """A share that rises with the level of the bodies, and is nothing below 0.05."""
    return lambda x: np.where(x < 0.05, 0.0, most / (1 + np.exp(-slope * (x - middle))))


def reading_of(gain: Gain, dtype: str, literals: int = 10) -> SimpleNamespace:
    """What `lower_end` reads of a model."""
    program = SimpleNamespace(R=1, size=literals)
    return SimpleNamespace(program=program, rounding=Rounding.of(dtype), gain_below=gain)


def step_by_step(reading: SimpleNamespace, depth: int, tolerance: float, goal: float) -> float:
    """The first step at which the deepest level is above the goal, all levels at every step."""
    x = np.zeros(depth + 1)
    x[0] = 1.0 - tolerance
    for steps in range(1, 2000):
        x[1:] = np.maximum(x[1:], reading.rounding.stored_below(x[1:], reading.gain_below(x[:-1])))
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_lower_end_is_that_of_single_steps(dtype: str, monkeypatch) -> None:
    later = 0
    finite = set()
    for gain, depth, tolerance, goal in draws(150):
        reading = reading_of(gain, dtype)
        exact = step_by_step(reading, depth, tolerance, goal)
        level = reproduced_level(reading, tolerance)
        found = lower_end(reading, depth, tolerance, goal=goal)
        if level is None:
            assert found == exact
        else:  # all levels are taken to rise no further than the reproduced one
            assert exact <= found
            assert found == exact or goal > 0.5
            later += found > exact
        with monkeypatch.context() as patch:
            patch.setattr(lower_end_module, "reproduced_level", lambda *args: None)
            assert lower_end(reading, depth, tolerance, goal=goal) == exact
        finite.add((exact < math.inf, exact > depth, level is None))
    assert {(True, True, True), (True, False, False), (False, True, True)} <= finite
    assert later < 30


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.3])
def test_a_reproduced_level_is_the_largest_fixed_point(tolerance: float) -> None:
    seen = set()
    for gain, *_ in draws(100):
        reading = reading_of(gain, "float64")
        grid = np.linspace(0.5, 1 - tolerance, 100_001)[1:]
        good = grid[gain(grid) >= grid + 1e-12]
        level = reproduced_level(reading, tolerance)
        assert reproduces(reading, tolerance) == (level is not None)
        if level is not None:
            assert 0.5 < level <= 1 - tolerance
            assert gain(np.array([level]))[0] >= level
            assert not len(good) or level >= good.max() - 1e-5
        elif len(good):  # it comes closer to the level than can be told apart
            assert np.ptp(good) < 1e-2
        seen.add(level is not None)
    assert seen == {False, True}


def test_a_level_of_one_half_is_not_above_it() -> None:
    assert reproduced_level(reading_of(lambda x: np.full(x.shape, 0.5), "float32")) is None
    above = reading_of(lambda x: np.full(x.shape, 0.5001), "float32")
    assert reproduced_level(above) == pytest.approx(0.5001, abs=1e-6)
    assert reproduces(above)
    assert lower_end(above, 3) == 3
    # From 0.5001 a second step of this share leads to 0.75, and a third to 0.875.
    assert lower_end(above, 3, goal=0.7) == 4
    assert lower_end(above, 3, goal=0.8) == 5
    stuck = reading_of(lambda x: np.full(x.shape, 0.75), "float16")
    assert lower_end(stuck, 2, goal=1.0) == math.inf
    assert reproduced_level(reading_of(lambda x: x, "float64"), 0.25) is None  # rounded down


def test_nothing_is_needed_for_facts_alone() -> None:
    never = reading_of(lambda x: np.zeros(x.shape), "float32")
    assert lower_end(never, 0) == 0
    assert lower_end(never, 1) == math.inf
    never.program.R = 0
    assert lower_end(never, 5) == 0


@pytest.mark.parametrize("points", [33, 257])
def test_a_grid_gives_bounds_that_are_later_by_little(points: int, monkeypatch) -> None:
    monkeypatch.setattr(lower_end_module, "_MOST_POINTS", points)
    monkeypatch.setattr(lower_end_module, "_FEWEST_POINTS", points)
    monkeypatch.setattr(lower_end_module, "_NUMBERS_AT_ONCE", 100)
    monkeypatch.setattr(lower_end_module, "_BUDGET", 1.0)
    later = lagged = 0.0
    for gain, depth, tolerance, _ in draws(60):
        reading = reading_of(gain, "float64")
        if reproduced_level(reading, tolerance) is not None:
            continue
        exact = step_by_step(reading, depth, tolerance, 0.5)
        with monkeypatch.context() as patch:
            tabulated = lower_end(reading, depth, tolerance)
            assert lower_end(reading, depth, tolerance, goal=0.6) == math.inf
            patch.setattr(lower_end_module, "_LOOKED_UP", 0.0)
            lag = lower_end(reading, depth, tolerance)
        # The share at the grid point below, looked up.
        grid = np.linspace(0.0, 1.0, points)
        coarse = reading_of(
            lambda x, gain=gain, grid=grid: gain(np.floor(x * (len(grid) - 1)) / (len(grid) - 1)),
            "float64",
        )
        assert tabulated == step_by_step(coarse, depth, tolerance, 0.5) >= exact
        # The lag: the fewest steps after which some level above one half stands again.
        fewest = math.inf
        for x in grid[(grid > 0.5) & (grid <= 1 - tolerance)]:
            reached, share = np.zeros(1), gain(np.array([x]))
            for steps in range(1, 65):
                reached = reading.rounding.stored_below(reached, share)
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
    just = reading_of(lambda x: np.where(x >= 0.75, 0.7501, 0.0), "float16", 10**6)
    assert lower_end(just, 5) == 5
    assert lower_end(just, 5, 0.25) == 5
    assert lower_end(just, 5, 0.2501) == math.inf


def test_the_lower_end_of_a_long_ladder_is_found_by_its_lag(monkeypatch) -> None:
    reading = ClosedForm(ladder(4, 5), lg.Constants.paper(), dtype="float32").reading()
    exact = lower_end(reading, 4)
    monkeypatch.setattr(lower_end_module, "_BUDGET", 1.0)
    monkeypatch.setattr(lower_end_module, "_LOOKED_UP", 0.0)
    for depth in (4, 1000, 10**7):
        lag = lower_end(reading, depth) / depth
        assert lag == lower_end(reading, 1) >= exact / 4


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
    # In float32 nothing that is added to one half is small enough to be lost but this.
    for start in (0.5, 0.25):
        end = follow(nothing, np.array([start]), rounding, fine=0.03)
        assert (end.t_max, end.leak, end.curve) == (math.inf, 0.0, [(0.0, start)])
    whole: Gain = lambda bound: np.ones(bound.shape)  # noqa: E731
    end = follow(whole, np.array([0.0]), rounding, fine=0.03)
    assert (end.t_max, end.leak) == (0.0, 1.0)
    half: Gain = lambda bound: np.full(bound.shape, 0.4999)  # noqa: E731
    assert follow(half, np.array([0.0]), rounding, fine=0.03).t_max == 1
    empty = follow(nothing, np.zeros(0), rounding, fine=0.03)
    assert empty.t_max == math.inf


def test_a_run_longer_than_anybody_makes_ends_there() -> None:
    shares: Gain = lambda bound: np.full(bound.shape, 1e-300)  # noqa: E731
    end = follow(shares, np.zeros(1), Rounding.of("float64"), fine=0.03)
    assert end.t_max >= FAR
    assert len(end.curve) < 200
