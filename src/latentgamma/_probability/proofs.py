"""The most likely proofs of an atom: minimal sets of inputs from which it follows.

The probability of a proof is the product of its inputs' probabilities. The search is A* over
partial proofs, from the atom back to the inputs. The cost of a partial proof is the negative
logarithm of the inputs chosen so far plus a lower bound on what its open goals still need: the
largest, over the goals, of the cheapest single input that each cannot do without. The proofs
therefore come in the order of their probability.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ModelError
from latentgamma._logic.closure import closure_of_mask
from latentgamma._probability.relevant_rules import RelevantRules, relevant_rules
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Program


@dataclass(frozen=True)
class LikelyProof:
    """Inputs from which an atom follows, none of them superfluous, and their joint probability.

    >>> print(LikelyProof(("smoke", "heat"), 0.63))
    0.63  smoke, heat
    """

    facts: tuple[str, ...]
    probability: float

    def __str__(self) -> str:
        return f"{self.probability:.6g}  {', '.join(self.facts) or 'no input needed'}"


def likely_proofs(
    program: Program,
    variables: Variables,
    probabilities: npt.NDArray[np.float64],
    atom: int,
    *,
    true: Sequence[int] = (),
    most: int = 5,
    budget: int = 200_000,
) -> tuple[LikelyProof, ...]:
    """Return the most likely proofs of an atom, the likeliest first.

    Args:
        program: The program.
        variables: Its random variables.
        probabilities: The probability of each input atom, in the order of `variables.atoms`.
        atom: The atom to prove.
        true: Atoms that are true in every world.
        most: How many proofs to return; fewer come back where there are fewer.
        budget: The number of partial proofs that the search may visit.

    Raises:
        ModelError: The budget was spent before `most` proofs were found.
    """
    rules = relevant_rules(program, variables, [atom], true)
    if rules.certain[atom]:
        return (LikelyProof((), 1.0),)
    cost = {
        int(i): -float(np.log(p)) if p > 0 else np.inf
        for i, p in zip(variables.atoms, probabilities, strict=True)
    }
    bound = _lower_bounds(rules, cost)
    found: list[frozenset[int]] = []
    proofs: list[LikelyProof] = []
    tie = count()
    seen: set[tuple[frozenset[int], frozenset[int], frozenset[int]]] = set()
    start = (frozenset[int](), frozenset((atom,)), frozenset[int]())
    queue = [(bound.get(atom, np.inf), next(tie), 0.0, start)]
    visited = 0
    while queue and len(proofs) < most:
        total, _, spent, state = heapq.heappop(queue)
        if total == np.inf:
            break
        if state in seen:
            continue
        seen.add(state)
        visited += 1
        if visited > budget:
            raise ModelError(
                f"{len(proofs)} of {most} proofs found within the budget of {budget} partial "
                f"proofs; raise budget="
            )
        chosen, goals, expanded = state
        if not goals:
            if any(other <= chosen for other in found) or not _derives(program, chosen, true, atom):
                continue
            # An input of probability 1 costs nothing: a proof without it may come later.
            if any(_derives(program, chosen - {i}, true, atom) for i in chosen):
                continue
            found.append(chosen)
            names = tuple(program.atoms[i] for i in sorted(chosen))
            proofs.append(LikelyProof(names, float(np.exp(-spent))))
            continue
        goal = max(goals, key=lambda i: (bound.get(i, np.inf), i))
        rest = goals - {goal}
        options = rules.bodies.get(goal, ((-1 - goal,),))
        for body in options:
            raw = {-1 - i for i in body if i < 0} | {
                i for i in body if i >= 0 and i not in rules.bodies
            }
            new = chosen | raw
            owners = [variables.owner[i] for i in new]
            if len(set(owners)) < len(owners):
                continue
            spent_now = sum(cost[i] for i in new)
            open_now = (rest | {i for i in body if i in rules.bodies}) - expanded - {goal}
            left = max((_left(bound, cost, i, new) for i in open_now), default=0.0)
            heapq.heappush(
                queue,
                (
                    spent_now + left,
                    next(tie),
                    spent_now,
                    (new, frozenset(open_now), expanded | {goal}),
                ),
            )
    return tuple(proofs)


def _left(
    bound: dict[int, float], cost: dict[int, float], goal: int, chosen: frozenset[int]
) -> float:
    """What a goal must still cost: nothing where an input chosen already may be the dearest one."""
    needed = bound.get(goal, np.inf)
    return needed if all(cost[i] < needed for i in chosen) else 0.0


def _lower_bounds(rules: RelevantRules, cost: dict[int, float]) -> dict[int, float]:
    """For each atom the least, over its proofs, of the dearest input in the proof."""
    bound = {i: cost[i] for i in rules.inputs if i not in rules.bodies}
    changed = True
    while changed:
        changed = False
        for atom, bodies in rules.bodies.items():
            best = min(
                (
                    max(
                        (cost[-1 - i] if i < 0 else bound.get(i, np.inf) for i in body), default=0.0
                    )
                    for body in bodies
                ),
                default=np.inf,
            )
            if best < bound.get(atom, np.inf):
                bound[atom] = best
                changed = True
    return bound


def _derives(program: Program, chosen: frozenset[int], true: Sequence[int], atom: int) -> bool:
    facts = np.zeros(program.M, np.bool_)
    facts[[*chosen, *true]] = True
    return bool(closure_of_mask(program, facts).state[atom])
