"""Learning from other people's data: networks, tables and triples that nobody made for it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

import latentgamma as lg

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
datasets = pytest.importorskip("datasets")
learn_real = pytest.importorskip("learn_real")
TABLES = [*sorted(path.stem for path in datasets.CONTEXTS.glob("*.cxt")), "tealady"]


def row(function, *arguments):
    """A row of the benchmark, or a skip that says what to install."""
    try:
        return function(*arguments)
    except datasets.MissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", TABLES)
def test_the_rows_of_a_table_tell_what_every_set_implies(name: str) -> None:
    found = row(learn_real.context, name)
    assert found["all right"]
    assert found["certified"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["symbolic", "gradient"])
@pytest.mark.parametrize(
    "name", ["cana: yeast_cell_cycle", "cana: Lac Operon", "neet: s_cerevisiae", "neet: myeloid"]
)
def test_half_of_the_transitions_tell_all_of_a_network(name: str, method: str) -> None:
    found = row(learn_real.boolean_network, name, method, (20,))
    assert found["unseen lines"] == 0
    assert found["all right"]
    assert found["rules"] == found["of them prime"] == str(found["primes there are"])
    assert found["certified"]


def test_the_prime_implicants_are_those_of_enumeration() -> None:
    rng = np.random.default_rng(3)
    lines = datasets.lines_of_table(4)
    nodes = list("abcd")
    for _ in range(20):
        table = {line: bool(rng.random() < 0.5) for line in lines}
        network = datasets.Network(nodes, [[0, 1, 2, 3]], [table])
        found = learn_real.prime_implicants(network, 0, True)

        def holds(cube, table=table):
            return all(
                table[line]
                for line in lines
                if all(
                    datasets.literal(n, v) in cube or n not in named(cube)
                    for n, v in zip(nodes, line, strict=True)
                )
            )

        def named(cube):
            return {atom.removeprefix("not ") for atom in cube}

        for cube in found:
            assert holds(cube)
            assert not any(holds(cube - {atom}) for atom in cube)
        covered = {
            line
            for line in lines
            if any(
                cube <= {datasets.literal(n, v) for n, v in zip(nodes, line, strict=True)}
                for cube in found
            )
        }
        assert covered == {line for line in lines if table[line]}


@pytest.mark.slow
def test_chains_of_relations_are_found_with_their_true_support() -> None:
    found = row(learn_real.chains, "UMLS")
    assert found["counts agree"]
    assert found["isa∘isa ⇒ isa"] == "367 of 367"


ROWS = np.array([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]], bool)  # a → b → c


def test_from_models_alone_all_rules_are_found() -> None:
    result = lg.fit(ROWS, kind="models", atoms=list("abcd"), holdout=0)
    assert {"b :- a.", "c :- b."} <= {str(rule) for rule in result.program.rules}
    assert result.certificate.holds
    account = {str(one.rule): one for one in result.evidence}
    assert (account["c :- b."].support, account["c :- b."].confidence) == (2, 1.0)
    # c and d are in no row together, so everything follows from them.
    assert lg.closure(result.program, ["c", "d"]).atoms == set("abcd")
    assert "everything follows" in result.notes[0]
    every = lg.fit([[1, 0], [1, 1]], kind="models", atoms=["a", "b"], holdout=0)
    assert [str(rule) for rule in every.program.rules] == ["a."]


def test_rows_kept_aside_measure_what_models_teach() -> None:
    program = lg.generators.random(8, 10, seed=1)
    rows = np.unique(lg.closures(program, np.arange(256)[:, None] >> np.arange(8) & 1 == 1), axis=0)
    result = lg.fit(rows, kind="models", atoms=program.atoms, holdout=0.2)
    assert result.accuracy is not None
    assert 0.5 < result.accuracy < 1  # not every row is what others have in common
    whole = lg.fit(rows, kind="models", atoms=program.atoms)
    assert whole.accuracy is None
    assert lg.equivalent(whole.program, program)


def test_known_rules_hold_in_models() -> None:
    known = lg.parse("c :- a.")
    result = lg.fit(ROWS, kind="models", atoms=list("abcd"), known=known, holdout=0)
    assert "c :- a." in {str(rule) for rule in result.program.rules}
    with pytest.raises(lg.errors.DataError, match=r"known rule 'a :- b\.' is wrong in 1 of the 2"):
        lg.fit(ROWS, kind="models", atoms=list("abcd"), known=lg.parse("a :- b."), holdout=0)
    refined = lg.fit(
        ROWS, kind="models", atoms=list("abcd"), known=lg.parse("a :- b."), refine=True, holdout=0
    )
    assert refined.program == lg.fit(ROWS, kind="models", atoms=list("abcd"), holdout=0).program


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.1}, "without noise"),
        ({"method": "gradient"}, 'method="symbolic"'),
        ({"heads": ["a"]}, "leave out columns"),
        ({"max_body": 2}, "leave out columns"),
        ({"targets": ROWS}, "pass them alone"),
    ],
)
def test_what_models_cannot_tell_is_refused(options, message: str) -> None:
    with pytest.raises((lg.errors.ArgumentError, lg.errors.DataError), match=message):
        lg.fit(ROWS, **{"kind": "models", "atoms": list("abcd"), **options})


@pytest.mark.slow
def test_a_case_that_takes_too_long_is_stopped_and_the_next_one_runs() -> None:
    limited = pytest.importorskip("limited").Limited
    with limited() as call:
        with pytest.raises(TimeoutError):
            call(time.sleep, 60, seconds=0.2)
        assert call(abs, -3, seconds=60) == 3
