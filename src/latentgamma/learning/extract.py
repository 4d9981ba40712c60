"""Reads the rules out of a trained model, and compares them with known ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from latentgamma._arguments import whole_number
from latentgamma.certificate.certify import certify
from latentgamma.errors import ModelError
from latentgamma.learning.bodies import Implication, as_implications, as_program, covered
from latentgamma.operator.model import LatentGamma, require_definite_model, require_whole_model
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program, require_definite

# ---- From a model back to rules: by reading its rows, or by evaluating it on states

#: Up to this many atoms the model is evaluated on every state; beyond, on this many random ones.
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
        model: any model of a definite program, such as a trained one; one with negation has such
            a model for each stratum, in `model.parts`.
        steps: how many steps of the model count as one application of the rules.
        seed: the seed of the random states.

    Returns:
        A program with one head per rule.

    Raises:
        ModelError: this is not a model of a definite program.
        ArgumentError: `steps` or `seed` is out of its range.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> print(extract(lg.oracle(program)))
    bird :- penguin.
    animal :- bird.
    """
    require_definite_model(model, "extract")
    whole_number("steps", steps, 1)
    whole_number("seed", seed)
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


# ---- By evaluation


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


# ---- How far the rows of a model are the rules of a program


@dataclass(frozen=True)
class Alignment:
    """How far the rows of a model are the rules of a program, one by one.

    A row is aligned with a rule when the atoms with weights above one half are the rule's body,
    and its head is the rule's.

    >>> import latentgamma as lg
    >>> program = lg.parse("c :- a. d :- c.")
    >>> found = lg.learning.alignment(lg.oracle(lg.parse("c :- a. d :- a, c.")), program)
    >>> found.precision, found.recall, found.rows
    (0.5, 0.5, 1)

    Attributes:
        n_corp: for each rule, the largest number of its body atoms that a row with its head gives
            a weight above one half; the paper's measure. (R,)
        precision: the fraction of rows that are aligned with a rule.
        recall: the fraction of rules that a row is aligned with.
        rows: the number of aligned rows.
    """

    n_corp: npt.NDArray[np.int64]
    precision: float
    recall: float
    rows: int


def alignment(model: LatentGamma, program: Program) -> Alignment:
    """Return how far the rows of a model are the rules of a program.

    >>> import latentgamma as lg
    >>> program = lg.parse("c :- a, b. d :- c.")
    >>> found = alignment(lg.oracle(program), program)
    >>> found.n_corp.tolist(), found.precision, found.recall
    ([2, 1], 1.0, 1.0)

    Args:
        model: any model of a definite program.
        program: a definite program on as many atoms.

    Returns:
        The overlap of each rule with its best row, and the precision and recall of the rows.

    Raises:
        ModelError: the model is no LatentGamma, has only a part of its rules, or has another
            number of atoms.
        ProgramError: the program has negation.
    """
    require_definite_model(model, "alignment")
    require_whole_model(model, "alignment")
    require_definite(program, "alignment")
    if model.M != program.M:
        raise ModelError(f"the model has {model.M} atoms, but the program has {program.M}")
    with torch.no_grad():
        numbers, held = model.step_parameters(), model.rules.literals()
        weight = model.rules.weight_at("body", numbers, held.body_rule, held.body_atom)
        strong = weight > 0.5
        body_rule, body_atom = (x[strong].cpu().numpy() for x in (held.body_rule, held.body_atom))
        head_rule, head_atom = held.head_rule.cpu().numpy(), held.head_atom.cpu().numpy()
    bodies: list[set[int]] = [set() for _ in range(model.R)]
    heads: list[set[int]] = [set() for _ in range(model.R)]
    for names, rule, atom in ((bodies, body_rule, body_atom), (heads, head_rule, head_atom)):
        for j, i in zip(rule.tolist(), atom.tolist(), strict=True):
            names[j].add(i)
    by_head: dict[int, list[int]] = {}
    for j, mine in enumerate(heads):
        for i in mine:
            by_head.setdefault(i, []).append(j)
    n_corp = np.zeros(program.R, np.int64)
    aligned: set[int] = set()
    matched = 0
    for r in range(program.R):
        body, wanted = set(program.body_of(r).tolist()), set(program.heads_of(r).tolist())
        rows = {j for i in wanted for j in by_head.get(i, [])}
        n_corp[r] = max((len(body & bodies[j]) for j in rows), default=0)
        same = {j for j in rows if bodies[j] == body and wanted <= heads[j]}
        aligned |= same
        matched += bool(same)
    return Alignment(
        n_corp,
        len(aligned) / model.R if model.R else 1.0,
        matched / program.R if program.R else 1.0,
        len(aligned),
    )
