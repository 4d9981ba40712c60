"""Runs functions in several processes of one gloo group."""

from __future__ import annotations

import datetime
import os
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

#: What every process imports; once, since the processes are forked from one that has done so.
_PRELOADED = [
    "torch",
    "torch.distributed.tensor",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.testing",
    "numba",
    "latentgamma.distributed.shards",
    "hypothesis",
    "pytest",
]
#: Seconds after which a collective operation gives up.
TIMEOUT = 60.0


def run_in_processes(
    count: int, functions: Sequence[Callable[..., None]], folder: Path, *arguments: Any
) -> dict[str, str]:
    """The tracebacks of the functions that failed, by name and rank; empty if none did.

    Each function is called in each process with a mesh of all processes, a folder that they share,
    and the arguments.
    """
    processes, results = start_processes(count, functions, folder, *arguments)
    for process in processes:
        process.join()
    failures = {}
    for rank, process in enumerate(processes):
        if process.exitcode:
            failures[f"rank {rank}"] = f"exit code {process.exitcode}"
    for path in sorted(results.iterdir()):
        failures[path.name] = path.read_text()
    return failures


def start_processes(
    count: int,
    functions: Sequence[Callable[..., None]],
    folder: Path,
    *arguments: Any,
    timeout: float = TIMEOUT,
) -> tuple[list[Any], Path]:
    """Processes that run these functions, and the folder for the tracebacks."""
    context = ForkServerContext()
    context.set_forkserver_preload(_PRELOADED)
    results = folder / "failures"
    results.mkdir(parents=True)
    processes = [
        context.Process(
            target=_work, args=(rank, count, functions, folder, timeout, arguments), daemon=True
        )
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    return processes, results


def _work(
    rank: int,
    count: int,
    functions: Sequence[Callable[..., None]],
    folder: Path,
    timeout: float,
    arguments: Sequence[Any],
) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=count,
        timeout=datetime.timedelta(seconds=timeout),
    )
    mesh = init_device_mesh("cpu", (count,))
    for function in functions:
        try:
            function(mesh, folder, *arguments)
        except BaseException:
            path = folder / "failures" / f"{function.__name__} in rank {rank}"
            path.write_text(traceback.format_exc())
            os._exit(1)  # the others notice, and stop too
    dist.destroy_process_group()
