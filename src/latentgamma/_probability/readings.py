"""Counts the readings of the inputs that agree with every label.

A reading maps each value of an input to the value that a network takes it for. It agrees with
an example if the program gives the same outputs for what was read as for what is there. The
true reading maps every value to itself; any other one that agrees with all examples is a
shortcut: the labels cannot tell it from the truth.

This is a constraint problem with one variable per value and one table of allowed tuples per
kind of example. Parts that share no variable are counted apart and multiplied. Values of a variable
that every table treats alike, such as the even digits where only parities count, are one value of
the search, which stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from math import prod


@dataclass(frozen=True)
class Constraint:
    """The variables of one kind of example, and the tuples of values that give its label."""

    variables: tuple[int, ...]
    allowed: frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class ReadingCount:
    """How many readings agree, a few of them, and the fewest values that rule out the others.

    `count` is exact where `exact` is true, otherwise an upper bound. `labels` are variables: once
    their values are known to be read rightly, only the true reading is left. It is None where
    that was not found within the budget.
    """

    count: int
    exact: bool
    some: tuple[tuple[int, ...], ...]
    labels: tuple[int, ...] | None


class _BudgetError(Exception):
    """The search visited more nodes than it may."""


def count_readings(
    sizes: Sequence[int],
    truth: Sequence[int],
    constraints: Sequence[Constraint],
    *,
    some: int = 10,
    budget: int = 2_000_000,
) -> ReadingCount:
    """Return how many assignments satisfy all constraints.

    Args:
        sizes: The number of values of each variable.
        truth: The true value of each variable, which satisfies every constraint.
        constraints: The tables of allowed tuples.
        some: How many assignments other than the truth are returned.
        budget: The number of nodes that the search may visit.
    """
    merged: dict[tuple[int, ...], frozenset[tuple[int, ...]]] = {}
    for constraint in constraints:
        key = constraint.variables
        merged[key] = merged.get(key, constraint.allowed) & constraint.allowed
    parts = []
    for nodes in _connected(len(sizes), merged):
        tables = [(v, t) for v, t in merged.items() if v[0] in nodes]
        parts.append(_Part(nodes, sizes, truth, tables, budget))
    exact = all(part.exact for part in parts)
    labels = [part.labels() for part in parts]
    known = None if any(found is None for found in labels) else [v for f in labels for v in f or ()]
    return ReadingCount(
        prod(part.count for part in parts),
        exact,
        tuple(islice(_others(parts, list(truth), some), some)),
        None if known is None else tuple(sorted(known)),
    )


def _connected(count: int, tables: Iterable[tuple[int, ...]]) -> list[list[int]]:
    """The variables in parts such that no table has variables of two parts."""
    part_of = {variable: [variable] for variable in range(count)}
    for variables in tables:
        parts = {id(part_of[v]): part_of[v] for v in variables}
        joined = sorted(v for part in parts.values() for v in part)
        part_of.update(dict.fromkeys(joined, joined))
    return list({id(part): part for part in part_of.values()}.values())


def _others(parts: Sequence[_Part], truth: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """Assignments other than the truth: first those that differ in the fewest parts.

    At least `most` of them, or all.
    """
    wrong = [[(part, s) for s in islice(part.wrong(), most)] for part in parts]
    for size in range(1, len(parts) + 1):
        for some in combinations(filter(None, wrong), size):
            for choice in product(*some):
                assignment = list(truth)
                for part, solution in choice:
                    for variable, value in zip(part.variables, solution, strict=True):
                        assignment[variable] = value
                yield tuple(assignment)


class _Part:
    """The solutions of the variables that constraints connect."""

    def __init__(
        self,
        variables: list[int],
        sizes: Sequence[int],
        truth: Sequence[int],
        tables: list[tuple[tuple[int, ...], frozenset[tuple[int, ...]]]],
        budget: int,
    ) -> None:
        self.variables = variables
        self.truth = tuple(truth[v] for v in variables)
        self._left = budget
        place = {v: i for i, v in enumerate(variables)}
        local = [(tuple(place[v] for v in vs), table) for vs, table in tables]
        self._alike = _alike([sizes[v] for v in variables], self.truth, local)
        self._tables = [
            (places, [row for row in table if self._stands(places, row)]) for places, table in local
        ]
        self._solutions: list[tuple[int, ...]] = []
        domains = [set(alike) for alike in self._alike]
        try:
            self._search(self._narrow(domains))
            self.exact, self.count = True, sum(map(self._number, self._solutions))
        except _BudgetError:
            self.exact = False
            self.count = prod(
                sum(len(alike[value]) for value in domain)
                for alike, domain in zip(self._alike, self._narrow(domains), strict=True)
            )

    def _stands(self, places: tuple[int, ...], row: tuple[int, ...]) -> bool:
        """Whether every value of a row stands for those like it."""
        return all(value in self._alike[i] for i, value in zip(places, row, strict=True))

    def _number(self, solution: tuple[int, ...]) -> int:
        """How many solutions one stands for."""
        return prod(len(alike[v]) for alike, v in zip(self._alike, solution, strict=True))

    def wrong(self) -> Iterator[tuple[int, ...]]:
        """The solutions other than the truth."""
        for solution in self._solutions:
            values = (alike[v] for alike, v in zip(self._alike, solution, strict=True))
            yield from (found for found in product(*values) if found != self.truth)

    def _narrow(self, domains: list[set[int]]) -> list[set[int]]:
        """The domains without values that some table does not support."""
        domains = [set(domain) for domain in domains]
        changed = True
        while changed:
            changed = False
            for places, table in self._tables:
                self._left -= 1
                rows = [
                    row
                    for row in table
                    if all(value in domains[i] for i, value in zip(places, row, strict=True))
                ]
                for column, i in enumerate(places):
                    supported = {row[column] for row in rows}
                    if not domains[i] <= supported:
                        domains[i] &= supported
                        changed = True
        return domains

    def _search(self, domains: list[set[int]]) -> None:
        if self._left < 0:
            raise _BudgetError
        if not all(domains):
            return
        open_variables = [i for i, domain in enumerate(domains) if len(domain) > 1]
        if not open_variables:
            self._solutions.append(tuple(next(iter(domain)) for domain in domains))
            return
        i = min(open_variables, key=lambda i: len(domains[i]))
        for value in sorted(domains[i]):
            narrowed = [set(domain) for domain in domains]
            narrowed[i] = {value}
            self._search(self._narrow(narrowed))

    def labels(self) -> tuple[int, ...] | None:
        """The fewest variables that, once known, leave the truth alone."""
        if not self.exact:
            return None
        wrong = {
            frozenset(
                i for i, (a, b) in enumerate(zip(solution, self.truth, strict=True)) if a != b
            )
            for solution in self._solutions
            if solution != self.truth
        }
        # A value like the true one may be read in its place, whatever the others are read as.
        wrong |= {
            frozenset((i,))
            for i, (alike, value) in enumerate(zip(self._alike, self.truth, strict=True))
            if len(alike[value]) > 1
        }
        minimal = {w for w in wrong if not any(other < w for other in wrong)}
        for size in range(len(self.variables) + 1):
            for picked in combinations(range(len(self.variables)), size):
                if all(w & set(picked) for w in minimal):
                    return tuple(self.variables[i] for i in picked)
        return None


def _alike(
    sizes: Sequence[int],
    truth: Sequence[int],
    tables: Sequence[tuple[tuple[int, ...], frozenset[tuple[int, ...]]]],
) -> list[dict[int, tuple[int, ...]]]:
    """For each variable, the values that stand for others, and all that each stands for.

    Values are alike if exchanging them changes no table. The true value stands for those like it.
    """
    uses: list[list[set[tuple[int, tuple[int, ...]]]]] = [
        [set() for _ in range(size)] for size in sizes
    ]
    for t, (places, table) in enumerate(tables):
        for row in table:
            for column, i in enumerate(places):
                uses[i][row[column]].add((t, row[:column] + row[column + 1 :]))
    found = []
    for used, true in zip(uses, truth, strict=True):
        kinds: dict[frozenset[tuple[int, tuple[int, ...]]], list[int]] = {}
        for value in range(len(used)):
            kinds.setdefault(frozenset(used[value]), []).append(value)
        found.append({true if true in kind else kind[0]: tuple(kind) for kind in kinds.values()})
    return found
