"""A progress bar for long work, in a notebook or on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any, TypeAlias

#: What shows how far work is: called with the name of a phase, what is done of it, and all of it.
Progress: TypeAlias = Callable[[str, int, int], None]

#: The bar changes at most this often, in seconds.
_SECONDS_BETWEEN = 0.1


class ProgressBar:
    """A progress bar for the argument `progress` of `fit`, `Requirements.layer` and others.

    In a notebook it is drawn below the cell, on a terminal on the standard error; elsewhere nothing
    is shown. It disappears when the work is done.

    >>> import latentgamma as lg
    >>> bar = lg.learning.ProgressBar()
    >>> result = lg.fit([[1, 0], [0, 0]] * 5, [[1, 1], [0, 0]] * 5, atoms=["a", "b"], progress=bar)
    >>> result.program.R
    1
    """

    def __init__(self) -> None:
        self._bar: _NotebookBar | _TerminalBar | None = None
        self._last = 0.0

    def __call__(self, entry: Any, done: int | None = None, total: int | None = None) -> None:
        """Show how far the work is.

        Args:
            entry: an entry of a history, which has a `stage` and the fraction `explained`; or
                the name of a phase.
            done: the number of jobs of that phase that are done.
            total: the number of all its jobs.
        """
        if isinstance(entry, str):
            text, fraction = f"{entry}: {done} of {total}", (done or 0) / (total or 1)
        else:
            text, fraction = f"{entry.stage}, {entry.explained:.0%} explained", entry.explained
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN:
            return
        self._last = now
        if self._bar is None:
            self._bar = _new_bar()
        if self._bar is not None:
            self._bar.show(text, min(1.0, max(0.0, fraction)))

    def close(self) -> None:
        """Remove the bar; a later call draws a new one."""
        if self._bar is not None:
            self._bar.close()
            self._bar, self._last = None, 0.0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()


def shows_progress() -> bool:
    """Return whether progress is shown: the standard error is a terminal, and codes are wanted."""
    return sys.stderr is not None and sys.stderr.isatty() and not no_color()


def no_color() -> bool:
    """Return whether a terminal is to get plain text."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _new_bar() -> _NotebookBar | _TerminalBar | None:
    if _in_notebook():
        return _NotebookBar()
    return _TerminalBar() if shows_progress() else None


def _in_notebook() -> bool:
    """Return whether this runs in a notebook: IPython is loaded, and has a kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _NotebookBar:
    """A bar in the output of a cell. It needs no widgets, only a display that can be updated."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, fraction: float) -> None:
        from IPython.display import HTML, display

        bar = f'<progress value="{fraction:.3f}" max="1"></progress> <small>{escape(text)}</small>'
        if self._handle is None:
            self._handle = display(HTML(bar), display_id=True)
        else:
            self._handle.update(HTML(bar))

    def close(self) -> None:
        from IPython.display import HTML

        if self._handle is not None:
            self._handle.update(HTML(""))


class _TerminalBar:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(), text, TimeElapsedColumn(), console=console, transient=True
        )
        self._task = self._bar.add_task("", total=1.0)
        self._bar.start()

    def show(self, text: str, fraction: float) -> None:
        self._bar.update(self._task, description=text, completed=fraction)

    def close(self) -> None:
        self._bar.stop()
