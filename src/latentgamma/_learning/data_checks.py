"""Checks that examples can be what they are said to be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentgamma._errors import DataError
from latentgamma._learning.head_task import covered, packed_words
from latentgamma._learning.implications import Implication, as_rule
from latentgamma._learning.observations import Observations
from latentgamma._learning.wording import quantity
from latentgamma._program.facts import Mask

#: Machine words that are compared at most when examples are compared with each other.
_MOST_WORDS = 2 << 28
_CHUNK = 1 << 22
#: How often a rule must have become applicable in the targets before that is taken as a sign.
_ENOUGH = 10


def refuse_contradictions(data: Observations) -> None:
    """Raise if some labels must be wrong: atoms become false, or equal states have two outcomes."""
    lost = data.states & (data.labels == 0)
    if lost.any():
        row, i = np.argwhere(lost)[0].tolist()
        number = int(data.counts[lost.any(1)].sum())
        raise DataError(
            f"rules only add atoms, but {data.atoms[i]!r} is true before and false after in row "
            f"{data.rows[row]} ({quantity(number, 'row')} have such a label); if labels may be wrong "
            f'pass noise="auto", and if atoms can become false use separate columns for what '
            f"comes after"
        )
    found = contradictions(data)
    if found:
        one, other, i = found[0]
        verb = "contradicts" if len(found) == 1 else "contradict"
        raise DataError(
            f"{quantity(len(found), 'label')} {verb} another one: rows {data.rows[one]} and "
            f"{data.rows[other]} have one state, but {data.atoms[i]!r} follows in only one of "
            f'them; if labels may be wrong pass noise="auto" or the share of wrong labels'
        )


def contradictions(data: Observations) -> list[tuple[int, int, int]]:
    """Return pairs of examples with the same state and different labels, as (row, row, atom)."""
    found = []
    _, inverse = np.unique(packed_words(data.states), axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(inverse.ravel()[order])) + 1)
    for group in groups:
        if len(group) < 2:
            continue
        labels = data.labels[group]
        differ = (labels == 1).any(0) & (labels == 0).any(0)
        for i in np.flatnonzero(differ).tolist():
            one, other = group[labels[:, i] == 1][0], group[labels[:, i] == 0][0]
            found.append((int(one), int(other), i))
    return found


def counterexamples(rule: Implication, data: Observations, *, closed: bool) -> tuple[Mask, Mask]:
    """Return the examples that a rule applies to, and those of them that it gets wrong."""
    head, body = rule
    states = data.states | (data.labels == 1) if closed else data.states
    applies = covered(states, body) & ~data.states[:, head] & (data.labels[:, head] >= 0)
    return applies, applies & (data.labels[:, head] == 0)


def refuse_wrong_rules(rules: Sequence[Implication], data: Observations, *, closed: bool) -> None:
    """Raise if an example contradicts a known rule."""
    for rule in rules:
        applies, wrong = counterexamples(rule, data, closed=closed)
        if wrong.any():
            raise DataError(
                f"the known rule {str(as_rule(rule, data.atoms))!r} is wrong in {int(wrong.sum())} "
                f"of the {quantity(int(applies.sum()), 'example')} that it applies to; drop it, or "
                f"pass refine=True"
            )


def is_refuted(rule: Implication, data: Observations, noise: float, *, closed: bool) -> bool:
    """Return whether a rule is wrong significantly more often than labels are."""
    applies, wrong = counterexamples(rule, data, closed=closed)
    n, bad = int(data.counts[applies].sum()), int(data.counts[wrong].sum())
    return bool(bad > noise * n + 3 * np.sqrt(noise * (1 - noise) * n))


def note_if_closed(rules: Sequence[Implication], data: Observations) -> list[str]:
    """Return a note if the targets of one step seem to be closures.

    After one step some rules have a body that is true and was not before. Their heads follow with
    the next step. One step has few of these heads already, closures have all, and have most even
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
    """Raise if the targets cannot be closures: facts inside a closure add nothing to it."""
    found = _open_target(data)
    if found is None:
        return
    one, other, i = found
    raise DataError(
        f"the targets are not closures: the facts of row {data.rows[one]} are all in the target "
        f"of row {data.rows[other]}, but {data.atoms[i]!r} follows only in the first; if the "
        f'targets are one step pass kind="transitions", and if labels may be wrong noise="auto" '
        f"or their share"
    )


def _open_target(data: Observations) -> tuple[int, int, int] | None:
    """Return examples j, k and an atom of target j that k's lacks, though it has j's facts.

    Small fact sets lie in most targets, so they are tried first, within the limit on words.
    """
    closed = data.states | (data.labels == 1)
    facts, lacking = packed_words(data.states), packed_words(~closed)  # (N, W)
    gained, refused = packed_words(data.labels == 1), packed_words(data.labels == 0)
    N, W = facts.shape
    order = np.argsort(data.states.sum(1), kind="stable")[: max(1, _MOST_WORDS // (N * W))]
    rows = max(1, _CHUNK // (N * W))
    for start in range(0, len(order), rows):
        some = order[start : start + rows]
        inside = np.ones((len(some), N), np.bool_)
        differ = np.zeros((len(some), N), np.bool_)
        for w in range(W):
            inside &= (facts[some, w, None] & lacking[None, :, w]) == 0
            differ |= (gained[some, w, None] & refused[None, :, w]) != 0
        differ &= inside
        if differ.any():
            j, k = (int(x) for x in np.argwhere(differ)[0])
            j = int(some[j])
            atoms = np.flatnonzero((data.labels[j] == 1) & (data.labels[k] == 0))
            return j, k, int(atoms[0])
    return None
