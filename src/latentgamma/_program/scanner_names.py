"""Compiled code that copies a name out of a rule text.

Each function returns where the name ends in the text and where its copy ends in `names`. The copy
is empty, so that it ends where it begins, if the name needs the reader in Python.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]

# What a byte can be part of. Bytes above 127 belong to characters that count as letters.
LETTER, DIGIT, CAPITAL, UNDERSCORE, BLANK = 1, 2, 4, 8, 16
_WORD = LETTER | DIGIT | CAPITAL | UNDERSCORE
CLASS = np.zeros(256, np.uint8)
CLASS[128:] = LETTER
CLASS[ord("a") : ord("z") + 1] = LETTER
CLASS[ord("0") : ord("9") + 1] = DIGIT
CLASS[ord("A") : ord("Z") + 1] = CAPITAL
CLASS[ord("_")] = UNDERSCORE
CLASS[[ord(" "), ord("\t"), ord("\n"), ord("\r")]] = BLANK


_QUOTE, _PRIME, _OPEN, _CLOSE, _COMMA, _BACKSLASH = b"\"'(),\\"
_NOT = np.frombuffer(b"not", np.uint8)


@numba.njit(cache=True)
def copy_name(data: _Bytes, at: int, names: _Bytes, begin: int) -> tuple[int, int]:
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
    if CLASS[data[at]] == DIGIT:
        return at, begin
    depth = 1
    names[end] = _OPEN
    at, end = after + 1, end + 1
    ready = True  # for an argument
    while depth:
        while at < len(data) and CLASS[data[at]] == BLANK:
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
                    if CLASS[first] == DIGIT:
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
    while at < len(data) and CLASS[data[at]] & _WORD:
        kind = CLASS[data[at]]
        if first == 0 and kind != UNDERSCORE:
            first = kind
        kinds |= kind
        names[end] = data[at]
        at, end = at + 1, end + 1
    number = kinds == DIGIT
    if first != LETTER and not number:
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
