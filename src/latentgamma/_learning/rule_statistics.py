"""What the data say about rules: support, confidence, accuracy, and what stays open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._learning.data_checks import counterexamples
from latentgamma._learning.head_task import Body, covered
from latentgamma._learning.implications import Implication, as_rule
from latentgamma._learning.observations import Observations
from latentgamma._learning.wording import listing, quantity
from latentgamma._logic.closures import closures
from latentgamma._program.facts import Mask
from latentgamma._program.names import quote
from latentgamma._program.program import Program
from latentgamma._program.rules import Rule

#: A rule with fewer supporting examples gets a note.
_FEW = 3
#: Alternatives that are kept for one rule; the last one is always kept.
_MOST_ALTERNATIVES = 10


class Evidence(NamedTuple):
    """What the data say about one rule.

    >>> import latentgamma as lg
    >>> result = lg.fit([[1, 0], [0, 0]], [[1, 1], [0, 0]], atoms=["penguin", "bird"], holdout=0)
    >>> found = result.evidence[0]
    >>> str(found.rule), found.support, found.confidence
    ('bird :- penguin.', 1, 1.0)

    Attributes:
        rule: the rule.
        support: the number of examples in which the body was true and the head was not given.
        confidence: the share of those in which the head followed.
        alternatives: rules that could replace it. Without noise this is empty exactly where the
            examples decide; otherwise it has the other shortest rules and, last, the longest one,
            and every rule between a shortest one and the longest fits as well. With noise these
            are the rules that are almost as likely.
    """

    rule: Rule
    support: int
    confidence: float
    alternatives: tuple[Rule, ...]


def predict(program: Program, states: Mask, *, closed: bool) -> Mask:
    """Return what the rules derive from states, in one step or all of them. (N, M)."""
    if closed:
        return closures(program, states)
    after = states.copy()
    for j in range(program.R):
        after[:, program.heads_of(j)] |= covered(states, program.body_of(j).tolist())[:, None]
    return after


def accuracy(program: Program, data: Observations | None, *, closed: bool) -> float | None:
    """Return the share of examples of which every labelled atom is right."""
    if data is None:
        return None
    right = (predict(program, data.states, closed=closed) == (data.labels == 1)) | (data.labels < 0)
    return float(np.average(right.all(1), weights=data.counts))


def explained(program: Program, data: Observations, *, closed: bool, every_label: bool) -> float:
    """Return the share that the rules explain, as learning curves have it.

    That is the share of the labels that became true, or of the examples whose closure lacks
    nothing; or, where any label can be wrong, of all labels.
    """
    after, true = predict(program, data.states, closed=closed), data.labels == 1
    if every_label:
        known = data.labels >= 0
        return float((after == true)[known].mean()) if known.any() else 1.0
    if closed:
        return float((~(true & ~after).any(1)).mean())
    derived = true & ~data.states
    total = int((data.counts @ derived).sum())
    return float((data.counts @ (derived & after)).sum() / total) if total else 1.0


def best_accuracy(data: Observations, noise: float) -> float:
    """Return the share of examples that the true rules get right where labels are wrong."""
    return float(np.average((1 - noise) ** (data.labels >= 0).sum(1), weights=data.counts))


def evidence(
    rules: Sequence[Implication],
    alternatives: Mapping[Implication, Sequence[Body]],
    data: Observations,
    *,
    closed: bool,
) -> tuple[Evidence, ...]:
    """Return what the data say about each rule."""
    found = []
    for rule in rules:
        applies, wrong = counterexamples(rule, data, closed=closed)
        n, bad = int(data.counts[applies].sum()), int(data.counts[wrong].sum())
        others = [as_rule((rule[0], body), data.atoms) for body in alternatives.get(rule, ())]
        if len(others) > _MOST_ALTERNATIVES:
            others = [*others[: _MOST_ALTERNATIVES - 1], others[-1]]
        confidence = 1 - bad / n if n else 0.0
        found.append(Evidence(as_rule(rule, data.atoms), n, confidence, tuple(others)))
    return tuple(found)


def unexplained(program: Program, data: Observations, *, closed: bool) -> dict[str, int]:
    """Return for each atom the number of examples in which it followed and no rule derives it."""
    missing = (data.labels == 1) & ~predict(program, data.states, closed=closed)
    counts: npt.NDArray[np.int64] = data.counts @ missing
    return {data.atoms[i]: int(counts[i]) for i in np.flatnonzero(counts)}


def notes_on_evidence(found: Sequence[Evidence]) -> list[str]:
    """Return notes on what the examples are too few to decide."""
    notes = []
    weak = sorted((one for one in found if one.support < _FEW), key=lambda one: one.support)
    if weak:
        shown = [f"{one.rule} ({one.support})" for one in weak]
        verb = "has" if len(weak) == 1 else "have"
        notes.append(
            f"{len(weak)} of {quantity(len(found), 'rule')} {verb} fewer than {_FEW} supporting "
            f"examples: {listing(shown)}"
        )
    heads = dict.fromkeys(one.rule.heads[0] for one in found if one.alternatives)
    if heads:
        notes.append(
            f"the examples do not decide between rules that explain them equally well, "
            f"for {listing([quote(head) for head in heads], 5)}"
        )
    return notes
