"""One launch for each half of a step, over (rules or atoms) × examples, for large programs.

Buffers are (rows, B): the examples of an atom or a rule lie side by side. `coefficients` and
`gradients` are tuples as in `cuda_tile_kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from latentgamma._model.kernels.cuda_arithmetic import (
    active,
    add,
    add_literals,
    element_sigmoid,
    length_of_longest,
    rate,
    rate_slopes,
    weighted_sums,
)


@triton.jit
def rules_half_step(
    s, missing, fire, background, bodies, coefficients, B, R, RULES,
    RB: tl.constexpr, BB: tl.constexpr, UB: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(1) * BB + tl.arange(0, BB)
    seen = e < B
    gone = tl.load(missing + e, mask=seen, other=0.0).to(tl.float32)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * RULES
    for block in range(0, RULES, RB):
        j = start + block + tl.arange(0, RB)
        rule = j < R
        longest = length_of_longest(j, rule, bodies)
        lack = weighted_sums(j, rule, bodies, coefficients[2], s, e, seen, B, longest, UB, True)
        off = tl.load(coefficients[1] + j, mask=rule, other=0.0)
        lack += off[:, None] * gone[None, :]
        f = element_sigmoid(tl.load(coefficients[0] + j, mask=rule, other=0.0)[:, None] - lack)
        both = rule[:, None] & seen[None, :]
        tl.store(fire + j[:, None] * B + e[None, :], f, mask=both)
        stray = tl.load(coefficients[3] + j, mask=rule, other=0.0)
        total += tl.sum(f * stray[:, None], axis=0).to(tl.float64)
    tl.store(background + tl.program_id(0).to(tl.int64) * B + e, total, mask=seen)


@triton.jit
def atoms_half_step(
    s, after, fire, background, missing, counts, sources, coefficients, B, M, ATOMS, t,
    BUMP: tl.constexpr, HAS_COUNTS: tl.constexpr, MB: tl.constexpr, BB: tl.constexpr,
    US: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(1) * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(background + e, mask=seen, other=0.0).to(tl.float32)
    goes_on = active(counts, e, seen, t, HAS_COUNTS)
    beta = tl.load(coefficients[6])
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        longest = length_of_longest(i, atom, sources)
        phi = weighted_sums(i, atom, sources, coefficients[4], fire, e, seen, B, longest, US, False)
        phi += everywhere[None, :] - tl.load(coefficients[5] + i, mask=atom, other=0.0)[:, None]
        g, gamma = rate(phi, beta, BUMP)
        old = tl.load(s + i[:, None] * B + e[None, :], mask=both, other=1.0)
        new = old + (1.0 - old) * (g * gamma * goes_on[None, :])
        tl.store(after + i[:, None] * B + e[None, :], new, mask=both)
        total += tl.sum(tl.where(both, 1.0 - new, 0.0), axis=0).to(tl.float64)
    tl.store(missing + tl.program_id(0).to(tl.int64) * B + e, total, mask=seen)


@triton.jit
def atoms_half_backward(
    s, G, fire, background, dphi, sums, counts, sources, coefficients, gradients, gradient_stride,
    B, M, ATOMS, t,
    BUMP: tl.constexpr, HAS_COUNTS: tl.constexpr, MB: tl.constexpr, BB: tl.constexpr,
    US: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1).to(tl.int64)
    e = column * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(background + e, mask=seen, other=0.0).to(tl.float32)
    goes_on = active(counts, e, seen, t, HAS_COUNTS)
    beta = tl.load(coefficients[6])
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    row = column * gradient_stride
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        spot = i[:, None] * B + e[None, :]
        longest = length_of_longest(i, atom, sources)
        phi = weighted_sums(i, atom, sources, coefficients[4], fire, e, seen, B, longest, US, False)
        phi += everywhere[None, :] - tl.load(coefficients[5] + i, mask=atom, other=0.0)[:, None]
        g, gamma = rate(phi, beta, BUMP)
        by_phi, by_beta = rate_slopes(phi, beta, g, gamma, BUMP)
        old = tl.load(s + spot, mask=both, other=1.0)
        up = tl.load(G + spot, mask=both, other=0.0)
        weight = up * (1.0 - old) * goes_on[None, :]
        dp = tl.where(both, weight * by_phi, 0.0)
        tl.store(dphi + spot, dp, mask=both)
        tl.store(G + spot, up * (1.0 - g * gamma * goes_on[None, :]), mask=both)
        total += tl.sum(dp, axis=0).to(tl.float64)
        add(gradients[5] + row + i, atom, -tl.sum(dp, axis=1))
        by_beta = tl.where(both, weight * by_beta, 0.0)
        add(gradients[6] + row + i, atom, tl.sum(by_beta, axis=1))
    tl.store(sums + tl.program_id(0).to(tl.int64) * B + e, total, mask=seen)


@triton.jit
def rules_half_backward(
    s, missing, fire, dphi, all_dphi, dmargin, lost, bodies, heads, coefficients, gradients,
    gradient_stride, B, R, RULES,
    RB: tl.constexpr, BB: tl.constexpr, UH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1).to(tl.int64)
    e = column * BB + tl.arange(0, BB)
    seen = e < B
    gone = tl.load(missing + e, mask=seen, other=0.0).to(tl.float32)
    everywhere = tl.load(all_dphi + e, mask=seen, other=0.0).to(tl.float32)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * RULES
    row = column * gradient_stride
    for block in range(0, RULES, RB):
        j = start + block + tl.arange(0, RB)
        rule = j < R
        both = rule[:, None] & seen[None, :]
        spot = j[:, None] * B + e[None, :]
        a = tl.load(fire + spot, mask=both, other=0.0)
        off = tl.load(coefficients[1] + j, mask=rule, other=0.0)
        stray = tl.load(coefficients[3] + j, mask=rule, other=0.0)
        longest = length_of_longest(j, rule, heads)
        df = weighted_sums(j, rule, heads, coefficients[4], dphi, e, seen, B, longest, UH, False)
        df = tl.where(both, df + stray[:, None] * everywhere[None, :], 0.0)
        dm = df * a * (1.0 - a)
        tl.store(dmargin + spot, dm, mask=both)
        total += tl.sum(dm * off[:, None], axis=0).to(tl.float64)
        add(gradients[3] + row + j, rule, tl.sum(a * everywhere[None, :], axis=1))
        add(gradients[0] + row + j, rule, tl.sum(dm, axis=1))
        add(gradients[1] + row + j, rule, -tl.sum(dm * gone[None, :], axis=1))
        add_literals(j, rule, heads, dphi, a, gradients[4] + row, e, seen, B, longest, 1.0, False)
        longest = length_of_longest(j, rule, bodies)
        add_literals(j, rule, bodies, s, dm, gradients[2] + row, e, seen, B, longest, -1.0, True)
    tl.store(lost + tl.program_id(0).to(tl.int64) * B + e, total, mask=seen)


@triton.jit
def uses_half_backward(
    G, dmargin, lost, uses, coefficients, B, M, ATOMS,
    MB: tl.constexpr, BB: tl.constexpr, UU: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(1).to(tl.int64) * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(lost + e, mask=seen, other=0.0).to(tl.float32)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        longest = length_of_longest(i, atom, uses)
        more = weighted_sums(
            i, atom, uses, coefficients[2], dmargin, e, seen, B, longest, UU, False
        )
        spot = i[:, None] * B + e[None, :]
        old = tl.load(G + spot, mask=both, other=0.0)
        tl.store(G + spot, old + more + everywhere[None, :], mask=both)
