"""Sum-product passes over programs with negation are compared with sums over all worlds."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma.engine import exactness
from latentgamma.engine.exactness import Variables
from latentgamma.engine.execute import run
from latentgamma.engine.probability import ProbabilityMethods, _pass_inputs, choose_methods
from latentgamma.engine.reference import LOG


def random_case(seed: int):
    """A random program with negation, its variables and their probabilities, and true atoms."""
    rng = np.random.default_rng(seed)
    names = [f"a{i}" for i in range(11 if seed % 3 == 2 else int(rng.integers(5, 10)))]
    n = len(names)
    lines = []
    if seed % 3 == 2:  # heads that decide on a group
        facts, groups = [0], [[1, 2, 3], [4, 5]]
        for _ in range(int(rng.integers(4, 12))):
            head = int(rng.integers(6, n))
            first = rng.integers(1, 4) if head % 2 else rng.integers(4, 6)
            pool = [0, 1, 4, *range(6, head), *range(6, head)]
            body = [names[first]] if rng.random() < 0.85 else []
            more = rng.choice(pool, int(rng.integers(0, 2)))
            body += [("not " if rng.random() < 0.6 else "") + names[b] for b in more]
            if body:
                lines.append(f"{names[head]} :- {', '.join(body)}.")
    else:  # anything: cycles, inputs that are derived as well
        order = rng.permutation(n).tolist()
        facts = order[: int(rng.integers(1, 4))]
        groups = [order[len(facts) :][: int(rng.integers(2, 4))]] if seed % 3 else []
        for _ in range(int(rng.integers(2, 9))):
            head = int(rng.integers(0, n))
            body = []
            for b in rng.choice(n, int(rng.integers(1, 4)), replace=False).tolist():
                if b < head or (b > head and rng.random() < 0.15):
                    body.append(("not " if rng.random() < 0.45 and b < head else "") + names[b])
            if body:
                lines.append(f"{names[head]} :- {', '.join(body)}.")
    declared = [f"#external {name}." for name in names]
    program = lg.parse("\n".join(declared + lines))
    index = [program.atoms.index(name) for name in names]
    groups = [[index[i] for i in group] for group in groups]
    variables = Variables(tuple(index[i] for i in facts), tuple(map(tuple, groups)))
    p = rng.random(len(variables.atoms))
    place = len(facts)
    for group in groups:
        p[place : place + len(group)] /= p[place : place + len(group)].sum()
        place += len(group)
    true = [i for i in range(program.M) if i not in variables.owner and rng.random() < 0.1]
    return program, variables, p, true


def over_all_worlds(program, variables: Variables, p, true) -> np.ndarray:
    """The probability of every atom: the reference implementation."""
    place = {int(atom): i for i, atom in enumerate(variables.atoms)}
    choices = [
        [((), 1 - p[place[atom]]), ((atom,), p[place[atom]])] for atom in variables.facts
    ] + [[((atom,), p[place[atom]]) for atom in group] for group in variables.groups]
    facts, weights = [], []
    for world in product(*choices):
        state = np.zeros(program.M, np.bool_)
        state[[*true, *(atom for atoms, _ in world for atom in atoms)]] = True
        facts.append(state)
        weights.append(np.prod([q for _, q in world]))
    closed = lg.closures(program, np.array(facts))
    return (np.array(weights)[:, None] * closed).sum(0)


def directions(variables: Variables):
    """Changes of the inputs that keep the sum of every group."""
    n, place = len(variables.atoms), len(variables.facts)
    for v in range(place):
        yield np.eye(n)[v]
    for group in variables.groups:
        for other in range(1, len(group)):
            yield np.eye(n)[place] - np.eye(n)[place + other]
        place += len(group)


def only_passed(methods: ProbabilityMethods) -> tuple[ProbabilityMethods, list[int]]:
    atoms = [methods.outputs[place] for place in methods.passed]
    return replace(
        methods, outputs=tuple(atoms), passed=tuple(range(len(atoms))), sampled=(), tables=()
    ), atoms


def check_programs(seeds: range) -> tuple[int, int]:
    """The number of atoms with a pass in programs with negation, and of those that subtract."""
    passed = subtracting = 0
    for seed in seeds:
        try:
            program, variables, p, true = random_case(seed)
        except lg.errors.ProgramError:  # not stratified
            continue
        # With a budget of no world at all, whatever has no pass would be sampled.
        whole = choose_methods(program, variables, range(program.M), true=true, budget=0)
        methods, atoms = only_passed(whole)
        if not atoms:
            continue
        expected = over_all_worlds(program, variables, p, true)[atoms]
        inputs = torch.tensor(p)[None].requires_grad_()
        value = methods.probabilities(inputs)
        np.testing.assert_allclose(value[0].detach(), expected, atol=1e-12, err_msg=str(program))
        logs = inputs.log()
        np.testing.assert_allclose(
            methods.log_probabilities(logs)[0].exp().detach(), expected, atol=1e-12
        )
        given = _pass_inputs(methods.sum_product, logs, torch.log1p(-inputs))
        again = run(methods.circuit, LOG, given).exp()
        np.testing.assert_allclose(again[0].detach(), expected, atol=1e-12)
        weight = torch.linspace(1, 2, len(atoms), dtype=torch.float64)
        if value.requires_grad:
            slopes = [
                torch.autograd.grad((x[0] * weight).sum(), inputs, retain_graph=True)[0][0]
                for x in (value, again)
            ]
            for change in directions(variables):
                # The probability is linear in one variable: the difference is exact.
                ends = [over_all_worlds(program, variables, p + h * change, true) for h in (1, -1)]
                slope = float((ends[0] - ends[1])[atoms] @ weight.numpy()) / 2
                for found in slopes:
                    assert float(found @ torch.tensor(change)) == pytest.approx(slope, abs=1e-8)
        passed += len(atoms) * (not program.definite)
        subtracting += len(methods.sum_product.subtracts)
    return passed, subtracting


@pytest.fixture
def only_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every negation of a derived atom is one minus its probability."""
    monkeypatch.setattr(exactness, "_MOST_CASES", 0)


@pytest.mark.slow
def test_passes_with_negation_are_sums_over_worlds() -> None:
    passed, subtracting = check_programs(range(150))
    assert passed > 500
    assert not subtracting


@pytest.mark.slow
@pytest.mark.usefixtures("only_differences")
def test_passes_with_differences_are_sums_over_worlds() -> None:
    passed, subtracting = check_programs(range(150))
    assert passed > 500
    assert subtracting > 10


@pytest.mark.slow
def test_more_passes_with_negation_are_sums_over_worlds() -> None:
    passed, _ = check_programs(range(150, 900))
    assert passed > 2500


def if_then_else(n: int) -> lg.Program:
    """A chain of decisions on groups and facts; each depends on the negation of the one before."""
    lines = ["d(0) :- g(0,0)."]
    for i in range(1, n):
        lines += [f"d({i}) :- g({i},0), not d({i - 1}).", f"d({i}) :- g({i},1), f({i})."]
        lines += [f"none :- g({i},2)."]
    lines += ["none :- g(0,1), g(0,2)."]
    return lg.parse("\n".join(lines))


def chain_layer(n: int, **options: object) -> lg.Layer:
    groups = [[f"g({i},{v})" for v in range(3)] for i in range(n)]
    return lg.Layer(
        if_then_else(n),
        {"groups": lg.Categorical(groups), "facts": [f"f({i})" for i in range(1, n)]},
        f"d({n - 1})",
        semantics="probability",
        **options,
    )


def test_a_negation_is_computed_by_cases() -> None:
    # d(i) for i > 0 has two rules that exclude each other.
    assert not chain_layer(40).rules.methods.sum_product.subtracts
    check_chains(chain_layer(3), chain_layer(40))


@pytest.mark.usefixtures("only_differences")
def test_a_difference_is_taken_only_where_a_table_is_too_large() -> None:
    small, large = chain_layer(3), chain_layer(40)
    assert "table of 108 worlds" in str(small.plan())
    assert "one minus" in str(small.plan())
    assert "proved exact" in str(large.plan())
    assert large.rules.methods.sum_product.subtracts
    check_chains(small, large)


def check_chains(small: lg.Layer, large: lg.Layer) -> None:
    generator = torch.Generator().manual_seed(0)
    for layer, n in (
        (small, 3),
        (chain_layer(3, inference=lg.Inference(budget=2)), 3),
        (large, 40),
    ):
        group = torch.rand(5, n, 3, generator=generator, dtype=torch.float64).softmax(-1)
        facts = torch.rand(5, n - 1, generator=generator, dtype=torch.float64)
        expected = group[:, 0, 0]
        for i in range(1, n):
            expected = group[:, i, 0] * (1 - expected) + group[:, i, 1] * facts[:, i - 1]
        found = layer({"groups": group, "facts": facts})
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


@pytest.mark.usefixtures("only_differences")
def test_a_difference_has_its_gradient_in_both_domains() -> None:
    n = 5
    layer = chain_layer(n, inference=lg.Inference(method="pass"))
    generator = torch.Generator().manual_seed(0)
    group = torch.rand(3, n, 3, generator=generator, dtype=torch.float64).softmax(-1)
    facts = torch.rand(3, n - 1, generator=generator, dtype=torch.float64)
    inputs = [group.requires_grad_(), facts.requires_grad_()]
    expected = group[:, 0, 0]
    for i in range(1, n):
        expected = group[:, i, 0] * (1 - expected) + group[:, i, 1] * facts[:, i - 1]

    def slopes(value: torch.Tensor) -> list[torch.Tensor]:
        groups, others = torch.autograd.grad(value.sum(), inputs)
        # Of the values of a group only those changes matter that keep their sum.
        return [groups - groups.mean(-1, keepdim=True), others]

    right = slopes(expected)
    methods = layer.rules.methods
    logs = torch.cat((facts, group.flatten(1)), 1).log()
    given = _pass_inputs(methods.sum_product, logs, torch.log1p(-logs.exp()))
    again = run(methods.circuit, LOG, given).exp()[:, 0]
    for value in (layer({"groups": group, "facts": facts}), again):
        torch.testing.assert_close(value, expected)
        for one, other in zip(slopes(value), right, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("c :- a, not d. d :- a, b.", "depend on the same input"),
        ("c :- not a. c :- not b, e. c :- a, b.", "can fire together"),
        ("c :- not a, b. c :- not a, e.", "can fire together"),
        ("c :- not d. d :- e. e :- d. e :- a.", "depends on itself"),
    ],
)
def test_the_check_refuses_what_is_not_exact(text: str, reason: str) -> None:
    program = lg.parse(text)
    names = [name for name in "abe" if name in program.atoms and f"{name} :-" not in text]
    variables = Variables(tuple(map(program.atoms.index, names)), ())
    methods = choose_methods(program, variables, [program.atoms.index("c")])
    assert not methods.passed
    assert reason in next(iter(methods.reasons.values()))


def test_negations_keep_their_digits() -> None:
    # not c = not a or not b; both are almost certain. not g(0) is the sum of the other values.
    program = lg.parse(
        "c :- a, b. d :- not c, e. h :- not g(0), not k. k :- a. k :- b, e. s :- g(1), g(2)."
    )
    layer = lg.Layer(
        program,
        {"facts": ["a", "b", "e"], "g": lg.Categorical([f"g({i})" for i in range(3)])},
        ["d", "h"],
        semantics="probability",
        from_logits=True,
        inference=lg.Inference(method="pass"),
    )
    facts = torch.tensor([[800.0, 801.0, -2.0], [60.0, 61.0, 3.0]], dtype=torch.float64)
    group = torch.tensor([[90.0, 0.0, 1.0], [900.0, 1.0, 0.0]], dtype=torch.float64)
    facts.requires_grad_()
    odds = layer({"facts": facts, "g": group}, logits=True)
    a, b, e = facts.detach().unbind(1)
    none = torch.logsumexp(torch.stack((-a, -b)), 0)
    d = none + torch.nn.functional.logsigmoid(e)
    torch.testing.assert_close(odds[:, 0].detach(), d, rtol=1e-13, atol=0)
    other = group[:, 1:].logsumexp(1) - group[:, 0]
    # not k = not a and (not b or not e)
    rest = torch.log1p(-torch.sigmoid(b) * torch.sigmoid(e))
    rest = torch.where(e > 0, torch.nn.functional.logsigmoid(-e), rest)
    h = other - a + rest
    torch.testing.assert_close(odds[:, 1].detach(), h, rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(odds[:, 0].sum(), facts)
    share = torch.stack((-a, -b)).softmax(0)
    torch.testing.assert_close(slope[:, 0], -share[0])
    torch.testing.assert_close(slope[:, 1], -share[1])


def test_the_negation_of_a_value_that_rules_derive_as_well() -> None:
    # g(1) excludes the input g(0), but not the atom g(0).
    layer = lg.Layer(
        lg.parse("c :- g(1), not g(0). g(0) :- f."),
        {"g": lg.Categorical(["g(0)", "g(1)"]), "f": ["f"]},
        "c",
        semantics="probability",
    )
    found = layer({"g": torch.tensor([[0.3, 0.7]]), "f": torch.tensor([[0.2]])})
    torch.testing.assert_close(found, torch.tensor([0.7 * 0.8]))


def test_a_negation_of_rules_that_share_two_groups_keeps_its_digits() -> None:
    # y and k(1) share a group and do not exclude each other: only what y is made of decides.
    program = lg.parse(
        "y :- g(1), k(1). x :- y. x :- g(2), k(1). r :- not x. #external g(3). #external k(2)."
    )
    inputs = {"g": lg.Categorical([f"g({i})" for i in (1, 2, 3)])}
    inputs["k"] = lg.Categorical(["k(1)", "k(2)"])
    layer = lg.Layer(
        program, inputs, "r", semantics="probability", from_logits=True,
        inference=lg.Inference(budget=1),
    ).eval()  # fmt: skip
    scores = {"g": torch.tensor([[40.0, 41.0, -5.0]]), "k": torch.tensor([[50.0, 0.0]])}
    g, k = (torch.softmax(part.double(), 1)[0] for part in scores.values())
    assert layer.plan().exact
    assert layer(scores).item() == pytest.approx((k[1] + k[0] * g[2]).item(), rel=1e-5)
