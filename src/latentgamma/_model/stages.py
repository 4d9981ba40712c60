"""The five stages of the operator as five short functions.

The legend, in the paper's letters: η body logits, ψ head logits, b threshold, τ sharpness,
ρ confidence, τ_nor gain, θ offset, β gate, s state, a activation, φ evidence.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from latentgamma._errors import ModelError
from latentgamma._model.rules import AbstractRules, StepParameters

#: The kind of gate: how a step turns evidence into the part of the way to go. β is a parameter.
GateKind: TypeAlias = Literal["sigmoid", "bump"]
#: The gates that certificates, log-odds and compiled kernels know.
KNOWN_GATES = ("sigmoid", "bump")
# Below this, exp(−1/x²) and all its derivatives underflow; as a floor it keeps 1/x² finite.
_UNDERFLOWS = 1e-3


def match(rules: AbstractRules, parameters: StepParameters, state: Tensor) -> Tensor:
    """Stage 1: a_j = σ(τ_j (bs_j − b_j)), how far each rule's body is satisfied. (…, R)."""
    margin = rules.match(state, parameters.weights, parameters.threshold)
    return torch.sigmoid(parameters.sharpness.to(state.dtype) * margin)


def fire(parameters: StepParameters, activation: Tensor) -> Tensor:
    """Stage 3: τ_nor ρ_j a_j, what each rule has to give to its heads. (…, R)."""
    return parameters.amplitude.to(activation.dtype) * activation


def route(rules: AbstractRules, parameters: StepParameters, firing: Tensor) -> Tensor:
    """Stages 2 and 4: φ_i = Σ_j v_ji τ_nor ρ_j a_j − θ_i, the evidence for each atom. (…, M)."""
    return rules.route(firing, parameters.weights) - parameters.offset.to(firing.dtype)


def gate(kind: GateKind, sharpness: Tensor, evidence: Tensor) -> Tensor:
    """Stage 4: g_i Γ_i, the part of the way to one that each atom goes in this step. (…, M)."""
    scaled = sharpness.to(evidence.dtype) * evidence
    opening = bump(scaled) if is_bump(kind) else torch.sigmoid(scaled)
    return opening * torch.sigmoid(evidence)


def is_bump(kind: GateKind) -> bool:
    """Whether the gate is the bump, for code that computes or bounds these two kinds alone.

    Raises:
        ModelError: the gate is of another kind, which the caller would take for a sigmoid.
    """
    if kind not in KNOWN_GATES:
        raise ModelError(f"this is not implemented for the gate {kind!r}")
    return kind == "bump"


def bump(x: Tensor) -> Tensor:
    """exp(−1/x²) where x > 0 and exactly 0 elsewhere, smooth everywhere.

    >>> bump(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.0000, 0.0000, 0.3679])
    """
    inverse = 1 / torch.clamp(x, min=_UNDERFLOWS)
    return torch.where(x > _UNDERFLOWS, torch.exp(-inverse * inverse), torch.zeros_like(x))


def update(state: Tensor, share: Tensor) -> Tensor:
    """Stage 5: s_i ← s_i + (1 − s_i) g_i Γ_i. (…, M)."""
    return state + (1 - state) * share
