"""The figures that the paper prints, as data."""

from __future__ import annotations

from typing import NamedTuple


class PrintedGraph(NamedTuple):
    """The figures of one graph in the paper's tables and text."""

    M: int
    R: int
    rho_max: int
    t_conv: int  # Table 1
    accuracy: tuple[float, ...]  # Table 3, at each of SIGMAS
    bound: float  # Table 3's last line: RM·Φ(−4)
    sigma_max: float  # Section 7, 'theoretical estimates'
    roots: int  # single productive roots tried, Appendix F
    leaves: int  # single leaves tried, Appendix F


#: Table 3's levels of noise on the body logits.
SIGMAS = (1.0, 1.5, 2.0, 2.5, 3.0)
#: The levels of noise on the head logits in Appendix E.
HEAD_SIGMAS = (1.0, 2.0, 3.0, 4.0)
PERTURBATIONS = 3
EXAMPLES = 500
TRAJECTORIES = 50
EDGE_CASES = 33

GAMMA_PLUS = 4.687
GAMMA_MINUS = 0.0316
WALL_TIME = 39.8  # seconds for G4, phases A to E, on an A100

GRAPHS = {
    "g1": PrintedGraph(33, 32, 2, 30, (1.0, 1.0, 1.0, 1.0, 1.0), 0.033, 3.03, 1, 1),
    "g2": PrintedGraph(57, 60, 3, 31, (1.0, 1.0, 1.0, 1.0, 0.730), 0.108, 2.86, 1, 5),
    "g3": PrintedGraph(117, 132, 8, 32, (1.0, 1.0, 1.0, 0.750, 0.088), 0.489, 2.70, 2, 5),
    "g4": PrintedGraph(504, 648, 16, 32, (1.0, 1.0, 1.0, 0.183, 0.015), 10.3, 2.38, 5, 5),
}
