"""A sum-product pass from the tensors of a network to log-odds, in one step with its gradient.

The softmax or sigmoid of the inputs, the pass, and the logarithm of the outputs are compiled code
on tiles of examples. Everything else (other devices, infinite scores, probabilities so small that
they need the log domain) is left to plain torch.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentgamma._probability.logarithms import ROUNDED_COMPLEMENT
from latentgamma._probability.pass_circuit import SumProduct
from latentgamma._probability.passes import share_tiles
from latentgamma._probability.second_derivative import without_second_derivative

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
    """The compiled code, which is imported with the first pass."""
    from latentgamma._probability import pass_kernels

    return pass_kernels


@cache
def _cuda() -> Any:
    """The same for CUDA devices, or None without Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    from latentgamma._probability import cuda_pass

    return cuda_pass


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
        """Whether a kernel for CUDA devices has all that is read."""
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
    """A tensor (B, *shape) as an array (B, columns)."""
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
