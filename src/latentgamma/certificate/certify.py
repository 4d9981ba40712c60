"""Certifies a model against a program: the certificate, its window, and the proof by strata."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from latentgamma._arguments import real_number, whole_number
from latentgamma._display import Display, Displayed
from latentgamma.certificate.bounds import LiteralWeights
from latentgamma.certificate.ends import UpperEnd, Worst, lower_end, upper_end
from latentgamma.certificate.parts import Certifiable, Part, differences, parts_of, shown_rule
from latentgamma.errors import ArgumentError, CertificateError, ModelError
from latentgamma.logic.closure import closure, depth_bound
from latentgamma.program.facts import FactSets, Mask, fact_masks
from latentgamma.program.program import Program, require_program

# ---- What a certificate says


class Margins(NamedTuple):
    """The margins by which a model separates true bodies and atoms from false ones.

    It separates them where the `on` fields are positive and the `off` and `sink` fields negative.

    >>> import latentgamma as lg
    >>> margins = lg.oracle(lg.parse("bird :- penguin.")).certificate().margins
    >>> margins.match_on > 0 > margins.match_off
    True
    """

    match_on: float  # least bs − b of a satisfied body (Lemma 6.3, case 1)
    match_off: float  # largest bs − b of an unsatisfied body (Lemma 6.3, case 2)
    evidence_on: float  # least φ of an atom with a satisfied rule (Lemma 6.4)
    evidence_off: float  # largest φ of an atom without one (Lemma 6.4)
    sink: float  # largest φ of an atom that no rule derives (Lemma 6.5)


class Status(Enum):
    """The outcome of a certificate; the value is its name in JSON.

    >>> Status.HOLDS.value
    'holds'
    """

    HOLDS = "holds"
    LEAKS = "leaks"
    LAGS = "lags"
    DIFFERS = "differs"
    UNDEFINED = "undefined"


def is_window(t_min: float, t_max: float) -> bool:
    """Return whether these are the ends of a window: t_min steps can be taken, t_max are no fewer.

    A window that ends before step 1 does not count: every model has it, on closed fact sets.
    """
    return math.isfinite(t_min) and t_min <= t_max and t_max >= 1


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """A window [t_min, t_max] of steps in which a model provably equals a program.

    For every fact set whose closure takes at most `depth` steps, after any number of steps in
    the window, the atoms above one half are the closure, no more and no less. It applies to
    states that start at 0 and 1 and are held in `dtype`.

    >>> import latentgamma as lg
    >>> certificate = lg.oracle(lg.parse("bird :- penguin. animal :- bird.")).certificate()
    >>> print(certificate)
    exact from step 2 on, for every fact set (none is deeper than 2), in float32
    >>> certificate.covers(1), certificate.covers(2)
    (False, True)
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
    #: The rules of each stratum whose steps `depth` and `t_min` count: those of the program, or
    #: those that the model's rows act as, which have the same closures but may take more steps.
    #: A fact set that they close in d steps is right from step t_min − (depth − d) on.
    rules: tuple[Program, ...] = field(default=(), compare=False)

    @property
    def holds(self) -> bool:
        """Whether there is a window at all."""
        return self.status is Status.HOLDS and is_window(self.t_min, self.t_max)

    def require(self) -> Certificate:
        """Return this certificate if it holds, and raise a CertificateError with the reason if not.

        Returns:
            The same object, so that calls can be chained: `certify(model, program).require().t_min`.

        Raises:
            CertificateError: there is no window.
        """
        if not self.holds:
            raise CertificateError(self.message)
        return self

    def covers(self, steps: int) -> bool:
        """Return whether the answer after this many steps is proved right.

        Args:
            steps: the number of steps, from 0 on.

        Raises:
            ArgumentError: this is not a number of steps.
        """
        whole_number("steps", steps)
        return self.holds and self.t_min <= steps <= self.t_max

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain values, for JSON; an infinite end is None.

        Returns:
            A dictionary with all fields but `curve` and `rules`, and with `holds`.
        """
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

    def __repr__(self) -> str:
        return f"Certificate({self})"

    def _display(self) -> Display:
        end = "no end" if math.isinf(self.t_max) else f"{self.t_max:,.0f}"
        window = f"steps {self.t_min:,.0f} to {end}" if self.holds else "none"
        rows = [("certified", window), ("depth", f"{self.depth:,}"), ("dtype", self.dtype),
                ("leak per step", f"{self.leak:.3g}"), ("tolerance", f"{self.tolerance:g}")]  # fmt: skip
        rows += [
            (name.replace("_", " "), f"{value:+.4g}")
            for name, value in self._margins()
            if math.isfinite(value)
        ]
        title = f"{'✓' if self.holds else '✗'} {self.message}"
        return Display(title, self.holds, rows=rows, right=1, notes=self.differences[:20])

    def __str__(self) -> str:
        return self.message


# ---- From the bounds on single steps to a window, for one stratum and for many
# All strata run for the same number of steps T. A stratum outputs values that are not quite 0 and 1:
# its derived atoms are at least 1 − δ and the others at most δ, and the same holds for 1 − s, the
# value of a negated atom, up to its rounding. So the next stratum is certified with that tolerance. The
# tolerances rise from stratum to stratum along a straight line, from that of the inputs to one that
# the last stratum tolerates; T is in the window if every stratum turns inputs within its tolerance
# into outputs within the next one. For the outputs of the last stratum one half is enough.

#: The tolerances that the last of several strata is tried with.
_TOLERANCES = (0.16, 0.08, 0.04, 0.02, 0.01)
#: Once a window reaches this step, no smaller tolerance is tried.
_ENOUGH = 10**6


class Proved(NamedTuple):
    """Steps in which every stratum outputs values within the next one's tolerance."""

    t_min: float
    t_max: float
    last: float  # the tolerance of the last stratum
    upper: tuple[UpperEnd, ...]  # of each stratum

    @property
    def reach(self) -> tuple[float, float]:
        """How far it reaches, up to `_ENOUGH`, and how early it starts; larger is better."""
        if not is_window(self.t_min, self.t_max):
            return -1.0, -self.t_min
        return min(self.t_max, _ENOUGH), -self.t_min


def window(
    strata: Sequence[Worst],
    negating: Sequence[bool] = (False,),
    *,
    depth: int | None = None,
    tolerance: float = 0.0,
) -> Certificate:
    """Return the certificate of weights that stand rule by rule for the rules of strata.

    `negating` says which strata read negations; `depth` and `tolerance` are as in `certify`.
    """
    dtype = strata[0].weights.rounding.dtype if strata else "float32"
    rules = tuple(worst.weights.program for worst in strata)
    if depth is None:
        depths = [depth_bound(program) for program in rules]
        depth = max(depths, default=0)
        none = "no stratum" if len(strata) > 1 else "none"
        every = f"for every fact set ({none} is deeper than {depth})"
    else:
        one = len(strata) == 1
        depths = [depth if one else min(depth, depth_bound(program)) for program in rules]
        every = f"for every fact set of depth at most {depth}"
    if not all(worst.weights.in_range for worst in strata):
        message = (
            f"nothing is proved: parameters are not finite, or their products leave the range of "
            f"{dtype}. Look for a training run that diverged, or use Constants.certified(program)"
        )
        nothing = Margins(*[math.nan] * 5)
        return Certificate(
            math.inf, 0.0, depth, math.nan, nothing, Status.UNDEFINED, message, None, None, dtype,
            tolerance=tolerance, rules=rules,
        )  # fmt: skip
    proved = _best(strata, depths, negating, tolerance)
    margins, rule, atom = _weakest(strata, proved)
    leak = max((end.leak for end in proved.upper), default=0.0)
    curve = tuple(proved.upper[0].curve) if len(proved.upper) == 1 else ()
    if is_window(proved.t_min, proved.t_max):
        status = Status.HOLDS
        end = "on" if math.isinf(proved.t_max) else f"to step {proved.t_max:,.0f}"
        soft = f" and inputs within {tolerance:g} of 0 and 1" if tolerance else ""
        each = f" in each of {len(strata)} strata" if len(strata) > 1 else ""
        message = f"exact from step {proved.t_min:,.0f} {end}{each}, {every}{soft}, in {dtype}"
        if len(strata) > 1:
            message += f"; the strata pass on values within {proved.last:g} of 0 and 1"
    elif len(strata) > 1:
        for number, worst in enumerate(strata, 1):
            alone = window([worst], depth=depths[number - 1], tolerance=tolerance)
            if not alone.holds:
                return replace(alone, message=f"stratum {number}: {alone.message}", rules=rules)
        status = Status.LEAKS
        message = (
            f"nothing is proved: each of the {len(strata)} strata is exact on 0 and 1, but not "
            "on the values that the ones before it pass on. Raise the gain and the sharpness, or "
            "use lg.oracle(program)"
        )
    elif math.isinf(proved.t_min):
        status = Status.LAGS
        message = (
            f"nothing is proved: rule '{rule}' need not push its head above one half "
            f"(evidence {margins.evidence_on:.3g}). Raise the gain or the sharpness, or use "
            f"Constants.certified(program)"
        )
    else:
        status = Status.LEAKS
        message = (
            f"nothing is proved: {proved.t_min:.0f} steps are needed for depth {depth}, but after "
            f"{proved.t_max:.0f} the underivable atom '{atom}' may be above one half (leak "
            f"{leak:.3g} a step). Raise the sharpness and the body logits, "
            f"or use Constants.certified(program)"
        )
    return Certificate(
        proved.t_min, proved.t_max, depth, leak, margins, status, message, rule, atom, dtype,
        tolerance=tolerance, curve=curve, rules=rules,
    )  # fmt: skip


def _best(
    strata: Sequence[Worst], depths: Sequence[int], negating: Sequence[bool], tolerance: float
) -> Proved:
    """Return the window that reaches furthest, of several tolerances of the last stratum."""
    if len(strata) <= 1:
        return _prove(strata, depths, negating, tolerance, 0.5)
    best = Proved(math.inf, -1.0, 0.0, ())
    for last in (last for last in _TOLERANCES if last > tolerance):
        found = _prove(strata, depths, negating, tolerance, last)
        best = max(best, found, key=lambda one: one.reach)
        if best.reach[0] >= _ENOUGH:
            break  # a smaller tolerance starts later
    return best


def _prove(
    strata: Sequence[Worst],
    depths: Sequence[int],
    negating: Sequence[bool],
    first: float,
    last: float,
) -> Proved:
    """Return the window in which inputs within `first` of 0 and 1 give outputs within `last`."""
    count = len(strata)
    t_min, t_max = 0.0, math.inf
    upper: list[UpperEnd] = []
    for s, (worst, depth, negates) in enumerate(zip(strata, depths, negating, strict=True)):
        weights = worst.weights
        given = first + (last - first) * s / count
        if negates and given > 0:
            given += 2.0**-weights.rounding.digits  # 1 − s is rounded; 1 − 0 and 1 − 1 are exact
        output_tolerance = first + (last - first) * (s + 1) / count if s + 1 < count else 0.5
        if given >= 0.5:
            return Proved(math.inf, -1.0, last, tuple(upper))
        t_min = max(t_min, lower_end(weights, depth, given, goal=1.0 - output_tolerance))
        if count > 1 and not is_window(t_min, t_max):
            break
        upper.append(upper_end(worst, given, limit=output_tolerance))
        t_max = min(t_max, upper[-1].t_max)
    return Proved(t_min, t_max, last, tuple(upper))


def _weakest(strata: Sequence[Worst], proved: Proved) -> tuple[Margins, str | None, str | None]:
    """Return the worst margins, and the rule and the atom that come closest to failing."""
    found = [_margins(worst) for worst in strata]
    rows = np.array([margins for margins, _, _ in found]).reshape(-1, len(Margins._fields))
    margins = Margins(
        *(
            float(column.min(initial=math.inf) if on else column.max(initial=-math.inf))
            for on, column in zip(
                [name.endswith("_on") for name in Margins._fields], rows.T, strict=True
            )
        )
    )
    if not found:
        return margins, None, None
    s = min(range(len(found)), key=lambda s: found[s][0].evidence_on)
    program, (_, rule, atom) = strata[s].weights.program, found[s]
    if len(strata) == 1 and proved.upper[0].atom is not None:
        atom = proved.upper[0].atom
    return (
        margins,
        None if rule is None else shown_rule(program.rules[rule]),
        None if atom is None else program.atoms[atom],
    )


def _margins(worst: Worst) -> tuple[Margins, int | None, int | None]:
    """Return the margins at the start, and the rule and the atom that come closest to failing."""
    weights, program = worst.weights, worst.weights.program
    own: Mask = program.rules_per_head > 0
    above = weights.evidence_above(weights.least_body)
    bodies = program.body_sizes > 0
    below = weights.evidence_below(np.ones((1, 1)))[0] if program.R else np.zeros(0)
    slack = weights.rows.slack
    margins = Margins(
        float((slack - weights.outside).min(initial=math.inf)),
        float((slack - weights.least_body)[bodies].max(initial=-math.inf)),
        float(below.min(initial=math.inf)),
        float(above[own & ~worst.always].max(initial=-math.inf)),
        float(above[~own].max(initial=-math.inf)),
    )
    rule = int(weights.head_rule[below.argmin()]) if len(below) else None
    candidates = np.flatnonzero(~worst.always)
    atom = int(candidates[above[candidates].argmax()]) if len(candidates) else None
    return margins, rule, atom


# ---- The certifier
# It uses the weights as they are and assumes nothing about them, so it covers closed-form, noisy and
# learned models alike. Each end of the window is an induction over steps that holds for *every*
# fact set: `upper_end` bounds what is not derivable from above, `lower_end` what is derivable from
# below.

# Differences that a message shows.
_SHOWN_DIFFERENCES = 3
# The search for a tolerance divides one half by the first number until it finds one, and gives up
# below the second.
_SMALLER, _LEAST_TOLERANCE = 8, 1e-9


def certify(
    model: Certifiable,
    program: Program,
    *,
    depth: int | None = None,
    facts: FactSets | None = None,
    tolerance: float = 0.0,
    check: bool = False,
    dtype: str | None = None,
) -> Certificate:
    """Return the window in which the model provably equals the program, for every fact set.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> certificate = lg.certify(lg.oracle(program), program)
    >>> certificate.holds, certificate.t_min
    (True, 2.0)

    The parameters are read as `forward` of LatentGamma uses them; a hook or a subclass that changes
    what it returns is not seen.

    Args:
        model: any LatentGamma, from `oracle`, perturbed or trained.
        program: the program to compare it with; its atoms are matched by name. If the model's
            rows do not stand for its rules one by one, the rows are read as rules of their own,
            and these are compared with the program by entailment. Of a program with negation,
            steps are counted in each stratum.
        depth: for fact sets whose closure takes at most this many steps; by default
            `depth_bound(program)`, which no fact set exceeds.
        facts: fact sets whose depths take the place of that bound: the window then holds for
            every fact set that is no deeper than the deepest of these.
        tolerance: the window holds for every input whose facts are at least 1 − tolerance and
            whose other atoms are at most tolerance; at least 0 and below one half.
        check: whether to compare the bounds with an independent evaluation of single steps in
            interval arithmetic, which is slow: for small models.
        dtype: the dtype of the states, for example "bfloat16"; by default that of the model.

    Returns:
        A certificate, also if there is no window: then `holds` is false and `message` says why.

    Raises:
        ModelError: if the atoms differ, an argument is out of range, or the model is too large
            to be checked.
        CertificateError: if the check finds a bound that does not hold.
    """
    expected = "a number from 0 to below 0.5"
    real_number("tolerance", tolerance, expected, lambda x: 0 <= x < 0.5)
    found, certified = _Certifier(model, program, depth, facts, dtype)(tolerance)
    if check:
        from latentgamma.certificate.bounds import check_bounds

        for weights in certified:
            check_bounds(weights)
    return found


def tolerance(
    model: Certifiable,
    program: Program,
    *,
    steps: int | None = None,
    depth: int | None = None,
    facts: FactSets | None = None,
    dtype: str | None = None,
) -> float:
    """Return the largest tolerance, to within a part in 1,000, at which the model is certified.

    Args:
        model: any LatentGamma, from `oracle`, perturbed or trained.
        program: the program to compare it with.
        steps: the number of steps that the window must cover; by default any window will do.
        depth: as in `certify`.
        facts: as in `certify`.
        dtype: as in `certify`.

    Returns:
        A number δ below one half for which `certify(model, program, tolerance=δ)`, with the same
        `depth`, `facts` and `dtype`, holds and covers `steps`.

    Raises:
        CertificateError: if the model is not certified for exact inputs.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> model = lg.oracle(program)
    >>> delta = lg.operator.tolerance(model, program, steps=2)
    >>> 0.1 < delta < 0.5
    True
    >>> lg.certify(model, program, tolerance=delta).covers(2)
    True
    """
    if steps is not None:
        whole_number("steps", steps)
    certified = _Certifier(model, program, depth, facts, dtype)

    def enough(delta: float) -> bool:
        found, _ = certified(delta)
        return found.holds if steps is None else found.covers(steps)

    if not enough(0.0):
        found = certified(0.0)[0].require()
        raise CertificateError(
            f"step {steps} is outside of the window even for exact inputs: {found}"
        )
    low, high = 0.0, 0.5
    while high - low > 1e-3 * high and high > _LEAST_TOLERANCE:
        middle = (low + high) / 2 if low > 0 else high / _SMALLER
        if enough(middle):
            low = middle
        else:
            high = middle
    return low


class _Certifier:
    """Certifies one model against one program for one tolerance after another."""

    def __init__(
        self,
        model: Certifiable,
        program: Program,
        depth: int | None,
        facts: FactSets | None,
        dtype: str | None,
    ) -> None:
        if not hasattr(model, "places"):
            other = "; for a layer, use layer.certified()" if hasattr(model, "certified") else ""
            raise ModelError(
                "certify takes a model, such as lg.oracle(program), and then a program; "
                f"the first is a {type(model).__name__}{other}"
            )
        require_program(program, "certify")
        if depth is not None:
            whole_number("depth", depth)
        if facts is not None and depth is not None:
            raise ArgumentError(
                "give depth or facts, not both: facts stand for the depth they have"
            )
        if facts is not None:
            sets = np.atleast_2d(fact_masks(program, facts))
            depth = max((closure(program, row).depth for row in sets), default=0)
        self.program, self.depth = program, depth
        self.parts = parts_of(model, program, dtype)
        self.negating = [bool((part.literal % 2).any()) for part in self.parts]

    def __call__(self, tolerance: float) -> tuple[Certificate, list[LiteralWeights]]:
        """Return the certificate, and what was read for it."""
        aligned, found = self._aligned, None
        if aligned is not None:
            # The rows stand for the rules of the program one by one.
            found = self._window(aligned, tolerance, self.depth)
            if found.holds:
                return found, _weights_of(aligned)
        chosen = [self._choose(part, tolerance) for part in self.parts]
        own = [worst.weights.program for worst in chosen]
        if aligned is not None and found is not None and own == _programs(aligned):
            return found, _weights_of(aligned)
        if others := differences(self.parts, own, self.program):
            shown = "; ".join(others[:_SHOWN_DIFFERENCES])
            left = len(others) - _SHOWN_DIFFERENCES
            more = f"; and {left} more" if left > 0 else ""
            # With negation, closures may be the same though rules do not follow from each other.
            exact = self.program.definite and not any(self.negating)
            verdict = "does not implement" if exact else "is not shown to implement"
            differs = replace(
                found or self._window(chosen, tolerance, 0),
                status=Status.DIFFERS,
                differences=tuple(others),
                message=f"the model {verdict} this program: {shown}{more}. Certify it "
                f"against its own rules, or train it further",
            )
            return differs, _weights_of(aligned or chosen)
        # The same closures, though not row by row; its own rules may take more steps.
        by_rows = self._window(chosen, tolerance, None)
        if by_rows.holds or found is None:
            return by_rows, _weights_of(chosen)
        return found, _weights_of(chosen)

    @cached_property
    def _aligned(self) -> list[Worst] | None:
        """What bounds the parts if all their rows are rules of the program; None if they cannot be."""
        if len(self.parts) != len(self.program.strata):
            return None
        aligned = [part.aligned for part in self.parts]
        return None if any(worst is None for worst in aligned) else [w for w in aligned if w]

    def _choose(self, part: Part, tolerance: float) -> Worst:
        """Return what bounds a part with the rules that a proof is most likely to succeed with."""
        if len(self.parts) > 1 and part.aligned is not None:
            alone = window([part.aligned], depth=self.depth, tolerance=tolerance)
            if alone.holds:
                return part.aligned
        return part.own

    def _window(self, strata: Sequence[Worst], tolerance: float, depth: int | None) -> Certificate:
        return window(strata, self.negating, depth=depth, tolerance=tolerance)


def _programs(strata: Sequence[Worst]) -> list[Program]:
    return [worst.weights.program for worst in strata]


def _weights_of(strata: Sequence[Worst]) -> list[LiteralWeights]:
    return [worst.weights for worst in strata]
