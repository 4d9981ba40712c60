"""Learns from closures, with and without wrong entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from latentgamma.learning.bodies import (
    Body,
    HeadTask,
    Implication,
    LearnHeads,
    ReportRules,
    as_program,
    base_rate,
    covered,
    description_length,
    distinct,
    remove_implied,
)
from latentgamma.learning.exact import alternatives_to, smallest_bodies
from latentgamma.logic.closures import closures
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program

# ---- Rules from closures, where every label is right
# No rule may lead out of a closed set, so the closed sets without an atom are the negative states of
# its rules. Atoms that the rules so far do not derive must follow from what they do derive: those
# states are the positive ones. Rules are added in rounds, the best supported first. Then those that
# others imply, or that no example needs, are removed.

#: Nats that a rule must explain to be added, and how often rules are added with each limit.
_LEAST_NATS = (30.0, 10.0, 3.0, 0.0)
_REPEATS = 4


@dataclass(frozen=True)
class ClosureExamples:
    """Fact sets and their closures.

    Attributes:
        facts: the fact sets. (N, M)
        closed: their closures. (N, M)
        known: where the label of a closure is known. (N, M)
        allowed: which atoms (columns) the bodies of each head (rows) may use. (M, M)
        max_body: the largest body.
        kept: rules that stay; they come first wherever rules are listed.
        probability: the probability of each label, if labels are probabilities. (N, M)
    """

    facts: Mask
    closed: Mask
    known: Mask
    allowed: Mask
    max_body: int
    kept: Sequence[Implication] = ()
    probability: npt.NDArray[np.float32] | None = None

    @property
    def M(self) -> int:
        """The number of atoms."""
        return int(self.facts.shape[1])

    def derived(self, rules: Sequence[Implication]) -> Mask:
        """Return the closures of the fact sets under some rules. (N, M)."""
        return closures(as_program(rules, self.M), self.facts)


def rules_from_closures(
    examples: ClosureExamples, learn: LearnHeads, report: ReportRules | None = None
) -> list[Implication]:
    """Return rules under which each fact set has its closure, as far as the learner finds them."""
    rules: list[Implication] = list(examples.kept)
    closed, known = examples.closed, examples.known
    first = distinct(np.hstack([closed, known]))[0]
    sets, labelled = closed[first], known[first]
    for least in _LEAST_NATS:
        for _ in range(_REPEATS):
            state = examples.derived(rules)
            missing = closed & known & ~state
            if report is not None:
                report("rules", rules, float((~missing.any(1)).mean()))
            if not missing.any():
                break
            tasks = [
                _task(h, state[missing[:, h]], sets[~sets[:, h] & labelled[:, h]], examples)
                for h in np.flatnonzero(missing.any(0)).tolist()
                if examples.allowed[h].any()
            ]
            new = [
                (task.head, body)
                for task, found in zip(tasks, learn(tasks, least), strict=True)
                for body in found.bodies
                if not task.counterexamples(body)
            ]
            before = set(rules)
            rules = remove_implied([*rules, *new], closed, len(examples.kept))
            if set(rules) == before:
                break
    rules = _best_tested(_needed(rules, examples), examples)
    return _needed(remove_implied(rules, closed, len(examples.kept)), examples)


def closure_alternatives(
    rules: Sequence[Implication], examples: ClosureExamples
) -> tuple[dict[Implication, list[Body]], int]:
    """Return the bodies that could replace that of each rule, and how many searches were cut short.

    Where a rule is missing its head is not derived, and another body must lie in what the other
    rules derive there.
    """
    found: dict[Implication, list[Body]] = {}
    unproved = 0
    for rule in rules[len(examples.kept) :]:
        head, body = rule
        state = examples.derived([other for other in rules if other != rule])
        missing = examples.closed & examples.known & ~state
        needing = state[missing[:, head]]
        if not len(needing):
            continue
        labelled = examples.known[:, head]
        negatives = examples.closed[labelled & ~examples.closed[:, head]]
        task = _task(head, needing, negatives, examples)
        others, proved = alternatives_to(task, body, needing)
        unproved += not proved
        if others:
            found[rule] = others
    return found, unproved


def _task(head: int, positives: Mask, negatives: Mask, examples: ClosureExamples) -> HeadTask:
    first, counts, _ = distinct(positives)
    count = len(first) + len(negatives)
    return HeadTask(
        head,
        np.concatenate([positives[first], negatives]),
        np.arange(count) < len(first),
        np.concatenate([counts, np.ones(len(negatives), np.int64)]),
        examples.allowed[head],
        examples.max_body,
    )


def _needed(rules: Sequence[Implication], examples: ClosureExamples) -> list[Implication]:
    """Return the rules without those that no example needs, the least supported tried first."""
    wanted = examples.closed & examples.known
    state = examples.derived(rules)
    reached = (state & wanted).sum()
    support = {
        rule: int((covered(state, rule[1]) & ~examples.facts[:, rule[0]]).sum()) for rule in rules
    }
    left = list(rules)
    learned = rules[len(examples.kept) :]
    for rule in sorted(learned, key=lambda rule: (support[rule], -len(rule[1]), rule)):
        rest = [other for other in left if other != rule]
        if (examples.derived(rest) & wanted).sum() == reached:
            left = rest
    return left


def _best_tested(rules: Sequence[Implication], examples: ClosureExamples) -> list[Implication]:
    """Return the rules, each with the body that had most chances to be refuted.

    Where a rule is missing, its body lies in what the others derive. Of the bodies there that no
    closed set refutes, the best is the one in most closed sets that could have refuted it.
    """
    closed, known, left = examples.closed, examples.known, list(rules)
    for place in range(len(examples.kept), len(left)):
        head, body = left[place]
        state = examples.derived([rule for j, rule in enumerate(left) if j != place])
        missing = (closed & known & ~state).any(1)
        if not missing.any() or len(body) > 2:
            continue
        shared = np.flatnonzero(state[missing].all(0) & examples.allowed[head])
        labelled = known[:, head]
        sets, has = closed[labelled], closed[labelled, head]
        found = smallest_bodies(~sets[~has][:, shared], examples.max_body)
        bodies = [tuple(shared[list(places)].tolist()) for places in found.bodies]
        if len(bodies) < 2:
            continue
        rate = base_rate(sets, has, np.ones(len(sets), np.int64))
        nats = np.where(examples.facts[labelled, head], 0.0, -np.log(rate))
        score = [float(nats[covered(sets, option)].sum()) for option in bodies]
        left[place] = (head, bodies[int(np.argmax(score))])
    return left


# ---- Rules from closures of which a fraction of the entries, facts too, may be wrong

#: How often rules are added; it ends earlier when nothing changes.
_ROUNDS = 4
#: Examples that the likelihood of one rule is computed on.
_SAMPLE = 200


def rules_from_noisy_closures(
    examples: ClosureExamples, learn: LearnHeads, noise: float, report: ReportRules | None = None
) -> list[Implication]:
    """Return the rules that are likeliest behind closures of whose entries a fraction is wrong.

    States are never taken from the closures, where an atom and its consequences confirm each
    other, but from the facts and the rules so far: only a fact can be a cause. A fact that its
    closure lacks is dropped, since a true one is missing there as seldom as a label is wrong.
    """
    closed, known, probability = examples.closed, examples.known, examples.probability
    examples = replace(examples, facts=examples.facts & (closed | ~known))
    rules: list[Implication] = list(examples.kept)
    for _ in range(_ROUNDS):
        state = examples.derived(rules)
        if report is not None:
            report("rules", rules, float((state == closed)[known].mean() if known.any() else 1.0))
        tasks = []
        for h in range(examples.M):
            rows = ~state[:, h] & known[:, h]
            if not (examples.allowed[h].any() and closed[rows, h].any()):
                continue
            tasks.append(
                HeadTask(
                    h,
                    state[rows],
                    closed[rows, h],
                    np.ones(int(rows.sum()), np.int64),
                    examples.allowed[h],
                    examples.max_body,
                    None if probability is None else probability[rows, h],
                )
            )
        new = [
            (task.head, body)
            for task, found in zip(tasks, learn(tasks, 0.0), strict=True)
            for body in found.bodies
        ]
        before = set(rules)
        together = list(dict.fromkeys([*rules, *new]))
        rules = remove_implied(together, examples.derived(together), len(examples.kept))
        rules = _not_refuted(rules, examples, noise)
        if set(rules) == before:
            break
    return worth_keeping(rules, examples, noise)


def worth_keeping(
    rules: Sequence[Implication], examples: ClosureExamples, noise: float
) -> list[Implication]:
    """Return the rules that raise the likelihood of the examples by more than their description.

    One lost fact takes many atoms with it, each of which some rule could seem to explain. So all
    labels of an example are compared together, and one of its facts may be taken for wrong.
    """
    M, left = examples.M, list(rules)
    nats = math.log((1 - noise) / noise)  # what one wrong label costs
    for rule in sorted(rules[len(examples.kept) :], key=lambda rule: (-len(rule[1]), rule)):
        rest = [other for other in left if other != rule]
        changed = (examples.derived(left) != examples.derived(rest)).any(1)
        rows = np.flatnonzero(changed)
        some = rows[:: max(1, len(rows) // _SAMPLE)]
        sample = (examples.facts[some], examples.closed[some], examples.known[some])
        fewer = _errors(as_program(rest, M), *sample) - _errors(as_program(left, M), *sample)
        if nats * fewer * len(rows) <= description_length(len(rule[1]), M) * len(some):
            left = rest
    return left


def _errors(program: Program, facts: Mask, closed: Mask, known: Mask) -> int:
    """Return how many facts and labels must be wrong, with at most one wrong fact an example."""
    least = ((closures(program, facts) != closed) & known).sum(1)
    for i in range(facts.shape[1]):
        other = facts.copy()
        other[:, i] ^= True
        least = np.minimum(least, 1 + ((closures(program, other) != closed) & known).sum(1))
    return int(least.sum())


def _not_refuted(
    rules: Sequence[Implication], examples: ClosureExamples, noise: float
) -> list[Implication]:
    """Return the rules that are wrong no more often than labels are, where they alone decide."""
    left = list(rules)
    for rule in rules[len(examples.kept) :]:
        rest = [other for other in left if other != rule]
        state = examples.derived(rest)
        rows = covered(state, rule[1]) & ~state[:, rule[0]] & examples.known[:, rule[0]]
        n, wrong = int(rows.sum()), int((rows & ~examples.closed[:, rule[0]]).sum())
        # A fact or a label of the body may be wrong as well, so twice the noise is allowed.
        most = 2 * noise * n + 3 * math.sqrt(2 * noise * n) + 1
        if n and (wrong > most or 2 * wrong >= n):
            left = rest
    return left
