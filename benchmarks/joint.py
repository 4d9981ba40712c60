"""Digits and rules learned together: pairs of images and one label a pair, no label of an image.

    python benchmarks/joint.py [TASK …] [--seeds N …] [--options JSON]

The images are the 1,797 digits of scikit-learn, 1,300 for training; a network of one hidden layer
reads both images of a pair. A seed is right if the learned rules give the right label for every
pair of digits (after renaming the concepts), the concepts distinguish exactly those digits that
the labels distinguish, and at least 97% of the held-out images are read as the concept of their digit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import latentgamma as lg

#: Rules with variables for `less`, on ten concepts in an order without a known direction.
CANDIDATES = (
    "lt(X,Y) :- succ(X,Y).",
    "lt(X,Y) :- succ(Y,X).",
    "lt(X,Y) :- succ(X,Z), lt(Z,Y).",
    "lt(X,Y) :- succ(Z,X), lt(Z,Y).",
    "lt(X,Y) :- lt(X,Z), succ(Z,Y).",
    "lt(X,Y) :- lt(X,Z), succ(Y,Z).",
    "lt(X,Y) :- lt(X,Z), lt(Z,Y).",
    "lt(X,Y) :- lt(Y,X).",
    "lt(X,X) :- digit(X).",
    "lt(X,Y) :- zero(X), digit(Y).",
    "lt(X,Y) :- digit(X), zero(Y).",
)
BACKGROUND = """digit(0..9). zero(0). succ(X,X+1) :- digit(X), X < 9.
less :- first(X), second(Y), lt(X,Y)."""


@dataclass(frozen=True)
class Task:
    """What the label of a pair of digits is, and the candidates that may give it."""

    name: str
    label: Callable[[Any, Any], Any]
    digits: int  # images of the digits below this number
    concepts: int  # that the network begins with
    output: str
    recursive: bool = False
    labelled: int = 0  # images of each digit with a label
    examples: int = 20_000
    skew: int = 1  # how much more frequent digits below 5 are than others
    wrong: float = 0.0  # the share of wrong labels
    semantics: str = "probability"
    options: dict[str, Any] = field(default_factory=dict)

    def rules(self) -> lg.learning.CandidateRules:
        inputs = lg.Categorical(
            [[f"{place}({c})" for c in range(self.concepts)] for place in ("first", "second")]
        )
        if self.recursive:
            return lg.learning.CandidateRules(
                CANDIDATES, inputs, self.output, background=BACKGROUND
            )
        return lg.learning.CandidateRules.table(inputs, self.output, semantics=self.semantics)

    def truth(self) -> np.ndarray:
        """The label of each pair of digits. (digits, digits)."""
        x = np.arange(self.digits)
        return np.broadcast_to(self.label(x[:, None], x), (self.digits,) * 2) == 1

    def kinds(self) -> list[int]:
        """For each digit, the first one with the same row and column: no label tells them apart."""
        table = self.truth()
        both = [(*table[d], *table[:, d]) for d in range(self.digits)]
        return [both.index(one) for one in both]


def boolean(number: int) -> Task:
    """One of the 16 functions of two truth values: images of 0 and of 1."""
    return Task(
        f"Boolean function {number:04b}",
        lambda x, y: number >> (2 * x + y) & 1,
        2, 4, "true", options={"steps": 1000},
    )  # fmt: skip


TASKS = {
    "less": Task("less than, any table", np.less, 10, 10, "less"),
    "recursive": Task(
        "less than, 11 recursive candidates", np.less, 10, 10, "less", recursive=True
    ),
    "recursive1": Task(
        "the same, one image of each digit labelled", np.less, 10, 10, "less", True, 1
    ),
    "successor": Task("successor, any table", lambda x, y: y == x + 1, 10, 14, "next"),
    "parity": Task("parity of the sum, any table", lambda x, y: (x + y) % 2, 10, 10, "odd"),
    **{f"boolean{n}": boolean(n) for n in range(16)},
}
#: What makes it harder, one change at a time.
HARDER = {
    "successor10": Task("successor, from 10 concepts", lambda x, y: y == x + 1, 10, 10, "next"),
    "godel": Task("less than, Gödel semantics", np.less, 10, 10, "less", semantics="godel"),
    "less3000": Task("less than, 3,000 pairs", np.less, 10, 10, "less", examples=3000),
    "less1000": Task("less than, 1,000 pairs", np.less, 10, 10, "less", examples=1000),
    "skewed": Task("less than, 0 to 4 four times as frequent", np.less, 10, 10, "less", skew=4),
    "skewed20": Task("the same, from 20 concepts", np.less, 10, 20, "less", skew=4),
    "noise": Task("less than, 5% of the labels wrong", np.less, 10, 10, "less", wrong=0.05),
    "unbalanced": Task(
        "less than, without the entropy term", np.less, 10, 10, "less", options={"balance": 0.0}
    ),
}
EVERY = TASKS | HARDER


def images(digits: int) -> tuple[Tensor, np.ndarray, Tensor, np.ndarray]:
    """Images and their digits, for training and held out."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    parts = [part[found.target[part] < digits] for part in (order[:1300], order[1300:])]
    seen, unseen = (torch.from_numpy(found.images[part] / 16).float() for part in parts)
    return seen, found.target[parts[0]], unseen, found.target[parts[1]]


def draw(task: Task, digits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of images and their labels; both labels are equally frequent where both occur."""
    often = np.where(digits < 5, task.skew, 1)
    pairs = rng.choice(len(digits), (20 * task.examples, 2), p=often / often.sum())
    labels = task.truth()[digits[pairs[:, 0]], digits[pairs[:, 1]]]
    chosen = np.arange(task.examples)
    if labels.any() and not labels.all():
        half = [np.flatnonzero(labels == label)[: task.examples // 2] for label in (False, True)]
        chosen = np.concatenate(half)
    return pairs[chosen], labels[chosen] ^ (rng.random(len(chosen)) < task.wrong)


def shifted(batch: Tensor) -> Tensor:
    """Images of 8 × 8, each moved by up to one pixel."""
    padded = nn.functional.pad(batch, (1, 1, 1, 1))
    rows, columns = torch.randint(3, (2, len(batch), 1)) + torch.arange(8)
    return padded[torch.arange(len(batch))[:, None, None], rows[:, :, None], columns[:, None]]


def run(name: str, seed: int, **options: Any) -> dict[str, Any]:
    """Learn one task from one seed, and compare with the digits."""
    torch.set_num_threads(1)
    task = EVERY[name]
    seen, digits, unseen, held_out = images(task.digits)
    rng = np.random.default_rng(seed)
    pairs, labels = draw(task, digits, rng)
    known = [rng.choice(np.flatnonzero(digits == d), task.labelled) for d in range(task.digits)]
    began = time.perf_counter()
    found = lg.learning.fit_concepts(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, task.concepts)
        ),
        task.rules(),
        seen,
        pairs,
        labels,
        labelled={int(n): d for d, some in enumerate(known) for n in some},
        augment=shifted,
        seed=seed,
        **{**task.options, **options},
    )
    seconds = time.perf_counter() - began
    mapping = np.array(found.concept_accuracy(seen, digits).mapping)
    accuracy = found.concept_accuracy(unseen, held_out)
    all_pairs = mapping[np.array(list(product(range(task.digits), repeat=2)))]
    wrong = found.derive(all_pairs)[:, 0] != task.truth().ravel()
    kinds = [mapping.tolist().index(concept) for concept in mapping]
    read = found.concepts(unseen)
    pairs = rng.integers(len(read), size=(20_000, 2))
    truth = task.truth()[held_out[pairs[:, 0]], held_out[pairs[:, 1]]]
    left = found.shortcuts()
    return {
        "task": task.name,
        "seed": seed,
        "right": bool(not wrong.any() and kinds == task.kinds() and accuracy.accuracy >= 0.97),
        "wrong pairs": int(wrong.sum()),
        "concepts": found.inputs.atoms.shape[-1],
        "concept accuracy": accuracy.accuracy,
        "label accuracy": float((found.derive(read[pairs])[:, 0] == truth).mean()),
        "training labels": found.accuracy,
        "attempt": found.attempt,
        "certified": found.certificate.holds,
        "mappings": left.count,
        "up to renaming": left.partitions,
        "seconds": seconds,
    }


def runs(names: list[str], seeds: list[int], **options: Any) -> Iterator[dict[str, Any]]:
    """One row for each task and seed, as soon as it and those before it are there."""
    jobs = [(name, seed) for name in names for seed in seeds]
    pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn"))
    with pool, lg.learning.ProgressBar() as bar:
        for n, future in enumerate([pool.submit(run, *job, **options) for job in jobs]):
            yield future.result()
            bar("tasks and seeds", n + 1, len(jobs))


def rows(seeds: int = 10) -> list[dict[str, Any]]:
    """How many seeds are right for each task, and then every seed."""
    found = list(runs(list(EVERY), list(range(seeds))))
    return summary(found) + found


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many seeds of each task are right."""
    rows = []
    for name in dict.fromkeys(row["task"] for row in found):
        own = [row for row in found if row["task"] == name]
        rows.append(
            {
                "task": name,
                "harder": any(name == task.name for task in HARDER.values()),
                "seeds right": f"{sum(row['right'] for row in own)} of {len(own)}",
                "rules right": sum(row["wrong pairs"] == 0 for row in own),
                "concept accuracy": float(np.median([row["concept accuracy"] for row in own])),
                "least": min(row["concept accuracy"] for row in own),
                "label accuracy": float(np.median([row["label accuracy"] for row in own])),
                "seconds": float(np.median([row["seconds"] for row in own])),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(EVERY))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--options", type=json.loads, default={}, help="of fit_concepts, as JSON")
    given = parser.parse_args()
    unknown = [name for name in given.tasks if name not in EVERY]
    if unknown:
        parser.error(f"there is no task {unknown[0]!r}; there are {', '.join(EVERY)}")
    for row in runs(given.tasks, given.seeds, **given.options):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
