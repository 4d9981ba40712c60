"""The literals of a program in the order in which the GPU kernels read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from latentgamma._model.kernels.literal_rows import LiteralRows

#: Up to this many atoms or rules one thread block runs all steps of its tile.
_ONE_LAUNCH_UP_TO = 4096
#: How many rules or atoms such a thread block may take at a time, a thread for each.
RUN_LENGTHS = (128, 256, 512, 1024)


class RowArguments(NamedTuple):
    """Rows of literals as a kernel takes them, see `cuda_arithmetic`."""

    start: Tensor
    other: Tensor
    place: Tensor
    longest: Tensor


@dataclass(frozen=True)
class GatheredRows:
    """Row r holds `other[start[r]:start[r + 1]]`, whose weights stand at `place`."""

    start: Tensor
    other: Tensor
    place: Tensor
    most: int  # the length of the longest row
    longest: dict[int, Tensor]  # and of the longest in each run of so many rows

    def in_runs(self, rows: int) -> RowArguments:
        """These rows for a kernel that takes so many of them at a time."""
        return RowArguments(self.start, self.other, self.place, self.longest[rows])

    @property
    def unroll(self) -> int:
        """How many literals of a row a kernel takes without a loop."""
        return min(2, self.most)


class RuleArguments(NamedTuple):
    """The literals by rule, and where their logits stand, as `cuda_read_kernels` take them."""

    body_start: Tensor
    body_place: Tensor
    head_start: Tensor
    head_place: Tensor


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
    rules: RuleArguments

    @classmethod
    def of(cls, rows: LiteralRows) -> DeviceProgram:
        """The literals of these rows."""
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
            RuleArguments(rows.body_start, rows.body_place, rows.head_start, rows.head_place),
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
