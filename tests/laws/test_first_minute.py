"""What a new user sees first: a fresh process, and nothing compiled yet."""

import os
import re
import subprocess
import sys
from pathlib import Path

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


def test_the_first_snippet_of_the_readme(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (snippet, *_) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    model = """
model = lg.oracle(program)
for names in model.names(model(model.state([facts, ["swims"]]))):
    print(*sorted(names))
"""
    lines = printed(tmp_path, "-c", snippet + model).splitlines()
    every = "bird black_and_white eats_fish has_feathers lays_eggs penguin swims"
    assert lines[:4] == [
        "0  has_feathers, swims, black_and_white",
        "1  bird",
        "2  penguin",
        "3  eats_fish, lays_eggs",
    ]
    assert lines[-3].startswith("exact from step 3 on, for every fact set")
    assert lines[-2:] == [every, "swims"]


def test_a_first_command(tmp_path: Path) -> None:
    command = ["closure", "examples/animals.lp", "--facts", "has_feathers,swims"]
    found = printed(tmp_path, "-m", "latentgamma", *command)
    assert found.split() == ["animal", "bird", "has_feathers", "swims"]
