"""The GPU kernels agree with the float64 reference in value and in every gradient."""

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma._model.kernels.inputs import Flat, flatten, make_layout, plain_step
from latentgamma._program.program import Program
from latentgamma.generators import g4

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from latentgamma._model.kernels import cuda_launch


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
    model, bump = shaken(ragged(M + R, M, R, most), R, gate), gate == "bump"
    layout = make_layout(model.rules.literals(), M=M, R=R)
    flat = Flat(*(x.detach() for x in flatten(layout, model.step_parameters(), torch.float64)))
    flat = Flat(*(x.requires_grad_() for x in flat))
    generator = torch.Generator().manual_seed(1)
    state = torch.rand(B, M, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(steps + 1, B, M, generator=generator, dtype=torch.float64)
    states = [state]
    for _ in range(steps):
        states.append(plain_step(layout, flat, states[-1], bump=bump))
    last = torch.autograd.grad(
        (states[-1] * weight[-1]).sum(), [state, *flat], retain_graph=True, allow_unused=True
    )
    every = torch.autograd.grad(
        (torch.stack(states) * weight).sum(), [state, *flat], allow_unused=True
    )

    there = make_layout(
        type(model.rules.literals())(*(x.cuda() for x in model.rules.literals())), M=M, R=R
    )
    numbers = Flat(*(x.detach().float().cuda().contiguous() for x in flat))
    given = state.detach().float().cuda()
    final, _ = cuda_launch.forward(there, numbers, given, steps, bump=bump, keep=False)
    again, kept = cuda_launch.forward(there, numbers, given, steps, bump=bump, keep=True)
    assert torch.equal(final, again)
    assert (final.double().cpu() - states[-1]).abs().max() < 1e-5
    run = cuda_launch.trajectory(there, kept, B)
    assert (run.double().cpu() - torch.stack(states)).abs().max() < 1e-5
    for sent, exact in ((weight[-1:], last), (weight, every)):
        arguments = (there, numbers, kept, sent.float().cuda())
        found = [cuda_launch.backward(*arguments, bump=bump, learn=True) for _ in "12"]
        ours = [found[0][0], *found[0][1]]
        twin = [found[1][0], *found[1][1]]
        for name, mine, other, theirs in zip(
            ["state", *Flat._fields], ours, twin, exact, strict=True
        ):
            assert torch.equal(mine, other), name  # the same bits every time
            if theirs is not None and theirs.numel():
                assert mine.shape == theirs.shape
                assert close(mine, theirs), name


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


def test_empty_batch_and_no_steps() -> None:
    model = lg.oracle(g4(), form="sparse", device="cuda")
    assert model(torch.empty(0, model.M, device="cuda"), 3).shape == (0, model.M)
    state = torch.rand(4, model.M, device="cuda")
    assert torch.equal(model(state, 0), state)
