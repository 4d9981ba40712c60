"""Colours, figures, and the text of numbers and names, shared by all plots."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from latentgamma._atomic_write import atomic_write
from latentgamma._errors import ArgumentError
from latentgamma._program.names import quote

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OutputPath: TypeAlias = "str | os.PathLike[str] | None"

# Okabe and Ito's colours, which stay distinct with colour-vision deficiency.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
INK, GREY, GRID = "#222222", "#8a8a8a", "#e6e6e6"
#: Fills of boxes: highlighted, without rules, and neither.
SKY, PALE, PAPER = "#d6e9f5", "#f2f2f2", "#ffffff"
FONT_SIZE = 9.0
SMALL_FONT_SIZE = 8.0


def check_path(path: str | os.PathLike[str]) -> None:
    """Check that the suffix of a path is a picture format.

    >>> check_path("program.svg")
    >>> check_path("program.docx")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    latentgamma._errors.ArgumentError: cannot write a picture to 'program.docx'; its name must ...

    Args:
        path: the file to write.

    Raises:
        ArgumentError: matplotlib writes no such format.
    """
    kinds = sorted(new_figure(1.0, 1.0).canvas.get_supported_filetypes())
    if Path(path).suffix.removeprefix(".").lower() not in kinds:
        raise ArgumentError(
            f"cannot write a picture to '{os.fspath(path)}'; its name must end in one of "
            f"{', '.join('.' + kind for kind in kinds)}"
        )


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, independent of pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib: pip install matplotlib", name="matplotlib"
        ) from error
    return Figure(figsize=(width, height), dpi=150, facecolor=PAPER)


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """The width of a text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def save_figure(figure: Figure, path: OutputPath) -> Figure:
    """The same figure, after saving it if there is a path."""
    if path is not None:
        check_path(path)
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format=Path(path).suffix.removeprefix(".").lower())
    return figure


def style_axes(axes: Axes) -> None:
    """Remove the top and right frame, and add a light grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(GREY)
    axes.grid(visible=True, which="major", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, which="both", labelsize=SMALL_FONT_SIZE)


def short_name(name: str, longest: int = 28) -> str:
    """A name as in rule text, shortened in the middle if it is long."""
    text = quote(name)
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def count_text(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count_text(1, "atom"), count_text(2700, "rule")
    ('1 atom', '2,700 rules')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number_text(value: float) -> str:
    """A number of steps.

    >>> number_text(969400.0), number_text(2.5e13), number_text(math.inf)
    ('969,400', '2.5×10¹³', '∞')
    """
    if math.isinf(value):
        return "∞"
    if value < 1e9:
        return f"{value:,.0f}"
    digits, power = f"{value:.1e}".split("e+")
    return f"{digits}×10{str(int(power)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
