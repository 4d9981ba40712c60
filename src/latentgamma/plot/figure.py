"""What all pictures share: colours, figures of their own, and how numbers and names are written."""

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

Where: TypeAlias = "str | os.PathLike[str] | None"

# Okabe and Ito's colours, which everybody can tell apart.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
INK, GREY, PALE, SKY, MIST = "#222222", "#8a8a8a", "#f2f2f2", "#d6e9f5", "#eff4f8"
FONT = 9.0


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise an ArgumentError if no picture can be written under this name, whatever it shows."""
    kinds = sorted(new_figure(1.0, 1.0).canvas.get_supported_filetypes())
    if Path(path).suffix.removeprefix(".").lower() not in kinds:
        raise ArgumentError(
            f"cannot write a picture to '{os.fspath(path)}'; its name must end in one of "
            f"{', '.join('.' + kind for kind in kinds)}"
        )


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, known to nobody else."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'pictures need matplotlib: pip install "latentgamma[plot]"', name="matplotlib"
        ) from error
    return Figure(figsize=(width, height), dpi=150, facecolor="white")


def text_width(text: str, size: float = FONT) -> float:
    """How wide a text is, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def finished(figure: Figure, path: Where) -> Figure:
    """The figure, saved where a path is given."""
    if path is not None:
        check_path(path)
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format=Path(path).suffix.removeprefix(".").lower())
    return figure


def plain_frame(axes: Axes) -> None:
    """Two axes and a faint grid, and no more."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(visible=True, which="major", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)


def short(name: str, longest: int = 28) -> str:
    """A name as rule text has it, shortened in the middle where it is long."""
    text = quote(name)
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "atom"), count(2700, "rule")
    ('1 atom', '2,700 rules')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def number(value: float) -> str:
    """A number of steps as a person writes it.

    >>> number(969400.0), number(2.5e13), number(math.inf)
    ('969,400', '2.5×10¹³', '∞')
    """
    if math.isinf(value):
        return "∞"
    if value < 1e9:
        return f"{value:,.0f}"
    digits, power = f"{value:.1e}".split("e+")
    return f"{digits}×10{str(int(power)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
