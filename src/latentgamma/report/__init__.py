"""Results as people read them: tables in the terminal, and one HTML file that needs nothing else.

It computes nothing: `render_html(results)` and `render_terminal(results, console)` take what
`latentgamma.validation.run_validation` found, now or from a file.
"""

from latentgamma.report.rendering import load, render_html, render_terminal, save

__all__ = ["load", "render_html", "render_terminal", "save"]
