"""Training a network through rules: ways × tasks × seeds, the goal and the facts behind it.

Every fact has a noisy vector of its own, and a small network for it (one for all cells in a maze).
Labels are on derived atoms only. After training, facts are decided at one half and closed: the
goal accuracy is that of the closure on held-out examples, the fact accuracy that of the facts.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits
from torch.utils._python_dispatch import TorchDispatchMode

import latentgamma as lg

FEATURES = 4
EXAMPLES = 2000
BATCH = 128
LEARNING_RATE = 0.01


# -------------------------------------------------------------------- tasks


@dataclass(frozen=True)
class Task:
    """A program, the facts that a network sees, and the goals that are labelled."""

    name: str
    program: lg.Program
    facts: list[str]
    goals: list[str]
    rate: float  # of true facts
    steps: int = 620
    noise: float = 0.25
    shared: bool = False  # one network for all facts

    def columns(self, names: list[str]) -> list[int]:
        return [self.program.index[name] for name in names]

    def close(self, facts: np.ndarray) -> np.ndarray:
        """The goals that follow from facts. (N, facts) -> (N, goals)."""
        masks = np.zeros((len(facts), self.program.M), bool)
        masks[:, self.columns(self.facts)] = facts
        return lg.closures(self.program, masks)[:, self.columns(self.goals)]


@dataclass(frozen=True)
class Data:
    features: Tensor  # (N, facts, FEATURES)
    facts: np.ndarray  # (N, facts)
    goals: np.ndarray  # (N, goals)


def draw(task: Task, examples: int, directions: Tensor, rng: np.random.Generator) -> Data:
    facts = rng.random((examples, len(task.facts))) < task.rate
    sign = torch.from_numpy(2.0 * facts - 1).float()[..., None]
    noise = torch.from_numpy(rng.normal(0, task.noise, (*facts.shape, FEATURES))).float()
    return Data(sign * directions + noise, facts, task.close(facts))


def directions_of(task: Task, rng: np.random.Generator) -> Tensor:
    """Where a true fact lies among its features; a false one lies opposite."""
    count = 1 if task.shared else len(task.facts)
    found = rng.normal(size=(count, FEATURES))
    return torch.from_numpy(found / np.linalg.norm(found, axis=1, keepdims=True)).float()


def alarm() -> Task:
    rules = "smoke :- haze, heat. fire :- smoke, flicker. alarm :- fire."
    return Task("alarm", lg.parse(rules), ["haze", "heat", "flicker"], ["alarm"], 0.5 ** (1 / 3))


def chain(depth: int) -> Task:
    rules = ["c1 :- f0, f1.", *(f"c{i} :- c{i - 1}, f{i}." for i in range(2, depth + 1))]
    facts = [f"f{i}" for i in range(depth + 1)]
    rate = 0.5 ** (1 / len(facts))
    return Task(f"chain {depth}", lg.parse("\n".join(rules)), facts, [f"c{depth}"], rate)


def disjunction(pairs: int = 5) -> Task:
    rules = [f"goal :- a{i}, b{i}." for i in range(pairs)]
    facts = [f"{side}{i}" for i in range(pairs) for side in "ab"]
    rate = (1 - 0.5 ** (1 / pairs)) ** 0.5
    return Task("disjunction", lg.parse("\n".join(rules)), facts, ["goal"], rate)


def layered(depth: int, width: int = 8) -> Task:
    """Each atom has two rules with two atoms of the layer below; every fact matters to some goal."""
    for seed in itertools.count():
        rng = np.random.default_rng(seed)
        rules = []
        for level, i, _ in itertools.product(range(1, depth + 1), range(width), range(2)):
            a, b = rng.choice(width, 2, replace=False)
            rules.append(f"x{level}_{i} :- x{level - 1}_{a}, x{level - 1}_{b}.")
        facts = [f"x0_{i}" for i in range(width)]
        goals = [f"x{depth}_{i}" for i in range(width)]
        program = lg.parse("\n".join(rules))
        if not set(facts) <= set(program.index):
            continue
        task = Task(f"layered {depth}", program, facts, goals, 0.6)
        every = np.array(list(itertools.product([False, True], repeat=width)))
        closed = task.close(every)
        matters = [
            np.mean((closed != task.close(every ^ (np.arange(width) == i))).any(1))
            for i in range(width)
        ]
        if min(matters) > 0.15:
            return task
    raise AssertionError


def maze(size: int) -> Task:
    rules = ["reach(0,0) :- free(0,0)."]
    for i, j in itertools.product(range(size), repeat=2):
        for k, m in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if 0 <= k < size and 0 <= m < size:
                rules.append(f"reach({i},{j}) :- reach({k},{m}), free({i},{j}).")
    facts = [f"free({i},{j})" for i, j in itertools.product(range(size), repeat=2)]
    goals = [f"reach({size - 1},{size - 1})"]
    program = lg.parse("\n".join(rules))
    return Task(f"maze {size}", program, facts, goals, 0.75, steps=310, noise=0.5, shared=True)


def tasks() -> list[Task]:
    return [
        alarm(),
        *(chain(depth) for depth in (3, 10, 30, 50)),
        disjunction(),
        *(layered(depth) for depth in (4, 8)),
        maze(8),
    ]


# -------------------------------------------------------------------- the network


class FactNetworks(nn.Module):
    """One small network for each fact, or one for all. (B, facts, FEATURES) -> (B, facts)."""

    def __init__(self, count: int, hidden: int = 16) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(count, FEATURES, hidden) / FEATURES**0.5)
        self.bias = nn.Parameter(torch.zeros(count, 1, hidden))
        self.last = nn.Parameter(torch.randn(count, hidden, 1) / hidden**0.5 / 10)

    def forward(self, features: Tensor) -> Tensor:
        by_fact = features.transpose(0, 1)  # (facts, B, FEATURES)
        if len(self.first) == 1:
            flat = by_fact.reshape(1, -1, FEATURES)
            out = torch.relu(flat @ self.first + self.bias) @ self.last
            return out.reshape(by_fact.shape[:2]).T
        return (torch.relu(by_fact @ self.first + self.bias) @ self.last)[..., 0].T


# -------------------------------------------------------------------- ways


class Way:
    """From the log-odds of the facts to the loss; `step` is called after each step."""

    def __init__(self, task: Task, steps: int) -> None:
        self.task = task
        self.steps = steps

    def odds(self, facts: Tensor) -> Tensor:
        """The log-odds of the goals."""
        raise NotImplementedError

    def loss(self, facts: Tensor, goals: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(self.odds(facts), goals)

    def step(self) -> None:
        pass


class LayerWay(Way):
    """The layer, at a temperature that falls from `start` to `end`."""

    def __init__(self, task: Task, steps: int, *, start: float, end: float, **options: Any) -> None:
        super().__init__(task, steps)
        self.layer = lg.Layer(task.program, task.facts, task.goals, from_logits=True, **options)
        if start:
            self.annealing = lg.Annealing(self.layer, steps, start=start, end=end)
            self.step = self.annealing.step
        else:
            self.layer.temperature = 0.0

    def odds(self, facts: Tensor) -> Tensor:
        return self.layer(facts, logits=True)


class PlainMinMax(Way):
    """Min/max on log-odds in plain torch, step by step."""

    def __init__(self, task: Task, steps: int) -> None:
        super().__init__(task, steps)
        program = task.program
        self.depth = min(lg.logic.depth_bound(program), 2 * len(task.facts))
        self.body_rule = torch.from_numpy(np.repeat(np.arange(program.R), program.body_sizes))
        self.body_atom = torch.from_numpy(program.body_indices.astype(np.int64))
        self.head_atom = torch.from_numpy(program.head_indices.astype(np.int64))
        self.fed, self.read = task.columns(task.facts), task.columns(task.goals)

    def odds(self, facts: Tensor) -> Tensor:
        batch, program = len(facts), self.task.program
        values = torch.full((batch, program.M), -30.0).index_copy(1, torch.tensor(self.fed), facts)
        rows, heads = self.body_rule.expand(batch, -1), self.head_atom.expand(batch, -1)
        for _ in range(self.depth):
            rules = torch.full((batch, program.R), 1e9).scatter_reduce(
                1, rows, values[:, self.body_atom], "amin"
            )
            values = values.scatter_reduce(1, heads, rules, "amax")
        return values[:, self.read]


class OperatorWay(Way):
    """The certified operator itself."""

    def __init__(self, task: Task, steps: int, *, gradient: str, logits: bool) -> None:
        super().__init__(task, steps)
        self.model = lg.oracle(task.program, gradient=gradient).requires_grad_(False)
        self.depth = min(lg.logic.depth_bound(task.program), 2 * len(task.facts))
        self.logits = logits
        self.fed = torch.tensor(task.columns(task.facts))
        self.read = task.columns(task.goals)

    def odds(self, facts: Tensor) -> Tensor:
        state = torch.zeros(len(facts), self.task.program.M)
        state = state.index_copy(1, self.fed, torch.sigmoid(facts))
        return self.model(state, self.depth, logits=self.logits)[:, self.read]

    def loss(self, facts: Tensor, goals: Tensor) -> Tensor:
        if self.logits:
            return super().loss(facts, goals)
        return binary_cross_entropy(self.odds(facts).clamp(1e-4, 1 - 1e-4), goals)


WAYS: dict[str, Callable[[Task, int], Way]] = {
    "layer, T from 1 to 0.1": lambda t, n: LayerWay(t, n, start=1.0, end=0.1),
    "layer, T = 1": lambda t, n: LayerWay(t, n, start=1.0, end=1.0),
    "layer, hard": lambda t, n: LayerWay(t, n, start=0.0, end=0.0),
    "plain torch min/max": PlainMinMax,
    "layer, gamma, T from 1 to 0": lambda t, n: LayerWay(
        t, n, start=1.0, end=0.0, semantics="gamma"
    ),
    "layer, probability": lambda t, n: LayerWay(t, n, start=1.0, end=1.0, semantics="probability"),
    "operator, exact, clamped": lambda t, n: OperatorWay(t, n, gradient="exact", logits=False),
    "operator, exact, log-odds": lambda t, n: OperatorWay(t, n, gradient="exact", logits=True),
    "operator, proof, log-odds": lambda t, n: OperatorWay(t, n, gradient="proof", logits=True),
}


# -------------------------------------------------------------------- one run


def run(task: Task, make: Callable[[Task, int], Way], seed: int) -> dict[str, Any]:
    """Train once, and measure on held-out examples."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    directions = directions_of(task, rng)
    known, held_out = (draw(task, EXAMPLES, directions, rng) for _ in range(2))
    goals = torch.from_numpy(known.goals).float()
    network = FactNetworks(1 if task.shared else len(task.facts))
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    way = make(task, task.steps)
    start = time.perf_counter()
    for _ in range(task.steps):
        batch = torch.from_numpy(rng.integers(0, EXAMPLES, BATCH))
        loss = way.loss(network(known.features[batch]), goals[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        way.step()
    seconds = time.perf_counter() - start
    return {**measure(task, network, held_out), "seconds": seconds, "network": network,
            "directions": directions}  # fmt: skip


@torch.no_grad()
def measure(task: Task, network: nn.Module, data: Data) -> dict[str, float]:
    decided = (network(data.features) > 0).numpy()
    return {
        "goal": float((task.close(decided) == data.goals).mean()),
        "facts": float((decided == data.facts).mean()),
    }


def bayes(task: Task, directions: Tensor, data: Data) -> float:
    """The goal accuracy of the best decision on each fact by itself."""
    prior = np.log(task.rate / (1 - task.rate))
    score = 2 / task.noise**2 * (data.features * directions).sum(-1).numpy() + prior
    return float((task.close(score > 0) == data.goals).mean())


def larger_mazes(found: dict[str, Any], seed: int) -> dict[str, float]:
    """The goal accuracy on larger mazes without retraining, and the best decision's."""
    shares = {}
    for size in (8, 16, 32):
        task = maze(size)
        data = draw(task, 1000, found["directions"], np.random.default_rng(seed + 1))
        shares[f"{size}×{size}"] = measure(task, found["network"], data)["goal"]
        shares[f"best {size}×{size}"] = bayes(task, found["directions"], data)
    return shares


# -------------------------------------------------------------------- speed


def speed(batch: int = 256) -> list[dict[str, Any]]:
    """Forward and backward on G4: the layer, and plain torch step by step."""
    program = lg.generators.g4()
    task = Task("g4", program, list(program.atoms), list(program.atoms), 0.5)
    ways = {
        "layer, smooth": LayerWay(task, 1, start=1.0, end=1.0),
        "layer, hard": LayerWay(task, 1, start=0.0, end=0.0),
        "plain torch min/max": PlainMinMax(task, 1),
    }
    found: dict[str, tuple[float, float]] = {}
    for name, way in ways.items():
        x = torch.randn(batch, program.M, requires_grad=True)
        times = []
        for _ in range(7):
            start = time.perf_counter()
            way.odds(x).sum().backward()
            times.append(time.perf_counter() - start)
        with Kept() as kept:
            out = way.odds(x)
            size = kept.total
        del out
        found[name] = min(times), size
    plain = found["plain torch min/max"]
    return [
        {
            "part": "speed",
            "program": f"G4, batch {batch}",
            "way": name,
            "milliseconds": 1e3 * seconds,
            "times as fast as plain torch": plain[0] / seconds,
            "kept MB": size / 1e6,
            "kept MB of plain torch / this": plain[1] / size,
        }
        for name, (seconds, size) in found.items()
    ]


class Kept(TorchDispatchMode):
    """Counts the bytes of all storages that operations make and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._alive[storage._cdata] = weakref.ref(storage), storage.nbytes()
        return out

    @property
    def total(self) -> int:
        gc.collect()
        return sum(size for alive, size in self._alive.values() if alive() is not None)


# -------------------------------------------------------------------- the table

BEST = "layer, T from 1 to 0.1"
#: Ways that learn nothing on shallow tasks and take minutes on these.
TOO_SLOW = {"chain 30", "chain 50", "layered 8", "maze 8"}


def row(task: str, way: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "part": "accuracy",
        "task": task,
        "way": way,
        "goal": statistics.mean(r["goal"] for r in runs),
        "least": min(r["goal"] for r in runs),
        "seeds at 99%": f"{sum(r['goal'] >= 0.99 for r in runs)} of {len(runs)}",
        "facts": statistics.mean(r["facts"] for r in runs),
        "least facts": min(r["facts"] for r in runs),
        "seconds": statistics.median(r["seconds"] for r in runs),
    }


def rows(only_tasks: str = "", only_ways: str = "") -> list[dict[str, Any]]:
    """Ten seeds of the recommended way, five on mazes and digits; two of the others."""
    warnings.simplefilter("ignore", RuntimeWarning)
    chosen = [task for task in tasks() if only_tasks in task.name]
    found, mazes = speed(), []
    for name in (BEST, *(name for name in WAYS if name != BEST)):
        for task in chosen:
            if only_ways not in name or is_left_out(task, name):
                continue
            seeds = (5 if task.shared else 10) if name == BEST else 2
            runs = [run(task, WAYS[name], seed) for seed in range(seeds)]
            found.append(shown_row(task.name, name, runs))
            if task.shared and name == BEST:
                mazes += [
                    {"part": "mazes", "seed": seed, **larger_mazes(r, seed)}
                    for seed, r in enumerate(runs)
                ]
        if only_tasks in "sums of digits" and only_ways in name:
            found += digit_rows(name)
    return found + mazes


def is_left_out(task: Task, way: str) -> bool:
    """Whether a way takes minutes for a task, or cannot do it."""
    if task.shared and way in ("layer, probability", "plain torch min/max"):
        return True
    return task.name in TOO_SLOW and way.startswith(("operator", "layer, gamma"))


def shown_row(task: str, way: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of these runs, which is printed as soon as it is there."""
    made = row(task, way, runs)
    print(*made.values(), sep="\t", file=sys.stderr, flush=True)
    return made


def digit_rows(way: str) -> list[dict[str, Any]]:
    import digits

    if way not in digits.WAYS:
        return []
    try:
        runs = digits.runs(way, 5 if way == BEST else 2)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no MNIST images, so no sums of digits: {error}", file=sys.stderr)
        return []
    return [shown_row("sums of digits", way, runs)]


if __name__ == "__main__":
    rows(*sys.argv[1:])
