"""The tool that tests the tests finds every module and its tests, and runs mutants of any of them."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mutation


@pytest.mark.slow
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
def test_a_sample_of_mutants_over_all_modules_is_run() -> None:
    """Its survivors are shown and not counted: they may be equivalent, or have no quick test."""
    root = Path(mutation.__file__).parents[1]
    names = sorted({name.rpartition(".")[2] for name in mutation.modules()})
    chosen = random.Random(len(names)).sample(names, 6)
    options = ["--total", "1", "--files", "1", "--longest", "1", "--measure", "2", "--seconds", "2"]
    done = subprocess.run(
        [sys.executable, root / "tests" / "mutation.py", *chosen, *options],
        capture_output=True, text=True, check=False, cwd=root,
    )  # fmt: skip
    results = re.findall(r"(\d+) of (\d+) killed", done.stdout)
    print(done.stdout)
    assert sum(int(mutants) for _, mutants in results) == 1, done.stdout + done.stderr
