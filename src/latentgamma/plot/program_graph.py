"""Graphs of programs and proofs: boxes for atoms, lines for rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from latentgamma._errors import ProgramError, unknown_atoms
from latentgamma._program.program import Program, require_program
from latentgamma.plot.figure import (
    BLUE,
    FONT_SIZE,
    GREY,
    INK,
    PALE,
    PAPER,
    SKY,
    SMALL_FONT_SIZE,
    OutputPath,
    count_text,
    new_figure,
    save_figure,
    short_name,
    text_width,
)
from latentgamma.plot.graph_layout import layered_layout
from latentgamma.plot.wrapping import GraphLayout, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.path import Path as Curve

    from latentgamma._layer.explanation import Answer
    from latentgamma._logic.derivation import Derivation

#: Up to this many atoms are boxes with names; beyond, they are dots.
_LABELLED_ATOMS = 160
#: A program with more literals than this is not drawn.
_MOST_LITERALS = 20_000


@dataclass(frozen=True)
class _Drawing:
    """A program, its layout, and the atoms that are highlighted."""

    program: Program
    layout: GraphLayout
    highlighted: frozenset[int]
    scale: float

    def fires(self, rule: int) -> bool:
        """Whether all atoms of a rule are highlighted, and none that it negates."""
        literals = self.program.literals_of(rule).tolist()
        members = [i for i in literals if i >= 0] + self.program.heads_of(rule).tolist()
        denied = [~i for i in literals if i < 0]
        return self.highlighted.issuperset(members) and self.highlighted.isdisjoint(denied)


def program(program: Program, path: OutputPath = None, *, highlight: Iterable[str] = ()) -> Figure:
    """The dependency graph of a program, in layers from left to right.

    A line leads from a body to its head, dashed from a negated atom; the lines of a rule with
    several body atoms or several heads meet in a dot. A long graph is wrapped: where a line leaves a row on the right, it
    continues in the next row on the left. A large program is drawn without names.

    >>> import latentgamma as lg
    >>> figure = lg.plot.program(lg.parse("bird :- penguin. animal :- bird."), highlight=["bird"])
    >>> figure.texts[0].get_text()
    '3 atoms, 2 rules'

    Args:
        program: any program.
        path: the file to save the picture to, with the suffix of a picture format, or None.
        highlight: the names of atoms to highlight, for example a `Closure`; rules that hold
            where just these atoms do are highlighted too.

    Returns:
        The matplotlib figure.

    Raises:
        FactsError: `highlight` has a name that the program does not have.
        ProgramError: this is not a program, or it is too large to draw.
        ArgumentError: matplotlib cannot write a file with this suffix.
    """
    require_program(program, "plot.program")
    chosen = set(highlight)
    if unknown := chosen - program.index.keys():
        raise unknown_atoms(unknown, program.atoms, what="highlight")
    size = f"{count_text(program.M, 'atom')}, {count_text(program.R, 'rule')}"
    return save_figure(_draw(program, chosen, "highlighted", size), path)


def derivation(proof: Derivation, path: OutputPath = None) -> Figure:
    """The graph of a proof, from its facts on the left to its atom.

    >>> import latentgamma as lg
    >>> proof = lg.derivation(lg.parse("bird :- penguin. animal :- bird."), ["penguin"], "animal")
    >>> lg.plot.derivation(proof).texts[0].get_text()
    'animal, 2 steps from the facts'

    Args:
        proof: what `lg.derivation` returned.
        path: the file to save the picture to, with the suffix of a picture format, or None.

    Returns:
        The matplotlib figure.

    Raises:
        ProgramError: the proof is too large to draw.
        ArgumentError: matplotlib cannot write a file with this suffix.
    """
    rules = [((step.atom,), step.premises) for step in proof.steps if step.rule is not None]
    used = Program.from_rules(rules, atoms=[step.atom for step in proof.steps])
    title = f"{short_name(proof.atom, 60)}, {count_text(proof.depth, 'step')} from the facts"
    return save_figure(_draw(used, set(proof.facts), "given", title), path)


def explanation(answer: Answer, path: OutputPath = None) -> Figure:
    """The graph of an answer's proof, with the inputs that would have to change highlighted.

    >>> import torch
    >>> import latentgamma as lg
    >>> layer = lg.Layer(lg.parse("bird :- penguin. animal :- bird."), "penguin", "animal")
    >>> answer = layer.explain(torch.tensor(0.9)).answers[0]
    >>> lg.plot.explanation(answer).texts[0].get_text()
    'animal is true, at 0.9'

    Args:
        answer: one of `layer.explain(example).answers`.
        path: the file to save the picture to, with the suffix of a picture format, or None.

    Returns:
        The matplotlib figure.

    Raises:
        ProgramError: the explanation has no proof to draw, or the proof is too
            large to draw.
        ArgumentError: matplotlib cannot write a file with this suffix.
    """
    if answer.proof is None:
        raise ProgramError(f"the explanation of {answer.atom!r} has no proof to draw")
    steps = answer.proof.steps
    rules = [((step.atom,), step.premises) for step in steps if step.rule is not None]
    changes = {change.atom for change in (*answer.changes, *answer.alone)}
    used = Program.from_rules(rules, atoms=[step.atom for step in steps])
    label = f"changes that make {answer.effect}"
    return save_figure(_draw(used, changes & set(used.atoms), label, answer.title), path)


def _draw(program: Program, chosen: set[str], label: str, title: str) -> Figure:
    if program.size > _MOST_LITERALS:
        raise ProgramError(
            f"a program of {program.size:,} literals is too large to draw (at most "
            f"{_MOST_LITERALS:,}); draw a derivation or some of its rules"
        )
    figure = new_figure(1.0, 1.0)
    labelled = program.M <= _LABELLED_ATOMS
    labels = [short_name(name) for name in program.atoms] if labelled else []
    widths = [text_width(text) + 0.22 for text in labels] if labelled else [0.07] * program.M
    row, gap = (0.36, 0.3) if labelled else (0.1, 0.25)
    layout = layered_layout(program, widths, row=row, gap=gap, wrap=True)
    # A larger picture is scaled down.
    scale = min(1.0, 40.0 / max(layout.width, layout.height, 1.0))
    highlighted = frozenset(i for i, name in enumerate(program.atoms) if name in chosen)
    drawing = _Drawing(program, layout, highlighted, scale)
    key = _legend(program, chosen, label) if labelled else []
    margin, top, bottom = 0.25, 0.55, 0.5 if key else 0.2
    width = max(layout.width * scale, text_width(title, 11.0), 3.6) + 2 * margin
    height = layout.height * scale + top + bottom
    figure.set_size_inches(width, height)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-margin / scale, (width - margin) / scale)
    axes.set_ylim(-bottom / scale, (height - bottom) / scale)
    axes.axis("off")
    for on in (False, True):
        _draw_rules(axes, drawing, labelled=labelled, on=on)
    if labelled:
        _draw_boxes(axes, drawing, labels, widths)
    else:
        _draw_dots(axes, drawing)
    figure.text(margin / width, 1 - 0.2 / height, title, ha="left", va="top", fontsize=11,
                color=INK, parse_math=False)  # fmt: skip
    if key:
        figure.legend(handles=key, loc="lower left", bbox_to_anchor=(margin / width, 0.2 / height),
                      ncols=len(key), frameon=False, fontsize=SMALL_FONT_SIZE, handlelength=1.4, borderpad=0,
                      borderaxespad=0, columnspacing=1.4, labelcolor=INK)  # fmt: skip
    return figure


def _draw_rules(axes: Axes, drawing: _Drawing, *, labelled: bool, on: bool) -> None:
    """Draw the rules that are highlighted, or those that are not: lines, arrows and junctions."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    colour, width = (BLUE, 1.4) if on else (GREY, 0.8)
    scale, layout = drawing.scale, drawing.layout
    edges = [edge for edge in layout.edges if drawing.fires(edge.rule) is on]
    for negated in (False, True):
        # Edges share segments; drawn once, all lines have the same opacity.
        segments = dict.fromkeys(
            pair for edge in edges if edge.negated is negated for pair in pairwise(edge.points)
        )
        curves = [_curve(start, end) for start, end in segments if start != end]
        if curves:
            axes.add_patch(
                PathPatch(Curve.make_compound_path(*curves), fill=False, edgecolor=colour,
                          linewidth=width * scale, alpha=1.0 if labelled else 0.35, zorder=1 + on,
                          linestyle="--" if negated else "-", clip_on=False)
            )  # fmt: skip
    for edge in edges if labelled else ():
        if edge.arrow > 0:
            _draw_arrow(axes, edge.points[-1], edge.points[-2], colour, scale)
        elif edge.arrow < 0:
            _draw_arrow(axes, edge.points[0], edge.points[1], colour, scale)
    dots = [point for j, point in layout.junctions.items() if drawing.fires(j) is on]
    size = (14 if labelled else 2) * scale**2
    axes.scatter([x for x, _ in dots], [y for _, y in dots], s=size, c=colour, zorder=3,
                 linewidths=0)  # fmt: skip


def _draw_arrow(axes: Axes, tip: Point, tail: Point, colour: str, scale: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    start = tip[0] + math.copysign(0.02, tail[0] - tip[0]), tip[1]
    axes.add_patch(
        FancyArrowPatch(start, tip, arrowstyle="-|>", mutation_scale=8 * scale, shrinkA=0,
                        shrinkB=0, color=colour, linewidth=0.5 * scale, zorder=3)
    )  # fmt: skip


def _curve(start: Point, end: Point) -> Curve:
    """A curve between two points, horizontal at both."""
    from matplotlib.path import Path as Curve

    middle = (start[0] + end[0]) / 2
    points = [start, (middle, start[1]), (middle, end[1]), end]
    return Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])


def _draw_boxes(
    axes: Axes, drawing: _Drawing, labels: Sequence[str], widths: Sequence[float]
) -> None:
    from matplotlib.patches import FancyBboxPatch

    for i, (x, y) in enumerate(drawing.layout.atoms):
        face, line, width = _box_style(drawing.program, i, drawing.highlighted)
        axes.add_patch(
            FancyBboxPatch((x - widths[i] / 2, y - 0.11), widths[i], 0.22, facecolor=face,
                           edgecolor=line, linewidth=width * drawing.scale, zorder=4,
                           boxstyle="round,pad=0,rounding_size=0.06", gid=f"atom-{i}")
        )  # fmt: skip
        axes.text(x, y - 0.005, labels[i], ha="center", va="center", color=INK, zorder=5,
                  fontsize=FONT_SIZE * drawing.scale, parse_math=False)  # fmt: skip


def _draw_dots(axes: Axes, drawing: _Drawing) -> None:
    points = drawing.layout.atoms
    colours = [BLUE if i in drawing.highlighted else INK for i in range(len(points))]
    axes.scatter([x for x, _ in points], [y for _, y in points], s=5, c=colours, zorder=4,
                 linewidths=0, gid="atoms")  # fmt: skip


def _box_style(program: Program, i: int, highlighted: frozenset[int]) -> tuple[str, str, float]:
    """The fill, the border and its width of an atom's box."""
    stated = program.atoms[i] in program.facts
    line = BLUE if i in highlighted else INK if stated else GREY
    root = program.rules_per_head[i] == 0
    face = SKY if i in highlighted else PALE if root else PAPER
    return face, line, 1.8 if stated else 0.9


def _legend(program: Program, chosen: set[str], label: str) -> list[Patch | Line2D]:
    """The styles of boxes and lines that occur, and their meaning."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Patch | Line2D] = []
    if chosen:
        entries.append(Patch(facecolor=SKY, edgecolor=BLUE, label=label))
    if not chosen.issuperset(program.underivable):
        entries.append(Patch(facecolor=PALE, edgecolor=GREY, label="has no rules"))
    if program.facts:
        stated = Patch(facecolor=PAPER, edgecolor=INK, linewidth=1.8, label="stated as a fact")
        entries.append(stated)
    if not program.definite:
        entries.append(Line2D([], [], color=GREY, linewidth=0.8, linestyle="--", label="negated"))
    return entries
