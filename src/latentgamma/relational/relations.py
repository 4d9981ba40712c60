"""Relations as integer arrays, with the indexes that joins need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = "npt.NDArray[np.int64]"
#: The truth of a row: a known fact, or a tuple that may be true (it has no label).
Truth: TypeAlias = "npt.NDArray[np.uint8]"

FACT, POSSIBLE = 2, 1
#: Tables of keys up to this size are looked up directly, larger ones by binary search.
_DIRECT = 4_000_000


@dataclass(frozen=True)
class Index:
    """The rows of a relation, grouped by the values of some of its arguments.

    Attributes:
        keys: the distinct keys, sorted.
        starts: where the group of each key starts.
        counts: the sizes of the groups.
        values: the other arguments of each row, in the order of the groups.
        truth: of each row, in the order of the groups.
        best: the highest truth in each group.
        direct: the number of the group of each possible key, or -1; None for large tables.
    """

    keys: Ints
    starts: Ints
    counts: Ints
    values: Ints
    truth: Truth
    best: Truth
    direct: npt.NDArray[np.int32] | None

    def groups(self, keys: Ints) -> Ints:
        """Return the number of the group of each key, or -1."""
        if self.direct is not None:
            return self.direct[keys].astype(np.int64)
        if not len(self.keys):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)

    def highest(self, keys: Ints) -> Truth:
        """Return the highest truth of a row with each key; 0 where there is none."""
        found = self.groups(keys)
        if not len(self.keys):
            return np.zeros(len(keys), np.uint8)
        return np.where(found >= 0, self.best[found], 0).astype(np.uint8)


class Relation:
    """A predicate with its rows.

    Args:
        name: the predicate.
        rows: shape (rows, arguments), distinct.
        constants: the number of constants.
        types: the type of each argument.
        truth: of each row; by default every row is a fact.
        bits: the cost of a definition that has to be learned as well.
    """

    def __init__(
        self,
        name: str,
        rows: Ints,
        constants: int,
        types: Sequence[int],
        truth: Truth | None = None,
        bits: float = 0.0,
    ) -> None:
        self.name = name
        self.rows = rows
        self.arity = len(types)
        self.constants = constants
        self.types = tuple(types)
        self.truth = np.full(len(rows), FACT, np.uint8) if truth is None else truth
        self.bits = bits
        self._indexes: dict[tuple[int, ...], Index] = {}

    def index(self, pattern: tuple[int, ...]) -> Index:
        """Return the rows by key: -1 marks an argument of the key, others are new variables.

        Arguments with the same number are the same new variable.
        """
        found = self._indexes.get(pattern)
        if found is None:
            found = self._indexes[pattern] = self._build(pattern)
        return found

    def _build(self, pattern: tuple[int, ...]) -> Index:
        rows, truth = self.rows, self.truth
        first: dict[int, int] = {}
        keep = np.ones(len(rows), bool)
        for place, variable in enumerate(pattern):
            if variable >= 0 and first.setdefault(variable, place) != place:
                keep &= rows[:, place] == rows[:, first[variable]]
        rows, truth = rows[keep], truth[keep]
        bound = [place for place, variable in enumerate(pattern) if variable < 0]
        keys = encode([rows[:, place] for place in bound], self.constants, len(rows))
        order = np.argsort(keys, kind="stable")
        keys, truth = keys[order], truth[order]
        values = rows[order][:, [first[v] for v in sorted(first)]]
        distinct, starts, counts = np.unique(keys, return_index=True, return_counts=True)
        best = np.maximum.reduceat(truth, starts) if len(starts) else truth[:0]
        direct = None
        if self.constants ** len(bound) <= _DIRECT:
            direct = np.full(max(1, self.constants ** len(bound)), -1, np.int32)
            direct[distinct] = np.arange(len(distinct), dtype=np.int32)
        return Index(distinct, starts, counts, values, truth, best, direct)


def encode(columns: Sequence[Ints], constants: int, rows: int) -> Ints:
    """Return one number for the values in each row of some columns."""
    if not len(columns):
        return np.zeros(rows, np.int64)
    code = columns[0].astype(np.int64, copy=True)
    for column in columns[1:]:
        code *= constants
        code += column
    return code


def decode(codes: Ints, constants: int, arity: int) -> Ints:
    """Return the rows of these codes, shape (codes, arity)."""
    rows = np.empty((len(codes), arity), np.int64)
    rest = codes.copy()
    for place in range(arity - 1, -1, -1):
        rest, rows[:, place] = np.divmod(rest, max(1, constants))
    return rows


@dataclass(frozen=True)
class Bindings:
    """The values of variables: one row for each way in which a body can hold.

    Attributes:
        columns: the values of each variable; None where the variable has no value yet.
        truth: the truth of each row.
        example: the example that each row is about.
    """

    columns: tuple[Ints | None, ...]
    truth: Truth
    example: Ints


def _pattern(arguments: Sequence[int], table: Bindings) -> tuple[tuple[int, ...], list[int]]:
    """Return the pattern of a literal for `Relation.index`, and its new variables in order."""
    new: list[int] = []
    pattern = []
    for variable in arguments:
        known = variable < len(table.columns) and table.columns[variable] is not None
        if known:
            pattern.append(-1)
            continue
        if variable not in new:
            new.append(variable)
        pattern.append(new.index(variable))
    return tuple(pattern), new


def _keys(relation: Relation, arguments: Sequence[int], table: Bindings, new: list[int]) -> Ints:
    columns: list[Any] = [table.columns[v] for v in arguments if v not in new]
    return encode(columns, relation.constants, len(table.truth))


def literal_truth(relation: Relation, arguments: Sequence[int], table: Bindings) -> Truth:
    """Return, for each row, the truth of the row together with one more literal."""
    pattern, new = _pattern(arguments, table)
    found = relation.index(pattern).highest(_keys(relation, arguments, table, new))
    return np.minimum(found, table.truth)


def join(
    relation: Relation, arguments: Sequence[int], table: Bindings, most_rows: int
) -> Bindings | None:
    """Return the table with one more literal, or None if it has more than `most_rows` rows."""
    pattern, new = _pattern(arguments, table)
    index = relation.index(pattern)
    group = index.groups(_keys(relation, arguments, table, new))
    hit = np.flatnonzero(group >= 0)
    group = group[hit]
    if not new:
        columns = tuple(c if c is None else c[hit] for c in table.columns)
        truth = np.minimum(table.truth[hit], index.best[group])
        return Bindings(columns, truth, table.example[hit])
    counts = index.counts[group]
    total = int(counts.sum())
    if total > most_rows:
        return None
    source = np.repeat(hit, counts)
    offset = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(index.starts[group], counts) + offset
    size = max(len(table.columns), max(arguments) + 1)
    extended: list[Ints | None] = [None] * size
    for variable, column in enumerate(table.columns):
        if column is not None:
            extended[variable] = column[source]
    for place, variable in enumerate(new):
        extended[variable] = index.values[at, place]
    truth = np.minimum(table.truth[source], index.truth[at])
    return Bindings(tuple(extended), truth, table.example[source])
