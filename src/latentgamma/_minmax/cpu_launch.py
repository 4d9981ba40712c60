"""The min/max closure of a batch on the CPU: tiles of examples, shared out among threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from latentgamma._logic.threads import share_parts
from latentgamma._minmax import cpu_kernels as kernels
from latentgamma._minmax.circuit import CYCLE
from latentgamma._simd import TILE

Array: TypeAlias = Any

#: Edges times examples below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 16


def tiles(batch: int) -> tuple[int, int]:
    """How many tiles a batch has, and how many examples a tile."""
    return -(-batch // TILE), TILE


def close_batch(
    x: Tensor, structure: Sequence[Tensor], temperature: float, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs (B, O), and what `close_batch_backward` needs: the nodes, and their ranks or steps."""
    *rows, outputs = (_array(tensor) for tensor in structure)
    ptr, child, _, _, kind, _ = rows
    given = _array(x)
    batch, nodes = len(given), len(ptr) - 1
    count, cycles = tiles(batch)[0], int((kind == CYCLE).sum())
    out = np.zeros((batch, len(outputs)), given.dtype)
    kept = np.empty((count if keep else 0, nodes, TILE), given.dtype)
    extra = np.empty((len(kept), nodes if temperature == 0 else cycles, TILE), given.dtype)

    def work(first: int, last: int) -> None:
        room = np.empty((nodes, TILE), given.dtype)
        spare = np.empty((cycles, TILE), given.dtype)
        for tile in range(first, last):
            v = kept[tile] if keep else room
            kernels.load(given, tile * TILE, v)
            if temperature > 0:
                kernels.smooth(v, extra[tile] if keep else spare, *rows, temperature)
            elif keep:
                extra[tile, : given.shape[1]] = 0
                kernels.hard_ranked(v, extra[tile], *rows)
            else:
                kernels.hard(v, *rows)
            kernels.read(v, outputs, out, tile * TILE)

    _share(work, count, len(child) * batch)
    return torch.from_numpy(out), torch.from_numpy(kept), torch.from_numpy(extra)


def close_batch_backward(
    grad: Tensor,
    structure: Sequence[Tensor],
    temperature: float,
    kept: Tensor,
    extra: Tensor,
    inputs: int,
) -> Tensor:
    """The gradient of the inputs (B, I), from that of the outputs (B, O)."""
    *rows, outputs = (_array(tensor) for tensor in structure)
    ptr, child, _, _, kind, _ = rows
    given, values, more = _array(grad), _array(kept), _array(extra)
    batch, nodes = len(given), len(ptr) - 1
    out = np.empty((batch, inputs), given.dtype)
    every_input = np.arange(inputs, dtype=outputs.dtype)

    def work(first: int, last: int) -> None:
        g = np.empty((nodes, TILE), given.dtype)
        for tile in range(first, last):
            g[:] = 0
            kernels.add(given, outputs, tile * TILE, g)
            v = values[tile]
            if temperature > 0:
                # Steps on a cycle are taken again, which writes to its rows.
                v = v.copy() if (kind == CYCLE).any() else v
                kernels.smooth_backward(v, more[tile], g, *rows, temperature)
            else:
                kernels.hard_backward(v, more[tile], g, *rows)
            kernels.read(g, every_input, out, tile * TILE)

    _share(work, tiles(batch)[0], 2 * len(child) * batch)
    return torch.from_numpy(out)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().contiguous().numpy()


def _share(work: Callable[[int, int], None], count: int, size: int) -> None:
    """Call `work(first, last)` so that every tile is done, on as many threads as torch may use."""
    share_parts(work, count, torch.get_num_threads() if size >= _WORTH_A_THREAD else 1)
