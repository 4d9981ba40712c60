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

_SHIFT = 31
_LOW = (1 << _SHIFT) - 1
_HASH_START = np.uint64(0xCBF29CE484222325)
_HASH_FACTOR = np.uint64(0x100000001B3)
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
    heads, bodies = np.empty(1024, np.int32), np.empty(1024, np.int32)
    head_ends, body_ends = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
    head_count = body_count = rules = 0
    # Every name fits: in the text, too, each is followed by one more byte.
    names = np.empty(size + 1, np.uint8)
    starts = np.zeros(1024, np.int64)  # name i is names[starts[i]:starts[i + 1] - 1]
    table = np.zeros(4096, np.int64)  # hash << 31 | i + 1, or 0 in a free slot
    count = 0
    in_body = declaring = False
    last = 0  # the token before: 0 none in this statement, 1 an atom, 2 a comma, 3 an arrow
    at = 0
    ok = True
    while at < size:
        byte = data[at]
        if _CLASS[byte] == _BLANK:
            at += 1
        elif byte == _COMMA:
            if last != 1 or declaring:
                ok = False
                break
            last = 2
            at += 1
        elif byte == _DOT:
            following = data[at + 1] if at + 1 < size else np.uint8(0)
            complete = last == 1 or (last == 3 and not declaring)
            if not complete or following == _DOT or _CLASS[following] == _DIGIT:
                ok = False
                break
            if not declaring:
                head_count = _seal_row(heads, head_ends[rules], head_count)
                body_count = _seal_row(bodies, body_ends[rules], body_count)
                rules += 1
                if rules == len(head_ends):
                    head_ends, body_ends = _grown(head_ends), _grown(body_ends)
                head_ends[rules], body_ends[rules] = head_count, body_count
            in_body = declaring = False
            last = 0
            at += 1
        elif byte == _COLON or byte == _LESS:
            arrow = at + 1 < size and data[at + 1] == _MINUS
            if not arrow or in_body or declaring or last != 1:
                ok = False
                break
            if byte == _LESS and at + 2 < size and data[at + 2] == _GREATER:
                ok = False
                break
            in_body = True
            last = 3
            at += 2
        elif byte == _PERCENT:
            if at + 1 < size and data[at + 1] == _STAR:
                ok = False
                break
            while at < size and data[at] != _NEWLINE:
                at += 1
        elif byte == _SLASH:
            if at + 1 >= size or data[at + 1] != _STAR:
                ok = False
                break
            at += 2
            while at + 1 < size and not (data[at] == _STAR and data[at + 1] == _SLASH):
                at += 1
            if at + 1 >= size:
                ok = False
                break
            at += 2
        elif byte == _HASH:
            end = at + len(_EXTERNAL)
            if last != 0 or end >= size or _CLASS[data[end]] != _BLANK:
                ok = False
                break
            if not np.array_equal(data[at:end], _EXTERNAL):
                ok = False
                break
            declaring = True
            last = 3
            at = end
        else:
            begin = starts[count]
            at, end = _copy_name(data, at, names, begin)
            if end == begin or last == 1:
                ok = False
                break
            key = _hash_of(names, begin, end)
            slot = _find(table, key, names, starts, begin, end)
            if slot < 0:
                ok = False
                break
            if table[slot]:
                atom = (table[slot] & _LOW) - 1
            else:
                atom = count
                names[end] = _NEWLINE
                count += 1
                table[slot] = (key << _SHIFT) | count
                if count == len(starts):
                    starts = _grown(starts)
                starts[count] = end + 1
                if 2 * count > len(table):
                    table = _rehashed(table)
            if in_body:
                if body_count == len(bodies):
                    bodies = _grown(bodies)
                bodies[body_count] = atom
                body_count += 1
            elif not declaring:
                if head_count == len(heads):
                    heads = _grown(heads)
                heads[head_count] = atom
                head_count += 1
            last = 1
    ok = ok and last == 0
    return (
        ok,
        count,
        names[: starts[count]],
        body_ends[: rules + 1].copy(),
        bodies[:body_count].copy(),
        head_ends[: rules + 1].copy(),
        heads[:head_count].copy(),
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
def _find(
    table: _Array, key: int, names: _Bytes, starts: _Array, begin: int, end: int
) -> int:
    """The slot of this name, or the free one where it belongs, or -1 after a long search."""
    mask = len(table) - 1
    slot = key & mask
    for _ in range(_LONGEST_PROBE):
        entry = table[slot]
        if entry == 0:
            return slot
        if entry >> _SHIFT == key:
            atom = (entry & _LOW) - 1
            known = starts[atom]
            if starts[atom + 1] - 1 - known == end - begin:
                i = 0
                while i < end - begin and names[known + i] == names[begin + i]:
                    i += 1
                if i == end - begin:
                    return slot
        slot = (slot + 1) & mask
    return -1


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _rehashed(table: _Array) -> _Array:
    larger = np.zeros(4 * len(table), np.int64)
    mask = len(larger) - 1
    for entry in table:
        if entry:
            slot = (entry >> _SHIFT) & mask
            while larger[slot]:
                slot = (slot + 1) & mask
            larger[slot] = entry
    return larger


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _grown(array: _Array) -> _Array:
    larger = np.empty(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _seal_row(row: _Array, begin: int, end: int) -> int:
    """The end of the row once it is sorted and free of repetitions."""
    rising = True
    for i in range(begin + 1, end):
        rising = rising and row[i - 1] < row[i]
    if rising:
        return end
    if end - begin <= 32:
        for i in range(begin + 1, end):
            value = row[i]
            j = i
            while j > begin and row[j - 1] > value:
                row[j] = row[j - 1]
                j -= 1
            row[j] = value
    else:
        row[begin:end].sort()
    kept = begin + 1
    for i in range(begin + 1, end):
        if row[i] != row[kept - 1]:
            row[kept] = row[i]
            kept += 1
    return kept
