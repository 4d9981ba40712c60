"""The search for a certified model on which `steps=None` stops too early.

    python tests/adversary/dead_rows.py --models 10000 [--seed 1] [--processes 8] [--device cuda]

The rows of these models are not the rules of their programs one by one, but have the same closures:
dead rows, redundant rows, two rows merged into one, rows of another program with the same closures.
On all fact sets, in each dtype, `steps=None`, `steps=t_min` and the closure must agree.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from cases import DTYPES  # noqa: E402
from processes import run  # noqa: E402

import latentgamma as lg  # noqa: E402
from random_programs import random_program  # noqa: E402
from reference import every_fact_set  # noqa: E402

_MOST_ATOMS = 7


class Outcome(NamedTuple):
    """What came of one model in one dtype."""

    held: bool
    wrong: bool
    deeper: bool  # whether the rows take more steps than the program, from a single fact


def implied_rules(
    program: Any, rng: np.random.Generator, count: int
) -> list[tuple[str, list[str]]]:
    """Rules that follow from a program: a shortcut from some facts to an atom of their closure."""
    found = []
    for _ in range(4 * count):
        size = int(rng.integers(1, 3))
        facts = [
            program.atoms[i] for i in rng.choice(program.M, min(size, program.M), replace=False)
        ]
        derived = sorted(lg.closure(program, facts).atoms - set(facts))
        if derived and len(found) < count:
            found.append((derived[int(rng.integers(len(derived)))], facts))
    return found


def chain(rng: np.random.Generator) -> Any:
    """A chain of up to `_MOST_ATOMS` atoms, deep for its size."""
    M = int(rng.integers(3, _MOST_ATOMS + 1))
    return lg.Program.from_rules([(f"a{i + 1}", [f"a{i}"]) for i in range(M - 1)])


def drawn(seed: int) -> tuple[Any, Any, str]:
    """A model, the program that it is built from, and what was done to it."""
    rng = np.random.default_rng(seed)
    base = chain(rng) if rng.random() < 0.5 else random_program(
        rng, int(rng.integers(2, _MOST_ATOMS + 1)), int(rng.integers(1, 8)), body=2, heads=1
    )  # fmt: skip
    extra = implied_rules(base, rng, int(rng.integers(1, 5)))
    rules = [(rule.heads, sorted(rule.body)) for rule in base.rules] + extra
    order = rng.permutation(len(rules)).tolist()
    program = lg.Program.from_rules([rules[j] for j in order], atoms=base.atoms)
    redundant = [k for k, j in enumerate(order) if j >= base.R]
    kind = ("dead", "faint", "merged", "redundant", "other")[int(rng.integers(5))]
    form, gate = (
        ("dense", "sparse")[int(rng.integers(2))],
        ("sigmoid", "bump")[int(rng.random() < 0.2)],
    )
    constants = lg.Constants.closed_form(program, float(rng.uniform(0.6, 1.6)))
    options: dict[str, Any] = {"form": form, "gate": gate}
    if kind in ("redundant", "other"):  # a model of the one program, certified against the other
        built, named = (program, base) if kind == "redundant" else (base, program)
        model = lg.oracle(built, constants, **options)
        model.program = named
        return model, named, kind
    model = lg.oracle(program, constants, **options)
    with torch.no_grad():
        for row in redundant:
            if kind == "dead":
                model.confidence_raw[row] = -40.0
            elif kind == "faint":  # the body needs more than it has
                model.threshold[row] += float(rng.uniform(0.6, 2.0))
            else:
                _merge(model, row, int(rng.integers(program.R)))
    return model, program, kind


def _merge(model: Any, row: int, other: int) -> None:
    """Give a row the body and the head of another: they then are one rule."""
    if model.rules.literals().body_rule.numel() == 0 or type(model.rules).__name__ != "DenseRules":
        model.confidence_raw[row] = -40.0
        return
    for logits in (model.rules.body_logits, model.rules.head_logits):
        logits[row] = logits[other]
    model.threshold[row] = model.threshold[other]


def outcomes(seed: int, device: str = "cpu") -> list[tuple[str, Outcome]]:
    """The outcomes of one model in the four dtypes of its states, and as a model of that dtype."""
    model, program, kind = drawn(seed)
    facts = every_fact_set(program.M)
    wanted = torch.from_numpy(lg.closures(program, facts))
    model = model.to(device)
    found = []
    for dtype in DTYPES:
        # Every other model keeps its own dtype, and only its states have this one.
        if seed % 2:
            model = model.to(dtype)
        name = str(dtype).removeprefix("torch.")
        certificate = lg.certify(model, program, dtype=name)
        if not certificate.holds:
            found.append((kind, Outcome(False, False, False)))
            continue
        state = torch.from_numpy(facts).to(device, dtype)
        with torch.no_grad():
            ran = [model(state), model(state), model(state, int(certificate.t_min))]
        wrong = any(not torch.equal((after > 0.5).cpu(), wanted) for after in ran)
        if seed % 2:
            some = int(np.random.default_rng(seed).integers(len(facts)))
            names = frozenset(np.array(program.atoms)[facts[some]].tolist())
            wrong |= model.closure(names) != lg.closure(program, names).atoms
        rules = certificate.rules[0]
        deeper = any(
            lg.closure(rules, [name]).depth > lg.closure(program, [name]).depth
            for name in (program.atoms if rules != program else ())
        )
        found.append((kind, Outcome(True, wrong, deeper)))
    return found


def search(count: int, seed: int = 0, device: str = "cpu") -> tuple[Counter[str], list[str]]:
    """So many certified models: how many of each kind, and the seeds of those that are wrong."""
    tried: Counter[str] = Counter()
    wrong = []
    while tried["certified models"] < count:
        found = outcomes(seed, device)
        for kind, outcome in found:
            tried[f"{kind}: {'certified' if outcome.held else 'not certified'}, by dtype"] += 1
            tried["deeper than the program, by dtype"] += outcome.deeper
        tried["models"] += 1
        tried["certified models"] += any(outcome.held for _, outcome in found)
        if any(outcome.wrong for _, outcome in found):
            wrong.append(f"outcomes({seed})")
        seed += 1
    return tried, wrong


def main() -> int:
    """Search; 1 if something was found."""
    _, wrong = run(search, "models", 10_000, __doc__)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
