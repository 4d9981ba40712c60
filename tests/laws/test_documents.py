"""What the documents show is what happens: every Python block and example runs."""

import doctest
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import latentgamma as lg
import small_validation
from latentgamma.cli.arguments import new_parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
#: Pages and examples that take more than a second.
SLOW = {
    "relational.md",
    "coming_from.md",
    "probability.md",
    "tables.md",
    "certify.md",
    "training.md",
}
SLOW |= {"digit_sums.py", "train_through_rules.py"}
SLOW |= {page.name for page in (ROOT / "docs" / "tutorials").glob("*.md")}
#: Examples that need a package beside those of the tests.
MORE_PACKAGES = {"huggingface_trainer.py": "transformers", "lightning_labels.py": "lightning"}
SLOW |= MORE_PACKAGES.keys()
#: Pages whose figures are of trained networks, which differ by machine.
TRAINED = {"labels.md", "research.md", "training.md"}
RUN_VALIDATION, ROBUSTNESS = lg.paper.validation.run_validation, lg.paper.validation.robustness


def with_slow(paths: list[Path]) -> list[Any]:
    """The paths, with those marked that take longer."""
    return [pytest.param(p, marks=pytest.mark.slow) if p.name in SLOW else p for p in paths]


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page with the line each one starts at."""
    text = page.read_text(encoding="utf-8")
    return [
        (text[: found.start(1)].count("\n"), found.group(1))
        for found in re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    ]


@pytest.mark.parametrize(
    "page", with_slow([page for page in PAGES if python_blocks(page)]), ids=lambda page: page.name
)
def test_the_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": page.stem}
    for line, block in python_blocks(page):
        # Blank lines in front, so that a failure points at the line of the page.
        exec(compile("\n" * line + block, str(page), "exec"), scope)
    printed, text = capsys.readouterr().out, page.read_text("utf-8")
    if page.name in TRAINED:
        printed, text = (re.sub(r"\d[\d,.]*", "0", one) for one in (printed, text))
    lines = [line.strip() for line in printed.splitlines()]
    shown = [line.strip().rstrip("…") for line in outputs(text)]
    assert [s for s in shown if not any(line.startswith(s) for line in lines)] == []


def outputs(text: str) -> list[str]:
    """The lines that a page shows as printed: a fence without a language right after Python."""
    fences = list(re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    return [
        line
        for before, after in pairwise(fences)
        if before[1] == "python" and not after[1]
        if text[before.end() : after.start()] == "\n\n"
        for line in after[2].splitlines()
    ]


def test_what_is_shown_after_a_block_counts_as_its_output() -> None:
    page = "```python\nprint(1)\n```\n\n```\n1\n```\n\nText.\n\n```\nnot printed\n```\n"
    assert outputs(page) == ["1"]
    assert outputs((ROOT / "docs" / "decisions.md").read_text("utf-8"))


def test_there_is_code_to_run() -> None:
    assert python_blocks(ROOT / "README.md")
    assert python_blocks(ROOT / "docs" / "paper.md")


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and mkdocs make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_and_files_on_the_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`lg((?:\.\w+)+)", text):
        attrgetter(name[1:])(lg)
    for path in re.findall(r"`([\w/]+/\w+\.py)`", text):
        assert (ROOT / path).exists() or (ROOT / "src" / "latentgamma" / path).exists(), path


def commands() -> list[tuple[str, str]]:
    """Every call of the command line in a shell block, with its page."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page.name, line) for line in lines if line.startswith("latentgamma ")]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_on_the_pages_have_arguments_that_exist(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    assert new_parser().parse_args(words[1:]).run


def test_every_command_is_on_the_page_of_commands() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    (choices,) = (a.choices for a in new_parser()._actions if a.dest == "==SUPPRESS==" or a.choices)
    assert [name for name in choices if f"| `latentgamma {name}" not in text] == []


def test_every_public_name_is_in_the_reference() -> None:
    pages = (ROOT / "docs" / "reference").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"^::: latentgamma\.(\w+)", text, re.MULTILINE))
    errors = {name for name in lg.__all__ if name.endswith("Error")}  # all on one page
    assert named >= set(lg.__all__) - errors


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert [str(p) for p in pages if p.parts[0] != "benchmarks" and f": {p}\n" not in text] == []


def build_documentation(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """The command of `make docs`, with more options."""
    pytest.importorskip("mkdocs", reason="the documentation is built with the extra 'docs'")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (build,) = re.findall(r"/mkdocs (build.*)", makefile)
    command = [sys.executable, "-m", "mkdocs", *shlex.split(build), *options]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # fmt: skip


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("[a page](other.md#title), [an anchor](#start)", True),
        ("[no page](missing.md)", False),
        ("[no anchor](other.md#missing)", False),
        ("[no anchor here](#missing)", False),
        ("[outside the pages](../examples/access_control.py)", False),
        ("![no picture](missing.svg)", False),
    ],
)
def test_a_dead_link_makes_the_build_fail(tmp_path: Path, text: str, correct: bool) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{text}\n")
    (tmp_path / "docs" / "other.md").write_text("# Title\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nplugins: []\nnav: [index.md, other.md]\n"
    )
    done = build_documentation("-f", config, "-d", tmp_path / "site")
    assert (done.returncode == 0) == correct, done.stdout + done.stderr


@pytest.mark.slow
def test_the_documentation_is_built_without_a_warning_and_loads_nothing(tmp_path: Path) -> None:
    done = build_documentation("-d", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    loading = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"?https?:|<link[^>]*stylesheet[^>]*https?:"
    )
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not loading.search(text), page.name
        assert "fonts.g" not in text
    text = (tmp_path / "reference" / "logic.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in text  # a doctest is code, not a quotation


#: The modules whose `__all__` is public, with the names they are used by.
PUBLIC = {"lg": lg} | {
    name: getattr(lg, name) for name in lg.__all__ if inspect.ismodule(getattr(lg, name))
}


def exported(is_kind: Callable[[object], bool]) -> dict[str, object]:
    """The exported objects of one kind, by name; `relational` and `distributed` are left out."""
    return {
        f"{where}.{name}": getattr(module, name)
        for where, module in PUBLIC.items()
        if where not in {"relational", "distributed"}
        for name in module.__all__
        if is_kind(getattr(module, name))
    }


def missing_sections(function: Callable[..., object]) -> list[str]:
    """What the docstring of a function should have and does not."""
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    wanted = {
        "Args:": bool(signature.parameters),
        "Returns:": signature.return_annotation not in {None, "None"}
        and not text.startswith("Return "),
        ">>>": True,
    }
    return [section for section, needed in wanted.items() if needed and section not in text]


@pytest.mark.parametrize(("name", "function"), exported(inspect.isfunction).items())
def test_an_exported_function_is_documented(name: str, function: Callable[..., object]) -> None:
    assert missing_sections(function) == [], name
    described = re.findall(r"^    \*{0,2}(\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
    assert set(inspect.signature(function).parameters) <= set(described), name


def test_a_missing_section_is_seen() -> None:
    def undocumented(one: int) -> int:
        """The number."""
        return one

    assert missing_sections(undocumented) == ["Args:", "Returns:", ">>>"]
    assert len(exported(inspect.isfunction)) > 50


def is_class_with_example(found: object) -> bool:
    return inspect.isclass(found) and not issubclass(found, Exception)


@pytest.mark.parametrize(("name", "found"), exported(is_class_with_example).items())
def test_an_exported_class_has_an_example(name: str, found: type) -> None:
    assert ">>>" in (found.__doc__ or ""), name


@pytest.mark.slow
def test_examples_that_take_long_are_right(tmp_path: Path, monkeypatch) -> None:
    results, timing = small_validation.small()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lg.paper.validation, "run_validation", lambda graphs: (results, timing))
    monkeypatch.setattr(lg.paper.validation, "robustness", lambda setup: results.noise)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    for found in (RUN_VALIDATION, ROBUSTNESS, lg.paper.validation.Validation, lg.paper.validation.Timing,
                  lg.paper.report.save, lg.paper.report.load, lg.paper.report.render_html):  # fmt: skip
        (test,) = finder.find(found, found.__name__)
        for line in test.examples:
            line.options.pop(doctest.SKIP, None)
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries >= 18  # every line, none skipped


@pytest.mark.parametrize("example", with_slow(EXAMPLES), ids=lambda path: path.name)
def test_the_example_runs(example: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    if example.name not in MORE_PACKAGES:
        runpy.run_path(str(example), run_name="__main__")
    elif find_spec(MORE_PACKAGES[example.name]) is None:
        pytest.skip(f"needs {MORE_PACKAGES[example.name]}")
    else:  # in its own process: transformers would import benchmarks/datasets.py here
        subprocess.run([sys.executable, example], check=True)


@pytest.mark.slow
def test_the_notebook_runs_with_fewer_steps(tmp_path: Path, monkeypatch) -> None:
    notebook = json.loads((ROOT / "examples" / "concepts.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    text = "\n".join(cells)
    assert text.count("STEPS = 3000\n") == 1
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")  # figures of other tests
    exec(compile(text.replace("STEPS = 3000", "STEPS = 40"), "concepts.ipynb", "exec"), names)
    assert names["left"][0] > names["left"][-1] == 1
    assert len(plt.get_fignums()) == 5
    plt.close("all")
    assert not any(c.get("outputs") for c in notebook["cells"])  # pictures are not committed
