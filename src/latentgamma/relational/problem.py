"""A learning problem with variables: relations, types, examples."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from latentgamma._text import listing, quantity
from latentgamma.datalog.grounding import ground
from latentgamma.datalog.tables import cells_of, constant, table_facts
from latentgamma.errors import DataError
from latentgamma.logic.closure import closure

# ---- Relations as integer arrays, with the indexes that joins need

Ints: TypeAlias = "npt.NDArray[np.int64]"
Truth: TypeAlias = "npt.NDArray[np.uint8]"

#: The truth of a row: a known fact, or a tuple that may be true (it has no label).
FACT, POSSIBLE = 2, 1
#: Tables of keys up to this size are looked up directly, larger ones by binary search.
_DIRECT = 4_000_000


@dataclass(frozen=True)
class Index:
    """The rows of a relation, grouped by the values of some of its arguments.

    Attributes:
        keys: the distinct keys, sorted.
        starts: where the group of each key starts.
        counts: the sizes of the groups.
        values: the other arguments of each row, in the order of the groups.
        truth: of each row, in the order of the groups.
        best: the highest truth in each group.
        direct: the number of the group of each possible key, or -1; None for large tables.
    """

    keys: Ints
    starts: Ints
    counts: Ints
    values: Ints
    truth: Truth
    best: Truth
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
    """A predicate with its rows.

    Args:
        name: the predicate.
        rows: shape (rows, arguments), distinct.
        constants: the number of constants.
        types: the type of each argument.
        truth: of each row; by default every row is a fact.
        bits: the cost of a definition that has to be learned as well.
    """

    def __init__(
        self,
        name: str,
        rows: Ints,
        constants: int,
        types: Sequence[int],
        truth: Truth | None = None,
        bits: float = 0.0,
    ) -> None:
        self.name = name
        self.rows = rows
        self.arity = len(types)
        self.constants = constants
        self.types = tuple(types)
        self.truth = np.full(len(rows), FACT, np.uint8) if truth is None else truth
        self.bits = bits
        self._indexes: dict[tuple[int, ...], Index] = {}

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


@dataclass(frozen=True)
class Bindings:
    """The values of variables: one row for each way in which a body can hold.

    Attributes:
        columns: the values of each variable; None where the variable has no value yet.
        truth: the truth of each row.
        example: the example that each row is about.
    """

    columns: tuple[Ints | None, ...]
    truth: Truth
    example: Ints


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
    pattern, new = _pattern(arguments, table)
    found = relation.index(pattern).highest(_keys(relation, arguments, table, new))
    return np.minimum(found, table.truth)


def join(
    relation: Relation, arguments: Sequence[int], table: Bindings, most_rows: int
) -> Bindings | None:
    """Return the table with one more literal, or None if it has more than `most_rows` rows."""
    pattern, new = _pattern(arguments, table)
    index = relation.index(pattern)
    group = index.groups(_keys(relation, arguments, table, new))
    hit = np.flatnonzero(group >= 0)
    group = group[hit]
    if not new:
        columns = tuple(c if c is None else c[hit] for c in table.columns)
        truth = np.minimum(table.truth[hit], index.best[group])
        return Bindings(columns, truth, table.example[hit])
    counts = index.counts[group]
    total = int(counts.sum())
    if total > most_rows:
        return None
    source = np.repeat(hit, counts)
    offset = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(index.starts[group], counts) + offset
    size = max(len(table.columns), max(arguments) + 1)
    extended: list[Ints | None] = [None] * size
    for variable, column in enumerate(table.columns):
        if column is not None:
            extended[variable] = column[source]
    for place, variable in enumerate(new):
        extended[variable] = index.values[at, place]
    truth = np.minimum(table.truth[source], index.truth[at])
    return Bindings(tuple(extended), truth, table.example[source])


# ---- A learning problem: background facts and labelled examples, as arrays

#: Facts by predicate and arity, each a tuple of cells.
Facts: TypeAlias = "dict[tuple[str, int], list[tuple[str, ...]]]"

#: The tuples of a target are listed up to this number: as possible facts, or for wrong labels.
_MOST_POSSIBLE = 500_000
_name = re.compile(r"\s*([a-z_]\w*)\s*(?:/\s*([0-9]+))?\s*", re.ASCII).fullmatch


@dataclass(frozen=True)
class Target:
    """A relation to learn.

    Attributes:
        name: the predicate.
        relation: its number among the relations of the problem.
        types: the type of each argument.
        positive: the codes of its positive examples, sorted.
        negative: the codes of its negative examples, sorted; None in a closed world, where
            everything else is negative.
        given: the codes of its facts in the background, sorted.
    """

    name: str
    relation: int
    types: tuple[int, ...]
    positive: Ints
    negative: Ints | None
    given: Ints

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.types)


@dataclass(frozen=True)
class Problem:
    """Background facts and examples.

    Attributes:
        constants: the constants, as cells of a table.
        names: the predicates, background first, then the targets.
        rows: the rows of each predicate: background facts, and none for a target.
        types: the types of the arguments of each predicate.
        targets: what to learn.
        notes: what was assumed about the examples.
    """

    constants: tuple[str, ...]
    names: tuple[str, ...]
    rows: tuple[Ints, ...]
    types: tuple[tuple[int, ...], ...]
    targets: tuple[Target, ...]
    notes: tuple[str, ...]

    @cached_property
    def domains(self) -> dict[int, Ints]:
        """The constants of each type."""
        found: dict[int, list[Ints]] = {}
        for rows, types in zip(self.rows, self.types, strict=True):
            for place, kind in enumerate(types):
                found.setdefault(kind, []).append(rows[:, place])
        for target in self.targets:
            for codes in (target.positive, target.negative, target.given):
                if codes is None:
                    continue
                rows = decode(codes, len(self.constants), target.arity)
                for place, kind in enumerate(target.types):
                    found.setdefault(kind, []).append(rows[:, place])
        return {kind: np.unique(np.concatenate(parts)) for kind, parts in found.items()}

    def tuples(self, target: Target) -> int:
        """Return the number of tuples whose arguments have the target's types."""
        size = 1
        for kind in target.types:
            size *= len(self.domains[kind])
        return size

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
        return all(self.tuples(target) <= _MOST_POSSIBLE for target in self.targets)

    def label_count(self, target: Target) -> int:
        """Return the number of tuples of the target that have a label."""
        if target.negative is None:
            return self.tuples(target) - len(target.given)
        return len(target.positive) + len(target.negative)

    def every_tuple(self, target: Target) -> Ints:
        """Return the codes of all tuples whose arguments have the target's types."""
        grids = np.meshgrid(*(self.domains[kind] for kind in target.types), indexing="ij")
        columns = [grid.ravel() for grid in grids]
        rows = 1 if not columns else len(columns[0])
        return encode(columns, len(self.constants), rows)

    def unlabelled(self, target: Target) -> Ints:
        """Return the codes of the tuples without a label; none if there are too many to list."""
        if target.negative is None or self.tuples(target) > _MOST_POSSIBLE:
            return target.positive[:0]
        known = np.concatenate([target.positive, target.negative, target.given])
        return np.setdiff1d(self.every_tuple(target), known)

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """The background and the targets; a target's rows are the labels."""
        n = len(self.constants)
        found = []
        targets = {target.relation: target for target in self.targets}
        for number, (name, rows, types) in enumerate(
            zip(self.names, self.rows, self.types, strict=True)
        ):
            if number not in targets:
                found.append(Relation(name, rows, n, types))
                continue
            target = targets[number]
            codes = np.union1d(target.positive, target.given)
            possible = self.unlabelled(target)
            truth = np.concatenate(
                [np.full(len(codes), FACT, np.uint8), np.full(len(possible), POSSIBLE, np.uint8)]
            )
            rows = decode(np.concatenate([codes, possible]), n, target.arity)
            found.append(Relation(name, rows, n, types, truth))
        return tuple(found)

    def atom(self, target: Target, code: int) -> str:
        """Return the text of an atom of a target."""
        values = decode(np.array([code]), len(self.constants), target.arity)[0]
        inside = ",".join(constant(self.constants[value]) for value in values)
        return f"{target.name}({inside})" if inside else target.name

    @property
    def digest(self) -> str:
        """A short text that differs for other facts or examples."""
        found = hashlib.sha256(repr((self.constants, self.names, self.types)).encode())
        arrays = list(self.rows)
        for target in self.targets:
            found.update(repr((target.name, target.negative is None)).encode())
            arrays += [target.positive, target.given]
            arrays += [] if target.negative is None else [target.negative]
        for array in arrays:
            found.update(repr(array.shape).encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:32]

    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """Return the background facts as tables for `lg.datalog.ground`."""
        tables = {}
        names = np.array(self.constants, dtype=object)
        targets = {target.relation: target for target in self.targets}
        for number, (name, rows) in enumerate(zip(self.names, self.rows, strict=True)):
            if number in targets:
                target = targets[number]
                rows = decode(target.given, len(self.constants), target.arity)
                if not len(rows):
                    continue
            arity = rows.shape[1]
            cells = names[rows] if len(rows) else np.empty((0, arity), object)
            tables[f"{name}/{arity}"] = [tuple(row) for row in cells.tolist()]
        return tables


def read_problem(
    background: Any, positive: Any, negative: Any, target: Any, *, noise: bool = False
) -> Problem:
    """Return the problem that these arguments describe.

    Raises:
        DataError: they cannot be read, or contradict each other.
    """
    facts = read_facts(background, "background")
    wanted = _target_names(target)
    shown = read_facts(positive, "positive")
    refused = None if negative is None else read_facts(negative, "negative")
    signatures = _targets(wanted, shown, refused)
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
    every = list(facts)
    ordered = [s for s in every if s not in signatures] + signatures
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

    def array(group: Facts, signature: tuple[str, int]) -> Ints:
        rows = [[number[cell] for cell in row] for row in group.get(signature, [])]
        found = np.array(rows, np.int64).reshape(len(rows), signature[1])
        codes = np.unique(encode(list(found.T), n, len(rows)))
        return decode(codes, n, signature[1])

    def codes(group: Facts, signature: tuple[str, int]) -> Ints:
        found = array(group, signature)
        return np.unique(encode(list(found.T), n, len(found)))

    used = [
        np.concatenate([array(g, s) for g in (facts, shown, refused or {})])
        if s in signatures
        else array(facts, s)
        for s in ordered
    ]
    types = _types(used, n)
    targets = []
    for signature in signatures:
        at = ordered.index(signature)
        true = codes(shown, signature)
        false = None if refused is None else codes(refused, signature)
        given = codes(facts, signature)
        if false is not None:
            both = np.intersect1d(true, false)
            if len(both) and not noise:
                raise DataError(
                    f"{quantity(len(both), 'example')} of {signature[0]!r} are both positive and "
                    "negative; correct them, or pass noise= for wrong labels"
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
        targets.append(Target(signature[0], at, types[at], true, false, given))
    tables = [array({}, s) if s in signatures else array(facts, s) for s in ordered]
    return Problem(
        constants=tuple(number),
        names=tuple(name for name, _ in ordered),
        rows=tuple(tables),
        types=tuple(types),
        targets=tuple(targets),
        notes=tuple(notes),
    )


def read_facts(source: Any, what: str) -> Facts:
    """Return the facts of a Datalog text, a path, tables by predicate, or tuples.

    Raises:
        DataError: they are of another kind.
    """
    found: Facts = {}
    if isinstance(source, (str, os.PathLike)):
        for atom in _ground_facts(source, what):
            name, *cells = cells_of(atom)
            found.setdefault((name, len(cells)), []).append(tuple(cells))
        return found
    if isinstance(source, Mapping):
        for signature, text in table_facts({key: _rows_of(rows) for key, rows in source.items()}):
            rows = [tuple(cells_of(line[:-1])[1:]) for line in text.splitlines()]
            found.setdefault(signature, []).extend(rows)
        return found
    if not isinstance(source, Iterable):
        raise DataError(
            f"{what} is Datalog text, a path, tables by predicate, or tuples such as "
            f"('parent', 'ann', 'bob'), not {type(source).__name__}"
        )
    tables: dict[str, list[Sequence[Any]]] = {}
    for row in source:
        if isinstance(row, str):
            name, *cells = cells_of(row.strip().removesuffix("."))
            tables.setdefault(f"{name}/{len(cells)}", []).append(cells)
            continue
        if not isinstance(row, Sequence) or not row or not isinstance(row[0], str):
            raise DataError(
                f"{what} holds {row!r}; an example is a tuple that starts with its predicate, such "
                "as ('parent', 'ann', 'bob')"
            )
        tables.setdefault(f"{row[0]}/{len(row) - 1}", []).append(row[1:])
    return read_facts(tables, what)


def _rows_of(table: Any) -> Any:
    """Return the rows of a frame of pandas or polars; another table as it is."""
    if hasattr(table, "itertuples"):
        return list(table.itertuples(index=False, name=None))
    if hasattr(table, "iter_rows"):
        return list(table.iter_rows())
    return table


def _ground_facts(source: str | os.PathLike[str], what: str) -> list[str]:
    program = ground(source)
    facts = closure(program, [])
    if not facts.atoms:
        raise DataError(f"{what} holds no facts")
    return [name for name in program.atoms if name in facts.atoms]


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
                raise DataError(f"there are no positive examples of {name!r}, but of {has}")
            signatures += matching
    for name, arity in refused or {}:
        if (name, arity) not in signatures:
            has = listing([f"{n}/{a}" for n, a in signatures])
            raise DataError(
                f"there are negative examples of {name}/{arity}, which is not a target; targets "
                f"are {has}"
            )
    return signatures


def _types(tables: Sequence[Ints], n: int) -> list[tuple[int, ...]]:
    """Return the type of every argument: arguments that share a constant have the same type."""
    places = [(t, p) for t, rows in enumerate(tables) for p in range(rows.shape[1])]
    parent = {place: place for place in places}

    def root(place: tuple[int, int]) -> tuple[int, int]:
        while parent[place] != place:
            place = parent[place]
        return place

    first: dict[int, tuple[int, int]] = {}
    for place in places:
        for value in np.unique(tables[place[0]][:, place[1]]).tolist():
            parent[root(place)] = root(first.setdefault(value, place))
    roots = sorted({root(place) for place in places})
    return [
        tuple(roots.index(root((t, p))) for p in range(rows.shape[1]))
        for t, rows in enumerate(tables)
    ]
