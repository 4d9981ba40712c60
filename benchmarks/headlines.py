"""The headline figures of docs/benchmarks.md, each taken from the rows in benchmarks/results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: Task, figure, what it is compared with, and the name of the benchmark.
Headline = tuple[str, str, str, str]


def headlines(results: Path) -> str:
    """Two Markdown tables: where LatentGamma is ahead, and where it is behind or fails."""
    rows = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))["rows"]
        for path in sorted(results.glob("*.json"))
    }
    parts = []
    for title, found in (
        ("Faster, or more accurate", _wins(rows)),
        ("Slower, less accurate, or not reached", _losses(rows)),
    ):
        lines = ["| task | LatentGamma | compared with | benchmark |", "|---|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in found]
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _wins(rows: dict[str, list[Row]]) -> Iterator[Headline]:
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
            "`peers`",
        )
    if "load" in rows:
        ours = _one(rows["load"], name="latentgamma load, words")
        other = _one(rows["load"], name="clingo load + ground, words")
        yield (
            "reading a million rules",
            _time(ours["seconds"]),
            f"clingo × {other['seconds'] / ours['seconds']:.3g}",
            "`load`",
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
                f"`{name}`",
            )
    block = [row for row in rows.get("sweep", []) if (row["size"], row["batch"]) == (10, 1)]
    others = {row["who"]: row["times"] for row in block}
    if block and min(others["dense formulas"], others["csr"]) >= 1:
        yield (
            "forward, 32 steps, 10 rules, 1 example",
            _time(_one(block, who="kernel")["median_s"]),
            f"plain torch × {others['dense formulas']:.3g}, torch CSR × {others['csr']:.3g}",
            "`sweep`",
        )
    if "gpu" in rows:
        row = _one(rows["gpu"], job="G4, B = 16384, T = 32")
        yield (
            f"forward, 32 steps, 648 rules, batch 16,384, on {rows['gpu'][0]['device']}",
            _time(row["forward_graph_ms"] / 1000),
            f"torch dense × {row['dense / ours']:.3g}",
            "`gpu`",
        )
    for row in rows.get("requirements", []):
        if row.get("who") == "PiShield, forward":
            ours = _one(rows["requirements"], who="exact, scores")
            yield (
                "243 requirements on 41 labels, 256 examples",
                _time(ours["ms"] / 1000),
                f"PiShield × {row['ms'] / ours['ms']:.3g}",
                "`requirements`",
            )
    for row, published, who in _published_sums(rows):
        if row["labels"] >= published and row["task"] in ("add4", "sum64", "sum1024"):
            yield _sums_row(row, published, who)
    ended = [row for row in rows.get("hierarchies", []) if row.get("within .003") not in (None, "")]
    if ended:
        near = sum(row["within .003"] for row in ended)
        yield (
            f"AU(PRC) on the {len(ended)} hierarchies that were trained to the end",
            f"within .003 on {near}",
            "C-HMCNN, published",
            "`hierarchies`",
        )
    for total in _tables_total(rows):
        yield (
            f"held-out log-loss on {total['must hold'][3:]} tables",
            f"lower on {total['log-loss < tuned tree']}",
            "tuned decision tree",
            "`tables`",
        )


def _losses(rows: dict[str, list[Row]]) -> Iterator[Headline]:
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
                "`sweep`",
            )
    if "startup" in rows:
        ours = next(row for row in rows["startup"] if row["who"].startswith("latentgamma "))
        other = _one(rows["startup"], who="clingo, the same rules")
        yield (
            "one closure of 17 rules in a new process",
            _time(ours["seconds"]),
            f"clingo × {other['seconds'] / ours['seconds']:.2g}",
            "`startup`",
        )
        first = _one(rows["startup"], who="operator, forward and backward, first process")
        yield (
            "first call ever, in which the kernels are compiled",
            _time(first["first_call_s"]),
            "",
            "`startup`",
        )
    for row in rows.get("decide", []):
        if row["who"] == "latentgamma, answers" and "times hand-written" in row:
            yield (
                "one decision, 50 rules, 20 columns",
                _time(row["median µs"] / 1e6),
                f"hand-written ifs × {1 / row['times hand-written']:.2g}",
                "`decide`",
            )
    for row in rows.get("probability", []):
        if row.get("problog / ours", 1.0) < 1:
            yield (
                f"exact probabilities of {row['job']}",
                _time(row["ours_s"]),
                f"ProbLog × {row['problog / ours']:.2g}",
                "`probability`",
            )
    for row, published, who in _published_sums(rows):
        if row["labels"] < published:
            yield _sums_row(row, published, who)
    for total in _tables_total(rows):
        yield (
            f"held-out log-loss on {total['must hold'][3:]} tables",
            f"at most .02 higher on {total['log-loss - logistic']}",
            "logistic regression",
            "`tables`",
        )
    for row in rows.get("relational", []):
        ours = row.get("MRR, non_redundant")
        if ours is not None and ours < (row.get("ConvE, published") or 0.0):
            yield (
                f"missing links of {row['graph']}, filtered MRR",
                f"{ours:.3f}",
                f"ConvE {row['ConvE, published']:.2f}, published",
                "`relational`",
            )
    if "learn" in rows:
        aims = [row for row in rows["learn"] if "must hold" in row and row["holds"] != ""]
        reached = sum(bool(row["holds"]) for row in aims)
        yield (
            f"rules from observations: {len(aims)} aims",
            f"{reached} reached",
            "",
            "`learn`",
        )
    sets = [row for row in rows.get("hierarchies", []) if "within .003" in row]
    for row in sets:
        if row["within .003"] is False or row["at or above"] is False:
            yield (
                f"AU(PRC) on {row['set']}, mean of {row['seeds']} seeds",
                f"{row['ours']:.4f}, averaged weights {row['averaged']:.4f}",
                f"C-HMCNN {row['published']:.3f}, published",
                "`hierarchies`",
            )
    early = sum(row["epochs"] < row["of"] for row in sets)
    if early:
        yield (
            f"AU(PRC) on {len(sets)} hierarchies",
            f"{early} not trained to the end",
            "C-HMCNN, published",
            "`hierarchies`",
        )


def _published_sums(rows: dict[str, list[Row]]) -> Iterator[tuple[Row, float, str]]:
    """The tasks on MNIST that have a published figure, with it and its system."""
    for row in rows.get("nesy", []):
        if row["part"] == "papers" and row.get("published"):
            figure, system = row["published"].split(" ", 1)
            yield row, float(figure), system.strip("()").split()[0]


def _sums_row(row: Row, published: float, who: str) -> Headline:
    return (
        f"MNIST, {row['content']}, right answers, {len(row['each seed'].split())} seeds on {'a GPU' if row['machine'] != 'CPU' else 'a CPU'}",
        f"{row['labels']:.1f}%",
        f"{who} {published:g}%, published",
        "`nesy`",
    )


def _tables_total(rows: dict[str, list[Row]]) -> list[Row]:
    """The row that counts the tables on which each comparison holds, if there is one."""
    return [row for row in rows.get("tables", []) if str(row.get("must hold")).startswith("of ")]


def _one(rows: list[Row], **wanted: str) -> Row:
    return next(row for row in rows if all(row.get(key) == value for key, value in wanted.items()))


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
