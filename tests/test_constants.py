"""The constants of the paper, of its remarks on scaling, and of the closed form."""

import math

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma._certificate.closed_form import ClosedForm, reaches
from latentgamma._program.program import Program
from latentgamma.generators import clique, ladder


def test_the_papers_constants() -> None:
    paper = lg.Constants.paper()
    assert paper.to_dict() == {
        "body": 10.0, "head": 20.0, "sharpness": 10.0, "confidence": 0.95, "gain": 5.0, "gate": 5.0
    }  # fmt: skip
    assert paper.gamma_plus == pytest.approx(5 * 0.95 / (1 + math.exp(-5)))
    assert paper.gamma_minus == pytest.approx(5 * 0.95 / (1 + math.exp(5)))


@pytest.mark.parametrize(("M", "k", "rho"), [(10, 3, 2), (100, 7, 30), (5, 1, 1)])
def test_the_scaled_constants_grow_as_the_paper_says(M: int, k: int, rho: int) -> None:
    atoms = [f"a{i}" for i in range(M)]
    rules = [("a0", atoms[1 : 1 + k])] + [("a0", [atoms[1 + i % (M - 1)]]) for i in range(rho - 1)]
    program = Program.from_rules(rules, atoms=atoms)
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
        said = reaches(program, constants, 1e5, dtype="float32", bump=bump)
        form = ClosedForm(program, constants, bump=bump)
        certificate = lg.certify(form, program)
        if said:
            assert certificate.t_min == certificate.depth
            assert certificate.t_max >= 1e5
        seen.add(said)
    assert seen == {False, True}
