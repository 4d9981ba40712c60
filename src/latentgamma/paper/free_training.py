"""Training as in the paper: every parameter free, mean squared error, through all steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch

from latentgamma._arguments import one_of, usable_device, whole_number
from latentgamma.learning.data import observe
from latentgamma.learning.extract import extract
from latentgamma.operator.model import LatentGamma
from latentgamma.operator.rules import DenseRules
from latentgamma.program.program import Program

#: Steps of the optimiser, and the examples of each.
_STEPS = 600
_BATCH = 128
#: Steps of the operator that closures are learned through.
_DEPTH = 12


class FreelyTrained(NamedTuple):
    """A model of which every parameter was trained, and the rules that it applies.

    >>> import latentgamma as lg
    >>> trained = lg.paper.train_freely([[1, 0], [0, 0]], [[1, 1], [0, 0]], atoms=["penguin", "bird"])
    >>> trained.program.atoms, trained.explained
    (('penguin', 'bird'), 1.0)

    Attributes:
        model: the trained model.
        program: the rules extracted from it.
        explained: the fraction of single labels that the model itself gets right.
    """

    model: LatentGamma
    program: Program
    explained: float


def train_freely(
    inputs: Any,
    targets: Any = None,
    *,
    kind: Literal["transitions", "closures", "trajectories"] = "transitions",
    atoms: Sequence[str] | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> FreelyTrained:
    """Return a model with every parameter trained freely, and the rules that it applies.

    This reproduces a negative result: the model can fit well and be aligned with no rule, since
    a free threshold lets several rows share a rule. `lg.fit` finds rules.

    Args:
        inputs: states before, as `lg.fit` takes them.
        targets: states after.
        kind: "transitions", one step of the rules; "closures", everything that follows;
            "trajectories", arrays of successive states, without targets.
        atoms: the names of the columns.
        seed: the seed of everything random.
        device: where the model is trained.

    Returns:
        The trained model, the extracted program, and the fraction of labels it gets right.

    Raises:
        DataError: the observations cannot be used.
        ArgumentError: `kind` or `seed` is not one of those above.

    >>> import numpy as np
    >>> states = np.random.default_rng(0).random((64, 2)) < 0.5
    >>> trained = train_freely(states, states | states[:, :1], atoms=["penguin", "bird"])
    >>> trained.model.M, trained.explained > 0.9
    (2, True)
    """
    one_of("kind", kind, ("transitions", "closures", "trajectories"))
    whole_number("seed", seed)
    device = usable_device(device)
    data = observe(inputs, targets, kind=kind, atoms=atoms)
    generator = torch.Generator().manual_seed(seed)
    M = data.M
    R = 2 * M

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    model = LatentGamma(
        DenseRules(normal(R, M) - 2.0, normal(R, M)),
        threshold=torch.full((R,), 0.75),
        sharpness=torch.full((R,), 3.0),
        confidence=torch.full((R,), 0.9),
        gain=torch.tensor(5.0),
        offset=torch.full((M,), 2.0),
        gate=torch.tensor(2.0),
        program=Program.from_rules([], data.atoms),
    ).to(device)
    steps = _DEPTH if kind == "closures" else 1
    states = torch.from_numpy(data.states).float().to(device)
    target = torch.from_numpy(data.labels == 1).float().to(device)
    known = torch.from_numpy(data.labels >= 0).float().to(device)
    weights = torch.from_numpy(data.counts / data.counts.sum()).float()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(_STEPS):
        rows = torch.multinomial(weights, _BATCH, replacement=True, generator=generator)
        rows = rows.to(device)
        optimiser.zero_grad()
        error = (
            (model(states[rows], steps, memory="all") - target[rows]) ** 2 * known[rows]
        ).mean()
        error.backward()
        optimiser.step()
    model.requires_grad_(False)
    right = ((model(states, steps) > 0.5) == (target == 1))[known == 1]
    model.program = extract(model, steps=steps, seed=seed)
    return FreelyTrained(model, model.program, float(right.float().mean()))
