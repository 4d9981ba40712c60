"""Logic rules as an exact, differentiable PyTorch layer, and back.

The names people use most are here; `logic`, `operator`, `layer`, `learning`, `errors` and `paper`
have the rest. Each is imported when it is first used, so that `import latentgamma` takes no time
and symbolic work needs no torch.
"""

from latentgamma._lazy import attach
from latentgamma._version import __version__ as __version__

__getattr__, __dir__ = attach(__name__, __file__)
