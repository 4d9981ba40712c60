"""A small set of facts that would derive an atom: abduction in a definite program."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._logic.bit_planes import unpack
from latentgamma._logic.closure import Closure, closure_of_mask
from latentgamma._logic.closures import closures
from latentgamma._logic.derivation import atoms_needed, reasons_of
from latentgamma._program.compilation import Cells, compile_loop, worth_compiling
from latentgamma._program.dependency_graph import rules_deriving, rules_using
from latentgamma._program.facts import Mask
from latentgamma._program.program import Indices, Offsets, Program

# The price of assuming an atom that a rule could derive: any number of other atoms is cheaper.
_LAST_RESORT = 1e9
# A cost that no sum exceeds, so that shared sub-proofs counted over and over stay finite.
_LARGEST_COST = 1e300
# Fact sets that are closed at once: 64 words for each atom.
_AT_ONCE = 4096


def find_missing_facts(program: Program, known: Closure, goal: int) -> set[int]:
    """The indices of facts that derive the goal when they are added, and no part of which does.

    They are atoms that no rule derives, where such atoms suffice.

    Args:
        program: a definite program.
        known: a closure of it that does not contain the goal.
        goal: the index of an atom.
    """
    part, numbers = _underived_part(program, known, goal)
    return {int(numbers[i]) for i in _drop_needless(part, _cheapest_assumptions(part))}


def _underived_part(program: Program, known: Closure, goal: int) -> tuple[Program, Indices]:
    """The part of the program the goal still depends on, and what its atoms are in the whole.

    It has no atom that is derived, and the goal is its atom 0.
    """
    rows = (*rules_deriving(program), program.body_indptr, program.body_indices)
    mark, queue = known.state.astype(np.uint8), np.zeros(program.M, np.int32)
    mark[goal], queue[0] = 1, goal
    if not worth_compiling(program.size):
        lists = [array.tolist() for array in (*rows, mark, queue)]
        count = find_ancestors(*lists)
        numbers = np.array(lists[-1][:count], np.int32)
    else:
        count = compile_loop(find_ancestors)(*rows, mark, queue)
        numbers = queue[:count].copy()
    inside = np.zeros(program.M, np.bool_)
    inside[numbers] = True
    rule = np.repeat(np.arange(program.R), program.head_sizes)
    used = np.zeros(program.R, np.bool_)
    used[rule[inside[program.head_indices]]] = True
    return _restrict(program, used, numbers), numbers


def _firing_part(part: Program, known: Closure) -> tuple[Program, Indices]:
    """The rules that fire in a closure, and what their atoms are in the whole."""
    true = np.concatenate(([0], np.cumsum(known.state[part.body_indices])))
    fires = np.diff(true[part.body_indptr]) == part.body_sizes
    numbers = np.flatnonzero(known.state).astype(np.int32)
    return _restrict(part, fires, numbers), numbers


def _restrict(program: Program, rules: Mask, atoms: Indices) -> Program:
    """The program of some of the rules, with only these atoms left in them."""
    new = np.full(program.M, -1, np.int64)
    new[atoms] = np.arange(len(atoms))

    def rows(offsets: Offsets, members: Indices) -> tuple[Offsets, npt.NDArray[np.int64]]:
        row = np.repeat(np.arange(program.R), np.diff(offsets))
        kept = rules[row] & (new[members] >= 0)
        sizes = np.bincount(row[kept], minlength=program.R)[rules]
        return np.concatenate(([0], np.cumsum(sizes))), new[members[kept]]

    body_ptr, bodies = rows(program.body_indptr, program.body_indices)
    head_ptr, heads = rows(program.head_indptr, program.head_indices)
    return Program.from_arrays(body_ptr, bodies, heads, head_ptr, atoms=len(atoms))


def _cheapest_assumptions(part: Program) -> set[int]:
    """Atoms that derive atom 0, found by the cheapest derivation: roots, if roots can do it."""
    price = np.where(part.rules_per_head == 0, 1.0, np.inf)
    cost, reasons = _cheapest_rules(part, price)
    if cost[0] == np.inf:
        price[price == np.inf] = _LAST_RESORT
        price[0] = np.inf
        cost, reasons = _cheapest_rules(part, price)
    if cost[0] == np.inf:  # every rule for it needs itself
        return {0}
    return {i for i in atoms_needed(part, reasons, 0) if reasons[i] < 0}


def _cheapest_rules(part: Program, price: npt.NDArray[np.float64]) -> tuple[Any, npt.NDArray[Any]]:
    """The least cost of each atom, and the rule that derives it (−1: it is assumed)."""
    rows = (*rules_using(part), part.head_indptr, part.head_indices)
    arrays = (
        part.body_sizes.copy(),
        np.zeros(part.R),
        price.copy(),
        np.full(part.M, -1, np.int64),
        np.zeros(part.M, np.uint8),
    )
    if not worth_compiling(part.size + part.M):
        lists = [array.tolist() for array in (*rows, *arrays)]
        find_cheapest(*lists)
        return lists[6], np.array(lists[7], np.int64)
    compile_loop(find_cheapest)(*rows, *arrays)
    return arrays[2], arrays[3]


def _drop_needless(part: Program, assumptions: set[int]) -> set[int]:
    """A part of the assumptions that still derives atom 0, and none of whose parts does."""
    if len(assumptions) == 1:
        return assumptions
    # Only rules that fire from all of the assumptions can fire from fewer: usually a small program.
    firing, numbers = _firing_part(part, closure_of_mask(part, part.mask(assumptions)))
    kept = set(np.flatnonzero(np.isin(numbers, list(assumptions))).tolist())
    for i in sorted(kept - _find_necessary(firing, sorted(kept))):
        if i not in kept:
            continue
        known = closure_of_mask(firing, firing.mask(kept - {i}))
        if known.state[0]:  # keep only what a proof from the rest uses
            reasons = reasons_of(known)
            kept = {k for k in atoms_needed(firing, reasons, 0) if reasons[k] < 0}
    return {int(numbers[i]) for i in kept}


def _find_necessary(part: Program, kept: list[int]) -> set[int]:
    """Those of the atoms without which, one at a time, the others do not derive atom 0."""
    needed: set[int] = set()
    for start in range(0, len(kept), _AT_ONCE):
        left_out = np.array(kept[start : start + _AT_ONCE])
        n = np.arange(len(left_out))  # fact set n lacks left_out[n]
        planes = np.zeros((part.M, -(-len(n) // 64)), np.uint64)
        planes[kept] = ~np.uint64(0)
        planes[left_out, n // 64] ^= np.uint64(1) << (n % 64).astype(np.uint64)
        closed = unpack(closures(part, planes, packed=True, out=planes)[:1], len(n))[:, 0]
        needed.update(left_out[~closed].tolist())
    return needed


# ------------------------------------------------------------------------ loops


def find_ancestors(
    rule_ptr: Cells, rules: Cells, body_ptr: Cells, body: Cells, mark: Cells, queue: Cells
) -> int:
    """The number of atoms in `queue`: those a derivation of `queue[0]` may still need.

    `rules` lists the rules of each head; `mark` comes as 1 where an atom is derived or is
    the first of the queue, and as 0 elsewhere.
    """
    q, n = 0, 1
    while q < n:
        i = queue[q]
        q += 1
        for p in range(rule_ptr[i], rule_ptr[i + 1]):
            j = rules[p]
            for b in range(body_ptr[j], body_ptr[j + 1]):
                if mark[body[b]] == 0:
                    mark[body[b]] = 1
                    queue[n] = body[b]
                    n += 1
    return n


def find_cheapest(
    use_ptr: Cells,
    use: Cells,
    head_ptr: Cells,
    head: Cells,
    missing: Cells,
    total: Cells,
    cost: Cells,
    reason: Cells,
    settled: Cells,
) -> None:
    """Lower `cost` to the cheapest way to get each atom, and put its rule into `reason`.

    `cost` comes as the price of assuming an atom, at least 1; a rule costs the sum of its
    body, so that shared premises count each time. (Knuth's generalisation of Dijkstra's
    algorithm.) `reason` comes as -1, `missing` as the sizes of the bodies, the rest as 0.
    """
    heap = [(cost[i], i) for i in range(len(cost)) if cost[i] < np.inf]
    heapq.heapify(heap)
    while len(heap) > 0:
        price, i = heapq.heappop(heap)
        if settled[i]:
            continue
        settled[i] = 1
        for p in range(use_ptr[i], use_ptr[i + 1]):
            j = use[p]
            missing[j] -= 1
            total[j] = min(total[j] + price, _LARGEST_COST)
            if missing[j] == 0:
                for x in range(head_ptr[j], head_ptr[j + 1]):
                    h = head[x]
                    if not settled[h] and total[j] < cost[h]:
                        cost[h] = total[j]
                        reason[h] = j
                        heapq.heappush(heap, (total[j], h + 0))  # a full-width index, as in `heap`
