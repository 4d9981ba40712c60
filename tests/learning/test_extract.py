"""Reading rules back from models, aligned or distributed."""

import itertools

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.operator.rules import DenseRules


@pytest.mark.parametrize("seed", range(5))
def test_an_oracle_gives_its_rules_back(seed):
    program = lg.generators.random(9, 12, seed=seed)
    found = lg.extract(lg.oracle(program))
    assert lg.equivalent(found, program)
    assert set(found.rules) <= set(program.rules)


def test_g3_comes_back_exactly():
    program = lg.generators.g3()
    assert set(lg.extract(lg.oracle(program)).rules) == set(program.rules)


def test_needless_rules_are_left_out():
    program = lg.parse("c :- a. c :- a, b. b :- a, b.")
    found = lg.extract(lg.oracle(program))
    assert [str(rule) for rule in found.rules] == ["c :- a."]


@pytest.mark.parametrize("seed", range(6))
def test_any_monotone_model_is_read_exactly_by_asking(seed):
    """Random dense models are no programs; asked, they are as their extract says on all states."""
    generator = torch.Generator().manual_seed(seed)
    M, R = 6, 9
    model = lg.LatentGamma(
        DenseRules(
            3 * torch.randn(R, M, generator=generator), 4 * torch.randn(R, M, generator=generator)
        ),
        threshold=1 + torch.rand(R, generator=generator),
        sharpness=torch.full((R,), 4.0),
        confidence=torch.full((R,), 0.9),
        gain=torch.tensor(8.0),
        offset=torch.full((M,), 3.0),
        gate=torch.tensor(3.0),
    )
    program = lg.extract(model)
    for bits in itertools.product([0.0, 1.0], repeat=M):
        facts = np.array(bits) > 0.5
        after = (model.step(torch.tensor(bits)) > 0.5).numpy()
        assert program.names(after) == lg.logic.step(program, np.flatnonzero(facts))


def test_a_rule_spread_over_two_rows_is_found():
    """Neither row brings the head above its offset alone, so reading rows finds nothing."""
    body = torch.full((2, 3), -10.0)
    body[0, 0] = body[1, 1] = 10.0
    head = torch.zeros(2, 3)
    head[:, 2] = 20.0
    model = lg.LatentGamma(
        DenseRules(body, head),
        threshold=torch.full((2,), 0.5),
        sharpness=torch.full((2,), 12.0),
        confidence=torch.full((2,), 0.9),
        gain=torch.tensor(10.0),
        offset=torch.tensor([30.0, 30.0, 13.0]),
        gate=torch.tensor(5.0),
    )
    assert [str(rule) for rule in lg.extract(model).rules] == ["a2 :- a0, a1."]


def test_alignment_counts_rows_and_rules():
    program = lg.parse("c :- a, b. d :- c.")
    other = lg.parse("c :- a. d :- c.")
    other = lg.Program.from_rules(other.rules, program.atoms)
    found = lg.learning.alignment(lg.oracle(other), program)
    assert found.n_corp.tolist() == [1, 1]
    assert (found.precision, found.recall, found.rows) == (0.5, 0.5, 1)
    with pytest.raises(lg.errors.ModelError, match="3 atoms, but the program has 4"):
        lg.learning.alignment(lg.oracle(lg.parse("c :- a, b.")), program)


def test_steps_must_be_positive():
    with pytest.raises(lg.errors.ArgumentError, match="from 1 on"):
        lg.extract(lg.oracle(lg.parse("b :- a.")), steps=0)
