"""Conflicts and redundancy among requirements, found by a SAT solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma.errors import LatentGammaError
from latentgamma.requirements.requirements import Report

if TYPE_CHECKING:
    from latentgamma.requirements.requirements import Requirements


def sat_solver(clauses: Any = ()) -> Any:
    """Return a SAT solver with these clauses."""
    try:
        from pysat.solvers import Cadical153
    except ImportError:
        raise LatentGammaError(
            "this needs a SAT solver: pip install 'latentgamma[requirements]'"
        ) from None
    return Cadical153(bootstrap_with=clauses)


def signed_clauses(req: Requirements) -> list[list[int]]:
    """Return the clauses as a SAT solver writes them: label i is i + 1."""
    signed = np.where(req.literals < 0, req.literals, req.literals + 1).tolist()
    ends = req.indptr.tolist()
    return [signed[ends[c] : ends[c + 1]] for c in range(len(req))]


def conflict(req: Requirements) -> tuple[int, ...]:
    """Return requirements that contradict each other, or nothing if an answer satisfies all."""
    switch = len(req.labels) + 1  # switch + c turns requirement c on
    clauses = signed_clauses(req)
    with sat_solver([[*clause, -(switch + c)] for c, clause in enumerate(clauses)]) as solver:
        on = [switch + c for c in range(len(clauses))]
        if solver.solve(assumptions=on):
            return ()
        core = solver.get_core()
        for one in sorted(core):  # leave out what is not needed
            rest = [c for c in core if c != one]
            if len(core) <= 200 and not solver.solve(assumptions=rest):
                core = rest
        return tuple(sorted(c - switch for c in core))


def report_of(req: Requirements) -> Report:
    """Return conflicts, redundant requirements and labels that are the same in every answer."""
    used = np.zeros(len(req.labels), np.bool_)
    used[req.atoms] = True
    free = tuple(req.labels[i] for i in np.flatnonzero(~used))
    if core := conflict(req):
        return Report(req, core, (), (), (), free)
    clauses, switch = signed_clauses(req), len(req.labels) + 1
    redundant = []
    with sat_solver([[*clause, -(switch + c)] for c, clause in enumerate(clauses)]) as solver:
        # The later of two requirements that imply each other is the redundant one.
        for c in reversed(range(len(clauses))):
            on = [switch + k for k in range(len(clauses)) if k != c and k not in redundant]
            if not solver.solve(assumptions=[*on, *(-x for x in clauses[c])]):
                redundant.append(c)
    fixed: dict[bool, list[str]] = {True: [], False: []}
    with sat_solver(clauses) as solver:
        solver.solve()
        model = solver.get_model()
        for i in np.flatnonzero(used).tolist():
            if not solver.solve(assumptions=[-model[i]]):
                fixed[model[i] > 0].append(req.labels[i])
    return Report(req, (), tuple(sorted(redundant)), tuple(fixed[True]), tuple(fixed[False]), free)
