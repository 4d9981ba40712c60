"""The account: how far the data bear the rules out, and what they leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._learning.exact_search import Body, Found, covered
from latentgamma._learning.from_closures import Implication
from latentgamma._learning.observations import Observations
from latentgamma._logic.closures import closures
from latentgamma._program.names import quote
from latentgamma._program.program import Mask, Program, Rule

#: A rule that rests on fewer examples is told to the user.
_FEW = 3


class Evidence(NamedTuple):
    """What the data say about one rule."""

    rule: Rule
    support: int  # examples in which the body was true and the head was not given
    confidence: float  # the share of those in which the head followed
    alternatives: tuple[Rule, ...]  # rules that would explain the examples as well


def clashing(rule: Implication, data: Observations, *, closed: bool) -> tuple[Mask, Mask]:
    """The examples that a rule speaks about, and those of them that it gets wrong."""
    head, body = rule
    states = data.states | (data.labels == 1) if closed else data.states
    about = covered(states, body) & ~data.states[:, head] & (data.labels[:, head] >= 0)
    return about, about & (data.labels[:, head] == 0)


def predicted(program: Program, states: Mask, kind: str) -> Mask:
    """What the rules make of states. (N, M)."""
    if kind == "closures":
        return closures(program, states)
    after = states.copy()
    for j in range(program.R):
        after[:, program.heads_of(j)] |= covered(states, program.body_of(j).tolist())[:, None]
    return after


def accuracy(program: Program, data: Observations | None, kind: str) -> float | None:
    """The share of examples of which every labelled atom is right."""
    if data is None:
        return None
    right = (predicted(program, data.states, kind) == (data.labels == 1)) | (data.labels < 0)
    return float(np.average(right.all(1), weights=data.counts))


def explained(program: Program, data: Observations, kind: str, *, every_label: bool) -> float:
    """The share of what there is to explain that the rules do, as learning curves have it.

    That is the share of the labels that newly became true, or of the examples whose closure
    lacks nothing; or, where any label can be wrong, of all labels.
    """
    after, true = predicted(program, data.states, kind), data.labels == 1
    if every_label:
        told = data.labels >= 0
        return float((after == true)[told].mean()) if told.any() else 1.0
    if kind == "closures":
        return float((~(true & ~after).any(1)).mean())
    derived = true & ~data.states
    total = int((data.counts @ derived).sum())
    return float((data.counts @ (derived & after)).sum() / total) if total else 1.0


def at_best(data: Observations, noise: float) -> float:
    """The share of examples that the true rules get right where labels are wrong."""
    return float(np.average((1 - noise) ** (data.labels >= 0).sum(1), weights=data.counts))


def evidence(
    rules: Sequence[Implication], found: Mapping[int, Found], data: Observations, kind: str
) -> tuple[Evidence, ...]:
    """What the data say about each rule."""

    def named(head: int, body: Body) -> Rule:
        return Rule((data.atoms[head],), frozenset(data.atoms[i] for i in body))

    account = []
    for head, body in rules:
        about, wrong = clashing((head, body), data, closed=kind == "closures")
        n, bad = int(data.counts[about].sum()), int(data.counts[wrong].sum())
        others = found[head].alternatives.get(body, []) if head in found else []
        account.append(
            Evidence(
                named(head, body),
                n,
                1 - bad / n if n else 0.0,
                tuple(named(head, other) for other in others[:10]),
            )
        )
    return tuple(account)


def unexplained(program: Program, data: Observations, kind: str) -> dict[str, int]:
    """For each atom, the examples in which it followed and no rule says why."""
    missing = (data.labels == 1) & ~predicted(program, data.states, kind)
    counts: npt.NDArray[np.int64] = data.counts @ missing
    return {data.atoms[i]: int(counts[i]) for i in np.flatnonzero(counts)}


def open_questions(account: Sequence[Evidence]) -> list[str]:
    """Notes on what the examples are too few to decide."""
    notes = []
    thin = sorted((one for one in account if one.support < _FEW), key=lambda one: one.support)
    if thin:
        shown = [f"{one.rule} ({one.support})" for one in thin]
        notes.append(
            f"fewer than {_FEW} examples bear out {len(thin)} of {len(account)} rules: "
            f"{_listed(shown)}"
        )
    heads = dict.fromkeys(one.rule.heads[0] for one in account if one.alternatives)
    if heads:
        notes.append(
            f"the examples leave a choice between rules that explain them equally well, "
            f"for {_listed([quote(head) for head in heads], 5)}"
        )
    return notes


def _listed(texts: Sequence[str], most: int = 3) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
