"""The command line of `nesy`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

import nesy
from latentgamma.learning import ProgressBar
from nesy import data
from nesy.tasks import all_tasks
from run import table as text

#: What is measured besides the training of tasks.
OTHERS = ("growth", "peers", "limits")


def main() -> int:
    parser = argparse.ArgumentParser(description=nesy.__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join([*all_tasks(), *OTHERS]))
    parser.add_argument("--protocol", nargs="+", choices=nesy.PROTOCOLS, default=["papers"])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--cells", type=Path, nargs="+", default=[nesy.CELLS])
    parser.add_argument("--images", type=Path, default=data.CACHE, help="where MNIST is kept")
    parser.add_argument(
        "--steps", type=int, help="stop after this many steps, to check that it runs"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=nesy.SIZES, help="for growth")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument(
        "--held-out", action="store_true", help="test on training images, to choose settings"
    )
    parser.add_argument("--settings", type=json.loads, help="other settings for a trial, as JSON")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    unknown = [name for name in given.tasks if name not in {*all_tasks(), *OTHERS}]
    if unknown:
        parser.error(
            f"there is no task {unknown[0]!r}; there are {', '.join([*all_tasks(), *OTHERS])}"
        )
    names = [name for name in given.tasks or all_tasks() if name not in OTHERS]
    try:
        nesy.run(
            names, given.protocol, given.seeds, given.cells, images=given.images,
            device=given.device, most_steps=given.steps, progress=ProgressBar(),
            seconds=given.seconds, held_out=given.held_out, settings=given.settings,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the images of {data.PACKAGE} cannot be had here: {error}", file=sys.stderr)
        return 2
    if "growth" in given.tasks:
        nesy.growth(given.sizes, given.cells, device=given.device)
    if "peers" in given.tasks:
        nesy.beside_peers(given.cells)
    if "limits" in given.tasks:
        nesy.sums_alone(given.cells, images=given.images)
    wanted = {"sums alone" if name == "limits" else name for name in given.tasks or all_tasks()}
    cells = [c for c in nesy.read(given.cells) if {c.get("task"), c["part"]} & wanted]
    print(text(nesy.table(cells, "trial" if given.held_out or given.settings else "training")))
    return 0
