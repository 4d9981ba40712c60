"""Closures, proofs, certificates and runs as the command line prints them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._text import listing, quantity, shortened
from latentgamma.cli.console import Cells, Screen, write_output
from latentgamma.program.names import quote

if TYPE_CHECKING:
    from latentgamma.certificate.certify import Certificate
    from latentgamma.logic.closure import Closure
    from latentgamma.logic.proof import Derivation
    from latentgamma.logic.why_not import WhyNot
    from latentgamma.paper.window import PaperWindow
    from latentgamma.program.program import Program

#: A terminal shows at most this many names or rules; a pipe gets all of them.
_MOST_NAMES = 400
#: The table of a run has at most this many rows.
MOST_ROWS = 40

# ---- Closures and proofs


def show_closure(
    screen: Screen, closed: Closure, facts: int, *, levels: bool, only: set[str] | None = None
) -> None:
    """Print the closure of this many facts: one name per line, after its level if that is asked."""
    by_level = [sorted(level) for level in closed.levels] if levels else [list(closed)]
    lines = [
        f"{d}\t{quote(name)}" if levels else quote(name)
        for d, level in enumerate(by_level)
        for name in level
        if only is None or name in only
    ]
    if not screen.terminal:
        write_output("".join(f"{line}\n" for line in lines))
        return
    sizes = (
        f"{len(closed):,} of {quantity(closed.program.M, 'atom')} from {quantity(facts, 'fact')}"
    )
    screen.line(f"{sizes}, in {quantity(closed.depth, 'step')}", "bold")
    for line in lines[:_MOST_NAMES]:
        screen.line(line)
    if len(lines) > _MOST_NAMES:
        more = f"… and {len(lines) - _MOST_NAMES:,} more; pass --json or use a pipe to get all"
        screen.line(more, "dim")


def show_reason(screen: Screen, reason: Derivation | WhyNot, rules: Sequence[int]) -> None:
    """Print a proof, or why there is none, and the rules that it is about."""
    screen.line(str(reason))
    shown = rules[:_MOST_NAMES] if screen.terminal else rules
    if rules:
        screen.line()
    for j in shown:
        screen.line(f"rule {j}: {reason.program.rules[j]}", "dim")
    if len(rules) > len(shown):
        screen.line(f"… and {len(rules) - len(shown):,} more rules", "dim")


# ---- Certificates


def show_certificate(
    screen: Screen,
    certificate: Certificate,
    paper: PaperWindow | None,
    *,
    success: bool,
    message: str,
) -> None:
    """Print the window, the paper's window beside it, the margins and the weakest rule."""
    screen.line(f"{'✓' if success else '✗'} {message}", "bold green" if success else "bold red")
    for difference in certificate.differences[:20]:
        screen.line(f"  {difference}")
    proved = certificate.holds
    rows = [
        ["first step", count(certificate.t_min if proved else math.nan)],
        ["last step", count(certificate.t_max if proved else math.nan)],
        ["leak per step", f"{certificate.leak:.3g}"],
    ]
    screen.line()
    if paper is None:
        screen.table(("", "proved"), rows)
    else:
        stated = (count(certificate.depth), count(paper.t_max), f"{paper.c_max:.3g}")
        rows = [[*row, cell] for row, cell in zip(rows, stated, strict=True)]
        screen.table(("", "proved", "stated in the paper"), rows)
        star = "holds" if paper.star_holds else "does not hold, and the proof does not need it"
        screen.line(
            f"the paper's assumption (★) {star}: 4kMe^-η = {paper.star:.3g}; "
            f"γ⁺ = {paper.gamma_plus:.4g}, γ⁻ = {paper.gamma_minus:.4g}"
        )
    screen.line()
    screen.table(("margin", "value", "correct sign"), _margin_rows(certificate), right=1)
    screen.line()
    if certificate.weakest_rule is not None:
        screen.line(f"weakest rule: {certificate.weakest_rule}")
    if certificate.weakest_atom is not None:
        screen.line(f"weakest atom: {quote(certificate.weakest_atom)}")


def _margin_rows(certificate: Certificate) -> list[Cells]:
    names = {
        "match_on": "smallest match of a satisfied body",
        "match_off": "largest match of an unsatisfied body",
        "evidence_on": "smallest evidence with a satisfied rule",
        "evidence_off": "largest evidence without one",
        "sink": "largest evidence for an atom without rules",
    }
    rows: list[Cells] = []
    for key, value in certificate.margins._asdict().items():
        if math.isfinite(value):
            good = value > 0 if key.endswith("_on") else value < 0
            rows.append((names[key], f"{value:+.4g}", "✓" if good else "✗"))
    return rows


# ---- Runs


class RunValues(NamedTuple):
    """The values of a run, and what they should be."""

    program: Program
    states: npt.NDArray[np.float64]  # (T + 1, M)
    crossing: npt.NDArray[np.int64]  # (M,)
    expected: Closure
    gradient: dict[str, float]  # its size at the facts, by atom

    @property
    def found(self) -> frozenset[str]:
        """The atoms above one half after the last step."""
        return self.program.names(self.states[-1])

    def to_dict(self) -> dict[str, Any]:
        """Return the run as values for JSON."""
        atoms = self.program.atoms
        document: dict[str, Any] = {
            "steps": len(self.states) - 1,
            "atoms": sorted(self.found),
            "closure": sorted(self.expected),
            "agrees": self.found == self.expected.atoms,
            "crossing": {
                name: step
                for name, step in zip(atoms, self.crossing.tolist(), strict=True)
                if step >= 0
            },
            "values": dict(zip(atoms, self.states.T.tolist(), strict=True)),
        }
        if self.gradient:
            document["gradient"] = self.gradient
        return document


def show_run(screen: Screen, run: RunValues) -> None:
    """Print the value of each atom at each step; * marks the first step above one half."""
    from latentgamma.plot.charts import rows_to_show

    rows = rows_to_show(run.states, run.crossing, MOST_ROWS, MOST_ROWS)
    names = [shortened(quote(run.program.atoms[i]), 32) for i in rows]
    width = screen.console.width if screen.terminal else 160
    used = max(map(len, names), default=4) + 12 + 12 * bool(run.gradient)
    steps = _steps_to_show(len(run.states) - 1, run.crossing[rows], max(2, (width - used) // 8))
    head = ["atom", "above ½", *map(str, steps)]
    body = []
    for name, i in zip(names, rows, strict=True):
        first = int(run.crossing[i])
        values = [(t, run.states[t, i]) for t in steps]
        cells = ["·" if x < 0.005 else f"{x:.2f}{'*' * (t == first)}" for t, x in values]
        body.append([name, "·" if first < 0 else f"step {first}", *cells])
    if run.gradient:
        head.append("gradient")
        for row, i in zip(body, rows, strict=True):
            row.append(f"{run.gradient[run.program.atoms[i]]:.2g}")
    screen.table(head, body)
    if len(rows) < run.program.M:
        screen.line(f"{run.program.M - len(rows):,} of {run.program.M:,} atoms not shown", "dim")
    _show_comparison(screen, run)


def _show_comparison(screen: Screen, run: RunValues) -> None:
    found, wanted = run.found, run.expected.atoms
    after = f"after {quantity(len(run.states) - 1, 'step')}: {quantity(len(found), 'atom')} above ½"
    if found == wanted:
        screen.line(f"{after}, equal to the closure", "green")
        return
    parts = []
    if missing := sorted(wanted - found):
        parts.append(f"not derived: {listing(list(map(quote, missing)), 10)}")
    if wrong := sorted(found - wanted):
        parts.append(f"not in the closure: {listing(list(map(quote, wrong)), 10)}")
    screen.line(f"{after}, the closure has {len(wanted):,}; {'; '.join(parts)}", "bold red")


def _steps_to_show(last: int, crossing: npt.NDArray[np.int64], most: int) -> list[int]:
    """Return the steps to show: all, or the ends, those where an atom exceeds ½, and others."""
    if last < most:
        return list(range(last + 1))
    passing = np.unique(crossing[crossing >= 0]).tolist()
    others = np.unique(np.geomspace(1, last, most).round().astype(int)).tolist()
    shown = list(dict.fromkeys([0, last, *passing, *others]))
    return sorted(shown[:most])


# ---- Numbers and names


def count(value: float) -> str:
    """Return a number of steps.

    >>> count(969400.0), count(math.inf), count(math.nan)
    ('969,400', 'no end', '–')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "no end"
    return f"{value:,.0f}" if value < 1e15 else f"{value:.3g}"
