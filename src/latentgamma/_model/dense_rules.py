"""Rules as full matrices: one body logit and one head logit for every pair of rule and atom."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from latentgamma._errors import ModelError
from latentgamma._model.rules import AbstractRules, Literals, Weights, margin_at_one


@final
class DenseRules(AbstractRules):
    """Every logit its own parameter: R × M of each kind.

    >>> rules = DenseRules(torch.tensor([[-9.0, 9.0]]), torch.tensor([[9.0, 0.0]]))  # bird :- penguin.
    >>> rules.literals().body_atom, rules.literals().head_atom
    (tensor([1]), tensor([0]))

    Args:
        body_logits: η, shape (R, M); above 0 where the atom is in the body of the rule.
        head_logits: ψ, shape (R, M); largest at the heads of the rule.

    Raises:
        ModelError: the two shapes differ, or are not those of matrices.
    """

    def __init__(self, body_logits: Tensor, head_logits: Tensor) -> None:
        super().__init__()
        if body_logits.shape != head_logits.shape or body_logits.dim() != 2:
            raise ModelError(
                f"body and head logits must have one shape (R, M), not "
                f"{tuple(body_logits.shape)} and {tuple(head_logits.shape)}"
            )
        self.R, self.M = body_logits.shape
        self.body_logits = nn.Parameter(body_logits)
        self.head_logits = nn.Parameter(head_logits)

    def read(self) -> Weights:
        body = torch.sigmoid(self.body_logits)
        head = torch.softmax(self.head_logits, dim=-1)
        none = body.new_empty(0)
        return Weights(body, none, body.sum(-1, dtype=torch.float64), head, none)

    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        missing = _product(1 - state, weights.body.T.to(state.dtype))  # (…, R)
        return margin_at_one(weights, threshold, state.dtype) - missing

    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        return _product(firing, weights.head.to(firing.dtype))  # (…, M)

    def literals(self) -> Literals:
        with torch.no_grad():
            head = torch.softmax(self.head_logits, dim=-1)
            body_rule, body_atom = torch.nonzero(self.body_logits > 0, as_tuple=True)
            # Heads share a rule's mass evenly, so each holds at least half of the largest share.
            strong = head > 0.5 * head.amax(-1, keepdim=True) if self.M else head > 0
            head_rule, head_atom = torch.nonzero(strong, as_tuple=True)
        return Literals(body_rule, body_atom, head_rule, head_atom)

    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        return weights.body[rule, atom].double()

    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        return weights.head[rule, atom].double()

    def to_dense(self) -> DenseRules:
        return self


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product in the precision of its dtype, whatever the code around it has set.

    Autocast and TF32 keep 8 or 11 bits of each factor, and no certificate allows for that.
    """
    kind = left.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return _product(left, right)
    if (
        left.dtype is torch.float32
        and not torch.compiler.is_compiling()
        and _has_reduced_precision(kind)
    ):
        return (left.double() @ right.double()).float()
    return left @ right


def _has_reduced_precision(kind: str) -> bool:
    """Whether float32 products on this kind of device are set to use fewer bits."""
    backend = torch.backends.cuda if kind == "cuda" else torch.backends.mkldnn
    return backend.matmul.fp32_precision not in ("none", "ieee")
