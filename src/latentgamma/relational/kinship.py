"""Chains of kinship relations, with the relation between their ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeAlias

from latentgamma._errors import ArgumentError

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

    >>> (chain, relation), = kinship_chains(1, [3], seed=3)
    >>> len(chain), relation == true_table()[true_table()[chain[:2]], chain[2]]
    (3, True)

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
