"""The search for a model that is certified against a program with other closures.

    python tests/adversary/strata.py --pairs 100000 [--seed 1] [--processes 8] [--device cuda]

A model of up to 8 atoms, mostly with negation, is compared with its own program, written in several
ways, and with programs that differ in one place; or it is the model that is changed: other wires
between its strata, another split into strata. What is right is computed for all fact sets by code
that shares nothing with the library.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from claims import near  # noqa: E402
from pairs import DTYPES, others, random_rules, renamed  # noqa: E402
from processes import run  # noqa: E402
from truth import PlainProgram  # noqa: E402

import latentgamma as lg  # noqa: E402
from latentgamma.certificate.parts import Places  # noqa: E402
from reference import every_fact_set  # noqa: E402

#: How hard the constants are whose certificates are found quickly; every so many programs have
#: those of `lg.oracle`.
_HARDNESS = 2.5
_PLAIN_ORACLE_EVERY = 10
#: The other programs that are the model's own, written otherwise.
_OWN = ("same", "permuted", "only the rules permuted", "a rule twice")


def closed(state: np.ndarray, rules: list[tuple[int, list[int]]]) -> np.ndarray:
    """The states closed under definite rules. (N, m)."""
    state, before = state.copy(), None
    while before is None or not np.array_equal(before, state):
        before = state.copy()
        for head, body in rules:
            state[:, head] |= state[:, body].all(1)
    return state


@dataclass
class Model:
    """A model, and what its parts compute if each of them is exact."""

    model: Any
    parts: list[tuple[Any, Places]]  # the definite program of each part, and its places
    names: tuple[str, ...]
    runs: bool = True  # whether the model has a forward

    def closures(self) -> np.ndarray:
        """What the parts compute of every fact set, one after another. (2^M, M)."""
        state = every_fact_set(len(self.names))
        for program, (atom, negated, written) in self.parts:
            rules = [
                (int(head), program.body_of(j).tolist())
                for j in range(program.R)
                for head in program.heads_of(j)
            ]
            after = closed(state[:, atom] ^ negated, rules)
            state[:, atom[written]] = after[:, written]
        return state


# -------------------------------------------------------------------- what is drawn


def model_of(text: PlainProgram, rng: np.random.Generator, *, plain: bool) -> Model:
    """An oracle of a program: with its default constants, or with hard ones."""
    program = lg.parse(str(text))
    constants = None
    if not plain:
        largest = max((s.program for s in program.strata), key=lambda p: (p.M, p.R), default=None)
        constants = None if largest is None else lg.Constants.closed_form(largest, _HARDNESS)
    # With hard constants nothing leaks at all but in float64, where following leaks takes long.
    dtype = DTYPES[int(rng.integers(0 if plain else 1, 2 if plain else 4))]
    gate = ("sigmoid", "bump")[int(rng.random() < 0.2)]
    model = lg.oracle(program, constants, dtype=dtype, gate=gate)  # type: ignore[call-overload]
    return Model(model, wired(model, program), program.atoms)


def wired(model: Any, program: Any) -> list[tuple[Any, Places]]:
    """The programs of the parts, with the places that the model has."""
    return [(s.program, p) for s, p in zip(program.strata, model.places, strict=True)]


@dataclass(frozen=True)
class Split:
    """Models of definite programs with wires between them: what a certificate reads of strata."""

    atoms: tuple[str, ...]
    parts: list[Any] = field(default_factory=list)
    places: list[Places] = field(default_factory=list)


def split_model(text: PlainProgram, rng: np.random.Generator) -> Model:
    """The rules of a program in strata of their own: mostly by level, some moved elsewhere."""
    level = text.levels() or {}
    wanted = np.array([max(level[head] for head in rule.heads) for rule in text.rules])
    moved = rng.random(len(wanted)) < 0.3
    wanted = np.where(moved, wanted + rng.integers(-1, 3, len(wanted)), wanted)
    split = Split(text.atoms)
    found = []
    for number in np.unique(wanted).tolist():
        rules = [rule for rule, at in zip(text.rules, wanted, strict=True) if at == number]
        heads = {head for r in rules for head in r.heads}
        literals = [(name, False) for name in sorted(heads.union(*(r.body for r in rules)))]
        literals += [(name, True) for name in sorted(set().union(*(r.negated for r in rules)))]
        literals = [literals[k] for k in rng.permutation(len(literals))]
        local = {literal: f"x{k}" for k, literal in enumerate(literals)}
        program = lg.Program.from_rules(
            [
                (
                    [local[head, False] for head in r.heads],
                    [local[i, False] for i in r.body] + [local[i, True] for i in r.negated],
                )
                for r in rules
            ],
            atoms=list(local.values()),
        )
        written = [k for k, (name, sign) in enumerate(literals) if not sign and name in heads]
        if rng.random() < 0.1 and written:
            written = written[1:]
        places = Places(
            np.array([text.atoms.index(name) for name, _ in literals]),
            np.array([sign for _, sign in literals]),
            np.array(written, int),
        )
        split.parts.append(lg.oracle(program, lg.Constants.closed_form(program, _HARDNESS)))
        split.places.append(places)
        found.append((program, places))
    return Model(split, found, text.atoms, runs=False)


def rewired(model: Model, rng: np.random.Generator) -> Model:
    """A model of strata with one wire changed; where it has none, the model itself."""
    if model.model.definite:
        return model
    changed = copy.deepcopy(model.model)
    s = int(rng.integers(len(changed.parts)))
    atom, negated, derived = (getattr(changed, f"{x}_{s}") for x in ("atom", "negated", "derived"))
    k = int(rng.integers(len(atom)))
    kind = rng.integers(3)
    if kind == 0:
        negated[k] = ~negated[k]
    elif kind == 1:
        atom[k] = int(rng.integers(changed.M))
    elif len(derived):
        setattr(changed, f"derived_{s}", derived[1:])
    return Model(changed, wired(changed, changed.program), model.names)


# -------------------------------------------------------------------- what comes of it


class Pair(NamedTuple):
    """A model, and the program that it is compared with."""

    kind: str
    model: Model
    text: PlainProgram
    own: bool = False  # whether it is the model's own program, so that it should be certified
    tolerance: float = 0.0


def pairs(seed: int) -> Iterator[Pair]:
    """The pairs of one seed: a program, its model, and other programs and models."""
    rng = np.random.default_rng(seed)
    text = random_rules(rng, 8, levels=4)
    model = model_of(text, rng, plain=seed % _PLAIN_ORACLE_EVERY == 0)
    for kind, other in others(rng, text):
        if other.levels() is not None:
            yield Pair(kind, model, other, own=kind in _OWN)
    permuted = dict(others(rng, text))["permuted"]
    yield Pair("soft inputs", model, permuted, tolerance=float(rng.uniform(0, 0.2)))
    if not model.model.definite:
        names = {name: f"{name}_1" for name in text.atoms}
        program = lg.parse(str(renamed(text, names)))
        again = lg.LatentGamma.from_strata(list(model.model.parts), program)
        consistently = Model(again, wired(again, program), program.atoms)
        yield Pair("renamed and permuted", consistently, renamed(permuted, names), own=True)
    for _ in range(2):
        yield Pair("rewired", rewired(model, rng), permuted)
        yield Pair("split", split_model(text, rng), permuted)


class Outcome(NamedTuple):
    """What came of one pair."""

    held: bool
    wrong: bool


def outcome(pair: Pair, device: str = "cpu") -> Outcome:
    """Whether the model is certified against the program, and wrongly so."""
    program = lg.parse(str(pair.text))
    try:
        certificate = lg.certify(pair.model.model, program, tolerance=pair.tolerance)
    except lg.errors.ModelError:
        return Outcome(False, False)
    if not certificate.holds:
        return Outcome(False, False)
    own = [pair.text.atoms.index(name) for name in pair.model.names]  # in the order of the model
    facts = every_fact_set(len(own))
    expected = pair.text.closures(facts)[0][:, own]
    number = facts[:, own].astype(int) @ (1 << np.arange(len(own)))  # of the same fact sets
    wrong = not np.array_equal(pair.model.closures()[number], expected)
    if pair.model.runs and not wrong:
        model = pair.model.model.to(device)
        state = near(facts[:, own], pair.tolerance, model.dtype).to(device)
        for steps in {int(certificate.t_min), int(min(certificate.t_max, certificate.t_min + 20))}:
            with torch.no_grad():
                after = (model(state, steps) > 0.5).cpu().numpy()
            wrong |= not np.array_equal(after, expected)
    return Outcome(True, bool(wrong))


def search(count: int, seed: int = 0, device: str = "cpu") -> tuple[Counter[str], list[str]]:
    """So many pairs: how many of each kind there were and held, and those that are wrong."""
    tried: Counter[str] = Counter()
    wrong = []
    while tried["pairs"] < count:
        for number, pair in enumerate(pairs(seed)):
            found = outcome(pair, device)
            tried["pairs"] += 1
            tried[f"{pair.kind}: {'certified' if found.held else 'not certified'}"] += 1
            tried["own"] += pair.own
            tried["own certified"] += pair.own and found.held
            if found.wrong:
                wrong.append(f"{pair.kind}: list(pairs({seed}))[{number}]")
        seed += 1
    return tried, wrong


def main() -> int:
    """Search; 1 if something was found or too few models are certified against their own program."""
    tried, wrong = run(search, "pairs", 100_000, __doc__)
    return 1 if wrong or tried["own certified"] < 0.99 * tried["own"] else 0


if __name__ == "__main__":
    sys.exit(main())
