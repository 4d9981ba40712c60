"""The search for a program: candidates level by level, the shortest choice, and its alternatives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from latentgamma._learning.journal import Compute, compute_now
from latentgamma._learning.wording import quantity
from latentgamma.relational.bodies import BodySearch, Examples
from latentgamma.relational.budget import ROWS_OF_A_SECOND, Budget, OutOfBudget
from latentgamma.relational.clauses import Clause, as_body, clause_bits
from latentgamma.relational.instances import Candidate, Hypotheses
from latentgamma.relational.invention import Definition, definitions
from latentgamma.relational.pool import MOST_CANDIDATES, CandidatePool
from latentgamma.relational.problem import Problem
from latentgamma.relational.relations import Relation
from latentgamma.relational.selection import Choice, Selection

#: Examples of each kind that bodies are first tested on.
MOST_EXAMPLES = 3_000
#: Bodies of up to so many variables are all tried, those of more where they are long enough.
ALL_VARIABLES = 4
#: Literals in a body that uses an invented predicate.
_INVENTED_BODY = 2
#: Of the time, the share for bodies; of what is then left, the share for the choice among them.
_BODY_SHARE, _CHOICE_SHARE = 0.8, 0.7
#: Once a program is found, shorter ones are sought with as much work as so far, or these rows.
_MORE_ROWS = ROWS_OF_A_SECOND
#: Rows for two invented predicates, which take longer, and the share of them for definitions.
_SECOND_ROWS, _DEFINITION_SHARE = 20 * ROWS_OF_A_SECOND, 0.7
#: First predicates on which a second one is built, and definitions of it for each.
_MOST_BASES, _MOST_SECOND = 20, 60
#: Alternatives may be longer than the shortest program by this share, and by these bits.
_SLACK_SHARE, _SLACK_BITS = 0.35, 6.0
#: Rows for the alternatives, and the share of the time that is left.
_ALTERNATIVE_ROWS, _ALTERNATIVE_SHARE = 4 * ROWS_OF_A_SECOND, 0.5

Report = Callable[[str, int, float], None]


@dataclass
class Found:
    """What a search found.

    Attributes:
        choices: programs, the shortest first.
        candidates: what the choices choose from.
        definitions: invented predicates by number.
        relations: all relations by number.
        literals: bodies of up to so many literals were all tried.
        shortest: whether no program in that language is shorter.
        excluded: no program has bodies of up to so many literals.
        unexplained: the relation and code of positive examples that no candidate derives.
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


def most_variables(literals: int, arity: int, widest: int, limit: int) -> int:
    """Return the largest number of variables in a body of so many literals.

    Every body of up to `ALL_VARIABLES` variables is within it, also while it grows.

    Args:
        literals: in the body.
        arity: of the head.
        widest: the largest arity in the body.
        limit: of all bodies.
    """
    reached = arity + literals * max(1, widest - 1)
    return min(limit, max(literals + 1, min(reached, ALL_VARIABLES)))


def longest_alternative(bits: float) -> float:
    """Return the largest description length of an alternative to a program of so many bits."""
    return bits * (1 + _SLACK_SHARE) + _SLACK_BITS


def _limit(level: int, seeker: BodySearch, options: SearchOptions) -> int:
    widest = max(relation.arity for relation in seeker.relations)
    return most_variables(level, seeker.target.arity, widest, options.max_variables)


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
    seekers = _seekers(problem, relations, allowed, learned, options)
    return (
        Found(relations=relations),
        seekers,
        CandidatePool(problem, relations, learned, len(allowed)),
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
    bodies = budget.part(share=_BODY_SHARE)
    best: Choice | None = None
    invented = False
    level = 0
    while level < options.max_body:
        level += 1
        complete = _add_level(seekers, pool, level, options, bodies, compute)
        if complete and found.literals == level - 1:
            found.literals = level
        best = _choose(found, pool, options, budget)
        report(f"bodies of {quantity(level, 'literal')}", pool.size, _share(found, problem))
        if best is not None:
            if longest_alternative(best.bits) <= _least_bits(level + 1, problem, pool.predicates):
                break
            more = max(_MORE_ROWS, budget.work)
            bodies = bodies.part(rows=more)
        enough = best is not None or level >= 3
        if options.invent and not invented and enough:
            invented = True
            until = bodies if options.invent == 1 else budget.part(rows=_SECOND_ROWS)
            _invent(found, pool, problem, options, until, report)
            best = _choose(found, pool, options, budget)
        if bodies.over:
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
    bodies = budget.part(share=_BODY_SHARE)
    for level in range(1, options.max_body + 1):
        complete = _add_level(seekers, pool, level, options, bodies)
        if complete and found.literals == level - 1:
            found.literals = level
        if level == 3 and options.invent:
            _invent(found, pool, problem, options, bodies, report)
        found.candidates = []
        with contextlib.suppress(OutOfBudget):
            _compare_with_examples(found, pool, budget)
        report(f"bodies of {quantity(level, 'literal')}", pool.size, _share(found, problem))
        if not found.unexplained or bodies.over:
            break
    _note_what_was_left_out(found, seekers, pool)
    return found.candidates, found


def _add_level(
    seekers: Sequence[BodySearch],
    pool: CandidatePool,
    level: int,
    options: SearchOptions,
    budget: Budget,
    compute: Compute = compute_now,
) -> bool:
    """Add the candidates with one more literal; return whether all bodies of it were tried."""
    complete = True
    for seeker in seekers:
        clauses, whole = _level(seeker, level, _limit(level, seeker, options), budget, compute)
        refused, all_added = pool.add(clauses, budget)
        seeker.grow(refused)
        complete &= whole and all_added and seeker.examples.complete and not seeker.too_large
    return complete and not pool.too_large and not pool.cut


def _note_what_was_left_out(
    found: Found, seekers: Sequence[BodySearch], pool: CandidatePool
) -> None:
    too_large = pool.too_large + sum(seeker.too_large for seeker in seekers)
    if too_large:
        bodies = quantity(too_large, "body", "bodies")
        found.notes.append(f"{bodies} with too many instances were left out")
    if not all(seeker.examples.complete for seeker in seekers):
        found.notes.append("bodies were tested on a sample of the tuples")
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
        return [bodies, seeker.frontier, seeker.too_large, budget.work - before]

    try:
        name = f"{target.name}/{target.arity} level {level}"
        bodies, frontier, too_large, rows = compute(name, work)
    except OutOfBudget:
        return partial, False
    # A resumed run counts the work of the earlier one, and so ends where that one would have ended.
    budget.count(before + rows - budget.work)
    seeker.literals = level
    seeker.frontier = [as_body(body) for body in frontier]
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
    budget.spend(sum(len(one.heads) * (2 + len(one.bodies)) for one in candidates))
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
    try:
        hypotheses = _compare_with_examples(found, pool, budget)
        none = bool(found.unexplained)
        if not none:
            bits = {number: one.relation.bits for number, one in pool.definitions.items()}
            part = budget.part(share=_CHOICE_SHARE)
            selection = Selection(hypotheses, bits, options.invent, part)
            choice = selection.shortest()
            none = choice is None and selection.finished
        if none and not pool.cut:
            found.excluded = found.literals
    except OutOfBudget:
        pass
    if before is not None and (choice is None or choice.bits > before.bits + 1e-6):
        # The choice among fewer candidates stands, but is not proved to be the shortest.
        found.choices, found.candidates = [replace(before, shortest=False)], candidates
    elif choice is not None:
        found.choices = [choice]
    return found.choices[0] if found.choices else None


def _alternatives(
    found: Found, pool: CandidatePool, options: SearchOptions, budget: Budget
) -> None:
    """Add the next shortest programs that do not contain an earlier one."""
    best = found.choices[0]
    most = longest_alternative(best.bits)
    budget = budget.part(rows=_ALTERNATIVE_ROWS, share=_ALTERNATIVE_SHARE)
    bits = {number: one.relation.bits for number, one in pool.definitions.items()}
    choice: Choice | None = best
    try:
        hypotheses = Hypotheses(pool.problem, found.candidates)
        selection = Selection(hypotheses, bits, options.invent, budget)
        while choice is not None and len(found.choices) <= options.alternatives:
            selection.exclude(choice)
            budget.spend(0)
            choice = selection.shortest()
            if choice is None or choice.bits > most:
                break
            found.choices.append(choice)
    except OutOfBudget:
        pass


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
    defining = budget.part(rows=_DEFINITION_SHARE * budget.rows_left)
    first = definitions(problem, relations, background, len(relations), defining)
    _define(found, pool, first)
    if options.invent == 2:
        # The second predicate is defined by one of the first ones, and the background.
        for one in first[:_MOST_BASES]:
            if defining.over:
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
    """Return the description length of the shortest clause of so many literals."""
    arities = [len(types) for types in problem.types]
    shortest = min(arities, default=1)
    clause = Clause(0, 1, ((0, (0,) * max(1, shortest)),) * literals)
    return clause_bits(clause, predicates)


def _share(found: Found, problem: Problem) -> float:
    total = sum(len(target.positive) for target in problem.targets)
    return 1.0 - len(found.unexplained) / max(1, total)
