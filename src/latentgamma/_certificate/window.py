"""From the bounds on single steps to the certificate of a model, for one stratum and for many.

All strata run for the same number of steps T. A stratum hands on values that are not quite 0 and 1:
its derived atoms are at least 1 − δ and the others at most δ, and the same holds for 1 − s, the
value of a negated atom, up to its rounding. So the next stratum is certified with that tolerance. The
tolerances rise from stratum to stratum along a straight line, from that of the inputs to one that
the last stratum can bear; T is in the window if every stratum turns inputs within its tolerance
into outputs within the next one. The last one is read, and one half is enough for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from latentgamma._certificate.certificate import Certificate, Margins, Status, is_window
from latentgamma._certificate.lower_end import lower_end
from latentgamma._certificate.parts import shown_rule
from latentgamma._certificate.upper_end import UpperEnd, Worst, upper_end
from latentgamma._logic.depth import depth_bound
from latentgamma._program.facts import Mask

#: The tolerances that the last of several strata is tried with.
_TOLERANCES = (0.16, 0.08, 0.04, 0.02, 0.01)
#: Windows that reach beyond this step are all the same to anyone who runs the model.
_ENOUGH = 10**6


class Proved(NamedTuple):
    """Steps in which every stratum hands on values within the next one's tolerance."""

    t_min: float
    t_max: float
    last: float  # the tolerance of the last stratum
    upper: tuple[UpperEnd, ...]  # of each stratum

    @property
    def reach(self) -> tuple[float, float]:
        """How far it reaches, as far as anyone cares, and how early it starts; larger is better."""
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
    """The certificate of weights that stand rule by rule for the rules of strata.

    Args:
        strata: what bounds each of them.
        negating: whether a stratum reads negations.
        depth: for fact sets whose closure takes at most so many steps; by default for all.
        tolerance: how far inputs may be from 0 and 1.
    """
    dtype = strata[0].reading.rounding.dtype if strata else "float32"
    depths = [depth_bound(worst.reading.program) for worst in strata] if depth is None else []
    every = f"for every fact set of depth at most {depth}"
    if depth is None:
        depth = max(depths, default=0)
        every = f"for every fact set (none is deeper than {depth})"
        if len(strata) > 1:
            every = f"for every fact set (no stratum is deeper than {depth})"
    elif len(strata) == 1:
        depths = [depth]
    else:
        depths = [min(depth, depth_bound(worst.reading.program)) for worst in strata]
    rules = tuple(worst.reading.program for worst in strata)
    if not all(worst.reading.in_range for worst in strata):
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
            message += f"; the strata hand on values within {proved.last:g} of 0 and 1"
    elif len(strata) > 1:
        for number, worst in enumerate(strata, 1):
            alone = window([worst], depth=depths[number - 1], tolerance=tolerance)
            if not alone.holds:
                return replace(alone, message=f"stratum {number}: {alone.message}", rules=rules)
        status = Status.LEAKS
        message = (
            f"nothing is proved: each of the {len(strata)} strata is exact on 0 and 1, but not "
            "on the values that the ones before it hand on. Raise the gain and the sharpness, or "
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
    """The window that reaches furthest, of several tolerances of the last stratum."""
    if len(strata) <= 1:
        return _proved(strata, depths, negating, tolerance, 0.5)
    best = Proved(math.inf, -1.0, 0.0, ())
    for last in (last for last in _TOLERANCES if last > tolerance):
        found = _proved(strata, depths, negating, tolerance, last)
        best = max(best, found, key=lambda one: one.reach)
        if best.reach[0] >= _ENOUGH:
            break  # a smaller tolerance starts later
    return best


def _proved(
    strata: Sequence[Worst],
    depths: Sequence[int],
    negating: Sequence[bool],
    first: float,
    last: float,
) -> Proved:
    """The steps in which inputs within `first` of 0 and 1 reach the last stratum within `last`."""
    count = len(strata)
    t_min, t_max = 0.0, math.inf
    upper: list[UpperEnd] = []
    for s, (worst, depth, negates) in enumerate(zip(strata, depths, negating, strict=True)):
        reading = worst.reading
        given = first + (last - first) * s / count
        if negates and given > 0:
            given += 2.0**-reading.rounding.digits  # 1 − s is rounded; 1 − 0 and 1 − 1 are exact
        handed_on = first + (last - first) * (s + 1) / count if s + 1 < count else 0.5
        if given >= 0.5:
            return Proved(math.inf, -1.0, last, tuple(upper))
        t_min = max(t_min, lower_end(reading, depth, given, goal=1.0 - handed_on))
        if count > 1 and not is_window(t_min, t_max):
            break
        upper.append(upper_end(worst, given, limit=handed_on))
        t_max = min(t_max, upper[-1].t_max)
    return Proved(t_min, t_max, last, tuple(upper))


def _weakest(strata: Sequence[Worst], proved: Proved) -> tuple[Margins, str | None, str | None]:
    """The worst margins, and the rule and the atom that come closest to failing."""
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
    program, (_, rule, atom) = strata[s].reading.program, found[s]
    if len(strata) == 1 and proved.upper[0].atom is not None:
        atom = proved.upper[0].atom
    return (
        margins,
        None if rule is None else shown_rule(program.rules[rule]),
        None if atom is None else program.atoms[atom],
    )


def _margins(worst: Worst) -> tuple[Margins, int | None, int | None]:
    """The margins at the start, and the rule and the atom that come closest to failing."""
    reading, program = worst.reading, worst.reading.program
    own: Mask = program.rules_per_head > 0
    above = reading.evidence_above(reading.least_body)
    bodies = program.body_sizes > 0
    below = reading.evidence_below(np.ones((1, 1)))[0] if program.R else np.zeros(0)
    slack = reading.rows.slack
    margins = Margins(
        float((slack - reading.outside).min(initial=math.inf)),
        float((slack - reading.least_body)[bodies].max(initial=-math.inf)),
        float(below.min(initial=math.inf)),
        float(above[own & ~worst.always].max(initial=-math.inf)),
        float(above[~own].max(initial=-math.inf)),
    )
    rule = int(reading.head_rule[below.argmin()]) if len(below) else None
    candidates = np.flatnonzero(~worst.always)
    atom = int(candidates[above[candidates].argmax()]) if len(candidates) else None
    return margins, rule, atom
