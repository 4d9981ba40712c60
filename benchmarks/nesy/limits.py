"""What sums say without a network: clusters of images, each with the value that fits the sums best."""

from __future__ import annotations

from typing import Any

import numpy as np

from nesy import data

#: Digits of a sum and the number of sums: each image once, or 5,000 sums as in the papers.
SUMS = ((64, None), (256, None), (1024, None), (64, 5000), (256, 5000), (1024, 5000))
CLUSTERS = (10, 30, 100, 300)
_COMPONENTS = 40
_MEAN = 4.5  # of a digit


def rows(found: dict[str, np.ndarray], seed: int = 0) -> list[dict[str, Any]]:
    """Return for each number of sums the test digits that clusters with fitted values read right.

    Clusters are found by k-means on 40 principal components, without labels; their values are the
    ridge regression of the sums on the numbers of images in each cluster, and are rounded.
    """
    from sklearn.cluster import MiniBatchKMeans

    x, xt = (found[name].reshape(len(found[name]), -1) / np.float32(255) for name in ("x", "xt"))
    y, yt = (found[name].astype(np.int64) for name in ("y", "yt"))
    mean = x.mean(0)
    axes = np.linalg.eigh(np.cov((x[::10] - mean).T))[1][:, -_COMPONENTS:].astype(np.float32)
    seen, unseen = (x - mean) @ axes, (xt - mean) @ axes
    table: list[dict[str, Any]] = []
    rng = np.random.default_rng(seed)
    for n, count in SUMS:
        groups = data.disjoint(y, n, rng) if count is None else data.repeated(y, n, count, rng)
        table.append({"part": "sums alone", "digits": n, "sums": len(groups), "groups": groups})
    for k in CLUSTERS:
        means = MiniBatchKMeans(k, random_state=seed, batch_size=4096, max_iter=20, n_init=1)
        cluster, test_cluster = means.fit_predict(seen), means.predict(unseen)
        for row in table:
            groups, n = row["groups"], row["digits"]
            counts = np.stack([np.bincount(cluster[one], minlength=k) for one in groups])
            residual = y[groups].sum(1) - _MEAN * n
            penalty = 0.5 * n / k * np.eye(k)  # half the count of a cluster in a sum
            value = _MEAN + np.linalg.solve(counts.T @ counts + penalty, counts.T @ residual)
            read = value.round().clip(0, 9).astype(np.int64)[test_cluster]
            row[f"concepts, {k} clusters"] = 100 * float((read == yt).mean())
    return [{name: row[name] for name in row if name != "groups"} for row in table]
