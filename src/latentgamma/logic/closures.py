"""The closures of many fact sets at once, 64 in a word."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import whole_number
from latentgamma.errors import ArgumentError, FactsError
from latentgamma.logic.planes import (
    BYTES_PER_LITERAL,
    Planes,
    pack_into,
    pack_with_numpy,
    require_planes,
    unpack_into,
    unpack_with_numpy,
)
from latentgamma.program.compilation import (
    Cells,
    compile_loop,
    count_work,
    processors,
    run_in_threads,
    worth_compiling,
)
from latentgamma.program.facts import FactSets, Mask, fact_rows
from latentgamma.program.graph import Csr, rule_order, rules_using
from latentgamma.program.program import Program, require_program

# ---- The closures of many fact sets with numpy, one call for each body atom and head


class _Block(NamedTuple):
    """A block of the schedule as lists: (body, heads) pairs, and the rules that use each atom."""

    cyclic: bool
    rules: list[tuple[list[int], list[int]]]
    users: dict[int, list[int]]


def _blocks(program: Program) -> list[_Block]:
    schedule = program.cached(_schedule)
    bodies = Csr(schedule.body_ptr, schedule.body).to_lists()
    heads = Csr(schedule.head_ptr, schedule.head).to_lists()
    every = list(zip(bodies, heads, strict=True))
    blocks = []
    ends = pairwise(schedule.block_ptr.tolist())
    for cyclic, (a, b) in zip(schedule.cyclic.tolist(), ends, strict=True):
        rules = every[a:b]
        users: dict[int, list[int]] = {}
        for n, (body, _) in enumerate(rules if cyclic else ()):
            for i in body:
                users.setdefault(i, []).append(n)
        blocks.append(_Block(cyclic, rules, users))
    return blocks


def close_with_numpy(program: Program, planes: Planes) -> int:
    """Close the fact sets in bit planes in place; return how often rules of cycles were repeated."""
    rows = list(planes)
    buffer = np.empty(planes.shape[1], np.uint64)
    every = np.full(planes.shape[1], ~np.uint64(0))
    bitwise_or = np.bitwise_or
    repeated = 0
    for block in program.cached(_blocks):
        if block.cyclic:
            repeated += _close_cycle(block, rows, buffer) - len(block.rules)
            continue
        for body, heads in block.rules:
            if len(body) == 1:  # without a call: most of the time is Python's
                true = rows[body[0]]
            else:
                true = _all_true(rows, body, buffer) if body else every
            for h in heads:
                row = rows[h]
                bitwise_or(row, true, row)
    return repeated


def _close_cycle(block: _Block, rows: list[Planes], buffer: Planes) -> int:
    """Close one cyclic block; return how many times a rule was applied.

    A rule is repeated when an atom of its body has changed.
    """
    queue = deque(range(len(block.rules)))
    queued = set(queue)
    applied = 0
    while queue:
        n = queue.popleft()
        applied += 1
        queued.discard(n)
        body, heads = block.rules[n]
        true = _all_true(rows, body, buffer)
        for h in heads:
            if np.any(true & ~rows[h]):
                np.bitwise_or(rows[h], true, rows[h])
                fresh = [user for user in block.users.get(h, ()) if user not in queued]
                queued.update(fresh)
                queue.extend(fresh)
    return applied


def _all_true(rows: list[Planes], body: list[int], buffer: Planes) -> Planes:
    """Return the fact sets in which all of the body is true; perhaps in the buffer."""
    if len(body) == 1:
        return rows[body[0]]
    np.bitwise_and(rows[body[0]], rows[body[1]], buffer)
    for i in body[2:]:
        np.bitwise_and(buffer, rows[i], buffer)
    return buffer


# ---- The closures of many fact sets at once, 64 of them in a word

# The words of a tile: the columns of the planes that go through all rules together. Wide tiles
# spread the cost of reading a rule; the state of a tile should stay in the second-level cache. Odd
# numbers of cache lines (8 words), so that a column of the state does not fall into a few sets of
# the cache: packing G4 into tiles of 128 words takes 1.4 times as long as into tiles of 120.
_WIDEST_TILE, _NARROWEST_TILE = 120, 40
_TILE_BYTES = 1 << 19
# Words per row where numpy computes: enough that its calls cost little beside their work.
_NUMPY_WORDS = 1024
# Literals below which numpy is as quick as a call of compiled code.
_LEAST_WITH_NUMPY = 30
# Bytes of fact sets for which starting one more thread pays.
_BYTES_PER_THREAD = 1 << 22


@overload
def closures(
    program: Program,
    fact_sets: FactSets,
    *,
    packed: Literal[False] = ...,
    threads: int | None = ...,
) -> Mask: ...
@overload
def closures(
    program: Program,
    fact_sets: Any,
    *,
    packed: Literal[True],
    threads: int | None = ...,
    out: Any = ...,
) -> Any: ...
def closures(
    program: Program,
    fact_sets: Any,
    *,
    packed: bool = False,
    threads: int | None = None,
    out: Any = None,
) -> Any:
    """Return the closures of many fact sets.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> closures(program, [["penguin"], ["bird"], []])
    array([[ True,  True,  True],
           [ True, False,  True],
           [False, False, False]])
    >>> from latentgamma.logic import pack
    >>> closures(program, pack([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), packed=True)
    array([[3],
           [1],
           [3]], dtype=uint64)

    Args:
        program: any program, with negation or without.
        fact_sets: an array of shape (N, M) or any iterable of fact sets; with `packed`, bit
            planes as `pack` makes them, shape (M, W), or a torch tensor of int64 with the same
            bits.
        packed: whether bit planes go in and come out. That is many times faster.
        threads: the most threads to use, by default one for each processor that this process may
            use. Small calls use fewer.
        out: with `packed`, where to put the planes; it may be `fact_sets` itself.

    Returns:
        One boolean row for each fact set, shape (N, M); with `packed`, bit planes of the same
        kind and shape as those given.

    Raises:
        ArgumentError: if `threads`, `out` or the planes are not of this kind.
        FactsError: if these are not fact sets of the program.
        ProgramError: if the first argument is not a program.
    """
    require_program(program, "closures")
    if threads is not None:
        threads = whole_number("threads", threads, 1)
    if out is not None and not packed:
        raise ArgumentError("out is for bit planes; use it together with packed=True")
    threads = threads or processors()
    if not packed:
        return _close_rows(program, fact_rows(program, fact_sets), threads)
    if hasattr(fact_sets, "detach"):
        from latentgamma.logic.planes_cuda import close_tensor

        return close_tensor(program, fact_sets, threads, out)
    planes = require_planes(fact_sets, "closures")
    return close_planes(program, planes, threads, out)


def close_planes(program: Program, planes: Planes, threads: int, out: Planes | None) -> Planes:
    """Return the closures of the fact sets in bit planes."""
    if len(planes) != program.M:
        raise FactsError(
            f"bit planes have one row for each atom, {program.M}, but these have {len(planes)}"
        )
    if out is None:
        out = np.empty(planes.shape, np.uint64)
    elif not isinstance(out, np.ndarray) or out.dtype != np.uint64 or out.shape != planes.shape:
        raise ArgumentError(f"out must be a uint64 array of shape {planes.shape}")
    elif not out.flags.writeable:
        raise ArgumentError("out is read-only; pass an array that can be written, or a copy")
    elif out is not planes and np.may_share_memory(out, planes):
        planes = planes.copy()  # a tile of the result may lie where another one is still to be read
    if not program.definite:
        out[:] = planes
        for stratum in program.strata:
            facts = out[stratum.atom]
            facts[stratum.negated] = ~facts[stratum.negated]
            closed = close_planes(stratum.program, facts, threads, facts)
            out[stratum.atom[stratum.derived]] = closed[stratum.derived]
        return out
    W = planes.shape[1]
    if not W:
        return out
    if not worth_compiling(program.size * (1 + W // _NUMPY_WORDS), _LEAST_WITH_NUMPY):
        if out is not planes:
            out[:] = planes
        for start in range(0, W, _NUMPY_WORDS):
            repeated = close_with_numpy(program, out[:, start : start + _NUMPY_WORDS])
            count_work(repeated * program.size // max(program.R, 1))
        return out
    schedule = program.cached(_schedule)
    target = out

    def close(start: int, stop: int, tile: Tile) -> None:
        np.copyto(tile.state, planes[:, start:stop])
        tile.close(schedule)
        np.copyto(target[:, start:stop], tile.state)

    size = planes.nbytes + W * program.size
    _run_tiles(program, W, _worth_threads(size, threads), close)
    return out


def _close_rows(program: Program, rows: Mask, threads: int) -> Mask:
    """Return the closures of boolean rows: packed, closed and unpacked tile by tile."""
    N, M = rows.shape
    if not rows.size:
        return rows.copy()
    visits = program.size * (1 + N // (64 * _NUMPY_WORDS))
    small = not worth_compiling(visits + rows.size // BYTES_PER_LITERAL)
    if small or not program.definite:
        workers = _worth_threads(rows.nbytes, threads)
        planes = np.empty((M, -(-N // 64)), np.uint64)
        pack_with_numpy(rows, planes, workers, in_order=False)
        closed = np.empty((N, M), np.bool_)
        close_planes(program, planes, threads, planes)
        unpack_with_numpy(planes, closed, workers, in_order=False)
        return closed
    schedule = program.cached(_schedule)
    # Read-only on purpose: the loops are compiled once, whatever array the caller has.
    given = np.ascontiguousarray(rows).view()
    given.flags.writeable = False
    closed = np.empty((N, M), np.bool_)

    def close(start: int, stop: int, tile: Tile) -> None:
        pack_into(given[64 * start : 64 * stop], tile.state)
        tile.close(schedule)
        unpack_into(tile.state, closed[64 * start : 64 * stop])

    _run_tiles(program, -(-N // 64), _worth_threads(rows.nbytes, threads), close)
    return closed


# ---- Compiled loops over tiles


class Schedule(NamedTuple):
    """The rules in the order in which tiles go through them, for compiled code.

    The fields are the first arguments of `close_tile`. Bodies and heads are compressed rows in the
    order of the rules, and so are the positions at which each atom is used. See `RuleOrder` for the
    blocks.
    """

    body_ptr: npt.NDArray[np.int64]
    body: npt.NDArray[np.int32]
    head_ptr: npt.NDArray[np.int64]
    head: npt.NDArray[np.int32]
    block_ptr: npt.NDArray[np.int64]
    cyclic: Mask
    use_ptr: npt.NDArray[Any]
    use: npt.NDArray[np.int32]


def _schedule(program: Program) -> Schedule:
    order = rule_order(program)
    bodies = Csr(program.body_indptr, program.body_indices).take(order.rules)
    heads = Csr(program.head_indptr, program.head_indices).take(order.rules)
    position = np.empty(program.R, np.int32)
    position[order.rules] = np.arange(program.R, dtype=np.int32)
    use_ptr, use = rules_using(program)
    return Schedule(*bodies, *heads, order.block_ptr, order.cyclic, use_ptr, position[use])


class Tile:
    """The state of the fact sets that go through the rules together, and working memory."""

    def __init__(self, program: Program, width: int) -> None:
        self.state = np.empty((program.M, width), np.uint64)
        self._queue = np.empty(program.R, np.int32)
        self._queued = np.zeros(program.R, np.bool_)
        self._true = np.empty(width, np.uint64)

    def close(self, schedule: Schedule) -> None:
        """Close the state under the rules."""
        compile_loop(close_tile)(*schedule, self.state, self._queue, self._queued, self._true)


def _worth_threads(size: int, threads: int) -> int:
    """Return the number of threads, at most `threads`, for a call on this many bytes."""
    return min(threads, 1 + size // _BYTES_PER_THREAD)


def _run_tiles(
    program: Program, W: int, threads: int, close: Callable[[int, int, Tile], None]
) -> None:
    """Call `close` for every tile of the W columns."""
    width = max(_NARROWEST_TILE, min(_WIDEST_TILE, _TILE_BYTES // (8 * max(1, program.M))))
    tiles = threads * -(-W // (threads * width))  # as many for each thread
    width = -(-W // tiles)
    starts = range(0, W, width)
    queue = iter(starts)  # shared: each thread takes the next tile when it is free

    def work() -> None:
        tile = Tile(program, width)
        for start in queue:
            stop = min(start + width, W)
            if stop - start < width:
                tile = Tile(program, stop - start)
            close(start, stop, tile)

    run_in_threads(work, min(threads, len(starts)))


def close_tile(
    body_ptr: Cells, body: Cells, head_ptr: Cells, head: Cells, block_ptr: Cells, cyclic: Cells,
    use_ptr: Cells, use: Cells, state: Cells, queue: Cells, queued: Cells, true: Cells,
) -> None:  # fmt: skip
    """Close `state` (M, width) under the rules: an AND over a body, an OR into its heads.

    In a cyclic block a rule is repeated when an atom of its body has changed. So no rule is
    repeated more often than its body atoms gain fact sets, and the loop is never slower than
    closing one fact set after another. `queued` comes as False, and `queue` and `true` are
    working memory.
    """
    width = state.shape[1]
    for block in range(len(block_ptr) - 1):
        first, last = block_ptr[block], block_ptr[block + 1]
        if not cyclic[block]:
            for j in range(first, last):
                start, stop = body_ptr[j], body_ptr[j + 1]
                if stop - start == 1 and head_ptr[j + 1] - head_ptr[j] == 1:
                    target, one = state[head[head_ptr[j]]], state[body[start]]
                    for w in range(width):
                        target[w] |= one[w]
                elif stop - start == 2 and head_ptr[j + 1] - head_ptr[j] == 1:
                    target = state[head[head_ptr[j]]]
                    one, other = state[body[start]], state[body[start + 1]]
                    for w in range(width):
                        target[w] |= one[w] & other[w]
                else:
                    true[:] = ~np.uint64(0)
                    for p in range(start, stop):
                        one = state[body[p]]
                        for w in range(width):
                            true[w] &= one[w]
                    for p in range(head_ptr[j], head_ptr[j + 1]):
                        target = state[head[p]]
                        for w in range(width):
                            target[w] |= true[w]
            continue
        size = last - first
        for j in range(size):
            queue[j] = first + j
            queued[first + j] = True
        waiting, at = size, 0
        while waiting > 0:
            j = queue[at]
            queued[j] = False
            at = at + 1 if at + 1 < size else 0
            waiting -= 1
            true[:] = ~np.uint64(0)
            for p in range(body_ptr[j], body_ptr[j + 1]):
                one = state[body[p]]
                for w in range(width):
                    true[w] &= one[w]
            for p in range(head_ptr[j], head_ptr[j + 1]):
                target = state[head[p]]
                changed = np.uint64(0)
                for w in range(width):
                    changed |= true[w] & ~target[w]
                    target[w] |= true[w]
                if changed:
                    for q in range(use_ptr[head[p]], use_ptr[head[p] + 1]):
                        user = use[q]
                        if first <= user < last and not queued[user]:
                            queued[user] = True
                            end = at + waiting
                            queue[end if end < size else end - size] = user
                            waiting += 1
