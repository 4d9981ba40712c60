"""Parameters to coefficients on the GPU, and gradients back, each in one launch.

The formulas are those of `SparseRules.read` and `coefficients.make_coefficients`, in float64
throughout. Each program computes some rules, a thread for each.

`index` is (body_start, body_place, head_start, head_place); `parameters` is a tuple as in
`coefficients.Parameters`, `coefficients` one as in `coefficients.Coefficients`. TINY and EPS are the
smallest positive number and the roundoff of the parameters' dtype.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
    """What both passes compute first for some rules."""
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
    """`gradients` are those of the coefficients, `out` becomes those of the parameters."""
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
    """The gradients of gain and gate: sums over the programs of the rules, and over the atoms."""
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
