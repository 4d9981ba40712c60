"""How each kind of example is learned from, head by head."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgamma._checkpoint import Journal, digest_of
from latentgamma._text import quantity
from latentgamma._version import __version__
from latentgamma.errors import DistributedError
from latentgamma.learning.bodies import Body, HeadRules, HeadTask, Implication, covered_by_any
from latentgamma.learning.closures import (
    ClosureExamples,
    closure_alternatives,
    rules_from_closures,
    rules_from_noisy_closures,
)
from latentgamma.learning.exact import add_alternatives, find_rules
from latentgamma.learning.implications import rules_of_models
from latentgamma.learning.noisy import find_likely_rules
from latentgamma.learning.options import FitOptions, History
from latentgamma.learning.training_data import TrainingData

if TYPE_CHECKING:
    from latentgamma.learning.gradient import HeadStatus


# ---- The learner of single heads that a method stands for, with progress and saved results


@dataclass
class HeadLearner:
    """A learner of single heads.

    Attributes:
        method: "symbolic" or "gradient".
        noise: the fraction of wrong labels.
        options: what `fit` was called with.
        history: gets an entry for each finished head.
        journal: keeps the results of pieces of work; None if they are not kept.
        derived: the number of labels to explain, if the rules found are final; None if they are
            proposals, as from closures.
    """

    method: str
    noise: float
    options: FitOptions
    history: History
    journal: Journal | None = None
    derived: int | None = None
    calls: int = 0

    def __call__(self, tasks: list[HeadTask], least: float = 0.0) -> list[HeadRules]:
        """Return what is learned for each head."""
        self.calls += 1
        return self._search(tasks, least) if self.method == "symbolic" else self._train(tasks)

    def _compute(self, name: str, work: Callable[[], Any]) -> Any:
        return self.journal.compute(name, work) if self.journal else work()

    def _search(self, tasks: list[HeadTask], least: float) -> list[HeadRules]:
        found: list[HeadRules] = []
        rules = explained = 0
        works = {f"{self.calls}/{task.head}": partial(_search_head, task, self.noise, least)
                 for task in tasks}  # fmt: skip
        if self.options.executor is not None:
            open_works = {name: work for name, work in works.items()
                          if not (self.journal and self.journal.has(name))}  # fmt: skip
            works |= _submit(self.options.executor, open_works)
        for i, (task, (name, work)) in enumerate(zip(tasks, works.items(), strict=True)):
            found.append(_from_json(self._compute(name, work)))
            bodies = found[-1].bodies
            stage = f"head {i + 1} of {len(tasks)}"
            if self.derived is None:
                self.history.report_stage(f"round {self.calls}, {stage}")
                continue
            rules += len(bodies)
            inside = covered_by_any(task.states, bodies)
            explained += int(task.counts[inside & task.positive].sum())
            new = [(task.head, body) for body in bodies]
            self.history.add(stage, rules, explained / max(1, self.derived), new)
        return found

    def _train(self, tasks: list[HeadTask]) -> list[HeadRules]:
        from latentgamma.learning.gradient import train

        call = self.calls

        def report(stage: str, heads: Sequence[HeadStatus]) -> None:
            if self.derived is None:
                self.history.report_stage(f"round {call}, training {stage}")
                return
            new = [
                (task.head, body)
                for task, head in zip(tasks, heads, strict=True)
                if head.finished
                for body in head.bodies
            ]
            rules = sum(len(head.bodies) for head in heads)
            explained = sum(head.explained for head in heads)
            self.history.add(stage, rules, explained / max(1, self.derived), new)

        return train(
            tasks,
            noise=self.noise,
            homotopy=self.options.homotopy,
            seed=self.options.seed,
            device=self.options.device,
            report=report,
            compute=lambda name, work: self._compute(f"{call}/{name}", work),
        )


def _search_head(task: HeadTask, noise: float, least: float) -> dict[str, Any]:
    """Return what search finds for one head as JSON has it; it can be run in another process."""
    found = find_likely_rules(task, noise) if noise else find_rules(task, least)
    return asdict(found) | {"alternatives": list(found.alternatives.items())}


def _submit(
    executor: Executor, works: dict[str, partial[dict[str, Any]]]
) -> dict[str, partial[dict[str, Any]]]:
    """Return functions that wait for the results of these, which the executor computes."""
    with _lost_workers():
        futures = {name: executor.submit(work.func, *work.args) for name, work in works.items()}
    return {name: partial(_result, future) for name, future in futures.items()}


def _result(future: Future[dict[str, Any]]) -> dict[str, Any]:
    with _lost_workers():
        return future.result()


@contextmanager
def _lost_workers() -> Iterator[None]:
    """Raise a DistributedError where the executor has lost a worker, or cannot reach one."""
    try:
        yield
    except (BrokenExecutor, OSError) as error:
        raise DistributedError(
            f"the executor stopped: {type(error).__name__}: {error}; with a checkpoint the same "
            "call resumes"
        ) from error


def _from_json(value: dict[str, Any]) -> HeadRules:
    alternatives = {
        tuple(body): [tuple(other) for other in others] for body, others in value["alternatives"]
    }
    bodies = [tuple(body) for body in value["bodies"]]
    return HeadRules(**(value | {"bodies": bodies, "alternatives": alternatives}))


# ---- One way to learn for each kind of data


@dataclass
class Learned:
    """What a strategy found.

    Attributes:
        rules: the rules, sorted by head.
        method: the method that was used.
        reason: why this method, and what is proved about its result.
        alternatives: for each rule, bodies that could replace its own.
        notes: what to know about the search.
    """

    rules: list[Implication]
    method: str
    reason: str
    alternatives: dict[Implication, list[Body]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def learn_rules(data: TrainingData, options: FitOptions, history: History) -> Learned:
    """Return the rules behind the examples, by the strategy for their kind."""
    if options.kind == "models":
        return _from_models(data)
    method = "symbolic" if options.method == "auto" else options.method
    with contextlib.ExitStack() as stack:
        learner = HeadLearner(method, data.noise, options, history)
        if options.checkpoint is not None:
            about = _about(data, options, method)
            learner.journal = stack.enter_context(Journal(options.checkpoint, about))
        found = (
            _from_closures(data, learner) if options.closed else _from_transitions(data, learner)
        )
    found.rules.sort(key=lambda rule: rule[0])
    return found


def _about(data: TrainingData, options: FitOptions, method: str) -> dict[str, Any]:
    """Return everything that the result depends on."""
    given = data.observations
    packed = np.packbits(given.states)
    about = {
        "release": __version__,
        "data": digest_of(given.atoms, packed, given.labels, given.counts, given.probability),
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
        from latentgamma.operator.annealing import Homotopy

        homotopy = options.homotopy or Homotopy()
        about |= {"homotopy": asdict(homotopy), "device": str(options.device)}
    return about


# ---- Transitions


def _from_transitions(data: TrainingData, learner: HeadLearner) -> Learned:
    training = data.training
    learner.derived = int((training.counts @ ((training.labels == 1) & ~training.states)).sum())
    tasks: list[HeadTask] = []
    for h in range(training.M):
        mine = tuple([body for head, body in data.known if head == h])
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
                mine,
            )
        )
    # Known rules of heads that nothing is learned about stay as they are.
    heads = {task.head for task in tasks}
    learned = Learned([rule for rule in data.known if rule[0] not in heads], learner.method, "")
    unproved = too_long = 0
    for task, found in zip(tasks, learner(tasks), strict=True):
        if not learner.noise:
            add_alternatives(task, found)
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


# ---- Closures


def _from_closures(data: TrainingData, learner: HeadLearner) -> Learned:
    training, report = data.training, learner.history.add_rules
    # With noise every copy of an example may have other wrong entries, so each counts.
    copies = training.counts if learner.noise else np.ones_like(training.counts)
    rows = np.repeat(np.arange(training.N), copies)
    facts, labels = training.states[rows], training.labels[rows]
    examples = ClosureExamples(
        facts,
        labels == 1 if learner.noise else facts | (labels == 1),
        labels >= 0,
        data.allowed,
        data.max_body,
        data.known,
        None if training.probability is None else training.probability[rows],
    )
    if learner.noise:
        rules = rules_from_noisy_closures(examples, learner, learner.noise, report)
        return Learned(rules, learner.method, _reason(learner, 0))
    rules = rules_from_closures(examples, learner, report)
    alternatives, unproved = closure_alternatives(rules, examples)
    return Learned(rules, learner.method, _reason(learner, unproved), alternatives)


# ---- Models


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
