"""The Triton kernels of a step."""

from __future__ import annotations

import triton
import triton.language as tl

# ---- Functions of all kernels
# Literals are gathered, never scattered: rules read their atoms, atoms read their rules. So nothing
# needs an atomic addition, and the same input gives the same bits. Buffers hold the examples of an
# atom (or of a rule) side by side, so that gathering a literal reads one run of memory. Errors stay
# inside what the certificate allows for: `exp` is good to a few roundoffs and to one of its argument,
# and long sums are taken pairwise, or in float64.
#
# Rows of literals come as a tuple (start, other, place, longest): row r holds other[start[r]] to
# other[start[r + 1]], whose weights stand at `place`; `longest` is the longest row of each run.

@triton.jit
def element_sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def in_range(state):
    """Return the values of a state; NaN for those outside [0, 1]."""
    return tl.where((state >= 0.0) & (state <= 1.0), state, float("nan"))


@triton.jit
def weighted_sums(
    rows, live, literals, weight, source, cols, seen, stride, longest, UNROLL: tl.constexpr,
    ONE_MINUS: tl.constexpr,
):  # fmt: skip
    """Return Σ over a row's literals of weight · source or weight · (1 − source). [rows, cols]."""
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
    """Return g and Γ of an evidence."""
    if BUMP:
        x = beta * phi
        safe = tl.maximum(x, 1e-3)
        g = tl.where(x > 1e-3, tl.exp(-1.0 / (safe * safe)), 0.0)
    else:
        g = element_sigmoid(beta * phi)
    return g, element_sigmoid(phi)


@triton.jit
def rate_slopes(phi, beta, g, gamma, BUMP: tl.constexpr):
    """Return ∂(gΓ)/∂φ and ∂(gΓ)/∂β."""
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
    """Add SIGN · Σ_examples source (or 1 − source) · factor to into[literal], each once."""
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
    """Return 1 for each example that still takes step t, 0 for the others."""
    if HAS_COUNTS:
        return (t < tl.load(counts + example, mask=seen, other=0)).to(tl.float32)
    return seen.to(tl.float32)


@triton.jit
def steps_of_tile(counts, example, seen, T, HAS_COUNTS: tl.constexpr):
    """Return how many of T steps some example of the tile takes."""
    if HAS_COUNTS:
        return tl.max(tl.load(counts + example, mask=seen, other=0), axis=0)
    return T.to(tl.int64)  # the kernels do not specialise on T, so that it is never a constant


# ---- Parameters to coefficients, and gradients back, each in one launch
# The formulas are those of `SparseRules.read` and `interface.make_coefficients`, in float64
# throughout. Each program computes some rules, a thread for each.
#
# `index` is (body_start, body_place, head_start, head_place); `parameters` is a tuple as in
# `interface.Stored`, `coefficients` one as in `interface.Coefficients`. TINY and EPS are the
# smallest positive number and the roundoff of the parameters' dtype.

@triton.jit
def _wide(pointer, at, live):
    return tl.load(pointer + at, mask=live, other=0.0).to(tl.float64)


@triton.jit
def _sigmoid(x):
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def _sigmoid_slope(x):
    small = tl.exp(-tl.abs(x))
    return small / ((1.0 + small) * (1.0 + small))


@triton.jit
def _softplus(x):
    small = tl.exp(-tl.abs(x))
    # log(1 + small), to full precision also where small is tiny.
    sum_ = 1.0 + small
    excess = sum_ - 1.0
    log = tl.where(excess == 0, small, tl.log(sum_) * (small / tl.where(excess == 0, 1.0, excess)))
    return tl.maximum(x, 0.0) + log


@triton.jit
def _rule(index, parameters, j, rule, M, TINY: tl.constexpr, EPS: tl.constexpr):
    """Return what both passes compute first for some rules."""
    dtype = parameters[5].dtype.element_ty
    sharpness = tl.maximum(_softplus(_wide(parameters[5], j, rule)), TINY)
    sharpness = sharpness.to(dtype).to(tl.float64)
    body_off = _sigmoid(_wide(parameters[1], j, rule))
    gain = tl.maximum(_softplus(tl.load(parameters[7]).to(tl.float64)), TINY)
    gain = gain.to(dtype).to(tl.float64)
    confidence = _sigmoid(_wide(parameters[6], j, rule))
    confidence = tl.minimum(tl.maximum(confidence, TINY), 1.0 - EPS)
    confidence = confidence.to(dtype).to(tl.float64)
    low = tl.load(index[2] + j, mask=rule, other=0)
    heads = tl.load(index[2] + j + 1, mask=rule, other=0) - low
    longest = tl.max(heads, axis=0)
    rest = (M - heads).to(tl.float64)
    background = tl.where(rest > 0, _wide(parameters[3], j, rule), float("-inf"))
    top = background
    for q in range(longest):
        here = q < heads
        logit = _wide(parameters[2], tl.load(index[3] + low + q, mask=here, other=0), here)
        top = tl.where(here, tl.maximum(top, logit), top)
    top = tl.where(rule, top, 0.0)
    head_off = tl.exp(background - top)
    norm = rest * head_off
    for q in range(longest):
        here = q < heads
        logit = _wide(parameters[2], tl.load(index[3] + low + q, mask=here, other=0), here)
        norm += tl.where(here, tl.exp(logit - top), 0.0)
    norm = tl.where(rule, norm, 1.0)
    return (
        sharpness,
        body_off,
        gain,
        confidence,
        low,
        heads,
        longest,
        rest,
        top,
        norm,
        head_off / norm,
    )


@triton.jit
def read_kernel(
    index, parameters, coefficients, M, R,
    TINY: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rule = j < R
    sharpness, body_off, gain, confidence, low, heads, longest, _, top, norm, head_off = _rule(
        index, parameters, j, rule, M, TINY, EPS
    )
    amplitude = (gain * confidence).to(parameters[6].dtype.element_ty).to(tl.float64)
    start = tl.load(index[0] + j, mask=rule, other=0)
    count = tl.load(index[0] + j + 1, mask=rule, other=0) - start
    total = M * body_off
    for p in range(tl.max(count, axis=0)):
        here = p < count
        logit = _wide(parameters[0], tl.load(index[1] + start + p, mask=here, other=0), here)
        weight = tl.where(here, _sigmoid(logit) - body_off, 0.0)
        total += weight
        tl.store(coefficients[2] + start + p, (sharpness * weight).to(tl.float32), mask=here)
    margin = sharpness * (total - _wide(parameters[4], j, rule))
    tl.store(coefficients[0] + j, margin.to(tl.float32), mask=rule)
    tl.store(coefficients[1] + j, (sharpness * body_off).to(tl.float32), mask=rule)
    tl.store(coefficients[3] + j, (amplitude * head_off).to(tl.float32), mask=rule)
    for q in range(longest):
        here = q < heads
        logit = _wide(parameters[2], tl.load(index[3] + low + q, mask=here, other=0), here)
        weight = amplitude * (tl.exp(logit - top) / norm - head_off)
        tl.store(coefficients[4] + low + q, weight.to(tl.float32), mask=here)
    if tl.program_id(0) == 0:
        gate = tl.maximum(1.0 + _softplus(tl.load(parameters[9]).to(tl.float64)), 1.0 + EPS)
        tl.store(coefficients[6], gate.to(parameters[9].dtype.element_ty).to(tl.float32))


@triton.jit
def read_backward_kernel(
    index, parameters, gradients, out, by_gain, M, R,
    TINY: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the parameters, `out`, from those of the coefficients."""
    j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rule = j < R
    sharpness, body_off, gain, confidence, low, heads, longest, rest, top, norm, head_off = _rule(
        index, parameters, j, rule, M, TINY, EPS
    )
    dtype = out[4].dtype.element_ty
    by_total = _wide(gradients[0], j, rule) * sharpness
    by_off = _wide(gradients[1], j, rule)
    by_sharpness = by_off * body_off
    by_background = by_off * sharpness + M * by_total
    total = M * body_off
    start = tl.load(index[0] + j, mask=rule, other=0)
    count = tl.load(index[0] + j + 1, mask=rule, other=0) - start
    for p in range(tl.max(count, axis=0)):
        here = p < count
        place = tl.load(index[1] + start + p, mask=here, other=0)
        logit = _wide(parameters[0], place, here)
        weight = tl.where(here, _sigmoid(logit) - body_off, 0.0)
        total += weight
        grad = _wide(gradients[2], start + p, here)
        by_sharpness += grad * weight
        by_weight = grad * sharpness + by_total
        by_background -= tl.where(here, by_weight, 0.0)
        tl.store(out[0] + place, (by_weight * _sigmoid_slope(logit)).to(dtype), mask=here)
    slope = _sigmoid_slope(_wide(parameters[1], j, rule))
    tl.store(out[1] + j, (by_background * slope).to(dtype), mask=rule)
    by_sharpness += _wide(gradients[0], j, rule) * (total - _wide(parameters[4], j, rule))
    raw = _wide(parameters[5], j, rule)
    by_raw = tl.where(_softplus(raw) >= TINY, by_sharpness * _sigmoid(raw), 0.0)
    tl.store(out[5] + j, by_raw.to(dtype), mask=rule)
    tl.store(out[4] + j, (-by_total).to(dtype), mask=rule)

    amplitude = (gain * confidence).to(parameters[6].dtype.element_ty).to(tl.float64)
    by_off = _wide(gradients[3], j, rule)
    by_amplitude = by_off * head_off
    by_background = by_off * amplitude
    mean = tl.zeros([ROWS], tl.float64)
    for q in range(longest):
        here = q < heads
        logit = _wide(parameters[2], tl.load(index[3] + low + q, mask=here, other=0), here)
        share = tl.exp(logit - top) / norm
        grad = _wide(gradients[4], low + q, here)
        by_amplitude += tl.where(here, grad * (share - head_off), 0.0)
        by_background -= tl.where(here, grad * amplitude, 0.0)
        mean += tl.where(here, grad * amplitude * share, 0.0)
    mean += by_background * head_off
    for q in range(longest):
        here = q < heads
        place = tl.load(index[3] + low + q, mask=here, other=0)
        share = tl.exp(_wide(parameters[2], place, here) - top) / norm
        grad = _wide(gradients[4], low + q, here) * amplitude
        tl.store(out[2] + place, (share * (grad - mean)).to(dtype), mask=here)
    tl.store(out[3] + j, (head_off * (by_background - rest * mean)).to(dtype), mask=rule)
    raw = _wide(parameters[6], j, rule)
    inside = (_sigmoid(raw) >= TINY) & (_sigmoid(raw) <= 1.0 - EPS)
    by_raw = tl.where(inside, by_amplitude * gain * _sigmoid_slope(raw), 0.0)
    tl.store(out[6] + j, by_raw.to(dtype), mask=rule)
    total = tl.sum(tl.where(rule, by_amplitude * confidence, 0.0), axis=0)
    tl.store(by_gain + tl.program_id(0), total)


@triton.jit
def read_shared_backward_kernel(
    parameters, gradients, out, by_gain, M, programs,
    TINY: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of the gain over programs, and those of the gate over atoms."""
    dtype = out[7].dtype.element_ty
    at = tl.arange(0, ROWS)
    total = tl.zeros([ROWS], tl.float64)
    for start in range(0, programs, ROWS):
        total += tl.load(by_gain + start + at, mask=start + at < programs, other=0.0)
    raw = tl.load(parameters[7]).to(tl.float64)
    slope = tl.where(_softplus(raw) >= TINY, _sigmoid(raw), 0.0)
    tl.store(out[7], (tl.sum(total, axis=0) * slope).to(dtype))
    total = tl.zeros([ROWS], tl.float64)
    for start in range(0, M, ROWS):
        total += _wide(gradients[6], start + at, start + at < M)
    raw = tl.load(parameters[9]).to(tl.float64)
    slope = tl.where(_softplus(raw) >= EPS, _sigmoid(raw), 0.0)
    tl.store(out[9], (tl.sum(total, axis=0) * slope).to(dtype))


# ---- All steps in one launch: each thread block runs one tile of examples, for small programs
# `coefficients` is a tuple (margin, body_background, body_weight, head_background, head_weight,
# offset, gate), `orders` is (rule_order, atom_order).

@triton.jit
def _rules_of_tile(
    start, orders, here, missing, R, e, bodies, coefficients,
    ROWS: tl.constexpr, BT: tl.constexpr, UB: tl.constexpr,
):  # fmt: skip
    """Return rows, their mask and original numbers, and how active these rules are."""
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
    """Return rows, their mask and original numbers, and the evidence for these atoms."""
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
    """Run all steps of a tile backwards; `gradients` are in the order of the coefficients."""
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


# ---- One launch for each half of a step, over (rules or atoms) × examples, for large programs
# Buffers are (rows, B): the examples of an atom or a rule lie side by side. `coefficients` and
# `gradients` are tuples as in the tile kernels above.

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


# ---- T_P on supports, 32 examples in the bits of a word: a thread block runs them until they rest
# `orders` is (rule_order, atom_order); rows of literals are tuples as at the top of this file.

@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _rows_from(start, size, literals, ROWS: tl.constexpr):
    """Return some rows of literals: numbers, mask, first place, length, and two literals."""
    row = start + tl.arange(0, ROWS)
    live = row < size
    first = tl.load(literals[0] + row, mask=live, other=0)
    count = tl.load(literals[0] + row + 1, mask=live, other=0) - first
    one = tl.load(literals[1] + first, mask=count > 0, other=0)
    two = tl.load(literals[1] + first + 1, mask=count > 1, other=0)
    longest = tl.load(literals[3] + start // ROWS)
    return row, live, first, count, one, two, longest


@triton.jit
def _any_literal(source, literals, first, count, one, two, longest, ABSENT: tl.constexpr):
    """Return in which examples a literal of the row is true (or, with ABSENT, false). [rows]."""
    # Where a literal is missing, the source is taken for one that has no effect.
    flip = -1 if ABSENT else 0
    found = tl.load(source + one, mask=count > 0, other=flip) ^ flip
    found |= tl.load(source + two, mask=count > 1, other=flip) ^ flip
    for p in range(2, longest):
        here = p < count
        other = tl.load(literals[1] + first + p, mask=here, other=0)
        found |= tl.load(source + other, mask=here, other=flip) ^ flip
    return found


@triton.jit(do_not_specialize=["most", "delay", "limit"])
def count_steps(
    state, counts, soft, support, fired, orders, bodies, sources, B, M, R, most, delay, limit,
    ROWS: tl.constexpr, ONE_RUN: tl.constexpr,
):  # fmt: skip
    """Set counts[b] = min(depth + delay, limit) for a support of depth > 0 under T_P, otherwise 0.

    No more than `most` steps of T_P are taken. soft[block] says whether any value of the block is
    neither 0 nor 1.
    """
    block = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, 32)
    example = block * 32 + e
    seen = example < B
    support += block * M
    fired += block * R
    undecided = tl.zeros([ROWS, 32], tl.int32)
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(orders[1] + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = tl.load(state + example[None, :] * M + own[:, None], mask=both, other=1.0)
        undecided |= ((s != 0.0) & (s != 1.0)).to(tl.int32)
        tl.store(support + i, tl.sum((s > 0.5).to(tl.int32) << e[None, :], axis=1), mask=atom)
    tl.store(soft + block, tl.max(tl.max(undecided, axis=0), axis=0))
    tl.debug_barrier()
    depth = tl.zeros([32], tl.int32)
    step = 0
    goes_on = most
    # Where one run of rows is all there is, its literals stay in registers.
    j, rule, r_first, r_count, r_one, r_two, r_longest = _rows_from(0, R, bodies, ROWS)
    i, atom, a_first, a_count, a_one, a_two, a_longest = _rows_from(0, M, sources, ROWS)
    while goes_on > 0:
        for start in range(0, R, ROWS):
            if not ONE_RUN:
                j, rule, r_first, r_count, r_one, r_two, r_longest = _rows_from(
                    start, R, bodies, ROWS
                )
            lacks = _any_literal(
                support, bodies, r_first, r_count, r_one, r_two, r_longest, True
            )
            tl.store(fired + j, ~lacks, mask=rule)
        tl.debug_barrier()
        new = tl.zeros([ROWS], tl.int32)
        for start in range(0, M, ROWS):
            if not ONE_RUN:
                i, atom, a_first, a_count, a_one, a_two, a_longest = _rows_from(
                    start, M, sources, ROWS
                )
            derived = _any_literal(
                fired, sources, a_first, a_count, a_one, a_two, a_longest, False
            )
            old = tl.load(support + i, mask=atom, other=-1)
            tl.store(support + i, old | derived, mask=atom)
            new |= derived & ~old
        step += 1
        changed = tl.reduce(new, 0, _or)
        depth = tl.where(((changed >> e) & 1) > 0, step, depth)
        goes_on = tl.where(changed != 0, most - step, 0)
        tl.debug_barrier()
    steps = tl.where(depth > 0, tl.minimum(depth + delay, limit), 0)
    tl.store(counts + example, steps.to(tl.int64), mask=seen)
