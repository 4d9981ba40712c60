"""Runs a benchmark by its name: python benchmarks/run.py NAME [--json FILE].

Each benchmark runs LatentGamma and the other systems, checks that the answers agree, and prints ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
#: Name, module, function, and what it is about.
BENCHMARKS = {
    "load": ("load", "rows", "reading a million rules, beside clingo"),
    "closure": ("closure", "rows", "closures, beside PySAT and clingo"),
    "forward": ("forward", "forward", "T steps of the layer, beside dense and CSR torch"),
    "backward": ("forward", "backward", "the same with gradients"),
    "chain": ("forward", "chain", "500 steps on a chain of 500 atoms"),
    "until_closed": ("forward", "until_closed", "`steps=None` beside the right number of steps"),
    "scale": ("forward", "scale", "from ten thousand to ten million rules"),
    "sweep": ("sweep", "rows", "where dense wins: dense, CSR and kernel by size"),
    "startup": ("startup", "rows", "a fresh process, and compiled kernels"),
    "memory": ("forward", "memory", "peak memory of forward and backward"),
    "gpu": ("gpu", "rows", "the layer on a CUDA device"),
    "learn": ("learn", "rows", "rules from observations"),
    "peers": ("peers", "rows", "the same two jobs for us, plain code and other engines"),
    "train": ("train", "rows", "training a network through rules: ways, tasks and seeds"),
    "nesy": (
        "nesy",
        "rows",
        "perception and rules: networks trained through rules on labels alone",
    ),
    "probability": ("probability", "rows", "probabilities, beside ProbLog and KLay"),
    "probability_gpu": ("probability", "cuda_rows", "additions beside KLay on a CUDA device"),
    "datalog": ("datalog", "rows", "rules with variables, beside clingo and egglog"),
    "certificate": ("certificate", "rows", "how tight and how quick the certificate is"),
    "relational": ("relational", "rows", "rules with variables from examples"),
    "distributed": ("distributed", "rows", "several processes, the cost model, tables on Ray"),
    "decide": ("decide", "rows", "one decision and a million, beside plain Python and clingo"),
    "datasets": ("datasets", "rows", "programs written by other people"),
    "requirements": ("requirements", "rows", "outputs that satisfy requirements, beside PiShield"),
    "requirements_gpu": ("requirements_gpu", "rows", "hierarchies and rules on a CUDA device"),
    "hierarchies": ("hierarchies", "rows", "AU(PRC) by the recipe of C-HMCNN"),
    "joint": ("joint", "rows", "images and rules learned together, from labels of pairs alone"),
    "tables": ("tables", "rows", "rules from ordinary tables, beside other learners"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(BENCHMARKS))
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    parser.add_argument("--threads", type=int, default=2, help="threads for everyone (default 2)")
    parser.add_argument("--data", type=Path, help="a folder of data, for those that read one")
    parser.add_argument(
        "--seeds", type=int, help="the number of seeds, for joint, relational, tables"
    )
    parser.add_argument("--jobs", type=int, help="processes at a time, for tables and relational")
    parser.add_argument(
        "--sets",
        help="NAME,NAME:FIRST-LAST: data sets, seeds; for hierarchies; parts, for relational, tables",
    )
    parser.add_argument(
        "--done", type=Path, help="a file of finished parts, for relational, tables"
    )
    given = parser.parse_args()
    for option, names in (
        ("seeds", ["joint", "relational", "tables"]), ("sets", ["hierarchies", "relational", "tables"]),
        ("jobs", ["tables", "relational"]), ("done", ["relational", "tables"]),
    ):  # fmt: skip
        if getattr(given, option) is not None and given.name not in names:
            parser.error(f"--{option} is only for {' and '.join(names)}")
    # Before numpy, numba and torch look at them.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(given.threads)
    sys.path.insert(0, str(Path(__file__).parent))
    # One compiles in processes of its own, the other computes on a GPU where there is one.
    if given.name not in ("startup", "nesy"):
        # In another process: here nothing is imported but what a benchmark itself imports.
        subprocess.run([sys.executable, "-m", "latentgamma", "compile"], check=True)
    module, function, _ = BENCHMARKS[given.name]
    folder = [] if given.data is None else [given.data]
    options = {name: getattr(given, name) for name in ("seeds", "sets", "jobs", "done")}
    chosen = {name: value for name, value in options.items() if value is not None}
    rows = getattr(importlib.import_module(module), function)(*folder, **chosen)
    print(table(rows))
    if given.json:
        found = {"about": about(given.name, given.threads), "rows": rows}
        given.json.write_text(json.dumps(found, indent=1, default=str) + "\n")
        if given.json.resolve().parent == RESULTS:
            importlib.import_module("write_docs").main()  # the tables and pictures of the pages
    return 0


def about(name: str, threads: int) -> dict[str, Any]:
    """The command, the machine and the versions."""
    versions = {}
    for package in ("latentgamma", "numpy", "numba", "torch", "clingo", "python-sat", "egglog"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        versions["device"] = torch.cuda.get_device_name()
    return {
        "benchmark": name,
        "command": f"python benchmarks/run.py {name} --threads {threads}",
        "threads": threads,
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text, one block for each set of columns."""
    lines: list[str] = []
    while rows:
        columns = list(rows[0])
        block = []
        while rows and list(rows[0]) == columns:
            block.append([shown(value) for value in rows[0].values()])
            rows = rows[1:]
        widths = [max(map(len, column)) for column in zip(columns, *block, strict=True)]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            for cells in (columns, *block, [""] * len(columns))
        ]
    return "\n".join(lines)


def shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
