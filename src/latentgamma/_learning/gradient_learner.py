"""The gradient learner: slots of the operator, all heads at once, annealed, verified, refitted.

A slot is one row of the operator with its head fixed. Its threshold is tied to its body,
b = Σu − ½, so that a row can only be a conjunction; its offset follows the closed form at the
current sharpness. It starts from one positive state of its head, uses the atoms of that state
alone, and learns which of them it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from latentgamma._errors import ModelError
from latentgamma._learning.exact_search import Body, Found, Task, chosen, covered, likeliest
from latentgamma._learning.journal import Keep, no_journal
from latentgamma._model.module import LatentGamma
from latentgamma._program.program import Mask

#: Gain times confidence of the slots: a satisfied slot alone brings its head well above its offset.
_AMPLITUDE = 8.0
#: Examples of each kind that one head sees in the first round; twice as many in each later one.
_BATCH = 48
_MOST_EXAMPLES = 384
#: Seeds larger than this are cut to a random part: it costs time, and small ones say more.
_LARGEST_SEED = 64
#: Atoms of a slot that are tried in pairs, the heaviest ones.
_HEAVY = 8
#: Rounds without a new body after which states without one are given up.
_PATIENCE = 4
#: Slots that one head may have in a round.
_MOST_SLOTS = 24
#: Numbers that one tensor of examples may hold, by device; annealing so many takes seconds.
_ROOM = {"cpu": 1 << 22, "cuda": 1 << 28}


class Stage(NamedTuple):
    """One moment of an annealing."""

    sharpness: float  # τ
    gate: float  # β
    sparsity: float  # the price of Σu
    decision: float  # the price of Σu(1 − u)


@dataclass(frozen=True)
class Homotopy:
    """An annealing from soft rows to sharp ones, for this learner or for a loop of your own.

    >>> homotopy = Homotopy(steps=100)
    >>> homotopy.at(0).sharpness, homotopy.at(99).sharpness
    (2.25, 9.0)

    In a loop of your own, `homotopy.tune(model, step)` sets a model's sharpness and gate before
    each step, and ties its thresholds if asked to.
    """

    steps: int = 250
    sharpness: tuple[float, float] = (2.25, 9.0)
    gate: tuple[float, float] = (1.0, 5.0)
    sparsity: float = 0.02
    decision: float = 0.05

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ModelError(f"an annealing has at least one step, not {self.steps}")
        if min(self.sharpness) <= 0 or min(self.gate) < 1:
            raise ModelError("sharpness must stay above 0, and the gate from 1 on")

    def at(self, step: int) -> Stage:
        """The settings of one step, numbered from 0."""
        way = min(1.0, step / max(1, self.steps - 1))
        (s0, s1), (g0, g1) = self.sharpness, self.gate
        return Stage(
            s0 * (s1 / s0) ** way,
            g0 * (g1 / g0) ** way,
            self.sparsity,
            self.decision if way > 0.6 else 0.0,
        )

    def tune(self, model: LatentGamma, step: int, *, tie: bool = False) -> Stage:
        """The settings of a step, written into a model.

        With `tie` each threshold is set to its row's body sum less one half, without gradient.
        """
        stage = self.at(step)
        with torch.no_grad():
            model.sharpness_raw.fill_(_softplus_inverse(stage.sharpness))
            model.gate_raw.fill_(_softplus_inverse(max(stage.gate - 1.0, 1e-3)))
            if tie:
                model.threshold.copy_(model.rules.read().body_total - 0.5)
        return stage


def _softplus_inverse(value: float) -> float:
    return value + math.log(-math.expm1(-value))


# ------------------------------------------------------------------------ the learner


class Standing(NamedTuple):
    """How far one head has come."""

    bodies: list[Body]  # found for it so far
    reached: int  # positive examples that they explain
    settled: bool  # whether nothing more is looked for


#: Told what was done, and how far each head has come.
Report = Callable[[str, Sequence[Standing]], None]


def train(
    tasks: Sequence[Task],
    *,
    noise: float = 0.0,
    known: Sequence[Sequence[Body]] | None = None,
    homotopy: Homotopy | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    rounds: int = 10,
    slots: int = 4,
    report: Report | None = None,
    keep: Keep = no_journal,
) -> list[Found]:
    """The bodies that gradient descent finds for each head, verified on all of its examples.

    Without noise a slot is rounded to the shortest prefix of its atoms, ordered by weight, that
    lies inside no negative state; positive states that no body covers yet become the next
    round's seeds, and twice as many slots. With noise the prefixes are proposals, of which the
    likeliest set is kept, where it helps with one atom changed. What the slots of some heads
    learn together is one piece of work for `keep`. A head's numbers are drawn for it alone, so
    it does not matter which those heads are.
    """
    heads = [_Head(task, list(known[i]) if known else [], noise) for i, task in enumerate(tasks)]
    homotopy = homotopy or Homotopy()
    for turn in range(rounds):
        at_work = [head for head in heads if not head.done]
        if not at_work:
            break
        for head in at_work:
            head.rng = np.random.default_rng([seed, turn, head.task.head])
            head.choose(min(slots * 2**turn, _MOST_SLOTS))
        batch = min(_BATCH * 2**turn, _MOST_EXAMPLES)
        parts = _parts(at_work, batch, _ROOM.get(torch.device(device).type, _ROOM["cuda"]))
        for number, part in enumerate(parts, start=1):
            anneal = partial(_anneal, part, homotopy, batch=batch, device=torch.device(device))
            orders = keep(f"{turn + 1}/{number}", anneal)
            for head, learned in zip(part, orders, strict=True):
                head.verify([np.array(order, np.int64) for order in learned])
            if report is not None:
                which = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
                report(f"round {turn + 1}{which}", [head.standing() for head in heads])
    if report is not None:
        report("verified", [head.standing()._replace(settled=True) for head in heads])
    return [head.found() for head in heads]


class _Head:
    """The examples of one head, and the bodies found for it so far."""

    def __init__(self, task: Task, known: list[Body], noise: float) -> None:
        self.task, self.known, self.noise = task, known, noise
        self.positives = task.states[task.positive]
        self.negatives = task.states[~task.positive]
        self.weights = task.counts[task.positive]
        self.rows = np.flatnonzero(task.positive), np.flatnonzero(~task.positive)
        flat = np.where(task.positive, 1 - noise, noise).astype(np.float32)
        self.labels = flat if task.belief is None else task.belief
        self.bodies: list[Body] = list(known)
        self.pool: dict[Body, None] = {}
        self.hard = np.zeros(len(self.negatives), np.bool_)
        self.seeds: list[npt.NDArray[np.int64]] = []
        self.rng = np.random.default_rng(0)
        self.fruitless = 0
        self.settled = False
        self.open = np.ones(len(self.positives), np.bool_)
        self._close()
        self.lost = self.open.copy()

    def _close(self) -> None:
        self.open[:] = True
        for body in self.bodies:
            self.open &= ~covered(self.positives, body)

    @property
    def done(self) -> bool:
        """Whether nothing more is looked for."""
        return self.settled or not self.open.any()

    def standing(self) -> Standing:
        left = self.open if self.noise else self.lost
        return Standing(self.bodies, int(self.weights[~left].sum()), self.done)

    def choose(self, count: int) -> None:
        """Open positive states to start slots from, small ones likelier, as atom indices."""
        rng, rows = self.rng, np.flatnonzero(self.open)
        sizes = (self.positives[rows] & self.task.allowed).sum(1)
        if self.noise:
            # A label may be wrong, so leave it to chance which states are tried.
            keys = sizes * rng.exponential(size=len(rows))
            rows = rows[np.argsort(keys)[:count]]
        else:
            # States without any body come before those with a doubtful one, small before large.
            lost = self.lost[rows]
            rows = rows[np.lexsort((rng.random(len(rows)), sizes, ~lost))][: 4 * count]
            sure = 1 if lost.all() else min(int(lost.sum()), count // 2)
            rows = np.concatenate([rows[:sure], rng.permutation(rows[sure:])])[:count]
        self.seeds = []
        for row in rows:
            atoms = np.flatnonzero(self.positives[row] & self.task.allowed)
            if len(atoms) > _LARGEST_SEED and self.noise:
                atoms = np.sort(rng.choice(atoms, _LARGEST_SEED, replace=False))
            self.seeds.append(atoms)

    def batch(self, size: int) -> tuple[Mask, int, npt.NDArray[np.float32]]:
        """States to train on, how many come first that are positive, and all their labels.

        Half of the negative ones are near misses of a seed.
        """
        positives = _some(np.flatnonzero(self.open), size, self.rng)
        hard = _some(np.flatnonzero(self.hard), size // 2, self.rng)
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
        """Take what each slot learned, its atoms in the order of their weight."""
        if self.noise:
            self._weigh(learned)
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
                self.hard |= first >= shortest - 1
                body = _pruned(lacks, order[:shortest])
                self.pool.update(dict.fromkeys(self._pairs(order[: max(shortest, _HEAVY)])))
            if len(body) <= self.task.max_body:
                self.pool[body] = None
        before = set(self.bodies)
        self.bodies, doubtful = chosen(self.task, self.pool, self.known)
        self._close()
        self.lost = self.open.copy()
        # A state that only a doubtful body explains is tried again.
        self.open |= doubtful
        self.fruitless = self.fruitless + 1 if set(self.bodies) == before else 0
        # Where a state has no body at all, there is one to be found.
        self.settled = self.fruitless >= (2 if not self.lost.any() else _PATIENCE)

    def _pairs(self, heavy: npt.NDArray[np.int64]) -> Iterator[Body]:
        """A slot's heavy atoms, each with the other that explains most open states beside it.

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

    def _weigh(self, learned: list[npt.NDArray[np.int64]]) -> None:
        for order in learned:
            for size in range(1, min(len(order), self.task.max_body, 6) + 1):
                self.pool[tuple(sorted(order[:size].tolist()))] = None
        before = list(self.bodies)
        found = likeliest(self.task, self.noise, self.known, list(self.pool))
        self.bodies = found.bodies
        self._close()
        self.fruitless = self.fruitless + 1 if set(self.bodies) == set(before) else 0
        self.settled = self.fruitless >= 2

    def found(self) -> Found:
        unexplained = 0 if self.noise else int(self.weights[self.lost].sum())
        return Found(self.bodies, unexplained=unexplained)


def _some(
    rows: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    return rows if len(rows) <= count else np.sort(rng.choice(rows, count, replace=False))


def _pruned(lacks: Mask, order: npt.NDArray[np.int64]) -> Body:
    """The body without atoms it does not need, the lightest tried first."""
    kept = list(range(len(order)))
    for place in reversed(range(len(order))):
        rest = [p for p in kept if p != place]
        if rest and lacks[:, rest].any(1).all():
            kept = rest
    return tuple(sorted(int(order[p]) for p in kept))


def _parts(heads: list[_Head], batch: int, most: int) -> list[list[_Head]]:
    """The heads in groups whose examples fit into memory together."""
    parts: list[list[_Head]] = []
    room = 0
    for head in sorted(heads, key=lambda head: max(map(len, head.seeds), default=0)):
        width = max(map(len, head.seeds), default=0)
        cost = len(head.seeds) * 3 * batch * max(1, width)
        if not parts or room + cost > most:
            parts.append([])
            room = 0
        parts[-1].append(head)
        room += cost
    return parts


def _anneal(
    heads: list[_Head],
    homotopy: Homotopy,
    *,
    batch: int,
    device: torch.device,
) -> list[list[list[int]]]:
    """What the slots of these heads learn: the atoms of each seed, heaviest first."""
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
            # Each class has the same say, however many examples it has.
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


def _loss(logits: Tensor, examples: _Examples, stage: Stage) -> Tensor:
    """Class-balanced cross-entropy of the heads, and the price of their bodies."""
    body = torch.sigmoid(logits) * examples.real  # u (L, m)
    # With b = Σu − ½ the margin is ½ less the weight of what the example lacks.
    margin = 0.5 - torch.bmm(examples.lacking, body.unsqueeze(-1)).squeeze(-1)  # (L, B)
    firing = _AMPLITUDE * torch.sigmoid(stage.sharpness * margin)
    on = _AMPLITUDE / (1 + math.exp(-stage.sharpness / 2))
    off = _AMPLITUDE / (1 + math.exp(stage.sharpness / 2))
    offset = (on + examples.slots * off) / 2  # θ (H,)
    evidence = torch.zeros_like(examples.target).index_add(0, examples.head, firing)
    evidence = evidence - offset[:, None]  # φ (H, B)
    follows = logsigmoid(stage.gate * evidence) + logsigmoid(evidence)  # log g Γ
    fails = torch.log(-torch.expm1(follows.clamp(max=-1e-6)))
    target = examples.target
    entropy = -(target * follows + (1 - target) * fails) * examples.weight
    price = stage.sparsity * body.sum() + stage.decision * (body * (1 - body)).sum()
    return entropy.sum() + price
