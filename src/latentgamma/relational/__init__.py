"""Learning of rules with variables: from examples of a relation to a certified Datalog program.

`fit` finds the program, and its result says what the examples leave open.
"""

from __future__ import annotations

from latentgamma.relational.chains import CompositionTable, learn_composition
from latentgamma.relational.fit import fit
from latentgamma.relational.graphs import (
    ChainRule,
    ChainRules,
    LinkPrediction,
    LinkRanking,
    mine_chains,
)
from latentgamma.relational.popper import PopperFiles, read_popper
from latentgamma.relational.result import (
    Agreement,
    Alternative,
    RelationalResult,
    RuleEvidence,
    SearchStep,
)

__all__ = [
    "Agreement",
    "Alternative",
    "ChainRule",
    "ChainRules",
    "CompositionTable",
    "LinkPrediction",
    "LinkRanking",
    "PopperFiles",
    "RelationalResult",
    "RuleEvidence",
    "SearchStep",
    "fit",
    "learn_composition",
    "mine_chains",
    "read_popper",
]
