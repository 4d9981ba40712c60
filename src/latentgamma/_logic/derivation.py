"""Why an atom follows from some facts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from latentgamma._logic.closure import Closure, closure
from latentgamma._program.facts import Facts, atom_index
from latentgamma._program.names import quote
from latentgamma._program.program import Indices, Program, require_program

# A branch deeper than this goes on in a tree of its own, or a long chain would run off the page.
_DEEPEST = 24


@dataclass(frozen=True, slots=True)
class Step:
    """One atom of a proof: a given fact (`rule` is None), or the head of a rule's premises."""

    atom: str
    rule: int | None
    premises: tuple[str, ...]


@dataclass(frozen=True)
class Derivation:
    """A proof of least depth that an atom follows from some facts.

    `steps` come premises first, each atom once, however often it is used. Printed, it is a
    tree in which a sub-proof stands where it is first needed.

    >>> program = Program.from_rules([("bird", ["penguin"]), ("animal", ["bird"])])
    >>> proof = derivation(program, ["penguin"], "animal")
    >>> print(proof)
    animal  (rule 1)
    └─ bird  (rule 0)
       └─ penguin  (given)
    >>> proof.depth, sorted(proof.facts), proof.rules
    (2, ['penguin'], (0, 1))
    """

    program: Program = field(repr=False)
    atom: str
    depth: int
    steps: tuple[Step, ...]

    @property
    def facts(self) -> frozenset[str]:
        """The given facts it rests on."""
        return frozenset(step.atom for step in self.steps if step.rule is None)

    @property
    def rules(self) -> tuple[int, ...]:
        """The indices of the rules it uses, rising."""
        return tuple(sorted({step.rule for step in self.steps if step.rule is not None}))

    def holds(self) -> bool:
        """Whether each step is licensed by its rule and by the steps before it."""
        proved: set[str] = set()
        for step in self.steps:
            if step.rule is not None:
                rule = self.program.rules[step.rule]
                licensed = step.atom in rule.heads and rule.body == set(step.premises) <= proved
                if not licensed:
                    return False
            proved.add(step.atom)
        return self.atom in proved

    def to_dict(self) -> dict[str, Any]:
        """The proof as plain values."""
        return {
            "atom": self.atom,
            "depth": self.depth,
            "facts": sorted(self.facts),
            "rules": list(self.rules),
            "steps": [
                {"atom": step.atom, "rule": step.rule, "premises": list(step.premises)}
                for step in self.steps
            ],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """The proof as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def to_dot(self) -> str:
        """The proof as a Graphviz graph, premises below what they prove."""
        number = {step.atom: n for n, step in enumerate(self.steps)}
        lines = ["digraph derivation {", "  rankdir=BT;"]
        for n, step in enumerate(self.steps):
            given = step.rule is None
            note, shape = ("given", "box") if given else (f"rule {step.rule}", "ellipse")
            lines.append(f'  n{n} [label="{_dot(step.atom)}\\n{note}", shape={shape}];')
            lines += [f"  n{number[premise]} -> n{n};" for premise in step.premises]
        return "\n".join([*lines, "}"])

    def __str__(self) -> str:
        by_atom = {step.atom: step for step in self.steps}
        lines: list[str] = []
        shown: set[str] = set()
        later = [self.atom]
        postponed = set(later)
        for root in later:  # grows as deep branches are put off
            lines += [""] * bool(lines)
            postponed.discard(root)
            stack = [(root, "", "", 0)]
            while stack:
                atom, above, branch, depth = stack.pop()
                step = by_atom[atom]
                note = "given" if step.rule is None else f"rule {step.rule}"
                expand = bool(step.premises) and atom not in shown
                if expand and (depth == _DEEPEST or atom in postponed):
                    note, expand = f"{note}, continued below", False
                    if atom not in postponed:
                        postponed.add(atom)
                        later.append(atom)
                elif step.premises and not expand:
                    note = f"{note}, shown above"
                lines.append(f"{above}{branch}{quote(atom)}  ({note})")
                if expand:
                    shown.add(atom)
                    inner = above + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
                    branches = ["├─ "] * (len(step.premises) - 1) + ["└─ "]
                    stack += [
                        (premise, inner, branch, depth + 1)
                        for premise, branch in zip(
                            reversed(step.premises), reversed(branches), strict=True
                        )
                    ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Derivation({self.atom!r}, depth {self.depth}, {len(self.steps)} steps)"


def derivation(program: Program, facts: Facts, atom: str | int) -> Derivation | None:
    """A proof of least depth that the atom follows from the facts, or None if it does not.

    An atom that is given is its own proof, even where a rule derives it as well.

    >>> program = Program.from_rules([("bird", ["penguin"])])
    >>> derivation(program, [], "bird") is None
    True
    """
    require_program(program, "derivation")
    goal = atom_index(program, atom)
    known = closure(program, facts)
    if not known.state[goal]:
        return None
    reasons = reasons_of(known)
    needed = atoms_needed(program, reasons, goal)
    names, level = program.atoms, known.level.tolist()
    steps = []
    for i in sorted(needed, key=lambda i: (level[i], i)):
        rule = int(reasons[i])
        premises = () if rule < 0 else tuple(names[b] for b in program.body_of(rule).tolist())
        steps.append(Step(names[i], None if rule < 0 else rule, premises))
    return Derivation(program, names[goal], level[goal], tuple(steps))


# ------------------------------------------------------------------------ proofs


def reasons_of(known: Closure) -> Indices:
    """For each derived atom that is not given a rule that derives it first, else −1, shape (M,)."""
    program = known.program
    never = np.iinfo(np.int64).max - 1
    level = known.level.astype(np.int64)
    ready = np.zeros(program.R, np.int64)  # the step after which the body is true
    bodies = np.flatnonzero(program.body_sizes)
    if len(bodies):
        levels = np.where(level < 0, never, level)[program.body_indices]
        ready[bodies] = np.maximum.reduceat(levels, program.body_indptr[bodies])
    rule = np.repeat(np.arange(program.R), program.head_sizes)
    first = np.flatnonzero(ready[rule] + 1 == level[program.head_indices])
    # Of several the one with the shortest body, then the earliest: the last to be written.
    first = first[np.lexsort((-rule[first], -program.body_sizes[rule[first]]))]
    reasons = np.full(program.M, -1, np.int32)
    reasons[program.head_indices[first]] = rule[first]
    return reasons


def atoms_needed(program: Program, reasons: npt.NDArray[Any], goal: int) -> set[int]:
    """The atoms of the proof that the reasons make up."""
    needed = {goal}
    stack = [goal]
    while stack:
        rule = int(reasons[stack.pop()])
        if rule >= 0:
            fresh = set(program.body_of(rule).tolist()) - needed
            needed |= fresh
            stack += fresh
    return needed


def _dot(name: str) -> str:
    """The name inside a Graphviz string."""
    return quote(name).replace("\\", "\\\\").replace('"', '\\"')
