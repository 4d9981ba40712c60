"""Runs of several steps: through a kernel where there is one, otherwise in plain torch."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from latentgamma._model.constrained_parameters import above_one, open_unit, positive
from latentgamma._model.fixed_parameters import FixedParameters
from latentgamma._model.kernels.autograd import FusedSteps
from latentgamma._model.kernels.coefficients import Coefficients, Parameters, make_coefficients
from latentgamma._model.kernels.cuda_graphs import MOST_VALUES, RecordedRuns
from latentgamma._model.kernels.literal_rows import LiteralRows, literal_rows_of
from latentgamma._model.kernels.selection import kernel_for
from latentgamma._model.recompute import run_keeping_states
from latentgamma._model.rules import AbstractRules, StepParameters, Weights
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._model.stages import (
    KNOWN_GATES,
    GateKind,
    fire,
    gate,
    is_bump,
    match,
    route,
    update,
)
from latentgamma._model.tracing import can_be_rerun

#: What the forward pass keeps for the backward: the states, about √T of them, or everything.
Memory: TypeAlias = Literal["states", "sqrt", "all"]
MEMORIES: tuple[str, ...] = get_args(Memory)


def read_step_parameters(rules: AbstractRules, weights: Weights, raw: Any) -> StepParameters:
    """The parameters as a step uses them, from a model's raw ones, or from `Parameters`."""
    gain, gate = rules.shared(positive(raw.gain_raw), above_one(raw.gate_raw))
    return StepParameters(
        weights,
        raw.threshold,
        positive(raw.sharpness_raw),
        gain * open_unit(raw.confidence_raw),
        raw.offset,
        gate,
    )


@dataclass(frozen=True)
class Runner:
    """The rules and the parameters of a run.

    `model` has the raw parameters as attributes; they are not read where `fixed` is given.
    On a GPU, runs are recorded in `recorded_runs`, if that is given.
    """

    rules: AbstractRules
    gate_kind: GateKind
    model: Any
    fixed: FixedParameters | None
    use_kernels: bool
    recorded_runs: RecordedRuns | None

    def step_parameters(self) -> StepParameters:
        """The parameters as a step uses them, differentiable unless they are fixed."""
        if self.fixed is not None:
            return self.fixed.step_parameters
        return read_step_parameters(self.rules, self.rules.read(), self.model)

    def raw_parameters(self) -> Parameters | None:
        """The parameters as they are stored; None for a form that no kernel runs."""
        if self.fixed is not None:
            return self.fixed.parameters
        if not isinstance(self.rules, SparseRules):
            return None
        rules, model = self.rules, self.model
        return Parameters(
            rules.body_logits,
            rules.body_background,
            rules.head_logits,
            rules.head_background,
            model.threshold,
            model.sharpness_raw,
            model.confidence_raw,
            model.gain_raw,
            model.offset,
            model.gate_raw,
        )

    # ------------------------------------------------------------ one step

    def step(self, parameters: StepParameters, state: Tensor) -> Tensor:
        """The state after one step in plain torch. (…, M)."""
        # Sixteen-bit states are stored as such and computed with in float32.
        wide = state.to(torch.promote_types(state.dtype, torch.float32))
        share = gate(self.gate_kind, parameters.gate, self.evidence(parameters, wide))
        return update(wide, share).to(state.dtype)

    def evidence(self, parameters: StepParameters, state: Tensor) -> Tensor:
        """φ, the evidence for each atom. (…, M)."""
        return route(self.rules, parameters, fire(parameters, match(self.rules, parameters, state)))

    # ------------------------------------------------------------ several steps

    def final(
        self, state: Tensor, steps: int, memory: Memory, counts: Tensor | None = None
    ) -> Tensor:
        """The state after `steps` applications, or after as many as `counts` (B,) says. (…, M)."""
        raw = self._kernel_parameters(steps, memory)
        fused = None if raw is None else self._fused(raw, state, steps, memory, counts)
        if fused is not None:
            return fused.final(state, *self._inputs(raw, fused, state.dtype))
        if counts is not None:
            return self._final_of_counts(state, counts, memory)
        # Not a list of them: without gradients only the last state has to live.
        for after in self._plain_states(state, steps, memory):
            state = after
        return state

    def states(self, state: Tensor, steps: int, memory: Memory) -> Tensor:
        """Every state of the run, the first one included. (T + 1, …, M)."""
        # Every state is part of the answer, so there is nothing for √T to save.
        kept: Memory = "all" if memory == "all" else "states"
        raw = self._kernel_parameters(steps, kept)
        fused = None if raw is None else self._fused(raw, state, steps, kept)
        if fused is not None:
            return fused.trajectory(state, *self._inputs(raw, fused, state.dtype))
        return torch.stack([state, *self._plain_states(state, steps, kept)])

    def _final_of_counts(self, state: Tensor, counts: Tensor, memory: Memory) -> Tensor:
        """The state (B, M) after as many applications as `counts` (B,) says, in plain torch."""
        done = 0
        for count in torch.unique(counts).tolist():  # sorted
            if count == done:
                continue
            running = torch.nonzero(counts >= count).flatten()
            after = self.final(state.index_select(0, running), count - done, memory)
            state = state.index_copy(0, running, after)
            done = count
        return state

    def _plain_states(self, state: Tensor, steps: int, memory: Memory) -> Iterator[Tensor]:
        """The states after each step; in "sqrt" mode those after each of about √T segments."""
        parameters = self.step_parameters()
        if state.is_cuda:  # as the kernels do: an exception would have to wait for the device
            state = torch.where((state >= 0) & (state <= 1), state, torch.nan)
        if memory == "all" or not can_be_rerun(state, *parameters.tensors()):
            for _ in range(steps):
                state = self.step(parameters, state)
                yield state
            return

        def step(tensors: Sequence[Tensor], before: Tensor) -> Tensor:
            return self.step(parameters.with_tensors(tensors), before)

        stride = 1 if memory == "states" else math.isqrt(max(0, steps - 1)) + 1
        yield from run_keeping_states(step, parameters.tensors(), state, steps, stride)

    # ------------------------------------------------------------ kernels

    def _kernel_parameters(self, steps: int, memory: Memory) -> Parameters | None:
        """The parameters for a kernel, or None where plain torch has to run the steps."""
        if not self.use_kernels or memory == "all" or steps == 0:
            return None
        return self.raw_parameters() if self.gate_kind in KNOWN_GATES else None

    def _fused(
        self,
        raw: Parameters,
        state: Tensor,
        steps: int,
        memory: Memory,
        counts: Tensor | None = None,
    ) -> FusedSteps | None:
        """How to run these steps as one kernel, or None where plain torch has to."""
        rules = self.rules
        kernel = kernel_for(rules, state, raw)
        if kernel is None or not isinstance(rules, SparseRules):
            return None
        bump = is_bump(self.gate_kind)
        rows = literal_rows_of(rules)

        def read_plainly(raw: Parameters, dtype: torch.dtype) -> Coefficients:
            read = read_step_parameters(rules, rules.weights_of(*raw[:4]), raw)
            return make_coefficients(rows, read, dtype)

        return FusedSteps(
            kernel, rows, read_plainly, steps, bump, memory == "sqrt", counts,
            *self._recorded(state, steps, rows, raw),
        )  # fmt: skip

    def _recorded(
        self, state: Tensor, steps: int, rows: LiteralRows, raw: Parameters
    ) -> tuple[RecordedRuns | None, Hashable]:
        """Where to record a run on a GPU, if that is worth its memory, and what it depends on."""
        if not state.is_cuda or self.recorded_runs is None:
            return None, None
        kept = steps + 1 if torch.is_grad_enabled() else 1
        if state.numel() * kept > MOST_VALUES:
            return None, None
        recorded = self.recorded_runs if self.fixed is None else self.fixed.recorded_runs
        # The graph reads the parameters where they lie, so changes of their values are seen.
        key = id(rows), self.gate_kind, raw[0].dtype, *(x.data_ptr() for x in raw)
        return recorded, key

    def _inputs(
        self, raw: Parameters | None, run: FusedSteps, dtype: torch.dtype
    ) -> tuple[Parameters | None, Any]:
        """What a kernel runs on: the parameters, or coefficients that were read before."""
        if self.fixed is None:
            return raw, None
        return None, self.fixed.coefficients(run.kernel, run.rows, dtype, bump=run.bump)
