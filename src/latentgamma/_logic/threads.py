"""Threads for loops that release the interpreter."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported where threads are started: most calls are small and start none
    from concurrent.futures import ThreadPoolExecutor


def processors() -> int:
    """The number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        return os.cpu_count() or 1


def run_in_threads(work: Callable[[], None], threads: int) -> None:
    """Call `work` from each of so many threads, or directly if one is enough."""
    errors: list[BaseException] = []

    def work_or_keep_error() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    others = [
        threading.Thread(target=work_or_keep_error, name="latentgamma") for _ in range(threads - 1)
    ]
    for other in others:
        other.start()
    try:
        work()
    finally:
        for other in others:
            other.join()
    if errors:
        raise errors[0]


#: Threads that wait for work, by their number. A child process has none of its parent's.
_POOLS: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.clear)


def share_parts(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call `work(first, last)` so that parts 0 to `count` are done, on up to so many threads."""
    threads = min(threads, count)
    if threads <= 1:
        work(0, count)
        return
    if threads not in _POOLS:
        from concurrent.futures import ThreadPoolExecutor

        _POOLS.setdefault(threads, ThreadPoolExecutor(threads - 1, "latentgamma"))
    cuts = [count * part // threads for part in range(threads + 1)]
    others = [_POOLS[threads].submit(work, *cuts[part : part + 2]) for part in range(1, threads)]
    work(*cuts[:2])
    for other in others:
        other.result()
