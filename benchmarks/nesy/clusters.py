"""What sums say without rules: clusters of images, each with the value that fits the sums best."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from nesy import data

#: Digits of a sum and the number of sums: each image once, or 5,000 sums as in the papers.
SUMS = ((64, None), (256, None), (1024, None), (64, 5000), (256, 5000), (1024, 5000))
CLUSTERS = (10, 30, 100, 300)
#: Rounds of a start, and the clusters of each.
ROUNDS, MOST = 6, CLUSTERS[-1]
_COMPONENTS = 40
_BATCH = 128
#: The share of images whose cluster may have the wrong value: any digit is as likely for them.
_WRONG = 0.15


def rows(found: dict[str, np.ndarray], seed: int = 0) -> list[dict[str, Any]]:
    """Return for each number of sums the test digits that clusters with fitted values read right."""
    seen, unseen = components(found["x"], found["xt"])
    y, yt = (found[name].astype(np.int64) for name in ("y", "yt"))
    table: list[dict[str, Any]] = []
    rng = np.random.default_rng(seed)
    for n, count in SUMS:
        groups = data.disjoint(y, n, rng) if count is None else data.repeated(y, n, count, rng)
        table.append({"part": "sums alone", "digits": n, "sums": len(groups), "groups": groups})
    for k in CLUSTERS:
        means = _means(seen, k, seed)
        cluster, test_cluster = means.labels_, means.predict(unseen)
        for row in table:
            value = values(cluster, row["groups"], y[row["groups"]].sum(1))
            read = value.round()[test_cluster]
            row[f"concepts, {k} clusters"] = 100 * float((read == yt).mean())
    return [{name: row[name] for name in row if name != "groups"} for row in table]


def components(x: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Return images as their 40 principal components."""
    flat = [some.reshape(len(some), -1) / np.float32(255) for some in (x, *others)]
    mean = flat[0].mean(0)
    axes = np.linalg.eigh(np.cov((flat[0][::10] - mean).T))[1][:, -_COMPONENTS:]
    return [(some - mean) @ axes.astype(np.float32) for some in flat]


def _means(points: np.ndarray, k: int, seed: int) -> Any:
    from sklearn.cluster import MiniBatchKMeans

    found = MiniBatchKMeans(k, random_state=seed, batch_size=4096, max_iter=20, n_init=1)
    return found.fit(points)


def values(cluster: np.ndarray, groups: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return the value of each cluster, from 0 to 9, that fits the sums best: a ridge regression."""
    k = int(cluster.max()) + 1
    counts = np.stack([np.bincount(cluster[one], minlength=k) for one in groups]).astype(float)
    expected = counts.mean(0)
    counts -= expected
    penalty = 0.5 * np.diag(expected + 1e-9)  # half the count of a cluster in a sum
    residual = sums - sums.mean()
    value = np.linalg.solve(counts.T @ counts + penalty, counts.T @ residual)
    return np.asarray((sums.mean() / groups.shape[1] + value).clip(0, 9))


def start(
    net: nn.Sequential, x: torch.Tensor, groups: np.ndarray, sums: np.ndarray, seed: int
) -> None:
    """Train a network on the values of clusters, again and again on clusters of what it computes.

    It sees the images and the sums alone. In the first round the clusters are those of principal
    components; later those of the last hidden layer, in which the network has learned what differs.

    Args:
        net: The network, changed in place.
        x: All images, (m, 1, 28, 28), normalised as the network reads them.
        groups: The images of each sum.
        sums: The sums.
        seed: Of the clusters; the order of the images is torch's.
    """
    features = components(x.cpu().numpy())[0]
    for _ in range(ROUNDS):
        cluster = _means(features, MOST, seed).labels_
        fitted = values(cluster, groups, sums)[cluster]
        # Clusters of several digits have values between them; the sums say how far digits spread.
        wider = (sums.var() / groups.shape[1] / fitted.var()) ** 0.5
        fitted = (fitted.mean() + wider * (fitted - fitted.mean())).clip(0, 9)
        value = torch.from_numpy(fitted).to(x)
        low = value.floor().clamp(max=8)
        above = (value - low)[:, None]  # a value of 3.2 is 3 with a weight of 0.8, and 4
        low = low.long()[:, None]
        target = x.new_zeros(len(x), 10).scatter_(1, low, 1 - above).scatter_(1, low + 1, above)
        target = (1 - _WRONG) * target + _WRONG / 10
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for part in torch.randperm(len(x), device=x.device).split(_BATCH):
            loss = F.cross_entropy(net(x[part]), target[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            features = torch.cat([net[:-1](part) for part in x.split(500)]).cpu().numpy()
