"""A fact set on which two programs differ, one of them with negation: decided by clingo."""

from __future__ import annotations

from latentgamma._errors import ProgramError
from latentgamma._program.program import Program


def differing_facts(p: Program, q: Program) -> tuple[frozenset[str], str] | None:
    """A fact set whose closures differ and an atom in just one of them, or None if there is none.

    Raises:
        ProgramError: if clingo is not installed.
    """
    try:
        import clingo
    except ImportError:
        raise ProgramError(
            "comparing programs with negation needs clingo; install it with 'pip install clingo'"
        ) from None
    names = list(dict.fromkeys((*p.atoms, *q.atoms)))
    control = clingo.Control(["--warn=none"])
    with control.backend() as backend:
        given = {name: backend.add_atom() for name in names}
        backend.add_rule(list(given.values()), choice=True)
        derived = []
        for program in (p, q):
            atom = {name: backend.add_atom() for name in names}
            for name in names:
                backend.add_rule([atom[name]], [given[name]])
            for rule in program.rules:
                body = [atom[name] for name in rule.body] + [-atom[name] for name in rule.negated]
                for head in rule.heads:
                    backend.add_rule([atom[head]], body)
            derived.append(atom)
        differs = {name: backend.add_atom() for name in names}
        for one, other in (derived, derived[::-1]):
            for name in names:
                backend.add_rule([differs[name]], [one[name], -other[name]])
        backend.add_rule([], [-atom for atom in differs.values()])
    control.ground([("base", [])])
    with control.solve(yield_=True) as handle:
        model = handle.model()
        if model is None:
            return None
        facts = frozenset(name for name in names if model.is_true(given[name]))
        return facts, next(name for name in names if model.is_true(differs[name]))
