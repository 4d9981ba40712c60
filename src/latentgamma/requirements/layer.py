"""The layer of requirements: log-odds of labels in, log-odds that satisfy everything out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias, final, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from latentgamma._arguments import one_of, real_number, whole_number, wrong
from latentgamma._display import Displayed
from latentgamma._progress import Progress
from latentgamma._text import listing, quantity, shortened
from latentgamma.engine.circuit import compile_circuit
from latentgamma.engine.diagram import compile_diagram
from latentgamma.engine.diagram_torch import DiagramPasses
from latentgamma.engine.execute import MinMax
from latentgamma.engine.fused import label_loss
from latentgamma.engine.tensors import HELD, finite_log_odds, values_can_be_read
from latentgamma.errors import ArgumentError, ProgramError, StateError
from latentgamma.program.program import Program
from latentgamma.requirements.certificate import (
    RequirementsCertificate,
    certify_diagram,
    certify_program,
    refused_certificate,
)
from latentgamma.requirements.minimum_cut import is_hierarchy, most_likely_answers
from latentgamma.requirements.programs import LabelProgram, clamping_program, rule_program
from latentgamma.requirements.report import conflict, signed_clauses
from latentgamma.requirements.requirements import Method, Requirements

LossKind: TypeAlias = Literal["max-constraint", "conditional", "semantic", "scores", "bce"]
Reduction: TypeAlias = Literal["mean", "sum", "none"]

#: The kinds of loss of each method; the first is the default.
_LOSSES = {
    "closure": ("max-constraint", "scores", "bce"),
    "exact": ("conditional", "semantic", "scores", "bce"),
    "strata": ("scores", "bce"),
}
#: The least number of logits that are looked at, whether they are probabilities.
_LEAST_LOOKED_AT = 16


@final
class RequirementsLayer(nn.Module):
    """A layer whose answers cannot break its requirements; `Requirements.layer` makes one.

    Log-odds of the labels come in, (…, labels), and log-odds come out. A label is true if its score
    is above 0. In `eval()` the scores above 0 satisfy every requirement, for every input but NaN,
    which is refused. In training "exact" gives the log-odds of P(a | C) instead, of which this is
    not true; `decide` always is.

    >>> from latentgamma import Requirements
    >>> layer = Requirements.from_edges([("cat", "animal")]).layer(["cat", "animal"]).eval()
    >>> layer(torch.tensor([2.0, -1.0]))
    tensor([2., 2.])

    Attributes:
        requirements: the requirements, over the labels of the layer.
        method: "closure", "exact" or "strata".
        temperature: of the minima and maxima of "closure" in training; 0 is hard.
    """

    passes: DiagramPasses | None
    closure: MinMax | None
    decided: Tensor

    def __init__(
        self,
        requirements: Requirements,
        method: str,
        *,
        passes: DiagramPasses | None = None,
        decided: Sequence[int] = (),
        rules: LabelProgram | None = None,
        temperature: float = 0.0,
    ) -> None:
        super().__init__()
        self.requirements = requirements
        self.method = method
        self.temperature = temperature
        self.passes = passes
        self.rules = rules
        self.closure = self._loss_closure = None
        self.register_buffer(
            "decided", torch.tensor(list(decided), dtype=torch.long), persistent=False
        )
        self._looked_at = False
        self._all_decided = list(decided) == list(range(len(requirements.labels)))
        if rules is not None:
            self.closure = _closure(rules.program, rules.inputs, rules.outputs)
            if method == "closure" and not rules.program.definite:
                self._loss_closure = _closure_with_complements(rules.program)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of inputs and outputs."""
        return self.requirements.labels

    # ---- Scores and decisions

    def forward(self, logits: Tensor) -> Tensor:
        """Return coherent scores of log-odds. (…, labels) -> (…, labels).

        Args:
            logits: the log-odds of the labels, of any floating dtype.

        Raises:
            StateError: if the shape is wrong, or there is a NaN; on a GPU, for which that would mean
                to wait, all scores of an example with a NaN are NaN.
        """
        rows = self._rows(logits)
        out = self._scores(rows, training=self.training)
        if self.closure is None and rows.is_cuda:  # where a NaN could not be refused
            out = out.masked_fill(rows.isnan().any(1, keepdim=True), torch.nan)
        return out if logits.ndim == 2 else out.reshape(logits.shape)

    def decide(
        self,
        logits: Tensor,
        thresholds: Tensor | Sequence[float] | None = None,
        *,
        most_likely: bool = False,
    ) -> Tensor:
        """Return an answer that satisfies every requirement. (…, labels) -> Boolean (…, labels).

        "exact" gives the most likely answer of all that are allowed; where several are, it is
        one of them, the same in every call. "closure" adds to the labels above 0 what follows from
        them: a confident child outvotes any number of doubtful parents.

        >>> from latentgamma import Requirements
        >>> layer = Requirements.from_edges([("cat", "animal")]).layer(["cat", "animal"])
        >>> unsure = torch.tensor([0.5, -2.0])
        >>> layer.decide(unsure), layer.decide(unsure, most_likely=True)
        (tensor([True, True]), tensor([False, False]))

        Args:
            logits: the log-odds of the labels.
            thresholds: log-odds above which each label counts as true, one for each or for all; by
                default 0. They are subtracted first, so the answer satisfies the requirements
                whatever they are. The log-odds of a probability p are `torch.logit(p)`.
            most_likely: whether "closure" also gives the most likely allowed answer, of a hierarchy
                of any size: by a minimum cut for each example, on the CPU.

        Raises:
            StateError: if a shape is wrong, or there is a NaN; or in the capture of a CUDA graph,
                which cannot wait to see that.
            ArgumentError: if the most likely answer is asked for, and the method is "strata", or
                "closure" of rules that are not a hierarchy.
        """
        if most_likely and self.passes is None:
            self._require_hierarchy()
        rows = self._rows(logits.detach() if isinstance(logits, Tensor) else logits, wait=True)
        if thresholds is not None:
            try:
                limit = torch.as_tensor(thresholds, dtype=rows.dtype, device=rows.device)
            except (TypeError, ValueError, RuntimeError):  # no numbers
                limit = rows.new_empty(0, 0)
            if limit.ndim > 1 or limit.numel() not in (1, len(self.labels)):
                shape = getattr(thresholds, "shape", None)
                given = shortened(repr(thresholds)) if shape is None else f"of shape {tuple(shape)}"
                raise StateError(
                    f"thresholds are one number, or one for each of the "
                    f"{quantity(len(self.labels), 'label')}, not {given}"
                )
            rows = self._rows(rows - limit, wait=True)
        with torch.no_grad():
            if self.closure is not None:
                if most_likely:
                    assert self.rules is not None
                    found = most_likely_answers(self.rules.program, rows.double().cpu().numpy())
                    # A cut is closed; what is proved of the closure holds of it in this way too.
                    rows = torch.from_numpy(found).to(rows) - 0.5
                out = self._closed(self.closure, rows, hard=True) > 0
            else:
                assert self.passes is not None
                _, model = self.passes.best(self._taken(rows), scores=False)
                out = self._put_back(rows > 0, model)
        return out.reshape(logits.shape)

    def _require_hierarchy(self) -> None:
        rules = self.rules
        if self.method != "closure" or rules is None or not is_hierarchy(rules.program):
            raise ArgumentError(
                "most_likely=True needs a hierarchy, where every requirement is `parent :- child.`; "
                'for other requirements use method="exact"'
            )

    def change(self, logits: Tensor) -> Tensor:
        """Return which labels the requirements change. (…, labels) -> Boolean (…, labels)."""
        return self.decide(logits) != (logits > 0)

    def _rows(self, logits: Tensor, *, wait: bool = False) -> Tensor:
        """Return (B, labels); NaN is refused, on a GPU only where it is right to wait for it."""
        L = len(self.labels)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            raise StateError(
                f"logits are a tensor of log-odds, not {type(logits).__name__}"
                + (f" of {logits.dtype}" if isinstance(logits, Tensor) else "")
            )
        if logits.ndim < 1 or logits.shape[-1] != L:
            raise StateError(
                f"logits have one column for each of {quantity(L, 'label')}, but their shape is "
                f"{tuple(logits.shape)}"
            )
        if wait and logits.is_cuda and torch.cuda.is_current_stream_capturing():
            raise StateError(
                "decide refuses NaN, for which a CUDA graph cannot wait; capture `layer(logits) > 0` "
                "in eval() instead, where an example with a NaN has scores of NaN"
            )
        seen = (wait or not logits.is_cuda) and values_can_be_read(logits)
        if seen and bool(torch.isnan(logits).any()):
            raise StateError("logits have a NaN (or thresholds, or infinity minus infinity)")
        if seen and not self._looked_at and logits.numel() >= _LEAST_LOOKED_AT:
            self._looked_at = True  # the first batch only
            low, high = (float(end) for end in torch.aminmax(logits.detach()))
            if low >= 0 and 0 < high <= 1:
                warnings.warn(
                    "all logits are between 0 and 1, as probabilities are; the layer takes "
                    "log-odds, of which these make every label true: pass torch.logit(p), or what "
                    "the network gives before its sigmoid",
                    RuntimeWarning,
                    stacklevel=3,
                )
        return logits if logits.ndim == 2 else logits.reshape(-1, L)

    def _scores(self, rows: Tensor, *, training: bool) -> Tensor:
        if self.closure is not None:
            return self._closed(self.closure, rows, hard=not training)
        assert self.passes is not None
        given = self._taken(rows)
        scores = self.passes.marginals(given) if training else self.passes.best(given)[0]
        return self._put_back(rows, scores)

    def _closed(self, closure: MinMax, rows: Tensor, *, hard: bool) -> Tensor:
        T = 0.0 if hard else self.temperature
        given = rows if T == 0 else finite_log_odds(rows)
        out: Tensor = closure(given, T, hard=T == 0)
        return out

    def _taken(self, rows: Tensor) -> Tensor:
        return rows if self._all_decided else rows.index_select(1, self.decided)

    def _put_back(self, rows: Tensor, scores: Tensor) -> Tensor:
        return scores if self._all_decided else rows.index_copy(1, self.decided, scores)

    # ---- Losses

    def _require_allowed(self, true: Tensor) -> None:
        """Refuse true labels that break a requirement: their P(y | C) is 0. (B, labels)."""
        allowed = true > 0.5
        # The most likely answer near labels that are allowed is those labels themselves.
        broken = (self.decide(torch.where(allowed, 1.0, -1.0)) != allowed).any(1)
        if bool(broken.any()):
            req, row = self.requirements, int(broken.nonzero()[0])
            c = int(req.check(allowed[row : row + 1]).pairs[0, 1])
            raise StateError(
                f"y breaks a requirement in row {row}: {req.place(c)}  {req[c]}; its probability "
                f'under the requirements is 0. Correct it, or use kind="bce"'
            )

    def loss(
        self,
        logits: Tensor,
        y: Tensor,
        kind: LossKind | None = None,
        *,
        weight: float = 0.5,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Return the loss of log-odds of the network against true labels that satisfy everything.

        - `"max-constraint"`, for "closure": cross-entropy of the scores, where a true label is
          credited through true labels only, and a false one is charged through false ones. This is
          the loss of C-HMCNN for hierarchies and that of CCN for rules.
        - `"conditional"`, for "exact": −log P(y | C), which is the cross-entropy + log P(C).
        - `"semantic"`, for "exact": the cross-entropy − `weight` · log P(C).
        - `"scores"`: cross-entropy of `layer(logits)` as in training.
        - `"bce"`: cross-entropy of the log-odds themselves; the layer is then used afterwards.

        Which is best depends on the data: choose on validation data.

        Args:
            logits: log-odds, (…, labels): of the network, not of the layer. Beyond ±10⁶ they count
                as ±10⁶, with the gradient there.
            y: 0 and 1, or probabilities, of the same shape.
            kind: by default "max-constraint" for "closure", "conditional" for "exact", "scores"
                for "strata".
            weight: of log P(C) in "semantic".
            reduction: "mean" over examples and labels: also −log P(y | C), which belongs to all
                labels of an example, is divided by their number; "sum", or "none": one for each
                example.

        Returns:
            The loss, in float32 for log-odds of 16 bits.

        Raises:
            StateError: if a shape is wrong, a value of y is not between 0 and 1 (on a GPU this is
                seen for "conditional" alone), or y breaks a requirement where P(y | C) is asked for.
        """
        kinds = _LOSSES[self.method]
        kind = one_of("kind", kinds[0] if kind is None else kind, get_args(LossKind))
        one_of("reduction", reduction, get_args(Reduction))
        if kind not in kinds:
            raise ArgumentError(
                f'kind={kind!r} is not for method="{self.method}", which has '
                f"{', '.join(map(repr, kinds))}"
            )
        weight = real_number("weight", weight, "a number from 0 on", lambda w: 0 <= w < math.inf)
        rows = self._rows(logits)
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        if not isinstance(y, Tensor) or y.shape != logits.shape:
            shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise StateError(f"y has the shape of the logits, {tuple(logits.shape)}, not {shape}")
        true = y.reshape(rows.shape)
        if values_can_be_read(true) and (kind == "conditional" or not true.is_cuda):
            if not bool(((true >= 0) & (true <= 1)).all()):
                raise StateError("y has a value that is not between 0 and 1")
            if kind == "conditional":
                self._require_allowed(true)
        if kind == "max-constraint":
            found = self._fused_loss(rows, true)
            if found is not None:
                return self._reduced(found, logits, reduction)
            scores = self._credited(rows, true > 0.5)
        elif kind == "scores":
            scores = self._scores(rows, training=True)
        else:
            scores = rows
        scores = finite_log_odds(scores)
        each = _cross_entropy(scores, true)
        if kind in ("conditional", "semantic"):
            assert self.passes is not None
            log_p = self.passes.log_partition(self._taken(scores))
            each = each + (log_p if kind == "conditional" else -weight * log_p)
        return self._reduced(each, logits, reduction)

    def _reduced(self, each: Tensor, logits: Tensor, reduction: str) -> Tensor:
        if reduction == "none":
            return each.reshape(logits.shape[:-1])
        return each.sum() if reduction == "sum" else each.mean() / max(1, len(self.labels))

    def _fused_loss(self, rows: Tensor, y: Tensor) -> Tensor | None:
        """Return the max-constraint loss of a hierarchy in one pass, on a GPU."""
        if self._loss_closure is not None or self.temperature or self.closure is None:
            return None

        def again(tensors: Sequence[Tensor]) -> Tensor:
            return _cross_entropy(finite_log_odds(self._credited(tensors[0], y > 0.5)), y)

        return label_loss(self.closure.circuit, rows, y, again)

    def _credited(self, rows: Tensor, true: Tensor) -> Tensor:
        """Return the scores of true labels from true ones, and those of false labels from false."""
        assert self.closure is not None
        rows = finite_log_odds(rows)
        # Twice the batch in one call: first for the true labels, then for the false ones.
        given = torch.cat([rows.masked_fill(~true, -HELD), rows.masked_fill(true, HELD)])
        closure = self._loss_closure or self.closure
        if closure is not self.closure:
            other = -self._closed(self.closure, rows, hard=False)
            others = [other.masked_fill(true, -HELD), other.masked_fill(~true, HELD)]
            given = torch.cat([given, torch.cat(others)], 1)
        of_true, of_false = self._closed(closure, given, hard=False).chunk(2)
        scores = torch.where(true, of_true, of_false)
        # Labels that break a requirement leave nothing to charge: their own log-odds count.
        return torch.where(scores.abs() >= HELD, rows, scores)

    # ---- What it does, and proofs of it

    def certificate(self) -> RequirementsCertificate:
        """Return a proof that no input gives an answer that breaks a requirement.

        Of "exact" it is also a proof that `decide` returns the most likely of all allowed answers.
        It is a proof of the diagram or of the rules as the layer has them now. "strata" needs
        `python-sat` for it.

        >>> from latentgamma import Requirements
        >>> print(Requirements.from_text(":- cat, dog.").layer().certificate())
        1 of 1 requirement holds for every input without NaN
        proved: each answer is a path of the diagram, and no path breaks a requirement
        proved: no allowed answer is lost, so each answer is the most likely one
        """
        if self.passes is not None:
            decided = {label: i for i, label in enumerate(self.decided.tolist())}
            return certify_diagram(self.requirements, self.passes.diagram, decided)
        assert self.rules is not None
        if not self._runs_its_rules():
            return refused_certificate(
                self.requirements, "the layer was changed: it runs other rules"
            )
        return certify_program(self.requirements, self.rules)

    def _runs_its_rules(self) -> bool:
        """Return whether what runs is what the rules compile to."""
        assert self.rules is not None
        assert self.closure is not None
        rules = self.rules
        own, new = self.closure, _closure(rules.program, rules.inputs, rules.outputs)
        arrays = zip(own.circuit.arrays, new.circuit.arrays, strict=True)
        buffers = zip(own.buffers(), new.buffers(), strict=True)
        return all(np.array_equal(a, b) for a, b in arrays) and all(
            torch.equal(a.cpu(), b.cpu()) for a, b in buffers
        )

    def explain(self, example: Tensor) -> Changes:
        """Return which labels of one example were changed, by which requirement, at what cost.

        >>> from latentgamma import Requirements
        >>> layer = Requirements.from_text(":- cat, dog.").layer()
        >>> print(layer.explain(torch.tensor([2.0, 3.0])))
        1 of 2 labels changed, at a cost of 2
          cat: from true (2) to false, cost 2, because of line 1  :- cat, dog.

        Args:
            example: the log-odds of the labels, without a batch dimension.
        """
        if not isinstance(example, Tensor) or example.ndim != 1:
            raise StateError("explain takes the log-odds of one example, of shape (labels,)")
        before = example.detach().double().cpu()
        answer = self.decide(example).cpu()
        req = self.requirements
        found = []
        for i in torch.nonzero(answer != (before > 0)).flatten().tolist():
            without = answer.clone()
            without[i] = not without[i]
            broken = req.check(without[None]).pairs[:, 1].tolist()
            found.append(Change(req.labels[i], float(before[i]), bool(answer[i]), tuple(broken)))
        found.sort(key=lambda change: -change.cost)
        return Changes(req, tuple(found))

    def plan(self) -> RequirementsPlan:
        """Return how the layer computes; `str` of it says it in a few lines."""
        if self.passes is not None:
            size = str(self.passes.diagram)
        else:
            assert self.rules is not None
            program = self.rules.program
            strata = len(program.strata)
            size = quantity(program.R, "rule") + (
                f" in {quantity(strata, 'stratum', 'strata')}" if strata > 1 else ""
            )
        free = len(self.labels) - len(set(self.requirements.atoms.tolist()))
        return RequirementsPlan(self.method, len(self.labels), len(self.requirements), size, free)

    def extra_repr(self) -> str:
        """Return the line that `print(layer)` shows."""
        return f"{self.requirements!r}, method={self.method!r}"


def _cross_entropy(scores: Tensor, y: Tensor) -> Tensor:
    each = functional.binary_cross_entropy_with_logits(scores, y.to(scores.dtype), reduction="none")
    return each.sum(1)


def _closure(program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> MinMax:
    return MinMax(compile_circuit(program, inputs, outputs))


def _closure_with_complements(program: Program) -> MinMax:
    """Return the closure of the rules in which `not a` is an input of its own, after the labels."""
    body = program.body_literals
    rules = Program.from_arrays(
        program.body_indptr,
        np.where(body < 0, program.M + ~body, body),
        program.head_indices,
        program.head_indptr,
        atoms=[f"a{i}" for i in range(2 * program.M)],
    )
    return _closure(rules, range(2 * program.M), range(program.M))


# ---- Which method


def build_layer(
    req: Requirements,
    method: Method,
    *,
    budget: int,
    order: Sequence[str] | None,
    temperature: float,
    progress: Progress | None = None,
) -> RequirementsLayer:
    """Return the layer of requirements over its labels; see `Requirements.layer`."""
    one_of("method", method, get_args(Method))
    whole_number("budget", budget, 1)
    T = real_number("temperature", temperature, "a number from 0 on", lambda t: 0 <= t < 1e9)
    if order is not None and method != "strata":
        raise ArgumentError('order is for method="strata"')
    try:
        return _built(req, method, budget, order, T, progress)
    except ProgramError as error:
        if "no assignment" not in str(error):
            raise
    found: tuple[int, ...] = ()
    with suppress(Exception):  # no solver is installed
        found = conflict(req)
    lines = [f"{req.place(c)}  {req[c]}" for c in found]
    shown = f": {listing(lines, 5)}" if lines else ""
    raise ProgramError(f"no assignment of the labels satisfies the requirements{shown}")


def _built(
    req: Requirements,
    method: Method,
    budget: int,
    order: Sequence[str] | None,
    T: float,
    progress: Progress | None,
) -> RequirementsLayer:
    if method in ("auto", "closure"):
        rules = rule_program(req)
        if rules is not None:
            return RequirementsLayer(req, "closure", rules=rules, temperature=T)
        if method == "closure":
            raise ProgramError(
                'method="closure" needs requirements with one head each, and no label that depends '
                'on its own negation; use method="exact"'
            )
    if T:
        raise ArgumentError('temperature is for method="closure"')
    if method in ("auto", "exact"):
        clauses = [c for c in signed_clauses(req) if not any(-x in c for x in c)]
        decided = sorted({abs(x) - 1 for c in clauses for x in c})
        place = {label: i + 1 for i, label in enumerate(decided)}
        placed = [tuple(place[abs(x) - 1] * (1 if x > 0 else -1) for x in c) for c in clauses]
        diagram = compile_diagram(placed, len(decided), budget, progress)
        if diagram is not None:
            return RequirementsLayer(req, "exact", passes=DiagramPasses(diagram), decided=decided)
        if method == "exact":
            rules = rule_program(req)
            hint = _HIERARCHY_HINT if rules and is_hierarchy(rules.program) else ""
            raise ProgramError(
                f"the decision diagram would need more than {quantity(budget, 'edge')}; raise "
                f'budget=, or use method="strata"{hint}'
            )
    places = range(len(req.labels)) if order is None else _places(req, order)
    found = clamping_program(req, list(places), budget)
    if found is None:
        raise ProgramError(
            f"the strata would need more than {quantity(budget, 'literal')}; raise budget=, or try "
            "another order="
        )
    return RequirementsLayer(req, "strata", rules=found)


_HIERARCHY_HINT = (
    '; of this hierarchy, decide(logits, most_likely=True) of method="closure" is the same answer'
)


def _places(req: Requirements, order: Sequence[str]) -> list[int]:
    if isinstance(order, str) or sorted(map(str, order)) != sorted(req.labels):
        raise wrong("order", "all labels, each once", order if len(str(order)) < 200 else "…")
    return [req.index[str(name)] for name in order]


# ---- Results


@dataclass(frozen=True)
class Change:
    """A label that the requirements changed.

    >>> from latentgamma import Requirements
    >>> changes = Requirements.from_text(":- a, b.").layer().explain(torch.tensor([1.0, 2.0])).changes
    >>> changes[0].label, changes[0].value, changes[0].cost, changes[0].because
    ('a', False, 1.0, (0,))
    """

    label: str
    #: The log-odds that the network gave it.
    logit: float
    #: What it is now.
    value: bool
    #: The requirements that would be broken if this label alone were as before.
    because: tuple[int, ...]

    @property
    def cost(self) -> float:
        """How much less likely the label is than before, as log-odds."""
        return abs(self.logit)


@dataclass(frozen=True)
class Changes(Displayed):
    """What requirements changed in one example; `str` of it is text.

    >>> from latentgamma import Requirements
    >>> layer = Requirements.from_text("b :- a.").layer(["a", "b"])
    >>> print(layer.explain(torch.tensor([1.0, -2.0])))
    1 of 2 labels changed, at a cost of 2
      b: from false (-2) to true, cost 2, because of line 1  b :- a.
    """

    requirements: Requirements
    changes: tuple[Change, ...]

    @property
    def cost(self) -> float:
        """The sum of the costs of all changes."""
        return sum(change.cost for change in self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        req = self.requirements
        total = quantity(len(req.labels), "label")
        lines = [f"{len(self.changes):,} of {total} changed, at a cost of {self.cost:.3g}"]
        for change in self.changes:
            old, new = ("false", "true") if change.value else ("true", "false")
            text = f"  {change.label}: from {old} ({change.logit:.3g}) to {new}, cost {change.cost:.3g}"
            if change.because:
                where = [f"{req.place(c)}  {req[c]}" for c in change.because]
                text += f", because of {listing(where, 2)}"
            lines.append(text)
        return "\n".join(lines)


_SENTENCES = {
    "closure": "a label is as likely as its best proof, a proof as its least likely label",
    "exact": "training: log-odds of P(label | requirements); eval: the most likely allowed answer",
    "strata": "labels are clamped one after another between bounds by those before; the order matters",
}


@dataclass(frozen=True)
class RequirementsPlan(Displayed):
    """How a layer computes; `str` of it says it in a few lines.

    >>> from latentgamma import Requirements
    >>> print(Requirements.from_text(":- a, b.").layer(["a", "b", "c"]).plan())
    exact: training: log-odds of P(label | requirements); eval: the most likely allowed answer
    3 labels, 1 of them in no requirement; 1 requirement
    a decision diagram of 2 nodes and 5 edges
    """

    method: str
    labels: int
    requirements: int
    size: str
    #: The number of labels in no requirement, which pass through.
    free: int

    def __str__(self) -> str:
        free = f", {self.free:,} of them in no requirement" if self.free else ""
        return (
            f"{self.method}: {_SENTENCES[self.method]}\n"
            f"{quantity(self.labels, 'label')}{free}; {quantity(self.requirements, 'requirement')}\n"
            f"{self.size}"
        )
