"""What a closure is, in ten lines of sets, and how to choose the code that computes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

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


@contextmanager
def path(kind: str) -> Iterator[None]:
    """Answer in Python alone, or by compiled code alone."""
    before, compilation.forced = compilation.forced, kind == "compiled"
    try:
        yield
    finally:
        compilation.forced = before


PATHS = ("plain", "compiled")
