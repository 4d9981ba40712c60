"""Two jobs given to this library, to what one would write instead, and to other engines.

The jobs are the closures of 500 fact sets: of a chain of 500 atoms, and of G4. Each contender
(contenders.py) gets the same file in a process of its own and hands back its answers, which are
compared with `closures` here. An error, a missing package or a time-out is a row that says so.

The others live in a virtual environment that is made when it is missing: benchmarks/.peers, with
the versions of peers.txt. `seconds` is the median of `rounds` runs after one that is not counted
(`first_s`, which may compile or load); what a contender does once for a program is `build_s`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from contenders import CONTENDERS, Contender, Job

HERE = Path(__file__).parent
ENVIRONMENT = HERE / ".peers"
PYTHON = ENVIRONMENT / "bin" / "python"
YARDSTICKS = {"closures": "times_closures", "sparse operator": "times_operator"}
ROUNDS, SPENT = 50, 5.0  # the most rounds, and the seconds after which no new one starts
MEMORY = 0.75  # of the machine's, for one contender
TOTAL = 1200.0  # seconds for all contenders; who comes too late has a row that says so

Row = dict[str, Any]


# -------------------------------------------------------------------- the environment


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def environment() -> None:
    """Make the environment of the peers, unless it is there and as peers.txt wants it."""
    mark = sys.version + (HERE / "peers.txt").read_text(encoding="utf-8")
    made = ENVIRONMENT / "made-from"
    if made.exists() and made.read_text() == mark:
        return
    say(f"making {ENVIRONMENT.relative_to(HERE.parent)}: the peers of peers.txt and this library")
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    lines = (HERE / "peers.txt").read_text(encoding="utf-8").splitlines()
    peers = [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
    if not install(*peers):
        say("together they cannot be installed; one at a time")
        for peer in peers:
            if not install(peer):
                say(f"without {peer}: its rows will say so")
    if not install("--editable", str(HERE.parent)):
        raise SystemExit("this library cannot be installed into the environment of the peers")
    made.write_text(mark)


def install(*what: str) -> bool:
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", HERE.parent / "constraints.txt"]
    return not subprocess.run([*pip, *constraints, *what], check=False).returncode


# -------------------------------------------------------------------- the jobs


def write_jobs(folder: Path, sets: int = 500) -> dict[str, np.ndarray]:
    """A file for each job, and what the answers must be."""
    import forward
    import latentgamma as lg

    chain, g4 = lg.generators.chain(500, body=2), lg.generators.g4()
    states = {"chain": forward.pairs_on_a_chain(500, 500), "g4": forward.facts(g4, 500)}
    expected = {}
    for name, program in (("chain", chain), ("g4", g4)):
        if len(program.head_indices) != program.R:
            raise SystemExit(f"{name}: the jobs want one head for each rule")
        given = states[name].numpy()[:sets] > 0.5
        np.savez(
            folder / f"{name}.npz",
            M=program.M,
            steps=lg.logic.depth_bound(program),
            offsets=program.body_indptr,
            body=program.body_indices,
            head=program.head_indices,
            given=given,
        )
        expected[name] = lg.closures(program, given)
        for row, state in zip(expected[name], given, strict=True):  # by the plain loop, too
            closed = lg.closure(program, np.flatnonzero(state)).state
            assert np.array_equal(row, closed), name
    return expected


def read_job(path: Path, sets: int) -> Job:
    with np.load(path) as file:
        M, steps = int(file["M"]), int(file["steps"])
        arrays = {name: file[name] for name in ("offsets", "body", "head")}
        return Job(name=path.stem, M=M, steps=steps, given=file["given"][:sets], **arrays)


# -------------------------------------------------------------------- one contender, one job


def contend(who: Contender, path: Path, sets: int) -> tuple[Row, np.ndarray]:
    """Times and answers; this runs in the environment of the peers, alone in its process."""
    job = read_job(path, sets)
    start = time.perf_counter()
    solve, read = who.make(job)
    built = time.perf_counter() - start
    start = time.perf_counter()
    found = solve()
    first = time.perf_counter() - start
    answers, times = read(found), []
    while not times or (sum(times) < SPENT and len(times) < ROUNDS):
        del found
        start = time.perf_counter()
        found = solve()
        times.append(time.perf_counter() - start)
    assert np.array_equal(read(found), answers), "the last answers differ from the first ones"
    row = {"build_s": built, "first_s": first, "seconds": median(times), "best_s": min(times)}
    return row | {"rounds": len(times)}, answers


def worker(name: str, path: Path, sets: int, out: Path) -> None:
    most = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    who = next(who for who in CONTENDERS if who.name == name)
    row: Row = {"version": importlib.metadata.version(who.package)}
    answers = np.zeros((0, 0), bool)
    try:
        times, answers = contend(who, path, sets)
        row |= times
    except BaseException as error:
        row["failed"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    np.savez(out, answers=answers, row=json.dumps(row))
    sys.stdout.flush()
    os._exit(0)  # some engines hang or crash on their way out


def run(
    who: Contender, path: Path, folder: Path, sets: int, limit: float
) -> tuple[Row, np.ndarray | None]:
    """The row and the answers of a contender, whatever becomes of its process."""
    if limit <= 0:
        return {"failed": "not run: the time for all contenders was used up"}, None
    out = folder / "answers.npz"
    out.unlink(missing_ok=True)
    command = [PYTHON, __file__, "--worker", who.name, str(path), str(sets), str(out)]
    log = folder / "log.txt"
    with (
        log.open("w") as screen,
        subprocess.Popen(
            command, stdout=screen, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder
        ) as process,
    ):
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done within {limit:.0f} s"}, None
        finally:
            if process.poll() is None:  # too late, or this process was interrupted
                os.killpg(process.pid, signal.SIGKILL)
    if not out.exists():
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        return {"failed": f"exit code {code}: {' '.join(last)}"[:200]}, None
    with np.load(out) as file:
        return json.loads(str(file["row"])), file["answers"]


def compared(who: Contender, path: Path, expected: np.ndarray, limit: float) -> Row:
    """The row of a contender, every column in its place."""
    sets = min(who.sets, len(expected))
    found, answers = run(who, path, path.parent, sets, limit)
    row: Row = {"job": path.stem, "who": who.name, "kind": who.kind, "sets": sets}
    row |= {"seconds": None, "best_s": None, "rounds": None, "per_set_s": None}
    row |= dict.fromkeys(YARDSTICKS.values())
    row |= {"build_s": None, "first_s": None, "right": None}
    row |= {"version": None, "how": who.note, "failed": ""}
    row |= found
    if row["seconds"] is not None:
        row["per_set_s"] = row["seconds"] / sets
        row["right"] = answers is not None and bool(np.array_equal(answers, expected[:sets]))
    return row


def rows(only: str = "", sets: int = 500, jobs: tuple[str, ...] = ("chain", "g4")) -> list[Row]:
    """Every contender on every job, the quickest first; those that failed come last."""
    environment()
    os.environ.setdefault("RAYON_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "2"))
    listed, start = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = write_jobs(folder, sets)
        for job in jobs:
            block = []
            for who in CONTENDERS:
                if only and who.name not in YARDSTICKS and only.lower() not in who.name.lower():
                    continue
                limit = min(who.limit, start + TOTAL - time.perf_counter())
                block.append(compared(who, folder / f"{job}.npz", expected[job], limit))
                say(f"{job}: {who.name}: {block[-1]['failed'] or block[-1]['seconds']}")
            for row in block:
                for yard, column in YARDSTICKS.items():
                    own = next(r["per_set_s"] for r in block if r["who"] == yard)
                    if own and row["per_set_s"]:
                        row[column] = row["per_set_s"] / own
            listed += sorted(block, key=lambda row: row["per_set_s"] or np.inf)
    return listed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="contenders with this in their name")
    parser.add_argument("--sets", type=int, default=500, help="the largest number of fact sets")
    parser.add_argument("--jobs", nargs="+", default=["chain", "g4"], choices=["chain", "g4"])
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker[0], Path(given.worker[1]), int(given.worker[2]), Path(given.worker[3]))
    from run import table

    print(table(rows(given.only, given.sets, tuple(given.jobs))))
