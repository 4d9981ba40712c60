"""The experiments of the paper, one function per phase: A to F as in the paper, and G, our own.

Each function returns a frozen result; `run_validation` runs all of them. The same seed gives the
same result, bit for bit.
"""

from latentgamma.validation.phases import (
    GRAPHS,
    STEPS,
    Timing,
    Validation,
    construction,
    edge_cases,
    expressivity,
    multi_head,
    picture,
    robustness,
    run_validation,
    structure,
    windows,
)

__all__ = [
    "GRAPHS", "STEPS", "Timing", "Validation", "run_validation",
    "construction", "expressivity", "robustness", "structure", "edge_cases", "multi_head",
    "windows", "picture",
]  # fmt: skip
