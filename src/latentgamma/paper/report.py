"""The results of the validation as tables, on the terminal and as a page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from latentgamma import plot
from latentgamma._atomic_write import write_text
from latentgamma._text import file_problem
from latentgamma.errors import DataError
from latentgamma.paper import charts
from latentgamma.paper.bounds import critical_sigma
from latentgamma.paper.results import (
    GAMMA_MINUS,
    GAMMA_PLUS,
    GRAPHS,
    PHASES,
    SIGMAS,
    WALL_TIME,
    ConstantsRow,
    NoiseRow,
    Timing,
    Validation,
    WindowRow,
    from_json,
    to_json,
)
from latentgamma.plot.figure import number_text

if TYPE_CHECKING:
    from rich.console import Console


# ---- The results as tables, for the terminal and for the page


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and whether it differs from the paper."""

    text: str
    differs: bool = False


@dataclass(frozen=True)
class Table:
    """A title, columns and rows of one of the phases, "A" to "G".

    `note` explains the columns, and `reason` why figures differ from those in the paper.
    """

    phase: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str
    reason: str

    @property
    def differing(self) -> int:
        """The number of figures that differ from those in the paper."""
        return sum(cell.differs for row in self.rows for cell in row)


Columns: TypeAlias = dict[str, Callable[[Any], Cell | str | float]]


def _table(
    phase: str,
    title: str,
    rows: Iterable[Any],
    columns: Columns,
    *,
    note: str = "",
    reason: str = "",
) -> Table:
    """Return a table; each column has a function from a row to its cell."""
    cells = tuple(tuple(_as_cell(column(row)) for column in columns.values()) for row in rows)
    return Table(phase, title, tuple(columns), cells, note, reason)


def _as_cell(value: Cell | str | float) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(value)
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.4g}")


def _beside(ours: object, printed: object, same: bool | None = None) -> Cell:
    """Return our figure and the paper's in brackets, marked if they differ."""
    return Cell(f"{ours} ({printed})", str(ours) != str(printed) if same is None else not same)


def _graph(row: Any) -> str:
    return str(row.graph).upper()


def tables(results: Validation) -> tuple[Table, ...]:
    """Return all tables, in the order of the phases."""
    return (
        _sizes(results),
        _constants(results),
        _bits(results),
        _closures(results),
        *_noise(results),
        _laws(results),
        _edge_cases(results),
        _several_heads(results),
        _windows(results),
    )


def _sizes(results: Validation) -> Table:
    return _table(
        "A",
        "The programs",
        results.programs,
        {
            "graph": _graph,
            "M": lambda row: _beside(row.M, GRAPHS[row.graph].M),
            "R": lambda row: _beside(row.R, GRAPHS[row.graph].R),
            "k": lambda row: _beside(row.k, 2),
            "ρ_max": lambda row: _beside(row.rho_max, GRAPHS[row.graph].rho_max),
            "depth": lambda row: row.depth,
            "productive roots": lambda row: row.productive_roots,
            "leaves": lambda row: row.leaves,
            "parameters, dense": lambda row: row.dense,
            "sparse": lambda row: row.sparse,
        },
        note="In brackets: the paper's figures. The sparse form computes the same values.",
        reason="The paper does not print its rules.",
    )


def _constants(results: Validation) -> Table:
    def gamma(row: ConstantsRow, value: float, printed: float) -> Cell:
        ours = f"{value:.4f}"
        return _beside(ours, printed) if row.constants == "paper" else Cell(ours)

    return _table(
        "A",
        "The constants",
        results.constants,
        {
            "graph": _graph,
            "constants": lambda row: row.constants,
            "η": lambda row: row.body,
            "Ψ": lambda row: row.head,
            "τ_s": lambda row: row.sharpness,
            "τ_nor": lambda row: row.gain,
            "γ⁺": lambda row: gamma(row, row.gamma_plus, GAMMA_PLUS),
            "γ⁻": lambda row: gamma(row, row.gamma_minus, GAMMA_MINUS),
            "4kMe^−η": lambda row: f"{row.star:.3g}",
            "(★)": lambda row: "yes" if row.star_holds else "no",
        },
        note="The certified constants are the smallest of a closed form for which the certificate "
        "proves exactness from step D to a million. (★) is the paper's assumption; it is neither "
        "sufficient nor necessary for exactness.",
        reason="The paper's own constants give τ_nor ρ₀ σ(±τ_s/2) = 5 · 0.95 · σ(±5). The printed γ "
        "do not follow from any constants it names. Nothing else depends on them.",
    )


def _bits(results: Validation) -> Table:
    return _table(
        "A",
        "Bits for all programs of this size (Theorem 8.1)",
        results.programs,
        {
            "graph": _graph,
            "needed": lambda row: f"{row.bits:,.0f}",
            "enough": lambda row: f"{row.bits_enough:,.0f}",
            "paper: needed": lambda row: Cell(
                f"{row.bits_printed:,.0f}", row.bits_printed > row.bits_enough
            ),
            "sparse, 32 bit": lambda row: 32 * row.sparse,
            "dense, 32 bit": lambda row: 32 * row.dense,
        },
        note="Needed: proved by counting programs that differ. Enough: sufficient to number them all.",
        reason="Theorem 8.1 counts the R rules in order, which is R log₂ R bits too many, more than its "
        "O(R) term. Ours counts programs that provably differ.",
    )


def _closures(results: Validation) -> Table:
    first = results.expressivity[0]
    return _table(
        "B",
        f"Table 1: {first.examples} fact sets per graph, {first.steps} steps",
        results.expressivity,
        {
            "graph": _graph,
            "constants": lambda row: row.constants,
            "accuracy": lambda row: _beside(f"{row.accuracy:.4f}", "1.0000"),
            "FPR / FNR": lambda row: _beside(f"{row.fpr:g} / {row.fnr:g}", "0 / 0"),
            "T_conv": lambda row: _beside(row.t_conv, GRAPHS[row.graph].t_conv),
            "D_max": lambda row: row.depth,
            "mean": lambda row: f"{row.t_conv_mean:.1f}",
            "largest leak": lambda row: number_text(row.leak),
        },
        note="In brackets: the paper's figures. T_conv: the step from which all examples are exact; "
        "D_max: the largest depth. Leak: the largest value of an underivable atom after the last step.",
        reason="The paper prints neither its rules nor its fact sets; ours have the same sizes.",
    )


#: Accuracies that differ by at most this much count as the same: they are means of three runs.
CLOSE = 0.05


def _noise(results: Validation) -> tuple[Table, ...]:
    by_key = {(row.logits, row.sigma, row.graph): row for row in results.noise}
    body, head = (
        [by_key[key] for key in sorted(by_key) if key[0] == kind] for kind in ("body", "head")
    )

    def accuracy(sigma: float, name: str) -> Cell:
        ours = by_key["body", sigma, name].accuracy
        printed = GRAPHS[name].accuracy[SIGMAS.index(sigma)]
        same = ours == printed if 1.0 in (ours, printed) else abs(ours - printed) <= CLOSE
        return _beside(f"{ours:.3f}", f"{printed:.3f}", same)

    def last_good(row: NoiseRow) -> str:
        bad = [one.sigma for one in body if one.graph == row.graph and one.accuracy < 0.95]
        good = [sigma for sigma in SIGMAS if sigma < min(bad, default=math.inf)]
        return f"{good[-1]:g}" if good else "none"

    def predicted(row: NoiseRow) -> Cell:
        printed = GRAPHS[row.graph]
        return _beside(f"{critical_sigma(printed.R, printed.M):.2f}", f"{printed.sigma_max:.2f}")

    def bound(row: NoiseRow) -> Cell:
        printed = GRAPHS[row.graph].bound
        return _beside(
            f"{row.bound:.3g}", f"{printed:g}", math.isclose(row.bound, printed, rel_tol=0.02)
        )

    return (
        _table(
            "C",
            f"Table 3: accuracy under noise on the body logits, mean of {len(body[0].accuracies)}",
            SIGMAS,
            {"σ_η": lambda sigma: f"{sigma:g}"}
            | {name.upper(): partial(accuracy, name=name) for name in results.graphs},
            note="In brackets: the paper's figures. An example counts if every atom is correct.",
            reason="The effect of a sign change depends on the rule that it changes, and the paper does "
            "not print its rules. Where less than one sign change is expected, 1.000 is likely, but "
            "not certain: the next table has the probabilities and what happened.",
        ),
        _table(
            "C",
            "Expected and actual sign changes, and certificates",
            body,
            {
                "σ_η": lambda row: f"{row.sigma:g}",
                "graph": _graph,
                "RM·Φ(−η/σ)": lambda row: number_text(row.bound),
                "P[a sign changes]": lambda row: number_text(row.probability),
                "sign changes": lambda row: ", ".join(map(str, row.events)),
                "accuracy": lambda row: Cell(
                    ", ".join(f"{one:.3f}" for one in row.accuracies),
                    any(a < 1 and not n for a, n in zip(row.accuracies, row.events, strict=True)),
                ),
                "certified": _certified,
            },
            note="The bound is also the expected number of sign changes. Certified: the perturbed "
            "models that are proved exact for every fact set, and up to which step.",
            reason="Theorem 7.1 says that a model without a sign change is exact. A weight near one half "
            "has not changed its sign but is too small, and small weights outside a body add up. The "
            "certificate uses the noisy weights instead.",
        ),
        _table(
            "C",
            "Predicted and measured critical noise",
            [by_key["body", 2.5, name] for name in results.graphs],
            {
                "graph": _graph,
                "RM": lambda row: GRAPHS[row.graph].R * GRAPHS[row.graph].M,
                "predicted σ_max": predicted,
                "accuracy ≥ 0.95 up to": last_good,
                "bound at 2.5": bound,
            },
            reason="Ours solve RM·Φ(−10/σ) = 1, the equation in the paper; the printed values do not. "
            "Ours fall faster with RM, and so does the accuracy.",
        ),
        _table(
            "C",
            "Noise on the head logits",
            head,
            {
                "σ_ψ": lambda row: f"{row.sigma:g}",
                "graph": _graph,
                "R(M−1)·Φ(−Ψ/σ√2)": lambda row: number_text(row.bound),
                "misroutes": lambda row: ", ".join(map(str, row.events)),
                "accuracy": lambda row: (
                    _beside(f"{row.accuracy:.3f}", "intact", row.accuracy == 1)
                    if row.sigma == 4
                    else f"{row.accuracy:.3f}"
                ),
                "certified": _certified,
            },
            reason="The theorem's own bound does not exclude misroutes at σ_ψ = 4. The tolerance is √2 "
            "times that of the bodies (Ψ/√2 against η), not twice.",
        ),
    )


def _certified(row: NoiseRow) -> str:
    fraction = f"{sum(row.certified)}/{len(row.certified)}"
    if not any(row.certified):
        return fraction
    ends = [end for end in row.t_max if end is not None]
    return f"{fraction}, to {min(ends):,.0f}" if ends else f"{fraction}, no end"


def _laws(results: Validation) -> Table:
    return _table(
        "D",
        "Table 2: structure, on random states",
        results.structure,
        {
            "graph": _graph,
            "Lemma 5.1: values never fall": lambda row: _beside(
                f"{row.rising}/{row.states}", "500/500"
            ),
            "Prop. 5.4: order is preserved": lambda row: _beside(
                f"{row.ordered}/{row.states}", "500/500"
            ),
            "Prop. 5.2: bounded": lambda row: _beside(f"{row.bounded}/{row.trajectories}", "50/50"),
        },
    )


def _edge_cases(results: Validation) -> Table:
    def right(case: str, name: str) -> Cell:
        found = [row for row in results.edge_cases if (row.graph, row.case) == (name, case)]
        tried = {"root": GRAPHS[name].roots, "leaf": GRAPHS[name].leaves}.get(case, 1)
        return _beside(f"{sum(row.holds for row in found)}/{len(found)}", f"{tried}/{tried}")

    titles = {
        "empty": "E1 no facts",
        "root": "E2 single productive roots",
        "all roots": "E3 all productive roots",
        "leaf": "E4 single leaves",
    }
    return _table(
        "E",
        "Edge cases that are exact",
        titles,
        {"case": titles.__getitem__}
        | {name.upper(): partial(right, name=name) for name in results.graphs},
    )


def _several_heads(results: Validation) -> Table:
    return _table(
        "F",
        "Rules with several heads",
        results.multi_head,
        {
            "thresholds": lambda row: row.head_sharing,
            "constants": lambda row: row.constants,
            "all heads active": lambda row: _beside(f"{row.active / row.rules:.0%}", "100%"),
            "exact": lambda row: f"{row.exact}/{row.rules}",
            "T_conv": lambda row: row.t_conv,
            "certified": lambda row: (
                "no"
                if not row.certified
                else "no end"
                if row.t_max is None
                else f"to {row.t_max:,.0f}"
            ),
            "mixed": lambda row: Cell(f"{row.mixed:.3f}", row.mixed <= 0.5),
        },
        note="The facts are the body of one rule. Mixed: the value of x for 'x :- a. x, y, z :- b.' and "
        "the fact b, which should be above one half. 'equal' is ours, 'paper' is Appendix G.",
        reason="Appendix G sets the threshold by the rule with the largest contribution, so a rule "
        "with three heads stays below it. We raise the confidence of each rule with its number of "
        "heads; then the theorem for one head covers all of them.",
    )


def _windows(results: Validation) -> Table:
    def promised(row: WindowRow) -> Cell:
        end = math.inf if row.promised is None else row.promised
        return Cell(number_text(end), row.t_max is not None and end > row.t_max)

    return _table(
        "G",
        "Certified windows",
        results.windows,
        {
            "graph": _graph,
            "constants": lambda row: row.constants,
            "depth": lambda row: row.depth,
            "exact from": lambda row: "never" if row.t_min is None else f"{row.t_min:.0f}",
            "to step": lambda row: "no end" if row.t_max is None else number_text(row.t_max),
            "paper: to step": promised,
            "leak": lambda row: number_text(row.leak),
        },
        note="Exact from, to: proved for every fact set, in float32. The paper's window starts at the "
        "depth; it is marked where it is longer than the proved one.",
        reason="The proof in the paper uses log 2 < ½, and ignores that rising atoms support each "
        "other. Ours is computed from the weights and sound for every fact set.",
    )


# ---- The outcome of each phase


@dataclass(frozen=True)
class Verdict:
    """The outcome of one phase: whether its claim holds, and how many figures differ."""

    holds: bool
    text: str
    difference: str  # how many figures differ from those in the paper; empty if none


def verdict(results: Validation, phase: str) -> Verdict:
    """Return the outcome of a phase, "A" to "G"."""
    rows = results.rows(phase)
    held = sum(row.holds for row in rows)
    differing = sum(table.differing for table in tables(results) if table.phase == phase)
    difference = f"{differing} figure{'s differ' if differing > 1 else ' differs'} from the paper"
    return Verdict(
        held == len(rows),
        f"{held} of {len(rows)} {PHASES[phase].claim}",
        difference if differing else "",
    )


def timing_text(timing: Timing) -> str:
    """Return how long the validation took, and on what."""
    versions = ", ".join(f"{name} {version}" for name, version in timing.versions)
    return (
        f"All phases took {timing.wall:.1f} s on {timing.device} ({timing.cpu:.1f} s of processor "
        f"time, {timing.peak_memory / 1e9:.2f} GB at most). Machine: {timing.machine}. Versions: "
        f"{versions}. The paper reports {WALL_TIME} s for G4 alone on an A100."
    )


# ---- The page: `page.html` with its parts filled in


def render_html(results: Validation, timing: Timing | None = None) -> str:
    """Return the report as one HTML page that loads nothing and works offline.

    >>> import latentgamma as lg
    >>> results, timing = lg.paper.report.load("out/results.json")  # doctest: +SKIP
    >>> lg.paper.report.render_html(results, timing).startswith("<!DOCTYPE html>")  # doctest: +SKIP
    True

    Args:
        results: the first of the two values that `run_validation` returned.
        timing: the second one; it adds the duration, the machine and the versions.

    Returns:
        The text of the page.
    """
    assets = files("latentgamma.paper")
    parts = {
        "style": (assets / "style.css").read_text(encoding="utf-8"),
        "links": "".join(f'<a href="#{x}">{x} {phase.title}</a>' for x, phase in PHASES.items()),
        "noise": _panels(results, _noise_panel),
        "leakage": _panels(results, _leakage_panel),
        "timing": f"<p>{escape(timing_text(timing))}</p>" if timing is not None else "",
        "seed": str(results.seed),
    }
    every = tables(results)
    for letter in PHASES:
        parts[f"title {letter}"] = _title(results, letter)
        parts[f"tables {letter}"] = "".join(_html(one) for one in every if one.phase == letter)
    page = (assets / "page.html").read_text(encoding="utf-8")
    # In one pass, so that nothing in a part is taken for the name of another.
    return re.sub(r"\{([\w ]+)\}", lambda name: parts[name[1]], page)


def symbols(text: str) -> str:
    """Return a text as HTML, with indices and exponents as such.

    >>> symbols("τ_s < 4kMe^−η")
    'τ<sub>s</sub> &lt; 4kMe<sup>−η</sup>'
    """
    text = re.sub(r"\b([^\W\d_])_(\w+)", r"\1<sub>\2</sub>", escape(text))
    return re.sub(r"e\^(−?\w+)", r"e<sup>\1</sup>", text)


def _title(results: Validation, letter: str) -> str:
    outcome = verdict(results, letter)
    kind = "good" if outcome.holds else "bad"
    badges = f'<span class="badge {kind}">{escape(outcome.text)}</span>'
    if outcome.difference:
        badges += f' <span class="badge note">{escape(outcome.difference)}</span>'
    heading = f'<h2><span class="letter">{letter}</span> {escape(PHASES[letter].title)}</h2>'
    return f'<div class="title">{heading}{badges}</div>'


def _panels(results: Validation, panel: Callable[[Validation, str], str]) -> str:
    figures = (f"<figure>{panel(results, name)}</figure>" for name in results.graphs)
    return f'<div class="panels">{"".join(figures)}</div>'


def _noise_panel(results: Validation, name: str) -> str:
    rows = [row for row in results.noise if (row.logits, row.graph) == ("body", name)]
    printed = GRAPHS[name]
    words = f"{name.upper()}: accuracy by noise on the body logits. " + "; ".join(
        f"σ {row.sigma:g}: {row.accuracy:.3f}, paper {theirs:.3f}"
        for row, theirs in zip(rows, printed.accuracy, strict=True)
    )
    caption = f"<b>{name.upper()}</b>, RM = {printed.R * printed.M:,}"
    svg = plot.inline_svg(charts.noise(rows), f"noise-{name}", words)
    return f"<figcaption>{caption}</figcaption>{svg}"


def _leakage_panel(results: Validation, name: str) -> str:
    rows = [row for row in results.windows if row.graph == name]
    words = f"{name.upper()}: largest underivable atom by step. " + "; ".join(
        f"{row.constants} constants: proved to step {row.t_max:.4g}" for row in rows if row.t_max
    )
    svg = plot.inline_svg(charts.leakage(rows), f"leakage-{name}", words)
    return f"<figcaption><b>{name.upper()}</b>, largest underivable atom</figcaption>{svg}"


def _html(table: Table) -> str:
    """Return a table that scrolls by itself, so that the page never scrolls sideways."""
    head = "".join(f'<th scope="col">{symbols(column)}</th>' for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in table.rows)
    note = f'<p class="caption">{symbols(table.note)}</p>' if table.note else ""
    if table.differing and table.reason:
        note += f'<p class="reason">{symbols(table.reason)}</p>'
    return (
        f"<h3>{symbols(table.title)}</h3>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def _html_cell(cell: Cell) -> str:
    return f"<td{' class=differs' if cell.differs else ''}>{symbols(cell.text)}</td>"


# ---- Results of a validation as files and as tables on the terminal

_Decoded = TypeVar("_Decoded")


def save(results: Validation, timing: Timing | None, out: str | Path) -> dict[str, Path]:
    """Write results.json, timing.json and report.html into a folder.

    For the same seed results.json is the same, bit for bit; times are in a separate file.

    >>> import latentgamma as lg
    >>> results, timing = lg.paper.validation.run_validation(["g1", "g2"])  # doctest: +SKIP
    >>> sorted(lg.paper.report.save(results, timing, "out"))  # doctest: +SKIP
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
    """Return the results in a file, and the times from timing.json beside it if there is one.

    >>> import latentgamma as lg
    >>> results, timing = lg.paper.report.load("out/results.json")  # doctest: +SKIP
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
        raise DataError(f"{file}: {file_problem(error)}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file}: this is not a text file") from None
    try:
        return decode(text)
    except DataError as error:
        raise DataError(f"{file}: {error}; it should come from `latentgamma validate`") from None


def render_terminal(results: Validation, console: Console, timing: Timing | None = None) -> None:
    """Print all tables, with what differs from the paper, and the outcome of each phase.

    >>> import latentgamma as lg
    >>> from rich.console import Console
    >>> results, timing = lg.paper.report.load("out/results.json")  # doctest: +SKIP
    >>> lg.paper.report.render_terminal(results, Console(), timing)  # doctest: +SKIP

    Args:
        results: the first of the two values that `run_validation` returned.
        console: where to print.
        timing: the second one, printed at the end; None to leave it out.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    for table in tables(results):
        console.print(Text(f"\n{table.phase}  {table.title}", "bold"))
        shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False)
        for column in table.columns:
            shown.add_column(Text(column), overflow="fold")
        for row in table.rows:
            shown.add_row(
                *(Text(f"{c.text} ≠", "yellow") if c.differs else Text(c.text) for c in row)
            )
        console.print(shown)
        if table.note:
            console.print(Text(table.note, "dim"))
        if table.differing and table.reason:
            console.print(Text(f"≠ {table.reason}", "yellow"))
    console.print()
    for letter, phase in PHASES.items():
        outcome = verdict(results, letter)
        mark, style = ("✓", "green") if outcome.holds else ("✗", "bold red")
        rest = f" ({outcome.difference})" if outcome.difference else ""
        console.print(Text(f"{mark} {letter}  {phase.title}: {outcome.text}{rest}", style))
    if timing is not None:
        console.print(Text(timing_text(timing)))
