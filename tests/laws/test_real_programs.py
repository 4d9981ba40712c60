"""Programs that others wrote: the certificate and the operator on data nobody made for them."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg


def _benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "datasets.py"
    spec = importlib.util.spec_from_file_location("benchmark_datasets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


real = _benchmark()
EVERY = pytest.mark.parametrize("name", list(real.sources()))
# Other people's packages warn about one another.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@functools.cache
def _read(name: str) -> Any:
    try:
        return real.sources()[name]()
    except real.MissingError as missing:
        return missing


def data(name: str) -> Any:
    """The data set, or a skip that says what to install."""
    read = _read(name)
    if isinstance(read, real.MissingError):
        pytest.skip(str(read))
    return read


@functools.cache
def certified(name: str) -> lg.LatentGamma:
    return lg.oracle(data(name).program, dtype=torch.float32)


# M, R, k, ρ_max, as long as the packages keep their data.
FIGURES = {
    "sympy": (60, 549, 3, 28),
    "grammar": (604, 808, 2, 26),
    "textbook": (72, 241, 16, 31),
    "ijo1366": (1805, 5892, 102, 754),
    "brick": (1321, 5888, 2, 670),
    "minecraft": (784, 1405, 5, 81),
    "animals_en": (11, 29, 6, 13),
    "planets_en": (7, 10, 4, 4),
}


@pytest.mark.parametrize("name", FIGURES)
def test_reading_finds_all_of_the_program(name: str) -> None:
    program = data(name).program
    # A later version of a package may carry more or less; half of it would be our mistake.
    np.testing.assert_allclose(
        (program.M, program.R, program.k, program.rho_max), FIGURES[name], rtol=0.25
    )


@EVERY
def test_there_is_something_to_ask(name: str) -> None:
    program, fact_sets = data(name).program, data(name).fact_sets
    assert len(set(fact_sets)) >= 20
    assert max(lg.closure(program, facts).depth for facts in fact_sets) >= 1


@EVERY
def test_closures_are_those_of_a_sat_solver(name: str) -> None:
    solvers = pytest.importorskip("pysat.solvers")
    program, fact_sets = data(name).program, data(name).fact_sets
    with solvers.Solver("minicard") as solver:
        for j in range(program.R):
            body = [-1 - int(i) for i in program.body_of(j)]
            for head in program.heads_of(j):
                solver.add_clause([*body, int(head) + 1])
        for facts in fact_sets:
            given = [program.index[fact] + 1 for fact in facts]
            consistent, implied = solver.propagate(assumptions=given)
            assert consistent
            true = frozenset(program.atoms[i - 1] for i in {*given, *implied})
            assert lg.closure(program, facts).atoms == true | program.facts


@EVERY
def test_the_certificate_holds_from_depth_to_a_million(name: str) -> None:
    program = data(name).program
    certificate = lg.certify(certified(name), program).require()
    assert certificate.t_min == certificate.depth == lg.logic.depth_bound(program)
    assert certificate.t_max >= 10**6
    assert certificate.dtype == "float32"


@EVERY
def test_certified_constants_are_exact_at_depth_and_after_a_thousand_steps(name: str) -> None:
    found = real.run(certified(name), data(name), steps=1000)
    assert found == (found.sets, found.sets, found.sets, 0, 0)


@pytest.mark.parametrize(
    ("name", "errors"), [("brick", "false_positives"), ("ijo1366", "false_negatives")]
)
def test_the_papers_constants_fail_where_many_rules_share_a_head(name: str, errors: str) -> None:
    program, paper = data(name).program, lg.Constants.paper()
    assert program.rho_max > paper.gamma_plus / paper.gamma_minus
    model = lg.oracle(program, paper, dtype=torch.float32)
    found = real.run(model, data(name), steps=1000)
    assert found.at_depth < found.sets
    assert found.later < found.sets
    assert getattr(found, errors) > 0
    assert not lg.certify(model, program).holds


# ---------------------------------------------------------------------- their own oracles


def test_sympy_deduces_the_same() -> None:
    from sympy.core.assumptions import _assume_rules
    from sympy.core.facts import FactKB, InconsistentAssumptions

    program = data("sympy").program
    # Every pair of literals, and what each rule of SymPy asks for.
    fact_sets = [frozenset(pair) for pair in itertools.combinations(program.atoms, 2)]
    fact_sets += [
        frozenset(real.literal(*fact) for fact in facts) for facts, _ in _assume_rules.beta_rules
    ]
    contradictions = 0
    for facts in [*fact_sets, *data("sympy").fact_sets]:
        ours = lg.closure(program, facts).atoms
        clash = {atom for atom in ours if f"not {atom}" in ours}
        theirs = FactKB(_assume_rules)
        given = [(fact.removeprefix("not "), not fact.startswith("not ")) for fact in facts]
        if clash:
            contradictions += 1
            with pytest.raises(InconsistentAssumptions):
                theirs.deduce_all_facts(given)
        else:
            theirs.deduce_all_facts(given)
            assert ours == {real.literal(*pair) for pair in theirs.items()}
    assert 0 < contradictions < len(fact_sets) / 2


@pytest.mark.parametrize("name", [p.stem for p in real.CONTEXTS.glob("*.cxt")])
def test_a_context_closes_every_subset_as_its_table_does(name: str) -> None:
    context = real.Context.read(real.CONTEXTS / f"{name}.cxt")
    program, size = data(name).program, len(context.attributes)
    subsets: Any = range(1 << size)
    if size > 12:
        subsets = map(int, np.random.default_rng(0).integers(0, 1 << size, 4096))
    pairs = [(subset, context.close(subset)) for subset in subsets]
    bits = np.array(pairs, np.int64)[:, :, None] >> np.arange(size) & 1 == 1  # (N, 2, M)
    assert np.array_equal(lg.closures(program, bits[:, 0].copy()), bits[:, 1])
    model = certified(name)
    with torch.no_grad():
        state = torch.from_numpy(bits[:, 0]).float()
        for steps in (lg.logic.depth_bound(program), 1000):
            assert np.array_equal((model(state, steps=steps) > 0.5).numpy(), bits[:, 1])


def yeast_step(state: tuple[bool, ...]) -> tuple[bool, ...]:
    """One step as the package that carries the network computes it."""
    return tuple(bit == "1" for bit in _yeast().step("".join("01"[bit] for bit in state)))


@functools.cache
def _yeast() -> Any:
    networks = pytest.importorskip("cana.boolean_network", exc_type=ImportError)
    path = real.folder("cana") / "datasets" / "yeast_cell_cycle.txt"
    return networks.BooleanNetwork.from_file(str(path))


def cortex_step(state: tuple[bool, ...]) -> tuple[bool, ...]:
    """One step by the network's formulas; the package lists the lines of its truth tables."""
    gf, ge, gp, gc, gs, pf, pe, pp, pc, ps = state
    genes = (ps, not (pf or pp or ps), pf and not pe, not (pf or pp), not (pc or pe))
    return (*genes, gf, ge, gp, gc, gs)


@pytest.mark.parametrize(
    ("name", "read", "step"),
    [("yeast", "yeast_network", yeast_step), ("cortex", "cortical_network", cortex_step)],
)
def test_a_network_steps_from_every_state_as_others_say(name: str, read: str, step: Any) -> None:
    program, network = data(name).program, getattr(real, read)()
    states = list(itertools.product((False, True), repeat=len(network.nodes)))
    given = np.stack([program.mask(network.facts(state)) for state in states])
    following = (network.facts(step(state)) for state in states)
    expected = np.stack([program.mask([f"next {fact}" for fact in one]) for one in following])
    closed = lg.closures(program, given)
    assert np.array_equal(closed, given | expected)
    with torch.no_grad():
        after = certified(name)(torch.from_numpy(given).float(), steps=1) > 0.5
    assert np.array_equal(after.numpy(), closed)


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(real.MissingError, match="pip install no-such-package"):
        real.folder("no_such_package")
