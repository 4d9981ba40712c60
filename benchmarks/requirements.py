"""Requirements on outputs: driving scenes, rules of CCN, hierarchies; beside PiShield and C-HMCNN.

`python benchmarks/run.py requirements --data FOLDER`: the folder has `roadr/requirements_dimacs.txt`,
`ccn/*_constraints.txt` and `hmc/*.arff.gz`; without it, generated requirements are used. PiShield is
compared with if it is installed. `ms` is the median of many calls on one thread.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

import latentgamma as lg

Row = dict[str, Any]


def rows(data: Path | None = None) -> list[Row]:
    """Everything but training."""
    torch.set_num_threads(1)
    return [*driving(data), *violations(data), *rule_sets(data), *large(data)]


def ms(call: Callable[[], object], seconds: float = 1.5) -> float:
    """The median time of a call in milliseconds."""
    call()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < seconds and len(times) < 500):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return round(1e3 * median(times), 4)


# ------------------------------------------------------------------------------------ driving


def driving_requirements(data: Path | None) -> lg.Requirements:
    """Those of ROAD-R; else 12 exclusive agents, 20 actions and 9 places in the same manner."""
    if data is not None:
        return lg.Requirements.from_dimacs(data / "roadr" / "requirements_dimacs.txt")
    rng = np.random.default_rng(0)
    names = [f"l{i}" for i in range(41)]
    lines = [f":- l{a}, l{b}." for a in range(12) for b in range(a)]
    lines += [" or ".join(names[:12]), " or ".join(names[32:])]
    for action in range(12, 32):
        agents = rng.choice(12, size=5, replace=False)
        lines.append(f"{' ; '.join(f'l{a}' for a in agents)} :- l{action}.")
    return lg.Requirements.from_text("\n".join(lines), labels=names)


def pishield_layer(req: lg.Requirements) -> Any:
    """PiShield's layer of the same clauses, or None if it is not installed."""
    try:
        from pishield.propositional_requirements.shield_layer import ShieldLayer
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requirements.txt"
        path.write_text(
            "".join(
                " or ".join(("" if x >= 0 else "not ") + f"y_{x if x >= 0 else ~x}" for x in clause)
                + "\n"
                for clause in (req.clause(c).tolist() for c in range(len(req)))
            )
        )
        with contextlib.redirect_stdout(io.StringIO()):
            order = ",".join(str(i) for i in range(len(req.labels)))
            return ShieldLayer(len(req.labels), str(path), "custom", order)


def driving(data: Path | None) -> list[Row]:
    """One batch of 256 through each layer."""
    req = driving_requirements(data)
    x = torch.randn(256, len(req.labels), generator=torch.manual_seed(0)) * 3
    found: list[Row] = []

    def add(who: str, call: Callable[[], object], note: str = "") -> None:
        found.append({"part": "driving, batch 256", "who": who, "ms": ms(call), "note": note})

    exact, strata = req.layer(method="exact"), req.layer(method="strata").eval()
    start = time.perf_counter()
    req.layer(method="exact")
    built = time.perf_counter() - start
    assert exact.passes is not None
    diagram = exact.passes.diagram
    exact.eval()
    add("exact, scores", lambda: exact(x), f"{diagram.nodes} nodes, built in {built:.3f} s")
    add("exact, decide", lambda: exact.decide(x), f"{diagram.models():,} models")
    training = req.layer(method="exact").train()
    given, y = x.clone().requires_grad_(), exact.decide(x).float()
    add("exact, P(label | C)", lambda: training(x))
    add("exact, loss and gradient", lambda: training.loss(given, y).backward())
    add("strata, scores", lambda: strata(x))
    add("certificate", lambda: exact.certificate().require())
    shield = pishield_layer(req)
    if shield is not None:
        p = torch.sigmoid(x)
        with torch.no_grad():
            add("PiShield, forward", lambda: shield(p))
            same = ((shield(p) > 0.5) == strata.decide(x)).all(1).sum()
        found[-1]["note"] = f"decisions of strata in {int(same)} of {len(x)}"
    base = found[0]["ms"]
    return [row | {"times": round(row["ms"] / base, 2)} for row in found]


# ---------------------------------------------------------------------------------- violations


def inputs(L: int, count: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Log-odds of many kinds."""
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(count, L, generator=generator)
    yield "random", random * 3
    yield "tied", (random * 2).round()
    yield "zero", torch.zeros(64, L)
    yield "1e-8", random * 1e-8
    yield "bfloat16", random.bfloat16()
    yield "infinite", torch.where(random.abs() > 1, random * torch.inf, random)
    yield "denormal", random * 1e-42


def adversarial(layer: Any, req: lg.Requirements, count: int) -> Tensor:
    """Inputs moved so that the strongest literal of each clause sinks towards 0."""
    x = torch.randn(count, len(req.labels), generator=torch.manual_seed(1)).requires_grad_()
    sign = torch.from_numpy(np.where(req.literals < 0, -1.0, 1.0)).float()
    sizes = np.diff(req.indptr).tolist()
    for _ in range(10):
        literal = layer(x)[:, req.atoms.tolist()] * sign
        strongest = torch.stack([part.amax(1) for part in literal.split(sizes, 1)], 1)
        (slope,) = torch.autograd.grad(strongest.sum(), x)
        x = (x - 0.2 * slope).detach().requires_grad_()
    return x.detach()


def broken(req: lg.Requirements, answer: Tensor) -> int:
    return sum(len(req.check(part).broken_rows) for part in answer.split(100_000))


def violations(data: Path | None, count: int = 100_000) -> list[Row]:
    """Outputs that break a requirement, of as many inputs."""
    sets = {"driving": driving_requirements(data)}
    if data is not None:
        for path in sorted((data / "ccn").glob("*_constraints.txt")):
            sets[path.name.removesuffix("_constraints.txt")] = lg.Requirements.from_rules(path)
    found = []
    for name, req in sets.items():
        layers = {method: req.layer(method=method).eval() for method in ("exact", "strata")}
        if name != "driving":
            layers["closure"] = req.layer().eval()
        shield = pishield_layer(req) if name == "driving" else None
        sums: Row = {"part": "violations", "requirements": name, "inputs": "all of these kinds"}
        sums |= {"outputs": 0, **dict.fromkeys(layers, 0)}
        for kind, x in inputs(len(req.labels), count, 0):
            row: Row = {
                "part": "violations",
                "requirements": name,
                "inputs": kind,
                "outputs": len(x),
            }
            for method, layer in layers.items():
                row[method] = broken(req, layer(x) > 0) + broken(req, layer.decide(x))
            if shield is not None:
                with torch.no_grad():
                    some = x[:4096]
                    outputs = shield(torch.sigmoid(some).float())
                row["PiShield"] = broken(req, outputs > 0.5)
                row["of"] = len(some)
                found.append(row)
            for key in ("outputs", *layers):
                sums[key] += row[key]
        if shield is None:
            found.append(sums)
        if name == "driving":
            x = adversarial(layers["exact"], req, 500)
            found.append({"part": "violations", "requirements": name, "inputs": "adversarial",
                          "outputs": len(x), "exact": broken(req, layers["exact"](x) > 0),
                          "strata": broken(req, layers["strata"](x) > 0)})  # fmt: skip
    return found


# ----------------------------------------------------------------------------------- rule sets


def rule_sets(data: Path | None) -> list[Row]:
    """What each rule set of CCN compiles to."""
    found = []
    for path in sorted((data / "ccn").glob("*_constraints.txt")) if data is not None else []:
        req = lg.Requirements.from_rules(path)
        start = time.perf_counter()
        layer = req.layer(method="exact").eval()
        seconds = time.perf_counter() - start
        assert layer.passes is not None
        closure = req.layer().eval()
        x = torch.randn(256, len(req.labels))
        found.append({
            "part": "rule sets of CCN", "set": path.name.removesuffix("_constraints.txt"),
            "labels": len(req.labels), "rules": len(req), "edges": layer.passes.diagram.edges,
            "build s": round(seconds, 3), "exact ms": ms(lambda layer=layer, x=x: layer(x), 0.3),
            "closure ms": ms(lambda layer=closure, x=x: layer(x), 0.3),
            "certified": layer.certificate().holds and closure.certificate().holds,
        })  # fmt: skip
    return found


# -------------------------------------------------------------------------------- hierarchies


def generated_hierarchy(classes: int) -> list[tuple[str, str]]:
    """A DAG: each class has one or two parents before it."""
    rng = np.random.default_rng(0)
    edges = []
    for child in range(1, classes):
        parents = set(rng.integers(max(0, child // 8 - 5), child // 4 + 1, size=2).tolist())
        edges += [(f"c{child}", f"c{min(parent, child - 1)}") for parent in parents]
    return edges


def chmcnn(below: Tensor, p: Tensor) -> Tensor:
    """The constraint module of C-HMCNN: the largest among a class and its descendants."""
    return (below[None] * p[:, None, :]).amax(2)


def large(data: Path | None) -> list[Row]:
    """Hierarchies of 4,000 and of 45,000 classes; the first beside C-HMCNN's dense module."""
    found: list[Row] = []
    go = data / "hmc" / "cellcycle_GO.train.arff.gz" if data is not None else None
    for name, classes in (("GO" if go else "4,000 generated classes", 4_000),
                          ("45,000 generated classes", 45_000)):  # fmt: skip
        if name == "GO":
            req = lg.Requirements.from_arff(go)
        else:
            req = lg.Requirements.from_edges(generated_hierarchy(classes))
        start = time.perf_counter()
        layer = req.layer()
        build = time.perf_counter() - start
        for batch in (4, 64):
            x = torch.randn(batch, len(req.labels), requires_grad=True)
            part = f"{name}, batch {batch}"
            row = {
                "part": part,
                "who": "closure, forward",
                "ms": ms(lambda x=x, layer=layer: layer(x.detach())),
            }
            found.append(row | {"note": f"built in {build:.2f} s", "times": 1.0})
            both = ms(lambda x=x, layer=layer: layer(x).sum().backward())
            found.append({"part": part, "who": "closure, with gradient", "ms": both, "note": "",
                          "times": round(both / row["ms"], 2)})  # fmt: skip
            if classes == 4_000 and batch == 4:
                below = descendants(req)
                p = torch.sigmoid(x.detach())
                torch.testing.assert_close(
                    torch.sigmoid(layer.eval()(x.detach())), chmcnn(below, p)
                )
                layer.train()
                dense = ms(lambda p=p, below=below: chmcnn(below, p))
                found.append({"part": part, "who": "C-HMCNN's module, forward", "ms": dense,
                              "note": "dense, in plain torch", "times": round(dense / row["ms"], 1)})  # fmt: skip
    return found


def descendants(req: lg.Requirements) -> Tensor:
    """below[a, b]: whether b is a or a descendant of a."""
    L = len(req.labels)
    below = torch.eye(L)
    pairs = req.literals.reshape(-1, 2)
    parent, child = pairs.max(1), ~pairs.min(1)
    while True:
        before = below.sum()
        for a, b in zip(parent.tolist(), child.tolist(), strict=True):
            below[a] = torch.maximum(below[a], below[b])
        if below.sum() == before:
            return below
