"""Circuits as Triton kernels.

In every kernel a program works on one example, or on a part of one, so that no example depends on
another. `reference.py` defines what is computed and `schedule.py` makes the arrays. Sums of gradients
are gathered by the node that they belong to, in a fixed order, so results are the same each time.
In the order of this file:

1. `launch` starts a kernel that was compiled before without looking at its arguments again.
2. `minmax_forward` and `minmax_backward` run a whole circuit of minima and maxima, stage by stage
   (`run_example`, `run_example_backward`). A stage is computed by tiles of rows (`compute_tiles`).
   A cycle takes steps until nothing changes. Backward, rows first gather what their parents pass on
   (`gather_tiles`) and then divide it among their children (`divide_tiles`).
3. `list_maxima` and `list_gradients` are for hierarchies, in which every output is the maximum of a
   list of inputs: all lists at once instead of stage by stage, and the max-constraint loss in the
   same launch. Examples in which several inputs are equal go through `tied_gradients`.
4. `run`, `back`, `maxima`, `maxima_back` launch these on a batch.
5. `probability_passes` runs sums of products, in the log domain; `run_on_cuda` launches it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from latentgamma.engine.circuit import CYCLE, FALSE, NEGATIONS, PRODUCTS, SUMS
from latentgamma.engine.fused import LOG_ODDS, FusedPass
from latentgamma.engine.reference import LAST, NEVER, Semiring
from latentgamma.engine.schedule import FEW, NARROW, WIDE, packed
from latentgamma.engine.tensors import (
    CERTAIN,
    HELD,
    LEAST_COMPLEMENT,
    ROUNDED_COMPLEMENT,
    differentiable,
    kept_with_owner,
    values_can_be_read,
)

# ---- Launches
# Triton looks at every argument and every global name of a kernel at each launch, for up to a tenth
# of a millisecond. Kernels that do not depend on the values of their arguments need that only once.


def kernel(function: Callable[..., None]) -> Any:
    """Return a kernel that is the same for all values and addresses of its arguments."""
    given = inspect.signature(function).parameters.values()
    names = [p.name for p in given if "constexpr" not in str(p.annotation)]
    return triton.jit(function, do_not_specialize=names)


def launch(
    kernel: Any, grid: tuple[int, ...], args: Sequence[Any], sizes: Sequence[Any], *, warps: int
) -> None:
    """Launch a kernel on the device of its tensors; it is compiled for these sizes."""
    device = args[0].device.index
    if device is not None and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            launch(kernel, grid, args, sizes, warps=warps)
        return
    # The dtypes of inputs and of labels or outputs, on which all others depend.
    key = (kernel, args[0].dtype, args[1].dtype, device, *sizes)
    compiled = _COMPILED.get(key)
    if compiled is not None:
        compiled[(*grid, 1, 1)[:3]](*args, *sizes)
        return
    _COMPILED[key] = kernel[grid](*args, *sizes, num_warps=warps)  # None in the interpreter


#: Kernels by their function, dtypes, device and sizes.
_COMPILED: dict[Any, Any] = {}


# ---- Minima and maxima: one program runs all nodes of one example
# A row is a node; rows of a stage do not depend on each other. A tile is some rows times some of their
# children: many rows with NARROW_TILE children at a time, or a few rows with WIDE_TILE at a time.
# `values`, `ranks` and `gradients` are those of the nodes of one example; behind `values` is room for
# the sums of a cycle after a step. `shares` has the gradient that each edge passes on to its child,
# then that of each output.

MINIMA, CYCLES, COMPLEMENTS = tl.constexpr(PRODUCTS), tl.constexpr(CYCLE), tl.constexpr(NEGATIONS)
MAXIMA = tl.constexpr(SUMS)
FALSE_OUTPUT = tl.constexpr(FALSE)
NOT_DERIVED = tl.constexpr(NEVER)
NO_RANK = tl.constexpr(2.0 * LAST)
CERTAIN_ODDS = tl.constexpr(CERTAIN)
# What is added to a complement that should be above one half: of log-odds, of values.
SMALLEST_32, SMALLEST_64 = tl.constexpr(2.0**-126), tl.constexpr(2.0**-1022)
STEP_32, STEP_64 = tl.constexpr(2.0**-24), tl.constexpr(2.0**-53)
NARROW_TILE, WIDE_TILE, FEW_CHILDREN = tl.constexpr(NARROW), tl.constexpr(WIDE), tl.constexpr(FEW)
WIDER = tl.constexpr(WIDE // NARROW)
# What is computed: values, values and ranks, or ranks. The rank of a value is the length of its
# shortest proof: on a cycle, gradients go from a rank to lower ones.
VALUES, BOTH, RANKS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def array(pack, place):
    """Return one of the arrays that `packed` has put into one."""
    return pack + tl.load(pack + place)


@triton.jit
def tile_of(tiles, t):
    """Return the first row of a tile, the one after the last, and the most entries of a row."""
    return tl.load(tiles + 3 * t), tl.load(tiles + 3 * t + 1), tl.load(tiles + 3 * t + 2)


@triton.jit
def rows_of(ptr, first, last, NB: tl.constexpr):
    """Return NB rows, which are before `last`, and where their entries begin and end."""
    n = first + tl.arange(0, NB)
    live = n < last
    start = tl.load(ptr + n, mask=live, other=0)
    return n, live, start, tl.load(ptr + n + 1, mask=live, other=0)


@triton.jit
def entries(array, start, stop, r, RB: tl.constexpr):
    """Return RB entries of each row from the r-th on: places, whether they are there, and what is."""
    p = start[:, None] + r + tl.arange(0, RB)[None, :]
    ok = p < stop[:, None]
    return p, ok, tl.load(array + p, mask=ok, other=0)


@triton.jit
def compute_rows(values, shift, ranks, ptr, child, first, last, width, kind, T, HARD: tl.constexpr,
                 WHAT: tl.constexpr, COMPARE: tl.constexpr, ODDS: tl.constexpr, NB: tl.constexpr,
                 RB: tl.constexpr):  # fmt: skip
    """Compute rows, stored `shift` further on, and their ranks; return whether one changed."""
    kept = values.dtype.element_ty
    n, live, start, stop = rows_of(ptr, first, last, NB)
    # A minimum is the maximum of what has the opposite sign.
    s = tl.where(kind == MINIMA, -1.0, 1.0).to(kept)
    moved = tl.zeros((NB,), tl.int32)
    if WHAT == RANKS:
        value = tl.load(values + n, mask=live, other=0.0)
    else:
        best = tl.full((NB, RB), float("-inf"), kept)
        for r in range(0, width, RB):
            _, ok, c = entries(child, start, stop, r, RB)
            x = s * tl.load(values + c, mask=ok, other=0.0)
            best = tl.maximum(best, tl.where(ok, x, float("-inf")))
        top = tl.max(best, 1)
        if not HARD:
            parts = tl.zeros((NB, RB), kept)
            for r in range(0, width, RB):
                _, ok, c = entries(child, start, stop, r, RB)
                x = s * tl.load(values + c, mask=ok, other=0.0)
                parts += tl.where(ok, tl.exp((x - top[:, None]) / T), 0.0)
            top = top + T * tl.log(tl.sum(parts, 1))
        least = tl.full((NB,), NOT_DERIVED, kept)
        value = tl.where(kind == MAXIMA, tl.maximum(top, least), s * top)
        if ODDS:
            other, half, step = -value, 0.0, SMALLEST_32 if kept == tl.float32 else SMALLEST_64
        else:
            other, half, step = 1.0 - value, 0.5, STEP_32 if kept == tl.float32 else STEP_64
        # One of a value and its complement has to be above one half.
        raised = tl.where((value <= half) & (other <= half), other + step, other)
        value = tl.where(kind == COMPLEMENTS, raised, value)
        if COMPARE:
            moved = (value != tl.load(values + n, mask=live, other=0.0)).to(tl.int32)
        tl.store(values + shift + n, value, mask=live)
    if WHAT != VALUES:
        # A maximum takes the least rank among its ties, a minimum the greatest.
        near = tl.full((NB, RB), -NO_RANK, kept)
        for r in range(0, width, RB):
            _, ok, c = entries(child, start, stop, r, RB)
            tied = ok & (tl.load(values + c, mask=ok, other=0.0) == value[:, None])
            rank = -s * tl.load(ranks + c, mask=tied, other=0.0)
            near = tl.where(tied, tl.maximum(near, rank), near)
        rank = -s * tl.max(near, 1)
        rank = tl.where(kind == MAXIMA, tl.minimum(rank + 1.0, NO_RANK), rank)
        rank = tl.where(kind == COMPLEMENTS, 0.0, rank)
        if WHAT == RANKS and COMPARE:
            moved = (rank != tl.load(ranks + n, mask=live, other=0.0)).to(tl.int32)
        tl.store(ranks + n, rank, mask=live)
    changed = 0
    if COMPARE:
        changed = tl.max(tl.where(live, moved, 0), 0)
    return changed


@triton.jit
def compute_tiles(values, shift, ranks, graph, one, end, kind, T, HARD: tl.constexpr,
                  WHAT: tl.constexpr, COMPARE: tl.constexpr, ODDS: tl.constexpr,
                  NB: tl.constexpr):  # fmt: skip
    """Compute the rows of tiles from `one` to `end`; return whether one changed."""
    ptr, child, tiles = graph
    changed = 0
    for t in range(one, end):
        first, last, width = tile_of(tiles, t)
        for wide in tl.static_range(2):
            if (width > FEW_CHILDREN).to(tl.int32) == wide:
                moved = compute_rows(
                    values, shift, ranks, ptr, child, first, last, width, kind, T, HARD, WHAT,
                    COMPARE, ODDS, NB // WIDER if wide else NB, WIDE_TILE if wide else NARROW_TILE,
                )  # fmt: skip
                changed = tl.maximum(changed, moved)
    tl.debug_barrier()
    return changed


@triton.jit
def copy_rows(source, target, first, last, BLOCK: tl.constexpr):
    for one in range(first, last, BLOCK):
        n = one + tl.arange(0, BLOCK)
        tl.store(target + n, tl.load(source + n, mask=n < last, other=0.0), mask=n < last)
    tl.debug_barrier()


@triton.jit
def set_rows(target, first, last, value, BLOCK: tl.constexpr):
    for one in range(first, last, BLOCK):
        n = one + tl.arange(0, BLOCK)
        filled = tl.full((BLOCK,), 0.0, target.dtype.element_ty) + value
        tl.store(target + n, filled, mask=n < last)
    tl.debug_barrier()


@triton.jit
def set_to_own_inputs(values, own, first, last, BLOCK: tl.constexpr):
    """Set the sums of a cycle to their own inputs, as they are before the first step."""
    for one in range(first, last, BLOCK):
        n = one + tl.arange(0, BLOCK)
        mine = tl.load(own + n, mask=n < last, other=-1)
        given = tl.load(values + mine, mask=mine >= 0, other=NOT_DERIVED)
        tl.store(values + n, given, mask=n < last)
    tl.debug_barrier()


@triton.jit
def step_of_cycle(values, after, ranks, graph, one, middle, end, first, last, T, finish,
                  HARD: tl.constexpr, ODDS: tl.constexpr, NB: tl.constexpr):  # fmt: skip
    """Take one step of a cycle: its products, then its sums, which go to `after` before they count.

    Return whether a sum changed.
    """
    moved = 0
    for sums in range(2):
        moved = compute_tiles(
            values, tl.where(sums > 0, after - first, 0), ranks, graph,
            tl.where(sums > 0, middle, one), tl.where(sums > 0, end, middle),
            tl.where(sums > 0, MAXIMA, MINIMA), T, HARD, VALUES, HARD, ODDS, NB,
        )  # fmt: skip
    if finish:
        copy_rows(values + after - first, values, first, last, NB * NARROW_TILE)
    return moved


@triton.jit
def run_example(x, values, ranks, out, pack, inputs, nodes, count, S, states, sums, cycles, T,
                HARD: tl.constexpr, KEEP: tl.constexpr, ODDS: tl.constexpr, CYCLIC: tl.constexpr,
                NB: tl.constexpr):  # fmt: skip
    """Compute the nodes and outputs of one example.

    With KEEP also the ranks; smooth values have the steps and states of cycles in their place.
    """
    BLOCK: tl.constexpr = NB * NARROW_TILE
    graph = array(pack, 0), array(pack, 1), array(pack, 4)
    own, first_rank = array(pack, 2), array(pack, 3)
    stages, outputs = array(pack, 9), array(pack, 10)
    kept = values.dtype.element_ty
    spoiled = 0
    for base in range(0, inputs, BLOCK):
        i = base + tl.arange(0, BLOCK)
        given = tl.load(x + i, mask=i < inputs, other=0.0).to(kept)
        wrong = given != given  # noqa: PLR0124 (a NaN is the number that differs from itself)
        spoiled = tl.maximum(spoiled, tl.max(wrong.to(tl.int32), 0))
        tl.store(values + i, tl.where(wrong, 0.0, given), mask=i < inputs)
        if HARD and KEEP:
            rank = tl.load(first_rank + i, mask=i < inputs, other=0).to(kept)
            tl.store(ranks + i, rank, mask=i < inputs)
    tl.debug_barrier()
    cycle = 0
    for stage in range(1, S):
        at = stages + 10 * stage
        kind, one = tl.load(at), tl.load(at + 1)
        middle, end = tl.load(at + 2), tl.load(at + 3)
        if kind != CYCLES:
            compute_tiles(
                values, 0, ranks, graph, one, end, kind, T, HARD, BOTH if HARD and KEEP else VALUES,
                False, ODDS, NB,
            )  # fmt: skip
        elif CYCLIC:
            first, last = tl.load(at + 8), tl.load(at + 9)
            set_to_own_inputs(values, own, first, last, BLOCK)
            steps, moving = 0, 1
            while moving > 0:
                moving = step_of_cycle(
                    values, nodes, ranks, graph, one, middle, end, first, last, T, True, True, ODDS,
                    NB,
                )  # fmt: skip
                steps += moving
            if not HARD:  # as many steps as the hard closure of the same example takes
                apart = tl.maximum((steps + states - 1) // states, 1)
                set_to_own_inputs(values, own, first, last, BLOCK)
                for t in range(steps):
                    if KEEP:  # noqa: SIM102 (known when this is compiled, the other one is not)
                        if t % apart == 0:
                            kept_at = cycles + (cycle * states + t // apart) * sums - first
                            copy_rows(values, ranks + kept_at, first, last, BLOCK)
                    step_of_cycle(
                        values, nodes, ranks, graph, one, middle, end, first, last, T, True, False,
                        ODDS, NB,
                    )  # fmt: skip
                if KEEP:
                    tl.store(ranks + cycle, tl.cast(steps, kept))
            if HARD and KEEP:  # ranks, from above, when all values are known
                set_rows(ranks, first, last, NO_RANK, BLOCK)
                moving = 1
                while moving > 0:
                    for half in range(2):
                        moving = compute_tiles(
                            values, 0, ranks, graph, tl.where(half > 0, middle, one),
                            tl.where(half > 0, end, middle), tl.where(half > 0, MAXIMA, MINIMA), T,
                            HARD, RANKS, True, ODDS, NB,
                        )  # fmt: skip
            cycle += 1
    for base in range(0, count, BLOCK):
        o = base + tl.arange(0, BLOCK)
        node = tl.load(outputs + o, mask=o < count, other=0)
        value = tl.load(values + node, mask=(o < count) & (node >= 0), other=0.0)
        if ODDS:
            fixed = tl.where(node == FALSE_OUTPUT, -CERTAIN_ODDS, CERTAIN_ODDS)
        else:
            fixed = tl.where(node == FALSE_OUTPUT, 0.0, 1.0)
        value = tl.where(node < 0, fixed, value)
        value = tl.where(spoiled > 0, float("nan"), value)
        tl.store(out + o, value, mask=o < count)


@triton.jit
def divide_gradients(values, shift, ranks, shares, gradients, ptr, child, first, last, width, kind, T,
                     outer, HARD: tl.constexpr, ADD: tl.constexpr, NB: tl.constexpr,
                     RB: tl.constexpr):  # fmt: skip
    """Divide the gradient of rows, whose values are `shift` further on, among their edges."""
    kept = values.dtype.element_ty
    n, live, start, stop = rows_of(ptr, first, last, NB)
    value = tl.load(values + shift + n, mask=live, other=0.0)[:, None]
    given = tl.load(gradients + n, mask=live, other=0.0)
    part = given
    if HARD:
        before = tl.load(ranks + n, mask=live, other=0.0)[:, None] - 1.0
        ties = tl.zeros((NB, RB), kept)
        for r in range(0, width, RB):
            _, ok, c = entries(child, start, stop, r, RB)
            tied = ok & (tl.load(values + c, mask=ok, other=0.0) == value)
            near = (kind == MINIMA) | (tl.load(ranks + c, mask=tied, other=0.0) == before)
            ties += (tied & near).to(kept)
        part = given / tl.maximum(tl.sum(ties, 1), 1.0)
    for r in range(0, width, RB):
        p, ok, c = entries(child, start, stop, r, RB)
        x = tl.load(values + c, mask=ok, other=0.0)
        if HARD:
            tied = ok & (x == value)
            near = (kind == MINIMA) | (tl.load(ranks + c, mask=tied, other=0.0) == before)
            share = tl.where(tied & near, part[:, None], 0.0)
        else:
            share = part[:, None] * tl.exp(-tl.abs(value - x) / T)
        share = tl.where(kind == COMPLEMENTS, -given[:, None], share)
        if ADD:  # what leaves a cycle adds up over its steps
            share += tl.load(shares + p, mask=ok & (c < outer), other=0.0)
        tl.store(shares + p, share, mask=ok)


@triton.jit
def divide_tiles(values, shift, ranks, shares, gradients, graph, one, end, kind, T, outer,
                 HARD: tl.constexpr, ADD: tl.constexpr, NB: tl.constexpr):  # fmt: skip
    ptr, child, tiles = graph
    for t in range(one, end):
        first, last, width = tile_of(tiles, t)
        for wide in tl.static_range(2):
            if (width > FEW_CHILDREN).to(tl.int32) == wide:
                divide_gradients(
                    values, shift, ranks, shares, gradients, ptr, child, first, last, width, kind, T,
                    outer, HARD, ADD, NB // WIDER if wide else NB,
                    WIDE_TILE if wide else NARROW_TILE,
                )  # fmt: skip
    tl.debug_barrier()


@triton.jit
def gather_gradients(shares, gradients, use_ptr, uses, use_row, first, last, width, low, high,
                COMPARE: tl.constexpr, NB: tl.constexpr, RB: tl.constexpr):  # fmt: skip
    """Add up what edges from `low` to `high` pass on to rows; return whether one changed."""
    i, live, start, stop = rows_of(use_ptr, first, last, NB)
    n = tl.load(use_row + i, mask=live, other=0)
    parts = tl.zeros((NB, RB), shares.dtype.element_ty)
    for r in range(0, width, RB):
        _, ok, u = entries(uses, start, stop, r, RB)
        parts += tl.load(shares + u, mask=ok & (u >= low) & (u < high), other=0.0)
    total = tl.sum(parts, 1)
    changed = 0
    if COMPARE:
        before = tl.load(gradients + n, mask=live, other=0.0)
        both = (total != total) & (before != before)  # noqa: PLR0124 (both are NaN)
        changed = tl.max((live & (total != before) & ~both).to(tl.int32), 0)
    tl.store(gradients + n, total, mask=live)
    return changed


@triton.jit
def gather_tiles(shares, gradients, parents, one, end, low, high, COMPARE: tl.constexpr,
                 NB: tl.constexpr):  # fmt: skip
    use_ptr, uses, use_row, tiles = parents
    changed = 0
    for t in range(one, end):
        first, last, width = tile_of(tiles, t)
        for wide in tl.static_range(2):
            if (width > FEW_CHILDREN).to(tl.int32) == wide:
                moved = gather_gradients(
                    shares, gradients, use_ptr, uses, use_row, first, last, width, low, high, COMPARE,
                    NB // WIDER if wide else NB, WIDE_TILE if wide else NARROW_TILE,
                )  # fmt: skip
                changed = tl.maximum(changed, moved)
    tl.debug_barrier()
    return changed


@triton.jit
def run_example_backward(values, ranks, shares, gradients, input_gradients, pack, nodes, edges, count,
                         S, states, sums, cycles, T, HARD: tl.constexpr, ODDS: tl.constexpr,
                         CYCLIC: tl.constexpr, NB: tl.constexpr):  # fmt: skip
    """Compute the gradients of the inputs of one example; those of its outputs are in `shares`."""
    BLOCK: tl.constexpr = NB * NARROW_TILE
    ptr, own, stages = array(pack, 0), array(pack, 2), array(pack, 9)
    graph = ptr, array(pack, 1), array(pack, 4)
    parents = array(pack, 5), array(pack, 6), array(pack, 7), array(pack, 8)
    high = edges + count
    cycle = cycles
    for back in range(1, S):
        at = stages + 10 * (S - back)
        kind, one = tl.load(at), tl.load(at + 1)
        middle, end = tl.load(at + 2), tl.load(at + 3)
        use_one, use_middle, use_end = tl.load(at + 4), tl.load(at + 5), tl.load(at + 6)
        if kind != CYCLES:
            gather_tiles(shares, gradients, parents, use_one, use_end, 0, high, False, NB)
            divide_tiles(
                values, 0, ranks, shares, gradients, graph, one, end, kind, T, 0, HARD, False, NB
            )
        elif CYCLIC:
            start, first, last = tl.load(at + 7), tl.load(at + 8), tl.load(at + 9)
            low, above = tl.load(ptr + start), tl.load(ptr + last)
            set_rows(shares, low, above, 0.0, BLOCK)
            if HARD:  # from each rank to lower ones
                set_rows(gradients, start, last, 0.0, BLOCK)
                moving = 1
                while moving > 0:
                    moving = gather_tiles(
                        shares, gradients, parents, use_one, use_end, 0, high, True, NB
                    )
                    for half in range(2):
                        divide_tiles(
                            values, 0, ranks, shares, gradients, graph,
                            tl.where(half > 0, middle, one), tl.where(half > 0, end, middle),
                            tl.where(half > 0, MAXIMA, MINIMA), T, 0, HARD, False, NB,
                        )  # fmt: skip
            else:  # from each step to the one before it
                cycle -= 1
                steps = tl.load(ranks + cycle).to(tl.int32)
                apart = tl.maximum((steps + states - 1) // states, 1)
                gather_tiles(shares, gradients, parents, use_middle, use_end, 0, high, False, NB)
                for left in range(steps):
                    t = steps - 1 - left
                    kept_at = cycles + (cycle * states + t // apart) * sums - first
                    copy_rows(ranks + kept_at, values, first, last, BLOCK)
                    more = t % apart  # states between those that were kept are computed again
                    for again in range(more + 1):
                        step_of_cycle(
                            values, nodes, ranks, graph, one, middle, end, first, last, T,
                            again < more, False, ODDS, NB,
                        )  # fmt: skip
                    for half in range(2):  # the sums, then the products
                        divide_tiles(
                            values, tl.where(half > 0, 0, nodes - first), ranks, shares, gradients,
                            graph, tl.where(half > 0, one, middle), tl.where(half > 0, middle, end),
                            tl.where(half > 0, MINIMA, MAXIMA), T, start, HARD, True, NB,
                        )  # fmt: skip
                        gather_tiles(
                            shares, gradients, parents, tl.where(half > 0, use_middle, use_one),
                            tl.where(half > 0, use_end, use_middle), low, above, False, NB,
                        )  # fmt: skip
                for base in range(first, last, BLOCK):  # before the first step: their own inputs
                    n = base + tl.arange(0, BLOCK)
                    mine = tl.load(own + n, mask=n < last, other=-1) >= 0
                    edge = tl.load(ptr + n + 1, mask=mine, other=1) - 1
                    given = tl.load(gradients + n, mask=mine, other=0.0)
                    given += tl.load(shares + edge, mask=mine, other=0.0)
                    tl.store(shares + edge, given, mask=mine)
                tl.debug_barrier()
    use_one, use_end = tl.load(stages + 4), tl.load(stages + 6)
    gather_tiles(shares, input_gradients, parents, use_one, use_end, 0, high, False, NB)


@kernel
def minmax_forward(x, v, extra, out, pack, inputs, nodes, count, S, states, sums, cycles, width,
                   temperature, HARD: tl.constexpr, KEEP: tl.constexpr, ODDS: tl.constexpr,
                   CYCLIC: tl.constexpr, NB: tl.constexpr):  # fmt: skip
    e = tl.program_id(0).to(tl.int64)
    T = tl.full((), 1.0, v.dtype.element_ty)
    if not HARD:
        T = tl.load(temperature).to(v.dtype.element_ty)
    run_example(
        x + e * inputs, v + e * (nodes + sums), extra + e * width, out + e * count, pack, inputs,
        nodes, count, S, states, sums, cycles, T, HARD, KEEP, ODDS, CYCLIC, NB,
    )  # fmt: skip


@kernel
def minmax_backward(v, extra, share, g, above, grad, pack, inputs, nodes, edges, count, S,
                            states, sums, cycles, width, temperature, HARD: tl.constexpr,
                            ODDS: tl.constexpr, CYCLIC: tl.constexpr,
                            NB: tl.constexpr):  # fmt: skip
    e = tl.program_id(0).to(tl.int64)
    T = tl.full((), 1.0, v.dtype.element_ty)
    if not HARD:
        T = tl.load(temperature).to(v.dtype.element_ty)
    shares = share + e * (edges + count)
    copy_rows(above + e * count, shares + edges, 0, count, NB * NARROW_TILE)
    run_example_backward(
        v + e * (nodes + sums), extra + e * width, shares, g + e * nodes, grad + e * inputs, pack,
        nodes, edges, count, S, states, sums, cycles, T, HARD, ODDS, CYCLIC, NB,
    )  # fmt: skip


# ---- Maxima of lists of inputs: one program computes a tile of outputs of one example
# `winner` has the input that each output is equal to; after these, for each tile of outputs, whether
# one of them is equal to several inputs. Of such an example, `tied_gradients` computes the gradient, as
# it is defined for all circuits.
# With LOSS an output is that of a label: the maximum of the inputs whose labels are as its own. `out`
# has the cross-entropy and `slope` its derivative. Where a false label follows from a true one, its
# own input counts, and `winner` is the complement of it.

LIMIT = tl.constexpr(HELD)


@triton.jit
def list_maxima_of_rows(x, y, out, slopes, winners, flag, lists, first, last, width, spoiled,
                        KEEP: tl.constexpr, LOSS: tl.constexpr, NB: tl.constexpr,
                        RB: tl.constexpr):  # fmt: skip
    ptr, child, row = lists
    kept = x.dtype.element_ty
    i, live, start, stop = rows_of(ptr, first, last, NB)
    o = tl.load(row + i, mask=live, other=0)
    best = tl.full((NB, RB), float("-inf"), kept)
    index, ties = tl.full((NB, RB), -1, tl.int32), tl.zeros((NB, RB), tl.int32)
    broken = tl.zeros((NB, RB), tl.int32)
    if LOSS:
        target = tl.load(y + o, mask=live, other=0).to(kept)
        mine = target > 0.5
    for r in range(0, width, RB):
        _, ok, c = entries(child, start, stop, r, RB)
        given = tl.load(x + c, mask=ok, other=0.0)
        if LOSS:
            given = tl.minimum(tl.maximum(given, -LIMIT), LIMIT)
            label = tl.load(y + c, mask=ok, other=0) > 0.5
            broken = tl.where(ok & label & ~mine[:, None], 1, broken)
            ok = ok & (label == mine[:, None])
        if KEEP:
            higher = ok & ((given > best) | (index < 0))
            ties = tl.where(higher, 1, tl.where(ok & (given == best), ties + 1, ties))
            index = tl.where(higher, c, index)
        best = tl.maximum(best, tl.where(ok, given, float("-inf")))
    value = tl.maximum(tl.max(best, 1), tl.full((NB,), NOT_DERIVED, kept))
    if KEEP:
        hit = (index >= 0) & (best == value[:, None])
        winner = tl.min(tl.where(hit, index, 2147483647), 1)
        several = tl.sum(tl.where(hit, ties, 0), 1) > 1
    if LOSS:
        unmet = tl.max(broken, 1) > 0
        own = tl.load(x + o, mask=live, other=0.0)
        value = tl.where(unmet, tl.minimum(tl.maximum(own, -LIMIT), LIMIT), value)
        u = tl.exp(-tl.abs(value))
        more = tl.where(1.0 + u == 1.0, u, tl.log(1.0 + u) * (u / ((1.0 + u) - 1.0)))
        if KEEP:
            winner = tl.where(unmet, ~o, winner)
            several = several & ~unmet
            is_true = tl.where(value > 0.0, 1.0, u) / (1.0 + u)
            is_false = tl.where(value > 0.0, u, 1.0) / (1.0 + u)
            slope = tl.where(mine, (1.0 - target) - is_false, is_true - target)
            tl.store(slopes + o, slope, mask=live)
        value = tl.maximum(value, 0.0) - value * target + more
    value = tl.where(spoiled, float("nan"), value)
    tl.store(out + o, value, mask=live)
    if KEEP:
        tl.store(winners + o, winner, mask=live)
        tl.store(flag, tl.max((live & several).to(tl.int32), 0))


@kernel
def list_maxima(x, y, out, slope, winner, pack, inputs, count, KEEP: tl.constexpr,
                LOSS: tl.constexpr, NB: tl.constexpr):  # fmt: skip
    e, t = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lists = array(pack, 0), array(pack, 1), array(pack, 2)
    first, last, width = tile_of(array(pack, 3), t)
    winners = winner + e * (count + tl.num_programs(1))
    x, y, out, slope = x + e * inputs, y + e * inputs, out + e * count, slope + e * count
    wrong = tl.zeros((NB,), tl.int32)
    for base in range(0, inputs, NB):  # one NaN spoils all outputs of an example
        i = base + tl.arange(0, NB)
        given = tl.load(x + i, mask=i < inputs, other=0.0)
        wrong = tl.where(given != given, 1, wrong)  # noqa: PLR0124 (a NaN differs from itself)
    spoiled = tl.max(wrong, 0) > 0
    for wide in tl.static_range(2):
        if (width > FEW_CHILDREN).to(tl.int32) == wide:
            list_maxima_of_rows(
                x, y, out, slope, winners, winners + count + t, lists, first, last, width, spoiled,
                KEEP, LOSS, NB // WIDER if wide else NB, WIDE_TILE if wide else NARROW_TILE,
            )  # fmt: skip


@triton.jit
def list_gradients_of_rows(given, step, winners, grad, scale, users, first, last, width,
                           NB: tl.constexpr, RB: tl.constexpr):  # fmt: skip
    use_ptr, uses, use_row = users
    i, live, start, stop = rows_of(use_ptr, first, last, NB)
    n = tl.load(use_row + i, mask=live, other=0)
    parts = tl.zeros((NB, RB), given.dtype.element_ty)
    for r in range(0, width, RB):
        _, ok, o = entries(uses, start, stop, r, RB)
        w = tl.load(winners + o, mask=ok, other=-1)
        ok = ok & ((w == n[:, None]) | (~w == n[:, None]))
        parts += tl.load(given + o * step, mask=ok, other=0.0)
    tl.store(grad + n, scale * tl.sum(parts, 1), mask=live)


@triton.jit
def is_tied(winners, count, flags, BLOCK: tl.constexpr):
    """Return whether an output of an example is equal to several inputs."""
    found = tl.zeros((BLOCK,), tl.int32)
    for base in range(0, flags, BLOCK):
        t = base + tl.arange(0, BLOCK)
        found = tl.maximum(found, tl.load(winners + count + t, mask=t < flags, other=0))
    return tl.max(found, 0) > 0


@kernel
def list_gradients(above, slope, winner, grad, pack, inputs, count, flags, above_row, above_column,
                   LOSS: tl.constexpr, NB: tl.constexpr):  # fmt: skip
    e, t = tl.program_id(0).to(tl.int64), tl.program_id(1)
    users, winners = (array(pack, 4), array(pack, 5), array(pack, 6)), winner + e * (count + flags)
    if not is_tied(winners, count, flags, 32):
        first, last, width = tile_of(array(pack, 7), t)
        if LOSS:
            given, step, scale = slope + e * count, 1, tl.load(above + e * above_row)
        else:
            given, step, scale = above + e * above_row, above_column, 1.0
        for wide in tl.static_range(2):
            if (width > FEW_CHILDREN).to(tl.int32) == wide:
                list_gradients_of_rows(
                    given, step, winners, grad + e * inputs, scale, users, first, last, width,
                    NB // WIDER if wide else NB, WIDE_TILE if wide else NARROW_TILE,
                )  # fmt: skip


@kernel
def tied_gradients(x, y, above, slope, winner, grad, work, pack, batch, inputs, nodes, edges, count,
                   flags, S, above_row, above_column, LOSS: tl.constexpr, NB: tl.constexpr):  # fmt: skip
    """Compute the gradients of examples in which an output is equal to several inputs."""
    BLOCK: tl.constexpr = NB * NARROW_TILE
    me, programs = tl.program_id(0), tl.num_programs(0)
    values = work + me.to(tl.int64) * (3 * nodes + 2 * inputs + edges + count)
    ranks, gradients = values + nodes, values + 2 * nodes
    masked, input_gradients = values + 3 * nodes, values + 3 * nodes + inputs
    shares = values + 3 * nodes + 2 * inputs
    T = tl.full((), 1.0, x.dtype.element_ty)
    for e in range(me, batch, programs):
        row = tl.cast(e, tl.int64)
        winners = winner + row * (count + flags)
        if is_tied(winners, count, flags, 32):
            for truth in range(2 if LOSS else 1):
                for base in range(0, inputs, BLOCK):
                    i = base + tl.arange(0, BLOCK)
                    value = tl.load(x + row * inputs + i, mask=i < inputs, other=0.0)
                    if LOSS:
                        label = tl.load(y + row * inputs + i, mask=i < inputs, other=0) > 0.5
                        value = tl.minimum(tl.maximum(value, -LIMIT), LIMIT)
                        value = tl.where(label == (truth > 0), value, -LIMIT)
                    tl.store(masked + i, value, mask=i < inputs)
                tl.debug_barrier()
                run_example(
                    masked, values, ranks, shares + edges, pack, inputs, nodes, count, S, 0, 0, 0, T,
                    True, True, True, False, NB,
                )  # fmt: skip
                tl.debug_barrier()
                for base in range(0, count, BLOCK):
                    o = base + tl.arange(0, BLOCK)
                    here = o < count
                    if LOSS:
                        label = tl.load(y + row * inputs + o, mask=here, other=0) > 0.5
                        met = tl.load(winners + o, mask=here, other=-1) >= 0
                        counts = here & met & (label == (truth > 0))
                        given = tl.load(slope + row * count + o, mask=counts, other=0.0)
                        given = given * tl.load(above + row * above_row)
                    else:
                        at = above + row * above_row + o * above_column
                        given = tl.load(at, mask=here, other=0.0)
                    tl.store(shares + edges + o, given, mask=here)
                tl.debug_barrier()
                run_example_backward(
                    values, ranks, shares, gradients, input_gradients, pack, nodes, edges, count, S,
                    0, 0, 0, T, True, True, False, NB,
                )  # fmt: skip
                for base in range(0, inputs, BLOCK):
                    i = base + tl.arange(0, BLOCK)
                    here = i < inputs
                    found = tl.load(input_gradients + i, mask=here, other=0.0)
                    if LOSS:
                        label = tl.load(y + row * inputs + i, mask=here, other=0) > 0.5
                        unmet = here & (tl.load(winners + i, mask=here, other=0) < 0)
                        own_slope = tl.load(slope + row * count + i, mask=unmet, other=0.0)
                        found += own_slope * tl.load(above + row * above_row)
                        here = here & (label == (truth > 0))
                    tl.store(grad + row * inputs + i, found, mask=here)
                tl.debug_barrier()


# ---- The min/max closure of a batch


def run(
    pack: Tensor, sizes: Sequence[int], semiring: Semiring, x: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (B, O), and for `back` the nodes, and ranks or the steps of cycles.

    `pack` and `sizes` are what `schedule` gives, on the device. An example with a NaN has outputs
    of NaN. `keep` says whether a gradient will be asked for.
    """
    rows, stages, _, nodes, count, states, sums, cycles = sizes
    batch, inputs = x.shape
    hard = semiring.name == "hard"
    width = nodes if hard else cycles * (1 + states * sums)
    v = x.new_empty(batch, nodes + sums)
    extra = x.new_empty(batch if keep else 0, width)
    out = x.new_empty(batch, count)
    if batch:
        launch(
            minmax_forward,
            (batch,),
            (x.contiguous(), v, extra, out, pack, inputs, nodes, count, stages, states, sums, cycles,
             width, _temperature(semiring, x)),
            (hard, keep, semiring.one == 0, cycles > 0, rows),
            warps=rows // 32,
        )  # fmt: skip
    return (out, v, extra) if keep else (out, v[:0], extra)


def back(
    pack: Tensor,
    sizes: Sequence[int],
    semiring: Semiring,
    kept: Tensor,
    extra: Tensor,
    grad: Tensor,
    inputs: int,
) -> Tensor:
    """Return the gradient of the inputs (B, I), from that of the outputs (B, O)."""
    rows, stages, edges, nodes, count, states, sums, cycles = sizes
    batch, hard = len(grad), semiring.name == "hard"
    found = grad.new_empty(batch, inputs)
    if cycles and not hard:  # nodes on a cycle are written to on the way
        kept = kept.clone()
    if batch:
        launch(
            minmax_backward,
            (batch,),
            (kept, extra, grad.new_empty(batch, edges + count), grad.new_empty(batch, nodes),
             grad.contiguous(), found, pack, inputs, nodes, edges, count, stages, states, sums,
             cycles, extra.shape[1], _temperature(semiring, grad)),
            (hard, semiring.one == 0, cycles > 0, rows),
            warps=rows // 32,
        )  # fmt: skip
    return found


#: The most programs that look for examples with ties; each has its own working memory.
_PROGRAMS = 32


def maxima(
    pack: Tensor, sizes: Sequence[int], x: Tensor, y: Tensor | None, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the maxima of lists of inputs (B, O); winners and slopes for `maxima_back`.

    `pack` and `sizes` are what `input_lists` gives, on the device. With labels `y` of the inputs
    and outputs, the cross-entropy of each output is returned instead.
    """
    rows, count, tiles, _ = sizes
    batch, inputs = x.shape
    out = x.new_empty(batch, count)
    kept = batch if keep else 0
    winner = out.new_empty(kept, count + tiles, dtype=torch.int32)
    # Not the outputs where there is none: a graph that keeps its own results is never freed.
    slope = winner if y is None else out.new_empty(kept, count)
    if batch and count:
        launch(
            list_maxima,
            (batch, tiles),
            (x, x if y is None else y, out, slope, winner, pack, inputs, count),
            (keep, y is not None, rows),
            warps=rows // 32,
        )  # fmt: skip
    return out, winner, slope


def maxima_back(
    lists: tuple[Tensor, Sequence[int]],
    schedule: tuple[Tensor, Sequence[int]],
    x: Tensor,
    y: Tensor | None,
    kept: Sequence[Tensor],
    above: Tensor,
) -> Tensor:
    """Return the gradient of the inputs (B, I) of `maxima`.

    `lists` and `schedule` are arrays and sizes, the latter for examples with ties; `above` is the
    gradient of the outputs (B, O), or of the sum of the losses (B,).
    """
    winner, slope = kept
    pack, (tile, count, flags, tiles) = lists
    arrays, (rows, stages, edges, nodes, *_) = schedule
    batch, inputs = x.shape
    grad = torch.empty_like(x)
    steps = above.stride(0), above.stride(-1)  # 0 where it is that of a sum
    if not batch:
        return grad
    launch(
        list_gradients,
        (batch, tiles),
        (above, slope, winner, grad, pack, inputs, count, flags, *steps),
        (y is not None, tile),
        warps=tile // 32,
    )  # fmt: skip
    programs = min(batch, _PROGRAMS)
    work = x.new_empty(programs, 3 * nodes + 2 * inputs + edges + count)
    launch(
        tied_gradients,
        (programs,),
        (x, x if y is None else y, above, slope, winner, grad, work, arrays, batch, inputs, nodes,
         edges, count, flags, stages, *steps),
        (y is not None, rows),
        warps=rows // 32,
    )  # fmt: skip
    return grad


def _temperature(semiring: Semiring, x: Tensor) -> Tensor:
    """Return the temperature on the device of a tensor, in float64; anything where it is 0."""
    T = semiring.temperature
    if semiring.name == "hard" or isinstance(T, Tensor):
        return T if isinstance(T, Tensor) else x
    return torch.full((), T, dtype=torch.float64, device=x.device)


# ---- Sums of products, of probabilities: one program runs all nodes of one example
# Everything is in the log domain and in float64. `v` (B, rows) has the log-probability of every row:
# first the columns of the inputs, then the complements of some of them, then the derived nodes sorted
# by level, last a row that is always 0, with which bodies are padded to K atoms. Rows are worked on in
# chunks of one level, each as a tile of NB rows times RB rules. The backward pass gathers: `share` has
# the gradient of every rule, every output and every negation of an output, and a row adds up the
# shares of the rules that it occurs in, so that sums have a fixed order.
# Log-odds need 1 − p. Where an output is almost certain, that has to be the probability of its
# negation, which takes a circuit several times as large: the first launch marks these examples, and
# only they run in a second one.

READ_LOG_ODDS = tl.constexpr(LOG_ODDS)
LARGE = tl.constexpr(1e300)
MOST_ODDS = tl.constexpr(1e30)
LEAST, ROUNDED = tl.constexpr(LEAST_COMPLEMENT), tl.constexpr(ROUNDED_COMPLEMENT)
# The marks of examples that need negations, and of those with a value that is no probability.
NEEDS_NEGATIONS, INVALID = tl.constexpr(1), tl.constexpr(2)


@triton.jit
def body_logs(values, body, j, ok, K: tl.constexpr):
    """Return the log-probabilities of some rules; -inf where there is none."""
    logs = tl.where(ok, 0.0, float("-inf")).to(tl.float64)
    for k in tl.static_range(K):
        child = tl.load(body + j * K + k, mask=ok, other=0)
        logs += tl.load(values + child, mask=ok, other=0.0)
    return logs


@triton.jit
def some_groups(pack, first, groups, GB: tl.constexpr, GW: tl.constexpr):
    """Return the widths of GB groups, and which columns they have, where, and with which complements."""
    g, column = first + tl.arange(0, GB), tl.arange(0, GW)[None, :]
    start = tl.load(array(pack, 0) + g, mask=g < groups, other=0)[:, None]
    width = tl.load(array(pack, 1) + g, mask=g < groups, other=0)[:, None]
    here, place = column < width, start + column
    return width, here, place, tl.load(array(pack, 2) + place, mask=here, other=-1)


@triton.jit
def fill_probabilities(x, out, values, mark, pack, groups, first_chunk, chunks, outputs, rows,
                       tolerance, AGAIN: tl.constexpr, LOGITS: tl.constexpr,
                       FROM_LOGITS: tl.constexpr, K: tl.constexpr, NB: tl.constexpr,
                       RB: tl.constexpr, GB: tl.constexpr, GW: tl.constexpr,
                       OB: tl.constexpr):  # fmt: skip
    """Fill the rows and outputs of one example, and mark it; `AGAIN` is the second launch."""
    table, rule_ptr, body = array(pack, 3), array(pack, 4), array(pack, 5)
    out_row, out_negation, out_kind = array(pack, 8), array(pack, 9), array(pack, 10)
    invalid, needs = 0, 0
    for first in range(0, groups, GB):
        width, here, place, row = some_groups(pack, first, groups, GB, GW)
        z = tl.load(x + place, mask=here, other=0.0).to(tl.float64)
        wrong = z != z  # noqa: PLR0124 (a NaN is the number that differs from itself)
        if FROM_LOGITS:
            z = tl.where(here, tl.minimum(tl.maximum(z, -LARGE), LARGE), float("-inf"))
            top = tl.maximum(tl.max(z, 1), -LARGE)
            wrong = wrong | (here & (top[:, None] <= -LARGE) & (width > 1))
            total = tl.sum(tl.exp(z - top[:, None]), 1)
            soft = z - (top + tl.log(tl.maximum(total, SMALLEST_64)))[:, None]
            held = tl.where(here, z, 0.0)
            most = tl.log(1.0 + tl.exp(-tl.abs(held)))
            logs = tl.where(width == 1, tl.minimum(held, 0.0) - most, soft)
            others = tl.minimum(-held, 0.0) - most
        else:
            wrong = wrong | (here & ((z < 0.0) | (z > 1.0)))
            miss = tl.abs(tl.sum(tl.where(here, z, 0.0), 1) - 1.0)
            wrong = wrong | (here & (miss[:, None] > tolerance) & (width > 1))
            logs = tl.log(tl.maximum(z, SMALLEST_64))
            others = tl.log(tl.maximum(1.0 - z, ROUNDED if LOGITS else SMALLEST_64))
        tl.store(values + place, logs, mask=here)
        tl.store(values + row, others, mask=row >= 0)
        invalid += tl.sum(tl.sum(wrong.to(tl.int32), 1), 0)
    tl.store(values + rows - 1, 0.0)
    tl.debug_barrier()
    for c in range(first_chunk, chunks):
        at = table + 6 * c
        n, live, one, end = rows_of(rule_ptr, tl.load(at), tl.load(at + 1), NB)
        top = tl.full((NB,), float("-inf"), tl.float64)
        total = tl.zeros((NB,), tl.float64)
        for r in range(0, tl.load(at + 2), RB):
            j = one[:, None] + r + tl.arange(0, RB)[None, :]
            logs = body_logs(values, body, j, j < end[:, None], K)
            higher = tl.maximum(top, tl.max(logs, 1))
            safe = tl.maximum(higher, -LARGE)  # keeps -inf - -inf out
            total = total * tl.exp(top - safe) + tl.sum(tl.exp(logs - safe[:, None]), 1)
            top = higher
        tl.store(values + n, tl.log(total) + tl.maximum(top, -LARGE), mask=live)
        if tl.load(at + 5) > 0:
            tl.debug_barrier()
    for first in range(0, outputs, OB):
        o = first + tl.arange(0, OB)
        there = o < outputs
        n = tl.load(out_row + o, mask=there, other=0)
        false = n == FALSE_OUTPUT
        p = tl.load(values + n, mask=there & (n >= 0), other=0.0)
        if LOGITS:
            odds = tl.load(out_kind + o, mask=there, other=0) == READ_LOG_ODDS
            row = tl.load(out_negation + o, mask=there, other=-1)
            rest = 1.0 - tl.exp(p)
            q = tl.load(values + row, mask=row >= 0, other=0.0)
            q = tl.where(row >= 0, q, tl.log(tl.maximum(rest, LEAST)))
            most = tl.where(false, -MOST_ODDS, MOST_ODDS)
            both = tl.minimum(tl.maximum(p - q, -MOST_ODDS), MOST_ODDS)
            alone = tl.where(n < 0, tl.where(false, float("-inf"), 0.0), p)
            value = tl.where(odds, tl.where(n < 0, most, both), alone)
            lacks = there & (n >= 0) & odds & (row < 0) & (rest < LEAST)
            needs = tl.maximum(needs, tl.max(lacks.to(tl.int32), 0))
        else:
            value = tl.where(false, 0.0, tl.minimum(tl.exp(p), 1.0))
        value = tl.where(invalid > 0, float("nan"), value)
        tl.store(out + o, value, mask=there)
    if not AGAIN:
        if not FROM_LOGITS:
            needs = tl.where(invalid > 0, INVALID, needs)
        tl.store(mark, needs)


@triton.jit
def fill_gradients(x, above, values, gradients, shares, grad, pack, groups, chunks, outputs, rules,
                   ONES: tl.constexpr, LOGITS: tl.constexpr, FROM_LOGITS: tl.constexpr,
                   K: tl.constexpr, NB: tl.constexpr, RB: tl.constexpr, GB: tl.constexpr,
                   GW: tl.constexpr, OB: tl.constexpr):  # fmt: skip
    """Fill the gradient of the columns of one example; `ONES`: that of its outputs is one."""
    table, rule_ptr, body = array(pack, 3), array(pack, 4), array(pack, 5)
    use_ptr, uses = array(pack, 6), array(pack, 7)
    out_row, out_negation, out_kind = array(pack, 8), array(pack, 9), array(pack, 10)
    for first in range(0, outputs, OB):
        o = first + tl.arange(0, OB)
        there = o < outputs
        n = tl.load(out_row + o, mask=there, other=0)
        slope = tl.exp(tl.load(values + n, mask=there & (n >= 0), other=0.0))
        if ONES:
            given = tl.full((OB,), 1.0, tl.float64)
        else:
            given = tl.load(above + o, mask=there, other=0.0).to(tl.float64)
        if LOGITS:
            odds = tl.load(out_kind + o, mask=there, other=0) == READ_LOG_ODDS
            row = tl.load(out_negation + o, mask=there, other=-1)
            rest = tl.maximum(1.0 - slope, LEAST)
            slope = tl.where(odds & (row < 0), 1.0 / rest, 1.0)
            tl.store(shares + rules + outputs + o, -given, mask=there)
        tl.store(shares + rules + o, given * slope, mask=there)
    tl.debug_barrier()
    for back in range(0, chunks):
        at = table + 6 * (chunks - 1 - back)
        n, live, one, end = rows_of(use_ptr, tl.load(at), tl.load(at + 1), NB)
        # Summed after the loop: Triton 3.6 cannot compile a loop that adds up sums of float64.
        parts = tl.zeros((NB, RB), tl.float64)
        for r in range(0, tl.load(at + 3), RB):
            _, ok, rule = entries(uses, one, end, r, RB)
            parts += tl.load(shares + rule, mask=ok, other=0.0)
        total = tl.sum(parts, 1)
        tl.store(gradients + n, total, mask=live)
        one = tl.load(rule_ptr + n, mask=live, other=0)
        end = tl.load(rule_ptr + n + 1, mask=live, other=0)
        value = tl.load(values + n, mask=live, other=0.0)
        for r in range(0, tl.load(at + 2), RB):
            j = one[:, None] + r + tl.arange(0, RB)[None, :]
            ok = j < end[:, None]
            logs = body_logs(values, body, j, ok, K)
            # A body without any chance has no share.
            likely = logs > float("-inf")
            weight = tl.exp(tl.where(likely, logs - value[:, None], float("-inf")))
            tl.store(shares + j, tl.where(likely, total[:, None] * weight, 0.0), mask=ok)
        if tl.load(at + 4) > 0:
            tl.debug_barrier()
    for first in range(0, groups, GB):
        width, here, place, row = some_groups(pack, first, groups, GB, GW)
        slope = tl.load(gradients + place, mask=here, other=0.0)
        logs = tl.load(values + place, mask=here, other=0.0)
        fall = tl.load(gradients + row, mask=row >= 0, other=0.0)
        if FROM_LOGITS:
            z = tl.load(x + place, mask=here, other=0.0).to(tl.float64)
            unlikely = tl.exp(-tl.abs(z))
            rise = slope * tl.where(z > 0.0, unlikely, 1.0)
            alone = (rise - fall * tl.where(z > 0.0, 1.0, unlikely)) / (1.0 + unlikely)
            soft = slope - tl.exp(logs) * tl.sum(slope, 1)[:, None]
            slope = tl.where(width == 1, alone, soft)
        else:
            others = tl.load(values + row, mask=row >= 0, other=0.0)
            slope = slope * tl.exp(-logs) - fall * tl.exp(-others)
        tl.store(grad + place, slope, mask=here)


@kernel
def probability_passes(x, out, above, grad, v, work, marks, pack, columns, groups, first_chunk, chunks,
                  outputs, rows, rules, tolerance, FORWARD: tl.constexpr, BACKWARD: tl.constexpr,
                  AGAIN: tl.constexpr, LOGITS: tl.constexpr, FROM_LOGITS: tl.constexpr,
                  K: tl.constexpr, NB: tl.constexpr, RB: tl.constexpr, GB: tl.constexpr,
                  GW: tl.constexpr, OB: tl.constexpr):  # fmt: skip
    """Run every example forward, backward, or both ways with a gradient of one for its outputs."""
    e = tl.program_id(0).to(tl.int64)
    x, values, mark = x + e * columns, v + e * rows, marks + e
    gradients = work + e * (rows + rules + 2 * outputs)
    if AGAIN:
        runs = tl.load(mark) == NEEDS_NEGATIONS
    elif FORWARD:
        runs = True
    else:
        runs = tl.load(mark) != NEEDS_NEGATIONS
    if runs:
        if FORWARD:
            fill_probabilities(
                x, out + e * outputs, values, mark, pack, groups, first_chunk, chunks, outputs, rows,
                tolerance, AGAIN, LOGITS, FROM_LOGITS, K, NB, RB, GB, GW, OB,
            )  # fmt: skip
            tl.debug_barrier()
        if BACKWARD:
            fill_gradients(
                x, above + e * outputs, values, gradients, gradients + rows, grad + e * columns, pack,
                groups, chunks, outputs, rules, FORWARD, LOGITS, FROM_LOGITS, K, NB, RB, GB, GW, OB,
            )  # fmt: skip


# Numbers in a tile, and the most rules along one side of it.
_TILE = 1024
_MOST_RULES = 128


def run_on_cuda(
    plans: Sequence[FusedPass],
    tensors: Sequence[Tensor],
    *,
    from_logits: bool,
    logits: bool,
    tolerance: float,
    again: Callable[..., Tensor],
) -> Tensor | None:
    """Return the outputs (B, *shape), or None where plain torch has to compute them.

    An example with a NaN among its scores has outputs of NaN: to raise an exception would mean to
    wait for the device. `plans` has the pass, in which no rules of one node are independent, and
    after it the same with negations of the outputs, where log-odds are read. See `FusedPass.run`.
    """
    plan, device = plans[0], tensors[0].device
    with torch.no_grad():
        given = [
            tensor.reshape(len(tensor), len(group.row))
            for tensor, group in zip(tensors, plan.groups, strict=True)
        ]
        batch = len(given[0])
        x = torch.cat(given, 1) if len(given) > 1 else given[0].contiguous()
    wanted = [n for n, tensor in enumerate(tensors) if tensor.requires_grad]
    learn = torch.is_grad_enabled() and bool(wanted)
    outputs = len(plan.circuit.outputs)
    alone = learn and outputs == 1  # then one launch runs both ways
    out, slope = x.new_empty(batch, outputs), torch.empty_like(x) if alone else x
    marks = torch.empty(batch, dtype=torch.int32, device=device)
    filled = [torch.empty(batch, _pass_on(p, device)[1][5], dtype=torch.float64, device=device)
              for p in plans]  # fmt: skip

    def launch_all(above: Tensor, slope: Tensor, forward: bool, backward: bool) -> None:
        for n, (p, v) in enumerate(zip(plans, filled, strict=True)):
            pack, numbers, sizes = _pass_on(p, device)
            rows, rules = numbers[5:]
            work = v.new_empty(batch, rows + rules + 2 * outputs) if backward else v
            launch(
                probability_passes,
                (batch,),
                (x, out, above, slope, v, work, marks, pack, *numbers, tolerance),
                (forward, backward, n > 0, logits, from_logits, *sizes),
                warps=8,
            )

    if batch:
        launch_all(out, slope, True, alone)
    if not from_logits and values_can_be_read(marks) and bool((marks == INVALID.value).any()):
        return None
    result = out.view(batch, *plan.shape)
    if not learn:
        return result
    ends = list(accumulate((part.shape[1] for part in given), initial=0))
    spans = [slice(ends[n], ends[n + 1]) for n in wanted]

    def gradients(above: Tensor) -> list[Tensor]:
        above = above.reshape(batch, outputs).contiguous()
        if alone:
            return [slope[:, span] * above for span in spans]
        found = torch.empty_like(x)  # the caller keeps it, and may ask for another gradient
        if batch:
            launch_all(above, found, False, True)
        return [found[:, span] for span in spans]

    return differentiable(result, gradients, again, tensors)


@kept_with_owner
def _pass_on(plan: FusedPass, device: torch.device) -> tuple[Tensor, list[int], list[int]]:
    """Return the arrays of a pass on a device, in one; its sizes, and those of its tiles.

    The sizes are: columns, groups, the first chunk with rules, chunks, outputs, rows, rules.
    """
    circuit = plan.circuit
    # The columns of the inputs in the order of the tensors, their complements, the nodes by level.
    columns = np.concatenate([group.row for group in plan.groups])
    none = np.concatenate([group.none for group in plan.groups])
    negated = np.flatnonzero(none >= 0)
    inputs = len(columns) + len(negated)
    complement = np.full(len(columns), -1)
    complement[negated] = np.arange(len(columns), inputs)
    widths = [group.width for group in plan.groups for _ in range(len(group.row) // group.width)]
    derived = circuit.nodes - circuit.inputs
    row = np.zeros(plan.rows, np.int64)
    row[columns] = np.arange(len(columns))
    row[none[negated]] = complement[negated]
    row[circuit.inputs : circuit.nodes] = inputs + np.arange(derived)
    rows = inputs + derived + 1
    # Rules in the order of the rows, padded with the last row.
    rule_ptr = np.zeros(rows + 1, np.int64)
    rule_ptr[inputs:rows] = circuit.term_ptr[circuit.inputs :]
    rule_ptr[rows] = rule_ptr[rows - 1]
    size = circuit.parts.sizes
    rules, K = len(size), max(int(size.max(initial=1)), 1)
    body = np.full((rules, K), rows - 1, np.int64)
    body[np.arange(K) < size[:, None]] = row[circuit.parts.indices]
    # Where each row occurs: in rules, then in outputs, then as the negation of outputs.
    out_row, out_negation = circuit.outputs.copy(), np.full(len(circuit.outputs), -1)
    out_row[out_row >= 0] = row[out_row[out_row >= 0]]
    out_negation[plan.negations] = row[plan.complements[plan.negations]]
    read = np.concatenate((out_row, out_negation))
    atom = np.concatenate((body.ravel(), np.where(read < 0, rows - 1, read)))
    user = np.concatenate((np.repeat(np.arange(rules), K), rules + np.arange(len(read))))
    user = user[np.argsort(atom, kind="stable")]
    times = np.bincount(atom, minlength=rows)
    times[rows - 1] = 0  # the last row needs no gradient, and its uses come last
    rules_of = np.diff(rule_ptr)
    RB = min(_power_of_two(int(max(rules_of.max(initial=1), 1))), _MOST_RULES)
    NB = _TILE // RB
    # Chunks: the first row, the one after the last, the most rules and the most uses of a row,
    # whether it is the first and whether it is the last one of its level.
    ends = [0, *(inputs + circuit.stage_ptr - circuit.inputs).tolist()]
    chunks = [
        (a, b := min(a + NB, last), rules_of[a:b].max(), times[a:b].max(), a == first, b == last)
        for first, last in pairwise(ends)
        for a in range(first, last, NB)
    ]
    GW = _power_of_two(max(widths, default=1))
    arrays = (np.cumsum(widths) - widths, np.array(widths), complement, np.array(chunks), rule_ptr,
              body, np.append(0, np.cumsum(times)), user, out_row, out_negation,
              plan.logarithms)  # fmt: skip
    numbers = [len(columns), len(widths), -(-inputs // NB), len(chunks), len(out_row), rows, rules]
    sizes = [K, NB, RB, max(_TILE // GW, 1), GW, 256]
    return torch.from_numpy(packed(arrays)).to(device), numbers, sizes


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
