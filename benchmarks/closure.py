"""Closures: this library, PySAT's `propagate` and clingo's multi-shot solving in one run.

Everyone answers the same questions, and the answers are compared before a time is reported. A
time is the best of several rounds after a warm-up, with the program loaded.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import clingo
import numpy as np
from pysat.solvers import Solver

from latentgamma import Program, closure, closures
from latentgamma.logic import pack, unpack

SOLVERS = ("minicard", "glucose4", "cadical153")
THREADS = 2

Row = dict[str, Any]


def best(
    work: Callable[[], Any], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The shortest of several timings, after one that is not counted."""
    times = []
    for _ in range(rounds + 1):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times[1:])


def versions() -> Row:
    """What was measured, and on what."""
    packages = ("latentgamma", "numpy", "numba", "clingo", "python-sat")
    return {
        "threads": THREADS,
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


# ---------------------------------------------------------------------- programs


def layered_program(*, layers: int = 32, hubs: int = 12, seed: int = 0) -> Program:
    """A program with M = 504, R = 648, k = 2: facts flow down the layers, hubs conjoin."""
    M, R = 504, 648
    rng = np.random.default_rng(seed)
    layer = np.sort(np.arange(M) % layers)
    members = [np.flatnonzero(layer == d) for d in range(layers)]
    rules = [(h, {int(rng.choice(members[layer[h] - 1]))}) for h in range(len(members[0]), M)]
    hub = rng.choice(np.arange(M // 2, M), hubs, replace=False)
    while len(rules) < R:
        h = int(rng.choice(hub))
        above, any_above = layer[h] - 1, rng.integers(0, layer[h])
        body = {int(rng.choice(members[above])), int(rng.choice(members[any_above]))}
        if len(body) == 2:
            rules.append((h, body))
    bodies = [sorted(body) for _, body in rules]
    return Program.from_arrays(
        np.cumsum([0, *map(len, bodies)]), np.concatenate(bodies), [h for h, _ in rules], atoms=M
    )


def random_program(R: int, *, k: int = 3, seed: int = 0) -> Program:
    """A program with as many atoms as rules, uniformly random: no locality to profit from."""
    rng = np.random.default_rng(seed)
    bodies, heads = rng.integers(0, R, (R, k)), rng.integers(0, R, R)
    return Program.from_arrays(np.arange(0, R * k + 1, k), bodies.ravel(), heads, atoms=R)


def random_facts(M: int, share: float, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.choice(M, int(M * share), replace=False)


# ---------------------------------------------------------------------- peers


@contextmanager
def pysat(name: str, program: Program) -> Iterator[Any]:
    """A PySAT solver that holds the program."""
    bodies = (-1 - program.body_indices).tolist()
    ends, heads = program.body_indptr.tolist(), (program.head_indices + 1).tolist()
    with Solver(name) as solver:
        for j, head in enumerate(heads):
            solver.add_clause([*bodies[ends[j] : ends[j + 1]], head])
        yield solver


def clingo_control(program: Program) -> clingo.Control:
    """A clingo control that holds the program, with one external per atom for the facts."""
    lines = [f"#external f({i}). t({i}) :- f({i})." for i in range(program.M)]
    for j in range(program.R):
        body = ", ".join(f"t({i})" for i in program.body_of(j))
        lines.append(f"t({program.heads_of(j)[0]}) :- {body}.")
    control = clingo.Control(["--warn=none"])
    control.add("base", [], "\n".join([*lines, "#show t/1."]))
    control.ground([("base", [])])
    return control


def clingo_closures(control: clingo.Control, fact_sets: list[list[int]]) -> list[set[int]]:
    """The closure of each set, by switching its externals on and off again."""
    answers = []
    for facts in fact_sets:
        externals = [clingo.Function("f", [clingo.Number(i)]) for i in facts]
        for external in externals:
            control.assign_external(external, True)
        with control.solve(yield_=True) as handle:
            model = next(iter(handle))
            answers.append({symbol.arguments[0].number for symbol in model.symbols(shown=True)})
        for external in externals:
            control.assign_external(external, False)
    return answers


# ---------------------------------------------------------------------- what is measured


def many_sets(N: int = 50_000, *, peer_sets: int = 1_000, clingo_sets: int = 50) -> list[Row]:
    """(a) Many small fact sets of one small program; a ratio is the peer's time over ours.

    Everyone gets the best of 100 rounds of about ten milliseconds (clingo: of 20), so that a busy
    machine treats them alike; the peers answer as many of the sets as fit in there, and ten
    times as many when the answers are compared.
    """
    import numba  # noqa: F401 - so that small calls use compiled code, too

    program = layered_program()
    sets, given = small_sets(program, N)
    answers = closures(program, given, threads=THREADS)
    expected = [set(np.flatnonzero(row).tolist()) for row in answers[: 10 * peer_sets]]
    setting = {"M": program.M, "R": program.R, "k": program.k, "rho_max": program.rho_max}
    questions = [[i + 1 for i in facts] for facts in sets[: 10 * peer_sets]]
    rows: list[Row] = []

    def add(name: str, seconds: float, count: int) -> None:
        own = rows[0]["per_set"] if rows else seconds / count
        rows.append(
            {"part": "a", "name": name, "seconds": seconds, "sets": count}
            | {"per_set": seconds / count, "ratio": seconds / count / own, **setting}
        )

    add("latentgamma", best(lambda: closures(program, given, threads=THREADS), 100), N)
    assert np.array_equal(closures(program, sets, threads=THREADS), answers)
    planes = pack(given)
    out = closures(program, planes, packed=True)
    assert np.array_equal(unpack(out, N), answers)
    seconds = best(lambda: closures(program, planes, packed=True, threads=THREADS, out=out), 100)
    add("latentgamma, bit planes", seconds, N)
    add("latentgamma, lists", best(lambda: closures(program, sets, threads=THREADS)), N)
    for name, seconds, count in in_a_fresh_process():
        add(name, seconds, count)
    for name in SOLVERS:
        with pysat(name, program) as solver:
            got = [{i - 1 for i in solver.propagate(assumptions=q)[1]} for q in questions]
            assert got == expected, f"{name} disagrees"
            timed = questions[:peer_sets]
            seconds = best(lambda s=solver, t=timed: [s.propagate(assumptions=q) for q in t], 100)
        add(f"pysat {name}", seconds, peer_sets)
    control = clingo_control(program)
    checked = sets[: 10 * clingo_sets]
    assert clingo_closures(control, checked) == expected[: len(checked)]
    seconds = best(lambda: clingo_closures(control, sets[:clingo_sets]), 20)
    add("clingo", seconds, clingo_sets)
    return rows


def small_sets(program: Program, N: int) -> tuple[list[list[int]], np.ndarray]:
    """N fact sets of two to eight atoms, as lists and as rows."""
    rng = np.random.default_rng(1)
    sets = [rng.choice(program.M, rng.integers(2, 9), replace=False).tolist() for _ in range(N)]
    given = np.zeros((N, program.M), bool)
    for row, facts in zip(given, sets, strict=True):
        row[facts] = True
    return sets, given


def in_a_fresh_process() -> list[tuple[str, float, int]]:
    """Repeated calls on boolean rows in a process that has not imported numba."""
    ran = subprocess.run([sys.executable, __file__, "--fresh"], capture_output=True, check=True)
    return [tuple(row) for row in json.loads(ran.stdout)]


def repeated_calls(N: int = 20_000, calls: int = 120) -> list[tuple[str, float, int]]:
    """The best of the first five calls, which numpy computes, and of the last twenty."""
    program = layered_program()
    _, given = small_sets(program, N)
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        closures(program, given, threads=THREADS)
        times.append(time.perf_counter() - start)
    name = "latentgamma, repeated calls in a fresh process"
    return [
        (f"{name}: first five", min(times[:5]), N),
        (f"{name}: after {calls - 20}", min(times[-20:]), N),
    ]


def one_large(R: int = 1_000_000, *, share: float = 0.5) -> list[Row]:
    """(b) One fact set of one large program; a ratio is the peer's time over ours."""
    program = random_program(R)
    facts = random_facts(program.M, share)
    known = closure(program, facts)
    setting = {"M": program.M, "R": R, "k": program.k, "derived": len(known), "depth": known.depth}
    own = best(lambda: closure(program, facts), 10)
    rows = [{"part": "b", "name": "latentgamma", "seconds": own, "ratio": 1.0, **setting}]
    assumptions = (facts + 1).tolist()
    for name in SOLVERS:
        with pysat(name, program) as solver:
            literals = np.asarray(solver.propagate(assumptions=assumptions)[1])
            assert np.array_equal(np.sort(literals) - 1, np.flatnonzero(known.state)), name
            seconds = best(lambda s=solver: s.propagate(assumptions=assumptions), 10)
        name = f"pysat {name}"
        rows.append({"part": "b", "name": name, "seconds": seconds, "ratio": seconds / own})
    return rows


def scaling(*, share: float = 0.5) -> list[Row]:
    """(c) The cost of one literal as programs grow; a ratio is to our cheapest.

    This runs in one thread, and `per_literal` is its processor time: on a busy machine a long
    run is interrupted and a short one is not, which would look like a cost of size.
    """
    rows: list[Row] = []
    for R in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        program = random_program(R)
        facts = random_facts(program.M, share)
        with pysat("minicard", program) as solver:
            asked = (facts + 1).tolist()
            works = {
                "latentgamma": lambda p=program, f=facts: closure(p, f),
                "pysat minicard": lambda s=solver, a=asked: s.propagate(assumptions=a),
            }
            for name, work in works.items():
                seconds, busy = best(work, 20), best(work, 20, time.thread_time)
                row = {"part": "c", "name": name, "R": R, "seconds": seconds}
                rows.append(row | {"per_literal": busy / program.size})
    least = min(row["per_literal"] for row in rows if row["name"] == "latentgamma")
    return [row | {"ratio": row["per_literal"] / least} for row in rows]


def rows() -> list[Row]:
    """Every measurement."""
    return [*many_sets(), *one_large(), *scaling()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the measurements there")
    parser.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fresh:
        print(json.dumps(repeated_calls()))
        sys.exit()
    measured = rows()
    for row in measured:
        shown = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}
        print("  ".join(f"{k}={v}" for k, v in shown.items()))
    print(versions())
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"versions": versions(), "rows": measured}, file, indent=2)
