"""Running circuits: through a kernel where there is one, otherwise in plain torch.

Kernels share one contract. `run(arrays, sizes, semiring, inputs, keep=…)` returns the outputs and
what the backward pass needs, and `back(arrays, sizes, semiring, kept, extra, grad, inputs)` the
gradient of the inputs. A derivative of a gradient, and the transforms of `torch.func`, are left to plain torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn

from latentgamma.engine import reference
from latentgamma.engine.circuit import CYCLE, MIXED, NEGATIONS, NOT, PRODUCTS, SUMS, Circuit
from latentgamma.engine.reference import GODEL, GODEL_ODDS, REAL, SMOOTH, Semiring
from latentgamma.engine.schedule import input_lists, packed
from latentgamma.engine.tensors import (
    can_leave_torch,
    differentiable,
    finite_log_odds,
    has_triton,
    kept_with_owner,
)
from latentgamma.errors import ModelError

#: Whether Triton interprets its kernels on tensors of the CPU, to test them without a GPU.
_INTERPRETED = has_triton() and os.environ.get("TRITON_INTERPRET") == "1"
#: Compiled code where there is some, or plain torch.
KernelChoice: TypeAlias = Literal["auto", "reference"]


#: The semirings that kernels know by name.
_COMPILED = {each.name: each.run for each in (GODEL, SMOOTH, REAL)}
# With more stages than this, an export calls the operator `latentgamma::minmax`.
_LONGEST_EXPORT = 1000


@cache
def kernels_on(device: str) -> Any:
    """Return the module that runs circuits on this kind of device, or None."""
    if device == "cpu":
        from latentgamma.engine import cpu

        return cpu
    if device == "cuda" and has_triton():
        from latentgamma.engine import cuda

        return cuda
    return None


def _has_kernel(circuit: Circuit, semiring: Semiring, inputs: Tensor) -> bool:
    """Return whether compiled code can run: not under torch.func or in forward mode."""
    if semiring.run is not _COMPILED.get(semiring.name) or not can_leave_torch(inputs):
        return False
    if kernels_on(inputs.device.type) is None:
        return False
    if semiring.name == "real":
        return not circuit.cycles and not on_triton(inputs)
    return True


def on_triton(x: Tensor) -> bool:
    """Return whether a kernel for CUDA devices runs, also in Triton's interpreter on the CPU."""
    return x.is_cuda or _INTERPRETED


@kept_with_owner
def schedule_on(circuit: Circuit, device: torch.device) -> tuple[Tensor, Sequence[int]]:
    """Return the arrays of a circuit and the sizes of its launches on a GPU."""
    pack, sizes = circuit.schedule
    return torch.from_numpy(pack).to(device), sizes


@kept_with_owner
def lists_on(circuit: Circuit, device: torch.device) -> tuple[Tensor, Sequence[int]] | None:
    """Return the inputs of each output, where a GPU reads these rather than the circuit."""
    found = input_lists(circuit)
    if found is None:
        return None
    arrays, sizes = found
    return torch.from_numpy(packed(arrays)).to(device), sizes


def run(circuit: Circuit, semiring: Semiring, inputs: Tensor, *, plain: bool = False) -> Tensor:
    """Return the outputs (B, O) of a batch of inputs (B, I), differentiable.

    The inputs are on the scale of the semiring; what is not float32 or float64 is computed in
    float32. `plain` does without compiled code.
    """
    if inputs.dtype not in (torch.float32, torch.float64):
        return run(circuit, semiring, inputs.float(), plain=plain).to(inputs.dtype)
    if semiring.run in (GODEL.run, SMOOTH.run):
        _refuse_empty_products(circuit)
    if plain or not _has_kernel(circuit, semiring, inputs):
        return reference.run(circuit, semiring, inputs)
    keep = torch.is_grad_enabled() and inputs.requires_grad
    found: Tensor
    arrays: Any
    if on_triton(inputs):
        kernels, (arrays, sizes) = kernels_on("cuda"), schedule_on(circuit, inputs.device)
        lists = lists_on(circuit, inputs.device) if semiring.name == "hard" else None
    else:
        kernels, lists = kernels_on("cpu"), None
        arrays, sizes = circuit.arrays, [circuit.cycles]
    if lists is not None:  # these are read rather than the circuit
        x = inputs.contiguous()
        found, *kept = kernels.maxima(*lists, x, None, keep=keep)
        back = partial(kernels.maxima_back, lists, (arrays, sizes), x, None, kept)
    else:
        found, *kept = kernels.run(arrays, sizes, semiring, inputs, keep=keep)
        back = partial(kernels.back, arrays, sizes, semiring, *kept, inputs=circuit.inputs)
    if not keep:
        return found
    return differentiable(
        found,
        lambda grad: [back(grad)],
        lambda tensors: reference.run(circuit, semiring, *tensors),
        [inputs],
    )


def _refuse_empty_products(circuit: Circuit) -> None:
    if circuit.has_empty_products:  # kernels take the least of at least one value
        raise ModelError("minima and maxima take circuits with absorptive=True: compile it anew")


# ---- The min/max closure as a module, which a compiler takes as one opaque operation


@final
class MinMax(nn.Module):
    """The min/max closure that a circuit computes, from a batch of inputs to a batch of outputs.

    `not a` is the complement of the value of a: −x of log-odds x, and 1 − p of a value p. What is
    above one half has a complement below it. What is at one half or below, and so counts as false,
    has a complement above it, also where rounding would give one half.

    >>> from latentgamma import parse
    >>> from latentgamma.engine.circuit import compile_circuit
    >>> closed = MinMax(compile_circuit(parse("c :- a, b. c :- d."), [1, 2, 3], [0]))
    >>> closed(torch.tensor([[0.9, 0.6, 0.2]]), 0.0)
    tensor([[0.6000]])
    >>> program = parse("fly :- bird, not penguin.")
    >>> closed = MinMax(compile_circuit(program, [1, 2], [0]))
    >>> closed(torch.tensor([[3.0, -2.0], [3.0, 2.0]]), 0.0)
    tensor([[ 2.],
            [-2.]])
    """

    cpu_1: Tensor
    cpu_2: Tensor
    cpu_9: Tensor
    node_of_edge: Tensor

    def __init__(self, circuit: Circuit, *, kernel: KernelChoice = "auto") -> None:
        super().__init__()
        _refuse_empty_products(circuit)
        self.circuit = circuit
        self.kernel = kernel
        self._sizes = circuit.schedule[1]
        self._has_negation = bool((circuit.kind == NOT).any())
        arrays = {"cpu": circuit.arrays, "cuda": circuit.schedule[:1]}
        for device, some in arrays.items():
            for n, array in enumerate(some):
                put = torch.from_numpy(array.copy())
                self.register_buffer(f"{device}_{n}", put, persistent=False)
        self._count = {device: len(some) for device, some in arrays.items()}
        self._exported_stages = _exported_stages(circuit)
        edges = np.diff(circuit.arrays[0]) if self._exported_stages else 0
        node_of_edge = torch.from_numpy(np.repeat(np.arange(circuit.nodes), edges))
        self.register_buffer("node_of_edge", node_of_edge, persistent=False)

    def forward(
        self,
        inputs: Tensor,
        temperature: Tensor | float,
        *,
        hard: bool | None = None,
        values: bool = False,
        plain: bool = False,
    ) -> Tensor:
        """Return the outputs (B, O) of a batch of inputs (B, I), on their scale.

        Args:
            inputs: log-odds, or values.
            temperature: of the smooth minima and maxima; 0 for hard ones.
            hard: whether the temperature is 0, where it is a tensor that must not be read.
            values: whether the inputs are values between 0 and 1, which must be hard.
            plain: whether to do without compiled code this time.
        """
        if hard is None:
            hard = float(temperature) == 0
        semiring = (GODEL if values else GODEL_ODDS) if hard else SMOOTH
        wide = inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.float()
        wide = wide if hard else finite_log_odds(wide)
        device = inputs.device.type
        written_out = hard and self._exported_stages and not torch.is_grad_enabled()
        if written_out and torch.compiler.is_exporting():
            out = self._exported(wide, semiring)
        elif (
            torch.compiler.is_compiling() and device in self._count
        ):  # it cannot follow plain torch
            arrays = [getattr(self, f"{device}_{n}") for n in range(self._count[device])]
            T = torch.as_tensor(temperature, dtype=torch.float64)
            keep = torch.is_grad_enabled() and inputs.requires_grad
            out = minmax(wide, arrays, T, [hard, values, keep, *self._sizes])[0]
        else:
            semiring = _semiring(temperature, hard, values, inputs)
            out = run(self.circuit, semiring, wide, plain=plain or self.kernel == "reference")
        if out.dtype == inputs.dtype:
            return out
        rounded = out.to(inputs.dtype)
        if self._has_negation:  # what is above one half stays so
            half = semiring.one / 2
            lost = (out > half) & (rounded <= half)
            rounded = torch.where(lost, rounded + semiring.step(inputs.dtype), rounded)
        return rounded

    def _exported(self, inputs: Tensor, semiring: Semiring) -> Tensor:
        """Return the outputs by operations of torch that exporters translate."""
        child, own = self.cpu_1.long(), self.cpu_2.long()
        more = inputs.new_full((1, self.circuit.nodes - self.circuit.inputs), reference.NEVER)
        values = torch.cat((inputs, more.expand(inputs.shape[0], -1)), 1)
        for kind, start, stop, first, last in self._exported_stages:
            at = values[:, child[first:last]]
            if kind == NEGATIONS:
                found = reference.complement(semiring, at)
            else:
                rows = (self.node_of_edge[first:last] - start).expand(at.shape[0], -1)
                least = kind == PRODUCTS
                blank = torch.full_like(
                    values[:, start:stop], math.inf if least else reference.NEVER
                )
                found = blank.scatter_reduce(1, rows, at, "amin" if least else "amax")
                if not least:
                    mine = own[start:stop]
                    given = torch.where(mine >= 0, values[:, mine.clamp(min=0)], reference.NEVER)
                    found = torch.maximum(found, given)
            values = torch.cat((values[:, :start], found, values[:, stop:]), 1)
        ends = [torch.full_like(values[:, :1], end) for end in (semiring.false, semiring.true)]
        column = self.cpu_9.long()
        column = torch.where(column < 0, self.circuit.nodes - 1 - column, column)
        return torch.cat((values, *ends), 1)[:, column]

    def extra_repr(self) -> str:
        """Return the line that `print(module)` shows."""
        c = self.circuit
        return (
            f"inputs={c.inputs}, outputs={len(c.outputs)}, nodes={c.nodes}, "
            f"edges={len(c.parts.indices)}"
        )


def _temperature(temperature: Tensor | float, x: Tensor) -> Tensor | float:
    """Return the temperature as a number, or on the device of a tensor, so that nothing waits."""
    if x.is_cuda and isinstance(temperature, Tensor) and temperature.is_cuda:
        return temperature.detach().to(torch.float64, copy=True)  # the backward pass needs it too
    return float(temperature)


def _exported_stages(circuit: Circuit) -> list[tuple[int, int, int, int, int]]:
    """Return the kind, the nodes and the edges of each stage, cycles written out; or none."""
    edge = circuit.arrays[0]
    stages: list[tuple[int, int, int, int, int]] = []
    for s, kind in enumerate(circuit.stage_kind.tolist()):
        start, stop, middle = (int(n) for n in (*circuit.stage_ptr[s : s + 2], circuit.middle[s]))
        parts, times = [(kind, start, stop)], 1
        if kind == CYCLE:  # each pass settles at least one more node
            parts, times = [(PRODUCTS, start, middle), (SUMS, middle, stop)], stop - middle
        if len(stages) + len(parts) * times > _LONGEST_EXPORT or kind == MIXED:
            return []
        stages += [(k, a, b, int(edge[a]), int(edge[b])) for k, a, b in parts if a < b] * times
    return stages


def _semiring(temperature: Tensor | float, hard: int, values: int, x: Tensor) -> Semiring:
    if hard:
        return GODEL if values else GODEL_ODDS
    return replace(SMOOTH, temperature=_temperature(temperature, x))


# `options` are whether minima and maxima are hard, whether the inputs are values, whether a gradient
# will be asked for, and the sizes of the launches on a GPU, of which the last is the number of cycles.


def _arrays(arrays: Sequence[Tensor]) -> Any:
    """Return the arrays as the kernels for their device take them."""
    return arrays[0] if arrays[0].is_cuda else tuple(array.numpy() for array in arrays)


@torch.library.custom_op("latentgamma::minmax", mutates_args=())
def minmax(
    inputs: Tensor, arrays: Sequence[Tensor], temperature: Tensor, options: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs, and what the backward pass needs: the nodes, and their ranks or steps."""
    hard, values, keep, *sizes = options
    semiring, kernels = _semiring(temperature, hard, values, inputs), kernels_on(inputs.device.type)
    return kernels.run(_arrays(arrays), sizes, semiring, inputs, keep=bool(keep))  # type: ignore[no-any-return]


@minmax.register_fake
def _(
    inputs: Tensor, arrays: Sequence[Tensor], temperature: Tensor, options: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    hard, _, keep, *_, nodes, count, states, sums, cycles = options
    batch = inputs.shape[0]
    out = inputs.new_empty(batch, count)
    if inputs.is_cuda:
        kept, extra = batch if keep else 0, cycles * (1 + states * sums)
        return out, out.new_empty(kept, nodes + sums), out.new_empty(kept, nodes if hard else extra)
    tiles, tile = kernels_on("cpu").tiles(batch)
    tiles = tiles if keep else 0
    more = (nodes if keep else 0) if hard else cycles
    return out, inputs.new_empty(tiles, nodes, tile), inputs.new_empty(tiles, more, tile)


@torch.library.custom_op("latentgamma::minmax_backward", mutates_args=())
def minmax_backward(
    grad: Tensor, arrays: Sequence[Tensor], temperature: Tensor, kept: Sequence[Tensor],
    inputs: int, options: Sequence[int],
) -> Tensor:  # fmt: skip
    """Return the gradient of the inputs."""
    hard, _, _, *sizes = options
    semiring, kernels = _semiring(temperature, hard, False, grad), kernels_on(grad.device.type)
    return kernels.back(_arrays(arrays), sizes, semiring, *kept, grad, inputs)  # type: ignore[no-any-return]


@minmax_backward.register_fake
def _(
    grad: Tensor, arrays: Sequence[Tensor], temperature: Tensor, kept: Sequence[Tensor],
    inputs: int, options: Sequence[int],
) -> Tensor:  # fmt: skip
    return grad.new_empty(grad.shape[0], inputs)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, arrays, temperature, ctx.options = inputs
    ctx.save_for_backward(x, temperature, output[1], output[2], *arrays)


def _backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Any, ...]:
    x, temperature, *kept = ctx.saved_tensors
    kept, arrays = kept[:2], kept[2:]
    slope = minmax_backward(grad.contiguous(), arrays, temperature, kept, x.shape[1], ctx.options)
    return slope, [None] * len(arrays), None, None


minmax.register_autograd(_backward, setup_context=_keep_for_backward)
