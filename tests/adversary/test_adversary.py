"""No model is found that is certified and wrong: about a minute of the search.

`python tests/adversary/search.py --seconds 7200` goes on for hours.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases import KINDS
from search import finding, run

pytestmark = pytest.mark.slow

#: How many cases of each kind, and how many windows there must be among them at least.
COUNTS = {
    "random": (100, 35),
    "trained": (40, 10),
    "extreme": (120, 15),
    "subnormal": (60, 10),
    "kernel": (10, 3),
    "long_sum": (12, 3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_certified_model_is_wrong(kind: str) -> None:
    cases, least = COUNTS[kind]
    outcomes = {seed: finding(kind, seed) for seed in range(cases)}
    assert [seed for seed, outcome in outcomes.items() if outcome.wrong] == []
    # The draw must put the certificate to the test, or this shows nothing.
    assert sum(outcome.held for outcome in outcomes.values()) >= least


@pytest.mark.parametrize("kind", ["random", "extreme", "subnormal"])
def test_no_model_at_the_edge_of_its_certificate_is_wrong(kind: str) -> None:
    outcomes = {seed: finding(kind, seed, edge=True) for seed in range(10)}
    assert [seed for seed, outcome in outcomes.items() if outcome.wrong] == []


def test_a_wrong_certificate_would_be_found(monkeypatch) -> None:
    """With the leaks of all but the first steps left out, the search finds models that are wrong."""
    import latentgamma._certificate.window as module
    from latentgamma._certificate.upper_end import UpperEnd

    monkeypatch.setattr(
        module, "upper_end", lambda *_, **__: UpperEnd(1e6, 0.0, None, [(0.0, 0.0)], np.zeros(1))
    )
    wrong = [
        run(KINDS["random"](np.random.default_rng(seed)), np.random.default_rng(seed)).wrong
        for seed in range(40)
    ]
    assert sum(count > 0 for count in wrong) > 3
