"""Programs to try things on: the four of the paper, random ones, and families that scale.

| function | the program | M, R | k | rho_max | depth |
|---|---|---|---|---|---|
| `g1` | one chain, with a switch beside it | 33, 32 | 2 | 2 | 31 |
| `g2` | one domain with conjunctions | 57, 60 | 2 | 3 | 31 |
| `g3` | two cross-related domains | 117, 132 | 2 | 8 | 32 |
| `g4` | eight cross-related domains, in a ring | 504, 648 | 2 | 16 | 32 |
| `disjunctive` | rules of two and three heads | 36, 30 | 2 | | |
| `random` | uniformly drawn rules, up to millions of them | atoms, rules + facts | | | |
| `chain` | each atom needs the `body` atoms before it | n, n - body | body | 1 | n - body |
| `ladder` | each atom needs the whole layer before it | (layers + 1) k, layers k | k | 1 | layers |
| `clique` | every atom implies every other | n, n (n - 1) | 1 | n - 1 | 1 |
| `grid` | each cell needs its upper and its left neighbour | rows cols, rows cols - 1 | 2 | 1 | rows + cols - 2 |
| `layered` | several random rules per atom, layer by layer | (layers + 1) width, layers width per_head | body | per_head | layers |

Depth is the number of steps from the roots, all of them true (the first layer where there
are layers, any one atom of a clique). Every function is deterministic: the same arguments,
`seed` among them, give the same program. A number out of its range is an `ArgumentError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import whole_number, wrong
from latentgamma.errors import ArgumentError
from latentgamma.program.program import Program

__all__ = [
    "g1", "g2", "g3", "g4",
    "disjunctive", "random",
    "chain", "ladder", "clique", "grid", "layered",
]  # fmt: skip


# ---- The arguments of the program generators, checked


def size_range(name: str, value: int | tuple[int, int]) -> tuple[int, int]:
    """Return the smallest and largest size that an int or a pair allows."""
    if not isinstance(value, tuple):
        return (whole_number(name, value, 1),) * 2
    if len(value) != 2:
        raise wrong(name, "a size or a pair (smallest, largest)", value)
    low, high = whole_number(name, value[0], 1), whole_number(name, value[1], 1)
    if low > high:
        raise wrong(name, "a pair (smallest, largest)", value)
    return low, high


def generator(seed: int) -> np.random.Generator:
    """Return the random numbers of a seed."""
    return np.random.default_rng(whole_number("seed", seed))


# ---- Programs of uniformly random rules, up to millions of them

_Ints: TypeAlias = npt.NDArray[np.int64]


def random(
    atoms: int,
    rules: int,
    *,
    body: int | tuple[int, int] = (1, 3),
    heads: int | tuple[int, int] = 1,
    seed: int = 0,
    acyclic: bool = False,
    facts: int = 0,
) -> Program:
    """Return a program of uniformly random rules, none with a head of its own in its body.

    Rules are drawn independently of one another, so one may come twice. A million rules take
    about a second.

    >>> random(100, 300)
    Program(M=100, R=300, k=3, rho_max=9)
    >>> for rule in random(5, 2, body=2, facts=1, acyclic=True).rules:
    ...     print(rule)
    a3.
    a4 :- a1, a2.
    a3 :- a0, a1.

    Args:
        atoms: the number of atoms.
        rules: the number of rules with a body.
        body: the size of each body, or a pair (smallest, largest) to draw it from.
        heads: the number of heads of each rule, or such a pair.
        seed: the same seed gives the same program.
        acyclic: whether the body atoms of a rule come before its heads in the order of the atoms.
        facts: the number of rules with an empty body, on different atoms: R = rules + facts.

    Raises:
        ArgumentError: if a number is out of its range, or there are too few atoms.
    """
    M, R = whole_number("atoms", atoms), whole_number("rules", rules)
    fewest, most = size_range("body", body)
    _, most_heads = head_range = size_range("heads", heads)
    stated = whole_number("facts", facts)
    if R and most + most_heads > M:
        raise ArgumentError(
            f"rules with up to {most} body atoms and {most_heads} heads, all different, need "
            f"{most + most_heads} atoms, but atoms={M}; ask for smaller bodies or more atoms"
        )
    if stated > M:
        raise ArgumentError(f"facts={stated} different atoms were asked for, but atoms={M}")
    rng = generator(seed)
    body_sizes = rng.integers(fewest, most, R, endpoint=True)
    head_sizes = rng.integers(*head_range, R, endpoint=True)
    if acyclic:
        # Heads keep clear of the first k_j atoms, so that k_j atoms lie before each.
        head_flat = draw_distinct(head_sizes, M - body_sizes, rng) + np.repeat(
            body_sizes, head_sizes
        )
        lowest = head_flat[np.cumsum(head_sizes) - head_sizes]
        body_flat = draw_distinct(body_sizes, lowest, rng)
    else:
        head_flat = draw_distinct(head_sizes, np.full(R, M), rng)
        body_flat = draw_distinct(body_sizes, M - head_sizes, rng)
        _skip_heads(body_flat, body_sizes, head_flat, head_sizes)
    own = np.sort(rng.choice(M, stated, replace=False)) if stated else np.zeros(0, np.int64)
    return Program.from_arrays(
        offsets_of(np.concatenate((np.zeros(stated, np.int64), body_sizes))),
        body_flat,
        np.concatenate((own, head_flat)),
        offsets_of(np.concatenate((np.ones(stated, np.int64), head_sizes))),
        atoms=M,
    )


def draw_distinct(sizes: _Ints, pools: _Ints, rng: np.random.Generator) -> _Ints:
    """Return row by row, `sizes[j]` different numbers below `pools[j]`, rising; the rows laid flat.

    Every subset of a row's pool is equally likely: what repeats within a row is drawn again,
    which treats all numbers alike. For rows that need most of their pool that would take
    long; they sort random keys instead.
    """
    flat = np.zeros(int(sizes.sum()), np.int64)
    row = np.repeat(np.arange(len(sizes)), sizes)
    crowded = 2 * sizes > pools
    sparse = np.flatnonzero(~crowded[row])
    if len(sparse):
        # One sortable number per entry: its row, then its value.
        width = int(pools.max())
        entry_row, entry_pool = row[sparse], pools[row[sparse]]
        keys = np.sort(entry_row * width + rng.integers(0, entry_pool))
        again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
        while len(again):
            fresh = rng.integers(0, entry_pool[again])
            keys[again] = entry_row[again] * width + fresh
            keys.sort()
            again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
        flat[sparse] = keys - entry_row * width
    start = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[crowded]):
        rows = np.flatnonzero(crowded & (sizes == size))
        order = rng.random((len(rows), int(pools[rows].max())))
        order[np.arange(order.shape[1]) >= pools[rows][:, None]] = 2.0  # beyond the row's pool
        first = np.argpartition(order, size - 1, axis=1)[:, :size]
        flat[start[rows][:, None] + np.arange(size)] = np.sort(first, axis=1)
    return flat


def _skip_heads(body: _Ints, body_sizes: _Ints, heads: _Ints, head_sizes: _Ints) -> None:
    """Renumber bodies in place so that each skips the heads of its rule."""
    start = np.cumsum(head_sizes) - head_sizes
    for p in range(int(head_sizes.max(initial=0))):
        # Rows with fewer heads compare with a number no atom has.
        last = np.full(len(head_sizes), np.iinfo(np.int64).max)
        has = head_sizes > p
        last[has] = heads[start[has] + p]
        body += body >= np.repeat(last, body_sizes)


def offsets_of(sizes: _Ints) -> _Ints:
    """Return where each run of the given size starts, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


# ---- Families of programs that scale: chains, ladders, cliques, grids and layers


def chain(n: int, *, body: int = 1) -> Program:
    """Return a chain of n atoms, each of which needs the `body` atoms before it.

    M = n, R = n - body, k = body, rho_max = 1; the depth from the first `body` atoms is
    n - body. With `body=2` a fact in the middle shortens the derivation by one step only.

    >>> print(chain(4, body=2).rules[0], chain(4, body=2).rules[1])
    a2 :- a0, a1. a3 :- a1, a2.

    Args:
        n: the number of atoms.
        body: the number of body atoms of each rule.
    """
    M, k = whole_number("n", n, 1), whole_number("body", body, 1)
    if k > M:
        raise ArgumentError(f"body={k} atoms before an atom need a longer chain than n={M}")
    heads = np.arange(k, M)
    bodies = heads[:, None] + np.arange(-k, 0)  # (R, k)
    return _uniform(bodies, heads, M)


def ladder(layers: int, k: int) -> Program:
    """Return a ladder: `layers` layers above a first one, each of k atoms that need all k below.

    M = (layers + 1) k, R = layers k, bodies of size k, rho_max = 1; the depth from the
    first layer is `layers`, and a layer that lacks one atom derives nothing.

    >>> ladder(2, 3)
    Program(M=9, R=6, k=3, rho_max=1)
    >>> print(ladder(2, 3).rules[0])
    layer1_0 :- layer0_0, layer0_1, layer0_2.

    Args:
        layers: the number of layers above the first.
        k: the number of atoms of a layer.
    """
    depth, width = whole_number("layers", layers), whole_number("k", k, 1)
    heads = np.arange(width, (depth + 1) * width)
    bodies = (heads // width - 1)[:, None] * width + np.arange(width)  # (R, k)
    return _uniform(bodies, heads, _layer_names(depth + 1, width))


def clique(n: int) -> Program:
    """Return a clique: every atom implies every other.

    M = n, R = n (n - 1), k = 1, rho_max = n - 1; any fact derives everything in one step.

    >>> clique(4)
    Program(M=4, R=12, k=1, rho_max=3)

    Args:
        n: the number of atoms.
    """
    M = whole_number("n", n, 1)
    heads = np.repeat(np.arange(M), M - 1)
    bodies = np.tile(np.arange(M - 1), M)
    return _uniform((bodies + (bodies >= heads))[:, None], heads, M)


def grid(rows: int, cols: int) -> Program:
    """Return a grid of cells, each of which needs its upper and its left neighbour.

    The first row and column need the one neighbour they have. M = rows cols, R = M - 1,
    k = 2 (1 where there is only one row or column), rho_max = 1; the depth from the corner
    `cell_0_0` is rows + cols - 2.

    >>> grid(3, 4)
    Program(M=12, R=11, k=2, rho_max=1)
    >>> print(grid(3, 4).rules[-1])
    cell_2_3 :- cell_1_3, cell_2_2.

    Args:
        rows: the number of rows.
        cols: the number of columns.
    """
    height, width = whole_number("rows", rows, 1), whole_number("cols", cols, 1)
    cells = np.arange(1, height * width)
    neighbours = np.stack((cells - width, cells - 1), axis=1)  # (R, 2), upper and left
    exists = np.stack((cells >= width, cells % width > 0), axis=1)
    names = [f"cell_{row}_{col}" for row in range(height) for col in range(width)]
    return Program.from_arrays(
        offsets_of(exists.sum(axis=1)), neighbours[exists], cells, atoms=names
    )


def layered(layers: int, width: int, *, body: int = 2, per_head: int = 2, seed: int = 0) -> Program:
    """Return a random layered program: `per_head` rules for each atom above the first layer.

    Each body is `body` atoms of the layer below. M = (layers + 1) width,
    R = layers width per_head, k = body, rho_max = per_head; the depth from the first layer
    is `layers`.

    >>> layered(3, 10, per_head=4)
    Program(M=40, R=120, k=2, rho_max=4)

    Args:
        layers: the number of layers above the first.
        width: the number of atoms of a layer.
        body: the number of body atoms of each rule.
        per_head: the number of rules of each atom.
        seed: the same seed gives the same program.
    """
    depth, across = whole_number("layers", layers), whole_number("width", width, 1)
    k, ways = whole_number("body", body, 1), whole_number("per_head", per_head, 1)
    if ways > math.comb(across, k):
        raise ArgumentError(
            f"a layer of width={across} has {math.comb(across, k)} different bodies of {k} "
            f"atoms, but per_head={ways}; ask for wider layers, other bodies or fewer rules"
        )
    rng = generator(seed)
    heads = np.repeat(np.arange(across, (depth + 1) * across), ways)
    bodies = np.zeros((len(heads), k), np.int64)  # (R, k), within the layer below
    again = np.arange(len(heads))
    # A body is known by the sum of its atoms' random marks, and a rule by its head as well.
    marks = rng.integers(0, 2**63, across, np.uint64)
    while len(again):
        sizes = np.full(len(again), k)
        bodies[again] = draw_distinct(sizes, np.full(len(again), across), rng).reshape(-1, k)
        sums = marks[bodies].sum(axis=1)
        order = np.lexsort((sums, heads))
        same = (np.diff(sums[order]) == 0) & (np.diff(heads[order]) == 0)
        again = order[1:][same]
    below = (heads // across - 1)[:, None] * across
    return _uniform(below + bodies, heads, _layer_names(depth + 1, across))


def _uniform(bodies: _Ints, heads: _Ints, atoms: Sequence[str] | int) -> Program:
    """Return the program of bodies that all have one size. Shapes (R, k) and (R,)."""
    R, k = bodies.shape
    return Program.from_arrays(np.arange(R + 1) * k, bodies.ravel(), heads, atoms=atoms)


def _layer_names(layers: int, width: int) -> list[str]:
    return [f"layer{layer}_{i}" for layer in range(layers) for i in range(width)]


# ---- The programs of the paper: G1 to G4, and rules of several heads
# The paper prints the figures of G1 to G4 but not their rules; these programs meet all the
# figures at once. The figures suggest the build: if G2, with 57 atoms and 60 rules, is one
# domain, then G3 is two and 3 atoms and 12 rules between them, G4 eight and 48 and 168.

_DOMAINS = ("physics", "chemistry", "biology", "medicine", "climate", "energy", "trade", "law")
_SPINE = 32  # atoms of a chain or of a domain's spine: depth 31 from its root
_RELATION_RANK = 12  # relations rest on atoms below this rank and open branches above it


# ---- One head a rule


def g1(*, seed: int = 0) -> Program:
    """Return G1 of the paper, a single chain: M = 33, R = 32, k = 2, rho_max = 2.

    A plain chain of 33 atoms has 32 rules too, so an atom with two of them leaves another
    with none. Here the chain has 32 atoms, and beside it stands a `switch`, which alone
    derives nothing: one atom of the chain follows either from those before it or, a step
    sooner, from an earlier one and the switch. The first four rules have one body atom;
    every later one also needs an atom two or three places back, so that a fact in the
    middle does not cut the chain in two. One productive root, `chain_0`, from which the
    depth is 31; one leaf, `chain_31`.

    >>> g1()
    Program(M=33, R=32, k=2, rho_max=2)
    >>> print(g1().rules[0], g1().rules[-1])
    chain_1 :- chain_0. chain_8 :- chain_6, switch.

    Args:
        seed: the same seed gives the same program.
    """
    draft = _Draft(seed)
    atoms = [f"chain_{i}" for i in range(_SPINE)]
    for i in range(1, _SPINE):
        back = [] if i <= 4 else [atoms[i - int(draft.rng.integers(2, 4))]]
        draft.add(atoms[i], atoms[i - 1], *back)
    switched = int(draft.rng.integers(8, 25))
    draft.add(atoms[switched], atoms[switched - 2], "switch")
    return Program.from_rules(draft.rules, [*atoms, "switch"])


def g2(*, seed: int = 0) -> Program:
    """Return G2 of the paper, one domain with conjunctions: M = 57, R = 60, k = 2, rho_max = 3.

    A spine of 32 atoms, and four branches of six or seven that leave it at different
    heights. 8 atoms of the spine and 4 of the branches need a second atom; three atoms of
    the branches have further rules. One productive root, five leaves, depth 31.

    >>> g2()
    Program(M=57, R=60, k=2, rho_max=3)
    >>> g2().roots
    ('physics_0',)
    >>> g2().leaves
    ('physics_31', 'physics_a6', 'physics_b6', 'physics_c6', 'physics_d7')

    Args:
        seed: the same seed gives the same program.
    """
    draft = _Draft(seed)
    draft.domain(_DOMAINS[0])
    return draft.program()


def g3(*, seed: int = 0) -> Program:
    """Return G3 of the paper, two cross-related domains: M = 117, R = 132, k = 2, rho_max = 8.

    Two domains like that of `g2`, and three atoms that relate them: `physics_chemistry`,
    with eight rules from early atoms of either or both, opens two branches of each domain;
    `physics_to_chemistry` follows from the end of physics, or from that of chemistry and a
    branch of physics, and `chemistry_to_physics` likewise. Two productive roots, eight
    leaves, depth 32.

    >>> g3()
    Program(M=117, R=132, k=2, rho_max=8)
    >>> g3().roots
    ('physics_0', 'chemistry_0')

    Args:
        seed: the same seed gives the same program.
    """
    draft = _Draft(seed)
    relation = "_".join(_DOMAINS[:2])
    first, second = (draft.domain(name, (relation, relation)) for name in _DOMAINS[:2])
    draft.relate(relation, first, second, rules=8)
    for here, there in ((first, second), (second, first)):
        goal = draft.rank(f"{here.name}_to_{there.name}", _SPINE)
        draft.add(goal, here.spine[-1])
        draft.add(goal, there.spine[-1], here.branches[0][-1])
    return draft.program()


def g4(*, seed: int = 0) -> Program:
    """Return G4 of the paper, eight cross-related domains: M = 504, R = 648, k = 2, rho_max = 16.

    Eight domains like that of `g2`, in a ring. Each pair of neighbours shares six atoms: a
    relation with sixteen rules, such as `physics_chemistry`, which opens a branch of either
    domain; four results that follow from it one by one; and one, such as
    `physics_to_chemistry`, that follows from the end of the first domain. Eight productive
    roots, 48 leaves, depth 32.

    >>> g4()
    Program(M=504, R=648, k=2, rho_max=16)
    >>> len(g4().roots), len(g4().leaves)
    (8, 48)

    Args:
        seed: the same seed gives the same program.
    """
    draft = _Draft(seed)
    relations = [f"{a}_{b}" for a, b in zip(_DOMAINS, _DOMAINS[1:] + _DOMAINS[:1], strict=True)]
    domains = [
        draft.domain(name, (relations[i - 1], relations[i])) for i, name in enumerate(_DOMAINS)
    ]
    for i, relation in enumerate(relations):
        here, there = domains[i], domains[(i + 1) % len(domains)]
        draft.relate(relation, here, there, rules=16)
        last = relation
        for step, beside in enumerate((None, there, here, None), start=1):
            result = draft.rank(f"{relation}_{step}", _RELATION_RANK + step)
            early = [draft.pick(draft.below(_RELATION_RANK, beside))] if beside else []
            draft.add(result, last, *early)
            last = result
        draft.add(draft.rank(f"{here.name}_to_{there.name}", _SPINE), here.spine[-1])
    return draft.program()


@dataclass(frozen=True)
class _Domain:
    """The atoms of a domain: a spine, and the branches that leave it."""

    name: str
    spine: list[str]
    branches: list[list[str]]


class _Draft:
    """A program of domains being written: each atom's rank, and the rules so far.

    Ranks are what bounds the depth. The body atoms of a rule rank below its head, so no
    fact set whatever converges later than the highest rank.
    """

    def __init__(self, seed: int) -> None:
        self.rng = generator(seed)
        self.ranks: dict[str, int] = {}
        self.rules: list[tuple[str, tuple[str, ...]]] = []

    def program(self) -> Program:
        return Program.from_rules(self.rules, self.ranks)

    def rank(self, atom: str, rank: int) -> str:
        self.ranks[atom] = rank
        return atom

    def add(self, head: str, *body: str) -> None:
        self.rules.append((head, body))

    def pick(self, atoms: Sequence[str]) -> str:
        return atoms[int(self.rng.integers(len(atoms)))]

    def below(self, rank: int, domain: _Domain) -> list[str]:
        """Return the atoms of a domain under a rank that bodies may use: the ends stay leaves."""
        atoms = domain.spine[:-1] + [atom for branch in domain.branches for atom in branch[:-1]]
        return [atom for atom in atoms if self.ranks[atom] < rank]

    def domain(self, name: str, relations: Sequence[str] = ()) -> _Domain:
        """Return a new domain of 57 atoms and 60 rules; two relations may each open a branch."""
        spine = [self.rank(f"{name}_{i}", i) for i in range(_SPINE)]
        bodies = {atom: [before] for before, atom in pairwise(spine)}
        branches = []
        for letter, lowest, length in zip(
            "abcd", (2, 8, 14, 20), self.rng.permutation([6, 6, 6, 7]), strict=True
        ):
            fork = lowest + int(self.rng.integers(5))
            branch = [self.rank(f"{name}_{letter}{i}", fork + i) for i in range(1, length + 1)]
            bodies |= {atom: [before] for before, atom in pairwise([spine[fork], *branch])}
            branches.append(branch)
        domain = _Domain(name, spine, branches)
        # To need an atom two steps back stops a fact that lies one step back, and no other;
        # needing one from further back would let a fact in between skip more of the spine.
        for i in self.rng.choice(np.arange(4, _SPINE), 8, replace=False):
            level = [atom for atom in self.below(i - 1, domain) if self.ranks[atom] == i - 2]
            bodies[spine[i]].append(self.pick(level))
        inner = [(branch, atom) for branch in branches for atom in branch[1:]]
        *joined, (_, third) = (inner[i] for i in self.rng.choice(len(inner), 5, replace=False))
        for branch, atom in joined:
            near = [
                other
                for other in self.below(self.ranks[atom], domain)
                if self.ranks[other] >= self.ranks[atom] - 3 and other not in branch
            ]
            bodies[atom].append(self.pick(near))
        for atom, body in bodies.items():
            self.add(atom, *body)
        # Four further rules: the last two branches open in a second way, one atom has three.
        for atom, relation in zip_longest((branches[2][0], branches[3][0]), relations):
            self.add(atom, *([relation] if relation else self._unused(atom, bodies, domain)))
        for _ in range(2):
            body = self._unused(third, bodies, domain)
            self.add(third, *body)
            bodies[third] += body
        return domain

    def _unused(self, atom: str, bodies: dict[str, list[str]], domain: _Domain) -> list[str]:
        """Return two lower atoms that no rule for this atom uses yet."""
        lower = self.below(self.ranks[atom], domain)
        free = [other for other in lower if other not in bodies[atom]]
        return [free[i] for i in self.rng.choice(len(free), 2, replace=False)]

    def relate(self, relation: str, here: _Domain, there: _Domain, *, rules: int) -> None:
        """Add the rules of a relation: half with an atom of one domain, half with one of each."""
        self.rank(relation, _RELATION_RANK)
        left, right = (
            [pool[i] for i in self.rng.permutation(len(pool))]
            for pool in (self.below(_RELATION_RANK, here), self.below(_RELATION_RANK, there))
        )
        # Alone or in a pair, each atom serves once, so that no rule makes another needless.
        alone = rules // 4
        for i in range(alone):
            self.add(relation, left[i])
            self.add(relation, right[i])
        for i in range(alone, alone + rules // 2):
            self.add(relation, left[i], right[i])


# ---- Several heads


def disjunctive(*, rules: int = 30, seed: int = 0) -> Program:
    """Return a program of multi-head rules, all heads derived at once, of the paper's three shapes.

    In turn A ⇒ B, C; A ∧ B ⇒ C, D; and A ⇒ B, C, D, from each layer of six atoms to the
    next, six rules to a layer. The rules with three heads reach every atom of a full layer,
    and those with two most of them: such atoms show whether the offsets are right, since a
    head of three gets two thirds of what a head of two does. With 30 rules M = 36 and k = 2.

    >>> disjunctive().M, disjunctive().R, disjunctive().k
    (36, 30, 2)
    >>> for rule in disjunctive().rules[:3]:
    ...     print(rule)
    layer1_0, layer1_3 :- layer0_0.
    layer1_1, layer1_2 :- layer0_0, layer0_4.
    layer1_0, layer1_1, layer1_3 :- layer0_0.

    Args:
        rules: the number of rules.
        seed: the same seed gives the same program.
    """
    R = whole_number("rules", rules, 1)
    rng = generator(seed)
    width = 6
    names = [[f"layer{layer}_{i}" for i in range(width)] for layer in range(1 - -R // width)]
    clauses = []
    for layer, below in enumerate(names[:-1]):
        pairs, triples = (_shuffled_groups(names[layer + 1], size, rng) for size in (2, 3))
        for j in range(min(width, R - layer * width)):
            body = rng.choice(width, 2 if j % 3 == 1 else 1, replace=False)
            heads = triples.pop() if j % 3 == 2 else pairs.pop()
            clauses.append((heads, [below[i] for i in body]))
    return Program.from_rules(clauses, [name for layer in names for name in layer])


def _shuffled_groups(atoms: Sequence[str], size: int, rng: np.random.Generator) -> list[list[str]]:
    """Return two shuffles of the atoms, cut into groups of this size."""
    deck = [atoms[i] for _ in range(2) for i in rng.permutation(len(atoms))]
    return [deck[i : i + size] for i in range(0, len(deck), size)]
