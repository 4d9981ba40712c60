"""The candidate clauses of a search, one for each set of instances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentgamma.relational.budget import Budget, OutOfBudget
from latentgamma.relational.clauses import Clause, clause_bits
from latentgamma.relational.instances import Candidate, TooManyRows, instances
from latentgamma.relational.invention import Definition
from latentgamma.relational.problem import Problem
from latentgamma.relational.relations import Relation

#: Candidates that are compared; the shortest ones of more.
MOST_CANDIDATES = 4_000


class CandidatePool:
    """The candidates so far, one for each set of instances.

    Attributes:
        too_large: the number of clauses with too many instances, which were left out.
    """

    def __init__(
        self,
        problem: Problem,
        relations: Sequence[Relation],
        learned: Sequence[int],
        predicates: int,
    ) -> None:
        self.problem, self.relations, self.learned = problem, relations, learned
        self.predicates = predicates
        self._targets = {target.relation: target for target in problem.targets}
        self._by_key: dict[tuple[object, ...], Candidate] = {}
        self.labelled = problem.labelled
        self.definitions: dict[int, Definition] = {}
        self.too_large = 0

    @property
    def size(self) -> int:
        """The number of candidates that are compared."""
        return min(len(self._by_key), MOST_CANDIDATES)

    @property
    def cut(self) -> bool:
        """Whether there are more candidates than are compared."""
        return len(self._by_key) > MOST_CANDIDATES

    def candidates(self, budget: Budget) -> list[Candidate]:
        """Return the candidates, shortest first.

        Raises:
            OutOfBudget: the work or the time is used up.
        """
        ordered = sorted(self._by_key.values(), key=lambda one: one.bits)[:MOST_CANDIDATES]
        return _undominated(ordered, budget) if self.labelled else ordered

    def add(self, clauses: Sequence[Clause], budget: Budget) -> tuple[list[Clause], bool]:
        """Add clauses, the shortest first.

        Returns:
            Those that derive a negative example or nothing, and whether all were added.
        """
        refused: list[Clause] = []
        for clause in sorted(clauses, key=lambda c: clause_bits(c, self.predicates)):
            bits = clause_bits(clause, self.predicates)
            target = self._targets[clause.head]
            try:
                one = instances(
                    clause, bits, self.problem, target, self.relations, self.learned, budget
                )
            except OutOfBudget:
                return refused, False
            except TooManyRows:
                self.too_large += 1
                refused.append(clause)
                continue
            if one is None:
                refused.append(clause)
                continue
            needs = {p for p, _ in clause.body if p in self.definitions}
            for p in list(needs):
                needs |= set(self.definitions[p].needs)
            one.definitions = tuple(sorted(needs))
            known = self._by_key.get(one.key())
            if known is None:
                self._by_key[one.key()] = one
            elif bits < known.bits - 1e-9:
                one.variants = [known.clause, *known.variants]
                self._by_key[one.key()] = one
            else:
                known.variants.append(clause)
        return refused, True


def _undominated(candidates: list[Candidate], budget: Budget) -> list[Candidate]:
    """Return the candidates that no shorter one without recursion covers completely."""
    kept: list[Candidate] = []
    covers: dict[tuple[int, tuple[int, ...]], list[np.ndarray]] = {}
    codes = {}
    for head in {one.clause.head for one in candidates}:
        every = [one.heads for one in candidates if one.clause.head == head]
        codes[head] = np.unique(np.concatenate(every))
    for one in candidates:
        head = one.clause.head
        cover = np.zeros(len(codes[head]), bool)
        cover[np.searchsorted(codes[head], one.heads)] = True
        rivals = [c for d in {(), one.definitions} for c in covers.get((head, d), [])]
        budget.spend(len(rivals) * len(cover) // 16)  # bytes, and no lookups
        if rivals and not (cover & ~np.array(rivals)).any(axis=1).all():
            continue
        kept.append(one)
        if not one.recursive:
            covers.setdefault((head, one.definitions), []).append(cover)
    return kept
