"""The arrays of a sum-product pass: what is computed from what, and how.

The negation of a literal is a node of its own, computed without a difference of probabilities:

- of an independent fact: its complement is one more input;
- of an atom of a group: the sum of the other atoms;
- of a derived atom: no body of it holds. Bodies that depend on disjoint sets of variables are
  independent. Otherwise one looks at atoms that exclude each other, such as the values of a group,
  and that share no variable with the other atoms of these bodies: for each case (one of them is
  true, or none) its probability times that of no body in this case.

Only where that is not possible, or has too many cases, a negation is one minus a probability.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from latentgamma._probability.relevant_rules import Body, RelevantRules
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Indices

#: How a node is computed from its bodies: their sum, 1 - product of (1 - body), or 1 - its body.
EXCLUSIVE, INDEPENDENT, COMPLEMENT = 0, 1, 2
#: Instead of a node: what is true in every world, in none, or known by one minus its value alone.
CERTAIN, IMPOSSIBLE, UNKNOWN = -1, -2, -3
_OPPOSITE = {CERTAIN: IMPOSSIBLE, IMPOSSIBLE: CERTAIN}

# Sets of bodies of which it is computed that none holds, before negations are differences.
_MOST_CASES = 100_000


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
    outputs: Indices  # node of each output, CERTAIN or IMPOSSIBLE
    complements: Indices  # the same for their negations, or UNKNOWN
    subtracts: frozenset[int]  # outputs that depend on a node of the kind COMPLEMENT

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.inputs + len(self.kind)


def build_circuit(
    variables: Variables,
    rules: RelevantRules,
    independent: Mapping[int, bool],
    outputs: Sequence[int],
    support: Callable[[int], int],
    exclude: Callable[[int, int], bool],
    *,
    complements: bool = False,
) -> SumProduct:
    """Return the arrays of a pass.

    Args:
        variables: The random variables.
        rules: The rules that the outputs depend on.
        independent: Whether the bodies of an atom are independent; else they are exclusive.
        outputs: The atoms whose probability is asked for.
        support: The variables of a literal, as bits.
        exclude: Whether two atoms are proved to exclude each other.
        complements: Whether to compute the negations of the outputs too.
    """
    builder = _Builder(variables, rules, independent, support, exclude)
    return builder.build(outputs, complements=complements)


# What is built recursively is a generator that yields the generators whose results it needs: the
# rules may be nested deeper than calls of Python.
_Building = Generator[Any, Any, Any]


def _run(building: _Building) -> Any:
    """The result of a generator that yields others."""
    stack, result = [building], None
    while stack:
        try:
            stack.append(stack[-1].send(result))
            result = None
        except StopIteration as end:
            stack.pop()
            result = end.value
    return result


def _each(buildings: Iterable[_Building]) -> _Building:
    """The results of several generators."""
    results = []
    for building in buildings:
        results.append((yield building))  # noqa: PERF401 (a comprehension cannot yield)
    return results


class _Builder:
    """Nodes by literal. The negation of the input -1 - i is -1 - (M + i)."""

    def __init__(
        self,
        variables: Variables,
        rules: RelevantRules,
        independent: Mapping[int, bool],
        support: Callable[[int], int],
        exclude: Callable[[int, int], bool],
    ) -> None:
        self._variables = variables
        self._rules = rules
        self._M = len(rules.certain)
        self._independent = independent
        self._support = support
        self._exclude = exclude
        self._node: dict[int, int] = {}  # of each literal
        self._none: dict[frozenset[Body], int] = {}  # of no body of a set
        # By node, parts before what is made of them: an input atom and whether it is negated, or
        # the kind and the bodies.
        self._nodes: list[tuple[int, bool] | tuple[int, list[list[int]]]] = []
        self._subtracts: list[bool] = []

    def build(self, outputs: Sequence[int], *, complements: bool) -> SumProduct:
        found = [self._output_node(atom) for atom in outputs]
        others = [UNKNOWN] * len(found)
        for o, atom in enumerate(outputs if complements else ()):
            if found[o] >= 0:
                others[o] = _run(self._of_literal(self._negation(atom)))
            if found[o] < 0:
                others[o] = _OPPOSITE[found[o]]
            elif others[o] < 0:
                found[o] = _OPPOSITE[others[o]]
            elif self._subtracts[others[o]]:
                others[o] = UNKNOWN
        subtracts = frozenset(
            atom
            for atom, node in zip(outputs, found, strict=True)
            if node >= 0 and self._subtracts[node]
        )
        return self._arrays(found, others, subtracts)

    def _arrays(
        self, outputs: list[int], complements: list[int], subtracts: frozenset[int]
    ) -> SumProduct:
        """The nodes that the outputs and complements depend on, the inputs first."""
        used = [False] * len(self._nodes)
        for node in (*outputs, *complements):
            if node >= 0:
                used[node] = True
        for node in range(len(self._nodes) - 1, -1, -1):
            parts = self._nodes[node][1]
            if used[node] and isinstance(parts, list):
                for part in (part for body in parts for part in body):
                    used[part] = True
        inputs, derived = [], []
        for node, (what, parts) in enumerate(self._nodes):
            if used[node]:
                if isinstance(parts, list):
                    derived.append((node, what, parts))
                else:
                    inputs.append((node, what, parts))
        inputs.sort(key=lambda some: (some[2], some[1]))
        new = {node: n for n, (node, *_) in enumerate([*inputs, *derived])}
        place = {int(atom): p for p, atom in enumerate(self._variables.atoms)}
        bodies = [body for _, _, parts in derived for body in parts]
        return SumProduct(
            inputs=len(inputs),
            input_places=np.array([place[atom] for _, atom, _ in inputs], np.int32),
            input_negated=np.array([negated for _, _, negated in inputs], np.bool_),
            rule_ptr=_offsets(len(parts) for _, _, parts in derived),
            body_ptr=_offsets(map(len, bodies)),
            body=np.array([new[part] for body in bodies for part in body], np.int32),
            kind=np.array([kind for _, kind, _ in derived], np.int32),
            outputs=np.array([new.get(node, node) for node in outputs], np.int32),
            complements=np.array([new.get(node, node) for node in complements], np.int32),
            subtracts=subtracts,
        )

    # ------------------------------------------------------------ literals

    def _of_literal(self, literal: int) -> _Building:
        """The node of a literal, CERTAIN or IMPOSSIBLE."""
        if literal not in self._node:
            atom, negated = self._input_of(literal)
            if atom >= 0:
                self._node[literal] = yield self._of_input(literal, atom, negated)
            elif not negated:
                self._node[literal] = yield self._of_atom(literal)
            else:
                atom = self._negation(literal)
                none = yield self._none_of(frozenset(self._rules.bodies[atom]))
                if none == UNKNOWN:
                    node = yield self._of_literal(atom)
                    none = _OPPOSITE[node] if node < 0 else self._add(COMPLEMENT, [[node]])
                self._node[literal] = none
        return self._node[literal]

    def _of_input(self, literal: int, atom: int, negated: bool) -> _Building:
        group = self._group(atom)
        if negated and group:
            return (yield self._others(group, {self._negation(literal)}))
        self._nodes.append((atom, negated))
        self._subtracts.append(False)
        return len(self._nodes) - 1

    def _of_atom(self, atom: int) -> _Building:
        bodies = []
        for body in self._rules.bodies[atom]:
            nodes = yield _each(self._of_literal(literal) for literal in body)
            product = self._product(nodes)
            if product is not None:
                bodies.append(product)
        if not bodies:
            return IMPOSSIBLE
        if [] in bodies:
            return CERTAIN
        return self._add(INDEPENDENT if self._independent[atom] else EXCLUSIVE, bodies)

    def _others(self, group: tuple[int, ...], atoms: set[int]) -> _Building:
        """The sum of the values of a group besides some."""
        literals = [-1 - atom if atom in self._rules.bodies else atom for atom in group]
        nodes = yield _each(self._of_literal(i) for i in literals if i not in atoms)
        return self._sum([[node] for node in nodes])

    # ------------------------------------------------------------ none of several bodies

    def _none_of(self, bodies: frozenset[Body]) -> _Building:
        """The node of the event that no body holds; UNKNOWN where that needs a difference."""
        if not bodies:
            return CERTAIN
        if () in bodies:
            return IMPOSSIBLE
        if bodies not in self._none:
            if len(self._none) >= _MOST_CASES:
                return UNKNOWN
            parts = self._components(bodies)
            if len(parts) > 1:
                self._none[bodies] = yield self._none_of_each(parts)
            elif len(bodies) == 1 and len(next(iter(bodies))) == 1:
                (((literal,)),) = bodies
                self._none[bodies] = yield self._of_literal(self._negation(literal))
            else:
                self._none[bodies] = yield self._by_cases(bodies)
        return self._none[bodies]

    def _none_of_each(self, parts: list[frozenset[Body]]) -> _Building:
        nodes = yield _each(self._none_of(part) for part in parts)
        if UNKNOWN in nodes:
            return UNKNOWN
        product = self._product(nodes)
        return self._sum([] if product is None else [product])

    def _by_cases(self, bodies: frozenset[Body]) -> _Building:
        atoms = self._cases(bodies)
        if atoms is None:
            # Overlapping atoms that do not exclude each other: look at what they are made of.
            unfolded = self._unfolded(bodies)
            return (yield self._none_of(unfolded)) if unfolded else UNKNOWN
        products = []
        for case in (*sorted(atoms), None):
            rest = self._given(bodies, atoms, case)
            none = yield self._none_of(rest)
            if none == IMPOSSIBLE:
                continue
            if none == UNKNOWN:
                return UNKNOWN
            chance = yield (self._none_true(atoms) if case is None else self._of_literal(case))
            if chance == UNKNOWN:
                return UNKNOWN
            product = self._product([chance, none])
            if product is not None:
                products.append(product)
        return self._sum(products)

    def _none_true(self, atoms: set[int]) -> _Building:
        """The node of the event that none of some exclusive atoms is true."""
        if len(atoms) == 1:
            return (yield self._of_literal(self._negation(next(iter(atoms)))))
        inputs = {self._input_of(atom)[0] for atom in atoms}
        if -1 not in inputs:
            return (yield self._others(self._group(next(iter(inputs))), atoms))
        return (yield self._none_of(frozenset(b for atom in atoms for b in self._bodies_of(atom))))

    def _cases(self, bodies: frozenset[Body]) -> set[int] | None:
        """Atoms that exclude each other and share no variable with the other atoms."""
        found: list[tuple[int, set[int]]] = []  # variables, atoms
        for atom in sorted({self._atom_of(literal) for body in bodies for literal in body}):
            support, atoms = self._support(atom), {atom}
            for cluster in [some for some in found if some[0] & support]:
                found.remove(cluster)
                support, atoms = support | cluster[0], atoms | cluster[1]
            found.append((support, atoms))

        def cost(atoms: set[int]) -> tuple[bool, int, int]:
            derived = any(self._input_of(atom)[0] < 0 for atom in atoms)
            uses = sum(any(self._atom_of(i) in atoms for i in body) for body in bodies)
            return derived, -uses, len(atoms)

        for atoms in sorted((atoms for _, atoms in found), key=cost):
            if all(self._exclude(a, b) for a, b in combinations(sorted(atoms), 2)):
                return atoms
        return None

    def _given(self, bodies: frozenset[Body], atoms: set[int], case: int | None) -> frozenset[Body]:
        """What is left of the bodies if one of these atoms is true, or none."""
        left = []
        for body in bodies:
            rest = []
            for literal in body:
                atom = self._atom_of(literal)
                if atom not in atoms:
                    rest.append(literal)
                elif (atom == case) == (atom != literal):
                    break  # false in this case
            else:
                left.append(tuple(rest))
        return frozenset(left)

    def _unfolded(self, bodies: frozenset[Body]) -> frozenset[Body]:
        """The bodies with derived atoms replaced by their bodies; empty where there is none."""
        left: set[Body] = set()
        changed = False
        for body in bodies:
            derived = [i for i in body if i in self._rules.bodies]
            changed |= bool(derived)
            some = [frozenset(body) - set(derived)]
            for atom in derived:
                some = [one | set(two) for one in some for two in self._rules.bodies[atom]]
                if len(some) > _MOST_CASES:
                    return frozenset()
            left |= {tuple(sorted(one)) for one in some}
        return frozenset(left) if changed else frozenset()

    def _components(self, bodies: frozenset[Body]) -> list[frozenset[Body]]:
        """The bodies divided into sets that share no variable."""
        found: list[tuple[int, list[Body]]] = []
        for body in sorted(bodies):
            support, some = 0, [body]
            for literal in body:
                support |= self._support(self._atom_of(literal))
            for part in [part for part in found if part[0] & support]:
                found.remove(part)
                support, some = support | part[0], some + part[1]
            found.append((support, some))
        return [frozenset(some) for _, some in found]

    # ------------------------------------------------------------ nodes

    def _product(self, nodes: list[int]) -> list[int] | None:
        """The body of these nodes; None where one is impossible."""
        return None if IMPOSSIBLE in nodes else [node for node in nodes if node != CERTAIN]

    def _sum(self, bodies: list[list[int]]) -> int:
        """The node of a disjunction of exclusive bodies."""
        if not bodies:
            return IMPOSSIBLE
        if len(bodies) == 1 and len(bodies[0]) <= 1:
            return bodies[0][0] if bodies[0] else CERTAIN
        return self._add(EXCLUSIVE, bodies)

    def _add(self, kind: int, bodies: list[list[int]]) -> int:
        self._nodes.append((kind, bodies))
        self._subtracts.append(
            kind == COMPLEMENT or any(self._subtracts[node] for body in bodies for node in body)
        )
        return len(self._nodes) - 1

    def _output_node(self, atom: int) -> int:
        return CERTAIN if self._rules.certain[atom] else int(_run(self._of_literal(atom)))

    # ------------------------------------------------------------ numbers of literals

    def _negation(self, literal: int) -> int:
        if literal < 0:
            return literal - self._M if -1 - literal < self._M else literal + self._M
        return literal + self._M if literal < self._M else literal - self._M

    def _atom_of(self, literal: int) -> int:
        """The literal without its negation."""
        given = -1 - literal if literal < 0 else literal
        return literal if given < self._M else self._negation(literal)

    def _bodies_of(self, atom: int) -> tuple[Body, ...]:
        return self._rules.bodies.get(atom, ((atom,),))

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


def _offsets(sizes: Iterable[int]) -> Indices:
    return np.concatenate(([0], np.cumsum(list(sizes), dtype=np.int64))).astype(np.int32)
