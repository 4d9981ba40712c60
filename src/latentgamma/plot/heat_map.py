"""Runs of the operator as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from latentgamma._errors import StateError, unknown_atoms
from latentgamma.plot.figure import (
    BLUE,
    FONT_SIZE,
    GREY,
    INK,
    ORANGE,
    PAPER,
    SMALL_FONT_SIZE,
    OutputPath,
    count_text,
    new_figure,
    save_figure,
    short_name,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from latentgamma._model.trajectory import Trajectory

#: At most so many rows have names; at most so many rows and columns are drawn.
_LABELLED_ROWS, _MOST_ROWS, _MOST_COLUMNS = 60, 2_000, 4_000
#: Height of a row with a name, in inches.
_ROW = 0.24


def trajectory(
    trajectory: Trajectory,
    path: OutputPath = None,
    *,
    names: Sequence[str] | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """A heat map of the values of the atoms at every step.

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
        size: the width and height in inches; by default what the names need.

    Returns:
        The matplotlib figure.

    Raises:
        StateError: the trajectory is that of a batch.
        FactsError: `names` has a name that the program does not have.
        ArgumentError: matplotlib cannot write a file with this suffix.
    """
    states = trajectory.states.detach().double().cpu().numpy()  # (T + 1, M)
    if states.ndim != 2:
        raise StateError(
            f"a picture shows one trajectory, of shape (steps + 1, atoms), not {states.shape}"
        )
    program = trajectory.program
    atoms = [f"a{i}" for i in range(states.shape[1])] if program is None else list(program.atoms)
    above = states > 0.5
    crossing = np.where(above.any(0), above.argmax(0), len(states))  # (M,)
    if names is None:
        rows = _rows_to_show(states, crossing)
    else:
        index = {name: i for i, name in enumerate(atoms)}
        if unknown := [name for name in names if name not in index]:
            raise unknown_atoms(unknown, atoms, what="names")
        rows = np.array([index[name] for name in names], dtype=np.int64)
    return save_figure(_draw(states, crossing, rows, atoms, size), path)


def _rows_to_show(
    states: npt.NDArray[np.float64], crossing: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    rows = np.argsort(crossing, kind="stable")
    if len(rows) > _LABELLED_ROWS:
        moving = np.ptp(states, axis=0)[rows] > 1e-3
        rows = rows[moving] if moving.any() else rows
    return rows[:_MOST_ROWS]


def _draw(
    states: npt.NDArray[np.float64],
    crossing: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    atoms: list[str],
    size: tuple[float, float] | None,
) -> Figure:
    steps = len(states) - 1
    labelled = len(rows) <= _LABELLED_ROWS
    if size is not None:
        labelled = labelled and _ROW * len(rows) <= size[1] - 1.2
    labels = [short_name(atoms[i]) for i in rows]
    wide = float(np.clip(0.34 * (steps + 1), 3.0, 9.0)) + 1.4
    tall = max(_ROW * len(rows), 0.5) + 1.2 if labelled else 7.2
    figure = new_figure(*(size or (wide, tall)))
    if labelled and size is None:
        longest = max((text_width(text) for text in labels), default=0.0)
        figure.set_size_inches(wide + longest, tall)
    from matplotlib.colors import LinearSegmentedColormap, to_rgb
    from matplotlib.ticker import MaxNLocator

    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    axes = figure.add_subplot()
    stride = max(1, (steps + 1) // _MOST_COLUMNS)
    # From transparent to blue, so that the picture fits a light and a dark page.
    blue = to_rgb(BLUE)
    colours = LinearSegmentedColormap.from_list("", [(*blue, 0.06), (*blue, 1.0)])
    image = axes.imshow(
        states[::stride, rows].T, cmap=colours, vmin=0.0, vmax=1.0, aspect="auto",
        interpolation="nearest" if stride == 1 else "auto",
        extent=(-0.5, steps + 0.5, max(len(rows), 1) - 0.5, -0.5),
    )  # fmt: skip
    marks = np.array([(crossing[i], r) for r, i in enumerate(rows) if crossing[i] <= steps])
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
    axes.set_title(f"{count_text(len(rows), 'atom')}{rest} over {count_text(steps, 'step')}",
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
