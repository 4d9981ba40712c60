"""Why a layer answers as it does: proofs, and the inputs that would have to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from latentgamma._logic.closure import closure
from latentgamma._logic.derivation import Derivation, derivation
from latentgamma._program.names import quote
from latentgamma._program.program import Program

#: How many inputs the printed text lists for each answer.
_SHOWN = 8


@dataclass(frozen=True)
class InputShare:
    """An input and what it has to do with an answer.

    `gradient` is the derivative of the answer's log-odds in those of the input.
    """

    atom: str
    value: float
    gradient: float

    def __str__(self) -> str:
        return f"{quote(self.atom)} at {self.value:.3g} (gradient {self.gradient:+.3g})"


@dataclass(frozen=True)
class Answer:
    """One output of one example: its value, its proof, and what would change it.

    Attributes:
        atom: the output.
        value: what the layer gives.
        is_true: whether that counts as true: above one half, or the greatest of a `Categorical`.
        expected: whether it should be true; None if nobody said.
        proof: a proof from the inputs that count as true; where there is none, the proof that
            comes nearest: its weakest input is as strong as possible. None if no inputs could
            prove it.
        changes: inputs that would have to rise (or to fall, if the answer is true) for the answer
            to be the opposite. All of them together; none of them is superfluous.
        gradients: the inputs with the largest gradients, largest first.
    """

    program: Program = field(repr=False)
    atom: str
    value: float
    is_true: bool
    expected: bool | None
    proof: Derivation | None
    changes: tuple[InputShare, ...]
    gradients: tuple[InputShare, ...]

    @property
    def is_wrong(self) -> bool:
        """Whether it is not what was expected."""
        return self.expected is not None and self.expected != self.is_true

    def __str__(self) -> str:
        verdict = "true" if self.is_true else "false"
        lines = [f"{quote(self.atom)} is {verdict}, at {self.value:.3g}"]
        if self.is_wrong:
            lines[0] += f", and should be {'false' if self.is_true else 'true'}"
        if self.proof is None:
            lines.append("no inputs prove it")
        else:
            lines.append("proof:" if self.is_true else "the proof that comes nearest:")
            lines += [f"  {line}" for line in str(self.proof).splitlines()]
        if self.changes:
            direction = "fall below" if self.is_true else "rise above"
            needed = f"to make it {'false' if self.is_true else 'true'}"
            lines.append(f"{needed}, these would have to {direction} one half:")
            lines += _listed(self.changes)
        if self.gradients:
            lines.append("inputs with the largest gradients:")
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


def _listed(inputs: Sequence[InputShare]) -> list[str]:
    lines = [f"  {share}" for share in inputs[:_SHOWN]]
    return lines + [f"  … {len(inputs) - _SHOWN} more"] * (len(inputs) > _SHOWN)


@dataclass(frozen=True, eq=False)
class Example:
    """The inputs of one example, and what is given besides."""

    program: Program
    fed: npt.NDArray[np.int64]  # (I,) the atoms of the inputs
    values: npt.NDArray[np.float64]  # (I,)
    true: npt.NDArray[np.bool_]  # (I,) the inputs that count as true
    given: npt.NDArray[np.bool_]  # (M,) what is true besides


def explain_answer(
    example: Example,
    atom: int,
    value: float,
    slope: npt.NDArray[np.float64],
    *,
    is_true: bool,
    expected: bool | None,
) -> Answer:
    """The explanation of one output.

    Args:
        example: the inputs.
        atom: the index of the output.
        value: what the layer gives.
        slope: the derivatives of its log-odds in those of the inputs. (I,).
        is_true: whether the value counts as true.
        expected: whether it should.
    """
    program, names = example.program, example.program.atoms

    def share(n: int) -> InputShare:
        return InputShare(names[example.fed[n]], float(example.values[n]), float(slope[n]))

    proof = _nearest_proof(example, atom)
    derived = bool(closure(program, _facts(example, example.true)).state[atom])
    changes = _to_withdraw(example, atom) if derived else _to_add(example, proof)
    largest = sorted(range(len(slope)), key=lambda n: -abs(slope[n]))[:_SHOWN]
    return Answer(
        program,
        names[atom],
        value,
        is_true,
        expected,
        proof,
        tuple(share(n) for n in changes),
        tuple(share(n) for n in largest if slope[n] != 0),
    )


def _facts(example: Example, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    mask = example.given.copy()
    mask[example.fed[chosen]] = True
    return mask


def _order(example: Example) -> npt.NDArray[np.int64]:
    """The inputs from the strongest to the weakest, those that count as true before the others."""
    return np.lexsort((-example.values, ~example.true))


def _nearest_proof(example: Example, atom: int) -> Derivation | None:
    """A proof from as few of the weaker inputs as possible."""
    order = _order(example)

    def derives(count: int) -> bool:
        chosen = np.zeros(len(order), np.bool_)
        chosen[order[:count]] = True
        return bool(closure(example.program, _facts(example, chosen)).state[atom])

    if not derives(len(order)):
        return None
    true = int(example.true.sum())
    low, high = (0, true) if derives(true) else (true, len(order))
    if high > true:  # the least number of inputs, from the strongest on, that derives it
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if derives(middle) else (middle + 1, high)
    chosen = np.zeros(len(order), np.bool_)
    chosen[order[:high]] = True
    return derivation(example.program, _facts(example, chosen), atom)


def _to_add(example: Example, proof: Derivation | None) -> list[int]:
    """The inputs of a proof that do not count as true."""
    if proof is None:
        return []
    names = example.program.atoms
    return [n for n, i in enumerate(example.fed) if names[i] in proof.facts and not example.true[n]]


def _to_withdraw(example: Example, atom: int) -> list[int]:
    """True inputs without which the atom does not follow, the weakest first."""
    kept = example.true.copy()
    withdrawn: list[int] = []
    for n in _order(example)[::-1].tolist():
        if not closure(example.program, _facts(example, kept)).state[atom]:
            break
        if kept[n]:
            kept[n] = False
            withdrawn.append(n)
    if closure(example.program, _facts(example, kept)).state[atom]:
        return []  # it follows from what is given besides
    for n in list(withdrawn)[::-1]:  # put back what is not needed, the strongest first
        kept[n] = True
        if closure(example.program, _facts(example, kept)).state[atom]:
            kept[n] = False
        else:
            withdrawn.remove(n)
    return withdrawn
