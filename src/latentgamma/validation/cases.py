"""The graphs of the experiments with their fact sets, and workers that run jobs in parallel."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma import generators
from latentgamma._certificate.constants import Constants
from latentgamma._errors import DataError
from latentgamma._logic.closure import closure
from latentgamma._logic.closures import closures
from latentgamma._model.module import LatentGamma
from latentgamma._model.oracle import definite_oracle
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program
from latentgamma.validation.printed import EXAMPLES

GRAPHS = ("g1", "g2", "g3", "g4")
#: Every run takes this many steps: a few more than the deepest derivation, 32, needs.
STEPS = 36
KINDS = ("paper", "certified")

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
Device = torch.device | str
#: Called with the phase, the jobs done in it, and the jobs it has.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Case:
    """A graph with its fact sets and their closures."""

    name: str
    program: Program
    facts: Mask  # (N, M)
    closures: Mask  # (N, M)

    def oracle(self, kind: str, device: Device, dtype: torch.dtype = torch.float32) -> LatentGamma:
        """The dense model, with the paper's or the certified constants."""
        constants = constants_of(kind, self.program)
        return definite_oracle(self.program, constants, form="dense", dtype=dtype, device=device)


def case_of(name: str, seed: int, examples: int = EXAMPLES) -> Case:
    """The program, fact sets and closures of one of the paper's graphs."""
    if name not in GRAPHS:
        raise DataError(f"graphs are {', '.join(GRAPHS)}, not {name!r}")
    program = getattr(generators, name)(seed=seed)
    rng = generator_for(seed, "facts", name)
    facts = np.zeros((examples, program.M), np.bool_)
    for row, size in zip(facts, rng.integers(2, 9, examples), strict=True):
        row[rng.choice(program.M, size, replace=False)] = True
    return Case(name, program, facts, closures(program, facts))


def constants_of(kind: str, program: Program) -> Constants:
    """The paper's constants, or the certified ones of the program."""
    return Constants.paper() if kind == "paper" else Constants.certified(program)


def generator_for(seed: int, *purpose: str | int) -> np.random.Generator:
    """A random generator for one purpose, independent of those for others."""
    words = [int.from_bytes(str(word).encode(), "big") for word in purpose]
    return np.random.default_rng([seed, *words])


def productive_roots(program: Program) -> list[str]:
    """The roots that alone derive at least one other atom."""
    return [root for root in program.roots if closure(program, root).depth > 0]


def state_of(facts: npt.NDArray[np.bool_], model: LatentGamma) -> Tensor:
    """Fact sets as states on the model's device. (…, M)."""
    return torch.from_numpy(facts).to(device=model.device, dtype=model.dtype)


def finite(value: float) -> float | None:
    """The value, or None if it is infinite, which JSON cannot represent."""
    return value if math.isfinite(value) else None


# -------------------------------------------------------------------- parallel jobs


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """One worker per core, each computing on a single thread.

    Small matrix products are faster on one thread, and their sums have a fixed order, so that
    results are the same bit for bit.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        count = min(4, os.cpu_count() or 1)
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def each(
    job: Callable[[_Item], _Found],
    items: Iterable[_Item],
    phase: str,
    progress: Progress | None,
) -> tuple[_Found, ...]:
    """The results of the job for every item, in order."""
    todo = list(items)

    def run(item: _Item) -> _Found:
        with torch.no_grad():  # a setting of each thread
            return job(item)

    found = []
    with _workers() as pool:
        for done, result in enumerate(pool.map(run, todo)):
            found.append(result)
            if progress is not None:
                progress(phase, done + 1, len(todo))
    return tuple(found)
