"""Every public function that takes a program takes one with negation, or says that it cannot."""

import inspect
import itertools
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg
from latentgamma import Program, Rule
from random_programs import random_stratified, random_stratified_rules, stable_model

DEFINITE = r"takes a definite program, but this one has negation: its first rule with 'not' is rule"


def fact_sets(program: Program) -> list[frozenset[str]]:
    rng = np.random.default_rng(0)
    return [program.names(row) for row in rng.random((6, program.M)) < 0.4]


# ------------------------------------------------------------------------ the class


@pytest.mark.parametrize("seed", range(40))
def test_rules_keep_the_order_and_the_numbers_of_the_file(seed: int, tmp_path: Path) -> None:
    rules = random_stratified_rules(seed)
    text = "\n".join(map(str, rules))
    program = lg.parse(text)
    assert list(program.rules) == [
        Rule(tuple(sorted(rule.heads, key=program.index.get)), rule.body, rule.negated)
        for rule in rules
    ]
    assert re.sub(r"#external \w+\.\n", "", str(program)).count("\n") == len(rules) - 1
    for suffix in (".lp", ".json"):
        lg.save(program, tmp_path / f"p{suffix}")
        again = lg.load(tmp_path / f"p{suffix}")
        assert again == program
        assert hash(again) == hash(program)
    literals = program.body_literals
    again = Program.from_arrays(
        program.body_indptr, np.where(literals < 0, ~literals, literals),
        program.head_indices, program.head_indptr, body_negated=literals < 0, atoms=program.atoms,
    )  # fmt: skip
    assert again == program
    for facts in fact_sets(program):
        for atom in stable_model(rules, facts, program.atoms):
            proof = lg.derivation(program, facts, atom)
            for step in proof.steps:
                if step.rule is not None:
                    rule = rules[step.rule]
                    assert step.atom in rule.heads
                    assert set(step.premises) == rule.body
                    assert set(step.negated) == rule.negated


@pytest.mark.parametrize("seed", range(40))
def test_strata_are_definite_programs_that_have_the_rules_of_the_whole(seed: int) -> None:
    program = random_stratified(seed)
    seen = set()
    decided: set[int] = set()  # atoms that the strata so far derive
    for stratum in program.strata:
        part = stratum.program
        assert part.definite
        assert part.strata[0].program is part
        own = set(stratum.atom[part.head_indices].tolist())
        for j, number in enumerate(stratum.rules.tolist()):
            body = part.body_of(j)
            literals = np.where(stratum.negated[body], ~stratum.atom[body], stratum.atom[body])
            assert set(literals.tolist()) == set(program.literals_of(number).tolist())
            for head in stratum.atom[part.heads_of(j)].tolist():
                assert head in program.heads_of(number)
                seen.add((number, head))
        negated = set(stratum.atom[stratum.negated].tolist())
        underivable = set(np.flatnonzero(program.rules_per_head == 0).tolist())
        assert negated <= decided | underivable
        assert not negated & own
        decided |= own
    assert seen == {(j, h) for j in range(program.R) for h in program.heads_of(j).tolist()}


def test_a_definite_program_is_its_own_stratum_and_can_be_freed() -> None:
    import gc
    import weakref

    program = lg.parse("b :- a. c :- b.")
    (stratum,) = program.strata
    assert stratum.program is program
    assert stratum.atom.tolist() == [0, 1, 2]
    assert stratum.rules.tolist() == [0, 1]
    assert not stratum.negated.any()
    gone = weakref.ref(program)
    gc.disable()
    try:
        del program, stratum
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "make",
    [
        lambda: lg.parse("a :- b. b :- c, not a."),
        lambda: Program.from_rules([Rule(("a",), frozenset({"b"})), Rule(("b",), frozenset(), frozenset({"a"}))]),
        lambda: Program.from_arrays([0, 1, 2], [1, 0], [0, 1], body_negated=[False, True]),
        lambda: lg.parse("a, b :- not c. c, d :- b."),
    ],
)  # fmt: skip
def test_a_program_that_is_not_stratified_cannot_be_built(make: Callable[[], Program]) -> None:
    with pytest.raises(lg.errors.ProgramError, match=r"not stratified.* needs not"):
        make()


@pytest.mark.parametrize("negated", [[0, 1], [True], [[True, False]], "ab"])
def test_wrong_signs_are_refused(negated: Any) -> None:
    with pytest.raises(lg.errors.ProgramError, match="one boolean for each of the 2 body_indices"):
        Program.from_arrays([0, 2], [0, 1], [2], body_negated=negated)


def test_bodies_are_sets_of_literals() -> None:
    program = Program.from_arrays(
        [0, 5], [1, 0, 1, 0, 1], [2], body_negated=[True, False, True, False, False]
    )
    assert program.body_literals.tolist() == [0, 1, ~1]
    assert not lg.closure(program, ["a0", "a1"]).state[2]


# ------------------------------------------------------------------------ the functions


def same_closures(program: Program) -> None:
    sets = fact_sets(program)
    expected = [stable_model(list(program.rules), facts, program.atoms) for facts in sets]
    assert [lg.closure(program, facts).atoms for facts in sets] == expected
    rows = np.array([program.mask(facts) for facts in sets])
    assert [program.names(row) for row in lg.closures(program, rows)] == expected
    planes = lg.closures(program, lg.logic.pack(rows), packed=True)
    assert [program.names(row) for row in lg.logic.unpack(planes, len(sets))] == expected
    tensor = lg.closures(program, torch.from_numpy(lg.logic.pack(rows).view(np.int64)), packed=True)
    assert (tensor.numpy().view(np.uint64) == planes).all()
    for facts in sets:
        assert lg.closure(program, facts).depth <= lg.logic.depth_bound(program)


def same_proofs(program: Program) -> None:
    for facts in fact_sets(program):
        true = stable_model(list(program.rules), facts, program.atoms)
        for atom in program.atoms:
            proof = lg.derivation(program, facts, atom)
            assert (proof is not None) == (atom in true)
            assert proof is None or proof.holds()
        assert set(lg.derivations(program, facts)) == true - facts


def same_gaps(program: Program) -> None:
    for facts in fact_sets(program)[:2]:
        true = stable_model(list(program.rules), facts, program.atoms)
        for atom in program.atoms:
            gap = lg.why_not(program, facts, atom)
            assert (gap is None) == (atom in true)
            if gap is not None:
                changed = (facts | gap.missing) - gap.withdrawn
                assert atom in stable_model(list(program.rules), changed, program.atoms)
                for blocked in gap.blocked:
                    rule = program.rules[blocked.rule]
                    assert set(blocked.missing) == rule.body - true
                    assert set(blocked.holding) == rule.negated & true


def same_equivalences(program: Program) -> None:
    assert lg.equivalent(program, program)
    other = Program.from_rules(
        [Rule(rule.heads, rule.body | rule.negated) for rule in program.rules], program.atoms
    )
    found = lg.equivalent(program, other)
    if not found:
        one, two = (
            stable_model(list(p.rules), found.witness & set(program.atoms), program.atoms)
            for p in (program, other)
        )
        assert (found.atom in one) != (found.atom in two)


def same_model(program: Program) -> None:
    model = lg.oracle(program)
    certificate = lg.certify(model, program)
    assert certificate.holds
    for facts in fact_sets(program):
        true = stable_model(list(program.rules), facts, program.atoms)
        assert model.closure(facts) == true
        assert model.names(model(model.state(facts), int(certificate.t_min))) == true


def same_sizes(program: Program) -> None:
    largest = max(program.strata, key=lambda stratum: stratum.program.M).program
    assert lg.Constants.scaled(program).head == lg.Constants.scaled(largest).head
    for form in ("dense", "sparse"):
        model = lg.oracle(program, form=form)
        parameters = sum(p.numel() for p in model.parameters()) - 2 * len(model.parts)
        assert (
            lg.paper.parameter_count(program, form) == lg.paper.parameter_count(model) == parameters
        )


@cache
def worlds_and_models(program: Program) -> tuple[torch.Tensor, list[Any]]:
    worlds = np.array(list(itertools.product((False, True), repeat=program.M)))
    rules = list(program.rules)
    sets = [stable_model(rules, program.names(row), program.atoms) for row in worlds]
    return torch.from_numpy(worlds).double(), [program.mask(true) for true in sets]


def same_degrees(program: Program) -> None:
    atoms = list(program.atoms)
    worlds, expected = worlds_and_models(program)
    layer = lg.Layer(program, atoms, atoms).eval()
    assert np.array_equal(layer(worlds).numpy(), expected)


def same_truths(program: Program) -> None:
    atoms = list(program.atoms)
    worlds, expected = worlds_and_models(program)
    layer = lg.Layer(program, atoms, atoms, semantics="gamma").eval()
    for spread in (1.0, 0.1):  # 0.45 and 0.55 are the ends of the band
        assert np.array_equal(layer(0.5 + spread * (worlds - 0.5)) > 0.5, expected)


def same_probabilities(program: Program) -> None:
    atoms = list(program.atoms)
    layer = lg.Layer(program, atoms, atoms, semantics="probability")
    p = np.random.default_rng(1).random(program.M)
    worlds, models = worlds_and_models(program)
    weights = np.where(worlds.numpy() > 0.5, p, 1 - p).prod(1)
    expected = weights @ np.array(models)
    assert np.allclose(layer(torch.tensor(p)[None])[0].detach().numpy(), expected)


def same_table(program: Program) -> None:
    import pyarrow as pa

    sets = fact_sets(program)
    rows = np.array([program.mask(facts) for facts in sets])
    table = pa.table({atom: rows[:, i] for i, atom in enumerate(program.atoms)})
    closed = lg.distributed.close_table(program, table)
    for n, facts in enumerate(sets):
        row = {atom for atom in program.atoms if closed[atom][n].as_py()}
        assert row == stable_model(list(program.rules), facts, program.atoms)


def draws_negation(program: Program) -> None:
    figure = lg.plot.program(program, highlight=lg.closure(program, []))
    (axes,) = figure.axes
    drawn = {patch.get_linestyle() for patch in axes.patches}
    shown = any(
        rule.negated and not set(rule.heads) <= rule.body and program.rules.index(rule) == j
        for j, rule in enumerate(program.rules)
    )
    assert ("--" in drawn) == shown


#: For each public function with a program among its arguments: what must hold of its answers.
TAKES = {
    "closure": same_closures,
    "closures": same_closures,
    "logic.depth_bound": same_closures,
    "derivation": same_proofs,
    "derivations": same_proofs,
    "why_not": same_gaps,
    "equivalent": same_equivalences,
    "oracle": same_model,
    "certify": same_model,
    "LatentGamma.from_strata": same_model,
    "Constants.scaled": same_sizes,
    "paper.parameter_count": same_sizes,
    "Layer": same_degrees,
    "Layer, gamma": same_truths,
    "Layer, probability": same_probabilities,
    "distributed.close_table": same_table,
    "plot.program": draws_negation,
}
#: Or a call that must fail, because the function is for definite programs.
REFUSES = {
    "logic.step": lg.logic.step,
    "Constants.certified": lg.Constants.certified,
    "Constants.closed_form": lg.Constants.closed_form,
    "paper.paper_window": lambda program: lg.paper.paper_window(program, lg.Constants.paper()),
    "operator.SparseRules.literals_of": lg.operator.SparseRules.literals_of,
    "LatentGamma.literal_weights": lambda program: definite_model(program).literal_weights(program),
    "learning.alignment": lambda program: lg.learning.alignment(definite_model(program), program),
    "fit": lambda program: lg.fit(np.eye(6) > 0, np.eye(6) > 0, kind="transitions", atoms=program.atoms, known=program),
    "distributed.ProgramShard": lambda program: lg.distributed.ProgramShard.of(program, None),
}  # fmt: skip
#: Tested elsewhere, results that only hold a program, or functions that do not look at its rules.
ELSEWHERE = {
    "save", "operator.tolerance", "shortcuts", "explore.render", "distributed.close_parquet",
    "Program.cached", "datalog.inputs", "datalog.outputs", "logic.Closure", "logic.Derivation", "logic.WhyNot", "logic.Rules",
    "LatentGamma", "operator.Trajectory", "operator.Certificate", "distributed.ProgramShard.of", "learning.FitResult",
    "Decider", "Requirements.from_program", "requirements.Requirements.from_program", "paper.validation.Setup.oracle",
}  # fmt: skip


def definite_model(program: Program) -> lg.LatentGamma:
    rules = [(rule.heads, rule.body) for rule in program.rules]
    return lg.oracle(Program.from_rules(rules, program.atoms))


def public_functions() -> set[str]:
    """The names of the public functions, classes and methods that take a program."""
    found = set()

    def look(name: str, item: Any) -> None:
        if callable(item):
            try:
                signature = inspect.signature(item)
            except (TypeError, ValueError):
                return
            annotations = [str(one.annotation) for one in signature.parameters.values()]
            if any(re.search(r"\bProgram\b", text) for text in annotations):
                found.add(name)

    def walk(name: str, item: Any) -> None:
        look(name, item)
        inner = vars(item) if inspect.isclass(item) else getattr(item, "__all__", ())
        for part in inner:
            if not part.startswith("_"):
                walk(f"{name}.{part}", getattr(item, part))

    for name in lg.__all__:
        walk(name, getattr(lg, name))
    return found


def test_every_function_that_takes_a_program_is_in_a_table() -> None:
    known = {name.partition(",")[0] for name in (*TAKES, *REFUSES)} | ELSEWHERE
    assert public_functions() == known


@pytest.mark.parametrize("check", dict.fromkeys(TAKES.values()))
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_it_agrees_with_all_sets_of_atoms(check: Callable[[Program], None], seed: int) -> None:
    check(random_stratified(seed))


@pytest.mark.parametrize("name", REFUSES)
def test_it_says_that_it_takes_definite_programs(name: str) -> None:
    for seed in range(3):
        with pytest.raises(lg.errors.ProgramError, match=DEFINITE):
            REFUSES[name](random_stratified(seed))


def test_it_says_which_function_takes_definite_programs() -> None:
    program = random_stratified(0)
    for name in ("SparseRules.literals_of", "LatentGamma.literal_weights"):
        call = next(REFUSES[known] for known in REFUSES if known.endswith(name))
        with pytest.raises(lg.errors.ProgramError, match=f"^{name} {DEFINITE}"):
            call(program)


# -------------------------------------------------------------------- models

LAYERS = lg.parse("b :- a. d :- c, not b. e :- d, not f. f :- b, not c. g :- not e, not d.")


def test_state_t_of_a_trajectory_is_that_after_t_steps_of_each_stratum() -> None:
    model = lg.oracle(LAYERS)
    state = model.state([["a"], ["c"]])
    run = model.iterate(state, 3)
    assert run.states.shape == (4, 2, LAYERS.M)
    for t in range(4):
        assert torch.equal(run.states[t], model(state, t))


def test_options_and_groups_of_a_model_are_those_of_its_strata() -> None:
    model = lg.oracle(LAYERS)
    model.gradient, model.kernel = "proof", "reference"
    assert {(part.gradient, part.kernel) for part in model.parts} == {("proof", "reference")}
    assert (model.gradient, model.kernel) == ("proof", "reference")
    assert len(model.group("gain")) == len(model.parts) > 1
    model.trainable("body", "offset")
    learned = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name.rpartition(".")[2].partition("_")[0] for name in learned} == {"body", "offset"}
    assert sum(part.R for part in model.parts) == model.R
    assert model.bfloat16().dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert model.double()(model.state("a")).dtype == torch.float64


def test_fixed_parameters_of_all_strata_stay_as_they_are() -> None:
    model = lg.oracle(LAYERS)
    state = model.state("c")
    before, certificate = model(state, 4), model.certificate()
    with model.fixed():
        with torch.no_grad():
            for part in model.parts:
                part.offset.add_(50.0)
        assert torch.equal(model(state, 4), before)
        assert model.certificate() == certificate
        assert model.closure("c") == lg.closure(LAYERS, "c").atoms
    assert not model.certificate().holds


def test_values_load_into_the_same_program_only() -> None:
    values = lg.oracle(LAYERS, lg.Constants.paper()).state_dict()
    model = lg.oracle(LAYERS)
    model.load_state_dict(values)
    assert torch.equal(model.parts[0].offset, values["parts.0.offset"])
    other = lg.oracle(lg.parse("#external z. " + str(LAYERS)))  # its strata are the same
    with pytest.raises(lg.errors.ModelError, match="belong to another program"):
        other.load_state_dict(values)


def test_what_takes_a_model_of_a_definite_program_says_so() -> None:
    model = lg.oracle(LAYERS)
    state = model.state("a")
    calls = {
        "step": lambda: model.step(state),
        "step_parameters": model.step_parameters,
        "literal_weights": lambda: model.literal_weights(LAYERS),
        "rows": lambda: model.rows(LAYERS.atoms),
        "logits=True": lambda: model(state, 1, logits=True),
        "extract": lambda: lg.extract(model),
        "alignment": lambda: lg.learning.alignment(model, LAYERS),
        "tune": lambda: lg.operator.Homotopy(10).tune(model, 0),
    }
    for name, call in calls.items():
        with pytest.raises(lg.errors.ModelError, match=f"^{name} takes a model of a definite"):
            call()
    with pytest.raises(lg.errors.ModelError, match="one model for each stratum"):
        lg.LatentGamma.from_strata(model.parts[1:], LAYERS)
    with pytest.raises(lg.errors.ModelError, match="this one is definite"):
        lg.LatentGamma.from_strata(model.parts[:1], model.parts[0].program)


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "program", [LAYERS, lg.parse("b :- a. c :- a, b.")], ids=["not", "definite"]
)
def test_a_tolerance_is_for_the_dtype_asked_for(program: Program) -> None:
    model = lg.oracle(program, lg.Constants.scaled(program), dtype=torch.float32)
    found = lg.operator.tolerance(model, program, dtype="bfloat16")
    assert lg.certify(model, program, tolerance=found, dtype="bfloat16").holds
    assert not lg.certify(model, program, tolerance=1.01 * found, dtype="bfloat16").holds
    assert found < lg.operator.tolerance(model, program)


def test_no_code_can_overlook_a_sign() -> None:
    program = lg.parse("d :- c. b :- a, not c.")
    for read in (lambda: program.body_indices, lambda: program.body_of(0)):
        with pytest.raises(lg.errors.ProgramError, match=f"{DEFINITE} 1, 'b :- a, not c.'"):
            read()
