"""Rules from observations: by gradient, and by symbolic search.

Other people's data come first (`learn_real.py`), then programs of our generators with fresh seeds,
and at the end what must hold, beside what was reached.

Fact sets have sizes drawn log-uniformly from 2 to M/2. "Transitions" are all steps on the way from
a fact set to its closure, except for G4, where only the first step of each is shown. A program is
exact when its rules are the true ones, those with needlessly large bodies aside; equivalent when
its closures are the same for every fact set. Accuracy is the share of 1,000 fresh fact sets whose
whole closure is right. Transitions identify a rule when some examples need
it, and no other body as short explains these and is refuted by none.

In parts: python benchmarks/learn.py --only g3 --json benchmarks/results/learn.json
Rows already in the file stay there, unless they are measured anew.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import latentgamma as lg
from latentgamma.learning.bodies import covered
from latentgamma.learning.exact import smallest_bodies
from latentgamma.learning.extract import minimal
from limited import Limited

THREE, FIVE = (30, 31, 32), (30, 31, 32, 33, 34)
BOTH = ("gradient", "symbolic")
#: Seconds that one case may take.
SECONDS = 600.0


class Case(NamedTuple):
    """One task, learned once for each method and seed."""

    kind: str
    program: str
    fact_sets: int
    noise: float
    seeds: tuple[int, ...]
    methods: tuple[str, ...] = BOTH

    def __str__(self) -> str:
        return f"{self.kind} {self.program} {self.fact_sets} noise {self.noise}"


CASES = [
    Case("transitions", "random", 500, 0.0, FIVE),
    Case("transitions", "g1", 500, 0.0, THREE),
    Case("transitions", "g2", 500, 0.0, THREE),
    Case("transitions", "g3", 500, 0.0, THREE),
    Case("transitions", "g4", 10000, 0.0, FIVE),
    Case("transitions", "random", 500, 0.05, THREE),
    Case("transitions", "g1", 500, 0.05, THREE),
    Case("transitions", "g2", 500, 0.05, THREE),
    Case("transitions", "g3", 500, 0.05, THREE),
    Case("transitions", "g3", 1000, 0.05, THREE),
    Case("closures", "random", 500, 0.0, FIVE),
    Case("closures", "g1", 2000, 0.0, THREE),
    Case("closures", "g2", 4000, 0.0, THREE),
    Case("closures", "g3", 4000, 0.0, THREE),
    Case("closures", "g4", 4000, 0.0, THREE[:1], ("symbolic",)),
    Case("closures", "g1", 2000, 0.02, THREE, ("symbolic",)),
]
#: The columns that say which measurement a row is.
KEY = ("task", "program", "fact sets", "noise", "method", "seed")


def rows() -> list[dict[str, Any]]:
    """Everything: other people's data, our own programs, and what must hold."""
    import learn_real

    table = [*learn_real.rows(), *measured()]
    return [*table, *summary(table)]


def measured(only: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A row for each case, method and seed whose names contain all these words."""
    table = []
    with Limited() as limited:
        for one in CASES:
            for method in one.methods:
                for seed in one.seeds:
                    names = f"{one} {method} seed {seed}"
                    if not all(word in names for word in only):
                        continue
                    try:
                        row = limited(case, one, method, seed, seconds=SECONDS)
                    except TimeoutError:
                        row = _row(one, method, seed) | {"failed": f"time limit, {SECONDS:.0f} s"}
                    table.append(row)
                    print({k: v for k, v in row.items() if v != ""}, flush=True)
    return table


def case(one: Case, method: str, seed: int) -> dict[str, Any]:
    """What one method makes of one program's observations."""
    program = program_of(one.program, seed)
    rng = np.random.default_rng(100 + seed)
    states = fact_sets(program.M, one.fact_sets, rng)
    closed = one.kind == "closures"
    if closed:
        after = lg.closures(program, states)
    else:
        states, after = transitions(program, states, along=one.program != "g4")
    clean = (states, after)
    after = after ^ (rng.random(after.shape) < one.noise)
    if closed:  # a wrong entry can be a fact as well
        states = states ^ (rng.random(states.shape) < one.noise)
    wall, cpu = time.perf_counter(), time.process_time()
    data: Any = {"kind": one.kind, "atoms": program.atoms, "seed": seed}
    noise = one.noise if closed or one.noise == 0 else "auto"
    result: Any = lg.fit(states, after, method=method, noise=noise, holdout=0.0, **data)
    certified = lg.certify(result.model, result.program).holds
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    fresh = fact_sets(program.M, 1000, np.random.default_rng(9))
    right = lg.closures(result.program, fresh) == lg.closures(program, fresh)
    true, found = rules_of(program), rules_of(result.program)
    return _row(one, method, seed) | {
        "true rules": len(true),
        "identified": "" if closed else len(identified(program, *clean)),
        "found": len(found),
        "of them true": len(true & found),
        "exact": true == found,
        "equivalent": bool(lg.equivalent(result.program, program)),
        "accuracy": float(right.all(1).mean()),
        "aligned rows": lg.learning.alignment(result.model, program).precision,
        "certified": certified,
        "wall s": round(wall, 1),
        "cpu s": round(cpu, 1),
    }


def _row(one: Case, method: str, seed: int) -> dict[str, Any]:
    """The columns of every row, not filled in yet."""
    values = (one.kind, one.program, one.fact_sets, one.noise, method, seed)
    later = "true rules, identified, found, of them true, exact, equivalent, accuracy, "
    later += "aligned rows, certified, wall s, cpu s, failed"
    return dict(zip(KEY, values, strict=True)) | dict.fromkeys(later.split(", "), "")


# ---------------------------------------------------------------------- what must hold


class Promise(NamedTuple):
    """What must hold of the rows of some cases."""

    case: str
    target: str
    kept: Callable[[list[dict[str, Any]]], bool]
    shown: Callable[[list[dict[str, Any]]], str]
    methods: tuple[str, ...] = BOTH


def _share(column: str) -> Callable[[list[dict[str, Any]]], str]:
    return lambda rows: f"{sum(row[column] is True for row in rows)} of {len(rows)}"


def _exact(rows: list[dict[str, Any]]) -> str:
    told = _told(rows)
    among = sum(row["exact"] is True for row in told)
    return f"{_share('exact')(rows)}; {among} of the {len(told)} that the data identify"


def _least(column: str) -> Callable[[list[dict[str, Any]]], str]:
    return lambda rows: f"{column} {min(_number(row[column]) for row in rows):.4g}"


def _number(value: Any) -> float:
    return 0.0 if value == "" else float(value)


def _all(column: str) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda rows: all(row[column] is True for row in rows)


def _at_least(column: str, value: float) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda rows: all(_number(row[column]) >= value for row in rows)


def _told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of programs that the data identify."""
    return [row for row in rows if row["true rules"] == row["identified"]]


def _exact_in_time(rows: list[dict[str, Any]]) -> list[bool]:
    return [row["exact"] is True and _number(row["cpu s"]) <= 180 for row in _told(rows)]


PROMISES = [
    *(
        Promise(f"transitions {name} 500 noise 0.0", "exact, all seeds", _all("exact"), _exact)
        for name in ("random", "g1", "g2", "g3")
    ),
    Promise(
        "transitions g4 10000 noise 0.0",
        "exact on 4 of 5 of those identified, 3 CPU minutes each",
        lambda rows: bool(_told(rows) and np.mean(_exact_in_time(rows)) >= 0.8),
        lambda rows: (
            f"{sum(_exact_in_time(rows))} of {len(_told(rows))} identified, of {len(rows)}"
        ),
    ),
    *(
        Promise(f"transitions {name} noise 0.05", "exact, all seeds", _all("exact"), _exact)
        for name in ("g1 500", "g2 500", "g3 500", "g3 1000")
    ),
    *(
        Promise(
            f"closures {name} noise 0.0",
            "equivalent, all seeds",
            _all("equivalent"),
            _share("equivalent"),
        )
        for name in ("g1 2000", "g2 4000")
    ),
    Promise(
        "closures g3 4000 noise 0.0",
        "accuracy from .999",
        _at_least("accuracy", 0.999),
        _least("accuracy"),
    ),
    Promise(
        "closures g4 4000 noise 0.0",
        "attempted",
        lambda rows: True,
        lambda rows: rows[0]["failed"] or f"accuracy {rows[0]['accuracy']}",
        ("symbolic",),
    ),
    Promise(
        "closures g1 2000 noise 0.02",
        "accuracy from .99",
        _at_least("accuracy", 0.99),
        _least("accuracy"),
        ("symbolic",),
    ),
]


def summary(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What must hold, and what was reached."""
    import learn_real

    found = learn_real.summary(table)
    for promise in PROMISES:
        for method in promise.methods:
            mine = [
                row
                for row in table
                if "task" in row
                and row["method"] == method
                and promise.case
                == f"{row['task']} {row['program']} {row['fact sets']} noise {row['noise']}"
            ]
            if mine:
                found.append(
                    {
                        "must hold": promise.case,
                        "method": method,
                        "seeds": f"{mine[0]['seed']}–{mine[-1]['seed']}",
                        "target": promise.target,
                        "reached": promise.shown(mine),
                        "holds": promise.kept(mine),
                    }
                )
    return found


# ---------------------------------------------------------------------- programs and data


def program_of(name: str, seed: int) -> lg.Program:
    if name == "random":
        return lg.generators.random(10, 15, seed=seed)
    make = {"g1": lg.generators.g1, "g2": lg.generators.g2, "g3": lg.generators.g3}
    return make.get(name, lg.generators.g4)(seed=seed)


def fact_sets(M: int, count: int, rng: np.random.Generator) -> np.ndarray:
    states = np.zeros((count, M), bool)
    for row in states:
        size = int(np.exp(rng.uniform(np.log(2), np.log(M / 2))))
        row[rng.choice(M, size, replace=False)] = True
    return states


def transitions(
    program: lg.Program, states: np.ndarray, *, along: bool
) -> tuple[np.ndarray, np.ndarray]:
    before, after = [], []
    while len(states):
        following = step(program, states)
        before.append(states)
        after.append(following)
        if not along:
            break
        states = following[(following != states).any(1)]
    return np.concatenate(before), np.concatenate(after)


def step(program: lg.Program, states: np.ndarray) -> np.ndarray:
    after = states.copy()
    for j in range(program.R):
        after[:, program.heads_of(j)] |= states[:, program.body_of(j)].all(1)[:, None]
    return after


def rules_of(program: lg.Program) -> set[tuple[int, tuple[int, ...]]]:
    return set(
        minimal(
            (int(head), tuple(program.body_of(j).tolist()))
            for j in range(program.R)
            for head in program.heads_of(j)
        )
    )


def identified(
    program: lg.Program, states: np.ndarray, after: np.ndarray
) -> set[tuple[int, tuple[int, ...]]]:
    """The rules that examples need, and that are the only shortest way to explain these."""
    true = sorted(rules_of(program))
    found = set()
    for head in {head for head, _ in true}:
        bodies = [body for other, body in true if other == head]
        open_rows = ~states[:, head]
        inside = [covered(states, body) & open_rows for body in bodies]
        times = np.sum(inside, axis=0)
        negatives = states[open_rows & ~after[:, head]]
        for body, mine in zip(bodies, inside, strict=True):
            needing = states[mine & (times == 1)]
            if not len(needing):
                continue
            shared = np.flatnonzero(needing.all(0))
            options = smallest_bodies(~negatives[:, shared], len(body)).bodies
            if options == [tuple(np.searchsorted(shared, body).tolist())]:
                found.add((head, body))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], help="words that a case's name contains")
    parser.add_argument("--json", type=Path, help="the file to add the rows to")
    parser.add_argument("--threads", type=int, default=2, help="threads for everyone (default 2)")
    given = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(given.threads)
    words = tuple(given.only)
    if words[:1] == ("real",):
        from learn_real import rows as real

        new = real(" ".join(words[1:]))
    else:
        new = measured(words)
    if given.json:
        new = merged(given.json, new)
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        about = {"benchmark": "learn", "threads": given.threads, **machine}
        given.json.write_text(
            json.dumps({"about": about, "rows": new}, indent=1, default=str), encoding="utf-8"
        )
    for row in summary(new):
        print(row)
    return 0


def merged(path: Path, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a file and the new ones, in the order of a whole run, with the summary."""
    old = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []

    def name(row: dict[str, Any]) -> tuple[str, ...]:
        columns = KEY if "task" in row else [*list(row)[:1], "method", "seed"]
        return tuple(str(row.get(column, "")) for column in columns)

    kept = {name(row): row for row in (*old, *new) if "must hold" not in row}
    real = [row for row in kept.values() if "task" not in row]
    blocks = list(dict.fromkeys(tuple(row) for row in real))
    real.sort(key=lambda row: blocks.index(tuple(row)))
    order = [
        tuple(map(str, (one.kind, one.program, one.fact_sets, one.noise, method, seed)))
        for one in CASES
        for method in one.methods
        for seed in one.seeds
    ]
    own = [kept[key] for key in order if key in kept]
    return [*real, *own, *summary([*real, *own])]


if __name__ == "__main__":
    sys.exit(main())
