"""Rules from closures: every closed set is a constraint, every derived atom a demand.

No rule may lead out of a closed set, so the closed sets without an atom are the negative states
of its rules. What the rules so far leave underived must follow from what they do derive: those
states are the positive ones. Rules come in rounds, the best supported first; then those that
others imply, or that no example needs, go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._learning.exact_search import (
    Body,
    Found,
    Task,
    covered,
    distinct,
    price,
    smallest_bodies,
    usual,
)
from latentgamma._logic.closures import closures
from latentgamma._program.program import Mask, Program

#: One rule: its head, and its body.
Implication: TypeAlias = tuple[int, Body]
#: A learner of single heads: tasks and the least surprise of a body in, findings out.
Learner: TypeAlias = Callable[[list[Task], float], list[Found]]
#: Told what is going on: a stage, the rules so far, the share explained.
Report: TypeAlias = Callable[[str, Sequence[Implication], float], None]

#: How surprising a rule must be to come in, round by round (in nats).
_ROUNDS = (30.0, 10.0, 3.0, 0.0)
_NOISY_ROUNDS = 4
#: Examples that a rule is weighed on.
_WEIGHED = 200


def implications(
    facts: Mask,
    closed: Mask,
    known: Mask,
    allowed: Mask,
    learn: Learner,
    *,
    max_body: int,
    kept: Sequence[Implication] = (),
    report: Report | None = None,
) -> list[Implication]:
    """The rules under which each fact set has its closure, as far as the learner finds them.

    Args:
        facts: the fact sets. (N, M)
        closed: their closures. (N, M)
        known: where a closure's label is known. (N, M)
        allowed: which atoms (columns) the bodies of each head (rows) may use. (M, M)
        learn: the learner of single heads.
        max_body: the largest body.
        kept: rules that stay whatever the data say.
        report: told what is going on.
    """
    rules: list[Implication] = list(kept)
    exact = distinct(np.hstack([closed, known]))[0]
    sets, told = closed[exact], known[exact]
    for least in _ROUNDS:
        for _ in range(4):
            state = closures(as_program(rules, facts.shape[1]), facts)
            missing = closed & known & ~state
            if report is not None:
                report("rules", rules, float((~missing.any(1)).mean()))
            if not missing.any():
                break
            tasks = _tasks(state, missing, sets=sets, told=told, allowed=allowed, max_body=max_body)
            new = [
                (task.head, body)
                for task, found in zip(tasks, learn(tasks, least), strict=True)
                for body in found.bodies
                if not task.clashes(body)
            ]
            before = set(rules)
            rules = irredundant([*rules, *new], closed, len(kept))
            if set(rules) == before:
                break
    rules = _wanted(rules, facts, closed & known, len(kept))
    rules = _retested(
        rules, facts, closed, known=known, allowed=allowed, max_body=max_body, kept=len(kept)
    )
    return _wanted(irredundant(rules, closed, len(kept)), facts, closed & known, len(kept))


def likely_implications(
    facts: Mask,
    closed: Mask,
    known: Mask,
    allowed: Mask,
    learn: Learner,
    *,
    noise: float,
    max_body: int,
    belief: npt.NDArray[np.float32] | None = None,
    kept: Sequence[Implication] = (),
    report: Report | None = None,
) -> list[Implication]:
    """The rules behind closures of which a share of the entries, facts too, may be wrong.

    States are never taken from the closures, where an atom and what follows from it confirm each
    other, but from the facts and the rules so far: only what was given can be a cause. A fact
    that its closure lacks is dropped, since a true one is missing there as seldom as a label is
    wrong. The closures are the labels, and the learner must be one that allows for noise.
    """
    M = facts.shape[1]
    given = facts & (closed | ~known)
    rules: list[Implication] = list(kept)
    for _ in range(_NOISY_ROUNDS):
        state = closures(as_program(rules, M), given)
        if report is not None:
            report("rules", rules, float((state == closed)[known].mean() if known.any() else 1.0))
        tasks = []
        for h in range(M):
            rows = ~state[:, h] & known[:, h]
            if allowed[h].any() and closed[rows, h].any():
                counts = np.ones(int(rows.sum()), np.int64)
                label, likely = closed[rows, h], None if belief is None else belief[rows, h]
                tasks.append(Task(h, state[rows], label, counts, allowed[h], max_body, likely))
        new = [
            (task.head, body)
            for task, found in zip(tasks, learn(tasks, 0.0), strict=True)
            for body in found.bodies
        ]
        before = set(rules)
        together = list(dict.fromkeys([*rules, *new]))
        rules = irredundant(together, closures(as_program(together, M), given), len(kept))
        rules = _standing(rules, given, closed, known, noise=noise, kept=len(kept))
        if set(rules) == before:
            break
    return _paying(rules, given, closed, known, noise=noise, kept=len(kept))


def _paying(
    rules: Sequence[Implication],
    given: Mask,
    closed: Mask,
    known: Mask,
    *,
    noise: float,
    kept: int,
) -> list[Implication]:
    """The rules that make the examples likelier than it costs to write them down.

    One lost fact takes many atoms with it, each of which some rule could seem to explain; so an
    example's labels are weighed together, and one fact of it may be taken for wrong.
    """
    M, left = given.shape[1], list(rules)
    wrong = math.log((1 - noise) / noise)
    for rule in sorted(rules[kept:], key=lambda rule: (-len(rule[1]), rule)):
        rest = [other for other in left if other != rule]
        with_it, without = as_program(left, M), as_program(rest, M)
        rows = np.flatnonzero((closures(with_it, given) != closures(without, given)).any(1))
        some = rows[:: max(1, len(rows) // _WEIGHED)]
        told = (given[some], closed[some], known[some])
        gain = wrong * (_mistakes(without, *told) - _mistakes(with_it, *told))
        if gain * len(rows) <= price(len(rule[1]), M) * len(some):
            left = rest
    return left


def _mistakes(program: Program, given: Mask, closed: Mask, known: Mask) -> int:
    """How many facts and labels must be wrong, with at most one wrong fact in each example."""
    least = ((closures(program, given) != closed) & known).sum(1)
    for i in range(given.shape[1]):
        other = given.copy()
        other[:, i] ^= True
        least = np.minimum(least, 1 + ((closures(program, other) != closed) & known).sum(1))
    return int(least.sum())


def _standing(
    rules: Sequence[Implication],
    given: Mask,
    closed: Mask,
    known: Mask,
    *,
    noise: float,
    kept: int,
) -> list[Implication]:
    """The rules that are wrong no more often than labels are, where they alone decide."""
    left = list(rules)
    for rule in rules[kept:]:
        rest = [other for other in left if other != rule]
        state = closures(as_program(rest, given.shape[1]), given)
        rows = covered(state, rule[1]) & ~state[:, rule[0]] & known[:, rule[0]]
        n, wrong = int(rows.sum()), int((rows & ~closed[:, rule[0]]).sum())
        # A fact or a label of the body may be wrong as well, so allow for twice the noise.
        most = 2 * noise * n + 3 * math.sqrt(2 * noise * n) + 1
        if n and (wrong > most or 2 * wrong >= n):
            left = rest
    return left


def _tasks(
    state: Mask, missing: Mask, *, sets: Mask, told: Mask, allowed: Mask, max_body: int
) -> list[Task]:
    tasks = []
    for h in np.flatnonzero(missing.any(0)).tolist():
        if not allowed[h].any():
            continue
        open_rows = state[missing[:, h]]
        first, counts = distinct(open_rows)
        positives = open_rows[first]
        negatives = sets[~sets[:, h] & told[:, h]]
        tasks.append(
            Task(
                h,
                np.concatenate([positives, negatives]),
                np.arange(len(positives) + len(negatives)) < len(positives),
                np.concatenate([counts, np.ones(len(negatives), np.int64)]),
                allowed[h],
                max_body,
            )
        )
    return tasks


def as_program(rules: Sequence[Implication], M: int, atoms: Sequence[str] | None = None) -> Program:
    """These rules as a program."""
    sizes = np.array([len(body) for _, body in rules], np.int64)
    return Program.from_arrays(
        np.concatenate(([0], np.cumsum(sizes))),
        np.array([i for _, body in rules for i in body], np.int64),
        np.array([head for head, _ in rules], np.int64),
        atoms=M if atoms is None else atoms,
    )


def irredundant(rules: Sequence[Implication], closed: Mask, kept: int = 0) -> list[Implication]:
    """The rules without those that the others imply; the first `kept` stay.

    Bodies with small closures come first, so that of a→b, b→c and a→c the last one goes.
    """
    size = {body: int(closed[covered(closed, body)].all(0).sum()) for _, body in rules}
    fixed = list(rules[:kept])
    rest = sorted(
        dict.fromkeys(rule for rule in rules[kept:] if rule not in fixed),
        key=lambda rule: (size[rule[1]], len(rule[1]), rule),
    )
    chain = _Chain(closed.shape[1])
    for rule in fixed:
        chain.add(rule)
    for head, body in rest:
        if not chain.implies(head, body):
            chain.add((head, body))
    order = sorted(
        range(kept, len(chain.rules)),
        key=lambda j: (-len(chain.rules[j][1]), -size[chain.rules[j][1]], -j),
    )
    for j in order:
        head, body = chain.rules[j]
        chain.idle.add(j)
        if not chain.implies(head, body):
            chain.idle.discard(j)
    return [rule for j, rule in enumerate(chain.rules) if j not in chain.idle]


class _Chain:
    """Rules that grow and shrink one at a time, with what single bodies imply."""

    def __init__(self, M: int) -> None:
        self.rules: list[Implication] = []
        self.uses: list[list[int]] = [[] for _ in range(M)]
        self.idle: set[int] = set()
        self.empty: list[int] = []

    def add(self, rule: Implication) -> None:
        j = len(self.rules)
        self.rules.append(rule)
        for i in rule[1]:
            self.uses[i].append(j)
        if not rule[1]:
            self.empty.append(j)

    def implies(self, head: int, body: Body) -> bool:
        """Whether the rules that are not idle lead from a body to a head."""
        true = {*body, *(self.rules[j][0] for j in self.empty if j not in self.idle)}
        todo = list(true)
        lacking: dict[int, int] = {}
        while todo and head not in true:
            for j in self.uses[todo.pop()]:
                if j in self.idle:
                    continue
                left = lacking.get(j, len(self.rules[j][1])) - 1
                lacking[j] = left
                new = self.rules[j][0]
                if left == 0 and new not in true:
                    true.add(new)
                    todo.append(new)
        return head in true


def _wanted(
    rules: Sequence[Implication], facts: Mask, derived: Mask, kept: int
) -> list[Implication]:
    """The rules without those that no example needs, the least supported tried first."""
    M = facts.shape[1]
    state = closures(as_program(rules, M), facts)
    reached = (state & derived).sum()
    support = {rule: int((covered(state, rule[1]) & ~facts[:, rule[0]]).sum()) for rule in rules}
    left = list(rules)
    for rule in sorted(rules[kept:], key=lambda rule: (support[rule], -len(rule[1]), rule)):
        rest = [other for other in left if other != rule]
        if (closures(as_program(rest, M), facts) & derived).sum() == reached:
            left = rest
    return left


def _retested(
    rules: Sequence[Implication],
    facts: Mask,
    closed: Mask,
    *,
    known: Mask,
    allowed: Mask,
    max_body: int,
    kept: int,
) -> list[Implication]:
    """The rules, each with the body that was tested hardest of those that would serve as well.

    Where a rule is missed, its body lies in what the others derive. Of the bodies there that no
    closed set refutes, the best is the one in most closed sets that could have refuted it.
    """
    M, left = facts.shape[1], list(rules)
    for place in range(kept, len(left)):
        head, body = left[place]
        others = [rule for j, rule in enumerate(left) if j != place]
        state = closures(as_program(others, M), facts)
        missed = (closed & known & ~state).any(1)
        if not missed.any() or len(body) > 2:
            continue
        common = np.flatnonzero(state[missed].all(0) & allowed[head])
        told = known[:, head]
        sets, has = closed[told], closed[told, head]
        choices = smallest_bodies(~sets[~has][:, common], max_body)
        bodies = [tuple(common[list(choice)].tolist()) for choice in choices]
        if len(bodies) < 2:
            continue
        given = facts[told, head]
        rate = usual(sets, has, np.ones(len(sets), np.int64))
        tested = np.where(given, 0.0, -np.log(rate))
        score = [float(tested[covered(sets, option)].sum()) for option in bodies]
        left[place] = (head, bodies[int(np.argmax(score))])
    return left
