"""Compiled loops: how they are compiled, and when that is worth it.

A loop is a plain function that reads and fills flat sequences made by its caller. `compile_loop(loop)`
is its machine code, which numba keeps on disk. Importing this module does not import numba.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

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
