"""The coefficients of a step: the parameters multiplied out, as kernels use them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from latentgamma._model.kernels.literal_rows import LiteralRows
from latentgamma._model.rules import StepParameters
from latentgamma._model.stages import bump as bump_gate


class Parameters(NamedTuple):
    """The parameters of a sparse model as they are stored."""

    body_logits: Tensor  # (literals,)
    body_background: Tensor  # (R,)
    head_logits: Tensor  # (head literals,)
    head_background: Tensor  # (R,)
    threshold: Tensor  # (R,)
    sharpness_raw: Tensor  # (R,)
    confidence_raw: Tensor  # (R,)
    gain_raw: Tensor  # ()
    offset: Tensor  # (M,)
    gate_raw: Tensor  # ()


class Coefficients(NamedTuple):
    """The coefficients of a step, or their gradients.

    With m = 1 − s, a step is a_j = σ(margin_j − body_background_j Σ_i m_i − Σ_p body_weight_p m_p),
    φ_i = Σ_j head_background_j a_j + Σ_p head_weight_p a_p − offset_i, and the gate and the update
    as they stand. The two totals over all atoms and all rules are taken in float64.
    """

    margin: Tensor  # (R,) τ_j (Σ_i u_ji − b_j)
    body_background: Tensor  # (R,) τ_j times the background of the body
    body_weight: Tensor  # (literals,) τ_j times the weights over the background, by rule
    head_background: Tensor  # (R,) the amplitude times the background of the head
    head_weight: Tensor  # (head literals,) the amplitude times the weights over it, by rule
    offset: Tensor  # (M,) θ
    gate: Tensor  # () β


def make_coefficients(
    rows: LiteralRows, parameters: StepParameters, dtype: torch.dtype
) -> Coefficients:
    """The coefficients in the dtype of the states, differentiable in the step's parameters."""
    weights = parameters.weights
    sharpness, amplitude = parameters.sharpness.to(dtype), parameters.amplitude.to(dtype)
    body = weights.body.to(dtype).index_select(0, rows.body_place)
    head = weights.head.to(dtype).index_select(0, rows.head_place)
    margin = weights.body_total - parameters.threshold.double()  # (R,)
    return Coefficients(
        margin=(parameters.sharpness.double() * margin).to(dtype),
        body_background=sharpness * weights.body_off.to(dtype),
        body_weight=sharpness.index_select(0, rows.body_rule) * body,
        head_background=amplitude * weights.head_off.to(dtype),
        head_weight=amplitude.index_select(0, rows.head_rule) * head,
        offset=parameters.offset.to(dtype),
        gate=parameters.gate.to(dtype),
    )


def plain_step(
    rows: LiteralRows, coefficients: Coefficients, state: Tensor, *, bump: bool
) -> Tensor:
    """One step from the coefficients in plain torch. (B, M)."""
    c, missing = coefficients, 1 - state
    total = missing.sum(-1, keepdim=True, dtype=torch.float64)
    lack = (total * c.body_background.double()).to(state.dtype)  # (B, R)
    lack = lack.index_add(
        -1, rows.body_rule, missing.index_select(-1, rows.body_atom) * c.body_weight
    )
    activation = torch.sigmoid(c.margin - lack)
    background = (activation * c.head_background).sum(-1, keepdim=True, dtype=torch.float64)
    received = background.to(state.dtype).expand_as(state)
    sent = activation.index_select(-1, rows.head_rule) * c.head_weight
    evidence = received.index_add(-1, rows.head_atom, sent) - c.offset  # (B, M)
    scaled = c.gate * evidence
    gate = bump_gate(scaled) if bump else torch.sigmoid(scaled)
    return state + missing * (gate * torch.sigmoid(evidence))
