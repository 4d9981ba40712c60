"""The loops of the CPU kernels, compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types

from latentgamma.engine.simd import (
    TILE,
    code_of,
    compiled,
    exp_minus_abs,
    fetch,
    fma,
    group,
    group_of,
    inlined,
    lanes_sum,
    narrow,
    put,
    put_group,
    row,
    row_of,
    where_above,
    where_reaches,
    widen,
)
from latentgamma.operator.kernels.interface import Coefficients
from latentgamma.program.graph import Csr

# ---- A barrier for threads that run compiled code without the interpreter's lock

#: How often a waiting thread looks again before it lets another one run.
_SPINS = 64

_sched_yield = types.ExternalFunction("sched_yield", types.int32())


def _address(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    return context.make_array(array_type)(context, builder, array).data


@code_of
def _count_up(typing: Any, counter: Any) -> Any:
    """Add 1 to the first number of an int64 array, atomically."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, counter, args[0])
        builder.atomic_rmw("add", address, ir.Constant(ir.IntType(64), 1), "seq_cst")
        return context.get_dummy_value()

    return types.void(counter), code


@code_of
def _count(typing: Any, counter: Any) -> Any:
    """Return the first number of an int64 array, read atomically."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_address(context, builder, counter, args[0]), "seq_cst", 8)

    return types.int64(counter), code


def new_barrier() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the counter of a barrier: how often a thread has arrived."""
    return np.zeros(1, np.int64)


@inlined
def wait(barrier: Any, passed: int, threads: int) -> int:
    """Wait until all threads have arrived once more often than `passed`; return `passed` + 1."""
    if threads == 1:
        return 0
    passed += 1
    _count_up(barrier)
    while _count(barrier) < passed * threads:
        for _ in range(_SPINS):
            if _count(barrier) >= passed * threads:
                return passed
        _sched_yield()
    return passed


# ---- Types and inlined functions of all kernels
# A row holds one atom (or one rule) of all examples of a tile: an array has the shape (n, TILE), or
# (n,) where a tile is one example. Rows are processed in blocks. Every sum has one fixed order, so a
# result depends neither on the number of threads nor on the rest of the batch, to the last bit.

#: Rows of a block: its numbers fit the first-level cache. A multiple of TILE.
BLOCK = 256
#: Rows of an array that no near cache holds are prefetched this many literals ahead.
_PREFETCH_DISTANCE = 24
#: Bytes up to which an array is assumed to lie in a near cache.
_NEAR_CACHE = 1 << 19
#: Up to this exponent β the powers of e^−|φ| stay inside the rounding that is allowed for.
HIGHEST_POWER = 8

Array: TypeAlias = npt.NDArray[Any]


class StepArrays(NamedTuple):
    """What a step computes with: the literals in both directions, and the coefficients."""

    bodies: Csr  # rule → the atoms of its body
    heads: Csr  # rule → its heads
    uses: Csr  # atom → the rules that have it in their body
    sources: Csr  # atom → the rules that have it as a head
    coefficients: Coefficients  # arrays, and β as a number
    use_weight: Array  # (literals,) body weights in the order of `uses`, for a backward pass
    source_weight: Array  # (head literals,) head weights in the order of `sources`
    gate_power: int  # β where it is a whole number up to HIGHEST_POWER, otherwise 0
    bump: bool


@inlined
def _power(base: Any, exponent: int) -> Any:
    """Return base^exponent of a vector, for a whole exponent from 1 on."""
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
    """Return σ(x) of a vector."""
    small = exp_minus_abs(x)
    return where_reaches(x, 0.0, 1.0, small) / (1.0 + small)


@inlined
def bump_gate(x: Any) -> Any:
    """Return exp(−1/x²) above 1e-3 and 0 elsewhere."""
    return where_above(x, 1e-3, exp_minus_abs(1.0 / (x * x)), 0.0)


@inlined
def small_gate(phi: Any, small: Any, gate: Any, power: int) -> Any:
    """Return e^−β|φ|, from `small` = e^−|φ| where β is a small whole number."""
    return _power(small, power) if power > 0 else exp_minus_abs(phi * gate)


@inlined
def groups(array: Array, rows: int) -> int:
    """Return how many groups of TILE numbers hold this many rows; the last may be partly filled."""
    return (rows * (array.size // len(array)) + TILE - 1) // TILE


@inlined
def blocks(rows: int) -> int:
    """Return how many blocks these rows make."""
    return (rows + BLOCK - 1) // BLOCK


@inlined
def prefetch_distance(array: Array) -> int:
    """Return how many literals ahead rows of this array are prefetched; 0 where they are near."""
    return _PREFETCH_DISTANCE if array.size * array.itemsize > _NEAR_CACHE else 0


@inlined
def gathered_sum(r: int, rows: Csr, weight: Array, values: Array, start: Any, ahead: int) -> Any:
    """Return `start` plus Σ_p weight_p values[indices_p] over the literals p of row r."""
    for p in range(rows.indptr[r], rows.indptr[r + 1]):
        if ahead > 0:
            fetch(values, rows.indices[min(p + ahead, len(rows.indices) - 1)])
        start = fma(row(values, rows.indices[p]), weight[p], start)
    return start


@inlined
def sum_of_blocks(block_sums: Array, count: int) -> Any:
    """Return the sum of the first `count` rows, in float64."""
    total = row_of(block_sums, 0.0)
    for block in range(count):
        total = total + row(block_sums, block)
    return total


@inlined
def sum_missing(state: Array, low: int, high: int, block_sums: Array, block: int) -> None:
    """Set block_sums[block] = Σ_i (1 − s_i) over these atoms."""
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
    """Set block_sums[block] = Σ_j weight_j value_j over these rules."""
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


# ---- The forward pass: all steps of some tiles of examples
# Rounding, in units of the roundoff, against what a certificate allows (`FUNCTION` and `EACH_TERM` of
# `certificate.rounding`): e^−|x| errs by less than 2, a sigmoid by less than 4, and g Γ, with σ(βφ)
# from powers of e^−|φ| up to the eighth, by less than 24. Weights come multiplied with τ or with the
# amplitude: one rounding more for each term. Parts of the long sums add four terms in float32 first,
# which is two roundings of the total.


@inlined
def missing_forward(first: int, last: int, state: Array, atom_sums: Array, M: int) -> None:
    """Set atom_sums[block] = Σ_i (1 − s_i) over the atoms of each block."""
    for block in range(first, last):
        sum_missing(state, block * BLOCK, min(block * BLOCK + BLOCK, M), atom_sums, block)


@inlined
def rules_forward(
    first: int, last: int, step: StepArrays, state: Array, missing: Any, activation: Array,
    slope: Array, rule_sums: Array,
) -> None:  # fmt: skip
    """Compute stages 1 to 3: a_j = σ(margin_j − what is missing), and its sum over the background.

    `missing` is Σ_i (1 − s_i). `slope` becomes σ′, unless it has no rows.
    """
    c = step.coefficients
    (start, atom), weight = step.bodies, c.body_weight
    ahead = prefetch_distance(state)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(c.margin))
        for j in range(low, high):
            lack = narrow(missing * np.float64(c.body_background[j]), state)
            # All terms of the sum are of one sign, so its error stays relative to itself.
            for p in range(start[j], start[j + 1]):
                if ahead > 0:
                    fetch(state, atom[min(p + ahead, len(atom) - 1)])
                lack = fma(1.0 - row(state, atom[p]), weight[p], lack)
            put(activation, j, c.margin[j] - lack)
        begin = groups(activation, low)
        for g in range(begin, begin + groups(activation, high - low)):
            x = group(activation, g)
            small = exp_minus_abs(x)
            part = 1.0 / (1.0 + small)
            put_group(activation, g, where_reaches(x, 0.0, part, small * part))
            if len(slope) > 0:
                put_group(slope, g, small * part * part)
        sum_weighted(activation, c.head_background, low, high, rule_sums, block)


@inlined
def _atoms_forward(
    first: int, last: int, step: StepArrays, state: Array, after: Array, activation: Array,
    background: Any, active: Array, atom_sums: Array,
) -> None:  # fmt: skip
    """Compute stages 4 and 5, after_i = s_i + (1 − s_i) g_i Γ_i if active, and Σ_i (1 − after_i).

    `background` is what every atom receives from all rules.
    """
    c = step.coefficients
    gate = state.dtype.type(c.gate)
    evidence = np.zeros_like(state[:BLOCK])
    common = narrow(background, state)
    ahead = prefetch_distance(activation)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(c.offset))
        for i in range(low, high):
            received = gathered_sum(i, step.sources, step.source_weight, activation, common, ahead)
            put(evidence, i - low, received - c.offset[i])
        begin = groups(state, low)
        for g in range(groups(state, high - low)):
            phi = group(evidence, g)
            if step.bump:
                rate = bump_gate(phi * gate) * vector_sigmoid(phi)
            else:
                small = exp_minus_abs(phi)
                smaller = small_gate(phi, small, gate, step.gate_power)
                top = where_reaches(phi, 0.0, 1.0, small * smaller)
                rate = top / ((1.0 + small) * (1.0 + smaller))
            s = group(state, begin + g)
            put_group(after, begin + g, fma(1.0 - s, rate * group(active, 0), s))
        sum_missing(after, low, high, atom_sums, block)


@inlined
def set_active(active: Array, t: int, counts: Array) -> None:
    """Set `active` to 1 for each example of a tile that still takes step t, 0 for the others."""
    for lane in range(TILE):
        active[lane] = 1.0 if t < counts[min(lane, len(counts) - 1)] else 0.0


@compiled
def forward_tiles(
    first: int, last: int, part: int, parts: int, barrier: Array, counts: Array, given: Array,
    result: Array, kept: Array, step: StepArrays, activation: Array, atom_sums: Array,
    rule_sums: Array,
) -> None:  # fmt: skip
    """Run tiles `first` to `last` of a batch: each example as many steps as `counts` says.

    `given` and `result` are (B, M). `kept` holds all states of every tile, or one state that all
    tiles overwrite. This thread computes the blocks of `part` out of `parts`; the threads of the
    other parts run the same tiles and share every array.
    """
    c = step.coefficients
    M, R = len(c.offset), len(c.margin)
    lanes = 1 if activation.ndim == 1 else TILE
    first_atom, last_atom = blocks(M) * part // parts, blocks(M) * (part + 1) // parts
    first_rule, last_rule = blocks(R) * part // parts, blocks(R) * (part + 1) // parts
    low_row, high_row = first_atom * BLOCK, min(last_atom * BLOCK, M)
    active = np.ones(TILE, given.dtype)
    passed = 0
    for tile in range(first, last):
        low, high = tile * lanes, min(tile * lanes + lanes, len(given))
        states = kept[tile % len(kept)]
        every = len(states) > 1
        steps = counts[low:high].max()
        load_tile(given[low:high], 1.0, states[0], low_row, high_row)
        missing_forward(first_atom, last_atom, states[0], atom_sums, M)
        passed = wait(barrier, passed, parts)
        for t in range(steps):
            now, after = states[t if every else 0], states[t + 1 if every else 0]
            set_active(active, t, counts[low:high])
            missing = sum_of_blocks(atom_sums, blocks(M))
            rules_forward(
                first_rule, last_rule, step, now, missing, activation, activation[:0], rule_sums
            )
            passed = wait(barrier, passed, parts)
            background = sum_of_blocks(rule_sums, blocks(R))
            _atoms_forward(
                first_atom, last_atom, step, now, after, activation, background, active, atom_sums
            )
            passed = wait(barrier, passed, parts)
        store_tile(states[steps if every else 0], result[low:high], low_row, high_row)


# ---- The backward pass: all steps of some tiles of examples


class BackwardArrays(NamedTuple):
    """Working memory for one tile."""

    grad: Array  # (M, …) dL/d state, the result
    activation: Array  # (R, …)
    slope: Array  # (R, …) σ′, then dL/d margin
    grad_evidence: Array  # (M, …)
    atom_sums: Array  # one row per block of atoms
    rule_sums: Array  # one row per block of rules


@inlined
def _atoms_backward(
    first: int, last: int, step: StepArrays, state: Array, background: Any, active: Array,
    work: BackwardArrays, grad_offset: Array, grad_gate: Array,
) -> None:  # fmt: skip
    """Compute dL/dφ in `grad_evidence` and its sums over blocks, from dL/d after in `grad`.

    `grad` becomes the part that goes directly to the state, not through any rule.
    """
    c = step.coefficients
    gate = state.dtype.type(c.gate)
    common = narrow(background, state)
    ahead = prefetch_distance(work.activation)
    evidence = work.grad_evidence
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(c.offset))
        for i in range(low, high):
            received = gathered_sum(
                i, step.sources, step.source_weight, work.activation, common, ahead
            )
            put(evidence, i, received - c.offset[i])
        begin = groups(state, low)
        by_gate = widen(group_of(state, 0.0))
        for g in range(begin, begin + groups(state, high - low)):
            phi = group(evidence, g)
            small = exp_minus_abs(phi)
            # The rate g Γ, and the slopes of log Γ in φ and of log g in βφ.
            if step.bump:
                x = phi * gate
                over = 1.0 / (1.0 + small)
                rate = bump_gate(x) * where_reaches(phi, 0.0, 1.0, small) * over
                slope = where_reaches(phi, 0.0, small, 1.0) * over
                gate_slope = where_above(x, 1e-3, 2.0 / (x * x * x), 0.0)
            else:
                smaller = small_gate(phi, small, gate, step.gate_power)
                over = 1.0 / ((1.0 + small) * (1.0 + smaller))
                rate = where_reaches(phi, 0.0, 1.0, small * smaller) * over
                slope = where_reaches(phi, 0.0, small, 1.0) * (over * (1.0 + smaller))
                gate_slope = where_reaches(phi, 0.0, smaller, 1.0) * (over * (1.0 + small))
            rate = rate * group(active, 0)
            grad = group(work.grad, g)
            by_log_rate = grad * (1.0 - group(state, g)) * rate
            put_group(evidence, g, by_log_rate * fma(gate_slope, gate, slope))
            by_gate = by_gate + widen(by_log_rate * gate_slope * phi)
            put_group(work.grad, g, grad * (1.0 - rate))
        total = row_of(work.atom_sums, 0.0)
        for i in range(low, high):
            total = total + widen(row(evidence, i))
        put(work.atom_sums, block, total)
        if len(grad_offset) > 0:
            grad_gate[block] += lanes_sum(by_gate)
            for i in range(low, high):
                put(grad_offset, i, row(grad_offset, i) - row(evidence, i))


@inlined
def _rules_backward(
    first: int, last: int, step: StepArrays, state: Array, missing: Any, grad_background: Any,
    work: BackwardArrays, grads: Coefficients,
) -> None:  # fmt: skip
    """Compute dL/d margin in `slope` and its weighted block sums, from dL/dφ in `grad_evidence`.

    `missing` is Σ_i (1 − s_i), `grad_background` is Σ_i dL/dφ_i. The gradients of the rules'
    coefficients are added to `grads`, unless those have no rows.
    """
    c = step.coefficients
    lack, common = narrow(missing, state), narrow(grad_background, state)
    evidence = work.grad_evidence
    ahead = prefetch_distance(evidence)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(c.margin))
        for j in range(low, high):
            received = gathered_sum(
                j, step.heads, c.head_weight, evidence, common * c.head_background[j], ahead
            )
            grad = received * row(work.slope, j)
            put(work.slope, j, grad)
            if len(grads.margin) > 0:
                activation = row(work.activation, j)
                put(grads.margin, j, row(grads.margin, j) + grad)
                so_far = row(grads.body_background, j)
                put(grads.body_background, j, so_far - grad * lack)
                so_far = row(grads.head_background, j)
                put(grads.head_background, j, fma(activation, common, so_far))
                for p in range(step.heads.indptr[j], step.heads.indptr[j + 1]):
                    so_far = row(grads.head_weight, p)
                    pull = row(evidence, step.heads.indices[p])
                    put(grads.head_weight, p, fma(activation, pull, so_far))
                for p in range(step.bodies.indptr[j], step.bodies.indptr[j + 1]):
                    so_far = row(grads.body_weight, p)
                    lacking = row(state, step.bodies.indices[p]) - 1.0
                    put(grads.body_weight, p, fma(lacking, grad, so_far))
        sum_weighted(work.slope, c.body_background, low, high, work.rule_sums, block)


@inlined
def _uses_backward(
    first: int, last: int, step: StepArrays, background: Any, work: BackwardArrays
) -> None:
    """Add to `grad` what comes to each atom through the bodies it is in, and through the total."""
    c = step.coefficients
    common = narrow(background, work.grad)
    ahead = prefetch_distance(work.slope)
    for i in range(first * BLOCK, min(last * BLOCK, len(c.offset))):
        received = gathered_sum(i, step.uses, step.use_weight, work.slope, common, ahead)
        put(work.grad, i, row(work.grad, i) + received)


@inlined
def _add_examples(examples: Array, tile: Array, low: int, high: int) -> None:
    """Add up to TILE examples (n, M) to rows low to high of a tile."""
    for i in range(low, high):
        if tile.ndim == 1:
            tile[i] += examples[0, i]
        else:
            for lane in range(len(examples)):
                tile[i, lane] += examples[lane, i]


@inlined
def _clear(array: Array, low: int, high: int) -> None:
    for i in range(low, high):
        put(array, i, row_of(array, 0.0))


@inlined
def _sum_examples(array: Array, low: int, high: int, sums: Array) -> None:
    """Set sums[i] to the sum of row i over the examples, in float64."""
    for i in range(low, high):
        sums[i] = lanes_sum(row(array, i))


@compiled
def backward_tiles(
    first: int, last: int, part: int, parts: int, barrier: Array, counts: Array, given: Array,
    result: Array, kept: Array, step: StepArrays, work: BackwardArrays, grads: Coefficients,
    totals: Coefficients, grad_gate: Array,
) -> None:  # fmt: skip
    """Run tiles `first` to `last` of a batch backwards, from dL/d last state to dL/d first state.

    `given` is the gradient of the last state (1, B, M), or of every state (T + 1, B, M); `kept`
    holds the states of every tile. `totals` and `grad_gate` have one row per tile; `grads` has no
    rows where no coefficient needs a gradient. Threads share tiles as in `forward_tiles`.
    """
    c = step.coefficients
    M, R = len(c.offset), len(c.margin)
    lanes = 1 if work.grad.ndim == 1 else TILE
    first_atom, last_atom = blocks(M) * part // parts, blocks(M) * (part + 1) // parts
    first_rule, last_rule = blocks(R) * part // parts, blocks(R) * (part + 1) // parts
    low_row, high_row = first_atom * BLOCK, min(last_atom * BLOCK, M)
    low_rule, high_rule = first_rule * BLOCK, min(last_rule * BLOCK, R)
    low_body, high_body = step.bodies.indptr[low_rule], step.bodies.indptr[high_rule]
    low_head, high_head = step.heads.indptr[low_rule], step.heads.indptr[high_rule]
    learn = len(grads.offset) > 0
    every = len(given) > 1
    active = np.ones(TILE, given.dtype)
    passed = 0
    for tile in range(first, last):
        low, high = tile * lanes, min(tile * lanes + lanes, given.shape[1])
        states = kept[tile]
        steps = counts[low:high].max()
        load_tile(given[len(given) - 1, low:high], 0.0, work.grad, low_row, high_row)
        if learn:
            _clear(grads.margin, low_rule, high_rule)
            _clear(grads.body_background, low_rule, high_rule)
            _clear(grads.head_background, low_rule, high_rule)
            _clear(grads.body_weight, low_body, high_body)
            _clear(grads.head_weight, low_head, high_head)
            _clear(grads.offset, low_row, high_row)
        for t in range(steps - 1, -1, -1):
            now = states[t]
            set_active(active, t, counts[low:high])
            missing_forward(first_atom, last_atom, now, work.atom_sums, M)
            passed = wait(barrier, passed, parts)
            missing = sum_of_blocks(work.atom_sums, blocks(M))
            rules_forward(
                *(first_rule, last_rule, step, now, missing),
                *(work.activation, work.slope, work.rule_sums),
            )
            passed = wait(barrier, passed, parts)
            background = sum_of_blocks(work.rule_sums, blocks(R))
            _atoms_backward(
                *(first_atom, last_atom, step, now, background, active),
                *(work, grads.offset, grad_gate[tile]),
            )
            passed = wait(barrier, passed, parts)
            background = sum_of_blocks(work.atom_sums, blocks(M))
            _rules_backward(first_rule, last_rule, step, now, missing, background, work, grads)
            passed = wait(barrier, passed, parts)
            background = sum_of_blocks(work.rule_sums, blocks(R))
            _uses_backward(first_atom, last_atom, step, background, work)
            if every:
                _add_examples(given[t, low:high], work.grad, low_row, high_row)
        store_tile(work.grad, result[low:high], low_row, high_row)
        if learn:
            _sum_examples(grads.margin, low_rule, high_rule, totals.margin[tile])
            _sum_examples(grads.body_background, low_rule, high_rule, totals.body_background[tile])
            _sum_examples(grads.head_background, low_rule, high_rule, totals.head_background[tile])
            _sum_examples(grads.body_weight, low_body, high_body, totals.body_weight[tile])
            _sum_examples(grads.head_weight, low_head, high_head, totals.head_weight[tile])
            _sum_examples(grads.offset, low_row, high_row, totals.offset[tile])
