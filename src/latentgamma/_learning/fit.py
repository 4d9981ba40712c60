"""From observations to rules: `fit`, and what it brings back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from latentgamma._errors import DataError, unknown_atoms
from latentgamma._learning.data_checks import looks_closed, refuse_open_targets
from latentgamma._learning.exact_search import Found, Task, alternatives, flipped
from latentgamma._learning.from_closures import (
    Implication,
    as_program,
    implications,
    likely_implications,
)
from latentgamma._learning.from_models import rules_of_models
from latentgamma._learning.head_learner import Curve, Learner, Moment, Progress
from latentgamma._learning.journal import Journal, Keep, fingerprint, no_journal
from latentgamma._learning.observations import Kind, Observations, contradictions, observe
from latentgamma._learning.rule_statistics import (
    Evidence,
    accuracy,
    at_best,
    clashing,
    evidence,
    explained,
    open_questions,
    unexplained,
)
from latentgamma._program.program import Mask, Program, Rule

if TYPE_CHECKING:
    import torch

    from latentgamma._certificate.certificate import Certificate
    from latentgamma._learning.gradient_learner import Homotopy
    from latentgamma._model.module import LatentGamma

Method: TypeAlias = Literal["auto", "gradient", "symbolic", "paper"]


@dataclass(frozen=True)
class FitResult:
    """What was learned, and how far it can be trusted.

    Attributes:
        program: the rules.
        model: the network with these rules; of method "paper", the trained network itself.
        certificate: whether that network provably equals the program, and in which window.
        accuracy: the share of held-out examples of which every atom is right (None without).
        evidence: support and confidence of each rule, and the alternatives to it.
        unexplained: for each atom, examples in which it followed and no rule says why.
        notes: what these data cannot tell, and what was assumed.
        history: the learning curve.
        method, reason: how it was learned, and why in this way.
        noise: the share of wrong labels that was assumed or estimated.
    """

    program: Program
    model: LatentGamma
    certificate: Certificate
    accuracy: float | None
    evidence: tuple[Evidence, ...]
    unexplained: Mapping[str, int]
    notes: tuple[str, ...]
    history: tuple[Moment, ...]
    method: str
    reason: str
    noise: float
    training_accuracy: float = field(default=1.0)

    @property
    def undecided(self) -> tuple[Evidence, ...]:
        """The rules to which the data leave an alternative."""
        return tuple(one for one in self.evidence if one.alternatives)

    def explain(self, head: str) -> str:
        """What was learned about one atom, as text.

        Every rule with its support and confidence, its alternatives, and what is unexplained.
        """
        if head not in self.program.index:
            raise unknown_atoms([head], self.program.atoms, what="explain")
        lines = []
        for one in self.evidence:
            if one.rule.heads != (head,):
                continue
            lines.append(f"{one.rule}  % support {one.support}, confidence {one.confidence:.3f}")
            lines += [f"  % or: {other}" for other in one.alternatives]
        if not lines:
            lines.append(f"% no rule for {head}")
        if self.unexplained.get(head):
            lines.append(f"% {self.unexplained[head]} examples with {head} that no rule explains")
        return "\n".join(lines)

    def __str__(self) -> str:
        shown = "" if self.accuracy is None else f", held-out accuracy {self.accuracy:.4f}"
        network = f"the network against these rules: {self.certificate}"
        return f"{self.program.R} rules by method {self.method!r}{shown}; {network}"


def fit(
    inputs: Any,
    targets: Any = None,
    *,
    kind: Kind = "transitions",
    atoms: Sequence[str] | None = None,
    method: Method = "auto",
    noise: float | Literal["auto"] = 0.0,
    seed: int = 0,
    known: Program | None = None,
    refine: bool = False,
    heads: Iterable[str] | None = None,
    bodies: Iterable[str] | None = None,
    forbidden: Iterable[tuple[str, str]] = (),
    max_body: int | None = None,
    holdout: float | None = None,
    homotopy: Homotopy | None = None,
    progress: Progress | None = None,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
) -> FitResult:
    """The rules that explain observations, as a program, a network, and a proof that they agree.

    Args:
        inputs: states before, (N, M) in [0, 1]: an array, a tensor, rows, a data frame, or the
            path of a .csv or .parquet table with one column per atom, or of a .npy or .npz file.
        targets: states after, likewise; NaN is a missing label, and a number between 0 and 1 the
            probability that the label is true, which is weighed as such. A table of inputs may bring
            them itself, in columns `a'` beside `a`.
        kind: "transitions", one step of the rules; "closures", everything that follows;
            "trajectories", arrays (steps, M) of successive states, without targets; "models",
            closed sets alone, without targets, of which all rules are found that none breaks.
        atoms: the names of the columns.
        method: "symbolic" searches; "gradient" trains the operator's rows; "paper" trains the
            whole operator freely, which fits without finding rules; "auto" picks.
        noise: the share of wrong labels, or "auto" to estimate it.
        seed: of everything random.
        known: rules that are there from the start.
        refine: whether known rules may be dropped when the data speak against them.
        heads: the atoms that may have rules; by default all.
        bodies: the atoms that rules may use; by default all.
        forbidden: pairs (head, atom): the atom is in no body of the head.
        max_body: the largest body; by default 8, and from models any. From closures with wrong
            labels it is at most 3.
        holdout: the share of examples kept aside to measure `accuracy`; by default a tenth, and
            of models none.
        homotopy: the annealing of the gradient learner.
        progress: called with a `Moment` now and then.
        device: where the gradient learner runs.
        checkpoint: a file to keep finished work in. A call with the same data and options goes
            on from there, and its result is what it would have been without a break. The file
            stays; once you have saved what came back, delete it.

    >>> states = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    >>> after = [[1, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    >>> result = fit(states, after, atoms=["a", "b", "c"], holdout=0)
    >>> print(result.program.rules[0], result.certificate.holds)
    c :- a, b. True
    """
    _check_options(kind, method, noise, max_body, holdout)
    heads, bodies = _names(heads), _names(bodies)
    forbidden = list(forbidden)
    data = inputs
    if not isinstance(data, Observations):
        data = observe(inputs, targets, kind=kind, atoms=atoms)
    if kind == "models":
        limits = (heads, bodies, forbidden or None, max_body, checkpoint)
        _refuse_for_models(method, noise, limits)
        return _from_models(data, known, refine, holdout or 0.0, seed, progress, device)
    max_body = 8 if max_body is None else max_body
    holdout = 0.1 if holdout is None else holdout
    task_kind = "closures" if kind == "closures" else "transitions"
    share, notes = _noise(data, noise)
    if data.belief is not None and noise != "auto":  # what the labels do not say themselves
        data = replace(data, belief=data.belief * np.float32(1 - 2 * noise) + np.float32(noise))
    if share == 0.0:
        _refuse_contradictions(data)
        if task_kind == "closures":
            refuse_open_targets(data)
    training, held = _split(data, holdout, seed)
    allowed = _allowed(data, heads, bodies, forbidden)
    start = _known(known, data)
    if start and share == 0.0 and not refine:
        _refuse_contradicted(start, training, data.atoms, closed=task_kind == "closures")
    if refine:
        start = [rule for rule in start if _stands(rule, training, share, task_kind)]
    chosen, reason = _pick(method, share)
    curve = Curve(data.atoms, start, progress)
    found: dict[int, Found] = {}
    if chosen == "paper":
        if checkpoint is not None:
            raise DataError('method "paper" keeps no checkpoint; leave it out')
        from latentgamma._learning.unconstrained import train_freely

        model, program = train_freely(
            training, task_kind, seed=seed, device=device, report=curve.tell
        )
        rules = [
            (int(program.heads_of(j)[0]), tuple(program.body_of(j).tolist()))
            for j in range(program.R)
        ]
    else:
        from latentgamma._version import __version__

        about = {
            "release": __version__,
            "data": fingerprint(data),
            "kind": kind,
            "method": chosen,
            "noise": share,
            "seed": int(seed),
            "known": None if known is None else [str(rule) for rule in known.rules],
            "refine": refine,
            "heads": heads,
            "bodies": bodies,
            "forbidden": [list(pair) for pair in forbidden],
            "max_body": int(max_body),
            "holdout": float(holdout),
        }
        if chosen == "gradient":
            from latentgamma._learning.gradient_learner import Homotopy

            homotopy = homotopy or Homotopy()
            about |= {"homotopy": asdict(homotopy), "device": str(device)}
        with contextlib.ExitStack() as stack:
            keep: Keep = no_journal
            if checkpoint is not None:
                keep = stack.enter_context(Journal(checkpoint, about))
            learner = Learner(
                chosen,
                noise=share,
                seed=seed,
                homotopy=homotopy,
                device=device,
                curve=curve,
                keep=keep,
                derived=None if task_kind == "closures" else _derived(training),
            )
            learn = _from_closures if task_kind == "closures" else _from_transitions
            rules, found = learn(training, allowed, max_body, start, learner)
        program = as_program(rules, data.M, data.atoms)
        from latentgamma._model.oracle import oracle

        model = oracle(program, device=device)
    from latentgamma._certificate.certificate import certify

    any_label = chosen == "paper" or (task_kind == "closures" and share > 0)
    certificate = certify(model, program)
    curve.tell(
        "done", program.R, explained(program, training, task_kind, every_label=any_label), rules
    )
    account = evidence(rules, found, training, task_kind)
    if share > 0:
        notes.append(
            f"with so many wrong labels the true rules would get {at_best(training, share):.2f} "
            f"of the examples exactly right"
        )
    if kind == "transitions":
        notes += looks_closed(rules, training)
    return FitResult(
        program=program,
        model=model,
        certificate=certificate,
        accuracy=accuracy(program, held, task_kind),
        evidence=account,
        unexplained=unexplained(program, training, task_kind),
        notes=(*data.notes, *notes, *open_questions(account)),
        history=tuple(curve.history),
        method=chosen,
        reason=reason,
        noise=share,
        training_accuracy=accuracy(program, training, task_kind) or 0.0,
    )


# ------------------------------------------------------------------------ the learners


def _from_transitions(
    data: Observations, allowed: Mask, max_body: int, start: list[Implication], learner: Learner
) -> tuple[list[Implication], dict[int, Found]]:
    tasks, known = [], []
    for h in range(data.M):
        mine = [body for head, body in start if head == h]
        rows = ~data.states[:, h] & (data.labels[:, h] >= 0)
        positive = data.labels[rows, h] == 1
        if not allowed[h].any() or not (positive.any() or (mine and len(positive))):
            continue
        belief = None if data.belief is None else data.belief[rows, h]
        tasks.append(
            Task(h, data.states[rows], positive, data.counts[rows], allowed[h], max_body, belief)
        )
        known.append(mine)
    found = learner(tasks, 0.0, known)
    # Known rules of heads that nothing is learned about stay as they are.
    seen = {task.head for task in tasks}
    rules = [rule for rule in start if rule[0] not in seen]
    for task, one, mine in zip(tasks, found, known, strict=True):
        rules += [(task.head, body) for body in sorted(set(one.bodies))]
        if not learner.noise:
            one.alternatives = alternatives(task, one.bodies[len(mine) :], mine)
    by_head = {task.head: one for task, one in zip(tasks, found, strict=True)}
    return sorted(rules, key=lambda rule: rule[0]), by_head


def _from_closures(
    data: Observations, allowed: Mask, max_body: int, start: list[Implication], learner: Learner
) -> tuple[list[Implication], dict[int, Found]]:
    known = data.labels >= 0
    if learner.noise:
        rows = np.repeat(np.arange(data.N), data.counts)
        rules = likely_implications(
            data.states[rows],
            data.labels[rows] == 1,
            known[rows],
            allowed,
            learner,
            noise=learner.noise,
            belief=None if data.belief is None else data.belief[rows],
            max_body=min(max_body, 3),
            kept=start,
            report=learner.curve.tell_rules,
        )
        return sorted(rules, key=lambda rule: rule[0]), {}
    closed = data.states | (data.labels == 1)
    rules = implications(
        data.states,
        closed,
        known,
        allowed,
        learner,
        max_body=max_body,
        kept=start,
        report=learner.curve.tell_rules,
    )
    return sorted(rules, key=lambda rule: rule[0]), {}


def _refuse_for_models(method: str, noise: float | str, limits: tuple[object | None, ...]) -> None:
    if method not in ("auto", "symbolic") or noise != 0.0:
        raise DataError('rules are learned from models by method "symbolic", without noise')
    if any(limit is not None for limit in limits):
        raise DataError(
            "from models all rules are found, without a checkpoint: leave out columns instead of "
            "passing heads, bodies, forbidden or max_body"
        )


def _from_models(
    data: Observations,
    known: Program | None,
    refine: bool,
    holdout: float,
    seed: int,
    progress: Progress | None,
    device: torch.device | str,
) -> FitResult:
    training, held = _split(data, holdout, seed)
    # Which atoms of a model were facts is not known, so each of them may have followed.
    told = replace(training, states=np.zeros_like(training.states))
    start = _known(known, data)
    if refine:
        start = [rule for rule in start if _stands(rule, told, 0.0, "closures")]
    _refuse_contradicted(start, told, data.atoms, closed=True)
    curve = Curve(data.atoms, start, progress)
    rules = sorted(rules_of_models(training.states, start), key=lambda rule: rule[0])
    program = as_program(rules, data.M, data.atoms)
    from latentgamma._certificate.certificate import certify
    from latentgamma._model.oracle import oracle

    model = oracle(program, device=device)
    curve.tell_rules("done", rules, 1.0)
    account = evidence(rules, {}, told, "closures")
    alone = sum(one.support == 0 for one in account)
    rounded = [note for note in data.notes if note.endswith("rounded")]
    notes = [f"{alone} rules say what no row has together: there, everything follows"]
    return FitResult(
        program=program,
        model=model,
        certificate=certify(model, program),
        accuracy=accuracy(program, held, "closures"),
        evidence=account,
        unexplained={},
        notes=(*rounded, *(notes if alone else ())),
        history=tuple(curve.history),
        method="symbolic",
        reason="models determine their rules: search is exact",
        noise=0.0,
    )


def _pick(method: Method, noise: float) -> tuple[str, str]:
    if method != "auto":
        return method, "asked for"
    if noise:
        return "symbolic", (
            "labels may be wrong: counting every short body keeps more of the evidence than "
            "the slots of the gradient learner do"
        )
    return "symbolic", "no label is wrong: search is exact here, and faster than gradients"


# ------------------------------------------------------------------------ options


def _check_options(
    kind: str, method: str, noise: float | str, max_body: int | None, holdout: float | None
) -> None:
    for what, value, options in (
        ("kind", kind, get_args(Kind)),
        ("method", method, get_args(Method)),
    ):
        if value not in options:
            raise DataError(f"{what} must be one of {', '.join(map(repr, options))}, not {value!r}")
    if noise != "auto" and not (isinstance(noise, (int, float)) and 0 <= noise < 0.5):
        raise DataError(
            f'noise is "auto" or the share of wrong labels, from 0 to 0.5, not {noise!r}'
        )
    if max_body is not None and max_body < 0:
        raise DataError(f"max_body is a whole number from 0 on, not {max_body}")
    if holdout is not None and not 0 <= holdout < 1:
        raise DataError(f"holdout is the share of examples kept aside, from 0 to 1, not {holdout}")


def _names(names: Iterable[str] | None) -> list[str] | None:
    return [names] if isinstance(names, str) else None if names is None else list(names)


def _derived(data: Observations) -> int:
    """How many labels there are for rules to explain."""
    return int((data.counts @ ((data.labels == 1) & ~data.states)).sum())


def _allowed(
    data: Observations,
    heads: Sequence[str] | None,
    bodies: Sequence[str] | None,
    forbidden: Sequence[tuple[str, str]],
) -> Mask:
    """Which atoms (columns) the bodies of each head (rows) may use. (M, M)."""
    index = {name: i for i, name in enumerate(data.atoms)}

    def places(names: Sequence[str], what: str) -> list[int]:
        unknown = [name for name in names if name not in index]
        if unknown:
            raise DataError(str(unknown_atoms(unknown, data.atoms, what=what)))
        return [index[name] for name in names]

    allowed = np.ones((data.M, data.M), np.bool_)
    if bodies is not None:
        allowed[:] = False
        allowed[:, places(bodies, "bodies")] = True
    for head, atom in forbidden:
        i, j = places([head, atom], "forbidden")
        allowed[i, j] = False
    # An atom that is always true is in no body for a reason that could be seen.
    allowed[:, data.states.all(0)] = False
    np.fill_diagonal(allowed, False)
    if heads is not None:
        others = np.ones(data.M, np.bool_)
        others[places(heads, "heads")] = False
        allowed[others] = False
    return allowed


def _known(known: Program | None, data: Observations) -> list[Implication]:
    if known is None:
        return []
    index = {name: i for i, name in enumerate(data.atoms)}
    used = {known.atoms[i] for i in (*known.head_indices.tolist(), *known.body_indices.tolist())}
    unknown = sorted(used - set(index))
    if unknown:
        raise DataError(str(unknown_atoms(unknown, data.atoms, what="known rules")))
    rules = []
    for rule in known.rules:
        body = tuple(sorted(index[name] for name in rule.body))
        rules += [(index[head], body) for head in rule.heads]
    return list(dict.fromkeys(rules))


def _noise(data: Observations, noise: float | Literal["auto"]) -> tuple[float, list[str]]:
    """The share of wrong labels, and a note on where it comes from."""
    if data.doubt > 0:
        return min(max(data.doubt, 0.0 if noise == "auto" else noise), 0.45), [
            f"the labels' own probabilities say that {data.doubt:.2%} of them round to the wrong side"
        ]
    if noise != "auto":
        return float(noise), []
    rate = flipped(np.repeat(data.states, data.counts, 0), np.repeat(data.labels, data.counts, 0))
    if rate is None:
        raise DataError(
            'noise="auto" needs at least 50 labels of atoms that were true before; pass a number'
        )
    note = f"{rate:.2%} of the labels of atoms that were true before say false, which no rule can"
    return (min(rate, 0.45), [note]) if rate > 0 else (0.0, [])


def _refuse_contradictions(data: Observations) -> None:
    undone = data.states & (data.labels == 0)
    if undone.any():
        row, i = np.argwhere(undone)[0].tolist()
        raise DataError(
            f"rules only add atoms, but {data.atoms[i]!r} is true before and false after in "
            f"{int(undone.any(1).sum())} examples (first: example {row}); if labels may be wrong "
            f'pass noise="auto", and if atoms can become false give what comes after columns of '
            f"its own"
        )
    clashes = contradictions(data)
    if clashes:
        one, other, i = clashes[0]
        raise DataError(
            f"{len(clashes)} labels contradict each other: different examples {one} and {other} "
            f"have one state, but {data.atoms[i]!r} follows in only one of them; if labels may be "
            f'wrong pass noise="auto" or the share of wrong labels'
        )


def _refuse_contradicted(
    start: list[Implication], data: Observations, atoms: Sequence[str], *, closed: bool
) -> None:
    for rule in start:
        about, wrong = clashing(rule, data, closed=closed)
        if wrong.any():
            text = Rule((atoms[rule[0]],), frozenset(atoms[i] for i in rule[1]))
            raise DataError(
                f"the known rule {str(text)!r} is wrong in {int(wrong.sum())} of the "
                f"{int(about.sum())} examples it speaks about; drop it, or pass refine=True"
            )


def _stands(rule: Implication, data: Observations, noise: float, kind: str) -> bool:
    """Whether a known rule survives the data: no more wrong than labels are."""
    about, wrong = clashing(rule, data, closed=kind == "closures")
    n, bad = int(data.counts[about].sum()), int(data.counts[wrong].sum())
    return bool(bad <= noise * n + 3 * np.sqrt(noise * (1 - noise) * n))


# ------------------------------------------------------------------------ the examples kept aside


def _split(
    data: Observations, holdout: float, seed: int
) -> tuple[Observations, Observations | None]:
    if holdout == 0 or data.N < 20:
        return data, None
    order = np.random.default_rng(seed).permutation(data.N)
    count = max(1, round(holdout * data.N))
    return data.rows(np.sort(order[count:])), data.rows(np.sort(order[:count]))
