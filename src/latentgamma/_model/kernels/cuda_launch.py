"""The GPU kernel: which program runs where, and what it is given.

While a program is small, one launch does all steps: each thread block owns a tile of examples, whose
state lives in the block's own cache. Beyond that, every half step is a launch over (rules or atoms)
× examples. Gradients of the numbers are summed by block and then over blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from latentgamma._model.kernels import cuda_kernels as kernels
from latentgamma._model.kernels.inputs import Flat, Layout

#: Up to this many atoms or rules one thread block runs all steps of its tile.
_ONE_LAUNCH_UP_TO = 4096
#: Examples of its tile: with so few, one thread holds a whole row of them.
_TILE = 4
#: How many rules or atoms such a thread block may take at a time, a thread for each.
_ROWS = (128, 256, 512)
#: How many it takes on the way back, where each needs more registers.
_ROWS_BACK = 256


class Literals(NamedTuple):
    """Compressed rows: row r holds `other[start[r]:start[r + 1]]`, whose weights lie at `place`."""

    start: Tensor
    other: Tensor
    place: Tensor
    most: int  # the length of the longest row
    longest: dict[int, Tensor]  # and of the longest in each run of 128, 256, 512 rows

    def by_runs_of(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What a kernel needs that takes so many rows at a time."""
        return self.start, self.other, self.place, self.longest[rows]


@dataclass(frozen=True)
class Structure:
    """A program's literals, seen from its rules and from its atoms.

    Where one thread block runs a whole tile, rules and atoms are numbered by the number of
    literals they gather, the most first, so that few runs of rows have to wait for a long one.
    `rule_order` and `atom_order` give the original numbers.
    """

    M: int
    R: int
    one_launch: bool
    rule_order: Tensor
    atom_order: Tensor
    body: Literals  # rule → its body atoms
    uses: Literals  # atom → the rules whose body it is in
    heads: Literals  # rule → its heads
    sources: Literals  # atom → the rules it is a head of

    @classmethod
    def of(cls, layout: Layout) -> Structure:
        """The structure of a layout."""
        M, R = layout.M, layout.R
        body_rule, body_atom = layout.body_rule.long(), layout.body_atom.long()
        head_rule, head_atom = layout.head_rule.long(), layout.head_atom.long()
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
            rules.int(),
            atoms.int(),
            _rows(b_rule, b_atom, R),
            _rows(b_atom, b_rule, M),
            _rows(h_rule, h_atom, R),
            _rows(h_atom, h_rule, M),
        )


def _rows(row: Tensor, other: Tensor, count: int) -> Literals:
    order = torch.argsort(row, stable=True)
    counts = torch.bincount(row, minlength=count)
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    longest = {}
    for rows in _ROWS:
        runs = torch.nn.functional.pad(counts, (0, -count % rows)).reshape(-1, rows)
        longest[rows] = (runs.amax(1) if len(runs) else counts.new_zeros(1)).int()
    most = int(counts.max()) if len(row) else 0
    return Literals(start.int(), other[order].int(), order.int(), most, longest)


# -------------------------------------------------------------------- launching


def _unroll(literals: Literals) -> int:
    return min(2, literals.most)


def _rows_forward(B: int) -> int:
    """Rows at a time: a small batch wants every thread of the chip, a large one many blocks."""
    return 512 if B <= 1024 else 128


def run(
    structure: Structure, c: Flat, state: Tensor, steps: int, *, bump: bool, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """The state (B, M) after so many steps; and, to keep, all states in the kernel's order.

    That order is (T + 1, tiles, M, examples a tile), or (T + 1, M, B) where steps are launched
    by halves.
    """
    if not (structure.M and len(state)):
        return state.clone(), state.new_empty((steps + 1, structure.M, len(state)))
    launch = _run_tiles if structure.one_launch else _run_halves
    return launch(structure, c, state.contiguous(), steps, bump, keep)


def back(
    structure: Structure, c: Flat, kept: Tensor, given: Tensor, *, bump: bool
) -> tuple[Tensor, Flat]:
    """The gradients of the first state (B, M) and of every number.

    `given` is the gradient of the last state (1, B, M), or of every state (T + 1, B, M).
    """
    if not (structure.M and given.shape[1]) or len(kept) == 1:
        return given.sum(0), Flat(*(torch.zeros_like(x) for x in c))
    launch = _back_tiles if kept.dim() == 4 else _back_halves
    return launch(structure, c, kept, given.contiguous(), bump)


def unpacked(structure: Structure, kept: Tensor, batch: int) -> Tensor:
    """All states that `run` kept, as (T + 1, B, M)."""
    if kept.dim() == 3:
        return kept.permute(0, 2, 1).contiguous()
    steps, tiles, M, tile = kept.shape
    rows = kept.permute(0, 1, 3, 2).reshape(steps, tiles * tile, M)[:, :batch]
    states = torch.empty_like(rows)
    states[..., structure.atom_order.long()] = rows
    return states


def _run_tiles(
    structure: Structure, c: Flat, state: Tensor, steps: int, bump: bool, keep: bool
) -> tuple[Tensor, Tensor | None]:
    B, (M, R) = len(state), (structure.M, structure.R)
    tile, rows = _TILE, _rows_forward(B)
    tiles = triton.cdiv(B, tile)
    kept = state.new_empty((steps + 1 if keep else 1, tiles, M, tile))
    fire = state.new_empty((tiles, max(1, R), tile))
    out = torch.empty_like(state)
    body, sources = structure.body, structure.sources
    kernels._run_tile[(tiles,)](
        state, out, kept, fire, structure.rule_order, structure.atom_order,
        *body.by_runs_of(rows),
        c.reach_on, c.reach_off, c.reach, c.send_off,
        *sources.by_runs_of(rows), c.send_on, c.offset, c.gate,
        B, M, R, steps, kept.stride(0),
        KEEP=keep, BUMP=bump, ROWS=rows, BT=tile, UB=_unroll(body), US=_unroll(sources),
        num_warps=rows // 32,
    )  # fmt: skip
    return out, kept if keep else None


def _back_tiles(
    structure: Structure, c: Flat, kept: Tensor, given: Tensor, bump: bool
) -> tuple[Tensor, Flat]:
    B, (M, R), tile = given.shape[1], (structure.M, structure.R), kept.shape[-1]
    tiles, steps = kept.shape[1], len(kept) - 1
    rows = _ROWS_BACK
    fire, dmargin = (given.new_empty((tiles, max(1, R), tile)) for _ in range(2))
    dphi, d_state = (given.new_empty((tiles, M, tile)) for _ in range(2))
    parts = Flat(*(given.new_zeros((tiles, max(1, x.numel()))) for x in c))
    parts = parts._replace(gate=given.new_zeros((tiles, M)))
    body, sources, heads, uses = (
        structure.body, structure.sources, structure.heads, structure.uses,
    )  # fmt: skip
    kernels._back_tile[(tiles,)](
        given, kept, fire, dphi, dmargin, d_state, structure.rule_order, structure.atom_order,
        *body.by_runs_of(rows),
        c.reach_on, c.reach_off, c.reach, c.send_off,
        *sources.by_runs_of(rows), c.send_on, c.offset, c.gate,
        *heads.by_runs_of(rows), *uses.by_runs_of(rows),
        parts.reach_on, parts.reach_off, parts.reach, parts.send_on, parts.send_off,
        parts.offset, parts.gate,
        B, M, R, steps, kept.stride(0), parts.reach_on.shape[1], parts.send_on.shape[1],
        BUMP=bump, EVERY=len(given) > 1, ROWS=rows, BT=tile,
        UB=_unroll(body), US=_unroll(sources), UH=_unroll(heads), UU=_unroll(uses),
        num_warps=rows // 32,
    )  # fmt: skip
    by_atom = d_state.permute(0, 2, 1).reshape(tiles * tile, M)[:B]
    result = torch.empty_like(by_atom)
    result[:, structure.atom_order.long()] = by_atom
    return result, _summed(parts, c)


def _summed(parts: Flat, c: Flat) -> Flat:
    """Gradients summed over thread blocks, in the order of the blocks, in the shapes of `c`."""
    total = Flat(*(part.sum(0) for part in parts))
    total = total._replace(gate=total.gate.sum()[None])
    return Flat(*(t[: x.numel()].reshape(x.shape) for t, x in zip(total, c, strict=True)))


class _Halves(NamedTuple):
    """The grids of the launches by half steps."""

    columns: int
    BB: int
    block: int
    rules: int
    atoms: int
    rule_grid: tuple[int, int]
    atom_grid: tuple[int, int]


def _halves(structure: Structure, B: int, elements: int = 2048) -> _Halves:
    BB = min(256, int(triton.next_power_of_2(B)))
    block = max(1, elements // BB)
    columns = -(-B // BB)

    def length(count: int) -> int:
        # Enough programs to fill the chip, few enough that their partial sums stay small.
        return block * max(1, min(16, -(-count // (block * 2048))))

    rules, atoms = length(structure.R), length(structure.M)
    return _Halves(
        columns, BB, block, rules, atoms,
        (max(1, triton.cdiv(structure.R, rules)), columns),
        (triton.cdiv(structure.M, atoms), columns),
    )  # fmt: skip


def _run_halves(
    structure: Structure, c: Flat, state: Tensor, steps: int, bump: bool, keep: bool
) -> tuple[Tensor, Tensor | None]:
    B, (M, R) = len(state), (structure.M, structure.R)
    h = _halves(structure, B)
    kept = state.new_empty((steps + 1 if keep else 1, M, B))
    kept[0] = state.T
    fire = state.new_empty((max(1, R), B))
    missing = (1.0 - state).sum(1, dtype=torch.float64)
    spread = state.new_zeros((h.rule_grid[0], B), dtype=torch.float64)
    gone = state.new_empty((h.atom_grid[0], B), dtype=torch.float64)
    sources = structure.sources
    for t in range(steps):
        now, after = kept[t if keep else 0], kept[t + 1 if keep else 0]
        _launch_rules(structure, c, h, now, missing, fire, spread)
        kernels._atoms_half[h.atom_grid](
            now, after, fire, spread.sum(0), gone,
            *sources[:3], c.send_on, c.offset, c.gate, B, M, B, h.atoms,
            BUMP=bump, MB=h.block, BB=h.BB, US=_unroll(sources), num_warps=8,
        )  # fmt: skip
        missing = gone.sum(0)
    return kept[-1].T.contiguous(), kept if keep else None


def _launch_rules(
    structure: Structure, c: Flat, h: _Halves, now: Tensor, missing: Tensor, fire: Tensor,
    spread: Tensor,
) -> None:  # fmt: skip
    B, R, body = now.shape[1], structure.R, structure.body
    if R:
        kernels._rules_half[h.rule_grid](
            now, missing, fire, spread,
            *body[:3], c.reach_on, c.reach_off, c.reach, c.send_off,
            B, R, B, h.rules,
            RB=h.block, BB=h.BB, UB=_unroll(body), num_warps=8,
        )  # fmt: skip


def _back_halves(
    structure: Structure, c: Flat, kept: Tensor, given: Tensor, bump: bool
) -> tuple[Tensor, Flat]:
    B, (M, R) = given.shape[1], (structure.M, structure.R)
    h = _halves(structure, B)
    G = given[-1].T.contiguous()
    fire, dmargin = (given.new_empty((max(1, R), B)) for _ in range(2))
    dphi = torch.empty_like(G)
    wide = torch.float64
    spread, lost = (given.new_zeros((h.rule_grid[0], B), dtype=wide) for _ in range(2))
    sums = given.new_empty((h.atom_grid[0], B), dtype=wide)
    parts = Flat(*(given.new_zeros((h.columns, max(1, x.numel()))) for x in c))
    parts = parts._replace(gate=given.new_zeros((h.columns, M)))
    body, sources, heads, uses = (
        structure.body, structure.sources, structure.heads, structure.uses,
    )  # fmt: skip
    for t in reversed(range(len(kept) - 1)):
        now = kept[t]
        missing = (1.0 - now).sum(0, dtype=wide)
        _launch_rules(structure, c, h, now, missing, fire, spread)
        kernels._atoms_back[h.atom_grid](
            now, G, fire, spread.sum(0), dphi, sums, parts.offset, parts.gate,
            *sources[:3], c.send_on, c.offset, c.gate, B, M, B, h.atoms,
            BUMP=bump, MB=h.block, BB=h.BB, US=_unroll(sources), num_warps=8,
        )  # fmt: skip
        if R:
            kernels._rules_back[h.rule_grid](
                now, missing, fire, dphi, sums.sum(0), dmargin, lost,
                *body[:3], c.reach_off, c.send_off, *heads[:3], c.send_on,
                parts.reach_on, parts.reach_off, parts.reach, parts.send_on, parts.send_off,
                B, R, B, h.rules, parts.reach_on.shape[1], parts.send_on.shape[1],
                RB=h.block, BB=h.BB, UH=_unroll(heads), num_warps=8,
            )  # fmt: skip
        kernels._states_back[h.atom_grid](
            G, dmargin, lost.sum(0), *uses[:3], c.reach_on, B, M, B, h.atoms,
            MB=h.block, BB=h.BB, UU=_unroll(uses), num_warps=8,
        )  # fmt: skip
        if len(given) > 1:
            G += given[t].T
    return G.T.contiguous(), _summed(parts, c)

# -------------------------------------------------------------------- as a kernel

#: Tensors compare elementwise, so they are told apart by identity.
_STRUCTURES = WeakIdKeyDictionary()


def _structure_of(layout: Layout) -> Structure:
    held: Structure | None = _STRUCTURES.get(layout.body_ptr)  # type: ignore[no-untyped-call]
    if held is None:
        held = _STRUCTURES[layout.body_ptr] = Structure.of(layout)
    return held


def forward(
    layout: Layout, flat: Flat, state: Tensor, steps: int, *, bump: bool, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """The last state (B, M); and, to keep, all T + 1 states in an order of its own."""
    return run(_structure_of(layout), flat, state, steps, bump=bump, keep=keep)


def trajectory(layout: Layout, kept: Tensor, batch: int) -> Tensor:
    """All states that `forward` kept. (T + 1, B, M)."""
    return unpacked(_structure_of(layout), kept, batch)


def backward(
    layout: Layout,
    flat: Flat,
    kept: Tensor,
    given: Tensor,
    *,
    bump: bool,
    learn: bool,
) -> tuple[Tensor, Flat | None]:
    """The gradient of the first state (B, M); and, to learn, of the numbers."""
    grad, sums = back(_structure_of(layout), flat, kept, given, bump=bump)
    return grad, sums if learn else None
