"""The commands `validate` and `report`: the paper's experiments and their report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from latentgamma._atomic_write import write_text
from latentgamma._cli.checks import check_device, check_outputs, check_picture
from latentgamma._cli.console import Screen, new_console, shows_progress, write_output

if TYPE_CHECKING:
    from rich.console import Console

    from latentgamma.validation.results import Timing, Validation

#: The width of the tables in a pipe.
_WIDTH = 132


def validate(args: argparse.Namespace) -> int:
    """Run the experiments and print the tables; return 0 if every claim holds, else 1."""
    from latentgamma import report, validation

    graphs = [name.strip().lower() for name in args.graphs.split(",") if name.strip()]
    check_device(args.device)
    checkpoint = _checkpoint(args.out)
    with _progress_bars() as progress:
        results, timing = validation.run_validation(
            graphs,
            seed=args.seed,
            perturbations=args.perturbations,
            device=args.device,
            progress=progress,
            checkpoint=checkpoint,
        )
    files = report.save(results, timing, args.out) if args.out else {}
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    _print(results, timing, args.json)
    if not args.json:
        for path in files.values():
            write_output(f"{path}\n")
    return 0 if results.holds else 1


def report(args: argparse.Namespace) -> int:
    """Write the page again from saved results; return 0 if every claim held, else 1."""
    from latentgamma import report

    out = Path(args.out) if args.out else Path(args.results).with_name("report.html")
    timing_file = str(Path(args.results).with_name("timing.json"))
    check_outputs({"--out": str(out)}, {"RESULTS": args.results, "timing.json": timing_file})
    results, timing = report.load(args.results)
    write_text(out, report.render_html(results, timing))
    _print(results, timing, args.json)
    if not args.json:
        write_output(f"{out}\n")
    return 0 if results.holds else 1


def _checkpoint(out: str | None) -> Path | None:
    """The file for finished phases, in the output folder; and check that results can be drawn."""
    if out is None:
        return None
    check_picture("report.svg")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "validation.unfinished"


def _print(results: Validation, timing: Timing | None, as_json: bool) -> None:
    from latentgamma import report

    if as_json:
        write_output(results.to_json())
        return
    report.render_terminal(results, _console(), timing)


def _console() -> Console:
    screen = Screen()
    if screen.terminal:
        return screen.console
    return new_console(width=_WIDTH)


@contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None] | None]:
    """One progress bar per phase on the terminal; nothing in a pipe."""
    if not shows_progress():
        yield None
        return
    from rich.progress import Progress, TaskID

    tasks: dict[str, TaskID] = {}
    with Progress(console=new_console(stderr=True), transient=True) as bars:

        def update(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done)

        yield update
