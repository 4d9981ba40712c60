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

from latentgamma._certificate.certificate import Certificate, Margins, Status
from latentgamma._certificate.certify import Readable, ReadableStrata, certify
from latentgamma._certificate.closed_form import ClosedForm
from latentgamma._certificate.constants import Constants
from latentgamma._certificate.lower_end import lower_end
from latentgamma._certificate.step_bounds import Reading
from latentgamma._certificate.upper_end import Worst, upper_end, worst_cases
from latentgamma._certificate.window import margins_of
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


class StrataCertifier:
    """Certifies a model of strata for one tolerance after another."""

    def __init__(
        self,
        model: ReadableStrata,
        program: StratifiedProgram,
        depth: int | None,
        facts: FactSets | None,
    ) -> None:
        self.parts: list[Readable] = list(getattr(model, "parts", ()))
        if not hasattr(model, "parts") or len(self.parts) != len(program.strata):
            raise ModelError(
                f"a program with {len(program.strata)} strata is certified against a model of its "
                "own strata, such as lg.oracle(program)"
            )
        if facts is not None:
            sets = np.atleast_2d(fact_masks(program, facts))
            depth = max((closure(program, row).depth for row in sets), default=0)
        self.program, self.depth = program, depth
        self.worst = [
            worst_cases(part.reading(stratum.program))
            for part, stratum in zip(self.parts, program.strata, strict=True)
        ]
        bounds = [depth_bound(stratum.program) for stratum in program.strata]
        self.depths = [bound if depth is None else min(bound, depth) for bound in bounds]

    def __call__(self, tolerance: float) -> tuple[Certificate, list[Reading]]:
        """The certificate, and what was read for it."""
        return self._certificate(tolerance), [worst.reading for worst in self.worst]

    def _certificate(self, tolerance: float) -> Certificate:
        best = _Window(math.inf, -1.0, 0.0)
        if not self.worst:
            best = _Window(0.0, math.inf, 0.0)
        for last in _TOLERANCES:
            if last > tolerance:
                found = _window(self.worst, self.depths, tolerance, last)
                best = found if found.better_than(best) else best
            if best.t_min <= best.t_max and best.t_max >= _ENOUGH:
                break  # a smaller tolerance starts later
        if best.t_max < best.t_min:
            for number, (part, stratum) in enumerate(
                zip(self.parts, self.program.strata, strict=True), 1
            ):
                alone = certify(part, stratum.program, depth=self.depth, tolerance=tolerance)
                if not alone.holds:
                    return replace(alone, message=f"stratum {number}: {alone.message}")
        every = self.depth is None
        return _joined(self.worst, self.depths, best, every=every, tolerance=tolerance)


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
            chosen[key] = Constants.certified(
                part, horizon, dtype=dtype, gate="bump" if bump else "sigmoid"
            )
    found = forms([chosen[_profile(part)] for part in programs])
    for hardness in _HARDNESS:
        certificate = certify(found, program)
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
        depth_bound(program),
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


def _window(strata: Sequence[Worst], depths: Sequence[int], first: float, last: float) -> _Window:
    """The window in which inputs within `first` of 0 and 1 reach the last stratum within `last`."""
    count = len(strata)
    t_min, t_max, leak = 0.0, math.inf, 0.0
    for s, (worst, depth) in enumerate(zip(strata, depths, strict=True)):
        reading = worst.reading
        given = first + (last - first) * s / count
        passed_on = first + (last - first) * (s + 1) / count
        if s + 1 == count:
            passed_on = 0.5  # the last one is read, and one half is enough for that
        else:
            passed_on -= 2.0 ** (1 - reading.rounding.digits)  # 1 − s is rounded, too
        if not reading.in_range:
            return _Window(math.inf, -1.0, last)
        t_min = max(t_min, lower_end(reading, depth, given, goal=1.0 - passed_on))
        upper = upper_end(worst, given, limit=passed_on)
        t_max, leak = min(t_max, upper.t_max), max(leak, upper.leak)
        if t_min > t_max:
            break
    return _Window(t_min, t_max, last, leak)


def _joined(
    strata: Sequence[Worst],
    depths: Sequence[int],
    window: _Window,
    *,
    every: bool,
    tolerance: float,
) -> Certificate:
    """One certificate for all strata: the window, and the worst of everything else."""
    dtype = strata[0].reading.rounding.dtype if strata else "float32"
    found = [margins_of(worst) for worst in strata]
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
        program, (_, weakest_rule, weakest_atom) = strata[s].reading.program, found[s]
        rule = None if weakest_rule is None else str(program.rules[weakest_rule])
        atom = None if weakest_atom is None else program.atoms[weakest_atom]
    depth = max(depths, default=0)
    if window.t_max < window.t_min:
        status = Status.LEAKS
        message = (
            f"nothing is proved: each of the {len(strata)} strata is exact on 0 and 1, but not "
            "on the values that the ones before it hand on. Raise the gain and the sharpness, or "
            "use lg.oracle(program)"
        )
    else:
        status = Status.HOLDS
        end = "on" if math.isinf(window.t_max) else f"to step {window.t_max:,.0f}"
        which = "for every fact set" if every else f"for every fact set of depth at most {depth}"
        soft = f" and inputs within {tolerance:g} of 0 and 1" if tolerance else ""
        message = (
            f"exact from step {window.t_min:,.0f} {end} in each of {len(strata)} strata, "
            f"{which}{soft}, in {dtype}; the strata hand on values within {window.last:g} of 0 and 1"
        )
    return Certificate(
        window.t_min, window.t_max, depth, window.leak, margins, status, message, rule, atom, dtype,
        tolerance=tolerance,
    )  # fmt: skip
