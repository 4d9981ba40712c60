"""Runs on a CUDA device as recorded graphs: one launch by the host instead of one per kernel."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

#: Recorded runs that are kept, the ones used last.
_MOST = 16


@dataclass(frozen=True)
class _Recorded:
    """A graph, the tensor that it reads and the tensor that it writes."""

    graph: torch.cuda.CUDAGraph
    given: Tensor
    result: Tensor
    done: torch.cuda.Event


class RecordedRuns:
    """Runs of fixed parameters, recorded when the same kind of run comes for the second time."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._runs: OrderedDict[Hashable, _Recorded] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, key: Hashable, function: Callable[[Tensor], Tensor], state: Tensor) -> Tensor:
        """function(state), which depends on nothing but `key` and the state."""
        if torch.cuda.is_current_stream_capturing():  # then this is part of the caller's graph
            return function(state)
        with self._lock:
            recorded = self._runs.get(key)
            if recorded is None:
                if key not in self._seen:
                    self._seen.add(key)
                    return function(state)
                recorded = self._runs[key] = _record(function, state)
                if len(self._runs) > _MOST:
                    self._runs.popitem(last=False)
            self._runs.move_to_end(key)
            recorded.done.wait()  # another stream may still read the result of the last run
            recorded.given.copy_(state)
            recorded.graph.replay()
            result = recorded.result.clone()
            recorded.done.record()
            return result


def _record(function: Callable[[Tensor], Tensor], state: Tensor) -> _Recorded:
    given = state.detach().clone()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function(given)  # what is allocated or compiled once must not be part of the graph
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function(given)
    return _Recorded(graph, given, result, torch.cuda.Event())  # type: ignore[no-untyped-call]
