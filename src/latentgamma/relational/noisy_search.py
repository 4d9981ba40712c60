"""The search where some labels are wrong: the program with the shortest description of the labels.

The description is that of the rules and of the labels that they get wrong. Bodies are scored one
by one with the targets read from the labels; the best become candidates. Sets of candidates are
then scored by their least models, all pairs first, since a base case gains little without the
recursive rule, and improved by adding, dropping and exchanging one rule at a time.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from latentgamma._learning.wording import quantity
from latentgamma.relational.bodies import BodySearch, Examples
from latentgamma.relational.clauses import Body, Clause, canonical, clause_bits
from latentgamma.relational.instances import Candidate, Hypotheses, instances
from latentgamma.relational.problem import Problem
from latentgamma.relational.relations import Relation, decode
from latentgamma.relational.search import Found, Report, SearchOptions, most_variables
from latentgamma.relational.selection import Choice

#: Bodies that grow at each level, and candidates that are compared.
_BEAM = 250
_MOST_CANDIDATES = 200
#: Short clauses without recursion that are candidates whatever they gain.
_BASES = 30
#: Instances of one candidate, and of all of them.
_MOST_INSTANCES = 60_000
_MOST_LITERALS = 1_200_000
#: Sets of candidates that are improved, and rounds of it.
_KEPT_SETS = 12
_MOST_ROUNDS = 12
#: Examples of each kind that bodies are scored on.
_MOST_EXAMPLES = 6_000
#: Bits for each invented predicate above the limit.
_EXTRA_BITS = 1e6
#: Alternatives may be longer by so many bits.
_SLACK = 8.0


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


class WrongLabelCost(Protocol):
    """The description length of wrong labels."""

    def bits(self, wrong: np.ndarray) -> np.ndarray:
        """Return the bits for these numbers of wrong labels."""


@dataclass(order=True)
class _Scored:
    gain: float
    clause: Clause = field(compare=False)


def noisy_search(
    problem: Problem,
    options: SearchOptions,
    noise: float | None,
    deadline: float,
    report: Report,
) -> tuple[Found, float]:
    """Return the program with the shortest description, and the share of labels it gets wrong."""
    found = Found(relations=list(problem.relations))
    labels = sum(problem.label_count(target) for target in problem.targets)
    cost = LabelCost(labels, noise)
    candidates = noisy_candidates(problem, options, cost, deadline, report)
    if not candidates:
        found.notes.append("no rule covers a positive example")
        return found, 0.0
    hypotheses = Hypotheses(problem, candidates)
    scorer = SetScorer(hypotheses, cost, {}, 0)
    ranked = scorer.search(deadline)
    best_bits, best = ranked[0]
    wrong = scorer.wrong([best])[0]
    report(f"sets of {quantity(len(candidates), 'candidate')}", len(candidates), 1 - wrong / labels)
    empty = float(scorer.total([()])[0])
    found.candidates = candidates
    if not best or best_bits >= empty:
        found.notes.append("no program describes the labels in fewer bits than a list of them")
        return found, 0.0
    found.choices = [
        Choice(chosen, bits, False)
        for bits, chosen in ranked[: 4 * options.alternatives + 1]
        if bits <= best_bits + _SLACK and chosen
    ]
    return found, wrong / labels


def noisy_candidates(
    problem: Problem, options: SearchOptions, cost: LabelCost, deadline: float, report: Report
) -> list[Candidate]:
    """Return the rules that may be worth their bits, for every target."""
    relations = list(problem.relations)
    learned = [target.relation for target in problem.targets]
    background = [r for r in range(len(relations)) if r not in learned]
    recursive = options.recursive and problem.lists_every_tuple
    allowed = [*background, *learned] if recursive else background
    clauses: list[Clause] = []
    middle = time.process_time() + 0.45 * (deadline - time.process_time())
    for target in problem.targets:
        examples = Examples.of(problem, target, _MOST_EXAMPLES, options.seed)
        seeker = BodySearch(problem, target, relations, allowed, learned, examples)
        scored = _scored_bodies(seeker, cost, options, len(allowed), middle)
        clauses += [one.clause for one in scored]
        report(f"bodies for {target.name}", len(clauses), 0.0)
    return _candidates(problem, clauses, relations, learned, len(allowed))


def _scored_bodies(
    seeker: BodySearch, cost: LabelCost, options: SearchOptions, predicates: int, deadline: float
) -> list[_Scored]:
    """Return the clauses that may be worth their bits, the best first."""
    arity = seeker.target.arity
    head = set(range(arity))
    positives = int(seeker.examples.positive.sum())
    weight = cost.weight(positives)
    frontier: list[tuple[float, Body]] = [(0.0, ())]
    found: list[_Scored] = []
    bases: list[_Scored] = []
    seen: set[Body] = set()
    widest = max(relation.arity for relation in seeker.relations)
    for level in range(1, options.max_body + 1):
        limit = most_variables(level, arity, widest, options.max_variables)
        grown: list[tuple[float, Body]] = []
        for _, parent in frontier:
            if time.process_time() > deadline:
                break
            table = seeker.table(parent)
            if table is None:
                continue
            types = seeker.variable_types(parent)
            bound = {v for _, literal in parent for v in literal}
            for number, literal in seeker.literals_for(parent, types, limit):
                body = canonical((*parent, (number, literal)), arity)
                if body in seen:
                    continue
                seen.add(body)
                truth = seeker.truth(number, literal, table) > 0
                covered = np.zeros(len(seeker.examples.codes), bool)
                covered[table.example[truth]] = True
                right = int((covered & seeker.examples.positive).sum())
                wrong = int(covered.sum()) - right
                clause = Clause(seeker.target.relation, arity, body)
                bits = clause_bits(clause, predicates)
                if head <= bound | set(literal) and right + wrong:
                    one = _Scored(weight * (right - wrong) - bits, clause)
                    # A base case may have a wrong label.
                    (found if right else bases).append(one)
                if not right:
                    continue
                share = right / (right + wrong)
                hope = weight * right * (0.3 + share) - bits
                if weight * right > bits or level == 1:
                    grown.append((hope, (*parent, (number, literal))))
        grown.sort(key=lambda entry: -entry[0])
        frontier = grown[:_BEAM]
        if not frontier:
            break
    found.sort(reverse=True)
    bases += [one for one in found if not one.clause.uses(seeker.recursive)]
    short = sorted(bases, key=lambda one: clause_bits(one.clause, predicates))[:_BASES]
    chosen = {one.clause: one for one in [*found[:_MOST_CANDIDATES], *short]}
    return sorted(chosen.values(), reverse=True)


def _candidates(
    problem: Problem,
    clauses: Sequence[Clause],
    relations: Sequence[Relation],
    learned: Iterable[int],
    predicates: int,
) -> list[Candidate]:
    """Return the clauses with all their instances, whatever the labels say about the targets."""
    full = list(relations)
    for target in problem.targets if problem.lists_every_tuple else ():
        codes = problem.every_tuple(target)
        rows = decode(codes, len(problem.constants), target.arity)
        full[target.relation] = Relation(target.name, rows, len(problem.constants), target.types)
    targets = {target.relation: target for target in problem.targets}
    by_key: dict[tuple[object, ...], Candidate] = {}
    literals = 0
    recursive = set(learned)
    for clause in sorted(clauses, key=lambda clause: clause.uses(recursive)):
        bits = clause_bits(clause, predicates)
        one = instances(clause, bits, problem, targets[clause.head], full, learned, noisy=True)
        if one is None or len(one.heads) > _MOST_INSTANCES:
            continue
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


class SetScorer:
    """The description lengths of sets of candidates."""

    def __init__(
        self,
        hypotheses: Hypotheses,
        cost: WrongLabelCost,
        definitions: Mapping[int, float],
        most_invented: int,
    ) -> None:
        self._hypotheses, self._cost = hypotheses, cost
        self._definitions, self._most_invented = definitions, most_invented
        self._rules = np.array([one.bits for one in hypotheses.candidates])
        self._negative = np.setdiff1d(hypotheses.negative, hypotheses.given)
        self._known: dict[tuple[int, ...], tuple[float, int]] = {}

    def wrong(self, sets: Sequence[tuple[int, ...]]) -> list[int]:
        """Return how many labels each set gets wrong."""
        self.total(sets)
        return [self._known[chosen][1] for chosen in sets]

    def total(self, sets: Sequence[tuple[int, ...]]) -> np.ndarray:
        """Return the description length of each set: its rules and its wrong labels."""
        new = [chosen for chosen in dict.fromkeys(sets) if chosen not in self._known]
        step = max(64, 20_000_000 // max(1, self._hypotheses.program.M))
        for start in range(0, len(new), step):
            part = new[start : start + step]
            models = self._hypotheses.models(part)
            missed = (~models[:, self._hypotheses.positive]).sum(axis=1)
            wrong = missed + models[:, self._negative].sum(axis=1)
            bits = self._cost.bits(wrong)
            for chosen, label_bits, errors in zip(part, bits, wrong, strict=True):
                rules = float(self._rules[list(chosen)].sum()) + self._invented_bits(chosen)
                self._known[chosen] = (rules + float(label_bits), int(errors))
        return np.array([self._known[chosen][0] for chosen in sets])

    def _invented_bits(self, chosen: tuple[int, ...]) -> float:
        """Return the length of the definitions that a set uses; more than allowed cost much."""
        if not self._definitions:
            return 0.0
        used = {d for n in chosen for d in self._hypotheses.candidates[n].definitions}
        extra = max(0, len(used) - self._most_invented)
        return sum(self._definitions[d] for d in used) + _EXTRA_BITS * extra

    def search(self, deadline: float) -> list[tuple[float, tuple[int, ...]]]:
        """Return the sets of candidates that were scored, the shortest descriptions first."""
        count = len(self._rules)
        self.total([(), *((n,) for n in range(count))])
        pairs = list(itertools.combinations(range(count), 2))
        for start in range(0, len(pairs), 2048):
            if time.process_time() > deadline:
                break
            self.total(pairs[start : start + 2048])
        beam = self._best(_KEPT_SETS)
        for _ in range(_MOST_ROUNDS):
            if time.process_time() > deadline:
                break
            moves = [move for _, chosen in beam for move in _moves(chosen, count)]
            for start in range(0, len(moves), 2048):
                if time.process_time() > deadline:
                    break
                self.total(moves[start : start + 2048])
            better = self._best(_KEPT_SETS)
            if better == beam:
                break
            beam = better
        return self._best(100)

    def _best(self, most: int) -> list[tuple[float, tuple[int, ...]]]:
        ranked = sorted((bits, chosen) for chosen, (bits, _) in self._known.items())
        return ranked[:most]


def _moves(chosen: tuple[int, ...], count: int) -> Iterable[tuple[int, ...]]:
    """Return the sets with one candidate more, less, or exchanged."""
    inside = set(chosen)
    for drop in chosen:
        yield tuple(sorted(inside - {drop}))
    for add in range(count):
        if add in inside:
            continue
        yield tuple(sorted(inside | {add}))
        for drop in chosen:
            yield tuple(sorted((inside | {add}) - {drop}))
