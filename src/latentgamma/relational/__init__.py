"""Learning of rules with variables: from examples of a relation to a certified Datalog program.

`fit` finds the program, and its result says what the examples leave open.
"""

from __future__ import annotations

from latentgamma.relational import kinship, tasks
from latentgamma.relational.chain_rules import ChainRule, ChainRules, mine_chains
from latentgamma.relational.composition import CompositionTable, learn_composition
from latentgamma.relational.differences import Alternative
from latentgamma.relational.fit import fit
from latentgamma.relational.result import Agreement, RelationalResult, RuleEvidence, SearchStep

__all__ = [
    "Agreement",
    "Alternative",
    "ChainRule",
    "ChainRules",
    "CompositionTable",
    "RelationalResult",
    "RuleEvidence",
    "SearchStep",
    "fit",
    "kinship",
    "learn_composition",
    "mine_chains",
    "tasks",
]
