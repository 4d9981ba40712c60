"""Models over several processes on this machine, and closures of a table on a Ray cluster.

`plan` rows compare the cost model with what a process used: the peak of its resident memory over
that before the model was made, with `MALLOC_MMAP_THRESHOLD_` set so that freed memory is returned,
and the bytes that the loopback device sent. `rules` rows are the program of three times 10⁷ rules.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import gc
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]

#: Rules and atoms of the large program.
LARGE_R, LARGE_M = 3 * 10**7, 10**6
#: Fact sets of the table, and atoms with a column.
FACT_SETS, COLUMNS = 10**7, 40


def rows() -> list[Row]:
    """Speed by number of processes, the cost model, the large program, the table."""
    with tempfile.TemporaryDirectory() as folder:
        return [*speed(), *cost_model(), *large_program(Path(folder)), *table(Path(folder))]


# -------------------------------------------------------------------- processes


def in_processes(count: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What the function returns in each process of a gloo group, by rank."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_run, args=(rank, count, folder, work, arguments, answers))
            for rank in range(count)
        ]
        for process in processes:
            process.start()
        found = dict(answers.get() for _ in processes)
        for process in processes:
            process.join()
    return [found[rank] for rank in range(count)]


def _run(rank: int, count: int, folder: str, work: Any, arguments: Any, answers: Any) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=count,
        timeout=datetime.timedelta(minutes=20),
    )  # fmt: skip
    answers.put((rank, work(init_device_mesh("cpu", (count,)), *arguments)))
    dist.barrier()
    dist.destroy_process_group()


def random_part(mesh: Any, M: int, R: int, k: int) -> Any:
    """The rules of this process, of a random program."""
    import latentgamma as lg

    rank, size = mesh.get_local_rank(), mesh.size()
    rng = np.random.default_rng(rank)
    count = R * (rank + 1) // size - R * rank // size
    starts = np.arange(0, count * k + 1, k)
    part = lg.Program.from_arrays(
        starts, rng.integers(0, M, count * k), rng.integers(0, M, count), atoms=M
    )
    return lg.distributed.ProgramShard.of(part, mesh)


def status(key: str) -> int:
    """A size from the status of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def reset_peak() -> None:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def sent() -> int:
    """The bytes that the loopback device has sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


# -------------------------------------------------------------------- speed


def speed() -> list[Row]:
    """Seconds of a step over one to four processes, with one thread each."""
    M, R, k, B = 10**5, 5 * 10**5, 3, 4
    size = {"part": "speed", "M": M, "R": R, "k": k, "B": B}
    found: list[Row] = [
        size | {"processes": 1, "divided": "no: compiled kernel", **kernel(M, R, k, B)}
    ]
    for atoms in (False, True):
        for count in (1, 2, 3, 4):
            answers = in_processes(count, _seconds, M, R, k, B, atoms)
            slowest = {key: max(each[key] for each in answers) for key in answers[0]}
            divided = "rules and atoms" if atoms else "rules"
            found.append(size | {"processes": count, "divided": divided, **slowest})
    return found


def kernel(M: int, R: int, k: int, B: int) -> Row:
    """The same in one process with the compiled kernel and one thread."""
    import torch

    import latentgamma as lg

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    program = lg.Program.from_arrays(
        np.arange(0, R * k + 1, k), rng.integers(0, M, R * k), rng.integers(0, M, R), atoms=M
    )
    return _timed(lg.oracle(program, lg.Constants.paper(), form="sparse"), B)


def _seconds(mesh: Any, M: int, R: int, k: int, B: int, atoms: bool) -> Row:
    import latentgamma as lg

    shard = random_part(mesh, M, R, k)
    return _timed(lg.distributed.oracle(shard, lg.Constants.paper(), atoms=atoms), B)


def _timed(model: Any, B: int) -> Row:
    """The least of three times for a step forward, and forward and backward."""
    import torch

    state = torch.rand(B, model.M, generator=torch.Generator().manual_seed(0))
    forward, both = [], []
    for _ in range(4):
        begin = time.perf_counter()
        with torch.no_grad():
            model(state, 4)
        forward.append((time.perf_counter() - begin) / 4)
        begin = time.perf_counter()
        model(state, 4).sum().backward()
        both.append((time.perf_counter() - begin) / 4)
    return {"forward_s": min(forward[1:]), "forward_and_backward_s": min(both[1:])}


# -------------------------------------------------------------------- the cost model

CASES = [
    (10**6, 2 * 10**6, 2, 1, False),
    (10**6, 2 * 10**6, 2, 4, False),
    (10**5, 10**6, 8, 1, False),
    (10**5, 10**6, 3, 8, False),
    (10**6, 2 * 10**6, 2, 1, True),
    (10**5, 10**6, 3, 8, True),
]


def cost_model() -> list[Row]:
    """What `plan` says over what was measured."""
    options = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    os.environ |= options  # for the processes; it makes them slower
    found = [row for count in (1, 2, 4) for row in in_processes(count, _measure)[0]]
    for name in options:
        del os.environ[name]
    return found


def _measure(mesh: Any) -> list[Row]:
    import torch
    import torch.distributed as dist

    import latentgamma as lg

    found = []
    for M, R, k, B, atoms in [(100, 200, 2, 1, False), (100, 200, 2, 1, True), *CASES]:
        reset_peak()
        before = status("VmRSS")
        model = lg.distributed.oracle(random_part(mesh, M, R, k), lg.Constants.paper(), atoms=atoms)
        state = torch.rand(B, model.M)
        peaks, traffic = [], []
        for train in (False, True):

            def run(steps: int, train: bool = train, model: Any = model, state: Any = state) -> int:
                dist.barrier()
                start = sent()
                with torch.set_grad_enabled(train):
                    after = model(state, steps)
                    if train:
                        after.sum().backward()
                dist.barrier()
                return sent() - start

            reset_peak()
            run(1)
            peaks.append(status("VmHWM") - before)
            traffic.append((run(6) - run(1)) / 5 / mesh.size())
        plan = lg.distributed.plan(M, R, k, B, mesh.size(), atoms=atoms)
        if M > 100:  # the small ones load what the others use
            found.append(
                {
                    "part": "plan", "processes": mesh.size(), "M": M, "R": R, "k": k, "B": B,
                    "divided": "rules and atoms" if atoms else "rules",
                    "MB": peaks[0] / 1e6, "plan / MB": plan.memory / peaks[0],
                    "training MB": peaks[1] / 1e6,
                    "plan / training MB": plan.training_memory / peaks[1],
                    "MB sent": traffic[0] / 1e6,
                    "plan / MB sent": plan.communication / traffic[0] if mesh.size() > 1 else None,
                    "plan / MB sent in training": (
                        plan.training_communication / traffic[1] if mesh.size() > 1 else None
                    ),
                }
            )  # fmt: skip
        del model, state, run
    return found


# -------------------------------------------------------------------- the large program


def large_program(folder: Path) -> list[Row]:
    """One process and four, each from the file to a few steps: the most memory of a process."""
    path = folder / "rules.lp"
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for start in range(0, LARGE_R, 1 << 20):
            atoms = rng.integers(0, LARGE_M, (3, min(1 << 20, LARGE_R - start))).tolist()
            file.write("".join([f"a{h} :- a{x}, a{y}.\n" for h, x, y in zip(*atoms, strict=True)]))
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        alone = pool.apply(_whole, (str(path),))
    found = [{"part": "rules", "processes": 1, **alone, "share": 1.0}]
    answers = in_processes(4, _parts, str(path))
    assert len({round(each["true atoms"], 3) for each in (alone, *answers)}) == 1
    worst = {key: max(each[key] for each in answers) for key in answers[0]}
    found.append({"part": "rules", "processes": 4, **worst, "share": worst["GB"] / alone["GB"]})
    path.unlink()
    return found


def _whole(path: str) -> Row:
    import torch

    import latentgamma as lg

    torch.set_num_threads(1)
    begin = time.perf_counter()
    program = lg.load(path)
    loaded = time.perf_counter() - begin
    constants = lg.Constants.closed_form(program)
    model = lg.oracle(program, constants, form="sparse", kernel="reference")
    return _steps(model, loaded)


def _parts(mesh: Any, path: str) -> Row:
    import latentgamma as lg

    begin = time.perf_counter()
    shard = lg.distributed.load_shard(path, mesh)
    loaded = time.perf_counter() - begin
    model = lg.distributed.oracle(shard, lg.Constants.closed_form(shard.sizes))
    del shard
    return _steps(model, loaded)


def _steps(model: Any, loaded: float) -> Row:
    import torch

    state = torch.zeros(model.M)
    state[:1000] = 1.0
    with torch.no_grad():
        model(state, 1)
        begin = time.perf_counter()
        after = model(state, 3)
    taken = (time.perf_counter() - begin) / 3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    true = float((after.double() > 0.5).sum())
    return {"R": model.R, "M": model.M, "load_s": loaded, "step_s": taken, "GB": peak, "true atoms": true}  # fmt: skip


# -------------------------------------------------------------------- a table of fact sets


def table(folder: Path) -> list[Row]:
    """The closures of a Parquet table, in this process with two threads and on two Ray workers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import latentgamma as lg

    program = lg.generators.random(200, 1000, seed=1)
    names = program.atoms[:COLUMNS]
    rng = np.random.default_rng(0)
    for count in (FACT_SETS // 10, FACT_SETS):
        schema = pa.schema([(name, pa.bool_()) for name in names])
        with pq.ParquetWriter(folder / f"{count}.parquet", schema) as writer:
            for start in range(0, count, 1 << 18):
                size = min(1 << 18, count - start)
                writer.write_table(pa.table({name: rng.random(size) < 0.2 for name in names}))
    found = []
    for count in (FACT_SETS // 10, FACT_SETS):
        context = multiprocessing.get_context("spawn")
        with context.Pool(1, maxtasksperchild=1) as pool:
            first, again, peak = pool.apply(_close_here, (program, folder, count))
        row = {"part": "table", "who": "this process, two threads", "fact sets": count}
        found.append(row | {"first_s": first, "seconds": again, "GB": peak})
    with lg.distributed.RayExecutor(2) as executor:
        for count in (FACT_SETS // 10, FACT_SETS):
            found += [
                _close_on_ray(executor, program, folder, count, killed)
                for killed in ([False] if count < FACT_SETS else [False, True])
            ]
    for row in found:
        base = next(r for r in found if r["fact sets"] == row["fact sets"])
        row["ratio"] = row["seconds"] / base["seconds"]
    return found


def _close_here(program: Any, folder: Path, count: int) -> tuple[float, float, float]:
    import latentgamma as lg

    source = folder / f"{count}.parquet"
    first = lg.distributed.close_parquet(program, source, folder / f"{count} first").seconds
    again = lg.distributed.close_parquet(program, source, folder / f"{count} here").seconds
    return first, again, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _close_on_ray(executor: Any, program: Any, folder: Path, count: int, killed: bool) -> Row:
    import pyarrow.parquet as pq

    import latentgamma as lg

    workers = {executor.submit(os.getpid).result() for _ in range(8)}
    source, target = folder / f"{count}.parquet", folder / f"{count} ray {killed}"
    lost: list[int] = []
    peaks: dict[int, float] = {}

    def watch(finished: int, total: int) -> None:
        if killed and not lost and finished > total / 3:
            lost.append(workers.pop())
            os.kill(lost[0], signal.SIGKILL)
        for pid in workers:
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                value = next(line for line in lines if line.startswith("VmHWM"))
                peaks[pid] = int(value.split()[1]) * 1024 / 1e9

    done = lg.distributed.close_parquet(program, source, target, executor=executor, progress=watch)
    here = folder / f"{count} here"
    assert all(pq.read_table(part).equals(pq.read_table(here / part.name)) for part in done.parts)
    who = "two Ray workers, one killed" if killed else "two Ray workers"
    return {
        "part": "table", "who": who, "fact sets": count, "first_s": None, "seconds": done.seconds,
        "GB": max(peaks.values(), default=None), "same result": True,
    }  # fmt: skip
