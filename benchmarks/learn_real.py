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

pip install --no-deps cana neet pykeen
"""

from __future__ import annotations

import json
import sys
import time
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

#: Seeds of the random halves; the gradient learner gets the first one alone.
SEEDS = (20, 21, 22)
SECONDS = 240.0
METHODS = ("symbolic", "gradient")


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
    found: list[tuple[Any, ...]] = []
    try:
        names = sorted(networks(5, 15), key=lambda name: (name.partition(":")[0], name.lower()))
    except MissingError as missing:
        print(f"Boolean networks: left out, {missing}", file=sys.stderr)
        names = []
    found += [(boolean_network, name, "symbolic", seed) for name in names for seed in SEEDS]
    found += [(boolean_network, name, "gradient", SEEDS[0]) for name in names]
    found += [
        (context, name) for name in (*sorted(p.stem for p in CONTEXTS.glob("*.cxt")), "tealady")
    ]
    found += [(chains, name) for name in ("UMLS", "Kinships", "Nations")]
    return found


# ---------------------------------------------------------------------- Boolean networks


def boolean_network(name: str, method: str, seed: int) -> dict[str, Any]:
    """What is learned about a network from a random half of its transitions."""
    network = networks(5, 15)[name]
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
        "Boolean network": name,
        "nodes": n,
        "shown": f"{len(shown)} of {2**n}",
        "unseen lines": _unseen(network, states[shown]),
        "method": method,
        "seed": seed,
        "rules": len(learned),
        "prime": len(learned & primes),
        "primes there are": len(primes),
        "right": f"{right.sum()} of {2**n}",
        "all right": bool(right.all()),
        "certified": result.certificate.holds,
        "cpu s": round(clock, 1),
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
    explained = lg.closures(result.program, inputs)[:, len(bodies) :] & follows
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
        "true ones explained": round(float(explained.sum() / follows.sum()), 3),
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
