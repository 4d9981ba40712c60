"""One way to learn for each kind of data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma._learning.exact_search import add_alternatives
from latentgamma._learning.from_closures import (
    ClosureExamples,
    closure_alternatives,
    rules_from_closures,
)
from latentgamma._learning.from_models import rules_of_models
from latentgamma._learning.from_noisy_closures import rules_from_noisy_closures
from latentgamma._learning.head_learner import HeadLearner
from latentgamma._learning.head_task import Body, HeadTask
from latentgamma._learning.history import History
from latentgamma._learning.implications import Implication, as_implications
from latentgamma._learning.journal import Compute, Journal, compute_now, fingerprint
from latentgamma._learning.options import FitOptions
from latentgamma._learning.training_data import TrainingData
from latentgamma._learning.wording import quantity
from latentgamma._version import __version__

if TYPE_CHECKING:
    from latentgamma._model.module import LatentGamma


@dataclass
class Learned:
    """What a strategy found.

    Attributes:
        rules: the rules, sorted by head.
        method: the method that was used.
        reason: why this method, and what is proved about its result.
        alternatives: for each rule, bodies that could replace its own.
        notes: what to know about the search.
        model: the trained network, if the method trained one.
    """

    rules: list[Implication]
    method: str
    reason: str
    alternatives: dict[Implication, list[Body]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    model: LatentGamma | None = None


def learn_rules(data: TrainingData, options: FitOptions, history: History) -> Learned:
    """Return the rules behind the examples, by the strategy for their kind."""
    if options.kind == "models":
        return _from_models(data)
    if options.method == "paper":
        return _unconstrained(data, options, history)
    method = "symbolic" if options.method == "auto" else options.method
    with contextlib.ExitStack() as stack:
        compute: Compute = compute_now
        finished: Callable[[str], bool] | None = None
        if options.checkpoint is not None:
            about = _about(data, options, method)
            journal = stack.enter_context(Journal(options.checkpoint, about))
            compute, finished = journal.compute, journal.has
        learner = HeadLearner(
            method,
            noise=data.noise,
            seed=options.seed,
            homotopy=options.homotopy,
            device=options.device,
            history=history,
            compute=compute,
            executor=options.executor,
            finished=finished,
        )
        found = _from_closures(data, learner) if data.closed else _from_transitions(data, learner)
    found.rules.sort(key=lambda rule: rule[0])
    return found


def _about(data: TrainingData, options: FitOptions, method: str) -> dict[str, Any]:
    """Return everything that the result depends on."""
    about = {
        "release": __version__,
        "data": fingerprint(data.observations),
        "kind": options.kind,
        "method": method,
        "noise": data.noise,
        "seed": options.seed,
        "known": None if options.known is None else [str(rule) for rule in options.known.rules],
        "refine": options.refine,
        "heads": options.heads,
        "bodies": options.bodies,
        "forbidden": options.forbidden,
        "max_body": data.max_body,
        "holdout": options.held_out,
    }
    if method == "gradient":
        from latentgamma._learning.annealing import Homotopy

        homotopy = options.homotopy or Homotopy()
        about |= {"homotopy": asdict(homotopy), "device": str(options.device)}
    return about


# ------------------------------------------------------------------------ transitions


def _from_transitions(data: TrainingData, learner: HeadLearner) -> Learned:
    training = data.training
    learner.derived = int((training.counts @ ((training.labels == 1) & ~training.states)).sum())
    tasks: list[HeadTask] = []
    known: list[list[Body]] = []
    for h in range(training.M):
        mine = [body for head, body in data.known if head == h]
        rows = ~training.states[:, h] & (training.labels[:, h] >= 0)
        positive = training.labels[rows, h] == 1
        if not data.allowed[h].any() or not (positive.any() or (mine and len(positive))):
            continue
        tasks.append(
            HeadTask(
                h,
                training.states[rows],
                positive,
                training.counts[rows],
                data.allowed[h],
                data.max_body,
                None if training.probability is None else training.probability[rows, h],
            )
        )
        known.append(mine)
    # Known rules of heads that nothing is learned about stay as they are.
    heads = {task.head for task in tasks}
    learned = Learned([rule for rule in data.known if rule[0] not in heads], learner.method, "")
    unproved = too_long = 0
    for task, found, mine in zip(tasks, learner(tasks, 0.0, known), known, strict=True):
        if not learner.noise:
            add_alternatives(task, found, known=len(mine))
        learned.rules += [(task.head, body) for body in sorted(set(found.bodies))]
        learned.alternatives |= {
            (task.head, body): others for body, others in found.alternatives.items()
        }
        unproved += found.unproved
        too_long += found.too_long
    if too_long:
        learned.notes.append(
            f"for {quantity(too_long, 'label')} only rules with more than "
            f"{quantity(data.max_body, 'atom')} in the body were found, and left out; to take them "
            f"raise max_body"
        )
    learned.reason = _reason(learner, unproved)
    return learned


# ------------------------------------------------------------------------ closures


def _from_closures(data: TrainingData, learner: HeadLearner) -> Learned:
    training, report = data.training, learner.history.add_rules
    known = training.labels >= 0
    if learner.noise:
        # Every copy of an example may have other wrong entries, so each counts.
        rows = np.repeat(np.arange(training.N), training.counts)
        examples = ClosureExamples(
            training.states[rows],
            training.labels[rows] == 1,
            known[rows],
            data.allowed,
            data.max_body,
        )
        rules = rules_from_noisy_closures(
            examples,
            learner,
            noise=learner.noise,
            probability=None if training.probability is None else training.probability[rows],
            kept=data.known,
            report=report,
        )
        return Learned(rules, learner.method, _reason(learner, 0))
    closed = training.states | (training.labels == 1)
    examples = ClosureExamples(training.states, closed, known, data.allowed, data.max_body)
    rules = rules_from_closures(examples, learner, kept=data.known, report=report)
    alternatives, unproved = closure_alternatives(rules, examples, len(data.known))
    return Learned(rules, learner.method, _reason(learner, unproved), alternatives)


# ------------------------------------------------------------------------ models


def _from_models(data: TrainingData) -> Learned:
    rows = data.training.labels == 1
    rules = sorted(rules_of_models(rows, data.known), key=lambda rule: rule[0])
    impossible = sum(not rows[:, list(body)].all(1).any() for _, body in rules)
    notes = []
    if impossible:
        verb, its = ("has", "its") if impossible == 1 else ("have", "their")
        notes.append(
            f"{quantity(impossible, 'rule')} {verb} a body that no row contains; from {its} body "
            f"everything follows"
        )
    reason = "models determine their rules, and search finds all of them"
    return Learned(rules, "symbolic", reason, notes=notes)


# ------------------------------------------------------------------------ every parameter free


def _unconstrained(data: TrainingData, options: FitOptions, history: History) -> Learned:
    from latentgamma._learning.unconstrained import train_unconstrained

    model, program = train_unconstrained(
        data.training,
        closed=data.closed,
        seed=options.seed,
        device=options.device,
        report=history.add,
    )
    return Learned(as_implications(program), "paper", "as requested", model=model)


def _reason(learner: HeadLearner, unproved: int) -> str:
    if learner.method == "gradient":
        return "as requested"
    if learner.noise:
        return (
            "labels may be wrong: search scores every short body, and keeps more of the evidence "
            "than training does"
        )
    claim = "no label is wrong: every rule agrees with all examples"
    if unproved:
        return (
            f"{claim}; for {quantity(unproved, 'rule')} it was not proved that no shorter one explains "
            f"the same examples"
        )
    return f"{claim}, and no shorter rule explains the same examples"
