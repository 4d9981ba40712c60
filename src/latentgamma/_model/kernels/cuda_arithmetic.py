"""Functions that the GPU kernels share.

Literals are gathered, never scattered: rules read their atoms, atoms read their rules. So nothing
needs an atomic addition, and the same input gives the same bits. Buffers hold the examples of an
atom (or of a rule) side by side, so that gathering a literal reads one run of memory. Errors stay
inside what the certificate allows for: `exp` is good to a few roundoffs and to one of its argument,
and long sums are taken pairwise, or in float64.

Rows of literals come as a tuple (start, other, place, longest): row r holds other[start[r]] to
other[start[r + 1]], whose weights stand at `place`; `longest` is the longest row of each run.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def element_sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def in_range(state):
    """The values of a state; NaN for those outside [0, 1], so that their example shows it."""
    return tl.where((state >= 0.0) & (state <= 1.0), state, float("nan"))


@triton.jit
def weighted_sums(
    rows, live, literals, weight, source, cols, seen, stride, longest, UNROLL: tl.constexpr,
    ONE_MINUS: tl.constexpr,
):  # fmt: skip
    """Σ over a row's literals of weight · source (or weight · (1 − source)). [rows, cols]."""
    first = tl.load(literals[0] + rows, mask=live, other=0)
    count = tl.load(literals[0] + rows + 1, mask=live, other=0) - first
    total = tl.zeros([rows.shape[0], cols.shape[0]], dtype=tl.float32)
    for p in tl.static_range(UNROLL):
        total += _literal(first, count, p, literals, weight, source, cols, seen, stride, ONE_MINUS)
    for p in range(UNROLL, longest):
        total += _literal(first, count, p, literals, weight, source, cols, seen, stride, ONE_MINUS)
    return total


@triton.jit
def _literal(
    first, count, p, literals, weight, source, cols, seen, stride, ONE_MINUS: tl.constexpr
):
    here = p < count
    other = tl.load(literals[1] + first + p, mask=here, other=0)
    place = tl.load(literals[2] + first + p, mask=here, other=0)
    w = tl.load(weight + place, mask=here, other=0.0)
    value = tl.load(
        source + other.to(tl.int64)[:, None] * stride + cols[None, :],
        mask=here[:, None] & seen[None, :], other=0.0,
    )  # fmt: skip
    if ONE_MINUS:
        value = 1.0 - value
    return w[:, None] * value


@triton.jit
def rate(phi, beta, BUMP: tl.constexpr):
    """G and Γ of an evidence."""
    if BUMP:
        x = beta * phi
        safe = tl.maximum(x, 1e-3)
        g = tl.where(x > 1e-3, tl.exp(-1.0 / (safe * safe)), 0.0)
    else:
        g = element_sigmoid(beta * phi)
    return g, element_sigmoid(phi)


@triton.jit
def rate_slopes(phi, beta, g, gamma, BUMP: tl.constexpr):
    """∂(gΓ)/∂φ and ∂(gΓ)/∂β."""
    if BUMP:
        x = tl.maximum(beta * phi, 1e-3)
        dg = 2.0 * g / (x * x * x)
    else:
        dg = g * (1.0 - g)
    return beta * dg * gamma + g * gamma * (1.0 - gamma), dg * phi * gamma


@triton.jit
def add(address, live, more):
    tl.store(address, tl.load(address, mask=live, other=0.0) + more, mask=live)


@triton.jit
def add_literals(
    rows, live, literals, source, factor, into, cols, seen, stride, longest, SIGN: tl.constexpr,
    ONE_MINUS: tl.constexpr,
):  # fmt: skip
    """into[literal] += SIGN · Σ_examples source (or 1 − source) · factor, each literal once."""
    first = tl.load(literals[0] + rows, mask=live, other=0)
    count = tl.load(literals[0] + rows + 1, mask=live, other=0) - first
    for p in range(longest):
        here = p < count
        other = tl.load(literals[1] + first + p, mask=here, other=0)
        value = tl.load(
            source + other.to(tl.int64)[:, None] * stride + cols[None, :],
            mask=here[:, None] & seen[None, :], other=0.0,
        )  # fmt: skip
        if ONE_MINUS:
            value = 1.0 - value
        address = into + tl.load(literals[2] + first + p, mask=here, other=0)
        add(address, here, SIGN * tl.sum(value * factor, axis=1))


@triton.jit
def length_of_longest(rows, live, literals):
    first = tl.load(literals[0] + rows, mask=live, other=0)
    return tl.max(tl.load(literals[0] + rows + 1, mask=live, other=0) - first, axis=0)


@triton.jit
def active(counts, example, seen, t, HAS_COUNTS: tl.constexpr):
    """1 for each example that still takes step t, 0 for the others."""
    if HAS_COUNTS:
        return (t < tl.load(counts + example, mask=seen, other=0)).to(tl.float32)
    return seen.to(tl.float32)


@triton.jit
def steps_of_tile(counts, example, seen, T, HAS_COUNTS: tl.constexpr):
    """How many of T steps some example of the tile takes."""
    if HAS_COUNTS:
        return tl.max(tl.load(counts + example, mask=seen, other=0), axis=0)
    return T.to(tl.int64)  # the kernels do not specialise on T, so that it is never a constant
