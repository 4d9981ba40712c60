"""Requirements on the outputs of a network, and layers that cannot break them."""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
