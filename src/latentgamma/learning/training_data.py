"""Examples as a strategy needs them, and what can be said of them before learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentgamma._text import quantity
from latentgamma.errors import DataError, unknown_atoms
from latentgamma.learning.bodies import Implication, as_rule, covered, packed_words
from latentgamma.learning.data import Observations
from latentgamma.learning.noisy import estimate_noise
from latentgamma.learning.options import FitOptions
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program

# ---- Checks that examples can be what they are said to be

#: Machine words that are compared at most when examples are compared with each other, and at once.
_MOST_WORDS = 2 << 28
_CHUNK = 1 << 22
#: How often a rule must have become applicable in the targets before that is taken as a sign.
_ENOUGH = 10


def refuse_contradictions(data: Observations) -> None:
    """Raise if some labels must be wrong: atoms become false, or equal states have two outcomes."""
    lost = data.states & (data.labels == 0)
    if lost.any():
        row, i = np.argwhere(lost)[0].tolist()
        number = int(data.counts[lost.any(1)].sum())
        raise DataError(
            f"rules only add atoms, but {data.atoms[i]!r} is true before and false after in row "
            f"{data.rows[row]} ({quantity(number, 'row')} have such a label); if labels may be wrong "
            f'pass noise="auto", and if atoms can become false use separate columns for what '
            f"comes after"
        )
    found = contradictions(data)
    if found:
        one, other, i = found[0]
        verb = "contradicts" if len(found) == 1 else "contradict"
        raise DataError(
            f"{quantity(len(found), 'label')} {verb} another one: rows {data.rows[one]} and "
            f"{data.rows[other]} have one state, but {data.atoms[i]!r} follows in only one of "
            f'them; if labels may be wrong pass noise="auto" or the fraction of wrong labels'
        )


def contradictions(data: Observations) -> list[tuple[int, int, int]]:
    """Return pairs of examples with the same state and different labels, as (row, row, atom)."""
    found = []
    _, inverse = np.unique(packed_words(data.states), axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(inverse.ravel()[order])) + 1)
    for group in groups:
        if len(group) < 2:
            continue
        labels = data.labels[group]
        differ = (labels == 1).any(0) & (labels == 0).any(0)
        for i in np.flatnonzero(differ).tolist():
            one, other = group[labels[:, i] == 1][0], group[labels[:, i] == 0][0]
            found.append((int(one), int(other), i))
    return found


def counterexamples(rule: Implication, data: Observations, *, closed: bool) -> tuple[Mask, Mask]:
    """Return the examples that a rule applies to, and those of them that it gets wrong."""
    head, body = rule
    states = data.states | (data.labels == 1) if closed else data.states
    applies = covered(states, body) & ~data.states[:, head] & (data.labels[:, head] >= 0)
    return applies, applies & (data.labels[:, head] == 0)


def refuse_wrong_rules(rules: Sequence[Implication], data: Observations, *, closed: bool) -> None:
    """Raise if an example contradicts a known rule."""
    for rule in rules:
        applies, wrong = counterexamples(rule, data, closed=closed)
        if wrong.any():
            raise DataError(
                f"the known rule {str(as_rule(rule, data.atoms))!r} is wrong in {int(wrong.sum())} "
                f"of the {quantity(int(applies.sum()), 'example')} that it applies to; drop it, or "
                f"pass refine=True"
            )


def is_refuted(rule: Implication, data: Observations, noise: float, *, closed: bool) -> bool:
    """Return whether a rule is wrong significantly more often than labels are."""
    applies, wrong = counterexamples(rule, data, closed=closed)
    n, bad = int(data.counts[applies].sum()), int(data.counts[wrong].sum())
    return bool(bad > noise * n + 3 * np.sqrt(noise * (1 - noise) * n))


def note_if_closed(rules: Sequence[Implication], data: Observations) -> list[str]:
    """Return a note if the targets of one step seem to be closures.

    After one step some rules have a body that is true and was not before. Their heads follow with
    the next step. One step has few of these heads already, closures have all, and have most even
    where the rules are not quite right.
    """
    after = data.states | (data.labels == 1)
    due = early = 0
    for head, body in rules:
        rows = covered(after, body) & ~covered(data.states, body) & ~data.states[:, head]
        due += int(data.counts[rows & (data.labels[:, head] >= 0)].sum())
        early += int(data.counts[rows & (data.labels[:, head] == 1)].sum())
    if due >= _ENOUGH and 2 * early >= due:
        return [
            f"the targets look like closures: {early} of {due} times that one step made a rule's "
            f'body true, its head was there already; if they are, pass kind="closures"'
        ]
    return []


def refuse_open_targets(data: Observations) -> None:
    """Raise if the targets cannot be closures: facts inside a closure add nothing to it."""
    found = _open_target(data)
    if found is None:
        return
    one, other, i = found
    raise DataError(
        f"the targets are not closures: the facts of row {data.rows[one]} are all in the target "
        f"of row {data.rows[other]}, but {data.atoms[i]!r} follows only in the first; if the "
        f'targets are one step pass kind="transitions", and if labels may be wrong noise="auto" '
        f"or their fraction"
    )


def _open_target(data: Observations) -> tuple[int, int, int] | None:
    """Return examples j, k and an atom of target j that k's lacks, though it has j's facts.

    Small fact sets lie in most targets, so they are tried first, within the limit on words.
    """
    closed = data.states | (data.labels == 1)
    facts, lacking = packed_words(data.states), packed_words(~closed)  # (N, W)
    gained, refused = packed_words(data.labels == 1), packed_words(data.labels == 0)
    N, W = facts.shape
    order = np.argsort(data.states.sum(1), kind="stable")[: max(1, _MOST_WORDS // (N * W))]
    rows = max(1, _CHUNK // (N * W))
    for start in range(0, len(order), rows):
        some = order[start : start + rows]
        inside = np.ones((len(some), N), np.bool_)
        differ = np.zeros((len(some), N), np.bool_)
        for w in range(W):
            inside &= (facts[some, w, None] & lacking[None, :, w]) == 0
            differ |= (gained[some, w, None] & refused[None, :, w]) != 0
        differ &= inside
        if differ.any():
            j, k = (int(x) for x in np.argwhere(differ)[0])
            j = int(some[j])
            atoms = np.flatnonzero((data.labels[j] == 1) & (data.labels[k] == 0))
            return j, k, int(atoms[0])
    return None


# ---- Examples ready to be learned from: noise, held-out part, allowed atoms, known rules

#: No larger fraction of wrong labels is assumed.
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
        noise: the fraction of wrong labels.
        max_body: the largest body.
        notes: where the fraction of wrong labels comes from.
    """

    observations: Observations
    training: Observations
    held_out: Observations | None
    allowed: Mask
    known: list[Implication]
    noise: float
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
        options.body_limit(noise),
        notes,
    )


def _noise(data: Observations, options: FitOptions) -> tuple[float, tuple[str, ...]]:
    """Return the fraction of wrong labels, and a note on where it comes from."""
    noise = options.noise
    if options.kind == "models":
        return 0.0, ()
    if data.doubt > 0:
        fraction = max(data.doubt, 0.0 if noise == "auto" else noise)
        note = f"by the labels' own probabilities {data.doubt:.2%} of them round to the wrong side"
        return min(fraction, _MOST_NOISE), (note,)
    if noise != "auto":
        return noise, ()
    rate = estimate_noise(
        np.repeat(data.states, data.counts, 0), np.repeat(data.labels, data.counts, 0)
    )
    if rate is None:
        raise DataError(
            'noise="auto" needs at least 50 labels of atoms that were true before; pass the fraction '
            "of wrong labels as a number"
        )
    note = f"{rate:.2%} of the labels of atoms that were true before are false, so they are wrong"
    return (min(rate, _MOST_NOISE), (note,)) if rate > 0 else (0.0, ())


def _split(
    data: Observations, fraction: float, seed: int
) -> tuple[Observations, Observations | None]:
    if fraction == 0 or data.N < _FEWEST_TO_SPLIT:
        return data, None
    order = np.random.default_rng(seed).permutation(data.N)
    held_out = max(1, round(fraction * data.N))
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
    lacking = "these data do not have"
    return DataError(str(unknown_atoms(names, data.atoms, what, lacking=lacking)))
