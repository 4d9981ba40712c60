"""Tasks for learning rules with variables: the twenty tasks of ∂ILP, with random instances.

Each task has its true program, and a generator of random backgrounds of a given size. The labels
are what the true program derives.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from latentgamma._errors import ArgumentError
from latentgamma._logic.closure import closure
from latentgamma.datalog.grounding import GroundingWarning, ground
from latentgamma.datalog.tables import cells_of

Background: TypeAlias = "Mapping[str, Sequence[tuple[str, ...]]]"
Atom: TypeAlias = "tuple[str, ...]"


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


def task(name: str, seed: int = 0, *, held_out: bool = False) -> Task:
    """Return a random instance of a task, in which every rule of the true program is needed.

    >>> one = task("grandparent", seed=1)
    >>> one.target, len(one.positive) > 0
    ('grandparent/2', True)

    Args:
        name: one of `names()`.
        seed: of the random background.
        held_out: whether to make a larger instance, with which a learned program is tested.

    Raises:
        ArgumentError: there is no such task.
    """
    if name not in _TASKS:
        raise ArgumentError(f"there is no task {name!r}; the tasks are {', '.join(_TASKS)}")
    target, truth, make = _TASKS[name]
    rules = [f"{rule}." for rule in truth.split(".") if rule.strip()]
    for attempt in range(1000):
        rng = random.Random(f"{name} {seed} {held_out} {attempt}")
        background = make(rng, held_out)
        positive = derived(truth, background, target)
        if positive and all(
            derived("".join(r for r in rules if r is not rule), background, target) != positive
            for rule in rules
        ):
            return Task(name, target, truth, background, positive)
    raise ArgumentError(f"no instance of {name!r} needs each of its rules")


def derived(program: str, background: Background, target: str) -> list[Atom]:
    """Return the atoms of a predicate that a program derives from a background."""
    name, arity = target.split("/")
    with warnings.catch_warnings():  # a rule may use a predicate without facts
        warnings.simplefilter("ignore", GroundingWarning)
        facts = closure(ground(program, facts=background), []).atoms
    cells = (tuple(cells_of(atom)) for atom in facts)
    return sorted(atom for atom in cells if atom[0] == name and len(atom) == int(arity) + 1)


# ------------------------------------------------------------------------ backgrounds


def _numbers(low: int, high: int, larger: int) -> Callable[[random.Random, bool], Background]:
    def make(rng: random.Random, held_out: bool) -> Background:
        last = larger if held_out else rng.randint(low, high)
        named = rng.sample(range(1000), last + 1)
        n = [f"n{value}" for value in named]
        return {"zero": [(n[0],)], "succ": [(n[i], n[i + 1]) for i in range(last)]}

    return make


def _lists(rng: random.Random, held_out: bool) -> Background:
    """Lists of random values as cells: `cons(L,T)` is the tail of L, `value(L,X)` its first."""
    values = [f"v{i}" for i in range(8 if held_out else 4)]
    cons, value, cells = [], [], 0
    for _ in range(6 if held_out else 4):
        length = rng.randint(3, 9) if held_out else rng.randint(2, 5)
        for place in range(length):
            cell = f"l{cells}"
            cells += 1
            cons.append((cell, "nil" if place == length - 1 else f"l{cells}"))
            value.append((cell, rng.choice(values)))
    return {"cons": cons, "value": value}


def _lists_and_numbers(rng: random.Random, held_out: bool) -> Background:
    lists = _lists(rng, held_out)
    last = 12 if held_out else 7
    return {
        "cons": lists["cons"],
        "nil": [("nil",)],
        "zero": [("n0",)],
        "succ": [(f"n{i}", f"n{i + 1}") for i in range(last)],
    }


def _family(rng: random.Random, held_out: bool) -> Background:
    """A random family of several generations, with every relation that a task may use."""
    couples = rng.randint(7, 9) if held_out else rng.randint(4, 6)
    generations = 4 if held_out else 3
    people = 0

    def person() -> str:
        nonlocal people
        people += 1
        return f"p{people}"

    father, mother, husband, male, female = [], [], [], [], []
    roots = [(person(), person()) for _ in range(couples)]
    children_of: list[list[tuple[str, bool]]] = []
    pairs = roots
    for man, woman in roots:
        male.append((man,))
        female.append((woman,))
    for _ in range(generations - 1):
        children_of = []
        for man, woman in pairs:
            husband.append((man, woman))
            born = []
            for _ in range(rng.randint(1, 3)):
                child, boy = person(), rng.random() < 0.5
                (male if boy else female).append((child,))
                father.append((man, child))
                mother.append((woman, child))
                born.append((child, boy))
            children_of.append(born)
        boys = [(c, f) for f, born in enumerate(children_of) for c, boy in born if boy]
        girls = [(c, f) for f, born in enumerate(children_of) for c, boy in born if not boy]
        rng.shuffle(girls)
        pairs = []
        for son, family in boys:
            match = next((g for g in girls if g[1] != family), None)
            if match is not None and rng.random() < 0.8:
                girls.remove(match)
                pairs.append((son, match[0]))
    sons, daughters = {m for (m,) in male}, {f for (f,) in female}
    brother: list[tuple[str, str]] = []
    sister: list[tuple[str, str]] = []
    by_father: dict[str, list[str]] = {}
    for man, child in father:
        by_father.setdefault(man, []).append(child)
    for born_here in by_father.values():
        for one in born_here:
            for other in born_here:
                if one != other:
                    (brother if one in sons else sister).append((one, other))
    daughter = [(child, parent) for parent, child in father + mother if child in daughters]
    return {
        "father": father,
        "mother": mother,
        "parent": father + mother,
        "husband": husband,
        "brother": brother,
        "sister": sister,
        "daughter": daughter,
        "male": male,
        "female": female,
    }


def _relatives(*wanted: str) -> Callable[[random.Random, bool], Background]:
    def make(rng: random.Random, held_out: bool) -> Background:
        family = _family(rng, held_out)
        while any(not family[name] for name in wanted):
            family = _family(rng, held_out)
        return {name: family[name] for name in wanted}

    return make


def _small_family(rng: random.Random, held_out: bool) -> Background:
    """Parents in two or more families that are not related to each other."""
    parent, people = [], 0
    for _ in range(4 if held_out else 3):
        members = [f"p{people}"]
        people += 1
        for _ in range(rng.randint(5, 8) if held_out else rng.randint(2, 4)):
            new, other = f"p{people}", rng.choice(members)
            people += 1
            parent.append((new, other) if rng.random() < 0.4 else (other, new))
            members.append(new)
    return {"parent": parent}


def _graph(
    rng: random.Random, nodes: int, edges: int, *, loops: bool = False
) -> list[tuple[str, str]]:
    named = [f"v{i}" for i in range(nodes)]
    every = [(a, b) for a in named for b in named if loops or a != b]
    return rng.sample(every, min(edges, len(every)))


def _edges(rng: random.Random, held_out: bool) -> Background:
    nodes = 12 if held_out else rng.randint(6, 9)
    return {"edge": _graph(rng, nodes, round(1.4 * nodes))}


def _sparse_edges(rng: random.Random, held_out: bool) -> Background:
    """Several separate graphs: paths, cycles of several lengths, and random edges."""
    edge: list[tuple[str, str]] = []
    nodes = 0
    lengths = [2, 3, 4, 5, 6, 7] if held_out else rng.sample([1, 2, 3, 4, 5], 4)
    for length in lengths:
        cycle = [f"v{nodes + i}" for i in range(length)]
        nodes += length
        edge += [(cycle[i], cycle[(i + 1) % length]) for i in range(length)]
        for _ in range(rng.randint(1, 2)):  # a path into the cycle, or out of it
            other = f"v{nodes}"
            nodes += 1
            edge.append(
                (other, rng.choice(cycle)) if rng.random() < 0.5 else (rng.choice(cycle), other)
            )
    path = [f"v{nodes + i}" for i in range(6 if held_out else 4)]
    edge += list(itertools.pairwise(path))
    return {"edge": edge}


def _coloured(rng: random.Random, held_out: bool) -> Background:
    nodes = 16 if held_out else rng.randint(8, 11)
    edge = _graph(rng, nodes, round(1.5 * nodes))
    colour = [(f"v{i}", rng.choice(["c0", "c1", "c2"])) for i in range(nodes)]
    return {"edge": edge, "colour": colour, "red": [("c0",)]}


def _two_coloured(rng: random.Random, held_out: bool) -> Background:
    found = _coloured(rng, held_out)
    return {"edge": found["edge"], "colour": found["colour"]}


def _unequal(rng: random.Random, held_out: bool) -> Background:
    nodes = 16 if held_out else rng.randint(9, 12)
    edge = _graph(rng, nodes, round(1.3 * nodes), loops=True)
    named = sorted({v for pair in edge for v in pair})
    return {"edge": edge, "neq": [(a, b) for a in named for b in named if a != b]}


_TASKS: dict[str, tuple[str, str, Callable[[random.Random, bool], Background]]] = {
    "predecessor": (
        "predecessor/2",
        "predecessor(X,Y) :- succ(Y,X).",
        _numbers(6, 14, 30),
    ),
    "even-odd": (
        "even/1",
        "even(X) :- zero(X). even(Y) :- odd(X), succ(X,Y). odd(Y) :- even(X), succ(X,Y).",
        _numbers(6, 14, 30),
    ),
    "even-succ2": (
        "even/1",
        "even(X) :- zero(X). even(Y) :- even(X), succ2(X,Y). succ2(X,Z) :- succ(X,Y), succ(Y,Z).",
        _numbers(6, 20, 41),
    ),
    "less-than": (
        "less/2",
        "less(X,Y) :- succ(X,Y). less(X,Z) :- less(X,Y), succ(Y,Z).",
        _numbers(6, 12, 20),
    ),
    "fizz": (
        "fizz/1",
        "fizz(X) :- zero(X). fizz(D) :- fizz(A), succ(A,B), succ(B,C), succ(C,D).",
        _numbers(7, 16, 40),
    ),
    "buzz": (
        "buzz/1",
        "buzz(X) :- zero(X). "
        "buzz(F) :- buzz(A), succ(A,B), succ(B,C), succ(C,D), succ(D,E), succ(E,F).",
        _numbers(11, 22, 52),
    ),
    "member": (
        "member/2",
        "member(X,L) :- value(L,X). member(X,L) :- cons(L,T), member(X,T).",
        _lists,
    ),
    "length": (
        "length/2",
        "length(L,N) :- nil(L), zero(N). length(L,N) :- cons(L,T), length(T,K), succ(K,N).",
        _lists_and_numbers,
    ),
    "son": (
        "son/2",
        "son(X,Y) :- father(Y,X), brother(X,Z). son(X,Y) :- father(Y,X), father(X,Z).",
        _relatives("father", "brother", "sister"),
    ),
    "grandparent": (
        "grandparent/2",
        "grandparent(X,Z) :- parent(X,Y), parent(Y,Z). "
        "parent(X,Y) :- father(X,Y). parent(X,Y) :- mother(X,Y).",
        _relatives("father", "mother"),
    ),
    "husband": (
        "husband/2",
        "husband(X,Y) :- father(X,Z), mother(Y,Z).",
        _relatives("father", "mother", "brother", "daughter"),
    ),
    "uncle": (
        "uncle/2",
        "uncle(X,Y) :- brother(X,Z), father(Z,Y). uncle(X,Y) :- brother(X,Z), mother(Z,Y).",
        _relatives("father", "mother", "brother"),
    ),
    "relatedness": (
        "related/2",
        "related(X,Y) :- parent(X,Y). related(X,Y) :- parent(Y,X). "
        "related(X,Y) :- related(X,Z), related(Z,Y).",
        _small_family,
    ),
    "father": (
        "father/2",
        "father(X,Y) :- husband(X,Z), mother(Z,Y).",
        _relatives("husband", "mother", "brother"),
    ),
    "undirected-edge": (
        "linked/2",
        "linked(X,Y) :- edge(X,Y). linked(X,Y) :- edge(Y,X).",
        _edges,
    ),
    "adjacent-to-red": (
        "near/1",
        "near(X) :- edge(X,Y), colour(Y,C), red(C).",
        _coloured,
    ),
    "two-children": (
        "two/1",
        "two(X) :- edge(X,Y), edge(X,Z), neq(Y,Z).",
        _unequal,
    ),
    "graph-colouring": (
        "clash/1",
        "clash(X) :- edge(X,Y), colour(X,C), colour(Y,C).",
        _two_coloured,
    ),
    "connectedness": (
        "path/2",
        "path(X,Y) :- edge(X,Y). path(X,Z) :- edge(X,Y), path(Y,Z).",
        _edges,
    ),
    "cyclic": (
        "cyclic/1",
        "cyclic(X) :- path(X,X). path(X,Y) :- edge(X,Y). path(X,Z) :- edge(X,Y), path(Y,Z).",
        _sparse_edges,
    ),
}
