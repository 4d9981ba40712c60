"""Where the values of a process belong among those of all processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from latentgamma._model.module import LatentGamma
from latentgamma._model.rules import Literals
from latentgamma._model.sparse_rules import SparseRules
from latentgamma.distributed.atom_sharded_rules import AtomShardedRules
from latentgamma.distributed.collectives import Ranks
from latentgamma.distributed.hashing import mixed_bits
from latentgamma.distributed.sharded_rules import ShardedRules


class PlacedTensor(Tensor):
    """A tensor of this process that stands at `first` in one of all processes.

    It shares the memory of the tensor that it was made from. The three methods with underscores
    are what torch.distributed.checkpoint asks of a tensor that is a part of another.
    """

    first: int
    total: int

    @staticmethod
    def of(tensor: Tensor, first: int, total: int) -> PlacedTensor:
        """This tensor, with its place and the length of the whole."""
        placed = tensor.detach().as_subclass(PlacedTensor)
        placed.first, placed.total = first, total
        return placed

    def size(self) -> torch.Size:  # type: ignore[override]
        """The shape of the whole tensor."""
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
        """The values of a parameter with their place; whole ones as they are."""
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
        """Numbers that depend on all literals, and not on how they are divided. (4,).

        The literals of dense rules depend on their logits, so those count for nothing here.
        """
        held, M = self.literals, self.atom[1]
        sums = [
            mixed_bits((rule + self.rule[0]) * M + atom).sum()
            for rule, atom in (
                (held.body_rule, held.body_atom),
                (held.head_rule, held.head_atom),
            )
        ]
        own = torch.stack(sums) * self.sparse
        total = own if self.ranks is None else self.ranks.all_reduce(own)[0]
        return torch.cat([total, total.new_tensor([M, self.rule[1]])])


def layout_of(model: LatentGamma) -> Layout:
    """The layout of a model; all processes of a sharded one call it together."""
    rules = model.rules
    literals = rules.literals()
    body, head = len(literals.body_rule), len(literals.head_rule)
    if not isinstance(rules, (ShardedRules, AtomShardedRules)):
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
        atom=(0, rules.M)
        if isinstance(rules, ShardedRules)
        else (rules.own_atoms.start, rules.total_atoms),
        literals=literals,
    )
