"""The candidate rules where some labels are wrong: bodies scored one by one.

The targets are read from the labels. A body that covers more positive than negative examples saves
bits of the description; the best of each length become candidates, and the most promising grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from latentgamma.relational.bodies import BodySearch, Examples
from latentgamma.relational.budget import ROWS_OF_A_BODY, Budget, OutOfBudget
from latentgamma.relational.clauses import Body, Clause, canonical, clause_bits
from latentgamma.relational.instances import Candidate, TooManyRows, instances
from latentgamma.relational.invention import Definition, definitions
from latentgamma.relational.problem import Problem, Target
from latentgamma.relational.relations import Bindings, Relation, decode
from latentgamma.relational.search import SearchOptions, most_variables

#: The share of the time that may be spent on bodies.
_BODY_SHARE = 0.45
#: Bodies that grow at each level.
_BEAM = 120
#: Of each number of literals, the recursive and the other clauses that are candidates.
_OF_EACH_LENGTH = 20
#: The same for clauses of one or two literals.
_SHORT_ONES = 40
#: Short clauses without recursion that are candidates whatever they gain.
_BASES = 30
#: Clauses with an invented predicate that are candidates, and those that grow.
_INVENTED, _INVENTED_GROW = 60, 12
#: Instances of one candidate, and literals of all of them.
_MOST_INSTANCES = 20_000
_MOST_LITERALS = 500_000
#: Positive examples that bodies are scored on, and a quarter of the negative ones.
_MOST_EXAMPLES = 600
#: Bodies of three literals are always scored; longer ones as long as the rows so far are below this.
_MOST_ROWS = 40_000_000


@dataclass(frozen=True)
class LabelCost:
    """The description length of wrong labels.

    Attributes:
        labels: their number.
        noise: the share of wrong ones; None if it is estimated.
    """

    labels: int
    noise: float | None

    def bits(self, wrong: np.ndarray) -> np.ndarray:
        """Return the bits for these numbers of wrong labels."""
        if self.noise is not None:
            right = -math.log2(1 - self.noise)
            return np.asarray(wrong * -math.log2(self.noise) + (self.labels - wrong) * right)
        n = self.labels
        ways = [
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in wrong.tolist()
        ]
        return np.array(ways) / math.log(2) + math.log2(n + 1)

    def weight(self, positive: int) -> float:
        """Return the bits that one more right label saves."""
        share = self.noise if self.noise is not None else min(0.25, positive / (2 * self.labels))
        share = max(share, 0.5 / self.labels)
        return math.log2((1 - share) / share)


@dataclass(order=True)
class _Scored:
    gain: float
    clause: Clause = field(compare=False)


class NoisyCandidates:
    """The candidate rules of all targets, in rounds of longer bodies.

    Args:
        problem: the examples.
        options: the limits.
        cost: of wrong labels.
        budget: of work and time.

    Attributes:
        relations: all relations by number, with the invented ones.
        definitions: the invented predicates by number.
        literals: bodies of up to so many literals were scored.
    """

    def __init__(
        self, problem: Problem, options: SearchOptions, cost: LabelCost, budget: Budget
    ) -> None:
        self.relations = list(problem.relations)
        self.definitions: dict[int, Definition] = {}
        self.literals = 0
        self._problem, self._options, self._budget = problem, options, budget
        self._growth = budget.part(share=_BODY_SHARE)
        self._learned = [target.relation for target in problem.targets]
        self._background = [r for r in range(len(self.relations)) if r not in self._learned]
        recursive = options.recursive and problem.lists_every_tuple
        allowed = [*self._background, *self._learned] if recursive else self._background
        self._predicates = len(allowed)
        self._bodies = [
            _Bodies(problem, self._seeker(target, allowed), cost, options, len(allowed))
            for target in problem.targets
        ]
        self._invented = self._with_invented(cost) if options.invent else []

    def rounds(self) -> Iterator[list[Candidate]]:
        """Return candidates, each time with longer bodies; the first time of several lengths."""
        while self.literals < self._options.max_body:
            self.literals += 1
            for bodies in self._bodies:
                bodies.grow(self.literals, self._growth)
            more = any(bodies.frontier for bodies in self._bodies) and not self._growth.over
            few = sum(bodies.rows for bodies in self._bodies) < _MOST_ROWS
            if more and (self.literals < 3 or few) and self.literals < self._options.max_body:
                continue
            clauses = [clause for bodies in self._bodies for clause in bodies.best()]
            yield self._candidates([*clauses, *self._invented])
            if not more:
                return

    def _seeker(self, target: Target, allowed: Sequence[int]) -> BodySearch:
        examples = Examples.of(
            self._problem, target, _MOST_EXAMPLES, self._options.seed, unlabelled=False
        )
        return BodySearch(
            self._problem,
            target,
            self.relations,
            allowed,
            self._learned,
            examples,
            sorted(self.definitions),
        )

    def _with_invented(self, cost: LabelCost) -> list[Clause]:
        """Return the best clauses of up to two literals with an invented predicate."""
        made = definitions(
            self._problem, self.relations, self._background, len(self.relations), self._growth
        )
        for one in made:
            self.relations.append(one.relation)
            self.definitions[one.number] = one
        found: list[_Scored] = []
        for target in self._problem.targets:
            seeker = self._seeker(target, sorted(self.definitions))
            bodies = _Bodies(
                self._problem, seeker, cost, self._options, self._predicates, self.definitions
            )
            bodies.grow(1, self._growth)
            bodies.frontier.sort(key=lambda entry: -entry[0])
            del bodies.frontier[_INVENTED_GROW:]
            seeker.allow([*self._background, *sorted(self.definitions)])
            bodies.grow(2, self._growth)
            found += sorted(bodies.found, reverse=True)[:_INVENTED]
        return [one.clause for one in found]

    def _candidates(self, clauses: Sequence[Clause]) -> list[Candidate]:
        """Return the clauses with all their instances, whatever the labels say about the targets."""
        problem = self._problem
        full = list(self.relations)
        for target in problem.targets if problem.lists_every_tuple else ():
            codes = problem.every_tuple(target)
            rows = decode(codes, len(problem.constants), target.arity)
            full[target.relation] = Relation(
                target.name, rows, len(problem.constants), target.types
            )
        targets = {target.relation: target for target in problem.targets}
        by_key: dict[tuple[object, ...], Candidate] = {}
        literals = 0
        learned = set(self._learned)
        lengths = {clause: clause_bits(clause, self._predicates) for clause in clauses}
        for clause in sorted(lengths, key=lambda one: (one.uses(learned), lengths[one])):
            bits = lengths[clause]
            target = targets[clause.head]
            try:
                one = instances(
                    clause, bits, problem, target, full, learned, self._budget, noisy=True
                )
            except TooManyRows:
                continue
            except OutOfBudget:
                break
            if one is None or len(one.heads) > _MOST_INSTANCES:
                continue
            one.definitions = tuple(sorted({p for p, _ in clause.body if p in self.definitions}))
            known = by_key.get(one.key())
            if known is not None:
                if bits < known.bits:
                    one.variants = [known.clause, *known.variants]
                    by_key[one.key()] = one
                else:
                    known.variants.append(clause)
                continue
            literals += len(one.heads) * (2 + len(one.bodies))
            if literals > _MOST_LITERALS:
                literals -= len(one.heads) * (2 + len(one.bodies))
                continue
            by_key[one.key()] = one
        return list(by_key.values())


class _Bodies:
    """The scored bodies of one target.

    Attributes:
        found: the clauses so far.
        frontier: the bodies that grow, with their promise.
        rows: of bindings that were looked at.
    """

    def __init__(
        self,
        problem: Problem,
        seeker: BodySearch,
        cost: LabelCost,
        options: SearchOptions,
        predicates: int,
        definitions: Mapping[int, Definition] | None = None,
    ) -> None:
        self.found: list[_Scored] = []
        self.frontier: list[tuple[float, Body]] = [(0.0, ())]
        self.rows = 0
        self._seeker, self._options, self._predicates = seeker, options, predicates
        self._bases: list[_Scored] = []
        self._seen: set[Body] = set()
        positive, sampled = len(seeker.target.positive), int(seeker.examples.positive.sum())
        self._weight = cost.weight(positive)
        # Positive and negative examples for each one that was sampled.
        negative = problem.label_count(seeker.target) - positive
        self._positive = positive / max(1, sampled)
        self._negative = negative / max(1, len(seeker.examples.codes) - sampled)
        self._definitions = definitions or {}
        self._widest = max(relation.arity for relation in seeker.relations)

    def grow(self, level: int, budget: Budget) -> None:
        """Score the bodies with one more literal; when the budget is used up, those so far count."""
        seeker = self._seeker
        limit = most_variables(
            level, seeker.target.arity, self._widest, self._options.max_variables
        )
        grown: list[tuple[float, Body]] = []
        try:
            for _, parent in self.frontier:
                table = seeker.table(parent, budget)
                if table is not None:
                    self._extend(parent, table, limit, grown, budget)
        except OutOfBudget:
            pass
        grown.sort(key=lambda entry: -entry[0])
        self.frontier = grown[:_BEAM]

    def _extend(
        self,
        parent: Body,
        table: Bindings,
        variables: int,
        grown: list[tuple[float, Body]],
        budget: Budget,
    ) -> None:
        seeker, arity = self._seeker, self._seeker.target.arity
        types = seeker.variable_types(parent)
        bound = {v for _, literal in parent for v in literal}
        for number, literal in seeker.literals_for(parent, types, variables):
            self.rows += ROWS_OF_A_BODY
            body = canonical((*parent, (number, literal)), arity)
            if body in self._seen:
                continue
            budget.spend(ROWS_OF_A_BODY + len(table.truth))
            self.rows += len(table.truth)
            self._seen.add(body)
            truth = seeker.truth(number, literal, table) > 0
            covered = np.zeros(len(seeker.examples.codes), bool)
            covered[table.example[truth]] = True
            complete = set(range(arity)) <= bound | set(literal)
            promise = self._score(body, covered, complete=complete)
            if promise is not None:
                grown.append((promise, (*parent, (number, literal))))

    def _score(self, body: Body, covered: np.ndarray, *, complete: bool) -> float | None:
        """Keep a clause that has every variable of its head; return the promise of its body."""
        seeker = self._seeker
        right = self._positive * int((covered & seeker.examples.positive).sum())
        wrong = self._negative * int((covered & ~seeker.examples.positive).sum())
        clause = Clause(seeker.target.relation, seeker.target.arity, body)
        bits = clause_bits(clause, self._predicates)
        invented = {p for p, _ in body if p in self._definitions}
        bits += sum(self._definitions[p].relation.bits for p in invented)
        if complete and right + wrong:
            one = _Scored(self._weight * (right - wrong) - bits, clause)
            # A base case may have a wrong label.
            (self.found if right else self._bases).append(one)
        if not right or (self._weight * right <= bits and len(body) > 1):
            return None
        if not _linked(body):  # with a literal that links its parts, it grows from one of them
            return None
        return self._weight * right * (0.3 + right / (right + wrong)) - bits

    def best(self) -> list[Clause]:
        """Return the clauses that may be worth their bits."""
        recursive = self._seeker.recursive
        # A long clause can gain more than the short one that the program needs.
        groups: dict[tuple[int, bool], list[_Scored]] = {}
        for one in sorted(self.found, reverse=True):
            key = (len(one.clause.body), one.clause.uses(recursive))
            groups.setdefault(key, []).append(one)
        chosen = [
            one
            for (literals, _), group in groups.items()
            for one in group[: _SHORT_ONES if literals <= 2 else _OF_EACH_LENGTH]
        ]
        bases = [one for one in self.found if not one.clause.uses(recursive)] + self._bases
        bases.sort(key=lambda one: clause_bits(one.clause, self._predicates))
        return list(dict.fromkeys(one.clause for one in [*chosen, *bases[:_BASES]]))


def _linked(body: Body) -> bool:
    """Return whether the literals are linked by common variables."""
    linked, left = set(body[0][1]), list(body[1:])
    while left:
        near = [literal for literal in left if linked & set(literal[1])]
        if not near:
            return False
        left = [literal for literal in left if not linked & set(literal[1])]
        linked.update(v for _, literal in near for v in literal)
    return True
