"""Rules divided among processes: each matches and routes its own, and the sums are combined."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from latentgamma._errors import ModelError
from latentgamma._model.dense_rules import DenseRules
from latentgamma._model.rules import AbstractRules, Literals, StepParameters, Weights
from latentgamma._model.sparse_rules import SparseRules
from latentgamma.distributed.collectives import Ranks, copy_to_ranks, sum_over_ranks


@final
class ShardedRules(AbstractRules):
    """The rules of this process; the others have the rest. The state is the same in all of them.

    Matching is local. Routing is a sum over the rules, so each process computes its part of it
    and the parts are added up. An atom receives exact zeros from processes that have no rule for
    it, and the background is added up in float64. So no sum has more roundings than in one
    process, and the certificate of the whole model holds for the divided one.

    Attributes:
        local: the rules of this process, sparse or dense.
        first: the number of the first of them among all rules.
        total: the number of all rules.
        ranks: the processes.
    """

    sharded = True

    def __init__(self, local: SparseRules | DenseRules, *, first: int, total: int, ranks: Ranks):
        super().__init__()
        self.M, self.R = local.M, local.R
        self.local = local
        self.first, self.ranks = first, ranks
        self._total = total
        self._all_literals: Literals | None = None

    @property
    def total(self) -> int:
        """The number of rules of the model, those in other processes included."""
        return self._total

    def read(self) -> Weights:
        """The weights of the rules of this process."""
        return self.local.read()

    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        """Stage 1 for the rules of this process. (…, R)."""
        (state,) = copy_to_ranks(self.ranks, state)
        return self.local.match(state, weights, threshold)

    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        """Stages 2 and 4: the sum over the rules of all processes. (…, M)."""
        if not isinstance(self.local, SparseRules):
            return sum_over_ranks(self.ranks, self.local.route(firing, weights))[0]
        sums, total = self.local.head_sums(firing, weights, self.M)
        sums, total = sum_over_ranks(self.ranks, sums, total)
        return total.to(firing.dtype) + sums

    def shared(self, gain: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """Gain and gate; the gradient of the gain is summed over the processes."""
        # Each process uses the gain for its own rules, and the gate for all atoms.
        return copy_to_ranks(self.ranks, gain)[0], gate

    # ------------------------------------------------------------ the rules of this process

    def literals(self) -> Literals:
        """The literals of the rules of this process, which are numbered from 0."""
        return self.local.literals()

    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """u_ji of rules of this process, in float64. (pairs,)."""
        return self.local.body_at(weights, rule, atom)

    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """v_ji of rules of this process, in float64. (pairs,)."""
        return self.local.head_at(weights, rule, atom)

    # ------------------------------------------------------------ all rules

    def all_literals(self) -> Literals:
        """The literals of the rules of all processes."""
        if self._all_literals is None or isinstance(self.local, DenseRules):
            held = self.local.literals()
            self._all_literals = Literals(
                self.ranks.concatenate(held.body_rule + self.first),
                self.ranks.concatenate(held.body_atom),
                self.ranks.concatenate(held.head_rule + self.first),
                self.ranks.concatenate(held.head_atom),
            )
        return self._all_literals

    def gathered(self) -> SparseRules | DenseRules:
        """All rules in this process, with copies of all logits."""
        join = self.ranks.concatenate
        with torch.no_grad():
            if isinstance(self.local, DenseRules):
                return DenseRules(join(self.local.body_logits), join(self.local.head_logits))
            return SparseRules(
                self.all_literals(),
                M=self.M,
                body_logits=join(self.local.body_logits),
                body_background=join(self.local.body_background),
                head_logits=join(self.local.head_logits),
                head_background=join(self.local.head_background),
            )

    def whole(self, parameters: StepParameters) -> tuple[AbstractRules, StepParameters]:
        """The rules of all processes, in this one, and their parameters."""
        join = self.ranks.concatenate
        weights = Weights(*map(join, parameters.weights))
        threshold, sharpness, amplitude = map(join, parameters[1:4])
        return self.gathered(), StepParameters(
            weights, threshold, sharpness, amplitude, parameters.offset, parameters.gate
        )

    def in_any_process(self, condition: bool) -> bool:
        """Whether the condition is true in any process."""
        return bool(self.ranks.largest(condition)[0])

    def to_dense(self) -> DenseRules:
        """The rules of all processes as full matrices."""
        return self.gathered().to_dense()

    def extra_repr(self) -> str:
        """The rules of this process among all rules."""
        return (
            f"rules {self.first} to {self.first + self.R} of {self.total}, "
            f"rank {self.ranks.rank} of {self.ranks.size}"
        )


def rows_between(rules: AbstractRules, start: int, stop: int) -> SparseRules | DenseRules:
    """Copies of the rules from `start` up to `stop`.

    Raises:
        ModelError: the rules are neither sparse nor dense.
    """
    with torch.no_grad():
        if isinstance(rules, DenseRules):
            return DenseRules(
                rules.body_logits[start:stop].clone(), rules.head_logits[start:stop].clone()
            )
        if not isinstance(rules, SparseRules):
            raise ModelError(
                f"these rules are {type(rules).__name__}; only dense or sparse rules can be sharded"
            )
        held = rules.literals()
        body, head = (_between(rule, start, stop) for rule in (held.body_rule, held.head_rule))
        return SparseRules(
            Literals(
                held.body_rule[body] - start,
                held.body_atom[body],
                held.head_rule[head] - start,
                held.head_atom[head],
            ),
            M=rules.M,
            body_logits=rules.body_logits[body],
            body_background=rules.body_background[start:stop].clone(),
            head_logits=rules.head_logits[head],
            head_background=rules.head_background[start:stop].clone(),
        )


def _between(rule: Tensor, start: int, stop: int) -> Tensor:
    """The places of the literals of these rules, sorted by rule."""
    places = torch.nonzero((rule >= start) & (rule < stop)).flatten()
    return places[torch.argsort(rule[places], stable=True)]
