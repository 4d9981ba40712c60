"""The backward pass of the sparse form on the CPU: all steps of some tiles of examples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentgamma._model.kernels.barrier import wait
from latentgamma._model.kernels.cpu_arithmetic import (
    BLOCK,
    Array,
    StepArrays,
    blocks,
    bump_gate,
    gathered_sum,
    groups,
    load_tile,
    prefetch_distance,
    small_gate,
    store_tile,
    sum_of_blocks,
    sum_weighted,
)
from latentgamma._model.kernels.cpu_forward import missing_forward, rules_forward, set_active
from latentgamma._simd import (
    TILE,
    compiled,
    exp_minus_abs,
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


class BackwardArrays(NamedTuple):
    """Working memory for one tile."""

    grad: Array  # (M, …) dL/d state, the result
    activation: Array  # (R, …)
    slope: Array  # (R, …) σ′, then dL/d margin
    grad_evidence: Array  # (M, …)
    atom_sums: Array  # one row per block of atoms
    rule_sums: Array  # one row per block of rules


class GradientArrays(NamedTuple):
    """dL/d coefficient: of one tile, one column per example; or of all tiles, one row per tile."""

    margin: Array
    body_background: Array
    body_weight: Array
    head_background: Array
    head_weight: Array
    offset: Array


@inlined
def _atoms_backward(
    first: int,
    last: int,
    step: StepArrays,
    state: Array,
    background: Any,
    active: Array,
    work: BackwardArrays,
    grad_offset: Array,
    grad_gate: Array,
) -> None:
    """dL/dφ in `grad_evidence` and its sums over blocks, from dL/d after in `grad`.

    `grad` becomes the part that goes directly to the state, not through any rule.
    """
    gate = state.dtype.type(step.gate)
    common = narrow(background, state)
    ahead = prefetch_distance(work.activation)
    evidence = work.grad_evidence
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(step.offset))
        for i in range(low, high):
            received = gathered_sum(i, step.sources, work.activation, common, ahead)
            put(evidence, i, received - step.offset[i])
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
    first: int,
    last: int,
    step: StepArrays,
    state: Array,
    missing: Any,
    grad_background: Any,
    work: BackwardArrays,
    grads: GradientArrays,
) -> None:
    """dL/d margin in `slope` and its weighted sums over blocks, from dL/dφ in `grad_evidence`.

    `missing` is Σ_i (1 − s_i), `grad_background` is Σ_i dL/dφ_i. The gradients of the rules'
    coefficients are added to `grads`, unless those have no rows.
    """
    lack, common = narrow(missing, state), narrow(grad_background, state)
    evidence = work.grad_evidence
    ahead = prefetch_distance(evidence)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(step.margin))
        for j in range(low, high):
            received = gathered_sum(
                j, step.heads, evidence, common * step.head_background[j], ahead
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
                for p in range(step.heads.start[j], step.heads.start[j + 1]):
                    so_far = row(grads.head_weight, p)
                    pull = row(evidence, step.heads.member[p])
                    put(grads.head_weight, p, fma(activation, pull, so_far))
                for p in range(step.bodies.start[j], step.bodies.start[j + 1]):
                    so_far = row(grads.body_weight, p)
                    lacking = row(state, step.bodies.member[p]) - 1.0
                    put(grads.body_weight, p, fma(lacking, grad, so_far))
        sum_weighted(work.slope, step.body_background, low, high, work.rule_sums, block)


@inlined
def _uses_backward(
    first: int, last: int, step: StepArrays, background: Any, work: BackwardArrays
) -> None:
    """Add to `grad` what comes to each atom through the bodies it is in, and through the total."""
    common = narrow(background, work.grad)
    ahead = prefetch_distance(work.slope)
    for i in range(first * BLOCK, min(last * BLOCK, len(step.offset))):
        received = gathered_sum(i, step.uses, work.slope, common, ahead)
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
    """sums[i] = the sum of row i over the examples, in float64."""
    for i in range(low, high):
        sums[i] = lanes_sum(row(array, i))


@compiled
def backward_tiles(
    first: int,
    last: int,
    part: int,
    parts: int,
    barrier: Array,
    counts: Array,
    given: Array,
    result: Array,
    kept: Array,
    step: StepArrays,
    work: BackwardArrays,
    grads: GradientArrays,
    totals: GradientArrays,
    grad_gate: Array,
) -> None:
    """Run tiles `first` to `last` of a batch backwards, from dL/d last state to dL/d first state.

    `given` is the gradient of the last state (1, B, M), or of every state (T + 1, B, M); `kept`
    holds the states of every tile. `totals` and `grad_gate` have one row per tile; `grads` has no
    rows where no coefficient needs a gradient. Threads share tiles as in `forward_tiles`.
    """
    M, R = len(step.offset), len(step.margin)
    lanes = 1 if work.grad.ndim == 1 else TILE
    first_atom, last_atom = blocks(M) * part // parts, blocks(M) * (part + 1) // parts
    first_rule, last_rule = blocks(R) * part // parts, blocks(R) * (part + 1) // parts
    low_row, high_row = first_atom * BLOCK, min(last_atom * BLOCK, M)
    low_rule, high_rule = first_rule * BLOCK, min(last_rule * BLOCK, R)
    low_body, high_body = step.bodies.start[low_rule], step.bodies.start[high_rule]
    low_head, high_head = step.heads.start[low_rule], step.heads.start[high_rule]
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
