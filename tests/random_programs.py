"""Random programs for all tests, drawn from a seed or by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from latentgamma import Program


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
