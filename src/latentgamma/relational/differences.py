"""Where programs that explain the same examples differ: small instances with different answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latentgamma.relational.clauses import Literal
from latentgamma.relational.programs import ClauseProgram, derived_atoms


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
    programs: Sequence[tuple[ClauseProgram, float]], targets: Sequence[tuple[int, int]], most: int
) -> tuple[list[Alternative], int]:
    """Return the programs that differ from the first one and from each other.

    Every program is run on small instances: the bodies of every program's rules, unfolded until
    they have background predicates only.

    Args:
        programs: with their description lengths; the first is the learned one.
        targets: the number and arity of each target.
        most: the largest number of alternatives.

    Returns:
        The alternatives, the shortest first, and the number of programs without a difference.
    """
    collected: dict[tuple[tuple[Literal, ...], Literal], tuple[str, ...]] = {}
    for program, _ in programs:
        for facts, atom in program.instances([number for number, _ in targets]):
            collected.setdefault((facts, atom), program.names)
    tests = sorted(collected, key=lambda test: len(test[0]))
    background: dict[str, list[tuple[str, ...]]] = {}
    asked = []
    for number, (facts, (head, arguments)) in enumerate(tests):
        names = collected[facts, (head, arguments)]
        for predicate, literal in facts:
            cells = tuple(f"c{number}_{v}" for v in literal)
            background.setdefault(f"{names[predicate]}/{len(cells)}", []).append(cells)
        asked.append((names[head], *(f"c{number}_{v}" for v in arguments)))
    first = programs[0][0]
    shown = [f"{first.names[number]}/{arity}" for number, arity in targets]
    answers = []
    for program, _ in programs:
        atoms = derived_atoms(program.text, background, shown)
        answers.append(tuple(atom in atoms for atom in asked))
    seen = {answers[0]}
    alternatives: list[Alternative] = []
    same = sum(answer == answers[0] for answer in answers[1:])
    for (program, bits), answer in zip(programs[1:], answers[1:], strict=True):
        if answer in seen or len(alternatives) >= most:
            continue
        seen.add(answer)
        at = next(i for i, (a, b) in enumerate(zip(answer, answers[0], strict=True)) if a != b)
        facts, (head, arguments) = tests[at]
        names = collected[tests[at]]
        text = ", ".join(_atom(names[p], literal) for p, literal in facts)
        asked_for = _atom(names[head], arguments)
        alternatives.append(Alternative(program.text, bits, text, asked_for, answer[at]))
    return alternatives, same


def _atom(name: str, arguments: Sequence[int]) -> str:
    inside = ",".join("abcdefghijklmnopqrstuvwxyz"[v % 26] + "1" * (v // 26) for v in arguments)
    return f"{name}({inside})" if inside else name
