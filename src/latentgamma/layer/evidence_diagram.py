"""Probabilities given evidence from a decision diagram, where worlds are too many for a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

import torch
from torch import Tensor, nn

from latentgamma.engine.diagram import Clause, Diagram, compile_diagram
from latentgamma.engine.diagram_torch import DiagramPasses
from latentgamma.engine.exactness import RelevantRules, Variables, atom_of, relevant_rules
from latentgamma.engine.tensors import hold, may_be_any, values_can_be_read
from latentgamma.errors import ProgramError, StateError
from latentgamma.program.program import Program

#: The most edges of a diagram.
_BUDGET = 200_000
#: The log-odds of what is certain, and a log-probability of the evidence that says it is impossible.
CERTAIN_ODDS, IMPOSSIBLE = 1e30, -1e25
#: Larger log-odds are differences of logarithms: the probabilities may have underflowed.
_FAR = 600.0
#: A probability that is almost 0, and large enough for slopes of its logarithm.
_NEARLY_ZERO = 1e-30


def refuse_impossible(zero: Tensor, *, sampled: bool = False) -> None:
    """Raise a StateError if the evidence has probability zero in an example. (B,)."""
    if values_can_be_read(zero) and bool(zero.any()):
        row = int(zero.nonzero()[0, 0])
        raise StateError(
            f"no sampled world of example {row} agrees with the evidence: raise worlds="
            if sampled
            else f"the evidence has probability zero in example {row}"
        )


class _Clauses:
    """The rules as clauses over inputs and derived atoms, with the evidence filled in."""

    def __init__(self, rules: RelevantRules, evidence: Mapping[int, bool]) -> None:
        self.rules, self.evidence = rules, evidence
        self.clauses: list[Clause] = []
        self.variable: dict[int, int] = {}  # of a derived atom, or of an input literal
        self.size = 0
        for atom, bodies in rules.bodies.items():
            self._define(atom, [[self._literal(x) for x in body] for body in bodies])
        for atom, value in evidence.items():
            if atom not in rules.bodies or atom in self.variable:
                x = self._literal(atom)
                self.clauses.append((x if value else -x,))

    def new(self) -> int:
        """Return a variable that is true exactly if a definition says so."""
        self.size += 1
        return self.size

    def of(self, atom: int) -> int:
        """Return the variable of an atom, or of an input."""
        if atom not in self.variable:
            self.variable[atom] = self.new()
        return self.variable[atom]

    def _literal(self, literal: int) -> int:
        x = self.of(atom_of(literal))
        return -x if literal < 0 else x

    def _define(self, atom: int, bodies: list[list[int]]) -> None:
        if self.evidence.get(atom) is False:
            self.clauses += [tuple(-x for x in body) for body in bodies]
            return
        head = self.of(atom)
        causes = []
        for body in bodies:
            self.clauses.append((head, *(-x for x in body)))
            cause = body[0]
            if len(body) != 1:
                cause = self.new()
                self.clauses += [(-cause, x) for x in body]
                self.clauses.append((cause, *(-x for x in body)))
            causes.append(cause)
        self.clauses.append((-head, *causes))


def _acyclic(rules: RelevantRules) -> bool:
    parts = {
        atom: {atom_of(literal) for body in bodies for literal in body}
        for atom, bodies in rules.bodies.items()
    }
    try:
        TopologicalSorter(parts).prepare()
    except CycleError:
        return False
    return True


class EvidenceDiagram(nn.Module):
    """The probability of each output given evidence, exact: marginals of a decision diagram.

    Derived atoms are labels of the diagram with log-odds 0: each is decided by the inputs, so that
    the factor of one half cancels. So does that of the false atoms of a group.
    """

    def __init__(
        self, diagram: Diagram, columns: Sequence[int], outputs: Sequence[tuple[int, float]]
    ) -> None:
        super().__init__()
        self.passes = DiagramPasses(diagram)
        places = [i for i, column in enumerate(columns) if column >= 0]
        self._size = len(columns)
        self.register_buffer("_places", torch.tensor(places, dtype=torch.long), persistent=False)
        taken = [column for column in columns if column >= 0]
        self.register_buffer("_columns", torch.tensor(taken, dtype=torch.long), persistent=False)
        # Outputs: labels of the diagram, then inputs in no clause, then what is the same always.
        index = torch.tensor([place for place, _ in outputs], dtype=torch.long)
        fixed = torch.tensor([value for _, value in outputs], dtype=torch.float64)
        self.register_buffer("_outputs", index, persistent=False)
        self.register_buffer("_fixed", fixed, persistent=False)

    _places: Tensor
    _columns: Tensor
    _outputs: Tensor
    _fixed: Tensor

    def __str__(self) -> str:
        return f"{self.passes.diagram} for all worlds that agree with the evidence"

    def forward(self, odds: Tensor) -> Tensor:
        """Return the log-odds of the outputs (B, O) given the evidence.

        `odds` (B, I) has the log-odds of facts and the log-probabilities of the atoms of groups, in
        the order of the variables.

        Raises:
            StateError: if the evidence has probability zero in an example.
        """
        x = odds.new_zeros(len(odds), self._size).index_copy(
            1, self._places, odds.index_select(1, self._columns)
        )
        refuse_impossible(self.passes.log_partition(x.detach()) < IMPOSSIBLE)
        every = torch.cat([self.passes.marginals(x), odds], 1)
        found = every.index_select(1, self._outputs)
        far = found.detach().abs() > _FAR
        if may_be_any(far):
            found = torch.where(far, self._far_odds(x, found), found)
        return torch.where(self._fixed == 0, found, self._fixed)

    def _far_odds(self, x: Tensor, found: Tensor) -> Tensor:
        """Return log-odds of labels from the log-probabilities of the evidence given each sign."""
        columns = list(found.unbind(1))
        for o, label in enumerate(self._outputs.tolist()):
            if label < self._size:
                column = torch.full_like(x[:, :1], label, dtype=torch.long)
                yes, no = (
                    self.passes.log_partition(x.scatter(1, column, end))
                    for end in (CERTAIN_ODDS, -CERTAIN_ODDS)
                )
                columns[o] = hold(yes - no + x[:, label], -CERTAIN_ODDS, CERTAIN_ODDS)
        return torch.stack(columns, 1)


def evidence_diagram(
    program: Program,
    variables: Variables,
    outputs: Sequence[int],
    evidence: Mapping[int, bool],
    true: Sequence[int],
) -> EvidenceDiagram | None:
    """Return the diagram of everything that agrees with the evidence, or None if there is none.

    There is none for programs in which atoms depend on themselves, beyond the budget of edges,
    and where nothing agrees with the evidence.
    """
    rules = relevant_rules(program, variables, [*outputs, *evidence], true)
    known = {atom: value for atom, value in evidence.items() if not rules.certain[atom]}
    fed = set(variables.atoms.tolist())
    if any(rules.certain[atom] and not value for atom, value in evidence.items()):
        return None
    if any(atom not in rules.bodies and atom not in fed for atom in known) or not _acyclic(rules):
        return None
    found = _Clauses(rules, known)
    for group in variables.groups:
        members = [found.of(rules.input_literal(atom)) for atom in group]
        found.clauses.append(tuple(members))
        found.clauses += [(-a, -b) for a, b in combinations(members, 2)]
    mentioned = sorted({abs(x) for clause in found.clauses for x in clause})
    number = {variable: i + 1 for i, variable in enumerate(mentioned)}
    placed = [tuple(number[abs(x)] * (1 if x > 0 else -1) for x in c) for c in found.clauses]
    try:
        diagram = compile_diagram(placed, len(mentioned), _BUDGET)
    except ProgramError:
        return None
    if diagram is None:
        return None
    column_of = {int(atom): n for n, atom in enumerate(variables.atoms)}
    label = {atom: number[x] - 1 for atom, x in found.variable.items() if x in number}
    columns = [-1] * len(mentioned)
    for atom, place in label.items():
        if atom not in rules.bodies:
            columns[place] = column_of[atom % program.M]
    read: list[tuple[int, float]] = []
    for atom in outputs:
        if rules.certain[atom] or atom in known:
            read.append((0, CERTAIN_ODDS if known.get(atom, True) else -CERTAIN_ODDS))
        elif atom in label:
            read.append((label[atom], 0.0))
        elif atom in fed and atom not in rules.bodies:
            read.append((len(mentioned) + column_of[atom], 0.0))
        else:
            read.append((0, -CERTAIN_ODDS))
    return EvidenceDiagram(diagram, columns, read)


def input_log_odds(values: Tensor, facts: int, *, certain: bool = True) -> Tensor:
    """Return the log-odds of facts and the log-probabilities of the atoms of groups, (B, I).

    The probabilities of a group have the sum one. Inputs at 0 and 1 are certain, or almost.
    """
    none = torch.cat([1 - values[:, :facts], torch.ones_like(values[:, facts:])], 1)
    yes, no = ((part + torch.where(part <= 0, _NEARLY_ZERO, 0.0)).log() for part in (values, none))
    ends = torch.where(values <= 0, -CERTAIN_ODDS, torch.where(none <= 0, CERTAIN_ODDS, 0.0))
    return yes - no + ends.detach() if certain else yes - no
