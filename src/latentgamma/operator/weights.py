"""Reads a model for a certificate: tensors in, float64 arrays out, every number as it is used.

The counts of roundings say how the forms of the rules and the kernels take their sums: see
`latentgamma.certificate.rounding`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma.certificate.bounds import FullWeights, GateNumbers, LiteralWeights, RowNumbers
from latentgamma.certificate.rounding import ABOVE, EACH_TERM, WIDE, Array, Rounding, gamma
from latentgamma.errors import ModelError
from latentgamma.operator.rules import (
    AbstractRules,
    Literals,
    SparseRules,
    StepParameters,
    program_of,
)
from latentgamma.program.program import Program

#: Up to this many weights of either kind all of them are read as full matrices.
_WHOLE_UP_TO = 1 << 20


def read_model(
    rules: AbstractRules,
    numbers: StepParameters,
    program: Program,
    rows: npt.NDArray[np.int64] | None,
    *,
    bump: bool,
    dtype: str,
) -> LiteralWeights:
    """Return the weights on a program's literals; `rows` says which row stands for each rule."""
    if rules.M != program.M:
        raise ModelError(f"the model has {rules.M} atoms, but the program has {program.M}")
    if rows is None:
        if rules.R != program.R:
            raise ModelError(f"the model has {rules.R} rows, but the program {program.R} rules")
        rows = np.arange(program.R)
    row = torch.from_numpy(rows).to(numbers.offset.device)
    literals = SparseRules.literals_of(program)
    body_rule, body_atom, head_rule, head_atom = (x.to(row.device) for x in literals)
    rounding = Rounding.of(dtype)
    body_pairs, head_pairs = (row[body_rule], body_atom), (row[head_rule], head_atom)
    every = _rows(rules, numbers, rounding)
    errors = rounding.errors_of_sum(*_route_roundings(rules, numbers, rounding))
    outside, least = _outside(rules, numbers, row, body_rule, body_atom)
    with np.errstate(all="ignore"):  # numbers that are not finite are reported later
        firing = every.firing(np.zeros(rules.R), 0.0, rounding, ABOVE)  # in any state
    return LiteralWeights(
        program=program,
        rounding=rounding,
        body=_array(rules.weight_at("body", numbers, *body_pairs)),
        outside=outside,
        least_weight=least,
        head=_array(rules.weight_at("head", numbers, *head_pairs)),
        rows=every[rows],
        gates=GateNumbers(_array(numbers.offset), float(numbers.gate), bump, *errors),
        stray=_stray(rules, numbers, head_pairs, torch.from_numpy(firing).to(row.device)),
        whole=_whole(rules, numbers, every),
    )


def _rows(rules: AbstractRules, numbers: StepParameters, rounding: Rounding) -> RowNumbers:
    """Return the numbers of all rows of the model."""
    slack = numbers.body_total - numbers.threshold.double()
    mixed = torch.zeros_like(slack)
    sizes = numbers.body_total.abs()  # of the terms of Σ_i u_ji
    if isinstance(rules, SparseRules):
        held = rules.literals()
        additions = _array(torch.bincount(held.body_rule, minlength=rules.R))
        # Small models run as matrices in plain torch, and one literal after another in a kernel.
        longest = additions + (rules.M if rules.small else 0)
        roundings = rounding.roundings_of_sum(longest, rules.M)
        terms = additions
        sizes = _sums(held.body_rule, numbers.body.abs(), rules.R)
        sizes += rules.M * numbers.body_off.double()
        # Where a literal weighs less than the background, its term is negative, and the sum of
        # all sizes is that of the terms and twice that of the negative ones.
        mixed = 2 * _sums(held.body_rule, numbers.body.clamp(max=0).abs(), rules.R)
    else:
        roundings = np.broadcast_to(rounding.roundings_of_sum(rules.M, 0), (rules.R,))
        terms = np.full(rules.R, float(rules.M))
    relative, absolute = rounding.errors_of_sum(roundings, _array(mixed))
    # Another device, or the same one another time, takes Σ_i u_ji in another order.
    reordered = 2.0 * gamma(terms + EACH_TERM, WIDE) * _array(sizes)
    own = _array(slack), _array(numbers.sharpness), _array(numbers.amplitude)
    return RowNumbers(*own, relative, absolute + reordered)


def _route_roundings(
    rules: AbstractRules, numbers: StepParameters, rounding: Rounding
) -> tuple[Array, Array]:
    """Return the roundings of a term of the evidence, and twice the negative terms. (M,)."""
    if not isinstance(rules, SparseRules):
        roundings = np.broadcast_to(rounding.roundings_of_sum(rules.R, 0), (rules.M,))
        return roundings, np.zeros(rules.M)
    held = rules.literals()
    additions = _array(torch.bincount(held.head_atom, minlength=rules.M))
    additions += rules.R if rules.small else 0
    roundings = rounding.roundings_of_sum(additions, rules.R)
    amplitude = numbers.amplitude.double()
    negative = (amplitude[held.head_rule] * numbers.head.double()).clamp(max=0).abs()
    return roundings, 2 * _array(_sums(held.head_atom, negative, rules.M))


def _outside(
    rules: AbstractRules, numbers: StepParameters, row: Tensor, body_rule: Tensor, body_atom: Tensor
) -> tuple[Array, Array]:
    """Return Σ_i u_ji outside of each rule's body, and the least u_ji of all atoms. (R,)."""
    R, M = len(row), rules.M
    if not isinstance(rules, SparseRules):
        body = numbers.body.double()[row]  # a copy
        least = body.amin(1) if M else body.new_zeros(R)
        body[body_rule, body_atom] = 0.0
        return _array(body.sum(1)), _array(least)
    # The background of the atoms outside, and the literals of the model that are not in the body.
    held = rules.literals()
    place = torch.full((rules.R,), -1, device=row.device)
    place[row] = torch.arange(R, device=row.device)
    rule = place[held.body_rule]
    keep = rule >= 0
    rule, atom, on = rule[keep], held.body_atom[keep], numbers.body.double()[keep]
    off = numbers.body_off.double()
    beyond = ~_contains(body_rule * M + body_atom, rule * M + atom)
    counts = M - torch.bincount(body_rule, minlength=R)
    extra = torch.bincount(rule[beyond], minlength=R)
    outside = off[row] * (counts - extra)
    outside.index_add_(0, rule[beyond], (off[row][rule[beyond]] + on[beyond]).clamp(min=0))
    least = off[row].scatter_reduce(0, rule, off[row][rule] + on, "amin").clamp(min=0)
    return _array(outside), _array(least)


def _contains(known: Tensor, wanted: Tensor) -> Tensor:
    """Return which of the wanted keys are among the known ones."""
    if torch.equal(known, wanted):  # the usual case, which needs no sort
        return torch.ones_like(wanted, dtype=torch.bool)
    return torch.isin(wanted, known)


def _stray(
    rules: AbstractRules, numbers: StepParameters, heads: tuple[Tensor, Tensor], firing: Tensor
) -> Array:
    """Return the most that each atom receives from rows that it is no head of. (M,)."""
    head_rule, head_atom = heads
    if not isinstance(rules, SparseRules):
        head = numbers.head.double().clone()
        head[head_rule, head_atom] = 0.0
        terms: Tensor | int = rules.R
        stray = firing @ head
    else:
        # The background of all rows less that of the rows whose head the atom is; and literals
        # of the model that are no heads in the program. The background is one sum for all
        # atoms, so what is taken off leaves an error relative to that sum.
        off = firing * numbers.head_off.double()
        own = _sums(head_atom, off[head_rule], rules.M)
        held = rules.literals()
        beyond = ~_contains(
            head_rule * rules.M + head_atom, held.head_rule * rules.M + held.head_atom
        )
        sent = (firing[held.head_rule] * numbers.head.double().clamp(min=0))[beyond]
        extra = _sums(held.head_atom[beyond], sent, rules.M)
        total = off.sum()
        terms = rules.R + torch.bincount(held.head_atom, minlength=rules.M).max() if rules.M else 1
        stray = (total - own).clamp(min=0) + extra + 4 * (rules.R + 8) * WIDE * total
    return _array(stray * (1 + 2 * (terms + 8) * WIDE))


def _whole(rules: AbstractRules, numbers: StepParameters, rows: RowNumbers) -> FullWeights | None:
    """Return all weights as full matrices, if they are not too many."""
    if rules.R * rules.M > _WHOLE_UP_TO:
        return None
    # A literal that weighs nothing may come out below zero by a rounding.
    body, head = (_array(matrix.clamp(min=0)) for matrix in rules.matrices(numbers))
    return FullWeights(body, head, rows)


def _sums(index: Tensor, values: Tensor, count: int) -> Tensor:
    total = torch.zeros(count, dtype=torch.float64, device=values.device)
    return total.index_add_(0, index, values.double())


def rows_of(
    rules: AbstractRules, numbers: StepParameters, atoms: Sequence[str]
) -> tuple[Program, npt.NDArray[np.int64]]:
    """Return the rules that rows look like, and which rows they are.

    A row's body are the atoms it weighs above one half; its heads are the atoms that it brings
    above their offset by itself once its body is true. Rows without a head are idle.
    """
    held = rules.literals()
    body = rules.weight_at("body", numbers, held.body_rule, held.body_atom)
    strong = body > 0.5
    body_rule, body_atom = held.body_rule[strong], held.body_atom[strong]
    margin = _sums(body_rule, body[strong], rules.R) - numbers.threshold.double()
    firing = numbers.amplitude.double() * torch.sigmoid(numbers.sharpness.double() * margin)
    head = rules.weight_at("head", numbers, held.head_rule, held.head_atom)
    sent = firing[held.head_rule] * head
    heads = sent > numbers.offset.double()[held.head_atom]
    used = Literals(body_rule, body_atom, held.head_rule[heads], held.head_atom[heads])
    return program_of(used, rules.R, atoms)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy()
