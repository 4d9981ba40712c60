"""A sum-product pass as Triton kernels: one program runs all nodes of one example.

Everything is in the log domain and in float64. `v` (B, rows) has the log-probability of every row:
first the columns of the inputs, then the derived nodes sorted by level, last a row that is always
0, with which bodies are padded to K atoms. Rows are worked on in chunks of one level, each as a
tile of NB rows times RB rules. The backward pass gathers: `share` has the gradient of every rule
and of every output, and a row adds up the shares of the rules that it occurs in, so that sums have
a fixed order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from latentgamma._probability.fused_pass import LOG

READ_LOG = tl.constexpr(LOG)
LARGE = tl.constexpr(1e300)
TINY = tl.constexpr(2.2250738585072014e-308)


@triton.jit
def body_logs(ve, body, j, ok, K: tl.constexpr):
    """The log-probabilities of some rules; -inf where there is none."""
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
    """Both passes of every example in one launch; `ones` is the gradient of the outputs."""
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
