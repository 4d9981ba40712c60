"""Recomputes the paper's tables."""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma import generators
from latentgamma._arguments import whole_number, wrong
from latentgamma._progress import Progress
from latentgamma._version import __version__
from latentgamma.certificate.certify import certify
from latentgamma.certificate.constants import Constants, HeadSharing
from latentgamma.errors import DataError
from latentgamma.logic.closure import closure, depth_bound
from latentgamma.logic.closures import closures
from latentgamma.operator.model import LatentGamma, oracle
from latentgamma.paper.complexity import lower_bound_bits, parameter_count, upper_bound_bits
from latentgamma.paper.noise import (
    critical_sigma,
    flip_bound,
    flip_probability,
    misroute_bound,
    perturb,
)
from latentgamma.paper.results import (
    EXAMPLES,
    FORMAT,
    HEAD_SIGMAS,
    PERTURBATIONS,
    SIGMAS,
    TRAJECTORIES,
    ConstantsRow,
    Construction,
    CriticalRow,
    EdgeCase,
    EdgeCases,
    Expressivity,
    ExpressivityRow,
    GraphRow,
    MultiHead,
    MultiHeadRow,
    NoiseRow,
    Robustness,
    StructureChecks,
    StructureRow,
    Timing,
    Validation,
    WindowRow,
    Windows,
)
from latentgamma.paper.window import paper_window
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program

# ---- The graphs of the experiments with their fact sets, and workers that run jobs in parallel

GRAPHS = ("g1", "g2", "g3", "g4")
#: Every run takes this many steps: a few more than the deepest derivation, 32, needs.
STEPS = 36
KINDS = ("paper", "certified")

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
Device = torch.device | str


@dataclass(frozen=True)
class Case:
    """A graph with its fact sets and their closures."""

    name: str
    program: Program
    facts: Mask  # (N, M)
    closures: Mask  # (N, M)

    def oracle(self, kind: str, device: Device, dtype: torch.dtype = torch.float32) -> LatentGamma:
        """Return the dense model, with the paper's or the certified constants."""
        constants = constants_of(kind, self.program)
        return oracle(self.program, constants, form="dense", dtype=dtype, device=device)


def case_of(name: str, seed: int, examples: int = EXAMPLES) -> Case:
    """Return the program, fact sets and closures of one of the paper's graphs."""
    if name not in GRAPHS:
        raise DataError(f"graphs are {', '.join(GRAPHS)}, not {name!r}")
    program = getattr(generators, name)(seed=seed)
    rng = generator_for(seed, "facts", name)
    facts = np.zeros((examples, program.M), np.bool_)
    for row, size in zip(facts, rng.integers(2, 9, examples), strict=True):
        row[rng.choice(program.M, size, replace=False)] = True
    return Case(name, program, facts, closures(program, facts))


def constants_of(kind: str, program: Program) -> Constants:
    """Return the paper's constants, or the certified ones of the program."""
    return Constants.paper() if kind == "paper" else Constants.certified(program)


def generator_for(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a random generator for one purpose, independent of those for others."""
    words = [int.from_bytes(str(word).encode(), "big") for word in purpose]
    return np.random.default_rng([seed, *words])


def productive_roots(program: Program) -> list[str]:
    """Return the roots that alone derive at least one other atom."""
    return [root for root in program.roots if closure(program, root).depth > 0]


def state_of(facts: npt.NDArray[np.bool_], model: LatentGamma) -> Tensor:
    """Return fact sets as states on the model's device. (…, M)."""
    return torch.from_numpy(facts).to(device=model.device, dtype=model.dtype)


def finite(value: float) -> float | None:
    """Return the value, or None if it is infinite, which JSON cannot represent."""
    return value if math.isfinite(value) else None


# ---- Parallel jobs


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """Yield an executor with one worker per core, each computing on a single thread.

    Small matrix products are faster on one thread, and their sums have a fixed order, so that
    results are the same bit for bit.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        count = min(4, os.cpu_count() or 1)
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def each(
    job: Callable[[_Item], _Found], items: Iterable[_Item], phase: str, progress: Progress | None
) -> tuple[_Found, ...]:
    """Return the results of the job for every item, in order."""
    todo = list(items)

    def run(item: _Item) -> _Found:
        with torch.no_grad():  # a setting of each thread
            return job(item)

    found = []
    with _workers() as pool:
        for done, result in enumerate(pool.map(run, todo)):
            found.append(result)
            if progress is not None:
                progress(phase, done + 1, len(todo))
    return tuple(found)


# ---- Phases D to F of the validation: properties that must hold on every graph


def structure(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    states: int = EXAMPLES,
    trajectories: int = TRAJECTORIES,
    progress: Progress | None = None,
) -> StructureChecks:
    """Run phase D: Lemma 5.1 and Propositions 5.2 and 5.4 on random states, without a tolerance.

    >>> structure(["g1"], states=20, trajectories=5).holds
    True
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
    """Run phase E: no facts, single productive roots, all of them, and single leaves.

    >>> [row.case for row in edge_cases(["g1"]).rows]
    ['empty', 'root', 'all roots', 'leaf']
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
    """Run phase F: rules with two and three heads, with the thresholds of Appendix G and with ours.

    >>> [(row.head_sharing, row.mixed > 0.5) for row in multi_head().rows]
    [('paper', False), ('equal', True), ('equal', True)]
    """
    program = generators.disjunctive(seed=seed)
    mixed = Program.from_rules([("x", ["a"]), (["x", "y", "z"], ["b"])])
    facts = np.stack([program.mask(program.body_of(j)) for j in range(program.R)])
    wanted = closures(program, facts)
    heads_of = np.stack([program.mask(program.heads_of(j)) for j in range(program.R)])

    def job(item: tuple[HeadSharing, str]) -> MultiHeadRow:
        sharing, kind = item
        constants = constants_of(kind, program)
        model = oracle(program, constants, head_sharing=sharing, form="dense", device=device)
        states = model.iterate(state_of(facts, model), STEPS).states.cpu().numpy()
        exact = ((states > 0.5) == wanted).all(-1)  # (T + 1, R)
        small = oracle(
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


# ---- Phase C: accuracy and certificates of models with noise on their logits

#: Runs are checked every this many steps; examples that can no longer become right are dropped.
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
    """Run phase C: accuracy under noise, the bounds of Theorem 7.1, and certificates.

    >>> from latentgamma.paper import validation
    >>> results = validation.robustness(["g1"], perturbations=1)  # doctest: +SKIP
    >>> results.body[0].accuracy, results.holds  # doctest: +SKIP
    (1.0, True)
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
    """Return the fraction of examples with every atom correct after STEPS steps."""
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


# ---- The experiments of the paper, one function per phase: A to F as in the paper, and G, our own
# Each function takes the arguments of `run_validation` that it needs, and returns a frozen result. The
# same seed gives the same result, bit for bit: it decides graphs, fact sets and noise, and every job
# computes on one thread.

__all__ = [
    "GRAPHS", "STEPS", "Timing", "Validation", "run_validation",
    "construction", "expressivity", "robustness", "structure", "edge_cases", "multi_head",
    "windows",
]  # fmt: skip


# ---- A


def construction(
    graphs: Sequence[str] = GRAPHS, *, seed: int = 0, progress: Progress | None = None
) -> Construction:
    """Run phase A: the sizes of each graph, and the constants of its parameters.

    >>> row = construction(["g1"]).graphs[0]
    >>> row.M, row.R, row.depth
    (33, 32, 31)
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


# ---- B


def expressivity(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    examples: int = EXAMPLES,
    progress: Progress | None = None,
) -> Expressivity:
    """Run phase B: the operator against the symbolic closure, on random sets of 2 to 8 facts.

    >>> expressivity(["g1"], examples=20).holds
    True
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
            accuracy=int(exact[-1].sum()) / examples,
            fpr=false.item(),
            fnr=missed.item(),
            t_conv=-1 if bool((first < 0).any()) else int(first.max()),
            t_conv_mean=float(first.double().mean()),
            depth=max(closure(case.program, row).depth for row in case.facts),
            leak=float(torch.where(wanted, 0.0, states[-1]).max()),
        )  # fmt: skip

    items = [(name, kind) for name in graphs for kind in KINDS]
    return Expressivity(each(job, items, "B expressivity", progress))


# ---- G


def windows(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    device: Device = "cpu",
    progress: Progress | None = None,
) -> Windows:
    """Run phase G: the certified window of each graph beside the one that the paper promises.

    >>> [(row.constants, row.holds) for row in windows(["g1"]).rows]
    [('paper', True), ('certified', True)]
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
            bound=_thin_curve(certificate.curve), measured=tuple(measured),
        )  # fmt: skip

    items = [(name, kind) for name in graphs for kind in KINDS]
    return Windows(each(job, items, "G windows", progress))


def _thin_curve(
    curve: Sequence[tuple[float, float]], points: int = 48
) -> tuple[tuple[float, float], ...]:
    """Return about this many points of a curve, evenly spaced in the logarithm of the steps."""
    inner = [point for point in curve if point[0] >= 1]
    if len(inner) <= points:
        return tuple(inner)
    steps = np.array([point[0] for point in inner])
    wish = np.geomspace(steps[0], steps[-1], points)
    places = sorted({*np.searchsorted(steps, wish).tolist(), len(inner) - 1} - {len(inner)})
    return tuple(inner[i] for i in places)


# ---- All of it


def run_validation(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    perturbations: int = PERTURBATIONS,
    device: Device = "cpu",
    progress: Progress | None = None,
) -> tuple[Validation, Timing]:
    """Return the results of all experiments of the paper, and how long they took.

    >>> from latentgamma.paper import validation
    >>> results, timing = validation.run_validation(["g1", "g2"])  # doctest: +SKIP
    >>> results.holds  # doctest: +SKIP
    True

    Args:
        graphs: some of "g1", "g2", "g3", "g4", each at most once.
        seed: decides the graphs, the fact sets and the noise; a whole number from 0 on.
        perturbations: the number of noisy models per graph and level of noise, from 1 on.
        device: where the models run.
        progress: called after each job, with the phase, the jobs done and all jobs.

    Returns:
        The results of phases A to G, and the times, the machine and the versions.

    Raises:
        ArgumentError: `graphs`, `seed` or `perturbations` is not one of those above.
    """
    chosen = tuple(graphs)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(GRAPHS):
        raise wrong("graphs", f"some of {', '.join(GRAPHS)}, each once", chosen)
    whole_number("seed", seed)
    whole_number("perturbations", perturbations, 1)
    phases: list[tuple[str, float]] = []
    start, cpu = time.perf_counter(), time.process_time()

    def timed(letter: str, phase: Callable[..., _Found], *args: Any, **options: Any) -> _Found:
        before = time.perf_counter()
        found = phase(*args, seed=seed, progress=progress, **options)
        phases.append((letter, time.perf_counter() - before))
        return found

    noisy: dict[str, Any] = {"device": device, "perturbations": perturbations}
    results = Validation(
        FORMAT, seed, chosen,
        timed("A", construction, chosen),
        timed("B", expressivity, chosen, device=device),
        timed("C", robustness, chosen, **noisy),
        timed("D", structure, chosen, device=device),
        timed("E", edge_cases, chosen, device=device),
        timed("F", multi_head, device=device),
        timed("G", windows, chosen, device=device),
    )  # fmt: skip
    return results, Timing(
        str(device),
        *_machine_and_versions(str(device)),
        time.perf_counter() - start,
        time.process_time() - cpu,
        1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        tuple(phases),
    )


def _machine_and_versions(device: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the machine in words, and the name and version of each package that computes."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cpuinfo = ""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    processor = found[1].strip() if found else platform.processor() or platform.machine()
    parts = [processor, f"{os.cpu_count()} cores", platform.system()]
    if device.startswith("cuda"):
        parts.insert(0, torch.cuda.get_device_name(device))
    packages = [(name, version(name)) for name in ("torch", "numpy", "numba")]
    own = [("latentgamma", __version__), ("Python", platform.python_version())]
    return ", ".join(parts), (*own, *packages)
