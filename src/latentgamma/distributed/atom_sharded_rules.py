"""Rules and atoms divided among processes, for programs whose state does not fit into one."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from latentgamma._errors import ModelError
from latentgamma._model.dense_rules import DenseRules
from latentgamma._model.rules import (
    AbstractRules,
    Literals,
    StepParameters,
    Weights,
    add_at,
    take,
)
from latentgamma._model.sparse_rules import SparseRules
from latentgamma.distributed.collectives import Ranks, copy_to_ranks, exchange, sum_over_ranks
from latentgamma.distributed.partition import even_ranges


class AtomTraffic(NamedTuple):
    """Which atoms the rules of this process use, and which of its atoms the others use.

    The used atoms are sorted, so those of one owner stand together.
    """

    used: Tensor  # (used,) numbers among all atoms
    used_counts: list[int]  # how many of them each process owns
    served: Tensor  # (served,) numbers among the atoms of this process
    served_counts: list[int]  # how many of them each process uses


@final
class AtomShardedRules(AbstractRules):
    """The rules and the atoms of this process; the others have the rest.

    A state holds the values of `own_atoms` alone, and `M` is their number. For each step the processes send each other the
    values that their rules use, and what their rules add to atoms of other processes. The loss is
    the sum over the processes of what each computes from its own atoms.

    Attributes:
        local: the rules of this process; their atoms are numbered among those that they use.
        first: the number of the first rule among all rules.
        total_atoms: the number of all atoms.
        own_atoms: the range of the atoms of this process among all atoms.
        ranks: the processes.
    """

    sharded = True

    def __init__(
        self,
        local: SparseRules,
        *,
        body: AtomTraffic,
        head: AtomTraffic,
        first: int,
        total: int,
        ranks: Ranks,
    ) -> None:
        super().__init__()
        self.local = local
        self.total_atoms = local.M
        self.own_atoms = own_atoms(local.M, ranks)
        self.M, self.R = self.own_atoms.stop - self.own_atoms.start, local.R
        self.first, self.ranks = first, ranks
        self._total = total
        for name, traffic in (("body", body), ("head", head)):
            self.register_buffer(f"{name}_used", traffic.used, persistent=False)
            self.register_buffer(f"{name}_served", traffic.served, persistent=False)
        self._body_counts = body.used_counts, body.served_counts
        self._head_counts = head.used_counts, head.served_counts

    @property
    def total(self) -> int:
        """The number of rules of the model, those in other processes included."""
        return self._total

    def read(self) -> Weights:
        """The weights of the rules of this process."""
        return self.local.read()

    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        """Stage 1 for the rules of this process. (…, R)."""
        missing = 1 - state
        total = self._replicated(missing.sum(-1, keepdim=True, dtype=torch.float64))
        used, served = self._body_counts
        sent = take(missing, self.get_buffer("body_served"))
        return self.local.margins(self._exchange(sent, served, used), total, weights, threshold)

    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        """Stages 2 and 4: the sum over the rules of all processes, for own atoms. (…, M)."""
        used, served = self._head_counts
        sums, total = self.local.head_sums(firing, weights, sum(used))
        arrived = self._exchange(sums, used, served)
        received = add_at(
            firing.new_zeros(*firing.shape[:-1], self.M), self.get_buffer("head_served"), arrived
        )
        return self._replicated(total).to(firing.dtype) + received

    def shared(self, gain: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """Gain and gate; their gradients are summed over the processes."""
        gain, gate = copy_to_ranks(self.ranks, gain, gate)
        return gain, gate

    def _replicated(self, partial: Tensor) -> Tensor:
        """The sum over the processes, which each of them uses for something else."""
        return copy_to_ranks(self.ranks, *sum_over_ranks(self.ranks, partial))[0]

    def _exchange(self, values: Tensor, send: list[int], receive: list[int]) -> Tensor:
        rows = values.movedim(-1, 0)
        return exchange(self.ranks, rows, send, receive).movedim(0, -1)

    # ------------------------------------------------------------ the rules of this process

    def literals(self) -> Literals:
        """The literals of the rules of this process, with atoms numbered among all atoms."""
        held = self.local.literals()
        return held._replace(
            body_atom=self.get_buffer("body_used")[held.body_atom],
            head_atom=self.get_buffer("head_used")[held.head_atom],
        )

    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """Not available: the model has to be gathered first."""
        raise _not_whole("the weight of an atom")

    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """Not available: the model has to be gathered first."""
        raise _not_whole("the weight of an atom")

    # ------------------------------------------------------------ all rules and atoms

    def all_literals(self) -> Literals:
        """Not available: what needs all literals needs the whole state too."""
        raise _not_whole('gradient="proof"')

    def gather_state(self, state: Tensor) -> Tensor:
        """The values of all atoms, from the states of all processes. No gradients. (…, all atoms)."""
        return self.ranks.concatenate(state.movedim(-1, 0)).movedim(0, -1)

    def gathered(self) -> SparseRules:
        """All rules in this process, with copies of all logits."""
        join, held = self.ranks.concatenate, self.literals()
        with torch.no_grad():
            return SparseRules(
                Literals(
                    join(held.body_rule + self.first),
                    join(held.body_atom),
                    join(held.head_rule + self.first),
                    join(held.head_atom),
                ),
                M=self.total_atoms,
                body_logits=join(self.local.body_logits),
                body_background=join(self.local.body_background),
                head_logits=join(self.local.head_logits),
                head_background=join(self.local.head_background),
            )

    def whole(self, parameters: StepParameters) -> tuple[AbstractRules, StepParameters]:
        """The rules of all processes, in this one, and their parameters."""
        join = self.ranks.concatenate
        weights = Weights(*map(join, parameters.weights))
        threshold, sharpness, amplitude, offset = map(join, parameters[1:5])
        return self.gathered(), StepParameters(
            weights, threshold, sharpness, amplitude, offset, parameters.gate
        )

    def in_any_process(self, condition: bool) -> bool:
        """Whether the condition is true in any process."""
        return bool(self.ranks.largest(condition)[0])

    def to_dense(self) -> DenseRules:
        """The rules of all processes as full matrices."""
        return self.gathered().to_dense()

    def extra_repr(self) -> str:
        """The rules and atoms of this process among all of them."""
        atoms = self.own_atoms
        return (
            f"rules {self.first} to {self.first + self.R} of {self.total}, "
            f"atoms {atoms.start} to {atoms.stop} of {self.total_atoms}, "
            f"rank {self.ranks.rank} of {self.ranks.size}"
        )


def divide_atoms(rules: SparseRules, *, first: int, total: int, ranks: Ranks) -> AtomShardedRules:
    """These rules of one process, over all atoms, with the atoms divided too.

    All processes call it together. The logits are those of the rules given, not copies.
    """
    held = rules.literals()
    body, body_atom = _traffic(held.body_atom, rules.M, ranks)
    head, head_atom = _traffic(held.head_atom, rules.M, ranks)
    local = SparseRules(
        held._replace(body_atom=body_atom, head_atom=head_atom),
        M=rules.M,
        body_logits=rules.body_logits.detach(),
        body_background=rules.body_background.detach(),
        head_logits=rules.head_logits.detach(),
        head_background=rules.head_background.detach(),
    )
    return AtomShardedRules(local, body=body, head=head, first=first, total=total, ranks=ranks)


def own_atoms(M: int, ranks: Ranks) -> slice:
    """The range of the atoms of this process."""
    bounds = even_ranges(M, ranks.size)
    return slice(bounds[ranks.rank], bounds[ranks.rank + 1])


def _traffic(atoms: Tensor, M: int, ranks: Ranks) -> tuple[AtomTraffic, Tensor]:
    """The traffic for these atoms, and their numbers among those that are used."""
    used, number = torch.unique(atoms, sorted=True, return_inverse=True)
    bounds = torch.tensor(even_ranges(M, ranks.size), device=used.device)
    places = torch.searchsorted(used, bounds)
    used_counts = [int(count) for count in places.diff().tolist()]
    served_counts = [row[ranks.rank] for row in ranks.counts(*used_counts)]
    served = ranks.exchange(used, used_counts, served_counts) - bounds[ranks.rank]
    return AtomTraffic(used, used_counts, served, served_counts), number


def _not_whole(what: str) -> ModelError:
    return ModelError(
        f"{what} needs all atoms in one process; shard the model without atoms=True, or use "
        "latentgamma.distributed.gather(model)"
    )
