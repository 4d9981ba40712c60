"""LatentGamma: the operator as a PyTorch module, five stages as five short functions.

The legend, in the paper's letters: η body logits, ψ head logits, b threshold, τ sharpness,
ρ confidence, τ_nor gain, θ offset, β gate, s state, a activation, φ evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from latentgamma._certificate import Certificate, certify
from latentgamma._errors import ModelError, StateError
from latentgamma._model_reading import read_model, rows_of
from latentgamma._program import Facts, Program
from latentgamma._reading import Reading
from latentgamma._rules import AbstractRules, Numbers, SparseRules, Support

Gate: TypeAlias = Literal["sigmoid", "bump"]
Gradient: TypeAlias = Literal["exact", "proof"]
#: What the forward pass keeps for the backward: the states, about √T of them, or everything.
Memory: TypeAlias = Literal["states", "sqrt", "all"]

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


# -------------------------------------------------------------------- the five stages


def match(rules: AbstractRules, numbers: Numbers, state: Tensor) -> Tensor:
    """Stage 1: a_j = σ(τ_j (bs_j − b_j)), how far each rule's body is satisfied. (…, R)."""
    margin = rules.match(state, numbers.weights, numbers.threshold)
    return torch.sigmoid(numbers.sharpness.to(state.dtype) * margin)


def fire(numbers: Numbers, activation: Tensor) -> Tensor:
    """Stage 3: τ_nor ρ_j a_j, what each rule has to give to its heads. (…, R)."""
    return numbers.amplitude.to(activation.dtype) * activation


def route(rules: AbstractRules, numbers: Numbers, firing: Tensor) -> Tensor:
    """Stages 2 and 4: φ_i = Σ_j v_ji τ_nor ρ_j a_j − θ_i, the evidence for each atom. (…, M)."""
    return rules.route(firing, numbers.weights) - numbers.offset.to(firing.dtype)


def gate(kind: Gate, sharpness: Tensor, evidence: Tensor) -> Tensor:
    """Stage 4: g_i Γ_i, the part of the way to one that each atom goes in this step. (…, M)."""
    scaled = sharpness.to(evidence.dtype) * evidence
    if kind == "sigmoid":
        return torch.sigmoid(scaled) * torch.sigmoid(evidence)
    return bump(scaled) * torch.sigmoid(evidence)


def bump(x: Tensor) -> Tensor:
    """exp(−1/x²) where x > 0 and exactly 0 elsewhere, smooth everywhere.

    >>> bump(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.0000, 0.0000, 0.3679])
    """
    # Below 1e-3 the value and every derivative underflow; a floor keeps 1/x² finite there.
    safe = torch.clamp(x, min=1e-3)
    return torch.where(x > 1e-3, torch.exp(-1 / (safe * safe)), torch.zeros_like(x))


def update(state: Tensor, share: Tensor) -> Tensor:
    """Stage 5: s_i ← s_i + (1 − s_i) g_i Γ_i. (…, M)."""
    return state + (1 - state) * share


# -------------------------------------------------------------------- the proof gradient


def weakest_link(state: Tensor, support: Support, R: int) -> Tensor:
    """One step in min/max logic: an atom is as true as its best rule, a rule as its weakest atom.

    Its value is not used, only its slope: an atom that is already true passes its gradient on
    to itself, another one to the weakest body atoms of its best rules, ties in equal shares.
    So what leaves an atom arrives undiminished at the facts of its proof. (…, M).
    """
    batch = state.shape[:-1]
    # Start values that no atom can tie with: a tie would take a share of the gradient.
    body = support.body_rule.expand(*batch, -1)
    rules = state.new_full((*batch, R), 2.0).scatter_reduce(
        -1, body, state[..., support.body_atom], "amin"
    )
    rules = torch.clamp(rules, max=1.0)  # an empty body is true
    head = support.head_atom.expand(*batch, -1)
    derived = state.new_full(state.shape, -1.0).scatter_reduce(
        -1, head, rules[..., support.head_rule], "amax"
    )
    return torch.where(state > 0.5, state, torch.maximum(state, derived))


# -------------------------------------------------------------------- what a run leaves


@dataclass(frozen=True)
class Trajectory:
    """Every state of a run, the first one included.

    `states` has shape (T + 1, …, M).
    """

    states: Tensor
    program: Program | None = None

    @property
    def steps(self) -> int:
        """T, the number of applications of the operator."""
        return len(self.states) - 1

    @property
    def final(self) -> Tensor:
        """The state after the last step. (…, M)."""
        return self.states[-1]

    @property
    def support(self) -> Tensor:
        """Which atoms are above one half, at every step. (T + 1, …, M)."""
        return self.states > 0.5

    @property
    def crossing(self) -> Tensor:
        """The first step at which each atom is above one half, −1 where it never is. (…, M)."""
        above = self.support
        return torch.where(above.any(0), above.to(torch.int64).argmax(0), -1)

    def names(self, step: int = -1) -> frozenset[str]:
        """The names of the atoms above one half after a step, for a single trajectory."""
        if self.program is None:
            raise ModelError("this trajectory belongs to a model without a program: no names")
        return self.program.names(self.states[step].detach().double().cpu().numpy())

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.states)

    def __getitem__(self, step: int) -> Tensor:
        return self.states[step]


# -------------------------------------------------------------------- the module


@final
class LatentGamma(nn.Module):
    """The operator: a state of M values in [0, 1] goes in, the state some steps later comes out.

    `latentgamma.oracle(program)` builds one whose parameters are written down from a program.
    The parameters that must stay positive, or between 0 and 1, are kept there by construction:
    `sharpness`, `gain` and `gate` through a softplus, `confidence` through a sigmoid.

    Attributes:
        rules: the two matrices, dense or sparse.
        program: the program this model was built from, if any: it lends the names of the
            atoms, and decides when `steps=None` may stop.
        gate_kind: `"sigmoid"` or `"bump"`.
        gradient: `"exact"`, the derivative of the T steps; or `"proof"`, the same values with a
            backward pass that flows along proofs and does not fade with depth.
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
        gate_kind: Gate = "sigmoid",
        gradient: Gradient = "exact",
        program: Program | None = None,
    ) -> None:
        super().__init__()
        if program is not None and rules.M != program.M:
            raise ModelError(f"the rules have {rules.M} atoms, the program has {program.M}")
        self.gate_kind = one_of("gate", gate_kind, get_args(Gate))
        self.gradient = one_of("gradient", gradient, get_args(Gradient))
        self.program = program
        self.rules = rules
        self.threshold = nn.Parameter(threshold)
        self.sharpness_raw = nn.Parameter(_inverse_softplus("sharpness", sharpness, 0.0))
        self.confidence_raw = nn.Parameter(_inverse_sigmoid(confidence))
        self.gain_raw = nn.Parameter(_inverse_softplus("gain", gain, 0.0))
        self.offset = nn.Parameter(offset)
        self.gate_raw = nn.Parameter(_inverse_softplus("gate", gate, 1.0))
        self._state_dtype = threshold.dtype
        self._certified: tuple[object, Certificate] | None = None

    # ------------------------------------------------------------ numbers

    @property
    def sharpness(self) -> Tensor:
        """τ > 0, one per rule. (R,)."""
        return softplus(self.sharpness_raw)

    @property
    def confidence(self) -> Tensor:
        """ρ in (0, 1), one per rule. (R,)."""
        return torch.sigmoid(self.confidence_raw)

    @property
    def gain(self) -> Tensor:
        """τ_nor > 0. ()."""
        return softplus(self.gain_raw)

    @property
    def gate(self) -> Tensor:
        """β > 1. ()."""
        return 1 + softplus(self.gate_raw)

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

    def numbers(self) -> Numbers:
        """The parameters as a step uses them, differentiable."""
        return Numbers(
            self.rules.read(),
            self.threshold,
            self.sharpness,
            self.gain * self.confidence,
            self.offset,
            self.gate,
        )

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

    def state(self, facts: Facts | Iterable[Facts]) -> Tensor:
        """The state of a fact set (M,), or of many (N, M), on this model's device and dtype."""
        program = self._need_program("to name facts")
        if isinstance(facts, (list, tuple)) and facts and not isinstance(facts[0], (str, int)):
            masks = torch.stack([torch.from_numpy(program.mask(one)) for one in facts])
        else:
            masks = torch.from_numpy(program.mask(facts))  # type: ignore[arg-type]
        return masks.to(device=self.device, dtype=self.dtype)

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
        if not state.is_floating_point():
            raise StateError(
                f"a state is a floating-point tensor, not {state.dtype}; use state.float(), or "
                f"model.state(facts) for fact sets"
            )
        if state.dim() == 0 or state.shape[-1] != self.M:
            raise StateError(
                f"the last dimension of a state is the number of atoms, {self.M}, but the shape "
                f"is {tuple(state.shape)}"
            )
        if state.numel() and _values_can_be_read(state):
            low, high = torch.aminmax(state.detach())
            if not (low >= 0 and high <= 1):  # NaN fails both
                raise StateError(
                    f"the values of a state lie in [0, 1], but these reach from {low.item():.6g} "
                    f"to {high.item():.6g}"
                )
        return state

    # ------------------------------------------------------------ running

    def step(self, state: Tensor) -> Tensor:
        """The state after one application of the operator. (…, M)."""
        return self._step(self.numbers(), self._checked(state))

    def _step(self, numbers: Numbers, state: Tensor) -> Tensor:
        source = state.detach() if self.gradient == "proof" else state
        # Sixteen-bit states are stored as such and computed with in float32.
        exact = source.to(torch.promote_types(source.dtype, torch.float32))
        activation = match(self.rules, numbers, exact)
        evidence = route(self.rules, numbers, fire(numbers, activation))
        after = update(exact, gate(self.gate_kind, numbers.gate, evidence)).to(state.dtype)
        if self.gradient == "proof" and torch.is_grad_enabled():
            slope = weakest_link(state, self.rules.support(), self.R)
            after = after + (slope - slope.detach())
        return after

    def forward(
        self, state: Tensor, steps: int | None = None, *, memory: Memory = "states"
    ) -> Tensor:
        """The state after `steps` applications. (…, M).

        With `steps=None` each example of a batch runs until its support is closed under the
        program, which is checked symbolically, and never past the certified window.

        `memory` says what is kept for the backward pass: every state, about √T of them, or
        everything (which `torch.func` transforms need).
        """
        state = self._checked(state)
        one_of("memory", memory, get_args(Memory))
        if steps is None:
            return self._run_until_closed(state, memory)
        *_, final = self._run(state, _checked_steps(steps), memory)
        return final

    def iterate(self, state: Tensor, steps: int, *, memory: Memory = "states") -> Trajectory:
        """Every state of a run of `steps` applications."""
        state = self._checked(state)
        one_of("memory", memory, get_args(Memory))
        # Every state is part of the answer, so there is nothing for √T to save.
        kept: Memory = "all" if memory == "all" else "states"
        states = list(self._run(state, _checked_steps(steps), kept))
        return Trajectory(torch.stack(states), self.program)

    def _run(self, state: Tensor, steps: int, memory: Memory) -> Iterator[Tensor]:
        """The states of a run; in "sqrt" mode only those at the ends of the segments."""
        numbers = self.numbers()
        yield state
        if memory == "sqrt" and steps > 1:
            length = math.isqrt(steps - 1) + 1
            for start in range(0, steps, length):
                count = min(length, steps - start)
                state = self._recomputed(self._segment, numbers, state, count)
                yield state
            return
        for _ in range(steps):
            if memory == "all":
                state = self._step(numbers, state)
            else:
                state = self._recomputed(self._step, numbers, state)
            yield state

    def _segment(self, numbers: Numbers, state: Tensor, count: int) -> Tensor:
        for _ in range(count):
            state = self._recomputed(self._step, numbers, state)
        return state

    def _recomputed(self, function: Callable[..., Tensor], *args: Any) -> Tensor:
        """The function's value, keeping only its arguments for the backward pass."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return function(*args)
        result: Tensor = checkpoint(
            function, *args, use_reentrant=False, preserve_rng_state=False
        )
        return result

    def _run_until_closed(self, state: Tensor, memory: Memory) -> Tensor:
        closed = _ClosedUnder(self._need_program("to know when to stop; pass steps="), state.device)
        numbers = self.numbers()
        for _ in range(self._longest_run()):
            # An example that is done stays as it is, whatever the others of its batch do.
            running = ~closed(state > 0.5).unsqueeze(-1)
            if not running.any():
                break
            after = (
                self._step(numbers, state)
                if memory == "all"
                else self._recomputed(self._step, numbers, state)
            )
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
        version = tuple((id(p), p._version) for p in self.parameters())
        if self._certified is None or self._certified[0] != (version, self.dtype):
            self._certified = (version, self.dtype), certify(self, program)
        return self._certified[1]

    def reading(self, program: Program, rows: npt.NDArray[np.int64] | None = None) -> Reading:
        """What a certificate reads of this model, its rows standing for a program's rules."""
        with torch.no_grad():
            return read_model(
                self.rules,
                self.numbers(),
                program,
                rows,
                bump=self.gate_kind == "bump",
                dtype=str(self.dtype).removeprefix("torch."),
            )

    def rows(self) -> tuple[Program, npt.NDArray[np.int64]]:
        """The rules that the rows look like, and which rows they are; idle rows are left out."""
        atoms = None if self.program is None else self.program.atoms
        with torch.no_grad():
            return rows_of(self.rules, self.numbers(), atoms)

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
            if not tensor.is_floating_point():
                return moved
            self._state_dtype = moved.dtype
            return moved if moved.dtype.itemsize >= 4 else tensor.to(moved.device)

        super()._apply(keep_wide, recurse)
        return self

    def extra_repr(self) -> str:
        """The line that `print(model)` shows."""
        return f"M={self.M}, R={self.R}, gate={self.gate_kind}, gradient={self.gradient}"

    def save(self, path: str | Path) -> None:
        """Write the model, its program and its options to one safetensors file."""
        from latentgamma._model_file import save_model

        save_model(self, path)

    @staticmethod
    def load(path: str | Path, *, device: torch.device | str = "cpu") -> LatentGamma:
        """The model that `save` wrote; a file that does not fit is refused."""
        from latentgamma._model_file import load_model

        return load_model(path, device=device)


class _ClosedUnder:
    """Whether each support of a batch is closed under a program."""

    def __init__(self, program: Program, device: torch.device) -> None:
        self._literals = SparseRules.support_of(program)
        self._literals = Support(*(indices.to(device) for indices in self._literals))
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


def _checked_steps(steps: int) -> int:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise StateError(f"steps is a whole number from 0 on, or None, not {steps!r}")
    return steps


def _values_can_be_read(state: Tensor) -> bool:
    """Whether looking at the values is possible here: not while tracing, mapping or capturing."""
    if torch.compiler.is_compiling() or state.device.type == "meta":
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(state):  # type: ignore[attr-defined]
        return False
    return not (state.is_cuda and torch.cuda.is_current_stream_capturing())


def _inverse_softplus(what: str, value: Tensor, floor: float) -> Tensor:
    excess = value.detach().double() - floor
    if not bool((excess > 0).all()) or not bool(excess.isfinite().all()):
        raise ModelError(f"{what} must be a finite number above {floor:g}")
    return (excess + torch.log(-torch.expm1(-excess))).to(value.dtype)


def _inverse_sigmoid(value: Tensor) -> Tensor:
    wide = value.detach().double()
    if not bool(((wide > 0) & (wide < 1)).all()):
        raise ModelError("confidence must lie strictly between 0 and 1")
    return torch.logit(wide).to(value.dtype)
