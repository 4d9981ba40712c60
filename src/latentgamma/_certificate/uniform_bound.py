"""One bound for all underivable atoms of a large model: the largest share as a function of it.

Rows with the same numbers fire alike, and atoms with at most one rule and the same numbers rise
alike, so each is looked at once. The largest share is tabulated at a few levels; between two of
them the larger one's is a bound, since shares grow with the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._certificate.rounding import Array
from latentgamma._certificate.step_bounds import GateNumbers, Reading

#: Levels of the table.
_LEVELS = 24


class UniformBound:
    """The largest share of all atoms while every underivable one is at most at one level."""

    def __init__(self, reading: Reading, always: npt.NDArray[np.bool_]) -> None:
        program, rows, gates = reading.program, reading.rows, reading.gates
        fields = (rows.slack, rows.sharpness, rows.amplitude, rows.relative, rows.absolute)
        some, row_class = distinct_rows((*fields, reading.least_body))
        self.rounding, self.rows = reading.rounding, rows[some]
        self.least_body = reading.least_body[some]
        kept = self._different_atoms(reading, row_class)
        kept &= ~always
        place = np.cumsum(kept) - 1
        atoms = np.flatnonzero(kept)
        literal = kept[program.head_indices]
        self.head_atom = place[program.head_indices[literal]]
        self.head_class = row_class[reading.head_rule[literal]]
        self.head = reading.head[literal]
        self.stray = reading.stray[atoms]
        self.loose = reading.rounding.evaluation(program.rules_per_head[atoms])
        self.gates = GateNumbers(
            gates.offset[atoms],
            gates.gate,
            gates.bump,
            gates.relative[atoms],
            gates.absolute[atoms],
        )
        steps = np.geomspace(1e-3, 0.5, _LEVELS - 1)
        self.levels = np.concatenate([[0.0], steps])
        self.table = np.full(_LEVELS, np.nan)

    def _different_atoms(
        self, reading: Reading, row_class: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """One of each kind of atoms that have at most one rule, and all others. (M,)."""
        program, gates = reading.program, reading.gates
        simple = np.flatnonzero(program.rules_per_head <= 1)
        own_class, head = np.full(program.M, -1.0), np.zeros(program.M)
        own_class[program.head_indices] = row_class[reading.head_rule]
        head[program.head_indices] = reading.head
        columns = (own_class, head, reading.stray, gates.offset, gates.relative, gates.absolute)
        first, _ = distinct_rows([column[simple] for column in columns])
        kept = program.rules_per_head > 1
        kept[simple[first]] = True
        return kept

    def at(self, level: float) -> float:
        """The largest share at exactly this level."""
        lack = self.least_body * (1.0 - level)
        firing = self.rows.firing_above(lack, self.rounding.evaluation(2), self.rounding)
        sent = firing[self.head_class] * self.head
        received = np.bincount(self.head_atom, sent, len(self.stray)) + self.stray
        evidence = self.gates.evidence_above(received, self.loose, self.rounding)
        return float(self.gates.share_above(evidence, self.rounding).max(initial=0.0))

    def __call__(self, bound: Array) -> Array:
        """The largest share at this level or the next one of the table. (1,)."""
        place = int(np.searchsorted(self.levels, bound[0]))
        if place == len(self.levels):
            return np.full(1, self.at(float(bound[0])))
        if np.isnan(self.table[place]):
            self.table[place] = self.at(float(self.levels[place]))
        return self.table[place : place + 1]


def distinct_rows(columns: Sequence[Array]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The places of rows that differ from all others kept, and which of them each row equals.

    >>> distinct_rows([np.array([1.0, 2.0, 1.0]), np.array([0.0, 0.0, 0.0])])
    (array([1, 0]), array([1, 0, 1]))
    """
    count = len(columns[0])
    key = np.zeros(count, np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column, np.float64).view(np.uint64)
        key = (key ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    # Rows that share a key by accident would be taken for one another.
    if all(np.array_equal(column[first][inverse], column) for column in columns):
        return first, inverse
    return np.arange(count), np.arange(count)
