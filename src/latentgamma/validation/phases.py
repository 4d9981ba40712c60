"""The experiments of the paper, one function per phase: A to F as in the paper, and G, our own.

Each function returns a frozen result; `run_validation` runs all of them. The same seed gives the
same result, bit for bit: it decides graphs, fact sets and noise, and every job computes on one
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from latentgamma._certificate.certify import certify
from latentgamma._certificate.paper_window import paper_window
from latentgamma._errors import DataError
from latentgamma._logic.closure import closure
from latentgamma._logic.closures import closures
from latentgamma._logic.depth import depth_bound
from latentgamma._model.complexity import lower_bound_bits, parameter_count, upper_bound_bits
from latentgamma._program.program import Program
from latentgamma.validation.cases import (
    GRAPHS,
    KINDS,
    STEPS,
    Device,
    Progress,
    case_of,
    constants_of,
    each,
    finite,
    productive_roots,
    state_of,
)
from latentgamma.validation.checkpoint import PhaseCheckpoint
from latentgamma.validation.machine import PhaseTimer, machine_and_versions
from latentgamma.validation.noise_trials import robustness
from latentgamma.validation.printed import EXAMPLES, PERTURBATIONS
from latentgamma.validation.results import (
    FORMAT,
    ConstantsRow,
    Construction,
    Expressivity,
    ExpressivityRow,
    GraphRow,
    Picture,
    Timing,
    Validation,
    WindowRow,
    Windows,
)
from latentgamma.validation.structure_checks import edge_cases, multi_head, structure

__all__ = [
    "GRAPHS", "STEPS", "Timing", "Validation", "run_validation",
    "construction", "expressivity", "robustness", "structure", "edge_cases", "multi_head",
    "windows", "picture",
]  # fmt: skip

_Found = TypeVar("_Found")


# -------------------------------------------------------------------- A


def construction(
    graphs: Sequence[str] = GRAPHS, *, seed: int = 0, progress: Progress | None = None
) -> Construction:
    """Phase A: the sizes of each graph, and the constants of its parameters.

    >>> row = construction(["g1"]).graphs[0]
    >>> row.M, row.R, row.depth
    (33, 32, 31)

    Args:
        graphs: some of "g1", "g2", "g3", "g4".
        seed: decides the graphs; a whole number from 0 on.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        One row of sizes for each graph, and two of constants: the paper's and the certified ones.

    Raises:
        DataError: there is no such graph.
    """

    def job(name: str) -> tuple[GraphRow, tuple[ConstantsRow, ...]]:
        program = case_of(name, seed, 0).program
        M, R, k = program.M, program.R, program.k
        row = GraphRow(
            name, M, R, k, program.rho_max,
            len(productive_roots(program)), len(program.leaves), depth_bound(program),
            parameter_count(program), parameter_count(program, "sparse"),
            lower_bound_bits(M, R, k), lower_bound_bits(M, R, k, printed=True),
            upper_bound_bits(M, R, k),
        )  # fmt: skip
        return row, tuple(_constants_row(name, kind, program) for kind in KINDS)

    found = each(job, graphs, "A construction", progress)
    return Construction(
        tuple(row for row, _ in found), tuple(row for _, rows in found for row in rows)
    )


def _constants_row(name: str, kind: str, program: Program) -> ConstantsRow:
    c = constants_of(kind, program)
    promise = paper_window(program, c)
    return ConstantsRow(
        name, kind, c.body, c.head, c.sharpness, c.confidence, c.gain, c.gate,
        c.gamma_plus, c.gamma_minus, promise.star, promise.star_holds,
    )  # fmt: skip


# -------------------------------------------------------------------- B


def expressivity(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    examples: int = EXAMPLES,
    progress: Progress | None = None,
) -> Expressivity:
    """Phase B: the operator against the symbolic closure, on random sets of 2 to 8 facts.

    >>> expressivity(["g1"], examples=20).holds
    True

    Args:
        graphs: some of "g1", "g2", "g3", "g4".
        seed: decides the graphs and the fact sets; a whole number from 0 on.
        device: where the models run.
        examples: the number of fact sets per graph.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        Two rows for each graph, with the paper's and with certified constants.

    Raises:
        DataError: there is no such graph.
    """

    def job(item: tuple[str, str]) -> ExpressivityRow:
        name, kind = item
        case = case_of(name, seed, examples)
        model = case.oracle(kind, device)
        states = model.iterate(state_of(case.facts, model), STEPS).states  # (T + 1, N, M)
        wanted = torch.from_numpy(case.closures).to(device)
        above = states > 0.5
        exact = (above == wanted).all(-1)  # (T + 1, N)
        first = torch.where(exact.any(0), exact.to(torch.int8).argmax(0), -1)
        final = above[-1]
        false = ((final & ~wanted).sum(-1) / (~wanted).sum(-1).clamp(min=1)).max()
        missed = ((~final & wanted).sum(-1) / wanted.sum(-1).clamp(min=1)).max()
        return ExpressivityRow(
            name, kind, examples, STEPS,
            accuracy=_share(exact[-1]),
            fpr=false.item(),
            fnr=missed.item(),
            t_conv=-1 if bool((first < 0).any()) else int(first.max()),
            t_conv_mean=float(first.double().mean()),
            depth=max(closure(case.program, row).depth for row in case.facts),
            leak=float(torch.where(wanted, 0.0, states[-1]).max()),
        )  # fmt: skip

    items = [(name, kind) for name in graphs for kind in KINDS]
    return Expressivity(each(job, items, "B expressivity", progress))


def _share(right: Tensor) -> float:
    return int(right.sum()) / right.numel()


# -------------------------------------------------------------------- G


def windows(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    progress: Progress | None = None,
) -> Windows:
    """Phase G: the certified window of each graph beside the one that the paper promises.

    >>> [(row.constants, row.holds) for row in windows(["g1"]).rows]
    [('paper', True), ('certified', True)]

    Args:
        graphs: some of "g1", "g2", "g3", "g4".
        seed: decides the graphs and the fact sets; a whole number from 0 on.
        device: where the models run.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        Two rows for each graph, with the paper's and with certified constants.

    Raises:
        DataError: there is no such graph.
    """

    def job(item: tuple[str, str]) -> WindowRow:
        name, kind = item
        case = case_of(name, seed, 15)
        model = case.oracle(kind, device)
        certificate = certify(model, case.program)
        facts = np.concatenate((case.facts, np.zeros((1, case.program.M), np.bool_)))
        wanted = torch.from_numpy(closures(case.program, facts)).to(device)
        state, done, measured = state_of(facts, model), 0, []
        for target in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            state, done = model(state, steps=target - done), target
            measured.append((target, float(torch.where(wanted, 0.0, state).max())))
        return WindowRow(
            name, kind,
            promised=finite(paper_window(case.program, constants_of(kind, case.program)).t_max),
            t_min=finite(certificate.t_min), t_max=finite(certificate.t_max),
            depth=certificate.depth, leak=certificate.leak, holds=certificate.holds,
            bound=_thinned(certificate.curve), measured=tuple(measured),
        )  # fmt: skip

    items = [(name, kind) for name in graphs for kind in KINDS]
    return Windows(each(job, items, "G windows", progress))


def _thinned(
    curve: Sequence[tuple[float, float]], points: int = 48
) -> tuple[tuple[float, float], ...]:
    """About so many points of a curve, evenly spaced in the logarithm of the steps."""
    inner = [point for point in curve if point[0] >= 1]
    if len(inner) <= points:
        return tuple(inner)
    steps = np.array([point[0] for point in inner])
    wish = np.geomspace(steps[0], steps[-1], points)
    places = sorted({*np.searchsorted(steps, wish).tolist(), len(inner) - 1} - {len(inner)})
    return tuple(inner[i] for i in places)


# -------------------------------------------------------------------- all of it


def picture(name: str, seed: int = 0, device: Device = "cpu") -> Picture:
    """A graph to draw, and a run from the first half of its productive roots.

    >>> found = picture("g1")
    >>> len(found.atoms), len(found.states)
    (33, 37)

    Args:
        name: "g1", "g2", "g3" or "g4".
        seed: decides the graph; a whole number from 0 on.
        device: where the model runs.

    Returns:
        The rules as indices of atoms, and the states of the run in percent, one row per step.

    Raises:
        DataError: there is no such graph.
    """
    case = case_of(name, seed, 0)
    program, roots = case.program, productive_roots(case.program)
    facts = program.mask(roots[: (len(roots) + 1) // 2])
    model = case.oracle("paper", device)
    with torch.no_grad():
        states = model.iterate(state_of(facts, model), STEPS).states.double().cpu().numpy()
    return Picture(
        name, program.atoms,
        tuple(tuple(program.heads_of(j).tolist()) for j in range(program.R)),
        tuple(tuple(program.body_of(j).tolist()) for j in range(program.R)),
        tuple(np.flatnonzero(facts).tolist()),
        tuple(tuple(row.tolist()) for row in np.rint(100 * states).astype(int)),
    )  # fmt: skip


def run_validation(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    perturbations: int = PERTURBATIONS,
    device: Device = "cpu",
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
) -> tuple[Validation, Timing]:
    """The results of all experiments of the paper, and how long they took.

    >>> from latentgamma import validation
    >>> results, timing = validation.run_validation(["g1", "g2"])  # doctest: +SKIP
    >>> results.holds  # doctest: +SKIP
    True

    Args:
        graphs: some of "g1", "g2", "g3", "g4", each at most once.
        seed: decides the graphs, the fact sets and the noise; a whole number from 0 on.
        perturbations: the number of noisy models per graph and level of noise, from 1 on.
        device: where the models run.
        progress: called after each job, with the phase, the jobs done and all jobs.
        checkpoint: a file for finished phases. If a run with the same arguments was killed, it
            is resumed from this file, with the same results. Any other content of the file is
            replaced. The file is yours to delete.

    Returns:
        The results of phases A to G, and the times, the machine and the versions.

    Raises:
        DataError: `graphs`, `seed` or `perturbations` is not one of those above.
    """
    chosen = tuple(graphs)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(GRAPHS):
        raise DataError(f"graphs are some of {', '.join(GRAPHS)}, each once, not {chosen!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise DataError(f"seed is a whole number from 0 on, not {seed!r}")
    if isinstance(perturbations, bool) or not isinstance(perturbations, int) or perturbations < 1:
        raise DataError(f"perturbations is a whole number from 1 on, not {perturbations!r}")
    key = repr(
        (FORMAT, seed, chosen, perturbations, str(device), machine_and_versions(str(device)))
    )
    phases = PhaseCheckpoint(None if checkpoint is None else Path(checkpoint), key)
    watch = PhaseTimer()
    run = partial(partial, seed=seed, progress=progress)
    on_device = partial(run, device=device)
    results = Validation(
        FORMAT, seed, chosen,
        watch("A", phases.run("construction", run(construction, chosen))),
        watch("B", phases.run("expressivity", on_device(expressivity, chosen))),
        watch("C", phases.run("robustness", on_device(robustness, chosen, perturbations=perturbations))),
        watch("D", phases.run("structure", on_device(structure, chosen))),
        watch("E", phases.run("edge_cases", on_device(edge_cases, chosen))),
        watch("F", phases.run("multi_head", on_device(multi_head))),
        watch("G", phases.run("windows", on_device(windows, chosen))),
        tuple(picture(name, seed, device) for name in chosen),
    )  # fmt: skip
    return results, watch.timing(str(device))
