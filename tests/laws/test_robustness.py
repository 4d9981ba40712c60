"""Noise on the logits: what perturb does, how likely its events are, and what stays proved."""

from __future__ import annotations

import math
from itertools import chain, combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma.operator.rules import DenseRules
from latentgamma.paper.bounds import (
    critical_sigma,
    flip_bound,
    flip_probability,
    misroute_bound,
    perturb,
)

PROGRAM = lg.parse("c :- a, b. d :- c. e :- d, a. f :- b.")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def subsets(atoms: tuple[str, ...]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(atoms, n) for n in range(len(atoms) + 1)))


# ------------------------------------------------------------------ perturb


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_every_logit_gets_noise_of_its_own_and_nothing_else_changes(form: str) -> None:
    model = lg.oracle(PROGRAM, lg.Constants.paper(), form=form)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    noisy = perturb(model, 0.5, 0.25, generator())
    assert isinstance(noisy.rules, DenseRules)
    clean = model.rules.to_dense()
    body = noisy.rules.body_logits - clean.body_logits
    head = noisy.rules.head_logits - clean.head_logits
    assert len(body.unique()) == len(head.unique()) == PROGRAM.R * PROGRAM.M
    for name in ("threshold", "sharpness", "confidence", "gain", "offset", "gate"):
        assert torch.equal(getattr(noisy, name), getattr(model, name))
    assert noisy.program is model.program
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "the model itself was changed"


def test_the_noise_has_the_spread_that_was_asked_for() -> None:
    program = lg.generators.g3()
    model = lg.oracle(program, lg.Constants.paper(), form="dense")
    noisy = perturb(model, 2.0, 0.5, generator(1))
    for kind, sigma in (("body_logits", 2.0), ("head_logits", 0.5)):
        noise = (getattr(noisy.rules, kind) - getattr(model.rules, kind)).detach()
        count = noise.numel()
        assert abs(float(noise.mean())) < 5 * sigma / count**0.5
        assert abs(float(noise.std()) / sigma - 1) < 5 / (2 * count) ** 0.5


def test_one_seed_gives_one_model_whatever_the_form() -> None:
    models = [lg.oracle(PROGRAM, lg.Constants.paper(), form=form) for form in ("dense", "sparse")]
    dense, sparse = (perturb(model, 1.5, 1.0, generator(7)).rules for model in models)
    assert torch.equal(dense.body_logits, sparse.body_logits)
    assert torch.equal(dense.head_logits, sparse.head_logits)
    other = perturb(models[0], 1.5, 1.0, generator(8)).rules
    assert not torch.equal(dense.body_logits, other.body_logits)


def test_without_noise_the_copy_computes_the_same() -> None:
    model = lg.oracle(PROGRAM, form="dense")
    state = torch.rand(20, PROGRAM.M, generator=generator())
    assert torch.equal(perturb(model)(state, steps=5), model(state, steps=5))


@pytest.mark.slow
def test_noise_on_a_matrix_beyond_memory_is_refused() -> None:
    model = lg.oracle(lg.generators.chain(1_000_000), lg.Constants.paper(), form="sparse")
    with pytest.raises(lg.errors.ModelError, match=r"the dense form of this program needs \d+ TB"):
        perturb(model, 1.0)


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf])
def test_a_standard_deviation_is_a_number_from_zero_on(sigma: float) -> None:
    model = lg.oracle(PROGRAM)
    with pytest.raises(lg.errors.ArgumentError, match="sigma_body must be a standard deviation"):
        perturb(model, sigma)
    with pytest.raises(lg.errors.ArgumentError, match="sigma_head must be a standard deviation"):
        perturb(model, 0.0, sigma)
    with pytest.raises(lg.errors.ArgumentError, match="sigma must be a standard deviation"):
        flip_bound(3, 3, 10, sigma)


# ------------------------------------------------------------------ probabilities


def test_the_bounds_are_those_the_paper_prints() -> None:
    sizes = ((32, 33), (60, 57), (132, 117), (648, 504))
    printed = ("0.033", "0.108", "0.489", "10.3")
    for (R, M), figure in zip(sizes, printed, strict=True):
        digits = len(figure.split(".")[1])
        assert f"{flip_bound(R, M, 10, 2.5):.{digits}f}" == figure
    assert flip_bound(1, 1, 10, 1) == pytest.approx(7.62e-24, rel=1e-3)
    # Φ(−14.14) is 1.04e−45, as the appendix says.
    assert misroute_bound(1, 2, 20, 1) == pytest.approx(1.04e-45, rel=1e-2)


def test_the_exact_probability_is_what_is_seen() -> None:
    R, M, eta, sigma, tries = 4, 6, 2.0, 1.0, 40_000
    noise = sigma * torch.randn(tries, R * M, generator=generator())
    seen = float((noise > eta).any(-1).double().mean())
    expected = flip_probability(R, M, eta, sigma)
    assert abs(seen - expected) < 5 * (expected * (1 - expected) / tries) ** 0.5
    count = float((noise > eta).sum(-1).double().mean())
    assert count == pytest.approx(flip_bound(R, M, eta, sigma), rel=0.05)


def test_misroutes_stay_below_their_bound_and_are_not_far_from_it() -> None:
    R, M, psi, sigma, tries = 3, 5, 4.0, 1.0, 100_000
    logits = sigma * torch.randn(tries, R, M, generator=generator())
    logits[..., 0] += psi
    seen = float((logits.argmax(-1) != 0).any(-1).double().mean())
    bound = misroute_bound(R, M, psi, sigma)
    assert 0.7 * bound < seen < bound


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0.1, 50.0), st.floats(0.01, 50.0)
)  # fmt: skip
def test_probability_and_bound_are_in_order(R: int, M: int, eta: float, sigma: float) -> None:
    exact, bound = flip_probability(R, M, eta, sigma), flip_bound(R, M, eta, sigma)
    assert 0 <= exact <= 1
    assert exact <= bound * (1 + 1e-9)
    assert flip_bound(R, M, eta, 1.1 * sigma) >= bound


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 10**12), st.floats(0.5, 40.0))
def test_critical_sigma_solves_its_equation(logits: int, eta: float) -> None:
    sigma = critical_sigma(logits, 1, eta)
    assert flip_bound(logits, 1, eta, sigma) == pytest.approx(1, rel=1e-6)


def test_critical_sigma_of_the_four_graphs() -> None:
    sizes = ((32, 33), (60, 57), (132, 117), (648, 504))
    assert [round(critical_sigma(R, M), 2) for R, M in sizes] == [3.22, 2.91, 2.61, 2.21]
    # What the paper prints for G4 does not solve the equation it states.
    assert flip_bound(648, 504, 10, 2.38) > 4
    assert critical_sigma(1, 2) == math.inf


# ------------------------------------------------------------------ what stays right


def with_bodies(program: lg.Program, changes: dict[tuple[int, str], float]) -> lg.LatentGamma:
    model = lg.oracle(program, lg.Constants.paper(), form="dense")
    with torch.no_grad():
        for (rule, atom), value in changes.items():
            model.rules.body_logits[rule, program.index[atom]] = value
    return model


def test_no_sign_changes_and_yet_a_rule_never_fires() -> None:
    program = lg.parse("c :- a, b.")
    model = with_bodies(program, {(0, "a"): 0.01, (0, "b"): 0.01})  # noise of −9.99: no flip
    clean = lg.oracle(program, lg.Constants.paper(), form="dense")
    assert torch.equal(model.rules.body_logits > 0, clean.rules.body_logits > 0)
    final = model(model.state(["a", "b"]), steps=30)
    assert final[program.index["c"]] <= 0.5
    assert not lg.certify(model, program).holds


def test_no_sign_changes_and_yet_a_rule_fires_without_its_body() -> None:
    program = lg.Program.from_rules([("c", ["a", "b"])], ["a", "b", "c", "d", "e"])
    model = with_bodies(program, {(0, "d"): -0.01, (0, "e"): -0.01})
    assert int((model.rules.body_logits > 0).sum()) == 2
    final = model(model.state(["a", "d", "e"]), steps=3)
    assert final[program.index["c"]] > 0.5
    assert "c" not in lg.closure(program, ["a", "d", "e"]).atoms
    assert not lg.certify(model, program).holds


@pytest.mark.slow
def test_a_certified_noisy_model_is_right_for_all_facts() -> None:
    sets = subsets(PROGRAM.atoms)
    wanted = torch.from_numpy(lg.closures(PROGRAM, sets))
    certified = wrong = 0
    clean = lg.oracle(PROGRAM, lg.Constants.paper(), form="dense")
    for seed in range(40):
        model = perturb(clean, 5.0, 4.0, generator(seed))
        certificate = lg.certify(model, PROGRAM)
        steps = int(certificate.t_min) if certificate.holds else 10
        with torch.no_grad():
            right = torch.equal(model(model.state(sets), steps=steps) > 0.5, wanted)
        assert right or not certificate.holds
        certified += certificate.holds
        wrong += not right
    assert certified >= 5, "the noise leaves nothing to be certified"
    assert wrong >= 3, "the noise breaks nothing"
