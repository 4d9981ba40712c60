"""One step stays inside its bounds, also in an arithmetic that rounds as badly as it may."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma._certificate.constants import ClosedForm
from latentgamma._certificate.step_bounds import Reading, Rounding, row_min, sigmoid
from latentgamma._program.program import Program
from latentgamma.generators import random


class Worst:
    """The operator on a reading's weights, every operation off by up to one roundoff.

    `push` is +1 to err towards a larger next state, −1 towards a smaller one.
    """

    def __init__(self, reading: Reading, unit: float, push: int) -> None:
        self.reading, self.unit, self.push = reading, unit, push

    def off(self, value, sign: int = 1):
        """The value with one rounding error, in the direction that helps."""
        return value + sign * self.push * self.unit * np.abs(value)

    def margins(self, state: np.ndarray) -> np.ndarray:
        r, program = self.reading, self.reading.program
        out = np.zeros(program.R)
        for j in range(program.R):
            part = slice(program.body_indptr[j], program.body_indptr[j + 1])
            on, atoms = r.body[part], program.body_of(j)
            elsewhere = r.body_total[j] - on.sum()
            total = 0.0
            for weight, atom in zip(on, atoms, strict=True):
                term = self.off(weight * self.off(1 - state[atom], -1), -1)
                total = self.off(total + term, -1)
            outside = np.setdiff1d(np.arange(program.M), atoms)
            if len(outside):
                share = elsewhere / len(outside)
                total = self.off(total + self.off(share * (1 - state[outside]).sum(), -1), -1)
            slack = self.off(r.body_total[j] - r.threshold[j])
            out[j] = self.off(slack - total)
        return out

    def evidence(self, state: np.ndarray, *, stray: bool) -> np.ndarray:
        r, program = self.reading, self.reading.program
        active = self.off(sigmoid(self.off(r.sharpness * self.margins(state))))
        firing = self.off(r.amplitude * active)
        total = self.off(r.stray) if stray else np.zeros(program.M)
        for rule, atom, weight in zip(r.head_rule, program.head_indices, r.head, strict=True):
            total[atom] = self.off(total[atom] + self.off(firing[rule] * weight))
        return self.off(total - r.offset)

    def step(self, state: np.ndarray, *, stray: bool, stored: float) -> np.ndarray:
        evidence = self.evidence(state, stray=stray)
        share = self.off(self.reading.share(self.off(evidence)))
        added = self.off(self.off(1 - state) * share)
        after = state + added
        # Rounding to nearest: at most one roundoff, and at most what was added.
        error = np.minimum(stored * after, added)
        return np.clip(after + self.push * error, 0, 1)


def cases(seed: int) -> tuple[Reading, np.random.Generator]:
    rng = np.random.default_rng(seed)
    M = int(rng.integers(2, 12))
    rules = []
    for _ in range(int(rng.integers(1, 2 * M))):
        heads = rng.choice(M, size=min(M, int(rng.choice([1, 1, 2, 3]))), replace=False)
        body = rng.choice(M, size=int(rng.integers(1, M + 1)), replace=False)
        rules.append(([f"a{i}" for i in heads], [f"a{i}" for i in body]))
    program = Program.from_rules(rules, atoms=[f"a{i}" for i in range(M)])
    constants = lg.Constants(*rng.uniform([2, 4, 3, 0.5, 3, 1.5], [9, 15, 12, 0.99, 15, 6]))
    reading = ClosedForm(program, constants, bump=seed % 4 == 0).reading()
    noisy = {
        name: getattr(reading, name) * rng.uniform(0.8, 1.2, getattr(reading, name).shape)
        for name in ("threshold", "sharpness", "amplitude", "head", "offset")
    }
    body = reading.body * rng.uniform(0.8, 1.0, reading.body.shape)
    total = reading.body_total - np.bincount(
        np.repeat(np.arange(program.R), program.body_sizes), reading.body - body, program.R
    )
    zero = {"match_error": np.zeros(program.R), "route_error": np.zeros(program.M)}
    return replace(reading, body=body, body_total=total, **noisy, **zero), rng


@pytest.mark.parametrize("unit", [2.0**-24, 2.0**-10, 2.0**-7])
def test_underivable_atoms_rise_no_further_than_the_bound(unit: float) -> None:
    tight = 0
    for seed in range(120):
        reading, rng = cases(seed)
        stored = max(unit, 2.0**-9)
        reading = replace(reading, rounding=Rounding("coarse", unit, stored))
        program = reading.program
        closed = lg.closure(program, rng.random(program.M) < 0.4).state
        if closed.all():
            continue
        state = np.where(closed, 1.0, rng.uniform(0, 0.3, program.M) * rng.integers(0, 2))
        bound = np.where(closed, 0.3, state)
        lacking = row_min(reading.body * (1 - bound[program.body_indices]), program)
        limit = bound + (1 - bound) * reading.leak(lacking, bound)
        after = Worst(reading, unit, +1).step(state, stray=True, stored=stored)
        open_atoms = ~closed
        assert np.all(after[open_atoms] <= limit[open_atoms] * (1 + 1e-12))
        tight += np.any(after[open_atoms] > 0.5 * limit[open_atoms])
    assert tight > 30  # the bound is not empty talk


@pytest.mark.parametrize("unit", [2.0**-24, 2.0**-10, 2.0**-7])
def test_derived_atoms_rise_at_least_as_far_as_the_bound(unit: float) -> None:
    tight = 0
    for seed in range(120):
        reading, rng = cases(seed)
        stored = max(unit, 2.0**-9)
        reading = replace(reading, rounding=Rounding("coarse", unit, stored))
        program = reading.program
        level = float(rng.uniform(0.8, 1.0))
        least = reading.share(reading.evidence_below(np.array([[level]])))[0]
        least = least * (1 - 32 * unit) * (1 - 2 * stored)
        for literal in range(len(program.head_indices)):
            body = program.body_of(int(reading.head_rule[literal]))
            state = np.zeros(program.M)
            state[body] = level
            after = Worst(reading, unit, -1).step(state, stray=False, stored=stored)
            atom = program.head_indices[literal]
            assert after[atom] >= least[literal] * (1 - 1e-12)
            tight += after[atom] < 2 * least[literal]
    assert tight > 100


def test_the_reading_of_a_model_is_what_it_computes_with() -> None:
    program = random(30, 60, body=(1, 4), heads=(1, 3), facts=2, seed=3)
    for form in ("dense", "sparse"):
        model = lg.oracle(program, lg.Constants.paper(), form=form, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        reading = model.reading(program)
        dense = model.rules.to_dense()
        u = torch.sigmoid(dense.body_logits.double()).detach().numpy()
        v = torch.softmax(dense.head_logits.double(), -1).detach().numpy()
        rule = np.repeat(np.arange(program.R), program.body_sizes)
        assert reading.body == pytest.approx(u[rule, program.body_indices], rel=1e-5)
        assert reading.body_total == pytest.approx(u.sum(1), rel=1e-5)
        assert reading.head == pytest.approx(v[reading.head_rule, program.head_indices], rel=1e-4)
        full = reading.amplitude * sigmoid(
            reading.sharpness * (reading.body_total - reading.threshold)
        )
        everything = full @ v
        own = np.bincount(program.head_indices, full[reading.head_rule] * reading.head, program.M)
        assert reading.stray == pytest.approx(everything - own, rel=1e-3, abs=1e-5)
