"""A bound on the depth of closures: the number of steps that no fact set exceeds.

Condense the dependency graph into its strongly connected components. Suppose that all components
before a component c have stopped changing. If c changes for at most w(c) steps from then on, the
longest path through the condensation, with weights w, bounds every depth. Two bounds on the
number of steps in which c changes:

1. Each such step makes a derivable atom of c true for the first time. Let K be a set of atoms of
   c that reach one another by rules with a single body atom, with at most d such rules between
   two of them. If its first atom becomes true at step t, all of K is true by step t + d, so K
   changes in at most d steps after its first one, and in fewer than it has atoms. The first one
   counts, too, if K can be entered: if an atom of K is the head of another rule. Such clusters K,
   which partition the atoms of c, give w(c) as a sum.
2. A rule that fires in a step for the first time had its body completed in the step before. Two
   bodies completed at different steps are different, and a body completed by c contains an atom
   of c. So c changes in at most as many steps as the rules inside c have different bodies, and
   one more if a rule leads into c whose body lies outside of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._logic.closure import closure_of_mask
from latentgamma._program.compilation import Cells, compile_loop, worth_compiling
from latentgamma._program.dependency_graph import (
    Rows,
    rule_order,
    rules_using,
    strong_components,
)
from latentgamma._program.program import Program, require_program

_Numbers = npt.NDArray[np.int64]

# Up to this many atoms the diameter of a cluster is computed, beyond that it is bounded.
_LARGEST_EXACT = 256


def depth_bound(program: Program) -> int:
    """A number of steps of T_P within which every fact set reaches its closure.

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
    graph = (*rules_using(program), program.head_indptr, program.head_indices)
    order, length = np.argsort(component, kind="stable"), np.zeros(count, np.int64)
    arrays = [*graph, component, order, weight, length]
    if worth_compiling(program.size + len(component)):
        return int(compile_loop(longest_path)(*arrays))
    return int(longest_path(*[array.tolist() for array in arrays]))


def _cluster_weights(program: Program, atoms: npt.NDArray[Any], count: int) -> _Numbers:
    """The first bound for each component."""
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
    """The largest distance between two atoms of each cluster; the edges lie within clusters.

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
    """The largest distance to the centre of each cluster plus the largest distance from it."""
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
    """The body atom and a head of each rule that has a single body atom."""
    unit = np.repeat(program.body_sizes == 1, program.head_sizes)
    rule = np.repeat(np.arange(program.R), program.head_sizes)[unit]
    source = program.body_indices[program.body_indptr[rule]]
    return source.astype(np.int64), program.head_indices[unit].astype(np.int64)


def _clusters(M: int, source: _Numbers, target: _Numbers) -> _Numbers:
    """The strongly connected components of a graph on the atoms. Shape (M,)."""
    order = np.argsort(source, kind="stable")
    ends = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=M))))
    uses = Rows(ends, order)
    heads = Rows(np.arange(len(target) + 1), target)
    component, _ = strong_components(uses, heads)
    return np.unique(component[:M], return_inverse=True)[1].astype(np.int64)


def _body_weights(
    program: Program, atoms: npt.NDArray[Any], rules: npt.NDArray[Any], count: int
) -> _Numbers:
    """The second bound for each component."""
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
    use_ptr: Cells,
    use: Cells,
    head_ptr: Cells,
    head: Cells,
    component: Cells,
    order: Cells,
    weight: Cells,
    length: Cells,
) -> int:
    """The largest sum of weights along a path through the components.

    `order` lists the nodes by component, and `length` comes as zeros: it is filled with the
    longest path from each component on. An edge leads from a higher component to a lower one.
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
