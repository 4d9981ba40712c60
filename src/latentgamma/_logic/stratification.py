"""A program with negation put into strata, or the cycle through a negation that prevents it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from latentgamma._errors import ProgramError
from latentgamma._logic.compilation import Cells, compile_loop, worth_compiling
from latentgamma._logic.dependency_graph import rule_order
from latentgamma._program.facts import Mask
from latentgamma._program.names import quote
from latentgamma._program.program import Indices, Offsets, Program, Stratum
from latentgamma._program.rule_text import SignedRules
from latentgamma._program.rules import Rule
from latentgamma._program.stratified import StratifiedProgram


class NotStratifiedError(ProgramError):
    """An atom depends on its own negation; `rule` and `negated` are where."""

    def __init__(self, problem: str, head: str, negated: str) -> None:
        self.problem = problem
        self.head = head
        self.negated = negated
        super().__init__(problem)


def stratify(rules: Iterable[Rule], atoms: Iterable[str] | None = None) -> StratifiedProgram:
    """The stratified program of these rules, whose bodies may have negated atoms.

    >>> from latentgamma import Rule
    >>> program = stratify([Rule(("fly",), frozenset({"bird"}), frozenset({"penguin"}))])
    >>> print(program)
    fly :- bird, not penguin.

    Args:
        rules: rules; one with several heads counts as a rule for each.
        atoms: the order of the atoms; it may name some that no rule uses.

    Returns:
        The rules in strata. No stratum negates an atom that it or a later stratum derives.

    Raises:
        ProgramError: if an atom depends on its own negation; the message shows the cycle.
    """
    index: dict[str, int] = {} if atoms is None else {name: i for i, name in enumerate(atoms)}
    heads: list[int] = []
    bodies: list[int] = []
    signs: list[bool] = []
    ends = [0]
    for rule in rules:
        numbers = [index.setdefault(name, len(index)) for name in rule.heads]
        body = [(index.setdefault(name, len(index)), False) for name in sorted(rule.body)]
        body += [(index.setdefault(name, len(index)), True) for name in sorted(rule.negated)]
        for head in numbers:
            heads.append(head)
            bodies += [atom for atom, _ in body]
            signs += [sign for _, sign in body]
            ends.append(len(bodies))
    return stratify_arrays(
        tuple(index),
        np.array(heads, np.int32),
        np.array(ends, np.int64),
        np.array(bodies, np.int32),
        np.array(signs, np.bool_),
    )


def stratified_rules(rules: SignedRules) -> StratifiedProgram:
    """The stratified program of rules that were read; several heads make several rules."""
    sizes, counts = np.diff(rules.body_indptr), np.diff(rules.head_indptr)
    row = np.repeat(np.arange(len(counts)), counts)
    repeated = sizes[row]
    ends = np.concatenate(([0], np.cumsum(repeated)))
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], repeated)
    literal = np.repeat(rules.body_indptr[row], repeated) + within
    return stratify_arrays(
        rules.atoms,
        rules.head_indices,
        ends,
        rules.body_indices[literal],
        rules.negated[literal],
    )


def stratify_arrays(
    atoms: tuple[str, ...],
    heads: Indices,
    body_indptr: Offsets,
    body_indices: Indices,
    negated: Mask,
) -> StratifiedProgram:
    """The stratified program of rules with one head each, as compressed rows.

    Args:
        atoms: their names.
        heads: the head of each rule. Shape (R,).
        body_indptr: where the body of each rule starts. Shape (R + 1,).
        body_indices: the atoms of the bodies.
        negated: which of them are negated.
    """
    level = _levels(atoms, heads, body_indptr, body_indices, negated)
    rule_of = np.repeat(np.arange(len(heads)), np.diff(body_indptr))
    strata: list[Stratum] = []
    rules = 0  # of the strata so far
    names = set(atoms)
    for s in range(int(level[heads].max(initial=-1)) + 1):
        chosen = np.flatnonzero(level[heads] == s)
        if not len(chosen):
            continue
        inside = np.zeros(len(heads), np.bool_)
        inside[chosen] = True
        kept = inside[rule_of]
        members, signs = body_indices[kept], negated[kept]
        sizes = np.diff(body_indptr)[chosen]
        positive = np.unique(np.concatenate((heads[chosen], members[~signs])))
        negative = np.unique(members[signs])
        place = np.zeros((2, len(atoms)), np.int32)
        place[0, positive] = np.arange(len(positive))
        place[1, negative] = len(positive) + np.arange(len(negative))
        program = Program.from_arrays(
            np.concatenate(([0], np.cumsum(sizes))),
            place[signs.astype(np.int8), members],
            place[0, heads[chosen]],
            atoms=[atoms[i] for i in positive] + [negation_name(atoms[i], names) for i in negative],
        )
        atom = np.concatenate((positive, negative)).astype(np.int32)
        negation = np.arange(len(atom)) >= len(positive)
        numbers = np.arange(rules, rules + program.R, dtype=np.int32)
        strata.append(Stratum(program, atom, negation, numbers))
        rules += program.R
    return StratifiedProgram(atoms, tuple(strata))


def negation_name(name: str, taken: set[str]) -> str:
    """What the negation of an atom is called in a stratum: no other atom has that name."""
    negation = f"not {quote(name)}"
    while negation in taken:
        negation = f"not {negation}"
    return negation


def _levels(
    atoms: tuple[str, ...],
    heads: Indices,
    body_indptr: Offsets,
    body_indices: Indices,
    negated: Mask,
) -> npt.NDArray[np.int32]:
    """The stratum of each atom: the most negations on a way down from it. Shape (M,)."""
    level = np.zeros(len(atoms), np.int32)
    if not negated.any():
        return level
    # Who depends on whom, whatever the sign.
    unsigned = Program.from_arrays(body_indptr, body_indices, heads, atoms=len(atoms))
    order = rule_order(unsigned)
    arrays = (
        body_indptr, body_indices, negated, heads, order.rules, order.block_ptr, order.cyclic,
        level, np.full(len(atoms), -1, np.int32),
    )  # fmt: skip
    if not worth_compiling(unsigned.size):
        lists = [array.tolist() for array in arrays]
        literal = raise_levels(*lists)
        level[:] = lists[-2]
    else:
        literal = compile_loop(raise_levels)(*arrays)
    if literal >= 0:
        rule = int(np.searchsorted(body_indptr, literal, "right")) - 1
        raise _not_stratified(
            atoms, heads, body_indptr, body_indices, negated, rule, int(body_indices[literal])
        )
    return level


def raise_levels(
    body_ptr: Cells,
    body: Cells,
    negated: Cells,
    head: Cells,
    order: Cells,
    block_ptr: Cells,
    cyclic: Cells,
    level: Cells,
    block_of: Cells,
) -> int:
    """A literal that negates an atom of its own cycle, or −1 after `level` has been raised.

    Blocks of rules come in topological order; a cyclic block is one strongly connected component.
    `level` comes as 0 and `block_of`, which is working memory, as −1.
    """
    for b in range(len(block_ptr) - 1):
        top = 0
        if cyclic[b]:
            for x in range(block_ptr[b], block_ptr[b + 1]):
                block_of[head[order[x]]] = b
                top = max(top, level[head[order[x]]])
        for x in range(block_ptr[b], block_ptr[b + 1]):
            j = order[x]
            most = 0
            for p in range(body_ptr[j], body_ptr[j + 1]):
                if negated[p]:
                    if cyclic[b] and block_of[body[p]] == b:
                        return p
                    most = max(most, level[body[p]] + 1)
                else:
                    most = max(most, level[body[p]])
            if cyclic[b]:
                top = max(top, most)
            else:
                level[head[j]] = max(level[head[j]], most)
        if cyclic[b]:
            for x in range(block_ptr[b], block_ptr[b + 1]):
                level[head[order[x]]] = top
    return -1


def _not_stratified(
    atoms: tuple[str, ...],
    heads: Indices,
    body_indptr: Offsets,
    body_indices: Indices,
    negated: Mask,
    rule: int,
    denied: int,
) -> NotStratifiedError:
    """The error that shows how the head of a rule depends on its own negation."""
    goal = int(heads[rule])
    order = np.argsort(heads, kind="stable")
    starts = np.searchsorted(heads[order], np.arange(len(atoms) + 1))
    # From the denied atom down to the head, by a shortest way.
    before: dict[int, tuple[int, bool]] = {denied: (-1, False)}
    queue = deque([denied])
    while queue and goal not in before:
        atom = queue.popleft()
        for j in order[starts[atom] : starts[atom + 1]].tolist():
            for p in range(int(body_indptr[j]), int(body_indptr[j + 1])):
                below = int(body_indices[p])
                if below not in before:
                    before[below] = (atom, bool(negated[p]))
                    queue.append(below)
    steps = []
    at = goal
    while at != denied:
        above, sign = before[at]
        steps.append(f"{quote(atoms[above])} needs {'not ' * sign}{quote(atoms[at])}")
        at = above
    cycle = [f"{quote(atoms[goal])} needs not {quote(atoms[denied])}", *reversed(steps)]
    shown = [*cycle[:6], "…"] if len(cycle) > 7 else cycle
    problem = (
        f"the program is not stratified, because an atom depends on its own negation: "
        f"{', '.join(shown)}; break the cycle, for example with a predicate of its own for one side"
    )
    return NotStratifiedError(problem, atoms[goal], atoms[denied])
