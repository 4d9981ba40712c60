"""The rules on which the outputs of a program depend, simplified for the inputs it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentgamma._logic.closure import closure_of_mask
from latentgamma._probability.variables import Variables
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program

Body = tuple[int, ...]


@dataclass(frozen=True)
class RelevantRules:
    """What is left of a program once everything that cannot matter is removed.

    `bodies` holds, for each derived atom that an output depends on, its distinct rule bodies. The
    literals of a body are numbers:

        i             the atom i
        M + i         its negation
        -1 - i        the input i, where rules derive that atom as well

    Literals that are always true are removed from bodies, and rules that can never fire are
    dropped. `certain` are atoms true in every world: all of them where there is no negation,
    otherwise those that are easily seen to be.
    """

    bodies: dict[int, tuple[Body, ...]]
    certain: Mask
    inputs: tuple[int, ...]

    def is_negated(self, literal: int) -> bool:
        """Whether a literal is a negation."""
        return literal >= len(self.certain)

    def atom_of(self, literal: int) -> int:
        """The atom of a literal; that of an input is left as it is."""
        return literal - len(self.certain) if literal >= len(self.certain) else literal


def relevant_rules(
    program: Program,
    variables: Variables,
    outputs: Sequence[int],
    true: Sequence[int] = (),
) -> RelevantRules:
    """Return the rules that the outputs depend on, simplified.

    Args:
        program: The program.
        variables: Its random variables.
        outputs: The atoms whose probability is asked for.
        true: Atoms that are true in every world, besides those that rules derive.
    """
    M = program.M
    fed = np.zeros(M, np.bool_)
    fed[variables.atoms] = True
    rules, possible, certain = _possible_rules(program, fed, true)
    rules_of: dict[int, list[list[int]]] = {}
    for heads, body in rules:
        for head in heads:
            rules_of.setdefault(head, []).append(body)
    found: dict[int, set[Body]] = {}
    stack = [atom for atom in outputs if not certain[atom]]
    inputs: set[int] = set()
    while stack:
        atom = stack.pop()
        if atom in found:
            continue
        if fed[atom] and atom not in rules_of:
            inputs.add(atom)
            continue
        bodies: set[Body] = set()
        for literals in rules_of.get(atom, ()):
            # Without what is always true; `_possible_rules` leaves nothing that is always false.
            left = {i for i in literals if not (certain[i] if i < M else not possible[i - M])}
            chosen = [i for i in left if i < M and fed[i] and i not in rules_of]
            owners = {variables.owner[i] for i in chosen}
            contradiction = len(owners) < len(chosen) or any(i - M in left for i in left if i >= M)
            if contradiction or atom in left:
                continue
            # Another value of the same group says already that this one is false.
            left -= {
                M + n
                for n in (i - M for i in left if i >= M)
                if fed[n] and n not in rules_of and variables.owner[n] in owners
            }
            bodies.add(tuple(sorted(left)))
        if fed[atom]:
            bodies.add((-1 - atom,))
            inputs.add(atom)
        found[atom] = bodies
        stack += [i - M if i >= M else i for body in bodies for i in body if i >= 0]
    return RelevantRules(
        {atom: tuple(sorted(bodies)) for atom, bodies in found.items()},
        certain,
        tuple(sorted(inputs)),
    )


def _possible_rules(
    program: Program, fed: Mask, true: Sequence[int]
) -> tuple[list[tuple[list[int], list[int]]], Mask, Mask]:
    """The rules that may fire, atoms that may be true, and atoms that are always true.

    With negation there may be fewer in truth of the first two, and more of the last.
    """
    M = program.M
    certain = np.zeros(M, np.bool_)
    certain[list(true)] = True
    if program.definite:
        possible = closure_of_mask(program, fed | certain).state
        certain = closure_of_mask(program, certain).state
        rules = [
            (program.heads_of(j).tolist(), program.body_of(j).tolist())
            for j in np.flatnonzero(_all_true(program, possible)).tolist()
        ]
        return rules, possible, certain
    # Above: as if every negation held. Below: with those that hold in any case.
    above = Program.from_rules([(rule.heads, rule.body) for rule in program.rules], program.atoms)
    possible = closure_of_mask(above, fed | certain).state
    index = {name: i for i, name in enumerate(program.atoms)}
    signed = [
        (
            [index[h] for h in rule.heads],
            [index[b] for b in rule.body],
            [index[b] for b in rule.negated],
        )
        for rule in program.rules
    ]
    below = Program.from_rules(
        [
            (rule.heads, rule.body)
            for rule, (_, _, negated) in zip(program.rules, signed, strict=True)
            if not possible[negated].any()
        ],
        program.atoms,
    )
    certain = closure_of_mask(below, certain).state
    rules = [
        (heads, [*body, *(M + i for i in negated)])
        for heads, body, negated in signed
        if possible[body].all() and not certain[negated].any()
    ]
    return rules, possible, certain


def _all_true(program: Program, state: Mask) -> Mask:
    """Which rules have every body atom in the state."""
    total = np.concatenate(([0], np.cumsum(state[program.body_indices])))
    fires: Mask = np.diff(total[program.body_indptr]) == program.body_sizes
    return fires
