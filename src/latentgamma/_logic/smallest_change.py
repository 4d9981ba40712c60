"""The smallest change of the facts that makes an atom of a program with negation follow."""

from __future__ import annotations

import time
from typing import TypeAlias

import numpy as np

from latentgamma._errors import ProgramError
from latentgamma._logic.closure import closure_of_mask
from latentgamma._program.dependency_graph import rules_deriving
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program

#: Clingo proves the change smallest, or gives the best one it has found after so many seconds.
_PATIENCE = 10.0

#: A rule: its heads, the atoms of its body, and those that are negated.
Literals: TypeAlias = tuple[list[int], list[int], list[int]]


def smallest_change(program: Program, given: Mask, goal: int) -> tuple[set[int], set[int]]:
    """The atoms to add to the facts, and the facts to withdraw, so that the goal follows.

    Only atoms that no rule derives are added, if that is possible; else others as well, and the
    goal itself only where nothing else helps.

    Raises:
        ProgramError: if clingo is not installed.
    """
    relevant, rules = _relevant(program, goal)
    derivable = program.rules_per_head > 0
    for may_add in (~derivable, np.arange(program.M) != goal):
        found = _search(relevant, rules, given, may_add, goal)
        if found is None:
            continue
        facts, proved = found
        before = {i for i in relevant if given[i]}
        added, withdrawn = facts - before, before - facts
        return (added, withdrawn) if proved else _reduced(program, given, goal, added, withdrawn)
    return {goal}, set()


def _search(
    relevant: list[int], rules: list[Literals], given: Mask, may_add: Mask, goal: int
) -> tuple[set[int], bool] | None:
    """The facts after a smallest change, and whether it is proved smallest; None if none helps."""
    try:
        import clingo
    except ImportError:
        raise ProgramError(
            "why_not of a program with negation needs clingo; install it with 'pip install clingo'"
        ) from None
    # Core-guided search: the changes are few among many that could be made.
    control = clingo.Control(["--opt-strategy=usc", "--warn=none"])
    switch: dict[int, int] = {}  # whether an atom is a fact
    with control.backend() as backend:
        number = {i: backend.add_atom() for i in relevant}
        prices = []
        for i in relevant:
            if not given[i] and not may_add[i]:
                continue
            switch[i] = backend.add_atom()
            backend.add_rule([switch[i]], choice=True)
            backend.add_rule([number[i]], [switch[i]])
            prices.append((-switch[i] if given[i] else switch[i], 1))
        for heads, body, negated in rules:
            literals = [number[i] for i in body] + [-number[i] for i in negated]
            for head in heads:
                backend.add_rule([number[head]], literals)
        backend.add_rule([], [-number[goal]])
        backend.add_minimize(0, prices)
    control.ground([("base", [])])
    facts: set[int] | None = None
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
            facts = {i for i in switch if model.is_true(switch[i])}


def _relevant(program: Program, goal: int) -> tuple[list[int], list[Literals]]:
    """The atoms that the goal depends on, and their rules."""
    ends, rules_of = rules_deriving(program)
    atoms, rules = {goal}, dict[int, Literals]()
    stack = [goal]
    while stack:
        i = stack.pop()
        for rule in rules_of[ends[i] : ends[i + 1]].tolist():
            literals = program.literals_of(rule).tolist()
            body, negated = [b for b in literals if b >= 0], [~b for b in literals if b < 0]
            rules[rule] = (program.heads_of(rule).tolist(), body, negated)
            fresh = {*body, *negated} - atoms
            atoms |= fresh
            stack += fresh
    heads = {rule: [h for h in rules[rule][0] if h in atoms] for rule in rules}
    return sorted(atoms), [(heads[rule], *rules[rule][1:]) for rule in sorted(rules)]


def _reduced(
    program: Program, given: Mask, goal: int, added: set[int], withdrawn: set[int]
) -> tuple[set[int], set[int]]:
    """The change without parts of it, one at a time, that turn out not to be needed."""
    facts = given.copy()
    facts[list(added)], facts[list(withdrawn)] = True, False
    changes = sorted(added | withdrawn)
    shrinking = True
    while shrinking:
        shrinking = False
        for i in list(changes):
            facts[i] = ~facts[i]
            if closure_of_mask(program, facts).state[goal]:
                changes.remove(i)
                shrinking = True
            else:
                facts[i] = ~facts[i]
    return added & set(changes), withdrawn & set(changes)
