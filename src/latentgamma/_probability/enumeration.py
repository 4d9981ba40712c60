"""Exact probabilities by enumerating the worlds of the variables that an output depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latentgamma._logic.closures import closures
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Program

# Worlds that are closed together.
_CHUNK = 1 << 16
# The logarithm of a weight of zero: finite, so that differences of it exist.
_LEAST_LOG = -1e30


@dataclass(frozen=True, eq=False)
class WorldTable:
    """Which outputs hold in which world of some variables.

    `places[v]` are the places of a variable's values among all input atoms; an independent fact
    has one, and its second value is that it is false. `holds` has one row per world, in the
    order of `itertools.product`, and one column per output.
    """

    places: tuple[tuple[int, ...], ...]
    holds: Tensor  # (worlds, outputs), float64 zeros and ones

    def complement(self) -> WorldTable:
        """Return the table of the negations of the outputs."""
        return WorldTable(self.places, 1 - self.holds)

    def probabilities(self, inputs: Tensor, complements: Tensor | None = None) -> Tensor:
        """Return the probability of each output, shape (B, outputs), in float64.

        Args:
            inputs: Probabilities of all input atoms, shape (B, inputs).
            complements: One minus these, where it is known to more digits.
        """
        weight = inputs.new_ones(len(inputs), 1, dtype=torch.float64)  # (B, worlds so far)
        for places in self.places:
            value = inputs[:, list(places)].double()
            if len(places) == 1:
                none = 1 - value if complements is None else complements[:, list(places)]
                value = torch.cat((value, none), 1)
            weight = (weight[:, :, None] * value[:, None, :]).flatten(1)
        return weight @ self.holds.to(inputs.device)

    def log_probabilities(self, log_inputs: Tensor, log_complements: Tensor) -> Tensor:
        """Return the log-probability of each output, shape (B, outputs), in float64.

        Args:
            log_inputs: Log-probabilities of all input atoms, shape (B, inputs).
            log_complements: The logarithm of one minus their probabilities.
        """
        logs = log_inputs.new_zeros(len(log_inputs), 1, dtype=torch.float64)  # (B, worlds so far)
        for places in self.places:
            value = log_inputs[:, list(places)].double()
            if len(places) == 1:
                value = torch.cat((value, log_complements[:, list(places)].double()), 1)
            logs = (logs[:, :, None] + value[:, None, :]).flatten(1)
        holds = self.holds.to(logs.device) > 0
        columns = [logs[:, column].clamp(min=_LEAST_LOG) for column in holds.unbind(1)]
        impossible = logs.new_full((len(logs),), -torch.inf)
        return torch.stack(
            [column.logsumexp(1) if column.shape[1] else impossible for column in columns], 1
        )


def world_table(
    program: Program,
    variables: Variables,
    used: Sequence[int],
    outputs: Sequence[int],
    true: Sequence[int] = (),
) -> WorldTable:
    """Return the table of the outputs over the worlds of the variables in `used`.

    Args:
        program: The program.
        variables: Its random variables.
        used: The variables that the outputs depend on.
        outputs: The atoms to read.
        true: Atoms that are true in every world.
    """
    start = {v: v for v in range(len(variables.facts))}
    place = len(variables.facts)
    for v, group in enumerate(variables.groups, len(variables.facts)):
        start[v] = place
        place += len(group)
    sizes = [variables.sizes[v] for v in used]
    worlds = int(np.prod(sizes, dtype=np.int64)) if sizes else 1
    holds = np.empty((worlds, len(outputs)), np.bool_)
    columns = np.asarray(outputs, np.int64)
    for first in range(0, worlds, _CHUNK):
        index = np.arange(first, min(first + _CHUNK, worlds))
        facts = np.zeros((len(index), program.M), np.bool_)
        facts[:, list(true)] = True
        rest = index
        for v, size in zip(reversed(used), reversed(sizes), strict=True):
            rest, value = np.divmod(rest, size)
            if v < len(variables.facts):
                facts[value == 0, variables.facts[v]] = True
            else:
                atoms = np.asarray(variables.groups[v - len(variables.facts)])
                facts[np.arange(len(index)), atoms[value]] = True
        holds[index] = closures(program, facts)[:, columns]
    places = tuple(
        tuple(range(start[v], start[v] + (1 if v < len(variables.facts) else variables.sizes[v])))
        for v in used
    )
    return WorldTable(places, torch.from_numpy(holds).double())
