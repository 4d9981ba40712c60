"""The experiments: each phase finds what there is to find, repeats, and goes to JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.paper import validation
from latentgamma.paper.bounds import perturb
from latentgamma.paper.results import (
    GRAPHS,
    SIGMAS,
    Validation,
    to_json,
)
from latentgamma.paper.validation import Setup, _accuracy, state_of
from small_validation import small

# ------------------------------------------------------------------ all of it


@pytest.mark.slow
def test_everything_that_must_hold_does() -> None:
    results, timing = small()
    assert results.holds
    assert [phase for phase, _ in timing.phases] == list("ABCDEFG")
    assert 0 < sum(wall for _, wall in timing.phases) <= timing.wall
    assert timing.peak_memory > 0  # of the process, other tests included


@pytest.mark.slow
def test_results_go_to_json_and_back() -> None:
    results, timing = small()
    text = results.to_json()
    assert Validation.from_json(text) == results
    assert Validation.from_json(text).to_json() == text
    assert str(timing.wall) not in text


@pytest.mark.slow
def test_a_seed_gives_the_same_results_bit_for_bit_whatever_else_is_run() -> None:
    # g1 alone against g1 beside g2: other jobs, other workers, the same numbers.
    alone, _ = validation.run_validation(("g1",))
    both, _ = small()

    def of_g1(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: of_g1(item) for key, item in value.items() if key != "graphs"}
        if isinstance(value, list):
            return [of_g1(item) for item in value if not _of_another(item)]
        return value

    def _of_another(item: Any) -> bool:
        return isinstance(item, dict) and item.get("graph", "g1") != "g1"

    def fields(results: Validation) -> str:
        data = json.loads(results.to_json())
        del data["digest"]
        return json.dumps(of_g1(data))

    assert fields(alone) == fields(both)


def test_another_seed_draws_other_graphs_and_fact_sets() -> None:
    zero, one = Setup().case("g2", 500), Setup(seed=1).case("g2", 500)
    assert zero.program != one.program
    assert not np.array_equal(zero.facts, one.facts)
    assert {int(n) for n in zero.facts.sum(-1)} == set(range(2, 9))
    assert np.array_equal(zero.closures, lg.closures(zero.program, zero.facts))


@pytest.mark.parametrize(
    ("graphs", "seed", "message"),
    [
        (("g5",), 0, r"graphs must be some of g1, g2, g3, g4, each once, not \('g5',\)"),
        ((), 0, "graphs must be some of"),
        (("g1", "g1"), 0, "each once"),
        (("g1",), -1, "seed must be a whole number from 0 on, not -1"),
        (("g1",), 0.5, "seed must be a whole number"),
    ],
)
def test_bad_arguments_are_refused(graphs: tuple[str, ...], seed: Any, message: str) -> None:
    with pytest.raises(lg.errors.ArgumentError, match=message):
        validation.run_validation(graphs, seed=seed)


@pytest.mark.parametrize("perturbations", [0, -1, 1.5, True])
def test_there_is_a_perturbation_at_least(perturbations: Any) -> None:
    with pytest.raises(
        lg.errors.ArgumentError, match="perturbations must be a whole number from 1 on"
    ):
        validation.run_validation(("g1",), perturbations=perturbations)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("windows"), "its digest is not that of its content"),
        (lambda data: data.update(seed="0"), "its digest is not that of its content"),
        (lambda data: data.update(digest="0"), "its digest is not that of its content"),
        (lambda data: data.pop("digest"), "its digest is not that of its content"),
        (lambda data: data["windows"][0]["bound"][0].append(3), "its digest is not that"),
        (lambda data: data["programs"][0].update(bits=float("inf")), "not finite"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change: Any, message: str) -> None:
    data = json.loads(small()[0].to_json())
    change(data)
    with pytest.raises(lg.errors.DataError, match=message):
        Validation.from_json(json.dumps(data))
    for text in ("{", "9" * 5000, "[" * 100_000):
        with pytest.raises(lg.errors.DataError, match="this is not JSON"):
            Validation.from_json(text)


@pytest.mark.slow
def test_a_file_of_another_format_is_refused() -> None:
    other = replace(small()[0], format="x").to_json()
    with pytest.raises(lg.errors.DataError, match="this file has format 'x'"):
        Validation.from_json(other)
    for changed in (small()[1], replace(small()[0], graphs=3, windows="none")):
        with pytest.raises(lg.errors.DataError, match="not have the fields of Validation"):
            Validation.from_json(to_json(changed))


# ------------------------------------------------------------------ the phases


def test_the_programs_have_the_printed_figures() -> None:
    for row in validation.programs(Setup()):
        printed = GRAPHS[row.graph]
        assert (row.M, row.R, row.k, row.rho_max) == (printed.M, printed.R, 2, printed.rho_max)
        assert row.holds
        assert not replace(row, R=row.R + 1).holds
        assert row.bits < row.bits_enough < row.bits_printed
        assert row.sparse < row.dense / 7
    paper = [row for row in validation.constants(Setup()) if row.constants == "paper"]
    assert all(row.star_holds for row in paper)
    assert {round(row.gamma_plus, 4) for row in paper} == {4.7182}


@pytest.mark.slow
def test_expressivity_counts_every_atom_of_every_example() -> None:
    rows = small()[0].expressivity
    assert [(row.graph, row.constants) for row in rows] == [
        (graph, kind) for graph in ("g1", "g2") for kind in ("paper", "certified")
    ]
    for row in rows:
        assert (row.accuracy, row.fpr, row.fnr, row.examples) == (1.0, 0.0, 0.0, 500)
        assert row.t_conv == row.depth
        assert 28 <= row.t_conv <= 36
        assert 0 < row.leak < 1e-3


def test_expressivity_sees_constants_that_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = replace(lg.Constants.paper(), sharpness=1.0)
    monkeypatch.setattr(validation, "constants_of", lambda kind, program: weak)
    found = validation.expressivity(Setup(("g1",), examples=50))
    assert not any(row.holds for row in found)
    assert all(row.accuracy < 1 and row.fpr > 0 for row in found)
    lagging = replace(lg.Constants.paper(), body=0.5)
    monkeypatch.setattr(validation, "constants_of", lambda kind, program: lagging)
    found = validation.expressivity(Setup(("g1",), examples=50))
    assert all(row.accuracy < 1 and row.t_conv == -1 for row in found)


def test_lost_examples_may_be_dropped_early() -> None:
    case = Setup().case("g2", 500)
    model = Setup().oracle(case.program, "paper")
    wanted = torch.from_numpy(case.closures)
    for seed in range(3):
        noisy = perturb(model, 3.0, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            final = noisy(state_of(case.facts, noisy), steps=validation.STEPS)
            right = int(((final > 0.5) == wanted).all(-1).sum()) / len(wanted)
            assert _accuracy(noisy, case) == right


@pytest.mark.slow
def test_robustness_is_sound_and_falls_where_it_should() -> None:
    found = small()[0].noise
    for row in found:
        for accuracy, covered, certified in zip(
            row.accuracies, row.covered, row.certified, strict=True
        ):
            assert certified or not covered
            assert accuracy == 1 or not covered
    by_key = {(row.graph, row.sigma): row for row in found if row.logits == "body"}
    assert len(by_key) == 2 * len(SIGMAS)
    assert by_key["g1", 2.5].accuracy >= 0.95
    assert by_key["g2", 3.0].accuracy < 1
    for name in ("g1", "g2"):
        assert all(by_key[name, sigma].accuracy == 1 for sigma in (1.0, 1.5, 2.0))
        assert by_key[name, 2.5].bound == pytest.approx(GRAPHS[name].bound, rel=0.02)
        # Where no sign changed and none was near it, all is proved.
        assert all(by_key[name, 1.0].certified)


@pytest.mark.slow
def test_a_wrong_model_that_is_said_to_be_proved_does_not_pass() -> None:
    row = replace(small()[0].noise[0], accuracies=(1.0, 0.998, 1.0))
    assert not row.holds
    assert replace(row, covered=(True, False, True)).holds


@pytest.mark.slow
def test_structure_counts_states_and_trajectories() -> None:
    for row in small()[0].structure:
        assert (row.rising, row.ordered, row.bounded) == (500, 500, 50)
        assert row.holds
        assert not replace(row, ordered=499).holds
        assert not replace(row, bounded=49).holds


def test_there_are_33_edge_cases_and_all_are_exact() -> None:
    found = validation.edge_cases(Setup())
    assert len(found) == 33
    assert all(row.holds for row in found)
    for name, printed in GRAPHS.items():
        rows = [row for row in found if row.graph == name]
        kinds = [row.case for row in rows]
        assert kinds.count("root") == printed.roots
        assert kinds.count("leaf") == printed.leaves
        for row in rows:
            if row.case in ("empty", "leaf"):
                assert row.closure == len(row.facts)
            else:
                assert row.closure > len(row.facts)


@pytest.mark.slow
def test_several_heads_are_all_active_and_mixed_ones_only_with_ours() -> None:
    for row in small()[0].multi_head:
        assert row.active == row.exact == row.rules == 30
        assert (row.mixed > 0.5) == (row.head_sharing == "equal")


@pytest.mark.slow
def test_what_leaks_stays_below_what_is_proved() -> None:
    for row in small()[0].windows:
        assert row.holds
        assert row.t_min == row.depth
        assert row.promised is not None
        if row.t_max is None:  # no end: nothing that is underivable ever rises above the limit
            assert row.constants == "certified"
        else:
            assert row.t_max < row.promised
        for steps, value in row.measured:
            above = min(bound for at, bound in row.bound if at >= steps)
            assert value <= above
        assert row.measured[-1][1] > 0
