"""Draws a program as a graph."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from latentgamma._text import quantity, shortened
from latentgamma.errors import ProgramError, unknown_atoms
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
    new_figure,
    save_figure,
    short_name,
    text_width,
)
from latentgamma.program.counting import counts_of, written_program
from latentgamma.program.names import split_count
from latentgamma.program.program import Program, Rule, require_program

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.path import Path as Curve

    from latentgamma.layer.explain import Answer
    from latentgamma.logic.proof import Derivation


# ---- Layouts of graphs, and the cutting of a long one into rows

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

    def moved(self, place: Callable[[Point], Point]) -> GraphLayout:
        """Return the layout with every point at its new place."""
        return replace(
            self,
            atoms=tuple(map(place, self.atoms)),
            junctions={j: place(point) for j, point in self.junctions.items()},
            edges=tuple(replace(e, points=tuple(map(place, e.points))) for e in self.edges),
        )


def wrapped(
    layout: GraphLayout, gaps: Sequence[float], linked: frozenset[int], *, margin: float, row: float
) -> GraphLayout:
    """Return the same graph in rows one below the other, if it is much wider than high.

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
            edges.append(replace(edge, points=tuple(part), arrow=arrow))
    width = max(end - start for start, end in zip(starts, ends, strict=True)) + margin
    cut = replace(layout, edges=tuple(edges), width=width, height=height - row)
    return cut.moved(place)


# ---- Positions of the atoms and rules of a program, in layers from left to right
# The four steps of Sugiyama's method: give every node a layer by its longest path, add waypoints
# where an edge passes a layer, order each layer by the mean of its neighbours, and place every node
# as near to its neighbours as the others allow. It is written here because networkx has no layered
# layout that avoids crossings, and Graphviz is a program that pip does not install.

#: With more waypoints than this, edges are straight lines.
_MOST_WAYPOINTS = 6_000
#: The width of a junction.
_DOT = 0.05
#: How often the layers are ordered and their nodes placed, alternately from both sides.
_SWEEPS = 12


@dataclass(frozen=True)
class _Link:
    """An edge between nodes, from the lower layer to the higher."""

    rule: int
    low: int
    high: int
    arrow: int
    forwards: bool
    negated: bool


def layered_layout(
    program: Program, widths: Sequence[float], *, row: float, gap: float, wrap: bool = False
) -> GraphLayout:
    """Return the layout of a program whose atoms are boxes of these widths.

    Args:
        program: what to draw.
        widths: the width of each atom's box, in inches.
        row: the distance of two boxes in a layer.
        gap: the distance of two layers, for the lines between them.
        wrap: whether a long graph is cut into rows, one below the other.
    """
    rules = _rules_to_draw(program)
    level = _levels(program.M, rules)
    layer = [2 * one for one in level]  # atoms in the even layers, junctions in the odd ones
    width = list(widths)
    junctions: dict[int, int] = {}
    links: list[_Link] = []
    for j, body, heads in rules:
        if len(body) == 1 and len(heads) == 1:
            links.append(_linked(j, _atom(body[0]), heads[0], layer, 1, negated=body[0] < 0))
            continue
        node = junctions[j] = len(layer)
        layer.append(min(layer[i] for i in heads) - 1)
        width.append(_DOT)
        links += [_linked(j, _atom(i), node, layer, 0, negated=i < 0) for i in body]
        links += [_linked(j, node, i, layer, 1) for i in heads]
    real = len(layer)
    chains = _passing(links, layer, width)
    linked = {node for chain in chains for node in chain}
    order = _order_layers(layer, chains, linked)
    space = [row] * program.M + [0.55 * row] * (real - program.M)
    space += [0.4 * row] * (len(layer) - real)
    y = _heights(order, chains, space)
    x, column = _columns(order, layer, width, gap)
    for node in range(real, len(layer)):
        width[node] = column[layer[node]]  # a passing line runs straight through its layer
    edges = []
    for link, chain in zip(links, chains, strict=True):
        points = []
        for place, node in enumerate(chain):
            if place:
                points.append((x[layer[node]] - width[node] / 2, y[node]))
            if place < len(chain) - 1:
                points.append((x[layer[node]] + width[node] / 2, y[node]))
        edges.append(Edge(link.rule, tuple(points), link.arrow, link.negated))
    right = max((x[number] + column[number] / 2 for number in x), default=0.0)
    high = max([y[node] + space[node] / 2 for node in linked], default=0.0)
    drawn = GraphLayout(
        tuple((x[layer[i]], y[i]) if i in linked else (0.0, 0.0) for i in range(program.M)),
        {j: (x[layer[node]], y[node]) for j, node in junctions.items()},
        tuple(edges),
        right,
        high,
    )
    if wrap:
        in_graph = frozenset(i for i in linked if i < program.M)
        gaps = [left + column[number] / 2 + gap / 2 for number, left in x.items()][:-1]
        drawn = wrapped(drawn, gaps, in_graph, margin=0.4 * gap, row=row)
    alone = [i for i in range(program.M) if i not in linked]
    shelf, down = _unconnected_places(alone, widths, drawn.width, row=row, gap=gap)

    moved = drawn.moved(lambda point: (point[0], point[1] + down))
    return replace(
        moved,
        atoms=tuple(shelf.get(i, point) for i, point in enumerate(moved.atoms)),
        width=max([drawn.width, *(shelf[i][0] + widths[i] / 2 for i in alone)]),
        height=drawn.height + down,
    )


def _unconnected_places(
    alone: list[int], widths: Sequence[float], right: float, *, row: float, gap: float
) -> tuple[dict[int, Point], float]:
    """Return places below the others for atoms that no rule connects, and their height."""
    reach = max(right, 6.0, 1.5 * sum(widths[i] + gap for i in alone) ** 0.5)
    lines: list[list[int]] = []
    x: dict[int, float] = {}
    edge = reach
    for i in alone:
        if not lines or edge + widths[i] > reach:
            lines.append([])
            edge = 0.0
        lines[-1].append(i)
        x[i] = edge + widths[i] / 2
        edge += widths[i] + gap / 2
    height = row * len(lines)
    return {
        i: (x[i], height - (n + 0.5) * row) for n, line in enumerate(lines) for i in line
    }, height


def drawn_program(program: Program) -> tuple[Program, int]:
    """Return what is drawn of a program, and how many of its rules are written in the program.

    A count is one atom, with a line from each of its literals; the atoms and rules that it is
    compiled into are left out. All other atoms and rules keep their numbers.

    >>> from latentgamma import parse
    >>> print(drawn_program(parse("p :- 2 { a; b; not c }."))[0])
    p :- 2 { a; b; not c }.
    '2 { a; b; not c }' :- a.
    '2 { a; b; not c }' :- b.
    '2 { a; b; not c }' :- not c.
    """
    written = written_program(program)
    if written is program:
        return program, program.R
    rules = list(written.rules)
    for i, (_, atoms, negated) in counts_of(program).items():
        name = program.atoms[i]
        rules += [Rule((name,), frozenset({one})) for one in atoms]
        rules += [Rule((name,), frozenset(), frozenset({one})) for one in negated]
    shown = np.flatnonzero(~program.auxiliary).tolist()
    return Program.from_rules(rules, atoms=[program.atoms[i] for i in shown]), written.R


def atom_label(name: str) -> str:
    """Return the text in the box of an atom.

    >>> atom_label("2 { a; b; c }"), atom_label(":- a, b"), atom_label("night train")
    ('at least 2 of 3', ':- a, b', "'night train'")
    """
    if (count := split_count(name)) is not None:
        bound, atoms, negated = count
        return f"at least {bound} of {len(atoms) + len(negated)}"
    return shortened(name, 28) if name.startswith(":- ") else short_name(name)


def _rules_to_draw(program: Program) -> list[tuple[int, list[int], list[int]]]:
    """Return the different rules as literals and heads; facts are drawn at their atom."""
    seen = set()
    rules = []
    for j in range(program.R):
        body = program.literals_of(j).tolist()
        held = set(body)
        heads = [i for i in program.heads_of(j).tolist() if i not in held]
        key = tuple(body), tuple(heads)
        if body and heads and key not in seen:
            seen.add(key)
            rules.append((j, body, heads))
    return rules


def _levels(M: int, rules: list[tuple[int, list[int], list[int]]]) -> list[int]:
    """Return the longest path to each atom, over the edges that close no cycle."""
    following: list[list[int]] = [[] for _ in range(M)]
    derived = [False] * M
    for _, body, heads in rules:
        for i in body:
            following[_atom(i)] += heads
        for i in heads:
            derived[i] = True
    state = [0] * M  # 0 new, 1 on the path, 2 done
    forward: list[list[int]] = [[] for _ in range(M)]
    finished = []
    for start in sorted(range(M), key=lambda i: derived[i]):
        path = [(start, iter(following[start]))] if state[start] == 0 else []
        state[start] = state[start] or 1
        while path:
            i, rest = path[-1]
            for head in rest:
                if state[head] != 1:
                    forward[i].append(head)
                if state[head] == 0:
                    state[head] = 1
                    path.append((head, iter(following[head])))
                    break
            else:
                state[i] = 2
                finished.append(i)
                path.pop()
    level = [0] * M
    for i in reversed(finished):
        for head in forward[i]:
            level[head] = max(level[head], level[i] + 1)
    # What nothing leads to stands right before its first use, not far to the left of it.
    sources = set(range(M)) - {head for heads in forward for head in heads}
    for i in sources:
        level[i] = min((level[head] - 1 for head in forward[i]), default=level[i])
    return level


def _atom(literal: int) -> int:
    return ~literal if literal < 0 else literal


def _linked(
    rule: int, start: int, end: int, layer: list[int], arrow: int, *, negated: bool = False
) -> _Link:
    if layer[start] < layer[end]:
        return _Link(rule, start, end, arrow, True, negated)
    # It closes a cycle: it is drawn backwards, and points at its end also where that is a junction.
    return _Link(rule, end, start, -1, False, negated)


def _passing(links: list[_Link], layer: list[int], width: list[float]) -> list[list[int]]:
    """Return the nodes each link runs through; add places in the layers it passes, if few.

    Links that leave one node in one direction share their way as far as it goes.
    """
    few = sum(layer[a.high] - layer[a.low] - 1 for a in links) <= _MOST_WAYPOINTS
    shared: dict[tuple[int, bool, bool, int], int] = {}
    chains = []
    for link in links:
        start = link.low if link.forwards else link.high
        chain = [link.low]
        for number in range(layer[link.low] + 1, layer[link.high]) if few else ():
            place = shared.setdefault((start, link.forwards, link.negated, number), len(layer))
            if place == len(layer):
                layer.append(number)
                width.append(0.0)
            chain.append(place)
        chains.append([*chain, link.high])
    return chains


def _neighbours(chains: list[list[int]], count: int) -> tuple[list[list[int]], list[list[int]]]:
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    pairs = {pair for chain in chains for pair in pairwise(chain)}
    for a, b in sorted(pairs):
        after[a].append(b)
        before[b].append(a)
    return before, after


def _order_layers(layer: list[int], chains: list[list[int]], linked: set[int]) -> list[list[int]]:
    """Return the nodes of each layer from bottom to top, with few crossings."""
    before, after = _neighbours(chains, len(layer))
    rows: dict[int, list[int]] = {}
    for node in sorted(linked):
        rows.setdefault(layer[node], []).append(node)
    order = [rows[number] for number in sorted(rows)]
    place = [0.0] * len(layer)

    def number(row: list[int]) -> None:
        for rank, node in enumerate(row):
            place[node] = (rank + 0.5) / len(row)

    for row in order:
        number(row)
    best, fewest = [list(row) for row in order], _crossings(order, after, place)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        near = before if forwards else after
        for row in order if forwards else reversed(order):
            mean = {n: _mean([place[m] for m in near[n]], place[n]) for n in row}
            row.sort(key=mean.__getitem__)
            number(row)
        if len(layer) <= _MOST_WAYPOINTS:
            _swap_neighbours(order, before, after, place)
        crossings = _crossings(order, after, place)
        if crossings < fewest:
            best, fewest = [list(row) for row in order], crossings
    return best


def _swap_neighbours(
    order: list[list[int]], before: list[list[int]], after: list[list[int]], place: list[float]
) -> None:
    """Exchange nodes that lie next to each other wherever that takes crossings away."""

    def crossings(low: int, high: int) -> int:
        return sum(
            place[m] > place[n] + 1e-12
            for near in (before, after)
            for m in near[low]
            for n in near[high]
        )

    for row in order:
        for rank in range(len(row) - 1):
            low, high = row[rank : rank + 2]
            if crossings(low, high) > crossings(high, low):
                row[rank : rank + 2] = [high, low]
                place[low], place[high] = place[high], place[low]


def _crossings(order: list[list[int]], after: list[list[int]], place: list[float]) -> int:
    """Return the number of pairs of lines that cross between two layers."""
    total = 0
    for row in order:
        ends: list[float] = []
        for node in row:
            arriving = sorted(place[m] for m in after[node])
            total += sum(len(ends) - bisect_left(ends, end + 1e-12) for end in arriving)
            for end in arriving:
                insort(ends, end)
    return total


def _heights(order: list[list[int]], chains: list[list[int]], space: list[float]) -> list[float]:
    """Return the height of every node: near its neighbours, in order, and apart from others."""
    before, after = _neighbours(chains, len(space))
    y = [0.0] * len(space)
    for row in order:
        _spread(row, y, space, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        for row in order if forwards else reversed(order):
            near = before if forwards else after
            wish = [_mean([y[m] for m in near[n]], y[n]) for n in row]
            _spread(row, y, space, wish)
    for row in order:  # and once with an eye on both sides
        _spread(row, y, space, [_mean([y[m] for m in before[n] + after[n]], y[n]) for n in row])
    low = min((y[n] - space[n] / 2 for row in order for n in row), default=0.0)
    return [value - low for value in y]


def _spread(row: list[int], y: list[float], space: list[float], wish: list[float]) -> None:
    """Give a row the heights nearest to the wishes that keep its order and its distances.

    Least squares under an order is solved by pooling neighbours that are too near.
    """
    offset, total = [], 0.0
    for rank, node in enumerate(row):
        total += (space[row[rank - 1]] + space[node]) / 2 if rank else 0.0
        offset.append(total)
    pools: list[tuple[float, int]] = []  # the sum of the wishes less the offsets, and how many
    for wanted, distance in zip(wish, offset, strict=True):
        pools.append((wanted - distance, 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [(a + b, m + n)]
    level = [value / count for value, count in pools for _ in range(count)]
    for node, base, distance in zip(row, level, offset, strict=True):
        y[node] = base + distance


def _columns(
    order: list[list[int]], layer: list[int], width: list[float], gap: float
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the middle of each layer, and how wide it is."""
    column = {layer[row[0]]: max(width[n] for n in row) for row in order}
    x: dict[int, float] = {}
    edge = 0.0
    for number, wide in column.items():
        x[number] = edge + wide / 2
        edge += wide + gap
    return x, column


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


# ---- Graphs of programs and proofs: boxes for atoms, lines for rules

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
        """Return whether all atoms of a rule are highlighted, and none that it negates."""
        literals = self.program.literals_of(rule).tolist()
        members = [i for i in literals if i >= 0] + self.program.heads_of(rule).tolist()
        denied = [~i for i in literals if i < 0]
        return self.highlighted.issuperset(members) and self.highlighted.isdisjoint(denied)


def program(program: Program, path: OutputPath = None, *, highlight: Iterable[str] = ()) -> Figure:
    """Return the dependency graph of a program, in layers from left to right.

    A line leads from a body to its head, dashed from a negated atom; the lines of a rule with
    several body atoms or several heads meet in a dot. A count such as `2 { a; b; c }` is a box with
    a line from each of its literals. A long graph is wrapped: where a line leaves a row on the right, it
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
    """
    require_program(program, "plot.program")
    chosen = set(highlight)
    if unknown := chosen - program.index.keys():
        raise unknown_atoms(unknown, program.atoms, what="highlight")
    drawn, rules = drawn_program(program)
    size = f"{quantity(drawn.M, 'atom')}, {quantity(rules, 'rule')}"
    return save_figure(_draw(drawn, chosen, "highlighted", size), path)


def derivation(proof: Derivation, path: OutputPath = None) -> Figure:
    """Return the graph of a proof, from its facts on the left to its atom.

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
    """
    used = _rules_of(proof)
    title = f"{short_name(proof.atom, 60)}, {quantity(proof.depth, 'step')} from the facts"
    return save_figure(_draw(used, set(proof.facts), "given", title), path)


def explanation(answer: Answer, path: OutputPath = None) -> Figure:
    """Return the graph of an answer's proof, with the inputs that would have to change highlighted.

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
    """
    if answer.proof is None:
        raise ProgramError(f"the explanation of {answer.atom!r} has no proof to draw")
    changes = {change.atom for change in (*answer.changes, *answer.alone)}
    used = _rules_of(answer.proof)
    label = f"changes that make {answer.effect}"
    return save_figure(_draw(used, changes & set(used.atoms), label, answer.title), path)


def _rules_of(proof: Derivation) -> Program:
    """Return the steps of a proof as a program; a count is proved by some of its literals."""
    used = [s for s in proof.steps if s.premises or s.negated or s.rule is not None]
    names = [step.atom for step in proof.steps]
    names += [name for step in proof.steps for name in step.negated]
    place = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return Program.from_arrays(
        np.cumsum([0, *(len(step.premises) + len(step.negated) for step in used)]),
        [place[name] for step in used for name in (*step.premises, *step.negated)],
        [place[step.atom] for step in used],
        body_negated=[
            negated
            for step in used
            for negated in (*[False] * len(step.premises), *[True] * len(step.negated))
        ],
        atoms=list(place),
    )


def _draw(program: Program, chosen: set[str], label: str, title: str) -> Figure:
    if program.size > _MOST_LITERALS:
        raise ProgramError(
            f"a program of {program.size:,} literals is too large to draw (at most "
            f"{_MOST_LITERALS:,}); draw a derivation or some of its rules"
        )
    figure = new_figure(1.0, 1.0)
    labelled = program.M <= _LABELLED_ATOMS
    labels = [atom_label(name) for name in program.atoms] if labelled else []
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
        colours = [BLUE if i in highlighted else INK for i in range(program.M)]
        x, y = zip(*layout.atoms, strict=True)
        axes.scatter(x, y, s=5, c=colours, zorder=4, linewidths=0,
                     gid="atoms")  # fmt: skip
    figure.text(margin / width, 1 - 0.2 / height, title, ha="left", va="top", fontsize=11,
                color=INK, parse_math=False)  # fmt: skip
    if key:
        figure.legend(handles=key, loc="lower left", bbox_to_anchor=(margin / width, 0.2 / height),
                      ncols=len(key), frameon=False, fontsize=SMALL_FONT_SIZE, handlelength=1.4, borderpad=0,
                      borderaxespad=0, columnspacing=1.4, labelcolor=INK)  # fmt: skip
    return figure


def _draw_rules(axes: Axes, drawing: _Drawing, *, labelled: bool, on: bool) -> None:
    """Draw the rules that are highlighted, or those that are not: lines, arrows and junctions."""
    from matplotlib.patches import FancyArrowPatch, PathPatch
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
        if edge.arrow == 0:
            continue
        tip, tail = edge.points[-2:][::-1] if edge.arrow > 0 else edge.points[:2]
        start = tip[0] + math.copysign(0.02, tail[0] - tip[0]), tip[1]
        axes.add_patch(
            FancyArrowPatch(start, tip, arrowstyle="-|>", mutation_scale=8 * scale, shrinkA=0,
                            shrinkB=0, color=colour, linewidth=0.5 * scale, zorder=3)
        )  # fmt: skip
        rule = drawing.program.label(edge.rule)
        to_junction = edge.arrow < 0 and edge.rule in layout.junctions
        if rule is not None and not to_junction:  # an id stands above the arrow
            axes.annotate(rule.id, tip, xytext=(-4, 3), textcoords="offset points", ha="right",
                          fontsize=SMALL_FONT_SIZE * scale, color=colour, zorder=6)  # fmt: skip
    dots = [point for j, point in layout.junctions.items() if drawing.fires(j) is on]
    size = (14 if labelled else 2) * scale**2
    axes.scatter([x for x, _ in dots], [y for _, y in dots], s=size, c=colour, zorder=3,
                 linewidths=0)  # fmt: skip


def _curve(start: Point, end: Point) -> Curve:
    """Return a curve between two points, horizontal at both."""
    from matplotlib.path import Path as Curve

    middle = (start[0] + end[0]) / 2
    points = [start, (middle, start[1]), (middle, end[1]), end]
    return Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])


def _draw_boxes(
    axes: Axes, drawing: _Drawing, labels: Sequence[str], widths: Sequence[float]
) -> None:
    from matplotlib.patches import FancyBboxPatch

    program = drawing.program
    for i, (x, y) in enumerate(drawing.layout.atoms):
        stated, on = program.atoms[i] in program.facts, i in drawing.highlighted
        face = SKY if on else PALE if program.rules_per_head[i] == 0 else PAPER
        line, width = BLUE if on else INK if stated else GREY, 1.8 if stated else 0.9
        axes.add_patch(
            FancyBboxPatch((x - widths[i] / 2, y - 0.11), widths[i], 0.22, facecolor=face,
                           edgecolor=line, linewidth=width * drawing.scale, zorder=4,
                           boxstyle="round,pad=0,rounding_size=0.06", gid=f"atom-{i}")
        )  # fmt: skip
        axes.text(x, y - 0.005, labels[i], ha="center", va="center", color=INK, zorder=5,
                  fontsize=FONT_SIZE * drawing.scale, parse_math=False)  # fmt: skip


def _legend(program: Program, chosen: set[str], label: str) -> list[Patch | Line2D]:
    """Return the styles of boxes and lines that occur, and their meaning."""
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
