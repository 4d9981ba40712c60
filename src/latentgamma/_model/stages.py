"""The five stages of the operator as five short functions, and the slope of the proof gradient.

The legend, in the paper's letters: η body logits, ψ head logits, b threshold, τ sharpness,
ρ confidence, τ_nor gain, θ offset, β gate, s state, a activation, φ evidence.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from latentgamma._model.rules import AbstractRules, Numbers, Support, take

Gate: TypeAlias = Literal["sigmoid", "bump"]


def match(rules: AbstractRules, numbers: Numbers, state: Tensor) -> Tensor:
    """Stage 1: a_j = σ(τ_j (bs_j − b_j)), how far each rule's body is satisfied. (…, R)."""
    margin = rules.match(state, numbers.weights, numbers.threshold)
    return torch.sigmoid(numbers.sharpness.to(state.dtype) * margin)


def fire(numbers: Numbers, activation: Tensor) -> Tensor:
    """Stage 3: τ_nor ρ_j a_j, what each rule has to give to its heads. (…, R)."""
    return numbers.amplitude.to(activation.dtype) * activation


def route(rules: AbstractRules, numbers: Numbers, firing: Tensor) -> Tensor:
    """Stages 2 and 4: φ_i = Σ_j v_ji τ_nor ρ_j a_j − θ_i, the evidence for each atom. (…, M)."""
    return rules.route(firing, numbers.weights) - numbers.offset.to(firing.dtype)


def gate(kind: Gate, sharpness: Tensor, evidence: Tensor) -> Tensor:
    """Stage 4: g_i Γ_i, the part of the way to one that each atom goes in this step. (…, M)."""
    scaled = sharpness.to(evidence.dtype) * evidence
    if kind == "sigmoid":
        return torch.sigmoid(scaled) * torch.sigmoid(evidence)
    return bump(scaled) * torch.sigmoid(evidence)


def bump(x: Tensor) -> Tensor:
    """exp(−1/x²) where x > 0 and exactly 0 elsewhere, smooth everywhere.

    >>> bump(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.0000, 0.0000, 0.3679])
    """
    # Below 1e-3 the value and every derivative underflow; a floor keeps 1/x² finite there.
    inverse = 1 / torch.clamp(x, min=1e-3)
    return torch.where(x > 1e-3, torch.exp(-inverse * inverse), torch.zeros_like(x))


def update(state: Tensor, share: Tensor) -> Tensor:
    """Stage 5: s_i ← s_i + (1 − s_i) g_i Γ_i. (…, M)."""
    return state + (1 - state) * share


# -------------------------------------------------------------------- the proof gradient


def weakest_link(state: Tensor, support: Support, R: int) -> Tensor:
    """One step in min/max logic: an atom is as true as its best rule, a rule as its weakest atom.

    Its value is not used, only its slope: an atom that is already true passes its gradient on
    to itself, another one to the weakest body atoms of its best rules, ties in equal shares.
    So what leaves an atom arrives undiminished at the facts of its proof. (…, M).
    """
    batch = state.shape[:-1]
    # Start values that no atom can tie with: a tie would take a share of the gradient.
    body = support.body_rule.expand(*batch, -1)
    rules = state.new_full((*batch, R), 2.0).scatter_reduce(
        -1, body, take(state, support.body_atom), "amin"
    )
    rules = torch.clamp(rules, max=1.0)  # an empty body is true
    head = support.head_atom.expand(*batch, -1)
    derived = state.new_full(state.shape, -1.0).scatter_reduce(
        -1, head, take(rules, support.head_rule), "amax"
    )
    return torch.where(state > 0.5, state, torch.maximum(state, derived))
