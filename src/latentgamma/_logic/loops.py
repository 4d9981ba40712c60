"""The inner loops of closures, and the compiler they are given to.

A loop reads and fills flat sequences that its caller made. `compiled(loop)` is its machine
code, which numba keeps on disk; importing this module imports nothing heavy.

A relation between atoms and rules is a pair (offsets, members) of compressed rows:
`body` and `head` are those of the program, `use` lists for each atom the rules whose body
it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

#: An array in a compiled loop; a list where the same loop runs uncompiled.
Cells: TypeAlias = Any
Loop = TypeVar("Loop", bound=Callable[..., Any])


@cache
def compiled(loop: Loop) -> Loop:
    """The loop as machine code, which releases the interpreter while it runs."""
    import numba

    try:
        return cast(Loop, numba.njit(cache=True, nogil=True)(loop))
    except RuntimeError:  # no folder here can be written to: compile afresh in each process
        return cast(Loop, numba.njit(nogil=True)(loop))


def invert(offsets: Cells, members: Cells, ends: Cells, rows: Cells) -> None:
    """Fill `rows` with the rows each member occurs in, rising; `ends[:-1]` become its offsets.

    `ends` comes as zeros, one for each member and two more.
    """
    for member in members:
        ends[member + 2] += 1
    for member in range(len(ends) - 2):
        ends[member + 2] += ends[member + 1]
    for row in range(len(offsets) - 1):
        for p in range(offsets[row], offsets[row + 1]):
            member = members[p]
            rows[ends[member + 1]] = row
            ends[member + 1] += 1


# -------------------------------------------------------------------- one fact set


def spread_plainly(
    uses: list[list[int]],
    heads: list[list[int]],
    own: list[int],
    missing: list[int],
    known: list[bool],
    order: list[int],
) -> list[int]:
    """The offsets of the levels in `order`, which comes with the facts and ends as the closure."""
    offsets = [0, len(order)]
    for h in own:
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


def first_level(
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


def spread(
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
    batch, room = 256, 1024
    starts = np.empty(batch, np.int64)
    ends = np.empty(batch, np.int64)
    rules = np.empty(room, np.int32)
    fired = np.empty(room + 1, np.int32)
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
                while x < taken:  # the rules that use these atoms, as many as there is room for
                    stop = min(ends[x], starts[x] + room - filled)
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


# -------------------------------------------------------------------- many fact sets
#
# One bit of a word is one fact set. `words` (tiles, M, width) holds tiles of 64 * width sets,
# so that the state of a tile stays in the cache while the rules go over it. Between the bytes
# of the sets and these words lie `planes` (8, M), eight sets a byte, and `line` (M,), 64 sets
# a word: every loop runs along the atoms, where both sides are contiguous, and becomes vector
# instructions.


def pack(given: Cells, first: int, last: int, planes: Cells, line: Cells, words: Cells) -> None:
    """Fill `words` with rows `first` to `last` of `given`, and with zeros beyond them."""
    tiles, atoms, width = words.shape
    row = first
    for tile in range(tiles):
        for w in range(width):
            line[:] = 0
            for g in range(min(8, -(-(last - row) // 8))):
                plane = planes[g]
                plane[:] = 0
                for b in range(min(8, last - row)):
                    source = given[row + b]
                    for i in range(atoms):
                        plane[i] |= source[i] << b
                for i in range(atoms):
                    line[i] |= np.uint64(plane[i]) << np.uint64(8 * g)
                row += 8
            for i in range(atoms):
                words[tile, i, w] = line[i]


def unpack(words: Cells, planes: Cells, line: Cells, closed: Cells, first: int, last: int) -> None:
    """Fill rows `first` to `last` of `closed` with the bits of `words`."""
    tiles, atoms, width = words.shape
    row = first
    for tile in range(tiles):
        for w in range(width):
            for i in range(atoms):
                line[i] = words[tile, i, w]
            for g in range(min(8, -(-(last - row) // 8))):
                plane = planes[g]
                for i in range(atoms):
                    plane[i] = line[i] >> np.uint64(8 * g)
                for b in range(min(8, last - row)):
                    target = closed[row + b]
                    for i in range(atoms):
                        target[i] = (plane[i] >> b) & 1
                row += 8


def close(
    body_ptr: Cells,
    body: Cells,
    head_ptr: Cells,
    head: Cells,
    block_ptr: Cells,
    cyclic: Cells,
    words: Cells,
    settled: Cells,
) -> None:
    """Close every tile of `words` under the rules: an AND over a body, an OR into its heads.

    The rules come in blocks, in an order in which one pass settles a block without cycles;
    the others are repeated until they rest. A tile that has not come to rest after as many
    passes as it has sets is left there, and `settled` says so: from here on it is no slower
    to close one set after another.
    """
    tiles, _, width = words.shape
    every = np.empty(width, np.uint64)
    for tile in range(tiles):
        state = words[tile]
        settled[tile] = True
        for block in range(len(block_ptr) - 1):
            passes = 0
            moving = True
            while moving:
                changed = np.uint64(0)
                for j in range(block_ptr[block], block_ptr[block + 1]):
                    for w in range(width):
                        every[w] = ~np.uint64(0)
                    for p in range(body_ptr[j], body_ptr[j + 1]):
                        i = body[p]
                        for w in range(width):
                            every[w] &= state[i, w]
                    for p in range(head_ptr[j], head_ptr[j + 1]):
                        i = head[p]
                        for w in range(width):
                            before = state[i, w]
                            changed |= every[w] & ~before
                            state[i, w] = before | every[w]
                passes += 1
                moving = cyclic[block] and changed != 0
                if moving and passes > 64 * width:
                    settled[tile] = False
                    moving = False
