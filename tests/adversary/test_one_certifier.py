"""A certificate is about the program it was asked about, for every fact set and dtype.

`python tests/adversary/strata.py` and `python tests/adversary/dead_rows.py` search at full size.
"""

from __future__ import annotations

import copy
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import dead_rows
import strata
from cases import DTYPES, small, soft

import latentgamma as lg
from latentgamma.certificate import certify, parts
from reference import every_fact_set

LAYERS = lg.parse("b :- a. d :- c, not b. e :- d, not f. f :- b, not c. g :- not e, not d.")


@pytest.mark.parametrize("count", [80, pytest.param(600, marks=pytest.mark.slow)])
def test_no_model_is_certified_against_other_closures(count: int) -> None:
    tried, wrong = strata.search(count)
    assert wrong == []
    assert tried["own certified"] >= 0.99 * tried["own"] > 0


@pytest.mark.quick_first
@pytest.mark.parametrize("forgotten", ["differences", "_order_problem"])
def test_a_comparison_that_is_left_out_would_be_found(forgotten: str, monkeypatch) -> None:
    module = certify if forgotten == "differences" else parts
    answer = [] if forgotten == "differences" else None
    monkeypatch.setattr(module, forgotten, lambda *_: answer)
    for seed in range(60):
        _, wrong = strata.search(1, seed)
        if wrong:
            return
    pytest.fail("nothing was found")


@pytest.mark.slow
@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_dead_redundant_and_merged_rows_run_until_closed(count: int) -> None:
    tried, wrong = dead_rows.search(count)
    assert wrong == []
    assert tried["deeper than the program, by dtype"] > 0


def test_a_count_of_steps_under_other_rules_would_be_found(monkeypatch) -> None:
    get = lg.LatentGamma._certificate

    def under_the_program(self, dtype):
        return replace(get(self, dtype), rules=(self.program,))

    monkeypatch.setattr(lg.LatentGamma, "_certificate", under_the_program)
    assert any(dead_rows.search(1, seed)[1] for seed in range(40))


def test_the_examples_of_other_atoms_and_of_a_dead_row() -> None:
    declared = "#external a. #external b. #external c."
    model = lg.oracle(lg.parse(f"{declared} c :- a, not b."))
    other = lg.certify(model, lg.parse(f"{declared} c :- b, not a."))
    assert not other.holds
    assert other.status is lg.operator.Status.DIFFERS
    assert "'c :- b, not a.' (rule 0), which the rows do not imply" in str(other)
    with pytest.raises(lg.errors.ModelError, match="same atoms"):
        lg.certify(model, lg.parse("z :- x, not y."))
    model = lg.oracle(lg.parse("b :- a. c :- a. c :- b."))
    with torch.no_grad():
        model.confidence_raw[1] = -40.0
    assert model.certificate().holds
    assert model.closure(["a"]) == {"a", "b", "c"}


@pytest.mark.slow
def test_a_window_has_a_first_step() -> None:
    """No offset, however large, leaves a certificate that holds and starts nowhere."""
    held = 0
    for shift in (0.0, 5.0, 8.0, 20.0, 100.0):
        model = lg.oracle(LAYERS)
        with torch.no_grad():
            for part in model.parts:
                part.offset.add_(shift)
        certificate = lg.certify(model, LAYERS)
        held += certificate.holds
        if certificate.holds:
            assert math.isfinite(certificate.t_min)
            assert lg.operator.tolerance(model, LAYERS) > 0
            continue
        with pytest.raises(lg.errors.CertificateError, match=r"nothing is proved|is not shown to"):
            certificate.require()
        with pytest.raises(lg.errors.CertificateError):
            lg.operator.tolerance(model, LAYERS)
        with pytest.raises(lg.errors.CertificateError):
            model.closure(["a"])
    assert 0 < held < 5


@pytest.mark.slow
def test_steps_none_is_certified_for_the_dtype_of_the_states() -> None:
    """Whatever the model's own dtype, a state of another one is closed, or the call is refused."""
    rng = np.random.default_rng(0)
    refused = ran = others = 0
    for _ in range(40):
        program = small(rng)
        wanted = torch.from_numpy(lg.closures(program, every_fact_set(program.M)))
        model = lg.oracle(program, soft(rng), gate="bump" if rng.random() < 0.3 else "sigmoid")
        with torch.no_grad():  # atoms rise slowly, and with few digits they stop
            model.offset.mul_(float(rng.uniform(1.9, 2.6)))
        own = model.certificate()
        for dtype in DTYPES:
            state = torch.from_numpy(every_fact_set(program.M)).to(dtype)
            certificate = lg.certify(model, program, dtype=str(dtype).removeprefix("torch."))
            assert certificate.dtype == str(dtype).removeprefix("torch.")
            others += own.holds and certificate.t_min != own.t_min
            if certificate.holds:
                ran += 1
                assert torch.equal(model(state) > 0.5, wanted)
            else:
                refused += 1
                with pytest.raises(lg.errors.CertificateError, match="needs a certified window"):
                    model(state)
    assert min(ran, refused, others) > 0
    strata_model = lg.oracle(LAYERS)
    state = torch.from_numpy(every_fact_set(LAYERS.M))
    wanted = torch.from_numpy(lg.closures(LAYERS, every_fact_set(LAYERS.M)))
    for dtype in DTYPES:
        assert torch.equal(strata_model(state.to(dtype)) > 0.5, wanted)


@pytest.mark.slow
def test_certificates_of_several_dtypes_are_kept_until_a_value_changes(monkeypatch) -> None:
    count = 0

    def counted(*args, **options):
        nonlocal count
        count += 1
        return certify.certify(*args, **options)

    monkeypatch.setattr("latentgamma.operator.model.certify", counted)
    for model in (lg.oracle(lg.parse("b :- a.")), lg.oracle(LAYERS)):
        count = 0
        states = [model.state(["a"]).to(dtype) for dtype in DTYPES[:2]]
        for state in states * 3:
            model(state)
        assert count == 2
        with torch.no_grad():
            model.parts[0].offset.data.add_(1e-3)
        for state in states * 2:
            model(state)
        assert count == 4
        copy.deepcopy(model)(states[0])


@pytest.mark.parametrize("horizon", [-1, -math.inf, math.nan, math.inf])
def test_a_horizon_is_a_number_of_steps(horizon: float) -> None:
    with pytest.raises(lg.errors.ArgumentError, match="horizon must be a number of steps"):
        lg.Constants.certified(lg.parse("b :- a."), horizon)
