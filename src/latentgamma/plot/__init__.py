"""Pictures of programs, proofs, runs, windows, gradients and learning; they compute nothing.

Every function returns a matplotlib `Figure` of its own, and saves it where `path` is given (the
suffix decides the format). No global state is touched: no `pyplot`, no settings.
"""

from latentgamma.plot.plots import (
    check_path,
    derivation,
    gradients,
    learning,
    program,
    trajectory,
    window,
)

__all__ = ["check_path", "derivation", "gradients", "learning", "program", "trajectory", "window"]
