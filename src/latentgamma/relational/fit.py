"""From examples of a relation to a certified Datalog program."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, Literal

import numpy as np

from latentgamma._arguments import one_of, real_number, whole_number, wrong
from latentgamma._checkpoint import Compute, Journal, compute_now
from latentgamma._version import __version__
from latentgamma.datalog.grounding import require_clingo
from latentgamma.errors import ArgumentError
from latentgamma.relational.budget import ROWS_OF_A_SECOND, Budget, OutOfBudget
from latentgamma.relational.clauses import (
    Clause,
    Hypotheses,
    TooManyRows,
    canonical,
    clause_bits,
    instances,
    set_bits,
)
from latentgamma.relational.functions import Functions
from latentgamma.relational.noisy import gradient_search, noisy_search
from latentgamma.relational.popper import find_recursive_rules, read_prolog
from latentgamma.relational.problem import (
    COMPARISONS,
    FACT,
    POSSIBLE,
    Facts,
    Language,
    Problem,
    Relation,
    atoms_of,
    encode,
    read_facts,
    read_problem,
)
from latentgamma.relational.result import Kind, RelationalResult, SearchStep, build_result
from latentgamma.relational.search import (
    Choice,
    Found,
    Report,
    Search,
    SearchOptions,
    leaves_bodies_out,
)

Method = Literal["auto", "search", "gradient"]
#: The fraction of the time to explain every example, less if there are positive ones only; and of the
#: time that is left to explain most of them.
_EXACT_FRACTION, _ALONE_FRACTION, _PARTIAL_FRACTION = 0.8, 0.5, 0.7
#: Positive examples that each rule of a closed world explains, if nobody said that it is closed.
_EXAMPLES_OF_A_RULE = 2
#: The fraction of the time to run recursive rules, the largest number of them, and rows for a shorter
#: program once some are found.
_RUN_FRACTION, _RULES_THAT_RUN, _AFTER_RUN_ROWS = 0.3, 3, 2 * ROWS_OF_A_SECOND
#: Work to find out whether an option would help.
_ADVICE_ROWS = 2 * ROWS_OF_A_SECOND
#: Rows for bodies of more variables, if no program was found.
_MORE_VARIABLES_ROWS = 10 * ROWS_OF_A_SECOND
ProgressCallback = Callable[[SearchStep], None]


def fit(
    background: Any,
    positive: Any,
    negative: Any = None,
    *,
    target: str | Iterable[str] | None = None,
    types: Mapping[str, Sequence[str]] | None = None,
    directions: Mapping[str, Sequence[str]] | None = None,
    world: str | Literal[False] | None = None,
    constants: bool | Iterable[Any] = False,
    negation: bool = False,
    comparisons: bool | Iterable[str] = False,
    closed_world: bool | None = None,
    ground_lists: int | None = None,
    definitions: str | None = None,
    invent: int = 0,
    recursive: bool = True,
    max_body: int = 6,
    max_variables: int = 6,
    max_clauses: int | None = None,
    noise: float | Literal["auto"] = 0.0,
    method: Method = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    work_limit: int | None = None,
    alternatives: int = 8,
    progress: ProgressCallback | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> RelationalResult:
    """Return the shortest Datalog program that explains examples of a relation.

    Args:
        background: facts as Datalog text, a path, tables by predicate such as
            `{"parent": [("ann", "bob")]}`, or tuples `("parent", "ann", "bob")`. Rules in the text
            are evaluated.
        positive: examples that follow, in any of these forms.
        negative: examples that do not follow. Tuples in neither have no label.
        target: the predicates to learn; by default those of the positive examples.
        types: the types of the arguments by predicate, such as `{"has_car": ("train", "car")}`; a
            variable has one type. By default arguments that share a constant have the same type.
        directions: "in" or "out" for each argument by predicate; a literal's inputs are variables
            that the head or an earlier literal has. By default there are none.
        world: the type whose constants are separate worlds, such as the states of a game: a rule has
            one variable of it. By default a declared type that no predicate relates to itself and
            that every target has once; False for none.
        constants: True lets rules name constants, where an argument has at most 20; or the constants
            that rules may name.
        negation: whether bodies may hold `not p(X,Y)`, for predicates of the background.
        comparisons: True, or some of "!=", "<" (also `<=`) and ">=" (thresholds, also `<=`, chosen
            from the values in the data).
        closed_world: True counts every tuple that is not a positive example as false, if no negative
            examples are given. False learns from positive examples alone: the description is the
            program, and which of the atoms that it derives are the examples. By default the first is
            tried, and its program is returned if it has at most two rules, or one for every two
            examples.
        ground_lists: reads the background as Prolog, and evaluates its predicates for the terms that the
            examples reach; lists that they build have at most this many items. Examples hold terms, such
            as `("last", "[1,2,3]", 3)`.
        definitions: Prolog clauses of background predicates that have `directions`, as `read_popper`
            returns them: recursive rules are then also sought by running them, so that they may
            build terms that the background does not hold. With `ground_lists` it is the background.
        invent: the largest number of invented predicates, at most 2; with wrong labels at most 1.
        recursive: whether rules may use the targets.
        max_body: the largest number of literals in a body.
        max_variables: the largest number of variables in a rule.
        max_clauses: the largest number of rules, if such a program is found; else a longer one.
        noise: the fraction of wrong labels, or "auto" to estimate it.
        method: "search" enumerates clauses and chooses among them; "gradient" trains the choice;
            "auto" is "search".
        seed: the seed of everything random.
        time_limit: in seconds, for the whole call; the best program so far is then returned, and
            `timed_out` is True. A call that ends before the limit has the same result every time.
        work_limit: the largest number of units of work, of which a second has about 10⁸; with it, and
            a time limit that is not reached, the result is the same on every machine.
        alternatives: the largest number of alternatives.
        progress: called with a `SearchStep` after each stage, for example an `lg.learning.ProgressBar()`.
        checkpoint: a file to keep finished levels of the search in; a call with the same examples
            and options, of the same release, resumes from there. The file is not deleted. For method "search" with
            clean labels.

    Returns:
        The program, evidence for each rule, alternatives, and the certificate of its network.

    Raises:
        DataError: the facts or examples cannot be used.
        ArgumentError: an option has a value that it cannot have.
        MissingPackageError: clingo is not installed.

    >>> result = fit(
    ...     {"parent": [("ann", "bob"), ("bob", "cid"), ("bob", "dan"), ("eve", "ann")]},
    ...     [("grandparent", "ann", "cid"), ("grandparent", "ann", "dan"), ("grandparent", "eve", "bob")],
    ... )
    >>> print(result.text)
    grandparent(X,Y) :- parent(X,Z), parent(Z,Y).
    >>> result.certificate.holds
    True
    """
    require_clingo()
    options = SearchOptions(
        invent, recursive, max_body, max_variables, seed, alternatives, max_clauses
    )
    _check(options, noise, method, time_limit, work_limit, ground_lists, checkpoint)
    language = _language(types, directions, world, constants, negation, comparisons, closed_world)
    budget = Budget(time_limit, work_limit=work_limit)
    unused: list[str] = []
    if ground_lists is not None:
        files = read_prolog(
            background, positive, negative, ground_lists, types, directions, time_limit
        )
        background, positive, negative = files.background, files.positive, files.negative
        definitions, unused = files.options["definitions"], files.unused

    facts, shown = read_facts(background, "background"), read_facts(positive, "positive")
    refused = None if negative is None else read_facts(negative, "negative")

    def read(language: Language, *, apart: bool = True, known: Facts = facts) -> Problem:
        return read_problem(
            known, shown, refused, target, noise=bool(noise), language=language, apart=apart
        )

    def run_rules(phase: Budget) -> tuple[Problem, Found] | None:
        """Return recursive rules that were found by running them, with the facts that they use."""
        if definitions is None or not recursive or refused is None or not directions:
            return None
        examples = (atoms_of(shown), atoms_of(refused))
        limits = (max_body, max_variables, max_clauses or _RULES_THAT_RUN)
        made = find_recursive_rules(definitions, examples, types, directions, limits, phase)
        if made is None:
            return None
        known = dict(facts)
        for name, rows in made.facts.items():
            known[name] = list(dict.fromkeys([*facts.get(name, []), *rows]))
        more = read(language, known=known)
        found = _candidates_that_run(more, made, phase)
        return None if found is None else (more, found)

    problem = read(language)
    widest = max(target.arity for target in problem.targets)
    if max_variables < widest:
        raise ArgumentError(
            f"a target has {widest} arguments, but max_variables is {max_variables}"
        )
    history: list[SearchStep] = []

    def report(stage: str, candidates: int, explained: float) -> None:
        step = SearchStep(stage, candidates, explained, budget.seconds)
        history.append(step)
        if progress is not None:
            progress(step)

    fraction = None if noise == "auto" else float(noise)
    kind = Kind.CLEAN
    advice: str | None = None
    estimate: float | None = None
    if method == "gradient":
        found, share = gradient_search(problem, options, fraction, budget, report)
        estimate = (fraction or share) if noise else None
    elif noise:
        found, share = noisy_search(problem, options, fraction, budget, report)
        estimate = fraction or share
    else:
        about: dict[str, Any] = {"data": problem.digest, "release": __version__}
        with contextlib.ExitStack() as stack:
            compute: Compute = compute_now
            if checkpoint is not None:
                about |= {"relational": [*astuple(options)]}
                compute = stack.enter_context(Journal(checkpoint, about)).compute
            alone = negative is None and not closed_world
            phase = budget.part(fraction=_ALONE_FRACTION)
            found = Search(problem, options, phase, report).run() if problem.apart else Found()
            if not found.choices or (alone and not _is_plausible(problem, found)):
                problem = read(language, apart=False) if problem.apart else problem
                problem, found, kind = _clean(
                    problem, options, alone, closed_world, budget, report, compute, run_rules
                )
        if kind is not Kind.CLEAN or not found.choices:
            bits = found.choices[0].bits if found.choices else math.inf
            advice = _helpful_option(read, language, problem, options, bits, budget)
    return build_result(
        replace(problem, notes=(*problem.notes, *(f"not used: {text}" for text in unused))),
        found,
        options,
        tuple(history),
        budget,
        noise=estimate,
        method="gradient" if method == "gradient" else "search",
        kind=kind if estimate is None else Kind.NOISY,
        language=language,
        advice=advice,
    )


def _clean(
    problem: Problem,
    options: SearchOptions,
    alone: bool,
    closed_world: bool | None,
    budget: Budget,
    report: Report,
    compute: Compute,
    run_rules: Callable[[Budget], tuple[Problem, Found] | None],
) -> tuple[Problem, Found, Kind]:
    """Return a program for labels that are all right, else the best for most of them.

    `alone` is whether positive examples are all there is to learn from. The problem that is returned
    has the facts that the program needs.
    """
    found = Found(relations=list(problem.relations))
    if closed_world is not False or not alone:
        made = run_rules(budget.part(fraction=_RUN_FRACTION, optional=True))
        rows = math.inf
        if made is not None:
            report("recursive rules that were run", len(made[1].candidates), 1.0)
            rows = _AFTER_RUN_ROWS
        fraction = _ALONE_FRACTION if alone else _EXACT_FRACTION
        phase = budget.part(rows=rows, fraction=fraction)
        found = Search(problem, options, phase, report, compute).run()
        if made is not None:
            bits = made[1].choices[0].bits
            if not found.choices or found.choices[0].bits > bits + 1e-6:
                return *made, Kind.CLEAN
        right = bool(found.choices) and (not alone or _is_plausible(problem, found))
        if right and not found.too_many_clauses:
            return problem, found, Kind.CLEAN
        unfinished = not found.choices or found.too_many_clauses
        if unfinished and leaves_bodies_out(problem, options) and not phase.stops():
            # Two literals of a wide predicate may need more variables than were tried.
            more = replace(options, all_variables=True)
            wide = Search(problem, more, phase.part(rows=_MORE_VARIABLES_ROWS), report).run()
            better = not right or (wide.choices and not wide.too_many_clauses)
            if wide.choices and better and (not alone or _is_plausible(problem, wide)):
                return problem, replace(wide, shortest=False), Kind.CLEAN
        if right:
            return problem, found, Kind.CLEAN
    one_left = replace(options, invent=min(options.invent, 1))
    phase = budget.part(fraction=_PARTIAL_FRACTION)
    if alone:
        other, _ = noisy_search(problem, one_left, None, phase, report, positives_only=True)
        if other.choices or not found.choices:
            return problem, other, Kind.POSITIVE
        return problem, found, Kind.CLEAN
    other, _ = noisy_search(problem, one_left, None, phase, report, more=found.candidates)
    other.excluded = found.excluded
    if other.choices:
        return problem, other, Kind.PARTIAL
    other.unexplained, other.notes = found.unexplained, found.notes
    return problem, other, Kind.CLEAN


def _candidates_that_run(problem: Problem, made: Functions, budget: Budget) -> Found | None:
    """Return rules that were run as a choice; None if they do not explain the examples after all."""
    (target,) = problem.targets
    n = len(problem.constants)
    of_cell = {cell: number for number, cell in enumerate(problem.constants)}
    rows = np.array([[of_cell[cell] for cell in row] for row in made.atoms], np.int64)
    known = np.isin(encode(list(rows.T), n, len(rows)), target.positive)
    truth = np.where(known, FACT, POSSIBLE).astype(np.uint8)
    relations = list(problem.relations)
    relations[target.relation] = Relation(
        target.name, rows, n, target.types, truth, inputs=target.inputs
    )
    by_name = {(one.name, one.arity): number for number, one in enumerate(relations)}
    candidates = []
    for rule in made.rules:
        body = canonical([(by_name[name], literal) for name, literal in rule], target.arity)
        clause = Clause(target.relation, target.arity, body)
        bits = clause_bits(clause, len(relations))
        one = None
        with contextlib.suppress(OutOfBudget, TooManyRows):
            one = instances(clause, bits, problem, target, relations, [target.relation], budget)
        if one is None:
            return None
        candidates.append(one)
    hypotheses = Hypotheses(problem, candidates)
    chosen = tuple(range(len(candidates)))
    if not hypotheses.explain([chosen])[0]:
        return None
    choice = Choice(chosen, set_bits(candidates), False)
    return Found([choice], candidates, relations=relations)


def _is_plausible(problem: Problem, found: Found) -> bool:
    """Return whether a program for a closed world has few rules for its examples."""
    positive = sum(len(target.positive) for target in problem.targets)
    rules = len(found.choices[0].chosen)
    return rules <= 2 or positive >= _EXAMPLES_OF_A_RULE * rules


def _helpful_option(
    read: Callable[[Language], Problem],
    language: Language,
    problem: Problem,
    options: SearchOptions,
    bits: float,
    budget: Budget,
) -> str | None:
    """Return an option with which a program explains every example, as far as a short search shows.

    Its description has to be shorter than that of the best program without it, and its exceptions.
    """
    trials: list[tuple[str, Language, SearchOptions]] = []
    if not options.recursive:
        trials.append(("recursive=True", language, replace(options, recursive=True)))
    if not language.comparisons:
        trials.append(("comparisons=True", replace(language, comparisons=COMPARISONS), options))
    if not language.constants:
        trials.append(("constants=True", replace(language, constants=True), options))
    if not language.negation:
        trials.append(("negation=True", replace(language, negation=True), options))
    if not options.invent:
        trials.append(("invent=1", language, replace(options, invent=1)))
    for number, (name, other, limits) in enumerate(trials):
        phase = budget.part(rows=_ADVICE_ROWS, fraction=1 / (len(trials) - number), optional=True)
        if phase.over:
            return None
        changed = problem if other is language else read(other)
        if len(changed.background) == len(problem.background) and limits is options:
            continue  # the option adds nothing here
        short = replace(limits, alternatives=0, max_body=min(4, limits.max_body))
        found = Search(changed, short, phase, lambda *_: None).run()
        if found.choices and found.choices[0].bits < bits and _is_plausible(changed, found):
            return name
    return None


def _language(
    types: Any,
    directions: Any,
    world: Any,
    constants: Any,
    negation: Any,
    comparisons: Any,
    closed_world: Any,
) -> Language:
    """Return what rules may hold, from the arguments of `fit`."""
    if not (world is None or world is False or isinstance(world, str)):
        raise wrong("world", "the name of a type, False or None", world)
    for name, value in (("negation", negation), ("closed_world", closed_world or False)):
        if not isinstance(value, bool):
            raise wrong(name, "True or False", value)
    if not isinstance(constants, bool):
        if isinstance(constants, str) or not isinstance(constants, Iterable):
            raise wrong("constants", "True, False or a list of constants", constants)
        constants = tuple(str(value) for value in constants)
    if isinstance(comparisons, bool):
        comparisons = COMPARISONS if comparisons else ()
    elif isinstance(comparisons, str) or not isinstance(comparisons, Iterable):
        raise wrong("comparisons", f"True, False or some of {COMPARISONS}", comparisons)
    comparisons = tuple(comparisons)
    for sign in comparisons:
        one_of("comparisons", sign, COMPARISONS)
    return Language(types, directions, world, constants or (), negation, comparisons)


def _check(
    options: SearchOptions,
    noise: Any,
    method: Any,
    time_limit: Any,
    work_limit: Any,
    ground_lists: Any,
    checkpoint: Any,
) -> None:
    """Raise an ArgumentError for a wrong value, and for an option that the method does not use."""
    for name, least, most in (
        ("max_body", 1, None),
        ("max_variables", 1, None),
        ("seed", 0, None),
        ("alternatives", 0, None),
        ("invent", 0, 2),
    ):
        whole_number(name, getattr(options, name), least, most)
    for name, value, least in (
        ("max_clauses", options.max_clauses, 1),
        ("work_limit", work_limit, 1),
        ("ground_lists", ground_lists, 0),
    ):
        if value is not None:
            whole_number(name, value, least)
    if not isinstance(options.recursive, bool):
        raise wrong("recursive", "True or False", options.recursive)
    one_of("method", method, ("auto", "search", "gradient"))
    if noise != "auto":
        expected = 'a fraction from 0 to 0.5, 0.5 excluded, or "auto"'
        real_number("noise", noise, expected, lambda fraction: 0 <= fraction < 0.5)
    real_number("time_limit", time_limit, "a number of seconds above 0", lambda x: x > 0)
    if noise and options.invent > 1:
        raise ArgumentError(f"with wrong labels, invent is at most 1, not {options.invent}")
    if checkpoint is not None and (noise or method == "gradient"):
        raise ArgumentError(
            "a checkpoint is kept by method 'search' without wrong labels only; leave it out"
        )
