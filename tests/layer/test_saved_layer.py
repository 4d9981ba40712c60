"""Layers in files, and which examples a layer's guarantee covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import latentgamma as lg

RULES = "% @rule R1: Policy 2\nalarm :- smoke, heat.\nalarm :- button, not quiet.  call :- alarm."
OPTIONS: list[dict[str, Any]] = [
    {},
    {"from_logits": True, "temperature": 0.25},
    {"facts": {"quiet": 0.2}},
    {"semantics": "gamma", "tolerance": 0.2},
    {"semantics": "probability", "inference": lg.Inference(method="table", seed=3)},
    {"semantics": "probability", "evidence": {"call": True}},
]


def layer_with(options: dict[str, Any]) -> lg.Layer:
    inputs = ["smoke", "heat", "button"] + ["quiet"] * ("facts" not in options)
    return lg.Layer(lg.parse(RULES), inputs, {"all": ["alarm", "call"], "one": "alarm"}, **options)


@pytest.mark.quick_first
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("training", [False, True])
def test_a_layer_comes_back_bit_by_bit(
    options: dict[str, Any], training: bool, tmp_path: Path
) -> None:
    layer = layer_with(options).train(training)
    path = tmp_path / "layer.safetensors"
    layer.save(path)
    back = lg.Layer.load(path)
    assert back.program == layer.program
    assert back.program.labels == layer.program.labels
    assert (back.training, back.temperature) == (training, layer.temperature)
    x = torch.rand(5, layer.inputs[0].shape[0], generator=torch.Generator().manual_seed(0))
    given, again = layer(x), back(x)
    assert given.keys() == again.keys()
    for name in given:
        assert torch.equal(given[name], again[name])
        assert given[name].shape == again[name].shape
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
def test_a_gamma_layer_comes_back_in_its_dtype(
    dtype: torch.dtype, training: bool, tmp_path: Path
) -> None:
    program = lg.parse("c :- a, b.")
    layer = lg.Layer(program, ["a", "b"], "c", semantics="gamma", temperature=0.3)
    layer.to(dtype).train(training).save(tmp_path / "layer")
    back = lg.Layer.load(tmp_path / "layer")
    x = torch.rand(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(layer(x), back(x))
    assert str(layer.certificate) == str(back.certificate)


def test_groups_keep_their_names_shapes_and_kinds(tmp_path: Path) -> None:
    program = lg.parse("even :- d(0). even :- d(2). odd :- d(1).")
    digit = lg.Categorical(["d(0)", "d(1)", "d(2)"])
    layer = lg.Layer(
        program, {"digit": digit}, np.array([["even", "odd"]]), semantics="probability"
    )
    layer.save(tmp_path / "layer")
    back = lg.Layer.load(tmp_path / "layer")
    x = torch.softmax(torch.randn(4, 3), 1)
    assert torch.equal(layer({"digit": x}), back({"digit": x}))
    assert back({"digit": x}).shape == (4, 1, 2)
    assert back.inputs[0].categorical


@pytest.mark.slow
def test_a_changed_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "layer.safetensors"
    layer_with({"semantics": "gamma"}).save(path)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    tensors["given"][0] += 1
    save_file(tensors, path, metadata)
    with pytest.raises(lg.errors.ModelError, match="damaged: its digest"):
        lg.Layer.load(path)
    lg.oracle(lg.parse("b :- a.")).save(path)
    with pytest.raises(lg.errors.ModelError, match="does not hold a LatentGamma layer"):
        lg.Layer.load(path)
    with pytest.raises(lg.errors.ProgramError, match="a model or a layer, not a program"):
        lg.load(path)


@pytest.mark.slow
def test_covers_is_true_exactly_outside_the_tolerance() -> None:
    program = lg.parse("c :- a, not b.")
    layer = lg.Layer(program, ["a", "b"], "c", semantics="gamma", tolerance=0.25)
    values = torch.tensor([[0.75, 0.25], [1.0, 0.0], [0.74, 0.0], [1.0, 0.26], [0.5, 0.5]])
    assert layer.covers(values).tolist() == [True, True, False, False, False]
    logits = lg.Layer(program, ["a", "b"], "c", semantics="gamma", tolerance=0.25, from_logits=True)
    assert logits.covers(torch.logit(values)).tolist() == [True, True, False, False, False]
    for one in (layer, logits):
        x = torch.logit(values) if one.from_logits else values
        right = (values[:, 0] > 0.5) & (values[:, 1] < 0.5)
        covered = layer.covers(values)
        assert torch.equal((one.eval()(x) > 0.5)[covered], right[covered])
    assert lg.Layer(program, ["a", "b"], "c").covers(values).all()


@pytest.mark.quick_first
@pytest.mark.parametrize("semantics", ["godel", "gamma", "probability"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_boolean_and_whole_facts(semantics: Any, dtype: torch.dtype) -> None:
    layer = lg.Layer(lg.parse("c :- a, b."), ["a", "b"], "c", semantics=semantics).eval()
    facts = torch.tensor([[1, 1], [1, 0], [0, 0]])
    assert (layer(facts.to(dtype)) > 0.5).tolist() == [True, False, False]


@pytest.mark.quick_first
@pytest.mark.parametrize("semantics", ["godel", "gamma", "probability"])
def test_more_batch_dimensions(semantics: Any) -> None:
    layer = lg.Layer(lg.parse("c :- a, b."), ["a", "b"], "c", semantics=semantics).eval()
    x = torch.rand(2, 3, 4, 2)
    found = layer(x)
    assert found.shape == (2, 3, 4)
    assert torch.equal(found.flatten(), layer(x.reshape(-1, 2)))
    assert torch.equal(layer.covers(x).flatten(), layer.covers(x.reshape(-1, 2)))
    assert layer.covers(x).shape == (2, 3, 4)
    assert torch.equal(layer.evaluate(x), found[..., None])
    assert layer.evaluate(x[:0]).shape == (0, 3, 4, 1)
    if semantics == "probability":
        assert torch.equal(layer.estimate(x)[0], found)
        flat = layer.posterior(x.reshape(-1, 2), "c")
        assert torch.equal(layer.posterior(x, "c"), flat.reshape(x.shape))


def test_each_kind_of_file_names_the_function_that_reads_it(tmp_path: Path) -> None:
    program = lg.parse("c :- a, b.")
    layer, model = tmp_path / "layer.safetensors", tmp_path / "model.safetensors"
    lg.Layer(program, ["a", "b"], "c").save(layer)
    lg.oracle(program).save(model)
    with pytest.raises(
        lg.errors.ModelError, match=r"hold a LatentGamma model; use lg\.Layer\.load"
    ):
        lg.LatentGamma.load(layer)
    with pytest.raises(
        lg.errors.ModelError, match=r"a LatentGamma layer; use lg\.LatentGamma\.load"
    ):
        lg.Layer.load(model)
    with pytest.raises(lg.errors.ProgramError, match=r"use LatentGamma\.load or Layer\.load"):
        lg.load(layer)
