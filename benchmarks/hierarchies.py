"""AU(PRC) on hierarchies by the recipe of C-HMCNN, with our layer and loss; and with averaged weights.

`python benchmarks/run.py hierarchies --data FOLDER [--sets NAME,NAME:5-9]`: the folder has `hmc/*.arff.gz`.
By default all sets that are there, seeds 0 to 9, and 0 to 4 for the Gene Ontology; a set may come several times, to train
some of its seeds beside others. All seeds of a set train at once, with stacked weights, and each has its own initial weights, order of examples and dropout. On a
CUDA device the network and Adam are the kernels of `stacked.py`, many steps are one CUDA graph, and the
sets run side by side. `$SECONDS_LIMIT` ends training early; the rows then say after how many epochs.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import latentgamma as lg

Row = dict[str, Any]
Array = np.ndarray[Any, Any]

#: The recipe of C-HMCNN: hidden width, epochs, and the rate; and their published AU(PRC).
RECIPES = {
    "cellcycle_FUN": (500, 106, 1e-4, 0.255),
    "derisi_FUN": (500, 67, 1e-4, 0.195),
    "eisen_FUN": (500, 110, 1e-4, 0.306),
    "expr_FUN": (1250, 20, 1e-4, 0.302),
    "gasch1_FUN": (1000, 42, 1e-4, 0.286),
    "gasch2_FUN": (500, 123, 1e-4, 0.258),
    "seq_FUN": (2000, 13, 1e-4, 0.292),
    "spo_FUN": (250, 115, 1e-4, 0.215),
    "cellcycle_GO": (1000, 62, 1e-4, 0.413),
    "derisi_GO": (500, 91, 1e-4, 0.370),
    "eisen_GO": (500, 123, 1e-4, 0.455),
    "expr_GO": (4000, 70, 1e-4, 0.447),
    "gasch1_GO": (500, 122, 1e-4, 0.436),
    "gasch2_GO": (500, 177, 1e-4, 0.414),
    "seq_GO": (9000, 45, 1e-4, 0.446),
    "spo_GO": (500, 103, 1e-4, 0.382),
    "Diatoms": (2000, 474, 1e-5, 0.758),
    "Enron_corr": (1000, 133, 1e-5, 0.756),
    "ImCLEF07A": (1000, 592, 1e-5, 0.956),
    "ImCLEF07D": (1000, 588, 1e-5, 0.927),
}
GO_ROOTS = ("GO0003674", "GO0005575", "GO0008150")
BATCH = 4
DROPOUT = 0.7
WEIGHT_DECAY = 1e-5
DECAY = 0.9995  # of the average of the weights, at each step
#: The steps in one CUDA graph.
GRAPH_STEPS = 64
#: Sets that train for more epochs than this run beside the others.
_LONG = 300


def rows(data: Path | None = None, sets: str | None = None) -> list[Row]:
    """One row for each set and seed; each is printed as soon as it is there."""
    if data is None:
        sys.exit("hierarchies needs --data FOLDER with hmc/*.arff.gz")
    folder = data / "hmc"
    there = [name for name in RECIPES if _parts(folder, name) is not None]
    chosen = [_seeds(text) for text in (sets.split(",") if sets else there)]
    if missing := {name for name, _ in chosen} - set(there):
        sys.exit(f"{folder} has no {', '.join(sorted(missing))}; it has {', '.join(there)}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    limit = time.perf_counter() + float(os.environ.get("SECONDS_LIMIT", "inf"))
    # Sets of many steps run beside the others, which follow one another.
    waiting = sorted(chosen, key=lambda some: RECIPES[some[0]][1])
    queues = [[some] for some in waiting if RECIPES[some[0]][1] > _LONG]
    queues.append([some for some in waiting if RECIPES[some[0]][1] <= _LONG])
    running: dict[int, Stack] = {}
    found: list[Future[list[Row]]] = []
    with ThreadPoolExecutor(4) as pool:
        while running or any(queues):
            over = time.perf_counter() > limit
            for n, queue in enumerate(queues):
                if over:
                    queue.clear()
                elif queue and n not in running:
                    name, seeds = queue.pop(0)
                    running[n] = Stack(read_set(folder, name), seeds, device)
                    print(f"{name}: {running[n].total:,} steps", flush=True)
            for n, stack in list(running.items()):
                if stack.idle():
                    stack.advance()
                if stack.done or over:
                    del running[n]
                    scores = stack.scores()
                    found.append(
                        pool.submit(measured, stack.data, stack.seeds, scores, stack.about())
                    )
    each = [row for future in found for row in future.result()]
    return [*means(each), *each]


def means(rows: list[Row]) -> list[Row]:
    """One row for each set: the means over its seeds, beside the published figure.

    Of sets that were stopped early there is no verdict.
    """
    found = []
    for name in (name for name in RECIPES if any(row["set"] == name for row in rows)):
        block = [row for row in rows if row["set"] == name]
        ours, averaged = ([row[who] for row in block] for who in ("ours", "averaged"))
        # To the digits of the published figures.
        near, above = round(float(np.mean(ours)), 3), round(float(np.mean(averaged)), 3)
        published, of = block[0]["published"], block[0]["of"]
        epochs = min(row["epochs"] for row in block)
        whole = epochs == of and published is not None
        found.append({
            "part": "AU(PRC), means over seeds", "set": name, "seeds": len(block),
            "published": published, "ours": round(float(np.mean(ours)), 4),
            "deviation": round(float(np.std(ours)), 4),
            "within .003": abs(near - published) < 0.0031 if whole else None,
            "averaged": round(float(np.mean(averaged)), 4), "at or above": above >= published if whole else None,
            "violations": sum(row["violations"] for row in block),
            "epochs": epochs, "of": of,
        })  # fmt: skip
    return found


def _seeds(text: str) -> tuple[str, list[int]]:
    """Read `NAME` or `NAME:FIRST-LAST`."""
    name, _, given = text.partition(":")
    first, _, last = (given or ("0-4" if name.endswith("_GO") else "0-9")).partition("-")
    return name, list(range(int(first), int(last or first) + 1))


# -------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class DataSet:
    """Standardised inputs and labels, and the hierarchy of the labels."""

    name: str
    requirements: lg.Requirements
    X: Array
    Y: Array
    X_test: Array
    Y_test: Array


def _parts(folder: Path, name: str) -> tuple[tuple[str, ...], str] | None:
    """The names of the files for training and testing."""
    for training, testing in (((".train", ".valid"), ".test"), (("_trainvalid",), "_test"),
                              (("_train",), "_test"), (("_Train",), "_Test")):  # fmt: skip
        if all((folder / f"{name}{part}.arff.gz").exists() for part in (*training, testing)):
            return training, testing
    return None


def read_set(folder: Path, name: str) -> DataSet:
    """Read a set: trained on training and validation rows; gaps become the mean."""
    parts = _parts(folder, name)
    assert parts is not None
    training, testing = parts
    req = without_roots(lg.Requirements.from_arff(folder / f"{name}{training[0]}.arff.gz"))
    train_cells, kinds = read_split(folder, name, training)
    test_cells, _ = read_split(folder, name, (testing,))
    X, X_test = features(train_cells, kinds), features(test_cells, kinds)
    mean = np.nanmean(X, 0)
    X, X_test = np.where(np.isnan(X), mean, X), np.where(np.isnan(X_test), mean, X_test)
    scale = X.std(0)
    X, X_test = ((part - mean) / np.where(scale > 0, scale, 1) for part in (X, X_test))
    return DataSet(name, req, X.astype(np.float32), label_rows(train_cells, req),
                   X_test.astype(np.float32), label_rows(test_cells, req))  # fmt: skip


def without_roots(req: lg.Requirements) -> lg.Requirements:
    """Leave out the roots of the Gene Ontology, which count neither in the loss nor in AU(PRC)."""
    roots = [req.index[name] for name in GO_ROOTS if name in req.index]
    pairs = req.atoms.reshape(-1, 2)
    kept = req.subset(np.flatnonzero(~np.isin(pairs, roots).any(1)))
    return kept.relabel([name for name in req.labels if name not in GO_ROOTS])


def read_split(folder: Path, name: str, parts: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """The rows and the kinds of the attributes of the files of a data set."""
    cells: list[list[str]] = []
    kinds: list[str] = []
    for part in parts:
        text = gzip.decompress((folder / f"{name}{part}.arff.gz").read_bytes()).decode()
        head, _, body = text.partition("@DATA" if "@DATA" in text else "@data")
        kinds = [
            line.split(None, 2)[2]
            for line in head.splitlines()
            if line.lower().startswith("@attribute")
        ]
        cells += [line.split(",") for line in body.splitlines() if line.strip()]
    return cells, kinds


def features(cells: list[list[str]], kinds: list[str]) -> Array:
    """Numbers as they are, names as one column each, gaps as NaN."""
    columns = []
    for i, kind in enumerate(kinds[:-1]):
        values = [row[i].strip() for row in cells]
        if kind.startswith("{"):
            names = [name.strip() for name in kind.strip("{} ").split(",")]
            columns += [[float(value == name) for value in values] for name in names]
        else:
            columns.append([float("nan") if value == "?" else float(value) for value in values])
    return np.array(columns).T


def label_rows(cells: list[list[str]], req: lg.Requirements) -> Array:
    """0 and 1 of the classes that are listed, and of all above them."""
    parents: dict[int, list[int]] = {}
    for c in range(len(req)):
        clause = req.clause(c).tolist()
        parents.setdefault(~min(clause), []).append(max(clause))
    Y = np.zeros((len(cells), len(req.labels)), np.bool_)
    for row, line in zip(Y, cells, strict=True):
        stack = [
            req.index[name.strip()] for name in line[-1].split("@") if name.strip() in req.index
        ]
        while stack:
            i = stack.pop()
            if not row[i]:
                row[i] = True
                stack += parents.get(i, [])
    return Y


# ---------------------------------------------------------------------------------- the training


def network(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The network of C-HMCNN, up to its log-odds."""
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(DROPOUT),
        nn.Linear(width, width), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(width, outputs),
    )  # fmt: skip


def initial(seed: int, inputs: int, width: int, outputs: int) -> nn.Sequential:
    """The network of a seed before training."""
    torch.manual_seed(seed)
    return network(inputs, width, outputs)


class Stack:
    """The networks of all seeds of one set, trained together. S seeds, B examples, L labels."""

    def __init__(
        self,
        data: DataSet,
        seeds: Iterable[int],
        device: torch.device,
        *,
        width: int | None = None,
        epochs: int | None = None,
        dropout: float = DROPOUT,
        fused: bool | None = None,
    ) -> None:
        recipe = RECIPES.get(data.name, (0, 0, 1e-4, None))
        self.data, self.seeds, self.device, self.dropout = data, list(seeds), device, dropout
        self.width, self.epochs = width or recipe[0], epochs or recipe[1]
        self.layer = data.requirements.layer().to(device)
        S, L, n = len(self.seeds), len(data.requirements.labels), len(data.X)
        nets = [initial(seed, data.X.shape[1], self.width, L) for seed in self.seeds]
        linear = [[m for m in net if isinstance(m, nn.Linear)] for net in nets]
        self.parameters: list[Tensor] = []
        for layers in zip(*linear, strict=True):
            self.parameters += [
                torch.stack([m.weight.detach().T for m in layers]).to(device),  # (S, in, out)
                torch.stack([m.bias.detach()[None] for m in layers]).to(device),  # (S, 1, out)
            ]
        cuda = device.type == "cuda"
        self.kernels: Any = None
        if cuda if fused is None else fused:
            from stacked import Steps

            self.kernels = Steps(self.parameters, WEIGHT_DECAY, 1 / (1 - dropout))
            self.parameters = self.kernels.parameters()
            self.averages = self.kernels.parameters(averaged=True)
        else:
            for parameter in self.parameters:
                parameter.requires_grad_()
            self.averages = [parameter.detach().clone() for parameter in self.parameters]
            self.optimizer = torch.optim.Adam(
                self.parameters, recipe[2], weight_decay=WEIGHT_DECAY, fused=True, capturable=cuda
            )
        # The rows of each step, (steps, S, B); −1 where the last batch of an epoch has fewer.
        self.epoch_steps = -(-n // BATCH)
        self.total = self.epochs * self.epoch_steps
        self.order = torch.stack([orders(seed, self.epochs, n) for seed in self.seeds], 1).to(
            device
        )
        self.X, self.Y = torch.from_numpy(data.X).to(device), torch.from_numpy(data.Y).to(device)
        self.generator = torch.Generator(device).manual_seed(1 + self.seeds[0])
        K = GRAPH_STEPS
        self.x = torch.empty(K, S, BATCH, data.X.shape[1], device=device)
        self.y = torch.empty(K, S, BATCH, L, device=device)
        self.weight = torch.empty(K, S, BATCH, device=device)
        self.kept = torch.empty(K, 2, S, BATCH, self.width, device=device)
        # Of each step: the rate and the root of Adam's corrections, and the share of the average.
        t = torch.arange(1, self.total + 1, dtype=torch.float64)
        share = torch.full_like(t, 1 - DECAY)
        share[0] = 1.0  # the average begins with the first weights, as in AveragedModel
        rate, root = recipe[2] / (1 - 0.9**t), (1 - 0.999**t).rsqrt()
        self.table = torch.stack([rate, root, share], 1).float().to(device)
        self.numbers = torch.empty(K, 3, device=device)
        self.at, self.started, self.seconds = 0, time.perf_counter(), 0.0
        self.graph: torch.cuda.CUDAGraph | None = None
        # Of sets side by side, the one with most steps to take must not wait for the others.
        priority = -2 if self.total > 10**6 else 0 if self.epochs > _LONG else -1
        self.stream = torch.cuda.Stream(priority=priority) if cuda else None
        self.events: list[torch.cuda.Event] = []
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self._some(K)  # these are the first steps of training
            torch.cuda.synchronize()
            self.shares = [1 - DECAY] * K
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                for k in range(K):
                    self._step(k)

    # ---- Steps

    def logits(self, x: Tensor, parameters: Sequence[Tensor], kept: Tensor | None = None) -> Tensor:
        """Return the log-odds of each network. (S, B, inputs) -> (S, B, L)."""
        for i in range(0, len(parameters), 2):
            x = torch.baddbmm(parameters[i + 1], x, parameters[i])
            if i < len(parameters) - 2:
                x = functional.relu(x)
                x = x if kept is None else x * kept[i // 2]
        return x

    def _step(self, k: int) -> None:
        if self.kernels is not None:
            found = self.kernels.forward(self.x[k], self.kept[k])
            z = found[-1].requires_grad_()
            each = self.layer.loss(z, self.y[k], reduction="none")
            (slope,) = torch.autograd.grad(each, z, self.weight[k])
            self.kernels.backward(found, slope.contiguous(), self.numbers[k])
            return
        self.optimizer.zero_grad()
        z = self.logits(self.x[k], self.parameters, self.kept[k])
        each = self.layer.loss(z, self.y[k], reduction="none")  # (S, B), summed over labels
        (each * self.weight[k]).sum().backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.averages, self.parameters, self.shares[k])

    def _load(self, count: int) -> None:
        """Put the inputs of the next steps where the graph reads them."""
        chosen = self.order[self.at : self.at + count]  # (count, S, B)
        flat = chosen.clamp(min=0).flatten()
        self.x[:count].copy_(self.X[flat].view(count, *self.x.shape[1:]))
        self.y[:count].copy_(self.Y[flat].view(count, *self.y.shape[1:]))
        there = (chosen >= 0).float()
        self.weight[:count].copy_(there / there.sum(2, keepdim=True) / self.Y.shape[1])
        self.numbers[:count].copy_(self.table[self.at : self.at + count])
        self.shares = [1.0 if self.at + k == 0 else 1 - DECAY for k in range(count)]
        p = 1 - self.dropout
        self.kept.bernoulli_(p, generator=self.generator).div_(p)

    def _some(self, count: int) -> None:
        """Take this many steps without a graph."""
        with torch.no_grad():
            self._load(count)
        for k in range(count):
            self._step(k)
        self.at += count

    def idle(self) -> bool:
        """Whether the device waits for steps of this set."""
        return not self.done and (len(self.events) < 2 or self.events[-2].query())

    @property
    def done(self) -> bool:
        """Whether all steps were taken, or are on their way."""
        return self.at == self.total

    def advance(self) -> None:
        """Take some steps; on a CUDA device this does not wait for them."""
        count = min(GRAPH_STEPS, self.total - self.at)
        if self.graph is None or self.stream is None:
            self._some(count)
            return
        with torch.cuda.stream(self.stream):
            if count < GRAPH_STEPS:
                self._some(count)
            else:
                with torch.no_grad():
                    self._load(count)
                self.graph.replay()
                self.at += count
            event = torch.cuda.Event()
            event.record()
        self.events = [*self.events[-1:], event]

    # ---- Results

    def scores(self) -> list[list[Array]]:
        """Return the coherent scores of the test rows of each network, and of its average."""
        if self.stream is not None:
            self.stream.synchronize()
        self.seconds = time.perf_counter() - self.started
        X = torch.from_numpy(self.data.X_test).to(self.device)
        self.layer.eval()
        found = []
        for s in range(len(self.seeds)):
            of_seed = []
            for parameters in (self.parameters, self.averages):
                with torch.no_grad():
                    z = self.logits(X[None], [p[s : s + 1] for p in parameters])
                    of_seed.append(self.layer(z[0]).cpu().numpy())
            found.append(of_seed)
        return found

    def about(self) -> Row:
        """Return how far training came, and how long it took for all seeds."""
        return {
            "epochs": round(self.at / self.epoch_steps, 2),
            "of": self.epochs,
            "seconds": round(self.seconds, 1),
        }


def orders(seed: int, epochs: int, n: int) -> Tensor:
    """The rows of each step of a seed, (steps, B); −1 where there are no more."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.full((epochs, -(-n // BATCH) * BATCH), -1, dtype=torch.int32)
    for of_epoch in order:
        of_epoch[:n] = torch.randperm(n, generator=generator)
    return order.view(-1, BATCH)


def measured(
    data: DataSet, seeds: Sequence[int], scores: list[list[Array]], about: Row
) -> list[Row]:
    """The rows of one set."""
    found = []
    for seed, of_seed in zip(seeds, scores, strict=True):
        row: Row = {"part": "AU(PRC)", "set": data.name, "seed": seed}
        row["published"] = RECIPES.get(data.name, (None,) * 4)[3]
        row["violations"] = 0
        for who, values in zip(("ours", "averaged"), of_seed, strict=True):
            row[who] = round(lg.average_precision(data.Y_test, values), 4)
            row["violations"] += len(data.requirements.check(values > 0).broken_rows)
        found.append(row | about)
        print(json.dumps(found[-1]), flush=True)
    return found
