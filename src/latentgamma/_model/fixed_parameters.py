"""Parameters as they were at one moment, and whether a model uses them instead of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from latentgamma._certificate.certificate import Certificate
from latentgamma._model.kernels.coefficients import Parameters
from latentgamma._model.kernels.cuda_graphs import RecordedRuns
from latentgamma._model.kernels.interface import Kernel
from latentgamma._model.kernels.literal_rows import LiteralRows
from latentgamma._model.rules import StepParameters


@dataclass(eq=False)
class FixedParameters:
    """A copy of a model's parameters, and what was computed from it once.

    `parameters` are those of a sparse model; they are None for other forms.
    """

    step_parameters: StepParameters
    parameters: Parameters | None
    certificate: Certificate | None = None
    recorded_runs: RecordedRuns = field(default_factory=RecordedRuns)
    _coefficients: dict[tuple[str, torch.dtype], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def coefficients(
        self, kernel: Kernel, rows: LiteralRows, dtype: torch.dtype, *, bump: bool
    ) -> Any:
        """The coefficients in the form of this kernel, read once for each dtype of states."""
        if self.parameters is None:
            raise RuntimeError("these parameters are not those of a sparse model")
        key = str(self.parameters.offset.device), dtype
        with self._lock:
            if key not in self._coefficients:
                self._coefficients[key] = kernel.read(rows, self.parameters, dtype, bump=bump)
            return self._coefficients[key]


class FixedState:
    """Whether a model is inside `fixed()`, and the parameters that it then uses.

    Contexts may be nested, and several threads may be inside at a time: all of them use what the
    first one read, and the last one to leave ends it. A copy of a model starts outside.
    """

    def __init__(self) -> None:
        self.current: FixedParameters | None = None
        self._open = 0
        self._lock = threading.Lock()

    def enter(self, read: Callable[[], FixedParameters]) -> None:
        """Read the parameters, unless a context is open already."""
        with self._lock:
            if self.current is None:
                self.current = read()
            self._open += 1

    def leave(self) -> None:
        """Follow the model's own parameters again, if this was the last open context."""
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self.current = None

    def __reduce__(self) -> tuple[type[FixedState], tuple[()]]:
        return FixedState, ()
