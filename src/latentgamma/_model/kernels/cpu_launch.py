"""The CPU kernel: batches cut into tiles, tiles and blocks dealt out to threads.

A tile of examples goes through all its steps before the next one starts, so that its state
stays in the cache. Threads take tiles; where a tile is too large for a cache, all of them work
on one tile, each on its blocks of rules and atoms.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentgamma._model.kernels import cpu_kernels as kernels
from latentgamma._model.kernels.cpu_kernels import BLOCK, HIGHEST_POWER, Array, Arrays, Gating
from latentgamma._model.kernels.inputs import Flat, Layout
from latentgamma._simd import TILE

#: Up to this many examples go one by one, their exponentials taken side by side by rule.
_FEW = 3
#: Numbers to work out, below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 18
#: Pieces of work for each thread.
_PIECES = 4
#: Bytes of a cache line.
_LINE = 64
#: Numbers of one tile's state from which on threads share a tile: no cache would hold it.
_SHARED_TILE = 1 << 20


class _Bundles(NamedTuple):
    """The arguments of the kernels, see there."""

    M: int
    R: int
    bodies: Arrays
    heads: Arrays
    reach: Arrays
    send: Arrays
    into: Arrays
    offset: Array
    gating: Gating


def _bundles(layout: Layout, flat: Flat, *, bump: bool) -> _Bundles:
    reach, reach_off, reach_on, send_off, send_on, offset = (_array(x) for x in flat[:6])
    gate = float(flat.gate)
    power = int(gate) if gate.is_integer() and 1 <= gate <= HIGHEST_POWER else 0
    return _Bundles(
        layout.M,
        layout.R,
        (_array(layout.body_ptr), _array(layout.body_atom)),
        (_array(layout.head_ptr), _array(layout.head_atom)),
        (reach, reach_off, reach_on),
        (send_off, send_on),
        (_array(layout.into_ptr), _array(layout.into_rule), send_on[_array(layout.into_place)]),
        offset,
        (gate, power, bump),
    )


def _array(tensor: Tensor) -> Array:
    return tensor.detach().contiguous().numpy()


# -------------------------------------------------------------------- the three functions


def forward(
    layout: Layout, flat: Flat, state: Tensor, steps: int, *, bump: bool, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """The last state (B, M); and, to keep, all states, tile by tile."""
    given = _array(state)
    result = np.empty_like(given)
    tiles = _Tiles(len(given), layout, given.dtype)
    kept = tiles.rows((tiles.number, steps + 1), layout.M) if keep else None
    bundles = _bundles(layout, flat, bump=bump)

    def one(tile: int, team: _Team) -> None:
        first, last = tiles.examples(tile)
        states = tiles.rows((1,), layout.M) if kept is None else kept[tile]
        tiles.fill(given[first:last], 1.0, states[0])
        _forward_tile(tiles, bundles, steps, states, team)
        tiles.empty(states[-1], result[first:last])

    def some(first: int, last: int) -> None:
        _, R, bodies, _, reach, send, into, offset, gating = bundles
        room = tiles.rows((1, 1), layout.M) if kept is None else kept
        kernels.forward_tiles(
            *(first, last, steps, given, result, room, bodies, reach, send[0], into, offset),
            *(gating, tiles.rows((), R), tiles.parts(), tiles.sums()),
        )

    tiles.run(one, steps, some if tiles.lanes == TILE else None)
    return torch.from_numpy(result), None if kept is None else torch.from_numpy(kept)


def trajectory(layout: Layout, kept: Tensor, batch: int) -> Tensor:
    """All states that `forward` kept. (T + 1, B, M)."""
    M = layout.M
    if kept.dim() == 3:  # one by one: (B, T + 1, M and a little)
        return kept[:, :, :M].transpose(0, 1).contiguous()
    states = kept.permute(1, 0, 3, 2)  # (T + 1, tiles, TILE, M)
    return states.reshape(len(states), len(kept) * TILE, M)[:, :batch].contiguous()


def backward(
    layout: Layout,
    flat: Flat,
    kept: Tensor,
    given: Tensor,
    *,
    bump: bool,
    learn: bool,
) -> tuple[Tensor, Flat | None]:
    """The gradient of the first state (B, M); and, to learn, of the numbers."""
    come, states = _array(given), _array(kept)
    _, batch, M = come.shape
    tiles = _Tiles(batch, layout, come.dtype)
    bundles = _bundles(layout, flat, bump=bump)
    reach_on = bundles.reach[2][_array(layout.use_place)]
    uses = (_array(layout.use_ptr), _array(layout.use_rule), reach_on)
    result = np.empty((batch, M), come.dtype)
    R = layout.R
    sizes = (R, R, len(bundles.reach[2]), R, len(bundles.send[1]), M)
    # One row of sums for each tile, so that the order of the last sum is fixed too.
    sums = np.zeros((tiles.number if learn else 0, sum(sizes)))
    gates = np.zeros((tiles.number, kernels.blocks_of(M)))

    def one(tile: int, team: _Team) -> None:
        first, last = tiles.examples(tile)
        back = tiles.rows((), M)
        tiles.fill(come[-1, first:last], 0.0, back)
        every = tiles.rows((len(come) - 1,), M)
        for t in range(len(come) - 1):
            tiles.fill(come[t, first:last], 0.0, every[t])
        lanes = tuple(tiles.rows((), size if learn else 0) for size in sizes)
        _backward_tile(tiles, bundles, states[tile], every, back, uses, lanes, gates[tile], team)
        tiles.empty(back, result[first:last])
        if learn:
            ends = np.cumsum(sizes)
            for values, end, size in zip(lanes, ends, sizes, strict=True):
                kernels.add_lanes(values, sums[tile, end - size : end])

    tiles.run(one, states.shape[1] - 1)
    if not learn:
        return torch.from_numpy(result), None
    parts = np.split(sums.sum(0), np.cumsum(sizes)[:-1])
    grads = [*(torch.from_numpy(part) for part in parts), torch.tensor(gates.sum())]
    return torch.from_numpy(result), Flat(*grads)


# -------------------------------------------------------------------- one tile


def _forward_tile(tiles: _Tiles, bundles: _Bundles, steps: int, states: Array, team: _Team) -> None:
    M, R, bodies, _, reach, send, into, offset, gating = bundles
    firing = tiles.rows((), R)
    parts, sums = tiles.parts(), tiles.sums()
    if team.size == 1:
        kernels.forward_tile(
            steps, states, bodies, reach, send[0], into, offset, gating, firing, parts, sums
        )
        return
    team.blocks(kernels.missing, M, M, states[0], parts)
    for t in range(steps):
        now, after = states[t % len(states)], states[(t + 1) % len(states)]
        team.total(parts, M, sums)
        team.blocks(
            kernels.rules_forward,
            R,
            *(now, sums, bodies, reach, send[0], firing, firing[:0], parts),
        )
        team.total(parts, R, sums)
        team.blocks(
            kernels.atoms_forward, M, *(now, after, firing, sums, into, offset, gating, parts)
        )


def _backward_tile(
    tiles: _Tiles,
    bundles: _Bundles,
    states: Array,
    given: Array,
    back: Array,
    uses: Arrays,
    lanes: Arrays,
    grad_gate: Array,
    team: _Team,
) -> None:
    M, R, bodies, heads, reach, send, into, offset, gating = bundles
    *grads, grad_offset = lanes
    steps = len(states) - 1
    firing, slope = tiles.rows((), R), tiles.rows((), R)
    evidence = tiles.rows((), M)
    parts, lacking, pulled = tiles.parts(), tiles.sums(), tiles.sums()
    if team.size == 1:
        room = (firing, slope, evidence, parts)
        kernels.backward_tile(
            *(steps, states, given, back, bodies, heads, uses, into, reach, send),
            *(offset, gating, room, (lacking, pulled), tuple(grads), grad_offset, grad_gate),
        )
        return
    for t in reversed(range(steps)):
        now = states[t]
        team.blocks(kernels.missing, M, M, now, parts)
        team.total(parts, M, lacking)
        team.blocks(
            kernels.rules_forward,
            R,
            *(now, lacking, bodies, reach, send[0], firing, slope, parts),
        )
        team.total(parts, R, pulled)
        team.blocks(
            kernels.atoms_backward,
            M,
            *(now, firing, pulled, into, offset, gating, back),
            *(evidence, parts, grad_offset, grad_gate),
        )
        team.total(parts, M, pulled)
        team.blocks(
            kernels.rules_backward,
            R,
            *(now, (lacking, pulled), bodies, heads, reach[1], send),
            *(firing, slope, evidence, parts, tuple(grads)),
        )
        team.total(parts, R, pulled)
        team.blocks(kernels.uses_backward, M, pulled, uses, slope, back)
        if len(given):
            back += given[t]


# -------------------------------------------------------------------- tiles and threads


class _Tiles:
    """How a batch is cut: TILE examples to a tile, or one where there are few."""

    def __init__(self, batch: int, layout: Layout, dtype: Any) -> None:
        self.batch = batch
        self.lanes = 1 if batch <= _FEW else TILE
        self.number = -(-batch // self.lanes)
        self._dtype = dtype
        self._size = layout.M + layout.R + len(layout.body_rule)
        self._blocks = max(kernels.blocks_of(layout.M), kernels.blocks_of(layout.R))

    def examples(self, tile: int) -> tuple[int, int]:
        """The first example of a tile, and the first one after it."""
        return tile * self.lanes, min((tile + 1) * self.lanes, self.batch)

    def rows(self, many: tuple[int, ...], rows: int) -> Array:
        """Zeros for this many rows, one lane per example; a lone lane fills up its last group."""
        if self.lanes == 1:
            return _zeros((*many, -(-rows // TILE) * TILE), self._dtype)
        return _zeros((*many, rows, TILE), self._dtype)

    def parts(self) -> Array:
        """Room for one part of a sum per block."""
        return np.zeros(self._blocks if self.lanes == 1 else (self._blocks, TILE))

    def sums(self) -> Array:
        """Room for one sum."""
        return np.zeros(1 if self.lanes == 1 else (1, TILE))

    def fill(self, examples: Array, rest: float, tile: Array) -> None:
        """Put examples (n, M) into a tile, and `rest` into the lanes that are left over."""
        if self.lanes == 1:
            tile[: examples.shape[1]] = examples[0]
        else:
            kernels.pack(examples, rest, tile)

    def empty(self, tile: Array, examples: Array) -> None:
        """Take the examples (n, M) out of a tile."""
        if self.lanes == 1:
            examples[0] = tile[: examples.shape[1]]
        else:
            kernels.unpack(tile, examples)

    def run(
        self,
        one: Callable[[int, _Team], None],
        steps: int,
        some: Callable[[int, int], None] | None = None,
    ) -> None:
        """Call `one` for every tile, on as many threads as torch may use.

        `some`, if there is such a function, does several tiles in one go where no threads share
        one: the fewer calls, the less the threads wait for the interpreter.
        """
        threads = torch.get_num_threads()
        if threads == 1 or self.number * self.lanes * self._size * steps < _WORTH_A_THREAD:
            threads = 1
        if threads > 1 and self.lanes * self._size >= _SHARED_TILE:
            team = _Team(_pool(threads - 1), threads)
            for tile in range(self.number):
                one(tile, team)
            return
        alone = _Team(None, 1)
        threads = min(threads, self.number)
        # Several pieces for each thread: one that starts late takes fewer.
        size = max(1, self.number // (_PIECES * threads)) if threads > 1 else max(1, self.number)
        starts = iter(range(0, self.number, size))

        def work() -> None:
            for first in starts:  # the threads share it
                last = min(first + size, self.number)
                if some is not None:
                    some(first, last)
                    continue
                for tile in range(first, last):
                    one(tile, alone)

        others = [_pool(threads - 1).submit(work) for _ in range(threads - 1)]
        work()
        for other in others:
            if not other.cancel():
                other.result()


#: Threads that wait for work. A child process has none of its parent's.
_POOLS: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.clear)


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _POOLS:
        _POOLS.setdefault(threads, ThreadPoolExecutor(threads, "latentgamma"))
    return _POOLS[threads]


def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros that begin where a cache line does: a row across two lines takes two accesses."""
    count = math.prod(shape)
    room = np.zeros(count + _LINE, dtype)
    start = -room.ctypes.data % _LINE // room.itemsize
    return room[start : start + count].reshape(shape)


class _Team:
    """Threads that share the blocks of one tile."""

    def __init__(self, pool: ThreadPoolExecutor | None, size: int) -> None:
        self._pool = pool
        self.size = size

    def blocks(self, kernel: Callable[..., None], rows: int, *args: object) -> None:
        """Run a kernel over all blocks of these rows."""
        blocks = -(-rows // BLOCK)
        cuts = [blocks * part // self.size for part in range(self.size + 1)]
        others = (
            [
                self._pool.submit(kernel, cuts[part], cuts[part + 1], *args)
                for part in range(1, self.size)
            ]
            if self._pool is not None
            else []
        )
        kernel(cuts[0], cuts[1], *args)
        for other in others:
            other.result()

    def total(self, parts: Array, rows: int, out: Array) -> None:
        """The sum of the parts of these rows."""
        kernels.total(parts, -(-rows // BLOCK), out)
