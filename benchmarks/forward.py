"""Forward, backward, chain, scale, memory: the operator against what one would write in torch.

The others are written out here from the paper's formulas and share no code with the library:
`dense` is five lines of PyTorch on full matrices, `csr` the sparse form on torch's compressed
rows, `min-max` ten lines of gather and index_reduce. Contenders take turns, so that what else
runs on the machine hits all of them alike; a time is the median of several rounds after a
warm-up, and `times` says how many times the kernel's median that is. A contender that fails
keeps its row and says why.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

import latentgamma as lg

THREADS = 2
Row = dict[str, Any]
Work = Callable[[], Any]


def versions() -> Row:
    """What was measured, and on what."""
    packages = ("latentgamma", "torch", "numpy", "numba")
    return {
        "threads": THREADS,
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def compare(job: str, contenders: dict[str, Work], *, rounds: int = 5, **facts: Any) -> list[Row]:
    """One row for each contender, timed in turns; the first one is the yardstick."""
    rows = {who: {"job": job, "who": who, **facts} for who in contenders}
    times: dict[str, list[float]] = {who: [] for who in contenders}
    for turn in range(rounds + 1):
        for who, work in contenders.items():
            if "failed" in rows[who]:
                continue
            gc.collect()
            try:
                times[who] += timed(work) if turn else []  # the first turn warms up
                if not turn:
                    work()
            except Exception as error:  # a table with a hole is worth more than none
                rows[who]["failed"] = f"{type(error).__name__}: {error}"[:200]
    yard = next(iter(contenders))
    for who, row in rows.items():
        if times[who]:
            row |= {"median_s": median(times[who]), "best_s": min(times[who]), "rounds": rounds}
            if times[yard]:
                row["times"] = row["median_s"] / median(times[yard])
    return list(rows.values())


def timed(work: Work) -> list[float]:
    """The seconds of one call: the mean of so many that they take a twentieth of a second.

    Short work is called once before, so that it is not measured on caches and threads that the
    contender before it left behind.
    """
    start = time.perf_counter()
    work()
    once = time.perf_counter() - start
    if once > 0.2:
        return [once]
    calls = max(1, round(0.05 / once))
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return [(time.perf_counter() - start) / calls]


# -------------------------------------------------------------------- the contenders


def parameters(model: lg.LatentGamma) -> dict[str, Tensor]:
    """The paper's parameters of a model, dense, as leaves of their own."""
    dense = model.rules.to_dense()
    named = {
        "eta": dense.body_logits,
        "psi": dense.head_logits,
        "b": model.threshold,
        "tau": model.sharpness,
        "rho": model.confidence,
        "tau_nor": model.gain,
        "theta": model.offset,
        "beta": model.gate,
    }
    return {name: value.detach().clone().requires_grad_() for name, value in named.items()}


def dense_weights(p: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The two matrices, read from their logits."""
    return torch.sigmoid(p["eta"]).T, torch.softmax(p["psi"], dim=-1)


def dense_step(p: dict[str, Tensor], body: Tensor, head: Tensor, s: Tensor) -> Tensor:
    """The five stages as the paper prints them."""
    a = torch.sigmoid(p["tau"] * (s @ body - p["b"]))
    phi = (p["tau_nor"] * p["rho"] * a) @ head - p["theta"]
    return s + (1 - s) * torch.sigmoid(p["beta"] * phi) * torch.sigmoid(phi)


def dense(
    p: dict[str, Tensor], s: Tensor, steps: int, step: Callable[..., Tensor] = dense_step
) -> Tensor:
    """So many steps of the five stages."""
    body, head = dense_weights(p)
    for _ in range(steps):
        s = step(p, body, head, s)
    return s


def csr(model: lg.LatentGamma) -> Callable[[Tensor, int], Tensor]:
    """The sparse form on torch's compressed rows; states are (M, B) inside."""
    with torch.no_grad():
        n, rules = model.step_parameters(), model.rules
        M, R, dtype = model.M, model.R, n.threshold.dtype
        body = torch.sparse_coo_tensor(
            torch.stack([rules.body_rule, rules.body_atom]), n.body.to(dtype), (R, M)
        ).to_sparse_csr()
        head = torch.sparse_coo_tensor(
            torch.stack([rules.head_atom, rules.head_rule]), n.head.to(dtype), (M, R)
        ).to_sparse_csr()
        off, stray = n.body_off[:, None].to(dtype), n.head_off[:, None].to(dtype)
        b, tau, amplitude = n.threshold[:, None], n.sharpness[:, None], n.amplitude[:, None]
        theta, beta = n.offset[:, None], n.gate

    def run(state: Tensor, steps: int) -> Tensor:
        s = state.T.contiguous()
        for _ in range(steps):
            bs = body @ s + off * s.sum(0, dtype=torch.float64).to(s.dtype)
            fired = amplitude * torch.sigmoid(tau * (bs - b))
            total = (stray * fired).sum(0, dtype=torch.float64).to(s.dtype)
            phi = head @ fired + total - theta
            s = s + (1 - s) * torch.sigmoid(beta * phi) * torch.sigmoid(phi)
        return s.T

    return run


def min_max(program: lg.Program) -> Callable[[Tensor, int], Tensor]:
    """T_P in min/max logic, for bodies that are not empty: short ones repeat their last atom."""
    sizes = np.diff(program.body_indptr)
    last = (program.body_indptr[1:] - 1)[:, None]
    places = np.minimum(program.body_indptr[:-1, None] + np.arange(sizes.max()), last)
    body = torch.from_numpy(program.body_indices[places].astype("int64"))  # (R, k)
    head = torch.from_numpy(program.head_indices.astype("int64"))

    def run(state: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            rules = state[:, body].amin(-1)
            state = state.index_reduce(1, head, rules, "amax")
        return state

    return run


def facts(program: lg.Program, batch: int, *, seed: int = 0) -> Tensor:
    """Random fact sets, one atom in ten."""
    rng = torch.Generator().manual_seed(seed)
    return (torch.rand(batch, program.M, generator=rng) < 0.1).float()


def pairs_on_a_chain(n: int, batch: int, *, seed: int = 0) -> Tensor:
    """Fact sets of one adjacent pair and up to six more atoms."""
    rng = np.random.default_rng(seed)
    given = np.zeros((batch, n), dtype=np.float32)
    for row in given:
        first = rng.integers(0, n - 1)
        row[[first, first + 1]] = 1
        row[rng.integers(0, n, rng.integers(0, 7))] = 1
    return torch.from_numpy(given)


# -------------------------------------------------------------------- the jobs


def forward(*, rounds: int = 5, steps: int = 32) -> list[Row]:
    """G4 without gradients: B = 500 and B = 1, float32."""
    program = lg.generators.g4()
    model = lg.oracle(program, form="sparse")
    served = lg.oracle(program, form="sparse")
    plain = lg.oracle(program, form="sparse", kernel="reference")
    exact = lg.oracle(program, form="sparse", kernel="reference", dtype=torch.float64)
    full = lg.oracle(program, form="dense")
    compiled = torch.compile(full, dynamic=False)  # by Inductor, for each batch anew
    p, rows_of = parameters(model), csr(model)
    rows = []
    for batch in (500, 1):
        state = facts(program, batch)
        with torch.no_grad(), served.fixed():
            want = exact(state.double(), steps)
            works: dict[str, Work] = {
                "kernel": lambda state=state: model(state, steps),
                "kernel, fixed": lambda state=state: served(state, steps),
                "dense": lambda state=state: dense(p, state, steps),
                "dense model": lambda state=state: full(state, steps),
                "dense model, compiled": lambda state=state: compiled(state, steps),
                "csr": lambda state=state: rows_of(state, steps),
                "reference": lambda state=state: plain(state, steps),
            }
            start = time.perf_counter()
            with contextlib.suppress(Exception):  # `compare` tells why
                works["dense model, compiled"]()
            took = time.perf_counter() - start
            found = compare("forward", works, rounds=rounds, batch=batch, steps=steps)
            for row in found:
                if row["who"].endswith("compiled"):
                    row["compile_s"] = took
                if "failed" not in row:
                    row["error"] = float((works[row["who"]]().double() - want).abs().max())
        rows += found
    return rows


def until_closed(*, rounds: int = 9) -> list[Row]:
    """G4 with `steps=None`, beside the number of steps that the batch needs; with gradients too."""
    program = lg.generators.g4()
    model = lg.oracle(program, form="sparse")
    delay = int(model.certificate().t_min) - model.certificate().depth
    rows = []
    for batch in (1, 32, 500):
        rng = torch.Generator().manual_seed(batch)
        state = (torch.rand(batch, model.M, generator=rng) < 0.02).float()
        depth = max(lg.closure(program, row.bool().numpy()).depth for row in state)
        steps = depth + delay if depth else 0
        start, weight = state.clone().requires_grad_(), torch.rand_like(state)
        wanted = [start, *model.parameters()]

        def both(steps: int | None, start=start, weight=weight, wanted=wanted) -> Any:
            return torch.autograd.grad((model(start, steps) * weight).sum(), wanted)

        with torch.no_grad():
            works: dict[str, Work] = {
                "right steps": lambda state=state, steps=steps: model(state, steps),
                "steps=None": lambda state=state: model(state),
            }
            rows += compare("forward", works, rounds=rounds, batch=batch, steps=steps)
        works = {
            "right steps": lambda steps=steps, both=both: both(steps),
            "steps=None": lambda both=both: both(None),
        }
        rows += compare("forward and backward", works, rounds=rounds, batch=batch, steps=steps)
    return rows


def gradients(who: str, *, batch: int = 500, steps: int = 32) -> Work:
    """Forward and backward of G4, to the state and to every parameter."""
    program = lg.generators.g4()
    model = lg.oracle(program, form="sparse")
    state = facts(program, batch).requires_grad_()
    if who == "kernel":
        return lambda: torch.autograd.grad(model(state, steps).sum(), [state, *model.parameters()])
    if who == "reference":
        model.kernel = "reference"
        return lambda: torch.autograd.grad(model(state, steps).sum(), [state, *model.parameters()])
    p = parameters(model)
    return lambda: torch.autograd.grad(dense(p, state, steps).sum(), [state, *p.values()])


def backward(*, rounds: int = 5) -> list[Row]:
    """G4 forward and backward, B = 500, T = 32, float32."""
    works = {who: gradients(who) for who in ("kernel", "dense", "reference")}
    return compare("backward", works, rounds=rounds, batch=500, steps=32)


def chain(*, rounds: int = 5, n: int = 500, batch: int = 500) -> list[Row]:
    """The chain a(i+2) ⇐ a(i), a(i+1), all its steps at once; every answer is checked."""
    program = lg.generators.chain(n, body=2)
    state = pairs_on_a_chain(n, batch)
    closed = torch.from_numpy(lg.closures(program, state.numpy() > 0.5))
    model = lg.oracle(program, form="sparse")
    full = lg.oracle(program, form="dense")
    best = min_max(program)
    works: dict[str, Work] = {
        "kernel": lambda: model(state, n),
        "min-max": lambda: best(state, n),
        "dense model": lambda: full(state, n),
    }
    with torch.no_grad():
        rows = compare("chain", works, rounds=rounds, batch=batch, steps=n)
        for row in rows:
            if "failed" not in row:
                row["right"] = bool(((works[row["who"]]() > 0.5) == closed).all())
    return rows


def random_program(size: int, *, k: int = 3, seed: int = 0) -> lg.Program:
    """As many rules as atoms, uniformly random: no locality to profit from."""
    rng = np.random.default_rng(seed)
    bodies = rng.integers(0, size, size * k)
    return lg.Program.from_arrays(
        np.arange(0, size * k + 1, k), bodies, rng.integers(0, size, size), atoms=size
    )


def scale(*, rounds: int = 5, largest: int = 10**7) -> list[Row]:
    """M = R from 10⁴ to 10⁷: nanoseconds for each rule, example and step, and peak memory."""
    rows = []
    for size, batch, steps in ((10**4, 32, 32), (10**5, 32, 16), (10**6, 32, 8), (10**7, 1, 2)):
        if size > largest:
            continue
        program = random_program(size)
        with torch.no_grad():
            model = lg.oracle(program, lg.Constants.scaled(program), form="sparse")
            for parameter in model.parameters():
                parameter.requires_grad_(False)
            state = facts(program, batch)
            works: dict[str, Work] = {"kernel": lambda m=model, s=state, t=steps: m(s, t)}
            peak = peak_of(works["kernel"])
            if size < 10**7:
                rows_of = csr(model)
                works["csr"] = lambda run=rows_of, s=state, t=steps: run(s, t)
            few = rounds if size < 10**7 else 1
            found = compare("scale", works, rounds=few, size=size, batch=batch, steps=steps)
        for row in found:
            if "median_s" in row:
                row["ns_per_rule"] = row["median_s"] / size / batch / steps * 1e9
        found[0]["process_peak_mb"] = peak["process_mb"]
        rows += found
    return rows


def memory() -> list[Row]:
    """Peak extra memory of a forward and backward pass on G4, each in a process of its own."""
    rows: list[Row] = []
    for who in ("kernel", "dense", "reference"):
        done = subprocess.run(
            [sys.executable, __file__, "--peak", who], capture_output=True, text=True, check=False
        )
        row: Row = {"job": "memory", "who": who, "batch": 500, "steps": 32}
        if done.returncode:
            row["failed"] = done.stderr.strip()[-200:]
        else:
            row |= json.loads(done.stdout)
        rows.append(row)
    for row in rows:
        if "extra_mb" in row and "extra_mb" in rows[0]:
            row["times"] = row["extra_mb"] / rows[0]["extra_mb"]
    return rows


def peak_of(work: Work) -> Row:
    """Peak resident memory of a call over what was there before, and of the process (Linux)."""

    def read(field: str) -> float:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))

    gc.collect()
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # the high-water mark starts anew
    before = read("VmRSS")
    work()
    return {"extra_mb": read("VmHWM") - before, "process_mb": read("VmHWM")}


JOBS: dict[str, Callable[[], list[Row]]] = {
    "forward": forward,
    "backward": backward,
    "chain": chain,
    "scale": scale,
    "memory": memory,
}


def table(rows: list[Row]) -> str:
    """The rows as aligned text, a column for each field that any of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))

    def shown(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    cells = [names, *([shown(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", choices=[*JOBS, []], help="all of them by default")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("ignore", message="Sparse")  # torch on its compressed rows
    if options.peak:
        gradients(options.peak, batch=16, steps=1)()  # loads and compiles; not counted
        print(json.dumps(peak_of(gradients(options.peak))))
        return
    found = {"versions": versions(), "rows": []}
    for name in options.jobs or JOBS:
        rows = JOBS[name]()
        found["rows"] += rows
        print(table(rows), end="\n\n", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
