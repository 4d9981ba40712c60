"""What programs with and without negation have in common: atoms, and facts about them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from latentgamma._errors import FactsError
from latentgamma._program.facts import Facts, FactSets, Mask, fact_mask, fact_values


class AtomsOfProgram:
    """The atoms of a program, by name, by index and as states.

    A program has `atoms`, their names, and says how many rules have each atom as a head and use it.
    """

    atoms: tuple[str, ...]

    @property
    def M(self) -> int:
        """The number of atoms."""
        return len(self.atoms)

    @cached_property
    def rules_per_head(self) -> npt.NDArray[np.int64]:
        """R_i, the number of rules with head i. Shape (M,)."""
        raise NotImplementedError

    @cached_property
    def uses_per_atom(self) -> npt.NDArray[np.int64]:
        """The number of bodies each atom occurs in, negated or not. Shape (M,)."""
        raise NotImplementedError

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each atom's name."""
        return {name: i for i, name in enumerate(self.atoms)}

    @property
    def roots(self) -> tuple[str, ...]:
        """Atoms that rules use and none derives: where facts come in."""
        return self._atoms_where((self.rules_per_head == 0) & (self.uses_per_atom > 0))

    @property
    def leaves(self) -> tuple[str, ...]:
        """Atoms that occur in no body."""
        return self._atoms_where(self.uses_per_atom == 0)

    @property
    def underivable(self) -> tuple[str, ...]:
        """Atoms that no rule derives: R_i = 0. The paper calls them sinks."""
        return self._atoms_where(self.rules_per_head == 0)

    def _atoms_where(self, mask: Mask) -> tuple[str, ...]:
        return tuple(self.atoms[i] for i in np.flatnonzero(mask))

    def mask(self, facts: Facts = ()) -> Mask:
        """One boolean for each atom, from one fact set in any form.

        >>> from latentgamma import parse
        >>> parse("bird :- penguin.").mask(["penguin"])
        array([False,  True])

        Args:
            facts: names, indices, one value for each atom, or a dictionary from names to values.

        Returns:
            A new boolean array of shape (M,).

        Raises:
            FactsError: if these are not facts of this program, or a value is neither 0 nor 1.
        """
        return fact_mask(self, facts).copy()

    def state(self, facts: Facts | FactSets = ()) -> npt.NDArray[np.float64]:
        """The values of one fact set or of many, between 0 and 1.

        >>> from latentgamma import parse
        >>> program = parse("bird :- penguin.")
        >>> program.state(["penguin"])
        array([0., 1.])
        >>> program.state({"penguin": 0.7})
        array([0. , 0.7])

        Args:
            facts: a fact set as in `mask`, whose values may be between 0 and 1, or several of them.

        Returns:
            A float64 array of shape (M,), or (N, M) for several fact sets.

        Raises:
            FactsError: if these are not facts of this program, or a value lies outside [0, 1].
        """
        return fact_values(self, facts)

    def names(self, state: npt.ArrayLike) -> frozenset[str]:
        """The names of the atoms above one half in a state, or true in a boolean one.

        Args:
            state: one value for each atom, shape (M,).

        Returns:
            A set of names.

        Raises:
            FactsError: if the shape is not (M,).
        """
        values = np.asarray(state)
        if isinstance(state, (set, frozenset)):
            raise FactsError("names takes a state, one value for each atom; this is a set already")
        if values.shape != (self.M,):
            raise FactsError(f"a state of this program has shape ({self.M},), not {values.shape}")
        return frozenset(self._atoms_where(values if values.dtype.kind == "b" else values > 0.5))
