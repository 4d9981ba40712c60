"""Rules with variables: time to ground, to close one fact set, and to close 1,000 variations of it.

Three programs on generated graphs of growing size: transitive closure, same generation, and a
points-to analysis. Everyone gets the same facts, and the answers are compared. clingo grounds the
same text, and closes a variation by switching externals (multi-shot solving); it does a part of the
1,000 variations, and `thousand_s` is scaled. egglog, if it is installed, evaluates one fact set. The
first table shows grounding alone, each in a process of its own, with its peak memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clingo
import numpy as np

import latentgamma as lg

Row = dict[str, Any]
Facts = dict[str, list[tuple[int, ...]]]

RULES = {
    "transitive closure": """
        path(X,Y) :- edge(X,Y).
        path(X,Z) :- edge(X,Y), path(Y,Z).
    """,
    "same generation": """
        same(X,Y) :- parent(X,P), parent(Y,P), X != Y.
        same(X,Y) :- parent(X,P), same(P,Q), parent(Y,Q).
    """,
    "points-to": """
        points(V,O) :- new(V,O).
        points(V,O) :- copy(V,W), points(W,O).
        points(V,O) :- load(V,W,F), points(W,P), heap(P,F,O).
        heap(P,F,O) :- store(V,F,W), points(V,P), points(W,O).
    """,
}
#: For each program the sizes of its graphs.
SIZES = {
    "transitive closure": (30, 90, 200),
    "same generation": (60, 200, 640),
    "points-to": (60, 150, 350),
}
VARIATIONS = 1000
#: How many of them clingo does, at most, and for how many seconds.
CLINGO_VARIATIONS, CLINGO_SECONDS = 50, 20.0


def edges(rng: np.random.Generator, n: int, count: int) -> list[tuple[int, ...]]:
    return sorted({(int(a), int(b)) for a, b in rng.integers(0, n, (count, 2)) if a != b})


def facts_of(name: str, n: int, seed: int = 0) -> Facts:
    rng = np.random.default_rng(seed)
    if name == "transitive closure":
        return {"edge": edges(rng, n, 3 * n)}
    if name == "same generation":
        tree = [(i, int(rng.integers(max(0, i // 3 - 2), i // 3 + 1))) for i in range(1, n)]
        return {"parent": sorted({pair for pair in tree if pair[0] != pair[1]})}
    fields = rng.integers(0, 4, n)
    heap = edges(rng, n, n // 2)
    return {
        "new": [(i, i) for i in range(0, n, 3)],
        "copy": edges(rng, n, n),
        "load": [(a, b, int(f)) for (a, b), f in zip(edges(rng, n, n // 3), fields, strict=False)],
        "store": [(a, int(f), b) for (a, b), f in zip(heap, fields, strict=False)],
    }


def atoms_of(facts: Facts) -> list[str]:
    return [f"{name}({','.join(map(str, row))})" for name, rows in facts.items() for row in rows]


def opened(facts: Facts) -> list[str]:
    return [f"{name}/{len(rows[0])}" for name, rows in facts.items()]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


# ---------------------------------------------------------------------- contenders


def clingo_text(name: str, facts: Facts) -> str:
    """The text with every fact as an external, which clingo keeps open."""
    return RULES[name] + "".join(f"#external {atom}.\n" for atom in atoms_of(facts))


def clingo_control(text: str) -> clingo.Control:
    control = clingo.Control(["--warn=none"])
    control.add("base", [], text)
    control.ground([("base", [])])
    return control


def clingo_answer(control: clingo.Control, given: list[clingo.Symbol]) -> int:
    """The number of true atoms, after switching the given ones on and off again."""
    for symbol in given:
        control.assign_external(symbol, True)
    with control.solve(yield_=True) as handle:
        size = len(handle.model().symbols(atoms=True))
    for symbol in given:
        control.assign_external(symbol, False)
    return size


def clingo_variations(
    control: clingo.Control, atoms: list[str], chosen: np.ndarray
) -> tuple[float, list[int]]:
    """Seconds for one variation, and the sizes of the answers."""
    symbols = [clingo.parse_term(atom) for atom in atoms]
    sizes: list[int] = []
    start = time.perf_counter()
    for row in chosen[:CLINGO_VARIATIONS]:
        sizes.append(clingo_answer(control, [symbols[i] for i in np.flatnonzero(row)]))
        if time.perf_counter() - start > CLINGO_SECONDS:
            break
    return (time.perf_counter() - start) / len(sizes), sizes


def egglog_answer(name: str, facts: Facts) -> tuple[float, int] | None:
    """Seconds for one fact set, and the number of derived atoms; None if egglog is not there."""
    try:
        from egglog import bindings
    except ImportError:
        return None
    arities = {n: len(rows[0]) for n, rows in facts.items()}
    derived = {
        "transitive closure": {"path": 2},
        "same generation": {"same": 2},
        "points-to": {"points": 2, "heap": 3},
    }[name]
    lines = [f"(relation {n} ({' '.join(['i64'] * k)}))" for n, k in {**arities, **derived}.items()]
    lines += _egglog_rules(RULES[name])
    lines += [f"({n} {' '.join(map(str, row))})" for n, rows in facts.items() for row in rows]
    lines.append("(run 1000000)")
    graph = bindings.EGraph()
    program = graph.parse_program("\n".join(lines))
    seconds, _ = timed(lambda: graph.run_program(*program))
    asked = graph.parse_program("\n".join(f"(print-size {n})" for n in derived))
    sizes = graph.run_program(*asked)
    return seconds, sum(_size(found) for found in sizes)


def _size(found: Any) -> int:
    text = str(found)
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return int(digits[-1])


def _egglog_rules(text: str) -> list[str]:
    """The rules as egglog writes them; they have plain atoms and '!=' alone."""
    import re

    rules = []
    for rule in filter(None, (part.strip() for part in text.split("."))):
        head, _, body = rule.partition(":-")
        atoms = re.findall(r"(\w+)\(([^)]*)\)", body)
        terms = [f"({name} {arguments.replace(',', ' ')})" for name, arguments in atoms]
        terms += [f"(!= {a} {b})" for a, b in re.findall(r"(\w+) != (\w+)", body)]
        ((name, arguments),) = re.findall(r"(\w+)\(([^)]*)\)", head)
        rules.append(f"(rule ({' '.join(terms)}) (({name} {arguments.replace(',', ' ')})))")
    return rules


# ---------------------------------------------------------------------- what is measured


def variations(name: str, n: int) -> list[Row]:
    """The rows of one program on one graph."""
    facts = facts_of(name, n)
    atoms = atoms_of(facts)
    rng = np.random.default_rng(1)
    chosen = rng.random((VARIATIONS, len(atoms))) < 0.9
    chosen[0] = True
    ground_s, program = timed(
        lambda: lg.datalog.ground(RULES[name], open=opened(facts), facts=facts)
    )
    places = np.array([program.index[atom] for atom in atoms])
    given = np.zeros((VARIATIONS, program.M), np.bool_)
    given[:, places] = chosen
    lg.closure(program, given[0])
    lg.closures(program, given[:64])  # compiled code is loaded, and kept on disk
    one_s, closed = timed(lambda: lg.closure(program, given[0]))
    many_s, answers = timed(lambda: lg.closures(program, given))
    planes = lg.logic.pack(given)
    packed_s, packed = timed(lambda: lg.closures(program, planes, packed=True))
    assert np.array_equal(lg.logic.unpack(packed, VARIATIONS), answers)
    clingo_ground_s, control = timed(lambda: clingo_control(clingo_text(name, facts)))
    each_s, sizes = clingo_variations(control, atoms, chosen)
    assert sizes == answers[: len(sizes)].sum(1).tolist()
    size = {"job": f"{name}, {n} nodes", "R": program.R, "M": program.M, "open facts": len(atoms)}
    rows = [
        {**size, "who": "LatentGamma", "ground_s": ground_s, "one_s": one_s, "thousand_s": many_s,
         "times": 1.0},
        {**size, "who": "LatentGamma, bit planes", "ground_s": ground_s, "one_s": one_s,
         "thousand_s": packed_s, "times": packed_s / many_s},
        {**size, "who": "clingo, multi-shot", "ground_s": clingo_ground_s, "one_s": each_s,
         "thousand_s": each_s * VARIATIONS, "times": each_s * VARIATIONS / many_s},
    ]  # fmt: skip
    if found := egglog_answer(name, facts):
        seconds, derived = found
        assert derived == len(closed) - len(atoms)
        rows.append(
            {**size, "who": "egglog", "ground_s": None, "one_s": seconds,
             "thousand_s": seconds * VARIATIONS, "times": seconds * VARIATIONS / many_s}
        )  # fmt: skip
    return rows


GROUND_ALONE = """
import json, resource, sys, time
who, path = sys.argv[1:]
if who == "clingo":
    import clingo
    start = time.perf_counter(), time.process_time()
    control = clingo.Control(["--warn=none"])
    control.load(path)
    control.ground([("base", [])])
    rules = None
else:
    import latentgamma as lg
    lg.datalog.ground("p(X) :- q(X). q(1).")
    start = time.perf_counter(), time.process_time()
    rules = lg.datalog.ground(path).R
print(json.dumps({
    "seconds": time.perf_counter() - start[0],
    "cpu_s": time.process_time() - start[1],
    "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "R": rules,
}))
"""


def grounding(nodes: int = 600, rounds: int = 3) -> list[Row]:
    """Grounding a million rules: clingo and us, each in a process of its own, the best of three."""
    name = "transitive closure"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.lp"
        path.write_text(clingo_text(name, facts_of(name, nodes)), encoding="utf-8")
        found: dict[str, Row] = {}
        for _ in range(rounds):
            for who in ("LatentGamma", "clingo"):
                command = [sys.executable, "-c", GROUND_ALONE, who, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                row = json.loads(done.stdout)
                if who not in found or row["cpu_s"] < found[who]["cpu_s"]:
                    found[who] = row
        ours = found["LatentGamma"]
        for who, row in found.items():
            rows.append(
                {"part": "grounding alone", "who": who, "R": ours["R"], "seconds": row["seconds"],
                 "cpu_s": row["cpu_s"], "peak_MB": round(row["peak_MB"]),
                 "times": row["cpu_s"] / ours["cpu_s"]}
            )  # fmt: skip
    return rows


def rows() -> list[Row]:
    found = grounding()
    for name, sizes in SIZES.items():
        for n in sizes:
            found += variations(name, n)
    return found
