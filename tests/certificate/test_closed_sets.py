"""The maximal closed sets without an atom, against the definition."""

import networkx as nx
import numpy as np
import pytest

import latentgamma as lg
from latentgamma.certificate import closed_sets
from latentgamma.certificate.closed_sets import Complements, maximal_closed_sets
from latentgamma.generators import (
    clique,
    g1,
    ladder,
)
from latentgamma.program.program import Program
from random_programs import random_program
from reference import every_fact_set


def closed(program: Program) -> np.ndarray:
    """All closed sets. (N, M)."""
    facts = every_fact_set(program.M)
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


@pytest.mark.slow
def test_too_many_of_them_are_not_listed(monkeypatch) -> None:
    assert len(maximal_closed_sets(g1())) > 5000
    assert maximal_closed_sets(g1(), most=5000) is None
    assert maximal_closed_sets(ladder(10, 7)) is None
    assert maximal_closed_sets(clique(40)).shape == (1, 40)
    maximal_closed_sets.cache_clear()
    monkeypatch.setattr(closed_sets, "MOST_ATOMS", 40)
    assert maximal_closed_sets(clique(40)) is not None
    maximal_closed_sets.cache_clear()
    monkeypatch.setattr(closed_sets, "MOST_ATOMS", 39)
    assert maximal_closed_sets(clique(40)) is None


def test_each_limit_of_the_search_ends_it(monkeypatch) -> None:
    # h is missing with any one of five: as many sets, after one look at each of the five, one at
    # h, and one at each of its sets.
    program = Program.from_rules([("h", [f"b{i}" for i in range(5)])])
    every = len(by_definition(program))
    assert len(maximal_closed_sets(program, every)) == every
    assert maximal_closed_sets(program, every - 1) is None
    for limit, enough in (("_MOST_SETS", 11), ("_MOST_COMPARED", 5)):
        for most in (enough, enough - 1):
            maximal_closed_sets.cache_clear()
            with monkeypatch.context() as patch:
                patch.setattr(closed_sets, limit, most)
                assert (maximal_closed_sets(program) is None) == (most < enough), limit
    maximal_closed_sets.cache_clear()


def test_the_sets_are_shared_and_cannot_be_changed() -> None:
    sets = maximal_closed_sets(clique(4))
    assert maximal_closed_sets(clique(4)) is sets
    assert not sets.flags.writeable


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_the_cycles_of_rules_with_one_body_atom(seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = int(rng.integers(2, 10))
    program = random_program(rng, M, int(rng.integers(1, 3 * M)), body=2)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(M))
    for rule in program.rules:
        if len(rule.body) == 1:
            graph.add_edges_from(
                (program.index[b], program.index[h]) for b in rule.body for h in rule.heads
            )
    group = list(range(M))
    for cycle in nx.strongly_connected_components(graph):
        for i in cycle:
            group[i] = min(cycle)
    assert Complements(program).group == group
