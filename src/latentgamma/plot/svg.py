"""Figures as SVG elements inside an HTML page, with text as text and colours of the page."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

from latentgamma.plot.figure import BLUE, GREEN, GREY, GRID, INK, ORANGE, PALE, PAPER, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The CSS variable for each colour; the style sheet of the page defines it for light and dark.
CSS_VARIABLES = {
    BLUE: "--blue", ORANGE: "--orange", GREEN: "--green", INK: "--ink", GREY: "--grey",
    GRID: "--grid", SKY: "--sky", PALE: "--pale", PAPER: "--card",
}  # fmt: skip


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element.

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
