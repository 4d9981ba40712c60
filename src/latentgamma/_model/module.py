"""LatentGamma: the operator as a PyTorch module."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, final, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma._certificate.certificate import Certificate, certify
from latentgamma._certificate.step_bounds import Reading
from latentgamma._errors import ModelError, StateError
from latentgamma._model.constrained_parameters import (
    above_one,
    open_unit,
    positive,
    raw_above,
    raw_open_unit,
)
from latentgamma._model.kernels.autograd import Run, kernel_for, layout_of
from latentgamma._model.kernels.inputs import Flat
from latentgamma._model.log_odds_run import log_odds_after
from latentgamma._model.proof_gradient import ProofClosure, proof_closure, wants_slope
from latentgamma._model.recompute import run_keeping_states
from latentgamma._model.rules import AbstractRules, Literals, StepParameters
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._model.stages import GateKind, fire, gate, match, route, update
from latentgamma._model.tracing import can_be_rerun, values_can_be_read
from latentgamma._model.trajectory import Trajectory
from latentgamma._model.weight_reader import read_model, rows_of
from latentgamma._model.zero_gradient import ZeroGradientWatch
from latentgamma._program.facts import Facts, FactSets, fact_values
from latentgamma._program.program import Program

Gradient: TypeAlias = Literal["exact", "proof"]
#: What the forward pass keeps for the backward: the states, about √T of them, or everything.
Memory: TypeAlias = Literal["states", "sqrt", "all"]
#: What runs many steps: compiled code where there is some for it, or plain torch.
KernelChoice: TypeAlias = Literal["auto", "reference"]

#: What a state may be made of.
STATE_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

_REMEDY = (
    'train through lg.Layer, or set model.gradient = "proof"; and read log-odds, logits=True, '
    "instead of clamped states"
)

GROUPS = (
    "body",
    "head",
    "threshold",
    "sharpness",
    "confidence",
    "gain",
    "offset",
    "gate",
)


@final
class LatentGamma(nn.Module):
    """The operator: a state of M values in [0, 1] goes in, the state some steps later comes out.

    `latentgamma.oracle(program)` builds one whose parameters are written down from a program.
    The parameters that must stay positive, or between 0 and 1, are kept there by construction:
    `sharpness`, `gain` and `gate` through a softplus, `confidence` through a sigmoid. So an
    optimiser may take any finite step.

    A state may be float64, float32, bfloat16 or float16, whatever the model's own dtype: a step
    computes in the dtype of the state, and in float32 where that has sixteen bits.

    Two backward passes belong to the same forward values:

    - `gradient="exact"` is the derivative of the T steps. On a sharp model it is honest, and
      nearly nothing: a closure does not change when a fact changes by a little.
    - `gradient="proof"` is, for the state, the gradient of the min/max closure of the same
      state: the gradient of an atom goes to the weakest facts of its best proof, undiminished at
      any depth. An atom that was not derived sends it to the facts that would have to rise. It
      is zero only where no proof exists at all. Ties go along the shortest proofs, in equal
      shares. Parameters get their exact derivative.

    Attributes:
        rules: the two matrices, dense or sparse.
        program: the program this model was built from, if any: it lends the names of the
            atoms, and decides when `steps=None` may stop.
        gate_kind: `"sigmoid"` or `"bump"`.
        gradient: `"exact"` or `"proof"`; it may be set at any time.
        kernel: `"auto"` runs many steps of the sparse form as one compiled kernel where there is
            one for the device and dtype of the state; `"reference"` always as plain torch. They
            agree to rounding. It may be set at any time.
    """

    def __init__(
        self,
        rules: AbstractRules,
        *,
        threshold: Tensor,
        sharpness: Tensor,
        confidence: Tensor,
        gain: Tensor,
        offset: Tensor,
        gate: Tensor,
        gate_kind: GateKind = "sigmoid",
        gradient: Gradient = "exact",
        kernel: KernelChoice = "auto",
        program: Program | None = None,
    ) -> None:
        super().__init__()
        if program is not None and rules.M != program.M:
            raise ModelError(f"the rules have {rules.M} atoms, the program has {program.M}")
        _check_shape("threshold", threshold, (rules.R,))
        _check_shape("sharpness", sharpness, (rules.R,))
        _check_shape("confidence", confidence, (rules.R,))
        _check_shape("gain", gain, ())
        _check_shape("offset", offset, (rules.M,))
        _check_shape("gate", gate, ())
        self.gate_kind: GateKind = one_of("gate", gate_kind, get_args(GateKind))
        self.kernel = kernel
        self.program = program
        self.rules = rules
        self.threshold = nn.Parameter(threshold)
        self.sharpness_raw = nn.Parameter(raw_above("sharpness", sharpness, 0.0))
        self.confidence_raw = nn.Parameter(raw_open_unit("confidence", confidence))
        self.gain_raw = nn.Parameter(raw_above("gain", gain, 0.0))
        self.offset = nn.Parameter(offset)
        self.gate_raw = nn.Parameter(raw_above("gate", gate, 1.0))
        self._state_dtype = threshold.dtype
        self._certified: tuple[object, Certificate] | None = None
        self._fixed: tuple[StepParameters, dict[torch.dtype, Flat]] | None = None
        self._proofs: ProofClosure | None = None
        self._zero_gradient = ZeroGradientWatch(_REMEDY)
        self.gradient = gradient

    # ------------------------------------------------------------ numbers

    @property
    def gradient(self) -> Gradient:
        """Which backward pass this model has: `"exact"` or `"proof"`."""
        return self._gradient

    @gradient.setter
    def gradient(self, kind: Gradient) -> None:
        self._gradient: Gradient = one_of("gradient", kind, get_args(Gradient))
        if kind == "proof" and not self.offset.is_meta:
            self._proofs = proof_closure(self.rules, self._proofs)

    @property
    def kernel(self) -> KernelChoice:
        """What runs many steps: `"auto"` or `"reference"`."""
        return self._kernel

    @kernel.setter
    def kernel(self, choice: KernelChoice) -> None:
        self._kernel: KernelChoice = one_of("kernel", choice, get_args(KernelChoice))

    @property
    def sharpness(self) -> Tensor:
        """τ > 0, one per rule. (R,)."""
        return positive(self.sharpness_raw)

    @property
    def confidence(self) -> Tensor:
        """ρ in (0, 1), one per rule. (R,)."""
        return open_unit(self.confidence_raw)

    @property
    def gain(self) -> Tensor:
        """τ_nor > 0. ()."""
        return positive(self.gain_raw)

    @property
    def gate(self) -> Tensor:
        """β > 1. ()."""
        return above_one(self.gate_raw)

    @property
    def M(self) -> int:
        """The number of atoms."""
        return self.rules.M

    @property
    def R(self) -> int:
        """The number of rules."""
        return self.rules.R

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.offset.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the states that `state` makes."""
        return self._state_dtype

    def step_parameters(self) -> StepParameters:
        """The parameters as a step uses them, differentiable."""
        return StepParameters(
            self.rules.read(),
            self.threshold,
            self.sharpness,
            self.gain * self.confidence,
            self.offset,
            self.gate,
        )

    def _read(self) -> tuple[StepParameters, dict[torch.dtype, Flat] | None]:
        """The numbers of a step, and where a kernel may keep its form of them."""
        fixed = self._fixed  # read once: another thread may end its `fixed` block meanwhile
        return (self.step_parameters(), None) if fixed is None else fixed

    @contextmanager
    def fixed(self) -> Iterator[LatentGamma]:
        """This model with its parameters taken as they are now: read once, and not differentiated.

        For serving, above all on a device, where reading them costs as much as a short run.

        >>> import latentgamma as lg
        >>> model = lg.oracle(lg.parse("b :- a."))
        >>> with model.fixed():
        ...     float(model(model.state(["a"]), 1)[0]) > 0.5
        True
        """
        with torch.no_grad():
            numbers = self.step_parameters()
            self._fixed = (
                numbers.with_tensors([tensor.detach() for tensor in numbers.tensors()]),
                {},
            )
        try:
            yield self
        finally:
            self._fixed = None

    def group(self, name: str) -> list[nn.Parameter]:
        """The parameters of one group, for an optimiser: see `GROUPS` for the names."""
        one_of("group", name, GROUPS)
        if name in ("body", "head"):
            return [p for key, p in self.rules.named_parameters() if key.startswith(name)]
        raw = f"{name}_raw"
        return [getattr(self, raw if hasattr(self, raw) else name)]

    def trainable(self, *groups: str) -> LatentGamma:
        """This model with just these groups of parameters requiring gradients."""
        wanted = {id(p) for name in groups for p in self.group(name)}
        for parameter in self.parameters():
            parameter.requires_grad_(id(parameter) in wanted)
        return self

    # ------------------------------------------------------------ states

    def state(self, facts: Facts | FactSets) -> Tensor:
        """The state of a fact set (M,), or of many (N, M), on this model's device and dtype.

        A fact set is a name, an index, several of them, one boolean or one value between 0 and 1
        for each atom, or a dictionary from names to values. Many of them are an iterable of fact
        sets, or an array of shape (N, M).

        >>> import latentgamma as lg
        >>> model = lg.oracle(lg.parse("bird :- penguin."))
        >>> model.state("penguin")
        tensor([0., 1.])
        >>> model.state([["penguin"], []])
        tensor([[0., 1.],
                [0., 0.]])
        >>> model.state({"penguin": 0.75})
        tensor([0.0000, 0.7500])

        Raises:
            FactsError: if these are not facts of the program.
            ModelError: if the model has no program.
        """
        program = self._need_program("to name facts")
        values = torch.from_numpy(fact_values(program, facts))
        return values.to(device=self.device, dtype=self.dtype)

    def names(self, state: Tensor) -> frozenset[str] | list[frozenset[str]]:
        """The atoms above one half: of one state a set, of a batch (N, M) a list of sets."""
        program = self._need_program("to name atoms")
        above = (state.detach() > 0.5).cpu().numpy()
        if above.ndim == 1:
            return program.names(above)
        return [program.names(row) for row in above.reshape(-1, self.M)]

    def _need_program(self, purpose: str) -> Program:
        if self.program is None:
            raise ModelError(f"this model has no program {purpose}; set model.program")
        return self.program

    def _checked(self, state: Tensor) -> Tensor:
        if not isinstance(state, Tensor):
            raise StateError(f"a state is a tensor, not {type(state).__name__}; try model.state")
        if state.dtype not in STATE_DTYPES:
            raise StateError(
                f"a state is a floating-point tensor of 16, 32 or 64 bits, not {state.dtype}; use "
                f"state.float(), or model.state(facts) for fact sets"
            )
        if state.dim() == 0 or state.shape[-1] != self.M:
            raise StateError(
                f"the last dimension of a state is the number of atoms, {self.M}, but the shape "
                f"is {tuple(state.shape)}"
            )
        if state.device != self.device:
            raise StateError(
                f"the state is on {state.device}, but the model on {self.device}; use "
                f"state.to(model.device)"
            )
        if state.numel() and values_can_be_read(state):
            low, high = _range(state.detach())
            if not (low >= 0 and high <= 1):  # NaN fails both
                found = (
                    "there is a NaN among these"
                    if math.isnan(low)
                    else f"these reach from {low:.6g} to {high:.6g}"
                )
                raise StateError(f"the values of a state lie in [0, 1], but {found}")
        return state

    # ------------------------------------------------------------ running

    def step(self, state: Tensor) -> Tensor:
        """The state after one application of the operator. (…, M)."""
        state = self._checked(state)
        if self.gradient == "proof" and wants_slope(state):
            return self._step(self.step_parameters(), state.detach()) + self._slope(state)
        return self._step(self.step_parameters(), state)

    def _step(self, numbers: StepParameters, state: Tensor) -> Tensor:
        # Sixteen-bit states are stored as such and computed with in float32.
        wide = state.to(torch.promote_types(state.dtype, torch.float32))
        share = gate(self.gate_kind, numbers.gate, self._evidence(numbers, wide))
        return update(wide, share).to(state.dtype)

    def _evidence(self, numbers: StepParameters, state: Tensor) -> Tensor:
        return route(self.rules, numbers, fire(numbers, match(self.rules, numbers, state)))

    def _slope(self, state: Tensor) -> Tensor:
        # A compiler cannot follow how a closure is made, so it takes the one that is there.
        if self._proofs is None or not torch.compiler.is_compiling():
            self._proofs = proof_closure(self.rules, self._proofs)
        return self._proofs.slope(state, self.kernel)

    def forward(
        self,
        state: Tensor,
        steps: int | None = None,
        *,
        memory: Memory = "states",
        logits: bool = False,
    ) -> Tensor:
        """The state after `steps` applications, or its log-odds. (…, M).

        With `steps=None` each example of a batch runs until its support is closed under the
        program, which is checked symbolically, and never past the certified window.

        `memory` says what is kept for the backward pass: every state, about √T of them, or
        everything; what is not kept is computed again. Compiled or under a transform of
        `torch.func`, where nothing can be run again, everything is kept.

        With `logits=True` the log-odds log(s / (1 − s)) come back, computed in the log domain:
        they have their digits where s is 1e-30 or rounds to one, and with a cross-entropy on
        them the exact gradient has its size there. Every state is then kept.
        """
        state = self._checked(state)
        one_of("memory", memory, get_args(Memory))

        def run(state: Tensor) -> Tensor:
            if logits:
                return self._log_odds(state, steps, memory)
            return self._final(state, steps, memory)

        return self._zero_gradient(run, state) if self.training else run(state)

    def _log_odds(self, state: Tensor, steps: int | None, memory: Memory) -> Tensor:
        if steps is None:
            raise ModelError("log-odds are those after a number of steps; pass steps=")
        along_proofs = steps != 0 and self.gradient == "proof" and wants_slope(state)
        start = state.detach() if along_proofs else state
        numbers, states = self._read()[0], self._states(start, _checked_steps(steps), memory)
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        evidence = [self._evidence(numbers, before) for before in wide[:-1]]
        odds = log_odds_after(wide[0], evidence, self.gate_kind, numbers.gate).to(state.dtype)
        return odds + self._slope(torch.logit(_inside(state))) if along_proofs else odds

    def _final(self, state: Tensor, steps: int | None, memory: Memory) -> Tensor:
        if steps != 0 and self.gradient == "proof" and wants_slope(state):
            return self._after(state.detach(), steps, memory) + self._slope(state)
        return self._after(state, steps, memory)

    def _after(self, state: Tensor, steps: int | None, memory: Memory) -> Tensor:
        if steps is None:
            closed: Tensor = self._run_until_closed(state, memory)
            return closed
        numbers, held = self._read()
        if fused := self._fused(numbers, state, _checked_steps(steps), memory):
            return fused(numbers, state, held)
        # Not a list of them: without gradients only the last state has to live.
        for after in self._run(numbers, state, steps, memory):
            state = after
        return state

    def iterate(self, state: Tensor, steps: int, *, memory: Memory = "states") -> Trajectory:
        """Every state of a run of `steps` applications."""
        state = self._checked(state)
        one_of("memory", memory, get_args(Memory))
        if self.gradient == "proof" and wants_slope(state):
            later = self._states(state.detach(), steps, memory)[1:] + self._slope(state)
            return Trajectory(torch.cat([state[None], later]), self.program)
        return Trajectory(self._states(state, steps, memory), self.program)

    def _states(self, state: Tensor, steps: int, memory: Memory) -> Tensor:
        # Every state is part of the answer, so there is nothing for √T to save.
        kept: Memory = "all" if memory == "all" else "states"
        numbers, held = self._read()
        if fused := self._fused(numbers, state, _checked_steps(steps), kept):
            return fused.trajectory(numbers, state, held)
        return torch.stack([state, *self._run(numbers, state, steps, kept)])

    def _fused(
        self, numbers: StepParameters, state: Tensor, steps: int, memory: Memory
    ) -> Run | None:
        """How to run these steps as one kernel, or None where plain torch has to."""
        if self.kernel == "reference" or memory == "all" or steps == 0:
            return None
        kernel = kernel_for(self.rules, state, numbers.tensors())
        if kernel is None or not isinstance(self.rules, SparseRules):
            return None
        return Run(
            kernel,
            layout_of(self.rules),
            steps,
            bump=self.gate_kind == "bump",
            sqrt=memory == "sqrt",
        )

    def _run(
        self, numbers: StepParameters, state: Tensor, steps: int, memory: Memory
    ) -> Iterator[Tensor]:
        """The states after each step; in "sqrt" mode those after each of about √T segments."""
        if memory == "all" or not can_be_rerun(state, *numbers.tensors()):
            for _ in range(steps):
                state = self._step(numbers, state)
                yield state
        else:
            stride = 1 if memory == "states" else math.isqrt(max(0, steps - 1)) + 1
            yield from self._rerun(numbers, state, steps, stride)

    def _rerun(
        self, numbers: StepParameters, state: Tensor, steps: int, stride: int
    ) -> tuple[Tensor, ...]:
        def step(tensors: Sequence[Tensor], before: Tensor) -> Tensor:
            return self._step(numbers.with_tensors(tensors), before)

        return run_keeping_states(step, numbers.tensors(), state, steps, stride)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run_until_closed(self, state: Tensor, memory: Memory) -> Tensor:
        if not values_can_be_read(state):
            raise ModelError(
                "steps=None looks at the values of the state, which cannot be done while they "
                "are traced, exported or transformed by torch.func; pass steps="
            )
        closed = _ClosedUnder(self._need_program("to know when to stop; pass steps="), state.device)
        numbers = self.step_parameters()
        rerun = memory != "all" and can_be_rerun(state, *numbers.tensors())
        for _ in range(self._longest_run()):
            # An example that is done stays as it is, whatever the others of its batch do.
            running = ~closed(state > 0.5).unsqueeze(-1)
            if not running.any():
                break
            if rerun:
                (after,) = self._rerun(numbers, state, steps=1, stride=1)
            else:
                after = self._step(numbers, state)
            state = torch.where(running, after, state)
        return state

    def _longest_run(self) -> int:
        """How many steps `steps=None` may take: a few times what is needed, inside the window."""
        certificate = self.certificate()
        if not certificate.holds:
            raise ModelError(f"steps=None needs a certified window, but {certificate}; pass steps=")
        # Facts that are only half true may need longer than the true ones t_min speaks of.
        return int(min(certificate.t_max, 4 * certificate.t_min + 16))

    def certificate(self) -> Certificate:
        """The certificate of this model against its own program, computed anew after training."""
        program = self._need_program("to be certified against")
        key = program, self.dtype, self.gate_kind, *self._fingerprint()
        if self._certified is None or self._certified[0] != key:
            self._certified = key, certify(self, program)
        return self._certified[1]

    def _fingerprint(self) -> list[object]:
        """What changes when a parameter does: in place, or behind autograd's back (`p.data`)."""
        values = torch.cat([p.detach().double().flatten() for p in self.parameters()])
        # Weights that differ from place to place, so that an exchange of values shows too.
        place = torch.frac(torch.arange(len(values), device=values.device) * 0.6180339887498949)
        sums = torch.stack([values.sum(), values @ (1 + place.double())]).tolist()
        return [(p.data_ptr(), p._version) for p in self.parameters()] + sums

    def reading(self, program: Program, rows: npt.NDArray[np.int64] | None = None) -> Reading:
        """What a certificate reads of this model, its rows standing for a program's rules."""
        with torch.no_grad():
            return read_model(
                self.rules,
                self.step_parameters(),
                program,
                rows,
                bump=self.gate_kind == "bump",
                dtype=str(self.dtype).removeprefix("torch."),
            )

    @property
    def atoms(self) -> tuple[str, ...] | None:
        """The names of the atoms in the order of the state, if there is a program to say so."""
        return None if self.program is None else self.program.atoms

    def rows(self, atoms: tuple[str, ...]) -> tuple[Program, npt.NDArray[np.int64]]:
        """The rules that the rows look like, and which rows they are; idle rows are left out."""
        with torch.no_grad():
            return rows_of(self.rules, self.step_parameters(), atoms)

    def closure(self, facts: Facts) -> frozenset[str]:
        """The names of the atoms that the network derives from these facts.

        >>> import latentgamma as lg
        >>> program = lg.parse("bird :- penguin. animal :- bird.")
        >>> sorted(lg.oracle(program).closure(["penguin"]))
        ['animal', 'bird', 'penguin']
        """
        with torch.no_grad():
            return self._need_program("to name facts").names(
                (self(self.state(facts)) > 0.5).cpu().numpy()
            )

    # ------------------------------------------------------------ as a module

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LatentGamma:
        """`.to`, `.cuda`, `.half` and the like.

        A threshold of 300.5 does not survive sixteen bits, so the parameters stay in float32
        or wider; what `.half()` and `.bfloat16()` change is the dtype of the states.
        """

        def keep_wide(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            if not tensor.is_floating_point() or moved.dtype.itemsize >= 4:
                return moved
            return tensor.to(moved.device)

        # What happens to the dtype is asked of a tensor of states, not of the wide parameters:
        # moving a model with bfloat16 states to a GPU leaves them bfloat16.
        states = fn(torch.empty(0, dtype=self._state_dtype, device=self.device)).dtype
        if states not in STATE_DTYPES:
            raise ModelError(f"a model's states have 16, 32 or 64 bits, so it has no {states} form")
        super()._apply(keep_wide, recurse)  # type: ignore[no-untyped-call]
        self._state_dtype = states
        if self._proofs is not None and not self.offset.is_meta:
            self._proofs = proof_closure(self.rules, self._proofs)
        return self

    def extra_repr(self) -> str:
        """The line that `print(model)` shows."""
        return f"M={self.M}, R={self.R}, gate={self.gate_kind}, gradient={self.gradient}"

    def save(self, path: str | Path) -> None:
        """Write the model, its program and its options to one safetensors file."""
        from latentgamma._model.serialization import save_model

        save_model(self, path)

    @staticmethod
    def load(path: str | Path, *, device: torch.device | str = "cpu") -> LatentGamma:
        """The model that `save` wrote; a file that does not fit is refused."""
        from latentgamma._model.serialization import load_model

        return load_model(path, device=device)


class _ClosedUnder:
    """Whether each support of a batch is closed under a program."""

    def __init__(self, program: Program, device: torch.device) -> None:
        self._literals = Literals(*(i.to(device) for i in SparseRules.literals_of(program)))
        self._R = program.R

    def __call__(self, support: Tensor) -> Tensor:  # (…, M) -> (…)
        pairs = self._literals
        missing = (~support).to(torch.int32)
        lacking = missing.new_zeros(*support.shape[:-1], self._R)
        lacking = lacking.index_add(-1, pairs.body_rule, missing[..., pairs.body_atom])
        unmet = (lacking == 0)[..., pairs.head_rule] & ~support[..., pairs.head_atom]
        return ~unmet.any(-1)


def one_of(what: str, value: str, allowed: tuple[str, ...]) -> Any:
    """The value, if it is one of the allowed ones."""
    if value not in allowed:
        options = ", ".join(repr(name) for name in allowed)
        raise ModelError(f"{what} must be one of {options}, not {value!r}")
    return value


def _check_shape(what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ModelError(f"{what} must have the shape {shape}, not {tuple(tensor.shape)}")


def _inside(state: Tensor) -> Tensor:
    """The state held a little inside (0, 1), with the slope that it had."""
    return state + (state.clamp(1e-6, 1 - 1e-6) - state).detach()


def _range(values: Tensor) -> tuple[float, float]:
    """The least and the greatest value; NaN if any is."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        # torch would wake its threads for this, and they would then keep the kernel's waiting.
        with suppress(RuntimeError):  # under a transform of torch.func there is no array
            array = values.numpy()
            return float(array.min()), float(array.max())
    low, high = torch.aminmax(values)
    return float(low), float(high)


def _checked_steps(steps: int) -> int:
    whole = isinstance(steps, (int, np.integer)) and not isinstance(steps, bool)
    if not whole or steps < 0:
        raise StateError(f"steps is a whole number from 0 on, or None, not {steps!r}")
    return int(steps)
