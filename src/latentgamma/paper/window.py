"""The window of the paper's Theorem 6.1, as printed. It needs no torch: `latentgamma certify` shows it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from latentgamma.certificate.bounds import sigmoid
from latentgamma.certificate.constants import Constants
from latentgamma.program.program import Program, require_definite


@dataclass(frozen=True)
class PaperWindow:
    """The window that Theorem 6.1 of the paper claims for a program; `certify` computes what holds.

    Its window starts at D and ends at `t_max`. `docs/paper.md` lists where either end fails.

    >>> from latentgamma import parse
    >>> window = paper_window(parse("bird :- penguin. animal :- bird."))
    >>> window.star_holds, window.evidence > 0
    (True, True)
    """

    gamma_plus: float  # γ⁺ of a satisfied rule
    gamma_minus: float  # γ⁻ of an unsatisfied one
    c_max: float  # the worst leak a step, equation (6)
    t_max: float  # ⌊log 2 / c_max⌋, equation (7)
    star: float  # 4 k M e^{−η}, which assumption (★) wants at most 1
    star_holds: bool  # that, and ρ_max ≤ 100
    match_on: float  # Lemma 6.3: a satisfied body is at least this active
    match_off: float  # Lemma 6.3: an unsatisfied one at most this
    evidence: float  # Lemma 6.4: φ is at least this, or at most minus this
    sink_leak: float  # Lemma 6.5: a sink leaks at most this a step

    def to_dict(self) -> dict[str, Any]:
        """Return the window as plain values, for JSON."""
        return asdict(self)


def paper_window(program: Program, constants: Constants | None = None) -> PaperWindow:
    """Return the window that the paper's main theorem promises for a program.

    >>> from latentgamma import parse
    >>> paper_window(parse("a :- b. b :- a.")).t_max
    969400.0

    Args:
        program: a definite program.
        constants: the constants of the model; by default `Constants.paper()`.

    Returns:
        The end of the window and the quantities of the proof. `certify` computes what holds.

    Raises:
        ProgramError: if this is not a definite program.
    """
    program = require_definite(program, "paper_window")
    c = Constants.paper() if constants is None else constants
    plus, minus = c.gamma_plus, c.gamma_minus
    evidence = (plus - program.rho_max * minus) / 2
    through, gate, off = sigmoid(-np.array([evidence, c.gate * evidence, c.sharpness / 2])).tolist()
    leak = through * gate
    star = 4 * program.k * program.M * math.exp(-c.body)
    return PaperWindow(
        gamma_plus=plus,
        gamma_minus=minus,
        c_max=leak,
        t_max=float(math.floor(math.log(2) / leak)) if leak > 1e-300 else math.inf,
        star=star,
        star_holds=star <= 1 and program.rho_max <= 100,
        match_on=1 - off,
        match_off=off,
        evidence=evidence,
        sink_leak=3.4e-25,
    )
