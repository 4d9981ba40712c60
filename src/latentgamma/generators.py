"""Programs to try things on: the four of the paper, random ones, and families that scale.

| function | the program | M, R | k | rho_max | depth |
|---|---|---|---|---|---|
| `g1` | one chain, with a switch beside it | 33, 32 | 2 | 2 | 31 |
| `g2` | one domain with conjunctions | 57, 60 | 2 | 3 | 31 |
| `g3` | two cross-related domains | 117, 132 | 2 | 8 | 32 |
| `g4` | eight cross-related domains, in a ring | 504, 648 | 2 | 16 | 32 |
| `disjunctive` | rules of two and three heads | 36, 30 | 2 | | |
| `random` | uniformly drawn rules, up to millions of them | atoms, rules + facts | | | |
| `chain` | each atom needs the `body` atoms before it | n, n - body | body | 1 | n - body |
| `ladder` | each atom needs the whole layer before it | (layers + 1) k, layers k | k | 1 | layers |
| `clique` | every atom implies every other | n, n (n - 1) | 1 | n - 1 | 1 |
| `grid` | each cell needs its upper and its left neighbour | rows cols, rows cols - 1 | 2 | 1 | rows + cols - 2 |
| `layered` | several random rules per atom, layer by layer | (layers + 1) width, layers width per_head | body | per_head | layers |

Depth is the number of steps from the roots, all of them true (the first layer where there
are layers, any one atom of a clique). Every function is deterministic: the same arguments,
`seed` among them, give the same program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import count, generator, size_range
from latentgamma._errors import ProgramError
from latentgamma._paper_programs import disjunctive, g1, g2, g3, g4
from latentgamma._program import Program

__all__ = [
    "g1", "g2", "g3", "g4",
    "disjunctive", "random",
    "chain", "ladder", "clique", "grid", "layered",
]  # fmt: skip

_Ints: TypeAlias = npt.NDArray[np.int64]


# -------------------------------------------------------------------- random programs


def random(
    atoms: int,
    rules: int,
    *,
    body: int | tuple[int, int] = (1, 3),
    heads: int | tuple[int, int] = 1,
    seed: int = 0,
    acyclic: bool = False,
    facts: int = 0,
) -> Program:
    """A program of uniformly random rules, none with a head of its own in its body.

    `body` and `heads` are sizes, or ranges (both ends included) to draw each rule's from.
    Rules are drawn independently of one another, so one may come twice. With `acyclic`, the
    body atoms of a rule come before its heads in the order of the atoms. `facts` adds as
    many rules with an empty body, on different atoms, so R = rules + facts. A million rules
    take about a second.

    >>> random(100, 300)
    Program(M=100, R=300, k=3, rho_max=9)
    >>> for rule in random(5, 2, body=2, facts=1, acyclic=True).rules:
    ...     print(rule)
    a3.
    a4 :- a1, a2.
    a3 :- a0, a1.
    """
    M, R = count("atoms", atoms), count("rules", rules)
    fewest, most = size_range("body", body)
    _, most_heads = head_range = size_range("heads", heads)
    stated = count("facts", facts)
    if R and most + most_heads > M:
        raise ProgramError(
            f"rules with up to {most} body atoms and {most_heads} heads, all different, need "
            f"{most + most_heads} atoms, but atoms={M}; ask for smaller bodies or more atoms"
        )
    if stated > M:
        raise ProgramError(f"facts={stated} different atoms were asked for, but atoms={M}")
    rng = generator(seed)
    body_sizes = rng.integers(fewest, most, R, endpoint=True)
    head_sizes = rng.integers(*head_range, R, endpoint=True)
    if acyclic:
        # Heads keep clear of the first k_j atoms, so that k_j atoms lie before each.
        head_flat = _distinct(head_sizes, M - body_sizes, rng) + np.repeat(body_sizes, head_sizes)
        lowest = head_flat[np.cumsum(head_sizes) - head_sizes]
        body_flat = _distinct(body_sizes, lowest, rng)
    else:
        head_flat = _distinct(head_sizes, np.full(R, M), rng)
        body_flat = _distinct(body_sizes, M - head_sizes, rng)
        _step_over(body_flat, body_sizes, head_flat, head_sizes)
    own = np.sort(rng.choice(M, stated, replace=False)) if stated else np.zeros(0, np.int64)
    return Program.from_arrays(
        _indptr(np.concatenate((np.zeros(stated, np.int64), body_sizes))),
        body_flat,
        np.concatenate((own, head_flat)),
        _indptr(np.concatenate((np.ones(stated, np.int64), head_sizes))),
        atoms=M,
    )


def _distinct(sizes: _Ints, pools: _Ints, rng: np.random.Generator) -> _Ints:
    """Row by row, `sizes[j]` different numbers below `pools[j]`, rising; the rows laid flat.

    Every subset of a row's pool is equally likely: what repeats within a row is drawn again,
    which treats all numbers alike. Rows that want most of their pool would take long that
    way; they sort random keys instead.
    """
    flat = np.zeros(int(sizes.sum()), np.int64)
    row = np.repeat(np.arange(len(sizes)), sizes)
    crowded = 2 * sizes > pools
    sparse = np.flatnonzero(~crowded[row])
    if len(sparse):
        # One sortable number per entry: its row, then its value.
        width = int(pools.max())
        entry_row, entry_pool = row[sparse], pools[row[sparse]]
        keys = np.sort(entry_row * width + rng.integers(0, entry_pool))
        again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
        while len(again):
            fresh = rng.integers(0, entry_pool[again])
            keys[again] = entry_row[again] * width + fresh
            keys.sort()
            again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
        flat[sparse] = keys - entry_row * width
    start = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[crowded]):
        rows = np.flatnonzero(crowded & (sizes == size))
        order = rng.random((len(rows), int(pools[rows].max())))
        order[np.arange(order.shape[1]) >= pools[rows][:, None]] = 2.0  # beyond the row's pool
        first = np.argpartition(order, size - 1, axis=1)[:, :size]
        flat[start[rows][:, None] + np.arange(size)] = np.sort(first, axis=1)
    return flat


def _step_over(body: _Ints, body_sizes: _Ints, heads: _Ints, head_sizes: _Ints) -> None:
    """Renumber bodies in place so that each skips the heads of its rule."""
    start = np.cumsum(head_sizes) - head_sizes
    for p in range(int(head_sizes.max(initial=0))):
        # Rows with fewer heads compare with a number no atom has.
        last = np.full(len(head_sizes), np.iinfo(np.int64).max)
        has = head_sizes > p
        last[has] = heads[start[has] + p]
        body += body >= np.repeat(last, body_sizes)


def _indptr(sizes: _Ints) -> _Ints:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


# -------------------------------------------------------------------- families that scale


def chain(n: int, *, body: int = 1) -> Program:
    """A chain of n atoms, each of which needs the `body` atoms before it.

    M = n, R = n - body, k = body, rho_max = 1; the depth from the first `body` atoms is
    n - body. With `body=2` a fact in the middle shortens the derivation by one step only.

    >>> print(chain(4, body=2).rules[0], chain(4, body=2).rules[1])
    a2 :- a0, a1. a3 :- a1, a2.
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
    """
    height, width = count("rows", rows, 1), count("cols", cols, 1)
    cells = np.arange(1, height * width)
    neighbours = np.stack((cells - width, cells - 1), axis=1)  # (R, 2), upper and left
    exists = np.stack((cells >= width, cells % width > 0), axis=1)
    names = [f"cell_{row}_{col}" for row in range(height) for col in range(width)]
    return Program.from_arrays(_indptr(exists.sum(axis=1)), neighbours[exists], cells, atoms=names)


def layered(layers: int, width: int, *, body: int = 2, per_head: int = 2, seed: int = 0) -> Program:
    """A random layered program: `per_head` different rules for each atom above the first layer.

    Each body is `body` atoms of the layer below. M = (layers + 1) width,
    R = layers width per_head, k = body, rho_max = per_head; the depth from the first layer
    is `layers`.

    >>> layered(3, 10, per_head=4)
    Program(M=40, R=120, k=2, rho_max=4)
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
        bodies[again] = _distinct(sizes, np.full(len(again), across), rng).reshape(-1, k)
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
