"""Builds a divided model from a program that no process reads whole."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from latentgamma._text import file_problem
from latentgamma.certificate.constants import ClosedForm, Constants, Gate, Sizes, require_horizon
from latentgamma.distributed.collectives import Ranks, even_ranges, ranks_of
from latentgamma.distributed.shards import ShardedRules, divide_atoms
from latentgamma.errors import ArgumentError, ModelError, ParseError, ProgramError
from latentgamma.operator.model import LatentGamma, closed_form_model, closed_form_rules
from latentgamma.program.files import is_rule_text
from latentgamma.program.graph import Csr
from latentgamma.program.program import Program, require_definite
from latentgamma.program.rule_text import decode_text, read_rules

# ---- Programs of which each process has a part: read from one file, and turned into a sharded model

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
        """Return the shard with these rules; all processes have the same atoms in the same order.

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

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of the whole program."""
        own, per_head = Sizes.of(self.rules), self.rules_per_head
        none = np.iinfo(np.int64).max
        k, most_heads, least_body, fewest_heads = self.ranks.largest(
            own.k, own.most_heads, -(own.least_body or none), -(own.fewest_heads if own.R else none)
        )
        return Sizes(
            own.M,
            self.R,
            k,
            int(per_head.max(initial=0)),
            -least_body if k else 0,
            -fewest_heads,
            most_heads,
            bool((per_head == 0).any()),
        )

    @cached_property
    def rules_per_head(self) -> Numbers:
        """The number of rules of each atom, in all processes. (M,)."""
        own = torch.from_numpy(self.rules.rules_per_head.astype(np.int64))
        return self.ranks.all_reduce(own)[0].numpy()


def load_shard(path: str | os.PathLike[str], mesh: DeviceMesh) -> ProgramShard:
    """Return the part of this process of a program in a file; no process reads all rules.

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
    names, bodies, heads = part
    atoms, number = _joined_names(names, ranks)
    rules = Program.from_arrays(
        bodies.indptr, number[bodies.indices], number[heads.indices], heads.indptr, atoms=atoms
    )
    del part, names, bodies, heads
    if ranks.largest(rules.R)[0] == 0 and not atoms:
        raise ProgramError(f"{shown}: there is no rule in it")
    return ProgramShard.of(rules, mesh)


def _read_part(path: Path, ranks: Ranks) -> tuple[dict[str, int], Csr, Csr]:
    """Return the names of a part of the file in the order they appear, the bodies and the heads."""
    if not is_rule_text(path):
        raise ProgramError(
            f"{str(path)!r}: only rule text (.lp, .pl or .dl) can be read in parts; convert it with "
            "'latentgamma convert'"
        )
    names: dict[str, int] = {}
    bodies: list[Csr] = []
    heads: list[Csr] = []
    try:
        with path.open("rb") as file:
            start, stop = _range(file, ranks)
            for place, block in _blocks(file, start, stop):
                program = _read_block(block, f"{path} (from byte {place:,})")
                number = np.array(
                    [names.setdefault(name, len(names)) for name in program.atoms], np.int32
                )
                bodies.append(Csr(program.body_indptr, number[program.body_indices]))
                heads.append(Csr(program.head_indptr, number[program.head_indices]))
    except OSError as error:
        raise ProgramError(f"cannot read {str(path)!r}: {file_problem(error)}") from None
    return names, Csr.joined(bodies), Csr.joined(heads)


def _range(file: BinaryIO, ranks: Ranks) -> tuple[int, int]:
    """Return where the part of this process starts and ends: after a rule that ends its line."""
    size = file.seek(0, os.SEEK_END)
    bounds = even_ranges(size, ranks.size)
    start, stop = (_next_end(file, at, size) for at in bounds[ranks.rank : ranks.rank + 2])
    return start, stop


def _next_end(file: BinaryIO, at: int, size: int) -> int:
    """Return the first place from `at` on that follows the last line of a rule."""
    if at == 0:
        return 0
    # From two bytes before: a rule may end just there.
    at, count = max(0, at - 2), 1 << 12
    while True:
        file.seek(at)
        found = _end_of_rule(file.read(count))
        if found:
            return at + found.end()
        if at + count >= size:
            return size
        count *= 4


def _blocks(file: BinaryIO, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes from `start` to `stop` in pieces that end with a rule, and their starts."""
    while start < stop:
        end = min(_next_end(file, start + _BLOCK, stop), stop) if start + _BLOCK < stop else stop
        file.seek(start)
        yield start, file.read(end - start)
        start = end


def _read_block(block: bytes, shown: str) -> Program:
    try:
        return read_rules(decode_text(block, shown), shown, negation=False)
    except ParseError as error:
        raise ProgramError(
            f"{error}\n(a file is read in parts here: it takes ground rules without negation, each of "
            "which ends a line)"
        ) from None


def _joined_names(
    names: dict[str, int], ranks: Ranks
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Return the names of all processes in the order of the file, and the numbers of own ones."""
    known: dict[str, int] = {}
    for rank in range(ranks.size):
        new = [name for name in names if name not in known] if rank == ranks.rank else []
        for name in ranks.broadcast(new, rank):
            known[name] = len(known)
    number = np.fromiter((known[name] for name in names), np.int32, len(names))
    return tuple(known), number


# ---- `oracle`: the model of a program of which each process has a part


def oracle(
    shard: ProgramShard,
    constants: Constants | None = None,
    *,
    gate: Gate = "sigmoid",
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    horizon: float = 10**6,
    atoms: bool = False,
) -> LatentGamma:
    """Return the sharded model whose parameters are the closed form of a program.

    It is what `latentgamma.oracle` makes of the whole program, divided among the processes that
    have the parts. No process holds all rules, so the model has no `program`: pass `steps`, and
    make states with `shard.rules.state(facts)`.

    Args:
        shard: the rules of this process.
        constants: by default the softest closed form that is proved exact, for every fact set,
            from step D to the horizon, or to step min(M, R) if that is later, which no D exceeds.
        gate: "sigmoid" or "bump".
        dtype: of the states; parameters are float32 or wider.
        device: where the part of this process is.
        horizon: the number of steps that the certified constants must reach.
        atoms: whether to divide the atoms too, as in `shard`.

    Raises:
        ArgumentError: this is not a `ProgramShard`, or the horizon is not a number of steps.
        CertificateError: the dtype cannot give such a window.
        DistributedError: a process has stopped or does not answer.
    """
    if not isinstance(shard, ProgramShard):
        raise ArgumentError(
            f"oracle takes a ProgramShard, as load_shard returns, not {type(shard).__name__}"
        )
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise ModelError(f"dtype must be float64, float32, float16 or bfloat16, not {dtype}")
    if constants is None:
        require_horizon(horizon)
        constants = Constants.softest(
            shard.sizes,
            max(horizon, min(shard.rules.M, shard.R)),
            dtype=str(dtype).removeprefix("torch."),
            gate=gate,
        )
    wide = dtype if dtype.itemsize >= 4 else torch.float32
    local = closed_form_rules(shard.rules, constants, wide)
    place = {"first": shard.first, "total": shard.R}
    closed = ClosedForm(
        shard.rules, constants, whole=(shard.rules_per_head, shard.sizes.most_heads)
    )
    divide = divide_atoms if atoms else ShardedRules
    rules = divide(local, **place, ranks=shard.ranks)
    model = closed_form_model(rules, closed, wide, gate_kind=gate)
    return model.to(device=torch.get_default_device() if device is None else device, dtype=dtype)


# ---- `fully_shard`: PyTorch's FSDP2 for modules that have models inside

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def fully_shard(module: AnyModule, mesh: DeviceMesh) -> AnyModule:
    """Return the module with PyTorch's `fully_shard` (FSDP2) applied, whatever models it contains.

    PyTorch's function refuses parameters without a dimension, which every model has two of, the
    gain and the gate. They stay whole in each process, and their gradients are averaged as those
    of the other parameters are.

    Use it where each process has its own examples and the parameters do not fit. Where the rules
    of one model do not fit, use `shard` instead.

    Args:
        module: a network, a `Layer` or a model; it is changed in place, as PyTorch does.
        mesh: a one-dimensional mesh of processes.

    Raises:
        ArgumentError: this is not a module, or the mesh does not have one dimension.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    from torch.distributed.fsdp import fully_shard as shard_parameters

    ranks = ranks_of(mesh)
    scalars = {parameter for parameter in module.parameters() if parameter.dim() == 0}

    def average(slope: Tensor) -> Tensor:
        return ranks.all_reduce(slope)[0] / ranks.size

    for parameter in scalars:
        if parameter.requires_grad:
            parameter.register_hook(average)  # type: ignore[no-untyped-call]
    shard_parameters(module, mesh=mesh, ignored_params=scalars)
    return module
