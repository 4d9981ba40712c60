"""`shard` and `gather`: from a model in one process to one in many, and back."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from latentgamma._errors import ModelError
from latentgamma._model.module import LatentGamma, require_latent_gamma
from latentgamma._model.rules import AbstractRules
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._program.program import Program
from latentgamma.distributed.atom_sharded_rules import AtomShardedRules, divide_atoms
from latentgamma.distributed.collectives import ranks_of
from latentgamma.distributed.hashing import mixed_bits
from latentgamma.distributed.partition import balanced_ranges
from latentgamma.distributed.sharded_rules import ShardedRules, rows_between

#: The parameters that have one number for each rule.
OF_RULES = ("threshold", "sharpness_raw", "confidence_raw")
#: The parameters that have one number for each atom.
OF_ATOMS = ("offset",)
#: The parameters that are one number.
OF_ALL = ("gain_raw", "gate_raw")


def shard(model: LatentGamma, mesh: DeviceMesh, *, atoms: bool = False) -> LatentGamma:
    """A model that computes the same with its rules divided among the processes of a mesh.

    Every process calls it with the same model, and later with the same states; each gets the
    same values, and the gradients of its own rules. Parameters that all rules share, and the
    state, get the same gradient in every process. Optimisers work as usual.

    Each process keeps a contiguous range of the rules with about the same number of literals.
    The model that was given is not changed.

    With `atoms`, the state is divided as well. Each process passes and gets the values of its own
    atoms, `state[..., model.rules.own_atoms]`, and the loss is the sum of what the processes
    compute from these. Such a model has no program.

    Args:
        model: a model with dense or sparse rules, the same in every process.
        mesh: a one-dimensional mesh of processes.
        atoms: whether to divide the atoms too, of a model with sparse rules.

    Returns:
        A model whose `rules` are `ShardedRules`, or with `atoms` `AtomShardedRules`.

    Raises:
        ModelError: this is not such a model, it is sharded already, or the processes have different
            ones.
        ArgumentError: the mesh does not have one dimension.
        DistributedError: a process has stopped or does not answer.
    """
    require_latent_gamma(model, "shard")
    ranks = ranks_of(mesh)
    rules = model.rules
    if rules.sharded:
        raise ModelError("this model is sharded already; gather it first")
    if atoms and not isinstance(rules, SparseRules):
        raise ModelError(
            'atoms=True needs sparse rules; make the model with oracle(program, form="sparse")'
        )
    if not ranks.agree(_checksum(model)):
        raise ModelError(
            "the processes have different models; make them from the same program, with the same "
            "seed, or load the same file"
        )
    held = rules.literals()
    costs = torch.ones(rules.R, dtype=torch.int64, device=held.body_rule.device)
    for rule in (held.body_rule, held.head_rule):
        costs += torch.bincount(rule, minlength=rules.R)
    bounds = balanced_ranges(costs.cpu().numpy(), ranks.size)
    start, stop = bounds[ranks.rank], bounds[ranks.rank + 1]
    local = rows_between(rules, start, stop)
    raw = {name: getattr(model, name).detach()[start:stop].clone() for name in OF_RULES}
    raw |= {name: getattr(model, name).detach().clone() for name in (*OF_ATOMS, *OF_ALL)}
    if atoms and isinstance(local, SparseRules):
        divided = divide_atoms(local, first=start, total=rules.R, ranks=ranks)
        raw["offset"] = raw["offset"][divided.own_atoms].clone()
        return with_rules(model, divided, raw, None)
    sharded = ShardedRules(local, first=start, total=rules.R, ranks=ranks)
    return with_rules(model, sharded, raw, model.program)


def gather(model: LatentGamma) -> LatentGamma:
    """The whole of a sharded model, in every process: what `shard` was given.

    Every process of the mesh calls it. The model that was given is not changed. A model that was
    sharded with `atoms` comes back without its program.

    Raises:
        ModelError: the model is not sharded.
        DistributedError: a process has stopped or does not answer.
    """
    require_latent_gamma(model, "gather")
    rules = model.rules
    if not isinstance(rules, (ShardedRules, AtomShardedRules)):
        raise ModelError("this model is not sharded")
    divided = (*OF_RULES, *OF_ATOMS) if isinstance(rules, AtomShardedRules) else OF_RULES
    raw = {
        name: (
            rules.ranks.concatenate(getattr(model, name))
            if name in divided
            else getattr(model, name).detach().clone()
        )
        for name in (*OF_RULES, *OF_ATOMS, *OF_ALL)
    }
    return with_rules(model, rules.gathered(), raw, model.program)


def _checksum(model: LatentGamma) -> int:
    """A number that differs for other parameters or literals."""
    total = 0
    for place, tensor in enumerate((*model.parameters(), *model.rules.buffers())):
        data = tensor.detach().contiguous()
        bits = data.view(torch.int64 if data.element_size() == 8 else torch.int32)
        total = 31 * total + int(mixed_bits(bits.to(torch.int64) + place).sum()) + len(bits.shape)
    return total % (1 << 62)


def with_rules(
    model: LatentGamma, rules: AbstractRules, raw: dict[str, Tensor], program: Program | None
) -> LatentGamma:
    """A model with the options of another, these rules and these raw parameters."""
    gain, gate = model.gain.detach(), model.gate.detach()
    made = LatentGamma(
        rules,
        threshold=raw["threshold"],
        sharpness=torch.ones_like(raw["sharpness_raw"]),
        confidence=torch.full_like(raw["confidence_raw"], 0.5),
        gain=gain,
        offset=raw["offset"],
        gate=gate,
        gate_kind=model.gate_kind,
        kernel=model.kernel,
        program=program,
    )
    with torch.no_grad():
        for name, values in raw.items():
            parameter = getattr(made, name)
            parameter.copy_(values)  # as they are stored, without a way back and forth
            parameter.requires_grad_(getattr(model, name).requires_grad)
    # The logits by the last part of their names: one has `rules.local.`, the other `rules.`.
    wanted = {
        name.rpartition(".")[2]: parameter.requires_grad
        for name, parameter in model.rules.named_parameters()
    }
    for name, parameter in rules.named_parameters():
        parameter.requires_grad_(wanted[name.rpartition(".")[2]])
    made.to(dtype=model.dtype).train(model.training)
    made.gradient = model.gradient
    return made
