"""`latentgamma check`: the rows of a table that break requirements."""

import io
import json
from pathlib import Path

import pytest

from latentgamma.cli.main import main


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("pets.txt").write_text(":- cat, dog.\npet :- cat.\n")
    Path("odd.txt").write_text(":- cat, atoms.\n")
    Path("empty.txt").write_text("% none\n")
    Path("pets.cnf").write_text("c 1 cat\nc 2 dog\nc 3 pet\np cnf 3 2\n-1 -2 0\n3 -1 0\n")
    Path("tree.csv").write_text("cat,pet\ndog,pet\n")
    Path("good.csv").write_text("fish,cat,dog,pet\n1,1,0,1\n0,0,1,0\n")
    Path("bad.csv").write_text("cat,dog,pet\n1,1,0\n0,0,1\n")
    return tmp_path


def test_rows_that_break_requirements(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for requirements in ("pets.txt", "pets.cnf"):
        assert main(["check", requirements, "good.csv"]) == 0
        assert capsys.readouterr().out == "0 of 2 rows break 0 of 2 requirements\n"
    assert main(["check", "pets.txt", "bad.csv"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "1 of 2 rows breaks 2 of 2 requirements",
        "  1 row  line 1  :- cat, dog.  (row 0)",
        "  1 row  line 2  pet :- cat.  (row 0)",
        "rows are counted from 0, after the line with the names",
    ]
    assert main(["check", "tree.csv", "bad.csv", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["broken_rows"] == [0]
    assert document["violations"][0] == {"row": 0, "line": 1, "text": "pet :- cat."}


def test_other_columns_are_not_read(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("named.csv").write_text("id,score,cat,dog,pet\nimg1,0.7,1,0,1\nimg2,,1,,1\n")
    assert main(["check", "tree.csv", "named.csv"]) == 2
    assert "row 1 has no value for 'dog'" in capsys.readouterr().err
    Path("named.csv").write_text("id,score,cat,dog,pet\nimg1,0.7,1,0,1\n")
    assert main(["check", "tree.csv", "named.csv"]) == 0


def test_requirements_from_the_standard_input(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b":- cat, dog.")))
    assert main(["check", "-", "bad.csv"]) == 1
    assert "1 of 2 rows breaks 1 of 1 requirement" in capsys.readouterr().out


def test_conflicts_and_redundancy(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "pets.txt"]) == 0
    assert "3 labels, 2 requirements, satisfiable" in capsys.readouterr().out
    Path("bad.txt").write_text("a.\n-a.\n")
    assert main(["check", "bad.txt"]) == 1
    assert "in conflict: line 1  a." in capsys.readouterr().out
    assert main(["check", "bad.txt", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["conflict"][1] == {"line": 2, "text": "-a."}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt", "good.csv"], "cannot read 'none.txt'"),
        (["empty.txt", "good.csv"], "empty.txt: there are no requirements"),
        (["pets.txt", "none.csv"], "none.csv"),
        (["odd.txt", "good.csv"], "requirements name a label not among the labels: 'atoms'"),
        (["pets.txt", "tree.csv"], "expected 0, 1"),
        (["pets.txt", "good.csv", "--format", "x"], "format must be one of"),
        (["good.csv", "bad.csv"], "edges are pairs"),
    ],
)
def test_bad_input_is_one_line(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["check", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
