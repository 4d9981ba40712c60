"""Runs on a CUDA device as recorded graphs: one launch by the host instead of one per kernel."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

#: Values of the largest input that is recorded. Beyond that the kernels take longer than the host,
#: and the memory that a graph keeps is no longer small.
MOST_VALUES = 1 << 24
#: Graphs that are kept.
_MOST = 16
#: After so many other runs a graph that was not used makes room for a new one.
_UNUSED = 200
#: Kinds of runs that are remembered as seen.
_MOST_SEEN = 1000

#: What is recorded: it reads its arguments, and memory that it holds itself.
Function: TypeAlias = Callable[..., tuple[Tensor, ...]]


@dataclass(eq=False)
class _Recorded:
    """A graph, the tensors that it reads and writes, and when it was used last."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    results: tuple[Tensor, ...]
    done: torch.cuda.Event
    function: Function  # it holds what else the graph reads
    used: int = 0


class RecordedRuns:
    """Runs that differ in their inputs only, recorded when one of a kind comes the second time.

    A copy starts with none.
    """

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._runs: OrderedDict[Hashable, _Recorded] = OrderedDict()  # the last used last
        self._count = 0
        self._lock = threading.Lock()

    def run(
        self, key: Hashable, function: Function, inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """function(*inputs), which depends on nothing but `key` and the inputs."""
        if _values(inputs) > MOST_VALUES or inputs[0].device.index != torch.cuda.current_device():
            return function(*inputs)
        # While the caller records a graph of its own, this becomes a part of it.
        if torch.cuda.is_current_stream_capturing():
            return function(*inputs)
        key = key, *((x.shape, x.dtype) for x in inputs)
        with self._lock, torch.no_grad():
            self._count += 1
            recorded = self._runs.get(key)
            if recorded is None:
                if not self._is_worth_it(key):
                    return function(*inputs)
                recorded = self._runs[key] = _record(function, inputs)
            recorded.used = self._count
            self._runs.move_to_end(key)
            recorded.done.wait()  # another stream may still read the results of the last run
            for kept, given in zip(recorded.inputs, inputs, strict=True):
                kept.copy_(given)
            recorded.graph.replay()
            results = tuple(result.clone() for result in recorded.results)
            recorded.done.record()
            return results

    def _is_worth_it(self, key: Hashable) -> bool:
        """Whether to record this kind of run now; if need be, in the place of an older one."""
        if key not in self._seen:
            if len(self._seen) == _MOST_SEEN:
                self._seen.clear()
            self._seen.add(key)
            return False
        if len(self._runs) == _MOST:
            oldest = next(iter(self._runs))
            if self._count - self._runs[oldest].used < _UNUSED:
                return False
            del self._runs[oldest]
        return True

    def __reduce__(self) -> tuple[type[RecordedRuns], tuple[()]]:
        return RecordedRuns, ()


def _values(tensors: Sequence[Tensor]) -> int:
    return max((tensor.numel() for tensor in tensors), default=0)


def _record(function: Function, inputs: Sequence[Tensor]) -> _Recorded:
    with torch.inference_mode(False):  # later runs may come outside of that mode
        given = [tensor.detach().clone() for tensor in inputs]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function(*given)  # what is allocated or compiled once must not be part of the graph
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = function(*given)
    return _Recorded(graph, given, results, torch.cuda.Event(), function)  # type: ignore[no-untyped-call]
