"""A program with negation divided into strata, or the cycle through a negation that prevents it."""

from __future__ import annotations

from collections import deque

import numpy as np

from latentgamma._errors import ProgramError
from latentgamma._program.compilation import Cells, compile_loop, worth_compiling
from latentgamma._program.dependency_graph import (
    Rows,
    invert_rows,
    order_rules,
    reorder_rows,
)
from latentgamma._program.immutable import read_only
from latentgamma._program.names import quote
from latentgamma._program.program import Indices, Offsets, Program, Stratum, atoms_of_literals


class NotStratifiedError(ProgramError):
    """An atom depends on its own negation; a rule for `head` has `not negated` in its body."""

    def __init__(self, problem: str, head: str, negated: str) -> None:
        self.problem = problem
        self.head = head
        self.negated = negated
        super().__init__(problem)


def levels_of(program: Program) -> Indices:
    """The stratum of each atom: the most negations on a way down from it. Shape (M,).

    Raises:
        NotStratifiedError: if an atom depends on its own negation; the message shows the cycle.
    """
    # A rule with several heads is one rule for each of them here.
    rule = np.repeat(np.arange(program.R), program.head_sizes)
    heads = program.head_indices
    ends, literals = reorder_rows(program.body_indptr, program.body_literals, rule)
    uses = invert_rows(Rows(ends, atoms_of_literals(literals)), program.M)
    order = order_rules(uses, Rows(np.arange(len(heads) + 1), heads))
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
    """The strata of a program whose atoms have these levels."""
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
        ends, literals = reorder_rows(program.body_indptr, program.body_literals, rules)
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
    """What the negation of an atom is called in a stratum: no other atom has that name."""
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
    """The place of a literal that negates an atom of its own cycle, or −1 after `level` was raised.

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
    atoms: tuple[str, ...],
    heads: Indices,
    ends: Offsets,
    literals: Indices,
    at: int,
) -> NotStratifiedError:
    """The error that shows how the head of a rule depends on the literal at a place of its body."""
    goal, denied = int(heads[np.searchsorted(ends, at, "right") - 1]), ~int(literals[at])
    order = np.argsort(heads, kind="stable")
    starts = np.searchsorted(heads[order], np.arange(len(atoms) + 1))
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
