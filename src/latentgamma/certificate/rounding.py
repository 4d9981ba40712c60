"""The arithmetic of a model: how far rounding can take a computed number from the exact one.

Every slack of the certificate is derived here or from the numbers here. With u the unit roundoff
and ω the smallest normal number of the dtype that a step computes in, each operation gives

    fl(x) = x (1 + δ) + e,  |δ| ≤ u,  |e| ≤ ω,

where e covers results below ω, whether they are rounded as subnormal numbers or flushed to zero.
A term that goes through n such roundings on its way into a sum of nonnegative terms is off by at
most γ_n = n u / (1 − n u) of itself, in whatever order the sum is taken (Higham, *Accuracy and
Stability of Numerical Algorithms*, section 3.1). So a bound needs one number for each sum: n, the
most roundings of a term. They are counted at the places that say what is summed:

- *A body sum*, Σ_i u_ji (1 − s_i), counted by `roundings_of_sum`. In the dense form, and wherever
  the rules are few, it is a matrix product of M terms. In the sparse form each literal is added to
  the background one after another; the background is a sum over all atoms in float64, whose parts
  kernels take in float32 first. Beyond the additions a term is rounded at most `EACH_TERM` times:
  1 − s, the conversion of the weight and of the sharpness to the dtype of the step, their product,
  the product with 1 − s, and the conversion of the background.
- *The evidence of an atom*, Σ_j v_ji γ_j, likewise: conversions of the amplitude and of the head
  weight, their product, the product with the activation, and one addition for each rule.
- *An elementary function* (sigmoid, bump, the product of the two gates) is computed with an error
  of at most `FUNCTION` roundings of its value and of its argument. PyTorch's, numba's and Triton's
  are held to that by tests.

The certificate itself is computed in float64. Its own sums have at most as many terms as the model
has weights in a row, and `evaluation` counts those in the same way.

Storing a state rounds to the nearest number of its dtype. That is not bounded but done: rounding
is monotone, so a bound on a state before it is stored, rounded in the same way, is a bound on the
stored state. This covers subnormal states, which round absolutely, and states that stop rising
because what is added is below half of their spacing.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import one_of

Array: TypeAlias = npt.NDArray[np.float64]
#: How many terms or roundings, one number or one for each row.
Counts: TypeAlias = npt.NDArray[np.floating] | npt.NDArray[np.integer] | float

#: Roundings of a value and of its argument by one elementary function, its evaluation here included.
FUNCTION = 24.0
#: Roundings of one term of a sum beyond its additions.
EACH_TERM = 10.0
#: The unit roundoff of float64, which the certificate is computed in.
WIDE = 2.0**-53
#: The side of a number on which a bound on it lies.
ABOVE, BELOW = 1.0, -1.0

#: Digits of the significand and exponent of the smallest subnormal number, by dtype.
_STORED = {
    "float64": (53, -1074),
    "float32": (24, -149),
    "float16": (11, -24),
    "bfloat16": (8, -133),
}


def gamma(roundings: Counts, unit: float) -> Array:
    """Return γ_n = n u / (1 − n u), the relative error of n roundings; infinite from n u = 1 on.

    >>> float(gamma(1.0, 2.0 ** -24)) == 1 / (2 ** 24 - 1)
    True
    """
    if isinstance(roundings, int | float):
        share = roundings * unit
        return np.asarray(share / (1.0 - share) if share < 1.0 else np.inf)
    total = np.asarray(roundings, np.float64) * unit
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total < 1.0, total / (1.0 - total), np.inf)


class Rounding(NamedTuple):
    """The arithmetic a model runs in.

    Attributes:
        dtype: the dtype of the states.
        unit: the unit roundoff of the dtype that a step computes in: float64 for float64 states,
            float32 for all others.
        tiny: the smallest normal number of that dtype.
        digits: the digits of a stored state.
        least: the exponent of the smallest positive number that a state can store.

    >>> Rounding.of("float16").unit == Rounding.of("float32").unit == 2.0 ** -24
    True
    """

    dtype: str
    unit: float
    tiny: float
    digits: int
    least: int

    @classmethod
    def of(cls, dtype: str) -> Rounding:
        """Return the arithmetic of states of this dtype."""
        digits, least = _STORED[one_of("dtype", dtype, _STORED)]
        if dtype == "float64":
            return cls(dtype, WIDE, 2.0**-1022, digits, least)
        return cls(dtype, 2.0**-24, 2.0**-126, digits, least)

    # ---- Sums

    def roundings_of_sum(self, additions: Counts, long: float) -> Array:
        """Return the most roundings of a term: `additions` in the step's dtype, and a long sum.

        `long` terms are summed in float64, after kernels have added them up in the dtype of the
        step by blocks: up to 32 numbers one after another, and pairwise within a block.
        """
        blocks = min(long, 4096.0) / 128.0 + 12.0
        return np.asarray(additions, np.float64) + EACH_TERM + blocks + long * (WIDE / self.unit)

    def errors_of_sum(self, roundings: Array, mixed: Array) -> tuple[Array, Array]:
        """Return the relative error of sums that round each term so often, and the absolute rest.

        `mixed` is twice the sum of the sizes of negative terms: the error of a sum is relative to
        the sizes of its terms, which is its value and this.
        """
        relative = gamma(roundings, self.unit)
        with np.errstate(invalid="ignore"):  # so many roundings that nothing is known, of no terms
            sizes = np.where(mixed > 0, relative * mixed, 0.0)
        return relative, sizes + (roundings + 2.0) * self.tiny

    def evaluation(self, terms: Counts) -> Array:
        """Return the relative error of a sum of this many nonnegative terms in float64."""
        return gamma(terms + 8.0, WIDE)

    def bound(self, x: Array, side: float, roundings: float = FUNCTION) -> Array:
        """Return a bound on x after this many roundings, from `ABOVE` or from `BELOW`."""
        return x + side * (gamma(roundings, self.unit) * np.abs(x) + 2.0 * roundings * self.tiny)

    # ---- Stored states

    def spacing(self, x: Array) -> Array:
        """Return the distance from x ≥ 0 to the next larger number that a state can store."""
        exponent = np.maximum(np.frexp(x)[1] - self.digits, self.least)
        return np.where(x > 0, np.ldexp(1.0, exponent), 2.0**self.least)

    def down(self, x: Array) -> Array:
        """Return the largest number ≤ x that a state can store, for x ≥ 0."""
        unit = self.spacing(x)
        return np.floor(x / unit) * unit

    def added(self, state: Array, share: Array) -> Array:
        """Return an upper bound on the computed (1 − s) share, rounded to float32 or wider."""
        plain = (1.0 - state) * share
        if self.digits >= 24:
            return plain * (1.0 + 4.0 * self.unit) + self.tiny
        # Rounding to float32 takes the sum, at most twice the state or what is added, by u more.
        return plain * (1.0 + 6.0 * self.unit) + 2.0 * self.unit * state + self.tiny

    def stored_sum(self, state: Array, added: Array) -> Array:
        """Return an upper bound on the stored `state` + `added`; `state` can be stored."""
        if self.digits == 53:
            return state + added
        unit = self.spacing(state)
        same = state + np.floor(added / unit + 0.5) * unit
        total = (state + added) * (1.0 + 2.0**-50)
        coarser = self.spacing(total)
        crossed = np.floor(total / coarser + 0.5) * coarser
        return np.where(coarser > unit, crossed, same)

    def after(self, state: Array, share: Array, steps: float, top: Array) -> Array:
        """Return the most that a state is after this many steps of at most this share each.

        `top` is a bound on the result that is known or supposed: the caller checks it.
        """
        added = self.added(state, share)
        if steps == 1:
            return np.minimum(1.0, self.stored_sum(state, added))
        # While the spacing stays the same, every step adds the same whole number of spacings.
        unit = self.spacing(state)
        with np.errstate(over="ignore"):
            steady = state + steps * (np.floor(added / unit + 0.5) * unit)
        lowest = self.least + self.digits  # below 2 to this power the spacing is the same
        end = np.ldexp(1.0, np.where(state > 0, np.maximum(np.frexp(state)[1], lowest), lowest))
        steady = np.where(steady <= end, steady, np.inf)
        # Otherwise a step errs by half a spacing, and by no more than what it adds: rounding to
        # nearest goes no further from the sum than the old state is. (Twice, for two roundings.)
        error = np.minimum(
            3.0 * added, self.spacing(top) / 2.0 + self.unit * top * (self.digits < 24)
        )
        excess = steps * (error + (added - (1.0 - state) * share))
        general = np.maximum(state, self.unrounded(state, share, steps) * (1.0 + 1e-12) + excess)
        return np.minimum(1.0, np.minimum(steady, self.down(general)))

    @staticmethod
    def unrounded(state: Array, share: Array, steps: float) -> Array:
        """Return 1 − (1 − s) (1 − share)^steps."""
        with np.errstate(divide="ignore"):
            return -np.expm1(np.log1p(-state) + steps * np.log1p(-np.minimum(share, 1.0)))

    def stored_below(self, state: Array | float, share: Array) -> Array:
        """Return the least that a state is after one step of at least this share."""
        total = state + (1.0 - state) * share * (1.0 - 4.0 * self.unit) - self.tiny
        total = np.maximum(0.0, total * (1.0 - 2.0 * self.unit * (self.digits != 24)))
        if self.digits == 53:
            return total
        unit = self.spacing(total)
        return np.ceil(total * (1.0 - 2.0**-50) / unit - 0.5) * unit
