"""Requirements on outputs: driving scenes, rules of CCN, hierarchies; beside PiShield and C-HMCNN.

`python benchmarks/run.py requirements --data FOLDER`: the folder has `roadr/requirements_dimacs.txt`,
`ccn/*_constraints.txt` and `hmc/*.arff.gz`; without it, generated requirements are used. PiShield is
compared with if it is installed. `ms` is the median of many calls on one thread.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
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
from latentgamma.engine.diagram import Diagram

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
    """PiShield's layer of the same clauses, or None if it is not installed.

    It gets no tautologies, such as a rule with a label and its negation in the body, because of
    which it breaks other clauses.
    """
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
                if not any(~x in clause for x in clause)
            )
        )
        with contextlib.redirect_stdout(io.StringIO()):
            order = ",".join(str(i) for i in range(len(req.labels)))
            return ShieldLayer(len(req.labels), str(path), "custom", order)


def models_of(diagram: Diagram) -> int:
    """Return the number of models, over the labels that the diagram decides."""
    count = [0] * diagram.nodes
    for n in range(diagram.nodes):
        for b in (2 * n, 2 * n + 1):
            if diagram.open[b]:
                ways = math.prod(count[c] for c in diagram.children(b))
                count[n] += ways << len(diagram.free_labels(b))
    return math.prod(count[r] for r in diagram.root.tolist())


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
    add("exact, decide", lambda: exact.decide(x), f"{models_of(diagram):,} models")
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
    yield "1e-8", random * 1e-8
    yield "bfloat16", random.bfloat16()
    yield "float16", (random * 1e-3).half()
    yield "infinite", torch.where(random.abs() > 1, random * torch.inf, random)
    yield "denormal", random * 1e-42
    kind = torch.finfo(torch.float32)
    pool = [0.0, -0.0, torch.inf, -torch.inf, kind.tiny, -kind.tiny, kind.max, kind.min, 1.0, -1.0]
    pick = torch.randint(len(pool), random.shape, generator=generator)
    mixed = torch.rand(random.shape, generator=generator) < torch.linspace(0, 1, count)[:, None]
    yield "mixed", torch.where(mixed, torch.tensor(pool)[pick], random)
    if seed == 0:
        yield "zero", torch.zeros(64, L)


def searched(
    scores: Callable[[Tensor], Tensor], req: lg.Requirements, x: Tensor, steps: int = 10
) -> Iterator[Tensor]:
    """Yield inputs that are moved, by the gradient of the scores, to where clauses break.

    The strongest literal of each clause sinks towards 0: of all clauses, and of the weakest one.
    """
    sign = torch.from_numpy(np.where(req.literals < 0, -1.0, 1.0)).float()
    row = torch.from_numpy(np.repeat(np.arange(len(req)), np.diff(req.indptr)))
    atoms = torch.from_numpy(req.atoms).long()
    for step in range(steps):
        x = x.detach().requires_grad_()
        literal = scores(x)[:, atoms] * sign
        least = literal.new_full((len(x), len(req)), -torch.inf)
        strongest = least.scatter_reduce(1, row.expand(len(x), -1), literal, "amax")
        aim = strongest.sum() if step % 2 == 0 else strongest.amin(1).sum()
        (slope,) = torch.autograd.grad(aim, x)
        x = (x - 0.2 * slope).detach()
        yield x


def broken(req: lg.Requirements, answer: Tensor) -> int:
    """The number of rows that break a requirement."""
    return sum(len(req.check(part).broken_rows) for part in answer.split(100_000))


class ConstraintModule(nn.Module):
    """The constraint module of CCN as published, on probabilities, in plain torch.

    A label is the largest of its own output and, for each of its rules, the least of the body:
    values of labels, and 1 − the value of a label that is negated, stratum by stratum.
    """

    def __init__(self, req: lg.Requirements) -> None:
        super().__init__()
        L = len(req.labels)
        rules = [(int(c[0]), [int(x) for x in c[1:]]) for c in map(req.clause, range(len(req)))]
        assert all(head >= 0 for head, _ in rules)
        # In a clause, `b :- a, not c.` is b, ~a, c: a negative literal is a positive condition.
        stratum = [0] * L
        for _ in range(L + 1):
            for head, body in rules:
                needed = [stratum[~x] if x < 0 else stratum[x] + 1 for x in body]
                stratum[head] = max([stratum[head], *needed])
        assert max(stratum) <= L, "the rules are not stratified"
        self.strata: list[tuple[Tensor, Tensor]] = []
        for s in sorted({stratum[head] for head, _ in rules}):
            chosen = [rule for rule in rules if stratum[rule[0]] == s]
            width = max(len(body) for _, body in chosen)
            # Columns: the labels, their complements, and 1 where a body has fewer literals.
            bodies = [[~x if x < 0 else L + x for x in body] for _, body in chosen]
            table = [body + [2 * L] * (width - len(body)) for body in bodies]
            self.strata.append((torch.tensor([head for head, _ in chosen]), torch.tensor(table)))

    def forward(self, p: Tensor) -> Tensor:
        for heads, table in self.strata:
            while True:
                columns = torch.cat([p, 1 - p, torch.ones_like(p[:, :1])], 1)
                body = columns[:, table.flatten()].view(len(p), *table.shape).amin(2)
                new = p.scatter_reduce(1, heads.expand(len(p), -1), body, "amax")
                if torch.equal(new, p):
                    break
                p = new
        return p


def violations(data: Path | None, most: int | None = None) -> list[Row]:
    """Inputs whose scores or decisions break a requirement; by default 10⁶ of each set.

    PiShield and the module of CCN get 4,096 inputs of each kind, as probabilities in float32; in
    bfloat16 and float16, the sigmoid is of that type. Searched inputs follow each system's own
    gradient.
    """
    most = most or int(os.environ.get("INPUTS", "1000000"))
    sets = {"driving": driving_requirements(data)}
    if data is not None:
        for path in sorted((data / "ccn").glob("*_constraints.txt")):
            sets[path.name.removesuffix("_constraints.txt")] = lg.Requirements.from_rules(path)
    only = os.environ.get("SETS", ",".join(sets)).split(",")
    return [row for name in only for row in violations_of(name, sets[name], most)]


def violations_of(name: str, req: lg.Requirements, most: int) -> list[Row]:
    """One row for each kind of input."""
    L = len(req.labels)
    layers = {method: req.layer(method=method).eval() for method in ("exact", "strata")}
    others: dict[str, Any] = {"PiShield": pishield_layer(req)}
    if name != "driving":
        layers["closure"] = req.layer().eval()
        others["CCN"] = ConstraintModule(req)
    others = {who: module for who, module in others.items() if module is not None}
    found: dict[str, Row] = {}  # by kind; each of our layers sees all inputs of a row

    def add(kind: str, given: Tensor, answers: dict[str, list[Tensor]]) -> None:
        empty = {"part": "violations", "requirements": name, "kind": kind, "inputs": 0}
        row = found.setdefault(kind, empty | dict.fromkeys(layers, 0))
        row["inputs"] += len(given) if "exact" in answers else 0
        for who, of_layer in answers.items():
            bad = torch.zeros(len(given), dtype=torch.bool)
            for answer in of_layer:
                bad[req.check(answer).broken_rows] = True
            row[who] += int(bad.sum())

    def add_others(kind: str, given: dict[str, Tensor]) -> None:
        for who, x in given.items():
            with torch.no_grad():
                p = others[who](torch.sigmoid(x).float())
            row = found[kind]
            row[who] = row.get(who, 0) + broken(req, p > 0.5)
            row["of"] = row.get("of", 0) + (len(x) if who == next(iter(others)) else 0)

    done, seed, count = 0, 0, min(100_000, most // 8)
    while done < most:
        for kind, x in inputs(L, count, seed):
            add(kind, x, {who: [layer(x) > 0, layer.decide(x)] for who, layer in layers.items()})
            if seed == 0:
                add_others(kind, dict.fromkeys(others, x[:4096]))
            done += len(x)
        seed += 1
    start = torch.randn(min(10_000, max(64, most // 100)), L, generator=torch.manual_seed(1))
    for part in start.split(2048):
        for who, layer in layers.items():
            for x in searched(layer, req, part):
                add("searched", x, {who: [layer(x) > 0, layer.decide(x)]})
    few = torch.randn(400, L, generator=torch.manual_seed(2))
    for who, module in others.items():
        # Log-odds of their probabilities, so that all searches have the same aim.
        def scores(x: Tensor, module: Any = module) -> Tensor:
            return torch.logit(module(torch.sigmoid(x)), 1e-6)

        for x in searched(scores, req, few):
            add_others("searched", {who: x})
    return list(found.values())


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
