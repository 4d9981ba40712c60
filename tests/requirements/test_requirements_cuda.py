"""Requirements on a CUDA device: equal to the CPU, captured in a graph, without waiting.

`TRITON_INTERPRET=1` runs the first tests on the CPU, where Triton is installed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import latentgamma as lg
from latentgamma.engine import execute
from latentgamma.engine.execute import lists_on
from latentgamma.program.compilation import paused_collector
from latentgamma.requirements.layer import RequirementsLayer

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip("needs a CUDA device", allow_module_level=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
on_a_device = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")

CYCLES = """
b :- a. a :- b, c. c :- b, d. d :- e. c :- f. a :- e, not g. h :- a, not f. h :- b.
"""


def hierarchy(classes: int, seed: int = 0) -> lg.Requirements:
    rng = np.random.default_rng(seed)
    edges = {(f"c{i}", f"c{j}") for i in range(1, classes) for j in rng.choice(i, min(i, 2), False)}
    return lg.Requirements.from_edges(sorted(edges))


def by_both(
    req: lg.Requirements, x: Tensor, y: Tensor, *, temperature: float = 0.0
) -> Iterator[tuple[Tensor, ...]]:
    """The scores and losses of both devices, and their gradients."""
    for second, device in enumerate(("cpu", DEVICE)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execute, "_INTERPRETED", INTERPRETED and bool(second))
            layer = req.layer(method="closure", temperature=temperature).to(device)
            leaf = x.detach().to(device).requires_grad_()
            weight = torch.linspace(1, 2, x.numel(), device=device, dtype=x.dtype).view(x.shape)
            out = layer(leaf)
            (slope,) = torch.autograd.grad((out * weight).sum(), leaf)
            loss = layer.loss(leaf, y.to(device), reduction="none")
            (of_loss,) = torch.autograd.grad((loss * weight[..., 0]).sum(), leaf)
            assert torch.equal(layer(leaf.detach()), out.detach())
        yield tuple(t.detach().cpu() for t in (out, slope, loss, of_loss))


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
def test_a_hierarchy_is_that_of_the_cpu(grid: bool, allowed: bool) -> None:
    req = hierarchy(70)
    assert lists_on(req.layer().closure.circuit, torch.device(DEVICE)) is not None
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, len(req.labels), generator=generator, dtype=torch.float64)
    y = torch.rand(x.shape, generator=generator) < 0.1
    if not allowed and not grid:
        y = torch.where(y, 0.9, 0.1)
    if allowed:
        y = req.layer().decide(torch.where(y, 1.0, -1.0))
    x = x.round() if grid else x
    x[1, 0] = x[1, 0].round()  # equal scores in this example only
    here, there = by_both(req, x, y)
    torch.testing.assert_close(there, here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_cycles_and_negation_are_those_of_the_cpu(temperature: float) -> None:
    req = lg.Requirements.from_text(CYCLES)
    layer = req.layer(method="closure")
    assert layer.closure.circuit.cycles
    x = torch.randn(5, len(req.labels), generator=torch.Generator().manual_seed(0)).double()
    x[2:] = x[2:].round()
    here, there = by_both(req, x, layer.decide(x), temperature=temperature)
    torch.testing.assert_close(there, here, rtol=1e-8, atol=1e-8)


def test_scores_are_freed_at_once() -> None:
    layer = lg.Requirements.from_edges([("cat", "pet"), ("dog", "pet")]).layer().to(DEVICE)
    with paused_collector():
        scores = weakref.ref(layer(torch.randn(2, 3, device=DEVICE, requires_grad=True)))
        assert scores() is None


def test_one_class_above_many() -> None:
    req = lg.Requirements.from_edges([(f"c{i}", "top") for i in range(300)])
    x = torch.randn(2, len(req.labels), generator=torch.Generator().manual_seed(0)).double()
    here, there = by_both(req, x, x > 1)
    torch.testing.assert_close(there, here, rtol=1e-9, atol=1e-9)


@on_a_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(dtype: torch.dtype) -> None:
    req = hierarchy(200)
    here, there = req.layer(), req.layer().cuda()
    x = torch.randn(9, len(req.labels)).to(dtype)
    assert torch.equal(there(x.cuda()).cpu(), here(x))
    leaf = x.cuda().requires_grad_()
    there.loss(leaf, there.decide(leaf)).backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == dtype
    wide = x.float().requires_grad_()
    here.loss(wide, here.decide(wide)).backward()
    torch.testing.assert_close(leaf.grad.float().cpu(), wide.grad, rtol=2e-2, atol=1e-5)


def layers() -> Iterator[RequirementsLayer]:
    for method, req in (("closure", hierarchy(200)), ("closure", lg.Requirements.from_text(CYCLES)),
                        ("exact", lg.Requirements.from_text(":- a, b.\na ; c :- b."))):  # fmt: skip
        yield req.layer(method=method).cuda()


@on_a_device
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("training", [True, False])
def test_scores_and_losses_do_not_wait_for_the_device(training: bool) -> None:
    for layer in layers():
        layer.train(training)
        x = torch.randn(4, len(layer.labels), device="cuda", requires_grad=True)
        y = torch.zeros_like(x)
        kind = "scores" if layer.method == "exact" else None

        def step(layer: RequirementsLayer = layer, x: Tensor = x, y: Tensor = y,
                 kind: str | None = kind) -> None:  # fmt: skip
            layer(x).sum().backward()
            layer.loss(x, y, kind).backward()

        step()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@on_a_device
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_an_example_with_a_nan_has_scores_of_nan_and_no_answer() -> None:
    for layer in layers():
        x = torch.randn(3, len(layer.labels), device="cuda")
        x[1, -1] = torch.nan
        for mode in (True, False):
            found = layer.train(mode)(x).isnan()
            assert found.all(1).tolist() == found.any(1).tolist() == [False, True, False]
        with pytest.raises(lg.errors.StateError, match="NaN"):
            layer.decide(x)
        with (
            pytest.raises(lg.errors.StateError, match="CUDA graph cannot wait"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            layer.decide(x)


@on_a_device
def test_a_whole_training_step_is_captured_in_a_graph() -> None:
    for req in (hierarchy(200), lg.Requirements.from_text(CYCLES)):
        ways = []
        for captured in (False, True):
            torch.manual_seed(0)
            layer = req.layer(method="closure").cuda()
            net = nn.Linear(5, len(req.labels)).cuda()
            optimizer = torch.optim.Adam(net.parameters(), 1e-2, capturable=True)
            x = torch.randn(6, 4, 5, device="cuda")  # 6 steps
            given, y = x[0].clone(), layer.decide(torch.randn(4, len(req.labels), device="cuda"))

            def step(layer: RequirementsLayer = layer, net: nn.Module = net, y: Tensor = y,
                     given: Tensor = given, optimizer: torch.optim.Adam = optimizer) -> None:  # fmt: skip
                optimizer.zero_grad(set_to_none=True)
                layer.loss(net(given), y).backward()
                optimizer.step()

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            if captured:
                with torch.cuda.graph(graph):
                    step()
            for some in x:
                given.copy_(some)
                graph.replay() if captured else step()
            ways.append(net.weight.detach().clone())
        torch.testing.assert_close(*ways, rtol=1e-5, atol=1e-6)
