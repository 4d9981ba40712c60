"""A compiled hash table that numbers names as they appear."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Array = npt.NDArray[Any]

#: Places in the array `counts`: the number of atoms, where their names end, the same two before
#: the statement being read, and a number that nobody reads.
ATOMS, NAMES_END, ATOMS_BEFORE, END_BEFORE, SPARE = range(5)

_NEWLINE = 10
# The table of names has rows (hash << 31 | atom + 1, where its name begins), or zeros.
_SHIFT = 31
_LOW = (1 << _SHIFT) - 1
_HASH_START = np.uint64(0xCBF29CE484222325)
_HASH_FACTOR = np.uint64(0x100000001B3)
#: How many names wait for their look-up at the same time.
BATCH = 512
#: The place of a name that is declared, and neither head nor body.
NO_PLACE = np.iinfo(np.int64).min
# Names chosen to collide would make look-ups slow; then the reader in Python takes over.
_LONGEST_PROBE = 1000


@numba.njit(cache=True)
def hash_name(names: _Bytes, begin: int, end: int) -> int:
    """A number below 2**32 that depends on every byte."""
    value = _HASH_START
    for i in range(begin, end):
        value = (value ^ np.uint64(names[i])) * _HASH_FACTOR
    return int((value ^ (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@numba.njit(cache=True)
def intern_names(
    table: _Array,
    names: _Bytes,
    counts: _Array,
    waiting: _Array,
    statement_start: int,
    batch: int,
    heads: _Array,
    bodies: _Array,
) -> _Array:
    """The table with the waiting names in it; empty once a look-up takes too long.

    Each name gets the index of its atom, written to its place in `heads` or `bodies`.

    A look-up waits for memory twice, at the slot and at the name found there. Touching all
    of a batch first lets the waits overlap, which is most of the speed.
    """
    if len(table) == 0:
        return table
    while 2 * (counts[ATOMS] + batch) > len(table):
        table = _grow(table)
    mask = len(table) - 1
    touched = 0
    for c in range(batch):
        touched += table[waiting[c, 1] & mask, 1]
    for c in range(batch):
        touched += names[table[waiting[c, 1] & mask, 1]]
    counts[SPARE] += touched  # so that the compiler keeps the two loops
    for c in range(batch):
        if c == statement_start:
            counts[ATOMS_BEFORE], counts[END_BEFORE] = counts[ATOMS], counts[NAMES_END]
        begin, key = waiting[c, 0], waiting[c, 1]
        slot = key & mask
        atom = -1
        for _ in range(_LONGEST_PROBE):
            entry = table[slot, 0]
            if entry == 0 or (entry >> _SHIFT == key and _same(names, table[slot, 1], begin)):
                atom = (entry & _LOW) - 1 if entry else counts[ATOMS]
                break
            slot = (slot + 1) & mask
        if atom < 0:
            return table[:0]
        if atom == counts[ATOMS]:
            table[slot, 0] = (key << _SHIFT) | (atom + 1)
            table[slot, 1] = counts[NAMES_END]
            for i in range(waiting[c + 1, 0] - begin):
                names[counts[NAMES_END] + i] = names[begin + i]
            counts[ATOMS] += 1
            counts[NAMES_END] += waiting[c + 1, 0] - begin
        place = waiting[c, 2]
        if place >= 0:
            bodies[place] = atom
        elif place != NO_PLACE:
            heads[~place] = atom
    if statement_start == batch:
        counts[ATOMS_BEFORE], counts[END_BEFORE] = counts[ATOMS], counts[NAMES_END]
    return table


@numba.njit(cache=True)
def _same(names: _Bytes, one: int, other: int) -> bool:
    """Whether two names are equal; both end with their line."""
    while names[one] == names[other]:
        if names[one] == _NEWLINE:
            return True
        one, other = one + 1, other + 1
    return False


@numba.njit(cache=True)
def _grow(table: _Array) -> _Array:
    """The same entries in a table twice as large."""
    larger = np.zeros((2 * len(table), 2), np.int64)
    mask = len(larger) - 1
    for i in range(len(table)):
        if table[i, 0]:
            slot = (table[i, 0] >> _SHIFT) & mask
            while larger[slot, 0]:
                slot = (slot + 1) & mask
            larger[slot, 0], larger[slot, 1] = table[i, 0], table[i, 1]
    return larger
