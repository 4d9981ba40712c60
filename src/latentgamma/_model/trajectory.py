"""What a run leaves: every state, and what can be read off them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from latentgamma._display import Display, Displayed
from latentgamma._errors import ModelError
from latentgamma._html import caption, heat_table, number
from latentgamma._program.program import Program

#: A notebook shows this many atoms and steps.
_SHOWN_ROWS, _SHOWN_STEPS = 30, 15


@dataclass(frozen=True, eq=False)
class Trajectory(Displayed):
    """Every state of a run, the first one included.

    `states` has shape (T + 1, …, M).

    >>> import latentgamma as lg
    >>> model = lg.oracle(lg.parse("bird :- penguin. animal :- bird."))
    >>> run = model.iterate(model.state("penguin"), 2)
    >>> run.crossing  # bird, penguin, animal
    tensor([1, 0, 2])
    """

    states: Tensor
    program: Program | None = None

    @property
    def steps(self) -> int:
        """T, the number of applications of the operator."""
        return len(self.states) - 1

    @property
    def final(self) -> Tensor:
        """The state after the last step. (…, M)."""
        return self.states[-1]

    @property
    def support(self) -> Tensor:
        """Which atoms are above one half, at every step. (T + 1, …, M)."""
        return self.states > 0.5

    @property
    def crossing(self) -> Tensor:
        """The first step at which each atom is above one half, −1 where it never is. (…, M)."""
        above = self.support
        return torch.where(above.any(0), above.to(torch.int64).argmax(0), -1)

    def names(self, step: int = -1) -> frozenset[str]:
        """The names of the atoms above one half after a step, for a single trajectory.

        Args:
            step: the number of the step, from 0 for the first state to T; by default the last one.

        Returns:
            A set of names.

        Raises:
            ModelError: the model that was run has no program.
            FactsError: this is the trajectory of a batch.
        """
        if self.program is None:
            raise ModelError("this trajectory belongs to a model without a program: no names")
        return self.program.names(self.states[step].detach().double().cpu().numpy())

    def _shown(self) -> tuple[str, list[str], list[tuple[str, list[float]]]]:
        """A title, some steps, and the values of some atoms after each of them."""
        crossing, steps = self.crossing, self.steps
        order = torch.where(crossing < 0, steps + 1, crossing).argsort(stable=True)[:_SHOWN_ROWS]
        every = max(1, -(-steps // _SHOWN_STEPS))
        times = sorted({*range(0, steps, every), steps})
        values = self.states.detach().double().cpu()[times][:, order.cpu()].T.tolist()
        names = self.program.atoms if self.program else [f"a{i}" for i in range(len(crossing))]
        rows = [(names[i], row) for i, row in zip(order.tolist(), values, strict=True)]
        title = (
            f"{(crossing >= 0).sum():,} of {len(crossing):,} atoms above ½ within {steps:,} steps"
        )
        return title, [str(t) for t in times], rows

    def _display(self) -> Display:
        if self.states.ndim != 2:
            return Display(f"a trajectory of shape {tuple(self.states.shape)}")
        title, times, values = self._shown()
        rows = [(name, *map(number, row)) for name, row in values]
        return Display(title, columns=("", *times), rows=rows, right=1)

    def _repr_html_(self) -> str:
        if self.states.ndim != 2:
            return super()._repr_html_()
        title, times, values = self._shown()
        return caption(title) + heat_table(times, values)

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.states)

    def __getitem__(self, step: int) -> Tensor:
        return self.states[step]
