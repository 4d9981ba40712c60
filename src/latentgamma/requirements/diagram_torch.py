"""Marginals and the best model of a decision diagram, with gradients.

Of labels that are independent, with log-odds h, given the clauses C (T is the temperature):

    m_a(T) = T · log( Σ_{w ⊨ C, a ∈ w} exp(h·w/T) / Σ_{w ⊨ C, a ∉ w} exp(h·w/T) )

T = 1 gives the log-odds of P(a | C); T → 0 the max-marginal: what the best model with a is better by
than the best one without it. Everything is computed in float64. What the compiled loops compute is
defined here, in plain torch: any device, every transform of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from latentgamma.engine.tensors import are_plain
from latentgamma.requirements.diagram import Diagram

#: Log-odds beyond this count as this, so that sums and differences of them exist.
_LARGEST = 1e30
#: Probabilities below this count as this where their logarithm is needed.
_LEAST = 1e-290

_STRUCTURE = ("label", "open", "child_ptr", "child", "free_ptr", "free", "root")


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
        self.labels = diagram.labels
        self.compiled = compiled

    @property
    def diagram(self) -> Diagram:
        """The diagram as the buffers have it now."""
        arrays = {name: getattr(self, name).cpu().numpy().copy() for name in _STRUCTURE}
        return Diagram(self.labels, level_ptr=np.asarray(self._levels, np.int32), **arrays)

    def _structure(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in _STRUCTURE)

    def _fast(self, x: Tensor) -> bool:
        return self.compiled and x.device.type == "cpu" and are_plain(x)

    def _marginals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = _Marginals.apply(x, self._structure())  # type: ignore[no-untyped-call]
        return found

    def log_partition(self, x: Tensor) -> Tensor:
        """Return log P(C) of independent labels with these log-odds. (B, L) -> (B,)."""
        wide = _wide(x)
        if self._fast(wide) and not torch.compiler.is_compiling():
            return self._marginals(wide)[0].to(x.dtype)
        return self._sum(_log_probabilities(wide)).to(x.dtype)

    def marginals(self, x: Tensor) -> Tensor:
        """Return the log-odds of P(a | C) for every label. (B, L) -> (B, L)."""
        wide = _wide(x)
        if self._fast(wide) and not torch.compiler.is_compiling():
            return self._marginals(wide)[1].to(x.dtype)
        with torch.enable_grad():
            w = _log_probabilities(wide)
            w = w if w.requires_grad else w.requires_grad_()
            keep = x.requires_grad
            (p,) = torch.autograd.grad(self._sum(w).sum(), w, create_graph=keep)
        p = p.clamp(min=_LEAST).log()
        return (p[..., 1] - p[..., 0]).to(x.dtype)

    def best(self, x: Tensor, *, scores: bool = True) -> tuple[Tensor, Tensor]:
        """Return the max-marginals and the best model of log-odds. (B, L) -> (B, L), (B, L).

        Where a score would be 0, or is rounded to it, it gets the sign of the best model: so the
        scores above 0 are that model, in every dtype.
        """
        wide = _wide(x)
        needs_grad = scores and torch.is_grad_enabled() and x.requires_grad
        if self._fast(wide) and not needs_grad:
            from latentgamma.requirements import diagram_cpu

            odds, model = diagram_cpu.best(wide, self._structure(), scores=scores)
        else:
            odds, model = self._best(wide)
        return (_with_sign(odds, model, x.dtype) if scores else odds), model

    # ---- Plain torch

    def _branches(self) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, Tensor]]:
        """Yield for each level its nodes, and pairs (branch in the level, child or free label)."""
        for start, stop in zip(self._levels[:-1], self._levels[1:], strict=True):
            b = slice(2 * start, 2 * stop)
            pairs = []
            for ptr, flat in ((self.child_ptr, self.child), (self.free_ptr, self.free)):
                ends = ptr[2 * start : 2 * stop + 1].long()
                row = torch.repeat_interleave(
                    torch.arange(2 * (stop - start), device=ends.device), ends.diff()
                )
                pairs += [row, flat[ends[0] : ends[-1]].long()]
            yield b, pairs[0], pairs[1], pairs[2], pairs[3]

    def _totals(
        self, w: Tensor, v: Tensor, b: slice, row: Tensor, child: Tensor, never: float
    ) -> Tensor:
        """Return the value of each branch of a level, (B, n, 2)."""
        label = self.label[b.start // 2 : b.stop // 2].long()
        total = w[:, label].flatten(1).index_add(1, row, v[:, child])
        return torch.where(self.open[b].bool(), total, never).reshape(len(w), -1, 2)

    def _sum(self, w: Tensor) -> Tensor:
        """Return log P(C) from the log-probabilities of both signs, (B, L, 2)."""
        free_value = torch.logsumexp(w, -1)
        v = w.new_zeros(w.shape[0], 0)
        for b, row, child, free_row, free in self._branches():
            total = self._totals(w, v, b, row, child, -torch.inf)
            total = total.flatten(1).index_add(1, free_row, free_value[:, free])
            v = torch.cat([v, torch.logsumexp(total.reshape(len(w), -1, 2), -1)], 1)
        return v[:, self.root.long()].sum(1)

    def _best(self, x: Tensor) -> tuple[Tensor, Tensor]:
        B, L = x.shape
        w = torch.stack([(-x).clamp(max=0), x.clamp(max=0)], -1)
        v = x.new_zeros(B, 0)
        worse = []
        levels = list(self._branches())
        for b, row, child, _, _ in levels:
            total = self._totals(w, v, b, row, child, -torch.inf)
            worse.append((total.amax(-1, keepdim=True) - total).flatten(1))
            v = torch.cat([v, total.amax(-1)], 1)
        N = len(self.label)
        slack = x.new_full((B, N), torch.inf)
        slack[:, self.root.long()] = 0.0
        q = x.new_full((B, 2 * L), torch.inf)
        on_path = torch.zeros(B, N, dtype=torch.bool, device=x.device)
        on_path[:, self.root.long()] = True
        model = (x > 0).clone()
        for (b, row, child, free_row, free), less in zip(
            reversed(levels), reversed(worse), strict=True
        ):
            nodes = slice(b.start // 2, b.stop // 2)
            label = self.label[nodes].long()
            after = slack[:, nodes].repeat_interleave(2, 1) + less  # (B, 2n)
            sign = (2 * label[:, None] + torch.arange(2, device=x.device)).flatten()
            q = _lower(q, sign, after)
            slack = _lower(slack, child, after[:, row])
            for k in (0, 1):
                q = _lower(q, 2 * free + k, after[:, free_row] - w[:, free, k])
            # The false branch where both are as good.
            takes = (less.reshape(B, -1, 2)[..., 0] > 0).long()
            here = on_path[:, nodes]
            chosen = torch.stack([here & (takes == 0), here & (takes == 1)], -1).flatten(1)
            on_path = _raised(on_path, child, chosen[:, row])
            decided = torch.zeros_like(model).scatter_reduce(1, label.expand(B, -1), here, "amax")
            value = torch.zeros_like(model).scatter_reduce(
                1, label.expand(B, -1), here & (takes == 1), "amax"
            )
            model = torch.where(decided, value, model)
        q = q.reshape(B, L, 2).nan_to_num(posinf=-_NEVER)
        return q[..., 0] - q[..., 1], model


_NEVER = -1e300


def _lower(values: Tensor, at: Tensor, new: Tensor) -> Tensor:
    return values.scatter_reduce(1, at.expand(len(values), -1), new, "amin")


def _raised(values: Tensor, at: Tensor, new: Tensor) -> Tensor:
    return values.scatter_reduce(1, at.expand(len(values), -1), new, "amax")


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.float64).clamp(-_LARGEST, _LARGEST)


def _log_probabilities(x: Tensor) -> Tensor:
    return torch.stack([nn.functional.logsigmoid(-x), nn.functional.logsigmoid(x)], -1)


def _with_sign(odds: Tensor, model: Tensor, dtype: torch.dtype) -> Tensor:
    """Return scores in a dtype, none of them 0 or infinite, with the signs of the model."""
    kind = torch.finfo(dtype)
    given = odds.clamp(-kind.max, kind.max).to(dtype)
    size = given.abs().clamp(min=kind.tiny)
    held = torch.where(model, size, -size)
    # The slope is that of the scores, also where the sign was corrected.
    return given + (held - given).detach() if given.requires_grad else held


class _Marginals(torch.autograd.Function):
    """log P(C) and the log-odds of P(a | C), by compiled loops."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, structure: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        from latentgamma.requirements import diagram_cpu

        total, share, odds = diagram_cpu.marginals(x, structure)
        ctx.save_for_backward(x, share)
        ctx.structure = structure
        return total, odds

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor | None, grad_odds: Tensor | None) -> Any:
        from latentgamma.requirements import diagram_cpu

        x, share = ctx.saved_tensors
        slope = torch.zeros_like(x)
        if grad_total is not None:  # P(a | C) = σ(h_a) + ∂ log P(C) / ∂h_a
            slope += grad_total[:, None] * (share - torch.sigmoid(x))
        if grad_odds is not None and bool(grad_odds.any()):
            slope += diagram_cpu.marginals_backward(x, grad_odds, ctx.structure)
        return slope, None
