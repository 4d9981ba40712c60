"""The search for a program: candidates level by level, the shortest choice, and its alternatives."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from latentgamma._learning.journal import Compute, compute_now
from latentgamma._learning.wording import quantity
from latentgamma.relational.bodies import BodySearch, Examples
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
#: Once a program is found, shorter ones are sought for this share of the time so far, or these
#: seconds.
_MORE_SHARE, _MORE_SECONDS = 1.0, 1.0
#: Seconds for two invented predicates, which take longer.
_SECOND_SECONDS = 20.0
#: First predicates on which a second one is built, and definitions of it for each.
_MOST_BASES, _MOST_SECOND = 20, 60
#: Alternatives may be longer than the shortest program by this share, and by these bits.
_SLACK_SHARE, _SLACK_BITS = 0.35, 6.0
#: Seconds for the alternatives.
_ALTERNATIVE_SECONDS = 4.0

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
        unexplained: the relation and code of positive examples that no candidate derives.
        notes: what was left out.
    """

    choices: list[Choice] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    definitions: dict[int, Definition] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    literals: int = 0
    shortest: bool = False
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
    deadline: float,
    report: Report,
    compute: Compute = compute_now,
) -> Found:
    """Return the shortest programs; `compute` returns the finished levels of an earlier run."""
    start, time_limit = time.process_time(), deadline
    found, seekers, pool = _start(problem, options)
    invented = False
    level = 0
    while level < options.max_body:
        level += 1
        complete = True
        for seeker in seekers:
            limit = _limit(level, seeker, options)
            clauses, whole = _level(seeker, level, limit, deadline, compute)
            complete &= whole and not seeker.too_large
            refused, all_added = pool.add(clauses, deadline)
            complete &= all_added
            seeker.grow(refused)
        best = _choose(found, pool, options, deadline)
        report(
            f"bodies of {quantity(level, 'literal')}", len(pool.candidates), _share(found, problem)
        )
        if complete and found.literals == level - 1:
            found.literals = level
        now = time.process_time()
        if best is not None:
            most = longest_alternative(best.bits)
            if most <= _least_bits(level + 1, problem, pool.predicates):
                break
            deadline = min(deadline, now + max(_MORE_SECONDS, _MORE_SHARE * (now - start)))
        enough = best is not None or level >= 3
        if options.invent and not invented and enough:
            invented = True
            until = deadline if options.invent == 1 else min(time_limit, now + _SECOND_SECONDS)
            _invent(found, pool, problem, options, until, report)
            best = _choose(found, pool, options, max(until, time.process_time() + 3.0))
        if now > deadline:
            break
    if best is not None:
        enough = found.literals >= 1 and len(pool.candidates) < MOST_CANDIDATES
        enough &= all(seeker.examples.every_positive for seeker in seekers)
        found.shortest = best.shortest and enough and pool.labelled
        _alternatives(found, pool, options, time_limit)
    for seeker in seekers:
        if seeker.too_large:
            found.notes.append(
                f"{quantity(seeker.too_large, 'body', 'bodies')} of {seeker.target.name} with too "
                "many instances were left out"
            )
    if len(pool.candidates) >= MOST_CANDIDATES:
        found.notes.append(f"only the {MOST_CANDIDATES:,} shortest candidate rules were compared")
    return found


def covering_candidates(
    problem: Problem, options: SearchOptions, deadline: float, report: Report
) -> tuple[list[Candidate], Found]:
    """Return the candidates of the first level at which they derive every positive example."""
    found, seekers, pool = _start(problem, options)
    for level in range(1, options.max_body + 1):
        for seeker in seekers:
            limit = _limit(level, seeker, options)
            clauses, whole = seeker.next_level(limit, deadline)
            refused, _ = pool.add(clauses, deadline)
            seeker.grow(refused)
        if level == 3 and options.invent:
            _invent(found, pool, problem, options, deadline, report)
        hypotheses = Hypotheses(problem, pool.candidates)
        derived = hypotheses.models([range(len(pool.candidates))])[0][hypotheses.positive]
        missing = hypotheses.positive[~derived]
        found.unexplained = [(t.relation, c) for t, c in map(hypotheses.atom, missing.tolist())]
        found.literals += whole
        stage = f"bodies of {quantity(level, 'literal')}"
        report(stage, len(pool.candidates), _share(found, problem))
        if not found.unexplained or time.process_time() > deadline:
            break
    return pool.candidates, found


def _level(
    seeker: BodySearch, level: int, variables: int, deadline: float, compute: Compute
) -> tuple[list[Clause], bool]:
    """Return the candidates of a level, from an earlier run if it finished the level."""
    target = seeker.target
    partial: list[Clause] = []

    def work() -> list[object]:
        clauses, whole = seeker.next_level(variables, deadline)
        if not whole:
            partial.extend(clauses)
            raise _OutOfTime
        return [[clause.body for clause in clauses], seeker.frontier, seeker.too_large]

    try:
        bodies, frontier, too_large = compute(f"{target.name}/{target.arity} level {level}", work)
    except _OutOfTime:
        return partial, False
    seeker.literals = level
    seeker.frontier = [as_body(body) for body in frontier]
    seeker.too_large = too_large
    return [Clause(target.relation, target.arity, as_body(body)) for body in bodies], True


class _OutOfTime(Exception):  # noqa: N818 - never leaves the module
    """A level was not finished, so it is not saved."""


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
            Examples.of(problem, target, MOST_EXAMPLES, options.seed),
            exclusive,
        )
        for target in problem.targets
    ]


def _choose(
    found: Found, pool: CandidatePool, options: SearchOptions, deadline: float
) -> Choice | None:
    """Return the shortest choice among the candidates so far, and note what none derives."""
    candidates = pool.candidates
    hypotheses = Hypotheses(pool.problem, candidates)
    derived = hypotheses.models([range(len(candidates))])[0]
    missing = hypotheses.positive[~derived[hypotheses.positive]]
    found.unexplained = [
        (target.relation, code) for target, code in map(hypotheses.atom, missing.tolist())
    ]
    if len(missing):
        return None
    bits = {number: one.relation.bits for number, one in pool.definitions.items()}
    selection = Selection(hypotheses, bits, options.invent)
    seconds = max(1.0, min(10.0, deadline - time.process_time()))
    choice = selection.shortest(time.process_time() + seconds)
    before = found.choices[0] if found.choices else None
    if before is not None and (choice is None or choice.bits > before.bits + 1e-6):
        # Out of time: the choice among fewer candidates stands, but is not proved to be shortest.
        found.choices = [replace(before, shortest=False)]
    elif choice is not None:
        found.choices, found.candidates = [choice], candidates
    return found.choices[0] if found.choices else None


def _alternatives(
    found: Found, pool: CandidatePool, options: SearchOptions, time_limit: float
) -> None:
    """Add the next shortest programs that do not contain an earlier one."""
    hypotheses = Hypotheses(pool.problem, found.candidates)
    bits = {number: one.relation.bits for number, one in pool.definitions.items()}
    selection = Selection(hypotheses, bits, options.invent)
    now = time.process_time()
    deadline = now + min(_ALTERNATIVE_SECONDS, max(0.5, time_limit - now))
    best = found.choices[0]
    most = longest_alternative(best.bits)
    choice: Choice | None = best
    found.choices = [best]
    while choice is not None and len(found.choices) <= options.alternatives:
        selection.exclude(choice)
        if time.process_time() > deadline:
            break
        choice = selection.shortest(deadline)
        if choice is None or choice.bits > most:
            break
        found.choices.append(choice)


def _invent(
    found: Found,
    pool: CandidatePool,
    problem: Problem,
    options: SearchOptions,
    deadline: float,
    report: Report,
) -> None:
    """Add candidates that use an invented predicate."""
    relations = found.relations
    background, learned = _known_relations(problem)
    first = definitions(problem, relations, background, len(relations), deadline)
    _define(found, pool, first)
    if options.invent == 2:
        # The second predicate is defined by one of the first ones, and the background.
        for one in first[:_MOST_BASES]:
            if time.process_time() > deadline - 0.3 * _SECOND_SECONDS:
                break
            usable = [*background, one.number]
            built = frozenset({one.number})
            found_now = definitions(
                problem, relations, usable, len(relations), deadline, must_use=built
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
            clauses, _ = seeker.next_level(limit, deadline, frozenset(invented))
            pool.add(clauses, deadline)
        report(
            f"invented predicates, bodies of {quantity(level, 'literal')}",
            len(pool.candidates),
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
