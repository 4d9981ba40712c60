"""Types and inlined functions that the CPU kernels share.

A row holds one atom (or one rule) of all examples of a tile: an array has the shape (n, TILE), or
(n,) where a tile is one example. WeightedRows are processed in blocks. Every sum has one fixed order, so a
result depends neither on the number of threads nor on the rest of the batch, to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from latentgamma._simd import (
    TILE,
    exp_minus_abs,
    fetch,
    fma,
    inlined,
    put,
    row,
    row_of,
    where_above,
    where_reaches,
    widen,
)

#: WeightedRows of a block: its numbers fit the first-level cache. A multiple of TILE.
BLOCK = 256
#: WeightedRows of an array that no near cache holds are prefetched this many literals ahead.
_PREFETCH_DISTANCE = 24
#: Bytes up to which an array is assumed to lie in a near cache.
_NEAR_CACHE = 1 << 19
#: Up to this exponent β the powers of e^−|φ| stay inside the rounding that is allowed for.
HIGHEST_POWER = 8

Array: TypeAlias = npt.NDArray[Any]


class WeightedRows(NamedTuple):
    """Compressed rows: row r has the entries start[r] to start[r + 1] of `member` and `weight`."""

    start: Array  # (rows + 1,)
    member: Array  # (literals,) the atom or the rule at the other end
    weight: Array  # (literals,)


class StepArrays(NamedTuple):
    """What a step computes with: the literals in both directions, and the coefficients."""

    bodies: WeightedRows  # rule → the atoms of its body
    heads: WeightedRows  # rule → its heads
    uses: WeightedRows  # atom → the rules that have it in their body
    sources: WeightedRows  # atom → the rules that have it as a head
    margin: Array  # (R,)
    body_background: Array  # (R,)
    head_background: Array  # (R,)
    offset: Array  # (M,)
    gate: float  # β
    gate_power: int  # β where it is a whole number up to HIGHEST_POWER, otherwise 0
    bump: bool


@inlined
def _power(base: Any, exponent: int) -> Any:
    """base^exponent of a vector, for a whole exponent from 1 on."""
    result = base
    exponent -= 1
    while exponent > 0:
        if exponent & 1:
            result = result * base
        exponent >>= 1
        base = base * base
    return result


@inlined
def vector_sigmoid(x: Any) -> Any:
    """σ(x) of a vector."""
    small = exp_minus_abs(x)
    return where_reaches(x, 0.0, 1.0, small) / (1.0 + small)


@inlined
def bump_gate(x: Any) -> Any:
    """exp(−1/x²) above 1e-3 and 0 elsewhere."""
    return where_above(x, 1e-3, exp_minus_abs(1.0 / (x * x)), 0.0)


@inlined
def small_gate(phi: Any, small: Any, gate: Any, power: int) -> Any:
    """e^−β|φ|, from `small` = e^−|φ| where β is a small whole number."""
    return _power(small, power) if power > 0 else exp_minus_abs(phi * gate)


@inlined
def groups(array: Array, rows: int) -> int:
    """How many groups of TILE numbers hold this many rows; the last may be partly filled."""
    return (rows * (array.size // len(array)) + TILE - 1) // TILE


@inlined
def blocks(rows: int) -> int:
    """How many blocks these rows make."""
    return (rows + BLOCK - 1) // BLOCK


@inlined
def prefetch_distance(array: Array) -> int:
    """How many literals ahead rows of this array are prefetched; 0 where they are near."""
    return _PREFETCH_DISTANCE if array.size * array.itemsize > _NEAR_CACHE else 0


@inlined
def gathered_sum(r: int, rows: WeightedRows, values: Array, start: Any, ahead: int) -> Any:
    """`start` plus Σ_p weight_p values[member_p] over the literals p of row r."""
    for p in range(rows.start[r], rows.start[r + 1]):
        if ahead > 0:
            fetch(values, rows.member[min(p + ahead, len(rows.member) - 1)])
        start = fma(row(values, rows.member[p]), rows.weight[p], start)
    return start


@inlined
def sum_of_blocks(block_sums: Array, count: int) -> Any:
    """The sum of the first `count` rows, in float64."""
    total = row_of(block_sums, 0.0)
    for block in range(count):
        total = total + row(block_sums, block)
    return total


@inlined
def sum_missing(state: Array, low: int, high: int, block_sums: Array, block: int) -> None:
    """block_sums[block] = Σ_i (1 − s_i) over these atoms."""
    total = row_of(block_sums, 0.0)
    i = low
    while i + 4 <= high:
        left = (1.0 - row(state, i)) + (1.0 - row(state, i + 1))
        right = (1.0 - row(state, i + 2)) + (1.0 - row(state, i + 3))
        total = total + widen(left + right)
        i += 4
    while i < high:
        total = total + widen(1.0 - row(state, i))
        i += 1
    put(block_sums, block, total)


@inlined
def sum_weighted(
    values: Array, weights: Array, low: int, high: int, block_sums: Array, block: int
) -> None:
    """block_sums[block] = Σ_j weight_j value_j over these rules."""
    total = row_of(block_sums, 0.0)
    j = low
    while j + 4 <= high:
        left = fma(row(values, j), weights[j], row(values, j + 1) * weights[j + 1])
        right = fma(row(values, j + 2), weights[j + 2], row(values, j + 3) * weights[j + 3])
        total = total + widen(left + right)
        j += 4
    while j < high:
        total = total + widen(row(values, j) * weights[j])
        j += 1
    put(block_sums, block, total)


@inlined
def load_tile(examples: Array, fill: float, tile: Array, low: int, high: int) -> None:
    """Fill rows low to high of a tile with up to TILE examples (n, M), and `fill` beyond them."""
    for i in range(low, high):
        if tile.ndim == 1:
            tile[i] = examples[0, i]
        else:
            for lane in range(len(examples)):
                tile[i, lane] = examples[lane, i]
            for lane in range(len(examples), TILE):
                tile[i, lane] = fill


@inlined
def store_tile(tile: Array, examples: Array, low: int, high: int) -> None:
    """Fill up to TILE examples (n, M) with rows low to high of a tile."""
    for i in range(low, high):
        if tile.ndim == 1:
            examples[0, i] = tile[i]
        else:
            for lane in range(len(examples)):
                examples[lane, i] = tile[i, lane]
