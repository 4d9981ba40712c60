"""Inside `fixed()` a model uses the parameters of the moment it was entered, and only there."""

from __future__ import annotations

import asyncio
import copy
import pickle
import random
import threading
from typing import Any

import pytest
import torch

import latentgamma as lg
from latentgamma.operator.kernels import interface

every_form = pytest.mark.parametrize("form", ["dense", "sparse"])


@pytest.fixture(autouse=True)
def _small_programs_are_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "LEAST_SIZE", 0)


def model_of(form: Any) -> lg.LatentGamma:
    return lg.oracle(lg.parse("b :- a. c :- b, a. d :- c."), form=form)


def shifted(model: lg.LatentGamma) -> None:
    """Change the model so much that it answers differently."""
    with torch.no_grad():
        model.offset.add_(100.0)


@every_form
def test_changes_inside_have_no_effect_until_it_ends(form: str) -> None:
    model = model_of(form)
    state = model.state("a")
    usual = model(state, 3).detach()
    with model.fixed():
        shifted(model)
        assert torch.equal(model(state, 3), usual)
        assert torch.equal(model.iterate(state, 3).final, usual)
        torch.testing.assert_close(model.step(state), model.iterate(state, 1).final)
        assert not model(state, 3).requires_grad
    assert not torch.equal(model(state, 3), usual)


@every_form
def test_steps_none_and_the_certificate_use_the_fixed_parameters(form: str) -> None:
    model = model_of(form)
    state = model.state("a")
    window, closed = model.certificate(), model(state).detach()
    with model.fixed():
        shifted(model)
        assert model.certificate() == window
        assert torch.equal(model(state), closed)
    assert not model.certificate().holds


@every_form
def test_a_nested_context_leaves_the_outer_one_open(form: str) -> None:
    model = model_of(form)
    state = model.state("a")
    usual = model(state, 3).detach()
    with model.fixed():
        with model.fixed():
            pass
        shifted(model)
        assert torch.equal(model(state, 3), usual)
    assert not torch.equal(model(state, 3), usual)


@every_form
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_a_copy_made_inside_follows_its_own_parameters(form: str, duplicate: Any) -> None:
    model = model_of(form)
    state = model.state("a")
    usual = model(state, 3).detach()
    with model.fixed():
        model(state, 3)
        twin = duplicate(model)
        shifted(twin)
        assert not torch.equal(twin(state, 3), usual)
    assert not torch.equal(twin(state, 3), usual)
    with twin.fixed():
        pass


def test_a_context_lasts_as_long_as_some_thread_is_inside() -> None:
    model = model_of("sparse")
    state = model.state("a")
    usual = model(state, 3).detach()
    entered, changed, answers = threading.Event(), threading.Event(), []

    def serve() -> None:
        with model.fixed():
            entered.set()
            assert changed.wait(30)
            answers.append(model(state, 3))

    thread = threading.Thread(target=serve)
    with model.fixed():
        thread.start()
        assert entered.wait(30)
    shifted(model)  # this thread is outside, the other one is still inside
    changed.set()
    thread.join()
    assert torch.equal(answers[0], usual)
    assert not torch.equal(model(state, 3), usual)


def test_many_threads_share_a_model() -> None:
    model = model_of("sparse")
    states = model.state([["a"], [], ["b"], ["a", "b"]])
    usual = model(states, 4).detach()
    wrong = []

    def serve() -> None:
        for _ in range(50):
            with model.fixed():
                if not torch.equal(model(states, 4), usual):
                    wrong.append(1)

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_certificate_follows_buffers_too() -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."), form="sparse")
    assert model.certificate().holds
    model.rules.body_atom.copy_(model.rules.body_atom.flip(0))  # type: ignore[operator, union-attr]
    assert not model.certificate().holds


CHANGES = {
    "dtype": lambda model: model.to(
        torch.float32 if model.dtype == torch.float64 else torch.float64
    ),
    "gate": lambda model: setattr(
        model, "gate_kind", "bump" if model.gate_kind == "sigmoid" else "sigmoid"
    ),
    "program": lambda model: setattr(
        model, "program", lg.Program.from_rules(PERMUTED, atoms=["b", "a", "c", "d"])
    ),
    "parameters": shifted,
    "nothing": lambda model: None,
}
PERMUTED = [("b", ["c"]), ("c", ["b", "a"]), ("d", ["a"])]


@pytest.mark.quick_first
@every_form
@pytest.mark.parametrize("seed", range(4))
def test_inside_and_outside_the_certificate_is_that_of_the_model_as_it_is(
    form: str, seed: int
) -> None:
    draw = random.Random(seed)
    model = model_of(form)
    for _ in range(3):
        with model.fixed():
            for _ in range(4):
                CHANGES[draw.choice(list(CHANGES))](model)
                assert model.certificate() == lg.certify(model, model.program)
        assert model.certificate() == lg.certify(model, model.program)


def test_the_certificate_follows_buffers_inside_too() -> None:
    model = lg.oracle(lg.parse("b :- a. c :- b."), form="sparse")
    with model.fixed():
        assert model.certificate().holds
        model.rules.body_atom.copy_(model.rules.body_atom.flip(0))  # type: ignore[operator, union-attr]
        assert not model.certificate().holds


@every_form
def test_a_gate_that_changes_inside_is_the_one_that_runs(form: str) -> None:
    model = model_of(form)
    state = model.state("a")
    with model.fixed():
        model(state, 3)
        model.gate_kind = "bump"
        inside = model(state, 3)
    torch.testing.assert_close(inside, model(state, 3).detach())


@every_form
def test_other_threads_and_tasks_are_outside(form: str) -> None:
    model = model_of(form)
    state = model.state("a")

    def gradient() -> torch.Tensor | None:
        model.zero_grad()
        value = model(state, 3)
        if value.requires_grad:
            value.sum().backward()
        return model.offset.grad

    usual = gradient()
    assert usual is not None
    found: list[torch.Tensor | None] = []
    with model.fixed():
        thread = threading.Thread(target=lambda: found.append(gradient()))
        thread.start()
        thread.join()
        assert gradient() is None

    async def other(entered: asyncio.Event, done: asyncio.Event) -> None:
        await entered.wait()
        found.append(gradient())
        done.set()

    async def tasks() -> None:
        entered, done = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(other(entered, done))
        with model.fixed():
            entered.set()
            await done.wait()
            assert gradient() is None
        await task

    asyncio.run(tasks())
    for grad in found:
        torch.testing.assert_close(grad, usual)
