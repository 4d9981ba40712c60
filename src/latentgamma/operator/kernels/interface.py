"""What every kernel takes and returns, which kernel runs a call, and its autograd function."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from latentgamma.engine.tensors import can_leave_torch, differentiable, has_triton
from latentgamma.operator.rules import (
    Literals,
    SparseRules,
    StepParameters,
    margin_at_one,
)
from latentgamma.program.compilation import paused_collector

T = TypeVar("T")

# ---- What was computed from the values of a model, kept while none of them has changed


class ValueCache:
    """Keeps what was computed from some values, with a copy of these. A copy of it starts empty.

    The values are compared: a version counter does not see changes made through `p.data`.
    """

    def __init__(self) -> None:
        # The values, and what was computed from them.
        self._entry: tuple[list[Tensor], dict[Hashable, Any]] | None = None

    def kept(self, key: Hashable) -> tuple[Any, list[Tensor]] | None:
        """Return what is kept under this key, and the values (`joined_values`) that it is for.

        None where there is none yet. Whether the values are still the same is for the caller to see.
        """
        entry = self._entry
        return None if entry is None or key not in entry[1] else (entry[1][key], entry[0])

    def get(
        self,
        key: Hashable,
        tensors: Iterable[Tensor],
        compute: Callable[[], T],
        in_any_process: Callable[[bool], bool] = bool,
    ) -> T:
        """Return what is kept for this key and these values, computed where there is none yet.

        Processes that share a model compute it together, if it has changed in any of them.
        """
        now = joined_values(tensors)
        entry = self._entry  # read once: another thread may replace it
        if entry is None or not are_same(entry[0], now):
            entry = copies_of(now), {}
        if in_any_process(key not in entry[1]) or key not in entry[1]:
            found = compute()
            self._entry = entry[0], {**entry[1], key: found}
            return found
        kept: T = entry[1][key]
        return kept

    def __reduce__(self) -> tuple[type[ValueCache], tuple[()]]:
        return ValueCache, ()


def are_same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Return whether these tensors have the same dtypes, devices and values."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )


def copies_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return copies without gradients."""
    return [tensor.detach().clone() for tensor in tensors]


def joined_values(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return all values: on the CPU as they are, elsewhere as one flat tensor for each dtype.

    Each comparison on a device has to be waited for, so there should be few.
    """
    values = list(tensors)
    if all(value.is_cpu for value in values):
        return values
    values = [value.detach() for value in values]
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for value in values:
        kinds.setdefault((value.dtype, value.device), []).append(value.reshape(-1))
    return [torch.cat(parts) for parts in kinds.values()]


# ---- The literals of the rules as compressed rows


@dataclass(frozen=True, eq=False)
class LiteralRows:
    """The literals sorted by rule; `body_place` and `head_place` say where they stood before."""

    M: int
    R: int
    body_place: Tensor  # (literals,)
    body_rule: Tensor  # (literals,)
    body_start: Tensor  # (R + 1,)
    body_atom: Tensor  # (literals,)
    head_place: Tensor  # (head literals,)
    head_rule: Tensor  # (head literals,)
    head_start: Tensor  # (R + 1,)
    head_atom: Tensor  # (head literals,)
    #: The same in the form that a kernel needs, by the name of the kernel.
    kernel_form: dict[str, Any] = field(default_factory=dict)


def make_literal_rows(literals: Literals, *, M: int, R: int) -> LiteralRows:
    """Return the literals as compressed rows."""
    largest = max(M, R, len(literals.body_rule), len(literals.head_rule))
    dtype = torch.int32 if largest < 2**31 - 1 else torch.int64

    def rows(rule: Tensor, atom: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        place = torch.argsort(rule, stable=True)
        ends = torch.bincount(rule, minlength=R).cumsum(0)
        start = torch.cat([ends.new_zeros(1), ends])
        return place.to(dtype), rule[place].to(dtype), start.to(dtype), atom[place].to(dtype)

    body = rows(literals.body_rule, literals.body_atom)
    return LiteralRows(M, R, *body, *rows(literals.head_rule, literals.head_atom))


_ROWS: WeakKeyDictionary[SparseRules, tuple[object, list[Tensor], LiteralRows]] = (
    WeakKeyDictionary()
)


def literal_rows_of(rules: SparseRules) -> LiteralRows:
    """Return the literals of these rules as compressed rows, sorted again when they change."""
    literals = rules.literals()
    version = tuple([(x.data_ptr(), x._version, x.numel()) for x in literals])
    cached = _ROWS.get(rules)
    # Values on a GPU are not compared: that would have to wait for the device.
    same = cached is not None and cached[0] == version
    if cached is None or not same or (rules.body_rule.is_cpu and not are_same(cached[1], literals)):
        rows = make_literal_rows(literals, M=rules.M, R=rules.R)
        cached = _ROWS[rules] = version, copies_of(literals), rows
    return cached[2]


# ---- The coefficients of a step: the parameters multiplied out, as kernels use them


#: The ten parameters of a sparse model as they are stored: body logits and their background, head
#: logits and theirs, threshold, sharpness, confidence, gain, offset, gate.
Stored: TypeAlias = tuple[Tensor, ...]


class Coefficients(NamedTuple):
    """The coefficients of a step, or their gradients; in compiled loops as arrays.

    With m = 1 − s, a step is a_j = σ(margin_j − body_background_j Σ_i m_i − Σ_p body_weight_p m_p),
    φ_i = Σ_j head_background_j a_j + Σ_p head_weight_p a_p − offset_i, and the gate and the update
    as they stand. The two totals over all atoms and all rules are taken in float64.
    """

    margin: Tensor  # (R,) τ_j (Σ_i u_ji − b_j)
    body_background: Tensor  # (R,) τ_j times the background of the body
    body_weight: Tensor  # (literals,) τ_j times the weights over the background, by rule
    head_background: Tensor  # (R,) the amplitude times the background of the head
    head_weight: Tensor  # (head literals,) the amplitude times the weights over it, by rule
    offset: Tensor  # (M,) θ
    gate: Tensor  # () β


def make_coefficients(
    rows: LiteralRows, parameters: StepParameters, dtype: torch.dtype
) -> Coefficients:
    """Return the coefficients, computed in float64 and rounded once."""
    sharpness, amplitude = parameters.sharpness.double(), parameters.amplitude.double()
    body = parameters.body.index_select(0, rows.body_place)
    head = parameters.head.index_select(0, rows.head_place)
    return Coefficients(
        margin=(sharpness * margin_at_one(parameters, torch.float64)).to(dtype),
        body_background=(sharpness * parameters.body_off).to(dtype),
        body_weight=(sharpness.index_select(0, rows.body_rule) * body).to(dtype),
        head_background=(amplitude * parameters.head_off).to(dtype),
        head_weight=(amplitude.index_select(0, rows.head_rule) * head).to(dtype),
        offset=parameters.offset.to(dtype),
        gate=parameters.gate.to(dtype),
    )


# ---- What a kernel for one kind of device implements


class Kernel(Protocol):
    """Runs the steps of a `FusedSteps` on a batch (B, M), forwards and backwards.

    `read` are the parameters of a step in the kernel's own form.
    """

    def read(self, run: FusedSteps, stored: Stored, dtype: torch.dtype) -> Any:
        """Return the parameters of a step in this kernel's form, for states of this dtype."""

    def read_backward(
        self, run: FusedSteps, read: Any, stored: Stored, grads: Coefficients
    ) -> Stored:
        """Return the gradients of the parameters, from those of the coefficients."""

    def forward(
        self, run: FusedSteps, read: Any, state: Tensor, *, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the last state (B, M); and, to keep, all T + 1 states in an order of its own."""

    def trajectory(self, run: FusedSteps, kept: Tensor, batch: int) -> Tensor:
        """Return all states that `forward` kept. (T + 1, B, M)."""

    def backward(
        self, run: FusedSteps, read: Any, kept: Tensor, grad: Tensor, *, learn: bool
    ) -> tuple[Tensor, Coefficients | None]:
        """Return the gradient of the first state (B, M); and, to learn, of the coefficients.

        `grad` (1, B, M) is the gradient of the last state, or (T + 1, B, M) of every one.
        """


# ---- Runs on a CUDA device as recorded graphs: one launch by the host instead of one per kernel

#: Values of the largest input that is recorded. Beyond that the kernels take longer than the host,
#: and the memory that a graph keeps is no longer small.
MOST_VALUES = 1 << 24
#: Graphs that are kept.
_MOST = 16
#: After this many other runs a graph that was not used makes room for a new one.
_UNUSED = 200
#: Kinds of runs that are remembered as seen.
_MOST_SEEN = 1000

#: What is recorded: it reads its arguments, and memory that it holds itself.
Function: TypeAlias = Callable[..., tuple[Tensor, ...]]


@dataclass(eq=False)
class _Recorded:
    """A graph, the tensors that it reads and writes, and when it was used last."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    results: tuple[Tensor, ...]
    done: torch.cuda.Event
    function: Function  # it holds what else the graph reads
    used: int = 0


class RecordedRuns:
    """Runs that differ in their inputs only, recorded when one of a kind comes the second time.

    A copy starts with none.
    """

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._runs: OrderedDict[Hashable, _Recorded] = OrderedDict()  # the last used last
        self._count = 0
        self._lock = threading.Lock()

    def run(
        self, key: Hashable, function: Function, inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return function(*inputs), which depends on nothing but `key` and the inputs."""
        if _values(inputs) > MOST_VALUES or inputs[0].device.index != torch.cuda.current_device():
            return function(*inputs)
        # While the caller records a graph of its own, this becomes a part of it.
        if torch.cuda.is_current_stream_capturing():
            return function(*inputs)
        key = key, *((x.shape, x.dtype) for x in inputs)
        with self._lock, torch.no_grad():
            self._count += 1
            recorded = self._runs.get(key)
            if recorded is None:
                if not self._is_worth_it(key):
                    return function(*inputs)
                recorded = self._runs[key] = _record(function, inputs)
            recorded.used = self._count
            self._runs.move_to_end(key)
            recorded.done.wait()  # another stream may still read the results of the last run
            for kept, given in zip(recorded.inputs, inputs, strict=True):
                kept.copy_(given)
            recorded.graph.replay()
            results = tuple(result.clone() for result in recorded.results)
            recorded.done.record()
            return results

    def _is_worth_it(self, key: Hashable) -> bool:
        """Return whether to record this kind of run now, perhaps in place of an older one."""
        if key not in self._seen:
            if len(self._seen) == _MOST_SEEN:
                self._seen.clear()
            self._seen.add(key)
            return False
        if len(self._runs) == _MOST:
            oldest = next(iter(self._runs))
            if self._count - self._runs[oldest].used < _UNUSED:
                return False
            del self._runs[oldest]
        return True

    def __reduce__(self) -> tuple[type[RecordedRuns], tuple[()]]:
        return RecordedRuns, ()


def _values(tensors: Sequence[Tensor]) -> int:
    return max((tensor.numel() for tensor in tensors), default=0)


def _record(function: Function, inputs: Sequence[Tensor]) -> _Recorded:
    with torch.inference_mode(False):  # later runs may come outside of that mode
        given = copies_of(inputs)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function(*given)  # what is allocated or compiled once must not be part of the graph
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile. No other graph may be freed.
    with paused_collector(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = function(*given)
    return _Recorded(graph, given, results, torch.cuda.Event(), function)  # type: ignore[no-untyped-call]


# ---- T steps of the sparse form through a kernel, as functions that autograd can differentiate


@dataclass(frozen=True)
class FusedSteps:
    """How to run T steps: everything about them but the state."""

    kernel: Kernel
    rows: LiteralRows
    #: From the parameters as they are stored to those that a step uses, in plain torch.
    read_plainly: Callable[[Stored], StepParameters]
    step_plainly: Callable[[StepParameters, Tensor], Tensor]
    steps: int
    bump: bool
    #: How many of the steps each example takes (B,); None for all of them.
    counts: Tensor | None
    #: The parameters that may need gradients; none inside `fixed()`.
    stored: Stored
    #: What the kernel read of the parameters before; None where it reads them in each run.
    known: Any = None
    #: Where runs on a GPU are recorded, and what they depend on besides tensors and steps.
    recorded: RecordedRuns | None = None
    key: Hashable = None

    def final(self, state: Tensor) -> Tensor:
        """Return the state after all steps. (…, M)."""
        if state.dim() != 2:
            batch = state.reshape(math.prod(state.shape[:-1]), self.rows.M)
            return self.final(batch).reshape(state.shape)
        return self._run(state, every=False)

    def trajectory(self, state: Tensor) -> Tensor:
        """Return every state of the run, the first one included. (T + 1, …, M)."""
        batch = state.reshape(math.prod(state.shape[:-1]), self.rows.M)
        return self._run(batch, every=True).reshape(self.steps + 1, *state.shape)

    def _run(self, state: Tensor, *, every: bool) -> Tensor:
        """Return the last state of a batch, or `every` state, differentiable."""
        tensors, read = (state, *self.stored), self.known
        wanted = [x.requires_grad for x in tensors]
        differentiated = torch.is_grad_enabled() and any(wanted)
        with torch.no_grad():
            if self.recorded is not None and not every and (read is None or not differentiated):
                last, kept = self._forward_recorded(state, keep=differentiated)
            else:
                read = self.kernel.read(self, self.stored, state.dtype) if read is None else read
                last, kept = self.kernel.forward(self, read, state, keep=every or differentiated)
            result = last
            if every:
                assert kept is not None  # keep=True
                result = self.kernel.trajectory(self, kept, len(last))
        if not differentiated:
            return result

        def gradients(arriving: Tensor, kept: Tensor) -> Sequence[Tensor]:
            grad = arriving if every else arriving[None]  # (1 or T + 1, B, M)
            backward = self._backward_recorded if read is None else partial(self._backward, read)
            found = backward(kept, grad, learn=any(wanted[1:]))
            return [x for x, want in zip(found, wanted, strict=False) if want]

        def again(tensors: Sequence[Tensor]) -> Tensor:
            if len(tensors) == 1:
                raise RuntimeError(
                    "the gradient of a model inside `fixed()` cannot be differentiated again; "
                    "leave fixed()"
                )
            states = self.run_plainly(tensors[0], tuple(tensors[1:]))
            return torch.stack(states) if every else states[-1]

        assert kept is not None  # keep=True
        return differentiable(result, gradients, again, tensors, [kept])

    def _backward(
        self, read: Any, kept: Tensor, grad: Tensor, *, learn: bool
    ) -> tuple[Tensor, ...]:
        """Return the gradients of the state and, to learn, of the parameters."""
        by_state, sums = self.kernel.backward(self, read, kept, grad, learn=learn)
        if sums is None:
            return (by_state,)
        return by_state, *self.kernel.read_backward(self, read, self.stored, sums)

    def _forward_recorded(self, state: Tensor, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Return what the kernel's `forward` does, from a graph that reads the parameters itself."""

        def function(state: Tensor, *counts: Tensor) -> tuple[Tensor, ...]:
            run, read = replace(self, counts=_first_or_none(counts)), self.known
            read = self.kernel.read(run, self.stored, state.dtype) if read is None else read
            last, kept = self.kernel.forward(run, read, state, keep=keep)
            return (last,) if kept is None else (last, kept)

        last, *kept = self._run_recorded(("forward", keep), function, state)
        return last, _first_or_none(kept)

    def _backward_recorded(self, kept: Tensor, grad: Tensor, *, learn: bool) -> tuple[Tensor, ...]:
        """Return what `_backward` does, from a recorded graph."""

        def function(grad: Tensor, kept: Tensor, *counts: Tensor) -> tuple[Tensor, ...]:
            run = replace(self, counts=_first_or_none(counts))
            read = self.kernel.read(run, self.stored, grad.dtype)
            by_state, *by_parameter = run._backward(read, kept, grad, learn=learn)
            # As one tensor: each result costs the host a launch.
            joined = [torch.cat([x.reshape(-1) for x in by_parameter])] if by_parameter else []
            return by_state, *joined

        by_state, *joined = self._run_recorded(("backward", learn), function, grad, kept)
        if not joined:
            return (by_state,)
        parts = torch.split(joined[0], [x.numel() for x in self.stored])
        # All but two parameters are vectors already.
        same = (
            p if x.dim() == 1 else p.view_as(x) for p, x in zip(parts, self.stored, strict=True)
        )
        return by_state, *same

    def _run_recorded(
        self, kind: Hashable, function: Function, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """Return function(*inputs), with the counts as a last input where there are any."""
        assert self.recorded is not None
        if self.counts is not None:
            inputs = *inputs, self.counts
        return self.recorded.run((kind, self.key, self.steps), function, inputs)

    def run_plainly(self, state: Tensor, stored: Stored) -> list[Tensor]:
        """Return every state of the run in plain torch, which can be differentiated repeatedly."""
        states, read = [state], self.read_plainly(stored)
        for t in range(self.steps):
            after = self.step_plainly(read, state)
            if self.counts is not None:
                after = torch.where((t < self.counts)[:, None], after, state)
            state = after
            states.append(state)
        return states


def _first_or_none(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return the one tensor, or None."""
    return tensors[0] if tensors else None


# ---- Which kernel runs a model on a state

#: Programs with fewer atoms, rules and literals than this do without compiled code, and without
#: the second that loading it takes. The size of a batch does not matter: an example's value must not
#: depend on the others of its batch.
LEAST_SIZE = 128


def kernel_for(rules: SparseRules, state: Tensor, parameters: Sequence[Tensor]) -> Kernel | None:
    """Return the kernel that runs these rules on this state, or None where plain torch has to.

    What is traced, mapped or carries a forward derivative stays with plain torch, and so do
    sixteen-bit states. The two differ by rounding, so nothing but the call may decide.
    """
    if rules.M + rules.R + rules.body_rule.numel() < LEAST_SIZE:
        return None
    if state.dtype not in (torch.float32, torch.float64):
        return None
    every = (state, *parameters)
    if not can_leave_torch(*every):
        return None
    if rules.body_rule.is_cpu and all(t.is_cpu for t in every):
        return _cpu_kernel()
    if state.dtype != torch.float32 or not all(t.is_cuda for t in (*every, rules.body_rule)):
        return None
    return _cuda_kernel()


@cache
def _cpu_kernel() -> Kernel:
    with paused_collector():
        from latentgamma.operator.kernels import cpu_launch
    return cpu_launch


@cache
def _cuda_kernel() -> Kernel | None:
    if not has_triton():
        return None
    from latentgamma.operator.kernels import cuda_launch

    return cuda_launch
