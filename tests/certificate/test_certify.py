"""The window is sound on everything small enough to enumerate, and tight where it matters."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma.certificate import ends as lower_end_module
from latentgamma.certificate import ends as upper_end_module
from latentgamma.certificate.bounds import UniformBound
from latentgamma.certificate.certify import Status, window
from latentgamma.certificate.constants import ClosedForm
from latentgamma.certificate.ends import lower_end, upper_end, worst_cases
from latentgamma.generators import (
    clique,
    ladder,
    random,
)
from latentgamma.paper.window import paper_window
from latentgamma.program.program import Program
from random_programs import random_program
from reference import every_fact_set


def small_program(rng: np.random.Generator, most_atoms: int = 7) -> Program:
    M = int(rng.integers(1, most_atoms + 1))
    return random_program(rng, M, int(rng.integers(1, 2 * M + 2)), body=4)


def soft_constants(rng: np.random.Generator) -> lg.Constants:
    """Constants near the edge, so that windows are short and bounds are put to the test."""
    return lg.Constants(
        body=float(rng.uniform(3, 10)),
        head=float(rng.uniform(5, 20)),
        sharpness=float(rng.uniform(4, 14)),
        confidence=float(rng.uniform(0.5, 0.99)),
        gain=float(rng.uniform(3, 16)),
        gate=float(rng.uniform(1.5, 6)),
    )


def shaken(model: lg.LatentGamma, scale: float, generator: torch.Generator) -> lg.LatentGamma:
    """The model with noise on every parameter, each in proportion to its own size."""
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(scale * noise * (0.1 + parameter.abs()).clamp(max=1.0))
    return model


def trained(model: lg.LatentGamma, states: torch.Tensor, wanted: torch.Tensor) -> lg.LatentGamma:
    """The model after some steps of gradient descent on every parameter."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(5):
        optimiser.zero_grad()
        reached = model(states, 2).clamp(1e-6, 1 - 1e-6)
        torch.nn.functional.binary_cross_entropy(reached, wanted).backward()
        optimiser.step()
    return model


def violations(model: lg.LatentGamma, certificate: lg.operator.Certificate, most_steps: int) -> int:
    """How many (fact set, step) pairs inside the window are wrong, both ends included."""
    program = model.program
    facts = every_fact_set(program.M)
    wanted = torch.from_numpy(lg.closures(program, facts))
    first = int(certificate.t_min)
    last = int(min(certificate.t_max, first + most_steps))
    with torch.no_grad():
        run = model.iterate(torch.from_numpy(facts).to(model.dtype), last)
    return int((run.support[first:] != wanted).any(-1).sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_inside_the_window_every_fact_set_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    held = short = late = 0
    for trial in range(150):
        program = small_program(rng, 5 if trial % 10 else 8)
        model = lg.oracle(
            program,
            soft_constants(rng),
            form="dense" if rng.random() < 0.5 else "sparse",
            gate="bump" if rng.random() < 0.25 else "sigmoid",
            dtype=torch.float64 if rng.random() < 0.5 else torch.float32,
        )
        if trial % 3:
            model = shaken(model, float(rng.uniform(0, 0.3)), generator)
        if trial % 15 == 1:
            facts = torch.from_numpy(every_fact_set(program.M)).to(model.dtype)
            wanted = torch.from_numpy(lg.closures(program, every_fact_set(program.M)))
            model = trained(model, facts, wanted.to(model.dtype))
        certificate = lg.certify(model, program)
        if not certificate.holds:
            continue
        held += 1
        short += certificate.t_max < 300
        late += certificate.t_min > certificate.depth
        assert violations(model, certificate, 300 if certificate.t_max < 300 else 25) == 0
    # The draw must put both ends to the test, or this shows nothing.
    assert held > 40
    assert short > 5
    assert late > 3


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    body=st.floats(1, 12),
    sharpness=st.floats(1, 20),
    gain=st.floats(1, 30),
    gate=st.floats(1.01, 8),
    head=st.floats(2, 25),
    noise=st.floats(0, 1),
    form=st.sampled_from(["dense", "sparse"]),
    kind=st.sampled_from(["sigmoid", "bump"]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_an_adversary_finds_no_counterexample(
    seed, body, sharpness, gain, gate, head, noise, form, kind, dtype
) -> None:
    rng = np.random.default_rng(seed)
    program = small_program(rng, 5)
    constants = lg.Constants(body, head, sharpness, 0.9, gain, gate)
    model = lg.oracle(program, constants, form=form, gate=kind, dtype=dtype)
    model = shaken(model, noise, torch.Generator().manual_seed(seed))
    certificate = lg.certify(model, program)
    if certificate.holds:
        assert violations(model, certificate, 200) == 0


# -------------------------------------------------------------------- tightness


@pytest.mark.parametrize(
    ("atoms", "first_failure", "part"),
    [(2, 246_662, 0.8), (20, 6077, 0.8), (40, 507, 0.8), (80, 10, 0.6)],
)
def test_the_upper_end_is_tight_on_cliques(atoms: int, first_failure: int, part: float) -> None:
    form = ClosedForm(clique(atoms), lg.Constants.paper(), dtype="float64")
    t_max = upper_end(worst_cases(form.literal_weights())).t_max
    assert part * first_failure <= t_max < first_failure
    assert paper_window(clique(atoms)).t_max > first_failure  # what the paper promises


@pytest.mark.parametrize(("atoms", "first_failure"), [(40, 507), (80, 10)])
def test_the_first_false_positive_of_a_clique_comes_when_we_say(
    atoms: int, first_failure: int
) -> None:
    program = clique(atoms)
    model = lg.oracle(program, lg.Constants.paper(), dtype=torch.float64)
    state, steps = model.state([]), 0
    with torch.no_grad():
        while not (state > 0.5).any():
            state, steps = model.step(state), steps + 1
    assert steps == first_failure


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("k", "t_min"),
    [(1, 10), (2, 10), (3, 13), (4, 14), (5, 15), (6, 17), (7, 19), (8, 19), (32, 21)],
)
def test_the_lower_end_is_exact_on_ladders(k: int, t_min: int) -> None:
    program = ladder(10, k)
    model = lg.oracle(program, lg.Constants.paper(), dtype=torch.float64)
    assert lg.certify(model, program).t_min == t_min
    facts = program.roots
    wanted = lg.closure(program, facts).state
    run = model.iterate(model.state(facts), t_min).support.numpy()
    exact = (run == wanted).all(-1)
    assert exact[t_min]
    assert not exact[t_min - 1]


def test_the_coarser_ways_to_the_lower_end_are_never_earlier(monkeypatch) -> None:
    weights = ClosedForm(ladder(10, 5), lg.Constants.paper(), dtype="float64").literal_weights()
    exact = lower_end(weights, 10)
    monkeypatch.setattr(lower_end_module, "_BUDGET", 5e4)  # the tabulated march
    tabulated = lower_end(weights, 10)
    monkeypatch.setattr(lower_end_module, "_LOOKED_UP", 0.0)  # one lag for every level
    lagged = lower_end(weights, 10)
    assert exact <= tabulated <= lagged < math.inf


@pytest.mark.slow
def test_the_coarser_ways_to_the_upper_end_are_never_later(monkeypatch) -> None:
    finer = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        program, constants = small_program(rng), soft_constants(rng)
        weights = lg.oracle(program, constants, dtype=torch.float64).literal_weights(program)
        by_sets = upper_end(worst_cases(weights)).t_max
        by_literals = upper_end(worst_cases(replace(weights, whole=None))).t_max
        with monkeypatch.context() as patch:
            patch.setattr(upper_end_module, "REFINED_UP_TO", -1)
            uniform = upper_end(worst_cases(replace(weights, whole=None))).t_max
        assert uniform <= by_literals * 1.01 + 1
        assert by_literals <= by_sets * 1.01 + 1
        finer += uniform < by_literals < by_sets
    assert finer > 5


# -------------------------------------------------------------------- certified constants

HARD = {
    "clique 20": clique(20),
    "clique 80": clique(80),
    "clique 300": clique(300),
    "body of 64": ladder(4, 64),
    "many rules a head": Program.from_rules(
        [("goal", [f"x{i}", f"x{i + 1}"]) for i in range(100)],
        atoms=["goal", *(f"x{i}" for i in range(2699))],
    ),
    "mixed heads": Program.from_rules(
        [
            (["a", "b", "c"], ["x"]),
            (["a"], ["y"]),
            (["b", "a"], ["c", "y"]),
            (["x", "y", "z", "a", "b"], ["w", "v"]),
            (["v"], []),
        ]
    ),
    "deep chain": Program.from_rules([(f"c{i + 1}", [f"c{i}"]) for i in range(300)]),
}


@pytest.mark.quick_first
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certified_constants_hold_from_the_depth_to_the_horizon(name: str, dtype) -> None:
    program = HARD[name]
    model = lg.oracle(program, dtype=dtype)
    certificate = lg.certify(model, program).require()
    assert certificate.t_min == certificate.depth
    assert certificate.t_max >= 1e6


@pytest.mark.quick_first
@pytest.mark.parametrize("name", HARD)
def test_certified_constants_are_exact_when_run_in_float32(name: str) -> None:
    program = HARD[name]
    model = lg.oracle(program)
    rng = np.random.default_rng(0)
    sets = [rng.random(program.M) < part for part in (0.0, 0.02, 0.2, 0.6)]
    sets.append(np.arange(program.M) > 0)  # everything but one atom
    facts = np.stack(sets)
    wanted = lg.closures(program, facts)
    depth = max(lg.closure(program, row).depth for row in facts)
    state = torch.from_numpy(facts).float()
    with torch.no_grad():
        at_depth = model(state, depth)
        much_later = model(at_depth, 1000 - depth)
    assert np.array_equal(at_depth.numpy() > 0.5, wanted)
    assert np.array_equal(much_later.numpy() > 0.5, wanted)


@pytest.mark.slow
def test_a_certificate_of_a_hundred_thousand_rules_is_quick_enough_to_have() -> None:
    program = random(100_000, 100_000, body=3, seed=1)
    model = lg.oracle(program)
    certificate = lg.certify(model, program, depth=40).require()
    assert certificate.t_min == 40
    assert certificate.t_max >= 1e6


EDGES = {
    "no rules": Program.from_rules([], atoms=["a", "b"]),
    "no atoms": Program.from_rules([]),
    "facts only": lg.parse("a. b."),
    "facts and atoms without rules": Program.from_rules([("a", []), ("b", [])], atoms="abcd"),
    "a fact and a rule": lg.parse("a. b :- a."),
    "a fact with many rules": Program.from_rules(
        [("h", []), *(("h", [f"x{i}"]) for i in range(50))],
        atoms=["h", *(f"x{i}" for i in range(60))],
    ),
    "several heads": Program.from_rules(
        [(["a", "b", "c"], []), (["a"], ["d"]), (["d", "e"], ["c", "f"])]
    ),
    "itself": lg.parse("a :- a."),
    "one of many atoms": Program.from_rules([("a0", ["a1"])], atoms=[f"a{i}" for i in range(3000)]),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_default_constants_certify_every_program_with_either_gate(name, gate, dtype) -> None:
    program = EDGES[name]
    certificate = lg.certify(lg.oracle(program, gate=gate, dtype=dtype), program).require()
    assert certificate.t_min == certificate.depth
    assert certificate.t_max >= 10**6


@pytest.mark.parametrize("gate", ["sigmoid", "bump"])
def test_a_program_deeper_than_the_horizon_is_certified_to_its_depth(gate) -> None:
    program = Program.from_rules([(f"c{i + 1}", [f"c{i}"]) for i in range(3000)])
    constants = lg.Constants.certified(program, horizon=10, gate=gate)
    certificate = lg.certify(lg.oracle(program, constants, gate=gate), program).require()
    assert certificate.t_min == certificate.depth == 3000
    assert certificate.t_max >= 3000


def test_one_bound_for_all_atoms_holds_at_every_level() -> None:
    program = random(400, 900, body=(1, 3), heads=(1, 2), facts=5, seed=2)
    model = lg.oracle(program, lg.Constants.paper(), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):  # rows that are alike, and rows that are all different
        weights = model.literal_weights(program)
        uniform = UniformBound(weights, lg.closure(program).state)
        for level in (0.0, 0.01, 0.3, 0.5):
            share = weights.share_above(weights.least_body * (1 - level))
            expected = share[~lg.closure(program).state].max()
            assert uniform.at(level) == pytest.approx(expected, rel=1e-12)
            assert uniform(np.array([level]))[0] >= expected * (1 - 1e-12)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def test_certified_constants_are_softer_than_the_theorem_asks() -> None:
    program = clique(20)
    soft, hard = lg.Constants.certified(program), lg.Constants.closed_form(program)
    assert soft.gain < hard.gain
    assert soft.sharpness < hard.sharpness
    longer = lg.Constants.certified(program, horizon=10**12)
    assert soft.gain < longer.gain <= hard.gain


def test_a_horizon_that_a_dtype_cannot_give_is_refused() -> None:
    with pytest.raises(lg.errors.CertificateError, match="float64"):
        lg.Constants.certified(ladder(2, 3), 1e250, dtype="float64")


def test_a_bump_gate_never_leaks() -> None:
    program = clique(10)
    model = lg.oracle(program, gate="bump")
    assert lg.certify(model, program).require().t_max == math.inf


# -------------------------------------------------------------------- what it says


def test_the_wrong_program_is_told_apart_by_rule_and_atom() -> None:
    program = lg.parse("bird :- penguin. animal :- bird.")
    model = lg.oracle(program)
    other = Program.from_rules([("bird", ["animal"]), ("animal", ["bird"])], atoms=program.atoms)
    certificate = lg.certify(model, other)
    assert certificate.status.value == "differs"
    assert not certificate.holds
    assert "bird :- animal." in certificate.message
    assert "bird :- penguin." in " ".join(certificate.differences)
    with pytest.raises(lg.errors.CertificateError, match="does not implement"):
        certificate.require()


@pytest.mark.parametrize("rules", [1, 2, 3, 4, 6])
def test_three_differences_are_shown_and_the_others_counted(rules: int) -> None:
    atoms = ["a", *(f"b{i}" for i in range(6))]
    own = Program.from_rules([(f"b{i}", ["a"]) for i in range(6)], atoms=atoms)
    model = lg.oracle(own)
    fewer = Program.from_rules([(f"b{i}", ["a"]) for i in range(6 - rules)], atoms=atoms)
    certificate = lg.certify(model, fewer)
    assert certificate.status.value == "differs"
    assert len(certificate.differences) == rules
    assert certificate.message.count("which the program does not imply") == min(rules, 3)
    assert ("more." in certificate.message) == (rules > 3)
    assert rules <= 3 or f"; and {rules - 3} more." in certificate.message
    more = lg.certify(lg.oracle(fewer), own)
    assert more.message.count("which the rows do not imply") == min(rules, 3)
    assert f"(rule {6 - rules})" in more.message


def test_what_is_no_model_is_refused() -> None:
    program = lg.parse("b :- a.")
    with pytest.raises(lg.errors.ModelError, match="certify takes a model, such as"):
        lg.certify(program, program)


def test_atoms_that_only_one_side_has_are_named() -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."))
    with pytest.raises(lg.errors.ModelError, match="same atoms: 'c', 'd' differ"):
        lg.certify(model, lg.parse("b :- a. d :- b."))
    many = Program.from_rules([], atoms=["a", "b", "c", *(f"x{i}" for i in range(9))])
    with pytest.raises(lg.errors.ModelError, match="'x0', 'x1', 'x2', 'x3', 'x4' differ"):
        lg.certify(model, many)


@pytest.mark.quick_first
@pytest.mark.parametrize("steps", [None, 40])
@pytest.mark.parametrize("text", ["b :- a. c :- b.", "d :- a, b, c. e :- d."])
def test_a_tolerance_is_found_to_a_part_in_a_thousand(text: str, steps: int | None) -> None:
    program = lg.parse(text)
    model = lg.oracle(program, lg.Constants.paper(), dtype=torch.float64)

    def good(delta: float) -> bool:
        found = lg.certify(model, program, tolerance=delta)
        return found.holds if steps is None else found.covers(steps)

    delta = lg.operator.tolerance(model, program, steps=steps)
    assert good(delta)
    assert not good(min(0.4999, delta / 0.999 + 1e-12))


def test_a_model_without_any_tolerance_has_a_tolerance_of_zero(monkeypatch) -> None:
    program = lg.parse("b :- a.")

    def exact_inputs_only(strata, negating, *, depth, tolerance):
        found = window(strata, negating, depth=depth)
        return replace(found, status=Status.LEAKS) if tolerance > 1e-12 else found

    monkeypatch.setattr("latentgamma.certificate.certify.window", exact_inputs_only)
    assert lg.operator.tolerance(lg.oracle(program), program) == 0.0


def test_rows_in_another_order_are_recognised() -> None:
    program = lg.parse("b :- a. c :- b. d :- a, c.")
    shuffled = Program.from_rules(list(program.rules)[::-1], atoms=program.atoms)
    assert lg.certify(lg.oracle(program), shuffled).holds


def test_atoms_are_matched_by_name() -> None:
    program = lg.parse("b :- a. c :- b. d :- a, c.")
    renumbered = Program.from_rules(program.rules, atoms=program.atoms[::-1])
    assert lg.certify(lg.oracle(program), renumbered).holds
    with pytest.raises(lg.errors.ModelError, match="'e'"):
        lg.certify(lg.oracle(program), lg.parse("b :- a. c :- b. d :- a, c, e."))


def test_redundant_rules_and_idle_rows_do_not_matter() -> None:
    program = lg.parse("b :- a. c :- b. c :- a, b.")
    leaner = Program.from_rules([("b", ["a"]), ("c", ["b"])], atoms=program.atoms)
    model = lg.oracle(program)
    assert lg.certify(model, leaner).holds
    with torch.no_grad():
        model.rules.body_logits[2] = -12.0  # a row that never fires
        model.threshold[2] = 5.0
    assert lg.certify(model, leaner).holds


def test_a_leak_is_named_with_its_cause_and_a_remedy() -> None:
    atoms = ["goal", "a", "b", "c", *(f"x{i}" for i in range(300))]
    program = Program.from_rules([("goal", ["a", "b", "c"])], atoms=atoms)
    constants = lg.Constants(4, 20, 10, 0.95, 5, 5)  # 300 atoms weigh more than one
    certificate = lg.certify(lg.oracle(program, constants), program)
    assert certificate.status.value == "leaks"
    assert "'goal' may be above one half" in certificate.message
    assert certificate.message.endswith("Constants.certified(program)")


def test_a_lag_is_named_with_its_cause_and_a_remedy() -> None:
    program = lg.parse("b :- a. c :- b.")
    model = lg.oracle(program)
    with torch.no_grad():
        model.offset[program.index["c"]] += 2 * model.gain * model.confidence[0]
    certificate = window([worst_cases(model.literal_weights(program))])
    assert certificate.status.value == "lags"
    assert "'c :- b.' need not push" in certificate.message
    assert "Raise the gain" in certificate.message
    assert certificate.message.endswith("Constants.certified(program)")


def test_margins_are_those_of_the_lemmas() -> None:
    program = lg.parse("c :- a, b.")
    model = lg.oracle(program, lg.Constants.paper(), dtype=torch.float64)
    margins = lg.certify(model, program).margins
    eps = 1 / (1 + math.exp(10))
    assert margins.match_on == pytest.approx(0.5 - 2 * eps, abs=1e-9)
    assert margins.match_off == pytest.approx(-0.5 + eps * 1 - eps, abs=1e-4)
    assert margins.evidence_on > 0 > margins.evidence_off > margins.sink


def test_a_certificate_goes_to_json() -> None:
    import json

    program = lg.parse("b :- a.")
    told = json.loads(json.dumps(lg.certify(lg.oracle(program, gate="bump"), program).to_dict()))
    assert told["holds"] is True
    assert told["t_max"] is None
    assert told["t_min"] == 1


def test_edges_of_the_domain() -> None:
    nothing = Program.from_rules([])
    assert lg.certify(lg.oracle(nothing), nothing).holds
    only_facts = lg.parse("a. b.")
    certificate = lg.certify(lg.oracle(only_facts), only_facts)
    assert (certificate.t_min, certificate.t_max) == (1, math.inf)
    no_rules = Program.from_rules([], atoms=["a", "b"])
    assert lg.certify(lg.oracle(no_rules), no_rules).t_min == 0
    with pytest.raises(lg.errors.ArgumentError, match="depth"):
        lg.certify(lg.oracle(nothing), nothing, depth=-1)


@pytest.mark.slow
def test_window_of_a_closed_form_agrees_with_that_of_its_model() -> None:
    for seed in range(20):
        program = small_program(np.random.default_rng(seed))
        form = ClosedForm(program, lg.Constants.paper(), dtype="float64")
        ours = window([worst_cases(form.literal_weights())])
        model = lg.oracle(program, lg.Constants.paper(), dtype=torch.float64)
        models = window([worst_cases(replace(model.literal_weights(program), whole=None))])
        assert ours.t_min == models.t_min
        assert ours.t_max == pytest.approx(models.t_max, rel=0.02, abs=1)


# -------------------------------------------------------------------- where rounding bites


def test_what_idle_rules_give_is_bounded_with_the_rounding_of_their_body_sums() -> None:
    atoms = ["h", *(f"x{i}" for i in range(2000))]
    program = Program.from_rules([("h", []), ("h", atoms[1:])], atoms=atoms)
    constants = lg.Constants(20.0, 40.0, 2e4, 0.5, 1000.0, 5.0)
    with torch.no_grad():
        model = lg.oracle(program, constants, form="dense", gate="bump")
        # The large body sums to 2,000 and has next to no threshold: its idle activation is
        # decided by the last bit of that sum.
        model.threshold.copy_(torch.tensor([-0.5, 6.5e-5]))
        model.offset.fill_(1e5)
        model.offset[0] = 0.0
        model.offset[0] = (
            float(model.literal_weights(program).evidence_below(np.ones((1, 1)))[0][0]) - 2
        )
        certificate = lg.certify(model, program)
        derived = model(torch.zeros(program.M), 50)[0] > 0.5
    assert derived or not certificate.covers(50)


@pytest.mark.parametrize("argument", [-80.0, -40.0, -10.0])
def test_what_strays_is_bounded_with_the_rounding_of_its_argument(argument: float) -> None:
    nothing = Program.from_rules([], atoms=["s", "a"])
    row = Program.from_rules([("s", ["a"])], atoms=["s", "a"])
    model = lg.oracle(row, lg.Constants(20.0, 1.0, 5.0, 0.5, 1e6, 5.0), form="dense")
    with torch.no_grad():
        model.rules.head_logits.zero_()
        model.threshold.fill_(1 - argument / 5)
        numbers = model.step_parameters()
        slack = float((numbers.body_total - numbers.threshold.double()).detach())
    reach = float(numbers.sharpness) * slack
    exact = float(numbers.amplitude) * math.exp(reach) / (1 + math.exp(reach)) / 2
    stray = model.literal_weights(nothing, np.zeros(0, np.int64)).stray[0]
    # A few roundoffs of the sigmoid's argument are as many, times its size, of the sigmoid.
    assert stray >= exact * (1 + 4 * 2.0**-24 * abs(argument))
    assert stray <= exact * 1.001 + 1e6 * 100 * 2.0**-126


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["threshold", "offset", "gain_raw", "sharpness_raw"])
def test_parameters_that_are_no_numbers_prove_nothing(name: str, value: float) -> None:
    program = lg.parse("b :- a. c :- b.")
    model = lg.oracle(program)
    with torch.no_grad():
        getattr(model, name).fill_(value)
    certificate = lg.certify(model, program)
    assert not certificate.holds
    assert "nothing is proved" in certificate.message or "not implement" in certificate.message


def test_products_beyond_the_range_of_the_dtype_prove_nothing() -> None:
    program = lg.parse("b :- a.")
    model = lg.oracle(program)
    with torch.no_grad():
        model.sharpness_raw.fill_(3e37)
    assert lg.certify(model, program).status.value in ("undefined", "differs")


def test_a_models_own_certificate_sees_values_that_change_places() -> None:
    program = lg.Program.from_rules([("b", ["a"]), ("c", ["d"])])
    model = lg.oracle(program, form="sparse").requires_grad_(False)
    before = model.certificate()
    assert before.holds
    logits = model.threshold.data
    logits[0], logits[1] = -5.0, 5.5 + 0.5
    changed = model.certificate()
    logits[0], logits[1] = 6.0, -5.0  # the same sum, elsewhere
    assert model.certificate() is not changed


# -------------------------------------------------------------------- soft inputs


def soft_inputs(facts: np.ndarray, delta: float, rng: np.random.Generator) -> torch.Tensor:
    """Inputs at the corners of the tolerance and inside of it, for each fact set."""
    corner = np.where(facts, 1 - delta, delta)
    inside = np.where(facts, 1 - delta * rng.random(facts.shape), delta * rng.random(facts.shape))
    return torch.from_numpy(np.stack([corner, inside]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_inside_the_window_every_soft_input_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    held = 0
    for _ in range(60):
        program = small_program(rng, 5)
        dtype = [torch.float64, torch.float32][int(rng.integers(2))]
        model = lg.oracle(program, soft_constants(rng), dtype=dtype)
        model = shaken(model, float(rng.uniform(0, 0.2)), generator)
        delta = float(rng.choice([0.01, 0.05, 0.1, 0.2]))
        certificate = lg.certify(model, program, tolerance=delta)
        if not certificate.holds:
            continue
        held += 1
        assert certificate.tolerance == delta
        facts = every_fact_set(program.M)
        wanted = torch.from_numpy(lg.closures(program, facts))
        first = int(certificate.t_min)
        last = int(min(certificate.t_max, first + 200))
        with torch.no_grad():
            run = model.iterate(soft_inputs(facts, delta, rng).to(dtype), last)
        assert bool((run.support[first:] == wanted).all())
    assert held > 10


@pytest.mark.slow
def test_the_tolerance_is_the_largest_that_is_certified() -> None:
    for program in (lg.parse("b :- a. c :- b."), clique(5), ladder(3, 4)):
        model = lg.oracle(program)
        depth = lg.logic.depth_bound(program)
        delta = lg.operator.tolerance(model, program, steps=depth)
        assert 0 < delta < 0.5
        assert lg.certify(model, program, tolerance=delta).covers(depth)
        assert not lg.certify(model, program, tolerance=min(0.499, 1.01 * delta)).covers(depth)


def test_a_tolerance_shrinks_the_window() -> None:
    program = clique(6)
    model = lg.oracle(program, lg.Constants.paper(), dtype=torch.float64)
    ends = [lg.certify(model, program, tolerance=d).t_max for d in (0.0, 0.01, 0.1)]
    assert ends[0] >= ends[1] >= ends[2]
    assert ends[0] > ends[2]
    for wrong in (-0.1, 0.5, math.nan):
        with pytest.raises(lg.errors.ArgumentError, match="tolerance"):
            lg.certify(model, program, tolerance=wrong)


def test_a_tolerance_of_a_model_that_is_not_certified_is_refused() -> None:
    program = clique(80)
    model = lg.oracle(program, lg.Constants.paper())
    with pytest.raises(lg.errors.CertificateError, match="outside of the window"):
        lg.operator.tolerance(model, program, steps=1000, depth=1)
    with pytest.raises(lg.errors.CertificateError, match="nothing is proved"):
        lg.operator.tolerance(model, program, depth=20)


def test_fact_sets_give_the_depth() -> None:
    program = lg.parse("b :- a. c :- b. d :- c. a :- d.")
    model = lg.oracle(program)
    assert lg.certify(model, program).depth > 2
    assert lg.certify(model, program, facts=[["c"], ["b"]]).depth == 3
    assert lg.certify(model, program, facts=[["a", "c"]]).depth == 1
    assert lg.certify(model, program, facts=["a", "b", "c", "d"]).depth == 0
    renumbered = Program.from_rules(program.rules, atoms=program.atoms[::-1])
    mask = np.array([name in ("a", "c") for name in renumbered.atoms])
    assert lg.certify(model, renumbered, facts=mask[None]).depth == 1
    assert lg.certify(model, program, facts=np.zeros((0, 4), bool)).depth == 0
    assert lg.certify(model, program, depth=0).t_min == 0
    with pytest.raises(lg.errors.ArgumentError, match="not both"):
        lg.certify(model, program, facts=[["a"]], depth=2)


def test_atoms_without_rules_stay_low_for_as_long_as_was_asked() -> None:
    for text in ("#external a.", "a. #external b."):
        program = lg.parse(text)
        certificate = lg.certify(lg.oracle(program), program)
        assert certificate.covers(10**6), text


@pytest.mark.parametrize("steps", [1.5, 2.0, math.inf, math.nan, -1, True, "2"])
def test_only_whole_numbers_of_steps_are_covered(steps: object) -> None:
    program = lg.parse("b :- a.")
    certificate = lg.certify(lg.oracle(program), program)
    with pytest.raises(lg.errors.ArgumentError, match="steps must be a whole number from 0 on"):
        certificate.covers(steps)  # type: ignore[arg-type]
    with pytest.raises(lg.errors.ArgumentError):
        replace(certificate, status=Status.DIFFERS).covers(steps)  # type: ignore[arg-type]


def test_every_closed_set_may_be_followed_closely() -> None:
    pytest.importorskip("clingo")
    edges = ["80", "60", "53", "24", "81", "52", "02", "68", "45", "63", "75", "25"]
    text = "linked(X,Y) :- edge(X,Y). linked(X,Y) :- linked(Y,X)."
    program = lg.datalog.ground(text, open=["edge/2"], facts={"edge": [tuple(e) for e in edges]})
    found = lg.certify(lg.oracle(program), program)
    assert found.holds


def test_a_model_with_other_rows_and_no_window_says_why() -> None:
    model = lg.oracle(lg.parse("b :- a. b :- a."))
    program = lg.parse("#external b. #external a. b :- a.")
    assert lg.certify(model, program).holds
    found = lg.certify(model, program, tolerance=0.49)
    assert not found.holds
    assert found.message.startswith("nothing is proved")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("", "does not implement"), ("e :- a, not b.", "is not shown to implement")],
)
def test_differences_are_named_and_counted(text: str, verdict: str) -> None:
    """What is claimed of other rules is less with negation, where entailment is not all there is."""
    externals = "#external a. #external b. #external c. #external d. #external e. "
    model = lg.oracle(lg.parse(f"{externals} b :- a. {text}"))
    three = lg.parse(f"{externals} b :- a. {text} c :- a. c :- b. d :- a.")
    four = lg.parse(f"{externals} b :- a. {text} c :- a. c :- b. d :- a. d :- b.")
    for program, more in ((three, ""), (four, "; and 1 more")):
        found = lg.certify(model, program)
        assert verdict in found.message
        assert f"{more}. Certify it" in found.message
        assert (" more" in found.message) is bool(more)
