"""T steps of the sparse form through a kernel, as functions that autograd can differentiate."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from latentgamma._model.kernels.coefficients import Coefficients, Parameters, plain_step
from latentgamma._model.kernels.cuda_graphs import Function, RecordedRuns
from latentgamma._model.kernels.interface import Kernel
from latentgamma._model.kernels.literal_rows import LiteralRows

#: From the parameters and the dtype of the states to the coefficients, in plain torch.
ReadPlainly: TypeAlias = Callable[[Parameters, torch.dtype], Coefficients]


@dataclass(frozen=True)
class FusedSteps:
    """How to run T steps: everything about them that has no gradient."""

    kernel: Kernel
    rows: LiteralRows
    read_plainly: ReadPlainly
    steps: int
    bump: bool
    #: Whether the states within a segment of about √T steps are recomputed in the backward pass.
    sqrt: bool = False
    #: How many of the steps each example takes (B,); None for all of them.
    counts: Tensor | None = None
    #: Where runs on a GPU are recorded, and what they depend on besides tensors and steps.
    recorded: RecordedRuns | None = None
    key: Hashable = None

    def final(self, state: Tensor, parameters: Parameters | None, prepared: Any = None) -> Tensor:
        """The state after all steps. (…, M).

        `prepared` are coefficients that the kernel has read before; then `parameters` may be None.
        """
        if state.dim() != 2:
            batch = state.reshape(math.prod(state.shape[:-1]), self.rows.M)
            return self.final(batch, parameters, prepared).reshape(state.shape)
        if not torch.is_grad_enabled():  # no backward pass will come, so nothing has to be kept
            if self.recorded is not None:
                return self.forward_recorded(state, parameters, prepared, keep=False)[0]
            if prepared is None:
                prepared = self.read(parameters, state.dtype)
            return self.forward(state, prepared, keep=False)[0]
        return _Final.apply(self, prepared, state, *(parameters or ()))  # type: ignore[no-any-return,no-untyped-call]

    def trajectory(
        self, state: Tensor, parameters: Parameters | None, prepared: Any = None
    ) -> Tensor:
        """Every state of the run, the first one included. (T + 1, …, M)."""
        batch = state.reshape(math.prod(state.shape[:-1]), self.rows.M)
        states: Tensor = _Every.apply(self, prepared, batch, *(parameters or ()))  # type: ignore[no-untyped-call]
        return states.reshape(self.steps + 1, *state.shape)

    def read(self, parameters: Parameters | None, dtype: torch.dtype) -> Any:
        """The coefficients in the kernel's own form."""
        if parameters is None:
            raise RuntimeError("neither parameters nor prepared coefficients were given")
        return self.kernel.read(self.rows, parameters, dtype, bump=self.bump)

    # ------------------------------------------------------------ inside autograd

    def forward(self, state: Tensor, prepared: Any, *, keep: bool) -> tuple[Tensor, list[Tensor]]:
        """The last state, and what is kept: all states, or the first state of each segment."""
        if not (keep and self.sqrt):
            last, kept = self.kernel.forward(
                self.rows, prepared, state, self.steps, counts=self.counts, keep=keep
            )
            return last, [] if kept is None else [kept]
        starts = []
        for first, length in self._segments():
            starts.append(state)
            counts = self._counts_of(first, length)
            state, _ = self.kernel.forward(
                self.rows, prepared, state, length, counts=counts, keep=False
            )
        return state, starts

    def backward(
        self, prepared: Any, kept: list[Tensor], grad: Tensor, *, learn: bool
    ) -> tuple[Tensor, Coefficients | None]:
        """The gradients of the state and of the coefficients."""
        if not self.sqrt:
            return self.kernel.backward(
                self.rows, prepared, kept[0], grad, counts=self.counts, learn=learn
            )
        sums: Coefficients | None = None
        for start, (first, length) in zip(reversed(kept), reversed(self._segments()), strict=True):
            counts = self._counts_of(first, length)
            _, states = self.kernel.forward(
                self.rows, prepared, start, length, counts=counts, keep=True
            )
            assert states is not None  # keep=True
            grad_start, part = self.kernel.backward(
                self.rows, prepared, states, grad, counts=counts, learn=learn
            )
            grad = grad_start[None]
            if part is not None:
                sums = part if sums is None else Coefficients(*map(torch.add, sums, part))
        return grad[0], sums

    def forward_recorded(
        self, state: Tensor, parameters: Parameters | None, prepared: Any, *, keep: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """As `forward`, from a recorded graph, which reads the parameters where it has to."""

        def function(state: Tensor, *counts: Tensor) -> tuple[Tensor, ...]:
            read = self.read(parameters, state.dtype) if prepared is None else prepared
            last, kept = replace(self, counts=_only(counts)).forward(state, read, keep=keep)
            return last, *kept

        last, *kept = self._run_recorded(("forward", keep), function, state)
        return last, kept

    def backward_recorded(
        self, parameters: Parameters, kept: list[Tensor], grad: Tensor, *, learn: bool
    ) -> tuple[Tensor, ...]:
        """The gradients of the state and, to learn, of the parameters, from a recorded graph."""

        def function(grad: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
            states, counts = list(others[: len(kept)]), others[len(kept) :]
            read, run = self.read(parameters, grad.dtype), replace(self, counts=_only(counts))
            grad_state, sums = run.backward(read, states, grad, learn=learn)
            if sums is None:
                return (grad_state,)
            by_parameter = self.kernel.read_backward(self.rows, parameters, sums)
            # As one tensor: each result costs the host a launch.
            return grad_state, torch.cat([x.reshape(-1) for x in by_parameter])

        grad_state, *joined = self._run_recorded(("backward", learn), function, grad, *kept)
        if not joined:
            return (grad_state,)
        parts = torch.split(joined[0], [x.numel() for x in parameters])
        # All but two parameters are vectors already.
        same = (p if x.dim() == 1 else p.view_as(x) for p, x in zip(parts, parameters, strict=True))
        return grad_state, *same

    def _run_recorded(
        self, kind: Hashable, function: Function, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """function(*inputs), with the counts as a last input where there are any."""
        assert self.recorded is not None
        if self.counts is not None:
            inputs = *inputs, self.counts
        return self.recorded.run((kind, self.key, self.steps, self.sqrt), function, inputs)

    def _segments(self) -> list[tuple[int, int]]:
        """The first step and the length of each segment of about √T steps."""
        length = math.isqrt(max(self.steps - 1, 0)) + 1
        return [(t, min(length, self.steps - t)) for t in range(0, self.steps, length)]

    def _counts_of(self, first: int, length: int) -> Tensor | None:
        return None if self.counts is None else (self.counts - first).clamp(0, length)

    def run_plainly(self, state: Tensor, coefficients: Coefficients) -> list[Tensor]:
        """Every state of the run in plain torch, which can be differentiated again and again."""
        states = [state]
        for t in range(self.steps):
            after = plain_step(self.rows, coefficients, state, bump=self.bump)
            if self.counts is not None:
                after = torch.where((t < self.counts)[:, None], after, state)
            state = after
            states.append(state)
        return states


def _only(tensors: tuple[Tensor, ...]) -> Tensor | None:
    """The one tensor, or None."""
    return tensors[0] if tensors else None


class _Final(torch.autograd.Function):
    """The last state of a run."""

    @staticmethod
    def forward(
        ctx: Any, run: FusedSteps, prepared: Any, state: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.run, ctx.prepared = run, prepared
        keep = any(ctx.needs_input_grad)
        if run.recorded is not None and prepared is None:
            last, kept = run.forward_recorded(state, Parameters(*parameters), None, keep=keep)
        else:
            if prepared is None:
                ctx.prepared = run.read(Parameters(*parameters), state.dtype)
            last, kept = run.forward(state, ctx.prepared, keep=keep)
        ctx.kept = len(kept)
        ctx.save_for_backward(state, *kept, *parameters)
        return last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grads[0][None])


class _Every(torch.autograd.Function):
    """All states of a run."""

    @staticmethod
    def forward(
        ctx: Any, run: FusedSteps, prepared: Any, state: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.run, ctx.prepared, ctx.kept = run, prepared, 1
        if prepared is None:
            ctx.prepared = run.read(Parameters(*parameters), state.dtype)
        last, kept = run.kernel.forward(
            run.rows, ctx.prepared, state, run.steps, counts=run.counts, keep=True
        )
        assert kept is not None  # keep=True
        ctx.save_for_backward(state, kept, *parameters)
        return run.kernel.trajectory(run.rows, kept, len(last))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grads[0])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of (run, prepared, state, *parameters); `grad` is (1 or T + 1, B, M)."""
    run: FusedSteps = ctx.run
    state, *rest = ctx.saved_tensors
    kept, parameters = rest[: ctx.kept], rest[ctx.kept :]
    wanted = ctx.needs_input_grad[2:]
    if torch.is_grad_enabled():  # create_graph=True: this gradient is to be differentiated
        return None, None, *_differentiable(run, state, parameters, grad, wanted)
    learn = any(wanted[1:])
    grads: list[Tensor | None] = [None] * len(wanted)
    if ctx.prepared is None:
        found = run.backward_recorded(Parameters(*parameters), kept, grad, learn=learn)
        grads[: len(found)] = found
    else:
        grads[0], sums = run.backward(ctx.prepared, kept, grad, learn=learn)
        if sums is not None:
            grads[1:] = run.kernel.read_backward(run.rows, Parameters(*parameters), sums)
    return None, None, *(g if needed else None for g, needed in zip(grads, wanted, strict=True))


def _differentiable(
    run: FusedSteps, state: Tensor, parameters: list[Tensor], grad: Tensor, wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients with a graph of their own, from plain torch."""
    if parameters:
        coefficients = run.read_plainly(Parameters(*parameters), state.dtype)
    else:
        raise RuntimeError(
            "the gradient of a model inside `fixed()` cannot be differentiated again; leave fixed()"
        )
    reached = run.run_plainly(state, coefficients)[-len(grad) :]
    inputs = [x for x, needed in zip((state, *parameters), wanted, strict=True) if needed]
    found = iter(
        torch.autograd.grad(reached, inputs, list(grad), create_graph=True, allow_unused=True)
    )
    return [next(found) if needed else None for needed in wanted]
