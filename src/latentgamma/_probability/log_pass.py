"""Runs a sum-product pass in the log domain with torch, level by level, on any device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentgamma._probability.logarithms import log_complement
from latentgamma._probability.pass_circuit import COMPLEMENT, INDEPENDENT, SumProduct
from latentgamma._probability.second_derivative import without_second_derivative


def pass_log_values(circuit: SumProduct, log_inputs: Tensor) -> Tensor:
    """Return the log-probability of each node, shape (B, nodes), level by level with torch.

    Args:
        circuit: The arrays of the pass.
        log_inputs: Log-probabilities of the input nodes, shape (B, inputs).
    """
    return _LogPass.apply(circuit, log_inputs)  # type: ignore[no-any-return,no-untyped-call]


class _LogPass(torch.autograd.Function):
    """The pass in the log domain. Rows are nodes sorted by level, columns are examples."""

    @staticmethod
    def forward(ctx: Any, circuit: SumProduct, log_inputs: Tensor) -> Tensor:
        levels, place = _levels_on(circuit, log_inputs.device)
        value = log_inputs.new_empty(circuit.nodes, len(log_inputs))
        value[: circuit.inputs] = log_inputs.T
        for level in levels:
            logs = level.body_logs(value)
            most = value.new_full((level.nodes, value.shape[1]), -torch.inf)
            most = most.scatter_reduce_(0, level.node[:, None].expand_as(logs), logs, "amax")
            shift = most.clamp(min=-1e300)  # keeps -inf - -inf out
            total = torch.zeros_like(most)
            total.index_add_(0, level.node, (logs - shift[level.node]).exp())
            result = total.log() + shift
            if level.independent is not None:
                none = torch.zeros_like(most).index_add_(0, level.node, log_complement(logs, 0.0))
                # Where all bodies are this unlikely, their sum is right to the last digit.
                likely = level.independent & (result > -100.0)
                result = torch.where(likely, log_complement(none, 0.0), result)
            if level.complement is not None:
                result = torch.where(level.complement, log_complement(result, 0.0), result)
            value[level.first : level.first + level.nodes] = result
        ctx.circuit, ctx.value = circuit, value
        ctx.save_for_backward(log_inputs)
        return value[place].T

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        circuit, value = ctx.circuit, ctx.value
        levels, place = _levels_on(circuit, value.device)
        grad = torch.empty_like(value)
        grad[place] = grad_out.T
        for level in reversed(levels):
            logs = level.body_logs(value)
            rows = slice(level.first, level.first + level.nodes)
            result, above = value[rows][level.node], grad[rows][level.node]  # (rules, B)
            weight = logs - result
            if level.independent is not None:
                complement = log_complement(logs, 0.0).clamp(min=-700.0)
                none = torch.zeros_like(grad[rows]).index_add_(0, level.node, complement)
                others = none[level.node] - complement
                weight = torch.where(level.independent[level.node], weight + others, weight)
            if level.complement is not None:
                above = torch.where(level.complement[level.node], -above, above)
                weight = weight.clamp(max=700.0)
            # A body without any chance has no share.
            share = torch.where(logs > -torch.inf, above * weight.exp(), 0.0)
            grad.index_add_(0, level.body, share[level.rule])
        result = grad[: circuit.inputs].T
        return None, without_second_derivative(result, *ctx.saved_tensors, grad_out)


class _Level(NamedTuple):
    """The rules of the nodes of one level, as places among the nodes sorted by level."""

    first: int  # its first node
    nodes: int
    body: Tensor  # (literals,) the node of each body literal
    rule: Tensor  # (literals,) the rule of each body literal
    node: Tensor  # (rules,) the node of each rule, from 0 within the level
    independent: Tensor | None  # (nodes, 1); None where there is no such node
    complement: Tensor | None

    def body_logs(self, value: Tensor) -> Tensor:
        """The log-probability of each body, shape (rules, B)."""
        logs = value.new_zeros(len(self.node), value.shape[1])
        return logs.index_add_(0, self.rule, value[self.body])


def node_levels(circuit: SumProduct) -> np.ndarray:
    """Return the level of each node: 0 for inputs, else one more than the highest in its bodies."""
    level = np.zeros(circuit.nodes, np.int64)
    for n in range(circuit.nodes - circuit.inputs):
        first, last = (
            circuit.body_ptr[circuit.rule_ptr[n]],
            circuit.body_ptr[circuit.rule_ptr[n + 1]],
        )
        parts = circuit.body[first:last]
        level[circuit.inputs + n] = 1 + (level[parts].max() if len(parts) else 0)
    return level


def _level_order(circuit: SumProduct) -> np.ndarray:
    """The place of each node when the nodes are sorted by level."""
    by_level = np.argsort(node_levels(circuit), kind="stable")
    place = np.empty_like(by_level)
    place[by_level] = np.arange(len(by_level))
    return place


@lru_cache(maxsize=16)
def _levels_on(circuit: SumProduct, device: torch.device) -> tuple[list[_Level], Tensor]:
    """The levels of a circuit on a device, and the row of each node."""
    with torch.inference_mode(False):  # these may be needed for a gradient later
        return _make_levels(circuit, device)


def _make_levels(circuit: SumProduct, device: torch.device) -> tuple[list[_Level], Tensor]:
    level, place = node_levels(circuit), _level_order(circuit)
    levels = []
    first = circuit.inputs
    for d in range(1, int(level.max(initial=0)) + 1):
        nodes = np.flatnonzero(level == d) - circuit.inputs
        rules = np.concatenate(
            [np.arange(circuit.rule_ptr[n], circuit.rule_ptr[n + 1]) for n in nodes]
        )
        owner = np.repeat(
            np.arange(len(nodes)), circuit.rule_ptr[nodes + 1] - circuit.rule_ptr[nodes]
        )
        sizes = circuit.body_ptr[rules + 1] - circuit.body_ptr[rules]
        starts = np.cumsum(sizes) - sizes
        literal = np.arange(sizes.sum()) + np.repeat(circuit.body_ptr[rules] - starts, sizes)
        kind = circuit.kind[nodes][:, None]
        body = place[circuit.body[literal]]
        rule = np.repeat(np.arange(len(rules)), sizes)
        levels.append(
            _Level(
                first,
                len(nodes),
                torch.from_numpy(body).to(device),
                torch.from_numpy(rule).to(device),
                torch.from_numpy(owner).to(device),
                *(
                    torch.from_numpy(kind == which).to(device) if (kind == which).any() else None
                    for which in (INDEPENDENT, COMPLEMENT)
                ),
            )
        )
        first += len(nodes)
    return levels, torch.from_numpy(place).to(device)
