"""The page of figures is made from the committed results, and every benchmark is on it."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
TABLES = ROOT / "docs" / "benchmarks"


@pytest.fixture
def write_docs(benchmarks):
    import write_docs as module

    return module


def names() -> list[str]:
    """The names in run.py, read without running it."""
    tree = ast.parse((BENCHMARKS / "run.py").read_text(encoding="utf-8"))
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "BENCHMARKS"
    )
    return list(ast.literal_eval(table))


def test_the_pages_are_what_the_results_make(write_docs) -> None:
    assert PAGE.read_text(encoding="utf-8") == write_docs.page()
    written = {path.stem: path.read_text(encoding="utf-8") for path in TABLES.glob("*.md")}
    assert written == write_docs.table_pages()


def test_another_result_makes_another_page(write_docs, tmp_path: Path) -> None:
    for path in (BENCHMARKS / "results").glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        if path.stem == "load":
            (row,) = (row for row in found["rows"] if row["name"] == "latentgamma load, words")
            row["seconds"] = 123.456
        (tmp_path / path.name).write_text(json.dumps(found), encoding="utf-8")
    assert "123.5" in write_docs.table_pages(tmp_path)["load"]
    assert "123 s" in write_docs.page(tmp_path)
    assert "123 s" not in write_docs.page()


def test_the_readme_shows_figures_of_the_page_with_losses_among_them() -> None:
    faster, slower = PAGE.read_text(encoding="utf-8").split("## Slower")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.split("## Measured")[1].split("\n\n")[1]
    rows = table.splitlines()[2:]
    assert len(rows) <= 8
    assert [row for row in rows if row not in faster and row not in slower] == []
    assert sum(row in faster for row in rows) >= 3
    assert sum(row in slower for row in rows) >= 3


def test_every_benchmark_has_a_page_and_every_result_has_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in names() if f"](benchmarks/{name}.md)" not in page] == []
    assert {path.stem for path in (BENCHMARKS / "results").glob("*.json")} <= set(names())


def test_every_benchmark_is_listed_for_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in names() if f"`{name}`" not in text] == []


def test_the_pictures_on_the_page_are_all_there_and_no_others() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [
        re.findall(r"pictures/([\w-]+\.svg)", page.read_text(encoding="utf-8")) for page in pages
    ]
    shown = {name for names in found for name in names}
    assert shown == {path.name for path in (ROOT / "docs" / "pictures").glob("*.svg")}


def test_a_table_keeps_every_row_and_drops_empty_columns(write_docs) -> None:
    rows = [
        {"job": "chain", "who": "a", "seconds": 1.0, "failed": ""},
        {"job": "chain", "who": "b", "seconds": None, "failed": "", "right": True},
    ]
    assert write_docs.tables(rows).splitlines() == [
        "| job | who | seconds | right |",
        "|---|---|---|---|",
        "| chain | a | 1 |  |",
        "| chain | b |  | True |",
    ]


def test_a_size_at_which_dense_wins_is_named(write_docs) -> None:
    row = {"who": "dense model", "batch": 1}
    rows = [row | {"size": 10, "times": 0.5}, row | {"size": 100, "times": 7.0}]
    (said,) = write_docs.about_sweep(rows)
    assert "wins at M = R = 10 for 1 example;" in said
    assert "at 100 it takes 7 times" in said


def test_peers_are_pinned() -> None:
    lines = (BENCHMARKS / "peers.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in wanted)
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    ours = {line.split("==")[0] for line in pinned}
    assert [line for line in wanted if line.split("==")[0] in ours and line not in pinned] == []


@pytest.fixture
def peers(write_docs, monkeypatch):
    import peers as module

    monkeypatch.setattr(module, "PYTHON", Path(sys.executable))  # not the environment of the peers
    return module


@pytest.mark.slow
def test_whatever_becomes_of_a_peer_it_has_a_row(peers, tmp_path: Path) -> None:
    expected = peers.write_jobs(tmp_path, sets=3)["chain"]
    path, who = tmp_path / "chain.npz", {who.name: who for who in peers.CONTENDERS}
    answered = peers.compared(who["closures, first calls"], path, expected, 60)
    assert answered["right"] is True
    assert answered["seconds"] > 0
    wrong = peers.compared(who["closures, first calls"], path, ~expected, 60)
    assert wrong["right"] is False
    late = peers.compared(who["closures, first calls"], path, expected, 0.01)
    assert late["failed"] == "not done within 0 s"
    stranger = peers.Contender("nobody", lambda job: None, "engine", "no-such-package", "")
    missing = peers.compared(stranger, path, expected, 60)
    assert missing["failed"].startswith("exit code 1")
    assert list(answered) == list(wrong) == list(late) == list(missing)
