"""The code that runs on the GPU: pieces of a step, put together in two ways.

Rows of literals are gathered, never scattered: rules from their atoms, atoms from their rules, so
nothing needs an atomic addition and the same input gives the same bits. Buffers hold the examples
of an atom (or of a rule) side by side, so that gathering a literal reads one run of memory. Errors
stay inside what the certificate allows for: `exp` is good to a few roundoffs and to one of its
argument, and long sums are taken pairwise, or in float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

# -------------------------------------------------------------------- pieces of a step


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _gathered(rows, live, start, index, place, weight, source, cols, ld, UNROLL, longest, ONE_MINUS):
    """Σ over a row's literals of weight · source (or weight · (1 − source)). [rows, cols]."""
    first = tl.load(start + rows, mask=live, other=0)
    count = tl.load(start + rows + 1, mask=live, other=0) - first
    total = tl.zeros([rows.shape[0], cols.shape[0]], dtype=tl.float32)
    for p in tl.static_range(UNROLL):
        total += _literal(first, count, p, index, place, weight, source, cols, ld, ONE_MINUS)
    for p in range(UNROLL, longest):
        total += _literal(first, count, p, index, place, weight, source, cols, ld, ONE_MINUS)
    return total


@triton.jit
def _literal(first, count, p, index, place, weight, source, cols, ld, ONE_MINUS):
    here = p < count
    other = tl.load(index + first + p, mask=here, other=0)
    w = tl.load(weight + tl.load(place + first + p, mask=here, other=0), mask=here, other=0.0)
    value = tl.load(
        source + other.to(tl.int64)[:, None] * ld + cols[None, :], mask=here[:, None], other=0.0
    )
    if ONE_MINUS:
        value = 1.0 - value
    return w[:, None] * value


@triton.jit
def _share(phi, beta, BUMP):
    """g, Γ of an evidence."""
    if BUMP:
        x = beta * phi
        safe = tl.maximum(x, 1e-3)
        g = tl.where(x > 1e-3, tl.exp(-1.0 / (safe * safe)), 0.0)
    else:
        g = _sigmoid(beta * phi)
    return g, _sigmoid(phi)


@triton.jit
def _slope(phi, beta, g, gamma, BUMP):
    """∂(gΓ)/∂φ and ∂(gΓ)/∂β."""
    if BUMP:
        x = tl.maximum(beta * phi, 1e-3)
        dg = 2.0 * g / (x * x * x)
    else:
        dg = g * (1.0 - g)
    return beta * dg * gamma + g * gamma * (1.0 - gamma), dg * phi * gamma


# -------------------------------------------------------------------- all steps in one launch


@triton.jit
def _rules_of_tile(
    start, rule_order, here, missing, R, e,
    b_start, b_index, b_place, b_longest, body, body_off, reach, ROWS, BT, UB,
):  # fmt: skip
    """Rows, their mask and original numbers, and how active these rules are."""
    j = start + tl.arange(0, ROWS)
    rule = j < R
    own = tl.load(rule_order + j, mask=rule, other=0)
    longest = tl.load(b_longest + start // ROWS)
    lack = _gathered(j, rule, b_start, b_index, b_place, body, here, e, BT, UB, longest, True)
    lack += tl.load(body_off + own, mask=rule, other=0.0)[:, None] * missing[None, :]
    a = _sigmoid(tl.load(reach + own, mask=rule, other=0.0)[:, None] - lack)
    return j, rule, own, a


@triton.jit
def _atoms_of_tile(
    start, atom_order, fire, spread, M, e,
    s_start, s_index, s_place, s_longest, head, offset, ROWS, BT, US,
):  # fmt: skip
    """Rows, their mask and original numbers, and the evidence for these atoms."""
    i = start + tl.arange(0, ROWS)
    atom = i < M
    own = tl.load(atom_order + i, mask=atom, other=0)
    longest = tl.load(s_longest + start // ROWS)
    phi = _gathered(i, atom, s_start, s_index, s_place, head, fire, e, BT, US, longest, False)
    phi += spread[None, :] - tl.load(offset + own, mask=atom, other=0.0)[:, None]
    return i, atom, own, phi


@triton.jit
def _run_tile(
    state, out, kept, fire, rule_order, atom_order,
    b_start, b_index, b_place, b_longest, body, body_off, reach, head_off,
    s_start, s_index, s_place, s_longest, head, offset, gate,
    B, M, R, T, keep_stride,
    KEEP: tl.constexpr, BUMP: tl.constexpr, ROWS: tl.constexpr, BT: tl.constexpr,
    UB: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BT)
    example = tile * BT + e
    seen = example < B
    here = kept + tile * M * BT
    fire += tile * R * BT
    beta = tl.load(gate)
    rest = tl.zeros([ROWS, BT], tl.float32)
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(atom_order + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = tl.load(state + example[None, :] * M + own[:, None], mask=both, other=1.0)
        tl.store(here + i[:, None] * BT + e[None, :], s, mask=atom[:, None])
        rest += 1.0 - s
    missing = tl.sum(rest, axis=0)
    tl.debug_barrier()
    for _ in range(T):
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, R, ROWS):
            j, rule, own, a = _rules_of_tile(
                start, rule_order, here, missing, R, e,
                b_start, b_index, b_place, b_longest, body, body_off, reach, ROWS, BT, UB,
            )  # fmt: skip
            tl.store(fire + j[:, None] * BT + e[None, :], a, mask=rule[:, None])
            rest += a * tl.load(head_off + own, mask=rule, other=0.0)[:, None]
        spread = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, M, ROWS):
            i, atom, own, phi = _atoms_of_tile(
                start, atom_order, fire, spread, M, e,
                s_start, s_index, s_place, s_longest, head, offset, ROWS, BT, US,
            )  # fmt: skip
            g, gamma = _share(phi, beta, BUMP)
            spot = here + i[:, None] * BT + e[None, :]
            s = tl.load(spot, mask=atom[:, None], other=1.0)
            s += (1.0 - s) * (g * gamma)
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
        own = tl.load(atom_order + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = tl.load(here + i[:, None] * BT + e[None, :], mask=both, other=0.0)
        tl.store(out + example[None, :] * M + own[:, None], s, mask=both)


@triton.jit
def _back_tile(
    given, kept, fire, dphi, dmargin, d_state, rule_order, atom_order,
    b_start, b_index, b_place, b_longest, body, body_off, reach, head_off,
    s_start, s_index, s_place, s_longest, head, offset, gate,
    h_start, h_index, h_place, h_longest, u_start, u_index, u_place, u_longest,
    d_body, d_off, d_reach, d_head, d_head_off, d_theta, d_beta,
    B, M, R, T, keep_stride, body_count, head_count,
    BUMP: tl.constexpr, EVERY: tl.constexpr, ROWS: tl.constexpr, BT: tl.constexpr,
    UB: tl.constexpr, US: tl.constexpr, UH: tl.constexpr, UU: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BT)
    example = tile * BT + e
    seen = example < B
    fire += tile * R * BT
    dmargin += tile * R * BT
    dphi += tile * M * BT
    d_state += tile * M * BT
    beta = tl.load(gate)
    here = kept + tile * M * BT + (T - 1) * keep_stride
    if EVERY:
        given += T.to(tl.int64) * B * M
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(atom_order + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        G = tl.load(given + example[None, :] * M + own[:, None], mask=both, other=0.0)
        tl.store(d_state + i[:, None] * BT + e[None, :], G, mask=atom[:, None])
    for _ in range(T):
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
                start, rule_order, here, missing, R, e,
                b_start, b_index, b_place, b_longest, body, body_off, reach, ROWS, BT, UB,
            )  # fmt: skip
            tl.store(fire + j[:, None] * BT + e[None, :], a, mask=rule[:, None])
            rest += a * tl.load(head_off + own, mask=rule, other=0.0)[:, None]
        spread = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, M, ROWS):
            i, atom, own, phi = _atoms_of_tile(
                start, atom_order, fire, spread, M, e,
                s_start, s_index, s_place, s_longest, head, offset, ROWS, BT, US,
            )  # fmt: skip
            g, gamma = _share(phi, beta, BUMP)
            by_phi, by_beta = _slope(phi, beta, g, gamma, BUMP)
            spot = i[:, None] * BT + e[None, :]
            s = tl.load(here + spot, mask=atom[:, None], other=1.0)
            G = tl.load(d_state + spot, mask=atom[:, None], other=0.0)
            weight = G * (1.0 - s)
            dp = weight * by_phi
            tl.store(dphi + spot, dp, mask=atom[:, None])
            tl.store(d_state + spot, G * (1.0 - g * gamma), mask=atom[:, None])
            _add(d_theta + tile * M + own, atom, -tl.sum(dp, axis=1))
            _add(d_beta + tile * M + own, atom, tl.sum(weight * by_beta, axis=1))
            rest += dp
        all_dp = tl.sum(rest, axis=0)
        tl.debug_barrier()
        rest = tl.zeros([ROWS, BT], tl.float32)
        for start in range(0, R, ROWS):
            j = start + tl.arange(0, ROWS)
            rule = j < R
            own = tl.load(rule_order + j, mask=rule, other=0)
            spot = j[:, None] * BT + e[None, :]
            a = tl.load(fire + spot, mask=rule[:, None], other=0.0)
            off = tl.load(body_off + own, mask=rule, other=0.0)
            stray = tl.load(head_off + own, mask=rule, other=0.0)
            longest = tl.load(h_longest + start // ROWS)
            df = _gathered(j, rule, h_start, h_index, h_place, head, dphi, e, BT, UH, longest, False)
            df += stray[:, None] * all_dp[None, :]
            dm = df * a * (1.0 - a)
            tl.store(dmargin + spot, dm, mask=rule[:, None])
            rest += dm * off[:, None]
            _add(d_head_off + tile * R + own, rule, tl.sum(a * all_dp[None, :], axis=1))
            _add(d_reach + tile * R + own, rule, tl.sum(dm, axis=1))
            _add(d_off + tile * R + own, rule, -tl.sum(dm * missing[None, :], axis=1))
            _add_literals(j, rule, h_start, h_index, h_place, dphi, a, d_head + tile * head_count,
                          e, BT, longest, 1.0, False)  # fmt: skip
            longest = tl.load(b_longest + start // ROWS)
            _add_literals(j, rule, b_start, b_index, b_place, here, dm, d_body + tile * body_count,
                          e, BT, longest, -1.0, True)  # fmt: skip
        lost = tl.sum(rest, axis=0)
        tl.debug_barrier()
        for start in range(0, M, ROWS):
            i = start + tl.arange(0, ROWS)
            atom = i < M
            longest = tl.load(u_longest + start // ROWS)
            more = _gathered(i, atom, u_start, u_index, u_place, body, dmargin, e, BT, UU, longest, False)
            more += lost[None, :]
            if EVERY:
                own = tl.load(atom_order + i, mask=atom, other=0)
                both = atom[:, None] & seen[None, :]
                spot = given - B * M + example[None, :] * M + own[:, None]
                more += tl.load(spot, mask=both, other=0.0)
            _add(d_state + i[:, None] * BT + e[None, :], atom[:, None], more)
        here -= keep_stride
        if EVERY:
            given -= B * M


@triton.jit
def _add_literals(
    rows, live, start, index, place, source, factor, into, cols, ld, longest, SIGN, ONE_MINUS
):
    """into[literal] += SIGN · Σ_examples source (or 1 − source) · factor, each literal once."""
    first = tl.load(start + rows, mask=live, other=0)
    count = tl.load(start + rows + 1, mask=live, other=0) - first
    for p in range(longest):
        here = p < count
        other = tl.load(index + first + p, mask=here, other=0)
        value = tl.load(
            source + other.to(tl.int64)[:, None] * ld + cols[None, :], mask=here[:, None], other=0.0
        )
        if ONE_MINUS:
            value = 1.0 - value
        spot = into + tl.load(place + first + p, mask=here, other=0)
        _add(spot, here, SIGN * tl.sum(value * factor, axis=1))


@triton.jit
def _add(spot, live, more):
    tl.store(spot, tl.load(spot, mask=live, other=0.0) + more, mask=live)


# -------------------------------------------------------------------- one launch a half step


@triton.jit
def _rules_half(
    s, missing, fire, spread,
    b_start, b_index, b_place, body, body_off, reach, head_off,
    B, R, ld, RULES,
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
        first = tl.load(b_start + j, mask=rule, other=0)
        longest = tl.max(tl.load(b_start + j + 1, mask=rule, other=0) - first, axis=0)
        lack = _gathered(j, rule, b_start, b_index, b_place, body, s, e, ld, UB, longest, True)
        off = tl.load(body_off + j, mask=rule, other=0.0)
        lack += off[:, None] * gone[None, :]
        f = _sigmoid(tl.load(reach + j, mask=rule, other=0.0)[:, None] - lack)
        both = rule[:, None] & seen[None, :]
        tl.store(fire + j[:, None] * ld + e[None, :], f, mask=both)
        stray = tl.load(head_off + j, mask=rule, other=0.0)
        total += tl.sum(f * stray[:, None], axis=0).to(tl.float64)
    tl.store(spread + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _atoms_half(
    s, after, fire, spread, missing,
    s_start, s_index, s_place, head, offset, gate,
    B, M, ld, ATOMS,
    BUMP: tl.constexpr, MB: tl.constexpr, BB: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    e = tl.program_id(1) * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(spread + e, mask=seen, other=0.0).to(tl.float32)
    beta = tl.load(gate)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        first = tl.load(s_start + i, mask=atom, other=0)
        longest = tl.max(tl.load(s_start + i + 1, mask=atom, other=0) - first, axis=0)
        phi = _gathered(i, atom, s_start, s_index, s_place, head, fire, e, ld, US, longest, False)
        phi += everywhere[None, :] - tl.load(offset + i, mask=atom, other=0.0)[:, None]
        g, gamma = _share(phi, beta, BUMP)
        old = tl.load(s + i[:, None] * ld + e[None, :], mask=both, other=1.0)
        new = old + (1.0 - old) * (g * gamma)
        tl.store(after + i[:, None] * ld + e[None, :], new, mask=both)
        total += tl.sum(tl.where(both, 1.0 - new, 0.0), axis=0).to(tl.float64)
    tl.store(missing + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _atoms_back(
    s, G, fire, spread, dphi, sums, d_theta, d_beta,
    s_start, s_index, s_place, head, offset, gate,
    B, M, ld, ATOMS,
    BUMP: tl.constexpr, MB: tl.constexpr, BB: tl.constexpr, US: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1).to(tl.int64)
    e = column * BB + tl.arange(0, BB)
    seen = e < B
    everywhere = tl.load(spread + e, mask=seen, other=0.0).to(tl.float32)
    beta = tl.load(gate)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * ATOMS
    for block in range(0, ATOMS, MB):
        i = start + block + tl.arange(0, MB)
        atom = i < M
        both = atom[:, None] & seen[None, :]
        spot = i[:, None] * ld + e[None, :]
        first = tl.load(s_start + i, mask=atom, other=0)
        longest = tl.max(tl.load(s_start + i + 1, mask=atom, other=0) - first, axis=0)
        phi = _gathered(i, atom, s_start, s_index, s_place, head, fire, e, ld, US, longest, False)
        phi += everywhere[None, :] - tl.load(offset + i, mask=atom, other=0.0)[:, None]
        g, gamma = _share(phi, beta, BUMP)
        by_phi, by_beta = _slope(phi, beta, g, gamma, BUMP)
        old = tl.load(s + spot, mask=both, other=1.0)
        up = tl.load(G + spot, mask=both, other=0.0)
        weight = up * (1.0 - old)
        dp = tl.where(both, weight * by_phi, 0.0)
        tl.store(dphi + spot, dp, mask=both)
        tl.store(G + spot, up * (1.0 - g * gamma), mask=both)
        total += tl.sum(dp, axis=0).to(tl.float64)
        own = column * M + i
        _add(d_theta + own, atom, -tl.sum(dp, axis=1))
        _add(d_beta + own, atom, tl.sum(tl.where(both, weight * by_beta, 0.0), axis=1))
    tl.store(sums + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _rules_back(
    s, missing, fire, dphi, all_dphi, dmargin, lost,
    b_start, b_index, b_place, body_off, head_off,
    h_start, h_index, h_place, head,
    d_body, d_off, d_reach, d_head, d_head_off,
    B, R, ld, RULES, body_count, head_count,
    RB: tl.constexpr, BB: tl.constexpr, UH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1).to(tl.int64)
    e = column * BB + tl.arange(0, BB)
    seen = e < B
    gone = tl.load(missing + e, mask=seen, other=0.0).to(tl.float32)
    everywhere = tl.load(all_dphi + e, mask=seen, other=0.0).to(tl.float32)
    total = tl.zeros([BB], tl.float64)
    start = tl.program_id(0).to(tl.int64) * RULES
    for block in range(0, RULES, RB):
        j = start + block + tl.arange(0, RB)
        rule = j < R
        both = rule[:, None] & seen[None, :]
        spot = j[:, None] * ld + e[None, :]
        a = tl.load(fire + spot, mask=both, other=0.0)
        off = tl.load(body_off + j, mask=rule, other=0.0)
        stray = tl.load(head_off + j, mask=rule, other=0.0)
        h_first = tl.load(h_start + j, mask=rule, other=0)
        h_longest = tl.max(tl.load(h_start + j + 1, mask=rule, other=0) - h_first, axis=0)
        df = _gathered(j, rule, h_start, h_index, h_place, head, dphi, e, ld, UH, h_longest, False)
        df = tl.where(both, df + stray[:, None] * everywhere[None, :], 0.0)
        dm = df * a * (1.0 - a)
        tl.store(dmargin + spot, dm, mask=both)
        total += tl.sum(dm * off[:, None], axis=0).to(tl.float64)
        own = column * R + j
        _add(d_head_off + own, rule, tl.sum(a * everywhere[None, :], axis=1))
        _add(d_reach + own, rule, tl.sum(dm, axis=1))
        _add(d_off + own, rule, -tl.sum(dm * gone[None, :], axis=1))
        _add_literals(j, rule, h_start, h_index, h_place, dphi, a, d_head + column * head_count,
                      e, ld, h_longest, 1.0, False)  # fmt: skip
        b_first = tl.load(b_start + j, mask=rule, other=0)
        b_longest = tl.max(tl.load(b_start + j + 1, mask=rule, other=0) - b_first, axis=0)
        _add_literals(j, rule, b_start, b_index, b_place, s, dm, d_body + column * body_count,
                      e, ld, b_longest, -1.0, True)  # fmt: skip
    tl.store(lost + tl.program_id(0).to(tl.int64) * ld + e, total, mask=seen)


@triton.jit
def _states_back(
    G, dmargin, lost, u_start, u_index, u_place, body,
    B, M, ld, ATOMS,
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
        spot = i[:, None] * ld + e[None, :]
        first = tl.load(u_start + i, mask=atom, other=0)
        longest = tl.max(tl.load(u_start + i + 1, mask=atom, other=0) - first, axis=0)
        more = _gathered(i, atom, u_start, u_index, u_place, body, dmargin, e, ld, UU, longest, False)
        tl.store(G + spot, tl.load(G + spot, mask=both, other=0.0) + more + everywhere[None, :], mask=both)
