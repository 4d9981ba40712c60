"""Ids and citations of rules, and rules without a head, in every format and in proofs."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma import Program, Rule, parse
from latentgamma.datalog.programs import read
from latentgamma.errors import ParseError, ProgramError
from latentgamma.logic import Label
from latentgamma.program.files import SUFFIXES, dumps

names = st.sampled_from(["a", "b", "c", "age < 18", "x y"])
citations = st.text(max_size=8).map(lambda text: " ".join(text.split()))


@st.composite
def labelled(draw: st.DrawFn) -> Program:
    rules = []
    for n in range(draw(st.integers(1, 5))):
        heads = draw(st.lists(st.sampled_from(["h", "g", "b"]), max_size=2, unique=True))
        body = draw(st.frozensets(names, min_size=not heads, max_size=3))
        label = Label(f"R{n}.{draw(st.sampled_from('äxZ'))}", draw(citations))
        rules.append(Rule(tuple(heads), body, label=draw(st.sampled_from([None, label]))))
    return Program.from_rules(rules)


@pytest.mark.slow
@given(labelled())
@settings(max_examples=100, deadline=None)
def test_labels_and_requirements_are_the_same_in_every_format(program: Program) -> None:
    for suffix in SUFFIXES:
        try:
            data = dumps(program, suffix).encode()
        except UnicodeEncodeError:
            continue
        assert read(data, suffix) == program
    assert pickle.loads(pickle.dumps(program)) == program
    assert Program.from_rules(program.rules, program.atoms) == program


def test_a_label_belongs_to_the_next_rule() -> None:
    program = parse("""% @rule R1: Art. 6(1)(a)

        ok, fine :- a,
            not b.  b :- c.
        %@rule R2
        :- ok, b. """)
    assert program.labels == (Label("R1", "Art. 6(1)(a)"), None, Label("R2"))
    assert [label and label.line for label in program.labels] == [3, None, 6]
    assert program.rules[0].label == Label("R1", "Art. 6(1)(a)")
    assert program != Program.from_rules(
        [Rule(rule.heads, rule.body, rule.negated) for rule in program.rules], program.atoms
    )
    assert dict(program.requirements) == {2: ":- b, ok"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("% @rule R1\n", "there is no rule after"),
        ("% @rule\na.", "expected an id"),
        ("% @rule R1, R2\na.", "expected an id"),
        ("% @rule R1\na.\n% @rule R1: again\nb.", "two rules have the id 'R1'"),
        ("a :- % @rule R\n b.", "the line before its rule"),
        ("% @rule R\n#external a.", "the line before its rule"),
        ("% @rule R\n% @rule Q\na.", "the line before its rule"),
        ("p(X) :- q(X). q(1).\n% @rule R\n", "there is no rule after"),
        ("p(X) :- % @rule R\n q(X). q(1).", "the line before its rule"),
        ("q(1).\n% @rule R\n#external p(X) : q(X).", "the line before its rule"),
        ("% @rule R\np(X) :- q(X).\n% @rule R\nq(1).", "two rules have the id"),
    ],
)
def test_wrong_labels(text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        parse(text)


def test_wrong_labels_in_other_formats() -> None:
    for rule in ('{"head": ["a"], "id": "x y"}', '{"head": ["a"], "citation": "c"}'):
        with pytest.raises(ParseError, match=r"rules\[0\]"):
            read(f"[{rule}]".encode(), ".json")
    twice = '[{"head": ["a"], "id": "x"}, {"head": ["b"], "id": "x"}]'
    with pytest.raises(ParseError, match="two rules have the id 'x'"):
        read(twice.encode(), ".json")
    for text in ("p cnf 1 1\nc rule R\nc rule Q\n1 0\n", "p cnf 1 1\n1 0\nc rule R\n"):
        with pytest.raises(ParseError, match="a label stands before its rule"):
            read(text.encode(), ".cnf")
    with pytest.raises(ProgramError, match="two rules have the id"):
        Program.from_rules([Rule(("a",), frozenset(), label=Label("R"))] * 2)
    with pytest.raises(ParseError, match="neither a head nor a body"):
        read(b'[{"head": []}]', ".json")


def test_a_label_belongs_to_the_rule_after_it_alone() -> None:
    text = "a :- b.\n% no label\nc :- a.\n% @rule R: why\nd :- c, e.\n:- d.\nf :- a."
    assert parse(text).labels == (None, None, Label("R", "why"), None, None)


def test_proofs_and_missing_facts_have_labels() -> None:
    program = parse("% @rule R1: Art. 1\na :- b.\n% @rule R2\nc :- a, not d.")
    proof = lg.derivation(program, ["b"], "c")
    assert proof is not None
    assert [step.label and step.label.id for step in proof.steps] == [None, "R1", "R2"]
    assert proof.to_dict()["steps"][1]["citation"] == "Art. 1"
    assert "a  (R1: Art. 1)" in str(proof)
    missing = lg.why_not(program, [], "c")
    assert missing is not None
    assert missing.to_dict()["blocked"][0]["id"] == "R2"
    assert "R2 needs a" in str(missing)
    assert "R1: Art. 1" in lg.derivations(program, ["b"]).table()["by"]
    assert '"label": "R1: Art. 1"' in lg.explore.render(program)


def test_every_instance_of_a_rule_has_its_label() -> None:
    program = parse("""edge(a,b). edge(b,c).
        % @rule P1: base
        path(X,Y) :- edge(X,Y).
        % @rule P2
        path(X,Z) :- edge(X,Y), path(Y,Z).""")
    found = lg.derivations(program, [])
    ids = {step.atom: step.label and step.label.id for step in found.steps}
    assert ids == {
        **{"edge(a,b)": None, "edge(b,c)": None},
        **{"path(a,b)": "P1", "path(b,c)": "P1", "path(a,c)": "P2"},
    }


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("% @rule R\np(X) :- q(X). r(X) :- q(X). q(1).", {"p(1)": ("R", 2)}),
        ("% @rule R\np(1) :- q(1). r(X) :- q(X). q(1).", {"p(1)": ("R", 2)}),
        ("% @rule R\np(X), ä(X) :- q(X). q(1).", {"p(1)": ("R", 2), "ä(1)": ("R", 2)}),
        ("% @rule R\nq(X) =>\np(X). r(X) :- q(X). q(1).", {"p(1)": ("R", 2)}),
        ("q(1..2). % @rule R\np(X) :- X = (1;2), q(X).", {"p(1)": ("R", 2), "p(2)": ("R", 2)}),
        ("q(1). #external e(X) : q(X). [false]\n% @rule R\np(X) :- q(X).", {"p(1)": ("R", 3)}),
        ('q("% @rule R").\np(X) :- q(X).', {}),
        ("%* 1\n% @rule R\n*%\np(X) :- q(X). q(1).", {}),
    ],
)
def test_a_label_in_a_text_with_variables_belongs_to_the_next_rule(
    text: str, labels: dict[str, tuple[str, int]]
) -> None:
    steps = lg.derivations(parse(text), []).steps
    assert {s.atom: (s.label.id, s.label.line) for s in steps if s.label} == labels


def test_a_requirement_is_violated_exactly_when_its_body_holds() -> None:
    program = parse("ok :- a. :- ok, not b. :- c.")
    for facts, violated in (([], set()), (["a"], {":- ok, not b"}), (["a", "b", "c"], {":- c"})):
        known = lg.closure(program, facts).atoms
        assert known & set(program.requirements.values()) == violated


def test_atoms_need_not_name_requirements():
    """The order of the atoms is that of `atoms`; what requirements add to it comes last."""
    program = lg.Program.from_rules([((), ["a"]), ("b", ["a"])], atoms=["b", "a"])
    assert program.atoms[:2] == ("b", "a")
    assert lg.parse(str(program)) == program
    with pytest.raises(lg.LatentGammaError, match="'c'"):
        lg.Program.from_rules([((), ["c"])], atoms=["a"])
