"""Figures: their style, and writing them."""

from __future__ import annotations

import io
import math
import os
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from latentgamma._atomic_write import atomic_write
from latentgamma.errors import ArgumentError, optional_package
from latentgamma.program.names import quote

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# ---- Colours, figures, and the text of numbers and names, shared by all plots

OutputPath: TypeAlias = "str | os.PathLike[str] | None"

# Okabe and Ito's colours, which stay distinct with colour-vision deficiency.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
INK, GREY, GRID = "#222222", "#8a8a8a", "#e6e6e6"
#: Fills of boxes: highlighted, without rules, and neither.
SKY, PALE, PAPER = "#d6e9f5", "#f2f2f2", "#ffffff"
#: In points.
FONT_SIZE = 9.0
SMALL_FONT_SIZE = 8.0
LEGEND = {
    "framealpha": 1.0, "edgecolor": "white", "fontsize": SMALL_FONT_SIZE, "labelcolor": INK,
}  # fmt: skip


def check_path(path: str | os.PathLike[str]) -> None:
    """Check that the suffix of a path is a picture format.

    >>> check_path("program.svg")
    >>> check_path("program.docx")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    latentgamma.errors.ArgumentError: cannot write a picture to 'program.docx'; its name must ...

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
    """Return an empty figure of this size in inches, independent of pyplot."""
    with optional_package("pictures need matplotlib", "plot"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), dpi=150, facecolor=PAPER)


def new_axes(width: float, height: float, *, margin: float = 0.12) -> tuple[Figure, Axes]:
    """Return an empty figure of this size in inches, and axes that fill it up to the margin."""
    figure = new_figure(width, height)
    figure.set_layout_engine("constrained", w_pad=margin, h_pad=margin)
    return figure, figure.add_subplot()


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Return the width of a text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def save_figure(figure: Figure, path: OutputPath) -> Figure:
    """Return the same figure, after saving it if there is a path."""
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
    """Return a name as in rule text, shortened in the middle if it is long."""
    text, half = quote(name), (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"


def number_text(value: float) -> str:
    """Return a number of any size, with a power of ten if it is very large or small.

    >>> number_text(969400.0), number_text(2.5e13), number_text(8.05e-21), number_text(math.inf)
    ('969,400', '2.5 × 10¹³', '8 × 10⁻²¹', '∞')
    """
    if math.isinf(value):
        return "∞"
    if value == 0 or 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    digits, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits.removesuffix('.0')} × 10{raised}"


# ---- Figures as SVG elements inside an HTML page, with text as text and colours of the page

#: The CSS variable for each colour; the style sheet of the page defines it for light and dark.
CSS_VARIABLES = {
    BLUE: "--blue", ORANGE: "--orange", GREEN: "--green", INK: "--ink", GREY: "--grey",
    GRID: "--grid", SKY: "--sky", PALE: "--pale", PAPER: "--card",
}  # fmt: skip


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """Return the figure as an `<svg>` element.

    The same figure and name give the same text. Colours of the palette become CSS variables, so
    that the page can change them for a dark background.

    >>> import latentgamma as lg
    >>> figure = lg.plot.program(lg.parse("bird :- penguin."))
    >>> text = inline_svg(figure, "birds", "the rules as a graph")
    >>> text.startswith("<svg "), 'aria-label="the rules as a graph"' in text
    (True, True)

    Args:
        figure: any matplotlib figure.
        name: put before every id in the element; different for every figure on a page.
        description: the text alternative.

    Returns:
        The text of the element, to put into an HTML page.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    text = buffer.getvalue()
    size = re.search(r'viewBox="([^"]+)"', text)
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    body = body[body.index(">", body.index("<svg")) + 1 : body.rindex("</svg>")]
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r"(font: [^;\"']*?)'[^;\"]*", r"\1var(--font)", body)
    body = re.sub(r"(\d\.\d\d)\d+", r"\1", body)
    for colour, variable in CSS_VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    frame = f'viewBox="{size[1] if size else "0 0 1 1"}" role="img"'
    label = escape(description)
    return f'<svg {frame} aria-label="{label}"><title>{label}</title>{body}</svg>'
