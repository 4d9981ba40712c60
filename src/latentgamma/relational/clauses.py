"""Clauses with variables: values, text, a canonical form and their description length."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

#: A predicate, by its number, and its variables. The head has the variables 0, 1, …
Literal: TypeAlias = "tuple[int, tuple[int, ...]]"
Body: TypeAlias = "tuple[Literal, ...]"

#: Up to this many variables beside the head's, every renaming is tried.
_MOST_RENAMED = 5
#: Rounds in which variables are told apart by the variables next to them.
_ROUNDS = 2


class Clause(NamedTuple):
    """A rule with variables: `head` is the number of its predicate."""

    head: int
    arity: int
    body: Body

    @property
    def variables(self) -> int:
        """The number of variables."""
        return 1 + max([self.arity - 1, *(v for _, literal in self.body for v in literal)])

    def uses(self, predicates: Iterable[int]) -> bool:
        """Return whether one of these predicates is in the body."""
        wanted = set(predicates)
        return any(predicate in wanted for predicate, _ in self.body)


def canonical(body: Sequence[Literal], arity: int) -> Body:
    """Return the body with variables renamed and literals sorted: one form for all variants.

    >>> canonical([(1, (3, 0)), (0, (2, 3))], 1)
    ((0, (1, 2)), (1, (2, 0)))
    """
    used = sorted({v for _, literal in body for v in literal if v >= arity})
    best: Body | None = None
    orders: Iterable[tuple[int, ...]] = [tuple(used)]
    if 1 < len(used) <= _MOST_RENAMED:
        orders = _orders(body, used, arity)
    for order in orders:
        names = {variable: arity + place for place, variable in enumerate(order)}
        renamed = tuple(
            sorted([(p, tuple([names.get(v, v) for v in literal])) for p, literal in body])
        )
        if best is None or renamed < best:
            best = renamed
    return best or ()


def _orders(body: Sequence[Literal], used: Sequence[int], arity: int) -> Iterator[tuple[int, ...]]:
    """Return orders of the variables: sorted by where they occur, and every order of equal ones."""
    rank = {v: v - arity for v in range(arity)} | dict.fromkeys(used, 0)
    for _ in range(_ROUNDS):
        places: dict[int, list[tuple[int, int, tuple[int, ...]]]] = {v: [] for v in used}
        for predicate, literal in body:
            ranks = tuple([rank[v] for v in literal])
            for place, variable in enumerate(literal):
                if variable >= arity:
                    places[variable].append((predicate, place, ranks))
        keys = {v: (rank[v], tuple(sorted(places[v]))) for v in used}
        numbers = {key: number for number, key in enumerate(sorted(set(keys.values())))}
        rank.update({v: numbers[keys[v]] for v in used})
        if len(numbers) == len(used):
            break
    ordered = sorted(used, key=rank.__getitem__)
    groups = [list(group) for _, group in itertools.groupby(ordered, key=rank.__getitem__)]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield tuple(itertools.chain.from_iterable(parts))


def as_body(literals: Iterable[Sequence[Any]]) -> Body:
    """Return a body from lists, as JSON has it."""
    return tuple((int(predicate), tuple(arguments)) for predicate, arguments in literals)


def clause_bits(clause: Clause, predicates: int) -> float:
    """Return the description length of a clause: each literal names a predicate and variables."""
    variables = math.log2(max(2, clause.variables))
    predicate = math.log2(max(2, predicates))
    return 1.0 + sum(predicate + len(literal) * variables for _, literal in clause.body)


def clause_text(clause: Clause, names: Sequence[str]) -> str:
    """Return the clause as Datalog; variables get letters in the order in which they occur.

    >>> clause_text(Clause(0, 2, ((1, (0, 2)), (1, (2, 1)))), ["grandparent", "parent"])
    'grandparent(X,Y) :- parent(X,Z), parent(Z,Y).'
    """
    letters: dict[int, str] = {}
    for variable in [*range(clause.arity), *(v for _, literal in clause.body for v in literal)]:
        letters.setdefault(variable, _letter(len(letters)))
    head = _atom(names[clause.head], range(clause.arity), letters)
    body = ", ".join(_atom(names[p], literal, letters) for p, literal in readable_order(clause))
    return f"{head} :- {body}." if body else f"{head}."


def readable_order(clause: Clause) -> list[Literal]:
    """Return the literals so that each shares a variable with the head or an earlier one."""
    left = list(clause.body)
    known = {0} if clause.arity else set()
    done: list[Literal] = []
    while left:
        linked = [literal for literal in left if known & set(literal[1])]
        linked.sort(key=lambda literal: (literal[0] == clause.head, -len(known & {*literal[1]})))
        chosen = linked[0] if linked else left[0]
        left.remove(chosen)
        done.append(chosen)
        known |= set(chosen[1])
    return done


def _letter(number: int) -> str:
    return "XYZUVWABCDEFGHIJKLMNOPQRST"[number] if number < 26 else f"X{number}"


def _atom(name: str, arguments: Iterable[int], letters: dict[int, str]) -> str:
    inside = ",".join(letters[v] for v in arguments)
    return f"{name}({inside})" if inside else name
