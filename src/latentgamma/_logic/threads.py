"""Threads for loops that release the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable


def processors() -> int:
    """The number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        return os.cpu_count() or 1


def run_in_threads(work: Callable[[], None], threads: int) -> None:
    """Call `work` from each of so many threads, or directly if one is enough."""
    if threads <= 1:
        work()
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads, "latentgamma") as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
