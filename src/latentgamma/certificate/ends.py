"""The two ends of a window: the first step that derives everything, the last one before a false atom."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.certificate.bounds import LiteralWeights, UniformBound, row_min
from latentgamma.certificate.closed_sets import MOST_ATOMS, Complements, maximal_closed_sets
from latentgamma.certificate.rounding import ABOVE, Array, Rounding
from latentgamma.logic.closure import closure

# ---- The lower end: the first step by which every derivable atom is above one half
# Let x_d bound from below every atom that is derivable in at most d steps. Such an atom has a rule
# whose body atoms are at least x_{d−1}, so in one step it goes at least the share f(x_{d−1}), the
# least over all rules and heads: x_d ← x_d + (1 − x_d) f(x_{d−1}). Facts are at x_0 = 1 − tolerance,
# and states never fall: rounding is monotone, and nothing negative is added.

# These numbers trade time for the length of the window. Whatever they are, the window is proved.

#: Numbers that `lower_end` may compute, roughly: it decides how many points the grid for f has.
_BUDGET = 2e7
#: Values of f that may be looked up in the grid, one after another, roughly.
_LOOKED_UP = 2e5
#: Levels x_d that rise at the same time, roughly.
_AT_ONCE = 32
#: The fewest and the most points of the grid, and the numbers that are computed for it at once.
_FEWEST_POINTS, _MOST_POINTS = 33, 4097
_NUMBERS_AT_ONCE = 1e6
#: How often `reproduced_level` tries a lower level, and by which fraction it is below the one reached.
_ATTEMPTS = 64
_A_LITTLE = 1e-9
#: A level that has risen to this lets the next one start; one that rises by less has settled.
_STARTED = 1e-3
_SETTLED = 1e-9
#: The most steps for each level, and how many levels more are allowed for; what takes longer rises
#: by leaks alone.
_STEPS_PER_LEVEL, _MORE_LEVELS = 64, 16


def lower_end(
    weights: LiteralWeights, depth: int, tolerance: float = 0.0, *, goal: float = 0.5
) -> float:
    """Return a step by which every atom of at most this depth is above the goal.

    It is so early for shallow atoms, too: those of depth d are above the goal by the step that is
    depth − d before. `steps=None` counts on that.
    """
    if depth == 0 or weights.program.R == 0:
        return 0.0
    literals, rounding = weights.program.size, weights.rounding
    level = reproduced_level(weights, tolerance)
    if level is not None:
        return depth + _steps_to_goal(weights, level, goal)
    if depth * _AT_ONCE * literals <= _BUDGET:
        return _iterate_levels(weights.gain_below, depth, rounding, tolerance, goal)
    if goal > 0.5:
        return math.inf  # the coarser bounds below are about one half alone
    grid = np.linspace(0.0, 1.0, int(np.clip(_BUDGET / literals, _FEWEST_POINTS, _MOST_POINTS)))
    chunks = np.array_split(grid, math.ceil(len(grid) * literals / _NUMBERS_AT_ONCE))
    values = np.concatenate([weights.gain_below(chunk) for chunk in chunks])
    if depth * _AT_ONCE <= _LOOKED_UP:
        # f rises, so its value at the grid point below is a bound.
        below: Callable[[Array], Array] = lambda x: values[np.searchsorted(grid, x, "right") - 1]  # noqa: E731
        return _iterate_levels(below, depth, rounding, tolerance, goal)
    return depth * _lag(grid, values, rounding, tolerance)


def reproduced_level(weights: LiteralWeights, tolerance: float = 0.0) -> float | None:
    """Return a level x > ½ with f(x) ≥ x: bodies at x bring all heads to x in one step; or None.

    Atoms of depth d are there after d steps, for every d.
    """
    x = 1.0 - tolerance
    for _ in range(_ATTEMPTS):
        if x <= 0.5:
            return None
        reached = float(weights.rounding.stored_below(0.0, weights.gain_below(np.array([x])))[0])
        if reached >= x:
            return x
        x = reached * (1 - _A_LITTLE)
    return None


def _steps_to_goal(weights: LiteralWeights, level: float, goal: float) -> float:
    """Return the steps that take atoms from a reproduced level to above the goal."""
    share = weights.gain_below(np.array([level]))
    x, steps = np.array([level]), 0
    while x[0] <= goal:
        risen = weights.rounding.stored_below(x, share)
        if risen[0] <= x[0]:
            return math.inf
        x, steps = risen, steps + 1
    return float(steps)


def _iterate_levels(
    gain: Callable[[Array], Array], depth: int, rounding: Rounding, tolerance: float, goal: float
) -> float:
    """Iterate x_d ← x_d + (1 − x_d) f(x_{d−1}) until every level is above the goal.

    Level d gets there in d steps and some more; the result allows every level the most of these.
    Levels that hardly rise any more are left where they are, and levels above one that has
    hardly risen at 0: both are bounds from below.
    """
    most = _STEPS_PER_LEVEL * (depth + _MORE_LEVELS)
    if _cannot_reach(gain, depth, most, 1.0 - tolerance, goal):
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
    return math.inf  # it rises by leaks alone, too slowly to be of use


def _cannot_reach(
    gain: Callable[[Array], Array], depth: int, most: int, start: float, goal: float
) -> bool:
    """Return whether a level stays below the goal even if the one before it is at its highest."""
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
    """Return the fewest steps in which some level above one half reproduces itself."""
    level = np.zeros_like(grid)
    for steps in range(1, _STEPS_PER_LEVEL + 1):
        level = rounding.stored_below(level, values)
        if np.any((grid > 0.5) & (grid <= 1.0 - tolerance) & (level >= grid)):
            return float(steps)
    return math.inf


# ---- The upper end: the last step up to which no underivable atom is above one half
# Let ℓ bound the underivable atoms of a state. One step brings them to at most ℓ + (1 − ℓ) c(ℓ), where
# c is monotone in ℓ and comes from `bounds`. There are two ways to c, the first for programs
# that are small enough.
#
# *By closed sets.* The fact sets that are worst for some underivable atom are the maximal closed sets
# without it (`closed_sets`). From each of them the bound follows the model itself: atoms inside are
# at one, atoms outside at ℓ. What is proved is then what happens, but for the rounding.
#
# *By literals.* Every rule of an underivable atom lacks a body atom b, which is at most ℓ_b, and with
# it the atoms that are missing wherever b is. All other atoms are taken to be true, and all rows
# that stand for other atoms to fire.

#: The largest share that each atom may go in a step from a state of at most this, as (…, atoms).
Shares: TypeAlias = Callable[[Array], Array]

#: More steps than any run takes; a window that reaches this far is reported as ending here.
FAR = 1e60
#: Up to this many literals every atom has a bound of its own; beyond, all share the worst one.
REFINED_UP_TO = 200_000
#: The fraction of the window that may be lost by taking many steps at once, roughly; the second one
#: is used where there are few closed sets.
_FINE = 0.03
_FINEST = 0.01
#: Weights that one evaluation of all closed sets may use, and of those that are followed with `_FINE`.
_SETS_UP_TO = 6_000_000
_CLOSELY_UP_TO = 10_000
#: Evaluations of the shares after which the search ends with what is proved so far, and numbers that
#: all evaluations for closed sets may compute together: about a second.
_MOST_EVALUATIONS = 4_000
_MOST_NUMBERS = 10_000_000
#: The losses (as `_FINE`) with which the remaining closed sets are checked, one after the other; with
#: time for fewer evaluations than the second number, only the first loss is tried.
_COARSE = (0.3, 0.1)
_EVALUATIONS_OF_TWO_PASSES = 200
#: Closed sets are ranked by the largest share at the start and, a second time, at this level.
_A_LITTLE_LATER = 0.05
#: The bound by literals is taken if its window is this fraction of the one by closed sets.
_GOOD_ENOUGH = 0.9
#: In `follow`: the largest loss; the factor by which the number of steps at once may grow, and by
#: which that factor grows again after a failure; and that number as a multiple of what the loss allows.
_MOST_LOSS = 0.5
_FASTEST, _RECOVERY = 4.0, 1.5
_LENGTH = 1.4
#: In `_many_steps`: the first guess as a multiple of the rise; by which multiple of the loss rises and
#: shares may exceed the current ones; the least rise of an atom, as a fraction of the largest; and how
#: often the assumed bound `top` is raised.
_GUESS = 1.5
_ASSUMED = 2.0
_LEAST_RISE = 1e-3
_CORRECTIONS = 3


class UpperEnd(NamedTuple):
    """The last step that is proved, with what led to it."""

    t_max: float
    leak: float  # the largest share in the first step
    atom: int | None  # the atom that has it
    curve: list[tuple[float, float]]  # (steps, the largest bound after them)
    last: Array  # the bounds after the last of them


class Worst(NamedTuple):
    """What bounds the underivable atoms of a model: the same for every tolerance."""

    weights: LiteralWeights
    always: npt.NDArray[np.bool_]  # (M,) derived from any facts
    sets: npt.NDArray[np.bool_] | None  # the maximal closed sets, where they can be followed
    missing: Array | None  # (body literals,) how many atoms a rule lacks that lacks this one
    uniform: UniformBound | None  # of programs that are too large for a bound for each atom


def worst_cases(weights: LiteralWeights) -> Worst:
    """Return what bounds the underivable atoms of a model, by closed sets if that is possible."""
    program = weights.program
    always, sets = closure(program).state, None
    if weights.whole is not None and not always.all():
        sets = maximal_closed_sets(program, _SETS_UP_TO // max(1, weights.whole.body.size))
    missing = uniform = None
    if program.size > REFINED_UP_TO:
        uniform = UniformBound(weights, always)
    elif program.M <= MOST_ATOMS:
        missing = _missing_with(weights)
    return Worst(weights, always, sets, missing, uniform)


def _missing_with(weights: LiteralWeights) -> Array:
    """Return, for each body literal b, the fewest missing atoms where b and a head are missing."""
    program = weights.program
    search = Complements(program)
    least, group = search.least_missing(), np.array(search.group, np.int64)
    size = np.bincount(group, minlength=program.M)
    fewest = np.full(program.R, program.M)  # over the heads of a rule
    np.minimum.at(fewest, weights.head_rule, least[program.head_indices])
    atom = program.body_indices
    counts = np.maximum(least[atom], fewest[weights.body_rule]).astype(np.float64)
    # With one head, the group of the head is missing, too.
    single = program.head_sizes[weights.body_rule] == 1
    first = program.head_indices[program.head_indptr[:-1]][weights.body_rule[single]]
    apart = group[atom[single]] != group[first]
    both = least[atom[single]] + np.where(apart, size[group[first]], 0)
    counts[single] = np.maximum(counts[single], both)
    return np.asarray(counts, np.float64)


def upper_end(worst: Worst, tolerance: float = 0.0, *, limit: float = 0.5) -> UpperEnd:
    """Return the last step up to which no underivable atom is above the limit."""
    if worst.always.all():
        return UpperEnd(math.inf, 0.0, None, [(0.0, tolerance)], np.zeros(0))
    if worst.sets is not None:
        return _by_closed_sets(worst, tolerance, limit)
    return _by_literals(worst, tolerance, limit)


def _by_literals(worst: Worst, tolerance: float, limit: float) -> UpperEnd:
    program, rounding = worst.weights.program, worst.weights.rounding
    if worst.uniform is not None:
        return follow(worst.uniform, np.full(1, tolerance), rounding, fine=_FINE, limit=limit)
    shares, start = _shares_by_literals(worst), np.full(program.M, tolerance)
    end = follow(shares, start, rounding, fine=_FINE, limit=limit)
    return end._replace(atom=int(np.argmax(shares(start))))


# ---- What bounds a step


def _shares_by_literals(worst: Worst) -> Shares:
    weights, program = worst.weights, worst.weights.program
    background = np.minimum(weights.least_weight[weights.body_rule], weights.body)
    own = weights.body - background

    def shares(bound: Array) -> Array:
        level = 1.0 - bound[program.body_indices]
        if worst.missing is None:
            lack = weights.body * level
        else:
            lack = own * level + background * worst.missing * (1.0 - bound.max())
            lack = np.maximum(lack, weights.body * level)
        share = weights.share_above(row_min(lack, program))
        share[worst.always] = 0.0
        return share

    return shares


def _by_closed_sets(worst: Worst, tolerance: float, limit: float) -> UpperEnd:
    weights = worst.weights
    whole, gates, rounding = weights.whole, weights.gates, weights.rounding
    sets = worst.sets
    if whole is None or sets is None:
        raise ValueError("closed sets can be followed in models with all weights only")

    def shares_of(inside: npt.NDArray[np.bool_]) -> Shares:
        def shares(bound: Array) -> Array:
            state = np.where(inside, 1.0, bound)
            return np.where(inside, 0.0, whole.share(state, gates, rounding, ABOVE))

        return shares

    def start(inside: npt.NDArray[np.bool_]) -> Array:
        return np.where(inside, 0.0, tolerance)

    def followed(rows: npt.NDArray[np.int64], fine: float, until: float = FAR) -> UpperEnd:
        inside = sets[rows]
        most = _MOST_NUMBERS // (len(rows) * sum(whole.body.shape))
        return follow(
            shares_of(inside), start(inside), rounding,
            fine=fine, limit=limit, until=until, most_evaluations=min(most, _MOST_EVALUATIONS),
        )  # fmt: skip

    first = shares_of(sets)(start(sets))  # (sets, M)
    atom = int(np.unravel_index(first.argmax(), first.shape)[1])
    every = np.arange(len(sets))
    close = max(1, _CLOSELY_UP_TO // (whole.body.size + sum(whole.body.shape)))
    if len(sets) <= close:
        end = followed(every, _FINEST)
        return end._replace(leak=float(first.max()), atom=atom)
    # The sets whose atoms rise most at the start and a little later are followed closely, the
    # others only as closely as it takes to see that they last as long.
    later = shares_of(sets)(np.where(sets, 0.0, max(tolerance, _A_LITTLE_LATER)))
    early_first = np.argsort(-first.max(axis=1), kind="stable")
    late_first = np.argsort(-later.max(axis=1), kind="stable")
    chosen = np.unique(np.concatenate([early_first[:close], late_first[:close]]))
    end = followed(chosen, _FINE)
    coarse = _by_literals(worst, tolerance, limit)
    # With time for few evaluations only, a second pass would not end.
    numbers = len(sets) * sum(whole.body.shape)
    twice = _EVALUATIONS_OF_TWO_PASSES * numbers <= _MOST_NUMBERS
    for fine in _COARSE if twice else _COARSE[:1]:
        if coarse.t_max >= _GOOD_ENOUGH * end.t_max:  # no set could add much
            return coarse
        rest = np.setdiff1d(every, chosen)
        if not len(rest):  # every set was followed closely
            end = end._replace(leak=float(first.max()), atom=atom)
            return max(coarse, end, key=lambda one: one.t_max)
        others = followed(rest, fine, until=end.t_max)
        if others.t_max >= end.t_max:
            break
        furthest = np.argsort(-others.last.max(axis=1), kind="stable")
        chosen = np.union1d(chosen, rest[furthest[: 2 * close]])
        end = followed(chosen, _FINE)
    end = end._replace(t_max=min(end.t_max, others.t_max), leak=float(first.max()), atom=atom)
    return max(coarse, end, key=lambda one: one.t_max)


# ---- Many steps


def follow(
    shares: Shares,
    start: Array,
    rounding: Rounding,
    *,
    fine: float,
    limit: float = 0.5,
    until: float = FAR,
    most_evaluations: int = _MOST_EVALUATIONS,
) -> UpperEnd:
    """Return how many steps the bound stays at the limit or below.

    Many steps are taken at once. Assume that no state of the next n steps exceeds `top`. Then
    no share exceeds shares(top), and n steps with these shares bound the state at their end. If
    that is at most `top`, then so is every state before it, and the assumption was right.

    Args:
        shares: the largest shares from a state.
        start: the bound on the first state.
        rounding: the arithmetic of the model.
        limit: the largest bound that is allowed.
        fine: the fraction of the steps that may be lost by taking many at once, roughly.
        until: return as soon as this many steps are proved.
        most_evaluations: of the shares, after which what is proved so far is returned.
    """
    bound = rounding.down(start)
    if bound.max(initial=0.0) > limit:
        return UpperEnd(-1.0, 1.0, None, [(0.0, float(bound.max()))], bound)
    rate = shares(bound)
    first = float(rate.max(initial=0.0))
    steps, stride, evaluations, faster = 0.0, 1.0, 1, _FASTEST
    curve = [(0.0, float(bound.max(initial=0.0)))]
    while steps < until and evaluations < most_evaluations:
        ahead = rounding.after(bound, rate, 1.0, bound)
        if np.array_equal(ahead, bound):
            return UpperEnd(math.inf, first, None, curve, bound)
        # Most steps are taken while the shares are small, so the loss is kept small there.
        loss = min(_MOST_LOSS, fine * max(1.0, float(rate.max()) / max(first, 1e-300)))
        if stride > 1:
            evaluations += 1
            found = _many_steps(shares, bound, rate, stride, loss, rounding, limit)
            if found is None:
                stride, faster = math.floor(stride / 2), 1.0
                continue
            ahead = found
        elif ahead.max(initial=0.0) > limit:
            break
        before, bound = rate, ahead
        steps += stride
        curve.append((steps, float(bound.max(initial=0.0))))
        rate = shares(bound)
        evaluations += 1
        # The shares grew by this part of the largest in each step; half of it is lost on average.
        largest = np.maximum(before.max(axis=-1, keepdims=True, initial=0.0), 1e-300)
        growth = float(np.max((rate - before) / largest, initial=0.0)) / stride
        longest = _LENGTH * loss / growth if growth * FAR > 1.0 else FAR
        stride = max(1.0, math.floor(min(faster * stride, longest)))
        faster = min(_FASTEST, _RECOVERY * faster)
    return UpperEnd(steps, first, None, curve, bound)


def _many_steps(
    shares: Shares,
    bound: Array,
    rate: Array,
    stride: float,
    loss: float,
    rounding: Rounding,
    limit: float,
) -> Array | None:
    """Return a bound after this many steps; None if they cannot be proved at once."""
    guess = bound + _GUESS * (rounding.unrounded(bound, rate, stride) - bound)
    rise = rounding.after(bound, rate, stride, guess) - bound
    # A little more than the rise with the current shares, also for atoms that hardly rise yet.
    top = bound + rise * (1.0 + _ASSUMED * loss)
    top = top + _LEAST_RISE * loss * rise.max(axis=-1, keepdims=True, initial=0.0)
    allowed = rate + _ASSUMED * loss * rate.max(axis=-1, keepdims=True, initial=0.0)
    for _ in range(_CORRECTIONS):
        if not top.max(initial=0.0) <= limit:
            return None
        most = shares(top)
        if np.any(most > allowed):
            return None
        after = rounding.after(bound, most, stride, top)
        if np.all(after <= top):
            return after
        top = np.maximum(top, bound + (after - bound) * (1.0 + loss))
    return None
