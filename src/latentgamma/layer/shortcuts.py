"""Other readings of the inputs that explain the labels as well as the right one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import whole_number
from latentgamma.errors import DataError
from latentgamma.layer.groups import UNNAMED, Group, GroupsOfAtoms, read_groups, refuse_overlap
from latentgamma.logic.closures import closures
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program, require_program

# ---- Counts the readings of the inputs that agree with every label
# A reading maps each value of an input to the value that a network takes it for. It agrees with
# an example if the program gives the same outputs for what was read as for what is there. The
# true reading maps every value to itself; any other one that agrees with all examples is a
# shortcut: the labels cannot tell it from the truth.
#
# This is a constraint problem with one variable per value and one table of allowed tuples per
# kind of example. Parts that share no variable are counted apart and multiplied. Values of a variable
# that every table treats alike, such as the even digits where only parities count, are one value of
# the search, which stands for all of them.


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
    """Return the variables in parts such that no table has variables of two parts."""
    part_of = {variable: [variable] for variable in range(count)}
    for variables in tables:
        parts = {id(part_of[v]): part_of[v] for v in variables}
        joined = sorted(v for part in parts.values() for v in part)
        part_of.update(dict.fromkeys(joined, joined))
    return list({id(part): part for part in part_of.values()}.values())


def _others(parts: Sequence[_Part], truth: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield assignments other than the truth: first those that differ in the fewest parts.

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
        """Return whether every value of a row stands for those like it."""
        return all(value in self._alike[i] for i, value in zip(places, row, strict=True))

    def _number(self, solution: tuple[int, ...]) -> int:
        """Return how many solutions one stands for."""
        return prod(len(alike[v]) for alike, v in zip(self._alike, solution, strict=True))

    def wrong(self) -> Iterator[tuple[int, ...]]:
        """Yield the solutions other than the truth."""
        for solution in self._solutions:
            values = (alike[v] for alike, v in zip(self._alike, solution, strict=True))
            yield from (found for found in product(*values) if found != self.truth)

    def _narrow(self, domains: list[set[int]]) -> list[set[int]]:
        """Return the domains without values that some table does not support."""
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
        """Return the fewest variables that, once known, leave the truth alone."""
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
    """Return, for each variable, the values that stand for others, and all that each stands for.

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


# ---- Shortcuts: wrong readings of the inputs that the labels cannot tell from the right one

#: The true values of an input for N examples: numbers of categories, or booleans.
Truth: TypeAlias = "npt.ArrayLike | Mapping[str, npt.ArrayLike]"
#: For each input, what each of its values is read as: `reading["digit"][3]` for a true 3.
ValueReading: TypeAlias = "dict[str, tuple[int, ...]]"

# Worlds that one example may have, over all its values: they are closed in one call.
_MOST_TUPLES = 1 << 20
# Values of one input: more are taken for a mistake.
_MOST_VALUES = 1 << 20


@dataclass(frozen=True)
class Shortcuts:
    """The readings of the inputs that agree with every label.

    >>> import latentgamma as lg
    >>> program = lg.parse("same :- a(0), b(0). same :- a(1), b(1).")
    >>> digits = lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]])
    >>> found = shortcuts(program, digits, "same", [[0, 0], [0, 1]])
    >>> found.count, found.some
    (2, ({'': (1, 0)},))

    Attributes:
        count: How many readings agree, the true one included; an upper bound unless `exact`.
        exact: Whether `count` is the exact number.
        some: A few wrong readings that agree.
        labels: The fewest values that leave only the true reading once they are labelled, as
            pairs of input and value; None where they were not found.
    """

    count: int
    exact: bool
    some: tuple[ValueReading, ...]
    labels: tuple[tuple[str, int], ...] | None

    def taken(self, truth: Truth, read: Truth) -> ValueReading:
        """Return the reading that a network uses: what each true value is most often read as.

        Args:
            truth: The true values, as in `shortcuts`.
            read: What the network read, in the same form.

        Returns:
            For each input, the value that each true value is read as; −1 for one that does not occur.

        Raises:
            DataError: The two do not fit together.
        """
        true_values, read_values = _as_mapping(truth), _as_mapping(read)
        found = {}
        for name, values in true_values.items():
            if name not in read_values:
                raise DataError(f"what was read has no values for {name!r}")
            flat = _numbers(values, "the true values").ravel()
            seen = _numbers(read_values[name], "the values that were read").ravel()
            if flat.shape != seen.shape:
                raise DataError(f"{len(flat)} true values and {len(seen)} that were read")
            for part in (flat, seen):
                if (part < 0).any() or (part != np.floor(part)).any():
                    raise DataError("values are whole numbers from 0 on")
            most = max(flat.max(initial=0), seen.max(initial=0))
            if most >= _MOST_VALUES:
                raise DataError(f"values are numbers of categories, but one of them is {most:.6g}")
            reading, times = [-1] * (int(most) + 1), [0] * (int(most) + 1)
            pairs, counts = np.unique(np.stack((flat, seen)), axis=1, return_counts=True)
            for (value, as_what), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
                if count > times[int(value)]:
                    reading[int(value)], times[int(value)] = int(as_what), count
            found[name] = tuple(reading)
        return found

    def __str__(self) -> str:
        number = f"{self.count:,}" if self.exact else f"at most {self.count:,}"
        lines = [
            f"{number} {'reading agrees' if self.count == 1 else 'readings agree'} with all labels"
        ]
        if self.exact and self.count == 1:
            return lines[0] + ": only the true one, if each input is read on its own"
        for reading in self.some[:5]:
            changes = [
                f"{value} as {seen}"
                for name in reading
                for value, seen in enumerate(reading[name])
                if value != seen
            ]
            lines.append("  for example " + ", ".join(changes))
        if self.labels is not None:
            named = ", ".join(f"{name} {value}".strip() for name, value in self.labels)
            lines.append(f"labels that rule out the others: {named}")
        return "\n".join(lines)


def shortcuts(
    program: Program,
    inputs: GroupsOfAtoms,
    outputs: GroupsOfAtoms,
    examples: Truth,
    *,
    some: int = 10,
    budget: int = 2_000_000,
) -> Shortcuts:
    """Return how many ways of reading the inputs agree with the labels of all examples.

    A network that reads the inputs is trained on the outputs only. A reading maps each true value
    of an input to the value the network takes it for; all positions of one named input are read
    by the same network. A reading agrees with an example if the program derives the same outputs
    from what was read as from the true values. So each value is read on its own: a network that
    sees all inputs at once may find other ways to right outputs, which are not counted here.

    >>> import latentgamma as lg
    >>> program = lg.parse("same :- a(0), b(0). same :- a(1), b(1).")
    >>> digits = lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]])
    >>> print(shortcuts(program, digits, "same", [[0, 0], [0, 1], [1, 0], [1, 1]]))
    2 readings agree with all labels
      for example 0 as 1, 1 as 0
    labels that rule out the others: 0

    Args:
        program: The rules.
        inputs: The atoms that are read, as in `Layer`.
        outputs: The atoms that are labelled, as in `Layer`.
        examples: The true values: for each input an array of shape (N, ...), of category numbers
            for `Categorical` atoms (without their last axis), of booleans for others.
        some: How many wrong readings are returned.
        budget: How many nodes the search may visit before it returns a bound.

    Returns:
        The number of readings, some wrong ones, and the fewest labels that rule them all out.

    Raises:
        DataError: The examples do not fit the inputs, or an example has too many readings.
        ArgumentError: `some` or `budget` is not a whole number from 0 on.
    """
    require_program(program, "shortcuts")
    for what, number in (("some", some), ("budget", budget)):
        whole_number(what, number)
    groups = read_groups(program, inputs, "inputs")
    refuse_overlap(program, groups, ())
    read = np.concatenate([group.atoms for group in read_groups(program, outputs, "outputs")])
    sizes = [group.shape[-1] if group.categorical else 2 for group in groups]
    first = np.concatenate(([0], np.cumsum(sizes)))
    values = _values(groups, examples)  # (N, positions) of all groups
    owner = [g for g, group in enumerate(groups) for _ in range(_positions(group))]
    constraints = [
        _constraint(program, groups, owner, sizes, first, row, read)
        for row in np.unique(values, axis=0)
    ]
    truth = [value for size in sizes for value in range(size)]
    variable_sizes = [size for size in sizes for _ in range(size)]
    result = count_readings(variable_sizes, truth, constraints, some=some, budget=budget)

    def reading(assignment: Sequence[int]) -> ValueReading:
        return {
            group.name: tuple(assignment[first[g] : first[g + 1]]) for g, group in enumerate(groups)
        }

    def label(variable: int) -> tuple[str, int]:
        g = int(np.searchsorted(first, variable, "right")) - 1
        return groups[g].name, int(variable - first[g])

    return Shortcuts(
        result.count,
        result.exact,
        tuple(reading(assignment) for assignment in result.some),
        None if result.labels is None else tuple(label(v) for v in result.labels),
    )


def _constraint(
    program: Program,
    groups: Sequence[Group],
    owner: Sequence[int],
    sizes: Sequence[int],
    first: npt.NDArray[np.int64],
    row: npt.NDArray[np.int64],
    read: npt.NDArray[np.int64],
) -> Constraint:
    """Return the tuples of readings of the values in one example that give its outputs."""
    variables = sorted({int(first[g] + value) for g, value in zip(owner, row, strict=True)})
    place = {v: n for n, v in enumerate(variables)}
    domains = [sizes[int(np.searchsorted(first, v, "right")) - 1] for v in variables]
    total = int(np.prod(domains, dtype=object))
    if total > _MOST_TUPLES:
        raise DataError(
            f"an example has {total:,} readings, more than {_MOST_TUPLES:,}: shortcuts can be "
            f"counted for examples of few positions"
        )
    tuples = list(product(*map(range, domains)))
    readings = [
        [choice[place[int(first[g] + value)]] for g, value in zip(owner, row, strict=True)]
        for choice in tuples
    ]
    worlds = _worlds(program.M, groups, np.array([*readings, row.tolist()], np.int64))
    derived = closures(program, worlds)[:, read]
    agrees = (derived[:-1] == derived[-1]).all(1)
    allowed = frozenset(t for t, fits in zip(tuples, agrees, strict=True) if fits)
    return Constraint(tuple(variables), allowed)


def _worlds(M: int, groups: Sequence[Group], values: npt.NDArray[np.int64]) -> Mask:
    """Return the fact sets of the values of all positions."""
    facts = np.zeros((len(values), M), np.bool_)
    rows = np.arange(len(values))
    column = 0
    for group in groups:
        table = group.atoms.reshape(_positions(group), -1)  # (positions, categories or 1)
        for atoms in table:
            value = values[:, column]
            if group.categorical:
                facts[rows, atoms[value]] = True
            else:
                facts[:, atoms[0]] = value == 1
            column += 1
    return facts


def _positions(group: Group) -> int:
    return len(group.atoms) // (group.shape[-1] if group.categorical else 1)


def _values(groups: Sequence[Group], examples: Truth) -> npt.NDArray[np.int64]:
    """Return the true values, one row per example and one column per position."""
    given = _as_mapping(examples)
    columns = []
    for group in groups:
        if group.name not in given:
            raise DataError(f"examples has no values for {group.title}")
        values = _numbers(given[group.name], f"the examples of {group.title}")
        shape = group.shape[:-1] if group.categorical else group.shape
        if values.ndim != 1 + len(shape) or values.shape[1:] != shape:
            expected = ", ".join(["N", *map(str, shape)])
            raise DataError(
                f"the examples of {group.title} have the shape ({expected}), not {values.shape}"
            )
        size = group.shape[-1] if group.categorical else 2
        whole = np.nan_to_num(values).astype(np.int64)
        if values.size and ((whole != values).any() or whole.min() < 0 or whole.max() >= size):
            raise DataError(f"the examples of {group.title} are whole numbers from 0 to {size - 1}")
        columns.append(whole.reshape(len(values), _positions(group)))
    for name in given:
        if name not in [group.name for group in groups]:
            raise DataError(f"examples has values for {name!r}, which is no input")
    if len({len(column) for column in columns}) != 1:
        raise DataError("the inputs have different numbers of examples")
    return np.concatenate(columns, axis=1)


def _as_mapping(values: Any) -> Mapping[str, npt.ArrayLike]:
    return values if isinstance(values, Mapping) else {UNNAMED: values}


def _numbers(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{what} are an array in which all rows have one length") from None
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} are an array of numbers, not {values!r:.60}")
    return array
