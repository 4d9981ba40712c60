"""Certifies a model against a program, for exact and for soft inputs.

The certificate reads the weights and assumes nothing about them, so it serves closed-form, noisy
and learned models alike. Each end of the window is an induction over steps that holds for *every*
fact set: `upper_end` bounds what is not derivable from above, `lower_end` what is derivable from
below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from latentgamma._certificate.certificate import Certificate, Status
from latentgamma._certificate.step_bounds import Reading
from latentgamma._certificate.upper_end import Worst, worst_cases
from latentgamma._certificate.window import shown_rule, window
from latentgamma._errors import CertificateError, ModelError
from latentgamma._logic.closure import closure
from latentgamma._logic.equivalence import not_entailed
from latentgamma._program.facts import FactSets, fact_masks
from latentgamma._program.program import Program
from latentgamma._program.stratified import StratifiedProgram, require_any_program

# Differences and names that a message shows.
_SHOWN_DIFFERENCES, _SHOWN_NAMES = 3, 5
# How the search for a tolerance goes down from one half until it finds one, and where it ends.
_SMALLER, _LEAST_TOLERANCE = 8, 1e-9


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
    check: bool = False,
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
            and these are compared with the program by entailment. A program with negation is
            compared with the model of its strata; steps are counted in each stratum.
        depth: for fact sets whose closure takes at most so many steps; by default
            `depth_bound(program)`, which no fact set exceeds.
        facts: fact sets whose depths take the place of that bound: the window then holds for
            every fact set that is no deeper than the deepest of these.
        tolerance: the window holds for every input whose facts are at least 1 − tolerance and
            whose other atoms are at most tolerance; at least 0 and below one half.
        check: whether to compare the bounds with an independent evaluation of single steps in
            interval arithmetic, which is slow: for small models.

    Returns:
        A certificate, also if there is no window: then `holds` is false and `message` says why.

    Raises:
        ModelError: if the atoms differ, an argument is out of range, or the model is too large
            to be checked.
        CertificateError: if the check finds a bound that does not hold.
    """
    if not 0 <= tolerance < 0.5:
        raise ModelError(f"tolerance is a number from 0 to below 0.5, not {tolerance!r}")
    found, readings = _certifier(model, program, depth, facts)(tolerance)
    if check:
        from latentgamma._certificate.interval_step import check_bounds

        for reading in readings:
            check_bounds(reading)
    return found


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
    certified = _certifier(model, program, depth, facts)

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

    def __init__(self, model: Readable, program: Program, depth: int | None) -> None:
        self.model, self.program, self.depth = model, program, depth
        self.aligned: Worst | None = None
        if model.R == program.R:
            self.aligned = worst_cases(model.reading(program))

    def __call__(self, tolerance: float) -> tuple[Certificate, list[Reading]]:
        """The certificate, and what was read for it."""
        aligned, readings = None, []
        if self.aligned is not None:
            aligned = window(self.aligned, depth=self.depth, tolerance=tolerance)
            readings.append(self.aligned.reading)
            if aligned.holds:
                return aligned, readings
        looks, _ = self._own_rules
        differences = _differences(looks, self.program)
        if differences:
            shown = "; ".join(differences[:_SHOWN_DIFFERENCES])
            left = len(differences) - _SHOWN_DIFFERENCES
            more = f"; and {left} more" if left > 0 else ""
            blank = aligned or window(self._own_worst, depth=0, tolerance=tolerance)
            differs = replace(
                blank,
                status=Status.DIFFERS,
                differences=tuple(differences),
                message=f"the model does not implement this program: {shown}{more}. Certify it "
                f"against its own rules, or train it further",
            )
            return differs, readings
        if aligned is not None and looks == self.program:
            return aligned, readings
        # The same closures, though not row by row; its own rules may take more steps.
        found = window(self._own_worst, depth=None, tolerance=tolerance)
        readings.append(self._own_worst.reading)
        return (found if found.holds or aligned is None else aligned), readings

    @cached_property
    def _own_rules(self) -> tuple[Program, npt.NDArray[np.int64]]:
        return self.model.rows(self.program.atoms)

    @cached_property
    def _own_worst(self) -> Worst:
        return worst_cases(self.model.reading(*self._own_rules))


def _certifier(
    model: Readable | ReadableStrata,
    program: Program | StratifiedProgram,
    depth: int | None,
    facts: FactSets | None,
) -> Callable[[float], tuple[Certificate, list[Reading]]]:
    """The function from a tolerance to the certificate, and to what was read for it."""
    if not hasattr(model, "reading") and not hasattr(model, "parts"):
        other = "; for a layer, use layer.certified()" if hasattr(model, "certified") else ""
        raise ModelError(
            "certify takes a model, such as lg.oracle(program), and then a program; "
            f"the first is a {type(model).__name__}{other}"
        )
    require_any_program(program, "certify")
    if depth is not None and depth < 0:
        raise ModelError(f"depth is a whole number from 0 on, not {depth!r}")
    if facts is not None and depth is not None:
        raise ModelError("give depth or facts, not both: facts stand for the depth they have")
    if isinstance(program, StratifiedProgram):
        from latentgamma._certificate.strata import StrataCertifier

        return StrataCertifier(cast(ReadableStrata, model), program, depth, facts)
    model = cast(Readable, model)
    if facts is not None:
        sets = np.atleast_2d(fact_masks(program, facts))
        depth = max((closure(program, row).depth for row in sets), default=0)
    return _Certifier(model, _over(program, model.atoms), depth)


def _over(program: Program, atoms: tuple[str, ...] | None) -> Program:
    """The program with its atoms in the order of the model's state."""
    if atoms is None or atoms == program.atoms:
        return program
    unknown = set(program.atoms) ^ set(atoms)
    if unknown:
        shown = ", ".join(repr(name) for name in sorted(unknown)[:_SHOWN_NAMES])
        raise ModelError(f"the model and the program do not have the same atoms: {shown} differ")
    return Program.from_rules(program.rules, atoms=atoms)


def _differences(looks: Program, program: Program) -> list[str]:
    lost = [
        f"the program has '{shown_rule(program, int(j))}' (rule {j}), which the rows do not imply"
        for j in not_entailed(looks, program)
    ]
    extra = [
        f"a row acts as '{shown_rule(looks, int(j))}', which the program does not imply"
        for j in not_entailed(program, looks)
    ]
    return lost + extra
