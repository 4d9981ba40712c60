"""The min/max closure as a module of torch, through whichever kernel runs here."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, TypeAlias, final

import torch
from torch import Tensor, nn

from latentgamma._minmax.circuit import CYCLE, TRUE, Circuit
from latentgamma._minmax.reference import reference

#: Compiled code where there is some, or plain torch.
KernelChoice: TypeAlias = Literal["auto", "reference"]

#: The arrays of a circuit in the order in which kernels take them.
STRUCTURE = ("child_ptr", "child", "own", "stage_ptr", "stage_kind", "middle", "outputs")


@final
class MinMax(nn.Module):
    """The closure that a circuit computes, from a batch of inputs to a batch of outputs.

    >>> from latentgamma import parse
    >>> from latentgamma._minmax.circuit import compile_circuit
    >>> closed = MinMax(compile_circuit(parse("c :- a, b. c :- d."), [1, 2, 3], [0]))
    >>> closed(torch.tensor([[0.9, 0.6, 0.2]]), 0.0)
    tensor([[0.6000]])
    """

    outputs: Tensor

    def __init__(self, circuit: Circuit, *, kernel: KernelChoice = "auto") -> None:
        super().__init__()
        self.circuit = circuit
        self.kernel = kernel
        self._cycles = int((circuit.stage_kind == CYCLE).sum())
        for name in STRUCTURE:
            values = torch.from_numpy(getattr(circuit, name).copy())
            self.register_buffer(name, values, persistent=False)
        self._has_constants = bool((circuit.outputs < 0).any())

    def forward(
        self,
        inputs: Tensor,
        temperature: Tensor | float,
        *,
        hard: bool | None = None,
        low: float = -torch.inf,
        high: float = torch.inf,
        plain: bool = False,
    ) -> Tensor:
        """The outputs (B, O) of a batch of inputs (B, I).

        Args:
            inputs: log-odds; values on any scale if hard.
            temperature: of the smooth minima and maxima; 0 for hard ones.
            hard: whether the temperature is 0, where it is a tensor that must not be read.
            low: the value of an output that is false whatever the inputs are.
            high: the value of an output that is true whatever the inputs are.
            plain: whether to do without compiled code this time.

        Returns:
            The outputs on the scale of the inputs.
        """
        if hard is None:
            hard = float(temperature) == 0
        # A compiler takes the kernel as one opaque operation; it could not follow plain torch.
        plain = (plain or self.kernel == "reference") and not torch.compiler.is_compiling()
        if plain or not _has_kernel(inputs, self._cycles):
            values = reference(self.circuit, inputs, 0.0 if hard else float(temperature))
            out = _pick(values, self.outputs)
        else:
            structure = [getattr(self, name) for name in STRUCTURE]
            T = torch.as_tensor(temperature, dtype=torch.float64)
            keep = torch.is_grad_enabled() and inputs.requires_grad
            wide = inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.float()
            out = minmax(wide, structure, T, hard, keep, self._cycles)[0].to(inputs.dtype)
        if self._has_constants:
            constant = torch.where(self.outputs == TRUE, high, low).to(out.dtype)
            out = torch.where(self.outputs < 0, constant, out)
        return out

    def extra_repr(self) -> str:
        """The line that `print(module)` shows."""
        c = self.circuit
        return f"inputs={c.inputs}, outputs={len(c.outputs)}, nodes={c.nodes}, edges={len(c.child)}"


def _has_kernel(inputs: Tensor, cycles: int) -> bool:
    """Whether compiled code can follow: not torch.func, and not forward-mode differentiation."""
    if cycles and inputs.device.type != "cpu":
        return False
    if torch.compiler.is_compiling():
        return inputs.device.type in ("cpu", "cuda")
    if _launch(inputs.device.type) is None:
        return False
    if torch._C._functorch.maybe_get_level(inputs) > -1:
        return False
    return torch.autograd.forward_ad.unpack_dual(inputs).tangent is None  # type: ignore[no-untyped-call]


def _pick(values: Tensor, outputs: Tensor) -> Tensor:
    """The values of the outputs; of a constant one, any. (B, N) -> (B, O)."""
    if not values.shape[1]:
        return values.new_zeros(values.shape[0], len(outputs))
    return values.index_select(1, outputs.clamp(min=0).long())


@cache
def _launch(device: str) -> Any:
    """The module that runs the closure on this kind of device, or None."""
    if device == "cpu":
        from latentgamma._minmax import cpu_launch

        return cpu_launch
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        from latentgamma._minmax import cuda_launch

        return cuda_launch
    return None


# -------------------------------------------------------------------- the operation


@torch.library.custom_op("latentgamma::minmax", mutates_args=())
def minmax(
    inputs: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    keep: bool,
    cycles: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, and what the backward pass needs: the nodes, and their ranks or steps."""
    T = 0.0 if hard else float(temperature)
    out: tuple[Tensor, Tensor, Tensor] = _launch(inputs.device.type).close_batch(
        inputs, structure, T, keep=keep
    )
    return out


@minmax.register_fake
def _(
    inputs: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    keep: bool,
    cycles: int,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, nodes = inputs.shape[0], structure[0].shape[0] - 1
    tiles, tile = _launch(inputs.device.type).tiles(batch)
    tiles = tiles if keep else 0
    return (
        inputs.new_empty(batch, structure[-1].shape[0]),
        inputs.new_empty(tiles, nodes, tile),
        inputs.new_empty(tiles, nodes if hard else cycles, tile),
    )


@torch.library.custom_op("latentgamma::minmax_backward", mutates_args=())
def minmax_backward(
    grad: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    kept: Tensor,
    extra: Tensor,
    inputs: int,
) -> Tensor:
    """The gradient of the inputs."""
    T = 0.0 if hard else float(temperature)
    out: Tensor = _launch(grad.device.type).close_batch_backward(
        grad, structure, T, kept, extra, inputs
    )
    return out


@minmax_backward.register_fake
def _(
    grad: Tensor,
    structure: Sequence[Tensor],
    temperature: Tensor,
    hard: bool,
    kept: Tensor,
    extra: Tensor,
    inputs: int,
) -> Tensor:
    return grad.new_empty(grad.shape[0], inputs)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, structure, temperature, ctx.hard, _, _ = inputs
    ctx.save_for_backward(x, temperature, output[1], output[2], *structure)


def _backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, temperature, kept, extra, *structure = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # create_graph=True: this gradient is to be differentiated, which plain torch can do.
        T = 0.0 if ctx.hard else float(temperature)
        with torch.enable_grad():
            out = _pick(reference(_circuit(structure, x.shape[1]), x, T), structure[-1])
            (slope,) = torch.autograd.grad(out, x, grad, create_graph=True, allow_unused=True)
        return slope, [None] * len(structure), None, None, None, None  # type: ignore[return-value]
    slope = minmax_backward(
        grad.contiguous(), structure, temperature, ctx.hard, kept, extra, x.shape[1]
    )
    return slope, [None] * len(structure), None, None, None, None  # type: ignore[return-value]


minmax.register_autograd(_backward, setup_context=_keep_for_backward)


def _circuit(structure: Sequence[Tensor], inputs: int) -> Circuit:
    return Circuit(inputs, *(tensor.cpu().numpy() for tensor in structure))
