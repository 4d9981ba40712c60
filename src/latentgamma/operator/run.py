"""Runs a number of steps: which code runs it, what is kept for the backward pass, and gradients."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from latentgamma.certificate.constants import PROVED_GATES, Gate
from latentgamma.engine.circuit import compile_circuit
from latentgamma.engine.execute import KernelChoice, MinMax
from latentgamma.engine.tensors import (
    are_plain,
    can_be_rerun,
    differentiable,
    held_log,
    outside_transforms,
)
from latentgamma.errors import ModelError
from latentgamma.operator.kernels.interface import (
    MOST_VALUES,
    Coefficients,
    FusedSteps,
    Kernel,
    LiteralRows,
    RecordedRuns,
    Stored,
    ValueCache,
    are_same,
    copies_of,
    kernel_for,
    literal_rows_of,
)
from latentgamma.operator.rules import (
    AbstractRules,
    Literals,
    SparseRules,
    StepParameters,
    Weights,
    exact_product,
    fire,
    gate,
    is_bump,
    margin_at_one,
    match,
    program_of,
    route,
    update,
)

T = TypeVar("T")

# ---- Parameters kept in a domain by construction: any finite raw value stands for one inside it
# Values are computed in float64 and rounded once to the dtype of the raw ones, so that plain torch,
# the kernels and a certificate read the same numbers.
#
# `torch.nn.utils.parametrize` would do the same, but a module that uses it cannot be pickled.


def positive(raw: Tensor) -> Tensor:
    """Return log(1 + eˣ), which is positive; the smallest positive number if it underflows."""
    # From 40 on the logarithm is x itself to the last digit.
    value = softplus(raw.double(), threshold=40.0)
    return value.clamp(min=torch.finfo(raw.dtype).tiny).to(raw.dtype)


def above_one(raw: Tensor) -> Tensor:
    """Return 1 + log(1 + eˣ), at least the next number above 1."""
    value = 1 + softplus(raw.double(), threshold=40.0)
    return value.clamp(min=1 + torch.finfo(raw.dtype).eps).to(raw.dtype)


def open_unit(raw: Tensor) -> Tensor:
    """Return σ(x), strictly between 0 and 1."""
    limits = torch.finfo(raw.dtype)
    return torch.sigmoid(raw.double()).clamp(limits.tiny, 1 - limits.eps).to(raw.dtype)


def raw_above(name: str, value: Tensor, floor: float) -> Tensor:
    """Return the raw values behind values above a floor: the inverse of `positive` or `above_one`.

    Raises:
        ModelError: a value is not a finite number above the floor.
    """
    excess = value.detach().double() - floor
    if not bool((excess > 0).all()) or not bool(excess.isfinite().all()):
        raise ModelError(f"{name} must be a finite number above {floor:g}")
    return (excess + torch.log(-torch.expm1(-excess))).to(value.dtype)


def raw_open_unit(name: str, value: Tensor) -> Tensor:
    """Return the raw values behind values between 0 and 1: the inverse of `open_unit`.

    Raises:
        ModelError: a value is not strictly between 0 and 1.
    """
    wide = value.detach().double()
    if not bool(((wide > 0) & (wide < 1)).all()):
        raise ModelError(f"{name} must lie strictly between 0 and 1")
    return torch.logit(wide).to(value.dtype)


# ---- Parameters as they were at one moment, and whether a model uses them instead of its own


@dataclass(eq=False)
class FixedParameters:
    """A copy of a model's parameters, as a step uses and as `Runner.stored` returns them.

    With it goes what was computed from it once.
    """

    step_parameters: StepParameters
    stored: Stored
    certificates: ValueCache = field(default_factory=ValueCache)
    recorded_runs: RecordedRuns = field(default_factory=RecordedRuns)
    #: Coefficients, which depend on no value that may change.
    read: ValueCache = field(default_factory=ValueCache)


class FixedState:
    """Whether this thread or task is inside `fixed()`, and the parameters that it then uses.

    Contexts may be nested: the outermost one reads the parameters. A copy of a model starts
    outside.
    """

    def __init__(self) -> None:
        self._current: ContextVar[FixedParameters | None] = ContextVar("fixed", default=None)
        self._open = 0  # in all threads; torch.compile can read this, but no context variable
        self._lock = threading.Lock()

    @property
    def current(self) -> FixedParameters | None:
        """The parameters to use; None outside."""
        return self._current.get() if self._open else None

    @contextmanager
    def enter(self, read: Callable[[], FixedParameters]) -> Iterator[None]:
        """Use the parameters that `read` returns until the context ends, unless already inside."""
        token = self._current.set(self.current or read())
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
            self._current.reset(token)

    def __reduce__(self) -> tuple[type[FixedState], tuple[()]]:
        return FixedState, ()


# ---- Many steps that keep only states, and run each step again in the backward pass
# `torch.utils.checkpoint` is not used: its first call imports `torch._dynamo`, which takes a second.

#: One step: the tensors it computes with, and a state; the next state comes back.
Step: TypeAlias = Callable[[Sequence[Tensor], Tensor], Tensor]


def run_keeping_states(step: Step, given: Sequence[Tensor], steps: int, *, every: bool) -> Tensor:
    """Return the last state, or every one, (T + 1, …, M). The backward pass runs each step again.

    `given` are the first state and the tensors that a step computes with.
    """

    def run(given: Sequence[Tensor]) -> list[Tensor]:
        states = [given[0]]
        for _ in range(steps):
            states.append(step(given[1:], states[-1]))
        return states

    def result(states: list[Tensor]) -> Tensor:
        return torch.stack(states) if every else states[-1]

    def gradients(arriving: Tensor, *states: Tensor) -> list[Tensor]:
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in given[1:]]
        wanted = [x for x in inputs if x.requires_grad]
        sums: list[Tensor] = []
        slope = arriving[-1] if every else arriving
        for t in reversed(range(steps)):
            before = states[t].detach().requires_grad_()
            with torch.enable_grad():
                after = step(inputs, before)
            slope, *parts = torch.autograd.grad(
                after, [before, *wanted], slope, materialize_grads=True
            )
            sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
            slope = slope + arriving[t] if every else slope
        return [slope, *sums] if given[0].requires_grad else sums

    with torch.no_grad():
        states = run(given)
        last = result(states)
    return differentiable(last, gradients, lambda given: result(run(given)), given, states[:-1])


# ---- The slope of the proof gradient: that of the min/max closure of the same state


def wants_slope(state: Tensor) -> bool:
    """Return whether a derivative in this state may be asked for."""
    if not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling() or are_plain(state):
        return state.requires_grad
    return True


@dataclass(frozen=True, eq=False)
class ProofClosure:
    """The min/max closure from all atoms to all atoms, and the literals it was made from."""

    literals: Literals
    closure: MinMax

    def slope(self, state: Tensor, kernel: KernelChoice) -> Tensor:
        """Return zeros with the slope of the min/max closure of a state. (…, M).

        See `latentgamma.engine.reference` for what that slope is.
        """
        flat = state.reshape(-1, state.shape[-1])
        plain = kernel == "reference"
        closed: Tensor = self.closure(flat, 0.0, hard=True, values=True, plain=plain)
        values = closed.reshape(state.shape)
        return values - values.detach()


def proof_closure(rules: AbstractRules, held: ProofClosure | None) -> ProofClosure:
    """Return the closure of these rules as they are now: the one held if literals are the same."""
    literals = rules.all_literals()
    if held is not None and are_same(held.literals, literals):
        return held
    atoms = np.arange(rules.M)
    circuit = compile_circuit(program_of(literals, rules.total, rules.M)[0], atoms, atoms)
    return ProofClosure(
        Literals(*copies_of(literals)), MinMax(circuit).to(literals.body_atom.device)
    )


# ---- The log-odds of the last state of a run, computed in the log domain
# With u_t = g Γ, the part of the way to one that an atom goes in step t,
#
#     1 − s_T = (1 − s_0) Π_t (1 − u_t)    and    s_T = s_0 + Σ_t (1 − s_t) u_t,
#
# all terms positive. log u and log(1 − u) follow from the evidence φ without a difference of near
# numbers, so the log-odds have their digits, and their gradient its size, where the state itself is
# 1e-30 or rounds to one.


def log_odds_after(
    state: Tensor, evidence: Sequence[Tensor], kind: Gate, gate: Tensor, odds: Tensor | None = None
) -> Tensor:
    """Return log(s_T / (1 − s_T)) of a run from s_0 = `state` with this evidence φ per step. (…, M).

    `odds` are the log-odds of s_0, where they are known with more digits than the state has.
    """
    if odds is None:
        terms, rest = [held_log(state)], held_log(1 - state)  # log s_0, log(1 − s_t)
    else:
        terms, rest = [logsigmoid(odds)], logsigmoid(-odds)
    for phi in evidence:
        share, remainder = _log_share(kind, gate.to(phi.dtype), phi)
        terms.append(rest + share)
        rest = rest + remainder
    return torch.logsumexp(torch.stack(terms), 0) - rest


def _log_share(kind: Gate, gate: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Log u and log(1 − u) of u = g Γ."""
    if not is_bump(kind):
        opened, closed = logsigmoid(gate * phi), logsigmoid(-gate * phi)
    else:
        # exp(−1/x²); below 1e-3 that is 0 in every dtype.
        x = torch.clamp(gate * phi, min=1e-3)
        opened = -1 / (x * x)
        closed = held_log(-torch.expm1(opened))
    through = logsigmoid(phi)
    return opened + through, torch.logaddexp(logsigmoid(-phi), through + closed)


# ---- Steps of small rules as products of two matrices


def matrix_coefficients(
    rules: AbstractRules, parameters: StepParameters, dtype: torch.dtype
) -> Coefficients:
    """Return the coefficients of small rules as matrices, differentiable in the parameters.

    `body_weight` is (M, R) and `head_weight` (R, M), with the backgrounds in them.
    """
    body, head = rules.matrices(parameters)
    sharpness, amplitude = parameters.sharpness.to(dtype), parameters.amplitude.to(dtype)
    margin = margin_at_one(parameters, torch.float64)  # (R,)
    none = sharpness.new_empty(0)
    return Coefficients(
        margin=(parameters.sharpness.double() * margin).to(dtype),
        body_background=none,
        body_weight=body.T.to(dtype) * sharpness,
        head_background=none,
        head_weight=head.to(dtype) * amplitude[:, None],
        offset=parameters.offset.to(dtype),
        gate=parameters.gate.to(dtype),
    )


def matrix_evidence(
    c: Coefficients, missing: Tensor, product: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return the evidence for each atom from what is missing, 1 − s, by matrix products. (…, M)."""
    activation = torch.sigmoid(c.margin - product(missing, c.body_weight))
    return product(activation, c.head_weight) - c.offset


def matrix_states(
    c: Coefficients,
    state: Tensor,
    steps: int,
    product: Callable[[Tensor, Tensor], Tensor],
    *,
    kind: Gate,
) -> Iterator[Tensor]:
    """Yield the states after each step, from the coefficients as matrices. (…, M)."""
    one = torch.ones_like(c.gate)  # a tensor: a number would take three times as long
    for _ in range(steps):
        missing = one - state
        state = state + missing * gate(kind, c.gate, matrix_evidence(c, missing, product))
        yield state


# ---- Runs of several steps: through a kernel where there is one, otherwise in plain torch

#: Values of atoms, rules and literals in a run up to which the forward pass keeps everything, and not
#: only the states: at most a few megabytes, and computing each step again would take longer than the
#: rest.
_KEPT_WHOLE = 1 << 15


# The names under which the parameters of a model and of its rules are read.
_PARAMETERS = (
    "body_logits",
    "body_background",
    "head_logits",
    "head_background",
    "threshold",
    "sharpness_raw",
    "confidence_raw",
    "gain_raw",
    "offset",
    "gate_raw",
)


def plain_parameters(part: nn.Module) -> list[str]:
    """Return the parameters that are other tensors here: something else computes and changes them."""
    have = part.__dict__
    return [name for name in _PARAMETERS if name in have]


def values_of(module: nn.Module) -> list[Tensor]:
    """Return all parameters and buffers, and what is computed of them and read in their place.

    Much faster than `parameters()` and `buffers()`.
    """
    parts = list(module.modules())
    stored = [x for part in parts for x in (*part._parameters.values(), *part._buffers.values())]
    values = [x for x in stored if x is not None]
    for part in parts:
        values += [getattr(part, name) for name in plain_parameters(part)]
        computed = part._modules.get("parametrizations")  # they can depend on more than parameters
        if computed is not None:
            values += [getattr(part, name) for name in computed._modules]
    return values


def read_step_parameters(
    rules: AbstractRules, weights: Weights, others: Sequence[Tensor]
) -> StepParameters:
    """Return the parameters as a step uses them, from the weights and the others as they are stored."""
    threshold, sharpness, confidence, gain, offset, gate = others
    gain, gate = rules.shared(positive(gain), above_one(gate))
    return StepParameters(
        *weights, threshold, positive(sharpness), gain * open_unit(confidence), offset, gate
    )


@dataclass(frozen=True)
class Runner:
    """The rules and the parameters of a run.

    `model` has the raw parameters as attributes; they are not read where `fixed` is given.
    On a GPU, runs are recorded in `recorded_runs`, if that is given.
    """

    rules: AbstractRules
    gate_kind: Gate
    model: Any
    fixed: FixedParameters | None
    use_kernels: bool
    recorded_runs: RecordedRuns | None
    cache: ValueCache

    def step_parameters(self) -> StepParameters:
        """Return the parameters as a step uses them, differentiable unless they are fixed."""
        if self.fixed is not None:
            return self.fixed.step_parameters
        return read_step_parameters(self.rules, self.rules.read(), self._others())

    def stored(self) -> Stored:
        """Return the parameters of a sparse model as they are stored; none of other forms."""
        if self.fixed is not None:
            return self.fixed.stored
        return (
            (*self.rules.logits(), *self._others()) if isinstance(self.rules, SparseRules) else ()
        )

    def _others(self) -> tuple[Tensor, ...]:
        """Return the parameters besides those of the rules, as they are stored."""
        m = self.model
        return m.threshold, m.sharpness_raw, m.confidence_raw, m.gain_raw, m.offset, m.gate_raw

    # ---- One step

    def prepare(self, dtype: torch.dtype) -> StepParameters | Coefficients:
        """Return what `step` takes for states of this dtype: coefficients if the rules are small."""
        if not self.rules.small or self.gate_kind not in PROVED_GATES:
            return self.step_parameters()
        wide = torch.promote_types(dtype, torch.float32)
        return self._kept(
            ("matrices", wide),
            lambda: matrix_coefficients(self.rules, self.step_parameters(), wide),
        )

    def step(self, given: StepParameters | Coefficients, state: Tensor) -> Tensor:
        """Return the state after one step in plain torch. (…, M)."""
        return next(self._steps(given, state, 1))

    def _steps(
        self, given: StepParameters | Coefficients, state: Tensor, steps: int
    ) -> Iterator[Tensor]:
        """Yield the states after each step in plain torch. (…, M)."""
        if isinstance(given, Coefficients) and state.dtype.itemsize >= 4:
            yield from matrix_states(given, state, steps, self._product, kind=self.gate_kind)
            return
        for _ in range(steps):
            # Sixteen-bit states are stored as such and computed with in float32.
            wide = state.to(torch.promote_types(state.dtype, torch.float32))
            share = gate(self.gate_kind, given.gate, self.evidence(given, wide))
            state = update(wide, share).to(state.dtype)
            yield state

    def evidence(self, given: StepParameters | Coefficients, state: Tensor) -> Tensor:
        """Return φ, the evidence for each atom. (…, M)."""
        if isinstance(given, Coefficients):
            return matrix_evidence(given, 1 - state, self._product)
        return route(self.rules, given, fire(given, match(self.rules, given, state)))

    @property
    def _product(self) -> Callable[[Tensor, Tensor], Tensor]:
        return exact_product(self.model.offset.device.type)

    def _kept(self, key: tuple[object, ...], read: Callable[[], T], *, graph: bool = True) -> T:
        """Return what `read` returns, kept while no parameter changes.

        With a `graph` that leads to the parameters, it is read anew if one of them needs a gradient.
        """
        if torch.compiler.is_compiling():
            return read()
        values = values_of(self.model) if self.fixed is None else []
        if graph and torch.is_grad_enabled() and any(value.requires_grad for value in values):
            return read()
        if not are_plain(*values):
            return read()
        with outside_transforms(), torch.no_grad():
            cache = self.cache if self.fixed is None else self.fixed.read
            return cache.get(key, values, read)

    # ---- Several steps

    def final(self, state: Tensor, steps: int, counts: Tensor | None = None) -> Tensor:
        """Return the state after `steps` applications, or after `counts` (B,) ones. (…, M)."""
        fused = self._fused(state, steps, counts)
        if fused is not None:
            return fused.final(state)
        if counts is not None:
            return self._final_of_counts(state, counts)
        return self._plainly(state, steps, every=False)

    def states(self, state: Tensor, steps: int) -> Tensor:
        """Return every state of the run, the first one included. (T + 1, …, M)."""
        fused = self._fused(state, steps)
        if fused is not None:
            return fused.trajectory(state)
        return self._plainly(state, steps, every=True)

    def _final_of_counts(self, state: Tensor, counts: Tensor) -> Tensor:
        """Return the state (B, M) after `counts` (B,) applications, in plain torch."""
        done = 0
        for count in torch.unique(counts).tolist():  # sorted
            if count == done:
                continue
            running = torch.nonzero(counts >= count).flatten()
            after = self.final(state.index_select(0, running), count - done)
            state = state.index_copy(0, running, after)
            done = count
        return state

    def _plainly(self, state: Tensor, steps: int, *, every: bool) -> Tensor:
        """Return the last state, or every one, (T + 1, …, M), in plain torch."""
        given = self.prepare(state.dtype)
        if state.is_cuda:  # as the kernels do: an exception would have to wait for the device
            state = torch.where((state >= 0) & (state <= 1), state, torch.nan)
        if steps and can_be_rerun(state, *given) and not self._is_small(state, steps):

            def step(tensors: Sequence[Tensor], before: Tensor) -> Tensor:
                return self.step(type(given)._make(tensors), before)

            return run_keeping_states(step, [state, *given], steps, every=every)
        states = self._steps(given, state, steps)
        if every:
            return torch.stack([state, *states])
        for after in states:  # no list: without gradients only the last one has to live
            state = after
        return state

    def _is_small(self, state: Tensor, steps: int) -> bool:
        """Return whether everything in a run can be kept."""
        if self.rules.sharded:  # the processes must all compute steps again, or none of them
            return False
        width = self.rules.M + self.rules.R
        if not self.rules.small:
            width += sum(index.numel() for index in self.rules.buffers())  # none in the dense form
        return steps * math.prod(state.shape[:-1]) * width <= _KEPT_WHOLE

    # ---- Kernels

    def kernel_for(self, state: Tensor, stored: Stored) -> Kernel | None:
        """Return the kernel that runs steps from this state, or None where plain torch has to."""
        if not self.use_kernels or self.gate_kind not in PROVED_GATES:
            return None
        return (
            kernel_for(self.rules, state, stored) if isinstance(self.rules, SparseRules) else None
        )

    def _fused(self, state: Tensor, steps: int, counts: Tensor | None = None) -> FusedSteps | None:
        """Return how to run these steps as one kernel, or None where plain torch has to."""
        rules = self.rules
        if steps == 0 or not isinstance(rules, SparseRules):
            return None
        stored = self.stored()
        kernel = self.kernel_for(state, stored)
        if kernel is None:
            return None
        bump = is_bump(self.gate_kind)

        def read_plainly(stored: Stored) -> StepParameters:
            return read_step_parameters(rules, rules.weights_of(*stored[:4]), stored[4:])

        def run_on(rows: LiteralRows, known: Any = None) -> FusedSteps:
            learned = stored if self.fixed is None else ()
            recorded = self._recorded(state, steps, rows, stored)
            return FusedSteps(
                kernel,
                rows,
                read_plainly,
                self.step,
                steps,
                bump,
                counts,
                learned,
                known,
                *recorded,
            )

        def read() -> tuple[LiteralRows, Any]:
            rows = literal_rows_of(rules)
            return rows, kernel.read(run_on(rows), stored, state.dtype)

        if self.fixed is None and state.is_cuda:  # there a graph reads the parameters
            return run_on(literal_rows_of(rules))
        return run_on(*self._kept(("kernel", state.dtype, bump), read, graph=False))

    def _recorded(
        self, state: Tensor, steps: int, rows: LiteralRows, stored: Stored
    ) -> tuple[RecordedRuns | None, Hashable]:
        """Return where to record a run on a GPU if that is worth its memory, and its key."""
        if not state.is_cuda or self.recorded_runs is None:
            return None, None
        kept = steps + 1 if torch.is_grad_enabled() else 1
        if state.numel() * kept > MOST_VALUES:
            return None, None
        recorded = self.recorded_runs if self.fixed is None else self.fixed.recorded_runs
        # The graph reads the parameters where they lie, so changes of their values are seen.
        key = id(rows), self.gate_kind, stored[0].dtype, *(x.data_ptr() for x in stored)
        return recorded, key
