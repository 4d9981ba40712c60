"""Plots of programs, proofs, runs, certificates, gradients, learning and validation results.

Every function returns a matplotlib `Figure` and saves it if `path` is given; the suffix decides the
format. The figures are independent of `pyplot`, and no settings are changed.
"""

from latentgamma.plot.charts import gradients, learning, window
from latentgamma.plot.figure import check_path
from latentgamma.plot.heat_map import trajectory
from latentgamma.plot.program_graph import derivation, explanation, program
from latentgamma.plot.svg import inline_svg
from latentgamma.plot.validation_charts import leakage, noise

__all__ = [
    "check_path",
    "derivation",
    "explanation",
    "gradients",
    "inline_svg",
    "leakage",
    "learning",
    "noise",
    "program",
    "trajectory",
    "window",
]
