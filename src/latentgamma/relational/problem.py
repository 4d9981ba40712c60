"""A learning problem with variables: relations, types, examples."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._arguments import one_of
from latentgamma._checkpoint import digest_of
from latentgamma._text import listing, quantity
from latentgamma.datalog.clingo_names import PREDICATE, decode_text
from latentgamma.datalog.grounding import ground
from latentgamma.datalog.tables import cells_of, constant, table_rows
from latentgamma.errors import DataError
from latentgamma.logic.closure import closure
from latentgamma.program.names import quote_functor

# ---- Relations as integer arrays, with the indexes that joins need

Ints: TypeAlias = "npt.NDArray[np.int64]"
Truth: TypeAlias = "npt.NDArray[np.uint8]"
Test: TypeAlias = "Callable[..., npt.NDArray[np.bool_]]"

#: The truth of a row: a known fact, or a tuple that may be true (it has no label).
FACT, POSSIBLE = 2, 1
#: Tables of keys up to this size are looked up directly, larger ones by binary search.
_DIRECT = 4_000_000


@dataclass(frozen=True)
class Index:
    """The rows of a relation, grouped by the values of some of its arguments."""

    keys: Ints  # the distinct keys, sorted
    starts: Ints  # where the group of each key starts
    counts: Ints  # the sizes of the groups
    values: Ints  # the other arguments of each row, in the order of the groups
    truth: Truth  # of each row, in the order of the groups
    best: Truth  # the highest truth in each group
    # the number of the group of each possible key, or -1; None for large tables
    direct: npt.NDArray[np.int32] | None

    def groups(self, keys: Ints) -> Ints:
        """Return the number of the group of each key, or -1."""
        if self.direct is not None:
            return self.direct[keys].astype(np.int64)
        if not len(self.keys):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)

    def highest(self, keys: Ints) -> Truth:
        """Return the highest truth of a row with each key; 0 where there is none."""
        found = self.groups(keys)
        if not len(self.keys):
            return np.zeros(len(keys), np.uint8)
        return np.where(found >= 0, self.best[found], 0).astype(np.uint8)


class Relation:
    """A predicate with its distinct rows; by default each is a fact, and no argument is an input.

    `constants` is their number, `bits` the cost of a definition that is learned as well. In place of
    rows, `test` computes the truth from the values of all arguments. A relation without a name, such as
    a comparison, has a `form`; see `atom_form`.
    """

    def __init__(
        self,
        name: str,
        rows: Ints,
        constants: int,
        types: Sequence[int],
        truth: Truth | None = None,
        bits: float = 0.0,
        inputs: Sequence[bool] | None = None,
        test: Test | None = None,
        form: str = "",
    ) -> None:
        self.name = name
        self.form = form
        self.rows = rows
        self.arity = len(types)
        self.constants = constants
        self.types = tuple(types)
        self.truth = np.full(len(rows), FACT, np.uint8) if truth is None else truth
        self.bits = bits
        self.test = test
        self.inputs = (test is not None,) * self.arity if inputs is None else tuple(inputs)
        self._indexes: dict[tuple[int, ...], Index] = {}

    def holds(self, *columns: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each row of these values is one of the relation's facts."""
        if self.test is not None:
            return self.test(*columns)
        keys = encode(columns, self.constants, len(columns[0]))
        return np.asarray(self.index((-1,) * self.arity).highest(keys) == FACT)

    def index(self, pattern: tuple[int, ...]) -> Index:
        """Return the rows by key: -1 marks an argument of the key, others are new variables.

        Arguments with the same number are the same new variable.
        """
        found = self._indexes.get(pattern)
        if found is None:
            found = self._indexes[pattern] = self._build(pattern)
        return found

    def _build(self, pattern: tuple[int, ...]) -> Index:
        rows, truth = self.rows, self.truth
        first: dict[int, int] = {}
        keep = np.ones(len(rows), bool)
        for place, variable in enumerate(pattern):
            if variable >= 0 and first.setdefault(variable, place) != place:
                keep &= rows[:, place] == rows[:, first[variable]]
        rows, truth = rows[keep], truth[keep]
        bound = [place for place, variable in enumerate(pattern) if variable < 0]
        keys = encode([rows[:, place] for place in bound], self.constants, len(rows))
        order = np.argsort(keys, kind="stable")
        keys, truth = keys[order], truth[order]
        values = rows[order][:, [first[v] for v in sorted(first)]]
        distinct, starts, counts = np.unique(keys, return_index=True, return_counts=True)
        best = np.maximum.reduceat(truth, starts) if len(starts) else truth[:0]
        direct = None
        if self.constants ** len(bound) <= _DIRECT:
            direct = np.full(max(1, self.constants ** len(bound)), -1, np.int32)
            direct[distinct] = np.arange(len(distinct), dtype=np.int32)
        return Index(distinct, starts, counts, values, truth, best, direct)


def atom_form(name: str, arity: int) -> str:
    """Return how rules write an atom, as a format of its arguments.

    >>> atom_form("edge", 2)
    'edge({0},{1})'
    """
    inside = ",".join(f"{{{place}}}" for place in range(arity))
    return f"{_literally(name)}({inside})" if inside else _literally(name)


def _literally(text: str) -> str:
    """Return a text as it stands in a format."""
    return text.replace("{", "{{").replace("}", "}}")


def encode(columns: Sequence[Ints], constants: int, rows: int) -> Ints:
    """Return one number for the values in each row of some columns."""
    if not len(columns):
        return np.zeros(rows, np.int64)
    code = columns[0].astype(np.int64, copy=True)
    for column in columns[1:]:
        code *= constants
        code += column
    return code


def decode(codes: Ints, constants: int, arity: int) -> Ints:
    """Return the rows of these codes, shape (codes, arity)."""
    rows = np.empty((len(codes), arity), np.int64)
    rest = codes.copy()
    for place in range(arity - 1, -1, -1):
        rest, rows[:, place] = np.divmod(rest, max(1, constants))
    return rows


def combinations(choices: Iterable[Sequence[int] | Ints], constants: int) -> Ints:
    """Return the codes of the tuples with one of these values for each argument."""
    grid = np.meshgrid(*choices, indexing="ij")
    return encode([values.ravel() for values in grid], constants, grid[0].size)


@dataclass(frozen=True)
class Bindings:
    """The values of variables: one row for each way in which a body can hold."""

    # the values of each variable; None where the variable has no value yet
    columns: tuple[Ints | None, ...]
    truth: Truth  # the truth of each row
    example: Ints  # the example that each row is about

    def take(self, rows: npt.NDArray[Any]) -> Bindings:
        """Return some of the rows."""
        columns = tuple(column if column is None else column[rows] for column in self.columns)
        return Bindings(columns, self.truth[rows], self.example[rows])


def _pattern(arguments: Sequence[int], table: Bindings) -> tuple[tuple[int, ...], list[int]]:
    """Return the pattern of a literal for `Relation.index`, and its new variables in order."""
    new: list[int] = []
    pattern = []
    for variable in arguments:
        known = variable < len(table.columns) and table.columns[variable] is not None
        if known:
            pattern.append(-1)
            continue
        if variable not in new:
            new.append(variable)
        pattern.append(new.index(variable))
    return tuple(pattern), new


def _keys(relation: Relation, arguments: Sequence[int], table: Bindings, new: list[int]) -> Ints:
    columns: list[Any] = [table.columns[v] for v in arguments if v not in new]
    return encode(columns, relation.constants, len(table.truth))


def literal_truth(relation: Relation, arguments: Sequence[int], table: Bindings) -> Truth:
    """Return, for each row, the truth of the row together with one more literal."""
    if relation.test is not None:
        holds = relation.test(*(table.columns[v] for v in arguments))
        return np.where(holds, table.truth, 0).astype(np.uint8)
    pattern, new = _pattern(arguments, table)
    found = relation.index(pattern).highest(_keys(relation, arguments, table, new))
    return np.minimum(found, table.truth)


def join(
    relation: Relation, arguments: Sequence[int], table: Bindings, most_rows: int
) -> Bindings | None:
    """Return the table with one more literal, or None if it has more than `most_rows` rows."""
    if relation.test is not None:
        return table.take(np.flatnonzero(literal_truth(relation, arguments, table)))
    pattern, new = _pattern(arguments, table)
    index = relation.index(pattern)
    group = index.groups(_keys(relation, arguments, table, new))
    hit = np.flatnonzero(group >= 0)
    group = group[hit]
    if not new:
        kept = table.take(hit)
        return replace(kept, truth=np.minimum(kept.truth, index.best[group]))
    counts = index.counts[group]
    total = int(counts.sum())
    if total > most_rows:
        return None
    source = np.repeat(hit, counts)
    offset = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(index.starts[group], counts) + offset
    found = table.take(source)
    size = max(len(table.columns), max(arguments) + 1)
    columns = [*found.columns, *[None] * (size - len(table.columns))]
    for place, variable in enumerate(new):
        columns[variable] = index.values[at, place]
    return Bindings(tuple(columns), np.minimum(found.truth, index.truth[at]), found.example)


# ---- A learning problem: background facts and labelled examples, as arrays

#: Facts by predicate and arity, each a tuple of cells.
Facts: TypeAlias = "dict[tuple[str, int], list[tuple[str, ...]]]"

#: The tuples of a target are listed up to this number: as possible facts, or for wrong labels.
_MOST_POSSIBLE = 500_000
#: Up to this many tuples, all of them are possible.
_FEW_POSSIBLE = 5_000
_name = re.compile(rf"\s*({PREDICATE})\s*(?:/\s*([0-9]+))?\s*").fullmatch


@dataclass(frozen=True)
class Target:
    """A relation to learn."""

    name: str  # the predicate
    relation: int  # its number among the relations of the problem
    types: tuple[int, ...]  # the type of each argument
    positive: Ints  # the codes of its positive examples, sorted
    # the codes of its negative examples, sorted; None in a closed world, where everything else
    # is negative
    negative: Ints | None
    given: Ints  # the codes of its facts in the background, sorted
    inputs: tuple[bool, ...]  # which arguments need a value first

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.types)

    @property
    def known(self) -> Ints:
        """The codes of the tuples that are listed."""
        parts = (self.positive, self.negative, self.given)
        return np.concatenate([codes for codes in parts if codes is not None])


@dataclass(frozen=True)
class Problem:
    """Background facts and examples."""

    constants: tuple[str, ...]  # the constants, as cells of a table
    # the predicates that are not learned; those without a name are written in another way: with a
    # constant, `not`, or a comparison
    background: tuple[Relation, ...]
    targets: tuple[Target, ...]  # what to learn, numbered after the background
    notes: tuple[str, ...]  # what was assumed about the examples
    # the type whose constants are separate worlds, which rules do not join; or None
    world: int | None = None
    apart: bool = False  # whether numbers of examples were kept from other numbers

    @property
    def predicates(self) -> tuple[Relation | Target, ...]:
        """The predicates, by number."""
        return (*self.background, *self.targets)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the predicates."""
        return tuple(one.name for one in self.predicates)

    @property
    def types(self) -> tuple[tuple[int, ...], ...]:
        """The types of the arguments of each predicate."""
        return tuple(one.types for one in self.predicates)

    @property
    def special(self) -> frozenset[int]:
        """The numbers of the predicates without a name."""
        return frozenset(n for n, relation in enumerate(self.background) if not relation.name)

    @cached_property
    def domains(self) -> dict[int, Ints]:
        """The constants of each type."""
        tables = [(relation.rows, relation.types) for relation in self.background]
        for target in self.targets:
            rows = decode(target.known, len(self.constants), target.arity)
            tables.append((rows, target.types))
        found: dict[int, list[Ints]] = {}
        for rows, types in tables:
            for place, kind in enumerate(types):
                found.setdefault(kind, []).append(rows[:, place])
        return {kind: np.unique(np.concatenate(parts)) for kind, parts in found.items()}

    def tuples(self, target: Target) -> int:
        """Return the number of tuples whose arguments have the target's types."""
        return math.prod(len(self.domains[kind]) for kind in target.types)

    @property
    def labelled(self) -> bool:
        """Whether every tuple of the targets has a label."""
        return all(
            target.negative is None
            or self.label_count(target) + len(target.given) == self.tuples(target)
            for target in self.targets
        )

    @property
    def lists_every_tuple(self) -> bool:
        """Whether the tuples of the targets are few enough to be listed."""
        return all(
            self.relevant(target) is not None or self.tuples(target) <= _MOST_POSSIBLE
            for target in self.targets
        )

    def label_count(self, target: Target) -> int:
        """Return the number of tuples of the target that have a label."""
        if target.negative is None:
            return self.tuples(target) - len(target.given)
        return len(target.positive) + len(target.negative)

    def every_tuple(self, target: Target) -> Ints:
        """Return the codes of all tuples whose arguments have the target's types."""
        return combinations([self.domains[kind] for kind in target.types], len(self.constants))

    def unlabelled(self, target: Target) -> Ints:
        """Return the codes of the tuples without a label that rules may use; none if there are too
        many to list.
        """
        if target.negative is None:
            return target.positive[:0]
        possible = self.relevant(target)
        if possible is None:
            if self.tuples(target) > _MOST_POSSIBLE:
                return target.positive[:0]
            possible = self.every_tuple(target)
        return np.setdiff1d(possible, target.known)

    def relevant(self, target: Target) -> Ints | None:
        """Return the codes of the tuples whose values are reached from an example; None for all.

        With directions, every value in a derivation is reached from the inputs of its head: a fact of
        the background whose inputs are reached reaches its other arguments.
        """
        return self._relevant.get(target.relation)

    @cached_property
    def _relevant(self) -> dict[int, Ints]:
        directed = any(any(one.inputs) for one in self.predicates)
        if not directed or any(target.negative is None for target in self.targets):
            return {}
        n = len(self.constants)
        facts: list[tuple[set[int], set[int]]] = []
        of_input: dict[int, list[int]] = {}
        always: set[int] = set()
        for relation in self.background:
            if not relation.name:
                continue
            given = np.array(relation.inputs, bool)
            if not given.any():
                always.update(relation.rows.ravel().tolist())
                continue
            for row in relation.rows:
                for value in set(row[given].tolist()):
                    of_input.setdefault(value, []).append(len(facts))
                facts.append((set(row[given].tolist()), set(row[~given].tolist())))
        members = {kind: set(values.tolist()) for kind, values in self.domains.items()}
        found = {}
        for target in self.targets:
            if self.tuples(target) <= _FEW_POSSIBLE:
                continue
            codes: list[Ints] = []
            start = [place for place, given in enumerate(target.inputs) if given]
            for row in decode(target.known, n, target.arity)[:, start or slice(None)].tolist():
                reached = {*row, *always}
                waiting = list(reached)
                while waiting:
                    for fact in of_input.get(waiting.pop(), ()):
                        needs, gives = facts[fact]
                        if needs <= reached:
                            waiting += gives - reached
                            reached |= gives
                choices = [sorted(reached & members[kind]) for kind in target.types]
                codes.append(combinations(choices, n))
                if sum(map(len, codes)) > _MOST_POSSIBLE:
                    break
            else:
                found[target.relation] = np.unique(np.concatenate([*codes, target.known]))
        return found

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """The background and the targets; a target's rows are the labels."""
        n = len(self.constants)
        found = list(self.background)
        for target in self.targets:
            codes = np.union1d(target.positive, target.given)
            possible = self.unlabelled(target)
            truth = np.repeat(np.array([FACT, POSSIBLE], np.uint8), [len(codes), len(possible)])
            rows = decode(np.concatenate([codes, possible]), n, target.arity)
            found.append(Relation(target.name, rows, n, target.types, truth, inputs=target.inputs))
        return tuple(found)

    def atom(self, target: Target, code: int) -> str:
        """Return the text of an atom of a target."""
        values = decode(np.array([code]), len(self.constants), target.arity)[0]
        inside = ",".join(constant(self.constants[value]) for value in values)
        return f"{target.name}({inside})" if inside else target.name

    @property
    def digest(self) -> str:
        """A short text that differs for other facts or examples."""
        predicates = [(one.name, one.types, one.inputs) for one in self.predicates]
        forms = [one.form for one in self.background]
        rows = [relation.rows for relation in self.background]
        labels = [a for one in self.targets for a in (one.positive, one.negative, one.given)]
        return digest_of(self.constants, predicates, forms, self.world, *rows, *labels)

    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """Return the background facts as tables for `lg.datalog.ground`."""
        tables = {f"{one.name}/{one.arity}": one.rows for one in self.background if one.name}
        for target in self.targets:
            if len(target.given):
                rows = decode(target.given, len(self.constants), target.arity)
                tables[f"{target.name}/{target.arity}"] = rows
        cells = np.array(self.constants, dtype=object)
        return {key: [tuple(row) for row in cells[rows].tolist()] for key, rows in tables.items()}


@dataclass(frozen=True)
class Language:
    """What rules may use beside the predicates of the background."""

    # the types of the arguments, by predicate; None to guess them
    types: Mapping[str, Sequence[str]] | None = None
    # "in" or "out" for each argument, by predicate
    directions: Mapping[str, Sequence[str]] | None = None
    # the type whose constants are separate worlds; None to find out, False for none
    world: str | bool | None = None
    constants: Literal[True] | tuple[str, ...] = ()  # True, or the constants that rules may name
    negation: bool = False  # whether bodies may hold `not p(X)`
    comparisons: tuple[str, ...] = ()  # which of "!=", "<" and ">=" bodies may hold

    @property
    def options(self) -> list[str]:
        """What is switched on, as it is written in a call."""
        found = []
        if self.constants:
            found.append(
                "constants=True" if self.constants is True else f"constants={list(self.constants)}"
            )
        found += ["negation=True"] * self.negation
        found += [f"comparisons={list(self.comparisons)}"] * bool(self.comparisons)
        return found


def read_problem(
    facts: Facts,
    shown: Facts,
    refused: Facts | None,
    target: Any,
    *,
    noise: bool = False,
    language: Language | None = None,
    apart: bool = True,
) -> Problem:
    """Return the problem of background facts, positive and negative examples.

    Without negative examples everything else is false. `apart` keeps the numbers of examples from other
    numbers, if no types are declared; see `_example_numbers`.

    Raises:
        DataError: they cannot be used, or contradict each other.
    """
    language = language or Language()
    signatures = _targets(_target_names(target), shown, refused)
    notes = []
    if refused is None:
        notes.append(
            "no negative examples were given: everything that is not a positive example counts as "
            "false (closed world)"
        )
    if not facts:
        raise DataError("the background holds no facts")
    for name, arity in signatures:
        if not arity:
            raise DataError(f"{name!r} has no arguments; a rule with variables needs at least one")
    ordered = [s for s in facts if s not in signatures] + signatures
    first_target = len(ordered) - len(signatures)
    number: dict[str, int] = {}
    for group in (facts, shown, refused or {}):
        for rows in group.values():
            for row in rows:
                for cell in row:
                    number.setdefault(cell, len(number))
    if not number and any(arity for _, arity in ordered):
        raise DataError("there are no constants in the background and the examples")
    n = len(number)
    for name, arity in ordered:
        if n**arity >= 2**62:
            raise DataError(f"{name}/{arity} has too many arguments for {n:,} constants")

    def codes(group: Facts, signature: tuple[str, int]) -> Ints:
        rows = [[number[cell] for cell in row] for row in group.get(signature, [])]
        found = np.array(rows, np.int64).reshape(len(rows), signature[1])
        return np.unique(encode(list(found.T), n, len(rows)))

    def table(signature: tuple[str, int], *groups: Facts) -> Ints:
        return np.concatenate([decode(codes(g, signature), n, signature[1]) for g in groups])

    used = [table(s, facts) for s in ordered[:first_target]]
    used += [table(s, facts, shown, refused or {}) for s in signatures]
    declared = by_signature(language.types, "types", ordered)
    directions = by_signature(language.directions, "directions", ordered)
    unknown = [s for s in {**declared, **directions} if s not in ordered]
    if unknown:
        names = listing([f"{name}/{arity}" for name, arity in unknown])
        notes.append(f"there are no facts of {names}, whose types or directions are given")
    inputs = [tuple(way != "out" for way in directions.get(s, ("out",) * s[1])) for s in ordered]
    ids: set[tuple[int, int]] = set()
    if apart and not declared and language.world is not False:
        ids = _example_numbers(used, first_target, tuple(number))
    types, type_names = _types(used, [declared.get(s) for s in ordered], ids)
    if ids:
        notes.append(
            "the numbers of examples are not compared with other numbers (types= says which "
            "arguments are alike)"
        )
    world = _world(language.world, types, type_names, first_target, notes)
    targets = []
    for at, signature in enumerate(signatures, first_target):
        true = codes(shown, signature)
        false = None if refused is None else codes(refused, signature)
        given = codes(facts, signature)
        if false is not None:
            both = np.intersect1d(true, false)
            if len(both) and not noise:
                raise DataError(
                    f"{quantity(len(both), 'example')} of {signature[0]!r} "
                    f"{'is' if len(both) == 1 else 'are'} both positive and negative; correct the "
                    "labels, or pass noise= for wrong ones"
                )
            if len(both):
                notes.append(f"{quantity(len(both), 'example')} with both labels are not used")
                true, false = np.setdiff1d(true, both), np.setdiff1d(false, both)
            false = np.setdiff1d(false, given)
        if not len(true):
            raise DataError(
                f"there are no positive examples of {signature[0]!r}; a rule needs at least one"
            )
        true = np.setdiff1d(true, given)
        targets.append(Target(signature[0], at, types[at], true, false, given, inputs[at]))
    known = [
        Relation(name, rows, n, kinds, inputs=given)
        for (name, _), rows, kinds, given in zip(ordered, used, types, inputs, strict=True)
    ]
    problem = Problem(
        constants=tuple(number),
        background=tuple(known[:first_target]),
        targets=tuple(targets),
        notes=tuple(notes),
        world=world,
        apart=bool(ids),
    )
    special = _special(language, problem)
    return replace(
        problem,
        background=(*problem.background, *special),
        targets=tuple(replace(one, relation=one.relation + len(special)) for one in targets),
    )


def by_signature(
    declared: Any, what: str, known: Sequence[tuple[str, int]] = ()
) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return what is declared for each predicate, which is named alone or with its arity."""
    found = {}
    if declared is not None and not isinstance(declared, Mapping):
        example = ("in", "out") if what == "directions" else ("person", "person")
        raise DataError(f"{what} are given by predicate, such as {{'parent': {example}}}")
    for key, values in (declared or {}).items():
        match = _name(key) if isinstance(key, str) else None
        one = isinstance(values, str) or not isinstance(values, Iterable)
        values = (values,) if one else tuple(values)
        for value in values if what == "directions" else ():
            one_of(f"directions[{key!r}]", value, ("in", "out"))
        if match is None:
            raise DataError(f"a predicate in {what} is written 'path' or 'path/2', not {key!r}")
        arity = len(values) if match[2] is None else int(match[2])
        same_name = [s for s in known if s[0] == match[1]]
        if arity != len(values) or (same_name and (match[1], arity) not in same_name):
            has = same_name[0][1] if same_name else arity
            raise DataError(
                f"{what}[{key!r}] names {quantity(len(values), 'argument')}, but {match[1]} has {has}"
            )
        found[match[1], arity] = tuple(str(value) for value in values)
    return found


def _world(
    asked: str | bool | None,
    types: Sequence[tuple[int, ...]],
    type_names: Sequence[str | None],
    first_target: int,
    notes: list[str],
) -> int | None:
    """Return the type that names worlds: the first argument of targets, and of others that have it."""
    if asked is False:
        return None
    if isinstance(asked, str):
        if asked not in type_names:
            known = listing([repr(name) for name in type_names if name is not None])
            raise DataError(
                f"world is one of the types, which are {known or 'not named'}, not {asked!r}"
            )
        return type_names.index(asked)
    for kind in dict.fromkeys(types[first_target]):
        with_it = [t for t in types[:first_target] if kind in t]
        if (
            type_names[kind] is not None
            and all(t.count(kind) == 1 and t[0] == kind for t in types[first_target:])
            and all(t.count(kind) == 1 and t[0] == kind for t in with_it)
            and any(len(t) > 1 for t in with_it)
        ):
            notes.append(
                f"rules have one variable of type {type_names[kind]!r}: no predicate relates two of them "
                "(world=False to allow more)"
            )
            return kind
    return None


# ---- Constants, negation and comparisons, as predicates that rules write in another way

#: Values of an argument that become constants, pairs of them, and thresholds of a type.
_MOST_CONSTANTS, _MOST_PAIRS, _MOST_CUTS = 20, 64, 12
COMPARISONS = ("!=", "<", ">=")


def _special(language: Language, problem: Problem) -> list[Relation]:
    """Return the predicates that the options add."""
    constants, n = problem.constants, len(problem.constants)
    fixed: list[Relation] = []
    equations: list[Relation] = []
    if language.constants:
        allowed = None
        if language.constants is not True:
            allowed = {c for c, cell in enumerate(constants) if cell in language.constants}
        for relation in problem.background:
            fixed += _with_constants(relation, allowed, constants)
        for kind in dict.fromkeys(kind for target in problem.targets for kind in target.types):
            for value in _constants_of(problem.domains[kind], allowed):
                form = f"{{0}} = {_literally(constant(constants[value]))}"
                rows = np.array([[value]], np.int64)
                equations.append(Relation("", rows, n, (kind,), form=form))
    found = [*fixed, *equations]
    if language.negation:
        found += [_negated(one) for one in (*problem.background, *fixed) if one.arity]
    values = np.array([_number(cell) for cell in constants])
    for kind, domain in problem.domains.items():
        if len(domain) < 2:
            continue
        if "!=" in language.comparisons:
            found.append(_computed("{0} != {1}", n, (kind, kind), np.not_equal))
        if np.isnan(values[domain]).any():
            continue
        if "<" in language.comparisons:
            for sign, compare in (("<", np.less), ("<=", np.less_equal)):
                test = _on_values(compare, values)
                found.append(_computed(f"{{0}} {sign} {{1}}", n, (kind, kind), test))
        if ">=" in language.comparisons:
            cuts = np.unique(values[domain])
            if len(cuts) > _MOST_CUTS + 1:
                at = np.linspace(0, len(cuts) - 1, _MOST_CUTS + 2).round().astype(int)
                cuts = np.unique(cuts[at])
            bounds: list[tuple[str, Test, float]] = [
                (">=", np.greater_equal, cut) for cut in cuts[1:]
            ]
            bounds += [("<=", np.less_equal, cut) for cut in cuts[:-1]]
            for sign, bound, cut in bounds:
                test = _on_values(bound, values, cut)
                found.append(_computed(f"{{0}} {sign} {int(cut)}", n, (kind,), test))
    return found


def _number(cell: str) -> float:
    """Return the whole number in a cell; NaN if there is none, since rules compare whole numbers."""
    whole = cell.isascii() and cell.lstrip("-").isdigit() and constant(cell) == cell
    return float(cell) if whole else math.nan


def _constants_of(values: Ints, allowed: set[int] | None) -> list[int]:
    distinct = np.unique(values).tolist()
    if allowed is not None:
        return [value for value in distinct if value in allowed]
    return distinct if len(distinct) <= _MOST_CONSTANTS else []


def _with_constants(
    relation: Relation, allowed: set[int] | None, constants: tuple[str, ...]
) -> list[Relation]:
    """Return the relation with one argument, or two of three and more, replaced by constants."""
    rows, arity = relation.rows, relation.arity
    found = []
    choices = {place: _constants_of(rows[:, place], allowed) for place in range(arity)}
    fixed: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((p,), (v,)) for p in range(arity) if arity > 1 for v in choices[p]
    ]
    for one, other in itertools.combinations(range(arity if arity > 2 else 0), 2):
        pairs = list(itertools.product(choices[one], choices[other]))
        fixed += [((one, other), pair) for pair in pairs if len(pairs) <= _MOST_PAIRS]
    for places, values in fixed:
        keep = np.all([rows[:, p] == v for p, v in zip(places, values, strict=True)], axis=0)
        left = [place for place in range(arity) if place not in places]
        part = np.unique(rows[keep][:, left], axis=0)
        if not len(part):
            continue
        inside = [""] * arity
        for number, place in enumerate(left):
            inside[place] = f"{{{number}}}"
        for place, value in zip(places, values, strict=True):
            inside[place] = _literally(constant(constants[value]))
        form = f"{_literally(relation.name)}({','.join(inside)})"
        kept = tuple(relation.types[place] for place in left)
        found.append(Relation("", part, len(constants), kept, form=form))
    return found


def _negated(base: Relation) -> Relation:
    form = base.form or atom_form(base.name, base.arity)
    test = lambda *columns: ~base.holds(*columns)  # noqa: E731
    return _computed(f"not {form}", base.constants, base.types, test)


def _computed(form: str, n: int, kinds: tuple[int, ...], test: Test) -> Relation:
    return Relation("", np.empty((0, len(kinds)), np.int64), n, kinds, test=test, form=form)


def _on_values(compare: Test, values: npt.NDArray[np.float64], *more: float) -> Test:
    """Return a comparison of the numbers that constants stand for, and one more."""
    return lambda *columns: compare(*(values[column] for column in columns), *more)


def read_facts(source: Any, what: str) -> Facts:
    """Return the facts of a Datalog text, a path, tables by predicate, or tuples.

    Raises:
        DataError: they are of another kind.
    """
    if isinstance(source, (str, os.PathLike)):
        derived = derived_facts(source)
        if not derived:
            raise DataError(f"{what} holds no facts")
        return derived
    if isinstance(source, Mapping):
        found: Facts = {}
        for (name, arity), rows in table_rows(source):
            found.setdefault((decode_text(name), arity), []).extend(rows)
        return found
    if not isinstance(source, Iterable) or hasattr(source, "columns"):
        raise DataError(
            f"{what} is Datalog text, a path, tables by predicate, or tuples such as "
            f"('parent', 'ann', 'bob'), not {type(source).__name__}"
        )
    tables: dict[str, list[Sequence[Any]]] = {}
    for row in source:
        if isinstance(row, str):
            name, *cells = cells_of(row.strip().removesuffix("."))
            tables.setdefault(f"{quote_functor(name)}/{len(cells)}", []).append(cells)
            continue
        if not isinstance(row, Sequence) or not row or not isinstance(row[0], str):
            raise DataError(
                f"{what} holds {row!r}; an example is a tuple that starts with its predicate, such "
                "as ('parent', 'ann', 'bob')"
            )
        tables.setdefault(f"{row[0]}/{len(row) - 1}", []).append(row[1:])
    return read_facts(tables, what)


def atoms_of(facts: Facts) -> list[tuple[str, ...]]:
    """Return facts as tuples that start with their predicate."""
    return [(name, *row) for (name, _), rows in facts.items() for row in rows]


def derived_facts(
    source: str | os.PathLike[str], facts: Mapping[str, Sequence[Sequence[str]]] | None = None
) -> Facts:
    """Return the facts of a Datalog text or a path, and what its rules derive."""
    program = ground(source, facts=facts)
    atoms = closure(program, []).atoms
    found: Facts = {}
    for atom in program.atoms:
        if atom in atoms:
            name, *cells = cells_of(atom)
            found.setdefault((quote_functor(name), len(cells)), []).append(tuple(cells))
    return found


def _target_names(target: Any) -> list[tuple[str, int | None]]:
    if target is None:
        return []
    names = [target] if isinstance(target, str) else target
    if not isinstance(names, Iterable):
        raise DataError(f"target is the name of a predicate, or several, not {target!r}")
    found = []
    for name in names:
        match = _name(name) if isinstance(name, str) else None
        if match is None:
            raise DataError(f"a target is written 'path' or 'path/2', not {name!r}")
        found.append((match[1], None if match[2] is None else int(match[2])))
    return found


def _targets(
    wanted: list[tuple[str, int | None]], shown: Facts, refused: Facts | None
) -> list[tuple[str, int]]:
    if not shown:
        raise DataError("there are no positive examples; a rule needs at least one")
    signatures = list(shown)
    if wanted:
        signatures = []
        for name, arity in wanted:
            matching = [s for s in shown if s[0] == name and arity in {None, s[1]}]
            if not matching:
                has = listing([f"{n}/{a}" for n, a in shown])
                asked = name if arity is None else f"{name}/{arity}"
                raise DataError(f"there are no positive examples of {asked!r}, but of {has}")
            signatures += matching
    for name, arity in refused or {}:
        if (name, arity) not in signatures:
            has = listing([f"{n}/{a}" for n, a in signatures])
            raise DataError(
                f"there are negative examples of {name}/{arity}, which is not a target; targets "
                f"are {has}"
            )
    return list(dict.fromkeys(signatures))


def _example_numbers(
    tables: Sequence[Ints], first_target: int, constants: tuple[str, ...]
) -> set[tuple[int, int]]:
    """Return the arguments that number the examples, if other arguments have some of these numbers.

    Examples are numbered if the first argument of every target is a whole number, most of these are the
    first argument of facts as well, and some but few of them are other arguments. A first argument
    numbers examples if most of its values do, and not all of them are values of other arguments.
    """
    first = [set(rows[:, 0].tolist()) if rows.shape[1] else set() for rows in tables]
    ids = set().union(*first[first_target:])
    if any(math.isnan(_number(constants[c])) for c in ids):
        return set()
    others = set().union(*(rows[:, 1:].ravel().tolist() for rows in tables))
    found = {
        t
        for t, values in enumerate(first)
        if t >= first_target or (2 * len(values & ids) > len(values) and not values <= others)
    }
    described = set().union(
        *(first[t] for t in found if t < first_target and tables[t].shape[1] > 1)
    )
    few = 0 < 2 * len(others & ids) < len(ids) < 2 * len(described & ids)
    return {(t, 0) for t in found} if few else set()


def _types(
    tables: Sequence[Ints], declared: Sequence[tuple[str, ...] | None], ids: set[tuple[int, int]]
) -> tuple[list[tuple[int, ...]], list[str | None]]:
    """Return the type of every argument, and the declared name of each type.

    Arguments that are declared have the type of their name. Others that share a constant have the
    same type, and that of a declared argument if they share one with it; but not that of `ids`.
    """
    places = [(t, p) for t, rows in enumerate(tables) for p in range(rows.shape[1])]
    parent = {place: place for place in places}
    names = {(t, p): kinds[p] for (t, p) in places if (kinds := declared[t]) is not None}
    names |= dict.fromkeys(ids, "example")

    def root(place: tuple[int, int]) -> tuple[int, int]:
        while parent[place] != place:
            place = parent[place]
        return place

    by_name: dict[str, tuple[int, int]] = {}
    for place in [place for place in places if place in names]:
        first = by_name.setdefault(names[place], place)
        parent[place] = first
    values = {place: set(tables[place[0]][:, place[1]].tolist()) for place in places}
    of_type: dict[tuple[int, int], set[int]] = {}
    for place in places:
        if place in names and place not in ids:
            of_type.setdefault(root(place), set()).update(values[place])
    for place in places:
        if place in names:
            continue
        # The declared type with most constants in common, then the arguments that are not declared.
        shared = {kind: len(values[place] & known) for kind, known in of_type.items()}
        best = max(shared, key=lambda kind: shared[kind], default=None)
        if best is not None and shared[best]:
            parent[place] = best
    first_with: dict[int, tuple[int, int]] = {}
    for place in places:
        if place in names or root(place) in names:
            continue
        for value in values[place]:
            parent[root(place)] = root(first_with.setdefault(value, place))
    roots = sorted({root(place) for place in places})
    found = [
        tuple(roots.index(root((t, p))) for p in range(rows.shape[1]))
        for t, rows in enumerate(tables)
    ]
    return found, [names.get(one) for one in roots]
