"""What a soft fact means in a layer: the interface, Gödel and gamma."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from latentgamma.certificate.certify import Certificate, certify, tolerance
from latentgamma.certificate.constants import Constants, Gate
from latentgamma.engine.circuit import Circuit, compile_circuit
from latentgamma.engine.execute import KernelChoice, MinMax, kernels_on
from latentgamma.engine.fused import (
    KEEP_LOG_ODDS,
    KEEP_VALUES,
    TO_LOG_ODDS,
    columns_of,
)
from latentgamma.engine.reference import GODEL, GODEL_ODDS, SMOOTH
from latentgamma.engine.tensors import (
    CERTAIN,
    HELD,
    can_leave_torch,
    categorical_log_odds,
    differentiable,
    finite_log_odds,
    log_odds,
    probability,
)
from latentgamma.errors import CertificateError, ModelError
from latentgamma.layer.explain import Explainer, Inputs, ThresholdExplainer
from latentgamma.layer.groups import check_values
from latentgamma.layer.plan import Plan, circuit_plan
from latentgamma.operator.kernels.interface import ValueCache
from latentgamma.operator.model import LatentGamma, oracle
from latentgamma.operator.run import values_of
from latentgamma.program.program import Program

if TYPE_CHECKING:
    from latentgamma.layer.inference import ProbabilitySemantics
    from latentgamma.layer.layer import Layer


# ---- What a layer asks of its semantics


class Semantics(nn.Module):
    """What a soft fact means: how a layer computes, what that proves, and how it is explained."""

    #: Whether torch.compile can trace it; if not, the layer is a graph break.
    traceable = True
    #: Whether above one half is the closure of the facts above one half, which "gamma" proves.
    has_certified_form = False
    #: Whether a certificate is what an explanation rests on.
    certified = False
    circuit: Circuit

    def run(
        self, layer: Layer, tensors: Sequence[Tensor], *, logits: bool, training: bool
    ) -> Tensor:
        """Return the outputs, (B, O), from the tensors of the groups, each (B, *shape)."""
        facts = layer._flat(tensors)
        hard = layer._hard or not training

        def outputs(facts: Tensor) -> Tensor:
            found: Tensor = self(
                facts, layer._temperature, hard=hard, from_logits=layer.from_logits, logits=logits
            )
            return found

        return layer._zero_gradient(outputs, facts) if training else outputs(facts)

    def log_odds(self, layer: Layer, facts: Tensor) -> Tensor:
        """Return the log-odds that `eval()` computes of the outputs (B, O), from flat inputs."""
        found: Tensor = self(
            facts, layer._temperature, hard=True, from_logits=layer.from_logits, logits=True
        )
        return found

    def guarantee(self) -> tuple[bool, str]:
        """Return whether the outputs are exact, and what is."""
        raise NotImplementedError

    def plan(self, layer: Layer) -> Plan:
        """Return how the layer computes."""
        return circuit_plan(layer, self.circuit, self.guarantee())

    def explainer(self, inputs: Inputs) -> Explainer:
        """Return the function that explains one output."""
        raise NotImplementedError

    def covers(self, layer: Layer, facts: Tensor) -> Tensor:
        """Return which examples the guarantee is about, (B,)."""
        return facts.new_ones(facts.shape[0], dtype=torch.bool)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that it computes in whatever that of the inputs is, if there is one."""
        return None

    def cool(self, temperature: float) -> None:
        """Take note of the temperature of training."""

    @property
    def certificate(self) -> Certificate:
        """The proof that the outputs are the closure."""
        raise ModelError(
            'a layer with other semantics than "gamma" has no certificate; layer.certified() is '
            "one that has"
        )

    def probabilities(self, what: str, result: str) -> ProbabilitySemantics:
        """Return itself where the outputs are probabilities without evidence, which `what` needs."""
        raise ModelError(f'{what} is for layers with semantics="probability"')


# ---- The semantics "godel": the min/max closure, smooth in training and hard in evaluation


@final
class GodelSemantics(Semantics):
    """A fact at p is true to the degree p; an atom is as true as its best proof.

    A proof is as good as its weakest fact. So an atom is above one half exactly if it is in the
    closure of the facts above one half. `not a` is the complement of the value of a.
    """

    has_certified_form = True

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
        self._plain = kernel == "reference"

    def guarantee(self) -> tuple[bool, str]:
        """Return whether the outputs are exact, and what is."""
        return True, "above one half is the closure of what is above one half, on every input"

    def explainer(self, inputs: Inputs) -> Explainer:
        """Return the function that explains one output."""
        return ThresholdExplainer(inputs)

    def run(
        self, layer: Layer, tensors: Sequence[Tensor], *, logits: bool, training: bool
    ) -> Tensor:
        """Return the outputs, (B, O), from the tensors of the groups, each (B, *shape).

        On the CPU, everything between the tensors and the outputs is one step of autograd.
        """
        dtype = tensors[0].dtype
        if (
            self._plain
            or dtype not in (torch.float32, torch.float64)
            or any(tensor.dtype != dtype for tensor in tensors)
            or tensors[0].device.type != "cpu"
            or not can_leave_torch(*tensors)
        ):
            return super().run(layer, tensors, logits=logits, training=training)
        scores = layer.from_logits and any(group.categorical for group in layer.inputs)
        if scores:  # torch differentiates these; what is left is the same for all groups
            for group, tensor in zip(layer.inputs, tensors, strict=True):
                check_values(group, tensor, from_logits=True)
            tensors = [
                categorical_log_odds(tensor) if group.categorical else tensor
                for group, tensor in zip(layer.inputs, tensors, strict=True)
            ]
        hard = layer._hard or not training
        on_values = hard and not layer.from_logits
        eps = torch.finfo(dtype).eps
        keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        given = [columns_of(tensor) for tensor in tensors]  # each (B, n)
        x = np.empty((len(given[0]), self.circuit.inputs), given[0].dtype)
        how = KEEP_VALUES if on_values else KEEP_LOG_ODDS if layer.from_logits else TO_LOG_ODDS
        kernels, column = kernels_on("cpu"), 0
        for group, tensor, array in zip(layer.inputs, tensors, given, strict=True):
            fine = kernels.load_columns(array, how, eps, column, x)
            if not fine or (group.categorical and not layer.from_logits):
                check_values(group, tensor, from_logits=layer.from_logits)
            column += array.shape[1]
        if column < x.shape[1] and len(x):
            constants = columns_of(layer._soft_facts(dtype))
            kernels.load_columns(constants, how, eps, column, x[:1])
            x[1:, column:] = x[:1, column:]
        semiring = GODEL if on_values else GODEL_ODDS
        if not hard:
            semiring = replace(SMOOTH, temperature=layer.temperature)
        arrays, cycles = self.circuit.arrays, self.circuit.cycles
        found, *kept = kernels.run_on_arrays(arrays, cycles, semiring, x, keep=keep)
        out = found if on_values != logits else np.empty_like(found)
        if on_values and logits:
            kernels.load_columns(found, TO_LOG_ODDS, eps, 0, out)
        elif not on_values and not logits:
            kernels.read_probabilities(found, hard, eps, out)
        result = torch.from_numpy(out)
        if not keep:
            return result
        wanted = [n for n, tensor in enumerate(tensors) if tensor.requires_grad]

        def gradients(grad: Tensor) -> list[Tensor]:
            above = columns_of(grad)
            slope = above
            if on_values and logits:
                slope = above.copy()
                kernels.log_odds_slope(found, eps, slope)
            elif not on_values and not logits:
                slope = np.empty_like(above)
                kernels.probability_slope(found, above, slope)
            slope = kernels.back_on_arrays(arrays, semiring, *kept, slope, x.shape[1])
            if training and not slope.any() and above.any():
                layer._zero_gradient.warn()
            ends = np.cumsum([0, *(array.shape[1] for array in given)])
            parts = [slope[:, ends[n] : ends[n + 1]] for n in wanted]
            if not on_values and not layer.from_logits:
                parts = [np.ascontiguousarray(part) for part in parts]
                for n, part in zip(wanted, parts, strict=True):
                    kernels.log_odds_slope(given[n], eps, part)
            return [torch.from_numpy(part) for part in parts]

        def again(tensors: Sequence[Tensor]) -> Tensor:
            flat = layer._flat(tensors, as_odds=scores)
            found: Tensor = self(
                flat, layer._temperature, hard=hard, from_logits=layer.from_logits, logits=logits
            )
            return found

        return differentiable(result, gradients, again, tensors)

    def forward(
        self, facts: Tensor, temperature: Tensor, *, hard: bool, from_logits: bool, logits: bool
    ) -> Tensor:
        """Return the outputs (B, O) of the inputs (B, I), both as values or as log-odds."""
        on_values = hard and not from_logits
        given = facts if on_values or from_logits else log_odds(facts)
        found: Tensor = self.closure(given, temperature, hard=hard, values=on_values)
        if on_values:
            return log_odds(found) if logits else found
        if logits:
            return found
        # What is above one half stays so where a probability has fewer digits than log-odds.
        return _above_half(probability(found), found > 0) if hard else probability(found)


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
class GammaSemantics(Semantics):
    """A fact above ½ + δ is true, one below ½ − δ is false, and then the outputs are the closure.

    The operator tolerates inputs that are within some t of 0 and 1, and a certificate says how
    large t is; it shrinks with the length of the bodies. So the log-odds of the inputs are
    multiplied by a factor that takes ½ ± δ to beyond t and 1 − t, whatever the program.

    In training the parameters of the operator lie between soft ones, at temperature 1, and the
    certified ones, at temperature 0; and the factor between 1 and its full size.

    The operator runs in its own dtype, whatever that of the inputs: torch's default dtype at
    first, and then what `.double()`, `.half()` and the like make of it.
    """

    certified = True
    has_certified_form = True
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
        gate: Gate,
        delta: float,
    ) -> None:
        super().__init__()
        self.delta = delta
        self.circuit = compile_circuit(program, inputs, outputs, true=true)

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
        self._certificates = ValueCache()
        # Half of what the operator tolerates leaves a window that is wide open.
        held = 0.5 * tolerance(self.model, program)
        if held <= 0:
            raise CertificateError("this operator is certified for inputs at 0 and 1 only")
        # A tenth of the room is left to the rounding of the sharpening itself.
        beyond = math.log1p(-0.9 * held) - math.log(0.9 * held)
        self.factor = max(1.0, beyond / (math.log(0.5 + delta) - math.log(0.5 - delta)))
        self._factor = self.factor
        self._share = 0.0
        # Of the certificate that this layer shows: with negation, one for a larger tolerance may
        # start earlier.
        self.steps = int(self._certified_now().require().t_min)
        start = torch.zeros(program.M)
        start[torch.from_numpy(true)] = 1.0
        self.register_buffer("start", start, persistent=False)
        self.register_buffer("fed", torch.from_numpy(inputs.copy()), persistent=False)
        self.register_buffer("read", torch.from_numpy(outputs.copy()), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the operator."""
        return self.model.dtype

    def cool(self, temperature: float) -> None:
        """Set the parameters that training runs with: soft at temperature 1, certified at 0."""
        share = self._share = min(temperature, 1.0)
        with torch.no_grad():
            named = self.annealed.named_parameters()
            for (name, parameter), soft in zip(named, self._soft, strict=True):
                certified = attrgetter(name)(self.model)  # which may be computed
                parameter.copy_(torch.lerp(certified, soft.to(certified), share))
        self._factor = float(self.factor ** (1 - share))

    @property
    def certificate(self) -> Certificate:
        """The certificate for the parameters and the dtype that the operator has now.

        Raises:
            CertificateError: if there is a window, but the steps of this layer are outside it.
        """
        found = self._certified_now()
        if found.holds and not found.covers(self.steps):
            raise CertificateError(
                f"this layer runs {self.steps:,} steps, which is outside the window of its operator "
                f"({found}); make a new layer"
            )
        return found

    def _certified_now(self) -> Certificate:
        ends = torch.tensor([0.5 - self.delta, 0.5 + self.delta], dtype=torch.float64)
        low, high = torch.sigmoid(self.factor * log_odds(ends)).to(self.model.dtype).tolist()
        # The ends of the band as the operator sees them, and some rounding of the odds.
        held = min(1.01 * max(low, 1 - high), math.nextafter(0.5, 0))
        model = self.model
        gates = [part.gate_kind for part in model.parts]
        found: Certificate = self._certificates.get(
            (model.dtype, *gates, model.program, held),
            values_of(model),
            lambda: certify(model, self._program, tolerance=held),
            lambda changed: changed,
        )
        return found

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        """Convert the tensors; a dtype with fewer digits may need more steps."""
        before = self.dtype
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        if self.dtype != before:
            self.cool(self._share)
            found = self._certified_now()
            if found.holds:
                self.steps = int(found.t_min)
        return self

    def explainer(self, inputs: Inputs) -> Explainer:
        """Return the function that explains one output."""
        return ThresholdExplainer(inputs, self)

    def guarantee(self) -> tuple[bool, str]:
        """Return whether the outputs are exact, and what is."""
        try:
            self.certificate.require()
        except CertificateError as error:
            return False, str(error)
        low, high = 0.5 - self.delta, 0.5 + self.delta
        proved = f"above one half is the closure, proved for all inputs outside ({low:g}, {high:g})"
        return True, proved

    def covers(self, layer: Layer, facts: Tensor) -> Tensor:
        """Return which examples have all facts outside the tolerance around one half, (B,).

        No example is covered once the parameters have changed so that nothing is proved.
        """
        values = torch.sigmoid(facts.double()) if layer.from_logits else facts.double()
        return ((values - 0.5).abs() >= self.delta).all(1) & self.guarantee()[0]

    def forward(
        self, facts: Tensor, temperature: Tensor, *, hard: bool, from_logits: bool, logits: bool
    ) -> Tensor:
        """Return the outputs (B, O) of the inputs (B, I), both as values or as log-odds."""
        wide = facts.to(torch.promote_types(facts.dtype, torch.float32))
        odds = (self.factor if hard else self._factor) * (wide if from_logits else log_odds(wide))
        # In the dtype of the operator, which is that of the certificate.
        state = self._filled(self.start, torch.sigmoid(odds).to(self.model.dtype))
        model = self.model if hard else self.annealed
        found: Tensor
        if logits and self._program.definite:
            # The state may round to 0 or 1, and its logarithms would have no slope.
            known = self._filled(torch.where(self.start > 0, CERTAIN, -HELD), odds)
            found = model._log_odds(state, self.steps, known).index_select(1, self.read)
            return finite_log_odds(found.to(facts.dtype))
        found = model(state, self.steps).index_select(1, self.read)
        if logits:
            return log_odds(found).to(facts.dtype)
        rounded = found.to(facts.dtype)
        if rounded.dtype == found.dtype:
            return rounded
        # What is above one half in the dtype of the operator stays so in that of the inputs.
        return _above_half(rounded, found > 0.5)

    def _filled(self, start: Tensor, given: Tensor) -> Tensor:
        """Return a row for each example: `start` for all atoms, and what is given for the inputs."""
        rows = start.to(given.dtype).repeat(given.shape[0], 1)
        return rows.index_copy(1, self.fed, given)
