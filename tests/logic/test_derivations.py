"""One proof step for every derived atom: each is licensed by those before it."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma import Program, Rule, closure, derivation, derivations
from latentgamma.errors import FactsError
from latentgamma.logic import Derivations
from random_programs import random_program
from reference import PATHS, path, reference_levels


def check_steps(program: Program, facts: Collection[str], found: Derivations) -> None:
    """Each step is licensed by its rule and the steps before; each derived atom has just one."""
    true = closure(program, list(facts)).atoms
    proved = set(facts)
    for step in found.steps:
        rule = program.rules[step.rule]
        assert step.atom in rule.heads
        assert step.atom not in proved  # so a given fact has none, and no atom has two
        assert rule.body == set(step.premises) <= proved
        assert rule.negated <= set(step.negated)  # grounding leaves out what nothing derives
        assert true.isdisjoint(step.negated)
        proved.add(step.atom)
    assert proved == true


def random_stratified(rng: np.random.Generator, M: int) -> Program:
    """Loops within a rank, several heads, facts, and negation of atoms of lower ranks."""
    rank = rng.integers(0, 3, M)
    rules = []
    for _ in range(int(rng.integers(M // 2, 2 * M))):
        heads = rng.choice(M, int(rng.integers(1, 3)), replace=False)
        low = rank[heads].min()
        positive = np.flatnonzero((rank <= low) & (rng.random(M) < 0.2))
        negated = np.flatnonzero((rank < low) & (rng.random(M) < 0.5))
        if not len(positive) + len(negated) and rng.random() < 0.8:
            continue  # few facts, or nothing negated would be false
        names = [[f"a{i}" for i in part] for part in (heads, positive, negated)]
        rules.append(Rule(tuple(names[0]), frozenset(names[1]), frozenset(names[2])))
    return Program.from_rules(rules, [f"a{i}" for i in range(M)])


@pytest.mark.quick_first
@pytest.mark.parametrize("kind", PATHS)
def test_every_step_of_every_fact_set_is_licensed(kind: str):
    rng = np.random.default_rng(0)
    steps = negations = 0
    for _ in range(40):
        program = random_stratified(rng, 6)
        for n in range(7):
            for facts in itertools.combinations(program.atoms, n):
                with path(kind):
                    found = derivations(program, facts)
                    check_steps(program, facts, found)
                assert found.facts == set(facts)
                steps += len(found)
                negations += sum(bool(step.negated) for step in found.steps)
    assert steps > 2000
    assert negations > 200


@pytest.mark.parametrize("kind", PATHS)
def test_the_depth_of_a_definite_program_is_the_level_of_its_closure(kind: str):
    rng = np.random.default_rng(1)
    for _ in range(100):
        M = int(rng.integers(1, 15))
        program = random_program(rng, M, int(rng.integers(0, 3 * M)), body=3)
        facts = program.names(rng.random(M) < 0.25)
        with path(kind):
            found = derivations(program, facts)
            check_steps(program, facts, found)
        levels = reference_levels(program, facts)
        assert dict(zip(found, found.depth.tolist(), strict=True)) == {
            atom: d for d, atoms in enumerate(levels) for atom in atoms if d
        }


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_a_proof_is_made_of_the_steps(seed: int):
    rng = np.random.default_rng(seed)
    program = random_stratified(rng, 10)
    facts = sorted(program.names(rng.random(10) < 0.3))
    found = derivations(program, facts)
    by_atom = {step.atom: step for step in found.steps}
    for i, atom in enumerate(program.atoms):
        proof = found.proof(atom)
        assert proof == derivation(program, facts, atom) == found.proof(i)
        assert (proof is None) == (atom not in closure(program, facts))
        if proof is not None:
            assert proof.holds()
            for step in proof.steps:
                assert step == by_atom[step.atom] if step.rule is not None else step.atom in facts


@given(st.integers(0, 2**32))
def test_arrays_steps_table_and_json_say_the_same(seed: int):
    rng = np.random.default_rng(seed)
    program = random_stratified(rng, 8)
    facts = program.names(rng.random(8) < 0.3)
    found = derivations(program, facts)
    assert [program.atoms[i] for i in found.atom] == list(found) == [s.atom for s in found.steps]
    assert found.rule.tolist() == [step.rule for step in found.steps]
    # By depth, then by index: the order does not depend on how the closure was computed.
    assert list(zip(found.depth, found.atom, strict=True)) == sorted(
        zip(found.depth, found.atom, strict=True)
    )
    table = found.table()
    assert {len(column) for column in table.values()} == {len(found)}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    document = json.loads(json.dumps(found.to_dict()))
    assert document["facts"] == sorted(facts)
    for row, step, values in zip(rows, found.steps, document["steps"], strict=True):
        assert (row["atom"], row["rule"], row["by"]) == (step.atom, step.rule, f"rule {step.rule}")
        assert row["premises"] == step.premises
        assert set(row["given"]) == facts & set(step.premises)
        assert row["negated"] == step.negated
        assert set(step.negated) == program.rules[step.rule].negated
        assert values["depth"] == row["depth"]
        assert values["premises"] == list(step.premises)
        assert values.get("negated", []) == list(step.negated)
    for i, atom in enumerate(program.atoms):
        assert (atom in found) == (i in found) == (atom in set(found))


def test_a_given_fact_has_no_step_even_where_a_rule_derives_it():
    program = lg.parse("b :- a. a. c :- b. d :- c.")
    assert list(derivations(program)) == ["a", "b", "c", "d"]
    found = derivations(program, ["b"])
    assert found.facts == {"b"}
    assert "b" not in found
    assert found.table()["given"] == [(), ("b",), ()]
    assert [step.atom for step in found.steps] == ["a", "c", "d"]
    (given_fact,) = found.proof("b").steps
    assert given_fact.rule is None


def test_what_is_in_it():
    program = lg.parse("b :- a. c :- x.")
    found = derivations(program, ["a"])
    assert "b" in found
    assert np.int32(program.index["b"]) in found
    for other in ("a", "c", "nonsense", True, -1, 99, None, 1.5):
        assert other not in found
    assert found.proof("c") is None
    with pytest.raises(FactsError, match="did you mean"):
        found.proof("bb")
    with pytest.raises(FactsError, match="atom index 9 is outside"):
        found.proof(9)


def test_it_is_a_value():
    program = lg.parse("b :- a, not c. d :- b.")
    found = derivations(program, ["a"])
    again = pickle.loads(pickle.dumps(found))
    assert found == again == derivations(program, {"a": True})
    assert hash(found) == hash(again)
    assert found != derivations(program, ["a", "c"])
    assert repr(found) == "Derivations(2 atoms from 1 fact, depth 2)"
    for array in (found.atom, found.rule, found.depth):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_it_prints_as_a_table():
    program = lg.parse("'b c' :- a, not x. d :- 'b c', e.")
    found = derivations(program, ["a", "e"])
    assert str(found).splitlines() == ["1  'b c'  rule 0  a, not x", "2  d      rule 1  'b c', e"]
    assert "2 atoms from 2 facts, in 2 steps" in found._repr_html_()
    assert "not x" in found._repr_html_()
    assert str(derivations(program)) == ""
    n = 150
    chain = derivations(Program.from_arrays(np.arange(n + 1), np.arange(n), np.arange(n) + 1), [0])
    assert str(chain).splitlines()[99:] == ["100  a100  rule 99  a99", "… 50 more"]
    assert "… 50 more" in chain._repr_html_()


def test_a_grounded_program_names_its_lines():
    program = lg.parse(
        "edge(a,b).  edge(b,c).\n"
        "path(X,Y) :- edge(X,Y).\n"
        "path(X,Z) :- edge(X,Y), path(Y,Z).\n"
        "end(X) :- path(Y,X), not edge(X,Y), not blocked(X).\n"
        "#external blocked(b)."
    )
    found = derivations(program, ["blocked(b)"])
    check_steps(found.program, ["blocked(b)"], found)
    by = dict(zip(found, found.table()["by"], strict=True))
    assert by == {
        "edge(a,b)": "line 1",
        "edge(b,c)": "line 1",
        "path(a,b)": "line 2 with X=a, Y=b",
        "path(b,c)": "line 2 with X=b, Y=c",
        "path(a,c)": "line 3 with X=a, Y=b, Z=c",
        "end(c)": by["end(c)"],
    }
    assert by["end(c)"].startswith("line 4 with X=c")
    assert set(by) | {"blocked(b)"} == closure(program, ["blocked(b)"]).atoms
    # A negated atom that grounding has evaluated away is a leaf, too.
    assert "blocked(c)" in found.steps[-1].negated
    for atom in found:
        assert found.proof(atom) == derivation(program, ["blocked(b)"], atom)
    assert found.proof("path(c,a)") is None


@pytest.mark.parametrize("kind", PATHS)
def test_a_chain_of_twenty_thousand_rules(kind: str):
    n = 20_000
    number = np.random.default_rng(0).permutation(n)  # rule number[i] derives atom i + 1
    body = np.argsort(number)
    program = Program.from_arrays(np.arange(n + 1), body, body + 1)
    with path(kind):
        found = derivations(program, [0])
        assert np.array_equal(found.atom, np.arange(1, n + 1))
        assert np.array_equal(found.depth, found.atom)
    assert np.array_equal(found.rule, number)
    assert len(found) == n
    proof = found.proof(n)
    assert proof.depth == n
    assert [step.atom for step in proof.steps] == list(program.atoms)
    assert proof.steps[1:] == found.steps
