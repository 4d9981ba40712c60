"""The semantics "gamma": the certified operator behind a sharpening of its inputs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma._certificate.certify import certify, tolerance
from latentgamma._certificate.constants import Constants
from latentgamma._errors import CertificateError, ModelError
from latentgamma._layer.log_odds import log_odds
from latentgamma._minmax.circuit import compile_circuit
from latentgamma._minmax.closure import KernelChoice
from latentgamma._model.module import LatentGamma
from latentgamma._model.oracle import oracle
from latentgamma._model.stages import GateKind
from latentgamma._program.program import Program

#: The δ of a layer for which none is given.
DEFAULT_TOLERANCE = 0.05
#: The hardness of the closed form that training starts from.
_SOFTEST = 0.2


@final
class GammaSemantics(nn.Module):
    """A fact above ½ + δ is true, one below ½ − δ is false, and then the outputs are the closure.

    The operator tolerates inputs that are within some t of 0 and 1, and a certificate says how
    large t is; it shrinks with the length of the bodies. So the log-odds of the inputs are
    multiplied by a factor that takes ½ ± δ to beyond t and 1 − t, whatever the program.

    In training the constants of the operator lie between soft ones, at temperature 1, and the
    certified ones, at temperature 0; and the factor between 1 and its full size.
    """

    start: Tensor
    fed: Tensor
    read: Tensor

    def __init__(
        self,
        program: Program,
        inputs: npt.NDArray[np.int64],
        outputs: npt.NDArray[np.int64],
        true: npt.NDArray[np.int64],
        *,
        kernel: KernelChoice,
        gate: GateKind,
        delta: float,
    ) -> None:
        super().__init__()
        if not 0 < delta < 0.5:
            raise ModelError(f"tolerance is a number between 0 and 0.5, not {delta!r}")
        self.delta = delta
        self._certified = Constants.certified(program)
        self._soft = Constants.closed_form(program, _SOFTEST)
        self.circuit = compile_circuit(program, inputs, outputs, true=true)

        def operator(constants: Constants) -> LatentGamma:
            made = oracle(program, constants, form="sparse", gate=gate, kernel=kernel)
            return made.requires_grad_(False)

        self.model, self.annealed = operator(self._certified), operator(self._soft)
        # Half of what the operator tolerates leaves a window that is wide open.
        held = 0.5 * tolerance(self.model, program)
        if held <= 0:
            raise CertificateError("this operator is certified for inputs at 0 and 1 only")
        self.certificate = certify(self.model, program, tolerance=held).require()
        self.steps = int(self.certificate.t_min)
        # A tenth of the room is left to the rounding of the sharpening itself.
        beyond = math.log1p(-0.9 * held) - math.log(0.9 * held)
        self.factor = max(1.0, beyond / (math.log(0.5 + delta) - math.log(0.5 - delta)))
        self._factor = self.factor
        start = torch.zeros(program.M)
        start[torch.from_numpy(true)] = 1.0
        self.register_buffer("start", start, persistent=False)
        self.register_buffer("fed", torch.from_numpy(inputs.copy()), persistent=False)
        self.register_buffer("read", torch.from_numpy(outputs.copy()), persistent=False)

    def cool(self, temperature: float) -> None:
        """Set the constants that training runs with: soft at temperature 1, certified at 0."""
        share = min(temperature, 1.0)
        mixed = replace(
            self._certified,
            **{
                name: share * soft + (1 - share) * getattr(self._certified, name)
                for name, soft in self._soft.to_dict().items()
            },
        )
        program = self.model.program
        if program is None:
            raise ModelError("the operator of this layer has lost its program")
        with torch.no_grad():
            fresh = oracle(program, mixed, form="sparse", gate=self.model.gate_kind)
            for parameter, value in zip(
                self.annealed.parameters(), fresh.parameters(), strict=True
            ):
                parameter.copy_(value)
        self._factor = float(self.factor ** (1 - share))

    def guarantee(self) -> str:
        """What is exact about it."""
        low, high = 0.5 - self.delta, 0.5 + self.delta
        return f"above one half is the closure, proved for all inputs outside ({low:g}, {high:g})"

    def forward(
        self, facts: Tensor, temperature: Tensor, *, hard: bool, from_logits: bool, logits: bool
    ) -> Tensor:
        """The outputs (B, O) of the inputs (B, I), both as values or as log-odds."""
        odds = facts if from_logits else log_odds(facts)
        sharpened = torch.sigmoid((self.factor if hard else self._factor) * odds)
        start = self.start.to(sharpened.dtype).expand(len(facts), -1)
        state = start.index_copy(1, self.fed, sharpened)
        model = self.model if hard else self.annealed
        after: Tensor = model(state, self.steps, logits=logits)
        return after.index_select(1, self.read)
