"""One step in interval arithmetic: slow, independent of `step_bounds`, and used to check it.

Numbers are decimal with 60 digits and directed rounding. Every operation of the model widens its
interval by one rounding error of the model's arithmetic, in the order in which the model goes
through its sums, so the result holds what any such arithmetic may compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._certificate.closed_sets import maximal_closed_sets
from latentgamma._certificate.rounding import Rounding
from latentgamma._certificate.step_bounds import FullWeights, GateNumbers, Reading, row_min
from latentgamma._errors import CertificateError, ModelError
from latentgamma._logic.closure import closure
from latentgamma._program.program import Program

_ONE = Decimal(1)
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
        """The interval of one number."""
        return cls(Decimal(float(value)), Decimal(float(value)))

    def plus(self, other: Interval) -> Interval:
        """The sums."""
        return Interval(_DOWN.add(self.low, other.low), _UP.add(self.high, other.high))

    def minus(self, other: Interval) -> Interval:
        """The differences."""
        return Interval(_DOWN.subtract(self.low, other.high), _UP.subtract(self.high, other.low))

    def times(self, other: Interval) -> Interval:
        """The products."""
        ends = [(a, b) for a in self for b in other]
        return Interval(
            min(_DOWN.multiply(a, b) for a, b in ends), max(_UP.multiply(a, b) for a, b in ends)
        )

    def sigmoid(self) -> Interval:
        """1 / (1 + e^−x)."""
        least, most = _exp(self.high.copy_negate(), _DOWN), _exp(self.low.copy_negate(), _UP)
        return Interval(
            _DOWN.divide(_ONE, _UP.add(_ONE, most)), _UP.divide(_ONE, _DOWN.add(_ONE, least))
        )

    def bump(self) -> Interval:
        """exp(−1/x²) above 0 and 0 elsewhere."""
        low = high = Decimal(0)
        if self.low > 0:
            low = _exp(_DOWN.divide(-_ONE, _DOWN.multiply(self.low, self.low)), _DOWN)
        if self.high > 0:
            high = _exp(_UP.divide(-_ONE, _UP.multiply(self.high, self.high)), _UP)
        return Interval(low, high)


def _exp(x: Decimal, context: Context) -> Decimal:
    """e^x, rounded in this direction: `Context.exp` itself rounds to nearest."""
    wider = context.add(_ONE, Decimal("1e-50") if context is _UP else Decimal("-1e-50"))
    return context.multiply(context.exp(x), wider)


class Arithmetic:
    """The operations of a model in one dtype, each with its rounding."""

    def __init__(self, rounding: Rounding) -> None:
        self.unit, self.tiny = Decimal(rounding.unit), Decimal(rounding.tiny)

    def rounded(self, x: Interval, times: int = 1) -> Interval:
        """What x may be after so many roundings."""
        for _ in range(times):
            low = _DOWN.subtract(
                x.low, _UP.add(_UP.multiply(x.low.copy_abs(), self.unit), self.tiny)
            )
            high = _UP.add(x.high, _UP.add(_UP.multiply(x.high.copy_abs(), self.unit), self.tiny))
            # Rounding does not change a sign.
            x = Interval(max(low, Decimal(0)) if x.low >= 0 else low, high)
        return x

    def sum(self, terms: Sequence[Interval]) -> Interval:
        """The sum, one term after another, each partial sum rounded."""
        total = Interval.of(0.0)
        for term in terms:
            total = self.rounded(total.plus(term))
        return total

    def shares(
        self, whole: FullWeights, gates: GateNumbers, state: Sequence[Interval]
    ) -> list[Interval]:
        """The share that each atom goes of its way to one, from such a state."""
        rows = whole.rows
        missing = [self.rounded(Interval.of(1.0).minus(s)) for s in state]
        firing = []
        for j, weights in enumerate(whole.body):
            # The weight and the sharpness are converted, multiplied, and multiplied with 1 − s.
            terms = [
                self.rounded(Interval.of(u).times(m), 4)
                for u, m in zip(weights, missing, strict=True)
            ]
            slack = self.rounded(Interval.of(rows.slack[j]), 2)
            margin = self.rounded(slack.minus(self.sum(terms)))
            pushed = self.rounded(Interval.of(rows.sharpness[j]).times(margin), 2)
            activation = self.rounded(self.rounded(pushed).sigmoid(), _FUNCTION)
            firing.append(self.rounded(Interval.of(rows.amplitude[j]).times(activation), 2))
        shares = []
        for i, weights in enumerate(whole.head.T):
            terms = [
                self.rounded(Interval.of(v).times(f), 3)
                for v, f in zip(weights, firing, strict=True)
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


def check_bounds(reading: Reading) -> int:
    """Compare the bounds on one step with this evaluation; the number of comparisons made.

    Raises:
        ModelError: if the model is too large.
        CertificateError: if a bound does not hold.
    """
    whole, program = reading.whole, reading.program
    if whole is None or whole.body.size > _MOST_WEIGHTS:
        raise ModelError(
            f"check=True is for models of up to {_MOST_WEIGHTS:,} body weights; leave it out"
        )
    if not reading.in_range:
        return 0
    compared = 0
    for inside in _closed_sets(program):
        for level in (0.0, 0.05, 0.4):
            compared += _compare_closed_set(reading, whole, inside, level)
    for literal in range(0, len(program.head_indices), -(-len(program.head_indices) // _STATES)):
        for level in (1.0, 0.9, 0.6):
            compared += _compare_rule(reading, whole, literal, level)
    return compared


def _closed_sets(program: Program) -> npt.NDArray[np.bool_]:
    """Some closed sets: maximal ones without an atom, and the least one."""
    sets = maximal_closed_sets(program)
    least = closure(program).state[None]
    if sets is None or not len(sets):
        return least
    some = sets[np.linspace(0, len(sets) - 1, min(len(sets), _STATES)).astype(int)]
    return np.concatenate([least, some])


def _compare_closed_set(
    reading: Reading, whole: FullWeights, inside: npt.NDArray[np.bool_], level: float
) -> int:
    """Compare at a state of one inside of a closed set and `level` outside."""
    program, gates, rounding = reading.program, reading.gates, reading.rounding
    state = np.where(inside, 1.0, level)
    exact = Arithmetic(rounding).shares(whole, gates, [Interval.of(s) for s in state])
    above = whole.share_above(state, gates, rounding)
    below = whole.share_below(state, gates, rounding)
    atom = program.body_indices
    lack = row_min(np.where(inside[atom], np.inf, reading.body * (1.0 - level)), program)
    by_literals = reading.share_above(np.where(np.isfinite(lack), lack, 0.0))
    by_literals[inside] = np.inf  # rules of these may fire, which this bound does not speak of
    for i in range(program.M):
        _require(program, i, below[i], exact[i], min(above[i], by_literals[i]))
    return program.M


def _compare_rule(reading: Reading, whole: FullWeights, literal: int, level: float) -> int:
    """Compare at a state in which the body of a head literal's rule is at `level`, the rest at 0."""
    program, rounding = reading.program, reading.rounding
    state = np.zeros(program.M)
    state[program.body_of(int(reading.head_rule[literal]))] = level
    exact = Arithmetic(rounding).shares(whole, reading.gates, [Interval.of(s) for s in state])
    least = reading.gates.share_below(reading.evidence_below(np.array([[level]])), rounding)[0]
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
