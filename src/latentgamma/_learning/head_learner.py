"""The learner of single heads that a method stands for, with progress and saved results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from latentgamma._errors import DistributedError
from latentgamma._learning.exact_search import find_rules
from latentgamma._learning.head_task import Body, HeadRules, HeadTask, covered_by_any
from latentgamma._learning.history import History
from latentgamma._learning.journal import Compute
from latentgamma._learning.noisy_search import find_likely_rules

if TYPE_CHECKING:
    import torch

    from latentgamma._learning.annealing import Homotopy
    from latentgamma._learning.gradient_learner import HeadStatus


@dataclass
class HeadLearner:
    """A learner of single heads.

    Attributes:
        method: "symbolic" or "gradient".
        noise: the share of wrong labels.
        seed: the seed of everything random.
        homotopy: the annealing schedule of the gradient learner.
        device: where that runs.
        history: gets an entry for each finished head.
        compute: runs pieces of work, or returns their saved results.
        executor: searches for several heads at a time; by default one after the other.
        finished: returns whether `compute` has the result of a piece of work; None if it has none.
        derived: the number of labels to explain, if the rules found are final; None if they are
            proposals, as from closures.
    """

    method: str
    noise: float
    seed: int
    homotopy: Homotopy | None
    device: torch.device | str
    history: History
    compute: Compute
    executor: Executor | None
    finished: Callable[[str], bool] | None
    derived: int | None = None
    calls: int = 0

    def __call__(
        self, tasks: list[HeadTask], least: float = 0.0, known: Sequence[Sequence[Body]] = ()
    ) -> list[HeadRules]:
        """Return what is learned for each head.

        Args:
            tasks: the examples of each head.
            least: nats that a body must explain to be taken; used by search without noise.
            known: bodies of each head that are taken as they are.
        """
        self.calls += 1
        given = known or [()] * len(tasks)
        if self.method == "symbolic":
            return self._search(tasks, least, given)
        return self._train(tasks, given)

    def _search(
        self, tasks: list[HeadTask], least: float, given: Sequence[Sequence[Body]]
    ) -> list[HeadRules]:
        found: list[HeadRules] = []
        rules = explained = 0

        names = [f"{self.calls}/{task.head}" for task in tasks]
        works = {
            name: partial(_search_head, task, [*known], self.noise, least)
            for name, task, known in zip(names, tasks, given, strict=True)
        }
        if self.executor is not None:
            finished = self.finished or (lambda name: False)
            open_works = {name: work for name, work in works.items() if not finished(name)}
            works |= _submitted(self.executor, open_works)
        for i, (name, task) in enumerate(zip(names, tasks, strict=True)):
            found.append(_from_json(self.compute(name, works[name])))
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

    def _train(self, tasks: list[HeadTask], given: Sequence[Sequence[Body]]) -> list[HeadRules]:
        from latentgamma._learning.gradient_learner import train

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
            known=given,
            homotopy=self.homotopy,
            seed=self.seed,
            device=self.device,
            report=report,
            compute=lambda name, work: self.compute(f"{call}/{name}", work),
        )


def _search_head(task: HeadTask, known: list[Body], noise: float, least: float) -> dict[str, Any]:
    """Return what search finds for one head; it can be run in another process."""
    if noise:
        return _to_json(find_likely_rules(task, noise, known))
    return _to_json(find_rules(task, known, least))


def _submitted(
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


def _to_json(found: HeadRules) -> dict[str, Any]:
    return asdict(found) | {"alternatives": list(found.alternatives.items())}


def _from_json(value: dict[str, Any]) -> HeadRules:
    alternatives = {
        tuple(body): [tuple(other) for other in others] for body, others in value["alternatives"]
    }
    bodies = [tuple(body) for body in value["bodies"]]
    return HeadRules(**(value | {"bodies": bodies, "alternatives": alternatives}))
