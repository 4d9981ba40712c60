"""Files of models keep the labels, the conditions and the counts of their programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import latentgamma as lg


@pytest.mark.parametrize("negation", ["", ", not c"])
def test_a_loaded_model_has_the_program_with_its_labels(tmp_path: Path, negation: str) -> None:
    program = lg.parse(f"% @rule R1: Art. 1\na :- 2 {{ b; age < 18; d }}{negation}.\n:- a, c.")
    lg.oracle(program).save(tmp_path / "model.safetensors")
    model = lg.LatentGamma.load(tmp_path / "model.safetensors")
    assert model.program == program
    assert model.program.labels[0] == lg.logic.Label("R1", "Art. 1")
    assert str(model.program) == str(program)
