"""The CPU kernels as compiled for this processor, for one with AVX2, and for any x86-64 (SSE2).

Each target is a process of its own with an empty cache of compiled code; `NUMBA_CPU_NAME` and
`NUMBA_CPU_FEATURES` set the target, and all of them run on this machine. Times are also given as
multiples of those of the code for this processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Numba's names of the targets; none means this processor.
TARGETS = {"this processor": "", "AVX2 (haswell)": "haswell", "SSE2 (x86-64)": "x86-64"}

WORK = """
import json, sys, time
sys.path.insert(0, {here!r})
import run
run.compile_kernels()
import numpy as np
import torch
import forward
import latentgamma as lg

torch.set_num_threads({threads})
program = lg.generators.g4()
model = lg.oracle(program, form="sparse")
exact = lg.oracle(program, form="sparse", kernel="reference")
weight = torch.rand(500, model.M)
found, times = {{}}, {{}}


def measure(name, work):
    work()
    times[name] = min(forward.timed(work)[0] for _ in range(7))


for batch in (1, 500):
    state = forward.facts(program, batch)
    with torch.no_grad():
        found[batch] = float((model(state, 32) - exact(state, 32)).abs().max())
        measure(f"forward, B = {{batch}}", lambda: model(state, 32))
start = state.clone().requires_grad_()
measure("forward and backward, B = 500", lambda: (model(start, 32) * weight).sum().backward())
rows = np.random.default_rng(0).random((50_000, program.M)) < 0.05
planes = lg.pack(rows)
measure("closures of 50,000 fact sets", lambda: lg.closures(program, rows))
measure("closures of 50,000 fact sets, bit planes", lambda: lg.closures(program, planes, packed=True))
print(json.dumps({{"times": times, "difference": max(found.values())}}))
"""


def rows() -> list[dict[str, Any]]:
    """A row for each target and job."""
    found: dict[str, dict[str, Any]] = {}
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    code = WORK.format(here=str(Path(__file__).parent), threads=threads)
    for target, name in TARGETS.items():
        with tempfile.TemporaryDirectory() as cache:
            env = (
                os.environ | {"NUMBA_CACHE_DIR": cache} | ({"NUMBA_CPU_NAME": name} if name else {})
            )
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
            )
        if done.returncode:
            found[target] = {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
        else:
            found[target] = json.loads(done.stdout.splitlines()[-1])
    table: list[dict[str, Any]] = []
    own = found["this processor"].get("times", {})
    for target, result in found.items():
        if "failed" in result:
            table.append({"target": target, "failed": result["failed"][:200]})
        for job, seconds in result.get("times", {}).items():
            row = {"target": target, "job": job, "milliseconds": 1e3 * seconds}
            row |= {"against_this_processor": seconds / own[job]}
            row |= {"largest_difference": result["difference"]}
            table.append(row)
    return table
