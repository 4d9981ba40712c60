"""Clauses compiled into a decision diagram, and proofs that it is right.

A node decides one label. Each of its two branches, false and true, leads to nodes that decide
disjoint sets of other labels, and leaves some labels free. So a choice of branches from the roots
down decides every label once, and is a model of the clauses; every model is one such choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._progress import Progress
from latentgamma._text import quantity
from latentgamma.errors import ProgramError
from latentgamma.program.facts import bit_places
from latentgamma.program.graph import Csr
from latentgamma.program.program import Immutable

Integers: TypeAlias = npt.NDArray[np.int32]
Clause: TypeAlias = tuple[int, ...]
#: The label of a node, the children of its two branches, and all labels it decides, as bits.
_Node: TypeAlias = "tuple[int, list[list[int] | None], int]"

#: Probabilities below this count as this where their logarithm is needed.
LEAST = 1e-290
#: Worse than every sum of log-odds.
NEVER = -1e300
#: Literals that the compiler may visit, for each edge of the budget.
_VISITS_PER_EDGE = 100


@dataclass(frozen=True, eq=False)
class Diagram(Immutable):
    """Nodes in an order in which children come first, level by level.

    Branch b = 2n + k of node n decides that `label[n]` is k. It exists if `open[b]`; its children
    are `child[child_ptr[b]:child_ptr[b + 1]]`, and the labels that it leaves free
    `free[free_ptr[b]:free_ptr[b + 1]]`. The nodes of level s are `level_ptr[s]` to
    `level_ptr[s + 1]`.
    """

    labels: int
    label: Integers  # (N,)
    open: npt.NDArray[np.uint8]  # (2N,)
    child_ptr: Integers  # (2N + 1,)
    child: Integers
    free_ptr: Integers  # (2N + 1,)
    free: Integers
    root: Integers
    level_ptr: Integers

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.label)

    @property
    def edges(self) -> int:
        """The number of branches, of their children and of their free labels."""
        return int(self.open.sum()) + len(self.child) + len(self.free)

    def __str__(self) -> str:
        nodes, edges = quantity(self.nodes, "node"), quantity(self.edges, "edge")
        return f"a decision diagram of {nodes} and {edges}"

    def children(self, branch: int) -> list[int]:
        """Return the nodes that a branch leads to."""
        found: list[int] = self.child[self.child_ptr[branch] : self.child_ptr[branch + 1]].tolist()
        return found

    def free_labels(self, branch: int) -> list[int]:
        """Return the labels that a branch leaves free."""
        found: list[int] = self.free[self.free_ptr[branch] : self.free_ptr[branch + 1]].tolist()
        return found


# ---- The compiler: decide a label, split what is left into independent parts, remember each part


def compile_diagram(
    clauses: Iterable[Clause], labels: int, budget: int, progress: Progress | None = None
) -> Diagram | None:
    """Return the diagram of clauses of non-zero literals ±(label + 1), or None beyond the budget.

    Every label is in a clause. The budget is the largest number of edges; `progress` is called now
    and then with a text, the edges so far and the budget.

    Raises:
        ProgramError: if no assignment satisfies the clauses.
    """
    given = _without_tautologies(clauses)
    known: dict[frozenset[Clause], int] = {}  # the node of a part; −1 if nothing satisfies it
    nodes: list[_Node] = []
    expanded: dict[frozenset[Clause], tuple[int, list[list[frozenset[Clause]] | None]]] = {}
    edges = visits = 0
    parts = _parts(given)
    stack = list(parts)
    while stack:
        part = stack[-1]
        if part in known:
            stack.pop()
            continue
        if part not in expanded:
            visits += sum(map(len, part))
            if visits > _VISITS_PER_EDGE * budget:
                return None
            variable = _choose(part)
            left = [_assign(part, literal) for literal in (-variable, variable)]
            expanded[part] = variable, [None if rest is None else _parts(rest) for rest in left]
        variable, branches = expanded[part]
        waiting = [one for branch in branches for one in branch or () if one not in known]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        del expanded[part]
        children = [None if b is None else [known[one] for one in b] for b in branches]
        children = [None if b is None or -1 in b else b for b in children]
        known[part] = -1
        if any(b is not None for b in children):
            known[part] = len(nodes)
            mentioned = {abs(literal) - 1 for clause in part for literal in clause}
            nodes.append((variable - 1, children, sum(1 << i for i in mentioned)))
            if progress is not None:
                progress("edges of the diagram, within the budget", edges, budget)
            edges += sum(1 + len(b) for b in children if b is not None)
            if edges > budget:
                return None
    roots = [known[part] for part in parts]
    if -1 in roots:
        raise ProgramError("no assignment of the labels satisfies the requirements")
    return _numbered(nodes, roots, labels, budget)


def _without_tautologies(clauses: Iterable[Clause]) -> set[Clause]:
    """Return the different clauses, each sorted, without those that always hold."""
    given = {tuple(sorted(set(clause))) for clause in clauses}
    return {clause for clause in given if not any(-x in clause for x in clause)}


def _choose(part: frozenset[Clause]) -> int:
    """Return the label to decide: one of many short clauses."""
    weight: dict[int, float] = {}
    for clause in part:
        share = 4.0 ** -len(clause)
        for literal in clause:
            variable = abs(literal)
            weight[variable] = weight.get(variable, 0.0) + share
    return min(weight, key=lambda variable: (-weight[variable], variable))


def _assign(clauses: Iterable[Clause], literal: int) -> set[Clause] | None:
    """Return the clauses that are left once a literal is true; None if one becomes empty.

    A label that one clause decides alone is in no other clause: those are shortened, or left out.
    """
    true, alone = {literal}, set[int]()
    while True:
        false = {-x for x in true}
        left = set()
        for clause in clauses:
            if true.isdisjoint(clause):
                if not false.isdisjoint(clause):
                    clause = tuple(x for x in clause if x not in false)
                    if not clause:
                        return None
                left.add(clause)
        true = {clause[0] for clause in left if len(clause) == 1}
        if not true:
            return left | {(x,) for x in alone}
        if any(-x in true for x in true):
            return None
        alone |= true
        clauses = left


def _parts(clauses: Iterable[Clause]) -> list[frozenset[Clause]]:
    """Return the sets of clauses that share no labels."""
    above: dict[int, int] = {}

    def top(x: int) -> int:
        while above[x] != x:
            above[x] = x = above[above[x]]
        return x

    clauses = list(clauses)
    for clause in clauses:
        first = top(above.setdefault(abs(clause[0]), abs(clause[0])))
        for literal in clause[1:]:
            other = top(above.setdefault(abs(literal), first))
            above[other] = first
    groups: dict[int, list[Clause]] = {}
    for clause in clauses:
        groups.setdefault(top(abs(clause[0])), []).append(clause)
    return [frozenset(group) for group in groups.values()]


def _numbered(nodes: Sequence[_Node], roots: list[int], labels: int, budget: int) -> Diagram | None:
    """Return the diagram of the nodes that the roots reach, in levels, with its free labels."""
    used = np.zeros(len(nodes), np.bool_)
    used[roots] = True
    height = [0] * len(nodes)
    below = [node[2] for node in nodes]
    for n in range(len(nodes)):
        for branch in nodes[n][1]:
            for c in branch or ():
                height[n] = max(height[n], height[c] + 1)
    for n in reversed(range(len(nodes))):
        if used[n]:
            for branch in nodes[n][1]:
                used[branch or []] = True
    order = sorted(np.flatnonzero(used).tolist(), key=lambda n: (height[n], n))
    number = {n: i for i, n in enumerate(order)}
    children = [[number[c] for c in branch or ()] for n in order for branch in nodes[n][1]]
    free: list[list[int]] = []
    for n in order:
        label, branches, _ = nodes[n]
        for branch in branches:
            rest = 0 if branch is None else below[n] ^ (1 << label)
            for c in branch or ():
                rest ^= below[c]
            free.append(bit_places(rest))
            budget -= len(free[-1])
            if budget < 0:
                return None
    levels = np.searchsorted([height[n] for n in order], range(max(height, default=-1) + 2))
    mentioned = 0
    for r in roots:
        mentioned |= below[r]
    if mentioned != (1 << labels) - 1:
        raise ProgramError("a label of the diagram is in no clause")
    return Diagram(
        labels,
        np.array([nodes[n][0] for n in order], np.int32),
        np.array([branch is not None for n in order for branch in nodes[n][1]], np.uint8),
        *Csr.from_lists(children),
        *Csr.from_lists(free),
        np.array([number[r] for r in roots], np.int32),
        levels.astype(np.int32),
    )


# ---- Proofs


def labels_below(d: Diagram) -> list[int]:
    """Return the labels that each node decides, as bits.

    Raises:
        ValueError: if a choice of branches might not decide every label exactly once.
    """
    N = d.nodes
    shapes = (len(d.open), len(d.child_ptr) - 1, len(d.free_ptr) - 1)
    if shapes != (2 * N, 2 * N, 2 * N):
        raise ValueError("the arrays of the diagram do not fit each other")
    for ptr, flat in ((d.child_ptr, d.child), (d.free_ptr, d.free)):
        if ptr[0] != 0 or ptr[-1] != len(flat) or np.any(np.diff(ptr) < 0):
            raise ValueError("the arrays of the diagram do not fit each other")
    for values, limit in ((d.label, d.labels), (d.free, d.labels), (d.child, N), (d.root, N)):
        if len(values) and (values.min() < 0 or values.max() >= limit):
            raise ValueError("the diagram refers to what is not there")
    below = [0] * N
    if len(d.level_ptr) < 1 or d.level_ptr[0] != 0 or d.level_ptr[-1] != N:
        raise ValueError("the levels do not hold all nodes")
    first = d.level_ptr[np.searchsorted(d.level_ptr, np.arange(N), "right") - 1]  # of its level
    for n in range(N):
        sets = []
        for b in (2 * n, 2 * n + 1):
            if not d.open[b]:
                continue
            union = 1 << int(d.label[n])
            parts = [1 << x for x in d.free_labels(b)]
            for c in d.children(b):
                if c >= first[n]:
                    raise ValueError(f"node {n} has a child that does not come before it")
                parts.append(below[c])
            for part in parts:
                if union & part:
                    raise ValueError(f"node {n} decides a label twice")
                union |= part
            sets.append(union)
        if not sets:
            raise ValueError(f"node {n} has no branch")
        if sets[0] != sets[-1]:
            raise ValueError(f"the branches of node {n} decide different labels")
        below[n] = sets[0]
    everything = 0
    for r in d.root.tolist():
        if everything & below[r]:
            raise ValueError("two roots decide the same label")
        everything |= below[r]
    if everything != (1 << d.labels) - 1:
        raise ValueError("some labels are not decided")
    return below


def broken_clauses(diagram: Diagram, clauses: Sequence[Clause]) -> list[int]:
    """Return the clauses that some choice of branches makes false: those whose negation has a path.

    Bit c of a plane says whether a choice below a node makes every literal of clause c false.
    """
    d = diagram
    words = -(-len(clauses) // 64)
    makes_true = np.zeros((2 * d.labels, words * 64), np.bool_)
    for c, clause in enumerate(clauses):
        for literal in clause:
            makes_true[2 * (abs(literal) - 1) + (literal > 0), c] = True
    blocked = np.packbits(makes_true, axis=1, bitorder="little").view(np.uint64)
    ones = ~np.zeros(words, np.uint64)
    plane = np.zeros((d.nodes, words), np.uint64)
    for n in range(d.nodes):
        for k in (0, 1):
            b = 2 * n + k
            if d.open[b]:
                below = d.children(b)
                path = np.bitwise_and.reduce(plane[below], axis=0) if len(below) else ones
                plane[n] |= path & ~blocked[2 * int(d.label[n]) + k]
    path = np.bitwise_and.reduce(plane[d.root], axis=0) if len(d.root) else ones
    bits = np.unpackbits(path.view(np.uint8), bitorder="little")[: len(clauses)]
    return np.flatnonzero(bits).tolist()


def is_complete(diagram: Diagram, clauses: Iterable[Clause]) -> bool:
    """Return whether it is proved that every model of the clauses is a choice of branches.

    Each node is visited with the clauses that are left where it is reached. What is left at a
    branch that does not exist must be unsatisfiable. The structure must have no problem.
    """
    d = diagram
    below = labels_below(d)
    seen: set[tuple[int, frozenset[Clause]]] = set()
    stack: list[tuple[int, frozenset[Clause]]] = []
    known: dict[frozenset[Clause], bool] = {}

    def visit(children: list[int], left: Iterable[Clause]) -> None:
        # A clause over the labels of two children, or over free ones, is left out: without it there
        # are more models, so that the proof can only fail.
        masks = [(sum(1 << (abs(x) - 1) for x in clause), clause) for clause in left]
        for c in children:
            own = frozenset(clause for mask, clause in masks if not mask & ~below[c])
            if (c, own) not in seen:
                seen.add((c, own))
                stack.append((c, own))

    visit(d.root.tolist(), _without_tautologies(clauses))
    while stack:
        n, part = stack.pop()
        label = int(d.label[n]) + 1
        for b, literal in ((2 * n, -label), (2 * n + 1, label)):
            left = _assign(part, literal)
            if left is None:
                continue
            if d.open[b]:
                visit(d.children(b), left)
            elif _satisfiable(left, known):
                return False
    return True


def _satisfiable(clauses: Iterable[Clause], known: dict[frozenset[Clause], bool]) -> bool:
    """Return whether an assignment satisfies clauses of `_assign`; `known` has what was found before."""
    part = frozenset(clause for clause in clauses if len(clause) > 1)
    if part and part not in known:
        variable = _choose(part)
        branches = (_assign(part, literal) for literal in (variable, -variable))
        known[part] = any(b is not None and _satisfiable(b, known) for b in branches)
    return not part or known[part]
