"""Who depends on whom: the order of the rules, cycles, and strata."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from latentgamma.errors import ProgramError
from latentgamma.program.compilation import Cells, compile_loop, worth_compiling
from latentgamma.program.facts import Mask
from latentgamma.program.names import quote
from latentgamma.program.program import (
    Indices,
    Offsets,
    Program,
    Stratum,
    atoms_of_literals,
    read_only,
)

# ---- The dependency graph of a program: who uses what, and an order of the rules
# Each function computes its answer once per program and keeps it with the program.


class Csr(NamedTuple):
    """A relation as compressed rows: row i is `indices[indptr[i]:indptr[i + 1]]`."""

    indptr: npt.NDArray[Any]
    indices: npt.NDArray[Any]

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int]]) -> Csr:
        """Return rows of numbers, as int32."""
        listed = list(rows)
        ends = np.cumsum([0, *map(len, listed)])
        return cls(ends.astype(np.int32), np.array([i for row in listed for i in row], np.int32))

    @classmethod
    def joined(cls, parts: Iterable[Csr]) -> Csr:
        """Return the rows of several relations, one relation after another."""
        listed = list(parts)
        sizes = [np.zeros(1, np.int64), *(part.sizes for part in listed)]
        none = np.zeros(0, np.int32)
        return cls(
            np.concatenate(sizes).cumsum(),
            np.concatenate([none, *(part.indices for part in listed)]),
        )

    @property
    def sizes(self) -> npt.NDArray[Any]:
        """The length of each row."""
        return np.diff(self.indptr)

    @property
    def owner(self) -> npt.NDArray[np.int64]:
        """The row of each index."""
        return np.repeat(np.arange(len(self.indptr) - 1), self.sizes)

    def to_lists(self) -> list[list[int]]:
        """Return the rows as lists of Python numbers."""
        flat = self.indices.tolist()
        return [flat[a:b] for a, b in pairwise(self.indptr.tolist())]

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Csr:
        """Return some of the rows, in this order."""
        sizes = self.sizes[rows]
        ends = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes)
        return Csr(ends, self.indices[np.repeat(self.indptr[rows], sizes) + within])

    def keep(self, kept: Mask) -> Csr:
        """Return the rows with only those indices for which `kept` is true, one for each index."""
        counts = np.bincount(self.owner[kept], minlength=len(self.indptr) - 1)
        return Csr(np.concatenate(([0], np.cumsum(counts))), self.indices[kept])

    def transpose(self, count: int) -> Csr:
        """Return the rows that each of `count` indices occurs in, rising."""
        keys = self.indices.astype(np.int64) << 32 | self.owner
        keys.sort()
        ends = np.concatenate(([0], np.cumsum(np.bincount(self.indices, minlength=count))))
        narrow = len(keys) <= np.iinfo(np.int32).max
        return Csr(ends.astype(np.int32) if narrow else ends, keys.astype(np.int32))


T = TypeVar("T")


class RuleOrder(NamedTuple):
    """The rules in an order in which one pass closes everything that lies on no cycle.

    Block b is `rules[block_ptr[b]:block_ptr[b + 1]]`. A block without cycles needs one pass in
    this order; the rules of a cyclic block, which is one strongly connected component, are
    repeated until nothing changes.
    """

    rules: npt.NDArray[np.int64]  # (R,) rule indices
    block_ptr: npt.NDArray[np.int64]
    cyclic: Mask  # one for each block
    component: npt.NDArray[np.int32]  # (M + R,) of each atom, then of each rule


def _kept(compute: Callable[[Program], T]) -> Callable[[Program], T]:
    """Return the function with its results kept by the programs."""
    return wraps(compute)(lambda program: program.cached(compute))


@_kept
def rules_using(program: Program) -> Csr:
    """Return the rules whose body each atom is in."""
    return Csr(program.body_indptr, program.body_indices).transpose(program.M)


@_kept
def rules_deriving(program: Program) -> Csr:
    """Return the rules that have each atom as a head."""
    return Csr(program.head_indptr, program.head_indices).transpose(program.M)


def dependencies(program: Program, goals: Iterable[int]) -> tuple[set[int], set[int]]:
    """Return the atoms that the goals depend on, the goals among them, and the rules for these."""
    ends, rules_of = rules_deriving(program)
    atoms, rules = set(goals), set[int]()
    stack = list(atoms)
    while stack:
        i = stack.pop()
        for rule in rules_of[ends[i] : ends[i + 1]].tolist():
            if rule not in rules:
                rules.add(rule)
                fresh = {b if b >= 0 else ~b for b in program.literals_of(rule).tolist()} - atoms
                atoms |= fresh
                stack += fresh
    return atoms, rules


@_kept
def stated_facts(program: Program) -> npt.NDArray[np.int64]:
    """Return the indices of the facts that the program itself states, rising."""
    stated = np.repeat(program.body_sizes == 0, program.head_sizes)
    return np.unique(program.head_indices[stated]).astype(np.int64)


@_kept
def rule_order(program: Program) -> RuleOrder:
    """Return the rules in topological order of their strongly connected components."""
    return order_rules(rules_using(program), Csr(program.head_indptr, program.head_indices))


def order_rules(uses: Csr, heads: Csr) -> RuleOrder:
    """Return the rules in topological order; see `strong_components` for the arguments."""
    M, R = len(uses.indptr) - 1, len(heads.indptr) - 1
    component, finish = strong_components(uses, heads)
    rules = np.lexsort((-finish[M:], -component[M:]))
    on_cycle = (np.bincount(component, minlength=1) > 1)[component[M:][rules]]
    # Rules on no cycle share a block until a cycle comes between them.
    label = np.where(on_cycle, component[M:][rules], -1)
    edges = np.flatnonzero(np.diff(label)) + 1
    block_ptr = np.concatenate(([0], edges, [R])) if R else np.zeros(1, np.int64)
    return RuleOrder(rules, block_ptr, on_cycle[block_ptr[:-1]], component)


def strong_components(uses: Csr, heads: Csr) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the strongly connected component of each node, and when the search leaves it.

    The nodes are the atoms, then the rules: an atom points to the rules that use it, and a rule
    to its heads. Components are numbered against the edges: an edge between two of them leads
    from the higher number to the lower.
    """
    nodes = len(uses.indptr) - 1 + len(heads.indptr) - 1
    component = np.full(nodes, -1, np.int32)
    if worth_compiling(len(uses.indices) + len(heads.indices) + nodes):
        work = [np.zeros(nodes, np.int32) for _ in range(6)]
        compile_loop(find_components)(*uses, *heads, component, *work)
        return component, work[0]
    lists = [array.tolist() for array in (*uses, *heads, component)]
    working = [[0] * nodes for _ in range(6)]
    find_components(*lists, *working)
    return np.array(lists[-1], np.int32), np.array(working[0], np.int32)


# ---- Loops


def find_components(
    use_ptr: Cells,
    use: Cells,
    head_ptr: Cells,
    head: Cells,
    component: Cells,
    finish: Cells,
    visit: Cells,
    low: Cells,
    edge: Cells,
    calls: Cells,
    stack: Cells,
) -> None:
    """Fill `component` and `finish`, see `strong_components`.

    Tarjan's algorithm, with its recursion as a stack. `component` comes as -1 and `visit` as 0;
    the arrays after it are working memory.
    """
    atoms = len(use_ptr) - 1
    found, seen, left, height = 0, 0, 0, 0
    for root in range(len(component)):
        if visit[root] > 0:
            continue
        calls[0] = root
        depth = 1
        while depth > 0:
            v = calls[depth - 1]
            if visit[v] == 0:
                seen += 1
                visit[v] = seen
                low[v] = seen
                edge[v] = use_ptr[v] if v < atoms else head_ptr[v - atoms]
                stack[height] = v
                height += 1
            p = edge[v]
            if p < (use_ptr[v + 1] if v < atoms else head_ptr[v - atoms + 1]):
                edge[v] = p + 1
                w = use[p] + atoms if v < atoms else head[p]
                if visit[w] == 0:
                    calls[depth] = w
                    depth += 1
                elif component[w] < 0:
                    low[v] = min(low[v], visit[w])
                continue
            depth -= 1
            if depth > 0:
                above = calls[depth - 1]
                low[above] = min(low[above], low[v])
            finish[v] = left
            left += 1
            if low[v] == visit[v]:
                while component[v] < 0:
                    height -= 1
                    component[stack[height]] = found
                found += 1


# ---- A program with negation divided into strata, or the cycle through a negation that prevents it


class NotStratifiedError(ProgramError):
    """An atom depends on its own negation; a rule for `head` has `not negated` in its body."""

    def __init__(self, problem: str, head: str, negated: str) -> None:
        self.problem = problem
        self.head = head
        self.negated = negated
        super().__init__(problem)


def levels_of(program: Program) -> Indices:
    """Return the stratum of each atom: the most negations on a way down from it. Shape (M,).

    Raises:
        NotStratifiedError: if an atom depends on its own negation; the message shows the cycle.
    """
    # A rule with several heads is one rule for each of them here.
    rule = np.repeat(np.arange(program.R), program.head_sizes)
    heads = program.head_indices
    ends, literals = Csr(program.body_indptr, program.body_literals).take(rule)
    uses = Csr(ends, atoms_of_literals(literals)).transpose(program.M)
    order = order_rules(uses, Csr(np.arange(len(heads) + 1), heads))
    level = np.zeros(program.M, np.int32)
    arrays = (
        ends, literals, heads, order.rules, order.block_ptr, order.cyclic,
        level, np.full(program.M, -1, np.int32),
    )  # fmt: skip
    if worth_compiling(program.size):
        at = compile_loop(raise_levels)(*arrays)
    else:
        lists = [array.tolist() for array in arrays]
        at = raise_levels(*lists)
        level[:] = lists[-2]
    if at >= 0:
        raise _not_stratified(program.atoms, heads, ends, literals, at)
    return read_only(level)


def divide(program: Program, level: Indices) -> tuple[Stratum, ...]:
    """Return the strata of a program whose atoms have these levels."""
    rule = np.repeat(np.arange(program.R, dtype=np.int32), program.head_sizes)
    of_head = level[program.head_indices]
    by_level = np.argsort(of_head, kind="stable")  # rules stay in the order of the program
    cuts = np.flatnonzero(np.diff(of_head[by_level])) + 1
    place = np.zeros((2, program.M), np.int32)  # in a stratum, of an atom and of its negation
    names = set(program.atoms)
    strata = []
    for chosen in np.split(by_level, cuts):
        heads = program.head_indices[chosen]
        rules, starts = np.unique(rule[chosen], return_index=True)
        ends, literals = Csr(program.body_indptr, program.body_literals).take(rules)
        negated, members = literals < 0, atoms_of_literals(literals)
        positive = np.unique(np.concatenate((heads, members[~negated])))
        negative = np.unique(members[negated])
        place[0, positive] = np.arange(len(positive))
        place[1, negative] = len(positive) + np.arange(len(negative))
        part = Program._from_sorted_rows(
            tuple(
                [program.atoms[i] for i in positive]
                + [negation_name(program.atoms[i], names) for i in negative]
            ),
            ends,
            place[negated.astype(np.int8), members],
            np.append(starts, len(heads)),
            place[0, heads],
        )
        atom = np.concatenate((positive, negative)).astype(np.int32)
        sign = np.arange(len(atom)) >= len(positive)
        strata.append(Stratum(part, atom, sign, rules))
    return tuple(strata)


def negation_name(name: str, taken: set[str]) -> str:
    """Return what the negation of an atom is called in a stratum: no other atom has that name."""
    negation = f"not {quote(name)}"
    while negation in taken:
        negation = f"not {negation}"
    return negation


def raise_levels(
    body_ptr: Cells,
    body: Cells,
    head: Cells,
    order: Cells,
    block_ptr: Cells,
    cyclic: Cells,
    level: Cells,
    block_of: Cells,
) -> int:
    """Return the place of a literal that negates an atom of its own cycle, or −1 and raise `level`.

    Blocks of rules come in topological order; a cyclic block is one strongly connected component.
    `level` comes as 0 and `block_of`, which is working memory, as −1.
    """
    for b in range(len(block_ptr) - 1):
        top = 0
        if cyclic[b]:
            for x in range(block_ptr[b], block_ptr[b + 1]):
                block_of[head[order[x]]] = b
                top = max(top, level[head[order[x]]])
        for x in range(block_ptr[b], block_ptr[b + 1]):
            j = order[x]
            most = 0
            for p in range(body_ptr[j], body_ptr[j + 1]):
                if body[p] < 0:
                    if cyclic[b] and block_of[~body[p]] == b:
                        return p
                    most = max(most, level[~body[p]] + 1)
                else:
                    most = max(most, level[body[p]])
            if cyclic[b]:
                top = max(top, most)
            else:
                level[head[j]] = max(level[head[j]], most)
        if cyclic[b]:
            for x in range(block_ptr[b], block_ptr[b + 1]):
                level[head[order[x]]] = top
    return -1


def _not_stratified(
    atoms: tuple[str, ...], heads: Indices, ends: Offsets, literals: Indices, at: int
) -> NotStratifiedError:
    """Return the error that shows how the head of a rule depends on a literal of its body."""
    goal, denied = int(heads[np.searchsorted(ends, at, "right") - 1]), ~int(literals[at])
    starts, order = Csr(np.arange(len(heads) + 1), heads).transpose(len(atoms))
    # From the denied atom down to the head, by a shortest way.
    before: dict[int, tuple[int, bool]] = {denied: (-1, False)}
    queue = deque([denied])
    while queue and goal not in before:
        atom = queue.popleft()
        for j in order[starts[atom] : starts[atom + 1]].tolist():
            for literal in literals[ends[j] : ends[j + 1]].tolist():
                below = ~literal if literal < 0 else literal
                if below not in before:
                    before[below] = (atom, literal < 0)
                    queue.append(below)
    steps = []
    at = goal
    while at != denied:
        above, sign = before[at]
        steps.append(f"{quote(atoms[above])} needs {'not ' * sign}{quote(atoms[at])}")
        at = above
    cycle = [f"{quote(atoms[goal])} needs not {quote(atoms[denied])}", *reversed(steps)]
    shown = [*cycle[:6], "…"] if len(cycle) > 7 else cycle
    problem = (
        f"the program is not stratified, because an atom depends on its own negation: "
        f"{', '.join(shown)}; break the cycle, for example with a predicate of its own for one side"
    )
    return NotStratifiedError(problem, atoms[goal], atoms[denied])
