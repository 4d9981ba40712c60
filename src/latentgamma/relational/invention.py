"""Definitions of invented predicates, by their extension on the background.

A definition is one clause of two literals, two clauses, or a clause and a recursive one. Of the
definitions with the same extension the shortest is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from latentgamma.relational.budget import Budget, OutOfBudget
from latentgamma.relational.clauses import (
    Body,
    Clause,
    TooManyRows,
    arguments,
    body_bindings,
    canonical,
    clause_bits,
    least_model,
)
from latentgamma.relational.problem import Ints, Problem, Relation, decode, encode

#: Definitions that are kept, shortest first, and the rows of one of them.
_MOST_DEFINITIONS = 400
_MOST_ROWS = 200_000


@dataclass(frozen=True)
class Definition:
    """An invented predicate."""

    relation: Relation  # its extension; `bits` is the length of its clauses
    clauses: tuple[Clause, ...]  # its clauses; their predicate is `number`
    number: int  # the number of the predicate
    needs: tuple[int, ...] = ()  # the invented predicates that the clauses use


def used_definitions(clause: Clause, known: Mapping[int, Definition]) -> dict[int, float]:
    """Return the invented predicates that a clause uses, with the lengths of their definitions."""
    used = {p for p, _ in clause.body if p in known}
    used = used.union(*(known[p].needs for p in used))
    return {p: known[p].relation.bits for p in sorted(used)}


def definitions(
    problem: Problem,
    relations: Sequence[Relation],
    usable: Sequence[int],
    budget: Budget,
    *,
    must_use: frozenset[int] = frozenset(),
) -> list[Definition]:
    """Return the definitions over the usable relations, shortest first, as far as the budget goes.

    Their numbers follow those of the relations. If `must_use` is not empty, each uses one of these.
    """
    n = len(problem.constants)
    usable = [u for u in usable if relations[u].test is None]
    predicates = len(usable) + 1
    known: set[tuple[tuple[int, ...], bytes]] = set()
    for relation in (relations[u] for u in usable):
        columns = list(relation.rows.T)
        for way in (1, -1) if relation.arity == 2 else (1,):  # an inverse is no new relation
            codes = np.sort(encode(columns[::way], n, len(relation.rows)))
            known.add((relation.types[::way], codes.tobytes()))
    found: dict[
        tuple[tuple[int, ...], bytes], tuple[float, Ints, tuple[Clause, ...], tuple[int, ...]]
    ] = {}

    def add(types: tuple[int, ...], codes: Ints, clauses: tuple[Clause, ...]) -> None:
        key = (types, codes.tobytes())
        bits = 1.0 + sum(clause_bits(clause, predicates) for clause in clauses)
        full = len(codes) == np.prod([len(problem.domains[t]) for t in types])
        if not len(codes) or full or key in known:
            return
        needs = tuple(sorted({p for clause in clauses for p, _ in clause.body if p in must_use}))
        if must_use and not needs:
            return
        if key not in found or bits < found[key][0]:
            found[key] = (bits, codes, clauses, needs)

    try:
        for types in _head_types(relations, usable):
            short, long = _clauses(types, relations, usable, n, budget)
            for clause, codes in long:
                add(types, codes, (clause,))
            for (one, a), (other, b) in itertools.combinations(short, 2):
                budget.spend(len(a) + len(b))
                add(types, np.union1d(a, b), (one, other))
            for (one, a), step in itertools.product(short, _steps(types, relations, usable)):
                closed = _closed(types, a, step, relations, n, budget)
                if closed is not None:
                    add(types, closed, (one, Clause(-1, len(types), step)))
    except OutOfBudget:
        pass
    ordered = sorted(found.items(), key=lambda item: item[1][0])[:_MOST_DEFINITIONS]
    result = []
    for number, ((types, _), (bits, codes, clauses, needs)) in enumerate(ordered, len(relations)):
        relation = Relation("", decode(codes, n, len(types)), n, types, bits=bits)
        named = tuple(
            Clause(number, clause.arity, tuple((number if p < 0 else p, v) for p, v in clause.body))
            for clause in clauses
        )
        result.append(Definition(relation, named, number, needs))
    return result


def _head_types(relations: Sequence[Relation], usable: Sequence[int]) -> list[tuple[int, ...]]:
    kinds = sorted({kind for u in usable for kind in relations[u].types})
    return [(kind,) for kind in kinds] + list(itertools.product(kinds, repeat=2))


def _arguments(relation: Relation, types: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Return the arguments of a literal; new variables are numbered from `len(types)`."""
    options = [
        [*(v for v, other in enumerate(types) if other == kind), -1] for kind in relation.types
    ]
    return arguments(options, len(types), most)


def _clauses(
    types: tuple[int, ...],
    relations: Sequence[Relation],
    usable: Sequence[int],
    n: int,
    budget: Budget,
) -> tuple[list[tuple[Clause, Ints]], list[tuple[Clause, Ints]]]:
    """Return the clauses of one and of two literals with their extensions."""
    arity = len(types)
    head = set(range(arity))
    short: list[tuple[Clause, Ints]] = []
    long: list[tuple[Clause, Ints]] = []
    seen: set[Body] = set()
    for u in usable:
        for literal in _arguments(relations[u], types, arity + 1):
            body: Body = ((u, literal),)
            if head <= set(literal):
                short += _extension(body, arity, relations, n, budget)
            kinds = dict(zip(literal, relations[u].types, strict=True))
            more = [*types, *(kinds[v] for v in sorted(kinds) if v >= arity)]
            for w in usable:
                for second in _arguments(relations[w], more, arity + 1):
                    pair = canonical((*body, (w, second)), arity)
                    if pair in seen or len(set(pair)) < 2:
                        continue
                    seen.add(pair)
                    if head <= {*literal, *second}:
                        long += _extension(pair, arity, relations, n, budget)
    return short, long


def _extension(
    body: Body, arity: int, relations: Sequence[Relation], n: int, budget: Budget
) -> list[tuple[Clause, Ints]]:
    try:
        found = body_bindings(body, range(arity), relations, budget, _MOST_ROWS)
    except TooManyRows:
        return []
    codes = np.unique(encode(found[0], n, len(found[1])))
    return [(Clause(-1, arity, body), codes)] if len(codes) else []


def _steps(
    types: tuple[int, ...], relations: Sequence[Relation], usable: Sequence[int]
) -> Iterator[Body]:
    """Return the bodies of recursive clauses; the predicate itself has the number -1."""
    if len(types) == 1:
        for u in usable:
            if relations[u].types == (types[0], types[0]):
                yield ((u, (1, 0)), (-1, (1,)))
                yield ((u, (0, 1)), (-1, (1,)))
        return
    if types[0] == types[1]:
        yield ((-1, (1, 0)),)
        yield ((-1, (0, 2)), (-1, (2, 1)))
    for u in usable:
        if relations[u].types == (types[0], types[0]):
            yield ((u, (0, 2)), (-1, (2, 1)))
            yield ((u, (2, 0)), (-1, (2, 1)))
        if relations[u].types == (types[1], types[1]):
            yield ((-1, (0, 2)), (u, (2, 1)))
            yield ((-1, (0, 2)), (u, (1, 2)))


def _closed(
    types: tuple[int, ...],
    start: Ints,
    step: Body,
    relations: Sequence[Relation],
    n: int,
    budget: Budget,
) -> Ints | None:
    """Return the least extension that has the first clause's tuples and is closed under the step."""
    own = len(relations)
    body = tuple((own if p < 0 else p, literal) for p, literal in step)
    known = [*relations, Relation("", decode(start, n, len(types)), n, types)]
    try:
        least_model([Clause(own, len(types), body)], known, budget, _MOST_ROWS)
    except TooManyRows:
        return None
    return encode(list(known[own].rows.T), n, len(known[own].rows))
