"""Runs a sum-product pass on a CUDA device: one launch forward and one backward, or one for both."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from latentgamma._probability.cuda_pass_kernels import (
    run_examples,
    run_examples_backward,
    run_examples_with_gradient,
)
from latentgamma._probability.fused_pass import LOG, VALUE, FusedPass, constant_outputs
from latentgamma._probability.log_pass import node_levels
from latentgamma._probability.logarithms import ROUNDED_COMPLEMENT
from latentgamma._probability.second_derivative import without_second_derivative

Result = TypeVar("Result")

# Numbers in a tile, and the most rules along one side of it.
_TILE = 1024
_MOST_RULES = 128


class CudaPass(NamedTuple):
    """The arrays of a pass on a device, in the order of the kernels' arguments, and its sizes."""

    group_start: Tensor
    group_width: Tensor
    chunk_ptr: Tensor  # (chunks + 1,) rows
    chunk_rules: Tensor  # (chunks,) the most rules of a row
    chunk_uses: Tensor  # (chunks,) the most rules and outputs that a row occurs in
    chunk_ends: Tensor  # (chunks,) whether it is the last one of its level
    chunk_starts: Tensor  # (chunks,) whether it is the first one
    rule_ptr: Tensor  # (rows + 1,)
    body: Tensor  # (rules, K) rows
    use_ptr: Tensor  # (rows + 1,)
    uses: Tensor  # rules, and outputs after them
    out_row: Tensor
    columns: int
    groups: int
    first_chunk: int  # the first one with rules
    chunks: int
    rows: int
    rules: int
    sizes: dict[str, int]  # of the tiles
    negated: Tensor | None  # the columns whose complements follow as columns of their own

    def columns_of(self, grad: Tensor) -> Tensor:
        """The gradient of the columns without their complements."""
        if self.negated is None:
            return grad
        own = self.columns - len(self.negated)
        found = grad[:, :own]
        found[:, self.negated] -= grad[:, own:]
        return found


def run_on_cuda(
    plan: FusedPass,
    tensors: Sequence[Tensor],
    *,
    from_logits: bool,
    logits: bool,
    tolerance: float,
) -> Tensor | None:
    """Return the outputs (B, *shape), or None where plain torch has to compute them.

    An example with a NaN among its scores has outputs of NaN: to raise an exception would mean to
    wait for the device.

    Args:
        plan: the rows of the inputs and outputs; no rules of one node are independent.
        tensors: the inputs, each (B, *shape), of one dtype and device.
        from_logits: whether the inputs are log-odds and scores.
        logits: whether logarithms are read of the outputs.
        tolerance: how far from one the values of a group may sum up.
    """
    device = tensors[0].device
    made = cuda_pass(plan, device)
    reads = _reads(plan, device, logits)
    with torch.no_grad():
        given = [
            tensor.reshape(len(tensor), len(group.row))
            for tensor, group in zip(tensors, plan.groups, strict=True)
        ]
        batch, dtype = len(given[0]), given[0].dtype
        if len(plan.constants.value):
            given.append(_constants(plan, device, dtype, from_logits).expand(batch, -1))
        x = torch.cat(given, 1) if len(given) > 1 else given[0].contiguous()
        if made.negated is not None:
            some = x[:, made.negated]
            least = ROUNDED_COMPLEMENT if logits else 0.0
            x = torch.cat((x, -some if from_logits else (1 - some).clamp(min=least)), 1)
    # The difference of two logarithms is rounded once, to the dtype of the result.
    out = x.new_empty(batch, len(reads.kinds), dtype=torch.float64 if logits else dtype)
    bad = out if from_logits else torch.zeros(1, dtype=torch.int32, device=device)
    wanted = [n for n, tensor in enumerate(tensors) if tensor.requires_grad]
    learn = torch.is_grad_enabled() and bool(wanted)
    launch = _Launch(made, reads.kinds, from_logits, x)
    alone = reads.outputs == 1
    if learn and alone:
        above = reads.spread(x.new_ones(batch, 1))
        slope = made.columns_of(launch.forward_and_slope(out, bad, tolerance, above))
    else:
        v = launch.forward(out, bad, tolerance)
    if not (from_logits or torch.cuda.is_current_stream_capturing()) and bool(bad):
        return None
    result = reads.join(out).to(dtype).view(batch, *plan.shape)
    if not learn:
        return result

    ends = list(accumulate((part.shape[1] for part in given), initial=0))
    spans = [slice(ends[n], ends[n + 1]) for n in wanted]

    def gradients(above: Tensor) -> list[Tensor]:
        above = above.reshape(batch, reads.outputs)
        if alone:
            return [slope[:, span] * above for span in spans]
        grad = made.columns_of(launch.backward(v, reads.spread(above)))
        return [grad[:, span] for span in spans]

    return _CudaFused.apply(result, gradients, *(tensors[n] for n in wanted))  # type: ignore[no-any-return,no-untyped-call]


class _Reads(NamedTuple):
    """What a launch reads: the outputs, and the logarithms of the negations of some of them."""

    outputs: int
    kinds: Tensor  # VALUE or LOG for each output and negation
    negated: Tensor | None  # the outputs whose negation follows
    fixed: tuple[Tensor, Tensor] | None  # the places and values of constant outputs

    def join(self, out: Tensor) -> Tensor:
        """The outputs, (B, outputs), from what was read."""
        found = out[:, : self.outputs]
        if self.negated is not None:
            odds = found[:, self.negated] - out[:, self.outputs :]
            found[:, self.negated] = odds.clamp(-1e30, 1e30)
        if self.fixed is not None:
            found[:, self.fixed[0]] = self.fixed[1].to(found.dtype)
        return found

    def spread(self, above: Tensor) -> Tensor:
        """The gradient of what was read, from that of the outputs."""
        if self.negated is None:
            return above
        return torch.cat((above, -above[:, self.negated]), 1)


class _Launch(NamedTuple):
    """The launches of a pass on one batch."""

    made: CudaPass
    kinds: Tensor  # what is read of each output
    from_logits: bool
    x: Tensor  # (B, columns)

    def forward(self, out: Tensor, bad: Tensor, tolerance: float) -> Tensor:
        """Fill the outputs, and return the values of all rows."""
        made, kinds, from_logits, x = self
        v = torch.empty(len(x), made.rows, dtype=torch.float64, device=x.device)
        if len(x):
            run_examples[(len(x),)](
                x, v, out, bad, made.group_start, made.group_width, made.chunk_ptr,
                made.chunk_rules, made.chunk_ends, made.rule_ptr, made.body, made.out_row, kinds,
                made.columns, made.groups, made.first_chunk, made.chunks, len(kinds), made.rows,
                tolerance, FROM_LOGITS=from_logits, num_warps=8, **made.sizes,
            )  # fmt: skip
        return v

    def backward(self, v: Tensor, above: Tensor) -> Tensor:
        """Return the gradient of the columns from that of the outputs, (B, outputs)."""
        made, kinds, from_logits, x = self
        batch, outputs = above.shape
        share = torch.empty(batch, made.rules + outputs, dtype=torch.float64, device=x.device)
        g, grad = torch.empty_like(v), torch.empty_like(x)
        if batch:
            run_examples_backward[(batch,)](
                x, v, share, g, above.contiguous(), grad, made.group_start, made.group_width,
                made.chunk_ptr, made.chunk_rules, made.chunk_uses, made.chunk_starts,
                made.rule_ptr, made.body, made.use_ptr, made.uses, made.out_row, kinds,
                made.columns, made.groups, made.chunks, outputs, made.rows, made.rules,
                FROM_LOGITS=from_logits, num_warps=8, **made.sizes,
            )  # fmt: skip
        return grad

    def forward_and_slope(
        self, out: Tensor, bad: Tensor, tolerance: float, above: Tensor
    ) -> Tensor:
        """Fill what is read, and return the gradient of the columns: one launch for both."""
        made, kinds, from_logits, x = self
        outputs = len(kinds)
        size = 2 * made.rows + made.rules + outputs
        work = torch.empty(len(x) * size, dtype=torch.float64, device=x.device)
        slope = torch.empty_like(x)
        if len(x):
            run_examples_with_gradient[(len(x),)](
                x, work, out, bad, above.contiguous(), slope, made.group_start,
                made.group_width, made.chunk_ptr, made.chunk_rules, made.chunk_uses,
                made.chunk_ends, made.chunk_starts, made.rule_ptr, made.body, made.use_ptr,
                made.uses, made.out_row, kinds, made.columns, made.groups, made.first_chunk,
                made.chunks, outputs, made.rows, made.rules, tolerance,
                FROM_LOGITS=from_logits, num_warps=8, **made.sizes,
            )  # fmt: skip
        return slope


class _CudaFused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, result: Tensor, gradients: Callable[[Tensor], list[Tensor]], *tensors: Tensor
    ) -> Tensor:
        ctx.gradients = gradients
        ctx.save_for_backward(*tensors)
        return result

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        tensors = ctx.saved_tensors
        with torch.no_grad():
            parts = ctx.gradients(grad_out)
            found = [part.reshape(t.shape) for part, t in zip(parts, tensors, strict=True)]
        if torch.is_grad_enabled():
            found = [without_second_derivative(slope, *tensors, grad_out) for slope in found]
        return None, None, *found


def _once_per_plan(make: Callable[..., Result]) -> Callable[..., Result]:
    """Keep what is made of a plan as long as the plan: a CUDA graph of the caller may read it."""
    kept: WeakKeyDictionary[FusedPass, dict[Hashable, Result]] = WeakKeyDictionary()

    @wraps(make)
    def get(plan: FusedPass, *key: Hashable) -> Result:
        of_plan = kept.setdefault(plan, {})
        if key not in of_plan:
            of_plan[key] = make(plan, *key)
        return of_plan[key]

    return get


@_once_per_plan
def _reads(plan: FusedPass, device: torch.device, logits: bool) -> _Reads:
    kind, outputs = plan.kind(logits), plan.circuit.outputs
    read = np.full(len(outputs) + len(plan.negations), LOG if logits else VALUE, np.int32)
    fixed = np.flatnonzero(outputs < 0)
    ends = constant_outputs(outputs[fixed], kind[fixed], np.dtype(np.float32))
    with torch.inference_mode(False):  # these may be needed for a gradient later
        return _Reads(
            len(outputs),
            torch.from_numpy(read).to(device),
            torch.from_numpy(plan.negations).to(device) if len(plan.negations) else None,
            (torch.from_numpy(fixed).to(device), torch.from_numpy(ends).to(device))
            if len(fixed)
            else None,
        )


@_once_per_plan
def _constants(plan: FusedPass, device: torch.device, dtype: torch.dtype, odds: bool) -> Tensor:
    """The values, or log-odds, of inputs that are the same in every example. (1, n)."""
    p = torch.from_numpy(plan.constants.value)
    return (torch.logit(p) if odds else p)[None].to(device, dtype)


@_once_per_plan
def cuda_pass(plan: FusedPass, device: torch.device) -> CudaPass:
    """Return the arrays of a pass on a device.

    Args:
        plan: The rows of the inputs and outputs.
        device: The device.
    """
    circuit = plan.circuit
    # The columns of the inputs in the order of the tensors, then the nodes by level.
    columns = np.concatenate([*(group.row for group in plan.groups), plan.constants.row])
    none = np.concatenate([*(group.none for group in plan.groups), plan.constants.none])
    negated = np.flatnonzero(none >= 0)
    columns = np.concatenate([columns, none[negated]])
    widths = [group.width for group in plan.groups for _ in range(len(group.row) // group.width)]
    widths += [1] * (len(plan.constants.row) + len(negated))
    level = node_levels(circuit)[circuit.inputs :]
    by_level = np.argsort(level, kind="stable")
    row = np.zeros(plan.rows, np.int64)
    row[columns] = np.arange(len(columns))
    row[circuit.inputs + by_level] = len(columns) + np.arange(len(by_level))
    rows = len(columns) + len(by_level) + 1
    # Rules in the order of the rows, padded with the last row.
    count = np.diff(circuit.rule_ptr)[by_level]
    rule_ptr = np.zeros(rows + 1, np.int64)
    rule_ptr[len(columns) + 1 : rows] = np.cumsum(count)
    rule_ptr[rows] = rule_ptr[rows - 1]
    starts = circuit.rule_ptr[:-1][by_level]
    order = np.arange(count.sum()) + np.repeat(starts - (np.cumsum(count) - count), count)
    size = np.diff(circuit.body_ptr)[order]
    K = max(int(size.max(initial=1)), 1)
    body = np.full((len(order), K), rows - 1, np.int64)
    for k in range(K):
        some = size > k
        body[some, k] = row[circuit.body[circuit.body_ptr[order[some]] + k]]
    # Where each row occurs: in rules, and in outputs after them.
    read = np.concatenate((circuit.outputs, circuit.complements[plan.negations]))
    outputs = np.where(read < 0, rows - 1, row[np.maximum(read, 0)])
    atom = np.concatenate((body.ravel(), outputs))
    user = np.concatenate(
        (np.repeat(np.arange(len(order)), K), len(order) + np.arange(len(outputs)))
    )
    user = user[np.argsort(atom, kind="stable")]
    times = np.bincount(atom, minlength=rows)
    times[rows - 1] = 0  # the last row needs no gradient, and its uses come last
    use_ptr = np.concatenate(([0], np.cumsum(times)))
    rules_of = np.diff(rule_ptr)
    RB = min(_power_of_two(int(max(rules_of.max(initial=1), 1))), _MOST_RULES)
    NB = _TILE // RB
    cuts, levels = [0], []
    for first, last, d in _spans(len(columns), level[by_level]):
        for start in range(first, last, NB):
            cuts.append(min(start + NB, last))
            levels.append(d)
    chunks = len(levels)
    spans = [slice(a, b) for a, b in pairwise(cuts)]
    change = np.diff(levels) != 0
    GW = _power_of_two(max(widths, default=1))

    def put(array: Any) -> Tensor:
        return torch.as_tensor(np.asarray(array), dtype=torch.int32).to(device)

    return CudaPass(
        group_start=put(np.cumsum(widths) - widths),
        group_width=put(widths),
        chunk_ptr=put(cuts),
        chunk_rules=put([rules_of[span].max() for span in spans]),
        chunk_uses=put([times[span].max() for span in spans]),
        chunk_ends=put(np.append(change, True)),
        chunk_starts=put(np.append(True, change)),
        rule_ptr=put(rule_ptr),
        body=put(body),
        use_ptr=put(use_ptr),
        uses=put(user),
        out_row=put(outputs),
        columns=len(columns),
        groups=len(widths),
        first_chunk=sum(d == 0 for d in levels),
        chunks=chunks,
        rows=rows,
        rules=len(order),
        sizes={"K": K, "NB": NB, "RB": RB, "GB": max(_TILE // GW, 1), "GW": GW, "OB": 256},
        negated=put(negated).long() if len(negated) else None,
    )


def _spans(inputs: int, levels: np.ndarray) -> list[tuple[int, int, int]]:
    """The first row, the row after the last, and the number of each level; 0 for the inputs."""
    ends = [0, inputs]
    found = [0]
    for d in range(1, int(levels.max(initial=0)) + 1):
        found.append(d)
        ends.append(ends[-1] + int((levels == d).sum()))
    return [(first, last, d) for (first, last), d in zip(pairwise(ends), found, strict=True)]


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
