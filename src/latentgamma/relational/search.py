"""Searches for the smallest set of clauses that explains the examples."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
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
)
from latentgamma.relational.invention import Definition, definitions
from latentgamma.relational.problem import Problem, Relation

# ---- The shortest set of candidate clauses that explains the examples, found by clingo
# Each candidate may be used. A model of the answer set program is a set of clauses whose least model
# has every positive example and no negative one; clingo minimises the description length.

#: Seconds between two looks at the clock.
_WAIT = 0.05
#: Conflicts after which a search ends without a proof.
_MOST_CONFLICTS = 100_000
#: Rows that take as long as a conflict, and as adding a literal of a rule.
_ROWS_OF_A_CONFLICT, _ROWS_OF_A_LITERAL = 15_000, 100
#: Bits are whole numbers for clingo: this many parts of a bit.
_PARTS = 100


@dataclass(frozen=True)
class Choice:
    """A set of candidates that explains the examples.

    Attributes:
        chosen: the numbers of the candidates.
        bits: their description length, with the definitions that they use.
        shortest: whether no other set of candidates is shorter.
    """

    chosen: tuple[int, ...]
    bits: float
    shortest: bool


class Selection:
    """The answer set program that chooses among candidates.

    Args:
        hypotheses: the candidates and their instances.
        definitions: the description length of each invented predicate, by number.
        most_invented: the largest number of invented predicates.
        budget: of work and time.
        most_bits: longer sets are left out.

    Attributes:
        finished: whether the last search compared all sets.

    Raises:
        OutOfBudget: the work or the time is used up.
    """

    def __init__(
        self,
        hypotheses: Hypotheses,
        definitions: dict[int, float],
        most_invented: int,
        budget: Budget,
        most_bits: float = math.inf,
    ) -> None:
        import clingo

        self._control = clingo.Control(
            ["--warn=none", "--opt-strategy=usc,stratify", "--configuration=handy"]
        )
        self._candidates: Sequence[Candidate] = hypotheses.candidates
        self._definitions = definitions
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
            users: dict[int, list[int]] = {}
            for number, one in enumerate(self._candidates):
                heads, bodies = hypotheses.rules_of(number)
                use = self._use[number]
                budget.spend(_ROWS_OF_A_LITERAL * len(heads) * (1 + len(bodies)))
                columns = [body.tolist() for body in bodies]
                for row, head in enumerate(heads.tolist()):
                    backend.add_rule([atom(head)], [use, *(atom(c[row]) for c in columns)])
                weights.append((use, round(_PARTS * one.bits)))
                for definition in one.definitions:
                    users.setdefault(definition, []).append(use)
            for head in hypotheses.positive.tolist():
                backend.add_rule([], [-atom(head)])
            for head in hypotheses.negative.tolist():
                backend.add_rule([], [atom(head)])
            needed = []
            for definition, uses in users.items():
                used = backend.add_atom()
                for use in uses:
                    backend.add_rule([used], [use])
                weights.append((used, round(_PARTS * definitions[definition])))
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
        return Choice(chosen, self.bits(chosen), self.finished)

    def limit(self, clauses: int) -> None:
        """Leave out sets of more candidates than this."""
        with self._control.backend() as backend:
            backend.add_weight_rule([], clauses + 1, [(use, 1) for use in self._use])

    def exclude(self, choice: Choice) -> None:
        """Leave out every set that has all of these candidates."""
        with self._control.backend() as backend:
            backend.add_rule([], [self._use[number] for number in choice.chosen])

    def bits(self, chosen: Sequence[int]) -> float:
        """Return the description length of a set of candidates."""
        used = {d for number in chosen for d in self._candidates[number].definitions}
        clauses = sum(self._candidates[number].bits for number in chosen)
        return clauses + sum(self._definitions[d] for d in used)


# ---- The candidate clauses of a search, one for each set of instances

#: Candidates that are compared; the shortest ones of more.
MOST_CANDIDATES = 4_000


class CandidatePool:
    """The candidates so far, one for each set of instances.

    Attributes:
        too_large: the number of clauses with too many instances, which were left out.
        exact: whether no rule is recursive, so that the examples that each covers decide.
    """

    def __init__(
        self,
        problem: Problem,
        relations: Sequence[Relation],
        learned: Sequence[int],
        predicates: int,
        *,
        exact: bool = False,
    ) -> None:
        self.exact = exact
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

    def candidates(self, budget: Budget, below: float = math.inf) -> list[Candidate]:
        """Return the candidates of fewer bits than this, shortest first.

        Raises:
            OutOfBudget: the work or the time is used up.
        """
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
        """Add clauses, the shortest first.

        The seeker knows the examples that each covers if no rule is recursive.

        Returns:
            Those that derive a negative example or nothing, and whether all were added.
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


def _drop_dominated(candidates: list[Candidate], budget: Budget) -> list[Candidate]:
    """Return the candidates that no shorter one without recursion covers completely."""
    kept: list[Candidate] = []
    covers: dict[tuple[int, tuple[int, ...]], _Rows] = {}
    codes = {}
    for head in {one.clause.head for one in candidates}:
        every = [one.heads for one in candidates if one.clause.head == head]
        codes[head] = np.unique(np.concatenate(every))
    for one in candidates:
        head = one.clause.head
        cover = np.zeros(len(codes[head]), bool)
        cover[np.searchsorted(codes[head], one.heads)] = True
        packed = np.packbits(cover)
        rivals = [covers[head, d].rows for d in {(), one.definitions} if (head, d) in covers]
        budget.spend(sum(rows.size for rows in rivals) // 16)  # bytes, and no lookups
        if any((packed & ~rows == 0).all(axis=1).any() for rows in rivals):
            continue
        kept.append(one)
        if not one.recursive:
            covers.setdefault((head, one.definitions), _Rows(len(packed))).append(packed)
    return kept


class _Rows:
    """A matrix that grows by rows."""

    def __init__(self, columns: int) -> None:
        self._rows = np.empty((64, columns), np.uint8)
        self._count = 0

    @property
    def rows(self) -> np.ndarray:
        """The rows so far."""
        return self._rows[: self._count]

    def append(self, row: np.ndarray) -> None:
        """Add a row."""
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._count] = row
        self._count += 1


# ---- The search for a program: candidates level by level, the shortest choice, and its alternatives

#: Examples of each kind that bodies are first tested on.
MOST_EXAMPLES = 3_000
#: The fraction of the work that is left which a level may take with all its bodies, and the number of
#: the most promising ones that are always made longer.
_LEVEL_FRACTION, _LEAST_BEAM = 0.4, 40
#: Bodies of up to this many variables are all tried, those of more where they are long enough.
ALL_VARIABLES = 4
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
#: Once a program is found, shorter ones are sought with as much work as so far, or these rows.
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
    """What a search found.

    Attributes:
        choices: programs, the shortest first.
        candidates: what the choices choose from.
        definitions: invented predicates by number.
        relations: all relations by number.
        literals: bodies of up to this many literals were all tried.
        shortest: whether no program in that language is shorter.
        excluded: no program has bodies of up to this many literals.
        unexplained: the relation and code of positive examples that no candidate derives.
        too_many_clauses: whether the shortest program has more than `max_clauses` rules.
        alternatives_timed_out: whether the time limit ended the search for alternatives.
        notes: what was left out.
    """

    choices: list[Choice] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    definitions: dict[int, Definition] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    literals: int = 0
    shortest: bool = False
    excluded: int = 0
    unexplained: list[tuple[int, int]] = field(default_factory=list)
    too_many_clauses: bool = False
    alternatives_timed_out: bool = False
    notes: list[str] = field(default_factory=list)


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


def _limit(level: int, seeker: BodySearch, options: SearchOptions) -> int:
    if options.all_variables:
        return options.max_variables
    widest = max(relation.arity for relation in seeker.relations)
    # Recursive rules have many instances where they have many variables, unless inputs limit them.
    few = options.recursive and not seeker.directed
    more = 1 if few else seeker.target.arity
    return most_variables(level, seeker.target.arity, widest, options.max_variables, more)


def leaves_variables_out(problem: Problem, options: SearchOptions) -> bool:
    """Return whether the variables of short bodies are limited by more than `max_variables`."""
    widest = max(len(types) for types in problem.types)
    return widest > 2 and options.max_variables > ALL_VARIABLES


def _known_relations(problem: Problem) -> tuple[list[int], list[int]]:
    """Return the numbers of the background's relations and of the targets."""
    learned = [target.relation for target in problem.targets]
    return [r for r in range(len(problem.relations)) if r not in learned], learned


def _start(
    problem: Problem, options: SearchOptions
) -> tuple[Found, list[BodySearch], CandidatePool]:
    """Return an empty result, a search of bodies for each target, and no candidates yet."""
    relations = list(problem.relations)
    background, learned = _known_relations(problem)
    allowed = [*background, *learned] if options.recursive else background
    recursive = learned if options.recursive else []
    seekers = _seekers(problem, relations, allowed, recursive, options)
    exact = not options.recursive and not options.invent
    exact &= all(seeker.examples.complete for seeker in seekers)
    return (
        Found(relations=relations),
        seekers,
        CandidatePool(problem, relations, learned, len(allowed), exact=exact),
    )


def search(
    problem: Problem,
    options: SearchOptions,
    budget: Budget,
    report: Report,
    compute: Compute = compute_now,
) -> Found:
    """Return the shortest programs; `compute` returns the finished levels of an earlier run."""
    found, seekers, pool = _start(problem, options)
    bodies = budget.part(fraction=_BODY_FRACTION)
    best: Choice | None = None
    invented = False
    level = 0
    rows_of_a_body = 0.0
    while level < options.max_body:
        level += 1
        if best is None and level > 1 and not options.recursive:
            _narrow(seekers, found, rows_of_a_body, options.max_body - level + 1, bodies)
        before = budget.work
        parents = sum(len(seeker.frontier) for seeker in seekers)
        complete = _add_level(seekers, pool, level, options, bodies, budget, compute)
        rows_of_a_body = (budget.work - before) / max(1, parents)
        if complete and found.literals == level - 1:
            found.literals = level
        best = _choose(found, pool, options, budget)
        report(f"bodies of {quantity(level, 'literal')}", pool.size, _share(found, problem))
        if best is not None:
            if longest_alternative(best.bits) <= _least_bits(level + 1, problem, pool.predicates):
                break
            more = max(_MORE_ROWS, budget.work)
            bodies = bodies.part(rows=more)
        enough = best is not None or level >= min(3, options.max_body)
        if options.invent and not invented and enough:
            invented = True
            until = bodies if options.invent == 1 else budget.part(rows=_SECOND_ROWS)
            _invent(found, pool, problem, options, until, report)
            best = _choose(found, pool, options, budget)
        if level < options.max_body and any(s.frontier for s in seekers) and bodies.stops():
            break
    if best is not None:
        found.shortest = best.shortest and found.literals >= 1 and not pool.cut
        _alternatives(found, pool, options, budget)
    _note_what_was_left_out(found, seekers, pool)
    return found


def covering_candidates(
    problem: Problem, options: SearchOptions, budget: Budget, report: Report
) -> tuple[list[Candidate], Found]:
    """Return the candidates of the first level at which they derive every positive example."""
    found, seekers, pool = _start(problem, options)
    bodies = budget.part(fraction=_BODY_FRACTION)
    for level in range(1, options.max_body + 1):
        complete = _add_level(seekers, pool, level, options, bodies, budget)
        if complete and found.literals == level - 1:
            found.literals = level
        if level == 3 and options.invent:
            _invent(found, pool, problem, options, bodies, report)
        found.candidates = []
        with contextlib.suppress(OutOfBudget):
            _compare_with_examples(found, pool, budget)
        report(f"bodies of {quantity(level, 'literal')}", pool.size, _share(found, problem))
        if not found.unexplained or bodies.stops():
            break
    _note_what_was_left_out(found, seekers, pool)
    return found.candidates, found


def _add_level(
    seekers: Sequence[BodySearch],
    pool: CandidatePool,
    level: int,
    options: SearchOptions,
    bodies: Budget,
    budget: Budget,
    compute: Compute = compute_now,
) -> bool:
    """Add the candidates with one more literal; return whether all bodies of it were tried.

    `bodies` is the budget for trying bodies; what they found is added even if it is used up.
    """
    complete = True
    for seeker in seekers:
        clauses, whole = _level(seeker, level, _limit(level, seeker, options), bodies, compute)
        adding = budget.part(fraction=_ADD_FRACTION) if bodies.over else bodies
        refused, all_added = pool.add(clauses, adding, seeker)
        seeker.grow(refused)
        complete &= whole and all_added and seeker.examples.complete and not seeker.too_large
        complete &= not seeker.cut
    return complete and not pool.too_large and not pool.cut


def _narrow(
    seekers: Sequence[BodySearch],
    found: Found,
    rows_of_a_body: float,
    levels: int,
    budget: Budget,
) -> None:
    """Keep the most promising bodies if there is not enough time for all of the next level."""
    bodies = sum(len(seeker.frontier) for seeker in seekers)
    if rows_of_a_body * bodies <= _LEVEL_FRACTION * budget.planned_rows:
        return
    rows = budget.planned_rows / (levels * len(seekers))
    for seeker in seekers:
        missing = [
            code for relation, code in found.unexplained if relation == seeker.target.relation
        ]
        explained = np.setdiff1d(seeker.target.positive, np.array(missing, np.int64))
        seeker.keep_best(max(_LEAST_BEAM, int(rows / max(1.0, rows_of_a_body))), explained)


def _note_what_was_left_out(
    found: Found, seekers: Sequence[BodySearch], pool: CandidatePool
) -> None:
    too_large = pool.too_large + sum(seeker.too_large for seeker in seekers)
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
        found.notes.append("no program with max_clauses rules or fewer was found, but a longer one")
    if pool.cut:
        found.notes.append(f"only the {MOST_CANDIDATES:,} shortest candidate rules were compared")


def _level(
    seeker: BodySearch, level: int, variables: int, budget: Budget, compute: Compute
) -> tuple[list[Clause], bool]:
    """Return the candidates of a level, from an earlier run if it finished the level."""
    target = seeker.target
    partial: list[Clause] = []
    before = budget.work

    def work() -> list[object]:
        clauses, whole = seeker.next_level(variables, budget)
        if not whole:
            partial.extend(clauses)
            raise OutOfBudget
        bodies = [clause.body for clause in clauses]
        covers = [seeker.cover.get(body, b"").hex() for body in seeker.frontier]
        return [bodies, seeker.frontier, covers, seeker.too_large, budget.work - before]

    try:
        name = f"{target.name}/{target.arity} level {level}"
        bodies, frontier, covers, too_large, rows = compute(name, work)
    except OutOfBudget:
        return partial, False
    # A resumed run counts the work of the earlier one, and so ends where that one would have ended.
    budget.count(before + rows - budget.work)
    seeker.literals = level
    seeker.frontier = [as_body(body) for body in frontier]
    covered = map(bytes.fromhex, covers)
    seeker.cover = dict(zip(seeker.frontier, covered, strict=True))
    seeker.too_large = too_large
    return [Clause(target.relation, target.arity, as_body(body)) for body in bodies], True


def _seekers(
    problem: Problem,
    relations: Sequence[Relation],
    allowed: Sequence[int],
    learned: Sequence[int],
    options: SearchOptions,
    exclusive: Sequence[int] = (),
) -> list[BodySearch]:
    return [
        BodySearch(
            problem,
            target,
            relations,
            allowed,
            learned,
            Examples.of(problem, target, MOST_EXAMPLES, options.seed, unlabelled=options.recursive),
            exclusive,
        )
        for target in problem.targets
    ]


def _compare_with_examples(found: Found, pool: CandidatePool, budget: Budget) -> Hypotheses:
    """Return the program of all candidates so far, and note which examples none derives."""
    candidates = pool.candidates(budget)
    literals = sum(len(one.heads) * (2 + len(one.bodies)) for one in candidates)
    budget.reserve(_ROWS_OF_A_LITERAL * literals)
    hypotheses = Hypotheses(pool.problem, candidates)
    derived = hypotheses.models([range(len(candidates))])[0]
    missing = hypotheses.positive[~derived[hypotheses.positive]]
    found.unexplained = [
        (target.relation, code) for target, code in map(hypotheses.atom, missing.tolist())
    ]
    found.candidates = candidates
    return hypotheses


def _choose(
    found: Found, pool: CandidatePool, options: SearchOptions, budget: Budget
) -> Choice | None:
    """Return the shortest choice among the candidates so far, and note what none derives."""
    before, candidates = found.choices[0] if found.choices else None, found.candidates
    choice = None
    proved = False
    bits = {number: one.relation.bits for number, one in pool.definitions.items()}
    try:
        if before is None or found.too_many_clauses:
            hypotheses = _compare_with_examples(found, pool, budget)
        else:  # a shorter program has no rule that is longer than the one so far
            found.candidates = pool.candidates(budget, before.bits)
            hypotheses = Hypotheses(pool.problem, found.candidates)
        none = bool(found.unexplained)
        if not none:
            if before is None and any(one.recursive for one in found.candidates):
                choice = _best_pair(hypotheses, bits, budget)
                found.choices = [] if choice is None else [choice]
            fraction = _CHOICE_FRACTION if found.choices else _FIRST_CHOICE_FRACTION
            most = math.inf if before is None or found.too_many_clauses else before.bits
            phase = budget.part(fraction=fraction)
            selection = Selection(hypotheses, bits, options.invent, phase, most)
            chosen = selection.shortest()
            if chosen and (choice is None or chosen.shortest or chosen.bits < choice.bits):
                choice = chosen
            none = choice is None and selection.finished
            proved = none and not found.too_many_clauses
            if choice is not None and len(choice.chosen) > (options.max_clauses or math.inf):
                selection.limit(options.max_clauses or 0)
                choice = replace(selection.shortest() or choice, shortest=False)
                found.too_many_clauses = len(choice.chosen) > (options.max_clauses or 0)
        if none and before is None and not pool.cut:
            found.excluded = found.literals
    except OutOfBudget:
        pass
    if before is not None and (choice is None or choice.bits > before.bits + 1e-6):
        # The choice among fewer candidates stands.
        found.choices, found.candidates = [replace(before, shortest=proved)], candidates
    elif choice is not None:
        found.choices = [choice]
    return found.choices[0] if found.choices else None


def _best_pair(
    hypotheses: Hypotheses, definitions: Mapping[int, float], budget: Budget
) -> Choice | None:
    """Return the shortest one or two candidates that explain the examples, without a proof."""
    candidates = hypotheses.candidates
    recursive = [n for n, one in enumerate(candidates) if one.recursive]
    bases = [n for n, one in enumerate(candidates) if not one.recursive]

    def bits(chosen: Sequence[int]) -> float:
        used = {d for number in chosen for d in candidates[number].definitions}
        return sum(candidates[n].bits for n in chosen) + sum(definitions[d] for d in used)

    sets: list[tuple[int, ...]] = [(n,) for n in range(len(candidates))]
    sets += itertools.product(bases, recursive)
    sets = sorted(sets, key=bits)[:_MOST_PAIRED]
    step = min(2_048, max(64, 20_000_000 // max(1, hypotheses.program.M)))
    for start in range(0, len(sets), step):
        part = sets[start : start + step]
        budget.spend(hypotheses.program.R * len(part) // 16)
        models = hypotheses.models(part)
        right = models[:, hypotheses.positive].all(axis=1)
        right &= ~models[:, hypotheses.negative].any(axis=1)
        if right.any():
            chosen = part[int(np.argmax(right))]
            return Choice(chosen, bits(chosen), False)
    return None


def _alternatives(
    found: Found, pool: CandidatePool, options: SearchOptions, budget: Budget
) -> None:
    """Add the next shortest programs that do not contain an earlier one."""
    best = found.choices[0]
    most = longest_alternative(best.bits)
    budget = budget.part(rows=_ALTERNATIVE_ROWS, fraction=_ALTERNATIVE_FRACTION, optional=True)
    bits = {number: one.relation.bits for number, one in pool.definitions.items()}
    chosen = [found.candidates[number] for number in best.chosen]
    # Beside a rule of a program of several, there is another one.
    least = min(one.bits for one in found.candidates) if len(chosen) > 1 else 0.0
    try:
        others = [one for one in pool.candidates(budget, most - least) if one not in chosen]
        found.candidates = [*chosen, *others]
        choice: Choice | None = replace(best, chosen=tuple(range(len(chosen))))
        found.choices = [choice] if choice else []
        hypotheses = Hypotheses(pool.problem, found.candidates)
        selection = Selection(hypotheses, bits, options.invent, budget, most)
        while choice is not None and len(found.choices) <= options.alternatives:
            selection.exclude(choice)
            budget.spend(0)
            choice = selection.shortest()
            if choice is not None:
                found.choices.append(choice)
    except OutOfBudget:
        pass
    found.alternatives_timed_out = budget.timed_out


def _invent(
    found: Found,
    pool: CandidatePool,
    problem: Problem,
    options: SearchOptions,
    budget: Budget,
    report: Report,
) -> None:
    """Add candidates that use an invented predicate."""
    relations = found.relations
    background, learned = _known_relations(problem)
    defining = budget.part(rows=_DEFINITION_FRACTION * budget.rows_left)
    first = definitions(problem, relations, background, len(relations), defining)
    _define(found, pool, first)
    if options.invent == 2:
        # The second predicate is defined by one of the first ones, and the background.
        for one in first[:_MOST_BASES]:
            if defining.stops():
                break
            usable = [*background, one.number]
            built = frozenset({one.number})
            found_now = definitions(
                problem, relations, usable, len(relations), defining, must_use=built
            )
            _define(found, pool, found_now[:_MOST_SECOND])
    invented = sorted(found.definitions)
    if not invented:
        return
    recursive = learned if options.recursive else []
    allowed = [*background, *invented, *recursive]
    seekers = _seekers(problem, relations, allowed, learned, options, invented)
    for level in range(1, min(_INVENTED_BODY, options.max_body) + 1):
        for seeker in seekers:
            limit = min(_limit(level, seeker, options), seeker.target.arity + 1)
            clauses, _ = seeker.next_level(limit, budget, frozenset(invented))
            pool.add(clauses, budget)
        report(
            f"invented predicates, bodies of {quantity(level, 'literal')}",
            pool.size,
            _share(found, problem),
        )


def _define(found: Found, pool: CandidatePool, made: Sequence[Definition]) -> None:
    for one in made:
        found.relations.append(one.relation)
        found.definitions[one.number] = pool.definitions[one.number] = one


def _least_bits(literals: int, problem: Problem, predicates: int) -> float:
    """Return the description length of the shortest clause of this many literals."""
    arities = [len(types) for types in problem.types]
    shortest = min(arities, default=1)
    clause = Clause(0, 1, ((0, (0,) * max(1, shortest)),) * literals)
    return clause_bits(clause, predicates)


def _share(found: Found, problem: Problem) -> float:
    total = sum(len(target.positive) for target in problem.targets)
    return 1.0 - len(found.unexplained) / max(1, total)
