"""Training every parameter freely fits the labels, and finds no rules."""

import numpy as np
import pytest

import latentgamma as lg

PROGRAM = lg.generators.random(8, 10, seed=1)
STATES = np.random.default_rng(0).random((400, 8)) < 0.4


def after_one_step():
    return np.stack([PROGRAM.mask(lg.logic.step(PROGRAM, row)) for row in STATES])


def test_free_training_fits_and_is_not_aligned():
    trained = lg.paper.train_freely(STATES, after_one_step(), atoms=PROGRAM.atoms)
    assert trained.explained > 0.98
    assert trained.program.atoms == trained.model.program.atoms == PROGRAM.atoms
    assert lg.learning.alignment(trained.model, PROGRAM).precision < 0.9
    found = lg.fit(STATES, after_one_step(), atoms=PROGRAM.atoms)
    assert lg.learning.alignment(found.model, PROGRAM).precision == 1.0


@pytest.mark.slow
def test_the_same_seed_trains_the_same_model():
    closed = lg.closures(PROGRAM, STATES[:40])
    one, same, other = (
        lg.paper.train_freely(STATES[:40], closed, kind="closures", seed=seed).model.state_dict()
        for seed in (3, 3, 4)
    )
    assert all((one[name] == same[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_learning_has_no_such_method():
    with pytest.raises(lg.LatentGammaError, match="method must be one of"):
        lg.fit([[1, 0]], [[1, 0]], method="paper")
