"""What a program means: the immediate-consequence operator T_P and its least fixed points.

A small program is answered by plain Python at once; a large one, or one that is asked often,
by the compiled loops of `_propagate`. Both give the same answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma import _propagate
from latentgamma._errors import FactsError
from latentgamma._program import Facts, Indices, Mask, Offsets, Program
from latentgamma._propagate import compiled

#: Many fact sets: one boolean row for each, or one `Facts` after another.
FactSets: TypeAlias = "npt.NDArray[Any] | Iterable[Facts]"

# Literals the plain path visits on behalf of one program before it is worth importing numba.
# At about 0.2 µs each that is half a second, which is what the import takes.
_PLAIN_WORK = 2_000_000
# A tile of fact sets has up to this many words of 64: one cache line for each atom.
_TILE_WIDTH = 8
# The state of the tiles that one call of a loop works on, in bytes: about one second-level cache.
_TILE_BYTES = 1 << 19


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

    program: Program
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
        return _frozen(level)

    @cached_property
    def levels(self) -> tuple[frozenset[str], ...]:
        """The atoms that first become true at each step, the given facts at step 0."""
        return tuple(frozenset(self._named(a, b)) for a, b in pairwise(self.offsets.tolist()))

    def _named(self, start: int, stop: int) -> list[str]:
        return [self.program.atoms[i] for i in np.sort(self.order[start:stop])]

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
            return 0 <= atom < self.program.M and bool(self.state[atom])
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
            names = self._named(a, min(b, a + 100))
            more = f", … {b - a - 100} more" if b - a > 100 else ""
            lines.append(f"{d}  {', '.join(names) or '–'}{more}")
        return "\n".join(lines)


def step(program: Program, facts: Facts = ()) -> frozenset[str]:
    """The facts and what follows from them at once: T_P applied to them.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> sorted(step(program, ["penguin"]))
    ['bird', 'penguin']
    """
    mask = fact_mask(program, facts)
    true = np.concatenate(([0], np.cumsum(mask[program.body_indices])))
    fires = np.diff(true[program.body_indptr]) == program.body_sizes
    mask[program.head_indices[np.repeat(fires, program.head_sizes)]] = True
    return program.names(mask)


def closure(program: Program, facts: Facts = ()) -> Closure:
    """Everything that follows from the facts, and how many steps it takes.

    The time is linear in the size of the program.

    >>> program = Program.from_rules([("c", ["a", "b"]), ("d", ["c"])])
    >>> closure(program, ["a", "b"]).levels == ({"a", "b"}, {"c"}, {"d"})
    True
    """
    return closure_of_mask(program, fact_mask(program, facts))


def closure_of_mask(program: Program, given: Mask) -> Closure:
    """The closure of facts given as one boolean per atom."""
    graph = graph_of(program)
    if graph.plain(program.size + program.M):
        lists = graph.lists
        known, order = given.tolist(), np.flatnonzero(given).tolist()
        levels = _propagate.spread_plainly(
            lists.uses, lists.heads, lists.own, lists.sizes.copy(), known, order
        )
        return _sealed(program, np.array(known, np.bool_), order, levels)
    use_ptr, use = graph.uses
    mark = np.zeros(-(-program.M // 8) * 8, np.uint8)
    mark[: program.M] = given
    order = np.empty(program.M + 1, np.int32)
    levels = np.empty(program.M + 3, np.int64)
    facts = np.flatnonzero(given)
    order[: len(facts)] = facts
    levels[:2] = 0, len(facts)
    heads = program.head_indptr, program.head_indices
    many = len(facts) * 8 > program.M
    if many:
        missing = np.empty_like(graph.sizes)
        bits = np.packbits(given, bitorder="little")
        bodies = graph.sizes, program.body_indices
        compiled(_propagate.first_level)(*bodies, *heads, bits, mark, missing)
        ahead = np.flatnonzero(mark == 2)
    else:
        missing = graph.sizes.copy()
        ahead = graph.own[~given[graph.own]]
        mark[ahead] = 2
    order[len(facts) : len(facts) + len(ahead)] = ahead
    levels[2] = len(facts) + len(ahead)
    depth = compiled(_propagate.spread)(
        use_ptr,
        use,
        *heads,
        missing,
        mark,
        mark.view(np.uint64),
        order,
        levels,
        1 if many else 0,
        0 if many else len(ahead),
    )
    levels = levels[: depth + 2].copy()
    return _sealed(program, mark[: program.M].view(np.bool_), order[: levels[-1]], levels)


def closures(
    program: Program, fact_sets: FactSets, *, threads: int | None = None
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
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, but is {threads}")
    given, spare = _fact_rows(program, fact_sets)
    N, M = given.shape
    if N == 0 or M == 0:
        return given.copy()
    graph = graph_of(program)
    if graph.plain(program.size * (1 + N // 1024) + N * M // 64):
        return _closures_plainly(program, graph, given)
    closed = given if spare else np.empty((N, M), np.bool_)
    threads = threads or _processors()
    width = min(_TILE_WIDTH, -(-N // (64 * threads)))
    # Read-only on purpose: the loops are compiled once, whatever array the caller has.
    source = _frozen(np.ascontiguousarray(given).view(np.uint8))
    target = closed.view(np.uint8)
    lanes = 64 * width
    tiles = max(1, _TILE_BYTES // (8 * width * M))
    rows_at_once = min(tiles, -(-N // (lanes * threads))) * lanes
    blocks = graph.blocks

    def work(rows: range) -> list[int]:
        room = np.empty((rows_at_once // lanes, M, width), np.uint64)
        planes = np.empty((8, M), np.uint8)
        unsettled = []
        for first in rows:
            last = min(first + rows_at_once, N)
            words = room[: -(-(last - first) // lanes)]
            settled = np.empty(len(words), np.bool_)
            compiled(_propagate.pack)(source, first, last, planes, words)
            compiled(_propagate.close)(*blocks, words, settled)
            compiled(_propagate.unpack)(words, planes, target, first, last)
            if not settled.all():
                unsettled += range(first, last)
        return unsettled

    starts = range(0, N, rows_at_once)
    shares = [starts[t::threads] for t in range(min(threads, len(starts)))]
    if len(shares) == 1:
        rest = work(shares[0])
    else:
        with ThreadPoolExecutor(len(shares), "latentgamma") as pool:
            rest = list(chain.from_iterable(pool.map(work, shares)))
    for row in rest:  # what is there lies between the facts and their closure
        closed[row] = closure_of_mask(program, closed[row]).state
    return closed


def depth_bound(program: Program) -> int:
    """A number of steps of T_P within which every fact set reaches its closure.

    It is the longest path through the dependency graph, where a cycle may take as many steps
    as it has derivable atoms: exact on a chain, and linear in the size of the program.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> depth_bound(program)
    2
    """
    return graph_of(program).order.bound


# ------------------------------------------------------------------------ facts


def fact_mask(program: Program, facts: Facts) -> Mask:
    """One boolean per atom, as `Program.mask`, without a Python object per index."""
    if isinstance(facts, np.ndarray) and facts.ndim == 1 and facts.dtype.kind in "iu":
        mask = np.zeros(program.M, np.bool_)
        if not facts.size:
            return mask
        if facts.min() >= 0 and facts.max() < program.M:
            mask[facts] = True
            return mask
    return program.mask(facts)


def _fact_rows(program: Program, fact_sets: FactSets) -> tuple[Mask, bool]:
    """The fact sets as boolean rows, and whether they are ours to write to."""
    if isinstance(fact_sets, np.ndarray) and fact_sets.dtype.kind == "b":
        if fact_sets.ndim != 2 or fact_sets.shape[1] != program.M:
            raise FactsError(
                f"boolean fact sets have one row per set and one column per atom, shape "
                f"(N, {program.M}), but these have shape {fact_sets.shape}"
            )
        return fact_sets, False
    if isinstance(fact_sets, str) or not isinstance(fact_sets, Iterable):
        raise FactsError(
            f"fact sets are one set of facts after another, or a boolean array of shape "
            f"(N, {program.M}), not {fact_sets!r}; for a single set use closure"
        )
    sets = list(fact_sets)
    rows = np.zeros((len(sets), program.M), np.bool_)
    flat = _flat_indices(program, sets)
    if flat is not None:
        row = np.repeat(np.arange(len(sets)), np.fromiter(map(len, sets), np.int64, len(sets)))  # type: ignore[arg-type]
        rows[row, flat] = True
        return rows, True
    for r, facts in enumerate(sets):
        try:
            rows[r] = fact_mask(program, facts)
        except FactsError as error:
            raise FactsError(f"fact set {r}: {error}") from None
    return rows, True


def _flat_indices(program: Program, sets: list[Any]) -> npt.NDArray[np.int64] | None:
    """The indices of all sets after one another, or None where some set needs a closer look."""
    if not set(map(type, sets)) <= {list, tuple, set, frozenset}:
        return None
    flat = list(chain.from_iterable(sets))
    kinds = set(map(type, flat))
    try:
        if kinds == {str}:
            flat = list(map(program.index.__getitem__, flat))
        elif not kinds <= {int, np.int64, np.int32}:
            return None
        indices = np.array(flat, np.int64)
    except (KeyError, OverflowError):
        return None
    inside = not indices.size or (indices.min() >= 0 and indices.max() < program.M)
    return indices if inside else None


# ------------------------------------------------------------------------ structure


class _Lists(NamedTuple):
    """The relations of a small program as lists, for the plain loops."""

    uses: list[list[int]]
    heads: list[list[int]]
    own: list[int]
    sizes: list[int]


class _Order(NamedTuple):
    """The rules in an order in which one pass settles all that lies on no cycle."""

    rules: npt.NDArray[np.int64]  # (R,)
    block_ptr: npt.NDArray[np.int64]
    cyclic: Mask
    bound: int


class Graph:
    """What is derived from a program once, and kept with it: who uses what, in which order."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._spent = 0

    def plain(self, work: int) -> bool:
        """Whether to answer without the compiler: until that has cost as much as importing it."""
        self._spent += work
        return self._spent <= _PLAIN_WORK

    @cached_property
    def uses(self) -> tuple[Indices, Indices]:
        """The rules whose body each atom is in, as compressed rows."""
        program = self._program
        return self._inverted(program.body_indptr, program.body_indices)

    @cached_property
    def derivers(self) -> tuple[Indices, Indices]:
        """The rules that have each atom as a head, as compressed rows."""
        program = self._program
        return self._inverted(program.head_indptr, program.head_indices)

    def _inverted(self, offsets: Offsets, members: Indices) -> tuple[Indices, Indices]:
        if self.plain(0):
            order = np.argsort(members, kind="stable")
            rows = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))[order]
            counts = np.bincount(members, minlength=self._program.M)
            ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
            return _frozen(ends), _frozen(rows)
        narrow = len(members) <= np.iinfo(np.int32).max
        ends = np.zeros(self._program.M + 2, np.int32 if narrow else np.int64)
        rows = np.empty(len(members), np.int32)
        compiled(_propagate.invert)(offsets, members, ends, rows)
        return _frozen(ends)[:-1], _frozen(rows)

    @cached_property
    def sizes(self) -> npt.NDArray[Any]:
        """The sizes of the bodies in as few bytes as they need: counters that stay in cache."""
        program = self._program
        return _frozen(program.body_sizes.astype(np.uint8 if program.k <= 255 else np.int32))

    @cached_property
    def own(self) -> npt.NDArray[np.int64]:
        """The indices of the facts the program itself states, rising."""
        program = self._program
        stated = np.repeat(program.body_sizes == 0, program.head_sizes)
        return np.unique(program.head_indices[stated]).astype(np.int64)

    @cached_property
    def lists(self) -> _Lists:
        """The same as lists of Python numbers."""
        program = self._program
        use_ptr, use = self.uses
        return _Lists(
            _split(use_ptr, use),
            _split(program.head_indptr, program.head_indices),
            self.own.tolist(),
            program.body_sizes.tolist(),
        )

    @cached_property
    def order(self) -> _Order:
        """The rules in topological order of the components they are in."""
        program = self._program
        nodes = program.M + program.R
        use_ptr, use = self.uses
        heads = program.head_indptr, program.head_indices
        derivable = program.rules_per_head > 0
        component = np.full(nodes, -1, np.int32)
        if self.plain(program.size + nodes):
            lists = [array.tolist() for array in (use_ptr, use, *heads, derivable, component)]
            room = [[0] * nodes for _ in range(7)]
            bound = _propagate.components(*lists, *room)
            component, finish = np.array(lists[-1], np.int32), np.array(room[0], np.int32)
        else:
            arrays = [np.zeros(nodes, np.int32) for _ in range(7)]
            loop = compiled(_propagate.components)
            bound = loop(use_ptr, use, *heads, derivable, component, *arrays)
            finish = arrays[0]
        rule, left = component[program.M :], finish[program.M :]
        rules = np.lexsort((-left, -rule))
        looped = (np.bincount(component, minlength=1) > 1)[rule[rules]]
        # Rules on no cycle share a block until a cycle comes between them.
        kind = np.where(looped, rule[rules], -1)
        edges = np.flatnonzero(np.diff(kind)) + 1
        block_ptr = np.concatenate(([0], edges, [program.R])) if program.R else np.zeros(1, int)
        return _Order(rules, block_ptr, looped[block_ptr[:-1]], int(bound))

    @cached_property
    def blocks(self) -> tuple[npt.NDArray[Any], ...]:
        """The arguments of the bit-parallel loop: bodies and heads in that order, and blocks."""
        program, order = self._program, self.order
        bodies = _reordered(program.body_indptr, program.body_indices, order.rules)
        heads = _reordered(program.head_indptr, program.head_indices, order.rules)
        return *bodies, *heads, order.block_ptr, order.cyclic


def graph_of(program: Program) -> Graph:
    """The graph of this very program object, made when it is first asked for."""
    kept: Graph | None = program.__dict__.get("_graph")
    if kept is None:
        # By identity, in the object itself: hashing a large program is as dear as closing it.
        # It gets a twin that shares the arrays, or the two would keep each other alive.
        kept = program.__dict__.setdefault("_graph", Graph(replace(program)))
    return kept


# ------------------------------------------------------------------------ parts


def _closures_plainly(program: Program, graph: Graph, given: Mask) -> Mask:
    """The closures with one long Python integer per atom, one bit per fact set."""
    N, M = given.shape
    packed = np.packbits(given.T, axis=1, bitorder="little")  # (M, ceil(N / 8))
    words = [int.from_bytes(row.tobytes(), "little") for row in packed]
    heads = _split(program.head_indptr, program.head_indices)
    bodies = _split(program.body_indptr, program.body_indices)
    every = (1 << N) - 1
    blocks = pairwise(graph.order.block_ptr.tolist())
    settled = True
    for (a, b), cyclic in zip(blocks, graph.order.cyclic.tolist(), strict=True):
        block = graph.order.rules[a:b].tolist()
        for _ in range(N + 1):
            moving = False
            for j in block:
                true = every
                for i in bodies[j]:
                    true &= words[i]
                for h in heads[j]:
                    if true & ~words[h]:
                        words[h] |= true
                        moving = cyclic
            if not moving:
                break
        settled &= not moving
    size = packed.shape[1]
    bits = np.frombuffer(b"".join(word.to_bytes(size, "little") for word in words), np.uint8)
    closed = np.unpackbits(bits.reshape(M, size), axis=1, count=N, bitorder="little").T
    closed = np.ascontiguousarray(closed).view(np.bool_)
    if not settled:
        for row in closed:
            row[:] = closure_of_mask(program, row).state
    return closed


def _sealed(program: Program, state: Mask, order: Any, offsets: Any) -> Closure:
    order, offsets = np.asarray(order, np.int32), np.asarray(offsets, np.int64)
    depth = len(offsets) - 2
    return Closure(program, _frozen(state), depth, _frozen(order), _frozen(offsets))


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _split(offsets: npt.NDArray[Any], members: npt.NDArray[Any]) -> list[list[int]]:
    flat = members.tolist()
    return [flat[a:b] for a, b in pairwise(offsets.tolist())]


def _reordered(
    offsets: npt.NDArray[Any], members: npt.NDArray[Any], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], Indices]:
    """The compressed rows in another order."""
    sizes = np.diff(offsets)[rows]
    ends = np.concatenate(([0], np.cumsum(sizes)))
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes)
    return ends, members[np.repeat(offsets[rows], sizes) + within]


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        return os.cpu_count() or 1
