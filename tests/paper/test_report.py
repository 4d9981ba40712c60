"""The report: nothing leaves it, everything is in it, and what differs is marked."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from rich.console import Console

import latentgamma as lg
from latentgamma.cli.main import main
from latentgamma.paper import report, validation
from latentgamma.paper.report import tables, verdict
from latentgamma.paper.results import Validation
from small_validation import small

# The results take a quarter of a minute; `test_a_validation_of_one_graph` below is quick.
slow = pytest.mark.slow
VOID = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """A page taken apart: tags opened and closed in order, text and attributes kept."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == [], "tags are left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(one == tag for one, _ in self.tags)


@cache
def page_of_small() -> str:
    return report.render_html(*small())


def terminal(results: Validation, width: int = 132) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    report.render_terminal(results, console, small()[1])
    return console.file.getvalue()  # type: ignore[attr-defined]


# ------------------------------------------------------------------ the page


@slow
def test_the_page_needs_nothing_from_anywhere() -> None:
    text = page_of_small()
    assert not re.search(r"https?:|//[a-z]", text)
    assert "default-src 'none'" in text
    page = Page(text)
    for tag, attributes in page.tags:
        assert "src" not in attributes
        target = attributes.get("href")
        assert target is None or target.startswith(("#", "data:")), f"<{tag}> leaves: {target}"
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_a_validation_of_one_graph() -> None:
    results, timing = validation.run_validation(["g1"], perturbations=1)
    assert results.holds
    assert Validation.from_json(results.to_json()) == results
    page = Page(report.render_html(results, timing))
    for table in tables(results):
        assert table.title in page.text
        assert all(cell.text in page.text for row in table.rows for cell in row)


@slow
def test_every_figure_and_section_is_there() -> None:
    page = Page(page_of_small())
    graphs = 2
    assert page.count("svg") == page.count("figure") == 2 * graphs  # the noise and the leakage
    ids = {attributes.get("id") for _, attributes in page.tags}
    assert ids >= {*"ABCDEFG"}
    for tag, attributes in page.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
    for table in tables(small()[0]):
        assert table.title in page.text
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert all(cell.text in page.text for cell in row)


@slow
def test_the_wall_time_and_the_machine_are_in_the_page_and_not_in_the_results() -> None:
    results, timing = small()
    text = report.render_html(results, replace(timing, wall=123.456, machine="an abacus"))
    assert "123.5 s" in text
    assert "an abacus" in text
    assert f"torch {torch.__version__.partition('+')[0]}" in text
    assert f"latentgamma {lg.__version__}" in text
    assert "123.5 s" not in results.to_json()


@slow
def test_names_are_escaped() -> None:
    results, timing = small()
    text = report.render_html(results, replace(timing, machine="<script>alert(1)</script>"))
    assert "&lt;script&gt;alert" in text
    assert "<script" not in text
    Page(text)


@slow
def test_a_broken_claim_is_shown_as_such() -> None:
    results, timing = small()
    first, *rest = results.expressivity
    worse = replace(results, expressivity=(replace(first, accuracy=0.5), *rest))
    assert not worse.holds
    assert 'class="badge bad"' in report.render_html(worse, timing)
    assert 'class="badge bad"' not in page_of_small()


# ------------------------------------------------------------------ what differs


@slow
def test_every_table_with_a_difference_has_its_reason() -> None:
    results, _ = small()
    text = terminal(results, 2_000)
    for table in tables(results):
        shown = bool(table.differing)
        assert table.reason or not shown
        assert (f'<p class="reason">{report.symbols(table.reason)}</p>' in page_of_small()) is shown
        assert (f"\n≠ {table.reason}\n" in text) is shown
    differing = {table.title.split(":")[0] for table in tables(results) if table.differing}
    assert differing == {
        "The constants", "Bits for all programs of this size (Theorem 8.1)", "Table 3",
        "Predicted and measured critical noise", "Noise on the head logits",
        "Rules with several heads", "Certified windows",
    }  # fmt: skip


@slow
def test_a_cell_is_marked_where_its_two_figures_differ_and_only_there() -> None:
    results, _ = small()
    every = {table.title.split(":")[0]: table for table in tables(results)}
    for title in ("Table 1", "Table 2", "The programs", "Predicted and measured critical noise"):
        for row in every[title].rows:
            for cell in row:
                if pair := re.fullmatch(r"([\d.]+) \(([\d.]+)\)", cell.text):
                    ours, printed = map(float, pair.groups())
                    same = abs(ours - printed) < 1e-3
                    assert cell.differs is not same, cell
    predicted = [row[2] for row in every["Predicted and measured critical noise"].rows]
    assert [cell.text for cell in predicted] == ["3.22 (3.03)", "2.91 (2.86)"]
    assert all(cell.differs for cell in predicted)
    marked = [
        (row[0].text, every["Table 3"].columns[n])
        for row in every["Table 3"].rows
        for n, cell in enumerate(row)
        if cell.differs
    ]
    assert marked == [("3", "G2")]


@slow
def test_a_wrong_model_without_a_sign_change_is_a_difference() -> None:
    results, _ = small()
    rows = list(results.noise)
    at = next(
        i for i, row in enumerate(rows) if (row.logits, row.graph, row.sigma) == ("body", "g2", 2.0)
    )
    for events, differing in (((0, 0, 1), 0), ((0, 1, 0), 1)):
        rows[at] = replace(rows[at], accuracies=(1.0, 1.0, 0.9), events=events)
        means, trials, *_ = [
            table for table in tables(replace(results, noise=tuple(rows))) if table.phase == "C"
        ]
        assert trials.differing == differing
        assert [cell.text for cell in means.rows[2]] == ["2", "1.000 (1.000)", "0.967 (1.000)"]
        assert means.rows[2][2].differs


@slow
def test_late_convergence_is_a_difference_and_the_same_is_none() -> None:
    results, _ = small()
    assert verdict(results, "B").difference == ""
    rows = tuple(replace(row, t_conv=33) for row in results.expressivity)
    changed = verdict(replace(results, expressivity=rows), "B")
    assert changed.difference == "4 figures differ from the paper"


# ------------------------------------------------------------------ the terminal


@slow
def test_the_terminal_shows_every_table_with_the_differences_marked() -> None:
    results, _ = small()
    text = terminal(results)
    every = tables(results)
    for table in every:
        assert table.title in text
    figures = sum(table.differing for table in every)
    assert text.count("≠") == figures + sum(table.differing > 0 for table in every) > 0
    assert "sign changes" in text
    assert "took" in text


@slow
def test_the_terminal_copes_with_a_narrow_window() -> None:
    assert max(map(len, terminal(small()[0], 60).splitlines())) <= 60


@slow
def test_symbols_have_indices_and_exponents_in_the_page() -> None:
    text = page_of_small()
    body = text[text.index("<main>") : text.index("</main>")]
    body = re.sub(r"<svg.*?</svg>|<[^>]*>", "", body.replace("<sub>", "⟨").replace("<sup>", "⟨"), flags=re.DOTALL)  # fmt: skip
    for plain in ("τ_s", "τ_nor", "ρ_max", "T_conv", "σ_η", "e^"):
        assert plain not in body
    assert "τ⟨s" in body
    assert "e⟨−η" in body


# ------------------------------------------------------------------ outcomes


@slow
def test_a_phase_is_not_said_to_agree_and_to_differ_in_one_badge() -> None:
    results, _ = small()
    text = page_of_small()
    badges = re.findall(r'class="badge (\w+)"[^>]*>([^<]+)<', text)
    assert [kind for kind, _ in badges if kind != "note"] == ["good"] * 7
    for kind, words in badges:
        assert ("differ" in words) is (kind == "note")
    marked = sum(table.differing for table in tables(results))
    assert sum(int(words.split()[0]) for kind, words in badges if kind == "note") == marked


@slow
def test_a_program_of_another_size_is_a_failed_claim() -> None:
    results, _ = small()
    first, *rest = results.programs
    outcome = verdict(replace(results, programs=(replace(first, M=first.M + 1), *rest)), "A")
    assert not outcome.holds
    assert outcome.text.startswith("1 of 2")


@slow
def test_a_window_without_an_end_is_shown_as_such() -> None:
    results, _ = small()
    for t_max, certified, text in (
        (None, True, "no end"),
        (77.0, True, "to 77"),
        (None, False, "no"),
    ):
        rows = tuple(replace(row, t_max=t_max, certified=certified) for row in results.multi_head)
        changed = replace(results, multi_head=rows)
        (table,) = (one for one in tables(changed) if one.phase == "F")
        assert {row[5].text for row in table.rows} == {text}


# ------------------------------------------------------------------ files and commands


@slow
def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    results, timing = small()
    files = report.save(results, timing, tmp_path / "new" / "out")
    assert sorted(files) == ["report.html", "results.json", "timing.json"]
    assert report.load(files["results.json"]) == (results, timing)
    assert files["results.json"].read_text() == results.to_json()
    files["timing.json"].unlink()
    assert report.load(files["results.json"]) == (results, None)


@slow
def test_report_draws_the_same_page_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = report.save(*small(), tmp_path)
    before = files["report.html"].read_text()
    files["report.html"].unlink()
    assert main(["report", str(files["results.json"])]) == 0
    assert files["report.html"].read_text() == before
    assert "Table 1" in capsys.readouterr().out
    assert main(["report", str(files["results.json"]), "--json", "--out", str(tmp_path / "x")]) == 0
    assert capsys.readouterr().out == small()[0].to_json()
    assert (tmp_path / "x").read_text() == before


@slow
def test_a_reader_that_leaves_early_is_no_failed_claim(tmp_path: Path) -> None:
    files = report.save(*small(), tmp_path)
    command = [sys.executable, "-m", "latentgamma", "report", str(files["results.json"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_report_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("[]")
    assert main(["report", str(tmp_path / "a.json")]) == 2
    assert "it should come from `latentgamma validate`" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "none.json")]) == 2
    assert "none.json: there is no such file" in capsys.readouterr().err


@slow
def test_validate_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, results = [], small()

    def found(graphs: list[str], **options: object) -> object:
        asked.append((graphs, options["seed"], options["device"]))
        return results

    monkeypatch.setattr("latentgamma.paper.validation.run_validation", found)
    command = ["validate", "--graphs", "G1, g2", "--seed", "3", "--out", str(tmp_path)]
    assert main(command) == 0
    assert asked == [(["g1", "g2"], 3, "cpu")]
    out = capsys.readouterr().out
    assert out.startswith("Running the experiments of the paper on G1, G2.\n")
    assert str(tmp_path / "report.html") in out
    assert (tmp_path / "results.json").read_text() == small()[0].to_json()
    assert main([*command, "--json"]) == 0
    assert capsys.readouterr().out == small()[0].to_json()


def test_validate_answers_bad_input_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--graphs", "g9"], ["--graphs", ","], ["--seed", "-1"], ["--device", "abc"]):
        assert main(["validate", *arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith("latentgamma: ")
        assert error.count("\n") == 1


@slow
def test_validate_exits_1_when_a_claim_does_not_hold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results, timing = small()
    first, *rest = results.edge_cases
    worse = replace(results, edge_cases=(replace(first, jaccard=0.9), *rest))
    monkeypatch.setattr(
        "latentgamma.paper.validation.run_validation", lambda *a, **k: (worse, timing)
    )
    assert main(["validate"]) == 1
    assert "exact" in capsys.readouterr().out
