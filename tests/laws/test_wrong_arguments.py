"""A wrong argument gets the library's own exception, which says what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import latentgamma as lg

RULES = "b :- a."
PROGRAM = lg.parse(RULES)
PLANES = lg.logic.pack([[True, False]])
READ_ONLY = PLANES.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: lg.logic.step(RULES, "a"),
            lg.errors.ProgramError,
            "step takes a Program, not str; make one",
        ),
        (
            lambda: lg.closure(RULES, "a"),
            lg.errors.ProgramError,
            r"closure takes .* lg\.parse\(text\)",
        ),
        (lambda: lg.closures(RULES, [["a"]]), lg.errors.ProgramError, "closures takes a Program"),
        (
            lambda: lg.logic.depth_bound(None),
            lg.errors.ProgramError,
            "takes a Program, not NoneType$",
        ),
        (
            lambda: lg.derivation(RULES, "a", "b"),
            lg.errors.ProgramError,
            "derivation takes a Program",
        ),
        (lambda: lg.derivations(RULES, "a"), lg.errors.ProgramError, "derivations takes a Program"),
        (lambda: lg.why_not(RULES, "a", "b"), lg.errors.ProgramError, "why_not takes a Program"),
        (
            lambda: lg.equivalent(PROGRAM, RULES),
            lg.errors.ProgramError,
            "equivalent takes a Program",
        ),
        (
            lambda: lg.oracle(RULES),
            lg.errors.ProgramError,
            "oracle takes a Program, not str; make one",
        ),
        (
            lambda: lg.certify(PROGRAM, PROGRAM),
            lg.errors.ModelError,
            "takes a model, .* the first is a Program",
        ),
        (
            lambda: lg.certify(lg.oracle(PROGRAM), RULES),
            lg.errors.ProgramError,
            "certify takes a Program",
        ),
        (lambda: lg.save(RULES, "x.lp"), lg.errors.ProgramError, "save takes a Program"),
        (lambda: lg.parse(3), lg.errors.ProgramError, "parse reads a string of rules, not int"),
        (lambda: lg.load(3), lg.errors.ProgramError, "load takes a path, not int"),
        (
            lambda: lg.closures(PROGRAM, [], threads=0),
            lg.errors.ArgumentError,
            "threads must be a whole number from 1 on, not 0",
        ),
        (
            lambda: lg.closures(PROGRAM, [], threads="2"),
            lg.errors.ArgumentError,
            "threads must be a whole",
        ),
        (
            lambda: lg.closures(PROGRAM, [], threads=1.5),
            lg.errors.ArgumentError,
            "threads must be a whole",
        ),
        (
            lambda: lg.logic.pack([[1, 0], [1]]),
            lg.errors.ArgumentError,
            "pack takes an array: .*inhomog",
        ),
        (
            lambda: lg.logic.pack(torch.zeros(2, 2, requires_grad=True)),
            lg.errors.ArgumentError,
            "pack takes an array: .*detach",
        ),
        (
            lambda: lg.logic.unpack(PLANES, 3.0),
            lg.errors.ArgumentError,
            r"N must be a whole .*, not 3\.0",
        ),
        (
            lambda: lg.logic.unpack(PLANES, -1),
            lg.errors.ArgumentError,
            "N must be a whole number from 0 on, not -1",
        ),
        (lambda: lg.logic.unpack(PLANES, 65), lg.errors.ArgumentError, "N is at most 64"),
        (
            lambda: lg.logic.unpack(torch.zeros(2, 1, dtype=torch.int64), 1),
            lg.errors.ArgumentError,
            r"not int64 .* planes\.cpu\(\)\.numpy\(\)\.view\('uint64'\)",
        ),
        (
            lambda: lg.logic.random_planes([0.5], 10.0),
            lg.errors.ArgumentError,
            "N must be a whole number",
        ),
        (
            lambda: lg.logic.random_planes([0.5], 10, seed=None),
            lg.errors.ArgumentError,
            "seed must be a whole",
        ),
        (
            lambda: lg.logic.random_planes([0.5], 10, start=64.0),
            lg.errors.ArgumentError,
            "start must be a whole",
        ),
        (
            lambda: lg.logic.random_planes([0.5], 10, start=2**70),
            lg.errors.ArgumentError,
            "start is a multiple",
        ),
        (
            lambda: lg.logic.random_planes(["a"], 10),
            lg.errors.ArgumentError,
            "probabilities are numbers",
        ),
        (
            lambda: lg.closures(PROGRAM, PLANES, packed=True, out=READ_ONLY),
            lg.errors.ArgumentError,
            "out is read-only",
        ),
        (
            lambda: lg.oracle(PROGRAM, "paper"),
            lg.errors.ArgumentError,
            r"constants must be Constants, for example Constants\.paper\(\), not 'paper'",
        ),
        (
            lambda: lg.Constants.closed_form(PROGRAM, -1.0),
            lg.errors.ArgumentError,
            "hardness must be a positive number, not -1",
        ),
        (
            lambda: lg.operator.Homotopy(steps=3).at(-1),
            lg.errors.ArgumentError,
            "step must be a whole number from 0 on, not -1",
        ),
        (
            lambda: lg.oracle(PROGRAM).names([0.0, 1.0]),
            lg.errors.StateError,
            "a state is a tensor, not list",
        ),
        (
            lambda: lg.oracle(PROGRAM).names(torch.zeros(2, 3)),
            lg.errors.FactsError,
            r"has shape \(2,\), not \(3,\)",
        ),
        (
            lambda: lg.plot.check_path("x.nothing"),
            lg.errors.ArgumentError,
            "cannot write a picture",
        ),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_saved_model_or_layer_is_not_loaded_to_a_wrong_device(
    device: str, tmp_path: Path
) -> None:
    saved: list[Any] = [lg.oracle(PROGRAM), alarm()]
    for number, module in enumerate(saved):
        module.save(tmp_path / str(number))
        with pytest.raises(lg.errors.ArgumentError, match=f"device '{device}' cannot be used"):
            type(module).load(tmp_path / str(number), device=device)


def test_every_exception_is_in_one_tree() -> None:
    errors = [getattr(lg.errors, name) for name in dir(lg.errors) if name.endswith("Error")]
    assert len(errors) == 11
    assert all(issubclass(error, lg.LatentGammaError) for error in errors)


PENGUINS = lg.parse("bird :- penguin. animal :- bird.")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lg.parse("rules.lp"), r"the text ends; to read a file, use lg\.load"),
        (lambda: lg.parse("bird :- penguin"), r"the text ends$"),
        (lambda: PENGUINS.names(lg.logic.step(PENGUINS, ["penguin"])), "this is a set already"),
        (
            lambda: lg.certify(PENGUINS, lg.oracle(PENGUINS)),
            "and then a program; the first is a Pr",
        ),
        (lambda: lg.certify(alarm(), PENGUINS), r"a Layer; for a layer, use layer\.certified"),
        (
            lambda: alarm().explain(torch.zeros(3, 2)),
            r"one example: .* have the shape \(2,\) here, not \(3, 2\)",
        ),
    ],
)
def test_mistakes_of_newcomers(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(lg.LatentGammaError) as caught:
        call()
    assert re.search(message, str(caught.value).splitlines()[0])


def alarm() -> lg.Layer:
    return lg.Layer(lg.parse("alarm :- smoke, heat."), ["smoke", "heat"], "alarm")


def test_one_example_is_explained() -> None:
    assert "alarm is true" in str(alarm().explain(torch.tensor([0.9, 0.8])))
