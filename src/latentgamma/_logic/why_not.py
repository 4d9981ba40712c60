"""Why an atom does not follow from some facts."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._logic.blocked import Blocked, blocked_rules, completed, listed
from latentgamma._logic.closure import Closure, close_integers, closure_of_mask
from latentgamma._logic.dependency_graph import graph_of
from latentgamma._logic.derivation import atoms_needed, reasons_of
from latentgamma._logic.loops import Cells, compiled
from latentgamma._logic.smallest_change import smallest_change
from latentgamma._program.facts import Facts, Mask, atom_index
from latentgamma._program.names import quote
from latentgamma._program.program import Indices, Offsets, Program
from latentgamma._program.stratified import StratifiedProgram, require_any_program

# The price of assuming an atom that a rule could derive: any number of roots is cheaper.
_LAST_RESORT = 1e9
# A cost no sum exceeds, so that shared sub-proofs counted over and over stay finite.
_DEAREST = 1e300


@dataclass(frozen=True)
class WhyNot:
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

    program: Program | StratifiedProgram = field(repr=False)
    atom: str
    blocked: tuple[Blocked, ...]
    missing: frozenset[str]
    withdrawn: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """The account as plain values."""
        return {
            "atom": self.atom,
            "blocked": [_blocked_values(blocked) for blocked in self.blocked],
            "missing": sorted(self.missing),
            **({"withdrawn": sorted(self.withdrawn)} if self.withdrawn else {}),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """The account as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def __str__(self) -> str:
        if not self.missing and not self.withdrawn:
            return f"{quote(self.atom)} does not follow, whatever is given: no rule can derive it"
        if not self.blocked:
            return f"{quote(self.atom)} does not follow: no rule derives it, it has to be given"
        lines = [str(blocked) for blocked in self.blocked[:20]]
        if len(self.blocked) > 20:
            lines.append(f"… {len(self.blocked) - 20} more rules")
        tree = [f"├─ {line}" for line in lines[:-1]] + [f"└─ {lines[-1]}"]
        changes = [f"with {listed(sorted(self.missing))}"] if self.missing else []
        changes += [f"without {listed(sorted(self.withdrawn))}"] if self.withdrawn else []
        last = f"it would {' and '.join(changes)}"
        return "\n".join([f"{quote(self.atom)} does not follow", *tree, last])

    def __repr__(self) -> str:
        without = f", withdrawn {sorted(self.withdrawn)!r}" if self.withdrawn else ""
        return f"WhyNot({self.atom!r}, missing {sorted(self.missing)!r}{without})"


def why_not(program: Program | StratifiedProgram, facts: Facts, atom: str | int) -> WhyNot | None:
    """What keeps the atom from following from the facts, or None if it follows.

    Where a program has negation, clingo looks for the changes.

    >>> program = Program.from_rules([("c", ["a", "b"]), ("d", ["c"])])
    >>> sorted(why_not(program, ["a"], "d").missing)
    ['b']
    """
    require_any_program(program, "why_not")
    name = _asked_atom(program, atom)
    program, given = completed(program, facts)
    goal = program.index.get(name)
    if goal is None:
        return WhyNot(program, name, (), frozenset())
    known = closure_of_mask(program, given)
    if known.state[goal]:
        return None
    blocked = blocked_rules(program, known.state, goal)
    names = program.atoms
    if isinstance(program, StratifiedProgram):
        added, withdrawn = smallest_change(program, given, goal)
        return WhyNot(
            program,
            name,
            blocked,
            frozenset(names[i] for i in added),
            frozenset(names[i] for i in withdrawn),
        )
    part, numbers = _open_part(program, known, goal)
    missing = frozenset(names[numbers[i]] for i in _smallest(part, _repair(part)))
    return WhyNot(program, name, blocked, missing)


def _asked_atom(program: Program | StratifiedProgram, atom: str | int) -> str:
    """The name of the atom; a grounded program may be asked about atoms it does not have."""
    if isinstance(atom, str) and program.origin is not None:
        name = program.origin.atom_name(atom)
        if name is not None:
            return name
    return program.atoms[atom_index(program, atom)]


def _blocked_values(blocked: Blocked) -> dict[str, Any]:
    """An entry as plain values; negation and origin only where there are any."""
    return {
        "rule": blocked.rule,
        "missing": list(blocked.missing),
        **({"holding": list(blocked.holding)} if blocked.holding else {}),
        **({"origin": str(blocked.origin)} if blocked.origin else {}),
    }


# ------------------------------------------------------------------------ the missing facts


def _open_part(program: Program, known: Closure, goal: int) -> tuple[Program, Indices]:
    """The part of the program the goal still depends on, and what its atoms are in the whole.

    It has no atom that is derived, and the goal is its atom 0.
    """
    graph = graph_of(program)
    rows = (*graph.derivers, program.body_indptr, program.body_indices)
    mark, queue = known.state.astype(np.uint8), np.zeros(program.M, np.int32)
    mark[goal], queue[0] = 1, goal
    if graph.plain(program.size):
        lists = [array.tolist() for array in (*rows, mark, queue)]
        count = reach_back(*lists)
        numbers = np.array(lists[-1][:count], np.int32)
    else:
        count = compiled(reach_back)(*rows, mark, queue)
        numbers = queue[:count].copy()
    inside = np.zeros(program.M, np.bool_)
    inside[numbers] = True
    rule = np.repeat(np.arange(program.R), program.head_sizes)
    used = np.zeros(program.R, np.bool_)
    used[rule[inside[program.head_indices]]] = True
    return _restricted(program, used, numbers), numbers


def _firing_part(part: Program, known: Closure) -> tuple[Program, Indices]:
    """The rules that fire in a closure, and what their atoms are in the whole."""
    true = np.concatenate(([0], np.cumsum(known.state[part.body_indices])))
    fires = np.diff(true[part.body_indptr]) == part.body_sizes
    numbers = np.flatnonzero(known.state).astype(np.int32)
    return _restricted(part, fires, numbers), numbers


def _restricted(program: Program, rules: Mask, atoms: Indices) -> Program:
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


def _repair(part: Program) -> set[int]:
    """Atoms that derive atom 0, found by the cheapest derivation: roots, if roots can do it."""
    price = np.where(part.rules_per_head == 0, 1.0, np.inf)
    cost, reasons = _cheapest(part, price)
    if cost[0] == np.inf:
        price[price == np.inf] = _LAST_RESORT
        price[0] = np.inf
        cost, reasons = _cheapest(part, price)
    if cost[0] == np.inf:  # every rule for it needs itself
        return {0}
    return {i for i in atoms_needed(part, reasons, 0) if reasons[i] < 0}


def _cheapest(part: Program, price: npt.NDArray[np.float64]) -> tuple[Any, npt.NDArray[Any]]:
    """The least cost of each atom, and the rule it comes by (−1: it is assumed)."""
    graph = graph_of(part)
    rows = (*graph.uses, part.head_indptr, part.head_indices)
    arrays = (
        part.body_sizes.copy(),
        np.zeros(part.R),
        price.copy(),
        np.full(part.M, -1, np.int64),
        np.zeros(part.M, np.uint8),
    )
    if graph.plain(part.size + part.M):
        lists = [array.tolist() for array in (*rows, *arrays)]
        cheapest(*lists)
        return lists[6], np.array(lists[7], np.int64)
    compiled(cheapest)(*rows, *arrays)
    return arrays[2], arrays[3]


def _smallest(part: Program, repair: set[int]) -> set[int]:
    """A part of the repair that still derives atom 0, and none of whose parts does."""
    if len(repair) == 1:
        return repair
    # Only rules that fire from all of the repair can fire from less: mostly a small program.
    firing, numbers = _firing_part(part, closure_of_mask(part, part.mask(repair)))
    kept = set(np.flatnonzero(np.isin(numbers, list(repair))).tolist())
    for i in sorted(kept - _indispensable(firing, sorted(kept))):
        if i not in kept:
            continue
        known = closure_of_mask(firing, firing.mask(kept - {i}))
        if known.state[0]:  # keep only what a proof from the rest uses
            reasons = reasons_of(known)
            kept = {k for k in atoms_needed(firing, reasons, 0) if reasons[k] < 0}
    return {int(numbers[i]) for i in kept}


def _indispensable(part: Program, kept: list[int]) -> set[int]:
    """Those of the atoms without which, one at a time, the others do not derive atom 0."""
    needed: set[int] = set()
    for start in range(0, len(kept), 4096):
        left_out = kept[start : start + 4096]
        everywhere = (1 << len(left_out)) - 1
        words = [0] * part.M
        for i in kept:
            words[i] = everywhere
        for lane, i in enumerate(left_out):
            words[i] -= 1 << lane
        if close_integers(part, words, len(left_out)):
            needed.update(i for lane, i in enumerate(left_out) if not words[0] >> lane & 1)
    return needed


# ------------------------------------------------------------------------ loops


def reach_back(
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


def cheapest(
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
            total[j] = min(total[j] + price, _DEAREST)
            if missing[j] == 0:
                for x in range(head_ptr[j], head_ptr[j + 1]):
                    h = head[x]
                    if not settled[h] and total[j] < cost[h]:
                        cost[h] = total[j]
                        reason[h] = j
                        heapq.heappush(heap, (total[j], h + 0))  # a full-width index, as in `heap`
