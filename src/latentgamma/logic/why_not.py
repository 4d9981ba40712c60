"""Which facts are missing for an atom: the smallest additions, or changes where there is negation."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._display import Display
from latentgamma.errors import optional_package
from latentgamma.logic.closure import Closure, closure_of_mask
from latentgamma.logic.closures import closures
from latentgamma.logic.planes import unpack
from latentgamma.logic.proof import (
    Blocked,
    Explanation,
    atom_of_goal,
    atoms_needed,
    blocked_rules,
    complete_program,
    join_names,
    label_values,
    reasons_of,
)
from latentgamma.program.compilation import Cells, compile_loop, worth_compiling
from latentgamma.program.facts import Facts, Mask
from latentgamma.program.graph import Csr, dependencies, rules_deriving, rules_using
from latentgamma.program.names import quote
from latentgamma.program.program import Indices, Offsets, Program, require_program

# ---- A small set of facts that would derive an atom: abduction in a definite program

# The price of assuming an atom that a rule could derive: any number of other atoms is cheaper.
_LAST_RESORT = 1e9
# A cost that no sum exceeds, so that shared sub-proofs counted over and over stay finite.
_LARGEST_COST = 1e300
# Fact sets that are closed at once: 64 words for each atom.
_AT_ONCE = 4096


def find_missing_facts(program: Program, known: Closure, goal: int) -> set[int]:
    """Return the indices of facts that derive the goal when added, and no part of which does.

    The program is definite, and `known` a closure of it without the goal. The facts are atoms that
    no rule derives, where such atoms suffice.
    """
    part, numbers = _underived_part(program, known, goal)
    assumed = _cheapest_assumptions(part, program.auxiliary[numbers])
    return {int(numbers[i]) for i in _drop_needless(part, assumed)}


def _underived_part(program: Program, known: Closure, goal: int) -> tuple[Program, Indices]:
    """Return the part of the program that the goal still depends on, and its atoms in the whole.

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
    """Return the rules that fire in a closure, and what their atoms are in the whole."""
    bodies = Csr(part.body_indptr, part.body_indices)
    fires = bodies.keep(known.state[part.body_indices]).sizes == part.body_sizes
    numbers = np.flatnonzero(known.state).astype(np.int32)
    return _restrict(part, fires, numbers), numbers


def _restrict(program: Program, rules: Mask, atoms: Indices) -> Program:
    """Return the program of some of the rules, with only these atoms left in them."""
    new = np.full(program.M, -1, np.int64)
    new[atoms] = np.arange(len(atoms))

    def rows(offsets: Offsets, members: Indices) -> Csr:
        renamed = Csr(offsets, new[members]).take(np.flatnonzero(rules))
        return renamed.keep(renamed.indices >= 0)

    bodies = rows(program.body_indptr, program.body_indices)
    heads = rows(program.head_indptr, program.head_indices)
    return Program.from_arrays(*bodies, heads.indices, heads.indptr, atoms=len(atoms))


def _cheapest_assumptions(part: Program, never: Mask) -> set[int]:
    """Return atoms that derive atom 0, by the cheapest derivation: roots if they suffice.

    Atoms in `never` (M,) are not assumed.
    """
    price = np.where(part.rules_per_head == 0, 1.0, np.inf)
    cost, reasons = _cheapest_rules(part, price)
    if cost[0] == np.inf:
        price[price == np.inf] = _LAST_RESORT
        price[never] = price[0] = np.inf
        cost, reasons = _cheapest_rules(part, price)
    if cost[0] == np.inf:  # every rule for it needs itself
        return {0}
    return {i for i in atoms_needed(part, reasons, 0) if reasons[i] < 0}


def _cheapest_rules(part: Program, price: npt.NDArray[np.float64]) -> tuple[Any, npt.NDArray[Any]]:
    """Return the least cost of each atom, and the rule that derives it (−1: it is assumed)."""
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
    """Return a part of the assumptions that still derives atom 0, and none of whose parts does."""
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
    """Return those of the atoms without which, one at a time, the others do not derive atom 0."""
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


# ---- Loops


def find_ancestors(
    rule_ptr: Cells, rules: Cells, body_ptr: Cells, body: Cells, mark: Cells, queue: Cells
) -> int:
    """Return the number of atoms in `queue`: those a derivation of `queue[0]` may still need.

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
    use_ptr: Cells, use: Cells, head_ptr: Cells, head: Cells, missing: Cells, total: Cells,
    cost: Cells, reason: Cells, settled: Cells,
) -> None:  # fmt: skip
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


# ---- The smallest change of the facts that makes an atom of a program with negation follow

#: Clingo proves the change smallest, or gives the best one it has found after this many seconds.
_PATIENCE = 10.0

#: A rule: its heads, the atoms of its body, and those that are negated.
Literals: TypeAlias = tuple[list[int], list[int], list[int]]


def smallest_change(program: Program, given: Mask, goal: int) -> tuple[set[int], set[int]]:
    """Return the atoms to add to the facts, and the facts to withdraw, so that the goal follows.

    Only atoms that no rule derives are added, if that is possible; else others as well, and the
    goal itself only where nothing else helps. To a grounded program only open facts are added; both
    sets are empty if none help.

    Raises:
        MissingPackageError: if clingo is not installed.
    """
    underived = program.rules_per_head == 0
    others = (np.arange(program.M) != goal) & ~program.auxiliary
    if program.origin is not None:
        others = program.mask([name for name in program.origin.inputs if name in program.index])
        underived &= others
    for may_add in (underived, others):
        found = nearest_facts(program, given, given | may_add, {goal: True})
        if found is None:
            continue
        facts, proved = found
        added = {i for i, is_fact in facts.items() if is_fact and not given[i]}
        withdrawn = {i for i, is_fact in facts.items() if given[i] and not is_fact}
        if not proved:

            def works(changes: Sequence[int]) -> bool:
                facts = given.copy()
                facts[changes] = ~facts[changes]
                return bool(closure_of_mask(program, facts).state[goal])

            needed = set(needed_part(sorted(added | withdrawn), works))
            added, withdrawn = added & needed, withdrawn & needed
        return added, withdrawn
    return ({goal} if program.origin is None else set()), set()


def nearest_facts(
    program: Program,
    given: Mask,
    free: Mask,
    wanted: Mapping[int, bool],
    exclusive: Iterable[Sequence[int]] = (),
) -> tuple[dict[int, bool], bool] | None:
    """Return which free atoms are facts after a smallest change that makes atoms true or false.

    Args:
        program: any program.
        given: the facts. Shape (M,).
        free: the atoms that may be added or withdrawn. Shape (M,).
        wanted: for some atoms, whether they are to follow.
        exclusive: sets of atoms of which at most one may be a fact.

    Returns:
        For each free atom that matters whether it is a fact, and whether the change is proved
        smallest; None if no change does it.

    Raises:
        MissingPackageError: if clingo is not installed.
    """
    need = "looking for changes in a program with negation needs clingo"
    with optional_package(need, "datalog"):
        import clingo
    relevant, rules = _relevant(program, wanted)
    # Core-guided search: the changes are few among many that could be made.
    control = clingo.Control(["--opt-strategy=usc", "--warn=none"])
    switch: dict[int, int] = {}  # whether an atom is a fact
    with control.backend() as backend:
        number = {i: backend.add_atom() for i in relevant}
        prices = []
        for i in relevant:
            if not free[i]:
                if given[i]:
                    backend.add_rule([number[i]])
                continue
            switch[i] = backend.add_atom()
            backend.add_rule([switch[i]], choice=True)
            backend.add_rule([number[i]], [switch[i]])
            prices.append((-switch[i] if given[i] else switch[i], 1))
        for heads, body, negated in rules:
            literals = [number[i] for i in body] + [-number[i] for i in negated]
            for head in heads:
                backend.add_rule([number[head]], literals)
        for i, is_true in wanted.items():
            backend.add_rule([], [-number[i] if is_true else number[i]])
        for atoms in exclusive:
            members = [(switch[i], 1) for i in atoms if i in switch]
            backend.add_weight_rule([], 2, members)
        backend.add_minimize(0, prices)
    control.ground([("base", [])])
    facts: dict[int, bool] | None = None
    deadline = time.monotonic() + _PATIENCE
    with control.solve(yield_=True, async_=True) as handle:
        while True:
            handle.resume()
            # Some answer is waited for, however long it takes; a better one only for a while.
            if facts is not None and not handle.wait(max(0.0, deadline - time.monotonic())):
                handle.cancel()
                return facts, False
            model = handle.model()
            if model is None:
                return None if facts is None else (facts, True)
            facts = {i: model.is_true(atom) for i, atom in switch.items()}


def _relevant(program: Program, goals: Iterable[int]) -> tuple[list[int], list[Literals]]:
    """Return the atoms that the goals depend on, and their rules."""
    atoms, found = dependencies(program, goals)
    rules = []
    for rule in sorted(found):
        literals = program.literals_of(rule).tolist()
        heads = [h for h in program.heads_of(rule).tolist() if h in atoms]
        rules.append((heads, [b for b in literals if b >= 0], [~b for b in literals if b < 0]))
    return sorted(atoms), rules


def needed_part(chosen: list[int], works: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a part of what works that still works, and of which nothing can be left out.

    Large parts are left out first, so that few questions are asked where most is not needed.
    """
    size = len(chosen)
    while True:
        before = len(chosen)
        for start in range(0, len(chosen), size)[::-1]:
            rest = chosen[:start] + chosen[start + size :]
            if rest and works(rest):
                chosen = rest
        if size == 1 and len(chosen) == before:
            return chosen
        size = max(1, size // 2)


# ---- Why an atom does not follow from some facts


@dataclass(frozen=True)
class WhyNot(Explanation):
    """Why an atom does not follow, and how the facts would have to change for it to follow.

    `blocked` has an entry for each rule with this head. The atom follows when `missing` is added
    to the facts and, where a program has negation, `withdrawn` is taken from them; no part of
    these changes is enough. Where that is possible the missing atoms are such that no rule
    derives. The changes are few, but not always the fewest there are.

    An atom of a grounded program that no open facts can derive has nothing missing and nothing
    withdrawn.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> print(why_not(program, [], "animal"))
    animal does not follow
    └─ rule 1 needs bird
    it would with penguin
    """

    program: Program
    atom: str
    blocked: tuple[Blocked, ...]
    missing: frozenset[str]
    withdrawn: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values."""
        return {
            "atom": self.atom,
            "blocked": [_blocked_values(blocked) for blocked in self.blocked],
            "missing": sorted(self.missing),
            **({"withdrawn": sorted(self.withdrawn)} if self.withdrawn else {}),
        }

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
    """Return what keeps the atom from following from the facts, or None if it follows.

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
    name = atom_of_goal(program, atom)
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
    """Return an entry as plain values; negation and origin only where there are any."""
    return {
        **({"needed": blocked.counted[1]} if blocked.counted else {"rule": blocked.rule}),
        "missing": list(blocked.missing),
        **({"holding": list(blocked.holding)} if blocked.holding else {}),
        **({"origin": str(blocked.origin)} if blocked.origin else {}),
        **label_values(blocked.label),
    }
