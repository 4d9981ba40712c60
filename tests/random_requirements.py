"""Random clauses, and everything about them by enumeration in float64."""

import itertools

import numpy as np
import torch
from torch import Tensor

from latentgamma import Requirements
from latentgamma.requirements.readers import ClauseList


def random_requirements(rng: np.random.Generator, most_labels: int = 9) -> Requirements:
    """Requirements of any kind over labels a0, a1, …, which may be unsatisfiable."""
    L = int(rng.integers(1, most_labels + 1))
    found = ClauseList("<random>", {f"a{i}": i for i in range(L)})
    for line in range(int(rng.integers(1, 11))):
        chosen = rng.choice(L, size=min(L, int(rng.integers(1, 5))), replace=False)
        signs = rng.random(len(chosen)) < 0.5
        heads = [int(i) for i, positive in zip(chosen, signs, strict=True) if positive]
        found.add(heads, [int(i) for i in chosen if int(i) not in heads], line + 1)
    return Requirements._of(found)


def worlds(req: Requirements) -> Tensor:
    """All models, one a row, in float64."""
    every = np.array(list(itertools.product([False, True], repeat=len(req.labels))))
    kept = np.ones(len(every), np.bool_)
    for c in range(len(req)):
        kept &= np.any([every[:, x] if x >= 0 else ~every[:, ~x] for x in req.clause(c)], axis=0)
    return torch.from_numpy(every[kept]).double()


def marginals(x: Tensor, models: Tensor, *, hard: bool) -> Tensor:
    """m_a of the definition, at temperature 1 or 0; infinite where a label is the same in all."""
    totals = x.double() @ models.T

    def over(which: Tensor) -> Tensor:
        if not which.any():
            return totals.new_full((len(totals),), -torch.inf)
        part = totals[:, which]
        return part.amax(1) if hard else torch.logsumexp(part, 1)

    columns = [over(models[:, a] > 0) - over(models[:, a] == 0) for a in range(models.shape[1])]
    return torch.stack(columns, 1)


def log_share(x: Tensor, models: Tensor) -> Tensor:
    """log P(C)."""
    x = x.double()
    everything = torch.nn.functional.softplus(x).sum(1)
    return torch.logsumexp(x @ models.T, 1) - everything


DRIVING = """
car ; bus ; pedestrian :- moves.
:- car, bus.
:- car, pedestrian.
:- bus, pedestrian.
-crossing :- bus.
pedestrian or car or not crossing
moves ; stands :- car.
:- moves, stands.
red ; green :- light.
light :- red.
light :- green.
:- red, green.
stands :- car, red, not crossing.
"""
