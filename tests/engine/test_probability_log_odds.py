"""Log-odds of probabilities and their gradients, against sums over worlds with 60 digits."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

import latentgamma as lg
from latentgamma.engine import exactness
from latentgamma.engine.tensors import log_complement

FACTS = [f"f{i}" for i in range(4)]
GROUPS = [["g0", "g1", "g2"], ["h0", "h1"]]
INPUTS = {"facts": FACTS, "g": lg.Categorical(GROUPS[0]), "h": lg.Categorical(GROUPS[1])}
COLUMNS = [*FACTS, *GROUPS[0], *GROUPS[1]]
DERIVED = [f"d{i}" for i in range(6)]
SCALES = (1.0, 10.0, 40.0, 300.0, 700.0)


def random_rules(seed: int) -> str:
    """Rules with negation and without cycles; some decide on a group, as a pass needs it."""
    draw = random.Random(seed)
    lines = [f"#external {name}." for name in [*COLUMNS, *DERIVED]]
    for n, head in enumerate(DERIVED):
        below = [*FACTS, *DERIVED[:n], *(DERIVED[:n] if seed % 2 else COLUMNS)]
        group = draw.choice([*GROUPS, FACTS, FACTS])
        for first in draw.sample(group, draw.randint(1, min(3, len(group)))):
            body = {first, *draw.sample(below, draw.randint(0, 2))}
            signed = [
                name if name == first or draw.random() < 0.6 else f"not {name}" for name in body
            ]
            lines.append(f"{head} :- {', '.join(sorted(signed))}.")
    return "\n".join(lines)


class Reference:
    """Log-odds of the derived atoms and their gradients, by sums over all worlds."""

    def __init__(self, text: str) -> None:
        program = lg.parse(text)
        choices = [*([(name,), ()] for name in FACTS), *([(v,) for v in g] for g in GROUPS)]
        self.worlds = [{name for some in world for name in some} for world in product(*choices)]
        rows = [[name in world for name in program.atoms] for world in self.worlds]
        closed = lg.closures(program, np.array(rows))
        self.holds = closed[:, [program.atoms.index(name) for name in DERIVED]]
        self.atoms = {name: closed[:, program.atoms.index(name)] for name in [*COLUMNS, *DERIVED]}

    def log_odds(
        self, x: list[float], evidence: dict[str, bool] | None = None
    ) -> list[tuple[float, list[float]]]:
        """The log-odds of each derived atom, and the derivative by each input."""
        p, q = {}, {}  # of each input, and of its complement, without a difference
        for name, odds in zip(FACTS, x, strict=False):
            p[name], q[name] = 1 / (1 + mp.exp(-mpf(odds))), 1 / (1 + mp.exp(mpf(odds)))
        place = len(FACTS)
        for group in GROUPS:
            weight = [mp.exp(mpf(score)) for score in x[place : place + len(group)]]
            for i, name in enumerate(group):
                p[name] = weight[i] / sum(weight)
                q[name] = sum(weight[:i] + weight[i + 1 :]) / sum(weight)
            place += len(group)
        weights, slopes = [], []
        for n, world in enumerate(self.worlds):
            if any(self.atoms[name][n] != value for name, value in (evidence or {}).items()):
                weights.append(mpf(0))
            else:
                weights.append(
                    mp.fprod(p[name] for name in world)
                    * mp.fprod(q[name] for name in FACTS if name not in world)
                )
            slopes.append([q[name] if name in world else -p[name] for name in COLUMNS])
        found = []
        for holds in self.holds.T:
            sides = []
            for side in (holds, ~holds):
                some = [n for n in np.flatnonzero(side) if weights[n]]
                total = mp.fsum(weights[n] for n in some)
                parts = [mp.fsum(weights[n] * slopes[n][c] for n in some) for c in range(len(x))]
                sides.append((total, parts))
            (yes, up), (no, down) = sides
            if not yes or not no:
                found.append((1e30 if yes else -1e30, [0.0] * len(x)))
                continue
            odds = mp.log(yes) - mp.log(no)
            slope = [a / yes - b / no for a, b in zip(up, down, strict=True)]
            found.append((float(odds), [float(s) for s in slope]))
        return found


def random_inputs(seed: int, examples: int) -> torch.Tensor:
    draw = random.Random(seed)
    rows = []
    for _ in range(examples):
        scale = draw.choice(SCALES)
        sign = draw.choice([-1, 1, 0])  # all inputs likely, all unlikely, or any
        row = [draw.uniform(-1, 1) * draw.choice([scale, draw.choice(SCALES)]) for _ in COLUMNS]
        facts = [abs(value) * sign if sign else value for value in row[: len(FACTS)]]
        rows.append([*facts, *row[len(FACTS) :]])
    return torch.tensor(rows, dtype=torch.float64)


def layer_of(text: str, outputs: list[str], **options: object) -> lg.Layer:
    layer = lg.Layer(
        lg.parse(text), INPUTS, outputs, semantics="probability", from_logits=True, **options
    )
    return layer.eval()  # in training, a gradient of zero is worth a warning


def compare(
    layer: lg.Layer,
    x: torch.Tensor,
    expected: list[list[tuple[float, list[float]]]],
    outputs: list[int],
    relative: float,
) -> None:
    given = x.clone().requires_grad_()
    parts = torch.split(given, [len(FACTS), *map(len, GROUPS)], dim=1)
    odds = layer(dict(zip(INPUTS, parts, strict=True)), logits=True)
    for o, place in enumerate(outputs):
        (slopes,) = torch.autograd.grad(
            odds[:, o].sum(), given, retain_graph=True, allow_unused=True
        )
        slopes = torch.zeros_like(given) if slopes is None else slopes
        for example, answers in enumerate(expected):
            value, slope = answers[place]
            message = f"{layer.program}\n{DERIVED[place]} at {x[example].tolist()}"
            assert float(odds[example, o].detach()) == pytest.approx(
                value, rel=relative, abs=1e-9
            ), message
            # Against the largest: an entry may be a difference of numbers of that size.
            largest = max(map(abs, slope))
            found = slopes[example].tolist()
            assert found == pytest.approx(slope, rel=0, abs=relative * largest + 1e-25), message


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 50), marks=pytest.mark.slow)], ids=str
)
def test_log_odds_and_gradients_have_their_digits_up_to_700(seeds: range) -> None:
    mp.dps = 60
    for seed in seeds:
        text = random_rules(seed)
        x = random_inputs(seed, 5)
        reference = Reference(text)
        expected = [reference.log_odds(row.tolist()) for row in x]
        every = list(range(len(DERIVED)))
        auto = layer_of(text, DERIVED)
        compare(auto, x, expected, every, 1e-9)
        rounded = x.float()
        expected_of_rounded = [reference.log_odds(row.tolist()) for row in rounded]
        compare(auto, rounded, expected_of_rounded, every, 2e-7)
        compare(
            layer_of(text, DERIVED, inference=lg.Inference(method="table")),
            x,
            expected,
            every,
            1e-9,
        )
        for n in every:  # alone, so that no other output sends it to another way of computing
            one = layer_of(text, [DERIVED[n]])
            compare(one, x[:2], expected[:2], [n], 1e-9)
            for example in range(len(x)):
                compare(one, x[example][None], [expected[example]], [n], 1e-9)
            if one.rules.methods.passed:
                one.rules._can_fuse = False  # plain torch, in the log domain where that is needed
                compare(one, x, expected, [n], 1e-9)


@pytest.mark.slow
def test_log_odds_given_evidence_have_their_digits() -> None:
    mp.dps = 60
    draw = random.Random(0)
    compared = 0
    for seed in range(20):
        text = random_rules(seed)
        reference = Reference(text)
        names = draw.sample([*FACTS, *DERIVED], 2)
        evidence = {name: draw.random() < 0.5 for name in names}
        agreeing = np.all([reference.atoms[name] == value for name, value in evidence.items()], 0)
        if not agreeing.any():
            continue
        layer = layer_of(text, DERIVED, evidence=evidence)
        x = random_inputs(seed, 4)
        expected = [reference.log_odds(row.tolist(), evidence) for row in x]
        compare(layer, x, expected, list(range(len(DERIVED))), 1e-9)
        compared += 1
    assert compared > 10


def test_an_answer_does_not_depend_on_the_other_examples() -> None:
    layer = lg.Layer(
        lg.parse("r :- a. r :- b. s :- a, b. t :- not r, c."),
        ["a", "b", "c"],
        ["r", "s", "t"],
        semantics="probability",
        from_logits=True,
    )
    x = torch.tensor([[1.0, -2.0, 0.3], [20.0, 21.0, 0.5], [12.0, -3.0, 9.0]]).double()
    assert torch.equal(
        layer(x, logits=True), torch.cat([layer(row[None], logits=True) for row in x])
    )


@pytest.mark.parametrize("method", ["auto", "table"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_that_are_rounded_to_one_have_finite_log_odds(
    method: str, dtype: torch.dtype
) -> None:
    layer = lg.Layer(
        lg.parse("r :- a. r :- b. s :- g0, a. s :- g1. t :- g2."),
        {"facts": ["a", "b"], "g": lg.Categorical(["g0", "g1", "g2"])},
        ["r", "s"],
        semantics="probability",
        inference=lg.Inference(method=method),
    )
    facts = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    group = torch.tensor([[1.0, 0, 0], [0.0, 1, 0], [0.0, 0, 1]], dtype=dtype, requires_grad=True)
    odds = layer({"facts": facts, "g": group}, logits=True)
    assert odds.isfinite().all()
    assert (odds[0] > 30).all()
    assert (odds[1] > 30).all()
    assert (odds[2] < -30).all()
    for slope in torch.autograd.grad(odds.sum(), [facts, group]):
        assert slope.isfinite().all()


@pytest.mark.parametrize("digits", [1, 3])
def test_the_negations_of_sums_are_as_small_as_the_sums(digits: int) -> None:
    rules = [(f"sum(1,{d})", [f"digit(0,{d})"]) for d in range(10)]
    rules += [
        (f"sum({i + 1},{s + d})", [f"sum({i},{s})", f"digit({i},{d})"])
        for i in range(1, digits)
        for s, d in product(range(9 * i + 1), range(10))
    ]
    layer = lg.Layer(
        lg.Program.from_rules(rules),
        lg.Categorical([[f"digit({i},{d})" for d in range(10)] for i in range(digits)]),
        [f"sum({digits},{s})" for s in range(9 * digits + 1)],
        semantics="probability",
        from_logits=True,
    )
    methods = layer.rules.methods
    edges = len(methods.circuit.parts.indices)
    assert len(methods.with_complements.circuit.parts.indices) < 5 * edges + 500
    assert (methods.with_complements.complements >= 0).all()
    x = torch.zeros(1, digits, 10, dtype=torch.float64)
    x[:, :, 3] = 100.0
    # The likeliest other sums have one other digit: nine of them for each digit.
    expected = 100 - np.log(9 * digits)
    assert float(layer(x, logits=True)[0, 3 * digits]) == pytest.approx(expected, rel=1e-12)


def test_negations_that_need_a_difference_are_tables_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exactness, "_MOST_CASES", 0)
    layer = lg.Layer(
        lg.parse("r :- a. r :- b."),
        ["a", "b"],
        "r",
        semantics="probability",
        from_logits=True,
        inference=lg.Inference(method="pass"),
    )
    x = torch.tensor([[20.0, 20.0], [300.0, 400.0]], dtype=torch.float64, requires_grad=True)
    odds = layer(x, logits=True)
    torch.testing.assert_close(odds, torch.tensor([40.0, 700.0]).double())
    (slope,) = torch.autograd.grad(odds.sum(), x)
    torch.testing.assert_close(slope, torch.ones(2, 2).double())


def test_the_logarithm_of_a_complement_is_finite_where_rounding_went_above_one() -> None:
    logs = torch.tensor([1e-15, 1e-17, 1e-300, 0.0, -1e-300], dtype=torch.float64)
    found = log_complement(logs.requires_grad_())
    (slope,) = torch.autograd.grad(found.sum(), logs)
    assert found.isfinite().all()
    assert slope.isfinite().all()
