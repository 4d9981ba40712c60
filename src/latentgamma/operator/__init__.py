"""The operator of a program as an `nn.Module`, its forms, runs and certificates."""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
