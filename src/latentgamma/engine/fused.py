"""A sum-product pass from the tensors of a network to log-odds, in one step with its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentgamma.engine.circuit import Circuit, Integers
from latentgamma.engine.exactness import SumProduct
from latentgamma.engine.execute import kernels_on, lists_on, on_triton, schedule_on
from latentgamma.engine.tensors import (
    ROUNDED_COMPLEMENT,
    array_of,
    can_leave_torch,
    differentiable,
    has_triton,
)

if TYPE_CHECKING:
    from latentgamma.engine.probability import ProbabilityMethods

# The softmax or sigmoid of the inputs, the pass, and the logarithm of the outputs are compiled code
# on tiles of examples. Everything else (other devices, infinite scores, probabilities so small that
# they need the log domain) is left to plain torch.

#: What is read of an output: its probability, the logarithm of it, or its log-odds.
VALUE, LOG, LOG_ODDS = 0, 1, 2
#: Probabilities below this are computed again in the log domain: factors may have underflowed.
SMALLEST = 1e-200
#: Whether outputs were read: yes; some need the log domain; some need the node of their negation.
FILLED, NEED_LOGARITHMS, NEED_COMPLEMENTS = 0, 1, 2

#: What becomes of inputs: they stay values, become log-odds, or are log-odds.
KEEP_VALUES, TO_LOG_ODDS, KEEP_LOG_ODDS = 0, 1, 2

#: Called where a gradient arrives and that of the inputs is zero.
Watch = Callable[[], None]


class InputColumns(NamedTuple):
    """The columns of one tensor of inputs: their rows, and how many columns form a group."""

    row: np.ndarray  # (columns,)
    none: np.ndarray  # (columns,) the rows of complements, -1 where there is none
    width: int  # 1 for independent facts


@dataclass(frozen=True, eq=False)
class FusedPass:
    """A sum-product pass from the tensors of a network, with a row for each input.

    Args:
        methods: how the probabilities of the outputs are computed.
        places: those of the columns of each tensor among the atoms of the variables.
        widths: how many columns of each tensor form a group.
        logarithms: LOG or LOG_ODDS for each output: what is read of it if not its value.
        shape: the shape of the outputs of one example.
        complemented: whether there are nodes for the negations of the outputs.
    """

    methods: ProbabilityMethods
    places: Sequence[np.ndarray]
    widths: Sequence[int]
    logarithms: np.ndarray
    shape: tuple[int, ...]
    complemented: bool = False

    @cached_property
    def _pass(self) -> SumProduct:
        return self.methods.with_complements if self.complemented else self.methods.sum_product

    @property
    def circuit(self) -> Circuit:
        """What the pass computes."""
        return self._pass.circuit

    @property
    def complements(self) -> Integers:
        """The nodes of the negations of the outputs, FALSE, TRUE or UNKNOWN."""
        return self._pass.complements

    @cached_property
    def groups(self) -> tuple[InputColumns, ...]:
        """The columns of each tensor of inputs; an input that no rule uses has a row after all nodes."""
        passed, count = self._pass, len(self.methods.variables.atoms)
        row, none = np.full((2, count), -1, np.int32)
        for rows, some in ((row, ~passed.input_negated), (none, passed.input_negated)):
            rows[passed.input_places[some]] = np.flatnonzero(some)
        unused = row < 0
        row[unused] = self.circuit.nodes + np.arange(unused.sum())
        pairs = zip(self.places, self.widths, strict=True)
        return tuple(InputColumns(row[some], none[some], width) for some, width in pairs)

    @cached_property
    def rows(self) -> int:
        """The number of rows: one for each node, and for each input that no rule uses."""
        last = max(int(group.row.max(initial=-1)) for group in self.groups)
        return max(self.circuit.nodes, last + 1)

    @cached_property
    def _values(self) -> np.ndarray:
        return np.full_like(self.logarithms, VALUE)

    @cached_property
    def _complemented(self) -> FusedPass | None:
        return None if self.complemented else replace(self, complemented=True)

    @cached_property
    def negations(self) -> np.ndarray:
        """The outputs whose log-odds are read of their node and of that of their negation."""
        return np.flatnonzero((self.logarithms == LOG_ODDS) & (self.complements >= 0))

    def _runs_on_cuda(self, logits: bool) -> bool:
        """Return whether a kernel for CUDA devices has all that is read."""
        odds = self.logarithms[self.circuit.outputs >= 0] == LOG_ODDS
        known = not logits or len(self.negations) == odds.sum()
        return known and not self.circuit.kind.any() and has_triton()

    def run(
        self,
        tensors: Sequence[Tensor],
        *,
        from_logits: bool,
        logits: bool,
        tolerance: float,
        again: Callable[..., Tensor],
        watch: Watch | None = None,
    ) -> Tensor | None:
        """Return the outputs (B, *shape), or None where plain torch has to compute them.

        Args:
            tensors: the inputs, each (B, *shape), all float32 or all float64.
            from_logits: whether the inputs are log-odds and scores.
            logits: whether logarithms are read of the outputs.
            tolerance: how far from one the values of a group may sum up.
            again: computes the same from the tensors in a way that can be differentiated twice.
            watch: called in the backward pass if it finds nothing but zeros.
        """
        if on_triton(tensors[0]):
            passes = [self]
            if logits and (self.logarithms == LOG_ODDS).any():
                passes += [self._complemented] if self._complemented is not None else []
            if self.circuit.kind.any() or not passes[-1]._runs_on_cuda(logits):
                return None
            from latentgamma.engine.cuda import run_on_cuda

            return run_on_cuda(
                passes, tensors, from_logits=from_logits, logits=logits, tolerance=tolerance,
                again=again,
            )  # fmt: skip
        kernels = kernels_on("cpu")
        kind = self.logarithms if logits else self._values
        outputs = self.circuit.outputs
        c, inputs = self.circuit.arrays, self.circuit.inputs
        given = [columns_of(tensor) for tensor in tensors]
        batch = len(given[0])
        values = np.empty((kernels.tiles(batch)[0], self.rows, kernels.TILE))
        least = ROUNDED_COMPLEMENT if logits else 0.0
        for x, (row, none, width) in zip(given, self.groups, strict=True):
            if not kernels.load_inputs(x, from_logits, width, row, none, values, tolerance, least):
                return None

        def share(work: Callable[..., None], *tiles: np.ndarray) -> None:
            kernels.share_tiles(
                lambda first, last: work(first, last, c, inputs, *tiles), len(values), len(c[1])
            )

        share(kernels.fill_tiles, values)
        out = np.empty((batch, len(kind)), given[0].dtype)
        if self._fixed is not None:
            out[:, self._fixed] = constant_outputs(
                outputs[self._fixed], kind[self._fixed], out.dtype
            )
        read = kernels.read_outputs(values, outputs, self.complements, kind, out)
        if read == NEED_COMPLEMENTS and self._complemented is not None:
            return self._complemented.run(
                tensors, from_logits=from_logits, logits=logits, tolerance=tolerance,
                again=again, watch=watch,
            )  # fmt: skip
        if read != FILLED:
            return None
        result = torch.from_numpy(out.reshape(batch, *self.shape))
        wanted = [n for n, tensor in enumerate(tensors) if tensor.requires_grad]
        if not wanted or not torch.is_grad_enabled():
            return result

        def gradients(grad_out: Tensor) -> list[Tensor]:
            grads = np.empty(values.shape)
            above = columns_of(grad_out)
            kernels.output_gradient(values, outputs, self.complements, kind, above, grads)
            share(kernels.gradient_tiles, values, grads)
            found, moves = [], False
            for n in wanted:
                row, none, width = self.groups[n]
                slope = np.empty_like(given[n])
                moves |= kernels.input_gradient(
                    given[n], from_logits, width, row, none, values, grads, slope
                )
                found.append(torch.from_numpy(slope))
            if watch is not None and not moves and above.any():
                watch()
            return found

        return differentiable(result, gradients, again, tensors)

    @cached_property
    def _fixed(self) -> np.ndarray | None:
        """Which outputs are the same on every input; None if there is no such output."""
        fixed: np.ndarray = self.circuit.outputs < 0
        return fixed if fixed.any() else None


def columns_of(tensor: Tensor) -> np.ndarray:
    """Return a tensor (B, *shape) as an array (B, columns)."""
    array = array_of(tensor)
    return array if array.ndim == 2 else array.reshape(len(array), math.prod(array.shape[1:]))


def label_loss(
    circuit: Circuit, odds: Tensor, labels: Tensor, again: Callable[[Sequence[Tensor]], Tensor]
) -> Tensor | None:
    """Return the max-constraint loss of each example (B,), or None where plain torch computes it.

    The circuit leads from the log-odds of the labels, in float32 or float64, to their scores, hard;
    `again` computes the same from the log-odds in a way that can be differentiated twice.
    """
    if not on_triton(odds) or not can_leave_torch(odds):
        return None
    lists = lists_on(circuit, odds.device)
    if not has_triton() or lists is None or circuit.inputs != len(circuit.outputs):
        return None
    kernels = kernels_on("cuda")
    x, y = odds.detach().contiguous(), labels.contiguous()
    y = y.view(torch.uint8) if y.dtype == torch.bool else y
    learn = torch.is_grad_enabled() and odds.requires_grad
    each, *kept = kernels.maxima(*lists, x, y, keep=learn)
    total: Tensor = each.sum(1)
    if not learn:
        return total

    def gradients(above: Tensor) -> list[Tensor]:
        schedule = schedule_on(circuit, x.device)
        return [kernels.maxima_back(lists, schedule, x, y, kept, above)]

    return differentiable(total, gradients, again, [odds])


def constant_outputs(outputs: np.ndarray, kind: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return what is read of outputs that are FALSE or TRUE."""
    most = min(1e30, float(np.finfo(dtype).max) / 2)
    ends = {  # by kind: FALSE, TRUE
        VALUE: (0.0, 1.0),
        LOG: (-np.inf, 0.0),
        LOG_ODDS: (-most, most),
    }
    return np.array([ends[int(k)][-1 - int(n)] for n, k in zip(outputs, kind, strict=True)])
