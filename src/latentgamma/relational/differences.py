"""Where programs that explain the same examples differ: small instances with different answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentgamma.relational.budget import Budget, OutOfBudget
from latentgamma.relational.clauses import Literal
from latentgamma.relational.instances import TooManyRows, body_bindings
from latentgamma.relational.programs import ClauseProgram
from latentgamma.relational.relations import Ints, Relation, decode, encode


@dataclass(frozen=True)
class Alternative:
    """Another program that explains the examples.

    Attributes:
        text: the program as Datalog.
        bits: its description length.
        facts: facts for which the answers differ; empty if no difference was found.
        atom: the atom in which they differ for these facts.
        derives: whether this program derives the atom; the learned one then does not.
    """

    text: str
    bits: float
    facts: str
    atom: str
    derives: bool

    @property
    def difference(self) -> str:
        """Where the program differs from the learned one, as a sentence."""
        if not self.facts:
            return "no difference found"
        who = "only this program derives" if self.derives else "only the learned program derives"
        return f"given {self.facts}, {who} {self.atom}"


def compare(
    programs: Sequence[tuple[ClauseProgram, float]],
    targets: Sequence[tuple[int, int]],
    most: int,
    budget: Budget,
) -> tuple[list[Alternative], int]:
    """Return the programs that differ from the first one and from each other.

    Every program is run on small instances: the bodies of every program's rules, unfolded until
    they have background predicates only.

    Args:
        programs: with their description lengths; the first is the learned one.
        targets: the number and arity of each target.
        most: the largest number of alternatives.
        budget: of work and time; programs after its end are not compared.

    Returns:
        The alternatives, the shortest first, and the number of programs without a difference.
    """
    learned = programs[0][0]
    collected: dict[tuple[tuple[Literal, ...], Literal], None] = {}
    for program, _ in programs:
        collected.update(dict.fromkeys(program.instances([number for number, _ in targets])))
    tests = _Tests(sorted(collected, key=lambda test: len(test[0])))
    alternatives: list[Alternative] = []
    same = 0
    try:
        answer = tests.answers(learned, budget)
        seen = {answer.tobytes()}
        for program, bits in programs[1:]:
            if len(alternatives) >= most:
                break
            try:
                other = tests.answers(program, budget)
            except TooManyRows:
                continue
            different = np.flatnonzero(answer != other)
            same += not len(different)
            if other.tobytes() in seen:
                continue
            seen.add(other.tobytes())
            facts, (head, arguments) = tests.tests[different[0]]
            text = ", ".join(_atom(learned.names[p], literal) for p, literal in facts)
            asked = _atom(learned.names[head], arguments)
            derives = bool(other[different[0]])
            alternatives.append(Alternative(program.text, bits, text, asked, derives))
    except (OutOfBudget, TooManyRows):
        pass
    return alternatives, same


class _Tests:
    """Small sets of facts, each with an atom that is asked about.

    Every literal gets the number of its test as one more argument, so that all tests are evaluated
    at once, and none sees the facts of another.
    """

    def __init__(self, tests: Sequence[tuple[tuple[Literal, ...], Literal]]) -> None:
        variables = [v for facts, atom in tests for _, literal in (*facts, atom) for v in literal]
        self._n = max([len(tests), 1, *(v + 1 for v in variables)])
        # The codes of tuples are integers of 64 bits.
        self.tests = [test for test in tests if all(map(self._fits, (*test[0], test[1])))]
        self._facts: dict[int, list[tuple[int, ...]]] = {}
        for number, (facts, _) in enumerate(self.tests):
            for predicate, literal in facts:
                self._facts.setdefault(predicate, []).append((number, *literal))

    def _fits(self, literal: Literal) -> bool:
        return bool(self._n ** (1 + len(literal[1])) < 2**62)

    def answers(self, program: ClauseProgram, budget: Budget) -> np.ndarray:
        """Return whether a program derives the atom of each test from its facts.

        Raises:
            TooManyRows: a rule has too many instances.
            OutOfBudget: the work or the time is used up.
        """
        arities = {p: len(v) for clause in program.clauses for p, v in clause.body}
        arities |= {clause.head: clause.arity for clause in program.clauses}
        if not all(self._fits((p, (0,) * arity)) for p, arity in arities.items()):
            raise TooManyRows
        relations = [self._relation((), 0)] * (1 + max(arities))
        for predicate, arity in arities.items():
            relations[predicate] = self._relation(self._facts.get(predicate, ()), arity)
        derived = {clause.head: np.empty(0, np.int64) for clause in program.clauses}
        grows = True
        while grows:
            grows = False
            for clause in program.clauses:
                body = tuple((p, (0, *(v + 1 for v in literal))) for p, literal in clause.body)
                columns, truth = body_bindings(body, range(clause.arity + 1), relations, budget)
                codes = np.union1d(derived[clause.head], encode(columns, self._n, len(truth)))
                if len(codes) > len(derived[clause.head]):
                    grows = True
                    derived[clause.head] = codes
                    rows = decode(codes, self._n, clause.arity + 1)
                    relations[clause.head] = self._relation(rows, clause.arity)
        answer = np.zeros(len(self.tests), bool)
        for number, (_, (head, arguments)) in enumerate(self.tests):
            if head in derived:
                code = encode([np.array([v]) for v in (number, *arguments)], self._n, 1)
                answer[number] = np.isin(code, derived[head])[0]
        return answer

    def _relation(self, rows: Sequence[Sequence[int]] | Ints, arity: int) -> Relation:
        table = np.unique(np.array(rows, np.int64).reshape(-1, arity + 1), axis=0)
        return Relation("", table, self._n, (0,) * (arity + 1))


def _atom(name: str, arguments: Sequence[int]) -> str:
    inside = ",".join("abcdefghijklmnopqrstuvwxyz"[v % 26] + "1" * (v // 26) for v in arguments)
    return f"{name}({inside})" if inside else name
