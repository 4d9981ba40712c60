"""What is derived from a program once: who uses what, and in which order rules go."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from latentgamma._logic import loops
from latentgamma._logic.loops import Cells, compiled
from latentgamma._program.program import Indices, Mask, Offsets, Program

A = TypeVar("A", bound=npt.NDArray[Any])

# Literals the plain path visits on behalf of one program before it is worth importing numba.
# At about 0.2 µs each that is half a second, which is what the import takes.
_PLAIN_WORK = 2_000_000


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
        # Where numba is there already, finding the loops on disk takes about a tenth of that.
        return self._spent <= (_PLAIN_WORK // 10 if "numba" in sys.modules else _PLAIN_WORK)

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
            return frozen(ends), frozen(rows)
        narrow = len(members) <= np.iinfo(np.int32).max
        ends = np.zeros(self._program.M + 2, np.int32 if narrow else np.int64)
        rows = np.empty(len(members), np.int32)
        compiled(loops.invert)(offsets, members, ends, rows)
        return frozen(ends)[:-1], frozen(rows)

    @cached_property
    def sizes(self) -> npt.NDArray[Any]:
        """The sizes of the bodies in as few bytes as they need: counters that stay in cache."""
        program = self._program
        return frozen(program.body_sizes.astype(np.uint8 if program.k <= 255 else np.int32))

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
            bound = components(*lists, *room)
            component, finish = np.array(lists[-1], np.int32), np.array(room[0], np.int32)
        else:
            arrays = [np.zeros(nodes, np.int32) for _ in range(7)]
            loop = compiled(components)
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

    @cached_property
    def integer_blocks(self) -> list[tuple[bool, list[tuple[list[int], list[int]]]]]:
        """The same for the plain loop: whether a block has a cycle, and its (body, heads) pairs."""
        program, order = self._program, self.order
        bodies = _split(program.body_indptr, program.body_indices)
        heads = _split(program.head_indptr, program.head_indices)
        rules = [(bodies[j], heads[j]) for j in order.rules.tolist()]
        edges = pairwise(order.block_ptr.tolist())
        return [(c, rules[a:b]) for c, (a, b) in zip(order.cyclic.tolist(), edges, strict=True)]


def graph_of(program: Program) -> Graph:
    """The graph of this very program object, made when it is first asked for."""
    kept: Graph | None = program.__dict__.get("_graph")
    if kept is None:
        # By identity, in the object itself: hashing a large program is as dear as closing it.
        # It gets a twin that shares the arrays, or the two would keep each other alive.
        kept = program.__dict__.setdefault("_graph", Graph(replace(program)))
    return kept


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


def frozen(array: A) -> A:
    """The array, read-only from now on."""
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
