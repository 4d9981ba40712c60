"""The rules that could derive an atom, and what keeps each of them from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from latentgamma._program.dependency_graph import rules_deriving
from latentgamma._program.facts import Facts, Mask, atom_index, fact_mask
from latentgamma._program.names import quote
from latentgamma._program.origin import Instance
from latentgamma._program.program import Program


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rule that could derive the atom, and why it does not.

    `missing` are the atoms of its body that do not follow, and `holding` its negated atoms that
    do. `origin` says where a grounded rule comes from.

    >>> print(Blocked(3, ("a",), ("b",)))
    rule 3 lacks a, and b holds
    """

    rule: int
    missing: tuple[str, ...]
    holding: tuple[str, ...] = ()
    origin: Instance | None = None

    def __str__(self) -> str:
        place = f"rule {self.rule}" if self.origin is None else str(self.origin)
        reasons = [f"lacks {join_names(self.missing)}"] if self.missing else []
        if self.holding:
            verb = "holds" if len(self.holding) == 1 else "hold"
            reasons.append(f"{'and ' * bool(reasons)}{join_names(self.holding)} {verb}")
        joined = ", ".join(reasons)
        return f"{place} {joined}" if self.missing else f"{place} does not apply: {joined}"


def complete_program(program: Program, facts: Facts) -> tuple[Program, Mask]:
    """The program that proofs speak about, and its facts.

    A grounded program has had everything evaluated that does not depend on what is given; proofs
    show the rules as they were written.
    """
    given = fact_mask(program, facts)
    if program.origin is None:
        return program, given
    complete: Program = program.origin.complete()
    return complete, complete.mask(list(program.names(given)))


def asked_atom(program: Program, atom: str | int) -> str:
    """The name of the atom; a grounded program may be asked about atoms that it cannot derive."""
    if isinstance(atom, str) and program.origin is not None:
        name = program.origin.atom_name(atom)
        if name is not None:
            return name
    return program.atoms[atom_index(program, atom)]


def instance_of(program: Program, rule: int) -> Instance | None:
    """Where a rule of a complete program comes from, if that can be told."""
    if program.origin is None:
        return None
    written = program.rules[rule]
    return program.origin.instance(written.heads[0], written.body, written.negated)


def blocked_rules(program: Program, state: Mask, goal: int) -> tuple[Blocked, ...]:
    """An entry for each rule of an atom that is not derived."""
    names = program.atoms
    found = []
    for rule in rules_with_head(program, goal):
        literals = program.literals_of(rule).tolist()
        found.append(
            Blocked(
                rule,
                tuple(names[i] for i in literals if i >= 0 and not state[i]),
                tuple(names[~i] for i in literals if i < 0 and state[~i]),
                instance_of(program, rule),
            )
        )
    return tuple(found)


def rules_with_head(program: Program, goal: int) -> list[int]:
    """The numbers of the rules that derive an atom."""
    ends, rules = rules_deriving(program)
    found: list[int] = rules[ends[goal] : ends[goal + 1]].tolist()
    return found


def join_names(names: Iterable[str]) -> str:
    """Some of the names, as a sentence has them."""
    shown = [quote(name) for name in names]
    return ", ".join(shown[:10]) + (f", … {len(shown) - 10} more" if len(shown) > 10 else "")
