"""The examples of one head, bodies over its atoms, and implications."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.program.facts import Mask
from latentgamma.program.program import Program, Rule

# ---- What the data say about one head, and what a search finds for it

#: The atoms of a body, as sorted indices.
Body: TypeAlias = tuple[int, ...]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HeadTask:
    """The examples of one head: states in which it was false before, and whether it followed."""

    head: int
    states: Mask  # (n, M)
    positive: Mask  # (n,)
    counts: Counts  # (n,)
    allowed: Mask  # (M,) the atoms that a body may use
    max_body: int
    #: The probability that the head followed, where labels are probabilities. (n,)
    probability: npt.NDArray[np.float32] | None = None
    #: Bodies that are taken as they are.
    known: tuple[Body, ...] = ()

    @property
    def positives(self) -> Mask:
        """The states in which the head followed. (p, M)."""
        return self.states[self.positive]

    @property
    def negatives(self) -> Mask:
        """The states in which it did not. (n - p, M)."""
        return self.states[~self.positive]

    def covered(self, body: Iterable[int]) -> Mask:
        """Return which states contain the body. (n,)."""
        return covered(self.states, body)

    def counterexamples(self, body: Iterable[int]) -> int:
        """Return the number of negative examples that contain the body."""
        return int(self.counts[self.covered(body) & ~self.positive].sum())


@dataclass
class HeadRules:
    """The bodies found for one head.

    Attributes:
        bodies: the bodies, known ones first.
        alternatives: for each body, others that explain the examples as well.
        too_long: positive examples that only a body of more than `max_body` atoms would explain.
        unproved: bodies for which the search for shorter ones reached its limit.
    """

    bodies: list[Body]
    alternatives: dict[Body, list[Body]] = field(default_factory=dict)
    too_long: int = 0
    unproved: int = 0


def covered(states: Mask, body: Iterable[int]) -> Mask:
    """Return which rows contain the body. (n,)."""
    columns = list(body)
    if not columns:
        return np.ones(len(states), np.bool_)
    inside: Mask = np.logical_and.reduce([states[:, i] for i in columns])
    return inside


def coverage(states: Mask, bodies: Sequence[Body]) -> Mask:
    """Return which rows contain each body. (bodies, n)."""
    found = np.zeros((len(bodies), len(states)), np.bool_)
    for row, body in zip(found, bodies, strict=True):
        row[:] = covered(states, body)
    return found


def covered_by_any(states: Mask, bodies: Sequence[Body]) -> Mask:
    """Return which rows contain at least one body. (n,)."""
    inside = np.zeros(len(states), np.bool_)
    for body in bodies:
        inside |= covered(states, body)
    return inside


def distinct(rows: npt.NDArray[Any]) -> tuple[Counts, Counts, Counts]:
    """Return where each different row first stands, how often it comes, and which one each row is.

    >>> distinct(np.array([[True, False], [False, False], [True, False]]))
    (array([1, 0]), array([1, 2]), array([1, 0, 1]))
    """
    words = packed_words(rows) if rows.dtype.kind == "b" else np.ascontiguousarray(rows)
    # Comparing whole words, or bytes in a row, is many times faster than one column after another.
    keys = words[:, 0] if words.shape[1] == 1 else words.view(f"V{words.strides[0]}")[:, 0]
    _, first, which, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    return first, counts, which


def packed_words(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return Boolean rows as machine words. (n, words)."""
    packed = np.packbits(rows, axis=1)
    words = np.zeros((len(rows), max(1, -(-packed.shape[1] // 8))), np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    return words


# ---- The objective
#
# A set of bodies is worth what it adds to the log-likelihood of the labels, in nats, less the
# length of its description. Every search of this package maximises that sum greedily.


def description_length(size: int, atoms: int) -> float:
    """Return the nats that a body takes: log(atoms + 1) for each of its atoms, and one for its end.

    >>> description_length(0, 9), description_length(2, 9) == 1 + 2 * math.log(10)
    (1.0, True)
    """
    return size * math.log(atoms + 1) + 1.0


def base_rate(
    states: Mask, positive: npt.NDArray[Any], counts: Counts, prior: float = 0.5
) -> npt.NDArray[np.float64]:
    """Return how often the head follows in states of about the same size. (n,).

    A large state contains many bodies, so that the head follows there says little about any one.
    """
    sizes = states.sum(1)
    edges = np.quantile(sizes, np.linspace(0, 1, 9)[1:-1]) if len(sizes) else np.zeros(0)
    edges = np.unique(edges)
    bins = np.searchsorted(edges, sizes, side="right")
    seen = np.bincount(bins, counts, len(edges) + 1)
    followed = np.bincount(bins, counts * positive, len(edges) + 1)
    return np.asarray(((followed + prior) / (seen + 1.0))[bins])


def surprisal(positives: Mask, weights: Counts, task: HeadTask) -> npt.NDArray[np.float64]:
    """Return the nats gained by explaining each of these positive states of a task. (p,).

    That is −log of the base rate, with all negative states of the task beside them.
    """
    negatives = task.negatives
    states = np.concatenate([positives, negatives])
    follows = np.arange(len(states)) < len(positives)
    counts = np.concatenate([weights, task.counts[~task.positive]])
    return np.asarray(weights * -np.log(base_rate(states, follows, counts)[follows]), np.float64)


# ---- Rules as pairs of a head and a body, and which of them others imply

#: One rule: its head and its body.
Implication: TypeAlias = tuple[int, Body]
#: A learner of single heads: tasks and the nats that a body must explain in, rules out.
LearnHeads: TypeAlias = Callable[[list[HeadTask], float], list[HeadRules]]
#: Called with a stage, the rules so far, and the fraction of the examples that they explain.
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
