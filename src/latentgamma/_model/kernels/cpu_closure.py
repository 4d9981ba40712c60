"""T_P on batches of supports, compiled: how deep each one is, and whether it is closed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from latentgamma._model.kernels.cpu_arithmetic import Array
from latentgamma._model.kernels.literal_rows import LiteralRows
from latentgamma._model.kernels.threads import run_pieces
from latentgamma._simd import compiled

#: Literals to visit, below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 23


@compiled
def measure_depths(
    first: int,
    last: int,
    supports: Array,
    body_start: Array,
    uses: tuple[Array, Array],
    heads: tuple[Array, Array],
    depths: Array,
) -> None:
    """depths[b] = the number of steps of T_P from support b to its closure."""
    use_start, use_rule = uses
    head_start, head_atom = heads
    R, M = len(body_start) - 1, supports.shape[1]
    missing = np.empty(R, np.int64)
    known = np.empty(M, np.bool_)
    queue = np.empty(M, np.int64)  # the derived atoms, level by level
    for b in range(first, last):
        end = 0
        for i in range(M):
            known[i] = supports[b, i]
            if known[i]:
                queue[end] = i
                end += 1
        start, level_end, depth = 0, end, 0
        for j in range(R):
            missing[j] = body_start[j + 1] - body_start[j]
            if missing[j] == 0:
                for q in range(head_start[j], head_start[j + 1]):
                    if not known[head_atom[q]]:
                        known[head_atom[q]] = True
                        queue[end] = head_atom[q]
                        end += 1
        while True:
            while start < level_end:
                i = queue[start]
                start += 1
                for p in range(use_start[i], use_start[i + 1]):
                    j = use_rule[p]
                    missing[j] -= 1
                    if missing[j] == 0:
                        for q in range(head_start[j], head_start[j + 1]):
                            if not known[head_atom[q]]:
                                known[head_atom[q]] = True
                                queue[end] = head_atom[q]
                                end += 1
            if end == level_end:
                break
            depth += 1
            level_end = end
        depths[b] = depth


@compiled
def check_closed(
    supports: Array, bodies: tuple[Array, Array], heads: tuple[Array, Array], closed: Array
) -> None:
    """closed[b] = whether every rule whose body lies in support b has its heads there too."""
    body_start, body_atom = bodies
    head_start, head_atom = heads
    for b in range(len(supports)):
        closed[b] = True
        for j in range(len(body_start) - 1):
            fires = True
            for p in range(body_start[j], body_start[j + 1]):
                if not supports[b, body_atom[p]]:
                    fires = False
                    break
            if fires:
                for q in range(head_start[j], head_start[j + 1]):
                    if not supports[b, head_atom[q]]:
                        closed[b] = False
            if not closed[b]:
                break


def _supports(state: Tensor) -> Array:
    """The atoms above one half. (B, M)."""
    if state.device.type == "cpu" and state.dtype in (torch.float32, torch.float64):
        array: Array = state.numpy()  # comparing a small array takes numpy a tenth of the time
        return np.ascontiguousarray(array > 0.5)
    return (state > 0.5).cpu().contiguous().numpy()


class CompiledClosure:
    """T_P of one program on the supports of a batch of states (B, M)."""

    def __init__(self, rows: LiteralRows) -> None:
        self._bodies = rows.body_start.numpy(), rows.body_atom.numpy()
        self._heads = rows.head_start.numpy(), rows.head_atom.numpy()
        self._uses = rows.use_start.numpy(), rows.use_rule.numpy()
        self._size = rows.M + rows.R + len(rows.body_rule)

    def depths(self, state: Tensor) -> npt.NDArray[np.int64]:
        """How many steps of T_P each support takes to its closure. (B,)."""
        supports = _supports(state)
        depths = np.zeros(len(supports), np.int64)
        large = len(supports) * self._size >= _WORTH_A_THREAD
        run_pieces(
            len(supports),
            torch.get_num_threads() if large else 1,
            lambda first, last: measure_depths(
                first, last, supports, self._bodies[0], self._uses, self._heads, depths
            ),
        )
        return depths

    def is_closed(self, state: Tensor) -> npt.NDArray[np.bool_]:
        """Whether each support is closed. (B,)."""
        supports = _supports(state)
        closed = np.empty(len(supports), np.bool_)
        check_closed(supports, self._bodies, self._heads, closed)
        return closed
