"""Checkpoints: what was finished is not done again, and the end is the same as without a break."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import latentgamma as lg
from latentgamma._checkpoint import (
    Journal,
    delete_checkpoint,
    finished_pieces,
)
from latentgamma.learning import gradient
from latentgamma.learning.bodies import HeadTask

ABOUT = {"data": "d", "seed": 0, "heads": None}
PROGRAM = lg.generators.random(8, 10, seed=1)


def examples(kind="transitions", noise=0.0, count=300):
    rng = np.random.default_rng(0)
    states = rng.random((count, 8)) < 0.4
    if kind == "closures":
        after = lg.closures(PROGRAM, states)
    else:
        after = np.stack([PROGRAM.mask(lg.logic.step(PROGRAM, row)) for row in states])
    return states, after ^ (rng.random(after.shape) < noise)


def one_by_one(heads, *limits):
    return [[head] for head in heads]


def told(result):
    """Everything that a result says."""
    return (
        result.program, result.evidence, result.history, result.accuracy, result.notes,
        result.training_accuracy, dict(result.unexplained), str(result.certificate),
    )  # fmt: skip


CASES = {
    "symbolic": ({"method": "symbolic"}, {}),
    "gradient": ({"method": "gradient", "homotopy": lg.operator.Homotopy(steps=30)}, {}),
    "closures": ({"method": "symbolic", "kind": "closures"}, {"kind": "closures"}),
    "noise": ({"method": "symbolic", "noise": 0.03}, {"noise": 0.03}),
}


@pytest.mark.quick_first
@pytest.mark.parametrize("case", CASES)
def test_going_on_ends_as_if_there_had_been_no_break(tmp_path, monkeypatch, case):
    options, data = CASES[case]
    if case == "gradient":
        monkeypatch.setattr(gradient, "_parts", one_by_one)  # many pieces a round
    observed = examples(**data)
    path = tmp_path / "fit.learning"
    expected = told(lg.fit(*observed, **options))
    assert told(lg.fit(*observed, checkpoint=path, **options)) == expected
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) > 4
    for kept, torn in ((1, 0), (len(lines) // 2, 7), (len(lines) - 1, 1)):
        path.write_bytes(b"".join(lines[:kept]) + lines[kept][:torn])
        assert finished_pieces(path) == kept - 1
        assert told(lg.fit(*observed, checkpoint=path, **options)) == expected
        assert path.read_bytes() == whole


def test_what_is_finished_is_not_done_again(tmp_path, monkeypatch):
    observed, path = examples(), tmp_path / "fit.learning"
    first = lg.fit(*observed, checkpoint=path)
    monkeypatch.setattr("latentgamma.learning.strategies.find_rules", None)  # calling it would fail
    assert told(lg.fit(*observed, checkpoint=path)) == told(first)
    with pytest.raises(TypeError):
        lg.fit(*observed)


KILLED = """
import os, signal, sys
import latentgamma as lg
sys.path.insert(0, sys.argv[1])
from test_checkpoint import CASES, examples
options, data = CASES[sys.argv[2]]
seen = []
def progress(entry):
    seen.append(entry)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
lg.fit(*examples(**data), checkpoint=sys.argv[3], progress=progress, **options)
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", ["symbolic", "gradient"])
def test_a_killed_process_loses_only_the_piece_it_was_at(tmp_path, case):
    path = tmp_path / "fit.learning"
    command = [sys.executable, "-c", KILLED, os.path.dirname(__file__), case, str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert finished_pieces(path) >= 2
    options, data = CASES[case]
    again = lg.fit(*examples(**data), checkpoint=path, **options)
    assert told(again) == told(lg.fit(*examples(**data), **options))


@pytest.mark.slow
def test_it_does_not_matter_which_heads_are_trained_together(monkeypatch):
    states, after = examples(count=150)
    tasks = [
        HeadTask(h, states[rows], after[rows, h], np.ones(rows.sum(), np.int64),
             np.arange(8) != h, 8)
        for h in range(8)
        for rows in [~states[:, h]]
        if after[rows, h].any()
    ]  # fmt: skip
    soon = lg.operator.Homotopy(steps=30)
    together = gradient.train(tasks, homotopy=soon, seed=1)
    monkeypatch.setattr(gradient, "_parts", one_by_one)
    assert gradient.train(tasks, homotopy=soon, seed=1) == together


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"heads": ["a0"]}, r'heads was null and is \["a0"\]'),
        ({"max_body": 3}, "max_body was 8 and is 3"),
        ({"noise": 0.1}, "noise was 0.0 and is 0.1"),
        ({"method": "gradient"}, 'method was "symbolic" and is "gradient"'),
        ({"known": lg.parse("a1 :- a0.")}, "known was null and is"),
    ],
)
def test_a_checkpoint_of_other_work_is_refused(tmp_path, change, difference):
    states, path = np.eye(3, dtype=bool), tmp_path / "fit.learning"
    after = states | (states @ [[0, 1, 0], [0, 0, 0], [0, 0, 0]]).astype(bool)
    lg.fit(states, after, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(lg.errors.DataError, match=f"does not fit: .*{difference}.*--fresh"):
        lg.fit(states, after, checkpoint=path, **change)
    with pytest.raises(lg.errors.DataError, match="it is about other data"):
        lg.fit(states[:2], after[:2], checkpoint=path)
    assert path.read_bytes() == before


def test_files_of_other_kinds_are_left_alone(tmp_path):
    path = tmp_path / "precious.csv"
    path.write_text("a,b\n1,0\n")
    with pytest.raises(lg.errors.DataError, match="is not a checkpoint"):
        Journal(path, ABOUT)
    with pytest.raises(lg.errors.DataError, match="is not deleted"):
        delete_checkpoint(path)
    assert path.read_text() == "a,b\n1,0\n"
    with pytest.raises(lg.errors.DataError, match="cannot write the checkpoint"):
        Journal(tmp_path / "nowhere" / "x", ABOUT)
    with pytest.raises(lg.errors.ArgumentError, match=r'kind="models" .* does not use checkpoint'):
        lg.fit([[1, 0]], kind="models", checkpoint=tmp_path / "x")


def test_a_damaged_line_is_seen(tmp_path):
    path = tmp_path / "j"
    with Journal(path, ABOUT) as journal:
        journal.compute("one", lambda: [1])
        journal.compute("two", lambda: [2])
        journal.compute("three", lambda: [3])
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'["two",[2]', b'["two",[7]'))
    assert finished_pieces(path) == 1
    with Journal(path, ABOUT) as journal:  # from the damaged line on, work is done again
        assert journal.compute("one", lambda: 0) == [1]
        assert journal.compute("two", lambda: [2]) == [2]
        assert journal.compute("three", lambda: [3]) == [3]
    assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b'"seed":0', b'"seed":1'))
    with pytest.raises(lg.errors.DataError, match="its first line is damaged"):
        Journal(path, {**ABOUT, "seed": 1})
    assert delete_checkpoint(path)
    assert not delete_checkpoint(path)


@pytest.mark.slow
def test_no_flipped_bit_changes_what_a_checkpoint_says(tmp_path):
    path = tmp_path / "j"
    pieces = {f"1/{i}": {"bodies": [[i, i + 1]], "unexplained": i} for i in range(6)}
    with Journal(path, ABOUT) as journal:
        for name, value in pieces.items():
            journal.compute(name, lambda value=value: value)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for bit in rng.permutation(8 * len(whole))[:1000].tolist():
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            with Journal(path, ABOUT) as journal:
                for name, value in pieces.items():
                    assert journal.compute(name, lambda value=value: value) == value
        except lg.errors.DataError:
            refused += 1  # the first line says what the others are about
    assert 0 < refused < 500


def test_a_journal_gives_back_what_json_makes_of_it_at_once(tmp_path):
    with Journal(tmp_path / "j", ABOUT) as journal:
        assert journal.compute("one", lambda: {"bodies": [(1, 2)]}) == {"bodies": [[1, 2]]}
        with pytest.raises(ZeroDivisionError):
            journal.compute("two", lambda: 1 / 0)
        assert journal.compute("two", lambda: 2) == 2
    with Journal(tmp_path / "j", ABOUT) as journal:
        assert journal.compute("two", lambda: 3) == 2


def test_a_process_that_has_the_file_open_does_not_keep_a_closed_checkpoint_locked(tmp_path):
    """A worker of a pool that is forked while a checkpoint is written lives on with all open files."""
    pytest.importorskip("fcntl")
    with Journal(tmp_path / "j", ABOUT) as journal:
        command = [sys.executable, "-c", "input()"]
        files = [journal._file.fileno()]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=files)
    with child, Journal(tmp_path / "j", ABOUT) as journal:
        assert journal.compute("one", lambda: 1) == 1
        child.communicate(b"\n")


def test_two_processes_do_not_write_one_checkpoint(tmp_path):
    pytest.importorskip("fcntl")
    with (
        Journal(tmp_path / "j", ABOUT),
        pytest.raises(lg.errors.DataError, match="another process is writing"),
    ):
        Journal(tmp_path / "j", ABOUT)
    Journal(tmp_path / "j", ABOUT).close()
