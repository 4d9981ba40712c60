"""What a kernel for one kind of device implements."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from latentgamma._model.kernels.coefficients import Coefficients, Parameters
from latentgamma._model.kernels.literal_rows import LiteralRows


class Kernel(Protocol):
    """Runs T steps on a batch (B, M), forwards and backwards.

    `prepared` is what `read` returns: the coefficients in the kernel's own form. `counts` (B,)
    says how many of the steps each example takes; None means all of them.
    """

    def read(
        self, rows: LiteralRows, parameters: Parameters, dtype: torch.dtype, *, bump: bool
    ) -> Any:
        """The coefficients of a step, for states of this dtype."""

    def read_backward(
        self, rows: LiteralRows, parameters: Parameters, grads: Coefficients
    ) -> Parameters:
        """The gradients of the parameters, from those of the coefficients."""

    def forward(
        self,
        rows: LiteralRows,
        prepared: Any,
        state: Tensor,
        steps: int,
        *,
        counts: Tensor | None,
        keep: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The last state (B, M); and, to keep, all T + 1 states in an order of its own."""

    def trajectory(self, rows: LiteralRows, kept: Tensor, batch: int) -> Tensor:
        """All states that `forward` kept. (T + 1, B, M)."""

    def backward(
        self,
        rows: LiteralRows,
        prepared: Any,
        kept: Tensor,
        grad: Tensor,
        *,
        counts: Tensor | None,
        learn: bool,
    ) -> tuple[Tensor, Coefficients | None]:
        """The gradient of the first state (B, M); and, to learn, of the coefficients.

        `grad` (1, B, M) is the gradient of the last state, or (T + 1, B, M) of every one.
        """
