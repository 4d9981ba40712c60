"""From the bounds on single steps to the certificate of a model whose rows are a program's rules."""

from __future__ import annotations

import math

import numpy as np

from latentgamma._certificate.certificate import Certificate, Margins, Status
from latentgamma._certificate.lower_end import lower_end
from latentgamma._certificate.step_bounds import Reading
from latentgamma._certificate.upper_end import Worst, upper_end, worst_cases
from latentgamma._logic.depth import depth_bound
from latentgamma._program.program import Program

#: Characters of a rule that a message shows.
_SHOWN = 100


def shown_rule(program: Program, rule: int) -> str:
    """A rule as text, cut where it is too long for a message."""
    text = str(program.rules[rule])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def window(
    worst: Worst | Reading, *, depth: int | None = None, tolerance: float = 0.0
) -> Certificate:
    """The certificate of weights that stand rule by rule for a program."""
    if isinstance(worst, Reading):
        worst = worst_cases(worst)
    reading = worst.reading
    program = reading.program
    every = f"for every fact set of depth at most {depth}"
    if depth is None:
        depth = depth_bound(program)
        every = f"for every fact set (none is deeper than {depth})"
    if not reading.in_range:
        return _undefined(reading, depth, tolerance)
    upper = upper_end(worst, tolerance)
    t_min, t_max = lower_end(reading, depth, tolerance), upper.t_max
    margins, weakest_rule, weakest_atom = margins_of(worst)
    if upper.atom is not None:
        weakest_atom = upper.atom
    names = (
        None if weakest_rule is None else shown_rule(program, weakest_rule),
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
            f"{upper.leak:.3g} a step). Raise the sharpness and the body logits, "
            f"or use Constants.certified(program)"
        )
    else:
        status = Status.HOLDS
        end = "on" if math.isinf(t_max) else f"to step {t_max:,.0f}"
        soft = f" and inputs within {tolerance:g} of 0 and 1" if tolerance else ""
        message = f"exact from step {t_min:,.0f} {end}, {every}{soft}, in {reading.rounding.dtype}"
    return Certificate(
        t_min, t_max, depth, upper.leak, margins, status, message, *names,
        reading.rounding.dtype, tolerance=tolerance, curve=tuple(upper.curve),
    )  # fmt: skip


def _undefined(reading: Reading, depth: int, tolerance: float) -> Certificate:
    """The certificate of numbers that no arithmetic could follow."""
    nothing = Margins(*[math.nan] * 5)
    message = (
        f"nothing is proved: parameters are not finite, or their products leave the range of "
        f"{reading.rounding.dtype}. Look for a training run that diverged, or use "
        f"Constants.certified(program)"
    )
    return Certificate(
        math.inf, 0.0, depth, math.nan, nothing, Status.UNDEFINED, message, None, None,
        reading.rounding.dtype, tolerance=tolerance,
    )  # fmt: skip


def margins_of(worst: Worst) -> tuple[Margins, int | None, int | None]:
    """The margins at the start, and the rule and the atom that come closest to failing."""
    reading, program = worst.reading, worst.reading.program
    own = program.rules_per_head > 0
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
