"""Programs of uniformly random rules, up to millions of them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ProgramError
from latentgamma._program.program import Program
from latentgamma.generators.arguments import count, generator, size_range

_Ints: TypeAlias = npt.NDArray[np.int64]


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

    Rules are drawn independently of one another, so one may come twice. A million rules take
    about a second.

    >>> random(100, 300)
    Program(M=100, R=300, k=3, rho_max=9)
    >>> for rule in random(5, 2, body=2, facts=1, acyclic=True).rules:
    ...     print(rule)
    a3.
    a4 :- a1, a2.
    a3 :- a0, a1.

    Args:
        atoms: the number of atoms.
        rules: the number of rules with a body.
        body: the size of each body, or a pair (smallest, largest) to draw it from.
        heads: the number of heads of each rule, or such a pair.
        seed: the same seed gives the same program.
        acyclic: whether the body atoms of a rule come before its heads in the order of the atoms.
        facts: the number of rules with an empty body, on different atoms: R = rules + facts.

    Returns:
        The program.

    Raises:
        ProgramError: if a number is out of its range, or there are too few atoms.
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
        head_flat = draw_distinct(head_sizes, M - body_sizes, rng) + np.repeat(
            body_sizes, head_sizes
        )
        lowest = head_flat[np.cumsum(head_sizes) - head_sizes]
        body_flat = draw_distinct(body_sizes, lowest, rng)
    else:
        head_flat = draw_distinct(head_sizes, np.full(R, M), rng)
        body_flat = draw_distinct(body_sizes, M - head_sizes, rng)
        _skip_heads(body_flat, body_sizes, head_flat, head_sizes)
    own = np.sort(rng.choice(M, stated, replace=False)) if stated else np.zeros(0, np.int64)
    return Program.from_arrays(
        offsets_of(np.concatenate((np.zeros(stated, np.int64), body_sizes))),
        body_flat,
        np.concatenate((own, head_flat)),
        offsets_of(np.concatenate((np.ones(stated, np.int64), head_sizes))),
        atoms=M,
    )


def draw_distinct(sizes: _Ints, pools: _Ints, rng: np.random.Generator) -> _Ints:
    """Row by row, `sizes[j]` different numbers below `pools[j]`, rising; the rows laid flat.

    Every subset of a row's pool is equally likely: what repeats within a row is drawn again,
    which treats all numbers alike. For rows that need most of their pool that would take
    long; they sort random keys instead.
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


def _skip_heads(body: _Ints, body_sizes: _Ints, heads: _Ints, head_sizes: _Ints) -> None:
    """Renumber bodies in place so that each skips the heads of its rule."""
    start = np.cumsum(head_sizes) - head_sizes
    for p in range(int(head_sizes.max(initial=0))):
        # Rows with fewer heads compare with a number no atom has.
        last = np.full(len(head_sizes), np.iinfo(np.int64).max)
        has = head_sizes > p
        last[has] = heads[start[has] + p]
        body += body >= np.repeat(last, body_sizes)


def offsets_of(sizes: _Ints) -> _Ints:
    """Where each run of the given size starts, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
