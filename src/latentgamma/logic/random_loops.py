"""The compiled loop of `random_planes`. Importing this module imports numba."""

from __future__ import annotations

import numpy as np

from latentgamma.logic.planes import (
    GOLDEN,
    ODD,
    ROUNDS,
    mix,
)
from latentgamma.program.compilation import Cells, compile_loop

_mix = compile_loop(mix)


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
            stream = _mix(atom + np.uint64(rounds) * GOLDEN) + word * GOLDEN
            for w in range(size):
                random = _mix(stream + np.uint64(w) * GOLDEN)
                part[w] |= undecided[w] & ~random & ones
                undecided[w] &= ~(random ^ ones)
        for w in range(size):
            r = rounds
            while undecided[w] != 0 and r < 64 and bound << np.uint64(r) != 0:
                ones = np.uint64(0) - ((bound >> np.uint64(63 - r)) & one)
                r += 1
                stream = _mix(atom + np.uint64(r) * GOLDEN)
                random = _mix(stream + (word + np.uint64(w)) * GOLDEN)
                part[w] |= undecided[w] & ~random & ones
                undecided[w] &= ~(random ^ ones)
