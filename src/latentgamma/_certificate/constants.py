"""The constants that the closed form of a program is written with."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ArgumentError, CertificateError
from latentgamma._logic.depth import depth_bound
from latentgamma._program.program import Program, require_definite, require_program

#: The gate of the operator.
Gate: TypeAlias = Literal["sigmoid", "bump"]

# How the search for the softest constants goes on where hardness 1 is not enough, and where it ends.
_NEXT, _HARDEST = 1.5, 8.0


class Figures(Protocol):
    """What the constants depend on: a `Program` has it, and so has a part of one.

    Of the sizes of bodies and heads only the least and the largest matter.
    """

    @property
    def M(self) -> int:
        """The number of atoms."""

    @property
    def R(self) -> int:
        """The number of rules."""

    @property
    def k(self) -> int:
        """The size of the largest body."""

    @property
    def rho_max(self) -> int:
        """The largest number of rules of one head."""

    @property
    def body_sizes(self) -> npt.NDArray[np.int64]:
        """The sizes of bodies."""

    @property
    def head_sizes(self) -> npt.NDArray[np.int64]:
        """The numbers of heads of rules."""

    @property
    def rules_per_head(self) -> npt.NDArray[np.int64]:
        """The number of rules of each atom. (M,)."""


@dataclass(frozen=True)
class Constants:
    """The constants of the closed form of a program.

    >>> round(Constants.paper().gamma_plus, 4)
    4.7182
    """

    body: float  # η
    head: float  # Ψ
    sharpness: float  # τ_s
    confidence: float  # ρ0
    gain: float  # τ_nor
    gate: float  # β

    @classmethod
    def paper(cls) -> Constants:
        """The constants of the paper's experiments.

        Returns:
            η = 10, Ψ = 20, τ = 10, ρ = 0.95, τ_nor = 5 and β = 5.
        """
        return cls(body=10.0, head=20.0, sharpness=10.0, confidence=0.95, gain=5.0, gate=5.0)

    @classmethod
    def scaled(cls, program: Program, c: float = 4.0) -> Constants:
        """The constants of the paper's remarks on scaling, for a program of any size.

        Args:
            program: the program, of which the sizes M, k and ρ_max count; with negation, the
                largest ones of its strata.
            c: the part of the sharpness that does not depend on the program.

        Returns:
            Constants without a certificate: `certify` says where they are exact.
        """
        parts = [stratum.program for stratum in require_program(program, "Constants.scaled").strata]
        M, k = max(1, *(part.M for part in parts)), max(1, *(part.k for part in parts))
        return cls(
            body=math.log(4 * k * M),
            head=math.log(M) + 10.0,
            sharpness=2.0 * math.log(max(part.rho_max for part in parts) + 2) + c,
            confidence=0.95,
            gain=5.0,
            gate=5.0,
        )

    @classmethod
    def closed_form(cls, program: Figures, hardness: float = 1.0) -> Constants:
        """Constants written down from M, R, k and ρ_max; at hardness 1 the theorem's own.

        `docs/theorem.md` proves that at hardness 1 the operator is exact on every program, for
        every fact set, from step D to beyond step 10²⁰.

        Args:
            program: a definite program, or an object that has its sizes.
            hardness: a positive number. Below 1 the gates are softer and nothing is proved: use
                `certify`.

        Returns:
            The constants for these sizes.

        Raises:
            ProgramError: the program has negation.
        """
        if isinstance(program, Program):
            require_definite(program, "Constants.closed_form")
        M, k, rho = max(1, program.M), max(1, program.k), max(1, program.rho_max)
        sharpness = 2.0 * math.log(rho + 2) + 10.0 * hardness
        amplitude = 2.2 * math.log(k * (2.0 * math.log(rho + 2) + 10.0)) + 12.0
        return cls(
            body=math.log(M) + hardness * math.log(4.0 * sharpness),
            head=math.log(program.R + M) + 12.0 * hardness,
            sharpness=sharpness,
            confidence=0.95,
            gain=hardness * amplitude / 0.95,
            gate=5.0,
        )

    @classmethod
    def certified(
        cls,
        program: Program,
        horizon: float = 10**6,
        *,
        dtype: str = "float32",
        gate: Gate = "sigmoid",
    ) -> Constants:
        """The softest closed form that is exact from step D to the horizon, for every fact set.

        Of the family `closed_form(program, hardness)` it is the least hard one for which the
        certificate proves t_min = D for every depth D, and t_max at least the horizon and D.

        Args:
            program: any definite program.
            horizon: the number of steps that the window must reach.
            dtype: the dtype of the states, for example "float32".
            gate: "sigmoid" or "bump", as in `oracle`.

        Returns:
            The constants; their hardness is the least one up to 0.02.

        Raises:
            ArgumentError: if the horizon is not a number of steps.
            CertificateError: if the dtype cannot give such a window.
            ProgramError: if this is not a definite program.
        """
        require_horizon(horizon)
        program = require_definite(program, "Constants.certified")
        return cls.softest(program, max(horizon, depth_bound(program)), dtype=dtype, gate=gate)

    @classmethod
    def softest(cls, program: Figures, horizon: float, *, dtype: str, gate: Gate) -> Constants:
        """The constants that `certified` returns, computed from the sizes of a program.

        Args:
            program: a program, or an object that has its sizes.
            horizon: the number of steps that the window must reach, at least the largest depth.
            dtype: the dtype of the states, for example "float32".
            gate: "sigmoid" or "bump", as in `oracle`.

        Returns:
            The constants; their hardness is the least one up to 0.02.

        Raises:
            CertificateError: if the dtype cannot give such a window.
        """
        from latentgamma._certificate.closed_form import reaches

        def proved(hardness: float) -> bool:
            constants = cls.closed_form(program, hardness)
            return reaches(program, constants, horizon, dtype=dtype, bump=gate == "bump")

        low, high = 0.0, 1.0
        while not proved(high):
            low, high = high, _NEXT * high
            if high > _HARDEST:
                raise CertificateError(
                    f"no constants of the closed form reach {horizon:g} steps in {dtype} on this "
                    f"program; ask for a shorter horizon or a wider dtype"
                )
        while high - low > 0.02:
            middle = (low + high) / 2
            if proved(middle):
                high = middle
            else:
                low = middle
        return cls.closed_form(program, high)

    @property
    def gamma_plus(self) -> float:
        """γ⁺, what a satisfied rule gives its head."""
        return self.gain * self.confidence / (1 + math.exp(-self.sharpness / 2))

    @property
    def gamma_minus(self) -> float:
        """γ⁻, what an unsatisfied rule gives its head."""
        # e^{−τ/2} / (1 + e^{−τ/2}), which cannot overflow.
        small = math.exp(-self.sharpness / 2)
        return self.gain * self.confidence * small / (1 + small)

    def to_dict(self) -> dict[str, Any]:
        """The constants as plain values, for JSON.

        Returns:
            A dictionary with one number for each field.
        """
        return asdict(self)


def require_horizon(horizon: float) -> None:
    """Raise an ArgumentError unless this is a number of steps."""
    if not 0 <= horizon < math.inf:
        raise ArgumentError(f"horizon is a number of steps, from 0 on, not {horizon!r}")
