"""Constants of the closed form, and the search for certified ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import one_of, real_number
from latentgamma.certificate.bounds import GateNumbers, LiteralWeights, RowNumbers, sigmoid
from latentgamma.certificate.certify import Certificate, window
from latentgamma.certificate.ends import reproduced_level, worst_cases
from latentgamma.certificate.rounding import WIDE, Array, Rounding
from latentgamma.errors import CertificateError
from latentgamma.logic.closure import depth_bound
from latentgamma.program.program import Program, require_definite, require_program

# ---- Constants of the closed form

#: The gate of the operator: how a step turns evidence into the part of the way to go.
Gate: TypeAlias = Literal["sigmoid", "bump"]
#: The gates that certificates, log-odds and compiled kernels know.
PROVED_GATES = ("sigmoid", "bump")

# The search for the softest constants multiplies the hardness by the first number while 1 is not
# enough, and gives up above the second.
_NEXT, _HARDEST = 1.5, 8.0


class Sizes(NamedTuple):
    """What the constants of a definite program depend on."""

    M: int
    R: int
    k: int  # atoms of the largest body
    rho_max: int  # rules of one head, at most
    least_body: int  # atoms of the smallest body that is not empty; 0 if all are
    fewest_heads: int
    most_heads: int
    sinks: bool  # whether an atom has no rule

    @classmethod
    def of(cls, program: Program) -> Sizes:
        """Return the sizes of a program."""
        bodies, heads, own = program.body_sizes, program.head_sizes, program.rules_per_head
        return cls(
            program.M,
            program.R,
            program.k,
            program.rho_max,
            int(bodies[bodies > 0].min()) if program.k else 0,
            int(heads.min()) if program.R else 1,
            int(heads.max(initial=1)),
            bool((own == 0).any()),
        )


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
        """Return the constants of the paper's experiments.

        Returns:
            η = 10, Ψ = 20, τ = 10, ρ = 0.95, τ_nor = 5 and β = 5.
        """
        return cls(body=10.0, head=20.0, sharpness=10.0, confidence=0.95, gain=5.0, gate=5.0)

    @classmethod
    def scaled(cls, program: Program, c: float = 4.0) -> Constants:
        """Return the constants of the paper's remarks on scaling, for a program of any size.

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
    def closed_form(cls, program: Program | Sizes, hardness: float = 1.0) -> Constants:
        """Return constants written down from M, R, k and ρ_max; at hardness 1 the theorem's own.

        `docs/theorem.md` proves that at hardness 1 the operator is exact on every program, for
        every fact set, from step D to beyond step 10²⁰.

        Args:
            program: a definite program, or its sizes.
            hardness: a positive number. Below 1 the gates are softer and nothing is proved: use
                `certify`.

        Returns:
            The constants for these sizes.

        Raises:
            ArgumentError: the hardness is not positive.
            ProgramError: the program has negation.
        """
        real_number("hardness", hardness, "a positive number", lambda x: 0 < x < math.inf)
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
        """Return the softest closed form that is exact from step D to the horizon on all facts.

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
            ArgumentError: if the horizon is not a number of steps, or nothing is proved about the gate.
            CertificateError: if the dtype cannot give such a window.
            ProgramError: if this is not a definite program.
        """
        require_horizon(horizon)
        one_of("gate", gate, PROVED_GATES)
        program = require_definite(program, "Constants.certified")
        return cls.softest(
            Sizes.of(program), max(horizon, depth_bound(program)), dtype=dtype, gate=gate
        )

    @classmethod
    def softest(cls, sizes: Sizes, horizon: float, *, dtype: str, gate: Gate) -> Constants:
        """Return the constants that `certified` returns, computed from the sizes of a program.

        The horizon must be at least the largest depth.
        """

        def proved(hardness: float) -> bool:
            constants = cls.closed_form(sizes, hardness)
            return reaches(sizes, constants, horizon, dtype=dtype, bump=gate == "bump")

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
        return cls.closed_form(sizes, high)

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
        """Return the constants as plain values, for JSON."""
        return asdict(self)


def require_horizon(horizon: float) -> None:
    """Raise an ArgumentError unless this is a number of steps."""
    expected = "a number of steps, from 0 on"
    real_number("horizon", horizon, expected, lambda steps: 0 <= steps < math.inf)


# ---- The closed form θ*(P) of a program: its parameters, and what can be proved of them

#: How a rule with several heads divides its weight among them: see `ClosedForm`.
HeadSharing: TypeAlias = Literal["equal", "paper"]

#: Up to this many weights a model may be dense, and its sums as long as its matrices are wide.
DENSE_UP_TO = 1 << 13
#: A model's own weights differ from those computed here by some roundings of its parameters.
_PARAMETERS = 64.0


@dataclass(frozen=True)
class ClosedForm:
    """The parameters θ*(P) of a definite program, as arrays.

    A rule with m heads divides its weight among them. With `head_sharing="equal"` a rule's
    confidence grows with its number of heads, and the gain with the largest such number, so
    that every head gets what the head of a one-head rule would, and the one-head theorem covers
    all programs. `head_sharing="paper"` is the construction of the paper's Appendix G, whose
    thresholds fail when one atom heads rules with different numbers of heads.
    """

    program: Program
    constants: Constants
    head_sharing: HeadSharing = "equal"
    bump: bool = False
    dtype: str = "float32"
    #: Where the program is a part of a larger one, the rules of each head and the most heads there.
    whole: tuple[npt.NDArray[np.int64], int] | None = None

    @property
    def R(self) -> int:
        """The number of rows, one for each rule."""
        return self.program.R

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
        if self.head_sharing == "paper":
            return np.full(self.R, self.constants.confidence)
        return self.constants.confidence * self.program.head_sizes / self._most_heads

    @property
    def _most_heads(self) -> int:
        if self.head_sharing == "paper":
            return 1
        return self.whole[1] if self.whole else int(self.program.head_sizes.max(initial=1))

    @property
    def offset(self) -> Array:
        """θ_i, halfway between one satisfied rule and none. (M,)."""
        program, plus, minus = self.program, self.constants.gamma_plus, self.constants.gamma_minus
        own = self.whole[0] if self.whole else program.rules_per_head
        if self.head_sharing == "equal":
            halfway = (plus + own * minus) / 2
        else:
            parts = 1.0 / np.repeat(program.head_sizes, program.head_sizes)
            largest = np.zeros(program.M)
            np.maximum.at(largest, program.head_indices, parts)
            total = np.bincount(program.head_indices, parts, program.M)
            halfway = (plus * largest + minus * total) / 2
        return np.where(own > 0, halfway, 2 * plus)

    def literal_weights(self) -> LiteralWeights:
        """Return what a certificate reads of a model with these parameters."""
        program, c = self.program, self.constants
        k, m = program.body_sizes.astype(np.float64), program.head_sizes
        on, off = (float(x) for x in sigmoid(np.array([c.body, -c.body])))
        # Relative to e^Ψ, so that nothing overflows.
        faint = math.exp(-c.head)
        v = 1.0 / (m + (program.M - m) * faint)
        amplitude = self.gain * self.confidence
        return LiteralWeights(
            program=program,
            rounding=Rounding.of(self.dtype),
            body=np.full(len(program.body_indices), on),
            outside=(program.M - k) * off,
            least_weight=np.full(program.R, off),
            head=np.repeat(v, m),
            rows=_rows(program, k, c, amplitude, self.dtype),
            gates=_gates(
                program, self.offset, program.rules_per_head.astype(float), c, self.bump, self.dtype
            ),
            # No rule fires beyond its amplitude, whatever the rounding.
            stray=np.full(program.M, (amplitude * v * faint).sum() * (1 + 1e-6)),
        )


def _rows(
    program: Program | Sizes, sizes: Array, c: Constants, amplitude: Array, dtype: str
) -> RowNumbers:
    """Return the numbers of the rows of the closed form, for bodies of these sizes."""
    rounding = Rounding.of(dtype)
    off = float(sigmoid(np.array(-c.body)))
    background = (program.M - sizes) * off
    # Σ u − b = ½ − k (1 − on) + background, with nothing large to cancel.
    slack = 0.5 - sizes * off + background
    dense = program.R * program.M <= DENSE_UP_TO
    roundings = rounding.roundings_of_sum(sizes + dense * program.M, program.M) + _PARAMETERS
    relative, absolute = rounding.errors_of_sum(roundings, 0 * slack)
    # The weights of a dense model are rounded one by one, those of a sparse one in float64; and
    # the model sums them in float64.
    weights = 8.0 * sizes * (rounding.unit if dense else WIDE) + 2.0 * sizes**2 * WIDE
    logits = 8.0 * rounding.unit * (1.0 + 16.0 * program.M * off)
    sharpness = np.full(len(sizes), c.sharpness)
    return RowNumbers(slack, sharpness, amplitude, relative, absolute + weights + logits)


def _gates(
    program: Program | Sizes, offset: Array, own: Array, c: Constants, bump: bool, dtype: str
) -> GateNumbers:
    """Return the numbers of the closed form for atoms with these offsets, of `own` rules each."""
    rounding = Rounding.of(dtype)
    dense = program.R if program.R * program.M <= DENSE_UP_TO else 0
    roundings = rounding.roundings_of_sum(own + dense, program.R) + _PARAMETERS
    relative, absolute = rounding.errors_of_sum(roundings, 0 * offset)
    absolute = absolute + _PARAMETERS * rounding.unit * np.abs(offset)
    return GateNumbers(offset, c.gate, bump, relative, absolute)


#: A program with one atom that implies itself: it stands for the worst case of every program.
_SELF = Program.from_rules([("a", ["a"])])


def reaches(sizes: Sizes, constants: Constants, horizon: float, *, dtype: str, bump: bool) -> bool:
    """Return whether the certificate of these constants is sure to reach from D to the horizon.

    In the closed form one atom is the worst for both ends: the one with ρ_max rules, these with
    the smallest bodies where they must not fire and the largest where they must. So one row
    stands for the whole program; and one atom without rules for all of them.
    """
    c, M = constants, sizes.M
    rounding = Rounding.of(dtype)
    faint = math.exp(-c.head)
    on, off = (float(x) for x in sigmoid(np.array([c.body, -c.body])))
    stray = np.array([sizes.R * c.gain * c.confidence * faint * (1 + 1e-6)])

    def row(size: int, heads: int, copies: int, offset: float) -> LiteralWeights:
        amplitude, body = np.array([c.gain * c.confidence * heads]), np.array([float(size)])
        rules = np.array([float(sizes.rho_max)])
        return LiteralWeights(
            program=_SELF,
            rounding=rounding,
            body=np.array([on * size]),
            outside=(M - body) * off,
            least_weight=np.array([0.0]),
            head=np.array([copies / (heads + (M - heads) * faint)]),
            rows=_rows(sizes, body, c, amplitude, dtype),
            gates=_gates(sizes, np.array([offset]), rules, c, bump, dtype),
            stray=stray,
        )

    halfway = (c.gamma_plus + sizes.rho_max * c.gamma_minus) / 2
    if sizes.R and reproduced_level(row(sizes.k, sizes.fewest_heads, 1, halfway)) is None:
        return False
    worst = []
    if sizes.least_body:
        worst.append((row(sizes.least_body, sizes.most_heads, sizes.rho_max, halfway), on))
    if sizes.sinks:
        worst.append((row(0, 1, 0, 2 * c.gamma_plus), 0.0))
    return all(_stays_low(weights, weight, horizon) for weights, weight in worst)


def _stays_low(weights: LiteralWeights, weight: float, horizon: float) -> bool:
    """Return whether the atom stays below one half up to the horizon if its rules lack this weight.

    Below a level ℓ every share is at most c(ℓ): so it is enough that `horizon` steps of c(ℓ) end
    at ℓ or below, for some ℓ.
    """
    for level in np.geomspace(1e-9, 0.5, 60):
        top = weights.rounding.down(np.array([level]))
        share = weights.share_above(np.array([weight * (1.0 - level)]))
        start = np.zeros(1)
        once = weights.rounding.after(start, share, 1.0, start)
        if once[0] == 0.0:
            return True
        if weights.rounding.after(start, share, float(math.ceil(horizon)), top)[0] <= top[0]:
            return True
    return False


# ---- The closed form of a program with negation: one for each stratum

#: Hardnesses that are tried until every stratum tolerates the values of the one before it.
_HARDNESS = (1.0, 1.25, 1.5, 2.0, 3.0)


def certified_strata(
    program: Program, horizon: float = 10**6, *, dtype: str = "float32", gate: Gate = "sigmoid"
) -> list[Constants]:
    """Return constants for each stratum under which all together are certified up to the horizon.

    Of a definite program they are `Constants.certified(program)`.

    Raises:
        CertificateError: if no constants of the closed form reach so far.
    """
    one_of("gate", gate, PROVED_GATES)
    if program.definite:
        return [Constants.certified(program, horizon, dtype=dtype, gate=gate)]
    programs = [stratum.program for stratum in program.strata]
    figures = [(Sizes.of(part), max(horizon, depth_bound(part))) for part in programs]
    chosen = {key: Constants.softest(*key, dtype=dtype, gate=gate) for key in set(figures)}
    found = [chosen[key] for key in figures]
    for hardness in _HARDNESS:
        certificate = certify_closed_form(program, found, dtype=dtype, bump=gate == "bump")
        if certificate.holds and certificate.t_max >= horizon:
            return found
        found = [Constants.closed_form(part, hardness) for part in programs]
    raise CertificateError(
        f"no constants of the closed form carry {len(programs)} strata to step {horizon:g} in "
        f"{dtype}; ask for a shorter horizon or a wider dtype"
    )


def certify_closed_form(
    program: Program,
    constants: Sequence[Constants],
    *,
    depth: int | None = None,
    dtype: str = "float32",
    bump: bool = False,
) -> Certificate:
    """Return the certificate of the closed form of a program, with these constants for its strata."""
    strata = program.strata
    forms = [
        ClosedForm(stratum.program, each, bump=bump, dtype=dtype)
        for stratum, each in zip(strata, constants, strict=True)
    ]
    negating = [bool(stratum.negated.any()) for stratum in strata]
    return window([worst_cases(form.literal_weights()) for form in forms], negating, depth=depth)
