"""Line charts: certified windows, gradients and learning curves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from latentgamma.plot.figure import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SMALL_FONT_SIZE,
    OutputPath,
    count_text,
    new_figure,
    number_text,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from latentgamma._certificate.certificate import Certificate
    from latentgamma._certificate.paper_window import PaperWindow
    from latentgamma._learning.result import FitResult
    from latentgamma._model.gradient_report import GradientReport

_LEGEND = {
    "framealpha": 1.0, "edgecolor": "white", "fontsize": SMALL_FONT_SIZE, "labelcolor": INK,
}  # fmt: skip


# -------------------------------------------------------------------- certified windows


def window(
    certificate: Certificate, path: OutputPath = None, *, paper: PaperWindow | None = None
) -> Figure:
    """A chart of the bound on underivable atoms over time, with the certified window.

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

    Raises:
        ArgumentError: matplotlib cannot write a file with this suffix.
    """
    figure = new_figure(7.2, 4.4)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    axes = figure.add_subplot()
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
    label = _window_label(certificate)
    if shown.any():
        axes.plot(steps[shown], bound[shown], color=BLUE, linewidth=2.0, marker="o",
                  markersize=3 if shown.sum() < 3 else 0, label=label)  # fmt: skip
    else:
        axes.plot([], [], color=BLUE, linewidth=2.0, label=label)
        axes.text(0.08, 0.78, "underivable atoms stay at 0", transform=axes.transAxes, color=BLUE)
    axes.axhline(0.5, color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
    axes.text(1.0, 0.53, " ½: a false positive", fontsize=SMALL_FONT_SIZE, color=INK, va="bottom")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.9, right)
    axes.set_ylim(low / 3, 2.0)
    axes.set_xlabel("step")
    axes.set_ylabel("bound on underivable atoms")
    title = "Certified window" if certificate.holds else "No window is certified"
    axes.set_title(title, loc="left", fontsize=11)
    style_axes(axes)
    axes.legend(loc="lower right", **_LEGEND)
    return save_figure(figure, path)


def _draw_paper_window(axes: Axes, paper: PaperWindow, depth: int, right: float) -> None:
    label = f"stated in the paper: steps {number_text(depth)} to {number_text(paper.t_max)}"
    if not math.isfinite(paper.t_max) or paper.t_max < 1:
        axes.plot([], [], color=ORANGE, linestyle="--", label=label)
        return
    times = np.geomspace(1.0, min(paper.t_max, right), 50)
    axes.plot(times, np.minimum(1.0, paper.c_max * times), color=ORANGE, linewidth=1.6,
              linestyle="--", label=label)  # fmt: skip
    axes.axvline(paper.t_max, color=ORANGE, linewidth=1.0, linestyle="--")


def _window_label(certificate: Certificate) -> str:
    if not certificate.holds:
        return f"proved: nothing ({certificate.status.value})"
    return f"proved: steps {number_text(certificate.t_min)} to {number_text(certificate.t_max)}"


# -------------------------------------------------------------------- gradients


def gradients(report: GradientReport, path: OutputPath = None) -> Figure:
    """A chart of the size of the gradient over depth, for both kinds of gradient.

    >>> import latentgamma as lg
    >>> model = lg.oracle(lg.parse("bird :- penguin. animal :- bird."))
    >>> figure = lg.plot.gradients(lg.gradient_report(model))
    >>> figure.axes[0].get_xlabel()
    'depth of the atom'

    Args:
        report: what `gradient_report` returned.
        path: the file to save the picture to, with the suffix of a picture format, or None.

    Returns:
        The matplotlib figure.

    Raises:
        ArgumentError: matplotlib cannot write a file with this suffix.
    """
    figure = new_figure(6.4, 4.0)
    from matplotlib.ticker import MaxNLocator

    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    axes = figure.add_subplot()
    rows = sorted((row.depth, row.proof, row.exact) for row in report.rows if row.depth is not None)
    depth = [row[0] for row in rows]
    for label, colour, marker, values in (
        ("proof", GREEN, "s", [row[1] for row in rows]),
        ("exact", BLUE, "o", [row[2] for row in rows]),
    ):
        # A gradient of exactly zero has no place on a log axis; the line breaks there.
        sizes = [value if value > 0 else math.nan for value in values]
        axes.plot(depth, sizes, color=colour, linewidth=1.8, marker=marker, markersize=4,
                  label=label)  # fmt: skip
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("depth of the atom")
    axes.set_ylabel("size of the gradient at the facts")
    axes.set_title("Gradient by depth", loc="left", fontsize=11)
    style_axes(axes)
    axes.legend(**_LEGEND)
    return save_figure(figure, path)


# -------------------------------------------------------------------- learning curves


def learning(result: FitResult, path: OutputPath = None) -> Figure:
    """The learning curve: the fraction of labels explained and the number of rules.

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

    Raises:
        ArgumentError: matplotlib cannot write a file with this suffix.
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
    upper.set_ylim(-0.03, 1.06)
    upper.yaxis.set_major_formatter(PercentFormatter(1.0))
    upper.set_ylabel("explained")
    rules = [entry.rules for entry in result.history]
    lower.step(entries, rules, where="post", color=GREEN, linewidth=1.8, **marker)
    lower.set_ylim(0, max(1, *rules) * 1.12)
    lower.set_ylabel("rules")
    lower.set_xlabel("entry of the history")
    for axes in (upper, lower):
        style_axes(axes)
    for axis in (lower.xaxis, lower.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    upper.legend(loc="lower right", **_LEGEND)
    upper.set_title(f"{count_text(result.program.R, 'rule')}, method {result.method}",
                    loc="left", fontsize=11)  # fmt: skip
    return save_figure(figure, path)
