"""The paper's operator, transcribed as slow scalar loops: what the library is compared with.

Nothing here is taken from the library. Every function is one displayed equation of the paper's
sections 4 and 6.2, or of its Appendix G for rules with several heads, over plain lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Parameters:
    """Definition 4.1, with the two global amplitudes."""

    eta: list[list[float]]  # R × M
    psi: list[list[float]]  # R × M
    b: list[float]  # R
    tau: list[float]  # R
    rho: list[float]  # R
    theta: list[float]  # M
    tau_nor: float
    beta: float
    bump: bool = False

    @property
    def R(self) -> int:
        return len(self.b)

    @property
    def M(self) -> int:
        return len(self.theta)


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softmax(row: Sequence[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    total = math.fsum(powers)
    return [power / total for power in powers]


def bump(x: float) -> float:
    return math.exp(-1 / (x * x)) if x > 1e-100 else 0.0


def body_sums(p: Parameters, s: Sequence[float]) -> list[float]:
    """bs_j(s) = ⟨u_j, s⟩."""
    return [math.fsum(sigma(p.eta[j][i]) * s[i] for i in range(p.M)) for j in range(p.R)]


def activations(p: Parameters, s: Sequence[float]) -> list[float]:
    """Stage 1: a_j(s) = σ(τ_j (bs_j(s) − b_j))."""
    sums = body_sums(p, s)
    return [sigma(p.tau[j] * (sums[j] - p.b[j])) for j in range(p.R)]


def routing(p: Parameters) -> list[list[float]]:
    """Stage 2: v_j = softmax(ψ_j)."""
    return [softmax(p.psi[j]) for j in range(p.R)]


def contributions(p: Parameters, s: Sequence[float]) -> list[list[float]]:
    """Stage 3: γ_ji(s) = τ_nor ρ_j a_j(s) v_ji."""
    a, v = activations(p, s), routing(p)
    return [[p.tau_nor * p.rho[j] * a[j] * v[j][i] for i in range(p.M)] for j in range(p.R)]


def evidence(p: Parameters, s: Sequence[float]) -> list[float]:
    """Stage 4: φ_i(s) = Σ_j γ_ji(s) − θ_i."""
    gamma = contributions(p, s)
    return [math.fsum(gamma[j][i] for j in range(p.R)) - p.theta[i] for i in range(p.M)]


def shares(p: Parameters, s: Sequence[float]) -> list[float]:
    """Stage 4: g_i(s) Γ_i(s)."""
    gate = bump if p.bump else sigma
    return [gate(p.beta * phi) * sigma(phi) for phi in evidence(p, s)]


def step(p: Parameters, s: Sequence[float]) -> list[float]:
    """Stage 5: T(s)_i = s_i + (1 − s_i) g_i(s) Γ_i(s)."""
    share = shares(p, s)
    return [s[i] + (1 - s[i]) * share[i] for i in range(p.M)]


def run(p: Parameters, s: Sequence[float], steps: int) -> list[float]:
    state = list(s)
    for _ in range(steps):
        state = step(p, state)
    return state


def closed_form(
    M: int,
    rules: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    eta: float = 10.0,
    Psi: float = 20.0,
    tau_s: float = 10.0,
    rho_0: float = 0.95,
    tau_nor: float = 5.0,
    beta: float = 5.0,
    bump: bool = False,
) -> Parameters:
    """θ*(P) of section 6.2, and of Appendix G where a rule has several heads.

    `rules` are (heads, body) pairs of atom indices.
    """
    plus = tau_nor * rho_0 * sigma(tau_s / 2)
    minus = tau_nor * rho_0 * sigma(-tau_s / 2)
    theta = []
    for i in range(M):
        sizes = [len(set(heads)) for heads, _ in rules if i in heads]
        if not sizes:
            theta.append(2 * plus)
        else:
            theta.append((max(plus / m for m in sizes) + sum(minus / m for m in sizes)) / 2)
    return Parameters(
        eta=[[eta if i in body else -eta for i in range(M)] for _, body in rules],
        psi=[[Psi if i in heads else 0.0 for i in range(M)] for heads, _ in rules],
        b=[len(set(body)) - 0.5 for _, body in rules],
        tau=[tau_s] * len(rules),
        rho=[rho_0] * len(rules),
        theta=theta,
        tau_nor=tau_nor,
        beta=beta,
        bump=bump,
    )
