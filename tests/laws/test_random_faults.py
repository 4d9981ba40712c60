"""`learn` is killed and interrupted at random moments; the end is the same.

More moments than the few of every run: RANDOM_FAULTS=100 python -m pytest tests/laws/test_random_faults.py
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import latentgamma as lg

#: Moments per test.
COUNT = int(os.environ.get("RANDOM_FAULTS", "1"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals are those of Unix"),
]


def write_examples(path: Path) -> None:
    """Write examples of a program's steps, some of them wrong, as a table."""
    program = lg.generators.random(8, 10, seed=1)
    rng = np.random.default_rng(0)
    states = rng.random((400, 8)) < 0.4
    after = np.stack([program.mask(lg.logic.step(program, row)) for row in states])
    after ^= rng.random(after.shape) < 0.02
    header = [*program.atoms, *(f"{atom}'" for atom in program.atoms)]
    rows = np.concatenate([states, after], axis=1).astype(int)
    lines = [header, *rows.astype(str).tolist()]
    path.write_text("".join(f"{','.join(line)}\n" for line in lines))


LEARN = ["learn", "data.csv", "--noise", "0.02", "--method", "gradient", "-o", "rules.lp",
         "--model", "net.safetensors"]  # fmt: skip
OUTPUTS = ["rules.lp", "net.safetensors"]


def start(folder: Path) -> subprocess.Popen[str]:
    # The first byte of the output says that Python has started and found the library. Before that
    # an interrupt is Python's to report.
    code = "from latentgamma.cli.main import script; print('*', flush=True); script()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *LEARN],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    )


def run(folder: Path, after: float | None = None, number: int = 0) -> tuple[int, str]:
    """Run the command and send it a signal after some seconds; return exit code and messages."""
    with start(folder) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == "*"
        if after is not None:
            time.sleep(after)
            process.send_signal(number)
        _, messages = process.communicate()
    return process.returncode, messages


def moments(seed: int, seconds: float) -> list[float]:
    """At the start, when the command certainly runs, and then at random moments of its run.

    How long a run takes differs from run to run, so some moments may come after its end.
    """
    draw = random.Random(seed)
    return [0.1, *(draw.uniform(0, seconds) for _ in range(COUNT))]


def outputs(folder: Path) -> dict[str, object]:
    paths = {name: folder / name for name in OUTPUTS}
    return {name: content(path) for name, path in paths.items() if path.exists()}


def content(path: Path) -> object:
    data = path.read_bytes()
    if path.suffix != ".safetensors":
        return data
    # The header of such a file is a JSON object whose keys come in any order.
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def folder_for(where: Path) -> Path:
    where.mkdir()
    write_examples(where / "data.csv")
    return where


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], float]:
    """What the command writes, and how long it takes."""
    whole = folder_for(tmp_path_factory.mktemp("whole") / "folder")
    began = time.monotonic()
    code, messages = run(whole)
    assert code == 0, messages
    expected = outputs(whole)
    assert list(expected) == OUTPUTS
    return expected, time.monotonic() - began


def test_a_command_killed_at_any_moment_ends_the_same_when_run_again(
    undisturbed: tuple[dict[str, object], float], tmp_path: Path
) -> None:
    expected, seconds = undisturbed
    draw = random.Random(0)
    folder, killed = folder_for(tmp_path / "folder"), 0
    for number, after in enumerate(moments(1, seconds)):
        ended, messages = run(folder, after, signal.SIGKILL)
        killed += ended == -signal.SIGKILL
        assert ended in (-signal.SIGKILL, 0), messages
        # What is there is complete.
        assert outputs(folder).items() <= expected.items()
        if ended == 0 or draw.random() < 0.5:  # else go on from there, to be killed again
            assert run(folder)[0] == 0
            assert outputs(folder) == expected
            folder = folder_for(tmp_path / f"folder{number}")
    assert run(folder)[0] == 0
    assert outputs(folder) == expected
    assert killed


def test_a_command_interrupted_at_any_moment_says_so_in_one_line_and_ends_the_same(
    undisturbed: tuple[dict[str, object], float], tmp_path: Path
) -> None:
    expected, seconds = undisturbed
    folder, interrupted = folder_for(tmp_path / "folder"), 0
    for after in moments(2, seconds):
        ended, messages = run(folder, after, signal.SIGINT)
        assert ended in (130, 0), messages
        assert "Traceback" not in messages
        if ended == 130:
            interrupted += 1
            assert messages.splitlines()[-1].startswith("latentgamma: interrupted")
            assert not [path for path in folder.rglob("*") if path.suffix == ".tmp"]
        assert outputs(folder).items() <= expected.items()
    assert run(folder)[0] == 0
    assert outputs(folder) == expected
    assert interrupted


@pytest.mark.parametrize("limit", [10, 2000])
def test_learning_on_a_full_disk_is_one_line_and_goes_on_when_there_is_room(
    tmp_path: Path, limit: int
) -> None:
    import resource

    write_examples(tmp_path / "data.csv")
    args = ["learn", "data.csv", "--noise", "0.02", "-o", "rules.lp", "--model", "net.safetensors"]

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [sys.executable, "-m", "latentgamma", *args]
    done = subprocess.run(
        command, cwd=tmp_path, preexec_fn=full, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "net.safetensors").exists()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "rules.lp", "net.safetensors"}
