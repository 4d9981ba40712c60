"""Probabilities are compared with a sum over all worlds, which closes one world at a time."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.engine.exactness import Variables
from latentgamma.engine.execute import run
from latentgamma.engine.probability import ProbabilityMethods, choose_methods, likely_proofs
from latentgamma.engine.reference import LOG
from latentgamma.errors import ArgumentError, ModelError
from random_programs import random_program


def over_all_worlds(program: lg.Program, variables: Variables, p, outputs) -> np.ndarray:
    """The probability of each output: the reference implementation."""
    place = {int(atom): i for i, atom in enumerate(variables.atoms)}
    choices = [
        [((), 1 - p[place[atom]]), ((atom,), p[place[atom]])] for atom in variables.facts
    ] + [[((atom,), p[place[atom]]) for atom in group] for group in variables.groups]
    total = np.zeros(len(outputs))
    for world in product(*choices):
        facts = np.zeros(program.M, np.bool_)
        facts[[atom for atoms, _ in world for atom in atoms]] = True
        weight = np.prod([q for _, q in world])
        total += weight * lg.closure(program, facts).state[outputs]
    return total


def case(seed: int):
    """A random program with independent facts, sometimes a group, and three outputs."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        size, rules = int(rng.integers(5, 11)), int(rng.integers(2, 12))
        program = lg.generators.random(size, rules, body=(1, 2), seed=seed, acyclic=seed % 4 == 1)
    else:
        program = random_program(seed, atoms=7, rules=int(rng.integers(3, 10)), body=3)
    order = rng.permutation(program.M).tolist()
    facts = int(rng.integers(0, 4))
    groups = [order[facts : facts + int(rng.integers(2, 4))]] if seed % 3 else []
    variables = Variables(tuple(order[:facts]), tuple(map(tuple, groups)))
    p = rng.random(len(variables.atoms))
    for group in groups:
        p[facts : facts + len(group)] /= p[facts : facts + len(group)].sum()
    return program, variables, p, order[::-1][:3]


@pytest.mark.parametrize("method", ["auto", "table"])
@pytest.mark.parametrize("block", range(6))
def test_exact_probabilities_are_sums_over_worlds(method: str, block: int) -> None:
    passed = 0
    for seed in range(50 * block, 50 * block + 50):
        program, variables, p, outputs = case(seed)
        methods = choose_methods(program, variables, outputs, method=method)
        assert methods.exact
        expected = over_all_worlds(program, variables, p, outputs)
        inputs = torch.tensor(p)[None]
        np.testing.assert_allclose(methods.probabilities(inputs)[0], expected, atol=1e-12)
        logs = methods.log_probabilities(inputs.log())[0].exp()
        np.testing.assert_allclose(logs, expected, atol=1e-12)
        passed += len(methods.passed)
    assert (passed > 30) == (method == "auto")


def directions(variables: Variables):
    """Changes of the inputs that keep the sum of every group."""
    n = len(variables.atoms)
    for v in range(len(variables.facts)):
        yield np.eye(n)[v]
    place = len(variables.facts)
    for group in variables.groups:
        for other in range(1, len(group)):
            yield np.eye(n)[place] - np.eye(n)[place + other]
        place += len(group)


@pytest.mark.parametrize("method", ["auto", "table"])
def test_exact_gradients_are_differences_of_probabilities(method: str) -> None:
    checked = 0
    for seed in range(60):
        program, variables, p, outputs = case(seed)
        inputs = torch.tensor(p)[None].requires_grad_()
        value = (
            choose_methods(program, variables, outputs, method=method).probabilities(inputs).sum()
        )
        if not value.requires_grad:
            continue
        (grad,) = torch.autograd.grad(value, inputs)
        for change in directions(variables):
            # The probability is linear in one variable: the difference is exact.
            ends = [over_all_worlds(program, variables, p + h * change, outputs) for h in (1, -1)]
            slope = (ends[0] - ends[1]).sum() / 2
            assert float(grad[0] @ torch.tensor(change)) == pytest.approx(slope, abs=1e-9)
            checked += 1
    assert checked > 60


def addition(digits: int) -> tuple[lg.Program, Variables, list[int]]:
    """Two numbers of so many digits, their sum, and the last carry."""
    rules = []
    for i in range(digits):
        for x, y, c in product(range(10), range(10), (0, 1) if i else (0,)):
            body = [f"a({i},{x})", f"b({i},{y})"] + [f"carry({i},{c})"] * (i > 0)
            rules.append((f"carry({i + 1},{(x + y + c) // 10})", body))
            rules.append((f"sum({i},{(x + y + c) % 10})", body))
    program = lg.Program.from_rules(rules)
    groups = [
        [program.index[f"{name}({i},{d})"] for d in range(10)]
        for i in range(digits)
        for name in "ab"
    ]
    outputs = [program.index[f"sum({i},{d})"] for i in range(digits) for d in range(10)]
    return program, Variables((), tuple(map(tuple, groups))), outputs


def test_a_carry_chain_passes_the_check_and_is_right() -> None:
    digits = 12
    program, variables, outputs = addition(digits)
    methods = choose_methods(program, variables, outputs)
    assert len(methods.passed) == len(outputs)
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(10), 2 * digits)
    value = methods.probabilities(torch.tensor(p.reshape(1, -1)))[0].reshape(digits, 10)
    carry = np.array([1.0, 0.0])
    for i in range(digits):  # the same by convolution
        pair = np.convolve(p[2 * i], p[2 * i + 1])  # of 0 to 18
        total = carry[0] * np.append(pair, 0) + carry[1] * np.append(0, pair)
        np.testing.assert_allclose(value[i], total[:10] + total[10:], atol=1e-12)
        carry = np.array([total[:10].sum(), total[10:].sum()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("logits", [False, True])
def test_the_fused_pass_agrees_with_tables(
    from_logits: bool, logits: bool, dtype: torch.dtype
) -> None:
    # Facts, a group of which one atom is used by no rule, an input that is also derived, constants.
    text = """
        out(0) :- a, g(0), s. out(1) :- b. out(1) :- g(1), a. out(2) :- g(2). out(0) :- t, c.
        alone :- h(0,1), h(1,0), h(2,2), s. alone :- h(0,0), b. always. never :- never.
        seen :- g(3), h(0,2), h(1,1), h(1,2), h(2,0), h(2,1). c :- h(1,1), h(2,0), s, t, b.
        no :- not a, not t, not g(0), not both. both :- b, h(0,0).
    """
    given = torch.Generator().manual_seed(0)
    shapes = {"facts": (3,), "g": (4,), "h": (3, 3)}
    results = []
    for method, fused in (("pass", True), ("table", True), ("table", False)):
        layer = lg.Layer(
            lg.parse(text),
            {
                "facts": ["a", "b", "c"],
                "g": lg.Categorical([f"g({i})" for i in range(4)]),
                "h": lg.Categorical([[f"h({i},{j})" for j in range(3)] for i in range(3)]),
            },
            {
                "one": lg.Categorical([["out(1)", "out(2)"], ["out(2)", "alone"]]),
                "c": ["c", "always", "never", "a", "no"],
            },
            semantics="probability",
            facts={"s": 0.3, "t": 0.9},
            from_logits=from_logits,
            inference=lg.Inference(method=method),
        )
        if not fused:
            layer.rules._can_fuse = False
        for batch in (1, 16, 37):
            given.manual_seed(batch)
            scores = {
                name: torch.randn(batch, *shape, generator=given, dtype=torch.float64)
                for name, shape in shapes.items()
            }
            if not from_logits:
                scores = {
                    name: score.sigmoid() if name == "facts" else score.softmax(-1)
                    for name, score in scores.items()
                }
            inputs = {name: score.to(dtype).requires_grad_() for name, score in scores.items()}
            found = layer(inputs, logits=logits)
            assert found["one"].dtype == dtype
            total = sum(
                (x * torch.linspace(1, 2, x[0].numel()).view(x[0].shape)).sum()
                for x in (found["one"], found["c"][:, [0, 3, 4]])
            )
            facts, *groups = torch.autograd.grad(total, list(inputs.values()))
            # Of the values of a group only those changes matter that keep their sum.
            groups = [grad - grad.mean(-1, keepdim=True) for grad in groups]
            results.append((found["one"].detach(), found["c"].detach(), facts, *groups))
            assert (
                layer.rules.fused(layer, list(inputs.values()), logits, None, layer) is None
            ) != fused
    tolerance = (
        {"rtol": 2e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-13}
    )
    for n, other in enumerate(results[3:]):
        for x, y in zip(results[n % 3], other, strict=True):
            torch.testing.assert_close(x, y, **tolerance)


def test_log_probabilities_hold_where_probabilities_underflow() -> None:
    n = 60
    program = lg.parse("goal :- " + ", ".join(f"f{i}" for i in range(n)) + ".")
    variables = Variables(tuple(program.index[f"f{i}"] for i in range(n)), ())
    methods = choose_methods(program, variables, [program.index["goal"]])
    logs = torch.full((1, n), -30.0, dtype=torch.float64, requires_grad=True)
    value = methods.log_probabilities(logs)
    assert value.item() == pytest.approx(-30.0 * n)
    assert methods.probabilities(logs.exp()).item() == 0.0
    value.sum().backward()
    assert logs.grad is not None
    torch.testing.assert_close(logs.grad, torch.ones_like(logs))


def test_the_check_refuses_what_is_not_exact() -> None:
    program = lg.parse("c :- a. c :- b. d :- c, a. e :- a, b. e :- a, f. p :- q. q :- p. q :- a.")
    names = ["a", "b", "f"]
    variables = Variables(tuple(program.index[n] for n in names), ())
    outputs = [program.index[n] for n in "cdep"]
    methods = choose_methods(program, variables, outputs)
    assert methods.passed == (0,)  # c: its bodies are independent
    reasons = {program.atoms[atom]: reason for atom, reason in methods.reasons.items()}
    assert "depend on the same input" in reasons["d"]
    assert "can fire together" in reasons["e"]
    assert "depends on itself" in reasons["p"]
    with pytest.raises(ModelError, match="no sum-product pass is proved exact for 'd'"):
        choose_methods(program, variables, outputs, method="pass")
    with pytest.raises(ModelError, match="more than the budget of 2"):
        choose_methods(program, variables, outputs, method="table", budget=2)
    assert "estimated from sampled worlds" in str(
        choose_methods(program, variables, outputs, budget=2)
    )


def sampled(program: lg.Program, variables: Variables, outputs: list[int]) -> ProbabilityMethods:
    return choose_methods(program, variables, outputs, method="sample")


def test_sampled_probabilities_and_gradients_are_unbiased() -> None:
    examples, worlds = 2000, 8
    generator = torch.Generator().manual_seed(0)
    checked = 0
    for seed in range(16):
        program, variables, p, outputs = case(seed)
        if not len(p):
            continue
        if seed >= 8:  # a fact that is certainly true or false, a value that is impossible
            facts = len(variables.facts)
            p[:facts] = np.where(np.arange(facts) % 3 < 2, (np.arange(facts) + seed) % 2, p[:facts])
            if variables.groups:
                p[facts + 1] += p[facts]
                p[facts] = 0
        inputs = torch.tensor(p)[None].repeat(examples, 1).requires_grad_()
        value = sampled(program, variables, outputs).probabilities(inputs, worlds, generator)
        expected = over_all_worlds(program, variables, p, outputs)
        error = np.sqrt(np.clip(expected * (1 - expected), 0, 1) / (examples * worlds))
        assert (np.abs(value.detach().mean(0).numpy() - expected) <= 4.5 * error + 1e-12).all()
        (grad,) = torch.autograd.grad(value.sum(), inputs)
        for change in directions(variables):
            along = grad @ torch.tensor(change)
            ends = [over_all_worlds(program, variables, p + h * change, outputs) for h in (1, -1)]
            slope = (ends[0] - ends[1]).sum() / 2
            error = float(along.std()) / examples**0.5
            assert abs(float(along.mean()) - slope) <= 4.5 * error + 1e-12
            checked += 1
    assert checked > 10


def test_the_mean_gradient_of_every_pair_of_worlds_is_that_of_the_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = 0
    for seed in range(12):
        program, variables, p, outputs = case(seed)
        if not len(p):
            continue
        facts = len(variables.facts)
        p[:facts] = np.where(np.arange(facts) % 2, 1e-15, p[:facts])
        if variables.groups:
            p[facts + 1 :] /= 1 - p[facts]
            p[facts] = 1e-14
        rows = [[(False,), (True,)]] * facts
        rows += [list(map(tuple, np.eye(len(g), dtype=bool))) for g in variables.groups]
        worlds = torch.tensor([sum(world, ()) for world in product(*rows)])
        given, coin = torch.tensor(p), torch.arange(len(p)) < facts
        weight = torch.where(worlds, given, torch.where(coin, 1 - given, 1.0)).prod(1)
        first, second = torch.cartesian_prod(*[torch.arange(len(worlds))] * 2).T
        drawn = torch.stack([worlds[first], worlds[second]], 1)
        monkeypatch.setattr("latentgamma.engine.probability.draw_worlds", lambda *_, d=drawn: d)
        inputs = given.repeat(len(drawn), 1).requires_grad_()
        value = sampled(program, variables, outputs).probabilities(inputs, 2)
        (grad,) = torch.autograd.grad(value.sum(), inputs)
        mean = (weight[first] * weight[second]) @ grad
        for change in directions(variables):
            ends = [over_all_worlds(program, variables, p + h * change, outputs) for h in (1, -1)]
            slope = (ends[0] - ends[1]).sum() / 2
            assert abs(float(mean @ torch.tensor(change)) - slope) < 1e-9
            checked += 1
    assert checked > 10


def test_sampled_gradients_of_certain_inputs_are_exact() -> None:
    # All worlds of an example are the same one, so nothing is left to chance.
    grads = []
    facts = torch.tensor(list(product((0.0, 1.0), repeat=3))).repeat_interleave(3, 0)
    group = torch.eye(3).repeat(8, 1)
    for method in ("table", "sample"):
        layer = lg.Layer(
            lg.parse("c :- a, b. c :- g(0), d. c :- g(1), not a. e :- g(2)."),
            {"facts": ["a", "b", "d"], "group": lg.Categorical([f"g({n})" for n in range(3)])},
            ["c", "e"],
            semantics="probability",
            inference=lg.Inference(method=method, worlds=3, seed=0),
        )
        given = {"facts": facts.clone().requires_grad_(), "group": group.clone().requires_grad_()}
        values = (layer(given) * torch.tensor([1.0, 3.0])).sum(1)
        slope, others = torch.autograd.grad(values.sum(), list(given.values()))
        grads.append((slope, others - others.mean(1, keepdim=True)))
    assert (grads[0][0].abs() > 0.5).sum() > 12
    for exact, sampled_grad in zip(*grads, strict=True):
        torch.testing.assert_close(exact, sampled_grad)


def test_likely_proofs_are_the_minimal_fact_sets_in_order() -> None:
    found = 0
    for seed in range(150):
        program, variables, p, outputs = case(seed)
        if not len(p):
            continue
        atoms = [int(atom) for atom in variables.atoms]
        minimal: list[set[int]] = []
        for size in range(len(atoms) + 1):
            for chosen in combinations(range(len(atoms)), size):
                owners = [variables.owner[atoms[i]] for i in chosen]
                if len(set(owners)) < len(owners) or any(m <= set(chosen) for m in minimal):
                    continue
                facts = np.zeros(program.M, np.bool_)
                facts[[atoms[i] for i in chosen]] = True
                if lg.closure(program, facts).state[outputs[0]]:
                    minimal.append(set(chosen))
        expected = sorted((float(np.prod(p[list(m)])) for m in minimal), reverse=True)
        proofs = likely_proofs(program, variables, p, outputs[0], most=100)
        assert [proof.probability for proof in proofs] == pytest.approx(expected)
        found += len(expected)
    assert found > 50


# ------------------------------------------------------------------------ the layer


def test_a_layer_of_probabilities_with_groups_facts_and_negation() -> None:
    program = lg.parse(
        "win :- die(6). win :- die(5), coin. lose :- not win, played. bonus :- win, lucky."
    )
    die = [f"die({n})" for n in range(1, 7)]
    program = lg.parse(str(program) + " ".join(f"seen :- {name}." for name in die))
    layer = lg.Layer(
        program,
        inputs={"die": lg.Categorical(die), "coin": ["coin"]},
        outputs={"result": ["win", "lose"], "bonus": "bonus"},
        semantics="probability",
        facts={"played": 1.0, "lucky": 0.25},
    )
    p = torch.tensor([[0.1, 0.1, 0.2, 0.2, 0.1, 0.3]], dtype=torch.float64)
    coin = torch.tensor([[0.6]], dtype=torch.float64)
    win = 0.3 + 0.1 * 0.6
    found = layer({"die": p, "coin": coin})
    torch.testing.assert_close(found["result"], torch.tensor([[win, 1 - win]]).double())
    torch.testing.assert_close(found["bonus"], torch.tensor([win / 4]).double())
    odds = layer({"die": p, "coin": coin}, logits=True)["result"]
    torch.testing.assert_close(odds, torch.logit(torch.tensor([[win, 1 - win]]).double()))
    plan = layer.plan()
    assert plan.exact
    assert plan.semantics == "probability"
    assert "one sum-product pass" in str(plan)


def test_layers_take_scores_and_return_log_probabilities() -> None:
    program, _, _ = addition(1)
    names = np.array([[f"{name}(0,{d})" for d in range(10)] for name in "ab"])
    layer = lg.Layer(
        program,
        inputs=lg.Categorical(names),
        outputs=lg.Categorical([f"sum(0,{d})" for d in range(10)]),
        semantics="probability",
        from_logits=True,
    )
    scores = torch.randn(5, 2, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logs = layer(scores, logits=True)
    p, q = scores.softmax(-1).unbind(1)
    expected = torch.zeros(5, 10, dtype=torch.float64)
    for x, y in product(range(10), repeat=2):
        expected[:, (x + y) % 10] += p[:, x] * q[:, y]
    torch.testing.assert_close(logs.exp(), expected)
    torch.testing.assert_close(layer(scores), expected)


def test_an_unused_option_and_bad_inference_are_refused() -> None:
    program = lg.parse("b :- a.")
    with pytest.raises(ArgumentError, match='inference is for semantics="probability"'):
        lg.Layer(program, "a", "b", inference=lg.Inference())
    with pytest.raises(ArgumentError, match="worlds must be a whole number from 2 on"):
        lg.Inference(worlds=1)
    with pytest.raises(ArgumentError, match="method must be one of"):
        lg.Inference(method="exactly")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="error must be a positive number"):
        lg.Inference(error=0.0)
    layer = lg.Layer(
        lg.parse("d :- a. d :- b."), lg.Categorical(["a", "b"]), "d", semantics="probability"
    )
    with pytest.raises(lg.errors.StateError, match="sum to one"):
        layer(torch.tensor([[0.5, 0.2]]))


def test_more_worlds_are_drawn_where_the_error_is_large() -> None:
    program = lg.parse("c :- a, b. c :- b, d. e :- c, a.")
    inference = lg.Inference(method="sample", worlds=16, error=0.01, seed=0)
    layer = lg.Layer(program, ["a", "b", "d"], "e", semantics="probability", inference=inference)
    inputs = torch.tensor([[0.5, 0.5, 0.5], [1.0, 1.0, 1.0]], dtype=torch.float64)
    value, error = layer.rules.estimate(inputs)
    assert error.max() <= 0.01
    exact = lg.Layer(program, ["a", "b", "d"], "e", semantics="probability")(inputs)
    assert (value[:, 0] - exact).abs().max() < 0.05
    with torch.no_grad():
        assert (layer.eval()(inputs) - exact).abs().max() < 0.05


def test_evidence_and_posteriors_are_ratios_of_sums_over_worlds() -> None:
    checked = 0
    for seed in range(60):
        program, variables, p, outputs = case(seed)
        if not variables.facts or len(set(outputs)) < 3:
            continue
        place = {int(atom): i for i, atom in enumerate(variables.atoms)}
        choices = [[((), 1 - p[place[a]]), ((a,), p[place[a]])] for a in variables.facts] + [
            [((a,), p[place[a]]) for a in group] for group in variables.groups
        ]
        joint, both, posterior = 0.0, 0.0, np.zeros(len(p))
        positive, negative, goal = outputs
        goal_total = 0.0
        for world in product(*choices):
            facts = np.zeros(program.M, np.bool_)
            facts[[a for atoms, _ in world for a in atoms]] = True
            weight = float(np.prod([q for _, q in world]))
            state = lg.closure(program, facts).state
            if state[positive] and not state[negative]:
                joint += weight
                both += weight * state[goal]
            if state[goal]:
                goal_total += weight
                posterior += weight * facts[variables.atoms]
        names = program.atoms
        inputs = {"facts": [names[a] for a in variables.facts]}
        given = {"facts": torch.tensor(p[: len(variables.facts)])[None]}
        if variables.groups:
            inputs["group"] = lg.Categorical([names[a] for a in variables.groups[0]])
            given["group"] = torch.tensor(p[len(variables.facts) :])[None]
        evidence = {names[positive]: True, names[negative]: False}
        layer = lg.Layer(program, inputs, names[goal], semantics="probability", evidence=evidence)
        if joint > 1e-9:
            assert float(layer(given)) == pytest.approx(both / joint, abs=1e-9)
            checked += 1
        elif joint == 0:
            with pytest.raises(lg.errors.StateError, match="probability zero"):
                layer(given)
        plain = lg.Layer(program, inputs, names[goal], semantics="probability")
        if goal_total > 1e-9:
            found = plain.posterior(given, names[goal])
            flat = torch.cat([part.flatten() for part in found.values()])
            np.testing.assert_allclose(flat, posterior / goal_total, atol=1e-9)
            checked += 1
    assert checked > 20


def test_proofs_of_a_layer() -> None:
    program = lg.parse("alarm :- smoke, heat. alarm :- button. alarm :- smoke, lucky.")
    layer = lg.Layer(
        program, ["smoke", "heat", "button"], "alarm", semantics="probability", facts=["lucky"]
    )
    proofs = layer.proofs(torch.tensor([0.9, 0.7, 0.2]), "alarm")
    assert [proof.facts for proof in proofs] == [("smoke",), ("button",)]
    assert [proof.probability for proof in proofs] == pytest.approx([0.9, 0.2])
    with pytest.raises(ModelError, match='semantics="probability"'):
        lg.Layer(program, ["smoke"], "alarm").proofs(torch.tensor([0.9]), "alarm")


# ------------------------------------------------------------------------ small numbers


def test_small_probabilities_of_alternatives_have_all_their_digits() -> None:
    layer = lg.Layer(lg.parse("c :- a. c :- b."), ["a", "b"], "c", semantics="probability")
    p = torch.tensor([[3e-16, 4e-16], [1e-40, 2e-40]], dtype=torch.float64)
    expected = p.sum(1)
    torch.testing.assert_close(layer(p), expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(layer(p, logits=True), expected.log(), rtol=1e-14, atol=0)


@pytest.mark.parametrize("method", ["pass", "table"])
def test_log_odds_where_probabilities_underflow_or_are_zero(method: str) -> None:
    program = lg.parse("b :- a(0), c, e. b :- a(1), d, e. n :- x.")
    layer = lg.Layer(
        program,
        {"facts": ["c", "d", "e"], "group": lg.Categorical(["a(0)", "a(1)"])},
        ["b", "n"],
        semantics="probability",
        inference=lg.Inference(method=method),
    )
    facts = torch.tensor([[1e-250, 3e-250, 1e-250], [0.25, 1.0, 0.5]], dtype=torch.float64)
    group = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    facts.requires_grad_()
    odds = layer({"facts": facts, "group": group}, logits=True)
    expected = torch.tensor([np.log(2) - 500 * np.log(10), np.log(0.3125 / 0.6875)])
    torch.testing.assert_close(odds[:, 0], expected, rtol=1e-13, atol=0)
    assert (odds[:, 1] < -1e20).all()
    assert odds.isfinite().all()
    (slope,) = torch.autograd.grad(odds[0, 0], facts)
    expected = torch.tensor([0.25e250, 0.25e250, 1e250], dtype=torch.float64)
    torch.testing.assert_close(slope[0], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("text", "sign", "scores"),
    [
        ("c :- a. c :- b.", 1, [[-900.0, -901.0], [-50.0, -60.0]]),
        ("c :- not n. n :- a, b.", -1, [[600.0, 601.0], [37.5, 60.0], [900.0, 901.0]]),
    ],
)
def test_log_odds_of_unlikely_alternatives(text: str, sign: int, scores: list) -> None:
    layer = lg.Layer(lg.parse(text), ["a", "b"], "c", semantics="probability", from_logits=True)
    given = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    odds = layer(given, logits=True)
    expected = (sign * given).logsumexp(1)
    torch.testing.assert_close(odds, expected, rtol=1e-14, atol=0)
    (slope,) = torch.autograd.grad(odds.sum(), given)
    torch.testing.assert_close(slope, sign * (sign * given.detach()).softmax(1))


def test_probabilities_do_not_leave_the_unit_interval() -> None:
    atoms = ["a", "b", "c"]
    program = lg.parse("d :- a. d :- b. d :- c. e :- d. e :- f.")
    layer = lg.Layer(
        program,
        {"group": lg.Categorical(atoms), "fact": ["f"]},
        ["d", "e"],
        semantics="probability",
    )
    scores = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    group, fact = scores.softmax(1).requires_grad_(), torch.full((500, 1), 0.5)
    assert (group.double().sum(1) > 1).any()
    values = layer({"group": group, "fact": fact})
    assert values.max() <= 1
    values[:, 0].sum().backward()
    assert (group.grad == 1).all()  # no clamp takes the slope away
    logs = group.detach().double().log()
    both = torch.cat((torch.full((500, 1), 0.5).double().log(), logs), 1)
    assert not run(layer.rules.methods.circuit, LOG, both).isnan().any()


@pytest.mark.parametrize("method", ["pass", "sample"])
@pytest.mark.parametrize("logits", [False, True])
def test_a_second_derivative_is_right_or_refused(method: str, logits: bool) -> None:
    program = lg.parse("c :- a, b. c :- d.")

    def slope_of(method: str) -> tuple[torch.Tensor, torch.Tensor]:
        inference = lg.Inference(method=method)
        layer = lg.Layer(
            program, ["a", "b", "d"], "c", semantics="probability", inference=inference
        )
        p = torch.tensor([[0.5, 0.25, 1e-3]], dtype=torch.float64, requires_grad=True)
        value = layer(p, logits=logits)
        return torch.autograd.grad(value.sum(), p, create_graph=True)[0], p

    slope, p = slope_of("table")
    expected = torch.autograd.grad(slope.sum(), p)[0]
    assert expected.abs().max() > 0.1
    slope, p = slope_of(method)
    if method == "pass":
        torch.testing.assert_close(torch.autograd.grad(slope.sum(), p)[0], expected)
    else:
        with pytest.raises(ModelError, match="no second derivative"):
            torch.autograd.grad(slope.sum(), p)


def test_gradients_of_one_pass_do_not_overwrite_each_other() -> None:
    """Each output of a pass has its own gradient, also where the pass runs once for all of them."""
    rules = [(f"sum({a + b})", [f"x({a})", f"y({b})"]) for a, b in product(range(3), repeat=2)]
    inputs = lg.Categorical([[f"{name}({v})" for v in range(3)] for name in "xy"])
    outputs = lg.Categorical([f"sum({s})" for s in range(5)])
    layer = lg.Layer(
        lg.Program.from_rules(rules), inputs, outputs, semantics="probability", from_logits=True
    )
    x = torch.tensor([[[0.5, -1.0, 0.2], [1.0, 0.0, -0.3]]], requires_grad=True)
    once = layer(x, logits=True)[0]
    together = [torch.autograd.grad(out, x, retain_graph=True)[0] for out in once]
    for s, found in enumerate(together):
        (alone,) = torch.autograd.grad(layer(x, logits=True)[0, s], x)
        torch.testing.assert_close(found, alone)


@pytest.mark.parametrize("method", ["pass", "table", "sample"])
def test_a_group_that_does_not_sum_to_one_is_refused(method: str) -> None:
    layer = lg.Layer(
        lg.parse("c :- a, b. d :- e."),
        lg.Categorical(["a", "e"]),
        "d",
        semantics="probability",
        inference=lg.Inference(method=method),
    )
    for missing in (1e-2, 2e-4, -2e-4):
        with pytest.raises(
            lg.errors.StateError, match=r"to within 0\.0001, but some miss it by 0\.0"
        ):
            layer(torch.tensor([[0.5, 0.5], [0.5, 0.5 - missing]]))
    layer(torch.tensor([[0.5, 0.5 - 5e-5]]))
    many = lg.Categorical([f"v({n})" for n in range(5000)])
    rules = "\n".join(f"low :- v({n})." for n in range(5000))
    wide = lg.Layer(lg.parse(rules), many, "low", semantics="probability")
    scores = torch.randn(4, 5000, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.bfloat16):
        torch.testing.assert_close(
            wide(scores.to(dtype).softmax(1)).float(), torch.ones(4), rtol=0, atol=4e-3
        )


# ------------------------------------------------------------------------ evidence


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("budget", [1 << 16, 1])  # by a table, and by sampled worlds
def test_impossible_evidence_is_refused_in_spite_of_rounding(
    budget: int, dtype: torch.dtype
) -> None:
    atoms = ["a", "b", "c"]
    program = lg.parse("h :- x. seen :- a. seen :- b. seen :- c.")
    layer = lg.Layer(
        program,
        {"group": lg.Categorical(atoms), "coins": ["x"]},
        "h",
        semantics="probability",
        evidence=dict.fromkeys(atoms, False),
        inference=lg.Inference(budget=budget),
    )
    assert layer.plan().exact == (budget > 1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        group = torch.randn(1, 3, generator=generator, dtype=dtype).softmax(1)
        with pytest.raises(lg.errors.StateError, match=r"probability zero|no sampled world"):
            layer({"group": group, "coins": torch.full((1, 1), 0.5, dtype=dtype)})


def test_unlikely_negative_evidence_keeps_its_digits() -> None:
    program = lg.parse("s :- a. s :- b. c :- b, d.")
    layer = lg.Layer(
        program, ["a", "b", "d"], ["a", "d", "c"], semantics="probability", evidence={"s": False}
    )
    p = torch.tensor([[1 - 1e-9, 1 - 1e-9, 0.3]], dtype=torch.float64, requires_grad=True)
    value = layer(p)
    expected = torch.tensor([[0.0, 0.3, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(value[0, 1], p)
    torch.testing.assert_close(slope, torch.tensor([[0.0, 0.0, 1.0]]).double(), rtol=0, atol=1e-6)


def test_a_conditional_probability_of_zero_has_its_slope() -> None:
    # P(d | not a, not f) = P(c) for d = (a and b) or c, at P(c) = 0.
    atoms = ["a", "b", "f", "c"]
    layer = lg.Layer(
        lg.parse("d :- a, b. d :- c. g :- f."),
        atoms,
        "d",
        semantics="probability",
        evidence={"a": False, "g": False},
    )
    p = torch.rand(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p[:, 3] = 0
    p.requires_grad_()
    (slope,) = torch.autograd.grad(layer(p).sum(), p)
    torch.testing.assert_close(slope[:, 3], torch.ones(50, dtype=torch.float64))


def test_posteriors_and_proofs_do_not_ignore_evidence() -> None:
    program = lg.parse("c :- a, b.")
    layer = lg.Layer(program, ["a", "b"], "c", semantics="probability", evidence={"a": True})
    with pytest.raises(ModelError, match="without evidence"):
        layer.posterior(torch.tensor([[0.3, 0.2]]), "b")
    with pytest.raises(ModelError, match="without evidence"):
        layer.proofs(torch.tensor([0.3, 0.2]), "b")


def test_evidence_that_no_sampled_world_has_is_not_called_impossible() -> None:
    inference = lg.Inference(method="sample", worlds=4, seed=0)
    layer = lg.Layer(
        lg.parse("c :- a, b."),
        ["a", "b"],
        "b",
        semantics="probability",
        evidence={"c": True},
        inference=inference,
    )
    with pytest.raises(lg.errors.StateError, match="raise worlds="):
        layer(torch.full((1, 2), 1e-6))
