"""Counts compiled into rules: `2 { a; b; c }` is an atom that auxiliary rules derive.

Auxiliary atom (c, i, j) says that at least j of the first i literals of the count c hold. There are
at most literals × bound of them, and two rules for each:

    (c, i, j) :- (c, i − 1, j).
    (c, i, j) :- (c, i − 1, j − 1), literal i.

They come after all other atoms and rules, and no answer and no proof shows them.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from latentgamma.errors import ProgramError
from latentgamma.program.names import Count, split_count
from latentgamma.program.program import Program, RuleRows

_is_auxiliary = re.compile(r"#count\(([0-9]+),([0-9]+),([0-9]+)\)").fullmatch


def counts_of(program: Program) -> dict[int, Count]:
    """Return the counts among the atoms, by index."""
    found = ((i, split_count(name)) for i, name in enumerate(program.atoms) if "{" in name)
    return {i: count for i, count in found if count is not None}


def auxiliary_atoms(program: Program) -> npt.NDArray[np.bool_]:
    """Return which atoms are part of how counts are compiled. Shape (M,)."""
    names = program.atoms
    if "#count(" not in "".join(names):
        return np.zeros(len(names), np.bool_)
    marked = (name.startswith("#") and _is_auxiliary(name) is not None for name in names)
    return np.fromiter(marked, np.bool_, len(names))


def compile_counts(program: Program) -> Program:
    """Return the program with rules for the counts that it has none for.

    Raises:
        NotStratifiedError: if an atom depends on its own negation through a count.
    """
    counts = {i: c for i, c in counts_of(program).items() if program.rules_per_head[i] == 0}
    if not counts:
        return program
    rows = RuleRows()
    rows.extend(program)
    for _, atoms, negated in counts.values():
        rows.numbers((*atoms, *negated))
    for number, (bound, atoms, negated) in counts.items():
        positive: list[tuple[list[str], list[str]]] = [([name], []) for name in atoms]
        literals = positive + [([], [name]) for name in negated]
        total = len(literals)
        before: dict[int, str] = {}  # j: the atom for the literals so far
        for i, (own, denied) in enumerate(literals, 1):
            now: dict[int, str] = {}
            for j in range(max(1, bound - total + i), min(i, bound) + 1):
                last = (i, j) == (total, bound)
                now[j] = program.atoms[number] if last else f"#count({number},{i},{j})"
                if j in before:
                    rows.add([now[j]], [before[j]])
                rest = [] if j == 1 else [before[j - 1]]
                rows.add([now[j]], [*rest, *own], denied)
            before = now
    return rows.program()


def written_program(program: Program) -> Program:
    """Return the program as it is written: without the atoms and the rules of its counts.

    A program whose rules for counts are not those that `compile_counts` makes comes back as it is.
    """
    counts = counts_of(program)
    if not counts:
        return program
    hidden = auxiliary_atoms(program)
    hidden[[i for i in counts if program.rules_per_head[i] > 0]] = True
    first = program.head_indices[program.head_indptr[:-1]]
    # The rules before the first of a count, and below the atoms with names of their own.
    written = int(np.argmax(np.append(hidden[first], True)))
    body_end, head_end = int(program.body_indptr[written]), int(program.head_indptr[written])
    literals, heads = program.body_literals[:body_end], program.head_indices[:head_end]
    used = np.concatenate((heads, np.where(literals < 0, ~literals, literals)))
    named = int(np.argmax(np.append(auxiliary_atoms(program), True)))
    for M in dict.fromkeys((int(used.max(initial=-1)) + 1, named)):
        found = replace(
            program,
            atoms=program.atoms[:M],
            body_indptr=program.body_indptr[: written + 1],
            body_literals=literals,
            head_indptr=program.head_indptr[: written + 1],
            head_indices=heads,
            labels=program.labels[:written] if any(program.labels[:written]) else (),
        )
        try:
            if used.max(initial=-1) < M and compile_counts(found) == program:
                return found
        except ProgramError:  # with rules for its counts it would not be stratified
            break
    return program
