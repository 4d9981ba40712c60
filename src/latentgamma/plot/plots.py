"""Pictures of programs, proofs, runs, windows, gradients and learning; they compute nothing.

Every function returns a matplotlib `Figure` of its own, and saves it where `path` is given (the
suffix decides the format). No global state is touched: no `pyplot`, no settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from latentgamma._errors import StateError, unknown_atoms
from latentgamma._program.program import Program
from latentgamma.plot.figure import (
    BLUE,
    FONT,
    GREEN,
    INK,
    MIST,
    ORANGE,
    Where,
    check_path,
    count,
    finished,
    new_figure,
    number,
    plain_frame,
    short,
    text_width,
)
from latentgamma.plot.program_graph import graph_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from latentgamma._certificate.certificate import Certificate
    from latentgamma._certificate.paper_window import PaperWindow
    from latentgamma._learning.fit import FitResult
    from latentgamma._logic.derivation import Derivation
    from latentgamma._model.trajectory import Trajectory

__all__ = ["check_path", "derivation", "gradients", "learning", "program", "trajectory", "window"]

#: A heat map writes the names of so many rows, and has so many rows and columns at most.
_LABELLED_ROWS, _MOST_ROWS, _MOST_COLUMNS = 60, 2_000, 4_000


class GradientRow(Protocol):
    """What a picture of gradients needs of one depth."""

    @property
    def depth(self) -> int | None:
        """The depth of the atom whose gradient was taken, None if it does not follow."""

    @property
    def exact(self) -> float:
        """The size of the exact gradient."""

    @property
    def proof(self) -> float:
        """The size of the proof gradient."""


class GradientRows(Protocol):
    """What a picture of gradients needs of a report."""

    @property
    def rows(self) -> Sequence[GradientRow]:
        """One row for each depth."""


# -------------------------------------------------------------------- programs and proofs


def program(program: Program, path: Where = None, *, highlight: Iterable[str] = ()) -> Figure:
    """The dependency graph, in layers from left to right.

    A line leads from a body to its head; where a rule has several body atoms or several heads
    they meet in a dot. A large program is drawn without names.

    Args:
        program: what to draw.
        path: where to save the picture.
        highlight: names of atoms to colour (a `Closure` will do), and with them the rules
            between them.
    """
    chosen = set(highlight)
    if unknown := chosen - program.index.keys():
        raise unknown_atoms(unknown, program.atoms, what="highlight")
    size = f"{count(program.M, 'atom')}, {count(program.R, 'rule')}"
    return finished(graph_picture(program, chosen, "highlighted", size), path)


def derivation(proof: Derivation, path: Where = None) -> Figure:
    """The proof as a graph of the rules it uses, from its facts on the left to its atom."""
    rules = [((step.atom,), step.premises) for step in proof.steps if step.rule is not None]
    used = Program.from_rules(rules, atoms=[step.atom for step in proof.steps])
    title = f"{short(proof.atom, 60)}, {count(proof.depth, 'step')} from what is given"
    return finished(graph_picture(used, set(proof.facts), "given", title), path)


# -------------------------------------------------------------------- runs


def trajectory(
    trajectory: Trajectory, path: Where = None, *, names: Sequence[str] | None = None
) -> Figure:
    """The values of the atoms at every step as a heat map, with the step they pass one half.

    Rows are sorted by that step. Atoms that keep their value are left out where there are too
    many to name.

    Args:
        trajectory: of a single state, not of a batch.
        path: where to save the picture.
        names: the atoms to show, in this order; by default those of the program.
    """
    states = trajectory.states.detach().double().cpu().numpy()  # (T + 1, M)
    if states.ndim != 2:
        raise StateError(
            f"a picture shows one trajectory, of shape (steps + 1, atoms), not {states.shape}"
        )
    known = trajectory.program
    atoms = [f"a{i}" for i in range(states.shape[1])] if known is None else list(known.atoms)
    above = states > 0.5
    crossing = np.where(above.any(0), above.argmax(0), len(states))  # (M,)
    if names is None:
        rows = _rows_to_show(states, crossing)
    else:
        index = {name: i for i, name in enumerate(atoms)}
        if unknown := [name for name in names if name not in index]:
            raise unknown_atoms(unknown, atoms, what="names")
        rows = np.array([index[name] for name in names], dtype=np.int64)
    return _heat_map(states, crossing, rows, atoms, path)


def _rows_to_show(
    states: npt.NDArray[np.float64], crossing: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    rows = np.argsort(crossing, kind="stable")
    if len(rows) > _LABELLED_ROWS:
        moving = np.ptp(states, axis=0)[rows] > 1e-3
        rows = rows[moving] if moving.any() else rows
    return rows[:_MOST_ROWS]


def _heat_map(
    states: npt.NDArray[np.float64], crossing: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64], atoms: list[str], path: Where,
) -> Figure:  # fmt: skip
    steps = len(states) - 1
    named = len(rows) <= _LABELLED_ROWS
    labels = [short(atoms[i]) for i in rows]
    wide = float(np.clip(0.34 * (steps + 1), 3.0, 9.0))
    tall = max(0.24 * len(rows), 0.5) if named else 6.0
    figure = new_figure(wide + 1.4, tall + 1.2)
    if named:
        longest = max((text_width(text) for text in labels), default=0.0)
        figure.set_size_inches(wide + 1.4 + longest, tall + 1.2)
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    axes = figure.add_subplot()
    stride = max(1, (steps + 1) // _MOST_COLUMNS)
    picture = axes.imshow(
        states[::stride, rows].T, cmap=LinearSegmentedColormap.from_list("", [MIST, BLUE]),
        vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest" if stride == 1 else "auto",
        extent=(-0.5, steps + 0.5, max(len(rows), 1) - 0.5, -0.5),
    )  # fmt: skip
    passed = np.array([(crossing[i], r) for r, i in enumerate(rows) if crossing[i] <= steps])
    if len(passed):
        axes.vlines(passed[:, 0] - 0.5, passed[:, 1] - 0.5, passed[:, 1] + 0.5, colors=ORANGE,
                    linewidth=2.4 if named else 1.0, clip_on=False)  # fmt: skip
        axes.annotate("first step above ½", (1, 0), (0, -26), xycoords="axes fraction",
                      textcoords="offset points", ha="right", color=ORANGE, fontsize=8)  # fmt: skip
    if named:
        axes.set_yticks(range(len(rows)), labels, fontsize=FONT, parse_math=False)
        for edge in np.arange(len(rows) - 1) + 0.5:
            axes.axhline(edge, color="white", linewidth=1.0)
    else:
        axes.set_yticks([])
        axes.set_ylabel("atoms, by the step they pass ½")
    axes.tick_params(length=0)
    if steps <= 10:
        axes.set_xticks(range(steps + 1))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step")
    for side in axes.spines.values():
        side.set_visible(False)
    rest = f" (of {len(atoms):,})" if len(rows) < len(atoms) else ""
    axes.set_title(f"{count(len(rows), 'atom')}{rest} over {count(steps, 'step')}",
                   loc="left", fontsize=10)  # fmt: skip
    bar = figure.colorbar(picture, ax=axes, fraction=0.05, pad=0.02, ticks=[0, 0.5, 1],
                          shrink=min(1.0, 1.8 / tall), aspect=12, anchor=(0, 1))  # fmt: skip
    bar.ax.axhline(0.5, color=ORANGE, linewidth=2.0)
    bar.ax.set_yticklabels(["0", "½", "1"])
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)
    return finished(figure, path)


# -------------------------------------------------------------------- the window


def window(
    certificate: Certificate, path: Where = None, *, paper: PaperWindow | None = None
) -> Figure:
    """The bound on every underivable atom against time, and the window in which it stays below ½.

    Args:
        certificate: what was proved.
        path: where to save the picture.
        paper: the paper's promise for the same constants, to draw beside it.
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
        _draw_promise(axes, paper, certificate.depth, right)
    if certificate.holds:
        start, end = max(certificate.t_min, 1.0), min(certificate.t_max, right)
        axes.axvspan(start, end, color=BLUE, alpha=0.10, linewidth=0)
    if shown.any():
        axes.plot(steps[shown], bound[shown], color=BLUE, linewidth=2.0, marker="o",
                  markersize=3 if shown.sum() < 3 else 0, label=_proved(certificate))  # fmt: skip
    else:
        axes.plot([], [], color=BLUE, linewidth=2.0, label=_proved(certificate))
        axes.text(0.08, 0.78, "no underivable atom ever rises", transform=axes.transAxes,
                  color=BLUE)  # fmt: skip
    axes.axhline(0.5, color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
    axes.text(1.0, 0.53, " ½: a false positive", fontsize=8, color=INK, va="bottom")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.9, right)
    axes.set_ylim(low / 3, 2.0)
    axes.set_xlabel("steps")
    axes.set_ylabel("bound on every underivable atom")
    axes.set_title("The certified window" if certificate.holds else "No window is certified",
                   loc="left", fontsize=11)  # fmt: skip
    plain_frame(axes)
    axes.legend(loc="lower right", framealpha=1.0, edgecolor="white", fontsize=8, labelcolor=INK)
    return finished(figure, path)


def _draw_promise(axes: Axes, paper: PaperWindow, depth: int, right: float) -> None:
    if not math.isfinite(paper.t_max) or paper.t_max < 1:
        axes.plot([], [], color=ORANGE, linestyle="--", label=_promised(paper, depth))
        return
    times = np.geomspace(1.0, min(paper.t_max, right), 50)
    axes.plot(times, np.minimum(1.0, paper.c_max * times), color=ORANGE, linewidth=1.6,
              linestyle="--", label=_promised(paper, depth))  # fmt: skip
    axes.axvline(paper.t_max, color=ORANGE, linewidth=1.0, linestyle="--")


def _proved(certificate: Certificate) -> str:
    if not certificate.holds:
        return f"proved: nothing ({certificate.status.value})"
    return f"proved: steps {number(certificate.t_min)} to {number(certificate.t_max)}"


def _promised(paper: PaperWindow, depth: int) -> str:
    return f"the paper's promise: steps {number(depth)} to {number(paper.t_max)}"


# -------------------------------------------------------------------- gradients


def gradients(report: GradientRows, path: Where = None) -> Figure:
    """The size of the gradient against depth on a log axis, for both kinds of backward."""
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
    axes.set_ylabel("gradient that reaches the facts")
    axes.set_title("Gradient against depth", loc="left", fontsize=11)
    plain_frame(axes)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return finished(figure, path)


# -------------------------------------------------------------------- learning


def learning(result: FitResult, path: Where = None) -> Figure:
    """The learning curve: the share explained and the number of rules, report by report.

    Args:
        result: what `fit` brought back.
        path: where to save the picture.
    """
    figure = new_figure(7.2, 4.6)
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    reports = np.arange(1, len(result.history) + 1)
    marker = {"marker": "o", "markersize": 4 if len(reports) <= 40 else 0}
    share = [moment.explained for moment in result.history]
    upper.step(reports, share, where="post", color=BLUE, linewidth=1.8, label="explained", **marker)
    if result.accuracy is not None:
        upper.axhline(result.accuracy, color=ORANGE, linewidth=1.4, linestyle="--",
                      label=f"accuracy on examples kept aside: {result.accuracy:.3f}")  # fmt: skip
    upper.set_ylim(-0.03, 1.06)
    upper.yaxis.set_major_formatter(PercentFormatter(1.0))
    upper.set_ylabel("explained")
    upper.legend(loc="lower right", framealpha=1.0, edgecolor="white", fontsize=8, labelcolor=INK)
    rules = [moment.rules for moment in result.history]
    lower.step(reports, rules, where="post", color=GREEN, linewidth=1.8, **marker)
    lower.set_ylim(0, max(1, *rules) * 1.12)
    lower.set_ylabel("rules")
    lower.set_xlabel("reports while learning")
    for axes in (upper, lower):
        plain_frame(axes)
    for axis in (lower.xaxis, lower.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    upper.set_title(f"{count(result.program.R, 'rule')}, method {result.method}",
                    loc="left", fontsize=11)  # fmt: skip
    return finished(figure, path)
