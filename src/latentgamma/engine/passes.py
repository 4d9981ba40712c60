"""Sum-product passes in torch: values, log-probabilities, gradients and second derivatives."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentgamma.engine.exactness import COMPLEMENT, INDEPENDENT, SumProduct
from latentgamma.engine.tensors import ROUNDED_COMPLEMENT, log_complement
from latentgamma.errors import ModelError
from latentgamma.program.compilation import share_parts

# ---- Refuses the second derivative of a function whose first one is computed outside torch


def without_second_derivative(grad: Tensor, *of: Tensor) -> Tensor:
    """Return the gradient, which cannot be differentiated again with respect to `of`.

    Without this, torch takes the gradient for a constant.
    """
    return _Refusal.apply(grad, *of) if torch.is_grad_enabled() else grad  # type: ignore[no-untyped-call]


class _Refusal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, *of: Tensor) -> Tensor:
        return grad.detach()

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        raise ModelError(
            "a sum-product pass and sampled worlds have no second derivative; "
            'lg.Inference(method="table") has, where the worlds fit into its budget'
        )


# ---- Runs a sum-product pass on a batch as compiled code on the CPU

# Literals times examples below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 17


def pass_values(circuit: SumProduct, inputs: Tensor) -> Tensor:
    """Return the probability of each node, shape (B, nodes), in float64.

    Args:
        circuit: The arrays of the pass.
        inputs: Probabilities of the input nodes, shape (B, inputs).
    """
    return _Pass.apply(circuit, inputs)  # type: ignore[no-any-return,no-untyped-call]


class _Pass(torch.autograd.Function):
    """The pass as compiled code; rows are nodes, and 16 examples form a tile."""

    @staticmethod
    def forward(ctx: Any, circuit: SumProduct, inputs: Tensor) -> Tensor:
        from latentgamma.engine.passes_cpu import run_tiles

        values = _tiles(inputs.detach().to("cpu", torch.float64).numpy(), circuit.nodes)
        share_tiles(run_tiles, circuit, values)
        ctx.circuit, ctx.values = circuit, values
        ctx.save_for_backward(inputs)
        return torch.from_numpy(_examples(values, len(inputs)))

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        from latentgamma.engine.passes_cpu import gradient_tiles

        circuit: SumProduct = ctx.circuit
        grads = _tiles(grad_out.detach().to("cpu", torch.float64).numpy(), circuit.nodes)
        share_tiles(gradient_tiles, circuit, ctx.values, grads)
        (inputs,) = ctx.saved_tensors
        grad = _examples(grads[:, : circuit.inputs], len(inputs))
        result = torch.from_numpy(grad).to(inputs.device, inputs.dtype)
        return None, without_second_derivative(result, inputs, grad_out)


def _tiles(columns: np.ndarray, rows: int) -> np.ndarray:
    """Return columns of examples as the first rows of tiles; the other rows are zero."""
    from latentgamma.engine.simd import TILE

    batch, given = columns.shape
    values = np.zeros((-(-batch // TILE), rows, TILE))
    padded = np.zeros((len(values) * TILE, given))
    padded[:batch] = columns
    values[:, :given] = padded.reshape(len(values), TILE, given).transpose(0, 2, 1)
    return values


def _examples(values: np.ndarray, batch: int) -> np.ndarray:
    """Return the rows of tiles as columns of examples."""
    tiles, rows, lanes = values.shape
    return values.transpose(0, 2, 1).reshape(tiles * lanes, rows)[:batch]


def share_tiles(kernel: Callable[..., None], circuit: SumProduct, *tiles: np.ndarray) -> None:
    """Run a kernel on all tiles, in as many threads as torch uses where that is worth it.

    Args:
        kernel: `run_tiles` or `gradient_tiles`.
        circuit: The arrays of the pass.
        *tiles: The arrays of values and gradients.
    """
    arrays = circuit.rule_ptr, circuit.body_ptr, circuit.body, circuit.kind
    count = len(tiles[0])
    work = len(circuit.body) * count * tiles[0].shape[2]
    if work < _WORTH_A_THREAD or count == 1:
        kernel(0, count, circuit.inputs, *arrays, *tiles)
        return

    def run(first: int, last: int) -> None:
        kernel(first, last, circuit.inputs, *arrays, *tiles)

    share_parts(run, count, torch.get_num_threads())


# ---- Runs a sum-product pass in the log domain with torch, level by level, on any device


def pass_log_values(circuit: SumProduct, log_inputs: Tensor) -> Tensor:
    """Return the log-probability of each node, shape (B, nodes), level by level with torch.

    Args:
        circuit: The arrays of the pass.
        log_inputs: Log-probabilities of the input nodes, shape (B, inputs).
    """
    return _LogPass.apply(circuit, log_inputs)  # type: ignore[no-any-return,no-untyped-call]


class _LogPass(torch.autograd.Function):
    """The pass in the log domain. Rows are nodes sorted by level, columns are examples."""

    @staticmethod
    def forward(ctx: Any, circuit: SumProduct, log_inputs: Tensor) -> Tensor:
        levels, place = _levels_on(circuit, log_inputs.device)
        value = log_inputs.new_empty(circuit.nodes, len(log_inputs))
        value[: circuit.inputs] = log_inputs.T
        for level in levels:
            logs = level.body_logs(value)
            most = value.new_full((level.nodes, value.shape[1]), -torch.inf)
            most = most.scatter_reduce_(0, level.node[:, None].expand_as(logs), logs, "amax")
            shift = most.clamp(min=-1e300)  # keeps -inf - -inf out
            total = torch.zeros_like(most)
            total.index_add_(0, level.node, (logs - shift[level.node]).exp())
            result = total.log() + shift
            if level.independent is not None:
                none = torch.zeros_like(most).index_add_(0, level.node, log_complement(logs, 0.0))
                # Where all bodies are this unlikely, their sum is right to the last digit.
                likely = level.independent & (result > -100.0)
                result = torch.where(likely, log_complement(none, 0.0), result)
            if level.complement is not None:
                result = torch.where(level.complement, log_complement(result, 0.0), result)
            value[level.first : level.first + level.nodes] = result
        ctx.circuit, ctx.value = circuit, value
        ctx.save_for_backward(log_inputs)
        return value[place].T

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        circuit, value = ctx.circuit, ctx.value
        levels, place = _levels_on(circuit, value.device)
        grad = torch.empty_like(value)
        grad[place] = grad_out.T
        for level in reversed(levels):
            logs = level.body_logs(value)
            rows = slice(level.first, level.first + level.nodes)
            result, above = value[rows][level.node], grad[rows][level.node]  # (rules, B)
            weight = logs - result
            if level.independent is not None:
                complement = log_complement(logs, 0.0).clamp(min=-700.0)
                none = torch.zeros_like(grad[rows]).index_add_(0, level.node, complement)
                others = none[level.node] - complement
                weight = torch.where(level.independent[level.node], weight + others, weight)
            if level.complement is not None:
                above = torch.where(level.complement[level.node], -above, above)
                weight = weight.clamp(max=700.0)
            # A body without any chance has no share.
            share = torch.where(logs > -torch.inf, above * weight.exp(), 0.0)
            grad.index_add_(0, level.body, share[level.rule])
        result = grad[: circuit.inputs].T
        return None, without_second_derivative(result, *ctx.saved_tensors, grad_out)


class _Level(NamedTuple):
    """The rules of the nodes of one level, as places among the nodes sorted by level."""

    first: int  # its first node
    nodes: int
    body: Tensor  # (literals,) the node of each body literal
    rule: Tensor  # (literals,) the rule of each body literal
    node: Tensor  # (rules,) the node of each rule, from 0 within the level
    independent: Tensor | None  # (nodes, 1); None where there is no such node
    complement: Tensor | None

    def body_logs(self, value: Tensor) -> Tensor:
        """Return the log-probability of each body, shape (rules, B)."""
        logs = value.new_zeros(len(self.node), value.shape[1])
        return logs.index_add_(0, self.rule, value[self.body])


def node_levels(circuit: SumProduct) -> np.ndarray:
    """Return the level of each node: 0 for inputs, else one more than the highest in its bodies."""
    level = np.zeros(circuit.nodes, np.int64)
    for n in range(circuit.nodes - circuit.inputs):
        first, last = (
            circuit.body_ptr[circuit.rule_ptr[n]],
            circuit.body_ptr[circuit.rule_ptr[n + 1]],
        )
        parts = circuit.body[first:last]
        level[circuit.inputs + n] = 1 + (level[parts].max() if len(parts) else 0)
    return level


def _level_order(circuit: SumProduct) -> np.ndarray:
    """Return the place of each node when the nodes are sorted by level."""
    by_level = np.argsort(node_levels(circuit), kind="stable")
    place = np.empty_like(by_level)
    place[by_level] = np.arange(len(by_level))
    return place


@lru_cache(maxsize=16)
def _levels_on(circuit: SumProduct, device: torch.device) -> tuple[list[_Level], Tensor]:
    """Return the levels of a circuit on a device, and the row of each node."""
    with torch.inference_mode(False):  # these may be needed for a gradient later
        return _make_levels(circuit, device)


def _make_levels(circuit: SumProduct, device: torch.device) -> tuple[list[_Level], Tensor]:
    level, place = node_levels(circuit), _level_order(circuit)
    levels = []
    first = circuit.inputs
    for d in range(1, int(level.max(initial=0)) + 1):
        nodes = np.flatnonzero(level == d) - circuit.inputs
        rules = np.concatenate(
            [np.arange(circuit.rule_ptr[n], circuit.rule_ptr[n + 1]) for n in nodes]
        )
        owner = np.repeat(
            np.arange(len(nodes)), circuit.rule_ptr[nodes + 1] - circuit.rule_ptr[nodes]
        )
        sizes = circuit.body_ptr[rules + 1] - circuit.body_ptr[rules]
        starts = np.cumsum(sizes) - sizes
        literal = np.arange(sizes.sum()) + np.repeat(circuit.body_ptr[rules] - starts, sizes)
        kind = circuit.kind[nodes][:, None]
        body = place[circuit.body[literal]]
        rule = np.repeat(np.arange(len(rules)), sizes)
        levels.append(
            _Level(
                first,
                len(nodes),
                torch.from_numpy(body).to(device),
                torch.from_numpy(rule).to(device),
                torch.from_numpy(owner).to(device),
                *(
                    torch.from_numpy(kind == which).to(device) if (kind == which).any() else None
                    for which in (INDEPENDENT, COMPLEMENT)
                ),
            )
        )
        first += len(nodes)
    return levels, torch.from_numpy(place).to(device)


# ---- A sum-product pass from the tensors of a network to log-odds, in one step with its gradient
# The softmax or sigmoid of the inputs, the pass, and the logarithm of the outputs are compiled code
# on tiles of examples. Everything else (other devices, infinite scores, probabilities so small that
# they need the log domain) is left to plain torch.

#: What is read of an output: its probability, the logarithm of it, or its log-odds.
VALUE, LOG, LOG_ODDS = 0, 1, 2
#: Probabilities below this are computed again in the log domain: factors may have underflowed.
SMALLEST = 1e-200
#: Whether outputs were read: yes; some need the log domain; some need the node of their negation.
FILLED, NEED_LOGARITHMS, NEED_COMPLEMENTS = 0, 1, 2

#: Called where a gradient arrives and that of the inputs is zero.
Watch = Callable[[], None]


@cache
def _kernels() -> Any:
    """Return the compiled code, which is imported with the first pass."""
    from latentgamma.engine import passes_cpu

    return passes_cpu


@cache
def _cuda() -> Any:
    """Return the same for CUDA devices, or None without Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    from latentgamma.engine import passes_cuda

    return passes_cuda


class InputColumns(NamedTuple):
    """The columns of one tensor of inputs: their rows, and how many columns form a group."""

    row: np.ndarray  # (columns,)
    none: np.ndarray  # (columns,) the rows of complements, -1 where there is none
    width: int  # 1 for independent facts


class ConstantInputs(NamedTuple):
    """Independent facts that are the same in every example."""

    row: np.ndarray
    none: np.ndarray  # the rows of complements, -1 where there is none
    value: np.ndarray


@dataclass(frozen=True, eq=False)
class FusedPass:
    """The rows of the inputs and outputs of a pass.

    Args:
        circuit: the arrays of the pass.
        groups: the columns of each tensor of inputs.
        constants: inputs that are the same in every example.
        rows: the number of rows: one for each node, and for each input that no rule uses.
        logarithms: LOG or LOG_ODDS for each output: what is read of it if not its value.
        shape: the shape of the outputs of one example.
        with_complements: makes the same pass with nodes for the negations of the outputs; None
            where this is it.
    """

    circuit: SumProduct
    groups: tuple[InputColumns, ...]
    constants: ConstantInputs
    rows: int
    logarithms: np.ndarray
    shape: tuple[int, ...]
    with_complements: Callable[[], FusedPass] | None

    def kind(self, logits: bool) -> np.ndarray:
        """Return VALUE, LOG or LOG_ODDS for each output."""
        return self.logarithms if logits else np.full_like(self.logarithms, VALUE)

    @cached_property
    def _complemented(self) -> FusedPass | None:
        return None if self.with_complements is None else self.with_complements()

    @cached_property
    def negations(self) -> np.ndarray:
        """The outputs whose log-odds are read of their node and of that of their negation."""
        return np.flatnonzero((self.logarithms == LOG_ODDS) & (self.circuit.complements >= 0))

    def _runs_on_cuda(self, logits: bool) -> bool:
        """Return whether a kernel for CUDA devices has all that is read."""
        odds = self.logarithms[self.circuit.outputs >= 0] == LOG_ODDS
        known = not logits or len(self.negations) == odds.sum()
        return known and not self.circuit.kind.any() and _cuda() is not None

    def run(
        self,
        tensors: Sequence[Tensor],
        *,
        from_logits: bool,
        logits: bool,
        tolerance: float,
        watch: Watch | None = None,
    ) -> Tensor | None:
        """Return the outputs (B, *shape), or None where plain torch has to compute them.

        Args:
            tensors: the inputs, each (B, *shape), all float32 or all float64.
            from_logits: whether the inputs are log-odds and scores.
            logits: whether logarithms are read of the outputs.
            tolerance: how far from one the values of a group may sum up.
            watch: called in the backward pass if it finds nothing but zeros.
        """
        if tensors[0].is_cuda:
            plan = self._complemented if logits and (self.logarithms == LOG_ODDS).any() else self
            if plan is None or not plan._runs_on_cuda(logits):
                return None
            return _cuda().run_on_cuda(  # type: ignore[no-any-return]
                plan, tensors, from_logits=from_logits, logits=logits, tolerance=tolerance
            )
        kernels, kind = _kernels(), self.kind(logits)
        given = [_columns(tensor) for tensor in tensors]
        batch = len(given[0])
        values = np.empty((-(-batch // kernels.TILE), self.rows, kernels.TILE))
        if len(self.constants.row):
            values[:, self.constants.row] = self.constants.value[:, None]
            some = self.constants.none >= 0
            values[:, self.constants.none[some]] = 1 - self.constants.value[some, None]
        for x, (row, none, width) in zip(given, self.groups, strict=True):
            if not from_logits:
                least = ROUNDED_COMPLEMENT if logits else 0.0
                fine = kernels.load_values(x, width, row, none, values, tolerance, least)
            elif width > 1:
                fine = kernels.load_scores(x, width, row, values)
            else:
                fine = kernels.load_log_odds(x, row, none, values)
            if not fine:
                return None
        share_tiles(kernels.run_tiles, self.circuit, values)
        out = np.empty((batch, len(kind)), given[0].dtype)
        fixed = self.circuit.outputs < 0
        if fixed.any():
            out[:, fixed] = constant_outputs(self.circuit.outputs[fixed], kind[fixed], out.dtype)
        read = kernels.read_outputs(
            values, self.circuit.outputs, self.circuit.complements, kind, out
        )
        if read == NEED_COMPLEMENTS and self._complemented is not None:
            return self._complemented.run(
                tensors,
                from_logits=from_logits,
                logits=logits,
                tolerance=tolerance,
                watch=watch,
            )
        if read != FILLED:
            return None
        result = torch.from_numpy(out.reshape(batch, *self.shape))
        if not torch.is_grad_enabled():
            return result
        wanted = [n for n, tensor in enumerate(tensors) if tensor.requires_grad]
        if not wanted:
            return result
        kept = _Kept(self, result, wanted, given, values, kind, from_logits, watch)
        return _Fused.apply(kept, *(tensors[n] for n in wanted))  # type: ignore[no-any-return,no-untyped-call]


def _columns(tensor: Tensor) -> np.ndarray:
    """Return a tensor (B, *shape) as an array (B, columns)."""
    array: np.ndarray = tensor.detach().numpy() if tensor.requires_grad else tensor.numpy()
    array = array if array.ndim == 2 else array.reshape(len(array), math.prod(array.shape[1:]))
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


class _Kept(NamedTuple):
    """The outputs, and what the backward pass needs."""

    plan: FusedPass
    result: Tensor | None
    wanted: list[int]  # the tensors whose gradient is wanted
    given: list[np.ndarray]
    values: np.ndarray
    kind: np.ndarray
    from_logits: bool
    watch: Watch | None


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kept: _Kept, *tensors: Tensor) -> Tensor | None:
        # The result leads to ctx: keeping it there would be a cycle that only gc.collect() frees.
        ctx.kept = kept._replace(result=None)
        ctx.save_for_backward(*tensors)
        return kept.result

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        kernels = _kernels()
        plan, _, wanted, given, values, kind, from_logits, watch = ctx.kept
        tensors = ctx.saved_tensors
        grads = np.empty(values.shape)
        above = _columns(grad_out)
        kernels.output_gradient(
            values, plan.circuit.outputs, plan.circuit.complements, kind, above, grads
        )
        share_tiles(kernels.gradient_tiles, plan.circuit, values, grads)
        found, moves = [], False
        for n, tensor in zip(wanted, tensors, strict=True):
            row, none, width = plan.groups[n]
            out = np.empty_like(given[n])
            if not from_logits:
                moves |= kernels.value_gradient(grads, row, none, out)
            elif width > 1:
                moves |= kernels.score_gradient(values, grads, width, row, out)
            else:
                moves |= kernels.log_odds_gradient(given[n], grads, row, none, out)
            found.append(torch.from_numpy(out.reshape(tensor.shape)))
        if watch is not None and not moves and above.any():
            watch()
        if torch.is_grad_enabled():
            found = [without_second_derivative(grad, *tensors, grad_out) for grad in found]
        return None, *found


def constant_outputs(outputs: np.ndarray, kind: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return what is read of outputs that are certain (-1) or impossible (-2)."""
    most = min(1e30, float(np.finfo(dtype).max) / 2)
    ends = {  # by kind: impossible, certain
        VALUE: (0.0, 1.0),
        LOG: (-np.inf, 0.0),
        LOG_ODDS: (-most, most),
    }
    return np.array([ends[int(k)][int(n) + 2] for n, k in zip(outputs, kind, strict=True)])


def fuse_pass(
    circuit: SumProduct,
    places: Sequence[np.ndarray],
    widths: Sequence[int],
    constants: tuple[np.ndarray, np.ndarray],
    logarithms: np.ndarray,
    shape: tuple[int, ...],
    with_complements: Callable[[], FusedPass] | None,
) -> FusedPass:
    """Return the pass with a row for each input.

    Args:
        circuit: The arrays of the pass.
        places: The places of the columns of each tensor among the atoms of the variables.
        widths: How many columns of a tensor form a group; 1 for independent facts.
        constants: The places of inputs that are the same in every example, and their values.
        logarithms: LOG or LOG_ODDS for each output.
        shape: The shape of the outputs of one example.
        with_complements: Makes the same pass with nodes for the negations of the outputs.
    """
    row: dict[int, int] = {}
    none: dict[int, int] = {}
    for n, (place, negated) in enumerate(
        zip(circuit.input_places.tolist(), circuit.input_negated.tolist(), strict=True)
    ):
        (none if negated else row)[place] = n
    rows = circuit.nodes
    for place in np.concatenate([*places, constants[0]]).tolist():
        if place not in row:
            row[place] = rows
            rows += 1

    def rows_of(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        listed = some.tolist()
        return (
            np.array([row[place] for place in listed], np.int32),
            np.array([none.get(place, -1) for place in listed], np.int32),
        )

    return FusedPass(
        circuit,
        tuple(
            InputColumns(*rows_of(some), width) for some, width in zip(places, widths, strict=True)
        ),
        ConstantInputs(*rows_of(constants[0]), constants[1]),
        rows,
        logarithms,
        shape,
        with_complements,
    )
