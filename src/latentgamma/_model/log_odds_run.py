"""The log-odds of the last state of a run, computed in the log domain.

With u_t = g Γ, the part of the way to one that an atom goes in step t,

    1 − s_T = (1 − s_0) Π_t (1 − u_t)    and    s_T = s_0 + Σ_t (1 − s_t) u_t,

all terms positive. log u and log(1 − u) follow from the evidence φ without a difference of near
numbers, so the log-odds have their digits, and their gradient its size, where the state itself is
1e-30 or rounds to one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from latentgamma._model.stages import GateKind, is_bump


def log_odds_after(
    state: Tensor, evidence: Sequence[Tensor], kind: GateKind, gate: Tensor
) -> Tensor:
    """log(s_T / (1 − s_T)) of a run that starts at a state. (…, M).

    Args:
        state: s_0.
        evidence: φ of each step.
        kind: the gate.
        gate: β.
    """
    rest = torch.log(_held(1 - state))  # log(1 − s_t)
    terms = [torch.log(_held(state))]
    for phi in evidence:
        share, remainder = _log_share(kind, gate.to(phi.dtype), phi)
        terms.append(rest + share)
        rest = rest + remainder
    return torch.logsumexp(torch.stack(terms), 0) - rest


def _held(values: Tensor) -> Tensor:
    """The values, at least the least normal number, with the slope that they had."""
    return values + (values.clamp(min=torch.finfo(values.dtype).tiny) - values).detach()


def _log_share(kind: GateKind, gate: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Log u and log(1 − u) of u = g Γ."""
    if not is_bump(kind):
        opened, closed = logsigmoid(gate * phi), logsigmoid(-gate * phi)
    else:
        # exp(−1/x²); below 1e-3 that is 0 in every dtype.
        x = torch.clamp(gate * phi, min=1e-3)
        opened = -1 / (x * x)
        closed = torch.log(_held(-torch.expm1(opened)))
    through = logsigmoid(phi)
    return opened + through, torch.logaddexp(logsigmoid(-phi), through + closed)
