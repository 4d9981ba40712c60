"""The commands that reproduce the paper: run everything, or show again what was found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from latentgamma._atomic_write import write_text
from latentgamma._cli.console import Screen
from latentgamma._errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

    from latentgamma.validation.results import Timing, Validation

#: In a pipe nobody can widen the window: wide enough for every table.
_WIDE = 132


def validate(args: argparse.Namespace) -> int:
    """0 if everything that must hold does, else 1; after showing it all."""
    from latentgamma import report, validation

    graphs = [name.strip().lower() for name in args.graphs.split(",") if name.strip()]
    check_device(args.device)
    with _bars() as progress:
        results, timing = validation.run_validation(
            graphs, seed=args.seed, device=args.device, progress=progress
        )
    files = report.save(results, timing, args.out) if args.out else {}
    _show(results, timing, args.json)
    if not args.json:
        for path in files.values():
            sys.stdout.write(f"{path}\n")
    return 0 if results.holds else 1


def report(args: argparse.Namespace) -> int:
    """0 if everything that must hold did, else 1; after writing the page anew."""
    from latentgamma import report

    results, timing = report.load(args.results)
    out = Path(args.out) if args.out else Path(args.results).with_name("report.html")
    write_text(out, report.render_html(results, timing))
    _show(results, timing, args.json)
    if not args.json:
        sys.stdout.write(f"{out}\n")
    return 0 if results.holds else 1


def check_device(name: str) -> None:
    """Raise a DataError if nothing can run there."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as problem:
        raise DataError(f"device {name!r} cannot be used: {problem}") from None


def _show(results: Validation, timing: Timing | None, as_json: bool) -> None:
    from latentgamma import report

    if as_json:
        sys.stdout.write(results.to_json())
        return
    report.render_terminal(results, _console(), timing)


def _console() -> Console:
    screen = Screen()
    if screen.terminal:
        return screen.console
    from rich.console import Console

    return Console(width=_WIDE, highlight=False, markup=False, emoji=False)


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """One bar a phase on the terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    tasks: dict[str, TaskID] = {}
    with Progress(console=Console(stderr=True), transient=True) as bars:

        def move(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done)

        yield move
