"""How far the rows of a model are the rules of a program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from latentgamma._errors import ModelError
from latentgamma._model.module import LatentGamma, require_whole_model
from latentgamma._program.program import Program, require_definite


@dataclass(frozen=True)
class Alignment:
    """How far the rows of a model are the rules of a program, one by one.

    A row is aligned with a rule when the atoms with weights above one half are the rule's body,
    and its head is the rule's.

    >>> import latentgamma as lg
    >>> program = lg.parse("c :- a. d :- c.")
    >>> found = lg.alignment(lg.oracle(lg.parse("c :- a. d :- a, c.")), program)
    >>> found.precision, found.recall, found.rows
    (0.5, 0.5, 1)

    Attributes:
        n_corp: for each rule, the largest number of its body atoms that a row with its head gives
            a weight above one half; the paper's measure. (R,)
        precision: the share of rows that are aligned with a rule.
        recall: the share of rules that a row is aligned with.
        rows: the number of aligned rows.
    """

    n_corp: npt.NDArray[np.int64]
    precision: float
    recall: float
    rows: int


def alignment(model: LatentGamma, program: Program) -> Alignment:
    """Return how far the rows of a model are the rules of a program.

    >>> import latentgamma as lg
    >>> program = lg.parse("c :- a, b. d :- c.")
    >>> found = alignment(lg.oracle(program), program)
    >>> found.n_corp.tolist(), found.precision, found.recall
    ([2, 1], 1.0, 1.0)

    Args:
        model: any LatentGamma.
        program: a definite program on as many atoms.

    Returns:
        The overlap of each rule with its best row, and the precision and recall of the rows.

    Raises:
        ModelError: the model is no LatentGamma, has only a part of its rules, or has another
            number of atoms.
        ProgramError: the program has negation.
    """
    if not isinstance(model, LatentGamma) or not isinstance(program, Program):
        raise ModelError(
            f"alignment takes a LatentGamma and a Program, not {type(model).__name__} and "
            f"{type(program).__name__}"
        )
    require_whole_model(model, "alignment")
    require_definite(program, "alignment")
    if model.M != program.M:
        raise ModelError(f"the model has {model.M} atoms, but the program has {program.M}")
    with torch.no_grad():
        weights, held = model.rules.read(), model.rules.literals()
        strong = model.rules.body_at(weights, held.body_rule, held.body_atom) > 0.5
        body_rule, body_atom = (x[strong].cpu().numpy() for x in (held.body_rule, held.body_atom))
        head_rule, head_atom = held.head_rule.cpu().numpy(), held.head_atom.cpu().numpy()
    bodies: list[set[int]] = [set() for _ in range(model.R)]
    heads: list[set[int]] = [set() for _ in range(model.R)]
    for names, rule, atom in ((bodies, body_rule, body_atom), (heads, head_rule, head_atom)):
        for j, i in zip(rule.tolist(), atom.tolist(), strict=True):
            names[j].add(i)
    by_head: dict[int, list[int]] = {}
    for j, mine in enumerate(heads):
        for i in mine:
            by_head.setdefault(i, []).append(j)
    n_corp = np.zeros(program.R, np.int64)
    aligned: set[int] = set()
    matched = 0
    for r in range(program.R):
        body, wanted = set(program.body_of(r).tolist()), set(program.heads_of(r).tolist())
        rows = {j for i in wanted for j in by_head.get(i, [])}
        n_corp[r] = max((len(body & bodies[j]) for j in rows), default=0)
        same = {j for j in rows if bodies[j] == body and wanted <= heads[j]}
        aligned |= same
        matched += bool(same)
    return Alignment(
        n_corp,
        len(aligned) / model.R if model.R else 1.0,
        matched / program.R if program.R else 1.0,
        len(aligned),
    )
