"""Output of the command line: styled on a terminal, plain text everywhere else."""

from __future__ import annotations

import errno
import io
import json
import math
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from latentgamma._progress import no_color, shows_progress
from latentgamma._text import aligned, quantity

if TYPE_CHECKING:
    from rich.console import Console

Cells = Sequence[str]


class ClosedOutput(io.TextIOBase):
    """Stands for a standard output that was closed before the program started."""

    def write(self, text: str) -> int:
        """Raise an OSError."""
        raise OSError(errno.EBADF, "it is closed", "standard output")


def write_output(text: str = "") -> None:
    """Write text to the standard output; without text, flush it.

    Raises:
        OSError: it cannot be written; `filename` is "standard output".
    """
    try:
        if text:
            sys.stdout.write(text)
        else:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


def print_message(text: str) -> None:
    """Write a line to the standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"latentgamma: {text}\n")


@contextmanager
def announced_compilation() -> Iterator[None]:
    """Say on a terminal, once, if numba has to compile something inside the context."""
    from latentgamma.program.compilation import on_compile

    def announce(name: str) -> None:
        on_compile.remove(announce)
        print_message(
            "compiling, which takes some seconds, once on this machine; 'latentgamma compile' "
            "does it ahead of time"
        )

    if sys.stderr is not None and sys.stderr.isatty():
        on_compile.append(announce)
    try:
        yield
    finally:
        if announce in on_compile:
            on_compile.remove(announce)


def report_interruption(checkpoint: str | None) -> int:
    """Say what was saved of an interrupted search; return the exit code."""
    from latentgamma._checkpoint import delete_checkpoint, finished_pieces

    pieces = finished_pieces(checkpoint) if checkpoint else 0
    if checkpoint and pieces:
        print_message(
            f"interrupted; {quantity(pieces, 'finished piece')} of work saved in {checkpoint}: "
            f"the same command resumes from there, and starts again with --fresh"
        )
    else:
        if checkpoint:
            delete_checkpoint(checkpoint)
        print_message("interrupted, before anything was finished")
    return 130


def new_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a rich console that prints text as it is; without any codes if NO_COLOR is set."""
    from rich.console import Console

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with code 1, which means a failed claim

    system: Literal["auto"] | None = None if no_color() else "auto"
    return PlainConsole(
        stderr=stderr, width=width, color_system=system, highlight=False, markup=False, emoji=False
    )


class Screen:
    """The standard output of a command."""

    @cached_property
    def console(self) -> Console:
        """The rich console that writes to it."""
        return new_console()

    @property
    def terminal(self) -> bool:
        """Whether it is a terminal."""
        return self.console.is_terminal

    def line(self, text: str = "", style: str = "") -> None:
        """Print lines of text."""
        if self.terminal:
            self.console.print(text, style=style or None, soft_wrap=True)
        else:
            write_output(f"{text}\n")

    def json(self, document: object) -> None:
        """Print one JSON document; NaN and infinities become null."""
        ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        text = json.dumps(_finite(document), indent=2, ensure_ascii=ascii_only, allow_nan=False)
        write_output(f"{text}\n")

    def table(self, head: Cells, rows: Iterable[Cells], *, right: int = 1) -> None:
        """Print a table; the columns from number `right` on are aligned to the right."""
        title, *lines = aligned([list(head), *map(list, rows)], right)
        self.line(title, "bold")
        for line in lines:
            self.line(line)


@contextmanager
def working(task: str) -> Iterator[None]:
    """Show a status line on the terminal if the block runs for half a second; nothing in a pipe."""
    if not shows_progress():
        yield
        return
    status = new_console(stderr=True).status(task)
    timer = threading.Timer(0.5, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
