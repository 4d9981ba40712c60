"""The semantics "godel": the min/max closure, smooth in training and hard in evaluation."""

from __future__ import annotations

from typing import final

import numpy.typing as npt
from torch import Tensor, nn

from latentgamma._layer.log_odds import CERTAIN, log_odds, probability
from latentgamma._minmax.circuit import compile_circuit
from latentgamma._minmax.closure import KernelChoice, MinMax
from latentgamma._program.program import Program


@final
class GodelSemantics(nn.Module):
    """A fact at p is true to the degree p; an atom is as true as its best proof.

    A proof is as good as its weakest fact. So an atom is above one half exactly if it is in the
    closure of the facts above one half.
    """

    def __init__(
        self,
        program: Program,
        inputs: npt.ArrayLike,
        outputs: npt.ArrayLike,
        true: npt.ArrayLike,
        *,
        kernel: KernelChoice,
    ) -> None:
        super().__init__()
        self.circuit = compile_circuit(program, inputs, outputs, true=true)
        self.closure = MinMax(self.circuit, kernel=kernel)

    def guarantee(self) -> tuple[bool, str]:
        """Whether it is exact, and what is."""
        return True, "above one half is the closure of what is above one half, on every input"

    def forward(
        self, facts: Tensor, temperature: Tensor, *, hard: bool, from_logits: bool, logits: bool
    ) -> Tensor:
        """The outputs (B, O) of the inputs (B, I), both as values or as log-odds."""
        if hard and not from_logits:
            values: Tensor = self.closure(facts, temperature, hard=True, low=0.0, high=1.0)
            return log_odds(values) if logits else values
        given = facts if from_logits else log_odds(facts)
        odds: Tensor = self.closure(given, temperature, hard=hard, low=-CERTAIN, high=CERTAIN)
        return odds if logits else probability(odds)
