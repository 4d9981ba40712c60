"""Programs of which each process has a part: read from one file, and turned into a sharded model."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from torch.distributed.device_mesh import DeviceMesh

from latentgamma._errors import ArgumentError, ParseError, ProgramError
from latentgamma._program.files import is_rule_text
from latentgamma._program.program import Program, require_definite
from latentgamma._program.rule_text import read_rule_bytes
from latentgamma.distributed.collectives import Ranks, ranks_of
from latentgamma.distributed.partition import even_ranges

Numbers = npt.NDArray[np.int64]

#: How many bytes of a file are read at a time.
_BLOCK = 1 << 26
_end_of_rule = re.compile(rb"\.[ \t]*\r?\n").search


@dataclass(frozen=True, eq=False)
class ProgramShard:
    """The rules of this process, of a program that is divided among the processes of a mesh.

    Every process makes its own at the same time, by `load_shard` or by `ProgramShard.of`.

    Attributes:
        rules: the rules of this process, over all atoms of the program.
        first: the number of the first of them among all rules.
        R: the number of all rules.
        ranks: the processes.
    """

    rules: Program
    first: int
    R: int
    ranks: Ranks

    @classmethod
    def of(cls, rules: Program, mesh: DeviceMesh) -> ProgramShard:
        """The shard with these rules; all processes have the same atoms in the same order.

        Raises:
            ProgramError: this is not a definite program, or the processes have different atoms.
            ArgumentError: the mesh does not have one dimension.
            DistributedError: a process has stopped or does not answer.
        """
        require_definite(rules, "ProgramShard.of")
        ranks = ranks_of(mesh)
        counts = ranks.counts(rules.R, rules.M)
        digest = hashlib.blake2b(
            "\n".join(rules.atoms).encode("utf-8", "surrogatepass"), digest_size=7
        )
        if not ranks.agree(int.from_bytes(digest.digest(), "little")):
            raise ProgramError(
                "the processes have different atoms, or the same in another order (numbers of atoms: "
                f"{[atoms for _, atoms in counts]}); pass the same atoms= in all of them"
            )
        before = sum(row[0] for row in counts[: ranks.rank])
        return cls(rules, before, sum(row[0] for row in counts), ranks)

    # ------------------------------------------------------------ figures of the whole program

    @property
    def M(self) -> int:
        """The number of atoms."""
        return self.rules.M

    @property
    def k(self) -> int:
        """The size of the largest body."""
        return int(self.body_sizes.max(initial=0))

    @property
    def rho_max(self) -> int:
        """The largest number of rules of one head."""
        return int(self.rules_per_head.max(initial=0))

    @cached_property
    def body_sizes(self) -> Numbers:
        """The least and the largest size of a body, and the least above 0."""
        return self._extremes(self.rules.body_sizes)

    @cached_property
    def head_sizes(self) -> Numbers:
        """The least and the largest number of heads of a rule."""
        return self._extremes(self.rules.head_sizes)

    @cached_property
    def rules_per_head(self) -> Numbers:
        """The number of rules of each atom, in all processes. (M,)."""
        import torch

        own = torch.from_numpy(self.rules.rules_per_head.astype(np.int64))
        return self.ranks.all_reduce(own)[0].numpy()

    def _extremes(self, sizes: Numbers) -> Numbers:
        none = np.iinfo(np.int64).max
        positive = sizes[sizes > 0]
        least, above, largest = self.ranks.largest(
            -int(sizes.min(initial=none)),
            -int(positive.min(initial=none)),
            int(sizes.max(initial=-1)),
        )
        found = {-least, -above, largest} - {none, -1}
        return np.array(sorted(found), np.int64)


def load_shard(path: str | os.PathLike[str], mesh: DeviceMesh) -> ProgramShard:
    """The part of this process of a program in a file, without any process reading all rules.

    The file is divided by its size. Atoms are numbered as `latentgamma.load` does. All processes
    hold the names of all atoms, and the rules of their own part.

    Args:
        path: a file of ground rules as text, not compressed. Each rule ends a line.
        mesh: a one-dimensional mesh of processes, all of which see the file.

    Raises:
        ProgramError: the file cannot be read, or has something else than definite ground rules.
        ArgumentError: the mesh does not have one dimension.
        DistributedError: a process has stopped or does not answer.
    """
    ranks = ranks_of(mesh)
    shown = os.fsdecode(path)
    part, problem = None, ""
    try:
        part = _read_part(Path(path), ranks)
    except ProgramError as error:
        problem = str(error)
    problems = [text for text in ranks.objects(problem) if text]
    if part is None or problems:  # an error in one process is one in all
        raise ProgramError(problems[0])
    names, body_ptr, body, head_ptr, head = part
    atoms, number = _joined_names(names, ranks)
    del names
    rules = Program.from_arrays(body_ptr, number[body], number[head], head_ptr, atoms=atoms)
    del part, body, head
    if ranks.largest(rules.R)[0] == 0 and not atoms:
        raise ProgramError(f"{shown}: there is no rule in it")
    return ProgramShard.of(rules, mesh)


def _read_part(
    path: Path, ranks: Ranks
) -> tuple[dict[str, int], Numbers, npt.NDArray[np.int32], Numbers, npt.NDArray[np.int32]]:
    """The names of a part of the file in the order they appear, and its rules as rows."""
    if not is_rule_text(path):
        raise ProgramError(
            f"{str(path)!r}: only rule text (.lp, .pl or .dl) can be read in parts; convert it with "
            "'latentgamma convert'"
        )
    names: dict[str, int] = {}
    sizes: tuple[list[Numbers], list[Numbers]] = ([], [])
    atoms: tuple[list[npt.NDArray[np.int32]], list[npt.NDArray[np.int32]]] = ([], [])
    try:
        with path.open("rb") as file:
            start, stop = _range(file, ranks)
            for place, block in _blocks(file, start, stop):
                program = _read_block(block, f"{path} (from byte {place:,})")
                number = np.array(
                    [names.setdefault(name, len(names)) for name in program.atoms], np.int32
                )
                for i, (indptr, indices) in enumerate(
                    (
                        (program.body_indptr, program.body_indices),
                        (program.head_indptr, program.head_indices),
                    )
                ):
                    sizes[i].append(np.diff(indptr))
                    atoms[i].append(number[indices])
    except OSError as error:
        raise ProgramError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    body_ptr, head_ptr = (_starts(each) for each in sizes)
    body, head = (np.concatenate([np.empty(0, np.int32), *each]) for each in atoms)
    return names, body_ptr, body, head_ptr, head


def _starts(sizes: list[Numbers]) -> Numbers:
    return np.concatenate([[0], *sizes]).cumsum().astype(np.int64)


def _range(file: BinaryIO, ranks: Ranks) -> tuple[int, int]:
    """Where the part of this process starts and ends: after a rule that ends its line."""
    size = file.seek(0, os.SEEK_END)
    bounds = even_ranges(size, ranks.size)
    start, stop = (_next_end(file, at, size) for at in bounds[ranks.rank : ranks.rank + 2])
    return start, stop


def _next_end(file: BinaryIO, at: int, size: int) -> int:
    """The first place from `at` on that follows the last line of a rule."""
    if at == 0:
        return 0
    # From two bytes before: a rule may end just there.
    at, window = max(0, at - 2), 1 << 12
    while True:
        file.seek(at)
        found = _end_of_rule(file.read(window))
        if found:
            return at + found.end()
        if at + window >= size:
            return size
        window *= 4


def _blocks(file: BinaryIO, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """The bytes from `start` to `stop`, in pieces that end with a rule, and where each starts."""
    while start < stop:
        end = min(_next_end(file, start + _BLOCK, stop), stop) if start + _BLOCK < stop else stop
        file.seek(start)
        yield start, file.read(end - start)
        start = end


def _read_block(block: bytes, shown: str) -> Program:
    try:
        return read_rule_bytes(block, shown, negation=False)
    except ParseError as error:
        raise ProgramError(
            f"{error}\n(a file is read in parts here: it takes ground rules without negation, each of "
            "which ends a line)"
        ) from None


def _joined_names(
    names: dict[str, int], ranks: Ranks
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """The names of all processes, in the order of the file, and the number of each own name."""
    known: dict[str, int] = {}
    for rank in range(ranks.size):
        new = [name for name in names if name not in known] if rank == ranks.rank else []
        for name in ranks.broadcast(new, rank):
            known[name] = len(known)
    number = np.fromiter((known[name] for name in names), np.int32, len(names))
    return tuple(known), number


def require_shard(value: object, function: str) -> None:
    """Raise an ArgumentError unless this is a shard of a program."""
    if not isinstance(value, ProgramShard):
        raise ArgumentError(
            f"{function} takes a ProgramShard, as load_shard returns, not {type(value).__name__}"
        )
