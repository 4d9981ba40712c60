"""Whether one sum-product pass computes the probability exactly, and the circuit it runs on."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from operator import or_
from typing import Any, TypeVar

import numpy as np

from latentgamma.engine.circuit import (
    FALSE,
    INDEPENDENT,
    NOT,
    SUM,
    TRUE,
    UNKNOWN,
    Circuit,
    circuit_of_terms,
    open_rules,
)
from latentgamma.program.facts import Mask
from latentgamma.program.program import Indices, Program

# ---- The random variables of a program: independent facts, and groups of which exactly one is true


@dataclass(frozen=True)
class Variables:
    """Independent facts, and groups of facts of which exactly one is true.

    Variable v < len(facts) is the fact `facts[v]`; the next ones are the groups. A world chooses
    for every fact whether it is true, and one atom of every group.

    >>> variables = Variables((0,), ((1, 2, 3),))
    >>> variables.sizes
    (2, 3)
    """

    facts: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @cached_property
    def atoms(self) -> Indices:
        """The input atoms: the facts, then the atoms of one group after another."""
        flat = [*self.facts, *(atom for group in self.groups for atom in group)]
        return np.array(flat, np.int32)

    @cached_property
    def owner(self) -> dict[int, int]:
        """The variable of each input atom."""
        owner = {atom: v for v, atom in enumerate(self.facts)}
        for v, group in enumerate(self.groups, len(self.facts)):
            owner.update(dict.fromkeys(group, v))
        return owner

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each variable."""
        return (2,) * len(self.facts) + tuple(len(group) for group in self.groups)


# ---- The rules on which the outputs of a program depend, simplified for the inputs it has

Body = tuple[int, ...]
Item = TypeVar("Item")


@dataclass(frozen=True)
class RelevantRules:
    """What is left of a program once everything that cannot matter is removed.

    `bodies` holds, for each derived atom that an output depends on, its distinct rule bodies. A
    literal is i for an atom and `~i` for its negation, as in `Program`. Where rules derive the atom
    of an input as well, M + i is the input, and `(M + i,)` one more body of i.

    Literals that are always true are removed from bodies, and rules that can never fire are
    dropped. `certain` are atoms true in every world: all of them where there is no negation,
    otherwise those that are easily seen to be.
    """

    bodies: dict[int, tuple[Body, ...]]
    certain: Mask
    inputs: tuple[int, ...]

    def input_literal(self, atom: int) -> int:
        """Return the literal of an input, which is not that of its atom if rules derive it too."""
        return atom + len(self.certain) if atom in self.bodies else atom


def atom_of(literal: int) -> int:
    """Return the literal without its negation."""
    return max(literal, ~literal)


def relevant_rules(
    program: Program,
    variables: Variables,
    outputs: Sequence[int],
    true: Sequence[int] = (),
) -> RelevantRules:
    """Return the rules that the outputs depend on, simplified; `true` atoms hold in every world."""
    M = program.M
    fed = np.zeros(M, np.bool_)
    fed[variables.atoms] = True
    simplified = open_rules(program, variables.atoms, outputs, list(true))
    certain = simplified.certain
    rules_of: dict[int, list[list[int]]] = {}
    for head, body in zip(simplified.head.tolist(), simplified.body.to_lists(), strict=True):
        rules_of.setdefault(head, []).append(body)
    found: dict[int, set[Body]] = {}
    stack = [atom for atom in outputs if not certain[atom]]
    inputs: set[int] = set()
    while stack:
        atom = stack.pop()
        if atom in found:
            continue
        if fed[atom] and atom not in rules_of:
            inputs.add(atom)
            continue
        bodies: set[Body] = set()
        for literals in rules_of.get(atom, ()):
            left = set(literals)
            chosen = [i for i in left if i >= 0 and fed[i] and i not in rules_of]
            owners = {variables.owner[i] for i in chosen}
            if len(owners) < len(chosen) or any(~i in left for i in left):  # a contradiction
                continue
            # Another value of the same group says already that this one is false.
            left -= {
                i
                for i in left
                if i < 0 and fed[~i] and ~i not in rules_of and variables.owner[~i] in owners
            }
            bodies.add(tuple(sorted(left)))
        if fed[atom]:
            bodies.add((M + atom,))
            inputs.add(atom)
        found[atom] = bodies
        stack += [atom_of(i) for body in bodies for i in body if i < M]
    return RelevantRules(
        {atom: tuple(sorted(bodies)) for atom, bodies in found.items()},
        certain,
        tuple(sorted(inputs)),
    )


# ---- The arrays of a sum-product pass: what is computed from what, and how
# The negation of a literal is a node of its own, computed without a difference of probabilities:
#
# - of an independent fact: its complement is one more input;
# - of an atom of a group: the sum of the other atoms;
# - of a derived atom: no body of it holds. Bodies that depend on disjoint sets of variables are
#   independent. Otherwise one looks at atoms that exclude each other, such as the values of a group,
#   and that share no variable with the other atoms of these bodies: for each case (one of them is
#   true, or none) its probability times that of no body in this case.
#
# Only where that is not possible, or has too many cases, a negation is one minus a probability.

_OPPOSITE = {TRUE: FALSE, FALSE: TRUE}

# Sets of bodies of which it is computed that none holds, before negations are differences.
_MOST_CASES = 100_000


@dataclass(frozen=True, eq=False)
class SumProduct:
    """An exact pass: its circuit, and which probabilities are the inputs of that."""

    circuit: Circuit
    input_places: Indices  # (inputs,) the place of each input node among the variables' atoms
    input_negated: np.ndarray  # (inputs,) whether it is the complement of that
    complements: Indices  # the nodes of the negations of the outputs, FALSE, TRUE or UNKNOWN
    subtracts: frozenset[int]  # outputs that depend on a node of the kind NOT

    @cached_property
    def negated(self) -> Circuit:
        """The circuit that has the negations as outputs; one that is UNKNOWN is given as FALSE."""
        unknown = self.complements == UNKNOWN
        return replace(self.circuit, outputs=np.where(unknown, FALSE, self.complements))


@dataclass(frozen=True, eq=False)
class WorldTable:
    """Which of some atoms hold in which world of some variables.

    The worlds are in the order of `itertools.product`; the second value of a fact is that it is
    false. The table is computed as a decision diagram: see `_Builder._of_table`.
    """

    variables: tuple[int, ...]
    atoms: tuple[int, ...]
    holds: Mask  # (worlds, atoms)


# What is built recursively is a generator that yields the generators whose results it needs: the
# rules may be nested deeper than calls of Python.
_Building = Generator[Any, Any, Any]


def _run(building: _Building) -> Any:
    """Return the result of a generator that yields others."""
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
    """Yield the results of several generators."""
    results = []
    for building in buildings:
        results.append((yield building))  # noqa: PERF401 (a comprehension cannot yield)
    return results


class _Builder:
    """Nodes by literal."""

    def __init__(self, proof: PassProof) -> None:
        self._variables, self._rules = proof.variables, proof.rules
        self._M = len(proof.rules.certain)
        self._independent = proof.independent
        self._support, self._exclude = proof.support, proof.proves_exclusive
        self._node: dict[int, int] = {}  # of each literal
        self._none: dict[frozenset[Body], int] = {}  # of no body of a set
        # By node, parts before what is made of them: an input atom and whether it is negated, or
        # the kind and the bodies.
        self._nodes: list[tuple[int, bool] | tuple[int, list[list[int]]]] = []
        self._subtracts: list[bool] = []

    def build(
        self, outputs: Sequence[int], tables: Sequence[WorldTable], *, complements: bool
    ) -> SumProduct:
        """Return the pass of these outputs; those that are in a table are read of it."""
        listed: dict[int, tuple[int, int]] = {}
        for table in tables:
            both = self._of_table(table, complements=complements)
            listed.update(zip(table.atoms, both, strict=True))
        found = [listed[atom][0] if atom in listed else self._output_node(atom) for atom in outputs]
        others = [UNKNOWN] * len(found)
        for o, atom in enumerate(outputs if complements else ()):
            if atom in listed:
                others[o] = listed[atom][1]
                continue
            if found[o] >= 0:
                others[o] = _run(self._of_literal(~atom))
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
        """Return the nodes that the outputs and complements depend on, the inputs first."""
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
        circuit, moved = circuit_of_terms(
            len(inputs),
            [
                (kind, [[new[part] for part in term] for term in parts])
                for _, kind, parts in derived
            ],
            [new.get(node, node) for node in outputs],
        )
        return SumProduct(
            circuit,
            np.array([place[atom] for _, atom, _ in inputs], np.int32),
            np.array([negated for _, _, negated in inputs], np.bool_),
            np.array([moved[new[n]] if n in new else n for n in complements], np.int32),
            subtracts,
        )

    # ---- Tables

    def _of_table(self, table: WorldTable, *, complements: bool) -> list[tuple[int, int]]:
        """Return the node of each atom of a table, and that of its negation or UNKNOWN.

        From the last variable to the first: a node for each different choice among the nodes that
        the values of a variable lead to.
        """
        holds = np.concatenate((table.holds, ~table.holds), 1) if complements else table.holds
        nodes = np.where(holds, TRUE, FALSE)  # (worlds of the variables so far, outputs)
        facts = len(self._variables.facts)
        for v in reversed(table.variables):
            atoms = (self._variables.facts[v],) if v < facts else self._variables.groups[v - facts]
            literals = [self._rules.input_literal(atom) for atom in atoms]
            literals += [~literals[0]] if v < facts else []
            values = [_run(self._of_literal(literal)) for literal in literals]
            children = nodes.reshape(-1, len(values), nodes.shape[1]).swapaxes(1, 2)
            rows = children.reshape(-1, len(values))
            place = rows[:, 0] + 2
            for column in rows.T[1:]:  # number the different rows
                key = place * (len(self._nodes) + 2) + column + 2
                _, first, place = np.unique(key, return_index=True, return_inverse=True)
            made = []
            for choice in rows[first].tolist():
                if v < facts and choice[0] == choice[1]:  # p + (1 - p) is one
                    made.append(choice[0])
                    continue
                pairs = [self._product([*pair]) for pair in zip(values, choice, strict=True)]
                made.append(self._sum([pair for pair in pairs if pair is not None]))
            nodes = np.array(made)[place].reshape(children.shape[:2])
        found, count = nodes[0].tolist(), len(table.atoms)
        others = found[count:] or [UNKNOWN] * count
        return list(zip(found[:count], others, strict=True))

    # ---- Literals

    def _of_literal(self, literal: int) -> _Building:
        """Yield the node of a literal, TRUE or FALSE."""
        if literal not in self._node:
            atom = atom_of(literal)
            if atom not in self._rules.bodies:
                self._node[literal] = yield self._of_input(literal)
            elif literal >= 0:
                self._node[literal] = yield self._of_atom(atom)
            else:
                none = yield self._none_of(frozenset(self._rules.bodies[atom]))
                if none == UNKNOWN:
                    node = yield self._of_literal(atom)
                    none = _OPPOSITE[node] if node < 0 else self._add(NOT, [[node]])
                self._node[literal] = none
        return self._node[literal]

    def _of_input(self, literal: int) -> _Building:
        atom, negated = atom_of(literal), literal < 0
        group = self._group(atom)
        if negated and group:
            return (yield self._others(group, {atom}))
        self._nodes.append((atom % self._M, negated))
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
            return FALSE
        if [] in bodies:
            return TRUE
        return self._add(INDEPENDENT if self._independent[atom] else SUM, bodies)

    def _others(self, group: tuple[int, ...], atoms: set[int]) -> _Building:
        """Yield the sum of the values of a group besides some."""
        literals = map(self._rules.input_literal, group)
        nodes = yield _each(self._of_literal(i) for i in literals if i not in atoms)
        return self._sum([[node] for node in nodes])

    # ---- None of several bodies

    def _none_of(self, bodies: frozenset[Body]) -> _Building:
        """Yield the node of the event that no body holds; UNKNOWN where that needs a difference."""
        if not bodies:
            return TRUE
        if () in bodies:
            return FALSE
        if bodies not in self._none:
            if len(self._none) >= _MOST_CASES:
                return UNKNOWN
            parts = self._components(bodies)
            if len(parts) > 1:
                self._none[bodies] = yield self._none_of_each(parts)
            elif len(bodies) == 1 and len(next(iter(bodies))) == 1:
                (((literal,)),) = bodies
                self._none[bodies] = yield self._of_literal(~literal)
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
            rest = self._condition(bodies, atoms, case)
            none = yield self._none_of(rest)
            if none == FALSE:
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
        """Yield the node of the event that none of some exclusive atoms is true."""
        if len(atoms) == 1:
            return (yield self._of_literal(~next(iter(atoms))))
        if atoms.isdisjoint(self._rules.bodies):
            return (yield self._others(self._group(next(iter(atoms))), atoms))
        return (yield self._none_of(frozenset(b for atom in atoms for b in self._bodies_of(atom))))

    def _cases(self, bodies: frozenset[Body]) -> set[int] | None:
        """Return atoms that exclude each other and share no variable with the other atoms."""
        literals = sorted({atom_of(literal) for body in bodies for literal in body})
        found = map(set, _clusters([(self._support(i), i) for i in literals]))

        def cost(atoms: set[int]) -> tuple[bool, int, int]:
            derived = not atoms.isdisjoint(self._rules.bodies)
            uses = sum(any(atom_of(i) in atoms for i in body) for body in bodies)
            return derived, -uses, len(atoms)

        for atoms in sorted(found, key=cost):
            if all(self._exclude(a, b) for a, b in combinations(sorted(atoms), 2)):
                return atoms
        return None

    def _condition(
        self, bodies: frozenset[Body], atoms: set[int], case: int | None
    ) -> frozenset[Body]:
        """Return what is left of the bodies if one of these atoms is true, or none."""
        left = []
        for body in bodies:
            rest = []
            for literal in body:
                atom = atom_of(literal)
                if atom not in atoms:
                    rest.append(literal)
                elif (atom == case) == (atom != literal):
                    break  # false in this case
            else:
                left.append(tuple(rest))
        return frozenset(left)

    def _unfolded(self, bodies: frozenset[Body]) -> frozenset[Body]:
        """Return the bodies with derived atoms replaced by their bodies; empty if there is none."""
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
        """Return the bodies divided into sets that share no variable."""
        supports = [(reduce(or_, map(self._support, body), 0), body) for body in sorted(bodies)]
        return [frozenset(some) for some in _clusters(supports)]

    # ---- Nodes

    def _product(self, nodes: list[int]) -> list[int] | None:
        """Return the body of these nodes; None where one is impossible."""
        return None if FALSE in nodes else [node for node in nodes if node != TRUE]

    def _sum(self, bodies: list[list[int]]) -> int:
        """Return the node of a disjunction of exclusive bodies."""
        if not bodies:
            return FALSE
        if len(bodies) == 1 and len(bodies[0]) <= 1:
            return bodies[0][0] if bodies[0] else TRUE
        return self._add(SUM, bodies)

    def _add(self, kind: int, bodies: list[list[int]]) -> int:
        self._nodes.append((kind, bodies))
        self._subtracts.append(
            kind == NOT or any(self._subtracts[node] for body in bodies for node in body)
        )
        return len(self._nodes) - 1

    def _output_node(self, atom: int) -> int:
        return TRUE if self._rules.certain[atom] else int(_run(self._of_literal(atom)))

    def _bodies_of(self, atom: int) -> tuple[Body, ...]:
        return self._rules.bodies.get(atom, ((atom,),))

    def _group(self, atom: int) -> tuple[int, ...]:
        """Return the atoms of the group of an input; none for an independent fact."""
        facts = len(self._variables.facts)
        owner = self._variables.owner[atom % self._M]
        return self._variables.groups[owner - facts] if owner >= facts else ()


def _clusters(items: Iterable[tuple[int, Item]]) -> list[list[Item]]:
    """Return items, which come with their variables as bits, in sets that share no variable."""
    found: list[tuple[int, list[Item]]] = []
    for support, item in items:
        some = [item]
        for cluster in [cluster for cluster in found if cluster[0] & support]:
            found.remove(cluster)
            support, some = support | cluster[0], some + cluster[1]
        found.append((support, some))
    return [some for _, some in found]


# ---- Proves that one sum-product pass over a program gives exact probabilities
# A pass visits the derived atoms in an order in which bodies come first:
#
#     body        product of the values of its literals
#     atom        sum over its bodies, or 1 - product of (1 - body)
#
# It is exact where three conditions hold for every atom that an output depends on:
#
# 1. The rules have no cycle.
# 2. The literals of a body depend on disjoint sets of variables, so they are independent.
# 3. The bodies of one atom exclude each other in pairs (then the sum is the probability of their
#    disjunction), or depend on disjoint sets of variables (then the second formula is).
#
# Two bodies exclude each other if one literal of the first and one of the second do. Two literals
# exclude each other if one is the negation of the other, if they are different atoms of one group,
# or, by induction over the order, if they are atoms and every body of the first excludes every body
# of the second. A negation depends on the same variables as its atom. All of this is sufficient:
# where the check succeeds the pass is exact, where it fails it gives the reason and another method
# is used.

# Pairs of bodies that the check compares before it gives up.
_MOST_PAIRS = 2_000_000


class _RefusedError(Exception):
    """Carries a reason out of the recursion."""


class PassProof:
    """Which of some outputs one pass computes exactly, and the passes for them.

    Args:
        program: The program.
        variables: Its random variables.
        rules: The rules that the outputs depend on.
        outputs: The atoms whose probability is asked for.
        chain: Whether the rules are known to be a chain (`chain.py`). Then nothing is checked: in
            each world at most one atom of a layer is true, and at most one of its bodies.

    Attributes:
        refused: Why a pass leaves out an output, for each that it does.
        independent: Whether the bodies of an atom are independent; otherwise they are exclusive.
    """

    def __init__(
        self,
        program: Program,
        variables: Variables,
        rules: RelevantRules,
        outputs: Sequence[int],
        *,
        chain: bool = False,
    ) -> None:
        self._program = program
        self.variables, self.rules = variables, rules
        self._bodies = rules.bodies
        self._supports: dict[int, int] = {}  # the variables of an atom, as bits
        self._exclusive: dict[tuple[int, int], bool] = {}
        self._layer: dict[int, int] = {}  # of each atom of a chain
        self._pairs = 0
        refused: dict[int, str] = {}
        self.independent: dict[int, bool] = {}
        for atom in self._order(outputs):
            if chain:
                parts = self._parts(atom)
                self._layer[atom] = 1 + max((self._layer.get(i, 0) for i in parts), default=0)
                self._supports[atom] = reduce(or_, map(self.support, parts), 0)
                self.independent[atom] = False
                continue
            try:
                self.independent[atom] = self._combine(atom, refused)
            except _RefusedError as refusal:
                refused[atom] = str(refusal)
            except RecursionError:
                refused[atom] = "the check for exclusive atoms is nested too deeply"
        self.refused = {atom: refused[atom] for atom in outputs if atom in refused}
        self._built: dict[Hashable, SumProduct] = {}

    def build(
        self,
        outputs: Sequence[int],
        tables: Sequence[WorldTable] = (),
        *,
        complements: bool = False,
    ) -> SumProduct:
        """Return an exact pass for outputs that are not refused, or are in a table.

        With `complements` it computes the negations of the outputs too.
        """
        key = (*outputs, *tables, complements)
        if key not in self._built:
            self._built[key] = _Builder(self).build(outputs, tables, complements=complements)
        return self._built[key]

    def _order(self, outputs: Iterable[int]) -> list[int]:
        """Return the derived atoms that the outputs depend on, in depth-first postorder.

        Where there is no cycle the atoms of a body come before its head. An atom on a cycle has
        a part that comes later, or depends on an atom that has one.
        """
        order: list[int] = []
        entered: set[int] = set()
        for output in outputs:
            if output in entered or output not in self._bodies:
                continue
            entered.add(output)
            stack = [(output, iter(self._parts(output)))]
            while stack:
                atom, parts = stack[-1]
                for part in parts:
                    if part in self._bodies and part not in entered:
                        entered.add(part)
                        stack.append((part, iter(self._parts(part))))
                        break
                else:
                    order.append(atom)
                    stack.pop()
        return order

    def _combine(self, atom: int, refused: dict[int, str]) -> bool:
        """Return whether the bodies of an atom are independent (True) or exclusive (False)."""
        for part in self._parts(atom):
            if part in refused:
                raise _RefusedError(refused[part])
            if part in self._bodies and part not in self._supports:
                raise _RefusedError(f"{self._name(part)} depends on itself")
        bodies = self._bodies[atom]
        supports = [self._body_support(atom, body) for body in bodies]
        union, disjoint = 0, True
        for support in supports:
            disjoint = disjoint and not union & support
            union |= support
        self._supports[atom] = union
        if len(bodies) <= 1:
            return False
        overlap = self._overlap(list(enumerate(bodies)))
        if overlap is None:
            return False
        if disjoint:
            return True
        first, second = (self._text(atom, body) for body in overlap)
        raise _RefusedError(
            f"these rules can fire together and are not independent: {first} {second}"
        )

    def _parts(self, atom: int) -> list[int]:
        return [atom_of(i) for body in self._bodies.get(atom, ()) for i in body]

    def support(self, i: int) -> int:
        """Return the variables of a literal, as bits."""
        i = atom_of(i)
        if i in self._supports:
            return self._supports[i]
        return 1 << self.variables.owner[i % self._program.M]

    def _body_support(self, atom: int, body: Body) -> int:
        union = 0
        for i in body:
            support = self.support(i)
            if union & support:
                raise _RefusedError(
                    f"the body of {self._text(atom, body)} has atoms that depend on the same input"
                )
            union |= support
        return union

    def _overlap(self, bodies: list[tuple[int, Body]]) -> tuple[Body, Body] | None:
        """Return two bodies with different labels that are not proved exclusive, or None."""
        if len({label for label, _ in bodies}) <= 1:
            return None
        for variable in self._common_variables(bodies):
            parts: dict[int, list[tuple[int, Body]]] = {}
            for label, body in bodies:
                value = next(i for i in body if self._group_of(i) == variable)
                parts.setdefault(value, []).append((label, body))
            if len(parts) > 1:
                for part in parts.values():
                    overlap = self._overlap(part)
                    if overlap is not None:
                        return overlap
                return None
        for (a, first), (b, second) in combinations(bodies, 2):
            if a != b and not self._bodies_exclude(first, second):
                return first, second
        return None

    def _common_variables(self, bodies: list[tuple[int, Body]]) -> list[int]:
        """Return the groups of which every body has an atom."""
        common = {self._group_of(i) for i in bodies[0][1]} - {-1}
        for _, body in bodies[1:]:
            common &= {self._group_of(i) for i in body}
            if not common:
                break
        return sorted(common)

    def _group_of(self, i: int) -> int:
        """Return the group of an input, -1 for any other literal."""
        if i in self._bodies or i < 0:
            return -1
        variable = self.variables.owner[i % self._program.M]
        return variable if variable >= len(self.variables.facts) else -1

    def _bodies_exclude(self, first: Body, second: Body) -> bool:
        self._pairs += 1
        if self._pairs > _MOST_PAIRS:
            raise _RefusedError("the check for exclusive rules compares too many pairs of bodies")
        return any(self._literals_exclude(a, b) for a in first for b in second)

    def _literals_exclude(self, a: int, b: int) -> bool:
        if a >= 0 and b >= 0:
            return self._atoms_exclude(a, b)
        # An input that rules derive as well implies its atom.
        same = (atom_of(a) - atom_of(b)) % self._program.M == 0
        return same and (a >= 0 or b >= 0)

    def proves_exclusive(self, a: int, b: int) -> bool:
        """Return whether two atoms are proved to exclude each other."""
        try:
            return self._atoms_exclude(a, b)
        except (_RefusedError, RecursionError):
            return False

    def _atoms_exclude(self, a: int, b: int) -> bool:
        if a == b:
            return False
        if a in self._layer and b in self._layer:
            return self._layer[a] == self._layer[b]
        key = (a, b) if a < b else (b, a)
        known = self._exclusive.get(key)
        if known is None:
            if a not in self._bodies and b not in self._bodies:
                known = self._group_of(a) >= 0 and self._group_of(a) == self._group_of(b)
            elif not self._reach(a) & self._reach(b):
                known = False
            else:
                labelled = [(0, body) for body in self._bodies.get(a, ((a,),))]
                labelled += [(1, body) for body in self._bodies.get(b, ((b,),))]
                known = self._overlap(labelled) is None
            self._exclusive[key] = known
        return known

    def _reach(self, i: int) -> int:
        """Return the variables of an atom; every bit for one whose turn has not come."""
        return self._supports.get(i, -1) if i in self._bodies else self.support(i)

    def _name(self, i: int) -> str:
        return repr(self._program.atoms[i % self._program.M])

    def _text(self, atom: int, body: Body) -> str:
        names = []
        for i in sorted(body, key=lambda i: (i < 0, atom_of(i))):
            name = self._program.atoms[atom_of(i) % self._program.M]
            names.append(f"not {name}" if i < 0 else name)
        return f"{self._program.atoms[atom]} :- {', '.join(names)}."
