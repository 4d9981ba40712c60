"""Starts the CPU kernels: threads, and the arrays they work on."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentgamma.engine.simd import TILE
from latentgamma.engine.tensors import array_of
from latentgamma.operator.kernels.cpu import (
    BLOCK,
    HIGHEST_POWER,
    Array,
    BackwardArrays,
    StepArrays,
    backward_tiles,
    forward_tiles,
    new_barrier,
)
from latentgamma.operator.kernels.interface import (
    Coefficients,
    FusedSteps,
    LiteralRows,
    Stored,
    make_coefficients,
)
from latentgamma.operator.rules import StepParameters
from latentgamma.program.compilation import share_parts, thread_pool
from latentgamma.program.graph import Csr

# ---- Threads that wait for each other

#: Held while such threads run; two groups of them could block each other.
_GROUP_LOCK = threading.Lock()


def _forget() -> None:
    """Make a new lock in a child process, whose parent may have held it."""
    global _GROUP_LOCK  # noqa: PLW0603
    _GROUP_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def run_together(threads: int, work: Callable[[int], None]) -> None:
    """Call work(0) … work(threads − 1), all at the same time: they may wait for each other."""
    with _GROUP_LOCK:
        ready = threading.Semaphore(0)
        complete = False

        def start_when_ready(part: int) -> None:
            ready.acquire()
            if complete:
                work(part)

        try:
            pool = thread_pool(threads - 1)
            others = [pool.submit(start_when_ready, part) for part in range(1, threads)]
            complete = True
        finally:  # if a thread could not be started, those that wait have to end too
            ready.release(threads)
        work(0)
        for other in others:
            other.result()


# ---- The CPU kernel: batches cut into tiles, and the work divided among threads
# A tile of examples goes through all its steps before the next one starts, so that its state stays
# in the cache. Threads take tiles. Where there are fewer tiles than threads, or a tile is too large
# for a cache, all threads work on one tile, each on its own blocks of rules and atoms.

#: Up to this many examples are tiles of their own.
FEW = 3
#: Numbers to compute, below which a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 18
#: Numbers of one step of one tile, below which threads that share it wait more than they compute.
_WORTH_SHARING = 1 << 14
#: Numbers of one step of one tile from which on no cache holds them, so that threads share it.
_LARGER_THAN_CACHE = 1 << 20
#: Bytes of a cache line.
_LINE = 64


# ---- Parameters


def read(run: FusedSteps, stored: Stored, dtype: torch.dtype) -> tuple[StepParameters, StepArrays]:
    """Return the parameters that a step uses, and the same multiplied out, with the literals."""
    rows = run.rows
    with torch.no_grad():
        parameters = run.read_plainly(stored)
        tensors = make_coefficients(rows, parameters, dtype)
        # FSDP could not free a parameter that numpy has a view of.
        tensors = tensors._replace(offset=tensors.offset.clone())
    gate = float(tensors.gate)
    c: Any = Coefficients._make([*map(array_of, tensors[:-1]), gate])
    arrays = _arrays(rows)
    return parameters, StepArrays(
        *arrays[:4],
        coefficients=c,
        use_weight=c.body_weight[:0],
        source_weight=c.head_weight[arrays.source_place],
        gate_power=int(gate) if gate.is_integer() and gate <= HIGHEST_POWER else 0,
        bump=run.bump,
    )


def read_backward(
    run: FusedSteps, read: tuple[StepParameters, StepArrays], stored: Stored, grads: Coefficients
) -> Stored:
    """Return the gradients of the parameters, from those of the coefficients in float64."""
    rows, step, M = run.rows, read[0], run.rows.M
    raw_confidence, raw_gain, offset, raw_gate = stored[6:]
    dtype, limits = offset.dtype, torch.finfo(offset.dtype)
    gain_raw, gate_raw = raw_gain.item(), raw_gate.item()
    confidence = torch.sigmoid(raw_confidence.detach().double()).numpy()
    inside = (confidence > limits.tiny) & (confidence < 1 - limits.eps)  # not clamped
    threshold, tau, amplitude = (
        x.detach().to(torch.float64, copy=True).numpy()
        for x in (step.threshold, step.sharpness, step.amplitude)
    )
    body, body_off, total, head, head_off = (array_of(x) for x in step[:5])
    body_rule, head_rule, body_place, head_place = (
        array_of(x) for x in (rows.body_rule, rows.head_rule, rows.body_place, rows.head_place)
    )
    body, head = body[body_place], head[head_place]  # from the order of the logits to that by rule
    margin, background, body_weight, head_background, head_weight = (array_of(x) for x in grads[:5])

    def summed(rule: Array, values: Array) -> Array:
        return np.bincount(rule, values, rows.R)

    def placed(values: Array, place: Array) -> Array:
        found = np.empty_like(values)
        found[place] = values
        return found

    by_total = margin * tau
    by_body = body_weight * tau[body_rule] + by_total[body_rule]
    by_body_off = background * tau + M * by_total - summed(body_rule, by_body)
    by_tau = margin * (total - threshold) + background * body_off
    by_tau += summed(body_rule, body_weight * body)
    by_amplitude = head_background * head_off + summed(head_rule, head_weight * head)
    by_head = head_weight * amplitude[head_rule]
    by_head_off = head_background * amplitude - summed(head_rule, by_head)
    body += body_off[body_rule]  # the sigmoid of each literal
    head += head_off[head_rule]  # its part in the softmax of its rule
    mean = summed(head_rule, by_head * head) + by_head_off * head_off
    rest = M - np.diff(array_of(rows.head_start))
    by_gain = float(by_amplitude @ confidence) * _sigmoid(gain_raw)
    by_confidence = by_amplitude * confidence * (1 - confidence) * inside * _softplus(gain_raw)
    found = (
        placed(by_body * body * (1 - body), body_place),
        by_body_off * body_off * (1 - body_off),
        placed(head * (by_head - mean[head_rule]), head_place),
        head_off * (by_head_off - rest * mean),
        -by_total,
        by_tau * -np.expm1(-tau),  # of a softplus, 1 − e^−τ
        by_confidence,
        np.array(by_gain),
        array_of(grads.offset),
        np.array(float(grads.gate) * _sigmoid(gate_raw)),
    )
    return tuple(torch.from_numpy(x).to(dtype) for x in found)


def _softplus(x: float) -> float:
    return x if x > 40 else math.log1p(math.exp(x))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


class _Arrays(NamedTuple):
    """The literals by rule and by atom, and where those by atom stand among those by rule."""

    bodies: Csr  # rule → the atoms of its body
    heads: Csr  # rule → its heads
    uses: Csr  # atom → the rules that have it in their body
    sources: Csr  # atom → the rules that have it as a head
    use_place: Array  # (literals,)
    source_place: Array  # (head literals,)


def _arrays(rows: LiteralRows) -> _Arrays:
    """Return the literals as arrays, made once."""
    if "cpu" not in rows.kernel_form:
        bodies = Csr(array_of(rows.body_start), array_of(rows.body_atom))
        heads = Csr(array_of(rows.head_start), array_of(rows.head_atom))
        uses, use_place = _by_atom(bodies, rows.body_rule, rows.M)
        sources, source_place = _by_atom(heads, rows.head_rule, rows.M)
        rows.kernel_form["cpu"] = _Arrays(bodies, heads, uses, sources, use_place, source_place)
    found: _Arrays = rows.kernel_form["cpu"]
    return found


def _by_atom(by_rule: Csr, rule: Tensor, M: int) -> tuple[Csr, Array]:
    """Return the rules of each atom, and where these literals stand in the order by rule."""
    alone = Csr(np.arange(len(by_rule.indices) + 1), by_rule.indices)
    start, place = alone.transpose(M)
    return Csr(start, array_of(rule)[place]), place


# ---- Steps


def forward(
    run: FusedSteps, read: tuple[StepParameters, StepArrays], state: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the last state (B, M); and, to keep, all states, tile by tile."""
    rows, given, steps = run.rows, array_of(state), run.steps
    result = np.empty_like(given)
    tiles = _Tiles(rows, len(given), given.dtype)
    each = _counts(run.counts, len(given), steps)
    kept = tiles.rows((tiles.number, steps + 1), rows.M) if keep else None

    def work(first: int, last: int, part: int, parts: int, shared: Any) -> None:
        barrier, states, activation, atom_sums, rule_sums = shared
        forward_tiles(
            *(first, last, part, parts, barrier, each, given, result, states, read[1]),
            *(activation, atom_sums, rule_sums),
        )

    def memory() -> Any:
        states = tiles.rows((1, 1), rows.M) if kept is None else kept
        return new_barrier(), states, tiles.rows((), rows.R), *tiles.block_sums()

    tiles.run(steps, memory, work)
    return torch.from_numpy(result), None if kept is None else torch.from_numpy(kept)


def trajectory(run: FusedSteps, kept: Tensor, batch: int) -> Tensor:
    """Return all states that `forward` kept. (T + 1, B, M)."""
    M = run.rows.M
    if kept.dim() == 3:  # (B, T + 1, at least M)
        return kept[:, :, :M].transpose(0, 1).contiguous()
    states = kept.permute(1, 0, 3, 2)  # (T + 1, tiles, TILE, M)
    return states.reshape(len(states), len(kept) * TILE, M)[:, :batch].contiguous()


def backward(
    run: FusedSteps,
    read: tuple[StepParameters, StepArrays],
    kept: Tensor,
    grad: Tensor,
    *,
    learn: bool,
) -> tuple[Tensor, Coefficients | None]:
    """Return the gradient of the first state (B, M); and, to learn, of the coefficients."""
    rows, given, states = run.rows, array_of(grad), array_of(kept)
    M, R, batch = rows.M, rows.R, given.shape[1]
    tiles = _Tiles(rows, batch, given.dtype)
    c: Any = read[1].coefficients
    step = read[1]._replace(use_weight=c.body_weight[_arrays(rows).use_place])
    each = _counts(run.counts, batch, run.steps)
    result = np.empty((batch, M), given.dtype)
    sizes = (R, R, len(c.body_weight), R, len(c.head_weight), M, 0)
    # One row of sums for each tile, so that the order of the last sum is fixed too.
    totals = Coefficients._make([np.zeros((tiles.number if learn else 0, n)) for n in sizes])
    grad_gate = np.zeros((tiles.number, -(-M // BLOCK)))

    def work(first: int, last: int, part: int, parts: int, shared: Any) -> None:
        barrier, memory, grads = shared
        backward_tiles(
            *(first, last, part, parts, barrier, each, given, result, states, step),
            *(memory, grads, totals, grad_gate),
        )

    def memory() -> Any:
        grad, activation, slope, evidence = (tiles.rows((), size) for size in (M, R, R, M))
        arrays = BackwardArrays(grad, activation, slope, evidence, *tiles.block_sums())
        grads = Coefficients._make([tiles.rows((), size if learn else 0) for size in sizes])
        return new_barrier(), arrays, grads

    tiles.run(run.steps, memory, work)
    if not learn:
        return torch.from_numpy(result), None
    sums = [torch.from_numpy(np.sum(total, 0)) for total in totals[:-1]]
    return torch.from_numpy(result), Coefficients._make([*sums, torch.tensor(grad_gate.sum())])


def _counts(counts: Tensor | None, batch: int, steps: int) -> Array:
    """Return how many steps each example takes. (B,)."""
    return np.full(batch, steps) if counts is None else array_of(counts)


class _Tiles:
    """How a batch is cut: TILE examples to a tile, or one where there are few."""

    def __init__(self, rows: LiteralRows, batch: int, dtype: Any) -> None:
        self._columns = 1 if batch <= FEW else TILE
        self.number = -(-batch // self._columns)
        self._dtype = dtype
        self._size = self._columns * (rows.M + rows.R + rows.body_rule.numel())
        self._atom_blocks, self._rule_blocks = -(-rows.M // BLOCK), -(-rows.R // BLOCK)

    def rows(self, many: tuple[int, ...], rows: int) -> Array:
        """Return zeros for this many rows; those of one example fill up their last group."""
        if self._columns == 1:
            return _aligned_zeros((*many, -(-rows // TILE) * TILE), self._dtype)
        return _aligned_zeros((*many, rows, TILE), self._dtype)

    def block_sums(self) -> tuple[Array, Array]:
        """Return one row per block of atoms, and one per block of rules."""
        shape = () if self._columns == 1 else (TILE,)
        return np.zeros((self._atom_blocks, *shape)), np.zeros((self._rule_blocks, *shape))

    def run(
        self, steps: int, memory: Callable[[], Any], work: Callable[[int, int, int, int, Any], None]
    ) -> None:
        """Call work(first, last, part, parts, memory) on as many threads as torch may use."""
        threads = torch.get_num_threads()
        if self.number * self._size * steps < _WORTH_A_THREAD:
            threads = 1
        few = self.number < threads and self._size >= _WORTH_SHARING
        if threads > 1 and (few or self._size >= _LARGER_THAN_CACHE):
            shared = memory()
            run_together(threads, lambda part: work(0, self.number, part, threads, shared))
        else:
            share_parts(lambda first, last: work(first, last, 0, 1, memory()), self.number, threads)


def _aligned_zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros that begin at a cache line: a row across two lines takes two accesses."""
    count = math.prod(shape)
    memory = np.zeros(count + _LINE, dtype)
    start = -memory.__array_interface__["data"][0] % _LINE // memory.itemsize
    return memory[start : start + count].reshape(shape)
