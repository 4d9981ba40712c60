"""The certificate: a window of steps in which a model provably equals a program.

It reads the weights and assumes nothing about them, so it serves closed-form, noisy and learned
models alike. Two induction arguments, one for each end of the window, for *every* fact set:

Upper end. Let ℓ_i bound every atom i that is not derivable. Each rule of such an atom lacks a
body atom b, which contributes at most ℓ_b, so its body sum is at most (all weights) −
min_b u_jb (1 − ℓ_b). That bounds the evidence for i and the share c_i(ℓ) of its way to one that
it goes in a step, and ℓ_i ← ℓ_i + (1 − ℓ_i) c_i(ℓ). t_max is the last step with all ℓ_i ≤ ½.

Lower end. Let x_d bound from below every atom derivable in at most d steps. Such an atom has a
rule whose body is at least x_{d−1}, so it goes at least the share f(x_{d−1}), the least over all
rules and heads: x_d ← x_d + (1 − x_d) f(x_{d−1}). t_min is the first step with x_D > ½.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from latentgamma._certificate.step_bounds import Array, Reading, row_min
from latentgamma._errors import CertificateError, ModelError
from latentgamma._html import GREEN, RED, caption, note, table
from latentgamma._logic.closure import closure
from latentgamma._logic.depth import depth_bound
from latentgamma._logic.equivalence import not_entailed
from latentgamma._program.facts import FactSets, fact_masks
from latentgamma._program.program import Program
from latentgamma._program.stratified import StratifiedProgram, require_any_program

#: Up to this many literals every atom has a bound of its own; beyond, all share the worst one.
_REFINED_UP_TO = 200_000
#: About how many numbers one end of the window may touch: it decides how finely we look.
_BUDGET = 1e8
#: Nobody runs this many steps; a window that reaches so far is reported as ending here.
_FAR = 1e60


class Margins(NamedTuple):
    """The separation that the lemmas speak of, as it really is in this model.

    They separate where the `on` fields are positive and the `off` and `sink` fields negative.
    """

    match_on: float  # least bs − b of a satisfied body (Lemma 6.3, case 1)
    match_off: float  # largest bs − b of an unsatisfied body (Lemma 6.3, case 2)
    evidence_on: float  # least φ of an atom with a satisfied rule (Lemma 6.4)
    evidence_off: float  # largest φ of an atom without one (Lemma 6.4)
    sink: float  # largest φ of an atom that no rule derives (Lemma 6.5)


class Status(Enum):
    """What a certificate found; the value is the name it goes by in JSON."""

    HOLDS = "holds"
    LEAKS = "leaks"
    LAGS = "lags"
    DIFFERS = "differs"
    UNDEFINED = "undefined"


@dataclass(frozen=True)
class Certificate:
    """A window [t_min, t_max] of steps in which a model provably equals a program.

    For every fact set whose closure takes at most `depth` steps, after any number of steps in
    the window, the atoms above one half are the closure, no more and no less. It speaks of
    states that start at 0 and 1 and are held in `dtype`.
    """

    t_min: float
    t_max: float
    depth: int
    leak: float
    margins: Margins
    status: Status
    message: str
    weakest_rule: str | None
    weakest_atom: str | None
    dtype: str
    differences: tuple[str, ...] = ()
    #: Facts may be as low as 1 − tolerance at the start, and other atoms as high as tolerance.
    tolerance: float = 0.0
    #: (steps, bound on every underivable atom after them), to draw.
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there is a window at all."""
        return self.status is Status.HOLDS

    def require(self) -> Certificate:
        """This certificate, or a CertificateError that says why it does not hold."""
        if not self.holds:
            raise CertificateError(self.message)
        return self

    def covers(self, steps: int) -> bool:
        """Whether the answer after so many steps is proved right."""
        return self.holds and self.t_min <= steps <= self.t_max

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain values, for JSON; an infinite end is None."""
        return {
            "holds": self.holds,
            "status": self.status.value,
            "message": self.message,
            "t_min": None if math.isinf(self.t_min) else int(self.t_min),
            "t_max": None if math.isinf(self.t_max) else int(self.t_max),
            "depth": self.depth,
            "leak": self.leak,
            "margins": {k: v if math.isfinite(v) else None for k, v in self._margins()},
            "weakest_rule": self.weakest_rule,
            "weakest_atom": self.weakest_atom,
            "differences": list(self.differences),
            "dtype": self.dtype,
            "tolerance": self.tolerance,
        }

    def _margins(self) -> list[tuple[str, float]]:
        return list(self.margins._asdict().items())

    def _repr_html_(self) -> str:
        end = "no end" if math.isinf(self.t_max) else f"{self.t_max:,.0f}"
        window = f"steps {self.t_min:,.0f} to {end}" if self.holds else "none"
        rows = [("certified", window), ("depth", f"{self.depth:,}"), ("dtype", self.dtype),
                ("leak per step", f"{self.leak:.3g}"), ("tolerance", f"{self.tolerance:g}")]  # fmt: skip
        rows += [
            (name.replace("_", " "), f"{value:+.4g}")
            for name, value in self._margins()
            if math.isfinite(value)
        ]
        mark, colour = ("✓", GREEN) if self.holds else ("✗", RED)
        notes = "".join(map(note, self.differences[:20]))
        return caption(f"{mark} {self.message}", colour) + table((), rows, right=1) + notes

    def __str__(self) -> str:
        return self.message


class Readable(Protocol):
    """A model, as far as a certificate is concerned."""

    @property
    def R(self) -> int:
        """The number of rows."""

    @property
    def atoms(self) -> tuple[str, ...] | None:
        """The names of the atoms, in the order of the state, if the model knows them."""

    def reading(self, program: Program, rows: npt.NDArray[np.int64] | None = None) -> Reading:
        """The weights on the literals of a program, whose rules are these rows."""

    def rows(self, atoms: tuple[str, ...]) -> tuple[Program, npt.NDArray[np.int64]]:
        """The rules over these atoms that the rows look like, and which rows they are."""


class ReadableStrata(Protocol):
    """A model of a program with negation, as far as a certificate is concerned."""

    @property
    def parts(self) -> Iterable[Any]:
        """The model of each stratum, which is `Readable`."""


def certify(
    model: Readable | ReadableStrata,
    program: Program | StratifiedProgram,
    *,
    depth: int | None = None,
    facts: FactSets | None = None,
    tolerance: float = 0.0,
) -> Certificate:
    """The window in which the model provably equals the program, for every fact set.

    Args:
        model: any LatentGamma, from `oracle`, perturbed or trained.
        program: the program to hold it against; its atoms are matched by name. If the model's
            rows do not stand for its rules one by one, the rows are read as rules of their own,
            and these are compared with the program by entailment. A program with negation is
            held against the model of its strata; steps are counted in each stratum.
        depth: for fact sets whose closure takes at most so many steps; by default
            `depth_bound(program)`, which no fact set exceeds.
        facts: fact sets whose depths take the place of that bound: the window then holds for
            every fact set that is no deeper than the deepest of these.
        tolerance: the window holds for every input whose facts are at least 1 − tolerance and
            whose other atoms are at most tolerance; at least 0 and below one half.

    Raises:
        ModelError: if the atoms differ, or an argument is out of range.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> certificate = lg.certify(lg.oracle(program), program)
    >>> certificate.holds, certificate.t_min
    (True, 2.0)
    """
    require_any_program(program, "certify")
    if not hasattr(model, "reading") and not hasattr(model, "parts"):
        raise ModelError(
            f"certify takes a model, such as lg.oracle(program), not {type(model).__name__}"
        )
    if depth is not None and depth < 0:
        raise ModelError(f"depth is a whole number from 0 on, not {depth!r}")
    if not 0 <= tolerance < 0.5:
        raise ModelError(f"tolerance is a number from 0 to below 0.5, not {tolerance!r}")
    if isinstance(program, StratifiedProgram):
        from latentgamma._certificate.strata import certify_strata

        return certify_strata(
            cast(ReadableStrata, model), program, depth=depth, facts=facts, tolerance=tolerance
        )
    model = cast(Readable, model)
    if facts is not None:
        if depth is not None:
            raise ModelError("give depth or facts, not both: facts stand for the depth they have")
        sets = np.atleast_2d(fact_masks(program, facts))
        depth = max((closure(program, row).depth for row in sets), default=0)
    program = _over(program, model.atoms)
    aligned = None
    if model.R == program.R:
        aligned = window(model.reading(program), depth=depth, tolerance=tolerance)
        if aligned.holds:
            return aligned
    looks, rows = model.rows(program.atoms)
    differences = _differences(looks, program)
    if differences:
        shown = "; ".join(differences[:3])
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        blank = aligned or window(model.reading(looks, rows), depth=0, tolerance=tolerance)
        return replace(
            blank,
            status=Status.DIFFERS,
            differences=tuple(differences),
            message=f"the model does not implement this program: {shown}{more}. Certify it "
            f"against its own rules, or train it further",
        )
    if aligned is not None and looks == program:
        return aligned
    # The same closures, though not row by row; its own rules may take more steps.
    own = window(model.reading(looks, rows), depth=None, tolerance=tolerance)
    return own if own.holds or aligned is None else aligned


def _over(program: Program, atoms: tuple[str, ...] | None) -> Program:
    """The program with its atoms in the order of the model's state."""
    if atoms is None or atoms == program.atoms:
        return program
    unknown = set(program.atoms) ^ set(atoms)
    if unknown:
        shown = ", ".join(repr(name) for name in sorted(unknown)[:5])
        raise ModelError(f"the model and the program do not have the same atoms: {shown} differ")
    return Program.from_rules(program.rules, atoms=atoms)


def _differences(looks: Program, program: Program) -> list[str]:
    lost = [
        f"the program has '{program.rules[int(j)]}' (rule {j}), which the rows do not imply"
        for j in not_entailed(looks, program)
    ]
    extra = [
        f"a row acts as '{looks.rules[int(j)]}', which the program does not imply"
        for j in not_entailed(program, looks)
    ]
    return lost + extra


def tolerance(
    model: Readable | ReadableStrata,
    program: Program | StratifiedProgram,
    *,
    steps: int | None = None,
    depth: int | None = None,
    facts: FactSets | None = None,
) -> float:
    """The largest tolerance, to within a part in 1,000, at which the model is still certified.

    Args:
        model: any LatentGamma, from `oracle`, perturbed or trained.
        program: the program to hold it against.
        steps: the number of steps that the window must cover; by default any window will do.
        depth: as in `certify`.
        facts: as in `certify`.

    Returns:
        A number δ below one half for which `certify(model, program, tolerance=δ)` holds, and
        covers `steps`.

    Raises:
        CertificateError: if the model is not certified for exact inputs.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> model = lg.oracle(program)
    >>> delta = lg.tolerance(model, program, steps=2)
    >>> 0.1 < delta < 0.5
    True
    >>> lg.certify(model, program, tolerance=delta).covers(2)
    True
    """

    def enough(delta: float) -> bool:
        found = certify(model, program, depth=depth, facts=facts, tolerance=delta)
        return found.holds if steps is None else found.covers(steps)

    if not enough(0.0):
        found = certify(model, program, depth=depth, facts=facts).require()
        raise CertificateError(
            f"step {steps} lies outside of the window even for exact inputs: {found}"
        )
    low, high = 0.0, 0.5
    while high - low > 1e-3 * high:
        middle = (low + high) / 2 if low > 0 else high / 8
        if middle < 1e-9:
            break
        if enough(middle):
            low = middle
        else:
            high = middle
    return low


def window(reading: Reading, *, depth: int | None = None, tolerance: float = 0.0) -> Certificate:
    """The certificate of weights that stand rule by rule for a program."""
    program = reading.program
    every = f"for every fact set of depth at most {depth}"
    if depth is None:
        depth = depth_bound(program)
        every = f"for every fact set (none is deeper than {depth})"
    if not reading.in_range:
        return _undefined(reading, depth)
    t_max, leaks, curve = upper_end(reading, tolerance)
    t_min = lower_end(reading, depth, tolerance)
    margins, weakest_rule, weakest_atom = margins_of(reading)
    names = (
        None if weakest_rule is None else str(program.rules[weakest_rule]),
        None if weakest_atom is None else program.atoms[weakest_atom],
    )
    if math.isinf(t_min):
        status = Status.LAGS
        message = (
            f"nothing is proved: rule '{names[0]}' need not push its head above one half "
            f"(evidence {margins.evidence_on:.3g}). Raise the gain or the sharpness, or use "
            f"Constants.certified(program)"
        )
    elif t_max < t_min:
        status = Status.LEAKS
        message = (
            f"nothing is proved: {t_min:.0f} steps are needed for depth {depth}, but after "
            f"{t_max:.0f} the underivable atom '{names[1]}' may be above one half (leak "
            f"{leaks.max(initial=0.0):.3g} a step). Raise the sharpness and the body logits, "
            f"or use Constants.certified(program)"
        )
    else:
        status = Status.HOLDS
        end = "for ever" if math.isinf(t_max) else f"to step {t_max:,.0f}"
        soft = f" and inputs within {tolerance:g} of 0 and 1" if tolerance else ""
        message = f"exact from step {t_min:,.0f} {end}, {every}{soft}, in {reading.rounding.dtype}"
    return Certificate(
        t_min, t_max, depth, float(leaks.max(initial=0.0)), margins, status, message,
        *names, reading.rounding.dtype, tolerance=tolerance, curve=tuple(curve),
    )  # fmt: skip


def _undefined(reading: Reading, depth: int) -> Certificate:
    """The certificate of numbers that no arithmetic could follow."""
    nothing = Margins(*[math.nan] * 5)
    message = (
        f"nothing is proved: parameters are not finite, or their products leave the range of "
        f"{reading.rounding.dtype}. Look for a training run that diverged, or use "
        f"Constants.certified(program)"
    )
    return Certificate(
        math.inf, 0.0, depth, math.nan, nothing, Status.UNDEFINED, message, None, None,
        reading.rounding.dtype,
    )  # fmt: skip


# -------------------------------------------------------------------- the two ends


def upper_end(
    reading: Reading, tolerance: float = 0.0
) -> tuple[float, Array, list[tuple[float, float]]]:
    """t_max, the leak of each atom in the first step, and the worst bound against time.

    Steps are taken in strides. Suppose that over a stride no leak exceeds today's by more than
    a small part; then the bound at its end is known, and the leaks at that bound, the largest
    of the stride, show whether the supposition was right.
    """
    program = reading.program
    safe = closure(program).state  # true whatever the facts: never underivable
    if safe.all():
        return math.inf, np.zeros(program.M), [(0.0, 0.0)]
    refined = program.size <= _REFINED_UP_TO

    def leaks(bound: Array) -> Array:
        if refined:
            lacking = reading.body * (1.0 - bound[program.body_indices])
            risen = reading.leak(row_min(lacking, program), bound)
        else:
            risen = reading.leak(reading.least_body * (1.0 - bound[0]), bound[0])
        risen[safe] = 0.0
        return risen if refined else np.full(1, risen.max())

    finest = float(np.clip(100.0 * (program.size + program.M) / _BUDGET, 0.01, 0.25))
    bound = np.full(program.M if refined else 1, tolerance)
    first = rate = leaks(bound)
    steps, stride = 0.0, 1.0
    curve = [(0.0, tolerance)]
    while rate.any():
        faster = 2.0
        if stride > 1:
            # Most of the time passes while the leaks are small: look closely there.
            tolerance = min(0.5, finest * math.sqrt(max(1.0, rate.max() / first.max())))
            ahead = _after(bound, rate * (1 + tolerance), stride)
            most = leaks(ahead) if ahead.max() <= 0.5 else None
            if most is None or np.any(most > rate * (1 + tolerance)):
                stride = math.floor(stride / 2)
                continue
            bound = _after(bound, most, stride)
            # As long a stride next as the tolerance is likely to allow.
            grown = float(np.max(most[rate > 0] / rate[rate > 0])) - 1.0
            faster = min(2.0, 0.9 * tolerance / max(grown, 1e-300))
        else:
            bound = _after(bound, rate, 1.0)
            if not bound.max() <= 0.5:
                return steps, first, curve
        steps += stride
        curve.append((steps, float(bound.max())))
        if steps > _FAR:
            return steps, first, curve
        stride = max(1.0, math.floor(stride * faster))
        rate = leaks(bound)
    return math.inf, first, curve


def _after(bound: Array, share: Array, steps: float) -> Array:
    """1 − (1 − bound)(1 − share)^steps, rounded up."""
    with np.errstate(divide="ignore"):
        risen = -np.expm1(np.log1p(-bound) + steps * np.log1p(-np.minimum(share, 1.0)))
    return np.minimum(1.0, np.maximum(bound, risen * (1 + 1e-12)))


def lower_end(reading: Reading, depth: int, tolerance: float = 0.0, *, goal: float = 0.5) -> float:
    """t_min: the first step by which every atom of at most this depth is above the goal."""
    if depth == 0 or reading.program.R == 0:
        return 0.0
    literals = reading.program.size
    level = reproduced_level(reading, tolerance)
    if level is not None:
        return depth + _steps_on(reading, level, goal)
    if depth * (depth + 32) * literals <= _BUDGET:
        return _march(reading.gain_below, depth, reading.rounding.stored, tolerance, goal)
    if goal > 0.5:
        return math.inf  # the coarser bounds below speak of one half alone
    grid = np.linspace(0.0, 1.0, int(np.clip(_BUDGET / literals, 33, 4097)))
    chunks = np.array_split(grid, math.ceil(len(grid) * literals / 1e6))
    values = np.concatenate([reading.gain_below(chunk) for chunk in chunks])
    if depth * (depth + 32) <= _BUDGET:
        # f rises, so its value at the grid point below is a bound.
        below: Callable[[Array], Array] = lambda x: values[np.searchsorted(grid, x, "right") - 1]  # noqa: E731
        return _march(below, depth, reading.rounding.stored, tolerance, goal)
    return depth * _lag(grid, values, reading.rounding.stored, tolerance)


def reproduces(reading: Reading, tolerance: float = 0.0) -> bool:
    """Whether some level x > ½ of the bodies brings every head to x in one step."""
    return reproduced_level(reading, tolerance) is not None


def reproduced_level(reading: Reading, tolerance: float = 0.0) -> float | None:
    """A level x > ½ of the bodies that brings every head to x in one step: f(x) ≥ x; or None.

    Atoms of depth d are there after d steps, for every d.
    """

    def reached(x: float) -> float:
        return float(reading.gain_below(np.array([x]))[0]) * (1 - 2 * reading.rounding.stored)

    x = 1.0 - tolerance
    for _ in range(64):
        if x <= 0.5:
            return None
        if reached(x) >= x:
            return x
        x = reached(x) * (1 - 1e-9)
    return None


def _steps_on(reading: Reading, level: float, goal: float) -> float:
    """The steps that lift atoms from a reproduced level above the goal, bodies at that level."""
    share = float(reading.gain_below(np.array([level]))[0])
    x, steps = level, 0
    while x <= goal:
        risen = (x + (1 - x) * share) * (1 - 2 * reading.rounding.stored)
        if risen <= x:
            return math.inf
        x, steps = risen, steps + 1
    return float(steps)


def _march(
    gain: Callable[[Array], Array], depth: int, stored: float, tolerance: float, goal: float
) -> float:
    """x_d ← x_d + (1 − x_d) f(x_{d−1}), until the last level is above the goal."""
    level = np.zeros(depth + 1)
    level[0] = 1.0 - tolerance
    steps, most = 0, 64 * (depth + 16)
    # Each level at its best, given the one below it at its best all along: is it hopeless?
    best = level[:1]
    for _ in range(depth):
        with np.errstate(divide="ignore"):  # a share of one is there at once
            best = -np.expm1(most * np.log1p(-np.minimum(1.0, gain(best))))
        if best[0] <= goal:
            return math.inf
    while level[depth] <= goal:
        rise = (level[1:] + (1 - level[1:]) * gain(level[:-1])) * (1 - 2 * stored)
        if not np.any(rise > level[1:]):
            return math.inf
        level[1:] = np.maximum(level[1:], rise)
        steps += 1
        if steps > most:  # creeping by leaks, which is no proof anyone could use
            return math.inf
    return float(steps)


def _lag(grid: Array, values: Array, stored: float, tolerance: float) -> float:
    """The fewest steps in which some level above one half reproduces itself."""
    level = np.zeros_like(grid)
    for steps in range(1, 65):
        level = (level + (1 - level) * values) * (1 - 2 * stored)
        if np.any((grid > 0.5) & (grid <= 1.0 - tolerance) & (level >= grid)):
            return float(steps)
    return math.inf


def margins_of(reading: Reading) -> tuple[Margins, int | None, int | None]:
    """The margins at the start, and the rule and the atom that come closest to failing."""
    program = reading.program
    own = program.rules_per_head > 0
    open_atoms = own & ~closure(program).state
    above = reading.evidence_above(reading.least_body)
    bodies = program.body_sizes > 0
    below = reading.evidence_below(np.ones((1, 1)))[0] if program.R else np.zeros(0)
    margins = Margins(
        float(reading.margin_below(np.ones(1)).min(initial=math.inf)),
        float(reading.margin_above(reading.least_body)[bodies].max(initial=-math.inf)),
        float(below.min(initial=math.inf)),
        float(above[open_atoms].max(initial=-math.inf)),
        float(above[~own].max(initial=-math.inf)),
    )
    rule = int(reading.head_rule[below.argmin()]) if len(below) else None
    candidates = np.flatnonzero(~closure(program).state)
    atom = int(candidates[above[candidates].argmax()]) if len(candidates) else None
    return margins, rule, atom
