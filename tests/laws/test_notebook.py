"""How results show themselves in a notebook: well-formed, escaped, complete, and never huge."""

from __future__ import annotations

import io
import re
import sys
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import latentgamma as lg
from latentgamma._display import GREEN, RED

ODD = lg.parse("'<b>&' :- a, 'x y'. c :- '<b>&'. d :- c, a. #external e.")


class Parts(HTMLParser):
    """The text of a piece of HTML, after checking that every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def words(value: Any) -> str:
    """The text of a value in a notebook, after checking that `rich` shows the same title."""
    html = value._repr_html_()
    assert not re.search(r"<script|https?:", html)
    found = Parts(html).words
    title = value._display().title
    assert found.startswith(title)
    assert in_terminal(value).startswith(title)
    return found


def in_terminal(value: Any) -> str:
    """What `rich.print` writes."""
    console = Console(file=io.StringIO(), width=400, color_system=None)
    console.print(value)
    return console.file.getvalue()


def test_a_program_shows_its_rules() -> None:
    shown = words(ODD)
    for rule in ODD.rules:
        assert str(rule) in shown
    large = words(lg.generators.chain(5000))
    assert "4,969 more rules" in large
    assert len(large) < 2000


def test_a_closure_shows_every_atom_with_its_step() -> None:
    shown = words(lg.closure(ODD, ["a", "x y"]))
    assert "5 of 6 atoms follow, in 3 steps" in shown
    assert shown.index("'x y'") < shown.index("'<b>&'") < shown.index("d", shown.index("'<b>&'"))


def test_a_derivation_shows_its_rules_and_facts() -> None:
    proof = lg.derivation(ODD, ["a", "x y"], "d")
    assert proof is not None
    shown = words(proof)
    for rule in proof.rules:
        assert str(ODD.rules[rule]) in shown
    assert shown.count("given") == 3  # a is used twice
    chain = lg.generators.chain(200)
    deep = lg.derivation(chain, [chain.atoms[0]], chain.atoms[-1])
    assert "continued below" in words(deep)


def test_an_absent_atom_shows_its_rules_and_what_is_missing() -> None:
    absent = lg.why_not(ODD, ["a"], "d")
    assert absent is not None
    shown = words(absent)
    for line in str(absent).split("\n"):
        assert line in shown
    assert "it has to be given" in words(lg.why_not(ODD, ["a"], "x y"))


def test_a_plan_shows_whether_it_is_exact() -> None:
    program = lg.parse("c :- a. c :- b. d :- c, a.")
    exact = lg.Layer(program, ["a", "b"], ["c", "d"], semantics="probability").plan()
    drawn = lg.Inference(method="sample")
    rough = lg.Layer(program, ["a", "b"], "d", semantics="probability", inference=drawn).plan()
    for plan, colour in ((exact, GREEN), (rough, RED)):
        assert f"rgba({colour}" in plan._repr_html_()
        for line in str(plan).split("\n"):
            assert line in words(plan)


def test_a_certificate_shows_whether_it_holds() -> None:
    good = lg.certify(lg.oracle(ODD), ODD)
    bad = lg.certify(lg.oracle(ODD), lg.parse(str(ODD) + " e :- a."))
    assert f"rgba({GREEN}" in good._repr_html_()
    assert f"rgba({RED}" in bad._repr_html_()
    for value, colour in ((good, "green"), (bad, "red")):
        console = Console(
            file=io.StringIO(), width=400, force_terminal=True, color_system="standard"
        )
        console.print(value)
        code = {"green": "\x1b[1;32m", "red": "\x1b[1;31m"}[colour]
        assert console.file.getvalue().startswith(code)
    assert "✓" in words(good)
    assert str(good) in words(good)
    assert "✗" in words(bad)
    assert bad.message in words(bad)


@pytest.mark.parametrize("steps", [0, 3, 400])
def test_a_trajectory_shows_values_as_colours(steps: int) -> None:
    model = lg.oracle(ODD)
    trajectory = model.iterate(model.state(["a", "x y"]), steps)
    shown = words(trajectory)
    assert f"within {steps} steps" in shown
    html = trajectory._repr_html_()
    assert html.count("<td") <= 30 * 17
    last = trajectory.final[ODD.index["a"]]
    assert f"rgba(0,114,178,{0.6 * last:.2f})" in html
    assert "shape" in words(model.iterate(model.state([["a"], []]), 1))


def test_a_fit_shows_its_rules_with_their_support() -> None:
    before = np.random.default_rng(0).random((60, ODD.M)) < 0.5
    after = np.stack([ODD.mask(lg.logic.step(ODD, row)) for row in before])
    result = lg.fit(before, after, atoms=ODD.atoms)
    shown = words(result)
    for one in result.evidence:
        assert str(one.rule) in shown
        assert str(one.support) in shown
    assert "exactly right" in shown


def test_a_terminal_shows_what_a_notebook_shows() -> None:
    assert in_terminal(ODD).splitlines()[1:] == [str(rule) for rule in ODD.rules]
    proof = lg.derivation(ODD, ["a", "x y"], "d")
    assert in_terminal(proof).splitlines()[1:] == str(proof).splitlines()
    shown = in_terminal(lg.closure(ODD, ["a", "x y"]))
    assert "step" in shown
    assert "'<b>&'" in shown
    certificate = lg.certify(lg.oracle(ODD), ODD)
    assert "match on" in in_terminal(certificate)
    assert "curve" not in in_terminal(certificate)
    model = lg.oracle(ODD)
    assert "0.9" in in_terminal(model.iterate(model.state(["a", "x y"]), 3))
    assert "[b]" in in_terminal(lg.parse("a :- '[b]'."))  # not taken for markup


class Handle:
    """What `IPython.display.display` returns: it remembers what was shown."""

    def __init__(self, first: Any) -> None:
        self.shown = [first]

    def update(self, later: Any) -> None:
        self.shown.append(later)


def test_a_progress_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    handles: list[Handle] = []

    def display(first: Any, *, display_id: bool) -> Handle:
        assert display_id
        handles.append(Handle(first))
        return handles[-1]

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    monkeypatch.setattr("latentgamma._progress._SECONDS_BETWEEN", 0.0)
    bar = lg.learning.ProgressBar()
    bar(lg.learning.HistoryEntry("head <1>", 3, 0.25))
    bar("A construction", 3, 4)
    bar.close()
    (handle,) = handles
    assert [Parts(shown).words.strip() for shown in handle.shown] == [
        "head <1>, 25% explained",
        "A construction: 3 of 4",
        "",
    ]
    assert 'value="0.750"' in handle.shown[1]
    lg.fit([[1, 0], [0, 0]], [[1, 1], [0, 0]], progress=lg.learning.ProgressBar())
    assert handles[1].shown[-1] == ""  # gone when the work is done


def test_a_progress_bar_on_a_terminal_and_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shows in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        bar = lg.learning.ProgressBar()
        bar("B expressivity", 1, 2)
        bar.close()
        assert ("B expressivity: 1 of 2" in stream.getvalue()) is shows


def test_a_long_result_has_a_short_repr() -> None:
    result = lg.fit([[1, 0], [0, 0]], [[1, 1], [0, 0]])
    assert repr(result) == f"FitResult({result})"
    assert len(repr(result)) < 300
    assert repr(result.certificate) == f"Certificate({result.certificate})"
