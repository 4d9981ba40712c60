"""The operator as an `nn.Module`, and its parameters in closed form."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, final, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma._arguments import one_of, usable_device, whole_number, wrong
from latentgamma._display import Display, Displayed, caption, heat_table, number
from latentgamma._text import byte_size
from latentgamma.certificate.bounds import LiteralWeights
from latentgamma.certificate.certify import Certificate, certify
from latentgamma.certificate.constants import (
    ClosedForm,
    Constants,
    Gate,
    HeadSharing,
    certified_strata,
)
from latentgamma.certificate.parts import Places
from latentgamma.engine.execute import KernelChoice
from latentgamma.engine.tensors import ZeroGradientWatch, hold, values_can_be_read
from latentgamma.errors import CertificateError, ModelError, StateError
from latentgamma.operator.kernels.interface import RecordedRuns, ValueCache, copies_of
from latentgamma.operator.rules import AbstractRules, SparseRules, StepParameters, is_bump
from latentgamma.operator.run import (
    FixedParameters,
    FixedState,
    ProofClosure,
    Runner,
    above_one,
    log_odds_after,
    open_unit,
    plain_parameters,
    positive,
    proof_closure,
    raw_above,
    raw_open_unit,
    values_of,
    wants_slope,
)
from latentgamma.operator.until_closed import (
    ClosureCache,
    depths_on_cpu,
    run_until_closed,
    run_until_closed_on_gpu,
)
from latentgamma.operator.weights import read_model, rows_of
from latentgamma.program.facts import Facts, FactSets, fact_values
from latentgamma.program.program import Program, require_definite, require_program

# ------------------------------------------------------------- checks of shapes and states

#: The dtypes that a state may have.
STATE_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check_shape(what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a ModelError unless the tensor has this shape."""
    if tuple(tensor.shape) != shape:
        raise ModelError(f"{what} must have the shape {shape}, not {tuple(tensor.shape)}")


def checked_state(state: Tensor, M: int, device: torch.device) -> Tensor:
    """Return the state if a model of M atoms on this device can run on it.

    Raises:
        StateError: it is not a floating-point tensor (…, M) on the device, with values in [0, 1].
    """
    if _require_tensor(state).dtype not in STATE_DTYPES:
        raise StateError(
            f"a state is a floating-point tensor of 16, 32 or 64 bits, not {state.dtype}; use "
            f"state.float(), or model.state(facts) for fact sets"
        )
    if state.dim() == 0 or state.shape[-1] != M:
        raise StateError(
            f"the last dimension of a state is the number of atoms, {M}, but the shape "
            f"is {tuple(state.shape)}"
        )
    if state.device != device:
        raise StateError(
            f"the state is on {state.device}, but the model on {device}; use state.to(model.device)"
        )
    # On a GPU an exception would have to wait for the device; there a wrong value becomes NaN.
    if state.numel() and not state.is_cuda and values_can_be_read(state):
        low, high = _range(state.detach())
        if not (low >= 0 and high <= 1):  # NaN fails both
            found = (
                "there is a NaN among these"
                if math.isnan(low)
                else f"these reach from {low:.9g} to {high:.9g}"
            )
            raise StateError(f"the values of a state lie in [0, 1], but {found}")
    return state


def _require_tensor(state: Tensor) -> Tensor:
    if not isinstance(state, Tensor):
        raise StateError(f"a state is a tensor, not {type(state).__name__}; try model.state")
    return state


def _range(values: Tensor) -> tuple[float, float]:
    """Return the least and the greatest value; NaN if any is."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        # torch would start its threads for this, and they would compete with the kernel's.
        with suppress(RuntimeError):  # under a transform of torch.func there is no array
            array = values.numpy()
            return float(np.minimum.reduce(array, None)), float(np.maximum.reduce(array, None))
    low, high = torch.aminmax(values)
    return float(low), float(high)


# ---------------------------------------------------------------- the digest of a program


def program_digest(program: Program) -> Tensor:
    """Return 32 bytes that differ for programs that differ in a rule, an atom or an order. (32,)."""
    digest = hashlib.blake2b(digest_size=32)
    for array in (
        program.body_indptr,
        program.body_literals,
        program.head_indptr,
        program.head_indices,
    ):
        digest.update(np.ascontiguousarray(array, np.int64).tobytes())
        digest.update(b"|")
    for name in program.atoms:
        encoded = name.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def refuse_other_program(
    module: nn.Module, state_dict: dict[str, Any], prefix: str, *others: Any
) -> None:
    """Raise a ModelError for a state dict of another program, before anything is loaded."""
    own = module.get_extra_state()
    # State dicts of earlier releases have no digest.
    given = state_dict.setdefault(prefix + "_extra_state", own)
    if len(own) and len(given) and not torch.equal(own, given.cpu()):
        raise ModelError(
            "these values belong to another program; load them into a model or a layer of that "
            "program"
        )


# --------------------------------------------------------- Trajectory: the states of a run

#: A notebook shows this many atoms and steps.
_SHOWN_ROWS, _SHOWN_STEPS = 30, 15


@dataclass(frozen=True, eq=False)
class Trajectory(Displayed):
    """Every state of a run, the first one included.

    `states` has shape (T + 1, …, M).

    >>> import latentgamma as lg
    >>> model = lg.oracle(lg.parse("bird :- penguin. animal :- bird."))
    >>> run = model.iterate(model.state("penguin"), 2)
    >>> run.crossing  # bird, penguin, animal
    tensor([1, 0, 2])
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
        """Return the names of the atoms above one half after a step, for a single trajectory.

        Args:
            step: the number of the step, from 0 for the first state to T; by default the last one.

        Returns:
            A set of names.

        Raises:
            ModelError: the model that was run has no program.
            FactsError: this is the trajectory of a batch.
        """
        if self.program is None:
            raise ModelError("this trajectory belongs to a model without a program: no names")
        return self.program.names(self.states[step].detach().double().cpu().numpy())

    def _shown(self) -> tuple[str, list[str], list[tuple[str, list[float]]]]:
        """Return a title, some steps, and the values of some atoms after each of them."""
        crossing, steps = self.crossing, self.steps
        order = torch.where(crossing < 0, steps + 1, crossing).argsort(stable=True)[:_SHOWN_ROWS]
        every = max(1, -(-steps // _SHOWN_STEPS))
        times = sorted({*range(0, steps, every), steps})
        values = self.states.detach().double().cpu()[times][:, order.cpu()].T.tolist()
        names = self.program.atoms if self.program else [f"a{i}" for i in range(len(crossing))]
        rows = [(names[i], row) for i, row in zip(order.tolist(), values, strict=True)]
        title = (
            f"{(crossing >= 0).sum():,} of {len(crossing):,} atoms above ½ within {steps:,} steps"
        )
        return title, [str(t) for t in times], rows

    def _display(self) -> Display:
        if self.states.ndim != 2:
            return Display(f"a trajectory of shape {tuple(self.states.shape)}")
        title, times, values = self._shown()
        rows = [(name, *map(number, row)) for name, row in values]
        return Display(title, columns=("", *times), rows=rows, right=1)

    def _repr_html_(self) -> str:
        if self.states.ndim != 2:
            return super()._repr_html_()
        title, times, values = self._shown()
        return caption(title) + heat_table(times, values)

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.states)

    def __getitem__(self, step: int) -> Tensor:
        return self.states[step]


# ----------------------------------------------------- LatentGamma: the operator as a module

Gradient: TypeAlias = Literal["exact", "proof"]

# How far from 0 and 1 a state is kept where its log-odds are taken: float32 has 1 − 1e-6, and
# the log-odds are ±14.
_INSIDE = 1e-6
_REMEDY = (
    'train through lg.Layer, or set model.gradient = "proof"; and read log-odds, logits=True, '
    "instead of clamped states"
)

GROUPS = ("body", "head", "threshold", "sharpness", "confidence", "gain", "offset", "gate")

#: The buffers of a model with negation for each stratum: the atoms that it reads, which of them
#: negated, and the places that are written.
_PLACES = ("atom", "negated", "derived")


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

    - `gradient="exact"` is the derivative of the T steps. On a sharp model it is
      almost zero: a closure does not change when a fact changes by a little.
    - `gradient="proof"` is, for the state, the gradient of the min/max closure of the same
      state: the gradient of an atom goes to the weakest facts of its best proof, undiminished at
      any depth. An atom that was not derived sends it to the facts that would have to rise. It
      is zero only where no proof exists at all. Ties go along the shortest proofs, in equal
      shares. Parameters get their exact derivative.

    >>> import latentgamma as lg
    >>> model = lg.oracle(lg.parse("bird :- penguin. animal :- bird."))
    >>> model
    LatentGamma(
      M=3, R=2, gate=sigmoid, gradient=exact
      (rules): DenseRules()
    )
    >>> sorted(model.names(model(model.state(["penguin"]))))
    ['animal', 'bird', 'penguin']

    The model of a program with negation has a model for each stratum, in `parts`, with all the
    parameters. They run one after another, each for the same number of steps. An atom that a
    stratum negates enters it as 1 − s, where s is what the strata below have made of the atom.

    >>> model = lg.oracle(lg.parse("fly :- bird, not penguin. bird :- penguin."))
    >>> sorted(model.closure(["bird"])), sorted(model.closure(["penguin"]))
    (['bird', 'fly'], ['bird', 'penguin'])

    Attributes:
        definite: whether the model has rules and parameters of its own, and not one model for each
            stratum.
        rules: the two matrices, dense or sparse.
        program: the program this model was built from, if any: it lends the names of the
            atoms, and `certificate()` compares the model with it. One with as many atoms may be set.
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
        gate_kind: Gate = "sigmoid",
        gradient: Gradient = "exact",
        kernel: KernelChoice = "auto",
        program: Program | None = None,
    ) -> None:
        super().__init__()
        check_shape("threshold", threshold, (rules.R,))
        check_shape("sharpness", sharpness, (rules.R,))
        check_shape("confidence", confidence, (rules.R,))
        check_shape("gain", gain, ())
        check_shape("offset", offset, (rules.M,))
        check_shape("gate", gate, ())
        self.gate_kind: Gate = one_of("gate_kind", gate_kind, get_args(Gate))
        self.definite = True
        self._M = rules.M
        self.rules = rules
        self.kernel = kernel
        self.program = program
        self.threshold = nn.Parameter(threshold)
        self.sharpness_raw = nn.Parameter(raw_above("sharpness", sharpness, 0.0))
        self.confidence_raw = nn.Parameter(raw_open_unit("confidence", confidence))
        self.gain_raw = nn.Parameter(raw_above("gain", gain, 0.0))
        self.offset = nn.Parameter(offset)
        self.gate_raw = nn.Parameter(raw_above("gate", gate, 1.0))
        self._state_dtype = threshold.dtype
        self._cache = ValueCache()
        self._closures = ClosureCache()
        self._fixed = FixedState()
        self._recorded_runs = RecordedRuns()
        self._proofs: ProofClosure | None = None
        self._zero_gradient = ZeroGradientWatch(_REMEDY)
        self.gradient = gradient
        self.register_load_state_dict_pre_hook(refuse_other_program)  # type: ignore[no-untyped-call]

    @classmethod
    def from_strata(cls, parts: Sequence[LatentGamma], program: Program) -> LatentGamma:
        """Return the model of a program with negation, made of one model for each stratum.

        Args:
            parts: the models of the definite programs of `program.strata`.
            program: the program.

        Returns:
            A model that runs them one after another.

        Raises:
            ModelError: there is not one model for each stratum, with the stratum's atoms, or the
                program is definite.
        """
        if program.definite:
            raise ModelError("from_strata takes a program with negation, but this one is definite")
        if [part.M for part in parts] != [stratum.program.M for stratum in program.strata]:
            raise ModelError("there must be one model for each stratum, with the stratum's atoms")
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model.definite = False
        model._M = program.M
        model.program = program
        model._modules["parts"] = nn.ModuleList(parts)
        model._gradient, model._kernel = parts[0].gradient, parts[0].kernel
        model._cache = ValueCache()
        for s, stratum in enumerate(program.strata):
            arrays = stratum.atom.astype(np.int64), stratum.negated, stratum.derived
            for name, array in zip(_PLACES, arrays, strict=True):
                model.register_buffer(f"{name}_{s}", torch.tensor(array), persistent=False)
        model.register_load_state_dict_pre_hook(refuse_other_program)  # type: ignore[no-untyped-call]
        return model

    @property
    def program(self) -> Program | None:
        """The program that names the atoms, and that `certificate()` compares the model with."""
        return self._program

    @program.setter
    def program(self, program: Program | None) -> None:
        atoms = self.rules.total_atoms if self.definite else self.M
        if program is not None and atoms != program.M:
            raise ModelError(f"the model has {atoms} atoms, but the program has {program.M}")
        self._program = program

    @property
    def parts(self) -> Sequence[LatentGamma]:
        """The model of each stratum; of a definite program, this model alone."""
        if self.definite:
            return (self,)
        # The ModuleList itself: torch.export looks modules up by their names.
        return cast(Sequence[LatentGamma], self._modules["parts"])

    @property
    def places(self) -> list[Places]:
        """What each part reads of the state and writes to it."""
        if self.definite:
            every = np.arange(self.rules.total_atoms)
            return [Places(every, np.zeros(len(every), bool), every)]
        return [
            Places(*(getattr(self, f"{name}_{s}").cpu().numpy() for name in _PLACES))
            for s in range(len(self.parts))
        ]

    # ------------------------------------------------------------ parameters

    @property
    def gradient(self) -> Gradient:
        """Which backward pass this model has: `"exact"` or `"proof"`."""
        return self._gradient

    @gradient.setter
    def gradient(self, kind: Gradient) -> None:
        self._gradient: Gradient = one_of("gradient", kind, get_args(Gradient))
        if not self.definite:
            for part in self.parts:
                part.gradient = kind
        elif kind == "proof" and not self.offset.is_meta:
            self._proofs = proof_closure(self.rules, self._proofs)

    @property
    def kernel(self) -> KernelChoice:
        """What runs many steps: `"auto"` or `"reference"`."""
        return self._kernel

    @kernel.setter
    def kernel(self, choice: KernelChoice) -> None:
        self._kernel: KernelChoice = one_of("kernel", choice, get_args(KernelChoice))
        if not self.definite:
            for part in self.parts:
                part.kernel = choice

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
        return self._M

    @property
    def R(self) -> int:
        """The number of rules."""
        return self.rules.total if self.definite else sum(part.R for part in self.parts)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.offset.device if self.definite else self.parts[0].device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the states that `state` makes."""
        return self._state_dtype if self.definite else self.parts[0].dtype

    def step_parameters(self) -> StepParameters:
        """Return the parameters as a step of a definite model uses them, differentiable.

        Inside `fixed()` they are as they were then.
        """
        require_definite_model(self, "step_parameters")
        return self._runner().step_parameters()

    def _runner(self) -> Runner:
        return Runner(
            self.rules,
            self.gate_kind,
            self,
            self._fixed.current,
            self.kernel != "reference",
            self._recorded_runs,
            self._cache,
        )

    @contextmanager
    def fixed(self) -> Iterator[LatentGamma]:
        """Enter a context in which the parameters are fixed: read once, and not differentiated.

        Changes of the parameters have no effect until the context ends. It is that of the thread,
        or of the asynchronous task, that entered it: others are outside until they enter their
        own. Contexts may be nested: the outermost one reads the parameters. A copy of the model
        made inside is an ordinary model.

        >>> import latentgamma as lg
        >>> model = lg.oracle(lg.parse("b :- a."))
        >>> with model.fixed():
        ...     float(model(model.state(["a"]), 1)[0]) > 0.5
        True

        Returns:
            A context manager, whose value is this model.
        """
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part._fixed.enter(part._fixed_parameters))
            yield self

    def _fixed_parameters(self) -> FixedParameters:
        with torch.no_grad():
            runner = self._runner()
            # Some of these tensors are the parameters themselves.
            read, stored = copies_of(runner.step_parameters()), copies_of(runner.stored())
        return FixedParameters(StepParameters._make(read), tuple(stored))

    def group(self, name: str) -> list[nn.Parameter]:
        """Return the parameters of one group, for an optimiser.

        Args:
            name: "body", "head", "threshold", "sharpness", "confidence", "gain", "offset" or "gate".

        Returns:
            The parameters; those of "sharpness", "confidence", "gain" and "gate" are the unconstrained
            ones, from which the values are computed.

        Raises:
            ArgumentError: there is no such group.
        """
        one_of("group", name, GROUPS)
        if name in ("body", "head"):
            named = [pair for part in self.parts for pair in part.rules.named_parameters()]
            return [p for key, p in named if key.rpartition(".")[2].startswith(name)]
        raw = f"{name}_raw"
        return [getattr(part, raw if hasattr(part, raw) else name) for part in self.parts]

    def trainable(self, *groups: str) -> LatentGamma:
        """Let just these groups of parameters require gradients.

        Args:
            *groups: names of groups, as in `group`; none to freeze all parameters.

        Returns:
            The same object.

        Raises:
            ArgumentError: there is no such group.
        """
        wanted = {id(p) for name in groups for p in self.group(name)}
        for parameter in self.parameters():
            parameter.requires_grad_(id(parameter) in wanted)
        return self

    # ------------------------------------------------------------ states

    def state(self, facts: Facts | FactSets) -> Tensor:
        """Return the state of a fact set or of many, on this model's device and dtype.

        >>> import latentgamma as lg
        >>> model = lg.oracle(lg.parse("bird :- penguin."))
        >>> model.state("penguin")
        tensor([0., 1.])
        >>> model.state([["penguin"], []])
        tensor([[0., 1.],
                [0., 0.]])
        >>> model.state({"penguin": 0.75})
        tensor([0.0000, 0.7500])

        Args:
            facts: a fact set: a name, an index, several of them, one boolean or one value between 0
                and 1 for each atom, or a dictionary from names to values. Many fact sets are an
                iterable of them, or an array of shape (N, M).

        Returns:
            A tensor of shape (M,), or (N, M) for many fact sets.

        Raises:
            FactsError: if these are not facts of the program.
            ModelError: if the model has no program.
        """
        program = self._need_program("to name facts")
        values = torch.from_numpy(fact_values(program, facts))
        return values.to(device=self.device, dtype=self.dtype)

    def names(self, state: Tensor) -> frozenset[str] | list[frozenset[str]]:
        """Return the names of the atoms above one half.

        Args:
            state: one state, shape (M,), or a batch, shape (N, M).

        Returns:
            A set of names; for a batch, a list with a set for each state.

        Raises:
            FactsError: if one state does not have M values.
            ModelError: if the model has no program.
            StateError: if this is not a tensor.
        """
        program = self._need_program("to name atoms")
        above = (_require_tensor(state).detach() > 0.5).cpu().numpy()
        if above.ndim == 1:
            return program.names(above)
        return [program.names(row) for row in above.reshape(-1, above.shape[-1])]

    def _need_program(self, purpose: str) -> Program:
        if self.program is None:
            raise ModelError(f"this model has no program {purpose}; set model.program")
        return self.program

    # ------------------------------------------------------------ running

    def step(self, state: Tensor) -> Tensor:
        """Return the state after one application of the operator.

        For a model of a definite program: with negation, the strata run one after another.

        Args:
            state: values in [0, 1], shape (…, M).

        Returns:
            The next state, of the same shape and dtype; no value is smaller than before.

        Raises:
            StateError: this is not a state of this model.
            ModelError: this is a model of a program with negation.
        """
        require_definite_model(self, "step")
        state = checked_state(state, self.M, self.device)
        runner = self._runner()
        given = runner.prepare(state.dtype)
        if self.gradient == "proof" and wants_slope(state):
            return runner.step(given, state.detach()) + self._slope(state)
        return runner.step(given, state)

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
        logits: bool = False,
    ) -> Tensor:
        """Return the state after `steps` applications, or its log-odds.

        With `steps=None` each example of a batch runs until its support is closed under the
        program, which is checked symbolically, and never past the window that is certified for
        states of this dtype. How many steps it takes depends on that example alone. With negation,
        `steps` is the number of steps of each stratum; None is the first step of the window.

        Args:
            state: values in [0, 1], shape (…, M).
            steps: the number of applications, from 0 on, or None.
            logits: return the log-odds log(s / (1 − s)), computed in the log domain: they keep
                their precision where s is 1e-30 or rounds to one, and the exact gradient of a
                cross-entropy on them does not vanish there. Every state is then kept. For models
                of definite programs.

        Returns:
            A tensor of the shape and dtype of `state`.

        Raises:
            StateError: the state is not one.
            ArgumentError: the number of steps is not one.
            ModelError: `steps=None` with `logits=True`, or on a model without a program; or
                `logits=True` with negation.
            CertificateError: `steps=None` on a model without a certified window.
        """
        state = checked_state(state, self.M, self.device)
        if not self.definite:
            return self._through_strata(state, steps, logits)

        def run(state: Tensor) -> Tensor:
            if logits:
                return self._log_odds(state, steps)
            return self._final(state, steps)

        # Along proofs a gradient of zero means that no proof depends on the inputs.
        watched = self.training and self.gradient == "exact"
        return self._zero_gradient(run, state) if watched else run(state)

    def _through_strata(self, state: Tensor, steps: int | None, logits: bool) -> Tensor:
        if logits:
            require_definite_model(self, "logits=True")
        if steps is None:
            steps = int(self._certified(state.dtype).t_min)
        for s, part in enumerate(self.parts):
            atom, negated, derived = (getattr(self, f"{name}_{s}") for name in _PLACES)
            given = state.index_select(-1, atom)  # (…, m)
            after = part(torch.where(negated, 1 - given, given), steps)
            values = after.index_select(-1, derived)
            state = state.index_copy(-1, atom[derived], values)
        return state

    def _log_odds(
        self, state: Tensor, steps: int | None, given_odds: Tensor | None = None
    ) -> Tensor:
        if steps is None:
            raise ModelError("log-odds are those after a number of steps; pass steps=")
        along_proofs = steps != 0 and self.gradient == "proof" and wants_slope(state)
        start = state.detach() if along_proofs else state
        runner = self._runner()
        given = runner.prepare(start.dtype)
        states = runner.states(start, whole_number("steps", steps))
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        evidence = [runner.evidence(given, before) for before in wide[:-1]]
        odds = log_odds_after(wide[0], evidence, self.gate_kind, given.gate, given_odds)
        odds = odds.to(state.dtype)
        return odds + self._slope(torch.logit(_inside(state))) if along_proofs else odds

    def _final(self, state: Tensor, steps: int | None) -> Tensor:
        if steps != 0 and self.gradient == "proof" and wants_slope(state):
            return self._after(state.detach(), steps) + self._slope(state)
        return self._after(state, steps)

    def _after(self, state: Tensor, steps: int | None) -> Tensor:
        if steps is None:
            if torch.compiler.is_compiling():
                closed: Tensor = torch.compiler.disable(self._run_until_closed)(state)  # type: ignore[no-untyped-call]
                return closed
            return self._run_until_closed(state)
        return self._runner().final(state, whole_number("steps", steps))

    def iterate(self, state: Tensor, steps: int) -> Trajectory:
        """Return every state of a run of `steps` applications.

        With negation, state t is that after t steps of each stratum, `model(state, t)`. Each
        is computed anew, so that the whole takes time in proportion to the square of `steps`.

        Args:
            state: values in [0, 1], shape (…, M).
            steps: the number of applications, from 0 on.

        Returns:
            A trajectory with states of shape (steps + 1, …, M), the given one first.

        Raises:
            StateError: the state is not one.
            ArgumentError: the number of steps is not one.
        """
        state = checked_state(state, self.M, self.device)
        count = whole_number("steps", steps)
        if not self.definite:
            runs = [self(state, t) for t in range(count + 1)]
            return Trajectory(torch.stack(runs), self.program)
        runner = self._runner()
        if self.gradient == "proof" and wants_slope(state):
            later = runner.states(state.detach(), count)[1:] + self._slope(state)
            return Trajectory(torch.cat([state[None], later]), self.program)
        return Trajectory(runner.states(state, count), self.program)

    def _run_until_closed(self, state: Tensor) -> Tensor:
        if not values_can_be_read(state):
            raise ModelError(
                "steps=None looks at the values of the state, which cannot be done while they "
                "are traced, exported or transformed by torch.func; pass steps="
            )
        program = self._need_program("to know when to stop; pass steps=")
        runner = self._runner()
        closed = self._closed_on_gpu(program, runner, state)
        if closed is not None:
            return closed
        certificate = self._certified(state.dtype)
        rules = certificate.rules[0]
        on_gpu = self._closures.get(rules, state.device)
        depths = partial(depths_on_cpu, rules) if on_gpu is None else on_gpu.depths
        return run_until_closed(runner, depths, certificate, state)

    def _closed_on_gpu(self, program: Program, runner: Runner, state: Tensor) -> Tensor | None:
        """Return where a kernel on a GPU gets with the last certificate; None if there is none.

        Where plain torch runs the steps, it has to wait for their numbers.
        """
        if not state.is_cuda or runner.kernel_for(state, runner.stored()) is None:
            return None
        certificates, values = self._certificates_and_values()
        known = certificates.kept(self._certificate_key(program, state.dtype))
        if known is None or not known[0].holds:
            return None
        certificate, kept = known
        closure = self._closures.get(certificate.rules[0], state.device)
        if closure is None:
            return None
        return run_until_closed_on_gpu(runner, closure, certificate, kept, values, state)

    def _certificates_and_values(self) -> tuple[ValueCache, list[Tensor]]:
        """Return the cache of certificates, and the values that they depend on and that may change."""
        if not self.definite:  # some of the parts may be fixed
            with torch.no_grad():
                values = [x for part in self.parts for x in part.step_parameters()]
            return self._cache, [*values, *self.buffers()]
        fixed = self._fixed.current
        if fixed is None:
            return self._cache, values_of(self)
        return fixed.certificates, list(self.buffers())

    def _certificate_key(self, program: Program, dtype: torch.dtype) -> tuple[object, ...]:
        return program, dtype, *(part.gate_kind for part in self.parts)

    def certificate(self) -> Certificate:
        """Return the certificate of this model against its own program.

        It is computed anew when a parameter, a buffer or an option has changed.

        Returns:
            A certificate, also if there is no window: then `holds` is false. With negation its
            steps are those of each stratum.

        Raises:
            ModelError: the model has no program.
        """
        return self._certificate(self.dtype)

    def _certificate(self, dtype: torch.dtype) -> Certificate:
        """Return the certificate for states of this dtype."""
        program = self._need_program("to be certified against")
        self._require_parameters()
        certificates, values = self._certificates_and_values()
        return certificates.get(
            self._certificate_key(program, dtype),
            values,
            lambda: certify(self, program, dtype=str(dtype).removeprefix("torch.")),
            self.parts[0].rules.in_any_process,
        )

    def _certified(self, dtype: torch.dtype) -> Certificate:
        """Return the certificate that `steps=None` needs."""
        certificate = self._certificate(dtype)
        if not certificate.holds:
            raise CertificateError(
                f"steps=None needs a certified window, but {certificate}; pass steps="
            )
        return certificate

    def literal_weights(
        self,
        program: Program,
        rows: npt.NDArray[np.int64] | None = None,
        *,
        dtype: str | None = None,
    ) -> LiteralWeights:
        """Return what a certificate needs of this model, its rows standing for a definite program's rules.

        Rule j is row `rows[j]`, by default row j. `dtype` is that of the states, for example
        "bfloat16", by default the model's.

        Raises:
            ModelError: the number of atoms, or without `rows` of rules, is not that of the model,
                or this is a model of a program with negation.
        """
        require_definite_model(self, "literal_weights")
        self._require_parameters()
        require_definite(program, "LatentGamma.literal_weights")
        with torch.no_grad():
            return read_model(
                *self.rules.whole(self.step_parameters()),
                program,
                rows,
                bump=is_bump(self.gate_kind),
                dtype=str(self.dtype).removeprefix("torch.") if dtype is None else dtype,
            )

    def _require_parameters(self) -> None:
        """Raise a ModelError if something else computes a parameter: the next call may change it."""
        for part in self.modules():
            for name in plain_parameters(part):
                raise ModelError(
                    f"nothing is proved of a model whose {name!r} is computed when it is called, "
                    f"as by torch.nn.utils.prune; first call prune.remove(module, {name!r})"
                )

    @property
    def atoms(self) -> tuple[str, ...] | None:
        """The names of the atoms in the order of the state, if there is a program to say so."""
        return None if self.program is None else self.program.atoms

    def rows(self, atoms: tuple[str, ...]) -> tuple[Program, npt.NDArray[np.int64]]:
        """Return the rules that the rows of a definite model look like, and which row each was read from.

        Rows without an effect are left out.
        """
        require_definite_model(self, "rows")
        self._require_parameters()
        with torch.no_grad():
            return rows_of(*self.rules.whole(self.step_parameters()), atoms)

    def closure(self, facts: Facts) -> frozenset[str]:
        """Return the names of the atoms that the network derives from these facts.

        >>> import latentgamma as lg
        >>> program = lg.parse("bird :- penguin. animal :- bird.")
        >>> sorted(lg.oracle(program).closure(["penguin"]))
        ['animal', 'bird', 'penguin']

        Args:
            facts: one fact set, as in `state`.

        Returns:
            A set of names, the given facts included.

        Raises:
            FactsError: if these are not facts of the program.
            ModelError: if the model has no program.
            CertificateError: if the model has no certified window.
        """
        with torch.no_grad():
            return self._need_program("to name facts").names(
                (self(self.state(facts)) > 0.5).cpu().numpy()
            )

    # ------------------------------------------------------------ as a module

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LatentGamma:
        """Do what `.to`, `.cuda`, `.half` and the like ask for.

        A threshold of 300.5 does not survive sixteen bits, so the parameters stay in float32
        or wider; what `.half()` and `.bfloat16()` change is the dtype of the states.
        """
        if not self.definite:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            return self

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

    def get_extra_state(self) -> Tensor:
        """Return the extra entry of a state dict: a digest of the program, empty without one."""
        return (
            torch.empty(0, dtype=torch.uint8)
            if self.program is None
            else program_digest(self.program)
        )

    def set_extra_state(self, state: Tensor) -> None:
        """Do nothing: `load_state_dict` has already compared the digests."""

    def extra_repr(self) -> str:
        """Return the line that `print(model)` shows: the sizes and the options."""
        if not self.definite:
            return f"M={self.M}, R={self.R}"
        return f"M={self.M}, R={self.R}, gate={self.gate_kind}, gradient={self.gradient}"

    def save(self, path: str | Path) -> None:
        """Write the model, its program and its options to one safetensors file.

        Args:
            path: the file to write; it is replaced as a whole or not at all.

        Raises:
            ModelError: the file cannot be written, or this process has only a part of the rules.
        """
        from latentgamma.operator.files import save_model

        save_model(self, path)

    @staticmethod
    def load(path: str | Path, *, device: torch.device | str = "cpu") -> LatentGamma:
        """Return the model that `save` wrote; a file that does not fit is refused.

        Args:
            path: the file.
            device: the device of the model.

        Returns:
            A model with the same parameters, program and options.

        Raises:
            ArgumentError: the device cannot be used.
            ModelError: the file cannot be read, is damaged, or is not a model.
        """
        from latentgamma.operator.files import load_model

        return load_model(path, device=device)


def _inside(state: Tensor) -> Tensor:
    """Return the state clamped a little inside (0, 1), with the gradient that it had."""
    return hold(state, _INSIDE, 1 - _INSIDE)


def require_definite_model(model: object, function: str) -> None:
    """Raise a ModelError unless this is a model of a definite program."""
    if not isinstance(model, LatentGamma):
        raise ModelError(f"{function} takes a LatentGamma, not {type(model).__name__}")
    if not model.definite:
        raise ModelError(
            f"{function} takes a model of a definite program; a model of a program with negation "
            "has one for each stratum, in model.parts"
        )


def require_whole_model(model: LatentGamma, function: str) -> None:
    """Raise a ModelError if other processes have further rules of this model."""
    if any(getattr(part.rules, "sharded", False) for part in model.parts):
        raise ModelError(
            f"{function} needs a model with all its rules; use latentgamma.distributed.gather(model)"
        )


# ------------------------------------------------------------ oracle: the model of a program

Form: TypeAlias = Literal["auto", "dense", "sparse"]

#: Up to this many entries (rules × atoms) one small matrix product is faster than gathering and
#: scattering literals.
_FASTER_DENSE_UP_TO = 1 << 9


def oracle(
    program: Program,
    constants: Constants | None = None,
    *,
    form: Form = "auto",
    gate: Gate = "sigmoid",
    gradient: Gradient = "exact",
    head_sharing: HeadSharing = "equal",
    kernel: KernelChoice = "auto",
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> LatentGamma:
    """Return the model whose parameters are the closed form of a program.

    >>> from latentgamma import parse
    >>> model = oracle(parse("bird :- penguin. animal :- bird."))
    >>> model(model.state(["penguin"])) > 0.5
    tensor([True, True, True])

    Args:
        program: any program.
        constants: by default `Constants.certified(program)`, under which the model is exact
            from step D to a million and beyond, for every fact set.
        form: "sparse" costs as much as the program has literals; "dense" gives every pair of
            rule and atom its own logits; "auto" is dense for tiny programs only.
        gate: "sigmoid", or "bump", whose underivable atoms never rise at all.
        gradient: "exact" or "proof", see `LatentGamma`.
        head_sharing: how rules with several heads share: "equal", or "paper", the construction
            of its Appendix G.
        kernel: "auto", or "reference" to do without compiled kernels, see `LatentGamma`.
        dtype: the dtype of the states: float64, float32, float16 or bfloat16; by default torch's
            default dtype. Parameters are float32 or wider.
        device: the device of the model; by default torch's default device.

    Returns:
        A model; of a program with negation, one with a model for each stratum in `parts`.

    Raises:
        ProgramError: if the first argument is not a program.
        ArgumentError: if an option is not one of those above, or the device cannot be used.
        ModelError: if the dense form does not fit in memory.
        CertificateError: if no certified constants exist for this program and dtype.
    """
    require_program(program, "oracle")
    one_of("form", form, get_args(Form))
    one_of("head_sharing", head_sharing, get_args(HeadSharing))
    one_of("gate", gate, get_args(Gate))
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in STATE_DTYPES:
        raise wrong("dtype", "torch.float64, float32, float16 or bfloat16", dtype)
    if device is None:
        device = torch.get_default_device()
    usable_device(device)
    strata = program.strata
    if constants is None:
        chosen = certified_strata(program, dtype=str(dtype).removeprefix("torch."), gate=gate)
    elif isinstance(constants, Constants):
        chosen = [constants] * len(strata)
    else:
        raise wrong("constants", "Constants, for example Constants.paper()", constants)
    wide = dtype if dtype.itemsize >= 4 else torch.float32
    parts = []
    for stratum, each in zip(strata, chosen, strict=True):
        closed = ClosedForm(stratum.program, each, head_sharing=head_sharing)
        size = stratum.program.R * stratum.program.M
        dense = form == "dense" or (form == "auto" and size <= _FASTER_DENSE_UP_TO)
        if dense:
            refuse_if_too_large(stratum.program.R, stratum.program.M, wide, device)
        rules = closed_form_rules(stratum.program, each, wide)
        part = closed_form_model(
            rules.to_dense() if dense else rules,
            closed,
            wide,
            gate_kind=gate,
            gradient=gradient,
            kernel=kernel,
            program=stratum.program,
        )
        parts.append(part)
    model = parts[0] if program.definite else LatentGamma.from_strata(parts, program)
    return model.to(device=device, dtype=dtype)


def closed_form_model(
    rules: AbstractRules, closed: ClosedForm, dtype: torch.dtype, **options: Any
) -> LatentGamma:
    """Return the model of these rules with the parameters of a closed form, on the CPU."""
    with torch.device("cpu"):  # written down on the host, and moved as a whole
        return LatentGamma(
            rules,
            threshold=torch.tensor(closed.threshold, dtype=dtype),
            sharpness=torch.tensor(closed.sharpness, dtype=dtype),
            confidence=torch.tensor(closed.confidence, dtype=dtype),
            gain=torch.tensor(closed.gain, dtype=dtype),
            offset=torch.tensor(closed.offset[rules.own_atoms], dtype=dtype),
            gate=torch.tensor(closed.constants.gate, dtype=dtype),
            **options,
        )


def model_of_raw(rules: AbstractRules, raw: Mapping[str, Tensor], **options: Any) -> LatentGamma:
    """Return the model with these rules, and its other parameters as they are stored, bit by bit."""
    one = torch.ones_like(raw["gain_raw"])
    R = len(raw["threshold"])
    model = LatentGamma(
        rules,
        threshold=raw["threshold"],
        offset=raw["offset"],
        sharpness=one.expand(R),
        confidence=(one / 2).expand(R),
        gain=one,
        gate=2 * one,
        **options,
    )
    with torch.no_grad():
        for name, values in raw.items():
            getattr(model, name).copy_(values)
    return model


def closed_form_rules(program: Program, constants: Constants, dtype: torch.dtype) -> SparseRules:
    """Return the sparse rules of a program with the logits of the closed form, on the CPU."""
    bodies, heads, R = len(program.body_indices), len(program.head_indices), program.R

    def full(count: int, value: float) -> Tensor:
        return torch.full((count,), value, dtype=dtype, device="cpu")

    return SparseRules(
        SparseRules.literals_of(program),
        M=program.M,
        body_logits=full(bodies, constants.body),
        body_background=full(R, -constants.body),
        head_logits=full(heads, constants.head),
        head_background=full(R, 0.0),
    )


def refuse_if_too_large(
    R: int, M: int, dtype: torch.dtype, device: torch.device | str | None
) -> None:
    """Raise a ModelError if the dense form of R rules over M atoms does not fit in memory."""
    # Logits and weights, of bodies and of heads.
    needed = 4 * R * M * dtype.itemsize
    if device is not None and torch.device(device).type == "cuda":
        available = torch.cuda.mem_get_info(device)[0]
    else:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise ModelError(
            f"the dense form of this program needs {byte_size(needed)}, and there are "
            f'{byte_size(available)}; use form="sparse"'
        )
