"""Parameters to coefficients on the CPU, and gradients of coefficients to those of parameters.

The formulas are those of `SparseRules.read` and `coefficients.make_coefficients`, in float64 and
rounded once at the end. Sharpness and amplitude are first rounded to the dtype of the parameters, as
plain torch does. Each rule is independent of the others, except for the shared gain.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from latentgamma._model.kernels.cpu_arithmetic import Array
from latentgamma._simd import TILE, compiled, exp_minus_abs, group, inlined, put_group


class RuleIndex(NamedTuple):
    """The literals of the rules, and where their logits stand."""

    body_start: Array  # (R + 1,)
    body_place: Array  # (literals,) the place of each literal's logit
    head_start: Array  # (R + 1,)
    head_place: Array  # (head literals,)


class RuleParameters(NamedTuple):
    """The parameters of the rules, or their gradients."""

    body_logits: Array  # (literals,)
    body_background: Array  # (R,)
    head_logits: Array  # (head literals,)
    head_background: Array  # (R,)
    threshold: Array  # (R,)
    sharpness: Array  # (R,)
    confidence: Array  # (R,)


class RuleCoefficients(NamedTuple):
    """The coefficients of the rules, or their gradients; see `coefficients.Coefficients`."""

    margin: Array  # (R,)
    body_background: Array  # (R,)
    body_weight: Array  # (literals,)
    head_background: Array  # (R,)
    head_weight: Array  # (head literals,)


class _Exponentials(NamedTuple):
    """e^−|x| of the parameters of some rules; of head logits, e to their distance to the largest.

    Entries are counted from the first rule, and from its first literals.
    """

    body: Array
    body_background: Array
    sharpness: Array
    confidence: Array
    head: Array
    head_background: Array


@inlined
def _padded(count: int) -> Array:
    """Working memory of whole groups of TILE numbers."""
    return np.zeros((count + TILE - 1) // TILE * TILE)


@inlined
def _exponentiate(values: Array) -> None:
    for g in range(len(values) // TILE):
        put_group(values, g, exp_minus_abs(group(values, g)))


@inlined
def _exponentials(
    first: int, last: int, M: int, rules: RuleIndex, raw: RuleParameters
) -> _Exponentials:
    low_body, low_head = rules.body_start[first], rules.head_start[first]
    e = _Exponentials(
        _padded(rules.body_start[last] - low_body),
        _padded(last - first),
        _padded(last - first),
        _padded(last - first),
        _padded(rules.head_start[last] - low_head),
        _padded(last - first),
    )
    for p in range(low_body, rules.body_start[last]):
        e.body[p - low_body] = raw.body_logits[rules.body_place[p]]
    for j in range(first, last):
        e.body_background[j - first] = raw.body_background[j]
        e.sharpness[j - first] = raw.sharpness[j]
        e.confidence[j - first] = raw.confidence[j]
        low, high = rules.head_start[j], rules.head_start[j + 1]
        background = np.float64(raw.head_background[j]) if high - low < M else -np.inf
        top = background
        for q in range(low, high):
            top = max(top, np.float64(raw.head_logits[rules.head_place[q]]))
        # A rule that routes to every atom has no background: e^−∞ = 0.
        e.head_background[j - first] = background - top
        for q in range(low, high):
            e.head[q - low_head] = np.float64(raw.head_logits[rules.head_place[q]]) - top
    for values in e:
        _exponentiate(values)
    return e


@inlined
def _sigmoid(x: float, small: float) -> float:
    """σ(x), from `small` = e^−|x|."""
    return (1.0 if x >= 0 else small) / (1.0 + small)


@inlined
def _sigmoid_slope(small: float) -> float:
    return small / ((1.0 + small) * (1.0 + small))


@inlined
def _softplus(x: float, small: float) -> float:
    return max(x, 0.0) + math.log1p(small)


@inlined
def _product(like: Array, left: float, right: float) -> float:
    """Left · right with the roundings of the dtype of an array."""
    return np.float64(like.dtype.type(left) * like.dtype.type(right))


@inlined
def _head_norm(low: int, high: int, M: int, head: Array, background: float) -> float:
    """The sum of e^(ψ − largest) over all atoms of a rule."""
    norm = (M - (high - low)) * background
    for q in range(low, high):
        norm += head[q]
    return norm


@compiled
def read_coefficients(
    first: int,
    last: int,
    M: int,
    gain: float,
    limits: tuple[float, float],
    rules: RuleIndex,
    raw: RuleParameters,
    out: RuleCoefficients,
) -> None:
    """Fill the coefficients of rules `first` to `last`.

    `limits` are the smallest positive number and the roundoff of the parameters' dtype, which
    bound sharpness and confidence.
    """
    tiny, eps = limits
    e = _exponentials(first, last, M, rules, raw)
    low_body, low_head = rules.body_start[first], rules.head_start[first]
    for j in range(first, last):
        here = j - first
        sharpness = max(_softplus(raw.sharpness[j], e.sharpness[here]), tiny)
        sharpness = np.float64(raw.sharpness.dtype.type(sharpness))
        background = _sigmoid(raw.body_background[j], e.body_background[here])
        total = M * background
        for p in range(rules.body_start[j], rules.body_start[j + 1]):
            logit = raw.body_logits[rules.body_place[p]]
            weight = _sigmoid(logit, e.body[p - low_body]) - background
            total += weight
            out.body_weight[p] = sharpness * weight
        out.margin[j] = sharpness * (total - raw.threshold[j])
        out.body_background[j] = sharpness * background
        confidence = _sigmoid(raw.confidence[j], e.confidence[here])
        confidence = min(max(confidence, tiny), 1.0 - eps)
        amplitude = _product(raw.confidence, gain, confidence)
        low, high = rules.head_start[j] - low_head, rules.head_start[j + 1] - low_head
        norm = _head_norm(low, high, M, e.head, e.head_background[here])
        background = e.head_background[here] / norm
        out.head_background[j] = amplitude * background
        for q in range(low, high):
            out.head_weight[q + low_head] = amplitude * (e.head[q] / norm - background)


@compiled
def read_coefficients_backward(
    first: int,
    last: int,
    M: int,
    gain: float,
    limits: tuple[float, float],
    rules: RuleIndex,
    raw: RuleParameters,
    grads: RuleCoefficients,
    out: RuleParameters,
) -> float:
    """Fill the gradients of the parameters of rules `first` to `last`; return their dL/d gain."""
    tiny, eps = limits
    e = _exponentials(first, last, M, rules, raw)
    low_body, low_head = rules.body_start[first], rules.head_start[first]
    grad_gain = 0.0
    for j in range(first, last):
        here = j - first
        sharpness = _softplus(raw.sharpness[j], e.sharpness[here])
        inside = sharpness >= tiny
        sharpness = np.float64(raw.sharpness.dtype.type(max(sharpness, tiny)))
        background = _sigmoid(raw.body_background[j], e.body_background[here])
        by_total = grads.margin[j] * sharpness
        total, by_sharpness = M * background, grads.body_background[j] * background
        by_background = grads.body_background[j] * sharpness + M * by_total
        for p in range(rules.body_start[j], rules.body_start[j + 1]):
            place, small = rules.body_place[p], e.body[p - low_body]
            weight = _sigmoid(raw.body_logits[place], small) - background
            total += weight
            by_sharpness += grads.body_weight[p] * weight
            by_weight = grads.body_weight[p] * sharpness + by_total
            by_background -= by_weight
            out.body_logits[place] = by_weight * _sigmoid_slope(small)
        out.body_background[j] = by_background * _sigmoid_slope(e.body_background[here])
        by_sharpness += grads.margin[j] * (total - raw.threshold[j])
        slope = _sigmoid(raw.sharpness[j], e.sharpness[here])
        out.sharpness[j] = by_sharpness * slope if inside else 0.0
        out.threshold[j] = -by_total

        confidence = _sigmoid(raw.confidence[j], e.confidence[here])
        inside = tiny <= confidence <= 1.0 - eps
        confidence = min(max(confidence, tiny), 1.0 - eps)
        amplitude = _product(raw.confidence, gain, confidence)
        low, high = rules.head_start[j] - low_head, rules.head_start[j + 1] - low_head
        norm = _head_norm(low, high, M, e.head, e.head_background[here])
        background = e.head_background[here] / norm
        by_amplitude = grads.head_background[j] * background
        by_background, mean = grads.head_background[j] * amplitude, 0.0
        for q in range(low, high):
            share, grad = e.head[q] / norm, grads.head_weight[q + low_head]
            by_amplitude += grad * (share - background)
            by_background -= grad * amplitude
            mean += grad * amplitude * share
        mean += by_background * background
        for q in range(low, high):
            grad = grads.head_weight[q + low_head] * amplitude
            out.head_logits[rules.head_place[q + low_head]] = e.head[q] / norm * (grad - mean)
        out.head_background[j] = background * (by_background - (M - (high - low)) * mean)
        slope = _sigmoid_slope(e.confidence[here])
        out.confidence[j] = by_amplitude * gain * slope if inside else 0.0
        grad_gain += by_amplitude * confidence
    return grad_gain
