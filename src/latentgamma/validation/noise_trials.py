"""Phase C: accuracy and certificates of models with noise on their logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latentgamma._certificate.certify import certify
from latentgamma._certificate.constants import Constants
from latentgamma._model.module import LatentGamma
from latentgamma._model.noise import (
    critical_sigma,
    flip_bound,
    flip_probability,
    misroute_bound,
    perturb,
)
from latentgamma._program.program import Program
from latentgamma.validation.cases import (
    GRAPHS,
    STEPS,
    Case,
    Device,
    Progress,
    case_of,
    each,
    finite,
    generator_for,
    state_of,
)
from latentgamma.validation.printed import EXAMPLES, HEAD_SIGMAS, PERTURBATIONS, SIGMAS
from latentgamma.validation.results import CriticalRow, NoiseRow, Robustness

#: Runs are checked every so many steps; examples that can no longer become right are dropped.
_CHECK_INTERVAL = 9


def robustness(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    examples: int = EXAMPLES,
    perturbations: int = PERTURBATIONS,
    progress: Progress | None = None,
) -> Robustness:
    """Phase C: accuracy under noise, the bounds of Theorem 7.1, and certificates.

    >>> from latentgamma import validation
    >>> results = validation.robustness(["g1"], perturbations=1)  # doctest: +SKIP
    >>> results.body[0].accuracy, results.holds  # doctest: +SKIP
    (1.0, True)

    Args:
        graphs: some of "g1", "g2", "g3", "g4".
        seed: decides the graphs, the fact sets and the noise; a whole number from 0 on.
        device: where the models run.
        examples: the number of fact sets per graph.
        perturbations: the number of noisy models per graph and level of noise, from 1 on.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        One row for each graph and level of noise, on body logits and on head logits, and the
        critical noise of each graph.

    Raises:
        DataError: there is no such graph.
    """
    cases = {name: case_of(name, seed, examples) for name in graphs}
    models = {name: case.oracle("paper", device) for name, case in cases.items()}

    def job(item: tuple[str, str, float, int]) -> _TrialResult:
        kind, name, sigma, repetition = item
        noise = torch.Generator().manual_seed(
            int(generator_for(seed, kind, name, f"{sigma:g}", repetition).integers(2**62))
        )
        body, head = (sigma, 0.0) if kind == "body" else (0.0, sigma)
        return _run_trial(cases[name], models[name], perturb(models[name], body, head, noise), kind)

    levels = [("body", s) for s in SIGMAS] + [("head", s) for s in HEAD_SIGMAS]
    keys = [(kind, name, sigma) for name in graphs for kind, sigma in levels]
    # The largest graph first, so that all workers finish at about the same time.
    items = [(*key, repetition) for key in reversed(keys) for repetition in range(perturbations)]
    found = dict(zip(items, each(job, items, "C robustness", progress), strict=True))
    rows: dict[str, list[NoiseRow]] = {"body": [], "head": []}
    for kind, name, sigma in keys:
        program, constants = cases[name].program, Constants.paper()
        size, chance = (program.R, program.M), None
        if kind == "body":
            bound = flip_bound(*size, constants.body, sigma)
            chance = flip_probability(*size, constants.body, sigma)
        else:
            bound = misroute_bound(*size, constants.head, sigma)
        runs = [found[kind, name, sigma, repetition] for repetition in range(perturbations)]
        rows[kind].append(
            NoiseRow(
                name,
                sigma,
                bound,
                chance,
                accuracies=tuple(run.accuracy for run in runs),
                events=tuple(run.events for run in runs),
                certified=tuple(run.certified for run in runs),
                covered=tuple(run.covered for run in runs),
                t_max=tuple(run.t_max for run in runs),
            )
        )
    critical = tuple(_critical(cases[name].program, name, rows["body"]) for name in graphs)
    return Robustness(STEPS, tuple(rows["body"]), tuple(rows["head"]), critical)


@dataclass(frozen=True)
class _TrialResult:
    """The result of one perturbed model."""

    accuracy: float
    events: int
    certified: bool
    covered: bool
    t_max: float | None


def _run_trial(case: Case, model: LatentGamma, noisy: LatentGamma, kind: str) -> _TrialResult:
    before, after = model.rules.to_dense(), noisy.rules.to_dense()
    if kind == "body":
        events = int(((before.body_logits > 0) != (after.body_logits > 0)).sum())
    else:
        events = int((before.head_logits.argmax(-1) != after.head_logits.argmax(-1)).sum())
    certificate = certify(noisy, case.program)
    return _TrialResult(
        _accuracy(noisy, case),
        events,
        certificate.holds,
        certificate.covers(STEPS),
        finite(certificate.t_max) if certificate.holds else None,
    )


def _accuracy(model: LatentGamma, case: Case) -> float:
    """The fraction of examples with every atom correct after STEPS steps."""
    state = state_of(case.facts, model)
    wanted = torch.from_numpy(case.closures).to(model.device)
    for start in range(0, STEPS, _CHECK_INTERVAL):
        state = model(state, steps=min(_CHECK_INTERVAL, STEPS - start))
        # Values never fall (Lemma 5.1), so an atom that is wrongly true stays so.
        possible = ~((state > 0.5) & ~wanted).any(-1)
        state, wanted = state[possible], wanted[possible]
    return int(((state > 0.5) == wanted).all(-1).sum()) / len(case.facts)


def _critical(program: Program, name: str, rows: Sequence[NoiseRow]) -> CriticalRow:
    R, M, eta = program.R, program.M, Constants.paper().body
    last = None
    for row in rows:
        if row.graph == name:
            if row.accuracy < 0.95:
                break
            last = row.sigma
    sigmas = [round(1 + 0.05 * i, 2) for i in range(51)]
    curve = tuple((sigma, 1 - flip_probability(R, M, eta, sigma)) for sigma in sigmas)
    return CriticalRow(name, R * M, critical_sigma(R, M, eta), last, curve)
