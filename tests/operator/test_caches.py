"""No answer outlives the parameters that it was computed from, however these are changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

import latentgamma as lg
from latentgamma.operator.kernels import interface

PROGRAM = lg.parse("bird :- penguin. animal :- bird. flies :- bird, wings.")
HIGH = 1e3  # an offset that no evidence reaches


def _raise_in_place(model: lg.LatentGamma) -> None:
    with torch.no_grad():
        model.offset += HIGH


def _copy(model: lg.LatentGamma) -> None:
    with torch.no_grad():
        model.offset.copy_(model.offset + HIGH)


def _write_data(model: lg.LatentGamma) -> None:
    model.offset.data.fill_(HIGH)


def _write_to_numpy(model: lg.LatentGamma) -> None:
    model.offset.detach().numpy()[:] = HIGH


def _replace_data(model: lg.LatentGamma) -> None:
    model.offset.data = model.offset.data + HIGH


def _new_parameter(model: lg.LatentGamma) -> None:
    model.offset = nn.Parameter(model.offset.detach() + HIGH)


def _optimiser(model: lg.LatentGamma) -> None:
    model.offset.grad = torch.full_like(model.offset, -HIGH)
    torch.optim.SGD([model.offset], lr=1.0).step()
    model.offset.grad = None


def _load_state_dict(model: lg.LatentGamma) -> None:
    values = {name: value.clone() for name, value in model.state_dict().items()}
    values["offset"] += HIGH
    model.load_state_dict(values)


def _assign_state_dict(model: lg.LatentGamma) -> None:
    values = {name: value.clone() for name, value in model.state_dict().items()}
    values["offset"] += HIGH
    model.load_state_dict(values, assign=True)


WAYS: list[Callable[[lg.LatentGamma], None]] = [
    _raise_in_place,
    _copy,
    _write_data,
    _write_to_numpy,
    _replace_data,
    _new_parameter,
    _optimiser,
    _load_state_dict,
    _assign_state_dict,
]


def answers(model: lg.LatentGamma) -> dict[str, Any]:
    """Everything that a model says, in each of the ways in which it computes."""
    state = model.state([["penguin", "wings"], ["wings"]])
    found: dict[str, Any] = {}
    with torch.no_grad():
        found["no gradients"] = model(state, 3)
        found["log-odds"] = model(state, 3, logits=True)
        found["one step"] = model.step(state)
        found["every state"] = model.iterate(state, 3).final
    with torch.inference_mode():
        found["inference mode"] = model(state, 3)
    found["gradients"] = model(state, 3).detach()
    found["sixteen bits"] = model(state.bfloat16(), 3).detach()
    with model.fixed():
        found["fixed"] = model(state, 3).detach()
    found["certificate"] = model.certificate().holds
    return found


@pytest.mark.parametrize("change", WAYS, ids=lambda way: way.__name__[1:])
@pytest.mark.parametrize("form", ["dense", "sparse", "kernel"])
def test_every_answer_follows_a_parameter(
    form: Any, change: Callable[[lg.LatentGamma], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "kernel":
        monkeypatch.setattr(interface, "LEAST_SIZE", 0)
        form = "sparse"
    model = lg.oracle(PROGRAM, form=form)
    before = answers(model)
    assert before["certificate"]
    assert model.closure(["penguin"]) == {"penguin", "bird", "animal"}
    again = answers(model)
    assert all(_same(before[name], again[name]) for name in before)  # what is kept is what was said
    change(model)
    after = answers(model)
    unchanged = [name for name in before if _same(before[name], after[name])]
    assert not unchanged
    state = model.state(["penguin", "wings"])
    for name in ("no gradients", "fixed", "gradients"):  # nothing but the facts is true now
        assert torch.equal(after[name][0] > 0.5, state > 0.5), name
    with pytest.raises(lg.errors.CertificateError, match="certified window"):
        model(state)
    with pytest.raises(lg.errors.CertificateError, match="certified window"):
        model.closure(["penguin"])


@pytest.mark.parametrize("kernel", [False, True])
def test_every_answer_follows_the_literals(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel:
        monkeypatch.setattr(interface, "LEAST_SIZE", 0)
    model = lg.oracle(PROGRAM, form="sparse")
    before = answers(model)
    model.rules.body_atom.data.fill_(PROGRAM.index["flies"])  # no version counter sees this
    after = answers(model)
    assert not [name for name in before if _same(before[name], after[name])]


class _Scaled(nn.Module):
    """A parametrization with a number that is not a parameter."""

    factor = 1.0

    def forward(self, values: Tensor) -> Tensor:
        return values * self.factor


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_every_answer_follows_a_parametrization(form: Any) -> None:
    model = lg.oracle(PROGRAM, form=form)
    scaled = _Scaled()
    for module, name in ((model, "offset"), (model.rules, "body_logits")):
        scaled.factor = 1.0
        parametrize.register_parametrization(module, name, scaled, unsafe=True)
        before = answers(model)
        assert before["certificate"]
        scaled.factor = -50.0
        after = answers(model)
        assert not [key for key in before if _same(before[key], after[key])]
        assert not after["certificate"]
        parametrize.remove_parametrizations(module, name, leave_parametrized=False)


@pytest.mark.parametrize("text", [str(PROGRAM), "b :- a. c :- not b."])
def test_a_file_is_not_written_without_a_computed_parameter(text: str, tmp_path: Path) -> None:
    program = lg.parse(text)
    model = lg.oracle(program)
    layer = lg.Layer(
        program, inputs=program.atoms[:1], outputs=program.atoms[1:], semantics="gamma"
    )
    path = tmp_path / "model.safetensors"
    for saved in (model, layer):
        part = next(m for m in saved.modules() if hasattr(m, "threshold"))
        prune.identity(part, "threshold")
        with pytest.raises(lg.errors.ModelError, match=r"'threshold' is computed.*prune.remove"):
            saved.save(path)
        prune.remove(part, "threshold")
        parametrize.register_parametrization(part, "threshold", _Scaled(), unsafe=True)
        with pytest.raises(lg.errors.ModelError, match=r"first call parametrize\.remove_param"):
            saved.save(path)
        assert not path.exists()
        parametrize.remove_parametrizations(part, "threshold")
        saved.save(path)
        type(saved).load(path)
        path.unlink()


@pytest.mark.parametrize("text", [str(PROGRAM), "b :- a. c :- not b."])
def test_a_pruned_model_is_not_certified_until_the_pruning_is_permanent(text: str) -> None:
    program = lg.parse(text)
    model = lg.oracle(program)
    part = model.parts[0]
    assert model.certificate().holds
    for module, name in ((part, "offset"), (part.rules, "head_logits")):
        prune.identity(module, name)
        for prove in (model.certificate, lambda: lg.certify(model, program)):
            with pytest.raises(lg.errors.ModelError, match=f"'{name}' is computed.*prune.remove"):
                prove()
        prune.remove(module, name)
        assert model.certificate().holds
    values = part.offset.detach().clone()
    del part.offset
    part.offset = values  # a tensor that is no parameter
    state = model.state([[]])
    with torch.no_grad():
        before = model(state, 3)
        values.fill_(HIGH if text == str(PROGRAM) else -HIGH)
        assert not torch.equal(model(state, 3), before)
    with pytest.raises(lg.errors.ModelError, match="nothing is proved"):
        model.certificate()


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else one == other


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_every_answer_follows_the_dtype(form: Any) -> None:
    model = lg.oracle(PROGRAM, form=form)
    answers(model)
    model.double()
    fresh = lg.oracle(PROGRAM, form=form).double()
    for name, found in answers(fresh).items():
        assert _same(answers(model)[name], found)
    assert answers(model)["no gradients"].dtype == torch.float64
    assert model.certificate().dtype == "float64"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_answer_follows_the_device() -> None:
    model = lg.oracle(PROGRAM)
    before = answers(model)
    model.to("cuda")
    after = answers(model)
    assert all(_close(after[name], before[name]) for name in before)
    _raise_in_place(model)
    assert not any(_close(answers(model)[name], before[name]) for name in before)


def _close(one: Any, other: Any) -> bool:
    return torch.allclose(one.cpu(), other, atol=1e-5) if isinstance(one, Tensor) else one == other


def layer_of(semantics: Any) -> lg.Layer:
    return lg.Layer(
        PROGRAM,
        inputs={"x": ["penguin", "wings"]},
        outputs={"y": ["animal", "flies"]},
        semantics=semantics,
    )


@pytest.fixture(scope="module")
def gamma_layer() -> lg.Layer:
    return layer_of("gamma")


@pytest.mark.quick_first
@pytest.mark.parametrize("change", WAYS, ids=lambda way: way.__name__[1:])
def test_a_layer_follows_the_parameters_of_its_operator(
    gamma_layer: lg.Layer, change: Callable[[lg.LatentGamma], None]
) -> None:
    layer = copy.deepcopy(gamma_layer)
    given = torch.tensor([[0.99, 0.99], [0.01, 0.99]])
    first = {training: layer.train(training)(given) for training in (True, False)}
    for training, found in first.items():
        assert torch.equal(layer.train(training)(given), found)
    assert layer.rules.certificate.holds
    assert layer.covers(given).all()
    for model in (layer.rules.model, layer.rules.annealed):
        change(model)
    for training, found in first.items():
        assert not torch.equal(layer.train(training)(given), found)
    assert not layer.rules.certificate.holds
    assert not layer.covers(given).any()


@pytest.mark.parametrize("semantics", ["godel", "gamma"])
def test_a_layer_in_training_follows_its_temperature(semantics: Any, gamma_layer: lg.Layer) -> None:
    layer = layer_of("godel") if semantics == "godel" else copy.deepcopy(gamma_layer)
    given = torch.tensor([[0.7, 0.6]])
    layer.train()
    layer.temperature = 1.0
    warm = layer(given)
    layer.temperature = 0.01
    assert not torch.equal(warm, layer(given))
