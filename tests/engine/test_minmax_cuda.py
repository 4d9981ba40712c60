"""The min/max closure on a CUDA device agrees with plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.engine.minmax import MinMax, compile_circuit
from latentgamma.generators import g4
from random_programs import random_program

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)


def acyclic(seed: int, M: int, R: int) -> lg.Program:
    rng = np.random.default_rng(seed)
    rules = []
    for _ in range(R):
        head = int(rng.integers(1, M))
        body = rng.choice(head, int(rng.integers(1, min(head, 4) + 1)), replace=False)
        rules.append((f"a{head}", [f"a{b}" for b in body]))
    return lg.Program.from_rules(rules, [f"a{i}" for i in range(M)])


@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.1])
@pytest.mark.parametrize("batch", [0, 1, 70, 500])
@pytest.mark.parametrize("kind", ["acyclic", "cyclic", "g4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradient(temperature: float, batch: int, kind: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        if kind == "g4":
            program = g4()
        elif kind == "cyclic":
            program = random_program(seed, 12, 20, body=3)
        else:
            program = acyclic(seed, 30, 60)
        atoms = np.arange(program.M)
        circuit = compile_circuit(program, atoms, atoms)
        grid = seed % 2 == 1 and (temperature == 0 or kind != "cyclic")
        shape = batch, program.M
        x = rng.integers(-2, 3, shape) if grid else rng.normal(0, 2, shape)
        given = torch.from_numpy(rng.normal(0, 1, (batch, program.M)))
        # On a cycle, float32 and float64 may differ in how many smooth steps they take.
        wide = dtype if kind == "cyclic" else torch.float64
        here = torch.from_numpy(x.astype(float)).to(dtype).to(wide).requires_grad_()
        there = here.detach().to("cuda", dtype).requires_grad_()
        expected = MinMax(circuit, kernel="reference")(here, temperature, low=0.0, high=0.0)
        found = MinMax(circuit).cuda()(there, temperature, low=0.0, high=0.0)
        with torch.no_grad():
            again = MinMax(circuit).cuda()(there, temperature, low=0.0, high=0.0)
        if kind != "cyclic":  # plain torch adds up in no fixed order there
            assert torch.equal(found, again)
        close = (
            {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
        )
        torch.testing.assert_close(found.cpu().to(wide), expected, **close)
        (one,) = torch.autograd.grad(found, there, given.to("cuda", dtype))
        (other,) = torch.autograd.grad(expected, here, given.to(wide))
        torch.testing.assert_close(one.cpu().to(wide), other, **close)


def test_a_layer_on_the_device() -> None:
    layer = lg.Layer(lg.parse("c :- a, b. c :- d."), ["a", "b", "d"], "c").cuda()
    x = torch.rand(50, 3, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.any()
    assert torch.equal(layer.eval()(x).cpu(), layer.cpu()(x.cpu()))
    certified = layer.cuda().certified()
    assert certified(x).device.type == "cuda"
