"""The benchmark of hierarchies trains all seeds at once, as if each were trained alone."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import latentgamma as lg

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
on_a_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
EDGES = [("b", "a"), ("c", "a"), ("d", "b"), ("e", "b"), ("e", "c"), ("g", "f")]


@pytest.fixture
def hierarchies(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("hierarchies")
    del sys.modules["hierarchies"]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_a_device)])
def test_stacked_training_is_the_training_of_each_seed(hierarchies, device: str) -> None:
    requirements = lg.Requirements.from_edges(EDGES, labels=list("abcdefg"))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((37, 5)).astype(np.float32)
    layer = requirements.layer()
    Y = layer.decide(torch.from_numpy(X) @ torch.from_numpy(rng.standard_normal((5, 7))).float())
    data = hierarchies.DataSet("any", requirements, X[:30], Y[:30].numpy(), X[30:], Y[30:].numpy())
    epochs = 9  # on a GPU the first 64 of 72 steps are those before a CUDA graph is captured
    stack = hierarchies.Stack(
        data, [3, 5], torch.device(device), width=8, epochs=epochs, dropout=0.0
    )
    while not stack.done:
        stack.advance()
    x, y = torch.from_numpy(data.X), Y[:30]
    for seed, (alone, averaged) in zip([3, 5], stack.scores(), strict=True):
        net = hierarchies.initial(seed, 5, 8, 7).eval()  # no dropout
        average = torch.optim.swa_utils.AveragedModel(
            net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(hierarchies.DECAY)
        )
        optimizer = torch.optim.Adam(net.parameters(), 1e-4, weight_decay=1e-5)
        for rows in hierarchies.orders(seed, epochs, 30):  # the last batch of an epoch has two rows
            rows = rows[rows >= 0]
            optimizer.zero_grad()
            layer.loss(net(x[rows]), y[rows]).backward()
            optimizer.step()
            average.update_parameters(net)
        for model, scores in ((net, alone), (average, averaged)):
            expected = layer(model(torch.from_numpy(data.X_test))).detach().numpy()
            np.testing.assert_allclose(
                scores, expected, rtol=0, atol=1e-6 if device == "cpu" else 1e-4
            )
    (first, _) = hierarchies.measured(data, [3, 5], stack.scores(), stack.about())
    assert first["violations"] == 0
    assert first["epochs"] == first["of"] == epochs


def test_the_roots_of_go_are_left_out(hierarchies) -> None:
    edges = [("x", "GO0003674"), ("y", "x"), ("GO0005575", "y")]
    found = hierarchies.without_roots(lg.Requirements.from_edges(edges))
    assert found == lg.Requirements.from_edges([("y", "x")], labels=["x", "y"])
