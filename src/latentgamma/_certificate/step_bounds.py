"""What a certificate reads of a model, and bounds on one step that hold in its own arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._program.program import Program

Array: TypeAlias = npt.NDArray[np.float64]

#: Rounding errors of one elementary stage (a sigmoid, a product), in units of the roundoff.
STAGE = 16.0


class Rounding(NamedTuple):
    """The arithmetic a model runs in: the relative error of one operation, and of a stored state.

    >>> Rounding.of("float32").unit == 2.0 ** -24
    True
    """

    dtype: str
    unit: float
    stored: float

    @classmethod
    def of(cls, dtype: str) -> Rounding:
        """The rounding of states of this dtype; sixteen-bit states are computed in float32."""
        digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        return cls(dtype, 2.0 ** -max(24, digits), 2.0**-digits)


@dataclass(frozen=True)
class Reading:
    """A model's weights on the literals of a program, exactly as it computes with them.

    One row of the model stands for each rule of `program`. Rows that stand for none count in
    `stray`. Every bound below is monotone, so it holds for all states at once.
    """

    program: Program
    rounding: Rounding
    body: Array  # (body literals,) u_jb
    body_total: Array  # (R,) Σ_i u_ji over all atoms
    head: Array  # (head literals,) v_ji
    threshold: Array  # (R,) b
    sharpness: Array  # (R,) τ
    amplitude: Array  # (R,) τ_nor ρ
    stray: Array  # (M,) most that an atom receives from rows it is no head of
    offset: Array  # (M,) θ
    gate: float  # β
    bump: bool
    match_terms: Array  # (R,) how many terms a body sum adds up
    route_terms: Array  # (M,) how many terms an atom's evidence adds up
    match_error: Array  # (R,) error of sums with terms of both signs, beyond the relative one
    route_error: Array  # (M,) likewise

    @cached_property
    def head_rule(self) -> npt.NDArray[np.int64]:
        """The rule of each head literal. (head literals,)."""
        return np.repeat(np.arange(self.program.R), self.program.head_sizes)

    @cached_property
    def least_body(self) -> Array:
        """min_b u_jb, what a rule lacks at least when it lacks one atom. (R,)."""
        return row_min(self.body, self.program)

    def share(self, evidence: Array) -> Array:
        """G Γ, the share of the way to one that goes with an evidence."""
        scaled = self.gate * evidence
        if not self.bump:
            return sigmoid(scaled) * sigmoid(evidence)
        positive = np.maximum(scaled, 1e-150)
        return np.where(scaled > 0, np.exp(-1.0 / positive / positive), 0.0) * sigmoid(evidence)

    # ------------------------------------------------------------ from above

    def margin_above(self, missing: Array) -> Array:
        """Most that bs − b can be when a row lacks at least this much weight. (R,)."""
        unit = self.rounding.unit
        slack = self.body_total - self.threshold
        kept = np.maximum(0.0, 1.0 - (self.match_terms + STAGE) * unit)
        return slack - missing * kept + unit * (np.abs(slack) + missing) + self.match_error

    def evidence_above(self, missing: Array) -> Array:
        """Most evidence an atom can have while each of its rules lacks this much weight. (M,)."""
        unit = self.rounding.unit
        pushed = _raised(self.sharpness * self.margin_above(missing), unit)
        firing = self.amplitude * sigmoid(pushed) * (1.0 + STAGE * unit)
        sent = firing[self.head_rule] * self.head
        total = np.bincount(self.program.head_indices, sent, self.program.M) + self.stray
        loose = (self.route_terms + STAGE) * unit
        error = unit * (total + np.abs(self.offset)) + self.route_error
        return _raised(total * (1.0 + loose) - self.offset + error, unit)

    def leak(self, missing: Array, risen: Array | float) -> Array:
        """Most of its way to one that an underivable atom at `risen` goes in a step. (M,)."""
        share = self.share(self.evidence_above(missing)) * (1.0 + 2 * STAGE * self.rounding.unit)
        # Rounding a sum to nearest at most doubles what was added, and adds at most one
        # roundoff of the sum: s / (1 − s) ≤ 2 s while s is below one half.
        stored = self.rounding.stored
        rounded = share * (1.0 + stored) + 2.0 * stored * risen
        return np.minimum(1.0, np.minimum(2.0 * share, rounded))

    # ------------------------------------------------------------ from below

    def margin_below(self, level: Array) -> Array:
        """Least bs − b of rows whose body atoms are all at least `level`. (…, R)."""
        unit = self.rounding.unit
        slack = self.body_total - self.threshold
        deficit = self.body_total - self._body_sum * level
        loose = (self.match_terms + STAGE) * unit
        error = unit * (np.abs(slack) + deficit) + self.match_error
        return slack - deficit * (1.0 + loose) - error

    def evidence_below(self, level: Array) -> Array:
        """Least evidence each rule gives each head when its body is at least `level`.

        `level` has shape (points, 1); the result (points, head literals).
        """
        unit, atom = self.rounding.unit, self.program.head_indices
        pushed = _lowered(self.sharpness * self.margin_below(level), unit)
        firing = self.amplitude * sigmoid(pushed) * (1.0 - STAGE * unit)  # (points, R)
        arriving = firing[:, self.head_rule] * self.head + self._idle
        offset = self.offset[atom]
        loose = (self.route_terms[atom] + STAGE) * unit
        error = unit * (arriving + np.abs(offset)) + self.route_error[atom]
        return _lowered(arriving * (1.0 - loose) - offset - error, unit)

    def gain_below(self, level: Array) -> Array:
        """Least share that any rule gives any head when its body is at least `level`. (points,)."""
        shares = self.share(self.evidence_below(level[:, None]))  # (points, head literals)
        least: Array = shares.min(axis=1, initial=1.0)
        return least * (1.0 - 2 * STAGE * self.rounding.unit)

    @cached_property
    def in_range(self) -> bool:
        """Whether all numbers are finite, and so are the products the model forms of them."""
        numbers = (self.body, self.body_total, self.head, self.threshold, self.sharpness,
                   self.amplitude, self.stray, self.offset, self.match_error, self.route_error)  # fmt: skip
        if not all(np.isfinite(array).all() for array in numbers) or not np.isfinite(self.gate):
            return False
        reach = self.sharpness * (np.abs(self.body_total) + np.abs(self.threshold) + 1.0)
        received = self.amplitude.sum() + np.abs(self.offset).max(initial=0.0) + self.stray.sum()
        largest = max(float(reach.max(initial=0.0)), float(received) * max(1.0, self.gate))
        # Sixteen-bit states are computed with in float32, the range of both is the same.
        return largest < (1e300 if self.rounding.dtype == "float64" else 1e37)

    @cached_property
    def _body_sum(self) -> Array:
        """Σ_b u_jb, a little low rather than high. (R,)."""
        total = np.zeros(self.program.R)
        filled = np.flatnonzero(self.program.body_sizes)
        if len(filled):
            total[filled] = np.add.reduceat(self.body, self.program.body_indptr[filled])
        return total * (1.0 - 1e-13)

    @cached_property
    def _idle(self) -> Array:
        """What a literal's atom gets at least from its other rules, in any state."""
        unit = self.rounding.unit
        silent = _lowered(self.sharpness * self.margin_below(np.zeros(1)), unit)
        firing = self.amplitude * sigmoid(silent) * (1.0 - STAGE * unit)
        sent = firing[self.head_rule] * self.head
        whole = np.bincount(self.program.head_indices, sent, self.program.M)
        return np.maximum(0.0, (whole[self.program.head_indices] - sent) * (1.0 - 1e-9))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x)), without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def row_min(values: Array, program: Program) -> Array:
    """The least value of each body; 0 for an empty one, which lacks nothing. (R,)."""
    least = np.zeros(program.R)
    filled = np.flatnonzero(program.body_sizes)
    if len(filled):
        least[filled] = np.minimum.reduceat(values, program.body_indptr[filled])
    return least


def _raised(x: Array, unit: float) -> Array:
    return x + STAGE * unit * np.abs(x)


def _lowered(x: Array, unit: float) -> Array:
    return x - STAGE * unit * np.abs(x)
