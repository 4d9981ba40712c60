"""Phases D to F of the validation: properties that must hold on every graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from latentgamma import generators
from latentgamma._certificate.certify import certify
from latentgamma._certificate.closed_form import HeadSharing
from latentgamma._logic.closures import closures
from latentgamma._model.oracle import definite_oracle
from latentgamma._program.program import Program
from latentgamma.validation.cases import (
    GRAPHS,
    STEPS,
    Device,
    Progress,
    case_of,
    constants_of,
    each,
    finite,
    generator_for,
    productive_roots,
    state_of,
)
from latentgamma.validation.printed import EXAMPLES, TRAJECTORIES
from latentgamma.validation.results import (
    EdgeCase,
    EdgeCases,
    MultiHead,
    MultiHeadRow,
    StructureChecks,
    StructureRow,
)


def structure(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    states: int = EXAMPLES,
    trajectories: int = TRAJECTORIES,
    progress: Progress | None = None,
) -> StructureChecks:
    """Phase D: Lemma 5.1 and Propositions 5.2 and 5.4 on random states, without a tolerance.

    >>> structure(["g1"], states=20, trajectories=5).holds
    True

    Args:
        graphs: some of "g1", "g2", "g3", "g4".
        seed: decides the graphs and the states; a whole number from 0 on.
        device: where the models run.
        states: the number of random states per graph.
        trajectories: the number of runs per graph, at most `states`.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        One row for each graph: how many states and runs satisfy each law.

    Raises:
        DataError: there is no such graph.
    """

    def job(name: str) -> StructureRow:
        case = case_of(name, seed, 0)
        model = case.oracle("paper", device, torch.float64)
        rng = generator_for(seed, "states", name)
        drawn = rng.random((2, states, case.program.M))
        low, share = (torch.from_numpy(x).to(device) for x in drawn)
        high = low + (1 - low) * share
        after, above = model(low, steps=1), model(high, steps=1)
        run = model.iterate(low[:trajectories], STEPS).states  # (T + 1, N, M)
        bounded = (run[1:] >= run[:-1]).all(-1).all(0) & (run <= 1).all(-1).all(0)
        return StructureRow(
            name, states,
            rising=int((after >= low).all(-1).sum()),
            ordered=int((after <= above).all(-1).sum()),
            trajectories=trajectories,
            bounded=int(bounded.sum()),
        )  # fmt: skip

    return StructureChecks(each(job, graphs, "D structure", progress))


def edge_cases(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    progress: Progress | None = None,
) -> EdgeCases:
    """Phase E: no facts, single productive roots, all of them, and single leaves.

    >>> [row.case for row in edge_cases(["g1"]).rows]
    ['empty', 'root', 'all roots', 'leaf']

    Args:
        graphs: some of "g1", "g2", "g3", "g4".
        seed: decides the graphs; a whole number from 0 on.
        device: where the models run.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        One row for each case: the Jaccard index of the operator's result and the closure.

    Raises:
        DataError: there is no such graph.
    """

    def job(name: str) -> tuple[EdgeCase, ...]:
        case = case_of(name, seed, 0)
        program, roots = case.program, productive_roots(case.program)
        sets: list[tuple[str, tuple[str, ...]]] = [("empty", ())]
        sets += [("root", (root,)) for root in roots[:5]]
        sets += [("all roots", tuple(roots))]
        sets += [("leaf", (leaf,)) for leaf in program.leaves[:5]]
        model = case.oracle("paper", device)
        facts = np.stack([program.mask(facts) for _, facts in sets])
        above = (model(state_of(facts, model), steps=STEPS) > 0.5).cpu().numpy()
        wanted = closures(program, facts)
        shared, either = (above & wanted).sum(-1), (above | wanted).sum(-1)
        return tuple(
            EdgeCase(name, kind, given, int(right), int(both) / int(any_) if any_ else 1.0)
            for (kind, given), right, both, any_ in zip(
                sets, wanted.sum(-1), shared, either, strict=True
            )
        )

    found = each(job, graphs, "E edge cases", progress)
    return EdgeCases(tuple(row for rows in found for row in rows))


def multi_head(
    *, seed: int = 0, device: Device = "cpu", progress: Progress | None = None
) -> MultiHead:
    """Phase F: rules with two and three heads, with the thresholds of Appendix G and with ours.

    >>> [(row.head_sharing, row.mixed > 0.5) for row in multi_head().rows]
    [('paper', False), ('equal', True), ('equal', True)]

    Args:
        seed: decides the program; a whole number from 0 on.
        device: where the models run.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        One row for each pair of thresholds and constants.
    """
    program = generators.disjunctive(seed=seed)
    mixed = Program.from_rules([("x", ["a"]), (["x", "y", "z"], ["b"])])
    facts = np.stack([program.mask(program.body_of(j)) for j in range(program.R)])
    wanted = closures(program, facts)
    heads_of = np.stack([program.mask(program.heads_of(j)) for j in range(program.R)])

    def job(item: tuple[HeadSharing, str]) -> MultiHeadRow:
        sharing, kind = item
        constants = constants_of(kind, program)
        model = definite_oracle(
            program, constants, head_sharing=sharing, form="dense", device=device
        )
        states = model.iterate(state_of(facts, model), STEPS).states.cpu().numpy()
        exact = ((states > 0.5) == wanted).all(-1)  # (T + 1, R)
        small = definite_oracle(
            mixed, constants_of(kind, mixed), head_sharing=sharing, form="dense", device=device
        )
        reached = small(small.state(["b"]), steps=STEPS)[mixed.index["x"]]
        certificate = certify(model, program)
        return MultiHeadRow(
            sharing, kind, program.R,
            active=int(((states[-1] > 0.5) | ~heads_of).all(-1).sum()),
            exact=int(exact[-1].sum()),
            t_conv=int(exact.argmax(0).max()) if exact.any(0).all() else -1,
            certified=certificate.holds,
            t_max=finite(certificate.t_max) if certificate.holds else None,
            mixed=float(reached),
            steps=STEPS,
        )  # fmt: skip

    items: list[tuple[HeadSharing, str]] = [
        ("paper", "paper"),
        ("equal", "paper"),
        ("equal", "certified"),
    ]
    return MultiHead(each(job, items, "F several heads", progress))
