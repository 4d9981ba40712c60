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
    from latentgamma import generators, plot, report, validation
    from latentgamma._certificate import Certificate, certify
    from latentgamma._complexity import lower_bound_bits, parameter_count
    from latentgamma._constants import Constants
    from latentgamma._equivalence import equivalent
    from latentgamma._extraction import Alignment, alignment, extract
    from latentgamma._fit import FitResult, fit
    from latentgamma._gradient_report import GradientReport, gradient_report
    from latentgamma._operator import LatentGamma
    from latentgamma._oracle import oracle
    from latentgamma._paper import PaperWindow, paper_window
    from latentgamma._robustness import (
        critical_sigma,
        flip_bound,
        flip_probability,
        misroute_bound,
        perturb,
    )
    from latentgamma._training import Homotopy
    from latentgamma._trajectory import Trajectory

__version__ = "0.1.0"

#: Where each name lives that is imported only when it is used.
_LATER = {
    "Certificate": "_certificate",
    "certify": "_certificate",
    "Constants": "_constants",
    "equivalent": "_equivalence",
    "extract": "_extraction",
    "alignment": "_extraction",
    "Alignment": "_extraction",
    "fit": "_fit",
    "FitResult": "_fit",
    "Homotopy": "_training",
    "LatentGamma": "_operator",
    "Trajectory": "_trajectory",
    "oracle": "_oracle",
    "paper_window": "_paper",
    "PaperWindow": "_paper",
    "gradient_report": "_gradient_report",
    "GradientReport": "_gradient_report",
    "perturb": "_robustness",
    "flip_bound": "_robustness",
    "flip_probability": "_robustness",
    "misroute_bound": "_robustness",
    "critical_sigma": "_robustness",
    "parameter_count": "_complexity",
    "lower_bound_bits": "_complexity",
    "generators": "",
    "plot": "",
    "report": "",
    "validation": "",
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
    "gradient_report",
    "GradientReport",
    # the paper
    "paper_window",
    "PaperWindow",
    "perturb",
    "flip_bound",
    "flip_probability",
    "misroute_bound",
    "critical_sigma",
    "parameter_count",
    "lower_bound_bits",
    "validation",
    "report",
    "plot",
    # learning
    "fit",
    "FitResult",
    "Homotopy",
    "extract",
    "alignment",
    "Alignment",
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
