"""Rules as pairs of a head and a body, and which of them others imply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from latentgamma._learning.head_task import Body, HeadRules, HeadTask, covered
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program
from latentgamma._program.rules import Rule

#: One rule: its head and its body.
Implication: TypeAlias = tuple[int, Body]
#: A learner of single heads: tasks and the nats that a body must explain in, rules out.
LearnHeads: TypeAlias = Callable[[list[HeadTask], float], list[HeadRules]]
#: Called with a stage, the rules so far, and the share of the examples that they explain.
ReportRules: TypeAlias = Callable[[str, Sequence[Implication], float], None]


def as_rule(rule: Implication, atoms: Sequence[str]) -> Rule:
    """Return a rule with the names of its atoms."""
    head, body = rule
    return Rule((atoms[head],), frozenset(atoms[i] for i in body))


def as_program(rules: Sequence[Implication], M: int, atoms: Sequence[str] | None = None) -> Program:
    """Return rules as a program on M atoms."""
    sizes = np.array([len(body) for _, body in rules], np.int64)
    return Program.from_arrays(
        np.concatenate(([0], np.cumsum(sizes))),
        np.array([i for _, body in rules for i in body], np.int64),
        np.array([head for head, _ in rules], np.int64),
        atoms=M if atoms is None else atoms,
    )


def as_implications(program: Program) -> list[Implication]:
    """Return the rules of a program, one for each head."""
    return [
        (int(head), tuple(program.body_of(j).tolist()))
        for j in range(program.R)
        for head in program.heads_of(j)
    ]


def remove_implied(rules: Sequence[Implication], closed: Mask, kept: int = 0) -> list[Implication]:
    """Return the rules without those that the others imply; the first `kept` stay.

    Bodies with small closures come first, so that of a→b, b→c and a→c the last one is removed.
    """
    size = {body: int(closed[covered(closed, body)].all(0).sum()) for _, body in rules}
    fixed = list(rules[:kept])
    rest = sorted(
        dict.fromkeys(rule for rule in rules[kept:] if rule not in fixed),
        key=lambda rule: (size[rule[1]], len(rule[1]), rule),
    )
    chosen = _RuleSet(closed.shape[1])
    for rule in fixed:
        chosen.add(rule)
    for head, body in rest:
        if not chosen.implies(head, body):
            chosen.add((head, body))
    order = sorted(
        range(kept, len(chosen.rules)),
        key=lambda j: (-len(chosen.rules[j][1]), -size[chosen.rules[j][1]], -j),
    )
    for j in order:
        head, body = chosen.rules[j]
        chosen.removed.add(j)
        if not chosen.implies(head, body):
            chosen.removed.discard(j)
    return [rule for j, rule in enumerate(chosen.rules) if j not in chosen.removed]


class _RuleSet:
    """Rules that are added and removed one at a time, and what they imply by forward chaining."""

    def __init__(self, M: int) -> None:
        self.rules: list[Implication] = []
        self.using: list[list[int]] = [[] for _ in range(M)]
        self.removed: set[int] = set()
        self.facts: list[int] = []

    def add(self, rule: Implication) -> None:
        j = len(self.rules)
        self.rules.append(rule)
        for i in rule[1]:
            self.using[i].append(j)
        if not rule[1]:
            self.facts.append(j)

    def implies(self, head: int, body: Body) -> bool:
        """Return whether the rules that are not removed derive the head from the body."""
        true = {*body, *(self.rules[j][0] for j in self.facts if j not in self.removed)}
        todo = list(true)
        missing: dict[int, int] = {}
        while todo and head not in true:
            for j in self.using[todo.pop()]:
                if j in self.removed:
                    continue
                missing[j] = missing.get(j, len(self.rules[j][1])) - 1
                new = self.rules[j][0]
                if missing[j] == 0 and new not in true:
                    true.add(new)
                    todo.append(new)
        return head in true
