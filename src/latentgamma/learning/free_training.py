"""Training as in the paper: every parameter free, mean squared error, through all steps."""

from __future__ import annotations

from collections.abc import Callable

import torch

from latentgamma.learning.data import Observations
from latentgamma.learning.extract import extract
from latentgamma.operator.model import LatentGamma
from latentgamma.operator.rules import DenseRules
from latentgamma.program.program import Program

_STEPS = 600
_BATCH = 128
#: Steps of the operator that closures are learned through.
_DEPTH = 12


def train_unconstrained(
    data: Observations,
    *,
    closed: bool,
    seed: int,
    device: torch.device | str,
    report: Callable[[str, int, float], None],
) -> tuple[LatentGamma, Program]:
    """Return a model with every parameter trained freely, and the rules that it applies.

    This reproduces a negative result: the model can fit well and be aligned with no rule, since
    a free threshold lets several rows share a rule.

    Args:
        data: the examples.
        closed: whether a target is everything that follows, and not one step.
        seed: the seed of everything random.
        device: where the model is trained.
        report: called with the step, the number of rules (0) and the share of labels that fit.
    """
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
    steps = _DEPTH if closed else 1
    states = torch.from_numpy(data.states).float().to(device)
    target = torch.from_numpy(data.labels == 1).float().to(device)
    known = torch.from_numpy(data.labels >= 0).float().to(device)
    weights = torch.from_numpy(data.counts / data.counts.sum()).float()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for step in range(_STEPS):
        rows = torch.multinomial(weights, _BATCH, replacement=True, generator=generator)
        rows = rows.to(device)
        optimiser.zero_grad()
        error = (
            (model(states[rows], steps, memory="all") - target[rows]) ** 2 * known[rows]
        ).mean()
        error.backward()
        optimiser.step()
        if step % 50 == 49:
            report(f"step {step + 1}", 0, _soft_accuracy(model, data, steps))
    program = extract(model, steps=steps, seed=seed)
    model.program = program
    return model.requires_grad_(False), program


def _soft_accuracy(model: LatentGamma, data: Observations, steps: int) -> float:
    """Return the share of single labels that the model itself gets right."""
    with torch.no_grad():
        states = torch.from_numpy(data.states).to(model.device, model.dtype)
        after = (model(states, steps) > 0.5).cpu().numpy()
    known = data.labels >= 0
    return float((after == (data.labels == 1))[known].mean())
