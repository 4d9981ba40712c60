"""Candidate rules in front of a layer, and concepts and rules that are learned together."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import latentgamma as lg
from latentgamma.learning import CandidateRules, fit_concepts

PAIR = lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]])


def over_worlds_and_subsets(rules: CandidateRules, given: torch.Tensor) -> torch.Tensor:
    """The probability of each output: a sum over subsets of candidates and values of the inputs."""
    use = torch.sigmoid(rules.weights.detach()).double()
    (group,) = rules.inputs
    names = [rules.program.atoms[i] for i in group.atoms]
    rows = np.array(names).reshape(-1, group.shape[-1]) if group.categorical else None
    options = rows.tolist() if rows is not None else [[name, None] for name in names]
    outputs = [rules.program.atoms[i] for one in rules.outputs for i in one.atoms]
    total = torch.zeros(len(given), len(outputs)).double()
    for chosen in product((False, True), repeat=len(use)):
        weight = torch.where(torch.tensor(chosen), use, 1 - use).prod()
        program = rules.program_with(np.array(chosen))
        for world in product(*options):
            p = torch.ones(len(given)).double() * weight
            for n, atom in enumerate(world):
                values = given.reshape(len(given), len(options), -1)[:, n].double()
                if group.categorical:
                    p = p * values[:, options[n].index(atom)]
                else:
                    p = p * (values[:, 0] if atom else 1 - values[:, 0])
            derived = lg.closure(program, [atom for atom in world if atom]).atoms
            total += p[:, None] * torch.tensor([output in derived for output in outputs])
    return total


CASES = {
    "a table: one pass": lambda: CandidateRules.table(PAIR, "c"),
    "recursive rules": lambda: CandidateRules(
        ["r(X,Y) :- e(X,Y).", "r(X,Y) :- e(Y,X).", "r(X,Z) :- r(X,Y), r(Y,Z).", "r(X,X) :- n(X)."],
        PAIR,
        "c",
        background="n(0..1). e(0,1). c :- a(X), b(Y), r(X,Y).",
    ),
    "facts, negation and several outputs": lambda: CandidateRules(
        ["c :- x, y.", "c :- y, not x.", "d :- c.", "c :- d, x.", "d."],
        ["x", "y"],
        ["c", "d"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_probabilities_are_sums_over_worlds_and_subsets_of_candidates(name: str) -> None:
    rules = CASES[name]()
    (group,) = rules.inputs
    given = torch.rand(3, *group.shape, generator=torch.Generator().manual_seed(1))
    given = given / given.sum(-1, keepdim=True) if group.categorical else given
    found = rules(given)
    expected = over_worlds_and_subsets(rules, given)
    assert torch.allclose(found.reshape(3, -1).double(), expected, atol=1e-6)
    odds = rules(given, logits=True)
    assert torch.allclose(torch.sigmoid(odds), found, atol=1e-6)
    # The gradient of the weights, by differences.
    rules.weights.grad = None
    found.sum().backward()
    gradient = rules.weights.grad.clone()
    for c in range(len(rules.weights)):
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                rules.weights[c] += sign * 1e-3
                ends.append(over_worlds_and_subsets(rules, given).sum())
                rules.weights[c] -= sign * 1e-3
        assert float(gradient[c]) == pytest.approx(float((ends[0] - ends[1]) / 2e-3), abs=1e-4)


def test_a_batch_may_have_several_dimensions() -> None:
    rules = CandidateRules(["c :- a(0).", "c :- a(1), b(0)."], PAIR, "c")
    x = torch.rand(2, 3, 2, 2).softmax(-1)
    assert rules(x).shape == (2, 3)
    assert torch.equal(rules(x).flatten(), rules(x.reshape(-1, 2, 2)))


def test_godel_candidates_are_above_one_half_exactly_on_the_closure() -> None:
    rules = CandidateRules(
        ["c :- x, y.", "d :- c.", "c :- d."], ["x", "y"], ["c", "d"], semantics="godel"
    ).eval()
    worlds = torch.tensor(list(product((0.2, 0.8), repeat=2)))
    for chosen in product((-1.0, 1.0), repeat=3):
        with torch.no_grad():
            rules.weights.copy_(torch.tensor(chosen))
        program = rules.extract()
        assert [text for text, w in zip(rules.candidates, chosen, strict=True) if w > 0] == list(
            rules.in_use
        )
        for world, values in zip(worlds, rules(worlds), strict=True):
            facts = [name for name, value in zip("xy", world, strict=True) if value > 0.5]
            derived = lg.closure(program, facts).atoms
            assert [name in derived for name in "cd"] == (values > 0.5).tolist()


def test_candidates_that_cannot_be_used_are_refused() -> None:
    for candidates, options, match in (
        ("c :- a(0).", {}, "a list of rules"),
        ([], {}, "at least one rule"),
        (["c :- a(0)."], {"semantics": "gamma"}, "semantics"),
        (["c :- a(0). c :- a(1)."], {}, "one rule each"),
        (["% c :- a(0)."], {}, "one rule each"),
        ([""], {}, "one rule each"),
    ):
        with pytest.raises(lg.errors.ArgumentError, match=match):
            CandidateRules(candidates, PAIR, "c", **options)
    with pytest.raises(lg.errors.ArgumentError, match='"use"'):
        CandidateRules(["c :- a."], {"use": ["a"]}, "c")
    with pytest.raises(lg.errors.ArgumentError, match='"use"'):
        CandidateRules(["c :- use(0), a(0)."], PAIR, "c")
    with pytest.raises(lg.errors.ModelError, match="fed once"):
        CandidateRules(["c :- x."], {"one": ["x"], "two": ["x"]}, "c")
    with pytest.raises(lg.errors.ParseError):
        CandidateRules(["c :- "], PAIR, "c")
    with pytest.raises(lg.errors.FactsError, match="'d'"):
        CandidateRules(["c :- a(0)."], PAIR, "d")
    with pytest.raises(lg.errors.ArgumentError, match="Categorical"):
        CandidateRules.table(["a", "b"], "c")
    many = [f"r({n}) :- r({(n + 1) % 12}), a(0)." for n in range(12)]
    many.append("r(5) :- b(0).")
    with pytest.raises(lg.errors.ModelError, match="at most 12 candidates"):
        CandidateRules(many, PAIR, "r(0)")


def images(values: np.ndarray, classes: int, seed: int) -> torch.Tensor:
    """Vectors around one centre for each class."""
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(classes, 8, generator=torch.Generator().manual_seed(0))
    return centres[torch.from_numpy(values)] + 0.5 * torch.randn(
        len(values), 8, generator=generator
    )


def learn(label, classes: int, concepts: int, **options: object):
    """Learn a relation of two values; the result, and unseen images with their values."""
    rng = np.random.default_rng(0)
    values, unseen = rng.integers(classes, size=(2, 300))
    pairs = rng.integers(300, size=(4000, 2))
    inputs = lg.Categorical([[f"{p}({c})" for c in range(concepts)] for p in ("left", "right")])
    found = fit_concepts(
        lambda: nn.Linear(8, concepts),
        CandidateRules.table(inputs, "yes"),
        images(values, classes, 1),
        pairs,
        label(values[pairs[:, 0]], values[pairs[:, 1]]),
        **{"steps": 400, "batch": 128, "rate": 0.02, **options},
    )
    return found, images(unseen, classes, 2), unseen


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("label", "classes", "concepts", "left"),
    [
        (np.less, 4, 4, 4),
        (lambda x, y: (x + y) % 2 == 1, 4, 4, 2),  # equal rows and columns: merged
        pytest.param(lambda x, y: y == x + 1, 4, 6, 4, marks=pytest.mark.slow),  # too many: merged
    ],
)
def test_concepts_and_rules_are_learned_together(label, classes, concepts, left) -> None:
    found, unseen, values = learn(label, classes, concepts)
    assert found.inputs.atoms.shape == (2, left)
    accuracy = found.concept_accuracy(unseen, values)
    assert accuracy.accuracy > 0.97
    mapping = np.array(accuracy.mapping)
    pairs = np.array(list(product(range(classes), repeat=2)))
    assert (found.derive(mapping[pairs])[:, 0] == label(*pairs.T)).all()
    assert found.accuracy > 0.95
    assert found.certificate.holds
    assert found.shortcuts().partitions == 1
    report = str(found)
    for line in (found.text, f"{left} concepts", str(found.certificate), "up to renaming"):
        assert line in report
    assert lg.parse(found.text).R == found.program.R


def test_the_same_seed_gives_the_same_result_and_torch_keeps_its_own() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = (learn(np.less, 3, 3, steps=30, attempts=1)[0] for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    assert one.text == two.text
    for first, second in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(first, second)


def test_every_option_of_the_training_has_an_effect() -> None:
    def parameters(**options: object) -> list[float]:
        found, *_ = learn(np.less, 3, 3, **{"steps": 3, "attempts": 1, **options})
        return torch.cat([p.detach().flatten() for p in found.network.parameters()]).tolist()

    usual = parameters()
    for options in (
        {"steps": 4},
        {"batch": 64},
        {"rate": 0.01},
        {"balance": 0.0},
        {"seed": 1},
        {"augment": lambda batch: batch + 1},
        {"labelled": {0: 1}},
    ):
        assert parameters(**options) != usual, options
    found, *_ = learn(np.less, 3, 3, steps=1, attempts=3, enough=0.0)
    assert found.attempt == 1
    assert learn(np.less, 3, 3, steps=1, tolerance=1.0)[0].merged == (0, 0, 0)


@pytest.mark.slow
def test_recursive_candidates_are_read_back_and_unneeded_ones_dropped() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(4, size=200)
    pairs = rng.integers(200, size=(4000, 2))
    rules = CandidateRules(
        [
            "lt(X,Y) :- succ(X,Y).",
            "lt(X,Y) :- succ(X,Z), lt(Z,Y).",
            "lt(X,Y) :- lt(Y,X).",
            *["lt(X,Y) :- lt(X,Z), lt(Z,Y)."] * 2,
        ],
        lg.Categorical([[f"{p}({c})" for c in range(4)] for p in ("left", "right")]),
        "less",
        background="succ(0,1). succ(1,2). succ(2,3). less :- left(X), right(Y), lt(X,Y).",
    )
    labels = values[pairs[:, 0]] < values[pairs[:, 1]]
    labelled = {int(np.flatnonzero(values == v)[0]): v for v in range(4)}
    data = (images(values, 4, 1), pairs, labels)
    options = {"steps": 300, "batch": 128, "rate": 0.02, "labelled": labelled, "attempts": 2}
    found = fit_concepts(lambda: nn.Linear(8, 4), rules, *data, **options)
    assert found.concept_accuracy(data[0], values).mapping == (0, 1, 2, 3)
    assert len(rules.in_use) > 2
    first, *others = found.text.splitlines()[1:]  # and one of the rules that make it transitive
    assert first == rules.candidates[0]
    assert len(others) == 1
    assert others[0] in (rules.candidates[1], rules.candidates[3])
    assert found.shortcuts().count == 1


def test_data_that_do_not_fit_are_refused() -> None:
    rules = CandidateRules.table(PAIR, "c")
    data = {"images": torch.zeros(5, 3), "examples": [[0, 1]], "labels": [True]}
    for change, match in (
        ({"images": [1, 2]}, "images are a tensor"),
        ({"examples": [[0, 1, 2]]}, r"shape \(E, 2\)"),
        ({"examples": [[0, 7]]}, "0 to 4"),
        ({"labels": [0.5]}, "labels are 0 or 1"),
        ({"labels": [1, 0]}, r"shape \(1, 1\)"),
        ({"labelled": {9: 0}}, "labelled maps"),
        ({"labelled": {"a": 0}}, "labelled maps"),
    ):
        with pytest.raises(lg.errors.DataError, match=match):
            fit_concepts(lambda: nn.Linear(3, 2), rules, **{**data, **change})
    with pytest.raises(lg.errors.DataError, match=r"scores of shape \(\d+, 2\)"):
        fit_concepts(lambda: nn.Linear(3, 4), rules, **data)
    for option in ({"steps": 0}, {"rate": 0}, {"balance": -1}, {"enough": 2}, {"attempts": 0}):
        with pytest.raises(lg.errors.ArgumentError, match=next(iter(option))):
            fit_concepts(lambda: nn.Linear(3, 2), rules, **data, **option)
    for change in ({"network": nn.Linear(3, 2)}, {"rules": lg.parse("a.")}):
        with pytest.raises(lg.errors.ArgumentError, match=next(iter(change))):
            fit_concepts(**{"network": lambda: nn.Linear(3, 2), "rules": rules, **data, **change})
    with pytest.raises(lg.errors.StateError, match="are a tensor"):
        rules([1, 2])
    found = fit_concepts(lambda: nn.Linear(3, 2), rules, **data, steps=1, attempts=1)
    for concepts in ([[0]], [[0, 5]], [[0.5, 1.0]]):
        with pytest.raises(lg.errors.DataError, match="concepts are"):
            found.derive(concepts)
    with pytest.raises(lg.errors.ModelError, match="one Categorical group"):
        fit_concepts(lambda: nn.Linear(3, 2), CandidateRules(["c :- a."], ["a"], "c"), **data)
