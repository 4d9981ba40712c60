"""Training: the networks of all seeds at once, one step of all of them in one CUDA graph."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import latentgamma as lg
from cuda_graph import captured
from nesy.tasks import Examples, Settings, Task

MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST
#: Up to this many images of a seed, the networks of all seeds are one network with larger weights.
#: With more, each in a stream of its own is quicker.
MOST_TOGETHER = 200


def lenet(values: int) -> nn.Sequential:
    """Return the network of the papers: LeNet, without dropout or normalisation."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, values),
    )  # fmt: skip


class Networks:
    """The networks of several seeds, with the weights of all of them in one tensor each."""

    def __init__(self, nets: Sequence[nn.Module]) -> None:
        self.weights, _ = torch.func.stack_module_state(nets)  # type: ignore[arg-type]
        self._net = nets[0]
        cuda = next(nets[0].parameters()).is_cuda
        self._streams = [torch.cuda.Stream() if cuda else None for _ in nets]

    def _scores(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(self._net, weights, (x,))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the scores (S, B, values) of images (S, B, 1, 28, 28), a network for each S."""
        if x.shape[1] <= MOST_TOGETHER:
            return torch.vmap(self._scores)(self.weights, x)
        each = zip(*(weight.unbind() for weight in self.weights.values()), strict=True)
        main = torch.cuda.current_stream() if x.is_cuda else None
        parts = []
        for weights, part, stream in zip(each, x, self._streams, strict=True):
            if main is not None:
                stream.wait_stream(main)
            with torch.cuda.stream(stream):
                parts.append(self._scores(dict(zip(self.weights, weights, strict=True)), part))
        if main is not None:
            for stream in self._streams:
                main.wait_stream(stream)
        return torch.stack(parts)


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

    The images, their order and the weights that a seed begins with do not depend on the other seeds.

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
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    clock = time.perf_counter if cuda else time.process_time  # other processes may share the CPU
    began = clock()
    rngs = [np.random.default_rng(seed) for seed in seeds]
    made = [task.examples(found["y"], training=True, rng=rng) for rng in rngs]
    tested = [task.examples(found["yt"], training=False, rng=rng) for rng in rngs]
    own = made[0].pictures is not None
    pools = [
        torch.from_numpy(some.pictures if own else found["x"]).to(device)
        for some in (made if own else made[:1])
    ]
    nets = []
    for seed in seeds:
        torch.manual_seed(seed)
        nets.append(lenet(task.values).to(device))
    start = clock()
    arguments = {"protocol": protocol, "most_steps": most_steps, "progress": progress}
    if chosen.messages:
        for net, seed, some in zip(nets, seeds, made, strict=True):
            through_messages(task, net, seed, some, pools[0], chosen, **arguments)
    else:
        through_rules(task, nets, seeds, made, pools, chosen, **arguments)
    seconds = clock() - start
    if cuda:
        memory = torch.cuda.max_memory_allocated() - before
    else:
        memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = []
    for k, seed in enumerate(seeds):
        limit = None
        if hold := task.validation:
            scores = _read(nets[k], pools[k if own else 0], made[k], slice(0, hold))
            label = task.label(torch.from_numpy(made[k].truth[:hold])).to(device)
            limit = task.threshold(scores, label)  # type: ignore[attr-defined]
        pool = torch.from_numpy(tested[k].pictures if own else found["xt"]).to(device)
        scores = _read(nets[k], pool, tested[k], slice(None))
        label = task.label(torch.from_numpy(tested[k].truth)).to(device)
        with torch.no_grad():
            parts = list(zip(scores.split(250), label.split(250), strict=True))
            right, plain = (
                torch.cat([task.right(a, b, at) for a, b in parts]) for at in (limit, None)
            )
            loss = None if chosen.messages else task.loss(*parts[0]).item()
        read = scores.argmax(-1).cpu().numpy()
        rows.append(
            {
                "task": task.name,
                "protocol": protocol,
                "seed": seed,
                "labels_right": right.float().mean().item(),
                "labels_right_by_argmax": plain.float().mean().item(),
                "concepts_right": task.concepts(read, tested[k].truth),
                "read_as": read_as(read, tested[k].truth),
                "loss": loss,
                "examples": len(made[k].images) - task.validation,
                "tested": len(label),
                "epochs": chosen.epochs,
                "batch": chosen.batch,
                "rate": chosen.rate,
                "decay": chosen.decay,
                "messages": chosen.messages,
                "training_s": seconds,
                "peak_mb": memory / 1e6,
                "parameters": sum(p.numel() for p in nets[k].parameters()),
                "seeds_together": len(seeds),
                "machine": torch.cuda.get_device_name() if cuda else "CPU",
                "torch": torch.__version__,
            }
        )
    whole = clock() - began
    return [{**row, "seconds": whole} for row in rows]


def through_rules(
    task: Task,
    nets: Sequence[nn.Module],
    seeds: Sequence[int],
    made: Sequence[Examples],
    pools: Sequence[Tensor],
    chosen: Settings,
    *,
    protocol: str,
    most_steps: int | None,
    progress: Callable[[str, int, int], None] | None,
) -> None:
    """Train the networks of all seeds at once, in place, through the rules of the task."""
    device = pools[0].device
    cuda = device.type == "cuda"
    layer = task.layer.to(device).train()
    hold = task.validation
    images = torch.from_numpy(np.stack([some.images[hold:] for some in made])).to(device)
    labels = torch.stack([task.label(torch.from_numpy(some.truth[hold:])) for some in made])
    labels = labels.to(device)  # (S, count, L)
    S, count, n = images.shape
    networks = Networks(nets)
    parameters = list(networks.weights.values())
    averaged = [parameter.detach().clone() for parameter in parameters]
    rate = torch.tensor(0.0, device=device)
    optimizer = torch.optim.AdamW(
        parameters, lr=rate, weight_decay=chosen.decay, capturable=cuda, fused=cuda
    )
    batch = min(chosen.batch, count)
    steps = count // batch
    total = chosen.epochs * steps
    now_images = images[:, :batch].clone()
    now_labels = labels[:, :batch].clone()
    torch.manual_seed(seeds[0])  # of what distorts images

    def step() -> Tensor:
        places = now_images.flatten(1)
        if len(pools) == 1:
            x = pools[0][places].float() / 255
        else:
            shown = [pool[part] for pool, part in zip(pools, places, strict=True)]
            x = torch.stack(shown).float() / 255
        if protocol == "ours":
            x = distort(x.flatten(0, 1)).view(x.shape)
        scores = networks((x - MEAN) / DEVIATION).view(S * batch, n, task.values)
        loss = S * task.loss(scores, now_labels.flatten(0, 1))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        torch._foreach_lerp_(averaged, [p.detach() for p in parameters], 1 - chosen.average)
        return loss.detach() / S

    run = step
    if cuda and task.graph:
        run = captured(step)  # steps at a rate of 0
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()

    done = total if most_steps is None else min(total, most_steps)
    annealing = lg.Annealing(layer, max(done, 1), start=1.0, end=0.1) if task.anneal else None
    generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
    for k in range(done):
        if k % steps == 0:
            order = torch.stack(
                [torch.randperm(count, generator=g, device=device) for g in generators]
            )
        part = order[:, k % steps * batch : (k % steps + 1) * batch, None]
        torch.gather(images, 1, part.expand(-1, -1, n), out=now_images)
        torch.gather(labels, 1, part.expand(-1, -1, labels.shape[2]), out=now_labels)
        rate.fill_(chosen.rate_at(k, total))
        run()
        if annealing:
            annealing.step()
        if progress and (k % 100 == 0 or k == done - 1):
            progress(task.name, k + 1, done)
    for k, net in enumerate(nets):
        names = zip(networks.weights, averaged, strict=True)
        net.load_state_dict({name: weight[k] for name, weight in names})
    layer.eval()


def through_messages(
    task: Task,
    net: nn.Module,
    seed: int,
    some: Examples,
    pool: Tensor,
    chosen: Settings,
    *,
    protocol: str,
    most_steps: int | None,
    progress: Callable[[str, int, int], None] | None,
) -> None:
    """Train the network of one seed, in place, with the messages that sums send to their images.

    Each image gets the product of the messages of its sums, computed twice an epoch from what the
    network last said of each image. The loss of an image is −log Σ_d P(d) message(d).
    """
    groups = torch.from_numpy(some.images).to(pool.device)
    sums = task.label(torch.from_numpy(some.truth))[:, 0].to(pool.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=chosen.rate, weight_decay=chosen.decay)
    steps = -(-len(pool) // chosen.batch)
    total = chosen.epochs * steps
    done = total if most_steps is None else min(total, most_steps)
    said = torch.zeros(len(pool), task.values, device=pool.device)
    net.to(memory_format=torch.channels_last)  # a fifth quicker on CPUs
    averaged = [parameter.detach().clone() for parameter in net.parameters()]
    torch.manual_seed(seed)
    for k in range(done):
        if k % steps == 0:
            order = torch.randperm(len(pool), device=pool.device).split(chosen.batch)
        if k % steps in (0, steps // 2):
            log_message = messages(said.double().softmax(1), groups, sums).float()
        part = order[k % steps]
        x = pool[part].float() / 255
        if protocol == "ours":
            x = distort(x)
        log_p = net((x - MEAN) / DEVIATION).log_softmax(1)
        said[part] = log_p.detach()
        loss = -(log_p + log_message[part]).logsumexp(1).mean()
        for group in optimizer.param_groups:
            group["lr"] = chosen.rate_at(k, total)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = [parameter.detach() for parameter in net.parameters()]
        torch._foreach_lerp_(averaged, now, 1 - chosen.average)
        if progress and (k % 100 == 0 or k == done - 1):
            progress(task.name, k + 1, done)
    torch._foreach_copy_([parameter.detach() for parameter in net.parameters()], averaged)


def messages(probabilities: Tensor, groups: Tensor, sums: Tensor) -> Tensor:
    """Return the log of what all sums of an image say about its digit, up to a constant.

    The message of one sum is p(sum | digit), the other digits drawn from their probabilities. The
    sum of the others is nearly normal, so the message is a normal density of the digit: its mean is
    the sum minus what is expected of the others, which is the digit's own expectation plus the
    residual of the sum, and its variance is that of the residuals, which covers what the network
    gets wrong as well. The product of normal densities is one with the mean of their means.

    Args:
        probabilities: Of the values of each image, (m, values).
        groups: The images of each sum, (count, n).
        sums: (count,).

    Returns:
        (m, values); zeros for an image that is in no sum.
    """
    m, values = probabilities.shape
    n = groups.shape[1]
    digits = torch.arange(values, device=sums.device, dtype=probabilities.dtype)
    expected = probabilities @ digits
    residual = sums - expected[groups].sum(1)
    common = residual.mean()  # an error that all images share
    each = (residual - common)[:, None].expand(-1, n).flatten()
    times = torch.bincount(groups.flatten(), minlength=m)
    total = torch.zeros_like(expected).index_add_(0, groups.flatten(), each)
    mean = expected + common / n + total / times.clamp(min=1)
    precision = times / residual.var()
    return -0.5 * precision[:, None] * (mean[:, None] - digits) ** 2


def read_as(read: np.ndarray, truth: np.ndarray) -> list[int]:
    """Return what most images of each value are read as."""
    return [int(np.bincount(read[truth == value]).argmax()) for value in np.unique(truth)]


def _read(net: nn.Module, pool: Tensor, some: Examples, which: slice) -> Tensor:
    """Return the scores of some examples, (B, n, values): each picture is read once."""
    places = torch.from_numpy(some.images[which]).to(pool.device)
    with torch.no_grad():
        parts = [net((part.float() / 255 - MEAN) / DEVIATION) for part in pool.split(1000)]
    return torch.cat(parts)[places]
