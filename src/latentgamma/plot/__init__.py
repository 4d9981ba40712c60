"""Plots of programs, proofs, runs, certificates and learning.

Every function returns a matplotlib `Figure` and saves it if `path` is given; the suffix decides the
format, and one that matplotlib cannot write is an `ArgumentError`. The figures are independent of `pyplot`, and no settings are changed.
"""

from latentgamma.plot.charts import changes, learning, rules, trajectory, violations, window
from latentgamma.plot.figure import check_path, inline_svg
from latentgamma.plot.program_graph import derivation, explanation, program

__all__ = [
    "changes", "check_path", "derivation", "explanation", "inline_svg", "learning", "program", "rules",
    "trajectory", "violations", "window",
]  # fmt: skip
