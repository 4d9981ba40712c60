"""Collective operations among processes, and who holds which part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from latentgamma.errors import ArgumentError, DistributedError, ModelError

# ---- A hash of numbers, to tell whether processes have the same


def mixed_bits(numbers: Tensor) -> Tensor:
    """Return a hash of each 64-bit number: the finalizer of splitmix64, in wrapping arithmetic."""
    numbers = (numbers ^ (numbers >> 30)) * -4658895280553007687
    numbers = (numbers ^ (numbers >> 27)) * -7723592293110705685
    return numbers ^ (numbers >> 31)


# ---- How rules and atoms are divided among processes: contiguous ranges, balanced by cost


def balanced_ranges(costs: npt.ArrayLike, parts: int) -> list[int]:
    """Return the bounds of `parts` contiguous ranges of about equal cost; some may be empty.

    >>> balanced_ranges([1, 1, 1, 1, 8], 2)
    [0, 4, 5]
    >>> balanced_ranges([2, 2], 4)
    [0, 0, 1, 1, 2]

    Args:
        costs: the cost of each item, at least 0.
        parts: the number of ranges.

    Returns:
        `parts + 1` bounds: range r has the items from bound r up to bound r + 1.
    """
    ends = np.cumsum(np.asarray(costs, np.float64))
    total = ends[-1] if len(ends) else 0.0
    # An item belongs to the range in which its middle lies.
    middles = ends - np.asarray(costs, np.float64) / 2
    targets = total * np.arange(1, parts) / parts
    return [0, *np.searchsorted(middles, targets).tolist(), len(ends)]


def even_ranges(count: int, parts: int) -> list[int]:
    """Return the bounds of `parts` contiguous ranges of this many items, equal up to one item.

    >>> even_ranges(7, 3)
    [0, 2, 4, 7]
    """
    return [count * part // parts for part in range(parts + 1)]


# ---- Operations over several processes, with gradients, on top of torch.distributed
# A tensor is *replicated* where every process holds the same values, and *partial* where the value
# is the sum over the processes. Two functions lead from one to the other, and each is the backward
# pass of the other: `sum_over_ranks` from partial to replicated, `copy_to_ranks` back.

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Ranks:
    """The processes that share a model, which of them this one is, and the kind of its device."""

    group: dist.ProcessGroup
    rank: int
    size: int
    device: str = "cpu"

    def all_reduce(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the sums of these tensors over all processes. No gradients."""
        sums = tuple(
            tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in tensors
        )

        def run() -> None:
            works = [dist.all_reduce(each, group=self.group, async_op=True) for each in sums]
            for work in works:
                if work is not None:
                    work.wait()

        self._checked(run)
        return sums

    def largest(self, *values: int) -> list[int]:
        """Return the largest of each of these numbers over all processes."""
        found = self._integers(values)
        self._checked(lambda: dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group))
        return [int(value) for value in found.tolist()]

    def counts(self, *values: int) -> list[list[int]]:
        """Return these numbers of every process, by rank."""
        own = self._integers(values)
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._checked(lambda: dist.all_gather(found, own, group=self.group))
        return [[int(x) for x in row.tolist()] for row in found]

    def agree(self, number: int) -> bool:
        """Return whether all processes have the same number."""
        return len({row[0] for row in self.counts(number)}) == 1

    def concatenate(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, joined along the first dimension by rank."""
        lengths = [row[0] for row in self.counts(len(tensor))]
        longest = max(lengths)
        padded = tensor.new_zeros(longest, *tensor.shape[1:])
        padded[: len(tensor)] = tensor.detach()
        parts = [torch.empty_like(padded) for _ in lengths]
        self._checked(lambda: dist.all_gather(parts, padded, group=self.group))
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    def exchange(self, tensor: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """Return what every process sends to this one, by rank. No gradients.

        `send` and `receive` say how many rows go to each rank and come from it.
        """
        given = tensor.detach().contiguous()
        found = given.new_empty(sum(receive), *given.shape[1:])
        self._checked(
            lambda: dist.all_to_all_single(
                found, given, list(receive), list(send), group=self.group
            )
        )
        return found

    def objects(self, value: T) -> list[T]:
        """Return the values of all processes, by rank; any value that can be pickled."""
        found: list[Any] = [None] * self.size
        self._checked(lambda: dist.all_gather_object(found, value, group=self.group))
        return found

    def broadcast(self, value: T, rank: int) -> T:
        """Return the value of one process; any value that can be pickled."""
        found: list[Any] = [value]
        self._checked(lambda: dist.broadcast_object_list(found, group=self.group, group_src=rank))
        shared: T = found[0]
        return shared

    def _integers(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def _checked(self, run: Callable[[], object]) -> None:
        try:
            run()
        except (dist.DistError, RuntimeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DistributedError(
                f"rank {self.rank} of {self.size}: another process has stopped, does not answer or has "
                f"a state of another shape; restart all processes and load the last checkpoint "
                f"({reason})"
            ) from error

    def __deepcopy__(self, memo: dict[int, Any]) -> Ranks:
        return self

    def __reduce__(self) -> Any:
        raise ModelError(
            "a sharded model cannot be pickled, since it is connected to other processes; save it "
            "with latentgamma.distributed.save_checkpoint, or gather it first"
        )


def ranks_of(mesh: object) -> Ranks:
    """Return the processes of a one-dimensional mesh.

    Raises:
        ArgumentError: this is not such a mesh, or this process is not part of it.
    """
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentError(
            f"mesh must be a torch.distributed.device_mesh.DeviceMesh, not {type(mesh).__name__}; "
            'make one with init_device_mesh("cpu", (dist.get_world_size(),))'
        )
    if mesh.ndim != 1:
        raise ArgumentError(
            f"mesh must have one dimension, but has {mesh.ndim}: {mesh.mesh_dim_names}; pass one of "
            "them, for example mesh['rules']"
        )
    if mesh.get_coordinate() is None:
        raise ArgumentError("this process is not part of the mesh")
    group = mesh.get_group()
    return Ranks(group, dist.get_rank(group), dist.get_world_size(group), mesh.device_type)


def sum_over_ranks(ranks: Ranks, *partial: Tensor) -> tuple[Tensor, ...]:
    """Return the sums of partial tensors; the gradient of a replicated result is taken as it is."""
    sums: tuple[Tensor, ...] = _SumOrCopy.apply(ranks, True, *partial)  # type: ignore[no-untyped-call]
    return sums


def copy_to_ranks(ranks: Ranks, *replicated: Tensor) -> tuple[Tensor, ...]:
    """Return these replicated tensors; their gradients are summed over the processes."""
    copies: tuple[Tensor, ...] = _SumOrCopy.apply(ranks, False, *replicated)  # type: ignore[no-untyped-call]
    return copies


def exchange(ranks: Ranks, tensor: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
    """Return `Ranks.exchange` with gradients, which go back the way the values came."""
    found: Tensor = _Exchange.apply(ranks, tensor, tuple(send), tuple(receive))  # type: ignore[no-untyped-call]
    return found


class _SumOrCopy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ranks: Ranks, summed: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.ranks, ctx.back = ranks, copy_to_ranks if summed else sum_over_ranks
        return ranks.all_reduce(*tensors) if summed else tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.back(ctx.ranks, *slopes)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ranks: Ranks, tensor: Tensor, send: tuple[int, ...], receive: tuple[int, ...]
    ) -> Tensor:
        ctx.ranks, ctx.send, ctx.receive = ranks, send, receive
        return ranks.exchange(tensor, send, receive)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return None, exchange(ctx.ranks, slope, ctx.receive, ctx.send), None, None
