"""What a program entails: closures, proofs, missing facts, equivalence."""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
