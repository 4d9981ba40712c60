"""The steps of the sparse form as numba kernels: one tile of examples, forward and backward.

A row holds one atom (or one rule) of all the tile's examples. Rows are worked on in blocks:
sums are gathered, then the exponentials of the whole block are taken, then its part of the
long sum is added up in float64. Every sum has one fixed order, so a result depends on neither
the threads nor the rest of the batch, to the last bit.

Rounding, in units of the roundoff, against what a certificate allows (`_reading.STAGE` = 16
for each stage beyond the terms of its sum, 32 for the two gates): e^−|x| errs by less than 2,
a sigmoid by less than 4, and g Γ, with σ(βφ) from powers of e^−|φ| up to the eighth, by less
than 24. Weights come multiplied with τ or with the amplitude: one rounding more for each term.
Parts of the long sums add four terms in float32 first, which is two roundings of the total.

Arguments travel in bundles: `bodies` (offsets, atoms), `heads` (offsets, atoms), `uses`
(offsets, rules, reach_on) and `into` (offsets, rules, send_on), rows of rules and of atoms;
`reach` (of a whole body, off, on) and `send` (off, on), see `_fused.Flat`; `gating`
(β, β as a power or 0, whether the gate is the bump).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._simd import (
    TILE,
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

#: Rows of a block: its numbers fit the first-level cache. A multiple of TILE.
BLOCK = 256
#: Rows of an array that no near cache holds are asked for this many literals ahead.
AHEAD = 24
#: Bytes up to which an array is taken to lie in a near cache.
NEAR = 1 << 19
#: Up to this exponent β the powers of e^−|φ| stay inside the rounding that is allowed for.
HIGHEST_POWER = 8

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = tuple[Array, ...]
Gating: TypeAlias = tuple[float, int, bool]


# -------------------------------------------------------------------- pieces


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
def _sigmoid(x: Any) -> Any:
    small = exp_minus_abs(x)
    return where_reaches(x, 0.0, 1.0, small) / (1.0 + small)


@inlined
def _both_gates(phi: Any, power: int) -> Any:
    """σ(βφ) σ(φ) for a whole β, from one exponential and one division."""
    small = exp_minus_abs(phi)
    smaller = _power(small, power)
    return where_reaches(phi, 0.0, 1.0, small * smaller) / ((1.0 + small) * (1.0 + smaller))


@inlined
def _bump(x: Any) -> Any:
    """exp(−1/x²) above 1e-3 and 0 elsewhere."""
    return where_above(x, 1e-3, exp_minus_abs(1.0 / (x * x)), 0.0)


@inlined
def _groups(array: Array, rows: int) -> int:
    """How many groups hold this many rows, the last of them perhaps in part."""
    return (rows * (array.size // len(array)) + TILE - 1) // TILE


@inlined
def _ahead(array: Array) -> int:
    """How many literals ahead rows of this array are asked for; 0 where they are near."""
    return AHEAD if array.size * array.itemsize > NEAR else 0


@inlined
def _gathered(j: int, values: Array, rows: Arrays, start: Any, ahead: int) -> Any:
    """Σ_p on_p value over the literals p of row j, added to `start`."""
    ptr, member, on = rows
    for p in range(ptr[j], ptr[j + 1]):
        if ahead > 0:
            fetch(values, member[min(p + ahead, len(member) - 1)])
        start = fma(row(values, member[p]), on[p], start)
    return start


@compiled
def blocks_of(rows: int) -> int:
    """How many blocks these rows make."""
    return (rows + BLOCK - 1) // BLOCK


@compiled
def total(parts: Array, blocks: int, out: Array) -> None:
    """Row 0 of `out` becomes the sum of the parts of all blocks, in float64."""
    value = row_of(parts, 0.0)
    for block in range(blocks):
        value = value + row(parts, block)
    put(out, 0, value)


@inlined
def _missing(state: Array, low: int, high: int, parts: Array, block: int) -> None:
    """parts[block] = Σ_i (1 − s_i) over these atoms."""
    part = row_of(parts, 0.0)
    i = low
    while i + 4 <= high:
        left = (1.0 - row(state, i)) + (1.0 - row(state, i + 1))
        right = (1.0 - row(state, i + 2)) + (1.0 - row(state, i + 3))
        part = part + widen(left + right)
        i += 4
    while i < high:
        part = part + widen(1.0 - row(state, i))
        i += 1
    put(parts, block, part)


@inlined
def _weighted(values: Array, weights: Array, low: int, high: int, parts: Array, block: int) -> None:
    """parts[block] = Σ_j weight_j value_j over these rules."""
    part = row_of(parts, 0.0)
    j = low
    while j + 4 <= high:
        left = fma(row(values, j), weights[j], row(values, j + 1) * weights[j + 1])
        right = fma(row(values, j + 2), weights[j + 2], row(values, j + 3) * weights[j + 3])
        part = part + widen(left + right)
        j += 4
    while j < high:
        part = part + widen(row(values, j) * weights[j])
        j += 1
    put(parts, block, part)


@compiled
def pack(rows: Array, fill: float, tile: Array) -> None:
    """Fill a tile (n, TILE) with up to TILE rows of n numbers, and with `fill` beyond them."""
    for i in range(len(tile)):
        for lane in range(len(rows)):
            tile[i, lane] = rows[lane, i]
        for lane in range(len(rows), TILE):
            tile[i, lane] = fill


@compiled
def unpack(tile: Array, rows: Array) -> None:
    """Fill up to TILE rows of n numbers with the first lanes of a tile (n, TILE)."""
    for i in range(len(tile)):
        for lane in range(len(rows)):
            rows[lane, i] = tile[i, lane]


# -------------------------------------------------------------------- forward


@compiled
def missing(first: int, last: int, atoms: int, state: Array, parts: Array) -> None:
    """parts[block] = Σ_i (1 − s_i) over the atoms of each block."""
    for block in range(first, last):
        _missing(state, block * BLOCK, min(block * BLOCK + BLOCK, atoms), parts, block)


@compiled
def rules_forward(
    first: int,
    last: int,
    state: Array,
    lacking: Array,
    bodies: Arrays,
    reach: Arrays,
    send_off: Array,
    firing: Array,
    slope: Array,
    parts: Array,
) -> None:
    """firing_j = σ(reach_j − what is missing); parts[block] = Σ_j send_off_j firing_j.

    `slope` becomes σ′ there, unless it has no rows.
    """
    ptr, atom = bodies
    whole, off, on = reach
    lack_of_all = row(lacking, 0)
    ahead = _ahead(state)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(whole))
        for j in range(low, high):
            lack = narrow(lack_of_all * np.float64(off[j]), state)
            # All terms of the sum are of one sign, so its error stays relative to itself.
            for p in range(ptr[j], ptr[j + 1]):
                if ahead > 0:
                    fetch(state, atom[min(p + ahead, len(atom) - 1)])
                lack = fma(1.0 - row(state, atom[p]), on[p], lack)
            put(firing, j, whole[j] - lack)
        start = _groups(firing, low)
        for g in range(start, start + _groups(firing, high - low)):
            x = group(firing, g)
            if len(slope) > 0:
                small = exp_minus_abs(x)
                part = 1.0 / (1.0 + small)
                put_group(firing, g, where_reaches(x, 0.0, part, small * part))
                put_group(slope, g, small * part * part)
            else:
                put_group(firing, g, _sigmoid(x))
        _weighted(firing, send_off, low, high, parts, block)


@compiled
def atoms_forward(
    first: int,
    last: int,
    state: Array,
    after: Array,
    firing: Array,
    strayed: Array,
    into: Arrays,
    offset: Array,
    gating: Gating,
    parts: Array,
) -> None:
    """after_i = s_i + (1 − s_i) share_i; parts[block] = Σ_i (1 − after_i)."""
    gate, power, bump = gating
    sharp = state.dtype.type(gate)
    evidence = np.zeros_like(state[:BLOCK])
    stray = narrow(row(strayed, 0), state)
    ahead = _ahead(firing)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(offset))
        for i in range(low, high):
            # φ_i = what strays to every atom, plus what its rules send, less its offset
            put(evidence, i - low, _gathered(i, firing, into, stray, ahead) - offset[i])
        start = _groups(state, low)
        for g in range(_groups(state, high - low)):
            phi = group(evidence, g)
            if bump:
                share = _bump(phi * sharp) * _sigmoid(phi)
            elif power > 0:
                share = _both_gates(phi, power)
            else:
                share = _sigmoid(phi * sharp) * _sigmoid(phi)
            s = group(state, start + g)
            put_group(after, start + g, fma(1.0 - s, share, s))
        _missing(after, low, high, parts, block)


@compiled
def forward_tile(
    steps: int,
    states: Array,
    bodies: Arrays,
    reach: Arrays,
    send_off: Array,
    into: Arrays,
    offset: Array,
    gating: Gating,
    firing: Array,
    parts: Array,
    sums: Array,
) -> None:
    """All steps of one tile: states[t + 1] from states[t], or states[0] over and over."""
    atom_blocks, rule_blocks = blocks_of(len(offset)), blocks_of(len(send_off))
    every = len(states) > 1
    missing(0, atom_blocks, len(offset), states[0], parts)
    for t in range(steps):
        now, after = states[t if every else 0], states[t + 1 if every else 0]
        total(parts, atom_blocks, sums)
        rules_forward(0, rule_blocks, now, sums, bodies, reach, send_off, firing, firing[:0], parts)
        total(parts, rule_blocks, sums)
        atoms_forward(0, atom_blocks, now, after, firing, sums, into, offset, gating, parts)


@compiled
def forward_tiles(
    first: int,
    last: int,
    steps: int,
    given: Array,
    result: Array,
    kept: Array,
    bodies: Arrays,
    reach: Arrays,
    send_off: Array,
    into: Arrays,
    offset: Array,
    gating: Gating,
    firing: Array,
    parts: Array,
    sums: Array,
) -> None:
    """All steps of some tiles, from the rows of `given` (B, M) to those of `result`.

    `kept` has room for the states of every tile, or for those of one, which all of them use.
    """
    for tile in range(first, last):
        low, high = tile * TILE, min(tile * TILE + TILE, len(given))
        states = kept[tile % len(kept)]
        pack(given[low:high], 1.0, states[0])
        forward_tile(
            steps, states, bodies, reach, send_off, into, offset, gating, firing, parts, sums
        )
        unpack(states[len(states) - 1], result[low:high])


# -------------------------------------------------------------------- backward


@compiled
def atoms_backward(
    first: int,
    last: int,
    state: Array,
    firing: Array,
    strayed: Array,
    into: Arrays,
    offset: Array,
    gating: Gating,
    back: Array,
    evidence: Array,
    parts: Array,
    grad_offset: Array,
    grad_gate: Array,
) -> None:
    """dL/dφ in `evidence`, from dL/d after in `back`; parts[block] = Σ_i dL/dφ_i.

    `back` becomes what goes straight to the state, not through any rule.
    """
    gate, power, bump = gating
    sharp = state.dtype.type(gate)
    stray = narrow(row(strayed, 0), state)
    ahead = _ahead(firing)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(offset))
        for i in range(low, high):
            put(evidence, i, _gathered(i, firing, into, stray, ahead) - offset[i])
        start = _groups(state, low)
        steeper = widen(group_of(state, 0.0))
        for g in range(start, start + _groups(state, high - low)):
            phi = group(evidence, g)
            small = exp_minus_abs(phi)
            if bump:
                x = phi * sharp
                over = 1.0 / (1.0 + small)
                share = _bump(x) * where_reaches(phi, 0.0, 1.0, small) * over
                rest = where_reaches(phi, 0.0, small, 1.0) * over  # 1 − Γ
                # d log g / d(βφ); where g is 0 so is its slope.
                steep = where_above(x, 1e-3, 2.0 / (x * x * x), 0.0)
            else:
                smaller = _power(small, power) if power > 0 else exp_minus_abs(phi * sharp)
                over = 1.0 / ((1.0 + small) * (1.0 + smaller))
                share = where_reaches(phi, 0.0, 1.0, small * smaller) * over
                rest = where_reaches(phi, 0.0, small, 1.0) * (over * (1.0 + smaller))
                steep = where_reaches(phi, 0.0, smaller, 1.0) * (over * (1.0 + small))
            come = group(back, g)
            pull = come * (1.0 - group(state, g)) * share  # dL/d log share
            put_group(evidence, g, pull * fma(steep, sharp, rest))
            steeper = steeper + widen(pull * steep * phi)
            put_group(back, g, come * (1.0 - share))
        part = row_of(parts, 0.0)
        for i in range(low, high):
            part = part + widen(row(evidence, i))
        put(parts, block, part)
        if len(grad_offset) > 0:
            grad_gate[block] += lanes_sum(steeper)
            for i in range(low, high):
                put(grad_offset, i, row(grad_offset, i) - row(evidence, i))


@compiled
def rules_backward(
    first: int,
    last: int,
    state: Array,
    sums: Arrays,
    bodies: Arrays,
    heads: Arrays,
    reach_off: Array,
    send: Arrays,
    firing: Array,
    slope: Array,
    evidence: Array,
    parts: Array,
    grads: Arrays,
) -> None:
    """dL/d reach_j in `slope`, from dL/dφ in `evidence`; parts[block] = Σ_j reach_off_j of it.

    `sums` are Σ_i (1 − s_i) and Σ_i dL/dφ_i. The gradients of the rules' numbers are added to
    `grads`, lane by lane, unless those have no rows.
    """
    body_ptr, body_atom = bodies
    head_ptr, head_atom = heads
    off, on = send
    grad_reach, grad_reach_off, grad_reach_on, grad_send_off, grad_send_on = grads
    lack, pull = narrow(row(sums[0], 0), state), narrow(row(sums[1], 0), state)
    ahead = _ahead(evidence)
    for block in range(first, last):
        low, high = block * BLOCK, min(block * BLOCK + BLOCK, len(off))
        for j in range(low, high):
            come = _gathered(j, evidence, (head_ptr, head_atom, on), pull * off[j], ahead)
            back = come * row(slope, j)
            put(slope, j, back)
            if len(grad_reach) > 0:
                fired = row(firing, j)
                put(grad_reach, j, row(grad_reach, j) + back)
                put(grad_reach_off, j, row(grad_reach_off, j) - back * lack)
                put(grad_send_off, j, fma(fired, pull, row(grad_send_off, j)))
                for p in range(head_ptr[j], head_ptr[j + 1]):
                    gained = row(grad_send_on, p)
                    put(grad_send_on, p, fma(fired, row(evidence, head_atom[p]), gained))
                for p in range(body_ptr[j], body_ptr[j + 1]):
                    gained = row(grad_reach_on, p)
                    put(grad_reach_on, p, fma(row(state, body_atom[p]) - 1.0, back, gained))
        _weighted(slope, reach_off, low, high, parts, block)


@compiled
def uses_backward(
    first: int, last: int, spread: Array, uses: Arrays, slope: Array, back: Array
) -> None:
    """Add to `back` what comes to each atom through the bodies it is in, and through the total."""
    common = narrow(row(spread, 0), back)
    ahead = _ahead(slope)
    for i in range(first * BLOCK, min(last * BLOCK, len(uses[0]) - 1)):
        put(back, i, row(back, i) + _gathered(i, slope, uses, common, ahead))


# -------------------------------------------------------------------- all steps back


@compiled
def backward_tile(
    steps: int,
    states: Array,
    given: Array,
    back: Array,
    bodies: Arrays,
    heads: Arrays,
    uses: Arrays,
    into: Arrays,
    reach: Arrays,
    send: Arrays,
    offset: Array,
    gating: Gating,
    room: Arrays,
    sums: Arrays,
    grads: Arrays,
    grad_offset: Array,
    grad_gate: Array,
) -> None:
    """All steps of one tile backwards: `back` goes from dL/d states[T] to dL/d states[0].

    `given` holds dL/d states[t] of the states before the last, if they count. `room` is
    work space: firing, slope, evidence, and the parts of sums.
    """
    firing, slope, evidence, parts = room
    lacking, pulled = sums
    atoms, rules = len(offset), len(send[0])
    atom_blocks, rule_blocks = blocks_of(atoms), blocks_of(rules)
    for t in range(steps - 1, -1, -1):
        now = states[t]
        missing(0, atom_blocks, atoms, now, parts)
        total(parts, atom_blocks, lacking)
        rules_forward(0, rule_blocks, now, lacking, bodies, reach, send[0], firing, slope, parts)
        total(parts, rule_blocks, pulled)
        atoms_backward(
            0,
            atom_blocks,
            now,
            firing,
            pulled,
            into,
            offset,
            gating,
            back,
            evidence,
            parts,
            grad_offset,
            grad_gate,
        )
        total(parts, atom_blocks, pulled)
        rules_backward(
            0,
            rule_blocks,
            now,
            sums,
            bodies,
            heads,
            reach[1],
            send,
            firing,
            slope,
            evidence,
            parts,
            grads,
        )
        total(parts, rule_blocks, pulled)
        uses_backward(0, atom_blocks, pulled, uses, slope, back)
        if len(given) > 0:
            for g in range(_groups(back, len(back))):
                put_group(back, g, group(back, g) + group(given[t], g))


# -------------------------------------------------------------------- tiles


@compiled
def add_lanes(lanes: Array, sums: Array) -> None:
    """Add to sums[i] the sum of the lanes of row i, in float64."""
    for i in range(len(sums)):
        sums[i] += lanes_sum(row(lanes, i))
