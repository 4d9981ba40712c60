"""Why an atom does not follow from some facts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from latentgamma._display import Display, Displayed
from latentgamma._logic.blocked import (
    Blocked,
    asked_atom,
    blocked_rules,
    complete_program,
    join_names,
)
from latentgamma._logic.closure import closure_of_mask
from latentgamma._logic.missing_facts import find_missing_facts
from latentgamma._logic.smallest_change import smallest_change
from latentgamma._program.facts import Facts
from latentgamma._program.names import quote
from latentgamma._program.program import Program, require_program


@dataclass(frozen=True)
class WhyNot(Displayed):
    """Why an atom does not follow, and how the facts would have to change for it to follow.

    `blocked` has an entry for each rule with this head. The atom follows when `missing` is added
    to the facts and, where a program has negation, `withdrawn` is taken from them; no part of
    these changes is enough. Where that is possible the missing atoms are such that no rule
    derives. The changes are few, but not always the fewest there are.

    An atom that no facts can derive, because grounding has found no instance of its rules, has
    nothing missing and nothing withdrawn.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> print(why_not(program, [], "animal"))
    animal does not follow
    └─ rule 1 lacks bird
    it would with penguin
    """

    program: Program
    atom: str
    blocked: tuple[Blocked, ...]
    missing: frozenset[str]
    withdrawn: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain values.

        Returns:
            A dictionary with the atom, the blocked rules and the changes, for JSON.
        """
        return {
            "atom": self.atom,
            "blocked": [_blocked_values(blocked) for blocked in self.blocked],
            "missing": sorted(self.missing),
            **({"withdrawn": sorted(self.withdrawn)} if self.withdrawn else {}),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """The explanation as JSON text.

        Args:
            indent: the spaces of each level, as in `json.dumps`; None for one line.

        Returns:
            The text of `to_dict()`.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def __str__(self) -> str:
        if not self.missing and not self.withdrawn:
            origin = self.program.origin
            rules = ", ".join(origin.places(self.atom)) if origin is not None else "any rule"
            return (
                f"{quote(self.atom)} does not follow, whatever is given: no instance of {rules} "
                "derives it"
            )
        if not self.blocked:
            return f"{quote(self.atom)} does not follow: no rule derives it, it has to be given"
        lines = [str(blocked) for blocked in self.blocked[:20]]
        if len(self.blocked) > 20:
            lines.append(f"… {len(self.blocked) - 20} more rules")
        tree = [f"├─ {line}" for line in lines[:-1]] + [f"└─ {lines[-1]}"]
        changes = [f"with {join_names(sorted(self.missing))}"] if self.missing else []
        changes += [f"without {join_names(sorted(self.withdrawn))}"] if self.withdrawn else []
        last = f"it would {' and '.join(changes)}"
        return "\n".join([f"{quote(self.atom)} does not follow", *tree, last])

    def _display(self) -> Display:
        title, *lines = str(self).split("\n")
        return Display(title, code=lines[:-1], notes=lines[-1:])

    def __repr__(self) -> str:
        without = f", withdrawn {sorted(self.withdrawn)!r}" if self.withdrawn else ""
        return f"WhyNot({self.atom!r}, missing {sorted(self.missing)!r}{without})"


def why_not(program: Program, facts: Facts, atom: str | int) -> WhyNot | None:
    """What keeps the atom from following from the facts, or None if it follows.

    Where a program has negation, clingo looks for the changes.

    >>> program = Program.from_rules([("c", ["a", "b"]), ("d", ["c"])])
    >>> sorted(why_not(program, ["a"], "d").missing)
    ['b']

    Args:
        program: any program, with negation or without.
        facts: one fact set in any form.
        atom: the name or the index of an atom.

    Returns:
        The rules that do not fire and the facts that are missing, or None.

    Raises:
        FactsError: if the program does not have these facts or this atom.
        ProgramError: if the first argument is not a program.
    """
    require_program(program, "why_not")
    name = asked_atom(program, atom)
    program, given = complete_program(program, facts)
    goal = program.index.get(name)
    if goal is None:
        return WhyNot(program, name, (), frozenset())
    known = closure_of_mask(program, given)
    if known.state[goal]:
        return None
    blocked = blocked_rules(program, known.state, goal)
    names = program.atoms
    if not program.definite:
        added, withdrawn = smallest_change(program, given, goal)
        return WhyNot(
            program,
            name,
            blocked,
            frozenset(names[i] for i in added),
            frozenset(names[i] for i in withdrawn),
        )
    missing = frozenset(names[i] for i in find_missing_facts(program, known, goal))
    return WhyNot(program, name, blocked, missing)


def _blocked_values(blocked: Blocked) -> dict[str, Any]:
    """An entry as plain values; negation and origin only where there are any."""
    return {
        "rule": blocked.rule,
        "missing": list(blocked.missing),
        **({"holding": list(blocked.holding)} if blocked.holding else {}),
        **({"origin": str(blocked.origin)} if blocked.origin else {}),
    }
