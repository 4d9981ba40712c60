"""The headline figures of docs/benchmarks.md, each taken from the rows in benchmarks/results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def headlines(results: Path) -> str:
    """Two Markdown tables: where LatentGamma is faster, and where it is slower or fails."""
    rows = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))["rows"]
        for path in sorted(results.glob("*.json"))
    }
    parts = []
    for title, columns, found in (
        ("Faster", ("task", "LatentGamma", "compared with"), list(_wins(rows))),
        ("Slower, or not reached", ("task", "LatentGamma", "compared with"), list(_losses(rows))),
    ):
        lines = ["| " + " | ".join(columns) + " |", "|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in found]
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _wins(rows: dict[str, list[Row]]) -> Iterator[tuple[str, str, str]]:
    if "peers" in rows:
        block = [row for row in rows["peers"] if row["job"] == "g4" and row["per_set_s"]]
        ours = _one(block, who="closures")
        solver = next(row for row in block if row["who"].startswith("PySAT"))
        other = next(
            row for row in block if row["kind"] == "engine" and not row["who"].startswith("PySAT")
        )
        yield (
            f"closures of {ours['sets']} fact sets, 648 rules",
            _time(ours["seconds"]),
            f"{solver['who']} × {solver['times_closures']:.3g}, {other['who']} × "
            f"{other['times_closures']:.3g}",
        )
    if "load" in rows:
        ours = _one(rows["load"], name="latentgamma load, words")
        other = _one(rows["load"], name="clingo load + ground, words")
        yield (
            "reading a million rules",
            _time(ours["seconds"]),
            f"clingo × {other['seconds'] / ours['seconds']:.3g}",
        )
    for name, task in (("forward", "forward"), ("backward", "forward and backward")):
        if name in rows:
            block = [row for row in rows[name] if row["batch"] == 500]
            others = {row["who"]: row["times"] for row in block}
            kinds = [("torch CSR", "csr"), ("torch dense", "dense")]
            yield (
                f"{task}, 32 steps, 648 rules, batch 500",
                _time(_one(block, who="kernel")["median_s"]),
                ", ".join(f"{label} × {others[who]:.3g}" for label, who in kinds if who in others),
            )
    block = [row for row in rows.get("sweep", []) if (row["size"], row["batch"]) == (10, 1)]
    others = {row["who"]: row["times"] for row in block}
    if block and min(others["dense formulas"], others["csr"]) >= 1:
        yield (
            "forward, 32 steps, 10 rules, 1 example",
            _time(_one(block, who="kernel")["median_s"]),
            f"plain torch × {others['dense formulas']:.3g}, torch CSR × {others['csr']:.3g}",
        )
    if "gpu" in rows:
        row = _one(rows["gpu"], job="G4, B = 16384, T = 32")
        yield (
            f"the same on {rows['gpu'][0]['device']}, forward, batch 16,384",
            _time(row["forward_graph_ms"] / 1000),
            f"torch dense × {row['dense / ours']:.3g}",
        )
    for row in rows.get("requirements", []):
        if row.get("who") == "PiShield, forward":
            ours = _one(rows["requirements"], who="exact, scores")
            yield (
                "243 requirements on 41 labels, 256 examples",
                _time(ours["ms"] / 1000),
                f"PiShield × {row['ms'] / ours['ms']:.3g}",
            )


def _losses(rows: dict[str, list[Row]]) -> Iterator[tuple[str, str, str]]:
    for row in sorted(rows.get("sweep", []), key=lambda row: row.get("times") or 9.0)[:40]:
        if row.get("times") and row["times"] < 0.7 and row["who"] in ("csr", "dense formulas"):
            ours = next(
                other
                for other in rows["sweep"]
                if other["who"] == "kernel"
                and (other["size"], other["batch"]) == (row["size"], row["batch"])
            )
            who = "torch CSR" if row["who"] == "csr" else "plain torch"
            examples = "1 example" if row["batch"] == 1 else f"{row['batch']} examples"
            yield (
                f"forward, 32 steps, {row['size']:,} rules, {examples}",
                _time(ours["median_s"]),
                f"{who} × {row['times']:.2g}",
            )
    if "startup" in rows:
        ours = next(row for row in rows["startup"] if row["who"].startswith("latentgamma "))
        other = _one(rows["startup"], who="clingo, the same rules")
        yield (
            "one closure of 17 rules in a new process",
            _time(ours["seconds"]),
            f"clingo × {other['seconds'] / ours['seconds']:.2g}",
        )
        first = _one(rows["startup"], who="operator, forward and backward, first process")
        yield (
            "first call ever, in which the kernels are compiled",
            _time(first["first_call_s"]),
            "",
        )
    if "learn" in rows:
        aims = [row for row in rows["learn"] if "must hold" in row and row["holds"] != ""]
        reached = sum(bool(row["holds"]) for row in aims)
        yield (f"learning: {len(aims)} aims", f"{reached} reached", "")
    sets = [row for row in rows.get("hierarchies", []) if "within .003" in row]
    for row in sets:
        if row["within .003"] is False or row["at or above"] is False:
            yield (
                f"AU(PRC) on {row['set']}, mean of {row['seeds']} seeds",
                f"{row['ours']:.4f}, averaged weights {row['averaged']:.4f}",
                f"C-HMCNN {row['published']:.3f}",
            )
    early = sum(row["epochs"] < row["of"] for row in sets)
    if early:
        yield (f"AU(PRC) on {len(sets)} sets", f"{early} were not trained to the end", "")


def _one(rows: list[Row], **wanted: str) -> Row:
    return next(row for row in rows if all(row.get(key) == value for key, value in wanted.items()))


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
