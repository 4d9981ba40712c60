"""The tasks: what is shown, what the label says, and the rules in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import latentgamma as lg
from nesy import data
from probability import addition_layer, one_hot, sum_digits


@dataclass(frozen=True)
class Settings:
    """How a network is trained: the same for every seed."""

    epochs: int
    batch: int
    rate: float = 1e-3
    decay: float = 0.0  # of the weights
    average: float = 0.999  # the weights that are tested are a running mean
    warm_up: int = 100
    messages: bool = False  # from sums to images, instead of gradients through the rules

    def rate_at(self, step: int, steps: int) -> float:
        """Return the rate of a step: a warm-up, then a cosine that ends at 0."""
        warm = min(1.0, (step + 1) / self.warm_up)
        return self.rate * warm * (0.5 + 0.5 * math.cos(math.pi * step / steps))


@dataclass(frozen=True)
class Examples:
    """Pictures and the values that they show; the labels follow from these."""

    images: np.ndarray  # (count, n), places among the pictures
    truth: np.ndarray  # (count, n), the value that each shows
    pictures: np.ndarray | None = None  # the task's own ones, (m, 1, 28, 28); else MNIST's


class Task:
    """One task: networks see pictures and labels; the true values are for scoring alone."""

    name = ""
    title = ""
    size = 1  # pictures of an example
    values = 10  # that a picture may show
    settings = Settings(20, 64)
    test_count = 1000
    published = ""
    graph = True  # whether a CUDA graph can hold the rules
    anneal = False
    validation = 0  # labelled examples besides, to choose a threshold with
    renames = False  # whether the labels leave the names of the values open

    @cached_property
    def layer(self) -> lg.Layer:
        """The rules."""
        raise NotImplementedError

    def examples(self, y: np.ndarray, *, training: bool, rng: np.random.Generator) -> Examples:
        """Return examples made of images that show the digits `y`: by default each image once."""
        images = data.disjoint(y, self.size, rng)
        return Examples(images, y[images].astype(np.int64))

    def label(self, values: Tensor) -> Tensor:
        """Return the labels (B, L), whole numbers, of values (B, n)."""
        raise NotImplementedError

    def loss(self, scores: Tensor, label: Tensor) -> Tensor:
        """Return the mean loss of scores (B, n, values) and labels (B, L)."""
        raise NotImplementedError

    def right(self, scores: Tensor, label: Tensor, threshold: float | None = None) -> Tensor:
        """Return which labels are right, (B,), where each picture is read as its likeliest value."""
        return (self.label(scores.argmax(-1)) == label).all(1)

    def shortcuts(self) -> str:
        """Return how many concept mappings agree with all labels, the right one among them."""
        return ""

    def concepts(self, read: np.ndarray, truth: np.ndarray) -> float:
        """Return the share of values read right; up to a renaming where labels leave it open."""
        counts = np.zeros((self.values, self.values), np.int64)
        np.add.at(counts, (read.ravel(), truth.ravel()), 1)
        if not self.renames:
            return float(np.trace(counts) / counts.sum())
        return float(counts[linear_sum_assignment(-counts)].sum() / counts.sum())


def _digits(n: int, name: str = "digit", values: int = 10) -> lg.Categorical:
    return lg.Categorical([[f"{name}({i},{d})" for d in range(values)] for i in range(n)])


def _count(program: lg.Program, inputs: Any, outputs: Any, examples: Any) -> str:
    found = lg.shortcuts(program, inputs, outputs, examples)
    return str(found).split("\n", 1)[0]


# ---- Additions and sums


class Addition(Task):
    """Two numbers of n digits: the label is their sum, digit by digit."""

    def __init__(self, digits: int) -> None:
        self.name, self.size = f"add{digits}", 2 * digits
        self.title = f"sum of two numbers of {digits} digit{'s' * (digits > 1)}"
        best = {1: "98.4", 2: "96.7", 4: "93.5", 15: "77.1"}.get(digits)
        self.published = f"{best} (DeepSoftLog 2023)" if best else ""
        batch = {1: 64, 2: 32, 4: 16, 15: 8, 100: 4}.get(digits, 16)
        self.settings = Settings(40, batch, rate=2e-3, decay=0.1)

    @cached_property
    def layer(self) -> lg.Layer:
        return addition_layer(self.size // 2, from_logits=True)

    def label(self, values: Tensor) -> Tensor:
        digits, carry = sum_digits(values)
        return torch.cat((digits, carry[:, None]), 1)

    def loss(self, scores: Tensor, label: Tensor) -> Tensor:
        given = {
            "digits": scores,
            "label": one_hot(label[:, :-1], 10),
            "carry": one_hot(label[:, -1], 2),
        }
        return F.softplus(-self.layer(given, logits=True)).mean()

    def shortcuts(self) -> str:
        rules = [(f"sum({a + b})", [f"digit(0,{a})", f"digit(1,{b})"]) for a, b in _pairs()]
        sums = lg.Categorical([f"sum({s})" for s in range(19)])
        return _count(lg.Program.from_rules(rules), _digits(2), sums, _pairs())


def _pairs(values: int = 10) -> list[tuple[int, int]]:
    return list(product(range(values), repeat=2))


class Sum(Task):
    """The sum of n digits. The published figures use 5,000 sums; images come again in others."""

    def __init__(self, digits: int, *, once: bool = False) -> None:
        self.name, self.size, self._once = f"sum{digits}" + "_once" * once, digits, once
        self.title = f"sum of {digits:,} digits" + ", each image once" * once
        best = {16: "83", 64: "47.1", 1024: "2.7"}.get(digits)
        self.published = f"{best} (CTSketch 2025)" if best and not once else ""
        if digits > 64:
            self.settings = Settings(20, 128, rate=2e-3, decay=0.1, messages=True)
        else:
            self.settings = Settings(60, 4) if once else Settings(50, 16)

    def examples(self, y: np.ndarray, *, training: bool, rng: np.random.Generator) -> Examples:
        if self._once:
            return super().examples(y, training=training, rng=rng)
        images = data.repeated(y, self.size, 5000 if training else 1000, rng)
        return Examples(images, y[images].astype(np.int64))

    @cached_property
    def layer(self) -> lg.Layer:
        return sum_layer(self.size)

    def label(self, values: Tensor) -> Tensor:
        return values.sum(1, keepdim=True)

    def loss(self, scores: Tensor, label: Tensor) -> Tensor:
        given = {"digits": scores, "label": one_hot(label[:, 0], 9 * self.size + 1)}
        return F.softplus(-self.layer(given, logits=True)).mean()

    def shortcuts(self) -> str:
        return "1 concept mapping agrees with all labels: n equal digits add up to n times one"


def sum_program(digits: int) -> lg.Program:
    """Return the running sum of n digits, and `right` where it is the label.

    sum(1,D) :- digit(0,D). sum(I+1,S+D) :- sum(I,S), digit(I,D). right :- sum(n,S), label(S).
    """
    states = 9 * np.arange(1, digits + 1) + 1  # of sum(1, …), sum(2, …) and so on
    first = np.concatenate(([0], np.cumsum(states)))
    digit, label = first[-1], first[-1] + 10 * digits
    d = np.arange(10)
    heads, bodies = [d], []
    for i in range(1, digits):
        s = np.arange(states[i - 1])[:, None]
        heads.append((first[i] + s + d).ravel())
        pairs = np.broadcast_arrays(first[i - 1] + s, digit + 10 * i + d)
        bodies.append(np.stack(pairs, 2).reshape(-1, 2))
    s = np.arange(states[-1])
    heads.append(np.full(len(s), label + states[-1]))
    bodies.append(np.stack((first[-2] + s, label + s), 1))
    body = np.concatenate(bodies)
    names = [f"sum({i + 1},{s})" for i, n in enumerate(states.tolist()) for s in range(n)]
    names += [f"digit({i},{v})" for i in range(digits) for v in range(10)]
    names += [*(f"label({s})" for s in range(states[-1])), "right"]
    return lg.Program.from_arrays(
        np.concatenate((np.arange(11), 10 + 2 * np.arange(1, len(body) + 1))),
        np.concatenate((digit + d, body.ravel())),
        np.concatenate(heads),
        atoms=names,
    )


def sum_layer(digits: int) -> lg.Layer:
    """Return the layer from n digits and a label to whether the digits add up to the label."""
    inputs = {
        "digits": _digits(digits),
        "label": lg.Categorical([f"label({s})" for s in range(9 * digits + 1)]),
    }
    return lg.Layer(sum_program(digits), inputs, "right", semantics="probability", from_logits=True)


# ---- A function of few digits, given by a table


class TableTask(Task):
    """The label is a function of n values, written down as one rule for each combination."""

    def __init__(
        self,
        name: str,
        title: str,
        size: int,
        values: int,
        settings: Settings,
        shown: list[tuple[int, ...]] | None = None,
        *,
        renames: bool = False,
    ) -> None:
        self.name, self.title, self.size, self.values = name, title, size, values
        self.settings, self.renames = settings, renames
        self._every = list(product(range(values), repeat=size))
        self.labels = sorted({self.function(row) for row in self._every})
        self._shown = self._every if shown is None else shown

    def function(self, row: tuple[int, ...]) -> int:
        """Return the label of a row of values."""
        kind = self.name.rstrip("0123456789")
        if kind == "mul":
            half = len(row) // 2
            a, b = (int("".join(map(str, part))) for part in (row[:half], row[half:]))
            return a * b
        if kind in ("xor", "parity"):
            return sum(row) % 2
        if kind == "majority":
            return int(2 * sum(row) > len(row))
        if kind == "less":
            return int(row[0] < row[1])
        return sum(row)  # evenodd

    @cached_property
    def program(self) -> lg.Program:
        """The rules."""
        return lg.Program.from_rules(self.rules())

    def rules(self) -> list[tuple[str, list[str]]]:
        """Return the head and the body of each rule."""
        return [
            (f"label({self.function(row)})", [f"digit({i},{d})" for i, d in enumerate(row)])
            for row in self._every
        ]

    @cached_property
    def _outputs(self) -> lg.Categorical:
        return lg.Categorical([f"label({label})" for label in self.labels])

    @cached_property
    def layer(self) -> lg.Layer:
        return lg.Layer(
            self.program,
            _digits(self.size, values=self.values),
            self._outputs,
            semantics="probability",
            from_logits=True,
        )

    @cached_property
    def _table(self) -> np.ndarray:
        place = {label: n for n, label in enumerate(self.labels)}
        return np.array([place[self.function(row)] for row in self._every])

    def label(self, values: Tensor) -> Tensor:
        powers = self.values ** torch.arange(self.size - 1, -1, -1, device=values.device)
        return torch.from_numpy(self._table).to(values.device)[(values * powers).sum(1), None]

    def examples(self, y: np.ndarray, *, training: bool, rng: np.random.Generator) -> Examples:
        if self.values == 10 and len(self._shown) == len(self._every):
            return super().examples(y, training=training, rng=rng)
        rows = np.array(self._shown)
        count = 6000 if training else 1000
        wanted = rows[rng.integers(len(rows), size=count)]
        return Examples(data.of_digits(y, wanted, rng), wanted)

    def loss(self, scores: Tensor, label: Tensor) -> Tensor:
        return F.nll_loss(self.layer(scores, logits=True), label[:, 0])

    def shortcuts(self) -> str:
        # Products of two digits each: those of one digit leave one mapping, and more leave no fewer.
        few = len(self._shown) <= 300
        rows = [list(row) for row in self._shown if few or row[0] == row[2] == 0]
        inputs = _digits(self.size, values=self.values)
        return _count(self.program, inputs, self._outputs, rows)


# ---- Visual Sudoku as classification


class Sudoku(Task):
    """Whether a board of images is a valid Sudoku; 200 labelled boards, half of them valid.

    The rules say which rows, columns and boxes have each digit once: a chain over the cells with
    the set of the digits seen so far as its state. A valid board makes all of them true; in an
    invalid one not all are, whose probability is computed as if they were independent.
    """

    renames = True
    validation = 100

    def __init__(self, box: int) -> None:
        n = box * box
        self.name, self.size, self.values = f"sudoku{n}", n * n, n
        self.title = f"visual Sudoku {n} × {n}, 200 boards"
        self._box = box
        self._units = torch.from_numpy(data.sudoku_units(box))
        self.settings = Settings(300 if box == 3 else 150, 20, average=0.99)

    def examples(self, y: np.ndarray, *, training: bool, rng: np.random.Generator) -> Examples:
        count = 200 + self.validation if training else self.test_count
        boards, _ = data.sudoku_boards(self._box, count, rng)
        return Examples(data.of_digits(y, boards + (self._box == 3), rng), boards)

    @cached_property
    def layer(self) -> lg.Layer:
        n = self.values
        rules = [(_seen(0, {d}), [f"digit(0,{d})"]) for d in range(n)]
        for i in range(1, n):
            for before in combinations(range(n), i):
                rules += [
                    (_seen(i, {*before, d}), [_seen(i - 1, before), f"digit({i},{d})"])
                    for d in range(n)
                    if d not in before
                ]
        program = lg.Program.from_rules(rules)
        last = _seen(n - 1, range(n))
        return lg.Layer(
            program, _digits(n, values=n), last, semantics="probability", from_logits=True
        )

    def log_valid(self, scores: Tensor) -> Tensor:
        """Return the log-probability that all rows, columns and boxes are right, (B,)."""
        if self._units.device != scores.device:  # once: a CUDA graph cannot hold a copy
            self._units = self._units.to(scores.device)
        parts = scores[:, self._units].flatten(0, 1)  # (B · units, n, n)
        odds = self.layer(parts, logits=True)
        return F.logsigmoid(odds).view(len(scores), -1).sum(1)

    def loss(self, scores: Tensor, label: Tensor) -> Tensor:
        log_valid = self.log_valid(scores)
        valid = label[:, 0] == 1
        log_invalid = torch.log(-torch.expm1(log_valid.clamp(max=-1e-6)))
        return -torch.where(valid, log_valid, log_invalid).mean()

    def label(self, values: Tensor) -> Tensor:
        units = values[:, self._units.to(values.device)].sort(-1).values
        valid = (units == torch.arange(self.values, device=values.device)).all(-1).all(-1)
        return valid[:, None].long()

    def right(self, scores: Tensor, label: Tensor, threshold: float | None = None) -> Tensor:
        if threshold is None:
            return super().right(scores, label)
        return (self.log_valid(scores) > threshold) == label[:, 0]

    def threshold(self, scores: Tensor, label: Tensor) -> float:
        """Return the limit of the log-probability that tells most of these boards right."""
        found, valid = self.log_valid(scores), label[:, 0] == 1
        limits = torch.cat((found, found.new_tensor([float(np.log(0.5))]))).sort().values
        limits = (limits[1:] + limits[:-1]) / 2
        correct = ((found[None] > limits[:, None]) == valid[None]).float().mean(1)
        best = (correct == correct.max()).nonzero()[:, 0]
        return float(limits[best[len(best) // 2]])

    def shortcuts(self) -> str:
        return f"{math.factorial(self.values):,} renamings of the digits agree with all labels"


def _seen(i: int, digits: Any) -> str:
    return f"seen({i},s{''.join(map(str, sorted(digits)))})"


# ---- Mazes and drawn graphs: rules with cycles


class Maze(Task):
    """Whether the last cell of a maze can be reached; a cell shows 0 (open) or 1 (a wall)."""

    graph = False
    anneal = True
    values = 2

    def __init__(self, size: int) -> None:
        self.name, self.size, self._side = f"maze{size}", size * size, size
        self.title = f"maze {size} × {size}, one label each"
        self.settings = Settings(4, 32, average=0.99)

    @cached_property
    def layer(self) -> lg.Layer:
        side = range(self._side)
        rules = [("reach(0,0)", ["free(0,0)"])]
        for i, j in product(side, side):
            for k, m in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
                if k in side and m in side:
                    rules.append((f"reach({i},{j})", [f"reach({k},{m})", f"free({i},{j})"]))
        free = [f"free({i},{j})" for i, j in product(side, side)]
        goal = f"reach({self._side - 1},{self._side - 1})"
        return lg.Layer(lg.Program.from_rules(rules), free, goal, from_logits=True)

    def examples(self, y: np.ndarray, *, training: bool, rng: np.random.Generator) -> Examples:
        walls = (rng.random((4000 if training else 1000, self.size)) > 0.7).astype(np.int64)
        walls[:, [0, -1]] = 0
        return Examples(data.of_digits(y, walls, rng), walls)

    def label(self, values: Tensor) -> Tensor:
        solved = data.maze_solved(values.cpu().numpy() == 0, self._side)
        return torch.from_numpy(solved[:, None]).to(values.device).long()

    def loss(self, scores: Tensor, label: Tensor) -> Tensor:
        odds = self.layer(scores[..., 0] - scores[..., 1], logits=True)
        return F.binary_cross_entropy_with_logits(odds, label[:, 0].float())

    def shortcuts(self) -> str:
        return _few(self.layer, np.array([[True] * self.size, [True] + [False] * (self.size - 1)]))


def _few(layer: lg.Layer, examples: np.ndarray) -> str:
    """Return the mappings that agree with a few examples: one is the least there can be."""
    names = [layer.program.atoms[i] for i in layer.inputs[0].atoms]
    goals = [layer.program.atoms[i] for i in layer.outputs[0].atoms]
    return _count(layer.program, names, goals, examples)


class Reach(Task):
    """Which nodes of a drawn graph can be reached from the first; an edge is drawn or not."""

    graph = False
    anneal = True
    values = 2

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._edges = list(combinations(range(nodes), 2))
        self.name, self.size = f"reach{nodes}", len(self._edges)
        self.title = f"reachability in a drawn graph of {nodes} nodes"
        self.settings = Settings(5, 32, average=0.99)

    @cached_property
    def layer(self) -> lg.Layer:
        rules = []
        for i, j in self._edges:
            edge = f"edge({i},{j})"
            rules += [(f"reach({j})", [edge, f"reach({i})"] if i else [edge])]
            rules += [(f"reach({i})", [edge, f"reach({j})"])] if i else []
        edges = [f"edge({i},{j})" for i, j in self._edges]
        goals = [f"reach({i})" for i in range(1, self._nodes)]
        return lg.Layer(lg.Program.from_rules(rules), edges, goals, from_logits=True)

    def examples(self, y: np.ndarray, *, training: bool, rng: np.random.Generator) -> Examples:
        pictures, edges = data.drawn_graphs(self._nodes, 2000 if training else 1000, rng)
        places = np.arange(edges.size).reshape(edges.shape)
        return Examples(places, edges.astype(np.int64), pictures.reshape(-1, 1, 28, 28))

    def label(self, values: Tensor) -> Tensor:
        found = data.reachable(values.cpu().numpy() == 1, self._nodes)
        return torch.from_numpy(found).to(values.device).long()

    def loss(self, scores: Tensor, label: Tensor) -> Tensor:
        odds = self.layer(scores[..., 1] - scores[..., 0], logits=True)
        return F.binary_cross_entropy_with_logits(odds, label.float())

    def shortcuts(self) -> str:
        return _few(self.layer, np.array([[False] * self.size, [True] + [False] * (self.size - 1)]))


def all_tasks() -> dict[str, Task]:
    """Return the tasks by name, the quick and the important ones first."""
    both = [(b, a) for a, b in data.EVEN_ODD]
    found = [
        *(Addition(n) for n in (1, 2, 4, 15, 100)),
        *(Sum(n) for n in (16, 64, 256, 1024)),
        *(Sum(n, once=True) for n in (64, 256, 1024)),
        Sudoku(2),
        Sudoku(3),
        TableTask("evenodd", "sums of pairs, even–odd", 2, 10, Settings(40, 64),
                  [*data.EVEN_ODD, *both]),
        TableTask("xor2", "XOR of two images of 0 or 1", 2, 2, Settings(10, 64), renames=True),
        TableTask("majority5", "majority of five images of 0 or 1", 5, 2, Settings(10, 64)),
        TableTask("parity2", "parity of the sum of two digits", 2, 10, Settings(20, 64)),
        TableTask("less", "less-than of two digits", 2, 10, Settings(20, 64)),
        TableTask("mul2", "product of two digits", 2, 10, Settings(20, 64)),
        TableTask("mul4", "product of two numbers of 2 digits", 4, 10, Settings(20, 32)),
        Maze(6),
        Reach(6),
    ]  # fmt: skip
    return {task.name: task for task in found}
