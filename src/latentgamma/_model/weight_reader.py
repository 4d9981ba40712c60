"""Reads a model for a certificate: tensors in, float64 arrays out, every number as it is used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma._certificate.step_bounds import STAGE, Array, Reading, Rounding
from latentgamma._errors import ModelError
from latentgamma._model.dense_rules import DenseRules
from latentgamma._model.rules import AbstractRules, StepParameters
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._program.program import Program


def read_model(
    rules: AbstractRules,
    numbers: StepParameters,
    program: Program,
    rows: npt.NDArray[np.int64] | None,
    *,
    bump: bool,
    dtype: str,
) -> Reading:
    """The weights on a program's literals; `rows` says which row stands for each rule."""
    if rules.M != program.M:
        raise ModelError(f"the model has {rules.M} atoms, but the program has {program.M}")
    if rows is None:
        if rules.R != program.R:
            raise ModelError(f"the model has {rules.R} rows, but the program {program.R} rules")
        rows = np.arange(program.R)
    row = torch.from_numpy(rows).to(numbers.offset.device)
    literals = SparseRules.literals_of(program)
    body_rule, body_atom, head_rule, head_atom = (x.to(row.device) for x in literals)
    weights = numbers.weights
    body = rules.body_at(weights, row[body_rule], body_atom)
    head = rules.head_at(weights, row[head_rule], head_atom)
    sharpness, threshold = numbers.sharpness.double(), numbers.threshold.double()
    amplitude = numbers.amplitude.double()
    rounding = Rounding.of(dtype)
    match_error, route_error = _mixed_signs(rules, numbers, rounding.unit)
    # Most that each row can fire, in any state and with the rounding of its own arithmetic.
    slack = weights.body_total - threshold
    error = rounding.unit * slack.abs() + torch.from_numpy(match_error).to(slack.device)
    pushed = sharpness * (slack + error)
    pushed = pushed + STAGE * rounding.unit * pushed.abs()
    full = amplitude * torch.sigmoid(pushed) * (1 + STAGE * rounding.unit)  # (R,)
    own = torch.zeros(rules.M, dtype=torch.float64, device=row.device)
    own.index_add_(0, head_atom, full[row[head_rule]] * head)
    everything = _route_double(rules, numbers, full)
    if isinstance(rules, DenseRules):
        match_terms, route_terms = np.full(rules.R, rules.M), np.full(rules.M, rules.R)
    else:
        held = rules.literals()
        match_terms = torch.bincount(held.body_rule, minlength=rules.R).cpu().numpy() + 2
        route_terms = torch.bincount(held.head_atom, minlength=rules.M).cpu().numpy() + 2
    return Reading(
        program=program,
        rounding=rounding,
        body=_array(body),
        body_total=_array(weights.body_total[row]),
        head=_array(head),
        threshold=_array(threshold[row]),
        sharpness=_array(sharpness[row]),
        amplitude=_array(amplitude[row]),
        # The difference of two sums may round below zero, or lose a little.
        stray=_array((everything - own).clamp(min=0) + 1e-12 * everything),
        offset=_array(numbers.offset),
        gate=float(numbers.gate),
        bump=bump,
        match_terms=match_terms[rows].astype(np.float64),
        route_terms=route_terms.astype(np.float64),
        match_error=match_error[rows],
        route_error=route_error,
    )


def rows_of(
    rules: AbstractRules, numbers: StepParameters, atoms: Sequence[str]
) -> tuple[Program, npt.NDArray[np.int64]]:
    """The rules that rows look like, and which rows they are.

    A row's body are the atoms it weighs above one half; its heads are the atoms that it brings
    above their offset by itself once its body is true. Rows without a head are idle.
    """
    weights, held = numbers.weights, rules.literals()
    body = rules.body_at(weights, held.body_rule, held.body_atom)
    strong = body > 0.5
    body_rule, body_atom = held.body_rule[strong], held.body_atom[strong]
    total = torch.zeros(rules.R, dtype=torch.float64, device=body.device)
    total.index_add_(0, body_rule, body[strong])
    margin = total - numbers.threshold.double()
    firing = numbers.amplitude.double() * torch.sigmoid(numbers.sharpness.double() * margin)
    sent = firing[held.head_rule] * rules.head_at(weights, held.head_rule, held.head_atom)
    heads = sent > numbers.offset.double()[held.head_atom]
    head_rule, head_atom = held.head_rule[heads], held.head_atom[heads]
    active = torch.unique(head_rule)
    place = torch.full((rules.R,), -1, device=body.device)
    place[active] = torch.arange(len(active), device=body.device)
    kept = place[body_rule] >= 0
    program = Program.from_arrays(
        *_csr(place[body_rule[kept]], body_atom[kept], len(active)),
        *reversed(_csr(place[head_rule], head_atom, len(active))),
        atoms=atoms,
    )
    return program, active.cpu().numpy()


def _csr(rule: Tensor, atom: Tensor, R: int) -> tuple[Array, Array]:
    order = torch.argsort(rule, stable=True)
    counts = torch.bincount(rule, minlength=R)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return indptr.cpu().numpy(), atom[order].cpu().numpy()


def _route_double(rules: AbstractRules, numbers: StepParameters, firing: Tensor) -> Tensor:
    wide = type(numbers.weights)(*(tensor.double() for tensor in numbers.weights))
    return rules.route(firing, wide)


def _mixed_signs(rules: AbstractRules, numbers: StepParameters, unit: float) -> tuple[Array, Array]:
    """Rounding of the sparse sums where a literal weighs less than the background.

    Their terms then have both signs, and their error is no longer relative to their value.
    """
    zero = np.zeros(rules.R), np.zeros(rules.M)
    if not isinstance(rules, SparseRules):
        return zero
    weights, held = numbers.weights, rules.literals()
    R, M = rules.R, rules.M
    lost = torch.zeros(R, dtype=torch.float64, device=held.body_rule.device)
    lost.index_add_(0, held.body_rule, weights.body.double().clamp(max=0).abs())
    terms = torch.bincount(held.body_rule, minlength=R) + 16
    match_error = torch.where(
        lost > 0, 2 * unit * terms * (lost + M * weights.body_off.double()), 0.0
    )
    sent = numbers.amplitude.double()[held.head_rule] * weights.head.double()
    lost = torch.zeros(M, dtype=torch.float64, device=held.head_atom.device)
    lost.index_add_(0, held.head_atom, sent.clamp(max=0).abs())
    terms = torch.bincount(held.head_atom, minlength=M) + 16
    stray = (numbers.amplitude.double() * weights.head_off.double()).sum()
    route_error = torch.where(lost > 0, 2 * unit * terms * (lost + stray), 0.0)
    return _array(match_error), _array(route_error)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy()
