"""From examples of a relation to a certified Datalog program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any, Literal

from latentgamma._arguments import one_of, real_number, whole_number, wrong
from latentgamma._checkpoint import (
    Compute,
    Journal,
    compute_now,
)
from latentgamma._version import __version__
from latentgamma.datalog.grounding import require_clingo
from latentgamma.errors import ArgumentError
from latentgamma.relational.budget import Budget
from latentgamma.relational.noisy import gradient_search, noisy_search
from latentgamma.relational.problem import read_problem
from latentgamma.relational.result import RelationalResult, SearchStep, build_result
from latentgamma.relational.search import SearchOptions, search

Method = Literal["auto", "search", "gradient"]
ProgressCallback = Callable[[SearchStep], None]


def fit(
    background: Any,
    positive: Any,
    negative: Any = None,
    *,
    target: str | Iterable[str] | None = None,
    invent: int = 0,
    recursive: bool = True,
    max_body: int = 6,
    max_variables: int = 6,
    noise: float | Literal["auto"] = 0.0,
    method: Method = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
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
        negative: examples that do not follow. Without any, everything that is not a positive
            example counts as false (closed world). Tuples in neither have no label.
        target: the predicates to learn; by default those of the positive examples.
        invent: the largest number of invented predicates, at most 2; with wrong labels at most 1.
        recursive: whether rules may use the targets.
        max_body: the largest number of literals in a body.
        max_variables: the largest number of variables in a rule.
        noise: the fraction of wrong labels, or "auto" to estimate it.
        method: "search" enumerates clauses and chooses among them; "gradient" trains the choice;
            "auto" is "search".
        seed: the seed of everything random.
        time_limit: in seconds, for the whole call; the best program so far is then returned, and
            `timed_out` is True. A call that ends before the limit has the same result every time.
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
    options = _check_options(
        invent=invent,
        recursive=recursive,
        max_body=max_body,
        max_variables=max_variables,
        seed=seed,
        alternatives=alternatives,
    )
    _check_others(noise, method, time_limit)
    _refuse_without_effect(noise, method, invent, checkpoint)
    budget = Budget(time_limit)
    problem = read_problem(background, positive, negative, target, noise=bool(noise))
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
    estimate: float | None = None
    if method == "gradient":
        found, wrong = gradient_search(problem, options, fraction, budget, report)
        estimate = (fraction or wrong) if noise else None
    elif noise:
        found, wrong = noisy_search(problem, options, fraction, budget, report)
        estimate = fraction or wrong
    else:
        about = {
            "data": problem.digest,
            "release": __version__,
            "relational": [*astuple(options)],
        }
        with contextlib.ExitStack() as stack:
            compute: Compute = compute_now
            if checkpoint is not None:
                compute = stack.enter_context(Journal(checkpoint, about)).compute
            found = search(problem, options, budget, report, compute)
    return build_result(
        problem,
        found,
        options,
        tuple(history),
        budget,
        noise=estimate,
        method="gradient" if method == "gradient" else "search",
    )


def _check_options(
    *,
    invent: int,
    recursive: bool,
    max_body: int,
    max_variables: int,
    seed: int,
    alternatives: int,
) -> SearchOptions:
    for name, value, least in (
        ("max_body", max_body, 1),
        ("max_variables", max_variables, 1),
        ("seed", seed, 0),
        ("alternatives", alternatives, 0),
    ):
        whole_number(name, value, least)
    whole_number("invent", invent, 0, 2)
    if not isinstance(recursive, bool):
        raise wrong("recursive", "True or False", recursive)
    return SearchOptions(invent, recursive, max_body, max_variables, seed, alternatives)


def _refuse_without_effect(noise: Any, method: Any, invent: int, checkpoint: Any) -> None:
    """Raise an ArgumentError for options that this method does not use."""
    if noise and invent > 1:
        raise ArgumentError(f"with wrong labels, invent is at most 1, not {invent}")
    if checkpoint is not None and (noise or method == "gradient"):
        raise ArgumentError(
            "a checkpoint is kept by method 'search' without wrong labels only; leave it out"
        )


def _check_others(noise: Any, method: Any, time_limit: Any) -> None:
    one_of("method", method, ("auto", "search", "gradient"))
    if noise != "auto":
        expected = 'a fraction from 0 to 0.5, 0.5 excluded, or "auto"'
        real_number("noise", noise, expected, lambda fraction: 0 <= fraction < 0.5)
    real_number("time_limit", time_limit, "a number of seconds above 0", lambda x: x > 0)
