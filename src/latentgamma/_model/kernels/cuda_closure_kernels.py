"""T_P on supports, 32 examples in the bits of a word: a thread block runs them until they rest.

`orders` is (rule_order, atom_order); rows of literals are as in `cuda_arithmetic`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _rows_from(start, size, literals, ROWS: tl.constexpr):
    """Some rows of literals: numbers, mask, the first place, the length, and two literals."""
    row = start + tl.arange(0, ROWS)
    live = row < size
    first = tl.load(literals[0] + row, mask=live, other=0)
    count = tl.load(literals[0] + row + 1, mask=live, other=0) - first
    one = tl.load(literals[1] + first, mask=count > 0, other=0)
    two = tl.load(literals[1] + first + 1, mask=count > 1, other=0)
    longest = tl.load(literals[3] + start // ROWS)
    return row, live, first, count, one, two, longest


@triton.jit
def _any_literal(source, literals, first, count, one, two, longest, ABSENT: tl.constexpr):
    """In which examples a literal of the row is true (or, with ABSENT, false). [rows]."""
    # Where a literal is missing, the source is taken for one that has no effect.
    flip = -1 if ABSENT else 0
    found = tl.load(source + one, mask=count > 0, other=flip) ^ flip
    found |= tl.load(source + two, mask=count > 1, other=flip) ^ flip
    for p in range(2, longest):
        here = p < count
        other = tl.load(literals[1] + first + p, mask=here, other=0)
        found |= tl.load(source + other, mask=here, other=flip) ^ flip
    return found


@triton.jit(do_not_specialize=["most", "delay", "limit"])
def count_steps(
    state, counts, soft, support, fired, orders, bodies, sources, B, M, R, most, delay, limit,
    ROWS: tl.constexpr, ONE_RUN: tl.constexpr,
):  # fmt: skip
    """counts[b] = min(depth + delay, limit) for a support of depth > 0 under T_P, otherwise 0.

    No more than `most` steps of T_P are taken. soft[block] says whether any value of the block is
    neither 0 nor 1.
    """
    block = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, 32)
    example = block * 32 + e
    seen = example < B
    support += block * M
    fired += block * R
    undecided = tl.zeros([ROWS, 32], tl.int32)
    for start in range(0, M, ROWS):
        i = start + tl.arange(0, ROWS)
        atom = i < M
        own = tl.load(orders[1] + i, mask=atom, other=0)
        both = atom[:, None] & seen[None, :]
        s = tl.load(state + example[None, :] * M + own[:, None], mask=both, other=1.0)
        undecided |= ((s != 0.0) & (s != 1.0)).to(tl.int32)
        tl.store(support + i, tl.sum((s > 0.5).to(tl.int32) << e[None, :], axis=1), mask=atom)
    tl.store(soft + block, tl.max(tl.max(undecided, axis=0), axis=0))
    tl.debug_barrier()
    depth = tl.zeros([32], tl.int32)
    step = 0
    goes_on = most
    # Where one run of rows is all there is, its literals stay in registers.
    j, rule, r_first, r_count, r_one, r_two, r_longest = _rows_from(0, R, bodies, ROWS)
    i, atom, a_first, a_count, a_one, a_two, a_longest = _rows_from(0, M, sources, ROWS)
    while goes_on > 0:
        for start in range(0, R, ROWS):
            if not ONE_RUN:
                j, rule, r_first, r_count, r_one, r_two, r_longest = _rows_from(
                    start, R, bodies, ROWS
                )
            lacks = _any_literal(
                support, bodies, r_first, r_count, r_one, r_two, r_longest, True
            )
            tl.store(fired + j, ~lacks, mask=rule)
        tl.debug_barrier()
        new = tl.zeros([ROWS], tl.int32)
        for start in range(0, M, ROWS):
            if not ONE_RUN:
                i, atom, a_first, a_count, a_one, a_two, a_longest = _rows_from(
                    start, M, sources, ROWS
                )
            derived = _any_literal(
                fired, sources, a_first, a_count, a_one, a_two, a_longest, False
            )
            old = tl.load(support + i, mask=atom, other=-1)
            tl.store(support + i, old | derived, mask=atom)
            new |= derived & ~old
        step += 1
        changed = tl.reduce(new, 0, _or)
        depth = tl.where(((changed >> e) & 1) > 0, step, depth)
        goes_on = tl.where(changed != 0, most - step, 0)
        tl.debug_barrier()
    steps = tl.where(depth > 0, tl.minimum(depth + delay, limit), 0)
    tl.store(counts + example, steps.to(tl.int64), mask=seen)
