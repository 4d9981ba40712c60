"""A wrong value of an option is an ArgumentError that names the option, in every public function."""

import inspect

import numpy as np
import pytest
import torch
from sklearn import dummy

import latentgamma as lg

PROGRAM = lg.parse("b :- a. c :- a, b.")
ROWS = [[1, 0], [0, 0]]
GRAPH = [("a", "r", "b")]
REQUIREMENTS = lg.Requirements.from_text(":- a, b.")
CATEGORIES = {"x": lg.Categorical(["a", "b"])}


def model():
    return lg.oracle(PROGRAM)


def latent_gamma(**options):
    built = model()
    names = ("threshold", "sharpness", "confidence", "gain", "offset", "gate")
    values = {name: getattr(built, name).detach() for name in names}
    return lg.LatentGamma(built.rules, **values, **options)


def layer(**options):
    return lg.Layer(PROGRAM, inputs=["a"], outputs=["c"], **options)


def coherent(**options):
    base = dummy.DummyClassifier()
    return lg.CoherentClassifier(base, REQUIREMENTS, **options).fit(ROWS, ROWS)


def relational(**options):
    return lg.relational.fit("p(a).", [("t", "a")], **options)


#: A call of each function that works, given its options.
CALLS = {
    "Annealing": lambda **options: lg.Annealing(layer(), 10, **options),
    "CoherentClassifier": coherent,
    "Decider": lambda **options: lg.Decider(PROGRAM, "c", **options),
    "Inference": lg.Inference,
    "LatentGamma": latent_gamma,
    "Layer": layer,
    "RuleClassifier": lambda **options: lg.RuleClassifier(**options).fit(ROWS, [1, 0]),
    "average_precision": lambda **options: lg.average_precision(ROWS, ROWS, **options),
    "certify": lambda **options: lg.certify(model(), PROGRAM, **options),
    "closures": lambda **options: lg.closures(PROGRAM, [["a"]], **options),
    "extract": lambda **options: lg.extract(model(), **options),
    "fit": lambda **options: lg.fit(ROWS, ROWS, **options),
    "load": lambda **options: lg.load("nowhere.lp", **options),
    "oracle": lambda **options: lg.oracle(PROGRAM, **options),
    "learning.CandidateRules": lambda **options: lg.learning.CandidateRules(
        ["b :- a."], ["a"], "b", **options
    ),
    "learning.fit_concepts": lambda **options: lg.learning.fit_concepts(
        lambda: torch.nn.Linear(1, 2),
        lg.learning.CandidateRules.table(lg.Categorical(["x", "y"]), "b"),
        torch.zeros(1, 1),
        [[0]],
        [1],
        **options,
    ),
    "shortcuts": lambda **options: lg.shortcuts(
        PROGRAM, CATEGORIES, ["c"], {"x": np.zeros((1,), int)}, **options
    ),
    "datalog.ground": lambda **options: lg.datalog.ground("p(a).", **options),
    "decide.application": lambda **options: lg.decide.application(
        lg.Decider(PROGRAM, "c"), **options
    ),
    "distributed.RayExecutor": lg.distributed.RayExecutor,
    "distributed.close_parquet": lambda **options: lg.distributed.close_parquet(
        PROGRAM, "nowhere.parquet", "nowhere", **options
    ),
    "distributed.plan": lambda **options: lg.distributed.plan(M=2, R=2, k=1, **options),
    "distributed.save_checkpoint": lambda **options: lg.distributed.save_checkpoint(
        "nowhere", model(), **options
    ),
    "explore.serve": lambda **options: lg.explore.serve("", **options),
    "generators.g1": lg.generators.g1,
    "generators.g2": lg.generators.g2,
    "generators.g3": lg.generators.g3,
    "generators.g4": lg.generators.g4,
    "generators.disjunctive": lg.generators.disjunctive,
    "generators.random": lambda **options: lg.generators.random(9, 3, **options),
    "generators.chain": lambda **options: lg.generators.chain(5, **options),
    "generators.layered": lambda **options: lg.generators.layered(2, 3, **options),
    "logic.random_planes": lambda **options: lg.logic.random_planes([0.5], 64, **options),
    "operator.Homotopy": lg.operator.Homotopy,
    "operator.tolerance": lambda **options: lg.operator.tolerance(model(), PROGRAM, **options),
    "paper.critical_sigma": lambda **options: lg.paper.critical_sigma(3, 3, **options),
    "paper.gradient_report": lambda **options: lg.paper.gradient_report(model(), **options),
    "paper.parameter_count": lambda **options: lg.paper.parameter_count(PROGRAM, **options),
    "paper.perturb": lambda **options: lg.paper.perturb(model(), **options),
    "plot.changes": lambda **options: lg.plot.changes(
        REQUIREMENTS.layer(), torch.zeros(2), **options
    ),
    "plot.violations": lambda **options: lg.plot.violations(REQUIREMENTS.check(ROWS), **options),
    "relational.fit": relational,
    "relational.mine_chains": lambda **options: lg.relational.mine_chains(GRAPH, **options),
}
#: Options whose default is None or a bool.
ALSO = {
    "Inference": ["error", "seed"],
    "Layer": ["tolerance", "gate", "inference"],
    "certify": ["depth", "dtype"],
    "closures": ["threads"],
    "distributed.RayExecutor": ["workers"],
    "fit": ["max_body", "holdout", "homotopy", "known", "refine", "forbidden", "progress"],
    "generators.random": ["body"],
    "operator.Homotopy": ["sharpness", "gate"],
    "operator.tolerance": ["depth", "steps"],
    "learning.fit_concepts": ["labelled", "augment", "progress"],
    "load": ["format"],
    "oracle": ["dtype", "device"],
    "paper.gradient_report": ["steps"],
    "paper.parameter_count": ["form"],
    "relational.fit": ["recursive"],
    "RuleClassifier": ["max_body"],
}
#: Texts that can be anything, values of results, what another function checks, and what needs a program divided over processes.
ANYTHING = {"parse.path", "ParseError.source", "ParseError.path", "explore.render.title",
            "Certificate.tolerance", "FitResult.training_accuracy", "GradientRow.value",
            "Label.citation", "ProofStep.value", "Requirements.path",
            "RequirementsLayer.temperature", "Status.start", "distributed.oracle.gate", "distributed.oracle.horizon"}  # fmt: skip
#: Options that only this semantics has.
NEEDED = {"tolerance": {"semantics": "gamma"}, "gate": {"semantics": "gamma"},
          "inference": {"semantics": "probability"}}  # fmt: skip


def public() -> dict[str, object]:
    """Every public function and class, by the name that CALLS has for it."""
    spaces = {name: getattr(lg, name) for name in lg.__all__ if inspect.ismodule(getattr(lg, name))}
    found = {name: getattr(lg, name) for name in lg.__all__ if name not in spaces}
    for space, module in spaces.items():
        found |= {f"{space}.{name}": getattr(module, name) for name in module.__all__}
    return {name: value for name, value in found.items() if callable(value)}


def options_with_a_value(function: object) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # an exception without a constructor of its own
        return []
    kinds = (int, float, str)
    return [p.name for p in parameters if (isinstance(p.default, kinds) and p.default not in (True, False))
            or type(p.default) in (int, float)]  # fmt: skip


def test_every_option_is_in_the_table() -> None:
    missing = [
        f"{name}.{option}"
        for name, function in public().items()
        for option in options_with_a_value(function)
        if name not in CALLS and not {f"{name}.{option}", f"{name.split('.')[-1]}.{option}"} & ANYTHING
    ]  # fmt: skip
    assert missing == []


CASES = [
    (name, option)
    for name in CALLS
    for option in dict.fromkeys([*options_with_a_value(public()[name]), *ALSO.get(name, [])])
]


@pytest.mark.parametrize(("name", "option"), CASES)
@pytest.mark.parametrize("value", [object(), -1.5, "nonsense"])
def test_a_wrong_value_is_an_argument_error_that_names_the_option(name, option, value) -> None:
    more = NEEDED.get(option, {}) if name == "Layer" else {}
    with pytest.raises(lg.errors.ArgumentError, match=rf"\b{option}\b"):
        CALLS[name](**more, **{option: value})
