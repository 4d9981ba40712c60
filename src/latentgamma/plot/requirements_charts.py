"""Charts of requirements: which are broken, and what a layer changes in one example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latentgamma._arguments import whole_number
from latentgamma._text import quantity, shortened
from latentgamma.errors import StateError
from latentgamma.plot.figure import (
    BLUE,
    GREY,
    INK,
    LEGEND,
    ORANGE,
    SMALL_FONT_SIZE,
    OutputPath,
    new_axes,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from latentgamma.requirements.layer import RequirementsLayer
    from latentgamma.requirements.requirements import Requirements, Violations


def violations(found: Violations, path: OutputPath = None, *, most: int = 15) -> Figure:
    """Return a bar chart of the requirements that are broken most.

    >>> import latentgamma as lg
    >>> found = lg.Requirements.from_text(":- cat, dog.").check([[1, 1], [1, 1], [0, 1]])
    >>> lg.plot.violations(found).axes[0].get_title(loc="left")
    '2 of 3 rows break 1 of 1 requirement'

    Args:
        found: what `Requirements.check` returned.
        path: the file to save the picture to, with the suffix of a picture format, or None.
        most: the largest number of requirements to show.

    Returns:
        The matplotlib figure.
    """
    counts = found.per_requirement
    chosen = [
        c for c in np.argsort(-counts, kind="stable")[: whole_number("most", most, 1)] if counts[c]
    ]
    figure, axes = new_axes(7.2, 1.2 + 0.28 * max(1, len(chosen)))
    axes.barh(range(len(chosen)), counts[chosen], color=ORANGE, height=0.65)
    req = found.requirements
    names = [f"{shortened(req[c], 48)}  ({req.place(c)})" for c in chosen]
    axes.set_yticks(range(len(chosen)), names)
    axes.invert_yaxis()
    axes.set_xlabel("rows that break it")
    axes.set_title(found.title, loc="left", fontsize=11)
    style_axes(axes)
    return save_figure(figure, path)


def changes(
    layer: RequirementsLayer, example: Tensor, path: OutputPath = None, *, most: int = 30
) -> Figure:
    """Return a chart of the scores of one example before and after a layer of requirements.

    Labels of a hierarchy stand below their parents. Those that change most are chosen, and then
    those that are true.

    >>> import latentgamma as lg, torch
    >>> layer = lg.Requirements.from_edges([("cat", "animal")]).layer(["animal", "cat"])
    >>> lg.plot.changes(layer, torch.tensor([-1.0, 2.0])).axes[0].get_title(loc="left")
    '1 of 2 labels changed, at a cost of 1'

    Args:
        layer: the layer, in training or not; the scores are those of `eval()`.
        example: the log-odds of the labels, without a batch dimension.
        path: the file to save the picture to, with the suffix of a picture format, or None.
        most: the largest number of labels to show.

    Returns:
        The matplotlib figure.
    """
    explained = layer.explain(example)
    before = example.detach().double().cpu().numpy()
    if not np.isfinite(before).all():
        raise StateError("a chart shows log-odds that are finite")
    training = layer.training
    after = layer.eval()(example.detach()).double().cpu().numpy()
    layer.train(training)
    moved = (after > 0) != (before > 0)
    rank = np.lexsort((-np.abs(after - before), ~(after > 0), ~moved))
    order, depth = _tree_order(layer.requirements)
    chosen = set(rank[: whole_number("most", most, 1)].tolist())
    rows = [i for i in order if i in chosen]
    figure, axes = new_axes(7.2, 1.4 + 0.26 * len(rows))
    for y, i in enumerate(rows):
        colour = ORANGE if moved[i] else GREY
        axes.plot([before[i], after[i]], [y, y], color=colour, linewidth=1.5, zorder=1)
    places = np.arange(len(rows))
    axes.scatter(
        before[rows], places, s=22, color="white", edgecolor=INK, label="network", zorder=2
    )
    axes.scatter(after[rows], places, s=22, color=BLUE, label="layer", zorder=3)
    axes.axvline(0, color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
    least = min((depth[i] for i in rows), default=0)
    axes.set_yticks(
        places, ["     " * (depth[i] - least) + shortened(layer.labels[i], 28) for i in rows]
    )
    axes.set_xlabel("log-odds; a label is true above 0")
    axes.invert_yaxis()
    title = str(explained).split("\n", maxsplit=1)[0]
    axes.set_title(title, loc="left", fontsize=11)
    style_axes(axes)
    if any(depth[i] > least for i in rows):  # indented, so all begin at the left
        _align_left(figure, axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **LEGEND)  # beside the data
    hidden = len(layer.labels) - len(rows)
    if hidden:
        text = f"{quantity(hidden, 'label')} not shown"
        figure.supxlabel(text, fontsize=SMALL_FONT_SIZE, color=GREY)
    return save_figure(figure, path)


def _align_left(figure: Figure, axes: Axes) -> None:
    """Let the labels of the vertical axis begin below each other."""
    figure.draw_without_rendering()
    names = axes.get_yticklabels()
    width = max(name.get_window_extent().width for name in names) * 72 / figure.dpi
    for name in names:
        name.set_horizontalalignment("left")
    axes.tick_params(axis="y", pad=width + 4)


def _tree_order(req: Requirements) -> tuple[list[int], list[int]]:
    """Return the labels, each after a parent of it, and how deep each lies."""
    parents: dict[int, int] = {}
    for c in range(len(req)):
        clause = req.clause(c).tolist()
        if len(clause) == 2 and sorted(x >= 0 for x in clause) == [False, True]:
            parents.setdefault(~min(clause), max(clause))
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    depth = [0] * len(req.labels)
    order: list[int] = []
    seen: set[int] = set()
    roots = [i for i in range(len(req.labels)) if i not in parents]
    for root in [*roots, *range(len(req.labels))]:  # the second time for labels on cycles
        stack = [(root, 0)]
        while stack:
            i, level = stack.pop()
            if i not in seen:
                seen.add(i)
                order.append(i)
                depth[i] = level
                stack += [(child, level + 1) for child in reversed(children.get(i, []))]
    return order, depth
