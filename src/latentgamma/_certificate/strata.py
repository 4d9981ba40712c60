"""The certificate of a program with negation: the strata in a row, each fed by those before it.

All strata run for the same number of steps T. A stratum hands on values that are not quite 0 and 1:
its derived atoms are at least 1 − δ and the others at most δ, and the same holds for 1 − s, the
value of a negated atom. So the next stratum is certified with the tolerance δ. The tolerances rise
from stratum to stratum along a straight line, from that of the inputs to one that the last stratum
can bear; T is in the window if every stratum turns inputs within its tolerance into outputs within
the next one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from latentgamma._certificate.certificate import (
    Certificate,
    Margins,
    Readable,
    ReadableStrata,
    Status,
    certify,
    lower_end,
    margins_of,
    upper_end,
)
from latentgamma._certificate.constants import ClosedForm, Constants
from latentgamma._certificate.step_bounds import Reading
from latentgamma._errors import CertificateError, ModelError
from latentgamma._logic.closure import closure
from latentgamma._logic.depth import depth_bound
from latentgamma._program.facts import FactSets, fact_masks
from latentgamma._program.program import Program
from latentgamma._program.stratified import StratifiedProgram

#: The tolerances that the last stratum is tried with.
_TOLERANCES = (0.16, 0.08, 0.04, 0.02, 0.01)
#: How hard the constants are made, one after another, until the strata bear each other's values.
_HARDNESS = (1.0, 1.25, 1.5, 2.0, 3.0)
#: Windows that reach beyond this step are all the same to anyone who runs the model.
_ENOUGH = 10**6


@dataclass(frozen=True)
class ClosedStrata:
    """The closed form of each stratum."""

    parts: tuple[ClosedForm, ...]


def certify_strata(
    model: ReadableStrata,
    program: StratifiedProgram,
    *,
    depth: int | None = None,
    facts: FactSets | None = None,
    tolerance: float = 0.0,
) -> Certificate:
    """The window of steps, taken in each stratum, in which the model equals the program.

    The arguments are those of `certify`.
    """
    parts: list[Readable] = list(getattr(model, "parts", ()))
    if not hasattr(model, "parts") or len(parts) != len(program.strata):
        raise ModelError(
            f"a program with {len(program.strata)} strata is certified against a model of its own "
            "strata, such as lg.oracle(program)"
        )
    if facts is not None:
        if depth is not None:
            raise ModelError("give depth or facts, not both: facts stand for the depth they have")
        sets = np.atleast_2d(fact_masks(program, facts))
        depth = max((closure(program, row).depth for row in sets), default=0)
    readings = [
        part.reading(stratum.program) for part, stratum in zip(parts, program.strata, strict=True)
    ]
    bounds = [depth_bound(stratum.program) for stratum in program.strata]
    depths = [bound if depth is None else min(bound, depth) for bound in bounds]
    best = _Window(math.inf, -1.0, 0.0)
    if not readings:
        best = _Window(0.0, math.inf, 0.0)
    for last in _TOLERANCES:
        if last > tolerance:
            found = _window(readings, depths, tolerance, last)
            best = found if found.better_than(best) else best
        if best.t_min <= best.t_max and best.t_max >= _ENOUGH:
            break  # a smaller tolerance starts later
    if best.t_max < best.t_min:
        for number, (part, stratum) in enumerate(zip(parts, program.strata, strict=True), 1):
            alone = certify(part, stratum.program, depth=depth, tolerance=tolerance)
            if not alone.holds:
                return replace(alone, message=f"stratum {number}: {alone.message}")
    return _joined(readings, depths, best, every=depth is None, tolerance=tolerance)


def closed_strata(
    program: StratifiedProgram,
    constants: Constants | None = None,
    horizon: float = 10**6,
    *,
    dtype: str = "float32",
    bump: bool = False,
) -> ClosedStrata:
    """The closed form of each stratum, certified up to the horizon unless constants are given.

    Raises:
        CertificateError: if no constants of the closed form reach so far.
    """

    def forms(constants: Sequence[Constants]) -> ClosedStrata:
        return ClosedStrata(
            tuple(
                ClosedForm(stratum.program, each, bump=bump, dtype=dtype)
                for stratum, each in zip(program.strata, constants, strict=True)
            )
        )

    programs = [stratum.program for stratum in program.strata]
    if constants is not None:
        return forms([constants] * len(programs))
    chosen: dict[tuple[int, ...], Constants] = {}
    for part in programs:
        key = _profile(part)
        if key not in chosen:
            chosen[key] = Constants.certified(part, horizon, dtype=dtype)
    found = forms([chosen[_profile(part)] for part in programs])
    for hardness in _HARDNESS:
        certificate = certify_strata(found, program)
        if certificate.holds and certificate.t_max >= horizon:
            return found
        found = forms([Constants.closed_form(part, hardness) for part in programs])
    raise CertificateError(
        f"no constants of the closed form carry {len(programs)} strata to step {horizon:g} in "
        f"{dtype}; ask for a shorter horizon or a wider dtype"
    )


def _profile(program: Program) -> tuple[int, ...]:
    """What `Constants.certified` depends on, so that equal strata are looked at once."""
    sizes = program.body_sizes
    smallest = int(sizes[sizes > 0].min(initial=1))
    heads = program.head_sizes
    return (
        program.M,
        program.R,
        program.k,
        smallest,
        int(heads.min(initial=1)),
        int(heads.max(initial=1)),
        program.rho_max,
    )


class _Window(NamedTuple):
    """Steps in which every stratum hands on values within its tolerance."""

    t_min: float
    t_max: float
    #: The tolerance of the last stratum.
    last: float
    #: The largest leak of the first step.
    leak: float = 0.0

    def better_than(self, other: _Window) -> bool:
        """Whether it reaches further, as far as anyone cares, or starts earlier."""
        if self.t_max < self.t_min:
            return False
        own, others = min(self.t_max, _ENOUGH), min(other.t_max, _ENOUGH)
        return (own, -self.t_min) > (others, -other.t_min)


def _window(
    readings: Sequence[Reading], depths: Sequence[int], first: float, last: float
) -> _Window:
    """The window in which inputs within `first` of 0 and 1 reach the last stratum within `last`."""
    count = len(readings)
    t_min, t_max, leak = 0.0, math.inf, 0.0
    for s, (reading, depth) in enumerate(zip(readings, depths, strict=True)):
        given = first + (last - first) * s / count
        passed_on = first + (last - first) * (s + 1) / count
        if s + 1 == count:
            passed_on = 0.5  # the last one is read, and one half is enough for that
        else:
            passed_on -= 2 * reading.rounding.stored  # 1 − s is rounded, too
        if not reading.in_range:
            return _Window(math.inf, -1.0, last)
        t_min = max(t_min, lower_end(reading, depth, given, goal=1.0 - passed_on))
        end, leaks, curve = upper_end(reading, given)
        t_max = min(t_max, _last_below(passed_on, end, curve))
        leak = max(leak, float(leaks.max(initial=0.0)))
        if t_min > t_max:
            break
    return _Window(t_min, t_max, last, leak)


def _last_below(limit: float, end: float, curve: Sequence[tuple[float, float]]) -> float:
    """The last step known to keep every underivable atom at or below the limit."""
    if limit >= 0.5:
        return end
    reached = [steps for steps, bound in curve if bound <= limit]
    if len(reached) == len(curve) and math.isinf(end):
        return end
    return reached[-1] if reached else -1.0


def _joined(
    readings: Sequence[Reading],
    depths: Sequence[int],
    window: _Window,
    *,
    every: bool,
    tolerance: float,
) -> Certificate:
    """One certificate for all strata: the window, and the worst of everything else."""
    dtype = readings[0].rounding.dtype if readings else "float32"
    found = [margins_of(reading) for reading in readings]
    rows = np.array([margins for margins, _, _ in found]).reshape(-1, len(Margins._fields))
    margins = Margins(
        *(
            float(column.min(initial=math.inf) if on else column.max(initial=-math.inf))
            for on, column in zip(
                [name.endswith("_on") for name in Margins._fields], rows.T, strict=True
            )
        )
    )
    rule = atom = None
    if found:
        s = min(range(len(found)), key=lambda s: found[s][0].evidence_on)
        program, (_, weakest_rule, weakest_atom) = readings[s].program, found[s]
        rule = None if weakest_rule is None else str(program.rules[weakest_rule])
        atom = None if weakest_atom is None else program.atoms[weakest_atom]
    depth = max(depths, default=0)
    if window.t_max < window.t_min:
        status = Status.LEAKS
        message = (
            f"nothing is proved: each of the {len(readings)} strata is exact on 0 and 1, but not "
            "on the values that the ones before it hand on. Raise the gain and the sharpness, or "
            "use lg.oracle(program)"
        )
    else:
        status = Status.HOLDS
        end = "for ever" if math.isinf(window.t_max) else f"to step {window.t_max:,.0f}"
        which = "for every fact set" if every else f"for every fact set of depth at most {depth}"
        soft = f" and inputs within {tolerance:g} of 0 and 1" if tolerance else ""
        message = (
            f"exact from step {window.t_min:,.0f} {end} in each of {len(readings)} strata, "
            f"{which}{soft}, in {dtype}; the strata hand on values within {window.last:g} of 0 and 1"
        )
    return Certificate(
        window.t_min, window.t_max, depth, window.leak, margins, status, message, rule, atom, dtype,
        tolerance=tolerance,
    )  # fmt: skip
