"""What the command line prints: closures, proofs, certificates and runs."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._cli.console import Cells, Screen
from latentgamma._program.names import quote

if TYPE_CHECKING:
    from latentgamma._certificate.certificate import Certificate
    from latentgamma._certificate.paper_window import PaperWindow
    from latentgamma._logic.closure import Closure
    from latentgamma._logic.derivation import Derivation
    from latentgamma._logic.why_not import WhyNot
    from latentgamma._program.program import Program

#: A terminal shows this many names or rules; a pipe gets all of them.
_MOST_NAMES = 400
#: A table of a run has this many rows at most.
_MOST_ROWS = 40

_branch = re.compile(r"([│├└─ ]*)(.*?)(  \(.*\))?").fullmatch

# -------------------------------------------------------------------- closures and proofs


def show_closure(screen: Screen, known: Closure, given: int, *, levels: bool) -> None:
    """Print what follows: one name a line in a pipe, by level if asked for."""
    by_level = [sorted(level) for level in known.levels] if levels else []
    if not screen.terminal:
        if levels:
            lines = [f"{d}\t{quote(n)}\n" for d, level in enumerate(by_level) for n in level]
        else:
            lines = [f"{quote(name)}\n" for name in known]
        sys.stdout.write("".join(lines))
        return
    facts = f"{given:,} {'fact' if given == 1 else 'facts'}"
    steps = f"{known.depth:,} {'step' if known.depth == 1 else 'steps'}"
    screen.line(f"{len(known):,} of {known.program.M:,} atoms from {facts}, in {steps}", "bold")
    if levels:
        screen.table(
            ("step", "atoms"),
            ((str(d), _some(level, _MOST_NAMES // 4)) for d, level in enumerate(by_level)),
            right=2,
        )
        return
    from rich.columns import Columns
    from rich.text import Text

    names = [quote(name) for _, name in zip(range(_MOST_NAMES), known, strict=False)]
    screen.console.print(Columns([Text(name) for name in names], padding=(0, 2)))
    if len(known) > len(names):
        screen.line(f"… and {len(known) - len(names):,} more; a pipe or --json has them all", "dim")


def show_proof(screen: Screen, proof: Derivation) -> None:
    """Print a proof as a tree, and the rules it uses."""
    _show_tree(screen, str(proof))
    _show_rules(screen, proof.program, proof.rules)


def show_why_not(screen: Screen, account: WhyNot) -> None:
    """Print why an atom does not follow, and the rules that could have derived it."""
    _show_tree(screen, str(account))
    _show_rules(screen, account.program, [blocked.rule for blocked in account.blocked[:20]])


def _show_tree(screen: Screen, tree: str) -> None:
    if not screen.terminal:
        screen.line(tree)
        return
    from rich.text import Text

    for line in tree.split("\n"):
        match = _branch(line)
        stem, name, note = match.groups(default="") if match else ("", line, "")
        given = "green" if note == "  (given)" else "bold" if note else ""
        parts = ((stem, "dim"), (name, given), (note, "dim"))
        screen.console.print(Text.assemble(*parts), soft_wrap=True)


def _show_rules(screen: Screen, program: Program, rules: Sequence[int]) -> None:
    shown = rules[:_MOST_NAMES] if screen.terminal else rules
    if rules:
        screen.line()
    for j in shown:
        screen.line(f"rule {j}: {program.rules[j]}", "dim")
    if len(rules) > len(shown):
        screen.line(f"… and {len(rules) - len(shown):,} more rules", "dim")


# -------------------------------------------------------------------- certificates


def show_certificate(
    screen: Screen, certificate: Certificate, paper: PaperWindow | None, *, fine: bool, verdict: str
) -> None:
    """Print the window, the paper's promise beside it, the margins and the weakest spots."""
    screen.line(f"{'✓' if fine else '✗'} {verdict}", "bold green" if fine else "bold red")
    for difference in certificate.differences[:20]:
        screen.line(f"  {difference}")
    proved = certificate.holds
    rows = [
        ("first step", count(certificate.t_min if proved else math.nan), count(certificate.depth)),
        ("last step", count(certificate.t_max if proved else math.nan), ""),
        ("leak a step", f"{certificate.leak:.3g}", ""),
    ]
    if paper is None:
        rows = [(*row[:2], "") for row in rows]
        screen.line()
        screen.table(("", "proved"), [row[:2] for row in rows])
    else:
        rows[1] = (*rows[1][:2], count(paper.t_max))
        rows[2] = (*rows[2][:2], f"{paper.c_max:.3g}")
        screen.line()
        screen.table(("", "proved", "promised in the paper"), rows)
        star = "holds" if paper.star_holds else "does not hold"
        screen.line(
            f"the paper's assumption (★) {star}: 4kMe^-η = {paper.star:.3g}; "
            f"γ⁺ = {paper.gamma_plus:.4g}, γ⁻ = {paper.gamma_minus:.4g}"
        )
    screen.line()
    screen.table(("margin", "value", "separates"), _margin_rows(certificate), right=1)
    screen.line()
    if certificate.weakest_rule is not None:
        screen.line(f"weakest rule: {certificate.weakest_rule}")
    if certificate.weakest_atom is not None:
        screen.line(f"weakest atom: {quote(certificate.weakest_atom)}")


def _margin_rows(certificate: Certificate) -> list[Cells]:
    names = {
        "match_on": "a satisfied body, at least",
        "match_off": "an unsatisfied body, at most",
        "evidence_on": "an atom with a satisfied rule, at least",
        "evidence_off": "an atom without one, at most",
        "sink": "an atom that no rule derives, at most",
    }
    rows: list[Cells] = []
    for key, value in certificate.margins._asdict().items():
        if math.isfinite(value):
            good = value > 0 if key.endswith("_on") else value < 0
            rows.append((names[key], f"{value:+.4g}", "✓" if good else "✗"))
    return rows


# -------------------------------------------------------------------- runs


class Run(NamedTuple):
    """A run as numbers."""

    program: Program
    states: npt.NDArray[np.float64]  # (T + 1, M)
    crossing: npt.NDArray[np.int64]  # (M,)
    expected: Closure
    gradient: dict[str, float]  # what reaches the facts from the atoms that are shown

    @property
    def found(self) -> frozenset[str]:
        """The atoms above one half at the end."""
        return self.program.names(self.states[-1])

    def to_dict(self) -> dict[str, Any]:
        """The run as plain values, for JSON."""
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


def rows_to_show(
    states: npt.NDArray[np.float64], crossing: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The atoms a table shows: those that move first, in the order they pass one half."""
    order = np.argsort(np.where(crossing < 0, len(states), crossing), kind="stable")
    if len(order) > _MOST_ROWS:
        moving = np.ptp(states, axis=0)[order] > 1e-3
        order = order[moving] if moving.any() else order
    return order[:_MOST_ROWS]


def show_run(screen: Screen, run: Run) -> None:
    """Print the values of the atoms over the steps, with the first step above one half."""
    rows = rows_to_show(run.states, run.crossing)
    names = [_cut(quote(run.program.atoms[i])) for i in rows]
    room = screen.console.width if screen.terminal else 160
    used = max(map(len, names), default=4) + 12 + 12 * bool(run.gradient)
    steps = _steps_to_show(len(run.states) - 1, run.crossing[rows], max(2, (room - used) // 8))
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
        screen.line(f"{run.program.M - len(rows):,} of {run.program.M:,} atoms left out", "dim")
    _show_verdict(screen, run)


def _show_verdict(screen: Screen, run: Run) -> None:
    found, wanted = run.found, run.expected.atoms
    after = f"after {len(run.states) - 1:,} steps {len(found):,} atoms are above ½"
    if found == wanted:
        screen.line(f"{after}: the closure", "green")
        return
    parts = [f"not yet or not derived: {_some(sorted(wanted - found), 10)}"] * (not wanted <= found)
    parts += [f"false: {_some(sorted(found - wanted), 10)}"] * (not found <= wanted)
    screen.line(f"{after}, the closure has {len(wanted):,}; {'; '.join(parts)}", "bold red")


def _steps_to_show(last: int, crossing: npt.NDArray[np.int64], most: int) -> list[int]:
    """All steps; or the ends, those where an atom passes one half, and ever fewer others."""
    if last < most:
        return list(range(last + 1))
    passing = np.unique(crossing[crossing >= 0]).tolist()
    others = np.unique(np.geomspace(1, last, most).round().astype(int)).tolist()
    shown = list(dict.fromkeys([0, last, *passing, *others]))
    return sorted(shown[:most])


# -------------------------------------------------------------------- words


def count(value: float) -> str:
    """A number of steps as a person writes it.

    >>> count(969400.0), count(math.inf), count(math.nan)
    ('969,400', 'no end', '–')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "no end"
    return f"{value:,.0f}" if value < 1e15 else f"{value:.3g}"


def _some(names: Sequence[str], most: int) -> str:
    more = f", … {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(quote, names[:most])) + more


def _cut(text: str, most: int = 32) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
