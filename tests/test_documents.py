"""What the documents show is what happens: every Python block and example runs."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page with the line each one starts at."""
    text = page.read_text(encoding="utf-8")
    return [
        (text[: found.start(1)].count("\n"), found.group(1))
        for found in re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": page.stem}
    for line, block in python_blocks(page):
        # Blank lines in front, so that a failure points at the line of the page.
        exec(compile("\n" * line + block, str(page), "exec"), scope)


def test_there_is_code_to_run() -> None:
    assert python_blocks(ROOT / "README.md")
    assert python_blocks(ROOT / "docs" / "paper.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_example_runs(example: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
