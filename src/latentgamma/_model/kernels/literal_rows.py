"""The literals of the rules as compressed rows, by rule and by atom."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from latentgamma._model.rules import Literals
from latentgamma._model.sparse_rules import SparseRules


@dataclass(frozen=True, eq=False)
class LiteralRows:
    """The literals sorted by rule, and again by atom.

    `body_place` and `head_place` say where a literal stands in the rules' own tensors;
    `use_place` and `source_place` where it stands in the order by rule.
    """

    M: int
    R: int
    body_place: Tensor  # (literals,)
    body_rule: Tensor  # (literals,)
    body_start: Tensor  # (R + 1,)
    body_atom: Tensor  # (literals,)
    use_start: Tensor  # (M + 1,) the bodies that an atom is in
    use_rule: Tensor  # (literals,)
    use_place: Tensor  # (literals,)
    head_place: Tensor  # (head literals,)
    head_rule: Tensor  # (head literals,)
    head_start: Tensor  # (R + 1,)
    head_atom: Tensor  # (head literals,)
    source_start: Tensor  # (M + 1,) the rules that an atom is a head of
    source_rule: Tensor  # (head literals,)
    source_place: Tensor  # (head literals,)
    #: The same in the form that a kernel needs, by the name of the kernel.
    kernel_form: dict[str, object] = field(default_factory=dict)


def make_literal_rows(literals: Literals, *, M: int, R: int) -> LiteralRows:
    """The literals as compressed rows."""
    largest = max(M, R, len(literals.body_rule), len(literals.head_rule))
    dtype = torch.int32 if largest < 2**31 - 1 else torch.int64
    body = _both_directions(literals.body_rule, literals.body_atom, M, R, dtype)
    head = _both_directions(literals.head_rule, literals.head_atom, M, R, dtype)
    return LiteralRows(M, R, *body, *head)


def _both_directions(
    rule: Tensor, atom: Tensor, M: int, R: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    order = torch.argsort(rule, stable=True)
    rule, atom = rule[order], atom[order]
    place = torch.argsort(atom, stable=True)
    by_rule = order.to(dtype), rule.to(dtype), _starts(rule, R, dtype), atom.to(dtype)
    return *by_rule, _starts(atom, M, dtype), rule[place].to(dtype), place.to(dtype)


def _starts(index: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    ends = torch.bincount(index, minlength=count).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends]).to(dtype)


_ROWS: WeakKeyDictionary[SparseRules, tuple[object, LiteralRows]] = WeakKeyDictionary()


def literal_rows_of(rules: SparseRules) -> LiteralRows:
    """The literals of these rules as compressed rows, sorted once and again when they change."""
    literals = rules.literals()
    version = tuple([(x.data_ptr(), x._version, x.numel()) for x in literals])
    cached = _ROWS.get(rules)
    if cached is None or cached[0] != version:
        cached = version, make_literal_rows(literals, M=rules.M, R=rules.R)
        _ROWS[rules] = cached
    return cached[1]
