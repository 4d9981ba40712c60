"""The command `decide`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import latentgamma as lg
from latentgamma.cli.main import main

TEXT = "% @rule R1\nok :- age >= 18, not banned."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.lp").write_text(TEXT)
    (tmp_path / "r.csv").write_text("id,age,banned\n1,30,false\n2,x,false\n3,17,\n")
    return tmp_path


def test_every_request_is_decided_and_bad_ones_are_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        [
            "decide",
            "policy.lp",
            "r.csv",
            "--question",
            "ok",
            "--proof",
            "--missing",
            "-o",
            "d.jsonl",
        ]
    )
    assert code == 2
    found = [json.loads(line) for line in (folder / "d.jsonl").read_text().splitlines()]
    decider = lg.Decider(TEXT, "ok")
    expected = decider({"age": 30, "banned": False}).to_dict(proof=True, missing=True)
    assert found[0] == {"request": 0, **expected}
    assert found[1]["error"].startswith("line 3: 'age' is 'x'")
    assert found[2]["answers"] == {"ok": False}
    assert found[2]["missing"]["ok"][0]["text"] == "age >= 18 (age is 17: 1 short)"
    said = capsys.readouterr().err
    assert "line 3: 'age' is 'x'" in said
    assert "2 decisions in d.jsonl (ok: 1 yes)" in said
    assert "1 request of 3 could not be decided" in said


def test_a_row_with_too_many_uncertain_facts_does_not_stop_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [f"f{n}" for n in range(21)]
    (folder / "wide.lp").write_text(f"ok :- {', '.join(facts)}.")
    rows = [facts, ["0.6"] * 21, ["1"] * 21]
    (folder / "wide.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))
    assert main(["decide", "wide.lp", "wide.csv", "--question", "ok"]) == 2
    said = capsys.readouterr()
    bad, good = map(json.loads, said.out.splitlines())
    assert bad["error"].startswith("line 2: the questions depend on 21 uncertain facts")
    assert good["answers"] == {"ok": True}
    assert "1 request of 2 could not be decided" in said.err


def test_without_an_output_the_decisions_are_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "r.jsonl").write_text('{"age": 30, "id": 1}\n' * 2500)
    command = ["decide", "policy.lp", "r.jsonl", "--question", "ok"]
    assert main([*command, "--ignore-unknown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2500
    assert all(json.loads(line)["rules"] == ["R1"] for line in lines)
    assert main([*command, "--stop"]) == 2
    assert "line 1: the request has 'id'" in capsys.readouterr().err
    assert main([*command, "--ignore-unknown", "--json", "-o", "d.jsonl"]) == 0
    assert json.loads(capsys.readouterr().out) == {"requests": 2500, "bad": 0, "output": "d.jsonl"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["policy.lp", "r.csv"], "--question names an atom"),
        (["policy.lp", "r.csv", "--question", "okay"], "'okay' (did you mean 'ok'?)"),
        (["policy.lp", "none.csv", "--question", "ok"], "cannot read 'none.csv'"),
        (["policy.lp", "policy.lp", "--question", "ok"], "requests are read from .csv"),
        (["policy.lp", "r.csv", "--question", "ok", "-o", "r.csv"], "the same file"),
        (["policy.lp", "r.csv", "--question", "ok", "--id", "x"], "r.csv has no column 'x'"),
    ],
)
def test_bad_input(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(["decide", *arguments]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_a_column_names_the_requests(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "r.csv").write_text("who,age,banned\nann,30,no\n007,x,no\n\nbob\n,17,no\n")
    command = ["decide", "policy.lp", "--question", "ok", "--id", "who"]
    assert main([*command, "r.csv"]) == 2
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["request"], r["id"]) for r in records] == [
        (0, "ann"),
        (1, "007"),
        (2, None),
        (3, ""),
    ]
    assert [r.get("answers") for r in records] == [{"ok": True}, None, None, {"ok": False}]
    assert records[0]["digest"] == lg.Decider(TEXT, "ok")({"age": 30, "banned": False}).digest

    # A request that lacks other names may have its id, but nothing else that the rules do not have.
    rows = [
        '{"age": 30, "who": 7}',
        '{"age": 30}',
        '{"age": 30, "who": [1], "x": 1}',
        '{"who": 1.5}',
    ]
    (folder / "r.jsonl").write_text("\n".join(rows))
    assert main([*command, "r.jsonl"]) == 2
    out, said = capsys.readouterr()
    assert [json.loads(line)["id"] for line in out.splitlines()] == [7, None, "[1]", "1.5"]
    assert "line 2: the request has no 'who', its id\n" in said
    assert "line 3: the request has 'x', which is neither" in said
    assert "2 requests of 4 could not be decided" in said


def test_the_id_of_a_parquet_file_may_be_a_column_of_the_rules(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.table({"age": [30, 17], "banned": [False, True], "who": ["ann", None]})
    parquet.write_table(table, "r.parquet")
    for column, ids in (("who", ["ann", None]), ("age", [30, 17])):
        assert main(["decide", "policy.lp", "r.parquet", "--question", "ok", "--id", column]) == 0
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(r["id"], r["answers"]["ok"]) for r in records] == [(ids[0], True), (ids[1], False)]


def test_an_output_appears_whole_or_not_at_all(folder: Path) -> None:
    assert (
        main(["decide", "policy.lp", "r.csv", "--question", "ok", "--stop", "-o", "d.jsonl"]) == 2
    )
    assert not (folder / "d.jsonl").exists()


@pytest.mark.parametrize("mark", ["", "NA", "none", "?", "nan"])
def test_cells_without_a_value_are_read_as_where_rules_are_learned(
    folder: Path, capsys: pytest.CaptureFixture[str], mark: str
) -> None:
    homes, incomes = ["own", "rent", mark] * 60, [20, mark, 40, 50] * 45
    late = [home == mark or income == 20 for home, income in zip(homes, incomes, strict=True)]
    rows = [f"{h},{i},{int(y)}" for h, i, y in zip(homes, incomes, late, strict=True)]
    (folder / "t.csv").write_text("\n".join(["home,income,late", *rows]))
    assert main(["learn", "t.csv", "--label", "late", "-o", "rules.lp"]) == 0
    capsys.readouterr()
    assert main(["decide", "rules.lp", "t.csv", "--question", "late"]) == 0
    found = [json.loads(line)["answers"]["late"] for line in capsys.readouterr().out.splitlines()]
    assert found == late
    # A rule that names such a text means the text.
    (folder / "policy.lp").write_text("ok :- home = none. ok :- home = 'NA'.")
    (folder / "h.csv").write_text("home\nnone\nNA\nNone\nown\n")
    assert main(["decide", "policy.lp", "h.csv", "--question", "ok"]) == 0
    found = [json.loads(line)["answers"]["ok"] for line in capsys.readouterr().out.splitlines()]
    assert found == [True, True, False, False]


@pytest.mark.parametrize("true", ["TRUE", "True", "true"])
def test_truth_values_with_gaps_are_read_as_where_rules_are_learned(
    folder: Path, capsys: pytest.CaptureFixture[str], true: str
) -> None:
    pd = pytest.importorskip("pandas")
    flags = [true, {"TRUE": "FALSE", "True": "False", "true": "false"}[true], ""] * 50
    rows = [f"{flag},{n % 7},{int(flag == true)}" for n, flag in enumerate(flags)]
    (folder / "t.csv").write_text("\n".join(["flag,size,y", *rows]))
    assert main(["learn", "t.csv", "--label", "y", "-o", "rules.lp"]) == 0
    assert (folder / "rules.lp").read_text() == "y :- flag = true.\n"
    capsys.readouterr()
    assert main(["decide", "rules.lp", "t.csv", "--question", "y"]) == 0
    found = [json.loads(line)["answers"]["y"] for line in capsys.readouterr().out.splitlines()]
    assert found == [flag == true for flag in flags]
    frame = pd.read_csv("t.csv")
    assert lg.fit("t.csv", label="y").score(frame[["flag", "size"]], frame["y"]) == 1.0
