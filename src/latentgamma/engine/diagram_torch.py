"""Marginals and the best model of a decision diagram, with gradients.

Of labels that are independent, with log-odds h, given the clauses C (T is the temperature):

    m_a(T) = T · log( Σ_{w ⊨ C, a ∈ w} exp(h·w/T) / Σ_{w ⊨ C, a ∉ w} exp(h·w/T) )

T = 1 gives the log-odds of P(a | C); T → 0 the max-marginal: what the best model with a is better by
than the best one without it. Everything is computed in float64. What the compiled loops compute is
defined here, in plain torch: any device, every transform of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from latentgamma.engine.diagram import LEAST, NEVER, Diagram
from latentgamma.engine.tensors import can_leave_torch

#: Log-odds beyond this count as this, so that sums and differences of them exist.
_LARGEST = 1e30

_STRUCTURE = ("label", "open", "child_ptr", "child", "free_ptr", "free", "root")


class _Level(NamedTuple):
    """The n nodes of one level; branch b = 2m + k of them decides that the label of node m is k."""

    nodes: slice
    label: Tensor  # (n,)
    open: Tensor  # (2n,)
    sign: Tensor  # (2n,) 2 · label + k
    child_row: Tensor  # the branch that leads to each child
    child: Tensor
    free_row: Tensor  # the branch that leaves each label free
    free: Tensor

    def totals(self, w: Tensor, v: Tensor) -> Tensor:
        """Return the value of each branch (B, n, 2), from those of signs (B, L, 2) and nodes."""
        total = w.flatten(1)[:, self.sign].index_add(1, self.child_row, v[:, self.child])
        return torch.where(self.open, total, -torch.inf).reshape(len(w), -1, 2)


@final
class DiagramPasses(nn.Module):
    """The passes over one diagram; its arrays are buffers, and travel with `.to()`."""

    label: Tensor
    open: Tensor
    child_ptr: Tensor
    child: Tensor
    free_ptr: Tensor
    free: Tensor
    root: Tensor

    def __init__(self, diagram: Diagram, *, compiled: bool = True) -> None:
        super().__init__()
        for name in _STRUCTURE:
            value = torch.from_numpy(getattr(diagram, name).copy())
            self.register_buffer(name, value, persistent=False)
        self._levels = diagram.level_ptr.tolist()
        # Where the children and the free labels of each level lie, so that nothing waits for a GPU.
        ends = 2 * diagram.level_ptr
        self._cuts = [
            [ptr[ends[s : s + 2]].tolist() for ptr in (diagram.child_ptr, diagram.free_ptr)]
            for s in range(len(ends) - 1)
        ]
        self.labels = diagram.labels
        self.compiled = compiled

    @property
    def diagram(self) -> Diagram:
        """The diagram as the buffers have it now."""
        arrays = {name: getattr(self, name).cpu().numpy().copy() for name in _STRUCTURE}
        return Diagram(self.labels, level_ptr=np.asarray(self._levels, np.int32), **arrays)

    def _structure(self) -> list[Tensor]:
        return [getattr(self, name) for name in _STRUCTURE]

    def _fast(self, x: Tensor) -> bool:
        """Whether the compiled loops can run: not under torch.func or in forward mode."""
        if not self.compiled or x.device.type != "cpu":
            return False
        return torch.compiler.is_compiling() or can_leave_torch(x)

    def log_partition(self, x: Tensor) -> Tensor:
        """Return log P(C) of independent labels with these log-odds. (B, L) -> (B,)."""
        return self._marginals(x)[0].to(x.dtype)

    def marginals(self, x: Tensor) -> Tensor:
        """Return the log-odds of P(a | C) for every label. (B, L) -> (B, L)."""
        return self._marginals(x)[2].to(x.dtype)

    def _marginals(self, x: Tensor) -> tuple[Tensor, ...]:
        wide = _wide(x)
        if not self._fast(wide):
            return self._sums(wide)
        found: tuple[Tensor, ...] = diagram_marginals(wide, self._structure(), self._levels)
        return found

    def best(self, x: Tensor, *, scores: bool = True) -> tuple[Tensor, Tensor]:
        """Return the max-marginals and the best model of log-odds. (B, L) -> (B, L), (B, L).

        Where a score would be 0, or is rounded to it, it gets the sign of the best model: so the
        scores above 0 are that model, in every dtype.
        """
        wide = _wide(x)
        needs_grad = scores and torch.is_grad_enabled() and x.requires_grad
        if self._fast(wide) and not needs_grad:
            odds, model = diagram_best(wide.detach(), self._structure(), scores)
        else:
            best = self._best
            if torch.compiler.is_compiling():  # Inductor gives a wrong gradient of these minima
                best = torch.compiler.disable(best)  # type: ignore[no-untyped-call]
            odds, model = best(wide)
        return (_with_sign(odds, model, x.dtype) if scores else odds), model

    # ---- Plain torch

    def _every_level(self) -> list[_Level]:
        found = []
        for s, (start, stop) in enumerate(pairwise(self._levels)):
            branch = torch.arange(2 * (stop - start), device=self.label.device)
            label = self.label[start:stop].long()
            pairs = []
            for ptr, flat, (first, last) in (
                (self.child_ptr, self.child, self._cuts[s][0]),
                (self.free_ptr, self.free, self._cuts[s][1]),
            ):
                sizes = ptr[2 * start : 2 * stop + 1].long().diff()
                row = torch.repeat_interleave(branch, sizes, output_size=last - first)
                pairs += [row, flat[first:last].long()]
            is_open = self.open[2 * start : 2 * stop].bool()
            sign = 2 * label.repeat_interleave(2) + branch % 2
            found.append(_Level(slice(start, stop), label, is_open, sign, *pairs))
        return found

    def _sums(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log P(C) (B,), P(a | C) (B, L) and their log-odds (B, L)."""
        B, L = x.shape
        w = torch.stack([nn.functional.logsigmoid(-x), nn.functional.logsigmoid(x)], -1)
        v = x.new_zeros(B, 0)
        levels, shares = self._every_level(), []
        for level in levels:  # up: the log-probability of each node
            total = level.totals(w, v)
            value = torch.logsumexp(total, -1)
            shares.append((total - value[..., None]).exp().flatten(1))
            v = torch.cat([v, value], 1)
        # Down: the probability of each node given C, of each decided sign, and of being free.
        flow = torch.zeros_like(v).index_fill(1, self.root.long(), 1.0)
        sign, free_flow = x.new_zeros(B, 2 * L), x.new_zeros(B, L)
        for level, share in zip(reversed(levels), reversed(shares), strict=True):
            through = flow[:, level.nodes].repeat_interleave(2, 1) * share  # (B, 2n)
            sign = sign.index_add(1, level.sign, through)
            flow = flow.index_add(1, level.child, through[:, level.child_row])
            free_flow = free_flow.index_add(1, level.free, through[:, level.free_row])
        p = sign.reshape(B, L, 2) + free_flow[..., None] * w.exp()
        logs = p.clamp(min=LEAST).log()
        return v[:, self.root.long()].sum(1), p[..., 1], logs[..., 1] - logs[..., 0]

    def _best(self, x: Tensor) -> tuple[Tensor, Tensor]:
        B, L = x.shape
        w = torch.stack([(-x).clamp(max=0), x.clamp(max=0)], -1)
        v = x.new_zeros(B, 0)
        levels, worse = self._every_level(), []
        for level in levels:
            total = level.totals(w, v)
            worse.append((total.amax(-1, keepdim=True) - total).flatten(1))
            v = torch.cat([v, total.amax(-1)], 1)
        # By index_fill: an assignment would wait for the device.
        root = self.root.long()
        slack = torch.full_like(v, torch.inf).index_fill(1, root, 0.0)
        q = x.new_full((B, 2 * L), torch.inf)
        on_path = torch.zeros_like(v, dtype=torch.bool).index_fill(1, root, True)
        model = (x > 0).clone()
        for level, less in zip(reversed(levels), reversed(worse), strict=True):
            after = slack[:, level.nodes].repeat_interleave(2, 1) + less  # (B, 2n)
            q = _lower(q, level.sign, after)
            slack = _lower(slack, level.child, after[:, level.child_row])
            for k in (0, 1):
                q = _lower(q, 2 * level.free + k, after[:, level.free_row] - w[:, level.free, k])
            # The false branch where both are as good.
            takes = less.reshape(B, -1, 2)[..., 0] > 0
            here = on_path[:, level.nodes]
            chosen = torch.stack([here & ~takes, here & takes], -1).flatten(1)
            on_path = _raised(on_path, level.child, chosen[:, level.child_row])
            decided = _raised(torch.zeros_like(model), level.label, here)
            value = _raised(torch.zeros_like(model), level.label, here & takes)
            model = torch.where(decided, value, model)
        q = q.reshape(B, L, 2).nan_to_num(posinf=-NEVER)
        return q[..., 0] - q[..., 1], model


def _lower(values: Tensor, at: Tensor, new: Tensor) -> Tensor:
    return values.scatter_reduce(1, at.expand(len(values), -1), new, "amin")


def _raised(values: Tensor, at: Tensor, new: Tensor) -> Tensor:
    # As numbers: CUDA devices do not reduce truth values.
    at = at.expand(len(values), -1)
    return values.byte().scatter_reduce(1, at, new.byte(), "amax").bool()


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.float64).clamp(-_LARGEST, _LARGEST)


def _with_sign(odds: Tensor, model: Tensor, dtype: torch.dtype) -> Tensor:
    """Return scores in a dtype, none of them 0 or infinite, with the signs of the model."""
    kind = torch.finfo(dtype)
    given = odds.clamp(-kind.max, kind.max).to(dtype)
    size = given.abs().clamp(min=kind.tiny)
    held = torch.where(model, size, -size)
    # The slope is that of the scores, also where the sign was corrected.
    return given + (held - given).detach() if given.requires_grad else held


# ---- The compiled loops as operations of torch, which torch.compile and torch.export know


def _marginals_of(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return room for the results of `diagram_marginals`."""
    return x.new_zeros(x.shape[0]), x.new_empty(x.shape), x.new_empty(x.shape)


def _best_of(x: Tensor, scores: bool) -> tuple[Tensor, Tensor]:
    """Return room for the results of `diagram_best`."""
    odds = x.new_empty(x.shape if scores else (0, x.shape[1]))
    return odds, x.new_zeros(x.shape, dtype=torch.bool)


@torch.library.custom_op("latentgamma::diagram_marginals", mutates_args=())
def diagram_marginals(
    x: Tensor, structure: Sequence[Tensor], levels: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log P(C) (B,), P(a | C) (B, L) and their log-odds (B, L)."""
    from latentgamma.engine import diagram_cpu

    out = _marginals_of(x)
    diagram_cpu.run(diagram_cpu.marginals_of_tiles, [x], out, structure)
    return out


@torch.library.custom_op("latentgamma::diagram_marginals_backward", mutates_args=())
def diagram_marginals_backward(x: Tensor, grad: Tensor, structure: Sequence[Tensor]) -> Tensor:
    """Return the gradient of the inputs from that of the log-odds of P(a | C)."""
    from latentgamma.engine import diagram_cpu

    out = x.new_empty(x.shape)
    diagram_cpu.run(diagram_cpu.gradients_of_tiles, [x, grad], [out], structure)
    return out


@torch.library.custom_op("latentgamma::diagram_best", mutates_args=())
def diagram_best(x: Tensor, structure: Sequence[Tensor], scores: bool) -> tuple[Tensor, Tensor]:
    """Return the max-marginals, none if they are not asked for, and the best model, (B, L) each."""
    from latentgamma.engine import diagram_cpu

    out = _best_of(x, scores)
    diagram_cpu.run(diagram_cpu.best_of_tiles, [x], out, structure)
    return out


diagram_marginals.register_fake(lambda x, structure, levels: _marginals_of(x))
diagram_marginals_backward.register_fake(lambda x, grad, structure: x.new_empty(x.shape))
diagram_best.register_fake(lambda x, structure, scores: _best_of(x, scores))


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, structure, ctx.levels = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, output[1], *structure)


def _backward(
    ctx: Any, total: Tensor | None, share: Tensor | None, odds: Tensor | None
) -> tuple[Tensor | None, ...]:
    x, p, *structure = ctx.saved_tensors
    none = [None] * len(structure), None
    again = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    if share is not None or again:  # in plain torch, which can be differentiated once more
        arrays = {name: part.numpy() for name, part in zip(_STRUCTURE, structure, strict=True)}
        diagram = Diagram(x.shape[1], level_ptr=np.asarray(ctx.levels, np.int32), **arrays)
        with torch.enable_grad():
            found = DiagramPasses(diagram, compiled=False)._sums(x)
            pairs = zip(found, (total, share, odds), strict=True)
            outs, grads = zip(*((f, g) for f, g in pairs if g is not None), strict=True)
            # As `grad_outputs`: they may depend on x, and are constants here.
            (slope,) = torch.autograd.grad(outs, x, grads, create_graph=again)
        return slope, *none  # type: ignore[return-value]
    slope = torch.zeros_like(x)
    if total is not None:  # P(a | C) = σ(h_a) + ∂ log P(C) / ∂h_a
        slope = slope + total[:, None] * (p - torch.sigmoid(x))
    if odds is not None:
        slope = slope + diagram_marginals_backward(x, odds, structure)
    return slope, *none  # type: ignore[return-value]


diagram_marginals.register_autograd(_backward, setup_context=_keep_for_backward)
