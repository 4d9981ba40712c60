"""Requirements on outputs: driving scenes, rules of CCN, hierarchies; beside PiShield and C-HMCNN.

`python benchmarks/run.py requirements --data FOLDER` and `… hierarchies --data FOLDER`: the folder has
`roadr/requirements_dimacs.txt`, `ccn/*_constraints.txt` and `hmc/*.arff.gz`; without it, generated
requirements are used. PiShield is compared with if it is installed. `ms` is the median of many calls
on one thread.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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


# ------------------------------------------------------------------------ training on hierarchies

#: The recipe of C-HMCNN: hidden width, epochs, and the rate; and their published AU(PRC).
RECIPES = {
    "cellcycle_FUN": (500, 106, 1e-4, 0.255),
    "derisi_FUN": (500, 67, 1e-4, 0.195),
    "eisen_FUN": (500, 110, 1e-4, 0.306),
    "gasch1_FUN": (1000, 42, 1e-4, 0.286),
    "spo_FUN": (250, 115, 1e-4, 0.215),
    "cellcycle_GO": (1000, 62, 1e-4, 0.413),
    "eisen_GO": (500, 123, 1e-4, 0.455),
    "gasch1_GO": (500, 122, 1e-4, 0.436),
    "Diatoms": (2000, 474, 1e-5, 0.758),
    "Enron_corr": (1000, 133, 1e-5, 0.756),
    "ImCLEF07A": (1000, 592, 1e-5, 0.956),
}


GO_ROOTS = {"GO0003674", "GO0005575", "GO0008150"}


def hierarchies(data: Path | None = None) -> list[Row]:
    """AU(PRC) by C-HMCNN's recipe, with our layer and loss; the sets of $SETS, by default one."""
    if data is None:
        sys.exit("hierarchies needs --data FOLDER with hmc/*.arff.gz")
    torch.set_num_threads(1)
    names = os.environ.get("SETS", "cellcycle_FUN").split(",")
    seeds = range(int(os.environ.get("SEEDS", "1")))
    return [trained(data / "hmc", name, seed) for name in names for seed in seeds]


def read_split(
    folder: Path, name: str, parts: tuple[str, ...]
) -> tuple[list[list[str]], list[str]]:
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


def features(cells: list[list[str]], kinds: list[str]) -> np.ndarray[Any, Any]:
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


def label_rows(cells: list[list[str]], req: lg.Requirements) -> np.ndarray[Any, Any]:
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


def trained(folder: Path, name: str, seed: int) -> Row:
    """Train three layers as C-HMCNN does, and measure on the test set."""
    split = (".train", ".valid") if (folder / f"{name}.train.arff.gz").exists() else None
    training = split or next(
        (part,)
        for part in ("_trainvalid", "_train", "_Train")
        if (folder / f"{name}{part}.arff.gz").exists()
    )
    testing = ".test" if split else "_Test" if "Train" in training[0] else "_test"
    req = lg.Requirements.from_arff(folder / f"{name}{training[0]}.arff.gz")
    train_cells, kinds = read_split(folder, name, training)
    test_cells, _ = read_split(folder, name, (testing,))
    X, Xt = features(train_cells, kinds), features(test_cells, kinds)
    mean = np.nanmean(X, 0)
    X, Xt = np.where(np.isnan(X), mean, X), np.where(np.isnan(Xt), mean, Xt)
    scale = X.std(0)
    X, Xt = ((part - X.mean(0)) / np.where(scale > 0, scale, 1) for part in (X, Xt))
    Y, Yt = label_rows(train_cells, req), label_rows(test_cells, req)
    width, epochs, rate, published = RECIPES[name]
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(X.shape[1], width), nn.ReLU(), nn.Dropout(0.7),
        nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.7), nn.Linear(width, len(req.labels)),
    )  # fmt: skip
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9995)
    )
    layer = req.layer()
    optimizer = torch.optim.Adam(net.parameters(), rate, weight_decay=1e-5)
    Xs, Ys = torch.from_numpy(X).float(), torch.from_numpy(Y)
    # As C-HMCNN does: the roots of GO do not count, the first level of a tree does.
    roots = [i for i, name in enumerate(req.labels) if name in GO_ROOTS]
    start = time.perf_counter()
    for _ in range(epochs):
        net.train()
        for some in torch.randperm(len(Xs)).split(4):
            optimizer.zero_grad()
            layer.loss(net(Xs[some]), Ys[some]).backward()
            optimizer.step()
            average.update_parameters(net)
    seconds = time.perf_counter() - start
    out: Row = {"part": "AU(PRC)", "set": name, "seed": seed, "published": published}
    layer.eval()
    for who, model in (("ours", net), ("averaged", average)):
        model.eval()
        with torch.no_grad():
            scores = layer(model(torch.from_numpy(Xt).float()))
        out[who] = round(lg.average_precision(Yt, scores, leave_out=roots), 4)
        out["violations"] = broken(req, scores > 0)
    return out | {"seconds an epoch": round(seconds / epochs, 2)}
