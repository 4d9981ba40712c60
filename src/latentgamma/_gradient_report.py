"""How much gradient reaches the facts of a proof, against the depth of the proof."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from latentgamma._closure import Closure, closure
from latentgamma._errors import FactsError, ModelError, unknown_atoms
from latentgamma._operator import Gradient, LatentGamma
from latentgamma._program import Facts, Program

#: Without a choice of atoms, one atom is looked at for each of about so many depths.
_DEPTHS = 12
#: About how many values the states of one backward pass may hold.
_VALUES_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class GradientRow:
    """The gradient that reaches the facts from one atom: Σ over facts of |∂ atom / ∂ fact|."""

    atom: str
    depth: int | None  # None where the atom does not follow from the facts
    exact: float
    proof: float


@dataclass(frozen=True)
class GradientReport:
    """Gradient size against derivation depth, for both kinds of backward pass.

    `str(report)` is a table.
    """

    steps: int
    facts: tuple[str, ...]
    rows: tuple[GradientRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return {
            "steps": self.steps,
            "facts": list(self.facts),
            "rows": [asdict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        shown = ", ".join(self.facts[:4]) + (", …" if len(self.facts) > 4 else "")
        count = f"{len(self.facts)} fact" + "s" * (len(self.facts) != 1)
        width = max([4, *(len(row.atom) for row in self.rows)])
        lines = [
            f"gradient that reaches {count} ({shown}) after {self.steps} steps",
            f"depth  {'atom':<{width}}  {'exact':>9}  {'proof':>9}",
        ]
        for row in self.rows:
            depth = "–" if row.depth is None else row.depth
            lines.append(f"{depth:>5}  {row.atom:<{width}}  {row.exact:>9.3g}  {row.proof:>9.3g}")
        return "\n".join(lines)


def gradient_report(
    model: LatentGamma,
    facts: Facts | None = None,
    *,
    steps: int | None = None,
    atoms: Iterable[str] | None = None,
) -> GradientReport:
    """The gradient that reaches the facts from atoms of every depth, exact and along proofs.

    Args:
        model: any model that has a program.
        facts: what is true at first; by default the roots, the atoms that no rule derives.
        steps: T; by default as many as the closure of the facts takes to be above one half.
        atoms: which atoms to look at; by default one for each depth, or for some depths
            where there are many.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> print(gradient_report(lg.oracle(program, lg.Constants.paper())))  # doctest: +ELLIPSIS
    gradient that reaches 1 fact (penguin) after 2 steps
    depth  atom        exact      proof
        0  penguin         1          1
        1  bird    ...         1
        2  animal  ...         1
    """
    if model.program is None:
        raise ModelError("this model has no program to take depths from; set model.program")
    program = model.program
    given = program.mask(_roots(program) if facts is None else facts)
    closed = closure(program, given)
    chosen = _one_for_each_depth(closed) if atoms is None else _indices(program, atoms)
    state = model.state(given).double()
    steps = _until_closed(model, state, closed) if steps is None else steps
    sizes = {}
    for kind in get_args(Gradient):
        twin = copy.copy(model)  # the same parameters; the caller's model stays as it is
        twin.gradient = kind
        sizes[kind] = _sizes(twin, state, steps, chosen, torch.from_numpy(given))
    rows = []
    for place, i in enumerate(chosen):
        depth = int(closed.level[i])
        rows.append(
            GradientRow(
                program.atoms[i],
                None if depth < 0 else depth,
                sizes["exact"][place],
                sizes["proof"][place],
            )
        )
    return GradientReport(
        steps, tuple(program.atoms[i] for i in np.flatnonzero(given)), tuple(rows)
    )


def _roots(program: Program) -> tuple[str, ...]:
    if not program.roots and not program.facts:
        raise FactsError("every atom of this program has a rule, so there are no roots; pass facts")
    return program.roots


def _indices(program: Program, atoms: Iterable[str]) -> list[int]:
    names = [atoms] if isinstance(atoms, str) else list(atoms)
    unknown = [name for name in names if name not in program.index]
    if unknown:
        raise unknown_atoms(unknown, program.atoms, what="atoms")
    return [program.index[name] for name in names]


def _one_for_each_depth(closed: Closure) -> list[int]:
    """The first atom of each depth, of all depths or of some that grow in a ratio."""
    depths: Iterable[int] = range(closed.depth + 1)
    if closed.depth > _DEPTHS:
        ratio = np.geomspace(1, closed.depth, _DEPTHS)
        depths = sorted({0, *(int(depth) for depth in np.rint(ratio))})
    starts, ends = closed.offsets[:-1], closed.offsets[1:]
    # Level 0 is empty where the program starts from facts of its own.
    return [int(closed.order[starts[d] : ends[d]].min()) for d in depths if starts[d] < ends[d]]


def _until_closed(model: LatentGamma, state: Tensor, closed: Closure) -> int:
    """The first step at which every atom of the closure is above one half, if it comes soon."""
    wanted = torch.from_numpy(closed.state.copy()).to(state.device)
    with torch.no_grad():
        for steps in range(4 * closed.depth + 16):
            if bool((state > 0.5)[wanted].all()):
                return steps
            state = model.step(state)
    return closed.depth


def _sizes(
    model: LatentGamma, state: Tensor, steps: int, chosen: Sequence[int], facts: Tensor
) -> list[float]:
    """Σ over the facts of |∂ s_i(T) / ∂ s_fact|, for each chosen atom i."""
    at_once = max(1, _VALUES_AT_ONCE // max(1, model.M * (math.isqrt(steps) + 1)))
    sizes: list[float] = []
    for start in range(0, len(chosen), at_once):
        part = torch.tensor(chosen[start : start + at_once], device=state.device)
        # One copy of the state for each atom, so that one backward pass serves them all.
        copies = state.repeat(len(part), 1).requires_grad_()
        with torch.enable_grad():
            final = model(copies, steps, memory="sqrt")
            (slope,) = torch.autograd.grad(final.gather(1, part[:, None]).sum(), copies)
        sizes += slope[:, facts.to(slope.device)].abs().sum(1).tolist()
    return sizes
