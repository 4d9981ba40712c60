"""Shortcuts: wrong concepts that explain the labels as well as the right ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, product
from math import inf, perm, prod
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import real_number, whole_number, wrong
from latentgamma.errors import ArgumentError, DataError
from latentgamma.layer.groups import UNNAMED, Group, GroupsOfAtoms, read_groups, refuse_overlap
from latentgamma.logic.closures import closures
from latentgamma.program.facts import Mask
from latentgamma.program.program import Program, require_program

# ---- Counts the assignments that satisfy all constraints
# A concept mapping says what a network takes each value of an input for. It agrees with an example
# if the program gives the same outputs for the predicted values as for the true ones. So it is an
# assignment: one variable per value, one constraint per example. The identity is the true mapping;
# any other that agrees with all examples is a shortcut.
#
# Components that share no variable are counted separately and multiplied. Values of a variable that
# every constraint treats alike, such as the even digits where only parities count, are one value of
# the search, which stands for all of them.


@dataclass(frozen=True)
class Constraint:
    """The variables of one example, and the tuples of their values that it allows, with their costs.

    A cost is the log-loss of the label minus that of the true values: 0 where labels are certain.
    """

    variables: tuple[int, ...]
    allowed: Mapping[tuple[int, ...], float]


@dataclass(frozen=True)
class Solutions:
    """How many assignments satisfy all constraints, a few of them, and how those differ from the truth.

    `count` is exact where `exact` is true, otherwise an upper bound. `differences` are the smallest
    sets of variables in which an assignment differs from the truth, for each component; None where
    they were not found within the budget.
    """

    count: int
    exact: bool
    some: tuple[tuple[int, ...], ...]
    differences: tuple[frozenset[int], ...] | None


class _BudgetError(Exception):
    """The search visited more nodes than it may."""


#: A total cost may exceed the slack by this much, for rounding.
_ROUNDING = 1e-9


def solve(
    sizes: Sequence[int],
    truth: Sequence[int],
    constraints: Sequence[Constraint],
    *,
    slack: float = 0.0,
    some: int = 10,
    budget: int = 2_000_000,
) -> Solutions:
    """Return how many assignments satisfy all constraints with a sum of costs of at most `slack`.

    Variable v has `sizes[v]` values. At most `some` assignments other than the truth are returned;
    `budget` is the number of nodes that the search may visit.
    """
    merged: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    for constraint in constraints:
        before = merged.get(constraint.variables)
        merged[constraint.variables] = {
            row: cost + (before[row] if before else 0.0)
            for row, cost in constraint.allowed.items()
            if before is None or row in before
        }
    own = [
        (nodes, [(v, t) for v, t in merged.items() if v[0] in nodes])
        for nodes in _connected(len(sizes), merged)
    ]
    least = [sum(min(rows.values(), default=0.0) for _, rows in one) for _, one in own]
    # What a component may cost, if all others cost as little as they can.
    parts = [
        _Component(nodes, sizes, truth, one, slack + least[n] - sum(least) + _ROUNDING, budget)
        for n, (nodes, one) in enumerate(own)
    ]
    exact = all(part.exact for part in parts)
    differences = [d for part in parts for d in part.differences(slack + _ROUNDING)]
    return Solutions(
        _count(parts, slack + _ROUNDING) if exact else prod(part.count for part in parts),
        exact,
        tuple(islice(_others(parts, list(truth), slack + _ROUNDING, some), some)),
        tuple(differences) if exact else None,
    )


def _count(parts: Sequence[_Component], slack: float) -> int:
    """Return how many choices of one solution of each component cost at most the slack."""
    totals = Counter({0.0: 1})
    for part in parts:
        after: Counter[float] = Counter()
        for (cost, number), (more, times) in product(totals.items(), part.costs.items()):
            after[round(cost + more, 9)] += number * times
        totals = after
    return sum(number for cost, number in totals.items() if cost <= slack)


def _connected(count: int, links: Iterable[tuple[int, ...]]) -> list[list[int]]:
    """Return the variables in components such that no link has variables of two components."""
    part_of = {variable: [variable] for variable in range(count)}
    for variables in links:
        parts = {id(part_of[v]): part_of[v] for v in variables}
        joined = sorted(v for part in parts.values() for v in part)
        part_of.update(dict.fromkeys(joined, joined))
    return list({id(part): part for part in part_of.values()}.values())


def _others(
    parts: Sequence[_Component], truth: list[int], slack: float, most: int
) -> Iterator[tuple[int, ...]]:
    """Yield assignments other than the truth: first those that differ in the fewest components.

    At least `most` of them, or all, as far as few wrong solutions of each component make them.
    """
    wrong = [[(part, *s) for s in islice(part.wrong(), most)] for part in parts]
    for size in range(1, len(parts) + 1):
        for some in combinations(filter(None, wrong), size):
            for choice in product(*some):
                if sum(cost for _, _, cost in choice) > slack:
                    continue
                assignment = list(truth)
                for part, solution, _ in choice:
                    for variable, value in zip(part.variables, solution, strict=True):
                        assignment[variable] = value
                yield tuple(assignment)


_Rows: TypeAlias = "list[list[tuple[int, ...]]]"


class _Component:
    """The solutions of the variables that constraints connect."""

    def __init__(
        self,
        variables: list[int],
        sizes: Sequence[int],
        truth: Sequence[int],
        constraints: Sequence[tuple[tuple[int, ...], Mapping[tuple[int, ...], float]]],
        slack: float,
        budget: int,
    ) -> None:
        self.variables = variables
        self.truth = tuple(truth[v] for v in variables)
        self._left = budget
        self._slack = slack
        place = {v: i for i, v in enumerate(variables)}
        local = [(tuple(place[v] for v in vs), rows) for vs, rows in constraints]
        self._alike = _alike([sizes[v] for v in variables], self.truth, local)
        self._constraints = [
            (places, {row: cost for row, cost in rows.items() if self._stands(places, row)})
            for places, rows in local
        ]
        self._solutions: list[tuple[int, ...]] = []
        rows = [list(costs) for _, costs in self._constraints]
        domains = [set(alike) for alike in self._alike]
        try:
            self._search(*self._narrow(domains, rows))
            self.exact, self.count = True, sum(map(self._number, self._solutions))
            #: How many solutions have each cost.
            self.costs: Counter[float] = Counter()
            for solution in self._solutions:
                self.costs[self._cost(solution)] += self._number(solution)
        except _BudgetError:
            self.exact = False
            self.count = prod(
                sum(len(alike[value]) for value in domain)
                for alike, domain in zip(self._alike, self._narrow(domains, rows)[0], strict=True)
            )

    def _stands(self, places: tuple[int, ...], row: tuple[int, ...]) -> bool:
        """Return whether every value of a row stands for those like it."""
        return all(value in self._alike[i] for i, value in zip(places, row, strict=True))

    def _number(self, solution: tuple[int, ...]) -> int:
        """Return how many solutions one stands for."""
        return prod(len(alike[v]) for alike, v in zip(self._alike, solution, strict=True))

    def _cost(self, solution: tuple[int, ...]) -> float:
        return sum(costs[tuple(solution[i] for i in at)] for at, costs in self._constraints)

    def wrong(self) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield the solutions other than the truth, and their costs."""
        for solution in self._solutions:
            cost = self._cost(solution)
            values = (alike[v] for alike, v in zip(self._alike, solution, strict=True))
            yield from ((found, cost) for found in product(*values) if found != self.truth)

    def _narrow(self, domains: list[set[int]], rows: _Rows) -> tuple[list[set[int]], _Rows]:
        """Return the domains and rows without values that some constraint does not support.

        The domains are empty where no rows are left within the slack.
        """
        domains, rows = [set(domain) for domain in domains], list(rows)
        least = [-inf] * len(rows)  # the least cost of each constraint
        changed = True
        while changed:
            changed = False
            spare = self._slack - sum(least)
            for n, (places, costs) in enumerate(self._constraints):
                self._left -= 1
                rows[n] = [
                    row
                    for row in rows[n]
                    if costs[row] - least[n] <= spare
                    and all(value in domains[i] for i, value in zip(places, row, strict=True))
                ]
                if not rows[n]:
                    return [set() for _ in domains], rows
                lowest = min(map(costs.__getitem__, rows[n]))
                changed |= lowest > max(least[n], 0.0)
                least[n] = lowest
                for column, i in enumerate(places):
                    supported = {row[column] for row in rows[n]}
                    if not domains[i] <= supported:
                        domains[i] &= supported
                        changed = True
        return domains, rows

    def _search(self, domains: list[set[int]], rows: _Rows) -> None:
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
            self._search(*self._narrow(narrowed, rows))

    def differences(self, slack: float) -> list[frozenset[int]]:
        """Return the smallest sets of variables in which a solution differs from the truth.

        Only solutions within the slack count: if two wrong ones of different components cost too
        much alone, they do so together.
        """
        wrong = {
            frozenset(i for i, (a, b) in enumerate(zip(found, self.truth, strict=True)) if a != b)
            for found in self._solutions
            if found != self.truth and self._cost(found) <= slack
        }
        # The true value may be replaced by one like it, whatever the other values are.
        wrong |= {
            frozenset((i,))
            for i, (alike, value) in enumerate(zip(self._alike, self.truth, strict=True))
            if len(alike.get(value, ())) > 1 and self.truth in self._solutions
        }
        smallest: list[frozenset[int]] = []
        for difference in sorted(wrong, key=len):
            if not any(other <= difference for other in smallest):
                smallest.append(difference)
        return [frozenset(self.variables[i] for i in difference) for difference in smallest]


def _alike(
    sizes: Sequence[int],
    truth: Sequence[int],
    constraints: Sequence[tuple[tuple[int, ...], Mapping[tuple[int, ...], float]]],
) -> list[dict[int, tuple[int, ...]]]:
    """Return, for each variable, the values that stand for others, and all that each stands for.

    Values are alike if exchanging them changes no constraint. The true value stands for those like
    it.
    """
    uses: list[list[set[tuple[int, tuple[int, ...], float]]]] = [
        [set() for _ in range(size)] for size in sizes
    ]
    for t, (places, rows) in enumerate(constraints):
        for row, cost in rows.items():
            for column, i in enumerate(places):
                uses[i][row[column]].add((t, row[:column] + row[column + 1 :], cost))
    found = []
    for used, true in zip(uses, truth, strict=True):
        kinds: dict[frozenset[tuple[int, tuple[int, ...], float]], list[int]] = {}
        for value in range(len(used)):
            kinds.setdefault(frozenset(used[value]), []).append(value)
        found.append({true if true in kind else kind[0]: tuple(kind) for kind in kinds.values()})
    return found


def fewest(
    sets: Collection[frozenset[int]], choices: Sequence[frozenset[int]], budget: int
) -> tuple[int, ...] | None:
    """Return the positions of the fewest choices such that each set has an element of one of them.

    >>> fewest([frozenset({1, 2}), frozenset({2, 3})], [frozenset({1, 3}), frozenset({2})], 100)
    (0,)

    None where there are none, or the search would take more than `budget` steps.
    """
    hits = [frozenset(n for n, choice in enumerate(choices) if choice & one) for one in sets]
    if not all(hits):
        return None
    visited = 0

    def search(
        chosen: tuple[int, ...], left: list[frozenset[int]], more: int
    ) -> tuple[int, ...] | None:
        nonlocal visited
        visited += 1 + len(left)
        if visited > budget:
            raise _BudgetError
        if not left:
            return chosen
        most = max(Counter(n for hit in left for n in hit).values())
        if len(left) > more * most:  # one choice hits no more than `most` of them
            return None
        for n in min(left, key=len):
            found = search((*chosen, n), [hit for hit in left if n not in hit], more - 1)
            if found is not None:
                return found
        return None

    try:
        for size in range(len(hits) + 1):
            found = search((), hits, size)
            if found is not None:
                return tuple(sorted(found))
    except _BudgetError:
        pass
    return None


# ---- The concept mappings that agree with all labels

#: True values of the inputs of N examples, or predicted ones: numbers of categories, or booleans.
Values: TypeAlias = "npt.ArrayLike | Mapping[str, npt.ArrayLike]"
#: For each input, what each value is taken for: `mapping["digit"][3]` for a true 3.
ConceptMapping: TypeAlias = "dict[str, tuple[int, ...]]"

# Worlds that one example may have, over all its values: they are closed in one call.
_MOST_TUPLES = 1 << 20
# Worlds of a program that are closed before its examples are looked at.
_FEW_TUPLES = 1 << 12
# Values of one input: more are taken for a mistake.
_MOST_VALUES = 1 << 20


@dataclass(frozen=True)
class Shortcuts:
    """The concept mappings that agree with every label.

    >>> import latentgamma as lg
    >>> program = lg.parse("same :- a(0), b(0). same :- a(1), b(1).")
    >>> digits = lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]])
    >>> found = shortcuts(program, digits, "same", [[0, 0], [0, 1]])
    >>> found.count, found.some, found.labels, found.examples
    (2, ({'': (1, 0)},), (('', 0),), (0,))

    Attributes:
        count: How many mappings agree, the true one included; an upper bound unless `exact`.
        exact: Whether `count` is the exact number.
        some: A few wrong mappings that agree.
        labels: The fewest values that leave only the true mapping once they are labelled, as
            pairs of input and value; None where they were not found.
        examples: The fewest examples that do so once all their values are labelled, as numbers of
            rows of `examples`; None where they were not found, or no examples suffice.
        partitions: With `rules="any"`, how many mappings there are up to renaming the concepts.
        names: The atom of each value of a `Categorical` with one axis, by input and value.
    """

    count: int
    exact: bool
    some: tuple[ConceptMapping, ...]
    labels: tuple[tuple[str, int], ...] | None
    examples: tuple[int, ...] | None
    partitions: int | None = None
    names: Mapping[tuple[str, int], str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        number = f"{self.count:,}" if self.exact else f"at most {self.count:,}"
        one = self.count == 1
        lines = [
            f"{number} concept {'mapping agrees' if one else 'mappings agree'} with all labels"
        ]
        if self.exact and one:
            alone = ", if each input is read on its own" * (self.labels is not None)
            return f"{lines[0]}: only the true one{alone}"
        if self.partitions is not None:
            alone = ": the labels determine the concepts up to renaming" * (self.partitions == 1)
            lines[0] += f", {self.partitions:,} up to renaming{alone}"
        for mapping in self.some[:5]:
            changes = [
                f"{self.names.get((name, value), value)} as {self.names.get((name, seen), seen)}"
                for name in mapping
                for value, seen in enumerate(mapping[name])
                if value != seen
            ]
            lines.append("  for example " + ", ".join(changes))
        if self.labels is not None:
            named = ", ".join(self.names.get(v, f"{v[0]} {v[1]}".strip()) for v in self.labels)
            lines.append(f"labels of values that rule out the others: {named}")
        if self.examples is not None:
            rows = ", ".join(map(str, self.examples[:10])) + ", …" * (len(self.examples) > 10)
            lines.append(f"labels of examples that do so ({len(self.examples):,}): {rows}")
        return "\n".join(lines)


def concept_mapping(truth: Values, predicted: Values) -> ConceptMapping:
    """Return what each true value is predicted as most often.

    >>> concept_mapping([0, 0, 1, 1, 1], [1, 1, 0, 0, 1])
    {'': (1, 0)}

    Args:
        truth: The true values, an array of whole numbers from 0 on, or one for each input.
        predicted: What a network predicts, in the same form.

    Returns:
        For each input, the prediction for each true value; −1 for one that does not occur.

    Raises:
        DataError: The two do not fit together.
    """
    true_values, predicted_values = _as_mapping(truth), _as_mapping(predicted)
    found = {}
    for name, values in true_values.items():
        if name not in predicted_values:
            raise DataError(f"there are no predicted values for {name!r}")
        flat = _numbers(values, "the true values").ravel()
        seen = _numbers(predicted_values[name], "the predicted values").ravel()
        if flat.shape != seen.shape:
            raise DataError(f"{len(flat)} true values and {len(seen)} predicted ones")
        for part in (flat, seen):
            if (part < 0).any() or (part != np.floor(part)).any():
                raise DataError("values are whole numbers from 0 on")
        most = max(flat.max(initial=0), seen.max(initial=0))
        if most >= _MOST_VALUES:
            raise DataError(f"values are numbers of categories, but one of them is {most:.6g}")
        mapping = np.full(int(flat.max(initial=-1)) + 1, -1)
        pairs, counts = np.unique(np.stack((flat, seen)), axis=1, return_counts=True)
        # Of several predictions for a value the last one is kept, which is the most frequent.
        value, prediction = pairs[:, np.argsort(-counts, kind="stable")[::-1]].astype(np.int64)
        mapping[value] = prediction
        found[name] = tuple(mapping.tolist())
    return found


def shortcuts(
    program: Program,
    inputs: GroupsOfAtoms,
    outputs: GroupsOfAtoms,
    examples: Values,
    *,
    labels: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None = None,
    slack: float = 0.0,
    rules: Literal["given", "any"] | Sequence[Program] = "given",
    joint: bool = False,
    some: int = 10,
    budget: int = 2_000_000,
) -> Shortcuts:
    """Return how many concept mappings agree with the labels of all examples.

    A network that predicts the inputs is trained on the outputs alone. A concept mapping gives the
    value that it predicts for each true value of an input; all positions of one named input are
    read by the same network. A mapping agrees with an example if the program derives the same
    outputs from the predicted values as from the true ones. A value that is in no example may be
    taken for any value, and all of these mappings are counted.

    >>> import latentgamma as lg
    >>> program = lg.parse("same :- a(0), b(0). same :- a(1), b(1).")
    >>> digits = lg.Categorical([["a(0)", "a(1)"], ["b(0)", "b(1)"]])
    >>> shortcuts(program, digits, "same", [[0, 0]]).count  # 0 as 0 or as 1, and so for 1
    4
    >>> pairs = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> print(shortcuts(program, digits, "same", pairs))
    2 concept mappings agree with all labels
      for example 0 as 1, 1 as 0
    labels of values that rule out the others: 0
    labels of examples that do so (1): 0

    A network that sees all inputs of an example at once may take each of the four pairs for any of
    two. What it learns of one example says nothing about another: each has to be labelled.

    >>> found = shortcuts(program, digits, "same", pairs, joint=True)
    >>> found.count, found.examples
    (16, (0, 1, 2, 3))

    Args:
        program: The rules.
        inputs: The atoms that a network predicts, as in `Layer`.
        outputs: The atoms that are labelled, as in `Layer`.
        examples: The true values: for each input an array of shape (N, ...), of category numbers
            for `Categorical` atoms (without their last axis), of booleans for others.
        labels: Probabilities of the outputs where labels are uncertain, in the shapes of
            `Layer`'s outputs. A mapping then agrees if the log-loss of all labels is at most that of
            the true values plus `slack`. By default the labels are what the program derives.
        slack: In nats, for uncertain labels.
        rules: `"given"`: those of the program. `"any"`: rules are learned too, and any will do: a
            mapping agrees if some function of the predicted values gives all labels. Or other
            programs with the same atoms: pairs of a program and a mapping are counted.
        joint: Whether one network sees all inputs of an example at once.
        some: How many wrong mappings are returned.
        budget: How many nodes the search may visit before it returns a bound.

    Returns:
        The number of mappings, some wrong ones, and the fewest labels that rule them all out.

    Raises:
        DataError: The examples do not fit the inputs, or an example has too many mappings.
        ArgumentError: An option is out of its range, or two do not go together.
    """
    require_program(program, "shortcuts")
    for what, number in (("some", some), ("budget", budget)):
        whole_number(what, number)
    real_number("slack", slack, "a number from 0 on", lambda x: 0 <= x < inf)
    programs = [program]
    if isinstance(rules, Sequence) and not isinstance(rules, str):
        programs = [require_program(other, "shortcuts") for other in rules]
        if any(other.atoms != program.atoms for other in programs):
            raise ArgumentError("rules are programs with the atoms of the first one, in its order")
    elif not isinstance(rules, str) or rules not in ("given", "any"):
        raise wrong("rules", '"given", "any" or a list of programs', rules)
    if (labels is not None) + (rules != "given") + bool(joint) > 1:
        raise ArgumentError("of labels=, rules= and joint=, only one can be given")
    if slack and labels is None:
        raise ArgumentError("slack is for labels=, the probabilities of the outputs")
    groups = read_groups(program, inputs, "inputs")
    refuse_overlap(program, groups, ())
    read = read_groups(program, outputs, "outputs")
    task = _Task(program, groups, read, _values(groups, examples))
    if joint:
        return _joint_shortcuts(task)
    if rules == "any":
        return _with_any_rules(task, some, budget)
    losses = None if labels is None else _log_losses(read, labels, len(task.values))
    found = [
        solve(
            [size for size in task.sizes for _ in range(size)],
            [value for size in task.sizes for value in range(size)],
            task.constraints(other, losses),
            slack=slack,
            some=some,
            budget=budget,
        )
        for other in programs
    ]
    exact = all(one.exact for one in found)
    count = sum(one.count for one in found)
    wrong_mappings = [assignment for one in found for assignment in one.some][:some]
    chosen_values = chosen_rows = None
    if len(found) == 1 and found[0].differences is not None:
        differences = found[0].differences
        chosen_values = fewest(
            differences, [frozenset((v,)) for v in range(int(task.first[-1]))], budget
        )
        rows = [frozenset(task.variables(row)) for row in task.rows]
        chosen_rows = fewest(differences, rows, budget)
    return Shortcuts(
        count,
        exact,
        tuple(task.mapping(assignment) for assignment in wrong_mappings),
        None if chosen_values is None else tuple(task.name(v) for v in chosen_values),
        None if chosen_rows is None else tuple(sorted(int(task.at[n]) for n in chosen_rows)),
        names=task.atom_names(),
    )


class _Task:
    """Examples of a program: variables are the values of the inputs, one after another."""

    def __init__(
        self,
        program: Program,
        groups: Sequence[Group],
        outputs: Sequence[Group],
        values: npt.NDArray[np.int64],
    ) -> None:
        self.program, self.groups = program, groups
        self.outputs = np.concatenate([group.atoms for group in outputs])
        self._output_groups = outputs
        self.values = values  # (N, positions)
        self.rows, self.at, self.row_of = np.unique(
            values, axis=0, return_index=True, return_inverse=True
        )
        self.sizes = [group.shape[-1] if group.categorical else 2 for group in groups]
        self.first = np.concatenate(([0], np.cumsum(self.sizes)))
        self.owner = [g for g, group in enumerate(groups) for _ in range(positions_of(group))]
        self.derived = self.outputs_of(program)(self.rows)  # (rows, O)

    def outputs_of(self, program: Program) -> Callable[[npt.NDArray[np.int64]], Mask]:
        """Return the function from values to the outputs that they derive. (n, positions) -> (n, O).

        All combinations of values are closed at once where these are few.
        """

        def close(values: npt.NDArray[np.int64]) -> Mask:
            return closures(program, worlds_of(program.M, self.groups, values))[:, self.outputs]

        domains = [self.sizes[g] for g in self.owner]
        if prod(domains) > _FEW_TUPLES:
            return close
        table = close(np.array(list(product(*map(range, domains))), np.int64))
        return lambda values: table[np.ravel_multi_index(tuple(values.T), domains)]

    def _exclusive(self, derived: Mask) -> Mask:
        """Return whether exactly one atom of each `Categorical` output is true. (n, O) -> (n,)."""
        right, start = np.ones(len(derived), np.bool_), 0
        for group in self._output_groups:
            part = derived[:, start : start + len(group.atoms)]
            if group.categorical:
                rows = part.reshape(len(part), -1, group.shape[-1])
                right &= (rows.sum(-1) == 1).all(1)
            start += len(group.atoms)
        return right

    def variables(self, row: npt.NDArray[np.int64]) -> list[int]:
        """Return the variables of one example, one for each position."""
        return [int(self.first[g] + value) for g, value in zip(self.owner, row, strict=True)]

    def name(self, variable: int) -> tuple[str, int]:
        """Return the input and the value of a variable."""
        g = int(np.searchsorted(self.first, variable, "right")) - 1
        return self.groups[g].name, int(variable - self.first[g])

    def atom_names(self) -> dict[tuple[str, int], str]:
        """Return the atom of each value where a value is one atom."""
        return {
            (group.name, value): self.program.atoms[atom]
            for group in self.groups
            if group.categorical and len(group.shape) == 1
            for value, atom in enumerate(group.atoms.tolist())
        }

    def mapping(self, assignment: Sequence[int]) -> ConceptMapping:
        """Return an assignment as a concept mapping."""
        return {
            group.name: tuple(assignment[self.first[g] : self.first[g + 1]])
            for g, group in enumerate(self.groups)
        }

    def constraints(
        self, program: Program, losses: npt.NDArray[np.float64] | None
    ) -> list[Constraint]:
        """Return what each example allows under the rules of a program.

        `losses` (N, O, 2) are log-losses of each output being false and true; None where labels are
        certain.
        """
        outputs_of = self.outputs_of(program)
        return [
            self._constraint(
                outputs_of, row, label, None if losses is None else losses[self.row_of == n]
            )
            for n, (row, label) in enumerate(zip(self.rows, self.derived, strict=True))
        ]

    def _constraint(
        self,
        outputs_of: Callable[[npt.NDArray[np.int64]], Mask],
        row: npt.NDArray[np.int64],
        label: Mask,
        losses: npt.NDArray[np.float64] | None,
    ) -> Constraint:
        of_position = self.variables(row)
        variables = sorted(set(of_position))
        place = [variables.index(v) for v in of_position]
        domains = [self.sizes[int(np.searchsorted(self.first, v, "right")) - 1] for v in variables]
        refuse_many(domains, "an example has {} combinations of values")
        tuples = np.array(list(product(*map(range, domains))), np.int64)
        derived = outputs_of(tuples[:, place])  # (tuples, O)
        if losses is None:
            costs = np.where((derived == label).all(1), 0.0, inf)
        else:
            total = losses.sum(0)  # (O, 2)
            columns = np.arange(len(label))
            costs = total[columns, derived.astype(int)].sum(1)
            costs[~self._exclusive(derived)] = inf
            truth = total[columns, label.astype(int)].sum()
            if truth == inf or not self._exclusive(label[None]).all():
                raise DataError(
                    f"the labels give the outputs of the true values {row.tolist()} probability 0"
                )
            costs -= truth
        allowed = {
            tuple(values): float(cost)
            for values, cost in zip(tuples.tolist(), costs, strict=True)
            if cost < inf
        }
        return Constraint(tuple(variables), allowed)


def _joint_shortcuts(task: _Task) -> Shortcuts:
    """Return the mappings of each example to examples with the same label, independently."""
    domains = [task.sizes[g] for g in task.owner]
    refuse_many(domains, "the inputs have {} combinations of values")
    worlds = np.array(list(product(*map(range, domains))), np.int64)
    derived = task.outputs_of(task.program)(worlds)
    kinds, counts = np.unique(derived, axis=0, return_counts=True)
    number = {row.tobytes(): int(n) for row, n in zip(kinds, counts, strict=True)}
    alike = [number[row.tobytes()] for row in task.derived]
    several = [int(task.at[n]) for n, count in enumerate(alike) if count > 1]
    return Shortcuts(prod(alike), True, (), None, tuple(sorted(several)))


def _with_any_rules(task: _Task, some: int, budget: int) -> Shortcuts:
    """Return the mappings under which some function of the predicted values gives all labels.

    Such a mapping is a partition of the values of each input together with a concept for each
    block; only the partition matters to whether it agrees. Partitions are searched value by value.
    """
    examples = [
        (task.variables(row), label.tobytes())
        for row, label in zip(task.rows, task.derived, strict=True)
    ]
    total = int(task.first[-1])
    ends: list[list[tuple[list[int], bytes]]] = [[] for _ in range(total)]
    for variables, label in examples:  # checked once their last value has a block
        ends[max(variables)].append((variables, label))
    count, partitions, visited = 0, 0, 0
    found: list[tuple[int, ...]] = []
    blocks: list[int] = []  # of each value so far, the first value of its block

    def extend(seen: dict[tuple[int, ...], bytes]) -> None:
        nonlocal count, partitions, visited
        visited += 1
        if visited > budget:
            raise _BudgetError
        v = len(blocks)
        if v == total:
            partitions += 1
            count += prod(
                perm(size, len(set(blocks[start : start + size])))
                for start, size in zip(task.first, task.sizes, strict=False)
            )
            if len(found) < some and blocks != list(range(total)):
                found.append(
                    tuple(block - task.first[g] for block, g in zip(blocks, owner, strict=True))
                )
            return
        start = int(task.first[owner[v]])
        for block in (*sorted(set(blocks[start:])), v):
            blocks.append(block)
            more = dict(seen)
            if all(
                more.setdefault(tuple(blocks[u] for u in variables), label) == label
                for variables, label in ends[v]
            ):
                extend(more)
            blocks.pop()

    owner = [g for g, size in enumerate(task.sizes) for _ in range(size)]
    exact = True
    try:
        extend({})
    except _BudgetError:
        exact, partitions = False, 0
        count = prod(size**size for size in task.sizes)
    return Shortcuts(
        count,
        exact,
        tuple(task.mapping([int(x) for x in blocks]) for blocks in found),
        None,
        None,
        partitions if exact else None,
        task.atom_names(),
    )


def _log_losses(outputs: Sequence[Group], labels: Values, count: int) -> npt.NDArray[np.float64]:
    """Return the log-loss of each output being false and true, of each example. (N, O, 2).

    Of a `Categorical` output the one true atom counts.
    """
    given = _as_mapping(labels)
    losses = []
    for group in outputs:
        if group.name not in given:
            raise DataError(f"labels has no probabilities for {group.title}")
        values = _numbers(given[group.name], f"the labels of {group.title}").astype(np.float64)
        if values.shape != (count, *group.shape):
            expected = ", ".join(map(str, (count, *group.shape)))
            raise DataError(
                f"the labels of {group.title} have the shape ({expected}), not {values.shape}"
            )
        if not ((values >= 0) & (values <= 1)).all():
            raise DataError(f"the labels of {group.title} are probabilities from 0 to 1")
        if group.categorical and np.abs(values.sum(-1) - 1).max(initial=0) > 1e-6:
            raise DataError(f"the labels of {group.title} sum to 1 along the last axis")
        with np.errstate(divide="ignore"):
            true = -np.log(values).reshape(count, -1)
            false = (
                np.zeros_like(true) if group.categorical else -np.log1p(-values).reshape(count, -1)
            )
        losses.append(np.stack((false, true), -1))
    for name in given:
        if name not in [group.name for group in outputs]:
            raise DataError(f"labels has probabilities for {name!r}, which is not an output")
    return np.concatenate(losses, axis=1)


def worlds_of(M: int, groups: Sequence[Group], values: npt.NDArray[np.int64]) -> Mask:
    """Return the fact sets of the values of all positions. (n, positions) -> (n, M)."""
    facts = np.zeros((len(values), M), np.bool_)
    rows = np.arange(len(values))
    column = 0
    for group in groups:
        for atoms in group.atoms.reshape(positions_of(group), -1):  # categories, or one atom
            value = values[:, column]
            if group.categorical:
                facts[rows, atoms[value]] = True
            else:
                facts[:, atoms[0]] = value == 1
            column += 1
    return facts


def positions_of(group: Group) -> int:
    """Return how many values a group of inputs has."""
    return len(group.atoms) // (group.shape[-1] if group.categorical else 1)


def refuse_many(domains: Sequence[int], what: str) -> None:
    """Raise a DataError if there are too many combinations of values to try them all."""
    total = prod(domains)
    if total > _MOST_TUPLES:
        raise DataError(
            f"{what.format(f'{total:,}')}, more than {_MOST_TUPLES:,}: shortcuts can be counted for "
            f"examples of few positions"
        )


def _values(groups: Sequence[Group], examples: Values) -> npt.NDArray[np.int64]:
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
        columns.append(whole.reshape(len(values), positions_of(group)))
    for name in given:
        if name not in [group.name for group in groups]:
            raise DataError(f"examples has values for {name!r}, which is not an input")
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
