"""Random backgrounds of the tasks: numbers, lists, families and graphs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

Background: TypeAlias = "Mapping[str, Sequence[tuple[str, ...]]]"
Atom: TypeAlias = "tuple[str, ...]"
#: "small" for training, "medium" for training with wrong labels, "large" for tests.
Size: TypeAlias = Literal["small", "medium", "large"]


def _between(
    rng: random.Random, size: Size, small: tuple[int, int], medium: tuple[int, int], large: int
) -> int:
    """Return a random number in the range of a size."""
    if size == "large":
        return large
    return rng.randint(*(small if size == "small" else medium))


def numbers(
    small: tuple[int, int], medium: tuple[int, int], large: int
) -> Callable[[random.Random, Size], Background]:
    """Return what makes numbers with a successor, as many as a size says."""

    def make(rng: random.Random, size: Size) -> Background:
        last = _between(rng, size, small, medium, large)
        n = [f"n{value}" for value in rng.sample(range(1000), last + 1)]
        return {"zero": [(n[0],)], "succ": list(itertools.pairwise(n))}

    return make


def lists(rng: random.Random, size: Size) -> Background:
    """Lists of random values as cells: `cons(L,T)` is the tail of L, `value(L,X)` its first."""
    values = [f"v{i}" for i in range({"small": 4, "medium": 6, "large": 8}[size])]
    cons, value, cells = [], [], 0
    for _ in range({"small": 4, "medium": 7, "large": 8}[size]):
        length = rng.randint(*{"small": (2, 5), "medium": (3, 6), "large": (4, 9)}[size])
        for place in range(length):
            cell = f"l{cells}"
            cells += 1
            cons.append((cell, "nil" if place == length - 1 else f"l{cells}"))
            value.append((cell, rng.choice(values)))
    return {"cons": cons, "value": value}


def lists_and_numbers(rng: random.Random, size: Size) -> Background:
    """Lists as cells, and the numbers up to their lengths."""
    last = {"small": 7, "medium": 8, "large": 12}[size]
    return {
        "cons": lists(rng, size)["cons"],
        "nil": [("nil",)],
        "zero": [("n0",)],
        "succ": [(f"n{i}", f"n{i + 1}") for i in range(last)],
    }


def _family(rng: random.Random, size: Size) -> Background:
    """A random family of several generations, with every relation that a task may use."""
    couples = _between(rng, size, (4, 6), (9, 11), 12)
    generations = 3 if size == "small" else 4
    numbers = itertools.count(1)
    father, mother, husband, male = [], [], [], []
    pairs = [(f"p{next(numbers)}", f"p{next(numbers)}") for _ in range(couples)]
    male += [man for man, _ in pairs]
    for _ in range(generations - 1):
        boys: list[tuple[str, int]] = []
        girls: list[tuple[str, int]] = []
        for family, (man, woman) in enumerate(pairs):
            husband.append((man, woman))
            for _ in range(rng.randint(1, 3)):
                child, boy = f"p{next(numbers)}", rng.random() < 0.5
                father.append((man, child))
                mother.append((woman, child))
                (boys if boy else girls).append((child, family))
        male += [child for child, _ in boys]
        rng.shuffle(girls)
        pairs = []
        for son, family in boys:  # a wife from another family, for most
            match = next((girl for girl in girls if girl[1] != family), None)
            if match is not None and rng.random() < 0.8:
                girls.remove(match)
                pairs.append((son, match[0]))
    men = set(male)
    siblings = [
        (one, other)
        for (man, one), (same, other) in itertools.product(father, repeat=2)
        if man == same and one != other
    ]
    return {
        "father": father,
        "mother": mother,
        "husband": husband,
        "brother": [pair for pair in siblings if pair[0] in men],
        "sister": [pair for pair in siblings if pair[0] not in men],
        "daughter": [(child, p) for p, child in father + mother if child not in men],
    }


def relatives(*wanted: str) -> Callable[[random.Random, Size], Background]:
    """Return what makes a family with some of its relations."""

    def make(rng: random.Random, size: Size) -> Background:
        family = _family(rng, size)
        while any(not family[name] for name in wanted):
            family = _family(rng, size)
        return {name: family[name] for name in wanted}

    return make


def sons(rng: random.Random, size: Size) -> Background:
    """Fathers and siblings; in a medium instance, many men are an only child."""
    if size != "medium":
        return relatives("father", "brother", "sister")(rng, size)
    fathers = [f"p{i}" for i in range(15)]
    count = len(fathers)
    found: dict[str, list[Atom]] = {"father": [], "brother": [], "sister": []}
    for _ in range(3):
        next_fathers: list[str] = []
        for man in fathers:
            children = [f"p{count + i}" for i in range(rng.choice([1, 1, 1, 2, 3]))]
            count += len(children)
            boys = [child for child in children if rng.random() < 0.6]
            found["father"] += [(man, child) for child in children]
            for one, other in itertools.permutations(children, 2):
                found["brother" if one in boys else "sister"].append((one, other))
            next_fathers += [boy for boy in boys if rng.random() < 0.9]
        fathers = next_fathers
    return found


def small_family(rng: random.Random, size: Size) -> Background:
    """Parents in several families that are not related to each other."""
    parent, people = [], 0
    for _ in range({"small": 3, "medium": 4, "large": 5}[size]):
        members = [f"p{people}"]
        people += 1
        for _ in range(_between(rng, size, (2, 4), (3, 6), 7)):
            new, other = f"p{people}", rng.choice(members)
            people += 1
            parent.append((new, other) if rng.random() < 0.4 else (other, new))
            members.append(new)
    return {"parent": parent}


def _graph(rng: random.Random, nodes: int, edges: int, *, loops: bool = False) -> list[Atom]:
    named = [f"v{i}" for i in range(nodes)]
    every = [(a, b) for a in named for b in named if loops or a != b]
    return list(rng.sample(every, min(edges, len(every))))


def edges(rng: random.Random, size: Size) -> Background:
    """A random graph."""
    nodes = _between(rng, size, (6, 9), (14, 18), 22)
    return {"edge": _graph(rng, nodes, round(1.3 * nodes))}


def sparse_edges(rng: random.Random, size: Size) -> Background:
    """Several separate graphs: paths, cycles of several lengths, and edges into and out of them."""
    edge: list[Atom] = []
    nodes = 0
    lengths = rng.sample([1, 2, 3, 4, 5], 4)
    if size != "small":
        lengths = [2, 3, 4, 5, 6, 7] if size == "large" else 2 * [1, 2, 3, 4, 5, 6]
    for length in lengths:
        cycle = [f"v{nodes + i}" for i in range(length)]
        nodes += length
        edge += [(cycle[i], cycle[(i + 1) % length]) for i in range(length)]
        for _ in range(rng.randint(1, 2)):
            other, inside = f"v{nodes}", rng.choice(cycle)
            nodes += 1
            edge.append((other, inside) if rng.random() < 0.5 else (inside, other))
    path = [f"v{nodes + i}" for i in range({"small": 4, "medium": 16, "large": 9}[size])]
    return {"edge": [*edge, *itertools.pairwise(path)]}


def coloured(rng: random.Random, size: Size) -> Background:
    """A random graph with colours."""
    nodes = _between(rng, size, (8, 11), (40, 60), 70)
    colour = [(f"v{i}", rng.choice(["c0", "c1", "c2"])) for i in range(nodes)]
    return {"edge": _graph(rng, nodes, round(1.5 * nodes)), "colour": colour, "red": [("c0",)]}


def uncoloured(rng: random.Random, size: Size) -> Background:
    """A random graph with colours, of which none is named."""
    found = coloured(rng, size)
    return {"edge": found["edge"], "colour": found["colour"]}


def unequal(rng: random.Random, size: Size) -> Background:
    """A random graph with loops, and which nodes differ."""
    nodes = _between(rng, size, (9, 12), (40, 60), 70)
    edge = _graph(rng, nodes, round(1.3 * nodes), loops=True)
    named = sorted({v for pair in edge for v in pair})
    return {"edge": edge, "neq": [(a, b) for a in named for b in named if a != b]}
