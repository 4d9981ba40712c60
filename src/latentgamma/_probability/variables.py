"""The random variables of a program: independent facts, and groups of which exactly one is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latentgamma._errors import ModelError
from latentgamma._program.facts import Mask
from latentgamma._program.program import Indices, Program


@dataclass(frozen=True)
class Variables:
    """Independent facts, and groups of facts of which exactly one is true.

    Variable v < len(facts) is the fact `facts[v]`; the next ones are the groups. A world chooses
    for every fact whether it is true, and one atom of every group.

    >>> variables = Variables((0,), ((1, 2, 3),))
    >>> variables.sizes, variables.worlds
    ((2, 3), 6)
    """

    facts: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @cached_property
    def atoms(self) -> Indices:
        """The input atoms: the facts, then the atoms of one group after another."""
        flat = [*self.facts, *(atom for group in self.groups for atom in group)]
        return np.array(flat, np.int32)

    @cached_property
    def owner(self) -> dict[int, int]:
        """The variable of each input atom."""
        owner = {atom: v for v, atom in enumerate(self.facts)}
        for v, group in enumerate(self.groups, len(self.facts)):
            owner.update(dict.fromkeys(group, v))
        return owner

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each variable."""
        return (2,) * len(self.facts) + tuple(len(group) for group in self.groups)

    @property
    def worlds(self) -> int:
        """The number of worlds."""
        product = 1
        for size in self.sizes:
            product *= size
        return product

    def exclude(self, a: int, b: int) -> bool:
        """Whether two input atoms are different atoms of one group."""
        owner = self.owner
        return a != b and a in owner and owner[a] == owner.get(b)


def check_variables(
    program: Program, facts: Sequence[int], groups: Sequence[Sequence[int]]
) -> Variables:
    """Return the variables, checked.

    Raises:
        ModelError: An atom occurs twice, or a group has fewer than two atoms.
    """
    seen: Mask = np.zeros(program.M, np.bool_)
    for atom in [*facts, *(atom for group in groups for atom in group)]:
        if seen[atom]:
            raise ModelError(f"the input {program.atoms[atom]!r} is given twice")
        seen[atom] = True
    for group in groups:
        if len(group) < 2:
            names = ", ".join(repr(program.atoms[atom]) for atom in group) or "no atom"
            raise ModelError(
                f"a group has at least two atoms, of which exactly one is true; this one has {names}"
            )
    return Variables(tuple(map(int, facts)), tuple(tuple(map(int, group)) for group in groups))
