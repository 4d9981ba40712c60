"""What every form of the rules must do, dense, sparse or later: one contract for all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call

import paper_reference as paper
from latentgamma import LatentGamma, Program, parse
from latentgamma.errors import ModelError
from latentgamma.operator import rules as dense_rules
from latentgamma.operator import rules as stages
from latentgamma.operator.kernels import interface
from latentgamma.operator.model import require_whole_model
from latentgamma.operator.rules import Part, SparseRules, add_at, add_sorted
from random_models import (
    ALL_FORMS,
    ALL_RUNS,
    FORMS,
    GATES,
    paper_parameters,
    random_model,
    random_states,
)
from random_programs import programs, random_program

DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]
LAW = settings(deadline=None, max_examples=20, derandomize=True)
seeds = st.integers(0, 2**32 - 1)

every_form = pytest.mark.parametrize("form", ALL_FORMS)
every_run = pytest.mark.parametrize("form", ALL_RUNS)
every_gate = pytest.mark.parametrize("gate", GATES)


@pytest.fixture(autouse=True, scope="module")
def _small_programs_are_compiled_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface, "LEAST_SIZE", 0)
        yield


def gradients(model: LatentGamma, state: Tensor, steps: int) -> dict[str, Tensor]:
    """∂ of a weighted sum of the final state, in the state and in every parameter."""
    leaf = state.detach().requires_grad_()
    weight = torch.linspace(-1, 2, state.numel(), dtype=state.dtype).view(state.shape)
    inputs = {"state": leaf, **dict(model.named_parameters())}
    found = torch.autograd.grad((weight.to(leaf) * model(leaf, steps)).sum(), [*inputs.values()])
    return dict(zip(inputs, found, strict=True))


# ------------------------------------------------------------------------ value


@every_run
@every_gate
class TestValue:
    @pytest.mark.quick_first
    @LAW
    @given(program=programs(), seed=seeds)
    def test_every_stage_is_the_papers(
        self, form: str, gate: str, program: Program, seed: int
    ) -> None:
        model = random_model(program, form=form, gate=gate, seed=seed)
        state = random_states(model, seed=seed)
        reference, s = paper_parameters(model), state.tolist()
        with torch.no_grad():
            numbers = model.step_parameters()
            a = stages.match(model.rules, numbers, state)
            fired = stages.fire(numbers, a)
            phi = stages.route(model.rules, numbers, fired)
            share = stages.gate(model.gate_kind, numbers.gate, phi)
            after = stages.update(state, share)
        rho, gain = reference.rho, reference.tau_nor
        expected_a = paper.activations(reference, s)
        expected_fired = [gain * rho[j] * expected_a[j] for j in range(reference.R)]
        for found, expected in (
            (a, expected_a),
            (fired, expected_fired),
            (phi, paper.evidence(reference, s)),
            (share, paper.shares(reference, s)),
            (after, paper.step(reference, s)),
        ):
            assert found.tolist() == pytest.approx(expected, rel=0, abs=1e-12)

    @pytest.mark.parametrize("seed", range(5))
    def test_the_routing_is_the_papers(self, form: str, gate: str, seed: int) -> None:
        model = random_model(random_program(seed), form=form, gate=gate, seed=seed)
        with torch.no_grad():
            parameters = model.step_parameters()
            one_rule_each = torch.eye(model.R, dtype=torch.float64)
            routed = model.rules.route(one_rule_each, parameters)  # (R, M): row j is v_j
        expected = torch.tensor(paper.routing(paper_parameters(model)), dtype=torch.float64)
        torch.testing.assert_close(routed, expected, rtol=0, atol=1e-14)

    @pytest.mark.quick_first
    @pytest.mark.parametrize("seed", range(8))
    def test_many_steps_are_the_papers(self, form: str, gate: str, seed: int) -> None:
        model = random_model(random_program(seed), form=form, gate=gate, seed=seed)
        state = random_states(model, seed=seed)
        found = model(state, 9)
        expected = paper.run(paper_parameters(model), state.tolist(), 9)
        assert found.tolist() == pytest.approx(expected, rel=0, abs=1e-12)
        trajectory = model.iterate(state, 9)
        assert trajectory.steps == 9
        torch.testing.assert_close(trajectory.final, found, rtol=0, atol=0)

    @LAW
    @given(program=programs(), seed=seeds)
    def test_as_the_dense_form(self, form: str, gate: str, program: Program, seed: int) -> None:
        model = random_model(program, form=form, gate=gate, seed=seed)
        dense = random_model(program, form="dense", gate=gate, seed=seed)
        state = random_states(model, 3, seed=seed)
        torch.testing.assert_close(model(state, 4), dense(state, 4), rtol=0, atol=1e-13)
        numbers, twin = model.step_parameters(), dense.step_parameters()
        pairs = itertools.product(range(model.R), range(model.M))
        rule, atom = torch.tensor([*pairs], dtype=torch.int64).reshape(-1, 2).T
        whole, all_numbers = model.rules.whole(numbers)
        parts: tuple[Part, Part] = ("body", "head")
        for part in parts:
            torch.testing.assert_close(
                whole.weight_at(part, all_numbers, rule, atom),
                dense.rules.weight_at(part, twin, rule, atom),
                rtol=0,
                atol=1e-15,
            )
        torch.testing.assert_close(numbers.body_total, twin.body_total, rtol=0, atol=1e-13)


# ------------------------------------------------------------------------ gradient


@every_run
@every_gate
class TestGradient:
    def test_it_is_what_finite_differences_say(self, form: str, gate: str) -> None:
        model = random_model(random_program(3, 3, 3), form=form, gate=gate, seed=3)
        names = [name for name, _ in model.named_parameters()]
        # Away from the ends of [0, 1], which finite differences would step over.
        state = 0.1 + 0.8 * random_states(model, 2, seed=3)

        def run(state: Tensor, *parameters: Tensor) -> Tensor:
            return functional_call(model, dict(zip(names, parameters, strict=True)), (state, 2))

        inputs = [x.detach().clone().requires_grad_() for x in (state, *model.parameters())]
        assert torch.autograd.gradcheck(run, inputs)
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)

    @LAW
    @given(program=programs(), seed=seeds)
    def test_as_the_dense_form(self, form: str, gate: str, program: Program, seed: int) -> None:
        model = random_model(program, form=form, gate=gate, seed=seed)
        dense = random_model(program, form="dense", gate=gate, seed=seed)
        state = random_states(model, 2, seed=seed)
        found, expected = gradients(model, state, 3), gradients(dense, state, 3)
        for name in found.keys() & expected.keys() - {"rules.body_logits", "rules.head_logits"}:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-12)
        if form == "dense":
            return
        prefix = "local." if form == "sharded" else ""
        held = model.rules.literals()
        for part, rule, atom in (
            ("body", held.body_rule, held.body_atom),
            ("head", held.head_rule, held.head_atom),
        ):
            full = expected[f"rules.{part}_logits"]
            off = torch.ones_like(full)
            off[rule, atom] = 0
            torch.testing.assert_close(
                found[f"rules.{prefix}{part}_logits"], full[rule, atom], rtol=1e-9, atol=1e-12
            )
            # One background logit stands for all pairs off the support.
            torch.testing.assert_close(
                found[f"rules.{prefix}{part}_background"],
                (full * off).sum(1),
                rtol=1e-9,
                atol=1e-12,
            )

    @pytest.mark.parametrize("gradient", ["exact", "proof"])
    def test_it_reaches_every_parameter(self, form: str, gate: str, gradient: str) -> None:
        program = Program.from_rules([("c", ["a", "b"]), ("d", ["c"]), (("a", "d"), ["b"])])
        model = random_model(program, form=form, gate=gate, gradient=gradient, seed=1)
        model.offset.data.fill_(-0.5)  # every atom has evidence, so that no bump is flat
        found = gradients(model, random_states(model, 4, seed=1), 3)
        assert all(slope.isfinite().all() and slope.any() for slope in found.values())


# ------------------------------------------------------------------------ batches


@every_run
@pytest.mark.parametrize("gradient", ["exact", "proof"])
class TestBatch:
    @pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (0,), (2, 0, 3)])
    def test_any_leading_shape(self, form: str, gradient: str, shape: tuple[int, ...]) -> None:
        model = random_model(random_program(5), form=form, gradient=gradient, seed=5)
        state = random_states(model, *shape, seed=5).requires_grad_()
        after = model(state, 3)
        assert after.shape == state.shape
        assert model.iterate(state, 3).states.shape == (4, *state.shape)
        (slope,) = torch.autograd.grad(after.sum(), state)
        for place in itertools.product(*map(range, shape)):
            alone = state[place].detach().requires_grad_()
            torch.testing.assert_close(after[place], model(alone, 3), rtol=0, atol=1e-14)
            (expected,) = torch.autograd.grad(model(alone, 3).sum(), alone)
            torch.testing.assert_close(slope[place], expected, rtol=0, atol=1e-13)

    def test_one_example_never_changes_another(self, form: str, gradient: str) -> None:
        model = random_model(random_program(6), form=form, gradient=gradient, seed=6)
        state = random_states(model, 4, seed=6)
        other = state.clone()
        other[2] = random_states(model, seed=7)
        runs = []
        for batch in (state, other):
            leaf = batch.clone().requires_grad_()
            after = model(leaf, 3)
            (slope,) = torch.autograd.grad(after.square().sum(), leaf)
            runs.append((after, slope))
        for first, second in zip(*runs, strict=True):
            assert torch.equal(first[[0, 1, 3]], second[[0, 1, 3]])
            assert not torch.equal(first[2], second[2])


# ------------------------------------------------------------------------ dtype and device


@every_run
@every_gate
@pytest.mark.parametrize("device", DEVICES)
class TestDtype:
    @pytest.mark.parametrize(
        ("dtype", "tolerance"),
        [
            (torch.float64, 1e-12),
            (torch.float32, 2e-6),
            (torch.float16, 5e-3),
            (torch.bfloat16, 4e-2),
        ],
    )
    def test_the_state_decides(
        self, form: str, gate: str, device: str, dtype: torch.dtype, tolerance: float
    ) -> None:
        program = random_program(8)
        reference = random_model(program, form=form, gate=gate, seed=8)
        wide = random_states(reference, 3, seed=8).to(dtype)
        expected = reference(wide.double(), 3)
        for model in (reference, random_model(program, form=form, gate=gate, seed=8, dtype=dtype)):
            model.to(device)
            state = wide.to(device).requires_grad_()
            after = model(state, 3)
            assert after.dtype == dtype
            assert after.device == state.device
            (slope,) = torch.autograd.grad(after.sum(), state)
            assert slope.dtype == dtype
            torch.testing.assert_close(after.double().cpu(), expected, rtol=0, atol=tolerance)

    def test_the_model_decides_what_it_makes(self, form: str, gate: str, device: str) -> None:
        model = random_model(random_program(9), form=form, gate=gate, dtype=torch.float32)
        model.to(device).bfloat16()
        state = model.state([["a0"], []])
        assert state.dtype == model.dtype == torch.bfloat16
        assert state.device.type == device
        # Sixteen bits are for states: parameters keep theirs.
        assert {p.dtype for p in model.parameters()} == {torch.float32}


# ------------------------------------------------------------------------ the paper's section 5


@every_run
@every_gate
class TestStructure:
    @LAW
    @given(
        program=programs(),
        seed=seeds,
        dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
        spread=st.sampled_from([0.5, 3.0, 30.0]),
    )
    def test_never_decreasing_and_bounded_by_one(
        self, form: str, gate: str, program: Program, seed: int, dtype: torch.dtype, spread: float
    ) -> None:  # Lemma 5.1 and Proposition 5.2, without any tolerance
        model = random_model(program, form=form, gate=gate, seed=seed, spread=spread, dtype=dtype)
        states = model.iterate(random_states(model, 3, seed=seed), 6).states
        assert (states[1:] >= states[:-1]).all()
        assert (states <= 1).all()

    @pytest.mark.quick_first
    @LAW
    @given(program=programs(), seed=seeds)
    def test_monotone_in_the_state(
        self, form: str, gate: str, program: Program, seed: int
    ) -> None:  # Proposition 5.4
        model = random_model(program, form=form, gate=gate, seed=seed)
        low = random_states(model, 4, seed=seed)
        high = low + (1 - low) * random_states(model, 4, seed=seed ^ 1)
        assert (model(low, 1) <= model(high, 1) + 1e-13).all()
        assert (model(low, 5) <= model(high, 5) + 1e-13).all()

    @pytest.mark.quick_first
    @pytest.mark.parametrize("seed", range(2))
    def test_runs_converge_to_a_fixed_point(
        self, form: str, gate: str, seed: int
    ) -> None:  # Theorem 5.3
        model = random_model(random_program(seed), form=form, gate=gate, seed=seed)
        if gate == "sigmoid":  # otherwise the last atoms creep up for millions of steps
            model.offset.data.clamp_(max=0)
        else:  # away from the gate's edge, where a bump is slower than any sigmoid
            model.offset.data.copy_(torch.tensor([-1.0, 40.0, -1.0, 40.0, -1.0, 40.0]))
        with torch.no_grad():
            limit = model(random_states(model, 4, seed=seed), 3000)
            assert torch.equal(model.step(limit), limit)
        at_one = limit > 1 - 1e-12
        assert at_one.all() == (gate == "sigmoid")

    @pytest.mark.quick_first
    @LAW
    @given(program=programs(), seed=seeds)
    def test_runs_stay_below_every_fixed_point_above_their_start(
        self, form: str, gate: str, program: Program, seed: int
    ) -> None:  # Corollary 5.5: what a run converges to is the least one
        model = random_model(program, form=form, gate=gate, seed=seed)
        start = random_states(model, seed=seed)
        above = start + (1 - start) * random_states(model, seed=seed ^ 1)
        above[::2] = 1.0
        with torch.no_grad():
            # Atoms at one stay there; offsets stop the others where they are: a fixed point.
            numbers = model.step_parameters()
            firing = stages.fire(numbers, stages.match(model.rules, numbers, above))
            evidence = stages.route(model.rules, numbers, firing)
            model.offset.copy_(torch.where(above < 1, model.offset + evidence + 40.0, -0.5))
            torch.testing.assert_close(model.step(above), above, rtol=0, atol=1e-15)
            states = model.iterate(start, 200).states
        assert (states <= above + 1e-13).all()
        assert (states[-1][::2] > 0.9).all()


# ------------------------------------------------------------------------ the program of the rows


@every_form
def test_the_support_is_where_weights_stand_out(form: str) -> None:
    program = Program.from_rules([(("c", "d"), ["a", "b"]), ("a", []), ("b", ["d", "c", "a"])])
    model = random_model(program, form=form, spread=0.1)
    if isinstance(model.rules, SparseRules):
        found = model.rules.literals()
    else:  # read off the logits, so they must say something
        rules = SparseRules(
            SparseRules.literals_of(program),
            M=program.M,
            body_logits=torch.full((5,), 4.0),
            body_background=torch.full((3,), -4.0),
            head_logits=torch.full((4,), 5.0),
            head_background=torch.zeros(3),
        )
        found = ALL_FORMS[form](rules).literals()
    expected = SparseRules.literals_of(program)
    for rule, atom, rule_, atom_ in (
        (found.body_rule, found.body_atom, expected.body_rule, expected.body_atom),
        (found.head_rule, found.head_atom, expected.head_rule, expected.head_atom),
    ):
        pairs = {*zip(rule.tolist(), atom.tolist(), strict=True)}
        assert pairs == {*zip(rule_.tolist(), atom_.tolist(), strict=True)}


@every_form
@pytest.mark.parametrize("atoms", [0, 3])
def test_a_program_without_rules_does_nothing(form: str, atoms: int) -> None:
    program = Program.from_rules([], atoms=[f"a{i}" for i in range(atoms)])
    model = random_model(program, form=form, dtype=torch.float64)
    model.offset.data.fill_(800.0)  # no evidence, and a high bar
    state = random_states(model, 2, seed=1)
    assert torch.equal(model(state, 5), state)
    assert torch.equal(model(state.requires_grad_(), None), state)


@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
def test_both_ways_to_add_by_index_give_the_same_sums(shape: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(0)
    start = torch.rand(*shape, 5, generator=rng, dtype=torch.float64)
    index = torch.tensor([3, 0, 3, 4, 3, 0, 1])
    values = torch.rand(*shape, 7, generator=rng, dtype=torch.float64)
    expected = start.clone()
    for n, i in enumerate(index.tolist()):
        expected[..., i] += values[..., n]
    for add in (add_at, add_sorted):
        torch.testing.assert_close(add(start, index, values), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_a_model_in_one_process_has_all_its_rules(form: str) -> None:
    model = random_model(random_program(1), form=form)
    require_whole_model(model, "this")
    assert model.rules.total == model.rules.R == model.R
    assert model.rules.whole(model.step_parameters())[0] is model.rules
    assert [model.rules.in_any_process(yes) for yes in (True, False)] == [True, False]


def test_products_keep_the_precision_of_their_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    left, right = torch.rand(3, 4000, generator=rng), torch.rand(4000, 2, generator=rng)
    exact = left.double() @ right.double()
    plain = dense_rules._product(left, right)
    with torch.autocast("cpu", torch.bfloat16):
        assert (left @ right).dtype == torch.bfloat16
        found = dense_rules._product(left, right)
        assert found.dtype == torch.float32
        assert torch.equal(found, plain)
    # As on a device that is set to use fewer bits.
    monkeypatch.setattr(dense_rules, "_has_reduced_precision", lambda kind: True)
    assert torch.equal(dense_rules._product(left, right), exact.float())
    assert not torch.equal(plain, exact.float())
    wide = dense_rules._product(left.double(), right.double())
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide, exact, rtol=1e-14, atol=0)


def test_which_devices_are_set_to_fewer_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def backend(precision: str) -> SimpleNamespace:
        return SimpleNamespace(matmul=SimpleNamespace(fp32_precision=precision))

    for cuda, cpu in (("tf32", "ieee"), ("none", "bf16"), ("ieee", "none")):
        backends = SimpleNamespace(cuda=backend(cuda), mkldnn=backend(cpu))
        with monkeypatch.context() as patch:
            patch.setattr(dense_rules.torch, "backends", backends)
            found = [dense_rules._has_reduced_precision(kind) for kind in ("cuda", "cpu")]
        assert found == [cuda == "tf32", cpu == "bf16"]


def test_the_literals_of_dense_rules_are_read_from_their_logits() -> None:
    zero, half = 0.0, math.log(0.5)
    body = torch.tensor([[0.1, zero, -0.1], [zero, zero, zero]])
    # The second head has 0.51 and 0.49 of the share of the first.
    head = torch.tensor([[zero, half + 0.02, -9.0], [zero, half - 0.02, -9.0]])
    rules = dense_rules.DenseRules(body, head)
    found = rules.literals()
    assert list(zip(found.body_rule.tolist(), found.body_atom.tolist(), strict=True)) == [(0, 0)]
    assert list(zip(found.head_rule.tolist(), found.head_atom.tolist(), strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    _, body_off, _, _, head_off = rules.read()
    assert body_off.shape == head_off.shape == (0,)
    assert rules.to_dense() is rules
    for wrong in (head[:, :2], head[:1]):
        with pytest.raises(ModelError, match="must have one shape"):
            dense_rules.DenseRules(body, wrong)
    with pytest.raises(ModelError, match="must have one shape"):
        dense_rules.DenseRules(body[0], head[0])
    assert (
        len(dense_rules.DenseRules(torch.zeros(2, 0), torch.zeros(2, 0)).literals().head_atom) == 0
    )


def test_sparse_rules_load_values_of_their_own_literals_alone() -> None:
    def rules(text: str) -> SparseRules:
        program = parse(text)
        model = random_model(program, form="sparse", seed=len(text))
        assert isinstance(model.rules, SparseRules)
        return model.rules

    own, same = rules("b :- a. c :- a."), rules("b :- a. c :- a. ")
    assert not torch.equal(own.body_logits, same.body_logits)
    own.load_state_dict(same.state_dict())
    assert torch.equal(own.body_logits, same.body_logits)
    with pytest.raises(RuntimeError, match="body_atom differs: these values belong to another"):
        own.load_state_dict(rules("b :- a. c :- b.").state_dict())
    with pytest.raises(RuntimeError, match="size mismatch") as caught:
        own.load_state_dict(rules("b :- a. c :- a, b.").state_dict())
    assert "belong to another" not in str(caught.value)
    partly = {name: value for name, value in same.state_dict().items() if name != "body_atom"}
    assert own.load_state_dict(partly, strict=False).missing_keys == ["body_atom"]


def test_weights_off_the_support_are_those_of_the_background() -> None:
    program = parse("b :- a. c, b :- a, b. d :- d.")
    model = random_model(program, form="sparse", seed=2)
    rules, numbers = model.rules, model.step_parameters()
    dense = rules.to_dense()
    u, v = torch.sigmoid(dense.body_logits), torch.softmax(dense.head_logits, -1)
    pairs = torch.cartesian_prod(torch.arange(model.R), torch.arange(model.M))
    for order in (pairs, pairs.flip(0)):
        rule, atom = order.T
        torch.testing.assert_close(rules.weight_at("body", numbers, rule, atom), u[rule, atom])
        torch.testing.assert_close(rules.weight_at("head", numbers, rule, atom), v[rule, atom])
    torch.testing.assert_close(numbers.body_total, u.sum(1))
    model = random_model(parse("a. b."), form="sparse")  # no body literals at all
    numbers = model.step_parameters()
    found = model.rules.weight_at("body", numbers, torch.tensor([0, 1]), torch.tensor([1, 0]))
    torch.testing.assert_close(found, torch.sigmoid(model.rules.body_background.double()))


@pytest.mark.parametrize("text", ["b :- a.", "a, b :- a.", "a :- a.", "a, b, c :- a. c :- b."])
def test_routing_in_small_programs(text: str) -> None:
    """One head and a background, all atoms as heads, and a single atom."""
    program = parse(text)
    model = random_model(program, form="sparse", seed=4)
    one_rule_each = torch.eye(model.R, dtype=torch.float64)
    routed = model.rules.route(one_rule_each, model.step_parameters())
    expected = torch.softmax(model.rules.to_dense().head_logits, -1)
    torch.testing.assert_close(routed, expected, rtol=0, atol=1e-14)
