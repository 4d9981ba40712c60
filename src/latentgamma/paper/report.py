"""The results of the validation as tables and as a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from latentgamma import plot
from latentgamma._atomic_write import write_text
from latentgamma._text import file_problem, quantity
from latentgamma.errors import DataError
from latentgamma.paper import charts
from latentgamma.paper.results import (
    GAMMA_MINUS,
    GAMMA_PLUS,
    GRAPHS,
    SIGMAS,
    WALL_TIME,
    NoiseRow,
    Timing,
    Validation,
    from_json,
    to_json,
)

if TYPE_CHECKING:
    from rich.console import Console


# ---- The differences between our figures and those in the paper, with their reasons

#: Accuracies that differ by at most this much count as the same: they are means of three runs.
CLOSE = 0.05


@dataclass(frozen=True)
class Difference:
    """One figure that differs from the paper's."""

    phase: str
    subject: str
    ours: str
    printed: str
    reason: str


def differences(results: Validation) -> tuple[Difference, ...]:
    """Return all differences from the paper, in the order of the phases."""
    return (
        *_constants(results),
        *_bits(results),
        *_convergence(results),
        *_accuracies(results),
        *_flips(results),
        *_critical(results),
        *_heads(results),
        *_several_heads(results),
        *_windows(results),
    )


def _constants(results: Validation) -> Iterator[Difference]:
    row = next(row for row in results.construction.constants if row.constants == "paper")
    yield Difference(
        "A", "γ⁺ and γ⁻",
        f"{row.gamma_plus:.4f}, {row.gamma_minus:.5f}", f"{GAMMA_PLUS}, {GAMMA_MINUS}",
        "The paper's own constants give τ_nor ρ₀ σ(±τ_s/2) = 5 · 0.95 · σ(±5). The printed "
        "numbers do not follow from any constants it names. Nothing else depends on them.",
    )  # fmt: skip


def _bits(results: Validation) -> Iterator[Difference]:
    row = results.construction.graphs[-1]
    if row.bits_printed > row.bits_enough:
        yield Difference(
            "A", f"Bits that any operator needs, at the size of {row.graph.upper()}",
            f"at least {row.bits:,.0f}", f"at least {row.bits_printed:,.0f} − O(R)",
            f"{row.bits_enough:,.0f} bits are enough to number all programs of this size. Theorem 8.1 "
            f"counts the R rules in order, which is R log₂ R bits too many, more than the O(R) "
            f"term. Ours counts programs that provably differ.",
        )  # fmt: skip


def _convergence(results: Validation) -> Iterator[Difference]:
    for row in results.expressivity.rows:
        printed = GRAPHS[row.graph].t_conv
        if row.constants == "paper" and row.t_conv != printed:
            yield Difference(
                "B", f"Last convergence on {row.graph.upper()}", str(row.t_conv), str(printed),
                "The paper prints neither its rules nor its fact sets; ours have the same "
                f"sizes. The deepest derivation among our {row.examples} fact sets takes "
                f"{row.depth} steps.",
            )  # fmt: skip


def _accuracies(results: Validation) -> Iterator[Difference]:
    for row in results.robustness.body:
        printed = GRAPHS[row.graph].accuracy[SIGMAS.index(row.sigma)]
        if same_accuracy(row.accuracy, printed):
            continue
        each = ", ".join(f"{accuracy:.3f}" for accuracy in row.accuracies)
        if printed == 1 and row.bound < 1:
            chance = 1 - (1 - (row.probability or 0.0)) ** len(row.accuracies)
            reason = (
                f"The perturbations gave {each}, with {_changes(row)} in all. "
                f"{row.bound:.3f} are expected in each, so {chance:.0%} of all seeds have at "
                f"least one in {len(row.accuracies)}: 1.000 is likely, but not certain."
            )
        else:
            reason = (
                f"The perturbations gave {each}: {_changes(row)}, with {row.bound:.3g} expected "
                f"in each. The effect of one depends on the rule that it changes, and the paper "
                f"does not print its rules. The accuracy falls at the same noise level."
            )
        yield Difference(
            "C", f"Accuracy on {row.graph.upper()} at σ = {row.sigma:g}",
            f"{row.accuracy:.3f}", f"{printed:.3f}", reason,
        )  # fmt: skip


def _changes(row: NoiseRow) -> str:
    return quantity(sum(row.events), "sign change")


def _flips(results: Validation) -> Iterator[Difference]:
    broken = [
        (row, accuracy)
        for row in results.robustness.body
        for accuracy, events in zip(row.accuracies, row.events, strict=True)
        if events == 0 and accuracy < 1
    ]
    if broken:
        row, accuracy = broken[0]
        yield Difference(
            "C", "Theorem 7.1: without a sign change the model is exact",
            f"{accuracy:.3f} on {row.graph.upper()} at σ = {row.sigma:g}, no sign changed",
            "exact",
            "A weight near one half has not changed its sign but is too small, and small weights "
            "outside a body add up. The certificate uses the noisy weights instead"
            + (": no certified model was wrong." if results.robustness.holds else "."),
        )  # fmt: skip


def _critical(results: Validation) -> Iterator[Difference]:
    rows = results.robustness.critical
    if any(abs(row.predicted - GRAPHS[row.graph].sigma_max) > 0.005 for row in rows):
        yield Difference(
            "C", "Predicted σ_max",
            ", ".join(f"{row.predicted:.2f}" for row in rows),
            ", ".join(f"{GRAPHS[row.graph].sigma_max:.2f}" for row in rows),
            "Ours solve RM·Φ(−10/σ) = 1, the equation in the paper; the printed values do not. "
            "Ours fall faster with RM, and so does the accuracy.",
        )  # fmt: skip


def _heads(results: Validation) -> Iterator[Difference]:
    worst = [row for row in results.robustness.head if row.sigma == 4.0 and row.accuracy < 1]
    if worst:
        yield Difference(
            "C", "Head routing at σ_ψ = 4",
            ", ".join(f"{row.graph.upper()} {row.accuracy:.3f}" for row in worst),
            "intact on all four graphs",
            "The theorem's own bound is "
            + ", ".join(f"{row.bound:.2g} on {row.graph.upper()}" for row in worst)
            + ", which does not exclude it. In three models "
            + ", ".join(str(sum(row.events)) for row in worst)
            + " rules were routed to another head. The tolerance is √2 times that of the bodies "
            "(Ψ/√2 against η), not twice.",
        )  # fmt: skip


def _several_heads(results: Validation) -> Iterator[Difference]:
    paper = next((row for row in results.multi_head.rows if row.head_sharing == "paper"), None)
    if paper is not None and paper.mixed <= 0.5:
        yield Difference(
            "F", "One atom as the head of a 1-head and a 3-head rule",
            f"{paper.mixed:.2f}, not derived, with the paper's thresholds; derived with ours",
            "derived",
            "Appendix G sets the threshold by the rule with the largest contribution, so a rule "
            "with three heads stays below it. We raise the confidence of each rule with its "
            "number of heads; then the theorem for one head covers all of them.",
        )  # fmt: skip


def _windows(results: Validation) -> Iterator[Difference]:
    rows = [row for row in results.windows.rows if row.constants == "paper" and row.t_max]
    if any(row.promised is None or row.promised > (row.t_max or 0) for row in rows):
        yield Difference(
            "G", "End of the window, with the paper's constants",
            ", ".join(f"{row.t_max:,.0f}" for row in rows),
            ", ".join("∞" if row.promised is None else f"{row.promised:,.0f}" for row in rows),
            "The proof in the paper uses log 2 < ½, and ignores that rising atoms support each "
            "other. Ours is computed from the weights and sound for every fact set.",
        )  # fmt: skip


def same_accuracy(ours: float, printed: float) -> bool:
    """Return whether two accuracies count as the same: both exact, or close to each other."""
    if 1.0 in (ours, printed):
        return ours == printed
    return abs(ours - printed) <= CLOSE


# ---- The results as tables, for the terminal and for the HTML report

Mark: TypeAlias = Literal["", "same", "differs", "bad"]


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and whether it agrees with the paper."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True)
class Table:
    """A title, columns and rows, and a note that explains them."""

    phase: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def tables(results: Validation) -> tuple[Table, ...]:
    """Return all tables, in the order of the phases."""
    return (
        _graphs_table(results),
        _constants_table(results),
        _bits_table(results),
        _table_1(results),
        _table_3(results),
        _expected_table(results),
        _critical_table(results),
        _head_noise(results),
        _table_2(results),
        _edge_cases(results),
        _multi_head(results),
        _windows_table(results),
    )


def _row(*cells: Cell | str | float) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(_text(cell)) for cell in cells)


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def scientific(value: float) -> str:
    """Return a number of any size, with a power of ten if it is very large or small.

    >>> scientific(0.0334), scientific(2.5e13), scientific(8.05e-21)
    ('0.0334', '2.5 × 10¹³', '8 × 10⁻²¹')
    """
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    digits, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits.removesuffix('.0')} × 10{raised}"


def _with_printed(ours: str, printed: str, same: bool | None = None) -> Cell:
    """Return our figure and the paper's in brackets, marked if they differ."""
    agrees = ours == printed if same is None else same
    return Cell(f"{ours} ({printed})", "same" if agrees else "differs")


# ---- A


def _graphs_table(results: Validation) -> Table:
    rows = []
    for row in results.construction.graphs:
        printed = GRAPHS[row.graph]
        rows.append(
            _row(
                row.graph.upper(),
                _with_printed(str(row.M), str(printed.M)),
                _with_printed(str(row.R), str(printed.R)),
                _with_printed(str(row.k), "2"),
                _with_printed(str(row.rho_max), str(printed.rho_max)),
                row.depth,
                row.productive_roots,
                row.leaves,
                row.dense,
                row.sparse,
            )
        )
    columns = ("graph", "M", "R", "k", "ρ_max", "depth", "productive roots", "leaves")
    return Table(
        "A",
        "The programs",
        (*columns, "parameters, dense", "sparse"),
        tuple(rows),
        "In brackets: the paper's figures. The sparse form computes the same values.",
    )


def _constants_table(results: Validation) -> Table:
    rows = tuple(
        _row(
            row.graph.upper(), row.constants, row.body, row.head, row.sharpness, row.gain,
            f"{row.gamma_plus:.4f}", f"{row.gamma_minus:.4f}", f"{row.star:.3g}",
            "yes" if row.star_holds else "no",
        )
        for row in results.construction.constants
    )  # fmt: skip
    columns = ("graph", "constants", "η", "Ψ", "τ_s", "τ_nor", "γ⁺", "γ⁻", "4kMe^−η", "(★)")
    note = (
        "The certified constants are the smallest of a closed form for which the certificate "
        "proves exactness from step D to a million. (★) is the paper's assumption; it is neither "
        "sufficient nor necessary for exactness."
    )
    return Table("A", "The constants", columns, rows, note)


def _bits_table(results: Validation) -> Table:
    rows = tuple(
        _row(
            row.graph.upper(), f"{row.bits:,.0f}", f"{row.bits_enough:,.0f}",
            Cell(f"{row.bits_printed:,.0f}", "differs"), 32 * row.sparse, 32 * row.dense,
        )
        for row in results.construction.graphs
    )  # fmt: skip
    return Table(
        "A",
        "Bits for all programs of this size (Theorem 8.1)",
        ("graph", "needed", "enough", "paper: needed", "sparse, 32 bit", "dense, 32 bit"),
        rows,
        "Needed: proved by counting programs that differ. Enough: sufficient to number them all.",
    )


# ---- B


def _table_1(results: Validation) -> Table:
    rows = []
    for row in results.expressivity.rows:
        printed = GRAPHS[row.graph]
        rows.append(
            _row(
                row.graph.upper(),
                row.constants,
                _with_printed(f"{row.accuracy:.4f}", "1.0000"),
                _with_printed(f"{row.fpr:g} / {row.fnr:g}", "0 / 0"),
                _with_printed(str(row.t_conv), str(printed.t_conv)),
                row.depth,
                f"{row.t_conv_mean:.1f}",
                scientific(row.leak),
            )
        )
    first = results.expressivity.rows[0]
    return Table(
        "B",
        f"Table 1: {first.examples} fact sets per graph, {first.steps} steps",
        ("graph", "constants", "accuracy", "FPR / FNR", "T_conv", "D_max", "mean", "largest leak"),
        tuple(rows),
        "In brackets: the paper's figures. T_conv: the step from which all examples are exact. "
        "Leak: the largest value of an underivable atom after the last step.",
    )


# ---- C


def _by_graph(rows: Iterable[NoiseRow], graphs: Sequence[str], sigma: float) -> list[NoiseRow]:
    found = {row.graph: row for row in rows if row.sigma == sigma}
    return [found[name] for name in graphs]


def _table_3(results: Validation) -> Table:
    rows = []
    for at, sigma in enumerate(SIGMAS):
        cells = []
        for row in _by_graph(results.robustness.body, results.graphs, sigma):
            printed = GRAPHS[row.graph].accuracy[at]
            same = same_accuracy(row.accuracy, printed)
            cells.append(_with_printed(f"{row.accuracy:.3f}", f"{printed:.3f}", same))
        rows.append(_row(f"{sigma:g}", *cells))
    perturbations = len(results.robustness.body[0].accuracies)
    return Table(
        "C",
        f"Table 3: accuracy under noise on the body logits, mean of {perturbations}",
        ("σ_η", *(name.upper() for name in results.graphs)),
        tuple(rows),
        "In brackets: the paper's figures. An example counts if every atom is correct.",
    )


def _expected_table(results: Validation) -> Table:
    rows = [
        _row(
            f"{sigma:g}", row.graph.upper(), scientific(row.bound), scientific(row.probability or 0.0),
            ", ".join(map(str, row.events)),
            ", ".join(f"{accuracy:.3f}" for accuracy in row.accuracies),
            _certified_cell(row),
        )
        for sigma in SIGMAS
        for row in _by_graph(results.robustness.body, results.graphs, sigma)
    ]  # fmt: skip
    columns = (
        "σ_η",
        "graph",
        "RM·Φ(−η/σ)",
        "P[a sign changes]",
        "sign changes",
        "accuracy",
        "certified",
    )
    note = (
        "The bound is also the expected number of sign changes. Certified: the perturbed models "
        "that are proved exact for every fact set, and up to which step."
    )
    return Table(
        "C", "Expected and actual sign changes, and certificates", columns, tuple(rows), note
    )


def _certified_cell(row: NoiseRow) -> Cell:
    fraction = f"{sum(row.certified)}/{len(row.certified)}"
    ends = [end for end, held in zip(row.t_max, row.certified, strict=True) if held]
    if not ends:
        return Cell(fraction)
    finite = [end for end in ends if end is not None]
    return Cell(f"{fraction}, to {min(finite):,.0f}" if finite else f"{fraction}, no end")


def _critical_table(results: Validation) -> Table:
    rows = []
    for row in results.robustness.critical:
        printed = GRAPHS[row.graph]
        noise = next(r for r in results.robustness.body if r.graph == row.graph and r.sigma == 2.5)
        rows.append(
            _row(
                row.graph.upper(),
                row.logits,
                _with_printed(f"{row.predicted:.2f}", f"{printed.sigma_max:.2f}"),
                "none" if row.last_good is None else f"{row.last_good:g}",
                _with_printed(
                    f"{noise.bound:.3g}",
                    f"{printed.bound:g}",
                    abs(noise.bound - printed.bound) < 0.02 * printed.bound,
                ),
            )
        )
    columns = ("graph", "RM", "predicted σ_max", "accuracy ≥ 0.95 up to", "bound at 2.5")
    return Table("C", "Predicted and measured critical noise", columns, tuple(rows))


def _head_noise(results: Validation) -> Table:
    rows = []
    for sigma in sorted({row.sigma for row in results.robustness.head}):
        for row in _by_graph(results.robustness.head, results.graphs, sigma):
            accuracy = f"{row.accuracy:.3f}"
            rows.append(
                _row(
                    f"{sigma:g}", row.graph.upper(), scientific(row.bound),
                    ", ".join(map(str, row.events)),
                    _with_printed(accuracy, "intact", row.accuracy == 1) if sigma == 4 else accuracy,
                    _certified_cell(row),
                )
            )  # fmt: skip
    columns = ("σ_ψ", "graph", "R(M−1)·Φ(−Ψ/σ√2)", "misroutes", "accuracy", "certified")
    return Table("C", "Noise on the head logits", columns, tuple(rows))


# ---- D, E, F, G


def _table_2(results: Validation) -> Table:
    rows = tuple(
        _row(
            row.graph.upper(),
            _with_printed(f"{row.rising}/{row.states}", "500/500"),
            _with_printed(f"{row.ordered}/{row.states}", "500/500"),
            _with_printed(f"{row.bounded}/{row.trajectories}", "50/50"),
        )
        for row in results.structure.rows
    )
    columns = (
        "graph",
        "Lemma 5.1: values never fall",
        "Prop. 5.4: order is preserved",
        "Prop. 5.2: bounded",
    )
    return Table("D", "Table 2: structure, on random states", columns, rows)


def _edge_cases(results: Validation) -> Table:
    rows = []
    for case, title in (
        ("empty", "E1 no facts"),
        ("root", "E2 single productive roots"),
        ("all roots", "E3 all productive roots"),
        ("leaf", "E4 single leaves"),
    ):
        cells = []
        for name in results.graphs:
            found = [r for r in results.edge_cases.rows if (r.graph, r.case) == (name, case)]
            tried = {"root": GRAPHS[name].roots, "leaf": GRAPHS[name].leaves}.get(case, 1)
            right = sum(row.jaccard == 1 for row in found)
            cells.append(_with_printed(f"{right}/{len(found)}", f"{tried}/{tried}"))
        rows.append(_row(title, *cells))
    total, right = (
        len(results.edge_cases.rows),
        sum(r.jaccard == 1 for r in results.edge_cases.rows),
    )
    title = f"Edge cases: {right} of {total} exact"
    return Table("E", title, ("case", *(name.upper() for name in results.graphs)), tuple(rows))


def _multi_head(results: Validation) -> Table:
    rows = tuple(
        _row(
            row.head_sharing, row.constants,
            _with_printed(f"{100 * row.active / row.rules:.0f}%", "100%"),
            f"{row.exact}/{row.rules}", row.t_conv,
            ("no end" if row.t_max is None else f"to {row.t_max:,.0f}") if row.certified else "no",
            Cell(f"{row.mixed:.3f}", "" if row.mixed > 0.5 else "bad"),
        )
        for row in results.multi_head.rows
    )  # fmt: skip
    columns = (
        "thresholds",
        "constants",
        "all heads active",
        "exact",
        "T_conv",
        "certified",
        "mixed",
    )
    note = (
        "The facts are the body of one rule. Mixed: the value of x for 'x :- a. x, y, z :- b.' and "
        "the fact b, which should be above one half. 'equal' is ours, 'paper' is Appendix G."
    )
    return Table("F", "Rules with several heads", columns, rows, note)


def _windows_table(results: Validation) -> Table:
    rows = []
    for row in results.windows.rows:
        promised = "∞" if row.promised is None else _steps(row.promised)
        low = row.t_max is not None and (row.promised is None or row.promised > row.t_max)
        rows.append(
            _row(
                row.graph.upper(),
                row.constants,
                row.depth,
                "never" if row.t_min is None else f"{row.t_min:.0f}",
                "no end" if row.t_max is None else _steps(row.t_max),
                Cell(promised, "differs" if low else ""),
                scientific(row.leak),
            )
        )
    columns = ("graph", "constants", "depth", "exact from", "to step", "paper: to step", "leak")
    note = (
        "Exact from, to: proved for every fact set, in float32. The paper's window starts at the "
        "depth; it is marked where it is longer than the proved one."
    )
    return Table("G", "Certified windows", columns, tuple(rows), note)


def _steps(count: float) -> str:
    return f"{count:,.0f}" if count < 1e9 else scientific(count)


# ---- For each phase: whether its claim holds, and how many figures differ from the paper's

PHASES = (
    ("A", "Parameters in closed form"),
    ("B", "Closures"),
    ("C", "Noise"),
    ("D", "Monotonicity and bounds"),
    ("E", "Edge cases"),
    ("F", "Rules with several heads"),
    ("G", "Certificates"),
)


@dataclass(frozen=True)
class Verdict:
    """The outcome of one phase."""

    holds: bool  # whether its claim holds
    text: str  # what was found, in a few words
    differing: int  # how many figures differ from those in the paper

    @property
    def difference_text(self) -> str:
        """How many figures differ, in words; empty if none."""
        if not self.differing:
            return ""
        many = self.differing != 1
        return f"{self.differing} figure{'s differ' if many else ' differs'} from the paper"


def verdict(results: Validation, phase: str) -> Verdict:
    """Return the outcome of a phase, "A" to "G"."""
    holds, text = _claim(results, phase)
    differing = sum(
        cell.mark == "differs"
        for table in tables(results)
        if table.phase == phase
        for row in table.rows
        for cell in row
    )
    return Verdict(holds, text, differing)


def _claim(results: Validation, phase: str) -> tuple[bool, str]:
    if phase == "A":
        rows = results.construction.graphs
        sizes = [(row.M, row.R, row.k, row.rho_max) for row in rows]
        stated = [(g.M, g.R, 2, g.rho_max) for g in (GRAPHS[row.graph] for row in rows)]
        same = sum(one == other for one, other in zip(sizes, stated, strict=True))
        return same == len(rows), f"{same} of {len(rows)} programs have the stated sizes"
    if phase == "B":
        exact, total = exact_runs(results)
        return results.expressivity.holds, f"{exact:,} of {total:,} runs exact in every atom"
    if phase == "C":
        noise = results.robustness
        models = [certified for row in (*noise.body, *noise.head) for certified in row.certified]
        wrong = "no certified model is wrong" if noise.holds else "a certified model is wrong"
        return noise.holds, f"{sum(models)} of {len(models)} noisy models certified; {wrong}"
    if phase == "D":
        holds = results.structure.holds
        return holds, "no exception" if holds else "there is an exception"
    if phase == "E":
        cases = results.edge_cases.rows
        exact = sum(row.jaccard == 1 for row in cases)
        return results.edge_cases.holds, f"{exact} of {len(cases)} exact"
    if phase == "F":
        ours = [row for row in results.multi_head.rows if row.head_sharing == "equal"]
        active, rules = sum(row.active for row in ours), sum(row.rules for row in ours)
        return results.multi_head.holds, f"all heads active in {active} of {rules} rules"
    holds = results.windows.holds
    return holds, "every graph certified" if holds else "a graph is not certified"


def exact_runs(results: Validation) -> tuple[int, int]:
    """Return the number of runs of phase B that are exact in every atom, and the number of runs."""
    rows = results.expressivity.rows
    return (
        sum(round(row.accuracy * row.examples) for row in rows),
        sum(row.examples for row in rows),
    )


def timing_text(timing: Timing) -> str:
    """Return how long the validation took, and on what."""
    versions = ", ".join(f"{name} {version}" for name, version in timing.versions)
    return (
        f"All phases took {timing.wall:.1f} s on {timing.device} ({timing.cpu:.1f} s of processor "
        f"time, {timing.peak_memory / 1e9:.2f} GB at most). Machine: {timing.machine}. Versions: "
        f"{versions}. The paper reports {WALL_TIME} s for G4 alone on an A100."
    )


# ---- Results of a validation as one HTML page that needs no other file

#: The browser refuses to load anything for this page.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_TEXTS = {
    "A": "The parameters of the operator follow from a program by formulas, without training. The "
    "paper describes its four programs by their sizes only; these have the same sizes.",
    "B": "Random sets of two to eight facts, with the paper's constants and with certified ones. "
    "A run is exact if every atom is on the correct side of one half.",
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
    sections = "".join(_section(results, letter, title) for letter, title in PHASES)
    links = "".join(f'<a href="#{letter}">{letter} {title}</a>' for letter, title in PHASES)
    style = files("latentgamma.paper").joinpath("style.css").read_text(encoding="utf-8")
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
<style>{style}</style>
</head>
<body>
<main>
<header>
<h1>The paper, reproduced</h1>
<p class="lead">Every table and claim of <i>Differentiable Horn Programs</i>, computed with
LatentGamma and shown beside the figures that the paper prints. Differences are marked and
explained.</p>
<nav aria-label="Phases">{links}<a href="#differences">Differences</a></nav>
</header>
{sections}
<section id="differences"><div class="title"><h2>Differences from the paper</h2></div>
{_cards(results)}</section>
<footer>{timed}<p>Seed {results.seed}. On one machine, the same seed gives the same results, bit for
bit. <code>latentgamma report results.json</code> renders this page again.</p></footer>
</main>
</body>
</html>
"""


def symbols(text: str) -> str:
    """Return a text as HTML, with indices and exponents as such.

    >>> symbols("τ_s < 4kMe^−η")
    'τ<sub>s</sub> &lt; 4kMe<sup>−η</sup>'
    """
    text = re.sub(r"\b([^\W\d_])_(\w+)", r"\1<sub>\2</sub>", escape(text))
    return re.sub(r"e\^(−?\w+)", r"e<sup>\1</sup>", text)


# ---- Parts of the page


def _section(results: Validation, letter: str, title: str) -> str:
    outcome = verdict(results, letter)
    kind = "good" if outcome.holds else "bad"
    badges = f'<span class="badge {kind}">{escape(outcome.text)}</span>'
    if outcome.differing:
        text = escape(outcome.difference_text)
        badges += f' <a class="badge note" href="#differences">{text}</a>'
    first, *rest = [_table(table) for table in tables(results) if table.phase == letter]
    figures = {"C": _noise, "G": _leakage}.get(letter)
    middle = figures(results) if figures else ""
    return (
        f'<section id="{letter}"><div class="title"><h2><span class="letter">{letter}</span> '
        f"{escape(title)}</h2>{badges}</div><p>{escape(_TEXTS[letter])}</p>"
        f"{first}{middle}{''.join(rest)}</section>"
    )


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
        svg = plot.inline_svg(charts.noise(rows, critical), f"noise-{critical.graph}", words)
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
        svg = plot.inline_svg(charts.leakage(rows), f"leakage-{name}", words)
        panels.append((f"<b>{name.upper()}</b>, largest underivable atom", svg))
    return legend + _panels(panels)


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
    """Return a table that scrolls by itself, so that the page never scrolls sideways."""
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
    """Print all tables, the differences from the paper, and the outcome of each phase.

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
