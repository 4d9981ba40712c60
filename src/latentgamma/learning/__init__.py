"""From data to rules: what `fit` returns and takes."""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
