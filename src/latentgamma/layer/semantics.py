"""Gödel and gamma: what a soft fact means in a layer without probabilities."""

from __future__ import annotations

import math
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma.certificate.certify import Certificate, certify, tolerance
from latentgamma.certificate.constants import Constants
from latentgamma.engine.minmax import (
    Circuit,
    KernelChoice,
    MinMax,
    StrataCircuit,
    StrataMinMax,
    compile_circuit,
    compile_strata,
)
from latentgamma.engine.tensors import CERTAIN, log_odds, probability
from latentgamma.errors import CertificateError
from latentgamma.operator.model import LatentGamma, oracle
from latentgamma.operator.rules import GateKind
from latentgamma.operator.until_closed import CertificateCache
from latentgamma.program.program import Program


def _compiled(
    program: Program, inputs: npt.ArrayLike, outputs: npt.ArrayLike, true: npt.ArrayLike
) -> Circuit | StrataCircuit:
    compiler = compile_circuit if program.definite else compile_strata
    return compiler(program, inputs, outputs, true=true)


# ---- The semantics "godel": the min/max closure, smooth in training and hard in evaluation


@final
class GodelSemantics(nn.Module):
    """A fact at p is true to the degree p; an atom is as true as its best proof.

    A proof is as good as its weakest fact. So an atom is above one half exactly if it is in the
    closure of the facts above one half. `not a` is the complement of the value of a.
    """

    closure: MinMax | StrataMinMax

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
        self.circuit = _compiled(program, inputs, outputs, true)
        if isinstance(self.circuit, StrataCircuit):
            self.closure = StrataMinMax(self.circuit, kernel=kernel)
        else:
            self.closure = MinMax(self.circuit, kernel=kernel)

    def guarantee(self) -> tuple[bool, str]:
        """Return whether it is exact, and what is."""
        return True, "above one half is the closure of what is above one half, on every input"

    def forward(
        self, facts: Tensor, temperature: Tensor, *, hard: bool, from_logits: bool, logits: bool
    ) -> Tensor:
        """Return the outputs (B, O) of the inputs (B, I), both as values or as log-odds."""
        if hard and not from_logits:
            values: Tensor = self.closure(facts, temperature, hard=True, low=0.0, high=1.0)
            return log_odds(values) if logits else values
        given = facts if from_logits else log_odds(facts)
        odds: Tensor = self.closure(given, temperature, hard=hard, low=-CERTAIN, high=CERTAIN)
        if logits:
            return odds
        # What is above one half stays so where a probability has fewer digits than log-odds.
        return _above_half(probability(odds), odds > 0) if hard else probability(odds)


def _above_half(values: Tensor, true: Tensor) -> Tensor:
    """Return the values; those that are true are above one half."""
    above = values + torch.finfo(values.dtype).eps / 2
    return torch.where(true & (values <= 0.5), above, values)


# ---- The semantics "gamma": the certified operator behind a sharpening of its inputs

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

    In training the parameters of the operator lie between soft ones, at temperature 1, and the
    certified ones, at temperature 0; and the factor between 1 and its full size.

    The operator runs in its own dtype, whatever that of the inputs: torch's default dtype at
    first, and then what `.double()`, `.half()` and the like make of it.
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
        self.delta = delta
        self.circuit = _compiled(program, inputs, outputs, true)

        def operator(constants: Constants | None) -> LatentGamma:
            made = oracle(program, constants, form="sparse", gate=gate, kernel=kernel)
            return made.requires_grad_(False)

        self._program = program
        largest = max((stratum.program for stratum in program.strata), key=lambda part: part.M)
        self.model, self.annealed = (
            operator(None),
            operator(Constants.closed_form(largest, _SOFTEST)),
        )
        # On the host, where `.half()` does not round them.
        self._soft = [parameter.detach().cpu().clone() for parameter in self.annealed.parameters()]
        self._certificates = CertificateCache()
        # Half of what the operator tolerates leaves a window that is wide open.
        held = 0.5 * tolerance(self.model, program)
        if held <= 0:
            raise CertificateError("this operator is certified for inputs at 0 and 1 only")
        self.steps = int(certify(self.model, program, tolerance=held).require().t_min)
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
        """Set the parameters that training runs with: soft at temperature 1, certified at 0."""
        share = min(temperature, 1.0)
        with torch.no_grad():
            for parameter, certified, soft in zip(
                self.annealed.parameters(), self.model.parameters(), self._soft, strict=True
            ):
                parameter.copy_(torch.lerp(certified, soft.to(certified), share))
        self._factor = float(self.factor ** (1 - share))

    @property
    def certificate(self) -> Certificate:
        """The certificate for the parameters and the dtype that the operator has now.

        Raises:
            CertificateError: if there is a window, but the steps of this layer are outside it.
        """
        ends = torch.tensor([0.5 - self.delta, 0.5 + self.delta], dtype=torch.float64)
        low, high = self._sharpened(log_odds(ends).to(self.start.device), self.factor).tolist()
        # The ends of the band as the operator sees them, and some rounding of the odds.
        held = min(1.01 * max(low, 1 - high), math.nextafter(0.5, 0))
        model = self.model
        gates = [part.gate_kind for part in model.parts]
        found = self._certificates.get(
            (model.dtype, *gates, model.program, held),
            [*model.parameters(), *model.buffers()],
            lambda: certify(model, self._program, tolerance=held),
            lambda changed: changed,
        )
        if found.holds and not found.covers(self.steps):
            raise CertificateError(
                f"this layer runs {self.steps:,} steps, which is outside the window of its operator "
                f"({found}); make a new layer"
            )
        return found

    def guarantee(self) -> tuple[bool, str]:
        """Return whether it is exact, and what is."""
        try:
            self.certificate.require()
        except CertificateError as error:
            return False, str(error)
        low, high = 0.5 - self.delta, 0.5 + self.delta
        proved = f"above one half is the closure, proved for all inputs outside ({low:g}, {high:g})"
        return True, proved

    def _sharpened(self, odds: Tensor, factor: float) -> Tensor:
        """Return the inputs of the operator, in its own dtype: that of the certificate."""
        wide = torch.promote_types(odds.dtype, torch.float32)
        return torch.sigmoid(factor * odds.to(wide)).to(self.model.dtype)

    def forward(
        self, facts: Tensor, temperature: Tensor, *, hard: bool, from_logits: bool, logits: bool
    ) -> Tensor:
        """Return the outputs (B, O) of the inputs (B, I), both as values or as log-odds."""
        wide = facts.to(torch.promote_types(facts.dtype, torch.float32))
        sharpened = self._sharpened(
            wide if from_logits else log_odds(wide), self.factor if hard else self._factor
        )
        start = self.start.to(sharpened.dtype).expand(facts.shape[0], -1)
        state = start.index_copy(1, self.fed, sharpened)
        model = self.model if hard else self.annealed
        definite = self._program.definite
        after: Tensor = model(state, self.steps, logits=logits and definite)
        found = after.index_select(1, self.read)
        if logits and not definite:
            found = log_odds(found)
        rounded = found.to(facts.dtype)
        if logits or rounded.dtype == found.dtype:
            return rounded
        # What is above one half in the dtype of the operator stays so in that of the inputs.
        return _above_half(rounded, found > 0.5)
