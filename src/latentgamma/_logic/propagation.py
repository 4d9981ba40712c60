"""The closure of one fact set, level by level, in time linear in the size of the program.

Each rule counts the body atoms that are not yet true; when an atom becomes true, the rules that
use it count down, and a rule that reaches zero fires. Small programs are closed in Python, larger
ones by compiled loops that do the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._program.compilation import Cells, compile_loop, worth_compiling
from latentgamma._program.dependency_graph import Rows, rules_using, stated_facts
from latentgamma._program.facts import Mask
from latentgamma._program.program import Indices, Offsets, Program


class Levels(NamedTuple):
    """The derived atoms level by level: level d is `order[offsets[d]:offsets[d + 1]]`."""

    state: Mask  # (M,) which atoms are derived
    order: Indices
    offsets: Offsets


def derive_levels(program: Program, given: Mask) -> Levels:
    """The atoms that follow from the given ones, by the step at which they become true."""
    if worth_compiling(program.size + program.M):
        return _derive_compiled(program, given)
    return _derive_in_python(program, given)


class _Lists(NamedTuple):
    uses: list[list[int]]
    heads: list[list[int]]
    stated: list[int]
    body_sizes: list[int]


def _as_lists(program: Program) -> _Lists:
    return _Lists(
        rules_using(program).to_lists(),
        Rows(program.head_indptr, program.head_indices).to_lists(),
        stated_facts(program).tolist(),
        program.body_sizes.tolist(),
    )


def _small_body_sizes(program: Program) -> npt.NDArray[Any]:
    """The sizes of the bodies in as few bytes as they need: counters that stay in the cache."""
    return program.body_sizes.astype(np.uint8 if program.k <= 255 else np.int32)


def _derive_in_python(program: Program, given: Mask) -> Levels:
    uses, heads, stated, body_sizes = program.cached(_as_lists)
    known, order = given.tolist(), np.flatnonzero(given).tolist()
    offsets = propagate_lists(uses, heads, stated, body_sizes.copy(), known, order)
    state = np.array(known, np.bool_)
    return Levels(state, np.array(order, np.int32), np.array(offsets, np.int64))


def _derive_compiled(program: Program, given: Mask) -> Levels:
    M, facts, sizes = program.M, np.flatnonzero(given), program.cached(_small_body_sizes)
    mark = np.zeros(-(-M // 8) * 8, np.uint8)
    mark[:M] = given
    heads = program.head_indptr, program.head_indices
    many = len(facts) * 8 > M
    if many:  # the first step rule by rule
        missing, bits = np.empty_like(sizes), np.packbits(given, bitorder="little")
        compile_loop(fire_first_level)(sizes, program.body_indices, *heads, bits, mark, missing)
        ahead = np.flatnonzero(mark == 2)
        mark[ahead] = 1
    else:
        stated = stated_facts(program)
        missing, ahead = sizes.copy(), stated[~given[stated]]
        mark[ahead] = 2
    order = np.empty(M + 1, np.int32)
    order[: len(facts)] = facts
    order[len(facts) : len(facts) + len(ahead)] = ahead
    offsets = np.empty(M + 3, np.int64)
    offsets[:3] = 0, len(facts), len(facts) + len(ahead)
    start = (1, 0) if many else (0, len(ahead))
    depth = compile_loop(propagate)(
        *rules_using(program), *heads, missing, mark, mark.view(np.uint64), order, offsets, *start
    )
    offsets = offsets[: depth + 2].copy()
    return Levels(mark[:M].view(np.bool_), order[: offsets[-1]], offsets)


# ------------------------------------------------------------------------ loops


def propagate_lists(
    uses: list[list[int]],
    heads: list[list[int]],
    stated: list[int],
    missing: list[int],
    known: list[bool],
    order: list[int],
) -> list[int]:
    """The offsets of the levels in `order`, which comes with the facts and ends as the closure.

    `uses` lists the rules that use each atom, `missing` counts the body atoms that are not yet
    true, and `known` says which atoms are.
    """
    offsets = [0, len(order)]
    for h in stated:
        if not known[h]:
            known[h] = True
            order.append(h)
    done = 0
    while True:
        for i in order[done : offsets[-1]]:
            for j in uses[i]:
                missing[j] -= 1
                if not missing[j]:
                    for h in heads[j]:
                        if not known[h]:
                            known[h] = True
                            order.append(h)
        if len(order) == offsets[-1]:
            return offsets
        done = offsets[-1]
        offsets.append(len(order))


def fire_first_level(
    sizes: Cells,
    body: Cells,
    head_ptr: Cells,
    head: Cells,
    facts: Cells,
    mark: Cells,
    missing: Cells,
) -> None:
    """Count what each body misses, reading the rules in order, and mark the heads that fire.

    With many facts this beats following each fact to its rules: the program streams through,
    and only `facts`, one bit per atom, is read at random.
    """
    one_head = len(head) == len(sizes)
    p = 0
    for j in range(len(sizes)):
        lacks = sizes[j]
        for _ in range(sizes[j]):
            i = body[p]
            lacks -= (facts[i >> 3] >> (i & 7)) & 1
            p += 1
        missing[j] = lacks
        if lacks == 0:
            first = j if one_head else head_ptr[j]
            last = j + 1 if one_head else head_ptr[j + 1]
            for h in range(first, last):
                if mark[head[h]] == 0:
                    mark[head[h]] = 2


def propagate(
    use_ptr: Cells,
    use: Cells,
    head_ptr: Cells,
    head: Cells,
    missing: Cells,
    mark: Cells,
    mark_words: Cells,
    order: Cells,
    offsets: Cells,
    depth: int,
    ahead: int,
) -> int:
    """The depth of the closure; `order` and `offsets` end up holding it level by level.

    Level `depth` is the last one given, and `order` already holds `ahead` atoms of the next.
    `mark` is 0 for an atom not derived, 2 for one of the next level, 1 for the others;
    `mark_words` is the same memory, eight atoms a word.

    The memory is read at random, so each level goes through in batches, in stages that
    depend on each other only from stage to stage: the processor then waits for many cache
    misses at once instead of for one after another. A wide level is put in the order of the
    atoms first, for the same reason.
    """
    atoms = len(use_ptr) - 1
    one_head = len(head) == len(head_ptr) - 1
    batch, most_rules = 256, 1024
    starts = np.empty(batch, np.int64)
    ends = np.empty(batch, np.int64)
    rules = np.empty(most_rules, np.int32)
    fired = np.empty(most_rules + 1, np.int32)
    twos = np.uint64(0x0202020202020202)
    while offsets[depth] < offsets[depth + 1] or ahead > 0:
        q, end = offsets[depth], offsets[depth + 1]
        n = end + ahead
        ahead = 0
        while q < end:
            taken = min(batch, end - q)
            for x in range(taken):
                i = order[q + x]
                starts[x] = use_ptr[i]
                ends[x] = use_ptr[i + 1]
            q += taken
            x = 0
            while x < taken:
                filled = 0
                while x < taken:  # the rules that use these atoms, as many as fit
                    stop = min(ends[x], starts[x] + most_rules - filled)
                    for p in range(starts[x], stop):
                        rules[filled] = use[p]
                        filled += 1
                    starts[x] = stop
                    if stop < ends[x]:
                        break
                    x += 1
                firing = 0
                for y in range(filled):
                    j = rules[y]
                    lacks = missing[j] - 1
                    missing[j] = lacks
                    fired[firing] = j
                    firing += lacks == 0
                for y in range(firing):
                    j = fired[y]
                    first = j if one_head else head_ptr[j]
                    last = j + 1 if one_head else head_ptr[j + 1]
                    for p in range(first, last):
                        h = head[p]
                        fresh = mark[h] == 0
                        order[n] = h
                        n += fresh
                        mark[h] += 2 * fresh
        if (n - end) * 1024 > atoms:
            n = end
            for w in range(len(mark_words)):
                if mark_words[w] & twos:
                    for i in range(8 * w, 8 * w + 8):
                        fresh = mark[i] == 2
                        order[n] = i
                        n += fresh
                        mark[i] -= fresh
        else:
            for x in range(end, n):
                mark[order[x]] = 1
        depth += 1
        offsets[depth + 1] = n
    return max(depth - 1, 0)
