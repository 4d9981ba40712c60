"""Charts of the results of `latentgamma.paper`: accuracy under noise, and leakage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from latentgamma.paper.bounds import critical_sigma, flip_probability
from latentgamma.paper.results import GRAPHS, SIGMAS
from latentgamma.plot.figure import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PAPER,
    SMALL_FONT_SIZE,
    OutputPath,
    new_axes,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from latentgamma.paper.results import NoiseRow, WindowRow

#: The size of a chart in inches, and the lowest value of leakage that is drawn.
_SIZE = (4.4, 2.9)
_LOWEST = 1e-12


def noise(rows: Sequence[NoiseRow], path: OutputPath = None) -> Figure:
    """Return a chart of the accuracy of one graph over the noise on its body logits.

    Filled markers: every perturbed model is certified. Vertical bars: the range over the
    perturbations.

    >>> from latentgamma.paper.results import NoiseRow
    >>> row = NoiseRow("body", "g1", 1.0, 8e-21, 8e-21, (1.0,), (0,), (True,), (True,), (2e5,))
    >>> noise([row]).axes[0].get_ylabel()
    'accuracy'

    Args:
        rows: the rows of one graph in `Validation.noise` for the body logits, one for each level.
        path: the file to save the picture to, with the suffix of a picture format, or None.

    Returns:
        The matplotlib figure.
    """
    printed = GRAPHS[rows[0].graph]
    critical = critical_sigma(printed.R, printed.M)
    sigmas = np.linspace(1.0, 3.35, 48)
    unchanged = [1 - flip_probability(printed.R, printed.M, 10.0, sigma) for sigma in sigmas]
    figure, axes = new_axes(*_SIZE, margin=0.06)
    axes.plot(sigmas, unchanged, color=GREY, linewidth=1.6, label="P[no sign changes]")
    axes.axvline(critical, color=GREY, linewidth=1.0, linestyle="--")
    axes.text(critical, 0.03, f"σₘₐₓ = {critical:.2f} ", ha="right", color=INK,
              fontsize=SMALL_FONT_SIZE)  # fmt: skip
    axes.plot(SIGMAS, printed.accuracy, color=ORANGE, linewidth=1.0, marker="o",
              markersize=7, markerfacecolor="none", label="paper")  # fmt: skip
    axes.vlines([row.sigma for row in rows], [min(row.accuracies) for row in rows],
                [max(row.accuracies) for row in rows], colors=BLUE, linewidth=1.6)  # fmt: skip
    axes.plot([row.sigma for row in rows], [row.accuracy for row in rows], color=BLUE,
              linewidth=1.0, label="LatentGamma")  # fmt: skip
    for row in rows:
        fill = BLUE if all(row.certified) else PAPER
        axes.plot([row.sigma], [row.accuracy], marker="o", markersize=4.5, color=BLUE,
                  markerfacecolor=fill)  # fmt: skip
    axes.set(xlim=(0.9, 3.35), ylim=(-0.03, 1.06), xticks=SIGMAS)
    _label(axes, "noise σ on the body logits", "accuracy")
    return save_figure(figure, path)


def _label(axes: Axes, below: str, beside: str) -> None:
    axes.set_xlabel(below, color=INK, fontsize=SMALL_FONT_SIZE)
    axes.set_ylabel(beside, color=INK, fontsize=SMALL_FONT_SIZE)
    style_axes(axes)


def leakage(rows: Sequence[WindowRow], path: OutputPath = None) -> Figure:
    """Return a chart of the largest underivable atom of one graph over time.

    Lines: the proved bound. Dots: measured values. Dashed: the end of the window in the paper.

    >>> from latentgamma.paper import validation
    >>> leakage(validation.windows(validation.Setup(("g1",)))).axes[0].get_ylabel()
    'largest underivable atom'

    Args:
        rows: the rows of one graph in `Validation.windows`.
        path: the file to save the picture to, with the suffix of a picture format, or None.

    Returns:
        The matplotlib figure.
    """
    figure, axes = new_axes(*_SIZE, margin=0.06)
    from matplotlib.ticker import LogLocator

    axes.set(xscale="log", yscale="log")
    for row in rows:
        colour = ORANGE if row.constants == "paper" else BLUE
        axes.plot(*zip(*row.bound, strict=True), color=colour, linewidth=1.6)
        dots = [(steps, value) for steps, value in row.measured if value >= _LOWEST]
        axes.plot([steps for steps, _ in dots], [value for _, value in dots], color=colour,
                  marker="o", markersize=3, linewidth=0)  # fmt: skip
        if row.constants == "paper" and row.promised is not None:
            axes.axvline(row.promised, color=ORANGE, linewidth=1.2, linestyle="--")
    axes.axhline(0.5, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
    last = max([steps for row in rows for steps, _ in row.bound] + [row.promised or 0 for row in rows])  # fmt: skip
    axes.set(xlim=(0.8, 10.0 ** math.ceil(math.log10(max(last, 1e3)))), ylim=(_LOWEST, 3.0))
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.text(1.0, 0.3, "½", color=INK, fontsize=SMALL_FONT_SIZE, va="top")
    _label(axes, "step", "largest underivable atom")
    axes.minorticks_off()
    return save_figure(figure, path)
