"""The paper's experiments, one function a phase: A to F as in the paper, and G, ours.

Each returns a frozen result; `run_validation` does them all. One seed gives one result, bit for
bit: graphs, fact sets and noise are drawn from it, and every job computes on one thread, however
many run side by side.
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
