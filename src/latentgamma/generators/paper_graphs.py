"""The programs of the paper: G1 to G4, and rules of several heads.

The paper prints the figures of G1 to G4 but not their rules; these programs meet all the
figures at once. The figures suggest the build: if G2, with 57 atoms and 60 rules, is one
domain, then G3 is two and 3 atoms and 12 rules between them, G4 eight and 48 and 168.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np

from latentgamma._program.program import Program
from latentgamma.generators.arguments import count, generator

_DOMAINS = ("physics", "chemistry", "biology", "medicine", "climate", "energy", "trade", "law")
_SPINE = 32  # atoms of a chain or of a domain's spine: depth 31 from its root
_RELATION_RANK = 12  # relations rest on atoms below this rank and open branches above it


# -------------------------------------------------------------------- one head a rule


def g1(*, seed: int = 0) -> Program:
    """G1 of the paper, a single chain: M = 33, R = 32, k = 2, rho_max = 2.

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

    Returns:
        The program.

    Raises:
        ProgramError: if the seed is not a whole number from 0 on.
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
    """G2 of the paper, one domain with conjunctions: M = 57, R = 60, k = 2, rho_max = 3.

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

    Returns:
        The program.

    Raises:
        ProgramError: if the seed is not a whole number from 0 on.
    """
    draft = _Draft(seed)
    draft.domain(_DOMAINS[0])
    return draft.program()


def g3(*, seed: int = 0) -> Program:
    """G3 of the paper, two cross-related domains: M = 117, R = 132, k = 2, rho_max = 8.

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

    Returns:
        The program.

    Raises:
        ProgramError: if the seed is not a whole number from 0 on.
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
    """G4 of the paper, eight cross-related domains: M = 504, R = 648, k = 2, rho_max = 16.

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

    Returns:
        The program.

    Raises:
        ProgramError: if the seed is not a whole number from 0 on.
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
        """The atoms of a domain under a rank that bodies may use: the ends stay leaves."""
        atoms = domain.spine[:-1] + [atom for branch in domain.branches for atom in branch[:-1]]
        return [atom for atom in atoms if self.ranks[atom] < rank]

    def domain(self, name: str, relations: Sequence[str] = ()) -> _Domain:
        """A new domain of 57 atoms and 60 rules; two relations may each open a branch."""
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
        """Two lower atoms that no rule for this atom uses yet."""
        lower = self.below(self.ranks[atom], domain)
        free = [other for other in lower if other not in bodies[atom]]
        return [free[i] for i in self.rng.choice(len(free), 2, replace=False)]

    def relate(self, relation: str, here: _Domain, there: _Domain, *, rules: int) -> None:
        """Rules for a relation: half from one atom of either domain, half from one of each."""
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


# -------------------------------------------------------------------- several heads


def disjunctive(*, rules: int = 30, seed: int = 0) -> Program:
    """A program of multi-head rules, all heads derived at once, of the paper's three shapes.

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

    Returns:
        The program.

    Raises:
        ProgramError: if a number is out of its range.
    """
    R = count("rules", rules, 1)
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
    """Two shuffles of the atoms, cut into groups of this size."""
    deck = [atoms[i] for _ in range(2) for i in rng.permutation(len(atoms))]
    return [deck[i : i + size] for i in range(0, len(deck), size)]
