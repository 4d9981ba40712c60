"""The learned rules with their evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from latentgamma._display import Display, Displayed
from latentgamma._text import listing, quantity, shortened
from latentgamma.errors import DataError, unknown_atoms
from latentgamma.learning.bodies import Body, Implication, as_program, as_rule, covered
from latentgamma.learning.data import Observations
from latentgamma.learning.options import FitOptions, History, HistoryEntry
from latentgamma.learning.strategies import Learned
from latentgamma.learning.training_data import TrainingData, counterexamples, note_if_closed
from latentgamma.logic.closures import closures
from latentgamma.program.facts import Mask
from latentgamma.program.names import quote
from latentgamma.program.program import Program, Rule

if TYPE_CHECKING:
    from latentgamma.certificate.certify import Certificate
    from latentgamma.operator.model import LatentGamma


# ---- What the data say about rules: support, confidence, accuracy, and what stays open

#: A rule with fewer supporting examples gets a note.
_FEW = 3
#: Alternatives that are kept for one rule; the last one is always kept.
_MOST_COUNTED_ALTERNATIVES = 10


class Evidence(NamedTuple):
    """What the data say about one rule.

    >>> import latentgamma as lg
    >>> result = lg.fit([[1, 0], [0, 0]], [[1, 1], [0, 0]], atoms=["penguin", "bird"], holdout=0)
    >>> found = result.evidence[0]
    >>> print(found.rule, found)
    bird :- penguin. support 1, confidence 1.000

    Attributes:
        rule: the rule.
        support: the number of examples in which the body was true and the head was not given.
        confidence: the fraction of those in which the head followed.
        alternatives: rules that could replace it. Without noise this is empty exactly where the
            examples decide; otherwise it has the other shortest rules and, last, the longest one,
            and every rule between a shortest one and the longest fits as well. With noise these
            are the rules that are almost as likely.
    """

    rule: Rule
    support: int
    confidence: float
    alternatives: tuple[Rule, ...]

    def __str__(self) -> str:
        return f"support {self.support}, confidence {self.confidence:.3f}"


def predict(program: Program, states: Mask, *, closed: bool) -> Mask:
    """Return what the rules derive from states, in one step or all of them. (N, M)."""
    if closed:
        return closures(program, states)
    after = states.copy()
    for j in range(program.R):
        after[:, program.heads_of(j)] |= covered(states, program.body_of(j).tolist())[:, None]
    return after


def accuracy(after: Mask, data: Observations) -> float:
    """Return the fraction of examples of which every labelled atom is as predicted."""
    right = (after == (data.labels == 1)) | (data.labels < 0)
    return float(np.average(right.all(1), weights=data.counts))


def explained(after: Mask, data: Observations, *, closed: bool, every_label: bool) -> float:
    """Return the fraction that predictions explain, as learning curves have it.

    That is the fraction of the labels that became true, or of the examples whose closure lacks
    nothing; or, where any label can be wrong, of all labels.
    """
    true = data.labels == 1
    if every_label:
        known = data.labels >= 0
        return float((after == true)[known].mean()) if known.any() else 1.0
    if closed:
        return float((~(true & ~after).any(1)).mean())
    derived = true & ~data.states
    total = int((data.counts @ derived).sum())
    return float((data.counts @ (derived & after)).sum() / total) if total else 1.0


def evidence(
    rules: Sequence[Implication],
    alternatives: Mapping[Implication, Sequence[Body]],
    data: Observations,
    *,
    closed: bool,
) -> tuple[Evidence, ...]:
    """Return what the data say about each rule."""
    found = []
    for rule in rules:
        applies, wrong = counterexamples(rule, data, closed=closed)
        n, bad = int(data.counts[applies].sum()), int(data.counts[wrong].sum())
        others = [as_rule((rule[0], body), data.atoms) for body in alternatives.get(rule, ())]
        if len(others) > _MOST_COUNTED_ALTERNATIVES:
            others = [*others[: _MOST_COUNTED_ALTERNATIVES - 1], others[-1]]
        confidence = 1 - bad / n if n else 0.0
        found.append(Evidence(as_rule(rule, data.atoms), n, confidence, tuple(others)))
    return tuple(found)


def notes_on_evidence(found: Sequence[Evidence]) -> list[str]:
    """Return notes on what the examples are too few to decide."""
    notes = []
    weak = sorted((one for one in found if one.support < _FEW), key=lambda one: one.support)
    if weak:
        shown = [f"{one.rule} ({one.support})" for one in weak]
        verb = "has" if len(weak) == 1 else "have"
        notes.append(
            f"{len(weak)} of {quantity(len(found), 'rule')} {verb} fewer than {_FEW} supporting "
            f"examples: {listing(shown)}"
        )
    heads = dict.fromkeys(one.rule.heads[0] for one in found if one.alternatives)
    if heads:
        notes.append(
            f"the examples do not decide between rules that explain them equally well, "
            f"for {listing([quote(head) for head in heads], 5)}"
        )
    return notes


# ---- What `fit` returns

#: Rules, undecided rules and unexplained atoms that a summary lists.
_MOST_RULES = 50
_MOST_LISTED = 10
#: Alternatives to one rule that it lists.
_MOST_ALTERNATIVES = 3
#: Longer rules do not move the comments behind the others to the right, or are cut short.
_WIDEST = 56


@dataclass(frozen=True, repr=False)
class FitResult(Displayed):
    """The learned rules, and how far they can be trusted.

    >>> import latentgamma as lg
    >>> before, after = [[1, 0, 0], [1, 1, 0], [0, 1, 0]], [[1, 0, 0], [1, 1, 1], [0, 1, 0]]
    >>> result = lg.fit(before, after, atoms=["smoke", "heat", "alarm"], holdout=0)
    >>> print(*result.program.rules)
    alarm :- heat, smoke.
    >>> result.certificate.holds, result.undecided
    (True, ())

    Attributes:
        program: the rules.
        model: the network with these rules.
        certificate: whether that network provably equals the program, and in which window.
        accuracy: the fraction of held-out examples of which every atom is right; None without any.
        evidence: support and confidence of each rule, and the alternatives to it.
        unexplained: for each atom, the number of examples in which it followed and no rule
            derives it.
        notes: what these data cannot show, and what was assumed.
        history: the learning curve.
        method: the method that was used.
        reason: why this method, and what is proved about its result.
        noise: the fraction of wrong labels that was assumed or estimated.
        training_accuracy: the fraction of training examples of which every atom is right.
    """

    program: Program
    model: LatentGamma
    certificate: Certificate
    accuracy: float | None
    evidence: tuple[Evidence, ...]
    unexplained: Mapping[str, int]
    notes: tuple[str, ...]
    history: tuple[HistoryEntry, ...]
    method: str
    reason: str
    noise: float
    training_accuracy: float = 1.0

    @property
    def undecided(self) -> tuple[Evidence, ...]:
        """The rules to which the data leave an alternative."""
        return tuple(one for one in self.evidence if one.alternatives)

    def explain(self, head: str) -> str:
        """Return what was learned about one atom, as text.

        Args:
            head: the name of the atom.

        Returns:
            Every rule with its support and confidence, its alternatives, and what is unexplained.

        Raises:
            DataError: this is not a name.
            FactsError: there is no such atom.
        """
        if not isinstance(head, str):
            raise DataError(f"explain takes the name of an atom, not {head!r}")
        if head not in self.program.index:
            raise unknown_atoms([head], self.program.atoms, what="explain")
        lines = []
        for one in self.evidence:
            if one.rule.heads == (head,):
                lines.append(f"{one.rule}  % {one}")
                lines += [f"  % or: {other}" for other in one.alternatives]
        if not lines:
            lines.append(f"% no rule for {quote(head)}")
        if self.unexplained.get(head):
            number = quantity(self.unexplained[head], "example")
            lines.append(f"% {number} with {quote(head)} that no rule explains")
        return "\n".join(lines)

    def summary(self) -> str:
        """Return the rules and what the data say about them, as text.

        Returns:
            A program in rule text; everything but the rules is a comment.

        >>> import latentgamma as lg
        >>> result = lg.fit([[1, 0], [0, 0]] * 5, [[1, 1], [0, 0]] * 5, atoms=["a", "b"], holdout=0)
        >>> print(result.summary().splitlines()[0])
        b :- a.  % support 5, confidence 1.000
        """
        rules = rule_lines(self)
        more = [f"% and {quantity(len(rules) - _MOST_RULES, 'more rule')}"]
        lines = [*rules[:_MOST_RULES], *(more if len(rules) > _MOST_RULES else []), ""]
        return "\n".join([*lines, *(f"% {line}" for line, _ in summary_lines(self))])

    def __repr__(self) -> str:
        return f"FitResult({self})"

    def _display(self) -> Display:
        rules = [
            (
                str(one.rule),
                str(one.support),
                f"{one.confidence:.3f}",
                "  or  ".join(map(str, one.alternatives)),
            )
            for one in self.evidence[:_MOST_RULES]
        ]
        (title, _), *lines = summary_lines(self)
        columns = ("rule", "support", "confidence", "alternatives")
        notes = [line for line, _ in lines]
        return Display(title, self.certificate.holds, columns=columns, rows=rules, notes=notes)

    def __str__(self) -> str:
        shown = "" if self.accuracy is None else f", held-out accuracy {self.accuracy:.4f}"
        network = f"the network against these rules: {self.certificate}"
        return f"{quantity(self.program.R, 'rule')} by method {self.method!r}{shown}; {network}"


def build_result(
    data: TrainingData, options: FitOptions, learned: Learned, history: History
) -> FitResult:
    """Return what was learned with its network, its certificate and what the data say about it."""
    from latentgamma.certificate.certify import certify
    from latentgamma.operator.model import oracle

    training, closed = data.training, options.closed
    program = as_program(learned.rules, training.M, training.atoms)
    model = oracle(program, device=options.device)
    certificate = certify(model, program)
    models = options.kind == "models"
    after = predict(program, training.states, closed=closed)
    every_label = closed and data.noise > 0
    fraction = 1.0 if models else explained(after, training, closed=closed, every_label=every_label)
    history.add_rules("done", learned.rules, fraction)
    missing: npt.NDArray[np.int64] = training.counts @ ((training.labels == 1) & ~after)
    unexplained = {training.atoms[i]: int(missing[i]) for i in np.flatnonzero(missing)}
    held_out = data.held_out
    found = evidence(learned.rules, learned.alternatives, training, closed=closed)
    # Of models nothing is known about before and after, so notes on that do not apply.
    notes = [n for n in data.observations.notes if not models or n.endswith("rounded")]
    notes += [*data.notes, *learned.notes]
    if data.noise > 0:
        each = (1 - data.noise) ** (training.labels >= 0).sum(1)
        best = np.average(each, weights=training.counts)
        notes.append(
            f"with so many wrong labels the true rules would get {best:.2f} of the examples "
            f"exactly right"
        )
    if options.kind == "transitions":
        notes += note_if_closed(learned.rules, training)
    if not models:
        notes += notes_on_evidence(found)
    return FitResult(
        program=program,
        model=model,
        certificate=certificate,
        accuracy=None
        if held_out is None
        else accuracy(predict(program, held_out.states, closed=closed), held_out),
        evidence=found,
        unexplained={} if models else unexplained,
        notes=tuple(notes),
        history=tuple(history.entries),
        method=learned.method,
        reason=learned.reason,
        noise=data.noise,
        training_accuracy=1.0 if models else accuracy(after, training),
    )


# ---- Text


def rule_lines(result: FitResult) -> list[str]:
    """Return the rules as lines of text, each with a comment on its support.

    Atoms that are in no rule are declared, so that the text has them as well.
    """
    program = result.program
    used = {*program.head_indices.tolist(), *program.body_indices.tolist()}
    unused = [f"#external {quote(a)}." for i, a in enumerate(program.atoms) if i not in used]
    texts = [str(one.rule) for one in result.evidence]
    width = max((len(text) for text in texts if len(text) <= _WIDEST), default=0)
    rules = [f"{text:<{width}}  % {one}" for text, one in zip(texts, result.evidence, strict=True)]
    return [*unused, *rules]


def summary_lines(result: FitResult) -> list[tuple[str, str]]:
    """Return the lines of a summary, each with a style: "bold", "green", "red", "yellow" or ""."""
    lines = [
        (
            f"{quantity(result.program.R, 'rule')} by method {result.method} ({result.reason})",
            "bold",
        )
    ]
    right = f"{result.training_accuracy:.4f} of the training examples"
    if result.accuracy is not None:
        right = f"{result.accuracy:.4f} of the held-out examples, {right}"
    lines.append((f"exactly right: {right}", ""))
    assumed = f"{result.noise:.2%}" if result.noise else "none"
    lines.append((f"wrong labels assumed: {assumed}", ""))
    proved = result.certificate.holds
    mark, style = ("✓", "green") if proved else ("✗", "red")
    lines.append((f"{mark} the network: {result.certificate}", style))
    for one in result.undecided[:_MOST_LISTED]:
        first, *others = (
            shortened(str(rule), 2 * _WIDEST) for rule in (one.rule, *one.alternatives)
        )
        if len(others) > _MOST_ALTERNATIVES:
            left_out = len(others) - _MOST_ALTERNATIVES
            others = [*others[: _MOST_ALTERNATIVES - 1], f"{left_out} more", others[-1]]
        lines.append((f"undecided: {'  or  '.join([first, *others])}", "yellow"))
    if len(result.undecided) > _MOST_LISTED:
        lines.append((f"undecided: and {len(result.undecided) - _MOST_LISTED} more", "yellow"))
    if result.unexplained:
        counts = sorted(result.unexplained.items(), key=lambda item: -item[1])
        shown = listing([f"{quote(atom)} ({number})" for atom, number in counts], _MOST_LISTED)
        some = " (wrong labels among them)" if result.noise else ""
        text = f"unexplained, with the number of examples{some}: {shown}"
        lines.append((text, "yellow"))
    lines += [(f"note: {note}", "") for note in result.notes]
    return lines
