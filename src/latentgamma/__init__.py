"""Logic rules as an exact, differentiable PyTorch layer, and back.

Every public name is here. Each is imported when it is first used, so that `import latentgamma`
takes no time and symbolic work needs no torch.
"""

from __future__ import annotations

from latentgamma._version import __version__ as __version__

TYPE_CHECKING = False  # importing typing would take longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any

    from latentgamma import (
        datalog,
        distributed,
        explore,
        generators,
        plot,
        relational,
        report,
        validation,
    )
    from latentgamma._certificate.certificate import Certificate, Margins, Status
    from latentgamma._certificate.certify import certify, tolerance
    from latentgamma._certificate.constants import Constants
    from latentgamma._certificate.paper_window import PaperWindow, paper_window
    from latentgamma._errors import (
        ArgumentError,
        CertificateError,
        DataError,
        DistributedError,
        FactsError,
        LatentGammaError,
        ModelError,
        ParseError,
        ProgramError,
        StateError,
    )
    from latentgamma._layer.annealing import Annealing
    from latentgamma._layer.groups import Categorical
    from latentgamma._layer.layer import Layer
    from latentgamma._layer.plan import Plan
    from latentgamma._layer.probability import Inference
    from latentgamma._layer.shortcuts import Shortcuts, shortcuts
    from latentgamma._learning.alignment import Alignment, alignment
    from latentgamma._learning.annealing import Homotopy
    from latentgamma._learning.estimator import RuleClassifier
    from latentgamma._learning.extraction import extract
    from latentgamma._learning.fit import fit
    from latentgamma._learning.history import HistoryEntry
    from latentgamma._learning.result import FitResult
    from latentgamma._learning.rule_statistics import Evidence
    from latentgamma._logic.bit_planes import pack, unpack
    from latentgamma._logic.blocked import Blocked
    from latentgamma._logic.closure import Closure, closure, step
    from latentgamma._logic.closures import closures
    from latentgamma._logic.depth import depth_bound
    from latentgamma._logic.derivation import Absent, Derivation, ProofStep, derivation
    from latentgamma._logic.equivalence import Equivalence, equivalent
    from latentgamma._logic.random_planes import random_planes
    from latentgamma._logic.why_not import WhyNot, why_not
    from latentgamma._model.complexity import lower_bound_bits, parameter_count
    from latentgamma._model.dense_rules import DenseRules
    from latentgamma._model.gradient_report import GradientReport, GradientRow, gradient_report
    from latentgamma._model.module import LatentGamma
    from latentgamma._model.noise import (
        critical_sigma,
        flip_bound,
        flip_probability,
        misroute_bound,
        perturb,
    )
    from latentgamma._model.oracle import oracle
    from latentgamma._model.sparse_rules import SparseRules
    from latentgamma._model.stratified import StratifiedModel
    from latentgamma._model.trajectory import Trajectory
    from latentgamma._probability.proofs import LikelyProof
    from latentgamma._program.files import save
    from latentgamma._program.program import Program
    from latentgamma._program.rules import Rule, Rules
    from latentgamma._progress import ProgressBar
    from latentgamma.datalog.reading import load, parse

#: The module of each name; the public packages have none.
_MODULES = {
    "Plan": "_layer.plan",
    "GradientRow": "_model.gradient_report",
    "Margins": "_certificate.certificate",
    "Status": "_certificate.certificate",
    "StratifiedModel": "_model.stratified",
    "SparseRules": "_model.sparse_rules",
    "DenseRules": "_model.dense_rules",
    "Equivalence": "_logic.equivalence",
    "Blocked": "_logic.blocked",
    "Absent": "_logic.derivation",
    "ProofStep": "_logic.derivation",
    "Rules": "_program.rules",
    "ArgumentError": "_errors",
    "CertificateError": "_errors",
    "DataError": "_errors",
    "DistributedError": "_errors",
    "FactsError": "_errors",
    "LatentGammaError": "_errors",
    "ModelError": "_errors",
    "ParseError": "_errors",
    "ProgramError": "_errors",
    "StateError": "_errors",
    "Closure": "_logic.closure",
    "closure": "_logic.closure",
    "closures": "_logic.closures",
    "pack": "_logic.bit_planes",
    "unpack": "_logic.bit_planes",
    "random_planes": "_logic.random_planes",
    "depth_bound": "_logic.depth",
    "step": "_logic.closure",
    "Derivation": "_logic.derivation",
    "derivation": "_logic.derivation",
    "WhyNot": "_logic.why_not",
    "why_not": "_logic.why_not",
    "load": "datalog.reading",
    "save": "_program.files",
    "Program": "_program.program",
    "Rule": "_program.rules",
    "parse": "datalog.reading",
    "Certificate": "_certificate.certificate",
    "certify": "_certificate.certify",
    "tolerance": "_certificate.certify",
    "Constants": "_certificate.constants",
    "equivalent": "_logic.equivalence",
    "Annealing": "_layer.annealing",
    "Categorical": "_layer.groups",
    "Inference": "_layer.probability",
    "LikelyProof": "_probability.proofs",
    "shortcuts": "_layer.shortcuts",
    "Shortcuts": "_layer.shortcuts",
    "Layer": "_layer.layer",
    "extract": "_learning.extraction",
    "alignment": "_learning.alignment",
    "Alignment": "_learning.alignment",
    "fit": "_learning.fit",
    "FitResult": "_learning.result",
    "Evidence": "_learning.rule_statistics",
    "RuleClassifier": "_learning.estimator",
    "HistoryEntry": "_learning.history",
    "ProgressBar": "_progress",
    "Homotopy": "_learning.annealing",
    "LatentGamma": "_model.module",
    "Trajectory": "_model.trajectory",
    "oracle": "_model.oracle",
    "paper_window": "_certificate.paper_window",
    "PaperWindow": "_certificate.paper_window",
    "gradient_report": "_model.gradient_report",
    "GradientReport": "_model.gradient_report",
    "perturb": "_model.noise",
    "flip_bound": "_model.noise",
    "flip_probability": "_model.noise",
    "misroute_bound": "_model.noise",
    "critical_sigma": "_model.noise",
    "parameter_count": "_model.complexity",
    "lower_bound_bits": "_model.complexity",
    "datalog": "",
    "distributed": "",
    "generators": "",
    "plot": "",
    "explore": "",
    "relational": "",
    "report": "",
    "validation": "",
}

__all__ = [
    # programs
    "Program",
    "Rule",
    "Rules",
    "parse",
    "load",
    "save",
    "datalog",
    "generators",
    # what they mean
    "step",
    "closure",
    "closures",
    "pack",
    "unpack",
    "random_planes",
    "Closure",
    "depth_bound",
    "derivation",
    "Derivation",
    "ProofStep",
    "Absent",
    "why_not",
    "WhyNot",
    "Blocked",
    "equivalent",
    "Equivalence",
    # the operator
    "oracle",
    "Constants",
    "LatentGamma",
    "DenseRules",
    "SparseRules",
    "StratifiedModel",
    "Trajectory",
    "certify",
    "Certificate",
    "Status",
    "Margins",
    "tolerance",
    "distributed",
    "gradient_report",
    "GradientReport",
    "GradientRow",
    # behind a network
    "Layer",
    "Categorical",
    "Plan",
    "Inference",
    "LikelyProof",
    "shortcuts",
    "Shortcuts",
    "Annealing",
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
    "explore",
    # learning
    "fit",
    "FitResult",
    "relational",
    "Evidence",
    "RuleClassifier",
    "HistoryEntry",
    "ProgressBar",
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
    "ArgumentError",
    "CertificateError",
    "DistributedError",
]


def __getattr__(name: str) -> Any:
    import importlib

    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'latentgamma' has no attribute {name!r}")
    if module == "":
        return importlib.import_module(f"latentgamma.{name}")
    value = getattr(importlib.import_module(f"latentgamma.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
