"""The GPU kernels agree with the float64 reference in value and in every gradient."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.generators import g4
from latentgamma.operator.kernels.interface import RecordedRuns
from latentgamma.operator.until_closed import ClosureCache, depths_on_cpu
from latentgamma.program.program import Program

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)


def ragged(seed: int, M: int, R: int, most: int) -> Program:
    rng = np.random.default_rng(seed)
    rules = []
    for _ in range(R):
        heads = rng.choice(M, size=min(M, int(rng.choice([1, 1, 1, 2, 3]))), replace=False)
        body = rng.choice(M, size=int(rng.integers(0, min(M, most) + 1)), replace=False)
        rules.append(([f"a{i}" for i in heads], [f"a{i}" for i in body]))
    return Program.from_rules(rules, atoms=[f"a{i}" for i in range(M)])


def shaken(program: Program, seed: int, gate: str) -> lg.LatentGamma:
    # Soft, and slow to rise: near 1 the float32 state itself has few digits of 1 − s left.
    constants = lg.Constants(3.0, 6.0, 5.0, 0.9, 3.0, 2.0)
    model = lg.oracle(program, constants, form="sparse", gate=gate, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return model


def close(ours: torch.Tensor, exact: torch.Tensor) -> bool:
    return bool((ours.double().cpu() - exact.cpu()).norm() <= 1e-4 * exact.norm() + 1e-6)


CASES = [
    (12, 20, 4, 5, 2),
    (33, 40, 6, 130, 3),
    (504, 648, 2, 67, 3),
    (504, 648, 2, 1500, 3),
    (1, 1, 1, 3, 2),
    (5000, 6000, 5, 37, 3),  # too large for one launch
    (200, 60, 100, 11, 3),  # long bodies
    (2500, 0, 1, 5, 2),  # no rules at all
]


@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
@pytest.mark.parametrize(("M", "R", "most", "B", "steps"), CASES)
def test_value_and_gradients(M: int, R: int, most: int, B: int, steps: int, gate: str) -> None:
    there = shaken(ragged(M + R, M, R, most), R, gate).float()
    here = copy.deepcopy(there).double()
    here.kernel = "reference"
    there.cuda()
    generator = torch.Generator().manual_seed(1)
    state = torch.rand(B, M, generator=generator)
    weight = torch.randn(steps + 1, B, M, generator=generator)
    for every in (False, True):
        results = []
        for model, dtype in ((here, torch.float64), (there, torch.float32), (there, torch.float32)):
            start = state.to(model.device, dtype).requires_grad_()
            states = model.iterate(start, steps).states if every else model(start, steps)[None]
            given = weight[-len(states) :].to(states)
            names = ["state", *(name for name, _ in model.named_parameters())]
            grads = torch.autograd.grad(
                (states * given).sum(), [start, *model.parameters()], allow_unused=True
            )
            results.append((states, grads))
        (exact, wanted), (found, ours), (again, twin) = results
        assert torch.equal(found, again)
        assert (found.double().cpu() - exact).abs().max() < 1e-5
        for name, theirs, mine, other in zip(names, wanted, ours, twin, strict=True):
            assert torch.equal(mine, other), name  # the same bits every time
            if theirs is not None and theirs.numel():
                assert mine.shape == theirs.shape
                assert close(mine, theirs), name


@pytest.mark.parametrize(("M", "R"), [(33, 40), (5000, 5100)])
def test_each_example_takes_the_steps_it_is_given(M: int, R: int) -> None:
    model = shaken(ragged(3, M, R, 3), 3, "sigmoid").float().cuda()
    state = torch.rand(9, M, device="cuda")
    counts = torch.arange(9, device="cuda") % 5
    start = state.clone().requires_grad_()
    together = model._runner().final(start, 4, counts)
    (slope,) = torch.autograd.grad(together.square().sum(), start)
    for example, count in enumerate(counts.tolist()):
        alone = state[example].clone().requires_grad_()
        after = model(alone, count)
        torch.testing.assert_close(after, together[example], rtol=0, atol=1e-6)
        (expected,) = torch.autograd.grad(after.square().sum(), alone)
        torch.testing.assert_close(slope[example], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("M", "R"), [(33, 40), (5000, 5100)])
def test_a_value_outside_the_range_shows_in_its_example_alone(M: int, R: int) -> None:
    model = shaken(ragged(3, M, R, 3), 3, "sigmoid").float().cuda()
    state = torch.rand(6, M, device="cuda")
    state[1, 4], state[3, 0], state[4, 2] = 1.5, -0.1, torch.nan
    found = model(state, 2).isnan().any(1)
    assert found.tolist() == [False, True, False, True, True, False]


def test_a_model_on_the_device_is_the_model() -> None:
    program = g4()
    here = lg.oracle(program, form="sparse", dtype=torch.float64, kernel="reference")
    there = lg.oracle(program, form="sparse", device="cuda")
    facts = np.random.default_rng(0).random((300, program.M)) < 0.02
    state = torch.from_numpy(facts)
    wanted = torch.from_numpy(lg.closures(program, facts))
    with torch.no_grad():
        out = there(state.float().cuda(), 40)
        assert torch.equal((out > 0.5).cpu(), wanted)
        assert (out.double().cpu() - here(state.double(), 40)).abs().max() < 1e-5
        assert torch.equal((there(state.float().cuda()) > 0.5).cpu(), wanted)


def test_the_proof_gradient_on_the_device() -> None:
    program = lg.Program.from_rules(
        [(f"a{i + 2}", [f"a{i}", f"a{i + 1}"]) for i in range(298)],
        atoms=[f"a{i}" for i in range(300)],
    )
    model = lg.oracle(program, gradient="proof", form="sparse", device="cuda")
    state = model.state(["a0", "a1"]).requires_grad_()
    model(state, 320)[-1].backward()
    assert state.grad.sum().item() == pytest.approx(1.0, abs=1e-4)
    assert model.rules.body_logits.grad is not None


def test_a_fixed_model_answers_as_before_from_a_recorded_graph() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    states = [(torch.rand(50, model.M, device="cuda") < 0.05).float() for _ in range(4)]
    usual = [model(state, 20).detach() for state in states]
    with model.fixed():
        for _ in range(3):
            found = [model(state, 20) for state in states]
            assert all(map(torch.equal, found, usual))
        with torch.no_grad():
            model.offset.add_(1.0)
        assert torch.equal(model(states[0], 20), usual[0])
        start = states[0].clone().requires_grad_()
        assert model(start, 20).requires_grad
    assert not torch.equal(model(states[0], 20), usual[0])


def test_streams_share_a_fixed_model() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    states = [(torch.rand(500, model.M, device="cuda") < 0.05).float() for _ in range(8)]
    usual = [model(state, 32).detach() for state in states]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    with model.fixed():
        model(states[0], 32), model(states[0], 32)
        torch.cuda.synchronize()
        found = []
        for i, state in enumerate(states):
            with torch.cuda.stream(streams[i % 2]):
                found.append(model(state, 32))
        torch.cuda.synchronize()
    assert all(map(torch.equal, found, usual))


def test_steps_none_on_the_device_is_that_of_the_cpu() -> None:
    here = lg.oracle(g4(), form="sparse")
    there = lg.oracle(g4(), form="sparse", device="cuda")
    state = torch.from_numpy(np.random.default_rng(2).random((70, here.M)) < 0.03).float()
    torch.testing.assert_close(there(state.cuda()).cpu(), here(state), rtol=0, atol=1e-5)


def test_empty_batch_and_no_steps() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    assert model(torch.empty(0, model.M, device="cuda"), 3).shape == (0, model.M)
    state = torch.rand(4, model.M, device="cuda")
    assert torch.equal(model(state, 0), state)


@pytest.mark.parametrize(
    ("M", "R", "most", "B"),
    [(12, 20, 4, 5), (33, 40, 6, 130), (504, 648, 2, 67), (3000, 4000, 3, 9), (5000, 5100, 3, 6)],
)
def test_how_many_steps_each_example_takes(M: int, R: int, most: int, B: int) -> None:
    program = ragged(M * R, M, R, most)
    closure = ClosureCache().get(program, torch.device("cuda", 0))
    depths = partial(depths_on_cpu, program) if closure is None else closure.depths
    facts = np.random.default_rng(M).random((B, M)) < 0.1
    wanted = np.array([lg.closure(program, row).depth for row in facts])
    state = torch.from_numpy(facts).float().cuda()
    assert (closure is None) == (max(M, R) > 4096)
    assert np.array_equal(depths(state), wanted)
    closed = torch.from_numpy(lg.closures(program, facts)).float().cuda()
    assert not depths(closed).any()


def test_steps_none_runs_as_many_steps_as_the_depth_asks_for() -> None:
    program = g4()
    model = lg.oracle(program, form="sparse", device="cuda")
    delay = int(model.certificate().t_min) - model.certificate().depth
    facts = np.random.default_rng(5).random((41, program.M)) < 0.03
    state = torch.from_numpy(facts).float().cuda()
    weight = torch.rand_like(state)
    for _ in range(4):  # the first calls, and recorded ones
        for i in (slice(0, 41), slice(3, 4)):
            start = state[i].clone().requires_grad_()
            inputs = [start, *model.parameters()]
            found = model(start)
            grads = torch.autograd.grad((found * weight[i]).sum(), inputs)
            depths = [lg.closure(program, row).depth for row in facts[i]]
            counts = torch.tensor([d + delay if d else 0 for d in depths], device="cuda")
            wanted = model._runner().final(start, int(counts.max()), counts)
            assert torch.equal(found, wanted)
            theirs = torch.autograd.grad((wanted * weight[i]).sum(), inputs)
            assert all(map(torch.equal, grads, theirs))


def test_steps_none_goes_on_for_soft_facts() -> None:
    here = lg.oracle(g4(), form="sparse")
    there = lg.oracle(g4(), form="sparse", device="cuda")
    state = torch.rand(20, here.M, generator=torch.Generator().manual_seed(1))
    state = torch.where(state < 0.05, 0.9, 0.01)
    for _ in range(3):
        torch.testing.assert_close(there(state.cuda()).cpu(), here(state), rtol=0, atol=1e-4)


def test_steps_none_sees_every_change_of_the_parameters() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    state = (torch.rand(10, model.M, device="cuda") < 0.05).float()
    for _ in range(3):
        before = model(state).detach()
    offset = model.offset.detach().clone()
    with model.fixed():
        assert torch.equal(model(state), before)
        model.offset.data.add_(100.0)  # a version counter does not see this
        for _ in range(3):
            assert torch.equal(model(state), before)
    with pytest.raises(lg.errors.CertificateError, match="certified window"):
        model(state)
    model.offset.data.copy_(offset)
    assert torch.equal(model(state), before)
    with torch.no_grad():
        model.rules.body_logits[0] += 1e-3
        assert not torch.equal(model(state, 5), before)
        assert torch.equal(model(state) > 0.5, before > 0.5)


def test_a_trajectory_of_one_step_has_gradients() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    state = torch.rand(5, model.M, device="cuda").requires_grad_()
    model.iterate(state, 1).states.sum().backward()
    assert state.grad is not None


def test_training_from_recorded_graphs_is_training() -> None:
    models = [lg.oracle(g4(), form="sparse", device="cuda") for _ in range(2)]
    weight = torch.rand(30, models[0].M, device="cuda")
    states = [(torch.rand(30, models[0].M, device="cuda") < 0.1).float() for _ in range(3)]
    optimisers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    for i in range(6):
        losses = []
        for recorded, (model, optimiser) in enumerate(zip(models, optimisers, strict=True)):
            if not recorded:
                model._recorded_runs = RecordedRuns()  # so that nothing comes a second time
            # Two runs at a time: their kept states must not mix.
            first, second = model(states[i % 3], 9), model(states[(i + 1) % 3], 9)
            loss = ((first - second).square() * weight).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[0] == losses[1]
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))
    assert len(models[1]._recorded_runs._runs) == 2  # forwards and backwards


def test_many_shapes_are_not_recorded_over_and_over() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    states = [(torch.rand(n, model.M, device="cuda") < 0.1).float() for n in range(1, 21)]
    with torch.no_grad():
        wanted = [model(state, 4) for state in states]
        for _ in range(2):
            assert all(map(torch.equal, wanted, [model(state, 4) for state in states]))
    assert len(model._recorded_runs._runs) == 16


@pytest.mark.parametrize("change", ["float64", "reference", "float32"])
def test_steps_none_comes_out_the_same_each_time(change: str) -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    state = (torch.rand(70, model.M, device="cuda") < 0.03).float()
    state[3] = 0
    with torch.no_grad():
        wanted = torch.stack([model(row) for row in state])
        if change == "reference":
            model.kernel = "reference"
        given = state.double() if change == "float64" else state
        found = [model(given) for _ in range(4)]  # recorded from the second on
    assert all(torch.equal(found[0], other) for other in found[1:])
    torch.testing.assert_close(found[0].float(), wanted, rtol=0, atol=1e-5)
    assert torch.equal(found[0] > 0.5, wanted > 0.5)
    if change == "float32":
        assert torch.equal(found[0], wanted)


def test_steps_none_marks_wrong_values_in_their_example_alone() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    state = (torch.rand(6, model.M, device="cuda") < 0.03).float()
    state[2, 0], state[4] = 1.5, 0
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert model(state).isnan().any(1).tolist() == [i == 2 for i in range(6)]


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_steps_none_of_a_small_program_comes_out_the_same_each_time(form: str) -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b. d :- c, a."), form=form, device="cuda")
    state = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], device="cuda")
    with torch.no_grad():
        found = [model(state) for _ in range(4)]
    assert all(torch.equal(found[0], other) for other in found[1:])
    here = lg.oracle(model.program, form=form)(state.cpu())
    torch.testing.assert_close(found[0].cpu(), here, rtol=0, atol=1e-5)
