"""What a request can say: columns that conditions compare, and facts that are true or false."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._text import shortened
from latentgamma.errors import DataError, ProgramError
from latentgamma.program.conditions import (
    COMPARE,
    MISSING,
    Condition,
    column_array,
    column_value,
    is_missing,
    is_number,
    wrong_kind,
)
from latentgamma.program.names import Constant

# From here on whole numbers are compared as floating-point numbers, as in whole columns.
_LARGE = 2**53
# Texts that say whether a fact holds.
_TRUTH = {"true": True, "false": False, "yes": True, "no": False}


class Column:
    """The conditions on one column, as regions of its values.

    The constants of the conditions, sorted, divide the values into 2k + 1 regions: 2p + 1 is the
    constant p itself, 2p what lies below it and above the one before. In a region every condition
    is true or false, so that one search finds the truth of all of them.

    Attributes:
        name: the name of the column.
        text: whether it is compared with texts rather than numbers.
        times: whether it may matter that a text is a time.
        points: the constants, rising.
        masks: for each region the bits of the conditions that hold there.
        first: the first region that has values: no text lies below the empty one.
        missing: the bits of the conditions that hold if there is no value.
        bits: the bits of all conditions.
    """

    def __init__(self, name: str, conditions: Sequence[tuple[int, Condition]]) -> None:
        kinds = {c.is_text for _, c in conditions} - {None}
        if len(kinds) > 1:
            raise ProgramError(f"the rules compare {name!r} with numbers and with texts")
        self.name = name
        self.text: bool | None = kinds.pop() if kinds else None
        self.times = any(c.is_time for _, c in conditions)
        constants: set[Constant] = set()
        for _, condition in conditions:
            if isinstance(condition.value, tuple):
                constants.update(condition.value)
            elif condition.value is not None:
                constants.add(condition.value)
        self.points: list[Any] = sorted(constants)
        place = {point: 2 * p + 1 for p, point in enumerate(self.points)}
        regions = range(2 * len(self.points) + 1)
        self.masks = [0] * len(regions)
        self.first = int(self.points[:1] == [""])
        self.missing = self.bits = 0
        for bit, condition in conditions:
            self.bits |= 1 << bit
            if condition.op == "is missing":
                self.missing |= 1 << bit
                continue
            if isinstance(condition.value, tuple):
                true = [place[value] for value in condition.value]
            else:
                compare, at = COMPARE[condition.op], place[condition.value]
                true = [region for region in regions if compare(region, at)]
            for region in true:
                self.masks[region] |= 1 << bit

    def reader(self) -> Callable[[Any], int]:
        """Return the function from a value to the bits of the conditions that it meets.

        It raises a `DataError` for a text where numbers are due, or the other way round.
        """
        points, masks, missing, region_of = self.points, self.masks, self.missing, self.region
        usual = {True: None if self.times else str, False: float, None: None}[self.text]

        def read(value: Any) -> int:
            kind = type(value)
            if (kind is usual and value == value) or (  # noqa: PLR0124 - not NaN
                kind is int and usual is float and -_LARGE < value < _LARGE
            ):
                return masks[bisect_left(points, value) + bisect_right(points, value)]
            region = region_of(value)
            return missing if region is None else masks[region]

        return read

    def region(self, value: Any) -> int | None:
        """Return the region of a value; None if it is missing."""
        known = self.known(value)
        if known is None:
            return None
        return bisect_left(self.points, known) + bisect_right(self.points, known)

    def known(self, value: Any) -> Any:
        """Return the number or the text that a value is; None if it is missing."""
        if is_missing(value):
            return None
        if self.text is None:  # only asked whether it is missing
            return 0
        return column_value(self.name, value, text=self.text)


def column_reader(columns: Iterable[Column]) -> Callable[[Mapping[str, Any]], int]:
    """Return the function from a request to the bits of all conditions that hold."""
    readers = [(column.name, column.reader(), column.missing) for column in columns]

    def read(request: Mapping[str, Any]) -> int:
        state = 0
        for name, bits_of, missing in readers:
            value = request.get(name)
            state |= missing if value is None else bits_of(value)
        return state

    return read


def fact_value(name: str, value: Any) -> bool:
    """Return whether a request states a fact: true, yes, 1 or a probability above one half.

    Raises:
        DataError: if it is neither true nor false, nor a number from 0 to 1.
    """
    if value is True or value is False or value is None:
        return value is True
    if isinstance(value, np.bool_) or is_missing(value):
        return not is_missing(value) and bool(value)
    if is_number(value) and 0 <= value <= 1:
        return bool(value > 0.5)
    if isinstance(value, str) and value.strip().lower() in _TRUTH:
        return _TRUTH[value.strip().lower()]
    raise DataError(
        f"{name!r} is {shortened(repr(value))}; a fact is true or false, or a probability"
    )


def is_uncertain(value: Any) -> bool:
    """Return whether the value of a fact is a probability between 0 and 1."""
    return is_number(value) and not is_missing(value) and 0 < value < 1


def fact_column(name: str, values: Any) -> npt.NDArray[np.bool_]:
    """Return the same for a whole column. Shape (N,)."""
    array = column_array(values)
    if array.dtype == np.bool_:
        return array
    found = np.zeros(len(array), np.bool_)
    for n, value in enumerate(array.tolist()):
        try:
            found[n] = fact_value(name, value)
        except DataError as error:
            raise DataError(f"row {n}: {error}") from None
    return found


def read_number(cell: str) -> float:
    """Return the number in a cell of a text file; 1_000 is a text, although Python reads a number.

    Raises:
        ValueError: if it is not a number.
    """
    if "_" in cell or not cell.isascii():
        raise ValueError(cell)
    return float(cell)


def from_text(column: Column | None, name: str, text: str) -> Any:
    """Return the value that a cell of a CSV file means; None if it has none. A fact has no column.

    An empty cell, NA, null or ? has no value, as where rules are learned, unless the rules compare the
    column with that text; TRUE and False are truth values on the same condition.

    Raises:
        DataError: if it is not a number, or not a fact.
    """
    cell = text.strip()
    word = cell.lower()
    named = column.points if column is not None and column.text else ()
    if word in MISSING and cell not in named:
        return None
    if column is None:
        if cell in ("0", "1"):
            return cell == "1"
        try:
            return float(cell)
        except ValueError:
            return fact_value(name, cell)
    if column.text or column.text is None:
        return word if word in ("true", "false") and cell not in named else cell
    try:
        number = read_number(cell)
        return number if any(c in cell for c in ".eEnN") else int(cell)
    except ValueError:
        raise wrong_kind(name, cell, text=False) from None
