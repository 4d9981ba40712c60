"""Datalog: rules with variables, grounded by clingo.

    program = lg.datalog.ground("rules.lp", open=["edge/2"], facts={"node": "nodes.csv"})

`lg.parse` and `lg.load` read such rules, too, where nothing is open.
"""

from __future__ import annotations

from latentgamma.datalog.ground import GroundingWarning, ground, inputs, outputs

__all__ = ["GroundingWarning", "ground", "inputs", "outputs"]
