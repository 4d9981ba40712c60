"""The interface of the rules: the two matrices of the operator, body and head weights.

Every stage but two is elementwise. Those two, `match` and `route`, are what a form of the rules
implements (`DenseRules`, `SparseRules`, and `latentgamma.distributed.ShardedRules`, which holds a
part of the rules in each process); the rest of the library does not know which it runs on.

Body sums are computed from *what is missing*: bs_j = Σ_i u_ji − Σ_i u_ji (1 − s_i). Near the point
where a rule fires, the second sum is small and keeps its digits, so a body of ten thousand
atoms is decided as sharply as a body of two, in float32 too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from latentgamma._model.dense_rules import DenseRules


class Weights(NamedTuple):
    """The weights of the rules, read once and applied for many steps.

    In the dense form `body` is σ(η) and `head` is softmax(ψ), both (R, M), and the two `_off`
    fields are empty. In the sparse form `body` and `head` hold one number per literal, its
    weight over the background, and `body_off`, `head_off` the background weight of each rule.
    """

    body: Tensor  # (R, M) or (literals,)
    body_off: Tensor  # (0,) or (R,)
    body_total: Tensor  # (R,) float64: Σ_i u_ji
    head: Tensor  # (R, M) or (head literals,)
    head_off: Tensor  # (0,) or (R,)


class Literals(NamedTuple):
    """The (rule, atom) pairs of bodies and heads: where the weights of a rule stand out."""

    body_rule: Tensor  # (literals,)
    body_atom: Tensor  # (literals,)
    head_rule: Tensor  # (head literals,)
    head_atom: Tensor  # (head literals,)


class StepParameters(NamedTuple):
    """Everything a step needs, read once from the parameters and used for many steps."""

    weights: Weights
    threshold: Tensor  # b (R,)
    sharpness: Tensor  # τ (R,)
    amplitude: Tensor  # τ_nor ρ (R,)
    offset: Tensor  # θ (M,)
    gate: Tensor  # β ()

    def tensors(self) -> tuple[Tensor, ...]:
        """The ten tensors that a gradient may go to."""
        return *self.weights, *self[1:6]

    def with_tensors(self, tensors: Sequence[Tensor]) -> StepParameters:
        """These parameters with other tensors, in the order of `tensors()`."""
        count = len(Weights._fields)
        threshold, sharpness, amplitude, offset, gate = tensors[count:]
        weights = Weights(*tensors[:count])
        return StepParameters(weights, threshold, sharpness, amplitude, offset, gate)


class AbstractRules(nn.Module, ABC):
    """R rules over M atoms: what match and route need."""

    M: int
    R: int
    #: Whether other processes have further rules of the same model.
    sharded = False

    @property
    def total(self) -> int:
        """The number of rules of the model, those in other processes included."""
        return self.R

    @abstractmethod
    def read(self) -> Weights:
        """The weights of the current logits, differentiable in them.

        Returns:
            The weights, for `match` and `route`.
        """

    @abstractmethod
    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        """Stage 1: bs_j − b_j, how far each body sum lies above its threshold.

        Args:
            state: values in [0, 1], shape (…, M).
            weights: what `read` returned.
            threshold: b, shape (R,).

        Returns:
            One number for each rule, shape (…, R).
        """

    @abstractmethod
    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        """Stages 2 and 4: Σ_j v_ji · firing_j, what each atom receives.

        Args:
            firing: one number for each rule, shape (…, R).
            weights: what `read` returned.

        Returns:
            One number for each atom, shape (…, M).
        """

    @abstractmethod
    def literals(self) -> Literals:
        """The pairs of rule and atom in bodies and in heads.

        Returns:
            Four index tensors: the rule and the atom of each pair, of bodies and of heads.
        """

    @abstractmethod
    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """u_ji, the body weights at pairs of rule and atom.

        Args:
            weights: what `read` returned.
            rule: the rule of each pair, shape (pairs,).
            atom: the atom of each pair, shape (pairs,).

        Returns:
            One weight for each pair, in float64, shape (pairs,).
        """

    @abstractmethod
    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """v_ji, the head weights at pairs of rule and atom.

        Args:
            weights: what `read` returned.
            rule: the rule of each pair, shape (pairs,).
            atom: the atom of each pair, shape (pairs,).

        Returns:
            One weight for each pair, in float64, shape (pairs,).
        """

    @abstractmethod
    def to_dense(self) -> DenseRules:
        """The same rules as full matrices.

        Returns:
            Rules with new parameters; dense rules return themselves.
        """

    # ------------------------------------------------ what differs where each process has a part

    def shared(self, gain: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """The two numbers that all rules and atoms share, as a step of these rules uses them.

        Args:
            gain: τ_nor, a scalar.
            gate: β, a scalar.

        Returns:
            The gain and the gate.
        """
        return gain, gate

    def whole(self, parameters: StepParameters) -> tuple[AbstractRules, StepParameters]:
        """All rules and their parameters, where these are a part of them.

        Args:
            parameters: the parameters of these rules.

        Returns:
            The rules and the parameters.
        """
        return self, parameters

    def all_literals(self) -> Literals:
        """The literals of all rules of the model.

        Returns:
            Index tensors as in `literals`.
        """
        return self.literals()

    def in_any_process(self, condition: bool) -> bool:
        """Whether the condition is true in any of the processes that have a part of the rules.

        Args:
            condition: the condition in this process.

        Returns:
            The same value in every process.
        """
        return condition


def margin_at_one(weights: Weights, threshold: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ_i u_ji − b_j, the margin of a rule where every atom is true. (R,)."""
    return (weights.body_total - threshold.double()).to(dtype)


def take(values: Tensor, index: Tensor) -> Tensor:
    """The entries of the last dimension at these indices, its gradient summed in a fixed order."""
    # Each device has one of two ways to index whose gradient does not depend on thread timing.
    return values[..., index] if values.is_cuda else values.index_select(-1, index)


def add_at(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """The last dimension of `start` plus values summed by index, always in the same order."""
    # On a GPU index_add uses atomic additions in any order.
    return add_sorted(start, index, values) if start.is_cuda else start.index_add(-1, index, values)


def add_sorted(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """`add_at` by index_put, which sorts."""
    sums = start.movedim(-1, 0).index_put((index,), values.movedim(-1, 0), accumulate=True)
    return sums.movedim(0, -1)
