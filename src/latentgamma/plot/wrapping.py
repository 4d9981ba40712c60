"""Layouts of graphs, and the cutting of a long one into rows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: A point, in inches.
Point = tuple[float, float]


@dataclass(frozen=True)
class Edge:
    """A line from an atom to a rule's junction or head, by the points it passes.

    `arrow` is +1 where the line points at its last point, −1 at its first, 0 nowhere.
    `negated` says whether the rule needs the atom not to follow.
    """

    rule: int
    points: tuple[Point, ...]
    arrow: int
    negated: bool


@dataclass(frozen=True)
class GraphLayout:
    """A drawing in inches: a centre for every atom, junctions for rules, and edges."""

    atoms: tuple[Point, ...]
    junctions: dict[int, Point]  # by rule: those with several body atoms or several heads
    edges: tuple[Edge, ...]
    width: float
    height: float


def wrapped(
    layout: GraphLayout, gaps: Sequence[float], linked: frozenset[int], *, margin: float, row: float
) -> GraphLayout:
    """The same graph in rows one below the other, if it is much wider than high.

    Args:
        layout: a graph in one row.
        gaps: where it may be cut, from left to right.
        linked: the atoms that are part of the graph.
        margin: how far a line runs on where it leaves a row.
        row: the height of a box with the space around it.
    """
    count = round((layout.width / (1.6 * max(layout.height, row))) ** 0.5)
    if layout.width < 12.0 or count < 2:
        return layout
    cuts: list[float] = []
    for at in gaps:
        if at - (cuts[-1] if cuts else 0.0) >= layout.width / count:
            cuts.append(at)
    starts = [0.0, *cuts]
    points = [layout.atoms[i] for i in linked] + list(layout.junctions.values())
    points += [point for edge in layout.edges for point in edge.points]
    low, high = [math.inf] * len(starts), [-math.inf] * len(starts)
    for x, y in points:
        n = bisect_right(cuts, x)
        low[n], high[n] = min(low[n], y - row / 2), max(high[n], y + row / 2)
    base, height = [0.0] * len(starts), 0.0
    for n in reversed(range(len(starts))):  # the first row is on top
        base[n] = height - low[n]
        height += high[n] - low[n] + row
    ends = [*cuts, layout.width]

    def place(point: Point) -> Point:
        n = bisect_right(cuts, point[0])
        return point[0] - starts[n], point[1] + base[n]

    edges = []
    for edge in layout.edges:
        parts = [[edge.points[0]]]
        for start, end in pairwise(edge.points):
            for n in range(bisect_right(cuts, start[0]), bisect_right(cuts, end[0])):
                parts[-1].append((ends[n] - 1e-9, end[1]))
                parts.append([(starts[n + 1], end[1])])
            parts[-1].append(end)
        for n, part in enumerate(parts):
            arrow = edge.arrow if n == (len(parts) - 1 if edge.arrow > 0 else 0) else 0
            edges.append(Edge(edge.rule, tuple(map(place, part)), arrow, edge.negated))
    return GraphLayout(
        tuple(place(point) if i in linked else point for i, point in enumerate(layout.atoms)),
        {j: place(point) for j, point in layout.junctions.items()},
        tuple(edges),
        max(end - start for start, end in zip(starts, ends, strict=True)) + margin,
        height - row,
    )
