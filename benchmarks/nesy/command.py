"""The command line of `nesy`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

import nesy
from latentgamma import LatentGammaError
from latentgamma.learning import ProgressBar
from nesy import data
from nesy.tasks import Settings, all_tasks
from run import table as text


def _at_least(least: int) -> Any:
    """Return what reads a whole number from `least` on."""

    def read(given: str) -> int:
        if not given.isdecimal() or int(given) < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number from {least} on, not {given}"
            )
        return int(given)

    return read


def _settings(given: str) -> dict[str, Any]:
    """Return other settings than those of a task, from JSON."""
    kinds = {field.name: field.type for field in fields(Settings)}
    try:
        found = json.loads(given)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError('expected JSON such as {"epochs": 5}')
    for name, value in found.items():
        if name not in kinds:
            raise argparse.ArgumentTypeError(
                f"there is no setting {name!r}; there are {', '.join(kinds)}"
            )
        kind = {"int": int, "float": (int, float), "bool": bool}[kinds[name]]
        fine = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        if not fine or value < (kind is int):
            raise argparse.ArgumentTypeError(f"{name} is of the kind {kinds[name]}, not {value!r}")
    return found


def main() -> int:
    known = [*all_tasks(), *nesy.OTHERS]
    parser = argparse.ArgumentParser(description=nesy.__doc__.splitlines()[0])
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help=f"all of it, or some of {', '.join(known)}"
    )
    parser.add_argument("--protocol", nargs="+", choices=nesy.PROTOCOLS)
    parser.add_argument("--seeds", type=_at_least(0), nargs="+", default=list(range(5)))
    parser.add_argument("--cells", type=Path, nargs="+", default=[nesy.CELLS])
    parser.add_argument("--images", type=Path, default=data.CACHE, help="where MNIST is kept")
    parser.add_argument("--out", type=Path, help="a folder for the table and the picture")
    parser.add_argument("--note", default="", help="what to know of this run, for the table")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop before")
    parser.add_argument("--no-run", action="store_true", help="only show or write the table")
    parser.add_argument(
        "--steps", type=_at_least(1), help="of each training, to check that it runs"
    )
    parser.add_argument(
        "--sizes", type=_at_least(1), nargs="+", default=nesy.SIZES, help="for growth"
    )
    parser.add_argument(
        "--held-out", action="store_true", help="test on training images, to choose settings"
    )
    parser.add_argument("--settings", type=_settings, help="other settings for a trial, as JSON")
    devices = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
    parser.add_argument("--device", choices=devices, default=devices[0])
    given = parser.parse_args()
    unknown = [name for name in given.tasks if name not in known]
    if unknown:
        parser.error(f"there is no task {unknown[0]!r}; there are {', '.join(known)}")
    if given.steps is not None and given.cells[0] == nesy.CELLS:
        parser.error("--steps needs --cells FILE: figures of a check do not belong to the others")
    parts = [part for part in nesy.everything() if not given.tasks or part[0] in given.tasks]
    if given.protocol:
        parts = [(name, p) for p in given.protocol for name in given.tasks or all_tasks()]
    left = []
    try:
        if not given.no_run:
            with ProgressBar() as bar:
                left = nesy.run(
                    parts, given.seeds, given.cells, images=given.images, device=given.device,
                    sizes=given.sizes, most_steps=given.steps, progress=bar,
                    minutes=given.minutes, held_out=given.held_out, settings=given.settings,
                )  # fmt: skip
    except KeyboardInterrupt:
        return nesy.interrupted(given.cells[0])
    except (OSError, subprocess.CalledProcessError) as error:
        print(
            f"the images of {data.PACKAGE} cannot be had here: {error}; --images FILE reads others",
            file=sys.stderr,
        )
        return 2
    except LatentGammaError as error:
        print(error, file=sys.stderr)
        return 2
    trial = given.held_out or given.settings
    cells = nesy.read(given.cells)
    rows = nesy.table(cells, "trial" if trial else "training")
    wanted = set(given.tasks)
    shown = [row for row in rows if not wanted or {row.get("task"), row["part"]} & wanted]
    if "peers" in wanted:
        shown += [cell for cell in cells if cell["part"] == "peers"]
    print(text(shown))
    if given.out:
        nesy.write(given.out, rows, nesy.about(cells, given.note))
    if left:
        print(f"Not run: {'; '.join(left)}. The same command goes on from here.", file=sys.stderr)
    return int(any(name.endswith(nesy.FAILED) for name in left))
