"""Pictures: that they show what they are given, legibly, and touch nothing else."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentgamma as lg
from latentgamma import plot
from latentgamma.certificate.constants import certify_closed_form
from latentgamma.paper.window import paper_window
from latentgamma.plot.figure import CSS_VARIABLES
from latentgamma.plot.program_graph import layered_layout

matplotlib = pytest.importorskip("matplotlib")
BIRDS = lg.parse(
    "bird :- feathers. bird :- flies, eggs. penguin :- bird, swims. eggs :- penguin. animal. "
    "ice, fish :- penguin, animal."
)


def drawn_texts(figure):
    """The texts of a figure with the place each takes, in parts of the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    frame = figure.bbox
    unseen = set()  # ticks beyond the ends of an axis are not drawn
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                unseen |= {tick.label1, tick.label2}
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible() and text not in unseen:
            box = text.get_window_extent(canvas.get_renderer())
            yield text.get_text(), (
                box.x0 / frame.width, box.y0 / frame.height,
                box.x1 / frame.width, box.y1 / frame.height,
            )  # fmt: skip


def assert_legible(figure):
    """Nothing is cut off, and no two texts lie on each other."""
    placed = list(drawn_texts(figure))
    for text, (x0, y0, x1, y1) in placed:
        assert min(x0, y0) >= 0, text
        assert max(x1, y1) <= 1, text
    for (one, a), (other, b) in itertools.combinations(placed, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (one, other)


# ------------------------------------------------------------------ layouts

NAMES = st.sampled_from([f"atom_{i}" for i in range(9)])
PROGRAMS = st.lists(
    st.tuples(st.sets(NAMES, min_size=1, max_size=2), st.sets(NAMES, max_size=3)), max_size=14
).map(lambda rules: lg.Program.from_rules([(sorted(h), sorted(b)) for h, b in rules]))


def layout_of(program, row=0.3, gap=0.2, wrap=False):
    return layered_layout(program, [0.5] * program.M, row=row, gap=gap, wrap=wrap)


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_no_two_atoms_of_a_layout_overlap(program):
    layout = layout_of(program)
    for (x, y), (u, v) in itertools.combinations(layout.atoms, 2):
        assert abs(x - u) >= 0.5 - 1e-9 or abs(y - v) >= 0.3 - 1e-9
    for x, y in layout.atoms:
        assert 0.25 - 1e-9 <= x <= layout.width - 0.25 + 1e-9
        assert 0.15 - 1e-9 <= y <= layout.height - 0.15 + 1e-9


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_every_rule_that_says_something_is_drawn_from_its_body_to_its_heads(program):
    layout = layout_of(program)
    expected = {(rule.body, frozenset(rule.heads) - rule.body) for rule in program.rules}
    expected = {(body, heads) for body, heads in expected if body and heads}
    seen = set()
    for j in {edge.rule for edge in layout.edges}:
        starts, ends = set(), set()
        for edge in (edge for edge in layout.edges if edge.rule == j):
            first, last = edge.points[0], edge.points[-1]
            assert first[0] <= last[0]
            touched = [at(layout, first, 0.25), at(layout, last, -0.25)]
            tail, tip = touched if edge.arrow >= 0 else touched[::-1]
            assert edge.arrow != 0 or tip is None  # a line to a junction on its right has no arrow
            starts |= {tail} - {None}
            ends |= {tip} - {None}
        atoms = program.atoms
        body, heads = frozenset(atoms[i] for i in starts), frozenset(atoms[i] for i in ends)
        seen.add((body, heads))
        assert (j in layout.junctions) is (len(body) > 1 or len(heads) > 1)
    assert seen == expected


def at(layout, point, side):
    """The atom whose box has its right (+) or left (−) edge at a point, if any."""
    for i, (x, y) in enumerate(layout.atoms):
        if abs(x + side - point[0]) < 1e-9 and abs(y - point[1]) < 1e-9:
            return i
    return None


def test_without_cycles_every_line_runs_forwards():
    program = lg.generators.random(60, 80, acyclic=True, seed=3)
    layout = layout_of(program)
    assert {edge.arrow for edge in layout.edges} <= {0, 1}
    for rule in program.rules:
        x = {name: layout.atoms[program.index[name]][0] for name in (*rule.heads, *rule.body)}
        assert max(x[name] for name in rule.body) < min(x[name] for name in rule.heads)


def test_a_cycle_has_a_line_that_runs_backwards():
    layout = layout_of(lg.parse("a :- b. b :- a."))
    assert sorted(edge.arrow for edge in layout.edges) == [-1, 1]
    one, other = (edge.points[1:-1] for edge in layout.edges)
    assert not set(one) & set(other)  # the two do not lie on each other
    layout = layout_of(lg.parse("bird :- flies, eggs. eggs :- bird."))
    (junction,) = layout.junctions.values()
    (back,) = (edge for edge in layout.edges if edge.arrow < 0)
    assert back.points[0] == pytest.approx(junction, abs=0.03)  # eggs is to the right of its rule


def test_layouts_do_not_depend_on_chance():
    program = lg.generators.random(50, 60, seed=1)
    assert layout_of(program) == layout_of(program)


@pytest.mark.parametrize("length", [2, 60, 400])
def test_a_long_chain_is_wrapped_and_no_line_is_lost(length):
    program = lg.generators.chain(length)
    straight, wrapped = layout_of(program), layout_of(program, wrap=True)
    assert (wrapped.width < 12.0 + 1.0) or wrapped.width < 4 * wrapped.height
    assert (wrapped == straight) is (straight.width < 12.0)
    for (x, y), (u, v) in itertools.combinations(wrapped.atoms, 2):
        assert abs(x - u) >= 0.5 - 1e-9 or abs(y - v) >= 0.3 - 1e-9
    for x, y in wrapped.atoms:
        assert 0.25 - 1e-9 <= x <= wrapped.width - 0.25 + 1e-9
        assert 0.15 - 1e-9 <= y <= wrapped.height - 0.15 + 1e-9
    for j in range(program.R):
        parts = [edge for edge in wrapped.edges if edge.rule == j]
        (body,), (head,) = program.body_of(j).tolist(), program.heads_of(j).tolist()
        assert at(wrapped, parts[0].points[0], 0.25) == body
        assert at(wrapped, parts[-1].points[-1], -0.25) == head
        assert [edge.arrow for edge in parts] == [0] * (len(parts) - 1) + [1]
    rows = len({y for _, y in wrapped.atoms})
    assert sum(len(edge.points) for edge in wrapped.edges) - sum(
        len(edge.points) for edge in straight.edges
    ) == 2 * (rows - 1)


def test_rows_of_different_height_do_not_overlap():
    program = lg.generators.g2()
    layout = layout_of(program, wrap=True)
    assert layout.width < 0.5 * layout_of(program).width
    for (x, y), (u, v) in itertools.combinations(layout.atoms, 2):
        assert abs(x - u) >= 0.5 - 1e-9 or abs(y - v) >= 0.3 - 1e-9
    heights = [y for edge in layout.edges for _, y in edge.points]
    heights += [y for _, y in layout.atoms]
    assert min(heights) == pytest.approx(0.15)
    assert max(heights) == pytest.approx(layout.height - 0.15)


# ------------------------------------------------------------------ programs and proofs


def test_a_program_is_drawn_with_every_name_once_and_nothing_cut_off():
    figure = plot.program(BIRDS)
    texts = [text for text, _ in drawn_texts(figure)]
    for name in BIRDS.atoms:
        assert texts.count(name) == 1
    assert_legible(figure)


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "program",
    [
        lg.parse(""),
        lg.parse("a."),
        lg.parse("a :- a."),
        lg.generators.g1(),
        lg.generators.clique(7),
        lg.generators.grid(5, 5),
        lg.generators.random(100, 60, seed=2),
        lg.Program.from_rules([("w" * 500, ["i" * 28, "$x$", "new\nline"])]),
    ],
    ids=["empty", "fact", "loop", "g1", "clique", "grid", "random", "names"],
)
def test_odd_programs_are_legible_too(program):
    assert_legible(plot.program(program))


def test_highlighted_atoms_and_the_rules_between_them_are_coloured():
    plain, coloured = plot.program(BIRDS), plot.program(BIRDS, highlight=["feathers", "bird"])
    assert blues(plain) == (0, 0)
    assert blues(coloured) == (2, 1)
    known = lg.closure(BIRDS, ["feathers", "swims"])
    assert blues(plot.program(BIRDS, highlight=known))[0] == len(known)
    with pytest.raises(lg.errors.FactsError, match="did you mean 'bird'"):
        plot.program(BIRDS, highlight=["brid"])


def blues(figure):
    """How many boxes and how many arrows are blue."""
    from matplotlib.colors import to_hex
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    def count(kind):
        patches = figure.axes[0].findobj(lambda artist: type(artist) is kind)
        return sum(to_hex(patch.get_edgecolor()) == "#0072b2" for patch in patches)

    return count(FancyBboxPatch), count(FancyArrowPatch)


def test_large_programs_lose_their_names_and_huge_ones_are_refused():
    figure = plot.program(lg.generators.chain(400))
    assert [text for text, _ in drawn_texts(figure)] == ["400 atoms, 399 rules"]
    with pytest.raises(lg.errors.ProgramError, match="too large to draw"):
        plot.program(lg.generators.chain(20_000))


def test_a_proof_shows_its_atoms_and_no_others():
    proof = lg.derivation(BIRDS, ["feathers", "swims"], "ice")
    figure = plot.derivation(proof)
    shown = {text for text, _ in drawn_texts(figure)}
    assert shown & set(BIRDS.atoms) == {step.atom for step in proof.steps}
    assert blues(figure)[0] == len(proof.facts)
    assert_legible(figure)


# ------------------------------------------------------------------ runs


def trajectory_of(states, program=None):
    torch = pytest.importorskip("torch")
    return lg.operator.Trajectory(torch.tensor(states, dtype=torch.float32), program)


def test_a_heat_map_has_the_values_sorted_by_the_step_they_pass_one_half():
    program = lg.parse("c :- b. b :- a. #external d.")
    states = [[0, 0, 1, 0], [0, 0.7, 1, 0.1], [0.8, 0.9, 1, 0.2]]
    figure = plot.trajectory(trajectory_of(states, program))
    image = figure.axes[0].images[0].get_array()
    order = ["a", "b", "c", "d"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == order
    columns = [program.index[name] for name in order]
    np.testing.assert_allclose(image, np.array(states)[:, columns].T, rtol=1e-6)
    (marks,) = figure.axes[0].collections
    assert [segment[0][0] for segment in marks.get_segments()] == [-0.5, 0.5, 1.5]
    assert_legible(figure)


def test_a_heat_map_of_chosen_atoms_keeps_their_order():
    program = lg.parse("b :- a. c :- b.")
    figure = plot.trajectory(trajectory_of([[0, 1, 0], [1, 1, 0]], program), names=["c", "a"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["c", "a"]
    with pytest.raises(lg.errors.FactsError, match="names name an atom"):
        plot.trajectory(trajectory_of([[0, 1, 0]], program), names=["x"])


@pytest.mark.quick_first
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 0), (500, 2), (5, 90), (9000, 1)])
def test_runs_of_any_size_are_legible(shape):
    rng = np.random.default_rng(0)
    states = np.sort(rng.random(shape), axis=0)
    assert_legible(plot.trajectory(trajectory_of(states.tolist() if shape[1] else states)))


def test_only_what_moves_is_shown_of_many_atoms():
    states = np.zeros((3, 200))
    states[1:, :5] = 1.0
    figure = plot.trajectory(trajectory_of(states))
    assert len(figure.axes[0].get_yticklabels()) == 5
    assert "5 atoms (of 200)" in figure.axes[0].get_title(loc="left")


def test_a_batch_is_refused():
    with pytest.raises(lg.errors.StateError, match="one trajectory"):
        plot.trajectory(trajectory_of(np.zeros((2, 3, 4))))


# ------------------------------------------------------------------ windows and gradients


def certificate_of(program, constants, **options):
    return certify_closed_form(program, [constants], **options)


def lines_of(figure):
    return {line.get_label(): line.get_xydata() for line in figure.axes[0].get_lines()}


def test_a_window_shows_the_bound_and_the_promise():
    program = lg.generators.clique(20)
    certificate = certificate_of(program, lg.Constants.paper())
    paper = paper_window(program)
    figure = plot.window(certificate, paper=paper)
    lines = lines_of(figure)
    (ours,) = (xy for label, xy in lines.items() if label.startswith("proved"))
    np.testing.assert_allclose(ours, certificate.curve[1:])
    (theirs,) = (xy for label, xy in lines.items() if label.startswith("stated in the paper"))
    assert theirs[-1, 0] == pytest.approx(paper.t_max)
    assert theirs[-1, 1] > 0.5 > ours[-1, 1] - 1e-9  # where the promise ends it is broken
    assert {figure.axes[0].get_xscale(), figure.axes[0].get_yscale()} == {"log"}
    assert f"{certificate.t_max:,.0f}" in " ".join(lines)


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "program",
    [lg.parse(""), lg.parse("a."), BIRDS, lg.generators.clique(80)],
    ids=["empty", "fact", "birds", "leaks"],
)
@pytest.mark.parametrize("constants", ["paper", "certified"])
@pytest.mark.parametrize("bump", [False, True])
def test_every_window_can_be_drawn(program, constants, bump):
    chosen = lg.Constants.paper() if constants == "paper" else lg.Constants.certified(program)
    certificate = certificate_of(program, chosen, bump=bump)
    figure = plot.window(certificate, paper=paper_window(program, chosen))
    texts = " ".join(text for text, _ in drawn_texts(figure))
    assert ("No window" in texts) is not certificate.holds
    rises = any(bound > 0 for step, bound in certificate.curve if step >= 1)
    assert ("stay at 0" in texts) is not rises
    plot.window(certificate)


# ------------------------------------------------------------------ figures in a page


def test_an_inline_figure_has_text_ids_of_its_own_and_the_colours_of_the_page():
    figure = plot.program(BIRDS, highlight=["bird"])
    text = plot.inline_svg(figure, "birds", "rules <of> birds")
    assert text == plot.inline_svg(plot.program(BIRDS, highlight=["bird"]), "birds", "rules <of> birds")  # fmt: skip
    assert text.startswith("<svg viewBox=")
    assert "rules &lt;of&gt; birds" in text
    assert ">feathers</text>" in text
    assert "http" not in text
    ids = set(re.findall(r'\bid="([^"]+)"', text))
    assert all(one.startswith("birds-") for one in ids)
    assert {f"birds-atom-{i}" for i in range(BIRDS.M)} <= ids
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= ids
    assert not re.search(r"#[0-9a-f]{6}\b", text)  # every colour is a variable
    assert "var(--sky)" in text


def test_the_page_defines_every_colour_of_the_plots():
    css = (Path(plot.__file__).parents[1] / "paper" / "style.css").read_text()
    light = css[: css.index("@media")]
    for colour, variable in CSS_VARIABLES.items():
        assert f"{variable}: {colour};" in light
        assert css.count(f"{variable}: ") == 2  # light and dark


# ------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_the_suffix_decides_the_format(tmp_path, suffix, start):
    path = tmp_path / f"picture.{suffix}"
    plot.program(BIRDS, path)
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["picture", "picture.xyz", "picture.png.lp"])
def test_a_suffix_that_says_nothing_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"\.png"):
        plot.program(BIRDS, tmp_path / name)


@pytest.mark.slow
def test_pictures_leave_no_trace(tmp_path):
    code = """
import sys, matplotlib
before = matplotlib.rcParams.copy()
import latentgamma as lg
lg.plot.program(lg.parse("a :- b, c."), sys.argv[1])
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.png")], check=True)


# ------------------------------------------------------------------ learning


def test_a_learning_curve_shows_every_report(tmp_path):
    states = np.random.default_rng(0).random((100, 8)) < 0.4
    after = np.stack([BIRDS.mask(lg.logic.step(BIRDS, BIRDS.mask(row.nonzero()[0]))) for row in
                      np.pad(states, ((0, 0), (0, BIRDS.M - 8)))])  # fmt: skip
    result = lg.fit(np.pad(states, ((0, 0), (0, BIRDS.M - 8))), after, atoms=BIRDS.atoms)
    figure = plot.learning(result, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    upper, lower = figure.axes
    assert upper.lines[0].get_ydata().tolist() == [m.explained for m in result.history]
    assert lower.lines[0].get_ydata().tolist() == [m.rules for m in result.history]
    assert any(f"{result.accuracy:.3f}" in text for text, _ in drawn_texts(figure))
    assert_legible(figure)
    assert_legible(plot.learning(lg.fit([[0]], [[0]])))


def test_a_count_is_one_box_that_its_literals_lead_to():
    from matplotlib.patches import FancyArrowPatch

    program = lg.parse("p :- 2 { a; b; not c }, not d. :- p, e.")
    arrows = {}
    for name, figure in {
        "program": plot.program(program, highlight=lg.closure(program, ["a", "b"])),
        "proof": plot.derivation(lg.derivation(program, ["a", "b"], "p")),
    }.items():
        texts = {text for text, _ in drawn_texts(figure)}
        assert "at least 2 of 3" in texts
        assert not any("#count" in text for text in texts)
        arrows[name] = len(figure.findobj(FancyArrowPatch))
    # From a, b and c to the count, and to p and the requirement; from the count's proof, and to p.
    assert arrows == {"program": 5, "proof": 2}
    proof = lg.derivation(lg.parse("q :- a, not 2 { c; d }."), ["a"], "q")
    texts = {text for text, _ in drawn_texts(plot.derivation(proof))}
    assert not any("#count" in text for text in texts)
    assert len(texts & {"q", "a"}) == 2
