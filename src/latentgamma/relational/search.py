"""Searches for the smallest set of clauses that explains the examples."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from latentgamma._checkpoint import Compute, compute_now
from latentgamma._text import quantity
from latentgamma.relational.budget import ROWS_OF_A_SECOND, Budget, OutOfBudget
from latentgamma.relational.clauses import (
    BodySearch,
    Candidate,
    Clause,
    Examples,
    Hypotheses,
    TooManyRows,
    as_body,
    clause_bits,
    instances,
    set_bits,
)
from latentgamma.relational.invention import Definition, definitions, used_definitions
from latentgamma.relational.problem import Problem, Relation

# ---- The shortest set of candidate clauses that explains the examples, found by clingo
# Each candidate may be used. A model of the answer set program is a set of clauses whose least model
# has every positive example and no negative one; clingo minimises the description length.

#: Seconds between two looks at the clock.
_WAIT = 0.05
#: Conflicts after which a search ends without a proof.
_MOST_CONFLICTS = 100_000
#: Rows that take as long as a conflict, as a literal of a rule for clingo, and as one in a closure.
_ROWS_OF_A_CONFLICT, _ROWS_OF_A_LITERAL, _ROWS_OF_A_CLOSURE = 15_000, 100, 20
#: Bits are whole numbers for clingo: this many parts of a bit.
_PARTS = 100


@dataclass(frozen=True)
class Choice:
    """A set of candidates that explains the examples."""

    chosen: tuple[int, ...]  # the numbers of the candidates
    bits: float  # their description length, with the definitions that they use
    shortest: bool  # whether no other set of candidates is shorter


class Selection:
    """The answer set program that chooses among candidates; `finished` is whether it compared all sets.

    Sets of more than `most_bits` are left out.
    """

    def __init__(
        self, hypotheses: Hypotheses, most_invented: int, budget: Budget, most_bits: float
    ) -> None:
        import clingo

        self._control = clingo.Control(
            ["--warn=none", "--opt-strategy=usc,stratify", "--configuration=handy"]
        )
        self._candidates: Sequence[Candidate] = hypotheses.candidates
        self._budget = budget
        self.finished = False
        with self._control.backend() as backend:
            atoms: dict[int, int] = {}

            def atom(number: int) -> int:
                if number not in atoms:
                    atoms[number] = backend.add_atom()
                return atoms[number]

            self._use = [backend.add_atom() for _ in self._candidates]
            backend.add_rule(self._use, choice=True)
            for fact in hypotheses.given.tolist():
                backend.add_rule([atom(fact)])
            weights = []
            users: dict[tuple[int, float], list[int]] = {}
            for number, one in enumerate(self._candidates):
                heads, bodies = hypotheses.rules_of(number)
                use = self._use[number]
                budget.spend(_ROWS_OF_A_LITERAL * len(heads) * (1 + len(bodies)))
                columns = [body.tolist() for body in bodies]
                for row, head in enumerate(heads.tolist()):
                    backend.add_rule([atom(head)], [use, *(atom(c[row]) for c in columns)])
                weights.append((use, round(_PARTS * one.bits)))
                for definition in one.definitions.items():
                    users.setdefault(definition, []).append(use)
            for head in hypotheses.positive.tolist():
                backend.add_rule([], [-atom(head)])
            for head in hypotheses.negative.tolist():
                backend.add_rule([], [atom(head)])
            needed = []
            for (_, bits), uses in users.items():
                used = backend.add_atom()
                for use in uses:
                    backend.add_rule([used], [use])
                weights.append((used, round(_PARTS * bits)))
                needed.append((used, 1))
            if len(needed) > most_invented:
                backend.add_weight_rule([], most_invented + 1, needed)
            backend.add_minimize(0, weights)
            if math.isfinite(most_bits):
                backend.add_weight_rule([], math.ceil(_PARTS * most_bits) + 1, weights)

    def shortest(self) -> Choice | None:
        """Return the shortest set of candidates that was found; None if none was found."""
        found: list[tuple[int, ...]] = []
        most = min(_MOST_CONFLICTS, self._budget.rows_left // _ROWS_OF_A_CONFLICT)
        self._control.configuration.solve.solve_limit = str(int(most))  # type: ignore[union-attr]

        def keep(model: Any) -> None:
            found.append(tuple(n for n, use in enumerate(self._use) if model.is_true(use)))

        with self._control.solve(on_model=keep, async_=True) as handle:
            finished = handle.wait(_WAIT)
            while not finished and not self._budget.stops_by_time():
                finished = handle.wait(_WAIT)
            if not finished:
                handle.cancel()
            result = handle.get()
        conflicts = self._control.statistics["solving"]["solvers"]["conflicts"]
        self._budget.count(_ROWS_OF_A_CONFLICT * conflicts)
        self.finished = bool(finished and result.exhausted)
        if not found:
            return None
        chosen = found[-1]
        return Choice(chosen, set_bits(self._candidates[n] for n in chosen), self.finished)

    def limit(self, clauses: int) -> None:
        """Leave out sets of more candidates than this."""
        with self._control.backend() as backend:
            backend.add_weight_rule([], clauses + 1, [(use, 1) for use in self._use])

    def exclude(self, choice: Choice) -> None:
        """Leave out every set that has all of these candidates."""
        with self._control.backend() as backend:
            backend.add_rule([], [self._use[number] for number in choice.chosen])


# ---- The candidate clauses of a search, one for each set of instances

#: Candidates that are compared; the shortest ones of more.
MOST_CANDIDATES = 4_000


class CandidatePool:
    """The candidates so far, one for each set of instances, over the relations of `found`.

    `exact` is whether no rule is recursive, so that the examples that each covers decide; `too_large`
    counts the clauses with too many instances, which were left out.
    """

    def __init__(
        self,
        problem: Problem,
        found: Found,
        learned: Sequence[int],
        predicates: int,
        *,
        exact: bool = False,
    ) -> None:
        self.exact, self.predicates = exact, predicates
        self.problem, self.found, self.learned = problem, found, learned
        self._targets = {target.relation: target for target in problem.targets}
        self._by_key: dict[tuple[object, ...], Candidate] = {}
        self.labelled = problem.labelled
        self.too_large = 0

    @property
    def size(self) -> int:
        """The number of candidates that are compared."""
        return min(len(self._by_key), MOST_CANDIDATES)

    @property
    def cut(self) -> bool:
        """Whether there are more candidates than are compared."""
        return len(self._by_key) > MOST_CANDIDATES

    def candidates(self, budget: Budget, below: float = math.inf) -> list[Candidate]:
        """Return the candidates of fewer bits than this, shortest first."""
        ordered = sorted(self._by_key.values(), key=lambda one: one.bits)
        if self.exact:
            # Only the labels count, so that what a shorter rule covers is never needed.
            found = _drop_dominated(ordered, budget)
            self._by_key = {one.key(): one for one in found}
            return [one for one in found if one.bits < below][:MOST_CANDIDATES]
        ordered = [one for one in ordered if one.bits < below][:MOST_CANDIDATES]
        return _drop_dominated(ordered, budget) if self.labelled else ordered

    def add(
        self, clauses: Sequence[Clause], budget: Budget, seeker: BodySearch | None = None
    ) -> tuple[list[Clause], bool]:
        """Add clauses, the shortest first; the seeker knows the examples that each covers.

        Return those that derive a negative example or nothing, and whether all were added.
        """
        refused: list[Clause] = []
        for clause in sorted(clauses, key=lambda c: clause_bits(c, self.predicates)):
            bits = clause_bits(clause, self.predicates)
            target = self._targets[clause.head]
            covered = seeker.covered.pop(clause.body, None) if seeker and self.exact else None
            try:
                one: Candidate | None
                if covered is not None and seeker is not None:
                    budget.spend(len(covered))
                    one = Candidate(clause, bits, np.sort(seeker.examples.codes[covered]), ())
                else:
                    relations = self.found.relations
                    one = instances(
                        clause, bits, self.problem, target, relations, self.learned, budget
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
            one.definitions = used_definitions(clause, self.found.definitions)
            keep_shortest(self._by_key, one)
        return refused, True


def keep_shortest(by_key: dict[tuple[object, ...], Candidate], one: Candidate) -> None:
    """Keep a candidate by its instances; the longer one of two is a variant of the other."""
    known = by_key.setdefault(one.key(), one)
    if one.bits < known.bits - 1e-9:
        one.variants = [(known.clause, known.bits), *known.variants]
        by_key[one.key()] = one
    elif known is not one:
        known.variants.append((one.clause, one.bits))


def _drop_dominated(candidates: list[Candidate], budget: Budget) -> list[Candidate]:
    """Return the candidates that no shorter one without recursion covers completely."""
    kept: list[Candidate] = []
    covers: dict[tuple[int, tuple[int, ...]], tuple[np.ndarray, int]] = {}  # rows, of which so many
    codes = {}
    for head in {one.clause.head for one in candidates}:
        every = [one.heads for one in candidates if one.clause.head == head]
        codes[head] = np.unique(np.concatenate(every))
    for one in candidates:
        head = one.clause.head
        cover = np.zeros(len(codes[head]), bool)
        cover[np.searchsorted(codes[head], one.heads)] = True
        packed = np.packbits(cover)
        needs = (*one.definitions,)
        shorter = [covers[head, d] for d in {(), needs} if (head, d) in covers]
        rivals = [rows[:count] for rows, count in shorter]
        budget.spend(sum(rows.size for rows in rivals) // 16)  # bytes, and no lookups
        if any((packed & ~rows == 0).all(axis=1).any() for rows in rivals):
            continue
        kept.append(one)
        if not one.recursive:
            key = (head, needs)
            empty = np.empty((64, len(packed)), np.uint8)
            rows, count = covers.get(key, (empty, 0))
            rows = np.concatenate([rows, np.empty_like(rows)]) if count == len(rows) else rows
            rows[count] = packed
            covers[key] = rows, count + 1
    return kept


# ---- The search for a program: candidates level by level, the shortest choice, and its alternatives

#: Examples of each kind that bodies are first tested on.
MOST_EXAMPLES = 3_000
#: The fraction of the work that is left which a level may take with all its bodies, and the number of
#: the most promising ones that are always made longer.
_LEVEL_FRACTION, _LEAST_BEAM = 0.4, 40
#: Bodies of up to this many variables are all tried, those of more where they are long enough.
ALL_VARIABLES = 4
#: Values of a predicate that names constants.
_FEW_VALUES = 2
#: Literals in a body that uses an invented predicate.
_INVENTED_BODY = 2
#: The fraction of the time for bodies, and of what is then left for the choice among them.
_BODY_FRACTION, _CHOICE_FRACTION = 0.8, 0.7
#: The same as long as no program is found, so that longer bodies are tried as well.
_FIRST_CHOICE_FRACTION = 0.2
#: The fraction of the time that is left to add what the last bodies found.
_ADD_FRACTION = 0.3
#: Pairs of a recursive candidate and another that are tried first.
_MOST_PAIRED = 100_000
#: Once a program is found, shorter ones are sought with as much work as so far, or these rows; with a
#: quarter of it if only promising bodies were made longer.
_MORE_ROWS = ROWS_OF_A_SECOND
#: Rows for two invented predicates, which take longer, and the fraction of them for definitions.
_SECOND_ROWS, _DEFINITION_FRACTION = 20 * ROWS_OF_A_SECOND, 0.7
#: First predicates on which a second one is built, and definitions of it for each.
_MOST_BASES, _MOST_SECOND = 20, 60
#: Alternatives may be longer than the shortest program by this fraction, and by these bits.
_SLACK_SHARE, _SLACK_BITS = 0.35, 6.0
#: Rows for the alternatives, and the fraction of the time that is left.
_ALTERNATIVE_ROWS, _ALTERNATIVE_FRACTION = 4 * ROWS_OF_A_SECOND, 0.5

Report = Callable[[str, int, float], None]


@dataclass
class Found:
    """What a search found."""

    choices: list[Choice] = field(default_factory=list)  # programs, the shortest first
    candidates: list[Candidate] = field(default_factory=list)  # what the choices choose from
    # invented predicates by number
    definitions: dict[int, Definition] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)  # all relations by number
    literals: int = 0  # bodies of up to this many literals were all tried
    shortest: bool = False  # whether no program in that language is shorter
    excluded: int = 0  # no program has bodies of up to this many literals
    # the relation and code of positive examples that no candidate derives
    unexplained: list[tuple[int, int]] = field(default_factory=list)
    too_many_clauses: bool = False  # whether the shortest program has more than `max_clauses` rules
    alternatives_timed_out: bool = False  # whether the time limit ended the search for alternatives
    notes: list[str] = field(default_factory=list)  # what was left out
    nearest: Choice | None = None  # if a list of the labels is shorter, with the bits above it

    def define(self, made: Iterable[Definition]) -> None:
        """Add invented predicates, which are numbered after the relations so far."""
        for one in made:
            self.relations.append(one.relation)
            self.definitions[one.number] = one


@dataclass(frozen=True)
class SearchOptions:
    """The limits of a search; see `fit`."""

    invent: int = 0
    recursive: bool = True
    max_body: int = 6
    max_variables: int = 6
    seed: int = 0
    alternatives: int = 8
    max_clauses: int | None = None
    all_variables: bool = False


def most_variables(literals: int, arity: int, widest: int, limit: int, more: int = 1) -> int:
    """Return the largest number of variables in a body of this many literals.

    Every body of up to `ALL_VARIABLES` variables is within it, also while it grows.
    """
    reached = arity + literals * max(1, widest - 1)
    return min(limit, max(literals + more, min(reached, ALL_VARIABLES)))


def longest_alternative(bits: float) -> float:
    """Return the largest description length of an alternative to a program of this many bits."""
    return bits * (1 + _SLACK_SHARE) + _SLACK_BITS


def leaves_bodies_out(problem: Problem, options: SearchOptions) -> bool:
    """Return whether `all_variables` allows bodies that are not tried at first.

    Short bodies have few variables, and only those that other literals have.
    """
    widest = max(len(types) for types in problem.types)
    return (widest > 2 and options.max_variables > ALL_VARIABLES) or bool(free_constants(problem))


def free_constants(problem: Problem) -> list[int]:
    """Return predicates that name a few values, such as `five(5)`, which only inputs can use."""
    inputs = {
        kind
        for one in problem.predicates
        for kind, needed in zip(one.types, one.inputs, strict=True)
        if needed and sum(one.inputs) > 1
    }
    return [
        number
        for number, one in enumerate(problem.background)
        if one.arity == 1 and one.types[0] in inputs and 0 < len(one.rows) <= _FEW_VALUES
        if one.name and not one.inputs[0]
    ]


class Search:
    """A search for programs; `compute` returns the finished levels of an earlier run."""

    def __init__(
        self,
        problem: Problem,
        options: SearchOptions,
        budget: Budget,
        report: Report,
        compute: Compute = compute_now,
    ) -> None:
        self._problem, self._options, self._budget = problem, options, budget
        self._send_report, self._compute = report, compute
        self.found = Found(relations=list(problem.relations))
        self._bodies = budget.part(fraction=_BODY_FRACTION)
        self._learned = [target.relation for target in problem.targets]
        self._background = [r for r in range(len(problem.relations)) if r not in self._learned]
        self._recursive = self._learned if options.recursive else []
        allowed = [*self._background, *self._recursive]
        self._seekers = self._seekers_of(allowed, self._recursive)
        exact = not options.recursive and not options.invent
        exact &= all(seeker.examples.complete for seeker in self._seekers)
        self._pool = CandidatePool(problem, self.found, self._learned, len(allowed), exact=exact)

    def run(self) -> Found:
        """Return the shortest programs."""
        found, pool, options = self.found, self._pool, self._options
        best: Choice | None = None
        invented = False
        level = 0
        rows_of_a_body = 0.0
        while level < options.max_body:
            level += 1
            if level > 1 and not options.recursive:
                fraction = _LEVEL_FRACTION if best is None else 1.0
                self._narrow(rows_of_a_body, options.max_body - level + 1, fraction)
            before = self._budget.work
            parents = sum(len(seeker.frontier) for seeker in self._seekers)
            self._add_level(level)
            rows_of_a_body = (self._budget.work - before) / max(1, parents)
            best = self._choose()
            self._report(level)
            if best is not None and not found.too_many_clauses:
                least = _least_bits(level + 1, self._problem, pool.predicates)
                if longest_alternative(best.bits) <= least:
                    break
                cut = any(seeker.cut for seeker in self._seekers)
                more = max(_MORE_ROWS, self._budget.work / (4 if cut else 1))
                self._bodies = self._bodies.part(rows=more)
            enough = best is not None or level >= min(3, options.max_body)
            if options.invent and not invented and enough:
                invented = True
                rows = self._budget.part(rows=_SECOND_ROWS)
                self._invent(self._bodies if options.invent == 1 else rows)
                best = self._choose()
            more = level < options.max_body and any(s.frontier for s in self._seekers)
            if more and self._bodies.stops():
                break
        if best is not None:
            found.shortest = best.shortest and found.literals >= 1 and not pool.cut
            self._add_alternatives()
        self._note_what_was_left_out()
        return found

    def cover(self) -> Found:
        """Return the candidates of the first level at which they derive every positive example."""
        for level in range(1, self._options.max_body + 1):
            self._add_level(level, choose=False)
            if level == 3 and self._options.invent:
                self._invent(self._bodies)
            self.found.candidates = []
            with contextlib.suppress(OutOfBudget):
                self._compare_with_examples()
            self._report(level)
            if not self.found.unexplained or self._bodies.stops():
                break
        self._note_what_was_left_out()
        return self.found

    def _report(self, level: int, stage: str = "") -> None:
        total = sum(len(target.positive) for target in self._problem.targets)
        explained = 1.0 - len(self.found.unexplained) / max(1, total)
        stage += f"bodies of {quantity(level, 'literal')}"
        self._send_report(stage, self._pool.size, explained)

    # -- bodies

    def _seekers_of(
        self, allowed: Sequence[int], recursive: Sequence[int], exclusive: Sequence[int] = ()
    ) -> list[BodySearch]:
        """Return a search of bodies for each target."""
        problem, options = self._problem, self._options
        samples = [
            Examples.of(problem, target, MOST_EXAMPLES, options.seed, unlabelled=options.recursive)
            for target in problem.targets
        ]
        relations = self.found.relations
        free = free_constants(problem) if options.all_variables else ()
        return [
            BodySearch(problem, target, relations, allowed, recursive, examples, exclusive, free)
            for target, examples in zip(problem.targets, samples, strict=True)
        ]

    def _limit(self, level: int, seeker: BodySearch) -> int:
        """Return the largest number of variables in a body of this many literals."""
        options, arity = self._options, seeker.target.arity
        if options.all_variables:
            return options.max_variables
        widest = max(relation.arity for relation in seeker.relations)
        # Recursive rules have many instances where they have many variables, unless inputs limit them.
        more = 1 if options.recursive and not seeker.directed else arity
        return most_variables(level, arity, widest, options.max_variables, more)

    def _add_level(self, level: int, *, choose: bool = True) -> None:
        """Add the candidates with one more literal, and note whether all bodies of it were tried."""
        complete = not self._pool.cut
        waiting = []
        for seeker in self._seekers:
            clauses, whole = self._level(seeker, level)
            complete &= whole
            twice = [one for one in clauses if one.occurrences(self._learned) > 1]
            once = [one for one in clauses if one.occurrences(self._learned) < 2]
            complete &= self._add(once, seeker)
            waiting.append((twice, seeker))
        # Clauses with two recursive literals have most instances, and are seldom needed.
        if choose and not self.found.choices:
            self._look_for_a_pair()
            if self.found.choices:
                self._bodies = self._bodies.part(rows=_MORE_ROWS)
        for twice, seeker in waiting:
            complete &= self._add(twice, seeker)
            complete &= seeker.examples.complete and not seeker.too_large and not seeker.cut
        complete &= not self._pool.too_large and not self._pool.cut
        if complete and self.found.literals == level - 1:
            self.found.literals = level

    def _add(self, clauses: Sequence[Clause], seeker: BodySearch) -> bool:
        """Add candidates; return whether there was time for all of them."""
        # What the bodies found is added even if their time is used up.
        rest = self._budget.part(fraction=_ADD_FRACTION) if self._bodies.over else self._bodies
        refused, all_added = self._pool.add(clauses, rest, seeker)
        seeker.grow(refused)
        return all_added

    def _look_for_a_pair(self) -> None:
        """Note the shortest one or two candidates that explain the examples, without a proof."""
        with contextlib.suppress(OutOfBudget):
            hypotheses = self._compare_with_examples()
            if not self.found.unexplained and any(one.recursive for one in hypotheses.candidates):
                pair = _best_pair(hypotheses, self._budget)
                if pair is not None and len(pair.chosen) <= (self._options.max_clauses or 2):
                    self.found.choices = [pair]

    def _level(self, seeker: BodySearch, level: int) -> tuple[list[Clause], bool]:
        """Return the candidates of a level, from an earlier run if it finished the level."""
        target, budget = seeker.target, self._bodies
        partial: list[Clause] = []
        before = budget.work

        def work() -> list[object]:
            clauses, whole = seeker.next_level(self._limit(level, seeker), budget)
            if not whole:
                partial.extend(clauses)
                raise OutOfBudget
            bodies = [clause.body for clause in clauses]
            covers = [seeker.cover.get(body, b"").hex() for body in seeker.frontier]
            return [bodies, seeker.frontier, covers, seeker.too_large, budget.work - before]

        try:
            name = f"{target.name}/{target.arity} level {level}"
            bodies, frontier, covers, too_large, rows = self._compute(name, work)
        except OutOfBudget:
            return partial, False
        # A resumed run counts the work of the earlier one, and so ends where that one would have ended.
        budget.count(before + rows - budget.work)
        seeker.frontier = [as_body(body) for body in frontier]
        seeker.cover = dict(zip(seeker.frontier, map(bytes.fromhex, covers), strict=True))
        seeker.too_large = too_large
        return [Clause(target.relation, target.arity, as_body(body)) for body in bodies], True

    def _narrow(self, rows_of_a_body: float, levels: int, fraction: float) -> None:
        """Keep the most promising bodies if there is not enough time for all of the next level."""
        bodies = sum(len(seeker.frontier) for seeker in self._seekers)
        planned = self._bodies.planned_rows
        if rows_of_a_body * bodies <= fraction * planned:
            return
        rows = planned / (levels * len(self._seekers))
        for seeker in self._seekers:
            relation = seeker.target.relation
            missing = [code for number, code in self.found.unexplained if number == relation]
            explained = np.setdiff1d(seeker.target.positive, np.array(missing, np.int64))
            seeker.keep_best(max(_LEAST_BEAM, int(rows / max(1.0, rows_of_a_body))), explained)

    def _note_what_was_left_out(self) -> None:
        found, seekers = self.found, self._seekers
        too_large = self._pool.too_large + sum(seeker.too_large for seeker in seekers)
        if too_large:
            bodies = quantity(too_large, "body", "bodies")
            found.notes.append(f"{bodies} with too many instances were left out")
        if not all(seeker.examples.complete for seeker in seekers):
            found.notes.append("bodies were tested on a sample of the tuples")
        if any(seeker.cut for seeker in seekers):
            literals = quantity(found.literals, "literal")
            found.notes.append(
                f"of bodies with more than {literals}, only the most promising ones were made longer"
            )
        if found.too_many_clauses:
            found.notes.append(
                "no program with max_clauses rules or fewer was found, but a longer one"
            )
        if self._pool.cut:
            found.notes.append(
                f"only the {MOST_CANDIDATES:,} shortest candidate rules were compared"
            )

    # -- the choice among candidates

    def _compare_with_examples(self) -> Hypotheses:
        """Return the program of all candidates so far, and note which examples none derives."""
        candidates = self._pool.candidates(self._budget)
        literals = sum(one.literals for one in candidates)
        self._budget.reserve(_ROWS_OF_A_CLOSURE * literals)
        hypotheses = Hypotheses(self._problem, candidates)
        derived = hypotheses.models([range(len(candidates))])[0]
        missing = hypotheses.positive[~derived[hypotheses.positive]]
        self.found.unexplained = [
            (target.relation, code) for target, code in map(hypotheses.atom, missing.tolist())
        ]
        self.found.candidates = candidates
        return hypotheses

    def _choose(self) -> Choice | None:
        """Return the shortest choice among the candidates so far, and note what none derives."""
        found, pool, budget = self.found, self._pool, self._budget
        most_clauses = self._options.max_clauses or math.inf
        before, candidates = found.choices[0] if found.choices else None, found.candidates
        choice = None
        proved = False
        most = math.inf if before is None or found.too_many_clauses else before.bits
        try:
            if math.isinf(most):
                self._compare_with_examples()
            else:  # a shorter program has no rule that is longer than the one so far
                found.candidates = pool.candidates(budget, most)
            none = bool(found.unexplained)
            if not none:
                fraction = _CHOICE_FRACTION if found.choices else _FIRST_CHOICE_FRACTION
                selection = self._selection(budget.part(fraction=fraction), most)
                choice = selection.shortest()
                none = choice is None and selection.finished
                proved = none and not found.too_many_clauses
                if choice is not None and len(choice.chosen) > most_clauses:
                    selection.limit(int(most_clauses))
                    limited = selection.shortest()
                    if limited is None and before is not None and not found.too_many_clauses:
                        choice = None  # the choice so far has few enough clauses
                    else:
                        choice = replace(limited or choice, shortest=False)
                        found.too_many_clauses = limited is None
            if none and before is None and not pool.cut:
                found.excluded = found.literals
        except OutOfBudget:
            pass
        few = choice is not None and len(choice.chosen) <= most_clauses
        longer = choice is None or (before is not None and choice.bits > before.bits + 1e-6)
        if before is not None and longer and not (few and len(before.chosen) > most_clauses):
            # The choice among fewer candidates stands.
            found.choices, found.candidates = [replace(before, shortest=proved)], candidates
        elif choice is not None:
            found.choices = [choice]
        return found.choices[0] if found.choices else None

    def _selection(self, budget: Budget, most_bits: float) -> Selection:
        """Return the choice among the candidates that were found."""
        candidates = self.found.candidates
        budget.reserve(_ROWS_OF_A_LITERAL * sum(one.literals for one in candidates))
        hypotheses = Hypotheses(self._problem, candidates)
        return Selection(hypotheses, self._options.invent, budget, most_bits)

    def _add_alternatives(self) -> None:
        """Add the next shortest programs that do not contain an earlier one."""
        found = self.found
        best = found.choices[0]
        most = longest_alternative(best.bits)
        budget = self._budget.part(
            rows=_ALTERNATIVE_ROWS, fraction=_ALTERNATIVE_FRACTION, optional=True
        )
        chosen = [found.candidates[number] for number in best.chosen]
        # Beside a rule of a program of several, there is another one.
        least = min(one.bits for one in found.candidates) if len(chosen) > 1 else 0.0
        try:
            shorter = self._pool.candidates(budget, most - least)
            found.candidates = [*chosen, *(one for one in shorter if one not in chosen)]
            choice: Choice | None = replace(best, chosen=tuple(range(len(chosen))))
            found.choices = [choice] if choice else []
            selection = self._selection(budget, most)
            while choice is not None and len(found.choices) <= self._options.alternatives:
                selection.exclude(choice)
                budget.spend(0)
                choice = selection.shortest()
                if choice is not None:
                    found.choices.append(choice)
        except OutOfBudget:
            pass
        found.alternatives_timed_out = budget.timed_out

    # -- invented predicates

    def _invent(self, budget: Budget) -> None:
        """Add candidates that use an invented predicate."""
        relations = self.found.relations
        defining = budget.part(rows=_DEFINITION_FRACTION * budget.rows_left)
        first = definitions(self._problem, relations, self._background, defining)
        self.found.define(first)
        # The second predicate is defined by one of the first ones, and the background.
        for one in first[:_MOST_BASES] if self._options.invent == 2 else ():
            if defining.stops():
                break
            usable, built = [*self._background, one.number], frozenset({one.number})
            second = definitions(self._problem, relations, usable, defining, must_use=built)
            self.found.define(second[:_MOST_SECOND])
        invented = sorted(self.found.definitions)
        if not invented:
            return
        allowed = [*self._background, *invented, *self._recursive]
        seekers = self._seekers_of(allowed, self._learned, invented)
        for level in range(1, min(_INVENTED_BODY, self._options.max_body) + 1):
            for seeker in seekers:
                limit = min(self._limit(level, seeker), seeker.target.arity + 1)
                clauses, _ = seeker.next_level(limit, budget, frozenset(invented))
                self._pool.add(clauses, budget)
            self._report(level, "invented predicates, ")


def _best_pair(hypotheses: Hypotheses, budget: Budget) -> Choice | None:
    """Return the shortest one or two candidates that explain the examples, without a proof."""
    candidates = hypotheses.candidates
    recursive = [n for n, one in enumerate(candidates) if one.recursive]
    bases = [n for n, one in enumerate(candidates) if not one.recursive]

    def bits(chosen: Sequence[int]) -> float:
        return set_bits(candidates[n] for n in chosen)

    sets: list[tuple[int, ...]] = [(n,) for n in range(len(candidates))]
    sets += itertools.product(bases, recursive)
    sets = sorted(sets, key=bits)[:_MOST_PAIRED]
    step = min(2_048, max(64, 20_000_000 // max(1, hypotheses.program.M)))
    for start in range(0, len(sets), step):
        part = sets[start : start + step]
        budget.spend(hypotheses.program.R * len(part) // 16)
        right = hypotheses.explain(part)
        if right.any():
            chosen = part[int(np.argmax(right))]
            return Choice(chosen, bits(chosen), False)
    return None


def _least_bits(literals: int, problem: Problem, predicates: int) -> float:
    """Return the description length of the shortest clause of this many literals."""
    arities = [len(types) for types in problem.types]
    shortest = min(arities, default=1)
    clause = Clause(0, 1, ((0, (0,) * max(1, shortest)),) * literals)
    return clause_bits(clause, predicates)
