"""The GPU kernels agree with the float64 reference in value and in every gradient."""

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma._program import Program
from latentgamma._rules import SparseRules

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from latentgamma._kernels_cuda import Coefficients, Structure, back, run


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


def coefficients(model: lg.LatentGamma) -> Coefficients:
    n = model.numbers()
    w = n.weights
    values = (
        w.body, w.body_off, w.body_total - n.threshold, n.sharpness, n.amplitude,
        w.head, w.head_off, n.offset, n.gate.reshape(1),
    )  # fmt: skip
    return Coefficients(*(value.detach().requires_grad_() for value in values))


def reference(model, c: Coefficients, state, steps: int):
    """T steps in float64 from the coefficients, in plain torch."""
    rules: SparseRules = model.rules
    for _ in range(steps):
        missing = 1 - state
        lack = missing.sum(-1, keepdim=True) * c.body_off
        lack = lack.index_add(-1, rules.body_rule, missing[:, rules.body_atom] * c.body)
        fire = c.amplitude * torch.sigmoid(c.sharpness * (c.slack - lack))
        phi = (fire * c.head_off).sum(-1, keepdim=True).expand(-1, model.M)
        phi = phi.index_add(-1, rules.head_atom, fire[:, rules.head_rule] * c.head) - c.offset
        scaled = c.gate * phi
        if model.gate_kind == "bump":
            g = torch.where(scaled > 1e-3, torch.exp(-1 / scaled.clamp(min=1e-3) ** 2), 0.0)
        else:
            g = torch.sigmoid(scaled)
        state = state + (1 - state) * g * torch.sigmoid(phi)
    return state


CASES = [
    (12, 20, 4, 5, 2),
    (33, 40, 6, 130, 3),
    (504, 648, 2, 67, 3),
    (1, 1, 1, 3, 2),
    (3000, 5000, 5, 37, 4),  # too large for one launch
    (200, 60, 100, 11, 3),  # long bodies
    (2500, 0, 1, 5, 2),  # no rules at all
]


@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
@pytest.mark.parametrize(("M", "R", "most", "B", "steps"), CASES)
def test_value_and_gradients(M: int, R: int, most: int, B: int, steps: int, gate: str) -> None:
    model = shaken(ragged(M + R, M, R, most), R, gate)
    c = coefficients(model)
    generator = torch.Generator().manual_seed(1)
    state = torch.rand(B, M, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(B, M, generator=generator, dtype=torch.float64)
    wanted = reference(model, c, state, steps)
    grads = torch.autograd.grad((wanted * weight).sum(), [state, *c], allow_unused=True)

    pairs = [x.cuda() for x in model.rules.support()]
    structure = Structure.of(M, R, *pairs)
    cuda = Coefficients(*(x.detach().float().cuda().contiguous() for x in c))
    given = state.detach().float().cuda()
    final, _ = run(structure, cuda, given, steps, bump=gate == "bump", keep=False)
    again, kept = run(structure, cuda, given, steps, bump=gate == "bump", keep=True)
    assert torch.equal(final, again)
    assert (final.double().cpu() - wanted).abs().max() < 1e-5
    d_state, d_c = back(structure, cuda, kept, weight.float().cuda(), bump=gate == "bump")
    repeated = back(structure, cuda, kept, weight.float().cuda(), bump=gate == "bump")
    assert torch.equal(d_state, repeated[0])
    names = ["state", *Coefficients._fields]
    for name, ours, exact in zip(names, [d_state, *d_c], grads, strict=True):
        if exact is None or not exact.numel():
            continue
        assert ours.shape == exact.shape
        assert (ours.double().cpu() - exact).norm() <= 1e-4 * exact.norm() + 1e-6, name


def test_empty_batch_and_no_steps() -> None:
    model = shaken(ragged(0, 10, 12, 3), 0, "sigmoid")
    structure = Structure.of(10, 12, *(x.cuda() for x in model.rules.support()))
    cuda = Coefficients(*(x.detach().float().cuda() for x in coefficients(model)))
    none = torch.empty(0, 10, device="cuda")
    assert run(structure, cuda, none, 3, bump=False, keep=True)[0].shape == (0, 10)
    state = torch.rand(4, 10, device="cuda")
    assert torch.equal(run(structure, cuda, state, 0, bump=False, keep=False)[0], state)
