"""Families of programs that scale: chains, ladders, cliques, grids and layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ProgramError
from latentgamma._program.program import Program
from latentgamma.generators.arguments import count, generator
from latentgamma.generators.random_programs import draw_distinct, offsets_of

_Ints: TypeAlias = npt.NDArray[np.int64]


# -------------------------------------------------------------------- families that scale


def chain(n: int, *, body: int = 1) -> Program:
    """A chain of n atoms, each of which needs the `body` atoms before it.

    M = n, R = n - body, k = body, rho_max = 1; the depth from the first `body` atoms is
    n - body. With `body=2` a fact in the middle shortens the derivation by one step only.

    >>> print(chain(4, body=2).rules[0], chain(4, body=2).rules[1])
    a2 :- a0, a1. a3 :- a1, a2.

    Args:
        n: the number of atoms.
        body: the number of body atoms of each rule.

    Returns:
        The program.

    Raises:
        ProgramError: if a number is out of its range.
    """
    M, k = count("n", n, 1), count("body", body, 1)
    if k > M:
        raise ProgramError(f"body={k} atoms before an atom need a longer chain than n={M}")
    heads = np.arange(k, M)
    bodies = heads[:, None] + np.arange(-k, 0)  # (R, k)
    return _uniform(bodies, heads, M)


def ladder(layers: int, k: int) -> Program:
    """A ladder: `layers` layers above a first one, each of k atoms that need all k below.

    M = (layers + 1) k, R = layers k, bodies of size k, rho_max = 1; the depth from the
    first layer is `layers`, and a layer that lacks one atom derives nothing.

    >>> ladder(2, 3)
    Program(M=9, R=6, k=3, rho_max=1)
    >>> print(ladder(2, 3).rules[0])
    layer1_0 :- layer0_0, layer0_1, layer0_2.

    Args:
        layers: the number of layers above the first.
        k: the number of atoms of a layer.

    Returns:
        The program.

    Raises:
        ProgramError: if a number is out of its range.
    """
    depth, width = count("layers", layers), count("k", k, 1)
    heads = np.arange(width, (depth + 1) * width)
    bodies = (heads // width - 1)[:, None] * width + np.arange(width)  # (R, k)
    return _uniform(bodies, heads, _layer_names(depth + 1, width))


def clique(n: int) -> Program:
    """A clique: every atom implies every other.

    M = n, R = n (n - 1), k = 1, rho_max = n - 1; any fact derives everything in one step.

    >>> clique(4)
    Program(M=4, R=12, k=1, rho_max=3)

    Args:
        n: the number of atoms.

    Returns:
        The program.

    Raises:
        ProgramError: if a number is out of its range.
    """
    M = count("n", n, 1)
    heads = np.repeat(np.arange(M), M - 1)
    bodies = np.tile(np.arange(M - 1), M)
    return _uniform((bodies + (bodies >= heads))[:, None], heads, M)


def grid(rows: int, cols: int) -> Program:
    """A grid of cells, each of which needs its upper and its left neighbour.

    The first row and column need the one neighbour they have. M = rows cols, R = M - 1,
    k = 2 (1 where there is only one row or column), rho_max = 1; the depth from the corner
    `cell_0_0` is rows + cols - 2.

    >>> grid(3, 4)
    Program(M=12, R=11, k=2, rho_max=1)
    >>> print(grid(3, 4).rules[-1])
    cell_2_3 :- cell_1_3, cell_2_2.

    Args:
        rows: the number of rows.
        cols: the number of columns.

    Returns:
        The program.

    Raises:
        ProgramError: if a number is out of its range.
    """
    height, width = count("rows", rows, 1), count("cols", cols, 1)
    cells = np.arange(1, height * width)
    neighbours = np.stack((cells - width, cells - 1), axis=1)  # (R, 2), upper and left
    exists = np.stack((cells >= width, cells % width > 0), axis=1)
    names = [f"cell_{row}_{col}" for row in range(height) for col in range(width)]
    return Program.from_arrays(
        offsets_of(exists.sum(axis=1)), neighbours[exists], cells, atoms=names
    )


def layered(layers: int, width: int, *, body: int = 2, per_head: int = 2, seed: int = 0) -> Program:
    """A random layered program: `per_head` different rules for each atom above the first layer.

    Each body is `body` atoms of the layer below. M = (layers + 1) width,
    R = layers width per_head, k = body, rho_max = per_head; the depth from the first layer
    is `layers`.

    >>> layered(3, 10, per_head=4)
    Program(M=40, R=120, k=2, rho_max=4)

    Args:
        layers: the number of layers above the first.
        width: the number of atoms of a layer.
        body: the number of body atoms of each rule.
        per_head: the number of rules of each atom.
        seed: the same seed gives the same program.

    Returns:
        The program.

    Raises:
        ProgramError: if a number is out of its range.
    """
    depth, across = count("layers", layers), count("width", width, 1)
    k, ways = count("body", body, 1), count("per_head", per_head, 1)
    if ways > math.comb(across, k):
        raise ProgramError(
            f"a layer of width={across} has {math.comb(across, k)} different bodies of {k} "
            f"atoms, but per_head={ways}; ask for wider layers, other bodies or fewer rules"
        )
    rng = generator(seed)
    heads = np.repeat(np.arange(across, (depth + 1) * across), ways)
    bodies = np.zeros((len(heads), k), np.int64)  # (R, k), within the layer below
    again = np.arange(len(heads))
    # A body is known by the sum of its atoms' random marks, and a rule by its head as well.
    marks = rng.integers(0, 2**63, across, np.uint64)
    while len(again):
        sizes = np.full(len(again), k)
        bodies[again] = draw_distinct(sizes, np.full(len(again), across), rng).reshape(-1, k)
        sums = marks[bodies].sum(axis=1)
        order = np.lexsort((sums, heads))
        same = (np.diff(sums[order]) == 0) & (np.diff(heads[order]) == 0)
        again = order[1:][same]
    below = (heads // across - 1)[:, None] * across
    return _uniform(below + bodies, heads, _layer_names(depth + 1, across))


def _uniform(bodies: _Ints, heads: _Ints, atoms: Sequence[str] | int) -> Program:
    """The program of bodies that all have one size. Shapes (R, k) and (R,)."""
    R, k = bodies.shape
    return Program.from_arrays(np.arange(R + 1) * k, bodies.ravel(), heads, atoms=atoms)


def _layer_names(layers: int, width: int) -> list[str]:
    return [f"layer{layer}_{i}" for layer in range(layers) for i in range(width)]
