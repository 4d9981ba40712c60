"""Rules with variables on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import latentgamma as lg
from latentgamma.cli.main import main

POLICY = """\
can(U,A) :- role(U,R), grant(R,A), not denied(U,A).
role(U,R) :- member(U,R).
role(U,R) :- role(U,S), includes(S,R).
denied(U,A) :- suspended(U), grant(R,A).
includes(admin,reader).
grant(reader,read). grant(admin,"delete all").
#external suspended(U) : member(U,R).
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("policy.lp").write_text(POLICY)
    Path("members.csv").write_text("ann,admin\nbob,reader\n")
    Path("paths.lp").write_text("path(X,Y) :- edge(X,Y).\npath(X,Z) :- edge(X,Y), path(Y,Z).\n")
    Path("edges.csv").write_text("to,from\nb,a\nc,b\n")
    return tmp_path


MEMBERS = ["--facts-table", "member=members.csv"]
EDGES = ["--facts-table", "edge(from,to)=edges.csv"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_closure(files: Path, capsys) -> None:
    code, out, err = run(capsys, "closure", "paths.lp", *EDGES, "--show", "path/2")
    assert (code, out, err) == (0, "path(a,b)\npath(b,c)\npath(a,c)\n", "")
    code, out, _ = run(capsys, "closure", "paths.lp", *EDGES, "--show", "path/2", "--csv", "-")
    assert (code, out) == (0, "a,b\nb,c\na,c\n")
    code, out, _ = run(capsys, "closure", "policy.lp", *MEMBERS, "--csv", "all.csv")
    assert code == 0
    assert "can,ann,delete all\n" in Path("all.csv").read_text()
    code, out, _ = run(
        capsys, "closure", "paths.lp", *EDGES, "--open", "edge/2", "--facts", "edge(a,b)", "--json"
    )
    assert json.loads(out)["atoms"] == ["path(a,b)", "edge(a,b)"]
    code, out, _ = run(capsys, "closure", "paths.lp", *EDGES, "--show", "path/2", "--levels")
    assert "\tpath(a,c)" in out
    assert "edge" not in out


def test_what_the_rules_show_is_shown(files: Path, capsys) -> None:
    Path("paths.lp").write_text(Path("paths.lp").read_text() + "#show path/2.\n")
    assert run(capsys, "closure", "paths.lp", *EDGES)[1] == "path(a,b)\npath(b,c)\npath(a,c)\n"


def test_explain(files: Path, capsys) -> None:
    code, out, _ = run(capsys, "explain", "policy.lp", "can(ann,read)", *MEMBERS)
    assert code == 0
    assert out.startswith("can(ann,read)  by line 1 with A=read, R=reader, U=ann\n")
    assert "not denied(ann,read)  (line 4 with A=read, R=reader, U=ann needs suspended(ann))" in out
    arguments = ["explain", "policy.lp", "can(bob,read)", *MEMBERS, "--facts", "suspended(bob)"]
    code, out, _ = run(capsys, *arguments)
    assert code == 1
    assert "it would without suspended(bob)" in out
    code, out, _ = run(capsys, *arguments, "--json")
    assert json.loads(out)["withdrawn"] == ["suspended(bob)"]
    code, out, _ = run(capsys, "explain", "policy.lp", 'can(bob,"delete all")', *MEMBERS)
    assert code == 1
    assert "no instance of line 1 derives it" in out


def test_certify_and_run(files: Path, capsys) -> None:
    code, out, _ = run(capsys, "certify", "policy.lp", *MEMBERS)
    assert code == 0
    assert "✓ exact from step 1 to step" in out
    code, out, _ = run(capsys, "certify", "policy.lp", *MEMBERS, "--json", "--horizon", "5000")
    found = json.loads(out)
    assert (found["holds"], found["strata"], len(found["constants"])) == (True, 2, 2)
    code, out, _ = run(capsys, "certify", "policy.lp", *MEMBERS, "--constants", "paper")
    assert code == 0
    code, out, _ = run(capsys, "run", "policy.lp", *MEMBERS, "--steps", "4", "--json")
    found = json.loads(out)
    assert found["agrees"]
    assert found["crossing"]["can(bob,read)"] == 1
    code, _, err = run(capsys, "run", "policy.lp", *MEMBERS, "--steps", "4", "--gradient", "exact")
    assert code == 2
    assert "--gradient takes a definite program" in err
    code, _, err = run(capsys, "run", "policy.lp", *MEMBERS, "--steps", "2001")
    assert code == 2
    assert "a model with negation runs at most 2,000 steps" in err
    assert run(capsys, "run", "paths.lp", *EDGES, "--steps", "3")[0] == 0
    assert run(capsys, "certify", "paths.lp", *EDGES, "--open", "edge/2")[0] == 0


@pytest.mark.slow
def test_a_saved_model_with_negation_is_certified_run_and_shown(files: Path, capsys) -> None:
    assert run(capsys, "ground", "policy.lp", *MEMBERS, "-o", "ground.lp")[0] == 0
    program = lg.load("ground.lp")
    lg.oracle(program).save("model.safetensors")
    saved = ["--model", "model.safetensors"]
    code, out, _ = run(capsys, "certify", "ground.lp", *saved, "--json", "--plot", "window.svg")
    found = json.loads(out)
    assert (code, found["holds"], found["strata"], found["constants"]) == (0, True, 2, None)
    results = []
    for options in ([], saved):
        arguments = ["run", "ground.lp", "--steps", "3", "--facts", "suspended(ann)"]
        code, out, _ = run(capsys, *arguments, *options, "--json", "--plot", "run.svg")
        assert code == 0
        results.append(json.loads(out))
    assert results[0] == results[1]
    assert results[0]["agrees"]
    assert Path("window.svg").exists()
    assert Path("run.svg").exists()
    assert run(capsys, "explore", "ground.lp", *saved, "--export", "page.html")[0] == 0
    assert "are equivalent to the program in each stratum" in Path("page.html").read_text()
    # Other rules over the same atoms.
    other = [rule for rule in program.rules if not rule.negated]
    lg.save(lg.Program.from_rules(other, atoms=program.atoms), "other.lp")
    code, out, _ = run(capsys, "certify", "other.lp", *saved)
    assert code == 1
    assert "is not shown to implement this program" in out


def test_ground(files: Path, capsys) -> None:
    code, out, _ = run(capsys, "ground", "paths.lp", *EDGES, "--open", "edge/2")
    assert code == 0
    assert lg.parse(out) == lg.datalog.ground(
        "paths.lp", open="edge/2", facts={"edge(from,to)": "edges.csv"}
    )
    code, out, _ = run(capsys, "ground", "policy.lp", *MEMBERS, "-o", "out.lp", "--json")
    found = json.loads(out)
    assert found["inputs"] == ["suspended(ann)", "suspended(bob)"]
    assert not lg.load("out.lp").definite
    assert run(capsys, "closure", "out.lp", "--facts", "suspended(ann)")[0] == 0
    assert run(capsys, "convert", "out.lp", "out.json")[0] == 0
    assert lg.load("out.json") == lg.load("out.lp")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["ground", "paths.lp", "--facts-table", "edge"], "--facts-table takes P=FILE"),
        (["ground", "paths.lp", *EDGES, *EDGES], "two tables for 'edge(from,to)'"),
        (["ground", "paths.lp", "--facts-table", "edge=none.csv"], "there is no such file"),
        (["ground", "paths.lp", "--facts-table", "edge(x,y)=edges.csv"], "has no column 'x', 'y'"),
        (["ground", "paths.lp", "--open", "edge"], "such as 'edge/2', not 'edge'"),
        (["ground", "paths.lp", *EDGES, "--max-rules", "2"], "--max-rules 2"),
        (["ground", "paths.lp", *EDGES, "-o", "edges.csv"], "are the same file"),
        (["closure", "paths.lp", *EDGES, "--show", "road/2"], "no atom of road/2"),
        (["convert", "policy.lp", "out.cnf", *MEMBERS], "DIMACS has no negation"),
        (["ground", "edges.csv"], "format of 'edges.csv' is not known"),
    ],
)
def test_bad_input(files: Path, capsys, arguments: list[str], problem: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert problem in err


@pytest.mark.parametrize("command", ["certify", "decide", "explore"])
def test_errors_name_only_options_that_the_command_has(
    files: Path, capsys, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("latentgamma.datalog.grounding.MAX_RULES", 1000)
    Path("endless.lp").write_text("n(0). n(X+1) :- n(X).")
    others = ["r.csv", "--question", "n(1)"] if command == "decide" else []
    code, _, err = run(capsys, command, "endless.lp", *others, "--open", "m/1")
    assert code == 2
    assert "max_rules=1,000" in err
    assert "--max-rules" not in err
    assert "raise the limit of lg.datalog.ground or 'latentgamma ground'" in err
    assert "stopped by --max-rules 1,000" in run(capsys, "ground", "endless.lp")[2]


def test_warnings_are_shown(files: Path, capsys) -> None:
    code, _, err = run(capsys, "closure", "paths.lp")
    assert code == 0
    assert "latentgamma: warning: paths.lp:1:14: 'edge(X,Y)' never holds" in err
    assert "facts from a table: --facts-table P=FILE" in err


def test_standard_input(files: Path, capsys, monkeypatch) -> None:
    import io
    import sys

    class Input:
        buffer = io.BytesIO(b"edge(a,b). path(X,Y) :- edge(X,Y).")

    monkeypatch.setattr(sys, "stdin", Input())
    assert run(capsys, "closure", "-", "--show", "path/2")[1] == "path(a,b)\n"


def test_the_format_of_rules_to_be_grounded_may_be_given(files: Path, capsys, monkeypatch) -> None:
    import gzip
    import io
    import sys

    data = Path("paths.lp").read_bytes()
    Path("paths.txt").write_bytes(data)
    _, expected, _ = run(capsys, "ground", "paths.lp", *EDGES)
    assert run(capsys, "ground", "paths.txt", "--format", "lp", *EDGES) == (0, expected, "")

    class Input:
        buffer = io.BytesIO(gzip.compress(data))

    monkeypatch.setattr(sys, "stdin", Input())
    assert run(capsys, "ground", "-", *EDGES) == (0, expected, "")
