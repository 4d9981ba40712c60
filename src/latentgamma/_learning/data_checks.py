"""Hints that observations are of another kind than was said: one step, or everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._errors import DataError
from latentgamma._learning.exact_search import covered
from latentgamma._learning.from_closures import Implication
from latentgamma._learning.observations import Observations

#: Machine words that may be compared when examples are held against each other.
_MOST_WORDS = 2 << 28
_CHUNK = 1 << 22
#: Rules that must have come due in the targets before they are taken as a hint.
_ENOUGH = 10


def looks_closed(rules: Sequence[Implication], data: Observations) -> list[str]:
    """A note if the targets of one step seem to be everything that follows.

    After one step some rules have a body that is true and was not before. Their heads are due
    with the next step. One step has few of them already, closures have all, and have most even
    where the rules are not quite right.
    """
    after = data.states | (data.labels == 1)
    due = early = 0
    for head, body in rules:
        rows = covered(after, body) & ~covered(data.states, body) & ~data.states[:, head]
        due += int(data.counts[rows & (data.labels[:, head] >= 0)].sum())
        early += int(data.counts[rows & (data.labels[:, head] == 1)].sum())
    if due >= _ENOUGH and 2 * early >= due:
        return [
            f"the targets look like closures: {early} of {due} times that one step made a rule's "
            f'body true, its head was there already; if they are, pass kind="closures"'
        ]
    return []


def refuse_open_targets(data: Observations) -> None:
    """Refuse closures that no rules could have: facts inside a closure bring nothing new to it."""
    clash = _clash(data)
    if clash is None:
        return
    one, other, i = clash
    raise DataError(
        f"the targets are not closures: the facts of example {one} are all in the target of "
        f"example {other}, but {data.atoms[i]!r} follows only in the first; if the targets are one "
        f'step pass kind="transitions", and if labels may be wrong noise="auto" or their share'
    )


def _clash(data: Observations) -> tuple[int, int, int] | None:
    """Examples j, k and an atom of target j that k's lacks, though it has j's facts; or None.

    Small fact sets lie in most targets, so they are tried first, as far as the words reach.
    """
    closed = data.states | (data.labels == 1)
    facts, lacking = _words(data.states), _words(~closed)  # (N, W)
    gained, refused = _words(data.labels == 1), _words(data.labels == 0)
    N, W = facts.shape
    order = np.argsort(data.states.sum(1), kind="stable")[: max(1, _MOST_WORDS // (N * W))]
    rows = max(1, _CHUNK // (N * W))
    for start in range(0, len(order), rows):
        some = order[start : start + rows]
        inside = np.ones((len(some), N), np.bool_)
        clash = np.zeros((len(some), N), np.bool_)
        for w in range(W):
            inside &= (facts[some, w, None] & lacking[None, :, w]) == 0
            clash |= (gained[some, w, None] & refused[None, :, w]) != 0
        clash &= inside
        if clash.any():
            j, k = (int(x) for x in np.argwhere(clash)[0])
            j = int(some[j])
            atoms = np.flatnonzero((data.labels[j] == 1) & (data.labels[k] == 0))
            return j, k, int(atoms[0])
    return None


def _words(mask: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Rows of bits as machine words. (N, W)."""
    packed = np.packbits(mask, axis=1)
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)
