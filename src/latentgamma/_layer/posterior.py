"""What an answer says about the inputs: their posterior, and the most likely proofs."""

from __future__ import annotations

import torch
from torch import Tensor

from latentgamma._errors import ModelError, StateError
from latentgamma._layer.probability import ProbabilitySemantics
from latentgamma._probability.ladder import plan_ladder
from latentgamma._probability.proofs import LikelyProof, likely_proofs


def input_posterior(semantics: ProbabilitySemantics, values: Tensor, atom: int) -> Tensor:
    """The probability of each input given that an atom is true, (B, I).

    The probability of the atom is linear in each variable: P = Σ_k p_k c_k + c_0 with c_k its
    derivative, so that P(value k | atom) = p_k (c_k + c_0) / P.

    Args:
        semantics: that of the layer.
        values: the probabilities of the inputs in the order of the variables, (B, I).
        atom: the atom.

    Raises:
        ModelError: if the probability of the atom is not computed exactly.
        StateError: if it is zero.
    """
    ladder = plan_ladder(
        semantics.ladder.program,
        semantics.variables,
        [atom],
        true=semantics.ladder.true,
        budget=semantics.inference.budget,
    )
    if not ladder.exact:
        raise ModelError(
            "a posterior needs an exact probability, and this one would be sampled: raise budget="
        )
    with torch.enable_grad():
        given = values.detach().double().requires_grad_()
        value = ladder.probabilities(given)[:, 0]
        if value.requires_grad:
            (slope,) = torch.autograd.grad(value.sum(), given)
        else:
            slope = torch.zeros_like(given)
    total = value.detach()
    if bool((total <= 0).any()):
        row = int((total <= 0).nonzero()[0, 0])
        raise StateError(
            f"the atom has probability zero in example {row}, or one too small for a posterior"
        )
    p = given.detach()
    facts = len(semantics.variables.facts)
    rest = total[:, None] - p * slope  # of a fact alone
    place = facts
    for group in semantics.variables.groups:
        part = slice(place, place + len(group))
        rest[:, part] = total[:, None] - (p[:, part] * slope[:, part]).sum(1, keepdim=True)
        place += len(group)
    return (p * (slope + rest) / total[:, None]).clamp(0, 1)


def proofs_of(
    semantics: ProbabilitySemantics, values: Tensor, atom: int, most: int, budget: int
) -> tuple[LikelyProof, ...]:
    """The most likely proofs of an atom for one example, (I,) probabilities of the inputs.

    Raises:
        ModelError: if the program has negation, the budget is spent, or a number is not one.
    """
    for name, number in (("most", most), ("budget", budget)):
        if not isinstance(number, int) or number < 0:
            raise ModelError(f"{name} is a whole number from 0 on, not {number!r}")
    program = semantics.ladder.program
    if not program.definite:
        raise ModelError("likely proofs are for programs without negation")
    return likely_proofs(
        program,
        semantics.variables,
        values.detach().double().cpu().numpy(),
        atom,
        true=semantics.ladder.true,
        most=most,
        budget=budget,
    )
