"""Threads for compiled code that releases the interpreter's lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

#: Pieces of work for each thread: one that starts late takes fewer.
_PIECES = 4

_POOLS: dict[int, ThreadPoolExecutor] = {}
#: Held while threads run that wait for each other; two such groups could block each other.
_GROUP_LOCK = threading.Lock()


def _forget() -> None:
    """A child process has none of its parent's threads."""
    global _GROUP_LOCK  # noqa: PLW0603
    _POOLS.clear()
    _GROUP_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _POOLS:
        _POOLS.setdefault(threads, ThreadPoolExecutor(threads, "latentgamma"))
    return _POOLS[threads]


def run_pieces(count: int, threads: int, work: Callable[[int, int], None]) -> None:
    """Call work(first, last) for pieces of range(count) until all is done, on several threads."""
    threads = max(1, min(threads, count))
    if threads == 1:
        work(0, count)
        return
    size = max(1, count // (_PIECES * threads))
    starts = iter(range(0, count, size))

    def take_pieces() -> None:
        for first in starts:  # shared by the threads
            work(first, min(first + size, count))

    others = [_pool(threads - 1).submit(take_pieces) for _ in range(threads - 1)]
    take_pieces()
    for other in others:
        if not other.cancel():
            other.result()


def run_together(threads: int, work: Callable[[int], None]) -> None:
    """Call work(0) … work(threads − 1), all at the same time: they may wait for each other."""
    with _GROUP_LOCK:
        ready = threading.Semaphore(0)
        complete = False

        def start_when_ready(part: int) -> None:
            ready.acquire()
            if complete:
                work(part)

        try:
            others = [
                _pool(threads - 1).submit(start_when_ready, part) for part in range(1, threads)
            ]
            complete = True
        finally:  # if a thread could not be started, those that wait have to end too
            ready.release(threads)
        work(0)
        for other in others:
            other.result()
