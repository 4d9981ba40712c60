"""The immediate-consequence operator T_P and its least fixed points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from latentgamma._display import Display, Displayed
from latentgamma._logic.bit_planes import pack, unpack
from latentgamma._logic.propagation import Levels, derive_levels
from latentgamma._program.dependency_graph import rules_deriving
from latentgamma._program.facts import Facts, FactSets, Mask, fact_mask, fact_masks
from latentgamma._program.immutable import read_only
from latentgamma._program.names import quote
from latentgamma._program.program import (
    Indices,
    Offsets,
    Program,
    Stratum,
    require_definite,
    require_program,
)

# The most words that `step` keeps for all literals together: 32 MB.
_STEP_WORDS = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class Closure(Displayed):
    """The least fixed point of a program above some facts, and the step at which each atom comes.

    It has a length, iterates over the names of its atoms in the order of the program, and
    supports `in` for names and indices.

    Attributes:
        program: the program.
        state: which atoms are derived, shape (M,).
        depth: the number of steps of T_P until nothing changes.
        order: the derived atoms level by level, as indices.
        offsets: where the levels start: level d is `order[offsets[d]:offsets[d + 1]]`.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> known = closure(program, ["penguin"])
    >>> known
    Closure(3 of 3 atoms, depth 2)
    >>> sorted(known.atoms), "bird" in known
    (['animal', 'bird', 'penguin'], True)
    >>> print(known)
    0  penguin
    1  bird
    2  animal
    """

    program: Program
    state: Mask
    depth: int
    order: Indices
    offsets: Offsets

    @cached_property
    def atoms(self) -> frozenset[str]:
        """The derived atoms, the given facts among them."""
        return frozenset(self)

    @cached_property
    def level(self) -> Indices:
        """The step at which each atom becomes true, −1 where it never does. Shape (M,)."""
        level = np.full(self.program.M, -1, np.int32)
        level[self.order] = np.repeat(np.arange(self.depth + 1), np.diff(self.offsets))
        return read_only(level)

    @cached_property
    def levels(self) -> tuple[frozenset[str], ...]:
        """The atoms that first become true at each step, the given facts at step 0."""
        return tuple(
            frozenset(self._names_between(a, b)) for a, b in pairwise(self.offsets.tolist())
        )

    def _names_between(self, start: int, stop: int, most: int | None = None) -> list[str]:
        return [self.program.atoms[i] for i in np.sort(self.order[start:stop])[:most]]

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[str]:
        atoms = self.program.atoms
        return (atoms[i] for i in np.flatnonzero(self.state).tolist())

    def __contains__(self, atom: object) -> bool:
        if isinstance(atom, str):
            i = self.program.index.get(atom)
            return i is not None and bool(self.state[i])
        if isinstance(atom, (int, np.integer)) and not isinstance(atom, bool):
            return bool(0 <= atom < self.program.M and self.state[atom])
        return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Closure):
            return NotImplemented
        return np.array_equal(self.level, other.level) and self.program == other.program

    def __hash__(self) -> int:
        return hash((self.program, self.level.tobytes()))

    def __repr__(self) -> str:
        return f"Closure({len(self)} of {self.program.M} atoms, depth {self.depth})"

    def _display(self) -> Display:
        sizes = f"{len(self):,} of {self.program.M:,} atoms follow, in {self.depth:,} steps"
        rows = [line.split("  ", 1) for line in str(self).splitlines()]
        return Display(sizes, columns=("step", "atoms"), rows=rows)

    def __str__(self) -> str:
        lines = []
        for d, (a, b) in enumerate(pairwise(self.offsets.tolist())):
            if d == 100:
                lines.append(f"…  {self.depth + 1 - d} more levels")
                break
            names = [quote(name) for name in self._names_between(a, b, 20)]
            more = f", … {b - a - 20} more" if b - a > 20 else ""
            lines.append(f"{d}  {', '.join(names) or '–'}{more}")
        return "\n".join(lines)


@overload
def step(program: Program, facts: npt.NDArray[Any]) -> Any: ...
@overload
def step(  # type: ignore[overload-overlap]
    program: Program,
    facts: str | int | Mapping[Any, Any] | Iterable[str] | Iterable[int] | Iterable[float] = (),
) -> frozenset[str]: ...
@overload
def step(program: Program, facts: FactSets) -> Mask: ...
def step(program: Program, facts: Facts | FactSets = ()) -> frozenset[str] | Mask:
    """The facts and what follows from them at once: T_P applied to one fact set or many.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> sorted(step(program, ["penguin"]))
    ['bird', 'penguin']
    >>> step(program, [["penguin"], ["bird"]])
    array([[ True,  True, False],
           [ True, False,  True]])

    Args:
        program: a definite program: with negation, what follows at once is not what follows at
            the end.
        facts: one fact set in any form, or many of them.

    Returns:
        The names of the atoms for one fact set; one boolean row for each of many, shape (N, M).

    Raises:
        FactsError: if these are not facts of the program, or some are neither true nor false.
        ProgramError: if the first argument is not a definite program.
    """
    program = require_definite(program, "step")
    masks = fact_masks(program, facts)
    rows = np.atleast_2d(masks)
    after = np.empty_like(rows)
    chunk = 64 * max(1, _STEP_WORDS // max(1, program.size))
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        after[start : start + chunk] = unpack(_step_planes(program, pack(part)), len(part))
    return program.names(after[0]) if masks.ndim == 1 else after


def _step_planes(program: Program, planes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """One step on bit planes: an AND over each body, an OR over the rules of each head."""
    fires = np.full((program.R, planes.shape[1]), ~np.uint64(0))
    bodies = np.flatnonzero(program.body_sizes)
    if len(bodies):
        starts = program.body_indptr[bodies]
        fires[bodies] = np.bitwise_and.reduceat(planes[program.body_indices], starts, axis=0)
    offsets, rules = rules_deriving(program)
    heads = np.flatnonzero(program.rules_per_head)
    after = planes.copy()
    if len(heads):
        after[heads] |= np.bitwise_or.reduceat(fires[rules], offsets[heads], axis=0)
    return after


def closure(program: Program, facts: Facts = ()) -> Closure:
    """Everything that follows from the facts, and the step at which it does.

    The time is linear in the size of the program. Strata are closed one after another, and their
    steps add up.

    >>> program = Program.from_rules([("c", ["a", "b"]), ("d", ["c"])])
    >>> closure(program, ["a", "b"]).levels == ({"a", "b"}, {"c"}, {"d"})
    True

    Args:
        program: any program, with negation or without.
        facts: one fact set in any form; for many of them see `closures`.

    Returns:
        The closure.

    Raises:
        FactsError: if these are not facts of the program, or some are neither true nor false.
        ProgramError: if the first argument is not a program.
    """
    require_program(program, "closure")
    return closure_of_mask(program, fact_mask(program, facts))


def closure_of_mask(program: Program, given: Mask) -> Closure:
    """The closure of facts given as one boolean for each atom."""
    if not program.definite:
        levels = _derive_by_strata(program, given)
    else:
        levels = derive_levels(program, given)
    state, order, offsets = levels
    depth = len(offsets) - 2
    return Closure(program, read_only(state), depth, read_only(order), read_only(offsets))


def stratum_facts(stratum: Stratum, known: Mask) -> Mask:
    """The facts of a stratum, from what the strata below it have made true. Shape (…, m)."""
    facts: Mask = known[..., stratum.atom] != stratum.negated
    return facts


def _derive_by_strata(program: Program, given: Mask) -> Levels:
    known = given.copy()
    order: list[npt.NDArray[Any]] = [np.flatnonzero(given)]
    offsets = [0, int(given.sum())]
    for stratum in program.strata:
        closed = derive_levels(stratum.program, stratum_facts(stratum, known))
        start = closed.offsets[1]
        order.append(stratum.atom[closed.order[start:]])
        offsets += (offsets[-1] + closed.offsets[2:] - start).tolist()
        known[order[-1]] = True
    return Levels(known, np.concatenate(order).astype(np.int32), np.array(offsets, np.int64))
