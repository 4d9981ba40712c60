"""A barrier for threads that run compiled code without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from latentgamma._simd import inlined

#: How often a waiting thread looks again before it lets another one run.
_SPINS = 64

_sched_yield = types.ExternalFunction("sched_yield", types.int32())


def _made(build: Callable[..., Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = intrinsic(build)
    return made


def _address(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    return context.make_array(array_type)(context, builder, array).data


@_made
def _count_up(typing: Any, counter: Any) -> Any:
    """Add 1 to the first number of an int64 array, atomically."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, counter, args[0])
        builder.atomic_rmw("add", address, ir.Constant(ir.IntType(64), 1), "seq_cst")
        return context.get_dummy_value()

    return types.void(counter), code


@_made
def _count(typing: Any, counter: Any) -> Any:
    """The first number of an int64 array, read atomically."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_address(context, builder, counter, args[0]), "seq_cst", 8)

    return types.int64(counter), code


def new_barrier() -> np.ndarray[Any, np.dtype[np.int64]]:
    """The counter of a barrier: how often a thread has arrived."""
    return np.zeros(1, np.int64)


@inlined
def wait(barrier: Any, passed: int, threads: int) -> int:
    """Wait until all threads have arrived once more often than `passed`; return `passed` + 1."""
    if threads == 1:
        return 0
    passed += 1
    _count_up(barrier)
    while _count(barrier) < passed * threads:
        for _ in range(_SPINS):
            if _count(barrier) >= passed * threads:
                return passed
        _sched_yield()
    return passed
