"""Where dense wins: the same steps in dense, compressed and fused form, from ten atoms up.

M = R, three atoms in a body, 32 examples, 32 steps. Dense runs while its matrices fit in two
gigabytes. `times` is against the fused kernel, so a number below 1 is a size at which the other
form is the better one.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch

import forward
import latentgamma as lg

SIZES = tuple(round(10 ** (exponent / 2)) for exponent in range(2, 13))  # 10 … 1,000,000
DENSE_UP_TO = 10**4  # four matrices of this size in float32 are 1.6 GB
COMPILED_UP_TO = 10**3


def rows(sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """A row for each size and form."""
    warnings.filterwarnings("ignore", message="Sparse")
    found = []
    for size in sizes:
        for batch in (1, 32):
            with torch.no_grad():
                found += at(size, batch=batch)
    return found


def at(size: int, *, batch: int, steps: int = 32) -> list[dict[str, Any]]:
    program = forward.random_program(size)
    state = forward.facts(program, batch)
    sparse = lg.oracle(program, lg.Constants.scaled(program), form="sparse")
    compressed = forward.csr(sparse)
    works: dict[str, forward.Work] = {
        "kernel": lambda: sparse(state, steps),
        "csr": lambda: compressed(state, steps),
    }
    compile_s = None
    if size <= DENSE_UP_TO:
        dense = lg.oracle(program, lg.Constants.scaled(program), form="dense")
        works["dense model"] = lambda: dense(state, steps)
    if size <= COMPILED_UP_TO:
        p = forward.parameters(sparse)
        torch._dynamo.reset()
        step = torch.compile(forward.dense_step, dynamic=False)
        works["dense formulas"] = lambda: forward.dense(p, state, steps)
        works["dense formulas, compiled"] = lambda: forward.dense(p, state, steps, step)
        start = time.perf_counter()
        try:
            works["dense formulas, compiled"]()
            compile_s = time.perf_counter() - start
        except Exception as error:  # no C++ compiler, say: `compare` will tell
            print(f"torch.compile: {type(error).__name__}")
    rounds = 5 if size < 10**4 else 3
    rows = forward.compare("sweep", works, rounds=rounds, size=size, batch=batch, steps=steps)
    for row in rows:
        row["compile_s"] = compile_s if row["who"].endswith("compiled") else ""
        if "median_s" in row:
            row["us_per_step"] = row["median_s"] / steps * 1e6
    return rows
