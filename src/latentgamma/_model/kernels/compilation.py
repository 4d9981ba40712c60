"""Which CPU kernels are compiled, and a process that compiles the others meanwhile.

Numba keeps compiled code on disk. The first time on a machine there is none, and compiling takes some
seconds; no call waits for that. Another process compiles, which goes on if this one ends, and plain
torch answers until the code is there. (A thread would hold the interpreter's lock most of the time,
and could not be stopped when the process ends.)
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numba
import numpy as np

from latentgamma._model.kernels.barrier import new_barrier
from latentgamma._model.kernels.cpu_arithmetic import StepArrays, WeightedRows
from latentgamma._model.kernels.cpu_backward import BackwardArrays, GradientArrays, backward_tiles
from latentgamma._model.kernels.cpu_closure import check_closed, measure_depths
from latentgamma._model.kernels.cpu_forward import forward_tiles
from latentgamma._model.kernels.cpu_read import (
    RuleCoefficients,
    RuleIndex,
    RuleParameters,
    read_coefficients,
    read_coefficients_backward,
)
from latentgamma._simd import TILE

#: Seconds between two looks whether the other process is done.
_PAUSE = 0.25

_COMPILE = """
import sys
sys.path[:] = {path!r}
from latentgamma._model.kernels.compilation import KernelKind, compile_kinds
compile_kinds(KernelKind(*{kind!r}))
"""


class KernelKind(NamedTuple):
    """What a call needs: for which dtypes, with tiles of one example or of several, which passes."""

    states: str  # the dtype of the states
    parameters: str  # the dtype of the parameters
    alone: bool
    backward: bool


#: The functions of `cpu_closure`, which know no dtype.
CLOSURE = KernelKind("", "", False, False)


def _calls(kind: KernelKind) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The compiled functions of a kind, each with arguments of the types that it is called with."""
    index = np.zeros(2, np.int32)
    if kind == CLOSURE:
        supports, depths, closed = (
            np.zeros((1, 1), np.bool_),
            np.zeros(1, np.int64),
            np.zeros(1, bool),
        )
        yield measure_depths, (0, 0, supports, index, (index, index), (index, index), depths)
        yield check_closed, (supports, (index, index), (index, index), closed)
        return
    dtype = np.dtype(kind.states)
    numbers, wide = np.zeros(1, dtype), np.zeros(1)
    tile = np.zeros(TILE, dtype) if kind.alone else np.zeros((1, TILE), dtype)
    sums = np.zeros(1) if kind.alone else np.zeros((1, TILE))
    kept = np.zeros((1, 2, *tile.shape), dtype)
    counts, batch = np.zeros(1, np.int64), np.zeros((1, 1), dtype)
    rows = WeightedRows(index, index, numbers)
    step = StepArrays(rows, rows, rows, rows, numbers, numbers, numbers, numbers, 5.0, 5, False)
    tiles = (0, 0, 0, 1, new_barrier(), counts)
    parameters = RuleParameters(*[np.zeros(1, kind.parameters)] * 7)
    rules = (0, 0, 1, 1.0, (1.0, 1.0), RuleIndex(index, index, index, index), parameters)
    yield read_coefficients, (*rules, RuleCoefficients(*[numbers] * 5))
    yield forward_tiles, (*tiles, batch, batch, kept, step, tile, sums, sums)
    if kind.backward:
        yield read_coefficients_backward, (*rules, RuleCoefficients(*[wide] * 5), parameters)
        work = BackwardArrays(tile, tile, tile, tile, sums, sums)
        grads = GradientArrays(*[tile] * 6)
        totals = GradientArrays(*[np.zeros((1, 1))] * 6)
        yield (
            backward_tiles,
            (*tiles, batch[None], batch, kept, step, work, grads, totals, np.zeros((1, 1))),
        )


def _signature(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(numba.typeof(argument) for argument in arguments)  # type: ignore[no-untyped-call]


def _is_on_disk(function: Any, signature: tuple[Any, ...]) -> bool:
    """Whether numba's cache has this function; private names, for a version of numba that is capped."""
    cache = function._cache
    if signature in function.overloads or not hasattr(cache, "_cache_file"):
        return signature in function.overloads
    key = cache._index_key(signature, function.targetctx.codegen())
    return key in cache._cache_file._load_index()


def compile_kinds(first: KernelKind) -> None:
    """Compile one kind of kernels, and then the others of the same dtype."""
    passes = product((False, True), repeat=2)
    others = [] if first == CLOSURE else [first._replace(alone=a, backward=b) for b, a in passes]
    for kind in (first, *others):
        for function, arguments in _calls(kind):
            function.compile(_signature(arguments))


class Compilation:
    """Says which kinds of kernels can run, and has the others compiled."""

    def __init__(self) -> None:
        self._ready: set[KernelKind] = set()
        self._next_look: dict[KernelKind, float] = {}
        self._processes: dict[KernelKind, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def is_ready(self, kind: KernelKind) -> bool:
        """Whether this kind can run without waiting for a compiler."""
        if kind in self._ready:
            return True
        with self._lock:
            if kind not in self._ready and self._look(kind):
                self._ready.add(kind)
        return kind in self._ready

    def _look(self, kind: KernelKind) -> bool:
        now = time.monotonic()
        if now < self._next_look.get(kind, now):
            return False
        self._next_look[kind] = now + _PAUSE
        if not hasattr(forward_tiles, "overloads"):  # numba is switched off
            return True
        calls = [(function, _signature(arguments)) for function, arguments in _calls(kind)]
        process = self._processes.get(kind)
        ended = process is not None and process.poll() is not None
        if all(_is_on_disk(function, signature) for function, signature in calls):
            # Loading one makes numba ready for the others, which it loads when they are called.
            function, signature = calls[0]
            function.compile(signature)
            return True
        if process is None and _start(kind, self._processes):
            return False
        if not ended and process is not None:
            return False
        # Nothing can be compiled elsewhere, or kept on disk: then it has to be here.
        for function, signature in calls:
            function.compile(signature)
        return True


def _start(kind: KernelKind, processes: dict[KernelKind, subprocess.Popen[bytes]]) -> bool:
    """Start a process that compiles a kind; whether that is possible."""
    cache = getattr(forward_tiles, "_cache", None)
    if not sys.executable or not hasattr(cache, "_cache_file"):
        return False
    code = _COMPILE.format(path=sys.path, kind=tuple(kind))
    try:
        processes[kind] = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt is for this process
        )
    except OSError:
        return False
    return True


COMPILATION = Compilation()
