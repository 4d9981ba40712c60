"""Requirements are read from every format, written back, and errors show the place."""

from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

import latentgamma as lg
from latentgamma import Requirements, parse
from latentgamma.errors import (
    ArgumentError,
    DataError,
    FactsError,
    LatentGammaError,
    ParseError,
    ProgramError,
)
from latentgamma.requirements import readers
from random_requirements import DRIVING, random_requirements, worlds

PETS = ":- cat, dog.\ncat ; dog :- pet.\n-wild :- pet."


@pytest.mark.parametrize("seed", range(30))
def test_text_that_is_written_is_read_back(seed: int) -> None:
    req = random_requirements(np.random.default_rng(seed))
    again = Requirements.from_text(req.to_text(), labels=req.labels)
    assert again == req
    assert hash(again) == hash(req)
    assert again.to_text() == req.to_text()
    assert again.heads.tolist() == req.heads.tolist()


def test_forms_of_text_say_the_same() -> None:
    forms = (
        "a, not c => b",
        "a -> b ; c.",
        "b :- a, not c.",
        "b or not a or c",
        "b ; c :- a",
        "-a ; b ; c.  % comment",
        "b|-a|c",
    )
    found = [Requirements.from_text(form, labels=["a", "b", "c"]) for form in forms]
    assert all(one == found[0] for one in found)


def test_names_with_capitals_and_quotes() -> None:
    req = Requirements.from_text("Ped or not 'Push Obj'\nf(a,b) :- Ped.")
    assert req.labels == ("Ped", "Push Obj", "f(a,b)")
    assert Requirements.from_text(req.to_text()) == req
    odd = ["or", "or(a)", "order", "not", "2 { a; b }", "age < 18", "a.b", "-b", "p(or)"]
    req = Requirements.from_edges([(name, "x") for name in odd])
    assert Requirements.from_text(req.to_text(), labels=req.labels) == req


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a, b :- c.", r":2:2: write ';' between labels"),
        ("a :- ", r":2:6: expected a label, but the line ends"),
        ("a b", r":2:3: expected '.' or the end of the line, but found 'b'"),
        ("Hot drinks :- tea.", r":2:5: .*a label with spaces is written in quotes"),
        ("a, b", r":2:2: write ';' between labels"),
        ("requirements.txt", r":2:14: expected a space after '.'; the name of a file"),
        ("; a", r":2:1: expected a label, but found ';'"),
        ("a :- 'x", r":2:6: this quote is not closed"),
        ("a :- b & c.", r":2:8: expected a label, but found '&'; 'and' is written ','"),
        ("~a ; b.", r":2:1: .* found '~'; a negated label is written '-a' or 'not a'"),
        ("a :- b; c.", r":2:7: .* write one requirement for each body"),
        ("a => b, c", r":2:7: .* found ','\n"),
        ("a/b :- c.", r":2:2: .* letters, digits and _ is in quotes"),
    ],
)
def test_an_error_shows_the_place(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        Requirements.from_text(f"ok :- b.\n{text}")


def test_dimacs_with_names_lines_and_any_signs(tmp_path: Path) -> None:
    text = "c 1 cat\nc 2 dog\np cnf 3 3\n-1 -2 0\nc note\n1 2\n-3 0 3 0\n"
    req = Requirements.from_dimacs(text)
    assert str(req) == ":- cat, dog.\ncat ; dog :- x3.\nx3."
    assert req.lines.tolist() == [4, 6, 7]
    path = tmp_path / "pets.cnf"
    path.write_text(text)
    assert Requirements.from_dimacs(path) == req
    named = Requirements.from_dimacs("p cnf 2 1\n-1 -2 0\n", labels=["cat", "dog"])
    assert str(named) == ":- cat, dog."
    assert Requirements.from_dimacs(f"{text}%\n0\n\n") == req  # as in SATLIB
    with pytest.raises(ParseError, match=":2:1: an empty clause"):
        Requirements.from_dimacs("p cnf 1 1\n0\n")


def test_rules_of_ccn_and_pishield() -> None:
    req = Requirements.from_rules("0.1 5 :- n2 4\n0.2 1 :- 0 \n", labels=7)
    assert str(req) == "5 :- not 2, 4.\n1 :- 0."
    assert len(req.labels) == 7
    assert Requirements.from_pishield("ordering y_1 y_0\ny_0 or not y_1\n").labels == ("y_0", "y_1")
    with pytest.raises(ParseError, match="expected the number of a label, but found 'x4'"):
        Requirements.from_rules("0.1 5 :- n2 x4\n")
    with pytest.raises(ArgumentError, match="label 5, counted from 0, but labels has 2"):
        Requirements.from_rules("0.1 5 :- 1\n", labels=["a", "b"])


def test_hierarchies_from_edges_graphs_files(tmp_path: Path) -> None:
    edges = [("cat", "pet"), ("dog", "pet"), ("pet", "animal")]
    req = Requirements.from_edges(edges)
    assert str(req) == "pet :- cat.\npet :- dog.\nanimal :- pet."
    assert req.labels == ("cat", "pet", "dog", "animal")
    turned = [(b, a) for a, b in edges]
    assert Requirements.from_edges(turned, order="parent child", labels=req.labels) == req
    path = tmp_path / "edges.csv"
    path.write_text("".join(f"{a},{b}\n" for a, b in edges))
    assert Requirements.from_edges(path) == req
    path.write_text("parent,child\n" + "".join(f"{b},{a}\n" for a, b in edges))
    assert Requirements.from_edges(path, labels=req.labels) == req
    assert Requirements.load(path).lines.tolist() == [2, 3, 4]
    assert set(Requirements.from_networkx(nx.DiGraph(edges)).labels) == set(req.labels)
    with pytest.raises(ArgumentError, match="edges are pairs"):
        Requirements.from_edges([("a", "b", "c")])
    with pytest.raises(ArgumentError, match="DiGraph"):
        Requirements.from_networkx(nx.Graph(edges))


def test_obo() -> None:
    text = """format-version: 1.2
[Term]
id: X:1
[Term]
id: X:2
is_a: X:1 ! one
relationship: part_of X:3 ! three
relationship: regulates X:1
[Term]
id: X:3
[Term]
id: X:4
is_a: X:1
is_obsolete: true
[Typedef]
id: part_of
"""
    req = Requirements.from_obo(text)
    assert req.labels == ("X:1", "X:2", "X:3")
    assert str(req) == "'X:1' :- 'X:2'.\n'X:3' :- 'X:2'."
    assert len(Requirements.from_obo(text, relationships=["is_a"])) == 1


def test_arff_trees_and_dags() -> None:
    tree = "@RELATION x\n@ATTRIBUTE class hierarchical 01,01/02,03/04/05\n@DATA\n1\n"
    req = Requirements.from_arff(tree)
    assert req.labels == ("01", "01/02", "03", "03/04", "03/04/05")
    assert str(req) == "01 :- '01/02'.\n03 :- '03/04'.\n'03/04' :- '03/04/05'."
    dag = "@ATTRIBUTE class hierarchical root/a,a/b,root/c,c/b\n"
    req = Requirements.from_arff(dag)
    assert req.labels == ("a", "b", "c")
    assert str(req) == "a :- b.\nc :- b."
    with pytest.raises(ParseError, match="hierarchical"):
        Requirements.from_arff("@ATTRIBUTE class {a,b}\n")


def test_programs() -> None:
    req = Requirements.from_program(lg.parse("a, b :- c, not d. e. :- a, e."))
    assert str(req) == "a :- c, not d.\nb :- c, not d.\ne.\n:- a, e."
    assert req.labels == ("a", "b", "c", "d", "e")


def test_mined_requirements_hold_and_have_support_and_cost() -> None:
    rng = np.random.default_rng(0)
    Y = rng.random((400, 6)) < 0.3
    Y[:, 1] |= Y[:, 0]
    Y[:, 3] &= ~Y[:, 2]
    Y[:, 5] = False
    mined = Requirements.from_labels(Y, list("abcdef"), support=20)
    assert set(str(mined).split("\n")) == {"b :- a.", ":- c, d."}
    assert len(mined.check(Y)) == 0
    assert mined.support is not None
    assert mined.support[0] == Y[:, 0].sum()
    other = Y.copy()
    other[:7, :2] = [True, False]
    costed = Requirements.from_labels(Y, list("abcdef"), support=20, validation=other)
    assert costed.cost is not None
    assert costed.cost.tolist() == [7, 0]
    kept = Requirements.from_labels(Y, list("abcdef"), support=20, validation=other, most_cost=6)
    assert str(kept) == ":- c, d."
    with pytest.raises(ArgumentError, match="validation="):
        Requirements.from_labels(Y, support=20, most_cost=1)


def test_edges_come_from_tables_with_roots_and_other_columns(tmp_path: Path) -> None:
    expected = Requirements.from_edges([("cat", "animal"), ("dog", "animal")])
    rows = {
        "depth": [0, 1, 1],
        "Parent": ["", "animal", "animal"],
        "Child": ["animal", "cat", "dog"],
    }
    path = tmp_path / "tree.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    frame = pd.DataFrame(rows).replace("", np.nan)
    pyarrow = pytest.importorskip("pyarrow")
    for edges in (path, frame, pyarrow.table(rows), pyarrow.RecordBatch.from_pandas(frame)):
        found = Requirements.from_edges(edges, labels=expected.labels)
        assert found == expected
    assert Requirements.from_edges([("animal", None), ("cat", "animal")]).labels == (
        "animal",
        "cat",
    )
    # Only tables have headers: these are labels.
    assert str(Requirements.from_edges([("child", "parent")])) == "parent :- child."
    for bad in (["ab", "cd"], [("a", "b", "c")], 3, {"a": "b"}, [(None, "a")]):
        with pytest.raises(ArgumentError, match="edges are pairs of names"):
            Requirements.from_edges(bad)
    path.write_text("child,parent\n\ncat,animal,x\n")
    with pytest.raises(ArgumentError, match=r"line 3 of .*tree.csv is \['cat', 'animal', 'x'\]"):
        Requirements.from_edges(path)


PIECES = [
    *["a", "b", "c", ":-", ";", ",", "-", "not", "or", "and", "=>", ".", "%x", "#", "'", '"', "(", ")", "1", "y_0", "n2", "0", "é", "{", "}", "|", "&", "~", "!", "1000000"],
    "\n", "p cnf 3 2\n", "c 1 a\n", "[Term]\n", "id: X\n", "is_a: Y\n", "\t", "\x00", " or ",
    "@ATTRIBUTE class hierarchical a/b,c\n", "@DATA\n",
]  # fmt: skip


@pytest.mark.parametrize("form", ["text", "dimacs", "rules", "pishield", "obo", "arff", "edges"])
def test_whatever_is_in_a_file_it_is_read_or_refused(form: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        chosen = rng.choice(PIECES, size=int(rng.integers(1, 12)))
        text = str(rng.choice(["", " "])).join(chosen) + "\n"
        try:
            found = getattr(Requirements, f"from_{form}")(text)
        except LatentGammaError:
            continue
        assert Requirements.from_text(found.to_text(), labels=found.labels) == found


def test_progress_of_mining_and_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    Y = np.random.default_rng(0).random((100, 4)) < 0.3
    Y[:, 1] |= Y[:, 0]
    at_once = Requirements.from_labels(Y, support=5)
    monkeypatch.setattr(readers, "_MINED_AT_ONCE", 30)
    calls: list[tuple[str, int, int]] = []
    mined = Requirements.from_labels(Y, support=5, progress=lambda *call: calls.append(call))
    assert mined == at_once
    assert mined.support is not None
    assert at_once.support is not None
    assert mined.support.tolist() == at_once.support.tolist()
    assert [done for _, done, _ in calls] == [30, 60, 90, 100]
    calls.clear()
    mined.layer(method="exact", progress=lambda *call: calls.append(call))
    assert calls
    assert all(done <= total for _, done, total in calls)


@pytest.mark.parametrize("seed", range(20))
def test_check_lists_every_violation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    req = random_requirements(rng)
    Y = rng.random((int(rng.integers(0, 150)), len(req.labels))) < 0.5
    expected = [
        (row, c)
        for row in range(len(Y))
        for c in range(len(req))
        if not any(Y[row, x] if x >= 0 else not Y[row, ~x] for x in req.clause(c).tolist())
    ]
    found = req.check(Y)
    assert [tuple(pair) for pair in found.pairs.tolist()] == expected
    assert found.per_requirement.sum() == len(expected)
    assert found.broken_rows.tolist() == sorted({row for row, _ in expected})


def test_requirements_are_chosen_by_number_or_by_truth_values() -> None:
    req = Requirements.from_text("a :- b.\nb :- c.\nc :- d.")
    assert str(req.subset([2, 0])) == "c :- d.\na :- b."
    for chosen in ([True, False, True], np.array([True, False, True])):
        assert str(req.subset(chosen)) == "a :- b.\nc :- d."
    assert len(req.subset([])) == 0
    with pytest.raises(IndexError):
        req.subset([3])


def test_a_program_with_counts_is_not_made_of_clauses() -> None:
    with pytest.raises(ProgramError, match=r"no counts: 2 \{ a; b; c \}; write a clause for each"):
        Requirements.from_program(parse("d :- c. :- 2 { a; b; c }."))


def test_check_takes_frames_in_any_order_and_refuses_scores() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    req = Requirements.from_text(PETS)
    frame = pd.DataFrame({"fish": ["x"], "wild": [1], "pet": [1], "dog": [0], "cat": [1]})
    for table in (frame, pyarrow.Table.from_pandas(frame)):
        assert [req[c] for c in req.check(table).pairs[:, 1]] == ["-wild :- pet."]
    with pytest.raises(DataError, match=r"0 and 1 only, but row 0 has 0\.3 for 'cat'"):
        req.check([[0.3, 0, 0, 0]])
    assert len(req.check(torch.tensor([[1, 1, 1, 0]], dtype=torch.bfloat16))) == 1
    with pytest.raises(DataError, match="3 columns, but there are 4 labels"):
        req.check([[0, 0, 0]])
    with pytest.raises(FactsError, match=r"'wild'.* \(line 3 of <text>\)"):
        req.check(frame.drop(columns="wild"))


def test_report_of_conflicts_redundancy_and_fixed_labels() -> None:
    bad = Requirements.from_text("a.\nc :- a.\n-a :- b.\nb.").report()
    assert not bad.satisfiable
    assert bad.conflict == (0, 2, 3)
    good = Requirements.from_text("a :- b.\nb :- c.\na :- c.\n:- d.", labels=list("abcde")).report()
    assert good.redundant == (2,)
    assert good.always_false == ("d",)
    assert good.free == ("e",)
    assert Requirements.from_text(DRIVING).report().satisfiable
    with pytest.raises(ProgramError, match=r"line 1  a\., line 3  -a :- b\., line 4  b\."):
        Requirements.from_text("a.\nc :- a.\n-a :- b.\nb.").layer()


def test_mistakes_in_arguments() -> None:
    for read in (Requirements.load, Requirements.from_dimacs, Requirements.from_obo):
        with pytest.raises(ArgumentError, match="path"):
            read(5)  # type: ignore[arg-type]
    with pytest.raises(ParseError, match=":3:1: expected a term after 'is_a:'"):
        Requirements.from_obo("[Term]\nid: a\nis_a: ! nothing\n")
    with pytest.raises(ProgramError, match="cannot read"):
        Requirements.from_dimacs("no_such_file.cnf")
    with pytest.raises(ArgumentError, match="'a' twice"):
        Requirements.from_text("a :- b.", labels=["a", "b", "a"])
    with pytest.raises(ArgumentError, match="sequence of names"):
        Requirements.from_text("a :- b.").layer("ab")
    with pytest.raises(IndexError, match="requirement 3 of 1"):
        Requirements.from_text("a :- b.")[3]


@pytest.mark.parametrize("seed", range(25))
def test_reports_are_true_of_all_models(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    req = random_requirements(np.random.default_rng(seed), 6)
    models, found = worlds(req), req.report()
    assert found.satisfiable == (len(models) > 0)
    if found.conflict:
        assert len(worlds(req.subset(found.conflict))) == 0
        smaller = [found.conflict[:k] + found.conflict[k + 1 :] for k in range(len(found.conflict))]
        assert all(len(worlds(req.subset(chosen))) for chosen in smaller)
        return
    for names, value in ((found.always_true, 1), (found.always_false, 0)):
        same = [req.labels[i] for i in range(len(req.labels)) if (models[:, i] == value).all()]
        assert [name for name in same if name not in found.free] == list(names)
    kept = [c for c in range(len(req)) if c not in found.redundant]
    assert torch.equal(worlds(req.subset(kept)), models)
    for c in kept:
        assert len(worlds(req.subset([k for k in kept if k != c]))) > len(models)
    monkeypatch.setattr("latentgamma.requirements.report._MOST_COMPARED", 0)
    quick = [c for c in range(len(req)) if c not in req.report().redundant]
    assert torch.equal(worlds(req.subset(quick)), models)
