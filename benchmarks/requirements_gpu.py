"""Hierarchies and rules on a CUDA device, beside C-HMCNN's dense module in plain torch.

`python benchmarks/run.py requirements_gpu --data FOLDER`: the folder has `hmc/*.arff.gz` and
`ccn/*_constraints.txt`; without it, a generated hierarchy is used. `ms` is the median of many calls
that wait for the device, `MB` the most memory that one takes. An epoch is 619 steps at batch 4 of a
network of three layers with Adam, as C-HMCNN is trained on cellcycle; labels and inputs are random.
Gradients are computed in a thread of torch's own, which takes a tenth of a millisecond or more to
wake up; `in one thread` is under `torch.autograd.set_multithreading_enabled(False)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import latentgamma as lg
from cuda_graph import captured
from requirements import descendants, generated_hierarchy

Row = dict[str, Any]
#: Examples, features and hidden width of the epoch.
EXAMPLES, FEATURES, HIDDEN = 2476, 77, 1000


def rows(data: Path | None = None) -> list[Row]:
    """Forward, with gradient, epochs, and rule sets with cycles."""
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")
    name, req = "4,000 generated classes", None
    if data is not None:
        name = "GO"
        req = lg.Requirements.from_arff(data / "hmc" / "cellcycle_GO.train.arff.gz")
    req = req or lg.Requirements.from_edges(generated_hierarchy(4_000))
    layer = req.layer().cuda()
    below = descendants(req).cuda()
    found: list[Row] = []
    for batch in (4, 256):
        found += passes(f"{name}, batch {batch}", layer, below, batch)
    found += epochs(f"{name}, epoch, batch 4", layer, below)
    large = lg.Requirements.from_edges(generated_hierarchy(45_000)).layer().cuda()
    found += passes("45,000 generated classes, batch 4", large, None, 4)
    return found + rule_sets(data)


def measured(call: Callable[[], object], seconds: float = 0.3) -> dict[str, float]:
    """The median time of a call, and the memory it takes."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < seconds and len(times) < 300):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    used = torch.cuda.max_memory_allocated() - before
    return {"ms": round(1e3 * median(times), 4), "MB": round(used / 2**20, 1)}


# ------------------------------------------------------------------------------------ C-HMCNN


def dense(p: Tensor, below: Tensor) -> Tensor:
    """C-HMCNN's module: in float64, batch × classes²."""
    return (below * p.double()[:, None, :]).max(2).values


def dense_loss(logits: Tensor, y: Tensor, below: Tensor) -> Tensor:
    """C-HMCNN's loss: for true labels from true ones only."""
    p = torch.sigmoid(logits)
    all_of, of_true = dense(p, below), dense(y * p, below)
    return nn.functional.binary_cross_entropy((1 - y) * all_of + y * of_true, y.double())


# ------------------------------------------------------------------------------------ rows


def labels(layer: Any, count: int, generator: torch.Generator) -> Tensor:
    """Random labels that satisfy the hierarchy, some tens of each example."""
    L = len(layer.labels)
    some = torch.full((count, L), -1.0, device="cuda")
    picked = torch.randint(0, L, (count, 4), device="cuda", generator=generator)
    return layer.decide(some.scatter(1, picked, 1.0)).float()


def passes(part: str, layer: Any, below: Tensor | None, batch: int) -> list[Row]:
    generator = torch.Generator("cuda").manual_seed(0)
    L = len(layer.labels)
    x = torch.randn(batch, L, device="cuda", generator=generator)
    y = labels(layer, batch, generator)
    leaf = x.clone().requires_grad_()

    def backward(value: Tensor) -> None:
        leaf.grad = None
        value.backward()

    ours: dict[str, Callable[[], object]] = {
        "forward": lambda: layer(x),
        "forward and backward": lambda: backward(layer(leaf).sum()),
        "loss and gradient": lambda: backward(layer.loss(leaf, y)),
    }
    found: list[Row] = []
    for what, call in ours.items():
        found.append({"part": part, "what": what, "who": "closure", **measured(call)})
        if what != "forward":
            with torch.autograd.set_multithreading_enabled(False):
                row = {"part": part, "what": what, "who": "closure, in one thread"}
                found.append(row | measured(call))
        graph = measured(captured(call))
        found.append({"part": part, "what": what, "who": "closure in a CUDA graph", **graph})
    if below is None:
        return found
    torch.testing.assert_close(torch.sigmoid(layer.eval()(x).double()),
                               dense(torch.sigmoid(x.double()), below), rtol=0, atol=1e-6)  # fmt: skip
    layer.train()
    theirs: dict[str, Callable[[], object]] = {
        "forward": lambda: dense(torch.sigmoid(x), below),
        "forward and backward": lambda: backward(dense(torch.sigmoid(leaf), below).sum()),
        "loss and gradient": lambda: backward(dense_loss(leaf, y, below)),
    }
    for what, call in theirs.items():
        row = {"part": part, "what": what, "who": "C-HMCNN's dense code", **measured(call)}
        found.append(row)
        for own in found:
            if own["what"] == what:
                own["C-HMCNN's time / this"] = round(row["ms"] / own["ms"], 1)
        torch.cuda.empty_cache()
    return found


def epochs(part: str, layer: Any, below: Tensor) -> list[Row]:
    """An epoch by both losses: call by call, and as a CUDA graph of one step."""
    generator = torch.Generator("cuda").manual_seed(0)
    L, steps = len(layer.labels), EXAMPLES // 4
    X = torch.randn(EXAMPLES, FEATURES, device="cuda", generator=generator)
    Y = labels(layer, EXAMPLES, generator)
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "C-HMCNN's dense code": lambda z, y: dense_loss(z, y, below),
        "closure": layer.loss,
    }
    found: list[Row] = []
    for who, loss in losses.items():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Dropout(0.7),
            nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Dropout(0.7), nn.Linear(HIDDEN, L),
        ).cuda()  # fmt: skip
        optimizer = torch.optim.Adam(net.parameters(), 1e-4, weight_decay=1e-5, capturable=True)
        x, y = X[:4].clone(), Y[:4].clone()

        def step(net: Any = net, loss: Any = loss, optimizer: Any = optimizer, x: Tensor = x,
                 y: Tensor = y) -> None:  # fmt: skip
            optimizer.zero_grad(set_to_none=True)
            loss(net(x), y).backward()
            optimizer.step()

        def epoch(run: Callable[[], object], x: Tensor = x, y: Tensor = y) -> float:
            torch.cuda.synchronize()
            start = time.perf_counter()
            order = torch.randperm(EXAMPLES, device="cuda")[: 4 * steps].view(steps, 4)
            for some in order:
                x.copy_(X[some])
                y.copy_(Y[some])
                run()
            torch.cuda.synchronize()
            return round(time.perf_counter() - start, 4)

        step()
        ways: list[tuple[str, Callable[[], float]]] = [(who, lambda e=epoch, s=step: e(s))]
        if who == "closure":
            ways.append(("closure in a CUDA graph", graph_epoch(net, loss, X, Y)))
        for name, run in ways:
            seconds = min(run() for _ in range(2))
            first = found[0]["s"] if found else seconds
            found.append({"part": part, "what": "epoch", "who": name, "s": seconds,
                          "C-HMCNN's time / this": round(first / seconds, 1)})  # fmt: skip
    return found


def graph_epoch(net: nn.Module, loss: Any, X: Tensor, Y: Tensor) -> Callable[[], float]:
    """The same epoch as a CUDA graph of one step, which also picks its examples; Adam is fused."""
    steps = EXAMPLES // 4
    optimizer = torch.optim.Adam(
        net.parameters(), 1e-4, weight_decay=1e-5, capturable=True, fused=True
    )
    order, at = torch.randperm(4 * steps, device="cuda").view(steps, 4), X.new_zeros(1).long()

    def step() -> None:
        some = order.index_select(0, at).flatten()
        at.add_(1)
        optimizer.zero_grad(set_to_none=True)
        loss(net(X.index_select(0, some)), Y.index_select(0, some)).backward()
        optimizer.step()

    replay = captured(step)

    def epoch() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        order.copy_(torch.randperm(4 * steps, device="cuda").view(steps, 4))
        at.zero_()
        for _ in range(steps):
            replay()
        torch.cuda.synchronize()
        return round(time.perf_counter() - start, 4)

    return epoch


def rule_sets(data: Path | None) -> list[Row]:
    """CCN's rules with cycles and negation: equal to the CPU, and how long they take."""
    found: list[Row] = []
    for path in sorted((data / "ccn").glob("*_constraints.txt")) if data is not None else []:
        req = lg.Requirements.from_rules(path)
        here = req.layer(method="closure", temperature=0.0)
        there = req.layer(method="closure", temperature=0.0).cuda()
        x = torch.randn(256, len(req.labels), generator=torch.Generator().manual_seed(0))
        given = [x.clone().requires_grad_(), x.cuda().requires_grad_()]
        outs = [layer(leaf) for layer, leaf in zip((here, there), given, strict=True)]
        weight = torch.linspace(1, 2, x.numel()).view(x.shape)
        slopes = [
            torch.autograd.grad((out * weight.to(out.device)).sum(), leaf)[0].cpu()
            for out, leaf in zip(outs, given, strict=True)
        ]
        equal = torch.equal(outs[0], outs[1].cpu()) and torch.allclose(*slopes, atol=1e-5)
        y = there.decide(x.cuda()).float()
        leaf = given[1]
        part = path.stem.removesuffix("_constraints")
        calls = {
            "forward": lambda layer=there, x=leaf: layer(x.detach()),
            "loss and gradient": lambda layer=there, x=leaf, y=y: layer.loss(x, y).backward(),
        }
        for what, call in calls.items():
            found.append({"part": f"{part}, batch 256", "what": what, "who": "closure",
                          **measured(call, 0.2), "cycles": here.closure.circuit.cycles,
                          "equal to the CPU": equal})  # fmt: skip
    return found
