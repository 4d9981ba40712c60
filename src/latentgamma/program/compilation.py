"""Compiled loops and threads: how loops are compiled, when that is worth it, and who runs them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


# ---------------------------- Compiled loops: how they are compiled, and when that is worth it
# A loop is a plain function that reads and fills flat sequences made by its caller. `compile_loop(loop)`
# is its machine code, which numba keeps on disk. Importing this module does not import numba.

#: An array in a compiled loop; a list where the same loop runs in Python.
Cells: TypeAlias = Any
Loop = TypeVar("Loop", bound=Callable[..., Any])

# Python needs up to a microsecond for each literal it visits. A call below the first bound takes
# a few hundredths of a second at most, and importing numba half a second. Where it is imported
# already, only loading the loop from disk remains, once per process.
_MOST_IN_PYTHON = 20_000
_MOST_BESIDE_NUMBA = 1_000


def worth_compiling(work: int) -> bool:
    """Whether a call that visits this many literals should run compiled code.

    The size of the call decides, not how often it was made before. A process that makes many
    small calls is served best by importing numba first.
    """
    return work > (_MOST_BESIDE_NUMBA if "numba" in sys.modules else _MOST_IN_PYTHON)


@contextmanager
def paused_collector() -> Iterator[None]:
    """No garbage collection meanwhile, for imports and for loading compiled code.

    Both make many objects and no garbage. The collector would go through all objects of the
    process several times, those of torch among them, and take a third of the whole time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@cache
def compile_loop(loop: Loop) -> Loop:
    """The loop as machine code, which releases the interpreter while it runs."""
    with paused_collector():
        import numba

    try:
        return cast(Loop, numba.njit(cache=True, nogil=True)(loop))
    except RuntimeError:  # no folder here can be written to: compile afresh in each process
        return cast(Loop, numba.njit(nogil=True)(loop))


# ---------------------------------------------- Threads for loops that release the interpreter


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
