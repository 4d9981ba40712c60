"""Results of a validation as one HTML page that needs no other file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import numpy as np

from latentgamma import plot
from latentgamma._program.program import Program
from latentgamma.report.differences import differences
from latentgamma.report.tables import Cell, Table, scientific, tables
from latentgamma.report.verdicts import PHASES, exact_runs, timing_text, verdict
from latentgamma.validation.printed import GRAPHS
from latentgamma.validation.results import Picture, Timing, Validation, WindowRow

#: The browser refuses to load anything for this page.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_CHART = (4.4, 2.9)

_TEXTS = {
    "A": "The parameters of the operator follow from a program by formulas, without training. The "
    "paper describes its four programs by their sizes only; these have the same sizes. Move a "
    "slider to see which atoms are true at each step of one run. Blue lines are the rules that "
    "fire during the run.",
    "B": "Random sets of two to eight facts, with the paper's constants and with certified ones. "
    "A run is exact if every atom is on the correct side of one half. Each picture shows one run: "
    "one row per atom, sorted by the first step above one half.",
    "C": "Gaussian noise on every logit. The grey curve is the probability that no body logit "
    "changes its sign, and accuracy falls with it. A model without a sign change can be wrong, "
    "and one with a sign change can be exact, so each noisy model is certified separately.",
    "D": "Values never fall, larger states have larger successors, and values stay below one. This "
    "holds for all parameters; here it is checked in float64 without a tolerance.",
    "E": "No facts, single roots, all roots, and single leaves.",
    "F": "A rule with three heads gives each of them a third. The thresholds in the paper fail if "
    "an atom is the head of rules with different numbers of heads. Ours treat every head alike.",
    "G": "The sigmoid gates never close completely, so atoms that do not follow rise slowly. The "
    "certificate bounds them for every fact set and gives the steps for which the result is "
    "exact. Dots are measured values, lines are proved bounds.",
}


def render_html(results: Validation, timing: Timing | None = None) -> str:
    """The report as one HTML page that loads nothing and works offline.

    >>> import latentgamma as lg
    >>> results, timing = lg.report.load("out/results.json")  # doctest: +SKIP
    >>> lg.report.render_html(results, timing).startswith("<!DOCTYPE html>")  # doctest: +SKIP
    True

    Args:
        results: the first of the two values that `run_validation` returned.
        timing: the second one; it adds the duration, the machine and the versions.

    Returns:
        The text of the page.
    """
    sections = "".join(_section(results, letter, title) for letter, title in PHASES)
    links = "".join(f'<a href="#{letter}">{letter} {title}</a>' for letter, title in PHASES)
    timed = f"<p>{escape(timing_text(timing))}</p>" if timing is not None else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>LatentGamma: the paper, reproduced</title>
<link rel="icon" href="data:,">
<style>{_resource("style.css")}</style>
</head>
<body>
<main>
<header>
<h1>The paper, reproduced</h1>
<p class="lead">Every table and claim of <i>Differentiable Horn Programs</i>, computed with
LatentGamma and shown beside the figures that the paper prints. Differences are marked and
explained.</p>
{_tiles(results, timing)}
<nav aria-label="Phases">{links}<a href="#differences">Differences</a></nav>
</header>
{sections}
<section id="differences"><div class="title"><h2>Differences from the paper</h2></div>
{_cards(results)}</section>
<footer>{timed}<p>Seed {results.seed}. On one machine, the same seed gives the same results, bit for
bit. <code>latentgamma report results.json</code> renders this page again.</p></footer>
</main>
<script>{_resource("script.js")}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return files("latentgamma.report").joinpath(name).read_text(encoding="utf-8")


def symbols(text: str) -> str:
    """A text as HTML, with indices and exponents as such.

    >>> symbols("τ_s < 4kMe^−η")
    'τ<sub>s</sub> &lt; 4kMe<sup>−η</sup>'
    """
    text = re.sub(r"\b([^\W\d_])_(\w+)", r"\1<sub>\2</sub>", escape(text))
    return re.sub(r"e\^(−?\w+)", r"e<sup>\1</sup>", text)


# -------------------------------------------------------------------- parts of the page


def _tiles(results: Validation, timing: Timing | None) -> str:
    exact, total = exact_runs(results)
    noisy = [certified for row in results.robustness.body for certified in row.certified]
    rows = [row for row in results.windows.rows if row.constants == "certified"]
    tiles = [
        (f"{exact:,} / {total:,}", "runs exact in every atom"),
        (f"{sum(noisy)} / {len(noisy)}", "models with noisy bodies certified for all fact sets"),
        (_shortest(rows), "steps in the shortest certified window"),
    ]
    if timing is not None:
        tiles.append((f"{timing.wall:.1f} s", f"for all phases on {timing.device}"))
    items = "".join(f"<li><b>{escape(b)}</b><span>{escape(s)}</span></li>" for b, s in tiles)
    return f'<ul class="tiles">{items}</ul>'


def _shortest(rows: Sequence[WindowRow]) -> str:
    """The end of the shortest certified window."""
    if not all(row.holds for row in rows):
        return "0"
    finite = [row.t_max for row in rows if row.t_max is not None]
    return scientific(min(finite)) if finite else "∞"


def _section(results: Validation, letter: str, title: str) -> str:
    outcome = verdict(results, letter)
    kind = "good" if outcome.holds else "bad"
    badges = f'<span class="badge {kind}">{escape(outcome.text)}</span>'
    if outcome.differing:
        text = escape(outcome.difference_text)
        badges += f' <a class="badge note" href="#differences">{text}</a>'
    first, *rest = [_table(table) for table in tables(results) if table.phase == letter]
    figures = {"A": _graphs, "B": _runs, "C": _noise, "G": _leakage}.get(letter)
    middle = figures(results) if figures else ""
    return (
        f'<section id="{letter}"><div class="title"><h2><span class="letter">{letter}</span> '
        f"{escape(title)}</h2>{badges}</div><p>{escape(_TEXTS[letter])}</p>"
        f"{first}{middle}{''.join(rest)}</section>"
    )


def _graphs(results: Validation) -> str:
    return "".join(_graph(picture) for picture in results.pictures)


def _graph(picture: Picture) -> str:
    """The program as a graph, with a slider for the step of a run."""
    name = picture.graph.upper()
    program = _program(picture)
    crossing = crossing_steps(picture)
    true = [atom for atom, step in zip(picture.atoms, crossing, strict=True) if step >= 0]
    figure = plot.program(program, highlight=true)
    svg = plot.inline_svg(figure, f"graph-{picture.graph}", f"{name}: the rules as a graph")
    facts = escape(", ".join(picture.atoms[i] for i in picture.facts))
    last = len(picture.states) - 1
    return (
        f'<figure class="graph" data-crossing="{",".join(map(str, crossing))}">'
        f"<figcaption><b>{name}</b>, facts: {facts}</figcaption>"
        f'<div class="scroll" tabindex="0">{svg}</div>'
        f'<label>Step <input type="range" min="0" max="{last}" value="{last}" '
        f'aria-label="Step of the run on {name}"><output></output></label></figure>'
    )


def _runs(results: Validation) -> str:
    from torch import tensor

    from latentgamma._model.trajectory import Trajectory

    panels = []
    for picture in results.pictures:
        states = tensor(np.array(picture.states) / 100)  # (T + 1, M)
        figure = plot.trajectory(Trajectory(states, _program(picture)), size=_CHART)
        crossing = crossing_steps(picture)
        derived = sum(step >= 0 for step in crossing)
        words = (
            f"{picture.graph.upper()}: {derived} of {len(picture.atoms)} atoms are true after "
            f"{max(crossing)} steps"
        )
        svg = plot.inline_svg(figure, f"run-{picture.graph}", words)
        panels.append((f"<b>{picture.graph.upper()}</b>, one run", svg))
    return _panels(panels)


def _noise(results: Validation) -> str:
    legend = (
        '<p class="caption legend"><span class="key filled blue"></span>LatentGamma, every model '
        'certified<span class="key blue"></span>LatentGamma, not every model certified'
        '<span class="key orange"></span>paper<span class="key line grey"></span>probability that '
        "no sign changes</p>"
    )
    panels = []
    for critical in results.robustness.critical:
        rows = [row for row in results.robustness.body if row.graph == critical.graph]
        printed = GRAPHS[critical.graph].accuracy
        words = f"{critical.graph.upper()}: accuracy by noise on the body logits. " + "; ".join(
            f"σ {row.sigma:g}: {row.accuracy:.3f}, paper {theirs:.3f}"
            for row, theirs in zip(rows, printed, strict=True)
        )
        svg = plot.inline_svg(plot.noise(rows, critical), f"noise-{critical.graph}", words)
        panels.append((f"<b>{critical.graph.upper()}</b>, RM = {critical.logits:,}", svg))
    return legend + _panels(panels)


def _leakage(results: Validation) -> str:
    legend = (
        '<p class="caption legend"><span class="key filled orange"></span>paper\'s constants'
        '<span class="key filled blue"></span>certified constants'
        '<span class="key line dashed orange"></span>end of the window stated in the paper</p>'
    )
    panels = []
    for name in results.graphs:
        rows = [row for row in results.windows.rows if row.graph == name]
        words = f"{name.upper()}: largest underivable atom by step. " + "; ".join(
            f"{row.constants} constants: proved to step {row.t_max:.4g}"
            for row in rows
            if row.t_max
        )
        svg = plot.inline_svg(plot.leakage(rows), f"leakage-{name}", words)
        panels.append((f"<b>{name.upper()}</b>, largest underivable atom", svg))
    return legend + _panels(panels)


def _program(picture: Picture) -> Program:
    names = picture.atoms
    rules = [
        ([names[i] for i in heads], [names[i] for i in body])
        for heads, body in zip(picture.heads, picture.bodies, strict=True)
    ]
    return Program.from_rules(rules, atoms=names)


def crossing_steps(picture: Picture) -> list[int]:
    """The first step at which each atom is above one half, −1 if it never is."""
    above = np.array(picture.states) > 50  # (T + 1, M)
    steps: list[int] = np.where(above.any(0), above.argmax(0), -1).tolist()
    return steps


def _panels(panels: Sequence[tuple[str, str]]) -> str:
    figures = (f"<figure><figcaption>{c}</figcaption>{svg}</figure>" for c, svg in panels)
    return f'<div class="panels">{"".join(figures)}</div>'


def _cards(results: Validation) -> str:
    cards = "".join(
        f'<article><h3><span class="letter">{one.phase}</span> {symbols(one.subject)}</h3><dl>'
        f'<dt>ours</dt><dd class="ours">{symbols(one.ours)}</dd>'
        f'<dt>paper</dt><dd class="paper">{symbols(one.printed)}</dd></dl>'
        f"<p>{symbols(one.reason)}</p></article>"
        for one in differences(results)
    )
    return f'<div class="cards">{cards}</div>'


def _table(table: Table) -> str:
    """A table that scrolls by itself, so that the page never scrolls sideways."""
    head = "".join(f'<th scope="col">{symbols(column)}</th>' for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'<p class="caption">{symbols(table.note)}</p>' if table.note else ""
    return (
        f"<h3>{symbols(table.title)}</h3>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def _cell(cell: Cell) -> str:
    style = f' class="{cell.mark}"' if cell.mark in ("differs", "bad") else ""
    return f"<td{style}>{symbols(cell.text)}</td>"
