"""Sets of clauses as programs: their text, and small instances on which they derive something."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from latentgamma._logic.closure import closure
from latentgamma.datalog.grounding import GroundingWarning, ground
from latentgamma.datalog.tables import cells_of
from latentgamma.relational.clauses import Clause, Literal, clause_text

#: Instances of one program, and the literals of one instance.
_MOST_INSTANCES = 12
_MOST_LITERALS = 9
#: Bodies that are unfolded for them.
_MOST_UNFOLDED = 300


@dataclass(frozen=True)
class ClauseProgram:
    """Clauses of targets and of invented predicates.

    Attributes:
        clauses: first those of the targets.
        names: the predicates by number.
        learned: the predicates that have clauses.
    """

    clauses: tuple[Clause, ...]
    names: tuple[str, ...]
    learned: frozenset[int]

    @staticmethod
    def of(
        targets: Iterable[Clause],
        invented: Iterable[Sequence[Clause]],
        names: Sequence[str],
        targets_learned: Iterable[int],
    ) -> ClauseProgram:
        """Return the program, in which invented predicates are called inv1, inv2 and so on."""
        ordered = sorted(targets, key=_reading_order)
        called = list(names)
        taken = set(names)
        numbers = (f"inv{i}" for i in itertools.count(1))
        defined: list[Clause] = []
        for clauses in invented:
            name = next(name for name in numbers if name not in taken)
            called[clauses[0].head] = name
            taken.add(name)
            defined += clauses
        learned = frozenset({*targets_learned, *(clause.head for clause in defined)})
        return ClauseProgram((*ordered, *defined), tuple(called), learned)

    @property
    def rules(self) -> list[str]:
        """The text of each clause."""
        return [clause_text(clause, self.names) for clause in self.clauses]

    @property
    def text(self) -> str:
        """The program as Datalog."""
        return "\n".join(self.rules)

    def instances(self, targets: Iterable[int]) -> list[tuple[tuple[Literal, ...], Literal]]:
        """Return small sets of facts, as literals whose variables are constants, and an atom that
        follows from each.
        """
        found: list[tuple[tuple[Literal, ...], Literal]] = []
        queue: list[tuple[tuple[Literal, ...], Literal, int]] = []
        for target in targets:
            for clause in self.clauses:
                if clause.head == target:
                    head = (target, tuple(range(clause.arity)))
                    queue.append((clause.body, head, clause.variables))
        for _ in range(_MOST_UNFOLDED):
            if not queue or len(found) >= _MOST_INSTANCES:
                break
            queue.sort(key=lambda entry: len(entry[0]))
            body, head, variables = queue.pop(0)
            place = next((i for i, (p, _) in enumerate(body) if p in self.learned), None)
            if place is None:
                found.append((tuple(dict.fromkeys(body)), head))
                continue
            predicate, arguments = body[place]
            for clause in self.clauses:
                if clause.head != predicate:
                    continue
                new = dict(enumerate(arguments))
                for variable in range(clause.arity, clause.variables):
                    new[variable] = variables + variable - clause.arity
                inside = tuple((p, tuple(new[v] for v in literal)) for p, literal in clause.body)
                longer = (*body[:place], *inside, *body[place + 1 :])
                if len(longer) <= _MOST_LITERALS:
                    more = clause.variables - clause.arity
                    queue.append((longer, head, variables + more))
        return found


def _reading_order(clause: Clause) -> tuple[object, ...]:
    return (clause.head, clause.uses([clause.head]), len(clause.body), clause.body)


def derived_atoms(
    text: str, background: Mapping[str, Sequence[Sequence[str]]], targets: Iterable[str]
) -> set[tuple[str, ...]]:
    """Return the atoms of some predicates that a program derives, as their cells."""
    wanted = {(name, int(arity)) for name, _, arity in (t.partition("/") for t in targets)}
    with warnings.catch_warnings():  # a rule may use a predicate without facts
        warnings.simplefilter("ignore", GroundingWarning)
        facts = closure(ground(text, facts=background), []).atoms
    cells = (tuple(cells_of(atom)) for atom in facts)
    return {atom for atom in cells if (atom[0], len(atom) - 1) in wanted}
