"""The command line under faults: one line, the right exit code, nothing half-written."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import latentgamma as lg
from latentgamma._progress import shows_progress
from latentgamma.cli import commands
from latentgamma.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
ANIMALS = str(EXAMPLES / "animals.lp")
FACTS = ("--facts", "has_feathers,swims")


def run(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "latentgamma", *map(str, args)]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, check=False, timeout=120, **settings)  # type: ignore[call-overload, no-any-return]


def is_one_line(text: str) -> bool:
    return text.startswith("latentgamma: ") and text.count("\n") == 1 and text.endswith("\n")


# ------------------------------------------------------------------ outputs


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A copy of every kind of input, by name."""
    rules, facts, model = (tmp_path / name for name in ("r.lp", "f.lp", "m.safetensors"))
    shutil.copy(ANIMALS, rules)
    facts.write_text("swims.\n")
    lg.oracle(lg.load(rules)).save(model)
    table = tmp_path / "t.csv"
    shutil.copy(EXAMPLES / "animals_transitions.csv", table)
    return {path.name: str(path) for path in (rules, facts, model, table)}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("convert r.lp r.lp", ("OUT", "RULES")),
        ("explain r.lp animal --dot r.lp", ("--dot", "RULES")),
        ("explain r.lp animal --facts-file f.lp --dot f.lp", ("--dot", "--facts-file")),
        ("explain r.lp animal --dot new.svg --plot new.svg", ("--plot", "--dot")),
        ("learn t.csv --model t.csv", ("--model", "DATA")),
        ("learn t.csv --known r.lp -o r.lp", ("--output", "--known")),
        ("learn t.csv -o new.lp --model new.lp", ("--model", "--output")),
        ("learn t.csv -o new.lp --checkpoint t.csv", ("--checkpoint", "DATA")),
    ],
)
def test_no_file_is_written_twice_or_read_and_written(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], command: str, names: tuple[str, str]
) -> None:
    folder = Path(files["r.lp"]).parent
    before = {path: path.read_bytes() for path in folder.iterdir()}
    args = [files.get(word, str(folder / word) if "new." in word else word) for word in command.split()]  # fmt: skip
    assert main(args) == 2
    error = capsys.readouterr().err
    assert is_one_line(error)
    assert all(name in error for name in names), error
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


def test_a_link_to_an_input_is_the_input(files: dict[str, str], tmp_path: Path) -> None:
    link = tmp_path / "link.lp"
    link.symlink_to(files["r.lp"])
    assert main(["convert", files["r.lp"], str(link)]) == 2
    assert Path(files["r.lp"]).read_text() == Path(ANIMALS).read_text()


def test_a_report_does_not_replace_its_results(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    assert main(["report", str(tmp_path / "results.json"), "--out", str(tmp_path / "results.json")]) == 2  # fmt: skip
    assert (tmp_path / "results.json").read_text() == "{}"


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_report_of_a_folder_is_bad_input(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", path, "--out", "/dev/null"]) == 2
    assert capsys.readouterr().err == f"latentgamma: {path or '.'}: it is a folder, not a file\n"


@pytest.mark.slow
def test_two_outputs_may_be_the_same_device() -> None:
    done = run("explain", ANIMALS, "bird", *FACTS, "--dot", "/dev/stdout", "--json")
    assert done.returncode == 0
    assert "digraph" in done.stdout


def small_files() -> None:
    """No file of this process grows beyond a hundred bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ("convert", ANIMALS, "old.json"),
        ("explain", ANIMALS, "bird", *FACTS, "--dot", "old.dot"),
        ("closure", ANIMALS, *FACTS, "--plot", "old.svg"),
    ],
    ids=lambda args: args[0],
)  # fmt: skip
def test_a_full_disk_keeps_the_old_file(tmp_path: Path, args: tuple[str, ...]) -> None:
    name = next(arg for arg in args if arg.startswith("old."))
    (tmp_path / name).write_text("old")
    environment = {**os.environ, "MPLCONFIGDIR": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1",
                   "NUMBA_DISABLE_JIT": "1"}  # fmt: skip
    done = run(*args, cwd=tmp_path, preexec_fn=small_files, env=environment)
    assert done.returncode == 2, done.stderr
    assert is_one_line(done.stderr.splitlines(keepends=True)[-1])
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / name).read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_a_folder_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", ANIMALS, "/proc/out.lp"]) == 2
    error = capsys.readouterr().err
    assert is_one_line(error)
    assert "/proc/out.lp" in error


# ------------------------------------------------------------------ interrupts

INTERRUPT_AT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
        return None

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "module",
    [
        "latentgamma.cli.arguments", "argparse", "latentgamma.cli.commands", "numpy",
        "numpy._core._multiarray_umath", "torch", "torch.nn", "latentgamma.operator.model",
    ],
)  # fmt: skip
def test_an_interrupt_during_any_import_is_130_and_one_line(tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT_AT.format(name=module))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = run("run", ANIMALS, *FACTS, "--steps", 3, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "latentgamma: interrupted\n")


def test_an_error_caused_by_an_interrupt_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closure(*args: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("numpy could not be imported") from error

    monkeypatch.setattr(commands.lg, "closure", closure)
    assert main(["closure", ANIMALS]) == 130
    assert capsys.readouterr().err == "latentgamma: interrupted\n"


def test_an_interrupt_while_a_file_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Path, data: bytes) -> int:
        with open(self, "wb") as file:
            file.write(data[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    assert main(["convert", ANIMALS, str(tmp_path / "out.lp")]) == 130
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ streams


def closed(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return close


@pytest.mark.slow
def test_a_closed_output_is_one_line(tmp_path: Path) -> None:
    for args in (("closure", ANIMALS), ("closure", ANIMALS, "--json"), ("certify", ANIMALS)):
        done = run(*args, stdout=None, preexec_fn=closed(1))
        assert done.returncode == 2
        assert done.stderr == "latentgamma: standard output: it is closed\n"
    done = run("convert", ANIMALS, tmp_path / "out.json", stdout=None, preexec_fn=closed(0, 1, 2))
    assert done.returncode == 0
    assert lg.load(tmp_path / "out.json") == lg.load(ANIMALS)


@pytest.mark.slow
def test_a_closed_standard_error_changes_no_exit_code() -> None:
    done = run("closure", ANIMALS, *FACTS, stderr=None, preexec_fn=closed(2))
    assert done.returncode == 0
    assert "bird" in done.stdout
    done = run("closure", "missing.lp", stderr=None, preexec_fn=closed(2))
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
def test_a_standard_error_that_nobody_reads_changes_no_exit_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run("closure", "missing.lp", stderr=writer)
    os.close(writer)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
def test_a_closed_standard_input_is_one_line() -> None:
    done = run("closure", "-", stdin=None, preexec_fn=closed(0))
    assert done.returncode == 2
    assert done.stderr == "latentgamma: cannot read the standard input: it is closed\n"


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_an_output_that_is_full_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = run("closure", ANIMALS, *FACTS, stdout=full)
    assert done.returncode == 2
    assert done.stderr == "latentgamma: standard output: No space left on device\n"


# ------------------------------------------------------------------ messages


def test_a_defect_of_the_library_is_one_line_and_not_a_failed_claim(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closure(*args: object) -> None:
        raise ZeroDivisionError("of a kind")

    monkeypatch.setattr(commands.lg, "closure", closure)
    assert main(["closure", ANIMALS]) == 2
    error = capsys.readouterr().err
    assert is_one_line(error)
    assert "ZeroDivisionError: of a kind" in error
    monkeypatch.setenv("LATENTGAMMA_TRACEBACK", "1")
    assert main(["closure", ANIMALS]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_suffix_mentions_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.txt").write_text("a :- b.")
    assert main(["closure", str(tmp_path / "rules.txt")]) == 2
    error = capsys.readouterr().err
    assert is_one_line(error)
    assert "--format" in error
    assert main(["closure", str(tmp_path / "rules.txt"), "--format", "lp"]) == 0


def test_messages_name_options_and_not_keywords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b,a',b'\n" + "1,0,1,0\n1,0,1,1\n" * 3)
    assert main(["learn", str(table)]) == 2
    error = capsys.readouterr().err
    assert "--noise auto" in error
    assert "noise=" not in error


def test_progress_is_shown_on_a_terminal_unless_codes_are_unwanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert shows_progress()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_progress()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_progress()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not shows_progress()
    monkeypatch.setattr(sys, "stderr", None)
    assert not shows_progress()
