"""Whether a ground rule is an instance of a rule with variables, and of which values."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from latentgamma.datalog.clingo_names import decode_name, decode_text, encode_name

# In the order of clingo's enumeration of comparison operators.
_COMPARE = {
    0: operator.gt,
    1: operator.lt,
    2: operator.le,
    3: operator.ge,
    4: operator.ne,
    5: operator.eq,
}

#: The values of variables: clingo's symbols by the variables' names.
Values = dict[str, Any]


class Match(NamedTuple):
    """The values of a rule's variables, and its negated atoms that the ground rule lacks."""

    substitution: tuple[tuple[str, str], ...]
    absent: tuple[str, ...]


def matches(
    rule: Any,
    head: str,
    body: frozenset[str],
    negated: frozenset[str],
    constants: Values,
    possible: Container[str],
) -> Match | None:
    """The first way in which the ground rule is an instance of the rule, or None.

    Args:
        rule: a node of clingo's tree.
        head: of the ground rule.
        body: the positive atoms of its body.
        negated: the negated atoms of its body.
        constants: the values that '#const' gives to names.
        possible: the atoms that some rule derives or that can be given. The grounder leaves out
            the negation of all others.
    """
    import clingo

    atoms = {name: clingo.parse_term(encode_name(name)) for name in {head, *body}}
    literals = [node for node in rule.body if node.ast_type.name == "Literal"]
    positive = [n for n in literals if n.sign == 0 and n.atom.ast_type.name == "SymbolicAtom"]
    denied = [n for n in literals if n.sign == 1 and n.atom.ast_type.name == "SymbolicAtom"]
    compared = [n for n in literals if n.atom.ast_type.name == "Comparison"]
    goals = [(rule.head.atom.symbol, [atoms[head]])]
    goals += [(n.atom.symbol, [atoms[name] for name in sorted(body)]) for n in positive]
    wanted = {atoms[name] for name in body}
    for values in _solutions(goals, {}, constants):
        values = _assigned(compared, values, constants)
        used = {_value(n.atom.symbol, values, constants) for n in positive}
        if not wanted <= used and None not in used:
            continue
        if not all(_holds(n, values, constants) for n in compared):
            continue
        if _value(rule.head.atom.symbol, values, constants) not in {atoms[head], None}:
            continue
        named = [decode_name(str(_value(n.atom.symbol, values, constants))) for n in denied]
        if not negated <= set(named):
            continue
        absent = tuple(name for name in named if name not in negated)
        if any(name in possible for name in absent):
            continue
        shown = tuple((v, decode_text(str(values[v]))) for v in _variables(rule) if v in values)
        return Match(shown, absent)
    return None


def _solutions(
    goals: list[tuple[Any, list[Any]]], values: Values, constants: Values
) -> Iterator[Values]:
    """The ways to give the variables values so that each pattern is one of its atoms."""
    if not goals:
        yield values
        return
    (pattern, candidates), *rest = goals
    members = pattern.arguments if pattern.ast_type.name == "Pool" else [pattern]
    for atom in candidates:
        for member in members:
            if member.name != atom.name or len(member.arguments) != len(atom.arguments):
                continue
            found: Values | None = values
            for term, symbol in zip(member.arguments, atom.arguments, strict=True):
                found = _unified(term, symbol, found, constants)
                if found is None:
                    break
            else:
                yield from _solutions(rest, found or {}, constants)


def _unified(term: Any, symbol: Any, values: Values | None, constants: Values) -> Values | None:
    """The values with which the term is the symbol; what has to be computed is left for later."""
    if values is None:
        return None
    if term.ast_type.name == "Variable":
        if term.name == "_":
            return values
        if term.name in values:
            return values if values[term.name] == symbol else None
        return {**values, term.name: symbol}
    if term.ast_type.name == "SymbolicTerm":
        return values if constants.get(str(term.symbol), term.symbol) == symbol else None
    known = _value(term, values, constants)
    return values if known is None or known == symbol else None


def _assigned(compared: list[Any], values: Values, constants: Values) -> Values:
    """The values, and those of variables that an equation computes."""
    values = dict(values)
    for _ in compared:
        for node in compared:
            guards = node.atom.guards
            if node.sign or len(guards) != 1 or guards[0].comparison != 5:
                continue
            for left, right in ((node.atom.term, guards[0].term), (guards[0].term, node.atom.term)):
                if left.ast_type.name == "Variable" and left.name not in values:
                    value = _value(right, values, constants)
                    if value is not None:
                        values[left.name] = value
    return values


def _holds(node: Any, values: Values, constants: Values) -> bool:
    """Whether a comparison holds; one that cannot be computed here is believed."""
    left = _value(node.atom.term, values, constants)
    true: bool = True
    for guard in node.atom.guards:
        right = _value(guard.term, values, constants)
        if left is None or right is None:
            return True
        true = true and bool(_COMPARE[guard.comparison](left, right))
        left = right
    return bool(true != (node.sign == 1))


def _value(term: Any, values: Values, constants: Values) -> Any:
    """The symbol that the term is for these values, or None if that is open."""
    import clingo
    from clingo.ast import SymbolicTerm, Transformer

    class Substituted(Transformer):
        def visit_Variable(self, node: Any) -> Any:
            return SymbolicTerm(node.location, values[node.name])

        def visit_SymbolicTerm(self, node: Any) -> Any:
            value = constants.get(str(node.symbol), node.symbol)
            return SymbolicTerm(node.location, value)

    try:
        return clingo.parse_term(str(Substituted().visit(term)), logger=lambda *_: None)
    except (KeyError, RuntimeError):  # a variable without a value; an interval or a pool
        return None


def _variables(rule: Any) -> list[str]:
    """The names of the variables, in alphabetical order."""
    from latentgamma.datalog.source import walk

    names = (node.name for node in walk(rule) if node.ast_type.name == "Variable")
    return sorted({name for name in names if name != "_"})
