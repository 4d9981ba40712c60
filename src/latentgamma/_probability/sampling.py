"""Unbiased estimates of probabilities and of their gradients from sampled worlds.

The value of an output is the mean over S sampled worlds. Its gradient is the leave-one-out
score-function estimator: with f_s the outputs in world s, weighted by the incoming gradient,

    grad = 1 / (S - 1) * sum_s (f_s - mean f) * d log P(world s)

which is unbiased for the gradient of the expectation. Both need closures only, so the program
may have cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentgamma._logic.closures import closures
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Program


def sampled_probabilities(
    program: Program,
    variables: Variables,
    outputs: Sequence[int],
    inputs: Tensor,
    worlds: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return estimates of the probabilities of the outputs, shape (B, outputs), in float64.

    Args:
        program: The program.
        variables: Its random variables.
        outputs: The atoms whose probability is estimated.
        inputs: Probabilities of all input atoms, shape (B, inputs).
        worlds: How many worlds are drawn for each example; at least two.
        generator: The source of randomness.
    """
    drawn = draw_worlds(variables, inputs, worlds, generator)
    return _Estimate.apply(program, variables, outputs, inputs, drawn)  # type: ignore[no-any-return,no-untyped-call]


def draw_worlds(
    variables: Variables, inputs: Tensor, worlds: int, generator: torch.Generator | None
) -> Tensor:
    """Return the truth of the input atoms in sampled worlds, shape (B, worlds, inputs)."""
    p = inputs.detach()
    B = len(p)
    facts = len(variables.facts)
    uniform = torch.rand(B, worlds, facts, generator=generator, dtype=p.dtype, device=p.device)
    parts = [uniform < p[:, None, :facts]]
    place = facts
    for group in variables.groups:
        q = p[:, place : place + len(group)]
        chosen = torch.multinomial(q, worlds, replacement=True, generator=generator)  # (B, worlds)
        parts.append(torch.nn.functional.one_hot(chosen, len(group)).bool())
        place += len(group)
    return torch.cat(parts, 2)


class _Estimate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        variables: Variables,
        outputs: Sequence[int],
        inputs: Tensor,
        drawn: Tensor,
    ) -> Tensor:
        B, S, n = drawn.shape
        facts = np.zeros((B * S, program.M), np.bool_)
        facts[:, variables.atoms] = drawn.reshape(B * S, n).cpu().numpy()
        closed = closures(program, facts)[:, np.asarray(outputs, np.int64)]
        holds = torch.from_numpy(closed).to(inputs.device).reshape(B, S, -1)
        ctx.save_for_backward(inputs, drawn, holds)
        ctx.facts = len(variables.facts)
        return holds.double().mean(1)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        inputs, drawn, holds = ctx.saved_tensors
        S = drawn.shape[1]
        f = (holds.double() * grad_out.double()[:, None, :]).sum(2)  # (B, S)
        weight = (f - f.mean(1, keepdim=True)) / (S - 1)
        p = inputs.double().clamp(1e-12, 1 - 1e-12)
        x = drawn.double()
        score = x / p[:, None, :]
        coins = slice(0, ctx.facts)
        score[:, :, coins] -= (1 - x[:, :, coins]) / (1 - p[:, None, coins])
        grad = torch.einsum("bs,bsn->bn", weight, score)
        return None, None, None, grad.to(inputs.dtype), None
