"""From a model back to rules: by reading its rows, or by evaluating it on states."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from latentgamma._certificate.certify import certify
from latentgamma._errors import ModelError
from latentgamma._learning.head_task import covered
from latentgamma._learning.implications import Implication, as_implications, as_program
from latentgamma._model.module import LatentGamma
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program

#: Up to this many atoms the model is evaluated on every state; beyond, on random ones.
_ALL_STATES = 12
_STATES = 4096
#: Differences that one round turns into rules, and the rounds.
_SHRUNK = 1024
_ROUNDS = 32


def extract(model: LatentGamma, *, steps: int = 1, seed: int = 0) -> Program:
    """Return the rules that a model applies, however its rows share them.

    They are equivalent to what the model computes, not a copy of what it was built from: rules
    with several heads become several rules, duplicates occur once, and the order is another one.

    First the rows are read, weights above one half as bodies; if the certificate proves the model
    equal to those rules, they are returned. Otherwise the model is evaluated on states: it is
    monotone, so from a state in which it derives an atom, atoms are removed as long as it still
    does, and the rest is a body. This is repeated until model and rules agree on every state that
    was tried (all of them up to 12 atoms). Rules with larger bodies than necessary, or with their
    head in their body, are left out.

    Args:
        model: any LatentGamma, such as a trained one.
        steps: how many steps of the model count as one application of the rules.
        seed: the seed of the random states.

    Returns:
        A program with one head per rule.

    Raises:
        ModelError: `model` is no LatentGamma, or there is no step.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> print(extract(lg.oracle(program)))
    bird :- penguin.
    animal :- bird.
    """
    if not isinstance(model, LatentGamma):
        raise ModelError(f"extract takes a LatentGamma, not {type(model).__name__}")
    if not isinstance(steps, int) or steps < 1:
        raise ModelError(f"steps must be a whole number from 1 on, not {steps!r}")
    atoms = _atoms(model)
    if steps == 1:
        read, _ = model.rows(atoms)
        rules = minimal(as_implications(read))
        program = as_program(rules, model.M, atoms)
        proved = certify(model, read)
        # A window that ends where it begins proves nothing about a further step.
        if proved.holds and proved.t_max >= 2 * proved.t_min + 16:
            return program
    return as_program(_by_evaluation(model, steps, seed), model.M, atoms)


def minimal(rules: Iterable[Implication]) -> list[Implication]:
    """Return the rules without tautologies and those whose body contains that of another.

    >>> minimal([(2, (0, 1)), (2, (0,)), (1, (0, 1))])
    [(2, (0,))]
    """
    bodies: dict[int, list[frozenset[int]]] = {}
    for head, body in rules:
        if head not in body:
            bodies.setdefault(head, []).append(frozenset(body))
    kept = []
    for head, mine in bodies.items():
        small = [b for b in dict.fromkeys(mine) if not any(other < b for other in mine)]
        kept += [(head, tuple(sorted(body))) for body in small]
    return kept


def _atoms(model: LatentGamma) -> tuple[str, ...]:
    if model.program is not None:
        return model.program.atoms
    return tuple(f"a{i}" for i in range(model.M))


# ------------------------------------------------------------------------ by evaluation


def _by_evaluation(model: LatentGamma, steps: int, seed: int) -> list[Implication]:
    rng = np.random.default_rng(seed)
    states = _states(model, rng)
    true = _derives(model, states, steps) & ~states
    rules: list[Implication] = []
    for _ in range(_ROUNDS):
        derived = np.zeros_like(states)
        for head, body in rules:
            derived[:, head] |= covered(states, body)
        differ = np.argwhere(true & ~derived)
        if not len(differ):
            break
        # Small states first: they lead to fewer different rules.
        order = np.argsort(states[differ[:, 0]].sum(1) + rng.random(len(differ)), kind="stable")
        chosen = differ[order[:_SHRUNK]]
        bodies = _shrunk(model, states[chosen[:, 0]], chosen[:, 1], steps, rng)
        new = [
            (int(head), tuple(np.flatnonzero(body).tolist()))
            for head, body in zip(chosen[:, 1], bodies, strict=True)
        ]
        rules = minimal([*rules, *new])
    return sorted(rules)


def _states(model: LatentGamma, rng: np.random.Generator) -> Mask:
    M = model.M
    if M <= _ALL_STATES:
        return (np.arange(2**M)[:, None] >> np.arange(M) & 1).astype(np.bool_)
    density = np.exp(rng.uniform(np.log(2 / M), np.log(0.9), (_STATES, 1)))
    states = rng.random((_STATES, M)) < density
    bodies = [
        np.isin(np.arange(M), body) for _, body in as_implications(model.rows(_atoms(model))[0])
    ]
    every = [states, np.ones((1, M), np.bool_), *(body[None] for body in bodies)]
    return np.unique(np.concatenate(every), axis=0)


def _derives(model: LatentGamma, states: Mask, steps: int) -> Mask:
    parts = []
    with torch.no_grad():
        for start in range(0, len(states), 4096):
            batch = torch.from_numpy(states[start : start + 4096])
            after = model(batch.to(model.device, model.dtype), steps)
            parts.append((after > 0.5).cpu().numpy())
    return np.concatenate(parts)


def _shrunk(
    model: LatentGamma,
    states: Mask,
    heads: npt.NDArray[np.int64],
    steps: int,
    rng: np.random.Generator,
) -> Mask:
    """Return each state without the atoms that the model does not need to derive the head."""
    left = states.copy()
    for i in rng.permutation(states.shape[1]).tolist():
        has = np.flatnonzero(left[:, i])
        if not len(has):
            continue
        trial = left[has]
        trial[:, i] = False
        still = _derives(model, trial, steps)[np.arange(len(has)), heads[has]]
        left[has[still], i] = False
    return left
