"""The closure of one fact set, step by step, and how many steps closures can take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count, pairwise
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from latentgamma._display import Display, Displayed
from latentgamma.logic.planes import pack, unpack
from latentgamma.program.compilation import Cells, compile_loop, share_parts, worth_compiling
from latentgamma.program.facts import Facts, FactSets, Mask, fact_mask, fact_masks
from latentgamma.program.graph import (
    Csr,
    rule_order,
    rules_deriving,
    rules_using,
    stated_facts,
    strong_components,
)
from latentgamma.program.names import quote
from latentgamma.program.program import (
    Indices,
    Offsets,
    Program,
    read_only,
    require_definite,
    require_program,
)

# ---- The closure of one fact set, level by level, in time linear in the size of the program
# Each rule counts the body atoms that are not yet true; when an atom becomes true, the rules that
# use it count down, and a rule that reaches zero fires. Small programs are closed in Python, larger
# ones by compiled loops that do the same.


class Levels(NamedTuple):
    """The derived atoms level by level: level d is `order[offsets[d]:offsets[d + 1]]`."""

    state: Mask  # (M,) which atoms are derived
    order: Indices
    offsets: Offsets


def derive_levels(program: Program, given: Mask) -> Levels:
    """Return the atoms that follow from the given ones, by the step at which they become true."""
    if worth_compiling(program.size + program.M):
        return _derive_compiled(program, given)
    return _derive_in_python(program, given)


def _as_lists(program: Program) -> tuple[list[list[int]], list[list[int]], list[int], list[int]]:
    """Return the rules that use each atom, heads, stated facts, and the sizes of bodies."""
    heads = Csr(program.head_indptr, program.head_indices).to_lists()
    stated, sizes = stated_facts(program).tolist(), program.body_sizes.tolist()
    return rules_using(program).to_lists(), heads, stated, sizes


def _small_body_sizes(program: Program) -> npt.NDArray[Any]:
    """Return the sizes of the bodies in as few bytes as they need, to stay in the cache."""
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


# ---- Loops


def propagate_lists(
    uses: list[list[int]],
    heads: list[list[int]],
    stated: list[int],
    missing: list[int],
    known: list[bool],
    order: list[int],
) -> list[int]:
    """Return the offsets of the levels in `order`, from the facts at its start to the closure.

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
    sizes: Cells, body: Cells, head_ptr: Cells, head: Cells, facts: Cells, mark: Cells,
    missing: Cells,
) -> None:  # fmt: skip
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
    use_ptr: Cells, use: Cells, head_ptr: Cells, head: Cells, missing: Cells, mark: Cells,
    mark_words: Cells, order: Cells, offsets: Cells, depth: int, ahead: int,
) -> int:  # fmt: skip
    """Return the depth of the closure; `order` and `offsets` end up holding it level by level.

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


def measure_depths(
    first: int, last: int, rows: Cells, stated: Cells, sizes: Cells, use_ptr: Cells, use: Cells,
    head_ptr: Cells, head: Cells, depths: Cells,
) -> None:  # fmt: skip
    """Set depths[b] to the number of steps of T_P from row b to its closure.

    `stated` are the heads of rules without a body, `sizes` the sizes of bodies, and `use` lists the
    rules that use each atom.
    """
    M = rows.shape[1]
    missing = np.empty_like(sizes)
    known = np.empty(M, np.bool_)
    queue = np.empty(M, np.int64)  # the derived atoms, level by level
    for b in range(first, last):
        end = 0
        for i in range(M):
            known[i] = rows[b, i]
            if known[i]:
                queue[end] = i
                end += 1
        start, level_end, depth = 0, end, 0
        for i in stated:
            if not known[i]:
                known[i] = True
                queue[end] = i
                end += 1
        missing[:] = sizes
        while True:
            while start < level_end:
                i = queue[start]
                start += 1
                for p in range(use_ptr[i], use_ptr[i + 1]):
                    j = use[p]
                    missing[j] -= 1
                    if missing[j] == 0:
                        for q in range(head_ptr[j], head_ptr[j + 1]):
                            if not known[head[q]]:
                                known[head[q]] = True
                                queue[end] = head[q]
                                end += 1
            if end == level_end:
                break
            depth += 1
            level_end = end
        depths[b] = depth


# ---- The immediate-consequence operator T_P and its least fixed points

# The most words that `step` keeps for all literals together: 32 MB.
_STEP_WORDS = 1 << 22
# Literals to visit for the depths of fact sets, below which a second thread costs more than it brings.
_DEPTHS_WORTH_A_THREAD = 1 << 23


@dataclass(frozen=True, eq=False, repr=False)
class Closure(Displayed):
    """The least fixed point of a program above some facts, and the step at which each atom comes.

    It has a length, iterates over the names of its atoms in the order of the program, and
    supports `in` for names and indices.

    Attributes:
        program: the program.
        state: which atoms are derived, shape (M,).
        depth: the number of steps of T_P until nothing changes.
        order: the derived atoms level by level, as indices.
        offsets: where the levels start: level d is `order[offsets[d]:offsets[d + 1]]`.

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
        return read_only(level)

    @cached_property
    def levels(self) -> tuple[frozenset[str], ...]:
        """The atoms that first become true at each step, the given facts at step 0."""
        return tuple(
            frozenset(self._names_between(a, b)) for a, b in pairwise(self.offsets.tolist())
        )

    def _names_between(self, start: int, stop: int) -> list[str]:
        found = np.sort(self.order[start:stop])
        return [self.program.atoms[i] for i in found[~self.program.auxiliary[found]]]

    def __len__(self) -> int:
        return len(self.order) - int(np.count_nonzero(self.program.auxiliary[self.order]))

    def __iter__(self) -> Iterator[str]:
        atoms = self.program.atoms
        return (atoms[i] for i in np.flatnonzero(self.state & ~self.program.auxiliary).tolist())

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

    def _display(self) -> Display:
        sizes = f"{len(self):,} of {self.program.M:,} atoms follow, in {self.depth:,} steps"
        rows = [line.split("  ", 1) for line in str(self).splitlines()]
        return Display(sizes, columns=("step", "atoms"), rows=rows)

    def __str__(self) -> str:
        lines = []
        for d, (a, b) in enumerate(pairwise(self.offsets.tolist())):
            if d == 100:
                lines.append(f"…  {self.depth + 1 - d} more levels")
                break
            names = self._names_between(a, b)
            more = f", … {len(names) - 20} more" if len(names) > 20 else ""
            lines.append(f"{d}  {', '.join(map(quote, names[:20])) or '–'}{more}")
        return "\n".join(lines)


@overload
def step(program: Program, facts: npt.NDArray[Any]) -> Any: ...
@overload
def step(  # type: ignore[overload-overlap]
    program: Program,
    facts: str | int | Mapping[Any, Any] | Iterable[str] | Iterable[int] | Iterable[float] = (),
) -> frozenset[str]: ...
@overload
def step(program: Program, facts: FactSets) -> Mask: ...
def step(program: Program, facts: Facts | FactSets = ()) -> frozenset[str] | Mask:
    """Return the facts and what follows from them at once: T_P applied to one fact set or many.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> sorted(step(program, ["penguin"]))
    ['bird', 'penguin']
    >>> step(program, [["penguin"], ["bird"]])
    array([[ True,  True, False],
           [ True, False,  True]])

    Args:
        program: a definite program: with negation, what follows at once is not what follows at
            the end.
        facts: one fact set in any form, or many of them.

    Returns:
        The names of the atoms for one fact set; one boolean row for each of many, shape (N, M).

    Raises:
        FactsError: if these are not facts of the program, or some are neither true nor false.
        ProgramError: if the first argument is not a definite program.
    """
    program = require_definite(program, "step")
    masks = fact_masks(program, facts)
    rows = np.atleast_2d(masks)
    after = np.empty_like(rows)
    chunk = 64 * max(1, _STEP_WORDS // max(1, program.size))
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        after[start : start + chunk] = unpack(_step_planes(program, pack(part)), len(part))
    return program.names(after[0]) if masks.ndim == 1 else after


def _step_planes(program: Program, planes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return one step on bit planes: an AND over each body, an OR over the rules of each head."""
    fires = np.full((program.R, planes.shape[1]), ~np.uint64(0))
    bodies = np.flatnonzero(program.body_sizes)
    if len(bodies):
        starts = program.body_indptr[bodies]
        fires[bodies] = np.bitwise_and.reduceat(planes[program.body_indices], starts, axis=0)
    offsets, rules = rules_deriving(program)
    heads = np.flatnonzero(program.rules_per_head)
    after = planes.copy()
    if len(heads):
        after[heads] |= np.bitwise_or.reduceat(fires[rules], offsets[heads], axis=0)
    return after


def depths_of_rows(
    program: Program, rows: Mask, *, compiled: bool, threads: int = 1
) -> npt.NDArray[np.int64]:
    """Return how many steps of T_P each fact set takes to its closure. (N, M) -> (N,)."""
    depths = np.zeros(len(rows), np.int64)
    if compiled:
        heads = program.head_indptr, program.head_indices
        arrays = stated_facts(program), program.body_sizes, *rules_using(program), *heads
        loop = compile_loop(measure_depths)
        large = len(rows) * (program.size + program.M) >= _DEPTHS_WORTH_A_THREAD
        share_parts(
            lambda first, last: loop(first, last, rows, *arrays, depths),
            len(rows),
            threads if large else 1,
        )
        return depths
    planes = pack(rows)
    for depth in count(1):
        after = _step_planes(program, planes)
        changed = np.bitwise_or.reduce(after ^ planes, axis=0)
        if not changed.any():
            break
        bits = np.unpackbits(changed.view(np.uint8), bitorder="little")[: len(rows)]
        depths[bits > 0] = depth
        planes = after
    return depths


def closure(program: Program, facts: Facts = ()) -> Closure:
    """Return everything that follows from the facts, and the step at which it does.

    The time is linear in the size of the program. Strata are closed one after another, and their
    steps add up.

    >>> program = Program.from_rules([("c", ["a", "b"]), ("d", ["c"])])
    >>> closure(program, ["a", "b"]).levels == ({"a", "b"}, {"c"}, {"d"})
    True

    Args:
        program: any program, with negation or without.
        facts: one fact set in any form; for many of them see `closures`.

    Returns:
        The closure.

    Raises:
        FactsError: if these are not facts of the program, or some are neither true nor false.
        ProgramError: if the first argument is not a program.
    """
    require_program(program, "closure")
    return closure_of_mask(program, fact_mask(program, facts))


def closure_of_mask(program: Program, given: Mask) -> Closure:
    """Return the closure of facts given as one boolean for each atom."""
    if not program.definite:
        levels = _derive_by_strata(program, given)
    else:
        levels = derive_levels(program, given)
    state, order, offsets = levels
    depth = len(offsets) - 2
    return Closure(program, read_only(state), depth, read_only(order), read_only(offsets))


def _derive_by_strata(program: Program, given: Mask) -> Levels:
    known = given.copy()
    order: list[npt.NDArray[Any]] = [np.flatnonzero(given)]
    offsets = [0, int(given.sum())]
    for stratum in program.strata:
        closed = derive_levels(stratum.program, known[stratum.atom] != stratum.negated)
        start = closed.offsets[1]
        order.append(stratum.atom[closed.order[start:]])
        offsets += (offsets[-1] + closed.offsets[2:] - start).tolist()
        known[order[-1]] = True
    return Levels(known, np.concatenate(order).astype(np.int32), np.array(offsets, np.int64))


# ---- A bound on the depth of closures: the number of steps that no fact set exceeds
# Condense the dependency graph into its strongly connected components. Suppose that all components
# before a component c have stopped changing. If c changes for at most w(c) steps from then on, the
# longest path through the condensation, with weights w, bounds every depth. Two bounds on the
# number of steps in which c changes:
#
# 1. Each such step makes a derivable atom of c true for the first time. Let K be a set of atoms of
#    c that reach one another by rules with a single body atom, with at most d such rules between
#    two of them. If its first atom becomes true at step t, all of K is true by step t + d, so K
#    changes in at most d steps after its first one, and in fewer than it has atoms. The first one
#    counts, too, if K can be entered: if an atom of K is the head of another rule. Such clusters K,
#    which partition the atoms of c, give w(c) as a sum.
# 2. A rule that fires in a step for the first time had its body completed in the step before. Two
#    bodies completed at different steps are different, and a body completed by c contains an atom
#    of c. So c changes in at most as many steps as the rules inside c have different bodies, and
#    one more if a rule leads into c whose body lies outside of it.

_Numbers = npt.NDArray[np.int64]

# Up to this many atoms the diameter of a cluster is computed, beyond that it is bounded.
_LARGEST_EXACT = 256


def depth_bound(program: Program) -> int:
    """Return a number of steps of T_P within which every fact set reaches its closure.

    It is the longest path through the dependency graph, where a cycle counts with a bound on the
    steps in which it can change: exact on a chain, and computed in time linear in the size of
    the program, sorting aside.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> depth_bound(program)
    2

    Args:
        program: any program; the bounds of strata add up.

    Returns:
        The bound.

    Raises:
        ProgramError: if this is not a program.
    """
    require_program(program, "depth_bound")
    if not program.definite:
        return sum(depth_bound(stratum.program) for stratum in program.strata)
    return program.cached(_depth_bound)


def _depth_bound(program: Program) -> int:
    component = rule_order(program).component
    if not len(component):
        return 0
    count = int(component.max()) + 1
    atoms, rules = component[: program.M], component[program.M :]
    derivable = program.rules_per_head > 0
    weight = np.bincount(atoms[derivable], minlength=count)
    if np.any(np.bincount(component) > 1):  # there are cycles
        weight = _cluster_weights(program, atoms, count)
        weight = np.minimum(weight, _body_weights(program, atoms, rules, count))
    return path_lengths(program, weight)[0]


def path_lengths(program: Program, weight: _Numbers) -> tuple[int, _Numbers]:
    """Return the longest path through weighted components, and that from each component on."""
    component = rule_order(program).component
    graph = (*rules_using(program), program.head_indptr, program.head_indices)
    order, length = np.argsort(component, kind="stable"), np.zeros(len(weight), np.int64)
    arrays = [*graph, component, order, weight, length]
    if worth_compiling(program.size + len(component)):
        return int(compile_loop(longest_path)(*arrays)), length
    lists = [array.tolist() for array in arrays]
    return int(longest_path(*lists)), np.array(lists[-1])


def _cluster_weights(program: Program, atoms: npt.NDArray[Any], count: int) -> _Numbers:
    """Return the first bound for each component."""
    M = program.M
    source, target = _unit_edges(program)
    inside = atoms[source] == atoms[target]
    cluster = _clusters(M, source[inside], target[inside])
    inside = cluster[source] == cluster[target]
    source, target = source[inside], target[inside]
    size = np.bincount(cluster, minlength=M)  # there are at most as many clusters as atoms
    edges = np.bincount(cluster[target], minlength=M)
    rules = np.bincount(cluster[program.head_indices], minlength=M)
    small = size[cluster] <= _LARGEST_EXACT
    diameter = _bound_diameters(M, cluster, source, target)
    exact = _exact_diameters(M, cluster, source[small[source]], target[small[source]])
    diameter = np.where(size <= _LARGEST_EXACT, exact, diameter)
    steps = np.minimum(size - 1, diameter) + (rules > edges)
    component = np.zeros(M, np.int64)
    component[cluster] = atoms
    return np.bincount(component, weights=steps * (size > 0), minlength=count).astype(np.int64)


def _exact_diameters(M: int, cluster: _Numbers, source: _Numbers, target: _Numbers) -> _Numbers:
    """Return the largest distance between two atoms of each cluster; the edges lie within clusters.

    Bit n of an atom says whether the nth atom of its cluster reaches it, after more and more
    steps: all clusters are searched from all their atoms at once.
    """
    diameter = np.zeros(M, np.int64)
    if not len(source):
        return diameter
    order = np.argsort(target, kind="stable")
    source, target = source[order], target[order]
    start = np.flatnonzero(np.append(True, np.diff(target) != 0))
    heads = target[start]
    number = np.zeros(M, np.int64)  # of each atom in its cluster
    members = heads[np.argsort(cluster[heads], kind="stable")]
    first = np.append(True, np.diff(cluster[members]) != 0)
    number[members] = np.arange(len(members)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    reached = np.zeros((M, int(number.max()) // 64 + 1), np.uint64)
    reached[members, number[members] // 64] = np.uint64(1) << (number[members] % 64).astype(
        np.uint64
    )
    steps = 0
    while True:
        after = reached[heads] | np.bitwise_or.reduceat(reached[source], start, axis=0)
        changed = np.any(after != reached[heads], axis=1)
        if not changed.any():
            return diameter
        steps += 1
        reached[heads] = after
        diameter[cluster[heads[changed]]] = steps


def _bound_diameters(M: int, cluster: _Numbers, source: _Numbers, target: _Numbers) -> _Numbers:
    """Return the largest distance to the centre plus the largest one from it, by cluster."""
    # The atom with most edges within its cluster is its centre.
    degree = np.bincount(np.concatenate((source, target)), minlength=M)
    order = np.lexsort((degree, cluster))
    centres = np.zeros(M, np.bool_)
    centres[order[np.append(np.diff(cluster[order]) != 0, True)]] = True
    diameter = np.zeros(M, np.int64)
    for one, other in ((source, target), (target, source)):
        graph = Program.from_arrays(np.arange(len(one) + 1), one, other, atoms=M)
        farthest = np.zeros(M, np.int64)
        np.maximum.at(farthest, cluster, closure_of_mask(graph, centres).level)
        diameter += farthest
    return diameter


def _unit_edges(program: Program) -> tuple[_Numbers, _Numbers]:
    """Return the body atom and a head of each rule that has a single body atom."""
    unit = np.repeat(program.body_sizes == 1, program.head_sizes)
    rule = np.repeat(np.arange(program.R), program.head_sizes)[unit]
    source = program.body_indices[program.body_indptr[rule]]
    return source.astype(np.int64), program.head_indices[unit].astype(np.int64)


def _clusters(M: int, source: _Numbers, target: _Numbers) -> _Numbers:
    """Return the strongly connected components of a graph on the atoms. Shape (M,)."""
    order = np.argsort(source, kind="stable")
    ends = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=M))))
    uses = Csr(ends, order)
    heads = Csr(np.arange(len(target) + 1), target)
    component, _ = strong_components(uses, heads)
    return np.unique(component[:M], return_inverse=True)[1].astype(np.int64)


def _body_weights(
    program: Program, atoms: npt.NDArray[Any], rules: npt.NDArray[Any], count: int
) -> _Numbers:
    """Return the second bound for each component."""
    # Bodies of one or two atoms get equal keys where they are equal; larger ones keys of their own.
    first = program.body_indptr[:-1]
    key = -1 - np.arange(program.R)
    one, two = program.body_sizes == 1, program.body_sizes == 2
    key[one] = program.body_indices[first[one]]
    high, low = program.body_indices[first[two] + 1], program.body_indices[first[two]]
    key[two] = (high.astype(np.int64) + 1) * program.M + low
    order = np.lexsort((key, rules))
    new = np.append(True, (np.diff(key[order]) != 0) | (np.diff(rules[order]) != 0))
    bodies = np.bincount(rules[order][new], minlength=count)
    rule = np.repeat(np.arange(program.R), program.head_sizes)
    heads = atoms[program.head_indices]
    entered = np.zeros(count, np.int64)
    entered[heads[heads != rules[rule]]] = 1
    return np.where(np.bincount(atoms, minlength=count) > 0, bodies + entered, 0)


def longest_path(
    use_ptr: Cells, use: Cells, head_ptr: Cells, head: Cells, component: Cells, order: Cells,
    weight: Cells, length: Cells,
) -> int:  # fmt: skip
    """Return the largest sum of weights along a path through the components.

    `order` lists the nodes by component, and `length` comes as zeros: it is filled with the
    longest path from each component on, without its own weight. An edge leads from a higher component to a lower one.
    """
    atoms = len(use_ptr) - 1
    longest = 0
    for v in order:
        c = component[v]
        if v < atoms:
            for p in range(use_ptr[v], use_ptr[v + 1]):
                w = component[use[p] + atoms]
                if w != c:
                    length[c] = max(length[c], length[w] + weight[w])
        else:
            for p in range(head_ptr[v - atoms], head_ptr[v - atoms + 1]):
                w = component[head[p]]
                if w != c:
                    length[c] = max(length[c], length[w] + weight[w])
        longest = max(longest, length[c] + weight[c])
    return longest
