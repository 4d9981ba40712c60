"""Results as people read them: tables in the terminal, and one HTML file that needs nothing else.

It computes nothing: `render_html(results)` and `render_terminal(results, console)` take what
`latentgamma.validation.run_validation` found, now or from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from latentgamma._atomic_write import write_text
from latentgamma._errors import DataError
from latentgamma.report.differences import findings
from latentgamma.report.page import SCRIPT, STYLE
from latentgamma.report.svg import collapse, heat_map, leak, program_map
from latentgamma.report.tables import Cell, Table, scientific, tables
from latentgamma.validation.frozen_json import from_json, to_json
from latentgamma.validation.printed import WALL_TIME
from latentgamma.validation.results import Timing, Validation

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["load", "render_html", "render_terminal", "save"]

#: The browser itself sees to it that the page loads nothing.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_PHASES = (
    ("A", "The closed form, written down"),
    ("B", "Every closure, exactly"),
    ("C", "How much noise it takes"),
    ("D", "Laws that hold for any parameters"),
    ("E", "The edges"),
    ("F", "Several heads a rule"),
    ("G", "What is proved"),
)


# -------------------------------------------------------------------- files


def save(results: Validation, timing: Timing | None, out: str | Path) -> dict[str, Path]:
    """Write results.json, timing.json and report.html into a folder; where they are.

    results.json is the same, bit for bit, for the same seed; times are in a file of their own.
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
    """The results in a file, and the times beside it, if there are any."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise DataError(f"{file}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file}: this is no text file") from None
    try:
        results = Validation.from_json(text)
    except DataError as problem:
        raise DataError(f"{file}: {problem}; it should come from `latentgamma validate`") from None
    beside = file.with_name("timing.json")
    timing = from_json(Timing, beside.read_text(encoding="utf-8")) if beside.is_file() else None
    return results, timing


# -------------------------------------------------------------------- the terminal


def render_terminal(results: Validation, console: Console, timing: Timing | None = None) -> None:
    """Print all tables, ours beside the paper's, what differs marked, and the verdicts."""
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
            shown.add_row(*(Text(_marked(cell.text, cell.mark), styles[cell.mark]) for cell in row))
        console.print(shown)
        if table.note:
            console.print(Text(table.note, "dim"))
    console.print(Text("\nWhere ours differs from the paper, and why", "bold"))
    for one in findings(results):
        console.print(
            Text(f"{one.phase}  {one.what}: ours {one.ours}; paper {one.printed}.", "yellow")
        )
        console.print(Text(f"   {one.why}", "dim"))
    console.print()
    for letter, _ in _PHASES:
        kind, words = _verdict(results, letter)
        colour = {"good": "green", "odd": "yellow", "bad": "bold red"}[kind]
        console.print(Text(f"{letter}  {words}", colour))
    if timing is not None:
        console.print(Text(_time_words(timing)))


def _marked(text: str, mark: str) -> str:
    return f"{text} ≠" if mark == "differs" else text


# -------------------------------------------------------------------- verdicts


def _verdict(results: Validation, letter: str) -> tuple[str, str]:
    """Good, odd or bad, and the words for it."""
    wide = results.robustness
    models = [held for row in (*wide.body, *wide.head) for held in row.certified]
    rows = results.expressivity.rows
    cases = results.edge_cases.rows
    ours = [row for row in results.multi_head.rows if row.heads == "equal"]
    exact = sum(round(row.accuracy * row.examples) for row in rows)
    total = sum(row.examples for row in rows)
    holds, words = {
        "A": (
            True,
            f"{len(results.graphs)} of the paper's programs, all stated figures met at once",
        ),
        "B": (results.expressivity.holds, f"{exact:,} of {total:,} runs exact in every atom"),
        "C": (
            wide.holds,
            f"{sum(models)} of {len(models)} noisy models still proved right; "
            + ("none was wrong where it is proved" if wide.holds else "a proved one was wrong"),
        ),
        "D": (results.structure.holds, "no exception" if results.structure.holds else "broken"),
        "E": (
            results.edge_cases.holds,
            f"{sum(row.jaccard == 1 for row in cases)} of {len(cases)} exact",
        ),
        "F": (
            results.multi_head.holds,
            f"{sum(row.active for row in ours)} of {sum(row.rules for row in ours)} rules with "
            "all heads active",
        ),
        "G": (
            results.windows.holds,
            "every graph certified" if results.windows.holds else "a graph is not certified",
        ),
    }[letter]
    if not holds:
        return "bad", words
    differs = any(
        cell.mark == "differs"
        for table in tables(results)
        if table.phase == letter
        for row in table.rows
        for cell in row
    )
    return ("odd", f"{words}; some figures differ from the paper's") if differs else ("good", words)


def _time_words(timing: Timing) -> str:
    return (
        f"All phases took {timing.wall:.1f} s on {timing.device} ({timing.cpu:.1f} s of "
        f"processor time, {timing.peak_memory / 1e9:.2f} GB at most). The paper reports "
        f"{WALL_TIME} s for G4 alone on an A100."
    )


# -------------------------------------------------------------------- the page


def render_html(results: Validation, timing: Timing | None = None) -> str:
    """The report as one HTML page: it loads nothing, and works from a file, offline."""
    every = tables(results)
    sections = "".join(
        _section(results, letter, title, [table for table in every if table.phase == letter])
        for letter, title in _PHASES
    )
    links = "".join(f'<a href="#{letter}">{letter} {title}</a>' for letter, title in _PHASES)
    timed = f"<p>{escape(_time_words(timing))}</p>" if timing is not None else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>LatentGamma: the paper, reproduced</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<h1>The paper, reproduced</h1>
<p class="lead">Differentiable Horn programs: every table and claim, computed here, beside the
figures the paper prints. Where the two differ, it says so, and why.</p>
{_tiles(results, timing)}
<nav aria-label="Phases">{links}<a href="#differences">Differences</a></nav>
</header>
{sections}
<section id="differences"><div class="top"><h2>Where ours differs, and why</h2></div>
<p>Nothing is tuned to hide a difference: the seed is {results.seed}, and another one gives
other noise.</p>
{_cards(results)}</section>
<footer>{timed}<p>Seed {results.seed}. The same seed gives the same results, bit for bit, on one
machine; <code>latentgamma report results.json</code> draws this page again.</p></footer>
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _tiles(results: Validation, timing: Timing | None) -> str:
    rows = results.expressivity.rows
    exact = sum(round(row.accuracy * row.examples) for row in rows)
    total = sum(row.examples for row in rows)
    noisy = [held for row in results.robustness.body for held in row.certified]
    ends = [row.t_max for row in results.windows.rows if row.constants == "certified" and row.t_max]
    tiles = [
        (f"{exact:,} / {total:,}", "runs exact in every atom, with the paper's constants and ours"),
        (
            f"{sum(noisy)} / {len(noisy)}",
            "models with noisy bodies still proved right for all facts",
        ),
        (
            scientific(min(ends, default=0)),
            "steps, at least, in every window our constants certify",
        ),
    ]
    if timing is not None:
        tiles.append((f"{timing.wall:.1f} s", f"for everything on {timing.device}"))
    items = "".join(f"<li><b>{escape(b)}</b><span>{escape(s)}</span></li>" for b, s in tiles)
    return f'<ul class="tiles">{items}</ul>'


def _section(results: Validation, letter: str, title: str, every: Sequence[Table]) -> str:
    kind, words = _verdict(results, letter)
    body = {
        "A": _phase_a, "B": _phase_b, "C": _phase_c, "G": _phase_g,
    }.get(letter, _plain)  # fmt: skip
    return (
        f'<section id="{letter}"><div class="top"><h2><span class="letter">{letter}</span> '
        f'{escape(title)}</h2><span class="badge {kind}">{escape(words)}</span></div>'
        f"<p>{escape(_TEXTS[letter])}</p>{body(results, every)}</section>"
    )


_TEXTS = {
    "A": "A Horn program becomes the parameters of a differentiable operator by formula, without "
    "training. The paper's four programs are known by their figures alone; ours meet all of them. "
    "Each line below is a chain of atoms; move a slider to watch a run light them up.",
    "B": "Random sets of two to eight facts. The operator runs, and every atom must end on the "
    "right side of one half, under the paper's constants and under certified ones. The pictures "
    "show a run each, one row per atom in the order they come true: a staircase, one stair a step.",
    "C": "Gaussian noise on every logit. The grey curve is the exact probability that no body "
    "logit changes its sign; accuracy falls with it. But no change of sign is not enough to be "
    "right, and one need not be fatal: so each noisy model is certified by itself.",
    "D": "No value ever falls, larger states go to larger states, and runs stay below one. These "
    "hold whatever the parameters; here they are checked in float64 without any tolerance.",
    "E": "Nothing, single roots, all roots, single leaves: where off-by-one errors live.",
    "F": "A rule with three heads gives each a third. The paper's thresholds cope while all rules "
    "of an atom have about as many heads; ours make every head count the same.",
    "G": "Sigmoids never quite close, so atoms that do not follow leak upwards. The certificate "
    "bounds that leak for every fact set at once and says from which step to which step the "
    "answer is exact. Dots are what was seen; lines are what is proved.",
}


def _plain(results: Validation, every: Sequence[Table]) -> str:
    return "".join(map(_titled, every))


def _phase_a(results: Validation, every: Sequence[Table]) -> str:
    first, *rest = every
    maps = []
    for picture in results.pictures:
        last = len(picture.states) - 1
        facts = ", ".join(picture.atoms[i] for i in picture.facts)
        maps.append(
            f'<figure class="map"><figcaption><b>{picture.graph.upper()}</b> from {escape(facts)}'
            f'</figcaption><div class="scroll" tabindex="0">{program_map(picture)}</div>'
            f'<label>Step <input type="range" min="0" max="{last}" value="{last}" '
            f'aria-label="Step of the run on {picture.graph.upper()}"><output></output></label>'
            "</figure>"
        )
    return _titled(first) + "".join(maps) + "".join(map(_titled, rest))


def _phase_b(results: Validation, every: Sequence[Table]) -> str:
    return _plain(results, every) + _four(
        [(f"<b>{p.graph.upper()}</b> step by step", heat_map(p)) for p in results.pictures]
    )


def _phase_c(results: Validation, every: Sequence[Table]) -> str:
    key = (
        '<p class="note key-line"><span class="key o"></span>ours, all three models still proved right'
        '<span class="key h"></span>ours, some not<span class="key p"></span>paper'
        '<span class="key l"></span>probability that no sign changes</p>'
    )
    panels = [
        (
            f"<b>{row.graph.upper()}</b> RM = {row.logits:,}",
            collapse(row.graph, [r for r in results.robustness.body if r.graph == row.graph], row),
        )
        for row in results.robustness.critical
    ]
    first, *rest = every
    return _titled(first) + key + _four(panels) + "".join(map(_titled, rest))


def _phase_g(results: Validation, every: Sequence[Table]) -> str:
    key = (
        '<p class="note key-line"><span class="key q"></span>paper\'s constants'
        '<span class="key o"></span>certified constants'
        '<span class="key r"></span>where the paper promises its constants to last</p>'
    )
    panels = [
        (
            f"<b>{name.upper()}</b> largest atom that does not follow",
            leak(name, [row for row in results.windows.rows if row.graph == name]),
        )
        for name in results.graphs
    ]
    return _plain(results, every) + key + _four(panels)


def _four(panels: Sequence[tuple[str, str]]) -> str:
    figures = (f"<figure><figcaption>{c}</figcaption>{svg}</figure>" for c, svg in panels)
    return f'<div class="four">{"".join(figures)}</div>'


def _titled(table: Table) -> str:
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"<h3>{escape(table.title)}</h3>{_scrolled(table)}{note}"


def _cards(results: Validation) -> str:
    """What differs, one card each: a table of sentences is no pleasure on a phone."""
    cards = "".join(
        f'<article><h3><span class="letter">{one.phase}</span> {escape(one.what)}</h3><dl>'
        f'<dt>ours</dt><dd class="ours-text">{escape(one.ours)}</dd>'
        f'<dt>paper</dt><dd class="paper-text">{escape(one.printed)}</dd></dl>'
        f"<p>{escape(one.why)}</p></article>"
        for one in findings(results)
    )
    return f'<div class="cards">{cards}</div>'


def _scrolled(table: Table) -> str:
    """A table in a box of its own, so that the page never scrolls sideways."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    style = f' class="{cell.mark}"' if cell.mark in ("differs", "bad") else ""
    return f"<td{style}>{escape(cell.text)}</td>"
