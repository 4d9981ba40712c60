"""The inner loops of closures and proofs: plain Python that numba can compile.

Every loop reads and fills flat sequences that its caller made. On small inputs it runs as
it stands, on lists; on large ones `compiled(loop)` is the same loop as machine code, which
numba keeps on disk. Importing this module imports nothing heavy.

A relation between atoms and rules is a pair (offsets, members) of compressed rows:
`body` and `head` are those of the program, `use` lists for each atom the rules whose body
it is in.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

#: A list on the plain path, an array on the compiled one.
Cells: TypeAlias = Any
F = TypeVar("F", bound=Callable[..., Any])

#: A cost no sum exceeds, so that shared sub-proofs counted over and over stay finite.
DEAREST = 1e300


@cache
def compiled(loop: F) -> F:
    """The loop as machine code, which releases the interpreter while it runs."""
    import numba

    try:
        made: F = numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # no folder here can be written to: compile afresh in each process
        made = numba.njit(nogil=True)(loop)
    return made


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
    `mark` is 0 for an atom not derived, 2 for one derived but not yet followed, 1 otherwise;
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
        for x in range(q, end):
            mark[order[x]] = 1
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
                        order[n] = i
                        n += mark[i] == 2
        depth += 1
        offsets[depth + 1] = n
    return max(depth - 1, 0)


# -------------------------------------------------------------------- the dependency graph


def components(
    use_ptr: Cells,
    use: Cells,
    head_ptr: Cells,
    head: Cells,
    derivable: Cells,
    component: Cells,
    finish: Cells,
    visit: Cells,
    low: Cells,
    edge: Cells,
    calls: Cells,
    stack: Cells,
    tail: Cells,
) -> int:
    """The longest derivation the dependency graph allows, in steps of the operator.

    The nodes are the atoms, then the rules: an atom points to the rules that use it, and a
    rule to its heads. Fills `component` with the strongly connected component of each node,
    numbered from the ends of the graph to its beginnings, and `finish` with the order in
    which a depth-first search leaves them. (Tarjan's algorithm, with its recursion as a
    stack.) `component` comes as -1 and `visit` as 0; the rest is room to work in.

    Once everything before it is settled, a component of n derivable atoms gains at least one
    of them in each step until it is settled too: it weighs n steps.
    """
    atoms = len(use_ptr) - 1
    found, seen, left, piled, bound = 0, 0, 0, 0, 0
    for root in range(len(component)):
        if visit[root] > 0:
            continue
        calls[0] = root
        called = 1
        while called > 0:
            v = calls[called - 1]
            if visit[v] == 0:
                seen += 1
                visit[v] = seen
                low[v] = seen
                edge[v] = use_ptr[v] if v < atoms else head_ptr[v - atoms]
                stack[piled] = v
                piled += 1
            p = edge[v]
            if p < (use_ptr[v + 1] if v < atoms else head_ptr[v - atoms + 1]):
                edge[v] = p + 1
                w = use[p] + atoms if v < atoms else head[p]
                if visit[w] == 0:
                    calls[called] = w
                    called += 1
                elif component[w] < 0:
                    low[v] = min(low[v], visit[w])
                continue
            called -= 1
            if called > 0:
                above = calls[called - 1]
                low[above] = min(low[above], low[v])
            finish[v] = left
            left += 1
            if low[v] < visit[v]:
                continue
            bottom = piled
            while component[v] < 0:
                bottom -= 1
                component[stack[bottom]] = found
            weight, beyond = 0, 0
            for x in range(bottom, piled):
                u = stack[x]
                if u < atoms:
                    weight += derivable[u]
                    for p in range(use_ptr[u], use_ptr[u + 1]):
                        if component[use[p] + atoms] != found:
                            beyond = max(beyond, tail[component[use[p] + atoms]])
                else:
                    for p in range(head_ptr[u - atoms], head_ptr[u - atoms + 1]):
                        if component[head[p]] != found:
                            beyond = max(beyond, tail[component[head[p]]])
            piled = bottom
            tail[found] = weight + beyond
            bound = max(bound, weight + beyond)
            found += 1
    return bound


# -------------------------------------------------------------------- many fact sets
#
# One bit of a word is one fact set. `words` (tiles, M, width) holds tiles of 64 * width sets,
# so that the state of a tile stays in the cache while the rules go over it; `planes` (8, M)
# is the half-way house between bytes and words, eight sets a byte: its loops run along the
# atoms, where both sides are contiguous, and become vector instructions.


def pack(given: Cells, first: int, last: int, planes: Cells, words: Cells) -> None:
    """Fill `words` with rows `first` to `last` of `given`, and with zeros beyond them."""
    tiles, atoms, width = words.shape
    row = first
    for tile in range(tiles):
        for w in range(width):
            for g in range(8):
                plane = planes[g]
                if row + 8 <= last:
                    r0, r1, r2, r3 = given[row], given[row + 1], given[row + 2], given[row + 3]
                    r4, r5, r6, r7 = given[row + 4], given[row + 5], given[row + 6], given[row + 7]
                    for i in range(atoms):
                        low = r0[i] | r1[i] << 1 | r2[i] << 2 | r3[i] << 3
                        plane[i] = low | r4[i] << 4 | r5[i] << 5 | r6[i] << 6 | r7[i] << 7
                else:
                    plane[:] = 0
                    for b in range(last - row):
                        for i in range(atoms):
                            plane[i] |= given[row + b, i] << b
                row += 8
            for i in range(atoms):
                word = np.uint64(0)
                for g in range(8):
                    word |= np.uint64(planes[g, i]) << np.uint64(8 * g)
                words[tile, i, w] = word


def unpack(words: Cells, planes: Cells, closed: Cells, first: int, last: int) -> None:
    """Fill rows `first` to `last` of `closed` with the bits of `words`."""
    tiles, atoms, width = words.shape
    row = first
    for tile in range(tiles):
        for w in range(width):
            if row >= last:
                return
            for i in range(atoms):
                word = words[tile, i, w]
                for g in range(8):
                    planes[g, i] = word >> np.uint64(8 * g)
            for g in range(8):
                plane = planes[g]
                for b in range(min(8, last - row)):
                    out = closed[row + b]
                    for i in range(atoms):
                        out[i] = (plane[i] >> b) & 1
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


# -------------------------------------------------------------------- what is missing


def reach_back(
    rule_ptr: Cells, rules: Cells, body_ptr: Cells, body: Cells, mark: Cells, queue: Cells
) -> int:
    """The number of atoms in `queue`: those a derivation of `queue[0]` may still need.

    `rules` lists the rules of each head; `mark` comes as 1 where an atom is derived or is
    the first of the queue, and as 0 elsewhere.
    """
    q, n = 0, 1
    while q < n:
        i = queue[q]
        q += 1
        for p in range(rule_ptr[i], rule_ptr[i + 1]):
            j = rules[p]
            for b in range(body_ptr[j], body_ptr[j + 1]):
                if mark[body[b]] == 0:
                    mark[body[b]] = 1
                    queue[n] = body[b]
                    n += 1
    return n


def cheapest(
    use_ptr: Cells,
    use: Cells,
    head_ptr: Cells,
    head: Cells,
    missing: Cells,
    total: Cells,
    cost: Cells,
    reason: Cells,
    settled: Cells,
) -> None:
    """Lower `cost` to the cheapest way to get each atom, and put its rule into `reason`.

    `cost` comes as the price of assuming an atom, at least 1; a rule costs the sum of its
    body, so that shared premises count each time. (Knuth's generalisation of Dijkstra's
    algorithm.) `reason` comes as -1, `missing` as the sizes of the bodies, the rest as 0.
    """
    heap = [(cost[i], i) for i in range(len(cost)) if cost[i] < np.inf]
    heapq.heapify(heap)
    while len(heap) > 0:
        price, i = heapq.heappop(heap)
        if settled[i]:
            continue
        settled[i] = 1
        for p in range(use_ptr[i], use_ptr[i + 1]):
            j = use[p]
            missing[j] -= 1
            total[j] = min(total[j] + price, DEAREST)
            if missing[j] == 0:
                for x in range(head_ptr[j], head_ptr[j + 1]):
                    h = head[x]
                    if not settled[h] and total[j] < cost[h]:
                        cost[h] = total[j]
                        reason[h] = j
                        heapq.heappush(heap, (total[j], h))
