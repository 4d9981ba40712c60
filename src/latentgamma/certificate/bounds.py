"""Bounds on one step of the operator, from the weights as the model computes with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.certificate.closed_sets import maximal_closed_sets
from latentgamma.certificate.rounding import ABOVE, BELOW, FUNCTION, Array, Rounding
from latentgamma.errors import CertificateError, ModelError
from latentgamma.logic.closure import closure
from latentgamma.program.program import Program

# ---- The weights of a model, and bounds on one step for all fact sets
# `rounding` derives the slacks. Every quantity below is a sum of nonnegative terms, never the
# difference of two large sums: the lack of a body is Σ u (1 − s) over its atoms.

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

    def __getitem__(self, rows: Indices) -> RowNumbers:
        fields = self.slack, self.sharpness, self.amplitude, self.relative, self.absolute
        return RowNumbers(*(values[rows] for values in fields))

    def firing(self, lack: Array, loose: Array | float, rounding: Rounding, side: float) -> Array:
        """Return the most (`ABOVE`) or the least that rows fire. (…, rows).

        Their body sums lack at least this much for `ABOVE`, and at most this much for `BELOW`.
        `loose` is the relative error that `lack` was computed with here.
        """
        lack = lack * np.maximum(0.0, 1.0 - side * self.relative - side * loose)
        slack = self.slack + side * (2.0 * rounding.unit * np.abs(self.slack) + self.absolute)
        pushed = rounding.bound(self.sharpness * (slack - lack), side)
        activation = np.maximum(0.0, rounding.bound(sigmoid(pushed), side))
        return np.maximum(0.0, rounding.bound(self.amplitude * activation, side))


@dataclass(frozen=True)
class GateNumbers:
    """The numbers of the last two stages: from what an atom receives to the share it goes."""

    offset: Array  # (M,) θ
    gate: float  # β
    bump: bool
    relative: Array  # (M,) relative error of what an atom receives
    absolute: Array  # (M,) its absolute error beyond that

    def evidence(
        self,
        received: Array,
        loose: Array | float,
        rounding: Rounding,
        side: float,
        atoms: Indices | slice = ALL,
    ) -> Array:
        """Return the most (`ABOVE`) evidence of atoms that receive at most this much. (…, atoms).

        For `BELOW` it is the least evidence of atoms that receive at least this much.
        """
        offset = self.offset[atoms]
        factor = np.maximum(0.0, 1.0 + side * self.relative[atoms] + side * loose)
        total = received * factor + side * self.absolute[atoms]
        error = rounding.unit * (np.abs(total) + 2.0 * np.abs(offset))
        return rounding.bound(total - offset + side * error, side)

    def share(self, evidence: Array, rounding: Rounding, side: float) -> Array:
        """Return a bound on g Γ, the share of the way to one, as computed from such evidence."""
        scaled = self.gate * evidence
        gate = sigmoid(scaled) if not self.bump else _bump(scaled)
        share = rounding.bound(gate * sigmoid(evidence), side, 2 * FUNCTION)
        if self.bump:  # no evidence, no share: exactly, also in the arithmetic of the model
            share = np.where(evidence > 0, share, 0.0)
        return np.clip(share, 0.0, 1.0)


@dataclass(frozen=True)
class FullWeights:
    """All weights of a model as full matrices, for states that are known atom by atom."""

    body: Array  # (rows, M) u
    head: Array  # (rows, M) v
    rows: RowNumbers

    def share(self, state: Array, gates: GateNumbers, rounding: Rounding, side: float) -> Array:
        """Return a bound on each atom's share from states that are bounded on this side. (…, M)."""
        rows, atoms = self.body.shape
        lack = (1.0 - state) @ self.body.T  # (…, rows)
        firing = self.rows.firing(lack, rounding.evaluation(atoms), rounding, side)
        received = firing @ self.head  # (…, M)
        evidence = gates.evidence(received, rounding.evaluation(rows), rounding, side)
        return gates.share(evidence, rounding, side)


@dataclass(frozen=True)
class LiteralWeights:
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

    # ---- From above

    def evidence_above(self, lack: Array) -> Array:
        """Return each atom's largest evidence while its rules lack this much weight. (M,)."""
        firing = self.rows.firing(lack, self.rounding.evaluation(2), self.rounding, ABOVE)
        sent = firing[self.head_rule] * self.head
        received = np.bincount(self.program.head_indices, sent, self.program.M) + self.stray
        loose = self.rounding.evaluation(self.program.rules_per_head)
        return self.gates.evidence(received, loose, self.rounding, ABOVE)

    def share_above(self, lack: Array) -> Array:
        """Return each atom's largest share while its rules lack this much weight. (M,)."""
        return self.gates.share(self.evidence_above(lack), self.rounding, ABOVE)

    # ---- From below

    def lack_below(self, level: Array) -> Array:
        """Return the most that the rows lack whose body atoms are all at least `level`. (…, R)."""
        return self.outside + self._body_sum * (1.0 - level)

    def evidence_below(self, level: Array) -> Array:
        """Return the least evidence each rule gives each head when its body is at least `level`.

        `level` has shape (points, 1); the result (points, head literals).
        """
        atom, rounding = self.program.head_indices, self.rounding
        firing = self._firing_below(level)  # (points, R)
        received = firing[:, self.head_rule] * self.head + self._idle
        return self.gates.evidence(received, rounding.evaluation(2), rounding, BELOW, atom)

    def gain_below(self, level: Array) -> Array:
        """Return the least share of any head when bodies are at least `level`. (points,)."""
        shares = self.gates.share(self.evidence_below(level[:, None]), self.rounding, BELOW)
        least: Array = shares.min(axis=1, initial=1.0)
        return least

    def _firing_below(self, level: Array) -> Array:
        loose = self.rounding.evaluation(self.program.body_sizes + 4.0)
        return self.rows.firing(self.lack_below(level), loose, self.rounding, BELOW)

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


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(−x)), without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _bump(x: Array) -> Array:
    """Return exp(−1/x²) above 0 and 0 elsewhere."""
    positive = np.maximum(x, 1e-150)
    return np.where(x > 0, np.exp(-1.0 / positive / positive), 0.0)


def row_min(values: Array, program: Program) -> Array:
    """Return the least value of each body; 0 for an empty one, which lacks nothing. (R,)."""
    least = np.zeros(program.R)
    filled = np.flatnonzero(program.body_sizes)
    if len(filled):
        least[filled] = np.minimum.reduceat(values, program.body_indptr[filled])
    return least


# ---- One bound for all underivable atoms of a large model

#: Levels at which the largest share is tabulated; a bound between two of them is a little coarser.
_LEVELS = 24


class UniformBound:
    """The largest share of all atoms while every underivable one is at most at one level.

    It is tabulated at a few levels. Between two of them the larger one's is a bound, since shares
    grow with the level.
    """

    def __init__(self, weights: LiteralWeights, always: npt.NDArray[np.bool_]) -> None:
        self.weights, self.open = weights, ~always
        self.levels = np.concatenate([[0.0], np.geomspace(1e-3, 0.5, _LEVELS - 1)])
        self.table = np.full(_LEVELS, np.nan)

    def at(self, level: float) -> float:
        """Return the largest share at exactly this level."""
        share = self.weights.share_above(self.weights.least_body * (1.0 - level))
        return float(share[self.open].max(initial=0.0))

    def __call__(self, bound: Array) -> Array:
        """Return the largest share at this level or the next one of the table. (1,)."""
        place = int(np.searchsorted(self.levels, bound[0]))
        if place == len(self.levels):
            return np.full(1, self.at(float(bound[0])))
        if np.isnan(self.table[place]):
            self.table[place] = self.at(float(self.levels[place]))
        return self.table[place : place + 1]


# ---- One step in interval arithmetic: slow, and independent of the bounds above, which it checks
# Numbers are decimal with 60 digits and directed rounding. Every operation of the model widens its
# interval by one rounding error of the model's arithmetic, in the order in which the model goes
# through its sums, so the result holds what any such arithmetic may compute.

_ONE = Decimal(1)
#: The largest exponent that the C implementation of `decimal` takes on every platform.
_RANGE = 999_999_999
_DOWN = Context(prec=60, rounding=ROUND_FLOOR, Emin=-_RANGE, Emax=_RANGE)
_UP = Context(prec=60, rounding=ROUND_CEILING, Emin=-_RANGE, Emax=_RANGE)
#: Roundings of one elementary function of the model.
_FUNCTION = 8
#: Weights of a model that can be checked in reasonable time.
_MOST_WEIGHTS = 4096
#: States that a check looks at.
_STATES = 12


class Interval(NamedTuple):
    """All numbers from `low` to `high`."""

    low: Decimal
    high: Decimal

    @classmethod
    def of(cls, value: float) -> Interval:
        """Return the interval of one number."""
        return cls(Decimal(float(value)), Decimal(float(value)))

    def plus(self, other: Interval) -> Interval:
        """Return the sums."""
        return Interval(_DOWN.add(self.low, other.low), _UP.add(self.high, other.high))

    def minus(self, other: Interval) -> Interval:
        """Return the differences."""
        return Interval(_DOWN.subtract(self.low, other.high), _UP.subtract(self.high, other.low))

    def times(self, other: Interval) -> Interval:
        """Return the products."""
        ends = [(a, b) for a in self for b in other]
        return Interval(
            min(_DOWN.multiply(a, b) for a, b in ends), max(_UP.multiply(a, b) for a, b in ends)
        )

    def sigmoid(self) -> Interval:
        """Return 1 / (1 + e^−x)."""
        least, most = _exp(self.high.copy_negate(), _DOWN), _exp(self.low.copy_negate(), _UP)
        return Interval(
            _DOWN.divide(_ONE, _UP.add(_ONE, most)), _UP.divide(_ONE, _DOWN.add(_ONE, least))
        )

    def bump(self) -> Interval:
        """Return exp(−1/x²) above 0 and 0 elsewhere."""
        low = high = Decimal(0)
        if self.low > 0:
            low = _exp(_DOWN.divide(-_ONE, _DOWN.multiply(self.low, self.low)), _DOWN)
        if self.high > 0:
            high = _exp(_UP.divide(-_ONE, _UP.multiply(self.high, self.high)), _UP)
        return Interval(low, high)


def _exp(x: Decimal, context: Context) -> Decimal:
    """Return e^x, rounded in this direction: `Context.exp` itself rounds to nearest."""
    wider = context.add(_ONE, Decimal("1e-50") if context is _UP else Decimal("-1e-50"))
    return context.multiply(context.exp(x), wider)


class Arithmetic:
    """The operations of a model in one dtype, each with its rounding."""

    def __init__(self, rounding: Rounding) -> None:
        self.unit, self.tiny = Decimal(rounding.unit), Decimal(rounding.tiny)

    def rounded(self, x: Interval, times: int = 1) -> Interval:
        """Return what x may be after this many roundings."""
        for _ in range(times):
            low = _DOWN.subtract(
                x.low, _UP.add(_UP.multiply(x.low.copy_abs(), self.unit), self.tiny)
            )
            high = _UP.add(x.high, _UP.add(_UP.multiply(x.high.copy_abs(), self.unit), self.tiny))
            # Rounding does not change a sign.
            x = Interval(max(low, Decimal(0)) if x.low >= 0 else low, high)
        return x

    def sum(self, terms: Sequence[Interval]) -> Interval:
        """Return the sum, one term after another, each partial sum rounded."""
        total = Interval.of(0.0)
        for term in terms:
            total = self.rounded(total.plus(term))
        return total

    def shares(
        self, whole: FullWeights, gates: GateNumbers, state: Sequence[Interval]
    ) -> list[Interval]:
        """Return the share that each atom goes of its way to one, from such a state."""
        rows = whole.rows
        missing = [self.rounded(Interval.of(1.0).minus(s)) for s in state]
        firing = []
        for j, row in enumerate(whole.body):
            # The weight and the sharpness are converted, multiplied, and multiplied with 1 − s.
            terms = [
                self.rounded(Interval.of(u).times(m), 4) for u, m in zip(row, missing, strict=True)
            ]
            slack = self.rounded(Interval.of(rows.slack[j]), 2)
            margin = self.rounded(slack.minus(self.sum(terms)))
            pushed = self.rounded(Interval.of(rows.sharpness[j]).times(margin), 2)
            activation = self.rounded(self.rounded(pushed).sigmoid(), _FUNCTION)
            firing.append(self.rounded(Interval.of(rows.amplitude[j]).times(activation), 2))
        shares = []
        for i, column in enumerate(whole.head.T):
            terms = [
                self.rounded(Interval.of(v).times(f), 3)
                for v, f in zip(column, firing, strict=True)
            ]
            offset = self.rounded(Interval.of(gates.offset[i]))
            evidence = self.rounded(self.sum(terms).minus(offset))
            shares.append(self._share(evidence, gates))
        return shares

    def _share(self, evidence: Interval, gates: GateNumbers) -> Interval:
        scaled = self.rounded(Interval.of(gates.gate).times(evidence), 2)
        gate = scaled.bump() if gates.bump else scaled.sigmoid()
        both = self.rounded(gate, _FUNCTION).times(self.rounded(evidence.sigmoid(), _FUNCTION))
        nothing = gates.bump and gate.high == 0
        share = Interval(Decimal(0), Decimal(0)) if nothing else self.rounded(both)
        return Interval(share.low, min(share.high, _ONE))  # no computed sigmoid exceeds one


def check_bounds(weights: LiteralWeights) -> int:
    """Compare the bounds on one step with this evaluation; the number of comparisons made.

    Raises:
        ModelError: if the model is too large.
        CertificateError: if a bound does not hold.
    """
    whole, program = weights.whole, weights.program
    if whole is None or whole.body.size > _MOST_WEIGHTS:
        raise ModelError(
            f"check=True is for models of up to {_MOST_WEIGHTS:,} body weights; leave it out"
        )
    if not weights.in_range:
        return 0
    compared = 0
    for inside in _closed_sets(program):
        for level in (0.0, 0.05, 0.4):
            compared += _compare_closed_set(weights, whole, inside, level)
    literals = len(program.head_indices)
    for literal in range(0, literals, max(1, -(-literals // _STATES))):
        for level in (1.0, 0.9, 0.6):
            compared += _compare_rule(weights, whole, literal, level)
    return compared


def _closed_sets(program: Program) -> npt.NDArray[np.bool_]:
    """Return some closed sets: maximal ones without an atom, and the least one."""
    sets = maximal_closed_sets(program)
    least = closure(program).state[None]
    if sets is None or not len(sets):
        return least
    some = sets[np.linspace(0, len(sets) - 1, min(len(sets), _STATES)).astype(int)]
    return np.concatenate([least, some])


def _compare_closed_set(
    weights: LiteralWeights, whole: FullWeights, inside: npt.NDArray[np.bool_], level: float
) -> int:
    """Compare at a state of one inside of a closed set and `level` outside."""
    program, gates, rounding = weights.program, weights.gates, weights.rounding
    state = np.where(inside, 1.0, level)
    exact = Arithmetic(rounding).shares(whole, gates, [Interval.of(s) for s in state])
    above = whole.share(state, gates, rounding, ABOVE)
    below = whole.share(state, gates, rounding, BELOW)
    atom = program.body_indices
    lack = row_min(np.where(inside[atom], np.inf, weights.body * (1.0 - level)), program)
    by_literals = weights.share_above(np.where(np.isfinite(lack), lack, 0.0))
    by_literals[inside] = np.inf  # rules of these may fire, which this bound does not cover
    for i in range(program.M):
        _require(program, i, below[i], exact[i], min(above[i], by_literals[i]))
    return program.M


def _compare_rule(weights: LiteralWeights, whole: FullWeights, literal: int, level: float) -> int:
    """Compare at a state in which the body of a head literal's rule is at `level`, the rest at 0."""
    program, rounding = weights.program, weights.rounding
    state = np.zeros(program.M)
    state[program.body_of(int(weights.head_rule[literal]))] = level
    exact = Arithmetic(rounding).shares(whole, weights.gates, [Interval.of(s) for s in state])
    least = weights.gates.share(weights.evidence_below(np.array([[level]])), rounding, BELOW)[0]
    atom = int(program.head_indices[literal])
    _require(program, atom, least[literal], exact[atom], np.inf)
    return 1


def _require(program: Program, atom: int, low: float, exact: Interval, high: float) -> None:
    if Decimal(float(low)) <= exact.low and exact.high <= Decimal(float(high)):
        return
    raise CertificateError(
        f"the bounds on one step of '{program.atoms[atom]}' do not hold: it goes a share from "
        f"{exact.low:.12e} to {exact.high:.12e}, but the bounds are {low:.12e} and {high:.12e}. "
        f"Please report this"
    )
