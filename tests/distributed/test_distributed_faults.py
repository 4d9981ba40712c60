"""A process that is killed in the middle of a step: the others stop, and the run resumes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

import latentgamma as lg
from latentgamma.distributed import (
    gather,
    load_checkpoint,
    save_checkpoint,
    shard,
)
from process_groups import run_in_processes, start_processes
from random_models import random_model, random_states
from random_programs import random_program

#: Training steps in all, and the one in which a process is killed.
STEPS, FATAL = 8, 5
#: Seconds after which the others give up, at the latest.
TIMEOUT = 20.0


def _train(mesh: DeviceMesh, folder: Path, run: str, victim: int | None) -> None:
    """Train with a checkpoint every two steps; a process may kill itself in the fatal step."""
    torch.manual_seed(0)
    model = shard(random_model(random_program(7, 9, 30, body=3), seed=1), mesh)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    path = folder.parent / run
    start = load_checkpoint(path, model, optimizer) if path.exists() else 0
    for step in range(start, STEPS):
        state = random_states(model, 3, seed=step)
        optimizer.zero_grad()
        loss = (model(state, 3) - state.flip(0)).square().mean()
        if victim == mesh.get_local_rank() and step == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)  # the others are in the backward pass
        loss.backward()
        optimizer.step()
        if step % 2 == 1:
            save_checkpoint(path, model, optimizer, step=step + 1)
    whole = gather(model)
    if mesh.get_local_rank() == 0:
        torch.save(whole.state_dict(), folder.parent / f"{run}.pt")


@pytest.mark.slow
def test_a_killed_process_stops_the_others_and_the_run_resumes(tmp_path: Path) -> None:
    assert not run_in_processes(3, [_train], tmp_path / "first", "undisturbed", None)
    processes, results = start_processes(
        3, [_train], tmp_path / "second", "disturbed", 1, timeout=TIMEOUT
    )
    for process in processes:
        process.join(2 * TIMEOUT + 60)
    assert [process.exitcode for process in processes] == [1, -signal.SIGKILL, 1]
    for rank in (0, 2):
        message = (results / f"_train in rank {rank}").read_text().splitlines()[-1]
        assert message.startswith(
            f"latentgamma.errors.DistributedError: rank {rank} of 3: another process has stopped"
        )
        assert "load the last checkpoint" in message
    # Two processes go on where three stopped, and all end at the same parameters.
    assert not run_in_processes(2, [_train], tmp_path / "third", "disturbed", None)
    found, expected = (torch.load(tmp_path / f"{run}.pt") for run in ("disturbed", "undisturbed"))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10)


def _stop(mesh: DeviceMesh, folder: Path) -> None:
    model = shard(random_model(random_program(7, 9, 30, body=3), seed=1), mesh)
    state = random_states(model, 3)
    model(state, 3)
    if mesh.get_local_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # it neither answers nor ends
    model(state, 3)


@pytest.mark.slow
def test_a_process_that_does_not_answer_stops_the_others(tmp_path: Path) -> None:
    processes, results = start_processes(2, [_stop], tmp_path, timeout=4.0)
    processes[0].join(60)
    assert processes[0].exitcode == 1
    assert "DistributedError: rank 0 of 2" in (results / "_stop in rank 0").read_text()
    assert processes[1].is_alive()
    processes[1].kill()
    processes[1].join()


def test_a_damaged_checkpoint_is_not_taken(tmp_path: Path) -> None:
    """What is left of an interrupted save is passed over: the older checkpoint is complete."""
    model = lg.oracle(lg.generators.g1(), form="sparse")
    save_checkpoint(tmp_path, model, step=4)
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "__0_0.distcp").write_bytes(b"half")
    assert load_checkpoint(tmp_path, model) == 4
    save_checkpoint(tmp_path, model, step=5)
    assert load_checkpoint(tmp_path, model) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
