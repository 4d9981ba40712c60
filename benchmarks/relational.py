"""Rules with variables: the tasks of ∂ILP, wrong labels, kinship chains, many facts, graphs.

The training sets are those of seeds 1001 and on, which were not used in development. A task is solved if
the learned program, or with clean labels an alternative that is shown, derives exactly the right
atoms on a larger instance. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import latentgamma as lg
from latentgamma.relational import kinship, tasks

FIRST_SEED = 1001
#: Training sets with clean labels, with a tenth of wrong labels, and for the other points of the curve.
CLEAN_SEEDS, NOISY_SEEDS, CURVE_SEEDS, GRADIENT_SEEDS = 20, 20, 3, 5
CURVE = (0.0, 0.05, 0.2, 0.3)

Row = dict[str, Any]


def rows() -> list[Row]:
    """Return the rows of every part."""
    found: list[Row] = []
    for part in (clean, wrong_labels, kinship_chains, many_facts, knowledge_graphs):
        found += part()
    return found


def clean() -> list[Row]:
    """Every task with clean labels, by search and by gradient."""
    found = []
    for name in tasks.names():
        row: Row = {"part": "clean", "task": name, "training sets": CLEAN_SEEDS}
        row |= _solve(name, range(FIRST_SEED, FIRST_SEED + CLEAN_SEEDS), "search", 0.0)
        seeds = range(FIRST_SEED, FIRST_SEED + GRADIENT_SEEDS)
        by_gradient = _solve(name, seeds, "gradient", 0.0)
        row["gradient right"] = by_gradient["right"]
        row["gradient training sets"] = GRADIENT_SEEDS
        row["gradient CPU s, most"] = by_gradient["CPU s, most"]
        found.append(_said(row))
    return found


def wrong_labels() -> list[Row]:
    """Every task with a share of wrong labels."""
    found = []
    for share in (0.1, *CURVE):
        for name in tasks.names():
            count = NOISY_SEEDS if share == 0.1 else CURVE_SEEDS
            row: Row = {
                "part": "wrong labels",
                "share": share,
                "task": name,
                "training sets": count,
            }
            row |= _solve(name, range(FIRST_SEED, FIRST_SEED + count), "search", share)
            found.append(_said(row))
    return found


def _solve(name: str, seeds: Sequence[int], method: Any, share: float) -> Row:
    right = shown = certified = 0
    seconds = []
    for seed in seeds:
        noisy = share > 0
        train = tasks.task(name, seed, size="medium" if noisy else "small")
        test = tasks.task(name, seed, size="large")
        positive: Any = train.positive
        negative: Any = None
        if noisy:
            positive, negative = tasks.flip_labels(train, share, seed)
        start = time.process_time()
        result = lg.relational.fit(
            train.background,
            positive,
            negative,
            invent=0 if noisy else 1,
            noise=share,
            method=method,
            time_limit=25,
        )
        seconds.append(time.process_time() - start)
        if not result.found:
            continue
        truth = set(test.positive)
        if result.predict(test.background) == truth:
            right += 1
        elif not noisy:
            others = (
                tasks.derived(one.text, test.background, test.target) for one in result.alternatives
            )
            shown += any(set(other) == truth for other in others)
        certificate = result.certificate
        certified += certificate is not None and certificate.holds
    return {
        "right": right,
        "right one among the alternatives": shown,
        "certified": certified,
        "CPU s, median": sorted(seconds)[len(seconds) // 2],
        "CPU s, most": max(seconds),
    }


def kinship_chains() -> list[Row]:
    """Composition tables from chains of 2 to 4 relations, tested on chains of up to 10."""
    found = []
    for count in (2000, 5000):
        for seed in range(FIRST_SEED, FIRST_SEED + 3):
            start = time.process_time()
            learned = lg.relational.learn_composition(
                kinship.kinship_chains(count, [2, 3, 4], seed)
            )
            row: Row = {"part": "kinship", "training chains": count, "seed": seed}
            row["entries"] = len(learned.entries)
            row["entries right"] = sum(
                kinship.true_table().get(pair) == name for pair, name in learned.entries.items()
            )
            row["CPU s"] = time.process_time() - start
            for length in range(2, 11):
                test = kinship.kinship_chains(1000, [length], 10_000 + seed)
                correct = sum(learned.predict(chain) == {relation} for chain, relation in test)
                row[f"length {length}"] = correct / len(test)
            found.append(_said(row))
    print(learned.grid(), file=sys.stderr)
    return found


def many_facts() -> list[Row]:
    """100,000 background facts and 1,000 examples of a rule with two body literals."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + 3):
        rng = random.Random(seed)
        people = [f"c{i}" for i in range(20_000)]
        background = {}
        for number in range(10):
            pairs: set[tuple[str, str]] = set()
            while len(pairs) < 10_000:
                pairs.add((rng.choice(people), rng.choice(people)))
            background[f"r{number}"] = sorted(pairs)
        after: dict[str, list[str]] = {}
        for one, other in background["r2"]:
            after.setdefault(one, []).append(other)
        true = {(a, c) for a, b in background["r1"] for c in after.get(b, [])}
        firsts = [a for a, _ in background["r1"]]
        lasts = [c for _, c in background["r2"]]
        false: set[tuple[str, str]] = set()
        while len(false) < 500:
            false |= {(rng.choice(firsts), rng.choice(lasts))} - true
        positive = [("t", *pair) for pair in rng.sample(sorted(true), 500)]
        start = time.process_time()
        result = lg.relational.fit(background, positive, [("t", *pair) for pair in false])
        row: Row = {"part": "many facts", "facts": 100_000, "examples": 1000, "seed": seed}
        row["right"] = result.text == "t(X,Y) :- r1(X,Z), r2(Z,Y)."
        row["CPU s"] = time.process_time() - start
        found.append(_said(row))
    return found


def knowledge_graphs() -> list[Row]:
    """Chain rules of knowledge graphs, and the links that they predict.

    The exponent of the confidences is chosen on the validation triples. Published: ConvE, as its
    authors report it for these graphs.
    """
    published = {"umls": 0.94, "kinships": 0.83, "nations": 0.82}
    package = importlib.util.find_spec("pykeen")
    if package is None or not package.submodule_search_locations:
        print("pykeen is not installed: no knowledge graphs", file=sys.stderr)
        return []
    folder = Path(package.submodule_search_locations[0]) / "datasets"
    found = []
    for name, other in published.items():
        train, valid, test = (
            _triples(folder / name / f"{part}.txt") for part in ("train", "valid", "test")
        )
        start = time.process_time()
        graph = lg.relational.mine_chains(train)
        seconds = time.process_time() - start
        pandas_seconds, same = _with_pandas(train, graph)
        powers = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
        power = max(powers, key=lambda p: graph.mean_reciprocal_rank(valid, test, power=p))
        row: Row = {"part": "knowledge graph", "graph": name, "triples": len(train)}
        row["rules"] = len(graph.rules)
        row["CPU s"] = seconds
        row["pandas CPU s"] = pandas_seconds
        row["same support"] = same
        row["power"] = power
        row["filtered MRR"] = graph.mean_reciprocal_rank(test, valid, power=power)
        row["ConvE, published"] = other
        found.append(_said(row))
    return found


def _triples(path: Path) -> list[tuple[str, str, str]]:
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [(h, r, t) for h, r, t in rows]


def _with_pandas(triples: list[tuple[str, str, str]], graph: Any) -> tuple[float, bool]:
    """The time of the same joins and counts with pandas, and whether the supports are the same."""
    import pandas as pd

    start = time.process_time()
    frame = pd.DataFrame(triples, columns=["x", "head", "y"]).drop_duplicates()
    parts = {}
    for name, group in frame.groupby("head"):
        parts[name, False] = group[["x", "y"]].rename(columns={"x": "a", "y": "b"})
        parts[name, True] = group[["y", "x"]].rename(columns={"y": "a", "x": "b"})
    counts = {}
    for one, first in parts.items():
        left = first.rename(columns={"a": "x", "b": "z"})
        for other, second in parts.items():
            joined = left.merge(second.rename(columns={"a": "z", "b": "y"}), on="z")
            pairs = joined[["x", "y"]].drop_duplicates()
            heads = pairs.merge(frame, on=["x", "y"])["head"].value_counts()
            counts[one, other] = (len(pairs), heads.to_dict())
    seconds = time.process_time() - start
    same = all(
        counts[rule.body] == (rule.instances, counts[rule.body][1])
        and counts[rule.body][1][rule.head] == rule.support
        for rule in graph.rules
        if len(rule.body) == 2
    )
    return seconds, same


def _said(row: Row) -> Row:
    """Show a row while the others are computed."""
    shown = (
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
    )
    print(", ".join(shown), file=sys.stderr, flush=True)
    return row
