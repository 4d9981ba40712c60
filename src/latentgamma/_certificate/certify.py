"""Certifies a model against a program, for exact and for soft inputs.

The certificate reads the weights and assumes nothing about them, so it serves closed-form, noisy
and learned models alike. Each end of the window is an induction over steps that holds for *every*
fact set: `upper_end` bounds what is not derivable from above, `lower_end` what is derivable from
below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from latentgamma._certificate.certificate import Certificate, Status
from latentgamma._certificate.parts import (
    Part,
    Readable,
    ReadableStrata,
    differences,
    parts_of,
)
from latentgamma._certificate.step_bounds import Reading
from latentgamma._certificate.upper_end import Worst
from latentgamma._certificate.window import window
from latentgamma._errors import CertificateError, ModelError
from latentgamma._logic.closure import closure
from latentgamma._program.facts import FactSets, fact_masks
from latentgamma._program.program import Program, require_program

# Differences that a message shows.
_SHOWN_DIFFERENCES = 3
# How the search for a tolerance goes down from one half until it finds one, and where it ends.
_SMALLER, _LEAST_TOLERANCE = 8, 1e-9


def certify(
    model: Readable | ReadableStrata,
    program: Program,
    *,
    depth: int | None = None,
    facts: FactSets | None = None,
    tolerance: float = 0.0,
    check: bool = False,
    dtype: str | None = None,
) -> Certificate:
    """The window in which the model provably equals the program, for every fact set.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> certificate = lg.certify(lg.oracle(program), program)
    >>> certificate.holds, certificate.t_min
    (True, 2.0)

    Args:
        model: any LatentGamma, from `oracle`, perturbed or trained.
        program: the program to compare it with; its atoms are matched by name. If the model's
            rows do not stand for its rules one by one, the rows are read as rules of their own,
            and these are compared with the program by entailment. Of a program with negation,
            steps are counted in each stratum.
        depth: for fact sets whose closure takes at most so many steps; by default
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
    if not 0 <= tolerance < 0.5:
        raise ModelError(f"tolerance is a number from 0 to below 0.5, not {tolerance!r}")
    found, readings = _Certifier(model, program, depth, facts, dtype)(tolerance)
    if check:
        from latentgamma._certificate.interval_step import check_bounds

        for reading in readings:
            check_bounds(reading)
    return found


def tolerance(
    model: Readable | ReadableStrata,
    program: Program,
    *,
    steps: int | None = None,
    depth: int | None = None,
    facts: FactSets | None = None,
) -> float:
    """The largest tolerance, to within a part in 1,000, at which the model is still certified.

    Args:
        model: any LatentGamma, from `oracle`, perturbed or trained.
        program: the program to compare it with.
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
    certified = _Certifier(model, program, depth, facts)

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
        model: Readable | ReadableStrata,
        program: Program,
        depth: int | None,
        facts: FactSets | None,
        dtype: str | None = None,
    ) -> None:
        if not hasattr(model, "reading") and not hasattr(model, "parts"):
            other = "; for a layer, use layer.certified()" if hasattr(model, "certified") else ""
            raise ModelError(
                "certify takes a model, such as lg.oracle(program), and then a program; "
                f"the first is a {type(model).__name__}{other}"
            )
        require_program(program, "certify")
        if depth is not None and depth < 0:
            raise ModelError(f"depth is a whole number from 0 on, not {depth!r}")
        if facts is not None and depth is not None:
            raise ModelError("give depth or facts, not both: facts stand for the depth they have")
        if facts is not None:
            sets = np.atleast_2d(fact_masks(program, facts))
            depth = max((closure(program, row).depth for row in sets), default=0)
        self.program, self.depth = program, depth
        self.parts = parts_of(model, program, dtype)
        self.negating = [bool((part.literal % 2).any()) for part in self.parts]

    def __call__(self, tolerance: float) -> tuple[Certificate, list[Reading]]:
        """The certificate, and what was read for it."""
        aligned, found = self._aligned, None
        if aligned is not None:
            # The rows stand for the rules of the program one by one.
            found = self._window(aligned, tolerance, self.depth)
            if found.holds:
                return found, _readings(aligned)
        chosen = [self._chosen(part, tolerance) for part in self.parts]
        own = [worst.reading.program for worst in chosen]
        if aligned is not None and found is not None and own == _programs(aligned):
            return found, _readings(aligned)
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
            return differs, _readings(aligned or chosen)
        # The same closures, though not row by row; its own rules may take more steps.
        by_rows = self._window(chosen, tolerance, None)
        if by_rows.holds or found is None:
            return by_rows, _readings(chosen)
        return found, _readings(chosen)

    @cached_property
    def _aligned(self) -> list[Worst] | None:
        """What bounds the parts if all their rows are rules of the program; None if they cannot be."""
        if len(self.parts) != len(self.program.strata):
            return None
        aligned = [part.aligned for part in self.parts]
        return None if any(worst is None for worst in aligned) else [w for w in aligned if w]

    def _chosen(self, part: Part, tolerance: float) -> Worst:
        """What bounds a part with the rules that a proof is most likely to succeed with."""
        if len(self.parts) > 1 and part.aligned is not None:
            alone = window([part.aligned], depth=self.depth, tolerance=tolerance)
            if alone.holds:
                return part.aligned
        return part.own

    def _window(self, strata: Sequence[Worst], tolerance: float, depth: int | None) -> Certificate:
        return window(strata, self.negating, depth=depth, tolerance=tolerance)


def _programs(strata: Sequence[Worst]) -> list[Program]:
    return [worst.reading.program for worst in strata]


def _readings(strata: Sequence[Worst]) -> list[Reading]:
    return [worst.reading for worst in strata]
