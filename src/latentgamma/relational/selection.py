"""The shortest set of candidate clauses that explains the examples, found by clingo.

Each candidate may be used. A model of the answer set program is a set of clauses whose least model
has every positive example and no negative one; clingo minimises the description length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from latentgamma.relational.budget import Budget
from latentgamma.relational.instances import Candidate, Hypotheses

#: Seconds between two looks at the clock.
_WAIT = 0.05
#: Conflicts after which a search ends without a proof.
_MOST_CONFLICTS = 100_000
#: Rows that take as long as a conflict, and as adding a literal of a rule.
_ROWS_OF_A_CONFLICT, _ROWS_OF_A_LITERAL = 15_000, 100
#: Bits are whole numbers for clingo: this many parts of a bit.
_PARTS = 100


@dataclass(frozen=True)
class Choice:
    """A set of candidates that explains the examples.

    Attributes:
        chosen: the numbers of the candidates.
        bits: their description length, with the definitions that they use.
        shortest: whether no other set of candidates is shorter.
    """

    chosen: tuple[int, ...]
    bits: float
    shortest: bool


class Selection:
    """The answer set program that chooses among candidates.

    Args:
        hypotheses: the candidates and their instances.
        definitions: the description length of each invented predicate, by number.
        most_invented: the largest number of invented predicates.
        budget: of work and time.

    Attributes:
        finished: whether the last search compared all sets.

    Raises:
        OutOfBudget: the work or the time is used up.
    """

    def __init__(
        self,
        hypotheses: Hypotheses,
        definitions: dict[int, float],
        most_invented: int,
        budget: Budget,
    ) -> None:
        import clingo

        self._control = clingo.Control(
            ["--warn=none", "--opt-strategy=usc", "--configuration=handy"]
        )
        self._candidates: Sequence[Candidate] = hypotheses.candidates
        self._definitions = definitions
        self._budget = budget
        self.finished = False
        with self._control.backend() as backend:
            atoms: dict[int, int] = {}

            def atom(number: int) -> int:
                if number not in atoms:
                    atoms[number] = backend.add_atom()
                return atoms[number]

            self._use = [backend.add_atom() for _ in self._candidates]
            backend.add_rule(self._use, choice=True)
            for fact in hypotheses.given.tolist():
                backend.add_rule([atom(fact)])
            weights = []
            users: dict[int, list[int]] = {}
            for number, one in enumerate(self._candidates):
                heads, bodies = hypotheses.rules_of(number)
                use = self._use[number]
                budget.spend(_ROWS_OF_A_LITERAL * len(heads) * (1 + len(bodies)))
                columns = [body.tolist() for body in bodies]
                for row, head in enumerate(heads.tolist()):
                    backend.add_rule([atom(head)], [use, *(atom(c[row]) for c in columns)])
                weights.append((use, round(_PARTS * one.bits)))
                for definition in one.definitions:
                    users.setdefault(definition, []).append(use)
            for head in hypotheses.positive.tolist():
                backend.add_rule([], [-atom(head)])
            for head in hypotheses.negative.tolist():
                backend.add_rule([], [atom(head)])
            needed = []
            for definition, uses in users.items():
                used = backend.add_atom()
                for use in uses:
                    backend.add_rule([used], [use])
                weights.append((used, round(_PARTS * definitions[definition])))
                needed.append((used, 1))
            if len(needed) > most_invented:
                backend.add_weight_rule([], most_invented + 1, needed)
            backend.add_minimize(0, weights)

    def shortest(self) -> Choice | None:
        """Return the shortest set of candidates that was found; None if none was found."""
        found: list[tuple[int, ...]] = []
        most = min(_MOST_CONFLICTS, self._budget.rows_left // _ROWS_OF_A_CONFLICT)
        self._control.configuration.solve.solve_limit = str(int(most))  # type: ignore[union-attr]

        def keep(model: Any) -> None:
            found.append(tuple(n for n, use in enumerate(self._use) if model.is_true(use)))

        with self._control.solve(on_model=keep, async_=True) as handle:
            finished = handle.wait(_WAIT)
            while not finished and not self._budget.time_is_up:
                finished = handle.wait(_WAIT)
            if not finished:
                handle.cancel()
            result = handle.get()
        conflicts = self._control.statistics["solving"]["solvers"]["conflicts"]
        self._budget.count(_ROWS_OF_A_CONFLICT * conflicts)
        self.finished = bool(finished and result.exhausted)
        if not found:
            return None
        chosen = found[-1]
        return Choice(chosen, self.bits(chosen), self.finished)

    def exclude(self, choice: Choice) -> None:
        """Leave out every set that has all of these candidates."""
        with self._control.backend() as backend:
            backend.add_rule([], [self._use[number] for number in choice.chosen])

    def bits(self, chosen: Sequence[int]) -> float:
        """Return the description length of a set of candidates."""
        used = {d for number in chosen for d in self._candidates[number].definitions}
        clauses = sum(self._candidates[number].bits for number in chosen)
        return clauses + sum(self._definitions[d] for d in used)
