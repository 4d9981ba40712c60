"""The values of one group of inputs: checked, flat, and as log-odds where they are given so."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from latentgamma._errors import StateError
from latentgamma._layer.groups import Group
from latentgamma._layer.log_odds import categorical_log_odds, held_log_odds
from latentgamma._model.tracing import values_can_be_read


def group_tolerance(dtype: torch.dtype) -> float:
    """How far from one the values of a group may sum up.

    A softmax over thousands of values misses one by less than 1e-5 in float32, and by up to
    2^-8 in bfloat16.
    """
    return 1e-4 if dtype in (torch.float32, torch.float64) else 1e-2


def flat_values(group: Group, tensor: Tensor, *, from_logits: bool) -> Tensor:
    """The values of a group's tensor, or their log-odds. (B, *shape) -> (B, n).

    Raises:
        StateError: if values are NaN, outside [0, 1], or no distribution.
    """
    _check(group, tensor, from_logits=from_logits)
    if from_logits:
        tensor = held_log_odds(categorical_log_odds(tensor) if group.categorical else tensor)
    return tensor.reshape(tensor.shape[0], len(group.atoms))


def _check(group: Group, tensor: Tensor, *, from_logits: bool) -> None:
    if not tensor.numel() or not values_can_be_read(tensor):
        return
    low, high = (float(end) for end in torch.aminmax(tensor.detach()))
    if math.isnan(low) or math.isnan(high):
        raise StateError(f"the inputs of {group.title} have a NaN among them")
    if from_logits:
        if group.categorical and bool((tensor.detach().amax(-1) == -math.inf).any()):
            raise StateError(
                f"the scores of {group.title} are all −∞ along the last axis of some example; at "
                f"least one must be larger"
            )
        return
    if low < 0 or high > 1:
        raise StateError(
            f"the inputs of {group.title} lie in [0, 1], but these reach from {low:.6g} to "
            f"{high:.6g}; apply a sigmoid, or make the layer with from_logits=True"
        )
    if group.categorical:
        total = tensor.detach().double().sum(-1)
        worst = float((total - 1).abs().max())
        tolerance = group_tolerance(tensor.dtype)
        if worst > tolerance:
            raise StateError(
                f"the inputs of {group.title} sum to one along the last axis to within "
                f"{tolerance:g}, but some miss it by {worst:.3g}; apply a softmax, or make the "
                f"layer with from_logits=True"
            )
