"""The closed form θ*(P) of a program: its parameters, and what can be proved of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._certificate.constants import Constants, Figures
from latentgamma._certificate.lower_end import reproduces
from latentgamma._certificate.rounding import WIDE, Array, Rounding
from latentgamma._certificate.step_bounds import GateNumbers, Reading, RowNumbers, sigmoid
from latentgamma._errors import ModelError
from latentgamma._program.program import Program

#: How rules with several heads share what they give: see `ClosedForm`.
HeadSharing: TypeAlias = Literal["equal", "paper"]

#: Up to this many weights a model may be dense, and its sums as long as its matrices are wide.
_DENSE_UP_TO = 1 << 13
#: A model's own weights differ from those computed here by some roundings of its parameters.
_PARAMETERS = 64.0


@dataclass(frozen=True)
class ClosedForm:
    """The parameters θ*(P) of a program, as arrays.

    A rule with m heads spreads what it gives over all of them. With `head_sharing="equal"` a rule's
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
        if self.head_sharing == "paper":
            return np.full(self.R, self.constants.confidence)
        return self.constants.confidence * self.program.head_sizes / self._most_heads

    @property
    def _most_heads(self) -> int:
        return int(self.program.head_sizes.max(initial=1)) if self.head_sharing == "equal" else 1

    @property
    def offset(self) -> Array:
        """θ_i, halfway between one satisfied rule and none. (M,)."""
        program, plus, minus = self.program, self.constants.gamma_plus, self.constants.gamma_minus
        if self.head_sharing == "equal":
            halfway = (plus + program.rules_per_head * minus) / 2
        else:
            parts = 1.0 / np.repeat(program.head_sizes, program.head_sizes)
            largest = np.zeros(program.M)
            np.maximum.at(largest, program.head_indices, parts)
            total = np.bincount(program.head_indices, parts, program.M)
            halfway = (plus * largest + minus * total) / 2
        return np.where(program.rules_per_head > 0, halfway, 2 * plus)

    def reading(
        self,
        program: Program | None = None,
        rows: npt.NDArray[np.int64] | None = None,
        *,
        dtype: str | None = None,
    ) -> Reading:
        """What a certificate reads of a model with these parameters."""
        own = rows is None or np.array_equal(rows, np.arange(self.R))
        if not own or program not in (None, self.program) or dtype not in (None, self.dtype):
            raise ModelError("a closed form can be certified against its own program alone")
        program, c = self.program, self.constants
        k, m = program.body_sizes.astype(np.float64), program.head_sizes
        on, off = (float(x) for x in sigmoid(np.array([c.body, -c.body])))
        # Relative to e^Ψ, so that nothing overflows.
        faint = math.exp(-c.head)
        v = 1.0 / (m + (program.M - m) * faint)
        amplitude = self.gain * self.confidence
        return Reading(
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

    def rows(self, atoms: tuple[str, ...]) -> tuple[Program, npt.NDArray[np.int64]]:
        """The program itself: each row is its rule."""
        return self.program, np.arange(self.R)


def _rows(program: Figures, sizes: Array, c: Constants, amplitude: Array, dtype: str) -> RowNumbers:
    """RowNumbers of the closed form with bodies of these sizes."""
    rounding = Rounding.of(dtype)
    off = float(sigmoid(np.array(-c.body)))
    background = (program.M - sizes) * off
    # Σ u − b = ½ − k (1 − on) + background, with nothing large to cancel.
    slack = 0.5 - sizes * off + background
    dense = program.R * program.M <= _DENSE_UP_TO
    roundings = rounding.roundings_of_sum(sizes + dense * program.M, program.M) + _PARAMETERS
    rows = RowNumbers.of(
        slack, np.full(len(sizes), c.sharpness), amplitude, roundings, 0 * slack, rounding
    )
    # The weights of a dense model are rounded one by one, those of a sparse one in float64; and
    # the model sums them in float64.
    weights = 8.0 * sizes * (rounding.unit if dense else WIDE) + 2.0 * sizes**2 * WIDE
    logits = 8.0 * rounding.unit * (1.0 + 16.0 * program.M * off)
    return replace(rows, absolute=rows.absolute + weights + logits)


def _gates(
    program: Figures, offset: Array, own: Array, c: Constants, bump: bool, dtype: str
) -> GateNumbers:
    """GateNumbers of the closed form for atoms with these offsets and so many rules."""
    rounding = Rounding.of(dtype)
    dense = program.R if program.R * program.M <= _DENSE_UP_TO else 0
    roundings = rounding.roundings_of_sum(own + dense, program.R) + _PARAMETERS
    gates = GateNumbers.of(offset, c.gate, bump, roundings, np.zeros(len(offset)), rounding)
    absolute = gates.absolute + _PARAMETERS * rounding.unit * np.abs(offset)
    return replace(gates, absolute=absolute)


#: A program with one atom that implies itself: it stands for the worst case of every program.
_SELF = Program.from_rules([("a", ["a"])])


def reaches(
    program: Figures, constants: Constants, horizon: float, *, dtype: str, bump: bool
) -> bool:
    """Whether the certificate of these constants is sure to reach from D to the horizon.

    In the closed form one atom is the worst for both ends: the one with ρ_max rules, these with
    the smallest bodies where they must not fire and the largest where they must. So one row
    stands for the whole program; and one atom without rules for all of them.
    """
    c, M, k, m = constants, program.M, program.body_sizes, program.head_sizes
    rounding = Rounding.of(dtype)
    faint = math.exp(-c.head)
    on, off = (float(x) for x in sigmoid(np.array([c.body, -c.body])))
    stray = np.array([program.R * c.gain * c.confidence * faint * (1 + 1e-6)])

    def row(size: int, heads: int, copies: int, offset: float) -> Reading:
        amplitude, sizes = np.array([c.gain * c.confidence * heads]), np.array([float(size)])
        rules = np.array([float(program.rho_max)])
        return Reading(
            program=_SELF,
            rounding=rounding,
            body=np.array([on * size]),
            outside=(M - sizes) * off,
            least_weight=np.array([0.0]),
            head=np.array([copies / (heads + (M - heads) * faint)]),
            rows=_rows(program, sizes, c, amplitude, dtype),
            gates=_gates(program, np.array([offset]), rules, c, bump, dtype),
            stray=stray,
        )

    halfway = (c.gamma_plus + program.rho_max * c.gamma_minus) / 2
    if program.R and not reproduces(row(int(k.max()), int(m.min()), 1, halfway)):
        return False
    own = program.rules_per_head
    worst = []
    if k.any():
        size, heads = int(k[k > 0].min()), int(m.max())
        worst.append((row(size, heads, program.rho_max, halfway), on))
    if (own == 0).any():
        worst.append((row(0, 1, 0, 2 * c.gamma_plus), 0.0))
    return all(_stays_low(reading, weight, horizon) for reading, weight in worst)


def _stays_low(reading: Reading, weight: float, horizon: float) -> bool:
    """Whether the atom stays below one half so long while its rules lack one atom of this weight.

    Below a level ℓ every share is at most c(ℓ): so it is enough that so many steps of c(ℓ) end
    at ℓ or below, for some ℓ.
    """
    for level in np.geomspace(1e-9, 0.5, 60):
        top = reading.rounding.down(np.array([level]))
        share = reading.share_above(np.array([weight * (1.0 - level)]))
        start = np.zeros(1)
        once = reading.rounding.after(start, share, 1.0, start)
        if once[0] == 0.0:
            return True
        if reading.rounding.after(start, share, float(math.ceil(horizon)), top)[0] <= top[0]:
            return True
    return False
