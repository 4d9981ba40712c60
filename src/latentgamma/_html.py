"""Small pieces of HTML with which results show themselves in notebooks.

Colours are half transparent, so that they fit light and dark notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

BLUE, GREEN, RED = "0,114,178", "0,158,115", "179,38,30"  # as in latentgamma.plot, for rgba(…)


def caption(text: str, colour: str | None = None) -> str:
    """A line in bold above the rest; with a colour, as a label."""
    style = "font-weight:600;margin:2px 0 6px"
    if colour is not None:
        style += (
            f";display:inline-block;padding:1px 10px;border-radius:9px;background:rgba({colour},.2)"
        )
    return f'<div style="{style}">{escape(text)}</div>'


def note(text: str) -> str:
    """A line in small type."""
    return f'<div style="opacity:.75;font-size:.9em;margin:4px 0">{escape(text)}</div>'


def code(lines: Iterable[str]) -> str:
    """Lines of code."""
    return f'<pre style="margin:4px 0">{escape(chr(10).join(lines))}</pre>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: int = 99) -> str:
    """A table; the columns from number `right` on are aligned to the right."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        sides = ("left" if n < right else "right" for n in range(len(texts)))
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(text)}</{tag}>'
            for text, side in zip(texts, sides, strict=True)
        )

    head = f"<thead><tr>{cells('th', columns)}</tr></thead>" if columns else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def heat_table(
    columns: Sequence[str], rows: Iterable[tuple[str, Sequence[float]]], marked: float = 0.5
) -> str:
    """A table of numbers between 0 and 1, each as a colour; those above `marked` are in bold."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = []
    for name, values in rows:
        cells = "".join(
            f'<td style="background:rgba({BLUE},{0.6 * value:.2f});text-align:right'
            f'{";font-weight:600" if value > marked else ""}">'
            f"{number(value)}</td>"
            for value in values
        )
        body.append(f'<tr><th style="text-align:left">{escape(name)}</th>{cells}</tr>')
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def number(value: float) -> str:
    """A number between 0 and 1 in two digits, a dot for one that rounds to 0."""
    return f"{value:.2f}" if value >= 0.005 else "·"


def tree(name: str, label: str, branches: Sequence[str], *, leaf_colour: str = GREEN) -> str:
    """A name with a label, and branches below it that can be folded."""
    if not branches:
        text = (
            f'<span style="background:rgba({leaf_colour},.2);padding:0 6px">{escape(name)}</span>'
        )
        return f'{text} <small style="opacity:.7">{escape(label)}</small>'
    items = "".join(f"<li>{branch}</li>" for branch in branches)
    return (
        f'<details open><summary>{escape(name)} <small style="opacity:.7">{escape(label)}</small>'
        f'</summary><ul style="margin:0">{items}</ul></details>'
    )
