"""T_P on batches of supports on a GPU: how many steps each example takes, in one launch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import triton
from torch import Tensor

from latentgamma._model.kernels.cuda_closure_kernels import count_steps
from latentgamma._model.kernels.cuda_graphs import RecordedRuns
from latentgamma._model.kernels.cuda_launch import device_program
from latentgamma._model.kernels.cuda_structure import RUN_LENGTHS
from latentgamma._model.kernels.literal_rows import LiteralRows

#: More steps of T_P than any program has.
_UNLIMITED = 2**31 - 1


class CudaClosure:
    """T_P of one program on the supports of a batch of states, as a GPU kernel.

    Args:
        rows: the literals of the program, on the device, for which `fits` is true.
    """

    @staticmethod
    def fits(rows: LiteralRows) -> bool:
        """Whether a thread block can run the whole program."""
        return device_program(rows).one_launch

    def __init__(self, rows: LiteralRows) -> None:
        self._program = device_program(rows)
        self.recorded_runs = RecordedRuns()

    def count(self, state: Tensor, delay: int, limit: int) -> tuple[Tensor, Tensor]:
        """How many steps each example of a batch (B, M) takes, without waiting for the device.

        Args:
            state: the batch.
            delay: how many steps an example takes beyond its depth under T_P, if that is not 0.
            limit: how many steps it takes at most.

        Returns:
            The numbers of steps (B,), and for each thread block whether a value is neither 0 nor 1.
        """
        return self._launch(state, _UNLIMITED, delay, limit)

    def depths(self, state: Tensor) -> npt.NDArray[np.int64]:
        """How many steps of T_P each support takes to its closure. (B,)."""
        return self._launch(state, _UNLIMITED, 0, _UNLIMITED)[0].cpu().numpy()

    def is_closed(self, state: Tensor) -> npt.NDArray[np.bool_]:
        """Whether each support is closed. (B,)."""
        closed: npt.NDArray[np.bool_] = self._launch(state, 1, 0, _UNLIMITED)[0].cpu().numpy() == 0
        return closed

    def _launch(self, state: Tensor, most: int, delay: int, limit: int) -> tuple[Tensor, Tensor]:
        program, B = self._program, len(state)
        blocks, largest = triton.cdiv(B, 32), max(program.M, program.R)
        # A thread for each rule or atom; beyond that, several runs of them.
        rows = min((n for n in RUN_LENGTHS if n >= largest), default=512)
        counts = torch.empty(B, dtype=torch.int64, device=state.device)
        soft, support, fired = (
            torch.empty(blocks * size, dtype=torch.int32, device=state.device)
            for size in (1, program.M, max(1, program.R))
        )
        if B:
            count_steps[(blocks,)](
                state.contiguous(), counts, soft, support, fired, program.orders,
                program.bodies.in_runs(rows), program.sources.in_runs(rows),
                B, program.M, program.R, most, min(delay, _UNLIMITED // 2),
                min(limit, _UNLIMITED), ROWS=rows, ONE_RUN=rows >= largest,
                num_warps=rows // 32,
            )  # fmt: skip
        return counts, soft
