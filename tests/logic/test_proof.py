from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma import Program, closure, derivation, why_not
from latentgamma.errors import FactsError
from latentgamma.logic import Derivation, WhyNot
from random_programs import random_program
from reference import PATHS, path, reference_levels


def check_derivation(program: Program, facts: Collection[str], proof: Derivation) -> None:
    """Each step is licensed, the depth is the least, and nothing is there in vain."""
    levels = reference_levels(program, facts)
    level = {atom: d for d, atoms in enumerate(levels) for atom in atoms}
    depth: dict[str, int] = {}
    used = {proof.atom}
    for step in proof.steps:
        assert step.atom not in depth
        if step.rule is None:
            assert step.atom in facts
            assert step.premises == ()
            depth[step.atom] = 0
        else:
            assert step.atom not in facts
            rule = program.rules[step.rule]
            assert step.atom in rule.heads
            assert rule.body == set(step.premises)
            assert len(rule.body) == len(step.premises)
            depth[step.atom] = 1 + max((depth[p] for p in step.premises), default=0)
        used.update(step.premises)
    assert proof.depth == depth[proof.atom] == level[proof.atom]
    assert used == set(depth)
    assert proof.facts == {step.atom for step in proof.steps if step.rule is None} <= set(facts)
    assert set(proof.rules) == {step.rule for step in proof.steps} - {None}
    assert proof.holds()
    # Every conclusion is told exactly once, and wherever else it stands it says so.
    told = Counter(atom for atom, note in printed(proof) if "," not in note)
    assert set(told) == set(depth)
    assert all(told[step.atom] == 1 for step in proof.steps if step.premises)


def printed(proof: Derivation) -> list[tuple[str, str]]:
    """The atoms and their notes, line by line."""
    line = re.compile(r"[│├└─ ]*(\S+)  \((.*)\)")
    return [line.fullmatch(text).groups() for text in str(proof).splitlines() if text]


def check_why_not(program: Program, facts: Collection[str], answer: WhyNot) -> None:
    """The missing facts derive the atom, no part of them does, and roots come first."""
    known = closure(program, facts).atoms

    def derives(more: Collection[str]) -> bool:
        return answer.atom in closure(program, {*facts, *more})

    assert derives(answer.missing)
    assert not answer.missing & known
    for atom in answer.missing:
        assert not derives(answer.missing - {atom})
    if derives(program.underivable):
        assert answer.missing <= set(program.underivable)
    rules = [j for j, rule in enumerate(program.rules) if answer.atom in rule.heads]
    assert [blocked.rule for blocked in answer.blocked] == rules
    for blocked in answer.blocked:
        assert set(blocked.missing) == program.rules[blocked.rule].body - known != set()
        assert len(set(blocked.missing)) == len(blocked.missing)


@pytest.mark.quick_first
@pytest.mark.parametrize("kind", PATHS)
def test_every_atom_of_random_programs_has_a_proof_or_a_reason(kind: str):
    rng = np.random.default_rng(0)
    proofs = reasons = 0
    for _ in range(300):
        M = int(rng.integers(1, 12))
        program = random_program(rng, M, int(rng.integers(0, 3 * M)), body=3)
        facts = program.names(rng.random(M) < 0.25)
        derived = frozenset().union(*reference_levels(program, facts))
        with path(kind):
            for atom in program.atoms:
                proof, reason = derivation(program, facts, atom), why_not(program, facts, atom)
                if atom in derived:
                    assert reason is None
                    check_derivation(program, facts, proof)
                    proofs += 1
                else:
                    assert proof is None
                    check_why_not(program, facts, reason)
                    reasons += 1
    assert min(proofs, reasons) > 300


@given(st.data())
def test_names_and_indices_ask_the_same(data: st.DataObject):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    program = random_program(rng, 20, 40, body=3)
    facts = rng.choice(20, 5, replace=False)
    i = data.draw(st.integers(0, 19))
    name = program.atoms[i]
    assert derivation(program, facts, name) == derivation(program, facts.tolist(), i)
    assert why_not(program, facts, name) == why_not(program, program.mask(facts), np.int64(i))


def test_a_given_fact_needs_no_rule():
    program = Program.from_rules([("b", ["a"]), ("a", [])])
    given_fact = derivation(program, ["b"], "b")
    assert [(step.atom, step.rule) for step in given_fact.steps] == [("b", None)]
    assert given_fact.depth == 0
    stated = derivation(program, [], "b")
    assert [(step.atom, step.rule) for step in stated.steps] == [("a", 1), ("b", 0)]
    assert stated.facts == frozenset()
    assert stated.depth == 2


def test_of_several_rules_the_shortest_then_the_first_is_used():
    program = Program.from_rules([("c", ["a", "b"]), ("c", ["b"]), ("c", ["a"]), ("d", ["c"])])
    assert derivation(program, ["a", "b"], "d").rules == (1, 3)


def test_shared_sub_proofs_are_told_once():
    n = 200  # as a plain tree this proof has 2^200 leaves
    rules = [(f"{side}{i + 1}", [f"l{i}", f"r{i}"]) for i in range(n) for side in "lr"]
    program = Program.from_rules(rules)
    proof = derivation(program, ["l0", "r0"], f"l{n}")
    assert proof.depth == n
    assert len(proof.steps) == 2 * n + 1
    assert len(str(proof).splitlines()) < 6 * n
    check_derivation(program, ["l0", "r0"], proof)


def test_a_proof_prints_as_a_tree():
    program = Program.from_rules(
        [("c", ["a", "b"]), ("d", ["c"]), ("own", []), ("e f", ["c", "d", "own"])]
    )
    proof = derivation(program, ["a", "b"], "e f")
    assert str(proof).splitlines() == [
        "'e f'  (rule 3)",
        "├─ c  (rule 0)",
        "│  ├─ a  (given)",
        "│  └─ b  (given)",
        "├─ d  (rule 1)",
        "│  └─ c  (rule 0, shown above)",
        "└─ own  (rule 2)",
    ]
    assert repr(proof) == "Derivation('e f', depth 3, 6 steps)"


@pytest.mark.slow
def test_a_deep_proof_prints_in_a_narrow_column():
    n = 100_000
    program = Program.from_arrays(np.arange(n + 1), np.arange(n), np.arange(n) + 1)
    proof = derivation(program, [0], n)
    assert proof.depth == n
    assert max(map(len, str(proof).splitlines())) < 150
    told = printed(proof)
    assert [atom for atom, note in told if "," not in note] == [f"a{i}" for i in range(n, -1, -1)]
    assert sum(note.endswith("continued below") for _, note in told) == n // 24 - (n % 24 == 0)
    reason = why_not(program, [], n)
    assert reason.missing == {"a0"}


@pytest.mark.parametrize("n", [1, 23, 24, 25, 26, 48, 49, 72, 73])
def test_a_branch_deeper_than_24_goes_on_below(n: int):
    program = Program.from_arrays(np.arange(n + 1), np.arange(n), np.arange(n) + 1)
    proof = derivation(program, [0], n)
    told = printed(proof)
    # The atom at depth 24 of a tree that has premises heads the next tree.
    cut = [i for i in range(n, 0, -1) if i < n and (n - i) % 24 == 0]
    assert [atom for atom, note in told if "continued below" in note] == [f"a{i}" for i in cut]
    assert [atom for atom, note in told if "," not in note] == [f"a{i}" for i in range(n, -1, -1)]
    assert str(proof).split("\n").count("") == len(cut)


@pytest.mark.parametrize(("depth", "given_facts"), [(3, 2), (24, 1), (25, 1), (1, 199), (1, 200)])
def test_a_notebook_shows_small_proofs_folded_and_large_ones_as_text(depth: int, given_facts: int):
    wide = [("c0", [f"f{i}" for i in range(given_facts)])]
    program = Program.from_rules([*wide, *((f"c{i + 1}", [f"c{i}"]) for i in range(depth - 1))])
    proof = derivation(program, [f"f{i}" for i in range(given_facts)], f"c{depth - 1}")
    assert (proof.depth, len(proof.steps)) == (depth, depth + given_facts)
    html = proof._repr_html_()
    assert f"c{depth - 1} follows in {depth} steps" in html
    folded = depth <= 24 and len(proof.steps) <= 200
    assert ("<details" in html) == folded
    for step in proof.steps:
        assert re.search(rf"\b{step.atom}\b", html)


def test_a_notebook_shows_what_does_not_follow():
    proof = derivation(lg.parse("ok :- a, not bad. bad :- b."), ["a"], "ok")
    html = proof._repr_html_()
    assert "not bad" in html
    assert "needs b" in html
    assert "ok :- a, not bad." in html


def test_a_proof_goes_to_json_and_graphviz():
    names = ['say "x"', "back\\slash", "two\nlines", "größe"]
    program = Program.from_rules([(names[0], names[1:3]), (names[3], [names[0]])])
    proof = derivation(program, names[1:3], names[3])
    told = json.loads(proof.to_json(indent=2))
    assert told == proof.to_dict()
    assert told["facts"] == sorted(names[1:3])
    assert [step["rule"] for step in told["steps"]] == [None, None, 0, 1]
    assert {step["atom"] for step in told["steps"]} == set(names)
    dot = proof.to_dot().splitlines()
    assert dot[0] == "digraph derivation {"
    assert dot[-1] == "}"
    # A Graphviz string ends at the first quote that no backslash escapes.
    node = re.compile(r'  n\d+ \[label="(?:[^"\\]|\\.)*", shape=(?:box|ellipse)\];')
    edge = re.compile(r"  n\d+ -> n\d+;")
    assert [bool(node.fullmatch(line)) for line in dot[2:-1]].count(True) == 4
    assert [bool(edge.fullmatch(line)) for line in dot[2:-1]].count(True) == 3
    assert len(dot) == 3 + 4 + 3


def test_a_forged_proof_does_not_hold():
    program = Program.from_rules([("b", ["a"]), ("c", ["b"]), ("d", ["b", "c"])])
    proof = derivation(program, ["a"], "d")
    assert proof.holds()
    first, *rest = proof.steps
    assert not replace(proof, steps=tuple(rest)).holds()
    assert not replace(proof, steps=(first, *reversed(rest))).holds()
    assert not replace(proof, steps=(first, replace(rest[0], rule=1), *rest[1:])).holds()
    assert not replace(proof, steps=(*proof.steps[:-1], replace(rest[-1], premises=()))).holds()
    assert not replace(proof, atom="e").holds()


def test_why_not_prints_what_is_lacking():
    program = Program.from_rules(
        [("c", ["a", "b"]), ("c", ["x y"]), ("d", ["c"]), ("e", ["c", "d", "a"])]
    )
    reason = why_not(program, ["a"], "e")
    assert reason.missing in ({"b"}, {"x y"})
    assert str(why_not(program, ["a"], "c")).splitlines()[:3] == [
        "c does not follow",
        "├─ rule 0 needs b",
        "└─ rule 1 needs 'x y'",
    ]
    told = json.loads(reason.to_json())
    assert told == reason.to_dict()
    assert told["blocked"] == [{"rule": 3, "missing": ["c", "d"]}]
    assert str(why_not(program, [], "a")) == (
        "a does not follow: no rule derives it, it has to be given"
    )
    assert why_not(program, [], "a").missing == {"a"}
    many = Program.from_rules([("h", [f"b{i}", "c"]) for i in range(50)])
    assert len(str(why_not(many, [], "h")).splitlines()) == 23


@pytest.mark.parametrize("kind", PATHS)
def test_loops_without_roots_are_broken_somewhere(kind: str):
    program = Program.from_rules(
        [("a", ["b"]), ("b", ["a"]), ("c", ["a", "r"]), ("s", ["s"]), ("t", ["s", "a"])]
    )
    with path(kind):
        assert why_not(program, [], "a").missing == {"b"}
        assert why_not(program, [], "s").missing == {"s"}
        assert why_not(program, ["r"], "c").missing in ({"a"}, {"b"})
        assert why_not(program, [], "c").missing in ({"a", "r"}, {"b", "r"})
        assert len(why_not(program, [], "t").missing) == 2


def test_the_cheapest_repair_is_found_when_proofs_share_nothing():
    program = Program.from_rules(
        [("g", ["a1", "a2", "a3"]), ("g", ["h", "i"]), ("h", ["x"]), ("i", ["x"])]
    )
    assert why_not(program, [], "g").missing == {"x"}
    # Counted twice, the shared x looks as dear as two facts; what is left over is dropped.
    diamond = [("g", [f"m{i}" for i in range(60)]), *((f"m{i}", ["x"]) for i in range(60))]
    assert why_not(Program.from_rules(diamond), [], "g").missing == {"x"}
    tower = [(f"{s}{i + 1}", [f"l{i}", f"r{i}"]) for i in range(2_000) for s in "lr"]
    assert why_not(Program.from_rules(tower), [], "l2000").missing == {"l0", "r0"}


@pytest.mark.parametrize("kind", PATHS)
def test_a_repair_that_is_too_large_is_thinned_out(kind: str):
    # Each m looks cheapest by its own fact, but f0 alone derives all of them.
    n = 50
    rules = [("g", [f"m{i}" for i in range(n)] + ["f0"])]
    rules += [(f"m{i}", [f"f{i}"]) for i in range(n)]
    rules += [(f"m{i}", ["f0", "f0x"]) for i in range(n)] + [("f0x", ["f0"])]
    program = Program.from_rules(rules)
    with path(kind):
        assert why_not(program, [], "g").missing == {"f0"}


@pytest.mark.parametrize("needed", [0, 1, 64, 65, 140])
def test_of_many_assumptions_those_that_are_needed_stay(needed: int):
    n = 70
    extra = [f"e{i}" for i in range(needed)]
    rules = [("g", [f"m{i}" for i in range(n)] + ["f0", *extra])]
    rules += [(f"m{i}", [f"f{i}"]) for i in range(n)]
    rules += [(f"m{i}", ["f0", "f0x"]) for i in range(n)] + [("f0x", ["f0"])]
    assert why_not(Program.from_rules(rules), [], "g").missing == {"f0", *extra}


def test_two_assumptions_that_replace_each_other_are_not_both_dropped():
    rules = [("g", ["x", "p", "q"]), ("x", ["c"]), ("p", ["a"]), ("q", ["b"])]
    rules += [("q", ["p", "p2"]), ("p2", ["p"]), ("p", ["q", "q2"]), ("q2", ["q"])]
    assert why_not(Program.from_rules(rules), [], "g").missing in ({"a", "c"}, {"b", "c"})


def test_a_dearer_rule_does_not_take_the_place_of_a_cheaper_one():
    # h costs one fact by its first rule. Its second rule is ready before h is settled.
    program = Program.from_rules(
        [("g", ["b", "c", "z", "y"]), ("g", ["h"]), ("h", ["b"]), ("h", ["c", "z"])]
    )
    assert why_not(program, [], "g").missing == {"b"}


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.slow
def test_a_body_of_a_hundred_thousand_atoms(kind: str):
    n = 100_000
    program = Program.from_arrays([0, n], np.arange(n), [n])
    with path(kind):
        reason = why_not(program, [3, 5], n)
        assert len(reason.missing) == n - 2
        assert len(str(reason)) < 1_000
        proof = derivation(program, np.arange(n), n)
        assert proof.depth == 1
        assert len(proof.steps) == n + 1


def test_questions_about_atoms_that_are_not_there():
    program = Program.from_rules([("bird", ["penguin"])])
    for ask in (derivation, why_not):
        with pytest.raises(FactsError, match=r"does not have: 'brid' \(did you mean 'bird'\?\)"):
            ask(program, [], "brid")
        with pytest.raises(FactsError, match="atom index 2 is outside 0…1"):
            ask(program, [], 2)
        with pytest.raises(FactsError, match="atom index -1 is outside"):
            ask(program, [], -1)
        with pytest.raises(FactsError, match=r"a name or an index, not True \(bool\)"):
            ask(program, [], True)
        with pytest.raises(FactsError, match="facts name an atom"):
            ask(program, ["pigeon"], "bird")


@pytest.mark.parametrize("rules", [1, 20, 21, 22])
def test_of_many_blocked_rules_twenty_are_shown_and_the_others_counted(rules: int):
    program = Program.from_rules([("h", [f"b{i}"]) for i in range(rules)])
    lines = str(why_not(program, [], "h")).splitlines()
    shown = [line for line in lines if " needs " in line]
    assert len(shown) == min(rules, 20)
    assert [line for line in lines if "more rules" in line] == (
        [f"└─ … {rules - 20} more rules"] if rules > 20 else []
    )
    assert lines[min(rules, 21)].startswith("└─ ")
    assert all(line.startswith("├─ ") for line in lines[1 : min(rules, 21)])


def test_a_graph_of_a_proof_has_boxes_for_facts_and_ellipses_for_rules():
    program = Program.from_rules([("c", ["a", "b"]), ("b", [])])
    lines = derivation(program, ["a"], "c").to_dot().splitlines()
    shapes = {
        line.split('"')[1].split("\\n")[0]: line.split("shape=")[1].rstrip("];")
        for line in lines
        if "shape=" in line
    }
    assert shapes == {"a": "box", "b": "ellipse", "c": "ellipse"}
    assert sum(" -> " in line for line in lines) == 2


def test_a_graph_of_a_proof_escapes_what_names_and_citations_contain():
    text = '% @rule R1: Art. "6" \\ 7\nb :- a.\nc :- 1 { b; "x\\"y" }.'
    lines = derivation(lg.parse(text), ["a"], "c").to_dot().splitlines()
    nodes = [line for line in lines if "label=" in line]
    node = re.compile(r'  n\d \[label="((?:[^"\\]|\\.)*)", shape=(\w+)\];')
    found = [node.fullmatch(line) for line in nodes]
    assert len(found) == 4
    assert [match and match[2] for match in found] == ["box", "ellipse", "ellipse", "ellipse"]
    assert r"b\nR1: Art. \"6\" \\ 7" in [match and match[1] for match in found]


@pytest.mark.parametrize("rules", [0, 1, 2, 3, 5])
def test_a_negated_atom_of_a_proof_says_why_it_does_not_follow(rules: int):
    text = "ok :- a, not bad. " + " ".join(f"bad :- b{i}." for i in range(rules))
    proof = derivation(lg.parse(text), ["a"], "ok")
    assert proof.holds()
    (leaf,) = proof.absent
    assert leaf.atom == "bad"
    assert len(leaf.blocked) == rules
    if rules == 0:
        assert str(leaf) == "not given, and no rule derives it"
    else:
        assert str(leaf).count(" needs ") == min(rules, 2)
        assert ("more rules" in str(leaf)) == (rules > 2)
        assert rules <= 2 or f"and {rules - 2} more rules" in str(leaf)


def test_the_rules_of_a_proof_through_several_strata_are_those_of_the_program():
    program = lg.parse(
        "b :- a. c :- b. x :- y. d :- c, not x. e :- d, not y. f :- e. g :- z, not f. h :- f."
    )
    proof = derivation(program, ["a"], "h")
    assert proof.holds()
    assert proof.facts == {"a"}
    for step in proof.steps:
        if step.rule is not None:
            rule = program.rules[step.rule]
            assert step.atom in rule.heads
            assert set(step.premises) == rule.body
            assert set(step.negated) == rule.negated
    assert [step.atom for step in proof.steps] == ["a", "b", "c", "d", "e", "f", "h"]
    assert derivation(program, ["a", "y"], "e") is None
    assert derivation(program, ["a", "y"], "x").facts == {"y"}


def test_an_index_and_a_name_ask_a_program_with_negation_the_same():
    program = lg.parse("b :- a, not c. c :- d. e :- b.")
    for atom, name in enumerate(program.atoms):
        assert (derivation(program, ["a"], atom) is None) == (
            derivation(program, ["a"], name) is None
        )
        assert (why_not(program, ["a"], atom) is None) == (
            derivation(program, ["a"], name) is not None
        )


def test_names_stand_in_json_as_they_are():
    program = Program.from_rules([("größe", ["ä"])])
    for answer in (derivation(program, ["ä"], "größe"), why_not(program, [], "größe")):
        assert '"größe"' in answer.to_json()
        assert json.loads(answer.to_json(indent=1)) == answer.to_dict()
