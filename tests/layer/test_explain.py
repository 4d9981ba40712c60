"""Explanations of random layers: every change they state is applied, and does what they say.

`python tests/layer/test_explain.py probability 10000` checks as many layers of one semantics.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

import latentgamma as lg
from random_programs import random_program

SEMANTICS = ("godel", "gamma", "probability")
# Certificates take time, so the operators of a few programs serve many layers.
PROGRAMS = 200
tolerance_of = lru_cache(PROGRAMS)(
    lambda program: lg.operator.tolerance(lg.oracle(program), program)
)
certified = lru_cache(PROGRAMS)(lg.Constants.certified)
# Closer to a threshold than this, rounding may decide.
NEAR = {torch.float32: 2e-5, torch.float64: 1e-10}


class RandomLayer:
    """A layer, an example, and a way to change inputs that shares no code with the library."""

    def __init__(self, semantics: str, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        drawn = random_program(seed % PROGRAMS if semantics == "gamma" else seed, 9, 11, body=3)
        rules = [rule for n, rule in enumerate(drawn.rules) if rule.body or n == 0]
        if rng.random() < 0.3:
            # Atoms are negated only in rules for later atoms, so that there are no cycles.
            rules = [
                lg.Rule(
                    heads,
                    frozenset(a for a in rule.body if a < min(heads)),
                    frozenset(a for a in drawn.atoms if a < min(heads) and rng.random() < 0.2),
                )
                for rule in rules
                for heads in [rule.heads]
            ]
            rules = [rule for rule in rules if not rule.body & rule.negated]
        program = lg.Program.from_rules(rules, drawn.atoms)
        self.program = program
        order = [program.atoms[i] for i in rng.permutation(program.M)]
        plain, soft = order[: rng.integers(1, 5)], order[5:6] if rng.random() < 0.3 else []
        size = int(rng.choice([0, 2, 3, 4]))
        faces = order[9 - size :] if size else []
        self.names = [*plain, *faces]
        inputs: dict[str, Any] = {"plain": plain}
        if faces:
            inputs["die"] = lg.Categorical(faces)
        read = [program.atoms[i] for i in rng.permutation(program.M)[: rng.integers(2, 5)]]
        self.categorical = bool(rng.random() < 0.5)
        self.read = read
        options: dict[str, Any] = {}
        if soft:
            low = [0.2, 0.4, 0.9] if semantics == "gamma" else [0.2, 0.5, 0.6]
            options["facts"] = {soft[0]: float(rng.choice(low)), order[6]: 1.0}
            if order[6] in faces:
                options["facts"].pop(order[6])
            if soft[0] in faces:
                options.pop("facts")
        if semantics == "probability" and rng.random() < 0.3:
            options["evidence"] = {str(rng.choice(program.atoms)): bool(rng.random() < 0.5)}
        self.from_logits = bool(rng.random() < 0.3)
        self.dtype = torch.float64 if rng.random() < 0.5 else torch.float32
        self.layer = lg.Layer(
            program,
            inputs,
            {"out": lg.Categorical(read) if self.categorical else read},
            semantics=semantics,
            from_logits=self.from_logits,
            **options,
        ).eval()
        special = [0.0, 0.2, 0.5, 0.6, 0.8, 1.0]
        values = np.where(rng.random(len(plain)) < 0.3, rng.choice(special, len(plain)),
                          rng.random(len(plain)))  # fmt: skip
        weights = rng.dirichlet(np.ones(size)) if size else np.zeros(0)
        if size and rng.random() < 0.2:
            weights = np.eye(size)[0]
        self.p = np.concatenate((values, weights))
        self.count = len(plain)

    def rows(self, changes: list[Mapping[str, float]]) -> dict[str, torch.Tensor]:
        p = np.repeat(self.p[None], len(changes), 0)
        for row, change in zip(p, changes, strict=True):
            for name, value in change.items():
                n = self.names.index(name)
                if n >= self.count:
                    others = [m for m in range(self.count, len(p[0])) if m != n]
                    total = row[others].sum()
                    share = row[others] / total if total > 0 else 1 / len(others)
                    row[others] = (1 - value) * share
                row[n] = value
        x = torch.from_numpy(p)
        plain, die = x[:, : self.count], x[:, self.count :]
        if self.from_logits:
            plain, die = torch.logit(plain), torch.log(die)
        given = {"plain": plain.to(self.dtype)}
        if die.shape[1]:
            given["die"] = die.to(self.dtype)
        return given

    def outputs(self, *changes: Mapping[str, float]) -> np.ndarray:
        return self.layer(self.rows(list(changes)))["out"].double().numpy()

    def decided(self, outputs: np.ndarray, atom: str) -> np.ndarray:
        place = self.read.index(atom)
        if self.categorical:
            return outputs.argmax(1) == place
        return outputs[:, place] > 0.5

    def near(self, outputs: np.ndarray, atom: str) -> np.ndarray:
        """Whether rounding may decide what is true."""
        own = outputs[:, self.read.index(atom)]
        if not self.categorical:
            return np.abs(own - 0.5) < NEAR[self.dtype]
        others = np.delete(outputs, self.read.index(atom), 1).max(1)
        return np.abs(own - others) < NEAR[self.dtype]


def check(semantics: str, seed: int) -> Counter[str]:
    """Check the explanation of one random layer; return what was stated how often."""
    made = RandomLayer(semantics, seed)
    rng, layer = made.rng, made.layer
    example = {name: tensor[0] for name, tensor in made.rows([{}]).items()}
    expected = torch.from_numpy(rng.random(len(made.read)) < 0.5)
    if made.categorical:
        expected = torch.tensor(int(rng.integers(len(made.read))))
    stated: Counter[str] = Counter()
    try:
        base = made.outputs({})
        told = layer.explain(example, {"out": expected})
    except lg.errors.StateError as error:
        if "probability zero" not in str(error):  # of the evidence
            raise
        return stated
    for answer in told.answers:
        atom, text = answer.atom, str(answer)
        assert answer.value == base[0, made.read.index(atom)]
        assert answer.is_true == made.decided(base, atom)[0]
        stated["answers"] += 1
        if semantics == "godel":
            check_weakest(made, answer)
        if semantics == "probability":
            check_alone(made, answer, stated)
            assert ("no change of one input" in text) == (not answer.alone)
        else:
            check_together(made, answer, stated)
        if "no change of the inputs" in text:
            stated["impossible"] += 1
            tries = [
                {name: float(v) for name, v in zip(made.names, rng.random(len(made.names)) < 0.5, strict=True)
                 if made.names.index(name) < made.count}
                for _ in range(8)
            ]  # fmt: skip
            assert (made.decided(made.outputs(*tries), atom) == answer.is_true).all()
        if made.dtype == torch.float64 and semantics != "gamma":
            check_gradients(made, answer, stated)
    return stated


def known_values(made: RandomLayer) -> dict[str, float]:
    """The values of the inputs as the layer takes them, and of its own facts."""
    given = made.layer.given
    values = {name: given[i] for i, name in enumerate(made.program.atoms) if given[i] > 0}
    flat = made.layer.flat_inputs(made.rows([{}]))[0]
    flat = (torch.sigmoid(flat) if made.from_logits else flat).double().tolist()
    return values | dict(zip(made.names, flat, strict=False))


def check_weakest(made: RandomLayer, answer: Any) -> None:
    """The value of the answer is that of the weakest fact of the proof, if nothing is negated."""
    values = known_values(made)
    if not made.program.definite:
        true = [name for name, value in values.items() if value > 0.5]
        assert (answer.proof is not None) == (answer.atom in lg.closure(made.program, true).atoms)
        assert answer.proof is None or answer.proof.holds()
        assert made.categorical or answer.is_true == (answer.proof is not None)
        assert answer.proof is None or set(answer.proof.facts) <= set(true)
        return
    if answer.proof is None:
        assert answer.value < 1e-17
        return
    assert answer.proof.holds()
    weakest = min((values[name] for name in answer.proof.facts), default=1.0)
    assert answer.value == pytest.approx(weakest, rel=1e-6, abs=1e-15)


def check_together(made: RandomLayer, answer: Any, stated: Counter[str]) -> None:
    """All changes together make the answer the opposite, and fewer do not."""
    changes, rng = answer.changes, made.rng
    if not changes:
        return
    stated["changes"] += 1
    tries = [{c.atom: c.to for c in changes}, {c.atom: c.rounded for c in changes}]
    for _ in range(4):
        share = rng.random(len(changes))
        tries.append(
            {c.atom: c.to + r * (c.until - c.to) for c, r in zip(changes, share, strict=True)}
        )
    out = made.outputs(*tries)
    assert (made.decided(out, answer.atom) != answer.is_true).all()
    fewer = [{c.atom: c.to for c in changes if c is not left} for left in changes]
    same = made.decided(made.outputs(*fewer), answer.atom) == answer.is_true
    if answer.certified:  # with an input inside the band, or several answers, nothing is proved
        values = made.layer.flat_inputs(made.rows(fewer))
        values = torch.sigmoid(values) if made.from_logits else values
        same |= ((values - 0.5).abs() < 0.0501).any(1).numpy() | made.categorical
    assert same.all()


def check_alone(made: RandomLayer, answer: Any, stated: Counter[str]) -> None:
    """Each change alone makes the answer the opposite, a smaller one does not; nor do others."""
    rng, atom = made.rng, answer.atom
    found = {change.atom: change for change in answer.alone}
    for change in answer.alone:
        stated["alone"] += 1
        tries = [change.to, change.rounded, change.until]
        tries += (change.to + rng.random(3) * (change.until - change.to)).tolist()
        out = made.outputs(*({change.atom: value} for value in tries))
        assert (made.decided(out, atom) != answer.is_true).all()
        less = change.value + rng.random(3) * 0.99 * (change.to - change.value)
        out = made.outputs(*({change.atom: float(value)} for value in less))
        held = made.decided(out, atom) == answer.is_true
        assert (held | made.near(out, atom)).all()
    for name in made.names:
        if name in found:
            continue
        stated["none"] += 1
        for value in [0.0, 1.0, *rng.random(2).tolist()]:
            try:
                out = made.outputs({name: value})
            except lg.errors.StateError:
                continue
            held = made.decided(out, atom) == answer.is_true
            assert (held | made.near(out, atom)).all()


def check_gradients(made: RandomLayer, answer: Any, stated: Counter[str]) -> None:
    """Gradients are those of log-odds in log-odds, where there is a derivative."""
    if not 1e-6 < answer.value < 1 - 1e-6:
        return
    place, h = made.read.index(answer.atom), 1e-5
    for share in answer.gradients:
        if not 1e-3 < share.value < 1 - 1e-3:
            continue
        odds = np.log(share.value / (1 - share.value))
        at = 1 / (1 + np.exp(-(odds + np.array([-h, 0.0, h]))))
        p = made.outputs(*({share.atom: float(v)} for v in at))[:, place]
        left, right = np.diff(np.log(p / (1 - p))) / h
        # At a tie there is no derivative, or the layer shares it.
        others = [value for name, value in known_values(made).items() if name != share.atom]
        if abs(left - right) > 1e-3 or share.value in others:
            continue
        stated["gradients"] += 1
        assert share.gradient == pytest.approx((left + right) / 2, abs=1e-3, rel=1e-3)


def use_known_tolerances(patch: pytest.MonkeyPatch) -> None:
    """Let layers of one program share the search for constants and tolerances."""
    oracle = lg.oracle
    patch.setattr(
        "latentgamma.layer.semantics.oracle",
        lambda program, constants, **options: oracle(
            program, constants or (certified(program) if program.definite else None), **options
        ),
    )
    patch.setattr(
        "latentgamma.layer.semantics.tolerance", lambda model, program: tolerance_of(program)
    )


def test_two_facts_at_six_tenths_are_not_likely_together() -> None:
    program = lg.parse("alarm :- a, b.")
    layer = lg.Layer(program, ["a", "b"], "alarm", semantics="probability")
    told = str(layer.explain(torch.tensor([0.6, 0.6])))
    assert "alarm is false, at 0.36" in told
    assert "each of these changes alone makes it true:\n  a from 0.6 to 0.834\n" in told
    assert "a at 0.6 (gradient +0.625)" in told  # (1 − 0.6) / (1 − 0.36)
    told = str(layer.explain(torch.tensor([0.4, 0.6])))
    assert "a from 0.4 to 0.834" in told
    assert "b from" not in told
    assert "no change of one input alone" in str(layer.explain(torch.tensor([0.4, 0.4])))
    sampled = lg.Layer(program, ["a", "b"], "alarm", semantics="probability",
                       inference=lg.Inference("sample", seed=0))  # fmt: skip
    assert "since it is an estimate" in str(sampled.explain(torch.tensor([0.6, 0.6])))


@pytest.mark.slow
def test_without_a_certificate_no_change_is_stated() -> None:
    layer = lg.Layer(lg.parse("alarm :- a, b."), ["a", "b"], "alarm", semantics="gamma")
    assert "this change makes it true, as is proved" in str(layer.explain(torch.tensor([0.8, 0.2])))
    told = str(layer.explain(torch.tensor([0.8, 0.52])))
    assert "the certificate does not cover this answer" in told
    with torch.no_grad():
        layer.rules.model.offset += 30
    told = layer.explain(torch.tensor([0.8, 0.2]))["alarm"]
    assert "no change is stated, since nothing is proved" in str(told)
    assert told.changes == ()


@pytest.mark.quick_first
@pytest.mark.parametrize("semantics", SEMANTICS)
def test_every_stated_change_does_what_the_sentence_says(
    semantics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_known_tolerances(monkeypatch)
    stated: Counter[str] = Counter()
    for seed in range(6 if semantics == "gamma" else 60):
        stated += check(semantics, seed)
    kinds = {"probability": ("alone", "none", "gradients"), "godel": ("changes", "gradients")}
    assert all(stated[kind] for kind in kinds.get(semantics, ("changes",)))


@pytest.mark.slow
@pytest.mark.parametrize("semantics", SEMANTICS)
def test_on_more_layers(semantics: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_known_tolerances(monkeypatch)
    # Run as a script, this file tries any number of them.
    for seed in range(60, 90 if semantics == "gamma" else 200):
        check(semantics, seed)


if __name__ == "__main__":
    total: Counter[str] = Counter()
    wrong = 0
    use_known_tolerances(pytest.MonkeyPatch())
    for number in range(*map(int, sys.argv[2:])):
        try:
            total += check(sys.argv[1], number)
        except Exception as error:
            wrong += 1
            print(f"layer {number}: {type(error).__name__} {str(error)[:200]}", flush=True)
    print(f"{' '.join(sys.argv[1:])}: {wrong} wrong; {dict(total)}")
