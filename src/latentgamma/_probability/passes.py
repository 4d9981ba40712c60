"""Runs a sum-product pass on a batch: compiled on the CPU, or in the log domain with torch."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentgamma._logic.loops import compiled
from latentgamma._probability.pass_loops import run_gradient, run_pass
from latentgamma._probability.sum_product import SumProduct

# Bytes of the node values that one call of a loop works on: a part of the second-level cache.
_CHUNK_BYTES = 1 << 19


def pass_values(circuit: SumProduct, inputs: Tensor) -> Tensor:
    """Return the probability of each node, shape (B, nodes), in float64.

    Args:
        circuit: The arrays of the pass.
        inputs: Probabilities of the input nodes, shape (B, inputs).
    """
    return _Pass.apply(circuit, inputs)  # type: ignore[no-any-return,no-untyped-call]


def pass_log_values(circuit: SumProduct, log_inputs: Tensor) -> Tensor:
    """Return the log-probability of each node, shape (B, nodes), by torch operations.

    Args:
        circuit: The arrays of the pass.
        log_inputs: Log-probabilities of the input nodes, shape (B, inputs).
    """
    device = log_inputs.device
    B = len(log_inputs)
    value = [log_inputs.T]  # nodes by level, (nodes of the level, B)
    for level in _levels(circuit):
        rows = torch.cat(value)
        node = level.node.to(device)
        logs = rows.new_zeros(len(node), B)
        logs = logs.index_add(0, level.rule.to(device), rows[level.body.to(device)])  # (rules, B)
        result = _log_sum(logs, node, level.nodes)
        if level.some_independent:
            none = rows.new_zeros(level.nodes, B).index_add(0, node, _log_complement(logs))
            independent = level.independent.to(device)[:, None]
            result = torch.where(independent, _log_complement(none), result)
        value.append(result)
    order = torch.from_numpy(_level_order(circuit)).to(device)
    return torch.cat(value)[order].T


def _log_sum(logs: Tensor, node: Tensor, nodes: int) -> Tensor:
    """The logarithm of the sum of each node's rules."""
    most = logs.new_full((nodes, logs.shape[1]), -1e300)
    most = most.scatter_reduce(0, node[:, None].expand_as(logs), logs.detach(), "amax")
    total = torch.zeros_like(most).index_add(0, node, (logs - most[node]).exp())
    # A node without any chance stays at minus infinity, with a gradient of zero.
    return torch.where(total > 0, total.clamp(min=1e-300).log() + most, -torch.inf)


def _log_complement(logs: Tensor) -> Tensor:
    """log(1 - exp(x)), accurate for x near 0 and for very negative x."""
    small = logs > -0.6931471805599453
    near = torch.where(small, -torch.expm1(torch.where(small, logs, -1.0)), 0.5).log()
    far = torch.log1p(-torch.where(small, -1.0, logs).exp())
    return torch.where(small, near, far)


class _Level(NamedTuple):
    """The rules of the nodes of one level, as places among the nodes sorted by level."""

    body: Tensor  # (literals,) the node of each body literal
    rule: Tensor  # (literals,) the rule of each body literal
    node: Tensor  # (rules,) the node of each rule, from 0 within the level
    nodes: int
    independent: Tensor  # (nodes,)
    some_independent: bool


def _node_levels(circuit: SumProduct) -> np.ndarray:
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
    by_level = np.argsort(_node_levels(circuit), kind="stable")
    place = np.empty_like(by_level)
    place[by_level] = np.arange(len(by_level))
    return place


@lru_cache(maxsize=16)
def _levels(circuit: SumProduct) -> list[_Level]:
    level, place = _node_levels(circuit), _level_order(circuit)
    levels = []
    for d in range(1, int(level.max(initial=0)) + 1):
        nodes = np.flatnonzero(level == d) - circuit.inputs
        rules = [np.arange(circuit.rule_ptr[n], circuit.rule_ptr[n + 1]) for n in nodes]
        owner = np.repeat(np.arange(len(nodes)), [len(r) for r in rules])
        flat = np.concatenate(rules) if rules else np.zeros(0, np.int64)
        sizes = circuit.body_ptr[flat + 1] - circuit.body_ptr[flat]
        starts = np.cumsum(sizes) - sizes
        literal = np.arange(sizes.sum()) + np.repeat(circuit.body_ptr[flat] - starts, sizes)
        levels.append(
            _Level(
                torch.from_numpy(place[circuit.body[literal]]),
                torch.from_numpy(np.repeat(np.arange(len(flat)), sizes)),
                torch.from_numpy(owner),
                len(nodes),
                torch.from_numpy(circuit.independent[nodes]),
                bool(circuit.independent[nodes].any()),
            )
        )
    return levels


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, circuit: SumProduct, inputs: Tensor) -> Tensor:
        given = inputs.detach().to("cpu", torch.float64).numpy()
        value = np.empty((circuit.nodes, len(given)))
        arrays = _arrays(circuit)

        def work(span: slice) -> None:
            chunk = np.empty((circuit.nodes, span.stop - span.start))
            chunk[: circuit.inputs] = given[span].T
            compiled(run_pass)(circuit.inputs, *arrays, chunk)
            value[:, span] = chunk

        _in_chunks(circuit, len(given), work)
        ctx.circuit, ctx.value = circuit, value
        ctx.like = inputs.dtype, inputs.device
        return torch.from_numpy(value).T

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        circuit: SumProduct = ctx.circuit
        given = grad_out.to("cpu", torch.float64).numpy()
        grad = np.empty((len(given), circuit.inputs))
        arrays = _arrays(circuit)

        def work(span: slice) -> None:
            chunk = np.ascontiguousarray(given[span].T)
            value = np.ascontiguousarray(ctx.value[:, span])
            compiled(run_gradient)(circuit.inputs, *arrays, value, chunk)
            grad[span] = chunk[: circuit.inputs].T

        _in_chunks(circuit, len(given), work)
        dtype, device = ctx.like
        return None, torch.from_numpy(grad).to(device, dtype)


def _arrays(circuit: SumProduct) -> tuple[Any, ...]:
    return circuit.rule_ptr, circuit.body_ptr, circuit.body, circuit.independent


def _in_chunks(circuit: SumProduct, examples: int, work: Any) -> None:
    """Call `work` on slices of the examples, in as many threads as torch uses."""
    size = max(8, _CHUNK_BYTES // (8 * max(circuit.nodes, 1)))
    threads = min(torch.get_num_threads(), os.cpu_count() or 1)
    size = min(size, -(-examples // threads)) or 1
    spans = [slice(a, min(a + size, examples)) for a in range(0, examples, size)]
    if threads == 1 or len(spans) <= 1:
        for span in spans:
            work(span)
        return
    with ThreadPoolExecutor(threads, "latentgamma") as pool:
        list(pool.map(work, spans))
