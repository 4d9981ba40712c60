"""Average precision of coherent scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from latentgamma._arguments import one_of
from latentgamma.errors import DataError


def average_precision(
    y: Any,
    scores: Any,
    *,
    average: Literal["micro", "macro"] = "micro",
    leave_out: Sequence[int] = (),
) -> float:
    """Return the area under the precision-recall curve, as a sum over the distinct scores.

    Equal scores are one point of the curve, as in scikit-learn. Scores that are not labels come
    from a layer in `eval()`: `layer(logits)`.

    >>> average_precision([[1, 0], [0, 1]], [[0.9, 0.2], [0.4, 0.8]])
    1.0

    Args:
        y: 0 and 1, (n, labels): an array or a tensor.
        scores: numbers of the same shape; only their order matters.
        average: "micro" ranks all pairs of an example and a label together, which is AU(PRC) of
            the papers on hierarchies; "macro" is the mean over the labels that occur.
        leave_out: columns that do not count, such as the roots of a hierarchy.

    Raises:
        DataError: if the shapes differ, a score is NaN, or no label is true.
    """
    one_of("average", average, ("micro", "macro"))
    true, ranked = _array(y) > 0.5, _array(scores)
    if true.shape != ranked.shape or true.ndim not in (1, 2):
        raise DataError(f"y and scores have one shape, not {true.shape} and {ranked.shape}")
    if np.isnan(ranked).any():
        raise DataError("scores have a NaN")
    if true.ndim == 2 and len(leave_out):
        kept = np.setdiff1d(np.arange(true.shape[1]), np.asarray(leave_out, np.int64))
        true, ranked = true[:, kept], ranked[:, kept]
    if not true.any():
        raise DataError("no label is true, so there is no precision at any recall")
    if average == "micro" or true.ndim == 1:
        return _one(true.ravel(), ranked.ravel())
    each = [_one(true[:, i], ranked[:, i]) for i in np.flatnonzero(true.any(0))]
    return float(np.mean(each))


def _one(true: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> float:
    order = np.argsort(scores, kind="stable")[::-1]
    ranked = scores[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # of each distinct score
    found = np.cumsum(true[order])[last]
    precision = found / (last + 1)
    recall = found / found[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def _array(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    if hasattr(values, "toarray"):
        values = values.toarray()
    return np.asarray(values, np.float64)
