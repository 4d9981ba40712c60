"""Explains one example of a layer: why its answers are what they are, and what would change them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma.engine.exactness import Variables
from latentgamma.engine.probability import LikelyProof, likely_proofs
from latentgamma.engine.tensors import probability
from latentgamma.errors import MissingPackageError, ModelError, StateError
from latentgamma.layer.groups import UNNAMED, Group, batch_of_one
from latentgamma.logic.closures import closures
from latentgamma.logic.proof import Derivation, derivation
from latentgamma.logic.why_not import nearest_facts, needed_part
from latentgamma.program.names import quote
from latentgamma.program.program import Program

if TYPE_CHECKING:
    from latentgamma.layer.inference import ProbabilitySemantics
    from latentgamma.layer.layer import Layer
    from latentgamma.layer.semantics import GammaSemantics


# ---- What is said about an answer of a layer: its proof, and the inputs that would change it

#: How many inputs the printed text lists of each kind.
SHOWN = 8


@dataclass(frozen=True)
class InputShare:
    """An input and the derivative of an answer's log-odds in the log-odds of the input.

    With `"godel"`, inputs that tie share it, as in the backward pass of the layer. Where the input is one of a `Categorical`, the other values of its group keep their proportions.
    """

    atom: str
    value: float
    gradient: float

    def __str__(self) -> str:
        return f"{quote(self.atom)} at {self.value:.3g} (gradient {self.gradient:+.3g})"


@dataclass(frozen=True)
class InputChange:
    """A change of one input from its value to another one.

    Every value from `to` to `until` has the same effect; `to` is the nearest one. Where the input is
    one of a `Categorical`, the other values of its group keep their proportions.

    >>> print(InputChange("heat", 0.2, 0.83333336, 1.0))
    heat from 0.2 to 0.834
    """

    atom: str
    value: float
    to: float
    until: float
    categorical: bool = False

    def __str__(self) -> str:
        group = ", the others of its group in proportion" if self.categorical else ""
        to = repr(self.rounded).removesuffix(".0")
        return f"{quote(self.atom)} from {self.value:.3g} to {to}{group}"

    @property
    def rounded(self) -> float:
        """The value between `to` and `until` with the fewest decimals, and at least three."""
        rises = self.until > self.to
        for decimals in range(3, 17):
            scaled = self.to * 10**decimals
            shown = float(f"{math.ceil(scaled) if rises else math.floor(scaled)}e-{decimals}")
            if min(self.to, self.until) <= shown <= max(self.to, self.until):
                return shown
        return self.to


@dataclass(frozen=True)
class Answer:
    """One output of one example: its value, its proof, and what would change it.

    An output is true above one half. Of a `Categorical`, the atom with the greatest value is true,
    the first of them where several are as great.

    Attributes:
        atom: The output.
        value: What the layer gives.
        is_true: Whether that counts as true.
        expected: Whether it should be true; None if not given.
        proof: With `"godel"` and `"gamma"` a proof whose weakest fact is as strong as possible:
            with `"godel"` that is the value of the answer. Where the program has negation, a proof
            from what is above one half. With `"probability"` the likeliest proof. None if there is
            none, or none was found.
        changes: With `"godel"`, changes that together make the answer the opposite, and none can
            be left out. With `"gamma"`, changes of which the certificate proves that, and with
            fewer of them it does not.
        alone: With `"probability"`, the least change of each input that alone makes the answer the
            opposite, the smallest first. No change of an input that is missing here does. What
            differs by rounding alone is taken for equal, and decides nothing.
        gradients: The inputs with the largest gradients, largest first.
        categorical: Whether it is an atom of a `Categorical`.
        certified: Whether a certificate proves the effect of `changes`.
        remarks: What else there is to say, in sentences.
    """

    program: Program = field(repr=False)
    atom: str
    value: float
    is_true: bool
    expected: bool | None
    proof: Derivation | None = None
    changes: tuple[InputChange, ...] = ()
    alone: tuple[InputChange, ...] = ()
    gradients: tuple[InputShare, ...] = ()
    categorical: bool = False
    certified: bool = False
    proof_title: str = field(default="proof", repr=False)
    remarks: tuple[str, ...] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether it is not what was expected."""
        return self.expected is not None and self.expected != self.is_true

    @property
    def title(self) -> str:
        """The answer in one line."""
        if self.categorical:
            verdict, should = (
                ("is the answer", "not be") if self.is_true else ("is not the answer", "be")
            )
            verdict += " of its group"
        else:
            verdict, should = ("is true", "be false") if self.is_true else ("is false", "be true")
        wrong = f", and should {should}" if self.is_wrong else ""
        return f"{quote(self.atom)} {verdict}, at {self.value:.3g}{wrong}"

    @property
    def effect(self) -> str:
        """What a change makes of it, as it follows "makes"."""
        if self.categorical:
            return "another atom the answer" if self.is_true else "it the answer"
        return "it false" if self.is_true else "it true"

    def __str__(self) -> str:
        lines = [self.title]
        if self.proof is not None:
            lines.append(f"{self.proof_title}:")
            lines += [f"  {line}" for line in str(self.proof).splitlines()]
        lines += self.remarks
        effect = self.effect
        if len(self.changes) == 1:
            lines.append(f"this change makes {effect}{', as is proved' * self.certified}:")
        elif self.certified and self.changes:
            lines.append(f"these changes together make {effect}, which fewer are not proved to do:")
        elif self.changes:
            lines.append(f"these changes together make {effect}, and none can be left out:")
        lines += _lines_of(self.changes)
        if self.alone:
            lines.append(f"each of these changes alone makes {effect}:")
        lines += _lines_of(self.alone)
        if self.gradients:
            lines.append("largest gradients, of its log-odds in those of the inputs:")
            lines += _lines_of(self.gradients)
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """The answers of a layer to one example, the wrong ones first; `str(explanation)` tells them."""

    answers: tuple[Answer, ...]

    @property
    def wrong(self) -> tuple[Answer, ...]:
        """The answers that are not what was expected."""
        return tuple(answer for answer in self.answers if answer.is_wrong)

    def __str__(self) -> str:
        return "\n\n".join(str(answer) for answer in self.answers)

    def __getitem__(self, atom: str) -> Answer:
        for answer in self.answers:
            if answer.atom == atom:
                return answer
        raise KeyError(atom)


def _lines_of(items: Sequence[InputShare | InputChange]) -> list[str]:
    lines = [f"  {item}" for item in items[:SHOWN]]
    return lines + [f"  … {len(items) - SHOWN} more"] * (len(items) > SHOWN)


# ---- From a layer and one example to its explanation
# Every statement about a change comes from the semantics of the layer, and is checked with it: a
# probability is linear in each variable, so the change that takes it over the threshold is solved
# for, and then tried with the layer; min/max values are compared by running the layer; what an
# operator answers is read off its certificate.

Values: TypeAlias = "npt.NDArray[np.float64]"
#: Whether each row makes the answer true (1), false (0), or neither is proved (−1).
Decide: TypeAlias = "Callable[[Tensor], npt.NDArray[np.int8]]"

# Rows that run through a layer at once.
_ROWS = 4096
# Probabilities that differ by this many roundings are not taken for equal.
_ROUNDINGS = 16.0
# A change found in exact arithmetic is tried at distances that grow by this factor.
_FARTHER = 8.0
# Partial proofs that the search for a likely proof may visit.
_BUDGET = 20_000
# Other atoms of a group that a change may make the answer.
_MOST_RIVALS = 8


def explain_example(
    layer: Layer, example: Tensor | Mapping[str, Tensor], expected: Any
) -> Explanation:
    """Return what `Layer.explain` does."""
    inputs = Inputs(layer, example)
    outputs = inputs.outputs(inputs.example)[0]
    gradients = _gradients(inputs)
    explain = layer.rules.explainer(inputs)
    answers, place = [], 0
    for group, should in zip(layer.outputs, _expected(layer.outputs, expected), strict=True):
        size = group.shape[-1] if group.categorical else 1
        for n, atom in enumerate(group.atoms.tolist()):
            first = n - n % size
            row = slice(place + first, place + first + size)
            atoms = group.atoms[first : first + size].tolist()
            output = _Output(place + n, row, atom, atoms, group.categorical)
            is_true = bool(output.is_true(outputs[None])[0])
            label = None if should is None else bool(should.ravel()[n])
            # Of exactly one true atom, those that are neither answered nor expected say nothing.
            if group.categorical and not is_true and not label:
                continue
            answer = Answer(
                program=layer.program,
                atom=layer.program.atoms[atom],
                value=float(outputs[output.place]),
                is_true=is_true,
                expected=label,
                gradients=_largest(inputs, gradients[output.place]),
                categorical=group.categorical,
                certified=layer.rules.certified,
            )
            answers.append(explain(output, answer))
        place += len(group.atoms)
    answers.sort(key=lambda answer: not answer.is_wrong)
    return Explanation(tuple(answers))


# ---- Inputs and outputs


@dataclass(frozen=True)
class _Output:
    """One output of a layer."""

    place: int  # among all outputs
    row: slice  # the places of its group, along the last axis
    atom: int
    group: list[int]  # the atoms of its group
    categorical: bool

    def is_true(self, outputs: Values) -> npt.NDArray[np.bool_]:
        """Return whether it counts as true. (B, O) -> (B,)."""
        if self.categorical:
            true: npt.NDArray[np.bool_] = (
                outputs[:, self.row].argmax(1) == self.place - self.row.start
            )
        else:
            true = outputs[:, self.place] > 0.5
        return true


class Inputs:
    """The inputs of one example, and copies of it in which some are changed."""

    def __init__(self, layer: Layer, example: Tensor | Mapping[str, Tensor]) -> None:
        self.layer = layer
        batch = batch_of_one(layer.inputs, example, "explain")
        layer.flat_inputs(batch)  # checks them
        parts = [tensor.detach().reshape(1, -1) for tensor in layer._tensors(batch)[0]]
        #: The example as it is given, all groups one after another. (1, I).
        self.example = torch.cat(parts, 1)
        self.atoms = np.concatenate([group.atoms for group in layer.inputs])
        self.sizes = [len(group.atoms) for group in layer.inputs]
        #: The columns of the group of each input of a Categorical; None for others.
        self.row: list[npt.NDArray[np.int64] | None] = []
        for group in layer.inputs:
            size = group.shape[-1] if group.categorical else 0
            for n in range(len(group.atoms)):
                start = len(self.row) - (n % size if size else 0)
                self.row.append(np.arange(start, start + size) if size else None)
        every = self.values(self.example)[0]
        #: The value of each input as the layer takes it, and then those of its soft facts. (I + C,).
        self.all_values = every
        self.soft = np.flatnonzero((layer.given > 0) & (layer.given < 1))
        self.count = len(self.atoms)
        self.certain = np.flatnonzero(layer.given == 1)

    def tensors(self, rows: Tensor) -> dict[str, Tensor]:
        """Return rows as the tensors of the groups."""
        parts = torch.split(rows, self.sizes, dim=1)
        return {
            group.name: part.reshape(len(rows), *group.shape)
            for group, part in zip(self.layer.inputs, parts, strict=True)
        }

    def flat(self, rows: Tensor) -> Tensor:
        """Return rows as the semantics takes them, with the soft facts. (B, I) -> (B, I + C)."""
        return self.layer.flat_inputs(self.tensors(rows))

    def values(self, rows: Tensor) -> Values:
        """Return the values between 0 and 1 of rows, with the soft facts. (B, I) -> (B, I + C)."""
        flat = self.flat(rows)
        values = probability(flat) if self.layer.from_logits else flat
        array: Values = values.double().cpu().numpy()
        return array

    def above_half(self, rows: Tensor) -> npt.NDArray[np.bool_]:
        """Return whether each value of rows, and each soft fact, is above one half. (B, I + C)."""
        flat = self.flat(rows)
        above: npt.NDArray[np.bool_] = (flat > (0 if self.layer.from_logits else 0.5)).cpu().numpy()
        return above

    def outputs(self, rows: Tensor) -> Values:
        """Return what the layer gives in `eval()`. (B, I) -> (B, O)."""
        found = [self.layer.evaluate(self.tensors(part)) for part in torch.split(rows, _ROWS)]
        array: Values = torch.cat(found).double().cpu().numpy()
        return array

    def changed(self, changes: Sequence[Mapping[int, float]]) -> Tensor:
        """Return the example once for each change, which gives some inputs other values. (B, I)."""
        rows = self.example.double().cpu().repeat(len(changes), 1).numpy()
        for row, change in zip(rows, changes, strict=True):
            for n, value in change.items():
                group = self.row[n]
                if group is None:
                    row[n] = _logit(value) if self.layer.from_logits else value
                    continue
                others = group[group != n]
                weights = self.all_values[others]
                total = weights.sum()
                share = weights / total if total > 0 else np.full(len(others), 1 / len(others))
                faces = np.zeros(len(group))
                faces[group == n], faces[group != n] = value, (1 - value) * share
                with np.errstate(divide="ignore"):
                    row[group] = np.log(faces) if self.layer.from_logits else faces
        return torch.from_numpy(rows).to(self.example)

    def change(self, n: int, to: float, until: float) -> InputChange:
        """Return a change of input n, as it is shown."""
        atom = self.layer.program.atoms[self.atoms[n]]
        grouped = self.row[n] is not None
        return InputChange(atom, float(self.all_values[n]), to, until, grouped)

    def consistent(self, columns: Sequence[int]) -> bool:
        """Return whether at most one of these inputs is in each group."""
        starts = [int(row[0]) for n in columns if (row := self.row[n]) is not None]
        return len(set(starts)) == len(starts)


def _logit(value: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(value) - np.log1p(-value))


def _gradients(inputs: Inputs) -> Values:
    """Return the derivatives of the outputs' log-odds in those of the inputs. (O, I)."""
    layer, n = inputs.layer, inputs.count
    with torch.no_grad():
        flat = inputs.flat(inputs.example).double()
        odds = flat if layer.from_logits else torch.logit(flat.clamp(1e-12, 1 - 1e-12))
    with torch.enable_grad():
        count = sum(len(group.atoms) for group in layer.outputs)
        # One example for each output, so that one pass serves all.
        copies = odds.expand(count, -1).clone().requires_grad_()
        given = copies if layer.from_logits else torch.sigmoid(copies)
        result = torch.diagonal(layer.log_odds(given)).sum()
        slopes = torch.zeros_like(copies)
        if result.requires_grad:
            (slopes,) = torch.autograd.grad(result, copies)
    partial: Values = slopes.cpu().numpy()[:, :n]
    total = partial.copy()
    p = inputs.all_values[:n].clip(1e-12, 1 - 1e-12)
    for c, group in enumerate(inputs.row):
        if group is not None:  # the others of the group keep their proportions
            others = group[group != c]
            total[:, c] -= (partial[:, others] * (p[c] / (1 - p[others]))).sum(1)
    return total


def _largest(inputs: Inputs, slope: Values) -> tuple[InputShare, ...]:
    names = inputs.layer.program.atoms
    order = sorted(range(inputs.count), key=lambda n: -abs(slope[n]))[:SHOWN]
    return tuple(
        InputShare(names[inputs.atoms[n]], float(inputs.all_values[n]), float(slope[n]))
        for n in order
        if slope[n] != 0
    )


# ---- One answer


#: Returns the answer of an output with its proof, changes and remarks.
Explainer: TypeAlias = "Callable[[_Output, Answer], Answer]"


class ThresholdExplainer:
    """Explains the answers of min/max values and of the operator."""

    def __init__(self, inputs: Inputs, gamma: GammaSemantics | None = None) -> None:
        self.inputs = inputs
        self.program = inputs.layer.program
        dtype = inputs.example.dtype
        eps = torch.finfo(dtype).eps
        self.unproved: str | None = None
        #: From `high` on an input is true, up to `low` it is false.
        self.low, self.high = 0.5, 0.5 + eps
        self.gamma = gamma is not None
        if gamma is not None:
            exact, reason = gamma.guarantee()
            self.unproved = None if exact else reason
            # Sixteen bits may round a number into the band.
            slack = 0.0 if dtype.itemsize >= 4 else eps
            self.low, self.high = 0.5 - gamma.delta - slack, 0.5 + gamma.delta + slack
        self.rounding = 2 * eps if dtype.itemsize >= 4 else 0.0
        # The atoms of the inputs and of the soft facts, in the order of their values.
        self.atoms = np.concatenate((inputs.atoms, inputs.soft))

    def __call__(self, output: _Output, answer: Answer) -> Answer:
        """Return the answer of an output, explained."""
        if self.program.definite:
            proof = self._best_proof(output.atom, np.ones(len(self.atoms), np.bool_))
            title = f"best proof ({self._weakest(proof)})" if proof else "proof"
            remarks = [] if proof else ["no inputs prove it"]
        else:
            above = self.inputs.above_half(self.inputs.example)[0]
            proof = derivation(self.program, self._facts(above[None])[0], output.atom)
            title = "proof from what is above one half"
            remarks = [] if proof else ["it does not follow from what is above one half"]
        answer = replace(answer, proof=proof, proof_title=title)
        if self.unproved is not None:
            remarks.append(f"no change is stated, since nothing is proved: {self.unproved}")
            return replace(answer, remarks=tuple(remarks))
        decide, is_true = self._decide(output), answer.is_true
        if decide(self.inputs.example)[0] != is_true:
            several = ", or not exactly one atom of the group follows" * output.categorical
            remarks.append(
                "the certificate does not cover this answer: inputs lie inside "
                f"({self.low:g}, {self.high:g}){several}"
            )
        try:
            changes = self._changes(output, decide, is_true)
        except MissingPackageError as error:  # without clingo
            return replace(answer, remarks=(*remarks, f"no change is stated: {error}"))
        if changes is None:
            certain = not output.categorical and not self._possible(output.atom, not is_true)
            how = "no change of the inputs makes" if certain else "no change was found that makes"
            remarks.append(f"{how} {answer.effect}")
        shown = tuple(self._shown(n, to) for n, to in (changes or {}).items())
        return replace(answer, changes=shown, remarks=tuple(remarks))

    # ---- Decisions

    def _decide(self, output: _Output) -> Decide:
        """Return the function that says what rows make of an answer."""
        if not self.gamma:
            return lambda rows: output.is_true(self.inputs.outputs(rows)).astype(np.int8)

        rivals = [atom for atom in output.group if atom != output.atom]

        def by_certificate(rows: Tensor) -> npt.NDArray[np.int8]:
            values = self.inputs.values(rows)
            surely = self._closed(values >= self.high - self.rounding)
            maybe = self._closed(values > self.low + self.rounding)
            true, false = surely[:, output.atom], ~maybe[:, output.atom]
            if output.categorical:  # one that follows is above one half, all others below
                true = true & ~maybe[:, rivals].any(1)
                false = false & surely[:, rivals].any(1)
            if not self.program.definite:  # what is neither true nor false may count either way
                inside = (values > self.low + self.rounding) & (values < self.high - self.rounding)
                true, false = true & ~inside.any(1), false & ~inside.any(1)
            return np.where(true, 1, np.where(false, 0, -1)).astype(np.int8)

        return by_certificate

    def _closed(self, true: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return the closures of inputs and soft facts that are true. (B, I + C) -> (B, M)."""
        return closures(self.program, self._facts(true))

    def _facts(self, true: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return inputs and soft facts that are true as fact sets. (B, I + C) -> (B, M)."""
        masks = np.zeros((len(true), self.program.M), np.bool_)
        masks[:, self.inputs.certain] = True
        masks[:, self.atoms] = true
        return masks

    def _possible(self, atom: int, wanted: bool) -> bool:
        """Return whether the atom could be true, or false, if every input could take any value."""
        if not self.program.definite:
            return self._nearest({atom: wanted}, grouped=False) is not None
        soft = self.inputs.all_values > 0.5
        soft[: self.inputs.count] = wanted
        return bool(self._closed(soft[None])[0, atom]) == wanted

    # ---- Changes

    def _changes(self, output: _Output, decide: Decide, is_true: bool) -> dict[int, float] | None:
        """Return values for some inputs that make the answer the opposite; None if not found."""
        for chosen in self._candidates(output, is_true):
            if not chosen:
                continue

            def works(columns: Sequence[int], chosen: dict[int, float] = chosen) -> bool:
                row = self.inputs.changed([{n: chosen[n] for n in columns}])
                return bool(decide(row)[0] == (not is_true))

            if works(list(chosen)):
                return {n: chosen[n] for n in needed_part(list(chosen), works)}
        return None

    def _candidates(self, output: _Output, is_true: bool) -> Any:
        """Yield sets of changes to try, each a value for some inputs."""
        values, count = self.inputs.all_values, self.inputs.count
        if not output.categorical:
            if not self.program.definite:
                yield self._moved({output.atom: not is_true}, self.low, self.high)
            elif is_true:
                # The strongest are put back first, so that the weakest remain.
                order = np.argsort(-values[:count], kind="stable").tolist()
                yield self._one_of_each_group(
                    {n: self.low for n in order if values[n] > self.low + self.rounding}
                )
            else:
                yield self._raised(output.atom, self.high)
            return
        # Its own proof, or that of another atom, at its strongest and all else at its weakest.
        group, rivals = output.group, [output.atom]
        if is_true:
            strength = self.inputs.outputs(self.inputs.example)[0, output.row]
            order = np.argsort(-strength, kind="stable").tolist()
            rivals = [group[k] for k in order if group[k] != output.atom][:_MOST_RIVALS]
        for atom in rivals:
            if not self.program.definite:
                yield self._moved({other: other == atom for other in group}, 0.0, 1.0)
                continue
            raised = self._raised(atom, 1.0)
            free = [n for n in range(count) if self.inputs.row[n] is None and n not in raised]
            kept = self._leaves(self._usable_proof(atom))
            yield {**{n: 0.0 for n in free if n not in kept and values[n] > 0}, **raised}

    def _raised(self, atom: int, high: float) -> dict[int, float]:
        """Return the inputs of a proof that are not true yet, raised to this value."""
        values = self.inputs.all_values
        leaves = self._leaves(self._usable_proof(atom))
        return {n: high for n in sorted(leaves) if values[n] < high - self.rounding}

    def _moved(self, wanted: Mapping[int, bool], low: float, high: float) -> dict[int, float]:
        """Return values for inputs, low or high, that make some atoms true or false.

        At 0 and 1 all inputs move there, so that the outputs are 0 or 1 as well.
        """
        facts = self._nearest(wanted)
        if facts is None:
            return {}
        values, count = self.inputs.all_values, self.inputs.count
        above = self.inputs.above_half(self.inputs.example)[0, :count]
        true = np.array([facts.get(int(i), above[n]) for n, i in enumerate(self.inputs.atoms)])
        if high == 1:
            rises, falls = true & (values[:count] < 1), ~true & (values[:count] > 0)
            falls &= np.array([row is None for row in self.inputs.row]) | above
        elif self.gamma:
            rises = true & (values[:count] < high - self.rounding)
            falls = ~true & (values[:count] > low + self.rounding)
        else:
            rises, falls = true & ~above, above & ~true
        moved = dict.fromkeys(np.flatnonzero(rises).tolist(), high)
        moved.update(dict.fromkeys(np.flatnonzero(falls).tolist(), low))
        return self._one_of_each_group(moved)

    def _nearest(
        self, wanted: Mapping[int, bool], *, grouped: bool = True
    ) -> dict[int, bool] | None:
        """Return which inputs are true after a smallest change that makes atoms true or false."""
        given = self._facts(self.inputs.above_half(self.inputs.example))[0]
        free = np.zeros(self.program.M, np.bool_)
        free[self.inputs.atoms] = True
        groups = {
            tuple(self.inputs.atoms[row].tolist()) for row in self.inputs.row if row is not None
        }
        found = nearest_facts(self.program, given, free, wanted, groups if grouped else ())
        return None if found is None else found[0]

    def _one_of_each_group(self, changes: dict[int, float]) -> dict[int, float]:
        """Return the changes, without a second one in any group."""
        kept: dict[int, float] = {}
        for n, to in changes.items():
            if self.inputs.consistent([*kept, n]):
                kept[n] = to
        return kept

    def _shown(self, n: int, to: float) -> InputChange:
        value = float(self.inputs.all_values[n])
        end = 1.0 if to > value else 0.0
        # Lower values of one atom of a group raise the others.
        return self.inputs.change(n, to, to if self.inputs.row[n] is not None and not end else end)

    # ---- Proofs

    def _usable_proof(self, atom: int) -> Derivation | None:
        """Return a proof that changes of the inputs can complete, at most one in a group."""
        usable = self.inputs.all_values >= self.high - self.rounding
        usable[: self.inputs.count] = True
        proof = self._best_proof(atom, usable)
        if proof is None or self.inputs.consistent(list(self._leaves(proof))):
            return proof
        layer = self.inputs.layer
        count = self.inputs.count
        facts = [n for n in range(count) if self.inputs.row[n] is None]
        groups = {int(row[0]): row for row in self.inputs.row if row is not None}
        variables = Variables(
            tuple(self.inputs.atoms[facts].tolist()),
            tuple(tuple(self.inputs.atoms[row].tolist()) for row in groups.values()),
        )
        column = {int(atom): n for n, atom in enumerate(self.inputs.atoms)}
        p = self.inputs.all_values[[column[int(i)] for i in variables.atoms]].clip(1e-9, 1)
        true = [*self.inputs.certain.tolist(), *self.inputs.soft[usable[count:]].tolist()]
        likely = _likeliest(self.program, variables, p, atom, true)
        return None if likely is None else _proof_from(layer, likely, true, atom)

    def _best_proof(self, atom: int, usable: npt.NDArray[np.bool_]) -> Derivation | None:
        """Return a proof from these inputs and soft facts, with the strongest weakest one."""
        values = self.inputs.all_values
        order = np.argsort(-values, kind="stable")
        order = order[usable[order]]

        def facts(count: int) -> npt.NDArray[np.bool_]:
            chosen = np.zeros(len(values), np.bool_)
            chosen[order[:count]] = True
            return self._facts(chosen[None])

        def derives(count: int) -> bool:
            return bool(closures(self.program, facts(count))[0, atom])

        # The least number of inputs, from the strongest on, that derives it.
        count = bisect_left(range(len(order) + 1), True, key=derives)
        return derivation(self.program, facts(count)[0], atom) if count <= len(order) else None

    def _leaves(self, proof: Derivation | None) -> set[int]:
        """Return the inputs that a proof uses."""
        if proof is None:
            return set()
        names = self.program.atoms
        return {n for n, i in enumerate(self.inputs.atoms) if names[i] in proof.facts}

    def _weakest(self, proof: Derivation) -> str:
        """Return the weakest facts of a proof, as text."""
        values = dict(
            zip((self.program.atoms[i] for i in self.atoms), self.inputs.all_values, strict=True)
        )
        used = {name: values[name] for name in proof.facts if name in values}
        if not used:
            return "from no inputs"
        least = min(used.values())
        names = sorted(quote(name) for name, value in used.items() if value == least)
        return (
            f"weakest {'fact' if len(names) == 1 else 'facts'}: {', '.join(names)}, at {least:.3g}"
        )


# ---- Probabilities


class ProbabilityExplainer:
    """Explains probabilities: each is linear in each variable, given the others.

    With evidence, the probability of an output and of the evidence is, and so is that of the
    evidence; a probability is above one half where the former is more than half of the latter.
    """

    def __init__(self, inputs: Inputs, rules: ProbabilitySemantics) -> None:
        self.inputs, self.rules = inputs, rules
        self.exact = rules.methods.exact
        layer = inputs.layer
        with torch.no_grad():
            ends = inputs.changed([{n: value} for value in (0.0, 1.0) for n in range(inputs.count)])
            if self.exact:
                flat = torch.split(inputs.flat(ends), _ROWS)
                parts = [rules.joint(part, from_logits=layer.from_logits) for part in flat]
                joint = torch.cat(parts).cpu().numpy()
                self.zero, self.one = joint[: inputs.count], joint[inputs.count :]  # (I, 1 + O)

    def __call__(self, output: _Output, answer: Answer) -> Answer:
        """Return the answer of an output, explained."""
        proof, title = self._proof(output.atom)
        answer = replace(answer, proof=proof, proof_title=title)
        remarks = [] if proof else ["no proof of it was found"]
        if not self.inputs.layer.program.definite:
            remarks = ["no proof is shown, since the program has negation"]
        if not self.exact:
            reason = "it is an estimate from sampled worlds"
            if self.rules.diagram is not None:
                reason = "a decision diagram has the probabilities given the evidence alone"
            remarks.append(f"no change is stated, since {reason}")
            return replace(answer, remarks=tuple(remarks))
        alone = self._alone(output, answer.is_true)
        if not alone:
            remarks.append(f"no change of one input alone makes {answer.effect}, ties aside")
        return replace(answer, alone=alone, remarks=tuple(remarks))

    def _proof(self, atom: int) -> tuple[Derivation | None, str]:
        layer = self.inputs.layer
        program = layer.program
        if not program.definite:
            return None, "proof"
        with torch.no_grad():
            flat = self.inputs.flat(self.inputs.example)
            values = self.rules.in_order(flat, from_logits=layer.from_logits)[0]
        p = values.double().cpu().numpy()
        true = self.inputs.certain.tolist()
        likely = _likeliest(program, self.rules.variables, p, atom, true)
        if likely is None:
            return None, "proof"
        before = " before the evidence" if self.rules.has_evidence else ""
        title = f"likeliest proof, of probability {likely.probability:.3g}{before}"
        return _proof_from(layer, likely, true, atom), title

    def _alone(self, output: _Output, is_true: bool) -> tuple[InputChange, ...]:
        """Return the least change of each input that alone makes the answer the opposite."""
        eps = torch.finfo(self.inputs.example.dtype).eps
        trials: list[tuple[int, list[float]]] = []
        for n, (start, end) in self._intervals(output, is_true).items():
            # The layer rounds: the change is tried where it should suffice, and farther on.
            points, distance = [start], eps
            while distance < abs(end - start):
                points.append(start + (distance if end > start else -distance))
                distance *= _FARTHER
            trials.append((n, [*points, end]))
        if not trials:
            return ()
        rows = self.inputs.changed([{n: to} for n, points in trials for to in points])
        with torch.no_grad():
            flips = output.is_true(self.inputs.outputs(rows)) != is_true
        changes, at = [], 0
        for n, points in trials:
            works = flips[at : at + len(points)]
            at += len(points)
            first = 0 if works.all() else len(works) - int(np.argmin(works[::-1]))
            if first < len(points):
                changes.append(self.inputs.change(n, points[first], points[-1]))
        return tuple(sorted(changes, key=lambda change: abs(change.to - change.value)))

    def _intervals(self, output: _Output, is_true: bool) -> dict[int, tuple[float, float]]:
        """Return, for each input, the nearest and the farthest value that change the answer."""
        value = self.inputs.all_values[: self.inputs.count]
        # Conditions c(v) > 0, linear in the value v of the input: c(0) and c(1). (I, K).
        at_zero, at_one = (
            self._conditions(output, ends, is_true) for ends in (self.zero, self.one)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            root = at_zero / (at_zero - at_one)
        low = np.where((at_zero < 0) & (at_one > at_zero), root, 0.0)
        high = np.where((at_one < 0) & (at_one < at_zero), root, 1.0)
        never = np.maximum(at_zero, at_one) <= 0
        if not is_true:  # all of them at once
            low, high = low.max(1, keepdims=True), high.min(1, keepdims=True)
            never = never.any(1, keepdims=True) | (low > high)
        places: dict[int, tuple[float, float]] = {}
        for n in range(self.inputs.count):
            found = [
                (float(a), float(b)) if value[n] < a else (float(b), float(a))
                for a, b, no in zip(low[n], high[n], never[n], strict=True)
                if not no and not a <= value[n] <= b  # inside: a tie, which rounding decided
            ]
            if found:
                nearest = min(found, key=lambda ends: abs(ends[0] - value[n]))
                places[n] = self._with_evidence(n, *nearest)
        return places

    def _with_evidence(self, n: int, start: float, end: float) -> tuple[float, float]:
        """Return the interval, shorter where the evidence is impossible at its end."""

        def weight(value: float) -> float:
            return float((1 - value) * self.zero[n, 0] + value * self.one[n, 0])

        possible = weight(end) > 1e-6 * weight(float(self.inputs.all_values[n]))
        return start, end if possible else (start + end) / 2

    def _conditions(self, output: _Output, joint: Values, is_true: bool) -> Values:
        """Return what must be positive for the opposite answer: all, or one if true. (I, K)."""
        own = joint[:, 1 + output.place, None]
        if output.categorical:
            row = joint[:, 1:][:, output.row]
            others = np.delete(row, output.place - output.row.start, axis=1)
        else:
            others = joint[:, :1] / 2
        difference = others - own if is_true else own - others
        # What differs by rounding alone is a tie.
        eps = torch.finfo(self.inputs.example.dtype).eps
        found: Values = difference - _ROUNDINGS * (eps * joint[:, :1] + np.finfo(np.float64).eps)
        return found


def _likeliest(
    program: Program, variables: Variables, p: Values, atom: int, true: list[int]
) -> LikelyProof | None:
    """Return the likeliest proof; None if there is none, or none was found within the budget."""
    try:
        found = likely_proofs(program, variables, p, atom, true=true, most=1, budget=_BUDGET)
    except ModelError:
        return None
    return found[0] if found else None


def _proof_from(
    layer: Layer, likely: LikelyProof, true: Sequence[int], atom: int
) -> Derivation | None:
    names = layer.program.atoms
    return derivation(layer.program, [*likely.facts, *(names[i] for i in true)], atom)


# ---- What was expected


def _expected(groups: tuple[Group, ...], expected: Any) -> list[npt.NDArray[np.bool_] | None]:
    named = expected if isinstance(expected, Mapping) else {groups[0].name: expected}
    if expected is not None and not isinstance(expected, Mapping) and len(groups) > 1:
        raise StateError("this layer has several groups of outputs; pass expected as a dictionary")
    labels: list[npt.NDArray[np.bool_] | None] = []
    for group in groups:
        given = named.get(group.name)
        if given is None:
            labels.append(None)
            continue
        array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
        if group.categorical and array.shape == group.shape[:-1] and array.dtype.kind in "iu":
            labels.append(np.arange(group.shape[-1]) == array[..., None])
        elif array.shape == group.shape:
            labels.append(array > 0.5)
        else:
            name = "" if group.name == UNNAMED else f" of {group.name!r}"
            raise StateError(
                f"the expected outputs{name} have the shape {group.shape}, not {array.shape}"
            )
    return labels
