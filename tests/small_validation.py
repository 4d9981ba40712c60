"""The two smaller graphs, validated once for all tests that look at results."""

from __future__ import annotations

from functools import cache

from latentgamma import validation


@cache
def small() -> tuple[validation.Validation, validation.Timing]:
    return validation.run_validation(("g1", "g2"))
