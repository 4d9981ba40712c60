"""`fit`: from observations to rules."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from latentgamma._text import listing
from latentgamma.errors import ArgumentError
from latentgamma.learning.data import Observations, observe
from latentgamma.learning.options import (
    History,
    Kind,
    Method,
    Noise,
    ProgressCallback,
    check_options,
)
from latentgamma.learning.result import FitResult, build_result
from latentgamma.learning.strategies import learn_rules
from latentgamma.learning.training_data import prepare
from latentgamma.program.program import Program

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import torch

    from latentgamma.learning.estimator import RuleClassifier
    from latentgamma.learning.forms import Progress
    from latentgamma.operator.annealing import Homotopy


@overload
def fit(
    inputs: Any,
    targets: Any = None,
    *,
    label: None = None,
    kind: Kind = "transitions",
    atoms: Sequence[str] | None = None,
    method: Method = "auto",
    noise: Noise | None = None,
    seed: int = 0,
    known: Program | None = None,
    refine: bool = False,
    heads: Iterable[str] | None = None,
    bodies: Iterable[str] | None = None,
    forbidden: Iterable[tuple[str, str]] = (),
    max_body: int | None = None,
    holdout: float | None = None,
    homotopy: Homotopy | None = None,
    progress: ProgressCallback | None = None,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
) -> FitResult: ...


@overload
def fit(
    inputs: Any,
    *,
    label: str,
    noise: Noise | None = None,
    seed: int = 0,
    max_body: int | None = None,
    progress: Progress | None = None,
) -> RuleClassifier: ...


def fit(
    inputs: Any,
    targets: Any = None,
    *,
    label: str | None = None,
    kind: Kind = "transitions",
    atoms: Sequence[str] | None = None,
    method: Method = "auto",
    noise: Noise | None = None,
    seed: int = 0,
    known: Program | None = None,
    refine: bool = False,
    heads: Iterable[str] | None = None,
    bodies: Iterable[str] | None = None,
    forbidden: Iterable[tuple[str, str]] = (),
    max_body: int | None = None,
    holdout: float | None = None,
    homotopy: Homotopy | None = None,
    progress: ProgressCallback | Progress | None = None,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
) -> FitResult | RuleClassifier:
    """Return the rules that explain observations, as a program and as a network proved equal to it.

    With `label`, the observations are an ordinary table with a column of classes, and a fitted
    `RuleClassifier` is returned.

    Args:
        inputs: states before, (N, M) in [0, 1]: an array, a tensor, rows, a frame of pandas or
            polars, an open file, or the path of a .csv, .tsv or .parquet table with one column per
            atom.
        targets: states after, in the same form. NaN is a missing label; a number between 0 and 1
            is the probability that the label is true, and is used as such. A table of inputs may
            hold the targets itself, in columns `a'` beside `a`.
        label: the column of an ordinary table (numbers, categories, missing values) that says the
            class of each row; `noise`, `max_body`, `seed` and `progress` are then those of
            `RuleClassifier`, and the other options have no effect and are refused.
        kind: "transitions", one step of the rules; "closures", everything that follows;
            "trajectories", arrays (steps, M) of successive states, without targets; "models",
            closed sets alone, without targets, of which all rules are found that hold in each.
        atoms: the names of the columns.
        method: "symbolic" searches; "gradient" trains the operator's rows; "auto" chooses.
        noise: the fraction of wrong labels, or "auto" to estimate it; by default 0, and "auto" with
            `label`, where a fraction is only for columns that are true or false.
        seed: the seed of everything random.
        known: rules that are there from the start.
        refine: whether known rules are dropped where the data contradict them.
        heads: the atoms that may have rules; by default all.
        bodies: the atoms that rules may use; by default all.
        forbidden: pairs (head, atom): the atom is in no body of the head.
        max_body: the largest body; by default 8, from closures with wrong labels 3, and from
            models any.
        holdout: the fraction of examples held out to measure `accuracy`; by default a tenth, and of
            models none.
        homotopy: the annealing schedule; used by method "gradient" only.
        progress: called with a `HistoryEntry` after each stage, for example a `ProgressBar()`.
        device: where the gradient learner runs, and where the network is.
        checkpoint: a file to keep finished work in. A call with the same data and options resumes
            from there, and its result is the same as without an interruption. The file is not
            deleted.
        executor: searches for the rules of several heads at a time, for example a
            `ProcessPoolExecutor`, or a `latentgamma.distributed.RayExecutor`. The result is the same.

    Returns:
        The rules, the network, its certificate, and what the data say about each rule; with
        `label`, a `RuleClassifier`.

    Raises:
        DataError: the observations cannot be used; the message says what to change.
        ArgumentError: an option has a value that it cannot have, or no effect.
        DistributedError: the executor lost a worker for good.

    >>> states = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    >>> after = [[1, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    >>> result = fit(states, after, atoms=["a", "b", "c"], holdout=0)
    >>> print(result.program.rules[0], result.certificate.holds)
    c :- a, b. True
    """
    given: dict[str, Any] = {
        "kind": kind, "method": method, "noise": noise, "seed": seed, "known": known, "refine": refine,
        "heads": heads, "bodies": bodies, "forbidden": forbidden, "max_body": max_body,
        "holdout": holdout, "homotopy": homotopy, "device": device, "checkpoint": checkpoint,
        "progress": progress, "executor": executor,
    }  # fmt: skip
    if label is not None:
        return _fit_label(inputs, label, {**given, "targets": targets, "atoms": atoms})
    options = check_options({**given, "noise": 0.0 if noise is None else noise})
    observations = inputs
    if not isinstance(inputs, Observations):
        observations = observe(inputs, targets, kind=options.kind, atoms=atoms)
    data = prepare(observations, options)
    history = History(observations.atoms, data.known, options.progress)
    learned = learn_rules(data, options, history)
    return build_result(data, options, learned, history)


def _fit_label(table: Any, label: str, given: dict[str, Any]) -> RuleClassifier:
    from latentgamma.learning.estimator import fit_table

    options = {name: given.pop(name) for name in ("noise", "seed", "progress")}
    max_body = given.pop("max_body")
    defaults = {name: one.default for name, one in inspect.signature(fit).parameters.items()}
    unused = [name for name, value in given.items()
              if type(value) is not type(defaults[name]) or value != defaults[name]]  # fmt: skip
    if unused:
        raise ArgumentError(f"{listing(unused)} cannot be used with label; leave it out")
    if max_body is not None:
        options["max_body"] = max_body
    return fit_table(table, label, **options)
