"""Candidate clauses: bodies that cover no negative example, and some other tuple.

Bodies grow by one literal at a time. A body that covers negative examples only is dropped. One that
covers positive examples only is a candidate and is not made longer, since each longer body derives
less. A tuple without a label may be needed by a recursive rule, or lead to a negative example: a
body that covers one is kept, and grows also where it is a candidate.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from latentgamma.relational.budget import ROWS_OF_A_BODY, Budget, OutOfBudget
from latentgamma.relational.clauses import Body, Clause, canonical, readable_order
from latentgamma.relational.problem import Problem, Target
from latentgamma.relational.relations import (
    FACT,
    POSSIBLE,
    Bindings,
    Ints,
    Relation,
    Truth,
    decode,
    encode,
    join,
    literal_truth,
)

#: Rows of a table of bindings; a body with more is left out, and the result says so.
MOST_ROWS = 2_000_000
#: Literals of targets in a body.
MOST_RECURSIVE = 2
#: Tables that are kept, so that bodies with the same start share its joins.
_KEPT = 48


@dataclass(frozen=True)
class Examples:
    """The tuples that bodies are tested on.

    Attributes:
        codes: of the tuples.
        positive: whether each is positive.
        negative: whether each is negative; the others have no label.
        complete: whether no tuple was left out that rules may derive.
    """

    codes: Ints
    positive: np.ndarray
    negative: np.ndarray
    complete: bool

    @staticmethod
    def of(problem: Problem, target: Target, most: int, seed: int, *, unlabelled: bool) -> Examples:
        """Return the positive and negative examples, and tuples without a label if asked for.

        Many are sampled.
        """
        rng = np.random.default_rng(seed)
        positive = target.positive
        if len(positive) > most:
            positive = np.sort(rng.choice(positive, most, replace=False))
        if target.negative is not None:
            negative = target.negative
        elif problem.tuples(target) <= 4 * most:
            known = np.union1d(target.positive, target.given)
            negative = np.setdiff1d(problem.every_tuple(target), known)
        else:
            known = np.union1d(target.positive, target.given)
            columns = [rng.choice(problem.domains[kind], 2 * most) for kind in target.types]
            negative = np.setdiff1d(encode(columns, len(problem.constants), 2 * most), known)
        if len(negative) > 4 * most:
            negative = np.sort(rng.choice(negative, 4 * most, replace=False))
        other = negative[:0]
        if unlabelled:
            other = problem.unlabelled(target)
            if len(other) > most:
                other = np.sort(rng.choice(other, most, replace=False))
        labelled = len(positive) + len(negative)
        complete = labelled == problem.label_count(target)
        if unlabelled:
            complete &= labelled + len(other) + len(target.given) == problem.tuples(target)
        kind = np.repeat([1, -1, 0], [len(positive), len(negative), len(other)])
        codes = np.concatenate([positive, negative, other])
        return Examples(codes, kind == 1, kind == -1, complete)


class BodySearch:
    """The bodies for one target, one more literal at each level.

    Args:
        problem: the examples.
        target: the relation to learn.
        relations: what bodies may use, by number.
        allowed: the numbers of the relations that bodies may use.
        recursive: the numbers of relations that count as recursive.
        examples: what bodies are tested on.
        exclusive: relations of which a body may use only one.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        relations: Sequence[Relation],
        allowed: Sequence[int],
        recursive: Iterable[int],
        examples: Examples,
        exclusive: Iterable[int] = (),
    ) -> None:
        self.target = target
        self.relations = relations
        self.recursive = frozenset(recursive)
        self.exclusive = frozenset(exclusive)
        self.examples = examples
        self.too_large = 0
        self._allowed = allowed
        rows = decode(examples.codes, len(problem.constants), target.arity)
        self._start = Bindings(
            tuple(rows.T.copy()),
            np.full(len(rows), FACT, np.uint8),
            np.arange(len(rows)),
        )
        self._tables: OrderedDict[Body, Bindings | None] = OrderedDict()
        self._seen: set[Body] = set()
        self.frontier: list[Body] = [()]
        self.literals = 0

    def allow(self, numbers: Sequence[int]) -> None:
        """Let the next literals be of these relations."""
        self._allowed = numbers

    def next_level(
        self, variables: int, budget: Budget, must_use: frozenset[int] = frozenset()
    ) -> tuple[list[Clause], bool]:
        """Return the candidates with one more literal, and whether all bodies were tried.

        Args:
            variables: the largest number of variables.
            budget: of work and time.
            must_use: predicates of which a candidate needs one.
        """
        self.literals += 1
        found: list[Clause] = []
        grown: list[Body] = []
        complete = True
        try:
            for parent in self.frontier:
                table = self.table(parent, budget)
                if table is not None:
                    self._extend(parent, table, variables, must_use, found, grown, budget)
        except OutOfBudget:
            complete = False
        self.frontier = grown
        return found, complete

    def grow(self, clauses: Iterable[Clause]) -> None:
        """Make clauses longer at the next level: they derive a negative example after all."""
        self.frontier += [tuple(readable_order(clause)) for clause in clauses]

    def _extend(
        self,
        parent: Body,
        table: Bindings,
        variables: int,
        must_use: frozenset[int],
        found: list[Clause],
        grown: list[Body],
        budget: Budget,
    ) -> None:
        positive = self.examples.positive[table.example]
        negative = self.examples.negative[table.example]
        types = self.variable_types(parent)
        bound = {v for _, literal in parent for v in literal}
        head = set(range(self.target.arity))
        for number, literal in self.literals_for(parent, types, variables):
            body = canonical((*parent, (number, literal)), self.target.arity)
            if body in self._seen:
                continue
            budget.spend(ROWS_OF_A_BODY + len(table.truth))
            truth = self.truth(number, literal, table)
            if not truth[~negative].any():
                self._seen.add(body)
                continue
            fresh = max(literal) >= len(types) if literal else False
            new_head = bool((head & set(literal)) - bound)
            # Tuples without a label are true only if some rule derives them.
            certain = number not in self.recursive or not (truth == POSSIBLE).any()
            if not fresh and not new_head and certain and np.array_equal(truth, table.truth):
                continue  # the literal excludes nothing
            self._seen.add(body)
            unsafe = bool((truth[negative] == FACT).any())
            if not unsafe and head <= bound | set(literal):
                clause = Clause(self.target.relation, self.target.arity, body)
                if not must_use or clause.uses(must_use):
                    found.append(clause)
                if not truth[~positive].any():
                    continue  # it derives positive examples only, and a longer body fewer of them
            grown.append((*parent, (number, literal)))

    def truth(self, number: int, literal: tuple[int, ...], table: Bindings) -> Truth:
        """Return the truth of each row together with one more literal, which is not the head."""
        truth = literal_truth(self.relations[number], literal, table)
        if number == self.target.relation and max(literal, default=0) < len(table.columns):
            truth[same_as_head(table, literal)] = 0
        return truth

    def literals_for(
        self, parent: Body, types: Sequence[int], variables: int
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Return the literals to add: they share a variable, and types agree."""
        used = {number for number, _ in parent}
        recursive = sum(number in self.recursive for number, _ in parent)
        for number in self._allowed:
            relation = self.relations[number]
            if number in self.recursive and recursive >= MOST_RECURSIVE:
                continue
            if number in self.exclusive and (used & self.exclusive) - {number}:
                continue
            for literal in self._arguments(relation, types, variables):
                if (number, literal) in parent:
                    continue
                if number == self.target.relation and literal == tuple(range(self.target.arity)):
                    continue
                yield number, literal

    @staticmethod
    def _arguments(
        relation: Relation, types: Sequence[int], variables: int
    ) -> Iterator[tuple[int, ...]]:
        known = len(types)
        options = []
        for kind in relation.types:
            old = [v for v, other in enumerate(types) if other == kind]
            options.append([*old, -1])
        for choice in itertools.product(*options):
            new = choice.count(-1)
            if new == len(choice) and choice:
                continue
            if known + new > variables:
                continue
            number = itertools.count(known)
            yield tuple(next(number) if v < 0 else v for v in choice)

    def variable_types(self, body: Body) -> list[int]:
        """Return the types of the variables: the head's, then those of the body in order."""
        types = dict(enumerate(self.target.types))
        for number, literal in body:
            types.update(zip(literal, self.relations[number].types, strict=True))
        return [types[v] for v in range(len(types))]

    def table(self, body: Body, budget: Budget) -> Bindings | None:
        """Return the ways in which a body can hold for the examples; None if there are too many."""
        if not body:
            return self._start
        if body in self._tables:
            self._tables.move_to_end(body)
            return self._tables[body]
        before = self.table(body[:-1], budget)
        table = None
        if before is not None:
            number, literal = body[-1]
            budget.spend(ROWS_OF_A_BODY + len(before.truth))
            table = join(self.relations[number], literal, before, MOST_ROWS)
            budget.count(0 if table is None else len(table.truth))
            if table is None:
                self.too_large += 1
            elif _repeats(table, len(before.columns)):
                table = None
            elif number == self.target.relation:
                table = _without(table, same_as_head(table, literal))
        self._tables[body] = table
        if len(self._tables) > _KEPT:
            self._tables.popitem(last=False)
        return table


def same_as_head(table: Bindings, literal: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return the rows in which a literal of the target is the head itself: they derive nothing."""
    same = np.ones(len(table.truth), bool)
    for place, variable in enumerate(literal):
        one, other = table.columns[place], table.columns[variable]
        if one is not None and other is not None:
            same &= one == other
    return same


def _without(table: Bindings, rows: npt.NDArray[np.bool_]) -> Bindings:
    if not rows.any():
        return table
    columns = tuple(column if column is None else column[~rows] for column in table.columns)
    return Bindings(columns, table.truth[~rows], table.example[~rows])


def _repeats(table: Bindings, old: int) -> bool:
    """Return whether a new variable always has the value of an older one."""
    for new in range(old, len(table.columns)):
        column = table.columns[new]
        for earlier in table.columns[:new]:
            if earlier is not None and column is not None and np.array_equal(earlier, column):
                return True
    return False
