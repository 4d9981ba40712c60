"""Programs as plain rules, and their closures by brute force: nothing of the library is used here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


class PlainRule(NamedTuple):
    """The heads follow from the atoms of the body, unless one of the negated atoms does."""

    heads: tuple[str, ...]
    body: frozenset[str] = frozenset()
    negated: frozenset[str] = frozenset()

    def __str__(self) -> str:
        literals = [*sorted(self.body), *(f"not {name}" for name in sorted(self.negated))]
        return f"{', '.join(self.heads)}{' :- ' if literals else ''}{', '.join(literals)}."


class PlainProgram(NamedTuple):
    """Atoms in an order of their own, and rules."""

    atoms: tuple[str, ...]
    rules: tuple[PlainRule, ...]

    def __str__(self) -> str:
        return " ".join([*(f"#external {name}." for name in self.atoms), *map(str, self.rules)])

    def levels(self) -> dict[str, int] | None:
        """The stratum of each atom; None if an atom depends on its own negation."""
        level = dict.fromkeys(self.atoms, 0)
        for _ in range(len(self.atoms) + 1):
            before = dict(level)
            for heads, body, negated in self.rules:
                least = [level[i] for i in body] + [1 + level[i] for i in negated]
                for head in heads:
                    level[head] = max(level[head], *least, 0)
            if level == before:
                return level
        return None

    def closures(self, facts: Mask) -> tuple[Mask, npt.NDArray[np.int64]]:
        """The closure of each fact set (N, M), and the steps of T_P that its strata take in all."""
        level = self.levels()
        assert level is not None, "not stratified"
        state = {name: facts[:, i].copy() for i, name in enumerate(self.atoms)}
        depths = np.zeros(len(facts), np.int64)
        true = np.ones(len(facts), bool)
        for stratum in sorted(set(level.values())):
            moving = true.copy()
            while moving.any():
                moving = ~true
                derived: dict[str, Mask] = {}
                for heads, body, negated in self.rules:
                    own = [head for head in heads if level[head] == stratum]
                    if not own:
                        continue
                    fires = true.copy()
                    for name in body:
                        fires &= state[name]
                    for name in negated:
                        fires &= ~state[name]
                    for head in own:
                        derived[head] = derived.get(head, state[head]) | fires
                for head, value in derived.items():
                    moving = moving | value & ~state[head]
                    state[head] = value
                depths += moving
        return np.stack([state[name] for name in self.atoms], axis=1), depths


def plain(program: Any) -> PlainProgram:
    """A program of the library as its rules are shown."""
    rules = [PlainRule(rule.heads, rule.body, rule.negated) for rule in program.rules]
    return PlainProgram(program.atoms, tuple(rules))
