"""Proves that one sum-product pass over a program gives exact probabilities.

A pass visits the derived atoms in an order in which bodies come first:

    body        product of the values of its literals
    atom        sum over its bodies, or 1 - product of (1 - body)

It is exact where three conditions hold for every atom that an output depends on:

1. The rules have no cycle.
2. The literals of a body depend on disjoint sets of variables, so they are independent.
3. The bodies of one atom exclude each other in pairs (then the sum is the probability of their
   disjunction), or depend on disjoint sets of variables (then the second formula is).

Two bodies exclude each other if one literal of the first and one of the second do. Two literals
exclude each other if one is the negation of the other, if they are different atoms of one group,
or, by induction over the order, if they are atoms and every body of the first excludes every body
of the second. A negation depends on the same variables as its atom. All of this is sufficient:
where the check succeeds the pass is exact, where it fails it gives the reason and another method
is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from latentgamma._probability.pass_circuit import SumProduct, build_circuit
from latentgamma._probability.relevant_rules import Body, RelevantRules
from latentgamma._probability.variables import Variables
from latentgamma._program.program import Program

# Pairs of bodies that the check compares before it gives up.
_MOST_PAIRS = 2_000_000


class _RefusedError(Exception):
    """Carries a reason out of the recursion."""


def sum_product(
    program: Program,
    variables: Variables,
    rules: RelevantRules,
    outputs: Sequence[int],
    *,
    complements: bool = False,
) -> tuple[SumProduct, dict[int, str]]:
    """Return the arrays of an exact pass, and why it leaves out some of the outputs.

    Args:
        program: The program.
        variables: Its random variables.
        rules: The rules that the outputs depend on.
        outputs: The atoms whose probability is asked for.
        complements: Whether to compute the negations of the outputs too.

    Returns:
        The pass for the outputs for which it was proved exact, and a reason for each other one.
    """
    check = _Check(program, variables, rules)
    refused: dict[int, str] = {}
    independent: dict[int, bool] = {}
    for atom in check.order(outputs):
        try:
            independent[atom] = check.combine(atom, refused)
        except _RefusedError as refusal:
            refused[atom] = str(refusal)
        except RecursionError:
            refused[atom] = "the check for exclusive atoms is nested too deeply"
    kept = [atom for atom in outputs if atom not in refused]
    circuit = build_circuit(
        variables,
        rules,
        independent,
        kept,
        check.support,
        check.proves_exclusive,
        complements=complements,
    )
    return circuit, {atom: refused[atom] for atom in outputs if atom in refused}


class _Check:
    """The check of one program, with what it has already proved."""

    def __init__(self, program: Program, variables: Variables, rules: RelevantRules) -> None:
        self._program = program
        self._variables = variables
        self._rules = rules
        self._bodies = rules.bodies
        self._supports: dict[int, int] = {}  # the variables of an atom, as bits
        self._exclusive: dict[tuple[int, int], bool] = {}
        self._pairs = 0

    def order(self, outputs: Iterable[int]) -> list[int]:
        """The derived atoms that the outputs depend on, in depth-first postorder.

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

    def combine(self, atom: int, refused: dict[int, str]) -> bool:
        """Whether the bodies of an atom are independent (True) or exclusive (False)."""
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
        return [self._rules.atom_of(i) for body in self._bodies.get(atom, ()) for i in body]

    def support(self, i: int) -> int:
        """The variables of a literal, as bits."""
        i = self._rules.atom_of(i)
        if i in self._supports:
            return self._supports[i]
        return 1 << self._variables.owner[-1 - i if i < 0 else i]

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
        """Two bodies with different labels that are not proved exclusive, or None."""
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
        """The groups of which every body has an atom."""
        common = {self._group_of(i) for i in bodies[0][1]} - {-1}
        for _, body in bodies[1:]:
            common &= {self._group_of(i) for i in body}
            if not common:
                break
        return sorted(common)

    def _group_of(self, i: int) -> int:
        """The group of an input, -1 for any other literal."""
        if i in self._bodies or self._rules.is_negated(i):
            return -1
        variable = self._variables.owner[-1 - i if i < 0 else i]
        return variable if variable >= len(self._variables.facts) else -1

    def _bodies_exclude(self, first: Body, second: Body) -> bool:
        self._pairs += 1
        if self._pairs > _MOST_PAIRS:
            raise _RefusedError("the check for exclusive rules compares too many pairs of bodies")
        return any(self._literals_exclude(a, b) for a in first for b in second)

    def _literals_exclude(self, a: int, b: int) -> bool:
        negated = [self._rules.is_negated(i) for i in (a, b)]
        if any(negated):
            # An input that rules derive as well implies its atom.
            first, second = (self._rules.atom_of(i) for i in (a, b))
            same = (first if first >= 0 else -1 - first) == (second if second >= 0 else -1 - second)
            return same and not all(negated)
        return self._atoms_exclude(a, b)

    def proves_exclusive(self, a: int, b: int) -> bool:
        """Whether two atoms are proved to exclude each other."""
        try:
            return self._atoms_exclude(a, b)
        except (_RefusedError, RecursionError):
            return False

    def _atoms_exclude(self, a: int, b: int) -> bool:
        if a == b:
            return False
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
        """The variables of an atom; every bit for one whose turn has not come."""
        return self._supports.get(i, -1) if i in self._bodies else self.support(i)

    def _name(self, i: int) -> str:
        return repr(self._program.atoms[-1 - i if i < 0 else i])

    def _text(self, atom: int, body: Body) -> str:
        names = []
        for i in body:
            name = self._program.atoms[-1 - i if i < 0 else self._rules.atom_of(i)]
            names.append(f"not {name}" if self._rules.is_negated(i) else name)
        return f"{self._program.atoms[atom]} :- {', '.join(names)}."
