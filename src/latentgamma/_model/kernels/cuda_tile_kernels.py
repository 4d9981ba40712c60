"""All steps in one launch: each thread block runs one tile of examples, for small programs.

`coefficients` is a tuple (margin, body_background, body_weight, head_background, head_weight,
offset, gate), `orders` is (rule_order, atom_order).
"""

from __future__ import annotations

import triton
import triton.language as tl

from latentgamma._model.kernels.cuda_arithmetic import (
    active,
    add,
    add_literals,
    element_sigmoid,
    in_range,
    rate,
    rate_slopes,
    steps_of_tile,
    weighted_sums,
)


@triton.jit
def _rules_of_tile(
    start, orders, here, missing, R, e, bodies, coefficients,
    ROWS: tl.constexpr, BT: tl.constexpr, UB: tl.constexpr,
):  # fmt: skip
    """Rows, their mask and original numbers, and how active these rules are."""
    every = e >= 0
    j = start + tl.arange(0, ROWS)
    rule = j < R
    own = tl.load(orders[0] + j, mask=rule, other=0)
    longest = tl.load(bodies[3] + start // ROWS)
    lack = weighted_sums(j, rule, bodies, coefficients[2], here, e, every, BT, longest, UB, True)
    lack += tl.load(coefficients[1] + own, mask=rule, other=0.0)[:, None] * missing[None, :]
    a = element_sigmoid(tl.load(coefficients[0] + own, mask=rule, other=0.0)[:, None] - lack)
    return j, rule, own, a


@triton.jit
def _atoms_of_tile(
    start, orders, fire, background, M, e, sources, coefficients,
    ROWS: tl.constexpr, BT: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    """Rows, their mask and original numbers, and the evidence for these atoms."""
    every = e >= 0
    i = start + tl.arange(0, ROWS)
    atom = i < M
    own = tl.load(orders[1] + i, mask=atom, other=0)
    longest = tl.load(sources[3] + start // ROWS)
    phi = weighted_sums(i, atom, sources, coefficients[4], fire, e, every, BT, longest, US, False)
    phi += background[None, :] - tl.load(coefficients[5] + own, mask=atom, other=0.0)[:, None]
    return i, atom, own, phi


@triton.jit(do_not_specialize=["T"])
def run_tile(
    state, out, kept, fire, counts, orders, bodies, sources, coefficients,
    B, M, R, T, keep_stride,
    KEEP: tl.constexpr, BUMP: tl.constexpr, HAS_COUNTS: tl.constexpr, ROWS: tl.constexpr,
    BT: tl.constexpr, UB: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BT)
    example = tile * BT + e
    seen = example < B
    here = kept + tile * M * BT
    fire += tile * R * BT
    beta = tl.load(coefficients[6])
    rest = tl.zeros([ROWS, BT], tl.float32)
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(orders[1] + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = in_range(tl.load(state + example[None, :] * M + own[:, None], mask=both, other=1.0))
        tl.store(here + i[:, None] * BT + e[None, :], s, mask=atom[:, None])
        rest += 1.0 - s
    missing = tl.sum(rest, axis=0)
    tl.debug_barrier()
    for t in range(steps_of_tile(counts, example, seen, T, HAS_COUNTS)):
        goes_on = active(counts, example, seen, t, HAS_COUNTS)
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, R, ROWS):
            j, rule, own, a = _rules_of_tile(
                start, orders, here, missing, R, e, bodies, coefficients, ROWS, BT, UB
            )
            tl.store(fire + j[:, None] * BT + e[None, :], a, mask=rule[:, None])
            rest += a * tl.load(coefficients[3] + own, mask=rule, other=0.0)[:, None]
        background = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, M, ROWS):
            i, atom, own, phi = _atoms_of_tile(
                start, orders, fire, background, M, e, sources, coefficients, ROWS, BT, US
            )
            g, gamma = rate(phi, beta, BUMP)
            spot = here + i[:, None] * BT + e[None, :]
            s = tl.load(spot, mask=atom[:, None], other=1.0)
            s += (1.0 - s) * (g * gamma * goes_on[None, :])
            if KEEP:
                spot += keep_stride
            tl.store(spot, s, mask=atom[:, None])
            rest += 1.0 - s
        missing = tl.sum(rest, axis=0)
        if KEEP:
            here += keep_stride
        tl.debug_barrier()
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(orders[1] + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = tl.load(here + i[:, None] * BT + e[None, :], mask=both, other=0.0)
        tl.store(out + example[None, :] * M + own[:, None], s, mask=both)


@triton.jit(do_not_specialize=["T"])
def back_tile(
    given, kept, fire, dphi, dmargin, d_state, result, counts, orders,
    bodies, sources, heads, uses, coefficients, gradients,
    B, M, R, T, keep_stride, gradient_stride,
    BUMP: tl.constexpr, EVERY: tl.constexpr, HAS_COUNTS: tl.constexpr, ROWS: tl.constexpr,
    BT: tl.constexpr, UB: tl.constexpr, US: tl.constexpr, UH: tl.constexpr, UU: tl.constexpr,
):  # fmt: skip
    """`gradients` are those of the coefficients, in their order; rows of `gradient_stride`."""
    tile = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BT)
    every = e >= 0
    example = tile * BT + e
    seen = example < B
    fire += tile * R * BT
    dmargin += tile * R * BT
    dphi += tile * M * BT
    d_state += tile * M * BT
    row = tile * gradient_stride
    beta = tl.load(coefficients[6])
    last = steps_of_tile(counts, example, seen, T, HAS_COUNTS and not EVERY)
    here = kept + tile * M * BT + (last - 1) * keep_stride
    if EVERY:
        given += T.to(tl.int64) * B * M
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(orders[1] + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        G = tl.load(given + example[None, :] * M + own[:, None], mask=both, other=0.0)
        tl.store(d_state + i[:, None] * BT + e[None, :], G, mask=atom[:, None])
    for step in range(last):
        goes_on = active(counts, example, seen, last - 1 - step, HAS_COUNTS)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, M, ROWS):
            i = start + tl.arange(0, ROWS)
            s = tl.load(here + i[:, None] * BT + e[None, :], mask=(i < M)[:, None], other=1.0)
            rest += 1.0 - s
        missing = tl.sum(rest, axis=0)
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, R, ROWS):
            j, rule, own, a = _rules_of_tile(
                start, orders, here, missing, R, e, bodies, coefficients, ROWS, BT, UB
            )
            tl.store(fire + j[:, None] * BT + e[None, :], a, mask=rule[:, None])
            rest += a * tl.load(coefficients[3] + own, mask=rule, other=0.0)[:, None]
        background = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, M, ROWS):
            i, atom, own, phi = _atoms_of_tile(
                start, orders, fire, background, M, e, sources, coefficients, ROWS, BT, US
            )
            g, gamma = rate(phi, beta, BUMP)
            by_phi, by_beta = rate_slopes(phi, beta, g, gamma, BUMP)
            spot = i[:, None] * BT + e[None, :]
            s = tl.load(here + spot, mask=atom[:, None], other=1.0)
            G = tl.load(d_state + spot, mask=atom[:, None], other=0.0)
            weight = G * (1.0 - s) * goes_on[None, :]
            dp = weight * by_phi
            tl.store(dphi + spot, dp, mask=atom[:, None])
            tl.store(d_state + spot, G * (1.0 - g * gamma * goes_on[None, :]), mask=atom[:, None])
            add(gradients[5] + row + own, atom, -tl.sum(dp, axis=1))
            add(gradients[6] + row + own, atom, tl.sum(weight * by_beta, axis=1))
            rest += dp
        all_dp = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, R, ROWS):
            j = start + tl.arange(0, ROWS)
            rule = j < R
            own = tl.load(orders[0] + j, mask=rule, other=0)
            spot = j[:, None] * BT + e[None, :]
            a = tl.load(fire + spot, mask=rule[:, None], other=0.0)
            off = tl.load(coefficients[1] + own, mask=rule, other=0.0)
            stray = tl.load(coefficients[3] + own, mask=rule, other=0.0)
            longest = tl.load(heads[3] + start // ROWS)
            df = weighted_sums(
                j, rule, heads, coefficients[4], dphi, e, every, BT, longest, UH, False
            )
            df += stray[:, None] * all_dp[None, :]
            dm = df * a * (1.0 - a)
            tl.store(dmargin + spot, dm, mask=rule[:, None])
            rest += dm * off[:, None]
            add(gradients[3] + row + own, rule, tl.sum(a * all_dp[None, :], axis=1))
            add(gradients[0] + row + own, rule, tl.sum(dm, axis=1))
            add(gradients[1] + row + own, rule, -tl.sum(dm * missing[None, :], axis=1))
            add_literals(
                j, rule, heads, dphi, a, gradients[4] + row, e, every, BT, longest, 1.0, False
            )
            longest = tl.load(bodies[3] + start // ROWS)
            add_literals(
                j, rule, bodies, here, dm, gradients[2] + row, e, every, BT, longest, -1.0, True
            )
        lost = tl.sum(rest, axis=0)
        tl.debug_barrier()
        for start in range(0, M, ROWS):
            i = start + tl.arange(0, ROWS)
            atom = i < M
            longest = tl.load(uses[3] + start // ROWS)
            more = weighted_sums(
                i, atom, uses, coefficients[2], dmargin, e, every, BT, longest, UU, False
            )
            more += lost[None, :]
            if EVERY:
                own = tl.load(orders[1] + i, mask=atom, other=0)
                both = atom[:, None] & seen[None, :]
                spot = given - B * M + example[None, :] * M + own[:, None]
                more += tl.load(spot, mask=both, other=0.0)
            add(d_state + i[:, None] * BT + e[None, :], atom[:, None], more)
        here -= keep_stride
        if EVERY:
            given -= B * M
    tl.debug_barrier()
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(orders[1] + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        G = tl.load(d_state + i[:, None] * BT + e[None, :], mask=both, other=0.0)
        tl.store(result + example[None, :] * M + own[:, None], G, mask=both)
