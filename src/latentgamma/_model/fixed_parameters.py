"""Parameters as they were at one moment, and whether a model uses them instead of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from latentgamma._model.certificate_cache import CertificateCache
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
    certificates: CertificateCache = field(default_factory=CertificateCache)
    recorded_runs: RecordedRuns = field(default_factory=RecordedRuns)
    _coefficients: dict[tuple[str, torch.dtype, bool], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def coefficients(
        self, kernel: Kernel, rows: LiteralRows, dtype: torch.dtype, *, bump: bool
    ) -> Any:
        """The coefficients in the form of this kernel, read once for each dtype and gate."""
        if self.parameters is None:
            raise RuntimeError("these parameters are not those of a sparse model")
        key = str(self.parameters.offset.device), dtype, bump
        with self._lock:
            if key not in self._coefficients:
                self._coefficients[key] = kernel.read(rows, self.parameters, dtype, bump=bump)
            return self._coefficients[key]


class FixedState:
    """Whether this thread or task is inside `fixed()`, and the parameters that it then uses.

    Contexts may be nested: the outermost one reads the parameters. A copy of a model starts
    outside.
    """

    def __init__(self) -> None:
        self._current: ContextVar[FixedParameters | None] = ContextVar("fixed", default=None)
        self._open = 0  # in all threads; torch.compile can read this, but no context variable
        self._lock = threading.Lock()

    @property
    def current(self) -> FixedParameters | None:
        """The parameters to use; None outside."""
        return self._current.get() if self._open else None

    @contextmanager
    def enter(self, read: Callable[[], FixedParameters]) -> Iterator[None]:
        """Use the parameters that `read` returns until the context ends, unless already inside."""
        token = self._current.set(self.current or read())
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
            self._current.reset(token)

    def __reduce__(self) -> tuple[type[FixedState], tuple[()]]:
        return FixedState, ()
