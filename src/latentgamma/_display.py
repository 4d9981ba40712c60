"""How results show themselves: in notebooks as HTML, through `rich`, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


# ---- Small pieces of HTML with which results show themselves in notebooks
# Colours are half transparent, so that they fit light and dark notebooks.

BLUE, GREEN, RED = "0,114,178", "0,158,115", "179,38,30"  # as in latentgamma.plot, for rgba(…)


def caption(text: str, colour: str | None = None) -> str:
    """Return a line in bold above the rest; with a colour, as a label."""
    style = "font-weight:600;margin:2px 0 6px"
    if colour is not None:
        style += (
            f";display:inline-block;padding:1px 10px;border-radius:9px;background:rgba({colour},.2)"
        )
    return f'<div style="{style}">{escape(text)}</div>'


def note(text: str) -> str:
    """Return a line in small type."""
    return f'<div style="opacity:.75;font-size:.9em;margin:4px 0">{escape(text)}</div>'


def code(lines: Iterable[str]) -> str:
    """Return lines of code."""
    return f'<pre style="margin:4px 0">{escape(chr(10).join(lines))}</pre>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: int = 99) -> str:
    """Return a table; the columns from number `right` on are aligned to the right."""

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
    """Return a table of numbers from 0 to 1, each as a colour; those above `marked` are in bold."""
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
    """Return a number between 0 and 1 in two digits, a dot for one that rounds to 0."""
    return f"{value:.2f}" if value >= 0.005 else "·"


def tree(name: str, label: str, branches: Sequence[str]) -> str:
    """Return a name with a label, and branches below it that can be folded."""
    if not branches:
        text = f'<span style="background:rgba({GREEN},.2);padding:0 6px">{escape(name)}</span>'
        return f'{text} <small style="opacity:.7">{escape(label)}</small>'
    items = "".join(f"<li>{branch}</li>" for branch in branches)
    return (
        f'<details open><summary>{escape(name)} <small style="opacity:.7">{escape(label)}</small>'
        f'</summary><ul style="margin:0">{items}</ul></details>'
    )


# ---- How results show themselves: as HTML in a notebook, and in colour through `rich.print`


@dataclass(frozen=True)
class Display:
    """A title, lines of code, a table and notes.

    Args:
        title: what this is, in a line.
        holds: whether a claim holds, which colours the title; None where there is no claim.
        code: lines of code.
        columns: the names of the columns, none for a table without a head.
        rows: the cells.
        right: the first column that is aligned to the right.
        notes: lines below.
    """

    title: str
    holds: bool | None = None
    code: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    right: int = 99
    notes: Sequence[str] = ()

    def html(self) -> str:
        """Return the parts as HTML."""
        colour = None if self.holds is None else GREEN if self.holds else RED
        parts = [caption(self.title, colour)]
        parts += [code(self.code)] if self.code else []
        parts += [table(self.columns, self.rows, right=self.right)] if self.rows else []
        return "".join([*parts, *map(note, self.notes)])

    def rich(self) -> RenderableType:
        """Return the parts as text with styles and a table."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        style = "bold" if self.holds is None else "bold green" if self.holds else "bold red"
        parts: list[RenderableType] = [Text(self.title, style), *map(Text, self.code)]
        if self.rows:
            shown = Table(show_header=bool(self.columns), box=None, padding=(0, 2, 0, 0))
            for n in range(len(self.rows[0])):
                name = self.columns[n] if self.columns else ""
                shown.add_column(name, justify="right" if n >= self.right else "left")
            for row in self.rows:
                shown.add_row(*map(Text, row))
            parts.append(shown)
        return Group(*parts, *(Text(line, "dim") for line in self.notes))


class Displayed:
    """A value that shows itself in notebooks and through `rich`, from what `_display` returns.

    By default that are the lines of its text, with the first as the title.
    """

    def _display(self) -> Display:
        title, *rest = str(self).split("\n")
        return Display(title, holds=getattr(self, "holds", None), code=rest)

    def _repr_html_(self) -> str:
        return self._display().html()

    def __rich__(self) -> RenderableType:
        return self._display().rich()
