"""The model as a PyTorch citizen: files, copies, dtypes, optimisers, compilers, transforms."""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from latentgamma import Constants, LatentGamma, Program, generators, oracle, parse
from latentgamma.errors import ModelError
from latentgamma.operator import files as serialization
from latentgamma.operator.model import GROUPS
from random_models import FORMS, GATES, RUNS, random_model, random_states
from random_programs import random_program

every_form = pytest.mark.parametrize("form", FORMS)


# ------------------------------------------------------------------------ files


class TestFile:
    @every_form
    @pytest.mark.parametrize("gate", GATES)
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    def test_a_model_comes_back_bit_by_bit(
        self, form: str, gate: str, dtype: torch.dtype, tmp_path: Path
    ) -> None:
        model = random_model(random_program(1), form=form, gate=gate, seed=1, dtype=dtype)
        model.gradient = "proof"
        model.save(tmp_path / "model.safetensors")
        back = LatentGamma.load(tmp_path / "model.safetensors")
        assert back.program == model.program
        assert (back.gate_kind, back.gradient, back.dtype) == (gate, "proof", dtype)
        assert type(back.rules) is type(model.rules)
        ours, theirs = model.state_dict(), back.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        state = random_states(model, 3, seed=1)
        assert torch.equal(model(state, 4), back(state, 4))
        assert [*tmp_path.iterdir()] == [tmp_path / "model.safetensors"]

    def test_what_was_certified_still_is(self, tmp_path: Path) -> None:
        model = oracle(generators.g1())
        model.save(tmp_path / "g1")
        assert LatentGamma.load(tmp_path / "g1").certificate() == model.certificate()

    def test_every_name_comes_back(self, tmp_path: Path) -> None:
        names = ["a\nb", "", "ünïcødé 🐧", "\ud800", "x" * 1000, "a,b", "\x00"]
        names = [name or "p(X, 'q r')" for name in names]
        program = Program.from_rules([(names[0], names[1:3]), (names[3:], [])], atoms=names)
        oracle(program, Constants.paper()).save(tmp_path / "m")
        assert LatentGamma.load(tmp_path / "m").program == program

    @pytest.mark.parametrize("program", [Program.from_rules([]), Program.from_rules([], ["a"])])
    def test_almost_nothing(self, program: Program, tmp_path: Path) -> None:
        oracle(program, form="sparse").save(tmp_path / "m")
        assert LatentGamma.load(tmp_path / "m").program == program

    def test_a_model_without_a_program(self, tmp_path: Path) -> None:
        model = random_model(random_program(2))
        model.program = None
        model.save(tmp_path / "m")
        assert LatentGamma.load(tmp_path / "m").program is None

    def test_many_rules(self, tmp_path: Path) -> None:
        program = generators.random(30_000, 60_000, body=3, seed=0)
        model = oracle(program, Constants.scaled(program))
        model.save(tmp_path / "m")
        back = LatentGamma.load(str(tmp_path / "m"), device="cpu")
        assert back.program == program
        assert all(map(torch.equal, model.parameters(), back.parameters()))

    def test_there_is_no_code_in_it(self, tmp_path: Path) -> None:
        oracle(parse("b :- a.")).save(tmp_path / "m")
        with safe_open(tmp_path / "m", framework="pt") as file:
            metadata = file.metadata()
        assert metadata["format"] == "latentgamma-model"
        assert json.loads(metadata["options"])["form"] == "dense"

    def test_a_failed_save_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "m"
        model = oracle(parse("b :- a."))
        model.save(path)
        before = path.read_bytes()
        model.rules = nn.Identity()  # type: ignore[assignment]
        with pytest.raises(ModelError, match="dense or sparse rules, not Identity"):
            model.save(path)
        assert path.read_bytes() == before


def other_file(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path)


def change(
    path: Path, *, form: str = "sparse", edit: Callable[[dict[str, Tensor]], Any] | None = None,
    metadata: dict[str, str] | None = None, options: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write a model whose tensors or metadata someone has tampered with."""
    oracle(parse("c :- a, b. d :- c."), form=form).save(path)  # type: ignore[arg-type]
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found = file.metadata()
    if edit is not None:
        edit(tensors)
    if options is not None:
        found["options"] = json.dumps(json.loads(found["options"]) | options)
    found |= metadata or {}
    # As whoever writes such a file on purpose would do.
    save_file(tensors, path, found | {"digest": serialization._digest(tensors, found)})


def put(name: str, value: Tensor) -> Callable[[dict[str, Tensor]], Any]:
    return lambda tensors: tensors.update({name: value})


def at(name: str, place: int, value: float) -> Callable[[dict[str, Tensor]], Any]:
    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[name].view(-1)[place] = value

    return edit


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"format": "elsewhere"}}, "does not hold a LatentGamma model"),
        (
            {"metadata": {"version": "99"}},
            "has version 99, but this release reads version 1",
        ),
        ({"metadata": {"options": "{"}}, "options of this model file cannot be read"),
        ({"metadata": {"options": "[1]"}}, "options of this model file cannot be read"),
        ({"options": {"form": "sharded"}}, "form must be one of 'dense', 'sparse'"),
        ({"options": {"gate": "relu"}}, "gate must be one of"),
        ({"options": {"gradient": 3}}, "gradient must be one of"),
        ({"options": {"kernel": "gpu"}}, "kernel must be one of"),
        ({"options": {"dtype": "int8"}}, "dtype must be one of"),
        ({"options": {"program": "yes"}}, "options of this model file cannot be read"),
        ({"options": {"extra": 1}}, "options of this model file cannot be read"),
        ({"options": {"form": "dense"}}, "tensors 'rules.body_atom', .* do not belong"),
        ({"options": {"program": False}}, "tensors 'program.body_indices', .* do not belong"),
        ({"edit": lambda t: t.pop("offset")}, "the tensors 'offset' are missing"),
        ({"edit": lambda t: t.pop("program.names")}, "the tensors 'program.names' are missing"),
        ({"edit": put("more", torch.zeros(1))}, "the tensors 'more' do not belong"),
        ({"edit": put("threshold", torch.zeros(3))}, "has the shape .*, which does not fit"),
        ({"edit": put("offset", torch.zeros(4, 1))}, "'offset' has the shape"),
        ({"edit": put("gain_raw", torch.zeros(1))}, "'gain_raw' has the shape"),
        ({"edit": put("rules.body_logits", torch.zeros(9))}, "'rules.body_\\w+' has the shape"),
        ({"edit": put("offset", torch.zeros(4).half())}, "'offset' is torch.float16"),
        ({"edit": put("gate_raw", torch.tensor(1.0).double())}, "'gate_raw' is torch.float64"),
        ({"edit": put("rules.head_atom", torch.zeros(2))}, "'rules.head_atom' is torch.float32"),
        ({"edit": at("offset", 0, float("nan"))}, "'offset' holds a NaN or an infinity"),
        ({"edit": at("rules.body_logits", 1, float("inf"))}, "holds a NaN or an infinity"),
        ({"edit": at("rules.body_atom", 0, 4)}, "'rules.body_atom' has an index outside 0…3"),
        ({"edit": at("rules.head_rule", 0, -1)}, "'rules.head_rule' has an index outside 0…1"),
        ({"edit": put("rules.body_atom", torch.tensor([1, 1, 0]))}, "same atom twice in its body"),
        ({"edit": at("program.body_indices", 0, 9)}, "the program does not fit: .*atom index 9"),
        ({"edit": at("program.body_indptr", 1, 7)}, "the program does not fit: body_indptr"),
        ({"edit": at("program.name_ends", 3, 99)}, "names of the atoms cannot be read"),
        ({"edit": at("program.name_ends", 0, 3)}, "names of the atoms cannot be read"),
        ({"edit": at("program.names", 0, 255)}, "the program does not fit: .*decode"),
        ({"edit": at("program.names", 0, ord("d"))}, "the program does not fit: .*twice"),
        ({"form": "dense", "edit": put("rules.body_logits", torch.zeros(2, 3))}, "which does not"),
        ({"form": "dense", "options": {"form": "sparse"}}, "are missing"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    change(path, **changes)
    with pytest.raises(ModelError, match=message) as caught:
        LatentGamma.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.quick_first
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_flipped_bit_is_refused(form: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    oracle(parse("c :- a, b. d :- c."), form=form).save(path)  # type: ignore[arg-type]
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, 8 * len(content), 500).tolist():
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(ModelError):
            LatentGamma.load(path)
    path.write_bytes(content)
    assert LatentGamma.load(path).program == parse("c :- a, b. d :- c.")


def test_the_choice_of_a_kernel_comes_back(tmp_path: Path) -> None:
    oracle(parse("b :- a."), kernel="reference").save(tmp_path / "m")
    assert LatentGamma.load(tmp_path / "m").kernel == "reference"


def test_what_is_no_model_file(tmp_path: Path) -> None:
    path = tmp_path / "m"
    for content in (b"", b"\x00" * 100, pickle.dumps({"a": 1}), b"b :- a."):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="this is not a safetensors file"):
            LatentGamma.load(path)
    torch.save({"offset": torch.zeros(3)}, path)
    with pytest.raises(ModelError, match="this is not a safetensors file"):
        LatentGamma.load(path)
    other_file(path)
    with pytest.raises(ModelError, match="does not hold a LatentGamma model"):
        LatentGamma.load(path)
    with pytest.raises(ModelError, match="nowhere: cannot read a model: there is no such file"):
        LatentGamma.load(tmp_path / "nowhere")


# ------------------------------------------------------------------------ copies


@every_form
class TestCopies:
    def test_a_state_dict_round_trip(self, form: str) -> None:
        program = random_program(3)
        model, other = (random_model(program, form=form, seed=seed) for seed in (3, 4))
        state = random_states(model, 2, seed=3)
        assert not torch.equal(model(state, 3), other(state, 3))
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert torch.equal(model(state, 3), other(state, 3))

    def test_a_deep_copy_is_on_its_own(self, form: str) -> None:
        model = random_model(random_program(3), form=form, seed=3)
        state = random_states(model, 2, seed=3)
        before = model(state, 3)
        twin = copy.deepcopy(model)
        assert torch.equal(twin(state, 3), before)
        assert twin.program == model.program
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(0.5)
        assert torch.equal(model(state, 3), before)
        assert not torch.equal(twin(state, 3), before)

    def test_it_can_be_pickled(self, form: str) -> None:
        model = random_model(random_program(3), form=form, seed=3)
        back = pickle.loads(pickle.dumps(model))
        state = random_states(model, 2, seed=3)
        assert torch.equal(model(state, 3), back(state, 3))
        assert back.program == model.program

    def test_it_prints_on_a_few_lines(self, form: str) -> None:
        model = random_model(random_program(3), form=form)
        assert "M=6, R=8, gate=sigmoid, gradient=exact" in repr(model)


@every_form
def test_values_of_another_program_are_refused(form: Any) -> None:
    model = oracle(parse("b :- a. c :- b."), form=form)
    other = oracle(Program.from_rules([("b", ["a"]), ("c", ["a"])], "bac"), form=form)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ModelError, match="these values belong to another program"):
        model.load_state_dict(other.state_dict())
    assert all(map(torch.equal, before, model.parameters()))
    # Without a program there is nothing to compare, but literals of the sparse form.
    model.program = None
    if form == "dense":
        model.load_state_dict(other.state_dict())
    else:
        with pytest.raises(RuntimeError, match="these values belong to another program"):
            model.load_state_dict(other.state_dict())
    old = {key: x for key, x in model.state_dict().items() if key != "_extra_state"}
    model.load_state_dict(old)


# ------------------------------------------------------------------------ dtypes


@every_form
class TestMoves:
    def test_dtypes_change_as_a_user_expects(self, form: str) -> None:
        model = oracle(parse("c :- a, b."), form=form)
        for move, states, parameters in (
            (model.double, torch.float64, torch.float64),
            (model.half, torch.float16, torch.float64),
            (model.float, torch.float32, torch.float32),
            (model.bfloat16, torch.bfloat16, torch.float32),
            (lambda: model.to("cpu"), torch.bfloat16, torch.float32),  # a move is no cast
            (lambda: model.to(torch.float64), torch.float64, torch.float64),
            (lambda: model.to(torch.zeros(1).half()), torch.float16, torch.float64),
        ):
            assert move() is model
            assert model.dtype == states == model.state(["a"]).dtype
            assert {p.dtype for p in model.parameters()} == {parameters}
            assert model.closure(["a", "b"]) == {"a", "b", "c"}

    def test_inside_another_module(self, form: str) -> None:
        model = oracle(parse("c :- a, b."), form=form)
        network = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), model)
        assert network(torch.randn(2, 4)).shape == (2, 3)
        network.double()
        assert network(torch.randn(2, 4).double()).dtype == torch.float64
        network.bfloat16()
        assert network(torch.randn(2, 4).bfloat16()).dtype == torch.bfloat16
        assert {name.split(".")[0] for name, _ in network.named_parameters()} == {"0", "2"}

    def test_eight_bits_are_refused(self, form: str) -> None:
        model = oracle(parse("c :- a, b."), form=form)
        with pytest.raises(ModelError, match=r"so it has no torch\.float8_e5m2 form"):
            model.to(torch.float8_e5m2)
        assert model.dtype == torch.float32

    def test_the_default_device_and_dtype(self, form: str) -> None:
        with torch.device("meta"):
            assert oracle(parse("b :- a."), form=form).offset.is_meta
            assert not oracle(parse("b :- a."), form=form, device="cpu").offset.is_meta
        assert oracle(parse("b :- a."), form=form).dtype == torch.get_default_dtype()


@every_form
@pytest.mark.parametrize("kind", ["autocast", "precision"])
def test_what_is_set_around_it_does_not_cost_digits(form: str, kind: str) -> None:
    model = random_model(random_program(5), form=form, seed=5, dtype=torch.float32)
    state = random_states(model, 40, seed=5)
    expected = model(state, 3)
    before = torch.get_float32_matmul_precision()
    try:
        if kind == "precision":
            torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            found = model(state, 3)
    finally:
        torch.set_float32_matmul_precision(before)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


# ------------------------------------------------------------------------ optimisers


@every_form
class TestTraining:
    def test_groups_are_all_parameters(self, form: str) -> None:
        model = random_model(random_program(3), form=form)
        found = [id(p) for name in GROUPS for p in model.group(name)]
        assert sorted(found) == sorted(id(p) for p in model.parameters())

    def test_trainable_chooses_groups(self, form: str) -> None:
        model = random_model(random_program(3), form=form)
        assert model.trainable("body", "threshold") is model
        names = {name for name, p in model.named_parameters() if p.requires_grad}
        expected = {"rules.body_logits", "threshold"}
        assert names == expected | ({"rules.body_background"} if form != "dense" else set())
        model.trainable(*GROUPS)
        assert all(p.requires_grad for p in model.parameters())

    @pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
    @pytest.mark.parametrize("gate", GATES)
    def test_wild_steps_stay_in_the_domain(
        self, form: str, gate: str, optimiser: type[torch.optim.Optimizer]
    ) -> None:
        for sign in (-1, 1):
            model = random_model(
                random_program(3), form=form, gate=gate, seed=3, dtype=torch.float32
            )
            steps = optimiser(model.parameters(), lr=1e3)  # type: ignore[call-arg]
            state = random_states(model, 8, seed=3)
            for _ in range(12):
                steps.zero_grad()
                after = model(state, 3)
                (sign * after.sum()).backward()
                steps.step()
                assert after.isfinite().all()
                assert ((after >= state) & (after <= 1)).all()
                assert all(p.isfinite().all() for p in model.parameters())
                assert (model.sharpness > 0).all()
                assert ((model.confidence > 0) & (model.confidence < 1)).all()
                assert model.gain > 0
                assert model.gate > 1

    def test_a_change_that_autograd_does_not_see_is_seen(self, form: str) -> None:
        model = oracle(generators.chain(400), form=form)  # type: ignore[arg-type]
        state = model.state([0])
        with torch.no_grad():
            assert model(state, 3)[3] > 0.5
            for parameter in model.group("gain"):
                parameter.data.clamp_(max=-9.0)  # the idiom for projecting parameters
            assert model(state, 3)[3] < 0.5

    def test_a_few_tame_steps_learn_something(self, form: str) -> None:
        model = random_model(random_program(3), form=form, seed=3)
        steps = torch.optim.Adam(model.parameters(), lr=0.05)
        state = random_states(model, 16, seed=3)
        target = (state[:, [0]] > 0.5).double().expand_as(state)
        losses = []
        for _ in range(40):
            steps.zero_grad()
            loss = (model(state, 2) - target).square().mean()
            loss.backward()
            steps.step()
            losses.append(loss.item())
        assert losses[-1] < 0.8 * losses[0]


# ------------------------------------------------------------------------ determinism


@pytest.fixture
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.quick_first
@pytest.mark.usefixtures("_four_threads")
@pytest.mark.parametrize("form", RUNS)
@pytest.mark.parametrize("gradient", ["exact", "proof"])
def test_two_runs_agree_to_the_last_bit(form: str, gradient: str) -> None:
    # Large enough for torch to share the work between threads.
    atoms, rules = (300, 400) if form == "dense" else (3_000, 40_000)
    program = generators.random(atoms, rules, body=3, seed=0)
    model = random_model(program, form=form, gradient=gradient, seed=0, dtype=torch.float32)
    state = random_states(model, 4, seed=0).requires_grad_()
    runs = []
    for _ in range(2):
        after = model(state, 3)
        runs.append([after, *torch.autograd.grad(after.sum(), [state, *model.parameters()])])
    assert all(map(torch.equal, *runs))


# ------------------------------------------------------------------------ torch.func

# torch's own forward-mode derivatives still call a part of torch that it has deprecated.
forward_mode = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@every_form
@pytest.mark.parametrize("gradient", ["exact", "proof"])
class TestFunc:
    def make(self, form: str, gradient: str) -> tuple[LatentGamma, Tensor]:
        model = random_model(random_program(5), form=form, gradient=gradient, seed=5)
        return model, random_states(model, 4, seed=5)

    def test_vmap(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        mapped = vmap(lambda one: model(one, 3))(state)
        torch.testing.assert_close(mapped, model(state, 3), rtol=0, atol=1e-14)
        leaf = state.clone().requires_grad_()
        (found,) = torch.autograd.grad(vmap(lambda one: model(one, 3))(leaf).sum(), leaf)
        (expected,) = torch.autograd.grad(model(leaf, 3).sum(), leaf)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)

    def test_grad(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        leaf = state.clone().requires_grad_()
        (expected,) = torch.autograd.grad(model(leaf, 3).sum(), leaf)
        for found in (
            grad(lambda batch: model(batch, 3).sum())(state),
            vmap(grad(lambda one: model(one, 3).sum()))(state),
        ):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)

    def test_grad_in_the_parameters(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        parameters = dict(model.named_parameters())
        found = grad(lambda p: functional_call(model, p, (state, 3)).sum())(parameters)
        model(state, 3).sum().backward()
        for name, parameter in parameters.items():
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-10, atol=1e-13)

    @forward_mode
    def test_forward_mode(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        one = state[0].clamp(0.05, 0.95)
        backward = jacrev(lambda s: model(s, 3))(one)
        torch.testing.assert_close(jacfwd(lambda s: model(s, 3))(one), backward, atol=1e-13, rtol=0)
        move = torch.linspace(-1, 1, model.M, dtype=torch.float64)
        value, tangent = jvp(lambda s: model(s, 3), (one,), (move,))
        assert torch.equal(value, model(one, 3))
        torch.testing.assert_close(tangent, backward @ move, atol=1e-13, rtol=0)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(one, move)
            found = torch.autograd.forward_ad.unpack_dual(model(dual, 3)).tangent
        torch.testing.assert_close(found, tangent, atol=1e-13, rtol=0)

    @forward_mode
    def test_hessian(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        found = hessian(lambda s: model(s, 2).square().sum())(state[0])
        leaf = state[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(leaf, 2).square().sum(), leaf, create_graph=True)
        rows = [torch.autograd.grad(part, leaf, retain_graph=True)[0] for part in slope]
        torch.testing.assert_close(found, torch.stack(rows), rtol=1e-10, atol=1e-12)

    def test_inside_a_transform_of_something_else(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        total = model(state, 3).sum()
        factor = torch.tensor(2.0, dtype=torch.float64)
        slope = grad(lambda x: x * model(state, 3).sum())(factor)
        torch.testing.assert_close(slope, total)
        mapped = vmap(lambda x: x * model(state, 3).sum())(torch.ones(3, dtype=torch.float64))
        torch.testing.assert_close(mapped, total.expand(3))

    def test_an_ensemble(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        members = {
            name: torch.stack([p.detach(), p.detach() + 0.1])
            for name, p in model.named_parameters()
        }

        def run(parameters: dict[str, Tensor]) -> Tensor:
            return functional_call(model, parameters, (state, 3))

        both = vmap(run)(members)
        torch.testing.assert_close(both[0], model(state, 3), rtol=0, atol=1e-13)
        assert not torch.allclose(both[0], both[1])

    def test_steps_none_is_refused(self, form: str, gradient: str) -> None:
        model, state = self.make(form, gradient)
        with pytest.raises(ModelError, match=r"steps=None looks at the values.*pass steps="):
            vmap(model)(state)


# ------------------------------------------------------------------------ compile and export


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "backend", "gate", "gradient"),
    [
        ("sparse", "aot_eager", "sigmoid", "exact"),
        ("sparse", "eager", "bump", "proof"),
        ("dense", "aot_eager", "bump", "exact"),
        ("dense", "eager", "sigmoid", "proof"),
    ],
)
def test_compile(form: str, backend: str, gate: str, gradient: str) -> None:
    model = random_model(random_program(6), form=form, gate=gate, gradient=gradient, seed=6)
    state = random_states(model, 3, seed=6).requires_grad_()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    found, expected = compiled(state, 2), model(state, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    inputs = [state, *model.parameters()]
    slopes = zip(
        torch.autograd.grad(found.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        strict=True,
    )
    for one, other in slopes:
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


# torch's compiler looks at .grad of what comes out of the part it does not compile.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compile_without_a_number_of_steps() -> None:
    model = oracle(generators.chain(6))
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(model.state([[0], [3]])), model(model.state([[0], [3]])))


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("form", "gate", "gradient"),
    [("sparse", "bump", "exact"), ("sparse", "sigmoid", "proof"), ("dense", "sigmoid", "exact")],
)
def test_export(form: str, gate: str, gradient: str) -> None:
    model = random_model(random_program(6), form=form, gate=gate, gradient=gradient, seed=6)
    state = random_states(model, 3, seed=6)
    shapes = {"state": {0: torch.export.Dim("batch")}, "steps": None}
    with torch.no_grad():
        program = torch.export.export(model, (state, 2), dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    back = torch.export.load(buffer).module()
    other = random_states(model, 7, seed=7)
    torch.testing.assert_close(back(other, 2), model(other, 2), rtol=0, atol=1e-14)


def test_export_needs_a_number_of_steps() -> None:
    model = oracle(generators.chain(4))
    with pytest.raises(Exception, match=r"steps=None looks at the values.*pass steps="):
        torch.export.export(model, (model.state([0]),))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("form", "gate"), [("sparse", "bump"), ("dense", "sigmoid")])
def test_onnx(form: str, gate: str) -> None:
    pytest.importorskip("onnxscript")
    reference = pytest.importorskip("onnx.reference")
    model = random_model(random_program(6), form=form, gate=gate, seed=6, dtype=torch.float32)
    state = random_states(model, 3, seed=6)
    shapes = {"state": {0: torch.export.Dim("batch")}, "steps": None}
    with torch.no_grad():
        exported = torch.onnx.export(
            model.eval(), (state, 2), dynamo=True, verbose=False, dynamic_shapes=shapes
        )
        assert exported is not None
        run = reference.ReferenceEvaluator(exported.model_proto)
        other = random_states(model, 5, seed=7)
        (found,) = run.run(None, {run.input_names[0]: other.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), model(other, 2), rtol=0, atol=2e-6)
