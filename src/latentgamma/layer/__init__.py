"""Rules as a layer behind a network: groups of atoms in, groups out."""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
