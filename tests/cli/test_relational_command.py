"""`learn --relational`: Popper's files, output, and runs that are interrupted."""

import functools
import json
from pathlib import Path

import pytest

import latentgamma as lg
import relational_tasks as tasks
from latentgamma._checkpoint import finished_pieces
from latentgamma.relational import read_popper
from latentgamma.relational import search as search_module

pytest.importorskip("clingo")

BK = """
:- discontiguous(parent/2).
% a family
parent(ann,bob). parent(bob,cid). parent(bob,'Dan'). /* and */ parent(eve,ann).
older(X,Y) :- parent(X,Y).
last([X],X).
len(X,N) :- N is 3.
"""
EXS = "pos(grand(ann,cid)). pos(grand(ann,'Dan')). pos(grand(eve,bob)). neg(grand(ann,bob))."
BIAS = "head_pred(grand,2). body_pred(parent,2). max_vars(3). max_body(2). type(parent,(p,p))."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bk.pl").write_text(BK)
    (tmp_path / "exs.pl").write_text(EXS)
    (tmp_path / "bias.pl").write_text(BIAS)
    return tmp_path


@pytest.fixture
def learn(cli):
    return functools.partial(cli, "learn", "--relational")


def test_poppers_files_are_read_and_what_is_not_used_is_listed(folder: Path) -> None:
    found = read_popper(folder)
    assert found.background == {
        "parent/2": [("ann", "bob"), ("bob", "cid"), ("bob", "Dan"), ("eve", "ann")]
    }
    assert found.negative == [("grand", "ann", "bob")]
    assert found.options == {
        "recursive": False,
        "max_variables": 3,
        "max_body": 2,
        "target": ["grand/2"],
        "types": {"parent/2": ("p", "p")},
    }
    assert found.unused == [
        "bk.pl: 2 clauses on lists or numbers that no rule needs: last/2, len/2"
    ]


def test_a_folder_without_the_option_is_explained(cli, folder: Path) -> None:
    _, err = cli("learn", folder, code=2)
    assert "add --relational" in err


def test_the_program_is_printed_with_its_evidence(learn, folder: Path) -> None:
    out, err = learn(folder)
    assert out.startswith("grand(X,Y) :- parent(X,Z), parent(Z,Y).  % support 3, needed for 3\n")
    assert "✓ the network" in out
    assert "not used: bk.pl: 2 clauses" in err
    lg.datalog.ground(out, facts={"parent": [("a", "b"), ("b", "c")]})


def test_json_holds_the_same(learn, folder: Path) -> None:
    out, _ = learn(folder, "--json")
    document = json.loads(out)
    assert document["program"] == "grand(X,Y) :- parent(X,Z), parent(Z,Y)."
    assert document["found"] is True
    assert document["certificate"]["holds"] is True
    assert len(document["unused"]) == 1


def test_two_files_and_an_output(learn, folder: Path) -> None:
    facts = folder / "facts.lp"
    facts.write_text("parent(ann,bob). parent(bob,cid). parent(eve,ann).")
    examples = folder / "examples.lp"
    examples.write_text("grand(ann,cid). grand(eve,bob).")
    rules = folder / "rules.lp"
    learn(facts, examples, "-o", rules)
    assert rules.read_text() == "grand(X,Y) :- parent(X,Z), parent(Z,Y).\n"
    assert not list(folder.glob("*.learning"))


def test_no_program_is_exit_code_one(learn, folder: Path) -> None:
    (folder / "exs.pl").write_text("pos(grand(ann,ann)). neg(grand(bob,bob)).")
    out, _ = learn(folder, code=1)
    assert out.startswith("no program was found")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--kind", "closures"], "--kind has no meaning with --relational"),
        (["--known", "x.lp"], "--known has no meaning"),
        (["-o", "rules.json"], "written as Datalog"),
        (["--method", "symbolic"], "auto, search or gradient"),
    ],
)
def test_options_without_a_meaning_are_refused(learn, folder: Path, args, message: str) -> None:
    _, err = learn(folder, *args, code=2)
    assert message in err


def test_relational_options_need_relational(cli, folder: Path) -> None:
    _, err = cli("learn", folder / "bk.pl", "--invent", "1", code=2)
    assert "--invent is only for --relational" in err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bk.pl", "p(", "bk.pl"),
        ("bk.pl", "last([X],X).", "no facts that can be used"),
        ("exs.pl", "neg(grand(ann,bob)).", "no positive example"),
        ("exs.pl", "pos(f([1,2])).", "no positive examples of 'grand"),
        ("exs.pl", "pos(grand(ann,X)).", "is not an example"),
        ("exs.pl", "f(X) :- g(X).", "is not an example"),
    ],
)
def test_files_that_cannot_be_used_are_named(learn, folder, name, text, message) -> None:
    (folder / name).write_text(text)
    _, err = learn(folder, code=2)
    assert message in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_an_interrupted_search_resumes_with_the_same_result(tmp_path: Path, monkeypatch) -> None:
    one = tasks.task("length", 3)
    expected = lg.relational.fit(one.background, one.positive)
    path = tmp_path / "saved"

    def interrupt(step: object) -> None:
        if "2 literals" in step.stage:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lg.relational.fit(one.background, one.positive, checkpoint=path, progress=interrupt)
    assert finished_pieces(path) == 2
    levels = []
    original = search_module.BodySearch.next_level

    def counted(self, *args, **options):
        levels.append(args)
        return original(self, *args, **options)

    monkeypatch.setattr(search_module.BodySearch, "next_level", counted)
    result = lg.relational.fit(one.background, one.positive, checkpoint=path)
    assert result.text == expected.text
    assert len(levels) == len(result.history) - 2
    with pytest.raises(lg.errors.DataError, match="does not fit"):
        lg.relational.fit(one.background, one.positive, checkpoint=path, invent=1)
