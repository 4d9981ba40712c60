"""How rules and atoms are divided among processes: contiguous ranges, balanced by cost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def balanced_ranges(costs: npt.ArrayLike, parts: int) -> list[int]:
    """The bounds of `parts` contiguous ranges of about equal cost; some may be empty.

    >>> balanced_ranges([1, 1, 1, 1, 8], 2)
    [0, 4, 5]
    >>> balanced_ranges([2, 2], 4)
    [0, 0, 1, 1, 2]

    Args:
        costs: the cost of each item, at least 0.
        parts: the number of ranges.

    Returns:
        `parts + 1` bounds: range r has the items from bound r up to bound r + 1.
    """
    ends = np.cumsum(np.asarray(costs, np.float64))
    total = ends[-1] if len(ends) else 0.0
    # An item belongs to the range in which its middle lies.
    middles = ends - np.asarray(costs, np.float64) / 2
    targets = total * np.arange(1, parts) / parts
    return [0, *np.searchsorted(middles, targets).tolist(), len(ends)]


def even_ranges(count: int, parts: int) -> list[int]:
    """The bounds of `parts` contiguous ranges of so many items, equal up to one item.

    >>> even_ranges(7, 3)
    [0, 2, 4, 7]
    """
    return [count * part // parts for part in range(parts + 1)]
