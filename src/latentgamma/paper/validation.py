"""Recomputes the paper's tables: phases A to F are those of the paper, and G is our own.

The same seed gives the same results, bit for bit: it decides graphs, fact sets and noise, and every
job computes on one thread.
"""

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
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from latentgamma import generators
from latentgamma._arguments import whole_number, wrong
from latentgamma._progress import Progress
from latentgamma._version import __version__
from latentgamma.certificate.certify import certify
from latentgamma.certificate.constants import Constants, HeadSharing
from latentgamma.logic.closure import closure, depth_bound
from latentgamma.logic.closures import closures
from latentgamma.operator.model import LatentGamma, oracle
from latentgamma.paper.bounds import (
    flip_bound,
    flip_probability,
    lower_bound_bits,
    misroute_bound,
    parameter_count,
    perturb,
    upper_bound_bits,
)
from latentgamma.paper.results import (
    EXAMPLES,
    FORMAT,
    HEAD_SIGMAS,
    PERTURBATIONS,
    SIGMAS,
    TRAJECTORIES,
    ConstantsRow,
    EdgeCase,
    ExpressivityRow,
    GraphRow,
    MultiHeadRow,
    NoiseRow,
    StructureRow,
    Timing,
    Validation,
    WindowRow,
)
from latentgamma.paper.window import paper_window
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program

__all__ = [
    "GRAPHS", "STEPS", "Setup", "Timing", "Validation", "run_validation",
    "programs", "constants", "expressivity", "robustness", "structure", "edge_cases", "multi_head",
    "windows",
]  # fmt: skip

GRAPHS = ("g1", "g2", "g3", "g4")
#: Every run takes this many steps: a few more than the deepest derivation, 32, needs.
STEPS = 36
KINDS = ("paper", "certified")

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Setup:
    """What all phases share; the arguments of `run_validation`."""

    graphs: tuple[str, ...] = GRAPHS
    seed: int = 0
    device: torch.device | str = "cpu"
    examples: int = EXAMPLES  # fact sets or random states for each graph
    perturbations: int = PERTURBATIONS
    progress: Progress | None = None

    def both_constants(self) -> list[tuple[str, str]]:
        """Return each graph with each kind of constants."""
        return [(name, kind) for name in self.graphs for kind in KINDS]

    def case(self, name: str, examples: int = 0) -> Case:
        """Return a graph with this many fact sets of two to eight atoms."""
        program = getattr(generators, name)(seed=self.seed)
        rng = self.rng("facts", name)
        facts = np.zeros((examples, program.M), np.bool_)
        for row, size in zip(facts, rng.integers(2, 9, examples), strict=True):
            row[rng.choice(program.M, size, replace=False)] = True
        return Case(name, program, facts, closures(program, facts))

    def oracle(
        self, program: Program, kind: str, *, dtype: torch.dtype = torch.float32,
        head_sharing: HeadSharing = "equal",
    ) -> LatentGamma:  # fmt: skip
        """Return the dense model, with the paper's or the certified constants."""
        return oracle(
            program, constants_of(kind, program), form="dense", dtype=dtype, device=self.device,
            head_sharing=head_sharing,
        )  # fmt: skip

    def rng(self, *purpose: str | int) -> np.random.Generator:
        """Return a random generator for one purpose, independent of those for others."""
        words = [int.from_bytes(str(word).encode(), "big") for word in purpose]
        return np.random.default_rng([self.seed, *words])

    def each(
        self, phase: str, job: Callable[[_Item], _Found], items: Iterable[_Item]
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
                if self.progress is not None:
                    self.progress(phase, done + 1, len(todo))
        return tuple(found)


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


@dataclass(frozen=True)
class Case:
    """A graph with its fact sets and their closures."""

    name: str
    program: Program
    facts: Mask  # (N, M)
    closures: Mask  # (N, M)


def constants_of(kind: str, program: Program) -> Constants:
    """Return the paper's constants, or the certified ones of the program."""
    return Constants.paper() if kind == "paper" else Constants.certified(program)


def productive_roots(program: Program) -> list[str]:
    """Return the roots that alone derive at least one other atom."""
    return [root for root in program.roots if closure(program, root).depth > 0]


def state_of(facts: Mask, model: LatentGamma) -> Tensor:
    """Return fact sets as states on the model's device. (…, M)."""
    return torch.from_numpy(facts).to(device=model.device, dtype=model.dtype)


def finite(value: float) -> float | None:
    """Return the value, or None if it is infinite, which JSON cannot represent."""
    return value if math.isfinite(value) else None


# ---- A


def programs(setup: Setup) -> tuple[GraphRow, ...]:
    """Run phase A: the sizes of each graph, and the number of its parameters.

    >>> (row,) = programs(Setup(("g1",)))
    >>> row.M, row.R, row.depth
    (33, 32, 31)
    """

    def job(name: str) -> GraphRow:
        program = setup.case(name).program
        M, R, k = program.M, program.R, program.k
        return GraphRow(
            name, M, R, k, program.rho_max,
            len(productive_roots(program)), len(program.leaves), depth_bound(program),
            parameter_count(program), parameter_count(program, "sparse"),
            lower_bound_bits(M, R, k), lower_bound_bits(M, R, k, printed=True),
            upper_bound_bits(M, R, k),
        )  # fmt: skip

    return setup.each("A programs", job, setup.graphs)


def constants(setup: Setup) -> tuple[ConstantsRow, ...]:
    """Run phase A: the paper's and the certified constants of each graph."""

    def job(item: tuple[str, str]) -> ConstantsRow:
        name, kind = item
        program = setup.case(name).program
        c = constants_of(kind, program)
        promise = paper_window(program, c)
        return ConstantsRow(
            name, kind, c.body, c.head, c.sharpness, c.confidence, c.gain, c.gate,
            c.gamma_plus, c.gamma_minus, promise.star, promise.star_holds,
        )  # fmt: skip

    return setup.each("A constants", job, setup.both_constants())


# ---- B


def expressivity(setup: Setup) -> tuple[ExpressivityRow, ...]:
    """Run phase B: the operator against the symbolic closure, on random sets of 2 to 8 facts.

    >>> [row.accuracy for row in expressivity(Setup(("g1",), examples=20))]
    [1.0, 1.0]
    """

    def job(item: tuple[str, str]) -> ExpressivityRow:
        name, kind = item
        case = setup.case(name, setup.examples)
        model = setup.oracle(case.program, kind)
        states = model.iterate(state_of(case.facts, model), STEPS).states  # (T + 1, N, M)
        wanted = torch.from_numpy(case.closures).to(model.device)
        above = states > 0.5
        exact = (above == wanted).all(-1)  # (T + 1, N)
        first = torch.where(exact.any(0), exact.to(torch.int8).argmax(0), -1)
        final = above[-1]
        false = ((final & ~wanted).sum(-1) / (~wanted).sum(-1).clamp(min=1)).max()
        missed = ((~final & wanted).sum(-1) / wanted.sum(-1).clamp(min=1)).max()
        return ExpressivityRow(
            name, kind, setup.examples, STEPS,
            accuracy=int(exact[-1].sum()) / setup.examples,
            fpr=false.item(),
            fnr=missed.item(),
            t_conv=-1 if bool((first < 0).any()) else int(first.max()),
            t_conv_mean=float(first.double().mean()),
            depth=max(closure(case.program, row).depth for row in case.facts),
            leak=float(torch.where(wanted, 0.0, states[-1]).max()),
        )  # fmt: skip

    return setup.each("B expressivity", job, setup.both_constants())


# ---- C

#: Runs are checked every this many steps; examples that can no longer become right are dropped.
_CHECK_INTERVAL = 9


def robustness(setup: Setup) -> tuple[NoiseRow, ...]:
    """Run phase C: accuracy under noise, the bounds of Theorem 7.1, and certificates.

    >>> rows = robustness(Setup(("g1",), perturbations=1))  # doctest: +SKIP
    >>> rows[0].accuracy, all(row.holds for row in rows)  # doctest: +SKIP
    (1.0, True)
    """
    cases = {name: setup.case(name, setup.examples) for name in setup.graphs}
    models = {name: setup.oracle(case.program, "paper") for name, case in cases.items()}

    def trial(item: tuple[str, str, float, int]) -> tuple[float, int, bool, bool, float | None]:
        logits, name, sigma, repetition = item
        seed = int(setup.rng(logits, name, f"{sigma:g}", repetition).integers(2**62))
        both = (sigma, 0.0) if logits == "body" else (0.0, sigma)
        model = models[name]
        noisy = perturb(model, *both, torch.Generator().manual_seed(seed))
        before, after = model.rules.to_dense(), noisy.rules.to_dense()
        if logits == "body":
            events = int(((before.body_logits > 0) != (after.body_logits > 0)).sum())
        else:
            events = int((before.head_logits.argmax(-1) != after.head_logits.argmax(-1)).sum())
        certificate = certify(noisy, cases[name].program)
        t_max = finite(certificate.t_max) if certificate.holds else None
        accuracy = _accuracy(noisy, cases[name])
        return accuracy, events, certificate.holds, certificate.covers(STEPS), t_max

    levels = [("body", s) for s in SIGMAS] + [("head", s) for s in HEAD_SIGMAS]
    keys = [(logits, name, sigma) for name in setup.graphs for logits, sigma in levels]
    # The largest graph first, so that all workers finish at about the same time.
    items = [
        (*key, repetition) for key in reversed(keys) for repetition in range(setup.perturbations)
    ]
    found = dict(zip(items, setup.each("C robustness", trial, items), strict=True))
    rows = []
    for logits, name, sigma in keys:
        size, paper = (cases[name].program.R, cases[name].program.M), Constants.paper()
        if logits == "body":
            bound = flip_bound(*size, paper.body, sigma)
            probability = flip_probability(*size, paper.body, sigma)
        else:
            bound, probability = misroute_bound(*size, paper.head, sigma), None
        trials = [found[logits, name, sigma, i] for i in range(setup.perturbations)]
        rows.append(NoiseRow(logits, name, sigma, bound, probability, *zip(*trials, strict=True)))
    return tuple(rows)


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


# ---- D, E and F: properties that must hold on every graph


def structure(setup: Setup) -> tuple[StructureRow, ...]:
    """Run phase D: Lemma 5.1 and Propositions 5.2 and 5.4 on random states, without a tolerance.

    >>> structure(Setup(("g1",), examples=20))[0].holds
    True
    """

    def job(name: str) -> StructureRow:
        program = setup.case(name).program
        model = setup.oracle(program, "paper", dtype=torch.float64)
        drawn = setup.rng("states", name).random((2, setup.examples, program.M))
        low, share = (torch.from_numpy(x).to(model.device) for x in drawn)
        high = low + (1 - low) * share
        after, above = model(low, steps=1), model(high, steps=1)
        run = model.iterate(low[:TRAJECTORIES], STEPS).states  # (T + 1, N, M)
        bounded = (run[1:] >= run[:-1]).all(-1).all(0) & (run <= 1).all(-1).all(0)
        return StructureRow(
            name, setup.examples,
            rising=int((after >= low).all(-1).sum()),
            ordered=int((after <= above).all(-1).sum()),
            trajectories=len(bounded),
            bounded=int(bounded.sum()),
        )  # fmt: skip

    return setup.each("D structure", job, setup.graphs)


def edge_cases(setup: Setup) -> tuple[EdgeCase, ...]:
    """Run phase E: no facts, single productive roots, all of them, and single leaves.

    >>> [row.case for row in edge_cases(Setup(("g1",)))]
    ['empty', 'root', 'all roots', 'leaf']
    """

    def job(name: str) -> tuple[EdgeCase, ...]:
        program = setup.case(name).program
        roots = productive_roots(program)
        sets: list[tuple[str, tuple[str, ...]]] = [("empty", ())]
        sets += [("root", (root,)) for root in roots[:5]]
        sets += [("all roots", tuple(roots))]
        sets += [("leaf", (leaf,)) for leaf in program.leaves[:5]]
        model = setup.oracle(program, "paper")
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

    return tuple(row for rows in setup.each("E edge cases", job, setup.graphs) for row in rows)


def multi_head(setup: Setup) -> tuple[MultiHeadRow, ...]:
    """Run phase F: rules with two and three heads, with the thresholds of Appendix G and with ours.

    >>> [(row.head_sharing, row.mixed > 0.5) for row in multi_head(Setup())]
    [('paper', False), ('equal', True), ('equal', True)]
    """
    program = generators.disjunctive(seed=setup.seed)
    mixed = Program.from_rules([("x", ["a"]), (["x", "y", "z"], ["b"])])
    facts = np.stack([program.mask(program.body_of(j)) for j in range(program.R)])
    wanted = closures(program, facts)
    heads_of = np.stack([program.mask(program.heads_of(j)) for j in range(program.R)])

    def job(item: tuple[HeadSharing, str]) -> MultiHeadRow:
        sharing, kind = item
        model = setup.oracle(program, kind, head_sharing=sharing)
        states = model.iterate(state_of(facts, model), STEPS).states.cpu().numpy()
        exact = ((states > 0.5) == wanted).all(-1)  # (T + 1, R)
        small = setup.oracle(mixed, kind, head_sharing=sharing)
        certificate = certify(model, program)
        return MultiHeadRow(
            sharing, kind, program.R,
            active=int(((states[-1] > 0.5) | ~heads_of).all(-1).sum()),
            exact=int(exact[-1].sum()),
            t_conv=int(exact.argmax(0).max()) if exact.any(0).all() else -1,
            certified=certificate.holds,
            t_max=finite(certificate.t_max) if certificate.holds else None,
            mixed=float(small(small.state(["b"]), steps=STEPS)[mixed.index["x"]]),
            steps=STEPS,
        )  # fmt: skip

    items: list[tuple[HeadSharing, str]] = [
        ("paper", "paper"),
        ("equal", "paper"),
        ("equal", "certified"),
    ]
    return setup.each("F several heads", job, items)


# ---- G


def windows(setup: Setup) -> tuple[WindowRow, ...]:
    """Run phase G: the certified window of each graph beside the one that the paper promises.

    >>> [(row.constants, row.certified) for row in windows(Setup(("g1",)))]
    [('paper', True), ('certified', True)]
    """

    def job(item: tuple[str, str]) -> WindowRow:
        name, kind = item
        case = setup.case(name, 15)
        model = setup.oracle(case.program, kind)
        certificate = certify(model, case.program)
        facts = np.concatenate((case.facts, np.zeros((1, case.program.M), np.bool_)))
        wanted = torch.from_numpy(closures(case.program, facts)).to(model.device)
        state, done, measured = state_of(facts, model), 0, []
        for target in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            state, done = model(state, steps=target - done), target
            measured.append((target, float(torch.where(wanted, 0.0, state).max())))
        return WindowRow(
            name, kind,
            promised=finite(paper_window(case.program, constants_of(kind, case.program)).t_max),
            t_min=finite(certificate.t_min), t_max=finite(certificate.t_max),
            depth=certificate.depth, leak=certificate.leak, certified=certificate.holds,
            bound=_thin_curve(certificate.curve), measured=tuple(measured),
        )  # fmt: skip

    return setup.each("G windows", job, setup.both_constants())


def _thin_curve(curve: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return about 48 points of a curve, evenly spaced in the logarithm of the steps."""
    inner = [point for point in curve if point[0] >= 1]
    if len(inner) <= 48:
        return tuple(inner)
    steps = np.array([point[0] for point in inner])
    wish = np.geomspace(steps[0], steps[-1], 48)
    places = sorted({*np.searchsorted(steps, wish).tolist(), len(inner) - 1} - {len(inner)})
    return tuple(inner[i] for i in places)


# ---- All of it


def run_validation(
    graphs: Sequence[str] = GRAPHS,
    *,
    seed: int = 0,
    perturbations: int = PERTURBATIONS,
    device: torch.device | str = "cpu",
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
    setup = Setup(chosen, seed, device, perturbations=perturbations, progress=progress)
    seconds: dict[str, float] = {}
    start, cpu = time.perf_counter(), time.process_time()

    def timed(letter: str, phase: Callable[[Setup], _Found]) -> _Found:
        before = time.perf_counter()
        found = phase(setup)
        seconds[letter] = seconds.get(letter, 0.0) + time.perf_counter() - before
        return found

    results = Validation(
        FORMAT,
        seed,
        chosen,
        timed("A", programs),
        timed("A", constants),
        timed("B", expressivity),
        timed("C", robustness),
        timed("D", structure),
        timed("E", edge_cases),
        timed("F", multi_head),
        timed("G", windows),
    )
    return results, Timing(
        str(device),
        *_machine_and_versions(str(device)),
        time.perf_counter() - start,
        time.process_time() - cpu,
        1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        tuple(seconds.items()),
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
