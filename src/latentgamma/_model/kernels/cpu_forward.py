"""The forward pass of the sparse form on the CPU: all steps of some tiles of examples.

Rounding, in units of the roundoff, against what a certificate allows (`step_bounds.STAGE` = 16 for
each stage beyond the terms of its sum, 32 for the two gates): e^−|x| errs by less than 2, a sigmoid
by less than 4, and g Γ, with σ(βφ) from powers of e^−|φ| up to the eighth, by less than 24. Weights
come multiplied with τ or with the amplitude: one rounding more for each term. Parts of the long
sums add four terms in float32 first, which is two roundings of the total.
"""

from __future__ import annotations

from typing import Any

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
    sum_missing,
    sum_of_blocks,
    sum_weighted,
    vector_sigmoid,
)
from latentgamma._simd import (
    TILE,
    compiled,
    exp_minus_abs,
    fetch,
    fma,
    group,
    inlined,
    narrow,
    put,
    put_group,
    row,
    where_reaches,
)


@inlined
def missing_forward(first: int, last: int, state: Array, atom_sums: Array, M: int) -> None:
    """atom_sums[block] = Σ_i (1 − s_i) over the atoms of each block."""
    for block in range(first, last):
        sum_missing(state, block * BLOCK, min(block * BLOCK + BLOCK, M), atom_sums, block)


@inlined
def rules_forward(
    first: int,
    last: int,
    step: StepArrays,
    state: Array,
    missing: Any,
    activation: Array,
    slope: Array,
    rule_sums: Array,
) -> None:
    """Stages 1 to 3: a_j = σ(margin_j − what is missing), and its sum over the background.

    `missing` is Σ_i (1 − s_i). `slope` becomes σ′, unless it has no rows.
    """
    start, atom, weight = step.bodies
    ahead = prefetch_distance(state)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(step.margin))
        for j in range(low, high):
            lack = narrow(missing * np.float64(step.body_background[j]), state)
            # All terms of the sum are of one sign, so its error stays relative to itself.
            for p in range(start[j], start[j + 1]):
                if ahead > 0:
                    fetch(state, atom[min(p + ahead, len(atom) - 1)])
                lack = fma(1.0 - row(state, atom[p]), weight[p], lack)
            put(activation, j, step.margin[j] - lack)
        begin = groups(activation, low)
        for g in range(begin, begin + groups(activation, high - low)):
            x = group(activation, g)
            small = exp_minus_abs(x)
            part = 1.0 / (1.0 + small)
            put_group(activation, g, where_reaches(x, 0.0, part, small * part))
            if len(slope) > 0:
                put_group(slope, g, small * part * part)
        sum_weighted(activation, step.head_background, low, high, rule_sums, block)


@inlined
def _atoms_forward(
    first: int,
    last: int,
    step: StepArrays,
    state: Array,
    after: Array,
    activation: Array,
    background: Any,
    active: Array,
    atom_sums: Array,
) -> None:
    """Stages 4 and 5: after_i = s_i + (1 − s_i) g_i Γ_i where active, and Σ_i (1 − after_i).

    `background` is what every atom receives from all rules.
    """
    gate = state.dtype.type(step.gate)
    evidence = np.zeros_like(state[:BLOCK])
    common = narrow(background, state)
    ahead = prefetch_distance(activation)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(step.offset))
        for i in range(low, high):
            received = gathered_sum(i, step.sources, activation, common, ahead)
            put(evidence, i - low, received - step.offset[i])
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
    """1 for each example of a tile that still takes step t, 0 for the others."""
    for lane in range(TILE):
        active[lane] = 1.0 if t < counts[min(lane, len(counts) - 1)] else 0.0


@compiled
def forward_tiles(
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
    activation: Array,
    atom_sums: Array,
    rule_sums: Array,
) -> None:
    """Run tiles `first` to `last` of a batch: each example as many steps as `counts` says.

    `given` and `result` are (B, M). `kept` holds all states of every tile, or one state that all
    tiles overwrite. This thread computes the blocks of `part` out of `parts`; the threads of the
    other parts run the same tiles and share every array.
    """
    M, R = len(step.offset), len(step.margin)
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
