"""The operator: closures inside the window that holds, failures outside, and bad input."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg
import paper_reference as paper
from latentgamma import Constants, LatentGamma, Program, certify, generators, oracle, parse
from latentgamma.errors import ArgumentError, CertificateError, FactsError, ModelError, StateError
from latentgamma.logic.closure import depths_of_rows
from latentgamma.operator import model as module
from latentgamma.operator import rules as stages
from latentgamma.operator.rules import DenseRules, SparseRules
from latentgamma.operator.until_closed import depths_on_cpu
from random_models import FORMS, GATES, paper_parameters, random_model
from random_programs import random_program
from reference import every_fact_set

PAPER = Constants.paper()


def index_rules(program: Program) -> list[tuple[list[int], list[int]]]:
    return [(program.heads_of(j).tolist(), program.body_of(j).tolist()) for j in range(program.R)]


# ------------------------------------------------------------------------ the closed form


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("seed", range(6))
def test_the_closed_form_is_the_papers(form: str, gate: str, seed: int) -> None:
    program = random_program(seed, heads=1 if seed < 3 else 3)
    model = oracle(program, PAPER, form=form, gate=gate, head_sharing="paper", dtype=torch.float64)
    expected = paper.closed_form(program.M, index_rules(program), bump=gate == "bump")
    found = paper_parameters(model)
    for name in ("eta", "psi", "b", "tau", "rho", "theta", "tau_nor", "beta"):
        torch.testing.assert_close(
            torch.tensor(getattr(found, name), dtype=torch.float64),
            torch.tensor(getattr(expected, name), dtype=torch.float64),
            rtol=1e-14,
            atol=1e-14,
        )
    facts = program.state([0, 2])
    after = model(torch.from_numpy(facts), 7)
    assert after.tolist() == pytest.approx(paper.run(expected, facts.tolist(), 7), abs=1e-12, rel=0)


def test_the_papers_two_contributions_are_what_its_formulas_give() -> None:
    # It prints 4.687 and 0.0316.
    assert PAPER.gamma_plus == pytest.approx(4.7182, abs=5e-5)
    assert PAPER.gamma_minus == pytest.approx(0.03179, abs=5e-6)
    assert PAPER.gamma_plus / PAPER.gamma_minus == pytest.approx(math.exp(5), rel=1e-12)


def test_the_scaled_ratio_is_the_square_root_of_the_one_printed() -> None:
    program = generators.clique(12)
    scaled = Constants.scaled(program, c=4.0)
    ratio = scaled.gamma_plus / scaled.gamma_minus
    assert ratio == pytest.approx(math.exp(2) * (program.rho_max + 2))  # not e⁴ (ρ_max + 2)


def test_the_form_is_chosen_by_size() -> None:
    assert isinstance(oracle(generators.chain(5)).rules, DenseRules)
    assert isinstance(oracle(generators.chain(500)).rules, SparseRules)


# ------------------------------------------------------------------------ exact closures


@pytest.mark.quick_first
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gate", GATES)
def test_exact_inside_the_window_under_the_papers_constants(form: str, gate: str) -> None:
    checked = 0
    for seed in range(8):
        program = generators.random(6, 9, body=(1, 3), seed=seed)
        model = oracle(program, PAPER, form=form, gate=gate)
        window = certify(model, program)
        if not window.holds:
            continue
        given = every_fact_set(program.M)
        expected = torch.from_numpy(lg.closures(program, given))
        for steps in {window.t_min, window.t_min + 1, min(window.t_max, window.t_min + 40)}:
            assert torch.equal(model(model.state(given), int(steps)) > 0.5, expected)
        checked += 1
    assert checked >= 6


@pytest.mark.quick_first
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_exact_closures_of_every_fact_set(form: str, gate: str, dtype: torch.dtype) -> None:
    for seed in range(3):
        program = random_program(seed)
        model = oracle(program, form=form, gate=gate, dtype=dtype)
        given = every_fact_set(program.M)
        expected = torch.from_numpy(lg.closures(program, given))
        assert torch.equal(model(model.state(given)) > 0.5, expected)
        facts = program.names(given[37])
        assert model.closure(facts) == lg.closure(program, facts).atoms


# ------------------------------------------------------------------------ where the paper fails


def first_step_with(model: LatentGamma, facts: Any, atom: str, limit: int) -> int | None:
    """The first step at which an atom is above one half."""
    assert model.program is not None
    with torch.no_grad():
        crossing = model.iterate(model.state(facts), limit).crossing
    step = int(crossing[model.program.index[atom]])
    return None if step < 0 else step


@pytest.mark.parametrize("form", FORMS)
class TestWhereThePaperFails:
    def test_the_window_does_not_start_at_the_depth(self, form: str) -> None:
        # Derived atoms arrive at 0.91, and six of them miss the threshold 5½.
        wide = [f"b{i}" for i in range(6)]
        program = Program.from_rules([*((b, ["f"]) for b in wide), ("h", wide)])
        assert lg.closure(program, ["f"]).depth == 2
        model = oracle(program, PAPER, form=form, dtype=torch.float64)
        derived = model.step(model.state(["f"]))[program.index["b0"]]
        assert derived.item() == pytest.approx(0.91, abs=0.005)
        assert first_step_with(model, ["f"], "h", 9) == 3
        assert first_step_with(oracle(program, form=form), ["f"], "h", 9) == 2

    def test_a_ladder_lags_more_and_more(self, form: str) -> None:
        program = generators.ladder(10, 3)
        facts = program.roots
        assert lg.closure(program, facts).depth == 10
        model = oracle(program, PAPER, form=form, dtype=torch.float64)
        assert first_step_with(model, facts, program.atoms[-1], 20) == 13
        assert first_step_with(oracle(program, form=form), facts, program.atoms[-1], 20) == 10

    @pytest.mark.parametrize(("atoms", "promised", "real"), [(80, 695, 10), (40, 27_738, 507)])
    def test_the_window_ends_long_before_it_should(
        self, form: str, atoms: int, promised: int, real: int
    ) -> None:
        program = generators.clique(atoms)  # and no facts at all, so nothing is derivable
        rho = atoms - 1
        half = (PAPER.gamma_plus - rho * PAPER.gamma_minus) / 2
        leak = paper.sigma(-half) * paper.sigma(-5 * half)
        assert math.floor(math.log(2) / leak) == promised
        model = oracle(program, PAPER, form=form, dtype=torch.float64)
        assert first_step_with(model, [], program.atoms[0], real + 1) == real
        proved = certify(model, program)
        assert 0.5 * real < proved.t_max < real
        assert first_step_with(oracle(program, form=form), [], program.atoms[0], 100) is None

    def test_two_atoms_that_imply_each_other(self, form: str) -> None:
        # By symmetry one number describes the run, and a loop of floats is quick enough.
        theta = (PAPER.gamma_plus + PAPER.gamma_minus) / 2
        on, off = paper.sigma(10), paper.sigma(-10)
        s, steps = 0.0, 0
        while s <= 0.5:
            a = paper.sigma(10 * ((on + off) * s - 0.5))
            phi = 4.75 * a - theta  # what the one rule sends, and what strays from the other
            s += (1 - s) * paper.sigma(5 * phi) * paper.sigma(phi)
            steps += 1
        assert steps == 246_662  # the paper promises 969,400
        model = oracle(generators.clique(2), PAPER, form=form, dtype=torch.float64)
        assert 0.98 * steps < certify(model, generators.clique(2)).t_max <= steps

    def test_the_assumption_does_not_separate(self, form: str) -> None:
        M, rho = 2700, 40
        names = ["head", "missing", *(f"x{i}" for i in range(M - 2))]
        program = Program.from_rules(
            [("head", ["missing", f"x{j}"]) for j in range(rho)], atoms=names
        )
        assert 4 * program.k * M * math.exp(-10) == pytest.approx(0.98, abs=0.01)  # (★) holds
        facts = np.ones(M, np.bool_)
        facts[:2] = False
        assert not lg.closure(program, facts).state[0]
        model = oracle(program, PAPER, form=form, dtype=torch.float64)
        assert model.step(model.state(facts))[0] > 0.5
        assert not certify(model, program).holds
        right = oracle(program, form=form)
        assert right(right.state(facts), 1000)[0] < 0.5

    def test_the_largest_share_is_the_wrong_threshold_for_several_heads(self, form: str) -> None:
        program = Program.from_rules([("h", ["a"]), (("h", "p", "q"), ["b"])])
        model = oracle(program, PAPER, form=form, head_sharing="paper", dtype=torch.float64)
        numbers = model.step_parameters()
        state = model.state(["b"])
        rules = model.rules
        with torch.no_grad():
            fired = stages.fire(numbers, stages.match(rules, numbers, state))
            phi = stages.route(rules, numbers, fired)
        assert phi[program.index["h"]].item() == pytest.approx(-0.78, abs=0.01)
        assert first_step_with(model, ["b"], "h", 100) is None  # then it leaks up
        assert first_step_with(model, ["b"], "p", 100) == 1
        for constants in (PAPER, None):
            equal = oracle(program, constants, form=form)
            assert first_step_with(equal, ["b"], "h", 5) == 1
            assert first_step_with(equal, ["a"], "p", 100) is None


# ------------------------------------------------------------------------ running


def test_steps_none_stops_each_example_where_it_is_closed() -> None:
    program = generators.chain(12)
    model = oracle(program, dtype=torch.float64)
    batch = model.state([[11], [0], [6], []])
    together = model(batch)
    for alone, row in zip(batch, together, strict=True):
        torch.testing.assert_close(model(alone), row, rtol=0, atol=1e-15)
    # Closed from the start: not a step was taken, whatever the others did.
    assert torch.equal(together[0], batch[0])
    assert torch.equal(together[3], batch[3])
    assert torch.equal(together[1] > 0.5, torch.ones(12, dtype=torch.bool))
    shaped = model(batch.reshape(2, 2, 12))
    torch.testing.assert_close(shaped.reshape(4, 12), together, rtol=0, atol=1e-15)
    assert model(batch[:0]).shape == (0, 12)


def test_steps_none_waits_for_a_lagging_rule() -> None:
    # Under the paper's constants step 2 changes nothing above one half; step 3 does.
    wide = [f"b{i}" for i in range(6)]
    program = Program.from_rules([*((b, ["f"]) for b in wide), ("h", wide)])
    model = oracle(program, PAPER)
    assert model.closure(["f"]) == lg.closure(program, ["f"]).atoms


def test_steps_none_gives_up_inside_the_window() -> None:
    program = parse("c :- a, b.")
    model = oracle(program)
    halfway = torch.full((3,), 0.6)  # true enough to count, too little to fire
    halfway[program.index["c"]] = 0.0
    with pytest.warns(UserWarning, match=r"1 of 1 examples.* pass steps=") as caught:
        after = model(halfway)
    assert caught[0].filename == __file__
    window = model.certificate()
    assert torch.equal(after, model(halfway, int(4 * window.t_min + 16)))
    assert after[program.index["c"]] < 0.5


def test_steps_none_needs_a_window() -> None:
    soft = Constants(body=3.0, head=5.0, sharpness=0.5, confidence=0.95, gain=5.0, gate=5.0)
    model = oracle(generators.chain(12, body=2), soft)
    with pytest.raises(
        CertificateError, match=r"certified window, but nothing is proved.*pass steps="
    ):
        model(model.state([]))


def test_the_certificate_follows_the_parameters() -> None:
    model = oracle(parse("b :- a. c :- b."))
    assert model.certificate().holds
    assert model.certificate() is model.certificate()
    model.offset.data.fill_(1e3)  # a change that autograd does not see
    assert not model.certificate().holds
    model = oracle(parse("b :- a. c :- b."))
    wide = model.certificate()
    assert model.bfloat16().certificate().dtype == "bfloat16" != wide.dtype


def test_a_trajectory_tells_when_atoms_rise() -> None:
    program = parse("bird :- penguin. animal :- bird.")
    model = oracle(program)
    run = model.iterate(model.state(["penguin"]), 4)
    assert len(run) == 5 == run.steps + 1
    assert torch.equal(run[0], model.state(["penguin"]))
    assert torch.equal([*run][-1], run.final)
    assert run.names(1) == {"penguin", "bird"}
    assert run.names() == {"penguin", "bird", "animal"}
    crossing = dict(zip(program.atoms, run.crossing.tolist(), strict=True))
    assert crossing == {"penguin": 0, "bird": 1, "animal": 2}
    assert model.iterate(model.state([]), 2).crossing.tolist() == [-1, -1, -1]
    assert model.names(run.final) == run.names()
    assert model.names(run.states[:2]) == [run.names(0), run.names(1)]


def test_no_steps_is_the_state_itself() -> None:
    model = random_model(random_program(1))
    state = torch.rand(3, model.M, dtype=torch.float64, requires_grad=True)
    assert torch.equal(model(state, 0), state)
    assert torch.equal(model.iterate(state, 0).states, state[None])


# ------------------------------------------------------------------------ states from facts


class TestState:
    program = parse("bird :- penguin. animal :- bird.")  # bird, penguin, animal
    model = oracle(program)

    @pytest.mark.parametrize(
        "facts",
        [
            "penguin",
            1,
            ["penguin"],
            {"penguin"},
            ("penguin",),
            (name for name in ["penguin"]),
            [1],
            np.array([1]),
            [False, True, False],
            np.array([False, True, False]),
            np.array(["penguin"]),
            torch.tensor([False, True, False]),
            torch.tensor([1]),
            [np.int64(1)],
        ],
    )
    def test_one_fact_set(self, facts: Any) -> None:
        assert self.model.state(facts).tolist() == [0, 1, 0]

    @pytest.mark.parametrize(
        "facts",
        [
            [["penguin"], []],
            (["penguin"], ()),
            [{"penguin"}, frozenset()],
            (names for names in (["penguin"], [])),
            [[1], []],
            [np.array([1]), np.array([], np.int64)],
            [np.array([False, True, False]), np.zeros(3, np.bool_)],
            np.array([[False, True, False], [False, False, False]]),
            torch.tensor([[False, True, False], [False, False, False]]),
        ],
    )
    def test_many_fact_sets(self, facts: Any) -> None:
        assert self.model.state(facts).tolist() == [[0, 1, 0], [0, 0, 0]]

    def test_nothing_is_one_empty_fact_set(self) -> None:
        assert self.model.state([]).tolist() == [0, 0, 0]
        assert self.model.state(np.zeros((0, 3), np.bool_)).shape == (0, 3)

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            (["pinguin"], r"'pinguin' \(did you mean 'penguin'\?\)"),
            ([["bird"], ["tern"]], r"fact set 1: facts name an atom .*'tern'"),
            ([["bird"], "penguin"], "one fact set, or a collection of fact sets, but not both"),
            ([3], r"fact index 3 is outside 0…2"),
            ([1.0], r"a state has one entry for each atom, shape \(3,\)"),
            (np.array([0.0, 1.5, 0.0]), r"the value 1\.5; the values of a state lie"),
            (np.array([[0, 2, 0]]), "neither a state"),
            (np.zeros((2, 4), np.bool_), r"shape \(2, 4\)"),
            ([True, False], r"shape \(3,\), but this array has shape \(2,\)"),
        ],
    )
    def test_what_is_refused(self, facts: Any, message: str) -> None:
        with pytest.raises(FactsError, match=message):
            self.model.state(facts)


# ------------------------------------------------------------------------ bad input

CHAIN = oracle(generators.chain(3))


@pytest.mark.parametrize("call", [CHAIN.step, lambda s: CHAIN(s, 2), lambda s: CHAIN.iterate(s, 2)])
@pytest.mark.parametrize(
    ("state", "message"),
    [
        (torch.zeros(4), r"number of atoms, 3, but the shape is \(4,\)"),
        (torch.zeros(3, 2), r"number of atoms, 3, but the shape is \(3, 2\)"),
        (torch.tensor(0.5), r"number of atoms, 3, but the shape is \(\)"),
        (torch.tensor([0.0, 0.5, 1.5]), r"lie in \[0, 1\], but these reach from 0 to 1.5"),
        (torch.tensor([0.0, -0.5, 1.0]), r"lie in \[0, 1\], but these reach from -0.5 to 1"),
        (torch.tensor([0.0, math.nan, 1.0]), r"lie in \[0, 1\], but there is a NaN"),
        (torch.tensor([0.0, math.inf, 1.0]), r"lie in \[0, 1\], but these reach from 0 to inf"),
        (torch.tensor([0, 1, 0]), r"not torch.int64; use state.float\(\)"),
        (
            torch.tensor([False, True, False]),
            r"not torch.bool; use state.float\(\), or model.state",
        ),
        (torch.zeros(3).to(torch.float8_e4m3fn), "not torch.float8_e4m3fn"),
        (torch.zeros(3, dtype=torch.complex64), "not torch.complex64"),
        ([0.0, 1.0, 0.0], "a state is a tensor, not list; try model.state"),
        (torch.zeros(3, device="meta"), "the state is on meta, but the model on cpu"),
    ],
)
def test_what_is_no_state(call: Callable[[Any], Any], state: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        call(state)


@pytest.mark.parametrize("steps", [-1, 1.5, True, "3", np.float64(2.0)])
def test_what_is_no_number_of_steps(steps: Any) -> None:
    with pytest.raises(ArgumentError, match=r"steps must be a whole number from 0 on"):
        CHAIN(torch.zeros(3), steps)
    with pytest.raises(ArgumentError, match=r"steps must be a whole number from 0 on"):
        CHAIN.iterate(torch.zeros(3), steps)


def test_numpy_integers_are_whole_numbers() -> None:
    state = CHAIN.state([0])
    assert torch.equal(CHAIN(state, np.int32(2)), CHAIN(state, 2))  # type: ignore[arg-type]


def test_unknown_options() -> None:
    program = generators.chain(3)
    for options, message in (
        ({"form": "spares"}, "form must be one of 'auto', 'dense', 'sparse', not 'spares'"),
        ({"gate": "relu"}, "gate must be one of 'sigmoid', 'bump', not 'relu'"),
        ({"gradient": "prof"}, "gradient must be one of 'exact', 'proof', not 'prof'"),
        ({"head_sharing": "max"}, "head_sharing must be one of 'equal', 'paper', not 'max'"),
        ({"dtype": torch.int32}, "dtype must be torch.float64, float32, float16 or bfloat16"),
    ):
        with pytest.raises(ArgumentError, match=message):
            oracle(program, **options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="gradient must be one of"):
        oracle(program).gradient = "straight"  # type: ignore[assignment]
    with pytest.raises(ArgumentError, match="group must be one of 'body', 'head'"):
        CHAIN.trainable("bodies")


def test_a_dense_form_that_does_not_fit_is_refused_before_it_is_made() -> None:
    program = generators.chain(400_000)
    with pytest.raises(ModelError, match=r'needs 2.56 TB, and there are .*; use form="sparse"'):
        oracle(program, PAPER, form="dense")


def test_a_model_without_a_program_says_so() -> None:
    model = random_model(random_program(0))
    model.program = None
    for call, purpose in (
        (lambda: model.state(["a0"]), "to name facts"),
        (lambda: model.closure(["a0"]), "to name facts"),
        (lambda: model.names(torch.zeros(6)), "to name atoms"),
        (lambda: model(torch.zeros(6)), "to know when to stop; pass steps="),
        (model.certificate, "to be certified against"),
    ):
        with pytest.raises(ModelError, match=f"has no program {purpose}"):
            call()
    with pytest.raises(ModelError, match="no names"):
        model.iterate(torch.zeros(6), 1).names()


def test_parameters_that_are_none() -> None:
    rules = DenseRules(torch.zeros(2, 3), torch.zeros(2, 3))
    fine = {
        "threshold": torch.zeros(2),
        "sharpness": torch.ones(2),
        "confidence": torch.full((2,), 0.5),
        "gain": torch.tensor(1.0),
        "offset": torch.zeros(3),
        "gate": torch.tensor(2.0),
    }
    LatentGamma(rules, **fine)
    for name, value, message in (
        ("threshold", torch.zeros(3), r"threshold must have the shape \(2,\), not \(3,\)"),
        ("offset", torch.zeros(2), r"offset must have the shape \(3,\), not \(2,\)"),
        ("gain", torch.ones(1), r"gain must have the shape \(\), not \(1,\)"),
        ("sharpness", torch.tensor([1.0, 0.0]), "sharpness must be a finite number above 0"),
        ("sharpness", torch.tensor([1.0, math.inf]), "sharpness must be a finite number above 0"),
        ("gain", torch.tensor(math.nan), "gain must be a finite number above 0"),
        ("gate", torch.tensor(1.0), "gate must be a finite number above 1"),
        ("confidence", torch.tensor([0.5, 1.0]), "confidence must lie strictly between 0 and 1"),
    ):
        with pytest.raises(ModelError, match=message):
            LatentGamma(rules, **{**fine, name: value})
    with pytest.raises(ModelError, match=r"one shape \(R, M\), not \(2, 3\) and \(2, 4\)"):
        DenseRules(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ModelError, match="the model has 3 atoms, but the program has 2"):
        LatentGamma(rules, **fine, program=parse("a :- b."))


@pytest.mark.parametrize("text", ["b :- a. c :- b.", "b :- not a. c :- b."])
def test_a_program_with_another_number_of_atoms_cannot_be_set(text: str) -> None:
    program = parse(text)
    model = lg.oracle(program)
    for other in ("b :- a.", "b :- a. c :- b. d :- c."):
        with pytest.raises(ModelError, match="the model has 3 atoms, but the program has"):
            model.program = parse(other)
    assert model.program is program
    assert model.certificate().holds
    model.program = None
    assert model.atoms is None


def test_numbers_that_were_read_are_read_again_when_a_parameter_changes() -> None:
    program = lg.generators.g1()
    model = lg.oracle(program, form="sparse")
    state = model.state([program.roots[0]])
    with torch.no_grad():
        before = model(state, 3)
        assert torch.equal(model(state, 3), before)
        model.offset.add_(1.0)
        changed = model(state, 3)
        assert not torch.equal(changed, before)
        model.offset.data = model.offset.data - 1.0
        torch.testing.assert_close(model(state, 3), before)
    fresh = copy.deepcopy(model)
    with torch.no_grad():
        fresh.offset.add_(1.0)
        assert not torch.equal(fresh(state, 3), model(state, 3))


def test_a_fixed_model_answers_as_before_and_then_follows_its_parameters_again() -> None:
    program = lg.generators.g1()
    model = lg.oracle(program, form="sparse")
    state = model.state([program.roots[0]])
    usual = model(state, 3).detach()
    with model.fixed():
        assert torch.equal(model(state, 3), usual)
        assert not model(state, 3).requires_grad
    with torch.no_grad():
        model.offset.add_(1.0)
    assert not torch.equal(model(state, 3), usual)


def test_a_new_kind_of_gate_is_never_taken_for_a_sigmoid(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lg.generators.clique(20)
    model = lg.oracle(program, form="sparse")
    monkeypatch.setattr(model, "gate_kind", "new")
    with pytest.raises(ModelError, match="not implemented for the gate 'new'"):
        model(model.state([program.atoms[0]]), 1)
    with pytest.raises(ModelError, match="not implemented for the gate 'new'"):
        lg.certify(model, program)
    with pytest.raises(lg.errors.ArgumentError, match=r"\bgate\b"):
        lg.Constants.certified(program, gate="new")


# ------------------------------------------------------------------------ T_P on batches


@pytest.mark.parametrize("seed", range(5))
def test_depths_of_supports_are_those_of_the_closure(seed: int) -> None:
    program = random_program(seed, 12, 15, body=3)
    rng = np.random.default_rng(seed)
    supports = rng.random((40, program.M)) < 0.25
    closures = [lg.closure(program, row) for row in supports]
    supports[:10] = [closure.state for closure in closures[:10]]
    expected = [0] * 10 + [closure.depth for closure in closures[10:]]
    for compiled in (False, True):
        assert depths_of_rows(program, supports, compiled=compiled).tolist() == expected
    for dtype in (torch.float32, torch.bfloat16):
        assert depths_on_cpu(program, torch.from_numpy(supports).to(dtype)).tolist() == expected


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_steps_none_takes_as_many_steps_as_each_example_needs(kernel: str) -> None:
    program = generators.g4()
    model = oracle(program, kernel=kernel)  # type: ignore[arg-type]
    window = model.certificate()
    assert window.t_min == window.depth
    facts = np.random.default_rng(1).random((20, program.M)) < 0.05
    state = torch.from_numpy(facts).float()
    after = model(state).detach()
    np.testing.assert_array_equal((after > 0.5).numpy(), lg.closures(program, facts))
    for example in (0, 7, 19):
        depth = lg.closure(program, facts[example]).depth
        torch.testing.assert_close(after[example], model(state[example], depth).detach())
        torch.testing.assert_close(model(state[example]).detach(), after[example])


def test_the_atoms_of_a_state_are_those_above_one_half() -> None:
    model = oracle(parse("b :- a. c :- b."))
    first, second, third = model.program.atoms
    assert model.names(torch.tensor([0.51, 0.5, 0.7])) == {first, third}
    both = model.names(torch.tensor([[0.6, 0.4, 0.0], [0.0, 1.0, 0.5]]))
    assert both == [{first}, {second}]
    assert model.names(torch.full((2, 2, 3), 0.6)) == [{first, second, third}] * 4


def test_parameters_follow_a_wide_dtype_and_keep_theirs_for_a_narrow_one() -> None:
    model = oracle(parse("b :- a."), dtype=torch.float64)
    assert {p.dtype for p in model.float().parameters()} == {torch.float32}
    assert {p.dtype for p in model.half().parameters()} == {torch.float32}
    assert model.dtype == torch.float16
    assert {p.dtype for p in model.double().parameters()} == {torch.float64}


def test_log_odds_along_proofs_have_a_slope_at_the_ends() -> None:
    model = oracle(parse("b :- a."), gradient="proof")
    state = model.state(["a"]).requires_grad_()
    model(state, 1, logits=True)[model.program.index["b"]].backward()
    assert torch.isfinite(state.grad).all()
    assert state.grad[model.program.index["a"]] > 0
    held = module._inside(torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64))
    assert held[0] > 0
    assert held[1] == 0.3
    assert held[2] < 1
    assert torch.isfinite(torch.logit(held)).all()


def test_a_state_dict_of_another_program_is_refused_before_it_is_loaded() -> None:
    model, other = oracle(parse("b :- a. c :- b.")), oracle(parse("b :- a. c :- a."))
    before = model.rules.body_logits.detach().clone()
    with pytest.raises(ModelError, match="belong to another program"):
        model.load_state_dict(other.state_dict())
    assert torch.equal(model.rules.body_logits, before)
    old = model.state_dict()
    del old["_extra_state"]  # of an earlier release
    model.load_state_dict(old)
    outer = torch.nn.ModuleDict({"inner": model})
    with pytest.raises(ModelError, match="belong to another program"):
        outer.load_state_dict(torch.nn.ModuleDict({"inner": other}).state_dict())


@pytest.mark.parametrize("call", ["step", "forward", "iterate"])
def test_each_way_to_run_has_the_gradient_that_was_chosen(call: str) -> None:
    model = oracle(parse("b :- a."), dtype=torch.float64)
    a, b = model.program.index["a"], model.program.index["b"]

    def slope(gradient: str) -> float:
        model.gradient = gradient  # type: ignore[assignment]
        state = model.state(["a"]).requires_grad_()
        if call == "iterate":
            after = model.iterate(state, 1).states[1]
        else:
            after = model.step(state) if call == "step" else model(state, 1)
        (found,) = torch.autograd.grad(after[b], state)
        return float(found[a])

    assert slope("proof") == 1
    start = model.state(["a"])
    with torch.no_grad():
        lower = start.clone()
        lower[a] -= 1e-6
        expected = float((model.step(start)[b] - model.step(lower)[b]) / 1e-6)
    assert slope("exact") == pytest.approx(expected, rel=1e-3)
    assert expected < 0.5


def without_program(model: lg.LatentGamma) -> lg.LatentGamma:
    """The same model, which does not know its program."""
    alone = copy.deepcopy(model)
    alone.program = None
    return alone


def test_a_model_without_a_program_has_no_names_and_no_digest() -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."))
    alone = without_program(model)
    assert model.atoms == ("b", "a", "c")
    assert alone.atoms is None
    assert alone.get_extra_state().numel() == 0
    assert model.get_extra_state().numel() > 0
    alone.load_state_dict(without_program(model).state_dict())
    alone.load_state_dict(model.state_dict())  # nothing to compare with
    with pytest.raises(lg.errors.ModelError, match="no program"):
        alone.state("a")
    with pytest.raises(lg.errors.ModelError, match="no program"):
        alone.names(torch.zeros(3))
    other = lg.oracle(lg.parse("b :- a. c :- a."))
    with pytest.raises(lg.errors.ModelError, match="another program"):
        model.load_state_dict(other.state_dict())


@pytest.mark.parametrize("steps", [1, 2])
def test_log_odds_along_proofs_have_the_gradient_of_the_log_odds_of_the_facts(steps: int) -> None:
    model = lg.oracle(lg.parse("b :- a, e. c :- b."), gradient="proof", dtype=torch.float64)
    state = torch.tensor([0.1, 0.7, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    goal = model.program.index["b" if steps == 1 else "c"]
    fact = model.program.index["a"]
    (slope,) = torch.autograd.grad(model(state, steps, logits=True)[goal], state)
    # The weakest fact of the proof is a, and the slope of its log-odds is 1 / (p (1 − p)).
    expected = torch.zeros(4, dtype=torch.float64)
    expected[fact] = 1 / (state[fact] * (1 - state[fact])).detach()
    torch.testing.assert_close(slope, expected)
    (zero,) = torch.autograd.grad(model(state, 0, logits=True)[goal], state)
    assert zero.nonzero().flatten().tolist() == [goal]


def test_the_gradient_along_proofs_survives_a_move_and_new_rules() -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."), gradient="proof")
    for moved in (model.double(), model.float(), copy.deepcopy(model).to("cpu")):
        state = torch.tensor([0.2, 0.9, 0.1], dtype=moved.dtype, requires_grad=True)
        (slope,) = torch.autograd.grad(moved(state, 2)[2], state)
        assert slope.tolist() == [0.0, 1.0, 0.0]
    with torch.no_grad():
        model.rules.body_logits.neg_()  # now no body needs its atom
    state = torch.tensor([0.2, 0.9, 0.1], requires_grad=True)
    (slope,) = torch.autograd.grad(model(state, 2)[2], state)
    assert slope.shape == (3,)
    model.to("meta")
    assert model.gradient == "proof"


@pytest.mark.parametrize("form", FORMS)
def test_groups_are_the_parameters_of_their_names(form: str) -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."), form=form)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = {group: {names[id(p)] for p in model.group(group)} for group in module.GROUPS}
    parts = ("logits", "background") if form == "sparse" else ("logits",)
    for side in ("body", "head"):
        assert groups[side] == {f"rules.{side}_{part}" for part in parts}
    for plain in ("threshold", "offset"):
        assert groups[plain] == {plain}
    for raw in ("sharpness", "confidence", "gain", "gate"):
        assert groups[raw] == {f"{raw}_raw"}
    assert model.trainable("body", "gate") is model
    learned = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learned == groups["body"] | groups["gate"]


def test_names_of_one_state_and_of_batches() -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."))
    one = torch.tensor([0.9, 0.1, 0.6])
    assert model.names(one) == {"b", "c"}
    assert model.names(one[None]) == [{"b", "c"}]
    assert model.names(torch.stack([one, 1 - one])) == [{"b", "c"}, {"a"}]
    assert model.names(torch.stack([one, 1 - one])[None]) == [{"b", "c"}, {"a"}]


def test_the_closure_of_a_network_is_above_one_half() -> None:
    model = lg.oracle(lg.parse("b :- c. #external a."))
    assert model.closure({"a": 0.6}) == {"a"}
    assert model.closure({"a": 0.4}) == set()


def test_a_compiler_takes_the_closure_along_proofs_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."), gradient="proof")
    other = lg.oracle(lg.parse("b :- a. c :- a. b :- c."))  # another proof of c

    def slope_of_c() -> list[float]:
        state = torch.tensor([0.8, 0.9, 0.1], requires_grad=True)
        (slope,) = torch.autograd.grad(model._slope(state)[2], state)
        return slope.tolist()

    assert lg.oracle(lg.parse("b :- a."))._proofs is None  # made where it is asked for
    assert model._proofs is not None
    assert slope_of_c() == [0.0, 1.0, 0.0]
    made = model._proofs
    model.rules = other.rules
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    slope_of_c()
    assert model._proofs is made
    model._proofs = None
    slope_of_c()
    assert model._proofs is not None
    monkeypatch.undo()
    model._proofs = made
    assert slope_of_c() == [0.0, 1.0, 0.0]
    assert model._proofs is not made  # the rules are others now


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_small_model_says_the_same_bits_in_every_mode(form: Any, dtype: torch.dtype) -> None:
    model = oracle(generators.chain(9), form=form, dtype=dtype)
    state = torch.rand(5, model.M, generator=torch.Generator().manual_seed(3)).to(dtype)
    leaf = state.clone().requires_grad_()
    expected = model(leaf, 6).detach()
    with torch.no_grad():
        found = [model(state, 6), model(state, 6), model.iterate(state, 6).final]
        steps = state
        for _ in range(6):
            steps = model.step(steps)
    found.append(steps)
    with torch.inference_mode():
        found.append(model(state, 6))
    with model.fixed():
        with torch.inference_mode():
            found.append(model(state, 6))
        after = model(leaf, 6)
        after.sum().backward()
    assert all(torch.equal(expected, other) for other in (*found, after.detach()))
