"""Probabilities given evidence, from joint probabilities of outputs and evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from latentgamma._errors import ModelError, StateError
from latentgamma._probability.ladder import Ladder
from latentgamma._program.program import Program
from latentgamma._program.rules import Rule

# Of a difference of joint probabilities, what is smaller than this times their sum is rounding.
_ROUNDING = 1e-12
# In such differences, each false atom of the evidence doubles the number of joint probabilities.
_MOST_FALSE = 8


class Conditioning:
    """The joint probabilities that a condition needs, as atoms of a larger program.

    With positive evidence P and negative evidence N, the probability of an output and of all the
    evidence is the alternating sum, over the subsets S of N, of the probability of the output,
    P and S together. With `negation`, or in a program that has it, it is that of one atom of a
    program with negation.

    Args:
        program: any program.
        outputs: the indices of the atoms whose probabilities are wanted.
        evidence: the atoms that are known, by index, and whether each is true.
        negation: whether to use negation instead of the alternating sum.

    Raises:
        ModelError: if too many atoms are known to be false for an alternating sum.
    """

    def __init__(
        self,
        program: Program,
        outputs: list[int],
        evidence: Mapping[int, bool],
        *,
        negation: bool = False,
    ) -> None:
        true = [atom for atom, value in evidence.items() if value]
        false = [atom for atom, value in evidence.items() if not value]
        self.program: Program
        if not program.definite or (negation and false):
            self.signs = torch.ones(1).double()
            bodies = [sorted({*output, *true}) for output in ((), *((a,) for a in outputs))]
            self.program, self.atoms = _with_negation(program, [(body, false) for body in bodies])
            return
        if len(false) > _MOST_FALSE:
            raise ModelError(
                f"differences of probabilities are for evidence with at most {_MOST_FALSE} false "
                f'atoms, not {len(false)}: use method="auto"'
            )
        subsets = [subset for size in range(len(false) + 1) for subset in combinations(false, size)]
        self.signs = torch.tensor([(-1.0) ** len(subset) for subset in subsets]).double()
        bodies = [
            sorted({*output, *true, *subset})
            for subset in subsets
            for output in ((), *((atom,) for atom in outputs))
        ]
        self.program, self.atoms = _with_conjunctions(program, bodies)

    @property
    def by_differences(self) -> bool:
        """Whether probabilities are subtracted: their rounding is divided by the evidence's."""
        return len(self.signs) > 1

    def totals(self, joint: Tensor) -> Tensor:
        """The probability of the evidence, and of each output together with it. (B, 1 + O).

        Args:
            joint: the probabilities of the conjunctions `atoms`, shape (B, atoms).
        """
        each = joint.shape[1] // len(self.signs)
        parts = joint.reshape(len(joint), len(self.signs), each)  # (B, subsets, 1 + O)
        return (parts * self.signs.to(joint.device)[:, None]).sum(1)

    def condition(self, joint: Tensor, *, sampled: bool = False) -> Tensor:
        """The probability of each output given the evidence.

        Args:
            joint: the probabilities of the conjunctions `atoms`, shape (B, atoms).
            sampled: whether the probability of the evidence is an estimate.

        Returns:
            A tensor of shape (B, O), with values between 0 and 1 except for rounding.

        Raises:
            StateError: if the evidence has probability zero in an example.
        """
        total = self.totals(joint)
        evidence = joint[:, :: joint.shape[1] // len(self.signs)].detach()  # and each subset
        rounding = _ROUNDING * evidence.sum(1) if self.by_differences else 0.0
        zero = total[:, 0].detach() <= rounding
        if sampled and bool(zero.any()):
            row = int(zero.nonzero()[0, 0])
            raise StateError(
                f"no sampled world of example {row} agrees with the evidence: raise worlds="
            )
        self._refuse_impossible(zero)
        return total[:, 1:] / total[:, :1]

    def log_condition(self, log_joint: Tensor) -> Tensor:
        """The same from log-probabilities to log-probabilities, without differences.

        Args:
            log_joint: the log-probabilities of the conjunctions `atoms`, shape (B, atoms).

        Raises:
            StateError: if the evidence has probability zero in an example.
        """
        self._refuse_impossible(log_joint[:, 0].detach() == -torch.inf)
        return log_joint[:, 1:] - log_joint[:, :1]

    def _refuse_impossible(self, zero: Tensor) -> None:
        if bool(zero.any()):
            raise StateError(
                f"the evidence has probability zero in example {int(zero.nonzero()[0, 0])}"
                + (", or one too small for differences: raise budget=" * self.by_differences)
            )


def plan_evidence(
    plan: Callable[..., Ladder],
    program: Program,
    outputs: list[int],
    evidence: Mapping[int, bool],
    method: str,
) -> tuple[Conditioning, Ladder]:
    """How the probabilities given the evidence are computed: without differences where possible.

    Differences lose digits, and those of estimates may be negative: they are used only where they
    are exact and nothing else is.

    Args:
        plan: `plan_ladder` with its other arguments.
        program: any program.
        outputs: the indices of the atoms whose probabilities are wanted.
        evidence: the atoms that are known, by index, and whether each is true.
        method: that of the `Inference`.

    Raises:
        ModelError: if the method does not fit.
    """
    signed = not program.definite
    if signed or method != "pass":
        joint = Conditioning(program, outputs, evidence, negation=True)
        ladder = plan(joint.program, outputs=joint.atoms, subtract=False)
        if method == "pass" and ladder.circuit.subtracts:
            raise ModelError(
                "with this evidence a pass would take one minus a probability, which may hide that "
                'the evidence is impossible: use method="auto"'
            )
        false = sum(not value for value in evidence.values())
        if ladder.exact or signed or method == "sample" or not 0 < false <= _MOST_FALSE:
            return joint, ladder
    differences = Conditioning(program, outputs, evidence)
    exact = plan(differences.program, outputs=differences.atoms)
    return (differences, exact) if exact.exact else (joint, ladder)


def plan_negations(
    plan: Callable[..., Ladder],
    program: Program,
    outputs: list[int],
    evidence: Mapping[int, bool],
) -> Ladder:
    """How the joint probabilities of the evidence and the negation of each output are computed.

    Args:
        plan: `plan_ladder` with its other arguments.
        program: any program.
        outputs: the indices of the atoms whose negations are wanted.
        evidence: the atoms that are known, by index, and whether each is true.
    """
    true = [atom for atom, value in evidence.items() if value]
    false = [atom for atom, value in evidence.items() if not value]
    extended, atoms = _with_negation(program, [(true, [*false, atom]) for atom in outputs])
    return plan(extended, outputs=atoms, subtract=False)


def _new_atoms(program: Program, count: int) -> tuple[list[str], list[int]]:
    """Names that the program does not have, and their indices after its own atoms."""
    names = [f"and({n})" for n in range(count)]
    while set(names) & set(program.atoms):
        names = [name + "'" for name in names]
    return names, list(range(program.M, program.M + count))


def _with_negation(
    program: Program, bodies: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> tuple[Program, list[int]]:
    """The program with an atom for each body of true and false atoms, and these atoms."""
    names, added = _new_atoms(program, len(bodies))
    rules = [
        Rule((name,), *(frozenset(program.atoms[i] for i in some) for some in body))
        for name, body in zip(names, bodies, strict=True)
    ]
    return Program.from_rules([*program.rules, *rules], (*program.atoms, *names)), added


def _with_conjunctions(
    program: Program, bodies: Sequence[Sequence[int]]
) -> tuple[Program, list[int]]:
    """The program with one more atom for each body, and these atoms."""
    names, added = _new_atoms(program, len(bodies))
    sizes = np.cumsum([len(body) for body in bodies])
    extended = Program.from_arrays(
        np.concatenate((program.body_indptr, program.body_indptr[-1] + sizes)),
        np.concatenate((program.body_indices, [i for body in bodies for i in body])).astype(int),
        np.concatenate((program.head_indices, added)),
        np.concatenate(
            (program.head_indptr, program.head_indptr[-1] + np.arange(1, len(bodies) + 1))
        ),
        atoms=(*program.atoms, *names),
    )
    return extended, added
