"""Charts of windows, learning, states and requirements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import whole_number
from latentgamma._text import quantity, shortened
from latentgamma.errors import StateError, unknown_atoms
from latentgamma.plot.figure import (
    BLUE,
    FONT_SIZE,
    GREEN,
    GREY,
    INK,
    LEGEND,
    ORANGE,
    PAPER,
    SMALL_FONT_SIZE,
    OutputPath,
    new_axes,
    new_figure,
    number_text,
    save_figure,
    short_name,
    style_axes,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from latentgamma.certificate.certify import Certificate
    from latentgamma.learning.estimator import RuleClassifier
    from latentgamma.learning.result import FitResult
    from latentgamma.operator.model import Trajectory
    from latentgamma.requirements.layer import RequirementsLayer
    from latentgamma.requirements.requirements import Requirements, Violations


# ---- Certified windows


class StatedWindow(Protocol):
    """A window that is stated elsewhere, such as the paper's (`lg.paper.paper_window`)."""

    @property
    def c_max(self) -> float:
        """The leak a step."""

    @property
    def t_max(self) -> float:
        """The last step."""


def window(
    certificate: Certificate, path: OutputPath = None, *, paper: StatedWindow | None = None
) -> Figure:
    """Return a chart of the bound on underivable atoms over time, with the certified window.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> figure = lg.plot.window(lg.certify(lg.oracle(program), program))
    >>> figure.axes[0].get_title(loc="left")
    'Certified window'

    Args:
        certificate: what `certify` returned.
        path: the file to save the picture to, with the suffix of a picture format, or None.
        paper: the paper's window for the same constants, drawn beside it.

    Returns:
        The matplotlib figure.
    """
    figure, axes = new_axes(7.2, 4.4)
    steps = np.array([max(t, 0.0) for t, _ in certificate.curve])
    bound = np.array([value for _, value in certificate.curve])
    shown = (steps > 0) & (bound > 0)
    ends = [steps[shown].max(initial=1.0), certificate.t_min if certificate.holds else 1.0]
    if paper is not None and math.isfinite(paper.t_max):
        ends.append(paper.t_max)
    right = 3.0 * max(ends)
    low = min(bound[shown].min(initial=0.5), 0.05)
    if paper is not None:
        low = min(low, max(paper.c_max, 1e-300))
        _draw_paper_window(axes, paper, certificate.depth, right)
    if certificate.holds:
        start, end = max(certificate.t_min, 1.0), min(certificate.t_max, right)
        axes.axvspan(start, end, color=BLUE, alpha=0.10, linewidth=0)
    proved = f"steps {number_text(certificate.t_min)} to {number_text(certificate.t_max)}"
    label = f"proved: {proved if certificate.holds else f'nothing ({certificate.status.value})'}"
    if shown.any():
        axes.plot(steps[shown], bound[shown], color=BLUE, linewidth=2.0, marker="o",
                  markersize=3 if shown.sum() < 3 else 0, label=label)  # fmt: skip
    else:
        axes.plot([], [], color=BLUE, linewidth=2.0, label=label)
        axes.text(0.08, 0.78, "underivable atoms stay at 0", transform=axes.transAxes, color=BLUE)
    axes.axhline(0.5, color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
    axes.text(1.0, 0.53, " ½: a false positive", fontsize=SMALL_FONT_SIZE, color=INK, va="bottom")
    axes.set(xscale="log", yscale="log", xlim=(0.9, right), ylim=(low / 3, 2.0))
    axes.set(xlabel="step", ylabel="bound on underivable atoms")
    title = "Certified window" if certificate.holds else "No window is certified"
    axes.set_title(title, loc="left", fontsize=11)
    style_axes(axes)
    axes.legend(loc="lower right", **LEGEND)
    return save_figure(figure, path)


def _draw_paper_window(axes: Axes, paper: StatedWindow, depth: int, right: float) -> None:
    label = f"stated in the paper: steps {number_text(depth)} to {number_text(paper.t_max)}"
    if not math.isfinite(paper.t_max) or paper.t_max < 1:
        axes.plot([], [], color=ORANGE, linestyle="--", label=label)
        return
    times = np.geomspace(1.0, min(paper.t_max, right), 50)
    axes.plot(times, np.minimum(1.0, paper.c_max * times), color=ORANGE, linewidth=1.6,
              linestyle="--", label=label)  # fmt: skip
    axes.axvline(paper.t_max, color=ORANGE, linewidth=1.0, linestyle="--")


# ---- Learning curves


def learning(result: FitResult, path: OutputPath = None) -> Figure:
    """Return the learning curve: the fraction of labels explained and the number of rules.

    >>> import latentgamma as lg
    >>> result = lg.fit([[1, 0], [0, 0]], [[1, 1], [0, 0]], atoms=["penguin", "bird"], holdout=0)
    >>> figure = lg.plot.learning(result)
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['explained', 'rules']

    Args:
        result: what `fit` returned.
        path: the file to save the picture to, with the suffix of a picture format, or None.

    Returns:
        The matplotlib figure.
    """
    figure = new_figure(7.2, 4.6)
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    entries = np.arange(1, len(result.history) + 1)
    marker = {"marker": "o", "markersize": 4 if len(entries) <= 40 else 0}
    explained = [entry.explained for entry in result.history]
    upper.step(entries, explained, where="post", color=BLUE, linewidth=1.8, label="explained",
               **marker)  # fmt: skip
    if result.accuracy is not None:
        upper.axhline(result.accuracy, color=ORANGE, linewidth=1.4, linestyle="--",
                      label=f"accuracy on held-out examples: {result.accuracy:.3f}")  # fmt: skip
    upper.set(ylim=(-0.03, 1.06), ylabel="explained")
    upper.yaxis.set_major_formatter(PercentFormatter(1.0))
    rules = [entry.rules for entry in result.history]
    lower.step(entries, rules, where="post", color=GREEN, linewidth=1.8, **marker)
    lower.set(ylim=(0, max(1, *rules) * 1.12), ylabel="rules", xlabel="entry of the history")
    for axes in (upper, lower):
        style_axes(axes)
    for axis in (lower.xaxis, lower.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    upper.legend(loc="lower right", **LEGEND)
    upper.set_title(f"{quantity(result.program.R, 'rule')}, method {result.method}",
                    loc="left", fontsize=11)  # fmt: skip
    return save_figure(figure, path)


# ---- Rules of a classifier


#: At most this many rules of one class are written beside the chart.
_LISTED_RULES = 12


def rules(classifier: RuleClassifier, path: OutputPath = None) -> Figure:
    """Return a chart of the precision of each rule against the fraction of rows it covers.

    >>> import latentgamma as lg
    >>> classifier = lg.RuleClassifier().fit([[1, 1], [1, 0], [0, 1]] * 9, [1, 0, 0] * 9)
    >>> figure = lg.plot.rules(classifier)
    >>> figure.axes[0].get_xlabel()
    'rows covered'

    Args:
        classifier: a fitted classifier.
        path: the file to save the picture to, with the suffix of a picture format, or None.

    Returns:
        The matplotlib figure. Bars are 95% intervals, and dashed lines the rates of the classes.

    Raises:
        ArgumentError: matplotlib cannot write a file with this suffix, or the classifier has not
            learned yet.
    """
    classifier.rule_table()  # raises before fit
    figure, axes = new_axes(7.2, 4.4)
    from matplotlib.ticker import PercentFormatter

    colours = (BLUE, ORANGE, GREEN, GREY)
    count = sum(len(one.bodies) for one in classifier.class_rules_)
    listed = len(classifier.class_rules_) == 1 and count <= _LISTED_RULES
    for k, one in enumerate(classifier.class_rules_):
        colour = colours[k % len(colours)]
        axes.axhline(one.form.base, color=colour, linewidth=1.2, linestyle="--")
        for row in one.statistics:
            share = row.support / max(one.rows, 1e-300)
            low, high = row.interval
            axes.plot([share, share], [low, high], color=colour, linewidth=1.4)
            axes.plot([share], [row.precision], color=colour, marker="o", markersize=5,
                      label=short_name(one.head) if row is one.statistics[0] else None)  # fmt: skip
            label = str(row.rule) if row.rule else "otherwise"
            if listed and row.rule:
                axes.plot([], [], " ", label=f"{label}  {shortened(row.body, 40)}")
            axes.annotate(label, (share, row.precision), xytext=(6, 2),
                          textcoords="offset points", fontsize=SMALL_FONT_SIZE)  # fmt: skip
    axes.set_xlim(left=0)
    axes.set(ylim=(-0.03, 1.06), xlabel="rows covered", ylabel="precision")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    style_axes(axes)
    if any(one.statistics for one in classifier.class_rules_):
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **LEGEND)
    axes.set_title(quantity(count, "rule"), loc="left", fontsize=11)
    return save_figure(figure, path)


# ---- Runs of the operator as heat maps

#: At most this many rows have names; at most this many rows and columns are drawn.
_LABELLED_ROWS, _MOST_ROWS, _MOST_COLUMNS = 60, 2_000, 4_000
#: Height of a row with a name, in inches.
_ROW = 0.24


def trajectory(
    trajectory: Trajectory, path: OutputPath = None, *, names: Sequence[str] | None = None
) -> Figure:
    """Return a heat map of the values of the atoms at every step.

    Rows are sorted by the first step above one half, which is marked. If there are too many
    atoms to name, those that keep their value are left out.

    >>> import latentgamma as lg
    >>> model = lg.oracle(lg.parse("bird :- penguin. animal :- bird."))
    >>> figure = lg.plot.trajectory(model.iterate(model.state("penguin"), 3))
    >>> figure.axes[0].get_title(loc="left")
    '3 atoms over 3 steps'

    Args:
        trajectory: the trajectory of a single state, not of a batch.
        path: the file to save the picture to, with the suffix of a picture format, or None.
        names: the atoms to show, in this order; by default those of the program.

    Returns:
        The matplotlib figure.

    Raises:
        StateError: the trajectory is that of a batch.
        FactsError: `names` has a name that the program does not have.
    """
    states = trajectory.states.detach().double().cpu().numpy()  # (T + 1, M)
    if states.ndim != 2:
        raise StateError(
            f"a picture shows one trajectory, of shape (steps + 1, atoms), not {states.shape}"
        )
    program = trajectory.program
    atoms = [f"a{i}" for i in range(states.shape[1])] if program is None else list(program.atoms)
    crossing = trajectory.crossing.cpu().numpy()
    if names is None:
        rows = rows_to_show(states, crossing, _LABELLED_ROWS, _MOST_ROWS)
    else:
        index = {name: i for i, name in enumerate(atoms)}
        if unknown := [name for name in names if name not in index]:
            raise unknown_atoms(unknown, atoms, what="names")
        rows = np.array([index[name] for name in names], dtype=np.int64)
    return save_figure(_draw(states, crossing, rows, atoms), path)


def rows_to_show(
    states: npt.NDArray[np.float64], crossing: npt.NDArray[np.int64], few: int, most: int
) -> npt.NDArray[np.int64]:
    """Return up to `most` atoms in the order in which they exceed one half.

    Where there are more than `few`, those that keep their value are left out.
    """
    rows = np.argsort(np.where(crossing < 0, len(states), crossing), kind="stable")
    if len(rows) > few:
        moving = np.ptp(states, axis=0)[rows] > 1e-3
        rows = rows[moving] if moving.any() else rows
    return rows[:most]


def _draw(
    states: npt.NDArray[np.float64],
    crossing: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    atoms: list[str],
) -> Figure:
    steps = len(states) - 1
    labelled = len(rows) <= _LABELLED_ROWS
    labels = [short_name(atoms[i]) for i in rows]
    wide = float(np.clip(0.34 * (steps + 1), 3.0, 9.0)) + 1.4
    tall = max(_ROW * len(rows), 0.5) + 1.2 if labelled else 7.2
    figure, axes = new_axes(wide, tall)
    if labelled:
        longest = max((text_width(text) for text in labels), default=0.0)
        figure.set_size_inches(wide + longest, tall)
    from matplotlib.colors import LinearSegmentedColormap, to_rgb
    from matplotlib.ticker import MaxNLocator

    stride = max(1, (steps + 1) // _MOST_COLUMNS)
    # From transparent to blue, so that the picture fits a light and a dark page.
    blue = to_rgb(BLUE)
    colours = LinearSegmentedColormap.from_list("", [(*blue, 0.06), (*blue, 1.0)])
    image = axes.imshow(
        states[::stride, rows].T, cmap=colours, vmin=0.0, vmax=1.0, aspect="auto",
        interpolation="nearest" if stride == 1 else "auto",
        extent=(-0.5, steps + 0.5, max(len(rows), 1) - 0.5, -0.5),
    )  # fmt: skip
    marks = np.array([(crossing[i], r) for r, i in enumerate(rows) if crossing[i] >= 0])
    if len(marks):
        axes.vlines(marks[:, 0] - 0.5, marks[:, 1] - 0.5, marks[:, 1] + 0.5, colors=ORANGE,
                    linewidth=2.4 if labelled else 1.0, clip_on=False)  # fmt: skip
        axes.annotate("first step above ½", (1, 0), (0, -26), xycoords="axes fraction",
                      textcoords="offset points", ha="right", color=ORANGE,
                      fontsize=SMALL_FONT_SIZE)  # fmt: skip
    if labelled:
        axes.set_yticks(range(len(rows)), labels, fontsize=FONT_SIZE, parse_math=False)
        for edge in np.arange(len(rows) - 1) + 0.5:
            axes.axhline(edge, color=PAPER, linewidth=1.0)
    else:
        axes.set_yticks([])
        axes.set_ylabel("atoms, by first step above ½", color=INK, fontsize=FONT_SIZE)
    axes.tick_params(length=0, colors=INK, labelsize=FONT_SIZE)
    if steps <= 10:
        axes.set_xticks(range(steps + 1))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step", color=INK, fontsize=FONT_SIZE)
    for side in axes.spines.values():
        side.set_visible(False)
    rest = f" (of {len(atoms):,})" if len(rows) < len(atoms) else ""
    axes.set_title(f"{quantity(len(rows), 'atom')}{rest} over {quantity(steps, 'step')}",
                   loc="left", fontsize=10, color=INK)  # fmt: skip
    height = figure.get_size_inches()[1] - 1.2
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, ticks=[0, 0.5, 1],
                          shrink=min(1.0, 1.8 / height), aspect=12, anchor=(0, 1))  # fmt: skip
    bar.ax.axhline(0.5, color=ORANGE, linewidth=2.0)
    bar.ax.set_yticklabels(["0", "½", "1"])
    bar.ax.tick_params(length=0, colors=INK, labelsize=FONT_SIZE)
    bar.outline.set_edgecolor(GREY)
    bar.outline.set_linewidth(0.5)
    return figure


# ---- Requirements: which are broken, and what a layer changes in one example


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
