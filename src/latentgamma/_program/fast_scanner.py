"""A compiled reader for large texts of plain rules, which leaves all else to `_syntax`.

It reads words, numbers, ground terms, quoted names without escapes, `:-`, `<-`, `#external`
and the comments `%` and `/* */`. At anything else, right or wrong, it stops and says where,
and `_syntax.read_rules` goes on from there. What it does read it reads exactly as
`read_rules` does; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from latentgamma._program.program import Indices, Program

_Bytes = npt.NDArray[np.uint8]
_Array = npt.NDArray[Any]

# What a byte can be part of. Bytes above 127 belong to characters that count as letters.
_LETTER, _DIGIT, _CAPITAL, _UNDERSCORE, _BLANK = 1, 2, 4, 8, 16
_WORD = _LETTER | _DIGIT | _CAPITAL | _UNDERSCORE
_CLASS = np.zeros(256, np.uint8)
_CLASS[128:] = _LETTER
_CLASS[ord("a") : ord("z") + 1] = _LETTER
_CLASS[ord("0") : ord("9") + 1] = _DIGIT
_CLASS[ord("A") : ord("Z") + 1] = _CAPITAL
_CLASS[ord("_")] = _UNDERSCORE
_CLASS[[ord(" "), ord("\t"), ord("\n"), ord("\r")]] = _BLANK

_NEWLINE, _QUOTE, _PERCENT, _PRIME, _OPEN, _CLOSE = 10, 34, 37, 39, 40, 41
_STAR, _COMMA, _MINUS, _DOT, _SLASH, _COLON = 42, 44, 45, 46, 47, 58
_LESS, _GREATER, _BACKSLASH, _HASH = 60, 62, 92, 35
_EXTERNAL = np.frombuffer(b"#external", np.uint8)
_NOT = np.frombuffer(b"not", np.uint8)

# The table of names has rows (hash << 31 | atom + 1, where its name begins), or zeros.
_SHIFT = 31
_LOW = (1 << _SHIFT) - 1
_HASH_START = np.uint64(0xCBF29CE484222325)
_HASH_FACTOR = np.uint64(0x100000001B3)
_BATCH = 512
_NOWHERE = np.iinfo(np.int64).min
# Names made to collide would make look-ups slow; the careful reader does not mind them.
_LONGEST_PROBE = 1000

_non_word = re.compile(r"[^\x00-\x7f\w]").search


class Rest(NamedTuple):
    """Where the compiled reader stopped, and what it knows of the statement there."""

    at: int  # where the token is that it left, in bytes
    seen: int  # where the token before that ends
    last: str  # what that token is: "" if a statement starts, "atom", ",", ":-" or "<-"
    heads: Indices  # the atoms before the arrow of the statement
    body: Indices  # those after it


def scan_rules(data: bytes) -> tuple[Program, Rest | None] | None:
    """The program of the statements read, and what is left; None if nothing can be told.

    >>> program, rest = scan_rules(b"bird :- penguin.  % comment")
    >>> print(program)
    bird :- penguin.
    >>> rest is None
    True
    >>> program, rest = scan_rules(b"bird :- penguin.  flies :- bird, not penguin.")
    >>> rest.at, rest.last
    (33, ',')

    Args:
        data: a UTF-8 text without a byte order mark.
    """
    if b"\0" in data or data.count(b"\r") != data.count(b"\r\n"):
        return None
    understood, count, stop, joined, *rows, heads, body = _scan(np.frombuffer(data, np.uint8))
    if not understood:
        return None
    at, seen, last, arrow = stop.tolist()
    rest = None
    if at < len(data) or last:
        sign = ":-" if arrow == _COLON else "<-"
        rest = Rest(at, seen, ("", "atom", ",", sign)[last], heads, body)
    try:
        names = joined.tobytes().decode()
        if not data.isascii():
            if _non_word(names):
                return None
            data.decode()  # comments must be valid UTF-8 too
    except UnicodeDecodeError:
        return None
    return Program._sealed(tuple(names.split("\n")[:count]), *rows), rest


@numba.njit(cache=True)
def _scan(
    data: _Bytes,
) -> tuple[bool, int, _Array, _Bytes, _Array, _Array, _Array, _Array, _Array, _Array]:
    """Whether this worked, the atoms (number, names by line), the rows, and what is left."""
    size = len(data)
    # A comma, an arrow or a dot follows each atom, and a rule has one dot and at most one
    # arrow. Memory that is asked for and never touched costs nothing.
    commas = dots = 0
    for byte in data:
        commas += byte == _COMMA
        dots += byte == _DOT
    heads, bodies = np.empty(commas + dots + 1, np.int32), np.empty(commas + dots + 1, np.int32)
    head_ends, body_ends = np.zeros(dots + 1, np.int64), np.zeros(dots + 1, np.int64)
    head_count = body_count = rules = 0
    # All names by line, then those still to be looked up. They fit: in the text, too, each
    # is followed by one more byte.
    names = np.empty(size + 1, np.uint8)
    slots = 4096
    while slots < size // 32:
        slots *= 2
    table = np.zeros((slots, 2), np.int64)
    # The number of atoms and where their names end, the same before this statement, a spare.
    known = np.zeros(5, np.int64)
    waiting = np.empty((_BATCH + 1, 3), np.int64)  # where a name begins, its hash, where it goes
    batch = 0
    fresh = 0  # the first name waiting that belongs to this statement; -1 if more came before
    arrow = 0  # the first byte of this statement's arrow
    declaring = False
    last = 0  # the token before: 0 none in this statement, 1 an atom, 2 a comma, 3 an arrow
    began = seen = at = 0  # where this statement may start, the last token ends, and we are
    while at < size:
        byte = data[at]
        following = data[at + 1] if at + 1 < size else np.uint8(0)
        if _CLASS[byte] == _BLANK:
            at += 1
            continue
        if _CLASS[byte] or byte in (_QUOTE, _PRIME):
            begin = waiting[batch, 0] if batch else known[1]
            after, end = _copy_name(data, at, names, begin)
            if end == begin or last == 1:
                break
            names[end] = _NEWLINE
            waiting[batch, 0] = begin
            waiting[batch, 1] = _hash_of(names, begin, end)
            if arrow:
                waiting[batch, 2] = body_count
                body_count += 1
            elif declaring:
                waiting[batch, 2] = _NOWHERE
            else:
                waiting[batch, 2] = ~head_count
                head_count += 1
            batch += 1
            waiting[batch, 0] = end + 1
            last = 1
            at = after
            if batch == _BATCH:
                table = _intern(table, names, known, waiting, fresh, batch, heads, bodies)
                batch, fresh = 0, -1
        elif byte == _COMMA:
            if last != 1 or declaring:
                break
            last = 2
            at += 1
        elif byte == _DOT:
            complete = last == 1 or (last == 3 and not declaring)
            if not complete or following == _DOT or _CLASS[following] == _DIGIT:
                break
            if not declaring:
                rules += 1
                head_ends[rules], body_ends[rules] = head_count, body_count
            last = arrow = 0
            declaring = False
            at += 1
            began, fresh = at, batch
        elif byte in (_COLON, _LESS) and following == _MINUS:
            both_ways = byte == _LESS and at + 2 < size and data[at + 2] == _GREATER
            if both_ways or arrow or declaring or last != 1:
                break
            arrow = int(byte)
            last = 3
            at += 2
        elif byte == _PERCENT and following != _STAR:
            while at < size and data[at] != _NEWLINE:
                at += 1
            continue
        elif byte == _SLASH and following == _STAR:
            end = at + 2
            while end + 1 < size and not (data[end] == _STAR and data[end + 1] == _SLASH):
                end += 1
            if end + 1 >= size:
                break
            at = end + 2
            continue
        elif byte == _HASH and last == 0:
            i = 0
            while i < len(_EXTERNAL) and at + i < size and data[at + i] == _EXTERNAL[i]:
                i += 1
            if i < len(_EXTERNAL) or at + i == size or _CLASS[data[at + i]] != _BLANK:
                break
            declaring = True
            last = 3
            at += i
        else:
            break
        seen = at
    table = _intern(table, names, known, waiting, fresh, batch, heads, bodies)
    if last and not arrow:
        # Without an arrow these may be no heads at all: forget what this statement began.
        known[0], known[1] = known[2], known[3]
        at = seen = began
        last = 0
        head_count = head_ends[rules]
    stop = np.empty(4, np.int64)
    stop[0], stop[1], stop[2], stop[3] = at, seen, last, arrow
    # Sealing only moves indices to the left, so that what is left stays where it is.
    head_start, body_start = head_ends[rules], body_ends[rules]
    return (
        len(table) > 0,
        known[0],
        stop,
        names[: known[1]],
        body_ends[: rules + 1],
        bodies[: _seal_rows(bodies, body_ends[: rules + 1])],
        head_ends[: rules + 1],
        heads[: _seal_rows(heads, head_ends[: rules + 1])],
        heads[head_start:head_count],
        bodies[body_start:body_count],
    )


@numba.njit(cache=True)
def _copy_name(data: _Bytes, at: int, names: _Bytes, begin: int) -> tuple[int, int]:
    """Where the name at `at` ends in the text and in `names`; nowhere if it is not plain."""
    if data[at] == _QUOTE or data[at] == _PRIME:
        after, end = _copy_quoted(data, at, names, begin)
        # Leave the quotes out, here and in what is copied.
        for i in range(begin + 1, end - 1):
            names[i - 1] = names[i]
        return after, max(begin, end - 2)
    after, end = _copy_word(data, at, names, begin)
    if end == begin or after == len(data) or data[after] != _OPEN:
        return after, end
    if _CLASS[data[at]] == _DIGIT:
        return at, begin
    depth = 1
    names[end] = _OPEN
    at, end = after + 1, end + 1
    ready = True  # for an argument
    while depth:
        while at < len(data) and _CLASS[data[at]] == _BLANK:
            at += 1
        if at == len(data):
            return at, begin
        if ready:
            start = end
            if data[at] == _QUOTE:
                at, end = _copy_quoted(data, at, names, end)
                ready = False
            else:
                first = data[at]
                at, end = _copy_word(data, at, names, end)
                ready = at < len(data) and data[at] == _OPEN
                if ready:
                    if _CLASS[first] == _DIGIT:
                        return at, begin
                    depth += 1
                    names[end] = _OPEN
                    at, end = at + 1, end + 1
            if end == start or names[start] == _OPEN:
                return at, begin
        else:
            if data[at] == _COMMA:
                ready = True
            elif data[at] == _CLOSE:
                depth -= 1
            else:
                return at, begin
            names[end] = data[at]
            at, end = at + 1, end + 1
    return at, end


@numba.njit(cache=True)
def _copy_word(data: _Bytes, at: int, names: _Bytes, begin: int) -> tuple[int, int]:
    """Where a word or number ends in the text and in `names`; nowhere if there is none."""
    end = begin
    kinds = 0  # what it consists of after its underscores, and what comes first there
    first = 0
    while at < len(data) and _CLASS[data[at]] & _WORD:
        kind = _CLASS[data[at]]
        if first == 0 and kind != _UNDERSCORE:
            first = kind
        kinds |= kind
        names[end] = data[at]
        at, end = at + 1, end + 1
    number = kinds == _DIGIT
    if first != _LETTER and not number:
        return at, begin
    if end == begin + len(_NOT):
        i = 0
        while i < len(_NOT) and names[begin + i] == _NOT[i]:
            i += 1
        if i == len(_NOT):
            return at, begin
    return at, end


@numba.njit(cache=True)
def _copy_quoted(data: _Bytes, at: int, names: _Bytes, begin: int) -> tuple[int, int]:
    """Where a quoted text ends in the text and in `names`, quotes included, or nowhere."""
    mark = data[at]
    end = begin
    while True:
        byte = data[at]
        names[end] = byte
        at, end = at + 1, end + 1
        if byte == mark and end > begin + 1:
            return at, end
        if at == len(data) or data[at] < 32 or data[at] == 127 or data[at] == _BACKSLASH:
            return at, begin


@numba.njit(cache=True)
def _hash_of(names: _Bytes, begin: int, end: int) -> int:
    """A number below 2**32 that depends on every byte."""
    value = _HASH_START
    for i in range(begin, end):
        value = (value ^ np.uint64(names[i])) * _HASH_FACTOR
    return int((value ^ (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@numba.njit(cache=True)
def _intern(
    table: _Array,
    names: _Bytes,
    known: _Array,
    waiting: _Array,
    fresh: int,
    batch: int,
    heads: _Array,
    bodies: _Array,
) -> _Array:
    """The table with these names in it; empty once a look-up takes too long.

    A look-up waits for memory twice, at the slot and at the name found there. Touching all
    of a batch first lets the waits overlap, which is most of the speed.
    """
    if len(table) == 0:
        return table
    while 2 * (known[0] + batch) > len(table):
        table = _rehashed(table)
    mask = len(table) - 1
    touched = 0
    for c in range(batch):
        touched += table[waiting[c, 1] & mask, 1]
    for c in range(batch):
        touched += names[table[waiting[c, 1] & mask, 1]]
    known[4] += touched  # so that the compiler keeps the two loops
    for c in range(batch):
        if c == fresh:
            known[2], known[3] = known[0], known[1]
        begin, key = waiting[c, 0], waiting[c, 1]
        slot = key & mask
        atom = -1
        for _ in range(_LONGEST_PROBE):
            entry = table[slot, 0]
            if entry == 0 or (entry >> _SHIFT == key and _same(names, table[slot, 1], begin)):
                atom = (entry & _LOW) - 1 if entry else known[0]
                break
            slot = (slot + 1) & mask
        if atom < 0:
            return table[:0]
        if atom == known[0]:
            table[slot, 0] = (key << _SHIFT) | (atom + 1)
            table[slot, 1] = known[1]
            for i in range(waiting[c + 1, 0] - begin):
                names[known[1] + i] = names[begin + i]
            known[0] += 1
            known[1] += waiting[c + 1, 0] - begin
        place = waiting[c, 2]
        if place >= 0:
            bodies[place] = atom
        elif place != _NOWHERE:
            heads[~place] = atom
    if fresh == batch:
        known[2], known[3] = known[0], known[1]
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
def _rehashed(table: _Array) -> _Array:
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


@numba.njit(cache=True)
def _seal_rows(row: _Array, ends: _Array) -> int:
    """The number of indices left when every row is sorted and free of repetitions."""
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
    """Sort by insertion while that is quick, else by a heap."""
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
