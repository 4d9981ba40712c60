"""How long a fresh process takes: the command line, its peers' imports, and compiled kernels.

`seconds` is the wall time of a whole process, the median of five. Of the kernels it is a process
that finds an empty cache, and then one that finds them there; `compiled` counts what was added to
the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ANIMALS = Path(__file__).parents[1] / "examples" / "animals.lp"
FACTS = "has_feathers,swims,black_and_white"

COMMAND = f"""
import sys
from latentgamma.cli.main import main
code = main(["closure", {str(ANIMALS)!r}, "--facts", {FACTS!r}])
print("torch" in sys.modules, "numba" in sys.modules, file=sys.stderr)
sys.exit(code)
"""

CLINGO = f"""
import clingo
facts = " ".join(f + "." for f in {FACTS!r}.split(","))
rules = open({str(ANIMALS)!r}, encoding="utf-8").read()
rules = rules.replace("eats_fish, lays_eggs :- penguin.", "eats_fish :- penguin. lays_eggs :- penguin.")
control = clingo.Control(["--warn=none"])
control.add("base", [], rules + facts)
control.ground([("base", [])])
control.solve(on_model=print)
"""

CLOSURES = """
import time
import numpy as np
import latentgamma as lg
program = lg.generators.chain(500, body=2)
given = np.zeros((250_000, 500), bool)  # enough that compiling pays
given[:, :2] = True
start = time.perf_counter()
lg.closures(program, given)
print(time.perf_counter() - start)
"""

OPERATOR = """
import time
import torch
import latentgamma as lg
model = lg.oracle(lg.generators.g4(), form="sparse")
state = torch.zeros(32, model.M, requires_grad=True)
start = time.perf_counter()
model(state, 4).sum().backward()
print(time.perf_counter() - start)
"""

# The import of what the call needs is a part of it: `latentgamma` imports a name when it is used.
FIRST_CALL = """
import sys, time
import numpy as np
import latentgamma as lg
sys.path.insert(0, {here!r})
program = lg.generators.g4()
rng = np.random.default_rng(1)
given = rng.random((20_000, program.M)) < 0.05
if {few}:  # two to eight facts
    given = rng.random(given.shape).argsort(1) < rng.integers(2, 9, (len(given), 1))
start = time.perf_counter()
closed = lg.closures(program, given)
ours = time.perf_counter() - start
import closure
questions = [(np.flatnonzero(row) + 1).tolist() for row in given[:1000]]
with closure.pysat({solver!r}, program) as solver:
    for question, row in zip(questions, closed):
        assert sorted(solver.propagate(assumptions=question)[1]) == (np.flatnonzero(row) + 1).tolist()
    work = lambda: [solver.propagate(assumptions=question) for question in questions]
    theirs = closure.best(work, 20) * 20
print(ours, theirs)
"""

PROCESSES = {
    "python": "pass",
    "import numpy": "import numpy",
    "import latentgamma": "import latentgamma",
    "latentgamma closure examples/animals.lp": COMMAND,
    "clingo, the same rules": CLINGO,
    "import torch": "import torch",
}


def process(code: str, **environment: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """The seconds a process takes, and what it said. It uses bytecode, as an installed package."""
    env = {**os.environ, **environment}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )
    return time.perf_counter() - start, done


def starts(rounds: int = 5) -> list[dict[str, Any]]:
    """A row for each way to start, in turns, after one turn that is not counted."""
    times: dict[str, list[float]] = {who: [] for who in PROCESSES}
    said: dict[str, subprocess.CompletedProcess[str]] = {}
    for turn in range(rounds + 1):
        for who, code in PROCESSES.items():
            seconds, said[who] = process(code)
            times[who] += [seconds] if turn else []
    rows = []
    for who, done in said.items():
        row: dict[str, Any] = {"job": "start", "who": who, "seconds": median(times[who])}
        row |= {"best_s": min(times[who]), "rounds": rounds, "torch_imported": ""}
        if done.returncode:
            row["failed"] = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
        elif who.startswith("latentgamma "):
            row["torch_imported"] = done.stderr.split()[-2] == "True"
            missing = {"penguin", "needs_ice"} - set(done.stdout.replace(",", " ").split())
            if missing:
                row["failed"] = f"the answer lacks {missing}"
        rows.append(row)
    return rows


def kernels() -> list[dict[str, Any]]:
    """What the first and the second process pay for compiled loops."""
    rows = []
    for what, code in (("closures", CLOSURES), ("operator, forward and backward", OPERATOR)):
        with tempfile.TemporaryDirectory() as folder:
            known = 0
            for which in ("first", "second"):
                seconds, done = process(code, NUMBA_CACHE_DIR=folder)
                found = len(list(Path(folder).rglob("*.nbc")))
                row = {"job": "kernels", "who": f"{what}, {which} process", "seconds": seconds}
                row |= {"first_call_s": "", "compiled": found - known}
                if done.returncode:
                    row["failed"] = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
                else:
                    row["first_call_s"] = float(done.stdout)
                known = found
                rows.append(row)
    return rows


def first_calls(rounds: int = 5) -> list[dict[str, Any]]:
    """The first `closures` of a process, 20,000 fact sets of G4, beside PySAT's fastest solver."""
    rows = []
    for who, few in (("closures, 5% of the atoms given", False), ("closures, 2 to 8 facts", True)):
        times: list[tuple[float, float]] = []
        for turn in range(rounds + 1):
            here = str(Path(__file__).parent)
            code = FIRST_CALL.format(here=here, few=few, solver="glucose4")
            done = process(code)[1]
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return rows
            ours, theirs = map(float, done.stdout.split())
            times += [(ours, theirs)] if turn else []
        ours, theirs = (median(column) for column in zip(*times, strict=True))
        row = {"job": "first call, 20,000 fact sets of G4", "who": who, "first_call_s": ours}
        rows.append(row | {"pysat_s": theirs, "pysat / ours": theirs / ours})
    return rows


def rows() -> list[dict[str, Any]]:
    """Every measurement."""
    return [*starts(), *kernels(), *first_calls()]
