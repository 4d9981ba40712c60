"""Pairs of a model and a program that it may or may not implement, drawn from one seed.

The model is built from a random program, mostly with negation, and then edited; the program is the
same one, written otherwise, or another one that differs in a single place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from truth import PlainProgram, PlainRule, plain

import latentgamma as lg
from reference import every_fact_set

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
Generator = np.random.Generator


# ------------------------------------------------------------------------ programs


def random_rules(rng: Generator, atoms: int = 6, levels: int = 3) -> PlainProgram:
    """A program of at most so many atoms and strata, some of whose rules follow from others."""
    names = [f"a{i}" for i in range(int(rng.integers(2, atoms + 1)))]
    levels = int(rng.integers(1, levels + 1))
    if rng.random() < 0.3:
        return _chain(rng, names, levels)
    level = {name: int(rng.integers(levels)) for name in names}
    rules = [_random_rule(rng, names, level) for _ in range(int(rng.integers(1, 2 * len(names))))]
    for _ in range(int(rng.integers(3))):
        rules.append(_redundant(rng, rules, names, level))
    return PlainProgram(tuple(names), tuple(rules))


def _chain(rng: Generator, names: list[str], levels: int) -> PlainProgram:
    """A chain of rules with shortcuts, some of them around a negation at its end."""
    rules = [PlainRule((b,), frozenset({a})) for a, b in pairwise(names)]
    for _ in range(int(rng.integers(1, 4))):
        a, b = sorted(rng.integers(len(names), size=2).tolist())
        rules.append(PlainRule((names[b],), frozenset({names[a]})))
    if levels > 1 and rng.random() < 0.5:
        names = [*names, "z"]
        rules.append(PlainRule(("z",), frozenset(), frozenset({_choice(rng, names[:-1])})))
    shuffled = [rules[j] for j in rng.permutation(len(rules))]
    return PlainProgram(tuple(rng.permutation(names).tolist()), tuple(shuffled))


def _choice(rng: Generator, items: Any) -> Any:
    items = sorted(items)
    return items[int(rng.integers(len(items)))]


def _random_rule(rng: Generator, names: list[str], level: dict[str, int]) -> PlainRule:
    head = _choice(rng, names)
    heads = (head,)
    if rng.random() < 0.15:
        heads = tuple({head, _choice(rng, names)})
    top = min(level[head] for head in heads)
    below = [name for name in names if level[name] <= top]
    denied = [name for name in names if level[name] < top]
    body = {_choice(rng, below) for _ in range(int(rng.integers(0, 4)))}
    negated = {_choice(rng, denied) for _ in range(int(rng.integers(0, 3)))} if denied else set()
    return PlainRule(heads, frozenset(body), frozenset(negated))


def _redundant(
    rng: Generator, rules: list[PlainRule], names: list[str], level: dict[str, int]
) -> PlainRule:
    """A rule that follows from the others: a copy, one with more literals, or two in a row."""
    rule = rules[int(rng.integers(len(rules)))]
    kind = rng.random()
    if kind < 0.2:
        return rule
    if kind < 0.5:
        below = [name for name in names if level[name] <= min(level[head] for head in rule.heads)]
        return rule._replace(body=rule.body | {_choice(rng, below)})
    for other in rules:
        shared = rule.body & set(other.heads)
        if shared and other is not rule:
            body = rule.body - shared | other.body
            return PlainRule(rule.heads, body, rule.negated | other.negated)
    return rule


def others(rng: Generator, program: PlainProgram) -> Iterator[tuple[str, PlainProgram]]:
    """The program itself, the same one written otherwise, and others that differ in one place."""
    atoms, rules = program
    yield "same", program
    order = rng.permutation(len(rules))
    shuffled = tuple(rng.permutation(atoms).tolist())
    permuted = PlainProgram(shuffled, tuple(rules[j] for j in order))
    yield "permuted", permuted
    yield "only the rules permuted", PlainProgram(atoms, permuted.rules)
    j = int(rng.integers(len(rules)))
    rest = rules[:j] + rules[j + 1 :]
    rule = rules[j]
    heads, body, negated = rule
    new = {
        "a rule dropped": rest,
        "a rule twice": (*rules, rule),
        "another head": (*rest, PlainRule((_choice(rng, atoms),), body, negated)),
        "a literal more": (*rest, rule._replace(body=body | {_choice(rng, atoms)})),
        "a negation more": (*rest, rule._replace(negated=negated | {_choice(rng, atoms)})),
        "never, one stratum up": (
            *rules,
            PlainRule(heads, frozenset({atoms[0]}), frozenset({atoms[0]})),
        ),
        "a rule more": (
            *rules,
            PlainRule((_choice(rng, atoms),), frozenset({_choice(rng, atoms)}), negated),
        ),
    }
    if body:
        literal = _choice(rng, body)
        without = body - {literal}
        new |= {
            "a literal less": (*rest, rule._replace(body=without)),
            "a literal changed": (*rest, rule._replace(body=without | {_choice(rng, atoms)})),
            "a literal negated": (*rest, PlainRule(heads, without, negated | {literal})),
        }
    if negated:
        literal = _choice(rng, negated)
        without = negated - {literal}
        new |= {
            "a negation less": (*rest, rule._replace(negated=without)),
            "a negation changed": (*rest, rule._replace(negated=without | {_choice(rng, atoms)})),
            "a negation dropped": (*rest, PlainRule(heads, body | {literal}, without)),
        }
    for name, changed in new.items():
        yield name, PlainProgram(atoms, changed)
    a, b = rng.choice(len(atoms), 2, replace=False)
    swapped = dict(zip(atoms, atoms, strict=True)) | {atoms[a]: atoms[b], atoms[b]: atoms[a]}
    yield "two names swapped", PlainProgram(atoms, renamed(program, swapped).rules)
    strangers = {name: f"b{name}" for name in atoms}
    yield "other names", renamed(program, strangers)


def renamed(program: PlainProgram, names: dict[str, str]) -> PlainProgram:
    """The program with other names for its atoms."""

    def new(of: frozenset[str]) -> frozenset[str]:
        return frozenset(names[name] for name in of)

    rules = [
        PlainRule(tuple(names[head] for head in rule.heads), new(rule.body), new(rule.negated))
        for rule in program.rules
    ]
    return PlainProgram(tuple(names[name] for name in program.atoms), tuple(rules))


# ------------------------------------------------------------------------ models


class Edited(NamedTuple):
    """A model, and what was done to it."""

    model: Any
    edit: str


def operators(model: torch.nn.Module) -> list[lg.LatentGamma]:
    """The operators of a model or a layer, one for each stratum."""
    found = [part for part in model.modules() if isinstance(part, lg.LatentGamma)]
    return [part for part in found if part.definite]


def soft(rng: Generator) -> lg.Constants:
    """Constants near the edge, so that windows are short."""
    low = [1.0, 2.0, 1.0, 0.3, 1.0, 1.05]
    return lg.Constants(*rng.uniform(low, [12.0, 25.0, 20.0, 0.99, 30.0, 8.0]).tolist())


def closed_form(program: PlainProgram, hardness: float) -> lg.Constants:
    """The closed form of the rules with every negation left out."""
    rules = tuple(rule._replace(negated=frozenset()) for rule in program.rules)
    definite = lg.parse(str(PlainProgram(program.atoms, rules)))
    return lg.Constants.closed_form(definite, hardness)


def random_model(rng: Generator, program: PlainProgram, edit: str | None = None) -> Edited:
    """The model of a program with random options, and then edited, by default in a random way."""
    kind = ("certified", "soft", "closed form")[int(rng.choice(3, p=[0.5, 0.2, 0.3]))]
    if edit == "slow":
        kind = "certified"
    constants = soft(rng) if kind == "soft" else None
    if kind == "closed form":
        constants = closed_form(program, float(rng.uniform(0.1, 1.0)))
    dtype = DTYPES[int(rng.integers(4))]
    model: Any = lg.oracle(
        lg.parse(str(program)),
        constants,
        form=("dense", "sparse")[int(rng.integers(2))],  # type: ignore[arg-type]
        gate=("sigmoid", "bump")[int(rng.random() < 0.25)],  # type: ignore[arg-type]
        dtype=dtype,
    )
    if edit is None:
        edit = EDITS[int(rng.integers(len(EDITS)))] if rng.random() < 0.7 else "none"
    change(rng, model, edit)
    return Edited(model, f"{dtype} {kind} {edit}")


#: What is done to the parameters of a model.
EDITS = ("noise", "dead rows", "offsets", "slow", "sharpness", "a logit", "rows exchanged", "dtype")


def change(rng: Generator, model: torch.nn.Module, edit: str) -> None:
    """Edit the parameters of a model in place."""
    parts = [part for part in operators(model) if part.R]
    if not parts or edit == "none":
        return
    part = parts[int(rng.integers(len(parts)))]
    with torch.no_grad():
        if edit == "noise":
            scale = float(rng.uniform(0, 0.3))
            for parameter in model.parameters():
                noise = torch.from_numpy(rng.normal(size=tuple(parameter.shape)))
                size = (0.1 + parameter.abs()).clamp(max=1.0)
                parameter.add_((scale * noise).to(parameter) * size)
        elif edit == "dead rows":
            rows = redundant_rows(rng, part) if rng.random() < 0.7 else [int(rng.integers(part.R))]
            part.confidence_raw[rows] = -40.0
        elif edit == "offsets":
            for one in parts if rng.random() < 0.5 else [part]:
                one.offset.add_(float(rng.choice([100.0, 5.0, 1.0, -1.0, -5.0, -100.0])))
        elif edit == "slow":  # a true body brings its head up by about a thousandth a step
            slow_down(part, float(rng.uniform(0.7, 1.1)))
        elif edit == "sharpness":
            part.sharpness_raw.mul_(float(rng.choice([0.1, 0.3, 3.0])))
        elif edit == "a logit":
            logits = list(part.rules.parameters())[int(rng.integers(2))]
            if logits.numel():
                place = tuple(int(rng.integers(n)) for n in logits.shape)
                logits[place] = -logits[place] if rng.random() < 0.5 else 30.0
        elif edit == "rows exchanged":
            order = torch.from_numpy(rng.permutation(part.R))
            for parameter in part.parameters():
                if parameter.dim() and parameter.shape[0] == part.R:
                    parameter.copy_(parameter[order])
    if edit == "dtype":
        model.to(DTYPES[int(rng.integers(4))])


def slow_down(part: lg.LatentGamma, evidence: float) -> None:
    """Raise the offsets until a true body leaves its head this much below them."""
    margin = part.certificate().margins.evidence_on
    with torch.no_grad():
        part.offset.add_(margin + evidence if math.isfinite(margin) else 0.0)


def redundant_rows(rng: Generator, part: lg.LatentGamma) -> list[int]:
    """Rows without which the others still have the same closures."""
    program = plain(part.program)
    facts = every_fact_set(len(program.atoms))
    wanted = program.closures(facts)[0]
    kept = dict(enumerate(program.rules))
    for j in rng.permutation(len(program.rules)).tolist():
        fewer = tuple(rule for i, rule in kept.items() if i != j)
        if np.array_equal(PlainProgram(program.atoms, fewer).closures(facts)[0], wanted):
            del kept[j]
    return [j for j in range(len(program.rules)) if j not in kept]
