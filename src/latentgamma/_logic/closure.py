"""What a program means: the immediate-consequence operator T_P and its least fixed points.

A small program is answered by plain Python at once; a large one, or one that is asked often,
by the compiled loops of `_propagate`. Both give the same answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ArgumentError
from latentgamma._logic import loops
from latentgamma._logic.dependency_graph import frozen, graph_of
from latentgamma._logic.loops import compiled
from latentgamma._program.facts import Facts, FactSets, Mask, fact_mask, fact_rows
from latentgamma._program.names import quote
from latentgamma._program.program import Indices, Offsets, Program
from latentgamma._program.stratified import (
    StratifiedProgram,
    Stratum,
    require_any_program,
    require_definite,
)

# A tile of fact sets has up to this many words of 64: one cache line for each atom.
_TILE_WIDTH = 8
# The state of the tiles that one call of a loop works on, in bytes: a part of the cache.
_TILE_BYTES = 1 << 17
# Bytes of facts and closures for which starting one more thread pays.
_WORTH_A_THREAD = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class Closure:
    """The least fixed point of a program above some facts, and the step each atom comes at.

    `state` says which atoms are derived; `depth` is the number of steps of T_P it took; `order`
    holds the derived atoms level by level, level d in `order[offsets[d]:offsets[d + 1]]`. It
    has a length, iterates over its atoms in the order of the program, and knows what is in it.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> known = closure(program, ["penguin"])
    >>> known
    Closure(3 of 3 atoms, depth 2)
    >>> sorted(known.atoms), "bird" in known
    (['animal', 'bird', 'penguin'], True)
    >>> print(known)
    0  penguin
    1  bird
    2  animal
    """

    program: Program | StratifiedProgram
    state: Mask
    depth: int
    order: Indices
    offsets: Offsets

    @cached_property
    def atoms(self) -> frozenset[str]:
        """The derived atoms, the given facts among them."""
        return frozenset(self)

    @cached_property
    def level(self) -> Indices:
        """The step at which each atom becomes true, −1 where it never does. Shape (M,)."""
        level = np.full(self.program.M, -1, np.int32)
        level[self.order] = np.repeat(np.arange(self.depth + 1), np.diff(self.offsets))
        return frozen(level)

    @cached_property
    def levels(self) -> tuple[frozenset[str], ...]:
        """The atoms that first become true at each step, the given facts at step 0."""
        return tuple(frozenset(self._named(a, b)) for a, b in pairwise(self.offsets.tolist()))

    def _named(self, start: int, stop: int, most: int | None = None) -> list[str]:
        return [self.program.atoms[i] for i in np.sort(self.order[start:stop])[:most]]

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[str]:
        atoms = self.program.atoms
        return (atoms[i] for i in np.flatnonzero(self.state).tolist())

    def __contains__(self, atom: object) -> bool:
        if isinstance(atom, str):
            i = self.program.index.get(atom)
            return i is not None and bool(self.state[i])
        if isinstance(atom, (int, np.integer)) and not isinstance(atom, bool):
            return bool(0 <= atom < self.program.M and self.state[atom])
        return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Closure):
            return NotImplemented
        return np.array_equal(self.level, other.level) and self.program == other.program

    def __hash__(self) -> int:
        return hash((self.program, self.level.tobytes()))

    def __repr__(self) -> str:
        return f"Closure({len(self)} of {self.program.M} atoms, depth {self.depth})"

    def __str__(self) -> str:
        lines = []
        for d, (a, b) in enumerate(pairwise(self.offsets.tolist())):
            if d == 100:
                lines.append(f"…  {self.depth + 1 - d} more levels")
                break
            names = [quote(name) for name in self._named(a, b, 20)]
            more = f", … {b - a - 20} more" if b - a > 20 else ""
            lines.append(f"{d}  {', '.join(names) or '–'}{more}")
        return "\n".join(lines)


def step(program: Program | StratifiedProgram, facts: Facts = ()) -> frozenset[str]:
    """The facts and what follows from them at once: T_P applied to them.

    The program is definite: with negation, what follows at once is not what follows at the end.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> sorted(step(program, ["penguin"]))
    ['bird', 'penguin']
    """
    program = require_definite(program, "step")
    mask = fact_mask(program, facts).copy()
    true = np.concatenate(([0], np.cumsum(mask[program.body_indices])))
    fires = np.diff(true[program.body_indptr]) == program.body_sizes
    mask[program.head_indices[np.repeat(fires, program.head_sizes)]] = True
    return program.names(mask)


def closure(program: Program | StratifiedProgram, facts: Facts = ()) -> Closure:
    """Everything that follows from the facts, and how many steps it takes.

    The time is linear in the size of the program. Strata are closed one after another, and their
    steps add up.

    >>> program = Program.from_rules([("c", ["a", "b"]), ("d", ["c"])])
    >>> closure(program, ["a", "b"]).levels == ({"a", "b"}, {"c"}, {"d"})
    True
    """
    require_any_program(program, "closure")
    return closure_of_mask(program, fact_mask(program, facts))


def closure_of_mask(program: Program | StratifiedProgram, given: Mask) -> Closure:
    """The closure of facts given as one boolean per atom."""
    if isinstance(program, StratifiedProgram):
        return _closure_by_strata(program, given)
    if graph_of(program).plain(program.size + program.M):
        return _closure_plainly(program, given)
    return _closure_compiled(program, given)


def closures(
    program: Program | StratifiedProgram, fact_sets: FactSets, *, threads: int | None = None
) -> npt.NDArray[np.bool_]:
    """The closures of many fact sets, one boolean row for each. Shape (N, M).

    The sets go 64 to a word, and through every rule together. `fact_sets` is a boolean array
    of shape (N, M), or any iterable of facts; `threads` is the number of threads, by default
    that of the processors this process may use.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> closures(program, [["penguin"], ["bird"], []])
    array([[ True,  True,  True],
           [ True, False,  True],
           [False, False, False]])
    """
    require_any_program(program, "closures")
    if threads is not None and threads < 1:
        raise ArgumentError(f"threads must be at least 1, but is {threads}")
    given = fact_rows(program, fact_sets)
    N, M = given.shape
    if N == 0 or M == 0:
        return given.copy()
    if isinstance(program, StratifiedProgram):
        return _closures_by_strata(program, given, threads)
    if graph_of(program).plain(program.size * (1 + N // 1024) + N * M // 64):
        return _closures_plainly(program, given)
    closed = np.empty((N, M), np.bool_)
    # What comes back lies between the facts and their closure, mostly at the closure.
    for row in _closures_compiled(program, given, closed, threads or _processors()):
        closed[row] = closure_of_mask(program, closed[row]).state
    return closed


def depth_bound(program: Program | StratifiedProgram) -> int:
    """A number of steps of T_P within which every fact set reaches its closure.

    It is the longest path through the dependency graph, where a cycle may take as many steps
    as it has derivable atoms: exact on a chain, and linear in the size of the program.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> depth_bound(program)
    2
    """
    require_any_program(program, "depth_bound")
    if isinstance(program, StratifiedProgram):
        return sum(depth_bound(stratum.program) for stratum in program.strata)
    return graph_of(program).order.bound


# ------------------------------------------------------------------------ strata


def stratum_facts(stratum: Stratum, known: Mask) -> Mask:
    """The facts of a stratum, from what the strata below it have made true. Shape (…, m)."""
    facts: Mask = known[..., stratum.atom] != stratum.negated
    return facts


def _closure_by_strata(program: StratifiedProgram, given: Mask) -> Closure:
    known = given.copy()
    order: list[npt.NDArray[Any]] = [np.flatnonzero(given)]
    offsets = [0, int(given.sum())]
    for stratum in program.strata:
        closed = closure_of_mask(stratum.program, stratum_facts(stratum, known))
        start = closed.offsets[1]
        order.append(stratum.atom[closed.order[start:]])
        offsets += (offsets[-1] + closed.offsets[2:] - start).tolist()
        known[order[-1]] = True
    return _sealed(program, known, np.concatenate(order), offsets)


def _closures_by_strata(program: StratifiedProgram, given: Mask, threads: int | None) -> Mask:
    known = given.copy()
    for stratum in program.strata:
        closed = closures(stratum.program, stratum_facts(stratum, known), threads=threads)
        known[:, stratum.atom[stratum.derived]] = closed[:, stratum.derived]
    return known


# ------------------------------------------------------------------------ parts


def _closure_plainly(program: Program, given: Mask) -> Closure:
    uses, heads, own, sizes = graph_of(program).lists
    known, order = given.tolist(), np.flatnonzero(given).tolist()
    levels = loops.spread_plainly(uses, heads, own, sizes.copy(), known, order)
    return _sealed(program, np.array(known, np.bool_), order, levels)


def _closure_compiled(program: Program, given: Mask) -> Closure:
    graph = graph_of(program)
    M, facts = program.M, np.flatnonzero(given)
    mark = np.zeros(-(-M // 8) * 8, np.uint8)
    mark[:M] = given
    heads = program.head_indptr, program.head_indices
    many = len(facts) * 8 > M
    if many:  # the first step rule by rule
        missing, bits = np.empty_like(graph.sizes), np.packbits(given, bitorder="little")
        first_level = compiled(loops.first_level)
        first_level(graph.sizes, program.body_indices, *heads, bits, mark, missing)
        ahead = np.flatnonzero(mark == 2)
        mark[ahead] = 1
    else:
        missing, ahead = graph.sizes.copy(), graph.own[~given[graph.own]]
        mark[ahead] = 2
    order = np.empty(M + 1, np.int32)
    order[: len(facts)] = facts
    order[len(facts) : len(facts) + len(ahead)] = ahead
    levels = np.empty(M + 3, np.int64)
    levels[:3] = 0, len(facts), len(facts) + len(ahead)
    start = (1, 0) if many else (0, len(ahead))
    words = mark.view(np.uint64)
    spread = compiled(loops.spread)
    depth = spread(*graph.uses, *heads, missing, mark, words, order, levels, *start)
    levels = levels[: depth + 2].copy()
    return _sealed(program, mark[:M].view(np.bool_), order[: levels[-1]], levels)


def _closures_compiled(program: Program, given: Mask, closed: Mask, threads: int) -> list[int]:
    """Fill `closed`; the rows that did not settle, for which see the loop `close`."""
    N, M = given.shape
    blocks = graph_of(program).blocks
    threads = min(threads, 1 + N * (M + program.size // 64) // _WORTH_A_THREAD)
    width = min(_TILE_WIDTH, -(-N // (64 * threads)))
    lanes = 64 * width
    tiles = min(max(1, _TILE_BYTES // (8 * width * M)), -(-N // (lanes * threads)))
    # Read-only on purpose: the loops are compiled once, whatever array the caller has.
    source = frozen(np.ascontiguousarray(given).view(np.uint8))
    target = closed.view(np.uint8)
    starts = range(0, N, tiles * lanes)
    queue = iter(starts)  # the threads share it: each takes the next rows when it is free

    def work(_: int) -> list[int]:
        room = np.empty((tiles, M, width), np.uint64)
        planes, line = np.empty((8, M), np.uint8), np.empty(M, np.uint64)
        unsettled: list[int] = []
        for first in queue:
            last = min(first + tiles * lanes, N)
            words = room[: -(-(last - first) // lanes)]
            settled = np.empty(len(words), np.bool_)
            compiled(loops.pack)(source, first, last, planes, line, words)
            compiled(loops.close)(*blocks, words, settled)
            compiled(loops.unpack)(words, planes, line, target, first, last)
            if not settled.all():
                unsettled += range(first, last)
        return unsettled

    threads = min(threads, len(starts))
    if threads == 1:
        return work(0)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads, "latentgamma") as pool:
        return list(chain.from_iterable(pool.map(work, range(threads))))


def _closures_plainly(program: Program, given: Mask) -> Mask:
    """The closures with one long Python integer per atom, one bit per fact set."""
    N, M = given.shape
    packed = np.packbits(given.T, axis=1, bitorder="little")  # (M, ceil(N / 8))
    words = [int.from_bytes(row.tobytes(), "little") for row in packed]
    settled = close_integers(program, words, N)
    size = packed.shape[1]
    bits = np.frombuffer(b"".join(word.to_bytes(size, "little") for word in words), np.uint8)
    columns = np.unpackbits(bits.reshape(M, size), axis=1, count=N, bitorder="little")
    closed: Mask = np.ascontiguousarray(columns.T).view(np.bool_)
    if not settled:
        for row in closed:
            row[:] = closure_of_mask(program, row).state
    return closed


def close_integers(program: Program, words: list[int], N: int) -> bool:
    """Close N fact sets, bit n of each atom's integer for set n; False if they did not settle.

    The same as the compiled loop `close`, and it gives up where that does.
    """
    settled, every = True, (1 << N) - 1
    for cyclic, rules in graph_of(program).integer_blocks:
        for _ in range(N + 1):
            moving = False
            for body, heads in rules:
                true = every
                for i in body:
                    true &= words[i]
                if true:
                    for h in heads:
                        if true & ~words[h]:
                            words[h] |= true
                            moving = cyclic
            if not moving:
                break
        settled &= not moving
    return settled


def _sealed(program: Program | StratifiedProgram, state: Mask, order: Any, offsets: Any) -> Closure:
    order, offsets = np.asarray(order, np.int32), np.asarray(offsets, np.int64)
    depth = len(offsets) - 2
    return Closure(program, frozen(state), depth, frozen(order), frozen(offsets))


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        return os.cpu_count() or 1
