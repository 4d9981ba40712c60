"""Many steps that keep only states, and run each step again in the backward pass.

`torch.utils.checkpoint` is not used: its first call imports `torch._dynamo`, which takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

#: One step: the tensors it computes with, and a state; the next state comes back.
Step: TypeAlias = Callable[[Sequence[Tensor], Tensor], Tensor]


def run_keeping_states(
    step: Step, tensors: Sequence[Tensor], state: Tensor, steps: int, stride: int
) -> tuple[Tensor, ...]:
    """The states after every `stride` steps, and after the last: what the backward pass keeps.

    The states between two of them are computed again when the backward pass comes there.
    """
    if steps == 0:
        return ()
    kept: tuple[Tensor, ...] = _Run.apply(step, _lengths(steps, stride), state, *tensors)  # type: ignore[no-untyped-call]
    return kept


class _Run(torch.autograd.Function):
    # Its inputs are never mapped (see `can_be_rerun`), but other tensors around it may be.
    generate_vmap_rule = True

    @staticmethod
    def forward(
        step: Step, lengths: Sequence[int], state: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        kept = []
        for length in lengths:
            for _ in range(length):
                state = step(tensors, state)
            kept.append(state)
        return tuple(kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.step, ctx.lengths, start, *tensors = inputs
        ctx.save_for_backward(start, *output[:-1], *tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        count = len(ctx.lengths)
        starts, tensors = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        if torch.is_grad_enabled():  # someone wants to differentiate the gradient
            return None, None, *_differentiable(ctx, starts[0], tensors, arriving)
        wanted = [place for place, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
        inputs = [tensor.detach() for tensor in tensors]
        for place in wanted:
            inputs[place].requires_grad_()
        sums: list[Tensor | None] = [None] * len(inputs)
        slope: Tensor | None = None
        for start, length, more in zip(
            reversed(starts), reversed(ctx.lengths), reversed(arriving), strict=True
        ):
            slope = _plus(slope, more)
            if slope is None:
                continue  # nothing has arrived yet
            states = [start.detach()]
            for _ in range(length - 1):
                states.append(ctx.step(inputs, states[-1]).detach())
            while states:
                before = states.pop().requires_grad_()
                with torch.enable_grad():
                    after = ctx.step(inputs, before)
                slope, *parts = torch.autograd.grad(
                    after, [before, *(inputs[i] for i in wanted)], slope, allow_unused=True
                )
                for place, part in zip(wanted, parts, strict=True):
                    sums[place] = _plus(sums[place], part)
        return None, None, slope, *sums


def _differentiable(
    ctx: Any, state: Tensor, tensors: Sequence[Tensor], arriving: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients with a graph of their own, at the price of keeping everything."""
    inputs = [tensor for tensor in (state, *tensors) if tensor.requires_grad]
    ends, slopes = [], []
    for length, slope in zip(ctx.lengths, arriving, strict=True):
        for _ in range(length):
            state = ctx.step(tensors, state)
        if slope is not None:
            ends.append(state)
            slopes.append(slope)
    found = iter(torch.autograd.grad(ends, inputs, slopes, create_graph=True, allow_unused=True))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[2:]]


def _lengths(steps: int, stride: int) -> list[int]:
    """How many steps each segment has.

    >>> _lengths(7, 3)
    [3, 3, 1]
    """
    return [min(stride, steps - start) for start in range(0, steps, stride)]


def _plus(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    if total is None or more is None:
        return more if total is None else total
    return total + more
