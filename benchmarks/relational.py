"""Rules with variables: the tasks of ∂ILP, wrong labels, worlds, kinship chains, many facts, graphs.

The training sets are those of seeds 9501 and on, which were not used in development. A program is right
if it derives exactly the right atoms on a larger instance. Times are CPU seconds of one thread.
`--done FILE` keeps finished jobs: the same command then continues. `--seeds 1` runs one seed of each part.
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

import latentgamma as lg
import relational_tasks as tasks
from latentgamma.relational.clauses import Clause, clause_bits
from latentgamma.relational.noisy import LabelCost

FIRST_SEED = 9501
#: Training sets of each task with clean labels, those of them by gradient descent as well, with a tenth of
#: wrong labels, with a tenth and an estimate of it, and for the other points of the curve.
CLEAN_SEEDS, GRADIENT_SEEDS, NOISY_SEEDS, ESTIMATE_SEEDS, CURVE_SEEDS = 20, 10, 20, 1, 1
CURVE = (0.05, 0.2, 0.3)
#: Sets of worlds of each task and the time limit; training sets with positive examples alone.
WORLD_SEEDS, WORLD_TIME_LIMIT, POSITIVE_SEEDS, POSITIVE_SHARE = 20, 55, 5, 0.6
#: The options of every training set.
TIME_LIMIT, INVENT = 25, 1

Row = dict[str, Any]


def seeds(count: int) -> range:
    """Return that many fresh seeds."""
    return range(FIRST_SEED, FIRST_SEED + count)


def rows(
    sets: str | None = None, jobs: int = 1, seeds: int | None = None, done: Path | None = None
) -> list[Row]:
    """Return the rows of some parts, or of every part, computed in that many processes.

    With `seeds`, every part has at most that many. Finished jobs are kept in the file `done`, and not run
    again.
    """
    wanted = sets.split(",") if sets else list(PARTS)
    every = [json.loads(json.dumps([p, *job])) for p in wanted for job in PARTS[p][1]()]
    last = FIRST_SEED + (seeds or 1_000)
    every = [
        job for job in every if not any(isinstance(a, int) and last <= a < 10_000 for a in job)
    ]
    lines = done.read_text(encoding="utf-8").splitlines() if done and done.exists() else []
    found = {json.dumps(job): result for job, result in map(json.loads, lines)}
    left = [job for job in every if json.dumps(job) not in found]
    with ProcessPoolExecutor(jobs) as pool, Progress(console=Console(stderr=True)) as bar:
        shown = bar.add_task("jobs", total=len(every), completed=len(every) - len(left))
        for future in as_completed([pool.submit(_run, job) for job in left]):
            job, result = future.result()
            found[json.dumps(job)] = result
            if done is not None:
                with done.open("a", encoding="utf-8") as file:
                    print(json.dumps([job, result], default=str), file=file)
            bar.update(shown, advance=1, description=" ".join(map(str, job)))
    results: dict[str, list[Row]] = {part: [] for part in wanted}
    for job in every:
        results[job[0]] += found[json.dumps(job)]
    return [row for part in wanted for row in _summed(results[part])]


def _run(job: list[Any]) -> tuple[list[Any], list[Row]]:
    part, *arguments = job
    return job, [{"part": part, **row} for row in PARTS[part][0](*arguments)]


def _summed(found: list[Row]) -> list[Row]:
    """Return one row for each task with several training sets; other rows as they are."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        if "task" in row:
            groups.setdefault((row.get("share"), row["task"]), []).append(row)
    return [row for row in found if "task" not in row] + [*map(_sum, groups.values())]


def _sum(group: list[Row]) -> Row:
    row: Row = {name: group[0][name] for name in ("part", "share", "task") if name in group[0]}
    row["training sets"] = len(group)
    for name in COUNTED:
        if name in group[0]:
            row[name] = sum(one.get(name, False) for one in group)
    times = sorted(one["CPU s"] for one in group)
    row |= {"CPU s, median": times[len(times) // 2], "CPU s, most": times[-1]}
    by_gradient = [one for one in group if "gradient CPU s" in one]
    if by_gradient:
        row["gradient training sets"] = len(by_gradient)
        for name in ("gradient right", "gradient right one among the alternatives", "same answers"):
            row[name] = sum(one[name] for one in by_gradient)
        row["gradient CPU s, most"] = max(one["gradient CPU s"] for one in by_gradient)
        accounts = dict.fromkeys(one["account"] for one in by_gradient if one["account"])
        row["where and why not"] = " / ".join(accounts)
    if "estimate" in group[0]:
        row["estimates"] = ", ".join(f"{one['estimate']:.3f}" for one in group)
    return row


#: What is counted over the training sets of a task.
COUNTED = (
    "right", "right one among the alternatives", "shorter than the true program", "no program",
    "certified",
)  # fmt: skip


def fit(test: tasks.Task | tasks.Worlds, *examples: Any, **options: Any) -> tuple[Row, Any]:
    """Learn from examples, compare with the truth on a larger instance, return what was found."""
    start = time.process_time()
    result = lg.relational.fit(*examples, **options)
    row: Row = {"CPU s": time.process_time() - start, "no program": not result.found}
    row |= {"right": False, "right one among the alternatives": False, "certified": False}
    if not result.found:
        return row, result
    truth = set(test.positive)
    derived = result.predict(test.background)
    if isinstance(test, tasks.Worlds):
        derived &= {*test.positive, *test.negative}  # the others have no label
    row["right"] = derived == truth
    if not row["right"]:
        row["text"] = result.text
        target = result.problem.targets[0]
        name = f"{target.name}/{target.arity}"
        others = (tasks.derived(one.text, test.background, name) for one in result.alternatives)
        row["right one among the alternatives"] = any(set(other) == truth for other in others)
    certificate = result.certificate
    row["certified"] = certificate is not None and certificate.holds
    return row, result


def clean(name: str, seed: int) -> list[Row]:
    """A task with clean labels, by search, and by gradient descent on some of the training sets."""
    train, test = tasks.task(name, seed), tasks.task(name, seed, size="large")
    options: Any = {"invent": INVENT, "time_limit": TIME_LIMIT}
    row, one = fit(test, train.background, train.positive, **options)
    if seed < FIRST_SEED + GRADIENT_SEEDS:
        other_row, other = fit(test, train.background, train.positive, method="gradient", **options)
        agreement = one.agreement(other)
        for column in ("right", "right one among the alternatives", "CPU s"):
            row[f"gradient {column}"] = other_row[column]
        row["same answers"] = agreement.same
        row["account"] = "" if agreement.same else agreement.account
    return [{"task": name, "seed": seed, **row}]


def wrong_labels(name: str, share: float, seed: int, *, estimated: bool = False) -> list[Row]:
    """A task of whose labels a share is wrong."""
    train, test = (tasks.task(name, seed, size=size) for size in ("medium", "large"))
    positive, negative = tasks.flip_labels(train, share, seed)
    noise: Any = "auto" if estimated else share
    options: Any = {"noise": noise, "invent": INVENT, "time_limit": TIME_LIMIT}
    row, result = fit(test, train.background, positive, negative, **options)
    row["shorter than the true program"] = False
    if result.found and not row["right"]:
        length = _true_length(train, positive, negative, share, len(result.problem.names))
        row["shorter than the true program"] = result.bits < length
    row["part"] = "wrong labels"
    if estimated:
        row |= {"part": "wrong labels, share estimated", "estimate": result.noise}
    return [{"task": name, "share": share, "seed": seed, **row}]


def estimated(name: str, share: float, seed: int) -> list[Row]:
    """The same, where the share is estimated."""
    return wrong_labels(name, share, seed, estimated=True)


def _true_length(
    train: tasks.Task, positive: Any, negative: Any, share: float, predicates: int
) -> float:
    """Return the description length of the true program and the labels that it gets wrong."""
    bits = 0.0
    for rule in filter(str.strip, train.truth.split(".")):
        names: dict[str, int] = {}
        for name in re.findall(r"\b[A-Z]\w*", rule):
            names.setdefault(name, len(names))
        head, *body = (
            tuple(names[v] for v in inside.split(","))
            for inside in re.findall(r"\w\(([^)]*)\)", rule)
        )
        clause = Clause(0, len(head), tuple((1, one) for one in body))
        bits += clause_bits(clause, predicates)
    true = set(train.positive)
    wrong = sum(one not in true for one in positive) + sum(one in true for one in negative)
    cost = LabelCost(len(positive) + len(negative), share)
    return bits + float(cost.bits_of(np.array([wrong]), np.zeros(1))[0])


def worlds(name: str, seed: int) -> list[Row]:
    """Trains, scenes of pieces and steps of games; right if so on every atom of 200 other worlds."""
    train, test = tasks.worlds(name, seed), tasks.worlds(name, seed, test=True)
    options: Any = {"time_limit": WORLD_TIME_LIMIT, **train.options}
    row, _ = fit(test, train.background, train.positive, train.negative, **options)
    return [{"task": name, "seed": seed, **row}]


def positives_alone(name: str, seed: int) -> list[Row]:
    """A textbook relation from three fifths of its positive examples, and no others."""
    train, test = (tasks.task(name, seed, size=size) for size in ("medium", "large"))
    shown = random.Random(seed).sample(train.positive, round(POSITIVE_SHARE * len(train.positive)))
    options: Any = {"time_limit": TIME_LIMIT, "closed_world": False}
    row, _ = fit(test, train.background, shown, **options)
    return [{"task": name, "share": POSITIVE_SHARE, "seed": seed, **row}]


def kinship(count: int, seed: int) -> list[Row]:
    """Composition tables from chains of 2 to 4 relations, tested on chains of up to 10."""
    start = time.process_time()
    learned = lg.relational.learn_composition(tasks.kinship_chains(count, [2, 3, 4], seed))
    row: Row = {"training chains": count, "seed": seed, "entries": len(learned.entries)}
    row["entries right"] = sum(
        tasks.true_table().get(pair) == name for pair, name in learned.entries.items()
    )
    row["CPU s"] = time.process_time() - start
    for length in range(2, 11):
        test = tasks.kinship_chains(1000, [length], 10_000 + seed)
        correct = sum(learned.predict(chain) == {relation} for chain, relation in test)
        row[f"length {length}"] = correct / len(test)
    return [row]


def ambiguous_kinship(seed: int) -> list[Row]:
    """Chains of relations between people, which leave some answers open: accuracy and log-loss.

    `best`: always the most frequent answer of 200,000 other chains of the same relations, for short chains.
    """
    found = []
    start = time.process_time()
    learned = lg.relational.learn_composition(tasks.family_chains(5000, [2, 3, 4], seed))
    learned.predict_proba(["son", "grandmother"])
    seconds = time.process_time() - start
    for length in range(2, 11):
        test = tasks.family_chains(1000, [length], 10_000 + seed)
        chances = [learned.predict_proba(chain) for chain, _ in test]
        single = [learned.predict(chain) for chain, _ in test]
        first = [next(iter(chance)) for chance in chances]
        answers = [answer for _, answer in test]
        row: Row = {"seed": seed, "length": length, "CPU s": seconds}
        row["accuracy"] = _mean(map(str.__eq__, first, answers))
        row["mean probability of the first"] = _mean(
            chance[f] for chance, f in zip(chances, first, strict=True)
        )
        row["log-loss"] = -_mean(math.log(c[a]) for c, a in zip(chances, answers, strict=True))
        row["one answer by the table, right"] = _mean(
            s == {a} for s, a in zip(single, answers, strict=True)
        )
        if length <= 3 and seed == FIRST_SEED:
            row["best"] = _mean(map(str.__eq__, _most_frequent(test), answers))
        found.append(row)
    return found


def _most_frequent(test: list[tasks.Chain]) -> list[str]:
    """The most frequent answer to each chain in many others."""
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for chain, answer in tasks.family_chains(200_000, [len(test[0][0])], 99):
        counts.setdefault(chain, Counter())[answer] += 1
    return [counts[c].most_common(1)[0][0] if c in counts else "" for c, _ in test]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def many_facts(seed: int) -> list[Row]:
    """100,000 background facts and 1,000 examples of a rule with two body literals."""
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
    row: Row = {"facts": 100_000, "examples": 1000, "seed": seed}
    row["right"] = result.text == "t(X,Y) :- r1(X,Z), r2(Z,Y)."
    row["CPU s"] = time.process_time() - start
    return [row]


#: MRR of ConvE, as its authors report it for these graphs.
PUBLISHED = {"umls": 0.94, "kinships": 0.83, "nations": 0.82}


def knowledge_graph(name: str) -> list[Row]:
    """Rules of a knowledge graph, and the links that they predict, ranked in three ways.

    The threshold and the longest bodies are chosen on the validation triples.
    """
    package = importlib.util.find_spec("pykeen")
    if package is None or not package.submodule_search_locations:
        print("pykeen is not installed: no knowledge graphs", file=sys.stderr)
        return []
    folder = Path(package.submodule_search_locations[0]) / "datasets"
    train, valid, test = (
        _triples(folder / name / f"{part}.txt") for part in ("train", "valid", "test")
    )
    row: Row = {"graph": name, "triples": len(train)}
    start = time.process_time()
    graph = lg.relational.mine_chains(
        train, validation=valid, work_limit=100_000_000, time_limit=1000
    )
    row["CPU s"] = time.process_time() - start
    return [row | _rankings(graph, test, valid) | {"ConvE, published": PUBLISHED[name]}]


def planted_rules(size: int, seed: int) -> list[Row]:
    """A graph with 20 planted rules, of three literals or with constants."""
    train, held, rules = tasks.planted_graph(size, seed)
    row: Row = {"triples": len(train), "seed": seed}
    start = time.process_time()
    graph = lg.relational.mine_chains(train, time_limit=300)
    row["CPU s"] = time.process_time() - start
    listed = {(one.head, one.constant, one.body, one.end) for one in graph.rules}
    row["planted"], row["recovered"] = len(rules), sum(rule in listed for rule in rules)
    return [row | _rankings(graph, held, ())]


def _rankings(graph: lg.relational.ChainRules, test: Any, known: Any) -> Row:
    """The size of a set of rules, and the filtered ranks of test triples in three ways."""
    row: Row = {"rules": len(graph), "threshold": graph.threshold, "longest": graph.longest}
    start = time.process_time()
    for name in ("maximum", "noisy_or", "non_redundant"):
        ranking = graph.rank(test, known, aggregation=name)
        row[f"MRR, {name}"] = ranking.mrr
    row["hits@10"] = ranking.hits(10)
    row["ranking CPU s"] = time.process_time() - start
    return row


def _triples(path: Path) -> list[tuple[str, str, str]]:
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [(h, r, t) for h, r, t in rows]


#: The function of each part, and the arguments of its jobs.
PARTS: dict[str, tuple[Callable[..., list[Row]], Callable[[], Iterable[tuple[Any, ...]]]]] = {
    "clean": (clean, lambda: product(tasks.names(), seeds(CLEAN_SEEDS))),
    "wrong labels": (wrong_labels, lambda: product(tasks.names(), [0.1], seeds(NOISY_SEEDS))),
    "worlds": (worlds, lambda: product(tasks.world_names(), seeds(WORLD_SEEDS))),
    "positives alone": (positives_alone, lambda: product(tasks.TEXTBOOK, seeds(POSITIVE_SEEDS))),
    "kinship": (kinship, lambda: product([2000, 5000], seeds(3))),
    "ambiguous kinship": (ambiguous_kinship, lambda: zip(seeds(3))),
    "many facts": (many_facts, lambda: zip(seeds(3))),
    "knowledge graph": (knowledge_graph, lambda: zip(PUBLISHED)),
    "planted rules": (
        planted_rules,
        lambda: [*product([100_000], seeds(3)), (300_000, FIRST_SEED)],
    ),
    "estimated share": (
        estimated,
        lambda: product(tasks.names(), [0.1], seeds(ESTIMATE_SEEDS)),
    ),
    "other shares": (
        wrong_labels,
        lambda: product(tasks.names(), CURVE, seeds(CURVE_SEEDS)),
    ),
}
