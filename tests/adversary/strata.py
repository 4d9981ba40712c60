"""The search for a model that is certified against a program with other closures.

    python tests/adversary/strata.py --pairs 100000 [--seed 1] [--processes 8] [--device cuda]

A model of up to 8 atoms, mostly with negation, is compared with another program: the same one, one
with its rules and atoms permuted or consistently renamed, one with a literal changed, a rule moved
or dropped; or it is the model that is changed: other wires between its strata, another split into
strata. What is right is computed for all fact sets by code that shares nothing with the library.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from cases import DTYPES, every_fact_set  # noqa: E402
from processes import run  # noqa: E402

import latentgamma as lg  # noqa: E402
from latentgamma.certificate.parts import Places  # noqa: E402

#: How hard the constants are whose certificates are found quickly; every so many programs have
#: those of `lg.oracle`.
_HARDNESS = 2.5
_PLAIN_ORACLE_EVERY = 10
#: Programs that each model is compared with.
_OTHERS = 12


class Rule(NamedTuple):
    """A rule over atoms that are numbers."""

    head: int
    body: frozenset[int]
    negated: frozenset[int]


@dataclass(frozen=True)
class Text:
    """A stratified program: its rules, the level of each atom, and the names in their order."""

    rules: tuple[Rule, ...]
    level: tuple[int, ...]
    names: tuple[str, ...]  # of each number
    order: tuple[int, ...]  # the numbers in the order in which the text declares them

    def program(self) -> Any:
        """The program, as the library reads it."""
        lines = [f"#external {self.names[i]}." for i in self.order]
        for head, body, negated in self.rules:
            literals = [self.names[i] for i in sorted(body)]
            literals += [f"not {self.names[i]}" for i in sorted(negated)]
            tail = f" :- {', '.join(literals)}" if literals else ""
            lines.append(f"{self.names[head]}{tail}.")
        return lg.parse("\n".join(lines))

    def closures(self) -> np.ndarray:
        """The closure of every fact set over the numbers, level by level. (2^M, M)."""
        state = every_fact_set(len(self.level))
        for level in range(max(self.level) + 1):
            rules = [rule for rule in self.rules if self.level[rule.head] == level]
            state = closed(state, [(r.head, list(r.body), list(r.negated)) for r in rules])
        return state


def closed(state: np.ndarray, rules: list[tuple[int, list[int], list[int]]]) -> np.ndarray:
    """The states closed under rules; what they negate does not change. (N, m)."""
    state, before = state.copy(), None
    start = state.copy()
    while before is None or not np.array_equal(before, state):
        before = state.copy()
        for head, body, negated in rules:
            state[:, head] |= state[:, body].all(1) & ~start[:, negated].any(1)
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
                (int(head), program.body_of(j).tolist(), [])
                for j in range(program.R)
                for head in program.heads_of(j)
            ]
            after = closed(state[:, atom] ^ negated, rules)
            state[:, atom[written]] = after[:, written]
        return state


# -------------------------------------------------------------------- what is drawn


def random_text(rng: np.random.Generator, most: int = 8) -> Text:
    """A program whose atoms lie on up to four levels; nothing negates an atom of its own level."""
    M = int(rng.integers(2, most + 1))
    level = rng.integers(0, int(rng.integers(1, 5)), M)
    rules = []
    for _ in range(int(rng.integers(1, 2 * M))):
        head = int(rng.integers(M))
        below, lower = np.flatnonzero(level <= level[head]), np.flatnonzero(level < level[head])
        body = rng.choice(below, min(len(below), int(rng.integers(0, 4))), replace=False)
        negated = rng.choice(lower, min(len(lower), int(rng.integers(0, 3))), replace=False)
        rules.append(Rule(head, frozenset(body.tolist()), frozenset(negated.tolist())))
    names = tuple(rng.permutation(list("abcdefgh"))[:M].tolist())
    return Text(tuple(rules), tuple(level.tolist()), names, tuple(range(M)))


def model_of(text: Text, rng: np.random.Generator, *, plain: bool) -> Model:
    """An oracle of a program: with its default constants, or with hard ones."""
    program = text.program()
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


def permuted(text: Text, rng: np.random.Generator) -> Text:
    """The rules and the atoms in another order."""
    rules = [text.rules[j] for j in rng.permutation(len(text.rules))]
    return replace(text, rules=tuple(rules), order=tuple(rng.permutation(len(text.level)).tolist()))


def renamed(text: Text, rng: np.random.Generator) -> Text:
    """The names permuted among the atoms, so that other atoms have the same names."""
    return replace(text, names=tuple(rng.permutation(text.names).tolist()))


def fresh_names(text: Text) -> Text:
    """Names that no other program has."""
    return replace(text, names=tuple(f"{name}_1" for name in text.names))


def with_literal_changed(text: Text, rng: np.random.Generator) -> Text:
    """One literal left out, added, replaced or with the other sign, where levels allow it."""
    j = int(rng.integers(len(text.rules)))
    head, body, negated = text.rules[j]
    atom = int(rng.integers(len(text.level)))
    kind = rng.integers(4)
    if kind == 0 and body | negated:
        gone = list(body | negated)[int(rng.integers(len(body | negated)))]
        body, negated = body - {gone}, negated - {gone}
    elif kind == 1 and body | negated:  # the other sign
        turned = list(body | negated)[int(rng.integers(len(body | negated)))]
        body, negated = body ^ {turned}, negated ^ {turned}
    elif kind == 2:
        body |= {atom}
    else:
        negated |= {atom}
    return with_levels(text, j, Rule(head, body, negated))


def with_rule_moved(text: Text, rng: np.random.Generator) -> Text:
    """One rule with a head in another stratum, where levels allow it."""
    j = int(rng.integers(len(text.rules)))
    rule = text.rules[j]
    return with_levels(text, j, rule._replace(head=int(rng.integers(len(text.level)))))


def with_levels(text: Text, j: int, rule: Rule) -> Text:
    """The text with another rule j; the same text if that breaks the order of the levels."""
    top = text.level[rule.head]
    if any(text.level[i] > top for i in rule.body) or any(
        text.level[i] >= top for i in rule.negated
    ):
        return text
    return replace(text, rules=(*text.rules[:j], rule, *text.rules[j + 1 :]))


def with_rule_dropped(text: Text, rng: np.random.Generator) -> Text:
    """One rule less."""
    j = int(rng.integers(len(text.rules)))
    return replace(text, rules=text.rules[:j] + text.rules[j + 1 :])


@dataclass(frozen=True)
class Split:
    """Models of definite programs with wires between them: what a certificate reads of strata."""

    atoms: tuple[str, ...]
    parts: list[Any] = field(default_factory=list)
    places: list[Places] = field(default_factory=list)


def split_model(text: Text, rng: np.random.Generator) -> Model:
    """The rules of a program in strata of their own: mostly by level, some moved elsewhere."""
    wanted = np.array([text.level[rule.head] for rule in text.rules])
    moved = rng.random(len(wanted)) < 0.3
    wanted = np.where(moved, wanted + rng.integers(-1, 3, len(wanted)), wanted)
    split = Split(text.names)
    found = []
    for number in np.unique(wanted).tolist():
        rules = [rule for rule, at in zip(text.rules, wanted, strict=True) if at == number]
        positive = sorted({i for r in rules for i in (r.head, *r.body)})
        negated = sorted({i for r in rules for i in r.negated})
        literals = [*((i, False) for i in positive), *((i, True) for i in negated)]
        literals = [literals[k] for k in rng.permutation(len(literals))]
        local = {literal: f"x{k}" for k, literal in enumerate(literals)}
        program = lg.Program.from_rules(
            [
                (
                    local[r.head, False],
                    [local[i, False] for i in r.body] + [local[i, True] for i in r.negated],
                )
                for r in rules
            ],
            atoms=list(local.values()),
        )
        heads = {r.head for r in rules}
        written = [k for k, (i, sign) in enumerate(literals) if not sign and i in heads]
        if rng.random() < 0.1 and written:
            written = written[1:]
        places = Places(
            np.array([i for i, _ in literals]),
            np.array([s for _, s in literals]),
            np.array(written, int),
        )
        split.parts.append(lg.oracle(program, lg.Constants.closed_form(program, _HARDNESS)))
        split.places.append(places)
        found.append((program, places))
    return Model(split, found, text.names, runs=False)


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
    text: Text  # of the program
    own: bool = False  # whether it is the model's own program, so that it should be certified
    tolerance: float = 0.0


def pairs(seed: int) -> Iterator[Pair]:
    """The pairs of one seed: a program, its model, and other programs and models."""
    rng = np.random.default_rng(seed)
    text = random_text(rng)
    model = model_of(text, rng, plain=seed % _PLAIN_ORACLE_EVERY == 0)
    yield Pair("the same", model, text, own=True)
    yield Pair("permuted", model, permuted(text, rng), own=True)
    yield Pair("soft inputs", model, permuted(text, rng), tolerance=float(rng.uniform(0, 0.2)))
    names = fresh_names(text)
    if not model.model.definite:
        again = lg.LatentGamma.from_strata(list(model.model.parts), names.program())
        consistently = Model(again, wired(again, names.program()), names.names)
        yield Pair("renamed and permuted", consistently, permuted(names, rng), own=True)
    yield Pair("other names", model, names)
    kinds = (renamed, with_literal_changed, with_rule_moved, with_rule_dropped)
    for number in range(_OTHERS - 4):
        change = kinds[number % len(kinds)]
        other = change(permuted(text, rng), rng)
        if rng.random() < 0.2:
            other = change(other, rng) if other.rules else other
        yield Pair(change.__name__.replace("_", " "), model, other)
    for _ in range(2):
        yield Pair("rewired", rewired(model, rng), permuted(text, rng))
        yield Pair("split", split_model(text, rng), permuted(text, rng))


class Outcome(NamedTuple):
    """What came of one pair."""

    held: bool
    wrong: bool


def below(tolerance: float, dtype: torch.dtype) -> float:
    """The largest tolerance up to this one that the dtype can store, and 1 minus it, too."""
    spacing = torch.finfo(dtype).eps
    return float(np.floor(tolerance / spacing) * spacing)


def outcome(pair: Pair, device: str = "cpu") -> Outcome:
    """Whether the model is certified against the program, and wrongly so."""
    try:
        certificate = lg.certify(pair.model.model, pair.text.program(), tolerance=pair.tolerance)
    except lg.errors.ModelError:
        return Outcome(False, False)
    if not certificate.holds:
        return Outcome(False, False)
    place = [pair.model.names.index(name) for name in pair.text.names]
    # Fact set n of the text is the one whose facts are the bits of n: the model's own order.
    facts = every_fact_set(len(place))
    number = facts.astype(int) @ (1 << np.array(place))
    expected = pair.text.closures()
    wrong = not np.array_equal(pair.model.closures()[number][:, place], expected)
    if pair.model.runs and not wrong:
        low = below(pair.tolerance, pair.model.model.dtype)
        given = np.zeros(facts.shape)
        given[:, place] = np.where(facts, 1 - low, low)
        for steps in {int(certificate.t_min), int(min(certificate.t_max, certificate.t_min + 20))}:
            with torch.no_grad():
                model = pair.model.model.to(device)
                state = torch.from_numpy(given).to(device, model.dtype)
                after = (model(state, steps) > 0.5).cpu().numpy()
            wrong |= not np.array_equal(after[:, place], expected)
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
