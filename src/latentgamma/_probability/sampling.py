"""Unbiased estimates of probabilities and of their gradients from sampled worlds.

The value of an output is the mean over S sampled worlds. Its gradient is the leave-one-out
score-function estimator: with f_s the outputs in world s, weighted by the incoming gradient,

    grad = 1 / (S - 1) * sum_s (f_s - mean f) * d log P(world s)

which is unbiased for the gradient of the expectation. A value of probability zero is in no sampled
world; its gradient is the mean change of f when it is put into every world, and that of a fact of
probability one when it is taken out. All of this needs closures only, so the program may have
cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentgamma._logic.closures import closures
from latentgamma._probability.second_derivative import without_second_derivative
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Program

# Worlds that the gradient closes together.
_WORLDS_AT_ONCE = 1 << 16


def sampled_probabilities(
    program: Program,
    variables: Variables,
    outputs: Sequence[int],
    inputs: Tensor,
    worlds: int,
    generator: torch.Generator | None = None,
    true: Sequence[int] = (),
) -> Tensor:
    """Return estimates of the probabilities of the outputs, shape (B, outputs), in float64.

    Args:
        program: The program.
        variables: Its random variables.
        outputs: The atoms whose probability is estimated.
        inputs: Probabilities of all input atoms, shape (B, inputs).
        worlds: How many worlds are drawn for each example; at least two.
        generator: The source of randomness.
        true: Atoms that are true in every world.
    """
    drawn = draw_worlds(variables, inputs, worlds, generator)
    return _Estimate.apply(program, variables, outputs, true, inputs, drawn)  # type: ignore[no-any-return,no-untyped-call]


def draw_worlds(
    variables: Variables, inputs: Tensor, worlds: int, generator: torch.Generator | None
) -> Tensor:
    """Return the truth of the input atoms in sampled worlds, shape (B, worlds, inputs)."""
    p = inputs.detach().double()  # uniform numbers of fewer digits would be biased
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


def close_worlds(
    program: Program,
    variables: Variables,
    drawn: Tensor,
    outputs: Sequence[int],
    true: Sequence[int],
) -> Tensor:
    """Return which outputs hold in each world, shape (N, outputs), on the device of the worlds.

    Args:
        program: The program.
        variables: Its random variables.
        drawn: The truth of the input atoms in each world, shape (N, inputs).
        outputs: The atoms to read.
        true: Atoms that are true in every world.
    """
    N = len(drawn)
    if not drawn.is_cuda:
        facts = np.zeros((N, program.M), np.bool_)
        facts[:, variables.atoms] = drawn.numpy()
        facts[:, list(true)] = True
        return torch.from_numpy(closures(program, facts)[:, np.asarray(outputs, np.int64)])
    W = -(-N // 64)
    place = torch.arange(64, device=drawn.device)
    bits = drawn.new_zeros(64 * W, drawn.shape[1])
    bits[:N] = drawn
    words = (bits.view(W, 64, -1).long() << place[:, None]).sum(1).T  # (inputs, W)
    planes = torch.zeros(program.M, W, dtype=torch.int64, device=drawn.device)
    planes[torch.from_numpy(variables.atoms.astype(np.int64)).to(drawn.device)] = words
    planes[list(true)] = -1
    closed = closures(program, planes, packed=True)[list(outputs)]  # (outputs, W)
    holds: Tensor = (closed[:, :, None] >> place & 1).bool().flatten(1)[:, :N].T
    return holds


class _Estimate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        variables: Variables,
        outputs: Sequence[int],
        true: Sequence[int],
        inputs: Tensor,
        drawn: Tensor,
    ) -> Tensor:
        B, S, n = drawn.shape
        holds = close_worlds(program, variables, drawn.reshape(B * S, n), outputs, true)
        holds = holds.reshape(B, S, len(outputs))
        ctx.save_for_backward(inputs, drawn, holds)
        ctx.facts = len(variables.facts)
        ctx.variables = variables
        ctx.close = partial(close_worlds, program, variables, outputs=outputs, true=true)
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
        changed = inputs == 0
        changed[:, coins] |= inputs[:, coins] == 1
        if bool(changed.any()):
            pairs = changed.nonzero()  # (pairs, 2): example, input
            size = max(_WORLDS_AT_ONCE // S, 1)
            for part in pairs.split(size):
                grad[part[:, 0], part[:, 1]] = _changes(
                    ctx.close, ctx.variables, drawn, f, grad_out.double(), inputs, part
                )
        grad = grad.to(inputs.dtype)
        return None, None, None, None, without_second_derivative(grad, inputs, grad_out), None


def _changes(
    close: Callable[..., Tensor],
    variables: Variables,
    drawn: Tensor,
    f: Tensor,
    grad_out: Tensor,
    inputs: Tensor,
    pairs: Tensor,
) -> Tensor:
    """The slopes of inputs of probability 0, or of facts of probability 1. (pairs,).

    Args:
        close: The outputs that hold in worlds, from (N, inputs) to (N, outputs).
        variables: The random variables.
        drawn: The sampled worlds, (B, S, inputs).
        f: The weighted outputs in them, (B, S).
        grad_out: The weights of the outputs, (B, outputs).
        inputs: The probabilities of the inputs, (B, inputs).
        pairs: Examples and inputs, (pairs, 2).
    """
    example, place = pairs.unbind(1)
    groups = torch.tensor(_first_and_last(variables), device=drawn.device)  # (inputs, 2)
    column = torch.arange(drawn.shape[2], device=drawn.device)
    first, last = groups[place].unbind(1)
    same = (column >= first[:, None]) & (column < last[:, None])  # (pairs, inputs)
    worlds = drawn[example] & ~same[:, None, :]
    rises = inputs[example, place] == 0
    worlds |= ((column == place[:, None]) & rises[:, None])[:, None, :]
    N, S, n = worlds.shape
    holds = close(worlds.reshape(N * S, n)).reshape(N, S, -1).double()
    other = (holds * grad_out[example][:, None, :]).sum(2)
    change = (other - f[example]).mean(1)
    return torch.where(rises, change, -change)


def _first_and_last(variables: Variables) -> list[tuple[int, int]]:
    """For each input the first place of its variable, and the one after its last."""
    spans = [(v, v + 1) for v in range(len(variables.facts))]
    for group in variables.groups:
        first = len(spans)
        spans += [(first, first + len(group))] * len(group)
    return spans
