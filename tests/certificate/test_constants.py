"""The constants of the paper, of its remarks on scaling, and of the closed form."""

import math

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.certificate.constants import Sizes, certify_closed_form, reaches
from latentgamma.generators import clique, ladder
from latentgamma.program.program import Program


def test_the_papers_constants() -> None:
    paper = lg.Constants.paper()
    assert paper.to_dict() == {
        "body": 10.0, "head": 20.0, "sharpness": 10.0, "confidence": 0.95, "gain": 5.0, "gate": 5.0
    }  # fmt: skip
    assert paper.gamma_plus == pytest.approx(5 * 0.95 / (1 + math.exp(-5)))
    assert paper.gamma_minus == pytest.approx(5 * 0.95 / (1 + math.exp(5)))


@pytest.mark.parametrize(("M", "k", "rho"), [(10, 3, 2), (100, 7, 30), (5, 1, 1)])
def test_the_scaled_constants_grow_as_the_paper_says(M: int, k: int, rho: int) -> None:
    program = sized_program(M, k, rho)
    assert (program.k, program.rho_max) == (k, rho)
    scaled = lg.Constants.scaled(program, c=7.0)
    assert scaled.body == pytest.approx(math.log(4 * k * M))  # η = log(4kM)
    assert scaled.head == pytest.approx(math.log(M) + 10)  # Ψ = log M + 10
    assert scaled.sharpness == pytest.approx(2 * math.log(rho + 2) + 7.0)  # τ = 2 log(ρ + 2) + c
    assert (scaled.confidence, scaled.gain, scaled.gate) == (0.95, 5.0, 5.0)
    assert lg.Constants.scaled(program).sharpness == pytest.approx(2 * math.log(rho + 2) + 4)
    # The ratio of what a satisfied and an unsatisfied rule give is e^{c/2} (ρ + 2).
    ratio = scaled.gamma_plus / scaled.gamma_minus
    assert ratio == pytest.approx(math.exp(3.5) * (rho + 2))


def test_scaled_constants_of_programs_without_atoms_or_bodies_are_numbers() -> None:
    for program in (Program.from_rules([]), lg.parse("a.")):
        scaled = lg.Constants.scaled(program)
        assert scaled.body == pytest.approx(math.log(4))
        assert scaled.head == pytest.approx(10)


def test_harder_constants_reach_further() -> None:
    program = clique(10)
    ends = []
    for hardness in (0.4, 0.5, 0.6):
        constants = lg.Constants.closed_form(program, hardness)
        model = lg.oracle(program, constants, dtype=torch.float64)
        ends.append(lg.certify(model, program).t_max)
    assert ends[0] < ends[1] < ends[2]


@pytest.mark.parametrize("bump", [False, True])
@pytest.mark.parametrize(
    "program", [clique(6), ladder(3, 4), lg.parse("a. b :- a, c."), lg.parse("a. #external b.")]
)
def test_what_is_said_to_reach_the_horizon_is_certified_to_it(program: Program, bump: bool) -> None:
    seen = set()
    for hardness in np.linspace(0.02, 1.0, 13):
        constants = lg.Constants.closed_form(program, float(hardness))
        said = reaches(Sizes.of(program), constants, 1e5, dtype="float32", bump=bump)
        certificate = certify_closed_form(program, [constants], bump=bump)
        if said:
            assert certificate.t_min == certificate.depth
            assert certificate.t_max >= 1e5
        seen.add(said)
    assert seen == {False, True}


def sized_program(M: int, k: int, rho: int) -> Program:
    """A program of M atoms whose largest body has k atoms, and with an atom of rho rules."""
    atoms = [f"a{i}" for i in range(M)]
    rules = [("a0", atoms[1 : 1 + k])] + [("a0", [atoms[1 + i % (M - 1)]]) for i in range(rho - 1)]
    return Program.from_rules(rules, atoms=atoms)


@pytest.mark.parametrize(("M", "k", "rho"), [(10, 3, 2), (100, 7, 30), (2, 1, 1)])
@pytest.mark.parametrize("hardness", [1.0, 0.5, 2.0])
def test_the_closed_form_is_that_of_the_theorem(M: int, k: int, rho: int, hardness: float) -> None:
    program = sized_program(M, k, rho)
    found = lg.Constants.closed_form(program, hardness)
    # The table of docs/theorem.md, for hardness 1.
    tau = 2 * math.log(rho + 2) + 10
    amplitude = 2.2 * math.log(k * tau) + 12
    assert found.gain * found.confidence == pytest.approx(hardness * amplitude)
    assert found.head - math.log(rho + M) == pytest.approx(12 * hardness)  # R = ρ here
    assert found.gate == 5
    if hardness == 1:
        assert lg.Constants.closed_form(program) == found
        assert found.sharpness == pytest.approx(tau)
        assert found.body == pytest.approx(math.log(4 * M * tau))
    else:  # what does not depend on the hardness, and what is in proportion to it
        assert found.sharpness == pytest.approx(tau + 10 * (hardness - 1))
        assert found.body == pytest.approx(math.log(M) + hardness * math.log(4 * found.sharpness))


def test_closed_forms_of_programs_without_rules_or_atoms_are_those_of_one() -> None:
    tau = 2 * math.log(3) + 10
    for program, sum_of_sizes in ((lg.parse("#external a."), 1), (lg.parse("a."), 2)):
        found = lg.Constants.closed_form(program)
        assert found.sharpness == pytest.approx(tau)
        assert found.body == pytest.approx(math.log(4 * tau))
        assert found.head == pytest.approx(math.log(sum_of_sizes) + 12)
        assert found.gain * found.confidence == pytest.approx(2.2 * math.log(tau) + 12)
    assert lg.Constants.closed_form(Program.from_rules([])).head == pytest.approx(12)


def hardness_of(constants: lg.Constants, program: Program) -> float:
    """The hardness of constants of the closed form: the sharpness is linear in it."""
    return (constants.sharpness - 2 * math.log(program.rho_max + 2)) / 10


@pytest.mark.quick_first
@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
@pytest.mark.parametrize(
    ("program", "horizon", "dtype"),
    [
        (clique(6), 1e3, "float32"),
        (ladder(3, 4), 1e6, "bfloat16"),
        (clique(6), 1e85, "float64"),
        (clique(6), 1e115, "float64"),
    ],
)
def test_certified_constants_are_the_least_hard_ones(
    program: Program, horizon: float, dtype: str, gate: str
) -> None:
    def proved(hardness: float) -> bool:
        constants = lg.Constants.closed_form(program, hardness)
        return reaches(Sizes.of(program), constants, horizon, dtype=dtype, bump=gate == "bump")

    found = lg.Constants.certified(program, horizon, dtype=dtype, gate=gate)
    hardness = hardness_of(found, program)
    same = lg.Constants.closed_form(program, hardness)
    assert list(found.to_dict().values()) == pytest.approx(list(same.to_dict().values()))
    assert proved(hardness + 1e-9)
    assert not proved(hardness - 0.02)
    if horizon > 1e80 and gate == "sigmoid":
        assert hardness > 1  # found beyond the theorem's own
    # No softer ones within reach, by scanning.
    assert not any(proved(float(h)) for h in np.arange(0.01, hardness - 0.03, 0.1))


def test_the_horizon_is_at_least_the_depth() -> None:
    chain = Program.from_rules([(f"c{i + 1}", [f"c{i}"]) for i in range(400)])
    assert lg.Constants.certified(chain, 1) == lg.Constants.certified(chain, 400)
    assert lg.Constants.certified(chain, 1) != lg.Constants.certified(chain, 10**5)
    assert lg.Constants.certified(chain) == lg.Constants.certified(chain, 10**6)


def test_gammas_of_very_sharp_rules_are_numbers() -> None:
    hard = lg.Constants(10.0, 20.0, 4000.0, 0.5, 6.0, 5.0)
    assert (hard.gamma_plus, hard.gamma_minus) == (3.0, 0.0)
    even = lg.Constants(10.0, 20.0, 2 * math.log(3), 0.5, 8.0, 5.0)  # σ(log 3) = 3/4
    assert even.gamma_plus == pytest.approx(3.0)
    assert even.gamma_minus == pytest.approx(1.0)


def test_a_horizon_that_no_constants_reach_is_refused() -> None:
    with pytest.raises(lg.errors.CertificateError, match="1e\\+250 steps in float64"):
        lg.Constants.certified(ladder(2, 3), 1e250, dtype="float64")
