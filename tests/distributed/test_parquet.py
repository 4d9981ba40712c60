"""Closures of fact sets in Arrow tables and Parquet files, here and on a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma.cli.main import main
from latentgamma.distributed import (
    RayExecutor,
    close_parquet,
    close_table,
)
from random_programs import programs

PROGRAM = lg.generators.random(20, 40, seed=3)
NEGATION = lg.parse(
    "flies :- bird, not penguin. bird :- penguin. bird :- sparrow. lost :- not flies."
)


def rows_of(table: pa.Table, program: Any) -> np.ndarray:
    rows = np.zeros((table.num_rows, program.M), np.bool_)
    for name in table.column_names:
        rows[:, program.index[name]] = table.column(name).to_numpy()
    return rows


def random_table(program: Any, rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    names = list(program.atoms[: max(1, program.M * 2 // 3)])
    return pa.table({name: rng.random(rows) < 0.4 for name in names})


def check(found: pa.Table, given: pa.Table, program: Any) -> None:
    assert found.column_names == list(program.atoms)
    assert (rows_of(found, program) == lg.closures(program, rows_of(given, program))).all()


class TestTable:
    @given(program=programs(), rows=st.integers(0, 140), seed=st.integers(0, 99))
    def test_it_has_the_closures(self, program: lg.Program, rows: int, seed: int) -> None:
        table = random_table(program, rows, seed)
        check(close_table(program, table), table, program)

    def test_with_negation(self) -> None:
        table = random_table(NEGATION, 100)
        check(close_table(NEGATION, table), table, NEGATION)

    @pytest.mark.parametrize("start", [1, 8, 13, 64])
    def test_slices_and_chunks(self, start: int) -> None:
        table = random_table(PROGRAM, 200)
        part = pa.concat_tables([table.slice(start, 70), table.slice(3, 5)])
        check(close_table(PROGRAM, part), part, PROGRAM)
        batch = table.to_batches()[0].slice(start, 31)
        check(close_table(PROGRAM, batch), pa.Table.from_batches([batch]), PROGRAM)

    def test_integers_other_columns_and_some_atoms(self) -> None:
        program = lg.parse("b :- a. c :- b.")
        table = pa.table({"id": ["x", "y"], "a": pa.array([1, 0], pa.int8()), "b": [0.0, 1.0]})
        found = close_table(program, table, keep=["id"], atoms=["c"])
        assert found.to_pylist() == [{"id": "x", "c": True}, {"id": "y", "c": True}]

    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            ({"z": [True]}, {}, "columns name an atom this program does not have: 'z'.*keep="),
            (pa.table([[True], [True]], ["a", "a"]), {}, "two columns called 'a'"),
            ({"a": [None, True]}, {}, "'a' has 1 missing values"),
            ({"a": [2]}, {}, "'a' must hold booleans, or 0 and 1"),
            ({"a": ["yes"]}, {}, "'a' must hold booleans"),
            ({"a": [True]}, {"keep": ["id"]}, "no column 'id' to keep"),
            ({"a": [True]}, {"keep": "id"}, r"write keep=\['id'\]"),
            ({"a": [True]}, {"keep": ["a"]}, "'a' to keep is an atom"),
            ({"a": [True]}, {"atoms": ["q"]}, "atoms name an atom this program does not have: 'q'"),
        ],
    )
    def test_bad_tables(self, columns: Any, options: Any, message: str) -> None:
        with pytest.raises(lg.errors.DataError, match=message):
            close_table(
                lg.parse("b :- a."),
                pa.table(columns) if isinstance(columns, dict) else columns,
                **options,
            )
        with pytest.raises(lg.errors.DataError, match=r"takes a pyarrow.Table, not dict"):
            close_table(lg.parse("b :- a."), {})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "facts.parquet"
    pq.write_table(random_table(PROGRAM, 5000), path, row_group_size=300)
    return path


def check_parts(done: lg.distributed.TableClosures, source: Path) -> None:
    found = pa.concat_tables([pq.read_table(part) for part in done.parts])
    check(found, pq.read_table(source), PROGRAM)
    assert done.rows == found.num_rows


class TestFiles:
    def test_in_this_process(self, source: Path, tmp_path: Path) -> None:
        seen: list[tuple[int, int]] = []
        done = close_parquet(
            PROGRAM,
            source,
            tmp_path / "out",
            rows_per_part=700,
            progress=lambda finished, total: seen.append((finished, total)),
        )
        check_parts(done, source)
        assert [pq.read_metadata(part).num_rows for part in done.parts] == [900] * 5 + [500]
        assert seen[0] == (0, 5000)
        assert seen[-1] == (5000, 5000)
        assert {after - before for (before, _), (after, _) in itertools.pairwise(seen)} == {
            500,
            900,
        }

    def test_several_files_and_a_folder(self, source: Path, tmp_path: Path) -> None:
        folder = tmp_path / "many"
        folder.mkdir()
        pq.write_table(random_table(PROGRAM, 10, 1), folder / "a.parquet")
        pq.write_table(random_table(PROGRAM, 0, 1), folder / "b.parquet")
        pq.write_table(random_table(PROGRAM, 20, 2), folder / "c.parquet")
        done = close_parquet(PROGRAM, folder, tmp_path / "out")
        assert [pq.read_metadata(part).num_rows for part in done.parts] == [10, 20]
        listed = close_parquet(PROGRAM, [folder / "c.parquet", source], tmp_path / "out2")
        assert listed.rows == 5020

    def test_it_resumes(self, source: Path, tmp_path: Path) -> None:
        folder = tmp_path / "out"
        first = close_parquet(PROGRAM, source, folder, rows_per_part=600)
        before = {part: part.stat().st_mtime_ns for part in first.parts}
        for lost in (first.parts[1], first.parts[4]):
            lost.unlink()
        again = close_parquet(PROGRAM, source, folder, rows_per_part=600)
        assert again.resumed == len(first.parts) - 2
        assert [p for p in again.parts if p.stat().st_mtime_ns != before[p]] == [
            first.parts[1],
            first.parts[4],
        ]
        check_parts(again, source)

    def test_an_interrupted_call_leaves_whole_parts(self, source: Path, tmp_path: Path) -> None:
        def stop(finished: int, total: int) -> None:
            if finished >= 1200:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            close_parquet(PROGRAM, source, tmp_path / "out", rows_per_part=300, progress=stop)
        done = close_parquet(PROGRAM, source, tmp_path / "out", rows_per_part=300)
        assert done.resumed >= 4
        check_parts(done, source)

    def test_any_executor(self, source: Path, tmp_path: Path) -> None:
        with ThreadPoolExecutor(2) as executor:
            done = close_parquet(
                PROGRAM, source, tmp_path / "out", rows_per_part=300, executor=executor
            )
        check_parts(done, source)

    def test_a_lost_worker_of_an_executor_that_does_not_replace_it(
        self, source: Path, tmp_path: Path
    ) -> None:
        with ProcessPoolExecutor(1) as executor:
            pid = executor.submit(os.getpid).result()
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(lg.errors.DistributedError, match="call again to resume"):
                close_parquet(PROGRAM, source, tmp_path / "out", executor=executor)
        check_parts(close_parquet(PROGRAM, source, tmp_path / "out"), source)

    def test_wrong_use(self, source: Path, tmp_path: Path) -> None:
        close_parquet(PROGRAM, source, tmp_path / "out")
        with pytest.raises(
            lg.errors.DataError, match=r"rows_per_part was .* and is 7; choose another folder"
        ):
            close_parquet(PROGRAM, source, tmp_path / "out", rows_per_part=7)
        other = lg.Program.from_rules(PROGRAM.rules[1:], atoms=PROGRAM.atoms)
        with pytest.raises(lg.errors.DataError, match="program was"):
            close_parquet(other, source, tmp_path / "out")
        with pytest.raises(lg.errors.DataError, match="holds the input"):
            close_parquet(PROGRAM, source, tmp_path)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        with pytest.raises(lg.errors.DataError, match="not empty"):
            close_parquet(PROGRAM, source, tmp_path / "full")
        with pytest.raises(lg.errors.DataError, match="no such file"):
            close_parquet(PROGRAM, tmp_path / "nothing.parquet", tmp_path / "new")
        with pytest.raises(lg.errors.DataError, match="not a Parquet table"):
            close_parquet(PROGRAM, __file__, tmp_path / "new")
        with pytest.raises(lg.errors.DataError, match=r"facts.parquet: columns name"):
            close_parquet(lg.parse("b :- a."), source, tmp_path / "new")
        with pytest.raises(lg.errors.ArgumentError, match=r"concurrent.futures.Executor"):
            close_parquet(PROGRAM, source, tmp_path / "new", executor="ray")  # type: ignore[arg-type]
        with pytest.raises(lg.errors.ArgumentError, match="rows_per_part"):
            close_parquet(PROGRAM, source, tmp_path / "new", rows_per_part=0)
        assert not (tmp_path / "new").exists()


class TestCommand:
    def test_it_writes_the_closures(
        self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rules, out = tmp_path / "rules.json", tmp_path / "out"
        lg.save(PROGRAM, rules)
        arguments = ["closure", str(rules), "--facts-table", str(source), "-o", str(out), "--json"]
        for resumed in (0, 1):
            assert main(arguments) == 0
            answer = json.loads(capsys.readouterr().out)
            assert answer["rows"] == 5000
            assert answer["resumed"] == resumed
        found = pq.read_table(answer["parts"][0])
        check(found, pq.read_table(source), PROGRAM)
        assert main(arguments[:-1]) == 0
        assert "5,000 fact sets" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["-o", "out"], "-o takes the closures of a table; add --facts-table FILE"),
            (["--facts-table", "t.parquet"], "add -o FOLDER"),
            (["--facts-table", "t.parquet", "-o", "out", "--facts", "a"], "--facts"),
            (["--facts-table", "t.parquet", "-o", "out", "--levels"], "--levels"),
            (["--facts-table", "t.parquet", "-o", "out"], "no such file"),
            (["--workers", "2"], "--workers"),
        ],
    )
    def test_wrong_options(
        self, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rules = tmp_path / "rules.lp"
        rules.write_text("b :- a.\n")
        options = [str(tmp_path / o) if o in ("out", "t.parquet") else o for o in options]
        assert main(["closure", str(rules), *options]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


# ------------------------------------------------------------------------ Ray

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the extra 'ray' is not installed"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayExecutor]:
    """A cluster of two workers on this machine, which import from the source tree as we do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        with RayExecutor(2) as executor:
            yield executor


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of another package
class TestRay:
    """One cluster for all tests, so they stay in one class, and one file."""

    def test_a_killed_worker_changes_nothing(
        self, cluster: RayExecutor, source: Path, tmp_path: Path
    ) -> None:
        workers = {cluster.submit(os.getpid).result() for _ in range(4)}
        assert os.getpid() not in workers

        def kill(finished: int, total: int) -> None:
            while finished and workers:
                with contextlib.suppress(ProcessLookupError):  # Ray stops idle workers itself
                    os.kill(workers.pop(), signal.SIGKILL)

        done = close_parquet(
            PROGRAM, source, tmp_path / "out", rows_per_part=300, executor=cluster, progress=kill
        )
        assert not workers
        check_parts(done, source)
        # Inside a task, for sure.
        assert cluster.submit(_die_once, tmp_path / "mark").result() == "alive"

    def test_errors_arrive_as_they_were_raised(
        self, cluster: RayExecutor, source: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "bad.parquet"
        column = pa.array([*[True] * 400, None])
        pq.write_table(pa.table({PROGRAM.atoms[0]: column}), path, row_group_size=100)
        with pytest.raises(
            lg.errors.DataError, match=r"^bad.parquet: column .* has 1 missing values"
        ):
            close_parquet(PROGRAM, path, tmp_path / "out", executor=cluster, rows_per_part=100)
        with pytest.raises(ZeroDivisionError):
            cluster.submit(divmod, 1, 0).result()
        waiting = [cluster.submit(time.sleep, 60) for _ in range(3)]
        assert all(future.cancel() for future in waiting)
        assert cluster.submit(abs, -3).result() == 3
        with pytest.raises(lg.errors.ArgumentError, match="connected to a cluster already"):
            RayExecutor(3)


def learned(**options: Any) -> lg.learning.FitResult:
    """What is learned from transitions of a program with several heads."""
    program = lg.parse("c :- a, b. d :- c. e :- a, d. f :- e, b. a :- f.")
    states = np.random.default_rng(0).random((80, program.M)) < 0.5
    after = np.array([program.mask(lg.logic.step(program, row)) for row in states])
    if options.get("kind") == "closures":
        after = lg.closures(program, states)
    return lg.fit(states, after, atoms=program.atoms, **options)


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_learning_on_a_cluster(cluster: RayExecutor, tmp_path: Path) -> None:
    expected = learned()
    assert expected.program.R == 5
    path = tmp_path / "checkpoint"
    for options in ({}, {"checkpoint": path}, {"checkpoint": path}, {"noise": 0.05}):
        found = learned(executor=cluster, **options)
        assert found.program == learned(**({} if "checkpoint" in options else options)).program


def test_learning_with_an_executor(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        for options in ({}, {"noise": 0.05}, {"kind": "closures"}):
            assert learned(executor=executor, **options).program == learned(**options).program
    with pytest.raises(lg.errors.ArgumentError, match="executor must be a concurrent"):
        learned(executor=2)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(lg.errors.ArgumentError, match="gradient"),
    ):
        learned(executor=executor, method="gradient")
    with ProcessPoolExecutor(1) as executor:
        os.kill(executor.submit(os.getpid).result(), signal.SIGKILL)
        with pytest.raises(lg.errors.DistributedError, match="the same call resumes"):
            learned(executor=executor)


def _die_once(mark: Path) -> str:
    """Kill this process the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(lg.errors.MissingPackageError, match="RayExecutor needs ray"):
        RayExecutor()
    with pytest.raises(lg.errors.ArgumentError, match="not both"):
        RayExecutor(2, address="auto")
    with pytest.raises(lg.errors.ArgumentError, match="from 1 on"):
        RayExecutor(0)
