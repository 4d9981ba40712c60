"""Conflicts and redundancy among requirements, found by a SAT solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma.errors import optional_package
from latentgamma.program.graph import Csr
from latentgamma.requirements.requirements import Report

if TYPE_CHECKING:
    from latentgamma.requirements.requirements import Requirements


def sat_solver(clauses: Any = ()) -> Any:
    """Return a SAT solver with these clauses."""
    with optional_package("this needs python-sat", "requirements"):
        from pysat.solvers import Glucose4
    return Glucose4(bootstrap_with=clauses)


def signed_clauses(req: Requirements) -> list[list[int]]:
    """Return the clauses as a SAT solver writes them: label i is i + 1."""
    signed = np.where(req.literals < 0, req.literals, req.literals + 1)
    return Csr(req.indptr, signed).to_lists()


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


#: Up to this many requirements each is compared with all others; beyond it with those before it,
#: by unit propagation.
_MOST_COMPARED = 5_000


def _redundant(clauses: list[list[int]], switch: int) -> list[int]:
    """Return the clauses that follow from others, the later of two that imply each other."""
    gone: set[int] = set()
    with sat_solver() as solver:
        quick = len(clauses) > _MOST_COMPARED
        for c, clause in enumerate(clauses):
            wrong = [-x for x in clause]
            if solver.propagate(wrong)[0] if quick else solver.solve(assumptions=wrong):
                solver.add_clause(clause)
            else:
                gone.add(c)
    if quick:
        return sorted(gone)
    with sat_solver([[*clause, -(switch + c)] for c, clause in enumerate(clauses)]) as solver:
        for c in reversed(range(len(clauses))):
            if c not in gone:
                on = [switch + k for k in range(len(clauses)) if k != c and k not in gone]
                if not solver.solve(assumptions=[*on, *(-x for x in clauses[c])]):
                    gone.add(c)
    return sorted(gone)


def report_of(req: Requirements) -> Report:
    """Return conflicts, redundant requirements and labels that are the same in every answer."""
    used = np.zeros(len(req.labels), np.bool_)
    used[req.atoms] = True
    free = tuple(req.labels[i] for i in np.flatnonzero(~used))
    if core := conflict(req):
        return Report(req, core, (), (), (), free)
    clauses = signed_clauses(req)
    redundant = _redundant(clauses, len(req.labels) + 1)
    fixed = _fixed(clauses, np.flatnonzero(used) + 1)
    true, false = (
        tuple(req.labels[abs(x) - 1] for x in fixed if (x > 0) == k) for k in (True, False)
    )
    return Report(req, (), tuple(redundant), true, false, free)


def _fixed(clauses: list[list[int]], variables: Any) -> list[int]:
    """Return the literals that are true in every model, in the order of their variables."""
    with sat_solver(clauses) as solver:
        solver.solve()
        model = solver.get_model()
        same = {v: model[v - 1] for v in variables.tolist()}
        switch = len(model)
        while same:  # a model in which one of them differs, or else they are the same in all
            switch += 1
            solver.add_clause([-switch, *(-x for x in same.values())])
            solver.set_phases([-x for x in same.values()])
            if not solver.solve(assumptions=[switch]):
                break
            model = solver.get_model()
            same = {v: x for v, x in same.items() if model[v - 1] == x}
    return [same[v] for v in sorted(same)]
