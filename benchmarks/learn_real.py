"""Rules from other people's data: Boolean networks, formal contexts, triples.

Boolean networks: from a random half of all transitions learn the rules, and predict every
transition. A node x gives the atoms `x` and `not x`, and `next x` and `next not x` after the step.
Each learned rule is looked up among the prime implicants of its node's truth table, which are
found by merging lines, and every line of a truth table that no shown transition uses is counted.

Formal contexts: from the rows of a table learn what implies what. The closure of a set must be
what the rows that contain it have in common, for all sets of up to 16 attributes, and for 65,536
random ones of more.

Triples: an example is a pair of entities; the bodies are the relations from one to the other, the
inverses, and the paths of two relations; the heads are the relations. Support and confidence of
the rules are compared with those counted by matrix products.

pip install "latentgamma[realdata]"
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

import latentgamma as lg
from datasets import (
    CONTEXTS,
    Context,
    MissingError,
    Network,
    lines_of_table,
    literal,
    networks,
    tea_ladies,
    triples,
)
from limited import Limited

#: Seeds of the random halves.
SEEDS = (40, 41, 42)
#: Seconds that one row may take.
SECONDS = 240.0


def rows(only: str = "") -> list[dict[str, Any]]:
    """All rows, or those whose data set or method contains a word."""
    table: list[dict[str, Any]] = []
    with Limited() as limited:
        for function, *arguments in cases():
            if only.lower() not in f"{function.__name__} {' '.join(map(str, arguments))}".lower():
                continue
            try:
                row = limited(function, *arguments, seconds=SECONDS)
            except TimeoutError:
                row = {"failed": f"time limit of {SECONDS:.0f} s", "case": str(arguments)}
            except MissingError as missing:
                print(f"{arguments[0]}: left out, {missing}", file=sys.stderr)
                continue
            print(json.dumps(row, ensure_ascii=False), flush=True)
            table.append(row)
    return table


def cases() -> list[tuple[Any, ...]]:
    names: list[str] = []
    try:
        names = sorted(networks(5, 15), key=str.lower)
    except MissingError as missing:
        print(f"Boolean networks: left out, {missing}", file=sys.stderr)
    tables = [*sorted(path.stem for path in CONTEXTS.glob("*.cxt")), "tealady"]
    return [
        *((boolean_network, name, way) for way in ("symbolic", "gradient") for name in names),
        *((context, name) for name in tables),
        *((chains, name) for name in ("UMLS", "Kinships", "Nations")),
    ]


def summary(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What must hold of these rows, and what was reached."""

    def line(about: str, method: str, target: str, mine: list[bool], seeds: str = "") -> None:
        if mine:
            row = {"must hold": about, "method": method, "seeds": seeds, "target": target}
            holds = all(mine) if "none" not in target else ""
            found.append(row | {"reached": f"{sum(mine)} of {len(mine)}", "holds": holds})

    found: list[dict[str, Any]] = []
    for method in ("symbolic", "gradient"):
        mine = [row for row in table if "Boolean network" in row and row["method"] == method]
        halves = f"{SEEDS[0]}–{SEEDS[-1]}"
        shown = [row["all right"] for row in mine if row["unseen lines"] == 0]
        line("Boolean networks, every line shown", method, "all transitions right", shown, halves)
        partly = [row["all right"] for row in mine if row["unseen lines"] > 0]
        line(
            "Boolean networks, some lines not shown",
            method,
            "no target, reported only",
            partly,
            halves,
        )
    tables = [row["all right"] for row in table if "formal context" in row]
    line("formal contexts", "symbolic", "all subsets right", tables)
    counts = [row["counts agree"] for row in table if "triples" in row]
    line("triples", "symbolic", "support and confidence as counted by products", counts)
    umls = [row["isa∘isa ⇒ isa"] == "367 of 367" for row in table if row.get("triples") == "UMLS"]
    line("UMLS", "symbolic", "isa∘isa ⇒ isa, 367 of 367", umls)
    return found


# ---------------------------------------------------------------------- Boolean networks


def boolean_network(name: str, method: str, seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """What is learned about a network from random halves of its transitions."""
    network = networks(5, 15)[name]
    runs = [from_half(network, method, seed) for seed in seeds]
    return {
        "Boolean network": name,
        "nodes": len(network.nodes),
        "transitions shown": 2 ** len(network.nodes) // 2,
        "method": method,
        "seeds": f"{seeds[0]}–{seeds[-1]}",
        "unseen lines": sum(run["unseen lines"] for run in runs),
        "rules": _one_or_all(run["rules"] for run in runs),
        "of them prime": _one_or_all(run["prime"] for run in runs),
        "primes there are": runs[0]["primes there are"],
        "all 2^n right": f"{sum(run['all right'] for run in runs)} of {len(runs)}",
        "all right": all(run["all right"] for run in runs),
        "least right": min(run["right"] for run in runs),
        "certified": all(run["certified"] for run in runs),
        "cpu s": round(sum(run["cpu s"] for run in runs) / len(runs), 1),
    }


def _one_or_all(values: Iterable[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(values)))


def from_half(network: Network, method: str, seed: int) -> dict[str, Any]:
    """What is learned about a network from a random half of its transitions."""
    n = len(network.nodes)
    states = np.arange(2**n)[:, None] >> np.arange(n) & 1 == 1  # (2^n, n)
    after = network.step(states)
    shown = np.random.default_rng(seed).permutation(2**n)[: 2 ** (n - 1)]
    now = [literal(node, value) for node in network.nodes for value in (True, False)]
    later = [f"next {atom}" for atom in now]
    inputs, targets = _both_rails(states), _both_rails(after)
    clock = time.process_time()
    result = lg.fit(
        np.hstack([inputs, np.zeros_like(inputs)])[shown],
        np.hstack([inputs, targets])[shown],
        atoms=[*now, *later],
        heads=later,
        bodies=now,
        max_body=n,
        method=method,
        seed=seed,
        holdout=0.0,
    )
    clock = time.process_time() - clock
    predicted = lg.closures(result.program, np.hstack([inputs, np.zeros_like(inputs)]))
    right = (predicted[:, 2 * n :] == targets).all(1)
    primes = {
        (f"next {literal(node, value)}", body)
        for i, node in enumerate(network.nodes)
        for value in (True, False)
        for body in prime_implicants(network, i, value)
    }
    learned = {(head, rule.body) for rule in result.program.rules for head in rule.heads}
    return {
        "unseen lines": _unseen(network, states[shown]),
        "rules": len(learned),
        "prime": len(learned & primes),
        "primes there are": len(primes),
        "right": float(right.mean()),
        "all right": bool(right.all()),
        "certified": result.certificate.holds,
        "cpu s": clock,
    }


def _both_rails(states: np.ndarray) -> np.ndarray:
    return np.stack([states, ~states], 2).reshape(len(states), -1)


def _unseen(network: Network, shown: np.ndarray) -> int:
    """Lines of truth tables that no shown state uses."""
    return sum(2 ** len(of) - len(np.unique(shown[:, of], axis=0)) for of in network.inputs)


def prime_implicants(network: Network, node: int, value: bool) -> set[frozenset[str]]:
    """The smallest sets of literals that give a node a value, by Quine's merging of lines."""
    of, table = network.inputs[node], network.tables[node]
    level: set[tuple[bool | None, ...]] = {
        line for line in lines_of_table(len(of)) if table[line] == value
    }
    primes: set[tuple[bool | None, ...]] = set()
    while level:
        merged: set[tuple[bool | None, ...]] = set()
        used: set[tuple[bool | None, ...]] = set()
        for line in level:
            for place, bit in enumerate(line):
                other = (*line[:place], not bit, *line[place + 1 :])
                if bit is not None and other in level:
                    merged.add((*line[:place], None, *line[place + 1 :]))
                    used |= {line, other}
        primes |= level - used
        level = merged
    return {
        frozenset(
            literal(network.nodes[i], bit)
            for i, bit in zip(of, line, strict=True)
            if bit is not None
        )
        for line in primes
    }


# ---------------------------------------------------------------------- formal contexts


def context(name: str) -> dict[str, Any]:
    """What is learned from the rows of a table, tried on all subsets of its attributes."""
    table = tea_ladies() if name == "tealady" else Context.read(CONTEXTS / f"{name}.cxt")
    M = len(table.attributes)
    objects = np.array(table.rows)[:, None] >> np.arange(M) & 1 == 1
    clock = time.process_time()
    result = lg.fit(objects, kind="models", atoms=table.attributes, holdout=0.0)
    clock = time.process_time() - clock
    everything = M <= 16
    chosen = np.arange(2**M) if everything else np.random.default_rng(20).integers(0, 2**M, 2**16)
    subsets = chosen[:, None] >> np.arange(M) & 1 == 1
    # A set of random attributes mostly implies all; most of these are parts of a row.
    if not everything:
        subsets[: 3 * 2**14] &= objects[chosen[: 3 * 2**14] % len(objects)]
    wanted = np.array([table.close(int(bits)) for bits in subsets @ (1 << np.arange(M))])
    closed = lg.closures(result.program, subsets) @ (1 << np.arange(M))
    return {
        "formal context": name,
        "objects": len(objects),
        "attributes": M,
        "implications": len(table.implications()),
        "rules": result.program.R,
        "largest body": result.program.k,
        "subsets tried": f"{len(subsets)} {'(all)' if everything else '(random)'}",
        "right": int((closed == wanted).sum()),
        "all right": bool((closed == wanted).all()),
        "certified": result.certificate.holds,
        "cpu s": round(clock, 1),
    }


# ---------------------------------------------------------------------- triples


def chains(name: str, least: int = 10, noise: float = 0.02) -> dict[str, Any]:
    """The rules of one relation or two that give another, out of all pairs of entities."""
    data = triples(name)
    holds = data.holds
    paths = features(data.relations, holds, least)
    bodies, heads = list(paths), [f"then {relation}" for relation in data.relations]
    pairs = np.stack([paths[body].ravel() for body in bodies], 1)
    follows = np.stack([matrix.ravel() for matrix in holds], 1)
    inputs = np.hstack([pairs, np.zeros_like(follows)])
    targets = np.hstack([pairs, follows])
    # A relation is not its own reason.
    own = [(f"then {relation}", relation) for relation in data.relations if relation in paths]
    clock = time.process_time()
    result = lg.fit(
        inputs,
        targets,
        atoms=[*bodies, *heads],
        heads=heads,
        bodies=bodies,
        forbidden=own,
        max_body=1,
        noise=noise,
        holdout=0.0,
    )
    clock = time.process_time() - clock
    agree, sure = True, 0
    best: tuple[int, str] = (0, "")
    for one in result.evidence:
        if not one.rule.body:
            continue
        (body,), (head,) = one.rule.body, one.rule.heads
        inside, true = paths[body], holds[data.relations.index(head.removeprefix("then "))]
        support, right = int(inside.sum()), int((inside & true).sum())
        agree &= one.support == support and round(one.confidence * support) == right
        sure += support == right
        if "∘" in body and support == right:
            best = max(best, (support, f"{body} ⇒ {head.removeprefix('then ')}"))
    isa = {one.rule: one for one in result.evidence}.get(
        lg.Rule(("then isa",), frozenset({"isa∘isa"}))
    )
    claims = lg.closures(result.program, inputs)[:, len(bodies) :]
    return {
        "triples": name,
        "entities": len(data.entities),
        "relations": len(data.relations),
        "true": int(holds.sum()),
        "bodies tried": len(bodies),
        "rules": result.program.R,
        "without exception": sure,
        "counts agree": bool(agree),
        "longest run of a chain": f"{best[1]}, {best[0]} of {best[0]}" if best[0] else "none",
        "isa∘isa ⇒ isa": f"{isa.confidence * isa.support:.0f} of {isa.support}" if isa else "none",
        "explained": round(float((claims & follows).sum() / follows.sum()), 3),
        "right of what they claim": round(float((claims & follows).sum() / claims.sum()), 3),
        "cpu s": round(clock, 1),
    }


def features(relations: list[str], holds: np.ndarray, least: int) -> dict[str, np.ndarray]:
    """Relations, inverses and paths of two relations that join at least so many pairs."""
    found = dict(zip(relations, holds, strict=True))
    found |= {f"{relation}⁻¹": matrix.T for relation, matrix in zip(relations, holds, strict=True)}
    numbers = holds.astype(np.float32)
    for first, a in zip(relations, numbers, strict=True):
        for second, b in zip(relations, numbers, strict=True):
            found[f"{first}∘{second}"] = a @ b > 0
    return {name: matrix for name, matrix in found.items() if matrix.sum() >= least}


if __name__ == "__main__":
    rows(" ".join(sys.argv[1:]))
