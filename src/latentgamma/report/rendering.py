"""Results of a validation as files and as tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from latentgamma._atomic_write import write_text
from latentgamma._errors import DataError
from latentgamma.report.differences import differences
from latentgamma.report.page import render_html
from latentgamma.report.tables import tables
from latentgamma.report.verdicts import PHASES, timing_text, verdict
from latentgamma.validation.frozen_json import from_json, to_json
from latentgamma.validation.results import Timing, Validation

if TYPE_CHECKING:
    from rich.console import Console

_Decoded = TypeVar("_Decoded")


def save(results: Validation, timing: Timing | None, out: str | Path) -> dict[str, Path]:
    """Write results.json, timing.json and report.html into a folder.

    For the same seed results.json is the same, bit for bit; times are in a separate file.

    >>> import latentgamma as lg
    >>> results, timing = lg.validation.run_validation(["g1", "g2"])  # doctest: +SKIP
    >>> sorted(lg.report.save(results, timing, "out"))  # doctest: +SKIP
    ['report.html', 'results.json', 'timing.json']

    Args:
        results: the first of the two values that `run_validation` returned.
        timing: the second one; with None, timing.json is not written.
        out: the folder; it is created if it does not exist.

    Returns:
        The path of each file, by its name.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"results.json": results.to_json(), "report.html": render_html(results, timing)}
    if timing is not None:
        texts["timing.json"] = to_json(timing)
    for name, text in texts.items():
        write_text(folder / name, text)
    return {name: folder / name for name in texts}


def load(path: str | Path) -> tuple[Validation, Timing | None]:
    """The results in a file, and the times from timing.json beside it if there is one.

    >>> import latentgamma as lg
    >>> results, timing = lg.report.load("out/results.json")  # doctest: +SKIP
    >>> results.graphs, results.holds  # doctest: +SKIP
    (('g1', 'g2'), True)

    Args:
        path: a results.json written by `save`.

    Returns:
        The results, and the times, or None if there is no timing.json.

    Raises:
        DataError: one of the files cannot be read, or is not what `save` writes.
    """
    file = Path(path)
    results = _read(file, Validation.from_json)
    beside = file.with_name("timing.json")
    timing = _read(beside, partial(from_json, Timing)) if beside.is_file() else None
    return results, timing


def _read(file: Path, decode: Callable[[str], _Decoded]) -> _Decoded:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file}: this is not a text file") from None
    try:
        return decode(text)
    except DataError as error:
        raise DataError(f"{file}: {error}; it should come from `latentgamma validate`") from None


def render_terminal(results: Validation, console: Console, timing: Timing | None = None) -> None:
    """Print all tables, the differences from the paper, and the outcome of each phase.

    >>> import latentgamma as lg
    >>> from rich.console import Console
    >>> results, timing = lg.report.load("out/results.json")  # doctest: +SKIP
    >>> lg.report.render_terminal(results, Console(), timing)  # doctest: +SKIP

    Args:
        results: the first of the two values that `run_validation` returned.
        console: where to print.
        timing: the second one, printed at the end; None to leave it out.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    styles = {"": "", "same": "", "differs": "yellow", "bad": "bold red"}
    for table in tables(results):
        console.print(Text(f"\n{table.phase}  {table.title}", "bold"))
        shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False)
        for column in table.columns:
            shown.add_column(Text(column), overflow="fold")
        for row in table.rows:
            cells = [f"{cell.text} ≠" if cell.mark == "differs" else cell.text for cell in row]
            marked = zip(cells, row, strict=True)
            shown.add_row(*(Text(text, styles[cell.mark]) for text, cell in marked))
        console.print(shown)
        if table.note:
            console.print(Text(table.note, "dim"))
    console.print(Text("\nDifferences from the paper", "bold"))
    for one in differences(results):
        line = f"{one.phase}  {one.subject}: ours {one.ours}; paper {one.printed}."
        console.print(Text(line, "yellow"))
        console.print(Text(f"   {one.reason}", "dim"))
    console.print()
    for letter, title in PHASES:
        outcome = verdict(results, letter)
        mark, style = ("✓", "green") if outcome.holds else ("✗", "bold red")
        rest = f" ({outcome.difference_text})" if outcome.differing else ""
        console.print(Text(f"{mark} {letter}  {title}: {outcome.text}{rest}", style))
    if timing is not None:
        console.print(Text(timing_text(timing)))
