"""Compiled code that makes every row of a compressed array a sorted set."""

from __future__ import annotations

from typing import Any

import numba
import numpy.typing as npt

_Array = npt.NDArray[Any]


@numba.njit(cache=True)
def sort_rows(row: _Array, ends: _Array) -> int:
    """Sort every row, drop repetitions, and return how many entries are left.

    Row j ends at `ends[j + 1]`; the rows move to the left and `ends` moves with them.
    """
    kept = begin = 0
    for j in range(len(ends) - 1):
        end = ends[j + 1]
        _sort(row, begin, end)
        for i in range(begin, end):
            if i == begin or row[i] != row[kept - 1]:
                row[kept] = row[i]
                kept += 1
        ends[j + 1] = kept
        begin = end
    return kept


@numba.njit(cache=True)
def _sort(row: _Array, begin: int, end: int) -> None:
    """Sort a range: by insertion while few entries move, else by a heap."""
    moves = 0
    for i in range(begin + 1, end):
        value = row[i]
        j = i
        while j > begin and row[j - 1] > value:
            row[j] = row[j - 1]
            j -= 1
        row[j] = value
        moves += i - j
        if moves > 20 * (end - begin):
            _sort_by_heap(row[begin:end])
            return


@numba.njit(cache=True)
def _sort_by_heap(row: _Array) -> None:
    size = len(row)
    root = size // 2
    while size > 1:
        if root > 0:
            root -= 1
        else:
            size -= 1
            row[0], row[size] = row[size], row[0]
        parent = root
        while 2 * parent + 1 < size:
            child = 2 * parent + 1
            if child + 1 < size and row[child + 1] > row[child]:
                child += 1
            if row[parent] >= row[child]:
                break
            row[parent], row[child] = row[child], row[parent]
            parent = child
