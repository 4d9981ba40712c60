"""The two matrices of the operator, body and head weights, dense or sparse.

Every stage but two is elementwise. Those two, `match` and `route`, are what a form of the
rules has to offer; the rest of the library does not know which form it runs on.

Body sums are taken as *what is missing*: bs_j = Σ_i u_ji − Σ_i u_ji (1 − s_i). Near the point
where a rule fires, the second sum is small and keeps its digits, so a body of ten thousand
atoms is decided as sharply as a body of two, in float32 too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from latentgamma._errors import ModelError
from latentgamma._program.program import Program


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


class Support(NamedTuple):
    """Where the weights of a rule stand out: (rule, atom) pairs of bodies and heads."""

    body_rule: Tensor  # (literals,)
    body_atom: Tensor  # (literals,)
    head_rule: Tensor  # (head literals,)
    head_atom: Tensor  # (head literals,)


class Numbers(NamedTuple):
    """Everything a step needs, read once from the parameters and used for many steps."""

    weights: Weights
    threshold: Tensor  # b (R,)
    sharpness: Tensor  # τ (R,)
    amplitude: Tensor  # τ_nor ρ (R,)
    offset: Tensor  # θ (M,)
    gate: Tensor  # β ()
    #: Where a proof gradient flows; None where the gradient is the exact one, or none is wanted.
    proof: Support | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        """The ten tensors that a gradient may go to."""
        return *self.weights, *self[1:6]

    def of(self, tensors: Sequence[Tensor]) -> Numbers:
        """These numbers with ten others in their place."""
        threshold, sharpness, amplitude, offset, gate = tensors[5:]
        weights = Weights(*tensors[:5])
        return Numbers(weights, threshold, sharpness, amplitude, offset, gate, self.proof)


class AbstractRules(nn.Module, ABC):
    """R rules over M atoms: what match and route need."""

    M: int
    R: int

    @abstractmethod
    def read(self) -> Weights:
        """The weights of the current logits, differentiable in them."""

    @abstractmethod
    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        """Stage 1: bs_j − b_j, how far each body sum lies above its threshold. (…, R)."""

    @abstractmethod
    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        """Stages 2 and 4: Σ_j v_ji · firing_j, what each atom receives. (…, M)."""

    @abstractmethod
    def support(self) -> Support:
        """The pairs along which a proof runs."""

    @abstractmethod
    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """u_ji at (rule, atom) pairs, in float64. (pairs,)."""

    @abstractmethod
    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        """v_ji at (rule, atom) pairs, in float64. (pairs,)."""

    @abstractmethod
    def to_dense(self) -> DenseRules:
        """The same rules as full matrices."""


# -------------------------------------------------------------------- sums over literals


def take(values: Tensor, index: Tensor) -> Tensor:
    """The entries of the last dimension at these indices, its gradient summed in a fixed order."""
    # Each device has one of two ways to index whose gradient does not depend on thread timing.
    return values[..., index] if values.is_cuda else values.index_select(-1, index)


def add_at(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """The last dimension of `start` plus values summed by index, always in the same order."""
    if not start.is_cuda:
        return start.index_add(-1, index, values)
    # On a GPU index_add is a race of atomics; index_put sorts.
    sums = start.movedim(-1, 0).index_put((index,), values.movedim(-1, 0), accumulate=True)
    return sums.movedim(0, -1)


def _exp(values: Tensor) -> Tensor:
    """Return e to the power of these, in float64.

    `torch.exp` wakes a team of threads for any number of values, which then stand in the way of
    the kernel's threads, and do not outlive a fork.
    """
    return torch.exp2(values * math.log2(math.e))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product in the precision of its dtype, whatever the code around it has set.

    Autocast and TF32 keep 8 or 11 bits of each factor, and no certificate allows for that.
    """
    kind = left.device.type
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return _product(left, right)
    if (
        left.dtype is torch.float32
        and not torch.compiler.is_compiling()
        and _products_are_cut(kind)
    ):
        return (left.double() @ right.double()).float()
    return left @ right


def _products_are_cut(kind: str) -> bool:
    backend = torch.backends.cuda if kind == "cuda" else torch.backends.mkldnn
    return backend.matmul.fp32_precision not in ("none", "ieee")


# -------------------------------------------------------------------- the forms


def _slack(weights: Weights, threshold: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ_i u_ji − b_j, the margin of a rule whose whole body is true. (R,)."""
    return (weights.body_total - threshold.double()).to(dtype)


@final
class DenseRules(AbstractRules):
    """Every logit its own parameter: R × M of each kind."""

    def __init__(self, body_logits: Tensor, head_logits: Tensor) -> None:
        super().__init__()
        if body_logits.shape != head_logits.shape or body_logits.dim() != 2:
            raise ModelError(
                f"body and head logits must have one shape (R, M), not "
                f"{tuple(body_logits.shape)} and {tuple(head_logits.shape)}"
            )
        self.R, self.M = body_logits.shape
        self.body_logits = nn.Parameter(body_logits)
        self.head_logits = nn.Parameter(head_logits)

    def read(self) -> Weights:
        body = torch.sigmoid(self.body_logits)
        head = torch.softmax(self.head_logits, dim=-1)
        none = body.new_empty(0)
        return Weights(body, none, body.sum(-1, dtype=torch.float64), head, none)

    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        missing = _product(1 - state, weights.body.T.to(state.dtype))  # (…, R)
        return _slack(weights, threshold, state.dtype) - missing

    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        return _product(firing, weights.head.to(firing.dtype))  # (…, M)

    def support(self) -> Support:
        with torch.no_grad():
            head = torch.softmax(self.head_logits, dim=-1)
            body_rule, body_atom = torch.nonzero(self.body_logits > 0, as_tuple=True)
            # Heads share a rule's mass evenly, so each holds at least half of the largest share.
            strong = head > 0.5 * head.amax(-1, keepdim=True) if self.M else head > 0
            head_rule, head_atom = torch.nonzero(strong, as_tuple=True)
        return Support(body_rule, body_atom, head_rule, head_atom)

    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        return weights.body[rule, atom].double()

    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        return weights.head[rule, atom].double()

    def to_dense(self) -> DenseRules:
        return self


@final
class SparseRules(AbstractRules):
    """One logit per literal and one background logit per rule, exactly as the dense form.

    Off its support a rule's logits are one constant, so σ(η) and softmax(ψ) are a background
    plus a correction on the support, and a step costs as much as the program has literals.
    """

    body_rule: Tensor
    body_atom: Tensor
    head_rule: Tensor
    head_atom: Tensor
    head_rest: Tensor
    _single = False

    def __init__(
        self,
        support: Support,
        *,
        M: int,
        body_logits: Tensor,
        body_background: Tensor,
        head_logits: Tensor,
        head_background: Tensor,
    ) -> None:
        super().__init__()
        self.M, self.R = M, len(body_background)
        for name, indices in support._asdict().items():
            self.register_buffer(name, indices)
        head_counts = torch.bincount(support.head_rule, minlength=self.R)
        # How many atoms of each rule's softmax lie in the background.
        self.register_buffer("head_rest", M - head_counts, persistent=False)
        # Where every rule has one head and a background, its softmax is a sigmoid.
        self._single = M > 1 and not head_counts.is_meta and bool((head_counts == 1).all())
        self._single = self._single and bool((support.head_rule.diff() > 0).all())
        self.body_logits = nn.Parameter(body_logits)  # (literals,)
        self.body_background = nn.Parameter(body_background)  # (R,)
        self.head_logits = nn.Parameter(head_logits)  # (head literals,)
        self.head_background = nn.Parameter(head_background)  # (R,)
        self.register_load_state_dict_pre_hook(_refuse_other_literals)  # type: ignore[no-untyped-call]

    @staticmethod
    def support_of(program: Program) -> Support:
        """The literals of a program as index tensors."""
        rules = np.arange(program.R)
        return Support(
            torch.from_numpy(np.repeat(rules, program.body_sizes)),
            torch.from_numpy(program.body_indices.astype(np.int64)),
            torch.from_numpy(np.repeat(rules, program.head_sizes)),
            torch.from_numpy(program.head_indices.astype(np.int64)),
        )

    def read(self) -> Weights:
        # In float64: 1 − σ(η) of a decided literal has few digits left in float32, and the
        # gradient of its logit is a multiple of it.
        off = torch.sigmoid(self.body_background.double())  # (R,)
        body = torch.sigmoid(self.body_logits.double()) - take(off, self.body_rule)  # (literals,)
        total = add_at(self.M * off, self.body_rule, body)
        head, head_off = self._softmax(self.head_logits.double(), self.head_background.double())
        return Weights(body, off, total, head, head_off)

    def _softmax(self, logits: Tensor, background: Tensor) -> tuple[Tensor, Tensor]:
        """softmax(ψ) on the support, over the background, and the background itself."""
        if self._single:
            over = logits - background - math.log(self.M - 1)
            off = torch.sigmoid(-over) / (self.M - 1)
            return torch.sigmoid(over) - off, off
        rows, crowded = self.head_rule, self.head_rest == 0
        with torch.no_grad():  # any shift gives the same softmax; the largest logit is safe
            top = background.masked_fill(crowded, -torch.inf)
            top = top.scatter_reduce(0, rows, logits, "amax")
        on = _exp(logits - take(top, rows))  # (head literals,)
        # A rule that routes to every atom has no background, and its logit no effect.
        off = _exp((background - top).masked_fill(crowded, -torch.inf))  # (R,)
        norm = add_at(self.head_rest * off, rows, on)
        off = off / norm
        return on / take(norm, rows) - take(off, rows), off

    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        missing = 1 - state
        total = missing.sum(-1, keepdim=True, dtype=torch.float64)  # (…, 1)
        slack = _slack(weights, threshold, state.dtype)
        background = (total * weights.body_off.double()).to(state.dtype)  # (…, R)
        lacking = take(missing, self.body_atom) * weights.body.to(state.dtype)  # (…, literals)
        # All terms of the sum are of one sign, so its error stays relative to itself.
        return slack - add_at(background, self.body_rule, lacking)

    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        stray = firing * weights.head_off.to(firing.dtype)  # (…, R)
        total = stray.sum(-1, keepdim=True, dtype=torch.float64).to(firing.dtype)  # (…, 1)
        sent = take(firing, self.head_rule) * weights.head.to(firing.dtype)  # (…, head literals)
        return total + add_at(firing.new_zeros(*firing.shape[:-1], self.M), self.head_atom, sent)

    def support(self) -> Support:
        return Support(self.body_rule, self.body_atom, self.head_rule, self.head_atom)

    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        on = self._at(weights.body, (self.body_rule, self.body_atom), rule, atom)
        return on + weights.body_off.double()[rule]

    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        on = self._at(weights.head, (self.head_rule, self.head_atom), rule, atom)
        return on + weights.head_off.double()[rule]

    def _at(self, on: Tensor, held: tuple[Tensor, Tensor], rule: Tensor, atom: Tensor) -> Tensor:
        """The weight over the background at pairs: 0 where a pair is not in the support."""
        keys, order = torch.sort(held[0] * self.M + held[1])
        wanted = rule * self.M + atom
        if not len(keys):
            return torch.zeros_like(wanted, dtype=torch.float64)
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return torch.where(keys[place] == wanted, on.double()[order[place]], 0.0)

    def to_dense(self) -> DenseRules:
        with torch.no_grad():
            body = self.body_background[:, None].repeat(1, self.M)
            body[self.body_rule, self.body_atom] = self.body_logits
            head = self.head_background[:, None].repeat(1, self.M)
            head[self.head_rule, self.head_atom] = self.head_logits
        return DenseRules(body, head)


def _refuse_other_literals(
    rules: nn.Module, state_dict: Mapping[str, Any], prefix: str, *others: Any
) -> None:
    """Report a state dict whose literals are not these rules' own: its numbers mean others."""
    errors: list[str] = others[-1]
    for name in Support._fields:
        held, given = rules.get_buffer(name), state_dict.get(prefix + name)
        if given is None or held.is_meta or given.is_meta or held.shape != given.shape:
            continue  # what is missing or mis-shaped is reported by torch itself
        if not torch.equal(held, given.to(held.device)):
            errors.append(f"{prefix}{name} differs: these numbers belong to another program")
