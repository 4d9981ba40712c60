"""Small functions on tensors that several packages need."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

# ---- Logarithms of complements and odds from logarithms of probabilities

#: Where 1 - p is less than this, log-odds are computed from the probability of the negation.
LEAST_COMPLEMENT = 2.0**-20
#: The complement of a probability that was rounded to 1, where its logarithm is needed.
ROUNDED_COMPLEMENT = 2.0**-55

_TINY = torch.finfo(torch.float64).tiny


def hold(values: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """Return the values held inside an interval, with the slope one also outside of it."""
    # In this order: a value just above `high` must not be rounded to a number beyond it.
    return values.detach().clamp(low, high) + (values - values.detach())


def held_log(values: Tensor, least: float | None = None) -> Tensor:
    """Return the logarithm, that of `least` with a finite slope where a value is smaller.

    By default `least` is the least normal number.
    """
    return hold(values, torch.finfo(values.dtype).tiny if least is None else least).log()


def log_complement(logs: Tensor, most: float = -_TINY) -> Tensor:
    """Return log(1 - exp(x)), accurate for x near 0 and for very negative x.

    What is above `most` has the value and the slope of that; with a number below 0 both are finite.
    """
    held = torch.where(logs > most, hold(logs, high=most), logs)
    near = held > -math.log(2)
    close = (-torch.expm1(torch.where(near, held, -0.5))).log()
    return torch.where(near, close, torch.log1p(-torch.where(near, -1.0, held).exp()))


def log_odds_of_log(logs: Tensor) -> Tensor:
    """Return log p - log(1 - p) from log p, finite and with a finite slope where p is 0 or 1."""
    logs = logs.nan_to_num(torch.nan, neginf=-1e30)
    return logs - log_complement(logs, -ROUNDED_COMPLEMENT)


Result = TypeVar("Result")


@contextmanager
def outside_transforms() -> Iterator[None]:
    """Make tensors that last: none of the inference mode or of a transform of `torch.func`."""
    with torch.inference_mode(False), torch._C._DisableFuncTorch():
        yield


def kept_with_owner(make: Callable[..., Result]) -> Callable[..., Result]:
    """Keep what a function makes of an object as long as the object lives.

    A CUDA graph of the caller may read tensors made in this way.
    """
    kept: WeakKeyDictionary[Any, dict[Hashable, Result]] = WeakKeyDictionary()

    @wraps(make)
    def get(owner: Any, *key: Hashable) -> Result:
        of_owner = kept.setdefault(owner, {})
        if key not in of_owner:
            with outside_transforms():
                of_owner[key] = make(owner, *key)
        return of_owner[key]

    return get


def array_of(tensor: Tensor) -> np.ndarray:
    """Return a tensor on the CPU as a contiguous array, in the same memory where it is that already."""
    array: np.ndarray = tensor.detach().numpy()
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


@cache
def has_triton() -> bool:
    """Return whether kernels for CUDA devices can be compiled."""
    return importlib.util.find_spec("triton") is not None


# ---- Whether tensors hold values here, or stand in for them while code is traced or transformed


def can_be_rerun(*tensors: Tensor) -> bool:
    """Return whether a backward pass may need a function of these tensors, and can rerun it.

    A compiler decides for itself what to keep. The transforms of `torch.func` are over by the
    time of the backward pass, and with them the stand-ins they put in the place of tensors.
    """
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return wanted and can_leave_torch(*tensors)


def are_plain(*tensors: Tensor) -> bool:
    """Return whether all of these hold values, and no forward-mode derivative travels with them."""
    if not all(map(has_memory, tensors)):
        return False
    # Outside of `dual_level` there are none, and asking every tensor takes longer than a step.
    if getattr(forward_ad, "_current_level", 0) < 0:
        return True
    return all(forward_ad.unpack_dual(t).tangent is None for t in tensors)  # type: ignore[no-untyped-call]


def can_leave_torch(*tensors: Tensor) -> bool:
    """Return whether code outside of torch can compute from these tensors: nothing is traced.

    Where `torch.func` transforms other tensors around them, it would have to know how.
    """
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state()
    return not (traced or torch._C._are_functorch_transforms_active()) and are_plain(*tensors)


def values_can_be_read(tensor: Tensor) -> bool:
    """Return whether values can be looked at here: not while tracing, mapping or capturing."""
    if torch.compiler.is_compiling() or tensor.device.type == "meta" or not has_memory(tensor):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def may_be_any(mask: Tensor) -> bool:
    """Return whether an entry is true; also where the values cannot be looked at."""
    return not values_can_be_read(mask) or bool(mask.any())


def has_memory(tensor: Tensor) -> bool:
    """Return whether this is a plain tensor, and not the stand-in of a tracer or of `torch.func`.

    >>> has_memory(torch.zeros(2))
    True
    >>> torch.func.vmap(lambda x: x + has_memory(x))(torch.zeros(2))
    tensor([0., 0.])
    """
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def is_mapped(tensor: Tensor) -> bool:
    """Return whether `torch.func.vmap` maps over this tensor, so that no one value can be asked for.

    >>> is_mapped(torch.zeros(2))
    False
    >>> torch.func.vmap(lambda x: x + is_mapped(x))(torch.zeros(2))
    tensor([1., 1.])
    """
    if torch.compiler.is_compiling() or has_memory(tensor):
        return False
    try:
        bool(tensor.detach().any())
    except RuntimeError:
        return True
    return False


# ---- A result that code outside of torch has computed


def differentiable(
    result: Tensor,
    gradients: Callable[..., Sequence[Tensor]],
    again: Callable[[Sequence[Tensor]], Tensor],
    tensors: Sequence[Tensor],
    kept: Sequence[Tensor] = (),
) -> Tensor:
    """Return a result that code outside of torch has computed from tensors, with its gradient.

    `gradients` leads from the gradient of the result, and what was `kept` until then, to those of
    the tensors that require one. `again` computes the result in torch, for second derivatives.
    """
    return _Fused.apply(result, gradients, again, len(kept), *kept, *tensors)  # type: ignore[no-any-return,no-untyped-call]


class _Fused(torch.autograd.Function):
    """A result that is computed already, with a function for the gradients of some tensors."""

    @staticmethod
    def forward(
        ctx: Any,
        result: Tensor,
        gradients: Callable[..., Sequence[Tensor]],
        again: Callable[..., Tensor],
        count: int,
        *tensors: Tensor,
    ) -> Tensor:
        # The result leads to ctx: keeping it there would be a cycle that only gc.collect() frees.
        ctx.gradients, ctx.again, ctx.count = gradients, again, count
        ctx.save_for_backward(*tensors)
        return result

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        kept, tensors = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        needed = ctx.needs_input_grad[4 + ctx.count :]
        found: Sequence[Tensor | None]
        if torch.is_grad_enabled():  # create_graph=True: the gradient is to be differentiated
            # Of copies: one tensor may have been computed from another, and the way between them is
            # not part of the function.
            copies = [tensor.view_as(tensor) for tensor in tensors]
            wanted = [copy for copy, need in zip(copies, needed, strict=True) if need]
            out = ctx.again(copies).reshape(grad_out.shape)
            found = torch.autograd.grad(out, wanted, grad_out, create_graph=True, allow_unused=True)
        else:
            wanted = [tensor for tensor, need in zip(tensors, needed, strict=True) if need]
            pairs = zip(ctx.gradients(grad_out, *kept), wanted, strict=True)
            # Comparing shapes takes a tenth of the time of a reshape that changes nothing.
            found = [x if x.shape == t.shape else x.reshape(t.shape) for x, t in pairs]
        slopes = iter(found)
        unused = [None] * (4 + ctx.count)
        return *unused, *(next(slopes) if need else None for need in needed)


# ---- A warning where training cannot move: a gradient arrives, and none of it reaches the inputs

#: The first calls are watched, on a GPU these alone, and after them every so many calls.
_FIRST_CALLS, _EVERY = 10, 16


class ZeroGradientWatch:
    """Warns once if a gradient that is not zero becomes one that is identically zero.

    Args:
        remedy: what to do about it, the end of the warning.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._warned = False
        self._calls = 0

    def __call__(self, function: Callable[[Tensor], Tensor], given: Tensor) -> Tensor:
        """Return the result of a function of a tensor, watched on the way back."""
        if self._warned or not torch.is_grad_enabled() or not given.requires_grad:
            return function(given)
        if not values_can_be_read(given):
            return function(given)
        self._calls += 1  # hooks take longer than a small program; a GPU would be waited for
        if self._calls > _FIRST_CALLS and (given.is_cuda or self._calls % _EVERY):
            return function(given)
        given = given.view_as(given)  # so that no hook is left on a tensor of the caller
        result = function(given)
        if not result.requires_grad:
            return result
        arrived = False

        def at_result(grad: Tensor | None) -> None:
            nonlocal arrived
            arrived = grad is not None and bool(grad.any())

        def at_inputs(grad: Tensor | None) -> None:
            nonlocal arrived
            is_answer, arrived = arrived, False  # a second derivative comes here on its own
            if is_answer and not (grad is not None and bool(grad.any())):
                self.warn()

        result.register_hook(at_result)  # type: ignore[no-untyped-call]
        given.register_hook(at_inputs)  # type: ignore[no-untyped-call]
        return result

    def warn(self) -> None:
        """Warn, unless it has been done before."""
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"the gradient of the inputs is identically zero, so a network that makes "
            f"them does not learn; {self._remedy}",
            RuntimeWarning,
            stacklevel=3,
        )


# ---- Between probabilities, log-odds and the scores of a softmax, with gradients that do not die

#: The log-odds of what is certainly true; minus that of what is certainly false.
CERTAIN = 40.0


def log_odds(values: Tensor) -> Tensor:
    """Return log(p / (1 − p)), finite and with a finite slope also where p is 0 or 1.

    >>> log_odds(torch.tensor([0.5, 1.0], dtype=torch.float64)).tolist()[0]
    0.0
    """
    kind = torch.finfo(values.dtype)
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    held = hold(wide, max(1e-17, kind.tiny), 1 - kind.eps / 2)
    return (torch.log(held) - torch.log1p(-held)).to(values.dtype)


def probability(odds: Tensor) -> Tensor:
    """Return 1 / (1 + e^−x), with a slope that keeps its digits also where that is near 1.

    >>> x = torch.tensor([20.0], requires_grad=True)
    >>> probability(x).backward()
    >>> x.grad.item() > 1e-9  # torch.sigmoid gives 0 here
    True
    """
    return torch.where(odds > 0, 1 - torch.sigmoid(-odds), torch.sigmoid(odds))


#: The largest log-odds in a loss; beyond all that a network gives.
HELD = 1e6


def finite_log_odds(values: Tensor) -> Tensor:
    """Return log-odds that are infinite as large finite ones, so that differences of them exist."""
    limit = min(HELD, torch.finfo(values.dtype).max)
    clamp = _Clamp if torch.compiler.is_compiling() else _ForwardModeClamp
    held: Tensor = clamp.apply(values, limit)  # type: ignore[no-untyped-call]
    return held


class _Clamp(torch.autograd.Function):
    """A clamp with the slope one, also at infinity."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, limit: float) -> Tensor:
        return values.clamp(-limit, limit)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        return grad_out, None


class _ForwardModeClamp(_Clamp):
    """The same with a forward-mode derivative, which torch.compile does not take."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent


def categorical_log_odds(scores: Tensor) -> Tensor:
    """Return the log-odds of a softmax over the last axis: z_c − log Σ_{d≠c} e^{z_d}.

    >>> categorical_log_odds(torch.tensor([3.0, 0.0])).tolist()
    [3.0, -3.0]
    """
    dtype = scores.dtype
    scores = scores.to(torch.promote_types(dtype, torch.float32))
    large = torch.finfo(scores.dtype).max / 4  # may still be added up
    scores = scores.nan_to_num(torch.nan, large, -large)
    scores = scores - scores.detach().amax(-1, keepdim=True)  # digits of differences, not of scores
    # All but the largest: its own term is at most half of the sum, so 1 − p has its digits.
    probability = torch.softmax(scores, -1)
    top = scores.argmax(-1, keepdim=True)
    is_top = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top, True)
    rest = torch.logsumexp(scores.masked_fill(is_top, -torch.inf), -1, keepdim=True)
    below = torch.where(is_top, torch.zeros_like(probability), probability)
    others = torch.logsumexp(scores, -1, keepdim=True) + torch.log1p(-below)
    return torch.where(is_top, scores - rest, scores - others).to(dtype)
