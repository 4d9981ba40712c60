"""The literals of a table, and sums over the rows in which they hold.

Each column of a table is coded: a cell becomes a small number, its bin. A literal is true in some
bins of one column, so sums over the rows of every literal follow from one histogram per column.
That takes one byte a cell, and weights cost nothing more than counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma.program.compilation import Cells, compile_loop, processors, share_parts
from latentgamma.program.conditions import Condition
from latentgamma.program.facts import Mask
from latentgamma.program.names import quote

if TYPE_CHECKING:
    from latentgamma.learning.columns import Refiner

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.int64]
#: The literals of a rule, as sorted indices.
Body: TypeAlias = tuple[int, ...]

#: Bins of one column.
MOST_BINS = 64
#: Literals beyond which pairs are not scored all at once.
_MOST_IN_PAIRS = 2500
#: Cells of joint histograms that scoring all pairs may visit.
_PAIR_COST = 1.5e7


class Literal(NamedTuple):
    """What a literal says.

    Attributes:
        name: the name of its atom: a column that is true or false, or a condition.
        negated: whether the literal is that the atom does not hold.
        condition: what computes the atom from a column; None for a column that is true or false.
    """

    name: str
    negated: bool = False
    condition: Condition | None = None

    @property
    def column(self) -> str:
        """The column that it is about."""
        return self.name if self.condition is None else self.condition.column

    def __str__(self) -> str:
        return f"not {quote(self.name)}" if self.negated else quote(self.name)


@dataclass
class Literals:
    """The columns of a table as bins, and the literals over them.

    Attributes:
        codes: the bin of each cell. (n, d)
        column: the column of each literal. (m,)
        inside: whether a literal holds in a bin of its column. (m, bins)
        bits: the description length of each literal: which column, and which of its literals. (m,)
        names: what each literal says.
        finer: proposes literals that the bins cannot tell apart.
        extra: the rows and the bits of those literals, which are numbered from m on.
    """

    codes: npt.NDArray[np.uint8]
    column: npt.NDArray[np.int64]
    inside: Mask
    bits: Floats
    names: list[Literal] = field(default_factory=list)
    finer: Refiner | None = None
    extra: dict[int, tuple[Mask, float]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.codes)

    @property
    def m(self) -> int:
        """The number of literals that are searched."""
        return len(self.column)

    def part(self, rows: Rows) -> Literals:
        """Return some rows of the table, with the literals that are searched."""
        return Literals(self.codes[rows], self.column, self.inside, self.bits, self.names[: self.m])

    def cost(self, literal: int) -> float:
        """Return the bits of a literal."""
        return self.extra[literal][1] if literal in self.extra else float(self.bits[literal])

    def add(self, literal: Literal, rows: Mask, bits: float) -> int:
        """Return the number of a literal beyond those that are searched."""
        if literal in self.names:
            return self.names.index(literal)
        self.names.append(literal)
        self.extra[len(self.names) - 1] = rows, bits
        return len(self.names) - 1

    def add_set(self, literals: Sequence[int], bits: float) -> int:
        """Return the number of the literal that a column has one of several categories."""
        conditions = [one for j in literals if (one := self.names[j].condition) is not None]
        values: Any = sorted(one.value for one in conditions)
        condition = Condition(conditions[0].column, "in", tuple(values))
        rows = np.logical_or.reduce([self.holds(j) for j in literals])
        return self.add(Literal(condition.name, False, condition), rows, bits)

    @cached_property
    def categories(self) -> list[Rows]:
        """The literals `=` of each column with three or more of them."""
        found: dict[int, list[int]] = {}
        for j, literal in enumerate(self.names[: self.m]):
            if literal.condition is not None and literal.condition.op == "=":
                found.setdefault(int(self.column[j]), []).append(j)
        return [np.array(values) for values in found.values() if len(values) > 2]

    def holds(self, literal: int) -> Mask:
        """Return the rows in which a literal holds. (n,)."""
        if literal in self.extra:
            return self.extra[literal][0]
        held: Mask = self.inside[literal][self.codes[:, self.column[literal]]]
        return held

    def covered(self, body: Sequence[int]) -> Mask:
        """Return the rows in which all literals of a body hold. (n,)."""
        rows = np.ones(self.n, np.bool_)
        for literal in body:
            rows &= self.holds(literal)
        return rows

    def sums(self, subsets: Sequence[Rows], weights: Floats) -> Floats:
        """Return the sums of two weights over the rows of each subset in which a literal holds.

        Args:
            subsets: rows, as indices.
            weights: two numbers for each row. (n, 2)

        Returns:
            The sums. (subsets, m, 2)
        """
        found = np.zeros((len(subsets), self.m, 2))
        if not self.m or not subsets:
            return found
        offsets = np.cumsum([0, *map(len, subsets)])
        rows = np.concatenate(subsets) if len(subsets) > 1 else subsets[0]
        loop = compile_loop(_sums)

        def part(first: int, last: int) -> None:
            if first < last:
                loop(
                    self.codes, rows, offsets, weights, self.column, self.inside,
                    first, last, found,
                )  # fmt: skip

        threads = processors() if len(rows) * self.codes.shape[1] > 1e6 else 1
        share_parts(part, len(subsets), threads)
        return found

    @property
    def rows_for_pairs(self) -> int:
        """The number of rows on which all pairs of literals can be scored."""
        return int(_PAIR_COST / max(1, self.codes.shape[1] ** 2 / 2)) * (self.m <= _MOST_IN_PAIRS)

    def pairs(self, rows: Rows, weights: Floats, least: float) -> tuple[Rows, Rows, Floats]:
        """Return pairs of literals, and the sums of two weights over the rows in which both hold.

        Pairs are of different columns, cover rows of weight `least`, and fewer than each literal.

        Returns:
            The first literals, the second ones, and the sums. (p,), (p,), (p, 2)
        """
        found = np.zeros((self.m, self.m, 2))
        d = self.codes.shape[1]
        first = np.searchsorted(self.column, np.arange(d + 1))
        loop = compile_loop(_pair_sums)
        codes, all_weights = np.ascontiguousarray(self.codes[rows].T), weights
        weights = weights[rows]

        def part(start: int, stop: int) -> None:
            loop(codes, weights, first, self.inside, start, stop, found)

        share_parts(part, d, processors() if len(rows) * d * d > 1e6 else 1)
        alone = self.sums([rows], all_weights)[0].sum(1)
        places = np.empty((2, self.m * (self.m - 1) // 2), np.int32)
        count = compile_loop(_usable_pairs)(found, alone, least, places[0], places[1])
        one, two = places[:, :count].astype(np.int64)
        return one, two, found[one, two]


def _sums(
    codes: Cells,
    rows: Cells,
    offsets: Cells,
    weights: Cells,
    column: Cells,
    inside: Cells,
    start: int,
    stop: int,
    found: Cells,
) -> None:
    """Fill in the sums of the subsets from `start` to `stop`."""
    d, bins = codes.shape[1], inside.shape[1]
    histogram = np.empty((d, bins, 2))
    for subset in range(start, stop):
        histogram[:] = 0.0
        for place in range(offsets[subset], offsets[subset + 1]):
            row = rows[place]
            one, two = weights[row, 0], weights[row, 1]
            for c in range(d):
                code = codes[row, c]
                histogram[c, code, 0] += one
                histogram[c, code, 1] += two
        for j in range(len(column)):
            one, two = 0.0, 0.0
            for code in range(bins):
                if inside[j, code]:
                    one += histogram[column[j], code, 0]
                    two += histogram[column[j], code, 1]
            found[subset, j, 0], found[subset, j, 1] = one, two


def _pair_sums(
    codes: Cells, weights: Cells, first: Cells, inside: Cells, start: int, stop: int, found: Cells
) -> None:
    """Fill in the sums of pairs whose first literal is of the columns from `start` to `stop`."""
    d, n = codes.shape
    bins = inside.shape[1]
    joint = np.empty((bins, bins, 2))
    half = np.empty((bins, 2))
    for part in range(start, stop):
        # Early columns have more pairs than late ones: each part gets some of both.
        c = part // 2 if part % 2 == 0 else d - 1 - part // 2
        for other in range(c + 1, d):
            if first[c] == first[c + 1] or first[other] == first[other + 1]:
                continue
            joint[:] = 0.0
            for row in range(n):
                joint[codes[c, row], codes[other, row], 0] += weights[row, 0]
                joint[codes[c, row], codes[other, row], 1] += weights[row, 1]
            for i in range(first[c], first[c + 1]):
                half[:] = 0.0
                for x in range(bins):
                    if inside[i, x]:
                        for y in range(bins):
                            half[y, 0] += joint[x, y, 0]
                            half[y, 1] += joint[x, y, 1]
                for j in range(first[other], first[other + 1]):
                    one, two = 0.0, 0.0
                    for y in range(bins):
                        if inside[j, y]:
                            one += half[y, 0]
                            two += half[y, 1]
                    found[i, j, 0], found[i, j, 1] = one, two


def _usable_pairs(
    sums: Cells, alone: Cells, least: float, first_of: Cells, second_of: Cells
) -> int:
    """Fill in the pairs that cover enough rows and fewer than each literal; return their number."""
    count = 0
    for i in range(len(alone)):
        for j in range(i + 1, len(alone)):
            cover = sums[i, j, 0] + sums[i, j, 1]
            if cover >= least and cover < min(alone[i], alone[j]) - 1e-9:
                first_of[count], second_of[count] = i, j
                count += 1
    return count


def grouped(groups: npt.NDArray[Any], weights: Floats, count: int) -> Floats:
    """Return the sums of weights over the rows of each group. (count, 2).

    >>> grouped(np.array([0, 1, 0]), np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), 2)
    array([[2., 1.],
           [0., 2.]])
    """
    return np.stack([np.bincount(groups, w, count).astype(float) for w in weights.T], axis=1)


def threshold_gains(
    values: npt.NDArray[Any], gains: Floats, upper: bool
) -> tuple[npt.NDArray[Any], Floats]:
    """Return the different values, and what the rows inside gain for each threshold.

    Threshold k is above the k lowest of the different values, and not above the others.

    >>> threshold_gains(np.array([3.0, 1.0, 2.0]), np.array([-1.0, 1.0, 1.0]), True)
    (array([1., 2., 3.]), array([0., 1., 2., 1.]))

    Args:
        values: the value of each row. (n,)
        gains: what each row gains by being inside. (n,)
        upper: whether the rows below the threshold are inside.
    """
    different, places = np.unique(values, return_inverse=True)
    below = np.concatenate([[0.0], np.cumsum(np.bincount(places, gains, len(different)))])
    return different, below if upper else below[-1] - below


def flat_top(gains: Floats, tolerance: float) -> tuple[int, int]:
    """Return the first and the last index around the largest gain with about as much.

    >>> flat_top(np.array([5.0, 0.0, 8.0, 9.0, 8.5, 2.0]), 1.0)
    (2, 4)
    """
    first = last = int(gains.argmax())
    least = gains[first] - tolerance
    while first > 0 and gains[first - 1] >= least:
        first -= 1
    while last + 1 < len(gains) and gains[last + 1] >= least:
        last += 1
    return first, last


# ---- Description lengths, in bits

_LOG_2 = math.log(2.0)


def label_bits(a: float, b: float) -> float:
    """Return the bits for the labels of a group with `a` positives and `b` negatives.

    This is the code of Krichevsky and Trofimov (1981): no rate has to be stated.

    >>> round(label_bits(1, 0), 6), label_bits(50, 0) < 4.7
    (1.0, True)
    """
    nats = math.lgamma(a + b + 1) - math.lgamma(a + 0.5) - math.lgamma(b + 0.5)
    return (nats + math.log(math.pi)) / _LOG_2


def total_label_bits(groups: Floats) -> Floats:
    """Return the bits for the labels of several groups together.

    Args:
        groups: positives and negatives of each group. (…, groups, 2)
    """
    flat = np.ascontiguousarray(groups.reshape(-1, *groups.shape[-2:]))
    bits = np.empty(len(flat))
    compile_loop(_total_label_bits)(flat, bits)
    return bits.reshape(groups.shape[:-2])


def _total_label_bits(groups: Cells, bits: Cells) -> None:
    for i in range(len(groups)):
        nats = 0.0
        for g in range(groups.shape[1]):
            a, b = max(groups[i, g, 0], 0.0), max(groups[i, g, 1], 0.0)
            nats += math.lgamma(a + b + 1) - math.lgamma(a + 0.5) - math.lgamma(b + 0.5)
            nats += math.log(math.pi)
        bits[i] = nats / math.log(2.0)


def split_gains(inside: Floats, total: tuple[float, float]) -> Floats:
    """Return the bits saved by coding the labels of groups apart from the rest.

    Args:
        inside: positives and negatives of each group. (…, 2)
        total: positives and negatives of all rows.
    """
    flat = np.ascontiguousarray(inside).reshape(-1, 2)
    A, B = float(total[0]), float(total[1])
    whole = len(flat) > 1000 and A.is_integer() and B.is_integer() and bool((flat % 1 == 0).all())
    halves, factorials = _log_gammas(1 << int(A + B + 1).bit_length()) if whole else _NO_TABLES
    gains = np.empty(len(flat))
    compile_loop(_split_gains)(flat, A, B, halves, factorials, gains)
    return gains.reshape(inside.shape[:-1])


_NO_TABLES = np.empty(0), np.empty(0)


@lru_cache(maxsize=4)
def _log_gammas(size: int) -> tuple[Floats, Floats]:
    """Return ln Γ(k + ½) and ln Γ(k + 1) for k from 0 on."""
    k = np.arange(1, size)
    halves = np.concatenate([[0.0], np.cumsum(np.log(k - 0.5))]) + 0.5 * math.log(math.pi)
    return halves, np.concatenate([[0.0], np.cumsum(np.log(k))])


def _split_gains(
    inside: Cells, A: float, B: float, halves: Cells, factorials: Cells, gains: Cells
) -> None:
    shared = math.lgamma(A + B + 1) - math.lgamma(A + 0.5) - math.lgamma(B + 0.5)
    shared -= math.log(math.pi)  # there are two groups, and each has this term
    for i in range(len(inside)):
        a, b = inside[i, 0], inside[i, 1]
        rest_a, rest_b = max(A - a, 0.0), max(B - b, 0.0)
        if len(halves):
            apart = factorials[int(a + b)] - halves[int(a)] - halves[int(b)]
            apart += factorials[int(rest_a + rest_b)] - halves[int(rest_a)] - halves[int(rest_b)]
        else:
            apart = math.lgamma(a + b + 1) - math.lgamma(a + 0.5) - math.lgamma(b + 0.5)
            apart += math.lgamma(rest_a + rest_b + 1)
            apart -= math.lgamma(rest_a + 0.5) + math.lgamma(rest_b + 0.5)
        gains[i] = (shared - apart) / math.log(2.0)


def integer_bits(k: int) -> float:
    """Return the bits of Rissanen's (1983) universal code for whole numbers from 1 on.

    >>> round(integer_bits(1), 3), round(integer_bits(2), 3)
    (1.519, 2.519)
    """
    bits, rest = math.log2(2.865064), math.log2(k)
    while rest > 0:
        bits += rest
        rest = math.log2(rest)
    return bits


def body_bits(bits: Sequence[float]) -> float:
    """Return the bits for a body whose literals take these bits.

    The number of literals comes first, where 0 ends the list; their order says nothing.
    """
    k = len(bits)
    return integer_bits(k + 1) + sum(bits) - math.log2(math.factorial(k))
