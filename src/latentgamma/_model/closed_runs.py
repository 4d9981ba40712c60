"""Runs with `steps=None`: each example runs until its support is closed under the program.

How many steps an example takes depends on that example alone. Its facts are read off its state,
their closure takes d steps of T_P, and the certificate says how many steps of the model that needs
at most. Facts near ½ may need longer: an example whose support is not closed yet goes on, in
chunks, up to a limit inside the certified window.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from latentgamma._certificate.certificate import Certificate
from latentgamma._errors import ModelError
from latentgamma._model.sparse_rules import SparseRules
from latentgamma._program.program import Program

#: Runs a batch (B, M), each example as many steps as the tensor (B,) says.
RunCounts: TypeAlias = Callable[[Tensor, Tensor], Tensor]
#: The number of steps of T_P to the closure of each support (B, M) of a batch. (B,).
Depths: TypeAlias = Callable[[Tensor], Tensor]

#: Steps of the first chunk after the expected number; each further chunk is twice as long.
_FIRST_CHUNK = 4


def run_until_closed(
    run: RunCounts, program: Program, certificate: Certificate, state: Tensor
) -> Tensor:
    """The state of every example once its support is closed under the program. (…, M).

    Raises:
        ModelError: the certificate does not hold.
    """
    if not certificate.holds:
        raise ModelError(f"steps=None needs a certified window, but {certificate}; pass steps=")
    # Facts that are only half true may need longer than the true ones t_min speaks of.
    limit = int(min(certificate.t_max, 4 * certificate.t_min + 16))
    delay = max(0, int(certificate.t_min) - certificate.depth)
    closure = _SymbolicClosure(program, state.device)
    batch = state.reshape(math.prod(state.shape[:-1]), state.shape[-1])
    depths = closure.depths(batch.detach() > 0.5)
    counts = torch.where(depths > 0, (depths + delay).clamp(max=limit), 0)
    taken, chunk = counts, _FIRST_CHUNK
    batch = run(batch, counts)
    while len(batch):
        running = torch.nonzero(~closure.is_closed(batch.detach() > 0.5)).flatten()
        if not len(running):
            break
        more = (limit - taken[running]).clamp(max=chunk)
        if not int(more.max()):
            _warn(len(running), len(batch), limit)
            break
        batch = batch.index_copy(0, running, run(batch.index_select(0, running), more))
        taken = taken.index_add(0, running, more)
        chunk *= 2
    return batch.reshape(state.shape)


def _warn(unfinished: int, examples: int, limit: int) -> None:
    warnings.warn(
        f"{unfinished} of {examples} examples did not reach a closed support within {limit} "
        f"steps: their facts are too close to ½ for some rule to fire or not; move the facts "
        f"towards 0 or 1, or pass steps=",
        stacklevel=_level_of_caller(),
    )


def _level_of_caller() -> int:
    """How many frames above the warning the model was called."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in ("latentgamma", "torch"):
            break
        frame, level = frame.f_back, level + 1
    return level


class _SymbolicClosure:
    """T_P on batches of supports."""

    def __init__(self, program: Program, device: torch.device) -> None:
        self._literals = [index.to(device) for index in SparseRules.literals_of(program)]
        self._R = program.R

    def step(self, support: Tensor) -> Tensor:
        """T_P of each support. (B, M)."""
        body_rule, body_atom, head_rule, head_atom = self._literals
        missing = (~support).to(torch.int32)
        lacking = missing.new_zeros(len(support), self._R)
        lacking = lacking.index_add(-1, body_rule, missing[:, body_atom])
        fired = (lacking == 0)[:, head_rule].to(torch.int32)  # (B, head literals)
        return support | (torch.zeros_like(missing).index_add(-1, head_atom, fired) > 0)

    def is_closed(self, support: Tensor) -> Tensor:
        """Whether each support is closed. (B,)."""
        return (self.step(support) == support).all(-1)

    def depths(self, support: Tensor) -> Tensor:
        """How many steps of T_P each support takes to its closure. (B,)."""
        depths = torch.zeros(len(support), dtype=torch.int64, device=support.device)
        steps = 0
        while True:
            after = self.step(support)
            changed = (after != support).any(-1)
            if not bool(changed.any()):
                return depths
            steps += 1
            depths[changed] = steps
            support = after
