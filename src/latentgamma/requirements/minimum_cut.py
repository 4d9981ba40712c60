"""The most likely answer that a hierarchy allows, as a minimum cut.

A label that is true makes all labels above it true, so the most likely answer is the closed set of
labels with the largest sum of log-odds. Labels with positive log-odds are sources of a flow, those
with negative log-odds are sinks, and edges lead from each label to those above it, without a limit.
The answer is what the sources reach in the residual graph of a maximum flow (Picard 1976), which
Dinic's algorithm finds.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.program.compilation import Cells, compile_loop, worth_compiling
from latentgamma.program.graph import stated_facts
from latentgamma.program.program import Program

Floats: TypeAlias = npt.NDArray[np.float64]
#: Log-odds beyond this count as this, so that sums of them exist.
_LARGEST = 1e30


def is_hierarchy(program: Program) -> bool:
    """Return whether each rule has at most one literal in its body, and that without `not`."""
    return program.definite and bool((np.diff(program.body_indptr) <= 1).all())


def most_likely_answers(program: Program, logits: Floats) -> npt.NDArray[np.bool_]:
    """Return for each row of log-odds the most likely set of labels that is closed under the rules.

    Where several are as likely, it is the one with the fewest labels.

    Args:
        program: the rules of a hierarchy, over the labels.
        logits: (rows, labels), without NaN.
    """
    L = program.M
    with_body = program.body_sizes == 1
    parent = program.head_indices[np.repeat(with_body, program.head_sizes)]
    child = np.repeat(program.body_indices, program.head_sizes[with_body])
    order = np.argsort(child, kind="stable")
    child, parent = child[order], parent[order]
    up_ptr = np.searchsorted(child, np.arange(L + 1))
    by_parent = np.argsort(parent, kind="stable")
    down_ptr = np.searchsorted(parent[by_parent], np.arange(L + 1))
    h = np.clip(logits, -_LARGEST, _LARGEST)
    forced = np.zeros(L, np.bool_)
    forced[stated_facts(program)] = True
    supply = np.where(forced, np.inf, np.maximum(h, 0.0))
    demand = np.where(forced, 0.0, np.maximum(-h, 0.0))
    out = np.zeros(h.shape, np.bool_)
    of_label = [np.zeros(L, np.int64) for _ in range(5)]
    graph = [up_ptr, parent, down_ptr, by_parent, child]
    arrays = [supply, demand, *graph, np.zeros(len(child)), *of_label, out]
    if worth_compiling(20 * h.shape[0] * (L + len(child))):
        compile_loop(_cut_rows)(*arrays)
        return out
    lists = [a if a.ndim == 2 else a.tolist() for a in arrays]
    for row in range(len(h)):
        one = [a[row : row + 1].tolist() if isinstance(a, np.ndarray) else a for a in lists[:-1]]
        one.append([[False] * L])
        _cut_rows(*one)
        out[row] = one[-1][0]
    return out


def _cut_rows(
    supplies: Cells, demands: Cells, up_ptr: Cells, parent: Cells, down_ptr: Cells, down: Cells,
    child: Cells, flow: Cells, level: Cells, queue: Cells, next_arc: Cells, path: Cells,
    arcs: Cells, out: Cells,
) -> None:  # fmt: skip
    """Fill `out` with what can be reached in the residual graph of a maximum flow, row by row.

    Edge e goes from `child[e]` up to `parent[e]`, without a limit; those of v are `up_ptr[v]` to
    `up_ptr[v + 1]`, and those that end in v are in `down`. Flow can be taken back downwards.
    """
    L = len(level)
    for row in range(len(out)):
        supply, demand = supplies[row], demands[row]
        for e in range(len(flow)):
            flow[e] = 0.0
        while True:
            # The distance of each label from sources with supply left, in the residual graph.
            count = 0
            for v in range(L):
                level[v] = -1
                next_arc[v] = 0
                if supply[v] > 0:
                    level[v] = 0
                    queue[count] = v
                    count += 1
            done, unpaid = 0, False
            while done < count:
                v = queue[done]
                done += 1
                unpaid = unpaid or demand[v] > 0
                for e in range(up_ptr[v], up_ptr[v + 1]):
                    if level[parent[e]] < 0:
                        level[parent[e]] = level[v] + 1
                        queue[count] = parent[e]
                        count += 1
                for k in range(down_ptr[v], down_ptr[v + 1]):
                    e = down[k]
                    if flow[e] > 0 and level[child[e]] < 0:
                        level[child[e]] = level[v] + 1
                        queue[count] = child[e]
                        count += 1
            if not unpaid:
                break
            for first in range(L):
                if level[first] != 0:
                    continue
                length, v = 0, first
                while supply[first] > 0:
                    if demand[v] > 0:  # send as much as the whole path lets through
                        amount = min(supply[first], demand[v])
                        for i in range(length):
                            if arcs[i] < 0:
                                amount = min(amount, flow[~arcs[i]])
                        supply[first] -= amount
                        demand[v] -= amount
                        for i in range(length):
                            if arcs[i] < 0:
                                flow[~arcs[i]] -= amount
                            else:
                                flow[arcs[i]] += amount
                        length, v = 0, first
                        continue
                    ups = up_ptr[v + 1] - up_ptr[v]
                    total = ups + down_ptr[v + 1] - down_ptr[v]
                    to = -1
                    while next_arc[v] < total:
                        if next_arc[v] < ups:
                            e = up_ptr[v] + next_arc[v]
                            if level[parent[e]] == level[v] + 1:
                                to, arcs[length] = parent[e], e
                                break
                        else:
                            e = down[down_ptr[v] + next_arc[v] - ups]
                            if flow[e] > 0 and level[child[e]] == level[v] + 1:
                                to, arcs[length] = child[e], ~e
                                break
                        next_arc[v] += 1
                    if to >= 0:
                        path[length] = v
                        length += 1
                        v = to
                    elif length == 0:
                        break
                    else:
                        length -= 1
                        v = path[length]
                        next_arc[v] += 1
        for v in range(L):
            out[row][v] = level[v] >= 0
