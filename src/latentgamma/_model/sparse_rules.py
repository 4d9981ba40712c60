"""Rules with one logit per literal and one background logit per rule, equal to the dense form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from latentgamma._model.dense_rules import DenseRules
from latentgamma._model.rules import AbstractRules, Literals, Weights, add_at, margin_at_one, take
from latentgamma._program.program import Program


@final
class SparseRules(AbstractRules):
    """One logit per literal and one background logit per rule, exactly as the dense form.

    Off its support a rule's logits are one constant, so σ(η) and softmax(ψ) are a background
    plus a correction on the support, and a step costs as much as the program has literals.

    >>> import latentgamma as lg
    >>> model = lg.oracle(lg.parse("bird :- penguin. animal :- bird."), form="sparse")
    >>> model.rules.body_logits.shape, model.rules.to_dense().body_logits.shape
    (torch.Size([2]), torch.Size([2, 3]))

    Args:
        literals: the pairs of rule and atom in bodies and in heads.
        M: the number of atoms.
        body_logits: η of each body literal, shape (literals,).
        body_background: η of all other atoms of a rule, shape (R,).
        head_logits: ψ of each head literal, shape (head literals,).
        head_background: ψ of all other atoms of a rule, shape (R,).
    """

    body_rule: Tensor
    body_atom: Tensor
    head_rule: Tensor
    head_atom: Tensor
    head_rest: Tensor
    _one_head_each = False

    def __init__(
        self,
        literals: Literals,
        *,
        M: int,
        body_logits: Tensor,
        body_background: Tensor,
        head_logits: Tensor,
        head_background: Tensor,
    ) -> None:
        super().__init__()
        self.M, self.R = M, len(body_background)
        for name, indices in literals._asdict().items():
            self.register_buffer(name, indices)
        head_counts = torch.bincount(literals.head_rule, minlength=self.R)
        # How many atoms of each rule's softmax lie in the background.
        self.register_buffer("head_rest", M - head_counts, persistent=False)
        # Where every rule has one head and a background, its softmax is a sigmoid.
        self._one_head_each = M > 1 and not head_counts.is_meta and bool((head_counts == 1).all())
        self._one_head_each = self._one_head_each and bool((literals.head_rule.diff() > 0).all())
        self.body_logits = nn.Parameter(body_logits)  # (literals,)
        self.body_background = nn.Parameter(body_background)  # (R,)
        self.head_logits = nn.Parameter(head_logits)  # (head literals,)
        self.head_background = nn.Parameter(head_background)  # (R,)
        self.register_load_state_dict_pre_hook(_refuse_other_literals)  # type: ignore[no-untyped-call]

    @staticmethod
    def literals_of(program: Program) -> Literals:
        """The literals of a program as index tensors.

        Args:
            program: a definite program.

        Returns:
            The rule and the atom of each literal, of bodies and of heads.
        """
        rules = np.arange(program.R)
        return Literals(
            torch.from_numpy(np.repeat(rules, program.body_sizes)),
            torch.from_numpy(program.body_indices.astype(np.int64)),
            torch.from_numpy(np.repeat(rules, program.head_sizes)),
            torch.from_numpy(program.head_indices.astype(np.int64)),
        )

    def read(self) -> Weights:
        return self.weights_of(
            self.body_logits, self.body_background, self.head_logits, self.head_background
        )

    def weights_of(
        self,
        body_logits: Tensor,
        body_background: Tensor,
        head_logits: Tensor,
        head_background: Tensor,
    ) -> Weights:
        """The weights that these rules would have with other logits, differentiable in them.

        Args:
            body_logits: η of each body literal, shape (literals,).
            body_background: η of all other atoms of a rule, shape (R,).
            head_logits: ψ of each head literal, shape (head literals,).
            head_background: ψ of all other atoms of a rule, shape (R,).

        Returns:
            The weights in float64.
        """
        # In float64: 1 − σ(η) of a decided literal has few digits left in float32, and the
        # gradient of its logit is a multiple of it.
        off = torch.sigmoid(body_background.double())  # (R,)
        body = torch.sigmoid(body_logits.double()) - take(off, self.body_rule)  # (literals,)
        total = add_at(self.M * off, self.body_rule, body)
        head, head_off = self._softmax(head_logits.double(), head_background.double())
        return Weights(body, off, total, head, head_off)

    def _softmax(self, logits: Tensor, background: Tensor) -> tuple[Tensor, Tensor]:
        """softmax(ψ) on the support, over the background, and the background itself."""
        if self._one_head_each:
            over = logits - background - math.log(self.M - 1)
            off = torch.sigmoid(-over) / (self.M - 1)
            return torch.sigmoid(over) - off, off
        rows, full = self.head_rule, self.head_rest == 0
        with torch.no_grad():  # any shift gives the same softmax; the largest logit is safe
            top = background.masked_fill(full, -torch.inf)
            top = top.scatter_reduce(0, rows, logits, "amax")
        on = _exp(logits - take(top, rows))  # (head literals,)
        # A rule that routes to every atom has no background, and its logit no effect.
        off = _exp((background - top).masked_fill(full, -torch.inf))  # (R,)
        norm = add_at(self.head_rest * off, rows, on)
        off = off / norm
        return on / take(norm, rows) - take(off, rows), off

    def match(self, state: Tensor, weights: Weights, threshold: Tensor) -> Tensor:
        missing = 1 - state
        total = missing.sum(-1, keepdim=True, dtype=torch.float64)  # (…, 1)
        return self.margins(missing, total, weights, threshold)

    def margins(
        self, missing: Tensor, total: Tensor, weights: Weights, threshold: Tensor
    ) -> Tensor:
        """Stage 1 from what is missing: bs_j − b_j of each rule.

        Args:
            missing: 1 − s of the atoms that `body_atom` refers to, shape (…, atoms).
            total: the sum of 1 − s over all atoms, shape (…, 1).
            weights: what `read` returned.
            threshold: b, shape (R,).

        Returns:
            One number for each rule, shape (…, R).
        """
        margin = margin_at_one(weights, threshold, missing.dtype)
        background = (total * weights.body_off.double()).to(missing.dtype)  # (…, R)
        lacking = take(missing, self.body_atom) * weights.body.to(missing.dtype)  # (…, literals)
        # All terms of the sum are of one sign, so its error stays relative to itself.
        return margin - add_at(background, self.body_rule, lacking)

    def route(self, firing: Tensor, weights: Weights) -> Tensor:
        sums, total = self.head_sums(firing, weights, self.M)
        return total.to(firing.dtype) + sums

    def head_sums(self, firing: Tensor, weights: Weights, size: int) -> tuple[Tensor, Tensor]:
        """What atoms receive over the background, and the background.

        Args:
            firing: one number for each rule, shape (…, R).
            weights: what `read` returned.
            size: the number of atoms that `head_atom` refers to.

        Returns:
            The sums, shape (…, size), and the background, shape (…, 1), in float64.
        """
        background = firing * weights.head_off.to(firing.dtype)  # (…, R)
        total = background.sum(-1, keepdim=True, dtype=torch.float64)  # (…, 1)
        sent = take(firing, self.head_rule) * weights.head.to(firing.dtype)  # (…, head literals)
        return add_at(firing.new_zeros(*firing.shape[:-1], size), self.head_atom, sent), total

    def literals(self) -> Literals:
        return Literals(self.body_rule, self.body_atom, self.head_rule, self.head_atom)

    def body_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        on = self._at(weights.body, (self.body_rule, self.body_atom), rule, atom)
        return on + weights.body_off.double()[rule]

    def head_at(self, weights: Weights, rule: Tensor, atom: Tensor) -> Tensor:
        on = self._at(weights.head, (self.head_rule, self.head_atom), rule, atom)
        return on + weights.head_off.double()[rule]

    def _at(self, on: Tensor, pairs: tuple[Tensor, Tensor], rule: Tensor, atom: Tensor) -> Tensor:
        """The weight over the background at pairs: 0 where a pair is not in the support."""
        keys, order = torch.sort(pairs[0] * self.M + pairs[1])
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
    """Report a state dict whose literals are not these rules' own: its values belong to others."""
    errors: list[str] = others[-1]
    for name in Literals._fields:
        own, given = rules.get_buffer(name), state_dict.get(prefix + name)
        if given is None or own.is_meta or given.is_meta or own.shape != given.shape:
            continue  # what is missing or mis-shaped is reported by torch itself
        if not torch.equal(own, given.to(own.device)):
            errors.append(f"{prefix}{name} differs: these values belong to another program")


def _exp(values: Tensor) -> Tensor:
    """Return e to the power of these, in float64.

    `torch.exp` starts a pool of threads for any number of values, which then competes with the
    kernel's threads and does not survive a fork.
    """
    return torch.exp2(values * math.log2(math.e))
