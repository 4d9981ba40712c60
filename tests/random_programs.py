"""Random programs for all tests, drawn from a seed or by hypothesis."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from latentgamma import Program, Rule


def random_program(
    seed: int | np.random.Generator,
    atoms: int = 6,
    rules: int = 8,
    *,
    body: int | None = None,
    heads: int = 3,
) -> Program:
    """A program with bodies of every size, several heads, repeated atoms, facts and loops.

    Args:
        seed: A seed, or a generator to draw from.
        atoms: The number of atoms, named `a0`, `a1` and so on.
        rules: The number of rules.
        body: The largest body; by default all atoms.
        heads: The largest number of heads of a rule. Most rules have one.
    """
    rng = np.random.default_rng(seed)
    longest = atoms if body is None else min(body, atoms)

    def draw(count: int) -> list[int]:
        repeats = bool(rng.random() < 0.2)
        return [int(i) for i in rng.choice(atoms, count, replace=repeats)]

    bodies = [draw(int(rng.integers(0, longest + 1))) for _ in range(rules)]
    widths = np.where(rng.random(rules) < 0.6, 1, rng.integers(1, min(heads, atoms) + 1, rules))
    all_heads = [draw(int(width)) for width in widths]
    return Program.from_arrays(
        np.cumsum([0, *map(len, bodies)]),
        np.array([i for one in bodies for i in one], np.int64),
        np.array([i for one in all_heads for i in one], np.int64),
        np.cumsum([0, *map(len, all_heads)]),
        atoms=atoms,
    )


def random_stratified_rules(seed: int) -> list[Rule]:
    """Rules over six atoms, in any order, of which at least one has a negated atom."""
    rng = np.random.default_rng(seed)
    rank = rng.permutation(6)  # an atom negates only atoms of lower rank
    rules = []
    while not any(rule.negated for rule in rules):
        rules = []
        for _ in range(int(rng.integers(2, 9))):
            heads = rng.choice(6, int(rng.integers(1, 3)), replace=False).tolist()
            low = min(rank[h] for h in heads)
            positive = [i for i in range(6) if rank[i] <= low and rng.random() < 0.3]
            negated = [i for i in range(6) if rank[i] < low and rng.random() < 0.3]
            names = [tuple(f"a{i}" for i in part) for part in (heads, positive, negated)]
            rules.append(Rule(names[0], frozenset(names[1]), frozenset(names[2])))
    return rules


def random_stratified(seed: int) -> Program:
    """The program of these rules."""
    return Program.from_rules(random_stratified_rules(seed), [f"a{i}" for i in range(6)])


def stable_model(
    rules: list[Rule], facts: frozenset[str], atoms: tuple[str, ...]
) -> frozenset[str]:
    """The one stable model, found among all sets of atoms: no strata, no order of rules."""
    found = []
    for chosen in itertools.product((False, True), repeat=len(atoms)):
        guess = {atom for atom, true in zip(atoms, chosen, strict=True) if true}
        known = set(facts)
        while (
            new := {
                head
                for rule in rules
                if rule.body <= known and rule.negated.isdisjoint(guess)
                for head in rule.heads
            }
            - known
        ):
            known |= new
        if known == guess:
            found.append(frozenset(guess))
    (only,) = found
    return only


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    names: st.SearchStrategy[str] | None = None,
    atoms: int = 6,
    rules: int = 8,
    body: int = 6,
    heads: int = 3,
) -> Program:
    """Programs of up to this size; with `names`, the atoms are called what that strategy draws."""
    if names is None:
        known = [f"a{i}" for i in range(draw(st.integers(1, atoms)))]
    else:
        known = draw(st.lists(names, min_size=1, max_size=atoms, unique=True))
    atom = st.sampled_from(known)
    rule = st.tuples(st.lists(atom, min_size=1, max_size=heads), st.lists(atom, max_size=body))
    pairs = draw(st.lists(rule, max_size=rules))
    # Without the list of atoms, those that no rule mentions are missing, and the order is another.
    return Program.from_rules(pairs, known if names is None or draw(st.booleans()) else None)
