"""The closed form of a program with negation: that of each stratum, hard enough for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latentgamma._certificate.certify import certify
from latentgamma._certificate.closed_form import ClosedForm
from latentgamma._certificate.constants import Constants
from latentgamma._certificate.parts import Places
from latentgamma._errors import CertificateError
from latentgamma._logic.depth import depth_bound
from latentgamma._program.program import Program

#: How hard the constants are made, one after another, until the strata bear each other's values.
_HARDNESS = (1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class ClosedStrata:
    """The closed form of each stratum of a program."""

    program: Program
    parts: tuple[ClosedForm, ...]

    @property
    def atoms(self) -> tuple[str, ...]:
        """The names of the atoms."""
        return self.program.atoms

    @property
    def places(self) -> list[Places]:
        """What the model of each stratum reads and writes."""
        return [Places(s.atom, s.negated, s.derived) for s in self.program.strata]


def closed_strata(
    program: Program,
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
            program,
            tuple(
                ClosedForm(stratum.program, each, bump=bump, dtype=dtype)
                for stratum, each in zip(program.strata, constants, strict=True)
            ),
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
