from __future__ import annotations

import pickle
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import clingo
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pysat.solvers import Solver

from latentgamma import Program, closure, closures, parse
from latentgamma.errors import FactsError
from latentgamma.logic import depth_bound, pack, step, unpack
from random_programs import programs, random_program
from reference import PATHS, every_fact_set, path, reference_levels


@st.composite
def questions(draw: st.DrawFn) -> tuple[Program, list[list[str]]]:
    program = draw(programs(atoms=30, rules=40, body=4))
    facts = st.lists(st.sampled_from(program.atoms), max_size=8)
    return program, draw(st.lists(facts, max_size=80))


def ring(n: int) -> Program:
    return Program.from_arrays(np.arange(n + 1), np.arange(n), (np.arange(n) + 1) % n)


def chain(n: int) -> Program:
    return Program.from_arrays(np.arange(n + 1), np.arange(n), np.arange(n) + 1)


def unwilling(n: int) -> Program:
    """A cycle whose derivations run against the order in which a search walks it."""
    forth = [(f"v{i + 1}", [f"v{i}", "never"]) for i in range(n)]
    back = [(f"v{i}", [f"v{i + 1}"]) for i in range(n)]
    return Program.from_rules([*forth, *back], atoms=[*(f"v{i}" for i in range(n + 1)), "never"])


# ---------------------------------------------------------------- equal to the definition


def test_every_fact_set_of_hundreds_of_small_programs():
    rng = np.random.default_rng(0)
    for _ in range(500):
        M = int(min(rng.integers(0, 9, 2)))
        program = random_program(rng, M, int(rng.integers(0, 2 * M + 1)), body=3)
        fact_sets = every_fact_set(M)
        expected = [reference_levels(program, program.names(row)) for row in fact_sets]
        for kind in PATHS:
            program = replace(program)  # with nothing computed yet
            with path(kind):
                answers = closures(program, fact_sets)
                for row, answer, levels in zip(fact_sets, answers, expected, strict=True):
                    known = closure(program, row)
                    assert known.levels == tuple(levels)
                    assert known.depth == len(levels) - 1
                    assert known.atoms == frozenset().union(*levels) == program.names(answer)
                assert depth_bound(program) >= max(len(levels) - 1 for levels in expected)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(questions())
def test_equals_the_reference_on_larger_programs(question: tuple[Program, list[list[str]]]):
    program, fact_sets = question
    expected = [reference_levels(program, facts) for facts in fact_sets]
    for kind in PATHS:
        program = replace(program)
        with path(kind):
            answers = closures(program, fact_sets)
            for facts, answer, levels in zip(fact_sets, answers, expected, strict=True):
                known = closure(program, facts)
                assert known.levels == tuple(levels)
                assert program.names(answer) == known.atoms
                assert step(program, facts) == levels[0].union(*levels[1:2])
            assert depth_bound(program) >= max((len(lv) - 1 for lv in expected), default=0)


@given(questions())
def test_a_closure_is_closed_monotone_and_least(question: tuple[Program, list[list[str]]]):
    program, fact_sets = question
    known = [closure(program, facts) for facts in fact_sets]
    for facts, answer in zip(fact_sets, known, strict=True):
        assert step(program, answer.atoms) == answer.atoms >= set(facts) | program.facts
        assert closure(program, answer.atoms).depth == 0
    union = closure(program, [atom for facts in fact_sets for atom in facts])
    assert all(answer.atoms <= union.atoms for answer in known)


@pytest.mark.parametrize("R", [1_000, 10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_equals_pysat_and_clingo(R: int):
    rng = np.random.default_rng(R)
    program = random_program(rng, R, R, body=4)
    facts = rng.choice(R, R // 3, replace=False).tolist()
    rules = [(program.heads_of(j).tolist(), program.body_of(j).tolist()) for j in range(R)]
    with Solver("minicard") as solver:
        for heads, body in rules:
            for h in heads:
                # It reports no consequence of unit clauses: these get a body that is assumed.
                solver.add_clause([*(-1 - i for i in body or [R]), h + 1])
        assumptions = [i + 1 for i in [*facts, R]]
        by_pysat = {i - 1 for i in solver.propagate(assumptions=assumptions)[1]} - {R}
    control = clingo.Control()
    with control.backend() as backend:
        atoms = [backend.add_atom(clingo.Function("a", [clingo.Number(i)])) for i in range(R)]
        for heads, body in [*rules, *(([i], []) for i in facts)]:
            for h in heads:
                backend.add_rule([atoms[h]], [atoms[i] for i in body])
    with control.solve(yield_=True) as handle:
        by_clingo = {a.arguments[0].number for a in handle.model().symbols(atoms=True)}
    assert by_pysat == by_clingo
    for kind in PATHS:
        with path(kind):
            known = closure(program, facts)
            both = closures(program, [facts, []])
        assert set(np.flatnonzero(known.state)) == by_clingo
        assert set(np.flatnonzero(both[0])) == by_clingo


@pytest.mark.slow
def test_both_paths_agree_where_the_loops_turn():
    """Wide levels, long ones, heavy atoms, heavy bodies: wherever a batch or a word is full."""
    rng = np.random.default_rng(1)
    n = 3_000
    stars = [
        Program.from_arrays(np.arange(n + 1), np.zeros(n, int), np.arange(1, n + 1))
        for n in (1_023, 1_024, 1_025, 3_000)
    ]
    funnel = Program.from_arrays([0, n, n + 1], np.append(np.arange(n), n), [n, n + 1])
    spray = Program.from_arrays([0, 1], [0], np.arange(1, n), [0, n - 1])
    sparse = random_program(rng, 20_000, 20_000, body=2)
    wide = random_program(rng, 5_000, 40_000, body=6)
    for program in (*stars, funnel, spray, sparse, wide, chain(n), ring(n)):
        for share in (0.0, 0.001, 0.1, 0.5, 1.0):
            facts = rng.choice(program.M, int(program.M * share), replace=False)
            facts = np.append(facts, 0)
            with path("plain"):
                plain = closure(program, facts)
            with path("compiled"):
                compiled = closure(program, facts)
            assert plain == compiled
            assert plain.depth == compiled.depth
            assert np.array_equal(plain.level, compiled.level)
            assert np.array_equal(np.sort(plain.order), np.sort(compiled.order))


# ---------------------------------------------------------------- one closure


@pytest.mark.parametrize("kind", PATHS)
def test_what_a_closure_tells(kind: str):
    program = Program.from_rules(
        [("c", ["a", "b"]), ("d", ["c"]), ("own", []), ("e", ["own", "d"])],
        atoms=["a", "b", "c", "d", "e", "x", "own"],
    )
    with path(kind):
        known = closure(program, ["a", "b", "x"])
    assert known.atoms == {"a", "b", "c", "d", "e", "own", "x"}
    assert known.levels == ({"a", "b", "x"}, {"c", "own"}, {"d"}, {"e"})
    assert known.depth == 3
    assert known.level.tolist() == [0, 0, 1, 2, 3, 0, 1]
    assert known.level.dtype == np.int32
    assert known.state.dtype == np.bool_
    assert known.state.all()
    assert list(known) == list(program.atoms)
    assert len(known) == 7
    assert "e" in known
    assert 4 in known
    assert "pigeon" not in known
    assert 7 not in known
    assert None not in known
    assert repr(known) == "Closure(7 of 7 atoms, depth 3)"
    assert str(known) == "0  a, b, x\n1  c, own\n2  d\n3  e"
    assert known == closure(program, ["x", "b", "a"])
    assert hash(known) == hash(closure(program, ["x", "b", "a"]))
    assert known != closure(program, ["a", "b", "x", "c"])


@pytest.mark.parametrize("kind", PATHS)
def test_small_and_odd_programs(kind: str):
    empty = Program.from_rules([])
    no_rules = Program.from_rules([], atoms=["a", "b"])
    loop = Program.from_rules([("a", ["a"])])
    twice = Program.from_rules([("b", ["a"]), ("b", ["a"]), (("b", "b"), ["a", "a"])])
    stated = Program.from_rules([("a", []), ("a", []), ("b", ["a"])])
    with path(kind):
        assert closure(empty).levels == (frozenset(),)
        assert closure(empty).depth == depth_bound(empty) == 0
        assert str(closure(empty)) == "0  –"
        assert closures(empty, [[], []]).shape == (2, 0)
        assert closures(no_rules, []).shape == (0, 2)
        assert closures(no_rules, np.zeros((0, 2), bool)).shape == (0, 2)
        assert closures(no_rules, [["b"]]).tolist() == [[False, True]]
        assert closure(no_rules, "b").atoms == {"b"}
        assert depth_bound(no_rules) == 0
        assert closure(loop).atoms == set()
        assert closure(loop, "a").depth == 0
        assert closure(twice, "a").levels == ({"a"}, {"b"})
        assert closure(stated).levels == (set(), {"a"}, {"b"})
        assert closure(stated, "a").levels == ({"a"}, {"b"})
        assert closures(stated, [[], ["b"]]).all()


def test_a_closure_cannot_be_changed_and_changes_nothing():
    program = chain(5)
    facts = np.array([True, False, False, False, False, False])
    known = closure(program, facts)
    assert facts.sum() == 1
    for array in (known.state, known.level, known.order, known.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    fact_sets = np.zeros((3, 6), bool)
    for kind in PATHS:
        with path(kind):
            answers = closures(program, fact_sets)
        answers[:] = True
        assert not fact_sets.any()


def test_a_program_that_was_asked_can_be_pickled():
    program = random_program(np.random.default_rng(2), 20, 30, body=3)
    before = closure(program, [0])
    for kind in PATHS:
        with path(kind):
            closures(program, [[0]])
            assert closure(pickle.loads(pickle.dumps(program)), [0]) == before


def test_a_long_closure_prints_short():
    known = closure(chain(10_000), [0])
    assert len(str(known)) < 2_000
    assert str(known).endswith("…  9901 more levels")
    wide = Program.from_rules([], atoms=[f"a{i}" for i in range(1_000)])
    assert str(closure(wide, np.arange(1_000))).endswith("… 980 more")


@pytest.mark.parametrize("levels", [99, 100, 101, 102])
def test_a_hundred_levels_are_printed_and_the_others_counted(levels: int):
    lines = str(closure(chain(levels - 1), [0])).splitlines()
    assert lines[: min(levels, 100)] == [f"{d}  a{d}" for d in range(min(levels, 100))]
    assert lines[100:] == ([f"…  {levels - 100} more levels"] if levels > 100 else [])


@pytest.mark.parametrize("atoms", [19, 20, 21, 22])
def test_twenty_atoms_of_a_level_are_printed_and_the_others_counted(atoms: int):
    names = [f"a{i:02}" for i in range(atoms)]
    more = f", … {atoms - 20} more" if atoms > 20 else ""
    assert str(closure(Program.from_rules([], atoms=names), names)) == (
        f"0  {', '.join(names[:20])}{more}"
    )


def test_atoms_that_a_count_is_compiled_into_are_not_counted_as_more():
    heads = "\n".join(f"x{i:02} :- a." for i in range(19))
    program = parse(f"p :- 2 {{ a; b; c; d; e; f; g; h }}.\n{heads}")
    known = closure(program, list("abcdefgh"))
    names = ", ".join(f"x{i:02}" for i in range(19))
    assert str(known).splitlines()[1] == f"1  {names}"


def test_indices_are_in_a_closure_as_their_atoms_are():
    known = closure(Program.from_rules([("b", ["a"]), ("d", ["c"])]), ["a"])
    for i, name in enumerate(known.program.atoms):
        assert (i in known) == (np.int64(i) in known) == (name in known) == bool(known.state[i])
    # Truth values are no indices, and neither are numbers from the end.
    first = known.program.atoms[0]
    assert first in known
    assert all(wrong not in known for wrong in (True, False, -1, -4, 4, 0.0, ("a",)))


def test_atoms_that_never_come_have_level_minus_one():
    known = closure(Program.from_rules([("b", ["a"]), ("d", ["c"])]), ["a"])
    levels = {name: known.level[i] for i, name in enumerate(known.program.atoms)}
    assert levels == {"a": 0, "b": 1, "c": -1, "d": -1}


def test_a_notebook_shows_a_closure_as_a_table():
    html = closure(Program.from_rules([("b", ["a"]), ("d", ["c"])]), ["a"])._repr_html_()
    assert "2 of 4 atoms follow, in 1 steps" in html
    assert re.findall(r"<td[^>]*>(.*?)</td>", html) == ["0", "a", "1", "b"]


def test_closures_of_different_programs_or_levels_differ():
    one = Program.from_rules([("b", ["a"]), ("c", ["b"])])
    other = Program.from_rules([("b", ["a"]), ("c", ["b"]), ("c", ["b", "a"])])
    assert closure(one, "a").level.tolist() == closure(other, "a").level.tolist()
    assert closure(one, "a") != closure(other, "a")
    assert closure(one, "a") != closure(one, ["a", "c"])
    assert closure(one, "a") != "a"


@pytest.mark.parametrize("seed", range(20))
def test_levels_of_strata_add_up(seed: int):
    rng = np.random.default_rng(seed)
    names = [f"a{i}" for i in range(9)]
    rules = []
    for i in range(3, 9):  # an atom depends on earlier ones, so there are strata
        for _ in range(int(rng.integers(1, 3))):
            body = rng.choice(i, int(rng.integers(1, 4)), replace=False)
            literals = [f"{'not ' if rng.random() < 0.4 else ''}a{b}" for b in body]
            rules.append(f"a{i} :- {', '.join(literals)}.")
    program = parse(" ".join(rules) + " #external " + ". #external ".join(names) + ".")
    if isinstance(program, Program):
        return
    for facts in ([], ["a0"], ["a1", "a2"], ["a0", "a1", "a2"]):
        known, levels = set(facts), [set(facts)]
        for stratum in program.strata:
            inside = stratum.program
            true = {
                name
                for i, name in enumerate(inside.atoms)
                if (program.atoms[stratum.atom[i]] in known) != bool(stratum.negated[i])
            }
            for new in reference_levels(inside, true)[1:]:
                levels.append(set(new))
                known |= new
        found = closure(program, facts)
        assert found.atoms == known
        assert found.levels == tuple(levels)
        assert found.depth == len(levels) - 1


# ---------------------------------------------------------------- many closures


@pytest.mark.parametrize(("rules", "N"), [(0, 3), (1, 64), (7, 130), (7, 129), (7, 1000)])
def test_a_step_is_taken_in_chunks_of_any_size(rules: int, N: int, monkeypatch):
    rng = np.random.default_rng(rules)
    program = random_program(rng, 6, rules, body=3)
    rows = rng.random((N, 6)) < 0.4
    levels = [reference_levels(program, program.names(row)) for row in rows]
    expected = [frozenset().union(*some[:2]) for some in levels]
    for words in (1, 2 * program.size, 1 << 22):
        monkeypatch.setattr("latentgamma.logic.closure._STEP_WORDS", words)
        after = step(program, rows)
        assert [program.names(row) for row in after] == expected


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("N", [0, 1, 63, 64, 65, 511, 513, 1_500])
def test_any_number_of_fact_sets(kind: str, N: int):
    rng = np.random.default_rng(N)
    program = random_program(rng, 40, 60, body=2)
    fact_sets = rng.random((N, 40)) < 0.1
    with path("plain"):
        expected = np.array([closure(program, row).state for row in fact_sets], bool)
    expected = expected.reshape(N, 40)
    with path(kind):
        for threads in (None, 1, 2, 5):
            assert np.array_equal(closures(program, fact_sets, threads=threads), expected)
        planes = closures(program, pack(fact_sets), packed=True)
        assert np.array_equal(unpack(planes, N), expected)
        assert np.array_equal(closures(program, np.asfortranarray(fact_sets)), expected)
        frozen = fact_sets.copy()
        frozen.flags.writeable = False
        assert np.array_equal(closures(program, frozen), expected)


def test_fact_sets_come_in_many_forms():
    program = Program.from_rules([("c", ["a", "b"])])
    indices = [[program.index[atom] for atom in facts] for facts in (["a", "b"], ["a"])]
    expected = closures(program, [["a", "b"], ["a"]])
    assert expected.sum(1).tolist() == [3, 1]
    rows = np.array([closure(program, facts).state for facts in (["a", "b"], ["a"])])
    assert np.array_equal(expected, rows)
    for form in (
        indices,
        [tuple(row) for row in indices],
        [set(row) for row in indices],
        [np.array(row) for row in indices],
        [{"a", "b"}, frozenset({"a"})],
        [["a", indices[0][1]], ["a"]],
        (iter(facts) for facts in (["a", "b"], ["a"])),
        [program.mask(["a", "b"]), program.mask("a")],
        [program.mask(["a", "b"]).tolist(), program.mask("a").tolist()],
        [[np.int64(i) for i in row] for row in indices],
    ):
        assert np.array_equal(closures(program, form), expected)
    assert np.array_equal(closures(program, np.array(indices[:1])), expected[:1])


def test_facts_that_are_not_facts():
    program = Program.from_rules([("bird", ["penguin"])])
    with pytest.raises(FactsError, match=r"'penguim' \(did you mean 'penguin'\?\)"):
        closure(program, ["penguim"])
    with pytest.raises(FactsError, match="fact index 2 is outside 0…1"):
        closure(program, np.array([0, 2]))
    with pytest.raises(FactsError, match="fact index -1 is outside"):
        closure(program, np.array([-1]))
    with pytest.raises(FactsError, match=r"fact set 1: .*'penguim'"):
        closures(program, [["penguin"], ["penguim"]])
    with pytest.raises(FactsError, match="fact set 2: fact index 5 is outside"):
        closures(program, [[0], [1], [5]])
    with pytest.raises(FactsError, match=r"fact set 0: fact index \d+ is outside"):
        closures(program, [[2**70]])
    with pytest.raises(FactsError, match="fact set 0: a state has one entry for each atom"):
        closures(program, [[0.5]])
    with pytest.raises(FactsError, match=r"shape \(N, 2\), but this array has shape \(4, 3\)"):
        closures(program, np.zeros((4, 3), bool))
    with pytest.raises(ValueError, match="threads must be a whole number from 1 on, not 0"):
        closures(program, [], threads=0)


@pytest.mark.parametrize("kind", PATHS)
def test_a_cycle_against_the_order_of_its_rules(kind: str):
    program = unwilling(300)
    fact_sets = [["v300"], ["v7", "v150"], [], ["v0", "never"]]
    with path(kind):
        answers = closures(program, fact_sets)
    for facts, answer in zip(fact_sets, answers, strict=True):
        assert program.names(answer) == frozenset().union(*reference_levels(program, facts))


def test_threads_may_ask_at_the_same_time():
    rng = np.random.default_rng(3)
    program = random_program(rng, 50, 80, body=2)
    fact_sets = rng.random((2_000, 50)) < 0.1
    with path("plain"):
        expected = closures(program, fact_sets)
    with path("compiled"), ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: closures(program, fact_sets, threads=2), range(12)))
    assert all(np.array_equal(answer, expected) for answer in answers)


# ---------------------------------------------------------------- depth


@pytest.mark.slow
@pytest.mark.parametrize("kind", PATHS)
def test_the_depth_bound_is_exact_on_chains_and_grids(kind: str):
    with path(kind):
        assert depth_bound(chain(50_000)) == 50_000
        assert depth_bound(ring(50_000)) == 49_999
        assert depth_bound(Program.from_rules([("a", [])])) == 1
        assert depth_bound(Program.from_rules([("a", []), ("b", ["a", "c"])])) == 2
        assert depth_bound(Program.from_rules([(("b", "c"), ["a"]), ("d", ["b", "c"])])) == 2
        cycle_in_a_chain = [("b", ["a"]), ("c", ["b"]), ("b", ["c"]), ("d", ["c"])]
        assert depth_bound(Program.from_rules(cycle_in_a_chain)) == 3
        # A heavy rule must not cost the product of its body and its heads.
        heavy = Program.from_arrays(
            [0, 50_000], np.arange(50_000), np.arange(50_000, 100_000), [0, 50_000]
        )
        assert depth_bound(heavy) == 1


def clique(n: int) -> Program:
    return Program.from_rules([(f"a{i}", [f"a{j}"]) for i in range(n) for j in range(n) if i != j])


@pytest.mark.slow
@pytest.mark.parametrize("kind", PATHS)
def test_the_depth_bound_of_cycles(kind: str):
    with path(kind):
        assert depth_bound(clique(20)) == 1
        assert depth_bound(clique(300)) == 2  # too large for its diameter to be computed
        assert depth_bound(ring(50)) == 49
        assert depth_bound(Program.from_rules([("a", ["a"])])) == 0
        entered = [("c0", ["x", "y"])] + [(f"c{(i + 1) % 9}", [f"c{i}"]) for i in range(9)]
        assert depth_bound(Program.from_rules(entered)) == 9
        # One body is completed at one step, however many rules have it.
        many = [(f"h{i}", ["a", "b"]) for i in range(30)] + [
            ("a", [f"h{i}", "c"]) for i in range(30)
        ]
        assert depth_bound(Program.from_rules(many)) <= 31


@pytest.mark.slow
def test_no_fact_set_of_a_cyclic_program_exceeds_the_depth_bound():
    rng = np.random.default_rng(4)
    exact = 0
    for _ in range(1_000):
        M = int(rng.integers(1, 7))
        R = int(rng.integers(1, 3 * M + 1))
        sizes, widths = rng.choice([0, 1, 1, 1, 2, 3], R), rng.choice([1, 1, 2], R)
        program = Program.from_arrays(
            np.concatenate(([0], np.cumsum(sizes))),
            rng.integers(0, M, sizes.sum()),
            rng.integers(0, M, widths.sum()),
            np.concatenate(([0], np.cumsum(widths))),
            atoms=M,
        )
        deepest = max(closure(program, row).depth for row in every_fact_set(M))
        assert depth_bound(program) >= deepest
        exact += depth_bound(program) == deepest
    assert exact > 300


# ---------------------------------------------------------------- what it costs


def test_a_small_program_waits_for_no_compiler():
    script = """
        import sys
        from latentgamma import Program, closure, closures, derivation, why_not
        from latentgamma.logic import depth_bound
        program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
        assert "animal" in closure(program, "penguin")
        assert closures(program, [["penguin"]] * 100).all()
        assert depth_bound(program) == 2
        assert derivation(program, "penguin", "animal") and why_not(program, [], "animal")
        heavy = {"numba", "torch", "matplotlib", "clingo"} & set(sys.modules)
        print(sorted(heavy))
    """
    run = [sys.executable, "-c", textwrap.dedent(script)]
    shown = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


@pytest.mark.slow
def test_tiny_calls_never_load_numba_and_much_work_does():
    script = """
        import sys
        import numpy as np
        from latentgamma import Program, closure
        def chain(n):
            return Program.from_arrays(np.arange(n + 1), np.arange(n), np.arange(n) + 1)
        tiny = chain(200)
        for _ in range(1_000):  # however often it is asked
            closure(tiny, [0])
        print("numba" in sys.modules)
        medium = chain(1_000)
        for _ in range(200):  # 400,000 literals in this process
            closure(medium, [0])
        print("numba" in sys.modules)
    """
    run = [sys.executable, "-c", textwrap.dedent(script)]
    shown = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "True"]
