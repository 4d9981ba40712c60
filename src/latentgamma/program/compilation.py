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


# ---- Compiled loops: how they are compiled, and when that is worth it
# A loop is a plain function that reads and fills flat sequences made by its caller. `compile_loop(loop)`
# is its machine code, which numba keeps on disk. Importing this module does not import numba.

#: An array in a compiled loop; a list where the same loop runs in Python.
Cells: TypeAlias = Any
Loop = TypeVar("Loop", bound=Callable[..., Any])

# Python needs up to a microsecond for each literal it visits. Importing numba takes half a second, and
# loading loops that are on disk another half.
#: A call that visits fewer literals is as quick in Python.
_LEAST = 1_000
#: A call that visits more is worth the import on its own.
_MOST_IN_PYTHON = 20_000
#: So are calls that visit more together. Where numba is imported already, loading loops remains.
_MOST_IN_ALL = 200_000
_visited = 0
#: Whether all calls run compiled code, or none; for tests, and to compile ahead of time.
forced: bool | None = None


def worth_compiling(work: int, least: int = _LEAST) -> bool:
    """Return whether a call that visits this many literals should run compiled code.

    That depends on the work asked for in this process so far, so it is only asked where both give
    the same bits. A call that visits up to `least` literals is not worth it.
    """
    if forced is not None:
        return forced
    if work <= least:
        return False
    count_work(work)
    return work > _MOST_IN_PYTHON or _visited > _MOST_IN_ALL or "numba" in sys.modules


def count_work(work: int) -> None:
    """Add literals that were visited without compiled code to the work of this process."""
    global _visited  # noqa: PLW0603
    _visited += work


#: Called with the name of a function before numba compiles it; not if it was kept on disk.
on_compile: list[Callable[[str], None]] = []


@cache
def load_numba() -> Any:
    """Return the module numba, which announces what it compiles to `on_compile`."""
    with paused_collector():
        import numba
        from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            if not function.__module__.startswith("latentgamma."):
                return  # numba's own, as a part of one of ours
            for announce in tuple(on_compile):  # one may remove itself
                announce(f"{function.__module__}.{function.__qualname__}")

        def on_end(self, event: Any) -> None:
            pass

    class Collector(event.Listener):
        """Pauses the garbage collector while code is compiled or loaded."""

        running, enabled = 0, False

        def on_start(self, event: Any) -> None:
            with lock:  # several threads may wait for the compiler
                if not self.running:
                    self.enabled = gc.isenabled()
                    gc.disable()
                self.running += 1

        def on_end(self, event: Any) -> None:
            with lock:
                self.running -= 1
                if not self.running and self.enabled:
                    gc.enable()

    lock = threading.Lock()
    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
    event.register("numba:compiler_lock", Collector())  # type: ignore[no-untyped-call]
    return numba


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector, for imports and for loading compiled code.

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
def compile_loop(loop: Loop, **options: Any) -> Loop:
    """Return the loop as machine code, which releases the interpreter while it runs."""
    numba = load_numba()  # what is compiled is announced
    try:
        return cast(Loop, numba.njit(cache=True, nogil=True, **options)(loop))
    except RuntimeError:  # no folder here can be written to: compile afresh in each process
        return cast(Loop, numba.njit(nogil=True, **options)(loop))


# ---- Threads for loops that release the interpreter


def processors() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        return os.cpu_count() or 1


#: Threads that wait for work, by their number. A child process has none of its parent's.
_POOLS: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.clear)
#: Pieces of work for each thread: one that starts late takes fewer.
_PIECES = 4


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return this many threads that wait for work."""
    if threads not in _POOLS:
        from concurrent.futures import ThreadPoolExecutor

        _POOLS.setdefault(threads, ThreadPoolExecutor(threads, "latentgamma"))
    return _POOLS[threads]


def run_in_threads(work: Callable[[], None], threads: int) -> None:
    """Call `work` from up to this many threads at once; this one is among them."""
    others = [thread_pool(threads - 1).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for other in others:
            if not other.cancel():
                other.result()


def share_parts(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call `work(first, last)` so that parts 0 to `count` are done, on up to this many threads."""
    threads = max(1, min(threads, count))
    if threads == 1:
        work(0, count)
        return
    size = max(1, count // (_PIECES * threads))
    starts = iter(range(0, count, size))

    def take_pieces() -> None:
        for first in starts:  # shared by the threads
            work(first, min(first + size, count))

    run_in_threads(take_pieces, threads)
