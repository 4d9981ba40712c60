"""The rules on which the outputs of a program depend, simplified for the inputs it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentgamma._logic.closure import closure_of_mask
from latentgamma._probability.variables import Variables
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program
from latentgamma._program.stratified import StratifiedProgram


@dataclass(frozen=True)
class RelevantRules:
    """What is left of a program once everything that cannot matter is removed.

    `bodies` holds, for each derived atom that an output depends on, its distinct rule bodies.
    Atoms that are always true are removed from bodies, rules that can never fire are dropped,
    and so are bodies with two atoms of one group. `certain` are the atoms true in every world.
    An input that is also derived by rules counts as one more rule: its body is `(-1 - atom,)`.

    With negation nothing is removed, `negation` is true, and a body lists its negated atoms too.
    """

    bodies: dict[int, tuple[tuple[int, ...], ...]]
    certain: Mask
    inputs: tuple[int, ...]
    negation: bool = False


def relevant_rules(
    program: Program | StratifiedProgram,
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
    fed = np.zeros(program.M, np.bool_)
    fed[variables.atoms] = True
    certain = np.zeros(program.M, np.bool_)
    if isinstance(program, Program):
        certain[list(true)] = True
        possible = closure_of_mask(program, fed | certain).state
        certain = closure_of_mask(program, certain).state
        rules = [
            (program.heads_of(j).tolist(), program.body_of(j).tolist())
            for j in np.flatnonzero(_all_true(program, possible)).tolist()
        ]
    else:
        index = {name: i for i, name in enumerate(program.atoms)}
        rules = [
            ([index[h] for h in rule.heads], [index[b] for b in (*rule.body, *rule.negated)])
            for rule in program.rules
        ]
    rules_of: dict[int, list[list[int]]] = {}
    for heads, body in rules:
        for head in heads:
            rules_of.setdefault(head, []).append(body)
    found: dict[int, set[tuple[int, ...]]] = {}
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
        for parts in rules_of.get(atom, ()):
            body = tuple(sorted(i for i in parts if not certain[i]))
            owners = [variables.owner[i] for i in body if fed[i] and i not in rules_of]
            if isinstance(program, StratifiedProgram) or (
                len(set(owners)) == len(owners) and atom not in body
            ):
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
        isinstance(program, StratifiedProgram),
    )


def _all_true(program: Program, state: Mask) -> Mask:
    """Which rules have every body atom in the state."""
    total = np.concatenate(([0], np.cumsum(state[program.body_indices])))
    fires: Mask = np.diff(total[program.body_indptr]) == program.body_sizes
    return fires
