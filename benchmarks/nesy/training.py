"""Training: all seeds of a task at once, one step of all of them in one CUDA graph."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import latentgamma as lg
from nesy.tasks import Examples, Settings, Task

MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST


def lenet(values: int) -> nn.Sequential:
    """Return the network of the papers: LeNet, without dropout or normalisation."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, values),
    )  # fmt: skip


def distort(x: Tensor) -> Tensor:
    """Return the images shifted by up to 3 pixels, turned by up to 10°, scaled by up to 10%."""
    n = len(x)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, device=x.device) - 0.5

    angle, scale = 0.35 * draw(n), 1 + 0.2 * draw(n)
    turn = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), 1).view(n, 2, 2)
    matrix = torch.cat((turn * scale[:, None, None], 0.25 * draw(n, 2, 1)), 2)
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def train(
    task: Task,
    seeds: Sequence[int],
    found: dict[str, np.ndarray],
    *,
    protocol: str = "papers",
    device: str = "cpu",
    settings: Settings | None = None,
    most_steps: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Train the task with every seed and return one row of figures for each.

    Args:
        task: The task.
        seeds: Of the networks, the examples and their order.
        found: The images and digits to train and to test with.
        protocol: "papers" for plain images, "ours" for distorted ones.
        device: "cpu" or "cuda".
        settings: Other ones than the task's.
        most_steps: Stop after this many steps, to check that it runs.
        progress: Called with the name, the steps done and all steps.
    """
    chosen = settings or task.settings
    cuda = device == "cuda"
    gc.collect()  # the graphs of tasks before
    before = torch.cuda.memory_allocated() if cuda else 0
    start = time.perf_counter()
    layer = task.layer.to(device).train()
    build = time.perf_counter() - start
    rngs = [np.random.default_rng(seed) for seed in seeds]
    made = [task.examples(found["y"], training=True, rng=rng) for rng in rngs]
    tested = [task.examples(found["yt"], training=False, rng=rng) for rng in rngs]
    own = made[0].pictures is not None
    pools = [
        torch.from_numpy(some.pictures if own else found["x"]).to(device)
        for some in (made if own else made[:1])
    ]
    hold = task.validation
    images = torch.from_numpy(np.stack([some.images[hold:] for some in made])).to(device)
    labels = torch.stack([task.label(torch.from_numpy(some.truth[hold:])) for some in made])
    labels = labels.to(device)  # (S, count, L)
    S, count, n = images.shape
    nets = []
    for seed in seeds:
        torch.manual_seed(seed)
        nets.append(lenet(task.values).to(device))
    parameters = [parameter for net in nets for parameter in net.parameters()]
    averaged = [parameter.detach().clone() for parameter in parameters]
    rate = torch.tensor(chosen.rate, device=device)
    optimizer = torch.optim.AdamW(
        parameters, lr=rate, weight_decay=chosen.decay, capturable=cuda, fused=cuda
    )
    batch = min(chosen.batch, count)
    steps = count // batch
    total = chosen.epochs * steps
    now_images = images[:, :batch].clone()
    now_labels = labels[:, :batch].clone()
    torch.manual_seed(seeds[0])

    streams = [torch.cuda.Stream() if cuda and task.graph else None for _ in nets]

    def scores_of(images: Tensor, distorted: bool) -> Tensor:
        """Return the scores (S, B, n, values) of pictures (S, B, n), the seeds side by side."""
        parts = []
        main = torch.cuda.current_stream() if cuda else None
        for k, net in enumerate(nets):
            if streams[k] is not None:
                streams[k].wait_stream(main)
            with torch.cuda.stream(streams[k]):
                x = pools[k if own else 0][images[k].flatten()].float() / 255
                x = ((distort(x) if distorted else x) - MEAN) / DEVIATION
                parts.append(net(x).view(*images.shape[1:], task.values))
        for stream in streams:
            if stream is not None:
                main.wait_stream(stream)
        return torch.stack(parts)

    def step() -> Tensor:
        scores = scores_of(now_images, protocol == "ours")
        loss = S * task.loss(scores.flatten(0, 1), now_labels.flatten(0, 1))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_(averaged, [p.detach() for p in parameters], 1 - chosen.average)
        return loss.detach() / S

    run = step
    if cuda and task.graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        rate.fill_(0.0)
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

    done = total if most_steps is None else min(total, most_steps)
    annealing = lg.Annealing(layer, max(done, 1), start=1.0, end=0.1) if task.anneal else None
    generator = torch.Generator(device).manual_seed(seeds[0])
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    begin = time.perf_counter()
    losses = []
    for k in range(done):
        if k % steps == 0:
            keys = torch.rand(S, count, generator=generator, device=device)
            order = keys.argsort(1)[:, : steps * batch]
        part = order[:, k % steps * batch : (k % steps + 1) * batch, None]
        torch.gather(images, 1, part.expand(-1, -1, n), out=now_images)
        torch.gather(labels, 1, part.expand(-1, -1, labels.shape[2]), out=now_labels)
        rate.fill_(
            chosen.rate
            * min(1.0, (k + 1) / chosen.warm_up)
            * (0.5 + 0.5 * math.cos(math.pi * k / total))
        )
        value = run()
        if annealing:
            annealing.step()
        if k % 100 == 0 or k == done - 1:
            losses.append(float(value))
            if progress:
                progress(task.name, k + 1, done)
    seconds = time.perf_counter() - begin
    memory = torch.cuda.max_memory_allocated() - before if cuda else None
    with torch.no_grad():
        for parameter, mean in zip(parameters, averaged, strict=True):
            parameter.copy_(mean)
    layer.eval()
    rows = []
    for k, seed in enumerate(seeds):
        limit = None
        if hold:
            scores = _read(task, nets[k], pools[k if own else 0], made[k], slice(0, hold), device)
            label = task.label(torch.from_numpy(made[k].truth[:hold])).to(device)
            limit = task.threshold(scores, label)  # type: ignore[attr-defined]
        pool = torch.from_numpy(tested[k].pictures if own else found["xt"]).to(device)
        scores = _read(task, nets[k], pool, tested[k], slice(None), device)
        label = task.label(torch.from_numpy(tested[k].truth)).to(device)
        with torch.no_grad():
            parts = list(zip(scores.split(250), label.split(250), strict=True))
            right, plain = (
                torch.cat([task.right(a, b, at) for a, b in parts]) for at in (limit, None)
            )
        rows.append(
            {
                "task": task.name,
                "protocol": protocol,
                "seed": seed,
                "labels_right": right.float().mean().item(),
                "labels_right_by_argmax": plain.float().mean().item(),
                "concepts_right": task.concepts(scores.argmax(-1).cpu().numpy(), tested[k].truth),
                "examples": count,
                "tested": len(label),
                "epochs": chosen.epochs,
                "batch": batch,
                "steps": done,
                "rate": chosen.rate,
                "decay": chosen.decay,
                "seconds_all_seeds": seconds,
                "build_s": build,
                "peak_mb": memory / 1e6 if memory else None,
                "parameters": sum(p.numel() for p in nets[k].parameters()),
                "loss": losses[-1] if losses else None,
                "seeds_together": len(seeds),
                "machine": torch.cuda.get_device_name() if cuda else "cpu",
                "torch": torch.__version__,
            }
        )
    return rows


def _read(
    task: Task, net: nn.Module, pool: Tensor, some: Examples, which: slice, device: str
) -> Tensor:
    """Return the scores of some examples, (B, n, values): each picture is read once."""
    places = torch.from_numpy(some.images[which]).to(device)
    with torch.no_grad():
        every = torch.cat(
            [net((part.float() / 255 - MEAN) / DEVIATION) for part in pool.split(5000)]
        )
    return every[places]
