"""Sums of two MNIST digits: the network sees two images, and the label is their sum alone."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.nn.functional import nll_loss

import latentgamma as lg
from nesy.data import images as read_images

IMAGES, EPOCHS, BATCH = 10_000, 3, 32


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(8, 16, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def sums_layer(semantics: str) -> lg.Layer:
    rules = [f"sum({a + b}) :- left({a}), right({b})." for a in range(10) for b in range(10)]
    return lg.Layer(
        lg.parse("\n".join(rules)),
        {s: lg.Categorical([f"{s}({d})" for d in range(10)]) for s in ("left", "right")},
        lg.Categorical([f"sum({s})" for s in range(19)]),
        semantics=semantics,
        from_logits=True,
    )


def run(semantics: str, start: float, end: float, seed: int) -> dict[str, float]:
    """Train once; the accuracy of sums and of digits on the 10,000 test images."""
    torch.manual_seed(seed)
    found = {name: torch.from_numpy(array) for name, array in read_images().items()}
    images, digits = found["x"] / 255, found["y"].long()
    order = torch.randperm(len(images))[:IMAGES]
    images, digits = images[order], digits[order]
    model, layer = network(), sums_layer(semantics)
    steps = EPOCHS * (IMAGES // 2 // BATCH)
    annealing = lg.Annealing(layer, steps, start=start, end=end) if start else None
    if start == 0:
        layer.temperature = 0.0
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    began = time.perf_counter()
    for _ in range(EPOCHS):
        pairs = torch.randperm(IMAGES).reshape(-1, 2)
        for batch in pairs[: len(pairs) // BATCH * BATCH].split(BATCH):
            scores = model(images[batch.flatten()]).reshape(BATCH, 2, 10)
            logs = layer({"left": scores[:, 0], "right": scores[:, 1]}, logits=True)
            loss = nll_loss(logs, digits[batch].sum(1))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if annealing:
                annealing.step()
    seconds = time.perf_counter() - began
    images, digits = found["xt"] / 255, found["yt"].long()
    with torch.no_grad():
        scores = torch.cat([model(part) for part in images.split(1000)])
        both = scores.reshape(-1, 2, 10)
        layer.eval()
        logs = layer({"left": both[:, 0], "right": both[:, 1]}, logits=True)
    sums = digits.reshape(-1, 2).sum(1)
    return {
        "goal": float((logs.argmax(1) == sums).float().mean()),
        "facts": float((scores.argmax(1) == digits).float().mean()),
        "seconds": seconds,
    }


WAYS: dict[str, tuple[str, float, float]] = {
    "layer, T from 1 to 0.1": ("godel", 1.0, 0.1),
    "layer, T = 1": ("godel", 1.0, 1.0),
    "layer, hard": ("godel", 0.0, 0.0),
    "layer, probability": ("probability", 1.0, 1.0),
}


def runs(way: str, seeds: int) -> list[dict[str, Any]]:
    return [run(*WAYS[way], seed) for seed in range(seeds)]
