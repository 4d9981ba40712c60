"""Tasks to measure relational learning on."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from latentgamma.datalog.grounding import GroundingWarning, ground
from latentgamma.datalog.tables import cells_of
from latentgamma.errors import ArgumentError
from latentgamma.logic.closure import closure
from latentgamma.relational.problem import Language, Problem, read_facts, read_problem

# ------------------------ Random backgrounds of the tasks: numbers, lists, families and graphs

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
        lengths = [2, 3, 4, 5, 6, 7] if size == "large" else [1, 2, 3, 4, 5, 6]
    for length in lengths:
        cycle = [f"v{nodes + i}" for i in range(length)]
        nodes += length
        edge += [(cycle[i], cycle[(i + 1) % length]) for i in range(length)]
        for _ in range(rng.randint(1, 2)):
            other, inside = f"v{nodes}", rng.choice(cycle)
            nodes += 1
            edge.append((other, inside) if rng.random() < 0.5 else (inside, other))
    path = [f"v{nodes + i}" for i in range({"small": 4, "medium": 8, "large": 9}[size])]
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


# --------------------------- Chains of kinship relations, with the relation between their ends

Chain: TypeAlias = "tuple[tuple[str, ...], str]"

#: The male and the female name of each kind of relation: `father(X,Y)` means that Y is X's father.
NAMES = {
    "parent": ("father", "mother"),
    "child": ("son", "daughter"),
    "sibling": ("brother", "sister"),
    "spouse": ("husband", "wife"),
    "grandparent": ("grandfather", "grandmother"),
    "grandchild": ("grandson", "granddaughter"),
    "parents_sibling": ("uncle", "aunt"),
    "siblings_child": ("nephew", "niece"),
    "parent_in_law": ("father_in_law", "mother_in_law"),
    "child_in_law": ("son_in_law", "daughter_in_law"),
}

#: What follows from two kinds, where it is one kind whoever the people are. Someone is not their
#: own sibling, and a child has two parents.
_KINDS = {
    ("parent", "parent"): "grandparent",
    ("parent", "sibling"): "parents_sibling",
    ("parent", "child"): "sibling",
    ("parent", "spouse"): "parent",
    ("child", "child"): "grandchild",
    ("child", "sibling"): "child",
    ("child", "parent"): "spouse",
    ("child", "spouse"): "child_in_law",
    ("sibling", "parent"): "parent",
    ("sibling", "sibling"): "sibling",
    ("sibling", "child"): "siblings_child",
    ("sibling", "grandparent"): "grandparent",
    ("sibling", "parents_sibling"): "parents_sibling",
    ("spouse", "child"): "child",
    ("spouse", "parent"): "parent_in_law",
    ("spouse", "grandchild"): "grandchild",
    ("grandparent", "spouse"): "grandparent",
    ("grandchild", "sibling"): "grandchild",
    ("parents_sibling", "parent"): "grandparent",
    ("siblings_child", "sibling"): "siblings_child",
    ("parent_in_law", "spouse"): "parent_in_law",
    ("child_in_law", "child"): "grandchild",
}


def true_table() -> dict[tuple[str, str], str]:
    """Return the composition of named relations; the last person decides between the two names."""
    kind_of = {name: (kind, sex) for kind, pair in NAMES.items() for sex, name in enumerate(pair)}
    return {
        (one, other): NAMES[_KINDS[kind_of[one][0], kind_of[other][0]]][kind_of[other][1]]
        for one in kind_of
        for other in kind_of
        if (kind_of[one][0], kind_of[other][0]) in _KINDS
        # Spouses are a man and a woman here.
        and not (kind_of[one][0] == kind_of[other][0] == "spouse")
    }


def kinship_chains(count: int, lengths: Sequence[int], seed: int = 0) -> list[Chain]:
    """Return random chains whose relation follows from the left.

    Args:
        count: the number of chains.
        lengths: the numbers of relations in a chain, equally likely.
        seed: of the random choices.
    """
    if count < 1 or not lengths or min(lengths) < 2:
        raise ArgumentError("kinship_chains takes a count from 1 on, and lengths from 2 on")
    rng = random.Random(seed)
    table = true_table()
    follow: dict[str, list[str]] = {}
    for one, other in sorted(table):
        follow.setdefault(one, []).append(other)
    chains: list[Chain] = []
    while len(chains) < count:
        length = rng.choice(list(lengths))
        chain = [rng.choice(sorted(follow))]
        current = chain[0]
        while len(chain) < length and current in follow:
            chain.append(rng.choice(follow[current]))
            current = table[current, chain[-1]]
        if len(chain) == length:
            chains.append((tuple(chain), current))
    return chains


# ---- Tasks for learning rules with variables: the twenty tasks of ∂ILP, with random instances
# Each task has its true program, and a generator of random backgrounds of a given size. The labels
# are what the true program derives.


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


#: Relations of textbooks, to learn from positive examples alone.
TEXTBOOK = (
    "predecessor", "less-than", "member", "father", "husband", "uncle", "undirected-edge",
    "adjacent-to-red", "connectedness", "relatedness",
)  # fmt: skip


def names() -> list[str]:
    """Return the names of the tasks."""
    return list(_TASKS)


def task(name: str, seed: int = 0, *, size: Size = "small") -> Task:
    """Return a random instance of a task.

    Every rule of the true program is needed for its labels, and some tuples are not positive.

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
        if _has_both(background, positive) and all(
            derived("".join(r for r in rules if r is not rule), background, target) != positive
            for rule in rules
        ):
            return Task(name, target, truth, background, positive)
    raise ArgumentError(f"no instance of {name!r} needs each of its rules")


def problem(
    background: object, positive: object, negative: object = None, language: Language | None = None
) -> Problem:
    """Return the learning problem of facts and examples, in any form that `fit` takes."""
    refused = None if negative is None else read_facts(negative, "negative")
    facts, shown = read_facts(background, "background"), read_facts(positive, "positive")
    return read_problem(facts, shown, refused, None, language=language)


def _has_both(background: Background, positive: Sequence[Atom]) -> bool:
    """Return whether some tuples are positive and some are not."""
    if not positive:
        return False
    asked = problem(background, positive)
    return len(positive) < asked.tuples(asked.targets[0])


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
    """
    asked = problem(one.background, one.positive)
    target = asked.targets[0]
    codes = asked.every_tuple(target)
    wrong = set(random.Random(seed).sample(range(len(codes)), round(share * len(codes))))
    true = set(target.positive.tolist())
    positive: list[Atom] = []
    negative: list[Atom] = []
    for number, code in enumerate(codes.tolist()):
        atom = tuple(cells_of(asked.atom(target, code)))
        (positive if (code in true) != (number in wrong) else negative).append(atom)
    return positive, negative


# ---- Worlds: trains, scenes of pieces, and steps of games, each with a random true program
# Every example has its own facts. The labels are what the true program derives; each of its rules and
# each literal of a rule matters for some examples.


@dataclass(frozen=True)
class Worlds:
    """Examples that are worlds of their own.

    Attributes:
        name: of the task.
        truth: the true program.
        background: the facts by predicate.
        positive: what the true program derives.
        negative: the other atoms that are labelled.
        options: of `lg.relational.fit`.
    """

    name: str
    truth: str
    background: Background
    positive: list[Atom]
    negative: list[Atom]
    options: dict[str, object]


#: A number of worlds to facts and the labelled atoms.
WorldMaker: TypeAlias = (
    "Callable[[random.Random, int], tuple[dict[str, list[tuple[str, ...]]], list[Atom]]]"
)
#: The labels that change if a literal is dropped from the true program, and the share of rare labels.
_CHANGED, _RARE = 4, 0.15


def worlds(name: str, seed: int, count: int = 200, *, test: bool = False) -> Worlds:
    """Return worlds with labels by a random program; the test set has the same program.

    Args:
        name: "trains", "scenes", "counter", "corridor" or "score".
        seed: of the program and the worlds.
        count: the number of worlds.
        test: whether to return the test set.
    """
    make, program, options = _WORLDS[name]
    for attempt in range(200):
        rng = random.Random(f"{name} {seed} {attempt}")
        truth = program(rng)
        target = truth.partition("(")[0] + f"/{_arity(truth)}"
        background, atoms = make(rng, count)
        true = set(derived(truth, background, target))
        positive = [atom for atom in atoms if atom in true]
        rare = min(len(positive), len(atoms) - len(positive))
        if rare < _RARE * len(atoms) / (1 if _arity(truth) == 1 else 4):
            continue
        if all(
            len(true ^ set(derived(weaker, background, target))) >= _CHANGED
            for weaker in _weaker(truth)
        ):
            break
    else:
        raise ArgumentError(f"no program of {name!r} needs each of its literals")
    if test:
        background, atoms = make(random.Random(f"{name} {seed} test"), count)
        true = set(derived(truth, background, target))
    positive = [atom for atom in atoms if atom in true]
    negative = [atom for atom in atoms if atom not in true]
    return Worlds(name, truth, background, positive, negative, options)


def _arity(truth: str) -> int:
    """Return the number of arguments of the first head."""
    return truth[truth.index("(") : truth.index(")")].count(",") + 1


def _weaker(truth: str) -> list[str]:
    """Return the program without one of its rules, and without one literal of a rule where it can be."""
    rules = [rule for rule in truth.splitlines() if rule]
    found = ["\n".join([*rules[:n], *rules[n + 1 :]]) for n in range(len(rules)) if len(rules) > 1]
    for n, rule in enumerate(rules):
        head, _, body = rule.removesuffix(".").partition(" :- ")
        literals = body.split(", ")
        for drop, literal in enumerate(literals):
            left = literals[:drop] + literals[drop + 1 :]
            safe = " ".join(one for one in left if "(" in one and not one.startswith("not "))
            variables = {c for c in head + " ".join(left) if c.isupper()}
            if not left or not all(variable in safe for variable in variables):
                continue
            if literal.count("(") and not literal.startswith("not "):
                introduced = {c for c in literal if c.isupper()}
                if any(c not in safe for c in introduced & variables):
                    continue
            found.append("\n".join([*rules[:n], f"{head} :- {', '.join(left)}.", *rules[n + 1 :]]))
    return found


_LOADS = ("circle", "triangle", "rectangle", "diamond")
_CARS = (
    ("short", "long"),
    ("two_wheels", "three_wheels"),
    ("roof_open", "roof_flat", "roof_closed"),
)


def _trains(rng: random.Random, count: int) -> tuple[dict[str, list[tuple[str, ...]]], list[Atom]]:
    facts: dict[str, list[tuple[str, ...]]] = {
        name: [] for group in (*_CARS, _LOADS, ("has_car", "has_load")) for name in group
    }
    for train in range(count):
        for car in range(rng.randint(2, 4)):
            name, load = f"c{train}_{car}", f"l{train}_{car}"
            facts["has_car"].append((f"t{train}", name))
            facts["has_load"].append((name, load))
            for group in _CARS:
                facts[rng.choice(group)].append((name,))
            facts[rng.choice(_LOADS)].append((load,))
    return facts, [("east", f"t{train}") for train in range(count)]


def _train_program(rng: random.Random) -> str:
    """Return one or two rules about one or two cars."""
    rules = []
    for _ in range(rng.randint(1, 2)):
        literals = ["has_car(T,A)"]
        literals += [f"{rng.choice(group)}(A)" for group in rng.sample(_CARS, rng.randint(1, 2))]
        if rng.random() < 0.5:
            literals += ["has_load(A,L)", f"{rng.choice(_LOADS)}(L)"]
        elif rng.random() < 0.6:
            literals += ["has_car(T,B)", f"{rng.choice(rng.choice(_CARS))}(B)"]
        rules.append(f"east(T) :- {', '.join(literals)}.")
    return "\n".join(rules)


_COLOURS, _POSES = ("red", "blue", "green"), ("upright", "lying", "tilted")


def _scenes(rng: random.Random, count: int) -> tuple[dict[str, list[tuple[str, ...]]], list[Atom]]:
    facts: dict[str, list[tuple[str, ...]]] = {
        name: [] for name in ("piece", "size", "contact", *_COLOURS, *_POSES)
    }
    for scene in range(count):
        pieces = [f"p{scene}_{n}" for n in range(rng.randint(2, 5))]
        for piece in pieces:
            facts["piece"].append((f"s{scene}", piece))
            facts["size"].append((piece, str(rng.randint(0, 10))))
            facts[rng.choice(_COLOURS)].append((piece,))
            facts[rng.choice(_POSES)].append((piece,))
        for one, other in itertools.combinations(pieces, 2):
            if rng.random() < 0.35:
                facts["contact"] += [(one, other), (other, one)]
    return facts, [("good", f"s{scene}") for scene in range(count)]


def _scene_program(rng: random.Random) -> str:
    """Return a rule of up to six literals about two pieces, and perhaps one about one piece."""

    def about(piece: str, number: str) -> list[str]:
        if rng.random() < 0.4:
            cut = rng.choice(["<= 3", "<= 4", ">= 6", ">= 7"])
            return [f"size({piece},{number})", f"{number} {cut}"]
        return [f"{rng.choice(rng.choice((_COLOURS, _POSES)))}({piece})"]

    link = rng.choice(["contact(A,B)", "piece(S,B)"])
    literals = ["piece(S,A)", link, *about("A", "N"), *about("B", "M")]
    if len(literals) < 6 and rng.random() < 0.5:
        more = f"{rng.choice(_POSES)}(A)"
        literals += [more] if not any(f"{pose}(A)" in literals for pose in _POSES) else []
    rules = [f"good(S) :- {', '.join(literals)}."]
    if rng.random() < 0.4:
        single = ["piece(S,A)", f"{rng.choice(_COLOURS)}(A)", f"{rng.choice(_POSES)}(A)"]
        rules.append(f"good(S) :- {', '.join([*single, 'size(A,N)', 'N >= 8'])}.")
    return "\n".join(rules)


def _counter(rng: random.Random, count: int) -> tuple[dict[str, list[tuple[str, ...]]], list[Atom]]:
    facts: dict[str, list[tuple[str, ...]]] = {
        "value": [], "does": [], "locked": [],
        "succ": [(str(n), str(n + 1)) for n in range(7)],
    }  # fmt: skip
    for state in range(count):
        facts["value"].append((f"e{state}", str(rng.randint(0, 7))))
        facts["does"].append((f"e{state}", rng.choice(["up", "down", "reset", "wait"])))
        if rng.random() < 0.3:
            facts["locked"].append((f"e{state}",))
    return facts, [("next", f"e{state}", str(n)) for state in range(count) for n in range(8)]


def _counter_program(rng: random.Random) -> str:
    """Return a counter that goes up, goes down or is reset; a locked one may not."""
    up, down = rng.sample(["up", "down"], 2)
    lock = rng.sample(["up", "down", "reset"], rng.randint(1, 2))

    def unless(action: str) -> str:
        return ", not locked(E)" if action in lock else ""

    rules = [
        f"next(E,N) :- value(E,M), does(E,{up}), succ(M,N){unless('up')}.",
        f"next(E,N) :- value(E,M), does(E,{down}), succ(N,M){unless('down')}.",
        f"next(E,N) :- does(E,reset), N = {rng.choice([0, 3])}{unless('reset')}.",
        "next(E,N) :- value(E,N), does(E,wait).",
    ]
    return "\n".join(rules)


def _corridor(
    rng: random.Random, count: int
) -> tuple[dict[str, list[tuple[str, ...]]], list[Atom]]:
    facts: dict[str, list[tuple[str, ...]]] = {
        "at": [], "does": [], "wall": [],
        "right_of": [(f"x{n + 1}", f"x{n}") for n in range(6)],
    }  # fmt: skip
    for state in range(count):
        place = rng.randint(0, 6)
        facts["at"].append((f"e{state}", f"x{place}"))
        facts["does"].append((f"e{state}", rng.choice(["east", "west", "stay"])))
        for n in range(7):
            if n != place and rng.random() < 0.35:
                facts["wall"].append((f"e{state}", f"x{n}"))
    return facts, [("next", f"e{state}", f"x{n}") for state in range(count) for n in range(7)]


def _corridor_program(rng: random.Random) -> str:
    """Return a walk in which walls stop some of the moves."""
    east = "next(E,X) :- at(E,Y), does(E,east), right_of(X,Y)"
    west = "next(E,X) :- at(E,Y), does(E,west), right_of(Y,X)"
    stops = rng.choice([(True, True), (True, False), (False, True)])
    rules = [
        f"{east}{', not wall(E,X)' if stops[0] else ''}.",
        f"{west}{', not wall(E,X)' if stops[1] else ''}.",
        "next(E,X) :- at(E,X), does(E,stay).",
    ]
    return "\n".join(rules)


def _score(rng: random.Random, count: int) -> tuple[dict[str, list[tuple[str, ...]]], list[Atom]]:
    signs = ("paper", "stone", "scissors")
    facts: dict[str, list[tuple[str, ...]]] = {
        "score": [], "does": [], "wins": [],
        "succ": [(str(n), str(n + 1)) for n in range(5)],
        "beats": [("paper", "stone"), ("stone", "scissors"), ("scissors", "paper")],
        "other": [("p1", "p2"), ("p2", "p1")],
    }  # fmt: skip
    for state in range(count):
        shown = {player: rng.choice(signs) for player in ("p1", "p2")}
        for player, rival in facts["other"]:
            facts["score"].append((f"e{state}", player, str(rng.randint(0, 4))))
            facts["does"].append((f"e{state}", player, shown[player]))
            if (shown[player], shown[rival]) in facts["beats"]:
                facts["wins"].append((f"e{state}", player))
    atoms = [
        ("next", f"e{state}", player, str(n))
        for state in range(count)
        for player in ("p1", "p2")
        for n in range(6)
    ]
    return facts, atoms


def _score_program(rng: random.Random) -> str:
    """Return a game of which the winner scores, perhaps with one sign only."""
    sign = f", does(E,P,{rng.choice(['paper', 'stone'])})" if rng.random() < 0.5 else ""
    rules = [f"next(E,P,N) :- wins(E,P), score(E,P,M), succ(M,N){sign}."]
    rules.append("next(E,P,N) :- score(E,P,N), not wins(E,P).")
    return "\n".join(rules)


_WORLDS: dict[str, tuple[WorldMaker, Callable[[random.Random], str], dict[str, object]]] = {
    "trains": (
        _trains,
        _train_program,
        {
            "types": {
                "east": ("train",), "has_car": ("train", "car"), "has_load": ("car", "load"),
                **{name: ("car",) for group in _CARS for name in group},
                **dict.fromkeys(_LOADS, ("load",)),
            },
            "recursive": False,
        },
    ),
    "scenes": (
        _scenes,
        _scene_program,
        {
            "types": {
                "good": ("scene",), "piece": ("scene", "piece"), "size": ("piece", "number"),
                "contact": ("piece", "piece"), **dict.fromkeys((*_COLOURS, *_POSES), ("piece",)),
            },
            "directions": {
                "piece": ("in", "out"), "size": ("in", "out"), "contact": ("in", "out"),
                **dict.fromkeys((*_COLOURS, *_POSES), ("in",)),
            },
            "recursive": False,
            "comparisons": [">="],
        },
    ),
    "counter": (
        _counter,
        _counter_program,
        {
            "types": {
                "next": ("state", "number"), "value": ("state", "number"), "locked": ("state",),
                "does": ("state", "action"), "succ": ("number", "number"),
            },
            "recursive": False, "constants": True, "negation": True,
        },
    ),
    "corridor": (
        _corridor,
        _corridor_program,
        {
            "types": {
                "next": ("state", "place"), "at": ("state", "place"), "wall": ("state", "place"),
                "does": ("state", "action"), "right_of": ("place", "place"),
            },
            "recursive": False, "constants": True, "negation": True,
        },
    ),
    "score": (
        _score,
        _score_program,
        {
            "types": {
                "next": ("state", "player", "number"), "score": ("state", "player", "number"),
                "wins": ("state", "player"), "does": ("state", "player", "sign"),
                "beats": ("sign", "sign"), "other": ("player", "player"),
                "succ": ("number", "number"),
            },
            "recursive": False, "constants": True, "negation": True,
        },
    ),
}  # fmt: skip


def world_names() -> list[str]:
    """Return the names of the tasks whose examples are worlds."""
    return list(_WORLDS)


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
        relatives("father", "brother", "sister"),
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


def family_chains(count: int, lengths: Sequence[int], seed: int = 0) -> list[Chain]:
    """Return chains of relations between people of random families, with the relation of their ends.

    A chain visits nobody twice. The relations do not always decide the answer: the grandmother of a son
    is one's mother or one's mother-in-law.

    Args:
        count: the number of chains.
        lengths: the numbers of relations in a chain, equally likely.
        seed: of the random choices.
    """
    rng = random.Random(seed)
    chains: list[Chain] = []
    while len(chains) < count:
        relation = _relations_of_people(rng)
        near: dict[int, list[int]] = {}
        for one, other in sorted(relation):
            near.setdefault(one, []).append(other)
        for _ in range(500):
            length = rng.choice(list(lengths))
            path = [rng.choice(sorted(near))]
            while len(path) <= length:
                others = [person for person in near[path[-1]] if person not in path]
                if not others:
                    break
                path.append(rng.choice(others))
            answer = relation.get((path[0], path[-1]))
            if len(path) == length + 1 and answer is not None and len(chains) < count:
                named = tuple(relation[pair] for pair in itertools.pairwise(path))
                chains.append((named, answer))
    return chains


def _relations_of_people(rng: random.Random) -> dict[tuple[int, int], str]:
    """Return the named relation of each two people of four generations, where there is one."""
    sex: list[int] = []
    parents: dict[int, tuple[int, int]] = {}
    spouse: dict[int, int] = {}

    def born(kind: int, couple: tuple[int, int] | None = None) -> int:
        sex.append(kind)
        if couple is not None:
            parents[len(sex) - 1] = couple
        return len(sex) - 1

    generation = [(born(0), born(1)) for _ in range(6)]
    for last in (False, False, True):
        children = []
        for couple in generation:
            spouse |= {couple[0]: couple[1], couple[1]: couple[0]}
            children += [born(rng.randrange(2), couple) for _ in range(rng.randint(1, 3))]
        rng.shuffle(children)
        men, women = ([child for child in children if sex[child] == kind] for kind in (0, 1))
        pairs = zip(men, women, strict=False)
        generation = [] if last else [p for p in pairs if parents[p[0]] != parents[p[1]]]
    people = range(len(sex))
    up = {one: set(parents.get(one, ())) for one in people}
    down = {one: {child for child in people if one in up[child]} for one in people}
    beside = {one: {o for p in up[one] for o in down[p]} - {one} for one in people}
    married = {one: {spouse[one]} if one in spouse else set() for one in people}
    kinds = {"parent": up, "child": down, "sibling": beside, "spouse": married}
    for kind, first, second in (
        ("grandparent", up, up),
        ("grandchild", down, down),
        ("parents_sibling", up, beside),
        ("siblings_child", beside, down),
        ("parent_in_law", married, up),
        ("child_in_law", down, married),
    ):
        kinds[kind] = {one: {o for z in first[one] for o in second[z]} for one in people}
    return {
        (one, other): NAMES[kind][sex[other]]
        for kind, table in reversed(kinds.items())  # the nearer relation names a pair that has two
        for one in people
        for other in table[one] - {one}
    }


# --------------------------- Knowledge graphs with planted rules

#: A body: relations, and whether each is read backwards; a rule: head, its constant, body, its last constant.
Steps: TypeAlias = "tuple[tuple[str, bool], ...]"
PlantedRule: TypeAlias = "tuple[str, str | None, Steps, str | None]"
Triples: TypeAlias = "list[tuple[str, str, str]]"


def planted_graph(size: int, seed: int = 0) -> tuple[Triples, Triples, dict[PlantedRule, float]]:
    """Return the triples of a random graph, held-out triples, and the planted rules.

    The entities have eight types, and a relation leads from one type to another. Each rule derives
    its links with a probability between .6 and .95, which is given with the rule; a tenth of each head's
    triples is random, and a tenth is held out. Ten rules have three literals, five a constant in a
    body of one literal, and five in a body of two.

    Args:
        size: the number of triples, about.
        seed: of the random choices.
    """
    rng = random.Random(seed)
    count = size // 80
    members = [[f"t{kind}_{i}" for i in range(count)] for kind in range(8)]
    names = [f"b{i}" for i in range(24)]
    # The rules of three literals begin with a relation that few entities have.
    kinds = {name: (rng.randrange(8), rng.randrange(8)) for name in names}
    kinds |= {f"p{i}": (rng.randrange(8), rng.randrange(8)) for i in range(10)}
    after: dict[tuple[str, bool], dict[str, list[str]]] = {}
    base: set[tuple[str, str, str]] = set()
    weights = [1 / (i + 10) ** 0.8 for i in range(count)]  # few entities have most of the links
    for name, (one, other) in kinds.items():
        links = size // 30 if name in names else size // 400
        ends = rng.choices(members[other], weights, k=links)
        for x, y in set(zip(rng.choices(members[one], k=links), ends, strict=True)):
            base.add((x, name, y))
            after.setdefault((name, False), {}).setdefault(x, []).append(y)
            after.setdefault((name, True), {}).setdefault(y, []).append(x)

    def ends_of(name: str, back: bool) -> tuple[int, int]:
        one, other = kinds[name]
        return (other, one) if back else (one, other)

    def body_of(length: int, start: str | None = None) -> Steps:
        while True:
            body = tuple((rng.choice(names), rng.random() < 0.5) for _ in range(length))
            body = body if start is None else ((start, False), *body[1:])
            meet = all(ends_of(*a)[1] == ends_of(*b)[0] for a, b in itertools.pairwise(body))
            if meet and len({name for name, _ in body}) == length:
                return body

    def paths(x: str, body: Steps) -> set[str]:
        """The ends of the paths from an entity that visit no entity twice."""
        found = [(x,)]
        for step in body:
            found = [(*p, y) for p in found for y in after[step].get(p[-1], ()) if y not in p]
        return {p[-1] for p in found}

    rules: dict[PlantedRule, float] = {}
    derived: set[tuple[str, str, str]] = set()
    held: set[tuple[str, str, str]] = set()

    def add(
        rule: PlantedRule, links: list[tuple[str, str]], domain: list[str], ends: list[str]
    ) -> None:
        chance = rng.uniform(0.6, 0.95)
        kept = [link for link in links if rng.random() < chance]
        noise = [(rng.choice(domain), rng.choice(ends)) for _ in range(len(kept) // 10)]
        triples = sorted({(x, rule[0], y) for x, y in (*kept, *noise)})
        out = set(rng.sample(triples, len(triples) // 10))
        held.update(out)
        derived.update(set(triples) - out)
        rules[rule] = chance

    for number in range(10):
        body = body_of(3, f"p{number}")
        domain, ends = members[ends_of(*body[0])[0]], members[ends_of(*body[-1])[1]]
        links = [(x, y) for x in domain for y in sorted(paths(x, body))]
        add((f"path{number}", None, body, None), links, domain, ends)
    while len(rules) < 20:
        body = body_of(1 if len(rules) < 15 else 2)
        first, last = members[ends_of(*body[0])[0]], members[ends_of(*body[-1])[1]]
        end = rng.choice(last[:10])
        backwards = tuple((name, not back) for name, back in reversed(body))
        having = sorted(paths(end, backwards))
        # Through one entity alone, a shorter rule about it would be the same.
        middle = {z for z in paths(end, backwards[:1]) if paths(z, backwards[1:]) - {end}}
        if len(having) >= 10 and (len(body) == 1 or len(middle) > 1):
            value = f"value{len(rules)}"
            rule = (f"constant{len(rules)}", value, body, end)
            add(rule, [(x, value) for x in having], first, [value, "value_a", "value_b"])
    train = sorted(base | derived)
    known = {name for h, _, t in train for name in (h, t)}
    return train, sorted(t for t in held if {t[0], t[2]} <= known), rules
