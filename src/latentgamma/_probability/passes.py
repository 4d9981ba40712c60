"""Runs a sum-product pass on a batch as compiled code on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentgamma._logic.threads import share_parts
from latentgamma._probability.pass_circuit import SumProduct
from latentgamma._probability.second_derivative import without_second_derivative

# Literals times examples below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 17


def pass_values(circuit: SumProduct, inputs: Tensor) -> Tensor:
    """Return the probability of each node, shape (B, nodes), in float64.

    Args:
        circuit: The arrays of the pass.
        inputs: Probabilities of the input nodes, shape (B, inputs).
    """
    return _Pass.apply(circuit, inputs)  # type: ignore[no-any-return,no-untyped-call]


class _Pass(torch.autograd.Function):
    """The pass as compiled code; rows are nodes, and 16 examples form a tile."""

    @staticmethod
    def forward(ctx: Any, circuit: SumProduct, inputs: Tensor) -> Tensor:
        from latentgamma._probability.pass_kernels import run_tiles

        values = _tiles(inputs.detach().to("cpu", torch.float64).numpy(), circuit.nodes)
        share_tiles(run_tiles, circuit, values)
        ctx.circuit, ctx.values = circuit, values
        ctx.save_for_backward(inputs)
        return torch.from_numpy(_examples(values, len(inputs)))

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        from latentgamma._probability.pass_kernels import gradient_tiles

        circuit: SumProduct = ctx.circuit
        grads = _tiles(grad_out.detach().to("cpu", torch.float64).numpy(), circuit.nodes)
        share_tiles(gradient_tiles, circuit, ctx.values, grads)
        (inputs,) = ctx.saved_tensors
        grad = _examples(grads[:, : circuit.inputs], len(inputs))
        result = torch.from_numpy(grad).to(inputs.device, inputs.dtype)
        return None, without_second_derivative(result, inputs, grad_out)


def _tiles(columns: np.ndarray, rows: int) -> np.ndarray:
    """Columns of examples as the first rows of tiles; the other rows are zero."""
    from latentgamma._simd import TILE

    batch, given = columns.shape
    values = np.zeros((-(-batch // TILE), rows, TILE))
    padded = np.zeros((len(values) * TILE, given))
    padded[:batch] = columns
    values[:, :given] = padded.reshape(len(values), TILE, given).transpose(0, 2, 1)
    return values


def _examples(values: np.ndarray, batch: int) -> np.ndarray:
    """The rows of tiles as columns of examples."""
    tiles, rows, lanes = values.shape
    return values.transpose(0, 2, 1).reshape(tiles * lanes, rows)[:batch]


def share_tiles(kernel: Callable[..., None], circuit: SumProduct, *tiles: np.ndarray) -> None:
    """Run a kernel on all tiles, in as many threads as torch uses where that is worth it.

    Args:
        kernel: `run_tiles` or `gradient_tiles`.
        circuit: The arrays of the pass.
        *tiles: The arrays of values and gradients.
    """
    arrays = circuit.rule_ptr, circuit.body_ptr, circuit.body, circuit.kind
    count = len(tiles[0])
    work = len(circuit.body) * count * tiles[0].shape[2]
    if work < _WORTH_A_THREAD or count == 1:
        kernel(0, count, circuit.inputs, *arrays, *tiles)
        return

    def run(first: int, last: int) -> None:
        kernel(first, last, circuit.inputs, *arrays, *tiles)

    share_parts(run, count, torch.get_num_threads())
