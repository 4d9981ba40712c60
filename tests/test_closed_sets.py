"""The maximal closed sets without an atom, against the definition."""

import numpy as np
import pytest

import latentgamma as lg
from latentgamma._certificate import closed_sets
from latentgamma._certificate.closed_sets import Complements, maximal_closed_sets
from latentgamma._program.program import Program
from latentgamma.generators import clique, g1, ladder
from random_programs import random_program


def closed(program: Program) -> np.ndarray:
    """All closed sets. (N, M)."""
    facts = (np.arange(2**program.M)[:, None] >> np.arange(program.M) & 1).astype(bool)
    return np.unique(lg.closures(program, facts), axis=0)


def by_definition(program: Program) -> np.ndarray:
    """For each atom, the closed sets without it that no larger one without it contains."""
    found = []
    for i in range(program.M):
        without = [one for one in closed(program) if not one[i]]
        found += [
            one
            for one in without
            if not any((one <= other).all() and (one != other).any() for other in without)
        ]
    return np.unique(np.array(found, bool).reshape(-1, program.M), axis=0)


@pytest.mark.parametrize("seed", range(60))
def test_they_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = int(rng.integers(1, 8))
    program = random_program(rng, M, int(rng.integers(0, 2 * M + 2)), body=4)
    assert np.array_equal(maximal_closed_sets(program), by_definition(program))


@pytest.mark.parametrize("seed", range(40))
def test_no_fewer_atoms_are_missing_than_is_counted(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    M = int(rng.integers(1, 8))
    program = random_program(rng, M, int(rng.integers(1, 2 * M + 2)), body=3)
    search = Complements(program)
    least, every = search.least_missing(), closed(program)
    for i in range(M):
        missing = (~every[~every[:, i]]).sum(1)
        assert not len(missing) or missing.min() >= least[i]
        assert np.array_equal(every[:, i], every[:, search.group[i]])


def test_the_counts_are_exact_on_chains_and_cliques() -> None:
    chain = Program.from_rules([(f"c{i + 1}", [f"c{i}"]) for i in range(20)])
    least = dict(zip(chain.atoms, Complements(chain).least_missing().tolist(), strict=True))
    assert [least[f"c{i}"] for i in range(21)] == list(range(1, 22))
    assert Complements(clique(9)).least_missing().tolist() == [9] * 9


def test_too_many_of_them_are_not_listed(monkeypatch) -> None:
    assert len(maximal_closed_sets(g1())) > 5000
    assert maximal_closed_sets(g1(), most=5000) is None
    assert maximal_closed_sets(ladder(10, 7)) is None
    assert maximal_closed_sets(clique(40)).shape == (1, 40)
    maximal_closed_sets.cache_clear()
    monkeypatch.setattr(closed_sets, "MOST_ATOMS", 30)
    assert maximal_closed_sets(clique(40)) is None
