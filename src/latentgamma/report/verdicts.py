"""For each phase: whether its claim holds, and how many figures differ from the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from latentgamma.report.tables import tables
from latentgamma.validation.printed import GRAPHS, WALL_TIME
from latentgamma.validation.results import Timing, Validation

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
    """The outcome of one phase.

    Args:
        holds: whether the claim of the phase holds.
        text: what was found, in a few words.
        differing: the number of figures that differ from those in the paper.
    """

    holds: bool
    text: str
    differing: int

    @property
    def difference_text(self) -> str:
        """How many figures differ, in words; empty if none."""
        if not self.differing:
            return ""
        many = self.differing != 1
        return f"{self.differing} figure{'s differ' if many else ' differs'} from the paper"


def verdict(results: Validation, phase: str) -> Verdict:
    """The outcome of a phase.

    Args:
        results: the results of a validation.
        phase: its letter, "A" to "G".
    """
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
    """The number of runs of phase B that are exact in every atom, and the number of runs."""
    rows = results.expressivity.rows
    return (
        sum(round(row.accuracy * row.examples) for row in rows),
        sum(row.examples for row in rows),
    )


def timing_text(timing: Timing) -> str:
    """How long the validation took, and on what."""
    versions = ", ".join(f"{name} {version}" for name, version in timing.versions)
    return (
        f"All phases took {timing.wall:.1f} s on {timing.device} ({timing.cpu:.1f} s of processor "
        f"time, {timing.peak_memory / 1e9:.2f} GB at most). Machine: {timing.machine}. Versions: "
        f"{versions}. The paper reports {WALL_TIME} s for G4 alone on an A100."
    )
