"""Datalog: rules with variables, grounded by clingo.

    program = lg.datalog.ground("rules.lp", open=["edge/2"], facts={"node": "nodes.csv"})

`lg.parse` and `lg.load` read such rules, too, where nothing is open.
"""

from latentgamma._lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
