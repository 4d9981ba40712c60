"""How results show themselves: as HTML in a notebook, and in colour through `rich.print`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latentgamma._html import GREEN, RED, caption, code, note, table

if TYPE_CHECKING:
    from rich.console import RenderableType


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
        """The parts as HTML."""
        colour = None if self.holds is None else GREEN if self.holds else RED
        parts = [caption(self.title, colour)]
        parts += [code(self.code)] if self.code else []
        parts += [table(self.columns, self.rows, right=self.right)] if self.rows else []
        return "".join([*parts, *map(note, self.notes)])

    def rich(self) -> RenderableType:
        """The parts as text with styles and a table."""
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
    """A value that shows itself in notebooks and through `rich`, from what `_display` returns."""

    def _display(self) -> Display:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self._display().html()

    def __rich__(self) -> RenderableType:
        return self._display().rich()
