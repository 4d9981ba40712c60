"""Programs and batches beyond one process: models on torch.distributed, closures on Ray.

Tables need no torch, and models no Ray.
"""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
