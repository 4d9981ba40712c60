"""The numbers that a certificate reads of a model, and bounds on one step for all fact sets.

`rounding` derives the slacks. Every quantity below is a sum of nonnegative terms: what a body
lacks is added up from what it lacks, never taken as the difference of two large sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._certificate.rounding import FUNCTION, Array, Rounding, gamma
from latentgamma._program.program import Program

Indices: TypeAlias = npt.NDArray[np.signedinteger]
ALL = slice(None)


@dataclass(frozen=True)
class RowNumbers:
    """The numbers of rows of a model, as it computes with them.

    The margin of row j in a state s is slack_j − Σ_i u_ji (1 − s_i), with slack_j = Σ_i u_ji − b_j.
    """

    slack: Array  # (rows,) as the model computes it in float64
    sharpness: Array  # (rows,) τ
    amplitude: Array  # (rows,) τ_nor ρ
    relative: Array  # (rows,) relative error of a computed body sum
    absolute: Array  # (rows,) its absolute error beyond that

    @classmethod
    def of(
        cls,
        slack: Array,
        sharpness: Array,
        amplitude: Array,
        roundings: Array,
        mixed: Array,
        rounding: Rounding,
    ) -> RowNumbers:
        """RowNumbers whose body sums round each term so often.

        `mixed` is twice the sum of the sizes of their negative terms: the error of a sum is
        relative to the sizes of its terms, which is its value and this.
        """
        relative, absolute = _errors_of_sums(roundings, mixed, rounding)
        return cls(slack, sharpness, amplitude, relative, absolute)

    def __getitem__(self, rows: Indices) -> RowNumbers:
        fields = self.slack, self.sharpness, self.amplitude, self.relative, self.absolute
        return RowNumbers(*(values[rows] for values in fields))

    def firing_above(self, lack: Array, loose: Array | float, rounding: Rounding) -> Array:
        """Most that rows fire when their body sums lack at least this much. (…, rows).

        `loose` is the relative error that `lack` was computed with here.
        """
        kept = np.maximum(0.0, 1.0 - self.relative - loose)
        slack = self.slack + (2.0 * rounding.unit * np.abs(self.slack) + self.absolute)
        pushed = rounding.raised(self.sharpness * (slack - lack * kept))
        return rounding.raised(self.amplitude * rounding.raised(sigmoid(pushed)))

    def firing_below(self, lack: Array, loose: Array | float, rounding: Rounding) -> Array:
        """Least that rows fire when their body sums lack at most this much. (…, rows)."""
        more = 1.0 + self.relative + loose
        slack = self.slack - (2.0 * rounding.unit * np.abs(self.slack) + self.absolute)
        pushed = rounding.lowered(self.sharpness * (slack - lack * more))
        activation = np.maximum(0.0, rounding.lowered(sigmoid(pushed)))
        return np.maximum(0.0, rounding.lowered(self.amplitude * activation))


@dataclass(frozen=True)
class GateNumbers:
    """The numbers of the last two stages: from what an atom receives to the share it goes."""

    offset: Array  # (M,) θ
    gate: float  # β
    bump: bool
    relative: Array  # (M,) relative error of what an atom receives
    absolute: Array  # (M,) its absolute error beyond that

    @classmethod
    def of(
        cls,
        offset: Array,
        gate: float,
        bump: bool,
        roundings: Array,
        mixed: Array,
        rounding: Rounding,
    ) -> GateNumbers:
        """GateNumbers of atoms that receive sums which round each term so often; `mixed` as in `RowNumbers`."""
        relative, absolute = _errors_of_sums(roundings, mixed, rounding)
        return cls(offset, gate, bump, relative, absolute)

    def evidence_above(
        self,
        received: Array,
        loose: Array | float,
        rounding: Rounding,
        atoms: Indices | slice = ALL,
    ) -> Array:
        """Most evidence of atoms that receive at most this much. (…, atoms)."""
        offset = self.offset[atoms]
        total = received * (1.0 + self.relative[atoms] + loose) + self.absolute[atoms]
        return rounding.raised(total - offset + rounding.unit * (total + 2.0 * np.abs(offset)))

    def evidence_below(
        self,
        received: Array,
        loose: Array | float,
        rounding: Rounding,
        atoms: Indices | slice = ALL,
    ) -> Array:
        """Least evidence of atoms that receive at least this much. (…, atoms)."""
        offset = self.offset[atoms]
        kept = np.maximum(0.0, 1.0 - self.relative[atoms] - loose)
        total = received * kept - self.absolute[atoms]
        return rounding.lowered(
            total - offset - rounding.unit * (np.abs(total) + 2.0 * np.abs(offset))
        )

    def share(self, evidence: Array) -> Array:
        """The product g Γ: the share of the way to one that goes with an evidence."""
        scaled = self.gate * evidence
        if not self.bump:
            return sigmoid(scaled) * sigmoid(evidence)
        positive = np.maximum(scaled, 1e-150)
        return np.where(scaled > 0, np.exp(-1.0 / positive / positive), 0.0) * sigmoid(evidence)

    def share_above(self, evidence: Array, rounding: Rounding) -> Array:
        """Most of the share that is computed from at most this evidence."""
        share = rounding.raised(self.share(evidence), 2 * FUNCTION)
        if self.bump:  # no evidence, no share: exactly, also in the arithmetic of the model
            share = np.where(evidence > 0, share, 0.0)
        return np.minimum(1.0, share)

    def share_below(self, evidence: Array, rounding: Rounding) -> Array:
        """Least of the share that is computed from at least this evidence."""
        return np.maximum(0.0, rounding.lowered(self.share(evidence), 2 * FUNCTION))


@dataclass(frozen=True)
class FullWeights:
    """All weights of a model as full matrices, for states that are known atom by atom."""

    body: Array  # (rows, M) u
    head: Array  # (rows, M) v
    rows: RowNumbers

    def share_above(self, state: Array, gates: GateNumbers, rounding: Rounding) -> Array:
        """Most that each atom goes of its way to one, from states of at most this. (…, M)."""
        rows, atoms = self.body.shape
        lack = (1.0 - state) @ self.body.T  # (…, rows)
        firing = self.rows.firing_above(lack, rounding.evaluation(atoms), rounding)
        received = firing @ self.head  # (…, M)
        evidence = gates.evidence_above(received, rounding.evaluation(rows), rounding)
        return gates.share_above(evidence, rounding)

    def share_below(self, state: Array, gates: GateNumbers, rounding: Rounding) -> Array:
        """Least that each atom goes of its way to one, from states of at least this. (…, M)."""
        rows, atoms = self.body.shape
        lack = (1.0 - state) @ self.body.T  # (…, rows)
        firing = self.rows.firing_below(lack, rounding.evaluation(atoms), rounding)
        received = firing @ self.head  # (…, M)
        evidence = gates.evidence_below(received, rounding.evaluation(rows), rounding)
        return gates.share_below(evidence, rounding)


@dataclass(frozen=True)
class Reading:
    """A model's weights on the literals of a program, exactly as it computes with them.

    One row of the model stands for each rule of `program`. Rows that stand for none count in
    `stray`. Every bound below is monotone, so it holds for all states at once.
    """

    program: Program
    rounding: Rounding
    body: Array  # (body literals,) u_jb
    outside: Array  # (R,) Σ_i u_ji over the atoms outside of the body
    least_weight: Array  # (R,) min_i u_ji over all atoms
    head: Array  # (head literals,) v_ji
    rows: RowNumbers  # of the rules of the program
    gates: GateNumbers
    stray: Array  # (M,) most that an atom receives from rows it is no head of
    whole: FullWeights | None = None  # of models that are small enough

    @cached_property
    def head_rule(self) -> Indices:
        """The rule of each head literal. (head literals,)."""
        return np.repeat(np.arange(self.program.R), self.program.head_sizes)

    @cached_property
    def body_rule(self) -> Indices:
        """The rule of each body literal. (body literals,)."""
        return np.repeat(np.arange(self.program.R), self.program.body_sizes)

    @cached_property
    def least_body(self) -> Array:
        """min_b u_jb, what a rule lacks at least when it lacks one atom. (R,)."""
        return row_min(self.body, self.program)

    # ------------------------------------------------------------ from above

    def evidence_above(self, lack: Array) -> Array:
        """Most evidence an atom can have while each of its rules lacks this much weight. (M,)."""
        firing = self.rows.firing_above(lack, self.rounding.evaluation(2), self.rounding)
        sent = firing[self.head_rule] * self.head
        received = np.bincount(self.program.head_indices, sent, self.program.M) + self.stray
        loose = self.rounding.evaluation(self.program.rules_per_head)
        return self.gates.evidence_above(received, loose, self.rounding)

    def share_above(self, lack: Array) -> Array:
        """Most of its way to one that an atom goes while its rules lack this much. (M,)."""
        return self.gates.share_above(self.evidence_above(lack), self.rounding)

    # ------------------------------------------------------------ from below

    def lack_below(self, level: Array) -> Array:
        """Most that the rows lack whose body atoms are all at least `level`. (…, R)."""
        return self.outside + self._body_sum * (1.0 - level)

    def evidence_below(self, level: Array) -> Array:
        """Least evidence each rule gives each head when its body is at least `level`.

        `level` has shape (points, 1); the result (points, head literals).
        """
        atom, rounding = self.program.head_indices, self.rounding
        firing = self._firing_below(level)  # (points, R)
        received = firing[:, self.head_rule] * self.head + self._idle
        return self.gates.evidence_below(received, rounding.evaluation(2), rounding, atom)

    def gain_below(self, level: Array) -> Array:
        """Least share that any rule gives any head when its body is at least `level`. (points,)."""
        shares = self.gates.share_below(self.evidence_below(level[:, None]), self.rounding)
        least: Array = shares.min(axis=1, initial=1.0)
        return least

    def _firing_below(self, level: Array) -> Array:
        loose = self.rounding.evaluation(self.program.body_sizes + 4.0)
        return self.rows.firing_below(self.lack_below(level), loose, self.rounding)

    @cached_property
    def in_range(self) -> bool:
        """Whether all numbers are finite, and so are the products the model forms of them."""
        rows, gates = self.rows, self.gates
        numbers = (self.body, self.outside, self.head, self.stray, rows.slack, rows.sharpness,
                   rows.amplitude, rows.absolute, gates.offset, gates.absolute)  # fmt: skip
        if not all(np.isfinite(array).all() for array in numbers) or not np.isfinite(gates.gate):
            return False
        total = np.abs(rows.slack) + self.outside + self._body_sum + 1.0
        largest = float((rows.sharpness * total).max(initial=0.0))
        received = rows.amplitude.sum() + np.abs(gates.offset).max(initial=0.0) + self.stray.sum()
        largest = max(largest, float(received) * max(1.0, gates.gate))
        # Sixteen-bit states are computed with in float32, the range of both is the same.
        return largest < (1e300 if self.rounding.dtype == "float64" else 1e37)

    @cached_property
    def _body_sum(self) -> Array:
        """Σ_b u_jb. (R,)."""
        total = np.zeros(self.program.R)
        filled = np.flatnonzero(self.program.body_sizes)
        if len(filled):
            total[filled] = np.add.reduceat(self.body, self.program.body_indptr[filled])
        return total

    @cached_property
    def _idle(self) -> Array:
        """What a literal's atom gets at least from its other rules, in any state."""
        sent = self._firing_below(np.zeros((1, 1)))[0][self.head_rule] * self.head
        atom = self.program.head_indices
        whole = np.bincount(atom, sent, self.program.M)
        error = self.rounding.evaluation(self.program.rules_per_head)[atom]
        idle: Array = np.maximum(0.0, whole[atom] * (1.0 - 2.0 * error) - sent)
        return idle


def _errors_of_sums(roundings: Array, mixed: Array, rounding: Rounding) -> tuple[Array, Array]:
    """The relative error of sums, and their absolute error beyond that."""
    relative = gamma(roundings, rounding.unit)
    with np.errstate(invalid="ignore"):  # so many roundings that nothing is known, of no terms
        sizes = np.where(mixed > 0, relative * mixed, 0.0)
    return relative, sizes + (roundings + 2.0) * rounding.tiny


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
