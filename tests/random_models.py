"""Models with random parameters, and random states for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from latentgamma import LatentGamma, Program
from latentgamma.operator.rules import AbstractRules, SparseRules
from paper_reference import Parameters

#: How each form of the rules in one process is made from the sparse one.
FORMS: dict[str, Callable[[SparseRules], AbstractRules]] = {
    "sparse": lambda rules: rules,
    "dense": lambda rules: rules.to_dense(),
}


def _sharded(rules: SparseRules) -> AbstractRules:
    """These rules as the part that the only process of a group has."""
    import torch.distributed as dist

    from latentgamma.distributed.collectives import Ranks
    from latentgamma.distributed.shards import ShardedRules

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return ShardedRules(rules, first=0, total=rules.R, ranks=Ranks(dist.group.WORLD, 0, 1))


#: All forms. A new form joins the contract here.
ALL_FORMS = FORMS | {"sharded": _sharded}
#: The forms, and the sparse one run by compiled kernels where there are some for it.
_COMPILED = pytest.param("compiled", marks=pytest.mark.slow)
RUNS, ALL_RUNS = (*FORMS, _COMPILED), (*ALL_FORMS, _COMPILED)
GATES = ("sigmoid", "bump")


def random_model(
    program: Program,
    *,
    form: str = "sparse",
    gate: str = "sigmoid",
    gradient: str = "exact",
    seed: int = 0,
    spread: float = 1.5,
    dtype: torch.dtype = torch.float64,
) -> LatentGamma:
    """A model of this program's structure whose numbers are drawn at random, and soft."""
    rng = torch.Generator().manual_seed(seed)
    R, M = program.R, program.M

    def normal(*shape: int) -> Tensor:
        return spread * torch.randn(shape, generator=rng, dtype=torch.float64)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=rng, dtype=torch.float64)

    rules = SparseRules(
        SparseRules.literals_of(program),
        M=M,
        body_logits=normal(len(program.body_indices)),
        body_background=normal(R) - 1,
        head_logits=normal(len(program.head_indices)) + 1,
        head_background=normal(R) - 1,
    )
    return LatentGamma(
        rules if form == "compiled" else ALL_FORMS[form](rules),
        threshold=uniform(-0.5, 2.5, R),
        sharpness=uniform(0.3, 5.0, R),
        confidence=uniform(0.05, 0.95, R),
        gain=uniform(0.5, 6.0),
        offset=uniform(-0.5, 2.0, M),
        gate=uniform(1.1, 5.0),
        gate_kind=gate,  # type: ignore[arg-type]
        gradient=gradient,  # type: ignore[arg-type]
        kernel="auto" if form == "compiled" else "reference",
        program=program,
    ).to(dtype)


def random_states(
    model: LatentGamma, *shape: int, seed: int = 0, dtype: torch.dtype | None = None
) -> Tensor:
    """States with values in (0, 1), a few exactly 0 and 1."""
    rng = torch.Generator().manual_seed(seed)
    values = torch.rand((*shape, model.M), generator=rng, dtype=torch.float64)
    kind = torch.randint(0, 8, values.shape, generator=rng)
    values = torch.where(kind == 0, 0.0, torch.where(kind == 1, 1.0, values))
    return values.to(model.device, dtype or model.dtype)


def paper_parameters(model: LatentGamma) -> Parameters:
    """A model's numbers as the scalar reference takes them."""
    rules = model.rules.to_dense()
    return Parameters(
        eta=rules.body_logits.tolist(),
        psi=rules.head_logits.tolist(),
        b=model.threshold.tolist(),
        tau=model.sharpness.tolist(),
        rho=model.confidence.tolist(),
        theta=model.offset.tolist(),
        tau_nor=model.gain.detach().item(),
        beta=model.gate.detach().item(),
        bump=model.gate_kind == "bump",
    )
