"""The slope of the proof gradient: one step in min/max logic."""

from __future__ import annotations

import torch
from torch import Tensor

from latentgamma._model.rules import Literals, take


def min_max_step(state: Tensor, literals: Literals, R: int) -> Tensor:
    """One step in min/max logic: an atom is as true as its best rule, a rule as its weakest atom.

    Its value is not used, only its slope: an atom that is already true passes its gradient on
    to itself, another one to the weakest body atoms of its best rules, ties in equal shares.
    So what leaves an atom arrives undiminished at the facts of its proof. (…, M).
    """
    batch = state.shape[:-1]
    # Start values that no atom can tie with: a tie would take a share of the gradient.
    body = literals.body_rule.expand(*batch, -1)
    rules = state.new_full((*batch, R), 2.0).scatter_reduce(
        -1, body, take(state, literals.body_atom), "amin"
    )
    rules = torch.clamp(rules, max=1.0)  # an empty body is true
    head = literals.head_atom.expand(*batch, -1)
    derived = state.new_full(state.shape, -1.0).scatter_reduce(
        -1, head, take(rules, literals.head_rule), "amax"
    )
    return torch.where(state > 0.5, state, torch.maximum(state, derived))
