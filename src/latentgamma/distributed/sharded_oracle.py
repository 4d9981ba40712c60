"""`oracle`: the model of a program of which each process has a part."""

from __future__ import annotations

import torch
from torch import Tensor

from latentgamma._certificate.constants import Constants, require_horizon
from latentgamma._errors import ModelError
from latentgamma._model.module import LatentGamma
from latentgamma._model.rules import AbstractRules
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._model.stages import GateKind
from latentgamma.distributed.atom_sharded_rules import divide_atoms
from latentgamma.distributed.program_shards import ProgramShard, require_shard
from latentgamma.distributed.sharded_rules import ShardedRules


def oracle(
    shard: ProgramShard,
    constants: Constants | None = None,
    *,
    gate: GateKind = "sigmoid",
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    horizon: float = 10**6,
    atoms: bool = False,
) -> LatentGamma:
    """The sharded model whose parameters are the closed form of a program.

    It is what `latentgamma.oracle` makes of the whole program, divided among the processes that
    have the parts. No process holds all rules, so the model has no `program`: pass `steps`, and
    make states with `shard.rules.state(facts)`.

    Args:
        shard: the rules of this process.
        constants: by default the softest closed form that is proved exact, for every fact set,
            from step D to the horizon, or to step min(M, R) if that is later, which no D exceeds.
        gate: "sigmoid" or "bump".
        dtype: of the states; parameters are float32 or wider.
        device: where the part of this process is.
        horizon: the number of steps that the certified constants must reach.
        atoms: whether to divide the atoms too, as in `shard`.

    Raises:
        ArgumentError: this is not a `ProgramShard`, or the horizon is not a number of steps.
        CertificateError: the dtype cannot give such a window.
        DistributedError: a process has stopped or does not answer.
    """
    require_shard(shard, "oracle")
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise ModelError(f"dtype must be float64, float32, float16 or bfloat16, not {dtype}")
    if constants is None:
        require_horizon(horizon)
        constants = Constants.softest(
            shard,
            max(horizon, min(shard.M, shard.R)),
            dtype=str(dtype).removeprefix("torch."),
            gate=gate,
        )
    c, rules = constants, shard.rules
    wide = dtype if dtype.itemsize >= 4 else torch.float32

    def full(count: int, value: float) -> Tensor:
        return torch.full((count,), value, dtype=wide, device="cpu")

    local = SparseRules(
        SparseRules.literals_of(rules),
        M=rules.M,
        body_logits=full(len(rules.body_indices), c.body),
        body_background=full(rules.R, -c.body),
        head_logits=full(len(rules.head_indices), c.head),
        head_background=full(rules.R, 0.0),
    )
    # As in `latentgamma._certificate.closed_form.ClosedForm`, with the figures of the whole.
    most_heads = int(shard.head_sizes.max(initial=1))
    per_head = torch.tensor(shard.rules_per_head)
    halfway = (c.gamma_plus + per_head.double() * c.gamma_minus) / 2
    offset = torch.where(per_head > 0, halfway, 2 * c.gamma_plus)
    heads = torch.tensor(rules.head_sizes).double()
    place = {"first": shard.first, "total": shard.R}
    rules_of_model: AbstractRules = ShardedRules(local, **place, ranks=shard.ranks)
    if atoms:
        divided = divide_atoms(local, **place, ranks=shard.ranks)
        rules_of_model, offset = divided, offset[divided.own_atoms]
    with torch.device("cpu"):
        model = LatentGamma(
            rules_of_model,
            threshold=(torch.tensor(rules.body_sizes).double() - 0.5).to(wide),
            sharpness=full(rules.R, c.sharpness),
            confidence=(c.confidence * heads / most_heads).to(wide),
            gain=torch.tensor(c.gain * most_heads, dtype=wide),
            offset=offset.to(wide),
            gate=torch.tensor(c.gate, dtype=wide),
            gate_kind=gate,
        )
    return model.to(device=torch.get_default_device() if device is None else device, dtype=dtype)
