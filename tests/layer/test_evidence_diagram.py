"""Probabilities given evidence from a decision diagram are those of a table of all worlds."""

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma import Inference
from latentgamma.errors import StateError

LARGE = 1 << 16


def random_layers(seed: int, logits: bool) -> tuple[lg.Layer, lg.Layer, torch.Tensor] | None:
    """The same layer with evidence, by a diagram and by a table, and inputs of it."""
    rng = np.random.default_rng(seed)
    facts, group = [f"f{i}" for i in range(4)], [f"g{i}" for i in range(3)]
    atoms = [*facts, *group]
    lines = [f"#external {name}." for name in atoms]
    for i in range(int(rng.integers(3, 8))):
        head = f"a{i % 5}" if rng.random() < 0.9 else facts[0]
        # Only atoms that come earlier, so that none depends on itself.
        earlier = [*atoms[1:], *(f"a{j}" for j in range(i % 5))]
        body = rng.choice(earlier, size=int(rng.integers(1, 4)), replace=False)
        if head == facts[0]:
            body = [name for name in body if not name.startswith("a")] or [facts[1]]
        signed = [name if rng.random() < 0.7 else f"not {name}" for name in body]
        lines.append(f"{head} :- {', '.join(signed)}.")
    program = lg.parse("\n".join(lines))
    derived = [name for name in program.atoms if name.startswith("a")]
    known = rng.choice([*derived, facts[1]], size=min(2, len(derived)), replace=False)
    evidence = {str(name): bool(rng.random() < 0.5) for name in known}
    groups = {"facts": facts, "group": lg.Categorical(group)}
    outputs = [*derived, *facts, *group]

    def layer(budget: int) -> lg.Layer:
        return lg.Layer(
            program, groups, outputs, semantics="probability", evidence=evidence,
            inference=Inference(budget=budget), from_logits=logits,
        )  # fmt: skip

    by_diagram, by_table = layer(1), layer(LARGE)
    if by_diagram.rules.diagram is None:
        return None
    return by_diagram, by_table, torch.from_numpy(rng.normal(size=(6, 7)))


@pytest.mark.quick_first
@pytest.mark.parametrize("logits", [False, True])
def test_values_and_gradients_are_those_of_a_table(logits: bool) -> None:
    compared = 0
    for seed in range(60):
        found = random_layers(seed, logits)
        if found is None:
            continue
        by_diagram, by_table, x = found
        assert by_diagram.plan().exact
        results = []
        for layer in (by_diagram, by_table):
            values = x.clone().requires_grad_()
            facts, group = values[:, :4], values[:, 4:]
            given = {
                "facts": facts if logits else torch.sigmoid(facts),
                "group": group if logits else torch.softmax(group, -1),
            }
            try:
                out = layer(given)
            except StateError:
                results.append(None)
                continue
            weight = torch.cos(torch.arange(out.numel()).reshape(out.shape).double())
            slope = torch.autograd.grad((out * weight).sum(), values, allow_unused=True)[0]
            odds = layer(given, logits=True)
            inner = (out > 1e-9) & (out < 1 - 1e-9)
            results.append((out, slope, odds[inner]))
        if results[1] is None:
            assert results[0] is None
            continue
        assert results[0] is not None
        for ours, expected in zip(*results, strict=True):
            assert torch.allclose(ours, expected, atol=1e-7, rtol=1e-6), seed
        compared += 1
    assert compared > 25


def test_requirements_as_evidence() -> None:
    """Forty labels, of which few combinations are allowed: P(evidence) is below 1e-6."""
    names = [f"l{i}" for i in range(40)]
    pairs = [(a, b) for a in range(40) for b in range(a) if (a + b) % 3 == 0]
    text = "\n".join(
        [*(f"#external {n}." for n in names), *(f"bad :- l{a}, l{b}." for a, b in pairs)]
    )
    layer = lg.Layer(
        lg.parse(text),
        names,
        names,
        semantics="probability",
        evidence={"bad": False},
        from_logits=True,
    )
    assert layer.plan().exact
    req = lg.Requirements.from_text("\n".join(f":- l{a}, l{b}." for a, b in pairs), labels=names)
    exact = req.layer(method="exact").train()
    x = torch.randn(5, 40, dtype=torch.float64, generator=torch.manual_seed(0)) + 2
    assert exact.passes is not None
    assert exact.passes.log_partition(x).max() < np.log(1e-6)
    assert torch.allclose(layer(x), torch.sigmoid(exact(x)))
    assert torch.allclose(layer(x, logits=True), exact(x))
    assert "decision diagram" in str(layer.plan())
    assert "decision diagram" in str(layer.explain(x[0]))


def test_impossible_evidence_is_refused() -> None:
    program = lg.parse("#external x. a :- x, y, not z. a :- z, y, not x. #external y. #external z.")
    layer = lg.Layer(
        program, ["x", "y", "z"], ["x", "z"], semantics="probability", evidence={"a": True},
        inference=Inference(budget=1),
    )  # fmt: skip
    assert layer.rules.diagram is not None
    expected = torch.tensor([[0.2, 0.8]])
    assert torch.allclose(layer(torch.tensor([[0.5, 0.3, 0.8]])), expected)
    with pytest.raises(StateError, match="probability zero in example 1"):
        layer(torch.tensor([[0.5, 0.3, 0.8], [0.5, 0.0, 0.5]]))
    assert torch.equal(layer(torch.tensor([[0.0, 0.5, 0.5]])), torch.tensor([[0.0, 1.0]]))


def certain_layers(*, from_logits: bool = False) -> list[lg.Layer]:
    """The same layer by a diagram and by a table."""
    program = lg.parse(
        "#external x. #external y. #external z. #external g0. a :- x, y, not z. a :- z, y, not x. "
        "b :- x, w. b :- z, y. c :- b, g1. c :- g2, x."
    )
    groups = {"f": ["x", "y", "z", "w"], "g": lg.Categorical(["g0", "g1", "g2"])}
    layers = [
        lg.Layer(
            program, groups, ["x", "z", "b", "c", "g1", "w"], semantics="probability",
            evidence={"a": True}, inference=Inference(budget=budget), from_logits=from_logits,
        )
        for budget in (1, LARGE)
    ]  # fmt: skip
    assert layers[0].rules.diagram is not None
    assert layers[1].rules.diagram is None
    return layers


def test_inputs_of_exactly_0_and_1_have_gradients() -> None:
    f = [[0.0, 0.5, 0.5, 0.3], [0.4, 1.0, 0.2, 0.0], [1.0, 1.0, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]]
    g = [[0.2, 0.3, 0.5], [0.0, 0.4, 0.6], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    given = {
        "f": torch.tensor(f, dtype=torch.float64, requires_grad=True),
        "g": torch.tensor(g, dtype=torch.float64, requires_grad=True),
    }
    found = []
    for layer in certain_layers():
        out = layer(given)
        weight = torch.cos(torch.arange(out.numel()).reshape(out.shape).double())
        found.append((out, *torch.autograd.grad((out * weight).sum(), list(given.values()))))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected)
    assert found[0][0][0, :3].tolist() == [0, 1, 1]
    assert found[0][1][0, 0] != 0


@pytest.mark.parametrize("logits", [False, True])
def test_second_derivatives_are_those_of_a_table(logits: bool) -> None:
    """The gradient of a function of the outputs that is not linear depends on the outputs."""
    slopes = []
    for layer in certain_layers(from_logits=True):
        x = torch.linspace(-1, 2, 14, dtype=torch.float64).reshape(2, 7).requires_grad_()
        out = layer({"f": x[:, :4], "g": x[:, 4:]}, logits=logits)
        (first,) = torch.autograd.grad(out.sin().sum(), x, create_graph=True)
        slopes.append((first, *torch.autograd.grad(first.square().sum(), x)))
    torch.testing.assert_close(*slopes)


def test_log_odds_beyond_the_range_of_probabilities() -> None:
    inf = torch.inf
    f = torch.tensor([[800.0, 0.5, 0.5, 0.3], [-900.0, 1.0, -0.5, -700.0]], dtype=torch.float64)
    by_diagram, by_table = certain_layers(from_logits=True)
    given = {"f": f, "g": torch.zeros(2, 3, dtype=torch.float64)}
    torch.testing.assert_close(by_diagram(given, logits=True), by_table(given, logits=True))
    certain = torch.tensor([[0.0, 0.5, 0.5, 1.0]])
    odds = certain_layers()[0]({"f": certain, "g": torch.full((1, 3), 1 / 3)}, logits=True)
    assert torch.sigmoid(odds[0]).tolist()[:3] == [0, 1, 1]
    assert odds[0, [0, 1, 2, 5]].tolist() == torch.tensor([-1e30, 1e30, 1e30, 1e30]).tolist()
    assert (
        by_diagram({"f": torch.tensor([[inf, 1.0, 0.0, 0.0]]), "g": torch.zeros(1, 3)})[0, 0] == 1
    )
