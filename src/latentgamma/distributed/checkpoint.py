"""Saves and loads divided models, for any number of processes."""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from latentgamma._arguments import whole_number
from latentgamma.distributed.collectives import Ranks, mixed_bits
from latentgamma.distributed.shards import AtomShardedRules, DividedRules
from latentgamma.errors import DistributedError, ModelError
from latentgamma.operator.model import LatentGamma, require_definite_model
from latentgamma.operator.rules import Literals, SparseRules

# ---- Where the values of a process belong among those of all processes


class PlacedTensor(Tensor):
    """A tensor of this process that stands at `first` in one of all processes.

    It shares the memory of the tensor that it was made from. The three methods with underscores
    are what torch.distributed.checkpoint asks of a tensor that is a part of another.
    """

    first: int
    total: int

    @staticmethod
    def of(tensor: Tensor, first: int, total: int) -> PlacedTensor:
        """Return this tensor, with its place and the length of the whole."""
        placed = tensor.detach().as_subclass(PlacedTensor)
        placed.first, placed.total = first, total
        return placed

    def size(self) -> torch.Size:  # type: ignore[override]
        """Return the shape of the whole tensor."""
        return torch.Size([self.total, *self.shape[1:]])

    def _chunk(self) -> ChunkStorageMetadata:
        offsets = [self.first, *(0 for _ in self.shape[1:])]
        return ChunkStorageMetadata(torch.Size(offsets), self.shape)

    def __create_write_items__(self, fqn: str, object: object) -> list[WriteItem]:  # noqa: A002
        if not len(self):
            return []
        chunk = self._chunk()
        properties = TensorProperties.create_from_tensor(self.as_subclass(Tensor))
        data = TensorWriteData(chunk=chunk, properties=properties, size=self.size())
        index = MetadataIndex(fqn, chunk.offsets)
        return [WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data)]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [self._chunk()] if len(self) else []

    def __get_tensor_shard__(self, index: Any) -> Tensor:
        return self.as_subclass(Tensor)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the rules, literals and atoms of a process belong among all of them.

    Each is a pair: the number of the first one in this process, and how many there are in all.
    """

    ranks: Ranks | None
    sparse: bool
    rule: tuple[int, int]
    body: tuple[int, int]
    head: tuple[int, int]
    atom: tuple[int, int]
    literals: Literals

    def placed(self, name: str, values: Tensor) -> Tensor:
        """Return the values of a parameter with their place; whole ones as they are."""
        if self.ranks is None or not values.dim():
            return values
        places = {
            "rules.body_logits": self.body if self.sparse else self.rule,
            "rules.head_logits": self.head if self.sparse else self.rule,
            "offset": self.atom,
        }
        first, total = places.get(name, self.rule)
        return values if len(values) == total else PlacedTensor.of(values, first, total)

    def checksum(self) -> Tensor:
        """Return numbers that depend on all literals, and not on how they are divided. (4,).

        The literals of dense rules depend on their logits, so those count for nothing here.
        """
        held, M = self.literals, self.atom[1]
        sums = [
            mixed_bits((rule + self.rule[0]) * M + atom).sum()
            for rule, atom in ((held.body_rule, held.body_atom), (held.head_rule, held.head_atom))
        ]
        own = torch.stack(sums) * self.sparse
        total = own if self.ranks is None else self.ranks.all_reduce(own)[0]
        return torch.cat([total, total.new_tensor([M, self.rule[1]])])


def layout_of(model: LatentGamma) -> Layout:
    """Return the layout of a model; all processes of a sharded one call it together."""
    rules = model.rules
    literals = rules.literals()
    body, head = len(literals.body_rule), len(literals.head_rule)
    if not isinstance(rules, DividedRules):
        pairs = ((0, rules.R), (0, body), (0, head), (0, rules.M))
        return Layout(None, isinstance(rules, SparseRules), *pairs, literals)
    counts, own = rules.ranks.counts(body, head), rules.ranks.rank
    body_place, head_place = (
        (sum(row[i] for row in counts[:own]), sum(row[i] for row in counts)) for i in range(2)
    )
    return Layout(
        ranks=rules.ranks,
        sparse=isinstance(rules.local, SparseRules),
        rule=(rules.first, rules.total),
        body=body_place,
        head=head_place,
        atom=(
            rules.own_atoms.start if isinstance(rules, AtomShardedRules) else 0,
            rules.total_atoms,
        ),
        literals=literals,
    )


# ---- Checkpoints of models and optimisers through torch.distributed.checkpoint
# A folder holds numbered checkpoints. One is complete once its `.metadata` file is there, which is
# written last. Values are stored with their place among those of all rules, so they can be loaded by
# any number of processes, or by one without torch.distributed.

#: Each folder of a checkpoint is called this and a number.
_NAME = "checkpoint-"


def save_checkpoint(
    folder: str | os.PathLike[str],
    model: LatentGamma,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    step: int = 0,
) -> None:
    """Write a checkpoint to a folder; all processes of a sharded model call it together.

    Each process writes its own rules. A model that is not sharded is saved by one process. Once the new checkpoint is complete, older ones in the
    folder are deleted; a run that is interrupted before leaves the older one.

    Args:
        folder: where the checkpoints of this run are; it is created.
        model: sharded or not.
        optimizer: an optimiser of this model's parameters.
        step: the number of training steps done, which `load_checkpoint` returns.

    Raises:
        ModelError: the folder cannot be written, or the optimiser has other parameters.
        DistributedError: a process has stopped or does not answer.
    """
    require_definite_model(model, "save_checkpoint")
    whole_number("step", step)
    layout = layout_of(model)
    values = _values(model, optimizer, layout) | {"step": torch.tensor(step)}
    values["checksum"] = layout.checksum()
    folder = Path(folder)
    older = _numbers(folder)
    number = _largest(layout.ranks, 1 + max(older, default=0))
    target = folder / f"{_NAME}{number}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _run(layout.ranks, "save", lambda **options: save(values, **options), target)
        if layout.ranks is None or layout.ranks.rank == 0:
            for old in older:
                shutil.rmtree(folder / f"{_NAME}{old}", ignore_errors=True)
    except OSError as error:
        raise ModelError(f"cannot write a checkpoint to {str(folder)!r}: {error}") from None
    if layout.ranks is not None:
        layout.ranks.largest(0)  # no process goes on before the older ones are deleted


def load_checkpoint(
    folder: str | os.PathLike[str],
    model: LatentGamma,
    optimizer: torch.optim.Optimizer | None = None,
) -> int:
    """Load the last complete checkpoint of a folder, and return its number of training steps.

    The number of processes may differ from that at the time of writing. The list of tensors in a
    checkpoint is a pickle of torch.distributed.checkpoint, so load checkpoints of your own only.

    Args:
        folder: what `save_checkpoint` was given.
        model: a model of the same program, sharded or not; its parameters are overwritten.
        optimizer: an optimiser of this model's parameters; its state is overwritten.

    Raises:
        ModelError: there is no checkpoint, or it belongs to another program or optimiser.
        DistributedError: a process has stopped or does not answer.
    """
    require_definite_model(model, "load_checkpoint")
    layout = layout_of(model)
    folder = Path(folder)
    number = _largest(layout.ranks, max(_numbers(folder, complete=True), default=0))
    if number == 0:
        raise ModelError(f"there is no complete checkpoint in {str(folder)!r}")
    source = folder / f"{_NAME}{number}"
    known: dict[str, Any] = FileSystemReader(source).read_metadata().state_dict_metadata
    checksum = torch.zeros_like(layout.checksum())
    if "checksum" not in known:
        raise ModelError(f"{str(source)!r} is not a checkpoint of a model")
    _run(layout.ranks, "load", lambda **o: load({"checksum": checksum}, **o), source)
    if not torch.equal(checksum, layout.checksum()):
        raise ModelError(f"the checkpoint {str(source)!r} belongs to another program")
    if optimizer is not None:
        _prepare(optimizer)
    values = _values(model, optimizer, layout) | {"step": torch.tensor(0)}
    missing = sorted(values.keys() - known.keys())
    if missing:
        raise ModelError(
            f"the checkpoint {str(source)!r} has no value for {missing[0]!r}; was it saved with the "
            "same optimiser?"
        )
    _run(layout.ranks, "load", lambda **options: load(values, **options), source)
    if optimizer is not None:
        for number, group in enumerate(optimizer.param_groups):
            group.update(values[f"options.{number}"])
    return int(values["step"])


def _run(ranks: Ranks | None, action: str, run: Any, path: Path) -> None:
    """Run one operation of torch.distributed.checkpoint on a folder."""
    options: dict[str, Any] = {"no_dist": True} if ranks is None else {"process_group": ranks.group}
    try:
        with warnings.catch_warnings():
            # That one process is meant is what `no_dist` says.
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            run(checkpoint_id=path, **options)
    except (CheckpointException, dist.DistError, RuntimeError, ValueError) as error:
        causes = getattr(error, "failures", {0: (error, None)})
        reason = str(next(iter(causes.values()))[0]).splitlines()[0]
        if any(isinstance(cause, ValueError) for cause, _ in causes.values()):
            raise ModelError(f"cannot {action} the checkpoint {str(path)!r}: {reason}") from error
        raise DistributedError(
            f"cannot {action} the checkpoint {str(path)!r}: {reason}; restart all processes and load "
            "the last checkpoint"
        ) from error


def _numbers(folder: Path, *, complete: bool = False) -> list[int]:
    """Return the numbers of the checkpoints in a folder."""
    found = [path for path in folder.glob(f"{_NAME}*") if path.name[len(_NAME) :].isdecimal()]
    if complete:
        found = [path for path in found if (path / ".metadata").is_file()]
    return [int(path.name[len(_NAME) :]) for path in found]


def _largest(ranks: Ranks | None, number: int) -> int:
    """Return the largest number of all processes: some may see a file later than others."""
    return number if ranks is None else ranks.largest(number)[0]


# ---- Values


def _values(
    model: LatentGamma, optimizer: torch.optim.Optimizer | None, layout: Layout
) -> dict[str, Any]:
    """Return everything in a checkpoint by its name, as torch.distributed.checkpoint takes it."""
    names = {
        parameter: name.replace("rules.local.", "rules.")
        for name, parameter in model.named_parameters()
    }
    values: dict[str, Any] = {
        f"model.{name}": layout.placed(name, parameter.detach())
        for parameter, name in names.items()
    }
    if optimizer is None:
        return values
    for number, group in enumerate(optimizer.param_groups):
        # A tuple is stored as it is: the options of a group, such as the learning rate.
        values[f"options.{number}"] = tuple(item for item in group.items() if item[0] != "params")
        for parameter in group["params"]:
            if parameter not in names:
                raise ModelError("the optimiser has parameters that are not the model's")
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    same = value.shape == parameter.shape
                    placed = layout.placed(names[parameter], value) if same else value
                    values[f"optimizer.{names[parameter]}.{key}"] = placed
    return values


def _prepare(optimizer: torch.optim.Optimizer) -> None:
    """Let the optimiser make its state, by a step that changes nothing."""
    if optimizer.state:
        return
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    kept = [(each, each.grad, each.detach().clone()) for each in parameters if each.requires_grad]
    for parameter, _, _ in kept:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with torch.no_grad():
        for parameter, slope, before in kept:
            parameter.copy_(before)
            parameter.grad = slope
