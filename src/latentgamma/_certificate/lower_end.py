"""The first step by which every derivable atom is above one half.

Let x_d bound from below every atom that is derivable in at most d steps. Such an atom has a rule
whose body atoms are at least x_{d−1}, so in one step it goes at least the share f(x_{d−1}), the
least over all rules and heads: x_d ← x_d + (1 − x_d) f(x_{d−1}). Facts are at x_0 = 1 − tolerance,
and states never fall: rounding is monotone, and nothing negative is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from latentgamma._certificate.rounding import Array, Rounding
from latentgamma._certificate.step_bounds import Reading

#: About how many numbers this end of the window may touch: it decides how finely we look.
_BUDGET = 2e7
#: About how many numbers may be looked up in a grid, one after another.
_LOOKED_UP = 2e5
#: About how many levels rise at the same time.
_AT_ONCE = 32
#: The fewest and the most points of a grid, and the numbers that are computed for it at once.
_FEWEST_POINTS, _MOST_POINTS = 33, 4097
_NUMBERS_AT_ONCE = 1e6
#: How often a lower level is tried, and by which part it is lower than the one that was reached.
_ATTEMPTS = 64
_A_LITTLE = 1e-9
#: A level that has risen to this lets the next one start; one that rises by less has settled.
_STARTED = 1e-3
_SETTLED = 1e-9
#: The most steps for each level, and for some more; whatever takes longer creeps by leaks.
_STEPS_PER_LEVEL, _MORE_LEVELS = 64, 16


def lower_end(reading: Reading, depth: int, tolerance: float = 0.0, *, goal: float = 0.5) -> float:
    """A step by which every atom of at most this depth is above the goal.

    It is so early for shallow atoms, too: those of depth d are above the goal by the step that is
    depth − d before. `steps=None` counts on that.
    """
    if depth == 0 or reading.program.R == 0:
        return 0.0
    literals, rounding = reading.program.size, reading.rounding
    level = reproduced_level(reading, tolerance)
    if level is not None:
        return depth + _steps_on(reading, level, goal)
    if depth * _AT_ONCE * literals <= _BUDGET:
        return _march(reading.gain_below, depth, rounding, tolerance, goal)
    if goal > 0.5:
        return math.inf  # the coarser bounds below speak of one half alone
    grid = np.linspace(0.0, 1.0, int(np.clip(_BUDGET / literals, _FEWEST_POINTS, _MOST_POINTS)))
    chunks = np.array_split(grid, math.ceil(len(grid) * literals / _NUMBERS_AT_ONCE))
    values = np.concatenate([reading.gain_below(chunk) for chunk in chunks])
    if depth * _AT_ONCE <= _LOOKED_UP:
        # f rises, so its value at the grid point below is a bound.
        below: Callable[[Array], Array] = lambda x: values[np.searchsorted(grid, x, "right") - 1]  # noqa: E731
        return _march(below, depth, rounding, tolerance, goal)
    return depth * _lag(grid, values, rounding, tolerance)


def reproduces(reading: Reading, tolerance: float = 0.0) -> bool:
    """Whether some level x > ½ of the bodies brings every head to x in one step."""
    return reproduced_level(reading, tolerance) is not None


def reproduced_level(reading: Reading, tolerance: float = 0.0) -> float | None:
    """A level x > ½ of the bodies that brings every head to x in one step: f(x) ≥ x; or None.

    Atoms of depth d are there after d steps, for every d.
    """
    x = 1.0 - tolerance
    for _ in range(_ATTEMPTS):
        if x <= 0.5:
            return None
        reached = float(reading.rounding.stored_below(0.0, reading.gain_below(np.array([x])))[0])
        if reached >= x:
            return x
        x = reached * (1 - _A_LITTLE)
    return None


def _steps_on(reading: Reading, level: float, goal: float) -> float:
    """The steps that lift atoms from a reproduced level above the goal, bodies at that level."""
    share = reading.gain_below(np.array([level]))
    x, steps = np.array([level]), 0
    while x[0] <= goal:
        risen = reading.rounding.stored_below(x, share)
        if risen[0] <= x[0]:
            return math.inf
        x, steps = risen, steps + 1
    return float(steps)


def _march(
    gain: Callable[[Array], Array], depth: int, rounding: Rounding, tolerance: float, goal: float
) -> float:
    """x_d ← x_d + (1 − x_d) f(x_{d−1}), until every level is above the goal.

    Level d gets there in d steps and some more; the result allows every level the most of these.
    Levels that hardly rise any more are left where they are, and levels above one that has
    hardly risen at 0: both are bounds from below.
    """
    most = _STEPS_PER_LEVEL * (depth + _MORE_LEVELS)
    if _is_hopeless(gain, depth, most, 1.0 - tolerance, goal):
        return math.inf
    level = np.zeros(depth + 1)
    level[0] = 1.0 - tolerance
    low = high = 1  # the levels that rise
    reached, more = 0, 0  # levels up to this one are above the goal, after d + more steps at most
    for steps in range(1, most + 1):
        rise = rounding.stored_below(level[low : high + 1], gain(level[low - 1 : high]))
        moved = rise - level[low : high + 1]
        level[low : high + 1] = np.maximum(level[low : high + 1], rise)
        while reached < depth and level[reached + 1] > goal:
            reached += 1
            more = max(more, steps - reached)
        if reached == depth:
            return float(depth + more)
        while low <= high and moved[0] <= _SETTLED and level[low] > 0.5 and low < depth:
            low, moved = low + 1, moved[1:]
        if high < depth and level[high] > _STARTED:
            high += 1
        elif not np.any(moved > 0):
            return math.inf
    return math.inf  # creeping by leaks, which is no proof anyone could use


def _is_hopeless(
    gain: Callable[[Array], Array], depth: int, most: int, start: float, goal: float
) -> bool:
    """Whether some level stays below the goal though the one before it is at its best all along."""
    best = np.array([start])
    for _ in range(depth):
        before = best
        with np.errstate(divide="ignore"):  # a share of one is there at once
            best = -np.expm1(most * np.log1p(-np.minimum(1.0, gain(best))))
        if best[0] <= goal:
            return True
        if best[0] >= before[0]:
            return False
    return False


def _lag(grid: Array, values: Array, rounding: Rounding, tolerance: float) -> float:
    """The fewest steps in which some level above one half reproduces itself."""
    level = np.zeros_like(grid)
    for steps in range(1, _STEPS_PER_LEVEL + 1):
        level = rounding.stored_below(level, values)
        if np.any((grid > 0.5) & (grid <= 1.0 - tolerance) & (level >= grid)):
            return float(steps)
    return math.inf
