"""Whether clingo's arithmetic stayed within 32 bits.

Clingo computes with 32 bits and wraps without a word. After grounding, every operation is evaluated
once more with Python's integers, on the range of all integers that occur. If no operation can leave
the 32 bits on this range, none did. Otherwise the rule in question is grounded once more to list
the values of its variables, and its operations are evaluated on each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from latentgamma.datalog.clingo_run import Output
from latentgamma.datalog.source import (
    MOST,
    Signature,
    Source,
    arguments_of,
    atom_text,
    head_of,
    predicates,
    signature,
    walk,
)
from latentgamma.errors import ParseError

#: The smallest integer of clingo, which has 32 bits; `MOST` is the largest.
LEAST = -MOST - 1
_FULL = (LEAST, MOST)
_CHECK = "__check_"
_OPERATIONS = {"BinaryOperation", "UnaryOperation"}

#: The least and the largest of some integers; None for no integer at all.
Range: TypeAlias = "tuple[int, int] | None"
#: The values of variables, as clingo writes them.
Binding: TypeAlias = "dict[str, str]"
#: The ranges of variables.
Ranges: TypeAlias = "dict[str, Range]"

_integer = re.compile(r"-?[0-9]+").fullmatch


class _Excess(NamedTuple):
    """An operation whose value may be outside of the 32 bits."""

    node: Any
    value: tuple[int, int]
    #: The variable that has this value, if it is not the operation itself.
    variable: str = ""


class _Scope(NamedTuple):
    """Terms that are computed for all values of the variables with which some literals hold."""

    literals: list[Any]
    terms: list[Any]
    #: An aggregate whose elements these are.
    total: Any = None


@dataclass
class _Arithmetic:
    """The evaluation of terms with integers of any size."""

    constants: dict[str, Any]
    #: The range of all integers that are arguments of atoms.
    occurring: Range = None
    #: How many atoms each predicate has.
    atoms: Counter[Signature] = field(default_factory=Counter)

    def value(self, term: Any, values: Ranges, excess: list[_Excess]) -> Range:
        """Return the range of a term; operations that may not fit are added to `excess`."""
        kind = term.ast_type.name
        if kind == "Variable":
            return values.get(term.name, _FULL)
        if kind == "SymbolicTerm":
            symbol = self.constants.get(str(term.symbol), term.symbol)
            return (symbol.number,) * 2 if symbol.type.name == "Number" else None
        if kind in {"Pool", "Function"}:
            parts = [self.value(part, values, excess) for part in term.arguments]
            return _union(parts) if kind == "Pool" else None
        if kind not in {*_OPERATIONS, "Interval"}:
            return None
        if str(term) == f"-{LEAST}":  # written -2147483648; clingo has wrapped what is after '-'
            return LEAST, LEAST
        operands = [term.argument] if kind == "UnaryOperation" else [term.left, term.right]
        ranges = [self.value(operand, values, excess) for operand in operands]
        known = [part for part in ranges if part is not None]
        if len(known) < len(operands):
            return None
        if kind == "Interval":
            low, high = known[0][0], known[1][1]
            return (low, high) if low <= high else None
        if kind == "UnaryOperation":
            found = _unary(int(term.operator_type), *known)
        else:
            found = _binary(int(term.operator_type), *known)
        if found is not None and (found[0] < LEAST or found[1] > MOST):
            excess.append(_Excess(term, found))
            return _FULL
        return found

    def values(self, literals: Iterable[Any], known: Ranges, excess: list[_Excess]) -> Ranges:
        """Return the ranges of the variables that the literals bind, given known ones."""
        literals = list(literals)
        values = dict(known)
        for literal in literals:
            if _is_atom(literal) and literal.sign == 0:
                for term in _terms(literal.atom):
                    for name, found in self._solve(term, self.occurring, known, excess).items():
                        values[name] = _union([values.get(name), found])
        compared = [n for n in literals if _is_kind(n, "Comparison") and not n.sign]
        totals = [n for n in literals if _is_kind(n, "BodyAggregate") and not n.sign]
        outer = _outer_variables(literals)
        for _ in range(len(compared) + len(totals) + 1):
            for node in totals:
                guard = node.atom.left_guard
                if not guard or guard.comparison != _EQ or guard.term.ast_type.name != "Variable":
                    continue
                used = {name for element in node.atom.elements for name in _variables(element)}
                if used & outer <= values.keys():
                    values.setdefault(guard.term.name, self.total(node.atom, values))
            for left, operator, right in _comparisons(compared):
                for term, other in ((left, right), (right, left)):
                    if operator == _EQ and _variables(other) <= values.keys():
                        found = self.value(other, values, [])
                        values.update(self._solve(term, found, values, excess))
        return values

    def _solve(self, term: Any, found: Range, bound: Ranges, excess: list[_Excess]) -> Ranges:
        """Return the unbound variable of a term, and its range if the term has these values."""
        inverse = _inverse(term, found, self.constants)
        if inverse is None or inverse[0] in bound:
            return {}
        name, own = inverse
        if own is not None and (own[0] < LEAST or own[1] > MOST):
            excess.append(_Excess(term, own, name))
            own = _FULL
        return {name: own}

    def total(self, aggregate: Any, values: Ranges) -> Range:
        """Return the range of an aggregate; that of a sum need not fit."""
        function = int(aggregate.function)
        ranges: list[Range] = []
        low = high = 0
        for element in aggregate.elements:
            inner = self.values(element.condition, values, [])
            weight = self.value(element.terms[0], inner, []) if element.terms else None
            ranges.append(weight)
            if weight is None:
                continue
            most = 1  # how many there are of this element
            for literal in element.condition:
                if _is_atom(literal) and literal.sign == 0:
                    most *= self.atoms[signature(literal.atom)]
                for interval in (n for n in walk(literal) if n.ast_type.name == "Interval"):
                    ends = self.value(interval, inner, [])
                    most *= 1 if ends is None else ends[1] - ends[0] + 1
            low += min(0, weight[0]) * most
            high += max(0, weight[1]) * most
        if function == 0:
            return 0, MOST
        return (low if function == 1 else 0, high) if function in {1, 2} else _union(ranges)


def check_arithmetic(
    source: Source, output: Output, ground_more: Callable[[str], Output]
) -> ParseError | None:
    """Return the error at the first operation whose value does not fit in 32 bits, or None."""
    arithmetic = _Arithmetic(source.constants)
    for definition in source.definitions:
        excess: list[_Excess] = []
        arithmetic.value(definition.value, {}, excess)
        if excess:
            return _error(source, excess[0], {})
    scopes = [scope for rule in source.rules for scope in _scopes(rule)]
    if not scopes:
        return None
    nodes = (n for scope in scopes for n in scope.literals)
    totals = (scope.total for scope in scopes if scope.total)
    used = {name for name, _ in predicates(*nodes, *totals)}
    for atom in _atoms(output):
        if atom.partition("(")[0] not in used:
            continue
        name, arguments = arguments_of(atom)
        arithmetic.atoms[name, len(arguments)] += 1
        integers = [int(argument) for argument in arguments if _integer(argument)]
        if integers:
            ends = min(integers), max(integers)
            arithmetic.occurring = _union([arithmetic.occurring, ends])
    suspects = [scope for scope in scopes if _excess(arithmetic, scope, {})]
    if not suspects:
        return None
    lines: list[str] = []
    checks: list[tuple[_Scope, list[str], list[str]]] = []  # with variables, and names of atoms
    for scope in suspects:
        body, bound = _binding_literals(scope)
        variables, names = sorted(bound), []
        elements = [None] if scope.total is None else scope.total.elements
        for element in elements:
            names.append(f"{_CHECK}{len(lines)}")
            more = [] if element is None else [str(term) for term in element.terms]
            conditions = [] if element is None else [str(literal) for literal in element.condition]
            head = atom_text(names[-1], [*variables, *more])
            literals = "; ".join([*body, *conditions])
            lines.append(f"{head}{' :- ' * bool(literals)}{literals}.\n")
        checks.append((scope, variables, names))
    rows: dict[str, list[list[str]]] = {}
    for atom in _atoms(ground_more("".join(lines))):
        if atom.startswith(_CHECK):
            name, values = arguments_of(atom)
            rows.setdefault(name, []).append(values)
    for scope, variables, names in checks:
        found = [row for name in names for row in rows.get(name, ())]
        error = _first_excess(arithmetic, source, scope, variables, found)
        if error is not None:
            return error
    return None


# ---- Rules


def _scopes(rule: Any) -> Iterator[_Scope]:
    """Yield the places of a rule where something is computed."""
    body = list(rule.body)
    terms = [*_terms(head_of(rule)), *_terms_of_atoms(body)]
    for node in body:
        if _is_kind(node, "BodyAggregate") or _is_kind(node, "Aggregate"):
            guards = (node.atom.left_guard, node.atom.right_guard)
            terms += [guard.term for guard in guards if guard is not None]
    if any(_computes(n) for n in (*terms, *(n for n in body if _is_kind(n, "Comparison")))):
        yield _Scope(body, terms)
    for node in body:
        others = [n for n in body if n is not node]
        if _is_kind(node, "BodyAggregate"):
            for element in node.atom.elements:
                conditions = list(element.condition)
                inner = _terms_of_atoms(conditions)
                if any(_computes(n) for n in (*element.terms, *conditions)):
                    yield _Scope([*others, *conditions], [*element.terms, *inner])
            if int(node.atom.function) in {1, 2}:
                yield _Scope(others, [], node.atom)
        counted = list(node.atom.elements) if _is_kind(node, "Aggregate") else []
        for conditional in [node] if node.ast_type.name == "ConditionalLiteral" else counted:
            if _computes(conditional):
                parts = [conditional.literal, *conditional.condition]
                # What is counted binds variables as well.
                yield _Scope([*others, *parts[not counted :]], _terms_of_atoms(parts))


def _excess(arithmetic: _Arithmetic, scope: _Scope, known: Ranges) -> list[_Excess]:
    """Return the operations of a scope that may not fit, for these values of its variables."""
    excess: list[_Excess] = []
    values = arithmetic.values(scope.literals, known, excess)
    if _is_excluded(arithmetic, scope.literals, values, excess):
        return []
    for term in scope.terms:
        arithmetic.value(term, values, excess)
    total = None if scope.total is None else arithmetic.total(scope.total, values)
    if total is not None and (total[0] < LEAST or total[1] > MOST):
        excess.append(_Excess(scope.total, total))
    return excess


def _is_excluded(
    arithmetic: _Arithmetic, literals: Iterable[Any], values: Ranges, excess: list[_Excess]
) -> bool:
    """Return whether a comparison fails for these values, so that nothing else matters."""
    for literal in literals:
        if not _is_kind(literal, "Comparison"):
            continue
        for left, operator, right in _comparisons([literal]):
            found: list[_Excess] = []
            sides = [arithmetic.value(term, values, found) for term in (left, right)]
            if not found and not literal.sign and _never(sides[0], operator, sides[1]):
                return True
            excess += found
    return False


def _binding_literals(scope: _Scope) -> tuple[list[str], set[str]]:
    """Return literals that bind variables of a scope, and these variables.

    Nothing is computed in them, so that no value has been wrapped. The elements of a sum are listed
    after every operation has been checked: there literals may compute.
    """
    body = [n for n in scope.literals if _is_atom(n) and n.sign == 0]
    bound = {name for n in body for name in _variables(n)}
    rest = [
        n for n in scope.literals if n not in body and (scope.total is not None or not _computes(n))
    ]
    outer = _outer_variables(scope.literals)
    while True:
        for literal in rest:
            assigned = _assigned_variables(literal) - bound
            needed = _variables(literal)
            if _is_kind(literal, "BodyAggregate") or literal.ast_type.name == "ConditionalLiteral":
                needed &= outer
            if needed - assigned <= bound:
                body.append(literal)
                bound |= assigned
                rest.remove(literal)
                break
        else:
            return [str(literal) for literal in body], bound


def _first_excess(
    arithmetic: _Arithmetic,
    source: Source,
    scope: _Scope,
    variables: list[str],
    rows: list[list[str]],
) -> ParseError | None:
    """Return the error of an operation or a sum that does not fit, for values of the variables."""
    if scope.total is None:
        for row in rows:
            binding = dict(zip(variables, row, strict=True))
            integers = {n: (int(x),) * 2 if _integer(x) else None for n, x in binding.items()}
            excess = _excess(arithmetic, scope, integers)
            if excess:
                return _error(source, excess[0], binding)
        return None
    # The rows of a sum have the values of the variables around it, then the terms of an element.
    groups: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for row in rows:
        outer, element = row[: len(variables)], row[len(variables) :]
        groups.setdefault(tuple(outer), set()).add(tuple(element))
    for group, elements in groups.items():
        weights = [int(element[0]) for element in elements if _integer(element[0])]
        total = sum(w for w in weights if int(scope.total.function) == 1 or w > 0)
        if not LEAST <= total <= MOST:
            binding = dict(zip(variables, group, strict=True))
            return _error(source, _Excess(scope.total, (total, total)), binding)
    return None


def _error(source: Source, excess: _Excess, binding: Binding) -> ParseError:
    names = _variables(excess.node)
    given = ", ".join(f"{name}={binding[name]}" for name in sorted(names) if name in binding)
    low, high = excess.value
    value = f"{low}" if low == high else f"between {low} and {high}"
    text = excess.variable or str(excess.node)
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return source.error_of(
        excess.node,
        f"'{text}' is {value}{' with ' * bool(given)}{given}, which does not fit in 32 bits "
        f"({LEAST} to {MOST})",
    )


# ---- Terms and literals


def _is_kind(literal: Any, kind: str) -> bool:
    return bool(literal.ast_type.name == "Literal" and literal.atom.ast_type.name == kind)


def _is_atom(literal: Any) -> bool:
    return _is_kind(literal, "SymbolicAtom")


def _terms(atom: Any) -> Iterator[Any]:
    """Yield the arguments of a symbolic atom."""
    members = atom.symbol.arguments if atom.symbol.ast_type.name == "Pool" else [atom.symbol]
    for member in members:
        yield from member.arguments


def _terms_of_atoms(literals: Iterable[Any]) -> list[Any]:
    """Return the arguments of the atoms among some literals."""
    return [term for n in literals if _is_atom(n) for term in _terms(n.atom)]


def _computes(node: Any) -> bool:
    return any(part.ast_type.name in _OPERATIONS for part in walk(node))


def _variables(node: Any) -> set[str]:
    names = {part.name for part in walk(node) if part.ast_type.name == "Variable"}
    return names - {"_"}


def _outer_variables(literals: Iterable[Any]) -> set[str]:
    """Return the variables of a body outside of aggregates, and those that aggregates are assigned to."""
    literals = list(literals)
    outside = (_variables(n) for n in literals if not _is_kind(n, "BodyAggregate"))
    return set().union(*outside, *map(_assigned_variables, literals))


def _assigned_variables(literal: Any) -> set[str]:
    """Return the variable that an equation gives a value, if it does."""
    if literal.ast_type.name != "Literal" or literal.sign:
        return set()
    if literal.atom.ast_type.name == "Comparison" and len(literal.atom.guards) == 1:
        guard, terms = literal.atom.guards[0], [literal.atom.term, literal.atom.guards[0].term]
    elif literal.atom.ast_type.name == "BodyAggregate" and literal.atom.left_guard:
        guard, terms = literal.atom.left_guard, [literal.atom.left_guard.term]
    else:
        return set()
    names = [term.name for term in terms if term.ast_type.name == "Variable"]
    return set(names[:1]) if guard.comparison == 5 else set()


def _comparisons(literals: Iterable[Any]) -> Iterator[tuple[Any, int, Any]]:
    """Yield each two terms that are compared, with the number of the operator."""
    for literal in literals:
        left = literal.atom.term
        for guard in literal.atom.guards:
            yield left, int(guard.comparison), guard.term
            left = guard.term


_GT, _LT, _LE, _GE, _NE, _EQ = range(6)


def _never(left: Range, operator: int, right: Range) -> bool:
    """Return whether a comparison fails for all values in these ranges."""
    if left is None or right is None:
        return False  # names and strings are compared as well
    below, above = left[1] < right[0], left[0] > right[1]
    same = left == right and left[0] == left[1]
    return {
        _GT: left[1] <= right[0],
        _LT: left[0] >= right[1],
        _LE: above,
        _GE: below,
        _NE: same,
        _EQ: below or above,
    }[operator]


def _inverse(term: Any, found: Range, constants: dict[str, Any]) -> tuple[str, Range] | None:
    """Return the variable of an argument, and its range where the argument has these values."""
    kind = term.ast_type.name
    if kind == "Variable":
        return None if term.name == "_" else (term.name, found)
    if kind != "BinaryOperation":
        return None
    number = _Arithmetic(constants)
    left, right = (number.value(t, {}, []) for t in (term.left, term.right))
    operator = int(term.operator_type)
    name = next((t.name for t in (term.left, term.right) if t.ast_type.name == "Variable"), None)
    constant = right if term.left.ast_type.name == "Variable" else left
    if name is None or constant is None or constant[0] != constant[1]:
        return None
    if found is None:
        return name, None
    if operator == 3:
        return name, (found[0] - constant[0], found[1] - constant[0])
    if operator == 4 and term.left.ast_type.name == "Variable":
        return name, (found[0] + constant[0], found[1] + constant[0])
    if operator == 4:
        return name, (constant[0] - found[1], constant[0] - found[0])
    return None


def _union(ranges: Iterable[Range]) -> Range:
    known = [part for part in ranges if part is not None]
    return (min(a for a, _ in known), max(b for _, b in known)) if known else None


def _unary(operator: int, a: tuple[int, int]) -> Range:
    ends = [{0: -x, 1: ~x, 2: abs(x)}[operator] for x in a]
    low = 0 if operator == 2 and a[0] <= 0 <= a[1] else min(ends)
    return low, max(ends)


def _binary(operator: int, a: tuple[int, int], b: tuple[int, int]) -> Range:
    """Return a range that holds all values of the operation; a single value for single values."""
    single = a[0] == a[1] and b[0] == b[1]
    if operator <= 2:
        found = {0: a[0] ^ b[0], 1: a[0] | b[0], 2: a[0] & b[0]}[operator]
        return (found, found) if single else _FULL
    if operator <= 5:
        compute = {3: int.__add__, 4: int.__sub__, 5: int.__mul__}[operator]
        ends = [compute(x, y) for x in a for y in b]
        return min(ends), max(ends)
    if operator == 8:
        # Beyond an exponent of 64 the value is out of range by far; a negative one gives 0 or 1.
        if single:
            found = a[0] ** min(b[0], 64 + b[0] % 2) if b[0] >= 0 else 0
            return found, found
        size = max(1, *map(abs, a)) ** min(max(b[1], 0), 64)
        return -size, size
    if a[0] == LEAST and b[0] <= -1 <= b[1]:
        return 0, MOST + 1  # the one division that does not fit; it ends clingo's process
    if single:
        if b[0] == 0:
            return None
        quotient = abs(a[0]) // abs(b[0]) * (1 if (a[0] < 0) == (b[0] < 0) else -1)
        found = quotient if operator == 6 else a[0] - quotient * b[0]
        return found, found
    size = min(MOST, max(map(abs, a)))
    return -size, size


def _atoms(output: Output) -> Iterator[str]:
    yield from output.facts
    yield from output.names.values()
