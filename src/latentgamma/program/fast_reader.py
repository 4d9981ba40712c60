"""Reads the rules of large texts with compiled loops; texts it does not understand go to `rule_text`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma.program.compilation import compile_loop
from latentgamma.program.program import Program, sorted_sets

# ---- A hash table that numbers names as they appear

_Array = npt.NDArray[Any]
_Bytes = npt.NDArray[np.uint8]

#: Places in the array `counts`: the number of atoms, where their names end, the same two before
#: the statement being read, and a number that is written so that two loops are not optimised away.
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


@compile_loop
def hash_name(names: _Bytes, begin: int, end: int) -> int:
    """Return a number below 2**32 that depends on every byte."""
    value = _HASH_START
    for i in range(begin, end):
        value = (value ^ np.uint64(names[i])) * _HASH_FACTOR
    return int((value ^ (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@compile_loop
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
    """Return the table with the waiting names in it; empty once a look-up takes too long.

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


@compile_loop
def _same(names: _Bytes, one: int, other: int) -> bool:
    """Return whether two names are equal; both end with their line."""
    while names[one] == names[other]:
        if names[one] == _NEWLINE:
            return True
        one, other = one + 1, other + 1
    return False


@compile_loop
def _grow(table: _Array) -> _Array:
    """Return the same entries in a table twice as large."""
    larger = np.zeros((2 * len(table), 2), np.int64)
    mask = len(larger) - 1
    for i in range(len(table)):
        if table[i, 0]:
            slot = (table[i, 0] >> _SHIFT) & mask
            while larger[slot, 0]:
                slot = (slot + 1) & mask
            larger[slot, 0], larger[slot, 1] = table[i, 0], table[i, 1]
    return larger


# ---- Names copied out of a rule text
# Each function returns where the name ends in the text and where its copy ends in `names`. The copy
# is empty, so that it ends where it begins, if the name needs the reader in Python.

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


@compile_loop
def copy_name(data: _Bytes, at: int, names: _Bytes, begin: int) -> tuple[int, int]:
    """Return where the name at `at` ends in the text and in `names`; nowhere if it is not plain."""
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


@compile_loop
def _copy_word(data: _Bytes, at: int, names: _Bytes, begin: int) -> tuple[int, int]:
    """Return where a word or number ends in the text and in `names`; nowhere if there is none."""
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


@compile_loop
def _copy_quoted(data: _Bytes, at: int, names: _Bytes, begin: int) -> tuple[int, int]:
    """Return where a quoted text ends in the text and in `names`, quotes included, or nowhere."""
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


# ---- The reader of plain rules
# It reads words, numbers, ground terms, quoted names without escapes, `:-`, `<-`, `#external`,
# `#show` and the comments `%` and `/* */`. At anything else, right or wrong, it stops, and
# `rule_text` goes on from the start of that statement. What it does read it reads exactly as
# `rule_text` does, which a test checks.

_PERCENT, _STAR, _MINUS, _AT, _SPACE, _TAB = b"%*-@ \t"
_DOT, _SLASH, _COLON, _LESS, _GREATER, _HASH = b"./:<>#"
_EXTERNAL = np.frombuffer(b"#external", np.uint8)
_SHOW = np.frombuffer(b"#show", np.uint8)

_non_word = re.compile(r"[^\x00-\x7f\w]").search


def scan_rules(data: bytes) -> tuple[Program, int] | None:
    """Return the program of the statements read, and where the next statement may start.

    The result is None if the text cannot be read at all.

    >>> program, end = scan_rules(b"bird :- penguin.  % comment")
    >>> print(program), end
    bird :- penguin.
    (None, 27)
    >>> scan_rules(b"bird :- penguin.  flies :- bird, not penguin.")[1]
    16
    """
    if b"\0" in data or data.count(b"\r") != data.count(b"\r\n"):
        return None
    understood, count, end, joined, body_ends, bodies, head_ends, heads = _scan(
        np.frombuffer(data, np.uint8)
    )
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
    bodies, body_ends = sorted_sets(bodies, body_ends)
    heads, head_ends = sorted_sets(heads, head_ends)
    atoms = tuple(names.split("\n")[:count])
    return Program._from_sorted_rows(atoms, body_ends, bodies, head_ends, heads), end


@compile_loop
def _scan(
    data: _Bytes,
) -> tuple[bool, int, int, _Bytes, _Array, _Array, _Array, _Array]:
    """Return whether this worked, the number of atoms, the end, the names by line, and the rows."""
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
    counts = np.zeros(5, np.int64)  # indexed by ATOMS to SPARE
    waiting = np.empty((BATCH + 1, 3), np.int64)  # where a name begins, its hash, where it goes
    batch = 0
    statement_start = (
        0  # the first name waiting that belongs to this statement; -1 if more came before
    )
    arrow = 0  # the first byte of this statement's arrow
    declaring = False
    last = 0  # the token before: 0 none in this statement, 1 an atom, 2 a comma, 3 an arrow
    start = at = 0  # where this statement may start, and where we are
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
            end = at + 1
            while end < size and (data[end] == _SPACE or data[end] == _TAB):
                end += 1
            if end < size and data[end] == _AT:  # it may be a label
                break
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
    table = intern_names(table, names, counts, waiting, statement_start, batch, heads, bodies)
    if last:  # what comes next is for the other reader: forget what this statement added
        counts[ATOMS], counts[NAMES_END] = counts[ATOMS_BEFORE], counts[END_BEFORE]
        at = start
    return (
        len(table) > 0,
        counts[ATOMS],
        at,
        names[: counts[NAMES_END]],
        body_ends[: rules + 1],
        bodies[: body_ends[rules]],
        head_ends[: rules + 1],
        heads[: head_ends[rules]],
    )


@compile_loop
def _starts_with(data: _Bytes, at: int, word: _Bytes) -> bool:
    """Return whether this word and a blank after it stand here."""
    if at + len(word) >= len(data) or CLASS[data[at + len(word)]] != BLANK:
        return False
    same = 0
    while same < len(word) and data[at + same] == word[same]:
        same += 1
    return same == len(word)


@compile_loop
def _end_of_show(data: _Bytes, at: int) -> int:
    """Return where the '.' of a `#show` stands; the end of the text if that is not plain to see."""
    while at < len(data) and data[at] != _DOT:
        if data[at] == _QUOTE or data[at] == _PERCENT:
            return len(data)
        at += 1
    if at + 1 < len(data) and (data[at + 1] == _DOT or CLASS[data[at + 1]] == DIGIT):
        return len(data)
    return at
