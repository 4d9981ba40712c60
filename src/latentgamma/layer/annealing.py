"""A temperature that falls while a layer is trained."""

from __future__ import annotations

import math
from typing import Any, final

from torch import nn

from latentgamma._arguments import real_number, whole_number
from latentgamma.errors import ModelError
from latentgamma.layer.layer import Layer


@final
class Annealing:
    """Lowers the temperature of every `Layer` in a module, from `start` to `end` in `steps` steps.

    Call `step()` after each step of the optimiser. The temperature falls by the same factor each
    time, and stays at `end`. In `eval()` a layer is hard whatever its temperature is.

    Args:
        module: a layer, or a module that has some.
        steps: after how many steps the temperature is `end`: usually all steps of the training.
        start: the temperature at first.
        end: the temperature at last; 0 for hard minima and maxima after the last step.

    Raises:
        ModelError: if the module has no layer, or an argument is out of range.

    >>> import latentgamma as lg
    >>> layer = lg.Layer(lg.parse("b :- a."), "a", "b")
    >>> annealing = Annealing(layer, steps=2, start=1.0, end=0.25)
    >>> for _ in range(3):
    ...     annealing.step()
    ...     print(layer.temperature)
    0.5
    0.25
    0.25
    """

    def __init__(
        self, module: nn.Module, steps: int, *, start: float = 1.0, end: float = 0.1
    ) -> None:
        whole_number("steps", steps, 1)
        real_number("start", start, "a temperature above 0", lambda x: 0 < x < math.inf)
        real_number("end", end, f"a temperature from 0 to start={start}", lambda x: 0 <= x <= start)
        self._layers = [part for part in module.modules() if isinstance(part, Layer)]
        if not self._layers:
            raise ModelError(f"there is no Layer in this {type(module).__name__}")
        self.steps, self.start, self.end = steps, start, end
        self.taken = 0
        self._set()

    def step(self) -> None:
        """Lower the temperature by one step."""
        self.taken += 1
        self._set()

    @property
    def temperature(self) -> float:
        """The temperature now."""
        if self.taken >= self.steps:
            return self.end
        # Towards 0 it falls as towards a hundredth of the start, and then to 0 itself.
        last = self.end if self.end > 0 else self.start / 100
        return float(self.start * (last / self.start) ** (self.taken / self.steps))

    def _set(self) -> None:
        for layer in self._layers:
            layer.temperature = self.temperature

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `load_state_dict` restores.

        Returns:
            A dictionary of numbers: the steps taken, all steps, and both temperatures.
        """
        return {"taken": self.taken, "steps": self.steps, "start": self.start, "end": self.end}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of another annealing, and set its temperature.

        Args:
            state: what `state_dict` of the other one returned.
        """
        self.taken, self.steps = int(state["taken"]), int(state["steps"])
        self.start, self.end = float(state["start"]), float(state["end"])
        self._set()

    def __repr__(self) -> str:
        return f"Annealing(step {self.taken} of {self.steps}, temperature {self.temperature:.3g})"
