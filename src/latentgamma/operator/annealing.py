"""The schedule that turns soft rules into sharp ones while they are trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from latentgamma._arguments import real_number, whole_number, wrong
from latentgamma.operator.model import LatentGamma, require_definite_model

#: The fraction of the steps after which undecided weights are penalised.
_DECISION_START = 0.6


class AnnealingStep(NamedTuple):
    """The settings of one training step."""

    sharpness: float  # τ
    gate: float  # β
    sparsity: float  # the penalty on Σu
    decision: float  # the penalty on Σu(1 − u)


@dataclass(frozen=True)
class Homotopy:
    """A schedule from soft rows to sharp ones, for `fit` or for a training loop of your own.

    Sharpness and gate grow geometrically from the first to the second of their two values. In a
    loop of your own, `homotopy.tune(model, step)` sets them before each step.

    Args:
        steps: the number of training steps.
        sharpness: τ at the first and at the last step.
        gate: β at the first and at the last step.
        sparsity: the penalty on the sum of the body weights.
        decision: the penalty on weights between 0 and 1, in the last 40% of the steps.

    Raises:
        ArgumentError: there is no step, or a value is out of range.

    >>> homotopy = Homotopy(steps=100)
    >>> homotopy.at(0).sharpness, homotopy.at(99).sharpness
    (2.25, 9.0)
    """

    steps: int = 250
    sharpness: tuple[float, float] = (2.25, 9.0)
    gate: tuple[float, float] = (1.0, 5.0)
    sparsity: float = 0.02
    decision: float = 0.05

    def __post_init__(self) -> None:
        whole_number("steps", self.steps, 1)
        for name in ("sparsity", "decision"):
            real_number(
                name, getattr(self, name), "a number from 0 on", lambda x: 0 <= x < math.inf
            )
        _check_pair("sharpness", self.sharpness, "two numbers above 0", lambda x: x > 0)
        _check_pair("gate", self.gate, "two numbers from 1 on", lambda x: x >= 1)

    def at(self, step: int) -> AnnealingStep:
        """Return the settings of one step.

        Args:
            step: the number of the step, from 0 on.

        Returns:
            The sharpness, the gate and the two penalties; after the last step those of the last.

        Raises:
            ArgumentError: this is not the number of a step.
        """
        progress = min(1.0, whole_number("step", step) / max(1, self.steps - 1))
        (s0, s1), (g0, g1) = self.sharpness, self.gate
        return AnnealingStep(
            s0 * (s1 / s0) ** progress,
            g0 * (g1 / g0) ** progress,
            self.sparsity,
            self.decision if progress > _DECISION_START else 0.0,
        )

    def tune(self, model: LatentGamma, step: int, *, tie: bool = False) -> AnnealingStep:
        """Write the settings of a step into a model, and return them.

        Args:
            model: the model in training, of a definite program.
            step: the number of the step, from 0 on.
            tie: whether to set each threshold to its row's body sum less one half, so that a row
                stays a conjunction.

        Returns:
            The settings, as in `at`.

        Raises:
            ModelError: this is a model of a program with negation.
        """
        require_definite_model(model, "tune")
        settings = self.at(step)
        with torch.no_grad():
            model.sharpness_raw.fill_(_softplus_inverse(settings.sharpness))
            model.gate_raw.fill_(_softplus_inverse(max(settings.gate - 1.0, 1e-3)))
            if tie:
                model.threshold.copy_(model.step_parameters().body_total - 0.5)
        return settings


def _softplus_inverse(value: float) -> float:
    return value + math.log(-math.expm1(-value))


def _check_pair(name: str, value: Any, expected: str, accept: Callable[[float], bool]) -> None:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise wrong(name, expected, value)
    for number in value:
        real_number(name, number, expected, accept)
