"""Starts the Triton kernels: the structure of the rules on the GPU, and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton
from torch import Tensor

from latentgamma.operator.kernels import cuda
from latentgamma.operator.kernels.cuda import count_steps
from latentgamma.operator.kernels.interface import (
    Coefficients,
    FusedSteps,
    LiteralRows,
    RecordedRuns,
    Stored,
)

# ---- The literals of a program in the order in which the kernels read them

#: Up to this many atoms or rules one thread block runs all steps of its tile.
_ONE_LAUNCH_UP_TO = 4096
#: How many rules or atoms such a thread block may take at a time, a thread for each.
RUN_LENGTHS = (128, 256, 512, 1024)


@dataclass(frozen=True)
class GatheredRows:
    """Row r holds `other[start[r]:start[r + 1]]`, whose weights stand at `place`."""

    start: Tensor
    other: Tensor
    place: Tensor
    most: int  # the length of the longest row
    longest: dict[int, Tensor]  # and of the longest in each run of this many rows

    def in_runs(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return these rows for a kernel that takes this many of them at a time: see `cuda.py`."""
        return self.start, self.other, self.place, self.longest[rows]

    @property
    def unroll(self) -> int:
        """How many literals of a row a kernel takes without a loop."""
        return min(2, self.most)


@dataclass(frozen=True)
class DeviceProgram:
    """A program's literals, seen from its rules and from its atoms.

    Where one thread block runs a whole tile, rules and atoms are numbered by the number of
    literals they gather, the most first, so that few runs of rows have to wait for a long one.
    `orders` gives the original numbers of rules and of atoms.
    """

    M: int
    R: int
    one_launch: bool
    orders: tuple[Tensor, Tensor]
    bodies: GatheredRows  # rule → its body atoms
    uses: GatheredRows  # atom → the rules whose body it is in
    heads: GatheredRows  # rule → its heads
    sources: GatheredRows  # atom → the rules it is a head of
    #: Body start and place, head start and place: the literals by rule, and where their logits stand.
    rules: tuple[Tensor, Tensor, Tensor, Tensor]

    @classmethod
    def of(cls, rows: LiteralRows) -> DeviceProgram:
        """Return the literals of these rows."""
        M, R = rows.M, rows.R
        body_rule, body_atom = rows.body_rule.long(), rows.body_atom.long()
        head_rule, head_atom = rows.head_rule.long(), rows.head_atom.long()
        one_launch = 0 < max(M, R) <= _ONE_LAUNCH_UP_TO
        rules = torch.arange(R, device=body_rule.device)
        atoms = torch.arange(M, device=body_rule.device)
        if one_launch:
            sizes = torch.bincount(body_rule, minlength=R)
            rules = torch.argsort(sizes, descending=True, stable=True)
            sizes = torch.bincount(head_atom, minlength=M)
            atoms = torch.argsort(sizes, descending=True, stable=True)
        rule_rank, atom_rank = torch.argsort(rules), torch.argsort(atoms)
        b_rule, b_atom = rule_rank[body_rule], atom_rank[body_atom]
        h_rule, h_atom = rule_rank[head_rule], atom_rank[head_atom]
        return cls(
            M,
            R,
            one_launch,
            (rules.int(), atoms.int()),
            _gathered(b_rule, b_atom, R),
            _gathered(b_atom, b_rule, M),
            _gathered(h_rule, h_atom, R),
            _gathered(h_atom, h_rule, M),
            (rows.body_start, rows.body_place, rows.head_start, rows.head_place),
        )


def _gathered(row: Tensor, other: Tensor, count: int) -> GatheredRows:
    order = torch.argsort(row, stable=True)
    counts = torch.bincount(row, minlength=count)
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    longest = {}
    for rows in RUN_LENGTHS:
        runs = torch.nn.functional.pad(counts, (0, -count % rows)).reshape(-1, rows)
        longest[rows] = (runs.amax(1) if len(runs) else counts.new_zeros(1)).int()
    most = int(counts.max()) if len(row) else 0
    return GatheredRows(start.int(), other[order].int(), order.int(), most, longest)


# ---- Which Triton kernels run, and their arguments
# While a program is small, one launch does all steps: each thread block owns a tile of examples, whose
# state lives in the block's own cache. Beyond that, every half step is a launch over (rules or atoms)
# × examples. Gradients of the coefficients are summed by block and then over blocks.

#: Examples of a tile: with so few, one thread holds a whole row of them.
_TILE = 4
#: How many rows a thread block takes at a time backwards, where each needs more registers.
_ROWS_BACK = 256
#: Rules that one program reads.
_RULES = 128
#: Values that one program of a half step holds at a time, and its warps. The rows are gathered from
#: all over the memory, so many small programs hide the waiting better than few large ones.
_HALF_STEP_VALUES = 1024
_HALF_STEP_WARPS = 2


def device_program(rows: LiteralRows) -> DeviceProgram:
    """Return the literals in the form of the kernels, made once."""
    if "cuda" not in rows.kernel_form:
        rows.kernel_form["cuda"] = DeviceProgram.of(rows)
    found: DeviceProgram = rows.kernel_form["cuda"]
    return found


# ---- Parameters

#: Where the offset stands among the stored parameters.
_OFFSET = 8


def read(run: FusedSteps, stored: Stored, dtype: torch.dtype) -> Coefficients:
    """Return the coefficients of a step, in one launch."""
    rows, raw = run.rows, _contiguous(stored)
    program, offset = device_program(rows), raw[_OFFSET]
    R, bodies, heads = rows.R, len(rows.body_rule), len(rows.head_rule)
    *parts, gate = _split(offset.new_empty(3 * R + bodies + heads + 1, dtype=dtype), (
        R, R, bodies, R, heads, 1,
    ))  # fmt: skip
    coefficients = Coefficients._make([*parts, offset.to(dtype), gate[0]])
    # One program at least, since the first one also reads the gate.
    cuda.read_kernel[(max(1, triton.cdiv(R, _RULES)),)](
        program.rules, raw, coefficients, rows.M, R,
        **_limits(offset), ROWS=_RULES, num_warps=4,
    )  # fmt: skip
    return coefficients


def read_backward(
    run: FusedSteps, read: Coefficients, stored: Stored, grads: Coefficients
) -> Stored:
    """Return the gradients of the parameters, from those of the coefficients."""
    rows, raw = run.rows, _contiguous(stored)
    program, offset = device_program(rows), grads.offset.to(raw[_OFFSET].dtype)
    programs = max(1, triton.cdiv(rows.R, _RULES))
    out = tuple(offset if k == _OFFSET else torch.empty_like(x) for k, x in enumerate(raw))
    by_gain = offset.new_empty(programs, dtype=torch.float64)
    limits = _limits(offset)
    cuda.read_backward_kernel[(programs,)](
        program.rules, raw, grads, out, by_gain, rows.M, rows.R,
        **limits, ROWS=_RULES, num_warps=4,
    )  # fmt: skip
    cuda.read_shared_backward_kernel[(1,)](
        raw, grads, out, by_gain, rows.M, programs, **limits, ROWS=1024, num_warps=4
    )
    return out


def _contiguous(stored: Stored) -> Stored:
    return tuple(x.detach().contiguous() for x in stored)


def _limits(parameter: Tensor) -> dict[str, float]:
    limits = torch.finfo(parameter.dtype)
    return {"TINY": limits.tiny, "EPS": limits.eps}


def _split(buffer: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """Return consecutive parts of the last dimension."""
    return list(torch.split(buffer, list(sizes), dim=-1))


# ---- Steps


def forward(
    run: FusedSteps, read: Coefficients, state: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the last state (B, M); and, to keep, all states in the kernel's order.

    That order is (T + 1, tiles, M, examples a tile), or (T + 1, M, B) where steps are launched
    by cuda. An example with a value outside [0, 1] comes back as NaN: to raise an exception
    would mean to wait for the device.
    """
    program = device_program(run.rows)
    if not (program.M and len(state)):
        return state.clone(), state.new_empty((run.steps + 1, program.M, len(state)))
    launch = _run_tiles if program.one_launch else _run_halves
    return launch(program, run, read, state.contiguous(), keep)


def backward(
    run: FusedSteps, read: Coefficients, kept: Tensor, grad: Tensor, *, learn: bool
) -> tuple[Tensor, Coefficients | None]:
    """Return the gradient of the first state (B, M); and, to learn, of the coefficients."""
    program = device_program(run.rows)
    if not (program.M and grad.shape[1]):
        zero = _gradient_rows(program, grad, 1)[1]
        return grad.sum(0), _summed(zero, program) if learn else None
    launch = _back_tiles if kept.dim() == 4 else _back_halves
    result, sums = launch(program, run, read, kept, grad.contiguous())
    return result, _summed(sums, program) if learn else None


def trajectory(run: FusedSteps, kept: Tensor, batch: int) -> Tensor:
    """Return all states that `forward` kept. (T + 1, B, M)."""
    if kept.dim() == 3:
        return kept.permute(0, 2, 1).contiguous()
    steps, tiles, M, tile = kept.shape
    by_example = kept.permute(0, 1, 3, 2).reshape(steps, tiles * tile, M)[:, :batch]
    states = torch.empty_like(by_example)
    states[..., device_program(run.rows).orders[1].long()] = by_example
    return states


def _gradient_sizes(program: DeviceProgram) -> tuple[int, ...]:
    """Return how many gradients each field of `Coefficients` has; the gate has one per atom."""
    R, M = program.R, program.M
    return R, R, len(program.bodies.other), R, len(program.heads.other), M, M


def _gradient_rows(
    program: DeviceProgram, like: Tensor, count: int
) -> tuple[Coefficients, Tensor]:
    """Return zeros for `count` sums of all gradients: by coefficient, and as one tensor."""
    sizes = _gradient_sizes(program)
    buffer = like.new_zeros((count, sum(sizes)))
    return Coefficients._make(_split(buffer, sizes)), buffer


def _summed(buffer: Tensor, program: DeviceProgram) -> Coefficients:
    """Return the sums over thread blocks, in the order of the blocks."""
    return Coefficients._make(_split(buffer.sum(0), _gradient_sizes(program)))


def _counts_or(counts: Tensor | None, like: Tensor) -> dict[str, Any]:
    """Return the arguments that say how many steps each example takes."""
    return {"counts": like if counts is None else counts, "HAS_COUNTS": counts is not None}


def _run_tiles(
    program: DeviceProgram, run: FusedSteps, c: Coefficients, state: Tensor, keep: bool
) -> tuple[Tensor, Tensor | None]:
    B, M, R, steps = len(state), program.M, program.R, run.steps
    # A small batch needs every thread of the device, a large one many thread blocks.
    rows = 512 if B <= 1024 else 128
    tiles = triton.cdiv(B, _TILE)
    kept = state.new_empty((steps + 1 if keep else 1, tiles, M, _TILE))
    fire = state.new_empty((tiles, max(1, R), _TILE))
    out = torch.empty_like(state)
    bodies, sources = program.bodies, program.sources
    cuda.run_tile[(tiles,)](
        state, out, kept, fire, **_counts_or(run.counts, state),
        orders=program.orders, bodies=bodies.in_runs(rows), sources=sources.in_runs(rows),
        coefficients=c, B=B, M=M, R=R, T=steps, keep_stride=kept.stride(0),
        KEEP=keep, BUMP=run.bump, ROWS=rows, BT=_TILE, UB=bodies.unroll, US=sources.unroll,
        num_warps=rows // 32,
    )  # fmt: skip
    return out, kept if keep else None


def _back_tiles(
    program: DeviceProgram, run: FusedSteps, c: Coefficients, kept: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    B, M, R = grad.shape[1], program.M, program.R
    tiles, steps, rows = kept.shape[1], len(kept) - 1, _ROWS_BACK
    # One allocation for all working memory.
    R_ = max(1, R)
    work = grad.new_empty(tiles * _TILE * 2 * (R_ + M))
    fire, dmargin, dphi, d_state = _split(work, tuple(tiles * _TILE * n for n in (R_, R_, M, M)))
    result = grad.new_empty((B, M))
    gradients, sums = _gradient_rows(program, grad, tiles)
    bodies, sources, heads, uses = program.bodies, program.sources, program.heads, program.uses
    cuda.back_tile[(tiles,)](
        grad, kept, fire, dphi, dmargin, d_state, result, **_counts_or(run.counts, grad),
        orders=program.orders, bodies=bodies.in_runs(rows), sources=sources.in_runs(rows),
        heads=heads.in_runs(rows), uses=uses.in_runs(rows), coefficients=c,
        gradients=gradients, B=B, M=M, R=R, T=steps, keep_stride=kept.stride(0),
        gradient_stride=sums.stride(0),
        BUMP=run.bump, EVERY=len(grad) > 1, ROWS=rows, BT=_TILE,
        UB=bodies.unroll, US=sources.unroll, UH=heads.unroll, UU=uses.unroll,
        num_warps=rows // 32,
    )  # fmt: skip
    return result, sums


class _Grids(NamedTuple):
    """The grids of the launches by half steps."""

    columns: int
    BB: int
    block: int
    rules: int
    atoms: int
    rule_grid: tuple[int, int]
    atom_grid: tuple[int, int]


def _grids(program: DeviceProgram, B: int) -> _Grids:
    BB = min(256, int(triton.next_power_of_2(B)))
    block = max(1, _HALF_STEP_VALUES // BB)
    columns = -(-B // BB)

    def length(count: int) -> int:
        # Enough programs to fill the device, few enough that their partial sums stay small.
        return block * max(1, min(16, -(-count // (block * 2048))))

    rules, atoms = length(program.R), length(program.M)
    return _Grids(
        columns, BB, block, rules, atoms,
        (max(1, triton.cdiv(program.R, rules)), columns),
        (triton.cdiv(program.M, atoms), columns),
    )  # fmt: skip


def _run_halves(
    program: DeviceProgram, run: FusedSteps, c: Coefficients, state: Tensor, keep: bool
) -> tuple[Tensor, Tensor | None]:
    B, M, R, steps = len(state), program.M, program.R, run.steps
    grids = _grids(program, B)
    state = torch.where((state >= 0) & (state <= 1), state, torch.nan)
    kept = state.new_empty((steps + 1 if keep else 1, M, B))
    kept[0] = state.T
    fire = state.new_empty((max(1, R), B))
    missing = (1.0 - state).sum(1, dtype=torch.float64)
    background = state.new_zeros((grids.rule_grid[0], B), dtype=torch.float64)
    gone = state.new_empty((grids.atom_grid[0], B), dtype=torch.float64)
    sources = program.sources
    for t in range(steps):
        now, after = kept[t if keep else 0], kept[t + 1 if keep else 0]
        _launch_rules(program, c, grids, now, missing, fire, background)
        cuda.atoms_half_step[grids.atom_grid](
            now, after, fire, background.sum(0), gone, **_counts_or(run.counts, state),
            sources=sources.in_runs(128), coefficients=c,
            B=B, M=M, ATOMS=grids.atoms, t=t,
            BUMP=run.bump, MB=grids.block, BB=grids.BB, US=sources.unroll, num_warps=_HALF_STEP_WARPS,
        )  # fmt: skip
        missing = gone.sum(0)
    return kept[-1].T.contiguous(), kept if keep else None


def _launch_rules(
    program: DeviceProgram, c: Coefficients, grids: _Grids, now: Tensor, missing: Tensor,
    fire: Tensor, background: Tensor,
) -> None:  # fmt: skip
    B, R, bodies = now.shape[1], program.R, program.bodies
    if R:
        cuda.rules_half_step[grids.rule_grid](
            now, missing, fire, background, bodies.in_runs(128), c,
            B, R, grids.rules, RB=grids.block, BB=grids.BB, UB=bodies.unroll, num_warps=_HALF_STEP_WARPS,
        )  # fmt: skip


def _back_halves(
    program: DeviceProgram, run: FusedSteps, c: Coefficients, kept: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    B, M, R = grad.shape[1], program.M, program.R
    grids = _grids(program, B)
    G = grad[-1].T.contiguous()
    fire, dmargin = (grad.new_empty((max(1, R), B)) for _ in range(2))
    dphi = torch.empty_like(G)
    wide = torch.float64
    background, lost = (grad.new_zeros((grids.rule_grid[0], B), dtype=wide) for _ in range(2))
    atom_sums = grad.new_empty((grids.atom_grid[0], B), dtype=wide)
    gradients, sums = _gradient_rows(program, grad, grids.columns)
    bodies, sources, heads, uses = program.bodies, program.sources, program.heads, program.uses
    stride = sums.stride(0)
    for t in reversed(range(len(kept) - 1)):
        now = kept[t]
        missing = (1.0 - now).sum(0, dtype=wide)
        _launch_rules(program, c, grids, now, missing, fire, background)
        cuda.atoms_half_backward[grids.atom_grid](
            now, G, fire, background.sum(0), dphi, atom_sums, **_counts_or(run.counts, G),
            sources=sources.in_runs(128), coefficients=c, gradients=gradients,
            gradient_stride=stride, B=B, M=M, ATOMS=grids.atoms, t=t,
            BUMP=run.bump, MB=grids.block, BB=grids.BB, US=sources.unroll, num_warps=_HALF_STEP_WARPS,
        )  # fmt: skip
        if R:
            cuda.rules_half_backward[grids.rule_grid](
                now, missing, fire, dphi, atom_sums.sum(0), dmargin, lost,
                bodies.in_runs(128), heads.in_runs(128), c, gradients, stride,
                B, R, grids.rules,
                RB=grids.block, BB=grids.BB, UH=heads.unroll, num_warps=_HALF_STEP_WARPS,
            )  # fmt: skip
        cuda.uses_half_backward[grids.atom_grid](
            G, dmargin, lost.sum(0), uses.in_runs(128), c, B, M, grids.atoms,
            MB=grids.block, BB=grids.BB, UU=uses.unroll, num_warps=_HALF_STEP_WARPS,
        )  # fmt: skip
        if len(grad) > 1:
            G += grad[t].T
    return G.T.contiguous(), sums


# ---- T_P on batches of supports on a GPU: how many steps each example takes, in one launch

#: More steps of T_P than any program has.
_UNLIMITED = 2**31 - 1


class CudaClosure:
    """T_P of one program on the supports of a batch of states, as a GPU kernel.

    Args:
        rows: the literals of the program, on the device, for which `fits` is true.
    """

    @staticmethod
    def fits(rows: LiteralRows) -> bool:
        """Return whether a thread block can run the whole program."""
        return device_program(rows).one_launch

    def __init__(self, rows: LiteralRows) -> None:
        self._program = device_program(rows)
        self.recorded_runs = RecordedRuns()

    def count(self, state: Tensor, delay: int, limit: int) -> tuple[Tensor, Tensor]:
        """Return how many steps each example (B, M) takes, without waiting for the device.

        That is `delay` beyond its depth under T_P, if that is not 0, and at most `limit`. The second
        tensor says for each thread block whether a value is neither 0 nor 1.
        """
        program, B = self._program, len(state)
        blocks, largest = triton.cdiv(B, 32), max(program.M, program.R)
        # A thread for each rule or atom; beyond that, several runs of them.
        rows = min((n for n in RUN_LENGTHS if n >= largest), default=512)
        counts = torch.empty(B, dtype=torch.int64, device=state.device)
        soft, support, fired = (
            torch.empty(blocks * size, dtype=torch.int32, device=state.device)
            for size in (1, program.M, max(1, program.R))
        )
        if B:
            count_steps[(blocks,)](
                state.contiguous(), counts, soft, support, fired, program.orders,
                program.bodies.in_runs(rows), program.sources.in_runs(rows),
                B, program.M, program.R, _UNLIMITED, min(delay, _UNLIMITED // 2),
                min(limit, _UNLIMITED), ROWS=rows, ONE_RUN=rows >= largest,
                num_warps=rows // 32,
            )  # fmt: skip
        return counts, soft

    def depths(self, state: Tensor) -> npt.NDArray[np.int64]:
        """Return how many steps of T_P each support takes to its closure. (B,)."""
        return self.count(state, 0, _UNLIMITED)[0].cpu().numpy()
