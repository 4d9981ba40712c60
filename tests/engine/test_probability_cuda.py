"""A sum-product pass on a CUDA device agrees with the one on the CPU, in values and gradients."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import latentgamma as lg

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

# Rules of one head exclude each other; some inputs are used by no rule.
MIXED = """
    out(0) :- a, g(0), s. out(1) :- g(2), b. out(1) :- g(1), a. out(2) :- g(2).
    alone :- h(0,1), h(1,0), h(2,2), s. alone :- h(0,0), d. always. never :- never.
    seen :- g(3), h(0,2), h(1,1), h(1,2), h(2,0), h(2,1). c :- h(1,1), h(2,0), s, t, b.
    deep :- alone, out(1). deep :- h(0,2), out(2), d.
"""


def mixed(from_logits: bool) -> lg.Layer:
    return lg.Layer(
        lg.parse(MIXED),
        {
            "facts": ["a", "b", "d"],
            "g": lg.Categorical([f"g({i})" for i in range(4)]),
            "h": lg.Categorical([[f"h({i},{j})" for j in range(3)] for i in range(3)]),
        },
        {
            "one": lg.Categorical([["out(1)", "out(2)"], ["out(2)", "alone"]]),
            "c": ["c", "always", "never", "a", "out(0)", "out(1)", "deep"],
        },
        semantics="probability",
        facts={"s": 0.3, "t": 0.9},
        from_logits=from_logits,
    )


def sums(digits: int) -> lg.Layer:
    rules = [(f"sum(1,{d})", [f"digit(0,{d})"]) for d in range(10)]
    rules += [
        (f"sum({i + 1},{s + d})", [f"sum({i},{s})", f"digit({i},{d})"])
        for i in range(1, digits)
        for s, d in product(range(9 * i + 1), range(10))
    ]
    return lg.Layer(
        lg.Program.from_rules(rules),
        lg.Categorical([[f"digit({i},{d})" for d in range(10)] for i in range(digits)]),
        lg.Categorical([f"sum({digits},{s})" for s in range(9 * digits + 1)]),
        semantics="probability",
        from_logits=True,
    )


def gradients(layer: lg.Layer, value: torch.Tensor, tensors: list[torch.Tensor]) -> list:
    """The gradients; of the values of a group, only changes that keep their sum matter."""
    grads = torch.autograd.grad(value.sum(), tensors)
    if layer.from_logits:
        return list(grads)
    return [
        grad - grad.mean(-1, keepdim=True) if group.categorical else grad
        for grad, group in zip(grads, layer.inputs, strict=True)
    ]


def compare(layer: lg.Layer, given: dict[str, torch.Tensor], logits: bool) -> None:
    results = []
    for device in ("cpu", "cuda"):
        layer = layer.to(device)
        inputs = {name: x.detach().to(device).requires_grad_() for name, x in given.items()}
        tensors = list(inputs.values())
        assert layer.rules.fused(layer, tensors, logits, None, layer) is not None
        found = layer(inputs if len(inputs) > 1 else tensors[0], logits=logits)
        found = (
            torch.cat([x.flatten(1) for x in found.values()], 1)
            if isinstance(found, dict)
            else found
        )
        found = torch.where(found.abs() < 1e20, found, 0)
        weight = torch.linspace(1, 2, found.shape[1], device=device, dtype=found.dtype)
        grads = gradients(layer, found * weight, tensors)
        results.append([x.detach().cpu() for x in (found, *grads)])
    close = (
        {"rtol": 3e-4, "atol": 1e-5}
        if found.dtype == torch.float32
        else {"rtol": 1e-9, "atol": 1e-10}
    )
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logits", [False, True])
def test_groups_facts_and_constants(dtype: torch.dtype, logits: bool) -> None:
    torch.manual_seed(0)
    for from_logits, batch in product((False, True), (1, 7, 200)):
        scores = {
            "facts": torch.randn(batch, 3),
            "g": torch.randn(batch, 4),
            "h": torch.randn(batch, 3, 3),
        }
        scores = {name: x.double() for name, x in scores.items()}
        if not from_logits:
            scores = {n: x.sigmoid() if n == "facts" else x.softmax(-1) for n, x in scores.items()}
        compare(mixed(from_logits), {n: x.to(dtype) for n, x in scores.items()}, logits)


@pytest.mark.parametrize("scale", [10.0, 100.0, 700.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_odds_of_what_is_almost_certain(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(0)
    scores = {
        "facts": scale * torch.rand(50, 3, dtype=torch.float64),
        "g": scale * torch.randn(50, 4, dtype=torch.float64),
        "h": scale * torch.randn(50, 3, 3, dtype=torch.float64),
    }
    layer = mixed(True)
    results = []
    for device in ("cpu", "cuda"):
        layer = layer.to(device)
        inputs = {n: x.to(device, dtype).requires_grad_() for n, x in scores.items()}
        odds = layer(inputs, logits=True)["c"]
        odds = torch.where(odds.abs() < 1e20, odds, 0)
        results.append([odds, *torch.autograd.grad(odds.sum(), list(inputs.values()))])
    if scale > 10:  # where the values that torch's sigmoid rounds to 1 begin
        assert (results[1][0] > 40).any()
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(
            one,
            other.cpu(),
            rtol=1e-5 if dtype == torch.float32 else 1e-9,
            atol=2e-4 if dtype == torch.float32 else 1e-9,
        )


def test_alternatives_that_are_almost_certain_have_their_slope() -> None:
    layer = lg.Layer(
        lg.parse("r :- a. r :- b."), ["a", "b"], "r", semantics="probability", from_logits=True
    ).cuda()
    x = torch.tensor([[20.0, 20.0], [700.0, 700.0]], dtype=torch.float64, device="cuda")
    odds = layer(x.requires_grad_(), logits=True)
    torch.testing.assert_close(odds.cpu(), torch.tensor([40.0, 1400.0], dtype=torch.float64))
    (slope,) = torch.autograd.grad(odds.sum(), x)
    torch.testing.assert_close(slope, torch.ones_like(slope))


@pytest.mark.parametrize("digits", [1, 3, 20])
def test_sums_of_digits(digits: int) -> None:
    torch.manual_seed(digits)
    compare(sums(digits), {"": torch.randn(9, digits, 10, dtype=torch.float64)}, True)


def test_underflow_and_wrong_inputs() -> None:
    n = 60
    layer = lg.Layer(
        lg.parse("goal :- " + ", ".join(f"f{i}" for i in range(n)) + "."),
        [f"f{i}" for i in range(n)],
        "goal",
        semantics="probability",
        from_logits=True,
    ).cuda()
    odds = torch.full((1, n), -30.0, dtype=torch.float64, device="cuda", requires_grad=True)
    value = layer(odds, logits=True)
    assert value.item() == pytest.approx(-30.0 * n)
    (slope,) = torch.autograd.grad(value.sum(), odds)
    torch.testing.assert_close(slope, torch.ones_like(slope))
    mixed = torch.zeros(3, n, device="cuda", requires_grad=True)
    with torch.no_grad():
        mixed[1, 2] = torch.nan
    for track in (True, False):  # one launch for both passes, or one for each
        with torch.set_grad_enabled(track):
            found = layer(mixed, logits=True)
        assert found.isnan().tolist() == [False, True, False]
    (slope,) = torch.autograd.grad(layer(mixed, logits=True).sum(), mixed)
    assert slope[[0, 2]].isfinite().all()


def test_probabilities_that_are_none_are_refused() -> None:
    program = lg.parse("goal :- a, b. #external a. #external b.")
    layer = lg.Layer(program, lg.Categorical(["a", "b"]), "goal", semantics="probability").cuda()
    for wrong in ([0.5, 0.6], [-0.1, 1.1], [torch.nan, 0.5]):
        with pytest.raises(lg.errors.StateError):
            layer(torch.tensor([wrong], device="cuda", requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("from_logits", "logits"), list(product((False, True), repeat=2)))
def test_one_output_has_its_gradient_from_the_same_launch(
    dtype: torch.dtype, from_logits: bool, logits: bool
) -> None:
    torch.manual_seed(3)
    rules = "goal :- x1, y1, f. goal :- x2, y2. goal :- x3, y1."
    inputs = {
        "x": lg.Categorical(["x1", "x2", "x3"]),
        "y": lg.Categorical(["y1", "y2"]),
        "f": ["f"],
    }
    for batch in (0, 1, 6, 130):
        given = {n: torch.randn(batch, k) for n, k in (("x", 3), ("y", 2), ("f", 1))}
        if not from_logits:
            given = {n: x.sigmoid() if n == "f" else x.softmax(-1) for n, x in given.items()}
        results = []
        for device in ("cpu", "cuda"):
            layer = lg.Layer(
                lg.parse(rules), inputs, "goal", semantics="probability", from_logits=from_logits
            ).to(device)
            tensors = {n: x.to(device, dtype).requires_grad_() for n, x in given.items()}
            found = layer(tensors, logits=logits)
            weight = torch.linspace(-1, 2, batch, device=device, dtype=dtype)
            grads = gradients(layer, found.flatten() * weight, list(tensors.values()))
            results.append([x.detach().cpu() for x in (found, *grads)])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
