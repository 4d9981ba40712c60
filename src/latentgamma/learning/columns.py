"""Columns of ordinary tables, and the literals that rules about them may use.

Numbers get at most twelve thresholds, at quantiles, each moved to a short decimal nearby; dates the
same; categories get `=` and `!=`; columns that are true or false are atoms; where values are
missing, that can be a literal. No label is looked at, so the same literals serve every fold of a
cross-validation.
"""

from __future__ import annotations

import datetime
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt

from latentgamma._text import quantity
from latentgamma.decide.columns import read_number
from latentgamma.errors import DataError
from latentgamma.learning.data import (
    check_columns,
    is_frame,
    read_cells,
)
from latentgamma.learning.literals import (
    MOST_BINS,
    Floats,
    Literal,
    Literals,
    grouped,
    split_gains,
)
from latentgamma.program.conditions import (
    COMPARE,
    MISSING,
    Condition,
    column_array,
    column_value,
    date_texts,
    is_interval,
    is_missing,
)
from latentgamma.program.facts import Mask
from latentgamma.program.names import is_computed, time_text

Kind: TypeAlias = OneOf["number", "boolean", "category", "date", "missing"]

#: Thresholds of a numeric column, and those that a threshold counts for that has moved.
_CUTS = 12
_FINE_CUTS = 63
#: Rows that quantiles are taken from.
_MOST_RANKED = 200_000
#: How far a threshold may move to a shorter decimal, in steps between quantiles.
_LEEWAY = 0.25
#: Values of a category that conditions name; each is in at least this many rows.
_MOST_VALUES = 50
_FEWEST_ROWS = 5
#: If fewer of the cells of a column are texts, the others are taken for numbers.
_FEW_TEXTS = 0.1
#: A date: a year with a month, and what may follow.
_DATE = re.compile(r"\d{4}-\d\d(-\d\d(T\d\d:\d\d:\d\d)?)?", re.ASCII)
_WITH_COMMAS = re.compile(r"[-+]?\d+(,\d+)+(\.\d+)?")
_DATE_LENGTHS = (4, 7, 10, 13, 16, 19)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name.
        kind: what it holds. A number is NaN and a text None where it is missing; if all are, its
            kind is "missing", and no rule uses it.
        values: numbers, true and false, or texts. (n,)
        order: the categories in order, if they have one.
        nominal: whether its numbers are names, as in categories of pandas without an order.
        from_numbers: whether its truth values were given as 0 and 1.
    """

    name: str
    kind: Kind
    values: npt.NDArray[Any]
    order: tuple[str, ...] = ()
    nominal: bool = False
    from_numbers: bool = False

    @cached_property
    def categories(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None:
        """The different categories, and which one each cell has that is not missing."""
        if self.kind != "category" and not self.nominal:
            return None
        known = self.values[~self.missing]
        return np.unique(known if self.nominal else known.astype("U"), return_inverse=True)

    @cached_property
    def missing(self) -> Mask:
        """The rows without a value. (n,)."""
        if self.values.dtype.kind == "f":
            return np.asarray(np.isnan(self.values))
        if self.values.dtype.kind == "O":
            return np.fromiter((value is None for value in self.values), np.bool_, len(self.values))
        return np.zeros(len(self.values), np.bool_)

    @cached_property
    def ordered(self) -> npt.NDArray[Any]:
        """Its numbers or dates in a form that can be sorted. (n,)."""
        if self.kind == "number":
            return self.values
        texts = self.values.copy()
        texts[self.missing] = ""
        return texts.astype("U")


# ---- From tables to columns


def read_columns(table: Any, what: str = "X") -> list[Column]:
    """Return the columns of a table.

    Args:
        table: a frame of pandas, polars or pyarrow, columns by name in a dictionary, a matrix, or
            rows.
        what: what messages call it.

    Raises:
        DataError: names are missing or repeated, or a column mixes texts and numbers.
    """
    if isinstance(table, Mapping):
        names, values = list(table), list(table.values())
    elif is_frame(table):
        _, names, values, _ = read_cells(table, what)
    else:
        rows = _matrix(table, what)
        names, values = [f"x{i}" for i in range(rows.shape[1])], list(rows.T)
    texts = ["" if is_missing(name) else str(name) for name in names]
    check_columns(texts, what)
    if not texts:
        raise DataError(f"{what} has no columns")
    columns = [_column(name, one, what) for name, one in zip(texts, values, strict=True)]
    lengths = {len(column.values) for column in columns}
    if len(lengths) > 1:
        raise DataError(f"the columns of {what} have different lengths: {sorted(lengths)}")
    if lengths == {0}:
        raise DataError(f"{what} has no rows: 0 sample(s), while a minimum of 1 is required")
    return columns


def read_file(
    source: Any, *, delimiter: str | None = None, ignore: tuple[str, ...] = ()
) -> list[Column]:
    """Return the columns of a .csv, .tsv or .parquet file.

    A column of text cells holds numbers if all its cells are numbers, truth values if all are true
    or false, dates if all are dates such as 2026-01-31, and else categories. An empty cell, NA, null or ? is a missing value.

    Args:
        source: a path, or an open file of text.
        delimiter: what separates the cells; by default it is read off the first line.
        ignore: columns that are left out.

    Raises:
        DataError: the file cannot be read, or a column of numbers has a text in it.
    """
    table = read_cells(source, delimiter=delimiter, ignore=ignore)
    named = dict(zip(table.names, table.columns, strict=True))
    if not table.lines:
        return read_columns(named, table.source)
    columns = []
    for name, given in named.items():
        cells = np.array([cell.strip() for cell in given], object)
        cells[[cell.lower() in MISSING for cell in cells]] = None
        columns.append(_typed(name, cells, table.lines, table.source))
    return columns


def _typed(name: str, cells: npt.NDArray[Any], lines: Sequence[int], source: str) -> Column:
    """Return a column of text cells: as numbers if all of them are."""
    values = np.full(len(cells), np.nan)
    odd, known = [], 0
    for row, cell in enumerate(cells):
        if cell is None:
            continue
        known += 1
        try:
            values[row] = read_number(cell)
        except ValueError:
            odd.append(row)
    where = f"{source}, column {name!r}"
    if not odd:
        return _numbers(name, values, where)
    if all(_WITH_COMMAS.fullmatch(cells[row]) for row in odd):
        raise DataError(
            f"{source}, line {lines[odd[0]]}, column {name!r}: {cells[odd[0]]!r} has a ','; write "
            f"numbers as 1234.5, or read the file with pandas.read_csv(decimal=',')"
        )
    words = np.array([None if cell is None else cell.lower() for cell in cells], object)
    if {*words} <= {None, "true", "false"}:
        return _objects(name, np.array([w and w == "true" for w in words], object), where)
    if len(odd) <= known * _FEW_TEXTS and len(np.unique(values)) > _CUTS:
        raise DataError(
            f"{source}, line {lines[odd[0]]}, column {name!r}: {cells[odd[0]]!r} is a text among "
            f"numbers; leave the cell empty where a value is missing"
        )
    return _texts(name, cells)


def _matrix(table: Any, what: str) -> npt.NDArray[Any]:
    given = table.toarray() if hasattr(table, "toarray") else table
    if isinstance(given, (str, os.PathLike)):
        raise DataError(f"{what} is the path {str(given)!r}; lg.fit(path, label=…) reads a file")
    try:
        rows = column_array(given) if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
        if rows.dtype.kind in "US" and not isinstance(given, np.ndarray):
            rows = np.array(given, object)  # numbers stay numbers beside texts
    except ValueError:
        raise DataError(f"{what} must be rows of equal length") from None
    named = rows.dtype.names or (rows.ndim == 1 and len(rows) and isinstance(rows[0], Mapping))
    if not rows.ndim or named:
        kind = "rows with names" if named else f"of type {type(given).__name__}"
        raise DataError(
            f"{what} is {kind}; give a data frame, such as pandas.DataFrame(rows), columns by name in a "
            f"dictionary, or a matrix"
        )
    if rows.ndim != 2:
        raise DataError(
            f"{what} must have one row per example, shape (n, m), but has {rows.shape}. Reshape "
            f"your data: .reshape(1, -1) is one row, .reshape(-1, 1) one column"
        )
    if not rows.shape[1]:
        raise DataError(f"0 feature(s) (shape={rows.shape}) while a minimum of 1 is required.")
    return rows


def _column(name: str, values: Any, what: str) -> Column:
    where = f"{what}, column {name!r}"
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    if categories is not None and hasattr(categories, "tolist"):  # categories of pandas
        order = tuple(map(str, categories.tolist())) if values.dtype.ordered else ()
        kinds = set(map(_kind, categories.tolist()))
        if (order and "text" in kinds) or None in kinds:  # such as the intervals of pandas.cut
            texts = [None if is_missing(one) else str(one) for one in values.tolist()]
            return Column(name, "category", np.array(texts, object), order)
        if not order and kinds == {"number"}:
            return replace(_column(name, values.to_numpy(), what), nominal=True)
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise DataError(f"{where}: a column is a list of values, one for each row, not {values!r}")
    values = column_array(values)
    kind = values.dtype.kind
    if values.ndim != 1:
        raise DataError(f"{where}: expected one value per row, but found the shape {values.shape}")
    if kind == "c":
        raise DataError(f"{where}: Complex data not supported")
    if kind == "M":
        return Column(name, "date", date_texts(values))
    if kind in "UT":
        return _texts(name, values.astype(object))
    if kind == "O":
        return _objects(name, values, where)
    if kind not in "biuf":
        raise DataError(f"{where}: cannot learn from values of type {values.dtype}")
    return _numbers(name, values, where)


def _numbers(name: str, values: npt.NDArray[Any], where: str) -> Column:
    if values.dtype.kind == "b":
        return Column(name, "boolean", values)
    numbers = values.astype(np.float64)
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise DataError(f"{where}, row {row + 1}: infinity is not a number to compare with (inf)")
    if ((numbers == 0) | (numbers == 1)).all():
        return Column(name, "boolean", numbers == 1, from_numbers=True)
    return Column(name, "missing" if np.isnan(numbers).all() else "number", numbers)


def _objects(name: str, values: npt.NDArray[Any], where: str) -> Column:
    """Return a column of Python objects: all numbers, all texts, all truth values, or all dates."""
    missing = np.fromiter(map(is_missing, values), np.bool_, len(values))
    values = values.copy()
    values[missing] = None  # pandas' NA is neither equal nor unequal to True
    values[:] = [str(value) if is_interval(value) else value for value in values]
    known = values[~missing]
    each = list(map(_kind, known))
    if not each:
        return Column(name, "missing", np.full(len(values), np.nan))
    common = max(filter(None, dict.fromkeys(each)), key=each.count, default=None)
    if odd_ones := [i for i, one in enumerate(each) if one is None or one != common]:
        row = int(np.flatnonzero(~missing)[odd_ones[0]])
        odd = type(values[row]).__name__
        expected = (
            f"all other values are {common}s" if common else "it is neither a number nor a text"
        )
        raise DataError(
            f"{where}, row {row + 1}: {values[row]!r} is of type {odd}, and {expected}; an "
            f"argument must be a string or a number, the same in all rows; leave the cell empty "
            f"where a value is missing"
        )
    if common == "truth value":
        if not missing.any():
            return Column(name, "boolean", values.astype(np.bool_))
        values[~missing] = np.where(known.astype(np.bool_), "true", "false")
    if common == "number":
        numbers = np.full(len(values), np.nan)
        try:
            numbers[~missing] = known.astype(np.float64)
        except OverflowError:
            raise DataError(f"{where}: a number is too large") from None
        return _numbers(name, numbers, where)
    if common == "date":
        values[~missing] = [column_value(name, one, text=True) for one in known]
        return Column(name, "date", values)
    return _texts(name, values)


def _kind(value: object) -> str | None:
    if isinstance(value, (bool, np.bool_)):
        return "truth value"
    if isinstance(value, str):
        return "text"
    if (
        isinstance(value, (int, float, np.integer, np.floating))
        or type(value).__name__ == "Decimal"
    ):
        return "number"
    if isinstance(value, (datetime.date, np.datetime64)):
        return "date"
    return None


def _texts(name: str, texts: npt.NDArray[Any]) -> Column:
    there = np.array([text is not None for text in texts], np.bool_)
    known = [time_text(text) for text in texts[there]]
    if not known or not all(map(_DATE.fullmatch, known)):
        return Column(name, "category", texts)
    try:
        np.array(known, "datetime64[s]")
    except ValueError:  # such as the 30th of February
        return Column(name, "category", texts)
    dates = np.full(len(texts), None, object)
    dates[there] = known
    return Column(name, "date", dates)


def same_columns(columns: Sequence[Column], table: Any, what: str) -> list[Column]:
    """Return the columns of another table in the form of those that were learned from.

    Raises:
        DataError: a column is missing or of another kind.
    """
    given = read_columns(table, what)
    named = is_frame(table) or isinstance(table, Mapping)
    if len(given) != len(columns):
        raise DataError(
            f"{what} has {len(given)} features, but RuleClassifier is expecting {len(columns)} "
            f"features as input"
        )
    for i, (column, one) in enumerate(zip(columns, given, strict=True), 1):
        if named and column.name != one.name:
            raise DataError(
                f"column {i} of {what} is {one.name!r}, but was {column.name!r} in fit: the features "
                f"must have the same names and order"
            )
    return [_as_kind(column, one, what) for column, one in zip(columns, given, strict=True)]


def _as_kind(column: Column, given: Column, what: str) -> Column:
    """Return a column in the form of another: one row of a table does not tell its kind."""
    name, kind, values, texts = column.name, column.kind, given.values, ("category", "date")
    known: npt.NDArray[Any] | None = None
    if given.kind == kind or (kind == "category" and given.kind == "date"):
        known = values
    elif kind == "missing" or given.missing.all():
        known = np.full(len(values), None if kind in texts else np.nan)
        if kind == "boolean":  # missing is not true
            known = np.zeros(len(values), np.bool_)
    elif kind == "number" and given.kind == "boolean":
        known = values.astype(np.float64)
    elif kind == "category" and given.kind == "boolean" and not given.from_numbers:
        known = np.where(values, "true", "false").astype(object)
    elif kind == "boolean" and given.kind == "number":  # other numbers than 0 and 1 in fit
        known = values > 0.5
    elif kind == "boolean":
        words = [None if value is None else value.lower() for value in values]
        if {*words} <= {None, "true", "false"}:
            known = np.array([word == "true" for word in words], np.bool_)
    if known is not None:
        return Column(name, kind, known)
    found = "number" if given.from_numbers else given.kind
    raise DataError(f"{what}, column {name!r}: expected a {kind} as in fit, but found a {found}")


# ---- From columns to literals


@dataclass(frozen=True)
class TableLiterals:
    """The literals of a table.

    Attributes:
        columns: the columns.
        literals: the literals over them.
        notes: what was left out.
        same: for a literal, the others that hold in the same rows.
    """

    columns: Sequence[Column]
    literals: Literals
    notes: tuple[str, ...]
    same: Mapping[int, Sequence[Literal]]


def literals_of(columns: Sequence[Column], weights: Floats) -> TableLiterals:
    """Return the literals of columns.

    Args:
        columns: the columns of a table.
        weights: the weight of each row, as if it were there that often. (n,)
    """
    n, notes = len(weights), []
    codes = np.zeros((n, len(columns)), np.uint8)
    found: list[tuple[int, Literal, Mask]] = []
    for c, column in enumerate(columns):
        codes[:, c], literals, note = _bins(column, weights)
        notes += note
        found += [(c, literal, inside) for literal, inside in literals]
    kept, same = _different_literals(codes, found, weights)
    places, inside = _places_and_bins(codes, kept)
    used, count = np.unique(places, return_counts=True)
    options = dict(zip(used.tolist(), count.tolist(), strict=True))
    bits = np.array([math.log2(len(used)) + math.log2(options[c]) for c in places.tolist()])
    names = [literal for _, literal, _ in kept]
    table = Literals(codes, places, inside, bits, names)
    table.finer = Refiner(table, columns)
    return TableLiterals(columns, table, tuple(notes), same)


_Found: TypeAlias = list[tuple[int, Literal, Mask]]


def _different_literals(
    codes: npt.NDArray[np.uint8], found: _Found, weights: Floats
) -> tuple[_Found, dict[int, list[Literal]]]:
    """Return literals that hold in some rows but not in all, and those that equal one of them.

    Literals are compared by two sums of random numbers over their rows, which are exact.
    """
    places, inside = _places_and_bins(codes, found)
    rows = np.flatnonzero(weights > 0)
    marks = np.random.default_rng(0).integers(1, 1 << 31, (len(codes), 2)).astype(np.float64)
    sums = Literals(codes, places, inside, np.zeros(len(found))).sums([rows], marks)[0]
    every = marks[rows].sum(0).tolist()
    kept: _Found = []
    same: dict[int, list[Literal]] = {}
    first: dict[tuple[float, float], int] = {}
    for one, (a, b) in zip(found, sums.tolist(), strict=True):
        if [a, b] in ([0.0, 0.0], every):
            continue
        if (a, b) in first:
            same.setdefault(first[a, b], []).append(one[1])
        else:
            first[a, b] = len(kept)
            kept.append(one)
    return kept, same


def _places_and_bins(
    codes: npt.NDArray[np.uint8], found: _Found
) -> tuple[npt.NDArray[np.int64], Mask]:
    """Return the column of each literal, and the bins in which it holds. (m,), (m, bins)."""
    inside = np.array([row for _, _, row in found], np.bool_).reshape(-1, MOST_BINS)
    used = np.ascontiguousarray(inside[:, : int(codes.max(initial=0)) + 1])
    return np.array([c for c, _, _ in found], np.int64), used


_Bins: TypeAlias = tuple[npt.NDArray[np.uint8], list[tuple[Literal, Mask]], list[str]]


def _bins(column: Column, weights: Floats) -> _Bins:
    """Return the bin of each cell, the literals with the bins in which they hold, and notes."""
    if column.kind == "boolean":
        true = Literal(column.name)
        if is_computed(column.name):
            true = _literal(column.name, *((">", 0.5) if column.from_numbers else ("=", "true")))
        pair = [(true._replace(negated=negated), _bin_set([int(not negated)]))
                for negated in (False, True)]  # fmt: skip
        return column.values.astype(np.uint8), pair, []
    missing, notes = column.missing, []
    codes = np.zeros(len(missing), np.uint8)
    literals: list[tuple[Literal, Mask]] = []
    if column.categories is not None:
        values, places = column.categories
        size = np.bincount(places, weights[~missing], len(values))
        kept = np.argsort(-size, kind="stable")[:_MOST_VALUES]
        kept = kept[(size[kept] >= _FEWEST_ROWS) | (len(values) <= 2)]
        code = np.full(len(values), len(kept), np.uint8)
        code[kept] = np.arange(len(kept))
        codes[~missing] = code[places]
        bins = len(kept) + 1
        if len(kept) < len(values) and len(values) > _MOST_VALUES:
            used = f"rules name only the {len(kept)} of them that are in most rows"
            if not len(kept):
                used = f"no rule uses it, since none is in {_FEWEST_ROWS} rows"
            notes.append(
                f"column {column.name!r} has {quantity(len(values), 'category', 'categories')}; "
                + used
                + (" (is it an identifier?)" if len(values) > len(missing) / 2 else "")
            )
        if column.kind == "category" and len(values) > _CUTS:
            others = [text for text in values.tolist() if not _is_number(text)]
            if len(others) < len(values) / 2:
                such = f", beside texts such as {others[0]!r}" if others else ""
                notes.append(
                    f"column {column.name!r} holds numbers as texts{such}; convert it to numbers, with "
                    f"missing values, if rules are to compare them"
                )
        for i, place in enumerate(kept.tolist()):
            value = values[place].item()
            literals.append((_literal(column.name, "=", value), _bin_set([i])))
            if len(values) > 2:
                others = [other for other in range(bins) if other != i]
                literals.append((_literal(column.name, "!=", value), _bin_set(others)))
        there = {values[place].item(): i for i, place in enumerate(kept.tolist())}
        ordered = [value for value in column.order if value in there]
        for cut in range(2, len(ordered) - 1):
            for side in (ordered[:cut], ordered[cut:]):
                bin_set = _bin_set([there[value] for value in side])
                literals.append((_literal(column.name, "in", side), bin_set))
    else:
        if column.kind == "number" and np.nanmax(np.abs(column.values), initial=0) >= 2**53:
            notes.append(
                f"column {column.name!r} has numbers from 2^53 on, which are rounded: is it an "
                f"identifier?"
            )
        cuts = _cuts(column, weights, _CUTS)
        codes[~missing] = _below(column.values[~missing], cuts)
        bins = len(cuts) + 1
        for i, cut in enumerate(cuts):
            literals.append((_literal(column.name, "<", cut), _bin_set(range(i + 1))))
            literals.append((_literal(column.name, ">=", cut), _bin_set(range(i + 1, bins))))
    if missing.any():
        codes[missing] = bins
        name = Condition(column.name, "is missing")
        literals.append((Literal(name.name, False, name), _bin_set([bins])))
        literals.append((Literal(name.name, True, name), _bin_set(range(bins))))
    return codes, literals, notes


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _literal(column: str, op: str, value: Any) -> Literal:
    condition = Condition(column, op, value)
    return Literal(condition.name, False, condition)


def _bin_set(bins: Iterable[int]) -> Mask:
    found = np.zeros(MOST_BINS, np.bool_)
    found[list(bins)] = True
    return found


def _below(values: npt.NDArray[Any], cuts: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the number of cuts that each value has reached."""
    if values.dtype.kind == "f":
        return np.searchsorted(np.array(cuts, np.float64), values, side="right")
    return np.searchsorted(np.array(cuts, "U"), values.astype("U"), side="right")


def _cuts(column: Column, weights: Floats, most: int) -> list[Any]:
    """Return thresholds near the quantiles, each as short as it can be written."""
    known = np.flatnonzero(~column.missing & (weights > 0))
    if len(known) > _MOST_RANKED:
        known = known[:: -(-len(known) // _MOST_RANKED)]
    given = column.values[known]
    values, places = np.unique(
        given if column.kind == "number" else given.astype("U"), return_inverse=True
    )
    if len(values) < 2:
        return []
    share = np.cumsum(np.bincount(places, weights[known]))
    share = share / share[-1]
    if len(values) <= most + 1:
        return [between(values[i], values[i + 1]) for i in range(len(values) - 1)]
    cuts = []
    for k in range(1, most + 1):
        low, high = ((k + sign * _LEEWAY) / (most + 1) for sign in (-1, 1))
        first = min(int(np.searchsorted(share, low - 1e-12)), len(values) - 2)
        last = max(min(int(np.searchsorted(share, high - 1e-12)), len(values) - 1), first + 1)
        cut = between(values[first], values[last])
        cuts.append(cut)
    bins = _below(values if column.kind == "number" else values.astype(object), sorted(set(cuts)))
    kept = sorted(set(cuts))
    # Two cuts between the same values are one.
    return [cut for i, cut in enumerate(kept) if ((bins == i).any() and (bins > i).any())]


def between(low: Any, high: Any) -> Any:
    """Return the shortest threshold above `low` and not above `high`.

    >>> between(29_812.0, 31_240.0), between(2.0, 3.0), between(0.1234, 0.1321)
    (30000.0, 3.0, 0.13)
    >>> between("2025-11-03", "2026-02-17")
    '2026'
    """
    if isinstance(low, str):  # a date is after what it begins with
        prefixes = (time_text(str(high)[:length]) for length in _DATE_LENGTHS)
        return next((prefix for prefix in prefixes if prefix > low), str(high))
    low, high = float(low), float(high)
    middle = low / 2 + high / 2
    power = math.floor(math.log10(max(abs(low), abs(high)))) + 1
    for digits in range(min(18, power + 323)):  # down to the least number above 0
        near = round(middle / float(f"1e{power - digits}"))
        for k in (near, near + 1, near - 1):
            cut = float(f"{k}e{power - digits}")
            if low < cut <= high:
                return cut
    return high


class Refiner:
    """Thresholds inside a bin, and sets of categories, in place of one literal."""

    def __init__(self, literals: Literals, columns: Sequence[Column]) -> None:
        self.literals, self.columns = literals, {column.name: column for column in columns}
        self.column_bits = math.log2(max(1, len(set(literals.column.tolist()))))
        self.threshold_bits = self.column_bits + math.log2(2 * _FINE_CUTS)

    def order(self, number: int) -> tuple[npt.NDArray[Any], Mask, bool] | None:
        """Return the values that a threshold is compared with, where they are, and if it is an upper one.

        None if the literal has no threshold.
        """
        condition = self.literals.names[number].condition
        if condition is None or condition.op not in ("<", ">="):
            return None
        column = self.columns[condition.column]
        return column.ordered, ~column.missing, condition.op == "<"

    def move(self, number: int, low: Any, high: Any) -> tuple[Literal, Mask]:
        """Return a literal with the shortest threshold above `low` and up to `high`, and its rows."""
        condition = self.literals.names[number].condition
        assert condition is not None
        literal = _literal(condition.column, condition.op, between(low, high))
        return literal, holds(literal, self.columns[condition.column])

    def sets(
        self, number: int, rest: Mask, weights: Floats
    ) -> Iterator[tuple[Literal, Mask, float]]:
        """Yield sets of categories, each with its rows and bits, in place of a literal.

        Those with the highest or the lowest rates are enough.

        Args:
            number: the literal.
            rest: the rows in which the rest of its body holds. (n,)
            weights: the weight of each row as a positive and as a negative. (n, 2)
        """
        condition = self.literals.names[number].condition
        column = self.columns[condition.column] if condition is not None else None
        if column is None or column.categories is None or condition.op == "is missing":  # type: ignore[union-attr]
            return
        values, places = column.categories
        known = np.flatnonzero(~column.missing)
        used = rest[known] & (weights[known].sum(1) > 0)
        counts = grouped(places[used], weights[known[used]], len(values))
        there = counts.sum(1) > 0
        values, counts = values[there], counts[there]
        if not 3 <= len(values) <= _MOST_VALUES:
            return
        total = tuple(weights.sum(0).tolist())
        order = np.argsort(-(counts[:, 0] + 0.5) / (counts.sum(1) + 1), kind="stable")
        for chosen in (order, order[::-1]):
            inside = np.cumsum(counts[chosen], axis=0)[1:-1]  # at least two, and not all
            if not len(inside):
                continue
            sizes = np.arange(2, len(values))
            bits = np.array([math.log2(math.comb(len(values), k)) for k in sizes.tolist()])
            bits += math.log2(len(values))
            size = int(sizes[(split_gains(inside, total) - bits).argmax()])
            literal = _literal(column.name, "in", values[chosen[:size]].tolist())
            yield literal, holds(literal, column), self.column_bits + float(bits[size - 2])


def holds(literal: Literal, column: Column) -> Mask:
    """Return the rows in which a literal about this column holds. (n,)."""
    condition = literal.condition
    if condition is None:
        true = column.values
    elif column.kind == "date" and condition.op in COMPARE:
        true = COMPARE[condition.op](column.ordered, condition.value) & ~column.missing
    elif condition.op == "is missing" or column.categories is None:
        as_numbers = column.kind == "boolean" and condition.is_text is False
        true = condition.mask(column.values.astype(np.float64) if as_numbers else column.values)
    else:  # the condition on each category
        values, places = column.categories
        true = np.zeros(len(column.values), np.bool_)
        true[~column.missing] = condition.mask(values)[places]
    return ~true if literal.negated else np.asarray(true, np.bool_)


def covered(body: Sequence[Literal], columns: Mapping[str, Column], n: int) -> Mask:
    """Return the rows of a table in which all literals hold. (n,)."""
    rows = np.ones(n, np.bool_)
    for literal in body:
        rows &= holds(literal, columns[literal.column])
    return rows
