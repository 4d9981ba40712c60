"""The search for a claim that is wrong: of a certificate, of `steps=None`, of a certified layer.

    python tests/adversary/search.py --seconds 3600 --seed 1 [--kinds pairs runs] [--device cuda]

Every case is drawn from its kind and one number, which a finding names.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from cases import KINDS, Case  # noqa: E402
from claims import check_certificate, check_layer, check_steps_none, check_tolerance, near  # noqa: E402
from pairs import (  # noqa: E402
    DTYPES,
    EDITS,
    change,
    closed_form,
    operators,
    others,
    random_model,
    random_rules,
    slow_down,
)
from truth import plain  # noqa: E402

import latentgamma as lg  # noqa: E402
from reference import every_fact_set  # noqa: E402

#: Steps that a case is run for inside of its window.
_MOST_STEPS = 300


class Outcome(NamedTuple):
    """What came of one case."""

    tried: int  # claims that were asked for
    held: int  # claims that were made, and compared with the closures
    wrong: list[str]


# ------------------------------------------------------------------------ one model, many steps


def inputs(case: Case, rng: np.random.Generator) -> list[torch.Tensor]:
    """The inputs of the fact sets: exact ones, or the corners and the inside of the tolerance."""
    corners = [np.ones(1), case.facts, ~case.facts, rng.random(case.facts.shape)]
    parts = corners if case.tolerance else corners[:1]
    return [near(case.facts, case.tolerance, case.model.dtype, part) for part in parts]


def run(
    case: Case, rng: np.random.Generator, most_steps: int = _MOST_STEPS, device: str = "cpu"
) -> Outcome:
    """Certify the model, and run it inside of the window by every way it can be run."""
    certificate = lg.certify(case.model, case.program, tolerance=case.tolerance)
    if not certificate.holds:
        return Outcome(1, 0, [])
    first = int(certificate.t_min)
    last = int(min(certificate.t_max, first + most_steps))
    if len(case.facts) * case.program.M > 10**5:
        last = min(last, first + 5)
    wanted, depths = plain(case.program).closures(case.facts)
    wrong = []
    if depths.max(initial=0) > certificate.depth:
        wrong.append(f"a fact set takes {depths.max()} steps, not {certificate.depth} at most")
    case.model.to(device)
    for state in inputs(case, rng):
        for kernel in ("auto", "reference"):
            case.model.kernel = kernel  # type: ignore[assignment]
            with torch.no_grad():
                support = case.model.iterate(state.to(device), last).support[first:].cpu().numpy()
            bad = int((support != wanted).any(-1).sum())
            if bad:
                wrong.append(f"{bad} fact sets and steps are wrong with kernel={kernel!r}")
    return Outcome(1, 1, wrong)


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


# ------------------------------------------------------------------------ other claims


def pairs(rng: np.random.Generator) -> Outcome:
    """A model, edited or not, compared with its program and with others."""
    program = random_rules(rng)
    model, edit = random_model(rng, program)
    tried, held, wrong = 0, 0, []
    for difference, other in others(rng, program):
        if other.levels() is None:
            continue
        options: dict[str, Any] = {}
        match int(rng.integers(6)):
            case 0:
                options["tolerance"] = float(rng.uniform(0.001, 0.3))
            case 1:
                options["depth"] = int(rng.integers(4))
            case 2:
                sets = every_fact_set(len(other.atoms))[rng.integers(2 ** len(other.atoms), size=2)]
                options["facts"] = [
                    [name for name, true in zip(other.atoms, row, strict=True) if true]
                    for row in sets
                ]
        holds, found = check_certificate(model, other, rng, **options)
        tried, held = tried + 1, held + holds
        wrong += [
            f"{edit}, {difference}, {options}: {one}\n  {program}\n  {other}" for one in found
        ]
    return Outcome(tried, held, wrong)


def slow_strata(rng: np.random.Generator) -> Outcome:
    """A model whose lower strata are slow: for long, what they pass on is just above one half."""
    program = random_rules(rng, 4, levels=3)
    while not any(rule.negated for rule in program.rules):
        program = random_rules(rng, 4, levels=3)
    dtype = DTYPES[int(rng.integers(2))]
    constants = closed_form(program, float(rng.uniform(0.2, 0.7)))
    model: Any = lg.oracle(lg.parse(str(program)), constants, dtype=dtype)
    evidence = float(rng.uniform(0.2, 0.9))
    for part in operators(model)[:-1]:
        slow_down(part, evidence)
    options = {"tolerance": float(rng.choice([0.0, 0.01]))}
    held, wrong = check_certificate(model, program, rng, **options)
    where = f"{dtype}, {evidence} below the offsets, {options}"
    return Outcome(1, held, [f"{where}: {one}\n  {program}" for one in wrong])


def runs(rng: np.random.Generator) -> Outcome:
    """A slow model, or one with dead rows, run with `steps=None` on states of every dtype."""
    if rng.random() < 0.4:
        program = random_rules(rng, 3, levels=2)
        model, edit = random_model(rng, program, "slow")
    else:
        program = random_rules(rng)
        model, edit = random_model(rng, program)
        if rng.random() < 0.7:
            change(rng, model, "dead rows")
            edit = f"{edit}, then dead rows"
    held, wrong = 0, []
    for dtype in DTYPES:
        answered, found = check_steps_none(model, dtype)
        held += answered
        wrong += [f"{edit}: {one}\n  {program}" for one in found]
    return Outcome(len(DTYPES), held, wrong)


def tolerances(rng: np.random.Generator) -> Outcome:
    """The largest tolerance of a model."""
    program = random_rules(rng, 5)
    model, edit = random_model(rng, program)
    held, wrong = check_tolerance(model, program, rng)
    return Outcome(1, held, [f"{edit}: {one}\n  {program}" for one in wrong])


def layers(rng: np.random.Generator) -> Outcome:
    """A certified layer, edited after its certificate was shown, and moved to another dtype."""
    program = random_rules(rng, 5, levels=1)
    delta = float(rng.choice([0.02, 0.05, 0.2, 0.4]))
    gate = ("sigmoid", "bump")[int(rng.integers(2))]
    names = list(program.atoms)
    layer = lg.Layer(lg.parse(str(program)), names, names)
    what = f"a layer with gate={gate!r}, tolerance={delta}"
    try:
        certified = layer.certified(tolerance=delta, gate=gate)  # type: ignore[arg-type]
    except lg.LatentGammaError as error:
        return Outcome(1, 0, [f"{what} is refused: {error}\n  {program}"])
    tried, held, wrong = 0, 0, []
    for edit in ("none", EDITS[int(rng.integers(len(EDITS)))], "dtype"):
        if edit == "dtype":
            certified.to(DTYPES[int(rng.integers(4))])
        else:
            change(rng, certified, edit)
        for dtype in DTYPES if edit == "dtype" else (torch.float32,):
            answered, found = check_layer(certified, program, delta, dtype)
            if edit == "none" and not answered:
                found.append("has no certificate that holds")
            tried, held = tried + 1, held + answered
            wrong += [f"{what}, {edit}, {dtype}: {one}\n  {program}" for one in found]
    return Outcome(tried, held, wrong)


OTHERS: dict[str, Callable[[np.random.Generator], Outcome]] = {
    "pairs": pairs,
    "slow_strata": slow_strata,
    "runs": runs,
    "tolerances": tolerances,
    "layers": layers,
}


def finding(kind: str, seed: int, *, edge: bool = False, device: str = "cpu") -> Outcome:
    """The outcome of one case; the same for the same arguments."""
    if kind in OTHERS:
        return OTHERS[kind](np.random.default_rng(seed))
    case = at_the_edge(kind, seed) if edge else KINDS[kind](np.random.default_rng(seed))
    return run(case, np.random.default_rng([seed, 2]), device=device)


def main() -> int:
    """Search until the time is up; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the models of single cases run")
    kinds = [*KINDS, *OTHERS]
    parser.add_argument("--kinds", nargs="*", default=kinds, choices=kinds)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tried: Counter[str] = Counter()
    held: Counter[str] = Counter()
    found, seed, end = 0, args.seed * 10**9, time.monotonic() + args.seconds
    while time.monotonic() < end:
        for kind in args.kinds:
            edge = kind in ("random", "trained", "extreme", "subnormal") and seed % 4 == 0
            outcome = finding(kind, seed, edge=edge, device=args.device)
            name = f"{kind}{' edge' if edge else ''}"
            tried[name] += outcome.tried
            held[name] += outcome.held
            found += bool(outcome.wrong)
            if outcome.wrong:
                print(
                    f"WRONG: finding({kind!r}, {seed}, edge={edge})", *outcome.wrong[:3], sep="\n  "
                )
        seed += 1
    for name in sorted(tried):
        print(f"{name}: {tried[name]:,} claims asked for, {held[name]:,} made")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
