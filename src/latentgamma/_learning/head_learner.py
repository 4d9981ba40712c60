"""The learner that was picked: tells how it gets on, and keeps what it has finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from latentgamma._learning.exact_search import Body, Found, Task, cover, likeliest
from latentgamma._learning.from_closures import Implication
from latentgamma._learning.journal import Keep, no_journal
from latentgamma._program.program import Rule

if TYPE_CHECKING:
    import torch

    from latentgamma._learning.gradient_learner import Homotopy, Standing


class Moment(NamedTuple):
    """One entry of a learning curve.

    `explained` is the share of what there is to explain: of the labels that newly became true;
    from closures, of the examples, or with noise of the labels; trained freely, of the labels.
    `new` are the rules found since the last entry. A rule learned from closures can still go
    when later ones imply it.
    """

    stage: str
    rules: int
    explained: float
    new: tuple[Rule, ...] = ()


#: Told how learning goes.
Progress: TypeAlias = Callable[[Moment], None]


class Curve:
    """The learning curve as it grows, passed on to whoever wants to know."""

    def __init__(
        self, atoms: Sequence[str], known: Iterable[Implication], progress: Progress | None
    ) -> None:
        self.atoms, self.progress = atoms, progress
        self.history: list[Moment] = []
        self._told = set(known)
        self._last = Moment("start", len(self._told), 0.0)

    def tell(
        self, stage: str, count: int, explained: float, new: Iterable[Implication] = ()
    ) -> None:
        """Add an entry; rules that were told before, or given, are not new."""
        fresh = [rule for rule in dict.fromkeys(new) if rule not in self._told]
        self._told.update(fresh)
        self._last = Moment(stage, count, explained, tuple(map(self._named, fresh)))
        self.history.append(self._last)
        if self.progress is not None:
            self.progress(self._last)

    def tell_rules(self, stage: str, rules: Sequence[Implication], explained: float) -> None:
        """Add an entry about all the rules so far."""
        self.tell(stage, len(rules), explained, rules)

    def working(self, stage: str) -> None:
        """Say what is being worked on, without an entry."""
        if self.progress is not None:
            self.progress(self._last._replace(stage=stage, new=()))

    def _named(self, rule: Implication) -> Rule:
        head, body = rule
        return Rule((self.atoms[head],), frozenset(self.atoms[i] for i in body))


class Learner:
    """A learner of single heads with its options.

    Args:
        method: "symbolic" or "gradient".
        noise: the share of wrong labels.
        seed: of everything random.
        homotopy: the annealing of the gradient learner.
        device: where that runs.
        curve: told how it goes.
        keep: what is finished is taken from there, or put there.
        derived: how many labels there are to explain, if what is found is the last word; None
            if it is only proposed.
    """

    def __init__(
        self,
        method: str,
        *,
        noise: float,
        seed: int,
        homotopy: Homotopy | None,
        device: torch.device | str,
        curve: Curve,
        keep: Keep = no_journal,
        derived: int | None = None,
    ) -> None:
        self.method, self.noise, self.seed = method, noise, seed
        self.homotopy, self.device = homotopy, device
        self.curve, self.keep, self.derived = curve, keep, derived
        self._calls = 0

    def __call__(
        self, tasks: list[Task], least: float = 0.0, known: Sequence[Sequence[Body]] | None = None
    ) -> list[Found]:
        """What is learned for each head."""
        self._calls += 1
        given = known or [()] * len(tasks)
        if self.method == "symbolic":
            return self._searched(tasks, least, given)
        return self._trained(tasks, given)

    def _searched(
        self, tasks: list[Task], least: float, given: Sequence[Sequence[Body]]
    ) -> list[Found]:
        found: list[Found] = []
        rules = reached = 0

        def search(task: Task, start: Sequence[Body]) -> dict[str, Any]:
            if self.noise:
                return _plain(likeliest(task, self.noise, start))
            return _plain(cover(task, start, least))

        for i, (task, start) in enumerate(zip(tasks, given, strict=True)):
            name = f"{self._calls}/{task.head}"
            found.append(_found(self.keep(name, partial(search, task, start))))
            bodies = found[-1].bodies
            rules += len(bodies)
            stage = f"head {i + 1} of {len(tasks)}"
            if self.derived is None:
                self.curve.working(f"round {self._calls}, {stage}")
                continue
            reached += _reached(task, bodies)
            new = [(task.head, body) for body in bodies]
            self.curve.tell(stage, rules, reached / max(1, self.derived), new)
        return found

    def _trained(self, tasks: list[Task], given: Sequence[Sequence[Body]]) -> list[Found]:
        from latentgamma._learning.gradient_learner import train

        call = self._calls

        def report(stage: str, heads: Sequence[Standing]) -> None:
            if self.derived is None:
                self.curve.working(f"round {call}, training {stage}")
                return
            new = [
                (task.head, body)
                for task, head in zip(tasks, heads, strict=True)
                if head.settled
                for body in head.bodies
            ]
            rules = sum(len(head.bodies) for head in heads)
            reached = sum(head.reached for head in heads)
            self.curve.tell(stage, rules, reached / max(1, self.derived), new)

        return train(
            tasks,
            noise=self.noise,
            known=given,
            homotopy=self.homotopy,
            seed=self.seed,
            device=self.device,
            report=report,
            keep=lambda name, work: self.keep(f"{call}/{name}", work),
        )


def _reached(task: Task, bodies: Sequence[Body]) -> int:
    """How many positive examples some body explains."""
    inside = np.zeros(len(task.states), np.bool_)
    for body in bodies:
        inside |= task.covered(body)
    return int(task.counts[inside & task.positive].sum())


def _plain(found: Found) -> dict[str, Any]:
    """Findings as JSON can have them."""
    return {
        "bodies": found.bodies,
        "alternatives": list(found.alternatives.items()),
        "unexplained": found.unexplained,
    }


def _found(value: dict[str, Any]) -> Found:
    """The findings that `_plain` wrote."""
    return Found(
        [tuple(body) for body in value["bodies"]],
        {tuple(body): [tuple(b) for b in others] for body, others in value["alternatives"]},
        value["unexplained"],
    )
