"""The results as tables, for the terminal and for the HTML report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from latentgamma.report.differences import same_accuracy
from latentgamma.validation.printed import GRAPHS, SIGMAS
from latentgamma.validation.results import NoiseRow, Validation

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
    """All tables, in the order of the phases.

    Args:
        results: the results of a validation.
    """
    return (
        _graphs(results),
        _constants(results),
        _bits(results),
        _table_1(results),
        _table_3(results),
        _expected(results),
        _critical(results),
        _head_noise(results),
        _table_2(results),
        _edge_cases(results),
        _multi_head(results),
        _windows(results),
    )


def _row(*cells: Cell | str | float) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(_text(cell)) for cell in cells)


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def scientific(value: float) -> str:
    """A number of any size, with a power of ten if it is very large or small.

    >>> scientific(0.0334), scientific(2.5e13), scientific(8.05e-21)
    ('0.0334', '2.5 × 10¹³', '8 × 10⁻²¹')
    """
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    digits, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits.removesuffix('.0')} × 10{raised}"


def _beside(ours: str, printed: str, same: bool | None = None) -> Cell:
    """Our figure and the paper's in brackets, marked if they differ."""
    agrees = ours == printed if same is None else same
    return Cell(f"{ours} ({printed})", "same" if agrees else "differs")


# -------------------------------------------------------------------- A


def _graphs(results: Validation) -> Table:
    rows = []
    for row in results.construction.graphs:
        printed = GRAPHS[row.graph]
        rows.append(
            _row(
                row.graph.upper(),
                _beside(str(row.M), str(printed.M)),
                _beside(str(row.R), str(printed.R)),
                _beside(str(row.k), "2"),
                _beside(str(row.rho_max), str(printed.rho_max)),
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


def _constants(results: Validation) -> Table:
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


def _bits(results: Validation) -> Table:
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


# -------------------------------------------------------------------- B


def _table_1(results: Validation) -> Table:
    rows = []
    for row in results.expressivity.rows:
        printed = GRAPHS[row.graph]
        rows.append(
            _row(
                row.graph.upper(),
                row.constants,
                _beside(f"{row.accuracy:.4f}", "1.0000"),
                _beside(f"{row.fpr:g} / {row.fnr:g}", "0 / 0"),
                _beside(str(row.t_conv), str(printed.t_conv)),
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


# -------------------------------------------------------------------- C


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
            cells.append(_beside(f"{row.accuracy:.3f}", f"{printed:.3f}", same))
        rows.append(_row(f"{sigma:g}", *cells))
    perturbations = len(results.robustness.body[0].accuracies)
    return Table(
        "C",
        f"Table 3: accuracy under noise on the body logits, mean of {perturbations}",
        ("σ_η", *(name.upper() for name in results.graphs)),
        tuple(rows),
        "In brackets: the paper's figures. An example counts if every atom is correct.",
    )


def _expected(results: Validation) -> Table:
    rows = [
        _row(
            f"{sigma:g}", row.graph.upper(), scientific(row.bound), scientific(row.probability or 0.0),
            ", ".join(map(str, row.events)),
            ", ".join(f"{accuracy:.3f}" for accuracy in row.accuracies),
            _proved(row),
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


def _proved(row: NoiseRow) -> Cell:
    share = f"{sum(row.certified)}/{len(row.certified)}"
    ends = [end for end, held in zip(row.t_max, row.certified, strict=True) if held]
    if not ends:
        return Cell(share)
    finite = [end for end in ends if end is not None]
    return Cell(f"{share}, to {min(finite):,.0f}" if finite else f"{share}, no end")


def _critical(results: Validation) -> Table:
    rows = []
    for row in results.robustness.critical:
        printed = GRAPHS[row.graph]
        noise = next(r for r in results.robustness.body if r.graph == row.graph and r.sigma == 2.5)
        rows.append(
            _row(
                row.graph.upper(),
                row.logits,
                _beside(f"{row.predicted:.2f}", f"{printed.sigma_max:.2f}"),
                "none" if row.last_good is None else f"{row.last_good:g}",
                _beside(
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
                    _beside(accuracy, "intact", row.accuracy == 1) if sigma == 4 else accuracy,
                    _proved(row),
                )
            )  # fmt: skip
    columns = ("σ_ψ", "graph", "R(M−1)·Φ(−Ψ/σ√2)", "misroutes", "accuracy", "certified")
    return Table("C", "Noise on the head logits", columns, tuple(rows))


# -------------------------------------------------------------------- D, E, F, G


def _table_2(results: Validation) -> Table:
    rows = tuple(
        _row(
            row.graph.upper(),
            _beside(f"{row.rising}/{row.states}", "500/500"),
            _beside(f"{row.ordered}/{row.states}", "500/500"),
            _beside(f"{row.bounded}/{row.trajectories}", "50/50"),
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
            cells.append(_beside(f"{right}/{len(found)}", f"{tried}/{tried}"))
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
            _beside(f"{100 * row.active / row.rules:.0f}%", "100%"),
            f"{row.exact}/{row.rules}", row.t_conv,
            _end_text(row.t_max) if row.certified else "no",
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


def _windows(results: Validation) -> Table:
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


def _end_text(t_max: float | None) -> str:
    return "no end" if t_max is None else f"to {t_max:,.0f}"


def _steps(count: float) -> str:
    return f"{count:,.0f}" if count < 1e9 else scientific(count)
