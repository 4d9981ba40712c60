"""The rules on which the outputs of a program depend, simplified for the inputs it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentgamma._logic.closure import closure_of_mask
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Mask, Program


@dataclass(frozen=True)
class RelevantRules:
    """What is left of a program once everything that cannot matter is removed.

    `bodies` holds, for each derived atom that an output depends on, its distinct rule bodies.
    Atoms that are always true are removed from bodies, rules that can never fire are dropped,
    and so are bodies with two atoms of one group. `certain` are the atoms true in every world.
    An input that is also derived by rules counts as one more rule: its body is `(-1 - atom,)`.
    """

    bodies: dict[int, tuple[tuple[int, ...], ...]]
    certain: Mask
    inputs: tuple[int, ...]


def relevant_rules(program: Program, variables: Variables, outputs: list[int]) -> RelevantRules:
    """Return the rules that the outputs depend on, simplified."""
    fed = np.zeros(program.M, np.bool_)
    fed[variables.atoms] = True
    certain = closure_of_mask(program, np.zeros(program.M, np.bool_)).state
    possible = closure_of_mask(program, fed).state
    found: dict[int, set[tuple[int, ...]]] = {}
    rules_of: dict[int, list[int]] = {}
    usable = _all_true(program, possible)
    for j in np.flatnonzero(usable).tolist():
        for head in program.heads_of(j):
            rules_of.setdefault(int(head), []).append(j)
    stack = [atom for atom in outputs if not certain[atom]]
    inputs: set[int] = set()
    while stack:
        atom = stack.pop()
        if atom in found:
            continue
        if fed[atom] and atom not in rules_of:
            inputs.add(atom)
            continue
        bodies: set[tuple[int, ...]] = set()
        for j in rules_of.get(atom, ()):
            body = tuple(i for i in program.body_of(j).tolist() if not certain[i])
            owners = [
                variables.owner[i] for i in body if i in variables.owner and i not in rules_of
            ]
            if len(set(owners)) == len(owners) and atom not in body:
                bodies.add(body)
        if fed[atom]:
            bodies.add((-1 - atom,))
            inputs.add(atom)
        found[atom] = bodies
        stack += [i for body in bodies for i in body if i >= 0]
    return RelevantRules(
        {atom: tuple(sorted(bodies)) for atom, bodies in found.items()},
        certain,
        tuple(sorted(inputs)),
    )


def _all_true(program: Program, state: Mask) -> Mask:
    """Which rules have every body atom in the state."""
    total = np.concatenate(([0], np.cumsum(state[program.body_indices])))
    fires: Mask = np.diff(total[program.body_indptr]) == program.body_sizes
    return fires
