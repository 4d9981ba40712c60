"""What readers of the paper need: its bounds, its experiments recomputed, and a report."""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
