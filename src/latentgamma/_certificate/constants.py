"""The closed form θ*(P): which constants, and what a model built from them computes with."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._certificate.certificate import reproduces
from latentgamma._certificate.step_bounds import Array, Reading, Rounding, sigmoid
from latentgamma._errors import CertificateError, ModelError
from latentgamma._program.program import Program

#: How rules with several heads share what they give: see `ClosedForm`.
Heads: TypeAlias = Literal["equal", "paper"]


@dataclass(frozen=True)
class Constants:
    """The numbers that the closed form is written with.

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
        """The constants of the paper's experiments."""
        return cls(body=10.0, head=20.0, sharpness=10.0, confidence=0.95, gain=5.0, gate=5.0)

    @classmethod
    def scaled(cls, program: Program, c: float = 4.0) -> Constants:
        """The paper's constants for any size as its remarks on scaling have them."""
        M, k = max(1, program.M), max(1, program.k)
        return cls(
            body=math.log(4 * k * M),
            head=math.log(M) + 10.0,
            sharpness=2.0 * math.log(program.rho_max + 2) + c,
            confidence=0.95,
            gain=5.0,
            gate=5.0,
        )

    @classmethod
    def closed_form(cls, program: Program, hardness: float = 1.0) -> Constants:
        """Constants written down from M, R, k and ρ_max; at hardness 1 the theorem's own.

        `docs/theorem.md` proves that at hardness 1 the operator is exact on every program, for
        every fact set, from step D to beyond step 10²⁰. Lower hardness gives softer gates and
        no promise: there the certificate has to speak.
        """
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
        cls, program: Program, horizon: float = 10**6, *, dtype: str = "float32"
    ) -> Constants:
        """The softest closed form that is exact from step D to the horizon, for every fact set.

        Of the family `closed_form(program, hardness)` it is the least hard one for which the
        certificate proves t_min = D for every depth D, and t_max ≥ horizon, in this dtype.
        """

        def proved(constants: Constants) -> bool:
            return _promises(program, constants, horizon, Rounding.of(dtype))

        low, high = 0.0, 1.0
        while not proved(cls.closed_form(program, high)):
            low, high = high, 1.5 * high
            if high > 8:
                raise CertificateError(
                    f"no constants of the closed form reach {horizon:g} steps in {dtype} on this "
                    f"program; ask for a shorter horizon or a wider dtype"
                )
        while high - low > 0.02:
            middle = (low + high) / 2
            if proved(cls.closed_form(program, middle)):
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
        """The constants as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ClosedForm:
    """The parameters θ*(P) of a program, as arrays.

    A rule with m heads spreads what it gives over all of them. With `heads="equal"` a rule's
    confidence grows with its number of heads, and the gain with the largest such number, so
    that every head gets what the head of a one-head rule would, and the one-head theorem covers
    all programs. `heads="paper"` is the construction of the paper's Appendix G, whose
    thresholds fail when one atom heads rules with different numbers of heads.
    """

    program: Program
    constants: Constants
    heads: Heads = "equal"
    bump: bool = False
    dtype: str = "float32"

    @property
    def R(self) -> int:
        """The number of rows, one for each rule."""
        return self.program.R

    @property
    def atoms(self) -> tuple[str, ...]:
        """The names of the atoms."""
        return self.program.atoms

    @property
    def threshold(self) -> Array:
        """b_j = k_j − ½. (R,)."""
        return self.program.body_sizes.astype(np.float64) - 0.5

    @property
    def sharpness(self) -> Array:
        """τ_j = τ_s. (R,)."""
        return np.full(self.R, self.constants.sharpness)

    @property
    def gain(self) -> float:
        """τ_nor, times the largest number of heads of a rule where heads are made equal."""
        return self.constants.gain * self._most_heads

    @property
    def confidence(self) -> Array:
        """ρ_j = ρ0, or in proportion to a rule's number of heads where these are made equal."""
        if self.heads == "paper":
            return np.full(self.R, self.constants.confidence)
        return self.constants.confidence * self.program.head_sizes / self._most_heads

    @property
    def _most_heads(self) -> int:
        return int(self.program.head_sizes.max(initial=1)) if self.heads == "equal" else 1

    @property
    def offset(self) -> Array:
        """θ_i, halfway between one satisfied rule and none. (M,)."""
        program, plus, minus = self.program, self.constants.gamma_plus, self.constants.gamma_minus
        if self.heads == "equal":
            halfway = (plus + program.rules_per_head * minus) / 2
        else:
            parts = 1.0 / np.repeat(program.head_sizes, program.head_sizes)
            largest = np.zeros(program.M)
            np.maximum.at(largest, program.head_indices, parts)
            total = np.bincount(program.head_indices, parts, program.M)
            halfway = (plus * largest + minus * total) / 2
        return np.where(program.rules_per_head > 0, halfway, 2 * plus)

    def reading(
        self, program: Program | None = None, rows: npt.NDArray[np.int64] | None = None
    ) -> Reading:
        """What a certificate reads of a model with these parameters."""
        if rows is not None or program not in (None, self.program):
            raise ModelError("a closed form can be certified against its own program alone")
        program, c = self.program, self.constants
        rounding = Rounding.of(self.dtype)
        on, off = sigmoid(np.array([c.body, -c.body]))
        k, m = program.body_sizes.astype(np.float64), program.head_sizes
        # Relative to e^Ψ, so that nothing overflows.
        faint = math.exp(-c.head)
        v = 1.0 / (m + (program.M - m) * faint)
        amplitude = self.gain * self.confidence
        sharpness, threshold = self.sharpness, self.threshold
        total = k * on + (program.M - k) * off
        # No rule fires beyond its amplitude, whatever the rounding.
        full = amplitude * v * faint
        return Reading(
            program=program,
            rounding=rounding,
            body=np.full(len(program.body_indices), on),
            body_total=total,
            head=np.repeat(v, m),
            threshold=threshold,
            sharpness=sharpness,
            amplitude=amplitude,
            stray=np.full(program.M, full.sum()),
            offset=self.offset,
            gate=c.gate,
            bump=self.bump,
            match_terms=k + 2.0,
            route_terms=program.rules_per_head.astype(np.float64) + 2.0,
            # The model's own weights may differ from these by a rounding or two.
            match_error=4 * rounding.unit * (k + 1.0),
            route_error=np.full(program.M, 4 * rounding.unit * c.gamma_plus),
        )

    def rows(self, atoms: tuple[str, ...]) -> tuple[Program, npt.NDArray[np.int64]]:
        """The program itself: each row is its rule."""
        return self.program, np.arange(self.R)


#: A program with one atom that implies itself: the stage for the worst case of every program.
_SELF = Program.from_rules([("a", ["a"])])


def _promises(program: Program, constants: Constants, horizon: float, rounding: Rounding) -> bool:
    """Whether the certificate of these constants is sure to reach from D to the horizon.

    In the closed form one atom is the worst for both ends: the one with ρ_max rules, these with
    the smallest bodies where they must not fire and the largest where they must. So one row
    stands for the whole program.
    """
    if program.R == 0:
        return _sinks_hold(program, constants, horizon)
    form = ClosedForm(program, constants, dtype=rounding.dtype)
    c, M, k, m = constants, program.M, program.body_sizes, program.head_sizes
    on, off = sigmoid(np.array([c.body, -c.body]))
    faint = math.exp(-c.head)

    def row(size: int, heads: int, copies: int) -> Reading:
        amplitude = c.gain * c.confidence * heads
        return Reading(
            program=_SELF,
            rounding=rounding,
            body=np.array([on * size]),
            body_total=np.array([size * on + (M - size) * off]),
            head=np.array([copies / (heads + (M - heads) * faint)]),
            threshold=np.array([size - 0.5]),
            sharpness=np.array([c.sharpness]),
            amplitude=np.array([amplitude]),
            stray=np.array([program.R * c.gain * c.confidence * faint]),
            offset=np.array([(c.gamma_plus + program.rho_max * c.gamma_minus) / 2]),
            gate=c.gate,
            bump=form.bump,
            match_terms=np.array([int(k.max()) + 2.0]),
            route_terms=np.array([program.rho_max + 2.0]),
            match_error=np.array([4 * rounding.unit * (size + 1.0)]),
            route_error=np.array([4 * rounding.unit * c.gamma_plus]),
        )

    if not reproduces(row(int(k.max()), int(m.min()), 1)):
        return False
    if not k.any():
        return _sinks_hold(program, constants, horizon)
    worst = row(int(k[k > 0].min()), int(m.max()), program.rho_max)
    # Below a level ℓ every leak is at most c(ℓ), so ℓ / c(ℓ) steps stay below it.
    for level in np.geomspace(1e-9, 0.5, 40):
        leak = float(worst.leak(np.array([on * (1 - level)]), level)[0])
        if leak * horizon <= level:
            return True
    return False


def _sinks_hold(program: Program, constants: Constants, horizon: float) -> bool:
    """Whether atoms that no rule derives stay low where there are no rules but facts.

    Their evidence φ is the same in every step, and so is the share of the way to one that they
    go: σ(βφ)σ(φ), at most e^{(β + 1)φ}.
    """
    c = constants
    stray = program.R * c.gain * c.confidence * math.exp(-c.head)
    evidence = stray - 2 * c.gamma_plus
    return evidence < 0 and math.exp((c.gate + 1) * evidence) * horizon <= 0.25
