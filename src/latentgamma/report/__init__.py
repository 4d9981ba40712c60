"""Results of `latentgamma.validation` as tables on the terminal and as one HTML page.

Nothing is computed here: the functions take what `run_validation` returned, now or from a file.
"""

from latentgamma.report.page import render_html
from latentgamma.report.rendering import load, render_terminal, save

__all__ = ["load", "render_html", "render_terminal", "save"]
