"""An interactive page for one program: toggle facts, watch the operator, read proofs and repairs.

`render` returns the page as one self-contained HTML document; `serve` shows it in a browser.
"""

from latentgamma.explore.page import render
from latentgamma.explore.server import serve

__all__ = ["render", "serve"]
