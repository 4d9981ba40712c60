"""No claim is found that is wrong: about a minute of the search.

`python tests/adversary/search.py --seconds 7200` goes on for hours.
"""

import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import latentgamma as lg
from reference import every_fact_set

sys.path.insert(0, str(Path(__file__).parent))

from cases import KINDS
from pairs import others, random_rules, renamed
from search import OTHERS, finding, run

#: How many cases of each kind, and how many claims must be made among them at least.
COUNTS = {
    "random": (100, 35),
    "trained": (40, 10),
    "extreme": (120, 15),
    "subnormal": (60, 10),
    "kernel": (10, 3),
    "long_sum": (12, 3),
    "pairs": (60, 150),
    "slow_strata": (40, 8),
    "runs": (60, 80),
    "tolerances": (10, 4),
    "layers": (15, 15),
}


def wrong_claims(kind: str, cases: int, least: int, **options: bool) -> dict[int, list[str]]:
    """The findings among the first cases of a kind."""
    outcomes = {seed: finding(kind, seed, **options) for seed in range(cases)}
    # The draw must put the certificate to the test, or this shows nothing.
    assert sum(outcome.held for outcome in outcomes.values()) >= least
    return {seed: outcome.wrong for seed, outcome in outcomes.items() if outcome.wrong}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_no_claim_is_wrong(kind: str) -> None:
    assert wrong_claims(kind, *COUNTS[kind]) == {}


@pytest.mark.quick_first
@pytest.mark.parametrize("kind", OTHERS)
def test_no_claim_is_wrong_in_a_few_cases(kind: str) -> None:
    assert wrong_claims(kind, 2, 0) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "extreme", "subnormal"])
def test_no_model_at_the_edge_of_its_certificate_is_wrong(kind: str) -> None:
    assert wrong_claims(kind, 10, 0, edge=True) == {}


@pytest.mark.slow
def test_oracles_are_certified_against_their_own_program_written_otherwise() -> None:
    """Other orders of rules and atoms, and other names for both the model and the program."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        program = random_rules(rng)
        names = {name: f"b{i}" for i, name in enumerate(rng.permutation(program.atoms).tolist())}
        model = lg.oracle(lg.parse(str(renamed(program, names))))
        level = program.levels() or {}
        longest = program.closures(every_fact_set(len(level)))[1].max()
        for difference, other in itertools.islice(others(rng, program), 3):
            found = lg.certify(model, lg.parse(str(renamed(other, names))))
            assert found.holds, f"{difference}: {found}\n{program}"
            assert longest <= found.depth * len(set(level.values()))  # so many in each stratum


@pytest.mark.slow
def test_a_wrong_certificate_would_be_found(monkeypatch) -> None:
    """If a certificate without any leak were taken for proved, the search would find models that are wrong."""
    certify = lg.certify

    def without_leaks(*args: object, **options: object) -> lg.operator.Certificate:
        found = certify(*args, **options)
        proved = math.isfinite(found.t_min) and found.status is not lg.operator.Status.DIFFERS
        return replace(found, t_max=1e6, status=lg.operator.Status.HOLDS) if proved else found

    monkeypatch.setattr(lg, "certify", without_leaks)
    wrong = [
        run(KINDS["random"](np.random.default_rng(seed)), np.random.default_rng(seed)).wrong
        for seed in range(40)
    ]
    assert any(wrong)
