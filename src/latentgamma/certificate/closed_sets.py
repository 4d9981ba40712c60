"""The closed sets that are worst for an underivable atom.

The operator is monotone: a state that is larger in every atom stays so. An underivable atom i
therefore rises fastest from a largest fact set that does not entail it, and these are the maximal
closed sets without i. Their complements are the minimal sets U with i in U such that every rule
with a head in U has a body atom in U. There may be exponentially many; up to a budget they are
listed here. Beyond it, `least_missing` counts how many atoms such a complement has at least.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from latentgamma.program.facts import bit_places
from latentgamma.program.graph import Csr, rules_deriving
from latentgamma.program.program import Program

#: Programs of more atoms are not searched for closed sets.
MOST_ATOMS = 400
#: Sets looked at before the search is given up.
_MOST_SETS = 16_000
#: Sets compared with one another at a time: each with each.
_MOST_COMPARED = 1_500


class Complements:
    """The search for complements of maximal closed sets, atom by atom.

    Sets of atoms are whole numbers, one bit for each atom.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.bodies = Csr(program.body_indptr, program.body_indices).to_lists()
        self.masks = [_mask(body) for body in self.bodies]
        self.rules = rules_deriving(program).to_lists()  # of each atom
        #: For each atom, all that it may depend on; and what is missing wherever it is, because
        #: it would imply it by rules with one body atom.
        self.before = self._ancestors(program.M)
        self.along = self._ancestors(1)
        self.group = self._groups()

    def _ancestors(self, largest_body: int) -> list[int]:
        """Return, for each atom, the atoms it may depend on by such rules, itself included."""
        up = [1 << i for i in range(self.program.M)]
        for i, rules in enumerate(self.rules):
            for j in rules:
                if len(self.bodies[j]) <= largest_body:
                    up[i] |= self.masks[j]
        for k in range(len(up)):
            bit, more = 1 << k, up[k]
            for i in range(len(up)):
                if up[i] & bit:
                    up[i] |= more
        return up

    def _order(self) -> list[int]:
        """Return the atoms, each after those it depends on."""
        return sorted(range(self.program.M), key=lambda i: self.before[i].bit_count())

    def _depends(self, a: int, b: int) -> bool:
        """Return whether atom a may depend on atom b; if b depends on a, they are in one cycle."""
        return bool(self.before[a] >> b & 1)

    # ---- All of them

    def minimal(self, most: int) -> list[int] | None:
        """Return the minimal complements of all atoms, or None where there are more than `most`."""
        families: list[list[int]] = [[] for _ in range(self.program.M)]
        every: set[int] = set()
        looked = 0
        for i in self._order():
            if self.group[i] != i:
                families[i] = families[self.group[i]]
                continue
            found: set[int] = set()
            seen = {self.along[i]}
            todo = [self.along[i]]
            while todo:
                given = todo.pop()
                looked += 1
                for after in self._with_next_rule(given, i, families):
                    if after == given:
                        found.add(given)
                    elif after not in seen:
                        seen.add(after)
                        todo.append(after)
                if looked + len(todo) > _MOST_SETS or len(found) > _MOST_COMPARED:
                    return None
            families[i] = _minimal(found)
            every.update(families[i])
            if len(every) > most:
                return None
        return list(every)

    def _with_next_rule(self, given: int, start: int, families: list[list[int]]) -> Iterable[int]:
        """Return the set with one more rule satisfied, in each way; the set if all are."""
        for i in bit_places(given):
            for j in self.rules[i]:
                if not self.masks[j] & given:
                    ways = [
                        [self.along[b]] if self._depends(b, start) else families[b]
                        for b in self.bodies[j]
                    ]
                    return [given | way for some in ways for way in some]
        return [given]

    # ---- Their sizes

    def least_missing(self) -> npt.NDArray[np.int64]:
        """Return how many atoms are missing at least where each atom is. (M,).

        The atoms of its group are missing, and one body atom of each of their rules, with what is
        missing where that one is. Rules within a cycle are left out, so nothing counts twice.
        """
        size = np.bincount(self.group, minlength=self.program.M)
        beyond = [0] * self.program.M
        least = np.ones(self.program.M, np.int64)
        order = self._order()
        for i in order:
            for j in self.rules[i]:
                if not any(self._depends(b, i) for b in self.bodies[j]):
                    fewest = min((int(least[b]) for b in self.bodies[j]), default=0)
                    beyond[self.group[i]] = max(beyond[self.group[i]], fewest)
            least[i] = size[self.group[i]] + beyond[self.group[i]]
        return least

    def _groups(self) -> list[int]:
        """Return, for each atom, the first one that is equivalent to it by such rules."""
        group = list(range(self.program.M))
        for i in group:
            for a in bit_places(self.along[i]):  # rising, and the atom itself is one of them
                if self.along[a] >> i & 1:
                    group[i] = group[a]
                    break
        return group


@lru_cache(maxsize=8)  # one program is often certified for many models
def maximal_closed_sets(program: Program, most: int = 10_000) -> npt.NDArray[np.bool_] | None:
    """Return, for every atom, the maximal closed sets without it; None if too many.

    More than `most` are too many, and so are those that take too long to find.

    >>> program = Program.from_rules([("c", ["a", "b"])])
    >>> maximal_closed_sets(program).astype(int).tolist()
    [[0, 0, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0]]
    """
    if program.M > MOST_ATOMS:
        return None
    complements = Complements(program).minimal(most)
    if complements is None:
        return None
    size = -(-program.M // 8)
    packed = b"".join(mask.to_bytes(size, "little") for mask in complements)
    rows = np.frombuffer(packed, np.uint8).reshape(len(complements), size)
    bits = np.unpackbits(rows, axis=1, count=program.M, bitorder="little")
    sets = np.unique(bits == 0, axis=0)
    sets.flags.writeable = False
    return sets


def _mask(atoms: Iterable[int]) -> int:
    mask = 0
    for i in atoms:
        mask |= 1 << i
    return mask


def _minimal(sets: Iterable[int]) -> list[int]:
    """Return the sets that contain no other."""
    kept: list[int] = []
    for one in sorted(sets, key=int.bit_count):
        if not any(other & one == other for other in kept):
            kept.append(one)
    return kept
