"""The programs to try things on are what their docstrings say they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentgamma import generators
from latentgamma.errors import ArgumentError
from latentgamma.program.program import Program

# M, R, k, rho_max, productive roots, leaves, depth from each productive root.
PAPER = {
    "g1": (33, 32, 2, 2, 1, 1, 31),
    "g2": (57, 60, 2, 3, 1, 5, 31),
    "g3": (117, 132, 2, 8, 2, 8, 32),
    "g4": (504, 648, 2, 16, 8, 48, 32),
}
SEEDS = range(10)

paper_program = pytest.mark.parametrize("name", PAPER)


def derive(program: Program, facts: Iterable[str]) -> tuple[set[str], int]:
    """The closure and its depth, straight from the definition of T_P."""
    rules = [(rule.heads, rule.body) for rule in program.rules]
    return derive_from(rules, facts)


def derive_from(
    rules: list[tuple[tuple[str, ...], frozenset[str]]], facts: Iterable[str]
) -> tuple[set[str], int]:
    known, depth = set(facts), 0
    while new := {h for heads, body in rules if body <= known for h in heads} - known:
        known |= new
        depth += 1
    return known, depth


def make(name: str, seed: int) -> Program:
    generator: Callable[..., Program] = getattr(generators, name)
    return generator(seed=seed)


def productive_roots(program: Program) -> list[str]:
    return [root for root in program.roots if derive(program, [root])[1] > 0]


def fact_sets(program: Program, seed: int, count: int = 500) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, count)
    return [[program.atoms[i] for i in rng.choice(program.M, n, replace=False)] for n in sizes]


def shape(program: Program) -> tuple[int, int, int, int]:
    return program.M, program.R, program.k, program.rho_max


# ------------------------------------------------------------------ the paper's programs


@paper_program
@pytest.mark.parametrize("seed", SEEDS)
def test_paper_programs_meet_every_printed_figure(name: str, seed: int) -> None:
    program = make(name, seed)
    *figures, roots, leaves, depth = PAPER[name]
    assert shape(program) == tuple(figures)
    productive = productive_roots(program)
    assert len(productive) == roots
    assert len(program.leaves) == leaves
    assert {derive(program, [root])[1] for root in productive} == {depth}
    assert derive(program, productive)[1] == depth


@pytest.mark.quick_first
@paper_program
@pytest.mark.parametrize("seed", SEEDS)
def test_paper_programs_converge_as_deep_as_table_1_says(name: str, seed: int) -> None:
    program = make(name, seed)
    rules = [(rule.heads, rule.body) for rule in program.rules]
    deepest = max(derive_from(rules, facts)[1] for facts in fact_sets(program, seed))
    assert 28 <= deepest <= 32


@paper_program
@pytest.mark.parametrize("seed", SEEDS)
def test_no_fact_set_converges_later_than_the_stated_depth(name: str, seed: int) -> None:
    # The longest path in the graph of rules bounds the depth from any facts at all.
    program = make(name, seed)
    longest = dict.fromkeys(program.atoms, 0)
    for sweep in range(program.M + 1):
        before = dict(longest)
        for rule in program.rules:
            above = 1 + max(longest[atom] for atom in rule.body)
            longest[rule.head] = max(longest[rule.head], above)
        if longest == before:
            break
        assert sweep < program.M, "the program has a cycle"
    assert max(longest.values()) == PAPER[name][-1]


@paper_program
@pytest.mark.parametrize("seed", SEEDS)
def test_paper_programs_have_no_idle_rules(name: str, seed: int) -> None:
    program = make(name, seed)
    by_head: dict[str, list[frozenset[str]]] = {}
    for rule in program.rules:
        assert rule.body
        assert rule.head not in rule.body
        by_head.setdefault(rule.head, []).append(rule.body)
    for bodies in by_head.values():
        for one, other in combinations(bodies, 2):
            assert not one <= other, "a rule that another makes needless"
            assert not other <= one, "a rule that another makes needless"


def test_there_are_33_edge_cases() -> None:
    cases = 0
    for name in PAPER:
        program = make(name, 0)
        roots = productive_roots(program)
        assert derive(program, ()) == (set(), 0)
        reached = [derive(program, [root])[0] for root in roots[:5]]
        together = derive(program, roots)[0]
        assert all(one <= together for one in reached)
        for leaf in program.leaves[:5]:
            assert derive(program, [leaf]) == ({leaf}, 0)
        cases += 2 + len(reached) + len(program.leaves[:5])
    assert cases == 33


@pytest.mark.parametrize("seed", SEEDS)
def test_g1_is_a_chain_whose_switch_alone_derives_nothing(seed: int) -> None:
    program = generators.g1(seed=seed)
    chain = {f"chain_{i}" for i in range(32)}
    assert set(program.atoms) == chain | {"switch"}
    assert derive(program, ["chain_0"])[0] == chain
    assert program.roots == ("chain_0", "switch")
    assert derive(program, ["switch"]) == ({"switch"}, 0)
    assert derive(program, ["chain_0", "switch"])[1] == 30
    assert program.leaves == ("chain_31",)


@pytest.mark.parametrize("seed", SEEDS)
def test_domains_reach_into_their_neighbours(seed: int) -> None:
    for program in (generators.g3(seed=seed), generators.g4(seed=seed)):
        names = [root.removesuffix("_0") for root in program.roots]
        for i, name in enumerate(names):
            neighbour = names[(i + 1) % len(names)]
            reached = derive(program, [f"{name}_0"])[0]
            assert f"{neighbour}_c1" in reached
            assert f"{neighbour}_31" not in reached


@paper_program
def test_every_atom_of_the_larger_programs_follows_from_the_roots(name: str) -> None:
    program = make(name, 3)
    missing = set(program.atoms) - derive(program, productive_roots(program))[0]
    assert missing == ({"switch"} if name == "g1" else set())


@pytest.mark.parametrize("name", [*PAPER, "disjunctive"])
def test_the_seed_decides_the_program(name: str) -> None:
    assert make(name, 7) == make(name, 7)
    assert getattr(generators, name)() == make(name, 0)
    assert len({make(name, seed) for seed in SEEDS}) == len(SEEDS)


# ------------------------------------------------------------------ several heads


@pytest.mark.parametrize("seed", SEEDS)
def test_disjunctive_has_the_three_shapes(seed: int) -> None:
    program = generators.disjunctive(seed=seed)
    assert (program.M, program.R, program.k) == (36, 30, 2)
    shapes = Counter((len(rule.body), len(rule.heads)) for rule in program.rules)
    assert shapes == {(1, 2): 10, (2, 2): 10, (1, 3): 10}
    for rule in program.rules:
        assert rule.body.isdisjoint(rule.heads)
        assert set(rule.heads) <= derive(program, rule.body)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_disjunctive_atoms_head_rules_of_two_sizes(seed: int) -> None:
    program = generators.disjunctive(seed=seed)
    sizes: dict[str, set[int]] = {}
    for rule in program.rules:
        for head in rule.heads:
            sizes.setdefault(head, set()).add(len(rule.heads))
    assert len(sizes) == 30  # every atom above the first layer is derived
    assert all(3 in of for of in sizes.values())
    assert sum(of == {2, 3} for of in sizes.values()) >= 20
    first = [atom for atom in program.atoms if atom.startswith("layer0_")]
    assert derive(program, first) == (set(program.atoms), 5)


@pytest.mark.parametrize("rules", [1, 5, 6, 7, 31])
def test_disjunctive_has_as_many_rules_as_asked(rules: int) -> None:
    program = generators.disjunctive(rules=rules)
    layers = 1 + (rules + 5) // 6
    assert shape(program)[:2] == (6 * layers, rules)
    assert set(program.head_sizes.tolist()) <= {2, 3}


# ------------------------------------------------------------------ random programs


@st.composite
def random_arguments(draw: st.DrawFn) -> dict[str, Any]:
    body = sorted(draw(st.tuples(st.integers(1, 8), st.integers(1, 8))))
    heads = sorted(draw(st.tuples(st.integers(1, 3), st.integers(1, 3))))
    atoms = draw(st.integers(body[1] + heads[1], body[1] + heads[1] + 20))
    return {
        "atoms": atoms,
        "rules": draw(st.integers(0, 40)),
        "body": (body[0], body[1]),
        "heads": (heads[0], heads[1]),
        "seed": draw(st.integers(0, 1000)),
        "acyclic": draw(st.booleans()),
        "facts": draw(st.integers(0, atoms)),
    }


@settings(max_examples=60, deadline=None)
@given(random_arguments())
def test_random_rules_keep_their_promises(arguments: dict[str, Any]) -> None:
    program = generators.random(**arguments)
    atoms, rules, facts = (arguments[key] for key in ("atoms", "rules", "facts"))
    assert (program.M, program.R, len(program.facts)) == (atoms, rules + facts, facts)
    sizes = [(arguments["body"], program.body_sizes), (arguments["heads"], program.head_sizes)]
    for (low, high), of in sizes:
        assert np.all((of[facts:] >= low) & (of[facts:] <= high))
    for j in range(facts, program.R):
        body, heads = set(program.body_of(j).tolist()), set(program.heads_of(j).tolist())
        assert body.isdisjoint(heads)
        if arguments["acyclic"]:
            assert max(body) < min(heads)
    assert program == generators.random(**arguments)


@pytest.mark.quick_first
@pytest.mark.parametrize(("atoms", "body"), [(6, 1), (6, 2), (6, 3), (6, 4)])
def test_random_draws_every_rule_equally_often(atoms: int, body: int) -> None:
    # Bodies of 3 and 4 take most of the five other atoms, which is another way of drawing.
    program = generators.random(atoms, 60_000, body=body, seed=2)
    bodies = program.body_indices.reshape(-1, body)
    seen = Counter(zip(program.head_indices.tolist(), map(tuple, bodies.tolist()), strict=True))
    expected = {
        (head, rest)
        for head in range(atoms)
        for rest in combinations([i for i in range(atoms) if i != head], body)
    }
    assert set(seen) == expected
    mean = 60_000 / len(expected)
    assert all(abs(count - mean) < 5 * mean**0.5 for count in seen.values())


def test_random_draws_every_size_equally_often() -> None:
    program = generators.random(50, 30_000, body=(2, 4), heads=(1, 2), seed=1)
    sizes, heads = Counter(program.body_sizes.tolist()), Counter(program.head_sizes.tolist())
    assert sizes.keys() == {2, 3, 4}
    assert heads.keys() == {1, 2}
    assert all(abs(count - 10_000) < 500 for count in sizes.values())
    assert all(abs(count - 15_000) < 500 for count in heads.values())


def test_random_bodies_of_acyclic_rules_are_uniform_below_the_head() -> None:
    program = generators.random(7, 80_000, body=2, acyclic=True, seed=3)
    bodies = program.body_indices.reshape(-1, 2)
    for head in range(2, 7):
        seen = Counter(map(tuple, bodies[program.head_indices == head].tolist()))
        assert set(seen) == set(combinations(range(head), 2))
        mean = sum(seen.values()) / len(seen)
        assert all(abs(count - mean) < 5 * mean**0.5 for count in seen.values())


def test_random_programs_differ_between_seeds() -> None:
    assert len({generators.random(20, 30, seed=seed) for seed in SEEDS}) == len(SEEDS)


def test_random_takes_bodies_of_nearly_all_atoms() -> None:
    program = generators.random(200, 50, body=(1, 199), seed=5)
    assert program.R == 50
    assert program.k > 150
    assert shape(generators.random(3, 5, body=2))[:3] == (3, 5, 2)


# ------------------------------------------------------------------ families that scale


@pytest.mark.parametrize(("n", "body"), [(1, 1), (5, 1), (9, 2), (9, 3), (4, 4)])
def test_chain(n: int, body: int) -> None:
    program = generators.chain(n, body=body)
    rules = n - body
    assert shape(program) == (n, rules, body if rules else 0, min(1, rules))
    assert derive(program, program.atoms[:body]) == (set(program.atoms), rules)
    assert derive(program, program.atoms[1:body])[1] == 0


@pytest.mark.parametrize(("layers", "k"), [(0, 3), (1, 1), (4, 1), (5, 3)])
def test_ladder(layers: int, k: int) -> None:
    program = generators.ladder(layers, k)
    some = min(1, layers)
    assert shape(program) == ((layers + 1) * k, layers * k, some * k, some)
    assert derive(program, program.atoms[:k]) == (set(program.atoms), layers)
    assert derive(program, program.atoms[1:k])[1] == 0


@pytest.mark.parametrize("n", [1, 2, 7])
def test_clique(n: int) -> None:
    program = generators.clique(n)
    assert shape(program) == (n, n * (n - 1), min(1, n - 1), n - 1)
    assert len(set(program.rules)) == program.R
    for atom in program.atoms:
        assert derive(program, [atom]) == (set(program.atoms), min(1, n - 1))


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 5), (4, 1), (2, 2), (3, 5)])
def test_grid(rows: int, cols: int) -> None:
    program = generators.grid(rows, cols)
    cells = rows * cols
    k = 0 if cells == 1 else 1 if 1 in (rows, cols) else 2
    assert shape(program) == (cells, cells - 1, k, min(1, cells - 1))
    assert derive(program, ["cell_0_0"]) == (set(program.atoms), rows + cols - 2)
    bodies = {rule.head: rule.body for rule in program.rules}
    for row in range(rows):
        for col in range(cols):
            near = {(row - 1, col), (row, col - 1)}
            expected = {f"cell_{r}_{c}" for r, c in near if r >= 0 and c >= 0}
            assert bodies.get(f"cell_{row}_{col}", set()) == expected


@pytest.mark.parametrize(
    ("layers", "width", "body", "per_head"),
    [(0, 3, 2, 1), (3, 1, 1, 1), (3, 4, 2, 6), (4, 5, 4, 5), (3, 20, 3, 4), (2, 6, 1, 2)],
)
def test_layered(layers: int, width: int, body: int, per_head: int) -> None:
    arguments = {"body": body, "per_head": per_head, "seed": 4}
    program = generators.layered(layers, width, **arguments)
    rules = layers * width * per_head
    some = min(1, layers)
    assert shape(program) == ((layers + 1) * width, rules, some * body, some * per_head)
    assert len(set(program.rules)) == rules
    assert set(program.body_sizes.tolist()) <= {body}
    for j in range(rules):
        assert set((program.body_of(j) // width).tolist()) == {program.heads_of(j)[0] // width - 1}
    assert derive(program, program.atoms[:width]) == (set(program.atoms), layers)
    assert program == generators.layered(layers, width, **arguments)


# ------------------------------------------------------------------ bad arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generators.g1(seed=-1), r"seed must be a whole number from 0 on, not -1"),
        (lambda: generators.g4(seed=0.5), r"seed must be a whole number from . on, not 0\.5"),
        (lambda: generators.disjunctive(rules=0), r"rules must be a whole number from 1 on, not 0"),
        (lambda: generators.random(-1, 3), r"atoms must be a whole number from 0 on, not -1"),
        (lambda: generators.random(5, -3), r"rules must be a whole number from 0 on, not -3"),
        (lambda: generators.random(5, True), r"rules must be a whole number from . on, not True"),
        (
            lambda: generators.random(3, 3),
            r"3 body atoms and 1 heads, .* need 4 atoms, but atoms=3",
        ),
        (lambda: generators.random(9, 3, body=0), r"body must be a whole number from 1 on.*"),
        (lambda: generators.random(9, 3, body=(3, 1)), r"body must be a pair .*not \(3, 1\)"),
        (lambda: generators.random(9, 3, body=(1, 2, 3)), r"body must be a size or a pair"),
        (lambda: generators.random(9, 3, heads=0), r"heads must be a whole number from 1 on"),
        (lambda: generators.random(9, 3, facts=10), r"facts=10 different atoms .* atoms=9"),
        (lambda: generators.chain(0), r"n must be a whole number from 1 on, not 0"),
        (lambda: generators.chain(3, body=4), r"body=4 .* longer chain than n=3"),
        (lambda: generators.ladder(-1, 2), r"layers must be a whole number from 0 on"),
        (lambda: generators.ladder(2, 0), r"k must be a whole number from 1 on"),
        (lambda: generators.clique(0), r"n must be a whole number from 1 on"),
        (lambda: generators.grid(0, 3), r"rows must be a whole number from 1 on"),
        (lambda: generators.grid(3, "4"), r"cols must be a whole number from . on, not '4'"),
        (lambda: generators.layered(2, 3, per_head=4), r"width=3 has 3 different bodies of 2"),
        (lambda: generators.layered(2, 1), r"width=1 has 0 different bodies of 2"),
    ],
)
def test_bad_arguments_are_refused_in_words(call: Callable[[], Program], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
