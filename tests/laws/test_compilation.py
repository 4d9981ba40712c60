"""Compiled code: when it is used, that being compiled changes no bit, and `latentgamma compile`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from latentgamma.cli.console import announced_compilation
from latentgamma.program import compilation


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_small_work_that_adds_up_is_compiled_and_tiny_work_is_not() -> None:
    run("""
import sys
import numpy as np
import latentgamma as lg
tiny = lg.parse("b :- a. c :- b, a. " + " ".join(f"d{i} :- c, b." for i in range(15)))
for _ in range(2_000):
    lg.closure(tiny, ["a"])
assert "numba" not in sys.modules
program = lg.generators.g4()
rows = np.random.default_rng(0).random((500, program.M)) < 0.05
first = lg.closures(program, rows)
lg.closures(program, np.repeat(rows, 100, 0))  # numpy needs less than loading compiled code
assert "numba" not in sys.modules
for _ in range(200):
    assert np.array_equal(lg.closures(program, rows), first)
assert "numba" in sys.modules
""")


@pytest.mark.slow
def test_cycles_that_numpy_repeats_are_compiled() -> None:
    """A program of 252 literals is small, but numpy goes through its rules many times a call."""
    run("""
import sys
import numpy as np
import latentgamma as lg
ring = [(f"a{(i + step) % 42}", [f"a{i}", f"b{i}"]) for i in range(42) for step in (1, 41)]
program = lg.Program.from_rules(ring)
alike = np.arange(42) == np.arange(42)[:, None]
rows = np.zeros((42, program.M), bool)  # in each, all b are true and one a
rows[:, [program.index[f"a{i}"] for i in range(42)]] = alike
rows[:, [program.index[f"b{i}"] for i in range(42)]] = True
planes = lg.logic.pack(rows)
first = lg.closures(program, planes, packed=True)
assert "numba" not in sys.modules
for _ in range(600):
    assert np.array_equal(lg.closures(program, planes, packed=True), first)
assert "numba" in sys.modules
""")


#: Prints the bits of answers, each asked for twice.
BITS = """
import numpy as np
import torch
import latentgamma as lg

def show(*tensors):
    print([tensor.detach().numpy().tobytes().hex() for tensor in tensors])

program = lg.generators.g4()
model = lg.oracle(program, form="sparse")
state = torch.rand(5, program.M, generator=torch.Generator().manual_seed(0)).requires_grad_()
for _ in range(2):
    out = model(state, 3)
    show(out, *torch.autograd.grad(out.square().sum(), [state, model.offset]))
    show(model(state.detach().round()))
rows = (state > 0.9).numpy()
first = lg.closures(program, rows)
for _ in range(200):  # in numpy, and then compiled
    assert np.array_equal(lg.closures(program, rows), first)
planes = lg.logic.random_planes([0.1] * program.M, 1000)
show(torch.from_numpy(first), torch.from_numpy(lg.closures(program, planes, packed=True).view("int64")))
small = lg.oracle(lg.generators.chain(9))
for _ in range(2):
    given = state[:, :9].detach().requires_grad_()
    out = small(given, 3)
    show(out, *torch.autograd.grad(out.square().sum(), [given, small.offset]))
    show(small(given.detach().round()))
given = state[:, :3].detach().requires_grad_()
for rules in ("p :- a, b. q :- p, c. b :- q.", "p :- a, b. q :- p, not c."):
    for semantics in ("godel", "probability", "gamma"):
        layer = lg.Layer(lg.parse(rules), ["a", "b", "c"], ["q"], semantics=semantics)
        for training in (True, True, False, False):
            out = [layer.train(training)(given, logits=logits) for logits in (False, True)]
            show(*out, *torch.autograd.grad(out[0].sum() + out[1].sum(), given))
"""


@pytest.mark.slow
def test_answers_have_the_same_bits_before_and_after_compilation() -> None:
    """One process compiles what is not on disk yet, the other loads it."""
    outputs = [run(BITS) for _ in range(2)]
    assert outputs[0] == outputs[1]
    lines = outputs[0].splitlines()
    assert lines[:2] == lines[2:4]
    assert lines[5:7] == lines[7:9]
    assert len(lines) == 9 + 2 * 3 * 4
    assert lines[9::2] == lines[10::2]


#: Fails where a call needs machine code that the command has not run, on disk or not.
NOTHING_TO_COMPILE = """
import gc
import numpy as np
import torch
import latentgamma as lg
from latentgamma.cli.main import main
from latentgamma.program import compilation
from numba.core.dispatcher import Dispatcher

def loaded():
    return {
        (d.py_func.__module__, d.py_func.__qualname__, str(signature))
        for d in gc.get_objects()
        if isinstance(d, Dispatcher) and d.py_func.__module__.startswith("latentgamma.")
        for signature in d.overloads
    }

assert main(["compile", "--json"]) == 0
before = loaded()
program = lg.generators.random(300, 600, body=(1, 3), seed=3)
rules = lg.parse("p :- a, b. q :- p, c. x :- q. p :- x, d.")
inputs = ["a", "b", "c", "d"]
for dtype in (torch.float32, torch.float64):
    model = lg.oracle(program, form="sparse", dtype=dtype)
    for batch in (1, 3, 7):
        state = torch.rand(batch, program.M, dtype=dtype, requires_grad=True)
        model(state, 3).sum().backward()
        model.iterate(state, 2)
        model(state.detach().round())
    given = torch.full((3, 4), 0.25, dtype=dtype, requires_grad=True)
    for semantics in ("godel", "probability"):
        for groups in (inputs, lg.Categorical(inputs)):
            for logits in (False, True):
                layer = lg.Layer(rules, groups, "q", semantics=semantics, from_logits=logits)
                layer(given, logits=logits).sum().backward()
                layer.eval()(given, logits=logits).sum().backward()
                with torch.no_grad():
                    layer(given)
compilation.forced = True
lg.closure(program, program.atoms[:3])
lg.closure(program, program.atoms[:200])
lg.closures(program, np.eye(program.M, dtype=bool))
lg.closures(program, lg.logic.random_planes([0.3] * program.M, 1000), packed=True)
lg.closures(lg.parse("#external c. a :- not b. b :- c."), [["c"]])
lg.why_not(program, [], program.atoms[5])
lg.logic.depth_bound(program)
lg.parse("a :- b. " * 300_000)
assert len(before) > 40
assert not loaded() - before, loaded() - before
"""


@pytest.mark.slow
def test_after_the_command_nothing_is_left_to_compile() -> None:
    run(NOTHING_TO_COMPILE)
    done = run("from latentgamma.cli.main import main; main(['compile', '--json'])")
    assert json.loads(done)["compiled"] == []


def test_a_terminal_is_told_once_that_something_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda answer=terminal: answer)
        with announced_compilation():
            for name in ("first", "second"):
                for announce in tuple(compilation.on_compile):
                    announce(name)
        assert not compilation.on_compile
        assert capsys.readouterr().err.count("compiling") == terminal
