"""Recursive rules that compute their outputs from their inputs, found by running them.

Rules that build lists use tuples that cannot be listed in advance. If predicates have directions, a
program of such rules can be run on the inputs of the examples, and predicates are called as needed:
base rules are paired with recursive ones, the shortest first, until a pair gives the right answers,
if possible one answer for each input.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from latentgamma.relational.budget import Budget, OutOfBudget
from latentgamma.relational.prolog import Prolog, PrologError, Signature, Term, term_text

#: The numbers of some terms.
Values: TypeAlias = "tuple[int, ...]"
#: A predicate and the expressions that are its inputs, or all its arguments in a test.
_Call: TypeAlias = "tuple[Signature, tuple[int, ...]]"

#: Rows that take as long as a call of a predicate, and as a rule for one input.
_ROWS_OF_A_CALL, _ROWS_OF_A_RULE = 20_000, 300
#: Inputs on which expressions are compared, expressions, tests, and calls below one another.
_MOST_INPUTS, _MOST_EXPRESSIONS, _MOST_TESTS, _MOST_DEPTH = 300, 300, 60, 100
#: Calls in an expression, in the inputs of a recursive call, in those of a test, and in a base rule.
_EXPRESSION_CALLS, _DESCENT_CALLS, _TEST_CALLS, _BASE_CALLS = 2, 2, 3, 3
#: Literals by which a program with one answer for each input may be longer than another.
_MORE_LITERALS = 2
#: Recursive rules to which another one is added.
_MOST_COMBINED = 60


@dataclass
class Declared:
    """What is declared about the arguments of predicates."""

    types: dict[Signature, tuple[str, ...]] = field(default_factory=dict)
    directions: dict[Signature, tuple[str, ...]] = field(default_factory=dict)

    def kinds(self, name: Signature) -> tuple[str, ...]:
        """Return the types of the arguments; all the same if they are not declared."""
        return self.types.get(name) or ("",) * name[1]

    def inputs(self, name: Signature) -> list[int]:
        """Return the places of inputs: the first of several arguments if nothing is declared."""
        default = ("in", *["out"] * (name[1] - 1))
        ways = self.directions.get(name, default[: name[1]])
        return [place for place, way in enumerate(ways) if way != "out"]

    def outputs(self, name: Signature) -> list[int]:
        """Return the places that are not inputs."""
        inputs = self.inputs(name)
        return [place for place in range(name[1]) if place not in inputs]


@dataclass(frozen=True)
class Functions:
    """A program that gives the right answers for the examples.

    `facts` are the facts of background predicates that it used, and `atoms` those of the target
    that it derived on the way.
    """

    rules: tuple[tuple[tuple[Signature, tuple[int, ...]], ...], ...]  # bodies, by predicate
    facts: dict[Signature, list[tuple[str, ...]]]
    atoms: list[tuple[str, ...]]


@dataclass(frozen=True)
class _Rule:
    tests: tuple[_Call, ...]
    descent: tuple[int, ...]  # the inputs of the recursive call; () in a base rule
    outputs: tuple[int, ...]  # the expressions of the head's outputs
    literals: int


class FunctionSearch:
    """The search for a base rule and one or two recursive ones.

    Args:
        prolog: answers calls of predicates.
        declared: the predicates that rules may use: those with directions.
        target: the predicate to learn.
        positive: the arguments of examples.
        negative: the same.
        limits: of literals in a body, variables in a rule, and rules.
        budget: the work.
    """

    def __init__(
        self,
        prolog: Prolog,
        declared: Declared,
        target: Signature,
        positive: Sequence[Sequence[Term]],
        negative: Sequence[Sequence[Term]],
        limits: tuple[int, int, int],
        budget: Budget,
    ) -> None:
        self._prolog, self._declared, self._target, self._budget = prolog, declared, target, budget
        self._background = [name for name in declared.directions if name != target]
        self._most_body, self._most_variables, self._most_rules = limits
        self._terms: list[Term] = []
        self._numbers: dict[Term, int] = {}
        self._answers: dict[tuple[Signature, Values], tuple[Values, ...]] = {}
        self._given, self._asked = declared.inputs(target), declared.outputs(target)
        self._positive = sorted(map(self._split, positive), key=self._size)
        self._negative = sorted(map(self._split, negative), key=self._size)
        # Expressions: the inputs of the head, then outputs of calls. `_of` has the call and the place.
        self._types = [declared.kinds(target)[place] for place in self._given]
        self._of: list[tuple[_Call, int] | None] = [None] * len(self._given)
        self._calls: list[frozenset[_Call]] = [frozenset()] * len(self._given)
        self._values: dict[Values, list[int | None]] = {}
        self._inputs = [*dict.fromkeys(given for given, _ in [*self._positive, *self._negative])]

    def _size(self, example: tuple[Values, Values]) -> int:
        return sum(len(term_text(self._terms[value])) for value in example[0])

    def _split(self, arguments: Sequence[Term]) -> tuple[Values, Values]:
        values = [self._number(term) for term in arguments]
        return tuple(values[p] for p in self._given), tuple(values[p] for p in self._asked)

    def _number(self, term: Term) -> int:
        if term not in self._numbers:
            self._numbers[term] = len(self._terms)
            self._terms.append(term)
        return self._numbers[term]

    # -- calls of background predicates

    def _call(self, name: Signature, given: Values) -> tuple[Values, ...]:
        """Return the outputs of a predicate for these inputs."""
        found = self._answers.get((name, given))
        if found is None:
            self._budget.spend(_ROWS_OF_A_CALL)
            places, outputs = self._declared.inputs(name), self._declared.outputs(name)
            terms = {place: self._terms[v] for place, v in zip(places, given, strict=True)}
            rows: list[tuple[Term, ...]] = []
            with contextlib.suppress(PrologError):  # a number where a list is expected
                rows = self._prolog.rows(name, terms)
            found = tuple(tuple(self._number(row[place]) for place in outputs) for row in rows)
            self._answers[name, given] = found
        return found

    # -- expressions over the inputs of the head, and tests of them

    def _value(self, expression: int, given: Values) -> int | None:
        """Return the value of an expression for these inputs of the head; None without one."""
        known = self._values.setdefault(given, [*given])
        while len(known) <= expression:
            of = self._of[len(known)]
            assert of is not None
            (name, arguments), place = of
            inputs = [known[argument] for argument in arguments]
            rows = () if None in inputs else self._call(name, tuple(inputs))  # type: ignore[arg-type]
            known.append(rows[0][place] if len(rows) == 1 else None)
        return known[expression]

    def _holds(self, test: _Call, given: Values) -> bool:
        """Return whether a test, whose arguments are all expressions, holds."""
        name, arguments = test
        values = [self._value(argument, given) for argument in arguments]
        if None in values:
            return False
        inputs, outputs = self._declared.inputs(name), self._declared.outputs(name)
        rows = self._call(name, tuple(values[place] for place in inputs))  # type: ignore[misc]
        return tuple(values[place] for place in outputs) in rows

    def _choices(
        self, kinds: Sequence[str], most: int, expressions: Sequence[int] | None = None
    ) -> Iterator[tuple[int, ...]]:
        """Yield expressions of these types that need no more calls than this together."""
        every = range(len(self._of)) if expressions is None else expressions
        pools = [[e for e in every if self._types[e] == kind] for kind in kinds]
        for choice in itertools.product(*pools):
            if len(frozenset().union(*(self._calls[e] for e in choice))) <= most:
                yield choice

    def _grow(self) -> None:
        """Add expressions, one of those that have the same values for every input."""
        seen = {self._vector(expression) for expression in range(len(self._of))}
        for calls in range(1, _EXPRESSION_CALLS + 1):
            for name in self._background:
                for arguments in list(self._choices(self._input_types(name), calls - 1)):
                    for of, kind, needs in self._outputs_of((name, arguments)):
                        if len(needs) != calls or len(self._of) >= _MOST_EXPRESSIONS:
                            continue
                        self._add(of, kind, needs)
                        vector = self._vector(len(self._of) - 1)
                        if vector in seen or set(vector[1]) == {None}:
                            for known in self._values.values():
                                del known[len(self._of) - 1 :]
                            del self._of[-1], self._types[-1], self._calls[-1]
                        else:
                            seen.add(vector)

    def _input_types(self, name: Signature) -> list[str]:
        return [self._declared.kinds(name)[place] for place in self._declared.inputs(name)]

    def _outputs_of(self, call: _Call) -> Iterator[tuple[tuple[_Call, int], str, frozenset[_Call]]]:
        """Yield the outputs of a call as expressions, with their types and the calls that they need."""
        name, arguments = call
        needs = frozenset({call}).union(*(self._calls[e] for e in arguments))
        for at, place in enumerate(self._declared.outputs(name)):
            yield (call, at), self._declared.kinds(name)[place], needs

    def _add(self, of: tuple[_Call, int], kind: str, calls: frozenset[_Call]) -> None:
        self._of.append(of)
        self._types.append(kind)
        self._calls.append(calls)

    def _vector(self, expression: int) -> tuple[str, tuple[int | None, ...]]:
        values = tuple(self._value(expression, given) for given in self._inputs)
        return self._types[expression], values

    def _reach(self) -> None:
        """Add the inputs of recursive calls to those on which expressions are compared."""
        steps = self._descents()
        known = dict.fromkeys(self._inputs)
        waiting = list(known)
        while waiting and len(known) < _MOST_INPUTS:
            given = waiting.pop(0)
            for step in steps:
                values = tuple(self._value(expression, given) for expression in step)
                if None not in values and values not in known:
                    known[values] = None  # type: ignore[index]
                    waiting.append(values)  # type: ignore[arg-type]
        self._inputs = list(known)

    def _tests(self) -> list[_Call]:
        """Return tests that differ on the inputs and hold for some, but not all of them."""
        found: dict[tuple[bool, ...], _Call] = {}
        for calls in range(_TEST_CALLS + 1):
            for name in self._background:
                for arguments in self._choices(self._declared.kinds(name), calls):
                    inputs = tuple(arguments[p] for p in self._declared.inputs(name))
                    needs = frozenset().union(*(self._calls[e] for e in arguments))
                    if len(needs) != calls or (name, inputs) in needs:
                        continue
                    if len(found) >= _MOST_TESTS:
                        return list(found.values())
                    test = (name, arguments)
                    truth = tuple(self._holds(test, given) for given in self._inputs)
                    if any(truth) and not all(truth):
                        found.setdefault(truth, test)
        return list(found.values())

    # -- rules

    def _rule(
        self, tests: tuple[_Call, ...], descent: tuple[int, ...], outputs: tuple[int, ...]
    ) -> _Rule | None:
        """Return a rule; None if it is too long, or not every argument of its head is in its body."""
        calls = self._needed_calls(tests, descent, outputs)
        literals = len(calls) + len(tests) + bool(descent)
        variables = len(self._given) + sum(len(self._declared.outputs(name)) for name, _ in calls)
        variables += len(self._asked) if descent else 0
        if literals > self._most_body or variables > self._most_variables:
            return None
        used = {*descent}.union(*(arguments for _, arguments in (*calls, *tests)))
        safe = used >= {*range(len(self._given))} and len({*outputs}) == len(outputs)
        if not safe or any(self._of[e] is None for e in outputs):
            return None
        return _Rule(tests, descent, outputs, literals)

    def _needed_calls(
        self, tests: Sequence[_Call], descent: Sequence[int], outputs: Sequence[int]
    ) -> frozenset[_Call]:
        """Return the calls of background predicates in a rule, without its tests."""
        used = [*descent, *outputs, *(e for _, arguments in tests for e in arguments)]
        none: frozenset[_Call] = frozenset()
        return none.union(*(self._calls[e] for e in used)) - {(self._target, ())}

    def _base_rules(self, tests: Sequence[_Call]) -> list[_Rule]:
        """Return base rules without a negative example, one of those with the same answers."""
        kinds = [self._declared.kinds(self._target)[place] for place in self._asked]
        guards = [(), *((one,) for one in tests), *itertools.combinations(tests, 2)]
        rules = []
        for outputs in self._choices(kinds, _BASE_CALLS):
            for guard in guards:
                rule = self._rule(guard, (), outputs)
                if rule is not None and 0 < rule.literals <= _BASE_CALLS:
                    rules.append(rule)
        found: dict[tuple[frozenset[Values], ...], _Rule] = {}
        for rule in sorted(rules, key=lambda one: one.literals):
            self._budget.spend(_ROWS_OF_A_RULE * len(self._inputs))
            answers = tuple(frozenset(self._answer([rule], x, {})) for x in self._inputs)
            if any(answers) and answers not in found and self._excludes_negatives([rule]):
                found[answers] = rule
        return list(found.values())

    def _recursive_rules(self, tests: Sequence[_Call]) -> list[_Rule]:
        """Return rules with one recursive call, the shortest first."""
        descents = self._descents()
        plain = len(self._of)
        # The results of the recursive call are expressions of a call without arguments.
        for output in self._outputs_of((self._target, ())):
            self._add(*output)
        asked = self._types[plain:]
        first = len(self._of)
        for name in self._background:
            inputs = self._input_types(name)
            for arguments in self._choices(inputs, _EXPRESSION_CALLS + 1, range(first)):
                if any(argument >= plain for argument in arguments):
                    for output in self._outputs_of((name, arguments)):
                        self._add(*output)
        outputs = [
            choice
            for choice in self._choices(asked, self._most_body, range(len(self._of)))
            if not asked or any(e >= plain for e in choice)
        ]
        guards: list[tuple[_Call, ...]] = [(), *((one,) for one in tests)]
        rules = (
            self._rule(guard, descent, choice)
            for descent, choice, guard in itertools.product(descents, outputs, guards)
        )
        return [rule for rule in rules if rule is not None]

    def _descents(self) -> list[tuple[int, ...]]:
        """Return inputs of a recursive call with which such calls end."""
        kinds = self._types[: len(self._given)]
        every = self._choices(kinds, _DESCENT_CALLS)
        return [one for one in every if one != (*range(len(kinds)),) and self._ends(one)]

    def _ends(self, descent: tuple[int, ...]) -> bool:
        """Return whether recursive calls with these inputs end."""
        for start, _ in self._positive:
            given: Values | None = start
            for _ in range(_MOST_DEPTH):
                values = tuple(self._value(expression, given) for expression in descent)  # type: ignore[arg-type]
                given = None if None in values else values  # type: ignore[assignment]
                if given is None:
                    break
            if given is not None:
                return False
        return True

    # -- running rules

    def _answer(
        self, rules: Sequence[_Rule], given: Values, known: dict[Values, set[Values]]
    ) -> set[Values]:
        """Return the outputs that rules compute from the inputs of the head."""
        found = known.get(given)
        if found is not None:
            return found
        known[given] = set()
        found = set()
        for rule in rules:
            if not all(self._holds(test, given) for test in rule.tests):
                continue
            results: set[Values] = {()}
            if rule.descent:
                inputs = tuple(self._value(e, given) for e in rule.descent)
                results = set() if None in inputs else self._answer(rules, inputs, known)  # type: ignore[arg-type]
            for result in results:
                outputs = tuple(self._combine(e, given, result) for e in rule.outputs)
                if None not in outputs:
                    found.add(outputs)  # type: ignore[arg-type]
        known[given] = found
        return found

    def _combine(self, expression: int, given: Values, result: Values) -> int | None:
        """Return the value of an expression that may use the result of the recursive call."""
        of = self._of[expression]
        if of is None or (self._target, ()) not in self._calls[expression]:
            return self._value(expression, given)
        (name, arguments), place = of
        if name == self._target:
            return result[place]
        inputs = [self._combine(argument, given, result) for argument in arguments]
        rows = () if None in inputs else self._call(name, tuple(inputs))  # type: ignore[arg-type]
        return rows[0][place] if len(rows) == 1 else None

    def _excludes_negatives(self, rules: Sequence[_Rule]) -> bool:
        known: dict[Values, set[Values]] = {}
        return not any(
            asked in self._answer(rules, given, known) for given, asked in self._negative
        )

    def _covered(self, rules: Sequence[_Rule], *, all_of_them: bool) -> list[bool]:
        """Return which positive examples rules derive; up to the first one they do not if all count."""
        known: dict[Values, set[Values]] = {}
        found = []
        for given, asked in self._positive:
            found.append(asked in self._answer(rules, given, known))
            if all_of_them and not found[-1]:
                break
        self._budget.spend(_ROWS_OF_A_RULE * len(rules) * len(known))
        return found

    def search(self) -> Functions | None:
        """Return a program; None if none was found."""
        with contextlib.suppress(OutOfBudget):
            rules = self._search()
            return None if rules is None else self._functions(rules)
        return None

    def _search(self) -> list[_Rule] | None:
        self._grow()
        self._reach()
        tests = self._tests()
        bases = self._base_rules(tests)
        steps = self._recursive_rules(tests)
        by_length: dict[int, list[_Rule]] = {}
        for step in steps:
            by_length.setdefault(step.literals, []).append(step)
        pairs = (
            [base, step]
            for literals in range(_BASE_CALLS + self._most_body + 1)
            for base in bases
            for step in by_length.get(literals - base.literals, ())
        )
        best: list[_Rule] | None = None
        for rules in pairs:
            literals = sum(rule.literals for rule in rules)
            if best is not None and literals > sum(rule.literals for rule in best) + _MORE_LITERALS:
                break
            if not self._is_right(rules):
                continue
            if self._is_function(rules):
                return rules
            best = best or rules
        if best is not None or self._most_rules < 3:
            return best
        for base in bases:
            alone = self._covered([base], all_of_them=False)
            useful = [
                step
                for step in steps
                if self._covered([base, step], all_of_them=False) != alone
                and self._excludes_negatives([base, step])
            ]
            for first, second in itertools.product(useful[:_MOST_COMBINED], steps):
                rules = [base, first, second]
                if self._is_right(rules):
                    return rules
        return None

    def _is_right(self, rules: Sequence[_Rule]) -> bool:
        return all(self._covered(rules, all_of_them=True)) and self._excludes_negatives(rules)

    def _is_function(self, rules: Sequence[_Rule]) -> bool:
        """Return whether rules have one answer for the inputs of each positive example."""
        known: dict[Values, set[Values]] = {}
        return all(len(self._answer(rules, given, known)) == 1 for given, _ in self._positive)

    # -- the result

    def _functions(self, rules: Sequence[_Rule]) -> Functions:
        """Return the rules, with the facts that they use for the examples."""
        self._answers, self._values = {}, {}
        known: dict[Values, set[Values]] = {}
        for given, _ in [*self._positive, *self._negative]:
            self._answer(rules, given, known)
        facts: dict[Signature, list[tuple[str, ...]]] = {}
        for (name, given), rows in self._answers.items():
            for outputs in rows:
                facts.setdefault(name, []).append(self._cells(name, given, outputs))
        atoms = [
            self._cells(self._target, given, row) for given, rows in known.items() for row in rows
        ]
        return Functions(tuple(map(self._body, rules)), facts, atoms)

    def _cells(self, name: Signature, given: Values, outputs: Values) -> tuple[str, ...]:
        places = [*self._declared.inputs(name), *self._declared.outputs(name)]
        values = dict(zip(places, (*given, *outputs), strict=True))
        return tuple(term_text(self._terms[values[place]]) for place in range(name[1]))

    def _body(self, rule: _Rule) -> tuple[tuple[Signature, tuple[int, ...]], ...]:
        """Return the literals of a rule; the variables of the head come first."""
        target = self._target
        numbers = itertools.count(target[1])
        variables: dict[int, int] = dict(enumerate(self._given))
        variables |= dict(zip(rule.outputs, self._asked, strict=True))
        calls = self._needed_calls(rule.tests, rule.descent, rule.outputs)
        expressions = {of: number for number, of in enumerate(self._of) if of is not None}

        def literal(name: Signature, inputs: Sequence[int], call: _Call) -> tuple[int, ...]:
            places: dict[int, int] = {}
            for place, expression in zip(self._declared.inputs(name), inputs, strict=True):
                places[place] = variable(expression)
            for at, place in enumerate(self._declared.outputs(name)):
                number = expressions.get((call, at))
                places[place] = next(numbers) if number is None else variable(number)
            return tuple(places[place] for place in range(name[1]))

        def variable(expression: int) -> int:
            if expression not in variables:
                variables[expression] = next(numbers)
            return variables[expression]

        body = [(name, literal(name, arguments, (name, arguments))) for name, arguments in calls]
        if rule.descent:
            body.append((target, literal(target, rule.descent, (target, ()))))
        body += [(name, tuple(map(variable, arguments))) for name, arguments in rule.tests]
        return tuple(body)
