"""Logic rules as an exact, differentiable PyTorch layer, and back.

Everything public is here. Names that need torch are imported when they are first used, so that
symbolic work starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from latentgamma._closure import Closure, closure, closures, depth_bound, step
from latentgamma._errors import (
    CertificateError,
    DataError,
    FactsError,
    LatentGammaError,
    ModelError,
    ParseError,
    ProgramError,
    StateError,
)
from latentgamma._formats import load, save
from latentgamma._program import Program, Rule
from latentgamma._proof import Derivation, derivation
from latentgamma._syntax import parse
from latentgamma._why_not import WhyNot, why_not

if TYPE_CHECKING:
    from latentgamma import generators, plot
    from latentgamma._certificate import Certificate, certify
    from latentgamma._constants import Constants
    from latentgamma._equivalence import equivalent
    from latentgamma._operator import LatentGamma, Trajectory
    from latentgamma._oracle import oracle

__version__ = "0.1.0"

#: Where each name lives that is imported only when it is used.
_LATER = {
    "Certificate": "_certificate",
    "certify": "_certificate",
    "Constants": "_constants",
    "equivalent": "_equivalence",
    "LatentGamma": "_operator",
    "Trajectory": "_operator",
    "oracle": "_oracle",
    "generators": "",
    "plot": "",
}

__all__ = [
    # programs
    "Program",
    "Rule",
    "parse",
    "load",
    "save",
    "generators",
    # what they mean
    "step",
    "closure",
    "closures",
    "Closure",
    "depth_bound",
    "derivation",
    "Derivation",
    "why_not",
    "WhyNot",
    "equivalent",
    # the operator
    "oracle",
    "Constants",
    "LatentGamma",
    "Trajectory",
    "certify",
    "Certificate",
    "plot",
    # what can go wrong
    "LatentGammaError",
    "ProgramError",
    "ParseError",
    "FactsError",
    "StateError",
    "ModelError",
    "DataError",
    "CertificateError",
]


def __getattr__(name: str) -> Any:
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module 'latentgamma' has no attribute {name!r}")
    if room == "":
        return importlib.import_module(f"latentgamma.{name}")
    value = getattr(importlib.import_module(f"latentgamma.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
