"""What is said about an answer of a layer: its proof, and the inputs that would change it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from latentgamma._logic.derivation import Derivation
from latentgamma._program.names import quote
from latentgamma._program.program import Program

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
        expected: Whether it should be true; None if nobody said.
        proof: With `"godel"` and `"gamma"` a proof whose weakest fact is as strong as possible:
            with `"godel"` that is the value of the answer. With `"probability"` the likeliest
            proof. None if there is none, or none was found.
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
    proof: Derivation | None
    changes: tuple[InputChange, ...]
    alone: tuple[InputChange, ...]
    gradients: tuple[InputShare, ...]
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
        return opposite(is_true=self.is_true, categorical=self.categorical)

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
        lines += _listed(self.changes)
        if self.alone:
            lines.append(f"each of these changes alone makes {effect}:")
        lines += _listed(self.alone)
        if self.gradients:
            lines.append("largest gradients, of its log-odds in those of the inputs:")
            lines += _listed(self.gradients)
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


def opposite(*, is_true: bool, categorical: bool) -> str:
    """What a change makes of an answer, as it follows "makes"."""
    if categorical:
        return "another atom the answer" if is_true else "it the answer"
    return "it false" if is_true else "it true"


def _listed(items: Sequence[InputShare | InputChange]) -> list[str]:
    lines = [f"  {item}" for item in items[:SHOWN]]
    return lines + [f"  … {len(items) - SHOWN} more"] * (len(items) > SHOWN)
