"""Probabilities at the edges of what may be given: dtypes, empty batches, ties, rare evidence."""

import gc
import math
import weakref
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.engine import exactness

MAJORITY = "o :- a, b. o :- b, c. o :- a, c."
INPUTS = ["a", "b", "c"]


def sampled(**options: int) -> lg.Layer:
    inference = lg.Inference(method="sample", **options)
    return lg.Layer(lg.parse(MAJORITY), INPUTS, "o", semantics="probability", inference=inference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_samples_are_unbiased_in_every_dtype(dtype: torch.dtype) -> None:
    p = torch.tensor([[0.003, 1.0, 0.0]], dtype=dtype).expand(64, 3)
    expected = float(p[0, 0])
    found = float(sampled(worlds=4096, seed=0)(p).double().mean())
    assert abs(found - expected) < 4 * math.sqrt(expected / (64 * 4096))


@pytest.mark.slow
def test_what_is_almost_impossible_is_almost_never_sampled() -> None:
    # A uniform number in float32 is 0 once in 2^24 draws.
    p = torch.tensor([[1e-12, 1.0, 0.0]]).expand(1024, 3)
    assert float(sampled(worlds=1 << 15, seed=0)(p).sum()) == 0


@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("text", ["o :- a, b.", MAJORITY])
def test_an_empty_batch_has_a_gradient(text: str, logits: bool, from_logits: bool) -> None:
    program = lg.parse(text)
    inputs = INPUTS[: program.M - 1]
    layer = lg.Layer(program, inputs, "o", semantics="probability", from_logits=from_logits)
    x = torch.zeros(0, len(inputs), requires_grad=True)
    value = layer(x, logits=logits)
    value.sum().backward()
    assert value.shape == (0,)
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_outputs_are_freed_without_the_garbage_collector() -> None:
    layer = lg.Layer(lg.parse("o :- a, b."), ["a", "b"], "o", semantics="probability")
    gc.disable()
    try:
        value = layer(torch.rand(4, 2, requires_grad=True))
        value.sum().backward()
        seen = weakref.ref(value)
        del value
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("method", ["pass", "table"])
@pytest.mark.parametrize("from_logits", [False, True])
def test_small_soft_facts_keep_their_value(method: str, from_logits: bool) -> None:
    layer = lg.Layer(
        lg.parse("o :- a, k."),
        "a",
        "o",
        semantics="probability",
        facts={"k": 1e-30},
        from_logits=from_logits,
        inference=lg.Inference(method=method),  # type: ignore[arg-type]
    )
    x = torch.tensor([0.0 if from_logits else 0.5], dtype=torch.float64)
    assert float(layer(x)) == pytest.approx(5e-31, rel=1e-12, abs=0)


def test_a_seed_out_of_range_is_refused() -> None:
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(lg.errors.ArgumentError, match="seed must be a whole number from -"):
            lg.Inference(seed=seed)
    for seed in (2**64 - 1, -(2**63)):
        sampled(seed=seed)(torch.rand(2, 3))


def test_atoms_that_are_never_true_have_no_log_probabilities() -> None:
    program = lg.parse("x :- a. y :- b. #external b. #external c.")
    for given in (lg.Categorical(["y", "b"]), {"g": lg.Categorical([["x", "a"], ["y", "c"]])}):
        layer = lg.Layer(program, "a", given, semantics="probability")
        layer({"": torch.tensor([0.5])})
        with pytest.raises(lg.errors.ModelError, match="can be true"):
            layer(torch.tensor([0.5]), logits=True)
    some = lg.Layer(program, "a", lg.Categorical(["x", "y"]), semantics="probability")
    found = some(torch.tensor([0.5]), logits=True)
    torch.testing.assert_close(found, torch.tensor([[0.0, -torch.inf]]))


@pytest.mark.parametrize("method", ["auto", "table"])
@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("b :- a. c :- a.", {"a": False}),  # the evidence leaves no value
        ("e :- a. b :- a, not e. c :- a, not e.", {}),  # no world has one
        ("b :- e. c :- e. #external e. d :- a.", {"d": True}),  # no rule can fire
    ],
)
def test_a_categorical_output_without_a_value_is_refused_and_never_nan(
    method: Any, text: str, evidence: dict[str, bool]
) -> None:
    layer = lg.Layer(
        lg.parse(text + "#external z."),
        ["a", "z"],
        lg.Categorical(["b", "c"]),
        semantics="probability",
        inference=lg.Inference(method=method),
        evidence=evidence or None,
    )
    x = torch.tensor([[0.3, 0.5], [0.5, 0.5]])
    assert layer(x).tolist() == [[0.0, 0.0]] * 2
    with pytest.raises(lg.errors.ModelError, match="outputs of the layer can be true"):
        layer(x, logits=True)
    if "d" in evidence:
        assert layer.plan().always_false == ("b", "c")
        with pytest.raises(lg.errors.ModelError, match="names outputs that are always false"):
            layer(x, logits=True)


def test_certain_inputs_are_in_no_proof_that_does_not_need_them() -> None:
    program = lg.parse("o :- a, b. o :- a, c. c :- a.")
    layer = lg.Layer(program, ["a", "b"], "o", semantics="probability")
    found = layer.proofs(torch.tensor([0.25, 1.0]), "o")
    assert [(proof.facts, proof.probability) for proof in found] == [(("a",), 0.25)]


def test_proofs_take_one_example() -> None:
    layer = lg.Layer(lg.parse(MAJORITY), INPUTS, "o", semantics="probability")
    with pytest.raises(lg.errors.StateError, match="proofs takes one example"):
        layer.proofs(torch.rand(2, 3), "o")


def test_a_plan_counts_the_cycles_of_the_rules() -> None:
    rules = "r(1) :- r(2), e(2,1). r(2) :- r(1), e(1,2). r(1) :- a. o :- a, not b."
    inputs = ["a", "b", "e(2,1)", "e(1,2)"]
    for text, outputs, cycles in (
        (rules, ["r(2)", "o"], 1),
        (rules + "x :- y, a. y :- x.", ["r(2)"], 2),
        (rules.replace(", not b", ""), ["r(1)"], 1),
        (rules, ["o"], 0),
    ):
        program = lg.parse(text + "#external b.")
        layer = lg.Layer(program, inputs, outputs, semantics="probability")
        assert layer.plan().cycles == cycles
        assert ("no cycles" in str(layer.plan())) == (cycles == 0)


# ------------------------------------------------------------------------ modes of torch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("evidence", [None, {"q": False}])
def test_training_after_inference_mode(
    evidence: dict[str, bool] | None, logits: bool, dtype: torch.dtype
) -> None:
    program = lg.parse(MAJORITY + "q :- a, b. r :- a, d.")
    inputs = [*INPUTS, "d"]
    layer = lg.Layer(program, inputs, ["o", "r"], semantics="probability", evidence=evidence)
    x = torch.tensor([[1e-30, 0.3, 0.6, 1e-30]], dtype=dtype)  # logarithms need the log domain
    with torch.inference_mode():
        seen = layer(x, logits=logits)
    x.requires_grad_()
    value = layer(x, logits=logits)
    value.sum().backward()
    torch.testing.assert_close(value.detach(), seen.clone())
    assert x.grad is not None


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch reads it at a graph break
@pytest.mark.parametrize("method", ["pass", "table", "sample"])
def test_layers_may_be_part_of_what_is_compiled(method: str) -> None:
    inference = lg.Inference(method=method, seed=0)  # type: ignore[arg-type]
    layer = lg.Layer(
        lg.parse("o :- a, b."), ["a", "b"], "o", semantics="probability", inference=inference
    )
    compiled = torch.compile(lambda x: layer(x * 2) + 1, backend="eager")
    x = torch.tensor([[0.5, 0.25], [0.5, 0.5]], requires_grad=True)
    value = compiled(x)
    value.sum().backward()
    assert x.grad is not None
    if method != "sample":
        torch.testing.assert_close(value, torch.tensor([1.5, 2.0]))
        torch.testing.assert_close(x.grad, torch.tensor([[1.0, 2.0], [2.0, 2.0]]))


@pytest.mark.parametrize("method", ["pass", "table", "sample"])
def test_transforms_are_right_or_refused(method: str) -> None:
    inference = lg.Inference(method=method)  # type: ignore[arg-type]
    layer = lg.Layer(
        lg.parse("o :- a, b."), ["a", "b"], "o", semantics="probability", inference=inference
    )
    x = torch.tensor([[0.25, 0.75]])
    slope = torch.func.grad(lambda x: layer(x).sum())
    if method != "sample":
        torch.testing.assert_close(slope(x), torch.tensor([[0.75, 0.25]]))
    else:
        with pytest.raises(lg.errors.ModelError, match=r"torch\.func"):
            slope(x)


# ------------------------------------------------------------------------ evidence

RING = 13


def ring(evidence: dict[str, bool], **options: int | str) -> lg.Layer:
    """Whether two neighbours in a ring are true: 2^13 worlds, and no pass."""
    pairs = [("o", [f"c{i}", f"c{(i + 1) % RING}"]) for i in range(RING)]
    rest = [("e", ["x", "y"]), ("e", ["c0", "x"])]
    return lg.Layer(
        lg.Program.from_rules([*pairs, *rest]),
        [*(f"c{i}" for i in range(RING)), "x", "y"],
        ["o", "c0"],
        semantics="probability",
        evidence=evidence,
        inference=lg.Inference(**options),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("rare", [1e-3, 1e-8, 1e-13])
def test_rare_evidence_keeps_its_digits_within_the_budget(rare: float) -> None:
    p = torch.full((1, RING + 2), 0.3, dtype=torch.float64)
    p[0, RING] = 1 - rare
    layer = ring({"x": False})
    assert layer.plan().exact
    assert "differences" not in str(layer.plan())
    # No two neighbours of a ring: the trace of a product of matrices.
    none = np.linalg.matrix_power(np.array([[0.7, 0.7], [0.3, 0.0]]), RING).trace()
    torch.testing.assert_close(
        layer(p), torch.tensor([[1 - none, 0.3]], dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_beyond_the_budget_a_diagram_of_the_evidence_is_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exactness, "_MOST_CASES", 0)
    program = lg.Program.from_rules([("h", ["g0", "z0"]), ("h", ["g1", "z1"]), ("o", ["w"])])
    layer = lg.Layer(
        program,
        {"g": lg.Categorical(["g0", "g1"]), "z": ["z0", "z1", "w"]},
        "o",
        semantics="probability",
        evidence={"h": False},
        inference=lg.Inference(budget=2),
    )
    assert "decision diagram" in str(layer.plan())
    given = {
        "g": torch.tensor([[0.5, 0.5]]).double(),
        "z": torch.tensor([[0.5, 0.7, 0.2]]).double(),
    }
    torch.testing.assert_close(layer(given), torch.tensor([0.2]).double())
    given["z"][:, :2] = 1
    with pytest.raises(lg.errors.StateError, match=r"has probability zero in example 0$"):
        layer(given)


def test_sampled_evidence_that_is_impossible_is_never_accepted() -> None:
    layer = ring({"o": False, "c0": True, "c1": True}, budget=2, worlds=64, seed=0)
    p = torch.full((1, RING + 2), 0.6, dtype=torch.float64)
    for _ in range(8):
        with pytest.raises(lg.errors.StateError, match="raise worlds="):
            layer(p)


def test_sampled_evidence_is_counted_in_the_same_worlds() -> None:
    layer = ring({"o": False, "e": True}, method="sample", worlds=1 << 16, seed=0)
    p = torch.full((1, RING + 2), 0.2, dtype=torch.float64)
    exact = ring({"o": False, "e": True})
    assert exact.plan().exact
    found = layer(p)
    assert float(found[0, 0]) == 0  # "o" is known to be false
    torch.testing.assert_close(found, exact(p), rtol=0, atol=0.02)


def test_many_atoms_may_be_known_to_be_false() -> None:
    names = [f"c{n}" for n in range(10)]
    program = lg.Program.from_rules([("o", [name]) for name in names])
    known = dict.fromkeys(names[:9], False)
    for method in ("auto", "pass"):
        layer = lg.Layer(
            program,
            names,
            "c9",
            semantics="probability",
            evidence=known,
            inference=lg.Inference(method=method),
        )
        torch.testing.assert_close(layer(torch.full((1, 10), 0.4)), torch.tensor([0.4]))


@pytest.mark.parametrize("method", ["auto", "table", "sample"])
def test_evidence_about_programs_with_negation(method: str) -> None:
    # An alarm, unless it is a test; a call if there is an alarm and nobody says "no call".
    program = lg.parse("alarm :- smoke, not test. alarm :- heat. call :- alarm, not quiet.")
    inputs = ["smoke", "heat", "test", "quiet"]
    p = torch.tensor([0.3, 0.2, 0.4, 0.1], dtype=torch.float64)
    inference = lg.Inference(method=method, worlds=1 << 16, seed=0)  # type: ignore[arg-type]
    layer = lg.Layer(
        program,
        inputs,
        ["test", "quiet", "alarm"],
        semantics="probability",
        evidence={"call": False, "smoke": True},
        inference=inference,
    )
    total, found = 0.0, np.zeros(3)
    for smoke, heat, test, quiet in product((0, 1), repeat=4):
        world = torch.tensor([smoke, heat, test, quiet]).double()
        weight = float((p * world + (1 - p) * (1 - world)).prod())
        alarm = (smoke and not test) or heat
        if smoke and not (alarm and not quiet):
            total += weight
            found += weight * np.array([test, quiet, float(alarm)])
    tolerance = 0.03 if method == "sample" else 1e-12
    np.testing.assert_allclose(layer(p[None])[0], found / total, rtol=0, atol=tolerance)


@pytest.mark.parametrize("cases", [0, 1000])
def test_a_pass_does_not_hide_that_evidence_is_impossible(
    cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactness, "_MOST_CASES", cases)
    program = lg.parse("h :- g0, x. h :- g1, y. s :- w, not h.")
    options = {"semantics": "probability", "evidence": {"h": False}}
    inputs = {"g": lg.Categorical(["g0", "g1"]), "c": ["x", "y", "w"]}
    if not cases:
        with pytest.raises(lg.errors.ModelError, match="one minus a probability"):
            lg.Layer(program, inputs, "w", inference=lg.Inference(method="pass"), **options)
    layer = lg.Layer(program, inputs, "w", **options)
    given = {"g": torch.tensor([[0.3, 0.7]]), "c": torch.tensor([[1.0, 1.0, 0.5]])}
    with pytest.raises(lg.errors.StateError, match="probability zero"):
        layer(given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_what_log_odds_call_almost_certain_is_not_certain(dtype: torch.dtype) -> None:
    program = lg.parse("o :- x, a. q :- o, b.")
    layer = lg.Layer(
        program,
        ["x", "a", "b"],
        "a",
        semantics="probability",
        evidence={"o": False, "a": True},
        from_logits=True,
    )
    odds = torch.tensor([[24.0, 0.0, 0.0]], dtype=dtype)
    assert float(layer(odds)) == 1
    whole = lg.Layer(program, ["x", "a", "b"], "q", semantics="probability", from_logits=True)
    odds = torch.tensor([[-120.0, 0.0, 0.0]], dtype=dtype)
    torch.testing.assert_close(whole.posterior(odds, "q"), torch.ones(1, 3, dtype=dtype))
    assert whole.posterior(odds, "q").dtype == whole.estimate(odds)[0].dtype == dtype
    with pytest.raises(lg.errors.StateError, match="or one too small"):
        whole.posterior(10 * odds, "q")
    either = lg.parse("c :- a, not b. c :- b, not a.")
    layer = lg.Layer(either, ["a", "b"], "c", semantics="probability", from_logits=True)
    odds = torch.tensor([[60.0, 60.0]], dtype=dtype)  # one of two almost certain inputs is false
    torch.testing.assert_close(layer.posterior(odds, "c"), torch.full((1, 2), 0.5, dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "table"])
@pytest.mark.parametrize("far", [20.0, 38.0, 60.0])
def test_evidence_that_contradicts_almost_certain_inputs(method: str, far: float) -> None:
    """Of x at -far and y at far, one is not so: given a, x and y are as likely as each other."""
    program = lg.parse("a :- not x, not y. a :- z, x.")
    names = ["x", "y", "z"]
    layer = lg.Layer(
        program, names, names, semantics="probability", from_logits=True, evidence={"a": True},
        inference=lg.Inference(method=method),
    )  # fmt: skip
    found = layer(torch.tensor([[-far, far, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(
        found, torch.tensor([[1, 1, 2]], dtype=torch.float64) / 3, rtol=1e-8, atol=0
    )
    with pytest.raises(lg.errors.StateError, match="probability zero"):
        layer(torch.tensor([[-torch.inf, torch.inf, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("budget", [1 << 16, 1])
def test_infinite_log_odds_are_certain_given_evidence(budget: int, dtype: torch.dtype) -> None:
    program = lg.parse("c :- a, b. c :- d, a. e :- b, a. e :- d, b.")
    layer = lg.Layer(
        program, ["a", "b", "d"], ["c", "b", "e"], semantics="probability", from_logits=True,
        evidence={"a": False}, inference=lg.Inference(budget=budget),
    )  # fmt: skip
    assert (layer.rules.diagram is not None) == (budget == 1)
    # Evidence that is unlikely, beside an example with inputs that are certain.
    x = torch.tensor([[40.0, 0.5, 1.0], [0.0, torch.inf, -torch.inf]], dtype=dtype)
    b, d = torch.sigmoid(torch.tensor([0.5, 1.0])).tolist()
    expected = torch.tensor([[0.0, b, b * d], [0.0, 1.0, 0.0]], dtype=dtype)
    assert torch.allclose(layer(x), expected, atol=0.004)
    assert torch.equal(layer(x)[0], layer(x[:1])[0])
    x[1, 0] = torch.inf
    for logits in (False, True):
        with pytest.raises(lg.errors.StateError, match="probability zero in example 1"):
            layer(x, logits=logits)


def test_an_empty_batch_has_no_evidence() -> None:
    for budget in (1, 1 << 16):
        layer = ring({"x": False}, budget=budget)
        assert layer(torch.zeros(0, RING + 2)).shape == (0, 2)


def test_tables_with_evidence_have_second_derivatives() -> None:
    layer = lg.Layer(
        lg.parse("o :- a, b."),
        ["a", "b"],
        "a",
        semantics="probability",
        evidence={"o": False},
        inference=lg.Inference(method="table"),
    )
    p = torch.tensor([[0.3, 0.4]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (p,))
