"""The search for a model that is certified and wrong.

    python tests/adversary/search.py --seconds 3600 --seed 1 [--device cuda]

Every case is drawn from its kind and one number, which a finding names.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from cases import KINDS, Case  # noqa: E402

import latentgamma as lg  # noqa: E402

#: Steps that a case is run for inside of its window.
_MOST_STEPS = 300


class Outcome(NamedTuple):
    """What came of one case."""

    held: bool  # whether there was a window at all
    wrong: int  # fact sets and steps inside of the window that were wrong
    short: bool  # whether the end of the window was run to


def inputs(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """The inputs of the fact sets: exact ones, or the corners and the inside of the tolerance."""
    if case.tolerance == 0:
        return [case.facts.astype(float)]
    low = case.tolerance
    part = rng.random(case.facts.shape)
    return [
        np.where(case.facts, 1 - low, low),
        np.where(case.facts, 1.0, low),
        np.where(case.facts, 1 - low, 0.0),
        np.where(case.facts, 1 - low * part, low * part),
    ]


def stored_within(values: np.ndarray, case: Case) -> torch.Tensor:
    """The inputs in the dtype of the model; what rounding takes out of the tolerance is put back."""
    state = torch.from_numpy(values).to(case.model.dtype)
    low = torch.nextafter(state, torch.zeros_like(state))
    high = torch.nextafter(state, torch.ones_like(state))
    facts = torch.from_numpy(case.facts)
    state = torch.where(facts & (state.double() < 1 - case.tolerance), high, state)
    return torch.where(~facts & (state.double() > case.tolerance), low, state)


def run(
    case: Case,
    rng: np.random.Generator,
    most_steps: int = _MOST_STEPS,
    device: str = "cpu",
) -> Outcome:
    """Certify the model, and run it inside of the window by every way it can be run."""
    certificate = lg.certify(case.model, case.program, tolerance=case.tolerance)
    if not certificate.holds:
        return Outcome(False, 0, False)
    first = int(certificate.t_min)
    last = int(min(certificate.t_max, first + most_steps))
    if len(case.facts) * case.program.M > 10**5:
        last = min(last, first + 5)
    wanted = torch.from_numpy(lg.closures(case.program, case.facts))
    deep = [lg.closure(case.program, row).depth <= certificate.depth for row in case.facts[:64]]
    wrong = 0
    case.model.to(device)
    for values in inputs(case, rng):
        state = stored_within(values, case).to(device)
        for kernel in ("auto", "reference"):
            case.model.kernel = kernel  # type: ignore[assignment]
            with torch.no_grad():
                support = case.model.iterate(state, last).support[first:].cpu()
            wrong += int((support != wanted).any(-1).sum())
    assert all(deep), "the bound on the depth does not hold"
    return Outcome(True, wrong, certificate.t_max <= first + most_steps)


def at_the_edge(kind: str, seed: int) -> Case:
    """The case of a seed, with one parameter moved to where its certificate begins to hold."""
    case = KINDS[kind](np.random.default_rng(seed))
    rng = np.random.default_rng([seed, 1])
    names = [name for name, parameter in case.model.named_parameters() if parameter.numel()]
    parameter = dict(case.model.named_parameters())[names[int(rng.integers(len(names)))]]
    place = tuple(int(rng.integers(n)) for n in parameter.shape)
    start = float(parameter.detach()[place])

    def holds(value: float) -> bool:
        with torch.no_grad():
            parameter[place] = value
        found = lg.certify(case.model, case.program, tolerance=case.tolerance)
        return found.holds and found.t_max >= found.t_min + 20

    if not holds(start):
        return case
    good, bad = start, start + float(rng.choice([-1.0, 1.0])) * (1 + abs(start))
    for _ in range(5):
        if not holds(bad):
            break
        good, bad = bad, start + 4 * (bad - start)
    for _ in range(30):
        middle = (good + bad) / 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    holds(good)
    return case


def finding(kind: str, seed: int, *, edge: bool = False, device: str = "cpu") -> Outcome:
    """The outcome of one case; the same for the same arguments."""
    case = at_the_edge(kind, seed) if edge else KINDS[kind](np.random.default_rng(seed))
    return run(case, np.random.default_rng([seed, 2]), device=device)


def main() -> int:
    """Search until the time is up; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the models run")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    tried: Counter[str] = Counter()
    found, seed, end = [], args.seed * 10**9, time.monotonic() + args.seconds
    while time.monotonic() < end:
        for kind in args.kinds:
            edge = kind not in ("long_sum", "kernel") and seed % 4 == 0
            outcome = finding(kind, seed, edge=edge, device=args.device)
            tried[f"{kind}{' edge' if edge else ''}: {'held' if outcome.held else 'nothing'}"] += 1
            if outcome.wrong:
                found.append((kind, seed, edge))
                print(f"WRONG: finding({kind!r}, {seed}, edge={edge})", flush=True)
        seed += 1
    for name, count in sorted(tried.items()):
        print(f"{count:8,}  {name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
