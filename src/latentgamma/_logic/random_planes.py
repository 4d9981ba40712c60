"""Random fact sets as bit planes: independent bits with given probabilities.

An atom with probability p is in a fact set if a uniform number U < p. The bits of U are drawn from
the highest on, for 64 fact sets at a time, and only until U and p differ: about eight random words
make one word of the planes. Each random word is a hash of the seed, the atom, the place of the bit
and the number of the word, so the planes do not depend on the number of threads, and any part of
them can be drawn on its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ArgumentError
from latentgamma._logic.bit_planes import Planes, whole_number
from latentgamma._logic.threads import processors, run_in_threads
from latentgamma._program.compilation import Cells, compile_loop, worth_compiling

#: Bits of U that are drawn for all words before the words that are still undecided go on alone.
ROUNDS = 8
# Words that numpy draws in the time that Python visits one literal.
_WORDS_PER_LITERAL = 10
# Words of the planes for which starting one more thread pays.
_WORDS_PER_THREAD = 1 << 16
# Words of a row that are drawn together: they stay in the cache.
_WIDTH = 256

# Odd factors that tell words, places of bits and atoms apart.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
ODD = np.uint64(0xD1B54A32D192ED03)


def random_planes(probabilities: npt.ArrayLike, N: int, *, seed: int = 0, start: int = 0) -> Planes:
    """Bit planes of N random fact sets, in which atoms are true independently of one another.

    >>> from latentgamma import unpack
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
    first = start // 64
    if worth_compiling(len(drawn) * planes.shape[1] // _WORDS_PER_LITERAL):
        _draw_compiled(planes, drawn, bound, key, first)
    else:
        planes[drawn] = _draw_with_numpy(drawn, bound[drawn], key, first, planes.shape[1])
    if N % 64:
        planes[:, -1] &= np.uint64((1 << (N % 64)) - 1)
    return planes


def _draw_compiled(
    planes: Planes,
    drawn: npt.NDArray[np.int64],
    bound: npt.NDArray[np.uint64],
    key: np.uint64,
    first: int,
) -> None:
    from latentgamma._logic.random_loops import draw_row

    draw = compile_loop(draw_row)
    queue = iter(drawn.tolist())  # shared: each thread takes the next row when it is free

    def work() -> None:
        undecided = np.empty(_WIDTH, np.uint64)
        for i in queue:
            draw(np.uint64(i), bound[i], key, np.uint64(first), planes[i], undecided)

    words = len(drawn) * planes.shape[1]
    run_in_threads(work, min(processors(), len(drawn), 1 + words // _WORDS_PER_THREAD))


def _draw_with_numpy(
    rows: npt.NDArray[np.int64],
    bound: npt.NDArray[np.uint64],
    key: np.uint64,
    first: int,
    width: int,
) -> Planes:
    row = (rows.astype(np.uint64) + np.uint64(1)) * ODD
    word = (np.uint64(first + 1) + np.arange(width, dtype=np.uint64)) * GOLDEN
    true = np.zeros((len(rows), width), np.uint64)
    undecided = np.full((len(rows), width), ~np.uint64(0))
    place = np.nonzero(undecided)
    for r in range(64):
        if r >= ROUNDS or r == 0:
            place = np.nonzero(undecided)
            if not len(place[0]):
                break
        i, w = place
        stream = mix(key + row + np.uint64((r + 1) * int(GOLDEN) % 2**64))
        random = mix(stream[i] + word[w])
        ones = np.uint64(0) - ((bound[i] >> np.uint64(63 - r)) & np.uint64(1))
        open_bits = undecided[i, w]
        true[i, w] |= open_bits & ~random & ones
        undecided[i, w] = open_bits & ~(random ^ ones)
    return true


def mix(z: Cells) -> Cells:
    """The output function of SplitMix64, a hash of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
