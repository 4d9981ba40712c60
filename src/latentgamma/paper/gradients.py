"""How much gradient reaches the facts of a proof, against the depth of the proof."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentgamma._arguments import whole_number
from latentgamma._text import aligned, quantity
from latentgamma.errors import FactsError, ModelError
from latentgamma.logic.closure import Closure, closure
from latentgamma.operator.model import (
    Gradient,
    LatentGamma,
    require_definite_model,
    require_whole_model,
)
from latentgamma.program.facts import Facts, Mask, atom_index, fact_values

#: Without a choice of atoms, one atom is looked at for each of about this many depths.
_DEPTHS = 12
#: About how many values the states of one backward pass may hold.
_VALUES_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class GradientRow:
    """The gradient that reaches the facts from one atom: Σ over facts of |∂ s_atom(T) / ∂ s_fact|.

    >>> import latentgamma as lg
    >>> report = lg.paper.gradient_report(lg.oracle(lg.parse("bird :- penguin.")))
    >>> row = report.rows[-1]
    >>> row.atom, row.depth, row.proof
    ('bird', 1, 1.0)
    """

    atom: str
    depth: int | None  # None where the atom does not follow from the facts above one half
    steps: int  # T
    exact: float
    proof: float
    value: float = 1.0  # s_atom(T)


@dataclass(frozen=True)
class GradientReport:
    """Gradient size against derivation depth, for both kinds of backward pass.

    `str(report)` is a table.

    >>> import latentgamma as lg
    >>> report = lg.paper.gradient_report(lg.oracle(lg.parse("bird :- penguin. animal :- bird.")))
    >>> report.facts, [row.depth for row in report.rows]
    (('penguin',), [0, 1, 2])
    """

    facts: tuple[str, ...]
    rows: tuple[GradientRow, ...]
    #: The facts that are not above one half at the start.
    undecided: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "facts": list(self.facts),
            "undecided": list(self.undecided),
            "rows": [asdict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        shown = ", ".join(self.facts[:4]) + (", …" if len(self.facts) > 4 else "")
        count = quantity(len(self.facts), "fact")
        if self.undecided:
            shown += f"; {len(self.undecided)} not above one half"
        rows = [
            [row.atom, "–" if row.depth is None else str(row.depth), str(row.steps)]
            + [f"{size:.3g}" for size in (row.value, row.exact, row.proof)]
            for row in self.rows
        ]
        columns = ["atom", "depth", "steps", "value", "exact", "proof"]
        heading = f"gradient that reaches {count} ({shown})"
        return "\n".join([heading, *aligned([columns, *rows], right=1)])


def gradient_report(
    model: LatentGamma,
    facts: Facts | None = None,
    *,
    steps: int | None = None,
    atoms: Iterable[str] | None = None,
) -> GradientReport:
    """Return the gradient that reaches the facts from atoms of every depth, exact and along proofs.

    >>> import latentgamma as lg
    >>> program = lg.parse("bird :- penguin. animal :- bird.")
    >>> print(gradient_report(lg.oracle(program, lg.Constants.paper())))
    gradient that reaches 1 fact (penguin)
    atom     depth  steps  value    exact  proof
    penguin      0      0      1        1      1
    bird         1      1  0.912   0.0253      1
    animal       2      2  0.909  0.00156      1
    >>> print(gradient_report(lg.oracle(program), {"penguin": 0.3}, steps=2))
    gradient that reaches 1 fact (penguin; 1 not above one half)
    atom     depth  steps     value     exact  proof
    penguin      –      2       0.3         1      1
    bird         –      2   1.1e-06  4.61e-05      1
    animal       –      2  1.38e-09  1.28e-09      1

    Args:
        model: any model that has a program.
        facts: what is true at first, or a state with values between 0 and 1; by default the
            roots, the atoms that no rule derives, are true. The gradient that arrives at roots
            that are not true counts too: those are the facts that would have to rise.
        steps: T; by default for each atom the step at which it rises above one half. Later
            the exact gradient fades further, as the atom saturates.
        atoms: which atoms to look at; by default one for each depth, or for some depths
            where there are many.

    Returns:
        One row for each atom; `str` of it is a table.

    Raises:
        ModelError: if this is not a LatentGamma, has no program, or has only a part of its rules.
        FactsError: if `facts` or `atoms` are not of this program, or no facts are given and the
            program has no roots.
    """
    require_definite_model(model, "gradient_report")
    require_whole_model(model, "gradient_report")
    if model.program is None:
        raise ModelError("this model has no program to take depths from; set model.program")
    program = model.program
    if facts is None and not program.roots and not program.facts:
        raise FactsError("no rule uses an atom that has no rule, so there are no roots; pass facts")
    values = fact_values(program, program.roots if facts is None else facts)
    if values.ndim != 1:
        raise FactsError("gradient_report takes one set of facts or one state")
    given = (values > 0) | program.mask(program.roots)
    closed, possible = closure(program, values > 0.5), closure(program, given)
    chosen = _one_for_each_depth(possible)
    if atoms is not None:
        names = [atoms] if isinstance(atoms, str) else atoms
        chosen = [atom_index(program, name, what="atoms") for name in names]
    state = model.state(values).double()
    if steps is None:
        ends = _crossings(model, state, chosen, possible.depth)
    else:
        ends = [whole_number("steps", steps)] * len(chosen)
    exact_sizes = _sizes(_with(model, "exact"), state, chosen, ends, given)
    proof_sizes = _sizes(_with(model, "proof"), state, chosen, ends, given)
    with torch.no_grad():
        states = model.iterate(state, max(ends, default=0)).states
    rows = []
    for i, end, exact, proof in zip(chosen, ends, exact_sizes, proof_sizes, strict=True):
        level, name, value = int(closed.level[i]), program.atoms[i], float(states[end, i])
        rows.append(GradientRow(name, None if level < 0 else level, end, exact, proof, value))
    return GradientReport(
        tuple(program.atoms[i] for i in np.flatnonzero(given)),
        tuple(rows),
        tuple(program.atoms[i] for i in np.flatnonzero(given & (values <= 0.5))),
    )


def _one_for_each_depth(closed: Closure) -> list[int]:
    """Return the first atom of each depth, of all depths or of some that grow in a ratio."""
    depths: Iterable[int] = range(closed.depth + 1)
    if closed.depth > _DEPTHS:
        ratio = np.geomspace(1, closed.depth, _DEPTHS)
        depths = sorted({0, *(int(depth) for depth in np.rint(ratio))})
    starts, ends = closed.offsets[:-1], closed.offsets[1:]
    # Level 0 is empty where the program starts from facts of its own.
    return [int(closed.order[starts[d] : ends[d]].min()) for d in depths if starts[d] < ends[d]]


def _crossings(model: LatentGamma, state: Tensor, chosen: Sequence[int], depth: int) -> list[int]:
    """Return the step at which each chosen atom exceeds one half; its depth if it does not soon."""
    ends: list[int | None] = [None] * len(chosen)
    with torch.no_grad():
        for steps in range(4 * depth + 16):
            above = (state[list(chosen)] > 0.5).tolist()
            ends = [
                steps if end is None and up else end for end, up in zip(ends, above, strict=True)
            ]
            if None not in ends:
                break
            state = model.step(state)
    return [depth if end is None else end for end in ends]


def _with(model: LatentGamma, gradient: Gradient) -> LatentGamma:
    """Return the same parameters with this kind of gradient; the caller's model stays as it is."""
    twin = copy.copy(model)
    twin.gradient = gradient
    return twin


def _sizes(
    model: LatentGamma, state: Tensor, chosen: Sequence[int], ends: Sequence[int], facts: Mask
) -> list[float]:
    """Return Σ over the facts of |∂ s_i(T) / ∂ s_fact|, for each chosen atom i and its own T."""
    at_once = max(1, _VALUES_AT_ONCE // max(1, model.M * max(ends, default=0)))
    sizes: list[float] = []
    for start in range(0, len(chosen), at_once):
        atoms, steps = chosen[start : start + at_once], ends[start : start + at_once]
        # One copy of the state for each atom, so that one backward pass serves them all.
        copies = state.repeat(len(atoms), 1).requires_grad_()
        with torch.enable_grad():
            states = model.iterate(copies, max(steps)).states  # (T + 1, atoms, M)
            reached = states[list(steps), range(len(atoms)), list(atoms)]
            (slope,) = torch.autograd.grad(reached.sum(), copies)
        sizes += slope.cpu()[:, torch.from_numpy(facts)].abs().sum(1).tolist()
    return sizes
