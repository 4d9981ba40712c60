"""Layers equal the definition by enumeration, and no input whatsoever gives a violation."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from pysat.examples.rc2 import RC2
from pysat.formula import WCNF
from torch import Tensor
from torch.nn import functional

import latentgamma as lg
from latentgamma import Requirements
from latentgamma.engine.diagram_torch import DiagramPasses
from latentgamma.errors import (
    ArgumentError,
    CertificateError,
    FactsError,
    ProgramError,
    StateError,
)
from latentgamma.program import compilation
from latentgamma.requirements.layer import _LOSSES, LossKind, RequirementsLayer
from latentgamma.requirements.report import signed_clauses
from latentgamma.requirements.requirements import Method
from random_requirements import DRIVING, log_share, marginals, random_requirements, worlds

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# In the quick tests float64 runs in plain torch, which gives NaN for some infinities.
every_dtype = pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float64, marks=pytest.mark.slow), *DTYPES[1:]]
)
METHODS = ("exact", "strata")


def satisfiable(seed: int, most_labels: int = 9) -> tuple[Requirements, Tensor]:
    rng = np.random.default_rng(seed)
    while True:
        req = random_requirements(rng, most_labels)
        models = worlds(req)
        if len(models):
            return req, models


def example_logits(L: int, seed: int, rows: int = 40) -> Tensor:
    """Log-odds of every size, with ties, exact zeros and extreme ones."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, L, dtype=torch.float64, generator=generator) * (1, 5, 30)[seed % 3]
    x[: rows // 4] = x[: rows // 4].round()
    x[0] = 0.0
    return x


def hostile_logits(L: int, dtype: torch.dtype, seed: int = 0, rows: int = 400) -> Tensor:
    """Zeros of both signs, ties, infinities, denormal and huge numbers, mixed in one batch."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, L, dtype=torch.float64, generator=generator)
    kind = torch.finfo(dtype)
    pool = [0.0, -0.0, torch.inf, -torch.inf, kind.tiny, -kind.tiny, kind.max, kind.min, 1.0, -1.0]
    pool += [kind.smallest_normal * kind.eps, -kind.smallest_normal * kind.eps]
    special = torch.tensor(pool, dtype=torch.float64)
    pick = torch.randint(len(pool), x.shape, generator=generator)
    share = torch.linspace(0, 1, rows, dtype=torch.float64)[:, None]
    chosen = torch.rand(x.shape, dtype=torch.float64, generator=generator) < share
    return torch.where(chosen, special[pick], x).to(dtype)


# ---- Exact: the definition


@pytest.mark.quick_first
@pytest.mark.parametrize("seed", range(60))
def test_exact_layers_are_the_definition(seed: int) -> None:
    req, models = satisfiable(seed, 9 if seed < 55 else 14)
    layer = req.layer(method="exact")
    x = example_logits(len(req.labels), seed)
    assert layer.passes is not None
    for compiled in (True, False):
        layer.passes.compiled = compiled
        for hard in (False, True):
            layer.train(not hard)
            given, ours = x.clone().requires_grad_(), x.clone().requires_grad_()
            expected, found = marginals(given, models, hard=hard), layer(ours)
            finite = torch.isfinite(expected)
            assert torch.allclose(found[finite], expected[finite], rtol=1e-7, atol=1e-7)
            assert bool((found[~finite] * expected[~finite].sign() > 200).all())
            # Where several models are as good, the best one has no one derivative.
            rows = slice(len(x) // 4, None) if hard else slice(None)
            weight = torch.sin(torch.arange(x.numel()).reshape(x.shape).double())
            weight = torch.where(finite, weight, 0.0)
            grads = [
                torch.autograd.grad((torch.where(finite, m, 0.0) * weight).sum(), at)[0][rows]
                for m, at in ((expected, given), (found, ours))
                if finite.any()
            ]
            if grads:
                assert torch.allclose(grads[0], grads[1], rtol=1e-6, atol=1e-7)
        if len(layer.decided):
            used = models[:, layer.decided]
            at = x[:, layer.decided].clone().requires_grad_()
            share = layer.passes.log_partition(at)
            expected_share = log_share(at, torch.unique(used, dim=0))
            assert torch.allclose(share, expected_share, atol=1e-8)
            ours_grad, theirs = (
                torch.autograd.grad(one.sum(), at)[0] for one in (share, expected_share)
            )
            assert torch.allclose(ours_grad, theirs, atol=1e-8)


@pytest.mark.parametrize("seed", range(40))
def test_decisions_are_best_models(seed: int) -> None:
    req, models = satisfiable(seed)
    layer = req.layer(method="exact").eval()
    x = example_logits(len(req.labels), seed)
    answer = layer.decide(x)
    assert len(req.check(answer)) == 0
    best = (x @ models.T).amax(1)
    assert torch.allclose((x * answer).sum(1), best)
    assert torch.equal(layer(x) > 0, answer)
    assert layer.passes is not None
    layer.passes.compiled = False
    assert torch.equal(layer.decide(x), answer)


@pytest.mark.slow
def test_decisions_are_those_of_a_maxsat_solver() -> None:
    wrong = 0
    for seed in range(100):
        req, _ = satisfiable(1000 + seed, 12)
        x = torch.randint(
            -20, 21, (10, len(req.labels)), generator=torch.manual_seed(seed)
        ).double()
        answer = req.layer(method="exact").decide(x)
        for row, chosen in zip(x.long().tolist(), answer, strict=True):
            formula = WCNF()
            formula.extend(signed_clauses(req))
            for i, h in enumerate(row):
                if h:
                    formula.append([i + 1 if h > 0 else -(i + 1)], weight=abs(h))
            with RC2(formula) as solver:
                solver.compute()
                paid = sum(abs(h) for h, y in zip(row, chosen, strict=True) if h and (h > 0) != y)
                wrong += paid != solver.cost
    assert wrong == 0


def test_a_budget_that_is_too_small_is_said() -> None:
    req = Requirements.from_text(DRIVING)
    with pytest.raises(ProgramError, match="more than 5 edges; raise budget="):
        req.layer(method="exact", budget=5)
    assert req.layer(budget=40).method == "strata"


@pytest.mark.parametrize("seed", range(10))
def test_unsatisfiable_requirements_are_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    req = random_requirements(rng)
    while len(worlds(req)):
        req = random_requirements(rng, 4)
    for method in METHODS:
        with pytest.raises(ProgramError, match="no assignment of the labels satisfies"):
            req.layer(method=method)


@pytest.mark.parametrize("seed", range(8))
def test_a_minimum_cut_is_the_most_likely_answer_of_a_hierarchy(seed: int, monkeypatch) -> None:
    rng = np.random.default_rng(seed)
    for trial in range(8):
        n = int(rng.integers(1, 10))
        lines = [
            f"c{b} :- c{a}." for a in range(n) for b in range(n) if a != b and rng.random() < 0.2
        ]
        lines += [f"c{rng.integers(n)}."] * (trial == 0)  # a label that is always true
        req = Requirements.from_text("\n".join(lines), labels=[f"c{i}" for i in range(n)])
        layer, models = req.layer(), worlds(req)
        assert layer.method == "closure"
        x = example_logits(n, 3 * seed + trial % 3, 12)
        found = layer.decide(x, most_likely=True)
        totals = x @ models.T
        best = totals.amax(1)
        assert torch.allclose((x * found).sum(1), best)
        fewest = torch.where(totals > best[:, None] - 1e-9, models.sum(1), n + 1).amin(1)
        assert torch.equal(found.sum(1), fewest.long())
        assert len(req.check(found)) == 0
        monkeypatch.setattr(compilation, "forced", trial % 2 == 0)
        assert torch.equal(layer.decide(x, most_likely=True), found)
        monkeypatch.setattr(compilation, "forced", None)
        for dtype in DTYPES:
            hostile = layer.decide(hostile_logits(n, dtype, trial, 20), most_likely=True)
            assert len(req.check(hostile)) == 0


def test_the_most_likely_answer_of_other_rules_is_refused() -> None:
    x = torch.zeros(1, 3)
    for text, method in (
        ("c :- a, b.", "closure"),
        ("c :- a.\nb.", "strata"),
        ("c :- not a, b.", "auto"),
    ):
        layer = Requirements.from_text(text, labels=list("abc")).layer(method=method)
        with pytest.raises(ArgumentError, match="most_likely=True needs a hierarchy"):
            layer.decide(x, most_likely=True)
    exact = Requirements.from_text(":- a, b.").layer()
    x = torch.tensor([[1.0, 2.0]])
    assert torch.equal(exact.decide(x, most_likely=True), exact.decide(x))
    with pytest.raises(ProgramError, match=r"decide\(logits, most_likely=True\)"):
        Requirements.from_edges([("a", "b"), ("b", "c")]).layer(method="exact", budget=2)


# ---- No violations, whatever comes in


@every_dtype
@pytest.mark.parametrize("method", METHODS)
def test_no_input_gives_a_violation(method: str, dtype: torch.dtype) -> None:
    for req in [Requirements.from_text(DRIVING), *(satisfiable(seed)[0] for seed in range(12))]:
        layer = req.layer(method=method).eval()
        x = hostile_logits(len(req.labels), dtype)
        scores = layer(x)
        assert scores.dtype == dtype
        assert not torch.isnan(scores).any()
        assert len(req.check(scores > 0)) == 0
        assert torch.equal(layer.decide(x), scores > 0)
        thresholds = torch.linspace(-2, 2, len(req.labels))
        assert len(req.check(layer.decide(x, thresholds=thresholds))) == 0
        assert layer.certificate().require().holds


@every_dtype
def test_closures_have_no_violation_either(dtype: torch.dtype) -> None:
    text = "b :- a.\nc :- b.\na :- c.\nd :- a, not e.\nf :- not d.\ng :- f, not h, e.\nh."
    req = Requirements.from_text(text)
    layer = req.layer().eval()
    assert layer.method == "closure"
    x = hostile_logits(len(req.labels), dtype)
    assert len(req.check(layer(x) > 0)) == 0
    assert len(req.check(layer.decide(x))) == 0
    assert layer.certificate().require().holds


def test_an_adversary_finds_no_violation() -> None:
    """Inputs are moved so that the weakest literal of each requirement sinks to 0."""
    req = Requirements.from_text(DRIVING)
    layer = req.layer(method="exact").eval()
    x = torch.randn(64, len(req.labels), generator=torch.manual_seed(0)).requires_grad_()
    sign = torch.from_numpy(np.where(req.literals < 0, -1.0, 1.0)).float()
    for _ in range(20):
        scores = layer(x)
        literal = scores[:, req.atoms.tolist()] * sign
        parts = literal.split(np.diff(req.indptr).tolist(), 1)
        weakest = torch.stack([part.amax(1) for part in parts], 1)
        (slope,) = torch.autograd.grad(weakest.sum(), x)
        x = (x - 0.2 * slope).detach().requires_grad_()
        assert len(req.check(layer(x.detach()) > 0)) == 0


def test_nan_and_wrong_shapes_are_refused() -> None:
    layer = Requirements.from_text(DRIVING).layer()
    L = len(layer.labels)
    bad = torch.zeros(2, L)
    bad[1, 3] = torch.nan
    for call in (layer, layer.decide):
        with pytest.raises(StateError, match="NaN"):
            call(bad)
        with pytest.raises(StateError, match="one column for each of"):
            call(torch.zeros(2, L + 1))
        with pytest.raises(StateError, match="tensor of log-odds"):
            call(torch.zeros(2, L, dtype=torch.long))
    with pytest.raises(StateError, match="thresholds"):
        layer.decide(torch.zeros(2, L), thresholds=[0.0, 1.0])
    for wrong in ("0.5", [None], [[0.5], [0.5, 0.5]]):
        with pytest.raises(StateError, match=re.escape(f"labels, not {wrong!r}")):
            layer.decide(torch.zeros(2, L), thresholds=wrong)
    assert layer(torch.zeros(3, 2, L)).shape == (3, 2, L)
    assert layer.decide(torch.zeros(L)).shape == (L,)
    assert layer(torch.zeros(0, L)).shape == (0, L)


def test_probabilities_in_place_of_log_odds_give_one_warning() -> None:
    layer = Requirements.from_text(":- a, b.").layer(["a", "b"])
    p = torch.rand(20, 2, generator=torch.manual_seed(0))
    with pytest.warns(RuntimeWarning, match=r"pass torch.logit\(p\)"):
        layer.decide(p)
    layer.decide(p)  # a second warning would be an error
    other = Requirements.from_text(":- a, b.").layer(["a", "b"])
    other(torch.logit(p))
    other(torch.zeros(20, 2))


# ---- Certificates are proofs: what is damaged is refused


def answers_of(passes: DiagramPasses) -> set[int]:
    """All answers that the branches of a diagram allow, as bits."""
    d = passes.diagram
    found: list[set[int]] = []

    def products(parts: list[set[int]]) -> set[int]:
        out = {0}
        for part in parts:
            out = {a | b for a in out for b in part}
        return out

    for n in range(d.nodes):
        here: set[int] = set()
        for k in (0, 1):
            b = 2 * n + k
            free = d.free[d.free_ptr[b] : d.free_ptr[b + 1]].tolist()
            below = [found[c] for c in d.child[d.child_ptr[b] : d.child_ptr[b + 1]].tolist()]
            if d.open[b]:
                here |= products([{k << int(d.label[n])}, *({0, 1 << i} for i in free), *below])
        found.append(here)
    return products([found[r] for r in d.root.tolist()])


@pytest.mark.slow
def test_a_certificate_holds_exactly_if_the_diagram_has_all_allowed_answers_and_no_other() -> None:
    rng = np.random.default_rng(0)
    lost = broken = intact = 0
    for seed in range(150):
        req, models = satisfiable(seed, 7)
        layer = req.layer(method="exact")
        passes = layer.passes
        assert isinstance(passes, DiagramPasses)
        if not len(layer.decided):
            continue
        used = torch.unique(models[:, layer.decided], dim=0).long()
        right = set((used << torch.arange(used.shape[1])).sum(1).tolist())
        assert layer.certificate().require().complete
        for name in ("open", "label", "child", "free", "root"):
            buffer = getattr(passes, name)
            if not len(buffer):
                continue
            at = int(rng.integers(len(buffer)))
            limit = {"label": passes.labels, "open": 2, "free": passes.labels}
            before = int(buffer[at])
            buffer[at] = int(rng.integers(limit.get(name, len(passes.label))))
            certificate = layer.certificate()
            if "damaged" not in certificate.proof:
                found = answers_of(passes)
                assert certificate.holds == (found == right)
                broken += bool(found - right)
                lost += found < right
                intact += found == right
                assert (certificate.proved == certificate.requirements) == (found <= right)
            if not certificate.holds:
                with pytest.raises(CertificateError):
                    certificate.require()
            else:
                certificate.require()
            buffer[at] = before
    assert min(lost, broken, intact) > 10


def test_damaged_rules_are_refused() -> None:
    req = Requirements.from_text("b :- a.\nc :- b.\n", labels=list("abc"))
    weaker = req.subset([0]).layer(method="closure")
    layer = RequirementsLayer(req, "closure", rules=weaker.rules)
    certificate = layer.certificate()
    assert not certificate.holds
    assert certificate.broken == ("line 2  c :- b.",)
    driving = Requirements.from_text(DRIVING)
    for c in range(len(driving)):
        others = driving.subset([k for k in range(len(driving)) if k != c])
        if c in driving.report().redundant:
            continue
        clamped = RequirementsLayer(driving, "strata", rules=others.layer(method="strata").rules)
        assert clamped.certificate().broken == (f"{driving.place(c)}  {driving[c]}",)


# ---- Closure, strata, losses


@pytest.mark.parametrize("seed", range(5))
def test_a_hierarchy_takes_the_best_descendant_and_has_the_loss_of_chmcnn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 25
    edges = [(f"c{b}", f"c{a}") for a in range(n) for b in range(a + 1, n) if rng.random() < 0.12]
    labels = [f"c{i}" for i in range(n)]
    req = Requirements.from_edges(edges, labels=labels)
    layer = req.layer()
    assert layer.method == "closure"
    below = torch.eye(n, dtype=torch.bool)  # below[a, b]: b is a or a descendant of a
    for child, parent in reversed(edges):
        below[int(parent[1:])] |= below[int(child[1:])]
    for _ in range(n):
        below = (below.float() @ below.float()) > 0
    x = torch.randn(8, n, dtype=torch.float64, generator=torch.manual_seed(seed)).requires_grad_()
    y = layer.decide(torch.randn(8, n, generator=torch.manual_seed(seed + 1)) - 1)

    def module(h: Tensor) -> Tensor:
        return torch.where(below, h[:, None, :], 0.0).amax(2)

    p = torch.sigmoid(x)
    assert torch.allclose(torch.sigmoid(layer(x)), module(p))
    credited = y * module(y * p) + ~y * module(p)
    expected = functional.binary_cross_entropy(credited, y.double())
    found = layer.loss(x, y)
    assert torch.allclose(found, expected)
    slopes = [torch.autograd.grad(one, x)[0] for one in (found, expected)]
    assert torch.allclose(*slopes)


def test_rules_with_negation_have_the_module_and_the_loss_of_ccn() -> None:
    req = Requirements.from_rules("1 3 :- 0 n1\n1 4 :- 3 n2\n1 3 :- 4 1\n", labels=5)
    layer = req.layer()
    x = torch.randn(50, 5, dtype=torch.float64, generator=torch.manual_seed(0)).requires_grad_()
    y = layer.decide(torch.randn(50, 5, generator=torch.manual_seed(1)))

    def module(h: Tensor, other: Tensor) -> Tensor:
        columns = list(h.unbind(1))
        for _ in range(3):
            columns[3] = torch.maximum(columns[3], torch.minimum(columns[0], other[:, 1]))
            columns[4] = torch.maximum(columns[4], torch.minimum(columns[3], other[:, 2]))
            columns[3] = torch.maximum(columns[3], torch.minimum(columns[4], columns[1]))
        return torch.stack(columns, 1)

    p = torch.sigmoid(x)
    assert torch.allclose(torch.sigmoid(layer(x)), module(p, 1 - p))
    one = torch.ones_like(p)
    of_true = module(y * p, ~y * (1 - p))
    of_false = module(torch.where(y, one, p), torch.where(y, 1 - p, one))
    expected = functional.binary_cross_entropy(torch.where(y, of_true, of_false), y.double())
    found = layer.loss(x, y)
    assert torch.allclose(found, expected)
    assert torch.allclose(*(torch.autograd.grad(loss, x)[0] for loss in (found, expected)))


@pytest.mark.parametrize("seed", range(20))
def test_strata_clamp_between_bounds_in_the_given_order(seed: int) -> None:
    """Against the definition: label by label, the value nearest to the input that some model has."""
    req, models = satisfiable(seed)
    order = list(np.random.default_rng(seed).permutation(len(req.labels)))
    layer = req.layer(method="strata", order=[req.labels[i] for i in order]).eval()
    x = example_logits(len(req.labels), seed)
    answer = layer.decide(x)
    for row, found in zip(x, answer, strict=True):
        left = models.bool()
        for i in order:
            wanted = bool(row[i] > 0)
            if not (left[:, i] == wanted).any():
                wanted = not wanted
            left = left[left[:, i] == wanted]
        assert torch.equal(left[0], found)


def test_conditional_and_semantic_losses() -> None:
    req, models = satisfiable(3)
    layer = req.layer(method="exact")
    L = len(req.labels)
    x = example_logits(L, 0).requires_grad_()
    y = models[torch.arange(len(x)) % len(models)]
    totals = x @ models.T
    expected = torch.logsumexp(totals, 1) - (x * y).sum(1)
    found = layer.loss(x, y, reduction="none")
    assert torch.allclose(found, expected)
    assert torch.allclose(layer.loss(x, y), expected.mean() / L)
    slopes = [torch.autograd.grad(one.sum(), x)[0] for one in (found, expected)]
    assert torch.allclose(slopes[0], slopes[1], atol=1e-8)
    plain = functional.binary_cross_entropy_with_logits(x, y, reduction="none").sum(1)
    assert torch.allclose(layer.loss(x, y, "bce", reduction="none"), plain)
    semantic = layer.loss(x, y, "semantic", weight=0.5, reduction="none")
    assert torch.allclose(semantic, plain - 0.5 * (expected - plain))
    for weight in (float("nan"), float("inf"), -1.0, "1"):
        with pytest.raises(ArgumentError, match="weight must be a number from 0 on"):
            layer.loss(x, y, "semantic", weight=weight)  # type: ignore[arg-type]


def test_labels_that_exclude_each_other_need_two_nodes_each() -> None:
    L = 40
    req = Requirements.from_text("\n".join(f":- l{a}, l{b}." for a in range(L) for b in range(a)))
    layer = req.layer(method="exact")
    assert layer.passes is not None
    assert layer.passes.diagram.nodes == 2 * L - 2
    assert layer.certificate().holds
    x = torch.randn(50, L, generator=torch.manual_seed(0))
    best = functional.one_hot(x.argmax(1), L).bool()
    assert torch.equal(layer.decide(x), best & (x > 0))


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize(("method", "kinds"), _LOSSES.items())
def test_losses_of_sixteen_bits_are_those_of_the_same_numbers(
    method: Method, kinds: tuple[LossKind, ...], dtype: torch.dtype
) -> None:
    layer = Requirements.from_text("b :- a, not c.  d :- b.  d :- c.").layer(method=method)
    x = torch.randn(20, 4, generator=torch.manual_seed(0)).to(dtype)
    x[0], x[1] = torch.finfo(dtype).max, -torch.inf
    y = layer.decide(x)
    for kind in kinds:
        leaf, wide = x.clone().requires_grad_(), x.double().requires_grad_()
        found, expected = layer.loss(leaf, y, kind), layer.loss(wide, y, kind)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)
        found.backward()
        expected.backward()
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad, wide.grad, rtol=2e-2, atol=1e-6, check_dtype=False)


def test_losses_that_a_method_has_not() -> None:
    layer = Requirements.from_text("b :- a.").layer()
    x = torch.zeros(1, 2)
    with pytest.raises(ArgumentError, match='not for method="closure", which has \'max-constraint'):
        layer.loss(x, x, "conditional")
    with pytest.raises(ArgumentError, match="kind must be one of"):
        layer.loss(x, x, "hinge")  # type: ignore[arg-type]
    with pytest.raises(StateError, match="y has the shape"):
        layer.loss(x, torch.zeros(2))
    for kind in ("max-constraint", "scores", "bce"):
        for wrong in (2.0, -1.0, torch.nan):
            with pytest.raises(StateError, match="not between 0 and 1"):
                layer.loss(x, torch.tensor([[wrong, 0.0]]), kind)
    with pytest.raises(ArgumentError, match='order is for method="strata"'):
        Requirements.from_text("b :- a.").layer(order=["a", "b"])
    with pytest.raises(ArgumentError, match="order must be all labels"):
        Requirements.from_text("b :- a.").layer(method="strata", order=["a"])
    with pytest.raises(ProgramError, match="needs requirements with one head each"):
        Requirements.from_text(":- a, b.").layer(method="closure")
    with pytest.raises(FactsError, match="did you mean 'cats'"):
        Requirements.from_text(":- cat, dog.").layer(["cats", "dog"])


def test_resolution_stops_beyond_the_budget_of_comparisons() -> None:
    rng = np.random.default_rng(1)
    triples = np.array([rng.choice(60, 3, replace=False) for _ in range(150)])
    signs = np.where(rng.random((150, 3)) < 0.5, "not ", "")
    text = "\n".join(
        " or ".join(f"{sign}x{i}" for sign, i in zip(*row, strict=True))
        for row in zip(signs, triples, strict=True)
    )
    with pytest.raises(ProgramError, match="the strata would need more than 2,000 literals"):
        Requirements.from_text(text).layer(method="strata", budget=2_000)


# ---- Explanations, and what PyTorch expects of a module


@pytest.mark.parametrize("seed", range(20))
def test_each_change_of_an_explanation_is_needed(seed: int) -> None:
    req, models = satisfiable(seed)
    layer = req.layer(method="exact")
    x = example_logits(len(req.labels), seed)[-1]
    explained = layer.explain(x)
    answer = layer.decide(x)
    assert {one.label for one in explained.changes} == {
        req.labels[i] for i in torch.nonzero(layer.change(x)).flatten()
    }
    best = (torch.where(x > 0, x, 0.0).sum() - (x @ models.T).amax()).item()
    assert explained.cost == pytest.approx(best)
    for change in explained.changes:
        assert change.because  # the best answer changes nothing without need
        i = req.index[change.label]
        back = answer.clone()
        back[i] = ~back[i]
        assert set(req.check(back[None]).pairs[:, 1]) == set(change.because)


def test_layers_are_modules(tmp_path: Path) -> None:
    req = Requirements.from_text(DRIVING)
    labels = [*req.labels, "other"]
    for method in METHODS:
        layer = req.layer(labels, method).eval()
        x = torch.randn(5, len(labels), generator=torch.manual_seed(0))
        again = pickle.loads(pickle.dumps(layer))
        assert torch.equal(again(x), layer(x))
        torch.save(layer.state_dict(), tmp_path / "state.pt")
        layer.load_state_dict(torch.load(tmp_path / "state.pt"))
        assert torch.equal(layer(x)[:, -1], x[:, -1])  # no requirement mentions it
        whole = layer(x)
        assert all(torch.equal(layer(x[i : i + 1])[0], whole[i]) for i in range(5))
        assert method in repr(layer)
        assert "1 of them in no requirement" in str(layer.plan())
    assert lg.Requirements is Requirements


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_transforms_of_torch(training: bool) -> None:
    req = Requirements.from_text(DRIVING)
    layer = req.layer(method="exact").train(training)
    x = torch.randn(6, len(req.labels), dtype=torch.float64, generator=torch.manual_seed(0))
    expected = layer(x)
    assert torch.allclose(torch.compile(layer, backend="aot_eager")(x), expected)
    assert torch.allclose(torch.export.export(layer, (x,)).module()(x), expected)
    assert torch.allclose(torch.func.vmap(lambda row: layer(row[None])[0])(x), expected)
    whole = torch.func.jacrev(layer)(x[0])
    for i in range(len(req.labels)):
        given = x[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(given)[i], given)
        assert torch.allclose(whole[i], slope)
    if training:
        given = x[:2].clone().requires_grad_()
        assert torch.autograd.gradgradcheck(layer, given)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of torch, at a graph break
def test_gradients_of_most_likely_answers_are_not_left_to_a_compiler() -> None:
    """Inductor gives NaN for the gradient of a minimum by `scatter_reduce`."""
    layer = lg.Requirements.from_text("a or b. a or c.").layer(list("abc"), method="exact").eval()
    operations: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        operations.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    x = torch.tensor([[0.3, -1.0, 0.7], [-2.0, -1.0, -0.5]], dtype=torch.float64).requires_grad_()
    runs = [run(x) for run in (layer, torch.compile(layer, backend=backend))]
    slopes = [torch.autograd.grad(out.sigmoid().sum(), x)[0] for out in runs]
    assert torch.equal(*slopes)
    assert operations
    assert not any("scatter_reduce" in name for name in operations)


def test_no_requirements_change_nothing() -> None:
    x = torch.randn(3, 2)
    for text in ("", "a or not a\nb or not b"):
        for method in ("auto", "exact", "strata"):
            layer = Requirements.from_text(text, labels=["a", "b"]).layer(method=method).eval()
            assert torch.equal(layer(x), x)
            assert layer.certificate().holds


@pytest.mark.parametrize("method", ["closure", "strata"])
def test_a_changed_closure_has_no_certificate(method: str) -> None:
    hierarchy = lg.Requirements.from_edges([("a", "b"), ("b", "c")])
    layer = hierarchy.layer(["a", "b", "c"], method=method)
    assert layer.certificate().holds
    changed = [array for array in layer.closure.circuit.arrays if array.size]
    array = changed[-1]
    array.setflags(write=True)
    array.flat[0] += 1
    assert not layer.certificate().holds


def test_the_probability_of_labels_that_break_a_requirement_is_refused() -> None:
    layer = lg.Requirements.from_text(":- cat, dog.").layer(["cat", "dog"])
    allowed, broken = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert layer.loss(torch.zeros(1, 2), allowed) > 0
    with pytest.raises(lg.errors.StateError, match="row 1: line 1  :- cat, dog"):
        layer.loss(torch.zeros(2, 2), broken)
    layer.loss(torch.zeros(2, 2), broken, kind="bce")
