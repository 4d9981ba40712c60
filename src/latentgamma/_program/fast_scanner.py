"""A compiled reader for large texts of plain rules, which leaves all else to `rule_text`.

It reads words, numbers, ground terms, quoted names without escapes, `:-`, `<-`, `#external`,
`#show` and the comments `%` and `/* */`. At anything else, right or wrong, it stops and says
where, and `rule_text` goes on from there. What it does read it reads exactly as `rule_text`
does, which a test checks.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from latentgamma._program.name_table import (
    ATOMS,
    ATOMS_BEFORE,
    BATCH,
    END_BEFORE,
    NAMES_END,
    NO_PLACE,
    hash_name,
    intern_names,
)
from latentgamma._program.program import Indices, Program
from latentgamma._program.scanner_names import BLANK, CLASS, DIGIT, copy_name
from latentgamma._program.sorted_rows import sort_rows

_Bytes = npt.NDArray[np.uint8]
_Array = npt.NDArray[Any]

_NEWLINE, _QUOTE, _PERCENT, _PRIME, _STAR, _COMMA, _MINUS = b"\n\"%'*,-"
_DOT, _SLASH, _COLON, _LESS, _GREATER, _HASH = b"./:<>#"
_EXTERNAL = np.frombuffer(b"#external", np.uint8)
_SHOW = np.frombuffer(b"#show", np.uint8)

_non_word = re.compile(r"[^\x00-\x7f\w]").search


class Rest(NamedTuple):
    """Where the compiled reader stopped, and what it knows of the statement there."""

    at: int  # where the token is that it left, in bytes
    token_end: int  # where the token before that ends
    last: str  # what that token is: "" if a statement starts, "atom", ",", ":-" or "<-"
    heads: Indices  # the atoms before the arrow of the statement
    body: Indices  # those after it


def scan_rules(data: bytes) -> tuple[Program, Rest | None] | None:
    """The program of the statements read, and what is left; None if compiled code cannot read this text.

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
    at, token_end, last, arrow = stop.tolist()
    rest = None
    if at < len(data) or last:
        sign = ":-" if arrow == _COLON else "<-"
        rest = Rest(at, token_end, ("", "atom", ",", sign)[last], heads, body)
    try:
        names = joined.tobytes().decode()
        if not data.isascii():
            if _non_word(names):
                return None
            data.decode()  # comments must be valid UTF-8 too
    except UnicodeDecodeError:
        return None
    return Program._from_sorted_rows(tuple(names.split("\n")[:count]), *rows), rest


@numba.njit(cache=True)
def _scan(
    data: _Bytes,
) -> tuple[bool, int, _Array, _Bytes, _Array, _Array, _Array, _Array, _Array, _Array]:
    """Whether this worked, the atoms (number, names by line), the rows, and what is left."""
    size = len(data)
    # A comma, an arrow or a dot follows each atom, and a rule has one dot and at most one
    # arrow. Memory that is reserved and never written costs nothing.
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
    counts = np.zeros(5, np.int64)  # see `name_table`
    waiting = np.empty((BATCH + 1, 3), np.int64)  # where a name begins, its hash, where it goes
    batch = 0
    statement_start = (
        0  # the first name waiting that belongs to this statement; -1 if more came before
    )
    arrow = 0  # the first byte of this statement's arrow
    declaring = False
    last = 0  # the token before: 0 none in this statement, 1 an atom, 2 a comma, 3 an arrow
    start = token_end = at = 0  # where this statement may start, the last token ends, and we are
    while at < size:
        byte = data[at]
        following = data[at + 1] if at + 1 < size else np.uint8(0)
        if CLASS[byte] == BLANK:
            at += 1
            continue
        if CLASS[byte] or byte in (_QUOTE, _PRIME):
            begin = waiting[batch, 0] if batch else counts[NAMES_END]
            after, end = copy_name(data, at, names, begin)
            if end == begin or last == 1:
                break
            names[end] = _NEWLINE
            waiting[batch, 0] = begin
            waiting[batch, 1] = hash_name(names, begin, end)
            if arrow:
                waiting[batch, 2] = body_count
                body_count += 1
            elif declaring:
                waiting[batch, 2] = NO_PLACE
            else:
                waiting[batch, 2] = ~head_count
                head_count += 1
            batch += 1
            waiting[batch, 0] = end + 1
            last = 1
            at = after
            if batch == BATCH:
                table = intern_names(
                    table, names, counts, waiting, statement_start, batch, heads, bodies
                )
                batch, statement_start = 0, -1
        elif byte == _COMMA:
            if last != 1 or declaring:
                break
            last = 2
            at += 1
        elif byte == _DOT:
            complete = last == 1 or (last == 3 and not declaring)
            if not complete or following == _DOT or CLASS[following] == DIGIT:
                break
            if not declaring:
                rules += 1
                head_ends[rules], body_ends[rules] = head_count, body_count
            last = arrow = 0
            declaring = False
            at += 1
            start, statement_start = at, batch
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
            if _starts_with(data, at, _EXTERNAL):
                declaring = True
                last = 3
                at += len(_EXTERNAL)
            elif _starts_with(data, at, _SHOW):
                after = _end_of_show(data, at + len(_SHOW))
                if after == size:
                    break
                at = after + 1
                start, statement_start = at, batch
            else:
                break
        else:
            break
        token_end = at
    table = intern_names(table, names, counts, waiting, statement_start, batch, heads, bodies)
    if last and not arrow:
        # Without an arrow these may be no heads at all: forget what this statement start.
        counts[ATOMS], counts[NAMES_END] = counts[ATOMS_BEFORE], counts[END_BEFORE]
        at = token_end = start
        last = 0
        head_count = head_ends[rules]
    stop = np.empty(4, np.int64)
    stop[0], stop[1], stop[2], stop[3] = at, token_end, last, arrow
    # Sealing only moves indices to the left, so that what is left stays where it is.
    head_start, body_start = head_ends[rules], body_ends[rules]
    return (
        len(table) > 0,
        counts[ATOMS],
        stop,
        names[: counts[NAMES_END]],
        body_ends[: rules + 1],
        bodies[: sort_rows(bodies, body_ends[: rules + 1])],
        head_ends[: rules + 1],
        heads[: sort_rows(heads, head_ends[: rules + 1])],
        heads[head_start:head_count],
        bodies[body_start:body_count],
    )


@numba.njit(cache=True)
def _starts_with(data: _Bytes, at: int, word: _Bytes) -> bool:
    """Whether this word and a blank after it stand here."""
    if at + len(word) >= len(data) or CLASS[data[at + len(word)]] != BLANK:
        return False
    same = 0
    while same < len(word) and data[at + same] == word[same]:
        same += 1
    return same == len(word)


@numba.njit(cache=True)
def _end_of_show(data: _Bytes, at: int) -> int:
    """Where the '.' of a `#show` stands; the end of the text if that is not plain to see."""
    while at < len(data) and data[at] != _DOT:
        if data[at] == _QUOTE or data[at] == _PERCENT:
            return len(data)
        at += 1
    if at + 1 < len(data) and (data[at + 1] == _DOT or CLASS[data[at + 1]] == DIGIT):
        return len(data)
    return at
