"""The ground instances of candidate clauses, and the program in which each clause can be used.

Each ground rule gets one more body atom `use(c)` for its clause: a set of clauses is a fact set,
and its least model is a closure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from latentgamma._logic.closures import closures
from latentgamma._program.program import Program
from latentgamma.relational.bodies import MOST_ROWS
from latentgamma.relational.budget import ROWS_OF_A_BODY, Budget
from latentgamma.relational.clauses import Body, Clause
from latentgamma.relational.problem import Problem, Target
from latentgamma.relational.relations import (
    FACT,
    Bindings,
    Ints,
    Relation,
    Truth,
    decode,
    encode,
    join,
)


@dataclass
class Candidate:
    """A clause with its ground instances.

    Attributes:
        clause: the clause.
        bits: its description length.
        heads: the codes of the heads of its instances.
        bodies: for each literal of a learned predicate, the relation and the codes.
        definitions: the invented predicates that it uses.
        variants: clauses of the same length with the same instances.
    """

    clause: Clause
    bits: float
    heads: Ints
    bodies: tuple[tuple[int, Ints], ...]
    definitions: tuple[int, ...] = ()
    variants: list[Clause] = field(default_factory=list)

    @property
    def recursive(self) -> bool:
        """Whether the body uses a predicate that is learned."""
        return bool(self.bodies)

    def key(self) -> tuple[object, ...]:
        """Return a value that is equal for clauses with the same instances."""
        parts = (r for _, codes in self.bodies for r in [codes.tobytes()])
        numbers = tuple(number for number, _ in self.bodies)
        return (self.clause.head, self.definitions, self.heads.tobytes(), numbers, *parts)


class TooManyRows(Exception):  # noqa: N818 - never leaves the package
    """A body has more instances than are looked at."""


def body_bindings(
    body: Body,
    keep: Sequence[int],
    relations: Sequence[Relation],
    budget: Budget,
    most_rows: int = MOST_ROWS,
) -> tuple[list[Ints], Truth]:
    """Return the distinct values of some variables for which a body holds.

    Raises:
        TooManyRows: there are more than `most_rows` on the way.
        OutOfBudget: the work or the time is used up.
    """
    table = Bindings((), np.full(1, FACT, np.uint8), np.zeros(1, np.int64))
    left = sorted(body, key=lambda literal: len(relations[literal[0]].rows))
    known: set[int] = set()
    while left:
        linked = [literal for literal in left if known & set(literal[1])] or left
        # A literal without new variables only removes rows.
        chosen = min(linked, key=lambda literal: len(set(literal[1]) - known))
        left.remove(chosen)
        budget.spend(ROWS_OF_A_BODY + len(table.truth))
        joined = join(relations[chosen[0]], chosen[1], table, most_rows)
        if joined is None:
            raise TooManyRows
        budget.count(len(joined.truth))
        known |= set(chosen[1])
        needed = set(keep) | {v for _, literal in left for v in literal}
        table = _distinct(joined, needed, relations[chosen[0]].constants)
    columns = [table.columns[v] for v in keep]
    return [column for column in columns if column is not None], table.truth


def _distinct(table: Bindings, needed: set[int], constants: int) -> Bindings:
    """Return the table without the variables that are no longer needed."""
    kept = [v for v, c in enumerate(table.columns) if c is not None and v in needed]
    if len(kept) == sum(column is not None for column in table.columns):
        return table
    columns = [column for v in kept if (column := table.columns[v]) is not None]
    if constants ** len(kept) * 4 >= 2**62:
        return table
    codes = encode([*columns], constants, len(table.truth)) * 4 + (3 - table.truth.astype(np.int64))
    codes = np.unique(codes)
    rows, first = np.unique(codes // 4, return_index=True)  # the highest truth comes first
    truth = (3 - codes[first] % 4).astype(np.uint8)
    values = decode(rows, constants, len(kept))
    result: list[Ints | None] = [None] * len(table.columns)
    for place, variable in enumerate(kept):
        result[variable] = values[:, place]
    return Bindings(tuple(result), truth, np.zeros(len(truth), np.int64))


def instances(
    clause: Clause,
    bits: float,
    problem: Problem,
    target: Target,
    relations: Sequence[Relation],
    learned: Iterable[int],
    budget: Budget,
    *,
    noisy: bool = False,
) -> Candidate | None:
    """Return the clause with its instances; None if it derives a negative example, or nothing.

    Instances whose head is in their own body, or is given, derive nothing and are left out.

    Raises:
        TooManyRows: there are too many instances.
        OutOfBudget: the work or the time is used up.
    """
    learned = set(learned)
    literals = [literal for literal in clause.body if literal[0] in learned]
    head = list(range(clause.arity))
    keep = sorted({*head, *(v for _, literal in literals for v in literal)})
    columns, truth = body_bindings(clause.body, keep, relations, budget)
    at = {variable: columns[place] for place, variable in enumerate(keep)}
    n, rows = len(problem.constants), len(truth)
    heads = encode([at[v] for v in head], n, rows)
    if not noisy:
        wrong = is_negative(target, heads)
        if (truth[wrong] == FACT).any():
            return None
    bodies = [(p, encode([at[v] for v in literal], n, rows)) for p, literal in literals]
    useful = ~np.isin(heads, target.given)
    for relation, codes in bodies:
        if relation == clause.head:
            useful &= codes != heads
    stacked = np.stack([heads[useful], *(codes[useful] for _, codes in bodies)])
    stacked = np.unique(stacked, axis=1)
    if not stacked.shape[1]:
        return None
    kept = tuple((p, stacked[1 + place]) for place, (p, _) in enumerate(bodies))
    return Candidate(clause, bits, stacked[0], kept)


def is_negative(target: Target, codes: Ints) -> np.ndarray:
    """Return which of these tuples are negative examples."""
    if target.negative is not None:
        return np.isin(codes, target.negative)
    return ~(np.isin(codes, target.positive) | np.isin(codes, target.given))


class Hypotheses:
    """The program of all candidates, in which a set of clauses is a fact set.

    Attributes:
        program: the ground rules; the last atoms are `use(c)`, one for each candidate.
        positive: the atoms of the positive examples.
        negative: the atoms of negative examples that some instance derives.
        atoms: the relation and code of each atom but the last ones.
    """

    def __init__(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        self.problem = problem
        self.candidates = candidates
        codes: dict[int, list[Ints]] = {}
        for target in problem.targets:
            codes[target.relation] = [target.positive, target.given]
        for one in candidates:
            codes[one.clause.head].append(one.heads)
            for relation, values in one.bodies:
                codes[relation].append(values)
        self._codes = {r: np.unique(np.concatenate(parts)) for r, parts in codes.items()}
        self._offset: dict[int, int] = {}
        total = 0
        for relation, values in self._codes.items():
            self._offset[relation] = total
            total += len(values)
        self.use = total
        self.program = self._program(total)
        self.positive = self._ids(lambda target: target.positive)
        self.given = self._ids(lambda target: target.given)
        self.negative = np.concatenate(
            [
                self._offset[t.relation] + np.flatnonzero(is_negative(t, self._codes[t.relation]))
                for t in problem.targets
            ]
        )

    def _ids(self, of: object) -> Ints:
        return np.concatenate([self.ids(t.relation, of(t)) for t in self.problem.targets])  # type: ignore[operator]

    def ids(self, relation: int, codes: Ints) -> Ints:
        """Return the atoms of these tuples."""
        return self._offset[relation] + np.searchsorted(self._codes[relation], codes)

    def atom(self, number: int) -> tuple[Target, int]:
        """Return the target and the code of an atom."""
        for target in self.problem.targets:
            at = number - self._offset[target.relation]
            if 0 <= at < len(self._codes[target.relation]):
                return target, int(self._codes[target.relation][at])
        raise IndexError(number)

    def rules_of(self, candidate: int) -> tuple[Ints, list[Ints]]:
        """Return the heads and the body atoms of the instances of a candidate."""
        one = self.candidates[candidate]
        heads = self.ids(one.clause.head, one.heads)
        return heads, [self.ids(relation, codes) for relation, codes in one.bodies]

    def _program(self, total: int) -> Program:
        heads, parts, sizes = [], [], []
        for number in range(len(self.candidates)):
            head, bodies = self.rules_of(number)
            use = np.full(len(head), total + number)
            heads.append(head)
            parts.append(np.stack([use, *bodies], axis=1).ravel())
            sizes.append(np.full(len(head), 1 + len(bodies)))
        if not heads:
            return Program.from_arrays([0], [], [], atoms=total)
        ptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return Program.from_arrays(
            ptr,
            np.concatenate(parts),
            np.concatenate(heads),
            atoms=total + len(self.candidates),
        )

    def models(self, hypotheses: Sequence[Iterable[int]]) -> np.ndarray:
        """Return the least model of each set of candidates, shape (sets, atoms)."""
        rows = np.zeros((len(hypotheses), self.program.M), bool)
        for row, chosen in enumerate(hypotheses):
            rows[row, self.use + np.array(list(chosen), np.int64)] = True
        rows[:, self.given] = True
        return closures(self.program, rows)[:, : self.use]
