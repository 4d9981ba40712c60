"""What a fused kernel is given: the literals as compressed rows, the numbers multiplied out.

A kernel runs all steps on these, keeps the states, and recomputes everything else on the way
back. What lies between the parameters and these numbers stays with autograd.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from latentgamma._model.rules import Literals, StepParameters


class Layout(NamedTuple):
    """The literals of the rules as compressed rows, by rule and by atom.

    `…_place` says where a literal of an atom's row stands in the order by rule; `…_order`
    puts literals from the order of the support into the order by rule.
    """

    M: int
    R: int
    body_order: Tensor | None  # (literals,) or None where the support is in order already
    body_rule: Tensor  # (literals,)
    body_ptr: Tensor  # (R + 1,)
    body_atom: Tensor  # (literals,)
    use_ptr: Tensor  # (M + 1,) the bodies that an atom is in
    use_rule: Tensor  # (literals,)
    use_place: Tensor  # (literals,)
    head_order: Tensor | None  # (head literals,)
    head_rule: Tensor  # (head literals,)
    head_ptr: Tensor  # (R + 1,)
    head_atom: Tensor  # (head literals,)
    into_ptr: Tensor  # (M + 1,) the rules that an atom is a head of
    into_rule: Tensor  # (head literals,)
    into_place: Tensor  # (head literals,)


class Flat(NamedTuple):
    """The numbers of a step, multiplied out, in the dtype of the states.

    With m = 1 − s, a step is a_j = σ(reach_j − reach_off_j Σ_i m_i − Σ_b reach_on_jb m_b),
    φ_i = Σ_j send_off_j a_j + Σ_j send_on_ji a_j − offset_i, and the gate and the update as
    they stand. The two totals over all atoms and all rules are taken in float64.
    """

    reach: Tensor  # (R,) τ_j (Σ_i u_ji − b_j)
    reach_off: Tensor  # (R,) τ_j times the background of the body
    reach_on: Tensor  # (literals,) τ_j times the weights over the background, by rule
    send_off: Tensor  # (R,) the amplitude times the background of the head
    send_on: Tensor  # (head literals,) the amplitude times the weights over it, by rule
    offset: Tensor  # (M,) θ
    gate: Tensor  # () β


class Kernel(Protocol):
    """Runs T steps on a batch (B, M), and back."""

    def forward(
        self, layout: Layout, flat: Flat, state: Tensor, steps: int, *, bump: bool, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The last state (B, M); and, to keep, all T + 1 states in an order of its own."""

    def trajectory(self, layout: Layout, kept: Tensor, batch: int) -> Tensor:
        """All states that `forward` kept. (T + 1, B, M)."""

    def backward(
        self,
        layout: Layout,
        flat: Flat,
        kept: Tensor,
        given: Tensor,
        *,
        bump: bool,
        learn: bool,
    ) -> tuple[Tensor, Flat | None]:
        """The gradient of the first state (B, M); and, to learn, of the numbers.

        `given` (1, B, M) is the gradient of the last state, or (T + 1, B, M) of every one.
        """


# -------------------------------------------------------------------- the layout


def make_layout(support: Literals, *, M: int, R: int) -> Layout:
    """The literals of a support as compressed rows."""
    largest = max(M, R, len(support.body_rule), len(support.head_rule))
    kind = torch.int32 if largest < 2**31 - 1 else torch.int64
    body = _both_ways(support.body_rule, support.body_atom, M, R, kind)
    head = _both_ways(support.head_rule, support.head_atom, M, R, kind)
    return Layout(M, R, *body, *head)


def _both_ways(
    rule: Tensor, atom: Tensor, M: int, R: int, kind: torch.dtype
) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    order: Tensor | None = None
    if not bool((rule[1:] >= rule[:-1]).all()):
        order = torch.argsort(rule, stable=True)
        rule, atom = rule[order], atom[order]
    place = torch.argsort(atom, stable=True)
    rows = rule.to(kind), _offsets(rule, R, kind), atom.to(kind)
    return order, *rows, _offsets(atom, M, kind), rule[place].to(kind), place.to(kind)


def _offsets(index: Tensor, count: int, kind: torch.dtype) -> Tensor:
    ends = torch.bincount(index, minlength=count).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends]).to(kind)


# -------------------------------------------------------------------- the numbers


def flatten(layout: Layout, numbers: StepParameters, dtype: torch.dtype) -> Flat:
    """The numbers of a step, multiplied out, differentiable."""
    weights = numbers.weights
    sharpness, amplitude = numbers.sharpness.to(dtype), numbers.amplitude.to(dtype)
    body = _in_order(weights.body.to(dtype), layout.body_order)
    head = _in_order(weights.head.to(dtype), layout.head_order)
    slack = weights.body_total - numbers.threshold.double()  # (R,)
    return Flat(
        reach=(numbers.sharpness.double() * slack).to(dtype),
        reach_off=sharpness * weights.body_off.to(dtype),
        reach_on=sharpness.index_select(0, layout.body_rule) * body,
        send_off=amplitude * weights.head_off.to(dtype),
        send_on=amplitude.index_select(0, layout.head_rule) * head,
        offset=numbers.offset.to(dtype),
        gate=numbers.gate.to(dtype),
    )


def _in_order(values: Tensor, order: Tensor | None) -> Tensor:
    return values if order is None else values.index_select(0, order)


def plain_step(layout: Layout, flat: Flat, state: Tensor, *, bump: bool) -> Tensor:
    """One step from the multiplied numbers. (B, M)."""
    missing = 1 - state
    total = missing.sum(-1, keepdim=True, dtype=torch.float64)
    lack = (total * flat.reach_off.double()).to(state.dtype)  # (B, R)
    lack = lack.index_add(
        -1, layout.body_rule, missing.index_select(-1, layout.body_atom) * flat.reach_on
    )
    activation = torch.sigmoid(flat.reach - lack)
    stray = (activation * flat.send_off).sum(-1, keepdim=True, dtype=torch.float64)
    received = stray.to(state.dtype).expand_as(state)
    sent = activation.index_select(-1, layout.head_rule) * flat.send_on
    evidence = received.index_add(-1, layout.head_atom, sent) - flat.offset  # (B, M)
    scaled = flat.gate * evidence
    if bump:
        safe = torch.clamp(scaled, min=1e-3)
        gate = torch.where(scaled > 1e-3, torch.exp(-1 / (safe * safe)), torch.zeros_like(scaled))
    else:
        gate = torch.sigmoid(scaled)
    return state + missing * (gate * torch.sigmoid(evidence))
