"""What a closure is, in ten lines of sets, and random programs to try it on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np

from latentgamma import Program
from latentgamma._logic import dependency_graph


def reference_levels(program: Program, facts: Collection[str]) -> list[frozenset[str]]:
    rules = [(set(rule.heads), rule.body) for rule in program.rules]
    known = set(facts)
    levels = [frozenset(known)]
    while new := {h for heads, body in rules if body <= known for h in heads} - known:
        known |= new
        levels.append(frozenset(new))
    return levels


def random_program(
    rng: np.random.Generator, M: int, R: int, *, k: int = 3, heads: int = 3
) -> Program:
    """Bodies of 0 to k atoms, mostly one head; repeated atoms and rules, and loops, all occur."""
    sizes = rng.integers(0, k + 1, R)
    widths = np.where(rng.random(R) < 0.8, 1, rng.integers(1, heads + 1, R))
    return Program.from_arrays(
        np.concatenate(([0], np.cumsum(sizes))),
        rng.integers(0, max(M, 1), sizes.sum()),
        rng.integers(0, max(M, 1), widths.sum()),
        np.concatenate(([0], np.cumsum(widths))),
        atoms=M,
    )


@contextmanager
def path(kind: str) -> Iterator[None]:
    """Answer by the plain loops alone, or by the compiled ones alone."""
    before = dependency_graph._PLAIN_WORK
    dependency_graph._PLAIN_WORK = {"plain": 10**15, "compiled": -1}[kind]
    try:
        yield
    finally:
        dependency_graph._PLAIN_WORK = before


PATHS = ("plain", "compiled")
