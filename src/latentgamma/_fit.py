"""From observations to rules: `fit`, and what it brings back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from latentgamma._closure import closures
from latentgamma._data import Kind, Observations, contradictions, observe
from latentgamma._errors import DataError, unknown_atoms
from latentgamma._implications import Implication, as_program, implications, likely_implications
from latentgamma._program import Mask, Program, Rule
from latentgamma._symbolic import Body, Found, Task, cover, covered, flipped, likeliest

if TYPE_CHECKING:
    import torch

    from latentgamma._certificate import Certificate
    from latentgamma._operator import LatentGamma
    from latentgamma._training import Homotopy

Method: TypeAlias = Literal["auto", "gradient", "symbolic", "paper"]
#: Told how learning goes: the stage, the number of rules so far, the share explained.
Progress: TypeAlias = Callable[["Moment"], None]


class Moment(NamedTuple):
    """One entry of a learning curve."""

    stage: str
    rules: int
    explained: float


class Evidence(NamedTuple):
    """What the data say about one rule."""

    rule: Rule
    support: int  # examples in which the body was true and the head was not given
    confidence: float  # the share of those in which the head followed
    alternatives: tuple[Rule, ...]  # rules that would explain the examples as well


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
    max_body: int = 8,
    holdout: float = 0.1,
    homotopy: Homotopy | None = None,
    progress: Progress | None = None,
    device: torch.device | str = "cpu",
) -> FitResult:
    """The rules that explain observations, as a program, a network, and a proof that they agree.

    Args:
        inputs: states before, (N, M) in [0, 1]: an array, a tensor, rows, a data frame, or the
            path of a .csv or .parquet table with one column per atom.
        targets: states after, likewise; NaN is a missing label. A table of inputs may bring
            them itself, in columns `a'` beside `a`.
        kind: "transitions", one step of the rules; "closures", everything that follows;
            "trajectories", arrays (steps, M) of successive states, without targets.
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
        max_body: the largest body.
        holdout: the share of examples kept aside to measure `accuracy`.
        homotopy: the annealing of the gradient learner.
        progress: called with a `Moment` now and then.
        device: where the gradient learner runs.

    >>> states = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    >>> after = [[1, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    >>> result = fit(states, after, atoms=["a", "b", "c"], holdout=0)
    >>> print(result.program.rules[0], result.certificate.holds)
    c :- a, b. True
    """
    _check_options(kind, method, noise, max_body, holdout)
    data = observe(inputs, targets, kind=kind, atoms=atoms)
    task_kind = "closures" if kind == "closures" else "transitions"
    share, notes = _noise(data, noise)
    if share == 0.0:
        _refuse_contradictions(data)
    training, held = _split(data, holdout, seed)
    allowed = _allowed(data, heads, bodies, forbidden)
    start = _known(known, data)
    if start and share == 0.0 and not refine:
        _refuse_contradicted(start, training, data.atoms, closed=task_kind == "closures")
    if refine:
        start = [rule for rule in start if _stands(rule, training, share, task_kind)]
    chosen, reason = _pick(method, share)
    history: list[Moment] = []

    def tell(stage: str, rules: int, explained: float) -> None:
        history.append(Moment(stage, rules, explained))
        if progress is not None:
            progress(history[-1])

    if chosen == "paper":
        from latentgamma._paper_training import train_freely

        model, program = train_freely(training, task_kind, seed=seed, device=device, report=tell)
        rules = [
            (int(program.heads_of(j)[0]), tuple(program.body_of(j).tolist()))
            for j in range(program.R)
        ]
        found: dict[int, Found] = {}
    else:
        learner = _Learner(
            chosen, noise=share, seed=seed, homotopy=homotopy, device=device, tell=tell
        )
        if task_kind == "closures":
            rules, found = _from_closures(training, allowed, max_body, start, learner)
        else:
            rules, found = _from_transitions(training, allowed, max_body, start, learner)
        program = as_program(rules, data.M, data.atoms)
        from latentgamma._oracle import oracle

        model = oracle(program, device=device)
    from latentgamma._certificate import certify

    certificate = certify(model, program)
    tell("done", program.R, _accuracy(program, training, task_kind) or 0.0)
    return FitResult(
        program=program,
        model=model,
        certificate=certificate,
        accuracy=_accuracy(program, held, task_kind),
        evidence=_evidence(rules, found, training, task_kind),
        unexplained=_unexplained(program, training, task_kind),
        notes=(*data.notes, *notes),
        history=tuple(history),
        method=chosen,
        reason=reason,
        noise=share,
        training_accuracy=_accuracy(program, training, task_kind) or 0.0,
    )


# ------------------------------------------------------------------------ the learners


class _Learner:
    """The learner of single heads that was picked, with its options."""

    def __init__(
        self,
        method: str,
        *,
        noise: float,
        seed: int,
        homotopy: Homotopy | None,
        device: torch.device | str,
        tell: Callable[[str, int, float], None],
    ) -> None:
        self.method, self.noise, self.seed = method, noise, seed
        self.homotopy, self.device, self.tell = homotopy, device, tell

    def __call__(
        self, tasks: list[Task], least: float = 0.0, known: Sequence[Sequence[Body]] | None = None
    ) -> list[Found]:
        given = known or [()] * len(tasks)
        if self.method == "symbolic":
            found = []
            for i, (task, start) in enumerate(zip(tasks, given, strict=True)):
                if self.noise:
                    found.append(likeliest(task, self.noise, start))
                else:
                    found.append(cover(task, start, least))
                if i % 16 == 15:
                    rules = sum(len(one.bodies) for one in found)
                    self.tell("heads", rules, (i + 1) / len(tasks))
            return found
        from latentgamma._training import train

        def report(turn: int, waiting: int, rules: int) -> None:
            self.tell(f"round {turn + 1}", rules, 1 - waiting / max(1, len(tasks)))

        return train(
            tasks,
            noise=self.noise,
            known=given,
            homotopy=self.homotopy,
            seed=self.seed,
            device=self.device,
            report=report,
        )


def _from_transitions(
    data: Observations, allowed: Mask, max_body: int, start: list[Implication], learner: _Learner
) -> tuple[list[Implication], dict[int, Found]]:
    tasks, known = [], []
    for h in range(data.M):
        mine = [body for head, body in start if head == h]
        rows = ~data.states[:, h] & (data.labels[:, h] >= 0)
        positive = data.labels[rows, h] == 1
        if not allowed[h].any() or (not positive.any() and not mine):
            continue
        tasks.append(Task(h, data.states[rows], positive, data.counts[rows], allowed[h], max_body))
        known.append(mine)
    found = learner(tasks, 0.0, known)
    # Known rules of heads that nothing is learned about stay as they are.
    seen = {task.head for task in tasks}
    rules = [rule for rule in start if rule[0] not in seen]
    for task, one in zip(tasks, found, strict=True):
        rules += [(task.head, body) for body in sorted(set(one.bodies))]
    by_head = {task.head: one for task, one in zip(tasks, found, strict=True)}
    return sorted(rules, key=lambda rule: rule[0]), by_head


def _from_closures(
    data: Observations, allowed: Mask, max_body: int, start: list[Implication], learner: _Learner
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
            max_body=min(max_body, 3),
            kept=start,
            report=learner.tell,
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
        report=learner.tell,
    )
    return sorted(rules, key=lambda rule: rule[0]), {}


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
    kind: str, method: str, noise: float | str, max_body: int, holdout: float
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
    if max_body < 0:
        raise DataError(f"max_body is a whole number from 0 on, not {max_body}")
    if not 0 <= holdout < 1:
        raise DataError(f"holdout is the share of examples kept aside, from 0 to 1, not {holdout}")


def _allowed(
    data: Observations,
    heads: Iterable[str] | None,
    bodies: Iterable[str] | None,
    forbidden: Iterable[tuple[str, str]],
) -> Mask:
    """Which atoms (columns) the bodies of each head (rows) may use. (M, M)."""
    index = {name: i for i, name in enumerate(data.atoms)}

    def places(names: Iterable[str], what: str) -> list[int]:
        listed = [names] if isinstance(names, str) else list(names)
        unknown = [name for name in listed if name not in index]
        if unknown:
            raise DataError(str(unknown_atoms(unknown, data.atoms, what=what)))
        return [index[name] for name in listed]

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
    if noise != "auto":
        notes = []
        if noise == 0.0 and data.doubt > 0:
            notes.append("values between 0 and 1 were rounded, and taken as certain")
        return float(noise), notes
    if data.doubt > 0:
        return min(data.doubt, 0.45), [
            f"the labels' own probabilities say that {data.doubt:.2%} of them round to the wrong side"
        ]
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


def _clashing(rule: Implication, data: Observations, *, closed: bool) -> tuple[Mask, Mask]:
    """The examples that a rule speaks about, and those of them that it gets wrong."""
    head, body = rule
    states = data.states | (data.labels == 1) if closed else data.states
    about = covered(states, body) & ~data.states[:, head] & (data.labels[:, head] >= 0)
    return about, about & (data.labels[:, head] == 0)


def _refuse_contradicted(
    start: list[Implication], data: Observations, atoms: Sequence[str], *, closed: bool
) -> None:
    for rule in start:
        about, wrong = _clashing(rule, data, closed=closed)
        if wrong.any():
            text = Rule((atoms[rule[0]],), frozenset(atoms[i] for i in rule[1]))
            raise DataError(
                f"the known rule {str(text)!r} is wrong in {int(wrong.sum())} of the "
                f"{int(about.sum())} examples it speaks about; drop it, or pass refine=True"
            )


def _stands(rule: Implication, data: Observations, noise: float, kind: str) -> bool:
    """Whether a known rule survives the data: no more wrong than labels are."""
    about, wrong = _clashing(rule, data, closed=kind == "closures")
    n, bad = int(data.counts[about].sum()), int(data.counts[wrong].sum())
    return bool(bad <= noise * n + 3 * np.sqrt(noise * (1 - noise) * n))


# ------------------------------------------------------------------------ the account


def _split(
    data: Observations, holdout: float, seed: int
) -> tuple[Observations, Observations | None]:
    if holdout == 0 or data.N < 20:
        return data, None
    order = np.random.default_rng(seed).permutation(data.N)
    count = max(1, round(holdout * data.N))
    return data.rows(np.sort(order[count:])), data.rows(np.sort(order[:count]))


def _predicted(program: Program, states: Mask, kind: str) -> Mask:
    if kind == "closures":
        return closures(program, states)
    after = states.copy()
    for j in range(program.R):
        after[:, program.heads_of(j)] |= covered(states, program.body_of(j).tolist())[:, None]
    return after


def _accuracy(program: Program, data: Observations | None, kind: str) -> float | None:
    """The share of examples of which every labelled atom is right."""
    if data is None:
        return None
    right = (_predicted(program, data.states, kind) == (data.labels == 1)) | (data.labels < 0)
    return float(np.average(right.all(1), weights=data.counts))


def _evidence(
    rules: Sequence[Implication], found: Mapping[int, Found], data: Observations, kind: str
) -> tuple[Evidence, ...]:
    def named(head: int, body: Body) -> Rule:
        return Rule((data.atoms[head],), frozenset(data.atoms[i] for i in body))

    account = []
    for head, body in rules:
        about, wrong = _clashing((head, body), data, closed=kind == "closures")
        n, bad = int(data.counts[about].sum()), int(data.counts[wrong].sum())
        others = found[head].alternatives.get(body, []) if head in found else []
        account.append(
            Evidence(
                named(head, body),
                n,
                1 - bad / n if n else 0.0,
                tuple(named(head, other) for other in others[:10]),
            )
        )
    return tuple(account)


def _unexplained(program: Program, data: Observations, kind: str) -> dict[str, int]:
    missing = (data.labels == 1) & ~_predicted(program, data.states, kind)
    counts: npt.NDArray[np.int64] = data.counts @ missing
    return {data.atoms[i]: int(counts[i]) for i in np.flatnonzero(counts)}
