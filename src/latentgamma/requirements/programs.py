"""Requirements as stratified programs: rules with one head, and clamping one label after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from latentgamma.errors import ProgramError
from latentgamma.program.graph import Csr
from latentgamma.program.program import Program, atoms_of_literals
from latentgamma.requirements.report import signed_clauses
from latentgamma.requirements.requirements import Requirements


@dataclass(frozen=True, eq=False)
class LabelProgram:
    """A program, and its atoms that are fed with, and read as, the labels in their order."""

    program: Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


# ---- Closure: every clause is a rule


def heads_of(req: Requirements) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return where in `literals` the head of each clause is that makes it a rule, or −1.

    It is the one head that was written, or else the one positive literal.
    """
    positive = req.literals >= 0
    starts = req.indptr[:-1]
    counts = np.add.reduceat(positive, starts) if len(req) else np.zeros(0, np.int64)
    row = Csr(req.indptr, req.literals).owner
    only = np.full(len(req), -1, np.int64)
    only[row[positive]] = np.flatnonzero(positive)
    written = (req.heads == 1) & positive[starts] if len(req) else np.zeros(0, np.bool_)
    return np.where(written, starts, np.where(counts == 1, only, -1))


def rule_program(req: Requirements) -> LabelProgram | None:
    """Return the clauses as the rules of a stratified program over the labels, if they are that."""
    heads = heads_of(req)
    if np.any(heads < 0):
        return None
    in_body = np.ones(len(req.literals), np.bool_)
    in_body[heads] = False
    bodies = Csr(req.indptr, req.literals).keep(in_body)
    try:
        program = Program.from_arrays(
            bodies.indptr,
            atoms_of_literals(bodies.indices),
            req.literals[heads],
            body_negated=bodies.indices >= 0,
            atoms=req.labels,
        )
    except ProgramError:  # a label depends on its own negation
        return None
    every = tuple(range(len(req.labels)))
    return LabelProgram(program, every, every)


# ---- Strata: labels are eliminated by resolution, the last first

#: Of a clause of at most this many literals, all parts are looked up.
_FEW_LITERALS = 6
#: Comparisons of two clauses that resolution may take, for each literal of the budget.
_COMPARED_PER_LITERAL = 100


def bounds(
    req: Requirements, order: Sequence[int], budget: int
) -> dict[int, list[frozenset[int]]] | None:
    """Return for each label the clauses that bound it by labels before it in the order.

    A label is eliminated by resolving every clause that has it with every one that has its
    negation. So if the labels before satisfy what is left, some value of it satisfies all its
    clauses. Literals are ±(label + 1). None beyond the budget of literals.
    """
    given = (frozenset(clause) for clause in signed_clauses(req))
    clauses = _Clauses(given, _COMPARED_PER_LITERAL * budget)
    found: dict[int, list[frozenset[int]]] = {}
    size = 0
    for label in reversed(order):
        variable = label + 1
        above, below = (list(clauses.having[x]) for x in (variable, -variable))
        found[label] = sorted([*above, *below], key=sorted)
        size += sum(map(len, found[label]))
        size += sum(len(a) + len(b) for a in above for b in below) // 64
        if size > budget or len(above) * len(below) > budget:
            return None
        for clause in (*above, *below):
            clauses.remove(clause)
        clauses.add({(a | b) - {variable, -variable} for a in above for b in below})
        if clauses.compared > clauses.most_compared:
            return None
        if frozenset() in clauses.all:
            raise ProgramError("no assignment of the labels satisfies the requirements")
    return found


class _Clauses:
    """A set of clauses none of which contains another one, and those that have each literal."""

    def __init__(self, clauses: Iterable[frozenset[int]], most_compared: int) -> None:
        self.all: set[frozenset[int]] = set()
        self.having: defaultdict[int, set[frozenset[int]]] = defaultdict(set)
        self.least: defaultdict[int, set[frozenset[int]]] = defaultdict(set)  # each clause once
        self.compared, self.most_compared = 0, most_compared
        self.add(set(clauses))

    def add(self, clauses: set[frozenset[int]]) -> None:
        """Add those that are not always true and contain no other one, and remove what they imply.

        It stops early if that takes too many comparisons.
        """
        for clause in sorted(clauses, key=len):
            if self.compared > self.most_compared:
                return
            if any(-x in clause for x in clause) or self._implies(clause):
                continue
            rarest = min((self.having[x] for x in clause), key=len, default=self.all)
            for other in [other for other in rarest if clause < other]:
                self.remove(other)
            self.compared += len(rarest)
            self.all.add(clause)
            if clause:
                self.least[min(clause)].add(clause)
            for x in clause:
                self.having[x].add(clause)

    def remove(self, clause: frozenset[int]) -> None:
        self.all.discard(clause)
        self.least[min(clause)].discard(clause)
        for x in clause:
            self.having[x].discard(clause)

    def _implies(self, clause: frozenset[int]) -> bool:
        """Return whether a clause contains one of these."""
        if len(clause) > _FEW_LITERALS:
            self.compared += sum(len(self.least[x]) for x in clause)
            return any(other <= clause for x in clause for other in self.least[x])
        parts = (combinations(clause, k) for k in range(len(clause) + 1))
        return any(frozenset(part) in self.all for some in parts for part in some)


def clamping_program(req: Requirements, order: Sequence[int], budget: int) -> LabelProgram | None:
    """Return the program that clamps each label between bounds by the labels before it.

    Of label a: `a :- body.` for the clauses that have a, `blocked :- body.` for those that have its
    negation, and `a :- input, not blocked.`
    """
    found = bounds(req, order, budget)
    if found is None:
        return None
    L = len(req.labels)
    rules: list[tuple[int, list[int]]] = []  # head, body literals: atom i or ~i
    inputs, atoms = list(range(L)), [f"label {i}" for i in range(L)]

    def new(name: str) -> int:
        atoms.append(name)
        return len(atoms) - 1

    for label in order:
        upper = [c for c in found[label] if -(label + 1) in c]
        if upper:
            inputs[label], blocked = new(f"input {label}"), new(f"blocked {label}")
            rules.append((label, [inputs[label], ~blocked]))
        for clause in found[label]:
            # The rest of the clause is false: a literal ±(i + 1) there is negated here.
            body = [-x - 1 if x < 0 else ~(x - 1) for x in sorted(clause) if abs(x) != label + 1]
            rules.append((blocked if -(label + 1) in clause else label, body))
    bodies = Csr.from_lists(body for _, body in rules)
    program = Program.from_arrays(
        bodies.indptr,
        atoms_of_literals(bodies.indices),
        np.array([head for head, _ in rules], np.int32),
        body_negated=bodies.indices < 0,
        atoms=atoms,
    )
    return LabelProgram(program, tuple(inputs), tuple(range(L)))
