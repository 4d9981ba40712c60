"""Tasks for learning rules with variables: the twenty tasks of ∂ILP, with random instances.

Each task has its true program, and a generator of random backgrounds of a given size. The labels
are what the true program derives.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latentgamma._errors import ArgumentError
from latentgamma._logic.closure import closure
from latentgamma.datalog.grounding import GroundingWarning, ground
from latentgamma.datalog.tables import cells_of
from latentgamma.relational.backgrounds import (
    Atom,
    Background,
    Size,
    coloured,
    edges,
    lists,
    lists_and_numbers,
    numbers,
    relatives,
    small_family,
    sons,
    sparse_edges,
    uncoloured,
    unequal,
)
from latentgamma.relational.problem import read_problem

#: Positive examples that need a rule, in an instance for training with wrong labels.
_NEEDED = 10


@dataclass(frozen=True)
class Task:
    """An instance of a task.

    Attributes:
        name: of the task.
        target: the predicate to learn, with its arity.
        truth: the true program.
        background: the facts by predicate.
        positive: every atom of the target that is true.
    """

    name: str
    target: str
    truth: str
    background: Background
    positive: list[Atom]


def names() -> list[str]:
    """Return the names of the tasks."""
    return list(_TASKS)


def task(name: str, seed: int = 0, *, size: Size = "small") -> Task:
    """Return a random instance of a task.

    Every rule of the true program is needed for its labels, and some tuples are not positive. In an
    instance of size "medium", each rule is needed for at least 10 positive examples: a rule that
    one example needs could not be told from one wrong label.

    >>> one = task("grandparent", seed=1)
    >>> one.target, len(one.positive) > 0
    ('grandparent/2', True)

    Args:
        name: one of `names()`.
        seed: of the random background.
        size: "small" for training, "medium" for training with wrong labels, which takes more
            examples, "large" for tests.

    Raises:
        ArgumentError: there is no such task.
    """
    if name not in _TASKS:
        raise ArgumentError(f"there is no task {name!r}; the tasks are {', '.join(_TASKS)}")
    if size not in {"small", "medium", "large"}:
        raise ArgumentError(f'size is "small", "medium" or "large", not {size!r}')
    target, truth, make = _TASKS[name]
    rules = [f"{rule}." for rule in truth.split(".") if rule.strip()]
    for attempt in range(1000):
        rng = random.Random(f"{name} {seed} {size} {attempt}")
        background = make(rng, size)
        positive = derived(truth, background, target)
        least = _NEEDED if size == "medium" else 1
        if _has_both(background, positive) and all(
            len(derived("".join(r for r in rules if r is not rule), background, target))
            <= len(positive) - least
            for rule in rules
        ):
            return Task(name, target, truth, background, positive)
    raise ArgumentError(f"no instance of {name!r} needs each of its rules")


def _has_both(background: Background, positive: Sequence[Atom]) -> bool:
    """Return whether some tuples are positive and some are not."""
    if not positive:
        return False
    problem = read_problem(background, positive, None, None)
    return len(positive) < problem.tuples(problem.targets[0])


def derived(program: str, background: Background, target: str) -> list[Atom]:
    """Return the atoms of a predicate that a program derives from a background."""
    name, arity = target.split("/")
    with warnings.catch_warnings():  # a rule may use a predicate without facts
        warnings.simplefilter("ignore", GroundingWarning)
        facts = closure(ground(program, facts=background), []).atoms
    cells = (tuple(cells_of(atom)) for atom in facts)
    return sorted(atom for atom in cells if atom[0] == name and len(atom) == int(arity) + 1)


def flip_labels(one: Task, share: float, seed: int = 0) -> tuple[list[Atom], list[Atom]]:
    """Return the positive and negative examples of a task, a share of them with the wrong label.

    Every tuple of the constants that the target's arguments can have is an example.

    >>> positive, negative = flip_labels(task("even-odd", 1), 0.0)
    >>> len(positive), len(negative)
    (6, 6)
    """
    problem = read_problem(one.background, one.positive, None, None)
    target = problem.targets[0]
    codes = problem.every_tuple(target)
    wrong = set(random.Random(seed).sample(range(len(codes)), round(share * len(codes))))
    true = set(target.positive.tolist())
    positive: list[Atom] = []
    negative: list[Atom] = []
    for number, code in enumerate(codes.tolist()):
        atom = tuple(cells_of(problem.atom(target, code)))
        (positive if (code in true) != (number in wrong) else negative).append(atom)
    return positive, negative


_TASKS: dict[str, tuple[str, str, Callable[[random.Random, Size], Background]]] = {
    "predecessor": (
        "predecessor/2",
        "predecessor(X,Y) :- succ(Y,X).",
        numbers((6, 14), (15, 25), 30),
    ),
    "even-odd": (
        "even/1",
        "even(X) :- zero(X). even(Y) :- odd(X), succ(X,Y). odd(Y) :- even(X), succ(X,Y).",
        numbers((6, 14), (45, 60), 70),
    ),
    "even-succ2": (
        "even/1",
        "even(X) :- zero(X). even(Y) :- even(X), succ2(X,Y). succ2(X,Z) :- succ(X,Y), succ(Y,Z).",
        numbers((6, 20), (45, 60), 70),
    ),
    "less-than": (
        "less/2",
        "less(X,Y) :- succ(X,Y). less(X,Z) :- less(X,Y), succ(Y,Z).",
        numbers((6, 12), (13, 18), 24),
    ),
    "fizz": (
        "fizz/1",
        "fizz(X) :- zero(X). fizz(D) :- fizz(A), succ(A,B), succ(B,C), succ(C,D).",
        numbers((7, 16), (60, 80), 90),
    ),
    "buzz": (
        "buzz/1",
        "buzz(X) :- zero(X). "
        "buzz(F) :- buzz(A), succ(A,B), succ(B,C), succ(C,D), succ(D,E), succ(E,F).",
        numbers((11, 22), (110, 130), 140),
    ),
    "member": (
        "member/2",
        "member(X,L) :- value(L,X). member(X,L) :- cons(L,T), member(X,T).",
        lists,
    ),
    "length": (
        "length/2",
        "length(L,N) :- nil(L), zero(N). length(L,N) :- cons(L,T), length(T,K), succ(K,N).",
        lists_and_numbers,
    ),
    "son": (
        "son/2",
        "son(X,Y) :- father(Y,X), brother(X,Z). son(X,Y) :- father(Y,X), father(X,Z).",
        sons,
    ),
    "grandparent": (
        "grandparent/2",
        "grandparent(X,Z) :- parent(X,Y), parent(Y,Z). "
        "parent(X,Y) :- father(X,Y). parent(X,Y) :- mother(X,Y).",
        relatives("father", "mother"),
    ),
    "husband": (
        "husband/2",
        "husband(X,Y) :- father(X,Z), mother(Y,Z).",
        relatives("father", "mother", "brother", "daughter"),
    ),
    "uncle": (
        "uncle/2",
        "uncle(X,Y) :- brother(X,Z), father(Z,Y). uncle(X,Y) :- brother(X,Z), mother(Z,Y).",
        relatives("father", "mother", "brother"),
    ),
    "relatedness": (
        "related/2",
        "related(X,Y) :- parent(X,Y). related(X,Y) :- parent(Y,X). "
        "related(X,Y) :- related(X,Z), related(Z,Y).",
        small_family,
    ),
    "father": (
        "father/2",
        "father(X,Y) :- husband(X,Z), mother(Z,Y).",
        relatives("husband", "mother", "brother"),
    ),
    "undirected-edge": (
        "linked/2",
        "linked(X,Y) :- edge(X,Y). linked(X,Y) :- edge(Y,X).",
        edges,
    ),
    "adjacent-to-red": (
        "near/1",
        "near(X) :- edge(X,Y), colour(Y,C), red(C).",
        coloured,
    ),
    "two-children": (
        "two/1",
        "two(X) :- edge(X,Y), edge(X,Z), neq(Y,Z).",
        unequal,
    ),
    "graph-colouring": (
        "clash/1",
        "clash(X) :- edge(X,Y), colour(X,C), colour(Y,C).",
        uncoloured,
    ),
    "connectedness": (
        "path/2",
        "path(X,Y) :- edge(X,Y). path(X,Z) :- edge(X,Y), path(Y,Z).",
        edges,
    ),
    "cyclic": (
        "cyclic/1",
        "cyclic(X) :- path(X,X). path(X,Y) :- edge(X,Y). path(X,Z) :- edge(X,Y), path(Y,Z).",
        sparse_edges,
    ),
}
