"""Fact sets as bit planes: packing, unpacking and drawing them at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import whole_number
from latentgamma.errors import ArgumentError
from latentgamma.program.compilation import (
    Cells,
    compile_loop,
    processors,
    run_in_threads,
    worth_compiling,
)
from latentgamma.program.facts import Mask

# ---- Bit planes: many fact sets as one row of bits for each atom
# Bit n % 64 of word n // 64 in row i says whether atom i is in fact set n. The words are uint64
# numpy arrays of shape (M, ceil(N / 64)).

Planes: TypeAlias = npt.NDArray[np.uint64]
Octets: TypeAlias = npt.NDArray[np.uint8]

#: Of about this many bytes, packed and unpacked, compiled code saves the time in which Python visits
#: one literal: G4 takes numpy 2.7 ms for 10 MB, and compiled code 1.3 ms.
BYTES_PER_LITERAL = 8192
# Fact sets that are packed together, a multiple of 64. Of 65,536 sets as a whole, a column of the
# planes would fall into a few sets of the cache, and take twice as long.
_CHUNK = 2048
# Bytes that numpy fills or reads together, eight sets in each: they stay in the second-level cache.
# On G4, parts of 2^16 bytes take 1.6 times as long, because of the calls, and of 2^19 1.1 times.
_PART_BYTES = 1 << 18


def pack(rows: npt.ArrayLike) -> Planes:
    """Return the bit planes of boolean rows.

    >>> planes = pack([[True, False], [True, True], [False, True]])
    >>> planes
    array([[3],
           [6]], dtype=uint64)
    >>> unpack(planes, 3)
    array([[ True, False],
           [ True,  True],
           [False,  True]])

    Args:
        rows: one row for each fact set and one column for each atom, shape (N, M): booleans, or
            numbers 0 and 1.

    Returns:
        Bit planes of shape (M, ceil(N / 64)); bits beyond the last fact set are 0.

    Raises:
        ArgumentError: if this is not such an array.
    """
    given = _as_array(rows, "pack")
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise ArgumentError(
            f"pack takes an array of shape (N, M) with booleans or 0 and 1, not {given.dtype} of "
            f"shape {given.shape}"
        )
    if given.dtype != np.bool_:
        if not np.all((given == 0) | (given == 1)):
            raise ArgumentError("pack takes the values 0 and 1 only; use rows > 0.5 for a state")
        given = given.astype(np.bool_)
    N, M = given.shape
    planes = np.zeros((M, -(-N // 64)), np.uint64)
    if not planes.size:
        return planes
    if not worth_compiling(given.size // BYTES_PER_LITERAL):
        pack_with_numpy(given, planes)
        return planes
    for start in range(0, N, _CHUNK):
        part = np.ascontiguousarray(given[start : start + _CHUNK])
        words = np.empty((M, -(-len(part) // 64)), np.uint64)
        pack_into(part, words)
        planes[:, start // 64 : start // 64 + words.shape[1]] = words
    return planes


def unpack(planes: Planes, N: int) -> Mask:
    """Return the boolean rows of the first N fact sets of bit planes.

    >>> unpack(np.array([[3], [6]], np.uint64), 3)
    array([[ True, False],
           [ True,  True],
           [False,  True]])

    Args:
        planes: bit planes of shape (M, W), as `pack` returns them.
        N: the number of fact sets, from 0 to 64 W.

    Returns:
        One boolean row for each fact set, shape (N, M).

    Raises:
        ArgumentError: if these are not bit planes, or have fewer than N fact sets.
    """
    planes = require_planes(planes, "unpack")
    M, W = planes.shape
    N = whole_number("N", N)
    if N > 64 * W:
        raise ArgumentError(f"N is at most {64 * W}, the fact sets of these planes, not {N}")
    rows = np.empty((N, M), np.bool_)
    if not rows.size:
        return rows
    fill = unpack_into if worth_compiling(rows.size // BYTES_PER_LITERAL) else unpack_with_numpy
    fill(np.ascontiguousarray(planes[:, : -(-N // 64)]), rows)
    return rows


def require_planes(planes: Any, function: str) -> Planes:
    """Return the planes as an array; an `ArgumentError` if they are not bit planes."""
    array = _as_array(planes, function)
    if array.ndim != 2 or array.dtype != np.uint64:
        hint = (
            "planes.cpu().numpy().view('uint64') are those of a tensor"
            if array.dtype == np.int64
            else "lg.logic.pack(rows) makes them"
        )
        raise ArgumentError(
            f"{function} takes bit planes, a uint64 array of shape (M, W), not {array.dtype} of "
            f"shape {array.shape}; {hint}"
        )
    return array


def _as_array(given: Any, function: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; tensors with gradients
        raise ArgumentError(f"{function} takes an array: {error}") from None


def pack_into(rows: Mask, planes: Planes) -> None:
    """Fill planes with boolean rows, and with zeros beyond them, by compiled code."""
    N, M = rows.shape
    last = np.zeros((64, M), np.uint8)
    last[: N % 64] = rows[N - N % 64 :]
    last.flags.writeable = rows.flags.writeable  # the loop is compiled for one kind of array
    work = np.empty(M, np.uint8), np.empty(M, np.uint64)
    compile_loop(pack_rows)(rows.view(np.uint8), last, *work, planes)


def unpack_into(planes: Planes, rows: Mask) -> None:
    """Fill boolean rows with the first fact sets of planes, by compiled code."""
    N, M = rows.shape
    last = np.empty((64, M), np.uint8)
    work = np.empty(M, np.uint8), np.empty(M, np.uint64)
    compile_loop(unpack_rows)(planes, *work, rows.view(np.uint8), last)
    rows[N - N % 64 :] = last[: N % 64]


# With numpy, eight fact sets are combined word by word, whatever the words hold. That is fastest for
# sets that lie far apart, and closures do not depend on the order of the sets. So there is a second
# order: bit b of byte r in a row of K bytes is that of set b K + r, and not of set 8 r + b.


def pack_with_numpy(rows: Mask, planes: Planes, threads: int = 1, *, in_order: bool = True) -> None:
    """Fill planes with boolean rows, and with zeros beyond them."""
    given = rows.view(np.uint8)
    if given.max() > 1:  # numpy takes every byte but 0 for True
        given = (given != 0).view(np.uint8)

    def pack_part(first: int, sets: Octets, octets: Octets) -> None:
        sets[:] = 0
        words = sets.reshape(-1).view(np.uint64)
        for part in reversed(_parts(given, octets.shape[1], first, len(sets), in_order)):
            np.add(words, words, out=words)  # each byte moves by one bit
            np.bitwise_or(sets[: len(part)], part, out=sets[: len(part)])
        octets[:, first : first + len(sets)] = sets.T

    _run_parts(planes, pack_part, threads)


def unpack_with_numpy(
    planes: Planes, rows: Mask, threads: int = 1, *, in_order: bool = True
) -> None:
    """Fill boolean rows with the first fact sets of planes."""
    target = rows.view(np.uint8)

    def unpack_part(first: int, sets: Octets, octets: Octets) -> None:
        sets[:] = octets[:, first : first + len(sets)].T
        words = sets.reshape(-1).view(np.uint64)
        for part in _parts(target, octets.shape[1], first, len(sets), in_order):
            np.bitwise_and(sets[: len(part)], np.uint8(1), out=part)
            np.right_shift(words, np.uint64(1), out=words)

    _run_parts(planes, unpack_part, threads)


def _parts(rows: Octets, K: int, first: int, size: int, in_order: bool) -> list[Octets]:
    """Return the rows of each bit of these bytes; fewer where the rows end."""
    if in_order:
        return [rows[8 * first + b : 8 * (first + size) : 8] for b in range(8)]
    return [rows[b * K + first : b * K + first + size] for b in range(8)]


def _run_parts(planes: Planes, work: Callable[..., None], threads: int) -> None:
    """Call `work` for each part of the bytes of a row, with memory for the sets of the part."""
    octets = planes.view(np.uint8)  # (M, K)
    M, K = octets.shape
    size = 8 * max(1, min(-(-K // (8 * threads)), _PART_BYTES // (8 * M)))
    starts = iter(range(0, K, size))  # shared: each thread takes the next part when it is free

    def run() -> None:
        sets = np.empty((size, M), np.uint8)
        for first in starts:
            work(first, sets[: K - first], octets)

    run_in_threads(run, min(threads, -(-K // size)))


# ---- Loops
#
# Between the bytes of the rows and the words of the planes lie `octet` (M,), eight sets in a byte,
# and `line` (M,), 64 sets in a word. The loops along the atoms become vector instructions, because
# both sides are contiguous there and each shift is by a constant. `last` (64, M) has the rows of
# the last word where there are fewer than 64.


def pack_rows(rows: Cells, last: Cells, octet: Cells, line: Cells, planes: Cells) -> None:
    """Fill `planes` (M, W) with the bytes of `rows` (N, M)."""
    N, atoms = rows.shape
    for w in range(planes.shape[1]):
        sets = rows[64 * w : 64 * w + 64] if 64 * w + 64 <= N else last
        line[:] = 0
        for g in range(8):
            octet[:] = 0
            for b in range(8):
                source = sets[8 * g + b]
                for i in range(atoms):
                    octet[i] |= np.uint8(source[i] != 0) << b
            for i in range(atoms):
                line[i] |= np.uint64(octet[i]) << np.uint64(8 * g)
        for i in range(atoms):
            planes[i, w] = line[i]


def unpack_rows(planes: Cells, octet: Cells, line: Cells, rows: Cells, last: Cells) -> None:
    """Fill the bytes of `rows` (N, M) with the bits of `planes` (M, W)."""
    N, atoms = rows.shape
    for w in range(planes.shape[1]):
        sets = rows[64 * w : 64 * w + 64] if 64 * w + 64 <= N else last
        for i in range(atoms):
            line[i] = planes[i, w]
        for g in range(8):
            for i in range(atoms):
                octet[i] = line[i] >> np.uint64(8 * g)
            for b in range(8):
                target = sets[8 * g + b]
                for i in range(atoms):
                    target[i] = (octet[i] >> b) & 1


# ---- Random fact sets as bit planes: independent bits with given probabilities
# An atom with probability p is in a fact set if a uniform number U < p. The bits of U are drawn from
# the highest on, for 64 fact sets at a time, and only until U and p differ: about eight random words
# make one word of the planes. Each random word is a hash of the seed, the atom, the place of the bit
# and the number of the word, so the planes do not depend on the number of threads, and any part of
# them can be drawn on its own.

#: Bits of U that are drawn for all words before the words that are still undecided go on alone.
ROUNDS = 8
# Literals that Python visits in the time in which it draws one word.
_LITERALS_PER_WORD = 50
# Words of the planes for which starting one more thread pays.
_WORDS_PER_THREAD = 1 << 16
# Words of a row that are drawn together: they stay in the cache.
_WIDTH = 256

# Odd factors that tell words, places of bits and atoms apart.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
ODD = np.uint64(0xD1B54A32D192ED03)


def random_planes(probabilities: npt.ArrayLike, N: int, *, seed: int = 0, start: int = 0) -> Planes:
    """Return bit planes of N random fact sets, in which atoms are true independently.

    >>> from latentgamma.logic import unpack
    >>> planes = random_planes([0.0, 0.25, 1.0], 10_000)
    >>> planes.shape, unpack(planes, 10_000).mean(0).round(2)
    ((3, 157), array([0.  , 0.25, 1.  ]))

    Args:
        probabilities: the probability of each atom, shape (M,).
        N: the number of fact sets.
        seed: the same seed gives the same fact sets on every machine.
        start: the number of the first fact set, a multiple of 64: fact sets from N on are drawn
            by `random_planes(probabilities, N, start=N)`.

    Returns:
        Bit planes of shape (M, ceil(N / 64)); bits beyond the last fact set are 0.

    Raises:
        ArgumentError: if an argument is out of its range.
    """
    try:
        given = np.asarray(probabilities, np.float64)
    except (ValueError, TypeError, RuntimeError):  # not numbers; a tensor with gradients
        given = np.empty((0, 0))
    if given.ndim != 1 or not np.all((given >= 0) & (given <= 1)):
        raise ArgumentError("probabilities are numbers between 0 and 1, in an array of shape (M,)")
    N, seed, start = whole_number("N", N), whole_number("seed", seed), whole_number("start", start)
    if start % 64 or start >= 1 << 63:
        raise ArgumentError(f"start is a multiple of 64 below 2^63, not {start}")
    planes = np.zeros((len(given), -(-N // 64)), np.uint64)
    planes[given == 1] = ~np.uint64(0)
    drawn = np.flatnonzero((given > 0) & (given < 1))
    bound = np.ldexp(given, 64, where=given < 1, out=np.zeros_like(given)).astype(np.uint64)
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    _draw(planes, drawn, bound, key, start // 64)
    if N % 64:
        planes[:, -1] &= np.uint64((1 << (N % 64)) - 1)
    return planes


def _draw(
    planes: Planes,
    drawn: npt.NDArray[np.int64],
    bound: npt.NDArray[np.uint64],
    key: np.uint64,
    first: int,
) -> None:
    """Fill the rows that are drawn."""
    global _mix
    words, draw = len(drawn) * planes.shape[1], draw_row
    if worth_compiling(words * _LITERALS_PER_WORD):
        draw, _mix = compile_loop(draw_row), compile_loop(mix)
    queue = iter(drawn.tolist())  # shared: each thread takes the next row when it is free

    def work() -> None:
        undecided = np.empty(_WIDTH, np.uint64)
        with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64
            for i in queue:
                draw(np.uint64(i), bound[i], key, np.uint64(first), planes[i], undecided)

    run_in_threads(work, min(processors(), len(drawn), 1 + words // _WORDS_PER_THREAD))


def mix(z: Cells) -> Cells:
    """Return the output function of SplitMix64, a hash of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


#: What `draw_row` calls: machine code, which returns a Python number, once that calls it.
_mix = mix


def draw_row(
    i: Cells, bound: Cells, key: Cells, first: Cells, row: Cells, undecided: Cells
) -> None:
    """Fill the row of atom i, whose probability is bound / 2**64; it comes as zeros.

    `undecided`, which is working memory, says which fact sets have drawn only bits of U that are
    those of the bound.
    """
    one = np.uint64(1)
    atom = key + (i + one) * ODD
    for start in range(0, len(row), len(undecided)):
        size = min(len(undecided), len(row) - start)
        part = row[start : start + size]
        word = first + np.uint64(start) + one
        undecided[:] = ~np.uint64(0)
        rounds = 0
        while rounds < ROUNDS and bound << np.uint64(rounds) != 0:
            ones = np.uint64(0) - ((bound >> np.uint64(63 - rounds)) & one)
            rounds += 1
            stream = np.uint64(_mix(atom + np.uint64(rounds) * GOLDEN)) + word * GOLDEN
            for w in range(size):
                random = np.uint64(_mix(stream + np.uint64(w) * GOLDEN))
                part[w] |= undecided[w] & ~random & ones
                undecided[w] &= ~(random ^ ones)
        for w in range(size):
            r = rounds
            while undecided[w] != 0 and r < 64 and bound << np.uint64(r) != 0:
                ones = np.uint64(0) - ((bound >> np.uint64(63 - r)) & one)
                r += 1
                stream = np.uint64(_mix(atom + np.uint64(r) * GOLDEN))
                random = np.uint64(_mix(stream + (word + np.uint64(w)) * GOLDEN))
                part[w] |= undecided[w] & ~random & ones
                undecided[w] &= ~(random ^ ones)
