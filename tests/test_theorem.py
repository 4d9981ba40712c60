"""Every inequality of docs/theorem.md, over programs of all sizes, up to absurd ones."""

import itertools
import math
from typing import NamedTuple

import pytest

import latentgamma as lg
from latentgamma._certificate.closed_form import ClosedForm
from latentgamma._certificate.rounding import Rounding
from latentgamma._program.program import Program
from latentgamma.generators import clique, disjunctive, g1, ladder


class Size(NamedTuple):
    M: int
    R: int
    k: int
    rho: int
    m: int


GRID = (1, 2, 3, 10, 1000, 10**6, 10**12, 10**30)
SIZES = [
    Size(M, R, k, rho, m)
    for M, R, k, rho, m in itertools.product(GRID, GRID, GRID, GRID, (1, 2, 50))
    if k <= M and rho <= R and m <= M
]


def numbers(size: Size) -> tuple[float, float, float, float]:
    """τ, η, Ψ and A, as the statement of the theorem has them."""
    tau = 2 * math.log(size.rho + 2) + 10
    return (
        tau,
        math.log(4 * size.M * tau),
        math.log(size.R + size.M) + 12,
        2.2 * math.log(size.k * tau) + 12,
    )


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)


def test_the_statement_is_what_the_code_uses() -> None:
    for program in (clique(20), ladder(3, 5), disjunctive(), g1(), lg.parse("a. b :- a.")):
        size = Size(program.M, program.R, max(1, program.k), max(1, program.rho_max), 1)
        tau, eta, psi, amplitude = numbers(size)
        constants = lg.Constants.closed_form(program)
        assert constants.sharpness == pytest.approx(tau)
        assert constants.body == pytest.approx(eta)
        assert constants.head == pytest.approx(psi)
        assert constants.gain * constants.confidence == pytest.approx(amplitude)
        form = ClosedForm(program, constants)
        assert form.gain * form.confidence == pytest.approx(amplitude * program.head_sizes)
        own = program.rules_per_head
        half = amplitude / 2 * (sigmoid(tau / 2) + own * sigmoid(-tau / 2))
        assert form.offset[own > 0] == pytest.approx(half[own > 0])
        assert form.offset[own == 0] == pytest.approx(2 * amplitude * sigmoid(tau / 2))


@pytest.mark.parametrize("step", range(1, 12))
def test_every_inequality_of_the_proof(step: int) -> None:
    for size in SIZES:
        tau, eta, psi, A = numbers(size)
        eps, lam, one_minus_x = sigmoid(-eta), 1 / (4 * tau), 1 / (4 * size.k * tau)
        half_tau = math.exp(-tau / 2)
        rest = (size.M - size.m) / size.m * math.exp(-psi)
        theta_low, theta_high = A / 2 * (1 - math.exp(-5) / 3), A / 2 * (1 + math.exp(-5))
        phi_on = A * (1 - math.exp(-4.5) / 3) * (1 - math.exp(-12)) - theta_high
        phi_off = A * (math.exp(-4.5) + math.exp(-12)) - theta_low
        claims = {
            1: max(tau * eps * size.M, tau * eps * size.k) <= 0.25 * (1 + 1e-12),
            2: 1 - math.exp(-12) <= 1 / (1 + rest) <= 1,
            3: size.R * A * math.exp(-psi) <= A * math.exp(-12) * (1 + 1e-12),
            4: size.rho * half_tau <= math.exp(-5) * (1 + 1e-12)
            and half_tau <= math.exp(-5) / 3 * (1 + 1e-12)
            and all(
                theta_low
                <= A / 2 * (sigmoid(tau / 2) + own * sigmoid(-tau / 2))
                <= theta_high * (1 + 1e-12)
                for own in (1, size.rho)
            ),
            5: tau / 2 - tau * size.k * eps - tau * size.k * one_minus_x >= tau / 2 - 0.5 - 1e-9
            and math.exp(-tau / 2 + 0.5) <= math.exp(-4.5) / 3 * (1 + 1e-12),
            6: phi_on >= 0.49 * A,
            7: math.exp(-0.49 * A) + math.exp(-5 * 0.49 * A) <= 1.01 * math.exp(-0.49 * A)
            and 1.01 * math.exp(-0.49 * A) <= one_minus_x,
            8: -tau / 2 + tau * lam + tau * eps * size.M <= -tau / 2 + 0.5 + 1e-9
            and size.rho * math.exp(-tau / 2 + 0.5) <= math.exp(-4.5) * (1 + 1e-12),
            9: phi_off <= -0.485 * A
            and A * math.exp(-12) - 2 * A * (1 - math.exp(-5) / 3) < -1.9 * A,
            10: 6 * -0.485 * A <= -2.91 * A + 1e-9 and lam < 0.5 and one_minus_x < 0.5,
            11: 2.9 * A - math.log(4 * tau) >= math.log(1e20),
        }
        assert claims[step], (size, step)


@pytest.mark.parametrize(
    "program",
    [
        clique(2),
        clique(100),
        ladder(5, 30),
        disjunctive(),
        g1(),
        lg.parse("a. b :- a. c, d, e :- b, a. d :- c."),
        Program.from_rules([("goal", [f"x{i}"]) for i in range(2000)]),
    ],
    ids=repr,
)
def test_the_certificate_proves_what_the_theorem_says(program: Program) -> None:
    constants = lg.Constants.closed_form(program)
    for dtype in ("float64", "float32"):
        certificate = lg.certify(ClosedForm(program, constants, dtype=dtype), program)
        assert certificate.t_min == certificate.depth
        assert certificate.t_max >= 1e20
    assert Rounding.of("float32").unit == 2.0**-24
