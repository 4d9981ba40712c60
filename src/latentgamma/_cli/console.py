"""Where the command line prints to: colour on a terminal, plain lines in a pipe."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

Cells = Sequence[str]


class Screen:
    """Where a command prints to."""

    @cached_property
    def console(self) -> Console:
        """The standard output, as rich sees it."""
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    @property
    def terminal(self) -> bool:
        """Whether a person is looking."""
        return self.console.is_terminal

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line, or several, as they are."""
        if self.terminal:
            self.console.print(text, style=style or None, soft_wrap=True)
        else:
            sys.stdout.write(f"{text}\n")

    def json(self, document: object) -> None:
        """Print one JSON document; numbers that JSON does not know become null."""
        plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        text = json.dumps(_finite(document), indent=2, ensure_ascii=plain, allow_nan=False)
        sys.stdout.write(f"{text}\n")

    def table(self, head: Cells, rows: Iterable[Cells], *, right: int = 1) -> None:
        """Print a table; the columns from `right` on are numbers."""
        if self.terminal:
            from rich import box
            from rich.table import Table
            from rich.text import Text

            table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold")
            for n, title in enumerate(head):
                table.add_column(title, justify="right" if n >= right else "left", no_wrap=n == 0)
            for row in rows:
                table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
            self.console.print(table)
            return
        grid = [list(head), *map(list, rows)]
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        for row in grid:
            cells = [
                cell.rjust(width) if n >= right else cell.ljust(width)
                for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self.line("  ".join(cells).rstrip())


def _style(cell: str) -> str:
    if cell.endswith("*"):
        return "bold green"
    return {"✓": "green", "✗": "bold red", "·": "dim"}.get(cell, "")


class _Display(Protocol):
    """Something on the terminal that moves while work is done."""

    def start(self) -> None:
        """Show it."""

    def stop(self) -> None:
        """Take it away; it may not have been shown."""


@contextmanager
def _shown_if_long(display: _Display) -> Iterator[None]:
    """Show the display once the work has taken half a second, and take it away at the end."""
    timer = threading.Timer(0.5, display.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        display.stop()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that something is being worked on, if a person is waiting at a terminal."""
    if not _watched():
        yield
        return
    from rich.console import Console

    with _shown_if_long(Console(stderr=True).status(what)):
        yield


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal, and the function that moves it on; nothing in a pipe."""
    if not _watched():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    with _shown_if_long(bar):
        yield lambda count: bar.advance(task, count)


@contextmanager
def learning() -> Iterator[Callable[[str, float, int, Sequence[str]], None]]:
    """A bar for learning, with what was found above it; nothing in a pipe.

    The function it gives takes the stage, the share explained, the rules so far and new ones.
    """
    if not _watched():
        yield lambda stage, share, rules, new: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = ("{task.description}", "{task.percentage:>3.0f}% explained", "{task.fields[rules]}")
    text = [TextColumn(column, markup=False) for column in columns]
    bar = Progress(
        text[0], BarColumn(), text[1], text[2], TimeElapsedColumn(), console=console, transient=True
    )
    task = bar.add_task("learning", total=1.0, rules="")
    waiting: list[str] = []

    def show(stage: str, share: float, rules: int, new: Sequence[str]) -> None:
        waiting.extend(new)
        count = f"{rules:,} {'rule' if rules == 1 else 'rules'}"
        bar.update(task, description=stage, completed=share, rules=count)
        if waiting and bar.live.is_started:
            console.print("\n".join(f"+ {rule}" for rule in waiting), style="dim", soft_wrap=True)
            waiting.clear()

    with _shown_if_long(bar):
        yield show


def _watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
