"""Positions of the atoms and rules of a program, in layers from left to right.

The four steps of Sugiyama's method: give every node a layer by its longest path, add waypoints
where an edge passes a layer, order each layer by the mean of its neighbours, and place every node
as near to its neighbours as the others allow. It is written here because networkx has no layered
layout that avoids crossings, and Graphviz is a program that pip does not install.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from latentgamma._program.program import Program
from latentgamma.plot.wrapping import Edge, GraphLayout, Point, wrapped

#: With more waypoints than this, edges are straight lines.
_MOST_WAYPOINTS = 6_000
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
    """The layout of a program whose atoms are boxes of these widths.

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
        width.append(0.0)
        links += [_linked(j, _atom(i), node, layer, 0, negated=i < 0) for i in body]
        links += [_linked(j, node, i, layer, 1) for i in heads]
    real = len(layer)
    chains = _passing(links, layer, width)
    linked = {node for chain in chains for node in chain}
    order = _ordered(layer, chains, linked)
    space = [row] * program.M + [0.55 * row] * (real - program.M)
    space += [0.4 * row] * (len(layer) - real)
    y = _settled(order, chains, space)
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
    shelf, down = _shelved(alone, widths, drawn.width, row=row, gap=gap)
    atoms = [shelf[i] if i in shelf else (u, v + down) for i, (u, v) in enumerate(drawn.atoms)]
    return GraphLayout(
        tuple(atoms),
        {j: (u, v + down) for j, (u, v) in drawn.junctions.items()},
        tuple(_raised(edge, down) for edge in drawn.edges),
        max([drawn.width, *(shelf[i][0] + widths[i] / 2 for i in alone)]),
        drawn.height + down,
    )


def _shelved(
    alone: list[int], widths: Sequence[float], right: float, *, row: float, gap: float
) -> tuple[dict[int, Point], float]:
    """Places for atoms that no rule connects, in lines below the others, and their height."""
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


def _raised(edge: Edge, up: float) -> Edge:
    return replace(edge, points=tuple((x, y + up) for x, y in edge.points))


def _rules_to_draw(program: Program) -> list[tuple[int, list[int], list[int]]]:
    """The rules that say something, each once, as literals and heads: facts are drawn at their atom."""
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
    """The longest path to each atom, over the edges that close no cycle."""
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
    # It closes a cycle, and is drawn backwards.
    return _Link(rule, end, start, -arrow, False, negated)


def _passing(links: list[_Link], layer: list[int], width: list[float]) -> list[list[int]]:
    """The nodes each link runs through; adds places in the layers it passes, if they are few.

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


def _ordered(layer: list[int], chains: list[list[int]], linked: set[int]) -> list[list[int]]:
    """The nodes of each layer from bottom to top, with few crossings."""
    before, after = _neighbours(chains, len(layer))
    rows: dict[int, list[int]] = {}
    for node in sorted(linked):
        rows.setdefault(layer[node], []).append(node)
    order = [rows[number] for number in sorted(rows)]
    place = _places(order, len(layer))
    best, fewest = [list(row) for row in order], _crossings(order, after, place)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        near = before if forwards else after
        for row in order if forwards else reversed(order):
            mean = {n: _mean([place[m] for m in near[n]], place[n]) for n in row}
            row.sort(key=mean.__getitem__)
            for rank, node in enumerate(row):
                place[node] = (rank + 0.5) / len(row)
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


def _places(order: list[list[int]], count: int) -> list[float]:
    place = [0.0] * count
    for row in order:
        for rank, node in enumerate(row):
            place[node] = (rank + 0.5) / len(row)
    return place


def _crossings(order: list[list[int]], after: list[list[int]], place: list[float]) -> int:
    """The number of pairs of lines that cross between two layers."""
    total = 0
    for row in order:
        ends: list[float] = []
        for node in row:
            arriving = sorted(place[m] for m in after[node])
            total += sum(len(ends) - bisect_left(ends, end + 1e-12) for end in arriving)
            for end in arriving:
                insort(ends, end)
    return total


def _settled(order: list[list[int]], chains: list[list[int]], space: list[float]) -> list[float]:
    """The height of every node: near its neighbours, in order, and apart from the next one."""
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
    """The middle of each layer, and how wide it is."""
    column = {layer[row[0]]: max(width[n] for n in row) for row in order}
    x: dict[int, float] = {}
    edge = 0.0
    for number, wide in column.items():
        x[number] = edge + wide / 2
        edge += wide + gap
    return x, column


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default
