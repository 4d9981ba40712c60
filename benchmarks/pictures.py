"""The pictures of docs/benchmarks.md: which there are, and how each is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

COLOURS = {"ours": "#0b6e4f", "plain": "#c77700", "engine": "#4a5a80"}
KINDS = {"ours": "LatentGamma", "plain": "plain torch or scipy", "engine": "other engines"}
#: How the contenders of the tables are called in a picture.
NAMES = {
    "kernel": "LatentGamma, sparse",
    "kernel, fixed": "LatentGamma, sparse, fixed",
    "reference": "LatentGamma, sparse, in plain torch",
    "dense model": "LatentGamma, dense",
    "dense model, compiled": "LatentGamma, dense, torch.compile",
    "latentgamma": "LatentGamma",
    "pysat minicard": "PySAT (minicard)",
    "csr": "torch CSR",
    "dense": "paper's formulas, torch",
    "dense formulas": "paper's formulas, torch",
    "dense formulas, compiled": "paper's formulas, torch.compile",
}
LINES = ["#0b6e4f", "#c77700", "#4a5a80", "#a33b4e", "#7a4fa3"]


@dataclass(frozen=True)
class Picture:
    """A name, a title and what draws it onto axes."""

    name: str
    title: str
    draw: Callable[[Any], None]
    height: float = 4.0

    def save(self, folder: Path, suffix: str = "svg") -> None:
        import matplotlib as mpl
        from matplotlib.figure import Figure

        # The same figures give the same file.
        with mpl.rc_context({"svg.hashsalt": self.name, "svg.fonttype": "none", "font.size": 10}):
            figure = Figure(figsize=(7.5, self.height), layout="constrained")
            axes = figure.add_subplot()
            self.draw(axes)
            axes.set_title(self.title, fontsize=11)
            axes.spines[["top", "right"]].set_visible(False)
            folder.mkdir(exist_ok=True)
            plain = {"Date": None, "Creator": None} if suffix == "svg" else {}
            figure.savefig(folder / f"{self.name}.{suffix}", metadata=plain, dpi=100)


def of(name: str, rows: list[Row]) -> list[Picture]:
    """The pictures of one benchmark that its rows suffice for."""
    return PICTURES.get(name, lambda rows: [])(rows)


# -------------------------------------------------------------------- drawing


def lines(axes: Any, series: dict[str, list[tuple[float, float]]], x: str, y: str) -> None:
    """Lines on two logarithmic axes."""
    for colour, (label, points) in zip(LINES, series.items(), strict=False):
        axes.plot(*zip(*sorted(points), strict=True), "o-", color=colour, label=label, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axes.grid(which="major", color="#dddddd", linewidth=0.7)
    axes.legend(frameon=False)


def bars(axes: Any, rows: list[tuple[str, float, str]], x: str) -> None:
    """Horizontal bars on a logarithmic axis, the shortest on top; each says its length."""
    labels, values, kinds = zip(*rows, strict=True)
    places = range(len(rows))
    axes.barh(places, values, color=[COLOURS[kind] for kind in kinds], height=0.7)
    axes.set(xscale="log", xlabel=x, yticks=places, yticklabels=labels)
    axes.set_xlim(min(values) / 2, max(values) * 6)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    for place, value in zip(places, values, strict=True):
        axes.text(value * 1.15, place, seconds(value), va="center", fontsize=8)
    used = [kind for kind in KINDS if kind in kinds]
    if len(used) > 1:
        handles = [axes.barh([0], [0], color=COLOURS[kind]) for kind in used]
        names = [KINDS[kind] for kind in used]
        axes.legend(handles, names, frameon=False, loc="upper right")


def seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def series(rows: list[Row], line: str, x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """A line for each value of one column, from the rows that have both others."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.get(x) and row.get(y):
            found.setdefault(NAMES.get(row[line], row[line]), []).append((row[x], row[y]))
    return found


# -------------------------------------------------------------------- which there are


def closure(rows: list[Row]) -> list[Picture]:
    points = series([row for row in rows if row.get("part") == "c"], "name", "R", "seconds")
    if not points:
        return []
    title = "One closure of a random program, half of its atoms given"
    return [
        Picture("closure", title, lambda a: lines(a, points, "rules (as many atoms)", "seconds"))
    ]


def scale(rows: list[Row]) -> list[Picture]:
    each = series(rows, "who", "size", "ns_per_rule")
    batches = {row["size"]: row["batch"] for row in rows}
    usual = max(batches.values())
    odd = [f"{batch} at {size:.0e}" for size, batch in batches.items() if batch != usual]
    x = f"rules (as many atoms); examples: {', '.join([str(usual), *odd])}"
    return [
        Picture(
            "scale",
            "The sparse operator: time for one rule, example and step",
            lambda a: lines(a, each, x, "nanoseconds"),
        )
    ]


def sweep(rows: list[Row]) -> list[Picture]:
    found = []
    for batch in sorted({row["batch"] for row in rows}):
        block = [row for row in rows if row["batch"] == batch]
        points = series(block, "who", "size", "median_s")
        found.append(
            Picture(
                f"sweep-{batch}",
                f"32 steps for {batch} example{'s' if batch > 1 else ''}, by size and form",
                lambda a, points=points: lines(a, points, "rules (as many atoms)", "seconds"),
            )
        )
    return found


def forward(rows: list[Row]) -> list[Picture]:
    found = []
    for batch in sorted({row["batch"] for row in rows}, reverse=True):
        block = [row for row in rows if row["batch"] == batch and row.get("median_s")]
        chosen = [
            (NAMES.get(row["who"], row["who"]), row["median_s"], kind(row["who"])) for row in block
        ]
        chosen.sort(key=lambda bar: bar[1])
        title = f"32 steps of G4, {batch} example{'s' if batch > 1 else ''}"
        found.append(
            Picture(
                f"forward-{batch}", title, lambda a, c=chosen: bars(a, c, "seconds"), height=2.8
            )
        )
    return found


def kind(who: str) -> str:
    return "ours" if "kernel" in who or "reference" in who or "model" in who else "plain"


def peers(rows: list[Row]) -> list[Picture]:
    titles = {"chain": "a chain of 500 atoms", "g4": "G4 (504 atoms, 648 rules)"}
    found = []
    for job in dict.fromkeys(row["job"] for row in rows):
        chosen: list[tuple[str, float, str]] = []
        for row in rows:
            if row["job"] != job or not row["per_set_s"] or row["right"] is not True:
                continue
            if row["who"].startswith("PySAT"):
                if any(label.startswith("PySAT") for label, _, _ in chosen):
                    continue  # the rows are sorted: the first solver is the best one
                row = row | {"who": f"{row['who']} (best of PySAT)"}
            chosen.append((row["who"], row["per_set_s"], row["kind"]))
        if chosen:
            title = f"Time for the closure of one fact set of {titles.get(job, job)}"
            draw: Callable[[Any], None] = lambda a, c=chosen: bars(a, c, "seconds for a set")  # noqa: E731
            found.append(Picture(f"peers-{job}", title, draw, height=0.9 + 0.27 * len(chosen)))
    return found


def relational(rows: list[Row]) -> list[Picture]:
    wrong = [row for row in rows if row["part"] == "wrong labels"]
    shares = sorted({row["share"] for row in wrong})
    tasks = [{row["task"] for row in wrong if row["share"] == share} for share in shares]
    common = set.intersection(*tasks) if tasks else set()
    if len(shares) < 2 or not common:
        return []
    clean = [row for row in rows if row["part"] == "clean"]
    points = []
    for share, block in [
        (0.0, clean),
        *((s, [r for r in wrong if r["share"] == s]) for s in shares),
    ]:
        chosen = [row for row in block if row["task"] in common]
        sets = sum(row["training sets"] for row in chosen)
        points.append((100 * share, 100 * sum(row["right"] for row in chosen) / sets))

    def draw(axes: Any) -> None:
        axes.plot(*zip(*points, strict=True), "o-", color=LINES[0], markersize=4)
        axes.set(xlabel="wrong labels, %", ylabel="training sets solved, %", ylim=(0, 104))
        axes.grid(color="#dddddd", linewidth=0.7)

    title = f"Rules with variables from wrong labels, {len(common)} tasks"
    return [Picture("relational", title, draw)]


def nesy(rows: list[Row]) -> list[Picture]:
    growth = [row for row in rows if row.get("part") == "growth"]
    if not growth:
        return []

    def draw(axes: Any) -> None:
        colours = iter(LINES)
        for device in dict.fromkeys(row["device"] for row in growth):
            some = [row for row in growth if row["device"] == device]
            sizes = [row["digits"] for row in some]
            where = "GPU" if device == "cuda" else "CPU"
            times = [row.get("graph_ms") or row["ms"] for row in some]
            curves = [("o-", "milliseconds", times)]
            if any(row.get("mb") for row in some):
                curves.append(("s-", "megabytes", [row["mb"] for row in some]))
            for marker, what, values in curves:
                axes.plot(sizes, values, marker, color=next(colours), label=f"{what}, {where}")
                longer = [n for n in sizes if n >= min(16, sizes[-1])]
                scale = values[-1] / (sizes[-1] * math.log(max(sizes[-1], 2)))
                reference = [scale * n * math.log(max(n, 2)) for n in longer]
                axes.plot(longer, reference, ":", color="#888888")
        axes.plot([], [], ":", color="#888888", label="growth of N log N to the last point")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        sizes = sorted({row["digits"] for row in growth})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set(xlabel="digits N of the sum", ylabel="milliseconds, megabytes")
        axes.grid(which="major", axis="y", color="#dddddd", linewidth=0.7)
        axes.legend(frameon=False)

    title = "A step through the rules of a sum, forward and backward, batch 16"
    return [Picture("nesy-growth", title, draw)]


PICTURES = {
    "nesy": nesy,
    "relational": relational,
    "closure": closure,
    "scale": scale,
    "sweep": sweep,
    "forward": forward,
    "peers": peers,
}
