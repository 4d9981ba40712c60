"""The picture of a program: boxes for atoms, lines for rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from latentgamma._errors import ProgramError
from latentgamma._program.program import Program
from latentgamma.plot.figure import BLUE, FONT, GREY, INK, PALE, SKY, new_figure, short, text_width
from latentgamma.plot.graph_layout import Layout, Point, layered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.path import Path as Curve

#: Up to this many atoms are written out; beyond, they are dots.
_LABELLED_ATOMS = 160
#: Nobody could read a picture of more literals than this.
_MOST_LITERALS = 20_000


@dataclass(frozen=True)
class _Drawing:
    """A program, where its parts lie, and which of them are in colour."""

    program: Program
    layout: Layout
    active: frozenset[int]
    scale: float

    def fires(self, rule: int) -> bool:
        """Whether everything a rule connects is in colour."""
        members = (*self.program.body_of(rule).tolist(), *self.program.heads_of(rule).tolist())
        return self.active.issuperset(members)


def graph_picture(program: Program, chosen: set[str], label: str, title: str) -> Figure:
    """A figure of the program, with the chosen atoms and the rules between them in colour."""
    if program.size > _MOST_LITERALS:
        raise ProgramError(
            f"a program of {program.size:,} literals is too large to draw (at most "
            f"{_MOST_LITERALS:,}); draw a derivation, or a part of its rules"
        )
    figure = new_figure(1.0, 1.0)
    named = program.M <= _LABELLED_ATOMS
    labels = [short(name) for name in program.atoms] if named else []
    widths = [text_width(text) + 0.22 for text in labels] if named else [0.07] * program.M
    layout = layered(program, widths, row=0.36 if named else 0.1, gap=0.3 if named else 0.25)
    # A picture no larger than a poster; what would be larger is scaled down as a whole.
    scale = min(1.0, 40.0 / max(layout.width, layout.height, 1.0))
    active = frozenset(i for i, name in enumerate(program.atoms) if name in chosen)
    drawing = _Drawing(program, layout, active, scale)
    key = _key(program, chosen, label) if named else []
    margin, top, bottom = 0.25, 0.55, 0.5 if key else 0.2
    width = max(layout.width * scale, text_width(title, 11.0), 3.6) + 2 * margin
    height = layout.height * scale + top + bottom
    figure.set_size_inches(width, height)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-margin / scale, (width - margin) / scale)
    axes.set_ylim(-bottom / scale, (height - bottom) / scale)
    axes.axis("off")
    for on in (False, True):
        _draw_rules(axes, drawing, named=named, on=on)
    if named:
        _draw_boxes(axes, drawing, labels, widths)
    else:
        _draw_dots(axes, drawing)
    figure.text(margin / width, 1 - 0.2 / height, title, ha="left", va="top", fontsize=11,
                color=INK, parse_math=False)  # fmt: skip
    if key:
        figure.legend(handles=key, loc="lower left", bbox_to_anchor=(margin / width, 0.2 / height),
                      ncols=len(key), frameon=False, fontsize=8, handlelength=1.4, borderpad=0,
                      borderaxespad=0, columnspacing=1.4, labelcolor=INK)  # fmt: skip
    return figure


def _draw_rules(axes: Axes, drawing: _Drawing, *, named: bool, on: bool) -> None:
    """The rules that are in colour, or those that are not: lines, arrows and junctions."""
    from matplotlib.collections import PathCollection

    colour, width = (BLUE, 1.4) if on else (GREY, 0.8)
    scale, layout = drawing.scale, drawing.layout
    edges = [edge for edge in layout.edges if drawing.fires(edge.rule) is on]
    # Edges share parts of their way; drawn once, all lines look equally strong.
    pieces = dict.fromkeys(pair for edge in edges for pair in pairwise(edge.points))
    axes.add_collection(
        PathCollection([_curve(start, end) for start, end in pieces], facecolors="none",
                       edgecolors=colour, linewidths=width * scale,
                       alpha=1.0 if named else 0.35, zorder=1 + on)
    )  # fmt: skip
    for edge in edges if named else ():
        if edge.arrow > 0:
            _draw_tip(axes, edge.points[-1], edge.points[-2], colour, scale)
        elif edge.arrow < 0:
            _draw_tip(axes, edge.points[0], edge.points[1], colour, scale)
    dots = [point for j, point in layout.junctions.items() if drawing.fires(j) is on]
    size = (14 if named else 2) * scale**2
    axes.scatter([x for x, _ in dots], [y for _, y in dots], s=size, c=colour, zorder=3,
                 linewidths=0)  # fmt: skip


def _draw_tip(axes: Axes, tip: Point, tail: Point, colour: str, scale: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    start = tip[0] + math.copysign(0.02, tail[0] - tip[0]), tip[1]
    axes.add_patch(
        FancyArrowPatch(start, tip, arrowstyle="-|>", mutation_scale=8 * scale, shrinkA=0,
                        shrinkB=0, color=colour, linewidth=0.5 * scale, zorder=3)
    )  # fmt: skip


def _curve(start: Point, end: Point) -> Curve:
    """The line between two points, level where it meets them."""
    from matplotlib.path import Path as Curve

    middle = (start[0] + end[0]) / 2
    points = [start, (middle, start[1]), (middle, end[1]), end]
    return Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])


def _draw_boxes(
    axes: Axes, drawing: _Drawing, labels: Sequence[str], widths: Sequence[float]
) -> None:
    from matplotlib.patches import FancyBboxPatch

    for i, (x, y) in enumerate(drawing.layout.atoms):
        face, line, width = _look(drawing.program, i, drawing.active)
        axes.add_patch(
            FancyBboxPatch((x - widths[i] / 2, y - 0.11), widths[i], 0.22, facecolor=face,
                           edgecolor=line, linewidth=width * drawing.scale, zorder=4,
                           boxstyle="round,pad=0,rounding_size=0.06")
        )  # fmt: skip
        axes.text(x, y - 0.005, labels[i], ha="center", va="center", color=INK, zorder=5,
                  fontsize=FONT * drawing.scale, parse_math=False)  # fmt: skip


def _draw_dots(axes: Axes, drawing: _Drawing) -> None:
    points = drawing.layout.atoms
    colours = [BLUE if i in drawing.active else INK for i in range(len(points))]
    axes.scatter([x for x, _ in points], [y for _, y in points], s=5, c=colours, zorder=4,
                 linewidths=0)  # fmt: skip


def _look(program: Program, i: int, active: frozenset[int]) -> tuple[str, str, float]:
    """The fill, the border and its width of an atom's box."""
    stated = program.atoms[i] in program.facts
    line = BLUE if i in active else INK if stated else GREY
    root = program.rules_per_head[i] == 0
    face = SKY if i in active else PALE if root else "white"
    return face, line, 1.8 if stated else 0.9


def _key(program: Program, chosen: set[str], label: str) -> list[Patch]:
    """What the looks of the boxes mean, as far as they occur."""
    from matplotlib.patches import Patch

    entries = []
    if chosen:
        entries.append(Patch(facecolor=SKY, edgecolor=BLUE, label=label))
    if not chosen.issuperset(program.sinks):
        entries.append(Patch(facecolor=PALE, edgecolor=GREY, label="no rule derives it"))
    if program.facts:
        stated = Patch(facecolor="white", edgecolor=INK, linewidth=1.8, label="stated as a fact")
        entries.append(stated)
    return entries
