"""Chains in the rules: run as a tree, they give what the pass and enumeration give."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma.engine import chain, exactness

Step = Callable[[int, int, int], int]  # from the place, the state and the value to the next state


@pytest.fixture(autouse=True)
def every_length() -> Any:
    with pytest.MonkeyPatch.context() as patch:  # also where hypothesis runs a test many times
        patch.setattr(chain, "FEWEST_RULES", 0)
        patch.setattr(chain, "MOST_RULES_ON_CPU", 0)
        yield


def test_on_a_cpu_a_short_chain_is_a_pass() -> None:
    tree = sum_of(4, 7)
    assert "on a CPU" not in str(tree.plan())
    x = torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(0))
    expected = tree(x, logits=True)
    assert "sum_product" not in vars(tree.rules.methods)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "MOST_RULES_ON_CPU", 10_000)
        assert "on a CPU by one sum-product pass" in str(tree.plan())
        torch.testing.assert_close(tree(x, logits=True), expected)
    assert "sum_product" in vars(tree.rules.methods)


def automaton(n: int, values: int, step: Step, *, label: bool) -> tuple[lg.Program, list[int]]:
    """The rules of a chain from state 0, and the states that it can end in."""
    rules, states = [], {0}
    for i in range(n):
        after = set()
        for s in sorted(states):
            for v in range(values):
                t = step(i, s, v)
                if t >= 0:
                    after.add(t)
                    body = [f"digit({i},{v})"] + [f"state({i},{s})"] * (i > 0)
                    rules.append((f"state({i + 1},{t})", body))
        states = after
    if label:
        rules += [("right", [f"state({n},{s})", f"label({s})"]) for s in sorted(states)]
    return lg.Program.from_rules(rules), sorted(states)


def layer(n: int, values: int, step: Step, *, label: bool, **options: Any) -> lg.Layer:
    program, last = automaton(n, values, step, label=label)
    inputs: dict[str, Any] = {
        "digits": lg.Categorical([[f"digit({i},{v})" for v in range(values)] for i in range(n)])
    }
    outputs: Any = [f"state({n},{s})" for s in last]
    if label:
        inputs["label"] = lg.Categorical([f"label({s})" for s in last])
        outputs = ["right"]
    options = {"semantics": "probability", "from_logits": True} | options
    return lg.Layer(program, inputs, outputs, **options)


def compare(
    n: int, values: int, step: Step, dtype: torch.dtype, *, label: bool, soft: bool = False
) -> str:
    """Check values, log-odds and gradients against the pass; return what the plan says."""
    tree = layer(n, values, step, label=label)
    passed = layer(n, values, step, label=label, inference=lg.Inference(method="pass"))
    generator = torch.Generator().manual_seed(n * values)
    x = (2 * torch.randn(5, n, values, generator=generator)).to(dtype).requires_grad_()
    given = {"digits": x}
    if label:
        size = tree.inputs[1].shape[-1]
        place = torch.randint(size, (5,), generator=generator)
        sharp = torch.where(place[:, None] == torch.arange(size), 0.0, -1e4).to(dtype)
        given["label"] = torch.randn(5, size, generator=generator).to(dtype) if soft else sharp
    close = 1e-9 if dtype == torch.float64 else 2e-4
    for logits in (False, True):
        found, expected = (made(given, logits=logits) for made in (tree, passed))
        torch.testing.assert_close(found, expected, atol=close, rtol=close)
        weight = torch.randn(found.shape, generator=generator).to(dtype)
        slopes = [
            torch.autograd.grad(made(given, logits=logits), x, weight)[0] for made in (tree, passed)
        ]
        torch.testing.assert_close(*slopes, atol=close, rtol=close)
    assert tree({name: tensor[:0] for name, tensor in given.items()}).shape == (0, *found.shape[1:])
    return str(tree.plan())


CHAINS: list[tuple[str, int, int, Step, bool, str]] = [
    ("sum", 9, 4, lambda i, s, v: s + v, True, "sums by FFT"),
    ("weighted sum", 7, 3, lambda i, s, v: s + max(i, 1) * v, True, "sums by FFT"),
    # Two layers do not say here how far apart the first states are, but their names do.
    ("weights from 1 on", 7, 3, lambda i, s, v: s + (i + 1) * v, True, "sums by FFT"),
    ("falling sum", 6, 3, lambda i, s, v: s - v + 40, True, "sums by FFT"),
    ("parity", 7, 2, lambda i, s, v: (s + v) % 2, False, "matrices of up to 2 states"),
    ("sum modulo 5", 6, 7, lambda i, s, v: (s + v) % 5, False, "matrices of up to 5 states"),
    ("sum modulo 12", 6, 5, lambda i, s, v: (s + 5 * v) % 12, True, "matrices of up to 12 states"),
    ("sum modulo 40", 9, 10, lambda i, s, v: (s + v) % 40, True, "sums modulo 40 by FFT"),
    ("falling modulo 35", 9, 8, lambda i, s, v: (s - 3 * v) % 35, True, "sums modulo 35 by FFT"),
    ("all remainders", 8, 7, lambda i, s, v: (s + v * v) % 37, False, "sums modulo 37 by FFT"),
    ("all sums", 5, 3, lambda i, s, v: s + v, False, "matrices of up to 11 states"),
    ("maximum", 6, 4, lambda i, s, v: max(s, v), False, "matrices of up to 4 states"),
    ("last two", 6, 3, lambda i, s, v: (3 * s + v) % 9, False, "states"),
    ("sum up to 5", 6, 3, lambda i, s, v: s + v if s + v <= 5 else -1, False, "matrices"),
]


@pytest.mark.parametrize(("name", "n", "values", "step", "label", "said"), CHAINS)
def test_a_tree_gives_what_the_pass_gives(
    name: str, n: int, values: int, step: Step, label: bool, said: str
) -> None:
    assert said in compare(n, values, step, torch.float64, label=label), name
    compare(n, values, step, torch.float32, label=label)


def test_a_label_may_be_soft() -> None:
    assert "FFT" in compare(6, 4, lambda i, s, v: s + v, torch.float64, label=True, soft=True)


def sum_of(n: int, program_label: int, **options: Any) -> lg.Layer:
    """A layer from n digits to one of their sums."""
    program, _ = automaton(n, 10, lambda i, s, v: s + v, label=False)
    digits = lg.Categorical([[f"digit({i},{v})" for v in range(10)] for i in range(n)])
    options = {"semantics": "probability", "from_logits": True} | options
    return lg.Layer(program, digits, [f"state({n},{program_label})"], **options)


@pytest.mark.quick_first
@pytest.mark.parametrize(("total", "below"), [(0, -338), (60, -90), (357, -270)])
def test_far_in_the_tails_nothing_is_lost(total: int, below: float) -> None:
    n = 40
    layer = sum_of(n, total)
    assert "FFT" in str(layer.plan())
    x = 6 * torch.randn(2, n, 10, generator=torch.Generator().manual_seed(1)).double()
    logs = x.log_softmax(-1).numpy()
    expected = []
    for row in logs:  # plain convolution of logarithms
        state = np.zeros(1)
        for part in row:
            terms = [
                np.pad(state + p, (v, 9 - v), constant_values=-np.inf) for v, p in enumerate(part)
            ]
            state = np.logaddexp.reduce(terms)
        expected.append(state[total])
    assert min(expected) < below
    x.requires_grad_()
    found = layer(x, logits=True)[:, 0]
    # Log-odds of a tiny probability are its logarithm.
    assert found.tolist() == pytest.approx(
        [p - math.log1p(-math.exp(p)) for p in expected], rel=1e-11
    )
    (slope,) = torch.autograd.grad(found.sum(), x)
    single = x.detach().float().requires_grad_()
    value = layer(single, logits=True)[:, 0]
    (rounded,) = torch.autograd.grad(value.sum(), single)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), found, rtol=1e-6, atol=2e-4)
    torch.testing.assert_close(rounded.double(), slope, rtol=1e-4, atol=1e-5)
    assert "sum_product" not in vars(layer.rules.methods)  # nothing was left to the pass
    # Each digit's slopes sum to zero, and moving all mass to zero is what the sum 0 asks for.
    assert slope.sum(-1).abs().max() < 1e-9
    if total == 0:
        assert (slope[..., 0] > 0).all()


def test_a_sum_that_is_impossible_has_probability_zero() -> None:
    layer = sum_of(6, 3)
    x = torch.full((2, 6, 10), -torch.inf)
    x[0, :, ::2] = 0.0  # even digits only
    x[1] = 0.0
    expected = sum_of(6, 3, inference=lg.Inference(method="pass"))
    assert layer(x)[0] == 0
    torch.testing.assert_close(layer(x), expected(x))
    torch.testing.assert_close(layer(x, logits=True), expected(x, logits=True))


def test_products_that_underflow_are_left_to_the_pass() -> None:
    n = 40
    largest = layer(n, 2, lambda i, s, v: max(s, v), label=False)
    assert "matrices" in str(largest.plan())
    x = torch.zeros(1, n, 2, dtype=torch.float64)
    x[..., 0] = -25.0  # a value of 0 has the probability e^-25 / (1 + e^-25)
    logs = n * (-25.0 - math.log1p(math.exp(-25.0)))
    assert largest(x, logits=True)[0, 0].item() == pytest.approx(logs, rel=1e-12)


def remainder_of(n: int, m: int, values: int, **options: Any) -> lg.Layer:
    """A layer from n + 1 digits to the remainder of their sum: the last is read after the sum."""

    def step(i: int, s: int, v: int) -> int:
        return (s + v) % m if i == n else s + v

    program, _ = automaton(n + 1, values, step, label=False)
    digits = lg.Categorical([[f"digit({i},{v})" for v in range(values)] for i in range(n + 1)])
    options = {"semantics": "probability", "from_logits": True} | options
    return lg.Layer(program, digits, [f"state({n + 1},{r})" for r in range(m)], **options)


@pytest.mark.parametrize("on_cpu", [0, 10_000])
def test_the_pass_of_a_chain_needs_no_other_proof(on_cpu: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "MOST_RULES_ON_CPU", on_cpu)
        patch.setattr(exactness, "_MOST_PAIRS", 10)
        tree = remainder_of(5, 3, 3)
        assert "FFT" in str(tree.plan())
        every = remainder_of(5, 3, 3, inference=lg.Inference(method="table"))
        x = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0)).double()
        x[0] += 60 * torch.eye(3)[torch.tensor([0, 2, 1, 1, 0, 2])]  # almost certain
        if not on_cpu:
            x[1, :, 2] = -torch.inf  # doubtful for the tree
        x.requires_grad_()
        torch.testing.assert_close(tree(x), every(x))
        found, expected = tree(x, logits=True), every(x, logits=True)
        kept = expected < (torch.inf if on_cpu else 10)  # the tree rounds larger ones
        torch.testing.assert_close(found[kept], expected[kept])
        assert expected.max() > 50
        slopes = [torch.autograd.grad(made[1:].sum(), x)[0][1:] for made in (tree(x), every(x))]
        torch.testing.assert_close(*slopes)


def test_an_example_is_tilted_as_if_it_were_alone() -> None:
    """Many sums have one parity: tilted far to one of them, the others would lose their digits."""
    tree = remainder_of(5, 2, 3)
    generator = torch.Generator().manual_seed(3)
    x = 14 * torch.eye(3).double()[torch.randint(3, (32, 6), generator=generator)]
    x += torch.randn(32, 6, 3, generator=generator)
    bias = (1 - 2 * x.softmax(2)[:, :, 1]).prod(1)  # P(even) - P(odd)
    expected = torch.log1p(bias) - torch.log1p(-bias)
    torch.testing.assert_close(tree(x, logits=True)[:, 0], expected, rtol=1e-8, atol=0)


def test_independent_facts_and_their_negations_are_values() -> None:
    rules = ["even(1) :- not x(0).", "odd(1) :- x(0)."]
    for i in range(1, 6):
        rules += [
            f"even({i + 1}) :- even({i}), not x({i}).",
            f"odd({i + 1}) :- odd({i}), not x({i}).",
        ]
        rules += [f"even({i + 1}) :- odd({i}), x({i}).", f"odd({i + 1}) :- even({i}), x({i})."]
    facts = [f"x({i})" for i in range(6)]
    tree = lg.Layer(
        lg.parse("\n".join(rules)), facts, ["even(6)", "odd(6)"], semantics="probability"
    )
    assert "matrices of up to 2 states" in str(tree.plan())
    p = torch.rand(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    even = (1 + (1 - 2 * p).prod(1)) / 2
    torch.testing.assert_close(tree(p), torch.stack((even, 1 - even), 1))


def test_the_start_may_be_a_fact_and_other_rules_are_left_alone() -> None:
    text = "#external d(0..4,0..2). s(0,0). s(I+1,S+D) :- s(I,S), d(I,D). t(9) :- d(0,1), d(1,1)."
    program = lg.datalog.ground(text.replace("0..2)", "0..2). #external d(5,0..1)"))
    inputs = {
        "threes": lg.Categorical([[f"d({i},{v})" for v in range(3)] for i in range(5)]),
        "two": lg.Categorical(["d(5,0)", "d(5,1)"]),  # fewer values than the others
    }
    tree = lg.Layer(program, inputs, ["s(6,3)"], semantics="probability")
    assert "FFT" in str(tree.plan())
    assert tree.plan().idle == ()
    p = {"threes": torch.full((1, 5, 3), 1 / 3), "two": torch.full((1, 2), 1 / 2)}
    assert tree(p).item() == pytest.approx((30 + 15) / 486)


@pytest.mark.parametrize("score", [30.0, 1e4, math.inf])
def test_a_soft_label_of_a_sum_that_is_certain(score: float) -> None:
    """The likeliest label is not the sum: from there the sum would be tilted out of sight."""
    tree, passed = (
        layer(6, 3, lambda i, s, v: s + v, label=True, inference=how)
        for how in (lg.Inference(), lg.Inference(method="pass"))
    )
    assert "FFT" in str(tree.plan())
    generator = torch.Generator().manual_seed(0)
    shown = torch.randint(3, (8, 6), generator=generator)
    given = {
        "digits": torch.where(torch.eye(3)[shown] == 1, 0.0, -score).double(),
        "label": 10 * torch.randn(8, 13, generator=generator).double().requires_grad_(),
    }
    odds = [made(given, logits=True) for made in (tree, passed)]
    torch.testing.assert_close(*odds)
    torch.testing.assert_close(
        *(torch.autograd.grad(part.sum(), given["label"])[0] for part in odds)
    )


@pytest.mark.parametrize("kind", ["sum", "modulo"])
def test_a_tree_can_be_mapped(kind: str) -> None:
    modulus = 100 if kind == "sum" else 3
    program, _ = automaton(4, 3, lambda i, s, v: (s + v) % modulus, label=False)
    inputs = lg.Categorical([[f"digit({i},{v})" for v in range(3)] for i in range(4)])
    tree = lg.Layer(program, inputs, "state(4,2)", semantics="probability", from_logits=True)
    assert ("FFT" if kind == "sum" else "matrices") in str(tree.plan())
    x = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(torch.func.vmap(tree)(x[:, None])[:, 0], tree(x))
    each = torch.func.vmap(torch.func.grad(lambda one: tree(one[None], logits=True).sum()))(x)
    x.requires_grad_()
    torch.testing.assert_close(each, torch.autograd.grad(tree(x, logits=True).sum(), x)[0])


@pytest.mark.parametrize(
    "worths",
    [
        [(5, 1, 10, 25)] * 4,  # coins
        [tuple(range(0, 50, 10)), tuple(range(5))] * 2,  # numbers of two digits
        [(3, -4), (7, 0), (-2, 3), (0, 0)],
    ],
)
def test_sums_whose_numbers_only_their_names_tell(worths: list[tuple[int, ...]]) -> None:
    """The first sums are all different, so the rules alone leave open what is added."""
    n = len(worths)
    program, last = automaton(n, len(worths[0]), lambda i, s, v: s + worths[i][v] + 50, label=True)
    inputs = {
        "digits": lg.Categorical(
            [[f"digit({i},{v})" for v in range(len(worths[0]))] for i in range(n)]
        ),
        "label": lg.Categorical([f"label({s})" for s in last]),
    }
    tree, passed = (
        lg.Layer(program, inputs, "right", semantics="probability", from_logits=True, inference=how)
        for how in (lg.Inference(), lg.Inference(method="pass"))
    )
    assert "FFT" in str(tree.plan())
    assert "FFT" not in str(passed.plan())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(last), n, len(worths[0]), generator=generator, dtype=torch.float64)
    given = {"digits": x.requires_grad_(), "label": 1e3 * torch.eye(len(last)).double()}
    odds = [made(given, logits=True) for made in (tree, passed)]
    torch.testing.assert_close(*odds)
    torch.testing.assert_close(*(torch.autograd.grad(part.sum(), x)[0] for part in odds))


def test_numbers_in_names_are_not_believed() -> None:
    program, last = automaton(3, 2, lambda i, s, v: 10 * s + v, label=False)  # 0, 1, 10, 11, …
    inputs = lg.Categorical([[f"digit({i},{v})" for v in range(2)] for i in range(3)])
    output = f"state(3,{last[3]})"
    tree = lg.Layer(program, inputs, output, semantics="probability")
    assert "FFT" not in str(tree.plan())
    torch.testing.assert_close(tree(torch.full((1, 3, 2), 0.5)), torch.tensor([0.125]))


@pytest.mark.parametrize(
    "rules",
    [
        "b(1) :- a(0,1). b(2) :- b(1), a(1,0). b(2) :- b(1), a(0,0).",  # one variable twice
        "b(1) :- a(0,1). c(1) :- a(0,1). c(2) :- b(1), a(1,0). c(2) :- c(1), a(1,1).",  # two states
        "b(1) :- a(0,1). b(2) :- not b(1), a(1,0).",  # a negated state
        "b(1) :- a(0,1). b(2) :- b(1), a(1,0). b(3) :- b(2).",  # a rule that reads nothing
        "b(1) :- a(0,1). b(2) :- b(1), a(1,0), a(1,1).",  # a rule that reads two values
        "b(1) :- a(0,1). b(2) :- b(1), a(1,0). a(1,0) :- a(0,1).",  # a value that rules derive too
        "b(1) :- a(0,1). b(2) :- b(1), a(1,0). a(1,0).",  # and one that is a fact
    ],
)  # fmt: skip
def test_what_is_no_chain_is_not_run_as_one(rules: str) -> None:
    program = lg.parse(rules + " z :- a(0,0). z :- a(1,1).")
    inputs = lg.Categorical([["a(0,0)", "a(0,1)"], ["a(1,0)", "a(1,1)"]])
    last = next(atom for atom in ("b(3)", "c(2)", "b(2)") if atom in program.index)
    tree = lg.Layer(program, inputs, [last], semantics="probability")
    assert tree.rules.methods.chain is None  # type: ignore[union-attr]
    every = lg.Layer(
        program, inputs, [last], semantics="probability", inference=lg.Inference(method="table")
    )
    x = torch.tensor([[[0.3, 0.7], [0.6, 0.4]]], dtype=torch.float64)
    torch.testing.assert_close(tree(x), every(x))


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (lambda i, s, v: (s + v) % 2, "matrices of up to 2 states"),
        (lambda i, s, v: max(s, v), "matrices"),
    ],
)
def test_gradients_are_right_where_a_value_is_certain(step: Step, kind: str) -> None:
    program, last = automaton(4, 3, step, label=False)
    inputs = lg.Categorical([[f"digit({i},{v})" for v in range(3)] for i in range(4)])
    outputs = [f"state(4,{s})" for s in last]
    tree, passed = (
        lg.Layer(program, inputs, outputs, semantics="probability", inference=how)
        for how in (lg.Inference(), lg.Inference(method="pass"))
    )
    assert kind in str(tree.plan())
    generator = torch.Generator().manual_seed(0)
    x = torch.eye(3)[torch.randint(3, (6, 4), generator=generator)].double().requires_grad_()
    weight = torch.randn(6, len(outputs), generator=generator).double()
    slopes = [torch.autograd.grad(made(x), x, weight)[0] for made in (tree, passed)]
    torch.testing.assert_close(*slopes, atol=1e-9, rtol=1e-9)
    assert slopes[0].abs().max() > 0.1


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_random_automata_agree_with_all_worlds(data: st.DataObject) -> None:
    n, values, size = (data.draw(st.integers(2, most)) for most in (5, 3, 4))
    entry = st.integers(-1, size - 1)
    table: Sequence[Sequence[Sequence[int]]] = [
        [[data.draw(entry) for _ in range(values)] for _ in range(size)] for _ in range(n)
    ]
    program, last = automaton(n, values, lambda i, s, v: table[i][s][v], label=False)
    if not last:
        return
    digits = lg.Categorical([[f"digit({i},{v})" for v in range(values)] for i in range(n)])
    if not {str(name) for name in digits.atoms.flat} <= set(program.index):
        return
    outputs = [f"state({n},{s})" for s in last]
    options: dict[str, Any] = {"semantics": "probability", "from_logits": True}
    tree = lg.Layer(program, digits, outputs, **options)
    worlds = lg.Layer(program, digits, outputs, inference=lg.Inference(method="table"), **options)
    assert tree.rules.methods.chain is not None  # type: ignore[union-attr]
    x = torch.randn(2, n, values, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(tree(x), worlds(x))


def test_second_derivatives_and_pickles_work() -> None:
    tree = layer(4, 3, lambda i, s, v: s + v, label=True)
    again = pickle.loads(pickle.dumps(tree))
    assert str(again.plan()) == str(tree.plan())
    given = {"digits": torch.zeros(1, 4, 3), "label": torch.zeros(1, 9)}
    assert again(given).tolist() == tree(given).tolist()
    program, _ = automaton(4, 3, lambda i, s, v: s + v, label=False)
    digits = lg.Categorical([[f"digit({i},{v})" for v in range(3)] for i in range(4)])
    one = lg.Layer(program, digits, ["state(4,3)"], semantics="probability", from_logits=True)
    x = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0)).double()
    assert torch.autograd.gradgradcheck(one, x.requires_grad_())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_holds_a_tree() -> None:
    tree = layer(12, 10, lambda i, s, v: s + v, label=True)
    x = torch.randn(3, 12, 10, generator=torch.Generator().manual_seed(0))
    label = torch.where(torch.tensor([[30], [54], [80]]) == torch.arange(109), 0.0, -1e4)
    expected = tree({"digits": x, "label": label}, logits=True)
    on_device = {"digits": x.cuda(), "label": label.cuda()}
    tree = tree.cuda()
    for _ in range(2):
        tree(on_device, logits=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = tree(on_device, logits=True)
    graph.replay()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["incomplete", "label"])
def test_scores_of_hundreds(kind: str) -> None:
    """Probabilities below 1e-308 decide here: in a matrix, and of the label that is read."""

    def step(i: int, s: int, v: int) -> int:
        return (3 * s + v) % 5 - 1 if i else v  # -1 is no state

    def made(how: str) -> lg.Layer:
        options = {"inference": lg.Inference(method=how)}  # type: ignore[arg-type]
        if kind == "incomplete":
            return layer(12, 4, step, label=False, **options)
        return layer(5, 4, lambda i, s, v: s + v, label=True, **options)

    tree, passed = made("auto"), made("pass")
    assert ("matrices" if kind == "incomplete" else "FFT") in str(tree.plan())
    generator = torch.Generator().manual_seed(0)
    given = {
        group.name: 1000 * torch.randn(50, *group.shape, generator=generator).double()
        for group in tree.inputs
    }
    for part in given.values():
        part.requires_grad_()
    odds = [made(given, logits=True) for made in (tree, passed)]
    likely = odds[1] > 10  # which a tree rounds
    odds = [torch.where(likely, 0.0, part) for part in odds]
    torch.testing.assert_close(*odds, rtol=1e-9, atol=1e-9)
    slopes = [torch.autograd.grad(part.sum(), list(given.values())) for part in odds]
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-6)


def test_a_certain_label_far_in_the_tails_needs_no_pass() -> None:
    """Sums that the label all but excludes would hide the others where they are likely."""
    n = 60
    tree = layer(n, 10, lambda i, s, v: s + v, label=True)
    x = torch.zeros(2, n, 10, dtype=torch.float64)
    x[..., 9] = 40.0
    label = torch.where(torch.tensor([[0], [200]]) == torch.arange(9 * n + 1), 0.0, -1e4).double()
    odds = tree({"digits": x, "label": label}, logits=True)[:, 0]
    assert odds[0].item() == pytest.approx(-40.0 * n, rel=1e-12)
    assert odds[1].item() == pytest.approx(-40.0 * n, rel=0.5)
    assert "sum_product" not in vars(tree.rules.methods)


def test_likely_remainders_need_no_pass() -> None:
    def step(i: int, s: int, v: int) -> int:
        return (s + 7 * v) % 97

    tree = layer(20, 10, step, label=False)
    x = torch.randn(4, 20, 10, generator=torch.Generator().manual_seed(0)).double()
    found = tree(x)
    expected = torch.zeros(4, 97, dtype=torch.float64)
    expected[:, 0] = 1.0
    for p in x.softmax(2).unbind(1):
        expected = sum(p[:, [v]] * expected.roll(7 * v, 1) for v in range(10))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    assert "sum_product" not in vars(tree.rules.methods)
