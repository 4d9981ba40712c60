"""The tool that tests the tests: it finds every module and its tests, and most mutants are killed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mutation


def test_every_module_with_code_has_test_files() -> None:
    without = [
        name
        for name, path in mutation.modules().items()
        if "def " in path.read_text(encoding="utf-8") and not mutation.test_files(name, 1)
    ]
    assert without == []


def test_comparisons_are_moved_and_turned_round_and_extremes_exchanged() -> None:
    text = "def f(a, b):\n    return a.min() < max(b, 1) <= 3"
    found = [what for _, what, _ in mutation.mutants(text, comparisons=True)]
    changed = [one.partition("  ->  ")[2] for one in found]
    assert changed == [
        "a.min() <= max(b, 1) <= 3",
        "a.min() >= max(b, 1) <= 3",
        "a.min() < max(b, 1) < 3",
        "a.min() < max(b, 1) > 3",
        "a.max()",
        "min(b, 1)",
    ]


@pytest.mark.slow
def test_a_sample_of_mutants_over_all_modules_is_killed() -> None:
    """A small sample: some of its survivors are equivalent, or reached by tests that were left out."""
    root = Path(mutation.__file__).parents[1]
    options = [
        "--total",
        "6",
        "--files",
        "2",
        "--longest",
        "3",
        "--measure",
        "15",
        "--seconds",
        "10",
    ]
    done = subprocess.run(
        [sys.executable, root / "tests" / "mutation.py", *options],
        capture_output=True, text=True, check=True, cwd=root,
    )  # fmt: skip
    results = re.findall(r"(\d+) of (\d+) killed", done.stdout)
    assert sum(int(mutants) for _, mutants in results) == 6, done.stdout
    assert sum(int(killed) for killed, _ in results) >= 2, done.stdout
