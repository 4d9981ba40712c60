"""What a new user sees first: a fresh process, and nothing compiled yet."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def printed(folder: Path, *arguments: str) -> str:
    """What a Python process prints that finds no compiled kernel and keeps its own in the folder."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow  # the same code runs among the quick tests, with what is compiled already
def test_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(snippets) == 3
    lines = printed(tmp_path, "-c", "\n".join(snippets)).splitlines()
    assert lines[0] == "tensor([[ True, False,  True]])"
    assert lines[1].startswith("3 of 3 requirements hold for every input")
    assert lines[-3:] == [
        "approve: no",
        "it would follow with income >= 30000 (income is 28500: 1500 short)",
        "y :- age >= 65.",
    ]


def test_a_first_command(tmp_path: Path) -> None:
    command = ["closure", "examples/animals.lp", "--facts", "has_feathers,swims"]
    found = printed(tmp_path, "-m", "latentgamma", *command)
    assert found.split() == ["animal", "bird", "has_feathers", "swims"]
