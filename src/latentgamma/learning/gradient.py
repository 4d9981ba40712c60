"""The gradient learner: rows of the operator, all heads at once, trained, verified, repeated.

A slot is one row of the operator with its head fixed. Its threshold is tied to its body,
b = Σu − ½, so that a row can only be a conjunction; its offset follows the closed form at the
current sharpness. It starts from one positive state of its head, its seed, uses the atoms of that
state alone, and learns which of them it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from latentgamma._checkpoint import Compute, compute_now
from latentgamma.learning.bodies import Body, HeadRules, HeadTask, covered_by_any
from latentgamma.learning.exact import needed_columns, select_bodies
from latentgamma.learning.noisy import find_likely_rules
from latentgamma.operator.annealing import AnnealingStep, Homotopy
from latentgamma.program.facts import Mask

#: Gain times confidence of the slots: a satisfied slot alone brings its head well above its offset.
_AMPLITUDE = 8.0
#: Examples of each kind that one head sees in the first round; twice as many in each later one.
_BATCH = 48
_MOST_EXAMPLES = 384
#: With noise, larger seeds are reduced to a random part of this size, to save time.
_LARGEST_SEED = 64
#: Atoms of a slot that are tried in pairs, those with the largest weights.
_HEAVY = 8
#: Rounds without a new body after which the search for a head ends.
_PATIENCE = 4
#: Rounds, the slots of one head in the first round, and the most in a later one.
_ROUNDS, _SLOTS, _MOST_SLOTS = 10, 4, 24
#: Numbers that one tensor of examples may hold, by device; training on this many takes seconds.
_MOST_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 28}


# ---- The learner


class HeadStatus(NamedTuple):
    """What was found for one head so far."""

    bodies: list[Body]
    explained: int  # positive examples that the bodies explain
    finished: bool  # whether nothing more is searched


#: Called with what was done, and the status of each head.
ReportStatus = Callable[[str, Sequence[HeadStatus]], None]


def train(
    tasks: Sequence[HeadTask],
    *,
    noise: float = 0.0,
    homotopy: Homotopy | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    report: ReportStatus | None = None,
    compute: Compute = compute_now,
) -> list[HeadRules]:
    """Return the bodies that gradient descent finds for each head, verified on all its examples.

    Without noise a slot is rounded to the shortest prefix of its atoms, ordered by weight, that
    lies inside no negative state; positive states that no body covers yet become the next
    round's seeds, with twice as many slots. With noise the prefixes are proposals, from which the
    likeliest set is chosen. The random numbers of a head are drawn for it alone, so the result
    does not depend on which heads are trained together.

    Args:
        tasks: the examples of each head.
        noise: the fraction of wrong labels.
        homotopy: the annealing schedule.
        seed: the seed of everything random.
        device: where the slots are trained.
        report: called after each round, or part of one.
        compute: runs the training of some heads, or returns its saved result.
    """
    heads = [_Head(task, noise) for task in tasks]
    homotopy = homotopy or Homotopy()
    for turn in range(_ROUNDS):
        at_work = [head for head in heads if not head.done]
        if not at_work:
            break
        for head in at_work:
            head.rng = np.random.default_rng([seed, turn, head.task.head])
            head.choose(min(_SLOTS * 2**turn, _MOST_SLOTS))
        batch = min(_BATCH * 2**turn, _MOST_EXAMPLES)
        limit = _MOST_NUMBERS.get(torch.device(device).type, _MOST_NUMBERS["cuda"])
        parts = _parts(at_work, batch, limit)
        for number, part in enumerate(parts, start=1):
            anneal = partial(_anneal, part, homotopy, batch=batch, device=torch.device(device))
            orders = compute(f"{turn + 1}/{number}", anneal)
            for head, learned in zip(part, orders, strict=True):
                head.verify([np.array(order, np.int64) for order in learned])
            if report is not None:
                which = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
                report(f"round {turn + 1}{which}", [head.status() for head in heads])
    if report is not None:
        report("verified", [head.status()._replace(finished=True) for head in heads])
    return [HeadRules(head.bodies) for head in heads]


class _Head:
    """The examples of one head, and the bodies found for it so far."""

    def __init__(self, task: HeadTask, noise: float) -> None:
        self.task, self.noise = task, noise
        self.positives, self.negatives = task.positives, task.negatives
        self.weights = task.counts[task.positive]
        self.rows = np.flatnonzero(task.positive), np.flatnonzero(~task.positive)
        hard = np.where(task.positive, 1 - noise, noise).astype(np.float32)
        self.labels = hard if task.probability is None else task.probability
        self.bodies: list[Body] = [*task.known]
        self.pool: dict[Body, None] = {}
        self.near_misses = np.zeros(len(self.negatives), np.bool_)
        self.seeds: list[npt.NDArray[np.int64]] = []
        self.rng = np.random.default_rng(0)
        self.stopped = False
        self.unchanged = -1  # rounds in a row
        self._update(self.bodies)
        self.unexplained = self.open.copy()

    def _update(self, bodies: list[Body]) -> None:
        self.unchanged = self.unchanged + 1 if set(bodies) == set(self.bodies) else 0
        self.bodies = bodies
        self.open = ~covered_by_any(self.positives, bodies)

    @property
    def done(self) -> bool:
        """Whether nothing more is searched."""
        return self.stopped or not self.open.any()

    def status(self) -> HeadStatus:
        left = self.open if self.noise else self.unexplained
        return HeadStatus(self.bodies, int(self.weights[~left].sum()), self.done)

    def choose(self, count: int) -> None:
        """Choose open positive states to start slots from, small ones with preference."""
        rng, rows = self.rng, np.flatnonzero(self.open)
        sizes = (self.positives[rows] & self.task.allowed).sum(1)
        if self.noise:
            # A label may be wrong, so leave it to chance which states are tried.
            keys = sizes * rng.exponential(size=len(rows))
            rows = rows[np.argsort(keys)[:count]]
        else:
            # States without any body come before those with an uncertain one, small before large.
            unexplained = self.unexplained[rows]
            rows = rows[np.lexsort((rng.random(len(rows)), sizes, ~unexplained))][: 4 * count]
            sure = 1 if unexplained.all() else min(int(unexplained.sum()), count // 2)
            rows = np.concatenate([rows[:sure], rng.permutation(rows[sure:])])[:count]
        self.seeds = []
        for row in rows:
            atoms = np.flatnonzero(self.positives[row] & self.task.allowed)
            if len(atoms) > _LARGEST_SEED and self.noise:
                atoms = np.sort(rng.choice(atoms, _LARGEST_SEED, replace=False))
            self.seeds.append(atoms)

    def batch(self, size: int) -> tuple[Mask, int, npt.NDArray[np.float32]]:
        """Return states to train on, how many of the first are positive, and their labels.

        Half of the negative ones are near misses of a seed.
        """
        positives = _some(np.flatnonzero(self.open), size, self.rng)
        hard = _some(np.flatnonzero(self.near_misses), size // 2, self.rng)
        near: list[npt.NDArray[np.int64]] = [hard]
        if len(self.negatives) > size and not self.noise:
            each = max(1, (size // 2) // max(1, len(self.seeds)))
            for atoms in self.seeds:
                lacking = (~self.negatives[:, atoms]).sum(1)
                near.append(np.argpartition(lacking, min(each, len(lacking) - 1))[:each])
        spare = _some(np.arange(len(self.negatives)), size, self.rng)
        negatives = np.unique(np.concatenate([*near, spare]))
        rows = np.concatenate([self.rows[0][positives], self.rows[1][negatives]])
        return self.task.states[rows], len(positives), self.labels[rows]

    def verify(self, learned: list[npt.NDArray[np.int64]]) -> None:
        """Turn what each slot learned, its atoms by decreasing weight, into bodies."""
        if self.noise:
            self._verify_noisy(learned)
            return
        for order in learned:
            if not len(self.negatives):
                body: Body = ()
            else:
                lacks = ~self.negatives[:, order]
                if not lacks.any(1).all():
                    continue  # some negative state contains the whole seed
                first = lacks.argmax(1)
                shortest = int(first.max()) + 1
                # The negatives that the prefix before it let through are the next ones to learn.
                self.near_misses |= first >= shortest - 1
                kept = needed_columns(lacks, reversed(range(shortest)))  # small weights go first
                body = tuple(sorted(order[kept].tolist()))
                self.pool.update(dict.fromkeys(self._pairs(order[: max(shortest, _HEAVY)])))
            if len(body) <= self.task.max_body:
                self.pool[body] = None
        bodies, uncertain = select_bodies(self.task, self.pool)
        self._update(bodies)
        self.unexplained = self.open.copy()
        # A state that only an uncertain body explains is tried again.
        self.open |= uncertain
        # A state without any body is tried for longer.
        self.stopped = self.unchanged >= (_PATIENCE if self.unexplained.any() else 2)

    def _pairs(self, heavy: npt.NDArray[np.int64]) -> Iterator[Body]:
        """Yield each atom with a large weight, beside the one that explains most open states with it.

        A slot seldom misses every atom of a rule, even if it does not find the whole of it.
        """
        if self.task.max_body < 2:
            return
        for atom in heavy.tolist():
            free = self.task.allowed & ~self.negatives[self.negatives[:, atom]].any(0)
            rows = self.open & self.positives[:, atom]
            gain = self.weights[rows] @ self.positives[rows]
            other = int(np.where(free, gain, 0).argmax())
            if free[other] and gain[other]:
                yield tuple(sorted({atom, other}))  # one atom where no negative has it

    def _verify_noisy(self, learned: list[npt.NDArray[np.int64]]) -> None:
        for order in learned:
            for size in range(1, min(len(order), self.task.max_body, 6) + 1):
                self.pool[tuple(sorted(order[:size].tolist()))] = None
        self._update(find_likely_rules(self.task, self.noise, list(self.pool)).bodies)
        self.stopped = self.unchanged >= 2


def _some(
    rows: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    return rows if len(rows) <= count else np.sort(rng.choice(rows, count, replace=False))


def _parts(heads: list[_Head], batch: int, most: int) -> list[list[_Head]]:
    """Return the heads in groups whose examples fit into memory together."""
    parts: list[list[_Head]] = []
    size = 0
    for head in sorted(heads, key=lambda head: max(map(len, head.seeds), default=0)):
        width = max(map(len, head.seeds), default=0)
        cost = len(head.seeds) * 3 * batch * max(1, width)
        if not parts or size + cost > most:
            parts.append([])
            size = 0
        parts[-1].append(head)
        size += cost
    return parts


def _anneal(
    heads: list[_Head], homotopy: Homotopy, *, batch: int, device: torch.device
) -> list[list[list[int]]]:
    """Train the slots of some heads; return the atoms of each seed by decreasing weight."""
    examples = _Examples.of(heads, batch).to(device)
    start = np.zeros(examples.atoms.shape, np.float32)
    seeds = ((head, atoms) for head in heads for atoms in head.seeds)
    for slot, (head, atoms) in enumerate(seeds):
        start[slot, : len(atoms)] = head.rng.normal(0.0, 0.1, len(atoms))
    logits = torch.from_numpy(start).to(device).requires_grad_(True)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    for step in range(homotopy.steps):
        optimiser.zero_grad()
        loss = _loss(logits, examples, homotopy.at(step))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    weight = torch.where(examples.real, logits.detach(), -torch.inf).cpu().numpy()  # (L, m)
    order = np.argsort(-weight, axis=1, kind="stable")
    learned, slot = [], 0
    for head in heads:
        mine = []
        for atoms in head.seeds:
            mine.append(atoms[order[slot, : len(atoms)]].tolist())
            slot += 1
        learned.append(mine)
    return learned


class _Examples(NamedTuple):
    """The training examples of many heads, as each of their L slots sees them."""

    lacking: Tensor  # (L, B, m) 1 where the example lacks an atom of the slot's seed
    atoms: Tensor  # (L, m) the atoms of the seeds
    real: Tensor  # (L, m) false where a short seed is filled up
    head: Tensor  # (L,) which head a slot belongs to
    slots: Tensor  # (H,) how many slots a head has
    target: Tensor  # (H, B) how likely the head followed
    weight: Tensor  # (H, B) its weight, 0 where a short batch is filled up

    @classmethod
    def of(cls, heads: list[_Head], batch: int) -> _Examples:
        batches = [head.batch(batch) for head in heads]
        B = max(len(states) for states, _, _ in batches)
        m = max(1, max((len(s) for head in heads for s in head.seeds), default=1))
        L, H = sum(len(head.seeds) for head in heads), len(heads)
        lacking = np.zeros((L, B, m), np.float32)
        atoms, real = np.zeros((L, m), np.int64), np.zeros((L, m), np.bool_)
        owner = np.zeros(L, np.int64)
        target, weight = np.zeros((H, B), np.float32), np.zeros((H, B), np.float32)
        slot = 0
        for h, (head, (states, n, labels)) in enumerate(zip(heads, batches, strict=True)):
            count = len(states)
            target[h, :count] = labels
            # Each class has the same total weight, however many examples it has.
            weight[h, :n] = 0.5 / max(1, n)
            weight[h, n:count] = 0.5 / max(1, count - n)
            for seed in head.seeds:
                lacking[slot, :count, : len(seed)] = ~states[:, seed]
                atoms[slot, : len(seed)], real[slot, : len(seed)] = seed, True
                owner[slot] = h
                slot += 1
        slots = np.bincount(owner, minlength=H)
        arrays = (lacking, atoms, real, owner, slots, target, weight)
        return cls(*(torch.from_numpy(array) for array in arrays))

    def to(self, device: torch.device) -> _Examples:
        return _Examples(*(tensor.to(device) for tensor in self))


def _loss(logits: Tensor, examples: _Examples, settings: AnnealingStep) -> Tensor:
    """Return the class-balanced cross-entropy of the heads, and the penalty on their bodies."""
    body = torch.sigmoid(logits) * examples.real  # u (L, m)
    # With b = Σu − ½ the margin is ½ less the weight of what the example lacks.
    margin = 0.5 - torch.bmm(examples.lacking, body.unsqueeze(-1)).squeeze(-1)  # (L, B)
    firing = _AMPLITUDE * torch.sigmoid(settings.sharpness * margin)
    on = _AMPLITUDE / (1 + math.exp(-settings.sharpness / 2))
    off = _AMPLITUDE / (1 + math.exp(settings.sharpness / 2))
    offset = (on + examples.slots * off) / 2  # θ (H,)
    total = torch.zeros_like(examples.target).index_add(0, examples.head, firing)
    total = total - offset[:, None]  # φ (H, B)
    follows = logsigmoid(settings.gate * total) + logsigmoid(total)  # log g Γ
    fails = torch.log(-torch.expm1(follows.clamp(max=-1e-6)))
    target = examples.target
    entropy = -(target * follows + (1 - target) * fails) * examples.weight
    penalty = settings.sparsity * body.sum() + settings.decision * (body * (1 - body)).sum()
    return entropy.sum() + penalty
