"""The arrays of a sum-product pass: what is computed from what, and how.

The negation of an atom is a node of its own. It needs no difference of probabilities near one

- for an independent fact: its complement is one more input;
- for an atom of a group: it is the sum of the other atoms;
- for an atom with one body, or with independent bodies: by De Morgan's laws it is built from the
  negations of the literals.

Only the negation of an atom with several bodies that exclude each other is one minus its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from latentgamma._probability.relevant_rules import RelevantRules
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Indices

#: How a node is computed from its bodies: their sum, 1 - product of (1 - body), or 1 - its body.
EXCLUSIVE, INDEPENDENT, COMPLEMENT = 0, 1, 2


@dataclass(frozen=True, eq=False)
class SumProduct:
    """The arrays of an exact pass, over nodes: first the inputs, then the others in order.

    Node n >= inputs has the bodies `body_ptr[rule_ptr[n - inputs]:…]`.
    """

    inputs: int
    input_places: Indices  # (inputs,) the place of each input node among the variables' atoms
    input_negated: np.ndarray  # (inputs,) whether it is the complement of that
    rule_ptr: Indices
    body_ptr: Indices
    body: Indices
    kind: Indices  # EXCLUSIVE, INDEPENDENT or COMPLEMENT for each node that is not an input
    outputs: Indices  # node of each output; -1 for certain, -2 for impossible
    subtracts: frozenset[int]  # outputs that depend on a node of the kind COMPLEMENT

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.inputs + len(self.kind)

    @property
    def all_exclusive(self) -> bool:
        """Whether every node is the sum of its bodies, and no input is a complement."""
        return not self.kind.any() and not self.input_negated.any()


def build_circuit(
    variables: Variables,
    rules: RelevantRules,
    order: Sequence[int],
    independent: Mapping[int, bool],
    outputs: Sequence[int],
) -> SumProduct:
    """Return the arrays of a pass.

    Args:
        variables: The random variables.
        rules: The rules that the outputs depend on.
        order: The derived atoms, those of a body before its head.
        independent: Whether the bodies of an atom are independent; else they are exclusive.
        outputs: The atoms whose probability is asked for.
    """
    return _Builder(variables, rules, order, independent).build(outputs)


class _Builder:
    """Nodes by literal. The negation of the input -1 - i is -1 - (M + i)."""

    def __init__(
        self,
        variables: Variables,
        rules: RelevantRules,
        order: Sequence[int],
        independent: Mapping[int, bool],
    ) -> None:
        self._variables = variables
        self._rules = rules
        self._M = len(rules.certain)
        self._order = order
        self._independent = independent
        self._node: dict[int, int] = {}
        self._inputs: list[tuple[int, bool]] = []  # atom, whether it is the complement
        self._kind: list[int] = []
        self._bodies: list[list[list[int]]] = []
        self._subtracts: list[bool] = []  # for every node

    def build(self, outputs: Sequence[int]) -> SumProduct:
        needed = self._needed(atom for atom in outputs if not self._rules.certain[atom])
        sums = []
        for literal in sorted(needed):
            atom, negated = self._input_of(literal)
            if atom >= 0 and negated and self._group(atom):
                sums.append(literal)
            elif atom >= 0:
                self._node[literal] = len(self._inputs)
                self._inputs.append((atom, negated))
                self._subtracts.append(False)
        for literal in sums:
            others = self._other_values(self._input_of(literal)[0])
            self._node[literal] = self._add(EXCLUSIVE, [[self._node[i]] for i in others])
        for atom in self._order:
            if atom in needed:
                kind = INDEPENDENT if self._independent[atom] else EXCLUSIVE
                bodies = [[self._node[i] for i in body] for body in self._rules.bodies[atom]]
                self._node[atom] = self._add(kind, bodies)
            if self._M + atom in needed:
                self._node[self._M + atom] = self._add_negation(atom)
        place = {int(atom): p for p, atom in enumerate(self._variables.atoms)}
        rules = [body for bodies in self._bodies for body in bodies]
        return SumProduct(
            inputs=len(self._inputs),
            input_places=np.array([place[atom] for atom, _ in self._inputs], np.int32),
            input_negated=np.array([negated for _, negated in self._inputs], np.bool_),
            rule_ptr=_offsets(map(len, self._bodies)),
            body_ptr=_offsets(map(len, rules)),
            body=np.array([node for body in rules for node in body], np.int32),
            kind=np.array(self._kind, np.int32),
            outputs=np.array([self._output_node(atom) for atom in outputs], np.int32),
            subtracts=frozenset(
                atom for atom in outputs if atom in self._node and self._subtracts[self._node[atom]]
            ),
        )

    def _needed(self, outputs: Iterable[int]) -> set[int]:
        """The literals whose nodes the outputs need."""
        needed: set[int] = set()
        stack = list(outputs)
        while stack:
            literal = stack.pop()
            if literal in needed:
                continue
            needed.add(literal)
            atom, negated = self._input_of(literal)
            if atom >= 0:
                stack += self._other_values(atom) if negated else []
                continue
            atom = self._rules.atom_of(literal)
            literals = [i for body in self._rules.bodies[atom] for i in body]
            if not negated:
                stack += literals
            elif self._by_de_morgan(atom):
                stack += [self._negation(i) for i in literals]
            else:
                stack.append(atom)
        return needed

    def _add_negation(self, atom: int) -> int:
        bodies = self._rules.bodies[atom]
        if not self._by_de_morgan(atom):
            return self._add(COMPLEMENT, [[self._node[atom]]])
        none = [self._none_of([self._node[self._negation(i)] for i in body]) for body in bodies]
        return none[0] if len(none) == 1 else self._add(EXCLUSIVE, [none])

    def _none_of(self, negations: list[int]) -> int:
        """The node of the negation of a body, from those of its literals."""
        if len(negations) == 1:
            return negations[0]
        return self._add(INDEPENDENT, [[node] for node in negations])

    def _add(self, kind: int, bodies: list[list[int]]) -> int:
        self._kind.append(kind)
        self._bodies.append(bodies)
        self._subtracts.append(
            kind == COMPLEMENT or any(self._subtracts[node] for body in bodies for node in body)
        )
        return len(self._inputs) + len(self._kind) - 1

    def _by_de_morgan(self, atom: int) -> bool:
        return len(self._rules.bodies[atom]) <= 1 or self._independent[atom]

    def _negation(self, literal: int) -> int:
        if literal < 0:
            return literal - self._M if -1 - literal < self._M else literal + self._M
        return literal + self._M if literal < self._M else literal - self._M

    def _input_of(self, literal: int) -> tuple[int, bool]:
        """The input atom of a literal, -1 if it is derived, and whether it is negated."""
        given = -1 - literal if literal < 0 else literal
        atom, negated = given % self._M, given >= self._M
        return (atom if literal < 0 or atom not in self._rules.bodies else -1), negated

    def _group(self, atom: int) -> tuple[int, ...]:
        """The atoms of the group of an input; none for an independent fact."""
        facts = len(self._variables.facts)
        owner = self._variables.owner[atom]
        return self._variables.groups[owner - facts] if owner >= facts else ()

    def _other_values(self, atom: int) -> list[int]:
        return [-1 - i if i in self._rules.bodies else i for i in self._group(atom) if i != atom]

    def _output_node(self, atom: int) -> int:
        if self._rules.certain[atom]:
            return -1
        return self._node[atom] if self._rules.bodies.get(atom, (atom,)) else -2


def _offsets(sizes: Iterable[int]) -> Indices:
    return np.concatenate(([0], np.cumsum(list(sizes), dtype=np.int64))).astype(np.int32)
