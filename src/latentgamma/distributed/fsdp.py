"""`fully_shard`: PyTorch's FSDP2 for modules that have models inside."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from latentgamma._errors import ArgumentError
from latentgamma.distributed.collectives import ranks_of

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def fully_shard(module: AnyModule, mesh: DeviceMesh) -> AnyModule:
    """The module with PyTorch's `fully_shard` (FSDP2) applied, whatever models it contains.

    PyTorch's function refuses parameters without a dimension, which every model has two of, the
    gain and the gate. They stay whole in each process, and their gradients are averaged as those
    of the other parameters are.

    Use it where each process has its own examples and the parameters do not fit. Where the rules
    of one model do not fit, use `shard` instead.

    Args:
        module: a network, a `Layer` or a model; it is changed in place, as PyTorch does.
        mesh: a one-dimensional mesh of processes.

    Raises:
        ArgumentError: this is not a module, or the mesh does not have one dimension.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    from torch.distributed.fsdp import fully_shard as shard_parameters

    ranks = ranks_of(mesh)
    scalars = {parameter for parameter in module.parameters() if parameter.dim() == 0}

    def average(slope: Tensor) -> Tensor:
        return ranks.all_reduce(slope)[0] / ranks.size

    for parameter in scalars:
        if parameter.requires_grad:
            parameter.register_hook(average)  # type: ignore[no-untyped-call]
    shard_parameters(module, mesh=mesh, ignored_params=scalars)
    return module
