"""Every inequality of docs/theorem.md, for the numbers that the code uses.

Once for sizes of programs up to absurd ones, with the constants that `Constants.closed_form` writes
down for them; and once for real programs, with all weights and offsets of their closed form.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

import latentgamma as lg
from latentgamma.certificate.constants import ClosedForm, certify_closed_form
from latentgamma.certificate.rounding import ABOVE, Rounding
from latentgamma.generators import (
    clique,
    disjunctive,
    g1,
    ladder,
)
from latentgamma.program.program import Program


class Size(NamedTuple):
    """What `Constants.closed_form` reads of a program, and its largest number of heads."""

    M: int
    R: int
    k: int
    rho_max: int
    m: int


GRID = (1, 2, 3, 10, 1000, 10**6, 10**12, 10**30)
SIZES = [
    Size(M, R, k, rho, m)
    for M, R, k, rho, m in itertools.product(GRID, GRID, GRID, GRID, (1, 2, 50))
    if k <= M and rho <= R and m <= M
]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)


def test_the_statement_is_what_the_code_uses() -> None:
    """The table of parameters, computed by hand for one program."""
    program = Program.from_rules(
        [("c", ["a", "b"]), ("c", ["d"]), (["d", "e"], ["a"])], atoms=["a", "b", "c", "d", "e", "f"]
    )
    constants = lg.Constants.closed_form(program)
    tau = 2 * math.log(4) + 10  # ρ = 2
    assert constants.sharpness == pytest.approx(tau)
    assert constants.body == pytest.approx(math.log(4 * 6 * tau))  # M = 6
    assert constants.head == pytest.approx(math.log(3 + 6) + 12)  # R = 3
    amplitude = 2.2 * math.log(2 * tau) + 12  # k = 2
    assert constants.gain * constants.confidence == pytest.approx(amplitude)
    form = ClosedForm(program, constants)
    assert form.gain * form.confidence == pytest.approx(amplitude * np.array([1, 1, 2]))
    assert form.threshold.tolist() == [1.5, 0.5, 0.5]
    on, off = sigmoid(tau / 2), sigmoid(-tau / 2)
    one, two, none = (
        amplitude / 2 * (on + off), amplitude / 2 * (on + 2 * off), 2 * amplitude * on
    )  # fmt: skip
    assert form.offset == pytest.approx([none, none, two, one, one, none])


@pytest.mark.parametrize("step", range(1, 12))
def test_every_inequality_of_the_proof(step: int) -> None:
    for size in SIZES:
        constants = lg.Constants.closed_form(size)  # type: ignore[arg-type]
        tau, eta, psi = constants.sharpness, constants.body, constants.head
        A = constants.gain * constants.confidence
        rho = size.rho_max
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
            4: rho * half_tau <= math.exp(-5) * (1 + 1e-12)
            and half_tau <= math.exp(-5) / 3 * (1 + 1e-12)
            and all(
                theta_low
                <= (constants.gamma_plus + own * constants.gamma_minus) / 2
                <= theta_high * (1 + 1e-12)
                for own in (1, rho)
            ),
            5: tau / 2 - tau * size.k * eps - tau * size.k * one_minus_x >= tau / 2 - 0.5 - 1e-9
            and math.exp(-tau / 2 + 0.5) <= math.exp(-4.5) / 3 * (1 + 1e-12),
            6: phi_on >= 0.49 * A,
            7: math.exp(-0.49 * A) + math.exp(-5 * 0.49 * A) <= 1.01 * math.exp(-0.49 * A)
            and 1.01 * math.exp(-0.49 * A) <= one_minus_x,
            8: -tau / 2 + tau * lam + tau * eps * size.M <= -tau / 2 + 0.5 + 1e-9
            and rho * math.exp(-tau / 2 + 0.5) <= math.exp(-4.5) * (1 + 1e-12),
            9: phi_off <= -0.485 * A
            and A * math.exp(-12) - 2 * A * (1 - math.exp(-5) / 3) < -1.9 * A,
            10: (1 + constants.gate) * -0.485 * A <= -2.91 * A + 1e-9
            and lam < 0.5
            and one_minus_x < 0.5,
            11: 2.9 * A - math.log(4 * tau) >= math.log(1e20),
        }
        assert claims[step], (size, step)


PROGRAMS = [
    clique(2),
    clique(100),
    ladder(5, 30),
    disjunctive(),
    g1(),
    lg.parse("a. b :- a. c, d, e :- b, a. d :- c."),
    Program.from_rules([("goal", [f"x{i}"]) for i in range(2000)]),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_the_inequalities_hold_for_the_weights_of_the_closed_form(program: Program) -> None:
    """With the bounds of the certificate in float64, whose rounding is far below what is left."""
    constants = lg.Constants.closed_form(program)
    weights = ClosedForm(program, constants, dtype="float64").literal_weights()
    tau, A = constants.sharpness, constants.gain * constants.confidence
    k, own = max(1, program.k), program.rules_per_head
    lam, x = 1 / (4 * tau), 1 - 1 / (4 * k * tau)
    near = 1 + 1e-9
    assert np.all(tau * weights.least_weight * program.M <= 0.25 * near)  # 1
    shares = weights.head * np.repeat(program.head_sizes, program.head_sizes)
    assert np.all((1 - math.exp(-12) <= shares * near) & (shares <= near))  # 2
    assert np.all(weights.stray <= A * math.exp(-12) * (1 + 1e-5))  # 3
    offset = weights.gates.offset[own > 0]
    assert np.all(offset >= A / 2 * (1 - math.exp(-5) / 3) / near)  # 4
    assert np.all(offset <= A / 2 * (1 + math.exp(-5)) * near)
    margin = tau * (weights.rows.slack - weights.lack_below(np.array([x])))
    assert np.all(margin >= tau / 2 - 0.5 - 1e-9)  # 5
    evidence = weights.evidence_below(np.array([[x]]))
    assert np.all(evidence >= 0.49 * A)  # 6
    assert weights.gain_below(np.array([x]))[0] >= x  # 7
    bodies = program.body_sizes > 0
    lacking = weights.least_body * (1 - lam)
    assert np.all((tau * (weights.rows.slack - lacking))[bodies] <= -tau / 2 + 0.5 + 1e-9)  # 8
    # Facts are always derived: the others are what the bound is about.
    above = weights.evidence_above(np.where(bodies, lacking, 1e3))
    assert np.all(above[own > 0] <= -0.485 * A)  # 9
    assert np.all(above[own == 0] < -1.9 * A)
    share = weights.gates.share(above, weights.rounding, ABOVE)
    assert np.all(share <= math.exp(-2.91 * A) * (1 + 1e-6))  # 10
    assert math.exp(2.9 * A) / (4 * tau) > 1e20  # 11


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_the_certificate_proves_what_the_theorem_says(program: Program) -> None:
    constants = lg.Constants.closed_form(program)
    for dtype in ("float64", "float32"):
        certificate = certify_closed_form(program, [constants], dtype=dtype)
        assert certificate.t_min == certificate.depth
        assert certificate.t_max >= 1e20
    assert Rounding.of("float32").unit == 2.0**-24
