"""Calls that end: each in a process of its own, which is stopped when its time is up."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any


class Limited:
    """Makes one call after another in a process that is kept until a call takes too long."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What the function returns; TimeoutError if that takes longer."""
        if self._pool is None:
            self._pool = multiprocessing.get_context("spawn").Pool(1)
            self._pool.apply(_ready)  # so that the imports are not counted
        try:
            return self._pool.apply_async(function, arguments).get(timeout=seconds)
        except multiprocessing.TimeoutError:
            self.close()
            raise TimeoutError from None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
        self._pool = None

    def __enter__(self) -> Limited:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _ready() -> None:
    import torch

    import latentgamma.learning.fit  # noqa: F401

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
