"""A compiled reader for large and plain rule texts, which leaves all else to `_syntax`.

It reads words, numbers, ground terms, quoted names without escapes, `:-`, `<-`, `#external`
and the comments `%` and `/* */`, and gives up at anything else, right or wrong. What it
does read it reads exactly as `_syntax.read_rules` does; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from latentgamma._program import Program

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


def scan_rules(data: bytes) -> Program | None:
    """The program of a UTF-8 text, or None if it is not plain enough.

    >>> print(scan_rules(b"bird :- penguin.  % comment"))
    bird :- penguin.
    >>> scan_rules(b"bird :- not stone.") is None
    True
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data or data.count(b"\r") != data.count(b"\r\n"):
        return None
    understood, count, joined, *rows = _scan(np.frombuffer(data, np.uint8))
    if not understood:
        return None
    try:
        names = joined.tobytes().decode()
        if not data.isascii():
            if _non_word(names):
                return None
            data.decode()  # comments must be valid UTF-8 too
    except UnicodeDecodeError:
        return None
    return Program._sealed(tuple(names.split("\n")[:count]), *rows)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _scan(data: _Bytes) -> tuple[bool, int, _Bytes, _Array, _Array, _Array, _Array]:
    """Whether the text is understood, its atoms (number, names by line), and its rows."""
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
    state = np.zeros(2, np.int64)  # the number of atoms, and where their names end
    waiting = np.empty((_BATCH + 1, 3), np.int64)  # where a name begins, its hash, where it goes
    batch = 0
    in_body = declaring = False
    last = 0  # the token before: 0 none in this statement, 1 an atom, 2 a comma, 3 an arrow
    at = 0
    ok = True
    while at < size:
        byte = data[at]
        following = data[at + 1] if at + 1 < size else np.uint8(0)
        if _CLASS[byte] == _BLANK:
            at += 1
        elif _CLASS[byte] or byte == _QUOTE or byte == _PRIME:
            begin = waiting[batch, 0] if batch else state[1]
            at, end = _copy_name(data, at, names, begin)
            if end == begin or last == 1:
                ok = False
                break
            last = 1
            names[end] = _NEWLINE
            waiting[batch, 0] = begin
            waiting[batch, 1] = _hash_of(names, begin, end)
            if in_body:
                waiting[batch, 2] = body_count
                body_count += 1
            elif declaring:
                waiting[batch, 2] = _NOWHERE
            else:
                waiting[batch, 2] = ~head_count
                head_count += 1
            batch += 1
            waiting[batch, 0] = end + 1
            if batch == _BATCH:
                table = _intern(table, names, state, waiting, batch, heads, bodies)
                batch = 0
                if len(table) == 0:
                    ok = False
                    break
        elif byte == _COMMA:
            if last != 1 or declaring:
                ok = False
                break
            last = 2
            at += 1
        elif byte == _DOT:
            complete = last == 1 or (last == 3 and not declaring)
            if not complete or following == _DOT or _CLASS[following] == _DIGIT:
                ok = False
                break
            if not declaring:
                rules += 1
                head_ends[rules], body_ends[rules] = head_count, body_count
            in_body = declaring = False
            last = 0
            at += 1
        elif (byte == _COLON or byte == _LESS) and following == _MINUS:
            both_ways = byte == _LESS and at + 2 < size and data[at + 2] == _GREATER
            if both_ways or in_body or declaring or last != 1:
                ok = False
                break
            in_body = True
            last = 3
            at += 2
        elif byte == _PERCENT and following != _STAR:
            while at < size and data[at] != _NEWLINE:
                at += 1
        elif byte == _SLASH and following == _STAR:
            at += 2
            while at + 1 < size and not (data[at] == _STAR and data[at + 1] == _SLASH):
                at += 1
            if at + 1 >= size:
                ok = False
                break
            at += 2
        elif byte == _HASH and last == 0:
            i = 0
            while i < len(_EXTERNAL) and at < size and data[at] == _EXTERNAL[i]:
                at, i = at + 1, i + 1
            if i < len(_EXTERNAL) or at == size or _CLASS[data[at]] != _BLANK:
                ok = False
                break
            declaring = True
            last = 3
        else:
            ok = False
            break
    if batch and ok:
        table = _intern(table, names, state, waiting, batch, heads, bodies)
        ok = len(table) > 0
    ok = ok and last == 0
    if ok:
        head_count = _seal_rows(heads, head_ends[: rules + 1])
        body_count = _seal_rows(bodies, body_ends[: rules + 1])
    return (
        ok,
        state[0],
        names[: state[1]],
        body_ends[: rules + 1],
        bodies[:body_count],
        head_ends[: rules + 1],
        heads[:head_count],
    )


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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
    if end == begin + 3 and names[begin] == 110 and names[begin + 1] == 111:
        if names[begin + 2] == 116:  # 'not'
            return at, begin
    return at, end


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _hash_of(names: _Bytes, begin: int, end: int) -> int:
    """A number below 2**32 that depends on every byte."""
    value = _HASH_START
    for i in range(begin, end):
        value = (value ^ np.uint64(names[i])) * _HASH_FACTOR
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _intern(
    table: _Array,
    names: _Bytes,
    state: _Array,
    waiting: _Array,
    batch: int,
    heads: _Array,
    bodies: _Array,
) -> _Array:
    """The table with these names in it; empty if a look-up takes too long.

    A look-up waits for memory twice, at the slot and at the name found there. Touching all
    of a batch first lets the waits overlap, which is most of the speed.
    """
    while 2 * (state[0] + batch) > len(table):
        table = _rehashed(table)
    mask = len(table) - 1
    touched = 0
    for c in range(batch):
        touched += table[waiting[c, 1] & mask, 1]
    for c in range(batch):
        touched += names[table[waiting[c, 1] & mask, 1]]
    waiting[batch, 1] = touched  # so that the compiler keeps the two loops
    for c in range(batch):
        begin, key = waiting[c, 0], waiting[c, 1]
        length = waiting[c + 1, 0] - begin  # with the line end
        slot = key & mask
        atom = -1
        for _ in range(_LONGEST_PROBE):
            entry = table[slot, 0]
            if entry == 0 or (entry >> _SHIFT == key and _same(names, table[slot, 1], begin)):
                atom = (entry & _LOW) - 1 if entry else state[0]
                break
            slot = (slot + 1) & mask
        if atom < 0:
            return table[:0]
        if atom == state[0]:
            table[slot, 0] = (key << _SHIFT) | (atom + 1)
            table[slot, 1] = state[1]
            for i in range(length):
                names[state[1] + i] = names[begin + i]
            state[0] += 1
            state[1] += length
        place = waiting[c, 2]
        if place >= 0:
            bodies[place] = atom
        elif place != _NOWHERE:
            heads[~place] = atom
    return table


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _same(names: _Bytes, one: int, other: int) -> bool:
    """Whether two names are equal; both end with their line."""
    while names[one] == names[other]:
        if names[one] == _NEWLINE:
            return True
        one, other = one + 1, other + 1
    return False


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _rehashed(table: _Array) -> _Array:
    """The same entries in a table twice as large."""
    larger = np.zeros((2 * len(table), 2), np.int64)
    mask = len(larger) - 1
    for i in range(len(table)):
        if table[i, 0]:
            slot = (table[i, 0] >> _SHIFT) & mask
            while larger[slot, 0]:
                slot = (slot + 1) & mask
            larger[slot] = table[i]
    return larger


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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
