"""Whether two programs have the same closures, and a fact set where they differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentgamma.errors import optional_package
from latentgamma.logic.closures import closures
from latentgamma.program.counting import counts_of
from latentgamma.program.program import Program, Rule, require_program

# ---- A fact set on which two programs differ, with negation or counts: decided by clingo


def differing_facts(p: Program, q: Program) -> tuple[frozenset[str], str] | None:
    """Return a fact set whose closures differ and an atom in just one of them; or None.

    Neither names a count, or an atom that is only there for one.

    Raises:
        MissingPackageError: if clingo is not installed.
    """
    with optional_package("comparing programs with negation or counts needs clingo", "datalog"):
        import clingo
    names = list(dict.fromkeys((*p.atoms, *q.atoms)))
    hidden = _counted(p) | _counted(q)
    shown = [name for name in names if name not in hidden]
    control = clingo.Control(["--warn=none"])
    with control.backend() as backend:
        given = {name: backend.add_atom() for name in shown}
        backend.add_rule(list(given.values()), choice=True)
        derived = []
        for program in (p, q):
            atom = {name: backend.add_atom() for name in names}
            for name in shown:
                backend.add_rule([atom[name]], [given[name]])
            for rule in program.rules:
                body = [atom[name] for name in rule.body] + [-atom[name] for name in rule.negated]
                for head in rule.heads:
                    backend.add_rule([atom[head]], body)
            derived.append(atom)
        differs = {name: backend.add_atom() for name in shown}
        for one, other in (derived, derived[::-1]):
            for name in shown:
                backend.add_rule([differs[name]], [one[name], -other[name]])
        backend.add_rule([], [-atom for atom in differs.values()])
    control.ground([("base", [])])
    with control.solve(yield_=True) as handle:
        model = handle.model()
        if model is None:
            return None
        facts = frozenset(name for name in shown if model.is_true(given[name]))
        return facts, next(name for name in shown if model.is_true(differs[name]))


def _counted(program: Program) -> set[str]:
    """Return the counts that rules derive, and the atoms that are only there for them."""
    counted = program.auxiliary.copy()
    counted[list(counts_of(program))] = True
    return {program.atoms[i] for i in np.flatnonzero(counted & (program.rules_per_head > 0))}


# ---- Whether two programs have the same closures, decided by entailment

#: How many booleans one batch of closures may hold.
_BATCH = 1 << 26


@dataclass(frozen=True)
class Equivalence:
    """Whether two programs agree on every fact set; it can be used as a boolean.

    When they differ, `witness` is a fact set whose closures differ, `atom` an atom in just one
    of them, and `rule` the rule that one program has and the other does not imply.

    >>> from latentgamma import parse
    >>> found = equivalent(parse("bird :- penguin. animal :- bird."), parse("bird :- penguin."))
    >>> found.equal, sorted(found.witness), found.atom, str(found.rule)
    (False, ['bird'], 'animal', 'animal :- bird.')
    """

    equal: bool
    witness: frozenset[str] | None = None
    atom: str | None = None
    rule: Rule | None = None

    def __bool__(self) -> bool:
        return self.equal


def equivalent(p: Program, q: Program) -> Equivalence:
    """Return whether two programs have the same closure for every fact set, with a witness if not.

    Any atom can be a fact, also one that rules derive: this is uniform equivalence. Counts are no
    facts, and are not compared. Atoms are compared by name; an atom that only one program knows
    has no rules in the other.
    Definite programs are compared by entailment, in polynomial time. Where one has negation, or
    counts that differ, the question is as hard as satisfiability, and clingo decides it.

    >>> from latentgamma import parse
    >>> p, q = parse("c :- a. d :- c."), parse("c :- a. d :- c. d :- a.")
    >>> bool(equivalent(p, q))
    True
    >>> difference = equivalent(p, parse("c :- a, b. d :- c."))
    >>> sorted(difference.witness), difference.atom
    (['a'], 'c')

    Args:
        p: any program.
        q: another one.

    Returns:
        An `Equivalence`, which is true or false, with a fact set that tells the programs apart.

    Raises:
        ProgramError: if an argument is not a program.
    """
    for program in (p, q):
        require_program(program, "equivalent")
    if p.definite and q.definite:
        found = compare_by_entailment(p, q)
        if found.equal or not (_counted(p) or _counted(q)):
            return found
    differing = differing_facts(p, q)
    return Equivalence(True) if differing is None else Equivalence(False, *differing)


def compare_by_entailment(p: Program, q: Program) -> Equivalence:
    """Return whether two definite programs have the same closures, counts being facts as any atom."""
    for one, other in ((p, q), (q, p)):
        lost = not_entailed(one, other)
        if len(lost):
            rule = other.rules[int(lost[0])]
            known = one.mask([name for name in rule.body if name in one.index])
            true = one.names(closures(one, known[None])[0]) | rule.body
            atom = next(head for head in rule.heads if head not in true)
            return Equivalence(False, rule.body, atom, rule)
    return Equivalence(True)


def not_entailed(program: Program, rules: Program) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the indices of the rules that a program does not imply.

    A rule is implied when its heads are in the closure of its body. Rules that the program
    itself contains are found by comparison; closures are computed for the others alone.
    """
    translated = np.array([program.index.get(name, -1) for name in rules.atoms], np.int64)
    own = {(program.heads_of(j).tobytes(), program.body_of(j).tobytes()) for j in range(program.R)}
    open_rules = []
    for j in range(rules.R):
        heads = np.sort(translated[rules.heads_of(j)]).astype(np.int32)
        body = np.sort(translated[rules.body_of(j)]).astype(np.int32)
        if (heads.tobytes(), body.tobytes()) not in own:
            open_rules.append(j)
    lost: list[int] = []
    batch = max(1, _BATCH // max(1, program.M))
    for start in range(0, len(open_rules), batch):
        part = open_rules[start : start + batch]
        sets = [{int(i) for i in translated[rules.body_of(j)] if i >= 0} for j in part]
        true = closures(program, sets)
        for row, j in zip(true, part, strict=True):
            given = set(rules.body_of(j).tolist())
            for i in rules.heads_of(j).tolist():
                known = translated[i] >= 0 and row[translated[i]]
                if not known and i not in given:
                    lost.append(j)
                    break
    return np.array(lost, np.int64)
