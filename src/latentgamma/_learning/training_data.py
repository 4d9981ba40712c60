"""Examples ready to be learned from: noise, held-out part, allowed atoms, known rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentgamma._errors import DataError, unknown_atoms
from latentgamma._learning.data_checks import (
    is_refuted,
    refuse_contradictions,
    refuse_open_targets,
    refuse_wrong_rules,
)
from latentgamma._learning.implications import Implication
from latentgamma._learning.noisy_search import estimate_noise
from latentgamma._learning.observations import Observations
from latentgamma._learning.options import FitOptions
from latentgamma._program.facts import Mask
from latentgamma._program.program import Program

#: No larger share of wrong labels is assumed.
_MOST_NOISE = 0.45
#: With fewer examples none is held out.
_FEWEST_TO_SPLIT = 20


@dataclass(frozen=True)
class TrainingData:
    """What the strategies learn from.

    Attributes:
        observations: all examples.
        training: the examples to learn from.
        held_out: the examples that measure accuracy, or None.
        allowed: which atoms (columns) the bodies of each head (rows) may use. (M, M)
        known: rules that are there from the start.
        noise: the share of wrong labels.
        closed: whether a target is everything that follows, and not one step.
        max_body: the largest body.
        notes: where the share of wrong labels comes from.
    """

    observations: Observations
    training: Observations
    held_out: Observations | None
    allowed: Mask
    known: list[Implication]
    noise: float
    closed: bool
    max_body: int
    notes: tuple[str, ...]


def prepare(data: Observations, options: FitOptions) -> TrainingData:
    """Return examples checked against the options, and split.

    Raises:
        DataError: labels contradict each other or a known rule, or an option names an atom that
            the data do not have.
    """
    noise, notes = _noise(data, options)
    if data.probability is not None and options.noise != "auto":
        # Labels that are sure of themselves may still be wrong.
        sure = data.probability * np.float32(1 - 2 * options.noise) + np.float32(options.noise)
        data = replace(data, probability=sure)
    models = options.kind == "models"
    if noise == 0.0 and not models:
        refuse_contradictions(data)
        if options.closed:
            refuse_open_targets(data)
    training, held_out = _split(data, options.held_out, options.seed)
    if models:
        # Which atoms of a model were facts is not known, so each of them may have followed.
        training = replace(training, states=np.zeros_like(training.states))
    known = _known_rules(options.known, data)
    if options.refine:
        known = [
            rule for rule in known if not is_refuted(rule, training, noise, closed=options.closed)
        ]
    elif noise == 0.0:
        refuse_wrong_rules(known, training, closed=options.closed)
    return TrainingData(
        data,
        training,
        held_out,
        _allowed(data, options),
        known,
        noise,
        options.closed,
        options.body_limit(noise),
        notes,
    )


def _noise(data: Observations, options: FitOptions) -> tuple[float, tuple[str, ...]]:
    """Return the share of wrong labels, and a note on where it comes from."""
    noise = options.noise
    if options.kind == "models":
        return 0.0, ()
    if data.doubt > 0:
        share = max(data.doubt, 0.0 if noise == "auto" else noise)
        note = f"by the labels' own probabilities {data.doubt:.2%} of them round to the wrong side"
        return min(share, _MOST_NOISE), (note,)
    if noise != "auto":
        return noise, ()
    rate = estimate_noise(
        np.repeat(data.states, data.counts, 0), np.repeat(data.labels, data.counts, 0)
    )
    if rate is None:
        raise DataError(
            'noise="auto" needs at least 50 labels of atoms that were true before; pass the share '
            "of wrong labels as a number"
        )
    note = f"{rate:.2%} of the labels of atoms that were true before are false, so they are wrong"
    return (min(rate, _MOST_NOISE), (note,)) if rate > 0 else (0.0, ())


def _split(data: Observations, share: float, seed: int) -> tuple[Observations, Observations | None]:
    if share == 0 or data.N < _FEWEST_TO_SPLIT:
        return data, None
    order = np.random.default_rng(seed).permutation(data.N)
    held_out = max(1, round(share * data.N))
    return data.subset(np.sort(order[held_out:])), data.subset(np.sort(order[:held_out]))


def _allowed(data: Observations, options: FitOptions) -> Mask:
    """Return which atoms (columns) the bodies of each head (rows) may use. (M, M)."""
    index = {name: i for i, name in enumerate(data.atoms)}

    def places(names: Sequence[str], what: str) -> list[int]:
        unknown = [name for name in names if name not in index]
        if unknown:
            raise _unknown(unknown, data, what)
        return [index[name] for name in names]

    allowed = np.ones((data.M, data.M), np.bool_)
    if options.bodies is not None:
        allowed[:] = False
        allowed[:, places(options.bodies, "bodies")] = True
    for head, atom in options.forbidden:
        i, j = places([head, atom], "forbidden")
        allowed[i, j] = False
    # No example can show that a body needs an atom that is always true.
    allowed[:, data.states.all(0)] = False
    np.fill_diagonal(allowed, False)
    if options.heads is not None:
        others = np.ones(data.M, np.bool_)
        others[places(options.heads, "heads")] = False
        allowed[others] = False
    return allowed


def _known_rules(known: Program | None, data: Observations) -> list[Implication]:
    if known is None:
        return []
    index = {name: i for i, name in enumerate(data.atoms)}
    used = {known.atoms[i] for i in (*known.head_indices.tolist(), *known.body_indices.tolist())}
    unknown = sorted(used - set(index))
    if unknown:
        raise _unknown(unknown, data, "known rules")
    rules = []
    for rule in known.rules:
        body = tuple(sorted(index[name] for name in rule.body))
        rules += [(index[head], body) for head in rule.heads]
    return list(dict.fromkeys(rules))


def _unknown(names: Sequence[str], data: Observations, what: str) -> DataError:
    message = str(unknown_atoms(names, data.atoms, what=what))
    return DataError(message.replace("this program does", "these data do"))
