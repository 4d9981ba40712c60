"""Conditions: atoms whose truth is computed from a column, such as `age < 18`."""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._text import listing, shortened
from latentgamma.errors import DataError, ProgramError
from latentgamma.program.names import (
    OPERATORS,
    Constant,
    Operand,
    condition_text,
    constant_text,
    datetime_text,
    plain_number,
    quote,
    split_condition,
    time_text,
)

#: The function of each comparison with one constant.
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_YEAR = re.compile(r"[0-9]{4}(-|$)")
#: Cells of a text file without a value, in small letters.
MISSING = frozenset(("", "nan", "na", "n/a", "null", "none", "?"))


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with a constant: `age < 18`, `country in {ir, kp}`.

    Its `name` is the name of its atom. A missing value (None, NaN, no such column in a request)
    makes every comparison false, also `!=`; only `is missing` is then true. Texts are compared
    character by character, so that dates in the form 2026-01-31 are in order. True and false count
    as the texts `true` and `false`, a bin of `pandas.cut` as its text, a date or a midnight as the
    text 2026-01-31, and another time as 2026-01-31T08:30:00; a time with a zone is taken as UTC, and parts of a second are left out.
    A text that is a time, such as 2026-01-31 08:30 or 2026-01-31T08:30+02:00, counts as that time.

    >>> condition = Condition.parse("income>=30e3")
    >>> condition, condition.name
    (Condition(column='income', op='>=', value=30000), 'income >= 30000')
    >>> condition.holds(28500), condition.holds(None)
    (False, False)
    >>> condition.mask([28500, 41000, None])
    array([False,  True, False])

    Attributes:
        column: the name of the column.
        op: `=`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `is missing`.
        value: a number or a text; several of them, sorted, after `in`; None after `is missing`.
    """

    column: str
    op: str
    value: Operand = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ProgramError(f"a column's name is a non-empty string, not {self.column!r}")
        if self.op not in OPERATORS:
            raise ProgramError(f"a condition has one of {' '.join(OPERATORS)}, not {self.op!r}")
        object.__setattr__(self, "value", self._checked_value())

    def _checked_value(self) -> Operand:
        if self.op == "is missing":
            if self.value is not None:
                raise ProgramError(f"'is missing' takes no value, not {self.value!r}")
            return None
        if self.op != "in":
            return _constant(self.value)
        if isinstance(self.value, str) or not isinstance(self.value, Iterable):
            raise ProgramError(f"'in' takes several constants, not {self.value!r}")
        values = {_constant(value) for value in self.value}
        if not values or len({isinstance(value, str) for value in values}) > 1:
            raise ProgramError("'in' takes at least one constant, all numbers or all texts")
        return tuple(sorted(values))

    @classmethod
    def parse(cls, name: str) -> Condition | None:
        """Return the condition that a name writes, or None if it is the name of another atom."""
        parts = split_condition(name)
        return None if parts is None else cls(*parts)

    @property
    def name(self) -> str:
        """The name of its atom, as rule text has it."""
        return condition_text(self.column, self.op, self.value)

    @property
    def is_text(self) -> bool | None:
        """Whether it compares texts; None for `is missing`, which takes any column."""
        first = self.value[0] if isinstance(self.value, tuple) else self.value
        return None if first is None else isinstance(first, str)

    @property
    def is_time(self) -> bool:
        """Whether it may matter that a text is a time: a constant begins with a year."""
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        return any(isinstance(one, str) and _YEAR.match(one) for one in values)

    def holds(self, value: object) -> bool:
        """Return whether one value of the column meets it.

        Raises:
            DataError: if a text is given for a number, or a number for a text.
        """
        if is_missing(value):
            return self.op == "is missing"
        if self.op == "is missing":
            return False
        known = column_value(self.column, value, text=bool(self.is_text))
        if self.op == "in":
            return known in self.value  # type: ignore[operator]
        return bool(COMPARE[self.op](known, self.value))

    def mask(self, values: Any) -> npt.NDArray[np.bool_]:
        """Return for each value of a column whether it meets the condition. Shape (N,).

        Args:
            values: an array, a column of a table, or a list.

        Raises:
            DataError: as `holds`; the message names the row.
        """
        return self._mask(_Column(self.column, values))

    def _mask(self, column: _Column) -> npt.NDArray[np.bool_]:
        if self.op == "is missing":
            return column.missing
        texts = column.times if self.is_time else column.texts if self.is_text else None
        known = column.numbers if texts is None else texts
        if self.op == "in":
            found = np.zeros(len(known), np.bool_)
            for value in self.value:  # type: ignore[union-attr]
                found |= known == value
        else:
            found = np.asarray(COMPARE[self.op](known, self.value), np.bool_)
        return found & ~column.missing if column.any_missing else found


def _constant(value: Any) -> Constant:
    if isinstance(value, str):
        return time_text(str(value))
    if is_number(value) and np.isfinite(float(value)):
        return plain_number(value)
    raise ProgramError(f"a column is compared with a finite number or a text, not {value!r}")


def is_number(value: object) -> bool:
    """Return whether a value is a number: of Python or numpy, a `Decimal` or a `Fraction`; no truth value."""
    no_number = (bool, np.bool_, np.timedelta64)
    return isinstance(value, (Real, Decimal)) and not isinstance(value, no_number)


def is_missing(value: object) -> bool:
    """Return whether a value says that there is none: None, NaN, or pandas' NA and NaT."""
    if value is None or isinstance(value, str):
        return value is None
    if isinstance(value, Decimal):
        return value.is_nan()  # a signalling one cannot be compared
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    if type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return is_number(value) and value != value  # noqa: PLR0124 - NaN


def is_interval(value: object) -> bool:
    """Return whether a value is a bin of pandas.cut, which counts as its text: (0, 10]."""
    return type(value).__name__ == "Interval"


def value_text(column: str, value: Any) -> str:
    """Return what a value is, as a proof shows it.

    >>> value_text("age", 17), value_text("country", None)
    ('age is 17', 'country is missing')
    """
    if is_missing(value):
        return f"{quote(column)} is missing"
    if isinstance(value, (bool, np.bool_)):
        return f"{quote(column)} is {'true' if value else 'false'}"
    number = isinstance(value, (int, float))
    if isinstance(value, str) or (number and abs(value) <= sys.float_info.max):
        return f"{quote(column)} is {constant_text(value)}"
    return f"{quote(column)} is {shortened(str(value))}"


def column_value(column: str, value: object, *, text: bool) -> float | str:
    """Return one value that is not missing as a number or as a text.

    Raises:
        DataError: if it is of the other kind.
    """
    if text and isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if text and (isinstance(value, str) or is_interval(value)):
        return time_text(str(value))
    if text and isinstance(value, np.datetime64):
        return str(date_texts(np.array([value]))[0])
    try:
        if text and isinstance(value, datetime):
            return datetime_text(value)
        if text and isinstance(value, date):
            return value.isoformat()
    except OverflowError:  # a time before the year 1 in UTC
        pass
    if is_number(value) and not text:
        try:
            return plain_number(value)  # type: ignore[arg-type]
        except OverflowError:  # hundreds of digits: larger than every constant
            return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    raise wrong_kind(column, value, text=text)


def wrong_kind(column: str, value: object, *, text: bool, row: int | None = None) -> DataError:
    """Return the error for a value that is not a text, or not a number, where one is due."""
    where = "" if row is None else f"row {row}: "
    kind = "a text" if isinstance(value, str) else type(value).__name__
    return DataError(
        f"{where}{column!r} is {shortened(repr(value))} ({kind}), but the rules compare it with "
        f"{'texts' if text else 'numbers'}"
    )


class _Column:
    """The values of a column, as numbers or as texts, and which of them are missing."""

    def __init__(self, name: str, values: Any) -> None:
        self.name = name
        given = column_array(values)
        if given.ndim != 1:
            raise DataError(f"the column {name!r} has the shape {given.shape}; it must be (N,)")
        given = date_texts(given) if given.dtype.kind == "M" else given
        self.given = given
        kind = given.dtype.kind
        if kind == "f":
            self.missing: npt.NDArray[np.bool_] = np.isnan(given)
        elif kind in "O":
            self.missing = np.fromiter(map(is_missing, given), np.bool_, len(given))
        elif kind in "biuUT":
            self.missing = np.zeros(len(given), np.bool_)
        else:
            raise DataError(
                f"the column {name!r} has the type {given.dtype}; give numbers or texts"
            )
        self.any_missing = bool(self.missing.any())

    @cached_property
    def numbers(self) -> npt.NDArray[Any]:
        """The values as numbers; what stands for a missing one has no meaning."""
        kind = self.given.dtype.kind
        if kind in "iu":
            return self.given
        values = self.given if kind == "f" else self._checked(np.float64, 0.0, text=False)
        return values.astype(np.float64, copy=False)

    @cached_property
    def texts(self) -> npt.NDArray[Any]:
        """The values as texts; what stands for a missing one has no meaning."""
        if self.given.dtype.kind in "UT":
            return self.given
        if self.given.dtype.kind == "b":
            return np.where(self.given, "true", "false")
        return self._checked(np.object_, "", text=True)

    @cached_property
    def times(self) -> npt.NDArray[Any]:
        """The values as texts, those that are times as such."""
        return np.array([time_text(text) for text in self.texts.tolist()], np.object_)

    def _checked(self, dtype: Any, instead: Any, *, text: bool) -> npt.NDArray[Any]:
        """Return the values, all of one kind, or raise the error for the first that is not."""
        values = self.given
        if values.dtype.kind == "O" or (text and values.dtype.kind == "f"):
            values = np.where(self.missing, np.array(instead, np.object_), values)
            if set(map(type, values)) <= ({str} if text else {float}):
                return values
        checked = np.empty(len(values), dtype)
        for n, value in enumerate(values.tolist()):
            try:
                checked[n] = column_value(self.name, value, text=text)
            except DataError:
                raise wrong_kind(self.name, value, text=text, row=n) from None
        return checked


def date_texts(values: npt.NDArray[np.datetime64]) -> npt.NDArray[Any]:
    """Return times as texts to the second, a midnight as its date; None for a missing one.

    >>> date_texts(np.array(["2026-01-31", "2026-01-31T08:30"], "datetime64[s]"))
    array(['2026-01-31', '2026-01-31T08:30:00'], dtype=object)
    """
    seconds, days = values.astype("M8[s]"), values.astype("M8[D]")
    dates, times = (np.datetime_as_string(part).astype(np.object_) for part in (days, seconds))
    texts = np.where(days == seconds, dates, times)
    texts[np.isnat(values)] = None
    return texts


def column_array(values: Any) -> npt.NDArray[Any]:
    """Return a column of numpy, pandas, polars or pyarrow, or a list, as an array.

    >>> column_array(np.ma.array([4, 5], mask=[False, True]))
    array([4, None], dtype=object)
    """
    if isinstance(values, np.ndarray):
        if isinstance(values, np.ma.MaskedArray):
            known = np.array(values.data, np.object_)
            known[np.ma.getmaskarray(values)] = None
            return known
        # Texts with a value for missing ones are compared as objects are.
        return values.astype(np.object_) if hasattr(values.dtype, "na_object") else values
    if type(values).__module__.startswith("pyarrow"):
        if hasattr(values.type, "index_type"):  # to_numpy gives missing values a category
            values = values.cast(values.type.value_type)
        return np.asarray(values.to_numpy(zero_copy_only=False))
    if hasattr(values, "to_numpy"):  # pandas, polars
        return np.asarray(values.to_numpy())
    if hasattr(values, "__array__"):
        return np.asarray(values)
    listed = list(values)
    array = np.empty(len(listed), np.object_)
    array[:] = listed
    return array


def condition_rows(conditions: Iterable[Condition], table: Any) -> npt.NDArray[np.bool_]:
    """Return for each row of a table which of the conditions it meets. Shape (N, C).

    >>> table = {"age": [17, 30, None], "country": ["ir", "de", "kp"]}
    >>> wanted = map(Condition.parse, ["age < 18", "country in {ir, kp}", "age is missing"])
    >>> condition_rows(wanted, table)
    array([[ True,  True, False],
           [False, False, False],
           [False,  True,  True]])

    The array lies in memory by columns: its transpose is contiguous. `latentgamma.logic.pack` makes
    bit planes of it.

    Args:
        conditions: what to evaluate.
        table: columns by name: a dictionary of arrays or lists, or a table of pandas, polars or
            pyarrow.

    Raises:
        DataError: if a column is not there, or its values are of the wrong kind.
    """
    masks = list(condition_masks(conditions, table))
    return np.array(masks, np.bool_).reshape(len(masks), row_count(table)).T


def row_count(table: Any) -> int:
    """Return the number of rows of a table."""
    return len(next(iter(table.values()), ()) if isinstance(table, Mapping) else table)


def condition_masks(conditions: Iterable[Condition], table: Any) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield for each condition which rows of a table meet it. Shape (N,).

    Raises:
        DataError: if a column is not there, or has another length.
    """
    rows = row_count(table)
    columns: dict[str, _Column] = {}
    for condition in conditions:
        name = condition.column
        if name not in columns:
            columns[name] = _Column(name, _column_of(table, name))
            if len(columns[name].given) != rows:
                raise DataError(
                    f"the column {name!r} has {len(columns[name].given)} rows, but the first has {rows}"
                )
        yield condition._mask(columns[name])


def _column_of(table: Any, name: str) -> Any:
    try:
        return table[name]
    except Exception:
        have = getattr(table, "column_names", None) or getattr(table, "columns", None)
        names = [str(known) for known in (table if have is None else have)]
    raise DataError(
        f"the table has no column {name!r}; it has {listing(list(map(repr, names)), 10)}"
    )
