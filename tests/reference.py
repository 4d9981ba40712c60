"""What a closure is, in ten lines of sets; all fact sets; and how to choose the code that answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from latentgamma import Program
from latentgamma.program import compilation


def reference_levels(program: Program, facts: Collection[str]) -> list[frozenset[str]]:
    rules = [(set(rule.heads), rule.body) for rule in program.rules]
    known = set(facts)
    levels = [frozenset(known)]
    while new := {h for heads, body in rules if body <= known for h in heads} - known:
        known |= new
        levels.append(frozenset(new))
    return levels


def every_fact_set(M: int) -> npt.NDArray[np.bool_]:
    """All 2^M fact sets; those of number n are the bits of n. (2^M, M)."""
    return (np.arange(2**M)[:, None] >> np.arange(M) & 1).astype(bool)


@contextmanager
def path(kind: str) -> Iterator[None]:
    """Answer in Python alone, or by compiled code alone."""
    before, compilation.forced = compilation.forced, kind == "compiled"
    try:
        yield
    finally:
        compilation.forced = before


PATHS = ("plain", "compiled")
