"""Circuits as Triton kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from latentgamma.engine.circuit import FALSE, PRODUCTS
from latentgamma.engine.fused import LOG, VALUE, FusedPass, constant_outputs, differentiable
from latentgamma.engine.reference import Semiring
from latentgamma.engine.tensors import ROUNDED_COMPLEMENT, kept_with_owner

# ---- The min/max closure as Triton kernels: each program runs all nodes for a block of examples
# Examples do not depend on each other, so one launch does a whole batch, and the nodes follow one
# another in their order. `v`, `rank` and `g` are (nodes, B); `reference.py` defines what is computed.
# A minimum is the maximum of what has the opposite sign: `sign` is 1 for a maximum, −1 for a minimum.

LAST = tl.constexpr(8388608.0)  # the rank of the own input of a derivable atom
LOWEST = tl.constexpr(-3e38)


@triton.jit
def close_nodes(v, rank, ptr, child, own, sign, first, last, B, temperature,
                HARD: tl.constexpr, RANKED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = lane < B
    T = tl.load(temperature)  # from memory: a number among the arguments would be a float32
    for n in range(first, last):
        start, stop = tl.load(ptr + n), tl.load(ptr + n + 1)
        mine, s = tl.load(own + n).to(tl.int64), tl.load(sign + n)
        best = tl.full((BLOCK,), LOWEST, v.dtype.element_ty)
        for p in range(start, stop):
            c = tl.load(child + p).to(tl.int64)
            best = tl.maximum(best, s * tl.load(v + c * B + lane, mask=here, other=0.0))
        at_start = tl.full((BLOCK,), LOWEST, v.dtype.element_ty)
        if mine >= 0:
            at_start = tl.load(v + mine * B + lane, mask=here, other=0.0)
        if HARD:
            value = tl.maximum(best, at_start)
            if RANKED:
                # A maximum takes the least rank among its ties, a minimum the greatest.
                near = tl.full((BLOCK,), -2 * LAST, v.dtype.element_ty)
                for p in range(start, stop):
                    c = tl.load(child + p).to(tl.int64)
                    tied = s * tl.load(v + c * B + lane, mask=here, other=0.0) == best
                    r = -s * tl.load(rank + c * B + lane, mask=here, other=0.0)
                    near = tl.where(tied, tl.maximum(near, r), near)
                near = -s * near
                if s > 0:
                    near = near + 1.0
                    itself = (at_start > best) | ((at_start == best) & (near > LAST))
                    near = tl.where(itself, LAST, near)
                tl.store(rank + tl.cast(n, tl.int64) * B + lane, near, mask=here)
        else:
            top = tl.maximum(best, at_start)
            total = tl.zeros((BLOCK,), v.dtype.element_ty)
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                x = s * tl.load(v + c * B + lane, mask=here, other=0.0)
                total += tl.exp((x - top) / T)
            if mine >= 0:
                total += tl.exp((at_start - top) / T)
            value = top + T * tl.log(total)
        tl.store(v + tl.cast(n, tl.int64) * B + lane, s * value, mask=here)
        tl.debug_barrier()


@triton.jit
def close_nodes_backward(v, rank, g, ptr, child, own, sign, first, last, B, temperature,
                         HARD: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = lane < B
    T = tl.load(temperature)  # from memory: a number among the arguments would be a float32
    for step in range(first, last):
        n = tl.cast(first + last - 1 - step, tl.int64)
        start, stop = tl.load(ptr + n), tl.load(ptr + n + 1)
        mine, s = tl.load(own + n).to(tl.int64), tl.load(sign + n)
        value = tl.load(v + n * B + lane, mask=here, other=0.0)
        given = tl.load(g + n * B + lane, mask=here, other=0.0)
        if HARD:
            r = tl.load(rank + n * B + lane, mask=here, other=0.0)
            if mine >= 0:
                part = tl.where(r == LAST, given, 0.0)
                before = tl.load(g + mine * B + lane, mask=here, other=0.0)
                tl.store(g + mine * B + lane, before + part, mask=here)
                given = given - part
            count = tl.zeros((BLOCK,), v.dtype.element_ty)
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                tied = tl.load(v + c * B + lane, mask=here, other=0.0) == value
                if s > 0:
                    tied = tied & (tl.load(rank + c * B + lane, mask=here, other=0.0) == r - 1.0)
                count += tied.to(v.dtype.element_ty)
            part = given / tl.maximum(count, 1.0)
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                tied = tl.load(v + c * B + lane, mask=here, other=0.0) == value
                if s > 0:
                    tied = tied & (tl.load(rank + c * B + lane, mask=here, other=0.0) == r - 1.0)
                before = tl.load(g + c * B + lane, mask=here, other=0.0)
                tl.store(g + c * B + lane, before + tl.where(tied, part, 0.0), mask=here)
        else:
            for p in range(start, stop):
                c = tl.load(child + p).to(tl.int64)
                x = tl.load(v + c * B + lane, mask=here, other=0.0)
                before = tl.load(g + c * B + lane, mask=here, other=0.0)
                share = given * tl.exp(-tl.abs(value - x) / T)
                tl.store(g + c * B + lane, before + share, mask=here)
            if mine >= 0:
                x = tl.load(v + mine * B + lane, mask=here, other=0.0)
                before = tl.load(g + mine * B + lane, mask=here, other=0.0)
                share = given * tl.exp(-tl.abs(value - x) / T)
                tl.store(g + mine * B + lane, before + share, mask=here)
        tl.debug_barrier()


# ---- The min/max closure of a batch, for circuits without cycles

#: Examples that one program runs.
_BLOCK = 64


def tiles(batch: int) -> tuple[int, int]:
    """Return how many tiles a batch has, and how many examples a tile."""
    return 1, batch


def _spans(cuts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the nodes between negations with −1, and those of negations with their first child."""
    for start, stop, child in zip(cuts[::3], cuts[1::3], cuts[2::3], strict=True):
        if start > first:
            yield first, start, -1
        yield start, stop, child
        first = stop
    if last > first:
        yield first, last, -1


def run(
    arrays: Sequence[Tensor], semiring: Semiring, x: Tensor, *, keep: bool, cuts: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (B, O), and the nodes and their ranks for `back`.

    Args:
        arrays: those of a circuit, on the device.
        semiring: minima and maxima, hard or smooth.
        x: the inputs (B, I), in float32 or float64.
        keep: whether a gradient will be asked for.
        cuts: the first node, the one after the last and the first edge of each stage of negations.
    """
    ptr, child, own, *_, outputs = arrays
    batch, inputs = x.shape
    nodes, hard = len(ptr) - 1, semiring.temperature == 0
    v = x.new_empty(nodes, batch)
    v[:inputs] = x.T
    rank = x.new_zeros(nodes if hard and keep else 0, batch)
    signs, T = _signs(arrays, x.dtype, inputs), x.new_tensor([semiring.temperature])
    for start, stop, edge in _spans(cuts, inputs, nodes) if batch else ():
        if edge >= 0:
            given = v[child[edge : edge + stop - start].long()]
            other, half = semiring.one - given, semiring.one / 2
            both = (given <= half) & (other <= half)  # one of them has to be above one half
            v[start:stop] = torch.where(both, other + semiring.step(x.dtype), other)
            continue
        close_nodes[(-(-batch // _BLOCK),)](
            v, rank, ptr, child, own, signs, start, stop, batch, T, HARD=hard,
            RANKED=hard and keep, BLOCK=_BLOCK, num_warps=2,
        )  # fmt: skip
    out = x.new_zeros(batch, len(outputs))
    if nodes:
        out = v.index_select(0, outputs.clamp(min=0).long()).T.contiguous()
    constant = torch.where(outputs == FALSE, semiring.false, semiring.true).to(out.dtype)
    out = torch.where(outputs < 0, constant, out)
    empty = v.new_empty(0, nodes, batch), v.new_empty(0, 0, batch)
    return out, *((v[None], rank[None]) if keep else empty)


def back(
    arrays: Sequence[Tensor],
    semiring: Semiring,
    kept: Tensor,
    extra: Tensor,
    grad: Tensor,
    inputs: int,
    *,
    cuts: Sequence[int],
) -> Tensor:
    """Return the gradient of the inputs (B, I), from that of the outputs (B, O)."""
    ptr, child, own, *_, outputs = arrays
    batch, nodes = len(grad), len(ptr) - 1
    g = grad.new_zeros(nodes, batch)
    if nodes:  # index_put sums in a fixed order, index_add does not
        arriving = torch.where(outputs[:, None] >= 0, grad.T, 0)
        g.index_put_((outputs.clamp(min=0).long(),), arriving, accumulate=True)
    signs, T = _signs(arrays, grad.dtype, inputs), grad.new_tensor([semiring.temperature])
    for start, stop, edge in reversed(list(_spans(cuts, inputs, nodes))) if batch else ():
        if edge >= 0:
            below = child[edge : edge + stop - start].long()
            g.index_put_((below,), -g[start:stop], accumulate=True)
            continue
        close_nodes_backward[(-(-batch // _BLOCK),)](
            kept[0], extra[0], g, ptr, child, own, signs, start, stop, batch, T,
            HARD=semiring.temperature == 0, BLOCK=_BLOCK, num_warps=2,
        )  # fmt: skip
    return g[:inputs].T.contiguous()


def _signs(arrays: Sequence[Tensor], dtype: torch.dtype, inputs: int) -> Tensor:
    """Return −1 for each minimum, 1 for each other node. (N,)."""
    ptr, _, _, stage_ptr, stage_kind, *_ = arrays
    signs = torch.where(stage_kind == PRODUCTS, -1.0, 1.0).to(dtype)
    count = len(ptr) - 1 - inputs
    later = torch.repeat_interleave(signs, stage_ptr.diff(), output_size=count)
    return torch.cat([signs.new_ones(inputs), later])


# ---- A sum-product pass as Triton kernels: one program runs all nodes of one example
# Everything is in the log domain and in float64. `v` (B, rows) has the log-probability of every row:
# first the columns of the inputs, then the derived nodes sorted by level, last a row that is always
# 0, with which bodies are padded to K atoms. Rows are worked on in chunks of one level, each as a
# tile of NB rows times RB rules. The backward pass gathers: `share` has the gradient of every rule
# and of every output, and a row adds up the shares of the rules that it occurs in, so that sums have
# a fixed order.

READ_LOG = tl.constexpr(LOG)
LARGE = tl.constexpr(1e300)
TINY = tl.constexpr(2.2250738585072014e-308)


@triton.jit
def body_logs(ve, body, j, ok, K: tl.constexpr):
    """Return the log-probabilities of some rules; -inf where there is none."""
    logs = tl.where(ok, 0.0, float("-inf")).to(tl.float64)
    for k in tl.static_range(K):
        child = tl.load(body + j * K + k, mask=ok, other=0)
        logs += tl.load(ve + child, mask=ok, other=0.0)
    return logs


@triton.jit
def run_examples(x, v, out, bad, group_start, group_width, chunk_ptr, chunk_rules, chunk_ends,
                 rule_ptr, body, out_row, out_kind, columns, groups, first_chunk, chunks, outputs,
                 rows, tolerance, K: tl.constexpr, NB: tl.constexpr, RB: tl.constexpr,
                 GB: tl.constexpr, GW: tl.constexpr, OB: tl.constexpr,
                 FROM_LOGITS: tl.constexpr):  # fmt: skip
    e = tl.program_id(0).to(tl.int64)
    xe, ve = x + e * columns, v + e * rows
    column = tl.arange(0, GW)
    spoiled = 0
    for first in range(0, groups, GB):
        g = first + tl.arange(0, GB)
        start = tl.load(group_start + g, mask=g < groups, other=0)
        width = tl.load(group_width + g, mask=g < groups, other=0)
        here = column[None, :] < width[:, None]
        place = start[:, None] + column[None, :]
        z = tl.load(xe + place, mask=here, other=0.0).to(tl.float64)
        wrong = z != z  # noqa: PLR0124 (a NaN is the number that differs from itself)
        if FROM_LOGITS:
            z = tl.where(here, tl.minimum(tl.maximum(z, -LARGE), LARGE), float("-inf"))
            top = tl.maximum(tl.max(z, 1), -LARGE)
            wrong = wrong | (here & (top[:, None] <= -LARGE) & (width[:, None] > 1))
            total = tl.sum(tl.exp(z - top[:, None]), 1)
            soft = z - (top + tl.log(tl.maximum(total, TINY)))[:, None]
            held = tl.where(here, z, 0.0)
            alone = tl.minimum(held, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(held)))
            logs = tl.where(width[:, None] == 1, alone, soft)
        else:
            wrong = wrong | (here & ((z < 0.0) | (z > 1.0)))
            miss = tl.abs(tl.sum(tl.where(here, z, 0.0), 1) - 1.0)
            wrong = wrong | (here & (miss[:, None] > tolerance) & (width[:, None] > 1))
            logs = tl.log(tl.maximum(z, TINY))
        tl.store(ve + place, logs, mask=here)
        spoiled += tl.sum(tl.sum(wrong.to(tl.int32), 1), 0)
    if not FROM_LOGITS:  # noqa: SIM102 (known when this is compiled, the other one is not)
        if spoiled > 0:
            tl.store(bad, 1)
    tl.store(ve + rows - 1, 0.0)
    tl.debug_barrier()
    for c in range(first_chunk, chunks):
        n = tl.load(chunk_ptr + c) + tl.arange(0, NB)
        live = n < tl.load(chunk_ptr + c + 1)
        one = tl.load(rule_ptr + n, mask=live, other=0)
        end = tl.load(rule_ptr + n + 1, mask=live, other=0)
        top = tl.full((NB,), float("-inf"), tl.float64)
        total = tl.zeros((NB,), tl.float64)
        for r in range(0, tl.load(chunk_rules + c), RB):
            j = one[:, None] + r + tl.arange(0, RB)[None, :]
            logs = body_logs(ve, body, j, j < end[:, None], K)
            higher = tl.maximum(top, tl.max(logs, 1))
            safe = tl.maximum(higher, -LARGE)  # keeps -inf - -inf out
            total = total * tl.exp(top - safe) + tl.sum(tl.exp(logs - safe[:, None]), 1)
            top = higher
        tl.store(ve + n, tl.log(total) + tl.maximum(top, -LARGE), mask=live)
        if tl.load(chunk_ends + c) > 0:
            tl.debug_barrier()
    for first in range(0, outputs, OB):
        o = first + tl.arange(0, OB)
        there = o < outputs
        logs = tl.load(ve + tl.load(out_row + o, mask=there, other=0), mask=there, other=0.0)
        kind = tl.load(out_kind + o, mask=there, other=0)
        value = tl.where(kind == READ_LOG, logs, tl.minimum(tl.exp(logs), 1.0))
        value = tl.where(spoiled > 0, float("nan"), value)
        tl.store(out + e * outputs + o, value, mask=there)


@triton.jit
def run_examples_backward(x, v, share, g, grad_out, grad, group_start, group_width, chunk_ptr,
                          chunk_rules, chunk_uses, chunk_starts, rule_ptr, body, use_ptr, uses,
                          out_row, out_kind, columns, groups, chunks, outputs, rows, rules,
                          K: tl.constexpr, NB: tl.constexpr, RB: tl.constexpr, GB: tl.constexpr,
                          GW: tl.constexpr, OB: tl.constexpr,
                          FROM_LOGITS: tl.constexpr):  # fmt: skip
    e = tl.program_id(0).to(tl.int64)
    xe, ve, ge = x + e * columns, v + e * rows, g + e * rows
    se = share + e * (rules + outputs)
    for first in range(0, outputs, OB):
        o = first + tl.arange(0, OB)
        there = o < outputs
        logs = tl.load(ve + tl.load(out_row + o, mask=there, other=0), mask=there, other=0.0)
        kind = tl.load(out_kind + o, mask=there, other=0)
        slope = tl.where(kind == READ_LOG, 1.0, tl.exp(logs))
        above = tl.load(grad_out + e * outputs + o, mask=there, other=0.0).to(tl.float64)
        tl.store(se + rules + o, above * slope, mask=there)
    tl.debug_barrier()
    for back in range(0, chunks):
        c = chunks - 1 - back
        n = tl.load(chunk_ptr + c) + tl.arange(0, NB)
        live = n < tl.load(chunk_ptr + c + 1)
        one = tl.load(use_ptr + n, mask=live, other=0)
        end = tl.load(use_ptr + n + 1, mask=live, other=0)
        # Summed after the loop: Triton 3.6 cannot compile a loop that adds up sums of float64.
        parts = tl.zeros((NB, RB), tl.float64)
        for r in range(0, tl.load(chunk_uses + c), RB):
            u = one[:, None] + r + tl.arange(0, RB)[None, :]
            ok = u < end[:, None]
            rule = tl.load(uses + u, mask=ok, other=0)
            parts += tl.load(se + rule, mask=ok, other=0.0)
        total = tl.sum(parts, 1)
        tl.store(ge + n, total, mask=live)
        one = tl.load(rule_ptr + n, mask=live, other=0)
        end = tl.load(rule_ptr + n + 1, mask=live, other=0)
        value = tl.load(ve + n, mask=live, other=0.0)
        for r in range(0, tl.load(chunk_rules + c), RB):
            j = one[:, None] + r + tl.arange(0, RB)[None, :]
            ok = j < end[:, None]
            logs = body_logs(ve, body, j, ok, K)
            # A body without any chance has no share.
            likely = logs > float("-inf")
            weight = tl.exp(tl.where(likely, logs - value[:, None], float("-inf")))
            tl.store(se + j, tl.where(likely, total[:, None] * weight, 0.0), mask=ok)
        if tl.load(chunk_starts + c) > 0:
            tl.debug_barrier()
    column = tl.arange(0, GW)
    for first in range(0, groups, GB):
        k = first + tl.arange(0, GB)
        start = tl.load(group_start + k, mask=k < groups, other=0)
        width = tl.load(group_width + k, mask=k < groups, other=0)
        here = column[None, :] < width[:, None]
        place = start[:, None] + column[None, :]
        slope = tl.load(ge + place, mask=here, other=0.0)
        logs = tl.load(ve + place, mask=here, other=0.0)
        if FROM_LOGITS:
            z = tl.load(xe + place, mask=here, other=0.0).to(tl.float64)
            unlikely = tl.exp(-tl.abs(z))
            alone = slope * tl.where(z > 0.0, unlikely, 1.0) / (1.0 + unlikely)
            soft = slope - tl.exp(logs) * tl.sum(slope, 1)[:, None]
            slope = tl.where(width[:, None] == 1, alone, soft)
        else:
            slope = slope * tl.exp(-logs)
        tl.store(grad + e * columns + place, slope, mask=here)


@triton.jit
def run_examples_with_gradient(x, work, out, bad, ones, grad, group_start, group_width, chunk_ptr,
                               chunk_rules, chunk_uses, chunk_ends, chunk_starts, rule_ptr, body,
                               use_ptr, uses, out_row, out_kind, columns, groups, first_chunk,
                               chunks, outputs, rows, rules, tolerance, K: tl.constexpr,
                               NB: tl.constexpr, RB: tl.constexpr, GB: tl.constexpr,
                               GW: tl.constexpr, OB: tl.constexpr,
                               FROM_LOGITS: tl.constexpr):  # fmt: skip
    """Return both passes of every example in one launch; `ones` is the gradient of the outputs."""
    batch = tl.num_programs(0).to(tl.int64)
    share = work + batch * rows
    run_examples(
        x, work, out, bad, group_start, group_width, chunk_ptr, chunk_rules, chunk_ends, rule_ptr,
        body, out_row, out_kind, columns, groups, first_chunk, chunks, outputs, rows, tolerance,
        K, NB, RB, GB, GW, OB, FROM_LOGITS,
    )  # fmt: skip
    tl.debug_barrier()
    run_examples_backward(
        x, work, share, share + batch * (rules + outputs), ones, grad, group_start, group_width,
        chunk_ptr, chunk_rules, chunk_uses, chunk_starts, rule_ptr, body, use_ptr, uses, out_row,
        out_kind, columns, groups, chunks, outputs, rows, rules, K, NB, RB, GB, GW, OB, FROM_LOGITS,
    )  # fmt: skip


# ---- Runs a sum-product pass on a CUDA device: one launch forward and one backward, or one for both

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
        """Return the gradient of the columns without their complements."""
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
    again: Callable[..., Tensor],
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
        again: computes the same from the tensors in a way that can be differentiated twice.
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

    return differentiable(result, gradients, again, tensors)


class _Reads(NamedTuple):
    """What a launch reads: the outputs, and the logarithms of the negations of some of them."""

    outputs: int
    kinds: Tensor  # VALUE or LOG for each output and negation
    negated: Tensor | None  # the outputs whose negation follows
    fixed: tuple[Tensor, Tensor] | None  # the places and values of constant outputs

    def join(self, out: Tensor) -> Tensor:
        """Return the outputs, (B, outputs), from what was read."""
        found = out[:, : self.outputs]
        if self.negated is not None:
            odds = found[:, self.negated] - out[:, self.outputs :]
            found[:, self.negated] = odds.clamp(-1e30, 1e30)
        if self.fixed is not None:
            found[:, self.fixed[0]] = self.fixed[1].to(found.dtype)
        return found

    def spread(self, above: Tensor) -> Tensor:
        """Return the gradient of what was read, from that of the outputs."""
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


@kept_with_owner
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


@kept_with_owner
def _constants(plan: FusedPass, device: torch.device, dtype: torch.dtype, odds: bool) -> Tensor:
    """Return the values, or log-odds, of inputs that are the same in every example. (1, n)."""
    p = torch.from_numpy(plan.constants.value)
    return (torch.logit(p) if odds else p)[None].to(device, dtype)


@kept_with_owner
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
    derived = circuit.nodes - circuit.inputs
    row = np.zeros(plan.rows, np.int64)
    row[columns] = np.arange(len(columns))
    row[circuit.inputs : circuit.nodes] = len(columns) + np.arange(derived)
    rows = len(columns) + derived + 1
    # Rules in the order of the rows, padded with the last row.
    rule_ptr = np.zeros(rows + 1, np.int64)
    rule_ptr[len(columns) : rows] = circuit.term_ptr[circuit.inputs :]
    rule_ptr[rows] = rule_ptr[rows - 1]
    size = circuit.parts.sizes
    rules, K = len(size), max(int(size.max(initial=1)), 1)
    body = np.full((rules, K), rows - 1, np.int64)
    body[np.arange(K) < size[:, None]] = row[circuit.parts.indices]
    # Where each row occurs: in rules, and in outputs after them.
    read = np.concatenate((circuit.outputs, plan.complements[plan.negations]))
    outputs = np.where(read < 0, rows - 1, row[np.maximum(read, 0)])
    atom = np.concatenate((body.ravel(), outputs))
    user = np.concatenate((np.repeat(np.arange(rules), K), rules + np.arange(len(outputs))))
    user = user[np.argsort(atom, kind="stable")]
    times = np.bincount(atom, minlength=rows)
    times[rows - 1] = 0  # the last row needs no gradient, and its uses come last
    use_ptr = np.concatenate(([0], np.cumsum(times)))
    rules_of = np.diff(rule_ptr)
    RB = min(_power_of_two(int(max(rules_of.max(initial=1), 1))), _MOST_RULES)
    NB = _TILE // RB
    cuts, levels = [0], []
    ends = [0, *(len(columns) + circuit.stage_ptr - circuit.inputs).tolist()]
    for d, (first, last) in enumerate(pairwise(ends)):
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
        rules=rules,
        sizes={"K": K, "NB": NB, "RB": RB, "GB": max(_TILE // GW, 1), "GW": GW, "OB": 256},
        negated=put(negated).long() if len(negated) else None,
    )


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
