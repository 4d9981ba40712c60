"""Learns clauses when labels may be wrong, by search or by gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from latentgamma._text import quantity
from latentgamma.relational.budget import ROWS_OF_A_BODY, Budget, OutOfBudget
from latentgamma.relational.clauses import (
    Body,
    BodySearch,
    Candidate,
    Clause,
    Examples,
    Hypotheses,
    TooManyRows,
    clause_bits,
    instances,
    set_bits,
)
from latentgamma.relational.invention import definitions, used_definitions
from latentgamma.relational.problem import Problem, Relation, Target, decode
from latentgamma.relational.search import (
    Choice,
    Found,
    Report,
    Search,
    SearchOptions,
    keep_shortest,
    longest_alternative,
    most_variables,
)

# ---- The candidate rules where some labels are wrong: bodies scored one by one
# The targets are read from the labels. A body that covers more positive than negative examples saves
# bits of the description; the best of each length become candidates, and the most promising grow.

#: The fraction of the time that may be spent on bodies.
_BODY_FRACTION = 0.45
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
#: Bits for each example that is listed, beside its arguments: a program with exceptions is the last resort.
_LISTED_BITS = 4.0
#: Bodies of three literals are always scored; longer ones as long as the rows so far are below this.
_MOST_ROWS = 40_000_000


#: The description length of examples, given a program.
ExampleCost: TypeAlias = "LabelCost | PositiveCost"


@dataclass(frozen=True)
class LabelCost:
    """The description length of wrong labels."""

    labels: int  # their number
    noise: float | None  # the fraction of wrong ones; None if it is estimated

    def bits_of(self, missed: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """Return the bits for positive examples that are not derived, and negative ones that are."""
        wrong = missed + extra
        if self.noise is not None:
            right = -math.log2(1 - self.noise)
            return np.asarray(wrong * -math.log2(self.noise) + (self.labels - wrong) * right)
        n = self.labels
        ways = [
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in wrong.tolist()
        ]
        return np.array(ways) / math.log(2) + math.log2(n + 1)

    def gains(self, positive: int) -> Callable[[float, float], float]:
        """Return what computes the bits that right and wrong labels of a body save."""
        fraction = self.noise if self.noise is not None else min(0.25, positive / (2 * self.labels))
        fraction = max(fraction, 0.5 / self.labels)
        weight = math.log2((1 - fraction) / fraction)
        return lambda right, wrong: weight * (right - wrong)


@dataclass(frozen=True)
class PositiveCost:
    """The description length of positive examples, where there are no others.

    It says which of the atoms that the program derives are the examples. Those that it does not
    derive are listed.
    """

    tuples: int  # the atoms that could be examples
    positive: int  # the number of examples

    def bits_of(self, missed: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """Return the bits for positive examples that are not derived, and other atoms that are."""
        n = self.positive
        found = [
            math.lgamma(n - m + e + 1) - math.lgamma(n - m + 1) - math.lgamma(e + 1)
            for m, e in zip(missed.tolist(), extra.tolist(), strict=True)
        ]
        listed = missed * (math.log2(self.tuples + 1) + _LISTED_BITS)
        return np.array(found) / math.log(2) + listed

    def gains(self, positive: int) -> Callable[[float, float], float]:
        """Return what computes the bits that the examples which a body covers save."""
        return lambda right, wrong: right * math.log2((self.tuples + 1) / (right + wrong + 1e-9))


class NoisyCandidates:
    """The candidate rules of all targets, in rounds of longer bodies: so far of up to `literals`."""

    def __init__(
        self, problem: Problem, options: SearchOptions, cost: ExampleCost, budget: Budget
    ) -> None:
        self.found = Found(relations=list(problem.relations))
        self.literals = 0
        self.problem, self.options, self.cost = problem, options, cost
        self._budget = budget
        self._growth = budget.part(fraction=_BODY_FRACTION)
        self.learned = [target.relation for target in problem.targets]
        everything = range(len(problem.relations))
        self._background = [r for r in everything if r not in self.learned]
        recursive = options.recursive and problem.lists_every_tuple
        allowed = [*self._background, *self.learned] if recursive else self._background
        self.predicates = len(allowed)
        self._bodies = [_Bodies(self, target, allowed) for target in problem.targets]
        self._invented = self._with_invented() if options.invent else []

    def rounds(self) -> Iterator[list[Candidate]]:
        """Return candidates, each time with longer bodies; the first time of several lengths."""
        while self.literals < self.options.max_body:
            self.literals += 1
            for bodies in self._bodies:
                bodies.grow(self.literals, self._growth)
            more = self.literals < self.options.max_body
            more = more and any(bodies.frontier for bodies in self._bodies)
            more = more and not self._growth.stops()
            few = sum(bodies.rows for bodies in self._bodies) < _MOST_ROWS
            if more and (self.literals < 3 or few):
                continue
            clauses = [clause for bodies in self._bodies for clause in bodies.best()]
            yield self._candidates([*clauses, *self._invented])
            if not more:
                return

    def _with_invented(self) -> list[Clause]:
        """Return the best clauses of up to two literals with an invented predicate."""
        self.found.define(
            definitions(self.problem, self.found.relations, self._background, self._growth)
        )
        invented = sorted(self.found.definitions)
        found: list[Clause] = []
        for target in self.problem.targets:
            bodies = _Bodies(self, target, invented)
            bodies.grow(1, self._growth)
            del bodies.frontier[_INVENTED_GROW:]
            bodies.seeker.allowed = [*self._background, *invented]
            bodies.grow(2, self._growth)
            found += bodies.by_gain()[:_INVENTED]
        return found

    def _candidates(self, clauses: Sequence[Clause]) -> list[Candidate]:
        """Return the clauses with all their instances, whatever the labels say about the targets."""
        problem = self.problem
        full = list(self.found.relations)
        for target in problem.targets if problem.lists_every_tuple else ():
            codes = problem.every_tuple(target)
            rows = decode(codes, len(problem.constants), target.arity)
            full[target.relation] = Relation(
                target.name, rows, len(problem.constants), target.types
            )
        targets = {target.relation: target for target in problem.targets}
        by_key: dict[tuple[object, ...], Candidate] = {}
        literals = 0
        learned = set(self.learned)
        lengths = {clause: clause_bits(clause, self.predicates) for clause in clauses}
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
            one.definitions = used_definitions(clause, self.found.definitions)
            size = one.literals if one.key() not in by_key else 0
            if literals + size <= _MOST_LITERALS:
                literals += size
                keep_shortest(by_key, one)
        return list(by_key.values())


class _Bodies:
    """The scored bodies of one target; `frontier` has those that grow, with their promise."""

    def __init__(self, source: NoisyCandidates, target: Target, allowed: Sequence[int]) -> None:
        self.found: list[tuple[float, Clause]] = []  # the bits that each clause saves
        self.frontier: list[tuple[float, Body]] = [(0.0, ())]
        self.rows = 0
        self._source = source
        problem, found, seed = source.problem, source.found, source.options.seed
        examples = Examples.of(problem, target, _MOST_EXAMPLES, seed, unlabelled=False)
        self.seeker = BodySearch(
            problem, target, found.relations, allowed, source.learned, examples, found.definitions
        )
        self._bases: list[Clause] = []
        positive, sampled = len(target.positive), int(examples.positive.sum())
        self._gain = source.cost.gains(positive)
        # Positive and negative examples for each one that was sampled.
        negative = problem.label_count(target) - positive
        self._positive = positive / max(1, sampled)
        self._negative = negative / max(1, len(examples.codes) - sampled)
        self._widest = max(relation.arity for relation in found.relations)

    def grow(self, level: int, budget: Budget) -> None:
        """Score the bodies with one more literal; when the budget is used up, those so far count."""
        seeker, most = self.seeker, self._source.options.max_variables
        limit = most_variables(level, seeker.target.arity, self._widest, most)
        grown: list[tuple[float, Body]] = []
        try:
            for _, parent in self.frontier:
                table = seeker.table(parent, budget)
                if table is None:
                    continue
                for number, literal, body in seeker.extensions(parent, limit):
                    rows = ROWS_OF_A_BODY + len(table.truth)
                    budget.spend(rows)
                    self.rows += rows
                    covered = np.zeros(len(seeker.examples.codes), bool)
                    covered[table.example[seeker.truth(number, literal, table) > 0]] = True
                    promise = self._score(body, covered)
                    if promise is not None:
                        grown.append((promise, (*parent, (number, literal))))
        except OutOfBudget:
            pass
        grown.sort(key=lambda entry: -entry[0])
        self.frontier = grown[:_BEAM]

    def _score(self, body: Body, covered: np.ndarray) -> float | None:
        """Keep a clause that has every variable of its head; return the promise of its body."""
        seeker = self.seeker
        bound = {v for n, literal in body if n not in seeker.tests for v in literal}
        complete = bound >= set(range(seeker.target.arity))
        right = self._positive * int((covered & seeker.examples.positive).sum())
        wrong = self._negative * int((covered & ~seeker.examples.positive).sum())
        clause = Clause(seeker.target.relation, seeker.target.arity, body)
        bits = clause_bits(clause, self._source.predicates)
        bits += sum(used_definitions(clause, self._source.found.definitions).values())
        if complete and right + wrong:
            if right:
                self.found.append((self._gain(right, wrong) - bits, clause))
            else:  # a base case may have a wrong label
                self._bases.append(clause)
        most = self._gain(right, 0.0)
        if not right or (most <= bits and len(body) > 1):
            return None
        if not _is_linked(body):  # with a literal that links its parts, it grows from one of them
            return None
        return most * (0.3 + right / (right + wrong)) - bits

    def by_gain(self) -> list[Clause]:
        """Return the clauses that cover a positive example, those that save most bits first."""
        return [clause for _, clause in sorted(self.found, key=lambda one: -one[0])]

    def best(self) -> list[Clause]:
        """Return the clauses that may be worth their bits."""
        recursive = self.seeker.recursive
        # A long clause can gain more than the short one that the program needs.
        groups: dict[tuple[int, bool], list[Clause]] = {}
        for one in self.by_gain():
            groups.setdefault((len(one.body), one.uses(recursive)), []).append(one)
        chosen = [
            one
            for (literals, _), group in groups.items()
            for one in group[: _SHORT_ONES if literals <= 2 else _OF_EACH_LENGTH]
        ]
        bases = [one for _, one in self.found if not one.uses(recursive)] + self._bases
        bases.sort(key=lambda one: clause_bits(one, self._source.predicates))
        return list(dict.fromkeys([*chosen, *bases[:_BASES]]))


def _is_linked(body: Body) -> bool:
    """Return whether the literals are linked by common variables."""
    linked, left = set(body[0][1]), list(body[1:])
    while left:
        near = [literal for literal in left if linked & set(literal[1])]
        if not near:
            return False
        left = [literal for literal in left if not linked & set(literal[1])]
        linked.update(v for _, literal in near for v in literal)
    return True


# ---- The search where some labels are wrong: the program with the shortest description of the labels
# The description is that of the rules and of the labels that they get wrong. Sets of candidates are
# scored by their least models, all pairs first, since a base case gains little without the recursive
# rule, and improved by adding, dropping and exchanging one rule at a time.

#: Sets of candidates that are improved, and rounds of it.
_KEPT_SETS = 12
_MOST_ROUNDS = 12
#: Bits for each invented predicate above the limit.
_EXTRA_BITS = 1e6
#: Alternatives may be longer by this many bits: a rule of two literals that explains one label.
NOISY_SLACK = 9.0


def noisy_search(
    problem: Problem,
    options: SearchOptions,
    noise: float | None,
    budget: Budget,
    report: Report,
    *,
    positives_only: bool = False,
    more: Sequence[Candidate] = (),
) -> tuple[Found, float]:
    """Return the program with the shortest description, and the fraction of labels it has wrong.

    Without `noise`, that fraction is estimated. With `positives_only`, negative labels say only which
    atoms are not among the examples. `more` are candidates beside those that are found.
    """
    labels = sum(problem.label_count(target) for target in problem.targets)
    positive = sum(len(target.positive) for target in problem.targets)
    cost = PositiveCost(labels, positive) if positives_only else LabelCost(labels, noise)
    source = NoisyCandidates(problem, options, cost, budget)
    found = source.found
    wrong = 0
    more = _screen([one for one in more if not one.definitions])  # the numbers of theirs may differ
    for candidates in source.rounds():
        candidates = [*candidates, *more]
        found.candidates, found.literals = candidates, source.literals
        hypotheses = Hypotheses(problem, candidates)
        scorer = SetScorer(hypotheses, cost, options.invent, budget)
        ranked = scorer.search()
        best_bits, best = ranked[0]
        wrong = scorer.wrong(best)
        report(
            f"bodies of {quantity(source.literals, 'literal')}", len(candidates), 1 - wrong / labels
        )
        listed = float(scorer.total([()])[0])
        if best and best_bits < listed:
            found.choices = [
                Choice(chosen, bits, False)
                for bits, chosen in ranked[: 4 * options.alternatives + 1]
                if bits <= best_bits + NOISY_SLACK and chosen
            ]
            return found, wrong / labels
        others = (Choice(chosen, bits - listed, False) for bits, chosen in ranked if chosen)
        found.nearest = next(others, None)
    return found, 0.0


class SetScorer:
    """The description lengths of sets of candidates."""

    def __init__(
        self, hypotheses: Hypotheses, cost: ExampleCost, most_invented: int, budget: Budget
    ) -> None:
        self._hypotheses, self._cost, self._budget = hypotheses, cost, budget
        self._most_invented = most_invented
        self._negative = np.setdiff1d(hypotheses.negative, hypotheses.given)
        self._known: dict[tuple[int, ...], tuple[float, int]] = {}

    def wrong(self, chosen: tuple[int, ...]) -> int:
        """Return how many labels a set gets wrong."""
        self.total([chosen])
        return self._known[chosen][1]

    def total(self, sets: Sequence[tuple[int, ...]]) -> np.ndarray:
        """Return the description length of each set: its rules and its wrong labels."""
        new = [chosen for chosen in dict.fromkeys(sets) if chosen not in self._known]
        step = max(64, 20_000_000 // max(1, self._hypotheses.program.M))
        for start in range(0, len(new), step):
            part = new[start : start + step]
            models = self._hypotheses.models(part)
            missed = (~models[:, self._hypotheses.positive]).sum(axis=1)
            extra = models[:, self._negative].sum(axis=1)
            wrong = missed + extra
            bits = self._cost.bits_of(missed, extra)
            for chosen, label_bits, errors in zip(part, bits, wrong, strict=True):
                candidates = [self._hypotheses.candidates[n] for n in chosen]
                invented = len({d for one in candidates for d in one.definitions})
                extra = _EXTRA_BITS * max(0, invented - self._most_invented)
                rules = set_bits(candidates) + extra
                self._known[chosen] = (rules + float(label_bits), int(errors))
        return np.array([self._known[chosen][0] for chosen in sets])

    def search(self) -> list[tuple[float, tuple[int, ...]]]:
        """Return the sets of candidates that were scored, the shortest descriptions first."""
        count = len(self._hypotheses.candidates)
        self.total([()])
        try:
            self._score([(n,) for n in range(count)])
            self._score(list(itertools.combinations(range(count), 2)))
            beam = self.ranked(_KEPT_SETS)
            for _ in range(_MOST_ROUNDS):
                self._score([move for _, chosen in beam for move in _moves(chosen, count)])
                better = self.ranked(_KEPT_SETS)
                if better == beam:
                    break
                beam = better
        except OutOfBudget:
            pass
        return self.ranked(100)

    def _score(self, sets: Sequence[tuple[int, ...]]) -> None:
        for start in range(0, len(sets), 512):
            self._budget.spend(self._hypotheses.program.R)
            self.total(sets[start : start + 512])

    def ranked(self, most: int) -> list[tuple[float, tuple[int, ...]]]:
        """Return the sets that were scored, the shortest descriptions first."""
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


# ---- The choice of rules by gradient descent on sampled sets of candidates
# Each candidate has a probability of being used. Sets of candidates are sampled, scored by their
# least models, and the log-odds move along the score-function gradient of the expected description
# length, with the mean of the other samples as the baseline. The candidates are those of the search.

#: Steps, sets sampled in each, and the step size of the log-odds.
_STEPS = 400
_SAMPLES = 96
_RATE = 0.25
#: Times to start again while no set explains the examples.
_STARTS = 8
#: The log-odds at the start, and their bounds.
_START, _BOUND = -2.0, 6.0
#: Bits for each wrong label where none is allowed.
_WRONG_BITS = 60.0
#: Candidates that take part: half of them derive most for their length, half are the shortest.
_MOST_CANDIDATES = 120
#: Sampled sets that may be alternatives.
_MOST_RANKED = 60


def gradient_search(
    problem: Problem, options: SearchOptions, noise: float | None, budget: Budget, report: Report
) -> tuple[Found, float]:
    """Return the best set of candidates that was sampled, and the fraction of labels it gets wrong.

    A `noise` of 0 is no wrong label; None is estimated.
    """
    found = Found(relations=list(problem.relations))
    labels = sum(problem.label_count(target) for target in problem.targets)
    if noise == 0:
        found = Search(problem, options, budget, report).cover()
        candidates = _screen(found.candidates)
        if found.unexplained:
            return found, 0.0
        cost = LabelCost(labels, 2.0**-_WRONG_BITS)
    else:
        cost = LabelCost(labels, noise)
        source = NoisyCandidates(problem, options, cost, budget)
        candidates = next(source.rounds(), [])
        found = source.found
    if not candidates:
        return found, 0.0
    hypotheses = Hypotheses(problem, candidates)
    scorer = SetScorer(hypotheses, cost, options.invent, budget)
    empty = float(scorer.total([()])[0])
    for start in range(_STARTS):
        best_bits, best = _train(scorer, len(candidates), [options.seed, start], budget)
        wrong = scorer.wrong(best)
        explains = bool(best) and best_bits < empty and (noise != 0 or not wrong)
        if explains or budget.stops():
            break
    report(f"sampled sets of {quantity(len(candidates), 'candidate')}", len(candidates), 1.0)
    found.candidates = list(candidates)
    if not explains:
        found.notes.append(
            "no sampled set of rules explains the examples; method 'search' compares all of them"
        )
        return found, 0.0
    found.choices = _choices(scorer, (best_bits, best), options.alternatives, clean=noise == 0)
    if options.alternatives:
        found.notes.append("alternatives are sought among the sets of rules that were sampled")
    return found, wrong / labels


def _choices(
    scorer: SetScorer, best: tuple[float, tuple[int, ...]], most: int, *, clean: bool
) -> list[Choice]:
    """Return the best set, and the next shortest of the sampled ones that do not contain another."""
    chosen = [best]
    limit = longest_alternative(best[0]) if clean else best[0] + NOISY_SLACK
    for bits, sampled in scorer.ranked(_MOST_RANKED):
        smaller = _needed_rules(scorer, (bits, sampled))
        wrong = clean and scorer.wrong(smaller[1]) > 0
        contains = any(set(one) <= set(smaller[1]) for _, one in chosen)
        if smaller[1] and not wrong and not contains and smaller[0] <= limit:
            chosen.append(smaller)
    chosen[1:] = sorted(chosen[1:])[:most]
    return [Choice(one, bits, False) for bits, one in chosen]


def _screen(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that derive most for their length, and every short one."""
    worth = sorted(candidates, key=lambda one: one.bits / len(one.heads))
    short = sorted(candidates, key=lambda one: one.bits)
    half = _MOST_CANDIDATES // 2
    kept = {id(one): one for one in [*worth[:half], *short[:half]]}
    return list(kept.values())


def _train(
    scorer: SetScorer, count: int, seed: list[int], budget: Budget
) -> tuple[float, tuple[int, ...]]:
    """Return the best set that was sampled, with its description length."""
    rng = np.random.default_rng(seed if seed[1] else seed[0])
    odds = np.full(count, _START)
    speed, scale = np.zeros(count), np.zeros(count)
    best: tuple[float, tuple[int, ...]] = (float(scorer.total([()])[0]), ())
    for step in range(1, _STEPS + 1):
        if budget.stops():
            break
        probability = 1 / (1 + np.exp(-odds))
        used = rng.random((_SAMPLES, count)) < probability
        sets = [tuple(np.flatnonzero(row).tolist()) for row in used]
        lengths = scorer.total(sets)
        at = int(np.argmin(lengths))
        best = min(best, (float(lengths[at]), sets[at]))
        # The baseline of each sample is the mean of the others.
        advantage = (lengths - lengths.mean()) * (_SAMPLES / (_SAMPLES - 1))
        gradient = (advantage[:, None] * (used - probability)).mean(axis=0)
        speed = 0.9 * speed + 0.1 * gradient
        scale = 0.99 * scale + 0.01 * gradient**2
        size = np.sqrt(scale / (1 - 0.99**step)) + 1e-9
        odds = np.clip(odds - _RATE * speed / (1 - 0.9**step) / size, -_BOUND, _BOUND)
        sure = np.minimum(probability, 1 - probability).max() < 0.02
        if sure and step > 50:
            break
    return _needed_rules(scorer, best)


def _needed_rules(
    scorer: SetScorer, best: tuple[float, tuple[int, ...]]
) -> tuple[float, tuple[int, ...]]:
    """Return the set without the rules that it does not need."""
    for drop in best[1]:
        smaller = tuple(n for n in best[1] if n != drop)
        best = min(best, (float(scorer.total([smaller])[0]), smaller))
    return best
