"""T steps of the sparse form in one go, through whichever kernel runs here.

`cpu_launch` and `cuda_launch` are such kernels; another device brings its own module with the three
functions of `_flat.Kernel`, and a line in `kernel_for`.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from latentgamma._model.kernels.inputs import Flat, Kernel, Layout, flatten, make_layout, plain_step
from latentgamma._model.rules import AbstractRules, StepParameters
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._model.tracing import has_memory, is_constant

#: Programs with fewer atoms, rules and literals than this do without compiled code, and without
#: the second that loading it takes. The size of a batch has no say in it: an example's value
#: must not depend on the others of its batch.
_LEAST_SIZE = 128


#: Where numbers that stay as they are may be kept, multiplied out for each dtype of states.
Held: TypeAlias = "dict[torch.dtype, Flat] | None"


@dataclass(frozen=True)
class Run:
    """How to run: everything about T steps that has no gradient."""

    kernel: Kernel
    layout: Layout
    steps: int
    bump: bool
    #: Whether the states within a segment of about √T steps are recomputed on the way back.
    sqrt: bool = False

    def __call__(self, numbers: StepParameters, state: Tensor, held: Held = None) -> Tensor:
        """The state after all steps. (…, M)."""
        flat = self._flattened(numbers, state.dtype, held)
        batch = state.reshape(math.prod(state.shape[:-1]), self.layout.M)
        if not torch.is_grad_enabled():  # nothing will come back, so nothing has to be kept
            return self.final(batch, flat, keep=False)[0].reshape(state.shape)
        final: Tensor = _Final.apply(self, batch, *flat)  # type: ignore[no-untyped-call]
        return final.reshape(state.shape)

    def trajectory(self, numbers: StepParameters, state: Tensor, held: Held = None) -> Tensor:
        """Every state of the run, the first one included. (T + 1, …, M)."""
        flat = self._flattened(numbers, state.dtype, held)
        batch = state.reshape(math.prod(state.shape[:-1]), self.layout.M)
        states: Tensor = _Every.apply(self, batch, *flat)  # type: ignore[no-untyped-call]
        return states.reshape(self.steps + 1, *state.shape)

    def _flattened(self, numbers: StepParameters, dtype: torch.dtype, held: Held) -> Flat:
        if held is None:
            return flatten(self.layout, numbers, dtype)
        if dtype not in held:
            with torch.no_grad():
                held[dtype] = flatten(self.layout, numbers, dtype)
        return held[dtype]

    # ------------------------------------------------------------ inside autograd

    def final(self, state: Tensor, flat: Flat, *, keep: bool) -> tuple[Tensor, list[Tensor]]:
        """The last state, and what is kept: all states, or the states between segments."""
        if not (keep and self.sqrt):
            last, kept = self.kernel.forward(
                self.layout, flat, state, self.steps, bump=self.bump, keep=keep
            )
            return last, [] if kept is None else [kept]
        starts = []
        for count in self._segments():
            starts.append(state)
            state, _ = self.kernel.forward(
                self.layout, flat, state, count, bump=self.bump, keep=False
            )
        return state, starts

    def back(
        self, flat: Flat, kept: list[Tensor], given: Tensor, *, learn: bool
    ) -> tuple[Tensor, Flat | None]:
        """The gradients of the state and of the numbers."""
        options = {"bump": self.bump, "learn": learn}
        if not self.sqrt:
            return self.kernel.backward(self.layout, flat, kept[0], given, **options)
        sums: Flat | None = None
        for start, count in zip(reversed(kept), reversed(self._segments()), strict=True):
            _, states = self.kernel.forward(
                self.layout, flat, start, count, bump=self.bump, keep=True
            )
            if states is None:
                raise RuntimeError("the kernel kept no states though it was asked to")
            back, part = self.kernel.backward(self.layout, flat, states, given, **options)
            given = back[None]
            if part is not None:
                sums = part if sums is None else Flat(*map(torch.add, sums, part))
        return given[0], sums

    def _segments(self) -> list[int]:
        length = math.isqrt(max(self.steps - 1, 0)) + 1
        starts = range(0, self.steps, length)
        return [min(length, self.steps - start) for start in starts]

    def plainly(self, state: Tensor, flat: Flat) -> list[Tensor]:
        """Every state of the run in plain torch, which can be differentiated again and again."""
        states = [state]
        for _ in range(self.steps):
            state = plain_step(self.layout, flat, state, bump=self.bump)
            states.append(state)
        return states


# -------------------------------------------------------------------- autograd


class _Final(torch.autograd.Function):
    """The last state of a run."""

    @staticmethod
    def forward(ctx: Any, run: Run, state: Tensor, *flat: Tensor) -> Tensor:
        numbers = Flat(*flat)
        last, kept = run.final(state, numbers, keep=any(ctx.needs_input_grad))
        ctx.run = run
        ctx.save_for_backward(state, *flat, *kept)
        return last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grads[0][None])


class _Every(torch.autograd.Function):
    """All states of a run."""

    @staticmethod
    def forward(ctx: Any, run: Run, state: Tensor, *flat: Tensor) -> Tensor:
        last, kept = run.kernel.forward(
            run.layout, Flat(*flat), state, run.steps, bump=run.bump, keep=True
        )
        if kept is None:
            raise RuntimeError("the kernel kept no states though it was asked to")
        ctx.run = run
        ctx.save_for_backward(state, *flat, kept)
        return run.kernel.trajectory(run.layout, kept, len(last))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grads[0])


def _backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of (run, state, *flat); `given` is (1, B, M) or (T + 1, B, M)."""
    run: Run = ctx.run
    state, *rest = ctx.saved_tensors
    flat, kept = Flat(*rest[: len(Flat._fields)]), rest[len(Flat._fields) :]
    wanted = ctx.needs_input_grad[1:]
    if torch.is_grad_enabled():  # create_graph=True: this gradient is to be differentiated
        states = run.plainly(state, flat)
        reached = states[-len(given) :]
        inputs = [x for x, needed in zip((state, *flat), wanted, strict=True) if needed]
        found = iter(
            torch.autograd.grad(reached, inputs, list(given), create_graph=True, allow_unused=True)
        )
        return (None, *(next(found) if needed else None for needed in wanted))
    back, sums = run.back(flat, kept, given, learn=any(wanted[1:]))
    grads: list[Tensor | None] = [back]
    grads += (
        [None] * len(flat)
        if sums is None
        else [grad.to(x.dtype) for grad, x in zip(sums, flat, strict=True)]
    )
    return (None, *(grad if needed else None for grad, needed in zip(grads, wanted, strict=True)))


# -------------------------------------------------------------------- which kernel


def kernel_for(rules: AbstractRules, state: Tensor, tensors: Sequence[Tensor]) -> Kernel | None:
    """The kernel that runs these rules on this state, or None where plain torch has to.

    `tensors` are the numbers of a step. What is traced, mapped or carries a forward derivative
    stays with plain torch, and so do sixteen-bit states.
    """
    if not isinstance(rules, SparseRules) or torch.compiler.is_compiling():
        return None
    if rules.M + rules.R + len(rules.body_rule) < _LEAST_SIZE:
        return None
    if state.dtype not in (torch.float32, torch.float64) or _is_traced():
        return None
    if not all(has_memory(t) and is_constant(t) for t in (state, *tensors)):
        return None
    kinds = {t.device.type for t in (state, *tensors, rules.body_rule)}
    if kinds == {"cpu"}:
        return _cpu_kernel()
    return _cuda_kernel() if kinds == {"cuda"} and state.dtype == torch.float32 else None


def _is_traced() -> bool:
    return bool(torch._C._get_tracing_state())


@cache
def _cpu_kernel() -> Kernel | None:
    if importlib.util.find_spec("numba") is None:
        return None
    from latentgamma._model.kernels import cpu_launch

    return cpu_launch


@cache
def _cuda_kernel() -> Kernel | None:
    if importlib.util.find_spec("triton") is None:
        return None
    from latentgamma._model.kernels import cuda_launch

    return cuda_launch


_LAYOUTS: WeakKeyDictionary[SparseRules, tuple[object, Layout]] = WeakKeyDictionary()


def layout_of(rules: SparseRules) -> Layout:
    """The literals of these rules as compressed rows, sorted once and kept while they stay."""
    support = rules.literals()
    version = tuple((x.data_ptr(), x._version, len(x)) for x in support)
    held = _LAYOUTS.get(rules)
    if held is None or held[0] != version:
        held = version, make_layout(support, M=rules.M, R=rules.R)
        _LAYOUTS[rules] = held
    return held[1]
